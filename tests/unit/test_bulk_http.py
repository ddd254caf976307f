"""All predictions, and the changes after them, over real connections while events arrive."""

import http.client
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest

from livegnn import Engine, Events, Graph, Model
from livegnn.log.sqlite import SqliteLog
from livegnn.model import Input, Step
from livegnn.runtime import Runtime
from livegnn.server.app import create_app, server_of
from served import place_of, running
from streams import WIDTH, make_graph, make_model
from waiting import PATIENCE

ALL = "/v1/predictions/all"
NODES, WIDE = 160_000, 64  # 40 MiB of predictions


@contextmanager
def served(runtime: Runtime) -> Iterator[tuple[str, int]]:
    with running(lambda listener: server_of(create_app(runtime), listener)) as address:
        yield place_of(address)


@contextmanager
def asked(
    address: tuple[str, int], path: str, headers: dict[str, str] | None = None
) -> Iterator[http.client.HTTPResponse]:
    with closing(http.client.HTTPConnection(*address, timeout=PATIENCE)) as connection:
        connection.request("GET", path, headers=headers or {})
        with connection.getresponse() as answer:
            assert answer.status == 200
            yield answer


@pytest.fixture
def wide(tmp_path: Path) -> Iterator[Runtime]:
    """Predictions of more bytes than sockets hold."""
    rng = np.random.default_rng(0)
    tensors = {"w": rng.normal(size=(WIDE, 2)).astype(np.float32), "b": np.zeros(WIDE, np.float32)}
    step = Step("linear", ("x",), "out", {"weight": "w", "bias": "b"})
    model = Model(
        inputs={"x": Input("node", 2)}, steps=(step,), tensors=tensors, output="out", layers=("x", "out")
    )
    ids, x = np.arange(NODES), rng.normal(size=(NODES, 2)).astype(np.float32)
    graph = Graph.from_edges(src=ids[:1], dst=ids[1:2], x=x, ids=ids)
    with closing(SqliteLog(tmp_path / "events.db")) as log:
        yield Runtime(log, graph, Engine(graph, model, threads=1))


def test_a_reader_that_stops_holds_a_few_parts_and_no_batch(wide: Runtime) -> None:
    with served(wide) as address, socket.socket() as reader:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        reader.settimeout(PATIENCE)
        reader.connect(address)
        reader.sendall(f"GET {ALL} HTTP/1.0\r\nhost: localhost\r\n\r\n".encode())
        begun = reader.recv(1024)
        for value in range(100):  # the server has its time to go on with the stopped answer
            wide.append(Events().set_features(value, np.full(2, value, np.float32)))
            wide.step()
            with asked(address, f"/v1/predictions?ids={value}") as answer:
                assert orjson.loads(answer.read())["seq"] == value + 1
        data = b"".join([begun, *iter(lambda: reader.recv(1 << 20), b"")])
    stream = pa.ipc.open_stream(data.partition(b"\r\n\r\n")[2])
    sizes, rows = dict.fromkeys(range(101), 0), 0
    try:
        while True:
            batch, told = stream.read_next_batch_with_custom_metadata()
            sizes[int(told[b"seq"])] += batch.nbytes
            rows += batch.num_rows
            assert batch.nbytes <= 1.1 * (1 << 20)
    except StopIteration:
        pass
    assert rows == int(stream.schema.metadata[b"rows"]) == NODES
    assert sizes[100] > 20 << 20  # what was read when the reader went on: it was not in memory before


def change(runtime: Runtime, rng: np.random.Generator) -> None:
    """A node comes, goes, or gets other features."""
    row = rng.normal(size=(1, WIDTH)).astype(np.float32)
    one, fresh = int(rng.choice(runtime.graph.ids())), int(rng.integers(40, 60))
    events = Events().set_features([one], row)
    if rng.random() < 0.3 and len(runtime.graph.ids()) > 20:
        events = Events().remove_nodes([one])
    elif rng.random() < 0.5 and fresh not in runtime.graph.ids():
        events = Events().add_nodes([fresh], row)
    runtime.append(events)
    runtime.step()


def read_event(feed: http.client.HTTPResponse) -> tuple[str, dict[str, Any]]:
    name, _, data, end = (feed.readline().decode().strip() for _ in range(4))
    assert not end
    return name.removeprefix("event: "), orjson.loads(data.removeprefix("data: "))


def follow(feed: http.client.HTTPResponse, seq: int, copy: dict[int, list[float]]) -> int:
    """Applies the change after event `seq` to a copy of the predictions; returns its event."""
    name, told = read_event(feed)
    assert (name, told["seq"]) == ("change", seq + 1)
    for id in told["removed"]:
        copy.pop(id, None)
    copy |= zip(told["ids"], told["predictions"], strict=True)
    return told["seq"]


def test_the_stream_and_then_the_changes_are_the_predictions(
    tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the guide says; the connection of the feed is lost many times."""
    monkeypatch.setattr("livegnn.server.arrow_stream._MOST_ROWS", 5)
    graph = make_graph()
    with closing(SqliteLog(tmp_path / "events.db")) as log:
        runtime = Runtime(log, graph, Engine(graph, make_model(), threads=1))
        with served(runtime) as address:
            with asked(address, "/v1/changes") as feed, asked(address, ALL) as loading:
                assert read_event(feed)[0] == "ready"
                for _ in range(3):
                    change(runtime, rng)
                table = pa.ipc.open_stream(loading.read()).read_all()
            seq = int(table.schema.metadata[b"seq"])
            rows = zip(table["id"].to_pylist(), table["prediction"].to_pylist(), strict=True)
            copy = {id: row for id, row in rows if row is not None}
            for _ in range(20):
                for _ in range(rng.integers(4)):
                    change(runtime, rng)
                with asked(address, "/v1/changes", {"last-event-id": str(seq)}) as feed:
                    assert read_event(feed) == ("ready", {"seq": seq, "after": seq, "missed": 0})
                    change(runtime, rng)
                    while seq < runtime.seq:
                        seq = follow(feed, seq, copy)
                assert sorted(copy) == sorted(graph.ids().tolist())
                expected = runtime.predict(list(copy)).values
                assert np.array_equal(np.array(list(copy.values()), np.float32), expected)
