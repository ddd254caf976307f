"""`livegnn load` as an operator calls it: each row once, however it is interrupted."""

import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from test_cli import call_here

import livegnn as lg
from livegnn.deployment import Deployment
from livegnn.deployment.loading import Progress, load_files
from livegnn.errors import InputError
from livegnn.log.sqlite.reader import SqliteReader

TEXT = """
[graph]
path = "graph.npz"
parallel = "keep"

[log]
path = "events.db"

[[tables.users.nodes]]
id = "id"
x = ["age", "score"]
nulls = { age = 0 }

[[tables.payments.edges]]
src = "sender"
dst = "receiver"
weight = "amount"
time = "at"
time_unit = "ms"
where = { status = ["paid", "sent"], amount = { at_least = 1 } }
"""
ROWS = 150_000


@pytest.fixture
def deployed(tmp_path: Path) -> Path:
    np.savez(
        tmp_path / "graph.npz",
        src=np.array([], dtype=str),
        dst=np.array([], dtype=str),
        ids=np.array([], dtype=str),
        x=np.zeros((0, 2), np.float32),
        weight=np.zeros(0, np.float32),
        time=np.zeros(0),
    )
    (tmp_path / "deployment.toml").write_text(TEXT, encoding="utf-8")
    (tmp_path / "users.csv").write_text("id,age,score\nann,31,0.5\nbob,,1\n", encoding="utf-8")
    payments = {"sender": ["ann"] * ROWS, "receiver": ["bob"] * ROWS, "amount": np.arange(ROWS) + 1.0}
    payments |= {"at": np.arange(ROWS), "status": ["paid", "open", "sent"] * (ROWS // 3)}
    pa.parquet.write_table(pa.table(payments), tmp_path / "payments.parquet")
    return tmp_path


def load(directory: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return call_here("load", "deployment.toml", *arguments, directory=directory)


def graph_of(directory: Path) -> lg.Graph:
    runtime = Deployment.read(directory / "deployment.toml").open()
    runtime.log.close()
    return runtime.graph


def test_files_are_loaded_once(deployed: Path) -> None:
    first = load(deployed, "users", "users.csv")
    assert (first.returncode, first.stdout) == (
        0,
        "2 rows loaded as 2 events, 0 rows loaded earlier, event 2\n",
    ), first.stderr
    (deployed / "again").mkdir()
    (deployed / "again" / "copy.csv").write_bytes((deployed / "users.csv").read_bytes())
    again = load(deployed, "users", "again", "--order", "time")
    assert again.stdout == "0 rows loaded as 0 events, 2 rows loaded earlier, event 2\n"
    graph = graph_of(deployed)
    assert graph.features(["ann", "bob"]).tolist() == [[31, 0.5], [0, 1]]


@pytest.mark.parametrize("stop", [1, 2])
def test_a_load_that_is_killed_goes_on(deployed: Path, stop: int) -> None:
    assert load(deployed, "users", "users.csv").returncode == 0
    script = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from livegnn.deployment import Deployment\n"
        "from livegnn.deployment.loading import load_files\n"
        "seen = []\n"
        "def note(progress):\n"
        "    seen.append(1) if progress.step == 'loaded' else None\n"
        f"    len(seen) == {stop} and os.kill(os.getpid(), signal.SIGKILL)\n"
        "settings = Deployment.read('deployment.toml')\n"
        "load_files(settings, 'payments', [Path('payments.parquet')], note=note)\n"
    )
    killed = subprocess.run([sys.executable, "-c", script], cwd=deployed, check=False)
    assert killed.returncode == -9
    with closing(SqliteReader(deployed / "events.db")) as reader:
        reached = reader.last_seq()
    assert 2 < reached < 100_002
    rest = load(deployed, "payments", "payments.parquet")
    assert rest.returncode == 0, rest.stderr
    rows = 65_536 * stop
    assert rest.stdout == (
        f"{ROWS - rows:,} rows loaded as {100_002 - reached:,} events, "
        f"{rows:,} rows loaded earlier, event 100002\n"
    )
    found = graph_of(deployed).neighbors("bob", direction="in")
    expected = [at + 1.0 for at in range(ROWS) if at % 3 != 1]
    assert found.weight is not None
    assert found.time is not None
    assert sorted(found.weight.tolist()) == expected
    assert sorted(found.time.tolist()) == [(amount - 1) / 1000 for amount in expected]


def test_a_wrong_row_anywhere_loads_nothing(deployed: Path) -> None:
    (deployed / "more.csv").write_text("id,age,score\ncy,1,2\ndan,three,4\n", encoding="utf-8")
    wrong = load(deployed, "users", "users.csv", "more.csv")
    assert wrong.returncode == 1
    assert wrong.stderr.startswith("error: more.csv: expected CSV, got: row 1, column 'age': ")
    assert graph_of(deployed).seq == 0
    assert load(deployed, "users", "users.csv").stdout.startswith("2 rows loaded")


def test_an_edge_to_a_node_that_is_missing_is_refused(deployed: Path) -> None:
    (deployed / "p.jsonl").write_text(
        '{"sender": "ann", "receiver": "zoe", "amount": 3, "at": 5, "status": "paid"}\n', encoding="utf-8"
    )
    refused = load(deployed, "payments", "p.jsonl")
    assert refused.returncode == 1
    assert refused.stdout == "1 rows loaded as 1 events, 0 rows loaded earlier, event 1\n"
    assert refused.stderr.startswith("error: refused: entry 1: expected the id of a node")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["sales", "users.csv"], "error: there must be a section [tables.sales], got users, payments"),
        (["users", "none.csv"], "error: none.csv must be a file or a folder, got no such path"),
        (["users", "deployment.toml"], "error: deployment.toml must have one of the endings"),
        (["users", "payments.parquet"], "error: payments.parquet, nodes[0]: expected one column 'id', got"),
        (["users", "users.csv", "--order", "size"], "error: order must be 'name' or 'time', got 'size'"),
    ],
)
def test_a_load_that_cannot_be(deployed: Path, arguments: list[str], says: str) -> None:
    wrong = load(deployed, *arguments)
    assert wrong.returncode == 1
    assert wrong.stderr.startswith(says)


