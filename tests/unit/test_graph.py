"""The graph: made from arrays and from PyG, changed by batches, read in every way, kept bit for bit."""

from __future__ import annotations

import itertools
import json
import re
import sys
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData

from gate import EXPLORING
from livegnn import (
    EdgeSchema,
    Events,
    FileFormatError,
    Graph,
    InputError,
    Schema,
    UnknownNodeError,
    UnknownTypeError,
    _core,
)
from livegnn.types import DEFAULT_EDGE_TYPE, State
from mirror import Mirror, assert_graph_equals, frozen

X = np.arange(12, dtype=np.float32).reshape(4, 3)
BUYS, KNOWS = ("user", "buys", "item"), ("user", "knows", "user")


def edges_of(graph: Graph, edge_type=DEFAULT_EDGE_TYPE) -> dict[tuple[object, object], float]:
    """Every edge in the direction of its message, by the ids of its ends, with its weight."""
    snapshot = graph.snapshot()
    source, target = snapshot.edge_index[edge_type]
    sources, targets = snapshot.ids[edge_type[0]][source], snapshot.ids[edge_type[2]][target]
    pairs = list(zip(sources.tolist(), targets.tolist(), strict=True))
    assert len(pairs) == len(set(pairs))
    return dict(zip(pairs, snapshot.weight[edge_type].tolist(), strict=True))


def make_shop() -> Graph:
    """Users who know each other and buy items."""
    graph = Graph(
        Schema(
            {"user": 2, "item": 3},
            {
                BUYS: EdgeSchema(weighted=True, timed=True, duplicates="add"),
                KNOWS: EdgeSchema(undirected=True),
            },
        )
    )
    graph.apply(
        Events()
        .add_nodes([1, 2, 3], np.eye(3, 2), node_type="user")
        .add_nodes([1, 20], X[:2], node_type="item")
        .add_edges([1, 1, 2], [1, 20, 20], weight=[5, 6, 7], time=[1, 2, 3], edge_type=BUYS)
        .add_edges([1, 2], [2, 3], edge_type=KNOWS)
    )
    return graph


# -- making one


def test_from_edges_with_features():
    graph = Graph.from_edges([0, 1, 3], [1, 2, 3], x=X)
    assert (graph.num_nodes(), graph.num_edges(), graph.seq) == (4, 3, 0)
    assert edges_of(graph) == {(0, 1): 1.0, (1, 2): 1.0, (3, 3): 1.0}
    np.testing.assert_array_equal(graph.features([2, 0]), X[[2, 0]])
    assert graph.neighbors(1).weight is None
    assert graph.neighbors(1).time is None


def _whole(values: list[int]) -> list[object]:
    return [values, np.array(values, np.int32), np.array(values, np.uint64), np.array(values, object)]


def _text(values: list[int]) -> list[object]:
    texts = [f"n{value}" for value in values]
    return [texts, np.array(texts), np.array(texts, object)]


