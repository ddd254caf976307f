"""A store that refuses some reads, on a real S3 server: what is asked of it, and that it is enough."""

import threading
from collections.abc import Iterator

import numpy as np
import pytest

from gate import draws
from livegnn import Graph
from livegnn.errors import StoreUnavailableError
from livegnn.remote.predictor import SnapshotPredictor
from livegnn.snapshots.objects import AT_ONCE, BYTES_AT_ONCE, PARTS_AT_ONCE
from livegnn.snapshots.snapshot_source import SnapshotSource
from livegnn.snapshots.writer import write_snapshot
from refusing_store import RefusingStore
from s3_server import S3Server, needs_server
from streams import WIDTH, make_model

NODES = 30_000


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    server = S3Server()
    random = np.random.default_rng(0)
    graph = Graph.from_edges(
        *random.integers(0, NODES, (2, 4 * NODES)),
        x=random.standard_normal((NODES, WIDTH), dtype=np.float32),
        weight=np.ones(4 * NODES, np.float32),
        parallel="keep",
    )
    try:
        write_snapshot(graph, server.open())
        yield server
    finally:
        server.close()


def predict(
    server: S3Server, store: RefusingStore, ids: list[list[int]], gap: int = 16 << 10
) -> list[np.ndarray]:
    where = server.open(store.port, patience=3.0)
    objects = type(where)(where.store, patience=3.0, gap=16 << 10)
    predictor = SnapshotPredictor(SnapshotSource(objects), make_model(), cache=False)
    found = [predictor.predict(each) for each in ids]
    assert objects.requests <= store.reads + 10, "each read is counted"
    objects.close()
    return found


@needs_server
def test_all_requests_pass_where_half_of_all_reads_are_refused(server: S3Server) -> None:
    """A range that was refused is asked for again, and not all that were asked for with it."""
    random = np.random.default_rng(1)
    ids = [[each] for each in random.integers(0, NODES, draws(12, 40)).tolist()]
    open_store, refusing = RefusingStore(server.port), RefusingStore(server.port, 0.5)
    try:
        wanted, found = predict(server, open_store, ids), predict(server, refusing, ids)
        for one, other in zip(wanted, found, strict=True):
            assert one.tobytes() == other.tobytes()
        assert refusing.refused > 0.4 * refusing.reads
        print(f"{open_store.reads} reads, {refusing.reads} where half are refused")
        assert refusing.reads < 4 * open_store.reads
    finally:
        open_store.close()
        refusing.close()


@needs_server
def test_a_store_that_refuses_all_is_told_in_time(server: S3Server) -> None:
    store = RefusingStore(server.port)
    try:
        objects = server.open(store.port, patience=1.0)
        predictor = SnapshotPredictor(SnapshotSource(objects), make_model(), cache=False)
        store.share = 1.0
        with pytest.raises(StoreUnavailableError, match="503 Service Unavailable"):
            predictor.predict([3])
        store.share = 0.0
        assert predictor.predict([3]).shape[0] == 1
        objects.close()
    finally:
        store.close()


@needs_server
@pytest.mark.parametrize("at_once", [16, AT_ONCE])
def test_reads_under_way_are_bounded(server: S3Server, at_once: int) -> None:
    """However many ranges a request has, and however many requests there are."""
    store = RefusingStore(server.port)
    where = server.open(store.port)
    objects = type(where)(where.store, gap=0, at_once=at_once)
    table = f"table of {at_once}"
    objects.put_new(table, bytes(1 << 20))
    starts = np.arange(0, 1 << 20, 1 << 11)
    try:
        readers = [
            threading.Thread(target=objects.get_ranges, args=(table, starts, np.full(len(starts), 8)))
            for _ in range(3)
        ]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        assert store.reads >= 3 * len(starts)
        assert at_once // 10 < store.most_under_way <= at_once
        objects.close()
    finally:
        store.close()


@needs_server
@pytest.mark.parametrize("gap", [0, 4096, None])
def test_a_request_reads_what_its_rows_need(server: S3Server, gap: int | None) -> None:
    """As the store sees it: as many ranges as there are places further apart than the gap."""
    store = RefusingStore(server.port)
    where = server.open(store.port)
    objects = where if gap is None else type(where)(where.store, gap=gap)
    source = SnapshotSource(objects)
    try:
        random = np.random.default_rng(2)
        snapshot = source.newest()
        for count in (1, 30, 1000):
            rows = np.sort(random.choice(NODES, count, replace=False))
            store.ranges.clear()
            read_before = objects.bytes_read
            snapshot.features(None, rows)
            size = 4 * WIDTH + 4
            apart = (np.diff(rows) - 1) * size
            most = (64 << 10) if gap is None else gap
            # What is joined is cut where another part of it begins, and what lies there is not read.
            cuts = int(rows[-1] - rows[0]) * size // (BYTES_AT_ONCE // PARTS_AT_ONCE)
            assert 0 <= len(store.ranges) - 1 - (apart > most).sum() <= cuts
            between = count * size + apart[apart <= most].sum() - (objects.bytes_read - read_before)
            assert 0 <= between <= most * cuts
        objects.close()
    finally:
        store.close()
