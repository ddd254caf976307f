"""What a deployment with partitions in [cluster] refuses, before anything is changed."""

import os
import sqlite3
from pathlib import Path

import numpy as np
import pytest

if "CI" not in os.environ:  # which installs all extras
    pytest.importorskip("zmq", reason="pyzmq is not installed: pip install 'livegnn[cluster]'")

import livegnn._core as _core
import livegnn.checkpoint as checkpoint
from divided_deployment import write
from livegnn import Events, Graph, InputError, ModelError
from livegnn.deployment import Deployment
from livegnn.deployment.graph_files import read_graph
from livegnn.errors import LogError
from livegnn.graph import EdgeSchema, Schema
from livegnn.graph.division import make_part
from livegnn.log.sqlite import SqliteLog
from livegnn.placement import Owners, partition_graph
from livegnn.runtime import Runtime
from processes import children
from streams import WIDTH, make_arrays, make_model


def refuse(path: Path, message: str, error: type[Exception] = InputError) -> None:
    """A start raises this, starts no process, and writes no file."""
    before = {one: one.read_bytes() for one in path.parent.rglob("*") if one.is_file()}
    processes = children()
    with pytest.raises(error, match=message):
        Deployment.read(path).open()
    assert children() == processes
    assert {one: one.read_bytes() for one in path.parent.rglob("*") if one.is_file()} == before


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ('[workers]\ndirectory = "workers"', r"must stand without a section \[workers\]"),
        ('[features]\ndirectory = "features"', r"must stand without a section \[features\]"),
        ('[views]\ndegrees = "my:Degrees"', r"must stand without a section \[views\]"),
        ('[runtime]\nwhen_view_fails = "rebuild"', r"when_view_fails in \[runtime\] must be 'stop' beside"),
        ("[runtime]\nrecompute_after_events = 9", r"recompute_after_events in \[runtime\] must be 0 beside"),
    ],
)
def test_sections_that_parts_cannot_have(tmp_path: Path, more: str, message: str) -> None:
    refuse(write(tmp_path, "parts", 2, more=more), message)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("threads = 1", 'state_dir = "rows"', r"state_dir in \[engine\] must be left out beside"),
        ("threads = 1", 'mode = "lazy"', "needs mode='eager', got 'lazy'"),
        ("threads = 1", 'mode = "presampled"', "needs mode='eager', got 'presampled'"),
        ("threads = 1", 'keep = "aggregates"', "needs keep='all', got 'aggregates'"),
        ("threads = 1", "history = 9", "needs history=0, got 9"),
        ("partitions = 2", "partitions = -1", "partitions must be an integer from 0"),
        ("partitions = 2", f"partitions = {_core.MAX_PARTS + 1}", f"to {_core.MAX_PARTS}, got"),
        ('"jump"', '"table"', "owners must be 'jump', 'modulo', 'fennel' or 'metis', got 'table'"),
        ('[model]\npath = "model.lgnn"', "", r"need a section \[model\], got none"),
    ],
)
def test_settings_that_parts_cannot_have(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = write(tmp_path, "parts", 2)
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    refuse(path, message)


def fill(directory: Path, count: int = 6) -> Graph:
    """A graph to start with, of some nodes, in the file of the deployment."""
    arrays = make_arrays()
    kept = np.maximum(arrays["src"], arrays["dst"]) < count
    arrays = {
        name: column[:count] if name in ("x", "ids") else column[kept] for name, column in arrays.items()
    }
    np.savez(directory / "graph.npz", **arrays)
    return read_graph(directory / "graph.npz")


@pytest.mark.parametrize(
    ("partitions", "made_of", "message"),
    [
        (2, None, "partition in .cluster. must be a partition file: .*must be a checkpoint of"),
        (2, (5, 2), "it is of another graph, or of other events; partition the graph again"),
        (2, (6, 3), "the partition must be of 2 workers, got one of 3: partition the graph again"),
        (7, (6, 2), "the partition must be of 7 workers, got one of 2: partition the graph again"),
    ],
)
def test_partition_files_that_do_not_fit(
    tmp_path: Path, partitions: int, made_of: tuple[int, int] | None, message: str
) -> None:
    path = write(tmp_path, "parts", partitions, owners="fennel", cluster='partition = "graph.lgpart"')
    (tmp_path / "graph.lgpart").write_bytes(b"no partition")
    if made_of is not None:
        made = partition_graph(fill(tmp_path, made_of[0]), made_of[1], partitioner="fennel")
        made.write(tmp_path / "graph.lgpart")
    fill(tmp_path)
    refuse(path, message)


def test_more_parts_than_nodes(tmp_path: Path) -> None:
    path = write(tmp_path, "parts", 7, owners="fennel")
    fill(tmp_path)
    refuse(path, "a graph of 6 nodes can be divided among as many workers at most, got workers=7")


def test_partition_files_that_are_not_there_or_not_needed(tmp_path: Path) -> None:
    file = 'partition = "graph.lgpart"'
    refuse(write(tmp_path, "parts", 2, owners="metis", cluster=file), "must be a partition file: .*No such")
    refuse(write(tmp_path, "parts", 2, cluster=file), "partition is for owners = 'fennel' or 'metis', got it")


def test_fronts_that_cannot_be(tmp_path: Path) -> None:
    fronts = 'fronts = "fronts.json"'
    refuse(
        write(tmp_path, "parts", 2, cluster=fronts, text_ids=True),
        "is for ids that are integers, got .*text ids",
    )
    (tmp_path / "fronts.json").mkdir()
    refuse(write(tmp_path, "parts", 2, cluster=fronts), "must be a regular file.* got a directory")
    path = write(tmp_path, "whole", more=f"[cluster]\n{fronts}\n")
    refuse(path, "fronts is for a graph in parts, got .* without partitions")


def test_a_model_of_another_graph(tmp_path: Path) -> None:
    path = write(tmp_path, "parts", 2)
    schema = Schema({"node": WIDTH + 1}, {("node", "to", "node"): EdgeSchema(weighted=True)})
    checkpoint.write(tmp_path / "graph.npz", {"graph": Graph(schema).state()}, 0)
    refuse(path, str(WIDTH + 1), ModelError)


def test_a_log_that_was_trimmed(tmp_path: Path) -> None:
    before = children()  # of other tests
    whole = write(tmp_path, "whole")
    runtime = Deployment.read(whole).open()
    for value in range(4):
        runtime.append(Events().add_nodes([value], np.ones((1, WIDTH))))
        runtime.step()
    runtime.stop()
    runtime.log.trim(2)
    runtime.log.close()
    with pytest.raises(LogError, match=r"behind a checkpoint, or from the whole log, but .* trimmed"):
        Deployment.read(write(tmp_path, "parts", 2)).open()
    assert children() <= before
    SqliteLog(tmp_path / "events.db").close()  # it is free


def test_models_that_were_deployed_before(tmp_path: Path) -> None:
    before = children()  # of other tests
    runtime = Deployment.read(write(tmp_path, "whole")).open()
    runtime.start()
    runtime.models.deploy("other", make_model(1))
    runtime.stop()
    runtime.log.close()
    with pytest.raises(InputError, match="must have the model of the deployment alone"):
        Deployment.read(write(tmp_path, "parts", 2)).open()
    assert children() <= before


def test_a_log_of_another_graph_ends_the_processes(tmp_path: Path) -> None:
    before = children()  # of other tests
    parts = write(tmp_path, "parts", 2)
    runtime = Deployment.read(parts).open()
    runtime.append(Events().add_nodes([1], np.ones((1, WIDTH))))
    runtime.step()
    runtime.stop()
    runtime.log.close()
    assert children() <= before
    with sqlite3.connect(tmp_path / "events.db") as connection:
        connection.execute("DELETE FROM entries")
    connection.close()
    with pytest.raises(LogError):
        Deployment.read(parts).open()
    assert children() <= before


def test_a_graph_in_parts_is_read_by_its_parts_alone(tmp_path: Path) -> None:
    """The runtime refuses what would read the edges that its own graph does not have."""
    names = make_part(Schema(), [Owners("jump", 2).native], None)
    log = SqliteLog(tmp_path / "log.db")
    runtime = Runtime(log, names)
    for ask in (
        lambda: runtime.models.deploy("other", make_model()),
        lambda: runtime.models.compare("other"),
    ):
        with pytest.raises(InputError, match="edges of a graph in one piece"):
            ask()
    runtime.stop()
    log.close()
