"""What a request may bring and ask for: above a limit it is refused with 413, and doing what the message says
removes the refusal.
"""

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import numpy as np
import pytest
from fastapi import FastAPI

import livegnn.server.entries as entries
from functions import answer_to
from livegnn import Engine, Events, Graph
from livegnn.connectors import kafka
from livegnn.errors import InputError, TooLargeError
from livegnn.events import json_lines
from livegnn.functions.bodies import LARGEST_BODY, MOST_IDS, MOST_NUMBERS, answer_error, read_asked
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import Runtime
from livegnn.server import create_app, rejections
from livegnn.server.bodies import Limits
from livegnn.server.rejections import count_fitting
from livegnn.texts import Texts
from streams import WIDTH, make_graph, make_model

EDGE = b'{"event":"add_edge","src":1,"dst":2}'
GONE = b'{"event":"remove_edge","src":1,"dst":2}'
LINES = "application/x-ndjson"


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Runtime]:
    log = SqliteLog(tmp_path / "log.db")
    graph = make_graph()
    yield Runtime(log, graph, Engine(graph, make_model(), threads=1))
    log.close()


def ask(
    app: FastAPI, path: str, body: bytes, kind: str = "application/json", method: str = "POST"
) -> httpx.Response:
    async def call() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.request(method, path, content=body, headers={"content-type": kind})

    return asyncio.run(call())


def refused(answer: httpx.Response, said: str) -> None:
    assert answer.status_code == 413, answer.text
    assert said in answer.json()["detail"]


def test_json_that_becomes_objects_as_a_whole(runtime: Runtime) -> None:
    app = create_app(runtime, limits=Limits(objects=2048))
    many = b'{"events":[' + b",".join([EDGE] * 80) + b"]}"
    refused(
        ask(app, "/v1/events", many), "at most 2,048 bytes, got more: send the events as application/x-ndjson"
    )
    assert ask(app, "/v1/events", b"\n".join([EDGE] * 80), LINES).json()["seq"] == 80
    refused(ask(app, "/v1/events", b" " * 2100 + EDGE, LINES), "line 1: a line must be at most 2,048 bytes")
    refused(ask(app, "/v1/predictions", b'{"ids":[%b1]}' % (b"1," * 1100)), "ask for fewer ids at once")
    refused(
        ask(app, "/v1/predictions", b'{"ids":[%b[]]}' % (b"[]," * 200)),
        "at most 128 lists and objects, got 20",
    )
    assert ask(app, "/v1/predictions", b'{"ids":[%b1]}' % (b"1," * 200)).status_code == 200


def test_lines_are_numbered_as_an_editor_does() -> None:
    text = b"\n\na\n \n\nbc\n" + b"\n" * 70_000 + b"d"
    expected = [(at, line) for at, line in enumerate(text.split(b"\n"), start=1) if line.strip()]
    assert list(json_lines.split_lines(text)) == expected
    assert list(json_lines.split_lines(b"\n" * 10)) == list(json_lines.split_lines(b"")) == []


