"""A process with one part of a graph and its engine: `python -m livegnn.partitions.worker`.

It writes its terms to its standard output, reads its orders from its standard input, writes its addresses,
and reads those of the others (`orders.py`). Then it applies the batches of its leader (`leaders.py`), and
answers reads and the questions of samples (`questions.py`) over a channel for each, and perhaps the reads of
fronts (`direct_reads.py`). It ends when its leader does, or is killed.
"""

import math
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import RLock
from typing import TextIO

import numpy as np

import livegnn._core as _core
from livegnn.arguments import chosen_threads
from livegnn.channels.channel import Channel, Round
from livegnn.channels.errors import BatchAborted, ChannelError
from livegnn.channels.health import Patience
from livegnn.channels.plan import Peer
from livegnn.channels.requests import Requests
from livegnn.channels.zmq import Listener
from livegnn.errors import FileFormatError, InputError
from livegnn.events import Events
from livegnn.graph import Claim, Graph, Transaction, auto_add_nodes
from livegnn.graph.division import make_part
from livegnn.inference import Engine, EngineOptions
from livegnn.interrupts import Background
from livegnn.partitions.ballot import GivenUpError
from livegnn.partitions.direct_reads import DirectReads
from livegnn.partitions.edge_columns import EDGES, AskedEdges
from livegnn.partitions.edges import Counts, expired_of
from livegnn.partitions.files import fetched_files, read_piece
from livegnn.partitions.leaders import (
    LEADER,
    WORKER,
    ChannelLeader,
    Leader,
    LeaderLostError,
    SharedLeader,
    open_lanes,
)
from livegnn.partitions.letters import Letter, open_letter, seal
from livegnn.partitions.orders import CHANNELS, Begun, Hello, Orders, Plan, decode_model, own_terms
from livegnn.partitions.packed import Order
from livegnn.partitions.part import Outcome, give_placed, suppose
from livegnn.partitions.places import PartPlace
from livegnn.partitions.questions import Answers
from livegnn.partitions.reads import RowAnswers
from livegnn.partitions.sets import SavedSet, write_part
from livegnn.partitions.shares import SHARE, ShareWriting
from livegnn.partitions.texts import NumberedIds, load_numbers
from livegnn.partitions.writing import Writing
from livegnn.schema import Schema
from livegnn.temporary_directory import TemporaryDirectory
from livegnn.types import State


