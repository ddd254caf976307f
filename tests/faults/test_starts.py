"""Starts of a server that was killed, while the disk of its log is full or another program locks the log.

It starts, answers reads, refuses events, and goes on when that has passed. A copy of the files of a log that
is open is what `kill -9` leaves.
"""

import asyncio
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path

import apsw
import httpx
import numpy as np
import pytest

import livegnn.deployment.sections
import livegnn.log.sqlite.sequence
import loopback
from faulty_disk import FaultyDisk
from faulty_world import check_bits, plain, replay
from livegnn import DiskFullError, Engine, Events, LogError
from livegnn.deployment import Deployment
from livegnn.errors import LogBusyError
from livegnn.log import Batch
from livegnn.log.sqlite import SqliteLog
from livegnn.log.sqlite.examination import examine
from livegnn.runtime import Runtime
from livegnn.server import create_app
from serving import Server, write_deployment
from streams import make_graph, make_model, make_stream
from waiting import PATIENCE

ENTRIES = make_stream(12, seed=3)
SET = {"events": [{"event": "add_node", "id": 901}]}


@contextmanager
def held_lock(path: Path) -> Iterator[Callable[[], None]]:
    """Another program's transaction on the log at `path`; what is given ends it."""
    with closing(apsw.Connection(str(path))) as other:  # that of `sqlite3` would share the process's locks
        other.execute("BEGIN IMMEDIATE")

        def end() -> None:
            if other.in_transaction:
                other.execute("ROLLBACK")

        yield end


