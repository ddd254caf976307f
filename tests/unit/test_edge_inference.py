"""Scores of edges through the Open Inference Protocol: each edge output is a model, `NAME:OUTPUT`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from livegnn import EdgeSchema, Engine, Events, Graph, Schema
from livegnn.errors import InputError
from livegnn.http.inference_protocol import LENGTH, read_pairs
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import Runtime
from livegnn.server import create_app
from livegnn.types import DEFAULT_EDGE_TYPE
from scored_edges import COLUMNS, WIDTH, make_scorer

Ask = Callable[..., httpx.Response]
RISK, ALIKE = "/v2/models/engine:risk", "/v2/models/engine:alike"


@pytest.fixture(params=[False, True])
def runtime(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Runtime]:
    edges = EdgeSchema(weighted=True, edge_dim=COLUMNS)
    graph = Graph(Schema({"node": WIDTH}, {DEFAULT_EDGE_TYPE: edges}, text_ids=request.param))
    with closing(SqliteLog(tmp_path / "log.db")) as log:
        runtime = Runtime(log, graph, Engine(graph, make_scorer(), threads=1))
        ids = list("abcd") if request.param else [0, 1, 2, 3]
        runtime.append(Events().add_nodes(ids, np.random.default_rng(0).normal(size=(4, WIDTH))))
        runtime.append(Events().add_edges(ids[2], ids[1], weight=1, edge_attr=[1, 2]))
        while runtime.step():
            pass
        yield runtime


@pytest.fixture
def ask(runtime: Runtime) -> Ask:
    app = create_app(runtime)

    def send(
        method: str, path: str, content: bytes | None = None, length: int | None = None
    ) -> httpx.Response:
        async def request() -> httpx.Response:
            transport = httpx.ASGITransport(app, raise_app_exceptions=False)
            headers = {} if length is None else {LENGTH: str(length)}
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                return await client.request(method, path, content=content, headers=headers)

        return asyncio.run(request())

    return send


def ends_of(runtime: Runtime) -> tuple[str, list[Any], list[Any]]:
    text = runtime.graph.schema.text_ids
    return ("BYTES", ["a", "d"], ["b", "c"]) if text else ("INT64", [0, 3], [1, 2])


def tensor(name: str, datatype: str, shape: list[int], **more: object) -> dict[str, object]:
    return {"name": name, "datatype": datatype, "shape": shape, **more}


def test_an_edge_output_is_described_as_a_model(runtime: Runtime, ask: Ask) -> None:
    kind, *_ = ends_of(runtime)
    described = ask("GET", RISK).json()
    assert described["name"] == "engine:risk"
    assert described["versions"] == [runtime.engine.digest]
    assert described["inputs"] == [
        tensor("sources", kind, [-1]),
        tensor("targets", kind, [-1]),
        tensor("edge_attr", "FP32", [-1, COLUMNS]),
        tensor("edge_weight", "FP32", [-1, 1]),
    ]
    assert described["outputs"] == [tensor("risk", "FP32", [-1, 2])]
    assert [one["name"] for one in ask("GET", ALIKE).json()["inputs"]] == ["sources", "targets"]
    assert ask("GET", f"{RISK}/versions/{runtime.engine.digest}/ready").status_code == 503  # the loop stands
    for wrong in ("engine:fraud", "other:risk", "engine:", f"engine:risk/versions/{'0' * 64}"):
        assert ask("GET", f"/v2/models/{wrong}").status_code == 404


def test_pairs_are_scored_from_json_and_from_bytes(runtime: Runtime, ask: Ask) -> None:
    kind, sources, targets = ends_of(runtime)
    attr, weight = np.float32([[0.5, -1.0], [2.0, 0.25]]), np.float32([1.5, 2.5])
    expected = runtime.engine.score(sources, targets, edge_attr=attr, edge_weight=weight, output="risk")
    inputs = [
        tensor("sources", kind, [2], data=sources),
        tensor("targets", kind, [2, 1], data=[[one] for one in targets]),
        tensor("edge_weight", "FP32", [2], data=weight.tolist()),
        tensor("edge_attr", "FP32", [2, 2], data=attr.tolist()),
    ]
    answer = ask("POST", f"{RISK}/infer", json.dumps({"id": "x", "inputs": inputs}).encode()).json()
    (found,) = answer["outputs"]
    assert (answer["id"], answer["model_name"], answer["parameters"]) == (
        "x",
        "engine:risk",
        {"seq": runtime.seq},
    )
    assert (found["name"], found["shape"]) == ("risk", [2, 2])
    np.testing.assert_array_equal(np.float32(found["data"]).reshape(2, 2), expected)

    parts, told = [], []
    for one in inputs:
        if one["datatype"] == "BYTES":
            part = b"".join(
                len(id).to_bytes(4, "little") + id.encode() for id in np.ravel(one["data"]).tolist()
            )
        else:
            part = np.ravel(one["data"]).astype("<i8" if one["datatype"] == "INT64" else "<f4").tobytes()
        parts.append(part)
        size = {"parameters": {"binary_data_size": len(part)}}
        told.append({name: value for name, value in one.items() if name != "data"} | size)
    head = json.dumps({"inputs": told, "parameters": {"binary_data_output": True}}).encode()
    answer = ask("POST", f"{RISK}/infer", head + b"".join(parts), len(head))
    rows = np.frombuffer(answer.content[int(answer.headers[LENGTH]) :], "<f4").reshape(2, 2)
    np.testing.assert_array_equal(rows, expected)


def test_errors_are_those_of_scores(runtime: Runtime, ask: Ask) -> None:
    kind, sources, targets = ends_of(runtime)
    strange: list[Any] = ["z", "b"] if kind == "BYTES" else [0, 99]

    def infer(path: str, *more: dict[str, object], first: list[Any] = sources) -> httpx.Response:
        inputs = [tensor("sources", kind, [2], data=first), tensor("targets", kind, [2], data=targets), *more]
        return ask("POST", f"{path}/infer", json.dumps({"inputs": inputs}).encode())

    assert infer(ALIKE).status_code == 200
    assert infer(ALIKE, first=strange).status_code == 404
    refused = infer(RISK)
    assert (refused.status_code, "reads edge_attr" in refused.json()["error"]) == (400, True)
    assert infer("/v2/models/engine").status_code == 400
    huge = infer(ALIKE, tensor("edge_weight", "FP32", [2], data=[1.0, 1.0]))
    assert "reads no edge_weight" in huge.json()["error"]
    named = json.dumps(
        {"outputs": [{"name": "class"}], "inputs": [tensor("sources", kind, [0], data=[])] * 2}
    )
    assert ask("POST", f"{ALIKE}/infer", named.encode()).status_code == 400


IDS = tensor("sources", "INT64", [1], data=[1])
ENDS = [IDS, IDS | {"name": "targets"}]
WEIGHT = {"name": "edge_weight", "datatype": "FP32"}


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([], "inputs must be the tensors sources, targets and"),
        ([IDS], "inputs must be the tensors"),
        ([IDS, *ENDS], "each once"),
        ([*ENDS, IDS | {"name": "ids"}], "each once"),
        ([IDS | {"datatype": "FP32"}, ENDS[1]], "the datatype of sources must be INT64 or BYTES"),
        ([IDS, ENDS[1] | {"shape": [2]}], r"the shape of targets must be \[1\]"),
        (
            [*ENDS, {**WEIGHT, "shape": [1], "data": ["a"]}],
            "edge_weight must be FP32, numbers in JSON, got 'a'",
        ),
        ([*ENDS, {**WEIGHT, "shape": [1], "data": [True]}], "edge_weight must be FP32, numbers"),
        ([*ENDS, {**WEIGHT, "shape": [2], "data": [1]}], r"the shape of edge_weight must be \[n\] or"),
        ([*ENDS, {**WEIGHT, "shape": [-1, -1], "data": [1]}], "the shape of edge_weight"),
        ([*ENDS, {**WEIGHT, "shape": [1, 2], "data": [1, 1]}], r"shape of edge_weight must be \[n\] or"),
        ([*ENDS, {**WEIGHT, "shape": "n", "data": [1]}], "the shape of edge_weight"),
        ([*ENDS, {**WEIGHT, "shape": [1], "data": [10**400]}], "308 digits|must be"),
        ([*ENDS, {**WEIGHT, "shape": [1], "datatype": "FP64", "data": [1]}], "must be FP32, got 'FP64'"),
        ([*ENDS, {**WEIGHT, "shape": [1]}], "edge_weight must have data, or the parameter"),
        (
            [*ENDS, {**WEIGHT, "shape": [1], "parameters": {"binary_data_size": 4}}],
            "binary_data_size must be 0",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_refused(inputs: list[object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_pairs(json.dumps({"inputs": inputs}).encode(), None, 1 << 20)


@pytest.mark.parametrize("sizes", [[8, 7], [9, 8], [8, -1], [16, 8], [8, True]])
def test_bytes_that_do_not_fit_their_tensors_are_refused(sizes: list[int]) -> None:
    told = [
        {"name": name, "datatype": "INT64", "shape": [1], "parameters": {"binary_data_size": size}}
        for name, size in zip(("sources", "targets"), sizes, strict=True)
    ]
    head = json.dumps({"inputs": told}).encode()
    with pytest.raises(InputError):
        read_pairs(head + bytes(16), str(len(head)), 1 << 20)
    told[0]["parameters"] = told[1]["parameters"] = {"binary_data_size": 8}
    head = json.dumps({"inputs": told}).encode()
    assert read_pairs(head + bytes(16), str(len(head)), 1 << 20).targets == [0]
