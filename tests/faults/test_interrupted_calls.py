"""Calls beside batches, with an exception from outside at any opcode of theirs.

Afterwards no lock is kept, what is shown is as before, the same call answers in another thread, and the next
batch gives the same bits as in a twin that was never interrupted.
"""

import gc
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

import interrupted_loop
import livegnn as lg
from histograms import DegreeHistogram
from interrupted_loop import FACTORIES, make_timed
from interrupted_loop import Served as InterruptedLoop
from livegnn.graph import find_refusal
from livegnn.log import Batch, Rejection
from livegnn.log.sqlite import SqliteLog
from livegnn.log.sqlite.tail import SqliteTail
from livegnn.runtime import CheckpointPolicy, Runtime, restore
from livegnn.types import State
from opcodes import Lock, count_opcodes, interrupt, is_free, opcodes_of, places, watched
from streams import WIDTH, make_graph, make_model
from waiting import PATIENCE


@pytest.fixture(autouse=True)
def ends() -> Iterator[None]:
    with watched():
        yield


def elsewhere(call: Callable[[], object]) -> object:
    """What a call returns in another thread, which waits for what this one has kept."""
    got: list[object] = []
    thread = threading.Thread(target=lambda: got.append(call()))
    thread.start()
    thread.join()
    return got[0]


def batch(number: int) -> lg.Events:
    """It depends on its number alone."""
    rng = np.random.default_rng(number)
    events = lg.Events().set_features([number % 40], rng.normal(size=(1, WIDTH)))
    events.add_edges([number % 40], [(7 * number + 3) % 40], weight=[1.5])
    if number % 2:
        return events.remove_nodes([1000])
    return events.add_nodes([1000], rng.normal(size=(1, WIDTH))).add_edges([1000], [5], weight=[0.5])


class World:
    """A graph with views in Python and in C++, and a supposition that outlives batches."""

    def __init__(self, mode: Literal["eager", "lazy"]) -> None:
        self.graph = make_graph()
        self.engine = lg.Engine(self.graph, make_model(), threads=1, history=30, mode=mode)
        self.degrees = DegreeHistogram(self.graph)
        self.supposed = self.engine.what_if(lg.Events().set_features([7], np.ones((1, WIDTH))))

    def shows(self) -> dict[str, bytes]:
        shown = {f"graph/{name}": array.tobytes() for name, array in self.graph.state().arrays.items()}
        shown |= {f"engine/{name}": array.tobytes() for name, array in self.engine.state().arrays.items()}
        shown["degrees"] = self.degrees.counts.tobytes()
        return shown | {"predictions": self.engine.embeddings(-1).tobytes()}


def arrays_of(saved: State) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in saved.arrays.items()}


SUPPOSED = lg.Events().add_nodes([77], np.ones((1, WIDTH))).add_edges([77], [3], weight=[2.0])

CALLS: dict[str, Callable[[World], object]] = {
    "what_if": lambda world: world.engine.what_if(SUPPOSED).predict([77, 3]).tobytes(),
    "supposed": lambda world: (world.supposed.predict([7, 5]).tobytes(), world.supposed.changed.tolist()),
    "affected": lambda world: world.supposed.affected,
    "verify": lambda world: world.engine.verify(5, seed=3).ok,
    "verify all": lambda world: world.engine.verify().ok,
    "scrub": lambda world: world.engine.scrub(8, seed=1),
    "explain": lambda world: repr(world.engine.explain(5, since=max(world.graph.seq - 12, 0)).events),
    "embeddings": lambda world: world.engine.embeddings(1).tobytes(),
    "engine state": lambda world: arrays_of(world.engine.state()),
    "graph state": lambda world: arrays_of(world.graph.state()),
    "snapshot": lambda world: world.graph.snapshot().ids["node"].tobytes(),
    "stage": lambda world: world.graph.stage(SUPPOSED).seq,
    "refusal": lambda world: repr(find_refusal(world.graph.core, SUPPOSED)),
    "memory": lambda world: sorted(world.engine.memory()),
    "attach": lambda world: world.graph.attach(world.degrees),
    "subscribe": lambda world: world.engine.subscribe(lambda update: None)(),
    "restore a graph": lambda world: lg.Graph.from_state(world.graph.state()).num_edges(),
}


