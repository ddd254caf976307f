"""Whatever happens to groups and their members, an engine says what PyG says: each pooling, in each mode."""

from __future__ import annotations

import copy
from functools import lru_cache

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from torch import nn

from gate import EXPLORING, draws
from grouped_modules import GROUPS, OF_ALL, POOLINGS, WHOLE, WIDTH
from livegnn import Engine, Events, Graph
from livegnn.graph import EdgeSchema, Schema
from livegnn.model import Model
from livegnn.oracle.exactness import judge
from mirror import LEAST_SCALE, frozen, scales_of
from modules import fill

SEQUENCES = draws(4, 100)
TO, IN = ("node", "to", "node"), ("node", "in", "group")
SCHEMA = Schema({"node": WIDTH, "group": 0}, {TO: EdgeSchema(), IN: EdgeSchema()})
MODES = ({"threads": 2}, {"keep": "aggregates"}, {"mode": "lazy"}, {"keep_degree": 3})
ALONG_EDGES = (
    "attention",
    "softmax aggregation",
    "softmax and degree",
    "variance",
    "all: attention",
    "all: variance",
)
"""Poolings whose messages read more than a member's row, which `keep_degree` does not take."""
WILD = 10.0 ** np.array([-3, 0, 4])
"""The magnitudes of the features' channels."""

seeds = st.integers(0, 2**32 - 1)
KINDS = ("add nodes", "set features", "add edges", "remove edges", "move", "leave", "join", "remove", "hub")


@lru_cache
def made(name: str) -> tuple[nn.Module, Model]:
    whole = name.startswith("all: ")
    module = fill((OF_ALL[name[5:]] if whole else POOLINGS[name])(), 5)
    with torch.no_grad():
        module.first.lin_l.weight /= torch.tensor(WILD)  # so that each channel counts
        module.first.lin_r.weight /= torch.tensor(WILD)
    return copy.deepcopy(module).double(), Model.from_pyg(module, groups=WHOLE if whole else GROUPS)


