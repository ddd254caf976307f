"""Whatever is changed in the arrays of a state: it is refused, or the graph that comes of it goes on."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from livegnn import EdgeSchema, Events, FileFormatError, Graph, InputError, Schema
from livegnn.sampling import sample_neighbors
from livegnn.types import Array, State
from mirror import frozen
from spoiling import Spoiled, says_what, spoil

LIKES, KNOWS = ("user", "likes", "item"), ("user", "knows", "user")
SCHEMAS: dict[str, tuple[EdgeSchema, EdgeSchema, bool]] = {
    "plain": (EdgeSchema(capacity=4), EdgeSchema(undirected=True, capacity=4), False),
    "texts": (EdgeSchema(weighted=True), EdgeSchema(undirected=True), True),
    "columns": (
        EdgeSchema(weighted=True, timed=True, edge_dim=2, capacity=4, time_to_live=50.0),
        EdgeSchema(weighted=True, timed=True, edge_dim=1, capacity=4, undirected=True),
        False,
    ),
    "keys": (
        EdgeSchema(duplicates="keep", edge_dim=1, capacity=4),
        EdgeSchema(duplicates="keep", weighted=True, undirected=True, capacity=4),
        False,
    ),
    "out alone": (EdgeSchema(in_neighbors=False, edge_dim=1), EdgeSchema(in_neighbors=False), False),
}


def random_batch(graph: Graph, rng: np.random.Generator) -> Events:
    """Edges and nodes that come and go, of every type, where a graph may lack what it names."""
    events, texts = Events(), graph.schema.text_ids
    new = rng.integers(10**6, 10**9, 6)
    named = {}
    for name, width in graph.schema.node_types.items():
        own = np.array([f"{name}{i}" for i in new]) if texts else new
        x = rng.standard_normal((len(new), width)) if width else None
        events.add_nodes(own, x, node_type=name)
        ids = graph.ids(name)
        if len(ids) > 4:
            # A node that this batch adds may have been there: it stays, as edges below name it.
            gone, ids = np.setdiff1d(ids[:2], own), ids[2:]
            events.remove_nodes(gone, node_type=name)
        named[name] = np.concatenate([ids, own])
    for edge_type, edges in graph.schema.edge_types.items():
        src, dst = (rng.choice(named[edge_type[end]], 12) for end in (0, 2))
        columns: dict[str, Any] = {}
        if edges.weighted:
            columns["weight"] = rng.random(12)
        if edges.timed:
            columns["time"] = rng.random(12) * 100
        if edges.edge_dim:
            columns["edge_attr"] = rng.standard_normal((12, edges.edge_dim))
        events.add_edges(src, dst, edge_type=edge_type, **columns)
        events.remove_edges(src[:4], dst[:4], edge_type=edge_type)
    return events


def go_on(graph: Graph, seed: int) -> None:
    """All that a graph is for, each once and more."""
    rng = np.random.default_rng(seed)
    for _ in range(3):
        graph.native.check()
        for edge_type, edges in graph.schema.edge_types.items():
            for direction in ("in", "out") if edges.in_neighbors else ("out",):
                ids = graph.ids(edge_type[2 if direction == "in" else 0])
                degrees = graph.degree(ids, edge_type=edge_type, direction=direction)
                lists = [graph.neighbors(id_.item(), edge_type=edge_type, direction=direction) for id_ in ids]
                assert [len(one.ids) for one in lists] == degrees.tolist()
                sample_neighbors(graph, ids, 3, edge_type=edge_type, direction=direction, seed=seed)
        for node_type in graph.schema.node_types:
            ids = graph.ids(node_type)
            assert len(np.unique(ids)) == len(ids) == graph.num_nodes(node_type)
            assert graph.contains(ids, node_type).all()
            graph.features(ids, node_type)
        graph.snapshot()
        restored = Graph.from_state(graph.state())
        batch = random_batch(graph, rng)
        graph.apply(batch)
        restored.apply(batch)
        assert frozen(restored.state()) == frozen(graph.state())
        graph.expire(60.0)


@cache
def saved(kind: str) -> State:
    likes, knows, texts = SCHEMAS[kind]
    schema = Schema({"user": 2, "item": 0}, {LIKES: likes, KNOWS: knows}, text_ids=texts)
    graph, rng = Graph(schema), np.random.default_rng(len(kind))
    for _ in range(6):
        graph.apply(random_batch(graph, rng))
    # What is free is last freed first given out: the state has some of it.
    graph.apply(Events().remove_nodes(graph.ids("user")[:3], node_type="user"))
    return graph.state()


@st.composite
def spoiled(draw: st.DrawFn, array: Array) -> Array:
    """The array with a number or some of them changed, gone, or twice."""
    flat = array.reshape(-1).copy()
    way = draw(st.sampled_from(["change", "copy", "swap", "drop", "repeat", "empty", "near"]))
    if way == "empty" or not flat.size:
        extra = np.zeros(draw(st.integers(0, 2)), array.dtype)
        return extra if array.ndim == 1 else np.zeros((len(extra), *array.shape[1:]), array.dtype)
    i, j = (draw(st.integers(0, flat.size - 1)) for _ in range(2))
    if way in ("drop", "repeat"):
        row = i % len(array)
        return np.delete(array, row, 0) if way == "drop" else np.insert(array, row, array[row], axis=0)
    if way == "swap":
        flat[[i, j]] = flat[[j, i]]
    elif way == "copy":
        flat[i] = flat[j]
    elif array.dtype.kind == "b":
        flat[i] = not flat[i]
    elif way == "near":
        flat[i] += np.array(draw(st.sampled_from([-1, 1, 2])), np.int64).astype(array.dtype)
    else:
        size = array.dtype.itemsize
        flat.view(np.uint8)[size * i : size * (i + 1)] = list(
            draw(st.binary(min_size=size, max_size=size) | st.just(b"\xff" * size))
        )
    return flat.reshape(array.shape)


@pytest.mark.parametrize("kind", SCHEMAS)
@settings(deadline=None)
@given(st.data(), st.integers(0, 1000))
def test_a_spoiled_state_is_refused_or_goes_on(kind: str, data: st.DataObject, seed: int) -> None:
    state = saved(kind)
    arrays = dict(state.arrays)
    for name in data.draw(st.lists(st.sampled_from(sorted(arrays)), min_size=1, max_size=2, unique=True)):
        arrays[name] = data.draw(spoiled(arrays[name]), label=name)
    try:
        graph = Graph.from_state(State(state.meta, arrays))
    except FileFormatError:
        return
    go_on(graph, seed)


def assert_one_graph(graph: Graph) -> None:
    """Both lists of a type hold the same edges with the same columns, and every end is a node."""
    graph.native.check()
    for edge_type, edges in graph.schema.edge_types.items():
        found = []
        for direction in ("out", "in") if edges.in_neighbors else ("out",):
            ends = {"out": (0, 2), "in": (2, 0)}[direction]
            listed = []
            for id_ in graph.ids(edge_type[ends[0]]).tolist():
                one = graph.neighbors(id_, edge_type=edge_type, direction=direction)
                assert graph.contains(one.ids, edge_type[ends[1]]).all()
                columns = [np.zeros(len(one.ids)) if column is None else column for column in one[1:]]
                for other, *values in zip(
                    one.ids.tolist(), *(column.tolist() for column in columns), strict=True
                ):
                    listed.append(
                        (*((id_, other) if direction == "out" else (other, id_)), *map(str, values))
                    )
            found.append(sorted(listed))
        assert all(one == found[0] for one in found)


def assert_accepted_as_it_is(found: Spoiled, graph: Graph, whole: State) -> None:
    """What it says is what the graph keeps: nothing was passed over; and the graph goes on from there."""
    kept = graph.state()
    if found.array is None:
        assert found.name.endswith(("/sums", "/orders")), "old states lack these"
    else:
        array = kept.arrays[found.name]
        np.testing.assert_array_equal(found.array.astype(array.dtype), array)
    assert kept.arrays.keys() == whole.arrays.keys()
    if frozen(kept) == frozen(whole):
        return  # as if it had never been spoiled
    assert_one_graph(graph)
    restored, batch = Graph.from_state(kept), random_batch(graph, np.random.default_rng(1000))
    graph.apply(batch)
    restored.apply(batch)
    assert frozen(restored.state()) == frozen(graph.state())


@pytest.mark.parametrize("kind", SCHEMAS)
def test_each_array_in_each_way(kind: str) -> None:
    """It is refused, and the error says why; or the graph is what the arrays say, and goes on."""
    state = saved(kind)
    later = Graph.from_state(state)
    later.apply(random_batch(later, np.random.default_rng(1001)))
    with np.errstate(all="ignore"):
        cases = list(spoil(state, {"a later state": later.state()}))
    refusals, wrong = 0, []
    for found in cases:
        try:
            graph = Graph.from_state(found.state)
        except FileFormatError as error:
            refusals += 1
            if not says_what(error, found.name):
                wrong.append((found.name, found.way, str(error)))
            continue
        try:
            assert_accepted_as_it_is(found, graph, state)
        except (AssertionError, FileFormatError, InputError, RuntimeError) as error:
            wrong.append((found.name, found.way, repr(error)))
    assert not wrong, wrong
    assert refusals > len(cases) / 2


@pytest.mark.parametrize("kind", SCHEMAS)
def test_a_state_that_is_whole_goes_on(kind: str) -> None:
    """With the seed of the state too, whose stream then adds nodes that are there already: for "keys" that is
    seed 4, with which edges once named a node that the same batch had removed.
    """
    state = saved(kind)
    assert len(state.arrays["nodes/user/free"]) > 1
    for seed in (0, len(kind)):
        go_on(Graph.from_state(state), seed)


def refused(state: State, name: str, array: Array, message: str) -> None:
    with pytest.raises(FileFormatError, match=f"does not fit together.*{message}"):
        Graph.from_state(State(state.meta, {**state.arrays, name: array}))


def changed(array: Array, at: object, value: float) -> Array:
    other = array.copy()
    other[at] = value
    return other


def test_what_is_free_is_zero_and_features_are_finite() -> None:
    """A node or an edge that is added without features takes a free row as it is."""
    state = saved("columns")
    for name, free in (
        ("nodes/user/x", "nodes/user/free"),
        ("edges/user/likes/item/x", "edges/user/likes/item/free_rows"),
    ):
        x, row = state.arrays[name], state.arrays[free][0]
        refused(state, name, changed(x, row, 1.0), f"{name}: expected zeros in row {row}, which is free")
        for value in (np.nan, np.inf):
            refused(state, name, changed(x, 0, value), f"{name}: expected finite numbers, got")


def test_lists_that_a_type_does_not_have_are_empty() -> None:
    for kind, edge_type in (("keys", KNOWS), ("out alone", LIKES), ("out alone", KNOWS)):
        state = saved(kind)
        prefix = f"edges/{'/'.join(edge_type)}"
        for column in ("shape", "keys", "ids", "weight", "time", "row", "sums", "orders"):
            name = f"{prefix}/in/{column}"
            assert not len(state.arrays[name])
            refused(state, name, np.zeros(1, state.arrays[name].dtype), f"{name}: expected nothing")


def test_no_array_is_passed_over() -> None:
    state = saved("columns")
    refused(state, "nodes/user/y", np.zeros(3), "nodes/user/y: expected no array of this name")
    prefix = "edges/user/knows/user/out"
    for column in ("sums", "orders"):  # they may be missing, but not be empty
        refused(
            state,
            f"{prefix}/{column}",
            state.arrays[f"{prefix}/{column}"][:0],
            f"{prefix}/{column}: .*expected",
        )
    keys = state.arrays[f"{prefix}/keys"]
    refused(state, f"{prefix}/keys", changed(keys, 0, 1), f"{prefix}/keys: expected 0 first, got 1")


def test_no_edge_is_later_than_the_latest_time() -> None:
    state = saved("columns")
    meta = {**state.meta, "latest_time": float(state.arrays["edges/user/likes/item/out/time"].max()) - 1}
    with pytest.raises(FileFormatError, match="likes/item/out/time: expected times up to the latest_time"):
        Graph.from_state(State(meta, state.arrays))
    del meta["latest_time"]  # as in old states
    assert Graph.from_state(State(meta, state.arrays)).latest_time is None


def test_free_indices_are_those_that_no_node_has() -> None:
    state = saved("plain")
    name = "nodes/user/free"
    free = state.arrays[name]
    in_use = np.flatnonzero(state.arrays["nodes/user/ids"] >= 0).astype(np.uint32)
    count = len(state.arrays["nodes/user/ids"])
    for wrong in (
        np.append(free, free[0]),
        np.append(free[:-1], free[0]),
        np.append(free, in_use[0]),
        np.append(free[:-1], in_use[-1]),
        np.append(free, np.uint32(count)),
        np.append(free[:-1], np.uint32(2**32 - 1)),
    ):
        refused(state, name, wrong, "is not there, in use, or listed twice")
    refused(state, name, free[:-1], "an index that has no id and is not free")
    refused(state, name, free.astype(np.int64) + 2**32, "uint32")


def test_ids_name_one_node_each() -> None:
    state = saved("plain")
    name = "nodes/user/ids"
    ids = state.arrays[name]
    first, second = np.flatnonzero(ids >= 0)[:2]
    twice, below = ids.copy(), ids.copy()
    twice[first], below[first] = ids[second], -7
    refused(state, name, twice, "an id that two of them have")
    refused(state, name, below, "no id can be -7")


def test_texts_name_one_node_each() -> None:
    state = saved("texts")
    lengths = state.arrays["nodes/user/text_lengths"]
    moved = lengths.copy()
    moved[-1] += 1
    refused(state, "nodes/user/text_lengths", moved, "text")
    refused(state, "nodes/user/in_use", ~np.zeros_like(state.arrays["nodes/user/in_use"]), "text")


@pytest.mark.parametrize("kind", SCHEMAS)
@pytest.mark.parametrize("edge_type", [LIKES, KNOWS])
def test_edges_end_at_nodes_and_stand_alike_in_both_lists(kind: str, edge_type: tuple[str, ...]) -> None:
    """A node without an id that an edge names; and columns of one list that the other contradicts."""
    state = saved(kind)
    prefix, edges = f"edges/{'/'.join(edge_type)}", SCHEMAS[kind][edge_type == KNOWS]
    ids = state.arrays[f"{prefix}/out/ids"]
    keyed = edges.duplicates == "keep"
    free = state.arrays["nodes/user/free"][0]
    if edge_type == KNOWS:
        wrong = ids.copy()
        wrong[0] = np.uint64(free) << np.uint64(32) if keyed else free
        with pytest.raises(FileFormatError, match="does not fit together"):
            Graph.from_state(State(state.meta, {**state.arrays, f"{prefix}/out/ids": wrong}))
    if not edges.in_neighbors:
        return
    for column in ("weight", "time", "row"):
        values = state.arrays[f"{prefix}/out/{column}"]
        if len(values) and not (column == "weight" and edges.timed):
            other = values.copy()
            other[[0, -1]] = values[[-1, 0]]
            assert (other != values).any()
            refused(state, f"{prefix}/out/{column}", other, "")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seq", -1),
        ("seq", True),
        ("seq", 2**63),
        ("num_edges", []),
        ("num_edges", [1]),
        ("num_edges", [-1, 2]),
        ("num_edges", [10**30, 2]),
        ("num_edges", [0.5, 2]),
        ("num_edges", "12"),
        ("latest_time", float("nan")),
        ("latest_time", float("inf")),
        ("latest_time", "noon"),
        ("latest_time", True),
    ],
)
def test_numbers_that_no_graph_has(name: str, value: object) -> None:
    state = saved("columns")
    with pytest.raises(FileFormatError, match=f"does not fit together.*{name}"):
        Graph.from_state(State({**state.meta, name: value}, state.arrays))