@pytest.mark.parametrize("mode", ["eager", "lazy"])
@pytest.mark.parametrize("name", list(CALLS))
def test_a_call_beside_batches_leaves_nothing_of_itself(
    rng: np.random.Generator, name: str, mode: Literal["eager", "lazy"]
) -> None:
    world, twin, call = World(mode), World(mode), CALLS[name]
    for one in (world, twin):
        one.engine.apply(batch(0))
        call(one)
    opcodes = count_opcodes(lambda: call(world))
    for number, at in enumerate(places(rng, opcodes, 12), 1):
        kept = interrupt(lambda: call(world), at)
        where = f"{name}, interrupted {kept!r}"
        assert is_free(world.graph.writer), where
        assert elsewhere(lambda: call(world)) == call(twin), where
        for one in (world, twin):
            one.engine.apply(batch(number))
        got, expected = world.shows(), twin.shows()
        assert not [part for part in expected if got[part] != expected[part]], where


FOUND = {
    "supposed": ["changed"],
    "affected": ["affected"],
    "snapshot": ["snapshot"],
    "stage": ["stage"],
    "refusal": ["find_refusal"],
    "attach": ["attach"],
    "explain": ["_explain"],
    "verify": ["verify"],
}
"""Functions in which an interrupt has kept the writer lock."""


@pytest.mark.parametrize("name", list(FOUND))
def test_no_opcode_of_these_functions_keeps_the_turn(name: str) -> None:
    world, call = World("eager"), CALLS[name]
    call(world)
    for function in FOUND[name]:
        for at in opcodes_of(lambda: call(world), function):
            kept = interrupt(lambda: call(world), at)
            assert is_free(world.graph.writer), repr(kept)


@pytest.mark.parametrize("saved", [False, True])
def test_an_engine_that_was_not_made_whole_follows_no_graph(rng: np.random.Generator, saved: bool) -> None:
    world = World("eager")
    state = world.engine.state() if saved else None

    def make() -> lg.Engine:
        return lg.Engine(world.graph, make_model(), threads=1, history=9, state=state)

    opcodes = count_opcodes(make)
    kept = []
    for number, at in enumerate(places(rng, opcodes, 25)):
        state = world.engine.state() if saved else None
        kept.append(interrupt(make, at))
        where = f"interrupted {kept[-1]!r}"
        assert is_free(world.graph.writer), where
        world.engine.apply(batch(number))
        expected = world.engine.embeddings(-1).tobytes()
        views = [view for ref in world.graph.views._views if (view := ref()) is not None]
        for view in views:
            if isinstance(view, lg.Engine):
                assert view.embeddings(-1).tobytes() == expected, where
                assert view.memory()["history"] > 0, where


