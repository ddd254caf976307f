"""Parts of a graph in processes of their own, on this machine or on several."""

import os
import threading
from collections.abc import Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, Unpack, cast

import numpy as np

from livegnn.channels.channel import Channel, Round
from livegnn.channels.errors import ChannelError
from livegnn.channels.health import Patience
from livegnn.channels.plan import Peer
from livegnn.channels.zmq import Listener, ZmqChannel
from livegnn.errors import InputError, LiveGNNError, as_value
from livegnn.events import Events
from livegnn.graph import Graph, GraphDelta
from livegnn.graph.division import make_part
from livegnn.inference import EngineOptions
from livegnn.inference.native_engine import lay_out
from livegnn.inference.options import EngineSettings, choose_options
from livegnn.network import Model
from livegnn.partitions.ballot import error_of
from livegnn.partitions.crew import Crew, ThreadCrew
from livegnn.partitions.divided import Partitions
from livegnn.partitions.edges import Counts
from livegnn.partitions.files import SetSender, write_pieces
from livegnn.partitions.fitting import owners_of_types, refuse_unfit
from livegnn.partitions.leaders import LEADER, WORKER, Message, SharedMemory
from livegnn.partitions.letters import Letter, open_letter, seal
from livegnn.partitions.local import LocalPartitions
from livegnn.partitions.losses import part_lost
from livegnn.partitions.orders import (
    CHANNELS,
    Begun,
    Orders,
    Plan,
    Rule,
    encode_model,
    hear_begun,
    hear_hello,
    own_terms,
)
from livegnn.partitions.packed import Order, pack_order, unpack_outcome
from livegnn.partitions.part import Asked, Given, Outcome, Placed, Rows
from livegnn.partitions.processes import Hosts, PartProcess, end_all, start_children
from livegnn.partitions.questions import Answer, Questions
from livegnn.partitions.sets import SavedSet
from livegnn.partitions.shared import SharedCrew, has_shared_memory, shared_file
from livegnn.partitions.shares import ShareOrder, ask_for_share
from livegnn.partitions.texts import number_ids, save_numbers, to_numbers, with_texts
from livegnn.partitions.writing import wait_until_written
from livegnn.placement import Owners, Partition
from livegnn.schema import Schema
from livegnn.temporary_directory import TemporaryDirectory
from livegnn.types import FloatArray, IntArray, NodeType, State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from jaxtyping import Float32, Int64

    from livegnn.channels.frames import Buffer, Section
    from livegnn.partitions.edges import Names
    from livegnn.snapshots.manifest import Layer

_END_SECONDS: Final = 10.0


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


