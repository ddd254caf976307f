"""Questions to the parts of a divided graph about draws and features. Question and answer are bytes.

A worker answers them over a channel of their own, so that they do not wait for batches or for other reads. A
question is a turn of the channel in two rounds: the question, and the answer. A worker enters the first round
before there is a question, so a leader does not wait in it, and may send others to other workers meanwhile.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import livegnn._core as _core
from livegnn.channels.channel import Channel, Round
from livegnn.channels.errors import BatchAborted, ChannelError
from livegnn.errors import as_value
from livegnn.graph import Graph
from livegnn.partitions.letters import to_buffer, to_sections
from livegnn.partitions.losses import part_lost

if TYPE_CHECKING:
    from livegnn.channels.frames import Buffer, Section

_LOG: Final = logging.getLogger(__name__)

Answer = Callable[[], "Buffer"]
"""Waits for an answer, and returns it."""


class Answers:
    """Answers questions about a part in this process. Thread safety: any thread may call."""

    def __init__(self, graph: Graph, threads: int) -> None:
        self._graph, self._threads = graph, threads
        self._sampler = _core.Sampler(graph.native)

    def to(self, question: "Buffer") -> "Buffer":
        """The answer."""
        return _core.answer_question(self._sampler, self._graph.native, question, self._threads).data

    def serve(self, channel: Channel, asker: int) -> None:
        """Answers the worker `asker`, until that closes the channel or is lost."""
        turn = 0
        while True:
            turn += 1
            try:
                asked = to_buffer(channel.swap(Round(turn, 0, 0), {})[asker])
                channel.swap(Round(turn, 0, 1), {asker: to_sections(self._answer(asked))})
            except BatchAborted:
                continue  # an exception has kept the asker from this turn, and it asks in another
            except ChannelError:
                return

    def _answer(self, asked: "Buffer") -> "Buffer":
        try:
            return self.to(asked)
        except Exception:  # the asker must not wait for it
            _LOG.exception("a question about a part of the graph could not be answered")
            return b""


class Questions:
    """Sends questions to the worker of a part, over a channel. Thread safety: any thread may; one waits for
    another from its question to the answer."""

    def __init__(self, part: int, channel: Channel, worker: int) -> None:
        self._part, self._channel, self._worker = part, channel, worker
        self._lock = threading.Lock()
        self._turn = 0
        self._lost: ChannelError | None = None

    @contextmanager
    def asking(self, question: "Buffer") -> Iterator[Answer]:
        """Sends a question; the result waits for the answer.

        Both raise `WorkerUnavailableError`, once and for all, if the process is lost.
        """
        with self._lock:
            self._turn += 1
            self._swap(0, to_sections(question))
            yield self._wait

    def _wait(self) -> "Buffer":
        return to_buffer(self._swap(1, ()))

    def _swap(self, number: int, sections: "Sequence[Section]") -> "Sequence[Section]":
        try:
            if self._lost is not None:
                raise self._lost
            return self._channel.swap(Round(self._turn, 0, number), {self._worker: sections})[self._worker]
        except ChannelError as error:
            self._lost = as_value(error)
            raise part_lost(self._part, error) from error

    def close(self) -> None:
        """Ends the channel."""
        self._channel.close()
