"""A part is frozen or killed while it is to answer a read: only reads of its nodes wait, and end with it.

No part is lost by its silence here, so a read that waits for a frozen part by mistake waits for ever.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

if "CI" not in os.environ:  # which installs all extras
    pytest.importorskip("zmq", reason="pyzmq is not installed: pip install 'livegnn[cluster]'")

from test_lost_parts import IDS, SCHEMA, TESTS, batch
from test_replaced_parts import parts_of

import loopback
from divided_deployment import opened, write
from livegnn import Engine, Graph
from livegnn.channels.health import Patience
from livegnn.errors import WorkerUnavailableError
from livegnn.partitions import remote
from livegnn.partitions.processes import WORKER_MODULE, ChildProcess
from livegnn.partitions.remote import RemotePartitions
from livegnn.partitions.remote_part import RemoteReader
from livegnn.partitions.shared import has_shared_memory
from livegnn.placement import Owners
from livegnn.sampling import sample_neighbors
from livegnn.server import create_app
from processes import is_stopped
from scraped import scrape
from served import served
from streams import make_model
from waiting import PATIENCE, wait_until

OWNERS = Owners("modulo", 3)
OF = [IDS[OWNERS.of_id(IDS) == part] for part in range(3)]
FROZEN, OTHERS = OF[0], (OF[1], OF[2], np.concatenate(OF[1:]))
FOR_EVER = Patience(silent_seconds=10 * PATIENCE, round_seconds=10 * PATIENCE)
MOST_WAITING = 17
CROWD = 3  # readers that wait for the frozen part, also for one another


def rows_after(*batches: int) -> Callable[[np.ndarray], bytes]:
    """The predictions of one engine."""
    graph = Graph(SCHEMA, threads=1)
    engine = Engine(graph, make_model(), threads=1)
    for number in batches:
        graph.apply(batch(number))
    return lambda ids: engine.predict(ids).tobytes()


@contextmanager
def frozen(parts: RemotePartitions) -> Iterator[ThreadPoolExecutor]:
    """Freezes part 0, and threads whose work goes on afterwards."""
    with ThreadPoolExecutor(5 * CROWD) as pool:
        parts.processes[0].send_signal(signal.SIGSTOP)
        try:
            wait_until(lambda: is_stopped(parts.processes[0].pid), "that the part is frozen")
            yield pool
        finally:
            parts.processes[0].send_signal(signal.SIGCONT)


@pytest.fixture(params=[True, pytest.param(False, marks=pytest.mark.explored)], ids=["memory", "sockets"])
def parts(request: pytest.FixtureRequest) -> Iterator[RemotePartitions]:
    if request.param and not has_shared_memory():
        pytest.skip("processes share no memory on this system")
    divided = RemotePartitions(
        SCHEMA, make_model(), OWNERS, threads=1, patience=FOR_EVER, shares_memory=request.param
    )
    try:
        divided.apply(batch(0))
        yield divided
    finally:
        divided.close()


def wait_for_question(parts: RemotePartitions) -> None:
    """Until a read waits for part 0."""
    first = parts.parts[0]
    assert isinstance(first, RemoteReader)
    wait_until(lambda: first._rows._lock.locked() and first._reads._lock.locked(), "that a read waits")


def reads_in_flight(parts: RemotePartitions, pool: ThreadPoolExecutor) -> list[Future[np.ndarray]]:
    """Reads of the nodes of part 0, alone and beside others."""
    asked = [pool.submit(parts.predict, ids) for ids in (FROZEN, IDS, IDS[::-1]) for _ in range(CROWD)]
    wait_for_question(parts)
    return asked


def check_others(
    parts: RemotePartitions, pool: ThreadPoolExecutor, expected: Callable[[np.ndarray], bytes]
) -> None:
    """The other parts answer now."""
    for ids in OTHERS:
        assert pool.submit(parts.predict, ids).result(PATIENCE).tobytes() == expected(ids)


def test_a_frozen_part_delays_only_reads_of_its_nodes(parts: RemotePartitions) -> None:
    """Not those of other parts, nor figures. A batch, which all parts make, waits too; then all go on."""
    before, after = rows_after(0), rows_after(0, 1)
    figures = parts.memory(), parts.part_counts()
    with frozen(parts) as pool:
        reads = reads_in_flight(parts, pool)
        for _ in range(2):
            check_others(parts, pool, before)
        assert pool.submit(parts.memory).result(PATIENCE).keys() == figures[0].keys()
        assert pool.submit(parts.part_counts).result(PATIENCE) == figures[1]
        applied = pool.submit(parts.apply, batch(1))
        wait_until(lambda: parts.is_applying, "that a batch has begun")
        check_others(parts, pool, before)
        assert not any(one.done() for one in (*reads, applied))
    applied.result(PATIENCE)
    for one, ids in zip(reads, [ids for ids in (FROZEN, IDS, IDS[::-1]) for _ in range(CROWD)], strict=True):
        assert one.result(PATIENCE).tobytes() in (before(ids), after(ids))
    assert parts.predict(IDS).tobytes() == after(IDS)
    assert parts.part_counts() is not None


def test_a_crowd_does_not_wait_for_a_frozen_part(parts: RemotePartitions) -> None:
    """The threads of a server would all wait, and none would be left for reads of other parts."""
    before, most = rows_after(0), 40
    with ThreadPoolExecutor(most) as server, frozen(parts) as pool:
        reads = [server.submit(parts.predict, FROZEN) for _ in range(most)]
        wait_until(lambda: sum(one.done() for one in reads) >= most - MOST_WAITING, "that many are refused")
        check_others(parts, server, before)
        check_others(parts, pool, before)
    errors = [one.exception(PATIENCE) for one in reads]
    for one, error in zip(reads, errors, strict=True):
        if error is None:
            assert one.result().tobytes() == before(FROZEN)
        else:
            assert isinstance(error, WorkerUnavailableError)
            assert "part 0 must answer, got nothing for a second" in str(error)
    assert None in errors
    assert parts.predict(FROZEN).tobytes() == before(FROZEN)


def test_a_killed_part_ends_the_reads_that_wait_for_it(parts: RemotePartitions) -> None:
    """At once, not after its silence, and they name it."""
    before = rows_after(0)
    with frozen(parts) as pool:
        reads = reads_in_flight(parts, pool)
        parts.processes[0].kill()
        for one in reads:
            with pytest.raises(
                WorkerUnavailableError, match="part 0 must answer, got the end of its process"
            ):
                one.result(PATIENCE)
        check_others(parts, pool, before)
        assert "part 0: ids of node" not in parts.memory()
        assert parts.part_counts() is None


def test_a_part_that_is_silent_for_too_long_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its own number, not by that of its channel."""
    patience = Patience(beat_seconds=0.05, silent_seconds=0.5)
    parts = RemotePartitions(SCHEMA, make_model(), OWNERS, threads=1, patience=patience)
    try:
        parts.apply(batch(0))
        with frozen(parts):
            with pytest.raises(WorkerUnavailableError, match="part 0 must answer") as raised:
                parts.predict(FROZEN)
            assert "worker" not in str(raised.value)
            parts.processes[0].kill()
    finally:
        parts.close()


