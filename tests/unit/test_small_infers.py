"""Small requests with binary tensors that are answered without the framework, against the application."""

import gc
import json
import weakref
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.types import Message
from test_small_reads import Request, answer

from gate import draws
from livegnn import Engine, Events
from livegnn.http.inference_protocol import LENGTH
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import Runtime
from livegnn.server import create_app
from livegnn.server.app import ServerApplication
from livegnn.server.bodies import Limits
from streams import WIDTH, make_graph, make_model


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    log, graph = SqliteLog(tmp_path_factory.mktemp("server") / "events.db"), make_graph()
    running = Runtime(log, graph, Engine(graph, make_model(), threads=1))
    rows = np.random.default_rng(1).normal(size=(5, WIDTH)).astype(np.float32)
    running.append(Events().add_nodes(np.arange(5), rows))
    while running.step():
        pass
    yield running
    log.close()


def digest_of(runtime: Runtime) -> str:
    return runtime.models.states()[0].digest


def body_of(head: dict[str, Any], ids: list[int]) -> tuple[bytes, int]:
    text = json.dumps(head).encode()
    return text + np.array(ids, "<i8").tobytes(), len(text)


def head_of(count: int, **more: object) -> dict[str, Any]:
    tensor = {
        "name": "ids",
        "shape": [count],
        "datatype": "INT64",
        "parameters": {"binary_data_size": 8 * count},
    }
    return {"inputs": [tensor], "parameters": {"binary_data_output": True}, **more}


def request(path: str, body: bytes, length: int | str) -> Request:
    headers = [(b"content-length", b"%d" % len(body)), (LENGTH.encode(), str(length).encode())]
    return Request(path, [body], *headers)


def contents(sent: list[Message]) -> object:
    """An answer, with the contents of its JSON, in which the order of fields is free."""
    body = b"".join(message.get("body", b"") for message in sent)
    headers = dict(sent[0]["headers"])
    length = int(headers.pop(LENGTH.encode(), b"0")) or len(body)
    assert headers.pop(b"content-length") == b"%d" % len(body)
    return sent[0]["status"], headers, json.loads(body[:length]), body[length:]


application = cache(lambda runtime, limits: create_app(runtime, limits=limits))

HEADS = st.sampled_from(
    [
        {},
        {"id": "a"},
        {"outputs": [{"name": "y"}]},
        {"outputs": [{"name": "none"}]},
        {"outputs": [{"name": "y", "parameters": {"binary_data": False}}]},
        {"parameters": {"binary_data_output": True, "min_seq": 1}},
        {"parameters": {"binary_data_output": False}},
        {"parameters": {"binary_data_output": True, "min_seq": -1}},
        {"more": 1},
    ]
)
IDS = st.lists(st.sampled_from([0, 1, 2, 4, 4, 9, -1]), max_size=6)


@settings(deadline=None, max_examples=draws(40, 2000))
@given(
    st.lists(
        st.tuples(
            IDS, HEADS, st.sampled_from(["engine", "engine/versions/DIGEST", "other"]), st.integers(-1, 1)
        ),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from([Limits(), Limits(ids=2), Limits(numbers=20)]),
)
def test_both_ways_give_one_answer(
    runtime: Runtime, asked: list[tuple[list[int], dict[str, Any], str, int]], limits: Limits
) -> None:
    app = application(runtime, limits)
    assert isinstance(app, ServerApplication)
    for ids, more, model, off in asked:
        body, length = body_of(head_of(len(ids)) | more, ids)
        path = f"/v2/models/{model.replace('DIGEST', digest_of(runtime))}/infer"
        for _ in range(2):  # unknown JSON, and known
            request_ = request(path, body, length + off * (len(ids) % 2))
            assert contents(answer(app, request_)) == contents(answer(app.answer, request_))


def test_known_json_does_not_reach_the_framework(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    app = create_app(runtime)
    assert isinstance(app, ServerApplication)
    expected = contents(answer(app.answer, request("/v2/models/engine/infer", *body_of(head_of(2), [1, 4]))))
    monkeypatch.setattr(ServerApplication, "answer", None)
    found = contents(
        answer(create_app(runtime), request("/v2/models/engine/infer", *body_of(head_of(2), [1, 4])))
    )
    assert found == expected


def test_another_model_with_the_name_is_asked_from_then_on(tmp_path_factory: pytest.TempPathFactory) -> None:
    log, graph = SqliteLog(tmp_path_factory.mktemp("server") / "events.db"), make_graph()
    runtime = Runtime(log, graph, Engine(graph, make_model(), threads=1))
    runtime.append(Events().add_nodes(np.arange(2), np.ones((2, WIDTH), np.float32)))
    runtime.start()
    app = create_app(runtime)
    assert isinstance(app, ServerApplication)
    for seed in (1, 2):
        runtime.models.deploy("other", make_model(seed), wait=True)
        runtime.wait(runtime.append(Events().set_features([0], np.full((1, WIDTH), seed, np.float32))))
        request_ = request("/v2/models/other/infer", *body_of(head_of(2), [0, 1]))
        for _ in range(2):
            assert contents(answer(app, request_)) == contents(answer(app.answer, request_))
        other = weakref.ref(runtime.models.find("other"))
        runtime.models.remove("other")
        gc.collect()
        assert other() is None  # nothing keeps a removed model
        missing = request("/v2/models/other/infer", *body_of(head_of(2), [0, 1]))
        assert contents(answer(app, missing))[0] == 404  # type: ignore[index]
    runtime.stop()
    log.close()
