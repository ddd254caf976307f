"""Types that are left out where a graph has only one, whatever it is called."""

import ast
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.nn import GATConv, SAGEConv

import livegnn as lg
from livegnn.graph.defaults import left_out
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import Runtime
from livegnn.sampling import sample_metapath, sample_neighbors, sample_nodes, sample_subgraph
from livegnn.training import LinkLoader, LiveFeatureStore, NodeLoader

CITES = ("paper", "cites", "paper")
ENDS = (np.array([0, 1, 2, 3]), np.array([1, 2, 3, 0]))


def papers(**columns: object) -> lg.Graph:
    return lg.Graph(lg.Schema({"paper": 4}, {CITES: lg.EdgeSchema(**columns)}))  # type: ignore[arg-type]


def fill(events: lg.Events) -> lg.Events:
    return events.add_nodes(range(4), np.eye(4, dtype=np.float32)).add_edges(*ENDS)


def filled(**columns: object) -> lg.Graph:
    graph = papers(**columns)
    graph.apply(fill(lg.Events()))
    return graph


def test_every_event_does_without_types() -> None:
    graph = papers(weighted=True, timed=True)
    delta = graph.apply(fill(lg.Events()))
    assert {chunk.type for chunk in delta.events.chunks} == {"paper", CITES}
    events = lg.Events().set_features(1, [1, 1, 1, 1]).remove_edges(2, 3).remove_nodes(0)
    graph.apply(events.add_edges(3, 1, weight=2, time=3))
    assert (graph.num_nodes(), graph.num_edges()) == (3, 2)
    assert graph.features(1).tolist() == [[1, 1, 1, 1]]
    assert graph.neighbors(1).ids.tolist() == [3]
    assert graph.degree([1]).tolist() == [1]


@pytest.mark.parametrize("way", ["to_bytes", "to_json_lines"])
def test_events_without_types_can_be_kept(way: str) -> None:
    events = fill(lg.Events())
    back = lg.Events.from_bytes(events.to_bytes()) if way == "to_bytes" else None
    graph = papers()
    graph.apply(back if back is not None else lg.Events.from_json_lines(events.to_json_lines()))
    assert graph.num_edges() == 4


def test_types_are_not_guessed_where_there_are_several() -> None:
    graph = lg.Graph(lg.Schema({"user": 0, "item": 0}, {("user", "buys", "item"): lg.EdgeSchema()}))
    with pytest.raises(lg.UnknownTypeError, match="node type must be one of 'user', 'item', got none: a "):
        graph.apply(lg.Events().add_nodes(1))
    graph.apply(lg.Events().add_nodes(1, node_type="user").add_nodes(2, node_type="item").add_edges(1, 2))
    assert graph.num_edges() == 1
    with pytest.raises(lg.UnknownTypeError, match="got 'shop'"):
        graph.apply(lg.Events().add_nodes(1, node_type="shop"))


TWO = {("user", "buys", "item"): lg.EdgeSchema(), ("user", "knows", "user"): lg.EdgeSchema(undirected=True)}


@pytest.mark.parametrize("lines", [False, True])
@pytest.mark.parametrize("kind", ["add_nodes", "set_features", "remove_nodes", "add_edges", "remove_edges"])
def test_who_leaves_a_type_out_is_told_what_to_write(kind: str, lines: bool) -> None:
    """And not of a type that nobody wrote; what the message says to write is accepted."""
    graph = lg.Graph(lg.Schema({"user": 1, "item": 1}, TWO))
    graph.apply(lg.Events().add_nodes([1, 2], [[0], [0]], node_type="user"))
    graph.apply(lg.Events().add_nodes([1, 2], [[0], [0]], node_type="item"))
    rows = {"x": [[1.0]]} if kind in ("add_nodes", "set_features") else {}
    ends = ([1], [2]) if "edges" in kind else ([1],)
    events = getattr(lg.Events(), kind)(*ends, **rows)
    if lines:
        events = lg.Events.from_json_lines(events.to_json_lines())
    with pytest.raises(lg.UnknownTypeError) as refused:
        graph.apply(events)
    assert "got none: a graph of several types needs it" in str(refused.value)
    assert "'node'" not in str(refused.value)
    name, written = str(refused.value).rpartition("as in ")[2].split("=")
    graph.apply(getattr(lg.Events(), kind)(*ends, **rows, **{name: ast.literal_eval(written)}))


