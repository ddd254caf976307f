"""Columns of events that a type has no place for."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import numpy as np
import pytest

from livegnn import EdgeSchema, Events, Graph, InputError, Schema
from livegnn.events.builder import from_chunks
from livegnn.events.chunk import KINDS, Chunk
from livegnn.events.json_lines import FIELDS
from livegnn.graph import without_strays
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import Runtime
from livegnn.server import create_app
from mirror import frozen


@pytest.mark.parametrize(
    ("column", "values", "setting"),
    [("weight", 2.0, "weighted=True"), ("time", 3.0, "timed=True"), ("edge_attr", [1.0, 2.0], "edge_dim=2")],
)
def test_a_column_without_a_place_is_refused(column, values, setting):
    """Weights and times were dropped without a word."""
    graph = Graph.from_edges([0, 1], [1, 2])
    before = frozen(graph.state())
    with pytest.raises(
        InputError, match=rf"\('node', 'to', 'node'\) carry no .+ '{column}': .+EdgeSchema\({setting}\)"
    ):
        graph.apply(Events().add_nodes(9).add_edges(0, 2, **{column: values}))
    assert frozen(graph.state()) == before


def test_features_without_a_place_are_refused():
    graph = Graph.from_edges([0, 1], [1, 2])
    with pytest.raises(InputError, match=r"must have 0 features for node type 'node', got 2: leave x out"):
        graph.apply(Events().set_features(0, [1.0, 2.0]))


# -- every column on every kind of event, in a graph that has a place for it and in one that has none

EDGES = ("a", "r", "a")
VALUES = {
    "weight": np.ones(1, np.float32),
    "time": np.ones(1),
    "x": np.ones((1, 2), np.float32),
    "key": np.zeros(1, np.uint32),
}
FITS = {
    "add_edges": {"weight", "time", "x", "key"},
    "remove_edges": {"key"},
    "set_features": {"x", "time"},
    "add_nodes": {"x", "time"},
    "remove_nodes": set[str](),
}


def make_runtime(path: Path, *, full: bool) -> Runtime:
    edges = EdgeSchema(weighted=True, timed=True, duplicates="keep", edge_dim=2) if full else EdgeSchema()
    graph = Graph(Schema({"a": 2 if full else 0}, {EDGES: edges}, timed_features=["a"] if full else []))
    graph.apply(Events().add_nodes([0, 1], node_type="a").add_edges(0, 1, edge_type=EDGES), seq=0)
    return Runtime(SqliteLog(path), graph)


@pytest.mark.parametrize("full", [False, True], ids=["no place", "a place"])
@pytest.mark.parametrize("column", VALUES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_column_is_used_or_refused(tmp_path: Path, kind, column, full):
    """As chunks, which events from bytes can be of any shape of."""
    runtime = make_runtime(tmp_path / "log.db", full=full)
    edges = kind.endswith("edges")
    columns = {column: VALUES[column]}
    if column != "x" and (kind == "set_features" or (kind, column) == ("add_nodes", "time")):
        columns["x"] = VALUES["x"] if full else np.ones((1, 0), np.float32)
    chunk = Chunk(
        kind,
        EDGES if edges else "a",
        np.zeros(1, np.int64),
        np.ones(1, np.int64) if edges else None,
        **columns,
    )
    events = Events.from_bytes(from_chunks([chunk]).to_bytes())
    before = frozen(runtime.graph.state())
    if full and column in FITS[kind]:
        seq = runtime.append(events)
        runtime.step()
        assert runtime.rejection(seq) is None
    else:
        for ask in (runtime.append, runtime.graph.stage, lambda events: runtime.what_if(events, [0])):
            with pytest.raises(InputError, match=f"'{column}'|'edge_attr'|must have 0 features"):
                ask(events)
        assert runtime.log.last_seq() == 0
        assert frozen(runtime.graph.state()) == before
    runtime.log.close()


def test_features_that_are_not_there_are_refused(tmp_path: Path):
    runtime = make_runtime(tmp_path / "log.db", full=True)
    with pytest.raises(InputError, match="set_features needs x"):
        runtime.append(from_chunks([Chunk("set_features", "a", np.zeros(1, np.int64))]))
    runtime.log.close()


def test_old_logs_apply_without_the_columns_that_were_ignored():
    removal = Chunk("remove_edges", EDGES, np.zeros(1, np.int64), np.ones(1, np.int64))
    strays = removal._replace(weight=VALUES["weight"], time=VALUES["time"], x=VALUES["x"])
    schema = Schema({"a": 0}, {EDGES: EdgeSchema(weighted=True, timed=True)})
    assert without_strays(schema, from_chunks([strays])) == from_chunks([removal])


@pytest.mark.parametrize("full", [False, True], ids=["no place", "a place"])
def test_over_http_a_field_is_used_or_refused(tmp_path: Path, full):
    fields = {"weight": 1.0, "time": 1.0, "edge_attr": [1.0, 1.0], "key": 0, "x": [1.0, 1.0]}
    ends = {"src": 0, "dst": 1, "edge_type": list(EDGES)}
    runtime = make_runtime(tmp_path / "log.db", full=full)

    async def ask_all() -> list[tuple[str, str, int, str]]:
        transport = httpx.ASGITransport(create_app(runtime), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            answers = []
            for event in FIELDS:
                for name, value in fields.items():
                    body = {
                        "event": event,
                        **(ends if event.endswith("edge") else {"id": 0, "node_type": "a"}),
                    }
                    if event == "set_features" or (event, name) == ("add_node", "time"):
                        body["x"] = [1.0, 1.0] if full else []
                    answer = await client.post("/v1/events", json={"events": [body | {name: value}]})
                    answers.append((event, name, answer.status_code, answer.text))
            return answers

    for event, name, status, text in asyncio.run(ask_all()):
        fits = full and name in {column for names in FIELDS[event] for column in names}
        assert status == (200 if fits else 400), (event, name, text)
        if not fits:
            assert name in text or "must have 0 features" in text, (event, name, text)
    runtime.log.close()
