"""Files whose rows are appended to the log of a deployment, or to a server, each once."""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

from livegnn.errors import InputError, LiveGNNError
from livegnn.events import Events
from livegnn.events.growing import GROW
from livegnn.log import Appended
from livegnn.log.idempotency import client_origin
from livegnn.schema import Schema
from livegnn.tables import TableMapping

if TYPE_CHECKING:
    from livegnn.deployment import Deployment
    from livegnn.runtime import Runtime

ROWS: Final = 4096  # of an entry of the log, which is applied as a whole or not at all
_ENTRIES: Final = 16  # that are flushed to the disk together

Part: TypeAlias = tuple[int, Events]
"""The number of rows of a file up to the end of a part of it, and the events of the part."""


class Progress(NamedTuple):
    """The rows of a file that are checked, or appended."""

    step: str
    file: Path
    rows: int


class Loaded(NamedTuple):
    """The outcome of a load. rows: that were appended; known: that were appended earlier; events: of `rows`.
    refused: the entries that were refused when they were applied. seq: the last event that is applied.
    standing: if some rows were appended earlier, how many other entries of the log are refused, perhaps
    theirs."""

    rows: int
    known: int
    events: int
    refused: Sequence[str]
    seq: int
    standing: int = 0


class Finished(NamedTuple):
    """The last event that is applied, and the reasons of refused entries by their last event."""

    seq: int
    refused: dict[int, str]


class Destination(Protocol):
    """A log to which rows are appended. rows: of a part; parts: that are appended together."""

    schema: Schema
    rows: int
    parts: int

    def check(self, events: Events) -> None:
        """Raises InputError for events that could never be applied."""

    def position(self, stream: str) -> int | None:
        """The number of the last row of a stream that was appended, None if none was."""

    def append(self, stream: str, parts: Sequence[Part]) -> list[int]:
        """Appends parts; a part that was appended already is not appended again. Returns the last event of
        each."""

    def finish(self) -> Finished:
        """Waits until all that was appended is applied."""

    def count_refused(self) -> int:
        """The number of refused entries of the log."""


class Rows(Protocol):
    """The rows of files, in parts that become entries."""

    def stream(self, path: Path) -> str:
        """A name that a file of other content does not have."""

    def place(self, begin: int, end: int) -> str:
        """Words for the rows from `begin`, from 0, to `end`, which is the number after the last."""

    def read(self, path: Path, to: Destination, skip: int = 0, *, check: bool = False) -> Iterator[Part]:
        """The parts of a file for a destination, without some rows at its beginning. check: whether to look
        for errors that only the whole file shows. Raises InputError with the file and the place."""


class _Appended(NamedTuple):
    """A part that became the entry whose last event is `seq`."""

    seq: int
    file: Path
    first_row: int
    end: int
    events: int


def load_files(
    settings: "Deployment",
    name: str,
    paths: Sequence[Path],
    *,
    order: str = "name",
    note: Callable[[Progress], None] = lambda progress: None,
) -> Loaded:
    """Appends the rows of files to the log of a deployment that is not running, and applies them.

    All files are checked before the first row is appended. A file is known by its content: rows that an
    earlier call appended, perhaps before it was interrupted, are not appended again. Raises InputError with
    file, row and column for a value that does not fit; then nothing is appended.
    """
    from livegnn.tables.files import list_files

    rows = TableRows(settings, name)
    return append_to_log(settings, list_files(paths, order), rows, note)  # type: ignore[arg-type]


def append_to_log(
    settings: "Deployment",
    files: Sequence[Path],
    rows: Rows,
    note: Callable[[Progress], None],
    *,
    before: "Callable[[Runtime], None] | None" = None,
) -> Loaded:
    """As `append_files`, to the log of a deployment that is not running. before: called first."""
    runtime = settings.open()
    try:
        if before is not None:
            before(runtime)
        return append_files(files, rows, _Log(runtime), note)
    finally:
        runtime.stop()
        runtime.log.close()


def find_mapping(settings: "Deployment", name: str) -> TableMapping:
    """The mapping of a table. Raises InputError if the deployment has none of this name."""
    if name not in settings.tables:
        known = ", ".join(settings.tables) or "none"
        raise InputError(f"there must be a section [tables.{name}], got {known}: write the mapping there")
    return settings.tables[name]