class PartWorker:
    """Serves a leader with a part of a graph, by its number. `reads`, `samples`: channels to the leader.
    requests: the socket for fronts; None if it answers none."""

    def __init__(
        self,
        number: int,
        graph: Graph,
        engine: Engine,
        leader: Leader,
        reads: Channel,
        samples: Channel,
        requests: Requests | None,
    ) -> None:
        self._number = number
        self._graph, self._engine, self._leader = graph, engine, leader
        self._reads, self._samples, self._requests = reads, samples, requests
        self._visible = RLock()  # while a batch becomes visible
        self._claim = Claim(self, self._visible)
        self._rows = RowAnswers(graph, engine, self._visible)
        leader.join(engine.core)
        self._writing: Writing | None = None
        self._sharing: ShareWriting | None = None
        self._file = Path()  # that is written, in a folder of this process if the leader does not see it
        self._own: TemporaryDirectory | None = None

    def serve(self) -> None:
        """Returns when the leader has ended."""
        reading = Background(self._serve_reads, "livegnn-part-reads")
        reading.start()
        answers = Answers(self._graph, chosen_threads(self._engine.options.threads))
        Background(partial(answers.serve, self._samples, LEADER), "livegnn-part-samples").start()
        if self._requests is not None:
            direct = DirectReads(self._number, self._graph, self._engine, self._visible, self._requests)
            Background(direct.serve, "livegnn-part-fronts").start()
        with suppress(LeaderLostError):
            while True:
                self._apply(self._leader.wait_for_order())

    def _apply(self, order: Order) -> None:
        supposed = None
        try:
            give_placed(self._graph, order.placed)
            events, asked = Events.from_bytes(order.payload), order.asked
            if asked is None:
                Transaction(
                    self._graph.core,
                    self._graph.views,
                    events,
                    seq=order.seq,
                    on_staged=self._vote,
                    trusted=order.trusted,
                    claim=self._claim,
                ).run()
            else:
                supposed = suppose(self._engine, events, asked.numbers, asked.output)
                self._leader.vote()
        except GivenUpError:
            return
        except LeaderLostError:
            raise
        except Exception as error:
            self._leader.refuse(error)
            return
        self._leader.report(self._outcome() if supposed is None else supposed)

    def _outcome(self) -> Outcome:
        changed, _, work = self._engine.core.view.outcome()
        return Outcome(changed, work[0], _core.ends_of_edges(self._graph.native))

    def _vote(self, _: object) -> None:
        self._leader.vote()

    def _serve_reads(self) -> None:
        turn = 0
        while True:
            turn += 1
            try:
                asked = open_letter(self._reads.swap(Round(turn, 0, 0), {})[LEADER])
                self._reads.swap(Round(turn, 0, 1), {LEADER: seal(self._answer(asked))})
            except BatchAborted:
                continue  # an exception has kept the leader from this turn, and it asks in another
            except ChannelError:
                return

    def _answer(self, asked: Letter) -> Letter:
        if "memory" in asked.content:
            return Letter(dict(self._engine.memory()))
        if "counts" in asked.content:
            return Letter(Counts.of(self._engine)._asdict())
        if "expired" in asked.content:
            edge_type, horizon = asked.content["expired"], asked.content["horizon"]
            assert isinstance(edge_type, int)
            assert isinstance(horizon, float)
            return Letter({}, expired_of(self._graph, edge_type, horizon).tobytes())
        if "write" in asked.content:
            where, mark = asked.content["write"], str(asked.content["mark"])
            if where is None:
                self._own = TemporaryDirectory()
                where = str(self._own.path / "part.lgck")
            self._file = Path(str(where))
            write = partial(write_part, self._file, self._number, self._graph, self._engine, mark)
            self._writing = Writing(write)
            return Letter({})
        if SHARE in asked.content:
            if asked.content[SHARE] is None:
                assert self._sharing is not None
                return self._sharing.answer()
            self._sharing = ShareWriting(self._graph, self._number, asked.content)
            self._writing = self._sharing.writing
            return Letter({})
        if "piece" in asked.content:
            begin = asked.content["piece"]
            assert isinstance(begin, int)
            piece = read_piece(self._file, begin)
            if not piece.content["more"] and self._own is not None:
                self._own.close()
            return piece
        if "written" in asked.content:
            assert self._writing is not None
            return Letter(self._writing.report())
        if EDGES in asked.content:
            columns = self._rows.read_edges(AskedEdges.unpack(asked))
            return Letter({}) if columns is None else columns.pack()
        output, commits = asked.content["output"], asked.content["commits"]
        assert output is None or isinstance(output, str)
        assert isinstance(commits, int)
        found = self._rows.predict(np.frombuffer(asked.payload, np.int64), output, commits)
        if found is None:
            return Letter({})
        rows = np.ascontiguousarray(found.values, np.float32)
        return Letter({"rows": [found.seq, rows.shape[1]]}, rows.tobytes())


def main() -> None:
    """Reads orders, makes the part, connects to all and serves."""
    for sent in (signal.SIGINT, signal.SIGTERM):
        signal.signal(sent, signal.SIG_IGN)  # of a group of processes: their leader ends its workers
    fetching = Listener(WORKER, {})
    _say(Hello(terms=own_terms(), key=fetching.key).model_dump_json())
    orders = Orders.model_validate_json(sys.stdin.readline())
    options = EngineOptions(threads=orders.threads, non_finite=orders.non_finite)
    try:
        graph, state = _begin(orders, fetching)
        engine = Engine(graph, decode_model(orders.model), options, state=state)
        listener = _listen(orders)
        fronts = orders.fronts
        requests = None if fronts is None else Requests(orders.interface, fronts.key)
    except FileFormatError as error:
        _say(Begun(failed=str(error)).model_dump_json())
        return
    except (ChannelError, InputError) as error:
        _say(Begun(refused=str(error)).model_dump_json())
        return
    fetching.close()
    with _join_plan(orders, listener, requests) as (leader, reads, samples):
        PartWorker(orders.number, graph, engine, leader, reads, samples, requests).serve()


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _listen(orders: Orders) -> Listener:
    """For the other parts. Raises `InputError` if this machine does not have the address."""
    later = () if orders.shares_memory else range(orders.number + 1, orders.parts)
    return Listener(orders.number, dict.fromkeys(later, orders.interface))


