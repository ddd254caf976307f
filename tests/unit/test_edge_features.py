"""Features of edges: where they come from, who asks for them, what is kept; files that hold features."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData

from livegnn import (
    EdgeSchema,
    Events,
    FileFormatError,
    Graph,
    InputError,
    Schema,
    UnknownEdgeError,
    UnknownNodeError,
)
from livegnn.graph import View
from livegnn.types import DEFAULT_EDGE_TYPE, State
from mirror import Mirror, assert_graph_equals, frozen

X = np.arange(12, dtype=np.float32).reshape(4, 3)
ATTR = np.arange(6, dtype=np.float32).reshape(3, 2) + 1
SRC, DST = [0, 1, 3], [1, 2, 3]


def make_graph(**options: object) -> Graph:
    return Graph.from_edges(SRC, DST, x=X, edge_attr=ATTR, **options)  # type: ignore[arg-type]


# -- where they come from


def test_from_edges() -> None:
    graph = make_graph(undirected=True)
    assert graph.schema.edge_types[DEFAULT_EDGE_TYPE].edge_dim == 2
    assert graph.edge_attr([3, 1, 2], [3, 0, 1]).tolist() == ATTR[[2, 0, 1]].tolist()
    assert graph.edge_attr(1, 2).tolist() == [[3, 4]]
    found = graph.neighbors(1)
    assert dict(zip(found.ids.tolist(), found.edge_attr.tolist(), strict=True)) == {0: [1, 2], 2: [3, 4]}


def test_a_graph_without_any_has_rows_of_no_width() -> None:
    graph = Graph.from_edges(SRC, DST, x=X)
    assert graph.edge_attr(SRC, DST).shape == (3, 0)
    assert graph.neighbors(1).edge_attr is None
    assert graph.snapshot().edge_attr[DEFAULT_EDGE_TYPE].shape == (3, 0)
    assert "features of node,to,node" not in graph.memory()


def test_from_pyg() -> None:
    data = Data(x=torch.from_numpy(X), edge_index=torch.tensor([SRC, DST]), edge_attr=torch.from_numpy(ATTR))
    assert frozen(Graph.from_pyg(data).state()) == frozen(make_graph().state())
    data.edge_attr = torch.tensor([5, 6, 7])  # one number an edge
    assert Graph.from_pyg(data).edge_attr(SRC, DST).tolist() == [[5], [6], [7]]
    hetero = HeteroData()
    hetero["a"].num_nodes, hetero["b"].num_nodes = 2, 2
    hetero["a", "to", "b"].edge_index = torch.tensor([[0, 1], [1, 0]])
    hetero["a", "to", "b"].edge_attr = torch.ones(2, 3)
    hetero["b", "to", "a"].edge_index = torch.tensor([[0], [1]])
    graph = Graph.from_pyg(hetero)
    assert [edges.edge_dim for edges in graph.schema.edge_types.values()] == [3, 0]
    assert graph.edge_attr(0, 1, ("a", "to", "b")).tolist() == [[1, 1, 1]]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Graph.from_edges(SRC, DST, edge_attr=[1, 2, 3]), r"\(edges, channels\), got \(3,\)"),
        (lambda: Graph.from_edges(SRC, DST, edge_attr=ATTR[:2]), "each of the 3 edges, got 2 rows"),
        (lambda: Graph.from_edges(SRC, DST, edge_attr=np.full((3, 2), np.nan)), "finite, got nan"),
        (
            lambda: make_graph().apply(Events().add_edges(0, 2, edge_attr=[1])),
            "must have 2 columns for edge type",
        ),
        (
            lambda: Graph.from_edges(SRC, DST).apply(Events().add_edges(0, 2, edge_attr=[1])),
            "carry no features",
        ),
        (lambda: make_graph().apply(Events().add_edges(0, 2, edge_attr=[1, np.inf])), "finite, got inf"),
    ],
)
def test_what_does_not_fit_is_refused(make, message) -> None:
    with pytest.raises(InputError, match=message):
        make()


def test_a_refused_batch_changes_nothing() -> None:
    graph = make_graph()
    before = frozen(graph.state())
    with pytest.raises(UnknownNodeError):
        graph.apply(
            Events().add_edges([0, 2], [1, 0], edge_attr=[[9, 9], [8, 8]]).remove_edges(1, 2).remove_nodes(17)
        )
    assert frozen(graph.state()) == before


# -- who asks


def test_an_edge_that_is_not_there_is_named() -> None:
    graph = make_graph()
    with pytest.raises(UnknownEdgeError, match="ends of an edge, got 1 -> 0, which is not in the graph"):
        graph.edge_attr([0, 1, 2], [1, 0, 1])
    with pytest.raises(UnknownNodeError, match="got 9"):
        graph.edge_attr(0, 9)
    with pytest.raises(InputError, match="same length, got 2 and 1"):
        graph.edge_attr([0, 1], [1])


def test_a_view_reads_the_old_features_and_the_new() -> None:
    graph = make_graph()
    seen = []

    class Reader(View):
        def prepare(self, delta) -> None:
            source, target, new, _ = delta.edge_attr()
            old = graph.edge_attr(source[:1], target[:1]).tolist()  # the other edge is new
            seen.append((source.tolist(), target.tolist(), new.tolist(), old))

        def commit(self, delta) -> None:
            seen.append(delta.edge_attr().edge_attr.tolist())

    reader = Reader(graph)
    graph.attach(reader)
    graph.apply(
        Events()
        .add_edges([0, 2, 1], [1, 0, 2], edge_attr=[[7, 7], [8, 8], ATTR[1]])  # the last is as it was
        .remove_edges(3, 3)
        .add_edges(3, 2)
    )
    assert seen == [([0, 2], [1, 0], [[7, 7], [8, 8]], [[1, 2]]), [[7, 7], [8, 8]]]


def test_rows_are_given_out_again_and_are_clean() -> None:
    graph = make_graph()
    graph.apply(Events().remove_edges(SRC, DST))
    rows = graph.memory()["features of node,to,node"]
    for turn in range(50):
        graph.apply(Events().add_edges([2, 2, 2], [0, 1, 3]))
        assert not graph.edge_attr([2, 2, 2], [0, 1, 3]).any()
        graph.apply(Events().add_edges(2, 0, edge_attr=[turn, turn]).remove_edges(2, 1))
        graph.apply(Events().remove_nodes(2).add_nodes(2))
        assert graph.num_edges() == 0
    assert graph.memory()["features of node,to,node"] <= 2 * rows


@pytest.mark.parametrize("hubs", [1, 40], ids=["few nodes leave", "many nodes leave"])
def test_nodes_leave_with_the_edges_that_the_batch_gave_them(hubs: int, rng: np.random.Generator) -> None:
    """Without lists of in-neighbours too; the batch adds, renews and removes edges before."""
    for schema in (
        EdgeSchema(edge_dim=2, timed=True),
        EdgeSchema(edge_dim=1, undirected=True),
        EdgeSchema(edge_dim=1, in_neighbors=False),
    ):
        mirror = Mirror(0, schema)
        graph = mirror.make_graph(text=False)
        for _ in range(3):
            events = Events().add_nodes(np.arange(200))
            for _ in range(3):
                ends = rng.integers(0, 200, (2, 300))
                features = rng.random((300, schema.edge_dim))
                times = rng.random(300) if schema.timed else None
                events.add_edges(*ends, time=times, edge_attr=features)
                events.remove_edges(*ends[:, :50])
            events.remove_nodes(rng.choice(200, hubs, replace=False))
            events.remove_nodes(np.setdiff1d(np.arange(200), events.chunks[-1].ids)[:hubs])
            mirror.apply(events)
            graph.apply(events)
            if schema.in_neighbors:
                assert_graph_equals(graph, mirror)
            graph.native.check()
            source, target = graph.snapshot().edge_index[DEFAULT_EDGE_TYPE]
            ids = graph.ids()
            listed = set(zip(ids[source].tolist(), ids[target].tolist(), strict=True))
            assert listed == set(mirror.directed())


# -- what is kept


def test_a_state_from_before_edges_had_features_is_read() -> None:
    graph = Graph.from_edges(SRC, DST, x=X, weight=[1, 2, 3])
    state = graph.state()
    schema = graph.schema.to_json()
    for entry in schema["edge_types"]:
        del entry["edge_dim"], entry["time_to_live"]
    meta = {key: value for key, value in state.meta.items() if key != "latest_time"} | {"schema": schema}
    assert frozen(Graph.from_state(State(meta, state.arrays)).state()) == frozen(state)


def test_a_schema_comes_back() -> None:
    schema = Schema(
        {"node": 1}, {DEFAULT_EDGE_TYPE: EdgeSchema(timed=True, edge_dim=3, time_to_live=2.5, capacity=64)}
    )
    assert Schema.from_json(schema.to_json()) == schema


def test_a_state_whose_rows_do_not_fit_is_refused() -> None:
    graph = make_graph()
    graph.apply(Events().remove_edges(1, 2))
    state = graph.state()
    prefix = "edges/node/to/node"
    broken = {
        f"{prefix}/free_rows": [np.array([], np.uint32), np.array([0], np.uint32), np.array([9], np.uint32)],
        f"{prefix}/x": [state.arrays[f"{prefix}/x"][:2], state.arrays[f"{prefix}/x"][:, :1]],
        f"{prefix}/out/row": [np.array([0, 0], np.uint32), np.array([0, 2**32 - 1], np.uint32)],
        f"{prefix}/in/row": [np.array([0, 3], np.uint32), np.array([0], np.uint32)],
    }
    for name, values in broken.items():
        for value in values:
            with pytest.raises(FileFormatError, match="does not fit together"):
                Graph.from_state(State(state.meta, {**state.arrays, name: value}))
    with pytest.raises(FileFormatError, match="latest_time"):
        Graph.from_state(State({**state.meta, "latest_time": "now"}, state.arrays))


# -- files that hold features


def test_files_hold_the_same_as_memory(tmp_path: Path, rng: np.random.Generator) -> None:
    """Through growth by one and by many, and back from a state; the files have no names."""
    directory = tmp_path / "deep" / "features"
    mapped, graph = make_graph(features_dir=directory), make_graph()
    for turn in range(12):
        count = 1 if turn % 2 else 400
        ids = 100 * turn + np.arange(10_000, 10_000 + count)
        events = Events().add_nodes(ids, rng.random((count, 3)))
        events.add_edges(rng.choice(ids, count), rng.integers(0, 3, count), edge_attr=rng.random((count, 2)))
        for one in (mapped, graph):
            one.apply(events)
        assert frozen(mapped.state()) == frozen(graph.state())
    assert list(directory.iterdir()) == []
    restored = Graph.from_state(mapped.state(), features_dir=directory)
    assert frozen(restored.state()) == frozen(graph.state())
    state = mapped.state()
    del mapped, restored
    assert frozen(state) == frozen(graph.state())  # a state outlives its graph


def test_mapped_bytes_are_told_apart(tmp_path: Path) -> None:
    mapped, graph = make_graph(features_dir=tmp_path).memory(), make_graph().memory()
    for part in ("features of node", "features of node,to,node"):
        assert mapped[part] < graph[part]
        assert mapped[f"mapped {part}"] > 0
        assert f"mapped {part}" not in graph


def test_a_directory_that_cannot_hold_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="features_dir must be a directory in which files can be made"):
        make_graph(features_dir=tmp_path / "file")
