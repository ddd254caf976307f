"""Parts of a graph in processes of their own, on this machine."""

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, Unpack, cast

import numpy as np

import livegnn
import livegnn._core as _core
from livegnn.channels.channel import Channel, Round
from livegnn.channels.errors import ChannelError
from livegnn.channels.health import Patience
from livegnn.channels.plan import Peer
from livegnn.channels.zmq import Listener, ZmqChannel
from livegnn.errors import InputError, WorkerUnavailableError, as_value
from livegnn.events import Events
from livegnn.graph import Graph
from livegnn.graph.division import make_part
from livegnn.inference import EngineOptions
from livegnn.inference.native_engine import lay_out
from livegnn.inference.options import EngineSettings, choose_options
from livegnn.network import Model
from livegnn.partitions.ballot import error_of
from livegnn.partitions.crew import Crew, ThreadCrew
from livegnn.partitions.divided import Partitions
from livegnn.partitions.fitting import owners_of_types, refuse_unfit
from livegnn.partitions.leaders import LEADER, WORKER, Message, SharedMemory
from livegnn.partitions.letters import Letter, open_letter, seal
from livegnn.partitions.local import LocalPartitions
from livegnn.partitions.orders import Orders, Plan, Rule
from livegnn.partitions.part import Outcome, Placed
from livegnn.partitions.questions import Answer, Questions
from livegnn.partitions.sets import SavedSet
from livegnn.partitions.shared import SharedCrew, has_shared_memory, shared_file
from livegnn.placement import Owners
from livegnn.schema import Schema
from livegnn.types import JSON, FloatArray, Ids, NodeType, State

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from jaxtyping import Float32

    from livegnn.channels.frames import Buffer, Section

_END_SECONDS: Final = 10.0
_COMMAND: Final = ("-m", "livegnn.partitions.worker")
_TERMS: Final = {"version": livegnn.__version__, "instruction_set": _core.instruction_set}


class RemoteReader:
    """A part in another process, by its channels for reads and for samples (`worker.py`). silent_seconds:
    until it is lost.
    """

    def __init__(
        self,
        number: int,
        process: "subprocess.Popen[str]",
        reads: ZmqChannel,
        samples: ZmqChannel,
        *,
        silent_seconds: float,
    ) -> None:
        self._number, self._process, self._reads = number, process, reads
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
            if (status := self._process.poll()) is not None:
                raise ChannelError(f"the end of its process, with {status}")
            received = channel.swap(round, sections)[WORKER]
        except ChannelError as error:
            self._lost = as_value(error)
            raise WorkerUnavailableError(
                f"part {self._number} must answer, got {error}: start all parts again"
            ) from error
        return open_letter(received) if received else Letter({})

    def _ask(self, question: Letter) -> Letter:
        with self._reading:
            self._asked += 1
            self._over(self._reads, Round(self._asked, 0, 0), {WORKER: seal(question)})
            return self._over(self._reads, Round(self._asked, 0, 1), {})

    def predict(self, ids: Ids, output: str | None) -> "Float32[FloatArray, 'ids channels']":
        answer = self._ask(Letter({"output": output}, np.asarray(ids, np.int64).tobytes()))
        return np.frombuffer(answer.payload, np.float32).reshape(
            len(ids), cast("int", answer.content["width"])
        )

    def memory(self) -> dict[str, int]:
        return cast("dict[str, int]", dict(self._ask(Letter({"memory": True})).content))

    def find_loss(self) -> str | None:
        silent = self._reads.report().links[WORKER].silent_seconds
        if (status := self._process.poll()) is not None:
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
        answer = self._ask(Letter({"write": str(path.absolute()), "mark": mark})).content
        if "failed" in answer:
            raise OSError(f"part {self._number} could not write its file: {answer['failed']}")

    def close(self) -> None:
        self._reads.close()
        self._questions.close()


