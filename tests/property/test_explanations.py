"""After any sequence of events, an explanation's shares are what the oracle says, event by event."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gate import draws, share
from livegnn import Events, Graph, UnknownNodeError
from livegnn.graph import EdgeSchema, Schema, Snapshot
from livegnn.inference.explanation import Explanation
from livegnn.inference.history import History
from livegnn.inference.node_explanation import explain
from livegnn.model import Degree, EdgeInput, Input, Model, Propagate, Step
from livegnn.oracle import reference
from livegnn.types import DEFAULT_EDGE_TYPE, DEFAULT_NODE_TYPE
from mirror import Mirror
from modules import (
    CONVOLUTIONS,
    EDGE_FEATURES,
    EDGE_WIDTH,
    EDGE_WISE,
    WEIGHTED,
    WIDTH,
    Design,
    designs_of,
    make,
)

EXAMPLES = draws(3, 20)

picks = st.integers(0, 9)  # the n-th node there is, modulo their number
rows = st.integers(0, 5)
weights = st.sampled_from([0.0, 0.25, 1.0, 2.0])
times = st.sampled_from([0.0, 1.0, 2.0])
edges = st.lists(st.tuples(picks, picks, weights, times), min_size=1, max_size=3)
operations = st.one_of(
    st.tuples(st.just("add_edges"), edges),
    st.tuples(st.just("remove_edges"), edges),
    st.tuples(st.just("set_features"), st.lists(st.tuples(picks, rows), min_size=1, max_size=2)),
    st.tuples(st.just("add_node"), st.booleans(), rows),
    st.tuples(st.just("remove_node"), picks),
)
batches = st.lists(st.lists(operations, min_size=1, max_size=4), min_size=1, max_size=4)
ROWS = np.random.default_rng(3).standard_normal((6, WIDTH)).astype(np.float32)


class Past:
    """A graph whose events come one by one, and all that was ever true of it: the oracle."""

    def __init__(self, graph: Graph, model: Model) -> None:
        self.graph, self.model = graph, model
        self.snapshots = [graph.snapshot()]
        self.values = [self.predict()]
        self.near = [self.neighbors()]
        self.touched: list[set[tuple[str, int | str]]] = []

    def apply(self, events: Events) -> None:
        for event in events.parts(1):
            (chunk,) = event.chunks
            ends = (
                [(chunk.type, chunk.ids)]
                if chunk.dst is None
                else [(chunk.type[0], chunk.ids), (chunk.type[2], chunk.dst)]
            )
            self.touched.append({(type_, ids[0].item()) for type_, ids in ends})
            self.graph.apply(event)
            self.snapshots.append(self.graph.snapshot())
            self.values.append(self.predict())
            self.near.append(self.neighbors())

    def predict(self) -> dict[int | str, np.ndarray]:
        snapshot = self.graph.snapshot()
        output = reference.compute(self.model, snapshot)[self.model.output]
        ids = snapshot.ids[self.model.node_type(self.model.output)].tolist()
        return dict(zip(ids, output, strict=True))

    def neighbors(self) -> set[tuple[tuple[str, int | str], tuple[str, int | str]]]:
        """Edges as (target, source)."""
        snapshot = self.graph.snapshot()
        return {
            ((t, v), (s, u))
            for (s, relation, t), (source, target) in snapshot.edge_index.items()
            if (s, relation, t) in self.model.edge_types
            for u, v in zip(snapshot.ids[s][source].tolist(), snapshot.ids[t][target].tolist(), strict=True)
        }

    def cone(self, id: int | str, hops: int, since: int) -> set[tuple[str, int | str]]:
        """Nodes from which the node is so many steps away, along edges that there were at any time."""
        pairs = set().union(*self.near[since:])
        reached = {(self.model.node_type(self.model.output), id)}
        for _ in range(hops):
            reached |= {source for target, source in pairs if target in reached}
        return reached

    def mixed(self, id: int, since: int, new: set[int]) -> np.ndarray:
        """The prediction on a graph that is new in some nodes, their in-edges and their edges to the node,
        and old in all others. Where all that a message reads is its source's row and degree, this is what the
        node predicts when only these neighbours have become new.
        """
        x: dict[int, np.ndarray] = {}
        edges: dict[tuple[int, int, int], np.float32] = {}
        for snapshot, is_new in ((self.snapshots[since], False), (self.snapshots[-1], True)):
            ids = snapshot.ids[DEFAULT_NODE_TYPE].tolist()
            for one, row in zip(ids, snapshot.x[DEFAULT_NODE_TYPE], strict=True):
                x.setdefault(one, np.zeros(WIDTH, dtype=np.float32))
                if (one in new) == is_new:
                    x[one] = row
            source, target = snapshot.edge_index[DEFAULT_EDGE_TYPE].tolist()
            keys = snapshot.key.get(DEFAULT_EDGE_TYPE, np.zeros(len(source), dtype=np.uint32)).tolist()
            weights = snapshot.weight[DEFAULT_EDGE_TYPE]
            for u, v, key, weight in zip(source, target, keys, weights, strict=True):
                decides = ids[u] if ids[v] == id else ids[v]
                if (decides in new) == is_new:
                    edges[ids[u], ids[v], key] = weight
        edges = dict(sorted(edges.items()))
        place = {one: i for i, one in enumerate(x)}
        ends = np.array([(place[u], place[v]) for u, v, _ in edges], dtype=np.int64).reshape(-1, 2).T
        arrays = Snapshot(
            {},
            {DEFAULT_NODE_TYPE: np.array(list(x.values()))},
            {DEFAULT_EDGE_TYPE: ends},
            {DEFAULT_EDGE_TYPE: np.array(list(edges.values()), dtype=np.float32)},
        )
        return reference.compute(self.model, arrays)[self.model.output][place[id]]

    def check_neighbors(self, found: Explanation) -> None:
        """For a model of one propagation."""
        new: set[int] = set()
        got = {share.id: share.share for share in found.neighbors if share.edge_type is not None}
        assert list(got) == sorted(got)
        senders = {
            u for near in (self.near[found.since], self.near[-1]) for (_, v), (_, u) in near if v == found.id
        }
        bound = 1e-9 * max(1.0, *(np.abs(v[found.id]).max() for v in self.values if found.id in v))
        last = self.mixed(found.id, found.since, new)
        assert set(got) <= senders - {found.id}
        for sender in sorted(senders - {found.id}):
            new.add(sender)
            moved = self.mixed(found.id, found.since, new)
            np.testing.assert_allclose(got.get(sender, 0 * moved), moved - last, atol=bound)
            assert sender not in got or got[sender].any()
            last = moved

    def check(self, found: Explanation, hops: int) -> None:
        zeros = np.zeros(self.model.width(self.model.output))
        before, after = self.values[found.since].get(found.id), self.values[found.seq][found.id]
        assert (found.before is None) == (before is None)
        bound = 1e-9 * max(1.0, *(np.abs(v.get(found.id, zeros)).max() for v in self.values[found.since :]))
        if before is not None:
            np.testing.assert_allclose(found.before, before, atol=bound)
        np.testing.assert_allclose(found.after, after, atol=bound)
        shares = {share.seq: share for share in found.events}
        assert list(shares) == sorted(shares)
        cone = self.cone(found.id, hops, found.since)
        for seq in range(found.since + 1, found.seq + 1):
            moved = self.values[seq].get(found.id, zeros) - self.values[seq - 1].get(found.id, zeros)
            got = shares[seq].share if seq in shares else zeros
            np.testing.assert_allclose(got, moved, atol=bound, err_msg=f"event {seq}")
            assert seq not in shares or self.touched[seq - 1] & cone
        assert all(share.share.any() for share in found.events)
        for listed in (found.events, found.neighbors):
            total = sum((share.share for share in listed), zeros)
            np.testing.assert_allclose(total, found.movement, atol=bound)


def write(operation: tuple, mirror: Mirror, fresh: list[int]) -> Events:
    """What an operation means on the graph of `mirror`, and applies it there."""
    kind, *arguments = operation
    events, present = Events(), list(mirror.nodes)
    if kind == "add_node":
        again, row = arguments
        fresh.append(len(fresh))
        known = [*mirror.removed, *present]
        events.add_nodes(known[0] if again and known else fresh[-1], ROWS[row])
    elif present and kind == "set_features":
        (picked,) = arguments
        events.set_features([present[a % len(present)] for a, _ in picked], ROWS[[r for _, r in picked]])
    elif present and kind == "remove_node":
        events.remove_nodes(present[arguments[0] % len(present)])
    elif present:
        (picked,) = arguments
        src = [present[a % len(present)] for a, _, _, _ in picked]
        dst = [present[b % len(present)] for _, b, _, _ in picked]
        if kind == "add_edges":
            weight = [w for _, _, w, _ in picked] if mirror.schema.weighted else None
            time = [t for _, _, _, t in picked] if mirror.schema.timed else None
            features = ROWS[[(a + b) % 6 for a, b, _, _ in picked], :EDGE_WIDTH]
            given = features if mirror.schema.edge_dim else None
            events.add_edges(src, dst, weight=weight, time=time, edge_attr=given, key=keys_of(picked, mirror))
        else:
            there = list(mirror.edges)
            both = [there[(a + b) % len(there)] for a, b, _, _ in picked] if there else []
            src, dst = [*(u for u, _ in both), src[0]], [*(v for _, v in both), dst[0]]
            events.remove_edges(src, dst, key=keys_of([*picked[: len(both)], picked[0]], mirror))
    mirror.apply(events)
    return events


def keys_of(picked: list[tuple], mirror: Mirror) -> list[int] | None:
    """Few keys, so that edges meet; sometimes none, where there may be any."""
    named = mirror.schema.duplicates == "keep" and picked[0][0] % 2
    return [(a + b) % 3 for a, b, _, _ in picked] if named else None


@pytest.mark.parametrize("kind", share([*CONVOLUTIONS, *EDGE_WISE], 1, 3))
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(
    design=st.integers(0, 1),
    undirected=st.booleans(),
    columns=st.sampled_from(["", "weight", "weight time", "weight time add", "keep", "weight time keep"]),
    first=batches,
    later=batches,
    data=st.data(),
)
def test_any_sequence_of_events(kind, design, undirected, columns, first, later, data):
    designs = designs_of(kind)
    made = designs[design % len(designs)]
    depth, (_, model) = made.depth, make(made)
    schema = EdgeSchema(
        undirected=undirected,
        weighted="weight" in columns,
        timed="time" in columns,
        duplicates="add" if "add" in columns else "keep" if "keep" in columns else "replace",
        edge_dim=EDGE_WIDTH if kind in EDGE_FEATURES else 0,
    )
    check_stream(model, schema, first, later, data, hops=depth + 1, near=depth == 1 and kind in CONVOLUTIONS)


def check_stream(model, schema, first, later, data, *, hops, near):
    """Explains every node after `later`, from a moment in it; `near`: whether neighbours are checked too."""
    mirror, fresh = Mirror(WIDTH, schema), list[int]()
    graph, twin = mirror.make_graph(text=False), mirror.make_graph(text=False)
    begin = Events.concatenate(write(one, mirror, fresh) for batch in first for one in batch)
    for live in (graph, twin):
        live.apply(begin, seq=0)
    history, past = History(graph, 1000), Past(twin, model)
    graph.attach(history)
    for batch in later:
        events = Events.concatenate([write(one, mirror, fresh) for one in batch])
        graph.apply(events)
        past.apply(events)
    assert graph.seq == len(past.touched)
    since = data.draw(st.integers(0, graph.seq), label="since")
    for id in mirror.nodes:
        found = explain(graph, history, model, id, since)
        past.check(found, hops)
        if near:
            past.check_neighbors(found)


unannounced = st.lists(
    st.lists(
        st.tuples(
            st.sampled_from(
                ["add_edges"] * 3 + ["set_features", "remove_edges", "remove_nodes", "add_nodes"]
            ),
            st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=3),
        ),
        min_size=1,
        max_size=4,
    ),
    min_size=1,
    max_size=4,
)
DEGREES = Model(
    {"x": Input(DEFAULT_NODE_TYPE, WIDTH)},
    (Step("degree", (), "out", attrs=Degree(DEFAULT_EDGE_TYPE).to_attrs()),),
    {},
    "out",
    ("x", "out"),
)


@pytest.mark.parametrize("kind", ["gcn improved", "sage max", "degrees"])
@settings(max_examples=2 * EXAMPLES, suppress_health_check=list(HealthCheck))
@given(undirected=st.booleans(), first=unannounced, later=unannounced, data=st.data())
def test_nodes_that_nobody_announces(kind, undirected, first, later, data):
    """They come with the first event that names them, wherever that leads, and a history goes on."""
    model, hops = (DEGREES, 1) if kind == "degrees" else (make(Design(kind, depth=2))[1], 3)
    schema = Schema(
        {DEFAULT_NODE_TYPE: WIDTH},
        {DEFAULT_EDGE_TYPE: EdgeSchema(undirected=undirected)},
        auto_add={DEFAULT_NODE_TYPE: (0.5,) * WIDTH},
    )
    graph, twin = Graph(schema), Graph(schema)
    # What is removed must be there: only those events are written that a third graph accepts.
    probe = Graph(schema)

    def write(batch: list[tuple]) -> Events:
        events = Events()
        for kind, pairs in batch:
            ends = [a for a, _ in pairs], [b for _, b in pairs]
            nodes = list(dict.fromkeys(ends[0]))
            made = {
                "add_edges": lambda ends=ends: Events().add_edges(*ends),
                "remove_edges": lambda ends=ends: Events().remove_edges(*ends),
                "remove_nodes": lambda nodes=nodes: Events().remove_nodes(nodes),
                "add_nodes": lambda nodes=nodes: Events().add_nodes(nodes, ROWS[: len(nodes)]),
                "set_features": lambda nodes=nodes: Events().set_features(nodes, ROWS[nodes]),
            }[kind]()
            with contextlib.suppress(UnknownNodeError):
                probe.apply(made)
                events = Events.concatenate([events, made])
        return events

    begin = Events.concatenate([write(batch) for batch in first])
    for live in (graph, twin):
        live.apply(begin, seq=0)
    history, past = History(graph, 1000), Past(twin, model)
    graph.attach(history)
    for batch in later:
        events = write(batch)
        graph.apply(events)
        past.apply(events)
    since = data.draw(st.integers(0, graph.seq), label="since")
    for id in graph.ids().tolist():
        past.check(explain(graph, history, model, id, since), hops)


MANY = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), weights, times), min_size=4, max_size=12)


@pytest.mark.parametrize("kind", ["gcn improved", "graph add", "sage mean", "sage max"])
@settings(max_examples=2 * EXAMPLES, suppress_health_check=list(HealthCheck))
@given(
    undirected=st.booleans(),
    timed=st.booleans(),
    first=MANY,
    later=st.lists(st.tuples(st.sampled_from(["add_edges", "remove_edges"]), MANY), min_size=1, max_size=3),
    data=st.data(),
)
def test_neighbors_with_many_parallel_edges(kind, undirected, timed, first, later, data):
    _, model = make(Design(kind, depth=1, weighted=kind in WEIGHTED))
    schema = EdgeSchema(undirected=undirected, weighted=True, timed=timed, duplicates="keep")
    nodes = [("add_node", False, row) for row in range(4)]
    check_stream(
        model,
        schema,
        [[*nodes, ("add_edges", first)]],
        [[operation] for operation in later],
        data,
        hops=2,
        near=True,
    )


SKIPPING = {
    reverse: Model(
        {"x": Input(DEFAULT_NODE_TYPE, WIDTH)},
        (
            Step(
                "propagate",
                ("x",),
                "out",
                attrs=Propagate(
                    DEFAULT_EDGE_TYPE,
                    ("source_rsqrt",),
                    "count",
                    "rsqrt",
                    skip_loops=True,
                    reverse=reverse,
                ).to_attrs(),
            ),
        ),
        {},
        "out",
        ("x", "out"),
    )
    for reverse in (False, True)
}
"""GCN's norm without loops, those of the graph included; by whether messages go in reverse."""


