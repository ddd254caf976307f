"""`livegnn snapshot`: written from each kind of graph, looked into, and checked; and of a deployment."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from livegnn import Events, Graph, checkpoint
from livegnn.cli import app
from livegnn.deployment import Deployment
from livegnn.deployment.snapshots import start_snapshots
from livegnn.errors import FileFormatError, InputError, SnapshotError, StoreUnavailableError
from livegnn.snapshots.objects import open_objects
from livegnn.snapshots.snapshot_source import open_snapshot
from livegnn.snapshots.view import SnapshotView
from livegnn.snapshots.writer import write_snapshot
from ports import closed_port
from serving import write_deployment
from snapshots import check_shows
from waiting import PATIENCE, wait_until

RUNNER = CliRunner()


def call(*arguments: object) -> tuple[int, list[str]]:
    result = RUNNER.invoke(app, ["snapshot", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output.splitlines()


@pytest.fixture
def graph() -> Graph:
    graph = Graph.from_edges([0, 1, 2], [1, 2, 2], x=np.eye(3, dtype=np.float32), weight=[1, 2, 3])
    graph.apply(Events().add_nodes(9).add_edges(9, 0))
    return graph


def test_a_checkpoint_is_written_and_looked_into(graph: Graph, tmp_path: Path) -> None:
    file, url = tmp_path / "g.lgck", tmp_path / "store"
    checkpoint.write(file, {"graph": graph.state()}, graph.seq)
    status, lines = call("write", file, url)
    assert status == 0
    assert lines[0].startswith("event 2, generation 1, ")
    assert lines[1] == "node: 4 nodes, x=3"
    check_shows(open_snapshot(str(url)), graph, {"node": {0, 1, 2, 9}})
    assert call("inspect", url) == (0, lines)
    assert any(line.startswith("  in of node to node: 4 rows, 4 entries, ") for line in lines)
    status, shown = call("inspect", url, "--json")
    assert json.loads("\n".join(shown))["seq"] == 2
    status, lines = call("verify", url)
    assert (status, lines[0].split(": ")[1].split(",")[:2]) == (0, ["whole", " event 2"])


def test_what_a_newer_snapshot_replaces_goes_after_its_time(graph: Graph, tmp_path: Path) -> None:
    file, url = tmp_path / "g.lgck", tmp_path / "store"
    folders = []
    for grace in ("1000", "1000", "0"):
        graph.apply(Events().add_edges(0, 9))
        checkpoint.write(file, {"graph": graph.state()}, graph.seq)
        assert call("write", file, url, "--grace", grace)[0] == 0
        folders.append(len(list((url / "data").iterdir())))
    assert folders == [1, 2, 1]
    check_shows(open_snapshot(str(url)), graph, {"node": {0, 1, 2, 9}})


@pytest.mark.parametrize("grace", ["nan", "-1", "inf", "-inf"])
def test_a_wrong_grace_is_said_before_anything_is_written(grace: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "g.npz", src=[0], dst=[1])
    with pytest.raises(InputError, match="grace, in seconds, must be"):
        call("write", tmp_path / "g.npz", tmp_path / "s", "--grace", grace)
    assert not (tmp_path / "s").exists()


def test_arrays_are_written(tmp_path: Path) -> None:
    np.savez(tmp_path / "g.npz", src=[0, 1], dst=[1, 0], x=np.ones((2, 5)))
    assert call("write", tmp_path / "g.npz", tmp_path / "s", "--direction", "in")[0] == 0
    snapshot = open_snapshot(str(tmp_path / "s"))
    assert snapshot.neighbors(None, np.array([0])).rows.tolist() == [1]
    with pytest.raises(InputError, match="no lists"):
        snapshot.neighbors(None, np.array([0]), "out")


@pytest.mark.parametrize(("parallel", "edges"), [("last", 2), ("sum", 2), ("keep", 3)])
def test_arrays_with_parallel_edges_are_written(parallel: str, edges: int, tmp_path: Path) -> None:
    np.savez(tmp_path / "g.npz", src=[0, 0, 1], dst=[1, 1, 0], weight=[1.0, 2.0, 4.0])
    with pytest.raises(InputError, match=r"parallel='last'.*\(on the command line: --parallel\)$"):
        call("write", tmp_path / "g.npz", tmp_path / "s")
    assert not (tmp_path / "s").exists()
    with pytest.raises(InputError, match=r"parallel must be one of 'refuse', .* got 'first'"):
        call("write", tmp_path / "g.npz", tmp_path / "s", "--parallel", "first")
    assert call("write", tmp_path / "g.npz", tmp_path / "s", "--parallel", parallel)[0] == 0
    found = open_snapshot(str(tmp_path / "s")).neighbors(None, np.array([0, 1]))
    weights = {"last": [4.0, 2.0], "sum": [4.0, 3.0], "keep": [4.0, 1.0, 2.0]}[parallel]
    assert found.weight is not None
    assert (len(found.rows), found.weight.tolist()) == (edges, weights)


def test_a_graph_that_was_made_has_its_parallel_edges_already(graph: Graph, tmp_path: Path) -> None:
    checkpoint.write(tmp_path / "g.lgck", {"graph": graph.state()}, graph.seq)
    for source, said in (
        (tmp_path / "g.lgck", "with the checkpoint"),
        ("d.toml", "with the deployment d.toml"),
    ):
        with pytest.raises(InputError, match=f"parallel is for arrays, got 'sum' {said}"):
            call("write", source, tmp_path / "s", "--parallel", "sum")
    assert not (tmp_path / "s").exists()


def test_a_store_that_ends_with_the_command_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "g.npz", src=[0], dst=[1])
    for words in (["write", tmp_path / "g.npz"], ["inspect"], ["verify"]):
        with pytest.raises(InputError, match=r"must outlive it, got 'memory://x'"):
            call(*words, "memory://x")


def test_a_deployment_is_written_beside_its_server(tmp_path: Path) -> None:
    file = write_deployment(tmp_path)
    runtime = Deployment.read(file).open()
    runtime.append(Events().add_nodes(77))
    while runtime.step():
        pass
    assert call("write", file, tmp_path / "s")[0] == 0  # the log is still owned
    snapshot = open_snapshot(str(tmp_path / "s"))
    check_shows(snapshot, runtime.graph, {"node": {77}})
    assert snapshot.rows_of(np.array([77]))[0] >= 0
    runtime.stop()
    runtime.log.close()


def test_damage_is_found(graph: Graph, tmp_path: Path) -> None:
    file, url = tmp_path / "g.lgck", tmp_path / "store"
    checkpoint.write(file, {"graph": graph.state()}, graph.seq)
    call("write", file, url)
    paths = sorted(path for path in (url / "data").rglob("*") if path.is_file())
    filled = [path for path in paths if path.stat().st_size]
    for number, path in enumerate(filled):
        content = path.read_bytes()
        if number % 3 == 0:
            path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        elif number % 3 == 1:
            path.write_bytes(content[:-1])
        else:
            path.unlink()
        status, lines = call("verify", url)
        assert status == 1
        assert len(lines) == 2
        assert path.name in lines[0]
        assert "broken, event 2" in lines[1]
        path.write_bytes(content)
    assert call("verify", url)[0] == 0


def test_wrong_calls_are_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected a snapshot in"):
        call("inspect", tmp_path)
    with pytest.raises(InputError, match="must begin with s3://"):
        call("verify", "ftp://nowhere")
    assert call("inspect", tmp_path, "--option", "nothing")[0] == 2
    assert call("inspect", tmp_path, "--option", "patience=long")[0] == 2
    away = [
        "--option",
        f"endpoint=http://127.0.0.1:{closed_port()}",
        "--option",
        "patience=0.1",
        "--option",
        "skip_signature=true",
    ]
    with pytest.raises(StoreUnavailableError, match=r"asked again for 0.1 seconds") as raised:
        call("inspect", "s3://bucket/place", *away)
    assert "Debug" not in str(raised.value)
    with pytest.raises(InputError, match="'s3://' opens no store") as refused:
        call("inspect", "s3://")
    assert "\n" not in str(refused.value)
    with pytest.raises(InputError, match=r"must be file:///FOLDER, .* got 'file://relative/x'"):
        call("inspect", "file://relative/x")
    (tmp_path / "file").write_bytes(b"neither")
    with pytest.raises(InputError, match="must be a folder, got the file"):
        call("inspect", tmp_path / "file")
    with pytest.raises(SnapshotError, match="the folder /proc/none cannot be opened"):
        write_snapshot(Graph.from_edges([0], [1]), "/proc/none")
    with pytest.raises(FileFormatError, match=r"must be a checkpoint or an \.npz file, got neither"):
        call("write", tmp_path / "file", tmp_path / "store")


def test_a_place_without_a_snapshot_stays_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected a snapshot in"):
        call("inspect", tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
    objects = open_objects(str(tmp_path / "nowhere"))
    assert objects.list("manifests") == []
    write_snapshot(Graph.from_edges([0], [1]), str(tmp_path / "nowhere"), seq=3)
    assert [one.path for one in objects.list("manifests")] == ["manifests/000000000001"], "it is there now"


# -- [snapshots] of a deployment


def test_a_deployment_keeps_a_snapshot(tmp_path: Path) -> None:
    """It follows from the first batch on, and goes on after a restart from a checkpoint."""
    file = write_deployment(tmp_path)
    text = file.read_text(encoding="utf-8") + '\n[snapshots]\nurl = "snapshots"\ninterval = 0.01\n'
    file.write_text(text, encoding="utf-8")

    def follow(ids: list[int]) -> list[str]:
        runtime = Deployment.read(file).open()
        view = runtime.views["snapshots"]
        assert isinstance(view, SnapshotView)
        runtime.start()
        start_snapshots(runtime)
        seq = runtime.append(Events().add_nodes(ids))
        runtime.wait(seq, timeout=PATIENCE)
        wait_until(lambda: view.failure or (view.manifest is not None and view.manifest.seq >= seq))
        assert view.failure is None
        check_shows(open_snapshot(str(tmp_path / "snapshots")), runtime.graph, {"node": set(ids)})
        runtime.stop()
        runtime.log.close()
        return [layer.kind for layer in view.manifest.layers]

    assert follow([500, 501])[0] == "base"
    base = open_snapshot(str(tmp_path / "snapshots")).manifest.layers[0]
    assert follow([502])[-1] == "delta"
    assert open_snapshot(str(tmp_path / "snapshots")).manifest.layers[0] == base


def test_a_deployment_that_is_only_opened_writes_nothing(tmp_path: Path) -> None:
    file = write_deployment(tmp_path)
    file.write_text(
        file.read_text(encoding="utf-8") + '\n[snapshots]\nurl = "snapshots"\ninterval = 0.01\n',
        encoding="utf-8",
    )
    runtime = Deployment.read(file).open()
    runtime.log.close()
    with pytest.raises(SnapshotError, match="found none"):
        open_snapshot(str(tmp_path / "snapshots"))


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"interval": 1.0}, "must have a value for 'url'"),
        ({"url": ""}, "url must be that of a store, or the path of a folder, got an empty one"),
        ({"url": "s", "interval": 0.0}, "interval must be seconds above 0"),
        ({"url": "s", "grace": -1.0}, "grace must be seconds above 0"),
        ({"url": "s", "grace": float("inf")}, "grace must be seconds above 0, and finite, got inf"),
        ({"url": "s", "interval": float("nan")}, "interval must be seconds above 0"),
        ({"url": "s", "directions": "up"}, "directions must be 'in', 'out' or 'both'"),
    ],
)
def test_wrong_keys_are_said(keys: dict[str, object], said: str) -> None:
    content = {"graph": {"path": "g"}, "log": {"path": "l"}, "snapshots": keys}
    with pytest.raises(InputError, match=said):
        Deployment.parse(content, Path())