class LiveGroups(RuleBasedStateMachine):
    """A graph whose nodes change their groups, engines on it, and the same as dictionaries.

    A node may be in no group or in several. With one group of all nodes, every node is in it.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name, self.whole = name, name.startswith("all: ")
        self.module, self.model = made(name)

    @initialize(seed=seeds, nodes=st.integers(0, 12))
    def begin(self, seed: int, nodes: int) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: dict[int, np.ndarray] = {}
        self.edges: dict[tuple[int, int], None] = {}
        self.members: dict[tuple[int, int], None] = {}
        self.groups = [0] if self.whole else [0, 1, 2]
        self.next = 100
        graph = Graph(SCHEMA)
        events = Events().add_nodes(self.groups, node_type="group")
        for _ in range(nodes):
            self.write(events, "add nodes")
        graph.apply(events)
        self.engine = Engine(graph, self.model, threads=1)
        modes = [mode for mode in MODES if self.name not in ALONG_EDGES or "keep_degree" not in mode]
        self.others = [Engine(Graph.from_state(graph.state()), self.model, **mode) for mode in modes]

    # Events, written and done to the dictionaries

    def pick(self, of: object) -> object:
        listed = list(of)
        return listed[int(self.random.integers(len(listed)))]

    def row(self) -> np.ndarray:
        if self.random.random() < 0.1:
            return np.zeros(WIDTH, np.float32)
        scale = 10.0 ** self.random.integers(-2, 3) if self.random.random() < 0.2 else 1.0
        return (self.random.standard_normal(WIDTH) * WILD * scale).astype(np.float32)

    def write(self, events: Events, kind: str) -> None:
        if kind == "add nodes":
            node, self.next = self.next, self.next + 1
            self.nodes[node] = self.row()
            events.add_nodes([node], self.nodes[node][None], node_type="node")
            if self.whole or self.random.random() < 0.8:
                self.join(events, node, self.pick(self.groups))
            if self.random.random() < 0.1 and not self.whole:
                self.groups.append(self.next)
                events.add_nodes([self.next], node_type="group")
        elif not self.nodes:
            return
        elif kind == "set features":
            node = self.pick(self.nodes)
            self.nodes[node] = self.row()
            events.set_features([node], self.nodes[node][None], node_type="node")
        elif kind == "add edges":
            edge = self.pick(self.nodes), self.pick(self.nodes)
            self.edges[edge] = None
            events.add_edges(*edge, edge_type=TO)
        elif kind == "remove edges" and self.edges:
            edge = self.pick(self.edges)
            del self.edges[edge]
            events.remove_edges(*edge, edge_type=TO)
        elif kind == "remove":
            self.remove(events)
        elif kind in ("move", "leave") and self.members and not self.whole:
            node, group = self.pick(self.members)
            del self.members[node, group]
            events.remove_edges(node, group, edge_type=IN)
            if kind == "move":
                self.join(events, node, self.pick(self.groups))
        elif kind in ("join", "hub") and not self.whole:
            for _ in range(1 if kind == "join" else len(self.nodes)):
                self.join(
                    events,
                    self.pick(self.nodes),
                    self.pick(self.groups) if kind == "join" else self.groups[0],
                )

    def join(self, events: Events, node: int, group: int) -> None:
        self.members[node, group] = None
        events.add_edges(node, group, edge_type=IN)

    def remove(self, events: Events) -> None:
        """A node, or a group with all edges to it."""
        of_group = not self.whole and len(self.groups) > 1 and self.random.random() < 0.2
        node = self.pick(self.groups if of_group else self.nodes)
        events.remove_nodes([node], node_type="group" if of_group else "node")
        if of_group:
            self.groups.remove(node)
        else:
            del self.nodes[node]
            self.edges = {edge: None for edge in self.edges if node not in edge}
        self.members = {(u, v): None for u, v in self.members if (v if of_group else u) != node}

    # What is right

    def expected(self, dtype: torch.dtype, ids: np.ndarray) -> np.ndarray:
        """The rows of groups by PyG. A group without members has the row that PyG gives an empty group."""
        at = {node: i for i, node in enumerate(self.nodes)}
        x = torch.from_numpy(np.array(list(self.nodes.values()), np.float64).reshape(-1, WIDTH)).to(dtype)
        edges = torch.tensor([(at[u], at[v]) for u, v in self.edges], dtype=torch.long).reshape(-1, 2).T
        module = self.module if dtype is torch.float64 else copy.deepcopy(self.module).float()
        with torch.no_grad():
            h = module.encode(x, edges)
            if self.whole:
                empty = module.head(torch.zeros(module.head[0].in_features, dtype=dtype))
                return (module.pool(h) if len(h) else empty).reshape(1, -1).numpy()
            place = {group: i for i, group in enumerate(ids.tolist())}
            rows = torch.tensor([at[node] for node, _ in self.members], dtype=torch.long)
            numbers = torch.tensor([place[group] for _, group in self.members], dtype=torch.long)
            return module.pool(h[rows], numbers, len(ids)).numpy()

    def assert_exact(self, engine: Engine) -> None:
        ids = engine.graph.ids("group")
        right = self.expected(torch.float64, ids)
        scales = np.maximum(scales_of(right), LEAST_SCALE)
        found = judge(engine.predict(ids), right, lambda: self.expected(torch.float32, ids), scales=scales)
        assert found.ok, found

    def predicted(self) -> dict[int, bytes]:
        ids = self.engine.graph.ids("group")
        return {node: row.tobytes() for node, row in zip(ids.tolist(), self.engine.predict(ids), strict=True)}

    def states(self) -> tuple[object, object]:
        return frozen(self.engine.graph.state()), frozen(self.engine.state())

    @rule(seed=seeds, kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=8))
    def a_batch(self, seed: int, kinds: list[str]) -> None:
        self.random = np.random.default_rng(seed)
        events, before, states = Events(), self.predicted(), self.states()
        for kind in kinds:
            self.write(events, kind)
        imagined = self.engine.what_if(events).predict(self.groups).tobytes()
        assert self.states() == states
        changed = set(self.engine.apply(events).changed.tolist())
        for other in self.others:
            other.apply(events)
        assert self.engine.predict(self.groups).tobytes() == imagined
        now = self.predicted()
        assert changed == {node for node in now if now[node] != before.get(node)}

    @rule()
    def restart(self) -> None:
        states, before = self.states(), self.predicted()
        graph = Graph.from_state(self.engine.graph.state())
        self.engine = Engine(graph, self.model, threads=2, state=self.engine.state())
        assert self.states() == states
        assert self.predicted() == before

    @invariant()
    def it_says_what_pyg_says(self) -> None:
        if hasattr(self, "engine"):
            self.assert_exact(self.engine)

    def teardown(self) -> None:
        for other in getattr(self, "others", []):
            self.assert_exact(other)


IN_GATE = ("max", "attention", "all: mean and max")
NAMES = [name for name in (*POOLINGS, *(f"all: {name}" for name in OF_ALL)) if EXPLORING or name in IN_GATE]


@pytest.mark.parametrize("name", NAMES)
def test_any_sequence_of_events(name: str) -> None:
    run_state_machine_as_test(
        lambda: LiveGroups(name),
        settings=settings(
            max_examples=SEQUENCES, stateful_step_count=10, suppress_health_check=list(HealthCheck)
        ),
    )


def test_a_group_of_very_many() -> None:
    """Members come and go, of which one is larger than all others by far: sums, means and maxima."""
    module, model = made("several aggregations")
    count, random = draws(20_000, 200_000), np.random.default_rng(0)
    x = (random.standard_normal((count, WIDTH)) * WILD).astype(np.float32)
    graph = Graph(SCHEMA)
    events = Events().add_nodes(np.arange(count), x, node_type="node").add_nodes([0, 1], node_type="group")
    graph.apply(events.add_edges(np.arange(count), np.zeros(count, np.int64), edge_type=IN))
    engine = Engine(graph, model, threads=1)
    groups = np.zeros(count, np.int64)
    no_edges = torch.zeros(2, 0, dtype=torch.long)
    for turn in range(draws(8, 40)):
        moved = random.choice(count, 50, replace=False)
        to = 1 - groups[moved]
        events = Events().remove_edges(moved, groups[moved], edge_type=IN).add_edges(moved, to, edge_type=IN)
        x[turn] = x[turn] * 1e4 if turn % 2 else random.standard_normal(WIDTH) * WILD
        engine.apply(events.set_features([turn], x[turn][None], node_type="node"))
        groups[moved] = to
        with torch.no_grad():
            wide = module(torch.from_numpy(x).double(), no_edges, torch.from_numpy(groups)).numpy()
        assert judge(engine.predict([0, 1]), wide).ok
