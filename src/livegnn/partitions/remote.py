"""Parts of a graph in processes of their own, on this machine or on several."""

import os
from collections.abc import Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

from livegnn.channels.health import Patience
from livegnn.channels.plan import Peer
from livegnn.channels.zmq import Listener
from livegnn.errors import InputError, LiveGNNError
from livegnn.graph import Graph, GraphDelta
from livegnn.graph.division import make_part
from livegnn.inference import EngineOptions
from livegnn.inference.native_engine import lay_out
from livegnn.inference.options import EngineSettings, choose_options
from livegnn.network import Model
from livegnn.partitions.crew import Crew, ThreadCrew
from livegnn.partitions.divided import Partitions
from livegnn.partitions.files import SetSender
from livegnn.partitions.fitting import owners_of_types, refuse_unfit
from livegnn.partitions.leaders import LEADER, WORKER, SharedMemory
from livegnn.partitions.local import LocalPartitions
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
from livegnn.partitions.part import Asked, Given, Outcome
from livegnn.partitions.places import PlacesFile
from livegnn.partitions.processes import Hosts, end_all, start_children
from livegnn.partitions.remote_part import RemotePart, RemoteReader
from livegnn.partitions.sets import SavedSet
from livegnn.partitions.shared import SharedCrew, has_shared_memory, shared_file
from livegnn.partitions.texts import number_ids, save_numbers, to_numbers, with_texts
from livegnn.placement import Owners, Partition
from livegnn.schema import Schema
from livegnn.temporary_directory import TemporaryDirectory
from livegnn.types import NodeType, State

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


_END_SECONDS: Final = 10.0


class RemotePartitions(Partitions):
    """The same as `LocalPartitions`, with each part in a process of its own.

    names: a graph that knows all nodes and keeps no edges, by default that of `saved`, or an empty one.
    patience: with which lost processes are found. hosts: the machines of the parts, by default this one;
    between machines all is sent over encrypted channels. shares_memory: whether batches are exchanged over
    memory that all processes share, or over ZeroMQ; by default over memory, where the parts are on this
    machine and the system has what that needs. saved: a checkpoint, with which the parts begin; by default
    they are empty. fronts: the file by which fronts find the parts, once they are announced.

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
        fronts: Path | None = None,
        **settings: Unpack[EngineSettings],
    ) -> None:
        options, patience = choose_options(options, settings), patience or Patience()
        refuse_unfit(model, schema, options, owners)
        if hosts is not None and shares_memory:
            raise InputError("parts on several machines share no memory, got shares_memory=True")
        rules = list(owners_of_types(owners, schema).values())
        self._saved: Final = saved
        self._hosts: Final = hosts
        self._fronts = None if fronts is None else PlacesFile(fronts, over_tcp=hosts is not None)
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
        if self._fronts is not None:
            self._fronts.describe(self.model, patience)

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
        fronts: Path | None = None,
        **settings: Unpack[EngineSettings],
    ) -> Self:
        """As `LocalPartitions.from_checkpoint`."""
        options, saved = choose_options(options, settings), SavedSet.find(directory, seq)
        return cls(
            saved.schema,
            model,
            saved.owners,
            options,
            patience=patience,
            hosts=hosts,
            saved=saved,
            fronts=fronts,
        )

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
        fronts: Path | None = None,
        **settings: Unpack[EngineSettings],
    ) -> Self:
        """As `LocalPartitions.from_graph`. All parts are made in this process first, and handed over in
        files."""
        options = choose_options(options, settings)
        parts = LocalPartitions.from_graph(graph, model, owners, options, state=state)
        return cls.from_local(parts, patience=patience, hosts=hosts, fronts=fronts)

    @classmethod
    def from_local(
        cls,
        parts: LocalPartitions,
        *,
        patience: Patience | None = None,
        hosts: Hosts | None = None,
        fronts: Path | None = None,
    ) -> Self:
        """Moves parts of this process into processes of their own, through files, and closes them here.

        Raises the errors of the constructor, and as `Partitions.write`.
        """
        with TemporaryDirectory() as folder:
            try:
                parts.write(folder)
            finally:
                parts.close()
            return cls.from_checkpoint(
                folder, parts.model, parts.options, patience=patience, hosts=hosts, fronts=fronts
            )

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
                    fronts=None if self._fronts is None else self._fronts.orders,
                    patience=asdict(patience),
                )
                process.tell(orders.model_dump_json())
            if sender is not None:
                sender.send(keys, patience)

    def _connect(self, file: int | None, patience: Patience) -> "tuple[Sequence[RemoteReader], Crew]":
        """Gives each process the places of the others. file: the memory that all share."""
        begun = [hear_begun(process) for process in self.processes]
        if self._fronts is not None:
            self._fronts.parts = [said.front for said in begun if said.front is not None]
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
        self._fronts, other._fronts = other._fronts, self._fronts
        if self._fronts is not None and other._fronts is not None:
            self._fronts.follow(other._fronts)

    def announce(self) -> None:
        if self._fronts is not None:
            self._fronts.announce()

    def close(self) -> None:
        """Ends parts and processes."""
        lost = [part.find_loss() is not None for part in self.parts]
        if self._fronts is not None:
            self._fronts.withdraw()
        super().close()
        for process, is_lost in zip(self.processes, lost, strict=True):
            if is_lost:
                process.kill()
            process.end(_END_SECONDS)
