"""The edges that a division of a graph cuts, and its balance: a hash, METIS, Fennel, and a stream of nodes.

The stream doubles the graph: half of its nodes, drawn at random, are divided by METIS; the others arrive in
batches of 1,000, each with its edges to those that are there, and Fennel places them once. Then four
passes move nodes at the boundaries. Beside it stands METIS on the whole graph.

The graphs are the tenth of `communities` of graphs.py, and with --data FOLDER two real ones: tolokers, which
has few communities, and a sample of LDBC's social network, with 8 node types and 22 edge types.

What can be reached
-------------------
Of `communities`, a tenth of the edges is drawn without regard to communities. If the parts were unions of
communities, these alone would be cut: 0.1 (1 - 1 / parts). A hash cuts 1 - 1 / parts. A node that arrives
halfway through the stream finds three quarters of its neighbours placed: with 50 edges, 35 in its community,
so the largest count names its part almost always.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import livegnn._core as _core
from graphs import Int64, make
from livegnn.placement import Owners
from livegnn.placement.numbered import NumberedGraph
from livegnn.placement.partitioners import divide
from report import Report, arguments

Parts = NDArray[np.uint16]
BATCH = 1000
PARTS = (2, 4, 8, 16)
PASSES = 4
ROUNDED = 20  # nodes of a type and part, below which a node more is over 5 %


@dataclass(frozen=True)
class Edges:
    """A graph of several types: the first node of each type and the number of all; ends by number."""

    type_starts: Int64
    src: Int64
    dst: Int64

    @property
    def num_nodes(self) -> int:
        return int(self.type_starts[-1])

    @property
    def type_of(self) -> NDArray[np.uint32]:
        types = np.arange(len(self.type_starts) - 1, dtype=np.uint32)
        return np.repeat(types, np.diff(self.type_starts))

    def numbered(self, kept: NDArray[np.bool_] | None = None) -> NumberedGraph:
        """The graph, or that of the nodes that are kept, in their order."""
        kept = np.ones(self.num_nodes, np.bool_) if kept is None else kept
        place = np.cumsum(kept) - 1
        starts = np.concatenate([[0], np.cumsum(kept)])[self.type_starts]
        counts = np.diff(starts).tolist()
        both = kept[self.src] & kept[self.dst]
        src, dst, types = place[self.src[both]], place[self.dst[both]], range(len(counts))
        source_type, target_type = self.type_of[self.src[both]], self.type_of[self.dst[both]]
        edges = []
        for a in types:
            for b in types:
                these = (source_type == a) & (target_type == b)
                columns = (
                    (src[these] - starts[a]).astype(np.uint32),
                    (dst[these] - starts[b]).astype(np.uint32),
                )
                if len(columns[0]):
                    edges.append((a, columns[0], b, columns[1]))
        return NumberedGraph.from_edges(counts, edges)


def communities(quick: bool) -> Edges:
    graph = make("communities-tiny" if quick else "communities-tenth")
    return Edges(np.array([0, graph.num_nodes]), graph.src, graph.dst)


def tolokers(folder: Path) -> Edges:
    with np.load(folder / "tolokers.npz") as data:
        nodes, (a, b) = len(data["y"]), data["edges"].T.astype(np.int64)
    return Edges(np.array([0, nodes]), np.concatenate([a, b]), np.concatenate([b, a]))


def ldbc(folder: Path) -> Edges:
    with np.load(folder / "ldbc_snb_sf01.npz") as data:
        names = [name.removeprefix("node__") for name in data if name.startswith("node__")]
        starts = np.concatenate([[0], np.cumsum([len(data[f"node__{name}"]) for name in names])])
        ends: tuple[list[Int64], list[Int64]] = [], []
        for name in data:
            if name.startswith("edge__") and name.endswith("__src"):
                _, source, _, target, _ = name.split("__")
                ends[0].append(data[name].astype(np.int64) + starts[names.index(source)])
                ends[1].append(data[name[:-3] + "dst"].astype(np.int64) + starts[names.index(target)])
    return Edges(starts, np.concatenate(ends[0]), np.concatenate(ends[1]))


@dataclass(frozen=True)
class Stream:
    """The order in which nodes arrive; for each edge the later end and the earlier, in this order."""

    edges: Edges
    order: Int64
    later: Int64
    earlier: Int64
    rank: Int64

    @classmethod
    def of(cls, edges: Edges) -> Stream:
        order = np.random.default_rng(0).permutation(edges.num_nodes)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        apart = edges.src != edges.dst
        src, dst = edges.src[apart], edges.dst[apart]
        later = np.maximum(rank[src], rank[dst])
        sorted_ = np.argsort(later, kind="stable")
        return cls(edges, order, later[sorted_], np.minimum(rank[src], rank[dst])[sorted_], rank)

    @property
    def half(self) -> int:
        return self.edges.num_nodes // 2

    def run(self, start: Parts, parts: int) -> tuple[Parts, float, float]:
        """Owners by number after the stream; the worst balance meanwhile; seconds of Fennel.

        start: the owners of the first half, in the order of their numbers.
        """
        type_of, num_types = self.edges.type_of, len(self.edges.type_starts) - 1
        owners = np.zeros(self.edges.num_nodes, np.uint16)
        owners[np.sort(self.order[: self.half])] = start
        fennel, worst, seconds = _core.Fennel(parts, num_types), 0.0, 0.0

        def add(nodes: Int64, ends: Int64) -> None:
            loads = np.bincount(type_of[nodes] * parts + owners[nodes], minlength=num_types * parts)
            fennel.add(loads, ends)

        def ends_of(edges: slice) -> Int64:
            ends = self.order[np.concatenate([self.later[edges], self.earlier[edges]])]
            return np.bincount(type_of[ends], minlength=num_types)

        before = int(np.searchsorted(self.later, self.half))
        add(self.order[: self.half], ends_of(slice(0, before)))
        for first in range(self.half, len(self.order), BATCH):
            nodes = self.order[first : first + BATCH]
            end = int(np.searchsorted(self.later, first + BATCH))
            later, earlier = self.later[before:end], self.earlier[before:end]
            new = earlier >= first
            columns = (
                type_of[nodes],
                (later[~new] - first).astype(np.uint32),
                owners[self.order[earlier[~new]]],
                (later[new] - first).astype(np.uint32),
                (earlier[new] - first).astype(np.uint32),
                ends_of(slice(before, end)),
            )
            began = time.perf_counter()
            owners[nodes] = fennel.place(*columns)
            seconds += time.perf_counter() - began
            add(nodes, columns[-1])
            before = end
            worst = max([worst, *(balance_of(fennel.loads(type), parts) for type in range(num_types))])
        return owners, worst, seconds


def balance_of(loads: Int64, parts: int) -> float:
    """Most over mean; 1 for a type with too few nodes for the question."""
    nodes = int(loads.sum())
    return float(loads.max() * parts / nodes) if nodes >= ROUNDED * parts else 1.0


def measure(name: str, edges: Edges, report: Report) -> None:
    graph, stream = edges.numbered(), Stream.of(edges)
    kept = np.zeros(edges.num_nodes, np.bool_)
    kept[stream.order[: stream.half]] = True
    start_graph, arriving = edges.numbered(kept), edges.num_nodes - stream.half
    in_edges = np.bincount(edges.dst, minlength=edges.num_nodes)
    report.section(f"{name}: {edges.num_nodes:,} nodes, {len(edges.src):,} directed edges")
    for parts in PARTS:
        hashed = Owners("modulo", parts).of_id(np.arange(edges.num_nodes)).astype(np.uint16)
        began = time.perf_counter()
        afresh = divide(graph, parts, "metis")
        took = time.perf_counter() - began
        by_hash, by_metis = graph.cut(hashed), graph.cut(afresh)
        aim = 1.15 * by_metis if by_metis * 3 <= by_hash else None
        owners, worst, seconds = stream.run(divide(start_graph, parts, "metis"), parts)

        def add(
            what: str, cut: float, aim: float | None = None, parts: int = parts, metis: float = by_metis
        ) -> None:
            peer = ("METIS afresh", metis) if "doubling" in what else (None, None)
            report.add(
                f"{name}, {parts} parts: cut by {what}",
                cut,
                "of edges",
                aim=aim,
                peer=peer[0],
                peer_value=peer[1],
            )

        add("a hash", by_hash)
        add("METIS and passes", by_metis)
        add("Fennel", graph.cut(divide(graph, parts, "fennel", passes=0)))
        add("METIS, then Fennel while doubling", graph.cut(owners), aim)
        balances = [balance_of(np.bincount(afresh[a:b], minlength=parts), parts) for a, b in _types(edges)]
        moved = graph.rebalance(owners, parts, passes=PASSES)
        add(f"the same after doubling and {PASSES} passes", graph.cut(owners), aim)
        balances += [balance_of(np.bincount(owners[a:b], minlength=parts), parts) for a, b in _types(edges)]
        report.add(
            f"{name}, {parts} parts: worst balance of a type", max(worst, *balances), "of mean", aim=1.05
        )
        work = np.bincount(afresh, weights=1 + in_edges / in_edges.mean(), minlength=parts)
        report.add(
            f"{name}, {parts} parts: balance of nodes and in-edges, METIS",
            work.max() / work.mean(),
            "of mean",
        )
        report.add(f"{name}, {parts} parts: moved by these passes", moved / edges.num_nodes, "of nodes")
        report.add(f"{name}, {parts} parts: METIS and passes", took, "s")
        report.add(f"{name}, {parts} parts: Fennel, for each node", seconds / arriving * 1e6, "us")


def _types(edges: Edges) -> list[tuple[int, int]]:
    return list(zip(edges.type_starts[:-1].tolist(), edges.type_starts[1:].tolist(), strict=True))


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="tolokers.npz and ldbc_snb_sf01.npz")
    options = parser.parse_args()
    report = Report("partitions")
    measure("communities", communities(options.quick), report)
    for name, read in (("tolokers", tolokers), ("LDBC sample", ldbc)):
        if options.data is None:
            report.could_not_run(name, "say where its file is with --data")
        elif not options.quick:
            measure(name, read(options.data), report)
    report.finish(options.json)


if __name__ == "__main__":
    main()
