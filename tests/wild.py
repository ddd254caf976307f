"""Random networks on data as it comes: columns of magnitudes from 1e-6 to 1e9, and spikes that come and go.

A case is a function of two numbers: the first draws a network that begins with one of the importable
convolutions, the second a small graph and a stream of batches for it. To import a network takes some forty
times as long as to run a stream, so streams share one. In a stream features go to their square, or orders of
magnitude away, and back; edges come and go, and so do weights and features of edges. The weights of the
first layer are as training on standardised columns leaves them: a column of 1.7e9 says no more than one of
0.1. Behind it stand norms, tanh and sigmoids, so that small columns are read as well as large ones. When the
stream is over, all predictions are judged against PyG in float64 on the graph built anew.

    python tests/wild.py --networks 5000 --streams 20 --json FILE    # 100,000 cases
    python tests/wild.py --first 4711 --networks 1 --stream 3        # one case again
"""

from __future__ import annotations

import argparse
import copy
import itertools
import json
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric import nn as pyg

import livegnn._core as _core
import modules
from livegnn import Engine, Events, Graph, Model, ModelError
from livegnn.graph import EdgeSchema, Schema
from livegnn.oracle.exactness import Verification, judge
from livegnn.types import EdgeType

HIDDEN, OUT, EDGE = 11, 7, modules.EDGE_WIDTH
"""Widths that no sum or multiple of the input's 2 or 4 columns is equal to: see `standardise`."""

RELATIONS: tuple[EdgeType, ...] = tuple(("node", name, "node") for name in ("pays", "knows", "owes"))

NEARBY = 32
"""Graphs beside which a failure is looked at once more: see `Case.explain`."""

Convolution = Callable[[int, int], nn.Module]


class Then(nn.Module):
    """A convolution whose output is `width` channels wide, whatever is asked for, and a linear layer."""

    def __init__(self, conv: nn.Module, width: int, outputs: int) -> None:
        super().__init__()
        self.conv, self.linear = conv, nn.Linear(width, outputs)

    def forward(self, x, edge_index, edge_weight=None):
        h = self.conv(x, edge_index) if edge_weight is None else self.conv(x, edge_index, edge_weight)
        return self.linear(h)