@pytest.mark.parametrize("rows", ["x", "num_nodes", None])
@pytest.mark.parametrize("named", ["whole", "text", None])
@pytest.mark.parametrize(("source", "target"), [*itertools.product(["whole", "text"], repeat=2)])
def test_from_edges_takes_ids_of_one_kind_in_any_form(
    source: str, target: str, named: str | None, rows: str | None
) -> None:
    make = {"whole": _whole, "text": _text}
    given = {"x": {"x": X[:3]}, "num_nodes": {"num_nodes": 3}, None: {}}[rows]
    forms = [make[source]([0, 1]), make[target]([1, 2]), [None] if named is None else make[named]([0, 1, 2])]
    fits = {source, target, named or source} == {source}
    for at in range(max(map(len, forms))):  # each form of each, not each combination
        src, dst, ids = (form[at % len(form)] for form in forms)
        if fits and (named or source == "whole" or rows is None):
            graph = Graph.from_edges(src, dst, ids=ids, **given)
            assert graph.ids().tolist() == ([0, 1, 2] if source == "whole" else ["n0", "n1", "n2"])
            assert graph.num_edges() == 2
            assert graph.degree(make[source]([0, 1, 2])[at % 3], direction="out").tolist() == [1, 1, 0]
            continue
        with pytest.raises(InputError) as refused:
            Graph.from_edges(src, dst, ids=ids, **given)
        if fits:
            assert "ids must name the 3 nodes, since the ends of the edges are text" in str(refused.value)
            continue
        assert "src, dst and ids must all be integers or all text" in str(refused.value)
        numbers = [n for n, kind in (("src", source), ("dst", target), ("ids", named)) if kind == "whole"]
        for name in re.findall(r"(\w+)\.astype\(str\)", str(refused.value)):
            numbers.remove(name)  # what it says to change is each that is not text
        assert not numbers


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([1, True], "ids must be integers below 2^63 or text, got bool, as in True"),
        ([1, None], "ids must be integers below 2^63 or text, got NoneType, as in None"),
        ([1, 1.5], "ids must be integers below 2^63 or text, got float64"),
        (["a", None], "ids must be all integers or all text, got a mixture of text and NoneType"),
        ([1, "a"], "ids must be all integers or all text, got a mixture of text and int"),
        ([1, 2**63], "ids must be ids from 0 to 2^63 - 1, got 9223372036854775808"),
        ([1, 2**64], f"ids must be integers below 2^63 or text, got int, as in {2**64}"),
        ([1, -1], "ids must be ids from 0 to 2^63 - 1, got -1 at position 1"),
    ],
)
def test_objects_that_are_no_ids_are_named(ids: list[object], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        Graph.from_edges([], [], ids=np.array(ids, object))


def test_columns_of_objects_are_numbers_where_all_of_them_are() -> None:
    columns = {
        "weight": np.array([0.5, np.float32(2)], object),
        "time": np.array([1, np.int64(2)], object),
        "edge_attr": np.array([[1], [2.5]], object),
        "x": X[:3].astype(object),
    }
    graph = Graph.from_edges([0, 1], [1, 2], **columns)
    plain = {name: column.astype(float) for name, column in columns.items()}
    assert frozen(graph.state()) == frozen(Graph.from_edges([0, 1], [1, 2], **plain).state())
    for name, column in columns.items():
        column.ravel()[-1] = None
        with pytest.raises(InputError, match=f"{name} must be numbers, got"):
            Graph.from_edges([0, 1], [1, 2], **columns)
        column.ravel()[-1] = 1.0


def test_from_edges_with_ids_weights_and_times():
    graph = Graph.from_edges(
        ["b", "a"], ["c", "c"], ids=["a", "b", "c"], x=X[:3], weight=[0.5, 2], time=[7, 1e12], undirected=True
    )
    assert graph.schema.text_ids
    assert graph.ids().tolist() == ["a", "b", "c"]
    assert edges_of(graph) == {("b", "c"): 0.5, ("c", "b"): 0.5, ("a", "c"): 2.0, ("c", "a"): 2.0}
    found = graph.neighbors("c")
    assert dict(zip(found.ids.tolist(), found.time.tolist(), strict=True)) == {"a": 1e12, "b": 7.0}
    assert graph.num_edges() == 2


def test_without_features_the_nodes_are_those_of_the_edges():
    graph = Graph.from_edges([900, 5], [5, 70])
    assert sorted(graph.ids().tolist()) == [5, 70, 900]
    assert graph.features([5]).shape == (1, 0)
    assert Graph.from_edges([0], [1], num_nodes=5).num_nodes() == 5
    assert Graph.from_edges([], [], num_nodes=0).num_nodes() == 0


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"x": X[0]}, InputError, r"\(nodes, channels\), got \(3,\)"),
        ({"x": X, "ids": [1, 2]}, InputError, "each of the 2 nodes, got 4 rows"),
        ({"x": X, "num_nodes": 3}, InputError, "each of the 3 nodes, got 4 rows"),
        ({"ids": [0, 1, 2], "num_nodes": 2}, InputError, "number of ids, 3, got 2"),
        ({"x": X[:1]}, UnknownNodeError, "got 1"),
        ({"ids": [0, 5]}, UnknownNodeError, "got 1"),
        ({"x": X, "weight": [1, 2]}, InputError, "each of the 1 edges"),
        ({"x": X, "weight": [np.nan]}, InputError, "got nan for the edge 0 -> 1"),
        ({"x": np.full((4, 3), np.inf)}, InputError, "finite, got"),
        ({"ids": ["a", "b"]}, InputError, "ids are text, got int64"),
        ({"ids": [0, -1]}, InputError, "-1"),
        ({"ids": [0, 6, 1, 6, 0]}, InputError, "each node once, got 6 again at position 3"),
        ({"ids": [0, 1, 0], "x": X[:3]}, InputError, "each node once, got 0 again at position 2"),
        ({"ids": ["a", "b", "a"]}, InputError, "each node once, got 'a' again at position 2"),
        ({"ids": [[0, 1]]}, InputError, "ids must have one dimension"),
        ({"num_nodes": -1}, InputError, "num_nodes must be an integer of at least 0, got -1"),
        ({"num_nodes": 2.0}, InputError, "num_nodes must be an integer of at least 0, got 2.0"),
        ({"num_nodes": "2"}, InputError, "num_nodes must be an integer of at least 0, got '2'"),
        ({"undirected": "no"}, InputError, "undirected must be True or False, got 'no'"),
        ({"undirected": 1}, InputError, "undirected must be True or False, got 1"),
        (
            {"features_dir": 5},
            InputError,
            "features_dir must be a path, as text or a pathlib.Path, got 5",
        ),
    ],
)
def test_arrays_that_do_not_fit_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        Graph.from_edges([0], [1], **arguments)


