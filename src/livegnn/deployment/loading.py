"""Files of tables that are appended to the log of a deployment, each row once, by its mapping."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from livegnn.errors import InputError, LiveGNNError
from livegnn.events import Events
from livegnn.log import Appended, Origin
from livegnn.tables import TableMapping

if TYPE_CHECKING:
    from livegnn.deployment import Deployment
    from livegnn.runtime import Runtime

_ROWS: Final = 4096  # of an entry of the log, which is applied as a whole or not at all
_ENTRIES: Final = 16  # that are flushed to the disk together


class Progress(NamedTuple):
    """The rows of a file that are checked, or appended."""

    step: str
    file: Path
    rows: int


class Loaded(NamedTuple):
    """The outcome of a load. rows: that were appended; known: that were appended earlier; events: of `rows`.
    refused: the entries that were refused when they were applied. seq: the last event that is applied."""

    rows: int
    known: int
    events: int
    refused: Sequence[str]
    seq: int


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
    from livegnn.tables.files import list_files, read_file

    mapping = find_mapping(settings, name)
    files = list_files(paths, order)  # type: ignore[arg-type]
    runtime = settings.open()
    try:
        for path in files:
            rows = 0
            for rows, events in read_file(path, mapping, runtime.graph.schema, rows=_ROWS):
                runtime.check(events)
                note(Progress("checked", path, rows))
        before = runtime.log.last_seq()
        runtime.start()
        counts = [_append_file(runtime, path, mapping, name, note) for path in files]
        seq = runtime.wait(runtime.log.last_seq())
        refused = [f"entry {one.seq}: {one.message}" for one in runtime.log.rejections(before)]
        appended, known, events_appended = (sum(one[at] for one in counts) for at in range(3))
        return Loaded(appended, known, events_appended, refused, seq)
    finally:
        runtime.stop()
        runtime.log.close()


def find_mapping(settings: "Deployment", name: str) -> TableMapping:
    """The mapping of a table. Raises InputError if the deployment has none of this name."""
    if name not in settings.tables:
        known = ", ".join(settings.tables) or "none"
        raise InputError(f"there must be a section [tables.{name}], got {known}: write the mapping there")
    return settings.tables[name]


def _append_file(
    runtime: "Runtime", path: Path, mapping: TableMapping, name: str, note: Callable[[Progress], None]
) -> tuple[int, int, int]:
    """Appends the rows of a file after those that the log has. Returns the numbers of rows that were appended
    and known, and of events."""
    from livegnn.tables.files import digest_of, read_file

    source = f"table {digest_of(path, mapping, name)}"
    position = runtime.log.position(source, 0)
    known = 0 if position is None else position + 1
    end, count = known, 0
    parts = read_file(path, mapping, runtime.graph.schema, rows=_ROWS, skip=known)
    for some in _groups(parts):
        runtime.admit(None)
        outcomes = runtime.append_all(
            [events for _, events in some],
            None,
            [Origin(source, 0, row - 1) for row, _ in some],
            admitted=True,
        )
        for outcome in outcomes:
            if isinstance(outcome, LiveGNNError):
                raise outcome
            assert isinstance(outcome, Appended)
        end, count = some[-1][0], count + sum(len(events) for _, events in some)
        note(Progress("loaded", path, end))
    return end - known, known, count


def _groups(parts: Iterator[tuple[int, Events]]) -> Iterator[list[tuple[int, Events]]]:
    group = []
    for part in parts:
        group.append(part)
        if len(group) == _ENTRIES:
            yield group
            group = []
    if group:
        yield group
