"""Directories that belong to a log: only processes that follow this log may write or remove files there.

    log, bound to its identity       directory/livegnn-owner.json: the same identity
                                     directory/livegnn-lock: held while the log is open

An identity is drawn, and stored in the log and in the directory: both may be moved, together or not, or
restored from a copy, and still know each other. The lock distinguishes two copies of one log. Thread safety:
everything may be called from any thread.
"""

import json
import logging
import os
import secrets
import threading
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import livegnn._core as _core
from livegnn.atomic_file import replace_file
from livegnn.errors import FileFormatError, InputError, LiveGNNError, LogError
from livegnn.log.location import Owner
from livegnn.types import JSON

_logger = logging.getLogger(__name__)

OWNER: Final = "livegnn-owner.json"
LOCK: Final = "livegnn-lock"
IDENTITY: Final = "log/identity"
_VERSION: Final = 1


class Record(NamedTuple):
    """The log that a directory belongs to: its identity, and its place at that time, for messages."""

    log: str
    place: str


class _Bound(Protocol):
    """The interface of a log that is only read."""

    def bound(self) -> Mapping[str, str]: ...


class _Binding(_Bound, Protocol):
    """The interface of a log that may write to its directories."""

    def bind(self, properties: Mapping[str, str]) -> None: ...


def identity_of(log: _Bound) -> str | None:
    """The identity of a log; None if no directory belongs to it yet."""
    return log.bound().get(IDENTITY)


def read_record(path: Path) -> Record | None:
    """The record of `write_record`, None if there is no file. Raises FileFormatError, OSError."""
    try:
        return parse_record(path.read_bytes(), str(path))
    except (FileNotFoundError, NotADirectoryError):
        return None


def parse_record(data: bytes, path: str) -> Record:
    """Restores the record of `to_bytes`. path: of its file, for messages. Raises FileFormatError for anything
    else."""
    try:
        content = json.loads(data)
        if not isinstance(content, dict):
            raise TypeError(f"an object, got {content!r:.40}")
        crc32, version = content.pop("crc32"), content["version"]
        if version != _VERSION:
            raise FileFormatError(
                f"{path} must be of version {_VERSION}, got {version!r:.40}: update livegnn"
            )
        if crc32 != _checksum(content):
            raise ValueError("its checksum does not fit")
        return Record(str(content["log"]), str(content["place"]))
    except FileFormatError:
        raise
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise FileFormatError(
            f"{path} must say to which log this belongs, as livegnn wrote it, got something else: {error}. "
            "Put it back; or, if no other log needs what is there, remove it"
        ) from error


def to_bytes(record: Record) -> bytes:
    """The content of a file that `read_record` reads."""
    content: dict[str, JSON] = {"version": _VERSION, "log": record.log, "place": record.place}
    return json.dumps({**content, "crc32": _checksum(content)}).encode()


def write_record(path: Path, record: Record) -> None:
    """Writes a file that `read_record` reads. Raises OSError."""
    with replace_file(path, private=True) as file:
        file.write(to_bytes(record))


def foreign(directory: Path, what: str, place: str, theirs: Record) -> InputError:
    """The error for a directory that the log at `place` needs for `what`, and that says `theirs`."""
    return InputError(
        f"{directory} must be a directory of this log, {place}, for its {what}, got one of another log, "
        f"{where_it_was(theirs, place)}: name another directory; or, if neither that log nor a file there "
        f"is needed, remove {directory / OWNER}"
    )


def where_it_was(theirs: Record, place: str) -> str:
    """The place of another log than the one at `place`, in words."""
    if theirs.place == place:
        return "which was there before this one: put that one back, if the two were swapped or moved"
    return f"which was at {theirs.place}"


def share(directory: Path, what: str, place: str, identity: str | None) -> None:
    """Makes a directory that several processes write to, and so without a lock, one of the log at `place`.

    identity: of that log; without one the directory gets no owner. Raises InputError if it is another log's,
    OSError.
    """
    theirs = read_record(directory / OWNER)
    if theirs is not None and theirs.log != identity:
        raise foreign(directory, what, place, theirs)
    if theirs is None and identity is not None:
        write_record(directory / OWNER, Record(identity, place))


