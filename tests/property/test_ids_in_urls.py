"""Whatever text is an id, every route answers for it, and for it alone; what is no text is refused."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlencode

import httpx
import numpy as np
import pytest
from fastapi import FastAPI
from hypothesis import example, given, settings
from hypothesis import strategies as st

from livegnn import Engine, Events
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import Runtime
from livegnn.server import create_app
from streams import WIDTH, make_graph, make_model

WILD = [
    "",
    " ",
    "a b",
    "+",
    "%",
    "%2F",
    "%00",
    "..",
    ".",
    "/",
    "a/b",
    "/neighbors",
    "x/explain",
    "\n",
    "x\n",
    "\r\n",
]
WILD += [
    "\t",
    "\x01",
    "\x7f",
    "?",
    "a?ids=1",
    "#",
    "&",
    "=",
    ",",
    "a,b",
    ";",
    "\\",
    '"',
    "'",
    "é",
    "e\u0301",
    "\ufffd",
]
WILD += ["\ufeff", "\u2028", "\u200b", "🚀", "\ufffe", "17", "017", "null", "n1", "neighbors", "\x85", "\x1c"]

texts = st.one_of(
    st.sampled_from(WILD),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8),
    st.text("/.%+,?#&\n\r\t ax", max_size=6),
)


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    log = SqliteLog(tmp_path_factory.mktemp("log") / "events.db")
    graph = make_graph(text=True)
    yield Runtime(log, graph, Engine(graph, make_model(), threads=1, history=10**6))
    log.close()


@pytest.fixture(scope="module")
def app(runtime: Runtime) -> FastAPI:
    return create_app(runtime)


def ask(app: FastAPI, *addresses: str) -> list[httpx.Response]:
    async def request() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return [await client.get(httpx.URL("http://test" + address)) for address in addresses]

    return asyncio.run(request())


def add(runtime: Runtime, names: list[str]) -> None:
    """Nodes that can be told apart: the features and the one in-edge of each are its own."""
    new = [name for name in dict.fromkeys(names) if not runtime.graph.contains([name])[0]]
    if new:
        rows = np.random.default_rng(len(runtime.graph.ids())).standard_normal((len(new), WIDTH))
        others = [f"to {name}" for name in new]
        runtime.append(
            Events()
            .add_nodes(new, rows)
            .add_nodes(others, -rows)
            .add_edges(others, new, weight=[2.0] * len(new))
        )
        runtime.step()


@settings(deadline=None)
@given(st.lists(texts, min_size=1, max_size=4, unique=True))
@example(WILD)
def test_every_text_is_reached_by_every_route(runtime: Runtime, app: FastAPI, names: list[str]) -> None:
    add(runtime, names)
    expected = runtime.engine.predict(names)
    several = "&".join(urlencode({"ids": name}) for name in names if "," not in name)
    (together,) = ask(app, "/v1/predictions?" + (several or "ids=n1"))
    plain = [name for name in names if "," not in name] if several else ["n1"]
    assert together.json()["ids"] == plain
    assert len(together.json()["predictions"]) == len(plain)
    joined = ask(app, "/v1/predictions?" + urlencode({"ids": ",".join(plain)}))[0].json()
    assert joined == together.json()
    for name, row in zip(names, expected, strict=True):
        neighbors = runtime.graph.neighbors(name).ids.tolist()
        for part in (
            f"/v1/nodes/{quote(name, safe='')}/neighbors",
            "/v1/neighbors?" + urlencode({"id": name}),
        ):
            if part.startswith("/v1/nodes/") and name in ("", ".", ".."):
                continue  # which clients leave out of a path
            (answer,) = ask(app, part)
            assert answer.status_code == 200, (part, answer.text)
            assert (answer.json()["id"], answer.json()["ids"]) == (name, neighbors)
        explained = ask(
            app,
            "/v1/explain?" + urlencode({"id": name, "since": runtime.seq}),
            f"/v1/nodes/{quote('x/' + name, safe='')}/explain?since={runtime.seq}",
        )
        assert (explained[0].status_code, explained[0].json()["id"]) == (200, name)
        np.testing.assert_allclose(explained[0].json()["after"], row, atol=1e-4)
        assert explained[1].status_code in (200, 404)
        if explained[1].status_code == 404:
            assert explained[1].json()["type"] == "/problems/unknown-node"


@settings(deadline=None)
@given(st.binary(min_size=1, max_size=6).filter(lambda raw: not _is_text(raw)))
@example(b"\xff")
@example(b"\xed\xa0\x80")
@example(b"\xc0\xaf")
def test_what_is_no_utf_8_is_refused(runtime: Runtime, app: FastAPI, raw: bytes) -> None:
    add(runtime, ["\ufffd", "", "\ufffd" * len(raw), raw.decode("latin-1").replace("\0", "")])
    text = quote(raw, safe="")
    for address in (
        f"/v1/predictions?ids={text}",
        f"/v1/predictions?ids=n1,{text}",
        f"/v1/neighbors?id={text}",
        f"/v1/nodes/{text}/neighbors",
        f"/v1/nodes/{text}/explain?since=0",
        f"/v1/explain?since=0&id={text}",
    ):
        (answer,) = ask(app, address)
        assert (answer.status_code, answer.json()["type"]) == (400, "/problems/invalid-input"), address


def _is_text(raw: bytes) -> bool:
    try:
        return "\0" not in raw.decode()
    except UnicodeDecodeError:
        return False


def test_each_part_between_commas_is_an_id(runtime: Runtime, app: FastAPI) -> None:
    add(runtime, ["", "x"])
    for query, ids in [
        ("ids=", [""]),
        ("ids=x", ["x"]),
        ("ids=&ids=x", ["", "x"]),
        ("ids=x,", ["x", ""]),
        ("ids=,", ["", ""]),
        ("ids=,&ids=", ["", "", ""]),
    ]:
        answer = ask(app, f"/v1/predictions?{query}")[0].json()
        assert answer["ids"] == ids
        assert np.array(answer["predictions"], np.float32).tolist() == runtime.engine.predict(ids).tolist()
    (answer,) = ask(app, "/v1/predictions")
    assert answer.status_code == 400


def test_no_part_between_commas_is_left_out_where_ids_are_integers(tmp_path: Path) -> None:
    graph = make_graph()
    log = SqliteLog(tmp_path / "events.db")
    app = create_app(Runtime(log, graph, Engine(graph, make_model(), threads=1)))
    for query in ("ids=", "ids=&ids=1", "ids=1,", "ids=,", "ids=1&ids="):
        (answer,) = ask(app, f"/v1/predictions?{query}")
        assert answer.status_code == 400
        assert "ids must be integers in this graph, got ''" in answer.json()["detail"]
    for address in ("/v1/neighbors?id=", "/v1/explain?since=0&id=", "/v1/neighbors?id=01"):
        assert ask(app, address)[0].status_code == 400
    assert ask(app, "/v1/neighbors?id=1")[0].json() == ask(app, "/v1/nodes/1/neighbors")[0].json()
    log.close()


def test_a_path_that_goes_on_is_another(app: FastAPI) -> None:
    for address in (
        "/healthz%0A",
        "/v1/nodes/n1/neighbors%0A",
        "/v1/nodes/n1/%0Aneighbors",
        "/v1/nodes/n1%3F/x",
    ):
        (answer,) = ask(app, address)
        assert (answer.status_code, answer.json()["type"]) == (404, "/problems/unknown-path"), address


def test_bytes_that_are_not_percent_encoded_are_refused(runtime: Runtime, app: FastAPI) -> None:
    add(runtime, ["é", "é".encode().decode("latin-1")])
    sent: list[dict[str, object]] = []

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/v1/predictions",
        "raw_path": b"/v1/predictions",
        "query_string": "ids=é".encode(),
        "headers": [],
        "server": ("test", 80),
    }
    asyncio.run(app(scope, receive, send))  # type: ignore[arg-type]
    assert sent[0]["status"] == 400