class Served:
    """A runtime whose loop runs, and everything that it locks."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.log = SqliteLog(folder / "log.db")
        graph = make_graph()
        lg.Engine(graph, make_model(), threads=1)
        self.engine = lg.Engine(graph, make_model(), threads=1)
        self.other = lg.Engine(graph, replace(make_model()), threads=1, name="other")
        policy = CheckpointPolicy(folder / "checkpoints", every_events=10**6)
        self.runtime = Runtime(self.log, graph, self.engine, self.other, checkpoints=policy)
        self.runtime.start()

    def assert_goes_on(self, number: int, where: str) -> None:
        runtime, models = self.runtime, self.runtime.models
        locks: list[Lock] = [runtime.graph.writer, runtime._becoming_visible, runtime.log.group._turn]
        locks += [runtime._visible, models._lock, models._changing, runtime._between_batches._changed]
        assert all(is_free(lock, PATIENCE) for lock in locks), where
        assert elsewhere(lambda: runtime.wait(runtime.append(batch(number)))) == self.log.last_seq(), where

    def stop(self) -> None:
        self.runtime.stop()
        self.log.close()


def switch(served: Served) -> object:
    models = served.runtime.models
    return models.switch("other" if models.serving == "engine" else "engine").model


RUNTIME_CALLS: dict[str, Callable[[Served], object]] = {
    "predict": lambda served: served.runtime.predict([3, 5]),
    "predict at once": lambda served: served.runtime.predict_at_once([3, 5]),
    "read": lambda served: served.runtime.read(lambda: served.runtime.graph.num_nodes()),
    "wait": lambda served: served.runtime.wait(served.runtime.append(batch(1))),
    "what_if": lambda served: served.runtime.what_if(SUPPOSED, [77]),
    "subscribe": lambda served: served.runtime.subscribe(lambda change: None, on_end=lambda: None)(),
    "states": lambda served: served.runtime.models.states(),
    "compare": lambda served: served.runtime.models.compare("other", "engine", sample=5),
    "switch": switch,
}


@pytest.mark.parametrize("name", list(RUNTIME_CALLS))
def test_a_call_of_a_runtime_that_was_interrupted_keeps_nobody_waiting(
    rng: np.random.Generator, tmp_path: Path, name: str
) -> None:
    served, call = Served(tmp_path), RUNTIME_CALLS[name]
    served.assert_goes_on(0, "before")
    call(served)
    for number, at in enumerate(places(rng, count_opcodes(lambda: call(served)), 12)):
        kept = interrupt(lambda: call(served), at)
        where = f"{name}, interrupted {kept!r}"
        served.assert_goes_on(number, where)
        assert elsewhere(lambda: (call(served), True)), where
    served.stop()


def test_a_stop_that_was_interrupted_ends_when_it_is_called_again(
    rng: np.random.Generator, tmp_path: Path
) -> None:
    """Python's own `join`, interrupted, takes a thread for one that has ended while it runs."""
    first = Served(tmp_path / "first")
    first.assert_goes_on(0, "before")
    opcodes = count_opcodes(first.runtime.stop)
    first.log.close()
    for number, at in enumerate(places(rng, opcodes, 12)):
        served = Served(tmp_path / str(number))
        served.assert_goes_on(0, "before")
        last = served.runtime.append(batch(1))
        kept = interrupt(served.runtime.stop, at)
        served.runtime.stop()
        assert not served.runtime.running, repr(kept)
        assert served.runtime.graph.core.claim is None, repr(kept)
        assert is_free(served.runtime.graph.writer), repr(kept)
        ends = [one.seq for one in served.log.batches(0)]
        assert served.runtime.seq == ends[-1] <= last, repr(kept)
        names = [path.name for path in (served.folder / "checkpoints").glob("checkpoint-*")]
        assert names == [f"checkpoint-{ends[-1]:020d}.lgck"], repr(kept)
        served.log.close()


TAILS: dict[str, Callable[[SqliteTail], object]] = {
    "entries": lambda tail: [entry.seq for entry in tail.entries(3)],
    "batches": lambda tail: [one.batch for one in tail.batches(3)],
    "wait": lambda tail: tail.wait(60),
    "commit": lambda tail: tail.commit(tail.position + 1),
}


