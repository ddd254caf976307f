"""The handler under AWS's own runtime client, against the Runtime API of the platform, over HTTP."""

import base64
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from functions import ENVIRONMENT, FAIL, ROOM, asked, body, expected
from livegnn.functions.options import PREDICTOR
from livegnn.snapshots.writer import write_snapshot
from streams import make_graph, make_model
from waiting import PATIENCE, wait_until

COMMAND = (sys.executable, "-m", "awslambdaric", "livegnn.functions.lambda_handler.handler")


class RuntimeApi(ThreadingHTTPServer):
    """`/2018-06-01/runtime`: gives an invocation to whoever asks for the next one, and takes its answer."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Requests)
        self.events: queue.Queue[object] = queue.Queue()
        self.answers: queue.Queue[tuple[str, dict]] = queue.Queue()
        threading.Thread(target=self.serve_forever).start()


class _Requests(BaseHTTPRequestHandler):
    server: RuntimeApi
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        assert self.path == "/2018-06-01/runtime/invocation/next"
        event = self.server.events.get()
        if event is None:  # the platform freezes an instance, and then ends it
            self.close_connection = True
            return
        content = json.dumps(event).encode()
        self.send_response(200)
        for name, value in {
            "Lambda-Runtime-Aws-Request-Id": "8476a536-e9f4-11e8-9739-2dfe598c3fcd",
            "Lambda-Runtime-Deadline-Ms": str(int(1000 * (time.time() + PATIENCE))),
            "Lambda-Runtime-Invoked-Function-Arn": "arn:aws:lambda:eu-west-1:123456789012:function:livegnn",
            "Content-Type": "application/json",
            "Content-Length": str(len(content)),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def do_POST(self) -> None:
        content = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.answers.put((self.path.removeprefix("/2018-06-01/runtime/"), content))
        self.send_response(202)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


class Instance:
    """An instance of the function, as the platform's image for Python runs it."""

    def __init__(self, folder: Path, command: Sequence[str] = COMMAND, **variables: str) -> None:
        self.api = RuntimeApi()
        environment = {
            **os.environ,
            **ENVIRONMENT,
            "LC_ALL": "C.UTF-8",  # the client reads names of headers by the rules of the language
            "AWS_LAMBDA_RUNTIME_API": f"127.0.0.1:{self.api.server_port}",
            "LIVEGNN_SNAPSHOT": str(folder),
            "LIVEGNN_MODEL": "none",
            "LIVEGNN_FUNCTION": "functions:open_snapshot",
            **variables,
        }
        self.process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)

    def invoke(self, event: object) -> dict:
        self.api.events.put(event)
        path, answer = self.answer()
        assert path.endswith("/response"), (path, answer)
        return answer

    def answer(self) -> tuple[str, dict]:
        """What comes next. Raises AssertionError with what the instance has said when it ends."""
        wait_until(lambda: not self.api.answers.empty() or self.process.poll() is not None)
        if self.api.answers.empty():
            raise AssertionError(self.process.communicate()[1].decode(errors="replace")[-3000:])
        return self.api.answers.get()

    def __enter__(self) -> "Instance":
        return self

    def __exit__(self, *_: object) -> None:
        self.api.events.put(None)
        self.process.kill()
        self.process.communicate()
        self.api.shutdown()
        self.api.server_close()


def rest_event(method: str, path: str, content: str | None, **fields: object) -> dict:
    """Of a REST API: payload format 1.0."""
    return {
        "resource": "/{proxy+}",
        "path": path,
        "httpMethod": method,
        "headers": {"Content-Type": "application/json", "Host": "x.execute-api.eu-west-1.amazonaws.com"},
        "multiValueHeaders": {"Content-Type": ["application/json"]},
        "queryStringParameters": None,
        "multiValueQueryStringParameters": None,
        "pathParameters": {"proxy": path.lstrip("/")},
        "stageVariables": None,
        "requestContext": {"httpMethod": method, "path": f"/prod{path}", "stage": "prod", "apiId": "x"},
        "body": content,
        "isBase64Encoded": False,
        **fields,
    }


def http_event(method: str, path: str, content: str | None, **fields: object) -> dict:
    """Of an HTTP API or a function URL: payload format 2.0."""
    found = {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": "",
        "headers": {"content-type": "application/json", "host": "x.lambda-url.eu-west-1.on.aws"},
        "requestContext": {
            "accountId": "anonymous",
            "http": {"method": method, "path": path, "protocol": "HTTP/1.1", "sourceIp": "192.0.2.1"},
            "stage": "$default",
        },
        "isBase64Encoded": False,
        **fields,
    }
    return found if content is None else {**found, "body": content}