class OwnedDirectory:
    """A directory of `directories`, which says its path as `what`, such as "checkpoints"."""

    def __init__(self, directories: "Directories", directory: Path, what: str) -> None:
        self.directory = directory
        self._directories, self._what = directories, what
        self._lock: Owner | None = None

    def hold(self) -> None:
        """Returns when the directory, which is made when it is missing, is the log's, and its lock is held.

        It may be called at any time: a removed directory is made again. Raises InputError if it belongs to
        another log, LogError if another process holds it, or if the log was closed; OSError.
        """
        _core.holding(self._directories.changing, self._hold)

    def _hold(self) -> None:
        if self._directories.released:
            raise LogError(f"the log at {self._directories.place} must be open, got one that is closed")
        self._refuse_foreign()
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        held = self._lock
        if held is None or not held.is_at(self.directory / LOCK):
            held = Owner(self.directory / LOCK, f"the directory of {self._what} {self.directory}")
        try:
            if self._refuse_foreign() is None:  # no other process writes it now
                for left in self.directory.glob(f"{OWNER}.*.partial"):
                    left.unlink(missing_ok=True)
                write_record(self.directory / OWNER, self._directories.record())
        except BaseException:
            if held is not self._lock:
                held.release()
            raise
        if held is not self._lock:
            self.release()
            self._lock = held

    def is_known(self) -> bool:
        """Whether a file of this log, or of another, is there. Raises as `hold` for another."""
        return self._refuse_foreign() is not None

    def is_lost(self) -> bool:
        """Whether the directory, or its lock, was removed or replaced since it was held."""
        return self._lock is not None and not self._lock.is_at(self.directory / LOCK)

    def release(self) -> None:
        """Lets another process hold it; again does nothing."""
        if self._lock is not None:
            self._lock.release()
        self._lock = None

    def _refuse_foreign(self) -> Record | None:
        """The record in the directory; raises InputError if it belongs to another log."""
        theirs = read_record(self.directory / OWNER)
        if theirs is not None and theirs.log != self._directories.identity:
            raise foreign(self.directory, self._what, self._directories.place, theirs)
        return theirs


class Directories:
    """The directories of `log`, which is at `place`, and their locks, until `release`."""

    def __init__(self, log: _Binding, place: str) -> None:
        self.place = place
        self.changing = threading.RLock()
        self.released = False
        self._log = log
        self._identity: str | None = None
        self._owned: dict[str, OwnedDirectory] = {}

    @property
    def identity(self) -> str | None:
        """The identity of the log; None if it has none yet."""
        if self._identity is None:
            self._identity = identity_of(self._log)
        return self._identity

    def record(self) -> Record:
        """The record for the directories of the log, which gets its identity now if it has none.

        Raises LogError.
        """
        identity = _core.holding(self.changing, self._identify)
        if identity is None:
            raise LogError(f"the log at {self.place} must keep what it is bound to, got nothing back")
        return Record(identity, self.place)

    def _identify(self) -> str | None:
        if self.identity is None:
            self._log.bind({IDENTITY: secrets.token_hex(16)})
        return self.identity

    def own(self, directory: Path, what: str) -> OwnedDirectory:
        """A directory for `what`, which `hold` then makes the log's; the same object for the same place."""
        return self._owned.setdefault(os.path.realpath(directory), OwnedDirectory(self, directory, what))

    def hold_again(self) -> str | None:
        """Makes removed or replaced directories again; returns why that fails, None if it does not."""
        for owned in list(self._owned.values()):
            try:
                if self.released or not owned.is_lost():
                    continue
                owned.hold()
            except (OSError, LiveGNNError) as error:
                return f"{owned.directory} was removed or replaced, and cannot be held again: {error}"
            _logger.warning("%s was removed or replaced, and is this log's again", owned.directory)
        return None

    def release(self) -> None:
        """Lets other processes hold all of them; again does nothing."""
        _core.holding(self.changing, self._release)

    def _release(self) -> None:
        self.released = True
        for owned in list(self._owned.values()):
            owned.release()


def _checksum(content: Mapping[str, JSON]) -> int:
    return zlib.crc32(json.dumps(content, sort_keys=True, separators=(",", ":")).encode())
