"""What requests take, predicted: on real graphs, and as a file."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from model_examples import propagate
from test_sampled_forward import GCN

from gate import draws
from livegnn import FileFormatError, Graph, InputError, Model
from livegnn.model import Input, Step
from livegnn.remote.memory_model import MemoryModel, PeakMeter
from livegnn.remote.predictor import SnapshotPredictor, open_predictor
from livegnn.remote.profiling import profile
from livegnn.snapshots.objects import open_objects
from livegnn.snapshots.snapshot_source import SnapshotSource
from livegnn.snapshots.writer import write_snapshot
from processes import ONE_THREAD

DATA = Path(__file__).parents[1] / "data"


def make_gcn(width: int, hidden: int = 16) -> Model:
    random = np.random.default_rng(0)
    steps, tensors, name = [], {}, "x"
    for i, (fan_in, fan_out) in enumerate(((width, hidden), (hidden, 7))):
        steps += [
            propagate(name, f"a{i}", GCN),
            Step("linear", (f"a{i}",), f"l{i}", {"weight": f"w{i}"}),
            Step("relu", (f"l{i}",), f"h{i}"),
        ]
        tensors[f"w{i}"] = random.standard_normal((fan_out, fan_in), dtype=np.float32)
        name = f"h{i}"
    return Model({"x": Input("node", width)}, tuple(steps), tensors, name, ("x", name))


def read_cora() -> Graph:
    data = np.load(DATA / "cora.npz")
    x = np.zeros(tuple(data["x_shape"]), np.float32)
    rows = np.repeat(np.arange(len(x)), np.diff(data["x_indptr"]))
    x[rows, data["x_indices"].astype(np.int64)] = data["x_values"]
    src, dst = data["src"].astype(np.int64), data["dst"].astype(np.int64)
    return Graph.from_edges(np.concatenate([src, dst]), np.concatenate([dst, src]), x=x, parallel="last")


def read_tolokers() -> Graph:
    data = np.load(DATA / "tolokers.npz")
    src, dst = data["edges"].astype(np.int64).T[:, ::8]
    x = np.tile(data["x"].astype(np.float32), (1, 30))
    return Graph.from_edges(np.concatenate([src, dst]), np.concatenate([dst, src]), x=x, parallel="last")


@pytest.mark.explored
@pytest.mark.parametrize("read", [read_cora, read_tolokers])
def test_requests_on_real_graphs_take_what_was_predicted(read, tmp_path: Path) -> None:
    """On requests that nobody has seen: less than 10 % beside it, in the mean."""
    graph = read()
    write_snapshot(graph, str(tmp_path), directions=("in",))
    model = make_gcn(graph.schema.node_types["node"])
    predictor = SnapshotPredictor(SnapshotSource(str(tmp_path)), model)
    ids = graph.ids()
    memory = profile(predictor, ids, requests=draws(80, 200))
    random = np.random.default_rng(1)
    errors, peaks = [], []
    for id_ in random.choice(ids, draws(20, 40)):
        counts, peak = predictor.measure([id_])
        errors.append(abs(memory.predict(counts) - peak) / peak)
        peaks.append(peak)
    print("error", np.mean(errors), "greatest", np.max(errors), "of peaks from", min(peaks), "to", max(peaks))
    assert np.mean(errors) < 0.1
    assert memory.error < 0.1
    assert max(peaks) > 3 * min(peaks)  # they do differ
    hub = ids[np.argmax(graph.degree(ids))]
    counts, peak = predictor.measure([hub])
    assert memory.limit == pytest.approx(peak, rel=0.05)
    # With that limit, every request for one node goes through, and with what it leaves features are reused.
    limited = SnapshotPredictor(
        SnapshotSource(str(tmp_path)), model, memory_limit=memory.limit, memory_model=memory
    )
    for id_ in [hub, *random.choice(ids, 20), hub]:
        assert limited.predict([id_]).tobytes() == predictor.predict([id_]).tobytes()
        assert limited.describe()["cache_bytes"] <= memory.limit
    assert limited.describe()["features_reused"] > 0


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the system does not measure it")
def test_the_peak_is_what_the_system_sees(tmp_path: Path) -> None:
    """In a fresh process, prepared as that of a worker: the growth of its resident memory while one large
    request runs."""
    graph = Graph.from_edges(
        *np.random.default_rng(0).integers(0, 40_000, (2, 40_000)),
        x=np.ones((40_000, 256), np.float32),
        num_nodes=40_000,
    )
    write_snapshot(graph, str(tmp_path), directions=("in",))
    make_gcn(256).save(tmp_path / "model")
    code = f"""
from livegnn.remote.memory_limit import prepare
prepare()
import re, numpy as np
from livegnn.remote.predictor import open_predictor
predictor = open_predictor({str(tmp_path)!r}, {str(tmp_path / "model")!r}, cache=False)
predictor.predict([0])
def status(name):
    return 1024 * int(re.search(name + r":\\s+(\\d+)", open("/proc/self/status").read())[1])
