"""Nodes whose workers share memory: what is left of it, limits, and where there is none."""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from memory_snapshot import MemorySnapshot, MemorySource
from test_sampled_forward import MODELS
from test_serverless_memory import make_gcn
from test_serverless_subgraph import make_graph

from livegnn import Graph, InputError
from livegnn.functions.machine import Machine
from livegnn.functions.settings import MachineSettings
from livegnn.remote.predictor import SnapshotPredictor
from livegnn.remote.shared_memory import MOST_WORKERS, MemoryFile, SharedMemory
from livegnn.snapshots.snapshot_source import SnapshotSource
from livegnn.snapshots.writer import write_snapshot
from processes import ONE_THREAD, children, runs
from scraped import scrape
from waiting import PATIENCE, REQUEST_SECONDS, until, wait_until

MIB = 1 << 20
NODES, WIDTH = 20_000, 64


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A snapshot of a graph whose features take 5 MB, and a model."""
    made = tmp_path_factory.mktemp("snapshot")
    random = np.random.default_rng(0)
    graph = Graph.from_edges(
        *random.integers(0, NODES, (2, 4 * NODES)),
        x=random.normal(size=(NODES, WIDTH)).astype(np.float32),
        num_nodes=NODES,
        parallel="last",
    )
    write_snapshot(graph, str(made / "snapshot"), directions=("in",))
    make_gcn(WIDTH).save(made / "model")
    make_gcn(WIDTH, hidden=8192).save(made / "wide")
    return made


def settings(folder: Path, **given: object) -> MachineSettings:
    return MachineSettings(str(folder / "snapshot"), str(folder / "model"), **given)  # type: ignore[arg-type]


def body(*ids: int) -> bytes:
    return json.dumps({"ids": list(ids), "timeout": REQUEST_SECONDS}).encode()


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(PATIENCE):
            await work()

    asyncio.run(limited())


async def ask(node: Machine, requests: list[list[int]]) -> list[bytes]:
    answers = await asyncio.gather(*(node.predict(body(*ids)) for ids in requests))
    assert {answer.status for answer in answers} == {200}, answers
    return [answer.body for answer in answers]


@pytest.mark.parametrize(
    "given",
    [{}, {"place": "threads"}, {"sampling_workers": 2}, {"memory": 400 * MIB}],
    ids=["processes", "threads", "two stages", "limited"],
)
def test_a_node_with_one_cache_answers_bit_by_bit_as_one_predictor(folder: Path, given: dict) -> None:
    alone = SnapshotPredictor(SnapshotSource(str(folder / "snapshot")), _model(folder), cache=False)
    requests = np.random.default_rng(1).integers(0, NODES, (60, 2)).tolist()

    async def work() -> None:
        node = settings(folder, workers=3, cache="shared", **given).open()
        assert node.memory is not None
        held = os.dup(node.memory.fd)
        for answer, ids in zip(await ask(node, requests), requests, strict=True):
            rows = np.array(json.loads(answer)["predictions"], np.float32)
            assert rows.tobytes() == alone.predict(ids).tobytes()
        assert node.memory.bytes > 64 * WIDTH * 4
        text = (await node.report_metrics()).body.decode()
        assert scrape(text)["livegnn_function_shared_cache_bytes"] >= 1
        await node.close(1)
        assert os.fstat(held).st_blocks == 0, "the last worker that ends leaves nothing"
        os.close(held)

    run(work)


def _model(folder: Path):
    from livegnn import Model

    return Model.load(folder / "model")


def test_workers_that_end_for_want_of_requests_leave_no_memory(folder: Path) -> None:
    async def work() -> None:
        node = settings(folder, workers=2, keep_alive=0.2).open()
        await ask(node, [[1], [2], [3]])
        assert node.memory is not None
        await until(lambda: node.memory is not None and not node.memory.bytes)
        await until(lambda: node.stages["predict"].scheduler.workers == 0)
        await ask(node, [[1], [2]])
        await node.close(1)

    run(work)


def test_a_request_that_needs_more_than_a_worker_has_is_refused_beside_a_full_cache(folder: Path) -> None:
    """The limit is on what a worker has for itself; what it maps of the cache is others' as well."""
    most = 400 * MIB

    async def work() -> None:
        node = replace(settings(folder, workers=2, memory=most), model=str(folder / "wide")).open()
        requests = np.random.default_rng(2).integers(0, NODES, (90, 30)).tolist()
        await ask(node, requests)
        assert node.memory is not None
        assert node.memory.bytes > 4 * MIB
        answer = await node.predict(body(*range(NODES)))
        assert (answer.status, json.loads(answer.body)["type"]) == (500, "/problems/out-of-memory")
        await ask(node, requests[:10])
        workers = [worker.pid for worker in node.stages["predict"]._workers.values()]
        assert 1 <= len(workers) <= 2
        assert children() >= set(workers)
        assert all(_own_bytes(worker) < most for worker in workers)
        assert node.stages["predict"].figures.died == 0
        await node.close(1)

    run(work)


