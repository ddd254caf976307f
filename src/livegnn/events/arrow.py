"""Reads events from Arrow tables column by column; only text ids are converted to Python objects."""

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from livegnn.errors import InputError
from livegnn.events.chunk import (
    EDGE_KINDS,
    Chunk,
    to_edge_type,
    to_ids,
    to_key,
    to_node_type,
    to_rows,
    to_texts,
    to_time,
    to_weight,
)
from livegnn.events.json_lines import FIELDS, NAMES
from livegnn.texts import Texts
from livegnn.types import EdgeType, Ids, NodeType
from livegnn.wording import quoted

if TYPE_CHECKING:
    from jaxtyping import Shaped

COLUMNS = ("event", "src", "dst", "id", "weight", "time", "key", "x", "edge_attr", "edge_type", "node_type")
_SEPARATOR: Final = "\x1f"
_AT_ONCE: Final = 65_536  # texts that are Python objects at a time


def decode(table: pa.Table | pa.RecordBatch) -> Iterator[Chunk]:
    """The rows of `table` as chunks of events. Raises an InputError that names the row, counted from 0."""
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if not isinstance(table, pa.Table):
        raise InputError(f"events must be an Arrow table or record batch, got {type(table).__name__}")
    unknown = [name for name in table.column_names if name not in COLUMNS]
    if unknown:
        raise InputError(
            f"the columns of an Arrow table must be among {', '.join(COLUMNS)}, got {quoted(unknown[0])}"
        )
    if "event" not in table.column_names:
        raise InputError(
            f"an Arrow table must have a column 'event', got {', '.join(table.column_names) or 'none'}"
        )
    columns = {name: table.column(name).combine_chunks() for name in table.column_names}
    for start, stop in _runs(columns, table.num_rows):
        rows = {name: column.slice(start, stop - start) for name, column in columns.items()}
        yield _to_chunk(rows, start)


def _runs(columns: dict[str, pa.Array], n: int) -> Iterator[tuple[int, int]]:
    """The longest runs of rows with the same event, types, null columns and widths of features."""
    if n == 0:
        return
    differs = np.zeros(n - 1, dtype=bool)
    for key in _keys_of_runs(columns):  # one after the other: each takes eight bytes a row
        differs |= key[1:] != key[:-1]
    bounds = [0, *(np.flatnonzero(differs) + 1).tolist(), n]
    yield from pairwise(bounds)


def _keys_of_runs(columns: dict[str, pa.Array]) -> Iterator[npt.NDArray[np.generic]]:
    """Yields the columns whose values are the same in all rows of a run."""
    yield _codes(columns["event"], "event")
    for name in ("weight", "time", "key", "x", "edge_attr", "edge_type", "node_type"):
        if name in columns:
            yield columns[name].is_valid().to_numpy(zero_copy_only=False)
    if "edge_type" in columns:
        yield _codes(_joined(columns["edge_type"]), "edge_type")
    if "node_type" in columns:
        yield _codes(columns["node_type"], "node_type")
    for name in ("x", "edge_attr"):
        if name in columns:
            widths = pc.list_value_length(_lists(columns[name], name)).fill_null(-1)
            yield widths.to_numpy(zero_copy_only=False)


