"""Every process admits clients by the same rules: server, worker, both kinds of fronts, cluster, function."""

import ast
import asyncio
import dataclasses
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest
import trustme
from starlette.routing import Route
from typer.testing import CliRunner

import loopback
from functions import function
from livegnn import Engine
from livegnn.cli import app
from livegnn.cluster import ClusterSpec
from livegnn.cluster.app import create_cluster_app
from livegnn.deployment.sections import ServerSection
from livegnn.deployment.worker_sections import WorkersSection
from livegnn.errors import InputError
from livegnn.functions.app import Application
from livegnn.functions.machine import Machine
from livegnn.functions.options import ClientOptions
from livegnn.functions.scheduler import Limits
from livegnn.functions.stage import Stage
from livegnn.functions.threads import ThreadHost
from livegnn.http.access import AccessSettings
from livegnn.http.guard import Access
from livegnn.http.keys import SCOPES, KeyFile, create_key
from livegnn.http.scopes import HEALTH, scope_of
from livegnn.http.tls import Tls
from livegnn.log.sqlite import SqliteLog
from livegnn.partitions.front import PartsFront
from livegnn.partitions.front_app import create_front_app
from livegnn.runtime import Runtime
from livegnn.server import create_app
from livegnn.workers import SqlitePlace
from livegnn.workers.app import create_serving_app
from livegnn.workers.front import create_front
from served import served
from serving_workers import PLAN, Setting
from streams import make_graph, make_model

PROCESSES = ("server", "worker", "front end", "front of parts", "cluster", "function")
PAGE = "https://dashboard.example"


class NoCluster:
    """A cluster without workers."""

    def addresses(self) -> list[list[str]]:
        return [[]] * PLAN.serving_workers

    def workers(self) -> list[object]:
        return []

    def said(self) -> list[str]:
        return []


class Guarded(NamedTuple):
    setting: Setting
    access: Access
    keys: dict[str, str]
    applications: dict[str, object]
    runner: asyncio.Runner

    def ask(self, process: str, method: str, path: str, **headers: str) -> httpx.Response:
        async def request() -> httpx.Response:
            transport = httpx.ASGITransport(self.applications[process], raise_app_exceptions=False)  # type: ignore[arg-type]
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                return await client.request(method, path, headers=headers)

        return self.runner.run(request())

    def routes(self, process: str) -> set[tuple[str, str]]:
        """The method and path of each route."""
        app = self.applications[process]
        if isinstance(app, Application):
            found = {(method, path) for path, methods in app._routes.items() for method in methods}
            return found | {("GET", "/problems"), ("GET", "/problems/{name}")}
        routes = [*app.state.routes, *app.routes]  # type: ignore[attr-defined]
        return {
            (method, one.path) for one in routes if isinstance(one, Route) for method in one.methods or ()
        }


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("access")
    keys = {scope: create_key(folder / "keys.json", scope, [scope]) for scope in SCOPES}
    access = Access(KeyFile(folder / "keys.json"), hosts=["scores.example"], origins=[PAGE])
    with ExitStack() as opened:
        setting = Setting(folder, opened)
        log = SqliteLog(folder / "server.db")
        opened.callback(log.close)
        graph = make_graph()
        machine = Machine({"predict": Stage(ThreadHost(function(folder)), Limits(1))}, concurrency=1)
        runner = opened.enter_context(asyncio.Runner())
        opened.callback(lambda: runner.run(machine.close()))
        applications = {
            "server": create_app(Runtime(log, graph, Engine(graph, make_model(), threads=1)), access=access),
            "worker": create_serving_app(setting.workers[0], access),
            "front end": create_front(PLAN, [[it] for it in setting.addresses], access),
            "front of parts": create_front_app(PartsFront(folder / "fronts.json"), access=access),
            "cluster": create_cluster_app(NoCluster(), PLAN, access),  # type: ignore[arg-type]
            "function": Application(machine, access),
        }
        yield Guarded(setting, access, keys, applications, runner)


@pytest.mark.parametrize("process", PROCESSES)
def test_each_route_of_each_process_is_guarded(guarded: Guarded, process: str) -> None:
    routes = guarded.routes(process)
    assert {path for _, path in routes} >= {"/livez", "/readyz", "/metrics", "/v1/predictions"}
    reader = f"Bearer {guarded.keys['read']}"
    for method, template in routes:
        path, needed = template.replace("{name}", "unknown-path"), scope_of(method, template)
        ask = (process, method, path)
        assert guarded.ask(*ask, host="evil.example").status_code == 421, ask
        assert guarded.ask(*ask, origin="https://evil.example").status_code == 403, ask
        without = guarded.ask(*ask)
        assert (without.status_code == 401) == (needed is not None), ask
        assert ("www-authenticate" in without.headers) == (needed is not None)
        if needed in ("write", "admin"):
            assert guarded.ask(*ask, authorization=reader).status_code == 403, ask
        elif template != "/v1/changes":  # an answer without an end
            assert guarded.ask(*ask, authorization=reader).status_code not in (401, 403, 421), ask
            assert guarded.ask(*ask, authorization=reader, host="scores.example").status_code != 421


