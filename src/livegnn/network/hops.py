"""The number of hops that a model reads, by lists and degrees, and the check that a query fits it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from livegnn.errors import ModelError
from livegnn.network.propagation import Degree, Propagate
from livegnn.network.steps import EdgeInput, Input, Step
from livegnn.query import Direction, Query
from livegnn.types import EdgeType, NodeType
from livegnn.wording import format_count, kind_of


class _Reach(NamedTuple):
    """From how far a row on edges is made: in hops from the edge's source, and from its target."""

    source: int = 0
    target: int = 0


def num_hops(
    inputs: Mapping[str, Input], edge_inputs: Mapping[str, EdgeInput], steps: Sequence[Step]
) -> dict[str, int]:
    """For each value on nodes: the largest distance of nodes that its rows need, 0 for a node's own features.

    The two propagations of a softmax, its greatest logit and its sum, are one hop: the rows that an edge
    reads at its receiving end are not a hop away.
    """
    nodes = dict.fromkeys(inputs, 0)
    edges = dict.fromkeys(edge_inputs, _Reach())
    for step in steps:
        if step.op == "source":
            edges[step.output] = _Reach(source=nodes[step.inputs[0]])
        elif step.op == "target":
            edges[step.output] = _Reach(target=nodes[step.inputs[0]])
        elif step.op == "propagate":
            nodes[step.output] = _after_propagation(step, nodes, edges)
        elif step.inputs and step.inputs[0] in edges:
            read = [edges[name] for name in step.inputs]
            edges[step.output] = _Reach(max(one.source for one in read), max(one.target for one in read))
        else:
            nodes[step.output] = max((nodes[name] for name in step.inputs), default=0)
    return nodes


def _after_propagation(step: Step, nodes: Mapping[str, int], edges: Mapping[str, _Reach]) -> int:
    operators = Propagate.from_step(step)
    along = len(operators.edge_types) * (2 if operators.coefficients else 1)
    far = 0 if operators.only_loops else 1
    reached = [0]
    for position, name in enumerate(step.inputs):
        if name in edges:
            sent, own = edges[name][::-1] if operators.reverse else edges[name]
            reached.append(max(sent + far, own))
        else:
            reached.append(nodes[name] + (far if position < along else 0))
    return max(reached)


@dataclass(frozen=True)
class Reads:
    """The reach of a prediction around a node, by edge type and direction, as numbers of hops.

    The neighbours of nodes at a distance below ``lists`` are read, and the degree of nodes at a distance of
    at most ``degrees``. A direction that is missing is not read.
    """

    lists: Mapping[tuple[EdgeType, Direction], int]
    degrees: Mapping[tuple[EdgeType, Direction], int]


def reads_of(steps: Sequence[Step], output: str) -> Reads:
    """Finds the reach of the rows of one value. output: the name of a value on nodes.

    It follows the steps backward, so a value that `output` does not depend on costs nothing.
    """
    on_edges = _values_on_edges(steps)
    nodes, edges = {output: 0}, dict[str, _Reach]()
    lists: dict[tuple[EdgeType, Direction], int] = {}
    degrees: dict[tuple[EdgeType, Direction], int] = {}

    def read(name: str, distance: int) -> None:
        nodes[name] = max(nodes.get(name, 0), distance)

    def read_edges(name: str, source: int, target: int) -> None:
        before = edges.get(name, _Reach())
        edges[name] = _Reach(max(before.source, source), max(before.target, target))

    for step in reversed(steps):
        if step.output in edges:
            at = edges[step.output]
            if step.op in ("source", "target"):
                read(step.inputs[0], at.source if step.op == "source" else at.target)
                continue
            for name in step.inputs:
                if name in on_edges:
                    read_edges(name, *at)
        elif step.output not in nodes:
            continue
        elif step.op == "degree":
            counted = Degree.from_step(step)
            key: tuple[EdgeType, Direction] = (counted.edge_type, "out" if counted.reverse else "in")
            degrees[key] = max(degrees.get(key, 0), nodes[step.output])
        elif step.op == "propagate":
            here = nodes[step.output]
            operators = Propagate.from_step(step)
            sender = here if operators.only_loops else here + 1
            for edge_type in operators.edge_types:
                key = (edge_type, "out" if operators.reverse else "in")
                lists[key] = max(lists.get(key, 0), here + 1)
                if "source_rsqrt" in operators.message_local:
                    degrees[key] = max(degrees.get(key, 0), sender)
            along = len(operators.edge_types) * (2 if operators.coefficients else 1)
            for position, name in enumerate(step.inputs):
                if name in on_edges:
                    read_edges(name, *((here, sender) if operators.reverse else (sender, here)))
                else:
                    read(name, sender if position < along else here)
        else:
            for name in step.inputs:
                read(name, nodes[step.output])
    return Reads(lists, degrees)


def _values_on_edges(steps: Sequence[Step]) -> set[str]:
    """The values on edges that steps make; those that the model reads from the graph need no node."""
    found: set[str] = set()
    for step in steps:
        if step.op in ("source", "target") or (
            step.op != "propagate" and any(name in found for name in step.inputs)
        ):
            found.add(step.output)
    return found


def check_query(query: object, hops: int, node_type: NodeType) -> None:
    """Raises `ModelError` unless `query` draws as many hops as the model reads, for nodes that it predicts.

    hops: of the outputs. node_type: of the prediction.
    """
    if not isinstance(query, Query):
        raise ModelError(f"the query of a model must be a Query, got {kind_of(query)}")
    if query.num_hops != hops:
        raise ModelError(
            f"the model reads {format_count(hops, 'hop')} of neighbors, so its query must have {hops}, "
            f"got {query.num_hops}: draw one hop for each layer of convolutions"
        )
    if query.seed_type != node_type:
        raise ModelError(
            f"the model predicts {node_type!r} nodes, so its query must begin there, got {query.seed_type!r}"
        )
