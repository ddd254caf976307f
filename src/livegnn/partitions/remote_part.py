"""A part in another process, as its leader reads from it and sends it batches."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from livegnn.channels.channel import Round
from livegnn.channels.zmq import ZmqChannel
from livegnn.events import Events
from livegnn.inference.predictions import Prediction
from livegnn.partitions.ballot import error_of
from livegnn.partitions.edge_columns import AskedEdges, EdgeColumns, WaitForEdges
from livegnn.partitions.edges import Counts
from livegnn.partitions.files import write_pieces
from livegnn.partitions.leaders import WORKER, Message
from livegnn.partitions.letters import Letter, open_letter, seal, to_buffer, to_sections
from livegnn.partitions.packed import Order, pack_order, unpack_outcome
from livegnn.partitions.part import Asked, Outcome, Placed
from livegnn.partitions.processes import PartProcess
from livegnn.partitions.questions import Answer, Line, Questions, SilentPartError
from livegnn.partitions.reads import WaitForRows
from livegnn.partitions.shares import ShareOrder, ask_for_share
from livegnn.partitions.writing import wait_until_written
from livegnn.types import JSON, IntArray

if TYPE_CHECKING:
    from collections.abc import Callable

    from jaxtyping import Int64

    from livegnn.channels.frames import Buffer
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
        self._samples, self._shared, self._silent_seconds = samples, shared, silent_seconds
        self._lost: str | None = None
        self._rows = Questions(self._line(reads))
        # A sample that takes too long ends samples alone.
        self._draws = Questions(Line(number, samples, WORKER, self._find_end))
        self._last: dict[str, Mapping[str, JSON]] = {}  # figures, as they were given last

    def _line(self, channel: ZmqChannel) -> Line:
        return Line(self._number, channel, WORKER, self._find_end, self.lose)

    def lose(self, got: str) -> None:
        """Has all reads raise `WorkerUnavailableError` from now on. got: instead of an answer."""
        self._lost = self._lost or got

    def _find_end(self) -> str | None:
        """Why the process will never answer, as far as is known; None if it may."""
        if self._lost is None and (status := self.process.poll()) is not None:
            return f"the end of its process, with {status}"
        return self._lost

    def _ask(self, question: Letter) -> Letter:
        return open_letter(self._rows.ask(seal(question))())

    def ask_rows(self, numbers: "Int64[IntArray, 'ids']", output: str | None, commits: int) -> WaitForRows:
        content = {"output": output, "commits": commits}
        wait = self._rows.ask(seal(Letter(content, np.asarray(numbers, np.int64).tobytes())))

        def rows() -> Prediction | None:
            given = open_letter(wait())
            if not given.content:
                return None
            seq, width = cast("list[int]", given.content["rows"])
            return Prediction(seq, np.frombuffer(given.payload, np.float32).reshape(len(numbers), width))

        return rows

    def ask_edges(self, asked: AskedEdges) -> WaitForEdges:
        wait = self._rows.ask(seal(asked.pack()))
        return lambda: EdgeColumns.unpack(open_letter(wait()))

    def expired(self, edge_type: int, horizon: float) -> "Names":
        answer = self._ask(Letter({"expired": edge_type, "horizon": horizon}))
        return np.frombuffer(answer.payload, np.uint32).reshape(3, -1)

    def memory(self) -> Mapping[str, int]:
        return cast("Mapping[str, int]", self._find_figures("memory"))

    def counts(self) -> Counts:
        content = self._ask(Letter({"counts": True})).content
        return Counts(**cast("dict[str, Any]", content))

    def last_counts(self) -> Counts | None:
        content = self._find_figures("counts")
        return Counts(**cast("dict[str, Any]", content)) if content else None

    def _find_figures(self, name: str) -> Mapping[str, JSON]:
        """Those of now, or the last ones if the process is silent."""
        with suppress(SilentPartError):
            self._last[name] = open_letter(self._rows.ask_in_passing(seal(Letter({name: True})))).content
        return self._last.get(name, {})

    def find_loss(self) -> str | None:
        silent = self._reads.report().links[WORKER].silent_seconds
        got = self._find_end()
        if got is None and silent > self._silent_seconds:
            got = f"nothing for {silent:.0f} seconds"
        return None if got is None else f"part {self._number} must answer, got {got}"

    def ask(self, question: "Buffer") -> Answer:
        wait = self._draws.ask(to_sections(question))
        return lambda: to_buffer(wait())

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
        self._samples.close()


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
        self._batches = self._line(batches)
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
        sections = () if letter is None else seal(letter)
        received = self._batches.swap(Round(self._turn, 0, message), sections)
        return open_letter(received) if received else Letter({})

    def close(self) -> None:
        self._batches.channel.close()
        super().close()
