"""Features that a request reads and no cache has: fetched at once, with the degrees that decide how long they
stay.

Thread safety: functions of their arguments; a snapshot may be read by several threads.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from livegnn.model.hops import Reads
from livegnn.serverless.snapshot import Snapshot
from livegnn.serverless.subgraph import Neighborhood, receiver_of
from livegnn.types import FloatArray, IntArray, NodeType

if TYPE_CHECKING:
    from jaxtyping import Float32, Int64


def fetch_missing(
    snapshot: Snapshot,
    found: Neighborhood,
    x: "Mapping[NodeType, Float32[FloatArray, '_ width']]",
    missing: "Mapping[NodeType, Int64[IntArray, '_']]",
    reads: Reads | None,
) -> "dict[NodeType, Int64[IntArray, '_']]":
    """Fetches features of the nodes at the positions `missing` into `x`, and returns their degrees; those
    that `found` does not know are fetched, too. All at once.

    reads: of which lists a degree counts; None: nobody asks for degrees. Raises what a snapshot raises.
    """
    degrees = {name: found.degree[name][at] for name, at in missing.items()}
    jobs: list[Callable[[], None]] = []

    def features(name: NodeType, at: IntArray) -> None:
        x[name][at] = snapshot.features(name, found.rows[name][at])

    def degree(name: NodeType, unknown: IntArray, reads: Reads) -> None:
        lists = next((each for each in reads.lists if receiver_of(each) == name), None)
        rows = found.rows[name][missing[name][unknown]]
        if lists is None:
            degrees[name][unknown] = 0  # nothing that the model reads ends here
        else:
            degrees[name][unknown] = snapshot.degrees(lists[0], rows, lists[1]).columns[0]

    for name, at in missing.items():
        if len(at):
            jobs.append(lambda name=name, at=at: features(name, at))  # type: ignore[misc]
            unknown = np.flatnonzero(degrees[name] < 0)
            if reads is not None and len(unknown):
                jobs.append(lambda name=name, unknown=unknown: degree(name, unknown, reads))  # type: ignore[misc]
    _run_beside(jobs)
    return degrees


def first_of_each(
    rows: "Int64[IntArray, 'rows']", at: "Int64[IntArray, 'some']"
) -> "Int64[IntArray, 'distinct']":
    """Of the positions `at`, the first one of each row."""
    return np.sort(at[np.unique(rows[at], return_index=True)[1]])


def repeat(
    x: "Float32[FloatArray, 'rows width']",
    rows: "Int64[IntArray, 'rows']",
    first: "Int64[IntArray, 'distinct']",
    at: "Int64[IntArray, 'some']",
) -> None:
    """Gives the features at the positions `first` to those of the same rows at `at`."""
    if len(first) < len(at):
        by_row = first[np.argsort(rows[first])]
        x[at] = x[by_row[np.searchsorted(rows[by_row], rows[at])]]


def _run_beside(jobs: Sequence[Callable[[], None]]) -> None:
    """Runs all jobs at once, the last one in this thread."""
    if len(jobs) < 2:
        for job in jobs:
            job()
        return
    from concurrent.futures import ThreadPoolExecutor  # costs 10 ms, which one job need not wait for

    with ThreadPoolExecutor(len(jobs) - 1) as threads:
        running = [threads.submit(job) for job in jobs[:-1]]
        jobs[-1]()
        for each in running:
            each.result()
