"""Channels between threads: rounds, turns that end, threads that are slow or closed."""

from collections.abc import Callable

import numpy as np
import pytest

from channel_network import in_threads, plain, sections_for
from livegnn.channels.channel import Arrived, Channel, LocalChannels, Round
from livegnn.channels.errors import (
    BatchAborted,
    DeadLinkError,
    SlowWorkerError,
)
from livegnn.channels.frames import Section, SectionKind
from livegnn.channels.link import Limits
from livegnn.errors import InputError
from waiting import PATIENCE, wait_until

ROWS = Section(SectionKind.ROWS, 0, np.arange(2, dtype=np.uint32), np.ones((2, 3), np.float32))
TERMS = {"version": "1", "model": "a"}
SMALL = Limits(part_bytes=100, window_bytes=200)


def test_threads_swap_in_rounds() -> None:
    channels = LocalChannels(3, round_seconds=PATIENCE).channels

    def run(channel: Channel) -> list[object]:
        got = []
        for turn in range(1, 30):
            for number in range(3):
                round = Round(turn, 0, number, turn)
                given = {peer: sections_for(1, channel.number, peer, round) for peer in channel.peers}
                found = channel.swap(round, given)
                assert list(found) == channel.peers
                got.append({peer: plain(sections) for peer, sections in found.items()})
        return got

    for channel, got in zip(channels, in_threads([lambda c=c: run(c) for c in channels]), strict=True):
        assert isinstance(got, list)
        assert got == [
            {
                peer: plain(sections_for(1, peer, channel.number, Round(turn, 0, number, turn)))
                for peer in channel.peers
            }
            for turn in range(1, 30)
            for number in range(3)
        ]


def test_arrays_are_passed_without_a_copy_and_may_be_left_out() -> None:
    one, other = LocalChannels(2, round_seconds=PATIENCE).channels
    round = Round(1, 0, 0)
    got = in_threads([lambda: one.swap(round, {1: [ROWS]}), lambda: other.swap(round, {})])
    assert got == [{1: []}, {0: [ROWS]}]


def test_one_worker_is_alone() -> None:
    (one,) = LocalChannels(1).channels
    assert one.swap(Round(1, 0, 0), {}) == {}


def test_whoever_aborts_ends_the_turn_for_all() -> None:
    channels = LocalChannels(3, round_seconds=PATIENCE).channels
    round = Round(1, 0, 0)
    calls: list[Callable[[], object]] = [lambda c=c: c.swap(round, {}) for c in channels[:2]]
    got = in_threads([*calls, lambda: channels[2].abort(1, "no memory")])
    for error in got[:2]:
        assert isinstance(error, BatchAborted)
        assert "worker 2 has ended turn 1: no memory" in str(error)
    with pytest.raises(BatchAborted, match="worker 2 has ended turn 1: no memory"):
        channels[2].swap(round, {})
    later = Round(2, 0, 0)
    assert in_threads([lambda c=c: c.swap(later, {}) for c in channels]) == [
        {1: [], 2: []},
        {0: [], 2: []},
        {0: [], 1: []},
    ]


def test_rows_of_a_turn_that_has_ended_are_dropped() -> None:
    one, other = LocalChannels(2, round_seconds=PATIENCE).channels
    one.abort(1, "for the test")
    with pytest.raises(BatchAborted):
        other.swap(Round(1, 0, 0), {0: [ROWS]})
    again = Round(2, 0, 0)
    assert in_threads([lambda: one.swap(again, {}), lambda: other.swap(again, {})]) == [{1: []}, {0: []}]


def test_a_turn_ends_between_threads_though_its_sections_have_arrived() -> None:
    shared = LocalChannels(3, round_seconds=PATIENCE)
    one, other, _ = shared.channels
    shared._inboxes[0][1].put(Arrived(Round(1, 0, 0), []))

    def end() -> None:
        wait_until(lambda: not shared._inboxes[0][1]._arrived)
        other.abort(1, "no memory")

    error, _ = in_threads([lambda: one.swap(Round(1, 0, 0), {}), end])
    assert str(error) == "worker 1 has ended turn 1: no memory"


def test_a_turn_ends_where_another_has_begun() -> None:
    one, other = LocalChannels(2, round_seconds=PATIENCE).channels
    got = in_threads([lambda: swap_and_close(one, Round(1, 0, 0)), lambda: other.swap(Round(2, 0, 0), {})])
    assert isinstance(got[0], BatchAborted)
    assert "worker 1 has begun turn 2: round 0 of turn 1 (seq 0) has ended" in str(got[0])
    assert isinstance(got[1], DeadLinkError)


def swap_and_close(channel: Channel, round: Round) -> object:
    """A round that fails, after which the channel is closed, so that no other waits for it."""
    try:
        return channel.swap(round, {})
    finally:
        channel.close()


def test_another_round_is_an_error() -> None:
    one, other = LocalChannels(2, round_seconds=PATIENCE).channels
    rounds = [Round(1, 0, 0, 7), Round(1, 0, 1, 7)]
    got = in_threads(
        [lambda c=c, r=r: swap_and_close(c, r) for c, r in zip([one, other], rounds, strict=True)]
    )
    said = sorted(str(error) for error in got)
    assert any("must make round " in one and "of turn 1 (seq 7), got round " in one for one in said)


def test_a_closed_channel_ends_the_wait() -> None:
    one, other = LocalChannels(2, round_seconds=PATIENCE).channels
    got = in_threads([lambda: one.swap(Round(1, 0, 0), {}), other.close])
    assert isinstance(got[0], DeadLinkError)
    assert "worker 1 has closed its channel before round 0 of turn 1" in str(got[0])


def test_a_thread_that_makes_no_round_is_slow() -> None:
    one, _ = LocalChannels(2, round_seconds=0.01).channels
    with pytest.raises(SlowWorkerError, match=r"the workers \[1\] must make round 0 of turn 1"):
        one.swap(Round(1, 0, 0), {})


def test_rounds_are_in_order_and_for_known_workers() -> None:
    one, _ = LocalChannels(2).channels
    for bad in (
        Round(0, 0, 0),
        Round(2**64, 0, 0),
        Round(1, 256, 0),
        Round(1, 0, 256),
        Round(1, 0, 0, 2**64),
    ):
        with pytest.raises(InputError, match="the numbers of a round must fit into a message"):
            one.swap(bad, {})
    with pytest.raises(InputError, match=r"must be for the workers \[1\], got some for \[0, 5\]"):
        one.swap(Round(1, 0, 0), {0: [], 5: []})
    one.abort(3, "for the test")
    with pytest.raises(BatchAborted):
        one.swap(Round(3, 0, 1, 7), {})
    for early in (Round(2, 0, 2, 7), Round(3, 0, 1, 7), Round(3, 1, 0, 8)):
        with pytest.raises(InputError, match="a round must be later than round 1 of turn 3"):
            one.swap(early, {})
    with pytest.raises(InputError, match="workers must be an integer of at least 1, got 0"):
        LocalChannels(0)
