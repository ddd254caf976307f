"""The command line as a user calls it."""

import json
import os
import shutil
import socket
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
import torch
import torch_geometric
from torch.export import Dim, export, save
from torch_geometric import nn as pyg

import livegnn
import livegnn as lg
from livegnn import Events, checkpoint
from livegnn.cli import main
from livegnn.deployment import Deployment
from livegnn.graph import EdgeSchema, Schema
from livegnn.model import Model
from livegnn.runtime import list_checkpoints
from livegnn.types import DEFAULT_EDGE_TYPE
from serving import write_deployment
from streams import make_model, make_stream

CHECKOUT = Path(__file__).parents[2]


def call(*arguments: str, directory: Path = CHECKOUT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "livegnn", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=directory,
    )


def call_here(*arguments: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """As `call`, in this process, where torch is imported already."""
    said, errors, status = StringIO(), StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(said), redirect_stderr(errors):
        patch.setattr(sys, "argv", ["livegnn", *arguments])
        patch.chdir(directory)
        try:
            main()
        except SystemExit as end:
            status = int(end.code or 0)
    return subprocess.CompletedProcess(arguments, status, said.getvalue(), errors.getvalue())


def test_help_and_version() -> None:
    text = call("--help").stdout
    for command in ("serve", "verify", "import", "bench", "demo"):
        assert command in text
    assert call("--version").stdout.strip() == livegnn.__version__


def test_verify_restores_and_compares(tmp_path: Path) -> None:
    deployment = write_deployment(tmp_path)
    runtime = Deployment.read(deployment).open()
    for events in make_stream(20):
        runtime.append(events)
    while runtime.step():
        pass
    runtime.stop()
    runtime.log.close()
    result = call("verify", str(deployment))
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(
        f"seq {runtime.seq}: {runtime.graph.num_nodes()} predictions, largest difference"
    )

    (path,) = list_checkpoints(tmp_path / "checkpoints")
    saved = checkpoint.read(path)
    for name, array in saved.states["engine"].arrays.items():
        if name.startswith("rows/") and array.shape[1] > 1:  # wrong degrees are refused
            array += np.float32(0.5)
    checkpoint.write(path, saved.states, saved.seq)
    result = call_here("verify", str(deployment), directory=tmp_path)
    assert result.returncode == 1
    wrong = "the predictions and the rows kept for later predictions"
    assert f"error: {wrong} are not those of a computation from scratch" in result.stderr


def test_verify_compares_every_output_of_every_model(tmp_path: Path) -> None:
    """What is spoiled in a checkpoint is found: predictions of any model, and rows kept for later ones."""
    deployment = write_deployment(tmp_path)
    model = replace(make_model(), outputs={"scores": "out", "rows": "hidden"})
    model.save(tmp_path / "model.lgnn")
    runtime = Deployment.read(deployment).open()
    runtime.start()
    runtime.models.deploy("second", replace(make_model(seed=1), outputs={"scores": "out"}))
    for events in make_stream(20):
        runtime.append(events)
    runtime.stop()
    runtime.log.close()

    def predict() -> dict[tuple[str, str], bytes]:
        opened = Deployment.read(deployment).open()
        opened.log.close()
        ids = opened.graph.ids()
        return {
            (name, output): opened.predict(ids, model=name, output=output).values.tobytes()
            for name in opened.models.names
            for output in opened.models.find(name).model.outputs
        }

    right = predict()
    result = call_here("verify", str(deployment), directory=tmp_path)
    assert result.returncode == 0, result.stderr
    count = runtime.graph.num_nodes()
    for model_name, output in right:
        assert f"model {model_name}, output {output}: {count} predictions, largest" in result.stdout
    (path,) = list_checkpoints(tmp_path / "checkpoints")
    saved = checkpoint.read(path)
    found = set()
    for model_name in runtime.models.names:
        for name, array in saved.states[model_name].arrays.items():
            if not name.startswith("rows/") or array.shape[1] == 1:  # wrong degrees are refused
                continue
            before = array.copy()
            array += np.float32(0.5)
            checkpoint.write(path, saved.states, saved.seq)
            wrong = {key for key, rows in predict().items() if rows != right[key]}
            result = call_here("verify", str(deployment), directory=tmp_path)
            assert result.returncode == 1, name
            for key in right:
                assert ("output {1} of the model {0}".format(*key) in result.stderr) == (key in wrong), name
            kept = f"rows kept for later predictions of the model {model_name}" in result.stderr
            assert kept or any(one == model_name for one, _ in wrong), name
            found |= wrong
            array[:] = before
    assert found == right.keys()


class Ranks(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = pyg.GCNConv(4, 8), torch.nn.Linear(8, 1)

    def forward(
        self, x: torch.Tensor, edge_index: torch.Tensor, edge_weight: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        h = self.conv(x, edge_index, edge_weight).relu()
        return self.head(h), h


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of an exported program."""
    given = torch.rand(5, 4), torch.randint(5, (2, 7)), torch.rand(7)
    shapes = ({0: Dim("nodes")}, {1: Dim("edges")}, {0: Dim("edges")})
    path = tmp_path_factory.mktemp("programs") / "ranks.pt2"
    save(export(Ranks().eval(), given, dynamic_shapes=shapes, strict=False), path)
    return path


def test_import_writes_a_model_and_says_what_it_understood(ranks: Path, tmp_path: Path) -> None:
    shutil.copy(ranks, tmp_path)
    result = call("import", str(tmp_path / "ranks.pt2"))
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("Ranks.forward reads x (node[4]), edge_index")
    assert "incremental" in result.stdout
    model = Model.load(tmp_path / "ranks.lgnn")
    assert model.digest == Model.from_exported(ranks).digest

    schema = Schema({"node": 4}, {DEFAULT_EDGE_TYPE: EdgeSchema(weighted=True)})
    checkpoint.write(tmp_path / "graph.ckpt", {"graph": lg.Graph(schema).state()}, 0)
    arguments = "--schema", "graph.ckpt", "--output", "output[1]", "-o", "h.lgnn"
    result = call_here("import", "ranks.pt2", *arguments, directory=tmp_path)
    assert result.returncode == 0, result.stderr
    model = Model.load(tmp_path / "h.lgnn")
    assert model.width(model.output) == 8

    narrow = Schema({"node": 3}, {DEFAULT_EDGE_TYPE: EdgeSchema(weighted=True)})
    (tmp_path / "schema.json").write_text(json.dumps(narrow.to_json()), encoding="utf-8")
    for arguments, message in [
        (("ranks.pt2", "--schema", "schema.json"), "reads 4 channels of 'node'"),
        (("missing.pt2", "--schema", "ranks.pt2"), "must be a deployment file"),
    ]:
        result = call_here("import", *arguments, directory=tmp_path)
        assert result.returncode == 1
        assert message in result.stderr
        assert "Traceback" not in result.stderr


class Purchases(torch.nn.Module):
    """Its results are rows of two types."""

    def __init__(self) -> None:
        super().__init__()
        convs = {
            ("user", "buys", "item"): pyg.SAGEConv((3, 2), 4),
            ("item", "of", "user"): pyg.SAGEConv((2, 3), 5),
        }
        self.conv = pyg.HeteroConv(convs)

    def forward(
        self, users: torch.Tensor, items: torch.Tensor, buys: torch.Tensor, of: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        edges = {("user", "buys", "item"): buys, ("item", "of", "user"): of}
        result: dict[str, torch.Tensor] = self.conv({"user": users, "item": items}, edges)
        return result


def test_import_takes_what_errors_advise(tmp_path: Path) -> None:
    given = torch.rand(5, 3), torch.rand(6, 2), torch.randint(5, (2, 7)), torch.randint(5, (2, 8))
    shapes = tuple({int(one.dtype == torch.int64): Dim(f"rows_{i}")} for i, one in enumerate(given))
    save(export(Purchases().eval(), given, dynamic_shapes=shapes, strict=False), tmp_path / "p.pt2")
    result = call_here("import", "p.pt2", directory=tmp_path)
    assert result.returncode == 1
    assert not result.stdout
    assert result.stderr.endswith("(on the command line: --input)\n")
    rows = "users=user", "items=item:x", "buys=user,buys,item", "of=item,of,user:edge_index"
    inputs = [part for one in rows for part in ("--input", one)]
    result = call_here("import", "p.pt2", *inputs, directory=tmp_path)
    assert result.returncode == 1
    assert not result.stdout
    assert "say with output_type=..." in result.stderr
    assert result.stderr.endswith("(on the command line: --output, --output-type)\n")
    assert [path.name for path in tmp_path.iterdir()] == ["p.pt2"]
    for option, outputs in [
        (["--output-type", "user"], {"user": 5}),
        (["--output", "item", "--output", "user"], {"item": 4, "user": 5}),
    ]:
        result = call_here("import", "p.pt2", *inputs, *option, directory=tmp_path)
        assert result.returncode == 0, result.stderr
        model = Model.load(tmp_path / "p.lgnn")
        assert {name: model.width(value) for name, value in model.outputs.items()} == outputs
        assert set(model.inputs) == {"users:user", "x:item"}


class Numbered(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.RGCNConv(4, 3, num_relations=2)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor, edge_type: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.conv(x, edge_index, edge_type)
        return result


def test_import_names_the_types_of_a_graph(
    ranks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_geometric.backend, "use_segment_matmul", False)  # export cannot trace it
    given = torch.rand(5, 4), torch.randint(5, (2, 7)), torch.randint(2, (7,))
    shapes = ({0: Dim("nodes")}, {1: Dim("edges")}, {0: Dim("edges")})
    program = export(Numbered().eval(), given, dynamic_shapes=shapes, strict=False)
    save(program, tmp_path / "numbered.pt2")
    relations = [("user", "knows", "user"), ("user", "trusts", "user")]
    options = [part for one in relations for part in ("--relation", ",".join(one))]
    result = call_here("import", "numbered.pt2", "--node-type", "user", *options, directory=tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("Numbered.forward reads x (user[4])")
    expected = Model.from_exported(program, relations=relations, node_type="user")
    assert Model.load(tmp_path / "numbered.lgnn").digest == expected.digest
    assert f"\n{expected}\n" in result.stdout

    shutil.copy(ranks, tmp_path)
    options = ["--node-type", "user", "--edge-type", "user,knows,user"]
    result = call_here("import", "ranks.pt2", *options, directory=tmp_path)
    assert result.returncode == 0, result.stderr
    assert Model.load(tmp_path / "ranks.lgnn").inputs["x"].node_type == "user"
    for wrong in (["--edge-type", "knows"], ["--relation", "a,,b"], ["--input", "x"], ["--input", "=user"]):
        result = call_here("import", "ranks.pt2", *wrong, directory=tmp_path)
        assert result.returncode == 2
        assert f"{wrong[0]} must be" in result.stderr


def test_import_writes_over_nothing_that_it_reads(ranks: Path, tmp_path: Path) -> None:
    shutil.copy(ranks, tmp_path)
    content = (tmp_path / "ranks.pt2").read_bytes()
    (tmp_path / "other.lgnn").symlink_to("ranks.pt2")
    (tmp_path / "hard.lgnn").hardlink_to(tmp_path / "ranks.pt2")
    schema = Schema({"node": 4}, {DEFAULT_EDGE_TYPE: EdgeSchema(weighted=True)})
    (tmp_path / "schema.json").write_text(json.dumps(schema.to_json()), encoding="utf-8")
    os.mkfifo(tmp_path / "pipe")
    names = sorted(os.listdir(tmp_path))
    for to, message in [
        ("ranks.pt2", "-o must be another file than ranks.pt2"),
        ("./other.lgnn", "-o must be another file than ranks.pt2"),
        ("hard.lgnn", "-o must be another file than ranks.pt2"),
        ("schema.json", "-o must be another file than schema.json"),
        ("pipe", "pipe must be a regular file, or a name that is free, got a named pipe"),
        (".", ". must be a regular file, or a name that is free, got a directory"),
        ("missing/x.lgnn", "No such file or directory: 'missing/x.lgnn'"),
    ]:
        result = call_here("import", "ranks.pt2", "--schema", "schema.json", "-o", to, directory=tmp_path)
        assert result.returncode == 1
        assert message in result.stderr
        assert not result.stdout
        assert (tmp_path / "ranks.pt2").read_bytes() == content
        assert sorted(os.listdir(tmp_path)) == names
    (tmp_path / "cut.pt2").write_bytes(content[:-100])
    result = call_here("import", "cut.pt2", directory=tmp_path)
    assert result.returncode == 1
    assert "cut.pt2 is damaged, or is not a program of torch.export" in result.stderr


def test_import_without_torch_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(
        "raise ModuleNotFoundError('no torch', name='torch')", encoding="utf-8"
    )
    result = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; sys.path.insert(0, '.'); from livegnn.cli import main; main()",
            "import",
            "a.pt2",
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert result.returncode == 1
    assert "pip install 'livegnn[torch]'" in result.stderr
    assert "Traceback" not in result.stderr


def test_errors_are_shown_without_a_traceback(tmp_path: Path) -> None:
    deployment = write_deployment(tmp_path)
    deployment.write_text(deployment.read_text(encoding="utf-8").replace("[log]", "[logs]"), encoding="utf-8")
    result = call("serve", str(deployment))
    assert result.returncode == 1
    assert result.stderr.strip().endswith("unknown section 'logs': did you mean 'log'?")
    assert "Traceback" not in result.stderr
    result = call_here("verify", str(tmp_path / "missing.toml"), directory=tmp_path)
    assert result.returncode == 1
    assert "No such file" in result.stderr


def test_an_address_that_cannot_be_had_is_one_line(tmp_path: Path) -> None:
    deployment = write_deployment(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        deployment.write_text(deployment.read_text().replace("port = 0", f"port = {port}"))
        ended = call_here("serve", str(deployment), directory=tmp_path)
    assert (ended.returncode, ended.stdout) == (1, "")
    (line,) = ended.stderr.splitlines()
    assert line.startswith(f"error: cannot listen at 127.0.0.1 port {port}, ")
    assert line.endswith("Stop it, or choose another host or port; port 0 is any free one")
    ended = call_here("demo", "--host", "192.0.2.1", "--no-browser", directory=tmp_path)
    assert (ended.returncode, ended.stdout) == (1, "")
    (line,) = ended.stderr.splitlines()
    assert line.startswith("error: cannot listen at 192.0.2.1 port 8080, ")


def test_letters_that_the_terminal_has_not_are_escaped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / os.fsdecode("łąka.lgck".encode())
    checkpoint.write(path, {"graph": lg.Graph.from_edges([0], [1]).state()}, 0)
    monkeypatch.setenv("PYTHONUTF8", "1")
    monkeypatch.setenv("PYTHONIOENCODING", "iso8859-1")
    result = call("checkpoint", "verify", str(path))
    assert result.stdout.endswith("\\u0142\\u0105ka.lgck: whole, event 0\n"), result.stderr


def test_a_log_that_was_swapped_is_refused(tmp_path: Path) -> None:
    deployment = write_deployment(tmp_path)
    runtime = Deployment.read(deployment).open()
    runtime.append(Events().remove_nodes(3))
    runtime.step()
    runtime.stop()
    runtime.log.close()
    (tmp_path / "events.db").unlink()
    result = call("serve", str(deployment))
    assert result.returncode == 1
    assert "must reach event 1, which was acknowledged, got a log that ends at 0" in result.stderr
    (tmp_path / "events.db-mark").unlink()
    result = call_here("serve", str(deployment), directory=tmp_path)
    assert result.returncode == 1
    assert "checkpoints must be a directory of this log" in result.stderr
    assert "got one of another log, which was there before this one" in result.stderr


def test_a_spoiled_log_is_one_line(tmp_path: Path) -> None:
    deployment = write_deployment(tmp_path)
    runtime = Deployment.read(deployment).open()
    for events in make_stream(60):
        runtime.append(events)
    runtime.step()
    runtime.log.close()
    content = bytearray((tmp_path / "events.db").read_bytes())
    sector = content.index(b"LGEV") // 512 * 512  # which begins an entry
    content[sector : sector + 512] = bytes(512)
    (tmp_path / "events.db").write_bytes(content)
    result = call("verify", str(deployment))
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert str(tmp_path / "events.db") in line


def test_bench_lists_and_refuses(tmp_path: Path) -> None:
    names = call_here("bench", directory=CHECKOUT).stdout.split()
    assert names
    result = call("bench", "no-such-benchmark")
    assert result.returncode == 1
    assert f"must be one of {', '.join(names)}, got 'no-such-benchmark'" in result.stderr
    elsewhere = call_here("bench", directory=tmp_path)
    assert elsewhere.returncode == 1
    assert "benchmarks are part of a source checkout" in elsewhere.stderr