def test_ends_that_are_no_lists_of_ids():
    assert Graph.from_edges(0, 1).num_edges() == 1
    for ends in ([{0}, {1}], [[[0], [1, 2]], [1, 2]], [[0.5], [1]]):
        with pytest.raises(InputError, match="src must be"):
            Graph.from_edges(*ends)


def test_switches_may_be_numpys():
    """They come from a comparison of arrays; what is kept can be written as JSON."""
    graph = Graph.from_edges([0], [1], undirected=np.bool_(True))
    assert Schema.from_json(json.loads(json.dumps(graph.schema.to_json()))) == graph.schema


def test_from_pyg_data():
    data = Data(x=torch.from_numpy(X), edge_index=torch.tensor([[0, 1, 3], [1, 2, 3]]))
    graph = Graph.from_pyg(data)
    assert edges_of(graph) == edges_of(Graph.from_edges([0, 1, 3], [1, 2, 3], x=X))
    np.testing.assert_array_equal(graph.features(graph.ids()), X)
    data.edge_weight = torch.tensor([0.5, 1.5, 2.5])
    data.time = torch.tensor([3, 2, 1])
    graph = Graph.from_pyg(data)
    assert edges_of(graph) == {(0, 1): 0.5, (1, 2): 1.5, (3, 3): 2.5}
    assert graph.neighbors(3).time.tolist() == [1.0]
    without = Graph.from_pyg(Data(edge_index=torch.tensor([[0], [1]]), num_nodes=3))
    assert (without.num_nodes(), without.schema.node_types) == (3, {"node": 0})


