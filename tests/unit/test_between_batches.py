"""What other threads have the loop do between two batches."""

import threading

import pytest

from livegnn import InputError, LiveGNNError
from livegnn.runtime.between_batches import BetweenBatches


class Waker:
    """A loop that makes calls when it is woken, in a thread of its own."""

    def __init__(self) -> None:
        self.woken, self.ended = threading.Event(), False
        self.calls = BetweenBatches(self.woken.set)
        self.begun = threading.Event()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()
        self.begun.wait()

    def _run(self) -> None:
        self.calls.begin()
        self.begun.set()
        while not self.ended:
            self.woken.wait()
            self.woken.clear()
            if self.calls.until() == 0:
                self.calls.run()
        self.calls.end()

    def stop(self) -> None:
        self.ended = True
        self.woken.set()
        self.thread.join()


def test_a_call_runs_in_the_thread_of_the_loop_and_answers() -> None:
    waker = Waker()
    seen: list[int] = []
    done = [0] * 50

    def ask(number: int) -> None:
        done[number] = waker.calls.call(lambda: seen.append(threading.get_ident()) or number)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done == list(range(50))
    assert set(seen) == {waker.thread.ident}
    assert waker.calls.until() is None
    waker.stop()


def test_what_a_call_raises_comes_to_who_asked_and_the_loop_goes_on() -> None:
    waker = Waker()

    def fail() -> None:
        raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        waker.calls.call(fail)
    assert waker.calls.call(lambda: 3) == 3
    waker.stop()
    with pytest.raises(LiveGNNError, match=r"has ended: nothing was changed"):
        waker.calls.call(lambda: 3)


def test_the_loop_cannot_ask_itself() -> None:
    waker = Waker()
    with pytest.raises(InputError, match=r"another thread than the loop's"):
        waker.calls.call(lambda: waker.calls.call(lambda: 3))
    waker.stop()


def test_without_a_loop_a_call_runs_here() -> None:
    calls = BetweenBatches(lambda: pytest.fail("there is nobody to wake"))
    assert calls.call(threading.get_ident) == threading.get_ident()


def test_those_who_wait_when_the_loop_ends_are_told() -> None:
    asked = threading.Event()
    calls = BetweenBatches(asked.set)
    over = threading.Event()
    looping = threading.Thread(target=lambda: (calls.begin(), over.wait()))
    looping.start()
    while calls._thread is None:
        pass
    told: list[Exception] = []

    def ask() -> None:
        try:
            calls.call(lambda: 3)
        except LiveGNNError as error:
            told.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    asked.wait()
    calls.end()
    thread.join()
    over.set()
    looping.join()
    assert len(told) == 1
