"""Fronts read from the parts of a graph: what they answer is what one engine says at one event, while batches
are applied, and while parts are lost and replaced.
"""

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

if "CI" not in os.environ:  # which installs all extras
    pytest.importorskip("zmq", reason="pyzmq is not installed: pip install 'livegnn[cluster]'")

import zmq
from test_divided_checkpoints import CHECKPOINT, ENTRIES, apply, rows_of
from test_replaced_parts import freeze, kill, parts_of

from divided_deployment import opened, write
from front_reading import FrontReader, fronts
from gate import draws, in_gate
from livegnn import Events
from livegnn.errors import InputError, TimeoutExpired, UnknownNodeError, WorkerUnavailableError
from livegnn.partitions.places import read_places
from livegnn.runtime import Runtime
from streams import make_arrays, make_stream
from waiting import wait_until

NODES = len(make_arrays()["ids"])


def deploy(
    folder: Path, partitions: int = 2, *, more: str = "", owners: str = "jump", silent_seconds: float = 5.0
) -> Path:
    path = write(
        folder,
        "parts",
        partitions,
        owners=owners,
        silent_seconds=silent_seconds,
        cluster='fronts = "fronts.json"\n',
        more=more,
    )
    np.savez(folder / "graph.npz", **make_arrays())
    return path


def of_part(runtime: Runtime, part: int) -> list[int]:
    """The nodes that a part owns."""
    owners = parts_of(runtime).rules[0].of_id(np.arange(NODES))
    return [one for one in np.arange(NODES)[owners == part].tolist() if one in rows_of(runtime)]


def rows_at_each_event(folder: Path, entries: list[Events]) -> dict[int, dict[int | str, bytes]]:
    """All predictions of one engine, by the events that batches end with."""
    folder.mkdir()
    path = write(folder, "whole")
    np.savez(folder / "graph.npz", **make_arrays())
    with opened(path) as runtime:
        found = {runtime.seq: rows_of(runtime)}
        for events in entries:
            apply(runtime, [events])
            found[runtime.seq] = rows_of(runtime)
    return found


class Reading:
    """Reads at random in a thread, and notes each answer, until it is told to stop."""

    def __init__(self, reader: FrontReader, seed: int, stop: threading.Event) -> None:
        self._reader, self._rng, self._stop = reader, np.random.default_rng(seed), stop
        self.answers: list[tuple[int, list[int], np.ndarray]] = []
        self.unknown: list[tuple[list[int], int, int]] = []  # between two events
        self._seq = 0

    def run(self) -> None:
        while not self._stop.is_set():
            ids = self._rng.choice(NODES + 12, int(self._rng.integers(0, 9)), replace=False).tolist()
            try:
                found = self._reader.predict(ids)
            except UnknownNodeError:
                later = self._reader.predict([]).seq
                self.unknown.append((ids, self._seq, later))
                continue
            assert found.seq >= self._seq, "a later answer is of an earlier event"
            self._seq = found.seq
            self.answers.append((found.seq, ids, found.values))


@pytest.mark.parametrize(("partitions", "owners"), in_gate([(3, "jump"), (2, "fennel"), (1, "modulo")]))
def test_every_answer_is_of_one_event(tmp_path: Path, partitions: int, owners: str) -> None:
    """Beside a stream of batches, in several threads, through two fronts."""
    entries = make_stream(draws(60, 600), seed=8)
    expected = rows_at_each_event(tmp_path / "whole", entries)
    stop = threading.Event()
    with (
        opened(deploy(tmp_path, partitions, owners=owners)) as runtime,
        fronts(tmp_path / "fronts.json", 2) as readers,
        ThreadPoolExecutor() as pool,
    ):
        readings = [Reading(readers[seed % 2], seed, stop) for seed in range(4)]
        running = [pool.submit(one.run) for one in readings]
        try:
            for number, events in enumerate(entries):
                apply(runtime, [events])
                if number % 4 == 0:
                    readers[0].predict([], min_seq=runtime.seq)
            last = runtime.seq
            for one in readers:
                assert one.predict([], min_seq=last).seq == last
        finally:
            stop.set()
        for task in running:
            task.result()
    answers = [answer for one in readings for answer in one.answers]
    assert len({seq for seq, _, _ in answers}) > len(entries) // 8
    for seq, ids, values in answers:
        assert values.shape == (len(ids), 3)
        assert [row.tobytes() for row in values] == [expected[seq][one] for one in ids]
    for ids, since, until in (each for one in readings for each in one.unknown):
        between = [rows for seq, rows in expected.items() if since <= seq <= until]
        assert any(not rows.keys() >= set(ids) for rows in between)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Runtime, FrontReader]]:
    """A runtime with some batches, and a front."""
    folder = tmp_path_factory.mktemp("served")
    with opened(deploy(folder)) as runtime, fronts(folder / "fronts.json") as (reader,):
        apply(runtime, ENTRIES[:6])
        yield runtime, reader


