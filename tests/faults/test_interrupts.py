"""An exception from outside at any opcode of an append, a batch, a step or an expiry, whatever becomes of it.

Afterwards the batch is whole or absent, its number says which, callbacks agree, no lock is kept, the next
call works, and log and checkpoint agree. One world goes through all interrupts of a test, beside a twin that
sees the batches that were applied and is never interrupted.
"""

import faulthandler
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np
import pytest

import livegnn as lg
from gate import EXPLORING, draws
from histograms import DegreeHistogram
from livegnn.errors import InputError
from livegnn.expiry import ExpiryPolicy
from livegnn.log.reader import SqliteReader
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import CheckpointPolicy, Runtime, restore
from livegnn.runtime.recovery import ViewFactory
from livegnn.types import State
from opcodes import Interrupt, interrupted
from streams import WIDTH, make_arrays, make_model
from waiting import PATIENCE

LIVES = 1e6
NEVER = 10**9  # an opcode that no call comes to


@pytest.fixture(autouse=True)
def watched() -> Iterator[None]:
    """A test that waits for a lock that is kept says where, and ends the process."""
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


def places(rng: np.random.Generator, opcodes: int) -> list[int]:
    """The opcodes to interrupt: all of them, or some."""
    if EXPLORING:
        return list(range(opcodes))
    return sorted(rng.choice(opcodes, min(opcodes, draws(60, 0)), replace=False).tolist())


def make_timed() -> lg.Graph:
    arrays = make_arrays()
    return lg.Graph.from_edges(**arrays, time=np.linspace(0, 100, len(arrays["src"])), time_to_live=LIVES)


def batch(number: int) -> lg.Events:
    """A node that comes, edges of it, features, and a node that goes: it depends on its number alone."""
    rng = np.random.default_rng(number)
    new, old = 1000 + number, 10 + number % 20
    events = lg.Events()
    if number % 2:
        events.remove_nodes([old]).add_nodes([old], rng.normal(size=(1, WIDTH)))
    events.add_nodes([new], rng.normal(size=(1, WIDTH)))
    events.add_edges([new, 3], [5, new], weight=[1.5, 0.5], time=[200.0 + number] * 2)
    return events.set_features([number % 40], rng.normal(size=(1, WIDTH)))


def small(number: int) -> lg.Events:
    """A batch that comes after; its edge is as old as what the next expiry removes."""
    events = lg.Events().set_features([number % 40], np.full((1, WIDTH), number % 7))
    events.add_edges([number % 40], [(7 * number + 3) % 40], weight=[1.0], time=[number + 0.5])
    return events.remove_nodes([5000]) if number % 2 else events.add_nodes([5000], np.ones((1, WIDTH)))


def refused(number: int) -> lg.Events:
    return batch(number).set_features([999_999], np.zeros((1, WIDTH)))


class Lock(Protocol):
    def acquire(self, blocking: bool = ...) -> bool: ...
    def release(self) -> None: ...


def is_free(lock: Lock) -> bool:
    """Whether another thread can have it."""
    got: list[bool] = []

    def take() -> None:
        got.append(lock.acquire(blocking=False))
        if got[0]:
            lock.release()

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    return got[0]


class World:
    """A graph with views in Python and in C++, and what its callbacks were told."""

    def __init__(self) -> None:
        self.graph = make_timed()
        self.engine = lg.Engine(self.graph, make_model(), threads=1, history=50)
        self.degrees = DegreeHistogram(self.graph)
        self.told: list[int] = []
        self.committed: list[int] = []
        self.engine.subscribe(lambda update: None)
        self.engine.subscribe(lambda update: self.told.append(update.seq))
        self.supposed = self.engine.what_if(lg.Events().set_features([7], np.ones((1, WIDTH))))

    def apply(self, events: lg.Events) -> None:
        self.engine.apply(events, on_committed=lambda update: self.committed.append(update.seq))

    def expire(self, now: float) -> None:
        self.graph.expire(now)

    def shows(self) -> dict[str, bytes]:
        """Everything that answers are made of, and what they are."""
        states = {"graph": self.graph.state(), "engine": self.engine.state()}
        shown = flat(states)
        shown["predictions"] = self.engine.embeddings(-1).tobytes()
        shown["supposed"] = self.supposed.predict([7, 5]).tobytes()
        shown["degrees"] = self.degrees.counts.tobytes()
        return shown


def flat(states: dict[str, State]) -> dict[str, bytes]:
    return {
        f"{of}/{name}": array.tobytes() for of, one in states.items() for name, array in one.arrays.items()
    }


