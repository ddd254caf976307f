"""The Open Inference Protocol: its own words, tensors as JSON and as bytes, and what is refused."""

import asyncio
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import numpy as np
import orjson
import pytest
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from hypothesis import given
from hypothesis import strategies as st

import livegnn
from livegnn import Engine, InputError
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import Runtime
from livegnn.server import create_app
from livegnn.server.bodies import Limits
from livegnn.server.inference_protocol import LENGTH, InferRequest, read_infer, write_infer
from streams import make_graph, make_model

MODEL = "/v2/models/engine"


@pytest.fixture(params=[False, True], ids=["integers", "texts"])
def runtime(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Runtime]:
    log = SqliteLog(tmp_path / "events.db")
    graph = make_graph(text=request.param)
    runtime = Runtime(log, graph, Engine(graph, make_model(), threads=1))
    runtime.start()
    yield runtime
    runtime.stop()
    log.close()


def ask(
    app: FastAPI,
    method: str,
    path: str,
    *,
    json: object = None,
    content: bytes | None = None,
    headers: dict[str, str] | None = None,
) -> httpx.Response:
    async def request() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.request(method, path, json=json, content=content, headers=headers)

    return asyncio.run(request())


def ids_in(runtime: Runtime) -> list[int | str]:
    return list(runtime.graph.ids("node")[:3].tolist())


def tensor_of(ids: list[int | str]) -> dict[str, object]:
    return {
        "name": "ids",
        "shape": [len(ids)],
        "datatype": "BYTES" if isinstance(ids[0], str) else "INT64",
        "data": ids,
    }


def binary_of(ids: list[int | str]) -> bytes:
    if isinstance(ids[0], int):
        return np.array(ids, "<i8").tobytes()
    return b"".join(struct.pack("<I", len(text)) + text for text in (str(one).encode() for one in ids))


def test_the_server_and_its_model_are_described(runtime: Runtime) -> None:
    app, (state,) = create_app(runtime), runtime.models.states()
    server = ask(app, "GET", "/v2").json()
    assert server == {"name": "livegnn", "version": livegnn.__version__, "extensions": ["binary_tensor_data"]}
    for path in (
        "/v2/health/live",
        "/v2/health/ready",
        f"{MODEL}/ready",
        f"{MODEL}/versions/{state.digest}/ready",
    ):
        assert ask(app, "GET", path).status_code == 200
    described = ask(app, "GET", MODEL).json()
    assert described["versions"] == [state.digest]
    assert described["inputs"][0]["datatype"] == ("BYTES" if runtime.graph.schema.text_ids else "INT64")
    assert [one["datatype"] for one in described["outputs"]] == ["FP32"] * len(described["outputs"])


@pytest.mark.parametrize("as_bytes", [False, True])
@pytest.mark.parametrize("answer_as_bytes", [False, True])
def test_predictions_are_those_of_the_runtime(
    runtime: Runtime, as_bytes: bool, answer_as_bytes: bool
) -> None:
    ids = ids_in(runtime)
    expected = runtime.predict(ids)
    tensor, headers, rest = tensor_of(ids), dict[str, str](), b""
    if as_bytes:
        del tensor["data"]
        rest = binary_of(ids)
        tensor["parameters"] = {"binary_data_size": len(rest)}
    outputs = [{"name": "output", "parameters": {"binary_data": answer_as_bytes}}]
    body = {"id": "7", "inputs": [tensor], "outputs": outputs}
    if as_bytes:
        headers = {LENGTH: str(len(orjson.dumps(body)))}
    answer = ask(
        create_app(runtime), "POST", f"{MODEL}/infer", content=orjson.dumps(body) + rest, headers=headers
    )
    assert answer.status_code == 200, answer.text
    length = int(answer.headers.get(LENGTH, len(answer.content)))
    head = orjson.loads(answer.content[:length])
    (tensor,) = head["outputs"]
    assert (head["id"], head["model_name"], head["parameters"]) == ("7", "engine", {"seq": expected.seq})
    assert (tensor["shape"], tensor["datatype"]) == (list(expected.values.shape), "FP32")
    assert (LENGTH in answer.headers) == answer_as_bytes
    data = np.frombuffer(answer.content[length:], "<f4") if answer_as_bytes else np.float32(tensor["data"])
    np.testing.assert_array_equal(data.reshape(tensor["shape"]), expected.values)


def test_errors_are_texts(runtime: Runtime) -> None:
    app = create_app(runtime)
    for path, body, status in (
        ("/v2/models/other/infer", {"inputs": []}, 404),
        (f"{MODEL}/versions/1/infer", {"inputs": []}, 404),
        (f"{MODEL}/infer", {"inputs": []}, 400),
        (f"{MODEL}/infer", {"inputs": [tensor_of(ids_in(runtime))], "outputs": [{"name": "x"}]}, 400),
        (f"{MODEL}/infer", {"inputs": [tensor_of(ids_in(runtime))], "more": 1}, 400),
        (
            f"{MODEL}/infer",
            {"inputs": [tensor_of(["no such node"])]},
            404 if runtime.graph.schema.text_ids else 400,
        ),
    ):
        answer = ask(app, "POST", path, json=body)
        assert (answer.status_code, list(answer.json())) == (status, ["error"]), answer.text
        assert isinstance(answer.json()["error"], str)
    assert ask(app, "GET", "/v2/models/other").status_code == 404
    assert ask(app, "GET", "/v2/models/other/ready").status_code == 404


