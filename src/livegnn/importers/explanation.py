"""A report for the user on how the importer understood a module."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from livegnn.errors import ModelError
from livegnn.importers.expressions.expressions import Expression, Expressions
from livegnn.importers.importing import read_module
from livegnn.importers.program.export import Given
from livegnn.importers.reading.reader import Program
from livegnn.importers.rules.normal_form import normalize
from livegnn.importers.rules.propagation_kinds import Propagation, classify
from livegnn.network.call_settings import CallSettings, Members, Metadata
from livegnn.types import DEFAULT_EDGE_TYPE, DEFAULT_NODE_TYPE, EdgeType, NodeType

if TYPE_CHECKING:
    import torch
    from torch_geometric.data import Data, HeteroData

    from livegnn.graph import Graph, Schema

_INFIX = {"add": "+", "mul": "*", "div": "/", "eq": "==", "ne": "!=", "gt": ">", "lt": "<", "and": "and"}
_DEPTH = 8


@dataclass(frozen=True)
class ImportExplanation:
    """The propagations of a module, in the order in which they are computed, and the inputs that it reads.

    ``str()`` returns a report: for each propagation its module and line of code, the rows that its message
    reads, and whether it is incremental, constrained or recomputed.
    """

    module: str
    inputs: tuple[str, ...]
    propagations: tuple[Propagation, ...]
    _make: Expressions

    def __str__(self) -> str:
        lines = [f"{self.module} reads {', '.join(self.inputs)}"]
        place = None
        for one in self.propagations:
            here = " ".join(
                part for part in (one.origin.module, one.origin.line and f"({one.origin.line})") if part
            )
            if here != place:
                lines.append(here or self.module)
                place = here
            lines.append(f"    {one.what}: {one.upkeep}; {one.why}")
            lines += [f"        {text}" for text in formulas(self._make, one.scatter)]
        return "\n".join(lines)


def explain_import(
    module: "torch.nn.Module",
    data: "Data | HeteroData | Schema | Graph | None" = None,
    *,
    inputs: Mapping[str, object] | None = None,
    method: str = "forward",
    node_type: NodeType = DEFAULT_NODE_TYPE,
    edge_type: EdgeType = DEFAULT_EDGE_TYPE,
    relations: Sequence[EdgeType] | None = None,
    metadata: Metadata | None = None,
    edge_weight: Collection[EdgeType] | bool | None = None,
    in_channels: int | Mapping[NodeType, int] | None = None,
    edge_channels: int | Mapping[EdgeType, int] | None = None,
    groups: Mapping[str | None, Members] | None = None,
) -> ImportExplanation:
    """Reads a PyG module and reports how it was understood, without changing the module. Needs torch.

    The arguments are those of `Model.from_pyg`. Raises `ModelError` with the line of the module that cannot
    be imported, and advice.
    """
    settings = CallSettings(
        data=data,
        inputs=inputs,
        method=method,
        node_type=node_type,
        edge_type=edge_type,
        relations=relations,
        metadata=metadata,
        edge_weight=edge_weight,
        in_channels=in_channels,
        edge_channels=edge_channels,
        groups=groups,
    )
    return explain_program(read_module(module, settings))


def explain_program(program: Program) -> ImportExplanation:
    """The explanation of a program. Raises `ModelError` if its propagations cannot be classified."""
    try:
        found = tuple(classify(program.make, normalize(program.make, program.rows)))
    except (AssertionError, RuntimeError, TypeError, ValueError, LookupError) as error:
        raise ModelError(
            f"{program.module_name} was read, but its propagations were not understood"
        ) from error
    names = tuple(_describe(given) for given in program.given)
    return ImportExplanation(program.module_name, names, found, program.make)


def _describe(given: Given) -> str:
    if given.ends:
        return f"{given.name} ({given.atom})"
    if given.group is not None:
        return f"{given.name} ({given.group})"
    return f"{given.name} ({given.atom}[{prod(given.channels)}])"


def formulas(make: Expressions, scatter: Expression) -> list[str]:
    """The reduction of a propagation in words, a line for each of its pieces."""
    words = {"sum": "sum", "amax": "max", "amin": "min", "last": "last", "prod": "product"}
    lines = []
    for message, index, mask in scatter.pieces:
        over = "own row" if index.op == "rows" else f"{index.atom}"
        if scatter.atom is None:
            over = f"all {index.atom}"
        where = "" if mask.is_number(1) else f" where {formula(make, mask, index)}"
        lines.append(f"{words[str(scatter.attrs[0])]} over {over}{where} of {formula(make, message, index)}")
    return lines


def formula(make: Expressions, one: Expression, index: Expression, depth: int = _DEPTH) -> str:
    """An expression on edges in words, with ends named by the direction of its messages."""
    if one.value is not None:
        return make.names.get(one) or (f"{one.value.item():g}" if one.value.numel() == 1 else "constant")
    if one.op == "input":
        return str(one.attrs[0])
    if one.op == "end":
        return "target" if one is index else "source"
    if one.op == "gather":
        end = "target" if one.args[1] is index else "source"
        return f"{formula(make, one.args[0], index, depth - 1)}[{end}]"
    if one.op == "scatter":
        return f"<{make.origins[one].module or 'sum'}>"
    if depth <= 0:
        return "..."
    if one.op in ("reshape", "expand", "cast", "permute"):
        return formula(make, one.args[0], index, depth)
    args = [formula(make, arg, index, depth - 1) for arg in one.args]
    if one.op in _INFIX and len(args) == 2:
        return f"({args[0]} {_INFIX[one.op]} {args[1]})"
    if one.op == "neg":
        return f"-{args[0]}"
    if one.op == "exp_shifted":
        return f"exp({args[0]} - max)"
    return f"{one.op}({', '.join(args)})"
