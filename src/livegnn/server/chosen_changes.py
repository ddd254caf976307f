"""The part of the changes that one client has chosen: those of some nodes, if they are large enough."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

import numpy as np

from livegnn.runtime import Change
from livegnn.types import FloatArray, Ids

if TYPE_CHECKING:
    from jaxtyping import Shaped


_PLACE_BYTES: Final = 160  # of an id that can be found, beside its text


class _Places:
    """Finds ids in a list without duplicates. It is prepared once, for all clients that choose."""

    def __init__(self, ids: "Shaped[Ids, 'ids']") -> None:
        self._ids = ids
        self._places: dict[int | str, int] | None = None
        self.nbytes = ids.nbytes + len(ids) * (_PLACE_BYTES + ids.itemsize)

    def of(self, wanted: frozenset[int | str]) -> list[int]:
        """The places in the list of those `wanted` ids that it has, in the order of the list."""
        if (places := self._places) is None:
            places = self._places = {id: place for place, id in enumerate(self._ids.tolist())}
        if len(wanted) < len(places):
            return sorted(places[id] for id in wanted if id in places)
        return [place for id, place in places.items() if id in wanted]


class KeptChange:
    """A change, and where ids are in it. nbytes: the size of its arrays, and of the places of its ids."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self.ids, self.removed = _Places(change.ids), _Places(change.removed)
        self.nbytes = change.predictions.nbytes + self.ids.nbytes + self.removed.nbytes


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

    def select(self, kept: KeptChange) -> Change | None:
        """The part of a change that the client receives, None if that is nothing."""
        change, removed = kept.change, kept.removed.of(self._ids)
        chosen = kept.ids.of(self._ids)
        if self._threshold is not None:
            for id in change.removed[removed].tolist():
                self._received.pop(id, None)
            chosen = [at for at in chosen if self._moved(change, at)]
        if not chosen and not removed:
            return None
        return change._replace(
            ids=change.ids[chosen], predictions=change.predictions[chosen], removed=change.removed[removed]
        )

    def _moved(self, change: Change, at: int) -> bool:
        id, row = change.ids[at].item(), change.predictions[at]
        before = self._received.get(id)
        if before is not None and bool(np.all(np.abs(row - before) <= self._threshold)):
            return False
        self._received[id] = row.copy()
        return True
