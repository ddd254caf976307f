"""A read of predictions of several parts, all of one event: questions are repeated until the answers are."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from livegnn.channels.errors import ChannelError
from livegnn.errors import TimeoutExpired, WorkerUnavailableError
from livegnn.inference.predictions import Prediction
from livegnn.partitions.direct_reads import LONGEST_WAIT, UNKNOWN, Answer, Question
from livegnn.types import FloatArray

if TYPE_CHECKING:
    from jaxtyping import Bool, Int64, UInt16
    from numpy.typing import NDArray

    from livegnn.partitions.owner_table import OwnerTable
    from livegnn.types import IntArray

Ask: TypeAlias = Callable[[int, Question], Awaitable[Answer]]
"""Sends a question to a part, by its number."""

_PATIENCE: Final = 5.0  # seconds, once min_seq is visible: batches become visible far faster at all parts
_PAUSE: Final = 0.005
_NONE: Final = -1


class Cut:
    """The read of some nodes. parts: how many there are. owners: as far as they are known; the read notes
    others. ids: integers of at least 0."""

    def __init__(
        self, ask: Ask, parts: int, owners: "OwnerTable", ids: "Int64[IntArray, 'ids']", output: str | None
    ) -> None:
        self._ask, self._parts, self._table, self._ids, self._output = ask, parts, owners, ids, output
        self._owners = owners.find(ids)
        self._seqs = np.full(len(ids), _NONE, np.int64)  # of the event of each row
        self._unknown = np.zeros(len(ids), np.bool_)
        self._rows: FloatArray | None = None
        self._lost: dict[int, WorkerUnavailableError] = {}
        self._empty = 0  # the part that is asked if there are no ids

    async def read(
        self, at_least: int, min_seq: int, expires: float, timeout: float
    ) -> "tuple[Prediction, Bool[NDArray[np.bool_], 'ids']]":
        """The rows, and which nodes are not in the graph; their rows have any values. at_least: the event
        that the answer must reflect. min_seq: the event for which it waits until the time `expires` of the
        loop, no later one than `at_least`. timeout: the seconds that this wait had, for the error.

        Raises `TimeoutExpired` if `min_seq` is not visible by then, `WorkerUnavailableError` if the parts
        reach no common event or the one of a node is lost, and the errors of parts.
        """
        loop = asyncio.get_running_loop()
        gives_up: float | None = None
        target = at_least
        while True:
            wait = expires if gives_up is None else gives_up
            reached = await self._ask_all(target, min(LONGEST_WAIT, max(0.0, wait - loop.time())))
            if reached < target:
                await asyncio.sleep(_PAUSE)  # a part for which too many wait answers at once
            target = max(target, int(self._seqs.max(initial=_NONE)), reached)
            if self._rows is not None and (self._seqs == target).all():
                return Prediction(target, self._rows), self._unknown
            now = loop.time()
            if reached < min_seq:
                if now >= expires:
                    raise TimeoutExpired(
                        f"event {min_seq} must be visible within {timeout} seconds, got to {reached}: wait "
                        "longer"
                    )
            elif gives_up is None:
                gives_up = now + _PATIENCE
            elif now >= gives_up:
                raise WorkerUnavailableError(
                    f"all parts must show event {target} within {_PATIENCE:g} seconds, got one at {reached}: "
                    "send the request again"
                )

    async def _ask_all(self, target: int, wait: float) -> int:
        """Sends questions for the rows that are not of event `target`. Returns the first event of the
        answers, `target` if there are none. Raises the errors of parts, that of a lost one if another part
        has said that it owns a node."""
        left = np.flatnonzero(self._seqs != target)
        by_part = {int(part): left[self._owners[left] == part] for part in np.unique(self._owners[left])}
        if not len(self._ids):
            by_part = {self._empty: left}
        if (lost := next((self._lost[part] for part in by_part if part in self._lost), None)) is not None:
            raise lost
        answers = await asyncio.gather(
            *(
                self._ask(part, Question(self._output, target, wait, self._ids[places]))
                for part, places in by_part.items()
            ),
            return_exceptions=True,
        )
        reached = []
        for (part, places), answer in zip(by_part.items(), answers, strict=True):
            if isinstance(answer, WorkerUnavailableError):
                self._lose(part, places, answer)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                reached.append(answer.seq)
                if answer.seq >= target:
                    self._take(part, places, answer)
        return min(reached, default=target)

    def _lose(self, part: int, places: "Int64[IntArray, 'asked']", why: WorkerUnavailableError) -> None:
        """Has another part say whether the lost one owns the nodes: perhaps that was only a guess."""
        self._lost[part] = why
        others = [other for other in range(self._parts) if other not in self._lost]
        if not others:
            raise why
        self._owners[places] = self._empty = others[part % len(others)]

    def _take(self, part: int, places: "Int64[IntArray, 'asked']", answer: Answer) -> None:
        own = answer.owners == part
        unknown = answer.owners == UNKNOWN
        moved = ~(own | unknown)
        fits = len(own) == len(places) and len(answer.rows) == own.sum()
        if not fits or (answer.owners[moved] >= self._parts).any():
            raise ChannelError(f"part {part} must answer for {len(places)} nodes, got another answer")
        if self._rows is None:
            self._rows = np.zeros((len(self._ids), answer.rows.shape[1]), np.float32)
        self._rows[places[own]] = answer.rows
        self._unknown[places] = unknown
        self._seqs[places] = np.where(moved, _NONE, answer.seq)
        self._note(places[~unknown], answer.owners[~unknown])

    def _note(
        self, places: "Int64[IntArray, 'known']", owners: "UInt16[NDArray[np.uint16], 'known']"
    ) -> None:
        self._owners[places] = owners
        self._table.note(self._ids[places], owners)
