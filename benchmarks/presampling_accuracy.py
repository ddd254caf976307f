"""What it costs a prediction that its sample misses the latest writes (Helios, section 7.4, figure 18).

Bitcoin OTC, which the package ships: 35,592 ratings in order of time. A GraphSAGE of two layers (PyG's
`GraphConv` with the mean: what raters are, weighted by the marks they gave) is trained to say of a member
whether the next rating will be negative, on samples of [25, 10] raters. Then the last 30 % of the ratings
come one by one. Before each comes, the model is asked, with a sample of what a system with an ingestion
latency of L seconds has seen: all but the ratings of the last L seconds. The figure is the area under the ROC
curve (AUC).

A second of latency is two things here. *at real pace*: a second of the times that the ratings have. And
scaled: the stream runs at 100 ratings a second, the five years in six minutes, so that 3.5 seconds are three
weeks of the network and hide what they hide in a busy one. Rows name the number of ratings that are hidden.
L = 0 is `Presampler` in the process that applies the ratings: its samples have every write. *never* is the
graph as it was when the test began: how much there is to lose.

    |-- history --|-- train ----------|-- test ----------|
    0            30 %                70 %              100 %

Features are those that a member had at 30 %: how often rated and rating, how well, and whether known at all.
What came since then says the sample alone. Nothing that is trained on or looked at comes after what it
predicts. The aim is the paper's finding, as a number: at 1.25 seconds, where the paper's own latency lies
(its 99th percentile is 1.2), at most 0.01 of AUC is lost, at either pace. Figures are means over seeds of the
model, with their standard deviations beside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch_geometric.nn import GraphConv

import livegnn as lg
from graphs import Float32
from livegnn.demo.ratings import Ratings, load
from livegnn.inference import SampledForward
from livegnn.presampling import Presampler
from livegnn.query import NeighborsBy, Query
from livegnn.sampling import HeteroSubgraph, sample_query
from report import Report, arguments

RATES = ("member", "rates", "member")
RATE = 100  # ratings a second of scaled time
LATENCIES = (0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 1.25, 2.0, 3.5, 35.0)
REAL = {"1.25 s": 1.25, "3.5 s": 3.5, "a minute": 60.0, "an hour": 3600.0, "a day": 86_400.0}
TYPICAL, MOST_LOST = "1.25 s", 0.01
HISTORY, CUT = 0.3, 0.7
HIDDEN, BATCH = 32, 64
EPOCHS, SEEDS, EVERY = 10, 5, 1
QUICK_EPOCHS, QUICK_SEEDS, QUICK_EVERY = 2, 2, 10


class Risk(nn.Module):
    """The logit of a member's next rating being negative."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = GraphConv(channels, HIDDEN, aggr="mean")
        self.conv2 = GraphConv(HIDDEN, HIDDEN, aggr="mean")
        self.leave = nn.Linear(HIDDEN, 1)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        h = self.conv1(x, edge_index, edge_weight).relu()
        return self.leave(self.conv2(h, edge_index, edge_weight).relu())


@dataclass(frozen=True)
class Network:
    """The ratings, members named 0, 1, 2, ..., and their features."""

    source: NDArray[np.int64]
    target: NDArray[np.int64]
    weight: NDArray[np.float32]
    time: NDArray[np.float64]
    x: Float32

    def __len__(self) -> int:
        return len(self.source)

    @property
    def history(self) -> int:
        return int(HISTORY * len(self))

    @property
    def cut(self) -> int:
        return int(CUT * len(self))

    @property
    def negative(self) -> NDArray[np.bool_]:
        return self.weight < 0

    def graph(self, stop: int) -> lg.Graph:
        """The graph of the first `stop` ratings."""
        edges = lg.EdgeSchema(weighted=True, timed=True)
        graph = lg.Graph(lg.Schema({"member": self.x.shape[1]}, {RATES: edges}))
        graph.apply(lg.Events().add_nodes(np.arange(len(self.x)), self.x))
        graph.apply(self.events(0, stop))
        return graph

    def events(self, start: int, stop: int) -> lg.Events:
        part, time = slice(start, stop), np.arange(start, stop, dtype=np.float64)
        return lg.Events().add_edges(
            self.source[part], self.target[part], weight=self.weight[part], time=time
        )


def read(ratings: Ratings) -> Network:
    members, position = np.unique(np.concatenate([ratings.src, ratings.dst]), return_inverse=True)
    source, target = position[: len(ratings)], position[len(ratings) :]
    stop, n = int(HISTORY * len(ratings)), len(members)
    rated = np.bincount(target[:stop], minlength=n)
    rating = np.bincount(source[:stop], minlength=n)
    marks = np.bincount(target[:stop], ratings.weight[:stop], minlength=n) / np.maximum(rated, 1)
    known = rated + rating > 0
    x = np.stack([np.log1p(rated), np.log1p(rating), marks, known, np.ones(n)], axis=1)
    return Network(source, target, ratings.weight, ratings.time, x.astype(np.float32))


