"""Nodes with very many in-edges: how far a prediction is from PyG in float64, family by family.

One node, the hub, has a hundred, then more, up to a million in-neighbours; some others have a few. Columns
of features are what data has and sums dislike: a constant, one that hardly varies, one that grows from the
first neighbour to the last, one below 1, and normal ones; or else all nodes have the same features at first.
The engine is compared

- as it is made, when everything is summed for the first time,
- after batches that add edges of the hub, remove others, and set features of neighbours, some of which are a
  thousand times as large for one batch; then once more after a change of the hub's own features, which is
  what attention reads of its target.

The difference is the largest of any node, channel by channel, as a part of the channel's largest value; that
of PyG in float32 stands beside it.

What to expect. Added up one after the other, n equal terms are off by up to n * 2**-25 of their sum, since
each step rounds the same way: 3 % at a million. In blocks of 128 that are joined in pairs it is at most
(128 + log2(n / 128)) * 2**-24 = 8e-6, and a tenth of that where terms differ.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch_geometric import nn as pyg

import livegnn as lg
from livegnn.oracle.exactness import EXACTNESS, judge
from report import Report, arguments

WIDTH, HEADS = 6, 2
HUB = 0
BATCHES, PART = 12, 24
SPIKE = np.float32(1000)
EQUAL = np.array([1 / 3, 1.1, 0.7, 0.1, -0.9, 0.05], np.float32)
Float32 = NDArray[np.float32]


@dataclass(frozen=True)
class Family:
    """A convolution, and whether it reads the weights of edges."""

    make: Callable[[], nn.Module]
    weighted: bool = False


FAMILIES = {
    "sum (SAGE)": Family(lambda: pyg.SAGEConv(WIDTH, WIDTH, aggr="sum")),
    "mean (SAGE)": Family(lambda: pyg.SAGEConv(WIDTH, WIDTH, aggr="mean")),
    "weighted sum (GraphConv)": Family(lambda: pyg.GraphConv(WIDTH, WIDTH), weighted=True),
    "degrees (GCN)": Family(lambda: pyg.GCNConv(WIDTH, WIDTH), weighted=True),
    "attention (GAT)": Family(lambda: pyg.GATConv(WIDTH, WIDTH // HEADS, heads=HEADS)),
    "attention of both ends (GATv2)": Family(lambda: pyg.GATv2Conv(WIDTH, WIDTH // HEADS, heads=HEADS)),
    "dot products (Transformer)": Family(lambda: pyg.TransformerConv(WIDTH, WIDTH // HEADS, heads=HEADS)),
    "cosines (AGNN)": Family(lambda: pyg.AGNNConv()),
    "general attention (General)": Family(
        lambda: pyg.GeneralConv(WIDTH, WIDTH, attention=True, heads=HEADS, attention_type="additive")
    ),
    "gates (ResGated)": Family(lambda: pyg.ResGatedGraphConv(WIDTH, WIDTH)),
    "maximum (SAGE)": Family(lambda: pyg.SAGEConv(WIDTH, WIDTH, aggr="max")),
}


class OneLayer(nn.Module):
    def __init__(self, family: Family) -> None:
        super().__init__()
        self.conv, self.weighted = family.make(), family.weighted

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return self.conv(x, edge_index, edge_weight) if self.weighted else self.conv(x, edge_index)


class Star:
    """A hub with many in-neighbours, and nodes that have a few, as arrays; and batches that change it.

    equal: all nodes have the same features to begin with.
    """

    def __init__(self, degree: int, *, equal: bool = False, seed: int = 0) -> None:
        self._rng = np.random.default_rng([seed, degree])
        self._equal = equal
        self._degree = degree
        spare = BATCHES * PART
        nodes = 1 + degree + spare
        self.x = self._features(nodes)
        self._src = np.arange(1, degree + 1)
        few = min(degree, 1000)
        self._others = np.stack([np.arange(few), np.arange(1, few + 1)])  # a chain, from the hub on
        self._weight = self._weights(degree)
        self._other_weight = self._weights(few)

    def graph(self, *, weighted: bool) -> lg.Graph:
        src, dst, weight = self._edges()
        return lg.Graph.from_edges(src, dst, x=self.x, **({"weight": weight} if weighted else {}))

    def batches(self, *, weighted: bool) -> Iterator[lg.Events]:
        spiked = np.zeros(0, np.int64)
        for number in range(BATCHES):
            added = 1 + self._degree + np.arange(number * PART, (number + 1) * PART)
            removed = self._rng.choice(len(self._src) - PART * (number > 0), PART, replace=False)
            gone, weights = self._src[removed], self._weights(PART)
            self._src = np.append(np.delete(self._src, removed), added)
            self._weight = np.append(np.delete(self._weight, removed), weights)
            hubs = np.full(PART, HUB)
            events = lg.Events().remove_edges(gone, hubs)
            events.add_edges(added, hubs, **({"weight": weights} if weighted else {}))
            self.x[spiked] = self._features(len(spiked))
            changed = np.setdiff1d(self._rng.integers(1, len(self.x), PART), spiked)
            size = np.where(self._rng.random((len(changed), 1)) < 0.2, SPIKE, np.float32(1))
            last = number == BATCHES - 1
            self.x[changed] = self._features(len(changed)) * (np.float32(1) if last else size)
            ids = np.concatenate([spiked, changed])
            yield events.set_features(ids, self.x[ids])
            spiked = changed
        self.x[HUB] = self._features(1)[0]
        yield lg.Events().set_features([HUB], self.x[[HUB]])

    def tensors(self, dtype: torch.dtype, *, weighted: bool) -> tuple[Tensor, ...]:
        """The graph as it is now, for PyG."""
        src, dst, weight = self._edges()
        given = [torch.from_numpy(self.x).to(dtype), torch.from_numpy(np.stack([src, dst]))]
        return (*given, torch.from_numpy(weight).to(dtype)) if weighted else tuple(given)

    def _edges(self) -> tuple[NDArray[np.int64], NDArray[np.int64], Float32]:
        return (
            np.concatenate([self._src, self._others[0]]),
            np.concatenate([np.full(len(self._src), HUB), self._others[1]]),
            np.concatenate([self._weight, self._other_weight]),
        )

    def _features(self, count: int) -> Float32:
        columns = [
            np.full(count, 1 / 3),
            1 + 0.01 * self._rng.standard_normal(count),
            np.linspace(0, 1, count),
            self._rng.random(count),
            self._rng.standard_normal(count),
            0.1 * self._rng.standard_normal(count),
        ]
        rows = np.stack(columns, axis=1).astype(np.float32)
        return np.broadcast_to(EQUAL, rows.shape).copy() if self._equal else rows

    def _weights(self, count: int) -> Float32:
        return np.where(self._rng.random(count) < 0.5, 1 / 3, self._rng.random(count) + 0.1).astype(
            np.float32
        )


@dataclass(frozen=True)
class Difference:
    """The largest differences from PyG in float64, as parts of each channel's scale: ours, and float32's."""

    ours: float
    float32: float


def compare(engine: lg.Engine, module: OneLayer, star: Star) -> Difference:
    """What the engine and PyG in float32 are off, on the graph as it is now."""
    weighted = module.weighted
    with torch.no_grad():
        exact = copy.deepcopy(module).double()(*star.tensors(torch.float64, weighted=weighted)).numpy()
        single = module(*star.tensors(torch.float32, weighted=weighted)).numpy()
    ours = engine.predict(np.arange(len(star.x)))
    return Difference(*(EXACTNESS * judge(values, exact).part for values in (ours, single)))


@cache
def make(family: Family) -> tuple[OneLayer, lg.Model]:
    """A layer of the family and its model, which is imported once for all stars."""
    torch.manual_seed(0)
    module = OneLayer(family).eval()
    return module, lg.Model.from_pyg(module, in_channels=WIDTH, edge_weight=family.weighted)


def run(family: Family, star: Star, **settings: object) -> dict[str, Difference]:
    """How far a family is off at the start, after batches, and after a change of the hub itself.

    settings: of the engine.
    """
    module, model = make(family)
    engine = lg.Engine(star.graph(weighted=family.weighted), model, **settings)
    found = {"as made": compare(engine, module, star)}
    for number, events in enumerate(star.batches(weighted=family.weighted)):
        engine.apply(events)
        if number == BATCHES - 1:
            found["after batches"] = compare(engine, module, star)
    found["after a change of the hub"] = compare(engine, module, star)
    return found


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--degrees", nargs="+", type=int, help="default: 100 to 1,000,000; quick: to 10,000")
    parser.add_argument("--threads", type=int, default=2, help="of LiveGNN (default: 2)")
    options = parser.parse_args()
    degrees = options.degrees or [10**k for k in range(2, 5 if options.quick else 7)]

    report = Report(f"hubs, {degrees[0]:,} to {degrees[-1]:,} in-neighbours")
    for name in options.families:
        for degree, equal in product(degrees, (False, True)):
            found = run(FAMILIES[name], Star(degree, equal=equal), threads=options.threads)
            title = f"{name}, {degree:,}{' equal' if equal else ''}"
            for when, difference in found.items():
                report.add(
                    f"{title}: {when}",
                    difference.ours,
                    "of scale",
                    aim=EXACTNESS,
                    peer="PyG, float32",
                    peer_value=difference.float32,
                )
            shown = ", ".join(f"{one.ours:.1e} ({one.float32:.1e})" for one in found.values())
            report.console.print(f"{title}: {shown}", style="dim")
    report.note("Differences from PyG in float64, the largest of any node and channel.")
    report.finish(options.json)


if __name__ == "__main__":
    main()
