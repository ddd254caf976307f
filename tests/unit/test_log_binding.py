"""A log is bound to what it belongs to: other schemas, bases and settings are refused, nothing is touched."""

import sqlite3
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from faulty_disk import FaultyDisk
from livegnn import Events, Graph, InputError, LogError
from livegnn.cli import app
from livegnn.deployment import Deployment
from livegnn.graph import EdgeSchema, Schema
from livegnn.log.directories import IDENTITY, OWNER
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import Runtime, schema_properties
from livegnn.types import DEFAULT_EDGE_TYPE

DEPLOYMENT = """
[graph]
path = "graph.npz"
{settings}
[log]
path = "events.db"
[checkpoint]
directory = "checkpoints"
"""


def write(directory: Path, settings: str = "", edges: int = 3) -> Deployment:
    np.savez(directory / "graph.npz", src=np.arange(edges), dst=np.arange(edges) + 1)
    (directory / "deployment.toml").write_text(DEPLOYMENT.format(settings=settings), encoding="utf-8")
    return Deployment.read(directory / "deployment.toml")


def run(deployment: Deployment) -> int:
    """Starts it, appends an event, and stops; returns the number of edges."""
    runtime = deployment.open()
    try:
        runtime.append(Events().add_edges(0, 2))
        while runtime.step():
            pass
        return runtime.graph.num_edges()
    finally:
        runtime.stop()
        runtime.log.close()


def content(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def forget(path: Path) -> None:
    """Makes the log one that was written before logs were bound."""
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM properties WHERE name LIKE 'bound/%'")
    connection.close()


def test_properties_are_stored_once_and_compared(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log.db")
    log.bind({"a": "1", "b": "2"})
    log.bind({"b": "2", "c": "3"})
    with pytest.raises(LogError, match=r"other properties.*: b must be 2, got 5; c must be 3, got 4"):
        log.bind({"b": "5", "c": "4", "d": "6"})
    assert log.bound() == {"a": "1", "b": "2", "c": "3"}
    log.close()
    log = SqliteLog(tmp_path / "log.db")
    assert log.bound() == {"a": "1", "b": "2", "c": "3"}
    log.bind({"b": "5", "d": "6"}, replace=True)
    assert log.bound() == {"a": "1", "b": "5", "c": "3", "d": "6"}
    with pytest.raises(InputError, match="property 'a' of a log must be text of valid Unicode, got 3"):
        log.bind({"a": 3})  # type: ignore[dict-item]
    log.close()


def test_of_long_values_the_part_that_differs_is_shown(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log.db")
    log.bind({"schema": "x" * 1000 + "here" + "y" * 1000})
    with pytest.raises(LogError, match=r"x+herey+") as error:
        log.bind({"schema": "x" * 1000 + "there" + "y" * 1000})
    assert "xtherey" in str(error.value)
    assert len(str(error.value)) < 1000
    log.close()


def test_what_a_log_is_bound_to_is_flushed(tmp_path: Path) -> None:
    disk = FaultyDisk("binding")
    log = SqliteLog(tmp_path / "log.db", vfs=disk.name)
    log.append(Events().add_nodes(1))
    disk.syncs.clear()
    log.bind({"a": "1"})
    assert disk.syncs["log.db-wal"] > 0
    disk.syncs.clear()
    log.bind({"a": "1"})
    assert disk.syncs["log.db-wal"] == 0
    log.close()


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (Schema(text_ids=True), "schema/text_ids must be false, got true"),
        (Schema({"node": 4}), "schema/width of 'node' must be 0, got 4"),
        (Schema({"node": 0, "item": 0}), 'node_types must be ["node"], got ["node", "item"]'),
        (
            Schema(edge_types={DEFAULT_EDGE_TYPE: EdgeSchema(weighted=True, capacity=8)}),
            "schema/weighted of 'node,to,node' must be false, got true.",
        ),
        (Schema(edge_types={("node", "likes", "node"): EdgeSchema()}), "edge_types must be"),
    ],
)
def test_a_runtime_refuses_the_log_of_another_schema(tmp_path: Path, other: Schema, message: str) -> None:
    log = SqliteLog(tmp_path / "log.db")
    Runtime(log, Graph()).stop()
    before = log.bound()
    with pytest.raises(LogError) as error:
        Runtime(log, Graph(other))
    assert message in str(error.value)
    known = {name: value for name, value in schema_properties(Schema()).items() if value}
    assert log.bound() == before == known
    log.append(Events().add_nodes(1))
    Runtime(log, Graph(Schema(edge_types={DEFAULT_EDGE_TYPE: EdgeSchema(capacity=8)}))).stop()
    log.close()


@pytest.mark.parametrize(
    ("settings", "edges", "name"),
    [
        ("", 4, "graph/digest of path must be "),
        ("undirected = true", 3, "graph/undirected must be false, got true"),
        ("parallel = 'sum'", 3, 'graph/parallel must be "refuse", got "sum"'),
        ("time_to_live = 3", 3, "graph/time_to_live must be 0.0, got 3.0"),
    ],
)
def test_a_deployment_refuses_the_log_of_another(
    tmp_path: Path, settings: str, edges: int, name: str
) -> None:
    """Until the change is accepted. A checkpoint is there, so the base would not even be read."""
    assert run(write(tmp_path)) == 4
    changed = write(tmp_path, settings, edges)
    before = content(tmp_path)
    with pytest.raises(LogError) as error:
        changed.open()
    assert name in str(error.value)
    assert "livegnn log bind DEPLOYMENT.TOML" in str(error.value)
    assert {k: v for k, v in content(tmp_path).items() if k != "events.db-lock"} == {
        k: v for k, v in before.items() if k != "events.db-lock"
    }
    bind = ["log", "bind", str(tmp_path / "deployment.toml")]
    # The graph of the checkpoints has other settings, or is another.
    said = r"in \[graph\] must be .* or remove the checkpoints" if settings else r"graph.npz must have no"
    with pytest.raises(InputError, match=said):
        CliRunner().invoke(app, bind, catch_exceptions=False)
    for file in (tmp_path / "checkpoints").iterdir():
        file.unlink()
    if "time_to_live" in settings:  # these edges have no times
        return
    result = CliRunner().invoke(app, bind)
    assert result.exit_code == 0, result.output
    assert name.split(" must", maxsplit=1)[0] in result.output
    run(changed)


def test_a_base_that_a_checkpoint_makes_unnecessary_may_be_missing(tmp_path: Path) -> None:
    deployment = write(tmp_path)
    run(deployment)
    (tmp_path / "graph.npz").unlink()
    run(deployment)
    write(tmp_path, edges=4)
    with pytest.raises(LogError, match="digest of path"):
        run(deployment)
    write(tmp_path)
    run(deployment)


def test_an_older_log_is_adopted_at_its_first_start(tmp_path: Path) -> None:
    deployment = write(tmp_path)
    run(deployment)
    bound = SqliteLog(tmp_path / "events.db")
    wanted = bound.bound()
    bound.close()
    assert len(wanted) > 8
    forget(tmp_path / "events.db")
    (tmp_path / "checkpoints" / OWNER).unlink()
    assert run(deployment) == 4
    log = SqliteLog(tmp_path / "events.db")
    found = log.bound()
    assert found.keys() == wanted.keys()
    drawn = [name for name in wanted if name == IDENTITY or name.endswith("drawn sample_seed")]
    assert len(drawn) == 2, "both are drawn once for each log"
    assert {name: found[name] for name in found if name not in drawn} == {
        name: wanted[name] for name in wanted if name not in drawn
    }
    log.close()
