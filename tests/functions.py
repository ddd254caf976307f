"""Predictors that tests give to workers of functions, and what they answer."""

import io
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np

from livegnn.errors import InputError, SnapshotReplacedError, StoreUnavailableError, UnknownNodeError
from livegnn.functions.bodies import Answer, answer_error, read_asked
from livegnn.functions.function import Function, Predictor, Step, answer
from livegnn.functions.messages import pack
from livegnn.inference import Degrees, Engine, SampledForward
from livegnn.sampling import Subgraph, sample_subgraph
from streams import make_arrays, make_graph, make_model
from waiting import REQUEST_SECONDS

HERE = Path(__file__).parent
ENVIRONMENT = {"PYTHONPATH": os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])}

KILL, FAIL, HANG, GROW, PRINT, ROOM = range(1_000_001, 1_000_007)
"""Ids that do something to the worker that is asked for them."""

_ARRAYS = ("row", "col", "inverse", "node", "x", "edge_weight")


def make_degrees() -> np.ndarray:
    """For each node: count, weight, loops and their weight, as `Degrees` has them."""
    arrays = make_arrays()
    loops = arrays["src"] == arrays["dst"]
    nodes = len(arrays["ids"])
    return np.stack(
        [
            np.bincount(arrays["dst"][chosen], weights, minlength=nodes)
            for chosen in (slice(None), loops)
            for weights in (None, arrays["weight"][chosen])
        ]
    )


class GraphPredictor:
    """Predicts from a graph in this process: samples whole neighbourhoods, with the degrees of the graph.

    directory: where it leaves a file for each id that it was asked for, named by the process.
    """

    def __init__(self, directory: str, seq: int = 7) -> None:
        self.graph, self.directory, self.seq = make_graph(), Path(directory), seq
        self.degrees = make_degrees()
        self.forward = SampledForward(make_model())

    def predict(self, ids: np.ndarray, *, memory_limit: int | None) -> np.ndarray:
        self.room = memory_limit
        return self.infer(self.sample(ids), memory_limit=memory_limit)

    def sample(self, ids: np.ndarray) -> bytes:
        if ids.dtype.kind != "i":
            raise InputError(f"ids must be integers in this graph, got {ids[0]!r}")
        for id in ids.tolist():
            if id == ROOM:
                raise InputError(f"room {self.room}")
            (self.directory / f"{id}-{os.getpid()}-{time.monotonic_ns()}").touch()
            _act(id, self.directory)
        known = ids[ids < 1_000_000]
        if unknown := known[known >= len(self.degrees[0])].tolist():
            raise UnknownNodeError(f"there is no node {unknown[0]}")
        found = sample_subgraph(self.graph, known, [-1, -1], attributes=True)
        file = io.BytesIO()
        columns = {name: getattr(found, name) for name in _ARRAYS if getattr(found, name) is not None}
        counts = np.array([*found.num_sampled_nodes, *found.num_sampled_edges])
        np.savez(file, counts=counts, degrees=self.degrees[:, found.node], **columns)
        return file.getvalue()

    def infer(self, subgraph: bytes, *, memory_limit: int | None) -> np.ndarray:
        if replaced := list(self.directory.glob("replaced*")):
            replaced[0].unlink()
            raise SnapshotReplacedError("there is a newer snapshot: sample again")
        with np.load(io.BytesIO(subgraph), allow_pickle=False) as found:
            columns = {name: found.get(name) for name in _ARRAYS}
            counts, degrees = found["counts"].tolist(), found["degrees"]
        nodes = len(counts) // 2 + 1
        sample = Subgraph(
            **columns,
            edge=None,
            batch=None,
            num_sampled_nodes=counts[:nodes],
            num_sampled_edges=counts[nodes:],
            seed=0,
            time=None,
            edge_attr=None,
        )
        count, weight, loops, loop_weight = degrees
        true = Degrees(count.astype(int), weight, loops.astype(int), loop_weight)
        return self.forward.predict(sample, degrees=true)

    def describe(self) -> dict[str, object]:
        return {"seq": self.seq}


def _act(id: int, directory: Path) -> None:
    if id == KILL:
        os.kill(os.getpid(), signal.SIGKILL)
    elif id == FAIL:
        raise RuntimeError("the predictor has a mistake")
    elif id == HANG:
        while not (directory / "go on").exists():
            time.sleep(0.01)
    elif id == GROW:
        np.ones(10**9)
    elif id == PRINT:
        print("this goes to standard error")
        sys.stdout.flush()
        os.write(1, b"and this\n")


def refuse(directory: str) -> GraphPredictor:
    """A predictor that cannot be opened until a file is there; it notes each try."""
    (Path(directory) / f"try-{time.monotonic_ns()}").touch()
    if not (Path(directory) / "open").exists():
        raise InputError("expected a snapshot, there is none")
    return GraphPredictor(directory)


def find_no_store(directory: str) -> GraphPredictor:
    """A predictor whose store does not answer until a file is there; it notes each try."""
    (Path(directory) / f"try-{time.monotonic_ns()}").touch()
    if not (Path(directory) / "open").exists():
        raise StoreUnavailableError("the store does not answer")
    return GraphPredictor(directory)


def function(directory: Path, stage: str = "predict", **settings: object) -> Function:
    return Function("functions:GraphPredictor", {"directory": str(directory)}, stage, **settings)


def body(*ids: int | str, **fields: object) -> bytes:
    """A request that has time to start a worker on a busy machine."""
    return json.dumps({"ids": list(ids), "timeout": REQUEST_SECONDS, **fields}).encode()


def message(*ids: int | str, **fields: object) -> bytes:
    """The same as a machine sends it to a worker."""
    return pack(read_asked(body(*ids, **fields)))


def answer_to(predictor: Predictor, text: bytes, stage: Step = "predict") -> Answer:
    """What a machine answers with one worker."""
    try:
        return answer(predictor, stage, pack(read_asked(text)))
    except InputError as error:
        return answer_error(error)


def expected(*ids: int) -> np.ndarray:
    """What an engine on the whole graph predicts."""
    return Engine(make_graph(), make_model()).predict(list(ids))


def asked(directory: Path, id: int) -> list[str]:
    """The processes that were asked for an id, in order."""
    found = [path.name.split("-") for path in directory.glob(f"{id}-*")]
    return [process for _, process, _ in sorted(found, key=lambda parts: int(parts[2]))]


class WholePredictor:
    """A predictor that cannot be divided."""

    def predict(self, ids: np.ndarray, *, memory_limit: int | None) -> np.ndarray:
        return np.ones((len(ids), 1), np.float32)

    def describe(self) -> dict[str, object]:
        return {"seq": 1}


def open_snapshot(snapshot_url: str, model_path: str) -> GraphPredictor:
    """What `livegnn function serve --opener` takes; the snapshot is the directory."""
    return GraphPredictor(snapshot_url)


def open_for_ever(snapshot_url: str, model_path: str) -> GraphPredictor:
    """As `open_snapshot`, and never returns."""
    threading.Event().wait()
    raise AssertionError


class WidePredictor:
    """Predicts five numbers of fourteen characters for each node."""

    def predict(self, ids: np.ndarray, *, memory_limit: int | None) -> np.ndarray:
        return np.full((len(ids), 5), -0.000123456789, np.float32)

    def describe(self) -> dict[str, object]:
        return {"seq": 1}


def open_wide(snapshot_url: str, model_path: str) -> WidePredictor:
    """As `open_snapshot`."""
    return WidePredictor()