@pytest.fixture(autouse=True)
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite waits for a lock for a moment, not for ten seconds."""
    monkeypatch.setattr(livegnn.log.sqlite.sequence, "_BUSY_MILLISECONDS", 5)


def leave_killed(directory: Path, *, marked: bool) -> Path:
    """The files of a log whose process was killed: half of the entries in batches.

    marked: whether it got as far as to note that its last entry is acknowledged.
    """
    live = directory / "live"
    live.mkdir(parents=True)
    with closing(SqliteLog(live / "events.db")) as log:
        ends = [log.append(events, key=f"key {at}") for at, events in enumerate(ENTRIES)]
        log.record_batch(Batch(0, ends[len(ends) // 2]))
        killed = shutil.copytree(live, directory / "killed")
    if not marked:
        (killed / "events.db-mark").unlink()
    return killed / "events.db"


def count_refused(log: SqliteLog) -> int:
    """How many of four writes the log refuses for now."""
    writes: list[Callable[[], object]] = [
        lambda: log.append(Events().add_nodes(np.arange(1000, 2000))),
        lambda: log.append(ENTRIES[-1], key=f"key {len(ENTRIES) - 1}"),
        lambda: log.record_batch(Batch(log.last_batch_seq(), log.last_seq())),
        log.sync,
    ]
    refused = 0
    for write in writes:
        try:
            write()
        except (DiskFullError, LogBusyError):
            refused += 1
    return refused


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize("fault", ["full", "locked"])
def test_a_log_is_read_at_once_and_written_to_when_that_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, marked: bool
) -> None:
    rooms = range(0, 60, 5) if fault == "full" else [0]
    for room in rooms:  # writes that fit until the disk is full
        path = leave_killed(tmp_path / str(room), marked=marked)
        disk = FaultyDisk(f"a start on a full disk {room} {marked}")
        with ExitStack() as world:
            world.enter_context(disk.has_files(monkeypatch))
            end = world.enter_context(held_lock(path)) if fault == "locked" else disk.empty
            disk.room = room if fault == "full" else None
            log = world.enter_context(closing(SqliteLog(path, vfs=disk.name)))
            world.callback(end)
            assert [plain(entry.events) for entry in log.entries(0)] == list(map(plain, ENTRIES))
            half, last = log.last_batch_seq(), log.last_seq()
            log.bind({})
            refused = count_refused(log)
            # What is known already is answered without a write, once it is sure that it is on the disk.
            assert refused >= 3 + (not marked) or (fault == "full" and room)
            end()
            at = log.append(ENTRIES[-1], key=f"key {len(ENTRIES) - 1}")
            assert at == last
            new = log.append(Events().add_nodes(777))
            if log.last_batch_seq() == half:
                log.record_batch(Batch(half, new))
        with closing(SqliteLog(path)) as log:
            assert log.last_seq() == new
            assert [plain(entry.events) for entry in log.entries(0, up_to=last)] == list(map(plain, ENTRIES))
        assert examine(path).problems == []
        if not refused:
            return
    assert fault == "locked", "with so much room a start must have enough"


def test_who_owns_the_log_on_a_full_disk_may_stay_unsaid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FaultyDisk("no room for the number of a process")
    path = leave_killed(tmp_path, marked=True)
    disk.full = True
    with disk.has_files(monkeypatch), closing(SqliteLog(path, vfs=disk.name)):
        with pytest.raises(LogError, match="got a second one: process unknown runs on it"):
            SqliteLog(path, vfs=disk.name)
        disk.empty()


def ask(runtime: Runtime, method: str, path: str, content: object = None) -> httpx.Response:
    async def request() -> httpx.Response:
        transport = httpx.ASGITransport(app=create_app(runtime))
        async with httpx.AsyncClient(transport=transport, base_url="http://test", timeout=None) as client:
            return await client.request(method, path, json=content)

    return asyncio.run(request())


@pytest.mark.parametrize("fault", ["full", "locked"])
def test_a_server_starts_answers_reads_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    live = tmp_path / "live"
    live.mkdir()
    runtime = Deployment.read(write_deployment(live)).open()
    for events in ENTRIES[:6]:
        runtime.append(events)
    runtime.step()
    done = runtime.seq
    for events in ENTRIES[6:]:
        last = runtime.append(events)
    killed = shutil.copytree(live, tmp_path / "killed")
    runtime.stop()
    runtime.log.close()

    disk = FaultyDisk(f"a server starts on a disk {fault}")
    monkeypatch.setattr(livegnn.deployment.sections, "SqliteLog", partial(SqliteLog, vfs=disk.name))
    with ExitStack() as world:
        world.enter_context(disk.has_files(monkeypatch))
        end = world.enter_context(held_lock(killed / "events.db")) if fault == "locked" else disk.empty
        disk.full = fault == "full"
        runtime = Deployment.read(killed / "deployment.toml").open()
        world.callback(runtime.log.close)
        world.callback(runtime.stop)
        world.callback(end)
        assert runtime.seq == done
        runtime.start()
        answer = ask(runtime, "GET", "/v1/predictions?ids=1,2")
        assert (answer.status_code, answer.json()["seq"]) == (200, done)
        answer = ask(runtime, "POST", "/v1/events", SET)
        kind = "/problems/disk-full" if fault == "full" else "/problems/log-busy"
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert answer.json()["type"] == kind
        answer = ask(runtime, "GET", "/healthz")
        assert answer.status_code == 503
        end()
        assert runtime.wait(last, PATIENCE) == last
        answer = ask(runtime, "POST", "/v1/events?wait=true", SET)
        assert answer.json() == {"seq": last + 1, "status": "applied"}
        check_bits(runtime.engine, replay(runtime.log))


def test_a_foreign_lock_pauses_the_loop(tmp_path: Path) -> None:
    graph = make_graph()
    with closing(SqliteLog(tmp_path / "events.db")) as log:
        runtime = Runtime(log, graph, Engine(graph, make_model(), threads=1))
        seq = runtime.append(Events().add_nodes(900))
        with held_lock(log.path) as end:
            runtime._retry.set()  # nobody waits
            assert runtime._step_or_pause()
            runtime._retry.clear()
            assert isinstance(runtime.paused, LogBusyError)
            assert "another program has held its lock for writing" in str(runtime.paused)
            runtime.start()
            with pytest.raises(LogBusyError, match="End that program"):
                runtime.append(Events().add_nodes(901))
            end()
        assert runtime.wait(seq, PATIENCE) == seq
        runtime.stop()
        assert runtime.paused is None


@pytest.mark.campaign
def test_a_server_that_is_killed_on_a_full_disk(tmp_path: Path) -> None:
    """On a real file system of a megabyte, which needs root."""
    (tmp_path / "disk").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", tmp_path / "disk"], check=True)
    try:
        deployment = write_deployment(tmp_path / "disk", every_events=10**6)
        many = {"events": [{"event": "add_node", "id": id_} for id_ in range(1000, 1400)]}
        with Server(deployment) as server, loopback.Client(base_url=server.address) as client:
            while (answer := client.post("/v1/events", json=many)).status_code == 200:
                pass
            assert answer.status_code == 503
            with open(tmp_path / "disk" / "filler", "wb", 0) as file, suppress(OSError):
                while True:
                    file.write(bytes(4096))
            server.kill()
        with Server(deployment) as server, loopback.Client(base_url=server.address) as client:
            assert client.get("/v1/predictions?ids=1").status_code == 200
            assert client.post("/v1/events", json=SET).status_code == 503
            subprocess.run(["mount", "-o", "remount,size=8m", tmp_path / "disk"], check=True)
            while (answer := client.post("/v1/events?wait=true", json=SET)).status_code == 503:
                pass
            assert answer.json()["status"] == "applied"
            assert server.stop() == 0
    finally:
        subprocess.run(["umount", tmp_path / "disk"], check=True)