class RemotePart(RemoteReader):
    """The same, with a channel for batches."""

    def __init__(
        self,
        number: int,
        process: "subprocess.Popen[str]",
        reads: ZmqChannel,
        samples: ZmqChannel,
        batches: ZmqChannel,
        *,
        silent_seconds: float,
    ) -> None:
        super().__init__(number, process, reads, samples, silent_seconds=silent_seconds)
        self._batches = batches
        self._turn = 0

    def apply(
        self, events: Events, seq: int, vote: "Callable[[], None]", placed: Placed, *, trusted: bool
    ) -> Outcome:
        self._turn += 1
        content: dict[str, JSON] = {"seq": seq, "trusted": trusted}
        if placed:
            content["placed"] = {str(number): owners.tolist() for number, owners in placed.items()}
        self._swap(Message.ORDER, Letter(content, events.to_bytes()))
        voted = self._swap(Message.VOTE).content
        try:
            if "error" in voted:
                raise error_of(voted)
            vote()
        except BaseException:
            self._swap(Message.DECISION, Letter({"commit": False}))
            raise
        self._swap(Message.DECISION, Letter({"commit": True}))
        done = self._swap(Message.OUTCOME)
        ends = np.array(done.content["ends"], np.int64)
        return Outcome(np.frombuffer(done.payload, np.int64), cast("int", done.content["affected"]), ends)

    def give_up(self) -> None:
        """Does nothing: the worker has told the others."""

    def _swap(self, message: Message, letter: Letter | None = None) -> Letter:
        sections = {} if letter is None else {WORKER: seal(letter)}
        return self._over(self._batches, Round(self._turn, 0, message), sections)

    def close(self) -> None:
        self._batches.close()
        super().close()