@pytest.mark.parametrize("name", list(TAILS))
def test_a_tail_goes_on_after_an_interrupt_where_it_was(
    rng: np.random.Generator, tmp_path: Path, name: str
) -> None:
    log = SqliteLog(tmp_path / "log.db")

    def add() -> None:
        seq = log.append(lg.Events().add_edges([log.last_seq()], [0]))
        log.record_batch(Batch(seq - 1, seq))

    add()
    tail, call = SqliteTail(tmp_path / "log.db", "one"), TAILS[name]
    add()
    call(tail)
    add()
    for at in places(rng, count_opcodes(lambda: call(tail)), 25):
        add()
        before = tail.position
        kept = interrupt(lambda: call(tail), at)
        where = f"{name}, interrupted {kept!r}"
        begin = tail.position
        assert begin in ((before, before + 1) if name == "commit" else (before,)), where
        there = list(range(begin + 1, log.last_seq() + 1))
        assert elsewhere(lambda: tail.wait(60)), where
        assert [entry.seq for entry in tail.entries()] == there, where
        assert [one.batch.seq for one in tail.batches()] == there, where
    begin = tail.position
    tail.close()
    tail = SqliteTail(tmp_path / "log.db", "one")
    assert tail.position == begin
    tail.close()
    log.close()


def test_a_trim_that_was_interrupted_leaves_all_that_follows(
    rng: np.random.Generator, tmp_path: Path
) -> None:
    log = SqliteLog(tmp_path / "log.db")

    def add() -> None:
        seq = log.append(lg.Events().add_edges([log.last_seq()], [0]), key=f"key {log.last_seq()}")
        refused = [Rejection(seq, "InputError", "no reason")] if seq % 3 == 0 else []
        log.record_batch(Batch(seq - 1, seq), *refused)

    def trim() -> int:
        return log.trim(log.last_seq() - 2)

    for _ in range(6):
        add()
    trim()
    add()
    for at in places(rng, count_opcodes(trim), 25):
        add()
        kept = interrupt(trim, at)
        where = f"interrupted {kept!r}"
        elsewhere(add)
        first, last = log.first_seq(), log.last_seq()
        assert [entry.seq for entry in log.entries(first - 1)] == list(range(first, last + 1)), where
        assert [batch.seq for batch in log.batches(first - 1)] == list(range(first, last + 1)), where
        refused = [one.seq for one in log.rejections()]
        assert refused == [seq for seq in range(1, last + 1) if seq % 3 == 0], where
        assert all(log.entry(seq) is not None for seq in refused), where
        assert trim() >= first - 1, where
    last, digest = log.last_seq(), log.digest(log.last_seq())
    log.close()
    log = SqliteLog(tmp_path / "log.db")
    assert (log.last_seq(), log.digest(last)) == (last, digest)
    log.close()


def test_a_close_of_a_log_that_was_interrupted_ends_when_it_is_called_again(
    rng: np.random.Generator, tmp_path: Path
) -> None:
    path = tmp_path / "log.db"

    def open_log() -> SqliteLog:
        log = SqliteLog(path)
        log.directories.own(tmp_path / "checkpoints", "checkpoints").hold()
        return log

    log = open_log()
    seq = log.append(batch(0))
    opcodes = count_opcodes(log.close)
    for at in places(rng, opcodes, 40):
        log = open_log()
        kept = interrupt(log.close, at)
        elsewhere(lambda log=log: (log.close(), True))
        log.close()
        again = open_log()
        assert again.last_seq() == seq, repr(kept)
        again.close()


def test_a_start_that_was_interrupted_takes_nothing_from_the_next(
    rng: np.random.Generator, tmp_path: Path
) -> None:
    served = InterruptedLoop(tmp_path)
    for number in range(4):
        served.runtime.append(interrupted_loop.batch(number))
    served.drain()
    shown = served.stop()

    def start() -> dict[str, bytes]:
        log = SqliteLog(tmp_path / "log.db")
        try:
            directory = tmp_path / "checkpoints"
            graph, views = restore(FACTORIES, make_timed, directory=directory, log=log)
            return InterruptedLoop.shows(Runtime(log, graph, *views.values()))
        finally:
            log.close()

    assert start() == shown
    for at in places(rng, count_opcodes(start), 10):
        kept = interrupt(start, at)
        # What was opened belongs to nobody, and is closed with the last who knows of it.
        where = repr(kept)
        del kept
        gc.collect()
        assert start() == shown, where
