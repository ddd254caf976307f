"""Reads tables that lie in several layers: each row from the last layer that has it, checked, in parallel.

Only the list of the rows of each delta is in memory. Immutable.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

import livegnn._core as _core
from livegnn.errors import ObjectDamagedError
from livegnn.snapshots import records
from livegnn.snapshots.manifest import Manifest, Section, Table, TableKey
from livegnn.snapshots.objects import Objects, Ranges
from livegnn.types import IntArray

if TYPE_CHECKING:
    from collections.abc import Callable

    from jaxtyping import Int64, UInt8, UInt32
    from numpy.typing import NDArray

    from livegnn.snapshots.records import Octets

_READS = 3


class Place(NamedTuple):
    """The place of some of the requested rows: their table and positions. asked: which rows they are."""

    layer: int
    table: Table
    asked: "Int64[IntArray, 'rows']"
    positions: "Int64[IntArray, 'rows']"


class Checked(NamedTuple):
    """Ranges of one object, and which of them are as they were written, given their bytes."""

    ranges: Ranges
    check: "Callable[[Octets], NDArray[np.bool_]]"


class LayeredTables:
    """objects: where the tables lie. manifest: which they are. Opening reads what deltas have changed.

    Raises `ObjectMissingError`, `ObjectDamagedError` or `StoreUnavailableError`.
    """

    def __init__(self, objects: Objects, manifest: Manifest) -> None:
        self._objects = objects
        self._salts = [layer.salt for layer in manifest.layers]
        self._tables: dict[TableKey, list[tuple[int, Table]]] = {}
        self._changed: dict[tuple[TableKey, int], NDArray[np.uint32]] = {}
        named = []
        for number, layer in enumerate(manifest.layers):
            for key, table in layer.tables.items():
                self._tables.setdefault(key, []).insert(0, (number, table))
                if table.changed is not None:
                    named.append(((key, number), table.changed))
        read = self.read_whole([section for _, section in named])
        for (name, _), data in zip(named, read, strict=True):
            self._changed[name] = data.view("<u4")

    def __contains__(self, key: object) -> bool:
        return key in self._tables

    def tables(self, key: TableKey) -> list[tuple[int, Table]]:
        """The layers that have this table, the newest first."""
        return self._tables.get(key, [])

    def changed(self, key: TableKey, layer: int) -> "UInt32[NDArray[np.uint32], 'rows'] | None":
        """The rows of a table, ascending; None: all, in their order."""
        return self._changed.get((key, layer))

    @property
    def bytes(self) -> int:
        """The memory that it takes."""
        return sum(rows.nbytes for rows in self._changed.values())

    def locate(self, key: TableKey, rows: "Int64[IntArray, 'rows']") -> list[Place]:
        """The places of the records of these rows. A row without a record is left out."""
        places = []
        asked = np.arange(len(rows))
        for number, table in self.tables(key):
            positions, hit = self._positions(key, number, table, rows[asked])
            if hit.any():
                places.append(Place(number, table, asked[hit], positions[hit]))
                asked = asked[~hit]
            if not len(asked):
                break
        return places

    def locate_in_base(self, key: TableKey, rows: "Int64[IntArray, 'rows']") -> list[Place]:
        """The places of the records of these rows in the base, changed since or not."""
        number, table = self.tables(key)[-1]
        positions, hit = self._positions(key, number, table, rows)
        return [Place(number, table, np.flatnonzero(hit), positions[hit])] if hit.any() else []

    def _positions(
        self, key: TableKey, number: int, table: Table, rows: IntArray
    ) -> "tuple[IntArray, NDArray[np.bool_]]":
        """The positions of these rows in one table, and which of them it has."""
        changed = self._changed.get((key, number))
        if changed is None:
            return rows, (rows >= 0) & (rows < table.rows)
        positions = np.searchsorted(changed, rows)
        if not len(changed):
            return positions, np.zeros(len(rows), dtype=np.bool_)
        return positions, changed[np.minimum(positions, len(changed) - 1)] == rows

    def read_records(
        self, name: str, size: int, places: Sequence[Place], count: int
    ) -> "UInt8[Octets, 'rows size']":
        """The records of a section for each of `count` rows; zeros for a row that is nowhere."""
        reads = []
        for place in places:
            section = place.table.sections[name]
            _refuse_beyond(section, (place.positions.max(initial=0) + 1) * size, self._objects.url)
            starts, lengths = section.offset + place.positions * size, np.full(len(place.asked), size)
            are_sealed = partial(
                records.are_sealed, size=size, positions=place.positions, salt=self._salts[place.layer]
            )
            reads.append(Checked(Ranges(section.path, starts, lengths), are_sealed))
        if len(places) == 1 and len(places[0].asked) == count:
            return self.read(reads)[0].reshape(-1, size)
        filled = np.zeros((count, size), dtype=np.uint8)
        for place, data in zip(places, self.read(reads), strict=True):
            filled[place.asked] = data.reshape(-1, size)
        return filled

    def read_whole(self, sections: Sequence[Section]) -> "list[Octets]":
        """Whole sections, which must be small."""
        begin = np.zeros(1, dtype=np.int64)
        return self.read(
            [checked(it, begin, np.array([it.length]), np.array([it.crc32], np.uint32)) for it in sections]
        )

    def read(self, asked: Sequence[Checked]) -> "list[Octets]":
        """The bytes of ranges, one after the other for each object, all in parallel. A damaged record is read
        again, and then raises `ObjectDamagedError`."""
        read = self._objects.read([item.ranges for item in asked])
        for attempt in range(_READS):
            wrong = [i for i, item in enumerate(asked) if not item.check(read[i]).all()]
            if not wrong:
                break
            if attempt == _READS - 1:
                ranges, check = asked[wrong[0]]
                at = int(np.argmin(check(read[wrong[0]])))
                raise ObjectDamagedError(
                    f"{ranges.path} in {self._objects.url} is not as it was written at the byte "
                    f"{ranges.starts[at]:,}: its checksum is another. Write the snapshot again, and see "
                    "`livegnn snapshot verify`"
                )
            for i, data in zip(wrong, self._objects.read([asked[i].ranges for i in wrong]), strict=True):
                read[i] = data
        return read

    def read_lists(
        self,
        name: str,
        size: int,
        places: Sequence[Place],
        begins: "Int64[IntArray, 'rows']",
        counts: "Int64[IntArray, 'rows']",
        crc32: "UInt32[NDArray[np.uint32], 'rows']",
    ) -> "list[Checked]":
        """The ranges to read for one column of the lists of these places."""
        reads = []
        for place in places:
            section = place.table.sections[name]
            lengths = counts[place.asked] * size
            starts = begins[place.asked] * size
            _refuse_beyond(section, int((starts + lengths).max(initial=0)), self._objects.url)
            reads.append(checked(section, starts, lengths, crc32[place.asked]))
        return reads


def in_order(
    places: Sequence[Place], parts: "Sequence[Octets]", lengths: "Int64[IntArray, 'rows']"
) -> "UInt8[Octets, '_']":
    """The bytes of each row, `lengths` of them, in the order asked for, from those of each place."""
    if len(places) == 1 and len(places[0].asked) == len(lengths):
        return parts[0]
    starts = np.zeros(len(lengths), dtype=np.int64)
    before = 0
    for place, data in zip(places, parts, strict=True):
        here = lengths[place.asked]
        starts[place.asked] = before + np.cumsum(here) - here
        before += len(data)
    joined = np.concatenate([np.empty(0, dtype=np.uint8), *parts])
    return _core.gather_ranges(joined, starts, lengths)


def checked(
    section: Section,
    starts: "Int64[IntArray, 'ranges']",
    lengths: "Int64[IntArray, 'ranges']",
    crc32: "UInt32[NDArray[np.uint32], 'ranges']",
) -> Checked:
    """Ranges of a section, and their CRC-32."""
    begins = np.cumsum(lengths) - lengths
    return Checked(
        Ranges(section.path, section.offset + starts, lengths),
        lambda data: np.equal(_core.checksum_ranges(data, begins, lengths), crc32),
    )


def _refuse_beyond(section: Section, end: int, url: str) -> None:
    if end > section.length:
        raise ObjectDamagedError(
            f"expected {end:,} bytes in a section of {section.path} in {url}, it has {section.length:,}: "
            "manifest and index do not fit. Write the snapshot again"
        )
