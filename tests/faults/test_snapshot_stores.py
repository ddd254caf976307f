"""Snapshots on a real S3 server, with a network that is slow, cut and reset, and files that are spoiled.

Whatever happens, a request is answered rightly or fails with a clear error.
"""

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from bad_network import Proxy
from livegnn import Graph
from livegnn.errors import (
    ObjectDamagedError,
    ObjectExistsError,
    ObjectMissingError,
    SnapshotError,
    StoreUnavailableError,
)
from livegnn.snapshots.objects import Objects, open_objects
from livegnn.snapshots.snapshot_source import SnapshotSource, open_snapshot
from livegnn.snapshots.view import SnapshotView
from livegnn.snapshots.writer import write_snapshot
from ports import free_port
from s3_server import HOME, KEYS, S3Server, needs_endpoint, needs_proxy, needs_server, open_elsewhere
from snapshots import Stream, check_shows, make_schema


@pytest.fixture(scope="module")
def running() -> Iterator[S3Server]:
    server = S3Server()
    yield server
    server.close()


@pytest.fixture(scope="module")
def proxied(running: S3Server) -> Iterator[tuple[Proxy, int]]:
    port = free_port()
    proxy = Proxy(running.port, port)
    yield proxy, port
    proxy.close()


@pytest.fixture
def server(running: S3Server) -> Iterator[S3Server]:
    """With an empty bucket."""
    yield running
    remove_all(running.open())


@pytest.fixture
def network(server: S3Server, proxied: tuple[Proxy, int]) -> Iterator[tuple[S3Server, Proxy, int]]:
    """A server, a proxy before it that is well, and its port."""
    proxy, port = proxied
    proxy.heal()
    yield server, proxy, port
    proxy.heal()


@pytest.fixture
def anywhere(request: pytest.FixtureRequest) -> Iterator[Objects]:
    """A real server, ours or another's."""
    if HOME:
        yield request.getfixturevalue("server").open(timeout=10.0)
        return
    objects = open_elsewhere()
    yield objects
    remove_all(objects)


def remove_all(objects: Objects) -> None:
    for one in objects.list(""):
        objects.delete(one.path)


def stored_files(server: S3Server) -> list[Path]:
    return [path for path in (server.bucket / "some/place/data").rglob("*") if path.is_file()]


@needs_endpoint
def test_a_snapshot_follows_on_a_real_server(anywhere: Objects, rng: np.random.Generator) -> None:
    stream = Stream(Graph(make_schema(text_ids=True)), rng)
    stream.step(200)
    view = SnapshotView(stream.graph, anywhere, interval=None, grace=0.0)
    source = SnapshotSource(anywhere)
    for size in (0, 3, 100, 2):
        if size:
            stream.step(size)
        view.write()
        check_shows(source.newest(), stream.graph, stream.used)
    view.close()


@needs_endpoint
def test_objects_of_a_real_server(anywhere: Objects) -> None:
    objects = anywhere
    objects.put_new("a/1", b"12345")
    with pytest.raises(ObjectExistsError):
        objects.put_new("a/1", b"54321")
    assert objects.get("a/1") == b"12345"
    with pytest.raises(ObjectMissingError, match="expected the object a/2"):
        objects.get("a/2")
    assert [(one.path, one.size) for one in objects.list("a")] == [("a/1", 5)]
    for start, length in ((0, 6), (3, 3), (5, 1), (100, 10)):
        with pytest.raises(ObjectDamagedError, match="truncated"):
            Objects(objects.store, patience=0.2).get_ranges("a/1", np.array([start]), np.array([length]))
    upload = objects.upload("large")
    part = np.arange(3 << 20, dtype=np.uint32).view(np.uint8)  # two parts and a half
    for at in range(0, len(part), 1 << 20):
        upload.write(part[at : at + (1 << 20)].data)
    upload.finish()
    found = objects.get_ranges("large", np.array([7]), np.array([len(part) - 7]))
    np.testing.assert_array_equal(found, part[7:])
    objects.delete("a/1")
    assert objects.list("a") == []


@needs_server
@pytest.mark.parametrize(
    ("bucket", "wrong", "said"),
    [
        ("nowhere", {}, "NoSuchBucket"),
        ("graph", {"secret_access_key": "other"}, "SignatureDoesNotMatch"),
        ("graph", {"access_key_id": "other"}, "(InvalidAccessKeyId|No user exists)"),  # servers differ
    ],
)
def test_a_wrong_bucket_and_wrong_keys_are_said_at_once(
    server: S3Server, bucket: str, wrong: dict[str, str], said: str
) -> None:
    objects = open_objects(
        f"s3://{bucket}/place",
        patience=1000.0,
        endpoint=f"http://127.0.0.1:{server.port}",
        virtual_hosted_style_request="false",
        **{**KEYS, **wrong},
    )
    with pytest.raises(SnapshotError, match=f"refuses place in .*{said}.* Give the right") as error:
        objects.list("place")
    assert not isinstance(error.value, StoreUnavailableError)


