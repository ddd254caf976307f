"""A part, or the leader of all, is killed or frozen at any message of a batch: nothing waits for ever."""

import itertools
import os
import selectors
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

if "CI" not in os.environ:  # which installs all extras
    pytest.importorskip("zmq", reason="pyzmq is not installed: pip install 'livegnn[cluster]'")

from gate import draws
from livegnn import Engine, Events, Graph, LiveGNNError
from livegnn.channels.health import Patience
from livegnn.errors import WorkerUnavailableError
from livegnn.graph import EdgeSchema, Schema
from livegnn.partitions import remote
from livegnn.partitions.processes import WORKER_MODULE, ChildProcess
from livegnn.partitions.remote import RemotePartitions
from livegnn.partitions.remote_part import RemoteReader
from livegnn.partitions.shared import has_shared_memory
from livegnn.placement import Owners
from streams import WIDTH, make_model
from waiting import PATIENCE

pytestmark = pytest.mark.skipif(not has_shared_memory(), reason="processes share no memory on this system")

TESTS = Path(__file__).parents[1]
SCHEMA = Schema({"node": WIDTH}, {("node", "to", "node"): EdgeSchema(weighted=True)})
OWNERS = Owners("modulo", 2)
IDS = np.arange(20)
HELD, LOST = (IDS[OWNERS.of_id(IDS) == part] for part in (0, 1))
LEADER = """
import os, sys
import numpy as np
from livegnn import Events
from livegnn.partitions.remote import RemotePartitions
from test_lost_parts import OWNERS, SCHEMA, batch, make_model

def stop(_):
    print(*[process.pid for process in parts.processes], flush=True)
    sys.stdin.read()

parts = RemotePartitions(SCHEMA, make_model(), OWNERS, threads=1)
parts.apply(batch(0), on_staged=stop)
"""


def batch(number: int) -> Events:
    rng = np.random.default_rng(number)
    events = Events()
    if not number:
        events.add_nodes(IDS, rng.normal(size=(len(IDS), WIDTH)))
    return events.add_edges(rng.choice(IDS, 40), rng.choice(IDS, 40), weight=rng.uniform(0.5, 2, 40))


def test_a_part_that_is_lost_at_any_message_ends_the_batch_and_no_read_of_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = Graph(SCHEMA, threads=1)
    engine = Engine(graph, make_model(), threads=1)
    rows = {}
    for number in range(2):
        graph.apply(batch(number))
        rows[graph.seq] = engine.predict(HELD).tobytes()
    for fault, step in ((signal.SIGKILL, draws(2, 1)), (signal.SIGSTOP, draws(3, 1))):
        for message in itertools.count(1, step):
            if survive(monkeypatch, message, fault, rows):
                break
        assert message > 3 + 3  # rounds, and a vote, a decision and an outcome


def error_of(apply: Callable[[], object]) -> LiveGNNError | None:
    try:
        apply()
    except LiveGNNError as error:
        return error
    return None


@pytest.mark.parametrize(
    "message", [3, *(pytest.param(message, marks=pytest.mark.explored) for message in (1, 6))]
)
def test_a_part_that_is_killed_within_a_what_if_ends_it_and_no_read_of_the_others(
    monkeypatch: pytest.MonkeyPatch, message: int
) -> None:
    parts = divide_with_fault(monkeypatch, message, signal.SIGKILL)
    try:
        parts.apply(batch(0))
        rows = parts.predict(HELD).tobytes()
        supposed = parts.what_if(batch(1))
        with pytest.raises(WorkerUnavailableError, match="part 1 must answer"):
            supposed.predict(HELD)
        assert parts.predict(HELD).tobytes() == rows
    finally:
        parts.processes[1].kill()
        parts.close()


def test_a_what_if_before_a_lost_part_is_replaced_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = divide_with_fault(monkeypatch, 7, signal.SIGKILL)  # the names show the batch already
    try:
        parts.apply(batch(0))
        before = parts.seq

        def make(seq: int) -> RemotePartitions:
            raise LiveGNNError(f"no process for parts at event {seq}")

        parts.replace_lost(make)
        with pytest.raises(LiveGNNError, match="was applied, but"):
            parts.apply(batch(1))
        assert parts.seq > before
        with pytest.raises(WorkerUnavailableError, match="part 1 must answer"):
            parts.what_if(batch(2)).predict(HELD)
    finally:
        parts.processes[1].kill()
        parts.close()


def divide_with_fault(monkeypatch: pytest.MonkeyPatch, message: int, fault: int) -> RemotePartitions:
    """Part 1 sends itself a signal at this message of its second batch."""

    def start(parts: int, file: int | None) -> list[ChildProcess]:
        faulty = str(TESTS / "faulty_part.py"), str(message), str(fault)
        programs = [WORKER_MODULE, faulty]
        assert parts == len(programs)
        return [ChildProcess(file=file, program=program) for program in programs]

    with monkeypatch.context() as patch:
        patch.setattr(remote, "start_children", start)
        patience = Patience(beat_seconds=0.05, silent_seconds=0.5)
        return RemotePartitions(SCHEMA, make_model(), OWNERS, threads=1, patience=patience)


def survive(monkeypatch: pytest.MonkeyPatch, message: int, fault: int, rows: dict[int, bytes]) -> bool:
    """Loses part 1 at this message of its second batch. Whether it has fewer. rows: of part 0, by seq."""
    parts = divide_with_fault(monkeypatch, message, fault)
    try:
        parts.apply(batch(0))
        before = parts.seq
        error = error_of(partial(parts.apply, batch(1)))
        assert parts.predict(HELD).tobytes() == rows[parts.seq]
        if error is None:
            return True
        assert "part 1 must answer" in str(error)
        assert isinstance(error, WorkerUnavailableError) == (parts.seq == before)
        with pytest.raises(WorkerUnavailableError, match="part 1 must answer"):
            parts.predict(LOST)
        with pytest.raises(LiveGNNError, match="part 1 must answer"):
            parts.apply(batch(2))
        return False
    finally:
        parts.processes[1].kill()
        parts.close()


def test_parts_whose_leader_is_killed_within_a_batch_end() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", LEADER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS / "faults"), *sys.path])},
    ) as leader:
        assert leader.stdout is not None
        ends = [os.pidfd_open(int(pid)) for pid in leader.stdout.readline().split()]
        assert len(ends) == 2
        leader.kill()
    for end in ends:
        with selectors.DefaultSelector() as waiting:
            waiting.register(end, selectors.EVENT_READ)
            assert waiting.select(PATIENCE)
        os.close(end)


def test_parts_answer_a_leader_that_was_suspended() -> None:
    """Its channels have sent nothing for four times the silence after which a peer is lost."""
    patience = Patience(beat_seconds=0.05, silent_seconds=0.3)
    parts = RemotePartitions(SCHEMA, make_model(), OWNERS, threads=1, patience=patience)
    try:
        parts.apply(batch(0))
        expected = parts.predict(HELD).tobytes()
        first = parts.parts[0]
        assert isinstance(first, RemoteReader)
        with first._reads._lock:
            threading.Event().wait(4 * patience.silent_seconds)
        assert parts.predict(HELD).tobytes() == expected
    finally:
        parts.close()
