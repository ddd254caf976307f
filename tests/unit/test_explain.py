"""`Engine.explain`: what it names and adds up, how far back it looks, and what its history keeps."""

from __future__ import annotations

import re

import numpy as np
import pytest
from model_examples import EDGES, propagate

import livegnn.inference.neighbor_shares as neighbor_shares
from livegnn import Engine, Events, Graph, InputError, UnknownNodeError
from livegnn.graph import EdgeSchema, Schema
from livegnn.inference.history import History
from livegnn.model import Input, Model, Propagate, Step
from livegnn.oracle import reference
from livegnn.types import DEFAULT_EDGE_TYPE
from mirror import frozen
from modules import WIDTH, Design, make

SUM = Model({"x": Input("node", 2)}, (propagate("x", "out"),), {}, "out", ("x", "out"))
"""One layer that adds the rows of the neighbours: every share can be told by heart."""


def make_engine(model: Model = SUM, history: int = 100, nodes: int = 5) -> Engine:
    """Edges 0 -> 1 -> 2 -> ...; node i has the features (i, 1)."""
    x = np.stack([np.arange(nodes), np.ones(nodes)], axis=1)
    graph = Graph.from_edges(np.arange(nodes - 1), np.arange(1, nodes), x=x, weight=np.ones(nodes - 1))
    return Engine(graph, model, threads=1, history=history)


def make_busy(kind: str, depth: int = 2, history: int = 1000, nodes: int = 40) -> tuple[Engine, np.ndarray]:
    """Engine after 60 random events, and the predictions before them."""
    rng = np.random.default_rng(5)
    x = rng.standard_normal((nodes, WIDTH)).astype(np.float32)
    graph = Graph.from_edges(*rng.integers(0, nodes, (2, 3 * nodes)), x=x, parallel="last")
    engine = Engine(graph, make(Design(kind, depth=depth))[1], threads=1, history=history)
    before = reference.compute(engine.model, graph.snapshot())[engine.model.output]
    for _ in range(10):
        a, b = rng.integers(0, nodes, (2, 2))
        rows = rng.standard_normal((2, WIDTH))
        engine.apply(Events().add_edges(a, b).remove_edges(b, a).set_features(b, rows))
    return engine, before


# -- what is named


def test_events_and_neighbors_have_the_shares_that_they_moved():
    engine = make_engine()
    engine.apply(Events().add_edges([3, 4], [2, 0]))  # 1, 2
    engine.apply(Events().set_features([1, 3], [[10, 0], [5, 5]]))  # 3, 4
    found = engine.explain(2, since=0)
    assert (found.id, found.since, found.seq) == (2, 0, 4)
    assert (found.before.tolist(), found.after.tolist()) == ([1, 1], [15, 5])
    assert [(e.seq, e.kind, e.type, e.ids, e.share.tolist()) for e in found.events] == [
        (1, "add_edge", DEFAULT_EDGE_TYPE, (3, 2), [3, 1]),
        (3, "set_features", "node", (1,), [9, -1]),
        (4, "set_features", "node", (3,), [2, 4]),
    ]
    assert [(n.edge_type, n.id, n.share.tolist()) for n in found.neighbors] == [
        (DEFAULT_EDGE_TYPE, 1, [9, -1]),
        (DEFAULT_EDGE_TYPE, 3, [5, 5]),
    ]
    assert found.movement.tolist() == [14, 4]


def test_what_the_node_itself_has_is_its_own_share():
    steps = (propagate("x", "a"), Step("add", ("a", "x"), "out"))
    engine = make_engine(Model({"x": Input("node", 2)}, steps, {}, "out", ("x", "out")))
    engine.apply(Events().set_features(2, [7, 1]).add_edges(2, 2, weight=1))
    found = engine.explain(2, since=0)
    assert [event.share.tolist() for event in found.events] == [[5, 0], [7, 1]]
    assert [(n.edge_type, n.id, n.share.tolist()) for n in found.neighbors] == [(None, 2, [12, 1])]


