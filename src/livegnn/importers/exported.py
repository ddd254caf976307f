"""Imports an exported program without its module: finds its arguments, then reads it like any other.

The public entry point is `Model.from_exported`. The meaning of an input follows from its name (the path in
the call, such as ``x_dict['paper']``), its dtype and shape, the symbols that count rows, and a schema. Needs
torch.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from livegnn.errors import ModelError
from livegnn.importers.arguments.exported_inputs import Argument, InputTypes, Types
from livegnn.importers.arguments.names import RELATION
from livegnn.importers.assembly import assemble
from livegnn.importers.check import check_import
from livegnn.importers.explanation import ImportExplanation, explain_program
from livegnn.importers.expressions.expressions import kind_of
from livegnn.importers.program.export import Given, decompose_program, inputs_of
from livegnn.importers.program.failures import refuse_assertions, where
from livegnn.importers.program.program_file import load_program
from livegnn.importers.reading.reader import Program, name_results, read
from livegnn.importers.settings import (
    check_inputs,
    check_joined,
    check_node_type,
    check_output,
    check_output_type,
    to_relations,
    to_schema,
)
from livegnn.network.call_settings import ExportedSettings, InputSpec
from livegnn.network.checks import to_edge_type
from livegnn.network.model import Model
from livegnn.types import DEFAULT_EDGE_TYPE, DEFAULT_NODE_TYPE, EdgeType, NodeType
from livegnn.wording import kind_of as wording_of

if TYPE_CHECKING:
    from torch_geometric.data import Data, HeteroData

    from livegnn.graph import Graph, Schema

_LARGEST = 2**31


def import_exported(program: ExportedProgram | str | PathLike[str], settings: ExportedSettings) -> Model:
    """The model of a program; for the arguments see `Model.from_exported`."""
    output, output_type = settings.output, settings.output_type
    check_output(output)
    check_output_type(output_type)
    relations = to_relations(settings.relations)
    program = _loaded(program)
    reading = read_exported(program, replace(settings, relations=relations))
    made = assemble(reading, relations=relations, output=output, output_type=output_type)
    check_import(
        made,
        lambda tensors: _call(program, reading.given, tensors),
        inputs_of((), reading.given),
        reading.module_name,
        relations=relations,
    )
    return made.model


def explain_exported(
    program: ExportedProgram | str | PathLike[str],
    *,
    schema: "Schema | Graph | Data | HeteroData | None" = None,
    inputs: Mapping[str, InputSpec] | None = None,
    node_type: NodeType = DEFAULT_NODE_TYPE,
    edge_type: EdgeType = DEFAULT_EDGE_TYPE,
) -> ImportExplanation:
    """Reports how a program is understood, as `explain_import` does for a module. Needs torch.

    Arguments and errors are those of `Model.from_exported`.
    """
    return explain_program(
        read_exported(program, ExportedSettings(schema, inputs, node_type=node_type, edge_type=edge_type))
    )


def read_exported(program: ExportedProgram | str | PathLike[str], settings: ExportedSettings) -> Program:
    """Reads an exported program. Raises `ModelError`, and `FileFormatError` for a bad file."""
    node_type, relations, output = settings.node_type, settings.relations, settings.output
    check_inputs(settings.inputs)
    edge_type = to_edge_type(settings.edge_type, "edge_type")
    schema = to_schema(settings.schema, "schema", edges=True)
    check_node_type(node_type, edge_type, alone=relations is None and schema is None)
    check_joined(relations or (), node_type)
    program = _loaded(program)
    name = _module_name(program)
    _check(program, name)
    arguments = list(_arguments(program))
    known = Types.of(schema, relations, node_type, edge_type)
    given = InputTypes(arguments, known, dict(settings.inputs or {})).given()
    if relations is not None and all(one.name != RELATION for one in given):
        raise ModelError(f"{name} takes no edge_type, so relations must not be given")
    known.check(given, relations)
    exported = decompose_program(program, given, name)
    return read(exported, [output] if isinstance(output, str) else output)


# The program


def _loaded(program: object) -> ExportedProgram:
    """The program, read from its file if it is a path. Raises `ModelError`, and `FileFormatError`."""
    if isinstance(program, str | PathLike):
        program = load_program(program)
    if not isinstance(program, ExportedProgram):
        raise ModelError(
            f"program must be what torch.export.export returns, or the path of a .pt2 file, got "
            f"{wording_of(program)}: Model.from_pyg imports a module"
        )
    return program


def _call(
    program: ExportedProgram, given: Sequence[Given], tensors: Sequence[torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Returns a program's results by name, given a tensor for each of its inputs except numbers of rows.

    Its operators are run as they were exported, without torch's checks of sizes before a call.
    """
    named = dict(zip((one.name for one in inputs_of((), given)), tensors, strict=True))
    sizes = {one.atom: named[one.name].shape[1 if one.ends else 0] for one in inputs_of((), given)}
    rows = iter(sizes[one.atom] if one.count else named[one.name].clone() for one in given)
    held = {**program.state_dict, **program.constants}
    kept: list[object] = []
    for node, spec in zip(_placeholders(program), program.graph_signature.input_specs, strict=True):
        if spec.kind is not InputKind.USER_INPUT:
            kept.append(held[str(spec.target)])
        elif isinstance(node.meta.get("val"), torch.Tensor | torch.SymInt):
            kept.append(next(rows))
        else:
            kept.append(getattr(spec.arg, "value", None))
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = program.graph_module(*kept)
    return dict(zip(name_results(program.call_spec.out_spec), results, strict=True))


