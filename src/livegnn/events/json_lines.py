"""Events as JSON lines, one event on each line, for people, files and HTTP."""

import difflib
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, cast

import numpy as np
import orjson

from livegnn.arguments import FLOAT32_END, check_lengths, check_whole_time
from livegnn.errors import FileFormatError, InputError, TooLargeError
from livegnn.events.chunk import EDGE_KINDS, Chunk, Kind, join
from livegnn.events.growing import GROW, to_chunk
from livegnn.events.json_parts import check_parts
from livegnn.events.repeated_keys import repeated_key
from livegnn.events.usual_json import read_usual_text
from livegnn.schema import Growth
from livegnn.texts import Texts
from livegnn.types import DEFAULT_EDGE_TYPE, DEFAULT_NODE_TYPE, JSON, FloatArray, Ids
from livegnn.wording import quoted

NAMES: Final[dict[str, Kind]] = {
    "add_edge": "add_edges",
    "remove_edge": "remove_edges",
    "set_features": "set_features",
    "add_node": "add_nodes",
    "remove_node": "remove_nodes",
}
"""The name of an event in JSON -> the kind of the chunk that holds it."""

FIELDS: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "add_edge": (("src", "dst"), ("weight", "time", "edge_attr", "key", "edge_type")),
    "remove_edge": (("src", "dst"), ("key", "edge_type")),
    "set_features": (("id", "x"), ("time", "node_type")),
    "add_node": (("id",), ("x", "time", "node_type")),
    "remove_node": (("id",), ("node_type",)),
}
"""The required fields and the optional fields of each event."""

SEQ: Final = "seq"
"""The field of an export with the sequence number of the event."""
ENTRY: Final = "entry"
"""The field of an export with the sequence number of the last event of the entry, where it has several."""

_LARGEST_ID = 2**63 - 1
_LARGEST_KEY = 2**32 - 1


# Other line breaks of Unicode may occur inside a JSON string. No thread runs while a pattern is matched.
_ENDS: Final = re.compile(rb"\n{1,65536}")
_LARGE_TIME: Final = re.compile(rb'"time"\s*:\s*(-?\d{19,})(?![\d.eE])')
_NUMBERS: Final = 16_384  # of rows, and as many as four for each event, that are Python objects at a time


class Limits(NamedTuple):
    """Limits of the text that a stranger may send. line: bytes of a line, which becomes Python objects as a
    whole. runs: of events of the same shape, each of which costs as much as many events.
    """

    line: int = 2**20
    runs: int = 32_768


STRANGERS: Final = Limits()


def decode(text: str | bytes, limits: Limits | None = None) -> list[Chunk]:
    """The chunks of the events in `text`. Raises an InputError that names the line; TooLargeError."""
    if isinstance(text, str):
        try:
            text = text.encode()
        except UnicodeEncodeError as error:
            raise InputError(
                f"JSON lines must be valid Unicode, got {quoted(text[error.start : error.end])}"
            ) from error
    if not isinstance(text, bytes):
        raise InputError(f"JSON lines must be text or bytes, got {quoted(text)}: of dicts, use from_records")
    if limits is None:
        usual = read_usual_text(text, in_lines=True)
    else:
        usual = read_usual_text(text, in_lines=True, largest=limits.line, runs=limits.runs)
    return collect(parse_lines(text, limits), limits) if usual is None else usual


def from_records(records: "Sequence[JSON | Mapping[str, JSON]]") -> list[Chunk]:
    """The chunks of events that are parsed JSON. Raises an InputError that names the position, from 0."""
    if isinstance(records, (str, bytes, Mapping)) or not isinstance(records, Sequence):
        raise InputError(f"events must be a list of objects, got {quoted(records)}")
    return collect((f"events[{position}]", record) for position, record in enumerate(records))


