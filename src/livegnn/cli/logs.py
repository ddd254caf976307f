"""The options of commands that run long for their log: docs/logs.md."""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer

import livegnn.log_lines as log_lines
from livegnn.errors import LiveGNNError

if TYPE_CHECKING:
    from livegnn.readiness import Readiness

_LOOK_SECONDS: Final = 1.0


class Level(StrEnum):
    """The least level of the lines of a log."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


LogLevel = Annotated[
    Level, typer.Option(envvar=log_lines.LEVEL, help="least level of the lines of the log: docs/logs.md")
]
LogJson = Annotated[
    bool, typer.Option("--log-json", envvar=log_lines.AS_JSON, help="write the log as JSON, an object a line")
]


def start_log(level: Level, as_json: bool) -> logging.Logger:
    """Begins the log of a command; returns the logger for its own lines."""
    log_lines.start(level, as_json=as_json)
    return logging.getLogger("livegnn.cli")


def log_first_readiness(logger: logging.Logger, find_readiness: "Callable[[], Readiness]") -> None:
    """Logs that a process is ready when it is for the first time, and before, once, why it is not. It looks
    from a thread of its own, once a second."""
    began = time.monotonic()

    def follow() -> None:
        with suppress(LiveGNNError, OSError):  # the process stops, and its log is closed
            look()

    def look() -> None:
        shown = False
        while not (readiness := find_readiness()).ready:
            if not shown:
                reasons = dict(readiness.reasons)
                said = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
                logger.info("not ready yet: %s", said, extra={"reasons": reasons})
                shown = True
            time.sleep(_LOOK_SECONDS)
        seconds = time.monotonic() - began
        logger.info("ready, %.1f s after it began to listen", seconds, extra={"seconds": seconds})

    threading.Thread(target=follow, name="livegnn-readiness", daemon=True).start()
