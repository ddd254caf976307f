"""Builds what `serverless.py` reads: a snapshot of each shape, its lists as arrays, and its models' files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.nn.models import GAT, GCN

import livegnn as lg
from livegnn.snapshots.writer import write_snapshot
from serverless_shapes import GraphShape, make_edges, make_lists

CLASSES = 16


def build(folder: Path, shape: GraphShape, models: list[str], pyg: bool = False) -> int:
    """Builds what is not there yet; returns how many edges there are. models: such as "GCN-2". pyg: whether
    PyG's process will read the data, too."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    for model in models:
        save_model(folder, shape, model)
    if (folder / "done").exists():
        return len(np.load(folder / "source.npy", mmap_mode="r"))
    src, dst = make_edges(shape)
    lists = make_lists(shape.nodes, src, dst)
    np.save(folder / "begin.npy", lists.begin)
    np.save(folder / "source.npy", lists.source)
    x = np.random.default_rng(0).random((shape.nodes, shape.features), dtype=np.float32)
    edge_index = torch.from_numpy(np.stack([src, dst]))
    write_snapshot(
        Data(x=torch.from_numpy(x), edge_index=edge_index), str(folder / "snapshot"), directions=("in",)
    )
    if pyg:
        torch.save({"x": torch.from_numpy(x), "edge_index": edge_index}, folder / "pyg.pt")
    (folder / "done").touch()
    return len(src)


def save_model(folder: Path, shape: GraphShape, model: str) -> None:
    path = folder / f"{model}.lgnn"
    if not path.exists():
        lg.Model.from_pyg(make_module(model, shape.features)).save(path)


def make_module(model: str, width: int) -> torch.nn.Module:
    """As in the paper: GCN with 16 hidden channels, GAT with 8 heads of 8 channels."""
    kind, layers = model.split("-")
    if kind == "GCN":
        return GCN(width, 16, num_layers=int(layers), out_channels=CLASSES).eval()
    return GAT(width, 64, num_layers=int(layers), out_channels=CLASSES, heads=8).eval()