def split_lines(text: bytes, first: int = 1) -> Iterator[tuple[int, bytes]]:
    """Each line that is not blank, with its number. One line at a time is in memory. first: number of the
    first line."""
    number, at = first, 0
    while at < len(text):
        if (ends := _ENDS.match(text, at)) is not None:
            number += ends.end() - at
            at = ends.end()
            continue
        end = text.find(b"\n", at)
        line = text[at : end if end >= 0 else len(text)]
        if not line.isspace():
            yield number, line
        at += len(line)


def parse_lines(text: bytes, limits: Limits | None = None, *, first: int = 1) -> "Iterator[tuple[str, JSON]]":
    """Each line that is not blank as parsed JSON, with its place, as in "line 3". first: number of the first
    line. Raises InputError."""
    for number, line in split_lines(text, first):
        if limits is not None and len(line) > limits.line:
            raise TooLargeError(
                f"line {number}: a line must be at most {limits.line:,} bytes, got {len(line):,}: write "
                "an event on each line"
            )
        if limits is not None:
            check_parts(line, limits.line, f"line {number}")
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise InputError(f"line {number}: expected a JSON object, got {quoted(line)}: {error}") from error
        if (key := repeated_key(line, record)) is not None:
            raise InputError(f"line {number}: expected each field once, got {quoted(key)} twice")
        check_large_times(line, [record], f"line {number}: 'time'")
        yield f"line {number}", record


def check_large_times(text: bytes, records: "Iterable[JSON]", name: str) -> None:
    """Raises `InputError` if a time in `text` is an integer that float64 does not hold.

    The parser reads integers that need more than 64 bits as float64. records: of `text`, parsed.
    """
    times = (record.get("time") for record in records if isinstance(record, dict))
    if any(type(time) is float and abs(time) >= _LARGEST_ID for time in times):
        for time in _LARGE_TIME.findall(text):
            check_whole_time(int(time), name)


def collect(
    records: "Iterable[tuple[str, JSON | Mapping[str, JSON]]]", limits: Limits | None = None
) -> list[Chunk]:
    """The chunks of events that are parsed JSON, one for each run of the same shape.

    records: each with its place, which an InputError names; they may be made one by one, and are let go of.
    """
    chunks: list[Chunk] = []
    pieces: list[Chunk] = []  # of the last run
    run: list[Mapping[str, JSON]] = []
    last: tuple[object, ...] | None = None
    numbers = 0

    def end_piece() -> None:
        if run:
            pieces.append(_to_chunk(run))
            run.clear()

    def end_run() -> None:
        end_piece()
        if pieces:
            chunks.append(join(pieces))
            pieces.clear()

    for place, record in records:
        shape = _check(place, record)
        assert isinstance(record, Mapping)
        if limits is not None and shape == (GROW,):
            raise InputError(
                f"{place}: a growth of the schema is not an event of clients: POST /v1/schema takes it"
            )
        if shape != last:
            end_run()
            if limits is not None and len(chunks) == limits.runs:
                raise TooLargeError(
                    f"{place}: events may change their kind, type or fields {limits.runs:,} times, got more: "
                    "send them in parts, or those of one kind one after the other"
                )
        if shape != last or numbers > _NUMBERS:
            end_piece()
            numbers = 0
        last = shape
        run.append(record)
        numbers += 4 + len(record.get("x", record.get("edge_attr", ())))  # type: ignore[arg-type]
    end_run()
    return chunks


