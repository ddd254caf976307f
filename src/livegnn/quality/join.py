"""Labels joined with predictions: each with the newest prediction of its node at or before its time.

The pages of a record are read once, in order. Between two pages, the labels of the times between them take
the rows that hold then. So memory follows the nodes that have labels, and not the record.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from livegnn.quality.record import Page
from livegnn.types import DoubleArray, FloatArray, IntArray

if TYPE_CHECKING:
    from numpy.typing import NDArray

NO_PREDICTION: Final = "no prediction at that time"
REMOVED: Final = "the node was removed"
NOT_FINITE: Final = "the prediction is not finite"
_NONE: Final = -1


class Match(NamedTuple):
    """Labels with predictions of one model. labels [n]: their positions. predictions [n, channels]: finite.
    times [n]: at which these were recorded, in seconds since 1970."""

    model: str
    labels: IntArray
    predictions: FloatArray
    times: DoubleArray


class Joined(NamedTuple):
    """All labels: those with a prediction, by model, and the others, by the reason why they have none."""

    matches: list[Match]
    missing: dict[str, IntArray]


class _State:
    """The newest row of each node."""

    def __init__(self, nodes: int) -> None:
        self.model = np.full(nodes, _NONE, np.int64)
        self.removed = np.zeros(nodes, np.bool_)
        self.times = np.zeros(nodes)
        self.models: list[tuple[str, int]] = []  # with their numbers of channels
        self._seqs = np.zeros(nodes, np.int64)
        self.rows: list[FloatArray] = []

    def take(self, page: Page) -> None:
        # A clock that was set back puts a later row of a node before an earlier one: its event says so.
        newer = (self.model[page.nodes] == _NONE) | (page.seqs >= self._seqs[page.nodes])
        nodes, predictions = page.nodes[newer], page.predictions[newer]
        key = page.model, predictions.shape[1]
        if key not in self.models:
            self.models.append(key)
            self.rows.append(np.full((len(self.model), key[1]), np.nan, np.float32))
        model = self.models.index(key)
        self.model[nodes], self.removed[nodes] = model, page.removed[newer]
        self.times[nodes], self._seqs[nodes] = page.time, page.seqs[newer]
        self.rows[model][nodes] = predictions


def join_predictions(pages: Iterable[Page], nodes: IntArray, times: DoubleArray, num_nodes: int) -> Joined:
    """Joins labels. nodes [labels]: the node of each, among `num_nodes`. times [labels]: in seconds, infinite
    for the newest prediction. pages: in the order of their times."""
    state = _State(num_nodes)
    order = np.argsort(times, kind="stable")
    sorted_times = times[order]
    found: dict[int, list[tuple[IntArray, FloatArray, DoubleArray]]] = {}
    missing: dict[str, list[IntArray]] = {}

    def resolve(labels: IntArray) -> None:
        of = nodes[labels]
        model, removed = state.model[of], state.removed[of]
        _note(missing, NO_PREDICTION, labels[model == _NONE])
        _note(missing, REMOVED, labels[removed])
        for each in range(len(state.models)):
            at = (model == each) & ~removed
            if at.any():
                rows = state.rows[each][of[at]]
                good = np.isfinite(rows).all(axis=1)
                _note(missing, NOT_FINITE, labels[at][~good])
                part = labels[at][good], rows[good], state.times[of[at]][good]
                found.setdefault(each, []).append(part)

    begin = 0
    for page in pages:
        end = int(np.searchsorted(sorted_times, page.time))  # those before it
        if end > begin:
            resolve(order[begin:end])
            begin = end
        if begin == len(order):
            break  # later pages are not read
        state.take(page)
    resolve(order[begin:])
    matches = [
        Match(state.models[each][0], *(np.concatenate(one) for one in zip(*parts, strict=True)))
        for each, parts in sorted(found.items())
    ]
    return Joined(matches, {reason: np.concatenate(parts) for reason, parts in missing.items()})


def _note(missing: dict[str, list[IntArray]], reason: str, labels: "NDArray[np.int64]") -> None:
    if len(labels):
        missing.setdefault(reason, []).append(labels)
