"""Whatever is changed in the arrays of a state: it is refused, or the graph that comes of it goes on."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from livegnn import EdgeSchema, Events, FileFormatError, Graph, Schema
from livegnn.sampling import sample_neighbors
from livegnn.types import Array, State
from mirror import frozen

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
            gone, ids = ids[:2], ids[2:]
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


@pytest.mark.parametrize("kind", SCHEMAS)
def test_a_state_that_is_whole_goes_on(kind: str) -> None:
    state = saved(kind)
    assert len(state.arrays["nodes/user/free"]) > 1
    go_on(Graph.from_state(state), 0)


def refused(state: State, name: str, array: Array, message: str) -> None:
    with pytest.raises(FileFormatError, match=f"does not fit together.*{message}"):
        Graph.from_state(State(state.meta, {**state.arrays, name: array}))


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
