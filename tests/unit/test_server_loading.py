"""Loads of tables into a server that pushes back, or refuses."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import livegnn as lg
from livegnn.deployment import Deployment
from livegnn.deployment.server_loading import load_into_server
from livegnn.errors import InputError
from livegnn.http.client import ServerClient
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import Runtime
from livegnn.server import create_app
from livegnn.server.bodies import Limits
from served import served

ROWS = 9000  # three parts


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Runtime]:
    graph = lg.Graph(lg.Schema({"node": 1}, {}))
    runtime = Runtime(SqliteLog(tmp_path / "events.db"), graph, max_waiting_events=100)
    yield runtime
    runtime.stop()
    runtime.log.close()


@pytest.fixture
def settings(tmp_path: Path) -> Deployment:
    text = '[graph]\npath = "none.npz"\n[log]\npath = "none.db"\n[[tables.users.nodes]]\nid = "id"\nx = "a"\n'
    (tmp_path / "deployment.toml").write_text(text, encoding="utf-8")
    rows = "".join(f"{at},{at / 3}\n" for at in range(ROWS))
    (tmp_path / "users.csv").write_text("id,a\n" + rows, encoding="utf-8")
    return Deployment.read(tmp_path / "deployment.toml")


def test_a_load_waits_while_too_many_events_wait(
    runtime: Runtime, settings: Deployment, tmp_path: Path
) -> None:
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        if not pauses:
            runtime.start()
        pauses.append(seconds)

    with served(create_app(runtime)) as address:
        client = ServerClient(address)
        loaded = load_into_server(settings, "users", [tmp_path / "users.csv"], client, sleep=sleep)
    assert loaded == (ROWS, 0, ROWS, [], ROWS, 0)
    assert min(pauses) >= 1.0  # of the header retry-after
    assert runtime.graph.num_nodes("node") == ROWS
    assert runtime.graph.features([3 * 1000]).tolist() == [[1000.0]]


def test_a_part_that_the_server_refuses_is_named(
    runtime: Runtime, settings: Deployment, tmp_path: Path
) -> None:
    says = r"users.csv: rows 0 to 4095: .*10,000.*the rows before"
    with (
        served(create_app(runtime, limits=Limits(body=10_000))) as address,
        pytest.raises(InputError, match=says),
    ):
        load_into_server(settings, "users", [tmp_path / "users.csv"], ServerClient(address))
    assert runtime.log.last_seq() == 0


@pytest.mark.parametrize("address", ["localhost:8080", "ftp://a", "http://", "http://a:x", "http://[a"])
def test_an_address_that_is_none(address: str) -> None:
    with pytest.raises(InputError, match="--server must be an address such as http"):
        ServerClient(address)
