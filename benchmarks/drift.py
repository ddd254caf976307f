"""Rounding over a long stream: the largest difference from the oracle as events go by, and its bound.

The shape of tolokers (11,758 nodes, 519,000 undirected edges, hubs of 1,500), where every event reaches a
good part of the graph: a row is added to and subtracted from hundreds of times in a stream of 200,000
events. Adding and subtracting float32 leaves a rounding error of about 2**-24 of the sum each time; a
random walk of n steps grows with its square root, so that 10,000 touches leave 100 * 6e-8 = 6e-6 of the
sum, a tenth of the bound of 1e-4. Without cancellation, in the worst case, it grows with n, and 10,000
touches may leave 6e-4: that is what the engine's refreshing of rows is for.
"""

from __future__ import annotations

import torch
from torch_geometric.nn import GCN, GIN, GraphSAGE

import livegnn as lg
from graphs import SHAPES, make, make_stream
from incremental import events_of
from report import Report, arguments
from stopwatch import time_each

MODULES = {"gcn": GCN, "sage": GraphSAGE, "gin": GIN}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--shape", choices=SHAPES, default="tolokers", help="default: tolokers")
    parser.add_argument("--model", choices=MODULES, default="sage", help="PyG's ready-made (default: sage)")
    parser.add_argument("--layers", type=int, default=2, help="of the model (default: 2)")
    parser.add_argument("--hidden", type=int, default=32, help="hidden channels (default: 32)")
    parser.add_argument("--events", type=int, help="length of the stream (default: 200,000; quick: 10,000)")
    parser.add_argument("--batch", type=int, default=100, help="events in a batch (default: 100)")
    parser.add_argument("--checks", type=int, default=20, help="how often to compare (default: 20)")
    parser.add_argument("--threads", type=int, default=2, help="of LiveGNN (default: 2)")
    options = parser.parse_args()
    length = options.events or (10_000 if options.quick else 200_000)

    graph = make(options.shape, symmetric=True)
    # A third of the events adds edges: hold back as many, though it be more than RIPPLE's tenth.
    held_back = max(0.1, (length / 3 + 3) / graph.num_edges)
    stream = make_stream(graph, length + -length % 3, held_back=held_back)
    torch.manual_seed(0)
    module = MODULES[options.model](
        graph.num_features, options.hidden, num_layers=options.layers, out_channels=graph.num_classes
    ).eval()
    live = lg.Graph.from_edges(
        stream.start_src, stream.start_dst, x=graph.x, num_nodes=graph.num_nodes, undirected=True
    )
    engine = lg.Engine(live, lg.Model.from_pyg(module), threads=options.threads)

    report = Report(f"drift, {options.shape}, {options.model} of {options.layers} layers, {length:,} events")
    count = length // options.batch
    spent, largest, bound = 0.0, 0.0, 0.0
    report.console.print(f"{'events':>10}  {'largest difference':>18}  {'bound':>9}   (of the scale)")
    for check in range(options.checks):
        first, last = count * check // options.checks, count * (check + 1) // options.checks
        batches = stream.batches(options.batch, last - first, first * options.batch)
        seconds, _ = time_each(engine.apply, [events_of(batch) for batch in batches], warm_up=0)
        spent += float(seconds.sum())
        found = engine.verify()
        difference, bound = found.max_difference / found.scale, found.bound / found.scale
        largest = max(largest, difference)
        report.console.print(f"{last * options.batch:>10,}  {difference:>18.3e}  {bound:>9.1e}")
    report.add("largest difference", largest, "of scale", aim=bound)
    report.add("difference at the end", difference, "of scale", aim=bound)
    report.add("updates", count * options.batch / spent, "1/s", higher_is_better=True)
    report.finish(options.json)


if __name__ == "__main__":
    main()
