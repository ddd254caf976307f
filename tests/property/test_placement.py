"""Fennel and the moves of nodes beside slow ones in Python, on any batches; balance; replays."""

import math
from collections import Counter
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import livegnn._core as _core
from gate import draws
from livegnn.placement.numbered import NumberedGraph

TYPES = 2


class Batch(NamedTuple):
    """Types of new nodes; their edges to older nodes, which are positions among all; edges between them."""

    types: list[int]
    tied: list[tuple[int, int]]
    pairs: list[tuple[int, int]]


@st.composite
def batches(draw: st.DrawFn) -> list[Batch]:
    found, older = [], 0
    for _ in range(draw(st.integers(1, 6))):
        types = draw(st.lists(st.integers(0, TYPES - 1), max_size=draw(st.sampled_from([1, 3, 25]))))
        new = st.integers(0, max(len(types) - 1, 0))
        many = st.integers(0, draw(st.sampled_from([0, 5, 60])) if types else 0)
        tied = [(draw(new), draw(st.integers(0, older - 1))) for _ in range(draw(many) if older else 0)]
        pairs = [(draw(new), draw(new)) for _ in range(draw(many))]
        found.append(Batch(types, tied, pairs))
        older += len(types)
    return found


class SlowFennel:
    """Fennel with a dict for each node."""

    def __init__(self, parts: int) -> None:
        self.parts = parts
        self.load = [[0] * parts for _ in range(TYPES)]
        self.ends = [0] * TYPES
        self.owners: list[int] = []
        self.types: list[int] = []

    def limit(self, nodes: int) -> int:
        return max(nodes * 105 // (self.parts * 100), -(-nodes // self.parts))

    def place(self, batch: Batch) -> list[int]:
        first = len(self.owners)
        self.types += batch.types
        for new, old in batch.tied:
            self.ends[batch.types[new]] += 1
            self.ends[self.types[old]] += 1
        for a, b in batch.pairs:
            self.ends[batch.types[a]] += 1
            self.ends[batch.types[b]] += 1
        for node, type in enumerate(batch.types):
            near = Counter(self.owners[old] for new, old in batch.tied if new == node)
            near += Counter(
                self.owners[first + min(pair)] for pair in batch.pairs if max(pair) == node > min(pair)
            )
            n, load = self.types.count(type), self.load[type]
            penalty = 1.5 * math.sqrt(self.parts) * (0.5 * self.ends[type]) / (n * math.sqrt(n))
            room = [part for part in range(self.parts) if load[part] < self.limit(n)]
            part = min(room, key=lambda p: (-(near[p] - penalty * math.sqrt(load[p])), load[p], p))
            load[part] += 1
            self.owners.append(part)
        return self.owners[first:]


def ends_of(batch: Batch, types: list[int]) -> list[int]:
    ends = [0] * TYPES
    for new, old in batch.tied:
        ends[batch.types[new]] += 1
        ends[types[old]] += 1
    for pair in batch.pairs:
        for end in pair:
            ends[batch.types[end]] += 1
    return ends


class Placed:
    """The native Fennel, driven by batches."""

    def __init__(self, parts: int) -> None:
        self.parts, self.native = parts, _core.Fennel(parts, TYPES)
        self.owners: list[int] = []
        self.types: list[int] = []

    def place(self, batch: Batch) -> list[int]:
        ends = np.array(ends_of(batch, self.types), np.int64)
        placed = self.native.place(
            np.array(batch.types, np.uint32),
            np.array([new for new, _ in batch.tied], np.uint32),
            np.array([self.owners[old] for _, old in batch.tied], np.uint16),
            np.array([a for a, _ in batch.pairs], np.uint32),
            np.array([b for _, b in batch.pairs], np.uint32),
            ends,
        )
        nodes = np.zeros((TYPES, self.parts), np.int64)
        np.add.at(nodes, (np.array(batch.types, np.int64), placed), 1)
        self.native.add(nodes.ravel(), ends)
        self.types += batch.types
        self.owners += placed.tolist()
        return placed.tolist()


@given(batches(), st.integers(1, 5))
@settings(max_examples=draws(100, 2000), deadline=None)
def test_nodes_are_placed_as_slowly_and_evenly(stream: list[Batch], parts: int) -> None:
    slow, fast, again = SlowFennel(parts), Placed(parts), Placed(parts)
    for batch in stream:
        assert fast.place(batch) == slow.place(batch)
        assert again.place(batch) == fast.owners[len(fast.owners) - len(batch.types) :]
        assert fast.native.ends().tolist() == slow.ends
        for type in range(TYPES):
            load = fast.native.loads(type).tolist()
            assert load == slow.load[type]
            share = sum(load) / parts
            assert max(load) <= max(1.05 * share + 1e-9, math.ceil(share))


@st.composite
def divided(draw: st.DrawFn) -> tuple[NumberedGraph, list[list[int]], np.ndarray, int]:
    counts = draw(st.lists(st.integers(0, 12), min_size=1, max_size=3))
    parts, nodes = draw(st.integers(1, 4)), sum(counts)
    ends = st.integers(0, max(nodes - 1, 0))
    pairs = draw(st.lists(st.tuples(ends, ends, st.integers(1, 20)), max_size=30 if nodes else 0))
    edges = [(a, b) for a, b, times in pairs for _ in range(times)]
    near: list[list[int]] = [[0] * nodes for _ in range(nodes)]
    for a, b in edges:
        if a != b:
            near[a][b] += 1
            near[b][a] += 1
    starts = np.cumsum([0, *counts])
    listed = []
    for a, b in edges:
        types = [int(np.searchsorted(starts, end, "right")) - 1 for end in (a, b)]
        at = [np.array([end - starts[type]], np.uint32) for end, type in zip((a, b), types, strict=True)]
        listed.append((types[0], at[0], types[1], at[1]))
    owners = draw(st.lists(st.integers(0, parts - 1), min_size=nodes, max_size=nodes))
    return NumberedGraph.from_edges(counts, listed), near, np.array(owners, np.uint16), parts


class SlowMoves:
    """The moves of nodes of a division, with a matrix of edges."""

    def __init__(self, graph: NumberedGraph, near: list[list[int]], owners: list[int], parts: int) -> None:
        self.near, self.owners, self.parts = near, owners, parts
        self.type_of = [
            int(np.searchsorted(graph.type_starts, node, "right")) - 1 for node in range(len(owners))
        ]
        self.types = len(graph.type_starts) - 1

    def load(self, type: int) -> list[int]:
        found = [0] * self.parts
        for owner, of in zip(self.owners, self.type_of, strict=True):
            found[owner] += of == type
        return found

    def limit(self, type: int) -> int:
        n = self.type_of.count(type)
        return max(n * 105 // (self.parts * 100), -(-n // self.parts))

    def edges(self, node: int, part: int) -> int:
        return sum(w for w, owner in zip(self.near[node], self.owners, strict=True) if owner == part)

    def loss(self, node: int) -> tuple[int, int]:
        load, type = self.load(self.type_of[node]), self.type_of[node]
        own = self.owners[node]
        room = [p for p in range(self.parts) if p != own and load[p] < self.limit(type)]
        to = min(room, key=lambda p: (-self.edges(node, p), load[p], p))
        return self.edges(node, own) - self.edges(node, to), to

    def even_out(self) -> None:
        for type in range(self.types):
            full = [part for part, load in enumerate(self.load(type)) if load > self.limit(type)]
            nodes = [n for n, of in enumerate(self.type_of) if of == type and self.owners[n] in full]
            for _, node in sorted((self.loss(node)[0], node) for node in nodes):
                if self.load(type)[self.owners[node]] > self.limit(type):
                    self.owners[node] = self.loss(node)[1]

    def gain(self, node: int) -> tuple[float, int]:
        type, own = self.type_of[node], self.owners[node]
        n = self.type_of.count(type)
        ends = sum(sum(self.near[at]) for at, of in enumerate(self.type_of) if of == type)
        penalty = 1.5 * math.sqrt(self.parts) * (0.5 * ends) / (n * math.sqrt(n))
        load = self.load(type)
        load[own] -= 1
        score = [self.edges(node, p) - penalty * math.sqrt(load[p]) for p in range(self.parts)]
        room = [p for p in range(self.parts) if load[p] < self.limit(type)]
        to = min(room, key=lambda p: (-score[p], load[p], p))
        return score[to] - score[own], to

    def rebalance(self, nodes: list[int], passes: int, budget: int) -> int:
        moved = 0
        for _ in range(passes):
            gains = {node: self.gain(node) for node in nodes}
            wanted = [
                (-gain, node) for node, (gain, to) in gains.items() if to != self.owners[node] and gain > 0
            ]
            for _, node in sorted(wanted):
                gain, to = self.gain(node)
                if moved < budget and to != self.owners[node] and gain > 0:
                    self.owners[node] = to
                    moved += 1
        return moved


@given(divided(), st.data())
@settings(max_examples=draws(100, 2000), deadline=None)
def test_nodes_move_as_slowly(
    drawn: tuple[NumberedGraph, list[list[int]], np.ndarray, int], data: st.DataObject
) -> None:
    graph, near, owners, parts = drawn
    slow = SlowMoves(graph, near, owners.tolist(), parts)
    every = sum(map(sum, near))
    between = sum(w for a, row in enumerate(near) for b, w in enumerate(row) if owners[a] != owners[b])
    assert graph.cut(owners) == (between / every if every else 0.0)
    differs = [any(w and owners[a] != owners[b] for b, w in enumerate(row)) for a, row in enumerate(near)]
    assert graph.boundary(owners).tolist() == np.flatnonzero(differs).tolist()
    graph.even_out(owners, parts)
    slow.even_out()
    assert owners.tolist() == slow.owners
    nodes = data.draw(st.permutations(range(len(owners)))) if len(owners) else []
    nodes = nodes[: data.draw(st.integers(0, len(nodes)))]
    passes, budget = data.draw(st.integers(0, 3)), data.draw(st.integers(0, 10))
    moved = graph.rebalance(owners, parts, nodes=np.array(nodes, np.int64), passes=passes, budget=budget)
    assert moved == slow.rebalance(nodes, passes, budget)
    assert owners.tolist() == slow.owners
    for type, balance in enumerate(graph.balance(owners, parts)):
        n = slow.type_of.count(type)
        assert balance <= max(1.05 + 1e-9, -(-n // parts) * parts / n if n else 1.0)


@pytest.mark.parametrize("seed", range(draws(10, 200)))
def test_nodes_of_dense_graphs_move_as_slowly(seed: int) -> None:
    """Few nodes with many edges: the loads decide as often as the neighbours."""
    rng = np.random.default_rng(seed)
    for _ in range(20):
        nodes, parts = int(rng.integers(4, 14)), int(rng.integers(2, 4))
        ends = rng.integers(0, nodes, (2, 40 * nodes)).astype(np.uint32)
        graph = NumberedGraph.from_edges([nodes], [(0, ends[0], 0, ends[1])])
        near = np.zeros((nodes, nodes), np.int64)
        np.add.at(near, (ends[0], ends[1]), 1)
        near += near.T
        np.fill_diagonal(near, 0)
        owners = rng.integers(0, parts, nodes).astype(np.uint16)
        slow = SlowMoves(graph, near.tolist(), owners.tolist(), parts)
        slow.even_out()
        graph.even_out(owners, parts)
        movable = np.arange(nodes)
        moved = graph.rebalance(owners, parts, nodes=movable, passes=3)
        assert moved == slow.rebalance(movable.tolist(), 3, 10**6)
        assert owners.tolist() == slow.owners
