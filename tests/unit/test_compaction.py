"""When deltas become one and a base is due; and what collection removes, by the clock of the store."""

import os
from pathlib import Path

import pytest

from livegnn import Events, Graph
from livegnn.errors import InputError
from livegnn.snapshots.compaction import Compaction, collect
from livegnn.snapshots.objects import Objects, open_objects
from livegnn.snapshots.snapshot_source import open_snapshot
from livegnn.snapshots.view import SnapshotView
from livegnn.snapshots.writer import write_snapshot


@pytest.mark.parametrize(
    ("base", "deltas", "merged", "step"),
    [
        (None, [], 0, "base"),
        (1000, [], 10, "delta"),
        (1000, [100] * 7, 200, "delta"),
        (1000, [1] * 8, 8, "merge"),
        (1000, [600, 600], 400, "merge"),  # the same rows, again and again
        (1000, [], 500, "delta"),
        (1000, [], 501, "base"),
        (1000, [1] * 8, 501, "base"),
        (0, [], 1, "base"),
    ],
)
def test_what_is_written_next(base: int | None, deltas: list[int], merged: int, step: str) -> None:
    assert Compaction().choose(base, deltas, merged) == step


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"most_deltas": -1}, "most_deltas must be an integer of at least 0, got -1"),
        ({"most_deltas": 1.5}, "most_deltas must be an integer"),
        ({"most_deltas": None}, "most_deltas must be an integer"),
        ({"largest_share": float("nan")}, "largest_share must be a number of at least 0, got nan"),
        ({"largest_share": -0.1}, "largest_share must be"),
        ({"largest_share": "0.5"}, "largest_share must be"),
    ],
)
def test_wrong_limits_are_refused(given: dict[str, float], said: str) -> None:
    with pytest.raises(InputError, match=said):
        Compaction(**given)  # type: ignore[arg-type]


def test_a_store_is_collected_by_its_url_too(tmp_path: Path) -> None:
    graph = Graph.from_edges([0], [1])
    for _ in range(2):
        newest = write_snapshot(graph, str(tmp_path))
    assert collect(str(tmp_path), grace=0) > 1
    assert [one.path for one in open_objects(str(tmp_path)).list("manifests")] == [newest.path]


def set_age(folder: Path, path: str, seconds: float) -> None:
    """Lets a file look as old."""
    newest = max(one.stat().st_mtime for one in (folder / "manifests").iterdir())
    os.utime(folder / path, (newest - seconds, newest - seconds))


@pytest.fixture
def objects(tmp_path: Path) -> Objects:
    return open_objects(str(tmp_path))


def test_replaced_snapshots_go_after_the_grace(tmp_path: Path, objects: Objects) -> None:
    """Counted from when they were replaced, not from when they were written."""
    graph = Graph.from_edges([0], [1])
    manifests = []
    for _ in range(3):
        manifests.append(write_snapshot(graph, objects))
        graph.apply(Events().add_edges([1], [0]))
    old, middle, newest = manifests
    for manifest, age in ((old, 9000), (middle, 5000), (newest, 0)):
        for section in manifest.sections():
            set_age(tmp_path, section.path, age)
        set_age(tmp_path, manifest.path, age)
    assert collect(objects, grace=6000) == 0
    assert collect(objects, grace=4000) == 1 + len(list(old.sections()))
    assert [one.path for one in objects.list("manifests")] == [middle.path, newest.path]
    assert collect(objects, grace=4000) == 0
    assert collect(objects, grace=0) == 1 + len(list(middle.sections()))
    assert {one.path for one in objects.list("data")} == {section.path for section in newest.sections()}


def test_strays_go_after_the_grace(tmp_path: Path, objects: Objects) -> None:
    """What a writer that died has left; a young one may be named by the next manifest."""
    write_snapshot(Graph.from_edges([0], [1]), objects)
    before = {one.path for one in objects.list("data")}
    objects.put_new("data/young/x", b"1")
    objects.put_new("data/old/x", b"2")
    set_age(tmp_path, "data/old/x", 100)
    set_age(tmp_path, "data/young/x", 50)
    assert collect(objects, grace=80) == 1
    assert {one.path for one in objects.list("data")} == before | {"data/young/x"}


@pytest.mark.parametrize("grace", [-1, float("nan"), float("inf"), "600", None])
def test_a_wrong_grace_removes_nothing(grace: object, objects: Objects) -> None:
    graph = Graph.from_edges([0], [1])
    for _ in range(2):
        write_snapshot(graph, objects)
    with pytest.raises(InputError, match="grace, in seconds, must be"):
        collect(objects, grace)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="grace, in seconds, must be"):
        SnapshotView(graph, objects, interval=None, grace=grace)  # type: ignore[arg-type]
    assert len(objects.list("manifests")) == 2
    assert collect(objects, grace=1e300) == 0


def test_what_lies_beside_manifests_is_none(tmp_path: Path, objects: Objects) -> None:
    write_snapshot(Graph.from_edges([0], [1]), objects)
    for name in ("zzz", ".hidden", "0000000000019"):
        objects.put_new(f"manifests/{name}", b"")
    assert open_snapshot(objects).manifest.generation == 1
    assert write_snapshot(Graph.from_edges([0], [1]), objects).generation == 2
    assert collect(objects, grace=0) > 1
    assert open_snapshot(objects).manifest.generation == 2


def test_a_damaged_manifest_keeps_everything(tmp_path: Path, objects: Objects) -> None:
    manifest = write_snapshot(Graph.from_edges([0], [1]), objects)
    objects.put_new("data/old/x", b"2")
    set_age(tmp_path, "data/old/x", 100)
    (tmp_path / manifest.path).write_bytes(b"?")
    assert collect(objects, grace=1) == 0
    assert collect(open_objects(str(tmp_path / "empty")), grace=0) == 0
