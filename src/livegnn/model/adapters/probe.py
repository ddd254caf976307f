"""Whether a module and the model imported from it agree: both are run on small random graphs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from livegnn.errors import ModelError
from livegnn.model import reference
from livegnn.model.adapters.tape import Edges, EdgeWeights, Place, RelationNumbers, RelationRows, Rows
from livegnn.model.model import Model
from livegnn.types import EdgeType, FloatArray, IntArray, NodeType

TOLERANCE = 1e-3
"""How far from the module the model may be, as a part of the largest value."""


@dataclass(frozen=True)
class Probe:
    """A small random graph."""

    x: Mapping[NodeType, FloatArray]
    edge_index: Mapping[EdgeType, IntArray]
    weight: Mapping[EdgeType, FloatArray]
    edge_attr: Mapping[EdgeType, FloatArray]

    def tensors(self, value: object) -> object:
        """What a module is called with where the model has `value`."""
        if isinstance(value, Mapping):
            return {key: self.tensors(part) for key, part in value.items()}
        if isinstance(value, RelationRows):
            return torch.from_numpy(np.concatenate([self._rows(part.place) for part in value.parts]))
        if isinstance(value, Rows):
            return torch.from_numpy(self._rows(value.place))
        assert isinstance(value, Edges | EdgeWeights | RelationNumbers)
        arrays = [self.edge_index[edge_type] for edge_type in value.edge_types]
        if isinstance(value, Edges):
            return torch.from_numpy(np.concatenate(arrays, axis=1))
        if isinstance(value, EdgeWeights):
            weights = [self.weight[edge_type] for edge_type in value.edge_types]
            return torch.from_numpy(np.concatenate(weights))
        return torch.arange(len(arrays)).repeat_interleave(torch.tensor([edges.shape[1] for edges in arrays]))

    def _rows(self, place: Place) -> FloatArray:
        return self.x[place] if isinstance(place, str) else self.edge_attr[place]


def compare(
    model: Model,
    module: nn.Module,
    inputs: Mapping[str, object],
    widths: Mapping[Place, int],
    advice: str,
) -> None:
    """Raises `ModelError` if model and module differ on a small graph with isolated nodes and self-loops.

    Where there are several edge types, a second graph has few nodes of some types and no edges of others.
    inputs: parameter of the module's ``forward`` -> what it stands for, or a dict of that. widths: of the
    features of nodes and edges. advice: what to do about it.
    """
    random = np.random.default_rng(0)
    leaves = [leaf for value in inputs.values() for leaf in _leaves(value)]
    places = dict.fromkeys(leaf.place for leaf in leaves if isinstance(leaf, Rows))
    node_types = [place for place in places if isinstance(place, str)]
    edge_types = [edge_type for leaf in leaves if isinstance(leaf, Edges) for edge_type in leaf.edge_types]
    for few in (False, True)[: len(edge_types)]:
        probe = _draw(random, node_types, edge_types, widths, few)
        try:
            with torch.no_grad():
                output = module(**{name: probe.tensors(value) for name, value in inputs.items()})
        except Exception as error:
            nodes = " and ".join(map(str, dict.fromkeys(map(len, probe.x.values()))))
            raise ModelError(f"{type(module).__name__} fails on a graph of {nodes} nodes: {error}") from error
        expected = (output[model.node_type(model.output)] if isinstance(output, Mapping) else output).numpy()
        got = reference.compute(model, probe)[model.output]
        scale = float(np.abs(expected).max(initial=0))
        difference = float(np.abs(got - expected).max()) if got.shape == expected.shape else np.inf
        if not difference <= TOLERANCE * max(scale, 1e-6):
            raise ModelError(
                f"the imported model differs from {type(module).__name__} by {difference:.3g} on a small "
                f"graph with values up to {scale:.3g}: its forward does what tracing cannot see, such as a "
                f"type test; {advice}"
            )


def _draw(
    random: np.random.Generator,
    node_types: Sequence[NodeType],
    edge_types: Sequence[EdgeType],
    widths: Mapping[Place, int],
    few: bool,
) -> Probe:
    """few: every other node type has 2 nodes, every other edge type no edges. widths: 1 where unknown."""
    counts = {name: 2 if few and i % 2 else 16 for i, name in enumerate(node_types)}
    edge_index: dict[EdgeType, IntArray] = {}
    for i, (source, relation, target) in enumerate(edge_types):
        ends = [random.integers(0, max(1, counts[end] * 3 // 4), 40) for end in (source, target)]
        edges = np.array(ends)[:, : 0 if few and i % 2 == 0 else 40]
        if source == target and edges.size:
            edges = np.concatenate([edges, [[1], [1]]], axis=1)
        edge_index[source, relation, target] = np.unique(edges, axis=1)
    weight = {
        edge_type: random.uniform(0.5, 1.5, (edges.shape[1],)).astype(np.float32)
        for edge_type, edges in edge_index.items()
    }

    def draw(place: Place, count: int) -> FloatArray:
        return random.standard_normal((count, widths.get(place, 1)), dtype=np.float32)

    x = {name: draw(name, count) for name, count in counts.items()}
    edge_attr = {edge_type: draw(edge_type, edges.shape[1]) for edge_type, edges in edge_index.items()}
    return Probe(x, edge_index, weight, edge_attr)


def _leaves(value: object) -> Iterable[object]:
    return value.values() if isinstance(value, Mapping) else (value,)
