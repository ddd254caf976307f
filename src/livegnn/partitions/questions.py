"""Questions of a leader to the processes of its parts, and their answers about draws and features.

A worker answers reads, and questions about draws, over a channel for each, so that neither waits for batches
or for the other. A question is a turn of the channel in two rounds: the question, and the answer. A worker
enters the first round before there is a question, so a leader does not wait in it, and may send others to
other workers meanwhile.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from time import sleep
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

import livegnn._core as _core
from livegnn.channels.channel import Channel, Round
from livegnn.channels.errors import BatchAborted, ChannelError
from livegnn.errors import WorkerUnavailableError
from livegnn.graph import Graph
from livegnn.partitions.letters import to_buffer, to_sections
from livegnn.partitions.losses import describe_loss, part_lost

if TYPE_CHECKING:
    from livegnn.channels.frames import Buffer, Section
    from livegnn.channels.zmq import ZmqChannel

_LOG: Final = logging.getLogger(__name__)

Answer = Callable[[], "Buffer"]
"""Waits for an answer, and returns it."""

_SILENCE: Final = 1.0  # seconds without a beat, after which a process is not waited for where that is not due
_LOOKS, _LOOK_SECONDS = 100, 0.01  # whether another question is answered
_CROWD: Final = 16  # questions that may wait for a silent process


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


class SilentPartError(Exception):
    """The process of a part has sent nothing for a second, or has too many questions."""


class Line:
    """The leader's end of a channel to the process of a part. worker: the number of the process there.
    find_loss: why the process is lost, as far as is known elsewhere. lose: called with why it is lost.
    """

    def __init__(
        self,
        part: int,
        channel: "ZmqChannel",
        worker: int,
        find_loss: Callable[[], str | None],
        lose: Callable[[str], None] = lambda why: None,
    ) -> None:
        self.channel: Final = channel
        self._part, self._worker = part, worker
        self._find_loss, self._lose = find_loss, lose
        self._lost: str | None = None

    def swap(
        self, round: Round, sections: "Sequence[Section]", *, patient: bool = True
    ) -> "Sequence[Section]":
        """The sections of the process. Raises `WorkerUnavailableError`, once and for all, if it is lost, and
        as soon as that is known; `SilentPartError` without patience, if it is silent."""
        look = self._look if patient else self._look_closely
        try:
            look()
            return self.channel.swap(round, {self._worker: sections}, look)[self._worker]
        except ChannelError as error:
            self._lost = self._lost or describe_loss(error)
            self._lose(self._lost)
            raise part_lost(self._part, self._lost) from error

    def _look(self) -> None:
        if (lost := self._lost or self._find_loss()) is not None:
            raise ChannelError(lost)

    def _look_closely(self) -> None:
        self._look()
        self.refuse_silence()

    def refuse_silence(self) -> None:
        """Raises `SilentPartError` if the process is silent."""
        if self.is_silent:
            raise SilentPartError

    @property
    def is_silent(self) -> bool:
        """Whether the process has sent nothing for a second."""
        return self.channel.report().links[self._worker].silent_seconds > _SILENCE

    def crowd_error(self) -> WorkerUnavailableError:
        """The error of a question that does not wait for a silent process, because many others do."""
        return part_lost(self._part, f"nothing for a second, while {_CROWD} others wait for it")


class _Question:
    """A question. answer: None until it is taken."""

    def __init__(self, sections: "Sequence[Section]") -> None:
        self.sections = sections
        self.answer: Sequence[Section] | None = None


class Questions:
    """Sends questions to the process of a part. All functions raise the errors of `Line.swap`.

    Thread safety: any thread may call, also between a question to one part and the wait for its answer.
    Before a question is sent, the answer to the previous one is taken, for the thread that waits for it. So
    no thread waits for one that waits for another part.

    If many questions wait and the process is silent, all but some are refused: the threads of a server, which
    are few, go on with other parts.
    """

    def __init__(self, line: Line) -> None:
        self._line = line
        self._lock = threading.Lock()
        self._turn = 0
        self._open: _Question | None = None  # whose answer is not taken
        self._waiting = WeakSet[_Question]()

    def ask(self, sections: "Sequence[Section]") -> "Callable[[], Sequence[Section]]":
        """Sends a question; the result waits for the answer."""
        question = _Question(sections)
        self._waiting.add(question)
        self._with_lock(self._send, question)
        return lambda: self._wait_for(question)

    def ask_in_passing(self, sections: "Sequence[Section]") -> "Sequence[Section]":
        """The answer to a question, which does not wait for a silent process: raises `SilentPartError`."""
        question = _Question(sections)
        for _ in range(_LOOKS):
            if _core.if_free(self._lock, self._answer, question, patient=False):
                assert question.answer is not None
                return question.answer
            self._line.refuse_silence()
            sleep(_LOOK_SECONDS)
        raise SilentPartError

    def _wait_for(self, question: _Question) -> "Sequence[Section]":
        while question.answer is None:
            self._with_lock(self._answer, question)
        self._waiting.discard(question)
        return question.answer

    def _with_lock(self, call: "Callable[[_Question], None]", question: _Question) -> None:
        if len(self._waiting) <= _CROWD:
            _core.holding(self._lock, call, question)
            return
        while not _core.if_free(self._lock, call, question):
            if self._line.is_silent:
                raise self._line.crowd_error()
            sleep(_LOOK_SECONDS)

    def _answer(self, question: _Question, *, patient: bool = True) -> None:
        if question.answer is not None:
            return
        if self._open is not question:  # it is new, or an exception has ended its turn
            self._send(question, patient=patient)
        self._take(patient=patient)

    def _send(self, question: _Question, *, patient: bool = True) -> None:
        self._take(patient=patient)
        self._turn += 1
        self._line.swap(Round(self._turn, 0, 0), question.sections, patient=patient)
        self._open = question

    def _take(self, *, patient: bool) -> None:
        question, self._open = self._open, None
        if question is not None:
            question.answer = self._line.swap(Round(self._turn, 0, 1), (), patient=patient)
