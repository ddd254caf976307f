"""A server that is killed while a process of its own writes a checkpoint: what the next server finds."""

import os
from pathlib import Path

import pytest

import loopback
from held_checkpoints import Held
from livegnn import Graph, checkpoint
from livegnn.runtime import list_checkpoints
from processes import runs
from serving import Server, write_deployment
from streams import make_graph, make_stream
from waiting import REQUEST_SECONDS, wait_until


def append(server: Server, first: int, count: int) -> int:
    with loopback.Client(base_url=server.address) as client:
        for events in make_stream(first + count)[first:]:
            headers = {"content-type": "application/x-ndjson"}
            seq = client.post("/v1/events", content=events.to_json_lines(), headers=headers).json()["seq"]
        request = {"ids": [], "min_seq": seq, "timeout": REQUEST_SECONDS}
        return int(client.post("/v1/predictions", json=request).json()["seq"])


def test_it_starts_at_once_and_finds_no_half_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tests = str(Path(__file__).parents[1])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")]))
    monkeypatch.chdir(tmp_path)  # where the view's named pipe lies, for the server too
    deployment = write_deployment(tmp_path, every_events=50, views='held = "held_checkpoints:Held"')
    held = Held(make_graph(), directory=tmp_path)
    first = 0
    for _ in range(2):
        server = Server(deployment)
        seq = append(server, first, 60)
        first += 60
        with held.hold() as process:  # the process that writes is in the middle of it
            server.kill()
            again = Server(deployment)  # raises, if the log is not free or a checkpoint is not whole
            assert loopback.get(f"{again.address}/healthz").json()["seq"] >= seq
            assert list_checkpoints(tmp_path / "checkpoints") == []
            again.kill()
        wait_until(lambda process=process: not runs(process), "the end of the process that writes")
    with Server(deployment) as server:
        with held.hold():
            pass
        assert server.stop() == 0
    newest = list_checkpoints(tmp_path / "checkpoints")[0]
    saved = checkpoint.read(newest)
    assert Graph.from_state(saved.states["graph"]).seq == saved.seq >= seq
    assert not list((tmp_path / "checkpoints").glob("*.partial"))
