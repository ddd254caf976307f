"""The errors that LiveGNN raises.

Every message says what was expected, what was given and what to do. An error leaves the state unchanged.
"""

import errno
from typing import TypeVar

_Error = TypeVar("_Error", bound=Exception)

LONGEST_MESSAGE = 2000
"""In characters. A given value may have any length, and messages are written to logs and responses."""


def shortened(message: str) -> str:
    """`message`, with its middle left out if it is longer than `LONGEST_MESSAGE`: its beginning says what was
    expected, its end what to do.
    """
    if len(message) <= LONGEST_MESSAGE:
        return message
    begin, end = LONGEST_MESSAGE // 2, LONGEST_MESSAGE // 2 - 100
    return f"{message[:begin]} [... {len(message) - begin - end:,} characters ...] {message[-end:]}"


class LiveGNNError(Exception):
    """The base class of all errors that LiveGNN raises on purpose."""


class InputError(LiveGNNError, ValueError):
    """A value that cannot be accepted: a wrong shape, a NaN, a negative id, a malformed line.

    Its message has at most 2,000 characters.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(shortened(message))


class TooLargeError(InputError):
    """An input or an answer is larger than the limit. The message says how to send or request it in parts."""


class UnknownNodeError(InputError):
    """An id of a node that is not in the graph, or was removed from it."""


class UnknownEdgeError(InputError):
    """Two ids with no edge between them in the graph."""


class UnknownTypeError(InputError):
    """A node type or an edge type that the graph does not have."""


class ModelError(LiveGNNError):
    """A module that cannot be imported, or a model that does not fit its graph."""


class FileFormatError(LiveGNNError):
    """A file that is corrupt, truncated, or of another kind or version.

    Its message has at most 2,000 characters.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(shortened(message))


class LogError(LiveGNNError):
    """The event log cannot be read or written."""


class SourceError(LiveGNNError):
    """A source of events, such as a topic, cannot be read. Nothing of it is lost or skipped."""


class SnapshotError(LiveGNNError):
    """A snapshot in object storage cannot be written or read. Its subclasses say why."""


class ObjectMissingError(SnapshotError):
    """An object that a snapshot names is not in its store."""


class ObjectDamagedError(SnapshotError):
    """An object is shorter than it was written, or has other bytes."""


class ObjectExistsError(SnapshotError):
    """An object that is written once is there already. Nothing was overwritten."""


class StoreUnavailableError(SnapshotError):
    """A store answers with errors, too slowly or not at all. Requests were repeated for a limited time."""


class SnapshotReplacedError(SnapshotError):
    """A newer snapshot has replaced this one, whose objects were collected. Ask the newest one."""


class WorkersFailed(LiveGNNError):
    """Workers of a function crashed that had a request, or do not start. Another attempt may find one."""


class DiskFullError(LogError):
    """There is no space to store the data. Nothing was stored; it works again when there is space."""


class LogBusyError(LogError):
    """Another program holds the lock for writing to the log. Nothing was stored; it works when it lets go."""


class LogMovedError(LogError):
    """A file of the log is not where it was opened. Nothing was stored; it works when it is put back."""


class ViewMissingError(LiveGNNError):
    """A view is being built, for the first time or because it failed. It can be read when that is done."""


class TimeoutExpired(LiveGNNError):
    """A sequence number was not reached within the time that the caller waited."""


class WorkerUnavailableError(LiveGNNError):
    """No replica of a serving worker answers. It works again when one of them does."""


class OverloadedError(LiveGNNError):
    """More events wait than may. Nothing was stored; it works again when some of them are applied.

    retry_after: the seconds that this takes, as far as is known.
    """

    def __init__(self, message: str = "", *, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


def as_value(error: _Error) -> _Error:
    """The error as a value, without the frames of its traceback and of the error before it.

    Frames hold their callers, so a caller that holds the error would be in a cycle with all it works on.
    """
    error.__context__ = None
    return error.with_traceback(None)


def is_disk_full(error: BaseException) -> bool:
    """Whether an error means that there is no space left, or that the user's share of it is used up."""
    no_space = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    return no_space or isinstance(error, DiskFullError)


def may_pass(error: BaseException) -> bool:
    """Whether what failed can work later with nothing changed here: no space is left, a lock is held, or a
    file was moved away.
    """
    return is_disk_full(error) or isinstance(error, (LogBusyError, LogMovedError))