class Gated(nn.Module):
    """GatedGraphConv lets the input itself through its gates, so it gets columns of one size."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.enter, self.conv = nn.Linear(inputs, outputs), pyg.GatedGraphConv(outputs, 2)

    def forward(self, x, edge_index):
        return self.conv(self.enter(x), edge_index)


def network(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, 6), nn.ReLU(), nn.Linear(6, outputs))


PLAIN: dict[str, Convolution] = {
    **modules.CONVOLUTIONS,
    **{kind: make for kind, make in modules._ON_EDGES.items() if "_edge" not in kind},
    "EdgeConv": lambda i, o: pyg.EdgeConv(network(2 * i, o)),
    "EdgeConv mean": lambda i, o: pyg.EdgeConv(network(2 * i, o), aggr="mean"),
    "FeaStConv": lambda i, o: pyg.FeaStConv(i, o, heads=2),
    "GeneralConv": lambda i, o: pyg.GeneralConv(i, o),
    "GeneralConv attention": lambda i, o: pyg.GeneralConv(i, o, heads=2, attention=True),
    "GeneralConv dot product": lambda i, o: pyg.GeneralConv(
        i, o, heads=2, attention=True, attention_type="dot_product"
    ),
    "ClusterGCNConv": lambda i, o: pyg.ClusterGCNConv(i, o, diag_lambda=0.3),
    "TAGConv": lambda i, o: pyg.TAGConv(i, o, K=2),
    "SSGConv": lambda i, o: pyg.SSGConv(i, o, alpha=0.1, K=2),
    "APPNP": lambda i, o: Then(pyg.APPNP(K=2, alpha=0.1), i, o),
    "MixHopConv": lambda i, o: Then(pyg.MixHopConv(i, 4), 12, o),
    "SuperGATConv": lambda i, o: pyg.SuperGATConv(i, o, heads=1),
    "FiLMConv": lambda i, o: pyg.FiLMConv(i, o),
    "SimpleConv": lambda i, o: Then(pyg.SimpleConv("mean", combine_root="cat"), 2 * i, o),
    "GatedGraphConv": Gated,
}
WEIGHTED: dict[str, Convolution] = {
    "gcn weighted": pyg.GCNConv,
    "graph add weighted": lambda i, o: pyg.GraphConv(i, o, aggr="add"),
    "graph mean weighted": lambda i, o: pyg.GraphConv(i, o, aggr="mean"),
    "LEConv": pyg.LEConv,
    "SGConv": lambda i, o: pyg.SGConv(i, o, K=2),
    "LGConv": lambda i, o: Then(pyg.LGConv(), i, o),
}
FEATURED: dict[str, Convolution] = {
    **{kind: make for kind, make in modules._ON_EDGES.items() if "_edge" in kind},
    "NNConv": lambda i, o: pyg.NNConv(i, o, network(EDGE, i * o)),
}
RELATIONAL: dict[str, Convolution] = {
    "RGCNConv": lambda i, o: pyg.RGCNConv(i, o, len(RELATIONS)),
    "RGCNConv add": lambda i, o: pyg.RGCNConv(i, o, len(RELATIONS), num_bases=2, aggr="add"),
    "FastRGCNConv": lambda i, o: pyg.FastRGCNConv(i, o, len(RELATIONS)),
    "RGATConv": lambda i, o: pyg.RGATConv(i, o, len(RELATIONS)),
}


class Steep(nn.Module):
    """A steep function of small differences: of sums over neighbours, it magnifies what rounding leaves."""

    def __init__(self, inputs: int, outputs: int, function: str) -> None:
        super().__init__()
        self.enter, self.leave, self.function = nn.Linear(inputs, 6), nn.Linear(6, outputs), function
        self.mean, self.sum = (pyg.SimpleConv(aggr) for aggr in ("mean", "sum"))
        self.power = pyg.SimpleConv(pyg.aggr.PowerMeanAggregation(3.0))

    def forward(self, x, edge_index):
        h = self.enter(x)
        if self.function == "direction":
            h = F.normalize(h - self.mean(h, edge_index), dim=-1)
        elif self.function == "logarithm":
            h = torch.log(self.sum(h.relu(), edge_index) + 1e-3)
        elif self.function == "power mean":
            h = self.power(h.relu() + 0.1, edge_index)
        else:
            mean = self.mean(h, edge_index)
            variance = self.mean(h * h, edge_index) - mean * mean
            h = (variance.relu() + 1e-5).sqrt() / (mean.abs() + 0.1)
        return self.leave(h)


STEEP: dict[str, Convolution] = {
    "SAGEConv std": lambda i, o: pyg.SAGEConv(i, o, aggr="std"),
    "SAGEConv var": lambda i, o: pyg.SAGEConv(i, o, aggr="var"),
    "PNAConv": lambda i, o: pyg.PNAConv(
        i, o, ["mean", "max", "std"], ["identity", "amplification"], deg=torch.tensor([1, 4, 9, 4])
    ),
    "direction": lambda i, o: Steep(i, o, "direction"),
    "logarithm": lambda i, o: Steep(i, o, "logarithm"),
    "power mean": lambda i, o: Steep(i, o, "power mean"),
    "coefficient of variation": lambda i, o: Steep(i, o, "coefficient of variation"),
}
STEEP_FROM = 1_000_000
"""From this number on, a case has a network of `STEEP`, most columns have means far from 0, and most nodes
few neighbours."""

KINDS = {
    **dict.fromkeys(PLAIN, ""),
    **dict.fromkeys(WEIGHTED, "weight"),
    **dict.fromkeys(FEATURED, "features"),
    **dict.fromkeys(RELATIONAL, "relation"),
}
"""Kind -> what it reads of edges."""


class Network(nn.Module):
    """The wild convolution, perhaps another one, and what people put behind."""

    def __init__(self, rng: np.random.Generator, kind: str, inputs: int) -> None:
        super().__init__()
        self.reads = KINDS.get(kind, "")
        self.first = (PLAIN | WEIGHTED | FEATURED | RELATIONAL | STEEP)[kind](inputs, HIDDEN)
        self.norm = modules.NORMS[str(rng.choice(["none", "batch", "layer"]))](HIDDEN)
        self.activation = modules.ACTIVATIONS[str(rng.choice(["relu", "tanh", "tanh", "sigmoid", "elu"]))]()
        self.deep = self.reads != "relation" and rng.random() < 0.5
        second = str(rng.choice(list(PLAIN)))
        self.second = PLAIN[second](HIDDEN, HIDDEN) if self.deep else nn.Identity()
        self.between = nn.Tanh() if self.deep else nn.Identity()
        self.head = nn.Linear(HIDDEN, OUT)
        self.last = modules.ACTIVATIONS[str(rng.choice(["none", "tanh", "sigmoid"]))]()
        parts = [self.norm, self.activation, second if self.deep else None, self.last]
        names = [part if isinstance(part, str) else type(part).__name__ for part in parts if part is not None]
        self.name = ", ".join([kind, *(name for name in names if name != "Identity")])

    def finish(self, h, edge_index):
        h = self.activation(self.norm(h))
        if self.deep:
            h = self.between(self.second(h, edge_index))
        return self.last(self.head(h))

    def forward(self, x, edge_index, edge_weight=None, edge_attr=None):
        if self.reads == "weight":
            return self.finish(self.first(x, edge_index, edge_weight), edge_index)
        if self.reads == "features":
            return self.finish(self.first(x, edge_index, edge_attr), edge_index)
        return self.finish(self.first(x, edge_index), edge_index)


class RelationalNetwork(Network):
    def forward(self, x, edge_index, edge_type):
        return self.finish(self.first(x, edge_index, edge_type), edge_index)


@torch.no_grad()
def standardise(first: nn.Module, columns: torch.Tensor, edges: torch.Tensor) -> None:
    """Divides what a layer multiplies a column with by the column's size. columns, edges: those sizes.

    Which parameters meet the columns is told by their shape: as many rows or channels as there are columns,
    or twice as many, or others behind.
    """
    width = len(columns)
    sizes = {
        width: columns,
        2 * width: columns.repeat(2),  # both ends of an edge
        width + EDGE: torch.cat([columns, edges]),
        width + 6: torch.cat([columns, torch.ones(6)]),  # PinSAGE: a node's own, and 6 of its neighbours
        EDGE: edges,
    }
    for name, parameter in first.named_parameters():
        if isinstance(first, pyg.GMMConv) and name in ("mu", "sigma"):
            parameter *= edges  # they are compared with columns
        elif parameter.dim() > 1 and parameter.shape[-2] == width:  # RGCN and RGAT: [in, out]
            parameter /= columns[:, None]
        elif parameter.dim() > 1 and parameter.shape[-1] in sizes:
            parameter /= sizes[parameter.shape[-1]]
    # Where what comes out is in columns again:
    if isinstance(first, pyg.GINEConv):  # is added to a row
        first.lin.weight.mul_(columns[:, None] ** 2 / edges)
        first.lin.bias.mul_(columns)
    if isinstance(first, pyg.SAGEConv) and first.project:
        first.lin.weight.copy_(first.lin.weight * columns[:, None] ** 2 / columns)
        first.lin.bias.mul_(columns)
    if isinstance(first, pyg.NNConv):  # is a matrix from a row's columns to outputs
        for parameter in first.nn[-1].parameters():
            by_column = parameter.reshape(width, -1) / columns[:, None]
            parameter.copy_(by_column.reshape(parameter.shape))


class Drawn:
    """A network and the columns that it reads, from a number."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.rng = np.random.default_rng([2026, number])
        self.steep = number >= STEEP_FROM
        rng, kinds = self.rng, list(STEEP if self.steep else KINDS)
        self.kind = kinds[self.number % len(kinds)]
        self.reads = KINDS.get(self.kind, "")
        self.columns = self._draw_columns(int(rng.choice([2, 4])))
        self.edge_columns = np.stack([np.zeros(EDGE), 10.0 ** rng.uniform(-3, 3, EDGE)])
        if self.kind.startswith("gmm"):
            self.edge_columns[1] = 1.0
        cls = RelationalNetwork if self.reads == "relation" else Network
        self.module = modules.fill(cls(rng, self.kind, self.columns.shape[1]), self.number)
        sizes = (np.abs(self.columns).max(axis=0), self.edge_columns[1])
        standardise(self.module.first, *(torch.from_numpy(size).float() for size in sizes))
        self.name = f"{self.module.name}, columns {', '.join(f'{size:.0e}' for size in sizes[0])}"

    @cached_property
    def model(self) -> Model:
        """Imported when it is asked for, which takes longer than all else."""
        return self._import()

    def _draw_columns(self, width: int) -> np.ndarray:
        """Centre and spread of each column."""
        rng = self.rng
        if self.steep:
            spread = 10.0 ** rng.uniform(-3, 3, width)
            return np.stack([spread * rng.choice([0, 5, 5, 30], width), spread])
        if rng.random() < 0.25:  # a time and amounts
            spread = 10.0 ** rng.uniform(-2, 4, width)
            centre = np.zeros(width)
            centre[0], spread[0] = 1.7e9, 1e7
            return np.stack([centre, spread])
        spread = 10.0 ** rng.uniform(-6, 9, width)
        return np.stack([spread * rng.choice([0, 0, 3], width), spread])

    def _import(self) -> Model:
        if self.reads == "relation":
            return Model.from_pyg(self.module, relations=RELATIONS)
        width = self.columns.shape[1]
        edge_channels = EDGE if self.reads == "features" else 0
        weighted = self.reads == "weight"
        return Model.from_pyg(
            self.module, edge_weight=weighted, edge_channels=edge_channels, in_channels=width
        )


