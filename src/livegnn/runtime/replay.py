"""Replay: applies the batches again that a log has recorded after a graph's position, as they were."""

import logging
import time
from collections import deque
from collections.abc import Iterator, Sequence

from livegnn.errors import InputError, LogError
from livegnn.graph import Graph, without_strays
from livegnn.log import AppliedBatch, Batch, ReadableLog, Write
from livegnn.log_lines import Seldom

_LINE_SECONDS = 2.0
_logger = logging.getLogger(__name__)
_AT_ONCE = 1 << 16  # events: a row of the log may hold many batches, and is decoded once


def replay(log: ReadableLog, graph: Graph, *, up_to: int | None = None) -> None:
    """Applies the recorded batches, with their boundaries and rejections, to `graph` and its views.

    up_to: only batches that end at or before this event. Raises LogError if the log does not continue from
    the graph.
    """
    rejected = {rejection.seq for rejection in log.rejections(graph.seq)}
    batches = [batch for batch in log.batches(graph.seq) if up_to is None or batch.seq <= up_to]
    since, began, line = graph.seq, time.monotonic(), Seldom(_LINE_SECONDS)
    total = batches[-1].seq - since if batches else 0
    for batch, writes in _read(log, batches):
        if line.count():
            done = batch.after - since
            told = {"event": batch.after, "events": done, "of": total}
            _logger.info("replayed %d of %d events after event %d", done, total, since, extra=told)
        events = AppliedBatch.from_writes(batch, writes, rejected).events
        try:
            graph.apply(without_strays(graph.schema, events), seq=batch.seq, trusted=True)
        except InputError as error:
            raise LogError(
                f"batch {batch} was applied before, so it must apply again, but: {error}. "
                "This log is not of this graph, or the graph it began with has changed"
            ) from error
    seconds = time.monotonic() - began
    text, whole = "recovered at event %d: replayed %d events in %.1f s", {"event": graph.seq, "events": total}
    _logger.info(text, graph.seq, total, seconds, extra={**whole, "seconds": seconds})


def _read(log: ReadableLog, batches: Sequence[Batch]) -> Iterator[tuple[Batch, list[Write]]]:
    """Yields each batch with the entries that were written for it."""
    ahead: deque[Write] = deque()  # read, and of this batch or of later ones
    for batch in batches:
        writes: list[Write] = []
        last = batch.after
        while last < batch.seq:
            if not ahead:
                ahead.extend(log.writes(last, up_to=batches[-1].seq, max_events=_AT_ONCE))
            part = ahead[0].part(last, batch.seq) if ahead else None
            if part is None:
                raise LogError(f"the log must hold the entries of its batch {batch}, got them up to {last}")
            writes.append(part)
            last = part.seq
            if ahead[0].seq == last:
                ahead.popleft()
        yield batch, writes