def test_a_frozen_part_delays_only_samples_of_its_nodes(parts: RemotePartitions) -> None:
    def draw(ids: np.ndarray) -> bytes:
        return sample_neighbors(parts.names, ids, 3, seed=1).ids.tobytes()

    expected = [draw(ids) for ids in (IDS, *OTHERS)]
    first = parts.parts[0]
    assert isinstance(first, RemoteReader)
    with frozen(parts) as pool:
        samples = [pool.submit(draw, IDS) for _ in range(CROWD)]
        wait_until(lambda: first._draws._lock.locked() and first._samples._lock.locked(), "that a draw waits")
        assert [pool.submit(draw, ids).result(PATIENCE) for ids in OTHERS] == expected[1:]
        assert not any(one.done() for one in samples)
    assert {one.result(PATIENCE) for one in samples} == {expected[0]}


@pytest.mark.skipif(not has_shared_memory(), reason="processes share no memory on this system")
def test_a_part_that_is_frozen_as_it_shows_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others show it already, and are read. It stops itself before it reports that it has committed."""

    def start(parts: int, file: int | None) -> list[ChildProcess]:
        programs = [WORKER_MODULE, (str(TESTS / "faulty_part.py"), "outcome", str(int(signal.SIGSTOP)))]
        assert parts == len(programs)
        return [ChildProcess(file=file, program=program) for program in programs]

    owners = Owners("modulo", 2)
    held, stopped = (IDS[owners.of_id(IDS) == part] for part in (0, 1))
    with monkeypatch.context() as patch:
        patch.setattr(remote, "start_children", start)
        parts = RemotePartitions(SCHEMA, make_model(), owners, threads=1, patience=FOR_EVER)
    after = rows_after(0, 1)
    try:
        parts.apply(batch(0))
        first = parts.seq
        with ThreadPoolExecutor() as pool:
            applied = pool.submit(parts.apply, batch(1))
            wait_until(lambda: parts.names.seq > first, "that the names show the batch")
            for _ in range(2):
                assert pool.submit(parts.predict, held).result(PATIENCE).tobytes() == after(held)
            waits = pool.submit(parts.predict, stopped)
            assert not applied.done()
            assert not waits.done()
            parts.processes[1].send_signal(signal.SIGCONT)
            assert waits.result(PATIENCE).tobytes() == after(stopped)
            applied.result(PATIENCE)
    finally:
        parts.processes[1].send_signal(signal.SIGCONT)
        parts.close()


def test_every_read_beside_batches_is_of_one_event(parts: RemotePartitions) -> None:
    """In several threads, of nodes of one part and of all."""
    expected = {}
    graph = Graph(SCHEMA, threads=1)
    engine = Engine(graph, make_model(), threads=1)
    graph.apply(batch(0))
    expected[graph.seq] = engine.predict(IDS)
    ended = threading.Event()
    found: list[tuple[int, np.ndarray, np.ndarray]] = []

    def read(seed: int) -> None:
        rng, seq = np.random.default_rng(seed), 0
        while not ended.is_set():
            ids = rng.choice(IDS, int(rng.integers(1, len(IDS))), replace=False)
            apart = parts.predict_apart(ids, [None])
            assert apart.seq >= seq
            seq = apart.seq
            found.append((seq, ids, apart.rows[0]))

    with ThreadPoolExecutor() as pool:
        readers = [pool.submit(read, seed) for seed in range(3)]
        try:
            for number in range(1, 30):
                parts.apply(batch(number))
                graph.apply(batch(number))
                expected[graph.seq] = engine.predict(IDS)
        finally:
            ended.set()
        for one in readers:
            one.result(PATIENCE)
    assert found
    for seq, ids, rows in found:
        assert rows.tobytes() == expected[seq][ids].tobytes()


def test_a_server_answers_for_other_parts_while_one_is_frozen(tmp_path: Path) -> None:
    """Over HTTP: predictions, those of the open protocol, metrics and readiness."""
    path = write(tmp_path, "parts", 3, owners="modulo", silent_seconds=FOR_EVER.silent_seconds)
    with (
        opened(path) as runtime,
        served(create_app(runtime)) as address,
        loopback.Client(base_url=address) as client,
    ):
        runtime.append(batch(0))
        runtime.step()
        metrics = scrape(client.get("/metrics").text)

        def ask_for_all() -> list[object]:
            return [client.get("/v1/predictions/all").raise_for_status().content]

        def ask(ids: np.ndarray) -> list[object]:
            tensor = {"name": "ids", "shape": [len(ids)], "datatype": "INT64", "data": ids.tolist()}
            answers = [
                client.post("/v1/predictions", json={"ids": ids.tolist()}),
                client.get(f"/v1/predictions?ids={ids[0]}"),
                client.post("/v2/models/engine/infer", json={"inputs": [tensor]}),
            ]
            return [answer.raise_for_status().json() for answer in answers]

        before = [ask(ids) for ids in (IDS, *OTHERS)]
        with frozen(parts_of(runtime)) as pool:
            waiting = [pool.submit(ask, IDS) for _ in range(CROWD)]
            waiting.append(pool.submit(ask_for_all))
            wait_for_question(parts_of(runtime))
            for _ in range(2):
                assert [pool.submit(ask, ids).result(PATIENCE) for ids in OTHERS] == before[1:]
            missing = metrics.keys() - scrape(client.get("/metrics").text).keys()
            assert not missing
            assert client.get("/readyz").json()["seq"] == runtime.seq
            assert not any(one.done() for one in waiting)
        *same, everything = [one.result(PATIENCE) for one in waiting]
        assert same == [before[0]] * CROWD
        assert everything == ask_for_all()
