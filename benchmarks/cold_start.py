"""Cold start: from process start to the first prediction from a saved checkpoint of the demo.

    python benchmarks/cold_start.py [--quick] [--json FILE]

Measured as a user meets it: a whole process, from its start to its end. It reads the checkpoint and the
model, restores graph and engine, predicts one member, and asserts that torch was not imported.

Estimate: an interpreter takes 15 ms, NumPy 70 ms, the other imports some 40 ms; the checkpoint is mapped,
and a few MB of it are copied (2 ms). So 130 ms. The floor is an interpreter that only imports NumPy.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from livegnn import checkpoint
from livegnn.demo.ratings import load
from livegnn.demo.session import graph_at_cutoff, load_model, start_engine
from report import Report, arguments

AIM = 0.4

PREDICT = """
import sys
from livegnn import Engine, Graph, Model, checkpoint

saved = checkpoint.read(sys.argv[1])
graph = Graph.from_state(saved.states["graph"])
engine = Engine(graph, Model.load(sys.argv[2]), state=saved.states["engine"])
print(float(engine.predict(int(sys.argv[3]))[0, 0]))
assert "torch" not in sys.modules, "torch was imported"
assert "fastapi" not in sys.modules, "the server was imported"
"""


def save(folder: Path) -> tuple[Path, Path, int, float]:
    """A checkpoint of the demo at the cut-off, its model, a member and what is predicted of it."""
    graph, _ = graph_at_cutoff(load())
    engine = start_engine(graph)
    checkpoint.write(folder / "demo.lgck", {"graph": graph.state(), "engine": engine.state()}, engine.seq)
    load_model().save(folder / "demo.lgnn")
    member = int(graph.ids()[0])
    return folder / "demo.lgck", folder / "demo.lgnn", member, float(engine.predict(member)[0, 0])


def run(*arguments: str) -> tuple[float, str]:
    """The seconds that a fresh interpreter takes to run, and what it prints."""
    started = time.perf_counter()
    process = subprocess.run([sys.executable, "-c", *arguments], capture_output=True, text=True, check=True)
    return time.perf_counter() - started, process.stdout


def main() -> None:
    options = arguments(__doc__).parse_args()
    runs = 7 if options.quick else 25
    report = Report("cold start")
    with tempfile.TemporaryDirectory() as folder:
        file, model, member, expected = save(Path(folder))
        cold, floor = [], []
        for _ in range(runs):
            seconds, printed = run(PREDICT, str(file), str(model), str(member))
            assert float(printed) == expected, f"predicted {printed}, but {expected} before the restart"
            cold.append(seconds)
            floor.append(run("import numpy")[0])
        size = file.stat().st_size
    report.add(
        "process start to first prediction, median",
        statistics.median(cold),
        "s",
        aim=AIM,
        floor=statistics.median(floor),
    )
    report.add("process start to first prediction, worst", max(cold), "s")
    report.note(f"{runs} processes; a checkpoint of {size / 1e6:.1f} MB; torch was in none of them")
    report.finish(options.json)


if __name__ == "__main__":
    main()
