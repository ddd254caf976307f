"""Imports a module: finds its arguments, reads it, lowers it to steps and checks the result."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TypeAlias, TypeVar

import torch
from torch import nn
from torch.utils import _pytree as pytree

from livegnn.errors import ModelError
from livegnn.importers.arguments.advice import find_dropped_types, find_own_edges, find_way
from livegnn.importers.arguments.arguments import ModuleArguments, find_arguments, lone_argument
from livegnn.importers.arguments.left_out import refuse_left_out
from livegnn.importers.arguments.missing_columns import refuse_unasked_columns
from livegnn.importers.arguments.module_inputs import (
    WIDTHS,
    ModuleInputs,
    check_takes_relations,
    with_relations,
)
from livegnn.importers.arguments.pairs import typed_pairs, with_decoder
from livegnn.importers.arguments.watching import call_watched
from livegnn.importers.assembly import assemble
from livegnn.importers.check import check_import
from livegnn.importers.expressions.expressions import Atom
from livegnn.importers.program.copying import copy_module, keeping_random
from livegnn.importers.program.export import call_with, export_module, has_own_call, signature_of, unwrap
from livegnn.importers.program.failures import CallFails, fixed_by, line_of
from livegnn.importers.program.tracing import ordinary
from livegnn.importers.reading.reader import Program, name_results, read
from livegnn.importers.reading.row_operators import OF_NO_NODES
from livegnn.importers.reading.values import ROWS, Piece, Value
from livegnn.importers.rules.groups import Grouping
from livegnn.importers.settings import checked, schema_of
from livegnn.importers.writing.edge_steps import REDUCED
from livegnn.network.call_settings import CallSettings
from livegnn.network.model import Model
from livegnn.types import EdgeType
from livegnn.wording import kind_of

_Made = TypeVar("_Made", Model, Program)

_Call: TypeAlias = tuple[ModuleArguments, ModuleInputs | None, CallSettings]
"""The arguments of a module; its declared types and widths, if there are no data; and the settings."""


def import_module(module: object, settings: CallSettings) -> Model:
    """The model of a module; for the arguments see `Model.from_pyg`.

    Raises only `ModelError`, also for exceptions of the module, with the line of the module if it is known.
    """
    outer, settings = _check_module(module), checked(settings)
    with _refusals(outer, settings):
        return _for_pairs(outer, settings, _import_found)


def _import_found(module: nn.Module, settings: CallSettings) -> Model:
    found, declared, settings = _find_call(module, settings)
    model = _import(module, found, settings)
    refuse_left_out(module, settings, found)
    refuse_unasked_columns(module, settings, found)
    if declared is not None:
        declared.check_widths({*model.inputs, *model.edge_inputs})
    return model


def read_module(module: object, settings: CallSettings) -> Program:
    """Reads the computation of a module. Raises the errors of `import_module`."""
    outer, settings = _check_module(module), checked(settings)
    with _refusals(outer, settings):
        return _for_pairs(outer, settings, lambda inner, each: _read(inner, _find_call(inner, each)[0]))


def _for_pairs(
    outer: nn.Module, settings: CallSettings, function: Callable[[nn.Module, CallSettings], _Made]
) -> _Made:
    """The result of a function of the module and the first types of pairs with which it raises no error."""
    inner, settings = with_decoder(unwrap(outer, settings.method), settings)
    refused: ModelError | None = None
    for each in typed_pairs(inner, settings):
        try:
            return function(inner, each)
        except ModelError as error:
            refused = refused or error
    assert refused is not None
    raise refused


def _check_module(given: object) -> nn.Module:
    if not isinstance(given, nn.Module):
        raise ModelError(f"must be a torch.nn.Module, got {kind_of(given)}: {_instead_of(given)}")
    return given


def _find_call(module: nn.Module, settings: CallSettings) -> _Call:
    """Returns the call of a module: by places, as callers do, or by names if its own hooks need names.

    Raises ModelError if it can be called both ways, with different results.
    """
    if settings.method != "forward" or not has_own_call(module):
        return _find(module, settings)
    named = replace(settings, by_name=True)
    try:
        by_place = _find(module, settings)
    except ModelError as error:
        try:
            return _find(module, named)
        except ModelError:
            raise error from error.__cause__
    try:
        by_name = _find(module, named)
        results = [call_with(module, one.call) for one in (by_place[0], by_name[0])]
    except Exception:
        return by_place
    if not _is_same(*results):
        raise ModelError(
            "its own hooks, or its own __call__, make it say one thing when arguments are given by their "
            "places, as in module(x, edge_index), and another when they are given by their names: let them "
            "take arguments in both ways"
        )
    return by_place


def _is_same(one: object, other: object) -> bool:
    """Whether two results of a module have the same tensors."""
    both = [pytree.tree_flatten(result) for result in (one, other)]
    (first, spec), (second, other_spec) = both
    return spec == other_spec and all(
        torch.equal(a.nan_to_num(), b.nan_to_num())
        if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)
        else a == b
        for a, b in zip(first, second, strict=True)
    )


def _find(module: nn.Module, settings: CallSettings) -> _Call:
    """Returns a module's arguments; its declared types and widths, if there are no data; and the settings.

    If a method's only argument has a name without a known meaning, it is PyG data where rows of nodes fail.
    """
    error: Exception | None
    try:
        found = _find_arguments(module, settings)
        tried = found[0].guessed or settings.data is None
        error = _failure(module, found[0]) if tried else None
    except ModelError as failed:
        found, error = None, failed
    if error is not None:
        lone = lone_argument(module, settings.method)
        as_data = None if lone in (settings.inputs or {}) else _find_data(module, settings, lone)
        if as_data is not None:
            return as_data
    way = find_way(module, settings) if _is_of_call(error) and settings.data is None else ""
    if isinstance(error, CallFails):
        way = way or _lacks_data(module, settings, error.__cause__)
        text = str(error).removesuffix(WIDTHS) if way else str(error)
        raise ModelError(f"{text}{way}") from error.__cause__
    if way and not isinstance(error, ModelError):
        what = f"{type(error).__name__}: {error}".rstrip(": ")
        raise ModelError(f"{type(module).__name__}.{settings.method} fails: {what}{way}") from error
    if found is None:
        assert error is not None
        raise error
    return *found, settings


def _lacks_data(module: nn.Module, settings: CallSettings, error: BaseException | None) -> str:
    """The end of an error about an attribute that rows of nodes have not, as PyG data have; else empty."""
    lone = lone_argument(module, settings.method)
    of_rows = isinstance(error, AttributeError) and isinstance(error.obj, torch.Tensor)
    if lone is None or not of_rows:
        return ""
    return f"; if {lone!r} is PyG data, give data, with which the module can be called"


def _is_of_call(error: Exception | None) -> bool:
    """Whether it is an error of the module's own call."""
    return error is not None and (isinstance(error, CallFails) or not isinstance(error, ModelError))


