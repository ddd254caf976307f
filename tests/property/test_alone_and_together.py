"""An answer does not depend on who else is asked for: each node alone, in pairs and all together, on
multigraphs with loops, is what PyG in float64 says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from gate import draws, share
from livegnn import Engine, Graph
from livegnn.graph import Snapshot
from livegnn.model import Model
from livegnn.oracle.exactness import judge, scales_of
from livegnn.remote.predictor import SnapshotPredictor
from livegnn.snapshots.snapshot_source import SnapshotSource
from livegnn.snapshots.writer import write_snapshot
from livegnn.types import DEFAULT_EDGE_TYPE, DEFAULT_NODE_TYPE
from modules import CONVOLUTIONS, EDGE_FEATURES, EDGE_WIDTH, EDGE_WISE, WEIGHTED, WIDTH, Design, make

NODES, EDGES = 9, 26
GRAPHS, PAIRS = draws(1, 20), draws(4, NODES * NODES)

Predict = Callable[[np.ndarray], np.ndarray]


def make_data(rng: np.random.Generator) -> Data:
    """Some nodes have no edges, some pairs several, and some nodes several loops of different weights."""
    ends = rng.integers(0, NODES - 2, (2, EDGES))
    again = ends[:, rng.integers(0, EDGES, 6)]
    loops = np.repeat(rng.choice(NODES, 4, replace=False), [1, 2, 2, 3])
    edge_index = np.concatenate([ends, again, [loops, loops]], axis=1)[:, rng.permutation(EDGES + 14)]
    count = edge_index.shape[1]
    return Data(
        x=torch.from_numpy(rng.standard_normal((NODES, WIDTH), dtype=np.float32)),
        edge_index=torch.from_numpy(edge_index),
        edge_weight=torch.from_numpy(rng.uniform(0.25, 2, count).astype(np.float32)),
        edge_attr=torch.from_numpy(rng.standard_normal((count, EDGE_WIDTH), dtype=np.float32)),
    )


def snapshot_of(data: Data) -> Snapshot:
    """The edges in the order in which PyG lists them."""
    return Snapshot(
        ids={DEFAULT_NODE_TYPE: np.arange(NODES)},
        x={DEFAULT_NODE_TYPE: data.x.numpy()},
        edge_index={DEFAULT_EDGE_TYPE: data.edge_index.numpy()},
        weight={DEFAULT_EDGE_TYPE: data.edge_weight.numpy()},
        edge_attr={DEFAULT_EDGE_TYPE: data.edge_attr.numpy()},
    )


def predict_snapshot(written: object, model: Model, folder: Path) -> Predict:
    write_snapshot(written, str(folder))
    return SnapshotPredictor(SnapshotSource(str(folder)), model).predict


def ways(data: Data, model: Model, folder: Path) -> Iterator[tuple[str, Predict]]:
    """Everything that answers for the nodes that a caller names."""
    graph = Graph.from_pyg(data, parallel="keep")
    yield "snapshot of data", predict_snapshot(data, model, folder / "data")
    yield "snapshot of a graph", predict_snapshot(graph, model, folder / "graph")
    yield "lazy", Engine(graph, model, mode="lazy").predict


def questions() -> Iterator[np.ndarray]:
    everyone = np.arange(NODES)
    yield everyone
    yield everyone[::-1]
    yield from everyone.reshape(-1, 1)
    for pair in range(PAIRS):
        yield np.array([pair % NODES, (pair * 2 + 1 + pair // NODES) % NODES])


@pytest.mark.parametrize("kind", share([*CONVOLUTIONS, *EDGE_WISE], 1, 5))
def test_an_answer_does_not_depend_on_who_else_is_asked_for(
    kind: str, rng: np.random.Generator, tmp_path: Path
) -> None:
    weighted = kind in WEIGHTED and kind != "gcn max"  # a maximum takes one loop with a weight
    module, model = make(Design(kind, weighted=weighted))
    for number in range(GRAPHS):
        data = make_data(rng)
        expected = module.run(snapshot_of(data))
        if not weighted:
            del data.edge_weight
        if kind not in EDGE_FEATURES:
            del data.edge_attr
        for name, predict in ways(data, model, tmp_path / str(number)):
            for ids in questions():
                seen = judge(predict(ids), expected[ids], scales=scales_of(expected))
                assert seen.ok, f"{name}, nodes {ids.tolist()}: {seen}"
