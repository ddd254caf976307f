"""A live graph once more, as plain dictionaries; and the comparisons that hold a graph and its engine against
it.

Everything here is slow and obvious: it says what `Graph` and `Engine` must be equal to.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import cache
from itertools import repeat

import numpy as np
import torch

from livegnn import Engine, Events, Graph
from livegnn.events import Chunk
from livegnn.graph import EdgeSchema, Schema
from livegnn.oracle import reference
from livegnn.oracle.exactness import Verification, judge, scales_of
from livegnn.types import DEFAULT_EDGE_TYPE, DEFAULT_NODE_TYPE, State

LEAST_SCALE = 1e-2
"""Of the features: on a graph of a node or two a layer may be next to nothing, all its units closed or what
it adds cancelled, and has no scale of its own to speak of.
"""


class Mirror:
    """One node type, one edge type. nodes: id -> features. edges: (source, target) -> (weight, time); an
    undirected edge is in it once, its smaller end first. edge_features: the same keys -> features."""

    def __init__(self, width: int, edges: EdgeSchema) -> None:
        self.schema = edges
        self.width = width
        self.nodes: dict[int | str, np.ndarray] = {}
        self.edges: dict[tuple[int | str, int | str], tuple[np.float32, float]] = {}
        self.edge_features: dict[tuple[int | str, int | str], np.ndarray] = {}
        self.removed: list[int | str] = []

    def make_graph(self, *, text: bool) -> Graph:
        """An empty graph of this schema."""
        return Graph(Schema({DEFAULT_NODE_TYPE: self.width}, {DEFAULT_EDGE_TYPE: self.schema}, text_ids=text))

    def copy(self) -> Mirror:
        other = Mirror(self.width, self.schema)
        other.nodes, other.edges, other.removed = dict(self.nodes), dict(self.edges), list(self.removed)
        other.edge_features = dict(self.edge_features)
        return other

    def key(self, u: int | str, v: int | str) -> tuple[int | str, int | str]:
        return (v, u) if self.schema.undirected and v < u else (u, v)

    def apply(self, events: Events) -> None:
        for chunk in events.chunks:
            getattr(self, chunk.kind)(chunk)

    def add_edges(self, chunk: Chunk) -> None:
        weights = repeat(1.0) if chunk.weight is None or not self.schema.weighted else chunk.weight
        times = repeat(0.0) if chunk.time is None or not self.schema.timed else chunk.time
        rows = repeat(None) if chunk.x is None else chunk.x
        zeros = np.zeros(self.schema.edge_dim, dtype=np.float32)
        for u, v, weight, time, row in zip(
            chunk.ids.tolist(), chunk.dst.tolist(), weights, times, rows, strict=False
        ):
            key = self.key(u, v)
            new = np.float32(weight), float(time)
            if key not in self.edges:
                self.edge_features[key] = zeros
            if row is not None and (key not in self.edges or new[1] >= self.edges[key][1]):
                self.edge_features[key] = row
            if key in self.edges:
                old = self.edges[key]
                if self.schema.duplicates == "add":
                    new = old[0] + new[0], max(old[1], new[1])
                elif new[1] < old[1]:
                    continue
            self.edges[key] = new

    def remove_edges(self, chunk: Chunk) -> None:
        for u, v in zip(chunk.ids.tolist(), chunk.dst.tolist(), strict=True):
            self.edges.pop(self.key(u, v), None)
            self.edge_features.pop(self.key(u, v), None)

    def expire(self, now: float) -> None:
        assert self.schema.time_to_live is not None
        for key in [key for key, (_, time) in self.edges.items() if time < now - self.schema.time_to_live]:
            del self.edges[key], self.edge_features[key]

    def set_features(self, chunk: Chunk) -> None:
        self.nodes |= zip(chunk.ids.tolist(), chunk.x, strict=True)

    def add_nodes(self, chunk: Chunk) -> None:
        zeros = np.zeros(self.width, dtype=np.float32)
        for position, node in enumerate(chunk.ids.tolist()):
            if chunk.x is not None:
                self.nodes[node] = chunk.x[position]
            else:
                self.nodes.setdefault(node, zeros)

    def remove_nodes(self, chunk: Chunk) -> None:
        for node in chunk.ids.tolist():
            del self.nodes[node]
            self.edges = {key: value for key, value in self.edges.items() if node not in key}
            self.edge_features = {key: self.edge_features[key] for key in self.edges}
            self.removed.append(node)

    def directed(self) -> dict[tuple[int | str, int | str], tuple[np.float32, float]]:
        """Edges in the direction of their messages."""
        return self.edges | (
            {(v, u): e for (u, v), e in self.edges.items()} if self.schema.undirected else {}
        )

    def tensors(self, ids: np.ndarray) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Features, `edge_index`, weights and features of the edges for PyG; row i is node ``ids[i]``."""
        position = {node: i for i, node in enumerate(ids.tolist())}
        x = np.array([self.nodes[node] for node in ids.tolist()], dtype=np.float64).reshape(-1, self.width)
        edges = self.directed()
        edge_index = np.array([(position[u], position[v]) for u, v in edges], dtype=np.int64).reshape(-1, 2).T
        weight = np.array([float(weight) for weight, _ in edges.values()], dtype=np.float64)
        rows = [self.edge_features[self.key(u, v)] for u, v in edges]
        edge_attr = np.array(rows, dtype=np.float64).reshape(len(rows), self.schema.edge_dim)
        return tuple(map(torch.from_numpy, (x, edge_index.copy(), weight, edge_attr)))


