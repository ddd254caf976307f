"""Scores of edges of a graph in parts over HTTP: the answers of a server whose graph is in one piece."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from asgi_requests import post
from livegnn import EdgeSchema, Engine, Events, Graph, Schema
from livegnn.log.sqlite import SqliteLog
from livegnn.partitions import LocalPartitions
from livegnn.placement import Owners
from livegnn.runtime import Runtime
from livegnn.server import create_app
from livegnn.types import DEFAULT_EDGE_TYPE
from scored_edges import COLUMNS, WIDTH, make_scorer, name

NODES = 12


class Servers:
    """Of a graph in one piece, and of one in parts."""

    def __init__(self, runtimes: list[Runtime], text: bool, edges: tuple[list[Any], list[Any]]) -> None:
        self._apps, self._text = [create_app(one) for one in runtimes], text
        self.runtimes, self.edges = runtimes, edges

    def ids(self, *numbers: int) -> list[Any]:
        return name(np.array(numbers, np.int64), self._text).tolist()

    def ask(self, path: str, body: object) -> httpx.Response:
        """The answer of both, which must be the same, to the byte."""
        whole, parts = (post(app, path, body) for app in self._apps)
        assert (parts.status_code, parts.content) == (whole.status_code, whole.content)
        return parts


@pytest.fixture(params=[False, True], ids=["integers", "texts"])
def servers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Servers]:
    rng, text = np.random.default_rng(1), request.param
    edges = EdgeSchema(weighted=True, duplicates="keep", edge_dim=COLUMNS)
    schema = Schema({"node": WIDTH}, {DEFAULT_EDGE_TYPE: edges}, text_ids=text)
    graph = Graph(schema, threads=1)
    src, dst = (name(ends, text) for ends in rng.integers(0, NODES, (2, 40)))
    events = Events().add_nodes(name(np.arange(NODES), text), rng.normal(size=(NODES, WIDTH)))
    events.add_edges(src, dst, weight=rng.uniform(1, 2, 40), edge_attr=rng.normal(size=(40, COLUMNS)))
    with ExitStack() as opened:
        engine = Engine(graph, make_scorer(), threads=1)
        parts = LocalPartitions(schema, make_scorer(), Owners("modulo", 3), threads=1)
        opened.callback(parts.close)
        runtimes = []
        for number, (names, view) in enumerate([(graph, engine), (parts.names, parts)]):
            log = opened.enter_context(closing(SqliteLog(tmp_path / f"{number}.db")))
            runtimes.append(runtime := Runtime(log, names, view))
            runtime.append(events)
            runtime.step()
        yield Servers(runtimes, text, (src.tolist(), dst.tolist()))


def test_scores_over_http(servers: Servers) -> None:
    rng, ids = np.random.default_rng(2), servers.ids
    for count in (1, 5, 700):
        sources, targets = (ids(*ends) for ends in rng.integers(0, NODES, (2, count)).tolist())
        columns = {"edge_attr": rng.normal(size=(count, COLUMNS)).tolist(), "edge_weight": [1.5] * count}
        pairs = {"sources": sources, "targets": targets}
        answer = servers.ask("/v1/edge-scores", {**pairs, **columns, "output": "risk"}).json()
        assert answer["seq"] == servers.runtimes[1].seq
        assert len(answer["scores"]) == count
        servers.ask("/v1/edge-scores", {**pairs, "output": "alike"})
    everyone = {"sources": ids(*range(NODES)), "targets": ids(*range(NODES)), "output": "alike"}
    change = {"event": "set_features", "id": ids(1)[0], "x": [2.0] * WIDTH}
    supposed = servers.ask("/v1/edge-scores", {**everyone, "events": [change]})
    assert supposed.json()["scores"] != servers.ask("/v1/edge-scores", everyone).json()["scores"]
    pair = {"sources": ids(1), "targets": ids(2), "output": "alike"}
    for wrong, status in (
        ({"targets": ids(99)}, 404),
        ({"edge_attr": [[1.0]]}, 400),
        ({"output": "other"}, 400),
        ({"targets": ids(2, 3)}, 400),
        ({"key": [1]}, 400),
        ({"events": [{"event": "remove_node", "id": ids(99)[0]}]}, 404),
        ({"events": [{"event": "remove_node", "id": ids(2)[0]}]}, 404),
        ({"min_seq": 10**6, "timeout": 0.01}, 503),
    ):
        assert servers.ask("/v1/edge-scores", {**pair, **wrong}).status_code == status, wrong


def test_existing_edges_over_http(servers: Servers) -> None:
    sources, targets = servers.edges
    there = {"sources": sources, "targets": targets, "output": "risk", "existing": True}
    answer = servers.ask("/v1/edge-scores", there).json()
    assert answer["seq"] == servers.runtimes[1].seq
    assert len({str(row) for row in answer["scores"]}) > 1
    servers.ask("/v1/edge-scores", {**there, "key": [0] * len(sources)})
    one = {**there, "sources": sources[:1], "targets": targets[:1]}
    for asked, status in (
        ({}, 200),
        ({"output": "alike"}, 200),
        ({"key": [99]}, 400),
        ({"sources": servers.ids(99)}, 404),
        ({"edge_weight": [1.0]}, 400),
    ):
        assert servers.ask("/v1/edge-scores", {**one, **asked}).status_code == status, asked


def test_scores_of_the_open_protocol(servers: Servers) -> None:
    kind = "INT64" if isinstance(servers.ids(1)[0], int) else "BYTES"
    for targets, status in ((servers.ids(2, 3), 200), (servers.ids(2, 99), 404)):
        inputs = [
            {"name": end, "shape": [2], "datatype": kind, "data": ids}
            for end, ids in (("sources", servers.ids(1, 1)), ("targets", targets))
        ]
        answer = servers.ask("/v2/models/engine:alike/infer", {"inputs": inputs})
        assert answer.status_code == status, answer.text
