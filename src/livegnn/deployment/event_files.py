"""Files of events as JSON lines, as `livegnn log export` writes them, that are appended to a log."""

import codecs
import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from livegnn.deployment.loading import Destination, Loaded, Part, Progress, append_to_log
from livegnn.errors import InputError
from livegnn.events import Events
from livegnn.events.builder import cut, from_chunks
from livegnn.events.json_lines import ENTRY, SEQ, collect, parse_lines
from livegnn.log.idempotency import client_origin

if TYPE_CHECKING:
    from livegnn.deployment import Deployment
    from livegnn.runtime import Runtime
    from livegnn.types import JSON

_AT_ONCE: Final = 4 << 20  # bytes
_DIGEST_BYTES: Final = 16


def import_events(
    settings: "Deployment",
    paths: Sequence[Path],
    *,
    renumber: bool = False,
    note: Callable[[Progress], None] = lambda progress: None,
) -> Loaded:
    """Appends the events of files to the log of a deployment that is not running, and applies them.

    All files are checked before the first event is appended. A file is known by its content: events that an
    earlier call appended, perhaps before it was interrupted, are not appended again. The events of an entry
    that was exported become one entry; their numbers continue those of the log. renumber: take events whose
    numbers in the file the log has already. Raises InputError with file and line; then nothing is appended.
    """
    for path in paths:
        if not path.is_file():
            raise InputError(
                f"{path} must be a file, which is read twice, got a pipe, a folder or nothing: write the "
                "events to a file first"
            )
    lines = _EventLines()

    def check_numbers(runtime: "Runtime") -> None:
        last = runtime.log.last_seq()
        for path in paths:
            position = runtime.log.position(*client_origin(lines.stream(path), 0)[:2])
            known = 0 if position is None else position + 1
            line = next(islice(_lines(path), known, None), None)
            if line is not None and line.seq is not None and line.seq <= last:
                raise InputError(
                    f"{path}: {line.place}: {SEQ!r} must be after {last}, where the log ends, got "
                    f"{line.seq}: the log may have this event already. Export later events alone (livegnn "
                    f"log export --after {last}), or take these as other events: --renumber"
                )

    return append_to_log(settings, paths, lines, note, before=None if renumber else check_numbers)


class _EventLines:
    """The lines of files of events; blank lines do not count."""

    def stream(self, path: Path) -> str:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, partial(hashlib.blake2b, digest_size=_DIGEST_BYTES))
        return f"events {digest.hexdigest()}"

    def place(self, begin: int, end: int) -> str:
        return f"event {end}" if end == begin + 1 else f"events {begin + 1} to {end}"

    def read(self, path: Path, to: Destination, skip: int = 0, *, check: bool = False) -> Iterator[Part]:
        end = 0
        for entries in _groups(_lines(path), to.rows):
            begin, ends = end, (end + np.cumsum([len(lines) for lines in entries])).tolist()
            end = ends[-1]
            if end > skip:
                events = _events_of(path, [line for lines in entries for line in lines])
                parts = cut(events, (one - begin for one in ends))
                yield from ((one, part) for one, part in zip(ends, parts, strict=True) if one > skip)


def _groups(lines: "Iterator[_Line]", rows: int) -> "Iterator[list[list[_Line]]]":
    """The entries of lines, `rows` lines together, or the last entry more."""
    group: list[list[_Line]] = []
    count = 0
    for _, entry in groupby(lines, key=lambda line: line.entry):
        group.append(list(entry))
        count += len(group[-1])
        if count >= rows:
            yield group
            group, count = [], 0
    if group:
        yield group


class _Line(NamedTuple):
    """A line of a file. entry: equal for all lines of an entry. seq: the number of its event, if known."""

    place: str
    entry: object
    event: "JSON"
    seq: int | None = None


def _events_of(path: Path, lines: Sequence[_Line]) -> Events:
    try:
        return from_chunks(collect((line.place, line.event) for line in lines))
    except InputError as error:
        raise InputError(f"{path}: {_named(error, lines)}") from error


def _named(error: InputError, lines: Sequence[_Line]) -> str:
    """An error of some lines, with the first line that has one by itself."""
    for line in lines:
        try:
            collect([(line.place, line.event)])
        except InputError as alone:
            return str(alone) if line.place in str(alone) else f"{line.place}: {alone}"
    return str(error)


def _lines(path: Path) -> Iterator[_Line]:
    first = 1
    with path.open("rb") as file:
        while text := b"".join(file.readlines(_AT_ONCE)):
            if first == 1:
                text = text.removeprefix(codecs.BOM_UTF8)
            try:
                for place, record in parse_lines(text, first=first):
                    yield _take_numbers(place, record)
            except InputError as error:
                raise InputError(f"{path}: {error}") from error
            first += text.count(b"\n")


def _take_numbers(place: str, record: "JSON") -> _Line:
    """A line without the numbers of an export."""
    if not isinstance(record, dict):
        return _Line(place, place, record)
    event = dict(record)
    seq, entry = (_whole(place, name, event.pop(name, None)) for name in (SEQ, ENTRY))
    return _Line(place, place if entry is None else entry, event, seq)


def _whole(place: str, name: str, number: "JSON") -> int | None:
    if number is None or type(number) is int:
        return number
    raise InputError(f"{place}: expected a whole number as {name!r}, got {number!r}")
