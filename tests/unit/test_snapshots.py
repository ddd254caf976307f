"""Snapshots in object storage: a base of any graph, read back bit by bit; what is damaged is no answer."""

import json
import random
import shutil
import zlib
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from faulty_store import FAULTS, Fault, FaultyStore
from livegnn import Events, Graph
from livegnn.errors import (
    FileFormatError,
    InputError,
    ObjectDamagedError,
    ObjectExistsError,
    ObjectMissingError,
    SnapshotError,
    SnapshotReplacedError,
    UnknownTypeError,
)
from livegnn.graph import EdgeSchema, Schema
from livegnn.snapshots import records, writer
from livegnn.snapshots.manifest import Manifest
from livegnn.snapshots.objects import Objects, open_objects
from livegnn.snapshots.snapshot import Snapshot
from livegnn.snapshots.snapshot_source import SnapshotSource, open_snapshot
from livegnn.snapshots.view import SnapshotView
from livegnn.snapshots.writer import write_snapshot
from snapshots import Stream, check_shows, make_schema


@pytest.mark.parametrize("text_ids", [False, True])
@pytest.mark.parametrize("piece", [1 << 20, 64])
def test_a_base_shows_the_graph(
    text_ids: bool, piece: int, rng: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "PIECE", piece)
    stream = Stream(Graph(make_schema(text_ids=text_ids)), rng)
    for size in (1, 300, 400):
        stream.step(size)
        write_snapshot(stream.graph, str(tmp_path))
        check_shows(open_snapshot(str(tmp_path)), stream.graph, stream.used)


def test_rows_that_are_their_ids_need_no_table(tmp_path: Path) -> None:
    graph = Graph.from_edges([0, 1, 2], [1, 2, 2], x=np.eye(3, dtype=np.float32))
    manifest = write_snapshot(graph, str(tmp_path), directions=("in",))
    (base,) = manifest.layers
    assert {str(key) for key in base.tables} == {"ids-0", "features-0", "in-0"}
    snapshot = open_snapshot(str(tmp_path))
    assert snapshot.rows_of(np.array([2, 0, 3, -1])).tolist() == [2, 0, -1, -1]
    found = snapshot.neighbors(None, np.array([2, 0, 2]))
    assert found.offsets.tolist() == [0, 2, 2, 4]
    assert sorted(found.rows[:2].tolist()) == [1, 2]
    assert snapshot.degrees(None, np.array([2, 0])).columns[0].tolist() == [2, 0]
    with pytest.raises(InputError, match=r"no lists of .* in direction 'out'"):
        snapshot.neighbors(None, np.array([0]), "out")


def test_only_what_is_asked_for_is_read(tmp_path: Path) -> None:
    """Opening reads no table, and a request little more than its own rows."""
    nodes = 20_000
    ids = np.arange(nodes) * 7 + 3
    x = np.random.default_rng(0).normal(size=(nodes, 32)).astype(np.float32)
    graph = Graph.from_edges(ids, np.roll(ids, 1), ids=ids, x=x, weight=np.ones(nodes))
    manifest = write_snapshot(graph, str(tmp_path))
    objects = Objects(open_objects(str(tmp_path)).store, gap=0)
    snapshot = open_snapshot(objects)
    opened = objects.bytes_read
    assert objects.requests <= 4
    assert opened < 10_000
    rows = snapshot.rows_of(ids[[5, 17_000]])
    assert rows.tolist() == [5, 17_000]
    assert objects.bytes_read - opened == 2 * 256 * 12
    before = objects.bytes_read
    np.testing.assert_array_equal(snapshot.features(None, rows), x[[5, 17_000]])
    assert objects.bytes_read - before == 2 * (32 * 4 + 4)
    before = objects.bytes_read
    found = snapshot.neighbors(None, rows, columns=())
    assert found.weight is None
    assert found.rows.tolist() == [6, 17_001]
    assert objects.bytes_read - before == 2 * (8 + 4 + 4 + 8 + 8 + 4 + 4 + 4) + 2 * 4
    assert manifest.size > 100 * (objects.bytes_read - opened)


def test_no_rows_is_an_answer(tmp_path: Path) -> None:
    write_snapshot(Graph.from_edges([0], [1], x=np.zeros((2, 3))), str(tmp_path))
    snapshot = open_snapshot(str(tmp_path))
    none = np.empty(0, dtype=np.int64)
    assert snapshot.features(None, none).shape == (0, 3)
    assert snapshot.neighbors(None, none).offsets.tolist() == [0]
    assert len(snapshot.degrees(None, none)) == 0
    assert len(snapshot.rows_of(none)) == 0


