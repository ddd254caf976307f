"""Finds advice about the arguments of a module whose call fails.

All advice was tried: with it, the module can be called. An argument whose name has no known meaning may be
several rows at once, PyG data, whole numbers or rows with several axes. One that was left out may be needed.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, islice, product

from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.nn import MessagePassing

from livegnn.importers.arguments.arguments import ModuleArguments, lone_argument
from livegnn.importers.arguments.module_inputs import called_with, convolutions_of
from livegnn.importers.arguments.names import meaning_of
from livegnn.importers.program.export import Given, leaves, signature_of
from livegnn.network.call_settings import CallSettings

_WHOLE = (1, 2, 4, 9, 16)
"""The numbers of columns of whole numbers that are tried."""
_LAYERS = (nn.Linear, nn.Embedding, nn.LayerNorm, nn.BatchNorm1d, pyg.Linear, MessagePassing)
"""Layers whose parameters are for channels."""
_TYPES = 64
"""The largest number of choices of types that are tried."""
_LONGEST = 64
"""The largest size of a second axis that is tried."""


def find_way(module: nn.Module, settings: CallSettings) -> str:
    """Returns the first advice that helps, as the end of an error; empty if none does."""
    for more, why in _ways(module, settings):
        found = called_with(module, settings, more)
        if found is not None:
            specs = ", ".join(f"{name!r}: {_shown(rows, found, name)}" for name, rows in more.items())
            return f"; if {why}, say inputs={{{specs}}}"
    own_edges = find_own_edges(module, lambda edges: called_with(module, settings, {}, edges) is not None)
    return own_edges or find_dropped_types(module)


def find_dropped_types(module: nn.Module) -> str:
    """Returns the end of an error about node types of which a HeteroConv returns no rows, if there is one."""
    for path, part in module.named_modules():
        edges = convolutions_of(part)
        dropped = sorted({kind[0] for kind in edges} - {kind[-1] for kind in edges})
        if dropped:
            return (
                f"; {path or 'the module'} is a HeteroConv that returns no rows of "
                f"{', '.join(map(repr, dropped))}, where no edge ends: if a later layer reads them, keep "
                "those that it was given, as in x_dict = {**x_dict, **conv(x_dict, edge_index_dict)}"
            )
    return ""


def find_own_edges(module: nn.Module, works: Callable[[int], bool]) -> str:
    """Returns the end of an error about a parameter with a row for each edge of one graph; empty if none has.

    works: whether the module can be called on a graph of this number of edges.
    """
    held = (*module.named_parameters(), *module.named_buffers())
    for name, tensor in held:
        owner = module.get_submodule(name.rpartition(".")[0])
        if tensor.dim() and len(tensor) > 1 and not isinstance(owner, _LAYERS) and works(len(tensor)):
            return (
                f"; {name} has a row for each edge of a graph of {len(tensor)} edges, and events add and "
                "remove edges: take such rows as an argument instead, edge_weight or edge_attr"
            )
    return ""


def optional_rows(module: nn.Module, method: str) -> dict[str, inspect.Parameter]:
    """Returns the arguments that may be left out and may hold rows."""
    parameters = signature_of(module, method).parameters
    return {
        name: one
        for name, one in parameters.items()
        if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
        or (_is_nothing(one.default) and (one.annotation is one.empty or "Tensor" in str(one.annotation)))
        or (meaning_of(name) in ("edge_weight", "edge_attr") and type(one.default) in (int, float))
    }


def _is_nothing(default: object) -> bool:
    return default is None or (isinstance(default, (tuple, list, dict)) and not default)


def _ways(module: nn.Module, settings: CallSettings) -> Iterator[tuple[Mapping[str, object], str]]:
    """Yields possible `inputs`, the likeliest first, each with its reason."""
    given = settings.inputs or {}
    parameters = signature_of(module, settings.method).parameters
    needed = [name for name, one in parameters.items() if one.default is one.empty and name not in given]
    lone = lone_argument(module, settings.method)
    if lone in needed:
        yield {lone: ["x", "edge_index"]}, f"{lone!r} is rows of nodes and the ends of edges in one"
    for rows in _of_types(settings, needed):
        yield rows, "its arguments are of one type each"
    for name, one in parameters.items():
        if one.default is None and name not in given and meaning_of(name) in ("edge_weight", "edge_attr"):
            yield {name: None}, f"it is called without {name!r}"
    for path, part in module.named_modules():
        name = f"{path}.weight".removeprefix(".")
        if isinstance(part, nn.Embedding) and name not in given:
            yield {name: "node"}, f"{name} has a row for each node"
    left_out = [name for name in optional_rows(module, settings.method) if name not in given]
    left_out = [
        name
        for name in left_out
        if parameters[name].default is None
        and (settings.edge_channels is None or meaning_of(name) != "edge_attr")
    ]
    for number in (1, 2):
        for names in combinations(left_out, number):
            for kinds in product(*(_kinds(name) for name in names)):
                rows = {name: (kind, None) for name, kind in zip(names, kinds, strict=True)}
                yield rows, f"it needs {' and '.join(map(repr, names))}, which it is called without"
    of_nodes = [name for name in needed if meaning_of(name) in ("x", None)]
    for name in of_nodes:
        yield {name: ["x", "x"]}, f"{name!r} is rows of the sources and of the targets of edges"
    known = {"edge_index"} | ({"x"} if settings.in_channels is not None else set())  # whose form is known
    for name in needed:
        for kind in _kinds(name) if meaning_of(name) not in known else ():
            for columns in ((), *((number,) for number in _WHOLE)):
                yield ({name: (kind, *columns, int)}, f"{name!r} is whole numbers, in any number of columns")
    for name in of_nodes:
        for length in _lengths(module):
            yield {name: ("node", None, length)}, f"the rows of {name!r} have several axes"


def _kinds(name: str) -> tuple[str, ...]:
    """Returns whether an argument may have rows of nodes, of edges, or of either."""
    of = meaning_of(name)
    if of == "x":
        return ("node",)
    return ("edge",) if name.startswith("edge_") or of in ("edge_attr", "edge_weight") else ("node", "edge")


def _of_types(settings: CallSettings, names: Sequence[str]) -> Iterator[Mapping[str, object]]:
    """Yields arguments as rows of one type each, or of both ends of edges, if there are several types."""
    if settings.metadata is None or any(name.endswith("_dict") for name in names):
        return
    nodes, edges = settings.metadata
    choices: list[list[object]] = []
    for name in names:
        if meaning_of(name) == "edge_index":
            choices.append([*edges])
        elif name.startswith("edge_"):
            choices.append([(kind, None) for kind in edges])
        else:
            ends = [[(source, "x"), (target, "x")] for source, _, target in edges]
            choices.append([*((kind, None) for kind in nodes), *ends])
    for chosen in islice(product(*choices), _TYPES):
        yield dict(zip(names, chosen, strict=True))


def _lengths(module: nn.Module) -> list[int]:
    """Returns sizes that the module has, the smallest first."""
    held = {size for part in module.modules() for size in vars(part).values() if type(size) is int}
    held |= {size for one in module.parameters() for size in one.shape}
    return sorted(size for size in held if 1 < size <= _LONGEST)


def _shown(rows: object, found: ModuleArguments, name: str) -> str:
    """Returns the advice as it is written in `inputs`, with the widths that were found."""
    if isinstance(rows, tuple) and any(part is None or part is int for part in rows):
        given = leaves(found.arguments.get(name))
        channels = given[0].channels if given and isinstance(given[0], Given) else ()
        parts = [repr(rows[0]), *map(str, channels), *(["int"] if int in rows else [])]
        return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
    return repr(rows)
