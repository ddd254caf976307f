"""Samples of a graph in two parts beside those of one graph: [25, 10] in-neighbours of 1,000 seeds, in turns.

The parts are processes, on a core each; the process that asks them, and holds the one graph, may use both.
Everything has one thread. Nodes are divided by a hash, so that half of all draws are for nodes of each part.

What can be reached
-------------------
A sample of 1,024 seeds draws 26,000 neighbours and then 250,000 more. Two owners draw half of them each, at
once. The asker gives numbers to all of them, which one graph does too, and moves bytes: for each node that is
drawn for 8 to its owner (index, place) and 4 back (how many neighbours), and 4 for each neighbour. That is
1.3 MB, and with features those of all nodes. So the floor is the asker's own work, the draws of the slower
owner, and the bytes over the rate at which memory is copied: less than what one graph takes, as long as
nothing is sent. With wide features the bytes are all of it, and one graph copies them once, not five times:
into a message, into a socket, out of it, out of a message, and into the sample.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import numpy as np

import livegnn as lg
import livegnn._core as _core
from livegnn.graph import EdgeSchema, Schema
from livegnn.model import Input, Model, Step
from livegnn.partitions import LocalPartitions
from livegnn.partitions.divided import Partitions
from livegnn.partitions.remote import RemotePartitions
from livegnn.placement import Owners
from livegnn.sampling import sample_subgraph
from livegnn.sampling.subgraph import Subgraph
from livegnn.types import DEFAULT_EDGE_TYPE, DEFAULT_NODE_TYPE
from report import Report, arguments

FULL, QUICK = 200_000, 20_000
DEGREE, SEEDS, HOPS = 25, 1024, [25, 10]
AT_ONCE = 250_000  # events of a batch
PARTS = 2
AIM = 0.7


def model_of(width: int) -> Model:
    """A model that costs next to nothing: only the graph is measured."""
    return Model(
        inputs={"x": Input(DEFAULT_NODE_TYPE, width)},
        steps=(Step("linear", ("x",), "out", {"weight": "w"}),),
        tensors={"w": np.ones((1, width), np.float32)},
        output="out",
        layers=("x", "out"),
    )


def fill(graphs: list[lg.Graph | Partitions], nodes: int, width: int) -> None:
    rng = np.random.default_rng(0)
    for first in range(0, nodes, 20_000):
        ids = np.arange(first, min(nodes, first + 20_000))
        events = lg.Events().add_nodes(ids, rng.random((len(ids), width), dtype=np.float32))
        for graph in graphs:
            graph.apply(events)
    for _ in range(0, nodes * DEGREE, AT_ONCE):
        weight = rng.random(AT_ONCE, dtype=np.float32)
        events = lg.Events().add_edges(*rng.integers(0, nodes, (2, AT_ONCE)), weight=weight)
        for graph in graphs:
            graph.apply(events)


def pin(parts: RemotePartitions) -> None:
    """Each process to a core of its own, with all of its threads."""
    for core, process in zip(sorted(os.sched_getaffinity(0)), parts.processes, strict=False):
        for thread in os.listdir(f"/proc/{process.pid}/task"):
            os.sched_setaffinity(int(thread), {core})


def floor_of(local: LocalPartitions, seeds: np.ndarray, by: int, attributes: bool) -> tuple[float, int]:
    """Seconds of the asker's own work and of the slower part's in each round, and bytes that are sent."""
    native, sampler = local.names.native, _core.Sampler(local.names.native)
    own, drawn, sent = 0.0, 0.0, 0
    started = time.perf_counter()
    given = [(0, seeds)], [(0, HOPS)], by, False, False, True, attributes, None, 1, 1
    sample = _core.DividedSample.begin_subgraph(sampler, native, *given)
    while questions := sample.ask(native):
        own += time.perf_counter() - started
        answers, taken = [], []
        for part, question in zip(local.parts, questions, strict=True):
            started = time.perf_counter()
            answers.append(part.ask(question.data)())
            taken.append(time.perf_counter() - started)
        drawn += max(taken)
        sent += sum(one.nbytes for one in questions) + sum(len(one) for one in answers)
        started = time.perf_counter()
        assert sample.take(native, answers)
    sample.finish(native, False)
    return own + time.perf_counter() - started + drawn, sent


def copy_rate() -> float:
    """Bytes a second of a copy of a megabyte."""
    block = np.zeros(1 << 20, np.uint8)
    times = []
    for _ in range(50):
        started = time.perf_counter()
        block.copy()
        times.append(time.perf_counter() - started)
    return len(block) / float(np.median(times))


def in_turns(calls: list[Callable[[int], Subgraph]], rounds: int) -> tuple[np.ndarray, Subgraph]:
    """Seconds of each call in each round, the first ones left out, and the last sample."""
    times = np.zeros((rounds, len(calls)))
    for turn in range(rounds):
        samples = []
        for place, call in enumerate(calls):
            started = time.perf_counter()
            samples.append(call(turn))
            times[turn, place] = time.perf_counter() - started
        for sample in samples[1:]:
            assert np.array_equal(sample.node, samples[0].node)
            assert np.array_equal(sample.row, samples[0].row)
    return times[rounds // 10 :], samples[0]


def measure(nodes: int, width: int, rounds: int, report: Report) -> None:
    schema = Schema({DEFAULT_NODE_TYPE: width}, {DEFAULT_EDGE_TYPE: EdgeSchema(weighted=True)})
    model, owners = model_of(width), Owners("jump", PARTS)
    graph = lg.Graph(schema, threads=1)
    remote = RemotePartitions(schema, model, owners, threads=1)
    local = LocalPartitions(schema, model, owners, threads=1)
    rate = copy_rate()
    try:
        fill([graph, remote, local], nodes, width)
        pin(remote)
        rng = np.random.default_rng(1)
        seeds = rng.integers(0, nodes, (rounds, SEEDS))
        for by, attributes in (("uniform", False), ("weight", False), ("uniform", True)):

            def draw(graph: lg.Graph, turn: int, by: str = by, attributes: bool = attributes) -> Subgraph:
                given = {"by": by, "attributes": attributes, "seed": turn, "threads": 1}
                return sample_subgraph(graph, seeds[turn], HOPS, **given)  # type: ignore[arg-type]

            calls = [lambda turn: draw(graph, turn), lambda turn: draw(remote.names, turn)]
            times, last = in_turns(calls, rounds)
            one, two = np.median(times, axis=0)
            kind = ["uniform", "weight"].index(by)
            found = [floor_of(local, seeds[turn], kind, attributes) for turn in range(10)]
            floor = min(seconds for seconds, _ in found) + found[0][1] / rate
            name = f"{by}, {width} features" if attributes else f"{by}"
            report.add(
                f"{name}: a sample",
                1e3 * two,
                "ms",
                peer="one graph",
                peer_value=1e3 * one,
                floor=1e3 * floor,
            )
            report.add(
                f"{name}: rate over that of one graph",
                float(np.median(times[:, 0] / times[:, 1])),
                "",
                higher_is_better=True,
                aim=AIM,
                floor=one / floor,
            )
            report.note(
                f"{name}: {len(last.node):,} nodes, {len(last.row):,} edges, {found[0][1] / 1e6:.2f} MB sent"
            )
    finally:
        remote.close()
        local.close()


def main() -> None:
    options = arguments(__doc__).parse_args()
    nodes, rounds = (QUICK, 20) if options.quick else (FULL, 100)
    report = Report(f"samples of {HOPS} over {PARTS} parts, {nodes:,} nodes of {DEGREE} in-edges")
    if len(os.sched_getaffinity(0)) < PARTS:
        report.could_not_run("a core for each part", "there are fewer cores")
    measure(nodes, 16, rounds, report)
    report.finish(options.json)


if __name__ == "__main__":
    main()
