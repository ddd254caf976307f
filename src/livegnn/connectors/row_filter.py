"""The filter of a sink, by which it is sent rows that differ enough from those that it has."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from livegnn.arguments import check_bool, check_int, check_not_negative
from livegnn.connectors.unsent import AnyIds, load_ids, save_ids
from livegnn.errors import FileFormatError, InputError
from livegnn.texts import Texts
from livegnn.types import Array, FloatArray

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LARGEST = 2**31 - 1
_LEAST_ROWS = 1024


@dataclass(frozen=True)
class RowFilter:
    """A row is sent if one of the conditions holds between it and the row that was sent last.

    class_changed: another channel is the largest one. threshold: the channel `column` was below this number
    and is not any more, or the other way round. moved_by: a channel differs by more than this share of its
    last value. A row whose node was never sent, or whose last row is not known, is sent.
    """

    class_changed: bool = False
    threshold: float | None = None
    column: int = 0
    moved_by: float | None = None

    def __post_init__(self) -> None:
        check_bool(self.class_changed, "class_changed")
        check_int(self.column, "column", 0, _LARGEST)
        if self.threshold is not None and not np.isfinite(self.threshold):
            raise InputError(f"threshold must be a finite number, got {self.threshold!r}")
        if self.moved_by is not None:
            check_not_negative(self.moved_by, "moved_by")
        if not (self.class_changed or self.threshold is not None or self.moved_by is not None):
            raise InputError(
                "a filter must have class_changed, threshold or moved_by, got none: leave it out, and every "
                "changed row is sent"
            )
        if self.column and self.threshold is None:
            raise InputError(f"column is that of threshold, which is missing, got {self.column}")

    def check_width(self, width: int) -> None:
        """Raises `InputError` if predictions of `width` channels do not have what it compares."""
        if self.column >= width:
            raise InputError(f"column must be one of {width} of a prediction, got {self.column}")
        if self.class_changed and width < 2:
            raise InputError(
                "class_changed needs predictions with two channels or more, got one: use threshold"
            )

    def passes(self, rows: FloatArray, sent: FloatArray) -> "NDArray[np.bool_]":
        """Whether each of `rows` [n, channels] differs enough from that of `sent`, of the same shape."""
        passed = np.zeros(len(rows), np.bool_)
        if self.class_changed:
            passed |= rows.argmax(axis=1) != sent.argmax(axis=1)
        if self.threshold is not None:
            limit = np.float32(self.threshold)
            passed |= (rows[:, self.column] >= limit) != (sent[:, self.column] >= limit)
        if self.moved_by is not None:
            with np.errstate(invalid="ignore", over="ignore"):
                moved = np.abs(rows - sent) <= np.float32(self.moved_by) * np.abs(sent)
            moved &= np.isfinite(sent) | (rows == sent)  # a share of infinity has no end
            passed |= ~moved.all(axis=1)  # of NaN, nothing is at most something
        return passed


class SentRows:
    """The row of each node that was sent last. Thread safety: as of `Unsent`."""

    def __init__(self) -> None:
        self._places: dict[int | str, int] = {}
        self._free: list[int] = []
        self._rows: FloatArray = np.empty((0, 0), np.float32)

    def __len__(self) -> int:
        return len(self._places)

    @property
    def bytes(self) -> int:
        """The memory of the rows, and about that of their ids."""
        return self._rows.nbytes + 100 * len(self._places)

    def find(self, ids: Sequence[int] | Sequence[str], width: int) -> tuple["NDArray[np.bool_]", FloatArray]:
        """Whether each of `ids` has a row of `width` channels, and the rows of those that have one."""
        if self._rows.shape[1] != width:
            return np.zeros(len(ids), np.bool_), np.empty((0, width), np.float32)
        places = np.array([self._places.get(id, -1) for id in ids], np.intp)
        known = places >= 0
        return known, self._rows[places[known]]

    def note(self, ids: Sequence[int] | Sequence[str], rows: FloatArray) -> None:
        """Notes the rows [n, channels] of `ids`."""
        if self._rows.shape[1] != rows.shape[1]:  # another model
            self.clear()
            self._rows = np.empty((0, rows.shape[1]), np.float32)
        places = [self._place_of(id) for id in ids]
        room = len(self._places) + len(self._free)
        if room > len(self._rows):
            grown = np.empty((max(_LEAST_ROWS, 2 * room), rows.shape[1]), np.float32)
            grown[: len(self._rows)] = self._rows
            self._rows = grown
        self._rows[places] = rows

    def _place_of(self, id: int | str) -> int:
        place = self._places.get(id)
        if place is None:
            place = self._free.pop() if self._free else len(self._places)
            self._places[id] = place
        return place

    def forget(self, ids: AnyIds) -> None:
        """The rows of `ids` are not known any more."""
        for id in ids.tolist() if self._places else ():
            if (place := self._places.pop(id, None)) is not None:
                self._free.append(place)

    def clear(self) -> None:
        """No row is known any more."""
        self._places.clear()
        self._free.clear()

    def save(self, *, text: bool) -> dict[str, Array]:
        """The arrays for a checkpoint. text: whether ids are."""
        ids = list(self._places)
        listed = Texts.of(ids) if text else np.array(ids, np.int64)  # type: ignore[arg-type]  # all are
        rows = self._rows[np.fromiter(self._places.values(), np.intp, len(ids))]
        return {**save_ids("sent", listed), "sent.rows": rows}

    def load(self, arrays: Mapping[str, Array], *, text: bool) -> None:
        """Restores what `save` returned. Raises `FileFormatError`."""
        ids, rows = load_ids("sent", arrays, text=text), arrays.get("sent.rows")
        if rows is None or rows.dtype != np.float32 or rows.ndim != 2 or len(rows) != len(ids):
            raise FileFormatError("expected a row for each node that a sink was sent, got others")
        self.note(ids.tolist(), rows.astype(np.float32))