def test_the_middle_of_a_batch_is_a_moment_like_any_other():
    engine = make_engine()
    engine.apply(Events().add_edges([3, 4, 0], [2, 2, 2]))
    found = engine.explain(2, since=1)
    assert found.before.tolist() == [4, 2]
    assert [event.seq for event in found.events] == [2, 3]
    assert [neighbor.id for neighbor in found.neighbors] == [0, 4]
    assert not engine.explain(2, since=3).events


def test_what_is_not_reached_is_not_named():
    engine = make_engine()
    engine.apply(Events().add_edges(0, 4).set_features(2, [1, 1]).set_features(1, [1, 1]))
    found = engine.explain(1, since=0)
    assert (found.events, found.neighbors) == ([], [])
    np.testing.assert_array_equal(found.before, found.after)


def test_a_row_that_is_not_read_is_nobody_s_share():
    """The node's own hidden row is another one, but only its neighbours' are read."""
    steps = (propagate("x", "h"), propagate("h", "out"))
    engine = make_engine(Model({"x": Input("node", 2)}, steps, {}, "out", ("x", "h", "out")))
    engine.apply(Events().add_edges(0, 2))
    found = engine.explain(2, since=0)
    assert (found.events, found.neighbors, found.movement.tolist()) == ([], [], [0, 0])


def test_an_event_that_was_undone_moved_the_prediction_and_no_neighbor_did():
    engine = make_engine()
    engine.apply(Events().add_edges(4, 1).remove_edges(4, 1))
    found = engine.explain(1, since=0)
    assert [event.share.tolist() for event in found.events] == [[4, 1], [-4, -1]]
    assert found.neighbors == []


def test_a_node_that_was_not_there_had_no_prediction():
    engine = make_engine()
    engine.apply(Events().add_nodes(9, [1, 1]).add_edges([3, 4], [9, 9]))
    found = engine.explain(9, since=0)
    assert found.before is None
    assert found.movement.tolist() == found.after.tolist() == [7, 2]
    assert engine.explain(9, since=1).before.tolist() == [0, 0]


def test_a_node_that_was_removed_and_came_back():
    engine = make_engine()
    engine.apply(Events().remove_nodes(2).add_nodes(2, [0, 0]).add_edges(4, 2))
    found = engine.explain(2, since=0)
    assert [event.share.tolist() for event in found.events] == [[-1, -1], [4, 1]]
    assert [(n.id, n.share.tolist()) for n in found.neighbors] == [(1, [-1, -1]), (4, [4, 1])]


def test_a_neighbor_that_was_removed_and_came_back_with_its_edge():
    engine = make_engine()
    engine.apply(Events().remove_nodes(1).add_nodes(1, [5, 5]).add_edges(1, 2))
    found = engine.explain(2, since=0)
    assert found.before.tolist() == [1, 1]
    assert [(e.seq, e.share.tolist()) for e in found.events] == [(1, [-1, -1]), (3, [5, 5])]
    assert [(n.id, n.share.tolist()) for n in found.neighbors] == [(1, [4, 4])]


@pytest.mark.parametrize("hub", [0, 1])
def test_an_event_that_came_late_moved_nothing(hub):
    """Whether it did is told by the time that the edge had before the batch."""
    more = np.arange(2, 6)
    src, dst = (np.append(more, 0), np.append(more * 0 + 1, 1)) if hub else ([0] * 5, [1, *more])
    x = np.ones((6, 2))
    graph = Graph.from_edges(src, dst, x=x, weight=np.ones(5), time=np.full(5, 7.0))
    step = propagate("x", "out", Propagate(EDGES, ("weight",)))
    engine = Engine(graph, Model({"x": Input("node", 2)}, (step,), {}, "out", ("x", "out")), history=9)
    engine.apply(Events().add_edges([0, 0, 0], [1, 1, 1], weight=[3, 2, 4], time=[6, 8, 7.5]))
    assert [(e.seq, e.share.tolist()) for e in engine.explain(1, since=0).events] == [(2, [1, 1])]


def test_an_undirected_edge_moves_both_of_its_ends():
    graph = Graph.from_edges([0, 2], [1, 1], x=np.eye(3)[:, :2], undirected=True)
    engine = Engine(graph, SUM, threads=1, history=9)
    engine.apply(Events().remove_edges(1, 0).add_edges(2, 0))
    for id, gone in ((0, 1), (1, 0)):
        found = engine.explain(id, since=0)
        assert (found.events[0].ids, found.events[0].share.any()) == ((1, 0), True)
        assert gone in [neighbor.id for neighbor in found.neighbors]
        np.testing.assert_array_equal(found.after, engine.predict(id)[0])


