"""Any stream of events on a multigraph, held against a list of edges and against PyG on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch_geometric import nn as pyg

from gate import draws, some
from livegnn import EdgeSchema, Engine, Events, Graph, Model, Schema
from livegnn.types import DEFAULT_EDGE_TYPE, DEFAULT_NODE_TYPE
from mirror import frozen
from modules import import_once

NODES, WIDTH, HIDDEN = 9, 3, 4


@dataclass
class Multigraph:
    """Edges by (source, target, key): weight, time, features; undirected, its smaller end first."""

    schema: EdgeSchema
    x: dict[int, np.ndarray] = field(default_factory=dict)
    edges: dict[tuple[int, int, int], tuple[float, float, tuple[float, ...]]] = field(default_factory=dict)

    def ends(self, u: int, v: int) -> tuple[int, int]:
        return (v, u) if self.schema.undirected and v < u else (u, v)

    def keys(self, u: int, v: int) -> list[int]:
        return sorted(key for *ends, key in self.edges if tuple(ends) == self.ends(u, v))

    def add(
        self, u: int, v: int, key: int | None, weight: float, time: float, row: tuple[float, ...] | None
    ) -> None:
        if key is None:
            key = max(self.keys(u, v), default=-1) + 1
        name = (*self.ends(u, v), key)
        old = self.edges.get(name)
        if old is None or time >= old[1]:
            zeros = (0.0,) * self.schema.edge_dim
            self.edges[name] = (weight, time, row if row is not None else old[2] if old else zeros)

    def remove(self, u: int, v: int, key: int | None) -> None:
        keys = self.keys(u, v)
        if key is None and keys:
            key = keys[-1]
        self.edges.pop((*self.ends(u, v), -1 if key is None else key), None)

    def leave(self, node: int) -> None:
        del self.x[node]
        self.edges = {name: value for name, value in self.edges.items() if node not in name[:2]}

    def directed(self) -> list[tuple[int, int, int, float, float, tuple[float, ...]]]:
        """In the direction of their messages, in the order of keys."""
        listed = [(u, v, key, *value) for (u, v, key), value in self.edges.items()]
        if self.schema.undirected:
            listed += [(v, u, *rest) for u, v, *rest in listed if u != v]
        return sorted(listed)


def schemas() -> st.SearchStrategy[EdgeSchema]:
    return st.builds(
        EdgeSchema,
        undirected=st.booleans(),
        weighted=st.booleans(),
        timed=st.booleans(),
        duplicates=st.just("keep"),
        edge_dim=st.sampled_from([0, 2]),
        capacity=st.sampled_from([4, 256]),
    )


VALUES = st.sampled_from([0.25, 0.5, 1.0, 2.0])
ENDS = st.integers(0, NODES - 1) | st.sampled_from([0, 1])  # some pairs come often
KEYS = st.none() | st.sampled_from([0, 1, 2, 5, 1000, 2**31])
CHANGES = st.one_of(
    st.tuples(
        st.just("add"), ENDS, ENDS, KEYS, VALUES, st.integers(0, 3), st.none() | st.tuples(VALUES, VALUES)
    ),
    st.tuples(st.just("add"), ENDS, ENDS, st.none(), VALUES, st.integers(0, 3), st.none()),
    st.tuples(st.just("remove"), ENDS, ENDS, KEYS),
    st.tuples(st.just("loop"), ENDS, KEYS, VALUES),
    st.tuples(st.just("set"), ENDS, VALUES),
    st.tuples(st.just("leave"), ENDS),
)
BATCHES = st.lists(st.lists(CHANGES, min_size=1, max_size=8), min_size=1, max_size=6)


def write(mirror: Multigraph, changes: list[tuple]) -> Events:
    """The events of a batch, which `mirror` takes one by one."""
    events, schema = Events(), mirror.schema
    for kind, *given_ in changes:
        if kind == "loop":
            node, key, weight = given_
            kind, given_ = "add", [node, node, key, weight, 3, None]
        node = given_[0]
        for end in given_[:2] if kind in ("add", "remove") else (node,):
            if end not in mirror.x:
                mirror.x[end] = np.full(WIDTH, end / 4, np.float32)
                events.add_nodes(end, mirror.x[end])
        if kind == "add":
            u, v, key, weight, time, row = given_
            row = row if schema.edge_dim else None
            columns = {"weight": weight} if schema.weighted else {}
            columns |= {"time": time} if schema.timed else {}
            events.add_edges(u, v, edge_attr=row, key=key, **columns)
            mirror.add(u, v, key, columns.get("weight", 1.0), columns.get("time", 0), row)
        elif kind == "remove":
            u, v, key = given_
            events.remove_edges(u, v, key=key)
            mirror.remove(u, v, key)
        elif kind == "set":
            mirror.x[node] = (np.arange(WIDTH, dtype=np.float32) - 1) * np.float32(given_[1])
            events.set_features(node, mirror.x[node])
        else:
            mirror.leave(node)
            events.remove_nodes(node)
    return events


def make_graph(schema: EdgeSchema) -> Graph:
    return Graph(Schema({DEFAULT_NODE_TYPE: WIDTH}, {DEFAULT_EDGE_TYPE: schema}))


def assert_graph_equals(graph: Graph, mirror: Multigraph) -> None:
    graph.native.check()
    listed = mirror.directed()
    snapshot = graph.snapshot()
    ids = snapshot.ids[DEFAULT_NODE_TYPE]
    ends = ids[snapshot.edge_index[DEFAULT_EDGE_TYPE]].T.tolist()
    keys = snapshot.key[DEFAULT_EDGE_TYPE]
    weights, rows = snapshot.weight[DEFAULT_EDGE_TYPE], snapshot.edge_attr[DEFAULT_EDGE_TYPE]
    found = sorted(
        (*e, *rest)
        for e, *rest in zip(ends, keys.tolist(), weights.tolist(), map(tuple, rows.tolist()), strict=True)
    )
    assert found == [(u, v, key, weight, row) for u, v, key, weight, _, row in listed]
    assert graph.num_edges() == len(mirror.edges)
    for node in mirror.x:
        for direction, here in (("out", 0), ("in", 1)):
            mine = sorted((edge[1 - here], *edge[2:]) for edge in listed if edge[here] == node)
            got = graph.neighbors(node, direction=direction)
            assert graph.degree([node], direction=direction).tolist() == [len(mine)]
            assert sorted(zip(got.ids.tolist(), got.key.tolist(), strict=True)) == [edge[:2] for edge in mine]
            if got.time is not None:
                assert sorted(zip(got.ids.tolist(), got.key.tolist(), got.time.tolist(), strict=True)) == [
                    (edge[0], edge[1], edge[3]) for edge in mine
                ]
    if listed:
        u, v, key, *_ = (np.array(column) for column in zip(*[edge[:3] for edge in listed], strict=True))
        assert graph.edge_attr(u, v, key=key).tolist() == [list(edge[5]) for edge in listed]


@settings(max_examples=draws(40, 200), deadline=None)
@given(schema=schemas(), batches=BATCHES)
def test_a_multigraph_is_a_list_of_edges(schema: EdgeSchema, batches: list[list[tuple]]) -> None:
    graph, mirror = make_graph(schema), Multigraph(schema)
    single = make_graph(schema)
    for changes in batches:
        events = write(mirror, changes)
        graph.apply(Events.from_bytes(events.to_bytes()))
        for part in events.parts(1):
            single.apply(part)
        assert_graph_equals(graph, mirror)
        assert_graph_equals(single, mirror)
    again = Graph.from_state(graph.state())
    assert frozen(again.state()) == frozen(graph.state())
    assert_graph_equals(again, mirror)


class Gcn(torch.nn.Module):
    def __init__(self, first: torch.nn.Module, second: torch.nn.Module, reads: str) -> None:
        super().__init__()
        self.first, self.second, self.reads = first, second, reads

    def forward(self, x, edge_index, edge_weight=None, edge_attr=None):
        given_ = {"": (), "weight": (edge_weight,), "features": (edge_attr,)}[self.reads]
        return self.second(self.first(x, edge_index, *given_).tanh(), edge_index, *given_)


def mlp(width: int) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(width, HIDDEN), torch.nn.ReLU())


LAYERS = {
    "sage sum": ("", lambda i: pyg.SAGEConv(i, HIDDEN, aggr="sum")),
    "sage mean": ("", lambda i: pyg.SAGEConv(i, HIDDEN)),
    "sage max": ("", lambda i: pyg.SAGEConv(i, HIDDEN, aggr="max")),
    "graph add": ("weight", lambda i: pyg.GraphConv(i, HIDDEN)),
    "gcn": ("", lambda i: pyg.GCNConv(i, HIDDEN)),
    "gcn weighted": ("weight", lambda i: pyg.GCNConv(i, HIDDEN)),
    "gcn improved": ("weight", lambda i: pyg.GCNConv(i, HIDDEN, improved=True)),
    "gcn without loops": ("weight", lambda i: pyg.GCNConv(i, HIDDEN, add_self_loops=False)),
    "gin": ("", lambda i: pyg.GINConv(mlp(i))),
    "gat": ("", lambda i: pyg.GATConv(i, 2, heads=2)),
    "gatv2": ("", lambda i: pyg.GATv2Conv(i, 2, heads=2)),
    "gat features": ("features", lambda i: pyg.GATConv(i, 2, heads=2, edge_dim=2)),
    "gatv2 without loops": (
        "features",
        lambda i: pyg.GATv2Conv(i, 2, heads=2, edge_dim=2, add_self_loops=False),
    ),
    "gine": ("features", lambda i: pyg.GINEConv(mlp(i), edge_dim=2)),
    "gine max": ("features", lambda i: pyg.GINEConv(mlp(i), edge_dim=2, aggr="max")),
    "transformer": ("features", lambda i: pyg.TransformerConv(i, 2, heads=2, edge_dim=2)),
}


@lru_cache
def make_model(kind: str) -> tuple[torch.nn.Module, Model]:
    reads, layer = LAYERS[kind]
    torch.manual_seed(3)
    module = Gcn(layer(WIDTH), layer(HIDDEN), reads).eval()
    given_ = (
        {"edge_weight": True} if reads == "weight" else {"edge_channels": 2} if reads == "features" else {}
    )
    model = import_once(f"on multigraphs {kind}", lambda: Model.from_pyg(module, **given_))
    return module.double(), model


def run(module: torch.nn.Module, mirror: Multigraph, ids: np.ndarray, reads: str) -> np.ndarray:
    """PyG in float64 on the list of edges."""
    at = {node: i for i, node in enumerate(ids.tolist())}
    listed = mirror.directed()
    x = torch.tensor(np.array([mirror.x[node] for node in ids.tolist()]), dtype=torch.float64)
    edge_index = torch.tensor([[at[u], at[v]] for u, v, *_ in listed], dtype=torch.long).reshape(-1, 2).T
    weight = torch.tensor([edge[3] for edge in listed], dtype=torch.float64)
    rows = torch.tensor([edge[5] for edge in listed], dtype=torch.float64).reshape(
        len(listed), mirror.schema.edge_dim
    )
    with torch.no_grad():
        return module.double()(x, edge_index, weight, rows).numpy()


# Messages of both ends keep every aggregate.
BOTH_ENDS = {kind for kind, (reads, _) in LAYERS.items() if reads == "features" or kind.startswith("gat")}
CASES = [
    (kind, mode)
    for kind in LAYERS
    for mode in ("eager", "lazy", "residents")
    if mode != "residents" or kind not in BOTH_ENDS
]


@pytest.mark.parametrize(("kind", "mode"), some(CASES))
def test_predictions_are_those_of_pyg_on_the_multigraph(kind: str, mode: str) -> None:
    reads = LAYERS[kind][0]
    options = {"eager": {}, "lazy": {"mode": "lazy"}, "residents": {"keep": "aggregates", "keep_degree": 4}}[
        mode
    ]

    @settings(max_examples=draws(3, 20), deadline=None, phases=(Phase.explicit, Phase.generate))
    @given(undirected=st.booleans(), weighted=st.booleans(), batches=BATCHES)
    def check(undirected: bool, weighted: bool, batches: list[list[tuple]]) -> None:
        module, model = make_model(kind)
        schema = EdgeSchema(
            undirected=undirected,
            weighted=weighted or reads == "weight",
            edge_dim=2 if reads == "features" else 0,
            duplicates="keep",
            capacity=4,
        )
        mirror, graph = Multigraph(schema), make_graph(schema)
        engine = Engine(graph, model, **options)
        for changes in batches:
            engine.apply(write(mirror, changes))
            ids = graph.ids()
            if not len(ids):
                continue
            expected = run(module, mirror, ids, reads)
            difference = np.abs(engine.predict(ids) - expected).max()
            assert difference <= 1e-4 * max(np.abs(expected).max(), 1e-2), kind
            assert engine.verify().ok

    check()