def assert_same(world: World, twin: World, where: str) -> None:
    got, expected = world.shows(), twin.shows()
    assert got.keys() == expected.keys()
    assert not [name for name in got if got[name] != expected[name]], where
    assert (world.graph.seq, world.engine.epoch) == (twin.graph.seq, twin.engine.epoch), where


def stored(events: lg.Events) -> lg.Events:
    """Events as a log gives them back: neighbours of one kind are joined."""
    return lg.Events.from_bytes(lg.Events.concatenate([events]).to_bytes())


def interrupt(call: Callable[[], object], at: int) -> BaseException | None:
    """The exception, with all that it keeps alive; None if the call has less opcodes, and was not refused."""
    raised, opcodes = interrupted(call, at)
    if raised is not None and not isinstance(raised, (Interrupt, InputError)):
        raise raised
    assert raised is not None or opcodes <= at
    return raised


def count_opcodes(call: Callable[[], object]) -> int:
    """How many opcodes a call has; it was called before, so what is made once is there."""
    raised, opcodes = interrupted(call, NEVER)
    assert raised is None or isinstance(raised, InputError)
    return opcodes


KINDS = {
    "batch": (batch, lambda world, events: world.apply(events)),
    "refused": (refused, lambda world, events: world.apply(events)),
    "expiry": (lambda number: number, lambda world, number: world.expire(LIVES + number)),
}


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_batch_is_whole_or_absent_and_its_number_and_callbacks_say_which(
    rng: np.random.Generator, kind: str
) -> None:
    world, twin = World(), World()
    make, apply = KINDS[kind]
    probe, first, second = World(), make(0), make(1)
    with suppress(InputError):
        apply(probe, first)
    opcodes = count_opcodes(lambda: apply(probe, second))
    assert opcodes > 200
    for number, at in enumerate(places(rng, opcodes)):
        events, before = make(number), world.graph.seq
        kept = interrupt(partial(apply, world, events), at)
        where = f"{kind} {number}, interrupted {kept!r}"
        assert kind == "refused" or not isinstance(kept, InputError), where
        assert is_free(world.graph.writer), where
        if world.graph.seq != before:
            assert kind != "refused", where
            apply(twin, events)
        assert world.told == twin.told, where
        assert world.committed == twin.committed, where
        assert_same(world, twin, where)
        for one in (world, twin):
            one.apply(small(number))
        assert_same(world, twin, f"the batch after {where}")
        assert world.told == twin.told, where
        assert world.committed == twin.committed, where
    since = world.graph.seq - 10
    explained = [one.engine.explain(5, since=since).events for one in (world, twin)]
    assert repr(explained[0]) == repr(explained[1])


@pytest.mark.parametrize("keyed", [True, False])
def test_an_append_is_whole_or_absent_and_its_repeat_is_the_same_entry(
    rng: np.random.Generator, tmp_path: Path, keyed: bool
) -> None:
    log = SqliteLog(tmp_path / "log.db")

    def append(number: int, events: lg.Events) -> int:
        return log.append(events, key=f"key {number}" if keyed else None)

    expected = [stored(batch(number)) for number in range(2)]
    append(0, expected[0])
    opcodes = count_opcodes(lambda: append(1, expected[1]))
    assert opcodes > 200
    for number, at in enumerate(places(rng, opcodes), 2):
        before, events = log.last_seq(), stored(batch(number))
        kept = interrupt(partial(append, number, events), at)
        where = f"append {number}, interrupted {kept!r}"
        whole = log.last_seq() != before
        if whole or keyed:
            assert not whole or log.last_seq() == before + len(events), where
            expected.append(events)
        if keyed:
            assert append(number, events) == before + len(events) == log.last_seq(), where
        reader = SqliteReader(tmp_path / "log.db")
        assert reader.last_seq() == log.last_seq(), where
        reader.close()
        other = threading.Thread(target=log.append, args=(small(number),))
        other.start()
        other.join()
        expected.append(stored(small(number)))
    assert [entry.events for entry in log.entries(0)] == expected
    last, digest = log.last_seq(), log.digest(log.last_seq())
    log.close()
    log = SqliteLog(tmp_path / "log.db")
    assert (log.last_seq(), log.digest(last)) == (last, digest)
    assert [entry.events for entry in log.entries(0)] == expected
    log.close()


FACTORIES: dict[str, ViewFactory] = {
    "engine": lg.Engine.factory(make_model(), threads=1),
    "degrees": DegreeHistogram,
}