def test_a_degree_that_only_the_border_knows():
    """A GCN's message depends on the degree of its source: on edges one hop further than any feature."""
    operators = Propagate(EDGES, ("source_rsqrt",), "count", "rsqrt", self_loops=1.0)
    engine = make_engine(
        Model({"x": Input("node", 2)}, (propagate("x", "out", operators),), {}, "out", ("x", "out"))
    )
    engine.apply(Events().add_edges([4, 3], [1, 0]))
    found = engine.explain(2, since=0)
    assert [event.seq for event in found.events] == [1]
    assert [neighbor.id for neighbor in found.neighbors] == [1]
    np.testing.assert_allclose(found.movement, np.array([1, 1]) * (6**-0.5 - 0.5), rtol=1e-12)


def test_text_ids_and_several_types():
    types = {("user", "rates", "item"): EdgeSchema(weighted=True), ("item", "like", "item"): EdgeSchema()}
    graph = Graph(Schema({"user": 1, "item": 1}, types, text_ids=True))
    graph.apply(Events().add_nodes(["m\u00fcller", "abel"], [[1], [2]], node_type="user"))
    graph.apply(Events().add_nodes(["x", "y"], [[4], [8]], node_type="item"))
    steps = (
        propagate("u", "a", Propagate(("user", "rates", "item"), ("weight",))),
        propagate("i", "b", Propagate(("item", "like", "item"))),
        Step("add", ("a", "b"), "out"),
    )
    model = Model({"u": Input("user", 1), "i": Input("item", 1)}, steps, {}, "out", ("i", "out"))
    engine = Engine(graph, model, threads=1, history=10)
    rates, like = types
    events = Events().add_edges(["m\u00fcller", "abel"], ["x", "x"], weight=[3, 0.5], edge_type=rates)
    engine.apply(events.add_edges("y", "x", edge_type=like))
    found = engine.explain("x", since=4)
    assert [(e.seq, e.ids, e.share.tolist()) for e in found.events] == [
        (5, ("m\u00fcller", "x"), [3]),
        (6, ("abel", "x"), [1]),
        (7, ("y", "x"), [8]),
    ]
    assert [(n.edge_type, n.id, n.share.tolist()) for n in found.neighbors] == [
        (rates, "abel", [1]),
        (rates, "m\u00fcller", [3]),
        (like, "y", [8]),
    ]


@pytest.mark.parametrize("kind", ["gcn", "sage mean", "sage max", "gin"])
def test_shares_add_up_over_many_events(kind):
    engine, before = make_busy(kind)
    after = reference.compute(engine.model, engine.graph.snapshot())[engine.model.output]
    for row, id in list(enumerate(engine.graph.ids().tolist()))[::3]:
        found = engine.explain(id, since=0)
        np.testing.assert_allclose(found.before, before[row], atol=1e-12)
        np.testing.assert_allclose(found.after, after[row], atol=1e-12)
        np.testing.assert_allclose(found.after, engine.predict(id)[0], atol=1e-4)
        for shares in (found.events, found.neighbors):
            total = sum((share.share for share in shares), np.zeros(3))
            np.testing.assert_allclose(total, found.movement, atol=1e-12)


def test_copies_come_in_parts(monkeypatch):
    engine, _ = make_busy("gcn")
    whole = {id: engine.explain(id, since=0).neighbors for id in range(0, 40, 4)}
    assert max(map(len, whole.values())) > 4
    monkeypatch.setattr(neighbor_shares, "_EDGES_AT_ONCE", 1)
    for id, expected in whole.items():
        got = engine.explain(id, since=0).neighbors
        assert [(n.edge_type, n.id) for n in got] == [(n.edge_type, n.id) for n in expected]
        for one, other in zip(got, expected, strict=True):
            np.testing.assert_allclose(one.share, other.share, atol=1e-12)


