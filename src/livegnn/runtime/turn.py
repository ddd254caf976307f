"""One batch of the log while the loop applies it, so that an interrupted one can be finished."""

from collections.abc import Sequence

from livegnn.events import Events
from livegnn.graph import Transaction
from livegnn.log import Batch, Rejection


class Turn:
    """The entries that end at `ends`, as one batch. events: of the entries that are not in `rejections`.

    began: the time, on the loop's clock. records: whether the log may have its boundaries. recorded: whether
    it is known to have them. transaction: the last attempt to apply it. counted, woken: the steps done since
    it is visible.
    """

    __slots__ = (
        "batch",
        "began",
        "counted",
        "ends",
        "events",
        "recorded",
        "records",
        "rejections",
        "transaction",
        "woken",
    )

    def __init__(
        self, batch: Batch, ends: list[int], events: Events, rejections: Sequence[Rejection], began: float
    ) -> None:
        self.batch, self.ends, self.events, self.rejections = batch, ends, events, rejections
        self.began = began
        self.transaction: Transaction | None = None
        self.records = self.recorded = self.counted = self.woken = False

    @property
    def visible(self) -> bool:
        """Whether the graph shows it."""
        return self.transaction is not None and self.transaction.committed