def _check(place: str, record: "JSON | Mapping[str, JSON]") -> tuple[object, ...]:
    """The shape of an event, which all events of a chunk must share. Raises InputError if it is malformed."""
    if not isinstance(record, Mapping):
        raise InputError(f"{place}: expected a JSON object with a field 'event', got {quoted(record)}")
    event = record.get("event")
    if event == GROW:
        _check_growth(place, record)
        return (event,)
    if not isinstance(event, str) or event not in FIELDS:
        raise InputError(f"{place}: expected 'event' to be one of {', '.join(FIELDS)}, got {quoted(event)}")
    required, optional = FIELDS[event]
    for name in record:
        if name != "event" and name not in required and name not in optional:
            near = difflib.get_close_matches(name, [*required, *optional], n=1)
            hint = f": did you mean {near[0]!r}?" if near else ""
            raise InputError(
                f"{place}: {event} has the fields {', '.join((*required, *optional))}, got "
                f"{quoted(name)}{hint}"
            )
    for name, value in record.items():
        if value is None:
            without = "" if name in required else ": leave the field out where there is none"
            raise InputError(f"{place}: expected a value for {name!r}, got null{without}")
    for name in required:
        if name not in record:
            raise InputError(f"{place}: expected a field {name!r} for {event}, got {quoted(record)}")
    name = "edge_attr" if NAMES[event] in EDGE_KINDS else "x"
    x = record.get(name)
    width = None if x is None else _check_row(place, name, x)
    timed = _check_number(place, "time", record.get("time"), math.inf)
    if timed:
        check_whole_time(record["time"], f"{place}: 'time'")
    if NAMES[event] in EDGE_KINDS:
        kinds = (_check_id(place, "src", record["src"]), _check_id(place, "dst", record["dst"]))
        weighted = _check_number(place, "weight", record.get("weight"), FLOAT32_END)
        keyed = _check_key(place, record.get("key"))
        return (event, _edge_type(place, record.get("edge_type")), kinds, weighted, timed, width, keyed)
    if timed and width is None:
        raise InputError(
            f"{place}: 'time' is that of features, got it without 'x': leave it out, or give 'x'"
        )
    node_type = _node_type(place, record.get("node_type"))
    return (event, node_type, _check_id(place, "id", record["id"]), timed, width)


def _check_growth(place: str, record: "Mapping[str, JSON]") -> None:
    """Raises InputError unless the event is a growth of the schema, as `Growth.to_json` writes it."""
    if record.keys() != {"event", "growth"}:
        raise InputError(f"{place}: expected a field 'growth' for {GROW} alone, got {quoted(record)}")
    try:
        Growth.from_json(record["growth"])
    except FileFormatError as error:
        raise InputError(f"{place}: {error}") from error


def _check_id(place: str, name: str, value: JSON) -> type:
    if type(value) is int and 0 <= value <= _LARGEST_ID:
        return int
    if isinstance(value, str) and "\0" not in value:  # also of NumPy
        return str
    raise InputError(
        f"{place}: expected {name!r} to be an integer from 0 to 2^63 - 1 or text, got {quoted(value)}"
    )


def _check_number(place: str, name: str, value: JSON, end: float) -> bool:
    if value is None:
        return False
    if type(value) not in (int, float) or not -end < value < end:  # type: ignore[operator]
        raise InputError(f"{place}: expected {name!r} to be a finite number, got {quoted(value)}")
    return True


def _check_key(place: str, value: JSON) -> bool:
    if value is None:
        return False
    if type(value) is not int or not 0 <= value <= _LARGEST_KEY:
        raise InputError(f"{place}: expected 'key' to be an integer from 0 to 2^32 - 1, got {quoted(value)}")
    return True


def _check_row(place: str, name: str, x: JSON) -> int:
    if not isinstance(x, list) or not set(map(type, x)) <= {int, float}:
        raise InputError(f"{place}: expected {name!r} to be a list of numbers, got {quoted(x)}")
    if x and not -FLOAT32_END < min(x) <= max(x) < FLOAT32_END:  # type: ignore[operator, type-var]
        raise InputError(
            f"{place}: expected {name!r} to be finite numbers that float32 can hold, got {quoted(x)}"
        )
    return len(x)


def _node_type(place: str, value: JSON) -> str:
    if value is None:
        return DEFAULT_NODE_TYPE
    if isinstance(value, str):
        return value
    raise InputError(f"{place}: expected 'node_type' to be text, got {quoted(value)}")


