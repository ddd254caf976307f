"""The first computation of all embeddings, beside PyG's inference, and a restart that does not repeat it.

The shape of ogbn-arxiv, SAGE-mean 128 -> 256 -> 40. PyG gets its best case: the graph is a torch CSR, made
before the clock starts. LiveGNN computes from its live store, and keeps what its later increments need
(aggregates, contexts).

What it must cost
-----------------
- FLOP. Every node pays 2 * 2 * 128 * 256 in layer 1 (aggregate and root) and 2 * 2 * 256 * 40 in layer 2: 172
  kFLOP, for 169,343 nodes 29 GFLOP, 0.15 s at 200 GFLOP/s. The products are most of the time.
- Bytes. Each of 1.17 million edges reads a row of 128 floats and, projected first, one of 40: 0.78 GB. Each
  node reads its features, writes its two aggregates, its root term, hidden row, projections and output: 0.7
  GB. 28 ms at 53 GB/s.

A restart reads the states of graph and engine, 0.5 GB or so, and adopts them: memory bandwidth, no products.

The column `floor` is bytes over 53 GB/s plus FLOP over 200 GFLOP/s, for two cores.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

import livegnn as lg
from graphs import SHAPES, SyntheticGraph, make
from livegnn import checkpoint
from livegnn.oracle.exactness import EXACTNESS, judge
from peers import SAGE, Adjacency, csr_tensor, make_model
from report import Report, arguments
from stopwatch import median_ms, time_each

HIDDEN = 256
BYTES_PER_S, FLOP_PER_S = 53e9, 200e9


def floor_ms(graph: SyntheticGraph, directed_edges: int) -> float:
    features, classes = graph.num_features, graph.num_classes
    floats = directed_edges * (features + classes)
    floats += graph.num_nodes * (2 * features + 2 * HIDDEN + 4 * classes)
    flop = graph.num_nodes * 4 * (features * HIDDEN + HIDDEN * classes)
    return (4 * (floats + directed_edges) / BYTES_PER_S + flop / FLOP_PER_S) * 1e3


@torch.inference_mode()
def infer(model: SAGE, x: Tensor, adj_t: Tensor) -> Tensor:
    output: Tensor = model.conv2(F.relu(model.conv1(x, adj_t)), adj_t)
    return output


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--shape", choices=SHAPES, help="default: arxiv, or arxiv-tenth with --quick")
    parser.add_argument("--symmetric", action="store_true", help="the graph made symmetric")
    parser.add_argument("--threads", type=int, default=2, help="of LiveGNN and of torch (default: 2)")
    parser.add_argument("--repeat", type=int, default=9, help="how often each is timed (default: 9)")
    options = parser.parse_args()
    shape = options.shape or ("arxiv-tenth" if options.quick else "arxiv")
    torch.set_num_threads(options.threads)

    graph = make(shape, symmetric=options.symmetric)
    module = make_model(graph.num_features, HIDDEN, graph.num_classes)
    model = lg.Model.from_pyg(module)
    live = lg.Graph.from_edges(
        graph.src, graph.dst, x=graph.x, num_nodes=graph.num_nodes, undirected=options.symmetric
    )
    rows, cols = graph.dst, graph.src
    if options.symmetric:
        rows, cols = np.concatenate([rows, cols]), np.concatenate([cols, rows])
    adj_t = csr_tensor(*Adjacency(graph.num_nodes, rows, cols).csr())
    x = torch.from_numpy(graph.x)
    turns = range(options.repeat + 1)

    report = Report(f"first computation, {shape}, {options.threads} threads")
    pyg, outputs = time_each(lambda _: infer(module, x, adj_t), turns)
    first, engines = time_each(
        lambda _: lg.Engine(live, model, threads=options.threads), turns, keep_last=True
    )
    (engine,) = engines

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint"
        checkpoint.write(path, {"graph": live.state(), "engine": engine.state()}, live.seq)
        size = path.stat().st_size

        def restart(_: int) -> lg.Engine:
            states = checkpoint.read(path).states
            return lg.Engine(
                lg.Graph.from_state(states["graph"]), model, threads=options.threads, state=states["engine"]
            )

        def adopt(_: int) -> lg.Engine:
            state = checkpoint.read(path).states["engine"]
            return lg.Engine(live, model, threads=options.threads, state=state)

        restarts, _ = time_each(restart, turns, keep_last=True)
        adoptions, adopted = time_each(adopt, turns, keep_last=True)

    expected = outputs[-1].numpy()
    computed, restored = (judge(e.embeddings(2), expected).of_scale for e in (engine, adopted[-1]))
    report.add(
        "all embeddings, median",
        median_ms(first),
        "ms",
        peer="PyG on a prepared CSR",
        peer_value=median_ms(pyg),
        floor=floor_ms(graph, adj_t._nnz()),
    )
    report.add(
        "times as fast as PyG",
        median_ms(pyg) / median_ms(first),
        "x",
        higher_is_better=True,
        aim=1.0 if shape == "arxiv" else None,
    )
    report.add("max difference from PyG", computed, "of scale", aim=EXACTNESS)
    report.add(
        "engine from a checkpoint, median",
        median_ms(adoptions),
        "ms",
        peer="first computation",
        peer_value=median_ms(first),
    )
    report.add(
        "graph and engine from a checkpoint, median",
        median_ms(restarts),
        "ms",
        floor=size / BYTES_PER_S * 1e3,
    )
    report.add("max difference after the restart", restored, "of scale", aim=EXACTNESS)
    report.add("checkpoint", size / 2**20, "MiB")
    report.note("The checkpoint was just written: it is read from the page cache, not from the disk.")
    report.finish(options.json)


if __name__ == "__main__":
    main()
