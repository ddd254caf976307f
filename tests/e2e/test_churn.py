"""What comes and goes leaves nothing behind, and `memory()` says what the process takes."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest

from livegnn import EdgeSchema, Engine, Events, Graph, Schema
from livegnn.sampling import sample_neighbors
from modules import WIDTH, Design, make

EDGES = ("node", "to", "node")
ROOT = Path(__file__).parents[2]

SUM = """
import gc, os, sys
from pathlib import Path
import numpy as np
import livegnn as lg
sys.path.insert(0, "benchmarks")
from churn import KNOWS, PAYS, WIDTH, make_model, resident

text = sys.argv[1] == "text"
def name(ids):
    return np.array([f"the node with the number {i}" for i in ids]) if text else 7 * ids

types = {PAYS: lg.EdgeSchema(weighted=True, timed=True), KNOWS: lg.EdgeSchema(undirected=True, edge_dim=3)}
rng = np.random.default_rng(1)

def fill(graph, first, nodes, edges):
    for part in range(first, first + nodes, 5000):
        ids = np.arange(part, part + 5000)
        graph.apply(lg.Events().add_nodes(name(ids), rng.random((5000, WIDTH))))
    for _ in range(edges // 10_000):
        src, dst = rng.integers(0, first + nodes, (2, 10_000))
        weight, time = rng.random((2, 10_000))
        graph.apply(lg.Events().add_edges(name(src), name(dst), weight=weight, time=time, edge_type=PAYS))
        x = rng.random((10_000, 3))
        graph.apply(lg.Events().add_edges(name(dst), name(src), edge_attr=x, edge_type=KNOWS))

def make(nodes, edges):
    graph = lg.Graph(lg.Schema({"node": WIDTH}, types, text_ids=text), threads=1)
    fill(graph, 0, nodes, edges)
    engine = lg.Engine(graph, make_model(), threads=1)
    engine.apply(lg.Events().set_features(name(np.arange(10)), rng.random((10, WIDTH))))
    return engine

warm = make(5000, 10_000)
gc.collect()
before, counted = resident(), sum(warm.memory().values())
engine = make(100_000, 400_000)
gc.collect()
print(sum(engine.memory().values()), resident() - before)
"""


def run(*command: str) -> str:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "benchmarks"), *sys.path])}
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, cwd=ROOT, env=env, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_what_is_dropped_goes_at_once() -> None:
    """Without waiting for the garbage collector, which does not see how large the native parts are."""
    graph = Graph(Schema({"node": WIDTH}, {EDGES: EdgeSchema(weighted=True)}, text_ids=True))
    names = np.array([f"n{i}" for i in range(20)])
    graph.apply(Events().add_nodes(names, np.ones((20, WIDTH))).add_edges(names, np.roll(names, 1)))
    model = make(Design("gcn"))[1]
    gc.collect()
    gc.disable()
    try:
        engines = [Engine(graph, model, history=100), Engine(graph, model, mode="lazy")]
        engines[0].apply(Events().set_features(names[:1], np.zeros((1, WIDTH))))
        engines[0].what_if(Events().remove_nodes(names[:1])).predict(names[1:])
        sample_neighbors(graph, names, 3, seed=1)
        engines[1].subscribe(print)
        gone = [weakref.ref(one) for one in (*engines, graph)]
        del engines
        assert [ref() for ref in gone[:2]] == [None, None]
        del graph
        assert gone[2]() is None
    finally:
        gc.enable()


@pytest.mark.explored
def test_events_that_come_and_go_leave_nothing(tmp_path: Path) -> None:
    print(run("benchmarks/churn.py", "--events", "800000", "--json", str(tmp_path / "rows.json")))
    result = json.loads((tmp_path / "rows.json").read_text(encoding="utf-8"))
    rows = {row["name"]: row["value"] for row in result["rows"]}
    # A leak of 100 bytes an event would be 40 MB, a third of the whole. The heap itself grows for 400,000.
    assert rows["growth since half"] < 0.05
    assert rows["memory() at the end"] < 1.1 * rows["memory() after half"]
    # Beside the copy: room for the most nodes there were, and slabs that wait for the next batch.
    assert rows["memory() at the end"] < 2 * rows["memory() of a copy made from the state"] + 4


@pytest.mark.parametrize("ids", ["numbers", "text"])
def test_the_sum_of_memory_is_what_the_process_takes(ids: str) -> None:
    counted, taken = map(int, run("-c", SUM, ids).split())
    print(f"memory() says {counted:,}, the process grew by {taken:,}")
    assert 0.9 * taken < counted < 1.1 * taken
