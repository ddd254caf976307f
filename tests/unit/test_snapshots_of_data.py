"""Snapshots of PyG's data, written without a graph: what a graph of the same data would be written as."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData

from livegnn import Graph
from livegnn.errors import InputError
from livegnn.snapshots import writer
from livegnn.snapshots.snapshot_source import open_snapshot
from livegnn.snapshots.writer import write_snapshot


@pytest.mark.parametrize("piece", [1 << 20, 50])
def test_data_is_written(
    piece: int, rng: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each list has the edges as they are listed, parallel ones and loops too."""
    monkeypatch.setattr(writer, "PIECE", piece)
    nodes, edges = 30, 200
    edge_index = rng.integers(0, nodes, (2, edges))
    data = Data(
        x=torch.from_numpy(rng.normal(size=(nodes, 4)).astype(np.float32)),
        edge_index=torch.from_numpy(edge_index),
        edge_weight=torch.from_numpy(rng.normal(size=edges).astype(np.float32)),
        edge_attr=torch.from_numpy(rng.normal(size=(edges, 2)).astype(np.float32)),
        time=torch.arange(edges),
    )
    manifest = write_snapshot(data, str(tmp_path), seq=41)
    assert manifest.nodes == ((nodes, nodes),)
    snapshot = open_snapshot(str(tmp_path))
    assert snapshot.seq == 41
    rows = rng.permutation(nodes)
    np.testing.assert_array_equal(snapshot.rows_of(np.arange(nodes)), np.arange(nodes))
    np.testing.assert_array_equal(snapshot.features(None, rows), data.x[rows].numpy())
    for direction, here in (("in", 1), ("out", 0)):
        found = snapshot.neighbors(None, rows, direction)
        count, weight, loops, loop_weight = snapshot.degrees(None, rows, direction).columns
        for i, row in enumerate(rows):
            listed = np.flatnonzero(edge_index[here] == row)
            part = slice(found.offsets[i], found.offsets[i + 1])
            np.testing.assert_array_equal(found.rows[part], edge_index[1 - here][listed])
            np.testing.assert_array_equal(found.weight[part], data.edge_weight[listed].numpy())
            np.testing.assert_array_equal(found.time[part], listed)
            np.testing.assert_array_equal(found.edge_attr[part], data.edge_attr[listed].numpy())
            own = listed[edge_index[1 - here][listed] == row]
            assert (count[i], loops[i]) == (len(listed), len(own))
            weights = data.edge_weight.numpy().astype(np.float64)
            np.testing.assert_allclose(weight[i], weights[listed].sum(), atol=1e-12)
            np.testing.assert_allclose(loop_weight[i], weights[own].sum(), atol=1e-12)


def test_hetero_data_is_written_as_its_graph(rng: np.random.Generator, tmp_path: Path) -> None:
    data = HeteroData()
    data["user"].x = torch.from_numpy(rng.normal(size=(20, 3)).astype(np.float32))
    data["item"].num_nodes = 7
    pairs = np.unique(rng.integers(0, 7, (2, 40)), axis=1)
    data["user", "buys", "item"].edge_index = torch.from_numpy(pairs)
    data["item", "of", "user"].edge_index = torch.from_numpy(pairs[::-1].copy())
    write_snapshot(data, str(tmp_path / "data"))
    write_snapshot(Graph.from_pyg(data), str(tmp_path / "graph"))
    ours, theirs = (open_snapshot(str(tmp_path / name)) for name in ("data", "graph"))
    assert ours.schema == theirs.schema
    for name, count in (("user", 20), ("item", 7)):
        rows = np.arange(count)
        np.testing.assert_array_equal(ours.features(name, rows), theirs.features(name, rows))
    for edge_type in ours.schema.edge_types:
        for direction, side in (("in", 2), ("out", 0)):
            rows = np.arange(20 if edge_type[side] == "user" else 7)
            one, other = (it.neighbors(edge_type, rows, direction) for it in (ours, theirs))
            np.testing.assert_array_equal(one.offsets, other.offsets)
            for i in range(len(rows)):
                part = slice(one.offsets[i], one.offsets[i + 1])
                assert sorted(one.rows[part].tolist()) == sorted(other.rows[part].tolist())


def test_wrong_data_is_refused(tmp_path: Path) -> None:
    where = str(tmp_path)
    with pytest.raises(InputError, match="expected PyG's Data"):
        write_snapshot([1, 2], where)  # type: ignore[arg-type]
    edges = torch.tensor([[0, 1], [1, 2]])
    for data, said in (
        (Data(x=torch.zeros(2, 1), edge_index=edges), "must name nodes below 2"),
        (Data(num_nodes=3, edge_index=edges, edge_weight=torch.ones(3)), "one value for each of the 2 edges"),
        (Data(num_nodes=3, edge_index=edges, edge_attr=torch.ones(3, 1)), "a row for each edge"),
        (Data(num_nodes=3, edge_index=torch.zeros(3, 2).long()), r"must be \[2, edges\]"),
        (Data(num_nodes=3, x=torch.zeros(3), edge_index=edges), "x must have the shape"),
        (Data(num_nodes=3, edge_index=edges - 1), "must be ids from 0"),
        (Data(num_nodes=3, edge_index=edges + 0.7), "src must be integers"),
        (Data(num_nodes=3, edge_index=edges > 1), "src must be integers"),
        (Data(x=torch.tensor([[1.0], [2.0], [math.nan]]), edge_index=edges), "x must be finite, got nan"),
        (Data(x=torch.zeros(3, 1, dtype=torch.complex64), edge_index=edges), "x must be numbers"),
        (Data(x=torch.zeros(3, 1, dtype=torch.bfloat16), edge_index=edges), "got torch.bfloat16"),
        (Data(x=torch.eye(3).to_sparse(), edge_index=edges), "must be a dense tensor"),
        (Data(num_nodes=3, edge_index=edges, time=torch.tensor([1.0, math.inf])), "time must be finite"),
        (Data(num_nodes=3, edge_index=edges, edge_weight=torch.tensor([1, 1e30])), r"at most 2\^96"),
        (Data(edge_index=None), "must be counted: give them x or num_nodes"),
    ):
        with pytest.raises(InputError, match=said):
            write_snapshot(data, where)
