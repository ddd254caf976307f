"""A view over a place whose newest manifest is damaged: it passes over it, and readers get another."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from livegnn import Events, Graph
from livegnn.errors import FileFormatError, SnapshotError
from livegnn.snapshots.snapshot_source import open_snapshot
from livegnn.snapshots.view import SnapshotView
from livegnn.snapshots.writer import write_snapshot
from snapshots import Stream, check_shows, make_schema

Damage = Callable[[bytes], bytes]

DAMAGES: dict[str, Damage] = {
    "empty": lambda content: b"",
    "shorter": lambda content: content[:-1],
    "another bit": lambda content: content[:-9] + bytes([content[-9] ^ 1]) + content[-8:],
    "another version": lambda content: content.replace(b" 1 ", b" 9 ", 1),
    "another object": lambda content: b"\xff" * 100,
}


def damage_newest(folder: Path, damage: Damage) -> Path:
    newest = max((folder / "manifests").iterdir())
    content = newest.read_bytes()
    assert damage(content) != content
    newest.write_bytes(damage(content))
    return newest


@pytest.mark.parametrize("ends", ["lives", "restarts", "goes on from a checkpoint"])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_view_passes_over_it(ends: str, damage: Damage, rng: np.random.Generator, tmp_path: Path) -> None:
    stream = Stream(Graph(make_schema()), rng)
    stream.step(80)
    view = SnapshotView(stream.graph, str(tmp_path), interval=None)
    view.write()
    stream.step(5)
    view.write()
    state = view.state()
    newest = damage_newest(tmp_path, damage)
    with pytest.raises(FileFormatError, match="write the snapshot again"):
        open_snapshot(str(tmp_path))
    if ends != "lives":
        view.close()
        state = state if ends == "goes on from a checkpoint" else None
        graph = Graph.from_state(stream.graph.state())
        graph.seq, stream.graph = stream.graph.seq, graph
        view = SnapshotView(stream.graph, str(tmp_path), interval=None, state=state)
    for kinds in (["base"], ["base", "delta"]):
        published = view.write()
        assert view.failure is None
        assert published is not None
        assert [layer.kind for layer in published.layers] == kinds
        assert published.path > f"manifests/{newest.name}"
        check_shows(open_snapshot(str(tmp_path)), stream.graph, stream.used)
        stream.step(3)
    view.close()


def test_a_view_behind_the_last_one_that_can_be_read_waits(tmp_path: Path) -> None:
    graph = Graph.from_edges([0], [1])
    for seq in (2, 3):
        write_snapshot(graph, str(tmp_path), seq=seq)
    damage_newest(tmp_path, DAMAGES["empty"])
    view = SnapshotView(graph, str(tmp_path), interval=None)
    assert view.write() is None
    assert view.failure is not None
    assert "manifests/000000000001 in" in view.failure
    assert "shows event 2, the graph is at 0" in view.failure
    for _ in range(2):
        graph.apply(Events().add_edges([1], [0]))
    published = view.write()
    assert published is not None
    assert (published.seq, published.generation) == (2, 3)
    view.close()


def test_a_damaged_one_of_another_writer_is_not_passed_over(tmp_path: Path) -> None:
    graph = Graph.from_edges([0], [1])
    view, other = (SnapshotView(graph, str(tmp_path), interval=None) for _ in range(2))
    for one in (view, other):
        graph.apply(Events().add_edges([1], [0]))
        one.write()
    graph.apply(Events().add_edges([1], [1]))
    damage_newest(tmp_path, DAMAGES["shorter"])
    with pytest.raises(
        SnapshotError, match=r"got manifests/0+2, which is damaged: does another process write"
    ):
        view.write()
    published = other.write()
    assert published is not None
    assert published.generation == 3
    for one in (view, other):
        one.close()