@needs_server
def test_an_endpoint_without_tls_may_come_from_the_environment(
    server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = {
        "endpoint": f"http://127.0.0.1:{server.port}",
        "virtual_hosted_style_request": "false",
        **KEYS,
    }
    for name, value in variables.items():
        monkeypatch.setenv(f"AWS_{name.upper()}", value)
    objects = open_objects("s3://graph/some/place")
    objects.put_new("one", b"1")
    assert server.open().get("one") == b"1"


TOXICS: list[tuple[str, dict[str, float]]] = [
    ("latency", {"latency": 150, "jitter": 100}),
    ("bandwidth", {"rate": 300}),
    ("slicer", {"average_size": 50, "size_variation": 40, "delay": 100}),
    ("slow_close", {"delay": 300}),
    ("limit_data", {"bytes": 3000}),
    ("reset_peer", {"timeout": 20}),
    ("timeout", {"timeout": 0}),
]


@needs_proxy
@pytest.mark.parametrize("stream", ["downstream", "upstream"])
@pytest.mark.parametrize(("kind", "attributes"), TOXICS, ids=[kind for kind, _ in TOXICS])
def test_a_bad_network_gives_no_wrong_answer(
    kind: str, attributes: dict[str, float], stream: str, network: tuple[S3Server, Proxy, int]
) -> None:
    """Read while the network is bad: the right answer or an error; and the right answer when it is well."""
    server, proxy, port = network
    rng = np.random.default_rng(0)
    nodes = 3000
    src, dst = rng.integers(0, nodes, (2, 20_000))
    x = rng.normal(size=(nodes, 20)).astype(np.float32)
    graph = Graph.from_edges(src, dst, x=x, parallel="last")
    write_snapshot(graph, server.open())
    objects = server.open(port, patience=1.5, timeout=0.6)
    healthy = open_snapshot(objects)
    rows = rng.permutation(nodes)[:400]
    expected = graph.features(rows)
    neighbors = [graph.neighbors(int(id)).ids for id in rows[:50]]

    def read() -> None:
        np.testing.assert_array_equal(healthy.features(None, rows), expected)
        found = healthy.neighbors(None, rows[:50])
        np.testing.assert_array_equal(found.rows, np.concatenate(neighbors))

    read()
    proxy.toxic(kind, stream, **attributes)
    failed = 0
    for _ in range(2):
        try:
            read()
        except SnapshotError:
            failed += 1
    if kind in ("latency", "slow_close"):
        assert not failed
    if (kind, stream) == ("timeout", "downstream"):
        assert failed == 2
    proxy.heal()
    read()
    objects.close()


@needs_proxy
def test_a_request_succeeds_when_the_network_comes_back(network: tuple[S3Server, Proxy, int]) -> None:
    server, proxy, port = network
    graph = Graph.from_edges([0, 1], [1, 2], x=np.eye(3))
    write_snapshot(graph, server.open())
    snapshot = open_snapshot(server.open(port, patience=60.0))
    proxy.cut(off=True)
    back = threading.Timer(0.5, lambda: proxy.cut(off=False))
    back.start()
    np.testing.assert_array_equal(snapshot.features(None, np.arange(3)), np.eye(3))
    back.join()


@needs_proxy
def test_a_view_goes_on_when_the_network_comes_back(
    network: tuple[S3Server, Proxy, int], rng: np.random.Generator
) -> None:
    server, proxy, port = network
    stream = Stream(Graph(make_schema()), rng)
    stream.step(200)
    view = SnapshotView(stream.graph, server.open(port, patience=0.5, timeout=0.5), interval=None, grace=0.0)
    view.write()
    before = stream.graph.seq
    for toxic in ("cut", "reset_peer", "timeout"):
        stream.step(10)
        if toxic == "cut":
            proxy.cut(off=True)
        else:
            proxy.toxic(toxic, timeout=0)
        with pytest.raises(SnapshotError):
            view.write()
        assert view.failure is not None
        assert open_snapshot(server.open()).seq == before  # nothing half-written is seen
        proxy.heal()
        proxy.cut(off=False)
        view.write()
        before = stream.graph.seq
        check_shows(open_snapshot(server.open()), stream.graph, stream.used)
    view.close()


@needs_server
def test_a_server_that_dies_and_comes_back(rng: np.random.Generator) -> None:
    server = S3Server()
    try:
        stream = Stream(Graph(make_schema()), rng)
        stream.step(150)
        view = SnapshotView(stream.graph, server.open(patience=0.5), interval=None)
        view.write()
        snapshot = open_snapshot(server.open(patience=0.5))
        server.kill()
        stream.step(5)
        with pytest.raises(SnapshotError, match="does not answer"):
            view.write()
        with pytest.raises(SnapshotError, match="does not answer"):
            snapshot.features("user", np.array([0]))
        server.start()
        view.write()
        check_shows(open_snapshot(server.open()), stream.graph, stream.used)
    finally:
        server.close()


@needs_server
def test_files_spoiled_behind_the_servers_back(server: S3Server, rng: np.random.Generator) -> None:
    stream = Stream(Graph(make_schema()), rng)
    stream.step(200, nodes=20, removals=0.0)
    write_snapshot(stream.graph, server.open())
    impatient: Objects = server.open(patience=0.2)
    files = [path for path in stored_files(server) if path.stat().st_size]
    for path in [files[int(i)] for i in rng.permutation(len(files))[:10]]:
        content = path.read_bytes()
        spoiled = bytearray(content)
        spoiled[int(rng.integers(len(content)))] ^= 1 << int(rng.integers(8))
        for damage in (bytes(spoiled), content[:-1], None):
            if damage is None:
                path.unlink()
            else:
                path.write_bytes(damage)
            with pytest.raises((ObjectDamagedError, ObjectMissingError)):
                check_shows(open_snapshot(impatient), stream.graph, stream.used)
            path.write_bytes(content)
    check_shows(open_snapshot(impatient), stream.graph, stream.used)
