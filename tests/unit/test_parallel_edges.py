"""Several edges between the same two nodes: refused, the last, their sum, or each by itself."""

from __future__ import annotations

import copy
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GCNConv, GraphConv, SAGEConv

from livegnn import EdgeSchema, Engine, Events, Graph, InputError, Model, ModelError
from livegnn.sampling import sample_neighbors, sample_subgraph
from livegnn.training import NodeLoader

TWICE = ([0, 0, 0, 1], [1, 1, 1, 2])


def make_pyg(**columns: object) -> Data:
    columns = {"edge_index": torch.tensor(TWICE)} | columns
    return Data(x=torch.arange(4.0).reshape(-1, 1), **columns)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Graph.from_edges(*TWICE),
        lambda: Graph.from_edges([0, 1], [1, 0], undirected=True),
        lambda: Graph.from_edges(["a", "a"], ["b", "b"]),
        lambda: Graph.from_edges([0, 0], [1, 1], weight=[1, 2], time=[1, 2]),
        lambda: Graph.from_pyg(make_pyg()),
    ],
)
def test_parallel_edges_are_refused(make):
    """An edge that is listed twice was merged without a word."""
    with pytest.raises(InputError, match=r"listed once, got .+ -> .+ of type .+ again: .+parallel='last'"):
        make()


def test_the_first_pair_is_named():
    with pytest.raises(InputError, match=r"got 7 -> 3 of type"):
        Graph.from_edges([1, 7, 7, 1], [2, 3, 3, 2])


def test_parallel_edges_of_one_type_of_several():
    data = HeteroData(a={"x": torch.zeros(3, 1)}, b={"x": torch.zeros(3, 1)})
    data["a", "to", "b"].edge_index = torch.tensor([[0, 0], [1, 1]])
    data["b", "to", "a"].edge_index = torch.tensor([[0, 0], [1, 2]])
    with pytest.raises(InputError, match=r"0 -> 1 of type \('a', 'to', 'b'\)"):
        Graph.from_pyg(data)
    graph = Graph.from_pyg(data, parallel={("a", "to", "b"): "sum"})
    assert graph.neighbors(1, edge_type=("a", "to", "b")).weight.tolist() == [2]
    assert graph.schema.edge_types["b", "to", "a"] == EdgeSchema()
    with pytest.raises(InputError, match=r"edge types of the data, .+, got \('c', 'to', 'b'\)"):
        Graph.from_pyg(data, parallel={("c", "to", "b"): "sum"})


def test_the_last_of_parallel_edges():
    graph = Graph.from_edges(*TWICE, weight=[1, 2, 3, 4], parallel="last")
    assert graph.neighbors(1).weight.tolist() == [3]
    assert graph.num_edges() == 2
    timed = Graph.from_edges(*TWICE, weight=[1, 2, 3, 4], time=[5, 9, 7, 0], parallel="last")
    assert timed.neighbors(1).weight.tolist() == [2]


@pytest.mark.parametrize("weight", [None, [1, 2, 3, 4]])
def test_the_sum_of_parallel_edges(weight):
    graph = Graph.from_edges(*TWICE, weight=weight, parallel="sum")
    total = 3 if weight is None else 6
    assert graph.neighbors(1).weight.tolist() == [total]
    graph.apply(Events().add_edges(0, 1))
    assert graph.neighbors(1).weight.tolist() == [total + 1]


def test_an_unknown_way_with_parallel_edges():
    with pytest.raises(InputError, match=r"parallel must be one of 'refuse', .+ got 'first'"):
        Graph.from_edges(*TWICE, parallel="first")


# -- kept, each by itself


def keys_of(graph: Graph, node: int) -> list[tuple[int, int, float]]:
    found = graph.neighbors(node)
    return sorted(zip(found.ids.tolist(), found.key.tolist(), found.weight.tolist(), strict=True))


def make_payments() -> Graph:
    return Graph.from_edges(*TWICE, weight=[1, 2, 3, 4], parallel="keep")


