"""A process with one part of a graph and its engine: `python -m livegnn.partitions.worker`.

It reads one line of JSON, its orders, from its standard input, writes one with its addresses to its standard
output, and reads one with those of the others. Then it applies the batches of its leader (`leaders.py`), and
answers reads and the questions of samples (`questions.py`) over a channel for each. It ends when its leader
does, or is killed.
"""

import json
import math
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TextIO

import numpy as np

import livegnn._core as _core
from livegnn.arguments import chosen_threads
from livegnn.channels.channel import Channel, Round
from livegnn.channels.errors import ChannelError
from livegnn.channels.health import Patience
from livegnn.channels.plan import Peer
from livegnn.channels.zmq import Listener
from livegnn.errors import InputError
from livegnn.events import Events
from livegnn.graph import Graph
from livegnn.graph.division import make_part
from livegnn.inference import Engine, EngineOptions
from livegnn.interrupts import Background
from livegnn.network import Model
from livegnn.partitions.ballot import GivenUpError
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
from livegnn.partitions.orders import Orders, Plan
from livegnn.partitions.packed import Order
from livegnn.partitions.part import Outcome
from livegnn.partitions.questions import Answers
from livegnn.partitions.sets import SavedSet, write_part
from livegnn.schema import Schema


class PartWorker:
    """Serves a leader with a part of a graph, by its number. `reads`, `samples`: channels to the leader."""

    def __init__(
        self, number: int, graph: Graph, engine: Engine, leader: Leader, reads: Channel, samples: Channel
    ) -> None:
        self._number = number
        self._graph, self._engine, self._leader = graph, engine, leader
        self._reads, self._samples = reads, samples
        leader.join(engine.core.native)

    def serve(self) -> None:
        """Returns when the leader has ended."""
        reading = Background(self._serve_reads, "livegnn-part-reads")
        reading.start()
        answers = Answers(self._graph, chosen_threads(self._engine.options.threads))
        Background(partial(answers.serve, self._samples, LEADER), "livegnn-part-samples").start()
        with suppress(LeaderLostError):
            while True:
                self._apply(self._leader.wait_for_order())

    def _apply(self, order: Order) -> None:
        native = self._graph.native
        try:
            for node_type, owners in order.placed.items():
                _core.give_owners(native, node_type, owners)
            events = Events.from_bytes(order.payload)
            self._graph.apply(events, seq=order.seq, on_staged=self._vote, trusted=order.trusted)
        except GivenUpError:
            return
        except LeaderLostError:
            raise
        except Exception as error:
            self._leader.refuse(error)
            return
        changed, _, work = self._engine.core.view.outcome()
        self._leader.report(Outcome(changed, work[0], _core.ends_of_edges(native)))

    def _vote(self, _: object) -> None:
        self._leader.vote()

    def _serve_reads(self) -> None:
        turn = 0
        while True:
            turn += 1
            try:
                asked = open_letter(self._reads.swap(Round(turn, 0, 0), {})[LEADER])
                self._reads.swap(Round(turn, 0, 1), {LEADER: seal(self._answer(asked))})
            except ChannelError:
                return

    def _answer(self, asked: Letter) -> Letter:
        if "memory" in asked.content:
            return Letter(dict(self._engine.memory()))
        if "write" in asked.content:
            try:
                path, mark = Path(str(asked.content["write"])), str(asked.content["mark"])
                write_part(path, self._number, self._graph, self._engine, mark)
            except (InputError, OSError) as error:
                return Letter({"failed": str(error)})
            return Letter({})
        output = asked.content["output"]
        assert output is None or isinstance(output, str)
        rows = self._engine.predict(np.frombuffer(asked.payload, np.int64), output=output)
        return Letter({"width": rows.shape[1]}, np.ascontiguousarray(rows, np.float32).tobytes())


def main() -> None:
    """Reads orders, makes the part, connects to all and serves."""
    for sent in (signal.SIGINT, signal.SIGTERM):
        signal.signal(sent, signal.SIG_IGN)  # of a group of processes: their leader ends its workers
    orders = Orders.model_validate_json(sys.stdin.readline())
    owners = [rule.owners().native for rule in orders.rules]
    options = EngineOptions(threads=orders.threads, non_finite=orders.non_finite)
    if orders.saved is None:
        graph = make_part(Schema.from_json(orders.table), owners, orders.number, threads=orders.threads)
        state = None
    else:
        saved = SavedSet(Path(orders.saved), orders.seq)
        graph, state = saved.restore_part(orders.number, threads=orders.threads)
    engine = Engine(graph, Model.load(orders.model), options, state=state)
    with _join_plan(orders) as (leader, reads, samples):
        PartWorker(orders.number, graph, engine, leader, reads, samples).serve()


@contextmanager
def _join_plan(orders: Orders) -> Iterator[tuple[Leader, Channel, Channel]]:
    """Connects to the leader, and to the other parts. Returns the leader, and the channels of reads and of
    samples.
    """
    later = () if orders.shares_memory else range(orders.number + 1, orders.parts)
    listener = Listener(orders.number, dict.fromkeys(later))
    sys.stdout.write(json.dumps(listener.addresses) + "\n")
    sys.stdout.flush()
    plan = Plan.model_validate_json(sys.stdin.readline())
    patience = Patience(**plan.patience)
    idle = replace(patience, round_seconds=math.inf)  # there may be any time between two batches, or reads
    with ExitStack() as open_ones:

        def connect(address: str) -> Channel:
            peers = {LEADER: Peer(address=address)}
            channel = Listener(WORKER, {}).connect(peers, plan.terms, patience=idle)
            open_ones.callback(channel.close)
            return channel

        leader: Leader
        if plan.memory is not None:
            lanes = open_lanes(plan.memory, orders.number, patience)
            open_ones.callback(lanes.close)
            leader = SharedLeader(lanes, orders.parts)
            reads, samples = map(connect, (plan.reads, plan.samples))
        else:
            assert plan.batches is not None
            others = listener.connect(plan.find_peers(), plan.terms, patience=patience)
            open_ones.callback(others.close)
            # In the order in which the leader waits for them.
            reads, samples, batches = map(connect, (plan.reads, plan.samples, plan.batches))
            Background(partial(_close_at_end_of, sys.stdin, batches), "livegnn-part-leader").start()
            leader = ChannelLeader(batches, others)
        yield leader, reads, samples


def _close_at_end_of(stream: TextIO, channel: Channel) -> None:
    stream.read()
    channel.close()


if __name__ == "__main__":
    main()
