"""Requests are admitted by key, host and origin: each threat of docs/security.md."""

import asyncio
import re
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Message

from livegnn import Engine, FileFormatError, InputError
from livegnn.deployment.sections import ServerSection
from livegnn.http.guard import Access, Guard, is_local
from livegnn.http.keys import SCOPES, KeyFile, create_key, revoke_key
from livegnn.http.scopes import HEALTH, scope_of
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import Runtime
from livegnn.server import create_app
from streams import make_graph, make_model

SECURITY = Path(__file__).parents[2] / "docs" / "security.md"


async def answer(scope, receive, send) -> None:
    """The application behind the guard."""
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def receive_nothing() -> Message:
    return {"type": "http.request"}


def status(access: Access, method: str = "GET", path: str = "/v1/predictions", **headers: str) -> int:
    transport = httpx.ASGITransport(app=Guard(answer, access))

    async def ask() -> int:
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as client:
            return (await client.request(method, path, headers=headers)).status_code

    return asyncio.run(ask())


def status_of(access: Access, headers: list[tuple[bytes, bytes]], version: str = "1.1") -> int:
    """That of a request with these headers alone."""
    sent = []

    async def send(message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/metrics", "headers": headers, "http_version": version}
    asyncio.run(Guard(answer, access)(scope, receive_nothing, send))
    return int(sent[0]["status"])


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "http://127.0.0.1:9999", "null", "http://[", "", "a"]
)
def test_a_page_of_another_site_is_refused(origin: str) -> None:
    for method in ("GET", "POST", "OPTIONS"):
        assert status(Access(), method, origin=origin) == 403
    assert status(Access(origins=["https://dashboard.example"]), origin=origin) == 403


def test_a_page_of_this_server_and_a_listed_one_are_admitted() -> None:
    assert status(Access(), origin="http://127.0.0.1:8080") == 204
    assert status(Access(), origin="http://127.0.0.1:80", host="127.0.0.1") == 204
    assert (
        status(Access(origins=["https://dashboard.example"]), origin="https://dashboard.example:443") == 204
    )
    assert status(Access(origins=["https://dashboard.example"]), origin="https://dashboard.example") == 204


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.nip.io",
        "127.1",
        "",
        "[evil]",
        "[::1].evil.example",
        "[::1",
        "scores.example:x:y",
    ],
)
def test_a_name_that_is_not_ours_is_refused(host: str) -> None:
    assert status(Access(hosts=["other.example"]), host=host) == 421


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:80",
        "127.0.0.1",
        "10.0.0.7:8080",
        "[::1]:80",
        "scores.example",
        "Scores.Example.:80",
    ],
)
def test_addresses_and_listed_names_are_admitted(host: str) -> None:
    assert status(Access(hosts=["scores.example"]), host=host) == 204
    assert status(Access(hosts=["*"]), host="any.example") == 204


@pytest.mark.parametrize("hosts", [0, 2])
def test_a_request_names_one_host(hosts: int) -> None:
    assert status_of(Access(), [(b"host", b"localhost")] * hosts) == 400


def test_without_a_key_only_health_is_answered(tmp_path: Path) -> None:
    create_key(tmp_path / "keys.json", "client", ["admin"])
    access = Access(KeyFile(tmp_path / "keys.json"))
    assert status(access, path="/healthz") == 204
    for headers in (
        {},
        {"authorization": "Bearer"},
        {"authorization": "Bearer lgk_x"},
        {"authorization": "Basic YQ=="},
    ):
        for method, path in (
            ("GET", "/metrics"),
            ("GET", "/nothing"),
            ("POST", "/v1/events"),
            ("PUT", "/healthz/x"),
        ):
            assert status(access, method, path, **headers) == 401


def test_a_key_admits_its_scopes_alone(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    keys = {scope: create_key(path, scope, [scope]) for scope in SCOPES}
    access = Access(KeyFile(path))
    requests = {
        "read": ("GET", "/v1/predictions"),
        "write": ("POST", "/v1/events"),
        "admin": ("PUT", "/v1/serving"),
    }
    for key, text in keys.items():
        for needed, (method, route) in requests.items():
            expected = 204 if key in (needed, "admin") else 403
            assert status(access, method, route, authorization=f"Bearer {text}") == expected
            assert status(access, method, route, authorization=f"bearer  {text}") == expected


def test_an_answer_in_parts_ends_when_its_key_is_revoked(tmp_path: Path) -> None:
    """A change feed would go on for as long as its client likes."""
    path = tmp_path / "keys.json"
    text = create_key(path, "client", ["read"])
    keys, sent = KeyFile(path), list[dict[str, object]]()

    async def feed(scope, receive, send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        revoke_key(path, "client")
        keys.refresh()
        await send({"type": "http.response.body", "body": b"second", "more_body": True})

    async def send(message) -> None:
        sent.append(message)

    headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {text}".encode())]
    scope = {"type": "http", "method": "GET", "path": "/v1/changes", "headers": headers}
    with pytest.raises(OSError, match="revoked"):
        asyncio.run(Guard(feed, Access(keys))(scope, receive_nothing, send))
    assert [message.get("body") for message in sent] == [None, b"first", b""]
    assert not sent[-1]["more_body"]


def test_a_listed_page_reads_answers_and_sends_keys(tmp_path: Path) -> None:
    """A browser asks first, without a key, and hands on only answers that name the page."""
    path, page = tmp_path / "keys.json", "https://dashboard.example"
    text = create_key(path, "client", ["read"])
    graph = make_graph()
    runtime = Runtime(SqliteLog(tmp_path / "events.db"), graph, Engine(graph, make_model(), threads=1))
    app = create_app(runtime, access=Access(KeyFile(path), origins=[page]))
    preflight = {
        "origin": page,
        "access-control-request-method": "GET",
        "access-control-request-headers": "authorization",
    }

    async def ask(method: str, headers: dict[str, str]) -> httpx.Response:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://localhost"
        ) as client:
            return await client.request(method, "/v1/predictions?ids=1", headers=headers)

    allowed = asyncio.run(ask("OPTIONS", preflight))
    assert (allowed.status_code, allowed.headers["access-control-allow-origin"]) == (200, page)
    answer = asyncio.run(ask("GET", {"origin": page, "authorization": f"Bearer {text}"}))
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, page)
    refused = asyncio.run(ask("OPTIONS", {**preflight, "origin": "https://evil.example"}))
    assert "access-control-allow-origin" not in refused.headers


