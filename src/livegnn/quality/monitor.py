"""The quality of predictions beside a running runtime: samples once a day, and figures once an hour or so.

Thread safety: one thread of the monitor's own computes; `start` and `stop` are for one thread, and any thread
may read the rest.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final, Protocol

import numpy as np

from livegnn.arguments import check_int, check_positive
from livegnn.errors import InputError, shortened
from livegnn.interrupts import Background, Flag
from livegnn.quality.report import LabelSource, Report, Row, compute_report, write_report
from livegnn.quality.retention import fold_pages
from livegnn.quality.samples import draw_populations, has_sample, update_drift, write_sample
from livegnn.runtime import QualityFigures, Runtime

_logger = logging.getLogger(__name__)

_LAST_ROUND: Final = 5.0
"""Seconds in which a round may end when the monitor stops; the next start computes it again."""


class LabelReading(Protocol):
    """A reader of labels from another system: a `LabelTopic`."""

    @property
    def name(self) -> str:
        """The name of its section."""

    @property
    def reason(self) -> str | None:
        """The reason why labels are not read now; None while they are."""

    def start(self) -> None:
        """Reads in a thread of its own until `stop`."""

    def stop(self) -> None:
        """Ends it; again does nothing."""


class QualityMonitor:
    """Computes the figures of `sources` and the drift of features and scores, into `directory`.

    topics: readers of labels, which run as long as the monitor. every_seconds: between two rounds. sample:
    nodes of a day's sample. reference: the day with which drift is measured, by default the first. keep_days:
    for how long records are kept, by default for ever; older pages are folded, and figures stay. clock: the
    seconds since 1970. Raises `InputError` for wrong arguments.
    """

    def __init__(
        self,
        runtime: Runtime,
        sources: Sequence[LabelSource],
        directory: Path,
        *,
        topics: Sequence[LabelReading] = (),
        every_seconds: float = 3600.0,
        sample: int = 10_000,
        reference: date | None = None,
        keep_days: int | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._runtime, self._sources, self._directory = runtime, list(sources), directory
        self._topics = list(topics)
        self._every = check_positive(every_seconds, "every_seconds")
        self._sample = check_int(sample, "sample", 1)
        self._reference, self._clock = reference, clock
        self._keep = None if keep_days is None else check_int(keep_days, "keep_days", 1)
        self._folded: date | None = None
        self._failure: str | None = None
        self._figures = QualityFigures()
        self._computed: float | None = None
        self._drift: list[Row] | None = None
        self._random = np.random.default_rng()
        self._stop = Flag()
        self._thread: Background | None = None

    @property
    def failure(self) -> str | None:
        """The reason why the last round failed, or labels of a topic are not read; None if all is well."""
        reasons = (f"{topic.name}: {topic.reason}" for topic in self._topics if topic.reason is not None)
        return self._failure or next(reasons, None)

    @property
    def figures(self) -> QualityFigures:
        """The figures of the last round that did not fail."""
        return self._figures

    @property
    def age(self) -> float | None:
        """The seconds since that round; None before the first."""
        return None if self._computed is None else max(0.0, self._clock() - self._computed)

    def start(self) -> None:
        """Computes in a thread of its own until `stop`, and is shown by the runtime. Raises `InputError` if
        it was started already, or the runtime has another monitor."""
        if self._thread is not None or self._runtime.quality is not None:
            raise InputError("a runtime must have one monitor of quality, which is started once, got another")
        self._runtime.quality = self
        for topic in self._topics:
            topic.start()
        self._thread = Background(self._run, "livegnn-quality")
        self._thread.start()

    def stop(self) -> None:
        """Ends it; again does nothing. A round that takes long is left to the end of the process."""
        self._stop.set()
        for topic in self._topics:
            topic.stop()
        if self._thread is not None:
            self._thread.join(_LAST_ROUND)
        if self._runtime.quality is self:
            self._runtime.quality = None

    def _run(self) -> None:
        while not self._stop.is_set():
            self.compute()
            self._stop.wait(self._every)

    def compute(self) -> None:
        """Computes one round. A failure is kept in `failure`, and the figures stay as they are."""
        try:
            now = self._clock()
            day = datetime.fromtimestamp(now, UTC).date()
            if not has_sample(self._directory, day):
                found = draw_populations(self._runtime, self._sample, self._random)
                if found:  # else the graph is empty, and the next round looks again
                    write_sample(self._directory, day, found)
                    self._drift = None
            if self._drift is None:
                self._drift = update_drift(self._directory, self._reference)
            self._fold(day)
            report = compute_report(self._sources)
            kept = None if self._keep is None else day - timedelta(days=self._keep)
            write_report(report.rows, self._directory, kept)
            days = {one.name: one.complete_after_days for one in self._sources}
            self._figures = summarize(report, self._drift, day, days)
            self._computed = now
        except Exception as error:  # files of others may be anything
            reason = shortened(str(error) or type(error).__name__)
            if self._failure is None:
                _logger.warning("the quality of predictions cannot be computed: %s", reason)
            self._failure = reason
            return
        if self._failure is not None:
            _logger.info("the quality of predictions is computed again")
        self._failure = None

    def _fold(self, day: date) -> None:
        """Folds the oldest pages of all records, once a day."""
        if self._keep is None or self._folded == day:
            return
        for record in {folder for source in self._sources for folder in source.records}:
            fold_pages(record, day - timedelta(days=self._keep))
        self._folded = day


def summarize(report: Report, drift: Sequence[Row], today: date, days: Mapping[str, int]) -> QualityFigures:
    """The figures of the last complete days, and the newest drift. days: the age at which a day is complete,
    by the name of labels."""
    complete = [row for row in report.rows if (today - row.day).days >= days[row.labels]]
    last: dict[str, date] = {}
    for row in complete:
        last[row.labels] = max(row.day, last.get(row.labels, row.day))
    starts = {name: datetime(day.year, day.month, day.day, tzinfo=UTC) for name, day in last.items()}
    newest = max((row.day for row in drift), default=None)
    return QualityFigures(
        {
            (row.labels, row.model, row.metric): row.value
            for row in complete
            if row.day == last[row.labels] and not row.part
        },
        {name: start.timestamp() for name, start in starts.items()},
        {(name, reason): count for name, some in report.missing.items() for reason, count in some.items()},
        {(row.model, row.metric, row.part): row.value for row in drift if row.day == newest},
    )