def test_an_empty_graph_is_written(tmp_path: Path) -> None:
    for text_ids in (False, True):
        where = str(tmp_path / str(text_ids))
        graph = Graph(Schema({"a": 2}, {("a", "to", "a"): EdgeSchema()}, text_ids=text_ids))
        write_snapshot(graph, where)
        check_shows(open_snapshot(where), graph, {"a": set()})


@pytest.mark.parametrize("block", [1, 2, 256])
def test_texts_with_equal_checksums_are_told_apart(
    block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where they stand in different blocks of the order."""
    monkeypatch.setattr(records, "BLOCK", block)
    alike = ["plumless", "buckeroo"]
    assert zlib.crc32(alike[0].encode()) == zlib.crc32(alike[1].encode())
    ids = [*alike, *(f"other {i}" for i in range(5))]
    for named in (ids, ids[1:], [ids[0], *ids[2:]]):
        where = str(tmp_path / named[0] / str(len(named)))
        write_snapshot(Graph.from_edges([named[0]], [named[1]], ids=named), where)
        rows = open_snapshot(where).rows_of(np.array(ids))
        assert [id for id, row in zip(ids, rows, strict=True) if row >= 0] == named
        assert open_snapshot(where).ids_of(rows[rows >= 0]).tolist() == named


def test_any_integers_are_ids(
    rng: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as fill some blocks, asked for in any order, more than once, among others that are no ids."""
    monkeypatch.setattr(records, "BLOCK", 7)
    for count in (1, 6, 7, 8, 14, 100):
        ids = rng.choice(1000, count, replace=False) * 3
        where = str(tmp_path / str(count))
        write_snapshot(Graph.from_edges([ids[0]], [ids[0]], ids=ids), where)
        asked = rng.integers(-5, 3005, 400)
        place = {int(id): row for row, id in enumerate(ids)}
        expected = [place.get(int(id), -1) for id in asked]
        assert open_snapshot(where).rows_of(asked).tolist() == expected


def test_wrong_arguments_are_said(tmp_path: Path) -> None:
    graph = Graph.from_edges([0], [1], x=np.zeros((2, 3)))
    write_snapshot(graph, str(tmp_path))
    snapshot = open_snapshot(str(tmp_path))
    with pytest.raises(InputError, match="rows must be those of nodes"):
        snapshot.features(None, np.array([0, 7]))
    for row in (-1, 2):
        with pytest.raises(InputError, match=f"rows must be those of nodes.*got {row}"):
            snapshot.neighbors(None, np.array([0, row]))
        with pytest.raises(InputError, match=f"rows must be those of nodes.*got {row}"):
            snapshot.degrees(None, np.array([row]))
    with pytest.raises(UnknownTypeError, match="node type must be one of"):
        snapshot.features("other", np.array([0]))
    with pytest.raises(UnknownTypeError, match="edge type must be one of"):
        snapshot.neighbors(("a", "b", "c"), np.array([0]))
    with pytest.raises(InputError, match="ids are integers"):
        snapshot.rows_of(np.array(["a"]))
    with pytest.raises(InputError, match="rows must be a list of integers"):
        snapshot.features(None, np.array([0.5]))
    with pytest.raises(InputError, match="directions must be"):
        write_snapshot(graph, str(tmp_path), directions=("up",))  # type: ignore[arg-type]
    with pytest.raises(SnapshotError, match=r"expected a snapshot in .*found none"):
        open_snapshot(str(tmp_path / "empty"))


def test_nobody_sees_half_of_a_snapshot(tmp_path: Path) -> None:
    """A writer that fails at any of its requests leaves the snapshot that was there."""
    inner = open_objects(str(tmp_path)).store
    graph = Graph.from_edges([0, 1], [1, 2], x=np.ones((3, 2)))
    write_snapshot(graph, Objects(inner))
    graph.apply(Events().add_edges([2], [0]))
    for last in range(100):
        left = [last]

        def fails(operation: str, path: str, left: list[int] = left) -> str | None:
            left[0] -= 1
            return "error" if left[0] < 0 else None

        objects = Objects(FaultyStore(inner, fails), patience=0.0)  # type: ignore[arg-type]
        try:
            write_snapshot(graph, objects)
        except SnapshotError:
            published = open_snapshot(Objects(inner)).seq
            # Only the last request makes it visible; its answer may be lost.
            assert published in (0, 1)
        else:
            break
    assert last > 5
    check_shows(open_snapshot(Objects(inner)), graph, {"node": set()})


def test_two_writers_do_not_mix(tmp_path: Path) -> None:
    graph = Graph.from_edges([0], [1])
    manifest = write_snapshot(graph, str(tmp_path))
    with pytest.raises(ObjectExistsError):
        open_objects(str(tmp_path)).put_new(manifest.path, manifest.to_bytes())


def test_each_damaged_byte_is_seen(tmp_path: Path, rng: np.random.Generator) -> None:
    """Whatever byte of whatever object is another: an error, or the answer that is right without it."""
    stream = Stream(Graph(make_schema()), rng)
    stream.step(300, nodes=20)
    write_snapshot(stream.graph, str(tmp_path))
    files = sorted(path for path in (tmp_path / "data").rglob("*") if path.is_file() and path.stat().st_size)
    manifests = sorted((tmp_path / "manifests").iterdir())
    seen = 0
    for path in [*files, *manifests]:
        content = path.read_bytes()
        spoiled = bytearray(content)
        place = int(rng.choice([0, len(content) - 1, rng.integers(len(content))]))
        spoiled[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(spoiled)
        try:
            check_shows(open_snapshot(str(tmp_path)), stream.graph, stream.used)
        except (ObjectDamagedError, FileFormatError):
            seen += 1
        path.write_bytes(content)
    assert seen >= len(files) / 2  # gaps that removed nodes have left are not read
    check_shows(open_snapshot(str(tmp_path)), stream.graph, stream.used)


def test_a_store_that_fails_gives_no_wrong_answer(tmp_path: Path, rng: np.random.Generator) -> None:
    """Faults of every kind, often and at random places: the right answer, or a clear error."""
    stream = Stream(Graph(make_schema()), rng)
    stream.step(300, nodes=20)
    view = SnapshotView(stream.graph, str(tmp_path), interval=None)
    view.write()
    stream.step(10, nodes=20)
    view.write()
    chosen = random.Random(int(rng.integers(1 << 30)))
    outcomes: Counter[str] = Counter()
    for share in (0.002, 0.01, 0.05, 0.2):

        def fails(operation: str, path: str, share: float = share) -> Fault | None:
            return chosen.choice(FAULTS) if operation == "get" and chosen.random() < share else None

        faulty = FaultyStore(view.objects.store, fails)
        rounds = 0
        while rounds < 10 or not faulty.struck:
            rounds += 1
            try:
                snapshot = open_snapshot(Objects(faulty, patience=0.1, sleep=lambda _: None))
                check_shows(snapshot, stream.graph, stream.used)
                outcomes["right"] += 1
            except (SnapshotError, FileFormatError) as error:
                outcomes[type(error).__name__] += 1
    assert outcomes["right"] > 2
    assert outcomes["ObjectMissingError"] > 2


def test_a_record_at_another_place_is_seen(tmp_path: Path) -> None:
    """Two whole records that have changed places are not taken for each other."""
    graph = Graph.from_edges([0], [1], x=np.arange(6).reshape(3, 2), num_nodes=3)
    manifest = write_snapshot(graph, str(tmp_path))
    (base,) = manifest.layers
    (table,) = [table for key, table in base.tables.items() if key.kind == "features"]
    path = tmp_path / table.sections["records"].path
    content = path.read_bytes()
    size = len(content) // 3
    path.write_bytes(content[size : 2 * size] + content[:size] + content[2 * size :])
    snapshot = open_snapshot(str(tmp_path))
    assert snapshot.features(None, np.array([2])).tolist() == [[4, 5]]
    with pytest.raises(ObjectDamagedError, match="not as it was written"):
        snapshot.features(None, np.array([0]))


def test_missing_and_truncated_objects_are_said(tmp_path: Path, rng: np.random.Generator) -> None:
    stream = Stream(Graph(make_schema(text_ids=True)), rng)
    stream.step(200, nodes=20, removals=0.0)  # each record is needed
    write_snapshot(stream.graph, str(tmp_path))
    files = [path for path in (tmp_path / "data").rglob("*") if path.is_file() and path.stat().st_size]
    impatient = Objects(open_objects(str(tmp_path)).store, patience=0, sleep=lambda _: None)
    for path in [files[int(i)] for i in rng.permutation(len(files))[:12]]:
        content = path.read_bytes()
        path.write_bytes(content[:-1])
        with pytest.raises(ObjectDamagedError, match="truncated"):
            check_shows(open_snapshot(impatient), stream.graph, stream.used)
        path.unlink()
        with pytest.raises(ObjectMissingError, match=path.name):
            check_shows(open_snapshot(str(tmp_path)), stream.graph, stream.used)
        path.write_bytes(content)


def test_a_snapshot_that_was_replaced_is_told_from_a_lost_one(tmp_path: Path) -> None:
    graph = Graph.from_edges([0], [1], x=np.ones((2, 1)))
    first = write_snapshot(graph, str(tmp_path))
    source = SnapshotSource(str(tmp_path))
    old = source.newest()
    assert source.newest() is old
    graph.apply(Events().set_features([0], [[5.0]]))
    write_snapshot(graph, str(tmp_path))
    assert old.features(None, np.array([0])).tolist() == [[1]]  # as long as its objects are there
    for section in first.sections():
        (tmp_path / section.path).unlink(missing_ok=True)
    with pytest.raises(SnapshotReplacedError, match="begin again with the newest"):
        old.features(None, np.array([0]))
    assert source.read(lambda one: one.features(None, np.array([0])).tolist()) == [[5]]
    assert source.current.seq == 1


def test_manifests_are_json_with_a_checksum(tmp_path: Path) -> None:
    manifest = write_snapshot(Graph.from_edges([0], [1]), str(tmp_path), seq=17)
    data = (tmp_path / manifest.path).read_bytes()
    assert Manifest.from_bytes(data, "it") == manifest
    assert json.loads(data.partition(b"\n")[2])["seq"] == 17
    for wrong, said in (
        (b"", "must be the manifest"),
        (data[:-1], "is damaged"),
        (data.replace(b'"seq": 17', b'"seq": 18'), "is damaged"),
        (data.replace(b"snapshot 1", b"snapshot 2", 1), "is of version 2"),
    ):
        with pytest.raises(FileFormatError, match=said):
            Manifest.from_bytes(wrong, "it")


def test_a_base_without_a_table_is_refused(tmp_path: Path) -> None:
    """Its rows would be those of the deltas alone."""
    graph = Graph.from_edges([0], [1], x=np.eye(2))
    view = SnapshotView(graph, str(tmp_path), interval=None)
    view.write()
    graph.apply(Events().set_features([0], [[3.0, 4.0]]).add_edges([1], [0]))
    manifest = view.write()
    assert manifest is not None
    base, delta = manifest.layers
    objects = open_objects(str(tmp_path))
    Snapshot(objects, manifest)
    for key in base.tables:
        tables = {name: table for name, table in base.tables.items() if name != key}
        if key in delta.tables or key.kind in ("ids", "features"):
            wrong = replace(manifest, layers=(replace(base, tables=tables), delta))
            with pytest.raises(FileFormatError, match=f"must have the tables {key}"):
                Snapshot(objects, wrong)


def test_a_manifest_under_another_name_is_seen(tmp_path: Path) -> None:
    """As a copy of an old one would be: readers would go back to its event."""
    manifest = write_snapshot(Graph.from_edges([0], [1]), str(tmp_path), seq=17)
    path = tmp_path / manifest.path
    path.with_name("000000000004").write_bytes(path.read_bytes())
    with pytest.raises(FileFormatError, match=r"000000000004 .* must be the manifest of that name"):
        open_snapshot(str(tmp_path))


def test_a_folder_that_is_emptied_and_written_anew_is_read_on(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    stream = Stream(Graph(make_schema()), rng)
    stream.step(300)
    for _ in range(2):
        write_snapshot(stream.graph, str(tmp_path / "place"))
    source = SnapshotSource(str(tmp_path / "place"))
    assert source.current.manifest.generation == 2
    shutil.rmtree(tmp_path / "place")
    with pytest.raises(SnapshotError, match="found none"):
        source.read(lambda found: found.features("user", np.array([0])))
    write_snapshot(stream.graph, str(tmp_path / "place"))
    assert source.read(lambda found: check_shows(found, stream.graph, stream.used)) is None
    assert source.current.manifest.generation == 1
