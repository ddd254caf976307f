"""Exceptions from outside, between any two opcodes: what a signal's handler, Ctrl-C or a time limit does."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import livegnn


class Interrupt(BaseException):
    """From outside: nobody who runs expects it."""


_OURS = str(Path(livegnn.__file__).parent)
_OTHERS = re.compile(r"/(contextlib|threading)\.py$|^<string>$")
"""What contexts and locks are made of, and a user's view."""


def interrupted(call: Callable[[], object], at: int) -> tuple[BaseException | None, int]:
    """Raises `Interrupt` before opcode `at` of a call, counted from 0 over our functions that it comes to.

    Returns what the call raised, with every frame that this keeps, and how many opcodes there were.
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
            if seen == at:
                raise Interrupt(f"before opcode {at}, in {frame.f_code.co_qualname}:{frame.f_lineno}")
            seen += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except BaseException as error:
        return error, seen
    finally:
        sys.settrace(before)
    return None, seen
