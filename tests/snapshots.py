"""Random graphs of every kind, their batches, and a snapshot held against the graph that it must show."""

import numpy as np

from livegnn import Events, Graph
from livegnn.graph import EdgeSchema, Schema
from livegnn.snapshots.snapshot import Snapshot

KINDS = {
    "plain": EdgeSchema(),
    "undirected": EdgeSchema(undirected=True),
    "weighted": EdgeSchema(weighted=True),
    "timed": EdgeSchema(timed=True, weighted=True),
    "featured": EdgeSchema(edge_dim=3),
    "kept": EdgeSchema(duplicates="keep", weighted=True, timed=True, edge_dim=2),
    "outgoing": EdgeSchema(in_neighbors=False),
}
"""Edge types, each with something of its own."""

_NO_NODE = 1 << 40


def make_schema(*, text_ids: bool = False) -> Schema:
    """Users and items, with an edge type of each kind between users, and one from users to items."""
    edge_types = {("user", name, "user"): edges for name, edges in KINDS.items()}
    edge_types["user", "buys", "item"] = EdgeSchema(weighted=True, timed=True, edge_dim=1)
    return Schema({"user": 5, "item": 0}, edge_types, text_ids=text_ids)


class Stream:
    """Batches that add, change and remove nodes and edges of a graph, and know which ids were ever used."""

    def __init__(self, graph: Graph, rng: np.random.Generator) -> None:
        self.graph = graph
        self.rng = rng
        self.used: dict[str, set[int | str]] = {name: set() for name in graph.schema.node_types}

    def name(self, number: int) -> int | str:
        if not self.graph.schema.text_ids:
            return number
        return f"nœud {number}" if number else ""  # the empty text is an id as any other

    def step(self, size: int, *, nodes: int = 60, removals: float = 0.1) -> None:
        """Applies one batch of about `size` events."""
        events = Events()
        known = {name: dict.fromkeys(self.graph.ids(name).tolist()) for name in self.graph.schema.node_types}
        for _ in range(size):
            kind = self.rng.random()
            type_ = ("user", "item")[int(self.rng.integers(2))]
            if kind < 0.25 or not known["user"] or not known["item"]:
                id = self.name(int(self.rng.integers(nodes)))
                x = self.rng.normal(size=(1, 5)).astype(np.float32) if type_ == "user" else None
                events.add_nodes([id], x, node_type=type_)
                known[type_][id] = None
                self.used[type_].add(id)
            elif kind < 0.25 + removals / 2:
                id = self._any(known[type_])
                events.remove_nodes([id], node_type=type_)
                del known[type_][id]
            elif kind < 0.35:
                x = self.rng.normal(size=(1, 5)).astype(np.float32)
                events.set_features([self._any(known["user"])], x, node_type="user")
            else:
                self._edge(events, known, remove=kind > 1 - removals)
        self.graph.apply(events)

    def _any(self, ids: dict[int | str, None]) -> int | str:
        # Few nodes have many edges.
        return list(ids)[int(len(ids) * self.rng.random() ** 2)]

    def _edge(self, events: Events, known: dict[str, dict[int | str, None]], *, remove: bool) -> None:
        names = list(self.graph.schema.edge_types)
        edge_type = names[int(self.rng.integers(len(names)))]
        edges = self.graph.schema.edge_types[edge_type]
        source, target = self._any(known["user"]), self._any(known[edge_type[2]])
        key = {"key": [int(self.rng.integers(3))]} if edges.duplicates == "keep" else {}
        if remove:
            events.remove_edges([source], [target], edge_type=edge_type, **key)
            return
        events.add_edges(
            [source],
            [target],
            weight=[float(self.rng.normal())] if edges.weighted else None,
            time=[float(self.rng.integers(1000))] if edges.timed else None,
            edge_attr=self.rng.normal(size=(1, edges.edge_dim)).astype(np.float32)
            if edges.edge_dim
            else None,
            edge_type=edge_type,
            **key,
        )


def check_shows(snapshot: Snapshot, graph: Graph, used: dict[str, set[int | str]]) -> None:
    """Compares everything that a snapshot says with the graph, bit by bit and in the same order."""
    assert snapshot.seq == graph.seq
    assert snapshot.schema == graph.schema
    rows = {}
    for name, width in graph.schema.node_types.items():
        ids = graph.ids(name)
        rows[name] = snapshot.rows_of(ids, name)
        assert (rows[name] >= 0).all()
        np.testing.assert_array_equal(snapshot.ids_of(rows[name], name), ids)
        gone = [*(used[name] - set(ids.tolist())), "none" if graph.schema.text_ids else _NO_NODE]
        assert (snapshot.rows_of(np.array(gone), name) == -1).all()
        x = snapshot.features(name, rows[name])
        assert x.shape == (len(ids), width)
        np.testing.assert_array_equal(x, graph.snapshot().x[name])
    for edge_type, edges in graph.schema.edge_types.items():
        for direction in ("in", "out") if edges.in_neighbors else ("out",):
            here, there = (2, 0) if direction == "in" else (0, 2)
            check_lists(snapshot, graph, edge_type, direction, rows[edge_type[here]], edge_type[there])


def check_lists(
    snapshot: Snapshot,
    graph: Graph,
    edge_type: tuple[str, str, str],
    direction: str,
    rows: np.ndarray,
    other: str,
) -> None:
    here = edge_type[2 if direction == "in" else 0]
    shuffled = np.random.default_rng(len(rows)).permutation(len(rows))
    ids, rows = graph.ids(here)[shuffled], rows[shuffled]
    found = snapshot.neighbors(edge_type, rows, direction)
    neighbors = snapshot.ids_of(found.rows, other)
    degrees = snapshot.degrees(edge_type, rows, direction)
    count, weight, loops, loop_weight = degrees.columns
    assert loops is not None
    np.testing.assert_array_equal(count, np.diff(found.offsets))
    weighted = graph.schema.edge_types[edge_type].weighted
    assert (weight is not None, loop_weight is not None) == (weighted, weighted)
    for i, id in enumerate(ids.tolist()):
        expected = graph.neighbors(id, edge_type=edge_type, direction=direction)
        part = slice(found.offsets[i], found.offsets[i + 1])
        np.testing.assert_array_equal(neighbors[part], expected.ids)
        for name in ("weight", "time", "edge_attr", "key"):
            column, theirs = getattr(found, name), getattr(expected, name)
            assert (column is None) == (theirs is None), name
            if column is not None:
                np.testing.assert_array_equal(column[part], theirs)
        own = (expected.ids == id) & (here == other)
        assert loops[i] == own.sum()
        if weighted:
            assert weight is not None
            assert loop_weight is not None
            exact = expected.weight.astype(np.float64)
            np.testing.assert_allclose(weight[i], exact.sum(), rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(loop_weight[i], exact[own].sum(), atol=1e-12)