def test_from_pyg_heterogeneous_data():
    data = HeteroData()
    data["user"].x = torch.ones(3, 2)
    data["item"].x = torch.from_numpy(X[:2])
    data[BUYS].edge_index = torch.tensor([[0, 2], [1, 0]])
    data[BUYS].edge_weight = torch.tensor([5.0, 6.0])
    data[KNOWS].edge_index = torch.tensor([[0], [1]])
    graph = Graph.from_pyg(data)
    assert graph.schema.node_types == {"user": 2, "item": 3}
    assert edges_of(graph, BUYS) == {(0, 1): 5.0, (2, 0): 6.0}
    assert edges_of(graph, KNOWS) == {(0, 1): 1.0}
    np.testing.assert_array_equal(graph.features([1], "item"), X[1:2])


# -- several types


def test_ids_belong_to_their_node_type():
    graph = make_shop()
    assert (graph.num_nodes("user"), graph.num_nodes("item")) == (3, 2)
    assert graph.contains([1, 2, 20], "item").tolist() == [True, False, True]
    assert graph.neighbors(20, edge_type=BUYS).ids.tolist() == [1, 2]
    assert graph.neighbors(1, edge_type=BUYS, direction="out").ids.tolist() == [1, 20]
    assert graph.degree([1, 20], edge_type=BUYS).tolist() == [1, 2]
    assert graph.degree([1, 2, 3], edge_type=BUYS, direction="out").tolist() == [2, 1, 0]
    assert graph.neighbors(2, edge_type=KNOWS).ids.tolist() == [1, 3]


def test_a_node_leaves_with_its_edges_of_every_type():
    graph = make_shop()
    delta = graph.apply(Events().remove_nodes(1, node_type="user"))
    assert delta.removed("user").tolist() == [1]
    assert delta.num_edge_changes(BUYS) == 2
    assert delta.num_edge_changes(KNOWS) == 1
    assert edges_of(graph, BUYS) == {(2, 20): 7.0}
    assert edges_of(graph, KNOWS) == {(2, 3): 1.0, (3, 2): 1.0}
    assert graph.contains([1], "item").tolist() == [True]
    graph.apply(Events().remove_nodes(20, node_type="item"))
    assert edges_of(graph, BUYS) == {}
    graph.native.check()


def test_a_type_must_be_named_where_there_are_several():
    graph = make_shop()
    for ask in (
        graph.num_nodes,
        graph.num_edges,
        graph.ids,
        lambda: graph.features([1]),
        lambda: graph.degree([1]),
    ):
        with pytest.raises(
            UnknownTypeError, match=r"must be one of .*'user'.*got none: .* as in (node|edge)_type="
        ):
            ask()
    with pytest.raises(UnknownTypeError, match="'shop'"):
        graph.num_nodes("shop")
    with pytest.raises(UnknownTypeError, match=r"edge type must be one of .*got \['user'"):
        graph.num_edges(list(KNOWS))
    with pytest.raises(InputError, match="'in' or 'out', got 'both'"):
        graph.degree([1], edge_type=KNOWS, direction="both")


