"""Rounding over a million events: how far every layer is from the oracle, family by family of models.

A two-layer model of each family follows one stream on the shape of arxiv-tenth (16,934 nodes, 116,624 edges,
hubs of more than a thousand in-neighbours). A batch adds edges, removes the ones that have been there for
longest, sets features of nodes and, where the model reads them, weights or features of edges that exist. Now
and then a row, of a node or an edge, is a thousand times as large for some batches and then as it was: what
a spike leaves of a sum must not be rounding, and in an attention it makes logits of thousands. Half of the
nodes keep their features, so that an attention has aggregates that no change of its own target renews. A
`Scrub` runs beside the stream, by a clock that counts batches.

After a hundredth, a tenth and all of the events the engine is compared twice:

- with a fresh engine, while some rows are spikes. Not with the oracle: a float32 logit of a thousand is known
  to 6e-5, of a million to 6e-2, and a softmax makes that a part of the result. A fresh engine has the same
  logits where layers before agree; where these differ by rounding, a logit of a million does too.
- with the oracle in float64, when all spikes are back: every layer, as a part of its scale. That is what the
  bound of 1e-4 is promised for.

What to expect. Adding and subtracting float32 leaves an error of about 2**-24 of the sum each time; a random
walk of n steps grows with its square root: a hub that is touched by each of 10,000 batches would be off by
100 * 6e-8 = 6e-6 of its sum, a spike of a thousand by 6e-5 of what is left when it has gone. In the worst
case it grows with n, and would be off by 6e-4. The engine bounds each row's rounding by the worst case, and
sums the row anew when the bound passes 2e-5.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch_geometric import nn as pyg

import livegnn as lg
from graphs import SHAPES, Float32, Int64, SyntheticGraph, make
from livegnn.inference import Scrub, ScrubPolicy
from livegnn.oracle import reference
from livegnn.oracle.exactness import EXACTNESS, judge
from report import Report, arguments

HIDDEN = 16
EDGE_FEATURES = 3
PRESENT = 0.9
SPIKE, SPIKE_SHARE, SPIKE_BATCHES = 1000.0, 0.01, 5
SCRUB = ScrubPolicy(every_seconds=20, sample=16)
SCRUB_AIM = 2e-5


def network(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, outputs))


@dataclass(frozen=True)
class Family:
    """The two convolutions of a model, and what they read of edges: weights, features, or neither."""

    first: Callable[[int, int], nn.Module]
    second: Callable[[int, int], nn.Module]
    reads: str = ""


def both(make: Callable[[int, int], nn.Module], reads: str = "") -> Family:
    return Family(make, make, reads)


FAMILIES = {
    "sum, mean (SAGE)": Family(
        lambda i, o: pyg.SAGEConv(i, o, aggr="sum"), lambda i, o: pyg.SAGEConv(i, o, aggr="mean")
    ),
    "degrees (GCN)": both(pyg.GCNConv, "weight"),
    "maximum (SAGE)": both(lambda i, o: pyg.SAGEConv(i, o, aggr="max")),
    "attention (GAT)": both(lambda i, o: pyg.GATConv(i, o // 2, heads=2, edge_dim=EDGE_FEATURES), "features"),
    "dot products (Transformer)": both(lambda i, o: pyg.TransformerConv(i, o // 2, heads=2)),
    "cosines (AGNN)": both(lambda i, o: pyg.AGNNConv()),
    "gates (ResGated)": both(pyg.ResGatedGraphConv),
    "edge features (GINE)": both(
        lambda i, o: pyg.GINEConv(network(i, o), edge_dim=EDGE_FEATURES), "features"
    ),
    "kernels (GMM)": both(lambda i, o: pyg.GMMConv(i, o, EDGE_FEATURES, kernel_size=2), "features"),
}


class TwoLayers(nn.Module):
    def __init__(self, family: Family, inputs: int) -> None:
        super().__init__()
        self.reads = family.reads
        self.enter = nn.Linear(inputs, HIDDEN)
        self.first, self.second = family.first(HIDDEN, HIDDEN), family.second(HIDDEN, HIDDEN)

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_weight: Tensor | None = None,
        edge_attr: Tensor | None = None,
    ) -> Tensor:
        given = {"": (), "weight": (edge_weight,), "features": (edge_attr,)}[self.reads]
        return self.second(self.first(self.enter(x), edge_index, *given).relu(), edge_index, *given)


class Stream:
    """Batches without end. Edges stand in a ring, nine tenths of them in the graph: a batch adds the next
    ones and removes as many of the oldest. `settle` brings back what is a spike."""

    def __init__(self, graph: SyntheticGraph, reads: str, seed: int = 0) -> None:
        self.reads = reads
        self._rng = np.random.default_rng([seed, 3])
        order = self._rng.permutation(graph.num_edges)
        self._src, self._dst, self._x = graph.src[order], graph.dst[order], graph.x
        self._first, self._last = 0, int(PRESENT * graph.num_edges)
        self._moving = self._rng.permutation(graph.num_nodes)[: graph.num_nodes // 2]
        self._node_spikes: list[Int64] = []
        self._edge_spikes: list[Int64] = []

    def start(self) -> lg.Graph:
        there = np.arange(self._first, self._last)
        columns = {"weight": "weight", "features": "edge_attr"}
        given = {columns[self.reads]: self._values(len(there))} if self.reads else {}
        return lg.Graph.from_edges(self._src[there], self._dst[there], x=self._x, **given)

    def batches(self, size: int) -> Iterator[lg.Events]:
        part = size // (4 if self.reads else 3)
        while True:
            events = lg.Events()
            added = np.arange(self._last, self._last + part) % len(self._src)
            removed = np.arange(self._first, self._first + part) % len(self._src)
            self._first, self._last = self._first + part, self._last + part
            self._set_edges(events, added, self._values(part))
            if self.reads:
                chosen = self._rng.integers(self._first, self._last, part) % len(self._src)
                spikes = self._spikes(part)
                self._set_edges(events, chosen, self._values(part, spikes))
                self._edge_spikes.append(chosen[spikes])
            nodes = self._rng.choice(self._moving, size - len(events) - part)
            spikes = self._spikes(len(nodes))
            x = self._rng.standard_normal((len(nodes), self._x.shape[1]), dtype=np.float32)
            events.set_features(nodes, np.where(spikes[:, None], np.float32(SPIKE) * x, x))
            self._node_spikes.append(nodes[spikes])
            if len(self._node_spikes) > SPIKE_BATCHES:
                self._settle(events, 1)
            # Last, so that nothing above can bring an edge back that has gone.
            yield events.remove_edges(self._src[removed], self._dst[removed])

    def settle(self) -> lg.Events:
        """Every row that is a spike as it was, or as any other."""
        events = lg.Events()
        self._settle(events, len(self._node_spikes))
        return events

    def _settle(self, events: lg.Events, rounds: int) -> None:
        for _ in range(rounds):
            nodes = self._node_spikes.pop(0)
            events.set_features(nodes, self._x[nodes])
            if self.reads:
                edges = self._edge_spikes.pop(0)
                edges = edges[(edges - self._first) % len(self._src) < self._last - self._first]
                self._set_edges(events, edges, self._values(len(edges)))

    def _spikes(self, count: int) -> NDArray[np.bool_]:
        return self._rng.random(count) < SPIKE_SHARE

    def _values(self, count: int, spikes: NDArray[np.bool_] | bool = False) -> Float32:
        """Weights above 0, or features, of edges; none if the model reads neither."""
        width = {"": 0, "weight": 1, "features": EDGE_FEATURES}[self.reads]
        values = self._rng.standard_normal((count, width), dtype=np.float32)
        if self.reads == "weight":
            values = np.abs(values)[:, 0] + np.float32(0.1)
        factors = np.where(spikes, np.float32(SPIKE), np.float32(1))
        return values * (factors[..., None] if values.ndim == 2 else factors)

    def _set_edges(self, events: lg.Events, edges: Int64, values: Float32) -> None:
        given = {self.reads: values} if self.reads else {}
        events.add_edges(self._src[edges], self._dst[edges], **given)


def differences(expected: list[NDArray[np.generic]], engine: lg.Engine) -> list[float]:
    """The largest difference of each layer but the features, as a part of the scale in its channel."""
    return [judge(engine.embeddings(layer), rows).of_scale for layer, rows in enumerate(expected, 1)]


def of_oracle(engine: lg.Engine) -> list[NDArray[np.generic]]:
    values = reference.compute(engine.model, engine.graph.snapshot())
    return [values[name] for name in engine.model.layers[1:]]


def of_fresh_engine(engine: lg.Engine) -> list[NDArray[np.generic]]:
    fresh = lg.Engine(engine.graph, engine.model, threads=1)
    return [fresh.embeddings(layer) for layer in range(1, len(engine.model.layers))]


def run_family(report: Report, name: str, graph: SyntheticGraph, options: Namespace) -> None:
    family = FAMILIES[name]
    torch.manual_seed(0)
    module = TwoLayers(family, graph.num_features).eval()
    model = lg.Model.from_pyg(
        module,
        edge_weight=family.reads == "weight",
        edge_channels=EDGE_FEATURES if family.reads == "features" else 0,
    )
    stream = Stream(graph, family.reads)
    engine = lg.Engine(stream.start(), model, threads=options.threads)
    done = batch = recomputed = 0
    scrub = Scrub(engine, SCRUB, lambda: float(batch))
    spent = 0.0
    batches = stream.batches(options.batch)

    def apply(events: lg.Events) -> None:
        nonlocal done, batch, recomputed, spent
        started = perf_counter()
        engine.apply(events)
        spent += perf_counter() - started
        done, batch, recomputed = done + len(events), batch + 1, recomputed + engine.last_work.recomputed
        if scrub.until() == 0:
            scrub.run()

    for end in (options.events // 100, options.events // 10, options.events):
        while done < end:
            apply(next(batches))
        during = max(differences(of_fresh_engine(engine), engine))
        apply(stream.settle())
        after = differences(of_oracle(engine), engine)
        for layer, difference in enumerate(after, 1):
            report.add(f"{name}, {end:,}: layer {layer}", difference, "of scale", aim=EXACTNESS)
        report.add(f"{name}, {end:,}: from a fresh engine, with spikes", during, "of scale")
        shown = ", ".join(f"{difference:.1e}" for difference in after)
        report.console.print(f"{name}, {done:,} events: {shown}; with spikes {during:.1e}", style="dim")
    report.add(f"{name}: largest that the scrub saw", scrub.largest, "of a row", aim=SCRUB_AIM)
    report.add(f"{name}: rounds of the scrub", scrub.rounds, "rounds")
    report.add(f"{name}: aggregates summed anew", recomputed, "aggregates")
    report.add(f"{name}: updates", done / spent, "1/s", higher_is_better=True)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--shape", choices=SHAPES, default="arxiv-tenth", help="default: arxiv-tenth")
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--events", type=int, help="of each family (default: 1,000,000; quick: 20,000)")
    parser.add_argument("--batch", type=int, default=100, help="events in a batch (default: 100)")
    parser.add_argument("--threads", type=int, default=2, help="of LiveGNN (default: 2)")
    options = parser.parse_args()
    options.events = options.events or (20_000 if options.quick else 1_000_000)

    graph = make(options.shape)
    report = Report(f"drift, {options.shape}, {options.events:,} events, batches of {options.batch}")
    for name in options.families:
        run_family(report, name, graph, options)
    report.note("Layers: from the oracle in float64, when all spikes are back.")
    report.note(
        "Summed anew: because it was cheaper, because a target's own row changed, or because of drift."
    )
    report.finish(options.json)


if __name__ == "__main__":
    main()