def _placeholders(program: ExportedProgram) -> list[fx.Node]:
    return [node for node in program.graph.nodes if node.op == "placeholder"]


def _arguments(program: ExportedProgram) -> Iterator[Argument]:
    nodes = _placeholders(program)
    specs = program.graph_signature.input_specs
    users = [node for node, spec in zip(nodes, specs, strict=True) if spec.kind is InputKind.USER_INPUT]
    for (name, keys), node in zip(_paths(program, users), users, strict=True):
        held = node.meta.get("val")
        if isinstance(held, torch.Tensor | torch.SymInt):
            yield Argument(name, keys, held)


def _paths(program: ExportedProgram, users: Sequence[fx.Node]) -> Iterator[tuple[str, tuple[object, ...]]]:
    """The path of each input in the call, in order."""
    args, kwargs = _children(program.call_spec.in_spec)
    signature = program.module_call_graph[0].signature
    names = list(getattr(signature, "forward_arg_names", None) or ())
    leaves = iter(users)
    for place, (_, spec) in enumerate(_keyed(args)):
        paths = list(_leaves(spec))
        nodes = [next(leaves) for _ in paths]
        if place < len(names):
            name = names[place]
        else:
            name = nodes[0].name if len(paths) == 1 and not paths[0] else f"args_{place}"
        yield from ((name, path) for path in paths)
    for name, spec in _keyed(kwargs):
        yield from ((str(name), path) for path in _leaves(spec))


def _children(spec: object) -> list[object]:
    children = getattr(spec, "children", None)
    found = children() if callable(children) else getattr(spec, "children_specs", ())
    return list(found)


def _keyed(spec: object) -> list[tuple[object, object]]:
    """The children of a container with their keys or positions; edge types as keys become tuples."""
    children, context = _children(spec), getattr(spec, "context", None)
    keys: Sequence[object] = range(len(children))
    if isinstance(context, list) and len(context) == len(children):
        keys = [tuple(key) if isinstance(key, list) else key for key in context]
    return list(zip(keys, children, strict=True))


def _leaves(spec: object) -> Iterator[tuple[object, ...]]:
    if getattr(spec, "type", None) is None:
        yield ()
        return
    for key, child in _keyed(spec):
        yield from ((key, *path) for path in _leaves(child))


def _module_name(program: ExportedProgram) -> str:
    """The name of the exported class and its method."""
    for node in program.graph.nodes:
        for path, kind in (node.meta.get("nn_module_stack") or {}).values():
            name = kind if isinstance(kind, str) else kind.__name__
            name = name.rpartition(".")[2]
            if not path and not name.startswith("_empty_nn_module_stack"):
                return f"{name}.forward"
    return "the program"


_RANDOM = ("aten.native_dropout", "aten.bernoulli", "aten.rand")
_TRAINING = {"aten.dropout.": 2, "aten.feature_dropout.": 2, "aten.alpha_dropout.": 2, "aten.batch_norm.": 5}
"""Operators with an argument for training mode, and the place of this argument."""


def _check(program: ExportedProgram, name: str) -> None:
    """Raises `ModelError` for a program that must be exported in another way."""
    changed = any(one.kind is OutputKind.BUFFER_MUTATION for one in program.graph_signature.output_specs)
    for node in program.graph.nodes:
        target = str(node.target)
        place = next((at for begin, at in _TRAINING.items() if target.startswith(begin)), None)
        trains = place is not None and len(node.args) > place and node.args[place] is True
        if trains or (node.op == "call_function" and target.startswith(_RANDOM)):
            raise ModelError(
                f"{name}: {where(node)}it was exported as in training: export module.eval() instead"
            )
    refuse_assertions(program, name)
    if changed:
        raise ModelError(
            f"{name} changes a buffer whenever it is called, and so does not say the same twice: export "
            "module.eval(), and keep what it counts out of forward"
        )
    held = {**program.state_dict, **program.constants}
    inputs = [node.meta.get("val") for node in _placeholders(program)]
    for path, tensor in [*held.items(), *(("an input", one) for one in inputs)]:
        if not isinstance(tensor, torch.Tensor):
            continue
        if tensor.device.type != "cpu":
            raise ModelError(
                f"{name}: {path} is on {tensor.device}: export module.cpu(), called with tensors on the CPU"
            )
        try:
            kind_of(tensor.dtype)
        except ModelError as error:
            raise ModelError(
                f"{name}: {path}: {error}, as with module.float(), and export it again"
            ) from None
    for symbol, allowed in program.range_constraints.items():
        if str(symbol).startswith("s") and not (allowed.lower <= 2 and allowed.upper >= _LARGEST):
            raise ModelError(
                f"{name} was exported for sizes from {allowed.lower} to {allowed.upper}, and a graph may "
                'have others: export it with Dim("nodes") and Dim("edges"), without min and max; a size that '
                "decides what is computed must not be a number of nodes or edges"
            )
