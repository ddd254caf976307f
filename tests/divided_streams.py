"""Streams of events for a graph in parts beside an undivided one, and the comparison of both, to the bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

import livegnn._core as _core
from livegnn import Engine, Events, Graph, InputError, Model
from livegnn.graph import EdgeSchema, Schema
from livegnn.model import Input, Propagate, Step
from livegnn.partitions import LocalPartitions
from livegnn.partitions.divided import Partitions
from livegnn.placement import Owners
from modules import CONVOLUTIONS, EDGE_WISE, WIDTH
from parts_beside import LOST_IN_ROUNDING

EDGES = ("node", "to", "node")
BATCHES = 45
"""In a stream, so that units are measured after 1, 4 and 16 of them, and after many messages."""

SUPPOSED = 7
"""Every so many batches are supposed before they are applied."""

MAGNITUDES = (1.0, 1.0, 1e-30, 1e-6, 1e6, 1e30, 3e38)
KINDS = [*CONVOLUTIONS, *EDGE_WISE]

columns = st.sampled_from(
    [
        "",
        "weight",
        "weight time",
        "time expires",
        "weight add",
        "weight time add",
        "weight keep",
        "weight time keep expires",
    ]
)
hashed = st.builds(Owners, st.sampled_from(["modulo", "jump"]), st.integers(1, 4)).flatmap(
    lambda drawn: st.builds(
        lambda moved: Owners(drawn.rule, drawn.workers, moved=moved),
        st.dictionaries(st.integers(0, 60), st.integers(0, drawn.workers - 1), max_size=20),
    )
)
owners = hashed | st.builds(Owners, st.just("fennel"), st.integers(2, 4))


def schema_of(columns: str, *, undirected: bool, text: bool, **settings: Any) -> Schema:
    edges = EdgeSchema(
        undirected=undirected,
        weighted="weight" in columns,
        timed="time" in columns,
        duplicates=next((word for word in ("add", "keep") if word in columns), "replace"),
        time_to_live=1.0 if "expires" in columns else None,
        **settings,
    )
    return Schema({"node": WIDTH}, {EDGES: edges}, text_ids=text)


@dataclass
class Stream:
    """Random batches. A few name nodes that are not there, or features and weights past every limit."""

    rng: np.random.Generator
    edges: EdgeSchema
    negative: bool
    text: bool
    magnitude: float = 1.0
    present: list[int] = field(default_factory=list)
    named: int = 0

    def ids(self, numbers: Any) -> Any:
        listed = [int(n) for n in np.atleast_1d(numbers)]
        return [f"n\u00f6{n}" for n in listed] if self.text else listed

    def rows(self, count: int, width: int = WIDTH) -> np.ndarray:
        rows = self.rng.normal(size=(count, width)) * min(self.magnitude, 1e37)
        if self.magnitude > 1e38 and self.rng.random() < 0.1:
            rows = np.full((count, width), self.magnitude) * self.rng.choice([-1, 1], (count, width))
        return rows.astype(np.float32)

    def pick(self, count: int) -> np.ndarray:
        """Nodes, of which the first three are taken often; seldom one that is not there."""
        if self.rng.random() < 0.005:
            return np.array([self.named + 7] * count)
        few = self.present[:3] if self.rng.random() < 0.3 else self.present
        return self.rng.choice(few, count)

    def next(self, count: int) -> tuple[Events, list[int]]:
        """Events, and the nodes after them."""
        events, before = Events(), list(self.present)
        for _ in range(count):
            kind = self.rng.random()
            if kind < 0.15 or len(self.present) < 3:
                fresh = self.rng.random() < 0.7 or not self.named
                node = self.named if fresh else int(self.rng.integers(self.named))
                self.named = max(self.named, node + 1)
                if node not in self.present:
                    self.present.append(node)
                events.add_nodes(self.ids(node), self.rows(1) if self.rng.random() < 0.9 else None)
            elif kind < 0.6:
                self.add_edges(events, int(self.rng.integers(1, 5)))
            elif kind < 0.75:
                n = int(self.rng.integers(1, 5))
                events.remove_edges(self.ids(self.pick(n)), self.ids(self.pick(n)), key=self.keys(n))
            elif kind < 0.95:
                n = int(self.rng.integers(1, 3))
                events.set_features(self.ids(self.pick(n)), self.rows(n))
            else:
                node = self.present.pop(int(self.rng.integers(len(self.present))))
                events.remove_nodes(self.ids(node))
        after, self.present = self.present, before
        return events, after

    def add_edges(self, events: Events, n: int) -> None:
        weight = time = None
        if self.edges.weighted and self.rng.random() < 0.9:
            weight = self.rng.choice([0.0, 0.25, 1.0, 1.3, 2.0], n) * (-1 if self.negative else 1)
            if self.rng.random() < 0.02:
                weight = weight + 2.0**30
        if self.edges.timed and self.rng.random() < 0.9:
            time = self.rng.integers(0, 4, n).astype(float)
        features = None
        if self.edges.edge_dim and self.rng.random() < 0.8:
            features = self.rows(n, self.edges.edge_dim)
        ends = self.ids(self.pick(n)), self.ids(self.pick(n))
        events.add_edges(*ends, weight=weight, time=time, edge_attr=features, key=self.keys(n))

    def keys(self, count: int) -> np.ndarray | None:
        """Of parallel edges. Without, an edge gets the next key, and the last one is removed."""
        given = self.edges.duplicates == "keep" and self.rng.random() < 0.5
        return self.rng.integers(0, 3, count) if given else None


def weights_of(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.normal(0, 0.5, shape).astype(np.float32)


BUYS = ("user", "buys", "item")


def shop() -> Model:
    """Items sum their users, and users the mean of their items."""
    rng = np.random.default_rng(6)
    to_items = Propagate(edge_type=BUYS, message_local=("weight",))
    to_users = Propagate(edge_type=BUYS, reverse=True, neighbor_context="count", combine="divide")
    return Model(
        inputs={"user": Input("user", 3), "item": Input("item", 2)},
        steps=(
            Step("linear", ("user",), "sent", {"weight": "sent"}),
            Step("propagate", ("sent",), "received", attrs=to_items.to_attrs()),
            Step("linear", ("item",), "own", {"weight": "own"}),
            Step("add", ("received", "own"), "both"),
            Step("relu", ("both",), "hidden"),
            Step("propagate", ("hidden",), "mean", attrs=to_users.to_attrs()),
            Step("add", ("mean", "sent"), "out"),
        ),
        tensors={"sent": weights_of(rng, 5, 3), "own": weights_of(rng, 5, 2)},
        output="out",
        layers=("user", "out"),
    )


def outcome(apply: Any) -> tuple[Any, str | None]:
    """The result, or the text of the refusal."""
    try:
        return apply(), None
    except InputError as error:
        return None, f"{type(error).__name__}: {error}"


def assert_same_state(parts: LocalPartitions, engine: Engine) -> None:
    """Every part keeps of its own nodes what the engine of the whole graph keeps, to the bit."""
    whole = engine.state()
    indices = engine.graph.native.indices(0)
    capacity = engine.graph.native.capacity(0)
    owned = 0
    for part, (graph, each) in enumerate(zip(parts.graphs, parts.engines, strict=True)):
        state = each.state()
        assert state.meta == whole.meta
        assert np.array_equal(graph.native.indices(0), indices)
        own = indices[_core.owners_of(graph.native, 0)[indices] == part]
        owned += len(own)
        assert list(state.arrays) == list(whole.arrays)
        for name, array in state.arrays.items():
            expected = np.asarray(whole.arrays[name])
            got = np.asarray(array)
            if not name.startswith("scales") and len(expected):
                got, expected = (rows.reshape(capacity, -1)[own] for rows in (got, expected))
            assert got.tobytes() == expected.tobytes(), name
    assert owned == len(indices)


def assert_same_lists(parts: LocalPartitions, graph: Graph) -> None:
    graph.native.check()
    for part in parts.graphs:
        part.native.check()
    ids = graph.ids()
    if not len(ids):
        return
    names = parts.names.native
    part_of = _core.owners_at(names, 0, names.indices_of(0, parts.names.to_numbers(ids)))
    for direction in ("in", "out"):
        for id_, part in zip(ids, part_of, strict=True):
            got = parts.graphs[part].neighbors(id_, direction=direction)
            expected = graph.neighbors(id_, direction=direction)
            for ours, theirs in zip(got, expected, strict=True):
                assert (ours is None) == (theirs is None)
                assert ours is None or np.array_equal(ours, theirs)


def assert_same_supposed(parts: Partitions, engine: Engine, events: Events, ids: list[Any]) -> None:
    """A what-if of events, after which these are the nodes."""
    one, expected = outcome(lambda: engine.what_if(events))
    supposed = parts.what_if(events)
    rows, got = outcome(lambda: supposed.predict(ids))
    assert got == expected or (got and LOST_IN_ROUNDING in str(expected)), (got, expected)
    if expected is None:
        assert rows.tobytes() == one.predict(ids).tobytes()
        assert sorted(supposed.changed.tolist()) == sorted(one.changed.tolist())
        assert (supposed.num_changed, supposed.affected) == (one.num_changed, one.affected)


def check_stream(
    model: Model,
    schema: Schema,
    owners: Owners,
    stream: Stream,
    sizes: list[int],
    *,
    trusted: bool = False,
    non_finite: Any = "refuse",
    divide: Callable[..., Partitions] = LocalPartitions,
) -> None:
    """Applies a stream of batches of these sizes to both."""
    graph = Graph(schema, threads=1)
    engine = Engine(graph, model, threads=1, non_finite=non_finite)
    parts = divide(schema, model, owners, threads=2, non_finite=non_finite)
    try:
        follow(parts, graph, engine, stream, sizes, trusted=trusted)
    finally:
        parts.close()


def apply_alone(graph: Graph, stream: Stream, sizes: list[int], *, trusted: bool = False) -> None:
    """Applies a stream of batches of these sizes to a graph, as `follow` does."""
    for size in sizes:
        events, after = stream.next(size)
        _, refused = outcome(lambda events=events: graph.apply(events, trusted=trusted))
        if refused is None:
            stream.present = after


def follow(
    parts: Partitions,
    graph: Graph,
    engine: Engine,
    stream: Stream,
    sizes: list[int],
    *,
    trusted: bool = False,
) -> None:
    """Applies a stream of batches of these sizes to both, which are equal. Some batches remove edges that
    have expired."""
    for number, size in enumerate(sizes):
        events, after = stream.next(size)
        if stream.edges.time_to_live is not None:
            now = float(stream.rng.integers(6))
            expired = graph.expired(now)
            assert parts.names.expired(now) == expired
            assert parts.names.num_edges() == graph.num_edges()
            if len(expired) and stream.rng.random() < 0.3:
                events, after = expired, stream.present
        if number % SUPPOSED == 0:
            assert_same_supposed(parts, engine, events, stream.ids(after))
        one, expected = outcome(lambda events=events: engine.update_of(graph.apply(events, trusted=trusted)))
        many, got = outcome(lambda events=events: parts.apply(events, trusted=trusted))
        assert got == expected or (got and LOST_IN_ROUNDING in str(expected)), (got, expected)
        if expected is None:
            assert sorted(many.changed.tolist()) == sorted(one.changed.tolist())
            assert (many.seq, many.affected) == (one.seq, one.affected)
            stream.present = after
        ids = graph.ids()
        assert parts.predict(ids).tobytes() == engine.predict(ids).tobytes()
        if isinstance(parts, LocalPartitions):
            assert_same_state(parts, engine)
    if isinstance(parts, LocalPartitions):
        assert_same_lists(parts, graph)
    assert parts.seq == graph.seq
