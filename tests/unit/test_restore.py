"""A start from a checkpoint that fits only in part: the graph is kept, and what does not fit is computed."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from livegnn import Engine, Events, Graph, InputError, ModelError, checkpoint
from livegnn.deployment import Deployment
from livegnn.graph import View
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import CheckpointPolicy, Runtime, count_recorded, list_checkpoints, restore
from livegnn.types import State
from serving import write_deployment
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


@pytest.mark.parametrize("saved", [False, True], ids=["from the graph", "from a checkpoint"])
def test_a_refusal_names_the_view_of_several(tmp_path: Path, log: SqliteLog, saved: bool) -> None:
    directory = tmp_path / "c" if saved else None
    views = {
        "engine": Engine.factory(MODEL, threads=1),
        "second": Engine.factory(MODEL, threads=1, mode="lazy", keep="aggregates", name="second"),
    }
    with pytest.raises(InputError, match="the view 'second' cannot be made: a lazy engine must keep"):
        restore(views, make_graph, directory=directory, log=log)


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
    for said in ("1000000.lgck", "1000001.lgck", f"a checkpoint's name must say its event, {graph.seq}"):
        assert said in caplog.text
    assert_exact(log, graph, views["engine"])


def corrupt(path: Path, part: str) -> None:
    """Another byte in the first array of a part."""
    section = next(one for one in checkpoint.read_contents(path).sections if one.state == part and one.length)
    content = bytearray(path.read_bytes())
    content[section.offset] ^= 1
    path.write_bytes(content)


def test_views_that_are_built_after_the_replay_are_exact_and_go_on(tmp_path: Path, log: SqliteLog) -> None:
    """Of the checkpoint, nothing but the graph is read; a checkpoint is due as after any replay."""
    corrupt(newest(tmp_path), "engine")
    began = checkpoint.read_contents(newest(tmp_path)).seq
    asked: list[tuple[int, bool]] = []

    def make(graph: Graph, state: State | None) -> Engine:
        asked.append((graph.seq, state is None))
        return Engine(graph, MODEL, threads=1)

    graph, views = restore({}, no_graph, directory=tmp_path / "c", log=log)
    assert (graph.seq, views) == (began, {})
    policy = CheckpointPolicy(tmp_path / "c", every_events=log.last_seq() - began)
    runtime = Runtime(log, graph, build={"engine": make}, checkpoints=policy)
    assert asked == [(log.last_seq(), True)]
    assert runtime.engine.verify().ok
    assert set(runtime.views) == {"engine"}
    runtime.step()
    assert checkpoint.read(newest(tmp_path)).seq == log.last_seq()
    follower = make_graph()
    lived = Runtime(log, follower, Engine(follower, MODEL, threads=1))
    ours, theirs = graph.state(), follower.state()
    assert {name: array.tobytes() for name, array in ours.arrays.items()} == {
        name: array.tobytes() for name, array in theirs.arrays.items()
    }
    ids = graph.ids()
    assert np.allclose(runtime.engine.predict(ids), lived.engine.predict(ids), rtol=1e-4, atol=1e-5)
    for events in make_stream(5, seed=3, num_nodes=1):
        runtime.append(events)
        runtime.step()
    assert runtime.seq == log.last_seq()
    assert runtime.engine.verify().ok
    runtime.stop()


def test_a_view_is_built_once(tmp_path: Path, log: SqliteLog) -> None:
    graph = make_graph()
    engine = Engine(graph, MODEL, threads=1)
    with pytest.raises(InputError, match="must be none of those that are there, got 'engine'"):
        Runtime(log, graph, engine, build={"engine": Engine.factory(MODEL)})


def test_how_many_events_a_start_has_to_replay(tmp_path: Path, log: SqliteLog) -> None:
    end = log.batches(0)[-1].seq
    assert count_recorded(log, None) == count_recorded(log, tmp_path / "nothing") == end
    assert count_recorded(log, tmp_path / "c") == end - checkpoint.read(newest(tmp_path)).seq > 0


@pytest.mark.parametrize("more", [0, 1])
def test_a_deployment_computes_after_so_many_events(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, more: int
) -> None:
    """With one event more to replay than it says, the engine of the checkpoint is not read."""
    path = write_deployment(tmp_path, every_events=30)
    runtime = Deployment.read(path).open()
    for events in make_stream(30):
        runtime.append(events)
        runtime.step()
    behind = count_recorded(runtime.log, tmp_path / "checkpoints")
    assert behind > 1
    expected, seq = runtime.engine.predict(runtime.graph.ids()), runtime.seq
    runtime.log.close()  # as a process that is killed
    corrupt(list_checkpoints(tmp_path / "checkpoints")[0], "engine")
    text = path.read_text(encoding="utf-8")
    path.write_text(
        text.replace("[runtime]", f"[runtime]\nrecompute_after_events = {behind - more}"), encoding="utf-8"
    )
    runtime = Deployment.read(path).open()
    assert ("passing over the checkpoint" in caplog.text) == (not more)
    assert runtime.seq == seq
    found = runtime.engine.predict(runtime.graph.ids())
    assert runtime.engine.verify().ok
    assert np.allclose(found, expected, rtol=1e-4, atol=1e-5)
    if not more:
        assert found.tobytes() == expected.tobytes()
    runtime.log.close()
