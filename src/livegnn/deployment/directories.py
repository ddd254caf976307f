"""The directories that a deployment names, each of which belongs to its log (see docs/deployment.md).

The files in one, and a mark beside the deployment file, also show that there was a log. If all of them are
missing, as when a volume is not mounted, a start would begin again with the graph of the deployment.
"""

import logging
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from livegnn.errors import FileFormatError, LogError
from livegnn.log.directories import OWNER, Directories, Record, foreign, read_record, write_record
from livegnn.log.location import beside

_logger = logging.getLogger(__name__)

_MARK: Final = "-mark"


class Named(NamedTuple):
    """A directory that a deployment names, and what for."""

    what: str
    path: Path


def own_directories(named: Iterable[Named], directories: Directories) -> None:
    """Makes directories their log's.

    Raises InputError for a directory of another log, LogError for one that another process holds, OSError.
    """
    for what, path in named:
        owned = directories.own(path, what)
        try:
            owned.hold()
        except OSError as error:  # the disk may take it later; then what is written there says it
            _logger.warning("the directory of %s, %s, cannot be written now: %s", what, path, error)


def refuse_missing(log: Path, named: Iterable[Named], file: Path | None) -> None:
    """Raises LogError if there is no log, and something says that there was one; InputError if a directory is
    another log's, since a log that does not exist has none. file: the deployment's, beside which a mark is.
    """
    if os.path.lexists(log) or beside(log, "-mark").exists():  # the log reads the mark itself
        return
    found = []
    for what, directory in named:
        record = read_record(directory / OWNER)
        if record is None or directory in found:
            continue
        if record.place != os.path.realpath(log):
            raise foreign(directory, what, str(log), record)
        found.append(directory)
    mark = None if file is None else mark_of(file)
    record = None if mark is None else read_record(mark)
    if mark is not None and record is not None and record.place == _place_of(log, mark.parent):
        found.append(mark)
    if found:
        names = ", ".join(map(str, found))
        raise LogError(
            f"there must be the event log of this deployment at {log}, to which this belongs: {names}; got "
            "no such file: is a volume not mounted, or was it moved? Put it back; or, to begin again, move "
            f"away {names}"
        )


def write_mark(log: Path, file: Path, directories: Directories) -> None:
    """Notes beside the deployment's file that there is a log, and where it is from there."""
    mark = mark_of(file)
    record = Record(directories.record().log, _place_of(log, mark.parent))
    with suppress(OSError):  # a folder that may only be read has none
        try:
            known = read_record(mark)
        except FileFormatError:  # the log is there, so nothing depends on it
            known = None
        if known != record:
            write_record(mark, record)


def mark_of(file: Path) -> Path:
    """The path of the mark of the deployment in this file."""
    return beside(file.absolute(), _MARK)


def _place_of(log: Path, folder: Path) -> str:
    """The path of the log from the deployment's own folder, with which the log may be moved."""
    log = log.absolute()
    return str(log.relative_to(folder) if log.is_relative_to(folder) else log)