def test_each_of_parallel_edges_is_kept():
    graph = make_payments()
    assert keys_of(graph, 1) == [(0, 0, 1), (0, 1, 2), (0, 2, 3)]
    assert graph.num_edges() == 4
    assert graph.degree([1]).tolist() == [3]
    assert graph.schema.edge_types["node", "to", "node"].duplicates == "keep"


def test_pyg_sees_what_we_see():
    """Three edges 0 -> 1 were one: PyG said -1.76 and we -0.68."""
    torch.manual_seed(0)
    module = SAGEConv(1, 2, aggr="sum").eval()
    data = make_pyg()
    engine = Engine(Graph.from_pyg(data, parallel="keep"), Model.from_pyg(module))
    with torch.no_grad():
        expected = module(data.x, data.edge_index).numpy()
    assert np.abs(engine.predict(range(4)) - expected).max() < 1e-6
    assert engine.verify().ok


def test_a_key_names_an_edge():
    graph = make_payments()
    graph.apply(Events().add_edges(0, 1, weight=7, key=1).add_edges(0, 1, weight=8, key=9))
    assert keys_of(graph, 1) == [(0, 0, 1), (0, 1, 7), (0, 2, 3), (0, 9, 8)]
    graph.apply(Events().remove_edges(0, 1, key=2))
    assert keys_of(graph, 1) == [(0, 0, 1), (0, 1, 7), (0, 9, 8)]


def test_without_a_key_the_next_and_the_last_are_meant():
    graph = make_payments()
    graph.apply(Events().add_edges(0, 1, weight=5, key=7).add_edges(0, 1, weight=6))
    assert keys_of(graph, 1)[-2:] == [(0, 7, 5), (0, 8, 6)]
    graph.apply(Events().remove_edges([0, 0, 0], [1, 1, 1]))
    assert keys_of(graph, 1) == [(0, 0, 1), (0, 1, 2)]
    graph.apply(Events().remove_edges([0] * 5, [1] * 5))
    assert keys_of(graph, 1) == []


def test_after_the_greatest_key_there_is_none():
    graph = make_payments()
    graph.apply(Events().add_edges(0, 1, key=2**32 - 1))
    with pytest.raises(InputError, match="greatest of all: give a key"):
        graph.apply(Events().add_edges(0, 1))


def test_what_is_older_expires_one_by_one():
    graph = Graph.from_edges(*TWICE, weight=[1, 2, 3, 4], time=[5, 1, 9, 9], time_to_live=4, parallel="keep")
    assert len(graph.expired(6)) == 1
    graph.expire(6)
    assert keys_of(graph, 1) == [(0, 0, 1), (0, 2, 3)]


def test_a_delta_names_keys():
    graph = make_payments()
    changes = graph.apply(Events().remove_edges(0, 1, key=1).add_edges(0, 1, weight=2)).edges()
    assert changes.key.tolist() == [1, 3]
    assert changes.has.tolist() == [False, True]


@pytest.mark.parametrize("bad", [-1, 2**32, 1.5, "a"])
def test_what_is_no_key(bad):
    with pytest.raises(InputError, match=r"key must be integers from 0 to 2\^32 - 1"):
        Events().add_edges(0, 1, key=bad)


def test_keys_where_none_are_kept():
    graph = Graph.from_edges([0], [1])
    for events in (Events().add_edges(0, 1, key=3), Events().remove_edges(0, 1, key=0)):
        with pytest.raises(InputError, match=r"\('node', 'to', 'node'\) carry no keys.+duplicates='keep'"):
            graph.apply(events)


