"""The page at /docs: every route is on it, nothing is loaded from elsewhere, and nothing breaks out of it."""

import asyncio
import re
from pathlib import Path

import httpx

from livegnn import Engine
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import Runtime
from livegnn.server import create_app
from livegnn.server.api_page import render
from streams import make_graph, make_model


def test_every_route_is_on_the_page(tmp_path: Path) -> None:
    log, graph = SqliteLog(tmp_path / "events.db"), make_graph()
    app = create_app(Runtime(log, graph, Engine(graph, make_model(), threads=1)))

    async def ask(path: str) -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
            return await client.get(path)

    answer, schema = asyncio.run(ask("/docs")), asyncio.run(ask("/openapi.json")).json()
    assert answer.headers["content-type"].startswith("text/html")
    shown = set(re.findall(r"<h2><code>(\w+) ([^<]+)</code></h2>", answer.text))
    assert shown == {
        (method.upper(), path) for path, methods in schema["paths"].items() for method in methods
    }
    assert "ids with commas between them" in answer.text
    assert not re.search(r"<script|src=|https?://|@import|url\(", answer.text)
    log.close()


def test_texts_are_escaped() -> None:
    operation = {
        "description": "a < b",
        "parameters": [
            {"name": "<n>", "in": "query", "schema": {"default": "&"}, "description": "<i>", "required": True}
        ],
        "requestBody": {"content": {"<kind>": {}}},
    }
    schema = {"info": {"title": "<t>", "version": "1"}, "paths": {"/<p>": {"get": operation}}}
    page = render(schema)
    assert not re.search(r"<(t|n|i|kind)>", page)
    for escaped in (
        "&lt;t&gt;",
        "/&lt;p&gt;",
        "a &lt; b",
        "&lt;n&gt;",
        "&lt;i&gt;",
        "&lt;kind&gt;",
    ):
        assert escaped in page