def test_what_needs_no_key_is_health_and_the_pages_of_problems(guarded: Guarded) -> None:
    free = {path for one in PROCESSES for method, path in guarded.routes(one) if not scope_of(method, path)}
    assert free == {*HEALTH, "/problems", "/problems/{name}"}


@pytest.mark.parametrize("process", PROCESSES)
def test_a_listed_page_asks_before_it_sends_a_key(guarded: Guarded, process: str) -> None:
    asked = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}
    allowed = guarded.ask(process, "OPTIONS", "/v1/predictions", origin=PAGE, **asked)
    assert (allowed.status_code, allowed.headers["access-control-allow-origin"]) == (200, PAGE)
    assert allowed.headers["access-control-allow-headers"] == "authorization"
    assert "POST" in allowed.headers["access-control-allow-methods"].split(", ")
    refused = guarded.ask(process, "POST", "/v1/predictions", origin=PAGE)
    assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, PAGE)
    stranger = guarded.ask(process, "OPTIONS", "/v1/predictions", origin="https://evil.example", **asked)
    assert stranger.status_code == 403
    assert "access-control-allow-origin" not in stranger.headers


@pytest.mark.parametrize("process", PROCESSES)
def test_refused_requests_are_counted(guarded: Guarded, process: str) -> None:
    def count() -> float:
        text = guarded.ask(process, "GET", "/metrics", authorization=f"Bearer {guarded.keys['read']}").text
        found = [
            float(line.rpartition(" ")[2])
            for line in text.splitlines()
            if line.startswith("livegnn_http_requests_total") and 'status="421"' in line
        ]
        return sum(found)

    before = count()
    guarded.ask(process, "GET", "/livez", host="evil.example")
    assert count() == before + 1


def certify(folder: Path, authority: trustme.CA) -> Tls:
    """Files of a certificate for this machine, and of the authority that has signed it."""
    signed = authority.issue_cert("127.0.0.1")
    files = [folder / name for name in ("server.pem", "server.key", "authority.pem")]
    signed.cert_chain_pems[0].write_to_path(files[0])
    signed.private_key_pem.write_to_path(files[1])
    authority.cert_pem.write_to_path(files[2])
    return Tls(*files)


