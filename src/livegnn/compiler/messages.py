"""Operations of a plan, and programs that compute messages from both ends of an edge and its features."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from livegnn.network import EdgeInput, Model, Step
from livegnn.types import EdgeType, NodeType

Side: TypeAlias = Literal["source", "target", "edge_attr", "weight"]

SIDES: Final[Mapping[Side, int]] = {"source": 0, "target": 1, "edge_attr": 2, "weight": 3}
"""MessageSource::Side of the native core."""


@dataclass(frozen=True)
class MessageSource:
    """An input of a message: a row of one of the edge's ends, or a column of the edge. The sending end is the
    source, for messages in either direction.

    name: its name in the program's operations. value: for a row of an end, the node value that has the row.
    """

    name: str
    side: Side
    width: int
    value: str = ""


@dataclass(frozen=True)
class Messages:
    """The program of the messages along one edge type.

    operations: row-wise, on edges. message: the value that is aggregated. coefficient: one factor for each
    head, or None; with `softmax`, the factor is its exponential.
    """

    sources: tuple[MessageSource, ...]
    operations: tuple["Operation", ...]
    message: str
    coefficient: str | None = None
    softmax: bool = False
    skip_loops: bool = False
    only_loops: bool = False
    maximum: bool = False

    @property
    def node_values(self) -> tuple[str, ...]:
        """The node values that the program reads."""
        return tuple(dict.fromkeys(source.value for source in self.sources if source.value))


@dataclass(frozen=True)
class Operation:
    """One operation on rows, or along edges.

    op: a row-wise operator of the model, ``"divide_context"``, ``"rsqrt_context"``, ``"add_loop"``,
    ``"maximum_loop"``, ``"combine"``; along edges ``"sum"`` and ``"max"`` of source rows, ``"messages"``, and
    ``"message_context"``, the sum of their coefficients. inputs: names of values; contexts are named by
    `Context.name`. step: the source of tensors and settings.
    reverse: along edges, from their targets to their sources. self_loops: for a sum along edges, whether one
    loop is added for each node. averaged: whether the sum is divided by the number of its edges.
    """

    op: str
    inputs: tuple[str, ...]
    output: str
    width: int
    node_type: NodeType
    step: Step | None = None
    edge_type: EdgeType | None = None
    reverse: bool = False
    weighted: bool = False
    self_loops: bool = False
    averaged: bool = False
    factor: float = 1.0
    messages: Messages | None = None
    context: str | None = None
    heads: int = 1
    parts: int = 0
    softmax: bool = False

    @property
    def along_edges(self) -> bool:
        return self.op in ("sum", "max", "messages", "message_context")

    @property
    def summed(self) -> bool:
        """Whether it is a sum along edges, which can drift through rounding."""
        return self.op == "sum" or (self.messages is not None and not self.messages.maximum)


def distances_to_seeds(operations: Sequence[Operation]) -> dict[str, int]:
    """The largest number of propagations from a node whose row is read to a node that is predicted, for each
    value. operations: in topological order."""
    distances: dict[str, int] = {}
    for operation in reversed(operations):
        here = distances.setdefault(operation.output, 0)
        messages = operation.messages
        sent = set(operation.inputs) if operation.op in ("sum", "max") else set()
        if messages is not None:
            sent = {source.value for source in messages.sources if source.side == "source" and source.value}
        for name in operation.inputs:
            distances[name] = max(distances.get(name, 0), here + (name in sent))
    return distances


def gather_late(model: Model, steps: Sequence[Step]) -> list[Step]:
    """The steps, where steps on edges that read only one end run once for each node, not for each edge."""
    moved: list[Step] = []
    gathered: dict[str, Step] = {}
    for step in steps:
        if step.op in ("source", "target"):
            gathered[step.output] = step
            moved.append(step)
            continue
        sides = {
            (gathered[n].op, gathered[n].attrs["edge_type"]) if n in gathered else None for n in step.inputs
        }
        if step.op == "propagate" or len(sides) != 1 or None in sides:
            moved.append(step)
            continue
        on_nodes = replace(
            step, inputs=tuple(gathered[n].inputs[0] for n in step.inputs), output=f"{step.output}/on_nodes"
        )
        gather = replace(gathered[step.inputs[0]], inputs=(on_nodes.output,), output=step.output)
        gathered[step.output] = gather
        moved += [on_nodes, gather]
    return moved


def read_messages(
    edge_steps: Mapping[str, Step],
    edge_inputs: Mapping[str, EdgeInput],
    widths: Mapping[str, int],
    value: str,
    coefficient: str | None,
    *,
    softmax: bool,
    skip_loops: bool,
    only_loops: bool,
    reverse: bool,
    negated: bool,
) -> Messages:
    """The program of the messages `value`, which are rows of edges or of the sending nodes.

    edge_steps: the steps that write rows of edges, by their output. negated: negate the message (min(x) is
    -max(-x)).
    """
    sources: dict[str, MessageSource] = {}
    operations: dict[str, Operation] = {}

    def visit(name: str) -> None:
        if name in sources or name in operations:
            return
        step = edge_steps.get(name)
        if step is None and name in edge_inputs:
            column: Side = edge_inputs[name].column
            sources[name] = MessageSource(name, column, widths[name])
        elif step is not None and step.op in ("source", "target"):
            side: Side = "source" if (step.op == "source") != reverse else "target"
            sources[name] = MessageSource(name, side, widths[name], step.inputs[0])
        elif step is not None:
            for part in step.inputs:
                visit(part)
            operations[name] = Operation(step.op, step.inputs, name, widths[name], "", step)

    message = value
    if value in edge_steps or value in edge_inputs:
        visit(value)
    else:
        message = f"{value}/of_source"
        sources[message] = MessageSource(message, "source", widths[value], value)
    if coefficient is not None:
        visit(coefficient)
    if negated:
        operations["negated"] = Operation("scale", (message,), "negated", widths[value], "", factor=-1.0)
        message = "negated"
    return Messages(
        tuple(sources.values()),
        tuple(operations.values()),
        message,
        coefficient,
        softmax,
        skip_loops,
        only_loops,
    )
