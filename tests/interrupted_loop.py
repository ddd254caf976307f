"""A runtime with checkpoints whose appends and steps signals interrupt, beside what its callers were told.

    python tests/interrupted_loop.py FOLDER ROUNDS SEED

In each round a timer raises `KeyboardInterrupt` at a random moment of a loop of appends and steps. Afterwards
graph, log and subscribers must agree, an append that is repeated is the same entry, and the next step works.
At the end the log must have each append once, in order, and a start from it must show the same.
"""

import random
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

import numpy as np

import livegnn as lg
from histograms import DegreeHistogram
from livegnn.expiry import ExpiryPolicy
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import Change, CheckpointPolicy, Runtime, restore
from livegnn.runtime.recovery import ViewFactory
from livegnn.types import State
from opcodes import is_free
from streams import WIDTH, make_arrays, make_model

LIVES = 1e6


def make_timed(*, keyed: bool = False) -> lg.Graph:
    """A graph whose edges expire. keyed: which keeps parallel ones."""
    arrays = make_arrays()
    return lg.Graph.from_edges(
        **arrays,
        time=np.linspace(0, 100, len(arrays["src"])),
        time_to_live=LIVES,
        parallel="keep" if keyed else "refuse",
    )


def batch(number: int, keyed: bool = False) -> lg.Events:
    """A node that comes, edges of it, features, and a node that goes: it depends on its number alone."""
    rng = np.random.default_rng(number)
    new, old = 1000 + number, 10 + number % 20
    events = lg.Events()
    if number % 2:
        events.remove_nodes([old]).add_nodes([old], rng.normal(size=(1, WIDTH)))
    events.add_nodes([new], rng.normal(size=(1, WIDTH)))
    key = [1, 7] if keyed else None
    events.add_edges([new, 3], [5, new], weight=[1.5, 0.5], time=[200.0 + number] * 2, key=key)
    if keyed:
        events.add_edges([3, 3], [5, 5], weight=[0.5, 0.25], time=[200.0 + number] * 2, key=[number, 0])
    return events.set_features([number % 40], rng.normal(size=(1, WIDTH)))


def small(number: int) -> lg.Events:
    """A batch that comes after; its edge is as old as what the next expiry removes."""
    events = lg.Events().set_features([number % 40], np.full((1, WIDTH), number % 7))
    events.add_edges([number % 40], [(7 * number + 3) % 40], weight=[1.0], time=[number + 0.5])
    return events.remove_nodes([5000]) if number % 2 else events.add_nodes([5000], np.ones((1, WIDTH)))


def refused(number: int, keyed: bool = False) -> lg.Events:
    return batch(number, keyed).set_features([999_999], np.zeros((1, WIDTH)))


def flat(states: dict[str, State]) -> dict[str, bytes]:
    return {
        f"{of}/{name}": array.tobytes() for of, one in states.items() for name, array in one.arrays.items()
    }


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
        # Native functions: a signal could keep one in Python from noting what it is told.
        self._changes: list[Change] = []
        self._updates: list[lg.Update] = []
        self.runtime.subscribe(self._changes.append)
        self.runtime.engine.subscribe(self._updates.append)

    def assert_agrees(self, where: str) -> None:
        """Graph, log and callbacks say the same."""
        ends = [one.seq for one in self.log.batches(0)]
        refused = {one.seq for one in self.log.rejections()}
        assert self.runtime.seq == self.runtime.graph.seq == (ends[-1] if ends else 0), where
        assert [change.seq for change in self._changes] == ends, where
        assert [one.seq for one in self._updates] == [end for end in ends if end not in refused], where
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


def stored(events: lg.Events) -> lg.Events:
    """Events as a log gives them back: neighbours of one kind are joined."""
    return lg.Events.from_bytes(lg.Events.concatenate([events]).to_bytes())


class Interrupts:
    """Raises `KeyboardInterrupt` in the main thread once, some processor time after it was armed: on a busy
    machine at the same moments as on an idle one.
    """

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        signal.signal(signal.SIGPROF, self._interrupt)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    def arm(self) -> None:
        signal.setitimer(signal.ITIMER_PROF, self._draw.uniform(0.001, 0.05))


def main() -> None:
    folder, rounds, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    served, interrupts, number = Served(folder), Interrupts(seed), 0

    def append() -> int:
        return served.runtime.append(batch(number), key=f"batch {number}")

    for at in range(rounds):
        try:
            interrupts.arm()
            while True:
                append()
                served.runtime.step()
                number += 1
        except KeyboardInterrupt as error:
            kept = error  # with every frame
        served.assert_agrees(f"round {at}, interrupted {kept!r}")
        first = append()
        assert append() == first
        number += 1
        other = threading.Thread(target=served.runtime.predict, args=([3],))
        other.start()
        other.join()
        served.drain()
        assert served.runtime.seq == served.log.last_seq(), at
        served.assert_agrees(f"the steps after round {at}")
    expected = [served.runtime.graph.with_types(stored(batch(one))) for one in range(number)]
    assert [entry.events for entry in served.log.entries(0)] == expected
    served.assert_restored(served.stop())
    print(f"{rounds} interrupts, {number} appends")


if __name__ == "__main__":
    main()
