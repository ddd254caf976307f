"""The entries of the log in a body of events, with their idempotency keys.

A body is one entry, unless its events are entries of their own: because the request says so (`partial`), or
because they carry an `idempotency_key`. The events between two such events are an entry together.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Final, NamedTuple, TypeVar

from livegnn.errors import InputError, TooLargeError
from livegnn.events import Events
from livegnn.events.builder import from_chunks
from livegnn.events.json_lines import STRANGERS, collect, decode, parse_lines, split_lines
from livegnn.events.usual_json import read_usual, read_usual_text
from livegnn.server.arrow_bodies import events_of, read_arrow, read_arrow_events
from livegnn.server.bodies import ARROW_TYPE, JSON_TYPE, LINE_TYPES, parse_records
from livegnn.types import JSON
from livegnn.wording import quoted

MOST_ENTRIES: Final = 10_000
_KEY: Final = "idempotency_key"
_Given = TypeVar("_Given")


class GivenEntry(NamedTuple):
    """An entry, or what is wrong with it. key: of its own; position: of its first event in the body."""

    events: Events | InputError
    key: str | None = None
    position: int = 0


class _Record(NamedTuple):
    place: str  # as an error names it
    content: JSON  # without the key
    key: str | None


def read_entries(body: bytes, media_type: str, largest: int) -> list[GivenEntry]:
    """The entries of a body. Raises InputError that names the first bad event.

    largest: bytes of JSON that becomes Python objects as a whole: a body that is not in lines, or a line.
    """
    if media_type == ARROW_TYPE:
        return [GivenEntry(read_arrow_events(body))]
    in_lines = media_type in LINE_TYPES
    if in_lines or media_type == JSON_TYPE:
        usual = read_usual_text(body, in_lines=in_lines, largest=largest, runs=STRANGERS.runs)
        if usual is not None:
            return [GivenEntry(from_chunks(usual))]
    if _may_have_keys(body):
        return _cut(_read_records(body, media_type, largest))
    if in_lines:
        return [GivenEntry(from_chunks(decode(body, STRANGERS._replace(line=largest))))]
    records = parse_records(body, media_type, largest)
    return [GivenEntry(_to_events(_Record(f"events[{at}]", one, None) for at, one in enumerate(records)))]


class PlainBody(NamedTuple):
    """A body that is one entry without a key, if it is of the usual form.

    in_lines: whether an event is on each line. largest: as of `read_entries`.
    """

    content: bytes
    in_lines: bool
    largest: int

    @classmethod
    def make(cls, content: bytes, media_type: str, largest: int) -> "PlainBody | None":
        """None for bodies of other media types."""
        in_lines = media_type in LINE_TYPES
        return cls(content, in_lines, largest) if in_lines or media_type == JSON_TYPE else None


def join_entries(bodies: Sequence[PlainBody]) -> tuple[Events, list[int]]:
    """The events of the first of `bodies`, up to one that is not of the usual form; and the number of each.

    Bodies must not differ but in their content.
    """
    _, in_lines, largest = bodies[0]
    texts = [body.content for body in bodies]
    chunks, sizes = read_usual(texts, in_lines=in_lines, largest=largest, runs=STRANGERS.runs)
    return from_chunks(chunks), sizes


def read_each_event(body: bytes, media_type: str, largest: int) -> list[GivenEntry]:
    """Each event of a body by itself, or what is wrong with it. Raises InputError for the body as a whole.

    largest: as of `read_entries`.
    """
    entries: list[GivenEntry] = []
    if media_type == ARROW_TYPE:
        table = read_arrow(body)
        for at in range(table.num_rows):
            entries.append(_one(lambda row: (events_of(row), None), table.slice(at, 1), at))
            _check_count(entries)
        return entries
    if media_type in LINE_TYPES:
        for number, line in split_lines(body):
            entries.append(_one(partial(_read_line, number=number, largest=largest), line, len(entries)))
            _check_count(entries)
        return entries
    for at, record in enumerate(parse_records(body, media_type, largest)):
        entries.append(_one(partial(_read_record, place=f"events[{at}]"), record, at))
        _check_count(entries)
    return entries


def _check_count(entries: list[GivenEntry]) -> None:
    if len(entries) > MOST_ENTRIES:
        raise TooLargeError(
            f"a body must be at most {MOST_ENTRIES:,} entries of the log, got more: send the events in "
            "parts, or without keys and `partial`, as one entry"
        )


def _one(read: Callable[[_Given], tuple[Events, str | None]], given: _Given, position: int) -> GivenEntry:
    try:
        return GivenEntry(*read(given), position)
    except InputError as error:
        # A traceback holds what the reader had, and an error of each event is kept until all are answered.
        return GivenEntry(type(error)(str(error)), None, position)


def _read_line(line: bytes, number: int, largest: int) -> tuple[Events, str | None]:
    """number: of the line in its body, which an InputError names."""
    limits = STRANGERS._replace(line=largest)
    try:
        if not _may_have_keys(line):
            return from_chunks(decode(line, limits)), None
        records = [_without_key(place, content) for place, content in parse_lines(line, limits)]
        return _to_events(records), records[0].key
    except InputError as error:
        raise type(error)(f"line {number}{str(error).removeprefix('line 1')}") from error


def _read_record(content: JSON, place: str) -> tuple[Events, str | None]:
    record = _without_key(place, content)
    return _to_events([record]), record.key


def _may_have_keys(body: bytes) -> bool:
    """False if no event can have a key, whose name may be written with escapes."""
    return _KEY.encode() in body or b"\\u" in body


def _read_records(body: bytes, media_type: str, largest: int) -> Iterator[_Record]:
    if media_type in LINE_TYPES:
        lines = parse_lines(body, STRANGERS._replace(line=largest))
        yield from (_without_key(place, content) for place, content in lines)
        return
    for position, content in enumerate(parse_records(body, media_type, largest)):
        yield _without_key(f"events[{position}]", content)


def _without_key(place: str, content: JSON) -> _Record:
    if not isinstance(content, dict) or _KEY not in content:
        return _Record(place, content, None)
    key = content[_KEY]
    if not isinstance(key, str):
        raise InputError(f"{place}: expected {_KEY!r} to be text, got {quoted(key)}")
    return _Record(place, {name: value for name, value in content.items() if name != _KEY}, key)


def _to_events(records: Iterable[_Record]) -> Events:
    return from_chunks(collect(((record.place, record.content) for record in records), STRANGERS))


def _cut(records: Iterator[_Record]) -> list[GivenEntry]:
    """An entry for each event with a key, and for each run of events without."""
    entries: list[GivenEntry] = []
    position = 0
    for keyed, several in groupby(records, lambda record: record.key is not None):
        if not keyed:
            events = _to_events(several)
            entries.append(GivenEntry(events, None, position))
            position += len(events)
            _check_count(entries)
            continue
        for record in several:
            entries.append(GivenEntry(_to_events([record]), record.key, position))
            position += 1
            _check_count(entries)
    return entries or [GivenEntry(Events())]