def test_reads_and_refusals_are_those_of_the_server(served: tuple[Runtime, FrontReader]) -> None:
    runtime, reader = served
    ids = [int(one) for one in rows_of(runtime)]
    found, expected = reader.predict([*ids, ids[0]], min_seq=runtime.seq), runtime.predict([*ids, ids[0]])
    assert (found.seq, found.values.tobytes()) == (expected.seq, expected.values.tobytes())
    assert reader.predict([]).values.shape == runtime.predict([]).values.shape
    assert reader.predict([1], output="output").values.tobytes() == expected.values[ids.index(1)].tobytes()

    def refusal(call: Callable[[], object]) -> tuple[type[Exception], str]:
        with pytest.raises(Exception) as raised:
            call()
        return raised.type, str(raised.value)

    for asked, output in (([1, 12345, 3, 12346], None), ([1], "other"), ([], "other")):
        refused = refusal(lambda: reader.predict(asked, output=output))  # noqa: B023
        assert refused == refusal(lambda: runtime.predict(asked, output=output))  # noqa: B023
        assert issubclass(refused[0], InputError)


def test_a_read_waits_for_an_event(served: tuple[Runtime, FrontReader]) -> None:
    runtime, reader = served
    seq = runtime.seq
    with pytest.raises(TimeoutExpired, match=rf"event {seq + 1} .* within 0.1 seconds, got to {seq}: wait"):
        reader.predict([1, 2], min_seq=seq + 1, timeout=0.1)
    assert reader.predict([1, 2]).seq == seq
    waiting = [
        reader.begin([node], min_seq=seq + 1) for node in of_part(runtime, 0)[:2] + of_part(runtime, 1)[:2]
    ]
    assert not any(one.done() for one in waiting)
    apply(runtime, ENTRIES[6:7])
    assert {one.result().seq for one in waiting} == {runtime.seq}


def test_a_part_that_is_killed_costs_its_own_nodes_alone(tmp_path: Path) -> None:
    """Without checkpoints nothing replaces it."""
    with opened(deploy(tmp_path)) as runtime, fronts(tmp_path / "fronts.json") as (reader,):
        apply(runtime, ENTRIES[:4])
        held, lost = of_part(runtime, 0), of_part(runtime, 1)
        expected = runtime.predict(held).values.tobytes()
        kill(runtime, 1)
        with pytest.raises(WorkerUnavailableError, match="part 1 must answer"):
            reader.predict([held[0], lost[0]])
        found = reader.predict(held)
        assert (found.seq, found.values.tobytes()) == (runtime.seq, expected)
        wait_until(lambda: not reader.front.find_readiness().ready)
        assert reader.front.find_readiness().reasons == {"parts": "no answer of part 1"}


