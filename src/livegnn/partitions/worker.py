"""A process with one part of a graph and its engine: `python -m livegnn.partitions.worker`.

It reads one line of JSON, its orders, from its standard input, writes one with its addresses to its standard
output, and reads one with those of the others. Then it serves its leader over three channels: batches over
one, reads over the second, and the questions of samples (`questions.py`) over the third. It ends when the
leader closes the first, or its standard input, as the system does if the leader is killed.

A batch is a turn of the channel to the leader, in four rounds:

    0  leader ─► worker   the events
       (rounds between the workers of all parts)
    1  worker ─► leader   its vote: it can commit, or an error
    2  leader ─► worker   the decision
    3  worker ─► leader   the outcome, if it was to commit
"""

import json
import math
import signal
import sys
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, TextIO

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
from livegnn.partitions.letters import Letter, open_letter, seal
from livegnn.partitions.orders import Orders, Plan
from livegnn.partitions.questions import Answers
from livegnn.partitions.rounds import ChannelRounds
from livegnn.partitions.sets import SavedSet, write_part
from livegnn.schema import Schema
from livegnn.types import JSON

LEADER: Final = 0
"""The number of the leader in its channels to a worker, whose own number there is 1."""
WORKER: Final = 1


class LeaderLostError(Exception):
    """The leader has closed its channel, or is lost."""


class PartWorker:
    """Serves a leader with a part of a graph. `batches`, `reads`, `samples`: channels to the leader. others:
    the channel to the workers of the other parts."""

    def __init__(
        self,
        graph: Graph,
        engine: Engine,
        batches: Channel,
        reads: Channel,
        samples: Channel,
        others: Channel,
    ) -> None:
        self._graph, self._engine, self._batches, self._reads = graph, engine, batches, reads
        self._samples = samples
        self._rounds, self._number = ChannelRounds(others), others.number
        self._exchange = _core.CalledExchange(len(others.peers) + 1, self._rounds)
        self._exchange.join(engine.core.native)

    def serve(self) -> None:
        """Returns when the leader has closed the channel of batches."""
        reading = Background(self._serve_reads, "livegnn-part-reads")
        reading.start()
        answers = Answers(self._graph, chosen_threads(self._engine.options.threads))
        Background(partial(answers.serve, self._samples, LEADER), "livegnn-part-samples").start()
        turn = 0
        with suppress(LeaderLostError):
            while True:
                turn += 1
                self._apply(turn, self._swap(turn, 0))

    def _swap(self, turn: int, number: int, letter: Letter | None = None) -> Letter:
        sections = {} if letter is None else {LEADER: seal(letter)}
        try:
            received = self._batches.swap(Round(turn, 0, number), sections)[LEADER]
        except ChannelError as error:
            raise LeaderLostError from error
        return open_letter(received) if received else Letter({})

    def _apply(self, turn: int, order: Letter) -> None:
        seq, trusted = order.content["seq"], order.content["trusted"]
        assert isinstance(seq, int)
        self._rounds.begin(turn, seq)

        def vote(_: object) -> None:
            self._swap(turn, 1, Letter({}))
            if not self._swap(turn, 2).content["commit"]:
                raise GivenUpError

        placed = order.content.get("placed", {})
        assert isinstance(placed, dict)
        try:
            for node_type, owners in placed.items():
                _core.give_owners(self._graph.native, int(node_type), np.array(owners, np.uint16))
            self._graph.apply(
                Events.from_bytes(order.payload), seq=seq, on_staged=vote, trusted=bool(trusted)
            )
        except GivenUpError:
            return
        except LeaderLostError:
            raise
        except Exception as error:
            self._rounds.give_up(f"{type(error).__name__}: {error}")
            follows = isinstance(error, ChannelError)
            self._swap(
                turn, 1, Letter({"error": type(error).__name__, "text": str(error), "follows": follows})
            )
            self._swap(turn, 2)
            return
        changed, _, work = self._engine.core.view.outcome()
        done: dict[str, JSON] = {
            "affected": work[0],
            "ends": _core.ends_of_edges(self._graph.native).tolist(),
        }
        self._swap(turn, 3, Letter(done, np.asarray(changed, np.int64).tobytes()))

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
    number, parts = orders.number, orders.parts
    owners = [rule.owners().native for rule in orders.rules]
    options = EngineOptions(threads=orders.threads, non_finite=orders.non_finite)
    if orders.saved is None:
        graph = make_part(Schema.from_json(orders.table), owners, number, threads=orders.threads)
        state = None
    else:
        saved = SavedSet(Path(orders.saved), orders.seq)
        graph, state = saved.restore_part(number, threads=orders.threads)
    engine = Engine(graph, Model.load(orders.model), options, state=state)
    listener = Listener(number, dict.fromkeys(range(number + 1, parts)))
    sys.stdout.write(json.dumps(listener.addresses) + "\n")
    sys.stdout.flush()
    plan = Plan.model_validate_json(sys.stdin.readline())
    patience = Patience(**plan.patience)
    others = listener.connect(plan.find_peers(), plan.terms, patience=patience)
    idle = replace(patience, round_seconds=math.inf)  # there may be any time between two batches, or reads
    batches, reads, samples = (
        Listener(WORKER, {}).connect({LEADER: Peer(address=address)}, plan.terms, patience=idle)
        for address in (plan.batches, plan.reads, plan.samples)
    )
    Background(partial(_close_at_end_of, sys.stdin, batches), "livegnn-part-leader").start()
    try:
        PartWorker(graph, engine, batches, reads, samples, others).serve()
    finally:
        for channel in (batches, reads, samples, others):
            channel.close()


def _close_at_end_of(stream: TextIO, channel: Channel) -> None:
    stream.read()
    channel.close()


if __name__ == "__main__":
    main()
