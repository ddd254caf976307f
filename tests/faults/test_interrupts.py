"""An exception from outside at any opcode of an append, a batch, a step or an expiry, whatever becomes of it.

Afterwards the batch is whole or absent, its number says which, callbacks agree, no lock is kept, the next
call works, and log and checkpoint agree. One world goes through all interrupts of a test, beside a twin that
sees the batches that were applied and is never interrupted.
"""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

import livegnn as lg
from gate import draws, some
from histograms import DegreeHistogram
from interrupted_loop import LIVES, Served, batch, flat, make_timed, refused, small, stored
from livegnn.errors import InputError
from livegnn.log.sqlite import SqliteLog
from livegnn.log.sqlite.reader import SqliteReader
from opcodes import count_opcodes, interrupt, is_free, opcodes_of, places, watched
from streams import WIDTH, make_model

PROGRAM = Path(__file__).parents[1] / "interrupted_loop.py"


@pytest.fixture(autouse=True)
def ends() -> Iterator[None]:
    with watched():
        yield


class World:
    """A graph with views in Python and in C++, and what its callbacks were told."""

    def __init__(self, kind: str) -> None:
        self.keyed = kind == "keyed"
        self.graph = make_timed(keyed=self.keyed)
        mode: Literal["eager", "lazy"] = "lazy" if kind == "lazy" else "eager"
        self.engine = lg.Engine(self.graph, make_model(), threads=1, history=50, mode=mode)
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


def assert_same(world: World, twin: World, where: str) -> None:
    got, expected = world.shows(), twin.shows()
    assert got.keys() == expected.keys()
    assert not [name for name in got if got[name] != expected[name]], where
    assert (world.graph.seq, world.engine.epoch) == (twin.graph.seq, twin.engine.epoch), where


KINDS = {
    "batch": (batch, lambda world, events: world.apply(events)),
    "refused": (refused, lambda world, events: world.apply(events)),
    "expiry": (lambda number, keyed: number + 1, lambda world, number: world.expire(LIVES + number)),
}


@pytest.mark.parametrize(("kind", "of"), some(product(KINDS, ("eager", "lazy", "keyed"))))
def test_a_batch_is_whole_or_absent_and_its_number_and_callbacks_say_which(
    rng: np.random.Generator, kind: str, of: str
) -> None:
    world, twin, probe = World(of), World(of), World(of)
    make, apply = KINDS[kind]
    first, second = make(0, world.keyed), make(1, world.keyed)
    with suppress(InputError):
        apply(probe, first)
    opcodes = count_opcodes(lambda: apply(probe, second))
    assert opcodes > 200
    for number, at in enumerate(places(rng, opcodes)):
        events, before = make(number, world.keyed), world.graph.seq
        kept = interrupt(partial(apply, world, events), at)
        where = f"{kind} {number} of {of}, interrupted {kept!r}"
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


def test_no_opcode_of_what_looks_for_a_refusal_keeps_the_turn(tmp_path: Path) -> None:
    """Of a step with a refused entry: its entries are looked at one by one."""
    served = Served(tmp_path)

    def wait(number: int) -> None:
        served.runtime.append(batch(number))
        served.runtime.append(refused(number))

    wait(0)
    served.drain()
    wait(1)
    for number, at in enumerate(opcodes_of(served.runtime.step, "find_refusal"), 2):
        served.drain()
        wait(number)
        kept = interrupt(served.runtime.step, at)
        served.assert_agrees(f"refused {number}, interrupted {kept!r}")
    served.drain()
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


def test_signals_at_random_times_lose_nothing_and_double_nothing(
    rng: np.random.Generator, tmp_path: Path
) -> None:
    rounds, seed = draws(40, 3000), int(rng.integers(2**31))
    ran = subprocess.run(
        [sys.executable, PROGRAM, tmp_path / "one", str(rounds), str(seed)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert ran.returncode == 0, (seed, ran.stderr)
    assert ran.stdout.startswith(f"{rounds} interrupts, ")
