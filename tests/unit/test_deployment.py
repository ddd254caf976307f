"""Deployment files: every key is typed and documented, and what is not known is refused by name."""

import json
import re
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import get_args, get_type_hints

import numpy as np
import pytest
from typer.testing import CliRunner

from livegnn import Events, FileFormatError, InputError, LogError, UnknownNodeError, checkpoint
from livegnn.cli import app
from livegnn.deployment import Deployment
from livegnn.deployment.graph_files import read_schema
from livegnn.deployment.sections import SourceSection
from livegnn.expiry import ExpiryPolicy
from livegnn.graph import EdgeSchema, Graph, Schema
from livegnn.runtime import AheadPolicy, CheckpointPolicy
from mirror import frozen
from owned import names_in
from serving import write_deployment
from streams import make_arrays, make_graph, make_model

DOCS = Path(__file__).parents[2] / "docs" / "deployment.md"
LEAST = {"model": {"path": "m"}, "graph": {"path": "g"}, "log": {"path": "l"}}


def test_the_least_that_is_needed() -> None:
    deployment = Deployment.parse(LEAST, Path("/etc"))
    assert deployment.model is not None
    assert deployment.model.path == Path("/etc/m")
    assert deployment.graph.undirected is False
    assert deployment.checkpoint is None
    assert deployment.runtime.max_batch_events == 4096
    assert deployment.runtime.expiry() == ExpiryPolicy()
    assert deployment.runtime.ahead() is None
    assert deployment.features is None
    assert deployment.server.host == "127.0.0.1"