def _find_data(module: nn.Module, settings: CallSettings, name: str | None) -> _Call | None:
    """Returns `_find` with this argument as PyG data; None if the module cannot be called so."""
    if name is None:
        return None
    settings = replace(settings, inputs={**(settings.inputs or {}), name: "data"})
    try:
        found = _find_arguments(module, settings)
    except ModelError:
        return None
    return (*found, settings) if _failure(module, found[0]) is None else None


def _failure(module: nn.Module, found: ModuleArguments, edges: int | None = None) -> Exception | None:
    """The exception of a call on a small graph, if there is one. edges: as for `call_with`."""
    try:
        call_with(module, found.call, edges=edges)
    except Exception as error:
        return error
    return None


def _find_arguments(module: nn.Module, settings: CallSettings) -> tuple[ModuleArguments, ModuleInputs | None]:
    """The arguments of a module by these settings, and its declared types and widths."""
    schema = schema_of(settings)
    if schema is None:
        declared = ModuleInputs(module, settings)
        return declared.find(), declared
    check_takes_relations(module, settings.method, settings.relations)
    parameters = signature_of(module, settings.method).parameters
    inputs = with_relations(settings.inputs, settings.relations, parameters)
    found = find_arguments(
        module, schema, settings.method, inputs, by_name=settings.by_name, groups=settings.groups
    )
    return _keep_tables(module, settings, found), None


def _keep_tables(module: nn.Module, settings: CallSettings, found: ModuleArguments) -> ModuleArguments:
    """The arguments, without the embeddings of as many rows as there are nodes that a column looks up."""
    named = [one for one in found.parameters if one.name in (settings.inputs or {})]
    if len(named) == len(found.parameters):
        return found
    watched = call_watched(module, replace(found.call, parameters=named))
    kept = tuple(one for one in found.parameters if one in named or one.name not in watched.tables)
    return replace(found, parameters=kept)


def _read(module: nn.Module, found: ModuleArguments, output: str | Sequence[str] | None = None) -> Program:
    try:
        exported = export_module(module, found.call)
    except CallFails as error:
        own_edges = find_own_edges(module, lambda edges: _failure(module, found, edges) is None)
        raise ModelError(f"{error}{own_edges or find_dropped_types(module)}") from error.__cause__
    program = read(exported, [output] if isinstance(output, str) else output, of_all=bool(found.whole))
    return _with_groups(program, found.whole)


def _with_groups(program: Program, whole: Sequence[Atom]) -> Program:
    """The program with rows of groups. whole: the edges to the one group of all nodes."""
    made = Grouping(program.make, [*program.rows, *program.read], whole)
    outputs = {name: _of_groups(value, made, program.module_name) for name, value in program.outputs.items()}
    if whole and not made.of_all:
        raise ModelError(
            f"groups[None] must be the group for a row of all nodes, got {program.module_name}, which "
            "computes no such row: leave None out"
        )
    return replace(program, outputs=outputs, read=[made.rows[one] for one in program.read])