def query_of(by: NeighborsBy) -> Query:
    return Query("member").hop(RATES, 25, direction="in", by=by).hop(RATES, 10, direction="in", by=by)


def train(network: Network, by: NeighborsBy, seed: int, epochs: int) -> Risk:
    """On each rating of the training part, in the graph before its batch."""
    torch.manual_seed(seed)
    module = Risk(network.x.shape[1])
    optimizer = torch.optim.Adam(module.parameters(), lr=0.003)
    query, negative = query_of(by), torch.from_numpy(network.negative.astype(np.float32))
    for epoch in range(epochs):
        graph = network.graph(network.history)
        for start in range(network.history, network.cut, BATCH):
            stop = min(start + BATCH, network.cut)
            asked = network.target[start:stop]
            sample = sample_query(graph, asked, query, attributes=True, seed=1000 * seed + epoch)
            logits = module(*tensors(sample))[torch.from_numpy(sample.inverse["member"]), 0]
            loss = nn.functional.binary_cross_entropy_with_logits(logits, negative[start:stop])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            graph.apply(network.events(start, stop))
    return module.eval()


def tensors(sample: HeteroSubgraph) -> tuple[Tensor, Tensor, Tensor]:
    edge_index = np.stack([sample.row[RATES], sample.col[RATES]])
    columns = (sample.x["member"], edge_index, sample.edge_weight[RATES])
    x, edges, weight = (torch.from_numpy(column) for column in columns)
    return x, edges, weight


def seen_by(network: Network) -> dict[str, NDArray[np.int64]]:
    """For each latency, by its name, how many ratings are seen when each one is asked about."""
    before = np.arange(len(network))
    seen = {}
    for latency in LATENCIES:
        hidden = round(latency * RATE)
        seen[f"{latency:g} s ({hidden:,} hidden)"] = before - hidden
    for said, latency in REAL.items():
        visible = np.searchsorted(network.time, network.time - latency, "right")
        seen[f"at real pace, {said}"] = np.minimum(visible, before)
    return seen | {"never": np.full(len(network), network.cut)}


def score(
    network: Network,
    models: Sequence[SampledForward],
    by: NeighborsBy,
    seen: NDArray[np.int64],
    every: int,
) -> list[float]:
    """The AUC of each model on every so many-th rating of the test part, all from the same samples."""
    asked = range(network.cut, len(network), every)
    applied = int(seen[asked[0]])
    graph = network.graph(applied)
    presampler = Presampler(graph, query_of(by), seed=1)
    scores: list[list[float]] = [[] for _ in models]
    for i in asked:
        if seen[i] > applied:
            graph.apply(network.events(applied, int(seen[i])))
            applied = int(seen[i])
        sample = presampler.sample([network.target[i]])
        for model, rows in zip(models, scores, strict=True):
            rows.append(model.predict(sample).item())
    negative = network.negative[asked]
    return [area(np.array(rows)[negative], np.array(rows)[~negative]) for rows in scores]


def area(positive: NDArray[np.float64], negative: NDArray[np.float64]) -> float:
    """How likely a positive is above a negative, ties as halves."""
    ordered = np.sort(negative)
    below = np.searchsorted(ordered, positive, "left")
    up_to = np.searchsorted(ordered, positive, "right")
    return float((below + up_to).sum() / (2 * len(positive) * len(negative)))


def measure(network: Network, by: NeighborsBy, title: str, quick: bool, report: Report) -> None:
    epochs, seeds, every = (QUICK_EPOCHS, QUICK_SEEDS, QUICK_EVERY) if quick else (EPOCHS, SEEDS, EVERY)
    modules = [train(network, by, seed, epochs) for seed in range(seeds)]
    models = [SampledForward(lg.Model.from_pyg(module)) for module in modules]
    best: list[float] = []
    for said, seen in seen_by(network).items():
        areas = score(network, models, by, seen, every)
        best = best or areas
        report.add(
            f"{title}, {said}",
            np.mean(areas),
            "AUC",
            higher_is_better=True,
            aim=np.mean(best) - MOST_LOST if TYPICAL in said else None,
            peer="every write seen",
            peer_value=np.mean(best),
        )
        lost = np.subtract(best, areas)
        report.add(f"{title}, {said}, lost", np.mean(lost), "AUC")
        report.add(f"{title}, {said}, lost, deviation over seeds", np.std(lost), "AUC")
    report.add(f"{title}, 0 s, deviation over seeds", np.std(best), "AUC")


def main() -> None:
    options = arguments(__doc__).parse_args()
    torch.set_num_threads(1)
    network = read(load())
    report = Report(f"accuracy over ingestion latency, {RATE} ratings a second")
    strategies: dict[NeighborsBy, str] = {"latest": "TopK", "uniform": "random"}
    for by, title in strategies.items():
        measure(network, by, title, options.quick, report)
    report.finish(options.json)


if __name__ == "__main__":
    main()
