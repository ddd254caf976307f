"""A program that ends while its threads are in the library, without `stop`, ends quietly: status 0, no word.

CPython before 3.14 ends a thread that asks for the interpreter's lock after the main thread has returned. In
a frame of C++ that was SIGABRT.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from gate import draws
from waiting import PATIENCE

PROGRAM = """
import sys, threading
import numpy as np
import livegnn as lg
from livegnn.log.sqlite import SqliteLog
from livegnn.model import Input, Model, Propagate, Step
from livegnn.presampling import SampledEngine
from livegnn.runtime import Runtime
from livegnn.sampling import sample_neighbors
from livegnn.workers import SamplingWorker, ServingWorker, SqlitePlace, WorkerPlan

what, folder = sys.argv[1:]
EDGE, NODES = ("node", "to", "node"), 3000
rng = np.random.default_rng(0)
rows = rng.normal(size=(NODES, 4)).astype(np.float32)
ids, ends = np.arange(NODES), rng.integers(0, NODES, (2, 6 * NODES))
steps = [Step("propagate", ("x",), "h", attrs=Propagate(EDGE, (), "count", "divide").to_attrs())]
functions = {}
if what == "function":
    steps.append(Step("call", ("h",), "out", attrs={"function": "f", "width": 4}))
    functions["f"] = lambda x: x + 1
query = lg.Query("node").hop(EDGE, 5, direction="in")
last = steps[-1].output
model = Model({"x": Input("node", 4)}, tuple(steps), {}, last, ("x", last), functions=functions)
graph = lg.Graph(lg.Schema({"node": 4}, {EDGE: lg.EdgeSchema()}))
log = SqliteLog(folder + "/events.db")
fill = [lg.Events().add_nodes(ids, rows), lg.Events().add_edges(*ends)]
changed = lg.Events().set_features(ids, rows)
entered = threading.Event()

def again(call):
    def run():
        entered.set()
        while True:
            call()
    threading.Thread(target=run, daemon=True).start()
    entered.wait()

if what in ("runtime", "worker"):
    runtime = Runtime(log, graph, *([lg.Engine(graph, model)] if what == "runtime" else []))
    runtime.start()
    for events in (*fill, *[changed] * 8):
        seq = runtime.append(events)
    if what == "worker":
        place, plan = SqlitePlace(folder + "/events.db"), WorkerPlan(graph.schema, query)
        sampling, serving = SamplingWorker(place, plan, 0, folder), ServingWorker(place, plan, 0)
        serving.start()
        again(sampling.step)
else:
    for events in fill:
        graph.apply(events)
    if what == "sampled":
        engine = SampledEngine(graph, model.with_query(query))
    elif what != "sample":
        engine = lg.Engine(graph, model, mode="lazy" if what == "lazy" else "eager")
    if what in ("apply", "function"):
        again(lambda: graph.apply(changed))
    elif what == "lazy":
        again(lambda: (graph.apply(changed), engine.predict(ids)))
    elif what == "sample":
        again(lambda: sample_neighbors(graph, ids, 3))
    else:
        again(lambda: engine.predict(ids))
        again(lambda: engine.predict(ids[:1]))
"""


@pytest.mark.parametrize(
    "what", ["runtime", "apply", "function", "predict", "lazy", "sampled", "sample", "worker"]
)
def test_a_program_that_does_not_stop_ends_quietly(what: str, tmp_path: Path) -> None:
    for number in range(draws(2, 30)):
        folder = tmp_path / str(number)
        folder.mkdir()
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, what, str(folder)],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