def test_progress_is_noted(deployed: Path) -> None:
    noted: list[Progress] = []
    path = deployed / "users.csv"
    loaded = load_files(Deployment.read(deployed / "deployment.toml"), "users", [path], note=noted.append)
    assert noted == [Progress("checked", path, 2), Progress("loaded", path, 2)]
    assert loaded == (2, 0, 2, [], 2)


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ("[tables]\nusers = 3", r"tables.users must be a section \[tables.users\], got 3"),
        ("[tables.users]", r"\[tables.users\]: a mapping must have nodes or edges"),
        (
            "[tables.users]\nnodes = 3",
            r"nodes in \[tables.users\] must be written as \[\[tables.users.nodes\]\]",
        ),
        ("[tables.users]\nnode = []", r"unknown key in \[tables.users\]: 'node': did you mean 'nodes'\?"),
        ("[[tables.users.nodes]]\nx = 'a'", r"\[tables.users.nodes\] must have a value for 'id', got x"),
        ("[[tables.users.nodes]]\nid = 3", r"id in \[tables.users.nodes\] must be text, got 3"),
        ("[[tables.users.nodes]]\nid = 'a'\nx = 3", r"x in \[tables.users.nodes\] must be text or a list"),
        ("[[tables.users.nodes]]\nid = 'a'\nnulls = 3", r"nulls in \[tables.users.nodes\] must be a table"),
        (
            "[[tables.users.nodes]]\nid = 'a'\nremoves = 1",
            r"removes in \[tables.users.nodes\] must be true or",
        ),
        ("[[tables.users.nodes]]\nid = 'a'\nwhere = {b = {c = 1}}", r"where of 'b' must be among equal"),
        (
            "[[tables.p.edges]]\nsrc = 'a'\ndst = 'b'\nedge_type = ['a']",
            r"edge_type in \[tables.p.edges\] must be",
        ),
        (
            "[[tables.p.edges]]\nsrc = 'a'\ndst = 'b'\ntime = 'c'\ntime_unit = 'h'",
            r"time_unit in \[tables.p.edges\] must be one of s, ms, us, ns, got 'h'",
        ),
    ],
)
def test_a_mapping_in_a_file_is_checked(section: str, says: str, tmp_path: Path) -> None:
    text = "[graph]\npath = 'graph.npz'\n[log]\npath = 'events.db'\n"
    (tmp_path / "deployment.toml").write_text(text + section, encoding="utf-8")
    with pytest.raises(InputError, match=says):
        Deployment.read(tmp_path / "deployment.toml")


def test_a_mapping_in_a_file_is_that_of_python(tmp_path: Path) -> None:
    content: dict[str, Any] = {
        "graph": {"path": "graph.npz"},
        "log": {"path": "events.db"},
        "tables": {
            "clicks": {
                "nodes": [{"id": "user", "node_type": "user", "x": ["a", "b"]}, {"id": "item", "x": "c"}],
                "edges": [
                    {"src": "user", "dst": "item", "edge_type": ["user", "clicks", "item"], "removes": False}
                ],
            }
        },
    }
    assert Deployment.parse(content, tmp_path).tables == {
        "clicks": lg.TableMapping(
            [lg.NodeRows("user", "user", ["a", "b"]), lg.NodeRows("item", x="c")],
            [lg.EdgeRows("user", "item", ("user", "clicks", "item"), removes=False)],
        )
    }