def _of_groups(value: Value, made: Grouping, module_name: str) -> Value:
    if value.row_axis is not None:
        return Value(
            tuple(Piece(one.atom, made.rows[one.mask], made.rows[one.row]) for one in value.pieces),
            value.axes,
        )
    row = made.of_all.get(value.row)
    if row is None:
        raise ModelError(
            f"{module_name} returns a row for the whole graph that is computed of edges, or of nodes whose "
            "type groups[None] does not have: return sums, means, maxima or minima of rows of nodes"
        )
    return Value((Piece(row.atom, value.pieces[0].mask, row),), ((ROWS,), *value.axes))


def _import(module: nn.Module, found: ModuleArguments, settings: CallSettings) -> Model:
    """The model, checked against the module."""

    def results(module: nn.Module, tensors: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
        flat, spec = pytree.tree_flatten(call_with(module, found.call, tensors))
        return dict(zip(name_results(spec), flat, strict=True))

    relations = None if settings.relations is None else tuple(settings.relations)
    program = _read(module, found, settings.output)
    made = assemble(program, relations=relations, output=settings.output, output_type=settings.output_type)
    check_import(
        made,
        partial(results, module),
        found.call.inputs,
        program.module_name,
        relations=relations,
        whole=found.whole,
        widely=lambda tensors: results(copy_module(module).double(), tensors),
    )
    return made.model


@contextmanager
def _refusals(module: nn.Module, settings: CallSettings) -> Iterator[None]:
    """Turns every exception into a `ModelError` with the method's name and the line of the module."""
    name = f"{type(module).__name__}.{settings.method}"
    try:
        with ordinary(), keeping_random():
            yield
    except ModelError as error:
        text = _with_place(error, module, name, settings.relations)
        fixed = _fixed(module, settings, text)
        if fixed:
            text = f"{text.partition(REDUCED)[0]}{REDUCED}: {fixed}"
        raise ModelError(f"{text}{_embedded(module, settings, text)}") from error.__cause__
    except Exception as error:
        place = line_of(error)
        what = f"{type(error).__name__}: {error}".rstrip(": ")
        if settings.relations is not None:
            what += _other_numbers(module, len(settings.relations))
        raise ModelError(f"{name} cannot be imported: {place and place + ': '}{what}") from error


def _other_numbers(module: nn.Module, relations: int) -> str:
    """The end of an error message: a layer with another number of relations; empty if there is none."""
    for path, part in module.named_modules():
        number = getattr(part, "num_relations", relations)
        if number != relations:
            return (
                f"; {path or type(part).__name__} has num_relations={number}, and relations are {relations}"
            )
    return ""


def _with_place(error: ModelError, module: nn.Module, name: str, relations: Sequence[EdgeType] | None) -> str:
    """The message of an error, with the name of the method and the line of the module."""
    text = str(error)
    place = "" if error.__cause__ is None else line_of(error.__cause__)
    if place and place not in text:
        text = f"{place}: {text}"
    if type(module).__name__ not in text:
        text = f"{name}: {text}"
    if relations is not None and error.__cause__ is not None:
        text += _other_numbers(module, len(relations))
    if "must be finite" in text:
        text = f"{text}; of its parameters and buffers, these are not: {_not_finite(module)}"
    return text


def _fixed(module: nn.Module, settings: CallSettings, text: str) -> str:
    """Returns advice to give a number that a layer takes from the whole graph; empty if there is none."""
    layer = fixed_by(module, text) if REDUCED in text else None
    if layer is None:
        return ""
    kind, keyword, value = layer
    takes = keyword in signature_of(unwrap(module, settings.method), settings.method).parameters
    how = f"say inputs={{{keyword!r}: {value}}}" if takes else f"call the layer with {keyword}={value}"
    return (
        f"{kind} takes {keyword} from all edges where it is not given: {how}, which is its value for "
        "a normalized Laplacian, or the number that it was trained with"
    )


def _embedded(module: nn.Module, settings: CallSettings, text: str) -> str:
    """The end of an error about rows that belong to no node: embeddings that may have a row for each."""
    if OF_NO_NODES not in text:
        return ""
    tables = (name for name, part in module.named_modules() if isinstance(part, nn.Embedding))
    named = [f"{name}.weight".removeprefix(".") for name in tables]
    named = [one for one in named if one not in (settings.inputs or {})]
    rows = ", ".join(f"{one!r}: 'node'" for one in named)
    of = " and ".join(named)
    data = ", or give data, PyG data with these nodes" if settings.data is None else ""
    return f"; if {of} has a row for each node, say inputs={{{rows}}}{data}" if named else ""


def _not_finite(module: nn.Module) -> str:
    named = (*module.named_parameters(), *module.named_buffers())
    return ", ".join(repr(name) for name, tensor in named if not bool(tensor.isfinite().all()))


def _instead_of(given: object) -> str:
    if isinstance(given, Mapping):
        return "weights alone are not a model: load them into its module and pass the module"
    if hasattr(given, "edge_index") or hasattr(given, "edge_types") or hasattr(given, "schema"):
        return "pass the trained module; Graph.from_pyg(data) imports the graph"
    return "pass the trained module itself"
