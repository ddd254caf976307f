"""Learns what requests take: a memory model and a worker's limit, from real requests."""

from typing import TYPE_CHECKING

import numpy as np

from livegnn.arguments import check_int, listed_ids
from livegnn.errors import InputError
from livegnn.remote.memory_model import MemoryModel
from livegnn.remote.predictor import SnapshotPredictor

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


def profile(
    predictor: SnapshotPredictor, ids: "ArrayLike", *, requests: int = 200, most_ids: int = 1, seed: int = 0
) -> MemoryModel:
    """Runs requests for some of `ids` and learns their memory; takes a few seconds.

    ids: nodes to request, the node of the greatest in-degree among them: its peak becomes the model's
    `limit`, which suffices for every request for one node (FaaS-GNN, section 5.1). requests: their number.
    most_ids: the greatest number of nodes in one request.

    Raises `InputError` without ids, and what `SnapshotPredictor.predict` raises.
    """
    given = listed_ids(ids)
    if not len(given):
        raise InputError("profiling needs ids of nodes to request, got none")
    check_int(most_ids, "most_ids", 1)
    random = np.random.default_rng(seed)
    degree = predictor.degrees(given).astype(np.float64)
    hub, leaf = given[int(np.argmax(degree))], given[int(np.argmin(degree))]
    predictor.measure([hub.item()])  # modules that a first request loads do not count
    measured = [predictor.measure([each.item()]) for each in (hub, leaf)]
    # A node of a large degree is rare, and most wrongly predicted: every other request begins at an end of
    # a random edge rather than at a random node.
    likely = degree / degree.sum() if degree.any() else None
    for number in range(check_int(requests, "requests", 1) - len(measured)):
        asked = random.choice(given, int(random.integers(1, most_ids + 1)), p=likely if number % 2 else None)
        measured.append(predictor.measure(asked))
    counts, peaks = zip(*measured, strict=True)
    return MemoryModel.fit(
        np.stack(counts), np.array(peaks), model=predictor.model.digest, limit=peaks[0], seed=seed
    )
