"""Several processes that all want to be worker 1, some of them lost or replaced, at one process of worker 0
and over a network that loses, doubles and delays: it exchanges rows with one that lives, and the others hear.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import hypothesis.strategies as st
from hypothesis import given, settings

from channel_network import Faults, Frames
from gate import draws
from livegnn.channels.errors import ChannelError, ChannelRefusedError
from livegnn.channels.exchange import Exchange
from livegnn.channels.greeting import End
from livegnn.channels.health import Patience
from livegnn.channels.link import Limits

STEP = 0.2  # seconds, between two hellos
TERMS = {"model": "a"}


class Process(NamedTuple):
    """A process of worker 1. ends: the step before which it is lost, if it is."""

    begins: int
    ends: int | None
    epoch: int
    terms: str


class Scene:
    """Messages between worker 0, which begins at step `begins`, and the processes, each by its own route."""

    def __init__(self, processes: Sequence[Process], begins: int, faults: Faults) -> None:
        self.processes, self.begins, self.faults = processes, begins, faults
        self.zero = _exchange(0, 2, "a")
        self.others = [_exchange(1, one.epoch, one.terms) for one in processes]
        self._posted: list[tuple[float, int, bool, Frames]] = []

    def lives(self, number: int, step: int) -> bool:
        one = self.processes[number]
        return one.begins <= step and (one.ends is None or step < one.ends)

    def run(self, steps: int) -> None:
        for step in range(steps):
            now = step * STEP
            for number, other in enumerate(self.others):
                if self.lives(number, step):
                    other.tick(now)
                    self._send(other, now, number)
            if step >= self.begins:
                for number, frames in self._arrived(now, to_zero=True):
                    self.zero.receive(1, list(frames), now, b"%d" % number)
                self.zero.tick(now)
                self._answer(step)
            for number, frames in self._arrived(now, to_zero=False):
                if self.lives(number, step):
                    self.others[number].receive(0, list(frames), now)

    def _send(self, other: Exchange, now: float, number: int) -> None:
        link = other.links[0]
        while (frames := link.outgoing()) is not None:
            self._post(now, number, True, [bytes(one) for one in frames])
            link.note_sent()

    def _answer(self, step: int) -> None:
        link = self.zero.links[1]
        while (frames := link.outgoing()) is not None:
            if not link.route or not self.lives(int(link.route), step):
                link.note_cut()
                continue
            self._post(step * STEP, int(link.route), False, [bytes(one) for one in frames])
            link.note_sent()

    def _post(self, now: float, number: int, to_zero: bool, frames: Frames) -> None:
        for delay, each in self.faults.decide(frames):
            self._posted.append((now + delay, number, to_zero, each))

    def _arrived(self, now: float, *, to_zero: bool) -> Iterator[tuple[int, Frames]]:
        due = [one for one in self._posted if one[0] <= now and one[2] == to_zero]
        self._posted = [one for one in self._posted if one not in due]
        return ((number, frames) for _, number, _, frames in due)


def _exchange(number: int, epoch: int, model: str) -> Exchange:
    return Exchange(
        End(number, 1),
        {1 - number: 1},
        epoch,
        {"model": model},
        patience=Patience(beat_seconds=STEP),
        limits=Limits(),
        now=0.0,
    )


def greeted(one: Exchange) -> bool | ChannelError:
    try:
        return one.is_greeted()
    except ChannelError as error:
        return error


PROCESSES = st.lists(
    st.builds(
        Process,
        begins=st.integers(0, 8),
        ends=st.none() | st.integers(1, 12),
        epoch=st.sampled_from([2, 2, 1]),
        terms=st.sampled_from(["a", "a", "b"]),
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=draws(150, 5000))
@given(PROCESSES, st.integers(0, 8), st.integers(0, 2**32), st.integers(0, 20))
def test_one_process_that_lives_is_greeted(
    processes: list[Process], begins: int, seed: int, most: int
) -> None:
    scene = Scene(processes, begins, Faults(seed, 0.4, most=most))
    scene.run(80)
    zero = greeted(scene.zero)
    found = [greeted(other) for other in scene.others]
    assert sum(one is True for one in found) <= 1
    for number, (one, got) in enumerate(zip(processes, found, strict=True)):
        met = (one.ends or 80) > begins and (one.ends or 80) > one.begins
        if one.epoch == 1 or not met:
            assert got is not True, number
        if got is True:
            assert zero is True or isinstance(zero, ChannelRefusedError)
            assert one.terms == "a"
        if one.ends is None and not isinstance(zero, ChannelRefusedError):  # none waits without an answer
            assert isinstance(got, ChannelRefusedError) or got is True
    if isinstance(zero, ChannelRefusedError):  # the terms of a process that has heard this one's
        assert any(one.terms == "b" and one.epoch == 2 and (one.ends or 80) > begins for one in processes)
        assert "model is 'a' at worker 0 and 'b' at worker 1" in str(zero)
    elif any(one.ends is None and one.epoch == 2 for one in processes):
        assert zero is True
