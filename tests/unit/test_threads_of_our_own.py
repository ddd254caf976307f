"""Threads and flags that are waited for, with an exception from outside at any opcode of who waits."""

import threading
from collections.abc import Callable
from functools import partial

import pytest

from livegnn.interrupts import Background, Flag
from opcodes import count_opcodes, interrupt, is_free


def test_a_thread_that_runs_counts_as_running_whatever_interrupts_who_waits() -> None:
    """Python's own may count as ended: its `join` takes an interrupt for one that came when it had."""
    let_go = threading.Event()
    thread = Background(lambda: (let_go.wait(), None)[1], "one")
    assert not thread.is_alive()
    thread.join()  # was not started
    thread.start()
    asked: list[Callable[[], object]] = [lambda: thread.join(0.0), thread.is_alive]
    for ask in asked:
        for at in range(count_opcodes(ask)):
            kept = interrupt(ask, at)
            assert thread.is_alive(), repr(kept)
    let_go.set()
    thread.join()
    assert not thread.is_alive()


def test_a_thread_that_fails_has_ended_and_does_not_wait_for_itself() -> None:
    said: list[str] = []

    def work() -> None:
        with pytest.raises(RuntimeError, match="got itself") as refused:
            thread.join()
        said.append(str(refused.value))

    thread = Background(work, "one")
    thread.start()
    thread.join()
    assert len(said) == 1


@pytest.mark.parametrize("name", ["wait", "set"])
def test_a_flag_keeps_no_lock_after_an_interrupt(name: str) -> None:
    def call(flag: Flag) -> None:
        if name == "wait":
            flag.wait(0.0)
        else:
            flag.set()

    opcodes = count_opcodes(lambda: call(Flag()))
    for at in range(opcodes):
        flag = Flag()
        kept = interrupt(partial(call, flag), at)
        assert is_free(flag._changed), repr(kept)
        other = threading.Thread(target=flag.set)
        other.start()
        other.join()
        assert flag.wait(0.0)
        flag.clear()
        assert not flag.wait(0.0)
