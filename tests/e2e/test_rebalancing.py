"""A stopped server's parts are divided again: fewer edges are cut, all bits stay, a kill leaves a whole set.

One server makes the files of all tests, which work on copies of its directory.
"""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from typer.testing import CliRunner

if "CI" not in os.environ:  # which installs all extras
    pytest.importorskip("zmq", reason="pyzmq is not installed: pip install 'livegnn[cluster]'")
    pytest.importorskip("pymetis", reason="pymetis is not installed: pip install 'livegnn[cluster]'")

import livegnn._core as _core
from divided_deployment import opened, write
from livegnn import Events, InputError
from livegnn.cli import app
from livegnn.deployment import Deployment
from livegnn.deployment.rebalancing import rebalance
from livegnn.errors import LogError
from livegnn.inference import RowPredictor
from livegnn.partitions import LocalPartitions
from livegnn.partitions.sets import SavedSet
from livegnn.runtime import Runtime, list_checkpoints
from streams import WIDTH, make_model

CHECKPOINTS = '[checkpoint]\ndirectory = "checkpoints"\n'
IDS = np.arange(40)
GROUPS = IDS // 2 % 2


def append(runtime: Runtime, events: Events) -> None:
    runtime.append(events)
    runtime.step()


def fill(runtime: Runtime) -> None:
    """Nodes without edges, which Fennel can only spread evenly, and then edges in two groups of nodes."""
    rng = np.random.default_rng(4)
    append(runtime, Events().add_nodes(IDS, rng.normal(size=(40, WIDTH))))
    ends = [rng.choice(IDS[group == GROUPS], (2, 90)) for group in (0, 1)]
    src, dst = np.concatenate([*ends, [[0, 2], [2, 0]]], axis=1)
    append(runtime, Events().add_edges(src, dst, weight=rng.uniform(0.5, 2, len(src))))
    append(runtime, Events().remove_nodes([38]))


def continue_stream(runtime: Runtime) -> None:
    events = Events().add_nodes([50, 51], np.ones((2, WIDTH))).set_features([0], np.ones((1, WIDTH)))
    append(runtime, events.add_edges([50, 50, 51], [0, 1, 50], weight=[1.0, 0.5, 2.0]))


def predict(runtime: Runtime) -> bytes:
    engine = runtime.views["engine"]
    assert isinstance(engine, RowPredictor)
    return engine.predict(np.sort(runtime.graph.ids())).tobytes()


class Stopped(NamedTuple):
    """directory: of the deployments. expected, then: predictions of a graph in one piece, and after more
    events."""

    directory: Path
    expected: bytes
    then: bytes


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    directory = tmp_path_factory.mktemp("stopped")
    file = deploy(directory)
    with opened(file) as runtime:
        fill(runtime)
        with pytest.raises(LogError, match=f"process {os.getpid()} runs on it. Stop that process first"):
            rebalance(Deployment.read(file))
    with opened(write(directory, "whole", log="whole.db")) as whole:
        fill(whole)
        expected = predict(whole)
        continue_stream(whole)
        return Stopped(directory, expected, predict(whole))


@pytest.fixture
def copied(stopped: Stopped, tmp_path: Path) -> Path:
    shutil.copytree(stopped.directory, tmp_path / "copy")
    return tmp_path / "copy"


def deploy(
    directory: Path, partitions: int = 2, owners: str = "fennel", checkpoints: str = CHECKPOINTS
) -> Path:
    return write(directory, "parts", partitions, owners=owners, more=checkpoints)


def names_of(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("*.lgck*"))


def load(directory: Path) -> tuple[list[int], bytes]:
    """Owners by index, and predictions, of the newest set."""
    saved = SavedSet(list_checkpoints(directory)[0])
    begun = saved.begin(1)
    parts = LocalPartitions(saved.schema, make_model(), saved.owners, threads=1, beginning=begun)
    owners = _core.owners_of(parts.names.native, 0).tolist()
    rows = parts.predict(np.sort(parts.names.ids())).tobytes()
    parts.close()
    return owners, rows


def test_the_next_start_reads_the_new_set(stopped: Stopped, copied: Path) -> None:
    file, directory = deploy(copied), copied / "checkpoints"
    before = names_of(directory)
    owners, rows = load(directory)
    assert rows == stopped.expected
    report = rebalance(Deployment.read(file))
    found = report.found
    assert found.after.cut < found.before.cut
    assert found.moved < 12
    assert found.after.balance["node"] <= 1.06
    text = str(report)
    assert f": {found.moved} of 39 nodes moved; cut {found.before.cut:.1%} -> {found.after.cut:.1%}" in text
    after, rows = load(directory)
    assert rows == stopped.expected
    assert sum(a != b for a, b in zip(owners, after, strict=True)) == found.moved
    names = names_of(directory)
    assert len(names) == len(before) == 3
    assert names[0] == before[0]
    assert not {*names[1:]} & {*before[1:]}
    report = rebalance(Deployment.read(file), "metis")
    assert found.before.cut > 0.4
    assert report.found.after.cut < 0.05
    assert rebalance(Deployment.read(file), "metis").path is None  # its parts get the numbers that they have
    after, _ = load(directory)
    with opened(file) as runtime:
        assert _core.owners_of(runtime.graph.native, 0).tolist() == after
        continue_stream(runtime)
        assert predict(runtime) == stopped.then


