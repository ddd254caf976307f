"""Files and directories of a running deployment that somebody removes, renames or replaces.

What is acknowledged afterwards is found by the next start; or it is refused, and health says why.
"""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable
from contextlib import closing
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import livegnn.runtime.log_watch
from gate import some
from livegnn import Events
from livegnn.deployment import Deployment
from livegnn.errors import InputError, LiveGNNError, LogError
from livegnn.runtime import Runtime
from streams import WIDTH, make_arrays, make_model
from waiting import PATIENCE, wait_until

DEPLOYMENT = """
[model]
path = "model.lgnn"
[graph]
path = "graph.npz"
[log]
path = "events.db"
keep = "since_checkpoint"
[checkpoint]
directory = "checkpoints"
every_events = 4
beside = false
[models]
directory = "models"
[features]
directory = "features"
[engine]
threads = 1
state_dir = "rows"
[snapshots]
url = "snapshots"
"""
WRITTEN = [
    "checkpoints",
    "checkpoints/checkpoint-*.lgck",
    "checkpoints/livegnn-lock",
    "deployment.toml-mark",
    "events.db",
    "events.db-lock",
    "events.db-mark",
    "events.db-shm",
    "events.db-wal",
    "features",
    "models",
    "models/models.json",
    "models/other.lgnn",
    "rows",
    "snapshots",
]
"""What a server writes in the folder of its deployment, and of some directories what is in them."""

INPUTS = ("deployment.toml", "graph.npz", "model.lgnn")  # which nobody writes while it runs


