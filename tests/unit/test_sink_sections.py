"""`[sinks.NAME]` of a deployment: its keys, and the sinks that they make."""

import json
from pathlib import Path

import numpy as np
import pytest

from livegnn import Events, InputError
from livegnn.connectors.json_lines_sink import JsonLinesFolder
from livegnn.connectors.kafka_sink import KafkaTopicSink
from livegnn.connectors.parquet_sink import ParquetFolder
from livegnn.connectors.postgresql_sink import PostgresqlTable
from livegnn.connectors.row_filter import RowFilter
from livegnn.connectors.sink_view import SinkView
from livegnn.deployment import Deployment
from livegnn.deployment.sinks import SinkSection, sink_factories, start_sinks
from serving import write_deployment
from streams import WIDTH, make_graph
from waiting import wait_until

LEAST = {"graph": {"path": "g.npz"}, "log": {"path": "l.db"}}


def parse(**keys: object) -> SinkSection:
    return Deployment.parse({**LEAST, "sinks": {"a": keys}}, Path("/here")).sinks["a"]


class Own:
    """A sink of the user's."""

    def __init__(self, column: int) -> None:
        self.column = column

    def write(self, rows: object) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("keys", "type_"),
    [
        ({"kind": "jsonlines", "directory": "d", "rotate_bytes": 5}, JsonLinesFolder),
        ({"kind": "parquet", "directory": "d"}, ParquetFolder),
        ({"kind": "kafka", "kafka": "k", "topic": "t", "client": {"ssl.ca.location": "x"}}, KafkaTopicSink),
        ({"kind": "postgresql", "connection": "dbname=x", "table": "t", "columns": ["a"]}, PostgresqlTable),
        ({"kind": "postgresql", "connection": "env:SINK_OF_TEST", "table": "s.t"}, PostgresqlTable),
        ({"kind": "test_sink_sections:Own", "options": {"column": 3}}, Own),
    ],
)
def test_a_section_makes_a_view_with_its_sink(
    keys: dict[str, object], type_: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SINK_OF_TEST", "dbname=x password=secret")
    section = parse(**keys, threshold=0.5, column=1, model="better")
    assert "secret" not in repr(section)
    ((name, make),) = sink_factories({"a": section}).items()
    view = make(make_graph(), None)
    assert isinstance(view, SinkView)
    assert view.name == name == "sinks.a"
    assert type(view._sink) is type_
    assert view._filter == RowFilter(threshold=0.5, column=1)
    assert (view._model, view._every) == ("better", 60.0 if type_ is ParquetFolder else 0.1)
    if type_ is JsonLinesFolder:
        assert section.directory == Path("/here/d")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({}, r"\[sinks.a\] must have a value for 'kind'"),
        (
            {"kind": "redis"},
            "kind must be one of 'kafka', 'postgresql', 'parquet', 'jsonlines', or 'module:na",
        ),
        ({"kind": ""}, "kind must be one of"),
        ({"kind": "parquet"}, "directory must be given for a sink of the kind 'parquet', got none"),
        ({"kind": "kafka", "kafka": "k"}, "topic must be given for a sink of the kind 'kafka'"),
        ({"kind": "parquet", "directory": "d", "table": "t"}, "table is not of a sink of the kind 'parquet'"),
        (
            {"kind": "parquet", "directory": "d", "column": 1},
            "must have class_changed, threshold or moved_by",
        ),
        ({"kind": "parquet", "directory": "d", "every_seconds": -1}, "every_seconds must be"),
        ({"kind": "jsonlines", "directory": "d", "rotate_bytes": 0}, "rotate_bytes must be an integer"),
        ({"kind": "jsonlines", "directory": "d", "rotate": 0}, "did you mean 'rotate_bytes'"),
        ({"kind": "kafka", "kafka": "k", "topic": "t", "client": {"acks": "0"}}, "client may have settings"),
    ],
)
def test_wrong_sections_are_refused(keys: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse(**keys)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"kind": "nowhere:Own"}, r"kind of \[sinks.a\]: 'nowhere:Own' makes no sink: No module named"),
        ({"kind": "test_sink_sections:Own"}, "makes no sink: .*column"),
        ({"kind": "builtins:dict"}, "must make a sink, with the methods write and close, got dict"),
        (
            {"kind": "postgresql", "connection": "env:NO_SUCH", "table": "t"},
            r"connection in \[sinks.a\] must be in the env",
        ),
        (
            {"kind": "postgresql", "connection": "nonsense", "table": "t"},
            "connection must be settings of libpq",
        ),
    ],
)
def test_sinks_that_cannot_be_made_are_refused(keys: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        sink_factories({"a": parse(**keys)})


def test_a_sink_that_is_built_again_sends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_deployment(tmp_path)
    text = path.read_text(encoding="utf-8").replace("[runtime]", '[runtime]\nwhen_view_fails = "rebuild"')
    path.write_text(text + '[sinks.a]\nkind = "jsonlines"\ndirectory = "lines"\nevery_seconds = 0.0\n')
    runtime = Deployment.read(path).open()
    runtime.start()
    start_sinks(runtime)
    before = runtime.sinks["a"]
    with monkeypatch.context() as patch:
        patch.setattr(SinkView, "publish", lambda view, change: 1 / 0)
        runtime.append(Events().set_features([0], np.ones((1, WIDTH))))
        wait_until(lambda: runtime.sinks.get("a") not in (None, before))
    wait_until(lambda: not runtime.sinks["a"].lag)
    runtime.append(Events().set_features([1], np.ones((1, WIDTH))))
    runtime.wait(runtime.log.last_seq())
    with runtime.graph.writer:
        pass
    wait_until(lambda: not runtime.sinks["a"].lag)
    lines = (tmp_path / "lines" / "changes-00000001.jsonl").read_text(encoding="utf-8").splitlines()
    newest = {record["id"]: record["seq"] for record in map(json.loads, lines)}
    assert (newest[0], newest[1]) == (1, 2)
    runtime.stop()
    runtime.log.close()


def test_names_of_sinks_are_as_those_of_sources() -> None:
    with pytest.raises(InputError, match=r"sinks must be sections \[sinks.NAME\], got 3"):
        Deployment.parse({**LEAST, "sinks": 3}, Path())
    with pytest.raises(InputError, match="text of 1 to 255 printable characters"):
        Deployment.parse({**LEAST, "sinks": {"a\n": {"kind": "parquet"}}}, Path())


def test_each_sink_has_a_place_of_its_own(tmp_path: Path) -> None:
    file = write_deployment(tmp_path)
    section = '[sinks.{}]\nkind = "jsonlines"\ndirectory = "lines"\n'
    file.write_text(file.read_text(encoding="utf-8") + section.format("a") + section.format("b"), "utf-8")
    with pytest.raises(InputError, match=r"of its own, got \[sinks.a\] and \[sinks.b\] with the same"):
        Deployment.read(file).open()