def _edge_type(place: str, value: JSON) -> tuple[str, ...]:
    if value is None:
        return DEFAULT_EDGE_TYPE
    if isinstance(value, (list, tuple)) and len(value) == 3 and all(isinstance(part, str) for part in value):
        return tuple(str(part) for part in value)
    raise InputError(
        f"{place}: expected 'edge_type' to be [source type, relation, target type], got {quoted(value)}"
    )


def _to_chunk(run: list[Mapping[str, JSON]]) -> Chunk:
    """The chunk of checked events with the same shape."""
    first = run[0]
    if first["event"] == GROW:
        return join([to_chunk(record["growth"]) for record in run])
    kind = NAMES[str(first["event"])]
    timed = first.get("time") is not None
    time = np.array([record["time"] for record in run], dtype=np.float64) if timed else None
    if kind in EDGE_KINDS:
        source, relation, target = _edge_type("", first.get("edge_type"))
        weighted = first.get("weight") is not None
        return Chunk(
            kind,
            (source, relation, target),
            _ids([record["src"] for record in run]),
            _ids([record["dst"] for record in run]),
            np.array([record["weight"] for record in run], dtype=np.float32) if weighted else None,
            time,
            _rows(run, "edge_attr"),
            np.array([record["key"] for record in run], dtype=np.uint32)
            if first.get("key") is not None
            else None,
        )
    node_type, ids = _node_type("", first.get("node_type")), _ids([record["id"] for record in run])
    return Chunk(kind, node_type, ids, time=time, x=_rows(run, "x"))


def _rows(run: list[Mapping[str, JSON]], name: str) -> FloatArray | None:
    if run[0].get(name) is None:
        return None
    return np.array([record[name] for record in run], dtype=np.float32)


def _ids(values: "list[JSON]") -> Ids | Texts:
    if not isinstance(values[0], str):
        return np.array(values, dtype=np.int64)
    check_lengths(values, "ids")
    return Texts.of(cast("list[str]", values))


def encode(chunks: Iterable[Chunk]) -> str:
    """`chunks` as JSON lines. Raises InputError for values that JSON cannot hold: NaN and infinities."""
    lines: list[bytes] = []
    for record in _records(chunks):
        try:
            lines.append(orjson.dumps(record))
        except TypeError as error:
            raise InputError(
                f"ids and types must be valid Unicode to be written as JSON, got {record}"
            ) from error
    return b"\n".join([*lines, b""]).decode()


def to_records(chunks: Iterable[Chunk]) -> list[dict[str, JSON]]:
    """`chunks` as JSON objects, an event each. Raises InputError for NaN and infinities."""
    return list(_records(chunks))


def _records(chunks: Iterable[Chunk]) -> Iterator[dict[str, JSON]]:
    names: dict[Kind, str] = {kind: name for name, kind in NAMES.items()}
    for chunk in chunks:
        if chunk.kind == GROW:
            yield from ({"event": GROW, "growth": orjson.loads(text)} for text in chunk.ids.tolist())
            continue
        columns: dict[str, list[JSON]] = {}
        constant: dict[str, JSON] = {"event": names[chunk.kind]}
        if isinstance(chunk.type, str):
            columns["id"] = cast("list[JSON]", chunk.ids.tolist())
            if chunk.type != DEFAULT_NODE_TYPE:
                constant["node_type"] = chunk.type
        else:
            assert chunk.dst is not None
            columns["src"] = cast("list[JSON]", chunk.ids.tolist())
            columns["dst"] = cast("list[JSON]", chunk.dst.tolist())
            if chunk.type != DEFAULT_EDGE_TYPE:
                constant["edge_type"] = list(chunk.type)
        for name, column in (
            ("weight", chunk.weight),
            ("time", chunk.time),
            (chunk.x_name, chunk.x),
            ("key", chunk.key),
        ):
            if column is None:
                continue
            if not np.isfinite(column).all():
                raise InputError(
                    f"{name} must be finite to be written as JSON, got {column[~np.isfinite(column)][0]}"
                )
            columns[name] = column.tolist()
        for row in zip(*columns.values(), strict=True):
            yield constant | dict(zip(columns, row, strict=True))
