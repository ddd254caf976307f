"""A server that is killed in the middle of a stream, again and again, loses nothing, not a bit."""

import os
import threading
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np
import pytest

import loopback
from histograms import DegreeHistogram, OutDegrees
from livegnn import Engine, Events
from livegnn.deployment import Deployment
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import list_checkpoints
from serving import Server, write_deployment
from streams import WIDTH, make_graph, make_model, make_stream
from waiting import PATIENCE, REQUEST_SECONDS, wait_until

KILLS = 3
ACKNOWLEDGED_PER_ROUND = 60
WRITERS = 3
BACKLOG = 20
WATCHED = list(range(5))


@dataclass
class Witness:
    """What clients were told: which entries are on the disk, which predictions they read at which event."""

    acknowledged: dict[int, Events] = field(default_factory=dict)
    read: dict[int, list[list[float]]] = field(default_factory=dict)
    progressed: threading.Condition = field(default_factory=threading.Condition)


def write(address: str, entries: list[Events], witness: Witness) -> None:
    """Appends entries, and reads predictions in between, until the server is gone."""
    with loopback.Client(base_url=address) as client:
        while entries:
            events = entries.pop(0)
            try:
                answer = client.post(
                    "/v1/events",
                    content=events.to_json_lines(),
                    headers={"content-type": "application/x-ndjson"},
                )
                assert answer.status_code == 200, answer.text
                with witness.progressed:
                    witness.acknowledged[answer.json()["seq"]] = Events.concatenate(
                        [events]
                    )  # as JSON lines are read
                    witness.progressed.notify_all()
                prediction = client.get("/v1/predictions", params={"ids": ",".join(map(str, WATCHED))})
                if prediction.status_code == 200:  # 404 once a watched node was removed
                    witness.read[prediction.json()["seq"]] = prediction.json()["predictions"]
            except httpx.TransportError:
                return


VIEWS = 'degrees = "histograms:DegreeHistogram"\nout_degrees = "histograms:OutDegrees"'


def test_kill_minus_nine_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tests = str(Path(__file__).parents[1])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")]))
    deployment = write_deployment(tmp_path, every_events=150, max_batch_events=64, threads=2, views=VIEWS)
    stream = make_stream(1000, seed=11)
    log = SqliteLog(tmp_path / "events.db")
    for events in stream[:BACKLOG]:  # waits when the server starts, so that it has something to merge
        log.append(events)
    log.close()
    refused = Events().set_features(0, np.ones(WIDTH)).remove_nodes(10**9)
    shares = [[refused, *stream[BACKLOG + writer :: WRITERS]] for writer in range(WRITERS)]
    witness = Witness()
    for _ in range(KILLS):
        server = Server(deployment)
        goal = len(witness.acknowledged) + ACKNOWLEDGED_PER_ROUND
        writers = [
            threading.Thread(target=write, args=(server.address, entries, witness)) for entries in shares
        ]
        for writer in writers:
            writer.start()
        with witness.progressed:
            assert witness.progressed.wait_for(lambda goal=goal: len(witness.acknowledged) >= goal, PATIENCE)
        server.kill()
        for writer in writers:
            writer.join()
        assert all(shares), "the stream must go on at the moment of every kill"

    with Server(deployment) as server:
        recovered = loopback.get(f"{server.address}/healthz").json()
        request = {"ids": [], "min_seq": recovered["log_seq"], "timeout": REQUEST_SECONDS}
        last = loopback.post(f"{server.address}/v1/predictions", json=request).json()["seq"]
        # Those that were killed may have been too slow to write one.
        wait_until(lambda: list_checkpoints(tmp_path / "checkpoints"), "a checkpoint")
        server.kill()

    log = SqliteLog(tmp_path / "events.db")
    entries = {entry.seq: entry.events for entry in log.entries(0)}
    batches = log.batches(0)
    rejected = {rejection.seq for rejection in log.rejections()}
    log.close()
    assert {seq: entries[seq] for seq in witness.acknowledged} == witness.acknowledged
    assert batches[-1].seq == last == max(entries)
    assert len(witness.acknowledged) >= KILLS * ACKNOWLEDGED_PER_ROUND
    assert len(rejected) >= WRITERS
    assert len(batches) < len(entries)

    uninterrupted = Engine(make_graph(), make_model(), threads=1)
    histograms = [DegreeHistogram(uninterrupted.graph), OutDegrees(uninterrupted.graph)]
    read: dict[int, list[list[float]]] = {}
    for batch in batches:
        parts = [seq for seq in entries if batch.after < seq <= batch.seq and seq not in rejected]
        uninterrupted.apply(Events.concatenate(entries[seq] for seq in sorted(parts)), seq=batch.seq)
        if uninterrupted.graph.contains(WATCHED).all():
            read[batch.seq] = uninterrupted.predict(WATCHED).tolist()
    assert witness.read
    for seq, predictions in witness.read.items():
        if seq:
            assert np.array(predictions, np.float32).tolist() == read[seq]

    runtime = Deployment.read(deployment).open()
    assert runtime.seq == last
    for ours, theirs in (
        (runtime.graph.state(), uninterrupted.graph.state()),
        (runtime.engine.state(), uninterrupted.state()),
        *((runtime.views[one.name].state(), one.state()) for one in histograms),
    ):
        assert ours.meta == theirs.meta
        assert ours.arrays.keys() == theirs.arrays.keys()
        for name, array in ours.arrays.items():
            assert array.tobytes() == theirs.arrays[name].tobytes(), name
    assert runtime.engine.embeddings(-1).tobytes() == uninterrupted.embeddings(-1).tobytes()
    assert runtime.engine.verify().ok
    runtime.log.close()
