"""A part in another process, as its leader reads from it and sends it batches."""

import threading
from collections.abc import Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from livegnn.channels.channel import Channel, Round
from livegnn.channels.errors import ChannelError
from livegnn.channels.zmq import ZmqChannel
from livegnn.errors import as_value
from livegnn.events import Events
from livegnn.partitions.ballot import error_of
from livegnn.partitions.edges import Counts
from livegnn.partitions.files import write_pieces
from livegnn.partitions.leaders import WORKER, Message
from livegnn.partitions.letters import Letter, open_letter, seal
from livegnn.partitions.losses import part_lost
from livegnn.partitions.packed import Order, pack_order, unpack_outcome
from livegnn.partitions.part import Asked, Outcome, Placed, Rows
from livegnn.partitions.processes import PartProcess
from livegnn.partitions.questions import Answer, Questions
from livegnn.partitions.shares import ShareOrder, ask_for_share
from livegnn.partitions.writing import wait_until_written
from livegnn.types import FloatArray, IntArray

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from jaxtyping import Float32, Int64

    from livegnn.channels.frames import Buffer, Section
    from livegnn.partitions.edges import Names
    from livegnn.snapshots.manifest import Layer


class RemoteReader:
    """A part in another process, by its channels for reads and for samples (`worker.py`). silent_seconds:
    until it is lost. shared: whether it sees the files of the leader.
    """

    def __init__(
        self,
        number: int,
        process: PartProcess,
        reads: ZmqChannel,
        samples: ZmqChannel,
        *,
        silent_seconds: float,
        shared: bool,
    ) -> None:
        self._number, self.process, self._reads = number, process, reads
        self._shared = shared
        self._questions = Questions(number, samples, WORKER)
        self._silent_seconds = silent_seconds
        self._lost: ChannelError | None = None
        self._reading = threading.Lock()
        self._asked = 0

    def lose(self, got: str) -> None:
        """Has all reads raise `WorkerUnavailableError` from now on. got: instead of an answer."""
        self._lost = self._lost or ChannelError(got)

    def _over(self, channel: Channel, round: Round, sections: "Mapping[int, Sequence[Section]]") -> Letter:
        """The answer of the process. Raises `WorkerUnavailableError` once and for all if there is none."""
        try:
            if self._lost is not None:
                raise self._lost
            if (status := self.process.poll()) is not None:
                raise ChannelError(f"the end of its process, with {status}")
            received = channel.swap(round, sections)[WORKER]
        except ChannelError as error:
            self._lost = as_value(error)
            raise part_lost(self._number, error) from error
        return open_letter(received) if received else Letter({})

    @contextmanager
    def _asking(self, question: Letter) -> "Iterator[Callable[[], Letter]]":
        """Sends a question; the result waits for the answer. If it is not called, the process drops the
        answer at the next question."""
        with self._reading:
            self._asked += 1
            turn = self._asked
            self._over(self._reads, Round(turn, 0, 0), {WORKER: seal(question)})
            yield lambda: self._over(self._reads, Round(turn, 0, 1), {})

    def _ask(self, question: Letter) -> Letter:
        with self._asking(question) as answer:
            return answer()

    @contextmanager
    def predicting(self, numbers: "Int64[IntArray, 'ids']", output: str | None) -> "Iterator[Rows]":
        with self._asking(Letter({"output": output}, np.asarray(numbers, np.int64).tobytes())) as answer:

            def rows() -> "Float32[FloatArray, 'ids channels']":
                given = answer()
                width = cast("int", given.content["width"])
                return np.frombuffer(given.payload, np.float32).reshape(len(numbers), width)

            yield rows

    def expired(self, edge_type: int, horizon: float) -> "Names":
        answer = self._ask(Letter({"expired": edge_type, "horizon": horizon}))
        return np.frombuffer(answer.payload, np.uint32).reshape(3, -1)

    def memory(self) -> dict[str, int]:
        return cast("dict[str, int]", dict(self._ask(Letter({"memory": True})).content))

    def counts(self) -> Counts:
        content = self._ask(Letter({"counts": True})).content
        return Counts(**cast("dict[str, Any]", content))

    def find_loss(self) -> str | None:
        silent = self._reads.report().links[WORKER].silent_seconds
        if (status := self.process.poll()) is not None:
            got = f"the end of its process, with {status}"
        elif self._lost is not None:
            got = str(self._lost)
        elif silent > self._silent_seconds:
            got = f"nothing for {silent:.0f} seconds"
        else:
            return None
        return f"part {self._number} must answer, got {got}"

    def asking(self, question: "Buffer") -> "AbstractContextManager[Answer]":
        return self._questions.asking(question)

    def write(self, path: Path, mark: str) -> None:
        self._ask(Letter({"write": str(path.absolute()) if self._shared else None, "mark": mark}))
        failed = wait_until_written(lambda: self._ask(Letter({"written": True})).content)
        if failed is not None:
            raise OSError(f"part {self._number} could not write its file: {failed}")
        if not self._shared:
            write_pieces(path, lambda begin: self._ask(Letter({"piece": begin})))

    def share(self, order: ShareOrder) -> "Layer":
        return ask_for_share(self._number, self._ask, order)

    def close(self) -> None:
        self._reads.close()
        self._questions.close()


class RemotePart(RemoteReader):
    """The same, with a channel for batches."""

    def __init__(
        self,
        number: int,
        process: PartProcess,
        reads: ZmqChannel,
        samples: ZmqChannel,
        batches: ZmqChannel,
        *,
        silent_seconds: float,
        shared: bool,
    ) -> None:
        super().__init__(number, process, reads, samples, silent_seconds=silent_seconds, shared=shared)
        self._batches = batches
        self._turn = 0

    def apply(
        self, events: Events, seq: int, vote: "Callable[[], None]", placed: Placed, *, trusted: bool
    ) -> Outcome:
        return self._order(Order(seq, trusted, placed, events.to_bytes()), vote)

    def suppose(
        self, events: Events, seq: int, vote: "Callable[[], None]", placed: Placed, asked: Asked
    ) -> Outcome:
        return self._order(Order(seq, False, placed, events.to_bytes(), asked), vote)

    def _order(self, order: Order, vote: "Callable[[], None]") -> Outcome:
        self._turn += 1
        self._swap(Message.ORDER, Letter({}, pack_order(order)))
        voted = self._swap(Message.VOTE).content
        try:
            if "error" in voted:
                raise error_of(voted)
            vote()
        except BaseException:
            self._swap(Message.DECISION, Letter({"commit": False}))
            raise
        self._swap(Message.DECISION, Letter({"commit": True}))
        return unpack_outcome(self._swap(Message.OUTCOME).payload)

    def give_up(self) -> None:
        """Does nothing: the worker has told the others."""

    def _swap(self, message: Message, letter: Letter | None = None) -> Letter:
        sections = {} if letter is None else {WORKER: seal(letter)}
        return self._over(self._batches, Round(self._turn, 0, message), sections)

    def close(self) -> None:
        self._batches.close()
        super().close()
