"""Recorded batches, applied to a graph as they were: with their boundaries, without what was rejected."""

from livegnn.errors import InputError, LogError
from livegnn.graph import Graph, without_strays
from livegnn.log import ReadableLog
from livegnn.log.batches import events_of


def replay(log: ReadableLog, graph: Graph, *, up_to: int | None = None) -> None:
    """Applies the recorded batches after the graph's position; only those that end at or before `up_to`.

    Raises LogError if they do not lead on from there, or cannot be applied.
    """
    for batch in log.batches(graph.seq):
        if up_to is not None and batch.seq > up_to:
            return
        events = events_of(log, batch)
        try:
            graph.apply(without_strays(graph.schema, events), seq=batch.seq, trusted=True)
        except InputError as error:
            raise LogError(
                f"batch {batch} was applied before, so it must apply again, but: {error}. "
                "This log is not of this graph, or the graph it began with has changed"
            ) from error
