"""Batches of the training loaders beside PyG's `NeighborLoader` with torch-sparse or pyg-lib.

Both draw ten neighbours of each of 1,024 seeds and five of each of these, and gather the features of all
nodes, on the same edges and with one thread. PyG draws from a copy of the edges that it made before; ours
from the graph as it is, with labels put beside the features. A label that is put among as many as there are
nodes is measured beside a batch, because a stream of labels is put between batches.

What it must cost
-----------------
1,024 seeds bring some 11,000 first neighbours and 55,000 more: 66,000 edges, and as many rows of 128 floats,
of which two of three are distinct. To read 20 MB of rows at random takes 5 ms, and a draw 0.1 µs an edge.
A label is two look-ups and a row: microseconds, whatever their number.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec

import numpy as np
import torch

import livegnn as lg
from livegnn.training import LiveFeatureStore, NodeLoader
from report import Report, arguments
from stopwatch import median_ms, repeated_ms, time_each

SEEDS, HOPS, WIDTH = 1024, [10, 5], 128
FULL, QUICK = (1_000_000, 10_000_000), (50_000, 500_000)  # nodes and edges


def main() -> int:
    options = arguments(__doc__).parse_args()
    torch.set_num_threads(1)
    report = Report("loaders")
    nodes, edges = QUICK if options.quick else FULL
    seconds = 1.0 if options.quick else 10.0
    rng = np.random.default_rng(0)
    ends = rng.integers(0, nodes, (2, edges))
    ends[1] = np.minimum(ends[1], rng.integers(0, nodes, edges))  # some nodes have more neighbours
    x = rng.standard_normal((nodes, WIDTH), dtype=np.float32)
    y = torch.from_numpy(rng.integers(0, 2, nodes))

    graph = lg.Graph.from_edges(ends[0], ends[1], x=x, num_nodes=nodes, parallel="last")
    features = LiveFeatureStore(graph)
    features.put_tensor(y, group_name="node", attr_name="y", index=None)
    ours = NodeLoader(graph, HOPS, features=features, batch_size=SEEDS, shuffle=True, threads=1)
    name = f"a batch of {SEEDS:,} seeds, {nodes:,} nodes, {edges:,} edges"
    value = repeated_ms(batches(ours), seconds)
    peer = peer_ms(ends, x, y, seconds)
    if peer is None:
        report.could_not_run("PyG's NeighborLoader", "neither torch-sparse nor pyg-lib is installed")
    report.add(name, value, "ms", peer=None if peer is None else "PyG", peer_value=peer)
    report.add(f"a label put among {nodes:,}", put_us(features, nodes), "µs")
    report.finish(options.json)
    return 0


def batches(loader: torch.utils.data.DataLoader) -> Callable[[], object]:
    def endless() -> Iterator[object]:
        while True:
            yield from loader

    drawn = endless()
    return lambda: next(drawn)


def peer_ms(ends: np.ndarray, x: np.ndarray, y: torch.Tensor, seconds: float) -> float | None:
    if not (find_spec("torch_sparse") or find_spec("pyg_lib")):
        return None
    from torch_geometric.data import Data
    from torch_geometric.loader import NeighborLoader

    pairs = np.unique(ends, axis=1)  # the graph keeps each edge once
    data = Data(x=torch.from_numpy(x), y=y, edge_index=torch.from_numpy(pairs))
    return repeated_ms(batches(NeighborLoader(data, HOPS, batch_size=SEEDS, shuffle=True)), seconds)


def put_us(features: LiveFeatureStore, nodes: int) -> float:
    ids = np.random.default_rng(1).integers(0, nodes, 1000)
    rows = torch.tensor([1])
    put = partial(features.put_tensor, rows, group_name="node", attr_name="y")
    seconds, _ = time_each(lambda index: put(index=index), torch.from_numpy(ids)[:, None])
    return 1e3 * median_ms(seconds)


if __name__ == "__main__":
    sys.exit(main())
