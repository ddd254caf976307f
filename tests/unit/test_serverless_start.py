"""A fresh process that predicts from a folder: what it loads, and what it does not."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
from test_serverless_memory import make_gcn

from livegnn import Engine, Graph
from livegnn.oracle.exactness import judge
from livegnn.snapshots.writer import write_snapshot

SLOW = (
    "torch",
    "torch_geometric",
    "pandas",
    "pyarrow",
    "jaxtyping",
    "z3",
    "starlette",
    "granian",
    "httpx",
    "prometheus_client",
    "livegnn.server",
    "livegnn.runtime",
    "livegnn.oracle",
    "livegnn.verification",
    "livegnn.importers",
    "livegnn.inference.engine",
    "tracemalloc",
)
"""Modules that a first prediction does not wait for."""

CODE = """
import json, sys
from livegnn.remote.predictor import open_predictor
rows = open_predictor(*sys.argv[1:]).predict([0, 3])
print(json.dumps([rows.tolist(), sorted(sys.modules)]))
"""


def test_a_fresh_process_loads_little_and_says_what_the_engine_says(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    x = rng.standard_normal((50, 8)).astype(np.float32)
    graph = Graph.from_edges(*rng.integers(0, 50, (2, 200)), x=x, parallel="last")
    model = make_gcn(8)
    write_snapshot(graph, str(tmp_path / "graph"), directions=("in",))
    model.save(tmp_path / "model")
    arguments = [str(tmp_path / "graph"), str(tmp_path / "model")]
    result = subprocess.run(
        [sys.executable, "-c", CODE, *arguments], capture_output=True, text=True, check=True
    )
    rows, modules = json.loads(result.stdout.splitlines()[-1])
    assert judge(np.array(rows, np.float32), Engine(graph, model).predict([0, 3])).ok
    assert not set(SLOW) & set(modules)
    assert "livegnn.remote.predictor" in modules
