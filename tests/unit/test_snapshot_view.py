"""The view that keeps a snapshot of a live graph: base and deltas, merged, collected, beside batches."""

import shutil
from collections import Counter
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from faulty_store import FaultyStore
from gate import EXPLORING
from livegnn import Events, Graph
from livegnn.errors import FileFormatError, InputError, SnapshotError, StoreUnavailableError
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import Runtime
from livegnn.snapshots import view as view_module
from livegnn.snapshots.compaction import Compaction, collect
from livegnn.snapshots.manifest import Manifest
from livegnn.snapshots.objects import Objects, open_objects
from livegnn.snapshots.snapshot_source import SnapshotSource, open_snapshot
from livegnn.snapshots.stored_snapshot import StoredSnapshot
from livegnn.snapshots.view import SnapshotView
from livegnn.snapshots.writer import write_snapshot
from livegnn.types import State
from snapshots import Stream, check_shows, make_schema
from waiting import wait_until

SMALL = Compaction(most_deltas=3, largest_share=0.6)
OFTEN = Compaction(most_deltas=3, largest_share=100.0)  # merges, and never a second base


def kinds(view: SnapshotView) -> list[str]:
    assert view.manifest is not None
    return [layer.kind for layer in view.manifest.layers]


@pytest.mark.parametrize(
    ("text_ids", "held"),
    [(bool(i), (1 << 30, 0)[j]) for i in range(2) for j in range(2) if EXPLORING or i == j],
)
def test_snapshots_follow_the_graph(
    text_ids: bool, held: int, rng: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever batches come, each snapshot shows the graph; held=0: with as many rounds as there may be."""
    monkeypatch.setattr(view_module, "HELD", held)
    stream = Stream(Graph(make_schema(text_ids=text_ids)), rng)
    stream.step(250)
    view = SnapshotView(stream.graph, str(tmp_path), interval=None, compaction=SMALL, grace=0.0)
    source = SnapshotSource(str(tmp_path))
    seen: Counter[str] = Counter()
    for size in (0, 1, 2, 3, 5, 8, 30, 3, 120, 2, 1):
        if size:
            stream.step(size)
        view.write()
        seen.update(kinds(view))
        check_shows(source.newest(), stream.graph, stream.used)
    assert view.manifest is not None
    assert seen["delta"] > 3
    # What no manifest names is gone.
    named = {section.path for section in view.manifest.sections()}
    assert {one.path for one in view.objects.list("data")} == named
    assert [one.path for one in view.objects.list("manifests")] == [view.manifest.path]
    view.close()


def test_a_delta_has_only_what_changed(tmp_path: Path) -> None:
    nodes = 5000
    x = np.zeros((nodes, 16), dtype=np.float32)
    graph = Graph.from_edges(np.arange(nodes), np.roll(np.arange(nodes), 1), x=x)
    view = SnapshotView(graph, str(tmp_path), interval=None)
    first = view.write()
    assert first is not None
    graph.apply(Events().set_features([7], np.ones((1, 16))).add_edges([1], [4000]))
    second = view.write()
    assert second is not None
    assert second.layers[:-1] == first.layers
    delta = second.layers[-1]
    assert {str(key): table.rows for key, table in delta.tables.items()} == {
        "features-0": 1,
        "in-0": 1,
        "out-0": 1,
    }
    assert delta.size < 250
    assert view.write() is second  # nothing has changed
    graph.apply(Events().remove_edges([17], [4711]))  # an event without an effect
    third = view.write()
    assert third is not None
    assert (third.seq, third.layers) == (3, second.layers)


def test_a_long_text_costs_a_delta_its_own_bytes(tmp_path: Path) -> None:
    graph = Graph(make_schema(text_ids=True))
    node_type = next(iter(graph.schema.node_types))
    view = SnapshotView(graph, str(tmp_path), interval=None, compaction=Compaction(10**6, 1000.0))
    graph.apply(Events().add_nodes([f"a{i}" for i in range(50)], node_type=node_type))
    assert view.write() is not None
    names = ["x" * 1024, *(f"n{i}" for i in range(2000))]
    graph.apply(Events().add_nodes(names, node_type=node_type))
    assert view.write() is not None
    assert kinds(view)[-1] == "delta"
    snapshot = open_snapshot(str(tmp_path))
    assert (snapshot.rows_of(names, node_type) >= 0).all()
    assert snapshot._nodes[0].bytes < 200 * len(names)
    view.close()


def test_many_deltas_become_one_and_many_changes_a_base(tmp_path: Path) -> None:
    nodes = 400
    graph = Graph.from_edges(np.arange(nodes), np.roll(np.arange(nodes), 1), x=np.zeros((nodes, 8)))
    view = SnapshotView(graph, str(tmp_path), interval=None, compaction=SMALL)
    found = []
    for step in range(9):
        graph.apply(Events().set_features([step], np.full((1, 8), step + 1)))
        view.write()
        found.append(kinds(view))
    assert found == [
        ["base"],
        ["base", "delta"],
        ["base", "delta", "delta"],
        ["base", "delta", "delta", "delta"],
        ["base", "delta"],
        ["base", "delta", "delta"],
        ["base", "delta", "delta", "delta"],
        ["base", "delta"],
        ["base", "delta", "delta"],
    ]
    assert open_snapshot(str(tmp_path)).features(None, np.arange(10))[:, 0].tolist() == [*range(1, 10), 0]
    ids = np.arange(nodes)
    graph.apply(Events().set_features(ids, np.ones((nodes, 8))).add_edges(ids, np.roll(ids, 2)))
    view.write()
    assert kinds(view) == ["base"]


def test_replaced_snapshots_stay_for_the_grace(tmp_path: Path) -> None:
    graph = Graph.from_edges([0, 1], [1, 0], x=np.zeros((2, 1)))
    view = SnapshotView(graph, str(tmp_path), interval=None, grace=3600.0, compaction=Compaction(0, 0.0))
    view.write()
    old = open_snapshot(str(tmp_path))
    for step in range(3):
        graph.apply(Events().set_features([0], [[step + 1.0]]))
        view.write()
    assert old.features(None, np.array([0])).tolist() == [[0]]
    assert len(view.objects.list("manifests")) == 4


def measure(graph: Graph) -> tuple[float, list[int]]:
    """Something that every batch changes."""
    x = graph.features(np.array(sorted(graph.ids("user").tolist())), "user")
    return float(x.sum()), [graph.num_edges(edge_type) for edge_type in graph.schema.edge_types]


def measure_stored(snapshot: StoredSnapshot, used: set[int | str]) -> tuple[float, list[int]]:
    rows = {}
    for name in snapshot.schema.node_types:
        found = snapshot.rows_of(np.array(sorted(used)), name)
        rows[name] = found[found >= 0]
    edges = []
    for edge_type, kind in snapshot.schema.edge_types.items():
        degrees = snapshot.degrees(edge_type, rows[edge_type[0]], "out")
        count, _, loops, _ = degrees.columns
        assert loops is not None
        total, own = int(count.sum()), int(loops.sum())
        edges.append((total - own) // 2 + own if kind.undirected else total)
    return float(snapshot.features("user", rows["user"]).sum()), edges


@pytest.mark.parametrize("text_ids", [False, True])
def test_batches_go_on_while_snapshots_are_written(
    text_ids: bool, rng: np.random.Generator, tmp_path: Path
) -> None:
    """A thread writes as often as it can; each snapshot is one event of the stream, whole."""
    stream = Stream(Graph(make_schema(text_ids=text_ids)), rng)
    stream.step(400)
    shown = {stream.graph.seq: measure(stream.graph)}
    view = SnapshotView(stream.graph, str(tmp_path), interval=1e-3, compaction=SMALL)
    try:
        while view.manifest is None or view.manifest.generation < 6:
            stream.step(15)
            shown[stream.graph.seq] = measure(stream.graph)
            assert view.failure is None
        wait_until(
            lambda: view.failure or (view.manifest is not None and view.manifest.seq == stream.graph.seq)
        )
        assert view.failure is None
    finally:
        view.close()
    check_shows(open_snapshot(str(tmp_path)), stream.graph, stream.used)
    used = {id for ids in stream.used.values() for id in ids}
    manifests = view.objects.list("manifests")
    for one in manifests:
        snapshot = StoredSnapshot(view.objects, Manifest.from_bytes(view.objects.get(one.path), one.path))
        assert measure_stored(snapshot, used) == shown[snapshot.seq]
    assert len(manifests) >= 6


def test_what_a_failed_attempt_took_comes_with_the_next(rng: np.random.Generator, tmp_path: Path) -> None:
    """The store fails at every request in turn; no change is ever lost."""
    inner = open_objects(str(tmp_path)).store
    left = [1000]

    def fails(operation: str, path: str) -> str | None:
        left[0] -= 1
        return "error" if left[0] == 0 else None

    stream = Stream(Graph(make_schema()), rng)
    stream.step(100, nodes=20)
    objects = Objects(FaultyStore(inner, fails), patience=0.0)  # type: ignore[arg-type]
    view = SnapshotView(stream.graph, objects, interval=None, compaction=SMALL, grace=0.0)
    failed = 0
    for request in range(1, 40):
        stream.step(6, nodes=20)
        left[0] = request % 13 + 1
        with suppress(StoreUnavailableError):
            view.write()
        left[0] = 1000
        if view.failure is not None:
            failed += 1
            assert "an internal error (on order)" in view.failure
            stream.step(2, nodes=20)
            view.write()
            assert view.failure is None
        if request % 4 == 0:
            check_shows(open_snapshot(Objects(inner)), stream.graph, stream.used)
    assert failed > 10


@pytest.mark.parametrize("where", [None, 5, b"folder", Path("folder"), ["folder"]], ids=repr)
def test_what_is_no_store_is_refused(where: object) -> None:
    graph = Graph.from_edges([0], [1])
    for use in (
        lambda: SnapshotView(graph, where),  # type: ignore[arg-type]
        lambda: write_snapshot(graph, where),  # type: ignore[arg-type]
        lambda: collect(where, 600.0),  # type: ignore[arg-type]
        lambda: open_snapshot(where),  # type: ignore[arg-type]
        lambda: SnapshotSource(where),  # type: ignore[arg-type]
    ):
        with pytest.raises(
            InputError, match="a store must be given by its URL, the path of a folder as text"
        ):
            use()
    assert graph.apply(Events().add_edges(1, 0)).seq == 1, "no view follows it"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"graph": None}, "graph must be a Graph, got NoneType"),
        ({"graph": "graph"}, "graph must be a Graph, got str"),
        ({"compaction": (8, 0.5)}, r"compaction must be a Compaction or None, got \(8, 0.5\)"),
        ({"directions": None}, "directions must be a list of 'in', 'out' or both, got None"),
        ({"directions": "in"}, "directions must be a list of 'in', 'out' or both, got 'in'"),
        ({"directions": ()}, "directions must be a list"),
        ({"directions": ("in", ["out"])}, "directions must be a list"),
        ({"interval": float("nan")}, "interval must be a number above 0, got nan"),
        ({"interval": "60"}, "interval must be a number above 0, got '60'"),
    ],
)
def test_wrong_settings_of_a_view_are_refused(given: dict[str, object], said: str, tmp_path: Path) -> None:
    graph = Graph.from_edges([0], [1])
    with pytest.raises(InputError, match=said):
        SnapshotView(**{"graph": graph, "where": str(tmp_path / "store"), **given})  # type: ignore[arg-type]
    assert graph.apply(Events().add_edges(1, 0)).seq == 1
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"source": None}, "expected PyG's Data or HeteroData, got NoneType"),
        ({"directions": 7}, "directions must be a list of 'in', 'out' or both, got 7"),
        ({"seq": -1}, "seq must be an integer from 0 to"),
        ({"seq": 1.5}, "seq must be an integer from 0 to"),
        ({"seq": 2**63}, "seq must be an integer from 0 to"),
    ],
)
def test_wrong_arguments_write_no_snapshot(given: dict[str, object], said: str, tmp_path: Path) -> None:
    right = {"source": Graph.from_edges([0], [1]), "where": str(tmp_path / "store")}
    with pytest.raises(InputError, match=said):
        write_snapshot(**{**right, **given})  # type: ignore[arg-type]
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("interval", [None, 1e9, float("inf")])
def test_a_closed_view_writes_no_more(interval: float | None, tmp_path: Path) -> None:
    graph = Graph.from_edges([0], [1])
    view = SnapshotView(graph, str(tmp_path), interval=interval)
    view.write()
    view.close()
    seq = graph.apply(Events().add_edges(1, 0)).seq
    with pytest.raises(InputError, match="must be written before the view is closed"):
        view.write()
    assert open_snapshot(str(tmp_path)).seq < seq
    view.close()


@pytest.mark.parametrize("columns", [("foo",), ("weight", "neighbors"), "weight", 7, (["weight"],)], ids=repr)
def test_unknown_columns_are_refused(columns: object, tmp_path: Path) -> None:
    write_snapshot(Graph.from_edges([0], [1], weight=[2.0]), str(tmp_path))
    snapshot, rows = open_snapshot(str(tmp_path)), np.array([0])
    with pytest.raises(InputError, match="columns must be some of 'weight', 'time', 'edge_attr', 'key', got"):
        snapshot.neighbors(None, rows, "out", columns=columns)  # type: ignore[arg-type]
    found = snapshot.neighbors(None, rows, "out", columns=("weight", "time"))
    assert (found.weight, found.time) == (np.array([2.0]), None)
    assert snapshot.neighbors(None, rows, "out", columns=()).weight is None


def test_another_writer_is_seen(tmp_path: Path) -> None:
    graph = Graph.from_edges([0], [1])
    view = SnapshotView(graph, str(tmp_path), interval=None)
    view.write()
    other = SnapshotView(graph, str(tmp_path), interval=None)
    other.write()
    graph.apply(Events().add_edges([1], [0]))
    other.write()
    graph.apply(Events().add_edges([1], [1]))
    with pytest.raises(SnapshotError, match="does another process write to the same place"):
        view.write()
    other.write()
    assert open_snapshot(str(tmp_path)).seq == 2


@pytest.mark.parametrize("emptied", [False, True])
def test_it_goes_on_after_one_write_of_another_hand_and_in_an_emptied_store(
    emptied: bool, rng: np.random.Generator, tmp_path: Path
) -> None:
    stream = Stream(Graph(make_schema()), rng)
    stream.step(100)
    view = SnapshotView(stream.graph, str(tmp_path / "store"), interval=None, compaction=OFTEN)
    view.write()
    stream.step(3)
    view.write()
    source = SnapshotSource(str(tmp_path / "store"))
    source.newest()
    if emptied:
        shutil.rmtree(tmp_path / "store")
    else:
        write_snapshot(Graph.from_edges([0], [1]), str(tmp_path / "store"), seq=1)
    found = []
    for _ in range(3):
        stream.step(5)
        view.write()
        found.append(kinds(view))
        check_shows(source.newest(), stream.graph, stream.used)
    assert found == [["base"], ["base", "delta"], ["base", "delta", "delta"]]


def test_a_view_that_is_behind_the_store_waits(tmp_path: Path) -> None:
    graph = Graph.from_edges([0, 1], [1, 0])
    write_snapshot(graph, str(tmp_path), seq=3)
    view = SnapshotView(graph, str(tmp_path), interval=None)
    for seq in (1, 2, 3):
        assert view.write() is None or seq == 3
        assert view.failure is not None
        assert "shows event 3" in view.failure
        graph.apply(Events().remove_edges([0], [1]))
    published = view.write()
    assert published is not None
    assert (published.seq, published.generation) == (3, 2)
    assert view.failure is None


@pytest.mark.parametrize("later", [0, 1, 6])
def test_a_checkpoint_continues_its_snapshot(later: int, rng: np.random.Generator, tmp_path: Path) -> None:
    """With and without snapshots that were published after it, and merged."""
    stream = Stream(Graph(make_schema()), rng)
    stream.step(300)
    view = SnapshotView(stream.graph, str(tmp_path), interval=None, compaction=OFTEN)
    view.write()
    stream.step(3)
    view.write()
    stream.step(3)  # changed and not published
    before = view.manifest
    saved, kept = view.state(), stream.graph.state()
    assert saved is not None
    assert before is not None
    merged = later == 6
    for _ in range(later):
        stream.step(3)
        view.write()
    newest = open_snapshot(str(tmp_path)).manifest
    while merged and newest.layers[: len(before.layers)] == before.layers:
        stream.step(3)  # steps may change nothing, so that six need not be enough
        view.write()
        newest = open_snapshot(str(tmp_path)).manifest
    reached = stream.graph.seq
    restored = Stream(Graph.from_state(kept), rng)
    restored.used = stream.used
    again = SnapshotView(restored.graph, str(tmp_path), interval=None, compaction=OFTEN, state=saved)
    assert again.state() is not None
    while restored.graph.seq < reached:
        assert again.write() is None or not later
        restored.step(2)
    restored.step(3)
    again.write()
    check_shows(open_snapshot(str(tmp_path)), restored.graph, restored.used)
    assert again.manifest is not None
    continued = again.manifest.layers[0] == before.layers[0]
    assert continued != merged
    restored.step(3)
    again.write()
    check_shows(open_snapshot(str(tmp_path)), restored.graph, restored.used)


def test_a_snapshot_that_is_dropped_has_a_name_of_its_own(tmp_path: Path) -> None:
    """Two snapshots of one identity showed two graphs: the log went another way after the checkpoint."""
    graph = Graph.from_edges([0], [1], num_nodes=4)
    view = SnapshotView(graph, str(tmp_path), interval=None, compaction=OFTEN)
    view.write()
    saved, kept = view.state(), graph.state()
    before = open_snapshot(str(tmp_path))
    graph.apply(Events().add_edges(1, 2))
    view.write()
    dropped = open_snapshot(str(tmp_path))
    graph = Graph.from_state(kept)
    view = SnapshotView(graph, str(tmp_path), interval=None, compaction=OFTEN, state=saved)
    graph.apply(Events().add_edges(2, 3))
    view.write()
    newest = open_snapshot(str(tmp_path))
    assert newest.seq == dropped.seq
    assert newest.manifest.layers[0] == before.manifest.layers[0]
    assert len({before.identity, dropped.identity, newest.identity}) == 3
    # Nothing is dropped when it goes on from here.
    again = SnapshotView(graph, str(tmp_path), interval=None, compaction=OFTEN, state=view.state())
    graph.apply(Events().add_edges(3, 0))
    again.write()
    assert open_snapshot(str(tmp_path)).manifest.chain == newest.manifest.chain


def test_states_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    graph = Graph.from_edges([0], [1])
    view = SnapshotView(graph, str(tmp_path), interval=None)
    assert view.state() is None
    view.write()
    saved = view.state()
    assert saved is not None
    for meta, arrays in (
        ({**saved.meta, "seq": 5}, saved.arrays),
        ({**saved.meta, "generation": "1"}, saved.arrays),
        (saved.meta, {}),
        (saved.meta, {name: bits.astype(np.float32) for name, bits in saved.arrays.items()}),
    ):
        with pytest.raises(FileFormatError):
            SnapshotView(graph, str(tmp_path), interval=None, state=State(meta, arrays))
    with pytest.raises(InputError, match="interval must be"):
        SnapshotView(graph, str(tmp_path), interval=0)


def test_the_last_events_are_published_when_it_closes(tmp_path: Path) -> None:
    graph = Graph.from_edges([0], [1], x=np.zeros((2, 1)))
    view = SnapshotView(graph, str(tmp_path), interval=3600.0)
    wait_until(lambda: view.manifest is not None)
    graph.apply(Events().set_features([0], [[1.0]]))
    view.close()
    assert open_snapshot(str(tmp_path)).features(None, np.array([0])).tolist() == [[1]]


def test_a_view_that_missed_a_batch_publishes_nothing(tmp_path: Path) -> None:
    """One that failed, and that its graph goes on without, does not know what has changed."""
    graph = Graph.from_edges([0, 1], [1, 0], x=np.zeros((2, 1)))
    view = SnapshotView(graph, str(tmp_path), interval=None)
    view.write()
    view.prepare = lambda change: 1 / 0  # type: ignore[method-assign, assignment]
    runtime = Runtime(
        SqliteLog(tmp_path / "log.db"),
        graph,
        view,
        when_view_fails="rebuild",
        factories={
            "snapshots": lambda graph, state: SnapshotView(graph, str(tmp_path / "other"), interval=None)
        },
    )
    runtime.append(Events().set_features([0], [[1.0]]))
    while runtime.step():
        pass
    with pytest.raises(SnapshotError, match="continues without it"):
        view.write()
    assert open_snapshot(str(tmp_path)).seq == 0
    again = runtime.views["snapshots"]
    assert isinstance(again, SnapshotView)
    assert again is not view
    again.write()
    assert open_snapshot(str(tmp_path / "other")).features(None, np.array([0])).tolist() == [[1]]
    runtime.stop()
    runtime.log.close()


def test_a_refused_batch_leaves_no_mark(tmp_path: Path) -> None:
    graph = Graph.from_edges([0], [1], x=np.zeros((2, 1)))
    view = SnapshotView(graph, str(tmp_path), interval=None)
    view.write()

    def refuse(_: object) -> None:
        raise InputError("no")

    with pytest.raises(InputError):
        graph.apply(Events().set_features([0], [[1.0]]), on_staged=refuse)
    graph.apply(Events().remove_edges([1], [0]))
    manifest = view.write()
    assert manifest is not None
    assert len(manifest.layers) == 1
