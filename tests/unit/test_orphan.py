"""When a worker that nobody asks ends its process."""

import itertools
import threading
from collections.abc import Callable

import pytest

from livegnn.cluster.orphan import OrphanCheck
from waiting import PATIENCE


def answers(*said: object) -> Callable[[], bool]:
    """Returns or raises these one after the other, and True from then on."""
    left = itertools.chain(said, itertools.repeat(True))

    def answer() -> bool:
        one = next(left)
        if isinstance(one, Exception):
            raise one
        return bool(one)

    return answer


def test_a_worker_that_the_cluster_no_longer_has_ends() -> None:
    """An answer that does not arrive says nothing, however often."""
    ended = threading.Event()
    asked = answers(True, RuntimeError("no answer"), True, TimeoutError(), False)
    OrphanCheck(asked, 0.001, ended.set)
    assert ended.wait(PATIENCE)
    assert asked() is True, "the answers before must all have been taken"


@pytest.mark.parametrize("unclear", [True, RuntimeError("no answer")])
def test_a_worker_that_the_cluster_has_or_may_have_goes_on(unclear: object) -> None:
    ended, often = threading.Event(), threading.Semaphore(0)
    answer = answers(*[unclear] * 20)

    def ask() -> bool:
        often.release()
        return answer()

    OrphanCheck(ask, 0.0005, ended.set)
    for _ in range(20):
        assert often.acquire(timeout=PATIENCE)
    assert not ended.is_set()
