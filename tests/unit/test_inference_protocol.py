"""The Open Inference Protocol: its own words, tensors as JSON and as bytes, and what is refused."""

import asyncio
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import numpy as np
import orjson
import pytest
from fastapi import FastAPI
from hypothesis import given
from hypothesis import strategies as st

import livegnn
from livegnn import Engine, InputError
from livegnn.http.inference_protocol import LENGTH, AnswerForm, read_infer, write_infer
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import Runtime
from livegnn.server import create_app
from livegnn.server.bodies import Limits
from streams import make_graph, make_model

MODEL = "/v2/models/engine"
MIB = 2**20


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


@pytest.mark.parametrize("text", ["a\\u0000b", "\\ud800", "x" * 1025])
def test_texts_that_are_no_ids_are_refused(runtime: Runtime, text: str) -> None:
    head = b'{"inputs":[{"name":"ids","shape":[1],"datatype":"BYTES","data":["%b"]}]}' % text.encode()
    answer = ask(create_app(runtime), "POST", f"{MODEL}/infer", content=head)
    assert (answer.status_code, list(answer.json())) == (400, ["error"]), answer.text


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
        read_infer(body + b"12345678", str(len(body)), MIB)
    twice = orjson.dumps({"inputs": [tensor], "outputs": [{"name": "a"}, {"name": "a"}]})
    with pytest.raises(InputError, match="each output once"):
        read_infer(twice, None, MIB)
    for parameters in ({"classification": 3}, {"binary_data": 1}, {"binary_data": "yes"}):
        asked = orjson.dumps({"inputs": [tensor], "outputs": [{"name": "a", "parameters": parameters}]})
        with pytest.raises(InputError):
            read_infer(asked, None, MIB)


def test_a_compressed_body_is_refused_by_its_true_reason(runtime: Runtime) -> None:
    app = create_app(runtime)
    for path in (f"{MODEL}/infer", "/v1/predictions"):
        answer = ask(app, "POST", path, content=b"x", headers={"content-encoding": "gzip"})
        assert answer.status_code == 415
        assert "must not be compressed" in answer.text


def behind(size: int, kind: str = "INT64") -> bytes:
    """A request whose tensor is so many bytes behind it."""
    return request_of({"shape": [1], "datatype": kind, "parameters": {"binary_data_size": size}})