def test_a_model_without_messages():
    step = Step("scale", ("x",), "out", attrs={"value": 2.0})
    graph = make_engine().graph
    engine = Engine(graph, Model({"x": Input("node", 2)}, (step,), {}, "out", ("x", "out")), history=5)
    engine.apply(Events().add_edges(0, 3).set_features(3, [4, 1]))
    found = engine.explain(3, since=0)
    assert [(event.seq, event.share.tolist()) for event in found.events] == [(2, [2, 0])]
    assert [(n.edge_type, n.id, n.share.tolist()) for n in found.neighbors] == [(None, 3, [2, 0])]


def test_the_largest_and_the_text():
    engine = make_engine()
    engine.apply(Events().add_edges([3, 4, 0], [2, 2, 2]).set_features(0, [1, -50]))
    found = engine.explain(2, since=0)
    events, neighbors = found.top(2)
    assert ([event.seq for event in events], [n.id for n in neighbors]) == ([4, 2], [0, 4])
    assert [event.seq for event in found.top(1, channel=0)[0]] == [2]
    assert str(found).splitlines() == [
        "node 2, from event 0 to 4: [  8. -48.]",
        "events",
        "  4 set_features 0   [  1. -51.]",
        "  2 add_edge 4 -> 2  [4. 1.]",
        "  1 add_edge 3 -> 2  [3. 1.]",
        "  3 add_edge 0 -> 2  [0. 1.]",
        "neighbors",
        "  0 to  [  1. -50.]",
        "  4 to  [4. 1.]",
        "  3 to  [3. 1.]",
    ]
    assert str(engine.explain(1, since=4)).splitlines()[1:] == ["events", "  none", "neighbors", "  none"]


# -- how far back


def test_without_a_history_nothing_is_explained():
    engine = make_engine(history=0)
    assert "history" not in engine.memory()
    with pytest.raises(InputError, match=r"remember some events, got history = 0: set history"):
        engine.explain(1, since=0)


@pytest.mark.parametrize("history", [-1, 2.5, True])
def test_a_history_is_a_number_of_events(history):
    with pytest.raises(InputError, match=r"history.*at least 0"):
        make_engine(history=history)


def test_unknown_nodes_and_moments():
    engine = make_engine()
    engine.apply(Events().add_edges(0, 2).remove_nodes(4))
    for id in (4, 99):
        with pytest.raises(UnknownNodeError, match=str(id)):
            engine.explain(id, since=0)
    with pytest.raises(InputError, match="at most 2, where the graph is, got 3"):
        engine.explain(1, since=3)
    with pytest.raises(
        InputError, match="since, a sequence number, must be an integer of at least 0, got -1"
    ):
        engine.explain(1, since=-1)
    with pytest.raises(InputError, match=r"expected the id of one node, got \[0, 1\]"):
        engine.explain([0, 1], since=0)


def test_old_batches_are_forgotten_whole():
    engine = make_engine(history=4)
    for _ in range(3):
        engine.apply(Events().add_edges([0, 3], [2, 2]))
    assert engine.explain(2, since=2).seq == 6
    with pytest.raises(InputError, match=r"at least 2.*got 1.*set history, of the engine, above 4"):
        engine.explain(2, since=1)
    held = engine.memory()["history"]
    for _ in range(20):
        engine.apply(Events().add_edges([0, 3], [2, 2]))
    assert engine.memory()["history"] <= held
    engine.apply(Events().add_edges([0] * 9, [2] * 9))  # more than is asked for, and one batch
    assert engine.explain(2, since=46).before is not None


@pytest.mark.parametrize("since", [0, 3, 7, 9, 10, 11, 13])
@pytest.mark.parametrize("history", [1, 3, 5, 100])
def test_a_longer_history_is_advised_only_where_it_helps(history, since):
    def run(history: int) -> Engine:
        engine = make_engine(history=history)
        for _ in range(4):
            engine.apply(Events().add_edges([0, 3], [2, 2]))
        engine.apply(Events().add_edges([4, 4, 4], [0, 2, 3]), seq=9)  # more events than new numbers
        for _ in range(3):
            engine.apply(Events().add_edges([1, 4], [2, 2]))
        return engine

    engine = run(history)
    if since >= engine._history.oldest:
        assert engine.explain(2, since=since).since == since
        return
    with pytest.raises(InputError, match=f"at least {engine._history.oldest}.* got {since}") as refused:
        engine.explain(2, since=since)
    advised = re.search(r"set history, of the engine, above (\d+)", str(refused.value))
    if advised is not None:
        assert run(int(advised[1]) + 1).explain(2, since=since).since == since
        return
    with pytest.raises(InputError, match="begins at event 9, when a batch had more events than new seq"):
        run(10**6).explain(2, since=since)


