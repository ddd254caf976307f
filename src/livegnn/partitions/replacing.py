"""Fresh parts take the places of all parts of a graph when one is lost, or is to leave its machine, and its
batches continue."""

import logging
from collections.abc import Callable
from threading import RLock
from typing import Final, Generic, Protocol, Self, TypeVar

import livegnn._core as _core
from livegnn.errors import LiveGNNError
from livegnn.graph import Graph
from livegnn.interrupts import Background, Flag

_logger = logging.getLogger(__name__)

TRIES: Final = 3
"""The most times that the parts are replaced for one batch."""

_EVERY, _LONGEST = 0.5, 60.0  # seconds between two looks, and between two attempts that fail


class Led(Protocol):
    """The parts that are replaced: `Partitions`, whose functions say more."""

    names: Graph
    visible: RLock

    @property
    def seq(self) -> int:
        """The event of all parts."""

    def find_own_loss(self) -> str | None:
        """Why a part is lost; None if none is."""

    def find_move(self) -> str | None:
        """Why parts should be on other machines; None if they should stay."""

    def exchange(self, other: Self) -> None:
        """Exchanges all parts."""

    def announce(self) -> None:
        """Says to fronts where the parts are, unless they know it."""

    def close(self) -> None:
        """Ends all parts."""


_Led = TypeVar("_Led", bound=Led)


class Replacing(Generic[_Led]):
    """Replaces the parts of `led` when one is lost: in the batch that finds it, or between batches, by a
    thread that looks at them. This thread also replaces parts that should be on other machines.

    make: fresh parts at an event, which have names of their own. Thread safety: `replace_lost` with
    `Graph.writer` of the names held; any thread may call `close`.
    """

    def __init__(self, led: _Led, make: Callable[[int], _Led]) -> None:
        self._led, self._make = led, make
        self._closed: Final = Flag()
        self._thread: Final = Background(self._watch, "livegnn-parts-watch")
        self._thread.start()

    def replace_lost(self) -> None:
        """Makes fresh parts if one is lost, and ends the old ones. Reads go on meanwhile, and wait only while
        the parts are exchanged. Raises the errors of `make`, and `LiveGNNError` if the fresh parts are at
        another event; then nothing has changed.
        """
        if (lost := self._led.find_own_loss()) is not None:
            _logger.error("all parts are started again: %s", lost, extra={"event": self._led.seq})
            self._replace()

    def _replace(self) -> None:
        led = self._led
        if self._closed.is_set():
            return
        fresh = self._make(led.seq)
        try:
            if fresh.seq != led.seq:
                raise LiveGNNError(
                    f"fresh parts must be at event {led.seq}, as the log has it, got {fresh.seq}: restart "
                    "the server"
                )
            claim = led.names.core.claim
            _core.holding(led.visible if claim is None else claim.readers, led.exchange, fresh)
            led.announce()  # before the old parts end
        finally:
            fresh.close()
        _logger.warning("fresh parts are at event %d", led.seq, extra={"event": led.seq})

    def try_to_replace(self) -> bool:
        """The same if a part is lost or should move, but logs an error and returns False."""
        try:
            self.replace_lost()
            if (why := self._find_move()) is not None:
                _logger.warning("all parts are started again: %s", why, extra={"event": self._led.seq})
                self._replace()
        except Exception:
            _logger.exception("lost parts were not replaced, or parts were not moved")
            return False
        return True

    def _find_move(self) -> str | None:
        try:
            return self._led.find_move()
        except Exception as error:  # as of a cluster that does not answer for a moment
            _logger.debug("whether parts should move is not known: %s", error)
            return None

    def _watch(self) -> None:
        wait = _EVERY
        while not self._closed.wait(wait):
            self._led.announce()  # again, if a full disk kept it from it
            if self._led.find_own_loss() is None and self._find_move() is None:
                continue
            done = _core.holding(self._led.names.writer, self.try_to_replace)
            # If fresh parts should move too, Ray has not placed them as asked: the next attempt waits longer.
            wait = _EVERY if done and self._find_move() is None else min(2 * wait, _LONGEST)

    def close(self) -> None:
        """Ends the thread; nothing is replaced afterwards."""
        self._closed.set()
        self._thread.join()
