"""What can go wrong.

Every error says what was expected, what came and what to do, and leaves the state as it was.
"""


class LiveGNNError(Exception):
    """The root of all errors that LiveGNN raises on purpose."""


class InputError(LiveGNNError, ValueError):
    """A value that cannot be accepted: a wrong shape, a NaN, a negative id, a malformed line."""


class UnknownNodeError(InputError):
    """An id that names no node of the graph, or a node that was removed."""


class UnknownEdgeError(InputError):
    """Two ids between which the graph has no edge."""


class UnknownTypeError(InputError):
    """A node type or an edge type that the graph does not have."""


class ModelError(LiveGNNError):
    """A module that cannot be imported, or a model that does not fit its graph."""


class FileFormatError(LiveGNNError):
    """A file that is corrupt, truncated, or of another kind or version."""


class LogError(LiveGNNError):
    """The event log cannot be read or written."""


class TimeoutExpired(LiveGNNError):
    """A caller waited for a sequence number that was not reached in time."""
