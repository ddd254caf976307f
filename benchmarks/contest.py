"""What every contestant of store.py is put through: the same edges, changes and draws."""

from __future__ import annotations

import multiprocessing
import resource
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np

from contestants import Contestant, Float32, StoreBench, UInt32
from graphs import make

Result = TypeVar("Result")

LIVE, CSR, HASH_MAP, BLOCK_STORE = "LiveGNN", "CSR per batch", "hash map", "PlatoGL"
PEERS = (CSR, HASH_MAP, BLOCK_STORE)

BATCH = 2**16
UPDATES = 2**20
DRAWN, CALL = 25, 256
"""Neighbours for each seed, and seeds for each call: of one call the reader sees one state of the graph."""
SEEDS, FAN_OUTS = 2**14, (25, 10)
COMPARED = 300
"""Nodes whose lists are compared, those with the most neighbours among them."""


@dataclass(frozen=True)
class Edges:
    """Distinct directed edges of a shape in random order, with weights in (0, 1]."""

    shape: str
    num_nodes: int
    sources: UInt32
    targets: UInt32
    weights: Float32

    def __len__(self) -> int:
        return len(self.sources)

    @property
    def degrees(self) -> np.ndarray:
        return np.bincount(self.sources, minlength=self.num_nodes)

    def part(self, first: int, last: int | None = None) -> Edges:
        at = slice(first, last)
        return Edges(self.shape, self.num_nodes, self.sources[at], self.targets[at], self.weights[at])

    def choose(self, rng: np.random.Generator, count: int) -> Edges:
        """`count` of them, none twice, in random order."""
        at = rng.choice(len(self), count, replace=False)
        return Edges(self.shape, self.num_nodes, self.sources[at], self.targets[at], self.weights[at])


def make_edges(shape: str, share: float) -> Edges:
    """The first `share` of a shape's edges, shuffled."""
    graph = make(shape)
    packed = graph.src.astype(np.uint64)
    packed <<= np.uint64(32)
    packed |= graph.dst.astype(np.uint64)
    num_nodes = graph.num_nodes
    del graph
    rng = np.random.default_rng(0)
    rng.shuffle(packed)
    packed = packed[: int(len(packed) * share)]
    weights = np.float32(1) - rng.random(len(packed), dtype=np.float32)
    sources = (packed >> np.uint64(32)).astype(np.uint32)
    return Edges(shape, num_nodes, sources, packed.astype(np.uint32), weights)


@dataclass(frozen=True)
class Stream:
    """Updates that arrive while somebody draws: of a batch, half are new weights of edges that are there, a
    quarter edges that go, a quarter those that went with the batch before and come back."""

    sources: UInt32
    targets: UInt32
    weights: Float32
    removed: np.ndarray


