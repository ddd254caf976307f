"""What a function takes, as the system and the store see it: memory (VmHWM), requests to an S3 server, bytes.

A graph of 40,000 nodes with 128 features and in-degrees that follow a power law, a GCN of two layers; one
random node is asked for at a time. Real workers are processes of a real node.

ours              two workers with 200 MiB each and one cache for both
plain on-demand   the same workers, without a cache: every request fetches all that it reads
whole data        workers that fetch all objects when they start; a request then reads memory

Memory of a contestant: the peaks of its workers (VmHWM) added, so pages that both map count twice. Estimate:
a request reads some hundred nodes, 0.1 MB of features; whole data is 30 MB for each worker.

The S3 server is started from the folder that LIVEGNN_S3_HOME names (`server DIR PORT`); without one, a folder
is read. Then joined ranges and limits are measured: one request for many nodes with several gaps, and how
many of 101 requests are answered within a limit.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch_geometric.nn.models import GCN

import livegnn as lg
from livegnn.errors import InputError
from livegnn.functions.settings import MachineSettings
from livegnn.remote.predictor import open_predictor
from livegnn.snapshots.objects import open_objects, with_gap
from livegnn.snapshots.writer import write_snapshot
from report import Report, arguments

NODES, WIDTH = 40_000, 128
REQUESTS, QUICK_REQUESTS = 400, 60
MEMORY = 200 << 20
BUCKET = "graph"
OURS, PLAIN, WHOLE = "ours", "plain on-demand", "whole data"


OPENERS = {
    OURS: "livegnn.remote.predictor:open_predictor",
    PLAIN: "serverless_contestants:open_uncached",
    WHOLE: "serverless_contestants:open_held",
}


@contextmanager
def start_store(folder: Path) -> Iterator[str | None]:
    """The URL of a place on an S3 server, whose keys are in the environment; None without one."""
    home = os.environ.get("LIVEGNN_S3_HOME")
    if home is None:
        yield None
        return
    (folder / "s3" / BUCKET).mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    silent = subprocess.DEVNULL
    command = [str(Path(home).resolve() / "server"), str(folder / "s3"), str(port)]
    with subprocess.Popen(command, stdout=silent, stderr=silent) as server:
        os.environ |= {
            "AWS_ENDPOINT": f"http://127.0.0.1:{port}",
            "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "false",
            "AWS_ACCESS_KEY_ID": "livegnn",
            "AWS_SECRET_ACCESS_KEY": "livegnn-secret",
            "AWS_REGION": "us-east-1",
        }
        try:
            open_objects(f"s3://{BUCKET}/place", patience=30.0).list("")  # waits until it answers
            yield f"s3://{BUCKET}/place"
        finally:
            server.kill()


def build(url: str, folder: Path) -> str:
    """Writes the snapshot and the model; returns the model's path."""
    random = np.random.default_rng(0)
    weight = 1 / np.arange(1, NODES + 1) ** 0.4
    edges = np.unique(random.choice(NODES, (2, 8 * NODES), p=weight / weight.sum()), axis=1)
    graph = lg.Graph.from_edges(*edges, x=random.standard_normal((NODES, WIDTH), dtype=np.float32))
    write_snapshot(graph, url, directions=("in",))
    torch.manual_seed(0)
    lg.Model.from_pyg(GCN(WIDTH, 16, num_layers=2, out_channels=7).eval()).save(folder / "model.lgnn")
    return str(folder / "model.lgnn")


class Outcome:
    """Of one contestant: bytes at the peak of all workers, requests to the store and bytes of each request,
    seconds of each request, and how many were answered."""

    def __init__(self) -> None:
        self.peak = self.store_requests = self.store_bytes = self.answered = 0
        self.seconds: list[float] = []
        self.refusals: list[str] = []


