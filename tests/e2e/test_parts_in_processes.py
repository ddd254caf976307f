"""A graph whose parts are processes of their own keeps the bits of one engine."""

import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

if "CI" not in os.environ:  # which installs all extras
    pytest.importorskip("zmq", reason="pyzmq is not installed: pip install 'livegnn[cluster]'")

from divided_streams import BATCHES, EDGES, Stream, apply_alone, check_stream, follow, schema_of
from gate import draws, in_gate
from livegnn import Engine, Events, Graph
from livegnn.channels.health import Patience
from livegnn.errors import FileFormatError, WorkerUnavailableError
from livegnn.partitions import LocalPartitions
from livegnn.partitions.remote import RemotePartitions
from livegnn.partitions.snapshots import PartsSnapshotView
from livegnn.placement import Owners
from livegnn.snapshots.snapshot_source import open_snapshot
from modules import EDGE_FEATURES, EDGE_WIDTH, WIDTH, designs_of, make
from snapshots import check_shows
from streams import make_model


@pytest.fixture(params=[True, False], ids=["memory", "sockets"])
def divide(request: pytest.FixtureRequest) -> Any:
    """`RemotePartitions`, over either kind of exchange."""
    return partial(RemotePartitions, shares_memory=request.param)


@pytest.mark.parametrize(
    "kind",
    in_gate(["gat_edge", "gin", "gcn", "sage max"]),
)
def test_parts_in_processes_keep_the_bits_of_one_engine(kind: str, divide: Any) -> None:
    _, model = make(designs_of(kind)[0])
    featured = {"edge_dim": EDGE_WIDTH} if kind in EDGE_FEATURES else {}
    for seed, magnitude in enumerate([1.0, 3e38][: draws(2, 2)]):
        text = seed == 1 or kind == "gin"
        schema = schema_of("weight", undirected=bool(seed), text=text, **featured)
        stream = Stream(np.random.default_rng(seed), schema.edge_types[EDGES], False, text, magnitude)
        sizes = [40, *([4] * (BATCHES - 1))]
        check_stream(model, schema, Owners("jump", 1 + 2 * seed), stream, sizes, divide=divide)


def check_snapshot(parts: RemotePartitions, graph: Graph, store: Path) -> None:
    """Each process writes its share of a snapshot, which shows the graph."""
    view = PartsSnapshotView(parts, str(store), interval=None, start=False)
    manifest = view.write()
    assert manifest is not None
    assert len(manifest.layers) == 1 + len(parts.parts)
    check_shows(open_snapshot(str(store)), graph, {"node": set()})
    view.close()


@pytest.mark.parametrize("text", [True, pytest.param(False, marks=pytest.mark.explored)])
def test_processes_begin_with_a_graph_and_with_what_they_saved(tmp_path: Path, text: bool) -> None:
    """They keep the bits of one engine each time."""
    _, model = make(designs_of("gat_edge")[0])
    schema = schema_of("weight time expires", undirected=False, text=text, edge_dim=EDGE_WIDTH)
    stream = Stream(np.random.default_rng(1), schema.edge_types[EDGES], True, text)
    graph = Graph(schema, threads=1)
    apply_alone(graph, stream, [60, *([6] * 8)])
    engine = Engine(graph, model, threads=1)
    parts = RemotePartitions.from_graph(graph, model, Owners("jump", 3), threads=1)
    for _ in range(2):
        try:
            follow(parts, graph, engine, stream, [4] * 12)
            parts.write(tmp_path)
            check_snapshot(parts, graph, tmp_path / "store")
        finally:
            parts.close()
        parts = RemotePartitions.from_checkpoint(tmp_path, model, threads=1)
    parts.close()
    local, ids = LocalPartitions.from_checkpoint(tmp_path, model, threads=1), graph.ids()
    assert local.predict(ids).tobytes() == engine.predict(ids).tobytes()
    local.close()
    (tmp_path / f"part-01-{graph.seq:020}.lgck").unlink()
    with pytest.raises(FileFormatError, match=r"needs .*part-01-.*: put the file there"):
        RemotePartitions.from_checkpoint(tmp_path, model, threads=1)


def test_a_process_that_cannot_write_says_why(tmp_path: Path) -> None:
    schema = schema_of("", undirected=False, text=False)
    parts = RemotePartitions(schema, make_model(), Owners("modulo", 2), threads=1)
    parts.apply(Events().add_nodes([1, 2, 3], np.eye(3, WIDTH)))
    (tmp_path / f"part-01-{parts.seq:020}.lgck").mkdir()
    try:
        with pytest.raises(OSError, match="part 1 could not write its file: "):
            parts.write(tmp_path)
        assert parts.predict([1]).shape == (1, 3)  # it goes on
    finally:
        parts.close()


def test_large_rounds_arrive_whole(divide: Any) -> None:
    """Frames of more than one row of a section, and letters too."""
    schema, owners = schema_of("", undirected=True, text=False), Owners("modulo", 2)
    rng, ids = np.random.default_rng(0), np.arange(6000)
    graph = Graph(schema, threads=1)
    engine = Engine(graph, make_model(), threads=1)
    parts = divide(schema, make_model(), owners, threads=1)
    try:
        for _ in range(2):
            events = Events().add_nodes(ids, rng.normal(size=(len(ids), WIDTH)))
            events.add_edges(rng.choice(ids, 40_000), rng.choice(ids, 40_000))
            graph.apply(events)
            parts.apply(events)
            assert parts.predict(ids).tobytes() == engine.predict(ids).tobytes()
        assert all(parts.memory()[f"part {part}: ids of node"] > 0 for part in range(2))
    finally:
        parts.close()


def test_a_batch_that_is_not_recorded_changes_no_process(divide: Any) -> None:
    schema = schema_of("", undirected=False, text=False)
    parts = divide(schema, make_model(), Owners("modulo", 2), threads=1)
    parts.apply(Events().add_nodes([1, 2, 3], np.eye(3, WIDTH)).add_edges([1, 2], [2, 3]))
    before = parts.predict([1, 2, 3]).tobytes()

    def fail(_: object) -> None:
        raise OSError("the log is full")

    try:
        with pytest.raises(OSError, match="the log is full"):
            parts.apply(Events().add_edges([3], [1]), on_staged=fail)
        assert parts.predict([1, 2, 3]).tobytes() == before
        parts.apply(Events().add_edges([3], [1]))
        assert parts.predict([1, 2, 3]).tobytes() != before
    finally:
        parts.close()


def test_a_process_that_ends_ends_batches(divide: Any) -> None:
    """Reads of the other parts go on."""
    owners, ids = Owners("modulo", 2), np.arange(20)
    held, lost = (ids[owners.of_id(ids) == part] for part in (0, 1))
    patience = Patience(silent_seconds=1)
    schema = schema_of("", undirected=False, text=False)
    parts = divide(schema, make_model(), owners, threads=1, patience=patience)
    parts.apply(Events().add_nodes(ids, np.ones((len(ids), WIDTH))))
    before = parts.predict(held).tobytes()
    parts.processes[1].kill()
    try:
        for _ in range(2):
            with pytest.raises(WorkerUnavailableError, match="part 1 must answer"):
                parts.apply(Events().add_edges([0], [1]))
            assert parts.predict(held).tobytes() == before
        with pytest.raises(WorkerUnavailableError, match="part 1 must answer"):
            parts.predict(lost)
    finally:
        parts.close()
