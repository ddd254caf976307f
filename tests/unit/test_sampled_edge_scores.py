"""Scores of edges by a model that answers from samples: those of the rows that it predicts for both ends."""

from __future__ import annotations

import asyncio
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from livegnn import EdgeSchema, Engine, Events, Graph, Query, Schema
from livegnn.errors import InputError, UnknownNodeError
from livegnn.log.sqlite import SqliteLog
from livegnn.oracle.exactness import judge
from livegnn.presampling import SampledEngine
from livegnn.runtime import Runtime
from livegnn.server import create_app
from livegnn.types import DEFAULT_EDGE_TYPE
from scored_edges import COLUMNS, WIDTH, compute_scores, make_scorer

NODES = 14


def make(fan_out: int, *, text: bool = False) -> tuple[Graph, SampledEngine]:
    graph = Graph(
        Schema(
            {"node": WIDTH}, {DEFAULT_EDGE_TYPE: EdgeSchema(weighted=True, edge_dim=COLUMNS)}, text_ids=text
        )
    )
    rng = np.random.default_rng(1)
    events = Events().add_nodes(name(np.arange(NODES), text), rng.normal(size=(NODES, WIDTH)))
    src, dst = rng.integers(0, NODES, (2, 50))
    events.add_edges(
        name(src, text),
        name(dst, text),
        weight=rng.uniform(1, 2, 50),
        edge_attr=rng.normal(size=(50, COLUMNS)),
    )
    graph.apply(events, seq=0)
    query = Query("node")
    for _ in range(2):
        query = query.hop(DEFAULT_EDGE_TYPE, fan_out, direction="in")
    return graph, SampledEngine(graph, make_scorer().with_query(query), sample_seed=5)


def name(numbers: np.ndarray, text: bool) -> np.ndarray:
    return np.array([f"n{one}" for one in numbers.tolist()], np.str_) if text else numbers


def draw(count: int, seed: int = 2) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(0, NODES, (2, count))
    return src, dst, {"edge_attr": rng.normal(size=(count, COLUMNS)), "edge_weight": rng.uniform(1, 2, count)}


@pytest.mark.parametrize("text", [False, True])
def test_samples_that_are_whole_neighbourhoods_give_the_scores_of_an_engine(text: bool) -> None:
    graph, sampled = make(NODES, text=text)
    src, dst, columns = draw(60)
    for step in range(3):
        snapshot = graph.snapshot()
        place = {id: at for at, id in enumerate(snapshot.ids["node"].tolist())}
        ends = [np.array([place[id] for id in name(one, text).tolist()]) for one in (src, dst)]
        for output, given in (("risk", columns), ("alike", {})):
            got = sampled.score(name(src, text), name(dst, text), output=output, **given)
            asked = (*ends, given.get("edge_attr"), given.get("edge_weight"))
            exact, in_float32 = (
                compute_scores(sampled.model, snapshot, output, *asked, kind)
                for kind in (np.float64, np.float32)
            )
            assert got.dtype == np.float32
            assert judge(got, exact, in_float32).ok
        graph.apply(Events().set_features(name(np.array([step]), text), np.full((1, WIDTH), 2.0)))


def test_each_end_is_predicted_on_its_own_sample() -> None:
    """Bit for bit as the decoder of an engine, on the rows that it predicts."""
    graph, sampled = make(1)
    src, dst, columns = draw(700)
    rows = {output: sampled.predict(np.arange(NODES), output=output) for output in ("class", "embedding")}
    whole = Engine(graph, sampled.model).predict(range(NODES), output="embedding")
    assert not np.allclose(rows["embedding"], whole)
    got = sampled.score(src, dst, output="alike")
    dots = np.einsum("ij,ij->i", *(rows["embedding"][end].astype(np.float64) for end in (src, dst)))
    np.testing.assert_allclose(got[:, 0], dots, rtol=1e-4, atol=1e-5)
    risk = sampled.score(src, dst, output="risk", **columns)
    for at in (0, 31, 699):
        alone = {name: column[at : at + 1] for name, column in columns.items()}
        np.testing.assert_array_equal(
            sampled.score(src[at], dst[at], output="risk", **alone), risk[at : at + 1]
        )
    assert sampled.score([], [], output="alike").shape == (0, 1)


def test_what_is_refused() -> None:
    _, sampled = make(2)
    with pytest.raises(UnknownNodeError, match="99"):
        sampled.score([0, 99], [1, 1], output="alike")
    with pytest.raises(InputError, match="same length, got 2 and 1"):
        sampled.score([0, 1], [1], output="alike")
    with pytest.raises(InputError, match="reads edge_attr, of shape"):
        sampled.score([0], [1], output="risk")
    with pytest.raises(InputError, match="output must be given, one of 'risk'"):
        sampled.score([0], [1])
    with pytest.raises(InputError, match="ids are integers"):
        sampled.score(["a"], ["b"], output="alike")
    assert sampled.score_at_once([0], [1], output="alike") is None


def test_the_route_answers_from_samples(tmp_path: Path) -> None:
    graph, sampled = make(2)

    def ask(body: dict[str, Any]) -> httpx.Response:
        async def request() -> httpx.Response:
            transport = httpx.ASGITransport(app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                return await client.post("/v1/edge-scores", json=body)

        return asyncio.run(request())

    with closing(SqliteLog(tmp_path / "log.db")) as log:
        runtime = Runtime(log, graph, sampled)
        app = create_app(runtime)
        pair = {"sources": [0, 3], "targets": [1, 5]}
        found = ask({**pair, "output": "alike"})
        expected = sampled.score([0, 3], [1, 5], output="alike")
        assert found.json()["seq"] == graph.seq
        np.testing.assert_array_equal(np.float32(found.json()["scores"]), expected)
        for wrong in ({"existing": True}, {"events": [{"event": "add_node", "id": 99}]}):
            refused = ask({**pair, "output": "alike", **wrong})
            assert refused.status_code == 400
            assert "which answers from samples" in json.dumps(refused.json())
        assert ask({**pair, "targets": [1, 99], "output": "alike"}).status_code == 404