class RemotePartitions(Partitions):
    """The same as `LocalPartitions`, with each part in a process of its own on this machine.

    names: an empty graph that knows all nodes and keeps no edges, by default a new one. patience: with
    which lost processes are found. shares_memory: whether batches are exchanged over memory that all
    processes share, or over ZeroMQ; by default over memory, where the system has what that needs. saved: a
    checkpoint, with which the parts begin; by default they are empty.

    Raises the errors of `LocalPartitions`, `InputError` for text ids, and `WorkerUnavailableError` if a
    process does not start.
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
        shares_memory: bool | None = None,
        saved: SavedSet | None = None,
        **settings: Unpack[EngineSettings],
    ) -> None:
        options, patience = choose_options(options, settings), patience or Patience()
        refuse_unfit(model, schema, options, owners)
        if schema.text_ids:
            raise InputError("parts in other processes need ids that are integers, got text_ids=True")
        rules = list(owners_of_types(owners, schema).values())
        self._saved: Final = saved
        if saved is not None:
            names = saved.restore_names()
        elif names is None:
            names = make_part(schema, [rule.native for rule in rules], None, threads=1)
        lay_out(names, model, options)  # raises, before processes are started
        with tempfile.TemporaryDirectory(prefix="livegnn-") as folder:
            path = Path(folder, "model.lgnn")
            model.save(path)
            shares = has_shared_memory() if shares_memory is None else shares_memory
            with shared_file(rules[0].workers) if shares else nullcontext() as file:
                self.processes: Final = [_start(file) for _ in range(rules[0].workers)]
                try:
                    self._order(schema, path, rules, options, shares_memory=file is not None)
                    parts, crew = self._connect(file, patience)
                except BaseException:
                    for process in self.processes:
                        with process:
                            process.kill()
                    raise
        super().__init__(names, model, options, rules, parts, crew)

    @classmethod
    def from_checkpoint(
        cls,
        directory: "Path | str",
        model: Model,
        options: EngineOptions | None = None,
        *,
        seq: int | None = None,
        patience: Patience | None = None,
        **settings: Unpack[EngineSettings],
    ) -> Self:
        """As `LocalPartitions.from_checkpoint`. A process whose file is damaged says so in its standard
        error, and ends; then it raises `WorkerUnavailableError`."""
        options, saved = choose_options(options, settings), SavedSet.find(directory, seq)
        return cls(saved.schema, model, saved.owners, options, patience=patience, saved=saved)

    @classmethod
    def from_graph(
        cls,
        graph: Graph,
        model: Model,
        owners: Owners | Mapping[NodeType, Owners],
        options: EngineOptions | None = None,
        *,
        state: State | None = None,
        patience: Patience | None = None,
        **settings: Unpack[EngineSettings],
    ) -> Self:
        """As `LocalPartitions.from_graph`. All parts are made in this process first, and handed over in
        files."""
        options = choose_options(options, settings)
        with tempfile.TemporaryDirectory(prefix="livegnn-") as folder:
            parts = LocalPartitions.from_graph(graph, model, owners, options, state=state)
            try:
                parts.write(folder)
            finally:
                parts.close()
            del parts
            return cls.from_checkpoint(folder, model, options, patience=patience)

    def _order(
        self,
        schema: Schema,
        model: Path,
        rules: list[Owners],
        options: EngineOptions,
        *,
        shares_memory: bool,
    ) -> None:
        """Gives each process its orders."""
        for number, process in enumerate(self.processes):
            orders = Orders(
                number=number,
                parts=len(self.processes),
                rules=[Rule.of(each) for each in rules],
                table=schema.to_json(),
                model=str(model),
                threads=options.threads,
                shares_memory=shares_memory,
                non_finite=options.non_finite,
                saved=None if self._saved is None else str(self._saved.directory.absolute()),
                seq=0 if self._saved is None else self._saved.seq,
            )
            _tell(process, orders)

    def _connect(self, file: int | None, patience: Patience) -> "tuple[Sequence[RemoteReader], Crew]":
        """Gives each process the places of the others. file: the memory that all share."""
        addresses = [_hear(process) for process in self.processes]
        pids = [*(process.pid for process in self.processes), os.getpid()]
        memory = None if file is None else SharedMemory(file=file, pids=pids)
        listeners = []
        for number, process in enumerate(self.processes):
            its = [Listener(LEADER, {WORKER: None}) for _ in range(3 if memory is None else 2)]
            listeners.append(its)
            ours = [one.addresses[WORKER] for one in its]
            plan = Plan(
                terms=_TERMS,
                reads=ours[0],
                samples=ours[1],
                batches=ours[2] if memory is None else None,
                peers={peer: found.get(number) for peer, found in enumerate(addresses) if peer != number},
                memory=memory,
                patience=asdict(patience),
            )
            _tell(process, plan)
        kind = RemotePart if memory is None else RemoteReader
        parts: list[Any] = [
            kind(
                number,
                process,
                *(one.connect({WORKER: Peer()}, _TERMS, patience=patience) for one in its),
                silent_seconds=patience.silent_seconds,
            )
            for number, (process, its) in enumerate(zip(self.processes, listeners, strict=True))
        ]
        if memory is None:
            return parts, ThreadCrew(parts, lambda: None)
        return parts, SharedCrew(memory, patience, lambda part, got: parts[part].lose(got))

    def close(self) -> None:
        """Ends parts and processes."""
        lost = [part.find_loss() is not None for part in self.parts]
        super().close()
        for process, is_lost in zip(self.processes, lost, strict=True):
            if is_lost:
                process.kill()
            with process:  # closes its streams
                try:
                    process.wait(_END_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()


def _start(file: int | None) -> "subprocess.Popen[str]":
    """file: a descriptor that it also has, with the same number."""
    return subprocess.Popen(
        [sys.executable, *_COMMAND],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=() if file is None else (file,),
        text=True,
    )


def _tell(process: "subprocess.Popen[str]", content: Orders | Plan) -> None:
    assert process.stdin is not None
    process.stdin.write(content.model_dump_json() + "\n")
    process.stdin.flush()


def _hear(process: "subprocess.Popen[str]") -> dict[int, str]:
    """The addresses at which a worker listens, by the number of the one that connects."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise WorkerUnavailableError(
            f"the process of a part must say its addresses, and ended with {process.wait()}: the standard "
            "error has its messages"
        )
    return {int(number): address for number, address in json.loads(line).items()}
