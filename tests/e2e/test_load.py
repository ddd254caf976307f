"""`livegnn load` as an operator calls it: each row once, however it is interrupted."""

import subprocess
import sys
from collections.abc import Callable
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
from livegnn.deployment.server_loading import load_into_server
from livegnn.errors import InputError
from livegnn.http.client import NoAnswer, ServerClient
from livegnn.log.sqlite.reader import SqliteReader
from serving import Server

TEXT = """
[graph]
path = "graph.npz"
parallel = "keep"

[log]
path = "events.db"

[server]
port = 0

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
    check_payments(graph_of(deployed))


def check_payments(graph: lg.Graph) -> None:
    found = graph.neighbors("bob", direction="in")
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


def test_a_key_that_repeats_loads_nothing(deployed: Path) -> None:
    (deployed / "deployment.toml").write_text(
        TEXT.replace('id = "id"', 'id = "id"\nunique = true'), encoding="utf-8"
    )
    (deployed / "more.csv").write_text("id,age,score\ncy,1,2\nann,3,4\ncy,5,6\n", encoding="utf-8")
    wrong = load(deployed, "users", "users.csv", "more.csv")
    assert wrong.stderr.startswith(
        "error: more.csv, nodes[0]: row 2, column 'id': expected another node than row 0 gives, got the same"
    )
    assert graph_of(deployed).seq == 0


def test_an_edge_to_a_node_that_is_missing_is_refused(deployed: Path) -> None:
    (deployed / "p.jsonl").write_text(
        '{"sender": "ann", "receiver": "zoe", "amount": 3, "at": 5, "status": "paid"}\n', encoding="utf-8"
    )
    refused = load(deployed, "payments", "p.jsonl")
    assert refused.returncode == 1
    assert refused.stdout == "1 rows loaded as 1 events, 0 rows loaded earlier, event 1\n"
    assert refused.stderr.startswith(
        "error: refused: p.jsonl: rows 0 to 0, entry 1: expected the id of a node"
    )
    assert "auto_add_nodes" in refused.stderr
    again = load(deployed, "payments", "p.jsonl")
    assert again.stdout == "0 rows loaded as 0 events, 1 rows loaded earlier, event 1\n"
    assert again.stderr.startswith("1 earlier entries of the log are refused")


class ForgetfulClient(ServerClient):
    """Loses the answers to some requests that append, after they took effect, and kills at one of them."""

    def __init__(self, address: str, lost: Callable[[int], bool]) -> None:
        super().__init__(address)
        self._lost, self.appends = lost, 0

    def ask(
        self, method: str, path: str, body: bytes | None = None, media_type: str = "application/json"
    ) -> dict[str, Any]:
        found = super().ask(method, path, body, media_type)
        if method == "POST":
            self.appends += 1
            if self._lost(self.appends):
                raise NoAnswer("the answer is lost")
        return found


def test_rows_go_into_a_running_server_once(deployed: Path) -> None:
    """Answers are lost, load and server are killed, and the rest comes without a server."""
    (deployed / "p.jsonl").write_text(
        '{"sender": "ann", "receiver": "zoe", "amount": 3, "at": 5, "status": "paid"}\n', encoding="utf-8"
    )
    settings, path = Deployment.read(deployed / "deployment.toml"), deployed / "payments.parquet"
    pauses: list[float] = []
    with Server(deployed / "deployment.toml") as server:
        first = load(deployed, "users", "users.csv", "--server", server.address)
        assert first.stdout == "2 rows loaded as 2 events, 0 rows loaded earlier, event 2\n", first.stderr
        again = load(deployed, "users", "users.csv", "--server", server.address)
        assert again.stdout == "0 rows loaded as 0 events, 2 rows loaded earlier, event 2\n"
        refused = load(deployed, "payments", "p.jsonl", "--server", server.address)
        assert refused.stderr.startswith("error: refused: p.jsonl: rows 0 to 0, entry 3: expected the id")
        again = load(deployed, "payments", "p.jsonl", "--server", server.address)
        assert again.stderr.startswith("1 earlier entries of the log are refused")
        held = load(deployed, "users", "users.csv")
        assert (held.returncode, held.stderr.count("must have one owner")) == (1, 1)
        assert held.stderr.endswith("or load into the server that runs there: --server URL\n")

        forgetful = ForgetfulClient(server.address, lambda count: count % 3 == 2)

        def stop(progress: Progress) -> None:
            if progress.step == "loaded" and progress.rows > ROWS // 3:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            load_into_server(settings, "payments", [path], forgetful, note=stop, sleep=pauses.append)
        assert pauses
        gone = ForgetfulClient(server.address, lambda count: count == 3 and not server.kill())
        with pytest.raises(NoAnswer, match=r"Run it again: it continues after the last loaded row"):
            load_into_server(settings, "payments", [path], gone, sleep=pauses.append)
    rest = load(deployed, "payments", "payments.parquet")
    known = 4096 * (ROWS // 3 // 4096 + 1) + 4096 * 3
    assert rest.stdout.startswith(f"{ROWS - known:,} rows loaded as "), rest.stderr
    assert f"{known:,} rows loaded earlier, event 100003\n" in rest.stdout
    check_payments(graph_of(deployed))


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


@pytest.mark.parametrize("command", ["serve", "verify"])
def test_a_mapping_that_does_not_fit_the_graph_stops_the_start(deployed: Path, command: str) -> None:
    text = TEXT.replace('x = ["age", "score"]', 'x = ["age", "score", "extra"]')
    (deployed / "deployment.toml").write_text(text, encoding="utf-8")
    wrong = call_here(command, "deployment.toml", directory=deployed)
    assert wrong.returncode == 1
    assert wrong.stdout == ""
    assert wrong.stderr.endswith(
        "error: [tables.users], nodes[0]: x must have 2 columns for node type 'node', got 3: "
        "['age', 'score', 'extra']: name one for each feature, or one column of lists\n"
    )


def test_progress_is_noted(deployed: Path) -> None:
    noted: list[Progress] = []
    path = deployed / "users.csv"
    loaded = load_files(Deployment.read(deployed / "deployment.toml"), "users", [path], note=noted.append)
    assert noted == [Progress("checked", path, 2), Progress("loaded", path, 2)]
    assert loaded == (2, 0, 2, [], 2, 0)


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
            "[[tables.p.edges]]\nsrc = 'a'\ndst = 'b'\ntime = 'c'\ntime_unit = 'm'",
            r"time_unit in \[tables.p.edges\] must be one of ns, us, ms, s, min, h, D, got 'm'",
        ),
        ("[tables.users]\ncsv = 3", r"tables.users.csv must be a section \[tables.users.csv\], got 3"),
        ("[tables.u.csv]\ncolumns = 'a'", r"columns in \[tables.u.csv\] must be a list of texts, got 'a'"),
        ("[tables.u.csv]\nskip = -1", r"\[tables.u.csv\]: skip must be .* 0"),
        ("[tables.u.csv]\nheader = false", r"unknown key in \[tables.u.csv\]: 'header'"),
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
                "csv": {"columns": ["user", "item", "a", "b", "c"], "skip": 1, "delimiter": "|"},
            }
        },
    }
    assert Deployment.parse(content, tmp_path).tables == {
        "clicks": lg.TableMapping(
            [lg.NodeRows("user", "user", ["a", "b"]), lg.NodeRows("item", x="c")],
            [lg.EdgeRows("user", "item", ("user", "clicks", "item"), removes=False)],
            lg.CsvForm("|", 1, ["user", "item", "a", "b", "c"]),
        )
    }
