"""The owners of nodes: sampling workers, serving workers, or the parts of a divided graph.

The class in C++ is in cpp/ids/owners.h, because the store reads it by index.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import numpy as np

import livegnn._core as _core
from livegnn.arguments import check_int
from livegnn.errors import InputError
from livegnn.wording import kind_of

if TYPE_CHECKING:
    from jaxtyping import Int64, UInt16, UInt32
    from numpy.typing import NDArray

    from livegnn.types import IntArray

Rule: TypeAlias = Literal["modulo", "jump", "table", "fennel"]

MOST_WORKERS: Final = _core.MAX_WORKERS
NO_OWNER: Final = 0xFFFF
"""The owner of an index without a node, in a table."""


class Owners:
    """The owners of the nodes of one type, numbers from 0 to `workers` - 1. It never changes.

    rule: "modulo", a hash of the id; "jump", a hash by which one worker more takes its fair share and no
    other id moves; "table", an owner for each index; "fennel", each node where its neighbours are and room
    is when it arrives, so that there are no owners before. moved: ids that belong to another worker than
    their hash determines. table: uint16, by index, `NO_OWNER` for an index without a node. Raises
    `InputError`.
    """

    def __init__(
        self,
        rule: Rule,
        workers: int,
        *,
        moved: Mapping[int, int] | None = None,
        table: "UInt16[NDArray[np.uint16], 'capacity'] | None" = None,
    ) -> None:
        if rule not in ("modulo", "jump", "table", "fennel"):
            raise InputError(f"rule must be 'modulo', 'jump', 'table' or 'fennel', got {rule!r}")
        if (rule == "table") != (table is not None) or (rule in ("table", "fennel") and moved):
            raise InputError(
                "a table is for the rule 'table', and moved ids are for a hash, got "
                f"{rule!r} with table={kind_of(table)} and moved={kind_of(moved)}"
            )
        self.rule, self.workers = rule, check_int(workers, "workers", 1, MOST_WORKERS)
        try:
            if rule in ("table", "fennel"):
                by_index = np.ascontiguousarray([] if table is None else table, np.uint16)
                self.native = _core.Owners.from_table(self.workers, by_index)
            else:
                given = moved or {}
                ids, to = np.array(list(given), np.int64), np.array(list(given.values()), np.int64)
                self.native = _core.Owners(self.workers, rule == "jump", ids, to)
        except ValueError as error:
            raise InputError(str(error)) from error

    def of_id(self, ids: "Int64[IntArray, 'ids']") -> "Int64[IntArray, 'ids']":
        """The owner of each id. Requires a hash."""
        return self.native.of_ids(ids)

    def of_index(self, indices: "UInt32[NDArray[np.uint32], 'nodes']") -> "Int64[IntArray, 'nodes']":
        """The owner of each index, `NO_OWNER` where no node is. Requires a table."""
        return self.native.of_indices(indices)

    @property
    def moved(self) -> Mapping[int, int]:
        """The ids that belong to another worker than their hash determines, and their workers."""
        return self.native.moved()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Owners):
            return NotImplemented
        return self.rule == other.rule and self.native.equals(other.native)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        of = f", {count:,} moved" if (count := len(self.moved)) else ""
        return f"Owners({self.rule!r}, {self.workers}{of})"

    def __reduce__(self) -> "tuple[object, ...]":
        table = self.native.table() if self.rule == "table" else None
        return _restore, (self.rule, self.workers, self.moved, table)


def _restore(
    rule: Rule,
    workers: int,
    moved: Mapping[int, int],
    table: "UInt16[NDArray[np.uint16], 'capacity'] | None",
) -> Owners:
    return Owners(rule, workers, moved=moved, table=table)