def test_events_of_gateways_and_function_urls(tmp_path) -> None:
    with Instance(tmp_path) as instance:
        wanted = expected(3, 9)
        text = body(3, 9).decode()
        packed = base64.b64encode(body(3, 9)).decode()
        for event in (
            rest_event("POST", "/v1/predictions", text),
            rest_event("POST", "/v1/predictions", packed, isBase64Encoded=True),
            http_event("POST", "/v1/predictions", text),
            http_event("POST", "/prod/v1/predictions", packed, isBase64Encoded=True),
        ):
            answer = instance.invoke(event)
            assert (answer["statusCode"], answer["isBase64Encoded"]) == (200, False)
            assert answer["headers"] == {"content-type": "application/json"}
            content = json.loads(answer["body"])
            assert (content["seq"], content["ids"]) == (7, [3, 9])
            assert np.allclose(content["predictions"], wanted, atol=1e-5)
        assert set(asked(tmp_path, 3)) == {str(instance.process.pid)}, "opened once, in the init phase"

        for make in (rest_event, http_event):
            health = instance.invoke(make("GET", "/v1/health", None))
            assert (health["statusCode"], json.loads(health["body"])["seq"]) == (200, 7)


def test_predictions_from_a_snapshot(tmp_path) -> None:
    write_snapshot(make_graph(), str(tmp_path / "snapshot"), seq=5)
    make_model().save(tmp_path / "model.lgnn")
    variables = {
        "LIVEGNN_SNAPSHOT": str(tmp_path / "snapshot"),
        "LIVEGNN_MODEL": str(tmp_path / "model.lgnn"),
        "LIVEGNN_FUNCTION": PREDICTOR,
    }
    with Instance(tmp_path, **variables) as instance:
        answer = instance.invoke(http_event("POST", "/v1/predictions", body(3, 9).decode()))
        assert answer["statusCode"] == 200, answer
        assert np.allclose(json.loads(answer["body"])["predictions"], expected(3, 9), atol=1e-5)


@pytest.mark.parametrize("make", [rest_event, http_event])
def test_what_is_wrong_is_an_answer_over_http(tmp_path, make) -> None:
    with Instance(tmp_path) as instance:

        def refused(event: object) -> tuple[int, str]:
            answer = instance.invoke(event)
            assert answer["headers"]["content-type"] == "application/problem+json"
            return answer["statusCode"], json.loads(answer["body"])["type"]

        path = "/v1/predictions"
        assert refused(make("POST", path, body(40).decode())) == (404, "/problems/unknown-node")
        assert refused(make("POST", path, "{")) == (400, "/problems/invalid-input")
        assert refused(make("POST", path, None)) == (400, "/problems/invalid-input")
        assert refused(make("POST", path, "%%%", isBase64Encoded=True)) == (400, "/problems/invalid-input")
        assert refused(make("POST", path, body(3, min_seq=9).decode())) == (503, "/problems/timeout")
        assert refused(make("POST", path, body(FAIL).decode())) == (500, "/problems/unforeseen")
        assert refused(make("GET", path, None)) == (405, "/problems/unknown-method")
        parameters = {"rawQueryString": "foo=1", "queryStringParameters": {"foo": "1"}}
        for method, at in (("POST", path), ("GET", "/v1/health")):
            asked_for = make(method, at, body(3).decode(), **parameters)
            assert refused(asked_for) == (400, "/problems/invalid-input")
        assert refused(make("GET", "/v1/models", None)) == (404, "/problems/unknown-path")
        assert refused({"ids": [3]}) == (400, "/problems/invalid-input")
        assert refused([3]) == (400, "/problems/invalid-input")
        good = instance.invoke(make("POST", path, body(3).decode()))
        assert good["statusCode"] == 200


def test_an_answer_that_the_platform_would_not_take_is_refused(tmp_path) -> None:
    with Instance(tmp_path, LIVEGNN_FUNCTION="functions:open_wide") as instance:

        def ask(count: int) -> dict:
            return instance.invoke(http_event("POST", "/v1/predictions", json.dumps({"ids": [3] * count})))

        found = ask(100_000)
        assert found["statusCode"] == 413
        assert "at most 6,000,000 bytes" in json.loads(found["body"])["detail"]
        assert ask(70_000)["statusCode"] == 200


def test_a_request_may_take_what_the_instance_has_left(tmp_path) -> None:
    with Instance(tmp_path, AWS_LAMBDA_FUNCTION_MEMORY_SIZE="1024") as instance:
        answer = instance.invoke(http_event("POST", "/v1/predictions", body(ROOM).decode()))
        told = json.loads(answer["body"])["detail"]
        assert 512 * 2**20 < int(told.removeprefix("room ")) < 1024 * 2**20


def test_a_function_that_cannot_begin_says_why(tmp_path) -> None:
    with Instance(tmp_path, LIVEGNN_FUNCTION="functions:nothing") as instance:
        path, answer = instance.answer()
        assert path == "init/error"
        assert "nothing" in answer["errorMessage"]
        assert instance.process.wait(PATIENCE) != 0