def test_another_number_of_parts_in_another_directory(stopped: Stopped, copied: Path) -> None:
    file = deploy(copied, 3, owners="metis")
    contents = {path: path.read_bytes() for path in (copied / "checkpoints").glob("*.lgck")}
    command = ["cluster", "rebalance", str(file), "--out", str(copied / "new")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert "2 -> 3 parts by metis: " in lines[0]
    assert lines[1] == f"written to {list_checkpoints(copied / 'new')[0]}"
    owners, rows = load(copied / "new")
    assert {*owners} == {0, 1, 2, 0xFFFF}
    assert rows == stopped.expected
    assert contents == {path: path.read_bytes() for path in (copied / "checkpoints").glob("*.lgck")}
    with pytest.raises(InputError, match=r"the directory of the new set must be empty, got .*new"):
        rebalance(Deployment.read(file), out=copied / "new")
    moved = deploy(copied, 3, owners="metis", checkpoints=CHECKPOINTS.replace("checkpoints", "new"))
    assert rebalance(Deployment.read(moved)).path is None  # its parts have the numbers of the same parts


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda at: deploy(at, owners="jump"), "owners = 'metis' or 'fennel' in .cluster., .*, got .*'jump'"),
        (lambda at: deploy(at, 0), "got partitions = 0"),
        (lambda at: deploy(at, checkpoints=""), r"and no section \[checkpoint\]"),
        (lambda at: deploy(at, 40), "a graph of 39 nodes can be divided among as many workers at most"),
        (lambda at: deploy(at, checkpoints=CHECKPOINTS.replace("checkpoints", "none")), "got none: serve it"),
        (
            lambda at: (deploy(at), make_model(5).save(at / "model.lgnn"))[0],
            "got those of another: start the",
        ),
    ],
)
def test_what_cannot_be_rebalanced(copied: Path, change: object, message: str) -> None:
    file = change(copied)  # type: ignore[operator]
    contents = {path: path.read_bytes() for path in copied.rglob("*") if path.is_file()}
    with pytest.raises(InputError, match=message):
        rebalance(Deployment.read(file))
    lock = copied / "checkpoints" / "livegnn-lock"  # has the process that held it last
    contents[lock] = lock.read_bytes()
    assert contents == {path: path.read_bytes() for path in copied.rglob("*") if path.is_file()}


def test_what_is_no_partitioner(copied: Path) -> None:
    with pytest.raises(InputError, match="partitioner must be 'metis' or 'fennel', got 'kahip'"):
        rebalance(Deployment.read(deploy(copied)), "kahip")  # type: ignore[arg-type]


KILLED = """
import os, signal, sys
from pathlib import Path
from livegnn.deployment import Deployment
from livegnn.deployment.rebalancing import rebalance

def counted(call):
    def step(*given, **named):
        if len(steps) == allowed:
            os.kill(os.getpid(), signal.SIGKILL)
        steps.append(call)
        return call(*given, **named)
    return step

os.replace, Path.unlink = counted(os.replace), counted(Path.unlink)
for allowed, file in enumerate(sys.argv[1:]):
    child = os.fork()
    if child == 0:
        steps = []
        rebalance(Deployment.read(file))
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
STEPS = 5
"""Two files of parts get their names, then that of names, and two old ones are removed."""


def test_a_kill_leaves_a_whole_set(stopped: Stopped, copied: Path) -> None:
    """At each step."""
    file = deploy(copied)
    owners, _ = load(copied / "checkpoints")
    copies = [copied.parent / f"killed {step}" for step in range(STEPS + 1)]
    for copy in copies:
        shutil.copytree(copied, copy)
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, *(str(copy / file.name) for copy in copies)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        check=True,
    )
    assert [int(line) for line in killed.stdout.split()] == [*[-signal.SIGKILL] * STEPS, 0]
    for step, copy in enumerate(copies):
        found, rows = load(copy / "checkpoints")
        assert rows == stopped.expected
        assert (found == owners) is (step < 3), step
        rebalance(Deployment.read(copy / file.name))
        assert load(copy / "checkpoints")[1] == stopped.expected
    assert len(names_of(copies[-1] / "checkpoints")) == 3