def test_schemas_that_make_no_sense_are_refused():
    for make, error, message in [
        (lambda: EdgeSchema(duplicates="drop"), InputError, "'replace', 'add' or 'keep', got 'drop'"),
        (lambda: EdgeSchema(duplicates="add"), InputError, "needs weighted=True"),
        (lambda: EdgeSchema(undirected="no"), InputError, "undirected must be True or False, got 'no'"),
        (lambda: EdgeSchema(weighted=1), InputError, "weighted must be True or False, got 1"),
        (lambda: EdgeSchema(timed=None), InputError, "timed must be True or False, got None"),
        (lambda: EdgeSchema(in_neighbors=""), InputError, "in_neighbors must be True or False, got ''"),
        (lambda: EdgeSchema(capacity="64"), InputError, "capacity must be an integer from 4 to 1024"),
        (lambda: EdgeSchema(capacity=8.5), InputError, "capacity must be an integer from 4 to 1024"),
        (lambda: EdgeSchema(capacity=8, slack=3), InputError, "slack, .*capacity 8,.*from 0 to 2, got 3"),
        (lambda: Schema(text_ids="no"), InputError, "text_ids must be True or False, got 'no'"),
        (lambda: Schema(["user"]), InputError, r"node_types must be a dict .*, got \['user'\]"),
        (lambda: Schema({"node": True}), InputError, "at least 0, got True"),
        (
            lambda: Schema({"user": 1}, {("a", "b"): EdgeSchema()}),
            InputError,
            r"relation, .*got \('a', 'b'\)",
        ),
        (lambda: Schema({"user": 1}, {KNOWS: {}}), InputError, "must have an EdgeSchema, got {}"),
        (lambda: Graph("user"), InputError, "expected a Schema, got str: Graph.from_edges makes"),
        (lambda: Schema({}), InputError, "at least one node type"),
        (lambda: Schema({"node": -1}), InputError, "at least 0, got -1"),
        (lambda: Schema({"user": 1}, {BUYS: EdgeSchema()}), UnknownTypeError, "'item'"),
        (
            lambda: Schema({"user": 1, "item": 1}, {BUYS: EdgeSchema(undirected=True)}),
            InputError,
            "cannot be undirected",
        ),
    ]:
        with pytest.raises(error, match=message):
            make()


# -- changing it


def test_a_delta_is_the_net_effect():
    graph = Graph.from_edges([0, 1, 2], [1, 2, 3], x=X, weight=[1, 2, 3])
    events = (
        Events()
        .add_edges([0, 0], [1, 3], weight=[1, 9])  # the first is as it was
        .add_edges(1, 2, weight=5)
        .remove_edges([2, 0], [3, 3])
        .add_edges([3, 3], [0, 0], weight=[4, 6])
        .add_nodes([10, 11], X[:2])
        .remove_nodes(10)
        .add_edges(11, 0, weight=7)
    )
    delta = graph.apply(events)
    assert delta.num_events == len(events) == 11
    assert delta.seq == graph.seq == 11
    assert delta.added().tolist() == [11]
    assert delta.removed().tolist() == []
    changes = delta.edges()
    rows = zip(*(column.tolist() for column in changes[:6]), strict=True)
    found = {
        (s, t): (had, has, old if had else None, new if has else None) for s, t, had, has, old, new in rows
    }
    assert found == {
        (1, 2): (True, True, 2.0, 5.0),
        (2, 3): (True, False, 3.0, None),
        (3, 0): (False, True, None, 6.0),
        (11, 0): (False, True, None, 7.0),
    }
    assert delta.num_edge_changes() == 4


def test_a_staged_batch_tells_what_it_would_do_and_does_nothing():
    graph = Graph.from_edges([0, 1], [1, 2], x=X)
    before = frozen(graph.state())
    delta = graph.stage(Events().add_nodes(9, X[0]).add_edges(9, 1).remove_nodes(2))
    assert delta.seq == 3
    assert delta.added().tolist() == [9]
    assert delta.removed().tolist() == [2]
    changes = delta.edges()
    assert sorted(zip(changes.source.tolist(), changes.target.tolist(), strict=True)) == [(1, 2), (9, 1)]
    assert frozen(graph.state()) == before


def test_events_that_change_nothing():
    graph = Graph.from_edges([0, 1], [1, 2], x=X, undirected=True)
    before = frozen(graph.state())
    delta = graph.apply(
        Events()
        .remove_edges([0, 3], [2, 3])
        .add_edges([1, 2], [0, 1])
        .add_nodes([1, 2])
        .set_features(3, X[3]),
        seq=0,
    )
    assert delta.num_edge_changes() == 0
    assert (delta.added().size, delta.removed().size) == (0, 0)
    assert frozen(graph.state()) == before


