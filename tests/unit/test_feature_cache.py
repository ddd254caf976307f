"""The cache of features beside a dictionary."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from livegnn.remote.feature_cache import FeatureCache

WIDTHS = {"user": 3, "item": 8, "tag": 0}
NOTES = {"user": 2, "item": 1}
BYTES = {name: 4 * width + 32 + NOTES.get(name, 0) for name, width in WIDTHS.items()}

rows = st.lists(st.integers(0, 30), max_size=12)
name = st.sampled_from(list(WIDTHS))
step = st.one_of(
    st.tuples(st.just("insert"), name, rows, st.integers(0, 1500)),
    st.tuples(st.just("evict"), name, rows, st.integers(0, 1500)),
    st.tuples(st.just("clear"), name, rows, st.integers(0, 1500)),
)


def features_of(node_type: str, numbers: list[int], version: int) -> np.ndarray:
    width = WIDTHS[node_type]
    first = np.array(numbers, np.float32).reshape(-1, 1) + 1000 * version
    return np.repeat(first, width, axis=1) + np.arange(width, dtype=np.float32)


def notes_of(node_type: str, degrees: list[int], version: int) -> np.ndarray | None:
    both = np.array([(degree, version) for degree in degrees], np.uint8).reshape(-1, 2)
    return both[:, : NOTES[node_type]] if node_type in NOTES else None


class Oracle:
    """Entries by node type and row: their degree, and the version of their features."""

    def __init__(self) -> None:
        self.entries: dict[tuple[str, int], tuple[int, int]] = {}

    @property
    def bytes(self) -> int:
        return sum(BYTES[node_type] for node_type, _ in self.entries)

    def check(self, cache: FeatureCache) -> None:
        assert (len(cache), cache.bytes) == (len(self.entries), self.bytes)
        for node_type, width in WIDTHS.items():
            everything = np.arange(31)
            out = np.full((31, width), -1, np.float32)
            found = cache.read(node_type, everything, out)
            here = {row: entry for (kind, row), entry in self.entries.items() if kind == node_type}
            assert np.flatnonzero(found).tolist() == sorted(here)
            there, notes = cache.read_notes(node_type, everything)
            assert (there == found).all()
            for row, (degree, version) in here.items():
                assert (out[row] == features_of(node_type, [row], version)[0]).all()
                assert notes[row].tolist() == [degree, version][: NOTES.get(node_type, 0)]

    def follow(self, cache: FeatureCache, most: int, keep: set[tuple[str, int]]) -> int:
        """Removes what the cache has removed, and checks that it had to, and that it chose the smallest."""
        left = {
            (node_type, row)
            for node_type, width in WIDTHS.items()
            for row in np.flatnonzero(
                cache.read(node_type, np.arange(31), np.zeros((31, width), np.float32))
            ).tolist()
        }
        gone = set(self.entries) - left
        others = set(self.entries) - keep
        assert gone <= others
        if self.bytes <= most:
            assert not gone
        else:
            degree = {key: entry[0] for key, entry in self.entries.items()}
            last = max((degree[key] for key in gone), default=-1)
            assert all(degree[key] >= last for key in others - gone)
            after = self.bytes - sum(BYTES[node_type] for node_type, _ in gone)
            assert after <= most or gone == others
            assert not gone or any(
                after + BYTES[node_type] > most for node_type, row in gone if degree[node_type, row] == last
            )
        for key in gone:
            del self.entries[key]
        return len(gone)


@settings(max_examples=300, deadline=None)
@given(st.lists(step, max_size=12), st.integers(0, 2**31))
def test_it_does_what_a_dictionary_does(steps: list[tuple[str, str, list[int], int]], seed: int) -> None:
    random = np.random.default_rng(seed)
    cache, oracle = FeatureCache(WIDTHS, NOTES), Oracle()
    for version, (what, node_type, numbers, most) in enumerate(steps):
        if what == "clear":
            cache.show(f"another, {version}")
            oracle.entries.clear()
        elif what == "evict":
            before = len(cache)
            evicted = cache.evict(most, {node_type: np.array(numbers, np.int64)})
            assert evicted == oracle.follow(cache, most, {(node_type, row) for row in numbers})
            assert evicted == before - len(cache)
        else:
            numbers = list(dict.fromkeys(numbers))
            degrees = random.integers(0, 6, len(numbers))
            old = set(oracle.entries)
            for row, degree in zip(numbers, degrees.tolist(), strict=True):
                oracle.entries.setdefault((node_type, row), (degree, version))
            given = features_of(node_type, numbers, version)
            evicted = cache.insert(
                node_type,
                np.array(numbers, np.int64),
                given,
                np.arange(len(numbers)),
                degrees,
                notes_of(node_type, degrees.tolist(), version),
                room=most,
            )
            oracle.follow(cache, most, set())
            assert evicted == len(old - set(oracle.entries))
        oracle.check(cache)


def test_of_equal_degrees_those_that_were_there_stay() -> None:
    cache = FeatureCache({"node": 1})
    two = 2 * (4 + 32)
    for first in (0, 2):
        numbers = np.array([first, first + 1])
        x = numbers.reshape(-1, 1).astype(np.float32)
        cache.insert("node", numbers, x, np.arange(2), np.array([5, 5]), room=two)
    assert cache.read("node", np.arange(4), np.zeros((4, 1), np.float32)).tolist() == [1, 1, 0, 0]


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="the system does not say it")
def test_what_is_evicted_goes_back_to_the_system() -> None:
    def taken() -> int:
        """Memory of this process, wherever it is; no pages of files, which the system takes when it likes."""
        lines = Path("/proc/self/smaps_rollup").read_text(encoding="utf-8").splitlines()
        return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(("Anonymous:", "Swap:")))

    cache, count, width = FeatureCache({"node": 256}), 40_000, 256
    x = np.ones((count, width), np.float32)
    before = taken()
    cache.insert("node", np.arange(count), x, np.arange(count), np.arange(count), room=2**40)
    full = taken()
    assert full - before > 0.9 * x.nbytes
    cache.evict(cache.bytes // 10, {})
    assert full - taken() > 0.8 * x.nbytes
    out = np.zeros((count, width), np.float32)
    found = cache.read("node", np.arange(count), out)
    assert found.sum() == len(cache) == count // 10
    assert found[-len(cache) :].all()
    assert (out[found] == 1).all()
