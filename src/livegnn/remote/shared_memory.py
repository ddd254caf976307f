"""Memory that the workers of one machine share, and the locks that guard it.

    words    0: `changing`   1-4: what it shows   8-: states of tables   512-: room of each worker
    0        64 KB                                                                   size
    | words  | columns: what the owner of the memory lays out                        |

It is a file without a name (memfd), so nothing is left of it when the last process that has it open ends,
however it ends. Most of it is never written, and takes nothing.

Locks are those of the kernel on ranges of the file, held by an open file of one worker: they end with it,
however it ends. Byte 0 guards all of the memory: shared to read, exclusive to change. Byte 1 + i says that
worker i lives. A worker that changes the memory marks that before and after: a mark that is found means that
a worker was killed in between, and the contents must not be used.

Thread safety: a `SharedMemory` belongs to one thread; those of several threads and processes exclude each
other by the locks. `rooms` of a worker is written by that worker alone, and read by all.
"""

import contextlib
import errno
import fcntl
import mmap
import os
import struct
import threading
import time
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np

from livegnn.backoff import Backoff
from livegnn.types import IntArray

if TYPE_CHECKING:
    from jaxtyping import Int64, UInt8
    from numpy.typing import NDArray

MOST_WORKERS: Final = 512
"""That can have it open at once."""

HEAD: Final = 64 << 10
"""Bytes before the columns."""

PATIENCE: Final = 0.5
"""Seconds to wait for a lock. A worker that holds one needs milliseconds, or was stopped."""

_CHANGING, _SHOWN, _STATES, _ROOMS = 0, slice(1, 5), 8, 512
_PAUSES = Backoff(50e-6, 2e-3)
_DESPAIR = 10.0  # seconds in which a worker that has waited in vain does not wait again
_FLOCK = "@hhqqi0q"  # type, whence, start, length, process: `struct flock`


class MemoryFile:
    """The file, as the process has it that gives it to workers. Any thread may call.

    size: bytes, of which those that are written take memory; by default more than the machine has. Raises
    OSError where there is no such file, or where it cannot be mapped."""

    def __init__(self, size: int | None = None) -> None:
        if not hasattr(os, "memfd_create"):
            raise OSError(errno.ENOSYS, "this system has no files without a name")
        if size is None:
            size = 4 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self.size, self._lock = size, threading.Lock()
        self.fd = os.memfd_create("livegnn-features")
        try:
            os.ftruncate(self.fd, size)
            mmap.mmap(self.fd, size).close()
            self._own = os.open(f"/proc/self/fd/{self.fd}", os.O_RDWR)
        except (OSError, ValueError):
            os.close(self.fd)
            raise

    def release_of_ended(self) -> None:
        """Forgets what workers have left that have ended. When none lives, gives all memory back."""
        lives = False
        with self._lock, _locked(self._own, fcntl.F_WRLCK, PATIENCE) as held:
            if not held:
                return
            with mmap.mmap(self._own, HEAD) as mapped:
                for worker in range(MOST_WORKERS):
                    if _is_held(self._own, 1 + worker):
                        lives = True
                    else:
                        at = 8 * (_ROOMS + worker)
                        mapped[at : at + 8] = bytes(8)
            if not lives:
                os.ftruncate(self._own, 0)
                os.ftruncate(self._own, self.size)

    @property
    def bytes(self) -> int:
        """The memory that it takes."""
        return os.fstat(self._own).st_blocks * 512

    def close(self) -> None:
        """Workers keep what they have of it."""
        with self._lock:
            os.close(self.fd)
            os.close(self._own)


