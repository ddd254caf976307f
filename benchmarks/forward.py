"""Predictions on samples: a forward pass over [25, 10] neighbours of a seed, beside PyG's module on the same
samples.

Two layers, 10 or 128 features, 64 hidden channels and 64 outputs, one core. A sample is drawn beforehand; its
arrays are the same for both. PyG runs the module on all nodes in each layer, and GraphSAGE also on what the
next layer needs (`trim_to_layer`); the faster one is the peer. Of GCN that would be another model, whose
second layer has the degrees of what is left. The module is in evaluation mode, under `torch.inference_mode`,
with one thread.

What it must cost
-----------------
A seed has some 270 nodes in two hops, of which 26 are within one. GraphSAGE on 128 features multiplies 26
rows by two matrices of 128 x 64, and one row by two of 64 x 64: 0.87 MFLOP, 9 us at 100 GFLOP/s of one core.
It adds 270 rows of 128 floats that the sample has just brought into the cache, 0.05 ns a float: 2 us. GCN
has one matrix instead of two, 0.43 MFLOP, and scales each of the 270 rows once more. With 10 features there
is nothing to compute: the time goes to the call, some 6 us in Python and in the conversion of ten arrays.
The column `floor` is products over 100 GFLOP/s and added floats at 0.05 ns, as the run has counted them.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.utils import trim_to_layer

import livegnn as lg
from livegnn.inference import SampledForward
from livegnn.presampling import SampledEngine
from livegnn.sampling import Subgraph, sample_subgraph
from livegnn.types import DEFAULT_EDGE_TYPE, DEFAULT_NODE_TYPE
from neighborhoods import TwoLayers
from report import Report, arguments
from stopwatch import time_each

HIDDEN = OUTPUTS = 64
FAN_OUTS = [25, 10]
FLOP_PER_S, SECONDS_PER_FLOAT = 100e9, 0.05e-9
NODES, SAMPLES = 200_000, 2000
QUICK_NODES, QUICK_SAMPLES = 20_000, 200


class Batch:
    """A sample as both sides read it."""

    def __init__(self, sample: Subgraph) -> None:
        self.sample = sample
        assert sample.x is not None
        self.x = torch.from_numpy(sample.x)
        self.edge_index = torch.from_numpy(np.stack([sample.row, sample.col]))
        self.seeds = torch.from_numpy(sample.inverse)


def make_graph(nodes: int, width: int) -> lg.Graph:
    random = np.random.default_rng(0)
    source, target = random.integers(0, nodes, (2, 30 * nodes))
    x = random.standard_normal((nodes, width), dtype=np.float32)
    return lg.Graph.from_edges(source, target, x=x, parallel="last")


def run_whole(module: TwoLayers, batch: Batch) -> Tensor:
    return module(batch.x, batch.edge_index)[batch.seeds]


def run_trimmed(module: TwoLayers, batch: Batch) -> Tensor:
    """The module's two layers, each on what the next one needs."""
    nodes, edges = batch.sample.num_sampled_nodes, batch.sample.num_sampled_edges
    x, edge_index = batch.x, batch.edge_index
    convs: list[nn.Module] = [module.conv1, module.conv2]
    for layer, conv in enumerate(convs):
        x, edge_index, _ = trim_to_layer(layer, nodes, edges, x, edge_index)
        x = conv(x, edge_index)
        x = x.relu() if layer == 0 else x
    return x[batch.seeds]


def floor_s(kind: str, width: int, batch: Batch) -> float:
    """What products and added rows of a sample cost."""
    nodes, edges = batch.sample.num_sampled_nodes, batch.sample.num_sampled_edges
    matrices = 2 if kind == "GraphSAGE" else 1
    first, second = nodes[0] + nodes[1], nodes[0]
    flop = 2 * matrices * (first * width * HIDDEN + second * HIDDEN * OUTPUTS)
    return flop / FLOP_PER_S + (sum(edges) * width + edges[0] * HIDDEN) * SECONDS_PER_FLOAT