def _own_bytes(process: int) -> int:
    """Resident, without what it shares."""
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    found = dict(re.findall(r"(Rss\w+):\s+(\d+)", status))
    return 1024 * (int(found["RssAnon"]) + int(found["RssFile"]))


NODE = """
import asyncio, json, sys
from livegnn.functions.settings import MachineSettings

async def main():
    node = MachineSettings(sys.argv[1], sys.argv[2], workers=2).open()
    for _ in range(3):
        asked = [node.predict(json.dumps({"ids": [id], "timeout": 240}).encode()) for id in range(20)]
        assert {answer.status for answer in await asyncio.gather(*asked)} == {200}
    print(node.memory.bytes if node.memory else 0, flush=True)
    await asyncio.Event().wait()

LIMIT
asyncio.run(main())
"""


def start_node(folder: Path, limit: str = "") -> tuple[subprocess.Popen[str], int]:
    """A node that has answered requests, and how much its workers share."""
    command = [sys.executable, "-c", NODE.replace("LIMIT", limit)]
    process = subprocess.Popen(
        [*command, str(folder / "snapshot"), str(folder / "model")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **ONE_THREAD},  # or each core takes of the address space
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate()[1]
    return process, int(line)


def test_nothing_is_left_of_a_node_that_is_killed(folder: Path) -> None:
    process, size = start_node(folder)
    assert size > 0
    workers = children(process.pid)
    assert workers
    shared = shared_files([process.pid])
    (number,) = shared
    (name,) = shared.values()
    assert not Path(name).exists(), "the memory has no name"
    assert shared_files([*workers]) == shared
    process.kill()
    process.communicate()
    wait_until(lambda: not any(runs(worker) for worker in workers), "the end of all workers")
    everybody = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    assert number not in shared_files(everybody)


def shared_files(processes: list[int]) -> dict[tuple[int, int], str]:
    """The files of features that processes have open: their numbers in the system, and how they are called.
    Other nodes on the machine have some of their own."""
    found = {}
    for process in processes:
        folder, names = f"/proc/{process}/fd", list[str]()
        with suppress(OSError):  # it has ended, or is another user's
            names = os.listdir(folder)
        for name in names:
            with suppress(OSError):  # it has been closed
                if "livegnn-features" in (target := os.readlink(f"{folder}/{name}")):
                    status = os.stat(f"{folder}/{name}")
                    found[status.st_dev, status.st_ino] = target
    return found


@pytest.mark.parametrize("limit", ["FSIZE, (1 << 20, 1 << 20)", "AS, (4 << 30, 4 << 30)"])
def test_where_memory_cannot_be_shared_each_worker_has_its_own_and_it_is_said_once(
    folder: Path, limit: str
) -> None:
    """Files may not grow; and the address space has no place for so large a one."""
    process, size = start_node(folder, f"import resource; resource.setrlimit(resource.RLIMIT_{limit})")
    assert size == 0
    process.kill()
    _, said = process.communicate()
    assert said.count("each worker keeps features by itself") == 1, said


def test_a_private_cache_shares_nothing(folder: Path) -> None:
    for given in ({"cache": "private"}, {"place": "threads"}):
        assert settings(folder, **given).open().memory is None
    with pytest.raises(InputError, match="cache must be shared or private, got 'common'"):
        settings(folder, cache="common")


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """Each worker in this process takes two; most users have 1,024 unless they ask for more."""
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4 * MOST_WORKERS if most == resource.RLIM_INFINITY else min(most, 4 * MOST_WORKERS)
    if before != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(before, wanted), most))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))


@pytest.mark.usefixtures("many_descriptors")
def test_there_is_space_for_so_many_workers() -> None:
    file = MemoryFile(1 << 20)
    memories = [SharedMemory(file.fd) for _ in range(MOST_WORKERS)]
    with pytest.raises(OSError, match="more than 512 workers"):
        SharedMemory(file.fd)
    memories[7].close()
    again = SharedMemory(file.fd)
    again.leave(5)
    assert memories[0].left_by_others == 5
    for memory in (*memories, again):
        memory.close()
    file.close()


def test_a_predictor_without_a_cache_shares_nothing() -> None:
    file = MemoryFile(1 << 20)
    predictor = SnapshotPredictor(MemorySource(MemorySnapshot(make_graph(1))), MODELS["gcn"], cache=False)
    memory = SharedMemory(file.fd)
    predictor.share(memory)
    predictor.predict([0])
    assert predictor.describe()["cache_entries"] == 0
    assert memory.shown == bytes(32)
    file.close()
