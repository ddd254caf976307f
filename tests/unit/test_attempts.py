"""When operations on a store are tried again: by a clock that stands while nobody waits."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from livegnn.errors import StoreUnavailableError
from livegnn.snapshots.attempts import Attempts, StoreHealth


class Clock:
    """Time passes by sleeping alone."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def for_ever(do: Callable[[], None]) -> None:
    while True:
        do()


def test_a_store_that_answers_nobody_is_asked_until_patience_ends() -> None:
    clock = Clock()
    attempts = Attempts(StoreHealth(clock), 3.0, sleep=clock.sleep)
    pauses = []

    def try_again() -> None:
        before = clock.now
        attempts.wait(StoreUnavailableError("down"))
        pauses.append(clock.now - before)

    with pytest.raises(StoreUnavailableError, match="down; asked again for 3 seconds"):
        for_ever(try_again)
    for pause, longest in zip(pauses, (0.05, 0.1, 0.2, 0.4, 0.8, 1.6), strict=False):
        assert 0.5 * longest <= pause <= longest
    assert 5 <= len(pauses) <= 7
    assert clock.now <= 1003.0


def test_whoever_is_refused_waits_as_long_as_others_are_answered() -> None:
    clock = Clock()
    health = StoreHealth(clock)
    attempts = Attempts(health, 3.0, sleep=clock.sleep)
    for _ in range(60):
        health.note_answer()
        clock.now += 0.1
        before = clock.now
        attempts.wait(StoreUnavailableError("slow down"))
        assert clock.now - before <= 0.05
    assert clock.now > 1003.0, "patience alone would have ended"


@pytest.mark.parametrize("parts", [1, 16])
def test_a_store_that_refuses_nearly_all_is_not_asked_for_ever(parts: int) -> None:
    clock = Clock()
    health = StoreHealth(clock)
    attempts = Attempts(health, 3.0, parts=parts, sleep=clock.sleep)
    tried = 0

    def try_again() -> None:
        nonlocal tried
        health.note_answer()
        attempts.wait(StoreUnavailableError("slow down"), parts)
        tried += parts
        assert tried <= 4 * parts + 64

    with pytest.raises(StoreUnavailableError, match="refuses most: send fewer at once"):
        for_ever(try_again)
    assert tried >= 3 * parts + 64
