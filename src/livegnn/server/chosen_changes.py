"""The part of the changes that one client has chosen: those of some nodes, if they are large enough."""

from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np

from livegnn.runtime import Change
from livegnn.types import FloatArray, Ids

if TYPE_CHECKING:
    from jaxtyping import Shaped


class ChosenChanges:
    """The changes of the nodes `ids`; others are left out.

    threshold: a prediction is left out, too, while no column of it differs by more than this from the one
    that the client received last. One that is NaN, before or now, is not left out, and neither is the first
    one. So it keeps a prediction for each of `ids` at most.
    """

    def __init__(self, ids: Collection[int | str], threshold: float | None = None) -> None:
        self._ids = frozenset(ids)
        self._threshold = threshold
        self._received: dict[int | str, FloatArray] = {}

    def forget(self) -> None:
        """The client's predictions are unknown from now on."""
        self._received.clear()

    def select(self, change: Change) -> Change | None:
        """The part of a change that the client receives, None if that is nothing."""
        removed = self._positions(change.removed)
        chosen = self._positions(change.ids)
        if self._threshold is not None:
            for id in change.removed[removed].tolist():
                self._received.pop(id, None)
            chosen = [at for at in chosen if self._moved(change, at)]
        if not chosen and not removed:
            return None
        return change._replace(
            ids=change.ids[chosen], predictions=change.predictions[chosen], removed=change.removed[removed]
        )

    def _positions(self, ids: "Shaped[Ids, 'ids']") -> list[int]:
        return [at for at, id in enumerate(ids.tolist()) if id in self._ids]

    def _moved(self, change: Change, at: int) -> bool:
        id, row = change.ids[at].item(), change.predictions[at]
        before = self._received.get(id)
        if before is not None and bool(np.all(np.abs(row - before) <= self._threshold)):
            return False
        self._received[id] = row.copy()
        return True
