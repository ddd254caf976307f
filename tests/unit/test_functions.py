"""What a function is asked and answers, as bytes; predictors in one stage and in two."""

import asyncio
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import functions
import livegnn.functions.function as function_module
import livegnn.functions.machine as machine
from faulty_store import FaultyStore
from functions import GraphPredictor, answer_to, body, expected, message
from livegnn import Events, Graph
from livegnn.errors import FileFormatError, InputError, OverloadedError, StoreUnavailableError, TimeoutExpired
from livegnn.functions.bodies import (
    LARGEST_BODY,
    Answer,
    Asked,
    answer_error,
    read_asked,
    read_infer_asked,
)
from livegnn.functions.function import Function, answer
from livegnn.functions.messages import pack, unpack
from livegnn.functions.scheduler import Limits
from livegnn.functions.stage import Stage
from livegnn.functions.threads import ThreadHost
from livegnn.functions.worker import FRAME, pack_answer, unpack_answer
from livegnn.http.inference_protocol import AnswerForm
from livegnn.remote.predictor import SnapshotPredictor
from livegnn.snapshots.objects import Objects
from livegnn.snapshots.snapshot_source import SnapshotSource
from livegnn.snapshots.stores import open_store
from livegnn.snapshots.view import SnapshotView
from streams import WIDTH, make_model


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        (b'{"ids": [1, 7]}', Asked([1, 7])),
        (b'{"ids": []}', Asked([])),
        (b'{"ids": ["a", ""], "min_seq": 3, "timeout": 0.5}', Asked(["a", ""], 3, 0.5)),
        (b'{"timeout": 300, "ids": [9223372036854775807]}', Asked([2**63 - 1], 0, 300.0)),
    ],
)
def test_what_is_asked_is_read(text: bytes, asked: Asked) -> None:
    assert read_asked(text) == asked


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "must be JSON"),
        (b"\xff\xfe", "must be JSON"),
        (b"[" * 100_000, "must be JSON"),
        ('{"ids": [1]}'.encode("utf-16"), "must be JSON"),
        ('{"ids": [1]}'.encode("utf-32-le"), "must be JSON"),
        ('{"ids": [1]}'.encode("utf-8-sig"), "must be JSON"),
        ('{"ids": ["n\u00e9"]}'.encode("latin-1"), "must be JSON"),
        (b'{"ids": NaN}', "must be JSON, got NaN"),
        (b"[1]", "field 'ids'"),
        (b"{}", "field 'ids'"),
        (b'{"ids": [1], "ids": [2]}', "'ids' twice"),
        (b'{"ids": [1], "output": "x"}', "got 'output'"),
        (b'{"ids": 1}', "a list"),
        (b'{"ids": [1.0]}', "got 1.0"),
        (b'{"ids": [true]}', "got True"),
        (b'{"ids": [1, "a"]}', "integers or of texts"),
        (b'{"ids": ["a", "b\\u0000"]}', "no NUL"),
        (b'{"ids": ["\\ud800"]}', "surrogate"),
        (b'{"ids": [-1]}', "got -1"),
        (b'{"ids": [1, 9223372036854775808]}', "got 9223372036854775808"),
        (b'{"ids": [1], "min_seq": -1}', "min_seq"),
        (b'{"ids": [1], "min_seq": true}', "min_seq"),
        (b'{"ids": [1], "timeout": 0}', "timeout"),
        (b'{"ids": [1], "timeout": 1e999}', "timeout"),
        (b'{"ids": [1], "timeout": "1"}', "timeout"),
    ],
)
def test_what_is_no_question_is_refused(text: bytes, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_asked(text)


@pytest.mark.parametrize(
    ("data", "kind", "said"),
    [
        ('["a\\u0000b"]', "BYTES", "no NUL"),
        ('["\\ud800"]', "BYTES", "surrogate"),
        ('["%s"]' % ("x" * 1025), "BYTES", "at most 1,024 characters"),
        ("[-1]", "INT64", "from 0"),
        ("[9223372036854775808]", "INT64", "got 9223372036854775808"),
        ("[%s1]" % (100_000 * "1,"), "INT64", "100,000 ids at most"),
    ],
)
def test_ids_of_a_tensor_are_checked_as_those_of_a_list(data: str, kind: str, said: str) -> None:
    shape = data.count(",") + 1
    body = '{"inputs":[{"name":"ids","shape":[%d],"datatype":"%s","data":%s}]}' % (shape, kind, data)
    with pytest.raises(InputError, match=said):
        read_infer_asked(body.encode(), None, "engine", None)


def test_a_predictor_need_not_know_its_model(tmp_path) -> None:
    question = pack(Asked([], describes=True))
    for stage in ("predict", "sample", "infer"):
        found = json.loads(answer(GraphPredictor(str(tmp_path)), stage, question).body)
        assert (found["name"], found["versions"]) == ("engine", ["1"])
        assert found["outputs"] == [{"name": "output", "datatype": "FP32", "shape": [-1, -1]}]


def test_errors_have_the_status_of_the_server() -> None:
    assert answer_error(OverloadedError("full", retry_after=2.1)).headers()["retry-after"] == "3"
    assert answer_error(OverloadedError("full")).status == 429
    assert answer_error(TimeoutExpired("late")).status == 503
    down = answer_error(StoreUnavailableError("down"))
    assert (down.status, down.headers()["retry-after"]) == (503, "1")
    assert "retry-after" not in answer_error(TimeoutExpired("late")).headers()
    assert answer_error(InputError("wrong")).status == 400
    broken = answer_error(RuntimeError("x" * 10_000))
    assert broken.status == 500
    assert len(broken.body) < 3000
    assert LARGEST_BODY == 2**20


def test_one_stage_and_two_predict_as_the_engine(tmp_path) -> None:
    predictor = GraphPredictor(str(tmp_path))
    asked = message(3, 17, 3, 39)
    whole = answer(predictor, "predict", asked)
    sampled = answer(predictor, "sample", asked)
    halves = answer(GraphPredictor(str(tmp_path)), "infer", sampled.body)
    assert whole == halves
    content = json.loads(whole.body)
    assert (content["seq"], content["ids"]) == (7, [3, 17, 3, 39])
    assert np.allclose(content["predictions"], expected(3, 17, 3, 39), atol=1e-5)


texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
forms = st.builds(
    AnswerForm,
    st.none() | texts,
    st.none() | st.dictionaries(texts, st.booleans(), min_size=1),
    st.booleans(),
)


@given(
    st.lists(st.integers(0, 2**63 - 1)) | st.lists(texts),
    st.integers(0, 2**63 - 1),
    st.none() | forms,
    st.none() | texts,
    st.booleans(),
    st.booleans(),
    st.binary(max_size=9),
)
def test_a_request_is_the_same_after_its_way_to_a_worker(
    ids, min_seq, form, version, describes, checks, more
) -> None:
    asked = Asked(ids, min_seq, form=form, version=version, describes=describes, checks=checks)
    found, rest = unpack(memoryview(pack(asked) + more))
    assert (found._replace(ids=list(found.ids)), bytes(rest)) == (asked, more)


def test_a_body_is_read_once_and_never_by_a_worker(tmp_path, monkeypatch) -> None:
    """All that stages get is `pack`'s: numbers and texts as bytes, and not the body that was sent."""
    read: list[str] = []

    def count(name: str, reads: object) -> object:
        return lambda *given: (read.append(name), reads(*given))[1]

    for name in ("read_asked", "read_infer_asked"):
        monkeypatch.setattr(machine, name, count(name, getattr(machine, name)))
        assert not hasattr(function_module, name)

    async def ask() -> list[Answer]:
        stages = {
            step: Stage(ThreadHost(functions.function(tmp_path, step)), Limits(1))
            for step in ("sample", "infer")
        }
        node = machine.Machine(stages, concurrency=1)
        tensor = {"name": "ids", "shape": [2], "datatype": "INT64", "data": [3, 9]}
        answers = [
            await node.predict(body(3, 9)),
            await node.infer(json.dumps({"inputs": [tensor]}).encode(), None, "engine", None),
        ]
        await node.close()
        return answers

    first, second = asyncio.run(ask())
    assert read == ["read_asked", "read_infer_asked"]
    rows = np.float32(json.loads(first.body)["predictions"])
    np.testing.assert_array_equal(
        np.float32(json.loads(second.body)["outputs"][0]["data"]).reshape(rows.shape), rows
    )
    with pytest.raises(FileFormatError, match="pack it with"):
        unpack(memoryview(body(3)))


class Following(GraphPredictor):
    """Has the newest snapshot when it was refreshed, and counts its work."""

    refreshed = predicted = 0

    def refresh(self) -> None:
        self.refreshed += 1

    def sample(self, ids: np.ndarray) -> bytes:
        self.predicted += 1
        return super().sample(ids)


@pytest.mark.parametrize("stage", ["predict", "sample"])
def test_an_event_that_no_snapshot_shows_costs_no_prediction(tmp_path, stage) -> None:
    predictor = Following(str(tmp_path))
    assert answer(predictor, stage, message(1, min_seq=8)).status == 503
    assert (predictor.refreshed, predictor.predicted) == (1, 0)
    assert answer(predictor, stage, message(1, min_seq=7)).status == 200
    assert (predictor.refreshed, predictor.predicted) == (1, 1)


@pytest.mark.parametrize("stage", ["predict", "sample"])
def test_errors_are_answers(tmp_path, stage) -> None:
    predictor = GraphPredictor(str(tmp_path))

    def ask(text: bytes) -> tuple[int, str]:
        found = answer_to(predictor, text, stage)
        return found.status, json.loads(found.body)["type"]

    assert ask(b"{") == (400, "/problems/invalid-input")
    assert ask(body(40)) == (404, "/problems/unknown-node")
    assert ask(body("n7")) == (400, "/problems/invalid-input")
    assert ask(body(1, min_seq=8)) == (503, "/problems/timeout")
    assert ask(body(functions.FAIL)) == (500, "/problems/unforeseen")
    assert answer(predictor, stage, message(1, min_seq=7)).status == 200


class Away:
    """A predictor whose store does not answer, as the chain of errors of a real one."""

    def predict(self, ids: np.ndarray, *, memory_limit: int | None) -> np.ndarray:
        objects = Objects(FaultyStore(open_store("memory://away"), lambda *_: "error"), patience=0.01)
        objects.get("it")
        raise AssertionError

    sample = predict

    def describe(self) -> dict[str, object]:
        return {"seq": 1}


def test_what_is_expected_is_logged_in_one_line(tmp_path, caplog) -> None:
    found = answer(Away(), "predict", message(1))
    assert (found.status, found.headers()["retry-after"]) == (503, "1")
    (record,) = caplog.records
    assert (record.levelname, record.exc_info) == ("WARNING", None)
    assert "does not answer for it in memory://away" in record.getMessage()
    assert "\n" not in record.getMessage()
    caplog.clear()
    answer(GraphPredictor(str(tmp_path)), "predict", message(functions.FAIL))
    (record,) = caplog.records
    assert record.exc_info is not None


@pytest.mark.parametrize("retry_after", [None, 0.0, 0.25, 1.0])
def test_an_answer_of_a_worker_is_packed_in_a_frame(retry_after: float | None) -> None:
    for status, kind, length in (
        (503, "application/problem+json", None),
        (200, "application/json", None),
        (200, "application/json", 0),
        (200, "application/json", 3),
    ):
        found = Answer(
            status,
            b"body",
            retry_after,
            kind,
            store_requests=3,
            store_bytes=2**40,
            store_retries=2,
            json_length=length,
        )
        frame = pack_answer(found)
        assert len(frame) == FRAME.size
        assert unpack_answer(frame) == (found._replace(body=b""), 4)


def test_a_function_is_data() -> None:
    function = Function("functions:GraphPredictor", {"directory": "d", "seq": 3}, "sample", 2**30)
    assert Function.from_json(function.to_json()) == function
    for wrong in ({"factory": "a"}, {"factory": "a:b", "stage": "both"}, {"factory": "a:b", "memory": 0}):
        with pytest.raises(InputError):
            Function(**wrong)
    with pytest.raises(InputError, match="two stages"):
        Function("functions:WholePredictor", {}, "sample").open()
    assert isinstance(Answer(200, b"").headers(), dict)


def test_whoever_asks_for_a_newer_event_gets_a_newer_snapshot_if_there_is_one(tmp_path: Path) -> None:
    graph = Graph.from_edges([0, 1], [1, 2], x=np.eye(3, WIDTH))
    view = SnapshotView(graph, str(tmp_path), interval=None)
    view.write()
    predictor = SnapshotPredictor(SnapshotSource(str(tmp_path)), make_model(), refresh_seconds=None)
    graph.apply(Events().add_edges([2], [1]))

    def ask(min_seq: int) -> tuple[int, int | None]:
        found = answer_to(predictor, json.dumps({"ids": [1], "min_seq": min_seq}).encode())
        return found.status, json.loads(found.body).get("seq")

    assert ask(1) == (503, None), "no snapshot shows it yet"
    view.write()
    assert ask(0) == (200, 0)
    assert ask(1) == (200, 1)
    view.close()


def test_an_answer_says_what_it_took_of_the_store(tmp_path) -> None:
    class Reader(GraphPredictor):
        read_so_far, retries_so_far = (5, 900), 1

        def predict(self, ids: np.ndarray, *, memory_limit: int | None) -> np.ndarray:
            self.read_so_far, self.retries_so_far = (9, 1000), 3
            return super().predict(ids, memory_limit=memory_limit)

    found = answer(Reader(str(tmp_path)), "predict", message(3))
    assert (found.status, found.store_requests, found.store_bytes, found.store_retries) == (200, 4, 100, 2)
    found = answer(GraphPredictor(str(tmp_path)), "predict", message(3))
    assert (found.store_requests, found.store_bytes, found.store_retries) == (0, 0, 0)