ids = np.arange(0, 40_000, 2)
before = status("VmRSS")
open("/proc/self/clear_refs", "w").write("5")
predictor.predict(ids)
seen = status("VmHWM") - before
print("RESULT", seen, predictor.measure(ids)[1])
"""
    environment = {**os.environ, **ONE_THREAD}
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    seen, measured = map(int, re.findall(r"RESULT (\d+) (\d+)", result.stdout)[0])
    print(f"seen {seen / 1e6:.1f} MB, measured {measured / 1e6:.1f} MB")
    assert measured == pytest.approx(seen, rel=0.1)


def test_it_learns_a_law_and_says_its_error(rng: np.random.Generator) -> None:
    counts = np.cumsum(rng.integers(1, 10 ** rng.integers(1, 5, (150, 1)), (150, 5)), axis=1)
    peaks = 10_000 + counts @ np.array([8, 1200, 40, 16, 8])
    model = MemoryModel.fit(counts[:100], peaks[:100], model="a", limit=5)
    errors = [abs(model.predict(each) - peak) / peak for each, peak in zip(counts, peaks, strict=True)]
    print(np.mean(errors), model.error)
    assert np.mean(errors[100:]) < 0.1
    assert 0 < model.error < 0.2
    noise = rng.integers(1000, 10**7, 100)
    assert MemoryModel.fit(counts[:100], noise, model="a", limit=5).error > 0.3
    same = MemoryModel.fit(np.ones((6, 3), np.int64), np.full(6, 777), model="a", limit=5)
    assert same.predict(np.ones(3, np.int64)) == pytest.approx(777, abs=1)
    with pytest.raises(InputError, match="requests with 4 counts, got one of 3"):
        same.predict(np.ones(4, np.int64))
    with pytest.raises(InputError, match="at least 5 requests, got 4"):
        MemoryModel.fit(counts[:4], peaks[:4], model="a", limit=5)


def test_a_file_says_the_same_and_damage_is_found(tmp_path: Path, rng: np.random.Generator) -> None:
    counts = rng.integers(1, 1000, (20, 5))
    model = MemoryModel.fit(counts, counts.sum(1) * 100, model="digest", limit=12345)
    path = tmp_path / "model.memory"
    model.save(path)
    again = MemoryModel.load(path)
    for each in fields(MemoryModel):
        assert np.array_equal(getattr(model, each.name), getattr(again, each.name))
    whole = path.read_bytes()
    for at in rng.integers(0, len(whole), 100):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << int(rng.integers(7))
        path.write_bytes(damaged)
        with pytest.raises(FileFormatError):
            MemoryModel.load(path)
    for text in (b"", whole[:-1], b"{}", b"[]", b"PK\x03\x04"):
        path.write_bytes(text)
        with pytest.raises(FileFormatError):
            MemoryModel.load(path)
    other = json.loads(whole)
    other["livegnn.memory"]["version"] = 1
    path.write_text(json.dumps(other), encoding="utf-8")
    with pytest.raises(FileFormatError, match="version 2, got 1: profile"):
        MemoryModel.load(path)


def test_the_file_beside_a_model_is_found_and_names_the_limit(tmp_path: Path) -> None:
    graph = Graph.from_edges([0, 1, 2], [1, 2, 0], x=np.eye(3, dtype=np.float32))
    write_snapshot(graph, str(tmp_path / "graph"))
    model = make_gcn(3)
    model.save(tmp_path / "model")
    arguments = (str(tmp_path / "graph"), tmp_path / "model")
    assert open_predictor(*arguments).memory_limit is None
    counts = np.arange(25).reshape(5, 5)
    MemoryModel.fit(counts, counts.sum(1) + 1, model=model.digest, limit=4096).save(tmp_path / "model.memory")
    assert open_predictor(*arguments).memory_limit == 4096
    assert open_predictor(*arguments, memory_limit=99).memory_limit == 99
    opened = open_predictor(open_objects(arguments[0]), tmp_path / "model")
    assert np.array_equal(opened.predict([0]), open_predictor(*arguments).predict([0]))
    with pytest.raises(FileNotFoundError):
        open_predictor(*arguments, memory_path=tmp_path / "none")


def test_a_peak_is_what_is_held_at_once() -> None:
    before = np.ones(10**6, np.int8)
    with PeakMeter() as meter:
        np.ones(9 * 10**6, np.int8)
        held = np.ones(10**6, np.int8)
        meter.start_over()
        assert np.ones(5 * 10**6, np.int8).any()
        small = np.ones(10**6, np.int8)
        meter.note(2 * 10**6)
    assert meter.peak == pytest.approx(6 * 10**6, rel=0.01)
    with PeakMeter() as meter:
        more = np.ones(10**6, np.int8)
        meter.note(7 * 10**6)
        more = np.ones(10**6, np.int8)
    assert meter.peak == pytest.approx(8 * 10**6, rel=0.01)
    assert before[0] + held[0] + small[0] + more[0] == 4


def test_profiling_says_what_it_lacks(tmp_path: Path) -> None:
    graph = Graph.from_edges([0, 1, 2], [1, 2, 0], x=np.eye(3, dtype=np.float32))
    write_snapshot(graph, str(tmp_path))
    predictor = SnapshotPredictor(SnapshotSource(str(tmp_path)), make_gcn(3))
    with pytest.raises(InputError, match="got none"):
        profile(predictor, [])
    with pytest.raises(InputError, match="at least 5 requests, got 2"):
        profile(predictor, [0], requests=1)
