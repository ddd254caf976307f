"""A function that starts: from the start of a process to its first answer, beside a process with PyG.

A graph of Cora's size (2,708 nodes, 10,556 edges, 1,433 features) and a GCN of 16 hidden channels. Ours opens
a snapshot in a local folder and a model file, fetches the two hops of one node and predicts. PyG's loads
torch, the same arrays and the same weights, takes the same two hops (`k_hop_subgraph`) and runs the module.
Each run is a process of its own, on one core; files are in the cache of the system. The floor is a process
that imports NumPy.

In one warm process the benchmark also says what parts of a request cost: predicting its memory, and the
operations of the cache, with a worker's limit as large as the greatest peak.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch_geometric.nn.models import GCN

import livegnn as lg
from livegnn.remote.predictor import SnapshotPredictor, open_predictor
from livegnn.remote.profiling import profile
from livegnn.snapshots.snapshot_source import SnapshotSource
from livegnn.snapshots.writer import write_snapshot
from report import Report, arguments

NODES, EDGES, WIDTH, HIDDEN, CLASSES = 2708, 5278, 1433, 16, 7
AIM, PREDICTION_AIM, CACHE_AIM = 0.35, 1.0, 3.9
RUNS, QUICK_RUNS = 21, 3
REQUESTS, QUICK_REQUESTS = 2000, 200

OURS = """
import sys
from livegnn.remote.predictor import open_predictor
print(open_predictor(sys.argv[1], sys.argv[2]).predict([int(sys.argv[4])]).argmax())
"""
PYG = """
import sys
import torch
from torch_geometric.nn.models import GCN
from torch_geometric.utils import k_hop_subgraph
data = torch.load(sys.argv[3], weights_only=True)
module = GCN(data["x"].shape[1], 16, num_layers=2, out_channels=7).eval()
module.load_state_dict(data["module"])
nodes, edge_index, place, _ = k_hop_subgraph(int(sys.argv[4]), 3, data["edge_index"], relabel_nodes=True)
with torch.no_grad():
    print(module(data["x"][nodes], edge_index)[place[0]].argmax().item())
"""


def save(folder: Path) -> tuple[list[str], lg.Graph]:
    """Writes the snapshot, the model and PyG's file; returns the arguments of both processes."""
    random = np.random.default_rng(0)
    weight = 1 / np.arange(1, NODES + 1) ** 0.6
    ends = random.choice(NODES, (2, EDGES), p=weight / weight.sum())
    edges = np.unique(np.concatenate([ends, ends[::-1]], axis=1), axis=1)
    edges = edges[:, edges[0] != edges[1]]
    x = random.random((NODES, WIDTH), dtype=np.float32)
    torch.manual_seed(0)
    module = GCN(WIDTH, HIDDEN, num_layers=2, out_channels=CLASSES).eval()
    graph = lg.Graph.from_edges(*edges, x=x)
    write_snapshot(graph, str(folder / "snapshot"), directions=("in",))
    lg.Model.from_pyg(module).save(folder / "model.lgnn")
    data = {"x": torch.from_numpy(x), "edge_index": torch.from_numpy(edges), "module": module.state_dict()}
    torch.save(data, folder / "pyg.pt")
    node = str(int(np.argsort(graph.degree(np.arange(NODES)))[NODES // 2]))
    return [str(folder / "snapshot"), str(folder / "model.lgnn"), str(folder / "pyg.pt"), node], graph


def run(code: str, given: list[str]) -> tuple[float, str]:
    """Seconds from the start of a process to its end, and what it printed."""
    began = time.perf_counter()
    found = subprocess.run([sys.executable, "-c", code, *given], capture_output=True, text=True, check=True)
    return time.perf_counter() - began, found.stdout.strip()


def add_starts(report: Report, given: list[str], runs: int) -> None:
    seconds: dict[str, list[float]] = {OURS: [], PYG: [], "import numpy": []}
    answers = set()
    for number in range(runs + 1):
        for code, each in seconds.items():
            taken, printed = run(code, given)
            if number:  # the first run of each reads files from the disk
                each.append(taken)
            if code != "import numpy":
                answers.add(printed)
    assert len(answers) == 1, f"the processes must predict the same class, got {answers}"
    report.add(
        "process start to first answer, median",
        statistics.median(seconds[OURS]),
        "s",
        aim=AIM,
        peer="PyG",
        peer_value=statistics.median(seconds[PYG]),
        floor=statistics.median(seconds["import numpy"]),
    )
    report.add("process start to first answer, worst", max(seconds[OURS]), "s")


def add_requests(report: Report, given: list[str], graph: lg.Graph, requests: int) -> None:
    source = SnapshotSource(given[0])
    model = lg.Model.load(given[1])
    began = time.perf_counter()
    memory = profile(SnapshotPredictor(source, model), graph.ids(), requests=120)
    report.add("profiling and training", time.perf_counter() - began, "s")
    report.add("memory prediction, error on requests held out", 100 * memory.error, "%", aim=10.0)
    memory.save(given[1] + ".memory")
    predictor = open_predictor(given[0], given[1])
    likely = graph.degree(graph.ids()) / graph.degree(graph.ids()).sum()
    asked = np.random.default_rng(1).choice(graph.ids(), requests, p=likely)
    began = time.perf_counter()
    for id_ in asked:
        predictor.predict([id_])
    seconds = time.perf_counter() - began
    told = predictor.account
    report.add("request, mean", 1e3 * seconds / requests, "ms")
    report.add("memory prediction, mean", 1e3 * told.memory_seconds / requests, "ms", aim=PREDICTION_AIM)
    report.add(
        "operations of the cache, of a request", 100 * told.cache_seconds / seconds, "%", aim=CACHE_AIM
    )
    report.add("features reused", 100 * told.features_reused / told.features_read, "%", higher_is_better=True)
    report.add("predictions of memory that were too low", told.predicted_too_low, "requests")
    report.note(f"limit {memory.limit / 1e6:.1f} MB; features of all nodes {4e-6 * NODES * WIDTH:.1f} MB")


def main() -> None:
    options = arguments(__doc__).parse_args()
    report = Report("function_start")
    with tempfile.TemporaryDirectory() as folder:
        given, graph = save(Path(folder))
        add_starts(report, given, QUICK_RUNS if options.quick else RUNS)
        add_requests(report, given, graph, QUICK_REQUESTS if options.quick else REQUESTS)
    report.finish(options.json)


if __name__ == "__main__":
    main()