@pytest.mark.parametrize("how", in_gate([kill, freeze]))
def test_fronts_follow_parts_that_are_replaced(tmp_path: Path, how: Callable[[Runtime, int], None]) -> None:
    """Reads of nodes of the other parts go on meanwhile."""
    path = deploy(tmp_path, more=CHECKPOINT.format(every=10), silent_seconds=1.5)
    with opened(path) as runtime, fronts(tmp_path / "fronts.json", 2) as readers:
        apply(runtime, ENTRIES[:6])
        held, rows = of_part(runtime, 0), rows_of(runtime)
        before = (tmp_path / "fronts.json").read_bytes()
        with runtime.graph.writer:  # so that it is not replaced yet
            how(runtime, 1)
            for one in readers:
                assert [row.tobytes() for row in one.predict(held).values] == [rows[node] for node in held]
                with pytest.raises(WorkerUnavailableError, match="part 1 must answer"):
                    one.predict(list(rows))
        wait_until(lambda: (tmp_path / "fronts.json").read_bytes() != before, "that it is replaced")
        for one in readers:
            wait_until(lambda: one.front.find_readiness().ready)  # noqa: B023
            assert [row.tobytes() for row in one.predict(list(rows)).values] == list(rows.values())
        apply(runtime, ENTRIES[6:8])
        rows = rows_of(runtime)
        for one in readers:
            found = one.predict(list(rows), min_seq=runtime.seq)
            assert [row.tobytes() for row in found.values] == list(rows.values())
    assert not (tmp_path / "fronts.json").exists()


def test_fronts_find_the_parts_of_the_next_start(tmp_path: Path) -> None:
    """Of which there may be another number."""
    with fronts(tmp_path / "fronts.json", ready=False) as (reader,):
        with pytest.raises(WorkerUnavailableError, match="the parts of the graph must answer, got none"):
            reader.predict([1])
        for partitions, entries in ((2, ENTRIES[:4]), (3, ENTRIES[4:8])):
            with opened(deploy(tmp_path, partitions)) as runtime:
                reader.wait_until_ready()
                apply(runtime, entries)
                rows = rows_of(runtime)
                found = reader.predict(list(rows), min_seq=runtime.seq)
                assert [row.tobytes() for row in found.values] == list(rows.values())
            wait_until(lambda: not reader.front.find_readiness().ready)


def test_any_bytes_leave_a_part_as_it_is(served: tuple[Runtime, FrontReader]) -> None:
    """Of a process of this user that is no front."""
    rng = np.random.default_rng(3)
    head = b'{"output":null,"at_least":0,"wait":0.0}'
    wrong = [
        [],
        [b""],
        [head],
        [head, b"1234567"],
        [head, np.array([-1]).tobytes()],
        [head, b"", b""],
        [head.replace(b"0.0", b"1e9"), b""],
        [head.replace(b"0.0", b"NaN"), b""],
        [head.replace(b'"at_least":0', b'"at_least":-1'), b""],
        [head.replace(b'"at_least":0', b'"at_least":1e30'), b""],
        [head.replace(b"null", b"7"), b""],
        [head.replace(b"null", b'"' + b"x" * 100_000 + b'"'), b""],
        [head[:-1], b""],
        [b"[]", b""],
        [b"\xff" * 20, b""],
        *([rng.bytes(int(size)) for size in rng.integers(0, 60, 3)] for _ in range(draws(50, 2000))),
    ]
    runtime, reader = served
    places = read_places(reader.file, None)
    assert places is not None
    with zmq.Context() as context:
        for part in places.places.parts:
            with context.socket(zmq.DEALER) as socket:
                socket.linger = 1000
                socket.connect(part.address)
                for frames in wrong:
                    for number in (b"", b"1234567", b"12345678"):
                        socket.send_multipart([number, *frames])
                socket.send_multipart([b"the last", head, np.arange(3).tobytes()])
                answers = []
                while not answers or answers[-1][0] != b"the last":
                    answers.append(socket.recv_multipart())
                assert len(answers) == 2, (
                    "of a long name that the model does not have, and of the last question"
                )
    apply(runtime, ENTRIES[7:9])
    rows = rows_of(runtime)
    found = reader.predict(list(rows), min_seq=runtime.seq)
    assert [row.tobytes() for row in found.values] == list(rows.values())
