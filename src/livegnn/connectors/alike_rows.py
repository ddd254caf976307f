"""Groups of rows whose columns have values of one kind each, so that each column may be one array."""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Final, TypeAlias

from livegnn.types import JSON

_Row: TypeAlias = Mapping[str, JSON]

_ABSENT: Final = ()  # JSON has no tuples
_NUMBERS: Final[set[Hashable]] = {"int", "float"}


def group_alike(
    tables: Sequence[Sequence[_Row | None]],
    converters: Sequence[Mapping[str, Hashable]],
    columns: Sequence[str],
    marks: Sequence[str],
) -> list[list[int]]:
    """The positions of rows, in groups. A null, and a row that is None, fit with any group.

    tables: each with as many rows; rows at one position are in one group. converters: of the rows at a
    position, from columns to the kind of their values if they are not plain JSON. marks: texts that are a
    kind of their own.
    """
    signatures: list[tuple[Hashable, ...]] = [()] * len(converters)
    for rows in tables:
        for column in columns:
            kinds = [_kind(*one, column, marks) for one in zip(rows, converters, strict=True)]
            known = Counter(kind for kind in kinds if kind is not None)
            if len(known) < 2 or known.keys() == _NUMBERS:
                continue
            ((usual, _),) = known.most_common(1)
            signatures = [
                (*before, usual if kind is None else kind)
                for before, kind in zip(signatures, kinds, strict=True)
            ]
    groups: dict[tuple[Hashable, ...], list[int]] = {}
    for position, signature in enumerate(signatures):
        groups.setdefault(signature, []).append(position)
    return list(groups.values())


def _kind(
    row: _Row | None, converters: Mapping[str, Hashable], column: str, marks: Sequence[str]
) -> Hashable | None:
    if row is None:
        return None
    if (converter := converters.get(column)) is not None:
        return converter
    value = row.get(column, _ABSENT)
    if value is None:
        return None
    return value if isinstance(value, str) and value in marks else type(value).__name__
