"""The directories that a deployment names, each of which belongs to its log (see docs/deployment.md).

What stands in one, and a mark beside the deployment file, also say that there was a log. Where all of it is
missing, as when a volume is not mounted, a start would begin anew with the graph of the deployment.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from livegnn.errors import FileFormatError, LogError
from livegnn.log.directories import OWNER, Directories, Record, foreign, read_record, write_record
from livegnn.log.location import beside

if TYPE_CHECKING:
    from livegnn.deployment import Deployment

_logger = logging.getLogger(__name__)

_MARK: Final = "-mark"


class _Named(NamedTuple):
    """A directory, and what for."""

    what: str
    path: Path


def own_directories(deployment: "Deployment", directories: Directories) -> None:
    """Makes what `deployment` names its log's, but what it may never write.

    Raises InputError for what is another log's, LogError for what another process holds, OSError.
    """
    if deployment.workers is not None:
        directories.record()  # the log's identity, by which workers know their directory
    for what, path in _written(deployment):
        owned = directories.own(path, what)
        try:
            owned.hold()
        except OSError as error:  # the disk may take it later; then what is written there says it
            _logger.warning("the directory of %s, %s, cannot be written now: %s", what, path, error)
    if deployment.snapshots is not None:
        deployment.snapshots.refuse_foreign(directories)


def refuse_missing(deployment: "Deployment") -> None:
    """Raises LogError if there is no log, and something says that there was one; InputError if a directory is
    another log's, since a log that does not exist has none.
    """
    path = deployment.log.path
    if path is None or os.path.lexists(path) or beside(path, "-mark").exists():  # which the log reads itself
        return
    found = []
    for what, directory in (*_written(deployment), *_other(deployment)):
        record = read_record(directory / OWNER)
        if record is None or directory in found:
            continue
        if record.place != os.path.realpath(path):
            raise foreign(directory, what, str(path), record)
        found.append(directory)
    mark = _mark_of(deployment)
    record = None if mark is None else read_record(mark)
    if mark is not None and record is not None and record.place == _place_of(path, mark.parent):
        found.append(mark)
    if found:
        names = ", ".join(map(str, found))
        raise LogError(
            f"there must be the event log of this deployment at {path}, to which this belongs: {names}; got "
            "no such file: is a volume not mounted, or was it moved? Put it back; or, to begin anew, move "
            f"away {names}"
        )


def write_mark(deployment: "Deployment", directories: Directories) -> None:
    """Notes beside the deployment file that there is a log, and where it is from there."""
    mark, path = _mark_of(deployment), deployment.log.path
    if mark is None or path is None:
        return
    record = Record(directories.record().log, _place_of(path, mark.parent))
    with suppress(OSError):  # a folder that may only be read has none
        try:
            known = read_record(mark)
        except FileFormatError:  # the log is there, so nothing depends on it
            known = None
        if known != record:
            write_record(mark, record)


def _mark_of(deployment: "Deployment") -> Path | None:
    return None if deployment.file is None else beside(deployment.file.absolute(), _MARK)


def _place_of(log: Path, folder: Path) -> str:
    """Where the deployment says that the log is: from its own folder, with which the log may be moved."""
    log = log.absolute()
    return str(log.relative_to(folder) if log.is_relative_to(folder) else log)


def _written(deployment: "Deployment") -> Iterator[_Named]:
    """Those that a start writes to."""
    if deployment.checkpoint is not None:
        yield _Named("checkpoints", deployment.checkpoint.directory)
    if deployment.features is not None:
        yield _Named("features", deployment.features.directory)
    if deployment.engine.state_dir is not None:
        yield _Named("rows", deployment.engine.state_dir)
    if deployment.snapshots is not None and (folder := deployment.snapshots.folder) is not None:
        yield _Named("snapshots", folder)


def _other(deployment: "Deployment") -> Iterator[_Named]:
    """Those that only some requests and processes write to."""
    if deployment.models is not None:
        yield _Named("models", deployment.models.directory)
    if deployment.workers is not None:
        yield _Named("workers", deployment.workers.directory)
