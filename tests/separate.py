"""Work in a process of its own, which may hang, end or change whatever is global."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from typing import Any


def separately(work: Callable[[], Any], limit: float) -> tuple[Any, str]:
    """What `work` returns, or None and why there is nothing. limit: in seconds."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)

    def run() -> None:
        here.close()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # torch writes the graph that it could not trace
        there.send(work())
        there.close()

    process = context.Process(target=run)
    process.start()
    there.close()
    found, reason = None, ""
    try:
        if here.poll(limit):
            found = here.recv()
        else:
            reason = f"took more than {limit:g} s"
            process.kill()
    except EOFError:
        process.join()
        reason = f"its process ended with {process.exitcode}"
    process.join()
    here.close()
    return found, reason
