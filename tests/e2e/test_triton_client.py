"""The Open Inference Protocol as Triton's own client speaks it to every process that predicts."""

import base64
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

import loopback
from livegnn import Engine
from livegnn.functions.app import Application
from livegnn.functions.settings import MachineSettings
from livegnn.http.keys import create_key
from livegnn.snapshots.writer import write_snapshot
from livegnn.workers.front import create_front
from scraped import scrape
from served import served
from serving import Server, write_deployment
from serving_workers import PLAN, Setting
from streams import make_graph, make_model
from waiting import REQUEST_SECONDS


class Process(NamedTuple):
    """Where a process answers; some ids that it has, and its predictions of these at an event."""

    address: str
    ids: list[int] | list[str]
    seq: int
    predictions: np.ndarray


@contextmanager
def a_server(folder: Path) -> Iterator[Process]:
    with Server(write_deployment(folder)) as server, loopback.Client(base_url=server.address) as client:
        added = {"events": [{"event": "add_edge", "src": 1, "dst": 2}]}
        seq = client.post("/v1/events", json=added).json()["seq"]
        asked = {"ids": "1,2,3", "min_seq": seq, "timeout": REQUEST_SECONDS}
        found = client.get("/v1/predictions", params=asked).json()
        yield Process(server.address, [1, 2, 3], seq, np.float32(found["predictions"]))
        assert server.stop() == 0


@contextmanager
def a_worker(folder: Path) -> Iterator[Process]:
    with ExitStack() as opened:
        setting = Setting(folder, opened)
        ids = np.flatnonzero(PLAN.serving_worker_of(np.arange(20)) == 0)[:3]
        yield Process(setting.addresses[0], ids.tolist(), setting.seq, setting.engine.predict(ids))


@contextmanager
def a_front_end(folder: Path) -> Iterator[Process]:
    with ExitStack() as opened:
        setting = Setting(folder, opened)
        front = opened.enter_context(served(create_front(PLAN, [[one] for one in setting.addresses])))
        ids = [*range(20), 3]
        yield Process(front, ids, setting.seq, setting.engine.predict(ids))


def snapshot_of(folder: Path, *, text: bool = False) -> tuple[str, str, list[int] | list[str], np.ndarray]:
    graph, model = make_graph(text=text), make_model()
    write_snapshot(graph, str(folder / "snapshot"), seq=5)
    model.save(folder / "model.lgnn")
    ids = graph.ids("node")[[3, 9, 3]].tolist()
    return str(folder / "snapshot"), str(folder / "model.lgnn"), ids, Engine(graph, model).predict(ids)


@contextmanager
def a_function(folder: Path, *, text: bool = False, sampling_workers: int = 0) -> Iterator[Process]:
    snapshot, model, ids, predictions = snapshot_of(folder, text=text)
    settings = MachineSettings(snapshot, model, workers=1, sampling_workers=sampling_workers, place="threads")
    with served(Application(settings.open())) as address:
        yield Process(address, ids, 5, predictions)


@contextmanager
def a_function_of_texts(folder: Path) -> Iterator[Process]:
    with a_function(folder, text=True) as process:
        yield process


@contextmanager
def a_function_of_processes(folder: Path) -> Iterator[Process]:
    """In two stages."""
    with a_function(folder, sampling_workers=1) as process:
        yield process


HANDLER = (
    "import json, sys\n"
    "from livegnn.functions.lambda_handler import handler\n"
    "for line in sys.stdin: print(json.dumps(handler(json.loads(line), None)), flush=True)"
)


