"""Writes files atomically: a reader finds either the old content or the new, never a part of it.

The content is written to a temporary file in the same directory, flushed to the disk and renamed. A crash
leaves the old file, and perhaps `NAME.*.partial` beside it.
"""

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from livegnn.errors import InputError

_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
}


def check_replaceable(path: Path) -> int | None:
    """The permissions of the file at `path`, None if there is none. Follows links. Raises `InputError` if
    `path` is not a regular file, because a rename would replace it by one.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(mode):
        raise InputError(
            f"{path} must be a regular file, or a name that is free, got {name_kind(mode)}: nothing was "
            "written, name a file"
        )
    return stat.S_IMODE(mode)


def check_writable(path: Path) -> None:
    """Raises as `replace_file` does if a file cannot be made at `path`, which takes long to compute."""
    check_replaceable(path)
    partial = name_partial(path)
    with _naming(path, partial):
        os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        partial.unlink()


def name_kind(mode: int) -> str:
    """Names the kind of a file that is not a regular one, for messages. mode: as `os.stat` has it."""
    return _KINDS.get(stat.S_IFMT(mode), "something else")


@contextmanager
def replace_file(path: Path, *, private: bool = False) -> Iterator[BinaryIO]:
    """A stream whose content becomes the file at `path` when the block ends; if it raises, nothing changes.

    If `path` is a symbolic link, the link stays and its target is replaced. An existing file keeps its
    permissions; a new one that is private is for its owner alone. Raises `InputError` as `check_replaceable`
    does, and `OSError` if writing fails.
    """
    partial = name_partial(path)
    with write_partial(partial, path, private=private) as stream:
        yield stream
    put_in_place(partial, path)


def name_partial(path: Path) -> Path:
    """A new name beside the file at `path`, for its next content."""
    return Path(f"{os.path.realpath(path)}.{secrets.token_hex(4)}.partial")


@contextmanager
def write_partial(partial: Path, path: Path, *, private: bool = False) -> Iterator[BinaryIO]:
    """A stream into a new file at `partial`, which is on the disk when the block ends, and removed if it
    raises. `put_in_place` then makes it the file at `path`; another process may do that.

    private, and errors: as of `replace_file`.
    """
    permissions = check_replaceable(path)
    with _naming(path, partial):
        mode = 0o600 if private else 0o666
        handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            # It does not own the handle: an interrupt before `with` would leave both to the collector.
            with open(handle, "wb", closefd=False) as stream:
                if permissions is not None:
                    os.fchmod(handle, permissions)
                yield stream
                stream.flush()
                os.fsync(handle)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        finally:
            os.close(handle)


def put_in_place(partial: Path, path: Path) -> None:
    """Makes what `write_partial` wrote the file at `path`, durably; if that fails, removes it and raises."""
    target = Path(os.path.realpath(path))
    with _naming(path, partial):
        try:
            os.replace(partial, target)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        sync_directory(target.parent)


@contextmanager
def _naming(path: Path, partial: Path) -> Iterator[None]:
    """Errors of the system, with the path that the caller gave in place of the one beside it."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename not in (None, str(partial), partial):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None


def sync_directory(directory: Path) -> None:
    """Flushes a directory, so that a rename survives a power loss; does nothing if it may not be read."""
    with contextlib.suppress(PermissionError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