def test_times_decide_what_is_latest():
    graph = Graph.from_edges([0], [1], x=X, weight=[1], time=[10])
    graph.apply(Events().add_edges(0, 1, weight=2, time=9).add_edges(0, 1, weight=3))  # older, and of time 0
    assert edges_of(graph) == {(0, 1): 1.0}
    graph.apply(Events().add_edges(0, 1, weight=4, time=10))  # as old: the later of two in the log counts
    assert edges_of(graph) == {(0, 1): 4.0}
    graph.apply(Events().add_edges(0, 1, weight=4, time=12))  # the same weight at a later time
    assert graph.neighbors(1).time.tolist() == [12.0]
    graph.apply(Events().remove_edges(0, 1).add_edges(0, 1, weight=6, time=1))  # it was gone
    assert edges_of(graph) == {(0, 1): 6.0}


def test_added_weights_count_late_or_not():
    graph = make_shop()
    graph.apply(Events().add_edges([1, 1], [1, 1], weight=[10, -1], time=[9, 0], edge_type=BUYS))
    found = graph.neighbors(1, edge_type=BUYS)
    assert (found.weight.tolist(), found.time.tolist()) == ([14.0], [9.0])
    graph.apply(Events().remove_edges(1, 1, edge_type=BUYS).add_edges(1, 1, weight=2, edge_type=BUYS))
    assert graph.neighbors(1, edge_type=BUYS).weight.tolist() == [2.0]


@pytest.mark.parametrize(
    ("columns", "undirected"),
    [
        (columns, bool(j))
        for i, columns in enumerate(["", "weight", "weight time", "time"])
        for j in range(2)
        if EXPLORING or (i + j) % 2 == 0
    ],
)
def test_hubs_grow_and_shrink_like_dictionaries(rng, undirected, columns):
    """Thousands of neighbours at a node, so that its samtree grows several levels and falls again."""
    mirror = Mirror(
        1, schema := EdgeSchema(undirected=undirected, weighted="weight" in columns, timed="time" in columns)
    )
    assert mirror.schema == schema
    graph = mirror.make_graph(text=False)
    nodes = rng.choice(10**6, 3000, replace=False)
    hubs = nodes[:2]

    def apply(events: Events) -> None:
        graph.apply(events)
        mirror.apply(events)
        graph.native.check()

    def some_edges(count: int) -> tuple[np.ndarray, np.ndarray]:
        ends = rng.choice(hubs, count), rng.choice(nodes, count)
        turned = rng.random(count) < 0.5
        return np.where(turned, *ends), np.where(turned, *ends[::-1])

    def weights(count: int) -> dict[str, np.ndarray]:
        given = {"weight": rng.random(count).astype(np.float32), "time": rng.random(count)}
        return {column: given[column] for column in columns.split()}

    apply(Events().add_nodes(nodes, rng.random((len(nodes), 1))))
    for _ in range(4):
        apply(Events().add_edges(*some_edges(3000), **weights(3000)))
        apply(Events().remove_edges(*some_edges(1000)).add_edges(*some_edges(5), **weights(5)))
    for _ in range(3):
        apply(Events().remove_edges(*some_edges(4000)))
        apply(Events().remove_nodes(rng.choice(np.setdiff1d(list(mirror.nodes), hubs), 300, replace=False)))
        nodes = np.array(list(mirror.nodes))
    assert_graph_equals(graph, mirror)
    apply(Events().remove_nodes(hubs))
    assert_graph_equals(graph, mirror)


# -- reading it


def test_an_unknown_node_is_named():
    graph = Graph.from_edges([0, 1], [1, 2], x=X)
    for ask in (graph.features, graph.degree, graph.neighbors):
        with pytest.raises(UnknownNodeError, match="id of a node of type 'node', got 17"):
            ask(17)
    with pytest.raises(InputError, match="integers, got <U1"):
        graph.features(["a"])
    assert graph.contains([0, 17]).tolist() == [True, False]


