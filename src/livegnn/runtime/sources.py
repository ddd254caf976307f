"""What a runtime knows of the sources that bring it events: what metrics and health show of them."""

from collections.abc import Mapping
from typing import Protocol


class Source(Protocol):
    """Something that reads a stream into the log of a runtime. Every method may be called from any thread."""

    @property
    def name(self) -> str:
        """Under which the log keeps how far it was read."""

    @property
    def failure(self) -> BaseException | None:
        """What ended it, None while all is well."""

    @property
    def waits(self) -> str | None:
        """What it waits for, None while it reads."""

    @property
    def stored(self) -> int:
        """Messages that it has brought into the log, bad ones among them."""

    @property
    def bad(self) -> int:
        """Those of them that could not be stored as events."""

    @property
    def tombstones(self) -> int:
        """Those of them without a value, which a compacted topic has where a key was deleted: no events."""

    @property
    def lag(self) -> Mapping[int, int]:
        """How many messages stand unread, by partition, as far as is known."""