def remove(path: Path, aside: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def rename(path: Path, aside: Path) -> None:
    path.rename(aside)


def replace(path: Path, aside: Path) -> None:
    """By what was there, as whoever restores a backup does."""
    path.rename(aside)
    shutil.copytree(aside, path) if aside.is_dir() else shutil.copy2(aside, path)


WAYS: list[Callable[[Path, Path], None]] = [remove, rename, replace]


@pytest.fixture(autouse=True)
def probes_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(livegnn.runtime.log_watch, "_WAIT_SECONDS", PATIENCE)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A deployment that has run, with a second model, a snapshot, and a log that was trimmed."""
    place = tmp_path_factory.mktemp("prepared") / "place"
    place.mkdir()
    make_model().save(place / "model.lgnn")
    np.savez(place / "graph.npz", **make_arrays())
    (place / "deployment.toml").write_text(DEPLOYMENT, encoding="utf-8")
    runtime = Deployment.read(place / "deployment.toml").open()
    with closing(runtime.log):
        for number in range(6):
            runtime.append(Events().add_edges(number % 7, 8 + number % 5), key=f"first {number}")
            runtime.step()
        runtime.models.deploy("other", make_model(2), wait=False)
        while "other" not in runtime.views:
            runtime.step()
        runtime.views["snapshots"].write()
        runtime.stop()
        assert runtime.log.entry(1) is None, "nothing was trimmed"
    return place


def start(place: Path) -> Runtime:
    runtime = Deployment.read(place / "deployment.toml").open()
    runtime.start()
    return runtime


def append(runtime: Runtime, node: int) -> int:
    return runtime.wait(runtime.append(Events().add_nodes(node)), PATIENCE)


def grow(runtime: Runtime) -> None:
    """Appends more nodes than the mapped files have room for."""
    ids = np.arange(1000, 9000)
    events = Events().add_nodes(ids, np.ones((len(ids), WIDTH), np.float32))
    runtime.wait(runtime.append(events), PATIENCE)
    wait_until(lambda: runtime._round_began is None)  # checkpoints are written


def copy_if_there(source: str, target: str) -> None:
    """A server that runs renames and removes files as they are copied, such as those of a snapshot."""
    with contextlib.suppress(FileNotFoundError):
        shutil.copy2(source, target)


def find(place: Path, node: int, copy: Path) -> set[str]:
    """The views of the next start, which must have a node: a copy of what is there is started."""
    shutil.copytree(place, copy, copy_function=copy_if_there)
    runtime = Deployment.read(copy / "deployment.toml").open()
    with closing(runtime.log):
        while runtime.step():
            pass
        assert node in runtime.graph.ids().tolist()
        views = {*runtime.views}
        runtime.stop()
    shutil.rmtree(copy)
    return views


@pytest.mark.parametrize(("way", "name"), some(product(WAYS, WRITTEN)))
def test_what_is_acknowledged_is_found_by_the_next_start(
    prepared: Path, tmp_path: Path, way: Callable[[Path, Path], None], name: str
) -> None:
    place, aside, copy = (tmp_path / folder for folder in ("place", "aside", "copy"))
    shutil.copytree(prepared, place)
    runtime = start(place)
    try:
        append(runtime, 100)
        runtime.views["snapshots"].write()
        assert {path.name for path in place.iterdir()} == {*INPUTS, *(name.split("/")[0] for name in WRITTEN)}
        path = max(place.glob(name))
        with runtime.views["snapshots"]._writing:
            way(path, aside)
        try:
            append(runtime, 101)
        except LogError as error:
            check_refused(runtime, str(path), error)
        else:
            check_acknowledged(runtime, path, copy)
        if way is rename and not path.exists():  # else it was made again
            aside.replace(path)
            append(runtime, 102)
            assert runtime.readiness().ready
            assert find(place, 102, copy) >= {*runtime.views}
    finally:
        runtime.stop()
        runtime.log.close()


def check_refused(runtime: Runtime, path: str, error: LogError) -> None:
    """Nothing has changed, and whoever asks is told."""
    assert path in str(error)
    assert path in runtime.readiness().reasons["log"]
    with pytest.raises(LogError):
        grow(runtime)
    assert runtime.log.last_seq() == runtime.seq == 7


def check_acknowledged(runtime: Runtime, path: Path, copy: Path) -> None:
    """What comes afterwards is in what the next start finds, or health says what is not."""
    with contextlib.suppress(LiveGNNError, OSError):
        runtime.models.deploy("third", make_model(3))
    runtime.views["snapshots"].write()
    grow(runtime)
    if (lost := runtime.readiness().reasons.get("models")) is not None:
        assert str(path) in lost
        assert "remove the model 'other'" in lost
        runtime.models.remove("other")
    wait_until(lambda: runtime.readiness().ready)
    with contextlib.suppress(InputError):  # it was deployed above
        runtime.models.deploy("third", make_model(3))
    assert find(copy.with_name("place"), 101, copy) >= {*runtime.views}


@pytest.mark.parametrize("way", [remove, rename, replace])
def test_doing_what_the_refusal_says_brings_back_all_that_was_acknowledged(
    prepared: Path, tmp_path: Path, way: Callable[[Path, Path], None]
) -> None:
    """All files of the log at once; for those that have no name any more, and for those that have another."""
    place = tmp_path / "place"
    shutil.copytree(prepared, place)
    runtime = start(place)
    try:
        append(runtime, 100)
        for number, path in enumerate(sorted(place.glob("events.db*"))):
            way(path, tmp_path / f"aside {number}")
        with pytest.raises(LogError, match=rf"as long as process {os.getpid()} runs") as error:
            append(runtime, 101)
        commands = str(error.value).split("this puts it back: ")[1].split("; then restart")[0]
        subprocess.run(commands, shell=True, check=True)
        assert ("restart that process" in str(error.value)) is (way is remove)
        if way is not remove:
            append(runtime, 101)
            assert runtime.readiness().ready
        assert find(place, 100, tmp_path / "copy")
    finally:
        runtime.stop()
        runtime.log.close()
    runtime = start(place)
    try:
        append(runtime, 102)
        assert {100, 102} <= set(runtime.graph.ids().tolist())
    finally:
        runtime.stop()
        runtime.log.close()