class Served:
    """A runtime with checkpoints, whose step is interrupted, and what its subscribers were told."""

    def __init__(self, folder: Path, *, expires: bool = False, every: int = 20) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.log = SqliteLog(folder / "log.db")
        self.time = LIVES
        graph, views = restore(FACTORIES, make_timed, directory=folder / "checkpoints", log=self.log)
        self.runtime = Runtime(
            self.log,
            graph,
            *views.values(),
            checkpoints=CheckpointPolicy(folder / "checkpoints", every_events=every, trim_log=False),
            expiry=ExpiryPolicy(1e-9, now=lambda: self.time, ask_from=1_000) if expires else None,
        )
        self.told: list[int] = []
        self.heard: list[int] = []
        self.runtime.subscribe(lambda change: self.told.append(change.seq))
        self.runtime.engine.subscribe(lambda update: self.heard.append(update.seq))

    def assert_agrees(self, where: str) -> None:
        """Graph, log and callbacks say the same."""
        ends = [one.seq for one in self.log.batches(0)]
        refused = {one.seq for one in self.log.rejections()}
        assert self.runtime.seq == self.runtime.graph.seq == (ends[-1] if ends else 0), where
        assert self.told == ends, where
        assert self.heard == [end for end in ends if end not in refused], where
        assert is_free(self.runtime.graph.writer), where
        assert is_free(self.runtime._becoming_visible), where

    def drain(self) -> None:
        while self.runtime.step() or self.runtime.waiting:
            pass

    def stop(self) -> dict[str, bytes]:
        """What it shows at its end; the last checkpoint is of that."""
        self.runtime.stop()
        shown = self.shows(self.runtime)
        self.log.close()
        return shown

    @staticmethod
    def shows(runtime: Runtime) -> dict[str, bytes]:
        degrees = runtime.views["degrees"]
        assert isinstance(degrees, DegreeHistogram)
        shown = flat({"graph": runtime.graph.state(), "engine": runtime.engine.state()})
        return {**shown, "degrees": degrees.counts.tobytes()}

    def assert_restored(self, shown: dict[str, bytes], where: str = "") -> None:
        """A start from the checkpoint, and one from the whole log, show the same to the bit."""
        for directory in (self.folder / "checkpoints", None):
            log = SqliteLog(self.folder / "log.db")
            graph, views = restore(FACTORIES, make_timed, directory=directory, log=log)
            again = Runtime(log, graph, *views.values(), expiry=None)
            assert again.seq == log.last_seq()
            got = self.shows(again)
            assert not [name for name in got if got[name] != shown[name]], (directory, where)
            again.stop()
            log.close()


@pytest.mark.parametrize("what", ["batch", "refused", "expiry"])
def test_a_step_is_whole_or_absent_and_log_and_checkpoint_agree(
    rng: np.random.Generator, tmp_path: Path, what: str
) -> None:
    served = Served(tmp_path, expires=what == "expiry")

    def wait(number: int) -> None:
        served.time = LIVES + number
        served.runtime.append(small(number) if what == "expiry" else batch(number))
        if what == "refused":
            served.runtime.append(refused(number))

    wait(0)
    served.drain()
    wait(1)
    opcodes = count_opcodes(served.runtime.step)
    assert opcodes > 500
    served.drain()
    for number, at in enumerate(places(rng, opcodes), 2):
        wait(number)
        kept = interrupt(served.runtime.step, at)
        where = f"{what} {number}, interrupted {kept!r}"
        served.assert_agrees(where)
        served.drain()
        assert served.runtime.seq == served.log.last_seq(), where
        served.assert_agrees(f"the steps after {where}")
    served.assert_restored(served.stop())


def test_a_stop_after_an_interrupted_step_writes_what_the_log_says(
    rng: np.random.Generator, tmp_path: Path
) -> None:
    first = Served(tmp_path / "first")
    first.runtime.append(batch(0))
    first.drain()
    first.runtime.append(batch(1))
    opcodes = count_opcodes(first.runtime.step)
    first.stop()
    some = rng.choice(opcodes, draws(6, 200), replace=False).tolist()
    for number, at in enumerate(some):
        served = Served(tmp_path / str(number))
        for one in range(3):
            served.runtime.append(batch(one))
        served.drain()
        served.runtime.append(batch(3))
        kept = interrupt(served.runtime.step, at)
        where = f"interrupted {kept!r}"
        served.stop()
        again = Served(tmp_path / str(number))
        again.drain()
        again.assert_restored(again.stop(), where)
