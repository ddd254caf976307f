"""All predictions as an Arrow stream, and those that have changed: against the engine, while events
arrive."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import httpx
import numpy as np
import pyarrow as pa
import pytest
from fastapi import FastAPI
from hypothesis import given, settings
from hypothesis import strategies as st

from livegnn import Engine, Events, InputError
from livegnn.http.refusals import ChangesNotKept
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import Runtime
from livegnn.server import arrow_stream, create_app
from livegnn.server.bulk_routes import _open
from livegnn.server.changed_ids import ChangedIds
from streams import CLASSES, WIDTH, make_graph, make_model

ALL = "/v1/predictions/all"


def ask(app: FastAPI, address: str) -> httpx.Response:
    async def get() -> httpx.Response:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.get(address)

    return asyncio.run(get())


def open_runtime(directory: Path, *, text: bool = False, mode: str = "eager") -> Runtime:
    graph = make_graph(text=text)
    engine = Engine(graph, make_model(), threads=1, mode=mode)
    return Runtime(SqliteLog(directory / "events.db"), graph, engine)


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Runtime]:
    runtime = open_runtime(tmp_path)
    with closing(runtime.log):
        yield runtime


def apply(runtime: Runtime, events: Events) -> None:
    runtime.append(events)
    runtime.step()


def change(runtime: Runtime, rng: np.random.Generator) -> None:
    """A random batch: a node comes, goes or gets other features, or an edge comes."""
    text, ids = runtime.graph.schema.text_ids, runtime.graph.ids()
    row = rng.normal(size=(1, WIDTH)).astype(np.float32)
    one, other = rng.choice(ids, 2, replace=False).tolist()
    kind = rng.integers(4)
    if kind == 0:
        name = int(rng.integers(60))
        fresh = f"n{name}" if text else name
        events = Events().set_features([one], row)
        apply(runtime, Events().add_nodes([fresh], row) if fresh not in ids else events)
    elif kind == 1 and len(ids) > 10:
        apply(runtime, Events().remove_nodes([one]))
    elif kind == 2:
        apply(runtime, Events().set_features([one], row))
    else:
        apply(runtime, Events().add_edges([one], [other], weight=np.ones(1, np.float32)))


class Reader:
    """Keeps a copy of all predictions: it reads a stream part by part, and afterwards what has changed."""

    def __init__(self, runtime: Runtime, changed: ChangedIds) -> None:
        self.runtime, self.changed = runtime, changed
        self.copy: dict[object, list[float]] = {}
        self.since: int | None = None
        self.gone = 0
        self.parts: Iterator[bytes] | None = None
        self.data: list[bytes] = []

    def read(self) -> bool:
        """Reads one more part; returns whether a stream has ended of which all is of one event."""
        if self.parts is None:
            try:
                self.parts, self.data = _open(self.runtime, self.changed, self.since, None, None), []
            except ChangesNotKept:
                self.gone += 1
                self.since = None
                self.parts, self.data = _open(self.runtime, self.changed, None, None, None), []
        part = next(self.parts, None)
        if part is not None:
            self.data.append(part)
            return False
        return self._take()

    def _take(self) -> bool:
        self.parts = None
        reader = pa.ipc.open_stream(b"".join(self.data))
        if self.since is None:
            self.copy.clear()
        metadata, seen = reader.schema.metadata, list[object]()
        seq, same = int(metadata[b"seq"]), True
        assert seq >= (self.since or 0)
        try:
            while True:
                batch, told = reader.read_next_batch_with_custom_metadata()
                assert int(told[b"seq"]) >= seq
                same = same and int(told[b"seq"]) == seq
                seen += (ids := batch.column("id").to_pylist())
                for id, row in zip(ids, batch.column("prediction").to_pylist(), strict=True):
                    if row is None:
                        self.copy.pop(id, None)
                    else:
                        self.copy[id] = row
        except StopIteration:
            pass
        assert len(seen) == len(set(seen)) == int(metadata[b"rows"])
        self.since = seq
        return same

    def check(self) -> None:
        ids = self.runtime.graph.ids()
        assert sorted(self.copy) == sorted(ids.tolist())
        expected = self.runtime.predict(list(self.copy)).values
        assert np.array_equal(np.array(list(self.copy.values()), np.float32), expected)


@settings(max_examples=40, deadline=None)
@given(
    text=st.booleans(),
    lazy=st.booleans(),
    kept=st.sampled_from([0, 3000, 1 << 20]),
    seed=st.integers(0, 2**32 - 1),
    steps=st.lists(st.integers(0, 6), max_size=60),
)
def test_a_reader_that_goes_on_with_the_changes_holds_the_predictions_of_the_engine(
    text: bool, lazy: bool, kept: int, seed: int, steps: list[int]
) -> None:
    """Events arrive between parts; several readers begin at several times. 0 is a batch, 1 to 3 a part
    for a reader, 4 to 6 all parts for one."""
    rng = np.random.default_rng(seed)
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow_stream, "_MOST_ROWS", 7)
        runtime = open_runtime(Path(folder), text=text, mode="lazy" if lazy else "eager")
        changed = ChangedIds(runtime, kept)
        readers = [Reader(runtime, changed) for _ in range(3)]
        with closing(runtime.log):
            for step in steps:
                if step == 0:
                    change(runtime, rng)
                    continue
                reader = readers[(step - 1) % 3]
                whole = reader.read()
                while step > 3 and not whole:
                    whole = reader.read()
                if whole and reader.since == runtime.seq:
                    reader.check()
            for _ in range(3):
                for reader in readers:
                    while not (reader.read() and reader.since == runtime.seq):
                        pass
                    reader.check()
                change(runtime, rng)  # alone, so that a node that was removed has not changed before


def test_pyarrow_and_duckdb_read_all_predictions(runtime: Runtime) -> None:
    apply(runtime, Events().set_features(3, np.ones(WIDTH, np.float32)))
    answer = ask(create_app(runtime), ALL)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/vnd.apache.arrow.stream"
    table = pa.ipc.open_stream(answer.content).read_all()
    told = {name.decode(): value.decode() for name, value in table.schema.metadata.items()}
    engine = runtime.engine
    assert told == {
        "seq": "1",
        "rows": "40",
        "model": "engine",
        "digest": engine.digest,
        "output": "output",
        "node_type": "node",
    }
    expected = runtime.predict(table["id"].to_numpy()).values
    assert np.array_equal(np.array(table["prediction"].to_pylist(), np.float32), expected)
    database = duckdb.connect()
    database.register("predictions", table)
    (type_,) = database.execute("select distinct typeof(prediction) from predictions").fetchone()
    assert type_ == f"FLOAT[{CLASSES}]"
    (best,) = database.execute("select id from predictions order by prediction[1] desc, id").fetchone()
    assert best == table["id"].to_pylist()[expected[:, 0].argmax()]


def test_a_reader_that_stops_holds_one_part_and_no_batch(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow_stream, "_MOST_ROWS", 1)
    app, sent, goes_on = create_app(runtime), list[bytes](), asyncio.Event()
    stopped = asyncio.Event()

    async def send(message: dict[str, object]) -> None:
        if message["type"] == "http.response.body":
            sent.append(message["body"])
            if len(sent) == 3:
                change(runtime, np.random.default_rng(0))
                stopped.set()
                await goes_on.wait()

    async def receive() -> dict[str, object]:
        await asyncio.Event().wait()
        raise AssertionError

    async def read() -> None:
        scope = {"type": "http", "method": "GET", "path": ALL, "raw_path": ALL.encode(), "query_string": b""}
        reading = asyncio.create_task(app(scope | {"headers": [], "http_version": "1.1"}, receive, send))
        await stopped.wait()
        assert (runtime.seq, len(sent)) == (1, 3)  # the stream has read no further
        goes_on.set()
        await reading

    asyncio.run(read())
    reader = pa.ipc.open_stream(b"".join(sent))
    seqs = [int(reader.read_next_batch_with_custom_metadata()[1][b"seq"]) for _ in range(40)]
    assert seqs == [0] * 2 + [1] * 38


def test_only_what_has_changed_is_read(runtime: Runtime) -> None:
    app = create_app(runtime)
    gone = ask(app, f"{ALL}?since=0")  # kept from the first request on
    assert pa.ipc.open_stream(gone.content).read_all().num_rows == 0
    apply(runtime, Events().remove_nodes(7))
    told: list[list[int]] = []
    runtime.subscribe(lambda change: told.append(sorted([*change.ids.tolist(), *change.removed.tolist()])))
    apply(runtime, Events().set_features(3, np.ones(WIDTH, np.float32)))
    table = pa.ipc.open_stream(ask(app, f"{ALL}?since=1").content).read_all()
    assert table["id"].to_pylist() == told[0]
    table = pa.ipc.open_stream(ask(app, f"{ALL}?since=0").content).read_all()
    assert table["prediction"][table["id"].to_pylist().index(7)].as_py() is None
    later = ask(app, f"{ALL}?since=9&timeout=0.01")
    assert later.status_code == 503


def test_changes_that_are_not_kept_are_refused(runtime: Runtime) -> None:
    apply(runtime, Events().set_features(3, np.ones(WIDTH, np.float32)))
    app = create_app(runtime)
    answer = ask(app, f"{ALL}?since=0")
    assert (answer.status_code, answer.json()["type"]) == (410, "/problems/changes-not-kept")
    assert "changes are kept since event 1, got since=0" in answer.json()["detail"]
    changed = ChangedIds(runtime)
    changed.begin()
    with pytest.raises(InputError, match="since must be an event that the graph has reached, got 2"):
        changed.since(2)


def test_another_model_forgets_the_changes(runtime: Runtime) -> None:
    """A reader of the model before would keep its rows."""
    runtime.models.deploy("second", make_model(seed=5))
    changed = ChangedIds(runtime)
    reader = Reader(runtime, changed)
    while not reader.read():
        pass
    runtime.models.switch("second")
    while not reader.read():
        pass
    assert reader.gone == 1
    reader.check()
    change(runtime, np.random.default_rng(0))
    for gone in (2, 2):  # at the event of the switch it may have been of the model before
        while not reader.read():
            pass
        assert reader.gone == gone
    reader.check()
    with pytest.raises(InputError, match="since must be for the first output of the serving model"):
        _open(runtime, changed, runtime.seq, None, "engine")