def test_ids_at_the_limits():
    big = 2**63 - 1
    graph = Graph.from_edges([big], [0], ids=[big, 0])
    assert edges_of(graph) == {(big, 0): 1.0}
    texts = ["", "a", "\u00fc\u00df\u4e2d\U0001f600", "x" * 1000]
    graph = Graph.from_edges(texts[:2], texts[2:], ids=texts)
    assert graph.ids().tolist() == texts
    assert edges_of(graph) == {("", texts[2]): 1.0, ("a", texts[3]): 1.0}


def test_a_snapshot_is_not_the_graph():
    graph = Graph.from_edges([0, 1], [1, 2], x=X)
    snapshot = graph.snapshot()
    snapshot.x["node"][:] = -1
    snapshot.edge_index[DEFAULT_EDGE_TYPE][:] = 0
    graph.apply(Events().remove_nodes(1))
    np.testing.assert_array_equal(graph.features([0, 2]), X[[0, 2]])
    assert len(snapshot.ids["node"]) == 4


def test_what_was_given_is_not_kept_by_reference():
    x, weight = X.copy(), np.ones(2, dtype=np.float32)
    graph = Graph.from_edges([0, 1], [1, 2], x=x, weight=weight)
    x[:], weight[:] = -1, -1
    np.testing.assert_array_equal(graph.features(graph.ids()), X)
    assert set(edges_of(graph).values()) == {1.0}


def test_memory_has_a_part_for_each_type():
    graph = make_shop()
    memory = graph.memory()
    assert set(memory) == {
        "ids of user",
        "features of user",
        "ids of item",
        "features of item",
        "edges of user,buys,item",
        "edges of user,knows,user",
        "batches of user,buys,item",
        "batches of user,knows,user",
        "changes of batches",
    }
    graph.apply(Events().add_nodes(np.arange(100, 5100), node_type="user"))
    assert graph.memory()["features of user"] >= memory["features of user"] + 5000 * 2 * 4


def test_readers_see_whole_batches_only():
    """A triangle turns back and forth: a reader never sees both directions, or none."""
    graph = Graph.from_edges([0, 1, 2], [1, 2, 0], x=X)
    forth, back = ([0, 1, 2], [1, 2, 0]), ([1, 2, 0], [0, 1, 2])
    started, ended = threading.Barrier(2), threading.Event()
    seen = set()

    def read() -> None:
        started.wait()
        while not ended.is_set():
            seen.add((frozenset(edges_of(graph)), graph.num_edges()))

    reader = threading.Thread(target=read)
    reader.start()
    started.wait()
    for _ in range(300):
        graph.apply(Events().remove_edges(*forth).add_edges(*back))
        graph.apply(Events().remove_edges(*back).add_edges(*forth))
    ended.set()
    reader.join()
    assert seen <= {(frozenset(zip(*pairs, strict=True)), 3) for pairs in (forth, back)}


# -- keeping it


def make_texts() -> Graph:
    graph = Graph.from_edges(["a", "b"], ["b", "\u00e4\u00e4"], ids=["a", "b", "\u00e4\u00e4"], weight=[1, 2])
    graph.apply(Events().remove_nodes("a").add_nodes(["d", "e"]).remove_nodes("d"))
    return graph


def make_large() -> Graph:
    rng = np.random.default_rng(1)
    src = np.where(rng.random(20_000) < 0.3, 0, rng.integers(0, 4000, 20_000))
    graph = Graph.from_edges(
        src, rng.integers(0, 4000, 20_000), x=rng.random((4000, 5)), time=rng.random(20_000), parallel="last"
    )
    graph.apply(Events().remove_nodes(np.arange(100, 200)).add_nodes([10**12, 7 * 10**12]))
    return graph


@pytest.mark.parametrize(
    "make", [make_shop, make_texts, make_large, lambda: Graph.from_edges([], [], num_nodes=0)]
)
def test_a_state_restores_every_bit(make):
    graph = make()
    state = graph.state()
    restored = Graph.from_state(state)
    assert frozen(restored.state()) == frozen(state)
    assert restored.seq == graph.seq
    restored.native.check()
    for node_type in graph.schema.node_types:
        assert restored.ids(node_type).tolist() == graph.ids(node_type).tolist()
    for edge_type in graph.schema.edge_types:
        assert edges_of(restored, edge_type) == edges_of(graph, edge_type)


