"""`livegnn serve` with sinks of files in its deployment, killed with `kill -9` while it sends: at the end the
files have what it answers, and the rows of a node are in order.
"""

import json
from pathlib import Path

import numpy as np
import pyarrow.dataset as ds
import pytest

import loopback
from gate import in_gate
from livegnn import Events
from scraped import scrape
from serving import Server, write_deployment
from streams import CLASSES, make_stream
from waiting import wait_until

SINKS = """
[sinks.lines]
kind = "jsonlines"
directory = "lines"
rotate_bytes = 4000
every_seconds = 0.0

[sinks.pages]
kind = "parquet"
directory = "pages"
every_seconds = 0.05

[sinks.classes]
kind = "jsonlines"
directory = "classes"
class_changed = true
every_seconds = 0.0
"""


def records_in(folder: Path) -> dict[int, dict[str, object]]:
    """The newest record of each node, by id, in files of JSON lines."""
    newest: dict[int, dict[str, object]] = {}
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_bytes().splitlines():
            record = json.loads(line)
            before = newest.get(record["id"], record)
            assert before["seq"] <= record["seq"], "the event of a node's rows never decreases"
            newest[record["id"]] = record
    return newest


def predictions_in(folder: Path) -> dict[int, np.ndarray]:
    return {
        id: np.array(record["prediction"], np.float32)
        for id, record in records_in(folder).items()
        if "removed" not in record
    }


def pages_in(folder: Path) -> dict[int, np.ndarray]:
    """The newest prediction of each node in Parquet files."""
    table = ds.dataset(folder, format="parquet", partitioning="hive").to_table()
    newest = {row["id"]: row for row in table.sort_by([("seq", "ascending")]).to_pylist()}
    return {
        id: np.array(row["prediction"], np.float32)
        for id, row in newest.items()
        if row["prediction"] is not None
    }


def append(client: loopback.Client, address: str, events: Events, key: str) -> None:
    headers = {"idempotency-key": key, "content-type": "application/x-ndjson"}
    answer = client.post(f"{address}/v1/events", content=events.to_json_lines(), headers=headers)
    assert answer.status_code < 300, answer.text


def wait_until_sent(client: loopback.Client, address: str) -> None:
    def are_sent() -> bool:
        sinks = client.get(f"{address}/healthz").json()["sinks"]
        assert sinks.keys() == {"lines", "pages", "classes"}
        return not any(sink["lag"] for sink in sinks.values())

    wait_until(are_sent, "all rows are sent")


@pytest.mark.parametrize("kills", in_gate([3, 25]))
def test_sinks_of_a_server_that_is_killed(tmp_path: Path, kills: int) -> None:
    path = write_deployment(tmp_path, every_events=40)
    path.write_text(path.read_text(encoding="utf-8") + SINKS, encoding="utf-8")
    stream = make_stream(20 * kills)
    with loopback.Client() as client:
        for number in range(kills):
            server = Server(path)
            for at in range(20 * number, 20 * number + 20):
                append(client, server.address, stream[at], str(at))
            server.kill()  # while the last changes are sent
        with Server(path) as server:
            wait_until_sent(client, server.address)
            found = scrape(client.get(f"{server.address}/metrics").text)
            assert found['livegnn_sink_lag_seconds{sink="lines"}'] == 0
            ids = sorted(predictions_in(tmp_path / "lines"))
            answer = client.post(f"{server.address}/v1/predictions", json={"ids": ids}).json()
            nodes = client.get(f"{server.address}/metrics").text
    assert scrape(nodes)['livegnn_nodes{node_type="node"}'] == len(ids)
    expected = np.array(answer["predictions"], np.float32)
    assert expected.shape == (len(ids), CLASSES)
    for stored in (predictions_in(tmp_path / "lines"), pages_in(tmp_path / "pages")):
        assert sorted(stored) == ids
        np.testing.assert_array_equal(np.array([stored[id] for id in ids]), expected)
    filtered = predictions_in(tmp_path / "classes")
    assert sorted(filtered) == ids
    assert [filtered[id].argmax() for id in ids] == expected.argmax(axis=1).tolist()
    assert len(list((tmp_path / "lines").glob("*.jsonl"))) > 1
