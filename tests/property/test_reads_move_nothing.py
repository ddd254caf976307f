"""Whoever reads an engine moves nothing: what it keeps, and later predictions, have the same bits as on a
copy that nobody asked. After a restart they have the same bits as on one that never stopped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gate import draws
from livegnn import EdgeSchema, Engine, Events, Graph, InputError, Schema
from livegnn.expiry import ExpiryPolicy
from livegnn.graph import GraphDelta, View
from livegnn.inference import ScrubPolicy
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import CheckpointPolicy, Runtime, restore
from livegnn.types import DEFAULT_EDGE_TYPE, DEFAULT_NODE_TYPE
from mirror import frozen, predictions
from modules import WIDTH, Design, make
from streams import make_arrays, make_graph, make_model, make_stream

NODES = 24
BATCHES = draws(24, 200)

CASES: dict[str, tuple[Design, dict[str, Any]]] = {
    "eager": (Design("gcn", weighted=True), {}),
    "lazy": (Design("gcn", weighted=True), {"mode": "lazy"}),
    "lazy means": (Design("sage mean"), {"mode": "lazy"}),
    "lazy maxima": (Design("sage max"), {"mode": "lazy"}),
    "lazy attention": (Design("gat"), {"mode": "lazy"}),
    "half lazy": (Design("sage mean", depth=3), {"mode": ["eager", "lazy", "lazy"]}),
}


class Refusing(View):
    """Refuses a batch when it is told to, after the engine has prepared it."""

    name = "refusing"
    refuses = False

    def prepare(self, change: GraphDelta) -> None:
        if self.refuses:
            raise InputError("not this one")


class World:
    def __init__(self, case: str, graph: Graph) -> None:
        design, options = CASES[case]
        self.model, self.options = make(design)[1], options
        self.graph = graph
        self.engine = Engine(graph, self.model, threads=1, **options)
        self.refusing = Refusing(graph)
        graph.attach(self.refusing)

    def refuse(self, events: Events) -> None:
        self.refusing.refuses = True
        with pytest.raises(InputError, match="not this one"):
            self.graph.apply(events)
        self.refusing.refuses = False


def make_case_graph(case: str) -> Graph:
    rng = np.random.default_rng(2)
    schema = Schema(
        {DEFAULT_NODE_TYPE: WIDTH}, {DEFAULT_EDGE_TYPE: EdgeSchema(weighted=CASES[case][0].weighted)}
    )
    graph = Graph(schema)
    graph.apply(Events().add_nodes(np.arange(NODES), rng.standard_normal((NODES, WIDTH))))
    graph.apply(make_edges(graph, rng, 5 * NODES))
    return graph


def make_edges(graph: Graph, rng: np.random.Generator, count: int) -> Events:
    weighted = graph.schema.edge_types[DEFAULT_EDGE_TYPE].weighted
    src, dst = rng.choice(graph.ids(), (2, count))
    return Events().add_edges(src, dst, weight=rng.uniform(0.5, 2, count) if weighted else None)


def make_batch(graph: Graph, rng: np.random.Generator) -> Events:
    node = rng.choice(graph.ids())
    kind = rng.integers(8)
    if kind < 3:
        return Events().set_features(node, rng.standard_normal((1, WIDTH)))
    if kind < 6:
        return make_edges(graph, rng, 2)
    if kind == 6:
        ends = graph.ids()[graph.snapshot().edge_index[DEFAULT_EDGE_TYPE]]
        src, dst = ends[:, rng.integers(ends.shape[1])]
        return Events().remove_edges(src, dst)
    return make_edges(graph, rng, 1) if rng.random() < 0.7 else Events().remove_nodes(node)


READS: dict[str, Callable[[World, np.random.Generator], object]] = {
    "some": lambda world, rng: world.engine.predict(rng.choice(world.graph.ids(), 2)),
    "all": lambda world, rng: world.engine.predict(world.graph.ids()),
    "a layer": lambda world, rng: world.engine.embeddings(1),
    "verify": lambda world, rng: world.engine.verify(),
    "verify some": lambda world, rng: world.engine.verify(3),
    "scrub": lambda world, rng: world.engine.scrub(5),
    "state": lambda world, rng: world.engine.state(),
    "what if": lambda world, rng: world.engine.what_if(make_batch(world.graph, rng)).changed,
    "before a fork": lambda world, rng: world.engine.prepare_fork(),
    "a batch that is refused": lambda world, rng: world.refuse(make_batch(world.graph, rng)),
    "nodes that are not removed": lambda world, rng: world.refuse(
        Events().remove_nodes(rng.choice(world.graph.ids()))
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_reading_leaves_no_trace(case: str) -> None:
    start = make_case_graph(case).state()
    quiet, asked = (World(case, Graph.from_state(start)) for _ in range(2))
    rng, of_reads = np.random.default_rng(5), np.random.default_rng(6)
    names = list(READS)
    for step in range(BATCHES):
        events = make_batch(quiet.graph, rng)
        for world in (quiet, asked):
            world.graph.apply(events)
        for name in of_reads.choice(names, 2):
            READS[name](asked, of_reads)
        if step == BATCHES // 2:  # both are restored, from what nobody has asked and from what was read
            states = [frozen(world.engine.state()) for world in (quiet, asked)]
            assert states[0] == states[1]
    assert predictions(quiet.engine) == predictions(asked.engine)
    assert frozen(quiet.engine.state()) == frozen(asked.engine.state())
    assert asked.engine.verify().ok


@pytest.mark.parametrize("case", CASES)
def test_a_restored_engine_goes_on_to_the_bit(case: str) -> None:
    world = World(case, make_case_graph(case))
    rng = np.random.default_rng(8)
    for _ in range(BATCHES // 2):
        world.graph.apply(make_batch(world.graph, rng))
    again = Graph.from_state(world.graph.state())
    restored = Engine(again, world.model, threads=1, state=world.engine.state(), **world.options)
    assert frozen(restored.state()) == frozen(world.engine.state())
    for _ in range(BATCHES // 2):
        events = make_batch(world.graph, rng)
        world.graph.apply(events)
        again.apply(events)
        assert predictions(restored) == predictions(world.engine)
    assert frozen(restored.state()) == frozen(world.engine.state())


@pytest.mark.parametrize("case", [case for case in CASES if case != "eager"])
def test_a_state_with_a_record_goes_to_every_mode(case: str) -> None:
    world = World(case, make_case_graph(case))
    rng = np.random.default_rng(9)
    for _ in range(5):
        world.graph.apply(
            Events().set_features(rng.choice(world.graph.ids()), rng.standard_normal((1, WIDTH)))
        )
    assert world.engine.pending > 0
    depths = world.engine.plan.depths
    for mode in ("eager", "lazy", ["eager"] * (depths - 1) + ["lazy"]):
        graph = Graph.from_state(world.graph.state())
        engine = Engine(graph, world.model, threads=1, mode=mode, state=world.engine.state())
        assert engine.verify().ok
        graph.apply(make_edges(graph, rng, 3))
        assert engine.verify().ok


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def make_timed_graph() -> Graph:
    arrays = make_arrays()
    time = np.random.default_rng(4).uniform(0, 20, len(arrays["src"]))
    return Graph.from_edges(**arrays, time=time, time_to_live=20.0)


class Served:
    """A runtime with a lazy engine that is scrubbed and saved by the clock, and can be stopped or killed."""

    def __init__(self, directory: Path, make_graph: Callable[[], Graph]) -> None:
        self.directory, self.make_graph, self.clock = directory, make_graph, Clock()
        self.make = Engine.factory(make_model(), threads=1, mode="lazy")
        self.start()

    def start(self) -> None:
        self.log = SqliteLog(self.directory / "events.db")
        policy = CheckpointPolicy(self.directory / "checkpoints", every_events=70)
        graph, views = restore(
            {"engine": self.make}, self.make_graph, directory=policy.directory, log=self.log
        )
        self.runtime = Runtime(
            self.log,
            graph,
            views["engine"],
            checkpoints=policy,
            expiry=ExpiryPolicy(every_seconds=4, ask_from=10**6),
            scrub=ScrubPolicy(every_seconds=3),
            clock=self.clock,
        )

    def restart(self, *, cleanly: bool) -> None:
        if cleanly:
            self.runtime.stop()
        self.log.close()
        self.start()

    def happen(self, events: Events) -> None:
        self.clock.now += 1
        self.runtime.append(events)
        for _ in range(3):  # and what expires
            self.runtime.step()

    def replayed(self) -> View:
        """An engine that nobody asked, with the batches of the log."""
        graph = self.make_graph()
        engine = self.make(graph, None)
        for batch in self.log.batches(0):
            entries = self.log.entries(batch.after, up_to=batch.seq)
            graph.apply(Events.concatenate(entry.events for entry in entries), seq=batch.seq)
        return engine


def make_timed_stream(count: int) -> list[Events]:
    rng = np.random.default_rng(3)
    stream = []
    for number in range(count):
        src, dst = rng.integers(0, 40, (2, 3))
        events = Events().add_edges(src, dst, weight=rng.uniform(0.5, 2, 3), time=np.full(3, 20.0 + number))
        stream.append(events.set_features(rng.integers(40), rng.standard_normal((1, 4))))
    return stream


@pytest.mark.parametrize("cleanly", [False, True])
@pytest.mark.parametrize("timed", [False, True])
def test_a_served_engine_has_the_bits_of_its_log(tmp_path: Path, cleanly: bool, timed: bool) -> None:
    served = Served(tmp_path, make_timed_graph if timed else make_graph)
    for number, events in enumerate(make_timed_stream(45) if timed else make_stream(45)):
        served.happen(events)
        if number % 13 == 12:
            served.restart(cleanly=cleanly)
        if number % 7 == 0:
            served.runtime.engine.verify(3)
        served.runtime.engine.predict(served.runtime.graph.ids()[:3])
    assert served.runtime.seq == served.log.last_seq()
    assert predictions(served.runtime.engine) == predictions(served.replayed())
    served.log.close()