@pytest.mark.parametrize("read", [lambda g: g.ids(), lambda g: g.neighbors(1), lambda g: g.num_edges()])
def test_a_question_without_a_type_is_told_as_events_are(read: Callable[[lg.Graph], object]) -> None:
    graph = lg.Graph(lg.Schema({"user": 1, "item": 1}, TWO))
    with pytest.raises(lg.UnknownTypeError, match="got none: a graph of several types needs it, as in"):
        read(graph)


def test_names_that_are_there_stand_for_themselves() -> None:
    assert left_out(lg.Schema()) == {}
    assert left_out(lg.Schema({"node": 0}, {("node", "cites", "node"): lg.EdgeSchema()})) == {
        ("node", "to", "node"): ("node", "cites", "node")
    }


@pytest.mark.parametrize("conv", [SAGEConv, GATConv])
@pytest.mark.parametrize("mode", ["eager", "lazy"])
def test_a_model_without_types_runs_on_the_only_ones(conv: type, mode: str) -> None:
    torch.manual_seed(0)
    module = conv(4, 3).eval()
    model, named = lg.Model.from_pyg(module), lg.Model.from_pyg(module, node_type="paper", edge_type=CITES)
    graph, other = filled(), filled()
    engine, expected = lg.Engine(graph, model, mode=mode, history=10), lg.Engine(other, named, mode=mode)
    for one in (engine, expected):
        one.apply(lg.Events().add_edges(0, 2).set_features(3, [5, 0, 0, 0]))
    assert engine.predict(range(4)).tobytes() == expected.predict(range(4)).tobytes()
    assert engine.verify().ok
    assert engine.what_if(lg.Events().remove_edges(0, 2)).changed.tolist() == [2]
    assert engine.explain(2, since=graph.seq - 2).events
    again = lg.Engine(graph, model, state=engine.state())
    assert again.predict([0]).tobytes() == engine.predict([0]).tobytes()


def test_a_model_along_features_of_edges_takes_the_only_type_too() -> None:
    module = GATConv(4, 3, edge_dim=2).eval()
    graph = papers(edge_dim=2)
    events = lg.Events().add_nodes(range(4), np.eye(4, dtype=np.float32))
    graph.apply(events.add_edges(*ENDS, edge_attr=np.ones((4, 2))))
    assert lg.Engine(graph, lg.Model.from_pyg(module)).verify().ok


def test_a_runtime_logs_the_types_that_are_meant(tmp_path: Path) -> None:
    graph = papers()
    log = SqliteLog(tmp_path / "log.db")
    runtime = Runtime(log, graph, lg.Engine(graph, lg.Model.from_pyg(SAGEConv(4, 3))))
    runtime.append(fill(lg.Events()))
    with pytest.raises(lg.InputError, match="expected Events, got list"):
        runtime.append([(1, 2)])  # type: ignore[arg-type]
    runtime.step()
    assert graph.num_edges() == 4
    entries = log.entries(0, max_events=100)
    assert {chunk.type for entry in entries for chunk in entry.events.chunks} == {"paper", CITES}


def test_samples_do_without_types() -> None:
    graph = filled(timed=True, weighted=True)
    assert sample_nodes(graph, 2, seed=1).shape == (2,)
    assert sample_neighbors(graph, [1], 1).ids.tolist() == [0]
    assert sample_subgraph(graph, [1], [2]).num_sampled_nodes == [1, 1]
    assert sample_metapath(graph, [1], [(CITES, 1)]).num_sampled_nodes["paper"] == [1, 1]


def test_loaders_do_without_types() -> None:
    graph = filled()
    features = LiveFeatureStore(graph)
    features.put_tensor(torch.arange(4), group_name=None, attr_name="y", index=None)
    batch = next(iter(NodeLoader(graph, [2], batch_size=4, features=features)))
    assert batch.x.shape == (4, 4)
    assert batch.y.tolist() == [0, 1, 2, 3]
    links = next(iter(LinkLoader(graph, [2], batch_size=4)))
    assert links.edge_label_index.shape == (2, 4)
