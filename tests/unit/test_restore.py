"""A start from a checkpoint that fits only in part: the graph is kept, and what does not fit is computed."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from livegnn import Engine, Events, Graph, ModelError, checkpoint
from livegnn.graph import View
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import CheckpointPolicy, Runtime, list_checkpoints, restore
from livegnn.types import State
from streams import make_graph, make_model, make_stream

MODEL = make_model()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SqliteLog]:
    """A log of which the first events are in a checkpoint, and others came later."""
    log = SqliteLog(tmp_path / "events.db")
    graph = make_graph()
    policy = CheckpointPolicy(tmp_path / "c", every_events=60)
    runtime = Runtime(log, graph, Engine(graph, MODEL, threads=1), checkpoints=policy)
    for events in make_stream(30):
        runtime.append(events)
        runtime.step()
    assert 0 < checkpoint.read(newest(tmp_path)).seq < log.last_seq()
    yield log
    log.close()


def newest(directory: Path) -> Path:
    return list_checkpoints(directory / "c")[0]


def no_graph() -> Graph:
    raise AssertionError("the checkpoint's graph is at hand")


def assert_exact(log: SqliteLog, graph: Graph, engine: View) -> None:
    """After the rest of the log, the graph is as it was, and the predictions as computed from scratch."""
    runtime = Runtime(log, graph, engine)
    assert runtime.seq == log.last_seq()
    assert runtime.engine.verify().ok
    whole = make_graph()
    for batch in log.batches(0):
        entries = log.entries(batch.after, up_to=batch.seq)
        whole.apply(Events.concatenate(entry.events for entry in entries), seq=batch.seq)
    ours, theirs = graph.state(), whole.state()
    assert {name: array.tobytes() for name, array in ours.arrays.items()} == {
        name: array.tobytes() for name, array in theirs.arrays.items()
    }


def test_another_model_starts_from_the_graph_of_the_checkpoint(
    tmp_path: Path, log: SqliteLog, caplog: pytest.LogCaptureFixture
) -> None:
    factory = Engine.factory(make_model(seed=9), threads=1)
    graph, views = restore({"engine": factory}, no_graph, directory=tmp_path / "c", log=log)
    assert graph.seq == checkpoint.read(newest(tmp_path)).seq
    assert (
        f"{newest(tmp_path)} has nothing that fits the view 'engine', which is built from the graph: "
        "the state belongs to another model"
    ) in caplog.text
    assert_exact(log, graph, views["engine"])


def test_an_engine_that_the_checkpoint_lacks_starts_from_its_graph(tmp_path: Path, log: SqliteLog) -> None:
    path = newest(tmp_path)
    saved = checkpoint.read(path)
    checkpoint.write(path, {name: saved.states[name] for name in ("graph", "log")}, saved.seq)
    factory = Engine.factory(MODEL, threads=1)
    graph, views = restore({"engine": factory}, no_graph, directory=tmp_path / "c", log=log)
    assert_exact(log, graph, views["engine"])


def test_a_view_that_refuses_any_state_is_built_from_the_graph(tmp_path: Path, log: SqliteLog) -> None:
    asked: list[bool] = []

    def make(graph: Graph, state: State | None) -> Engine:
        asked.append(state is not None)
        if state is not None:
            raise ModelError("not with this state")
        return Engine(graph, MODEL, threads=1)

    graph, views = restore({"engine": make}, no_graph, directory=tmp_path / "c", log=log)
    assert asked == [True, False]
    assert_exact(log, graph, views["engine"])


def test_a_checkpoint_whose_graph_does_not_fit_the_model_is_passed_over(
    tmp_path: Path, log: SqliteLog, caplog: pytest.LogCaptureFixture
) -> None:
    path, older = list_checkpoints(tmp_path / "c")
    saved = checkpoint.read(path)
    narrow = Graph.from_edges([0], [1], x=np.ones((2, 1)), weight=[1.0])
    narrow.seq = saved.seq
    checkpoint.write(path, {**saved.states, "graph": narrow.state()}, saved.seq)
    factory = Engine.factory(MODEL, threads=1)
    graph, views = restore({"engine": factory}, make_graph, directory=tmp_path / "c", log=log)
    assert f"passing over the checkpoint {path}" in caplog.text
    assert graph.seq == checkpoint.read(older).seq
    assert_exact(log, graph, views["engine"])


def test_a_checkpoint_that_cannot_be_read_or_was_renamed_is_passed_over(
    tmp_path: Path, log: SqliteLog, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "c"
    before = newest(tmp_path)
    (folder / f"checkpoint-{10**6:020d}.lgck").mkdir()
    (folder / f"checkpoint-{10**6 + 1:020d}.lgck").symlink_to("nowhere")
    shutil.copy(before, folder / f"checkpoint-{10**6 + 2:020d}.lgck")
    (folder / "checkpoint-x.lgck").touch()
    (folder / "checkpoint-99999999.lgck").touch()
    graph, views = restore({"engine": Engine.factory(MODEL, threads=1)}, no_graph, directory=folder, log=log)
    assert graph.seq == checkpoint.read(before).seq
    for said in ("Is a directory", "No such file", f"a checkpoint's name must say its event, {graph.seq}"):
        assert said in caplog.text
    assert_exact(log, graph, views["engine"])
