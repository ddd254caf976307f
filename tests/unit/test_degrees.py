"""Degree steps: what a node's edges add up to, read like any other value of nodes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_examples import EDGES, make_snapshot

from gate import draws
from livegnn import EdgeSchema, Engine, Events, Graph, ModelError, Schema
from livegnn.graph.snapshot import Snapshot
from livegnn.model import Degree, EdgeInput, Input, Model, Propagate, Step, verify
from livegnn.oracle import reference
from mirror import assert_exact, frozen

LIKES = ("user", "likes", "item")


def degree(output: str, **settings: object) -> Step:
    return Step("degree", (), output, attrs=Degree(**{"edge_type": EDGES, **settings}).to_attrs())


def alone(step: Step) -> Model:
    """Only the degree of a node."""
    return Model({"x": Input("node", 1)}, (step,), {}, step.output, ("x", step.output))


# In-edges of 0: from 1 with 2 and from itself with 3; of 1: from 0 with 5; of 2: none. Of 3 two loops, as
# parallel edges, with 7 and 11.
SNAPSHOT = make_snapshot(
    np.zeros((4, 1)), [(1, 0), (0, 0), (0, 1), (3, 3), (3, 3)], [2.0, 3.0, 5.0, 7.0, 11.0]
)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [2, 1, 0, 2]),
        ({"kind": "sum"}, [5, 5, 0, 18]),
        ({"skip_loops": True}, [1, 1, 0, 0]),
        ({"kind": "sum", "skip_loops": True}, [2, 5, 0, 0]),
        ({"self_loops": 1.0}, [2, 2, 1, 1]),
        ({"self_loops": 4.0}, [2, 2, 1, 1]),
        ({"kind": "sum", "self_loops": 1.0}, [5, 6, 1, 11]),
        ({"kind": "sum", "self_loops": 4.0}, [5, 9, 4, 11]),
        ({"kind": "sum", "self_loops": 0.0}, [5, 5, 0, 11]),
    ],
)
def test_what_a_degree_counts(settings: dict[str, object], expected: list[float]) -> None:
    got = reference.compute(alone(degree("d", **settings)), SNAPSHOT)["d"]
    np.testing.assert_array_equal(got[:, 0], expected)
    schema = EdgeSchema(weighted=True, duplicates="keep")
    graph = Graph(Schema({"node": 1}, {EDGES: schema}))
    events = Events().add_nodes(np.arange(4), np.zeros((4, 1)))
    source, target = SNAPSHOT.edge_index[EDGES]
    graph.apply(events.add_edges(source, target, weight=SNAPSHOT.weight[EDGES]))
    engine = Engine(graph, alone(degree("d", **settings)))
    np.testing.assert_array_equal(engine.predict(np.arange(4))[:, 0], expected)


def test_degrees_of_targets_alone() -> None:
    snapshot = Snapshot(
        {"user": np.arange(2), "item": np.arange(2)},
        {"user": np.zeros((2, 1), np.float32), "item": np.zeros((2, 1), np.float32)},
        {LIKES: np.array([[0, 1, 1], [0, 0, 1]])},
        {LIKES: np.ones(3, np.float32)},
    )
    # An edge between types is no loop, though both ends have the same index.
    step = degree("d", edge_type=LIKES, skip_loops=True)
    model = Model({"i": Input("item", 1)}, (step,), {}, "d", ("i", "d"))
    assert model.node_type("d") == "item"
    assert model.edge_types == (LIKES,)
    np.testing.assert_array_equal(reference.compute(model, snapshot)["d"], [[2], [1]])


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"edge_type": EDGES}, "must have the attributes edge_type and kind"),
        ({"edge_type": EDGES, "kind": "mean"}, "kind must be one of 'count', 'sum'; got 'mean'"),
        ({"edge_type": EDGES + EDGES, "kind": "sum"}, r"edge_type must be \(source, relation, target\)"),
        ({"edge_type": EDGES, "kind": "sum", "weight": 1}, "may have self_loops, skip_loops"),
        ({"edge_type": EDGES, "kind": "sum", "self_loops": "1"}, "self_loops must be null or a number"),
        ({"edge_type": EDGES, "kind": "sum", "self_loops": float("inf")}, "null or a finite weight"),
        ({"edge_type": LIKES, "kind": "sum", "self_loops": 1}, "self_loops need edges between nodes of one"),
        ({"edge_type": EDGES, "kind": "sum", "self_loops": 1, "skip_loops": True}, "contradict each other"),
        ({"edge_type": EDGES, "kind": "sum", "skip_loops": 1}, "skip_loops must be true or false, got 1"),
    ],
)
def test_settings_that_do_not_fit(attrs: dict[str, object], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        alone(Step("degree", (), "d", attrs=attrs))  # type: ignore[arg-type]


def test_a_degree_reads_no_value() -> None:
    with pytest.raises(ModelError, match=r"must have 0 input\(s\), got 1"):
        alone(Step("degree", ("x",), "d", attrs=Degree(EDGES).to_attrs()))


def test_settings_survive_a_file() -> None:
    step = degree("d", kind="sum", self_loops=2.0)
    assert Degree.from_step(step) == Degree(EDGES, "sum", 2.0)


def test_a_degree_is_verified() -> None:
    report = verify(alone(degree("d")))
    assert report.ok
    assert [(one.step, one.number) for one in report.conditions] == [("d", 1)]


# -- in the engine

SETTINGS = st.sampled_from(
    [
        {"kind": kind, **loops}
        for kind in ("count", "sum")
        for loops in ({}, {"skip_loops": True}, {"self_loops": 1.0}, {"self_loops": 2.5}, {"self_loops": 0.0})
    ]
)


def make_model(reads: str, first: dict[str, object], second: dict[str, object]) -> Model:
    """A model that reads two degrees in one way."""
    rng = np.random.default_rng(3)
    tensors = {"w": rng.standard_normal((3, 2)).astype(np.float32), "v": np.ones((2, 4), np.float32)}
    edges = {"edge_type": EDGES}
    mean = Propagate(EDGES, (), "count", "divide").to_attrs()
    plain = Propagate(EDGES).to_attrs()
    degrees = (degree("d", **first), degree("e", **second))
    columns: dict[str, EdgeInput] = {}
    head = [Step("concat", ("h", "e"), "both"), Step("linear", ("both",), "y", {"weight": "v"})]
    tensors["v"] = rng.standard_normal((2, 4)).astype(np.float32)
    first_rows = [Step("linear", ("x",), "h0", {"weight": "w"})]
    if reads == "rows":
        steps = [Step("scale_heads", ("h0", "d"), "h1"), Step("propagate", ("h1",), "h", attrs=mean)]
    elif reads == "sum":  # of the neighbours' degrees
        steps = [Step("propagate", ("d",), "s", attrs=plain), Step("scale_heads", ("h0", "s"), "h")]
    elif reads == "maximum":
        largest = Propagate(EDGES, aggregate="max").to_attrs()
        steps = [Step("propagate", ("d",), "s", attrs=largest), Step("scale_heads", ("h0", "s"), "h")]
    elif reads == "source":
        steps = [
            Step("source", ("d",), "from", attrs=edges),
            Step("source", ("h0",), "rows", attrs=edges),
            Step("scale_heads", ("rows", "from"), "m"),
            Step("propagate", ("m",), "h", attrs=plain),
        ]
    elif reads == "ends":
        columns = {"weight": EdgeInput(EDGES, 1, "weight")}
        steps = [
            Step("source", ("d",), "from", attrs=edges),
            Step("target", ("e",), "to", attrs=edges),
            Step("source", ("h0",), "rows", attrs=edges),
            Step("add", ("from", "to"), "ends"),
            Step("multiply", ("ends", "weight"), "factor"),
            Step("scale_heads", ("rows", "factor"), "m"),
            Step("propagate", ("m",), "h", attrs=mean),
        ]
    elif reads == "output":
        return Model(
            {"x": Input("node", 2)},
            (*degrees, Step("propagate", ("x",), "h", attrs=plain), Step("add", ("d", "e"), "y0")),
            {},
            "e",
            ("x", "h", "d", "y0", "e"),
        )
    else:
        raise AssertionError(reads)
    steps = [*first_rows, *degrees, *steps, *head]
    return Model({"x": Input("node", 2)}, tuple(steps), tensors, "y", ("x", "h", "d", "y"), columns)


READS = ("rows", "sum", "maximum", "source", "ends", "output")
MODES = {
    "eager": {},
    "lazy": {"mode": "lazy"},
    "aggregates": {"keep": "aggregates"},
    "residents": {"keep_degree": 3},
}
NODES = st.integers(0, 6)
CHANGES = st.one_of(
    st.tuples(st.just("add"), NODES, NODES, st.sampled_from([0.0, 0.25, 1.0, 1e10])),
    st.tuples(st.just("add"), NODES, NODES, st.sampled_from([0.5, 3.0])),
    st.tuples(st.just("loop"), NODES, st.sampled_from([0.5, 3.0])),
    st.tuples(st.just("remove"), NODES, NODES),
    st.tuples(st.just("set"), NODES, st.sampled_from([-1.0, 0.0, 2.0])),
    st.tuples(st.just("leave"), NODES),
)


def write(events: Events, present: set[int], schema: EdgeSchema, change: tuple) -> None:
    kind, node, *rest = change
    if kind == "loop":
        kind, rest = "add", [node, *rest]
    for end in (node, *rest[:1]) if kind in ("add", "remove") else (node,):
        if end not in present:
            present.add(end)
            events.add_nodes(end, np.full((1, 2), end / 4, np.float32))
    if kind == "add":
        events.add_edges(node, rest[0], weight=rest[1] if schema.weighted else None)
    elif kind == "remove":
        events.remove_edges(node, rest[0])
    elif kind == "set":
        events.set_features(node, np.full((1, 2), rest[0], np.float32))
    else:
        present.discard(node)
        events.remove_nodes(node)


@pytest.mark.parametrize(
    ("reads", "mode"),
    [(r, m) for r in READS for m in MODES if m != "residents" or r not in ("source", "ends")],
)
def test_degrees_follow_any_stream(reads: str, mode: str) -> None:
    @settings(max_examples=draws(5, 25), deadline=None)
    @given(
        first=SETTINGS,
        second=SETTINGS,
        undirected=st.booleans(),
        weighted=st.booleans(),
        duplicates=st.sampled_from(["replace", "keep"]),
        batches=st.lists(st.lists(CHANGES, min_size=1, max_size=6), min_size=1, max_size=5),
    )
    def check(first, second, undirected, weighted, duplicates, batches) -> None:
        schema = EdgeSchema(undirected=undirected, weighted=weighted, duplicates=duplicates)
        model = make_model(reads, first, second)
        graph = Graph(Schema({"node": 2}, {EDGES: schema}))
        engine = Engine(graph, model, threads=1, **MODES[mode])
        other = Engine(graph, model, threads=2, **MODES[mode])
        present: set[int] = set()
        for changes in batches:
            events = Events()
            for change in changes:
                write(events, present, schema, change)
            ids = sorted(present)
            imagined = engine.what_if(events).predict(ids) if mode != "lazy" and ids else None
            before = dict(zip(graph.ids().tolist(), engine.predict(graph.ids()), strict=True))
            update = engine.apply(events)
            order = graph.ids()
            got = engine.predict(order)
            if imagined is not None:
                assert engine.predict(ids).tobytes() == imagined.tobytes()
            assert got.tobytes() == other.predict(order).tobytes()
            if update.exact:
                changed = set(update.changed.tolist())
                gone = {i for c in events.chunks if c.kind == "remove_nodes" for i in c.ids.tolist()}
                now = dict(zip(order.tolist(), got, strict=True))
                moved = {i for i in now if i in gone or i not in before or (now[i] != before[i]).any()}
                assert changed == moved
            assert engine.verify().ok
            assert_exact(engine)
            assert engine.scrub() <= 1e-4
        restored = Engine(
            Graph.from_state(graph.state()), model, threads=2, state=engine.state(), **MODES[mode]
        )
        assert frozen(restored.state()) == frozen(engine.state())
        assert restored.predict(graph.ids()).tobytes() == engine.predict(graph.ids()).tobytes()

    check()


def test_equal_degrees_are_kept_once() -> None:
    mean = Propagate(EDGES, (), "count", "divide").to_attrs()
    steps = (
        degree("d"),
        degree("again"),
        Step("propagate", ("x",), "h", attrs=mean),
        Step("scale_heads", ("h", "d"), "i"),
        Step("scale_heads", ("i", "again"), "y"),
    )
    model = Model({"x": Input("node", 2)}, steps, {}, "y", ("x", "y"))
    engine = Engine(Graph(Schema({"node": 2}, {EDGES: EdgeSchema()})), model)
    assert sum(kept.context is not None for kept in engine.plan.kept.values()) == 1


def test_an_explanation_reads_the_edges_that_a_degree_counts() -> None:
    graph = Graph(Schema({"node": 2}, {EDGES: EdgeSchema(weighted=True)}))
    graph.apply(
        Events().add_nodes([0, 1, 2, 3], np.ones((4, 2))).add_edges([1, 2], [0, 1], weight=[1.0, 2.0])
    )
    engine = Engine(graph, make_model("sum", {"kind": "sum"}, {}), history=100)
    seq, before = engine.seq, engine.predict(0)[0]
    engine.apply(Events().add_edges(3, 1, weight=4.0))  # the degree of 1, which 0 adds up
    explained = engine.explain(0, since=seq)
    np.testing.assert_allclose(explained.before, before, rtol=1e-5)
    np.testing.assert_allclose(explained.after, engine.predict(0)[0], rtol=1e-5)
    assert [share.ids for share in explained.events] == [(3, 1)]
    np.testing.assert_allclose(sum(share.share for share in explained.neighbors), explained.movement)


@pytest.mark.parametrize("op", ["divide_degree", "rsqrt_degree"])
def test_rows_by_their_degree(op: str) -> None:
    """0 where a node has no in-edge."""
    model = Model(
        {"x": Input("node", 3)},
        (Step("degree", (), "d", attrs=Degree(EDGES).to_attrs()), Step(op, ("x", "d"), "y")),
        {},
        "y",
        ("x", "y"),
    )
    x = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    graph = Graph.from_edges([0, 1, 2, 0], [1, 1, 1, 2], x=x)
    engine = Engine(graph, model)
    for _ in range(2):
        degree = np.bincount(graph.snapshot().edge_index[EDGES][1], minlength=4)[:, None]
        power = -1.0 if op == "divide_degree" else -0.5
        expected = np.where(degree > 0, x * np.maximum(degree, 1.0) ** power, 0)
        np.testing.assert_allclose(engine.predict(range(4)), expected, rtol=1e-6)
        assert engine.verify().ok
        engine.apply(Events().add_edges([3], [2]).remove_edges([0], [1]))