@pytest.mark.parametrize(
    ("model", "schema"),
    [
        (lambda: make(Design("gcn", depth=1))[1], EdgeSchema()),
        (lambda: make(Design("gcn improved", depth=1))[1], EdgeSchema(undirected=True)),
        (lambda: SKIPPING[False], EdgeSchema()),
        (lambda: SKIPPING[True], EdgeSchema(undirected=True)),
    ],
    ids=["a loop in place of the added one", "undirected", "loops that are skipped", "skipped in reverse"],
)
def test_a_neighbor_whose_degree_moved_with_as_many_edges_as_before(model, schema):
    """Its in-edge gave way to a loop, which counts otherwise. No neighbour was named."""
    begin = Events().add_edges([1, 0], [0, 2])
    check_degree(model(), schema, begin, Events().remove_edges(1, 0).add_edges(0, 0))


def test_a_neighbor_whose_degree_moved_by_what_a_hidden_loop_gained():
    """Of parallel loops the last counts. Another one gained the weight that the edge 1 - 0 lost, so that all
    edges of node 0 together weighed as much as before. No neighbour was named.
    """
    _, model = make(Design("gcn improved", depth=1, weighted=True))
    schema = EdgeSchema(undirected=True, weighted=True, duplicates="keep")
    begin = Events().add_edges([0, 0, 1, 0], [0, 0, 0, 2], weight=[0, 0, 0.25, 0.25], key=[0, 1, 0, 0])
    later = Events().add_edges([0, 1], [0, 0], weight=[0.25, 0], key=[0, 0])
    check_degree(model, schema, begin, later)


