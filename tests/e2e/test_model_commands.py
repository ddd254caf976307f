"""`livegnn model` beside a server that runs under load, is killed, and starts again."""

import json
import threading
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pytest
from typer.testing import CliRunner

import loopback
from livegnn import Engine, Events, Graph, Query
from livegnn.cli import app
from livegnn.deployment import Deployment
from livegnn.errors import InputError, LiveGNNError
from livegnn.model import Input, Model, Step
from serving import Server, write_deployment
from streams import WIDTH, make_model, make_stream
from waiting import REQUEST_SECONDS

IDS = ",".join(map(str, range(0, 40, 5)))


def call(server: Server, *arguments: object) -> str:
    """What `livegnn model` prints. Raises the error that the user is shown."""
    result = CliRunner().invoke(app, ["model", *map(str, arguments)], env={"LIVEGNN_SERVER": server.address})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def predictions(server: Server, **query: str) -> list[list[float]]:
    answer = loopback.get(f"{server.address}/v1/predictions", params={"ids": IDS, **query})
    assert answer.status_code == 200, answer.text
    rows: list[list[float]] = answer.json()["predictions"]
    return rows


class Load:
    """Threads that post events and read, until they are stopped; every answer must be a good one."""

    def __init__(self, server: Server) -> None:
        self.address, self.posted, self.read, self.wrong = server.address, 0, 0, list[str]()
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=run) for run in (self._post, self._read)]
        for thread in self._threads:
            thread.start()

    def _post(self) -> None:
        with loopback.Client(base_url=self.address) as client:
            for events in make_stream(5000, seed=5):
                if self._stopping.is_set():
                    return
                lines = events.to_json_lines()
                answer = client.post(
                    "/v1/events", content=lines, headers={"content-type": "application/x-ndjson"}
                )
                self._check(answer)
                self.posted = answer.json()["seq"]

    def _read(self) -> None:
        with loopback.Client(base_url=self.address) as client:
            while not self._stopping.is_set():
                self._check(client.get("/v1/predictions", params={"ids": "0"}), may_be_gone=True)
                self.read += 1

    def _check(self, answer: httpx.Response, *, may_be_gone: bool = False) -> None:
        if answer.status_code != 200 and not (may_be_gone and answer.status_code == 404):
            self.wrong.append(answer.text)

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()


def test_a_model_takes_over_under_load_and_stays_after_a_crash(tmp_path: Path) -> None:
    path = write_deployment(tmp_path)
    better = tmp_path / "better.lgnn"
    make_model(7).save(better)
    with Server(path) as server:
        load = Load(server)
        said = call(server, "deploy", better, "--hold")
        assert "better follows the graph" in said
        assert "better beside engine" in said
        listed = call(server, "list").splitlines()
        assert [line.split()[:3] for line in listed] == [
            ["*", "engine", "following"],
            ["better", "following", make_model(7).digest[:12]],
        ]
        assert "better beside engine" in call(server, "compare", "better", "--tolerance", 0)
        switched = call(server, "switch", "better")
        load.stop()
        assert load.wrong == []
        assert load.read > 0
        assert "better answers instead of engine" in switched
        loopback.get(
            f"{server.address}/v1/predictions",
            params={"ids": "0", "min_seq": str(load.posted), "timeout": REQUEST_SECONDS},
        )
        of_better = predictions(server)
        assert of_better == predictions(server, model="better") != predictions(server, model="engine")
        server.kill()
    with Server(path) as server:
        assert predictions(server) == predictions(server, model="better")
        assert np.allclose(predictions(server), of_better, atol=1e-4)
        assert "engine answers instead of better" in call(server, "rollback")
        assert predictions(server) == predictions(server, model="engine")
        call(server, "remove", "better")
        assert server.stop() == 0
    with Server(path) as server:
        assert call(server, "list").split()[:2] == ["*", "engine"]
        assert not list((tmp_path / "models").glob("*.lgnn"))
    runtime = Deployment.read(path).open()
    assert runtime.engine.verify().ok
    runtime.log.close()


def test_a_model_on_samples_beside_an_exact_one(tmp_path: Path) -> None:
    """They are compared by degree; after a start the deployed model still answers from samples."""
    path = write_deployment(tmp_path)
    query = Query("node").hop(("node", "to", "node"), 1000, direction="in")
    model = make_model().with_query(query.hop(("node", "to", "node"), 1000, direction="in"))
    model.save(tmp_path / "samples.lgnn")
    with Server(path) as server:
        said = call(server, "deploy", tmp_path / "samples.lgnn", "--mode", "presampled", "--hold")
        assert "samples beside engine" in said
        found = call(server, "compare", "samples")
        assert "in-degree 4 to 7" in found
        # The same file in the same mode is there already; in another mode its name is taken.
        call(server, "deploy", tmp_path / "samples.lgnn", "--mode", "presampled", "--hold")
        with pytest.raises(InputError, match="the name of a model must be free, got 'samples'"):
            call(server, "deploy", tmp_path / "samples.lgnn", "--mode", "eager", "--hold")
        with pytest.raises(InputError, match="mode"):
            call(server, "deploy", tmp_path / "samples.lgnn", "--name", "other", "--mode", "presample")
    with Server(path) as server:
        answer = loopback.post(f"{server.address}/v1/samples", json={"ids": [0], "model": "samples"})
        assert answer.status_code == httpx.codes.OK, answer.text
        assert call(server, "compare", "samples") == found


