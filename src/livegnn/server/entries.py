"""The entries of the log that a body of events asks for, with their idempotency keys.

A body is one entry, unless its events are entries of their own: because the request says so (`partial`), or
because they carry an `idempotency_key`. Those between two such events are an entry together.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, TypeVar

from livegnn.errors import InputError
from livegnn.events import Events
from livegnn.events.builder import from_chunks
from livegnn.events.json_lines import collect, parse_lines
from livegnn.server.bodies import LINE_TYPES, parse_records
from livegnn.types import JSON
from livegnn.wording import quoted

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


def read_entries(body: bytes, media_type: str) -> list[GivenEntry]:
    """The entries of a body. Raises InputError that names the first bad event."""
    if _may_have_keys(body):
        records = list(_read_records(body, media_type))
        if any(record.key is not None for record in records):
            _to_events(records)  # or raises, before one is logged
            return _cut(records)
    if media_type in LINE_TYPES:
        return [GivenEntry(Events.from_json_lines(body))]
    return [GivenEntry(Events.from_records(parse_records(body, media_type)))]


def read_each_event(body: bytes, media_type: str) -> list[GivenEntry]:
    """Each event of a body by itself, or what is wrong with it. Raises InputError for the body as a whole."""
    if media_type in LINE_TYPES:
        lines = [line for line in body.split(b"\n") if line.strip()]
        return [_one(_read_line, line, position) for position, line in enumerate(lines)]
    records = parse_records(body, media_type)
    return [_one(_read_record, record, position) for position, record in enumerate(records)]


def _one(read: Callable[[_Given], tuple[Events, str | None]], given: _Given, position: int) -> GivenEntry:
    try:
        return GivenEntry(*read(given), position)
    except InputError as error:
        return GivenEntry(error, None, position)


def _read_line(line: bytes) -> tuple[Events, str | None]:
    if not _may_have_keys(line):
        return Events.from_json_lines(line), None
    records = [_without_key(place, content) for place, content in parse_lines(line)]
    return _to_events(records), records[0].key


def _read_record(content: JSON) -> tuple[Events, str | None]:
    record = _without_key("events[0]", content)
    return _to_events([record]), record.key


def _may_have_keys(body: bytes) -> bool:
    """False if no event can have a key, whose name may be written with escapes."""
    return _KEY.encode() in body or b"\\u" in body


def _read_records(body: bytes, media_type: str) -> Iterator[_Record]:
    if media_type in LINE_TYPES:
        yield from (_without_key(place, content) for place, content in parse_lines(body))
        return
    for position, content in enumerate(parse_records(body, media_type)):
        yield _without_key(f"events[{position}]", content)


def _without_key(place: str, content: JSON) -> _Record:
    if not isinstance(content, dict) or _KEY not in content:
        return _Record(place, content, None)
    key = content[_KEY]
    if not isinstance(key, str):
        raise InputError(f"{place}: expected {_KEY!r} to be text, got {quoted(key)}")
    return _Record(place, {name: value for name, value in content.items() if name != _KEY}, key)


def _to_events(records: Iterable[_Record]) -> Events:
    return from_chunks(collect((record.place, record.content) for record in records))


def _cut(records: list[_Record]) -> list[GivenEntry]:
    """An entry for each event with a key, and for each run of events without."""
    entries: list[GivenEntry] = []
    run: list[_Record] = []

    def end_run(position: int) -> None:
        if run:
            entries.append(GivenEntry(_to_events(run), None, position - len(run)))
            run.clear()

    for position, record in enumerate(records):
        if record.key is None:
            run.append(record)
        else:
            end_run(position)
            entries.append(GivenEntry(_to_events([record]), record.key, position))
    end_run(len(records))
    return entries