def _codes(column: pa.Array, name: str) -> npt.NDArray[np.int64]:
    """The column as integers, one for each distinct text, -1 for null."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind)):
        raise InputError(f"column {name!r} must be text, got {column.type}")
    if pa.types.is_null(kind):
        return np.full(len(column), -1, dtype=np.int64)
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    codes: npt.NDArray[np.int64] = (
        encoded.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
    )
    return codes


def _joined(column: pa.Array) -> pa.Array:
    """The edge type of each row as a single text."""
    if pa.types.is_null(column.type):
        return column
    if not (pa.types.is_list(column.type) or pa.types.is_fixed_size_list(column.type)):
        raise InputError(f"column 'edge_type' must be lists of three names, got {column.type}")
    return pc.binary_join(column.cast(pa.list_(pa.string())), _SEPARATOR)


def _lists(column: pa.Array, name: str) -> pa.Array:
    kind = column.type
    if pa.types.is_null(kind):
        return column.cast(pa.list_(pa.float32()))
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
        raise InputError(f"column {name!r} must be lists of numbers, got {kind}")
    return column


def _to_chunk(rows: dict[str, pa.Array], start: int) -> Chunk:
    """One run of rows, which starts at row `start` of the table."""
    event = rows["event"][0].as_py()
    if event not in FIELDS:
        raise InputError(f"row {start}: 'event' must be one of {', '.join(FIELDS)}, got {quoted(event)}")
    required, optional = FIELDS[event]
    for name, column in rows.items():
        if (
            name != "event"
            and name not in required
            and name not in optional
            and column.null_count < len(column)
        ):
            row = start + int(np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))[0])
            raise InputError(
                f"row {row}: {event} takes {', '.join((*required, *optional))}, got a value for {name!r}"
            )
    for name in required:
        if name not in rows or rows[name].null_count:
            missing = 0 if name not in rows else int(np.flatnonzero(rows[name].is_null().to_numpy(False))[0])
            raise InputError(f"row {start + missing}: {event} needs a value for {name!r}, got none")
    try:
        return _edges(rows, event) if NAMES[event] in EDGE_KINDS else _nodes(rows, event)
    except (InputError, pa.ArrowInvalid) as error:
        raise InputError(f"rows {start} to {start + len(rows['event']) - 1}: {error}") from error


def _edges(rows: dict[str, pa.Array], event: str) -> Chunk:
    src, dst = read_ids(rows["src"]), read_ids(rows["dst"])
    edge_type = to_edge_type(cast("EdgeType | None", _first(rows, "edge_type")))
    key, weight, time = (_numbers(rows.get(name), name) for name in ("key", "weight", "time"))
    edge_attr, n = _rows(rows.get("edge_attr"), "edge_attr"), len(src)
    return Chunk(
        NAMES[event],
        edge_type,
        to_ids(src, "src"),
        to_ids(dst, "dst"),
        None if weight is None else to_weight(weight, n),
        None if time is None else to_time(time, n),
        None if edge_attr is None else to_rows(edge_attr, n, "edge_attr", scalar=False),
        None if key is None else to_key(key, n),
    )


def _nodes(rows: dict[str, pa.Array], event: str) -> Chunk:
    ids, node_type = read_ids(rows["id"]), cast("NodeType | None", _first(rows, "node_type"))
    x, time = _rows(rows.get("x"), "x"), _numbers(rows.get("time"), "time")
    if time is not None and x is None:
        raise InputError("'time' is that of features, got it without 'x': leave it out, or give 'x'")
    return Chunk(
        NAMES[event],
        to_node_type(node_type),
        to_ids(ids, "ids"),
        time=None if time is None else to_time(time, len(ids), "ids"),
        x=None if x is None else to_rows(x, len(ids), "x", scalar=False),
    )


def _first(rows: dict[str, pa.Array], name: str) -> object:
    return rows[name][0].as_py() if name in rows else None


def read_ids(column: pa.Array) -> "Shaped[Ids, 'events'] | Texts":
    """Ids of a column without nulls. Raises InputError for another kind, and for texts that cannot be ids."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return Texts.join(
            to_texts(column.slice(at, _AT_ONCE).to_pylist()) for at in range(0, len(column), _AT_ONCE)
        )
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if not pa.types.is_integer(column.type):
        raise InputError(f"ids must be integers or text, got {column.type}")
    ids: Ids = column.to_numpy(zero_copy_only=False)
    return ids


def _numbers(column: pa.Array | None, name: str) -> npt.NDArray[np.generic] | None:
    if column is None or column.null_count == len(column):
        return None
    if not (pa.types.is_integer(column.type) or (name != "key" and pa.types.is_floating(column.type))):
        must = "'key' must be integers" if name == "key" else "'weight' and 'time' must be numbers"
        raise InputError(f"{must}, got {column.type}")
    values: npt.NDArray[np.generic] = column.to_numpy(zero_copy_only=False)
    return values


def _rows(column: pa.Array | None, name: str) -> npt.NDArray[np.float64] | None:
    """Lists of equal length as a matrix [rows, length]."""
    if column is None or column.null_count == len(column):
        return None
    values = _lists(column, name).flatten()
    if values.null_count:
        raise InputError(f"{name!r} must be lists of numbers, got a null in one")
    if not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
        raise InputError(f"{name!r} must be lists of numbers, got lists of {values.type}")
    matrix: npt.NDArray[np.float64] = values.to_numpy(zero_copy_only=False).reshape(len(column), -1)
    return matrix
