"""How many hops of neighbours a model reads, and whether a sampling query fits that."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from livegnn.errors import ModelError
from livegnn.model.inputs import EdgeInput, Input
from livegnn.model.propagation import Propagate
from livegnn.model.steps import Step
from livegnn.query import Query
from livegnn.types import NodeType
from livegnn.wording import count, kind_of


class _Reach(NamedTuple):
    """From how far a row on edges is made: in hops from the edge's source, and from its target."""

    source: int = 0
    target: int = 0


def num_hops(
    inputs: Mapping[str, Input], edge_inputs: Mapping[str, EdgeInput], steps: Sequence[Step]
) -> dict[str, int]:
    """For each value on nodes: from how many hops away its rows are made, 0 for a node's own features.

    The two propagations of a softmax, its greatest logit and its sum, are one hop: what an edge reads at the
    end that receives its message is no hop away.
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


def check_query(query: object, hops: int, node_type: NodeType) -> None:
    """Raises `ModelError` unless `query` draws as many hops as the model reads, for nodes that it predicts.

    hops: of the outputs. node_type: of the prediction.
    """
    if not isinstance(query, Query):
        raise ModelError(f"the query of a model must be a Query, got {kind_of(query)}")
    if query.num_hops != hops:
        raise ModelError(
            f"the model reads {count(hops, 'hop')} of neighbors, so its query must have {hops}, "
            f"got {query.num_hops}: draw one hop for each layer of convolutions"
        )
    if query.seed_type != node_type:
        raise ModelError(
            f"the model predicts {node_type!r} nodes, so its query must begin there, got {query.seed_type!r}"
        )
