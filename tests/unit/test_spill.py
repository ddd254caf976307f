"""A cache that goes to disk past its budget answers as one that keeps everything, from one moment each."""

import re
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import cast

import numpy as np
import pytest

import livegnn._core as _core
from livegnn.errors import DiskFullError, InputError, LogError

pytest.importorskip("rocksdict")
from livegnn.workers.spill import SpilledCache

NODES = 4000
TYPES = [(0, 0, False, True, True)]
ONE_HOPS = [(0, False, 12, 2, (-1,)), (0, False, 6, 1, (0,)), (0, True, 6, 0, (0,))]
WIDTH = 32
PLAN = (0, 1, TYPES, ONE_HOPS, [WIDTH])
LEAST = 1 << 20


def make_cache() -> _core.SampleCache:
    return _core.SampleCache(*PLAN, 0, 1)


class Stream:
    """Random changes as blocks for the one cache."""

    def __init__(self, rng: np.random.Generator, nodes: int = NODES) -> None:
        self.rng, self.nodes = rng, nodes
        self.shard = _core.SamplingShard(*PLAN, 0, 1, 1, int(rng.integers(1 << 62)), True)

    def ids(self, count: int) -> np.ndarray:
        return self.rng.integers(0, self.nodes, count)

    def fill(self) -> bytes:
        everyone = np.arange(self.nodes)
        self.shard.set_features(0, everyone, self.rng.random((self.nodes, WIDTH), np.float32))
        self.add(12 * self.nodes)
        return self.blocks()

    def add(self, count: int) -> None:
        self.shard.add_edges(
            0, self.ids(count), self.ids(count), self.rng.random(count, np.float32), self.rng.random(count)
        )

    def change(self) -> bytes:
        kind = self.rng.integers(0, 10)
        if kind < 5:
            self.add(50)
        elif kind < 7:
            self.shard.set_features(0, self.ids(20), self.rng.random((20, WIDTH), np.float32))
        elif kind == 7:
            self.shard.remove_nodes(0, self.ids(15))
        elif kind == 8:
            self.shard.expire(0, float(self.rng.random()) * 0.1)
        else:
            pairs = self.ids(2000).reshape(2, 1000)
            self.shard.remove_edges(0, pairs[0], pairs[1])
        return self.blocks()

    def blocks(self) -> bytes:
        ((blocks,), _) = self.shard.take_outbox()
        return blocks


def columns_of(sample: tuple[list, list, list]) -> list[object]:
    nodes, edges, inverse = sample
    columns = [column for one in (*nodes, *edges) for column in one] + inverse
    return [
        (column.dtype, column.tobytes()) if isinstance(column, np.ndarray) else column for column in columns
    ]


@pytest.mark.parametrize("budget", [LEAST, 2 * LEAST, 64 * LEAST])
def test_answers_are_those_of_a_cache_without_a_budget(
    budget: int, rng: np.random.Generator, tmp_path: Path
) -> None:
    stream, whole = Stream(rng), make_cache()
    with closing(SpilledCache(make_cache(), tmp_path / "spilled", budget)) as spilled:
        blocks = stream.fill()
        for step in range(150):
            whole.apply(blocks)
            spilled.apply(blocks)
            seeds, attributes = stream.ids(step % 7), bool(step % 3)
            expected = columns_of(whole.sample(seeds, attributes))
            assert columns_of(spilled.sample(seeds, attributes)) == expected
            ids = stream.ids(50)
            assert spilled.has_features(0, ids).tolist() == whole.has_features(0, ids).tolist()
            if step == 100:
                for cache in (whole, spilled):
                    cache.clear()
                stream.shard.publish_all(0)
            elif step == 120:
                for cache in (whole, spilled):
                    cache.restart(0)
                stream.shard.publish_all(0)
            blocks = stream.change()
        if budget > whole.bytes():
            assert spilled.native.evict(0) == ([], [])
        else:
            assert spilled.bytes() < whole.bytes()


@pytest.mark.explored
def test_memory_stays_near_the_budget(rng: np.random.Generator, tmp_path: Path) -> None:
    budget = 4 * LEAST
    stream, whole = Stream(rng, 20_000), make_cache()
    blocks = stream.fill()
    whole.apply(blocks)
    assert whole.bytes() > 2.5 * budget
    with closing(SpilledCache(make_cache(), tmp_path, budget)) as spilled:
        spilled.apply(blocks)
        most = spilled.bytes()
        for step in range(100):
            seeds = stream.ids(5)
            assert columns_of(spilled.sample(seeds, True)) == columns_of(whole.sample(seeds, True))
            if step % 20 == 0:
                changes = stream.change()
                spilled.apply(changes)
                whole.apply(changes)
            most = max(most, spilled.bytes())
        assert most < 1.25 * budget


def test_readers_see_one_moment_each(rng: np.random.Generator, tmp_path: Path) -> None:
    """Two threads read while one applies: each answer is that of a whole cache before or after a change."""
    stream, whole = Stream(rng, 2000), make_cache()
    seeds = stream.ids(4)
    failures: list[BaseException] = []
    answers: list[list[tuple[int, int, list[object]]]] = [[], []]
    applied, done = 0, threading.Event()
    with closing(SpilledCache(make_cache(), tmp_path, LEAST)) as spilled:
        blocks = stream.fill()
        spilled.apply(blocks)
        whole.apply(blocks)
        moments = [columns_of(whole.sample(seeds, True))]

        def read(mine: list[tuple[int, int, list[object]]]) -> None:
            others = np.random.default_rng(0)
            try:
                while not done.is_set():
                    before = applied
                    answer = columns_of(spilled.sample(seeds, True))
                    mine.append((before, applied, answer))
                    spilled.sample(others.integers(0, 2000, 50), True)  # others need the memory too
            except BaseException as error:
                failures.append(error)

        readers = [threading.Thread(target=read, args=(mine,)) for mine in answers]
        for thread in readers:
            thread.start()
        while applied < 150 and not failures:
            blocks = stream.change()
            whole.apply(blocks)
            moments.append(columns_of(whole.sample(seeds, True)))
            spilled.apply(blocks)
            applied += 1
        done.set()
        for thread in readers:
            thread.join()
        assert failures == []
        assert columns_of(spilled.sample(seeds, True)) == moments[-1]
    assert all(answers)
    for mine in answers:
        for before, after, answer in mine:
            assert answer in moments[before : after + 2]  # one may be applied and not yet counted