class RemotePartitions(Partitions):
    """The same as `LocalPartitions`, with each part in a process of its own.

    names: a graph that knows all nodes and keeps no edges, by default that of `saved`, or an empty one.
    patience: with which lost processes are found. hosts: the machines of the parts, by default this one;
    between machines all is sent over encrypted channels. shares_memory: whether batches are exchanged over
    memory that all processes share, or over ZeroMQ; by default over memory, where the parts are on this
    machine and the system has what that needs. saved: a checkpoint, with which the parts begin; by default
    they are empty.

    Raises the errors of `LocalPartitions`, `WorkerUnavailableError` if a process does not start,
    `ChannelError` if one has another version or is not reached, and `FileFormatError` if the file of one does
    not fit. Then no process runs.
    """

    def __init__(
        self,
        schema: Schema,
        model: Model,
        owners: Owners | Mapping[NodeType, Owners],
        options: EngineOptions | None = None,
        *,
        names: Graph | None = None,
        patience: Patience | None = None,
        hosts: Hosts | None = None,
        shares_memory: bool | None = None,
        saved: SavedSet | None = None,
        **settings: Unpack[EngineSettings],
    ) -> None:
        options, patience = choose_options(options, settings), patience or Patience()
        refuse_unfit(model, schema, options, owners)
        if hosts is not None and shares_memory:
            raise InputError("parts on several machines share no memory, got shares_memory=True")
        rules = list(owners_of_types(owners, schema).values())
        self._saved: Final = saved
        self._hosts: Final = hosts
        if names is None:
            natives = [rule.native for rule in rules]
            names = make_part(schema, natives, None, threads=1) if saved is None else saved.restore_names()
        lay_out(names, model, options)  # raises, before processes are started
        shares = hosts is None and (has_shared_memory() if shares_memory is None else shares_memory)
        with ExitStack() as kept:
            numbers = None
            if schema.text_ids and saved is not None:
                folder = kept.enter_context(TemporaryDirectory())
                numbers = folder / "numbers.npz"
                save_numbers(numbers, names)
            file = kept.enter_context(shared_file(rules[0].workers)) if shares else None
            parts = rules[0].workers
            self.processes = start_children(parts, file) if hosts is None else hosts.start(parts)
            try:
                self._order(schema, model, rules, options, patience, numbers, shares_memory=file is not None)
                readers, crew = self._connect(file, patience)
            except BaseException:
                end_all(self.processes)
                raise
        super().__init__(names, model, options, rules, readers, crew)

    @classmethod
    def from_checkpoint(
        cls,
        directory: "Path | str",
        model: Model,
        options: EngineOptions | None = None,
        *,
        seq: int | None = None,
        patience: Patience | None = None,
        hosts: Hosts | None = None,
        **settings: Unpack[EngineSettings],
    ) -> Self:
        """As `LocalPartitions.from_checkpoint`."""
        options, saved = choose_options(options, settings), SavedSet.find(directory, seq)
        return cls(saved.schema, model, saved.owners, options, patience=patience, hosts=hosts, saved=saved)

    @classmethod
    def from_graph(
        cls,
        graph: Graph,
        model: Model,
        owners: Owners | Mapping[NodeType, Owners] | Partition,
        options: EngineOptions | None = None,
        *,
        state: State | None = None,
        patience: Patience | None = None,
        hosts: Hosts | None = None,
        **settings: Unpack[EngineSettings],
    ) -> Self:
        """As `LocalPartitions.from_graph`. All parts are made in this process first, and handed over in
        files."""
        options = choose_options(options, settings)
        parts = LocalPartitions.from_graph(graph, model, owners, options, state=state)
        return cls.from_local(parts, patience=patience, hosts=hosts)

    @classmethod
    def from_local(
        cls, parts: LocalPartitions, *, patience: Patience | None = None, hosts: Hosts | None = None
    ) -> Self:
        """Moves parts of this process into processes of their own, through files, and closes them here.

        Raises the errors of the constructor, and as `Partitions.write`.
        """
        with TemporaryDirectory() as folder:
            try:
                parts.write(folder)
            finally:
                parts.close()
            return cls.from_checkpoint(folder, parts.model, parts.options, patience=patience, hosts=hosts)

    def _order(
        self,
        schema: Schema,
        model: Model,
        rules: list[Owners],
        options: EngineOptions,
        patience: Patience,
        numbers: Path | None,
        *,
        shares_memory: bool,
    ) -> None:
        """Gives each process its orders, once it has the terms of this one, and its files."""
        keys = [hear_hello(number, process, patience) for number, process in enumerate(self.processes)]
        content, saved, hosts = encode_model(model), self._saved, self._hosts
        with ExitStack() as ends:
            sender = None
            if saved is not None and hosts is not None and not (hosts.shared and numbers is None):
                sender = ends.enter_context(SetSender(saved, hosts.leader, len(keys), numbers))
            for number, process in enumerate(self.processes):
                orders = Orders(
                    number=number,
                    parts=len(self.processes),
                    rules=[Rule.of(each) for each in rules],
                    table=number_ids(schema).to_json(),
                    text_ids=schema.text_ids,
                    numbers=None if numbers is None else str(numbers),
                    model=content,
                    threads=options.threads,
                    shares_memory=shares_memory,
                    non_finite=options.non_finite,
                    saved=None if saved is None else str(saved.path.absolute()),
                    interface=process.interface,
                    files=None if sender is None else sender.place_for(number),
                    fetched=[] if sender is None else sender.names_for(number),
                    patience=asdict(patience),
                )
                process.tell(orders.model_dump_json())
            if sender is not None:
                sender.send(keys, patience)

    def _connect(self, file: int | None, patience: Patience) -> "tuple[Sequence[RemoteReader], Crew]":
        """Gives each process the places of the others. file: the memory that all share."""
        begun = [hear_begun(process) for process in self.processes]
        pids = [*(process.pid for process in self.processes), os.getpid()]
        memory = None if file is None else SharedMemory(file=file, pids=pids)
        here = None if self._hosts is None else self._hosts.leader
        names = CHANNELS if memory is None else CHANNELS[:-1]
        with ExitStack() as open_ones:
            listeners = []
            for number, process in enumerate(self.processes):
                its = [Listener(LEADER, {WORKER: here}) for _ in names]
                for one in its:
                    open_ones.callback(one.close)
                listeners.append(its)
                plan = Plan(
                    leader=[Peer(address=one.addresses[WORKER], key=one.key) for one in its],
                    peers={
                        peer: Peer(address=other.addresses.get(number), key=other.key)
                        for peer, other in enumerate(begun)
                        if peer != number
                    },
                    memory=memory,
                )
                process.tell(plan.model_dump_json())
            return self._greet(listeners, begun, memory, patience)

    def _greet(
        self,
        listeners: list[list[Listener]],
        begun: list[Begun],
        memory: SharedMemory | None,
        patience: Patience,
    ) -> "tuple[Sequence[RemoteReader], Crew]":
        """Waits until all parts have connected."""
        kind = RemotePart if memory is None else RemoteReader
        terms = own_terms()
        with ExitStack() as open_ones:
            parts: list[Any] = []
            for number, (process, its, said) in enumerate(zip(self.processes, listeners, begun, strict=True)):
                channels = []
                for listener, key in zip(its, said.keys, strict=False):
                    channel = listener.connect({WORKER: Peer(key=key)}, terms, patience=patience)
                    open_ones.callback(channel.close)
                    channels.append(channel)
                parts.append(
                    kind(
                        number,
                        process,
                        *channels,
                        silent_seconds=patience.silent_seconds,
                        shared=self._hosts is None or self._hosts.shared,
                    )
                )
            crew: Crew
            if memory is None:
                crew = ThreadCrew(parts, lambda: None)
            else:
                crew = SharedCrew(memory, patience, lambda part, got: parts[part].lose(got))
            open_ones.pop_all()
            return parts, crew

    def prepare(self, change: GraphDelta) -> None:
        with self._naming():
            super().prepare(change)

    def suppose(self, change: GraphDelta, asked: "Sequence[Asked]") -> "Sequence[Outcome]":
        with self._naming():
            return super().suppose(change, asked)

    @contextmanager
    def _naming(self) -> "Iterator[None]":
        """Errors from within name nodes by their texts."""
        try:
            yield
        except InputError as error:
            if not self.names.schema.text_ids:
                raise
            raise with_texts(error, self.names) from None

    def find_move(self) -> str | None:
        if self._hosts is None:
            return None
        return self._hosts.find_move([part.process for part in self.parts if isinstance(part, RemoteReader)])

    def _give(self, change: GraphDelta, asked: "Sequence[Asked] | None" = None) -> Given:
        given = super()._give(change, asked)
        if not self.names.schema.text_ids:
            return given
        return given._replace(events=to_numbers(given.events, self.names))

    def exchange(self, other: Partitions) -> None:
        assert isinstance(other, RemotePartitions)
        if self.names.node_ids.texts is not other.names.node_ids.texts:
            raise LiveGNNError(
                "fresh parts must have the numbers that texts have at the lost ones, got others: restart the "
                "server"
            )
        super().exchange(other)
        self.processes, other.processes = other.processes, self.processes

    def close(self) -> None:
        """Ends parts and processes."""
        lost = [part.find_loss() is not None for part in self.parts]
        super().close()
        for process, is_lost in zip(self.processes, lost, strict=True):
            if is_lost:
                process.kill()
            process.end(_END_SECONDS)
