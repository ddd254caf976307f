"""One shape and one model of `serverless.py`: parts measured, traces replayed. Runs in a process of its
own."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from livegnn.network.model import Model
from serverless_contestants import BANDWIDTH, LATENCY
from serverless_parts import Costs, Parts, measure, memoised, read_lists
from serverless_replay import (
    CORES,
    NODE_MEMORY,
    OURS,
    PLAIN,
    WHOLE,
    Contestant,
    Outcome,
    Replay,
    worker_bytes,
)
from serverless_shapes import (
    Float64,
    GraphShape,
    Int64,
    make_arrivals,
    make_day,
    make_sequence,
    overlap,
    peak_rate,
    scale_arrivals,
)


@dataclass(frozen=True)
class Task:
    """traces: patterns, or "day". real: how many requests real processes answer, too. nodes: further numbers
    of nodes for the first trace. node_memory: bytes. counts: as `measure` takes them. figures: whether sizes
    and overlaps are wanted."""

    folder: Path
    shape: GraphShape
    model: str
    traces: dict[str, list[Contestant]]
    most: int
    counts: tuple[int, int, int]
    nodes: tuple[int, ...] = ()
    real: int = 0
    node_memory: float = NODE_MEMORY
    figures: bool = False

    @property
    def name(self) -> str:
        return f"{self.shape.name} {self.model}"


@dataclass
class Findings:
    task: Task
    parts: Parts
    error: float
    error_each: float
    outcomes: dict[tuple[str, str, int], Outcome] = field(default_factory=dict)
    requests: dict[str, tuple[int, float]] = field(default_factory=dict)
    worker_bytes: dict[str, int] = field(default_factory=dict)
    sizes: Float64 | None = None
    overlaps: dict[int, Float64] = field(default_factory=dict)
    real: tuple[Float64, Float64] | None = None
    """Latencies of real processes, and of their replay."""


def study(task: Task) -> Findings:
    lists = read_lists(task.folder)
    hops = int(task.model.split("-")[1])
    sequence = make_sequence(task.shape, lists, max(task.most, 10_000))
    parts = measure(task.folder, task.shape, task.model, hops, sequence, task.counts)
    costs = Costs(parts, Model.load(task.folder / f"{task.model}.lgnn"))
    found = Findings(task, parts, costs.error, costs.error_each)
    around, degree = memoised(lists, hops), lists.degrees
    # What a node can just handle: its cores, and its part of the store.
    service = float(np.mean([one.total for one in parts.plain]))
    bytes_ = float(np.mean([one.store_bytes for one in parts.plain]))
    handled = min(CORES / service, BANDWIDTH / bytes_)
    for trace, contestants in task.traces.items():
        if trace == "day":
            arrivals = make_day(task.most)
        else:
            whole = make_arrivals(trace)
            arrivals = scale_arrivals(whole, handled / peak_rate(whole), task.most)
        found.requests[trace] = len(arrivals), peak_rate(arrivals)
        for number in (1, *(task.nodes if trace == next(iter(task.traces)) else ())):
            for one in contestants if number == 1 else [WHOLE, PLAIN, OURS]:
                held = worker_bytes(one, costs)
                found.worker_bytes[one.name] = held
                most = CORES if one.whole else max(min(CORES, int(task.node_memory // held)), 1)
                replay = Replay(one, costs, around, degree, nodes=number, max_workers=most)
                found.outcomes[trace, one.name, number] = replay.run(arrivals, sequence[: len(arrivals)])
    if task.figures:
        random = np.random.default_rng(5).integers(0, task.shape.nodes, 400)
        found.sizes = np.array([len(around(int(node)).rows) for node in random]) / task.shape.nodes
        rows = [around(int(node)).rows for node in sequence[:400]]
        found.overlaps = {prior: overlap(rows, prior) for prior in (1, 10)}
    if task.real:
        found.real = replay_really(task, costs, lists.degrees, around, sequence)
    return found


def replay_really(
    task: Task, costs: Costs, degree: Int64, around, sequence: Int64
) -> tuple[Float64, Float64]:  # type: ignore[no-untyped-def]
    """A piece of the bursty trace, by the processes of `livegnn function serve` and by the replay."""
    service = float(np.mean([one.total for one in costs.parts.plain]))
    whole = make_arrivals("bursty")
    # Two cores: no more than one and a half of them may be busy.
    arrivals = scale_arrivals(whole, min(1.5 / service, 20.0) / peak_rate(whole), task.real)
    nodes = sequence[: len(arrivals)]
    said = Replay(OURS, costs, around, degree, max_workers=2).run(arrivals, nodes)
    return asyncio.run(_ask(task, arrivals, nodes)), said.latency


async def _ask(task: Task, arrivals: Float64, nodes: Int64) -> Float64:
    here = Path(__file__).parent
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(here), os.environ.get("PYTHONPATH", "")]),
    }
    command = f"{sys.executable} -m livegnn function serve --snapshot {task.folder / 'snapshot'}".split()
    command += ["--model", str(task.folder / f"{task.model}.lgnn"), "--workers", "2", "--port", "0"]
    command += ["--waiting", "10000", "--opener", "serverless_contestants:open_ours"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)  # noqa: ASYNC220
    assert process.stdout is not None
    try:
        url = process.stdout.readline().split()[-1]
        began = time.perf_counter()
        return np.array(
            await asyncio.gather(
                *(
                    _ask_once(url, began + float(at), int(node))
                    for at, node in zip(arrivals, nodes, strict=True)
                )
            )
        )
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


async def _ask_once(url: str, at: float, node: int) -> float:
    await asyncio.sleep(max(at - time.perf_counter(), 0.0))

    def post() -> None:
        body = json.dumps({"ids": [node]}).encode()
        request = urllib.request.Request(f"{url}/v1/predictions", body, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as answer:
            answer.read()

    await asyncio.to_thread(post)
    return time.perf_counter() - at


PYG = """
import sys, time
import torch
from torch_geometric.nn.models import GCN
from torch_geometric.utils import k_hop_subgraph
path, node, bandwidth, latency = sys.argv[1:]
began = time.perf_counter()
data = torch.load(path, weights_only=True)
size = sum(each.numel() * each.element_size() for each in data.values())
time.sleep(max(size / float(bandwidth) + float(latency) - (time.perf_counter() - began), 0))
module = GCN(data["x"].shape[1], 16, num_layers=2, out_channels=16).eval()
nodes, edges, place, _ = k_hop_subgraph(int(node), 3, data["edge_index"], relabel_nodes=True)
with torch.no_grad():
    print(module(data["x"][nodes], edges)[place[0]].argmax().item())
"""


def start_pyg(folder: Path, node: int) -> float:
    """Seconds from the start of a process with PyG to its first answer; all data are fetched, at the
    bandwidth and the latency of the throttle."""
    given = [str(folder / "pyg.pt"), str(node), str(BANDWIDTH), str(LATENCY)]
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", PYG, *given], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began
