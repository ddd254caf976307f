"""Lines of a process's log on standard error, for people or as JSON: docs/logs.md.

A command that runs long calls `start` before anything else. Other modules log as any library does, with a
logger of their own name; what they give in `extra` are fields of the JSON.
"""

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Final, TextIO, cast

LEVELS: Final = ("debug", "info", "warning", "error")
LEVEL: Final = "LIVEGNN_LOG_LEVEL"
AS_JSON: Final = "LIVEGNN_LOG_JSON"
"""Variables of the environment, from which the processes that a command starts have its settings."""

_OWN: Final = "livegnn"
_STANDARD: Final = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "color_message"}
_logger = logging.getLogger(_OWN)


def start(level: str = "info", *, as_json: bool = False) -> None:
    """Writes all records to standard error from now on, with Python's warnings, and each uncaught exception
    as one record.

    level: the least of LiveGNN's own loggers; those of other packages have "warning", or "error" if that is
    the level, unless it is "debug". A second call replaces the first.
    """
    root, least = logging.getLogger(), logging.getLevelNamesMapping()[level.upper()]
    for handler in root.handlers[:]:
        if isinstance(handler, _StandardError):
            root.removeHandler(handler)
    handler = _StandardError()
    handler.setFormatter(_JsonLines() if as_json else _Lines())
    root.addHandler(handler)
    root.setLevel(least if level == "debug" else max(least, logging.WARNING))
    _logger.setLevel(least)
    os.environ[LEVEL], os.environ[AS_JSON] = level, "1" if as_json else ""
    logging.captureWarnings(True)
    sys.excepthook = _note_uncaught
    threading.excepthook = _note_uncaught_in_thread


def start_as_told(environment: Mapping[str, str]) -> None:
    """The same in a process that a command has started, with its settings; without them, nothing changes."""
    level = environment.get(LEVEL, "")
    if level in LEVELS:
        start(level, as_json=bool(environment.get(AS_JSON)))


def write_failure(message: str) -> bool:
    """Logs why a command ends, if its lines are JSON; False if they are not, so that it must print it."""
    as_json = any(isinstance(it.formatter, _JsonLines) for it in logging.getLogger().handlers)
    if as_json:
        _logger.error("%s", message)
    return as_json


class Seldom:
    """Logs at most one record in some seconds, with the number of those that it stands for.

    Thread safety: any thread may call; of two that call at once, both may log.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = seconds, clock
        self._next, self._count = -float("inf"), 0

    def count(self) -> int:
        """Counts one. Returns the number since the last record if another is due now, else 0."""
        self._count += 1
        now = self._clock()
        if now < self._next:
            return 0
        self._next, count, self._count = now + self._seconds, self._count, 0
        return count


class _StandardError(logging.StreamHandler[TextIO]):
    """Writes to standard error as it is then: a screen of the terminal may stand before it."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:
        return sys.stderr

    @stream.setter
    def stream(self, stream: TextIO) -> None:
        raise AttributeError("it is always standard error")


class _Lines(logging.Formatter):
    """Time, level, logger and text."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (logging's)
        """On one line: nothing that a client sends begins another one."""
        return super().formatMessage(record).replace("\r", "\\r").replace("\n", "\\n")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802 (logging's)
        return _utc(record)


class _JsonLines(logging.Formatter):
    """An object for each record: time, level, logger, message, the fields of `extra`, and a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": _utc(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _STANDARD | line.keys()}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = record.stack_info
        return json.dumps(line, default=str)


def _utc(record: logging.LogRecord) -> str:
    at = datetime.fromtimestamp(record.created, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _note_uncaught(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None, thread: str | None = None
) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
        return
    where = "" if thread is None else f" in the thread {thread}"
    _logger.critical("uncaught %s%s: %s", kind.__name__, where, error, exc_info=(kind, error, trace))


def _note_uncaught_in_thread(given: threading.ExceptHookArgs) -> None:
    if issubclass(given.exc_type, SystemExit):
        return
    thread = None if given.thread is None else given.thread.name
    error = cast("BaseException", given.exc_value)
    _note_uncaught(given.exc_type, error, given.exc_traceback, thread)
