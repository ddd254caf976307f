"""Ranges joined to requests: what they read is what was asked for, and they are as few as the gap allows."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from livegnn.snapshots.joined_ranges import join

SIZE = 5000


@st.composite
def asked(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Ranges of an object: empty, long, equal, overlapping, in any order."""
    longest = draw(st.sampled_from([1, 20, SIZE]))
    starts = st.integers(0, SIZE)
    ranges = draw(st.lists(st.tuples(starts, st.integers(0, longest)), max_size=40))
    cut = [(start, min(length, SIZE - start)) for start, length in ranges]
    return cut + (cut[: len(cut) // 2] if draw(st.booleans()) else [])


@given(asked(), st.sampled_from([0, 1, 7, 300, SIZE]), st.sampled_from([1, 10, 64, 1000, 10 * SIZE]))
def test_requests_have_what_was_asked_for(ranges: list[tuple[int, int]], gap: int, part: int) -> None:
    content = np.random.default_rng(0).integers(0, 256, SIZE, dtype=np.uint8)
    starts = np.array([start for start, _ in ranges], np.int64)
    lengths = np.array([length for _, length in ranges], np.int64)
    found = join(starts, lengths, gap=gap, part=part)
    out = np.zeros(lengths.sum(), np.uint8)
    written = np.zeros(len(out), np.int64)
    for i in range(len(found.starts)):
        data = content[found.starts[i] : found.starts[i] + found.lengths[i]]
        assert 0 < len(data) == found.lengths[i] < 2 * part
        for j in range(found.bounds[i], found.bounds[i + 1]):
            size, offset, place = found.parts[j], found.offsets[j], found.places[j]
            out[place : place + size] = data[offset : offset + size]
            written[place : place + size] += 1
    assert (written == 1).all()
    wanted = [content[start : start + length] for start, length in ranges]
    np.testing.assert_array_equal(out, np.concatenate([np.empty(0, np.uint8), *wanted]))


@given(asked(), st.sampled_from([0, 1, 7, 300, SIZE]), st.sampled_from([1, 10, 64, 1000, 10 * SIZE]))
def test_requests_are_few_and_read_little_else(ranges: list[tuple[int, int]], gap: int, part: int) -> None:
    """As many as there are places where more bytes than the gap are not asked for, and one for each part;
    beside what was asked for they read gaps alone."""
    found = join(
        np.array([start for start, _ in ranges], np.int64),
        np.array([length for _, length in ranges], np.int64),
        gap=gap,
        part=part,
    )
    wanted = np.zeros(SIZE, np.bool_)
    for start, length in ranges:
        wanted[start : start + length] = True
    at = np.flatnonzero(wanted)
    holes = np.diff(at) - 1
    breaks = int((holes > gap).sum()) + bool(len(at))
    assert len(found.starts) <= breaks + sum(-(-length // part) for _, length in ranges) + len(at) // part
    if part > SIZE:
        assert len(found.starts) == breaks
        assert found.lengths.sum() == len(at) + holes[holes <= gap].sum()
