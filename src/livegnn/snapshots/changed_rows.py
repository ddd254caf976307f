"""The rows of each table that have changed since a snapshot, and since its base.

Thread safety: the caller holds `Graph.writer`. `mark` takes no memory, so it cannot fail.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from livegnn.errors import FileFormatError
from livegnn.snapshots.manifest import TableKey

if TYPE_CHECKING:
    from typing import TypeAlias

    from numpy.typing import NDArray

    from livegnn.types import Array

    Rows: TypeAlias = NDArray[np.uint32]
    Flags: TypeAlias = NDArray[np.bool_]


class ChangedRows:
    """keys: the tables."""

    def __init__(self, keys: Iterable[TableKey]) -> None:
        self._flags: dict[TableKey, Flags] = {key: np.zeros(0, dtype=np.bool_) for key in keys}

    def __contains__(self, key: object) -> bool:
        return key in self._flags

    def reserve(self, key: TableKey, rows: int) -> None:
        """Makes room, so that rows below `rows` can be marked."""
        flags = self._flags[key]
        if len(flags) < rows:
            grown = np.zeros(max(rows, 2 * len(flags), 1024), dtype=np.bool_)
            grown[: len(flags)] = flags
            self._flags[key] = grown

    def mark(self, key: TableKey, rows: "NDArray[np.intp]") -> None:
        """Notes that rows have changed; there must be room for them."""
        self._flags[key][rows] = True

    def add(self, other: "ChangedRows") -> None:
        """Notes all that `other` has noted."""
        for key, flags in other._flags.items():
            self.reserve(key, len(flags))
            self._flags[key][: len(flags)] |= flags

    @classmethod
    def union(cls, *noted: "ChangedRows") -> "ChangedRows":
        """The union of the notes of several objects, at least one, of the same tables."""
        together = cls(noted[0]._flags)
        for each in noted:
            together.add(each)
        return together

    def rows(self) -> "dict[TableKey, Rows]":
        """The rows of each table that has any, ascending."""
        found = {key: np.flatnonzero(flags).astype(np.uint32) for key, flags in self._flags.items()}
        return {key: rows for key, rows in found.items() if len(rows)}

    @property
    def bytes(self) -> int:
        """The memory that it takes."""
        return sum(flags.nbytes for flags in self._flags.values())

    def save(self, name: str) -> "dict[str, Array]":
        """As arrays by name, which begin with `name`: a bit for each row."""
        return {f"{name}/{key}": np.packbits(flags) for key, flags in self._flags.items()}

    @classmethod
    def load(cls, keys: Iterable[TableKey], saved: "Mapping[str, Array]", name: str) -> "ChangedRows":
        """The inverse of `save`, among other arrays. Raises `FileFormatError` if they are not these."""
        changed = cls(keys)
        theirs = [each for each in saved if each.startswith(f"{name}/")]
        if set(theirs) != {f"{name}/{key}" for key in changed._flags}:
            raise FileFormatError(
                f"expected the rows that changed in {', '.join(map(str, changed._flags))}, "
                f"got {', '.join(each.removeprefix(f'{name}/') for each in theirs)}"
            )
        for key in changed._flags:
            bits = saved[f"{name}/{key}"]
            if bits.dtype != np.uint8 or bits.ndim != 1:
                raise FileFormatError(f"expected a bit for each row of {key}, got {bits.dtype} {bits.shape}")
            changed._flags[key] = np.unpackbits(bits.astype(np.uint8)).view(np.bool_)
        return changed