def make_stream(edges: Edges, count: int, rng: np.random.Generator) -> Stream:
    """About `count` updates over the edges; cut into batches of `BATCH` they name no edge twice in one."""
    quarter = BATCH // 4
    chosen = edges.choose(rng, min(len(edges), 3 * quarter * (count // BATCH)))
    pieces: list[tuple[slice, int]] = []
    gone = slice(0, 0)
    for first in range(0, len(chosen) - 3 * quarter + 1, 3 * quarter):
        going = slice(first + 2 * quarter, first + 3 * quarter)
        pieces += [(slice(first, going.start), 0), (going, 1), (gone, 0)]
        gone = going
    return Stream(
        np.concatenate([chosen.sources[part] for part, _ in pieces]),
        np.concatenate([chosen.targets[part] for part, _ in pieces]),
        np.concatenate([chosen.weights[part] for part, _ in pieces]),
        np.concatenate([np.full(part.stop - part.start, goes, np.uint8) for part, goes in pieces]),
    )


@dataclass
class Course:
    """What one contestant did: figures by name, and what its lists held."""

    name: str
    figures: dict[str, float] = field(default_factory=dict)
    lists: list[tuple[UInt32, Float32]] = field(default_factory=list)


def resident() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]) * resource.getpagesize()


def rate(seconds: np.ndarray, count: int) -> float:
    return count / float(seconds.sum())


def in_child(call: Callable[[], Result]) -> Result:
    """What a call returns in a process of its own, which begins as a copy of this one."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=lambda: sender.send(call()))
    child.start()
    sender.close()
    try:
        result: Result = receiver.recv()
    except EOFError:
        child.join()
        raise SystemExit(f"a contestant's process has ended with code {child.exitcode}") from None
    child.join()
    return result


class Bench:
    """One shape, whose edges every contestant is given."""

    def __init__(self, native: StoreBench, edges: Edges, options: Namespace) -> None:
        self.native, self.edges, self.options = native, edges, options
        rng = np.random.default_rng(1)
        degrees = edges.degrees
        self.mean_list = float((degrees.astype(float) ** 2).sum() / len(edges))
        code_bits = np.log2(edges.num_nodes * np.e / np.maximum(degrees, 1))
        code_bits = np.log2(edges.num_nodes * np.e / np.maximum(degrees, 1))
        self.id_bits = float((degrees * code_bits).sum() / len(edges))
        with_neighbors = np.flatnonzero(degrees).astype(np.uint32)
        self.seeds: UInt32 = rng.choice(with_neighbors, 2**18)
        self.seed_list = float(degrees[self.seeds].mean())
        self.compared = np.concatenate([np.argsort(degrees)[-COMPARED // 3 :], self.seeds[:COMPARED]])
        self.updates = edges.choose(rng, min(UPDATES, len(edges) // 4))
        arrivals = options.arrivals * options.draw_seconds * 1.5
        self.stream = make_stream(edges, max(int(arrivals), 2 * BATCH), rng)
        self.interval = BATCH / options.arrivals

    def make(self, name: str, weighted: bool = True) -> Contestant:
        makers: dict[str, Callable[..., Contestant]] = {
            LIVE: self.native.LiveStore,
            CSR: self.native.CsrPeer,
            HASH_MAP: self.native.HashMapPeer,
            BLOCK_STORE: self.native.BlockStorePeer,
        }
        return makers[name](self.edges.num_nodes, weighted, self.options.threads)

    def add(
        self,
        contestant: Contestant,
        edges: Edges,
        batch_size: int = BATCH,
        threads: int = 0,
        weighted: bool = True,
    ) -> np.ndarray:
        weights = edges.weights if weighted else None
        return contestant.apply(edges.sources, edges.targets, weights, None, batch_size, threads)

    def remove(self, contestant: Contestant, edges: Edges, threads: int = 0) -> np.ndarray:
        removed = np.ones(len(edges), np.uint8)
        return contestant.apply(edges.sources, edges.targets, edges.weights, removed, BATCH, threads)

    # -- one contestant

    def run(self, name: str) -> Course:
        """Everything, with weights; then the memory without. In processes of their own: what one contestant
        has freed, the next would take again, and the process would not grow by what it takes."""
        course = in_child(lambda: self.run_weighted(name))
        course.figures |= in_child(lambda: self.run_unweighted(name))
        if name == LIVE:
            for weighted in (True, False):
                course.figures |= in_child(lambda of=weighted: self.run_with_in_lists(of))
        return course

    def run_with_in_lists(self, weighted: bool) -> dict[str, float]:
        """What LiveGNN's lists weigh where an engine needs those of in-neighbours too."""
        self.native.trim()
        before = resident()
        store = self.native.LiveStore(self.edges.num_nodes, weighted, self.options.threads, in_lists=True)
        self.add(store, self.edges, weighted=weighted)
        word = "weighted" if weighted else "unweighted"
        return self.memory(store, LIVE, f"{word}, in-lists too", before)

    def run_weighted(self, name: str) -> Course:
        course = Course(name)
        found, options = course.figures, self.options
        self.native.trim()
        before = resident()
        contestant = self.make(name)
        found["building"] = rate(self.add(contestant, self.edges), len(self.edges))
        assert contestant.num_edges == len(self.edges)
        found |= self.memory(contestant, name, "weighted", before)

        found["removals"] = rate(self.remove(contestant, self.updates), len(self.updates))
        found["additions to the full graph"] = rate(self.add(contestant, self.updates), len(self.updates))
        found["weight updates"] = rate(self.add(contestant, self.updates), len(self.updates))
        if name == LIVE and options.threads > 1:
            self.run_on_one_thread(contestant, found)
        course.lists = [contestant.neighbors(int(node)) for node in self.compared]

        found["weighted draws"] = self.draws(contestant, by_weight=True)
        found["uniform draws"] = self.draws(contestant, by_weight=False)
        stream = self.stream
        seconds, drawn, applied, calls = contestant.draw_beside_batches(
            *(
                self.seeds,
                CALL,
                DRAWN,
                True,
                3,
                stream.sources,
                stream.targets,
                stream.weights,
                stream.removed,
            ),
            *(BATCH, self.interval, options.draw_seconds),
        )
        found["weighted draws beside updates"] = drawn / seconds
        found["updates applied beside them"] = applied / seconds
        found["99th percentile of a call beside updates"] = float(np.percentile(calls, 99)) * 1e3
        fan_outs = np.array(FAN_OUTS, np.uint32)
        graphs = [contestant.subgraph(self.seeds[:SEEDS], fan_outs, seed) for seed in range(6)]
        found["subgraph"] = float(np.median([graph[3] for graph in graphs[1:]])) * 1e3
        found["subgraph nodes"], found["subgraph edges"] = len(graphs[0][0]), len(graphs[0][1])
        return course

    def run_unweighted(self, name: str) -> dict[str, float]:
        self.native.trim()
        before = resident()
        contestant = self.make(name, weighted=False)
        # A CSR gets all at once but for the last batch, which shows what a batch needs.
        first = len(self.edges) - BATCH if name == CSR else 0
        for edges, batch_size in ((self.edges.part(0, first), first), (self.edges.part(first), BATCH)):
            if len(edges) > 0:
                self.add(contestant, edges, batch_size, weighted=False)
        return self.memory(contestant, name, "unweighted", before)

    def memory(self, contestant: Contestant, name: str, word: str, before: int) -> dict[str, float]:
        """Bytes per entry as they are counted, and as the process has grown."""
        self.native.trim()
        growth, count = resident() - before, len(self.edges)
        rest, everything = contestant.bytes_at_rest(), contestant.bytes()
        return {
            # A CSR needs its second copy to be changed, not to be read: it is counted at its best.
            f"bytes per entry, {word}": (rest if name == CSR else everything) / count,
            f"bytes per entry for batches, {word}": (everything - rest) / count,
            f"growth of the process per entry, {word}": growth / count,
            f"bytes counted, of the growth, {word}": everything / growth,
        }

    def draws(self, contestant: Contestant, by_weight: bool) -> float:
        """A second, by one core, while nothing changes."""
        nothing = self.edges.part(0, 0)
        seconds, drawn, _, _ = contestant.draw_beside_batches(
            *(self.seeds, CALL, DRAWN, by_weight, 2),
            *(nothing.sources, nothing.targets, nothing.weights, None),
            *(BATCH, self.interval, self.options.draw_seconds),
        )
        return drawn / seconds

    def run_on_one_thread(self, contestant: Contestant, found: dict[str, float]) -> None:
        self.remove(contestant, self.updates)
        found["additions, 1 thread"] = rate(self.add(contestant, self.updates, threads=1), len(self.updates))
        found["weight updates, 1 thread"] = rate(
            self.add(contestant, self.updates, threads=1), len(self.updates)
        )
