"""examples/postgres: its files agree with each other, and its tables have their scores."""

import json
import re
import shutil
import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import pytest

import loopback
from kafka_broker import Broker
from kafka_reading import wait_for
from livegnn import Graph
from livegnn.deployment import Deployment
from postgres import Connect, Postgres, needs_postgres
from serving import Server

EXAMPLE = Path(__file__).parents[2] / "examples" / "postgres"
CONNECTOR = json.loads((EXAMPLE / "connector.json").read_text(encoding="utf-8"))["config"]
TABLES = "select a.id, a.reported from account a order by a.id;"


def prepare(folder: Path, servers: str = "kafka:9092", port: int = 5432) -> Path:
    """The deployment of the example in `folder`, with servers of this machine."""
    text = (EXAMPLE / "deployment.toml").read_text(encoding="utf-8")
    for before, after in (
        ("kafka:9092", servers),
        ("host=db port=5432", f"host=127.0.0.1 port={port}"),
        ("port = 8080", "port = 0"),
        ('host = "0.0.0.0"', 'host = "127.0.0.1"'),
    ):
        assert before in text
        text = text.replace(before, after)
    (folder / "deployment.toml").write_text(text, encoding="utf-8")
    (folder / "data").mkdir()  # the volume
    subprocess.run([sys.executable, EXAMPLE / "prepare.py"], cwd=folder, check=True)
    return folder / "deployment.toml"


def scores_of(postgres: Postgres) -> dict[str, float]:
    """A model of the same meaning, in NumPy, on the rows of the tables."""
    lines = postgres.execute("select id, reported from account;").splitlines()
    reported = {id: float(flag == "t") for id, flag in (line.split("\t") for line in lines)}
    lines = postgres.execute("select sender, receiver, amount from payment;").splitlines()
    paid = [(sender, receiver, float(amount)) for sender, receiver, amount in map(str.split, lines)]
    for sender, receiver, _ in paid:
        reported.setdefault(sender, 0.0)
        reported.setdefault(receiver, 0.0)

    def received(of: dict[str, float]) -> dict[str, float]:
        sums = dict.fromkeys(of, 0.0)
        for sender, receiver, amount in paid:
            sums[receiver] += amount * of[sender]
        return {id: float(np.log1p(total)) for id, total in sums.items()}

    direct = received(reported)
    indirect = received({id: reported[id] + direct[id] for id in direct})
    logits = {id: 6 * reported[id] + 0.5 * direct[id] + 0.2 * indirect[id] - 4 for id in direct}
    return {id: float(1 / (1 + np.exp(-logit))) for id, logit in logits.items()}


def test_its_files_agree(tmp_path: Path) -> None:
    read = Deployment.read(prepare(tmp_path))
    assert CONNECTOR["table.include.list"].split(",") == ["public.account", "public.payment"]
    sql = (EXAMPLE / "payments.sql").read_text(encoding="utf-8")
    assert re.findall(r"create table (\w+)", sql) == list(read.tables)
    compose = (EXAMPLE / "compose.yaml").read_text(encoding="utf-8")
    for file in EXAMPLE.iterdir():
        if file.name not in ("README.md", "compose.yaml"):
            named = compose + (EXAMPLE / "Dockerfile").read_text(encoding="utf-8")
            assert file.name in named, f"{file.name} is used nowhere"
    runtime = read.open()
    with closing(runtime.log):
        assert isinstance(runtime.graph, Graph)
        assert runtime.graph.schema.text_ids


@needs_postgres
@pytest.mark.campaign
@pytest.mark.xdist_group("kafka")
def test_each_change_of_its_tables_is_in_the_table_of_scores(tmp_path: Path) -> None:
    with ExitStack() as opened:
        postgres, broker = Postgres(), Broker()
        opened.callback(postgres.close)
        opened.callback(broker.close)
        postgres.execute((EXAMPLE / "payments.sql").read_text(encoding="utf-8"))
        tables = CONNECTOR["table.include.list"].split(",")
        connect = Connect(
            tmp_path / "connect", postgres, broker.servers, tables, schemas=False, settings=CONNECTOR
        )
        opened.callback(connect.close)
        deployment = prepare(tmp_path, broker.servers, postgres.port)
        server = opened.enter_context(Server(deployment))

        def same() -> bool:
            known = postgres.execute("select to_regclass('score') is not null;").strip() == "t"
            lines = postgres.execute("select id, score from score;").splitlines() if known else []
            written = {id: float(score) for id, score in (line.split("\t") for line in lines)}
            wanted = scores_of(postgres)
            return written.keys() == wanted.keys() and all(
                abs(written[id] - wanted[id]) < 1e-5 for id in wanted
            )

        wait_for(same)
        readme = (EXAMPLE / "README.md").read_text(encoding="utf-8")
        shown = re.findall(r"postgres=# (.*)", readme)
        assert len(shown) == 4
        for statement in shown:
            postgres.execute(statement)
            wait_for(same)
        answer = loopback.post(f"{server.address}/v1/predictions", json={"ids": ["bob"]}).json()
        assert answer["predictions"][0][0] == pytest.approx(scores_of(postgres)["bob"], abs=1e-5)
        assert loopback.get(f"{server.address}/v1/rejections").json()["rejections"] == []
    shutil.rmtree(tmp_path / "connect")