def test_a_request_waits_for_min_seq_and_says_so(runtime: Runtime) -> None:
    body = {"inputs": [tensor_of(ids_in(runtime))], "parameters": {"min_seq": 10**6, "timeout": 10_000}}
    answer = ask(create_app(runtime), "POST", f"{MODEL}/infer", json=body)
    assert answer.status_code == 503


def test_more_ids_than_have_room_are_refused(runtime: Runtime) -> None:
    ids = ids_in(runtime)[:1] * 2000
    app = create_app(runtime, limits=Limits(numbers=1024))
    answer = ask(app, "POST", f"{MODEL}/infer", json={"inputs": [tensor_of(ids)]})
    assert answer.status_code == 413


def request_of(tensor: dict[str, object]) -> bytes:
    return orjson.dumps({"inputs": [{"name": "ids", **tensor}]})


def test_nothing_of_a_request_is_dropped() -> None:
    tensor = {"name": "ids", "shape": [1], "datatype": "INT64", "data": [1]}
    body = orjson.dumps({"inputs": [tensor]})
    with pytest.raises(InputError, match="must end with the JSON"):
        read_infer(body + b"12345678", str(len(body)), Limits())
    twice = orjson.dumps({"inputs": [tensor], "outputs": [{"name": "a"}, {"name": "a"}]})
    with pytest.raises(InputError, match="each output once"):
        read_infer(twice, None, Limits())
    for parameters in ({"classification": 3}, {"binary_data": 1}, {"binary_data": "yes"}):
        asked = orjson.dumps({"inputs": [tensor], "outputs": [{"name": "a", "parameters": parameters}]})
        with pytest.raises(RequestValidationError):
            read_infer(asked, None, Limits())


def test_a_compressed_body_is_refused_by_its_true_reason(runtime: Runtime) -> None:
    app = create_app(runtime)
    for path in (f"{MODEL}/infer", "/v1/predictions"):
        answer = ask(app, "POST", path, content=b"x", headers={"content-encoding": "gzip"})
        assert answer.status_code == 415
        assert "must not be compressed" in answer.text


def behind(size: int, kind: str = "INT64") -> bytes:
    """A request whose tensor is so many bytes behind it."""
    return request_of({"shape": [1], "datatype": kind, "parameters": {"binary_data_size": size}})


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        ({"shape": [1], "datatype": "INT64"}, "must have data"),
        ({"shape": [2], "datatype": "INT64", "data": [1]}, "shape"),
        ({"shape": [1], "datatype": "INT64", "data": ["1"]}, "must be INT64"),
        ({"shape": [1], "datatype": "INT64", "data": [True]}, "must be INT64"),
        ({"shape": [1], "datatype": "BYTES", "data": [1]}, "must be BYTES"),
        ({"shape": [1], "datatype": "BYTES", "data": [[["a"]]]}, "must be BYTES"),
        ({"shape": [1], "datatype": "INT64", "data": [[1], []]}, "must be INT64"),
        ({"shape": [2], "datatype": "INT64", "data": [[1, 2]]}, "must be INT64"),
    ],
)
def test_wrong_tensors_in_json_are_refused(tensor: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_infer(request_of(tensor), None, Limits())


@pytest.mark.parametrize(
    ("body", "rest", "message"),
    [
        (behind(8), b"1234567", "binary_data_size must be 7"),
        (behind(7), b"1234567", "8 bytes for each"),
        (behind(5, "BYTES"), b"\2\0\0\0a", "a length and as many bytes"),
        (behind(5, "BYTES"), b"\1\0\0\0\xff", "UTF-8"),
    ],
)
def test_wrong_tensors_in_bytes_are_refused(body: bytes, rest: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_infer(body + rest, str(len(body)), Limits())


@pytest.mark.parametrize("length", ["-1", "3", "²", "", "1.0", "9" * 5000])
def test_a_wrong_length_of_the_json_is_refused(length: str) -> None:
    with pytest.raises(InputError, match=LENGTH):
        read_infer(b"{}", length, Limits())


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1)) | st.lists(st.text().filter(lambda text: text.isprintable()))
)
def test_json_and_bytes_are_the_same_request(ids: list[int | str]) -> None:
    kind = "BYTES" if ids and isinstance(ids[0], str) else "INT64"
    rest = binary_of(ids) if ids else b""
    body = request_of({"shape": [len(ids)], "datatype": kind, "parameters": {"binary_data_size": len(rest)}})
    plain = request_of({"shape": [len(ids), 1], "datatype": kind, "data": [[one] for one in ids]})
    assert read_infer(body + rest, str(len(body)), Limits()) == read_infer(plain, None, Limits())


@given(st.binary(max_size=300), st.none() | st.integers(-3, 300))
def test_any_bytes_are_read_or_refused(body: bytes, length: int | None) -> None:
    with suppress(InputError, RequestValidationError):
        read_infer(body, None if length is None else str(length), Limits())


def test_outputs_are_as_bytes_where_the_request_says_so() -> None:
    rows = {"a": np.ones((2, 3), np.float32), "b": np.zeros((2, 1), np.float32)}
    answer = write_infer(
        InferRequest(None, [1, 2], {"a": True, "b": False}, False, 0, 1.0), "m", "v", 5, rows
    )
    length = int(answer.headers[LENGTH])
    head = orjson.loads(answer.body[:length])
    assert [sorted(one) for one in head["outputs"]] == [
        ["datatype", "name", "parameters", "shape"],
        ["data", "datatype", "name", "shape"],
    ]
    assert len(answer.body) - length == 24