def test_health_tells_of_a_file_of_keys_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    create_key(path, "client", ["read"])
    graph, keys = make_graph(), KeyFile(path)
    runtime = Runtime(SqliteLog(tmp_path / "events.db"), graph, Engine(graph, make_model(), threads=1))
    app = create_app(runtime, access=Access(keys))
    path.write_bytes(b"{")
    keys.refresh()

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://localhost"
        ) as client:
            return await client.get("/healthz")

    assert "keys" in asyncio.run(ask()).json()["side_failures"]


def test_a_probe_of_http_1_0_needs_no_host() -> None:
    for nothing in ([], [(b"host", b"")]):  # granian adds an empty one
        assert status_of(Access(), nothing, "1.0") == 204
    assert status_of(Access(), [], "1.1") == 400
    assert status_of(Access(), [(b"host", b"evil.example")], "1.0") == 421
    assert status_of(Access(), [(b"origin", b"https://evil.example")], "1.0") == 400


def test_a_revoked_key_is_refused_without_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    text = create_key(path, "client", ["read"])
    access = Access(KeyFile(path))
    assert status(access, authorization=f"Bearer {text}") == 204
    revoke_key(path, "client")
    assert access.keys is not None
    assert access.keys.keys == []  # it has looked at the file
    assert status(access, authorization=f"Bearer {text}") == 401


@given(st.binary(max_size=300))
def test_no_header_admits_by_chance(tmp_path_factory: pytest.TempPathFactory, value: bytes) -> None:
    path = tmp_path_factory.mktemp("keys") / "keys.json"
    create_key(path, "client", ["admin"])
    headers = [(b"host", b"localhost"), (b"authorization", value)]
    assert status_of(Access(KeyFile(path)), headers) == 401


def test_each_route_of_the_server_needs_the_scope_on_the_page(tmp_path: Path) -> None:
    graph = make_graph()
    log = SqliteLog(tmp_path / "events.db")
    app = create_app(Runtime(log, graph, Engine(graph, make_model(), threads=1)))
    routes = {(method, route.path) for route in app.state.routes for method in route.methods or ()}
    scopes: dict[str | None, set[tuple[str, str]]] = {}
    for method, path in routes:
        scopes.setdefault(scope_of(method, path), set()).add((method, path))
    own = set(HEALTH) - {"/v1/health"}  # that of workers
    free = (*own, "/problems", "/problems/{name}")
    assert scopes[None] == {(method, path) for method in ("GET", "HEAD") for path in free}
    row = re.search(r"\| none needed \|(.*)\|", SECURITY.read_text(encoding="utf-8"))
    assert row is not None
    assert {path.removesuffix("/{name}") for path in (*free, *HEALTH)} == set(
        re.findall(r"(?<=[` ])/[\w/]+", row[1])
    )
    assert scopes["write"] == {("POST", "/v1/events")}
    assert {method for method, _ in scopes["admin"]} == {"POST", "PUT", "DELETE"}
    reading = {path for method, path in scopes["read"] if method == "POST" and not path.startswith("/v2")}
    row = re.search(r"\| `read` \|(.*)\|", SECURITY.read_text(encoding="utf-8"))
    assert row is not None
    assert reading == set(re.findall(r"/v1/[\w/-]+", row[1]))


def test_a_server_beyond_this_machine_needs_keys(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="livegnn key create"):
        ServerSection(host="0.0.0.0")
    ServerSection(host="0.0.0.0", insecure=True)
    create_key(tmp_path / "keys.json", "client", ["read"])
    with pytest.raises(InputError, match="keys must be a file of `livegnn key create`"):
        ServerSection(keys=tmp_path / "none.json").access()
    with pytest.raises((InputError, FileFormatError), match="regular file"):
        ServerSection(keys=tmp_path).access()
    section = ServerSection(host="0.0.0.0", keys=tmp_path / "keys.json", hosts="scores.example")
    assert section.access().hosts == ["scores.example"]


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("localhost", True),
        ("127.0.0.5", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("a.b", False),
    ],
)
def test_which_addresses_are_of_this_machine(host: str, local: bool) -> None:
    assert is_local(host) == local
