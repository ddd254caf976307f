"""Measures the running demo: speed, latency, reach, and every member's risk over time."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock

import numpy as np

from livegnn.types import DoubleArray, FloatArray, IntArray

WINDOW = 500
"""The number of ratings over which `movers` compares risks."""

_SNAPSHOT = 100  # ratings between two snapshots of all risks; the window is accurate to within this


@dataclass(frozen=True)
class Mover:
    """A member whose risk moved, from `before` to `after`."""

    member: int
    before: float
    after: float


@dataclass(frozen=True)
class Figures:
    """Rates over the last seconds, and latencies in milliseconds, None before the first batch."""

    events_per_second: float
    ratings_per_second: float
    p50: float | None
    p99: float | None
    apply_p50: float | None
    apply_p99: float | None
    reached: tuple[int, ...]  # the number of nodes that each of the last batches reached, the newest last


class Meter:
    """Collects figures from the replay and the engine for the page and the terminal.

    `members` are all members that may ever occur, ascending; `clock` returns seconds. Thread safety: any
    thread may call.
    """

    def __init__(self, members: IntArray, clock: Callable[[], float]) -> None:
        self._members, self._clock, self._lock = members, clock, Lock()
        self._risks: FloatArray = np.full(len(members), np.nan, np.float32)
        self._first: FloatArray = self._risks.copy()  # the start of a newcomer's move is its first risk
        self._snapshots: deque[FloatArray] = deque(maxlen=WINDOW // _SNAPSHOT + 1)
        self._sent: deque[tuple[float, int, int, float]] = deque(
            maxlen=2000
        )  # when, ratings, events, seconds
        self._reached: deque[int] = deque(maxlen=240)
        self._apply: deque[float] = deque(maxlen=2000)
        self._shown: list[
            tuple[IntArray, float, FloatArray]
        ] = []  # members, date and their risks from then on
        self._replayed = 0

    def start(self, members: IntArray, risks: FloatArray, date: float) -> None:
        """Records the risks at the cut-off."""
        with self._lock:
            self._show(members, risks, date)
            self._snapshots.append(self._risks.copy())

    def updated(
        self, members: IntArray, risks: FloatArray, date: float, reached: int, seconds: float
    ) -> None:
        """Records a visible batch: the members whose risk changed, and the number of nodes it reached."""
        with self._lock:
            self._show(members, risks, date)
            self._reached.append(reached)
            self._apply.append(seconds)

    def sent(self, ratings: int, events: int, seconds: float) -> None:
        """Records a request with these numbers of ratings and events, applied and answered in `seconds`."""
        with self._lock:
            self._sent.append((self._clock(), ratings, events, seconds))
            if (self._replayed + ratings) // _SNAPSHOT > self._replayed // _SNAPSHOT:
                self._snapshots.append(self._risks.copy())
            self._replayed += ratings

    def _show(self, members: IntArray, risks: FloatArray, date: float) -> None:
        place = np.minimum(np.searchsorted(self._members, members), len(self._members) - 1)
        ours = self._members[place] == members  # a visitor may add others through the API
        place, risks = place[ours], risks[ours]
        self._risks[place] = risks
        self._first[place] = np.where(np.isnan(self._first[place]), risks, self._first[place])
        self._shown.append((members[ours], date, risks))

    @property
    def replayed(self) -> int:
        """The number of ratings that were sent and answered."""
        return self._replayed

    def figures(self, seconds: float = 2.0) -> Figures:
        """The current figures, with rates over the last `seconds`."""
        with self._lock:
            sent, apply, reached = list(self._sent), np.array(self._apply), tuple(self._reached)
        since = self._clock() - seconds
        recent = [row for row in sent if row[0] >= since]
        # At high speed the queue covers less than `seconds`; the rate is then over the time it covers.
        span = min(seconds, self._clock() - sent[0][0]) if len(sent) == 2000 else seconds
        p50, p99 = percentiles(np.array([row[3] for row in sent]))
        apply_p50, apply_p99 = percentiles(apply)
        return Figures(
            events_per_second=sum(row[2] for row in recent) / max(span, 1e-3),
            ratings_per_second=sum(row[1] for row in recent) / max(span, 1e-3),
            p50=p50,
            p99=p99,
            apply_p50=apply_p50,
            apply_p99=apply_p99,
            reached=reached,
        )

    def movers(self, count: int) -> list[Mover]:
        """The members whose risk moved most over the last `WINDOW` ratings, the largest move first."""
        with self._lock:
            if not self._snapshots:
                return []
            before = np.where(np.isnan(self._snapshots[0]), self._first, self._snapshots[0])
            after = self._risks.copy()
        move = np.nan_to_num(np.abs(after - before))
        order = np.argsort(-move, kind="stable")[:count]
        return [
            Mover(int(self._members[i]), float(before[i]), float(after[i])) for i in order if move[i] > 0.001
        ]

    def history(self, member: int, points: int = 600) -> list[tuple[float, float]]:
        """(date, risk) for each change of the member's risk, thinned to about `points`; keeps the last."""
        with self._lock:
            shown = list(self._shown)
        changes = [
            (date, float(risks[at]))
            for members, date, risks in shown
            for at in np.flatnonzero(members == member)
        ]
        step = max(1, -(-len(changes) // points))
        return changes[(len(changes) - 1) % step if changes else 0 :: step]


def percentiles(seconds: DoubleArray) -> tuple[float | None, float | None]:
    """Median and 99th percentile in milliseconds."""
    if not len(seconds):
        return None, None
    p50, p99 = np.percentile(seconds, [50, 99]) * 1e3
    return float(p50), float(p99)
