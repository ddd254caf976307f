"""Exceptions from outside, between any two opcodes: what a signal's handler, Ctrl-C or a time limit does."""

import faulthandler
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import numpy as np

import livegnn
from gate import EXPLORING, draws
from livegnn.errors import InputError
from waiting import PATIENCE

_NEVER = 10**9  # an opcode that no call comes to


class Interrupt(BaseException):
    """From outside: nobody who runs expects it."""


_OURS = str(Path(livegnn.__file__).parent)
_OTHERS = re.compile(r"/(contextlib|threading)\.py$|^<string>$")
"""What contexts and locks are made of, and a user's view."""


def _trace(call: Callable[[], object], visit: Callable[[FrameType, int], None]) -> BaseException | None:
    """Calls `visit` before each opcode of a call, counted from 0 over our functions that it comes to.

    Returns what the call raised, with every frame that this keeps.
    """
    seen = 0
    counted: dict[str, bool] = {}

    def trace(frame: FrameType, event: str, arg: object) -> Callable[..., Any] | None:
        nonlocal seen
        name = frame.f_code.co_filename
        if name not in counted:
            counted[name] = name.startswith(_OURS) or _OTHERS.search(name) is not None
        if not counted[name]:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            at, seen = seen, seen + 1
            visit(frame, at)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except BaseException as error:
        return error
    finally:
        sys.settrace(before)
    return None


def interrupted(call: Callable[[], object], at: int) -> tuple[BaseException | None, int]:
    """Raises `Interrupt` before opcode `at` of a call.

    Returns what the call raised, and how many opcodes there were before that.
    """
    seen = 0

    def visit(frame: FrameType, number: int) -> None:
        nonlocal seen
        if number == at:
            raise Interrupt(f"before opcode {at}, in {frame.f_code.co_qualname}:{frame.f_lineno}")
        seen = number + 1

    return _trace(call, visit), seen


def opcodes_of(call: Callable[[], object], function: str) -> list[int]:
    """The opcodes of a call that are those of a function itself, by its name."""
    found: list[int] = []

    def visit(frame: FrameType, number: int) -> None:
        if frame.f_code.co_name == function:
            found.append(number)

    _trace(call, visit)
    assert found, function
    return found


def places(rng: np.random.Generator, opcodes: int, gate: int = 60) -> list[int]:
    """The opcodes to interrupt: all of them, or some."""
    if EXPLORING:
        return list(range(opcodes))
    return sorted(rng.choice(opcodes, min(opcodes, draws(gate, 0)), replace=False).tolist())


def interrupt(call: Callable[[], object], at: int) -> BaseException | None:
    """The exception, with all that it keeps alive; None if the call has less opcodes, and was not refused."""
    raised, opcodes = interrupted(call, at)
    if raised is not None and not isinstance(raised, (Interrupt, InputError)):
        raise raised
    assert raised is not None or opcodes <= at
    return raised


def count_opcodes(call: Callable[[], object]) -> int:
    """How many opcodes a call has; it was called before, so what is made once is there."""
    raised, opcodes = interrupted(call, _NEVER)
    assert raised is None or isinstance(raised, InputError)
    return opcodes


class Lock(Protocol):
    def acquire(self, blocking: bool = ..., timeout: float = ...) -> bool: ...
    def release(self) -> None: ...


def is_free(lock: Lock, seconds: float = 0.0) -> bool:
    """Whether another thread can have it. seconds: for which threads of ours may hold it."""
    got: list[bool] = []

    def take() -> None:
        got.append(lock.acquire(timeout=seconds))
        if got[0]:
            lock.release()

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    return got[0]


@contextmanager
def watched() -> Iterator[None]:
    """A test that waits for a lock that is kept says where, and ends the process."""
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()
