"""Why workers cannot exchange rows."""

from livegnn.errors import LiveGNNError


class ChannelError(LiveGNNError):
    """Workers cannot exchange rows. The batch is not applied; subclasses say why."""


class ChannelRefusedError(ChannelError):
    """A worker of another version, model, key or plan. The message says how to make both the same."""


class BatchAborted(ChannelError):
    """A worker has ended a batch for all. Nothing of it is applied; the next one can be exchanged."""


class SlowWorkerError(ChannelError):
    """A worker has not made a round in time; its link works."""


class SlowLinkError(ChannelError):
    """The messages of a round have not arrived in time, though their sender has sent them."""


class DeadLinkError(ChannelError):
    """Nothing is received from a worker: its process, or the network to it, is lost."""