@contextmanager
def a_lambda(folder: Path) -> Iterator[Process]:
    """Behind a gateway, which sends and takes bodies in base64, after its stage."""
    snapshot, model, ids, predictions = snapshot_of(folder)
    process = subprocess.Popen(
        [sys.executable, "-c", HANDLER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "LIVEGNN_SNAPSHOT": snapshot, "LIVEGNN_MODEL": model},
    )
    calling = threading.Lock()

    class Gateway(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            event = {
                "requestContext": {"http": {"method": self.command}},
                "rawPath": f"/prod{self.path}",
                "headers": dict(self.headers),
                "body": base64.b64encode(body).decode(),
                "isBase64Encoded": True,
            }
            assert process.stdin is not None
            assert process.stdout is not None
            with calling:
                process.stdin.write(json.dumps(event) + "\n")
                process.stdin.flush()
                answer = json.loads(process.stdout.readline())
            content = answer["body"].encode()
            if answer["isBase64Encoded"]:
                content = base64.b64decode(content)
            self.send_response(answer["statusCode"])
            for name, value in {**answer["headers"], "content-length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Gateway) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            yield Process(f"http://127.0.0.1:{server.server_port}", ids, 5, predictions)
        finally:
            server.shutdown()
            process.kill()
            process.communicate()


PROCESSES = (
    a_server,
    a_worker,
    a_front_end,
    a_function,
    a_function_of_texts,
    a_function_of_processes,
    a_lambda,
)


@pytest.fixture(scope="module", params=PROCESSES, ids=lambda make: make.__name__)
def process(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with request.param(tmp_path_factory.mktemp("process")) as process:
        yield process


@pytest.fixture(scope="module")
def client(process: Process) -> Iterator[triton.InferenceServerClient]:
    other = triton.InferenceServerClient(
        process.address.removeprefix("http://"), network_timeout=REQUEST_SECONDS
    )
    yield other
    other.close()


def input_of(ids: list[int] | list[str], *, binary: bool) -> triton.InferInput:
    text = isinstance(ids[0], str)
    given = triton.InferInput("ids", [len(ids)], "BYTES" if text else "INT64")
    given.set_data_from_numpy(np.array(ids, object if text else np.int64), binary_data=binary)
    return given


def test_tritons_client_finds_the_model(process: Process, client: triton.InferenceServerClient) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.get_server_metadata()["name"] == "livegnn"
    described = client.get_model_metadata("engine")
    (version,) = described["versions"]
    kind = "BYTES" if isinstance(process.ids[0], str) else "INT64"
    assert described["inputs"] == [{"name": "ids", "datatype": kind, "shape": [-1]}]
    assert described["outputs"][0] == {
        "name": "output",
        "datatype": "FP32",
        "shape": [-1, process.predictions.shape[1]],
    }
    for given in ("", version):
        assert client.is_model_ready("engine", given)
        assert client.get_model_metadata("engine", given) == described
    for name, given in (("engine", "none"), ("other", "")):
        assert not client.is_model_ready(name, given)
        with pytest.raises(InferenceServerException, match=r"there is no model 'other'|, got 'none'"):
            client.get_model_metadata(name, given)


@pytest.mark.parametrize("binary", [False, True])
def test_tritons_client_reads_predictions(
    process: Process, client: triton.InferenceServerClient, binary: bool
) -> None:
    ids = input_of(process.ids, binary=binary)
    described = client.get_model_metadata("engine")
    (version,) = described["versions"]
    for outputs in ([triton.InferRequestedOutput("output", binary_data=binary)], None):
        answer = client.infer(
            "engine",
            [ids],
            model_version=version,
            outputs=outputs,
            request_id="7",
            timeout=int(REQUEST_SECONDS * 1e6),
            parameters={"min_seq": process.seq},
        )
        told = answer.get_response()
        sent = [one["name"] for one in told["outputs"]]
        assert sent == (["output"] if outputs else [one["name"] for one in described["outputs"]])
        assert (told["id"], told["model_name"], told["model_version"]) == ("7", "engine", version)
        assert told["parameters"]["seq"] == process.seq
        np.testing.assert_allclose(answer.as_numpy("output"), process.predictions, rtol=1e-5, atol=1e-6)


def test_requests_are_counted_by_the_template_of_their_route(
    process: Process, client: triton.InferenceServerClient
) -> None:
    metrics = loopback.get(f"{process.address}/metrics")
    if metrics.status_code == 404:
        return  # of a Lambda, which its platform counts
    counted = 'livegnn_http_requests_total{method="POST",route="/v2/models/{name}/infer",status="200"}'
    before = scrape(metrics.text).get(counted, 0)
    client.infer("engine", [input_of(process.ids, binary=True)])
    assert scrape(loopback.get(f"{process.address}/metrics").text)[counted] == before + 1


def test_tritons_client_is_told_what_is_wrong(process: Process, client: triton.InferenceServerClient) -> None:
    ids = input_of(process.ids, binary=True)
    (version,) = client.get_model_metadata("engine")["versions"]
    with pytest.raises(InferenceServerException, match="there is no model 'other': there are engine"):
        client.infer("other", [ids])
    with pytest.raises(InferenceServerException, match=f"the version of engine is {version}, got 'none'"):
        client.infer("engine", [ids], model_version="none")
    with pytest.raises(InferenceServerException, match=r"'output'.* got 'none'"):
        client.infer("engine", [ids], outputs=[triton.InferRequestedOutput("none")])
    with pytest.raises(InferenceServerException, match=r"\[503\] "):
        client.infer("engine", [ids], parameters={"min_seq": process.seq + 1000}, timeout=1000)
    other_kind = [1] if isinstance(process.ids[0], str) else ["a"]
    with pytest.raises(InferenceServerException, match=r"\[400\] .*ids"):
        client.infer("engine", [input_of(other_kind, binary=True)])


def test_tritons_client_sends_a_key(tmp_path: Path) -> None:
    deployment = write_deployment(tmp_path)
    deployment.write_text(deployment.read_text(encoding="utf-8") + 'keys = "keys.json"\n', encoding="utf-8")
    headers = {"authorization": f"Bearer {create_key(tmp_path / 'keys.json', 'triton', ['read'])}"}
    with Server(deployment) as server:
        client = triton.InferenceServerClient(server.address.removeprefix("http://"))
        assert client.is_server_ready()
        assert client.is_model_ready("engine", headers=headers)
        assert not client.is_model_ready("engine")
        client.close()
        assert server.stop() == 0