def test_keys_as_bytes_lines_and_tables():
    events = Events().add_edges([0, 1], [1, 2], key=[4, 2**32 - 1]).remove_edges(0, 1, key=0).add_edges(0, 1)
    assert Events.from_bytes(events.to_bytes()) == events
    assert Events.from_json_lines(events.to_json_lines()) == events
    rows = [
        {"event": "add_edge", "src": 0, "dst": 1, "key": 4},
        {"event": "add_edge", "src": 1, "dst": 2, "key": 2**32 - 1},
    ]
    rows += [
        {"event": "remove_edge", "src": 0, "dst": 1, "key": 0},
        {"event": "add_edge", "src": 0, "dst": 1},
    ]
    assert Events.from_arrow(pa.Table.from_pylist([{**row, "key": row.get("key")} for row in rows])) == events
    assert Events.from_records(rows) == events
    with pytest.raises(InputError, match="'key' to be an integer from 0"):
        Events.from_records([{"event": "add_edge", "src": 0, "dst": 1, "key": -1}])


def test_events_without_keys_are_written_as_before():
    version = Events().add_edges(0, 1).to_bytes()[4]
    assert (version, Events().add_edges(0, 1, key=0).to_bytes()[4]) == (1, 3)


@cache
def convolution(improved: bool) -> tuple[GCNConv, Model]:
    torch.manual_seed(0)
    module = GCNConv(2, 3, improved=improved).eval()
    return module, Model.from_pyg(module, edge_weight=True)


@pytest.mark.parametrize("dropped", [1e5, 1e9, 2.0**90])
@pytest.mark.parametrize("options", [{}, {"mode": "lazy"}, {"keep": "aggregates", "keep_degree": 1}])
@pytest.mark.parametrize("improved", [False, True])
def test_a_loop_that_counts_for_nothing_leaves_no_trace(dropped, options, improved):
    """PyG takes the last of parallel loops: the others, however heavy, are not added and taken back."""
    module, model = convolution(improved)
    x = np.array([[1.0, 2.0], [-0.5, 0.25], [3.0, -1.0]], np.float32)
    edges = [[0, 0, 1, 2], [0, 0, 0, 1]]
    graph = Graph.from_edges(*edges, weight=[dropped, 1, 1, 1], x=x, parallel="keep")
    engine = Engine(graph, model, **options)
    listed = [(*edge, w) for edge, w in zip(zip(*edges, strict=True), [dropped, 1.0, 1.0, 1.0], strict=True)]

    def check() -> None:
        source, target, weight = zip(*listed, strict=True)
        with torch.no_grad():
            expected = copy.deepcopy(module).double()(
                torch.tensor(x, dtype=torch.float64),
                torch.tensor([source, target]),
                torch.tensor(weight, dtype=torch.float64),
            )
        np.testing.assert_allclose(engine.predict([0, 1, 2]), expected, rtol=1e-5, atol=1e-6)
        assert engine.scrub() <= 1e-6

    check()
    engine.apply(Events().add_edges([0], [0], weight=[2.0]))  # the kept loop is dropped now
    listed.append((0, 0, 2.0))
    check()
    engine.apply(Events().remove_edges([0], [0], key=[0]))
    del listed[0]
    check()
    engine.apply(Events().add_edges([1, 1], [1, 1], weight=[dropped, 0.5]))
    listed += [(1, 1, dropped), (1, 1, 0.5)]
    check()
    x[1] = [5.0, -7.0]
    engine.apply(Events().set_features([1], x[1:2]))
    check()
    # What counted for nothing counts, as PyG would have it.
    engine.apply(Events().remove_edges([1], [1], key=[1]))
    del listed[-1]
    if dropped < 2.0**90:
        check()


def test_a_maximum_of_weighted_loops_is_refused():
    model = Model.from_pyg(GCNConv(1, 1, aggr="max").eval(), edge_weight=True)
    graph = Graph.from_edges(*TWICE, x=np.ones((3, 1)), weight=[1, 2, 3, 4], parallel="keep")
    with pytest.raises(ModelError, match="maximum of weighted messages with self-loops"):
        Engine(graph, model)


