"""Sinks of scores of edges: the ids of edges, a folder of JSON lines, and the sections and models refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from livegnn import EdgeSchema, Engine, Events, Graph, InputError, Schema
from livegnn.connectors.edge_sink_view import EdgeSinkView, ListedEdges, from_texts, to_texts
from livegnn.connectors.json_lines_sink import JsonLinesFolder
from livegnn.connectors.sink_view import SinkView
from livegnn.deployment import Deployment
from livegnn.deployment.sinks import sink_factories
from livegnn.inference.followed_edges import EdgeNames
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import Runtime
from livegnn.types import DEFAULT_EDGE_TYPE
from scored_edges import WIDTH, make_scorer
from waiting import wait_until
from with_sink import Recorder

LEAST = {"graph": {"path": "g.npz"}, "log": {"path": "l.db"}}


def make_engine(**options: object) -> Engine:
    edges = EdgeSchema(weighted=True, duplicates="keep", edge_dim=2)
    graph = Graph(Schema({"node": WIDTH}, {DEFAULT_EDGE_TYPE: edges}, text_ids=True))
    nodes = Events().add_nodes(["a", 'b",\n', "c"], np.eye(3))
    attr = np.ones((2, 2))
    graph.apply(nodes.add_edges(["a", "a"], ["c", 'b",\n'], weight=[1, 2], edge_attr=attr, key=[0, 7]), seq=0)
    return Engine(graph, make_scorer(), threads=1, **options)


@pytest.mark.parametrize(
    ("names", "texts"),
    [
        (EdgeNames(np.array([5, 2**62]), np.array([6, 0]), None), ["[5,6]", f"[{2**62},0]"]),
        (EdgeNames(np.array([5]), np.array([5]), np.array([2**32 - 1], np.uint32)), ["[5,5,4294967295]"]),
        (EdgeNames(np.array(["a]"]), np.array(['"\t\u00fc']), None), ['["a]","\\"\\t\u00fc"]']),
    ],
)
def test_the_id_of_an_edge_is_a_json_list(names: EdgeNames, texts: list[str]) -> None:
    assert to_texts(names).tolist() == texts
    for column, expected in zip(from_texts(to_texts(names)), names, strict=True):
        assert (column is None) == (expected is None)
        if column is not None:
            assert column.dtype.kind == expected.dtype.kind
            np.testing.assert_array_equal(column, expected)
    listed = ListedEdges(names)
    assert (listed.num_changed, listed.changed.tolist()) == (len(texts), texts)
    assert listed.changed.tolist() == texts


def test_a_folder_of_json_lines_has_the_scores(tmp_path: Path) -> None:
    engine = make_engine(follow=["risk"])
    view = EdgeSinkView(
        engine.graph, JsonLinesFolder(tmp_path / "lines"), edges="risk", name="sinks.a", every_seconds=0
    )
    log = SqliteLog(tmp_path / "log.db")
    runtime = Runtime(log, engine.graph, engine, view)
    runtime.start()
    view.start(runtime)
    wait_until(lambda: not view.lag)
    runtime.append(
        Events().add_edges("c", "a", weight=1, edge_attr=[1, 2], key=3).remove_edges("a", "c", key=0)
    )
    runtime.wait(log.last_seq())
    runtime.stop()
    lines = (tmp_path / "lines" / "changes-00000001.jsonl").read_text(encoding="utf-8").splitlines()
    newest = {record["id"]: record for record in map(json.loads, lines)}
    assert newest.keys() == {'["a","c",0]', '["a","b\\",\\n",7]', '["c","a",3]'}
    assert newest['["a","c",0]'].pop("removed")
    for id, record in newest.items():
        assert record["model"] == "engine"
        if "prediction" in record:
            source, target, key = json.loads(id)
            expected = engine.predict_edges(source, target, key=key, output="risk")[0]
            np.testing.assert_array_equal(np.float32(record["prediction"]), expected)
    log.close()


def test_a_batch_that_is_not_listed_sends_all_and_removes(tmp_path: Path) -> None:
    engine, sink = make_engine(follow=["risk"], follow_limit=1), Recorder()
    view = EdgeSinkView(engine.graph, sink, edges="risk")
    log = SqliteLog(tmp_path / "log.db")
    runtime = Runtime(log, engine.graph, engine, view)
    view._begin(runtime)
    view._send_round()
    runtime.append(Events().remove_nodes("c").set_features("a", [3, 4, 5]))
    runtime.step()
    view._send_round()
    there, gone = '["a","b\\",\\n",7]', '["a","c",0]'
    rows = engine.predict_edges("a", 'b",\n', key=7, output="risk")
    assert sink.newest().keys() == {there, gone}
    assert sink.newest()[gone] == (2, None)
    np.testing.assert_array_equal(sink.newest()[there][1], rows[0])
    assert len(sink.writes[-1].ids) == 2
    log.close()


def test_an_engine_that_does_not_follow_is_refused(tmp_path: Path) -> None:
    for engine in (make_engine(), make_engine(follow=["alike"])):
        view = EdgeSinkView(engine.graph, Recorder(), edges="risk")
        log = SqliteLog(tmp_path / "log.db")
        runtime = Runtime(log, engine.graph, engine, view)
        with pytest.raises(
            InputError, match=r"got 'engine', which does not follow 'risk': name it in follow"
        ):
            view.start(runtime)
        log.close()


def test_a_sink_of_predictions_that_becomes_one_of_scores_sends_all(tmp_path: Path) -> None:
    engine = make_engine(follow=["risk"])
    before = SinkView(engine.graph, Recorder(), name="sinks.a")
    state = before.state()
    after = EdgeSinkView(engine.graph, Recorder(), edges="risk", name="sinks.b", state=state)
    assert after._unsent.everything
    again = SinkView(engine.graph, Recorder(), name="sinks.c", state=after.state())
    assert again._unsent.everything


def test_sections() -> None:
    keys = {"kind": "jsonlines", "directory": "d", "edges": "risk", "threshold": 0.5, "column": 1}
    section = Deployment.parse({**LEAST, "sinks": {"a": keys}}, Path("/here")).sinks["a"]
    (make,) = sink_factories({"a": section}).values()
    view = make(make_engine().graph, None)
    assert isinstance(view, EdgeSinkView)
    assert (view.name, view._edge_output) == ("sinks.a", "risk")
    labels = {"labels": {"l": {"horizon_seconds": 5}}}
    with pytest.raises(InputError, match="sinks"):
        Deployment.parse(
            {**LEAST, **labels, "sinks": {"a": {"kind": "parquet", "directory": "d", "edges": "risk"}}},
            Path("/here"),
        )