def test_the_front_end_passes_keys_on_and_shows_its_certificate(
    guarded: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers that admit clients with a certificate and a key alone."""
    tls = certify(tmp_path, trustme.CA())
    monkeypatch.setenv("SSL_CERT_FILE", str(tls.clients))
    with ExitStack() as opened:
        workers = [
            opened.enter_context(served(create_serving_app(it, guarded.access), tls=tls))
            for it in guarded.setting.workers
        ]
        front = opened.enter_context(served(create_front(PLAN, [[it] for it in workers], tls=tls)))
        ask = {"json": {"ids": [0, 1, 2, 3, 4]}}
        answer = loopback.post(f"{front}/v1/predictions", **ask)
        assert (answer.status_code, answer.headers["www-authenticate"][:6]) == (401, "Bearer")
        admitted = {"authorization": f"Bearer {guarded.keys['read']}"}
        answer = loopback.post(f"{front}/v1/predictions", **ask, headers=admitted)
        assert (answer.status_code, len(answer.json()["predictions"])) == (200, 5)
        unknown = opened.enter_context(
            served(create_front(PLAN, [[it] for it in workers]))
        )  # without a certificate
        answer = loopback.post(f"{unknown}/v1/predictions", **ask, headers=admitted)
        assert answer.json()["type"] == "/problems/worker-unavailable"


def test_a_front_end_trusts_known_authorities_alone(guarded: Guarded, tmp_path: Path) -> None:
    tls = certify(tmp_path, trustme.CA())
    with ExitStack() as opened:
        own = dataclasses.replace(tls, clients=None)
        workers = [
            opened.enter_context(served(create_serving_app(it), tls=own)) for it in guarded.setting.workers
        ]
        front = opened.enter_context(served(create_front(PLAN, [[it] for it in workers])))
        answer = loopback.post(f"{front}/v1/predictions", json={"ids": [0]})
        assert answer.json()["type"] == "/problems/worker-unavailable"
        assert "CERTIFICATE_VERIFY_FAILED" in answer.json()["detail"]


def test_all_settings_have_one_declaration() -> None:
    names = {it.name for it in dataclasses.fields(AccessSettings)}
    for section in (ServerSection, WorkersSection):
        assert issubclass(section, AccessSettings)
        assert names.isdisjoint(vars(section)["__annotations__"])
    assert {it.name for it in dataclasses.fields(ClientOptions)} == names


def test_no_process_listens_beyond_this_machine_without_keys() -> None:
    settings = AccessSettings()
    settings.check_address("127.0.0.1")
    with pytest.raises(InputError, match=r"host is '0\.0\.0\.0'.*set insecure"):
        settings.check_address("0.0.0.0")
    AccessSettings(insecure=True).check_address("0.0.0.0")
    AccessSettings(keys=Path("keys.json")).check_address("0.0.0.0")


@pytest.mark.parametrize(
    "words",
    [
        ("worker", "serve", "deployment.toml", "0"),
        ("worker", "front", "deployment.toml", "http://127.0.0.1:1"),
        ("cluster", "up", "deployment.toml"),
        ("cluster", "front", "deployment.toml"),
        ("function", "serve", "--snapshot", "x", "--model", "y"),
    ],
)
def test_each_command_refuses_it(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("deployment.toml").write_text(
        '[graph]\npath = "g.npz"\n[log]\npath = "l.db"\n[model]\npath = "m"\n[workers]\ndirectory = "w"\n',
        encoding="utf-8",
    )
    result = CliRunner().invoke(app, [*words, "--host", "0.0.0.0"])
    assert result.exit_code == 1
    assert (
        "host is '0.0.0.0', where other machines may send requests" in str(result.exception) + result.output
    )


def test_workers_of_a_cluster_on_a_network_need_keys(tmp_path: Path) -> None:
    given = {"place": SqlitePlace(tmp_path / "events.db"), "schema": PLAN.schema, "directory": tmp_path}
    with pytest.raises(InputError, match=r"listen is 'node'.*no keys"):
        ClusterSpec(**given, listen="node")
    spec = ClusterSpec(**given, listen="node", keys=Path("keys.json"), tls_key=Path("key.pem"))
    assert (spec.keys, spec.tls_key) == (Path("keys.json").absolute(), Path("key.pem").absolute())


def test_a_function_that_starts_loads_no_framework_for_its_guard() -> None:
    program = "import sys, livegnn.http.guard; print([one for one in sys.modules])"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not {"starlette", "fastapi", "granian", "aiohttp"} & set(ast.literal_eval(found.stdout))


def test_no_key_is_in_a_log(
    guarded: Guarded, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither in a header nor in an address, of a known key or of another, at the level of all details."""
    caplog.set_level(logging.DEBUG)
    known, unknown = guarded.keys["read"], "lgk_" + "x" * 43
    with ExitStack() as opened:
        front = opened.enter_context(served(guarded.applications["front end"]))
        for key in (known, unknown):
            for process in PROCESSES:
                for method, path in (("GET", "/metrics"), ("POST", "/v1/predictions"), ("PUT", "/nowhere")):
                    guarded.ask(process, method, path, authorization=f"Bearer {key}")
                    guarded.ask(process, method, f"{path}?key={key}", authorization=f"Bearer {known}")
                    guarded.ask(process, method, path, authorization=f"Basic {key}", host=key)
            loopback.post(
                f"{front}/v1/predictions?key={key}",
                json={"ids": [0]},
                headers={"authorization": f"Bearer {key}"},
            )
            sent = {"authorization": f"Bearer {key}"}
            loopback.post(f"{front}/v1/predictions", json={"ids": [0, 1]}, headers=sent)
    said = "".join(capfd.readouterr())
    own = [one for one in caplog.records if not one.name.startswith("http")]  # the client of the test
    text = said + "".join(f"{one.getMessage()} {one.exc_text}" for one in own)
    for key in guarded.keys.values():
        assert key not in text
    assert unknown not in text


def test_each_threat_of_the_guides_has_its_tests() -> None:
    folder = Path(__file__).parent
    text = (folder.parents[1] / "docs" / "security.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+?) \| .+? \| (`test_.+) \|$", text, re.MULTILINE)
    assert len(rows) == 13
    for threat, tests in rows:
        for file, name in re.findall(r"`(\w+\.py)::(\w+)`", tests):
            (path,) = folder.parent.glob(f"*/{file}")
            assert f"def {name}(" in path.read_text(encoding="utf-8"), (threat, name)
