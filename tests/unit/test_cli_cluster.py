"""`livegnn cluster`: a partition is written from each kind of graph."""

import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import livegnn as lg
from divided_deployment import write
from livegnn import checkpoint
from livegnn.cli import app
from livegnn.deployment import Deployment
from livegnn.errors import InputError
from livegnn.placement import Partition
from serving import write_deployment

RUNNER = CliRunner()


def call(*arguments: object) -> tuple[int, list[str]]:
    result = RUNNER.invoke(app, ["cluster", "partition", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output.splitlines()


def test_a_checkpoint_and_arrays_are_divided(tmp_path: Path) -> None:
    src, dst = np.array([0, 1, 2, 0, 4, 5, 6, 4, 3]), np.array([1, 2, 3, 2, 5, 6, 7, 6, 4])
    graph = lg.Graph.from_edges(src, dst)
    checkpoint.write(tmp_path / "g.lgck", {"graph": graph.state()}, 12)
    np.savez(tmp_path / "g.npz", src=src, dst=dst)
    for name, partitioner in (("g.lgck", "metis"), ("g.npz", "fennel")):
        out = tmp_path / f"{name}.lgpart"
        status, lines = call(tmp_path / name, "--workers", 2, "--out", out, "--partitioner", partitioner)
        found = Partition.read(out)
        assert status == 0
        assert lines == [str(found), f"written to {out}, {out.stat().st_size:,} bytes"]
        assert found.owners_in(graph, 2)["node"].workers == 2
        assert found.partitioner == partitioner
    assert lines[0].startswith("2 workers by fennel, event 0: 8 nodes of node (balance 1.000); ")


@pytest.mark.parametrize("out", ["missing/parts", "g.npz/parts"])
def test_a_place_where_no_file_can_be_is_refused_first(
    out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compute(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr("livegnn.placement.partition_graph", compute)
    monkeypatch.setattr("livegnn.cli.cluster.read_graph", compute)
    np.savez(tmp_path / "g.npz", src=[0, 1], dst=[1, 0])
    with pytest.raises((FileNotFoundError, NotADirectoryError)) as refused:
        call(tmp_path / "g.npz", "--workers", 2, "--out", tmp_path / out)
    assert refused.value.filename == str(tmp_path / out)


def test_a_deployment_is_divided_as_its_log_says(tmp_path: Path) -> None:
    file = write_deployment(tmp_path)
    status, lines = call(file, "--workers", 2, "--out", tmp_path / "parts")
    assert (status, lines[0][:28]) == (0, "2 workers by metis, event 0:")
    runtime = Deployment.read(file).open()
    runtime.append(lg.Events().add_nodes(10**6, node_type="node"))
    runtime.step()
    runtime.stop()
    runtime.log.close()
    status, lines = call(file, "--workers", 2, "--out", tmp_path / "parts")
    assert (status, lines[0][:28]) == (0, "2 workers by metis, event 1:")
    assert 10**6 in Partition.read(tmp_path / "parts").ids["node"]
    with pytest.raises(InputError, match="-o must be another file"):
        call(file, "--workers", 2, "-o", file)
    with pytest.raises(InputError, match="partitioner must be 'metis' or 'fennel', got 'hash'"):
        call(file, "--workers", 2, "-o", tmp_path / "other", "--partitioner", "hash")
    assert not (tmp_path / "other").exists()
    assert call(file, "--out", tmp_path / "other")[0] == 2


def test_what_parts_refuse(tmp_path: Path) -> None:
    """Without Ray their machine is the server's. Their number changes, and they end, with the server."""
    path = write(tmp_path, "parts", 2)
    on_ray = tmp_path / "on_ray.toml"
    on_ray.write_text(path.read_text("utf-8").replace("[cluster]", '[cluster]\nray = "auto"'), "utf-8")
    for file, *words, message in (
        (path, "status", "read GET /readyz and GET /metrics of the server"),
        (path, "drain", "10.0.0.1", "read GET /readyz and GET /metrics of the server"),
        (on_ray, "drain", "10.0.0.1", "got no section \\[checkpoint\\]"),
        (on_ray, "add", "0", "partitions = 2: stop it, write another number in \\[cluster\\]"),
        (on_ray, "down", "parts end with their server"),
    ):
        command, *more = words
        result = RUNNER.invoke(app, ["cluster", command, str(file), *more])
        assert isinstance(result.exception, InputError)
        assert re.search(message, str(result.exception))
    assert not (tmp_path / "events.db").exists()