def rate_of(call: Callable[[Batch], object], batches: list[Batch]) -> float:
    """Samples a second, by the median sample."""
    seconds, _ = time_each(call, batches, warm_up=len(batches) // 10)
    return 1 / float(np.median(seconds))


def measure(kind: str, width: int, seeds: int, graph: lg.Graph, samples: int, report: Report) -> None:
    random = np.random.default_rng(1)
    drawn = [
        sample_subgraph(
            graph, random.integers(0, graph.num_nodes(), seeds), FAN_OUTS, attributes=True, seed=i
        )
        for i in range(max(samples // seeds, 20))
    ]
    batches = [Batch(sample) for sample in drawn]
    torch.manual_seed(0)
    module = TwoLayers(kind, width, HIDDEN, OUTPUTS).eval()
    forward = SampledForward(lg.Model.from_pyg(module))
    ours = rate_of(lambda batch: forward.predict(batch.sample), batches)
    runs = {"PyG": run_whole} | ({"PyG, trimmed": run_trimmed} if kind == "GraphSAGE" else {})
    with torch.inference_mode():
        difference = max(
            float((torch.from_numpy(forward.predict(batch.sample)) - run(module, batch)).abs().max())
            for batch in batches[:20]
            for run in runs.values()
        )
        peers = {
            name: rate_of(lambda batch, run=run: run(module, batch), batches) for name, run in runs.items()
        }  # type: ignore[misc]
    peer = max(peers, key=peers.__getitem__)
    if not difference < 1e-4:
        report.could_not_run(f"{kind}, {width} features", f"PyG differs by {difference:.2g}")
        return
    of = "1 seed" if seeds == 1 else f"{seeds} seeds"
    report.add(
        f"{kind}, {width} features, {of}",
        seeds * ours,
        "predictions/s",
        higher_is_better=True,
        aim=5000,
        peer=peer,
        peer_value=seeds * peers[peer],
        floor=seeds / float(np.median([floor_s(kind, width, batch) for batch in batches])),
    )


def measure_calls(width: int, graph: lg.Graph, samples: int, report: Report) -> None:
    """Predictions from samples that are ready: many in one call, beside the two steps one after the other."""
    query = lg.Query(DEFAULT_NODE_TYPE)
    for count in FAN_OUTS:
        query = query.hop(DEFAULT_EDGE_TYPE, count, direction="in")
    torch.manual_seed(0)
    module = TwoLayers("GraphSAGE", width, HIDDEN, OUTPUTS).eval()
    engine = SampledEngine(graph, lg.Model.from_pyg(module).with_query(query), sample_seed=1, threads=1)
    random = np.random.default_rng(1)

    def rate(call: Callable[[np.ndarray], object], count: int) -> float:
        taken = []
        for _ in range(max(samples // count, 5)):
            ids = random.choice(graph.num_nodes(), count, replace=False)
            started = time.thread_time()  # others disturb only through the memory
            call(ids)
            taken.append(time.thread_time() - started)
        return count / float(np.median(taken))

    for count in (1, 10, 1000):
        report.add(
            f"calls of {count:,} ids, samples that are ready, {width} features",
            rate(engine.predict, count),
            "predictions/s",
            higher_is_better=True,
            peer="samples, then passes",
            peer_value=rate(lambda ids: engine.predict_from(engine.samples_for(ids)), count),
        )


def main() -> None:
    options = arguments(__doc__).parse_args()
    torch.set_num_threads(1)
    nodes, samples = (QUICK_NODES, QUICK_SAMPLES) if options.quick else (NODES, SAMPLES)
    report = Report("forward passes over samples of [25, 10] neighbours, one core")
    for width in (10, 128):
        graph = make_graph(nodes, width)
        for kind in ("GraphSAGE", "GCN"):
            for seeds in (1, 32):
                measure(kind, width, seeds, graph, samples, report)
        measure_calls(width, graph, samples, report)
    report.finish(options.json)


if __name__ == "__main__":
    main()
