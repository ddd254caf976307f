"""Features with times, held against a dictionary: whatever the order of arrival, the newest by time stay."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gate import draws
from livegnn import EdgeSchema, Engine, Events, Graph, Schema
from mirror import assert_exact, frozen
from streams import WIDTH, make_model

EDGES = ("node", "to", "node")
MODEL = make_model()
KNOWN = range(4)
TIMES = st.none() | st.sampled_from([-1e300, -2.0, 0.0, 1.0, 2.0, 1e300])


class One(NamedTuple):
    """An event on one node."""

    kind: str
    id: int
    row: float | None = None
    time: float | None = None

    def to(self, events: Events) -> Events:
        x = None if self.row is None else np.full(WIDTH, self.row, np.float32)
        if self.kind == "remove_nodes":
            return events.remove_nodes(self.id)
        if self.kind == "add_edges":
            return events.add_edges(self.id, (self.id + 1) % len(KNOWN))
        if self.kind == "set_features":
            assert x is not None
            return events.set_features(self.id, x, time=self.time)
        return events.add_nodes(self.id, x, time=self.time)


def events_of(ones: list[One]) -> Events:
    events = Events()
    for one in ones:
        one.to(events)
    return events


class Mirror:
    """Time and row of each node; -infinity where no event has set them."""

    def __init__(self, auto_add: float | None) -> None:
        self.auto_add = auto_add
        self.nodes: dict[int, tuple[float, float]] = {}

    def fits(self, one: One) -> bool:
        if one.kind == "add_nodes" or one.id in self.nodes:
            return one.kind != "add_edges" or (one.id + 1) % len(KNOWN) in self.nodes
        return one.kind == "set_features" and self.auto_add is not None

    def apply(self, one: One) -> int:
        """Returns how many rows were late."""
        if one.kind == "remove_nodes":
            del self.nodes[one.id]
            return 0
        default = 0.0 if one.kind == "add_nodes" or self.auto_add is None else self.auto_add
        old = self.nodes.setdefault(one.id, (-np.inf, default))
        if one.row is None:
            return 0
        time = 0.0 if one.time is None else one.time
        if time < old[0]:
            return 1
        self.nodes[one.id] = time, one.row
        return 0


def make_graph(auto_add: float | None = None) -> Graph:
    return Graph(
        Schema(
            {"node": WIDTH},
            {EDGES: EdgeSchema(weighted=True)},
            auto_add={} if auto_add is None else {"node": (auto_add,) * WIDTH},
            timed_features=["node"],
        )
    )


def check(graph: Graph, mirror: Mirror) -> None:
    ids = sorted(mirror.nodes)
    assert sorted(graph.ids().tolist()) == ids
    times, rows = graph.feature_times(ids), graph.features(ids)
    assert times.tolist() == [mirror.nodes[id][0] for id in ids]
    assert rows.tolist() == [[mirror.nodes[id][1]] * WIDTH for id in ids]


@st.composite
def events_on_one(draw: st.DrawFn) -> One:
    kind = draw(
        st.sampled_from(["set_features"] * 4 + ["add_nodes", "add_nodes", "remove_nodes", "add_edges"])
    )
    featured = kind == "set_features" or (kind == "add_nodes" and draw(st.booleans()))
    row, time = (float(draw(st.integers(1, 9))), draw(TIMES)) if featured else (None, None)
    return One(kind, draw(st.sampled_from(KNOWN)), row, time)


@settings(max_examples=draws(40, 2000), deadline=None)
@given(st.lists(st.lists(events_on_one(), min_size=1, max_size=8), max_size=8), st.sampled_from([None, 7.0]))
def test_a_stream_leaves_what_a_dictionary_has(batches: list[list[One]], auto_add: float | None) -> None:
    graph, mirror = make_graph(auto_add), Mirror(auto_add)
    engine, lazy = (Engine(graph, MODEL, threads=1, mode=mode) for mode in ("eager", "lazy"))
    for batch in batches:
        fitting, late = [], 0
        for one in batch:
            if mirror.fits(one):
                fitting.append(one)
                late += mirror.apply(one)
        update = engine.apply(events_of(fitting))
        assert update.late_features == late
        check(graph, mirror)
    assert_exact(engine)
    np.testing.assert_allclose(lazy.predict(graph.ids()), engine.predict(graph.ids()), rtol=1e-4, atol=1e-4)
    again = Graph.from_state(graph.state())
    assert frozen(again.state()) == frozen(graph.state())
    check(again, mirror)


sets = st.builds(
    One,
    st.just("set_features"),
    st.sampled_from(KNOWN),
    st.integers(1, 1000).map(float),
    TIMES,
)


@settings(max_examples=draws(40, 2000), deadline=None)
@given(st.lists(sets, max_size=20), st.data())
def test_arrival_in_any_order_is_arrival_in_the_order_of_times(ones: list[One], data: st.DataObject) -> None:
    """Ties by arrival: the stable order by time, cut into other batches, leaves the same graph."""

    def run(stream: list[One]) -> Engine:
        engine = Engine(make_graph(), MODEL, threads=1)
        engine.apply(Events().add_nodes(list(KNOWN)).add_edges([0, 1, 2], [1, 2, 3]))
        at = 0
        while at < len(stream):
            size = data.draw(st.integers(1, 5))
            engine.apply(events_of(stream[at : at + size]))
            at += size
        return engine

    arrived = run(ones)
    in_order = run(sorted(ones, key=lambda one: one.time or 0.0))
    ids = list(KNOWN)
    assert arrived.graph.feature_times(ids).tolist() == in_order.graph.feature_times(ids).tolist()
    assert arrived.graph.features(ids).tolist() == in_order.graph.features(ids).tolist()
    np.testing.assert_allclose(arrived.predict(ids), in_order.predict(ids), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("in_one", [True, False], ids=["in one batch", "in two"])
def test_a_node_that_is_added_again_begins_anew(in_one: bool) -> None:
    graph = make_graph()
    first = Events().add_nodes(1, [1.0] * WIDTH, time=9.0)
    second = Events().remove_nodes(1).add_nodes(1).set_features(1, [2.0] * WIDTH, time=-5.0)
    for events in [Events.concatenate([first, second])] if in_one else [first, second]:
        assert graph.apply(events).late_features == 0
    assert graph.features(1).tolist() == [[2.0] * WIDTH]
    assert graph.feature_times(1).tolist() == [-5.0]
