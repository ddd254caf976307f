"""Timing of many calls: warm, without the garbage collector, each call on its own."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable
from itertools import count
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Item = TypeVar("Item")
Result = TypeVar("Result")


def time_each(
    call: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    warm_up: int = 1,
    at_least: int = 5,
    budget_s: float = float("inf"),
    keep_last: bool = False,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[NDArray[np.float64], list[Result]]:
    """Seconds of each call, and what each returned; the first `warm_up` calls count in neither.

    Stops when the items end, or when `at_least` calls were timed and `budget_s` seconds are spent. With
    `keep_last` only the last result is kept, and each is freed outside the time: for results that are large.
    clock: `time.process_time` where the machine is shared, for the seconds of all cores together.
    """
    seconds: list[float] = []
    results: list[Result] = []
    gc.collect()
    gc.disable()
    try:
        started = time.perf_counter()
        for number, item in enumerate(items):
            if len(seconds) >= at_least and time.perf_counter() - started > budget_s:
                break
            before = clock()
            result = call(item)
            after = clock()
            if keep_last:
                results.clear()
                gc.collect()
            if number >= warm_up:
                seconds.append(after - before)
                results.append(result)
            del result
    finally:
        gc.enable()
    return np.array(seconds), results


def repeated_ms(call: Callable[[], object], budget_s: float = 1.0, *, warm_up: int = 1) -> float:
    """The median of one call that is made again and again, five times at least; what it returns is freed
    within its time."""

    def again(_: int) -> None:
        call()

    seconds, _ = time_each(again, count(), warm_up=warm_up, budget_s=budget_s)
    return median_ms(seconds)


def median_ms(seconds: NDArray[np.float64]) -> float:
    return float(np.median(seconds)) * 1e3


def p99_ms(seconds: NDArray[np.float64]) -> float:
    return float(np.percentile(seconds, 99)) * 1e3
