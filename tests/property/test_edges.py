"""Any stream of events on edges with features and a time to live, held against dictionaries; and expiry."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from livegnn import EdgeSchema, Events, Graph
from mirror import Mirror, assert_graph_equals, frozen

NODES = 150  # a few blocks of 64, so that some are passed over


@st.composite
def schemas(draw: st.DrawFn, *, expires: bool | None = None) -> EdgeSchema:
    weighted = draw(st.booleans())
    lives = draw(st.booleans()) if expires is None else expires
    return EdgeSchema(
        undirected=draw(st.booleans()),
        weighted=weighted,
        timed=lives or draw(st.booleans()),
        duplicates=draw(st.sampled_from(["replace", "add"])) if weighted else "replace",
        edge_dim=draw(st.sampled_from([0, 1, 3, 9])),
        time_to_live=draw(st.sampled_from([1, 2.5])) if lives else None,
        in_neighbors=True,
        capacity=draw(st.sampled_from([4, 256])),
    )


@st.composite
def batches(draw: st.DrawFn, mirror: Mirror) -> Events:
    """Events that `mirror` has already taken. Few nodes, few values: edges come again, some as they were."""
    events = Events()
    for _ in range(draw(st.integers(1, 6))):
        one = Events()
        known = sorted(mirror.nodes)
        kind = draw(st.sampled_from(["add", "add", "add", "remove", "node", "leave"]))
        if kind == "leave":
            one.remove_nodes(draw(st.sampled_from(known)))
            if len(known) < 4:
                continue
        elif kind == "node":
            one.add_nodes(draw(st.integers(0, NODES)))
        else:
            n = draw(st.integers(1, 8))
            ends = [draw(st.lists(st.sampled_from(known), min_size=n, max_size=n)) for _ in range(2)]
            if kind == "remove":
                one.remove_edges(*ends)
            else:
                small = st.integers(0, 3)
                width = mirror.schema.edge_dim
                rows = st.none() | arrays.arrays(np.float32, (n, width), elements=small)
                weights = st.none() | arrays.arrays(np.float32, n, elements=small)
                times = st.none() | arrays.arrays(np.float64, n, elements=st.integers(0, 8))
                one.add_edges(
                    *ends,
                    weight=draw(weights) if mirror.schema.weighted else None,
                    time=draw(times) if mirror.schema.timed else None,
                    edge_attr=draw(rows) if width else None,
                )
        mirror.apply(one)
        events = Events.concatenate([events, one])
    return events


def begin(schema: EdgeSchema, rng: np.random.Generator) -> tuple[Graph, Mirror]:
    """A graph of a few nodes, spread over blocks and far from full, and its mirror."""
    mirror = Mirror(0, schema)
    graph = mirror.make_graph(text=False)
    nodes = Events().add_nodes(np.arange(NODES))
    nodes.remove_nodes(np.setdiff1d(np.arange(NODES), rng.choice(NODES, 12, replace=False)))
    for part in (graph, mirror):
        part.apply(nodes)
    return graph, mirror


@settings(max_examples=80)
@given(st.data())
def test_edges_with_features_are_like_a_dictionary(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    graph, mirror = begin(schema, np.random.default_rng(data.draw(st.integers(0, 99))))
    for _ in range(data.draw(st.integers(1, 6))):
        before = mirror.copy()
        delta = graph.stage(events := data.draw(batches(mirror)))
        changed = delta.edge_attr()
        named = [
            mirror.key(*ends) for ends in zip(changed.source.tolist(), changed.target.tolist(), strict=True)
        ]
        zeros = np.zeros(schema.edge_dim, np.float32).tobytes()
        if len(delta.removed()) == 0:  # an id that left and came back is another node, of the same name
            assert {key: row.tobytes() for key, row in zip(named, changed.edge_attr, strict=True)} == {
                key: row.tobytes()
                for key, row in mirror.edge_features.items()
                if row.tobytes() != (before.edge_features[key].tobytes() if key in before.edges else zeros)
            }
        graph.apply(events)
        assert_graph_equals(graph, mirror)


@settings(max_examples=80)
@given(st.data())
def test_what_is_older_than_its_time_to_live_expires(data: st.DataObject) -> None:
    schema = data.draw(schemas(expires=True))
    graph, mirror = begin(schema, np.random.default_rng(data.draw(st.integers(0, 99))))
    for _ in range(data.draw(st.integers(1, 8))):
        graph.apply(data.draw(batches(mirror)))
        now = data.draw(st.integers(0, 11))
        if data.draw(st.booleans()):
            graph.expired(now)  # only asks
            continue
        old = dict(mirror.edges)
        mirror.expire(now)
        removed = set(old) - set(mirror.edges)
        events = graph.expired(now)
        assert len(events) == len(removed)
        delta = graph.expire(now)
        assert delta.num_events == len(events)
        changes = delta.edges()
        assert {
            mirror.key(*ends) for ends in zip(changes.source.tolist(), changes.target.tolist(), strict=True)
        } == removed
        assert changes.had.all()
        assert not changes.has.any()
        assert len(graph.expired(now)) == 0
        if data.draw(st.booleans()):
            graph = Graph.from_state(graph.state())
        assert_graph_equals(graph, mirror)


@settings(max_examples=30)
@given(data=st.data())
def test_a_graph_in_files_is_the_graph_in_memory(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Bit for bit, after each batch, and in what is kept."""
    schema = data.draw(schemas())
    graph, mirror = begin(schema, np.random.default_rng(data.draw(st.integers(0, 99))))
    directory = tmp_path_factory.mktemp("features")
    mapped = Graph.from_state(graph.state(), features_dir=directory)
    for _ in range(data.draw(st.integers(1, 4))):
        events = data.draw(batches(mirror))
        for one in (graph, mapped):
            one.apply(events)
        assert frozen(mapped.state()) == frozen(graph.state())
    assert_graph_equals(mapped, mirror)
    again = Graph.from_state(mapped.state())
    assert frozen(again.state()) == frozen(graph.state())
