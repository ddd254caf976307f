"""Events whose time is too far ahead are refused when they are applied, before they change the latest time.

Invariant: a recorded batch is not checked again, so a replay does not depend on a clock.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from livegnn.arguments import check_function, check_positive
from livegnn.errors import InputError
from livegnn.events import Chunk, Events


@dataclass(frozen=True)
class AheadPolicy:
    """The limit of the time of an event: at most `most` later than `now` returns, in the unit of the events'
    times.

    now: such as `time.time`, where times are seconds since 1970. None: the latest time of the events before.
    Then the first time of all is always accepted, and after a silence of more than `most` a person must let
    the next event through (`Loop.retry` with `any_time=True`).
    """

    most: float
    now: Callable[[], float] | None = None

    def __post_init__(self) -> None:
        check_positive(self.most, "most")
        if self.now is not None:
            check_function(self.now, "now", "nothing, which says what time it is")


class Ahead:
    """The policy in use. Any thread may call `allow`; only the runtime's loop calls `check`."""

    def __init__(self, policy: AheadPolicy | None) -> None:
        self._policy = policy
        self._allowed = -np.inf  # the latest time that a person has let through since the process began

    @property
    def active(self) -> bool:
        """Whether there is a policy."""
        return self._policy is not None

    def allow(self, events: Events) -> None:
        """Accepts, from now on, the times of these events, and all times that are not later."""
        times = [float(chunk.time.max()) for chunk in events.chunks if chunk.time is not None]
        self._allowed = max(self._allowed, *times) if times else self._allowed

    def check(self, events: Events, latest: float | None) -> None:
        """Raises InputError for the first event whose time is too far ahead.

        latest: the latest time that an event had before these. Each event counts for the events after it, so
        that entries are judged alike whether they are merged or applied one by one.
        """
        if self._policy is None:
            return
        now = None if self._policy.now is None else self._policy.now()
        for chunk in events.chunks:
            time = chunk.time
            if time is None or not len(time):
                continue
            if now is None:
                begin = time[0] if latest is None else latest
                reached = np.maximum.accumulate(np.concatenate([[begin], time]))
                reference, latest = reached[:-1], float(reached[-1])
            else:
                reference = np.full(len(time), now)
            ahead = (time - reference > self._policy.most) & (time > self._allowed)
            if ahead.any():
                raise InputError(self._explain(chunk, int(ahead.argmax()), reference))

    def _explain(
        self, chunk: Chunk, at: int, reference: "np.ndarray[tuple[int], np.dtype[np.float64]]"
    ) -> str:
        assert self._policy is not None
        assert chunk.time is not None
        of = "the latest time of the events before it" if self._policy.now is None else "the clock"
        what = f"node {chunk.ids[at].item()!r}"
        if chunk.dst is not None:
            what = f"edge {chunk.ids[at].item()!r} -> {chunk.dst[at].item()!r}"
        return (
            f"expected times at most {self._policy.most:g} ahead of {of}, {float(reference[at])!r}, got "
            f"{float(chunk.time[at])!r} for the {what}: check its unit, or, if it is right, retry the entry "
            "with any_time"
        )