def test_the_share_of_each_parallel_edge():
    """Of events each by itself; of a neighbour all its edges together."""
    model = Model.from_pyg(GraphConv(1, 1, bias=False).eval(), edge_weight=True)
    graph = Graph.from_edges(*TWICE, x=[[1], [10], [100]], weight=[1, 2, 3, 4], parallel="keep")
    engine = Engine(graph, model, history=10)
    unit = engine.what_if(Events().remove_edges([0, 0], [1, 1])).predict(1) - engine.predict(1)
    unit = unit[0] / -5  # of a weight of 1 on an edge from node 0
    engine.apply(Events().add_edges(0, 1, weight=7, key=1).remove_edges(0, 1).add_edges(0, 1, weight=9))
    engine.apply(Events().remove_edges(0, 1, key=5).remove_edges(0, 1, key=0))
    found = engine.explain(1, since=0)
    assert [event.seq for event in found.events] == [1, 2, 3, 5]
    for event, moved in zip(found.events, [5, -3, 9, -1], strict=True):
        np.testing.assert_allclose(event.share, moved * unit, rtol=1e-5)
    (neighbor,) = found.neighbors
    assert neighbor.id == 0
    np.testing.assert_allclose(neighbor.share, 10 * unit, rtol=1e-5)
    np.testing.assert_allclose(found.after, engine.predict(1)[0], rtol=1e-5)
    assert engine.explain(1, since=5).neighbors == []


# -- sampled


def make_hub(count: int = 2000) -> Graph:
    """Node 0 hears from 1 and 2, many times each, with the position as weight, time and feature."""
    src, place = 1 + np.arange(count) % 2, np.arange(1.0, count + 1)
    return Graph.from_edges(
        src, np.zeros(count, int), weight=place, time=place, edge_attr=place[:, None], parallel="keep"
    )


@pytest.mark.parametrize("by", ["uniform", "weight", "latest"])
@pytest.mark.parametrize("until", [None, 700.0])
@pytest.mark.parametrize("count", [5, 1500, -1])
def test_each_parallel_edge_is_drawn_by_itself(by, until, count):
    sample = sample_neighbors(make_hub(), [0], count, by=by, until=until, seed=3)
    drawn = sample.time.astype(int)
    there = 2000 if until is None else 700
    assert len(drawn) == len(set(drawn.tolist())) == (there if count < 0 else min(count, there))
    assert drawn.max() <= there
    assert sample.weight.tolist() == sample.time.tolist()
    assert sample.ids.tolist() == (1 + (drawn - 1) % 2).tolist()
    if by == "latest":
        assert drawn.tolist() == list(range(there, there - len(drawn), -1))


def test_draws_with_replacement_are_in_proportion():
    """Over three edges with weights 1, 2 and 3 between the same nodes."""
    sample = sample_neighbors(make_payments(), [1], 60_000, by="weight", replace=True, seed=1)
    found = np.bincount(sample.weight.astype(int), minlength=4)[1:] / 60_000
    assert np.abs(found - [1 / 6, 2 / 6, 3 / 6]).max() < 0.01


def test_a_subgraph_of_everything_is_the_multigraph():
    sample = sample_subgraph(make_payments(), [2], [-1, -1])
    ends = sample.node[np.stack([sample.row, sample.col])].T.tolist()
    assert sorted(map(tuple, ends)) == [(0, 1), (0, 1), (0, 1), (1, 2)]


def test_a_loader_gives_pyg_every_parallel_edge():
    graph = Graph.from_edges(*TWICE, x=np.eye(3), edge_attr=[[1.0], [2.0], [3.0], [4.0]], parallel="keep")
    (batch,) = NodeLoader(graph, num_neighbors=[-1, -1], input_nodes=[2])
    ends = batch.n_id[batch.edge_index].T.tolist()
    assert sorted((u, v, row) for (u, v), row in zip(ends, batch.edge_attr[:, 0].tolist(), strict=True)) == [
        (0, 1, 1.0), (0, 1, 2.0), (0, 1, 3.0), (1, 2, 4.0)
    ]  # fmt: skip