class SharedMemory:
    """One worker's way to the memory of a file descriptor, which stays the caller's. Raises OSError if it
    cannot be mapped, or if there are `MOST_WORKERS` workers."""

    def __init__(self, fd: int) -> None:
        # An open file of its own, because locks belong to open files.
        self._fd = os.open(f"/proc/self/fd/{fd}", os.O_RDWR)
        self._hopeful_at = 0.0
        try:
            with _locked(self._fd, fcntl.F_WRLCK, PATIENCE) as held:  # the file may be emptied without it
                self.size = os.fstat(self._fd).st_size
                self.map = mmap.mmap(self._fd, self.size)
                self._words: IntArray = np.ndarray(HEAD // 8, np.int64, self.map)
                self._worker = self._take_number() if held else -1
            if self._worker < 0:
                raise OSError(errno.EAGAIN, f"more than {MOST_WORKERS} workers, or one that holds the lock")
        except (OSError, ValueError):
            os.close(self._fd)
            raise

    def _take_number(self) -> int:
        """The first free number; -1 if there is none."""
        for worker in range(MOST_WORKERS):
            if _try_lock(self._fd, fcntl.F_WRLCK, 1 + worker):
                self._words[_ROOMS + worker] = 0
                return worker
        return -1

    @property
    def shown(self) -> bytes:
        """The contents of the memory, as the owner has named them."""
        return self._words[_SHOWN].tobytes()

    @property
    def columns(self) -> "UInt8[NDArray[np.uint8], 'bytes']":
        """All that lies behind the words."""
        return np.ndarray(self.size - HEAD, np.uint8, self.map, HEAD)

    def states(self, count: int) -> "Int64[IntArray, 'count']":
        """Numbers of tables. Raises OSError for more than there is space for."""
        if _STATES + count > _ROOMS:
            raise OSError(errno.ENOSPC, f"no space for the state of tables, which is {count} numbers")
        return self._words[_STATES : _STATES + count]

    def leave(self, room: int) -> None:
        """Sets the number of bytes that this worker leaves to the shared memory."""
        self._words[_ROOMS + self._worker] = room

    @property
    def left_by_others(self) -> int:
        """Bytes that all other workers leave."""
        rooms = self._words[_ROOMS : _ROOMS + MOST_WORKERS]
        return int(rooms.sum()) - int(rooms[self._worker])

    @contextlib.contextmanager
    def reading(self) -> Iterator[bool]:
        """While it is open no worker changes the memory. Returns whether that is so, and the contents are
        whole."""
        with self._guarded(fcntl.F_RDLCK) as held:
            yield held and not self._words[_CHANGING]

    @contextlib.contextmanager
    def changing(self) -> Iterator[bool]:
        """While it is open no other worker reads or changes the memory. Returns whether that is so. An
        unfinished change of another worker is removed first; a change that the caller leaves with an
        exception is removed by the next one."""
        with self._guarded(fcntl.F_WRLCK) as held:
            if held:
                if self._words[_CHANGING]:
                    self._clear()
                self._words[_CHANGING] = 1
            yield held
            if held:
                self._words[_CHANGING] = 0

    @contextlib.contextmanager
    def _guarded(self, kind: int) -> Iterator[bool]:
        """Holds the lock, if it is free in time; a worker that has waited in vain does not wait again for a
        while."""
        hopeful = time.monotonic() >= self._hopeful_at
        with _locked(self._fd, kind, PATIENCE if hopeful else 0.0) as held:
            if hopeful and not held:
                self._hopeful_at = time.monotonic() + _DESPAIR
            yield held

    def restart(self, shown: bytes) -> None:
        """Removes all that is there, and says what will be there: 32 bytes. Requires: `changing` is open."""
        self._clear()
        self._words[_SHOWN] = np.frombuffer(shown, np.int64)

    def _clear(self) -> None:
        self.map.madvise(mmap.MADV_REMOVE, HEAD, self.size - HEAD)
        self._words[_STATES:_ROOMS] = 0

    def close(self) -> None:
        """Leaves nothing to the others. They go on."""
        if self._fd >= 0:
            self.leave(0)
            _unlock(self._fd, 1 + self._worker)  # the mapping holds the open file, too
            os.close(self._fd)
            self._fd = -1


@contextlib.contextmanager
def _locked(fd: int, kind: int, patience: float) -> Iterator[bool]:
    """Holds the lock on all, if it is free within this number of seconds; returns whether it was."""
    pauses, waited = _PAUSES.pauses(), 0.0
    while not (held := _try_lock(fd, kind, 0)) and waited < patience:
        pause = next(pauses)
        time.sleep(pause)
        waited += pause
    try:
        yield held
    finally:
        if held:
            _unlock(fd, 0)


def _try_lock(fd: int, kind: int, at: int) -> bool:
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _range(kind, at))
    except BlockingIOError:
        return False
    return True


def _unlock(fd: int, at: int) -> None:
    fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _range(fcntl.F_UNLCK, at))


def _is_held(fd: int, at: int) -> bool:
    """Whether another open file holds a lock there."""
    found = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, _range(fcntl.F_WRLCK, at))
    return bool(struct.unpack(_FLOCK, found)[0] != fcntl.F_UNLCK)


@lru_cache(maxsize=8)
def _range(kind: int, at: int) -> bytes:
    """One byte of a file, as `struct flock`."""
    return struct.pack(_FLOCK, kind, os.SEEK_SET, at, 1, 0)