@contextmanager
def _join_plan(
    orders: Orders, listener: Listener, requests: Requests | None
) -> Iterator[tuple[Leader, Channel, Channel]]:
    """Connects to the leader, and to the other parts. Returns the leader, and the channels of reads and of
    samples.
    """
    callers = [Listener(WORKER, {}) for _ in CHANNELS]  # their keys are made, and they connect to the leader
    begun = Begun(
        addresses=listener.addresses,
        key=listener.key,
        keys=[one.key for one in callers],
        front=None if requests is None else PartPlace(address=requests.address, key=requests.key),
    )
    _say(begun.model_dump_json())
    plan = Plan.model_validate_json(sys.stdin.readline())
    patience = Patience(**orders.patience)
    idle = replace(patience, round_seconds=math.inf)  # there may be any time between two batches, or reads
    # A leader that was suspended goes on to read; the end of one that is lost is found by its batches.
    reading = replace(idle, silent_seconds=math.inf)
    terms = own_terms()
    with ExitStack() as open_ones:

        def connect(caller: Listener, peer: Peer, patience: Patience) -> Channel:
            channel = caller.connect({LEADER: peer}, terms, patience=patience)
            open_ones.callback(channel.close)
            return channel

        leader: Leader
        if plan.memory is not None:
            lanes = open_lanes(plan.memory, orders.number, patience)
            open_ones.callback(lanes.close)
            leader = SharedLeader(lanes, orders.parts)
            reads, samples = map(connect, callers, plan.leader, [reading] * 2)
        else:
            others = listener.connect(plan.peers, terms, patience=patience)
            open_ones.callback(others.close)
            reads, samples, batches = map(connect, callers, plan.leader, [reading, reading, idle])
            Background(partial(_close_at_end_of, sys.stdin, batches), "livegnn-part-leader").start()
            leader = ChannelLeader(batches, others)
        yield leader, reads, samples


def _begin(orders: Orders, fetching: Listener) -> tuple[Graph, State | None]:
    """The graph of the part, and the state of its engine if there is one. fetching: for its files. Raises
    `FileFormatError`."""
    schema = Schema.from_json(orders.table)
    if orders.saved is None:
        owners = [rule.owners().native for rule in orders.rules]
        return make_part(schema, owners, orders.number, ids=_ids(orders), threads=orders.threads), None
    with _find_files(orders, Path(orders.saved), fetching) as (path, numbered):
        saved = SavedSet(path)
        try:
            numbers = None if numbered is None else load_numbers(numbered)
        except (OSError, ValueError) as error:
            raise FileFormatError(f"{numbered} must have the numbers of texts: {error}") from error
        graph, state = saved.restore_part(
            orders.number, numbers=numbers, ids=_ids(orders), threads=orders.threads
        )
    auto_add_nodes(graph.core, schema.auto_add)  # which the leader may have added
    return graph, state


def _ids(orders: Orders) -> NumberedIds | None:
    return NumberedIds() if orders.text_ids else None


@contextmanager
def _find_files(orders: Orders, saved: Path, fetching: Listener) -> Iterator[tuple[Path, Path | None]]:
    """The file of names of a set, beside which is the file of the part, and that of the numbers of texts; all
    are fetched, where this machine does not see them."""
    numbers = None if orders.numbers is None else Path(orders.numbers)
    if orders.files is None:
        yield saved, numbers
        return
    channel = fetching.connect({LEADER: orders.files}, own_terms(), patience=Patience(**orders.patience))
    try:
        with fetched_files(channel, orders.fetched) as folder:
            channel.close()
            yield folder / saved.name, None if numbers is None else folder / numbers.name
    finally:
        channel.close()


def _close_at_end_of(stream: TextIO, channel: Channel) -> None:
    stream.read()
    channel.close()


if __name__ == "__main__":
    main()