def test_changes_of_shape_and_entries(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    app = create_app(runtime)
    monkeypatch.setattr(entries, "STRANGERS", json_lines.Limits(runs=4))
    monkeypatch.setattr(entries, "MOST_ENTRIES", 3)
    mixed = b"\n".join([EDGE, GONE] * 3)
    refused(
        ask(app, "/v1/events", mixed, LINES), "line 5: events may change their kind, type or fields 4 times"
    )
    assert ask(app, "/v1/events", b"\n".join([EDGE] * 3 + [GONE] * 3), LINES).status_code == 200
    for body in (b"\n".join([EDGE] * 4), b"\n".join([b"{}"] * 4)):
        refused(ask(app, "/v1/events?partial=true", body, LINES), "at most 3 entries of the log, got more")
    keyed = [EDGE[:-1] + b',"idempotency_key":"%d"}' % number for number in range(4)]
    refused(ask(app, "/v1/events", b"\n".join(keyed), LINES), "at most 3 entries of the log, got more")
    assert runtime.log.last_seq() == 6
    assert ask(app, "/v1/events", b"\n".join(keyed[:3]), LINES).json()["seq"] == 9


def test_ids_and_numbers_of_an_answer(runtime: Runtime) -> None:
    app = create_app(runtime, limits=Limits(ids=5000, samples=3, numbers=3000))
    width = runtime.predict([1]).values.shape[1]
    refused(ask(app, "/v1/predictions", b'{"ids":[%b1]}' % (b"1," * 5000)), "5,000 ids at most, got 5,001")
    refused(ask(app, "/v1/samples", b'{"ids":[1,1,1,1]}'), "3 ids at most, got 4: send several")
    most = 3000 // width
    for path in ("/v1/predictions", "/v1/what-if"):
        events = b',"events":[]' if path == "/v1/what-if" else b""
        asked = b'{"ids":[%b1]%b}'
        refused(ask(app, path, asked % (b"1," * most, events)), f"ask for {most:,} ids at once")
        answer = ask(app, path, asked % (b"1," * (most - 1), events))
        assert len(answer.json()["predictions"]) == most


def hub_of(count: int, *, text: bool = False) -> Graph:
    """Node 0 leads to `count` others, and 1 of these back to it."""
    ids = np.arange(count + 1)
    src, dst = np.append(np.zeros(count, int), 1), np.append(ids[1:], 0)
    weight, x = np.ones(count + 1, np.float32), np.ones((count + 1, WIDTH), np.float32)
    if text:
        src, dst, ids = (np.char.add("n", one.astype(str)) for one in (src, dst, ids))
    return Graph.from_edges(src, dst, weight=weight, x=x, ids=ids)


@pytest.mark.parametrize("text", [False, True])
def test_neighbors_and_changed_nodes_of_an_answer(tmp_path: Path, text: bool) -> None:
    graph = hub_of(20, text=text)
    name = "n0" if text else 0
    with closing(SqliteLog(tmp_path / "log.db")) as log:
        runtime = Runtime(log, graph, Engine(graph, make_model(), threads=1))
        beside, alone = (129, 128) if text else (2, 1)
        asked = {"ids": [name], "events": [{"event": "set_features", "id": name, "x": [9.0] * WIDTH}]}
        for numbers in (20 * beside + 19, 20 * beside - 1):
            app, fits = create_app(runtime, limits=Limits(numbers=numbers)), numbers >= 20 * beside
            for path in (f"/v1/neighbors?id={name}", f"/v1/nodes/{name}/neighbors?"):
                assert len(ask(app, path, b"", method="GET").json()["ids"]) == 1
                answer = ask(app, f"{path}&direction=out", b"", method="GET")
                if fits:
                    assert len(answer.json()["ids"]) == 20
                else:
                    said = f"so {numbers // beside} neighbours here, got 20: raise largest_answer_numbers"
                    refused(answer, said)
        for numbers in (21 * alone, 21 * alone - 1):
            app, fits = create_app(runtime, limits=Limits(numbers=numbers)), numbers >= 21 * alone
            answer = ask(app, "/v1/what-if", json.dumps(asked).encode())
            if fits:
                assert len(answer.json()["changed"]) == answer.json()["num_changed"] == 21
                continue
            refused(
                answer, f"so {numbers // alone} changed nodes here, got 21: ask with changed set to false"
            )
            answer = ask(app, "/v1/what-if", json.dumps(asked | {"changed": False}).encode())
            assert (answer.json()["changed"], answer.json()["num_changed"]) == (None, 21)
            assert len(answer.json()["predictions"]) == 1


def test_a_page_of_refused_entries_ends_where_there_is_no_room(runtime: Runtime) -> None:
    many = Events.concatenate([Events().add_edges(np.ones(8000, int), np.full(8000, 999))] * 3)
    few = Events().add_edges(1, 999)
    runtime.append_all([few, few, many, few, many])
    while runtime.step():
        pass
    app, after, pages = create_app(runtime), 0, []
    while page := ask(app, f"/v1/rejections?after={after}", b"", method="GET").json()["rejections"]:
        after = page[-1]["seq"]
        pages.append([(one["num_events"], len(one["events"])) for one in page])
    fitting = rejections.ROOM // 400
    assert fitting < len(many)
    assert pages == [[(1, 1), (1, 1)], [(len(many), fitting)], [(1, 1)], [(len(many), fitting)]]


@pytest.mark.parametrize("width", [0, 3, 1000])
def test_how_many_events_have_room(width: int) -> None:
    names = ["x" * (at % 50) for at in range(300)]
    events = Events().remove_nodes(names).add_edges(names, names[::-1])
    if width:
        events.set_features(names, np.ones((300, width)))
    sizes = [count_fitting(events.between(at, at + 1), 10**9)[1] for at in range(len(events))]
    assert count_fitting(events, 10**9) == (len(events), sum(sizes))
    for room in (0, sizes[0] - 1, sizes[0], 50_000, sum(sizes) - 1, sum(sizes)):
        fitting, taken = count_fitting(events, room)
        assert taken == sum(sizes[:fitting]) <= room
        assert fitting == len(events) or sum(sizes[: fitting + 1]) > room


def test_a_model_is_a_file_of_bounded_steps(runtime: Runtime) -> None:
    kind = "application/octet-stream"
    app = create_app(runtime, limits=Limits(objects=2048, model=10_000))
    refused(
        ask(app, "/v1/models/b", bytes(10_001), kind, "PUT"), "at most 10,000 bytes, got more: name its file"
    )
    head = b'{"a":[' + b"{}," * 1000 + b"1]}"
    file = len(head).to_bytes(8, "little") + head
    refused(
        ask(app, "/v1/models/b", file, kind, "PUT"), "header of a model's file must be at most 2,048 bytes"
    )


def test_a_message_with_a_long_line_is_a_bad_one() -> None:
    found = kafka.decode_safely(kafka.decode_lines, [b" " * 2**20 + EDGE])[0]
    assert isinstance(found, TooLargeError)
    assert "a line must be at most 1,048,576 bytes" in str(found)
    assert kafka.decode_safely(kafka.decode_lines, [EDGE])[0] == Events().add_edges(1, 2)


def test_a_function_takes_as_much_json_as_a_server() -> None:
    assert Limits().objects == LARGEST_BODY
    for body, said in (
        (
            b'{"ids":[%b1]}' % (b"1," * 600_000),
            "at most 1,048,576 bytes, got 1,200,011: send fewer ids at once",
        ),
        (
            b'{"ids":[%b1]}' % (b"[]," * 70_000),
            "at most 65,536 lists and objects, got 70,002: send it in parts",
        ),
    ):
        for asked in (body, body.decode()):
            with pytest.raises(TooLargeError, match=re.escape(said)) as error:
                read_asked(asked)
            assert answer_error(error.value).status == 413


class UnsaidRows:
    """Predicts ten numbers for each node, and does not say so before."""

    asked = 0

    def predict(self, ids: np.ndarray, *, memory_limit: int | None) -> np.ndarray:
        self.asked += 1
        return np.ones((len(ids), 10), np.float32)

    def describe(self) -> dict[str, object]:
        return {"seq": 1}


class SaidRows(UnsaidRows):
    """Says it."""

    width = 10


@pytest.mark.parametrize("predictor", [SaidRows(), UnsaidRows()], ids=["said", "not said"])
def test_a_function_answers_with_as_many_numbers_as_a_server(predictor: UnsaidRows) -> None:
    assert (Limits().ids, Limits().numbers) == (MOST_IDS, MOST_NUMBERS)
    found = answer_to(predictor, b'{"ids":[%b1]}' % (b"1," * 49_999))
    assert (found.status, len(json.loads(found.body)["predictions"])) == (200, 50_000)
    before = predictor.asked
    found = answer_to(predictor, b'{"ids":[%b1]}' % (b"1," * 50_000))
    assert found.status == 413
    assert b"got 50,001 ids with 10 each: ask for 50,000 ids at once" in found.body
    assert predictor.asked - before == (type(predictor) is UnsaidRows)
    found = answer_to(predictor, b'{"ids":[%b1]}' % (b"1," * 100_000))
    assert found.status == 413
    assert b"100,000 ids at most, got 100,001: send several" in found.body


def test_texts_are_their_own_bytes() -> None:
    names = ["", "x" * 1024, "é", "🚀", "a"]
    texts = Texts.of(names)
    assert texts.tolist() == names
    assert [texts[at] for at in range(-5, 5)] == [*names, *names]
    assert Texts.join([texts[1:3], texts[3:], Texts.of([]), texts[:1]]).tolist() == [*names[1:], ""]
    assert Texts.read(texts[1:4].encoded(), 3) == Texts.of(names[1:4])
    assert (texts.longest(), Texts.of([]).longest(), Texts.of(["ab", "c"]).longest()) == (1024, 0, 2)
    assert texts.nbytes < 1024 + 100
    for wrong, count in ((b"a\0b", 1), (b"a", 2), (b"\xff", 1), (b"a", 0)):
        with pytest.raises(ValueError, match=r"text ids|decode"):
            Texts.read(wrong, count)
    events = Events().add_nodes(["x" * 1024, *["a"] * 1000])
    again = Events.from_bytes(events.to_bytes())
    assert again == events
    assert again.chunks[0].ids.nbytes < 16 * 1024
    lines = Events.from_json_lines(events.to_json_lines())
    assert lines == events
    assert lines.chunks[0].ids.nbytes < 16 * 1024


def test_a_wrong_place_of_a_text_is_refused() -> None:
    import livegnn._core as _core

    ids = _core.TextIds()
    assert ids.find((b"a\0b", np.array([0, 2, 4]))).tolist() == [-1, -1]
    for places in ([], [0, 9], [2, 0], [-1, 1], [0, 0]):
        with pytest.raises((ValueError, InputError)):
            ids.find((b"a\0b", np.array(places, np.int64)))