def check_degree(model: Model, schema: EdgeSchema, begin: Events, later: Events) -> None:
    """Explains node 2 after `later`, which moved the degree of its only neighbour, node 0, and nothing else
    that it reads."""
    graph, twin = (Mirror(WIDTH, schema).make_graph(text=False) for _ in range(2))
    for live in (graph, twin):
        live.apply(Events.concatenate([Events().add_nodes([0, 1, 2], ROWS[:3]), begin]), seq=0)
    history, past = History(graph, 1000), Past(twin, model)
    graph.attach(history)
    graph.apply(later)
    past.apply(later)
    found = explain(graph, history, model, 2, 0)
    assert found.movement.any()
    past.check(found, hops=2)
    assert [share.id for share in found.neighbors] == [0]


# -- several types, and messages that read both ends

USER, ITEM = "user", "item"
RATES, RATED, KNOWS = (USER, "rates", ITEM), (ITEM, "rated by", USER), (USER, "knows", USER)
TYPES = {
    RATES: EdgeSchema(weighted=True),
    RATED: EdgeSchema(edge_dim=2),
    KNOWS: EdgeSchema(undirected=True, timed=True),
}


def make_hetero(attention: bool) -> Model:
    """Two layers over users and items; the last one of users, from what they rated and whom they know."""
    random = np.random.default_rng(8)
    tensors = {
        name: random.standard_normal(shape).astype(np.float32) * 0.7
        for name, shape in {
            "a": (4, 3), "b": (4, 2), "c": (4, 3), "d": (4, 4), "e": (2, 4), "f": (2, 4), "g": (2, 4),
            "s": (1, 4), "t": (1, 4), "w": (1, 2),
        }.items()
    }  # fmt: skip

    def linear(read: str, write: str, weight: str) -> Step:
        return Step("linear", (read,), write, {"weight": weight})

    def propagate(read: str, write: str, *operators: object) -> Step:
        return Step("propagate", (read,), write, attrs=Propagate(*operators).to_attrs())

    steps = [
        propagate("users", "i1", RATES, ("weight",), "sum", "divide"),
        linear("i1", "i2", "a"),
        linear("items", "i3", "b"),
        Step("add", ("i2", "i3"), "i4"),
        Step("tanh", ("i4",), "hi"),
        linear("users", "u1", "c"),
        propagate("u1", "u2", KNOWS, ("source_rsqrt",), "count", "rsqrt", "sum", 1.0),
        Step("elu", ("u2",), "hu", attrs={"alpha": 1.0}),
        propagate("hu", "k1", KNOWS, (), "none", "identity", "max"),
        linear("k1", "k2", "f"),
        linear("hu", "own", "g"),
        Step("add", ("k2", "own"), "sum"),
    ]
    if attention:
        softmax = Propagate(RATED, ("coefficient",), "sum", "divide").to_attrs()
        steps += [
            linear("hi", "is", "s"),
            linear("hu", "ut", "t"),
            Step("source", ("is",), "es", attrs={"edge_type": RATED}),
            Step("target", ("ut",), "et", attrs={"edge_type": RATED}),
            linear("features", "ef", "w"),
            Step("add", ("es", "et"), "e1"),
            Step("add", ("e1", "ef"), "e2"),
            Step("leaky_relu", ("e2",), "e3", attrs={"slope": 0.2}),
            Step("exp", ("e3",), "e4"),
            Step("propagate", ("hi", "e4"), "r1", attrs=softmax),
        ]
    else:
        steps.append(propagate("hi", "r1", RATED, (), "count", "divide"))
        tensors = {name: tensor for name, tensor in tensors.items() if name not in "stw"}
    steps += [linear("r1", "r2", "e"), Step("add", ("sum", "r2"), "out")]
    tensors.pop("d")
    return Model(
        {"users": Input(USER, 3), "items": Input(ITEM, 2)},
        tuple(steps),
        tensors,
        "out",
        ("users", "hu", "out"),
        edge_inputs={"features": EdgeInput(RATED, 2, "edge_attr")} if attention else {},
    )


