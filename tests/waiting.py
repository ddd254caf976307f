"""How long a test waits for what another thread or process does.

A limit here is no promise of the program: it ends a test that hangs, and says where. So it is one number, far
above what the slowest machine takes, and below the limit of pytest's own.
"""

import asyncio
import time
from collections.abc import Callable

PATIENCE = 300
"""Seconds until a test gives up."""

REQUEST_SECONDS = 240
"""Which a request may take that should be answered: its client waits longer."""


def wait_until(holds: Callable[[], object], what: str = "what a test waits for") -> None:
    """Returns when `holds` does. Raises AssertionError with `what` when patience ends."""
    ends = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < ends, f"{what} must happen within {PATIENCE} seconds"
        time.sleep(0.005)


async def until(holds: Callable[[], object]) -> None:
    """Returns when `holds` does. The loop's own limit ends it."""
    while not holds():  # noqa: ASYNC110 - of another process
        await asyncio.sleep(0.005)
