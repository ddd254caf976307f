"""`POST /v1/candidates`: the answers of the engine, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import numpy as np
import pytest
from fastapi import FastAPI

from asgi_requests import post
from livegnn import EdgeSchema, Engine, Events, Graph, Schema
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import Runtime
from livegnn.server import create_app
from livegnn.server.bodies import Limits
from livegnn.types import DEFAULT_EDGE_TYPE
from scored_edges import WIDTH, make_scorer
from streams import make_graph, make_model

NODES = ["a", "b", "c", "d"]


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Runtime]:
    edges = EdgeSchema(weighted=True, duplicates="keep", edge_dim=2)
    graph = Graph(Schema({"node": WIDTH}, {DEFAULT_EDGE_TYPE: edges}, text_ids=True))
    with closing(SqliteLog(tmp_path / "log.db")) as log:
        runtime = Runtime(log, graph, Engine(graph, make_scorer(), threads=1))
        runtime.append(Events().add_nodes(NODES, np.random.default_rng(0).normal(size=(4, WIDTH))))
        runtime.append(Events().add_edges("c", "b", weight=1, edge_attr=[1, 2], key=5))
        while runtime.step():
            pass
        yield runtime


def ask(app: FastAPI, body: object) -> httpx.Response:
    return post(app, "/v1/candidates", body)


def test_answers_are_those_of_the_engine(runtime: Runtime) -> None:
    app, engine = create_app(runtime), runtime.engine
    answer = ask(app, {"nodes": ["c", "a", "c"], "k": 2, "output": "alike", "min_seq": 5}).json()
    assert answer["seq"] == 5
    for found, node in zip(answer["candidates"], ["c", "a", "c"], strict=True):
        expected = engine.candidates(node, 2, output="alike")
        assert found["node"] == node
        assert found["seq"] == expected.seq == 5
        assert found["ids"] == expected.ids.tolist()
        np.testing.assert_array_equal(np.float32(found["scores"]), expected.scores)
    assert "b" not in answer["candidates"][0]["ids"]
    every = ask(app, {"nodes": ["c"], "output": "alike", "exclude_existing": False}).json()
    assert set(every["candidates"][0]["ids"]) == {"a", "b", "d"}
    runtime.append(Events().remove_nodes("a"))
    runtime.step()
    later = ask(app, {"nodes": ["c"], "output": "alike", "min_seq": 6, "edge_type": DEFAULT_EDGE_TYPE}).json()
    assert later["candidates"][0]["ids"] == ["d"]
    assert ask(app, {"nodes": [], "output": "alike"}).json() == {"seq": 6, "candidates": []}


@pytest.mark.parametrize(
    ("change", "status", "detail"),
    [
        ({"nodes": ["x"]}, 404, "'x'"),
        ({"nodes": [1]}, 400, "ids must be text"),
        ({"nodes": None}, 400, "nodes"),
        ({"nodes": ["a"] * 257}, 413, "256 nodes at most, got 257"),
        ({"k": 0}, 400, "k"),
        ({"k": 10_001}, 400, "k"),
        ({"k": True}, 400, "k"),
        ({"exclude_existing": 1}, 400, "exclude_existing"),
        ({"output": "risk", "edge_attr": [1, 2], "edge_weight": 1.0}, 400, "one channel, got 'risk' of 2"),
        ({"output": None}, 400, "output must be given"),
        ({"edge_attr": [1.0]}, 400, "reads no edge_attr"),
        ({"edge_attr": ["1"]}, 400, "expected numbers"),
        ({"edge_weight": "1"}, 400, "edge_weight"),
        ({"edge_type": ["node", "likes", "node"]}, 400, "edge_type must be that of an edge output"),
        ({"model": "other"}, 400, "other"),
        ({"where": "x"}, 400, "where"),
    ],
)
def test_what_is_refused(runtime: Runtime, change: dict[str, object], status: int, detail: str) -> None:
    refused = ask(create_app(runtime), {"nodes": ["a"], "output": "alike", **change})
    assert (refused.status_code, detail in refused.json()["detail"]) == (status, True), refused.text


def test_more_than_an_answer_may_have(runtime: Runtime) -> None:
    app = create_app(runtime, limits=Limits(numbers=600))
    assert ask(app, {"nodes": ["a"], "k": 4, "output": "alike"}).status_code == 200
    refused = ask(app, {"nodes": ["a"], "k": 5, "output": "alike"})
    assert refused.status_code == 413
    assert "600 numbers at most, so 4 candidates" in refused.json()["detail"]


def test_a_model_without_edge_outputs(tmp_path: Path) -> None:
    with closing(SqliteLog(tmp_path / "log.db")) as log:
        graph = make_graph()
        runtime = Runtime(log, graph, Engine(graph, make_model()))
        refused = ask(create_app(runtime), {"nodes": [0]})
        assert refused.status_code == 400
        assert "no edge output" in refused.json()["detail"]
