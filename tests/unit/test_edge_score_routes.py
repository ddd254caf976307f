"""`POST /v1/edge-scores`: edges of the graph, pairs of nodes, and edges as if events had added them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
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

EDGE = {"src": "a", "dst": "b", "edge_attr": [0.5, -1.0], "weight": 2.0}
COLUMNS = {"edge_attr": [[0.5, -1.0]], "edge_weight": [2.0], "output": "risk"}


@pytest.fixture(params=["eager", "lazy"])
def runtime(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Runtime]:
    edges = EdgeSchema(weighted=True, duplicates="keep", edge_dim=2)
    graph = Graph(Schema({"node": WIDTH}, {DEFAULT_EDGE_TYPE: edges}, text_ids=True))
    with closing(SqliteLog(tmp_path / "log.db")) as log:
        runtime = Runtime(log, graph, Engine(graph, make_scorer(), threads=1, mode=request.param))
        x = np.random.default_rng(0).normal(size=(4, WIDTH))
        runtime.append(Events().add_nodes(["a", "b", "c", "d"], x))
        runtime.append(Events().add_edges("c", "b", weight=1, edge_attr=[1, 2], key=5))
        while runtime.step():
            pass
        yield runtime


def ask(app: FastAPI, body: object) -> httpx.Response:
    return post(app, "/v1/edge-scores", body)


def as_json(rows: np.ndarray) -> object:
    return [[float(str(number)) for number in row] for row in rows]


def test_pairs_edges_and_supposed_edges(runtime: Runtime) -> None:
    app, engine = create_app(runtime), runtime.engine
    pair = {"sources": ["a"], "targets": ["b"]}
    columns = {"edge_attr": [[0.5, -1.0]], "edge_weight": [2.0]}
    now = engine.score("a", "b", **columns, output="risk")
    assert ask(app, {**pair, **COLUMNS}).json() == {"seq": 5, "scores": as_json(now)}
    there = {"sources": ["c"], "targets": ["b"], "existing": True, "output": "risk"}
    expected = {"seq": 5, "scores": as_json(engine.predict_edges("c", "b", output="risk"))}
    assert ask(app, there).json() == ask(app, {**there, "key": [5]}).json() == expected
    supposed = ask(app, {**pair, **COLUMNS, "events": [{"event": "add_edge", **EDGE}]}).json()
    assert supposed["seq"] == runtime.seq == 5
    assert supposed["scores"] != as_json(now)
    runtime.append(Events().add_edges("a", "b", weight=2, edge_attr=[0.5, -1]))
    runtime.step()
    after = ask(
        app, {**pair, "existing": True, "output": "risk", "min_seq": 6, "edge_type": DEFAULT_EDGE_TYPE}
    )
    assert after.json()["seq"] == 6
    np.testing.assert_allclose(after.json()["scores"], supposed["scores"], rtol=1e-5)


def test_small_what_ifs_are_scored_at_once(runtime: Runtime) -> None:
    engine, event = runtime.engine, Events().add_edges("a", "b", weight=2, edge_attr=[0.5, -1])
    columns = {"edge_attr": [[0.5, -1.0]], "edge_weight": [2.0], "output": "risk"}
    expected = engine.what_if(event).score("a", "b", **columns)
    np.testing.assert_array_equal(engine.score_after_at_once(event, "a", "b", **columns), expected)
    with ThreadPoolExecutor(1) as other, runtime.graph.writer:
        assert other.submit(engine.score_after_at_once, event, "a", "b", **columns).result() is None
    for number in range(300):  # a hub, which reaches more than is computed at once
        runtime.append(Events().add_nodes([f"n{number}"], np.ones((1, WIDTH))))
        runtime.append(Events().add_edges("b", f"n{number}", weight=1, edge_attr=[1, 2]))
    while runtime.step():
        pass
    assert engine.score_after_at_once(event, "a", "b", **columns) is None
    body = {"sources": ["a"], "targets": ["b"], **COLUMNS, "events": [{"event": "add_edge", **EDGE}]}
    answer = ask(create_app(runtime), body).json()
    assert answer == {"seq": 605, "scores": as_json(engine.what_if(event).score("a", "b", **columns))}


def test_many_pairs_have_the_scores_of_each(runtime: Runtime) -> None:
    app = create_app(runtime)
    alone = ask(app, {"sources": ["a", "c"], "targets": ["b", "d"], "output": "alike"}).json()["scores"]
    many = {"sources": ["a", "c"] * 300, "targets": ["b", "d"] * 300, "output": "alike"}
    assert ask(app, many).json()["scores"] == alone * 300
    assert ask(app, {"sources": [], "targets": [], "output": "risk"}).json()["scores"] == []


@pytest.mark.parametrize(
    ("change", "status", "detail"),
    [
        ({"sources": ["x"]}, 404, "'x'"),
        ({"targets": []}, 400, "same length, got 1 and 0"),
        ({"sources": [1]}, 400, "ids must be text"),
        ({"sources": None}, 400, "sources"),
        ({"edge_attr": None}, 400, "reads edge_attr, of shape (1, 2), got none"),
        ({"edge_attr": [[1.0]]}, 400, "must have 2 columns for the edge output 'risk', got 1"),
        ({"edge_attr": [[1, 2], [3]]}, 400, "expected rows of 2 numbers, got 1 in row 1"),
        ({"edge_attr": [[1, "2"]]}, 400, "expected numbers, got '2' at position 1"),
        ({"edge_attr": [1, 2]}, 400, "expected a list of lists of numbers"),
        ({"edge_attr": [[1, True]]}, 400, "expected numbers, got True"),
        ({"edge_attr": [[1, 1e300]]}, 400, "edge_attr must be finite"),
        ({"edge_weight": [10**300]}, 400, "edge_weight must be finite"),
        ({"edge_weight": 2.0}, 400, "expected a list of numbers"),
        ({"key": [1]}, 400, "pairs have no keys, got key: leave it out, or set existing to true"),
        ({"existing": True}, 400, "existing edges have their own columns, got edge_attr"),
        ({"existing": True, "edge_attr": None, "edge_weight": None}, 400, "'a' -> 'b'"),
        ({"output": "class"}, 400, "one of the edge outputs"),
        ({"output": None}, 400, "output must be given"),
        ({"edge_type": ["a"]}, 400, "edge_type must be"),
        ({"edge_type": ["node", "likes", "node"]}, 400, "edge_type must be that of an edge output"),
        ({"model": "other"}, 400, "other"),
        ({"events": [{"event": "add_edge", "src": "a"}]}, 400, "dst"),
        ({"events": [{"event": "add_edge", "src": "a", "dst": "z"}]}, 404, "'z'"),
        ({"ids": ["a"]}, 400, "ids"),
    ],
)
def test_what_is_refused(runtime: Runtime, change: dict[str, object], status: int, detail: str) -> None:
    body = {"sources": ["a"], "targets": ["b"], **COLUMNS, **change}
    answer = ask(create_app(runtime), {name: value for name, value in body.items() if value is not None})
    assert answer.status_code == status, answer.text
    assert detail in answer.json()["detail"]
    assert (runtime.seq, runtime.log.last_seq()) == (5, 5)


def test_limits(runtime: Runtime) -> None:
    app = create_app(runtime, limits=Limits(ids=1500, numbers=2000))
    body = {"sources": ["a"] * 1501, "targets": ["b"] * 1501, "output": "alike"}
    assert ask(app, body).status_code == 413
    rows = {"edge_attr": [[0, 1]] * 1001, "edge_weight": [1] * 1001, "output": "risk"}
    answer = ask(app, {"sources": ["a"] * 1001, "targets": ["b"] * 1001, **rows})
    assert (answer.status_code, answer.json()["type"]) == (413, "/problems/too-large")


def test_a_model_without_edge_outputs(tmp_path: Path) -> None:
    graph = make_graph()
    with closing(SqliteLog(tmp_path / "log.db")) as log:
        app = create_app(Runtime(log, graph, Engine(graph, make_model(), threads=1)))
        answer = ask(app, {"sources": [1], "targets": [2]})
    assert answer.status_code == 400
    assert "the model has no edge output" in answer.json()["detail"]