def test_gaps_in_the_numbers_are_moments_too():
    engine = make_engine()
    engine.apply(Events().add_edges(3, 2), seq=10)
    engine.apply(Events(), seq=20)  # what was refused has a number as well
    engine.apply(Events().add_edges(4, 2), seq=30)
    assert [event.seq for event in engine.explain(2, since=5).events] == [10, 30]
    assert [event.seq for event in engine.explain(2, since=15).events] == [30]


def test_events_without_numbers_of_their_own_begin_a_new_history():
    engine = make_engine()
    engine.apply(Events().add_edges(3, 2))
    engine.apply(Events().add_edges(4, 2), seq=1)
    assert engine.explain(2, since=1).events == []
    with pytest.raises(InputError, match="at least 1"):
        engine.explain(2, since=0)


def test_a_batch_that_does_not_happen_is_not_remembered():
    engine = make_engine()

    def refuse(delta: object) -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        engine.apply(Events().add_edges(3, 2), on_staged=refuse)
    engine.what_if(Events().add_edges(3, 2)).predict(2)
    engine.apply(Events().add_edges(4, 2))
    assert [event.ids for event in engine.explain(2, since=0).events] == [(4, 2)]


def run_out(*_: object) -> object:
    raise MemoryError("no more")


def test_a_batch_that_there_is_no_memory_to_remember_does_not_happen(monkeypatch):
    """Its events were copied after the graph had changed, and `apply` raised for what had happened."""
    engine = make_engine()
    engine.apply(Events().add_edges(3, 2))
    before = frozen(engine.graph.state()), frozen(engine.state())
    with monkeypatch.context() as patch:
        patch.setattr(History, "_copy", run_out)
        with pytest.raises(MemoryError):
            engine.apply(Events().add_edges(4, 2))
    assert (frozen(engine.graph.state()), frozen(engine.state())) == before
    engine.apply(Events().add_edges(0, 2))
    assert [event.ids for event in engine.explain(2, since=0).events] == [(3, 2), (0, 2)]


def test_a_history_that_cannot_grow_begins_anew_and_the_batch_stands(monkeypatch):
    engine = make_engine()
    engine.apply(Events().add_edges(3, 2))
    with monkeypatch.context() as patch:
        patch.setattr(History, "_keep", run_out)
        engine.apply(Events().add_edges(4, 2))
    assert engine.seq == 2
    engine.apply(Events().add_edges(0, 2))
    assert [event.ids for event in engine.explain(2, since=2).events] == [(0, 2)]
    with pytest.raises(InputError, match="at least 2"):
        engine.explain(2, since=0)


def test_the_caller_s_arrays_are_copied():
    engine = make_engine()
    ids, dst, x = np.array([3, 4]), np.array([2, 2]), np.ones((2, 2), dtype=np.float32)
    engine.apply(Events().add_edges(ids, dst).set_features(ids, x))
    ids[:], dst[:], x[:] = 0, 0, 9
    found = engine.explain(2, since=0)
    assert [event.ids for event in found.events] == [(3, 2), (4, 2), (3,), (4,)]
    assert found.after.tolist() == [3, 3]


def test_a_restored_engine_begins_anew():
    engine = make_engine()
    engine.apply(Events().add_edges(3, 2))
    graph = Graph.from_state(engine.graph.state())
    restored = Engine(graph, SUM, threads=1, state=engine.state(), history=100)
    restored.apply(Events().add_edges(4, 2))
    assert [event.seq for event in restored.explain(2, since=1).events] == [2]
    with pytest.raises(InputError, match=r"at least 1.*begins at event 1, when the engine was made or resto"):
        restored.explain(2, since=0)
