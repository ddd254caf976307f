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


ANSWERS = {
    "ModelAnswer": "name string, digest string, phase string, serving boolean, reason string|null",
    "DegreeClassAnswer": "degree integer, nodes integer, different integer, largest number, mean number",
    "ComparisonAnswer": "first string, second string, since integer, seq integer, nodes integer, "
    "tolerance number, different integer, largest number, mean number, largest_id integer|string|null, "
    "changed_class integer|null, not_finite integer, degrees array",
    "SwitchAnswer": "seq integer, model string, previous string|null",
    "RejectionAnswer": "seq integer, error string, message string, events array, num_events integer",
    "BadMessageAnswer": "number integer, source string, partition integer, offset integer, reason string, "
    "payload string, size integer",
    "HeldExpiryAnswer": "now number, edges integer, of integer, seq integer",
}


def test_answers_that_are_made_of_tuples_are_described_as_before(tmp_path: Path) -> None:
    log, graph = SqliteLog(tmp_path / "events.db"), make_graph()
    schema = create_app(Runtime(log, graph, Engine(graph, make_model(), threads=1))).openapi()
    for name, form in ANSWERS.items():
        answer = schema["components"]["schemas"][name]
        fields = {
            field: "|".join(each["type"] for each in type_.get("anyOf", [type_]))
            for field, type_ in answer["properties"].items()
        }
        assert fields == dict(part.split(" ") for part in form.split(", "))
        assert sorted(answer["required"]) == sorted(fields)
        assert answer["description"]
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
