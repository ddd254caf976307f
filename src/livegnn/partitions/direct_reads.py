"""Direct reads: questions of fronts to a part about its rows, without the leader of the parts.

A question names nodes and an event that the answer must reflect. The answer says which part owns each node,
and has the rows of those that this part owns. All of it is of one event: a batch becomes visible before it or
after it. So a front may join answers of several parts that reflect the same event.
"""

import logging
from threading import RLock
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from jaxtyping import Int64, UInt16
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

import livegnn._core as _core
from livegnn.channels.errors import ChannelError
from livegnn.channels.requests import Request, Requests
from livegnn.errors import InputError
from livegnn.graph import Graph
from livegnn.inference import Engine
from livegnn.partitions.ballot import error_of
from livegnn.partitions.leaders import explain
from livegnn.types import NO_INDEX, FloatArray, IntArray

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float32

_LOG: Final = logging.getLogger(__name__)

UNKNOWN: Final = 0xFFFF
"""In place of the owner of a node: there is no such node."""

LONGEST_WAIT: Final = 1.0
"""Seconds of a question until the part answers, though it has not reached the event."""

_MOST_WAITING: Final = 1024  # questions; others are answered at once
_EVERY: Final = 0.001  # seconds between two looks at the event, while questions wait for one
_IDLE: Final = 1.0
_ID_BYTES: Final = 8
_FRAMES: Final = 2
_LARGEST_SEQ: Final = 2**63 - 1


class _Asked(BaseModel):
    """The first frame of a question; the second one has the ids."""

    model_config = ConfigDict(extra="forbid", strict=True)
    output: str | None
    at_least: int = Field(ge=0, le=_LARGEST_SEQ)
    wait: float = Field(ge=0, le=LONGEST_WAIT)


class _Told(BaseModel):
    """The first frame of an answer. error: as of `explain`, in place of rows."""

    model_config = ConfigDict(extra="forbid", strict=True)
    seq: int = Field(ge=0, le=_LARGEST_SEQ)
    width: int = Field(ge=0)
    error: dict[str, str | bool] | None = None


class Question(NamedTuple):
    """output: as of `Engine.predict`. at_least: the event that the answer must reflect. wait: seconds until
    the part answers without rows, if it has not reached that event; `LONGEST_WAIT` at most."""

    output: str | None
    at_least: int
    wait: float
    ids: "Int64[IntArray, 'ids']"

    def pack(self) -> "Sequence[bytes]":
        """Its frames."""
        asked = _Asked(output=self.output, at_least=self.at_least, wait=self.wait)
        return asked.model_dump_json().encode(), np.asarray(self.ids, np.int64).tobytes()

    @staticmethod
    def unpack(frames: "Sequence[memoryview]") -> "Question":
        """The reverse. Raises `ChannelError` for other frames."""
        if len(frames) != _FRAMES or len(frames[1]) % _ID_BYTES:
            raise ChannelError(
                f"a question must have a head and ids, got {[len(one) for one in frames]} bytes"
            )
        try:
            asked = _Asked.model_validate_json(bytes(frames[0]))
        except ValidationError as error:
            raise ChannelError(f"a question must have its head, got {bytes(frames[0][:100])!r}") from error
        ids = np.frombuffer(bytes(frames[1]), np.int64)
        if len(ids) and ids.min() < 0:
            raise ChannelError(f"a question must have ids of at least 0, got {ids.min()}")
        return Question(asked.output, asked.at_least, asked.wait, ids)


class Answer(NamedTuple):
    """seq: of the event that it reflects; if that is before the one of the question, there is nothing else.
    owners: the part of each node, or `UNKNOWN`. rows: of the nodes that this part owns, in order."""

    seq: int
    owners: "UInt16[NDArray[np.uint16], 'ids']"
    rows: "Float32[FloatArray, 'own channels']"

    def pack(self) -> "Sequence[bytes]":
        """Its frames."""
        told = _Told(seq=self.seq, width=self.rows.shape[1])
        return (
            told.model_dump_json().encode(),
            self.owners.tobytes(),
            np.asarray(self.rows, np.float32).tobytes(),
        )

    @staticmethod
    def unpack(frames: "Sequence[memoryview]") -> "Answer":
        """The reverse. Raises the error of the part, and `ChannelError` for other frames."""
        try:
            head, owners, rows = frames
            told = _Told.model_validate_json(bytes(head))
            if told.error is None:
                values = np.frombuffer(rows, np.float32)
                shape = (-1, told.width) if told.width else (0, 0)
                return Answer(told.seq, np.frombuffer(owners, np.uint16), values.reshape(shape))
        except ValueError as error:  # pydantic's are, too
            raise ChannelError(f"an answer must have a head, owners and rows, got {frames!r}") from error
        raise error_of(told.error)


class DirectReads:
    """Answers the questions of fronts about a part of this process, by its number.

    visible: a lock that is held while a batch becomes visible. requests: the socket, which belongs to the
    thread that calls `serve`.
    """

    def __init__(self, number: int, graph: Graph, engine: Engine, visible: RLock, requests: Requests) -> None:
        self._number, self._graph, self._engine = number, graph, engine
        self._visible, self._requests = visible, requests
        self._waiting: list[tuple[float, Request, Question]] = []  # until a time, for an event

    def serve(self) -> None:
        """Answers for ever."""
        while True:
            for request in self._requests.receive(_EVERY if self._waiting else _IDLE, _MOST_WAITING):
                self._take(request)
            waiting, self._waiting = self._waiting, []
            for until, request, question in waiting:
                self._answer(until, request, question)

    def _take(self, request: Request) -> None:
        try:
            question = Question.unpack(request.frames)
        except ChannelError as error:
            _LOG.warning("a question of a front was dropped: %s", error)
            return
        self._answer(monotonic() + question.wait, request, question)

    def _answer(self, until: float, request: Request, question: Question) -> None:
        """Answers, or keeps the question until the part reaches its event."""
        seq = self._graph.core.seq
        if seq < question.at_least and len(self._waiting) < _MOST_WAITING and monotonic() < until:
            self._waiting.append((until, request, question))
            return
        try:
            frames = _core.holding(self._visible, self._read, question).pack()
        except Exception as error:  # the front must not wait for it
            if not isinstance(error, InputError):
                _LOG.exception("a question of a front could not be answered")
            told = _Told(seq=seq, width=0, error=explain(error))
            frames = told.model_dump_json().encode(), b"", b""
        self._requests.answer(request, frames)

    def _read(self, question: Question) -> Answer:
        native, seq = self._graph.native, self._graph.core.seq
        if seq < question.at_least:
            return Answer(seq, np.empty(0, np.uint16), np.empty((0, 0), np.float32))
        found = self._engine.outputs.find(question.output)
        node_type = self._graph.node_type_index(found.node_type)
        indices = native.indices_of(node_type, question.ids)
        owners = np.full(len(indices), UNKNOWN, np.uint16)
        known = indices != NO_INDEX
        owners[known] = _core.owners_at(native, node_type, indices[known])
        own = question.ids[owners == self._number]
        return Answer(seq, owners, self._engine.predict(own, output=question.output))
