"""What can go wrong.

Every error says what was expected, what came and what to do, and leaves the state as it was.
"""

LONGEST_MESSAGE = 2000
"""In characters: what came may be of any length, and messages go into logs and answers."""


def shortened(message: str) -> str:
    """`message` without its middle where it is longer than `LONGEST_MESSAGE`: what was expected stands at its
    beginning, what to do at its end.
    """
    if len(message) <= LONGEST_MESSAGE:
        return message
    begin, end = LONGEST_MESSAGE // 2, LONGEST_MESSAGE // 2 - 100
    return f"{message[:begin]} [... {len(message) - begin - end:,} characters ...] {message[-end:]}"


class LiveGNNError(Exception):
    """The root of all errors that LiveGNN raises on purpose."""


class InputError(LiveGNNError, ValueError):
    """A value that cannot be accepted: a wrong shape, a NaN, a negative id, a malformed line.

    Its message has at most 2,000 characters.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(shortened(message))


class UnknownNodeError(InputError):
    """An id that names no node of the graph, or a node that was removed."""


class UnknownEdgeError(InputError):
    """Two ids between which the graph has no edge."""


class UnknownTypeError(InputError):
    """A node type or an edge type that the graph does not have."""


class ModelError(LiveGNNError):
    """A module that cannot be imported, or a model that does not fit its graph."""


class FileFormatError(LiveGNNError):
    """A file that is corrupt, truncated, or of another kind or version. Its message is cut as well."""

    def __init__(self, message: str = "") -> None:
        super().__init__(shortened(message))


class LogError(LiveGNNError):
    """The event log cannot be read or written."""


class TimeoutExpired(LiveGNNError):
    """A caller waited for a sequence number that was not reached in time."""
