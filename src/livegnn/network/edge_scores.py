"""Scores of edges: row-wise steps on rows of both ends of an edge, and on its own features and weight.

The rows of the ends are outputs of the model. So each predictor that answers a model's outputs at one state
of the graph can score edges of the graph, and pairs of nodes that no edge joins.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from livegnn.errors import ModelError
from livegnn.network.steps import EdgeInput, Input, Step, describe, needed_steps
from livegnn.types import EdgeType


@dataclass(frozen=True)
class EdgeScores:
    """One edge output of a model.

    edge_type: the type of the scored edges. width: channels of a score. value: its name in the model.
    sources, targets: the outputs whose rows the steps read at an edge's ends: name of the value on edges ->
    name of the output. edge_inputs: the edges' own columns that the steps read, by the name of the value.
    steps: row-wise, in topological order; they read these values and compute `value`.
    """

    edge_type: EdgeType
    width: int
    value: str
    sources: Mapping[str, str]
    targets: Mapping[str, str]
    edge_inputs: Mapping[str, EdgeInput]
    steps: tuple[Step, ...]


def edge_scores_of(
    value: str, values: Mapping[str, Input | EdgeInput], steps: Sequence[Step], outputs: Mapping[str, str]
) -> EdgeScores:
    """The edge output that is the value of this name.

    values: the place and width of all values of a model. outputs: those of the model, by name.
    Raises `ModelError` if the value has no rows of edges, no step computes it, or an output
    lacks that it reads at the ends of an edge.
    """
    scored = values.get(value)
    if scored is None:
        raise ModelError(
            f"an edge output must be a value of the model, one of {', '.join(values)}, got {value!r}"
        )
    makers = {step.output: step for step in steps}
    if not isinstance(scored, EdgeInput) or value not in makers:
        raise ModelError(
            f"the edge output {value!r} must have rows of edges that steps compute, it has rows of nodes or "
            "is an input"
        )
    named: dict[str, str] = {}
    for name, output in outputs.items():
        named.setdefault(output, name)
    ends: dict[str, dict[str, str]] = {"source": {}, "target": {}}
    needed, wanted = list[Step](), [value]
    on_edges = [step for step in needed_steps(steps, [value]) if isinstance(values[step.output], EdgeInput)]
    for step in reversed(on_edges):
        if step.output not in wanted:
            continue  # a message of a propagation that the ends' rows depend on
        if step.op not in ends:
            needed.append(step)
            wanted += step.inputs
            continue
        end = step.inputs[0]
        if end not in named:
            raise ModelError(
                f"{describe(step)}: the edge output {value!r} reads {end!r} at the {step.op} of an edge, so "
                "that must be one of the model's outputs: add it to outputs"
            )
        ends[step.op][step.output] = named[end]
    edge_inputs = {
        name: given for name in wanted if name not in makers and isinstance(given := values[name], EdgeInput)
    }
    return EdgeScores(
        scored.edge_type,
        scored.width,
        value,
        ends["source"],
        ends["target"],
        edge_inputs,
        tuple(needed[::-1]),
    )
