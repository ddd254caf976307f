"""All predictions, and the changes after them, over real connections while events arrive."""

import asyncio
import gc
import http.client
import inspect
import socket
import threading
import tracemalloc
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from weakref import ref

import numpy as np
import orjson
import pyarrow as pa
import pytest
from starlette.types import ASGIApp, Message
from test_bulk_edges import apply, open_runtime

from asgi_requests import Request
from livegnn import Engine, Events, Graph, Model
from livegnn.log.sqlite import SqliteLog
from livegnn.model import Input, Step
from livegnn.runtime import Runtime
from livegnn.server import arrow_stream
from livegnn.server.app import create_app, server_of
from scored_edges import COLUMNS
from scored_edges import NODES as FEW
from served import place_of, running
from streams import WIDTH, make_graph, make_model
from waiting import PATIENCE

ALL = "/v1/predictions/all"
NODES, WIDE = 160_000, 64  # 40 MiB of predictions
NO_WATCH = {"version": "3.0", "spec_version": "2.4"}  # then no task waits for a disconnect beside the answer


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


class OpenStreams:
    """The streams that are begun meanwhile, and which of them are open."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._begun: list[ref[Generator[bytes, None, None]]] = []
        for name in ("encode", "_encode_edges"):
            patch.setattr(arrow_stream, name, self._noted(getattr(arrow_stream, name)))

    def _noted(self, encode: Any) -> Any:
        def begin(*args: Any) -> Generator[bytes, None, None]:
            stream: Generator[bytes, None, None] = encode(*args)
            self._begun.append(ref(stream))
            return stream

        return begin

    def __len__(self) -> int:
        return len(self._begun)

    def open(self) -> list[Generator[bytes, None, None]]:
        """Those that are in memory and not closed."""
        streams = [one for it in self._begun if (one := it()) is not None]
        return [one for one in streams if inspect.getgeneratorstate(one) != inspect.GEN_CLOSED]


async def read_some(app: ASGIApp, path: str, end: str, method: str = "GET") -> int:
    """Reads a stream up to its end, or to what `end` says after the first part; returns how many parts."""
    request, parts = Request(path.partition("?")[0], [b""], method=method, query=path.partition("?")[2]), 0
    if end == "error":
        request.scope["asgi"] = NO_WATCH
    first, never = asyncio.Event(), asyncio.Event()

    async def receive() -> Message:
        await (first if end == "disconnect" else never).wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        nonlocal parts
        if message["type"] != "http.response.body":
            assert message["status"] == 200
            return
        parts += bool(message["body"])
        if parts and end != "end":
            first.set()
            if end == "error":
                raise OSError("the connection is closed")
            await never.wait()

    task = asyncio.create_task(app(request.scope, receive, send))
    if end == "cancel":
        await first.wait()
        task.cancel()
    with suppress(asyncio.CancelledError, RuntimeError):  # Starlette says that the head is sent
        await task
    return parts


@pytest.fixture
def scored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runtime]:
    """A runtime with edges, whose streams have a part for each row."""
    monkeypatch.setattr(arrow_stream, "_MOST_ROWS", 1)
    runtime = open_runtime(tmp_path)
    columns = {"weight": np.ones(FEW), "edge_attr": np.ones((FEW, COLUMNS))}
    apply(runtime, Events().add_edges(np.full(FEW, 3), np.arange(FEW), **columns))
    with closing(runtime.log):
        yield runtime


@pytest.fixture
def no_collection() -> Iterator[None]:
    """Cycles of references stay in memory meanwhile."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize("path", [ALL, f"{ALL}?output=risk"])
@pytest.mark.parametrize("end", ["end", "disconnect", "error", "cancel", "head"])
def test_a_stream_is_closed_however_the_answer_ends(
    scored: Runtime, path: str, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams, app = OpenStreams(monkeypatch), create_app(scored)
    for _ in range(3):
        parts = asyncio.run(read_some(app, path, end, "HEAD" if end == "head" else "GET"))
        assert parts >= FEW if end == "end" else parts == (end != "head")
    assert (len(streams), streams.open()) == (3, [])


@pytest.mark.usefixtures("no_collection")
def test_a_stream_is_closed_by_the_thread_that_makes_its_next_part(
    scored: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop of the server cancels the answer meanwhile."""
    streams, app = OpenStreams(monkeypatch), create_app(scored)
    reading, may_go_on, threads = threading.Event(), threading.Event(), list[threading.Thread]()
    read, held = arrow_stream.read_present, list[Generator[bytes, None, None]]()

    def read_later(*args: Any) -> Any:
        if threads:
            reading.set()
            assert may_go_on.wait(PATIENCE)
        threads.append(threading.current_thread())
        return read(*args)

    monkeypatch.setattr(arrow_stream, "read_present", read_later)

    async def receive() -> Message:
        return await asyncio.Future()

    async def send(message: Message) -> None:
        pass

    async def cancel() -> None:
        request = Request(ALL, [b""], method="GET")
        request.scope["asgi"] = NO_WATCH
        task = asyncio.create_task(app(request.scope, receive, send))
        await asyncio.to_thread(reading.wait, PATIENCE)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        held.extend(streams.open())
        assert [inspect.getgeneratorstate(one) for one in held] == [inspect.GEN_RUNNING]

    asyncio.run(cancel())
    may_go_on.set()
    threads[0].join(PATIENCE)  # which ends with the loop
    assert [inspect.getgeneratorstate(one) for one in held] == [inspect.GEN_CLOSED]


@pytest.mark.usefixtures("no_collection")
def test_streams_that_are_cut_leave_no_part_in_memory(wide: Runtime) -> None:
    app = create_app(wide)
    asyncio.run(read_some(app, ALL, "disconnect"))
    tracemalloc.start()
    for _ in range(8):
        assert asyncio.run(read_some(app, ALL, "disconnect")) == 1
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 3 << 20  # of 8 MiB, if each left a part; a thread that ends may hold one