hetero_operations = st.one_of(
    st.tuples(
        st.sampled_from(["add_edges", "remove_edges"]),
        st.sampled_from(list(TYPES)),
        picks,
        picks,
        st.integers(0, 99),
    ),
    st.tuples(
        st.sampled_from(["set_features", "add_nodes", "remove_nodes"]),
        st.sampled_from([USER, ITEM]),
        picks,
        st.none(),
        st.integers(0, 99),
    ),
)


@pytest.mark.parametrize("attention", [False, True])
@settings(max_examples=2 * EXAMPLES, suppress_health_check=list(HealthCheck))
@given(
    first=st.lists(hetero_operations, max_size=12),
    later=st.lists(st.lists(hetero_operations, min_size=1, max_size=6), min_size=1, max_size=5),
    data=st.data(),
)
def test_several_types_of_nodes_and_edges(attention, first, later, data):
    model, widths = make_hetero(attention), {USER: 3, ITEM: 2}
    schema = Schema({**widths, "other": 0}, {**TYPES, ("other", "to", USER): EdgeSchema()}, text_ids=True)
    graph, twin = Graph(schema), Graph(schema)
    for live in (graph, twin):
        live.apply(Events().add_nodes(["a", "b", "c"], np.eye(3), node_type=USER), seq=0)
        live.apply(Events().add_nodes(["a", "z"], np.eye(2), node_type=ITEM), seq=0)
        live.apply(Events().add_nodes("o", node_type="other"), seq=0)
        live.apply(Events().add_edges("o", "a", edge_type=("other", "to", USER)), seq=0)
    present = {USER: ["a", "b", "c"], ITEM: ["a", "z"]}

    def write(operation: tuple) -> Events:
        kind, type_, a, b, seed = operation
        random, events = np.random.default_rng(seed), Events()
        if b is not None:
            ends = [
                (present[t][p % len(present[t])]) for t, p in ((type_[0], a), (type_[2], b)) if present[t]
            ]
            if len(ends) == 2 and kind == "remove_edges":
                events.remove_edges(*ends, edge_type=type_)
            elif len(ends) == 2:
                features = random.standard_normal(2) if TYPES[type_].edge_dim and seed % 3 else None
                weight = seed / 50 if TYPES[type_].weighted else None
                time = float(seed % 4) if TYPES[type_].timed else None
                events.add_edges(*ends, weight=weight, time=time, edge_attr=features, edge_type=type_)
        elif kind == "add_nodes":
            id = "abcdefg"[a % 7]
            present[type_] = [*(one for one in present[type_] if one != id), id]
            x = random.standard_normal(widths[type_]) if seed % 4 else None
            events.add_nodes(id, x, node_type=type_)
        elif present[type_]:
            id = present[type_][a % len(present[type_])]
            if kind == "remove_nodes":
                present[type_].remove(id)
                events.remove_nodes(id, node_type=type_)
            else:
                events.set_features(id, random.standard_normal(widths[type_]), node_type=type_)
        return events

    begin = Events.concatenate([write(one) for one in first])
    for live in (graph, twin):
        live.apply(begin, seq=0)
    history, past = History(graph, 1000), Past(twin, model)
    graph.attach(history)
    for batch in later:
        events = Events.concatenate([write(one) for one in batch])
        graph.apply(events)
        past.apply(events)
    since = data.draw(st.integers(0, graph.seq), label="since")
    for id in present[USER]:
        found = explain(graph, history, model, id, since)
        past.check(found, 3)
        order = [(share.edge_type is None, share.id) for share in found.neighbors]
        assert sum(own for own, _ in order) <= 1
        assert order == sorted(order, key=lambda one: one[0])
        known = {id for name, id in past.cone(id, 1, since)}
        assert {share.id for share in found.neighbors} <= known
