"""Guesses the mapping of a table from a sample of its rows, for a person who then reads and corrects it.

The name of a column counts first, then its kind and its values. Where nothing fits, the error names the
columns.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from livegnn.errors import InputError
from livegnn.tables.columns import is_list, is_number, is_text, plain_type
from livegnn.tables.mapping import KEEP, SKIP, EdgeRows, NodeRows, TimeUnit
from livegnn.types import EdgeType, NodeType

ENDS: Final = (
    ("src", "dst"),
    ("source", "target"),
    ("from", "to"),
    ("sender", "receiver"),
    ("payer", "payee"),
    ("orig", "dest"),
    ("u", "v"),
)
TIMES: Final = ("time", "timestamp", "at", "ts", "date", "datetime", "created_at", "event_time")
WEIGHTS: Final = ("weight", "amount", "w", "value", "rating", "score")
KEYS: Final = ("id", "key", "edge_id", "transaction_id")
_UNITS: Final[tuple[tuple[float, TimeUnit], ...]] = ((1e17, "ns"), (1e14, "us"), (1e11, "ms"), (0, "s"))
"""The least number of today in each unit since 1970, with room for a century."""
_LARGEST_KEY: Final = 2**32 - 1


class ReadFeatures(NamedTuple):
    """The features that a model reads of a type. width: 0 if it reads none. replaced: the positions of those
    that it replaces where they are missing. columns: their names, if they are known."""

    width: int = 0
    replaced: Collection[int] = ()
    columns: Sequence[str] = ()


def guess_nodes(sample: pa.Table, node_type: NodeType, read: ReadFeatures, place: str) -> NodeRows:
    """The entry for a table whose rows are nodes. place: of the table, for errors. Raises InputError."""
    id = _first(sample, ("id", f"{node_type}_id", node_type, "node", "node_id")) or next(
        (name for name in sample.column_names if _is_id(sample, name) and _is_unique(sample, name)), None
    )
    if id is None or not _is_id(sample, id):
        raise InputError(
            f"{place}: expected a column of ids, named 'id' or with another value in each row, got "
            f"{_listed(sample.column_names)}: rename it"
        )
    wanted = f"{place}: expected {read.width} columns of numbers besides {id!r}"
    features = _features(sample, (id,), read, wanted)
    nulls, texts = _nulls(sample, features, read), _texts(sample, features)
    return NodeRows(id, node_type, x=features, nulls=nulls, texts=texts)


def guess_edges(
    sample: pa.Table, edge_type: EdgeType, read: ReadFeatures, place: str, *, weighted: bool
) -> EdgeRows:
    """The entry for a table whose rows are edges. weighted: whether the model reads weights. place: of the
    table, for errors. Raises InputError.
    """
    src, dst = _ends(sample, edge_type, place)
    time = _time(sample, (src, dst))
    weight = None
    if weighted:
        weight = _first(sample, WEIGHTS)
        if weight is None or not is_number(_kind(sample, weight)):
            raise InputError(
                f"{place}: expected a column of weights, named {_listed(WEIGHTS)}, because the model reads "
                f"weights, got {_listed(sample.column_names)}: rename it"
            )
    key = _key(sample, src, dst)
    used = tuple(name for name in (src, dst, time, weight, key) if name is not None)
    wanted = f"{place}: expected {read.width} columns of numbers besides {_listed(used)}"
    features = _features(sample, used, read, wanted)
    unit = None if time is None else _unit(sample, time)
    optional = [name for name in used if sample[name].null_count]
    nulls = _nulls(sample, features, read) | dict.fromkeys(optional, SKIP)
    texts = _texts(sample, features)
    return EdgeRows(src, dst, edge_type, weight, time, unit, key, features, nulls=nulls, texts=texts)


def has_parallel_edges(sample: pa.Table, rows: EdgeRows) -> bool:
    """Whether two rows of a sample give edges between the same two nodes."""
    ends = sample.select([rows.src, rows.dst])
    return bool(ends.group_by([rows.src, rows.dst]).aggregate([]).num_rows < ends.num_rows)


def _ends(sample: pa.Table, edge_type: EdgeType, place: str) -> tuple[str, str]:
    source, _, target = edge_type
    named = [(one, other) for one, other in ENDS]
    if source != target:
        named.insert(0, (source, target))
    for one, other in named:
        for begin, ending in (("", ""), ("", "_id"), *_around(sample, one)):
            found = _first(sample, (begin + one + ending,)), _first(sample, (begin + other + ending,))
            if found[0] is not None and found[1] is not None:
                return found[0], found[1]
    ids = [name for name in sample.column_names if _is_id(sample, name)]
    if len(ids) == 2:
        return ids[0], ids[1]
    raise InputError(
        f"{place}: expected two columns of ids, named 'src' and 'dst', or 'from_account' and 'to_account', "
        f"or by one of the pairs {', '.join(' and '.join(pair) for pair in ENDS)}, got "
        f"{_listed(sample.column_names)}: rename them, or write the mapping by hand"
    )


def _around(sample: pa.Table, end: str) -> list[tuple[str, str]]:
    """Beginnings and endings of names of columns around the name of an end: from_account, nameOrig."""
    if len(end) < 3:  # that many words begin or end with
        return []
    names = [name.lower() for name in sample.column_names if _is_id(sample, name)]
    found = [("", name[len(end) :]) for name in names if name.startswith(f"{end}_")]
    return found + [(name[: -len(end)], "") for name in names if name.endswith(end) and name != end]


def _time(sample: pa.Table, used: Sequence[str]) -> str | None:
    for name in sample.column_names:
        kind = _kind(sample, name)
        if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
            return str(name)
    found = _first(sample, TIMES)
    return None if found is None or found in used else found


def _unit(sample: pa.Table, time: str) -> TimeUnit | None:
    """The unit of times that are numbers, by their size."""
    if not is_number(_kind(sample, time)):
        return None
    largest = pc.max(pc.abs(sample[time].cast(pa.float64()))).as_py() or 0
    return next(unit for least, unit in _UNITS if largest >= least)


def _key(sample: pa.Table, src: str, dst: str) -> str | None:
    """A column of numbers that differ in all rows."""
    ending = [name for name in sample.column_names if name.lower().endswith("_id") and name not in (src, dst)]
    found = _first(sample, (*KEYS, *ending))
    if found is None or found in (src, dst) or not pa.types.is_integer(_kind(sample, found)):
        return None
    bounds = pc.min_max(sample[found]).as_py()
    fits = bounds["min"] is not None and 0 <= bounds["min"] <= bounds["max"] <= _LARGEST_KEY
    return found if fits and _is_unique(sample, found) else None


def _features(
    sample: pa.Table, used: Sequence[str], read: ReadFeatures, wanted: str
) -> list[str] | str | None:
    width = read.width
    if not width:
        return None
    if read.columns and set(read.columns) <= set(sample.column_names):
        return list(read.columns)
    others = [name for name in sample.column_names if name not in used]
    for name in others:
        column = sample[name]
        if is_list(_kind(sample, name)) and pc.max(pc.list_value_length(column)).as_py() == width:
            return str(name)
    numbers = [
        name for name in others if is_number(_kind(sample, name)) or pa.types.is_boolean(_kind(sample, name))
    ]
    if len(numbers) == width:
        return numbers
    both = [name for name in others if name in numbers or is_text(_kind(sample, name))]
    if len(both) == width:  # texts are categories, which have codes
        return both
    raise InputError(
        f"{wanted}, as many as the model reads, or of numbers and texts, got {_listed(both)}: write a table "
        "with these columns alone, in the order of the training"
    )


def _nulls(sample: pa.Table, features: list[str] | str | None, read: ReadFeatures) -> dict[str, object]:
    """For each column of features that has nulls: it keeps them if the model replaces them; if not, zeros are
    in place of numbers."""
    if features is None or isinstance(features, str):
        return {} if features is None or not sample[features].null_count else {features: 0}
    lacking = {name: at in read.replaced for at, name in enumerate(features) if sample[name].null_count}
    return {
        name: KEEP if replaced else 0
        for name, replaced in lacking.items()
        if replaced or not is_text(_kind(sample, name))
    }


def _texts(sample: pa.Table, features: list[str] | str | None) -> list[str] | None:
    names = [] if features is None or isinstance(features, str) else features
    return [name for name in names if is_text(_kind(sample, name))] or None


def _first(sample: pa.Table, names: Iterable[str]) -> str | None:
    """The first of some names that a column has, in any case of letters."""
    known = {name.lower(): name for name in reversed(sample.column_names)}
    return next((known[name.lower()] for name in names if name.lower() in known), None)


def _kind(sample: pa.Table, name: str) -> pa.DataType:
    return plain_type(sample.schema.field(name).type)


def _is_id(sample: pa.Table, name: str) -> bool:
    kind = _kind(sample, name)
    return bool(pa.types.is_integer(kind) or is_text(kind))


def _is_unique(sample: pa.Table, name: str) -> bool:
    return bool(pc.count_distinct(sample[name], mode="all").as_py() == sample.num_rows)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "none"


def are_text(samples: Iterable[tuple[pa.Table, NodeRows | EdgeRows]]) -> bool:
    """Whether the ids of some tables are text."""
    return any(
        is_text(_kind(sample, name))
        for sample, rows in samples
        for name in ((rows.id,) if isinstance(rows, NodeRows) else (rows.src, rows.dst))
    )
