"""`PartsFront`: reads predictions from the parts of a served graph, without their server.

It finds the parts by the file that their server writes (`places.py`), and follows the file: parts that are
replaced, or a server that is started again, have other places.
"""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import zmq.asyncio

import livegnn
from livegnn.channels.admission import Keys
from livegnn.channels.errors import ChannelError
from livegnn.channels.plan import Peer
from livegnn.channels.requester import Requester
from livegnn.errors import InputError, LiveGNNError, UnknownNodeError, WorkerUnavailableError
from livegnn.graph.native_graph import name_unknown_node
from livegnn.inference.predictions import Prediction
from livegnn.partitions.cut import Cut
from livegnn.partitions.direct_reads import LONGEST_WAIT, Answer, Question
from livegnn.partitions.losses import part_lost
from livegnn.partitions.owner_table import OwnerTable
from livegnn.partitions.places import Found, Places, read_places
from livegnn.readiness import Readiness

if TYPE_CHECKING:
    from jaxtyping import Int64

    from livegnn.partitions.places import ServedOutput
    from livegnn.types import IntArray

_logger = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 0.5  # between two looks at the file, and at the parts


class _Parts:
    """The parts of one content of the file. stamp: of the file. seqs: the last event of each that is known;
    None of one that does not answer."""

    def __init__(self, stamp: tuple[int, ...], places: Places) -> None:
        self.stamp, self.places = stamp, places
        self.owners = OwnerTable(len(places.parts))
        self.seqs: list[int | None] = [None] * len(places.parts)
        self.shown = 0
        """The latest event that an answer reflects: later answers reflect it, too."""
        keys = None if places.keys is None else Keys(places.keys.public, places.keys.secret)
        self._context = zmq.asyncio.Context()
        self._requesters: list[Requester] = []
        try:
            for number, one in enumerate(places.parts):
                peer = Peer(address=one.address, key=one.key)
                self._requesters.append(Requester(number, peer, keys, self._context))
        except BaseException:
            self.close()
            raise

    async def ask(self, part: int, question: Question) -> Answer:
        """Raises `WorkerUnavailableError` if the part is lost."""
        seconds = LONGEST_WAIT + self.places.silent_seconds
        try:
            answer = Answer.unpack(await self._requesters[part].ask(question.pack(), seconds))
        except ChannelError as error:
            self.seqs[part] = None
            raise part_lost(part, error) from error
        self.seqs[part] = answer.seq
        return answer

    async def look(self) -> None:
        """Learns the event of each part."""
        nothing = Question(None, 0, 0.0, np.empty(0, np.int64))
        asked = (self.ask(part, nothing) for part in range(len(self.seqs)))
        await asyncio.gather(*asked, return_exceptions=True)

    def close(self) -> None:
        for one in self._requesters:
            one.close()
        self._context.term()


class PartsFront:
    """Predictions of a graph in parts, read from the parts. file: `readers` of their deployment.

    Thread safety: belongs to the event loop that runs `follow`.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._parts: _Parts | None = None
        self._missing = "its server has not started yet"

    @property
    def seq(self) -> int:
        """The latest event that is known to be visible at all parts that answer; 0 if none does."""
        return 0 if self._parts is None else min(filter(None, self._parts.seqs), default=0)

    @property
    def outputs(self) -> "Mapping[str, ServedOutput]":
        """The outputs of the model. Raises `WorkerUnavailableError` while there are no parts."""
        return self._require().places.outputs

    def answering(self) -> Mapping[int, bool]:
        """Whether each part has answered the last question."""
        return {} if self._parts is None else {n: seq is not None for n, seq in enumerate(self._parts.seqs)}

    def find_readiness(self) -> Readiness:
        """Whether all parts answer."""
        if self._parts is None:
            return Readiness({"parts": self._missing})
        lost = [str(number) for number, answers in self.answering().items() if not answers]
        return Readiness({"parts": f"no answer of part {', '.join(lost)}"} if lost else {})

    async def follow(self) -> None:
        """Follows the file and the parts, until it is cancelled."""
        try:
            while True:
                await self._look()
                if self._parts is not None:
                    await self._parts.look()
                await asyncio.sleep(_LOOK_SECONDS)
        finally:
            if self._parts is not None:
                self._parts.close()
                self._parts = None

    async def predict(
        self,
        ids: "Int64[IntArray, 'ids']",
        *,
        min_seq: int = 0,
        timeout: float = 10.0,
        output: str | None = None,
    ) -> Prediction:
        """Predictions of nodes, as of `Runtime.predict`, all of one event; never of an earlier one than a
        prediction before.

        Raises `UnknownNodeError`, `InputError` for an unknown output, `TimeoutExpired` if `min_seq` is not
        visible in time, and `WorkerUnavailableError` if the part of a node does not answer, or there are no
        parts.
        """
        ends = asyncio.get_running_loop().time() + timeout
        while True:
            parts = self._require()
            at_least = max(min_seq, parts.shown)
            cut = Cut(parts.ask, len(parts.seqs), parts.owners, ids, output)
            try:
                found, unknown = await cut.read(at_least, min_seq, ends, timeout)
            except WorkerUnavailableError:
                await self._look()
                if self._parts is parts:
                    raise
                continue
            parts.shown = max(parts.shown, found.seq)
            if unknown.any():
                name = next(iter(parts.places.outputs)) if output is None else output
                shown = ids[int(unknown.argmax())]
                raise UnknownNodeError(name_unknown_node(shown, parts.places.outputs[name].node_type))
            return found

    def _require(self) -> _Parts:
        if self._parts is None:
            raise WorkerUnavailableError(
                f"the parts of the graph must answer, got none, because {self._missing}: start it with "
                "livegnn serve"
            )
        return self._parts

    async def _look(self) -> None:
        """Reads the file if it has changed, and uses its parts from then on."""
        known = None if self._parts is None else self._parts.stamp
        try:
            found = await asyncio.to_thread(read_places, self._file, known)
        except (OSError, LiveGNNError) as error:
            if self._parts is None:
                self._missing = f"{self._file} cannot be read ({error})"
            return
        if found is None or (self._parts is not None and self._parts.stamp == found.stamp):
            return
        old, self._parts = self._parts, self._connect(found)
        if old is not None:
            old.close()

    def _connect(self, found: Found) -> _Parts | None:
        """The parts that a file names. If these cannot be used, sets why."""
        version = found.places.version
        if version != livegnn.__version__:
            self._missing = f"its version is {version}, and that of this front {livegnn.__version__}"
            return None
        try:
            parts = _Parts(found.stamp, found.places)
        except InputError as error:
            self._missing = f"{self._file} has wrong places ({error})"
            return None
        _logger.info("%d parts are asked, as %s says", len(found.places.parts), self._file)
        return parts
