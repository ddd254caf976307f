"""Ids of nodes to their rows and back, in a snapshot.

The changes of deltas are in memory. In the base, a row that is its own id needs no look-up; other ids lie in
an order, of whose blocks the first keys (fences) are in memory, so that one block is read for each id.
Immutable. Texts are strings of Python here: an array of text would give each the room of the longest.
"""

import sys
from typing import TYPE_CHECKING, cast

import numpy as np

import livegnn._core as _core
from livegnn.arguments import check_texts
from livegnn.errors import InputError
from livegnn.snapshots import records
from livegnn.snapshots.layered_tables import LayeredTables, checked
from livegnn.snapshots.manifest import TableKey
from livegnn.snapshots.row_sets import are_in, distinct_places
from livegnn.types import Array, Ids, IntArray

if TYPE_CHECKING:
    from jaxtyping import Int64, Shaped
    from numpy.typing import NDArray


class NodeRows:
    """layers: where the tables are. node_type: the position of the type. text: whether ids are text."""

    def __init__(self, layers: LayeredTables, node_type: int, *, text: bool) -> None:
        self._layers = layers
        self._key = TableKey("ids", node_type)
        self._text = text
        tables = layers.tables(self._key)
        _, self._base = tables[-1]
        self._fences = np.empty(0, dtype=records.FENCE)
        if "fences" in self._base.sections:
            (data,) = layers.read_whole([self._base.sections["fences"]])
            self._fences = data.view(records.FENCE)
        self._changed, self._names, exists = self._read_changes()
        names, rows = self._names[exists], self._changed[exists]
        order = np.argsort(names, kind="stable")
        self._by_name = names[order], rows[order]

    @property
    def bytes(self) -> int:
        """The memory that it takes."""
        texts = sum(map(sys.getsizeof, self._names.tolist())) if self._text else 0
        arrays = (self._fences, self._changed, self._names, *self._by_name)
        return texts + sum(array.nbytes for array in arrays)

    def _read_changes(self) -> "tuple[IntArray, Ids, NDArray[np.bool_]]":
        """The rows whose node is another than in the base, ascending, their ids, and which have a node."""
        deltas = self._layers.tables(self._key)[:-1]
        listed = [cast("IntArray", self._layers.changed(self._key, number)) for number, _ in deltas]
        rows, _ = distinct_places(np.concatenate([np.empty(0, dtype=np.int64), *listed]).astype(np.int64))
        return rows, *self._ids_in(rows, base=False)

    def rows_of(self, ids: "Shaped[Array, 'ids']") -> "Int64[IntArray, 'ids']":
        """The rows of nodes; -1 where there is no such node."""
        if ids.ndim != 1:
            raise InputError(f"ids must be a list, got the shape {list(ids.shape)}")
        if len(ids) and (ids.dtype.kind not in ("UO" if self._text else "iu")):
            kinds = {"U": "text", "i": "integers", "u": "integers"}
            raise InputError(
                f"this snapshot's ids are {'text' if self._text else 'integers'}, "
                f"got {kinds.get(ids.dtype.kind, ids.dtype)}"
            )
        if ids.dtype.kind == "O":
            check_texts(ids, "this snapshot's ids are")
        names = cast("Ids", ids.astype(object if self._text else np.int64))
        rows = np.full(len(names), -1, dtype=np.int64)
        changed, at = self._by_name
        if len(changed):
            place = np.minimum(np.searchsorted(changed, names), len(changed) - 1)
            hit = changed[place] == names
            rows[hit] = at[place[hit]]
        left = np.flatnonzero(rows < 0)
        if len(left):
            in_base = self._rows_in_base(names[left])
            moved = are_in(in_base, self._changed)
            rows[left] = np.where(moved, -1, in_base)
        return rows

    def _rows_in_base(self, names: Ids) -> IntArray:
        if not self._base.sections:
            inside = (names >= 0) & (names < self._base.rows)  # type: ignore[operator]
            return np.where(inside, names, -1).astype(np.int64)
        if not len(self._fences):
            return np.full(len(names), -1, dtype=np.int64)
        located = np.full(len(names), -1, dtype=np.int64)
        if not self._text:
            asked, rows = self._candidates(cast("IntArray", names))
            located[asked] = rows
            return located
        data, lengths = records.encode_texts(names.tolist())
        keys = _core.checksum_ranges(data, np.cumsum(lengths) - lengths, lengths).astype(np.int64)
        asked, rows = self._candidates(keys)
        in_base, exists = self._ids_in(rows, base=True)
        same = exists & (in_base == names[asked])
        located[asked[same]] = rows[same]
        return located

    def _candidates(self, keys: IntArray) -> tuple[IntArray, IntArray]:
        """The entries of the order with these keys: the position of the requested key, and the row."""
        fences = self._fences["key"]
        last = np.searchsorted(fences, keys, side="right") - 1
        # A key may stand in two blocks only if it stands in the order twice, as checksums of texts may.
        first = np.maximum(np.searchsorted(fences, keys, side="left") - 1, 0) if self._text else last
        first, last = np.maximum(first, 0), np.maximum(last, 0)
        spans = last - first + 1
        which = np.repeat(np.arange(len(keys)), spans)
        block = np.repeat(first, spans) + np.arange(len(which)) - np.repeat(np.cumsum(spans) - spans, spans)
        needed, slot = distinct_places(block)
        section = self._base.sections["order"]
        size = records.BLOCK * records.ORDER.itemsize
        starts = needed * size
        lengths = np.minimum(section.length - starts, size)
        (data,) = self._layers.read([checked(section, starts, lengths, self._fences["crc32"][needed])])
        entries = data.view(records.ORDER)
        # Within a block keys ascend, and blocks ascend, so all that was read ascends.
        counts = lengths // records.ORDER.itemsize
        begins = np.cumsum(counts) - counts
        low = np.searchsorted(entries["key"], keys, side="left")[which]
        high = np.searchsorted(entries["key"], keys, side="right")[which]
        low = np.maximum(low, begins[slot])
        high = np.minimum(high, begins[slot] + counts[slot])
        hits = np.maximum(high - low, 0)
        at = np.repeat(low, hits) + np.arange(int(hits.sum())) - np.repeat(np.cumsum(hits) - hits, hits)
        return np.repeat(which, hits), entries["row"][at].astype(np.int64)

    def ids_of(self, rows: "Int64[IntArray, 'rows']") -> "Shaped[Ids, 'rows']":
        """The ids of nodes; -1, or an empty text, where a row has no node."""
        is_changed = are_in(rows, self._changed)
        ids, _ = self._ids_in(np.where(is_changed, -1, rows), base=True)
        if is_changed.any():
            ids[is_changed] = self._names[np.searchsorted(self._changed, rows[is_changed])]
        return cast("Ids", ids.astype(np.str_)) if ids.dtype.kind == "O" else ids

    def _ids_in(self, rows: IntArray, *, base: bool) -> "tuple[Ids, NDArray[np.bool_]]":
        """As they are in the base, or else in the newest layer that has them; and which rows have a node."""
        locate = self._layers.locate_in_base if base else self._layers.locate
        places = locate(self._key, rows)
        if not self._text:
            ids = np.full(len(rows), records.NO_NODE, dtype=np.int64)
            stored = [place for place in places if place.table.sections]
            stored_rows = self._layers.read_records("records", records.INTEGER_ID.itemsize, stored, len(rows))
            for place in places:
                stored_ids = stored_rows[place.asked].reshape(-1).view(records.INTEGER_ID)["id"]
                ids[place.asked] = stored_ids if place.table.sections else rows[place.asked]
            return ids, ids != records.NO_NODE
        stored_rows = self._layers.read_records("records", records.TEXT_ID.itemsize, places, len(rows))
        table_rows = stored_rows.reshape(-1).view(records.TEXT_ID)
        nowhere = np.ones(len(rows), dtype=np.bool_)
        for place in places:
            nowhere[place.asked] = False
        gap = nowhere | (table_rows["length"] == records.NO_TEXT)
        lengths = np.where(gap, 0, table_rows["length"].astype(np.int64))
        begins = table_rows["begin"].astype(np.int64)
        crc32 = np.where(gap, 0, table_rows["crc32"]).astype(np.uint32)
        read = self._layers.read(self._layers.read_lists("texts", 1, places, begins, lengths, crc32))
        texts = np.full(len(rows), "", dtype=object)
        for place, data in zip(places, read, strict=True):
            ends = np.cumsum(lengths[place.asked])
            text = data.tobytes()
            for i, end, length in zip(place.asked, ends, lengths[place.asked], strict=True):
                texts[i] = text[end - length : end].decode()
        return cast("Ids", texts), ~gap
