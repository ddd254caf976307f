"""Consumers of a log: processes that follow it under a name of their own, and their positions.

The position of a consumer is a file of one line in a folder beside the log, `events.db-consumers/NAME`, as
the mark's: a sequence number and its CRC-32. Only the consumer writes it, in place, and holds a lock on it
meanwhile. It is not flushed: it survives the death of the process, and after a loss of power it may be older.
A trim of the log flushes it first, so that no position falls behind the beginning of the log.
"""

import fcntl
import os
import re
import zlib
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Final

import livegnn._core as _core
from livegnn.arguments import check_int
from livegnn.errors import InputError, LogError
from livegnn.interrupts import at_once
from livegnn.log import Batch, Tail
from livegnn.log.arguments import LARGEST_SEQ
from livegnn.log.location import beside, is_at

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
# A sequence number, and the CRC-32 of its digits.
_LINE: Final = re.compile(rb"([0-9]{20}) ([0-9a-f]{8})\n")
_TRIES: Final = 5  # to read a line that may be written meanwhile


def to_line(seq: int) -> bytes:
    """A sequence number as a line that shows whether it was read as it was written; always of one length."""
    digits = b"%020d" % seq
    return b"%b %08x\n" % (digits, zlib.crc32(digits))


def from_line(line: bytes) -> int | None:
    """The number that `to_line` made a line of, None if it was not."""
    found = _LINE.fullmatch(line)
    return int(found[1]) if found is not None and zlib.crc32(found[1]) == int(found[2], 16) else None


def folder_of(log: Path) -> Path:
    """The folder in which the consumers of the log at `log` keep their positions."""
    return beside(Path(os.path.realpath(log)), "-consumers")


def check_name(name: object, what: str = "a consumer") -> str:
    """Raises InputError for a text that cannot be a name of `what`."""
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise InputError(
            f"the name of {what} must be 1 to 64 letters, digits, '.', '_' and '-' that begin with a "
            f"letter or a digit, got {name!r:.80}"
        )
    return name


def read_positions(log: Path, *, flush: bool = False) -> Mapping[str, int]:
    """The position of each consumer of the log at `log`, by name.

    flush: makes them durable first. Raises LogError for one that is not as it was written, OSError.
    """
    try:
        names = sorted(path.name for path in folder_of(log).iterdir() if _NAME.fullmatch(path.name))
    except FileNotFoundError:
        return {}
    positions = {}
    for name in names:
        try:
            file = os.open(folder_of(log) / name, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:  # forgotten meanwhile
            continue
        try:
            if flush:
                os.fsync(file)
            position = _read(file, folder_of(log) / name)
        finally:
            os.close(file)
        if position is not None:
            positions[name] = position
    return positions


def forget(log: Path, name: str) -> None:
    """Removes the position of a consumer, so that nothing of the log is kept for it.

    Raises InputError if there is none of this name, LogError while it runs, OSError.
    """
    path = folder_of(log) / check_name(name)
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        known = ", ".join(read_positions(log)) or "none"
        raise InputError(
            f"expected the name of a consumer of {log}, got {name!r}: there are {known}"
        ) from None
    try:
        _lock(file, path)
        path.unlink()
    finally:
        os.close(file)


class Position:
    """The position of the consumer `name`, which this process holds until `close`. Thread safety: none.

    seq: the last event that it has committed; None if the name is new. Raises LogError if another process, or
    another consumer of this one, has the name, or if the position is not as it was written; OSError.
    """

    def __init__(self, log: Path, name: str) -> None:
        self._path = folder_of(log) / check_name(name)
        self._open()
        try:
            self.seq = _read(self._file, self._path)
        except BaseException:
            self.close()
            raise

    def register(self, seq: int) -> None:
        """Writes a position durably: it is there when the events before it are trimmed."""
        self.write(seq)
        os.fsync(self._file)
        for folder in (self._path.parent, self._path.parent.parent):
            descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def write(self, seq: int) -> None:
        """Writes a position, which survives the death of the process."""
        _core.settled(self._write, self._look, seq)

    def _open(self) -> None:
        self._path.parent.mkdir(mode=0o700, exist_ok=True)
        self._file = _open(self._path)

    def _write(self, seq: int) -> None:
        if not is_at(self._file, self._path):  # it was removed: entries that are needed may be trimmed
            self.close()
            self._open()
        os.pwrite(self._file, to_line(seq), 0)
        self.seq = seq

    def _look(self) -> None:
        """Reads the position in the file: an interrupt may have prevented that it was noted."""
        self.seq = _read(self._file, self._path)

    def close(self) -> None:
        """Lets another process take the name; again does nothing."""
        if self._file >= 0:
            at_once(partial(os.close, self._file), partial(setattr, self, "_file", -1))


class ConsumerTail(Tail):
    """A tail whose position is that of a consumer with a name: it survives the death of the process.

    A loss of power may take a part of it back: then entries are read again.
    """

    _position: Position

    @property
    def position(self) -> int:
        assert self._position.seq is not None
        return self._position.seq

    def _is_end(self, seq: int) -> bool:
        """Whether an event after `position` is the last one of an acknowledged entry."""
        raise NotImplementedError

    def commit(self, seq: int) -> None:
        seq = check_int(seq, "seq", 0, LARGEST_SEQ)
        if seq == self.position:
            return
        if seq < self.position or not self._is_end(seq):
            raise InputError(
                f"expected the number of an acknowledged entry after {self.position}, the present position, "
                f"got {seq}"
            )
        try:
            self._position.write(seq)
        except OSError as error:
            raise LogError(f"cannot note the position {seq} in {self.name}: {error}") from error


def check_most(max_events: int | None) -> int:
    """The number of requested events, one at least. Raises InputError for other values."""
    return LARGEST_SEQ if max_events is None else max(1, check_int(max_events, "max_events", 0, LARGEST_SEQ))


def select_fitting(batches: Sequence[Batch], most: int) -> Sequence[Batch]:
    """The first of some batches, as many as fit into `most` events, at least one."""
    sizes = accumulate(batch.seq - batch.after for batch in batches)
    return batches[: max(1, sum(size <= most for size in sizes))]


def _open(path: Path) -> int:
    """The file at `path`, made when it is missing, with its lock."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _lock(file, path)
        except BaseException:
            os.close(file)
            raise
        if os.fstat(file).st_nlink:
            return file
        os.close(file)  # it was forgotten between the two lines above


def _lock(file: int, path: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise LogError(
            f"a consumer must have its name for itself, got {path.name!r}, under which one runs: stop it, or "
            f"take another name ({path})"
        ) from None


def _read(file: int, path: Path) -> int | None:
    """The number in a file, None if it has none yet."""
    for _ in range(_TRIES):
        line = os.pread(file, len(to_line(0)) + 1, 0)
        if not line:
            return None
        if (seq := from_line(line)) is not None:
            return seq
    raise LogError(
        f"{path} must hold a sequence number and its checksum, got {line!r}: it is damaged. Forget the "
        f"consumer and start it again: livegnn log consumers FILE --forget {path.name}; where the log lies "
        "in Kafka, remove the file"
    )
