"""The state of logging in this process, which a command that runs here changes."""

import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from livegnn.log_lines import AS_JSON, LEVEL


@contextmanager
def kept_logging() -> Iterator[None]:
    """Puts handlers, levels, hooks and variables back at the end of the block."""
    root, own = logging.getLogger(), logging.getLogger("livegnn")
    handlers, levels = root.handlers[:], (root.level, own.level)
    hooks = sys.excepthook, threading.excepthook
    variables = {name: os.environ.get(name) for name in (LEVEL, AS_JSON)}
    try:
        yield
    finally:
        logging.captureWarnings(False)
        root.handlers[:] = handlers
        root.setLevel(levels[0])
        own.setLevel(levels[1])
        sys.excepthook, threading.excepthook = hooks
        for name, value in variables.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
