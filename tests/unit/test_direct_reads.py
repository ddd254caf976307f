"""The reads of fronts at a part, while a batch becomes visible there; and what a front remembers of them."""

import asyncio
import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

if "CI" not in os.environ:  # which installs all extras
    pytest.importorskip("zmq", reason="pyzmq is not installed: pip install 'livegnn[cluster]'")

from test_cut import PARTS, World, owner, row

from livegnn import Events, Graph
from livegnn.channels.channel import Channel
from livegnn.channels.requests import Request, Requests
from livegnn.graph import GraphDelta, View
from livegnn.partitions import LocalPartitions
from livegnn.partitions.direct_reads import UNKNOWN, Answer, DirectReads, Question
from livegnn.partitions.front import PartsFront
from livegnn.partitions.owner_table import OwnerTable
from livegnn.partitions.packed import Order
from livegnn.partitions.part import LocalPart, Outcome
from livegnn.partitions.worker import PartWorker
from livegnn.placement import Owners
from opcodes import is_free
from streams import make_arrays, make_model
from waiting import PATIENCE, wait_until

OWNERS = Owners("jump", 2)


def make_part(number: int = 0, parts: int = 2) -> LocalPart:
    graph = Graph.from_edges(**make_arrays())
    divided = LocalPartitions.from_graph(graph, make_model(), Owners("jump", parts), threads=1)
    return cast("LocalPart", divided.parts[number])


class Ended(Exception):
    """The end of a test."""


def serve(direct: DirectReads) -> None:
    with suppress(Ended):
        direct.serve()


class Asked:
    """Requests that a test makes, in place of a socket."""

    def __init__(self, *questions: Question) -> None:
        self._left = [
            Request(b"", b"%d" % at, [memoryview(frame) for frame in one.pack()])
            for at, one in enumerate(questions)
        ]
        self.taken, self.ended = threading.Event(), threading.Event()
        self.answers: dict[bytes, Answer] = {}

    def receive(self, seconds: float, most: int) -> list[Request]:
        if self.taken.is_set():
            if self.ended.wait(seconds):
                raise Ended
            return []
        self.taken.set()
        return self._left

    def answer(self, request: Request, frames: Sequence[bytes]) -> None:
        self.answers[request.number] = Answer.unpack([memoryview(frame) for frame in frames])


def test_a_question_waits_while_a_batch_becomes_visible() -> None:
    part, visible = make_part(), threading.RLock()
    asked = Asked(Question(None, 0, 0.0, np.arange(0, 6)), Question(None, 7, 1.0, np.array([99, 2])))
    direct = DirectReads(0, part.graph, part.engine, visible, cast("Requests", asked))
    thread = threading.Thread(target=serve, args=[direct])
    with visible:
        thread.start()
        assert asked.taken.wait(PATIENCE)
        part.graph.seq = 7
        assert not asked.answers
    wait_until(lambda: len(asked.answers) == 2)
    asked.ended.set()
    thread.join()
    first, second = asked.answers[b"0"], asked.answers[b"1"]
    owners = OWNERS.of_id(np.arange(6))
    assert (first.seq, first.owners.tolist()) == (7, owners.tolist())
    assert first.rows.tobytes() == part.engine.predict(np.arange(6)[owners == 0]).tobytes()
    assert (second.seq, second.owners.tolist()) == (7, [UNKNOWN, owners[2]])
    assert len(second.rows) == (owners[2] == 0)


def test_a_question_about_an_event_that_is_not_visible_is_answered_in_the_end() -> None:
    part = make_part()
    asked = Asked(Question(None, 9, 0.01, np.arange(6)))
    direct = DirectReads(0, part.graph, part.engine, threading.RLock(), cast("Requests", asked))
    thread = threading.Thread(target=serve, args=[direct])
    thread.start()
    wait_until(lambda: asked.answers)
    asked.ended.set()
    thread.join()
    assert (asked.answers[b"0"].seq, len(asked.answers[b"0"].rows)) == (0, 0)


class Leads:
    """A leader that commits each batch."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []

    def join(self, engine: object) -> None:
        """The part has joined its exchange."""

    def vote(self) -> None:
        """Agrees."""

    def refuse(self, error: Exception) -> None:
        raise error

    def wait_for_order(self) -> Order:
        raise NotImplementedError

    def report(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)


class Watch(View):
    name = "watch"

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.seen: list[tuple[int, bool]] = []
        self.lock = threading.RLock()
        graph.attach(self)

    def commit(self, change: GraphDelta) -> None:
        self.seen.append((self.graph.seq, is_free(self.lock)))


def test_a_part_holds_the_lock_while_a_batch_becomes_visible() -> None:
    part, leader, none = make_part(0, 1), Leads(), cast("Channel", None)
    worker = PartWorker(0, part.graph, part.engine, leader, none, none, None)
    watch = Watch(part.graph)
    watch.lock = worker._visible
    part._exchange.begin()
    worker._apply(Order(3, False, {}, Events().set_features([1], np.ones((1, 4))).to_bytes()))
    assert len(leader.outcomes) == 1
    assert watch.seen == [(3, False)]
    assert is_free(worker._visible)


def test_no_answer_of_a_front_is_of_an_earlier_event_than_one_before(tmp_path: Path) -> None:
    """Though another part may not show the batch yet."""
    world, front = World([]), PartsFront(tmp_path / "fronts.json")
    parts = SimpleNamespace(
        ask=world.ask, seqs=[0] * PARTS, owners=OwnerTable(PARTS), shown=0, places=SimpleNamespace(outputs={})
    )
    front._parts = parts  # type: ignore[assignment]
    first, second = (next(node for node in range(40) if owner(node, 1) == part) for part in (1, 2))
    for one in (first, second):
        asyncio.run(front.predict(np.array([one])))
    world.seqs = [1, 1, 0]
    found = asyncio.run(front.predict(np.array([first])))
    assert (found.seq, found.values.tolist()) == (1, [row(first, 1)])
    found = asyncio.run(front.predict(np.array([second])))
    assert (found.seq, found.values.tolist()) == (1, [row(second, 1)])