TENSOR = {"name": "ids", "shape": [1], "datatype": "INT64", "data": [1]}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ([], "the body must be an object, got \\[\\]"),
        ({"inputs": [TENSOR], "more": 1}, "may have the fields id, parameters, inputs, outputs, got 'more'"),
        ({}, "inputs must be a list, got None"),
        ({"inputs": [TENSOR, TENSOR]}, "one tensor 'ids', got \\['ids', 'ids'\\]"),
        ({"inputs": [{**TENSOR, "name": "x"}]}, "one tensor 'ids', got \\['x'\\]"),
        ({"inputs": [{"shape": [1]}]}, "with a text 'name'"),
        ({"inputs": [5]}, "with a text 'name', got 5"),
        ({"inputs": [{**TENSOR, "extra": 1}]}, "the tensor 'ids' may have .* got 'extra'"),
        ({"inputs": [{**TENSOR, "datatype": "INT32"}]}, "INT64 or BYTES, got 'INT32'"),
        ({"inputs": [{**TENSOR, "datatype": ["INT64"]}]}, "INT64 or BYTES, got"),
        ({"inputs": [{**TENSOR, "shape": [True]}]}, "the shape of ids must be \\[1\\]"),
        ({"inputs": [{**TENSOR, "shape": [1.0]}]}, "the shape of ids must be \\[1\\]"),
        ({"inputs": [{**TENSOR, "shape": None}]}, "the shape of ids must be \\[1\\], .* got None"),
        ({"inputs": [{**TENSOR, "data": [None]}]}, "must be INT64, int in JSON, got None"),
        ({"inputs": [{**TENSOR, "data": {}}]}, "data must be a list, got {}"),
        ({"inputs": [{**TENSOR, "parameters": {"shared": 1}}]}, "binary_data_size, got 'shared'"),
        ({"inputs": [{**TENSOR, "parameters": None}]}, "parameters of ids must be an object, got None"),
        ({"inputs": [TENSOR], "id": 7}, "id must be a text .* got 7"),
        ({"inputs": [TENSOR], "parameters": {"min_seq": -1}}, "min_seq must be an integer from 0"),
        ({"inputs": [TENSOR], "parameters": {"min_seq": True}}, "min_seq must be .* got True"),
        ({"inputs": [TENSOR], "parameters": {"min_seq": None}}, "min_seq must be .* got None"),
        (
            {"inputs": [TENSOR], "parameters": {"timeout": 0}},
            "timeout must be an integer from 1 to 300000000",
        ),
        ({"inputs": [TENSOR], "parameters": {"timeout": 1.5}}, "timeout must be .* got 1.5"),
        ({"inputs": [TENSOR], "parameters": {"binary_data_output": 1}}, "must be true or false, got 1"),
        ({"inputs": [TENSOR], "parameters": {"priority": 1}}, "got 'priority'"),
        ({"inputs": [TENSOR], "outputs": {}}, "outputs must be a list, got {}"),
        ({"inputs": [TENSOR], "outputs": [{"name": 1}]}, "with a text 'name'"),
        (
            {"inputs": [TENSOR], "outputs": [{"name": "a", "data": []}]},
            "the output 'a' may have .* got 'data'",
        ),
    ],
)
def test_each_wrong_part_is_refused_by_its_name(body: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_infer(orjson.dumps(body), None, MIB)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"inputs": [], "inputs": []}', "a field once, got 'inputs' twice"),
        (b'{"inputs": [], "id": "\\ud800"}', "halves of surrogate pairs"),
        (b'{"inputs": NaN}', "must be JSON, got NaN"),
        (b"[" * 100_000, "lists and objects|must be JSON"),
        ('{"inputs": []}'.encode("utf-16"), "must be JSON"),
        (b'{"inputs": [%b1]}' % (b"[]," * 66_000), "at most 65,536 lists and objects"),
    ],
)
def test_what_is_not_strict_json_is_refused(body: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_infer(body, None, MIB)


def test_a_field_twice_among_very_many_is_found_at_once() -> None:
    body = b"{%b}" % b",".join(b'"%x":1' % (name % 65_000) for name in range(65_001))
    with pytest.raises(InputError, match="'0' twice"):
        read_infer(body, None, MIB)


def test_the_codec_loads_no_framework() -> None:
    program = "import sys, livegnn.http.inference_protocol; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    modules = set(loaded.stdout.split())
    assert "livegnn.http.inference_protocol" in modules
    assert not modules & {"fastapi", "starlette", "pydantic", "orjson", "livegnn.runtime", "livegnn.server"}


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
        read_infer(request_of(tensor), None, MIB)


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
        read_infer(body + rest, str(len(body)), MIB)


@pytest.mark.parametrize("length", ["-1", "3", "²", "", "1.0", "9" * 5000])
def test_a_wrong_length_of_the_json_is_refused(length: str) -> None:
    with pytest.raises(InputError, match=LENGTH):
        read_infer(b"{}", length, MIB)


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1)) | st.lists(st.text().filter(lambda text: text.isprintable()))
)
def test_json_and_bytes_are_the_same_request(ids: list[int | str]) -> None:
    kind = "BYTES" if ids and isinstance(ids[0], str) else "INT64"
    rest = binary_of(ids) if ids else b""
    body = request_of({"shape": [len(ids)], "datatype": kind, "parameters": {"binary_data_size": len(rest)}})
    plain = request_of({"shape": [len(ids), 1], "datatype": kind, "data": [[one] for one in ids]})
    assert read_infer(body + rest, str(len(body)), MIB) == read_infer(plain, None, MIB)


@given(st.binary(max_size=300), st.none() | st.integers(-3, 300))
def test_any_bytes_are_read_or_refused(body: bytes, length: int | None) -> None:
    with suppress(InputError):
        read_infer(body, None if length is None else str(length), MIB)


def test_outputs_are_as_bytes_where_the_request_says_so() -> None:
    rows = {"a": np.ones((2, 3), np.float32), "b": np.zeros((2, 1), np.float32)}
    answer = write_infer(AnswerForm(None, {"a": True, "b": False}), "m", "v", 5, rows)
    length = int(answer.headers()[LENGTH])
    head = orjson.loads(answer.body[:length])
    assert [sorted(one) for one in head["outputs"]] == [
        ["datatype", "name", "parameters", "shape"],
        ["data", "datatype", "name", "shape"],
    ]
    assert len(answer.body) - length == 24