def evicted_seeds(spilled: SpilledCache, count: int) -> np.ndarray:
    """Nodes of which nothing is in memory, and something on disk."""
    node_type, everyone = 0, np.arange(NODES)
    _, places, _ = spilled.native.has_features_noting(node_type, everyone)
    some = [
        seed for seed in places if not len(spilled.native.sample_noting(np.array([seed]), True)[0][1][0][0])
    ]
    assert len(some) >= count
    return np.array(some[:count])


def test_what_was_taken_back_stays_away(rng: np.random.Generator, tmp_path: Path) -> None:
    """The database still has it: nothing is written while memory suffices."""
    stream, whole = Stream(rng), make_cache()
    with closing(SpilledCache(make_cache(), tmp_path, LEAST)) as spilled:
        blocks = stream.fill()
        seeds = np.arange(0)
        for step in range(2):
            whole.apply(blocks)
            spilled.apply(blocks)
            if step == 0:
                seeds = evicted_seeds(spilled, 20)
                spilled.budget_bytes = 1 << 40
                stream.shard.remove_nodes(0, seeds)
                blocks = stream.blocks()
        assert not spilled.has_features(0, seeds).any()
        assert columns_of(spilled.sample(seeds, True)) == columns_of(whole.sample(seeds, True))


class Interrupted:
    """A native cache, beside which something happens once, after the first look of a sample."""

    def __init__(self, native: _core.SampleCache, happen: Callable[[], None]) -> None:
        self.native, self.happen = native, happen

    def __getattr__(self, name: str) -> object:
        return getattr(self.native, name)

    def sample_noting(self, ids: np.ndarray, attributes: bool) -> tuple:
        looked, happen = self.native.sample_noting(ids, attributes), self.happen
        self.happen = lambda: None
        happen()
        return looked


def test_no_answer_is_of_two_moments(rng: np.random.Generator, tmp_path: Path) -> None:
    """One seed is in memory, one is not, and both lose all they have between the two looks."""
    stream, whole = Stream(rng), make_cache()
    with closing(SpilledCache(make_cache(), tmp_path, LEAST)) as spilled:
        blocks = stream.fill()
        whole.apply(blocks)
        spilled.apply(blocks)
        seeds = evicted_seeds(spilled, 2)
        spilled.budget_bytes = 1 << 40
        spilled.sample(seeds[:1], True)
        before = columns_of(whole.sample(seeds, True))
        stream.shard.remove_nodes(0, seeds)
        blocks = stream.blocks()
        whole.apply(blocks)
        spilled.native = cast("_core.SampleCache", Interrupted(spilled.native, lambda: spilled.apply(blocks)))
        answer = columns_of(spilled.sample(seeds, True))
        assert before != answer == columns_of(whole.sample(seeds, True))


def test_an_old_directory_is_emptied(rng: np.random.Generator, tmp_path: Path) -> None:
    stream = Stream(rng)
    with closing(SpilledCache(make_cache(), tmp_path, LEAST)) as spilled:
        spilled.apply(stream.fill())
        spilled.sample(np.arange(10), True)
    with closing(SpilledCache(make_cache(), tmp_path, LEAST)) as spilled:
        assert not spilled.has_features(0, np.arange(NODES)).any()
        with pytest.raises(LogError, match=re.escape(f"{tmp_path}, cannot be used")):
            SpilledCache(make_cache(), tmp_path, LEAST)  # somebody has it


def test_a_directory_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine", encoding="utf-8")
    with pytest.raises(LogError, match="file, cannot be used"):
        SpilledCache(make_cache(), file, LEAST)
    with pytest.raises(InputError, match="it holds other files"):
        SpilledCache(make_cache(), tmp_path, LEAST)
    assert file.read_text(encoding="utf-8") == "mine"
    with pytest.raises(InputError, match="at least 1,048,576, got 1000"):
        SpilledCache(make_cache(), tmp_path / "new", 1000)


def fill_the_disk(directory: str) -> None:
    """In a process of its own: from some moment on, files may be no larger than a little."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    stream, whole = Stream(np.random.default_rng(5), 8_000), make_cache()
    spilled = SpilledCache(make_cache(), directory, LEAST)
    blocks, told = stream.fill(), 0
    whole.apply(blocks)
    spilled.apply(blocks)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    while told < 3:
        seeds, blocks = stream.ids(5), stream.change()
        whole.apply(blocks)
        try:
            spilled.apply(blocks)
        except DiskFullError as error:
            told += "Make room there" in str(error)
        assert columns_of(spilled.sample(seeds, True)) == columns_of(whole.sample(seeds, True))
    print("told", told)


def test_a_full_disk_is_told_and_answers_stay(tmp_path: Path) -> None:
    run = subprocess.run([sys.executable, __file__, tmp_path], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (0, "told 3\n"), run.stderr


if __name__ == "__main__":
    fill_the_disk(sys.argv[1])