def append_files(
    files: Sequence[Path], rows: Rows, to: Destination, note: Callable[[Progress], None]
) -> Loaded:
    """Appends the rows of files, each once. All files are checked before the first row is appended."""
    for path in files:
        begin = 0
        for end, events in rows.read(path, to, check=True):
            try:
                to.check(events)
            except InputError as error:
                raise InputError(f"{path}: {rows.place(begin, end)}: {error}") from error
            begin = end
            note(Progress("checked", path, end))
    appended: list[_Appended] = []
    all_known = 0
    for path in files:
        stream = rows.stream(path)
        position = to.position(stream)
        known = end = 0 if position is None else position + 1
        all_known += known
        for parts in _groups(rows.read(path, to, skip=known), end, to.rows * to.parts):
            try:
                seqs = to.append(stream, parts)
            except InputError as error:
                raise InputError(
                    f"{path}: {rows.place(end, parts[-1][0])}: {error} (the rows before them are loaded)"
                ) from error
            for (row, events), seq in zip(parts, seqs, strict=True):
                appended.append(_Appended(seq, path, end, row, len(events)))
                end = row
            note(Progress("loaded", path, end))
    seq, refused = to.finish()
    return Loaded(
        sum(one.end - one.first_row for one in appended),
        all_known,
        sum(one.events for one in appended),
        [
            f"{one.file}: {rows.place(one.first_row, one.end)}, entry {one.seq}: {refused[one.seq]}"
            for one in appended
            if one.seq in refused
        ],
        seq,
        to.count_refused() - len(refused) if all_known else 0,
    )


class TableRows:
    """The rows of files of a table. Raises InputError if the deployment has no mapping of this name."""

    def __init__(self, settings: "Deployment", name: str) -> None:
        self._name, self._mapping = name, find_mapping(settings, name)

    def stream(self, path: Path) -> str:
        from livegnn.tables.files import digest_of

        return f"table {digest_of(path, self._mapping, self._name)}"

    def place(self, begin: int, end: int) -> str:
        return f"rows {begin} to {end - 1}"

    def read(self, path: Path, to: Destination, skip: int = 0, *, check: bool = False) -> Iterator[Part]:
        from livegnn.tables.files import read_file

        return read_file(path, self._mapping, to.schema, rows=to.rows, skip=skip, check_keys=check)


class _Log:
    """The log of a runtime, which applies what is appended."""

    rows, parts = ROWS, _ENTRIES

    def __init__(self, runtime: "Runtime") -> None:
        self.schema = runtime.graph.schema
        self._runtime, self._begin, self._started = runtime, runtime.log.last_seq(), False
        self._grows = False

    def check(self, events: Events) -> None:
        """Events after a growth of the schema are of types and columns that the graph does not have yet: they
        are checked when they are appended."""
        if not self._grows:
            self._runtime.check(events)
            self._grows = _is_growth(events)

    def position(self, stream: str) -> int | None:
        self._start()
        return self._runtime.log.position(*client_origin(stream, 0)[:2])

    def append(self, stream: str, parts: Sequence[Part]) -> list[int]:
        self._runtime.admit(None)
        seqs: list[int] = []
        for grows, run in groupby(parts, lambda part: _is_growth(part[1])):
            some = list(run)
            entries, origins = [one for _, one in some], [client_origin(stream, row - 1) for row, _ in some]
            for outcome in self._runtime.append_all(entries, None, origins, admitted=True):
                if isinstance(outcome, LiveGNNError):
                    raise outcome
                assert isinstance(outcome, Appended)
                seqs.append(outcome.seq)
            if grows:  # later events are of the schema after it
                self._start()
                self._runtime.wait(seqs[-1])
        return seqs

    def finish(self) -> Finished:
        self._start()
        seq = self._runtime.wait(self._runtime.log.last_seq())
        return Finished(seq, {one.seq: one.message for one in self._runtime.log.rejections(self._begin)})

    def count_refused(self) -> int:
        return len(self._runtime.log.rejections())

    def _start(self) -> None:
        if not self._started:
            self._started = True
            self._runtime.start()


def _is_growth(events: Events) -> bool:
    return any(chunk.kind == GROW for chunk in events.chunks)


def _groups(parts: Iterator[Part], begin: int, most: int) -> Iterator[list[Part]]:
    """Groups of neighbouring parts. most: rows of a group, unless a part has more. begin: rows before."""
    group: list[Part] = []
    for part in parts:
        if group and part[0] - begin > most:
            begin = group[-1][0]
            yield group
            group = []
        group.append(part)
    if group:
        yield group