def test_a_restored_graph_goes_on_as_the_other_would():
    graph, rng = make_large(), np.random.default_rng(2)
    restored = Graph.from_state(graph.state())
    for turn in range(5):
        ids = rng.choice(graph.ids(), (2, 500))
        events = Events().add_edges(*ids, time=rng.random(500)).remove_nodes(np.unique(ids[0, :20]))
        events.add_nodes(np.arange(8000 + 50 * turn, 8050 + 50 * turn), rng.random((50, 5)))
        graph.apply(events)
        restored.apply(events)
    assert frozen(restored.state()) == frozen(graph.state())


def test_a_state_that_does_not_fit_is_refused():
    state = make_shop().state()
    for name in state.arrays:
        if state.arrays[name].size:
            arrays = {key: value for key, value in state.arrays.items() if key != name}
            with pytest.raises(FileFormatError, match="does not fit together"):
                Graph.from_state(State(state.meta, arrays))
    shorter = {"nodes/user/x", "edges/user/buys/item/out/ids", "edges/user/buys/item/in/weight"}
    for name in shorter:
        arrays = {**state.arrays, name: state.arrays[name][:-1]}
        with pytest.raises(FileFormatError, match="does not fit together"):
            Graph.from_state(State(state.meta, arrays))
    with pytest.raises(FileFormatError, match="expected the state of a graph, got 'engine'"):
        Graph.from_state(State({**state.meta, "kind": "engine"}, state.arrays))
    with pytest.raises(FileFormatError, match="schema"):
        Graph.from_state(State({**state.meta, "schema": {"node_types": 3}}, state.arrays))
    with pytest.raises(FileFormatError, match="seq"):
        Graph.from_state(State({**state.meta, "seq": None}, state.arrays))


@pytest.mark.parametrize("text", [False, True])
def test_other_threads_of_python_go_on_while_a_large_batch_is_read_and_a_state_is_taken(text: bool) -> None:
    beats, ended = 0, threading.Event()

    def beat() -> None:
        nonlocal beats
        while not ended.is_set():
            beats += 1
            time.sleep(0)  # lets others have the interpreter

    nodes = np.arange(50_000)
    ids = nodes.astype(np.str_) if text else nodes
    rng = np.random.default_rng(0)
    ends = ids[rng.integers(0, len(ids), (2, 300_000))]
    graph = Graph(Schema(text_ids=text))
    graph.apply(Events().add_nodes(ids))
    graph.apply(Events().add_edges(ends[0], ends[1]))
    numbers = [graph.node_ids.intern(column) for column in ends]
    stage = _core.Stage(graph.native, False)
    calls: dict[str, Callable[[], object]] = {
        "add_edges": lambda: stage.add_edges(0, *numbers, None, None, None, None),
        "save_edges": lambda: graph.native.save_edges(0),
        "save_nodes": lambda: graph.native.save_nodes(0),
    }
    if graph.node_ids.texts is not None:
        texts = graph.node_ids.texts
        points = np.ascontiguousarray(ends[0]).view(np.uint32).reshape(len(ends[0]), -1)
        calls = {"intern": lambda: texts.intern(points), "encode": lambda: texts.encode(numbers[0])} | calls
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)  # so that this thread lets the interpreter go only where it wants to
    other = threading.Thread(target=beat)
    other.start()
    try:
        for name, call in calls.items():
            before = beats
            for _ in range(10_000):  # another process may have kept it from the processor
                call()
                if beats > before:
                    break
            assert beats > before, name
    finally:
        ended.set()
        sys.setswitchinterval(interval)
        other.join()