def assert_graph_equals(graph: Graph, mirror: Mirror) -> None:
    """Nodes, features, edges, weights and times are the same, read in every way there is."""
    graph.native.check()
    ids = graph.ids()
    assert sorted(ids.tolist()) == sorted(mirror.nodes)
    assert graph.num_nodes() == len(mirror.nodes)
    assert graph.num_edges() == len(mirror.edges)
    expected = np.array([mirror.nodes[node] for node in ids.tolist()], dtype=np.float32)
    assert graph.features(ids).tobytes() == expected.tobytes()

    directed = mirror.directed()
    snapshot = graph.snapshot()
    source, target = ids[snapshot.edge_index[DEFAULT_EDGE_TYPE]]
    weights = snapshot.weight[DEFAULT_EDGE_TYPE]
    listed = list(zip(source.tolist(), target.tolist(), strict=True))
    assert len(set(listed)) == len(listed)
    assert dict(zip(listed, weights, strict=True)) == {key: weight for key, (weight, _) in directed.items()}
    assert snapshot.x[DEFAULT_NODE_TYPE].tobytes() == expected.tobytes()
    rows = [mirror.edge_features[mirror.key(u, v)] for u, v in listed]
    expected_rows = np.array(rows, dtype=np.float32).reshape(len(listed), mirror.schema.edge_dim)
    assert snapshot.edge_attr[DEFAULT_EDGE_TYPE].tobytes() == expected_rows.tobytes()
    assert graph.edge_attr(source, target).tobytes() == expected_rows.tobytes()

    for direction in ("in", "out"):
        degrees = graph.degree(ids, direction=direction)
        for node, degree in zip(ids.tolist(), degrees, strict=True):
            found = graph.neighbors(node, direction=direction)
            others = found.ids.tolist()
            assert len(others) == degree
            keys = [(other, node) if direction == "in" else (node, other) for other in others]
            assert set(keys) == {key for key in directed if key[direction == "in"] == node}
            assert (found.weight is not None, found.time is not None) == (graph_columns(graph))
            if found.weight is not None:
                assert found.weight.tolist() == [directed[key][0] for key in keys]
            assert (found.edge_attr is not None) == (mirror.schema.edge_dim > 0)
            if found.edge_attr is not None:
                assert [row.tolist() for row in found.edge_attr] == [
                    mirror.edge_features[mirror.key(*key)].tolist() for key in keys
                ]
            if found.time is not None:
                assert found.time.tolist() == [directed[key][1] for key in keys]


def graph_columns(graph: Graph) -> tuple[bool, bool]:
    edges = graph.schema.edge_types[DEFAULT_EDGE_TYPE]
    return edges.weighted, edges.timed


def judge_layers(engine: Engine) -> list[Verification]:
    """Every layer before the judge, beside the oracle."""
    snapshot = engine.graph.snapshot()
    values = reference.compute(engine.model, snapshot)
    rounded = cache(lambda: reference.compute(engine.model, snapshot, dtype=np.float32))
    return [
        judge(engine.embeddings(layer), values[name], lambda of=name: rounded()[of])
        for layer, name in enumerate(engine.model.layers)
    ]


def assert_exact(engine: Engine) -> None:
    """Every layer equals the oracle's."""
    snapshot = engine.graph.snapshot()
    values = reference.compute(engine.model, snapshot)
    rounded = cache(lambda: reference.compute(engine.model, snapshot, dtype=np.float32))
    features = values[engine.model.layers[0]]
    for layer, name in enumerate(engine.model.layers):
        rows = engine.embeddings(layer)
        assert_close(rows, values[name], features, f"layer {layer}", lambda of=name: rounded()[of])


def assert_close(
    got: np.ndarray,
    expected: np.ndarray,
    features: np.ndarray,
    what: str,
    rounded: Callable[[], np.ndarray] | None = None,
) -> None:
    """A layer is exact, by the judge. rounded: what is `expected`, computed in float32."""
    least = LEAST_SCALE * max(1.0, float(np.abs(features).max(initial=0)))
    found = judge(got, expected, rounded, scales=np.maximum(scales_of(expected), least))
    assert found.ok, f"{what}: {found}; {expected} expected, {got} kept"


def assert_as_pyg(engine: Engine, module: torch.nn.Module, mirror: Mirror) -> None:
    """Every layer equals what PyG computes on the graph rebuilt from the mirror."""
    ids = engine.graph.ids()
    if not len(ids):
        return
    given = mirror.tensors(ids)
    layers = run_layers(module, given)

    @cache
    def run_in_float32() -> list[np.ndarray]:
        rounded = [tensor.float() if tensor.is_floating_point() else tensor for tensor in given]
        return run_layers(copy.deepcopy(module).float(), rounded)

    for layer, expected in enumerate(layers):
        rows = engine.embeddings(layer)
        assert_close(rows, expected, layers[0], f"layer {layer}, PyG", lambda of=layer: run_in_float32()[of])


@torch.no_grad()
def run_layers(module: torch.nn.Module, given: Sequence[torch.Tensor]) -> list[np.ndarray]:
    """What a `Stack` says in every layer."""
    return [layer.numpy() for layer in module.layers(*given)]


def frozen(state: State) -> tuple[dict[str, object], dict[str, tuple[str, tuple[int, ...], bytes]]]:
    """A state as plain values that compare bit by bit."""
    return dict(state.meta), {
        name: (array.dtype.str, array.shape, array.tobytes()) for name, array in state.arrays.items()
    }


def predictions(engine: Engine) -> dict[int | str, bytes]:
    """Every prediction, by id, bit for bit."""
    ids = engine.graph.ids()
    if not len(ids):
        return {}
    return {node: row.tobytes() for node, row in zip(ids.tolist(), engine.predict(ids), strict=True)}