def run(settings: MachineSettings, asked: Sequence[Sequence[int]]) -> Outcome:
    """Two clients ask a node, each one request after the other."""
    found = Outcome()

    async def ask() -> None:
        node, left = settings.open(), list(asked)

        async def client() -> None:
            while left:
                body = json.dumps({"ids": left.pop(), "timeout": 60}).encode()
                began = time.perf_counter()
                answer = await node.predict(body)
                if answer.status == 200:
                    found.answered += 1
                else:
                    found.refusals.append(answer.body.decode()[:300])
                found.seconds.append(time.perf_counter() - began)

        await asyncio.gather(client(), client())
        workers = [worker for stage in node.stages.values() for worker in stage._workers.values()]
        found.peak = sum(peak_of(worker.pid) for worker in workers)  # type: ignore[attr-defined]
        found.store_requests = sum(stage.figures.store_requests for stage in node.stages.values())
        found.store_bytes = sum(stage.figures.store_bytes for stage in node.stages.values())
        await node.close()

    asyncio.run(ask())
    return found


def peak_of(process: int) -> int:
    text = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    return 1024 * int(text.partition("VmHWM:")[2].split()[0])


def add_contestants(report: Report, url: str, model: str, asked: list[list[int]]) -> None:
    found = {}
    for name, opener in OPENERS.items():
        limit = MEMORY if name == OURS else None
        found[name] = run(MachineSettings(url, model, opener=opener, workers=2, memory=limit), asked)
        assert found[name].answered == len(asked), f"{name} must answer all, got {found[name].refusals[0]}"
    ours, each = found[OURS], len(asked)
    for peer in (PLAIN, WHOLE):
        theirs = found[peer]
        peaks, medians = ours.peak / 2**20, 1e3 * statistics.median(ours.seconds)
        add = partial(report.add, peer=peer)
        add("memory of two workers (VmHWM)", peaks, "MiB", peer_value=theirs.peak / 2**20)
        add("a request, median", medians, "ms", peer_value=1e3 * statistics.median(theirs.seconds))
        requests, theirs_each = ours.store_requests / each, theirs.store_requests / each
        add("requests to the store, each", requests, "GET", peer_value=theirs_each)
        read, theirs_read = ours.store_bytes / each / 1e6, theirs.store_bytes / each / 1e6
        add("bytes from the store, each", read, "MB", peer_value=theirs_read)
    report.note(f"limit of ours: {2 * MEMORY >> 20} MiB for both workers; {each} requests for one node")


def add_gaps(report: Report, url: str, model: str, ids: list[int]) -> None:
    rows = []
    for gap in (0, 4 << 10, 64 << 10):
        predictor = open_predictor(with_gap(url, gap), model, cache=False)
        before = predictor.read_so_far
        began = time.perf_counter()
        rows.append(predictor.predict(ids).tobytes())
        seconds = time.perf_counter() - began
        requests, read = (
            after - earlier for after, earlier in zip(predictor.read_so_far, before, strict=True)
        )
        name = f"{len(ids)} nodes, a gap of {gap >> 10} KiB"
        report.add(f"{name}: requests to the store", requests, "GET")
        report.add(f"{name}: bytes", read / 1e6, "MB")
        report.add(f"{name}: time", seconds, "s")
    assert len(set(rows)) == 1


def add_limits(report: Report, url: str, model: str, asked: list[list[int]]) -> None:
    for mib in (60, 100, 150, 200, 300):
        settings = MachineSettings(url, model, workers=1, memory=mib << 20)
        try:
            settings.check_memory()
        except InputError as error:
            report.note(f"{mib} MiB are refused at the start: {error}")
            continue
        found = run(settings, asked)
        report.add(
            f"answered of {len(asked)} within {mib} MiB", found.answered, "requests", higher_is_better=True
        )
        report.add(f"VmHWM within {mib} MiB", found.peak / 2**20, "MiB", aim=mib)


def main() -> None:
    options = arguments(__doc__).parse_args()
    report = Report("function_memory")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    with tempfile.TemporaryDirectory() as temporary, start_store(Path(temporary)) as place:
        folder = Path(temporary)
        url = place or (folder / "snapshot").as_uri()
        if place is None:
            report.could_not_run("an S3 server", "LIVEGNN_S3_HOME is not set: a folder is read instead")
        model = build(url, folder)
        random = np.random.default_rng(1)
        count = QUICK_REQUESTS if options.quick else REQUESTS
        asked = [[int(one)] for one in random.integers(0, NODES, count)]
        add_contestants(report, url, model, asked)
        many = random.choice(NODES, 20 if options.quick else 100, replace=False)
        add_gaps(report, url, model, many.tolist())
        add_limits(report, url, model, asked[:101])
    report.finish(options.json)


if __name__ == "__main__":
    sys.exit(main())