def test_everything() -> None:
    content = LEAST | {
        "graph": {"path": "/data/g.npz", "undirected": True, "auto_add_nodes": {"node": [0.5]}},
        "checkpoint": {"directory": "c", "every_events": 0, "every_seconds": 3},
        "features": {"directory": "f"},
        "engine": {"threads": 2, "history": 9, "mode": ["eager", "lazy"], "state_dir": "s"},
        "runtime": {
            "max_batch_events": 7,
            "freshness_ms": 20,
            "max_waiting_events": 9,
            "max_waiting_ms": 1.5,
            "expire_every_seconds": 5,
            "expire_by": "clock",
            "max_expired_share": 0.25,
            "ask_from_edges": 9,
            "max_ahead": 60,
            "ahead_of": "clock",
            "recompute_after_events": 5,
        },
        "views": {"degrees": "some.module:Degrees"},
        "sources": {
            "orders": {"kafka": "k:1", "topic": "t", "begin": "last"},
            "a b": {"kafka": "k", "topic": "u"},
        },
        "server": {"host": "::1", "port": 0},
    }
    deployment = Deployment.parse(content, Path("/etc"))
    assert deployment.graph.path == Path("/data/g.npz")
    assert deployment.graph.auto_add_nodes == {"node": [0.5]}
    assert deployment.checkpoint is not None
    assert deployment.checkpoint.policy() == CheckpointPolicy(Path("/etc/c"), None, 3.0)
    options = deployment.engine.options()
    assert (options.threads, options.history, options.mode) == (2, 9, ["eager", "lazy"])
    assert options.state_dir == Path("/etc/s")
    assert deployment.views is not None
    assert deployment.views.factories == {"degrees": "some.module:Degrees"}
    assert deployment.runtime.expiry() == ExpiryPolicy(5.0, time.time, 0.25, 9)
    assert deployment.runtime.ahead() == AheadPolicy(60.0, time.time)
    assert deployment.runtime.freshness_ms == 20.0
    assert (deployment.runtime.max_waiting_events, deployment.runtime.max_waiting_ms) == (9, 1.5)
    assert deployment.features is not None
    assert deployment.features.directory == Path("/etc/f")
    assert deployment.server.port == 0
    assert deployment.sources == {
        "orders": SourceSection("k:1", "t", "last"),
        "a b": SourceSection("k", "u", "first"),
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "there must be a section [graph], got none"),
        ({"model": {"path": "m"}}, "there must be a section [graph], got model"),
        (LEAST | {"modle": {}}, "unknown section 'modle': did you mean 'model'?"),
        (LEAST | {"zzz": {}}, "unknown section 'zzz': known are model, models, graph"),
        (LEAST | {"log": {"pth": "l"}}, "unknown key in [log]: 'pth': did you mean 'path'?"),
        (LEAST | {"log": {}}, "[log]: there must be a path, or else kafka and topic"),
        (LEAST | {"log": {"path": "l", "kafka": "k", "topic": "t"}}, "there must be a path, or else kafka"),
        (LEAST | {"log": {"kafka": "k"}}, "there must be a path, or else kafka and topic"),
        (LEAST | {"log": {"path": "l", "topic": "t"}}, "there must be a path, or else kafka and topic"),
        (LEAST | {"log": "l"}, "log must be a section [log], got 'l'"),
        (LEAST | {"log": {"path": 3}}, "path in [log] must be text, a path, got 3"),
        (
            LEAST | {"graph": {"path": "g", "undirected": 1}},
            "undirected in [graph] must be true or false, got 1",
        ),
        (LEAST | {"server": {"port": "80"}}, "port in [server] must be an integer, got '80'"),
        (LEAST | {"server": {"port": True}}, "port in [server] must be an integer, got True"),
        (LEAST | {"server": {"port": 70000}}, "[server]: port must be from 0 to 65535, got 70000"),
        (LEAST | {"server": {"host": 1}}, "host in [server] must be text, got 1"),
        (LEAST | {"engine": {"threads": -1}}, "[engine]: threads must be an integer from 1 to 1024, got -1"),
        (
            LEAST | {"engine": {"keep": "some"}},
            "[engine]: keep must be one of 'all', 'aggregates', got 'some'",
        ),
        (LEAST | {"engine": {"mode": 3}}, "mode in [engine] must be text or a list of it, got 3"),
        (LEAST | {"runtime": {"threads": 2}}, "threads has moved from [runtime] to [engine]"),
        (LEAST | {"state": {"directory": "s"}}, "[state] has become the key state_dir in [engine]"),
        (LEAST | {"views": {"degrees": "module"}}, 'degrees in [views] must be text like "module:name"'),
        (LEAST | {"views": "module:name"}, "views must be a section [views], got 'module:name'"),
        (LEAST | {"runtime": {"freshness_ms": "20"}}, "freshness_ms in [runtime] must be a number, got '20'"),
        (LEAST | {"runtime": {"freshness_ms": -1}}, "[runtime]: freshness_ms must be at least 0, got -1"),
        (LEAST | {"runtime": {"max_waiting_events": -1}}, "max_waiting_events must be at least 0, got -1"),
        (LEAST | {"runtime": {"max_waiting_ms": -1}}, "max_waiting_ms must be at least 0, got -1"),
        (
            LEAST | {"runtime": {"recompute_after_events": -1}},
            "recompute_after_events must be at least 0, got -1",
        ),
        (LEAST | {"runtime": {"max_batch_events": 0}}, "max_batch_events must be at least 1, got 0"),
        (
            LEAST | {"runtime": {"expire_every_seconds": -1}},
            "expire_every_seconds must be at least 0, got -1",
        ),
        (LEAST | {"runtime": {"expire_by": "sun"}}, "expire_by must be 'events' or 'clock', got 'sun'"),
        (
            LEAST | {"graph": {"path": "g", "auto_add_nodes": "user"}},
            "auto_add_nodes in [graph] must be a list of node types, or a table of features, got 'user'",
        ),
        (LEAST | {"runtime": {"ahead_of": "sun"}}, "ahead_of must be 'events' or 'clock', got 'sun'"),
        (
            LEAST | {"runtime": {"when_view_fails": "ignore"}},
            "when_view_fails must be 'stop' or 'rebuild', got 'ignore'",
        ),
        (LEAST | {"runtime": {"max_ahead": -1}}, "[runtime]: max_ahead must be at least 0, got -1"),
        (LEAST | {"runtime": {"ask_from_edges": 0}}, "ask_from_edges must be at least 1, got 0"),
        (
            LEAST | {"runtime": {"max_expired_share": 2}},
            "max_expired_share must be a number above 0 and at most 1, got 2.0",
        ),
        (LEAST | {"graph": {"path": "g", "time_to_live": -1}}, "time_to_live must be at least 0, got -1"),
        (
            LEAST | {"graph": {"path": "g", "parallel": "first"}},
            "parallel must be one of 'refuse', 'last', 'sum', 'keep', got 'first'",
        ),
        (LEAST | {"sources": "orders"}, "sources must be sections [sources.NAME], got 'orders'"),
        (LEAST | {"sources": {"a": "b"}}, "sources.a must be a section [sources.a], got 'b'"),
        (LEAST | {"sources": {"a": {"kafka": "k"}}}, "[sources.a] must have a value for 'topic', got kafka"),
        (
            LEAST | {"sources": {"a": {"kafka": "k", "topic": ""}}},
            "[sources.a]: topic must be text, got none",
        ),
        (LEAST | {"sources": {"a": {"kafka": "k", "topic": 3}}}, "topic in [sources.a] must be text, got 3"),
        (
            LEAST | {"sources": {"a": {"kafka": "k", "topic": "t", "begin": "end"}}},
            "[sources.a]: begin must be 'first' or 'last', got 'end'",
        ),
        (LEAST | {"sources": {"": {"kafka": "k", "topic": "t"}}}, "text of 1 to 255 printable characters"),
        (LEAST | {"checkpoint": {"directory": "c", "every_seconds": "1"}}, "must be a number, got '1'"),
        (LEAST | {"checkpoint": {"directory": "c", "every_seconds": -1}}, "every_seconds must be at least 0"),
        (LEAST | {"checkpoint": {"directory": "c", "every_seconds": float("nan")}}, "at least 0, got nan"),
        (
            LEAST | {"workers": {"sampling": 1}},
            "[workers] must have a value for 'directory', got sampling",
        ),
        (LEAST | {"workers": {"directory": "w", "sampling_workers": 1}}, "unknown key in [workers]:"),
        (LEAST | {"workers": {"directory": "w", "serving": "2"}}, "serving in [workers] must be an integer"),
        (
            LEAST | {"workers": {"directory": "w", "serving": 0}},
            "[workers]: serving must be an integer from 1 to 1000, got 0",
        ),
        (
            LEAST | {"workers": {"directory": "w", "moved": {"17": "1"}}},
            "moved in [workers] must be a table of integers, got {'17': '1'}",
        ),
        (
            LEAST | {"workers": {"directory": "w", "moved": {"x": 0}}},
            "[workers]: moved must have ids as keys, got 'x'",
        ),
        (LEAST | {"cluster": {"beat_seconds": 0}}, "[cluster]: beat_seconds must be a number above 0, got 0"),
        (LEAST | {"cluster": {"listen": "all"}}, "[cluster]: listen must be 'loopback' or 'node', got 'all'"),
    ],
)
def test_what_is_wrong_is_named(content: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as error:
        Deployment.parse(content, Path())
    assert message in str(error.value)


def test_seeds_that_are_moved_are_numbers() -> None:
    moved = {"directory": "w", "serving": 2, "moved": {"17": 1, "-3": 0}}
    section = Deployment.parse(LEAST | {"workers": moved}, Path()).workers
    assert section is not None
    assert (section.serving_workers, section.moved) == (2, {-3: 0, 17: 1})


def test_a_file_that_is_not_toml_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "deployment.toml"
    path.write_text("[model\n", encoding="utf-8")
    with pytest.raises(InputError, match="must be a TOML file"):
        Deployment.read(path)
    path.write_bytes(b"\xff")
    with pytest.raises(InputError, match="must be a TOML file"):
        Deployment.read(path)
    path.write_text("[model]\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"deployment.toml: \[model\] must have a value for 'path'"):
        Deployment.read(path)
    with pytest.raises(FileNotFoundError):
        Deployment.read(tmp_path / "missing.toml")


def deploy(directory: Path, graph: str, *, undirected: bool = False) -> Deployment:
    content = LEAST | {"graph": {"path": graph, "undirected": undirected}}
    return Deployment.parse(content, directory)


def test_the_graph_is_read_from_arrays(tmp_path: Path) -> None:
    np.savez(tmp_path / "g.npz", **make_arrays())
    graph = deploy(tmp_path, "g.npz").load_graph()
    expected = make_graph()
    assert graph.state().arrays.keys() == expected.state().arrays.keys()
    for name, array in graph.state().arrays.items():
        assert array.tobytes() == expected.state().arrays[name].tobytes()
    np.savez(tmp_path / "g.npz", src=["a"], dst=["b"])
    assert deploy(tmp_path, "g.npz", undirected=True).load_graph().neighbors("a").ids.tolist() == ["b"]


def test_edges_that_are_listed_twice_become_what_the_file_says(tmp_path: Path) -> None:
    np.savez(tmp_path / "g.npz", src=[0, 0, 1], dst=[1, 1, 0], weight=[2.0, 3.0, 4.0])

    def weights(parallel: str | None) -> list[float]:
        section = {"path": "g.npz"} | ({} if parallel is None else {"parallel": parallel})
        graph = Deployment.parse(LEAST | {"graph": section}, tmp_path).load_graph()
        found = graph.neighbors(1).weight
        assert found is not None
        return sorted(found.tolist())

    assert weights("last") == [3.0]
    assert weights("sum") == [5.0]
    assert weights("keep") == [2.0, 3.0]
    for refusing in (None, "refuse"):
        with pytest.raises(InputError, match="parallel"):
            weights(refusing)


def test_the_graph_is_read_from_a_checkpoint(tmp_path: Path) -> None:
    expected = make_graph()
    expected.seq = 17
    checkpoint.write(tmp_path / "g", {"graph": expected.state()}, 17)
    graph = deploy(tmp_path, "g").load_graph()
    assert graph.seq == 0
    assert graph.snapshot().x["node"].tolist() == expected.snapshot().x["node"].tolist()


def test_a_deployment_whose_edges_expire_and_whose_features_and_state_are_mapped(tmp_path: Path) -> None:
    make_model().save(tmp_path / "m")
    arrays = make_arrays()
    rng = np.random.default_rng(3)
    arrays["time"], arrays["edge_attr"] = rng.random(len(arrays["src"])), rng.random((len(arrays["src"]), 2))
    np.savez(tmp_path / "g", **arrays)
    content = LEAST | {
        "graph": {"path": "g.npz", "time_to_live": 0.5},
        "features": {"directory": "f"},
        "engine": {"state_dir": "s"},
        "checkpoint": {"directory": "c"},
        "runtime": {"freshness_ms": 20, "max_waiting_events": 9},
    }
    runtime = Deployment.parse(content, tmp_path).open()
    assert runtime.pace.objective == 0.02
    assert [runtime.admission.is_open(waiting) for waiting in (9, 10)] == [True, False]
    assert runtime.engine.memory()["mapped state"] > 0
    graph = runtime.graph
    assert graph.latest_time is not None
    for attempt in (graph, Deployment.parse(content, tmp_path).load_graph()):
        assert attempt.memory()["mapped features of node,to,node"] > 0
    assert 0 < len(graph.expired(graph.latest_time)) < graph.num_edges()
    runtime.append(Events().remove_nodes(3))
    while runtime.step():
        pass
    runtime.stop()
    runtime.log.close()
    restored = Deployment.parse(content, tmp_path).open()
    assert restored.graph.memory()["mapped features of node"] > 0
    assert restored.engine.memory()["mapped state"] > 0
    assert restored.graph.seq == 1
    restored.log.close()


def test_graphs_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    deployment = deploy(tmp_path, "g")
    with pytest.raises(FileNotFoundError):
        deployment.load_graph()
    (tmp_path / "g").write_bytes(b"neither this nor that")
    with pytest.raises(FileFormatError, match=r"must be a checkpoint or an .npz file"):
        deployment.load_graph()
    checkpoint.write(tmp_path / "g", {}, 0)
    with pytest.raises(FileFormatError, match="must hold the state of a graph, got none"):
        deployment.load_graph()
    with open(tmp_path / "g", "wb") as file:
        np.savez(file, src=[1])
    with pytest.raises(FileFormatError, match="must hold an array 'dst', got src"):
        deployment.load_graph()
    with open(tmp_path / "g", "wb") as file:
        np.savez(file, src=[1], dst=[2], wait=[3])
    with pytest.raises(InputError, match=r"unknown array of .*'wait': did you mean 'weight'"):
        deployment.load_graph()
    with open(tmp_path / "g", "wb") as file:
        np.savez(file, src=np.array([None]), dst=[2])
    with pytest.raises(FileFormatError, match="got Python objects in 'src', as pandas makes"):
        deployment.load_graph()
    for content, message in ((b"", "got No data left"), (b"PK\x03\x04", "got File is not a zip file")):
        (tmp_path / "g").write_bytes(content)
        with pytest.raises(FileFormatError, match=f"must be a checkpoint or an .npz file, {message}"):
            deployment.load_graph()
    with open(tmp_path / "g", "wb") as file:
        np.save(file, [1])
    with pytest.raises(FileFormatError, match=r"got a single array \(\.npy\): write several with np.savez"):
        deployment.load_graph()
    with open(tmp_path / "g", "wb") as file:
        np.savez(file, src=[1], dst=[2], x=np.zeros((1, 4), np.float32))
    with pytest.raises(UnknownNodeError):
        deployment.load_graph()


@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("name", ["src", "dst", "ids", "x", "weight", "time", "edge_attr"])
def test_doing_what_is_said_of_objects_in_a_file_makes_it_a_graph(
    tmp_path: Path, name: str, text: bool
) -> None:
    ids = np.array(["a", "b", "c"]) if text else np.arange(3)
    arrays: dict[str, np.ndarray] = {
        "src": ids[:2],
        "dst": ids[1:],
        "ids": ids,
        "x": np.ones((3, 4), np.float32),
        "weight": np.array([0.5, 2.0]),
        "time": np.array([1.7e9, 1.7e9 + 1]),
        "edge_attr": np.ones((2, 1)),
    }
    deployment = deploy(tmp_path, "g")
    with open(tmp_path / "g", "wb") as file:
        np.savez(file, **arrays)
    expected = deployment.load_graph()
    with open(tmp_path / "g", "wb") as file:
        np.savez(file, **arrays | {name: arrays[name].astype(object)})
    with pytest.raises(FileFormatError, match=f"got Python objects in '{name}'") as refused:
        deployment.load_graph()
    said = re.findall(rf"{name}\.astype\((\S+)\)", str(refused.value))
    cure = said[0 if text or len(said) == 1 else 1]
    dtype = {"str": str, "'int64'": np.int64, "float": float}[cure]
    with open(tmp_path / "g", "wb") as file:
        np.savez(file, **arrays | {name: arrays[name].astype(object).astype(dtype)})
    assert frozen(deployment.load_graph().state()) == frozen(expected.state())


def test_a_deployment_opens_where_it_left_off(tmp_path: Path) -> None:
    make_model().save(tmp_path / "m")
    with open(tmp_path / "g", "wb") as file:
        np.savez(file, **make_arrays())
    deployment = Deployment.parse(LEAST | {"checkpoint": {"directory": "c"}}, tmp_path)
    first = deployment.open()
    seq = first.append(Events().remove_nodes([3, 4]))
    first.step()
    first.stop()
    first.log.close()
    assert len(names_in(tmp_path / "c")) == 1
    second = deployment.open()
    assert second.seq == seq
    assert second.engine.embeddings(-1).tobytes() == first.engine.embeddings(-1).tobytes()
    second.log.close()


def test_the_docs_list_every_key_and_its_default() -> None:
    text = DOCS.read_text(encoding="utf-8")
    block = re.search(r"```toml\n(.*?)```", text, re.DOTALL)
    assert block is not None
    example = Deployment.parse(tomllib.loads(block[1]), Path())
    rows = re.findall(r"^\| (?:`\[([\w.]+)\]`)? ?\| `(\w+)` \| ([^|]+) \| ([^|]+) \|", text, re.MULTILINE)
    names = {
        Path: "text, a path",
        Path | None: "text, a path",
        int | None: "an integer",
        str | None: "text",
        str: "text",
        str | list[str]: "text or a list of it",
        int: "an integer",
        float: "a number",
        float | None: "a number",
        bool: "true or false",
        list[str] | dict[str, list[float]] | None: "a list of types, or a table",
        Mapping[int, int]: "a table of integers",
        Mapping[str, str]: "a table of texts",
        Mapping[str, object]: "a table",
        Sequence[str]: "a list of texts",
    }
    documented = []
    section = ""
    for named, key, type_, default in rows:
        section = named or section
        documented.append((section, key, type_, default))
    expected = []
    sections = [section.name for section in fields(Deployment) if section.name not in {"file", "tables"}]
    parts = {section: getattr(example, section) for section in sections}
    named = {"sources": "orders", "sinks": "scores", "labels": "chargebacks"}
    for section in sections:
        part = parts[section]
        if section in named:
            part, section = part[named[section]], f"{section}.{named[section]}"
        for key in fields(part) if section != "views" else ():
            type_ = get_type_hints(type(part))[key.name]
            must = type_ is Path or (
                section in ("sources.orders", "sinks.scores", "labels.chargebacks", "snapshots")
                and key.default is key.default_factory is MISSING
            )
            given = section in ("sinks.scores", "labels.chargebacks")
            default = key.default if given else getattr(part, key.name)
            default = key.default_factory() if default is MISSING and not must else default
            shown = "required" if must else f"`{tomlish(default)}`"
            shown = "none" if type(None) in get_args(type_) else shown
            expected.append((section, key.metadata.get("key", key.name), names[type_], shown))
    assert documented == expected


def tomlish(value: object) -> str:
    return (
        str(value).lower()
        if isinstance(value, bool)
        else f'"{value}"'
        if isinstance(value, str)
        else str(list(value) if isinstance(value, tuple) else value)
    )


def test_the_schema_of_whatever_describes_a_graph(tmp_path: Path) -> None:
    schema = Schema({"user": 3}, {("user", "pays", "user"): EdgeSchema(weighted=True, duplicates="add")})
    graph = Graph(schema)
    checkpoint.write(tmp_path / "graph.lgnnckpt", {"graph": graph.state()}, 0)
    checkpoint.write(tmp_path / "engine.lgnnckpt", {"engine": graph.state()}, 0)
    (tmp_path / "schema.json").write_text(json.dumps(schema.to_json()), encoding="utf-8")
    (tmp_path / "deployment.toml").write_text(
        '[model]\npath = "m"\n[graph]\npath = "graph.lgnnckpt"\n[log]\npath = "l"\n',
        encoding="utf-8",
    )
    for name in ("graph.lgnnckpt", "schema.json", "deployment.toml"):
        assert read_schema(tmp_path / name) == schema
    (tmp_path / "list.json").write_text("[]", encoding="utf-8")
    (tmp_path / "text.json").write_text("schema", encoding="utf-8")
    for name in ("engine.lgnnckpt", "list.json", "text.json"):
        with pytest.raises(FileFormatError, match="must be"):
            read_schema(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        read_schema(tmp_path / "missing.json")


@pytest.mark.parametrize("name", ["graph", "log", "engine"])
def test_a_view_is_not_named_as_another_part(name: str, tmp_path: Path) -> None:
    content = {
        "model": {"path": "model.lgnn"},
        "graph": {"path": "graph.npz"},
        "log": {"path": "log.db"},
        "views": {name: "histograms:DegreeHistogram"},
    }
    with pytest.raises(InputError, match=f"must not be '{name}', which is another part"):
        Deployment.parse(content, tmp_path)


def test_the_guards_of_a_deployment_are_at_work(tmp_path: Path) -> None:
    make_model().save(tmp_path / "m")
    arrays = make_arrays()
    arrays["time"] = np.arange(len(arrays["src"]), dtype=np.float64)
    np.savez(tmp_path / "g", **arrays)
    content = LEAST | {
        "graph": {"path": "g.npz", "time_to_live": 50.0, "auto_add_nodes": ["node"]},
        "runtime": {"max_ahead": 1000.0, "ask_from_edges": 10, "expire_every_seconds": 1e-9}
        | {"when_view_fails": "rebuild"},
    }
    runtime = Deployment.parse(content, tmp_path).open()
    new = runtime.append(Events().add_edges(500, 501, weight=1, time=900))
    far = runtime.append(Events().add_edges(0, 1, weight=1, time=1e12))
    runtime.step()
    assert runtime.rejection(new) is None
    assert runtime.rejection(far) is not None
    assert runtime.graph.features([501]).tolist() == [[0.0] * 4]
    assert runtime.held_expiry is not None
    assert runtime.held_expiry[:2] == (900.0, 120)
    engine = runtime.engine
    runtime.graph.views.failed = [(engine, RuntimeError("broken"))]
    runtime._rebuilding.blame(RuntimeError("broken"))  # as of a batch in which it failed
    assert list(runtime.views.missing) == ["engine"]
    runtime.step()
    assert runtime.engine is not engine
    assert runtime.engine.verify().ok
    runtime.stop()
    runtime.log.close()


def test_what_decides_about_new_nodes_stays_as_it_was_for_a_log(tmp_path: Path) -> None:
    """Nodes that nobody announces may be allowed later; taken away or changed, a replay would be another."""
    path = write_deployment(tmp_path)
    plain = re.sub(r"(?s)\[checkpoint\].*?(?=\[engine\])", "", path.read_text(encoding="utf-8"))

    def write(setting: str, *, checkpoints: bool = False) -> None:
        extra = '[checkpoint]\ndirectory = "checkpoints"\n' if checkpoints else ""
        path.write_text(plain.replace("[log]", f"{setting}\n[log]") + extra, encoding="utf-8")

    def run(*ids: int) -> list[bool]:
        """Which of the nodes are there after edges to them."""
        runtime = Deployment.read(path).open()
        for id_ in ids:
            runtime.append(Events().add_edges([0], [id_], weight=[1.0]))
        while runtime.step():
            pass
        there = runtime.graph.contains(list(ids)).tolist()
        runtime.stop()
        runtime.log.close()
        return there

    assert run(1000) == [False]
    write("auto_add_nodes = { node = [1.0, 2.0, 3.0, 4.0] }")
    assert run(1001) == [True]
    assert run(1002) == [True]
    for other in ("", 'auto_add_nodes = ["node"]', "auto_add_nodes = { node = [1.0, 2.0, 3.0, 5.0] }"):
        write(other)
        with pytest.raises(LogError, match=r"auto_add of 'node' must be \[1.0, 2.0, 3.0, 4.0\]"):
            run()
    write("auto_add_nodes = { node = [1.0, 2.0, 3.0, 4.0] }", checkpoints=True)
    assert run(1003) == [True]
    write("", checkpoints=True)
    with pytest.raises(InputError, match=r"auto_add_nodes in \[graph\] must be \['node'\], as when"):
        run()


def test_a_time_to_live_that_the_checkpoints_do_not_have_is_refused(tmp_path: Path) -> None:
    path = write_deployment(tmp_path)
    arrays = make_arrays()
    np.savez(tmp_path / "graph.npz", **arrays, time=np.arange(len(arrays["src"]), dtype=float))
    plain = path.read_text(encoding="utf-8")

    def run(time_to_live: float) -> None:
        path.write_text(plain.replace("[log]", f"time_to_live = {time_to_live}\n[log]"), encoding="utf-8")
        runtime = Deployment.read(path).open()
        runtime.append(Events().add_nodes([1000 + runtime.seq]))
        while runtime.step():
            pass
        runtime.stop()
        runtime.log.close()

    run(100000.0)
    with pytest.raises(LogError, match=r"time_to_live must be 100000.0, got 5.0"):
        run(5.0)
    with pytest.raises(InputError, match=r"time_to_live in \[graph\] must be 100000.0, as when"):
        CliRunner().invoke(app, ["log", "bind", str(path)], catch_exceptions=False)
    for file in (tmp_path / "checkpoints").iterdir():
        file.unlink()
    said = CliRunner().invoke(app, ["log", "bind", str(path)])
    assert "100000.0 -> 5.0" in said.output
    run(5.0)
