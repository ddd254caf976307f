"""A part that does not answer any more, as an error."""

from typing import Final

from livegnn.channels.errors import ChannelError, DeadLinkError, SlowLinkError, SlowWorkerError
from livegnn.errors import WorkerUnavailableError

_INSTEAD: Final = {
    DeadLinkError: "nothing: its process, or the network to it, is lost",
    SlowLinkError: "no answer in time: the network to it is slow",
    SlowWorkerError: "no answer in time, though its process runs",
}
"""The errors of a channel count its ends, not the parts: each leader has a channel to each part."""


def describe_loss(error: ChannelError) -> str:
    """Says why there is no answer of a part, by the error of the channel to it."""
    return _INSTEAD.get(type(error), str(error))


def part_lost(part: int, got: object) -> WorkerUnavailableError:
    """The error for a lost part. got: instead of an answer."""
    return WorkerUnavailableError(
        f"part {part} must answer, got {got}: a server replaces it by itself; else start all parts again"
    )