@lru_cache(maxsize=1)
def draw_network(number: int) -> Drawn:
    return Drawn(number)


class Case:
    """A graph and a stream for a network. number: of the network. stream: the number of the stream."""

    def __init__(self, number: int, stream: int = 0) -> None:
        self.number, self.stream = number, stream
        self.network = draw_network(number)
        # The first stream continues the draws of its network.
        self.rng = (
            np.random.default_rng([2026, number, stream]) if stream else copy.deepcopy(self.network.rng)
        )
        self.kind, self.reads, self.steep = self.network.kind, self.network.reads, self.network.steep
        self.columns, self.edge_columns = self.network.columns, self.network.edge_columns
        self.module = self.network.module
        self._make_graph()
        self.mode = str(self.rng.choice(["eager", "eager", "eager", "lazy"]))
        self.name = f"{self.network.name}, {self.mode}"

    @cached_property
    def engine(self) -> Engine:
        return Engine(self.graph, self.network.model, threads=1, mode=self.mode, non_finite="allow")

    def _make_graph(self) -> None:
        rng = self.rng
        self.nodes = int(rng.integers(6, 25))
        self.edge_types = RELATIONS if self.reads == "relation" else (("node", "to", "node"),)
        one = EdgeSchema(weighted=self.reads == "weight", edge_dim=EDGE if self.reads == "features" else 0)
        self.graph = Graph(Schema({"node": self.columns.shape[1]}, dict.fromkeys(self.edge_types, one)))
        self.home = self._rows(self.columns, self.nodes)
        self.x = self.home.copy()
        self.edges: dict[tuple[EdgeType, int, int], np.ndarray | float | None] = {}
        self.edge_home: dict[tuple[EdgeType, int, int], np.ndarray | float | None] = {}
        events = Events().add_nodes(np.arange(self.nodes), self.x)
        for _ in range(int(rng.integers(1, 3) if self.steep else rng.integers(2, 9)) * self.nodes):
            self._add_edge(events)
        self.graph.apply(events)

    def _rows(self, columns: np.ndarray, count: int) -> np.ndarray:
        centre, spread = columns
        return (centre + spread * self.rng.standard_normal((count, len(spread)))).astype(np.float32)

    # -- the stream

    def _add_edge(self, events: Events) -> None:
        rng = self.rng
        source, target = rng.integers(0, self.nodes, 2).tolist()
        key = (self.edge_types[int(rng.integers(len(self.edge_types)))], source, target)
        value: np.ndarray | float | None = None
        if self.reads == "weight":
            value = float(np.float32(rng.uniform(0.1, 2)))
        elif self.reads == "features":
            value = self._rows(self.edge_columns, 1)[0]
        self._set_edge(events, key, value)
        self.edge_home[key] = value

    def _set_edge(self, events: Events, key: tuple[EdgeType, int, int], value) -> None:
        edge_type, source, target = key
        columns = {"weight": {"weight": [value]}, "features": {"edge_attr": [value]}}.get(self.reads, {})
        events.add_edges([source], [target], edge_type=edge_type, **columns)
        self.edges[key] = value

    def _set_node(self, events: Events, node: int, row: np.ndarray) -> None:
        self.x[node] = row
        events.set_features([node], row[None])

    def _spike(self, row: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """One column to its square, or some orders of magnitude away."""
        rng, row = self.rng, np.array(row, np.float64)
        column = int(rng.integers(row.size))
        value = row.flat[column]
        square = rng.random() < 0.5
        row.flat[column] = value * abs(value) if square else value * 10.0 ** rng.uniform(2, 7)
        return row.astype(np.float32)

    def batches(self) -> Iterator[Events]:
        rng = self.rng
        for _ in range(int(rng.integers(6, 20))):
            events = Events()
            for _ in range(int(rng.integers(1, 4))):
                self._act(events)
            yield events
        back = Events()
        stay = rng.random() < 0.3  # some of them remain where they are
        for node in range(self.nodes):
            if (self.x[node] != self.home[node]).any() and not (stay and rng.random() < 0.3):
                self._set_node(back, node, self.home[node])
        for key, value in self.edges.items():
            if np.any(value != self.edge_home[key]):
                self._set_edge(back, key, self.edge_home[key])
        yield back

    def _act(self, events: Events) -> None:
        rng = self.rng
        node = int(rng.integers(self.nodes))
        away = [k for k in range(self.nodes) if (self.x[k] != self.home[k]).any()]
        choice = rng.random()
        if choice < 0.35:
            self._set_node(events, node, self._spike(self.home[node], self.columns))
        elif choice < 0.6 and away:
            back = int(rng.choice(away))
            self._set_node(events, back, self.home[back])
        elif choice < 0.7:
            self.home[node] = self._rows(self.columns, 1)[0]
            self._set_node(events, node, self.home[node])
        elif choice < 0.85 or not self.edges:
            self._add_edge(events)
        else:
            key = list(self.edges)[int(rng.integers(len(self.edges)))]
            if self.reads in ("weight", "features") and rng.random() < 0.7:
                home = self.edge_home[key]
                new = self._spike(home, self.edge_columns) if np.all(self.edges[key] == home) else home
                self._set_edge(events, key, float(new) if self.reads == "weight" else new)
            else:
                events.remove_edges([key[1]], [key[2]], edge_type=key[0])
                del self.edges[key], self.edge_home[key]

    # -- the judgement

    @torch.no_grad()
    def recompute(self, dtype: torch.dtype) -> np.ndarray:
        """What PyG says of the graph, built anew."""
        module = self.module.to(dtype)
        keys = list(self.edges)
        ends = [(source, target) for _, source, target in keys]
        edge_index = torch.tensor(ends, dtype=torch.long).reshape(-1, 2).T
        x = torch.from_numpy(self.x).to(dtype)
        if self.reads == "relation":
            numbers = torch.tensor([RELATIONS.index(k[0]) for k in keys], dtype=torch.long)
            return module(x, edge_index, numbers).numpy()
        values = np.array([self.edges[k] for k in keys], np.float32) if self.reads else np.zeros(0)
        given = torch.from_numpy(values).to(dtype)
        if self.reads == "features":
            return module(x, edge_index, None, given.reshape(-1, EDGE)).numpy()
        return module(x, edge_index, given).numpy()

    def explain(self) -> dict[str, float]:
        """Of a case beyond the bound: whether the stream did it, and whether float32 could say better.

        fresh: how far, in bounds, an engine is that was made of the graph as it is; as far, if no rounding
        that the stream left behind is to blame. nearby: how far the engine is if the float32 that excuses it
        is the worst of PyG's on this graph and on `NEARBY` whose features are some roundings away. PyG on
        one graph is one throw of the dice: where a logit of 1e6 decides, it may be right by chance.
        """
        nodes = np.arange(self.nodes)
        got, expected = self.engine.predict(nodes), self.recompute(torch.float64)
        fresh = Engine(self.graph, self.network.model, threads=1, non_finite="allow").predict(nodes)
        worst = np.abs(self.recompute(torch.float32) - expected)
        rng, x = np.random.default_rng([self.number, self.stream]), self.x
        for _ in range(NEARBY):
            self.x = (x * (1 + rng.uniform(-1, 1, x.shape) * 2.0**-20)).astype(np.float32)
            worst = np.fmax(worst, np.abs(self.recompute(torch.float32) - self.recompute(torch.float64)))
        self.x = x
        return {
            "fresh": judge(fresh, expected, lambda: self.recompute(torch.float32)).part,
            "nearby": judge(got, expected, expected + worst).part,
        }

    def run(self) -> Verification:
        for events in self.batches():
            self.engine.apply(events)
        assert np.array_equal(self.graph.features(np.arange(self.nodes)), self.x)
        expected = self.recompute(torch.float64)
        return judge(
            self.engine.predict(np.arange(self.nodes)), expected, lambda: self.recompute(torch.float32)
        )


# -- many cases


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--first", type=int, default=0, help="the number of the first network")
    parser.add_argument("--networks", type=int, default=1000, help="how many")
    parser.add_argument("--steep", type=int, default=0, help=f"how many from {STEEP_FROM:,} on, besides")
    parser.add_argument("--streams", type=int, default=1, help="how many for each network")
    parser.add_argument("--stream", type=int, help="the number of the only one")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was found to FILE")
    options = parser.parse_args()
    failures: list[dict[str, object]] = []
    refused: list[int] = []
    cases = 0
    worst: dict[str, float] = defaultdict(float)
    judged: Counter[str] = Counter()
    started = time.perf_counter()
    steep = range(STEEP_FROM, STEEP_FROM + options.steep)
    networks = (*range(options.first, options.first + options.networks), *steep)
    streams = range(options.streams) if options.stream is None else [options.stream]
    for number, stream in itertools.product(networks, streams):
        try:
            case = Case(number, stream)
            found = case.run()
        except ModelError as error:  # the importer itself compares, in float32
            if number not in refused:
                refused.append(number)
                print(f"network {number}: not imported: {error}", flush=True)
            continue
        cases += 1
        judged[case.kind] += 1
        worst[case.kind] = max(worst[case.kind], found.part)
        if not found.ok:
            why = case.explain()
            failures.append(
                {"network": number, "stream": stream, "parts": case.name, "part": found.part, **why}
            )
            print(f"network {number}, stream {stream}: {case.name}: {found}, {why}", flush=True)
        elif options.networks == 1:
            print(f"network {number}, stream {stream}: {case.name}: {found}")
    seconds = time.perf_counter() - started
    print(f"{cases:,} cases of {len(networks):,} networks: {len(failures)} beyond the bound, {seconds:.0f} s")
    if options.json:
        kinds = [
            {"kind": kind, "cases": judged[kind], "worst": round(worst[kind], 6)} for kind in sorted(judged)
        ]
        result = {
            "first": options.first,
            "networks": len(networks),
            "cases": cases,
            "seconds": round(seconds),
            "instruction_set": _core.instruction_set,
            "failures": failures,
            "not imported": refused,
            "kinds": kinds,
        }
        options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
