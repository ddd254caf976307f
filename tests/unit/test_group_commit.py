"""Appends of many threads in one write, and a thread that appends alone."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from livegnn import Events, InputError, LogError
from livegnn.log import Appended, Given, Origin, Outcomes, seq_of
from livegnn.log.group_commit import GroupCommit
from waiting import wait_until


class Store:
    """Notes each write, and the numbers of its entries; held: a write that waits."""

    def __init__(self) -> None:
        self.group, self.writes, self.seq = GroupCommit(self.write), list[Sequence[Given]](), 0
        self.held, self.entered = threading.Event(), threading.Event()
        self.held.set()

    def write(self, given: Sequence[Given]) -> Outcomes:
        self.entered.set()
        self.held.wait()
        self.writes.append(given)
        outcomes: list[Appended | InputError] = []
        for events, _, _ in given:
            if isinstance(events, InputError):
                outcomes.append(events)
                continue
            self.seq += len(events)
            outcomes.append(Appended(self.seq, len(events)))
        return outcomes


def some(*counts: int, origin: Origin | None = None) -> list[Given]:
    return [(Events().add_nodes([0] * count), None, origin) for count in counts]


def waiting(store: Store, count: int) -> None:
    wait_until(lambda: len(store.group._waiting) == count)


def test_what_waits_is_written_together_and_each_gets_its_own_outcomes() -> None:
    store = Store()
    store.held.clear()
    with ThreadPoolExecutor(4) as threads:
        first = threads.submit(store.group.append, some(1))
        store.entered.wait()
        refused = InputError("none")
        several = threads.submit(store.group.append, [*some(2), (refused, None, None), *some(3)])
        waiting(store, 1)
        none = threads.submit(store.group.append, [])
        waiting(store, 2)
        last = threads.submit(store.group.append, some(1))
        waiting(store, 3)
        store.held.set()
        assert first.result() == [(1, 1, False)]
        assert several.result() == [(3, 2, False), refused, (6, 3, False)]
        assert none.result() == []
        assert seq_of(last.result()) == 7
    assert list(map(len, store.writes)) == [1, 4]


def test_a_thread_that_appends_alone_comes_before_those_that_wait() -> None:
    store = Store()
    inside, go_on = threading.Event(), threading.Event()

    def expire() -> list[int]:
        inside.set()
        go_on.wait()
        return [
            seq_of(store.group.append(some(1))),
            store.group.alone(lambda: seq_of(store.group.append(some(1)))),
        ]

    with ThreadPoolExecutor(3) as threads:
        alone = threads.submit(store.group.alone, expire)
        inside.wait()
        others = [threads.submit(store.group.append, some(1)) for _ in range(2)]
        waiting(store, 2)
        assert store.writes == []
        go_on.set()
        assert alone.result() == [1, 2]
        assert sorted(seq_of(one.result()) for one in others) == [3, 4]


def test_entries_with_origins_share_no_write() -> None:
    store = Store()
    store.held.clear()
    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(store.group.append, some(1))
        store.entered.wait()
        plain = threads.submit(store.group.append, some(1))
        waiting(store, 1)
        origin = threads.submit(store.group.append, some(1, 1, origin=Origin("stream", 0, 1)))
        store.held.set()
        assert sorted(one.seq for done in (first, plain, origin) for one in done.result()) == [1, 2, 3, 4]
    assert sorted(map(len, store.writes)) == [1, 1, 2]


def test_a_write_that_fails_fails_for_all() -> None:
    def fail(given: Sequence[Given]) -> Outcomes:
        raise LogError("the disk is full")

    group = GroupCommit(fail)
    for given in (some(1), some(1, origin=Origin("stream", 0, 1))):
        with pytest.raises(LogError, match="full"):
            group.append(given)
    assert group._waiting == []
    with pytest.raises(InputError, match="none"):
        seq_of([InputError("none")])