def test_the_feed_tells_of_a_switch_once_and_in_order(tmp_path: Path) -> None:
    path = write_deployment(tmp_path)
    make_model(7).save(tmp_path / "better.lgnn")
    with Server(path) as server:
        call(server, "deploy", tmp_path / "better.lgnn", "--hold")
        told: list[tuple[str, dict[str, object]]] = []
        with loopback.stream("GET", f"{server.address}/v1/changes") as feed:
            lines = feed.iter_lines()
            kind = next(lines).removeprefix("event: ")
            assert kind == "ready"
            for source in (1, 2):
                content = Events().add_edges([source], [9], weight=[1.0]).to_json_lines()
                headers = {"content-type": "application/x-ndjson"}
                append = f"{server.address}/v1/events?wait=true&timeout={REQUEST_SECONDS}"
                loopback.post(append, content=content, headers=headers)
                if source == 1:
                    call(server, "switch", "better")
            for line in lines:
                if line.startswith("event: "):
                    kind = line.removeprefix("event: ")
                elif line.startswith("data: ") and kind != "ready":
                    told.append((kind, json.loads(line.removeprefix("data: "))))
                    if len(told) == 3:
                        break
        assert [kind for kind, _ in told] == ["change", "model", "change"]
        assert told[1][1] == {"seq": 1, "model": "better", "previous": "engine"}
        ids = ",".join(map(str, told[2][1]["ids"]))  # type: ignore[arg-type]
        rows = loopback.get(f"{server.address}/v1/predictions", params={"ids": ids, "model": "better"})
        assert rows.json()["predictions"] == told[2][1]["predictions"]


@pytest.mark.parametrize(
    "server", ["localhost:8080", "http://[::1", "http://", "http://a:b", "http://a:99999", "ftp://a"]
)
def test_what_is_no_address_is_refused(server: str) -> None:
    with pytest.raises(InputError, match=r"--server must be an address"):
        CliRunner().invoke(app, ["model", "list", "--server", server], catch_exceptions=False)


def test_what_the_server_refuses_is_said(tmp_path: Path) -> None:
    path = write_deployment(tmp_path)
    good, other = tmp_path / "good.lgnn", tmp_path / "other.lgnn"
    make_model(7).save(good)
    Model(
        {"x": Input("node", WIDTH + 1)}, (Step("relu", ("x",), "out"),), {}, "out", layers=("x", "out")
    ).save(other)
    (tmp_path / "bad.lgnn").write_bytes(b"no model")
    with Server(path) as server:
        for arguments, message in (
            (("deploy", tmp_path / "bad.lgnn"), r"body must be a file that Model\.save wrote"),
            (("deploy", other), r"width|channels|features"),
            (("deploy", good, "--name", "a b"), r"name of a model must be of letters"),
            (("deploy", good, "--name", "engine"), r"must be free, got 'engine'"),
            (("switch", "none"), r"must be one of engine, got 'none'"),
            (("rollback",), r"served before, got none"),
            (("remove", "engine"), r"which serves"),
            (("compare", "none"), r"must be one of engine"),
        ):
            with pytest.raises(InputError, match=message):
                call(server, *arguments)
        answer = loopback.put(f"{server.address}/v1/models/good", content=good.read_bytes())
        assert (answer.status_code, "octet-stream" in answer.text) == (400, True)
        call(server, "deploy", good)
        assert "follows the graph" in call(server, "deploy", good)  # again: nothing changes
        assert call(server, "list").splitlines()[1].startswith("* good")
        make_model(8).save(good)
        with pytest.raises(InputError, match=r"must be free, got 'good'"):
            call(server, "deploy", good)
        gone = server.address
    with pytest.raises(LiveGNNError, match=r"does not answer"):
        CliRunner().invoke(app, ["model", "list", "--server", gone], catch_exceptions=False)


def test_a_model_of_the_deployment_and_a_deployed_one_are_as_computed(tmp_path: Path) -> None:
    path = write_deployment(tmp_path)
    make_model(7).save(tmp_path / "b.lgnn")
    with Server(path) as server:
        call(server, "deploy", tmp_path / "b.lgnn")
        found = {name: predictions(server, model=name) for name in ("engine", "b")}
    graph: Graph = Deployment.read(path).load_graph()
    ids = [int(id_) for id_ in IDS.split(",")]
    for name, model in (("engine", make_model()), ("b", make_model(7))):
        assert np.array_equal(np.array(found[name], np.float32), Engine(graph, model, threads=1).predict(ids))


def test_a_model_that_cannot_answer_does_not_take_over(tmp_path: Path) -> None:
    path = write_deployment(tmp_path)
    whole = make_model(7)
    spoiled = replace(whole, tensors={name: np.full_like(one, 3e38) for name, one in whole.tensors.items()})
    narrow = Model(
        {"x": Input("node", WIDTH)}, (Step("relu", ("x",), "out"),), {}, "out", layers=("x", "out")
    )
    spoiled.save(tmp_path / "spoiled.lgnn")
    narrow.save(tmp_path / "narrow.lgnn")
    with Server(path) as server:
        with pytest.raises(LiveGNNError, match=r"predictions are not finite; it follows the graph and does"):
            call(server, "deploy", tmp_path / "spoiled.lgnn")
        with pytest.raises(InputError, match=r"can be compared, got width .* livegnn model switch narrow"):
            call(server, "deploy", tmp_path / "narrow.lgnn")
        assert "can be compared" in call(server, "deploy", tmp_path / "narrow.lgnn", "--hold")
        assert call(server, "list").startswith("* engine")
        assert np.isfinite(predictions(server)).all()
        call(server, "switch", "narrow")
