"""Sets of files of a divided graph: whole ones load, and all others are refused."""

from __future__ import annotations

import shutil
from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np
import pytest

import livegnn._core as _core
import livegnn.checkpoint as checkpoint
from divided_streams import schema_of
from livegnn import Engine, Events, Graph, InputError
from livegnn.errors import FileFormatError
from livegnn.partitions import LocalPartitions
from livegnn.placement import Owners
from streams import WIDTH, make_model

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def events_of(seed: int) -> Events:
    rng, ids = np.random.default_rng(seed), np.arange(30)
    events = Events().add_nodes(ids, rng.normal(size=(30, WIDTH)))
    return events.add_edges(rng.choice(ids, 90), rng.choice(ids, 90), weight=rng.uniform(0.5, 2, 90))


@pytest.fixture
def divided() -> Iterator[LocalPartitions]:
    schema = schema_of("weight", undirected=False, text=False)
    parts = LocalPartitions(schema, make_model(), Owners("modulo", 3), threads=1)
    parts.apply(events_of(1))
    yield parts
    parts.close()


def load(directory: Path, seq: int | None = None) -> LocalPartitions:
    return LocalPartitions.from_checkpoint(directory, make_model(), seq=seq, threads=1)


def refuse(directory: Path, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        load(directory)


def flip(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_directory_keeps_the_sets_of_several_events(divided, tmp_path):
    expected = []
    for seed in (2, 3):
        divided.write(tmp_path)
        expected.append((divided.seq, divided.predict(range(30)).tobytes()))
        divided.apply(events_of(seed))
    assert len(names(tmp_path)) == 8
    for seq, rows in expected:
        parts = load(tmp_path, seq)
        assert (parts.seq, parts.predict(range(30)).tobytes()) == (seq, rows)
        parts.close()
    parts = load(tmp_path)
    assert parts.seq == expected[-1][0]
    parts.close()
    with pytest.raises(InputError, match=r"got no file names-0{19}7\.lgck there"):
        load(tmp_path, 7)


def test_what_is_no_set_is_refused(divided, tmp_path):
    refuse(tmp_path, InputError, r"got no file names-\*\.lgck there")
    refuse(tmp_path / "none", InputError, r"got no file names-\*\.lgck there")
    last = divided.write(tmp_path)
    last.unlink()
    refuse(tmp_path, InputError, r"got no file names-\*\.lgck there")


@pytest.mark.parametrize("part", range(3))
def test_a_set_that_lacks_a_file_is_refused(divided, tmp_path, part):
    divided.write(tmp_path)
    (tmp_path / f"part-{part:02}-{divided.seq:020}.lgck").unlink()
    refuse(tmp_path, FileFormatError, f"needs .*part-{part:02}-.*: put the file there")
    divided.write(tmp_path)
    load(tmp_path).close()


def test_a_file_of_another_event_is_refused(divided, tmp_path):
    divided.write(tmp_path)
    before = divided.seq
    divided.apply(events_of(2))
    divided.write(tmp_path)
    name = "part-01-{:020}.lgck".format
    shutil.copy(tmp_path / name(before), tmp_path / name(divided.seq))
    refuse(tmp_path, FileFormatError, "must be part 1 of the set .* it was written at another time")
    load(tmp_path, before).close()


def test_a_file_of_another_part_or_another_time_is_refused(divided, tmp_path):
    divided.write(tmp_path / "one")
    divided.write(tmp_path / "other")
    name = "part-{:02}-{:020}.lgck".format
    kept = (tmp_path / "one" / name(1, divided.seq)).read_bytes()
    shutil.copy(tmp_path / "other" / name(1, divided.seq), tmp_path / "one" / name(1, divided.seq))
    refuse(tmp_path / "one", FileFormatError, "must be part 1 of the set .* it was written at another time")
    (tmp_path / "one" / name(1, divided.seq)).write_bytes(kept)
    shutil.copy(tmp_path / "one" / name(2, divided.seq), tmp_path / "one" / name(1, divided.seq))
    refuse(tmp_path / "one", FileFormatError, "must be part 1 of the set .*, got part 2 of the set")


def test_any_bit_that_differs_is_refused(divided, tmp_path):
    divided.write(tmp_path)
    rng = np.random.default_rng(1)
    for path in sorted(tmp_path.iterdir()):
        whole = path.read_bytes()
        for _ in range(12):
            path.write_bytes(flip(whole, int(rng.integers(8 * len(whole)))))
            with pytest.raises(FileFormatError):
                load(tmp_path)
        path.write_bytes(whole[:-1])
        with pytest.raises(FileFormatError):
            load(tmp_path)
        path.write_bytes(whole)
    load(tmp_path).close()


def test_files_whose_rows_do_not_fit_are_refused(divided, tmp_path):
    divided.write(tmp_path)
    path = tmp_path / f"part-00-{divided.seq:020}.lgck"
    saved = checkpoint.read(path)
    rows = next(name for name in saved.states["engine"].arrays if name.startswith("rows/"))
    for spoil, text in (
        (lambda arrays: arrays.update({rows: arrays[rows][:-1]}), "expected rows of"),
        (lambda arrays: arrays.pop(rows), "expected an array, got none of this name"),
    ):
        arrays = dict(saved.states["engine"].arrays)
        spoil(arrays)
        states = {**saved.states, "engine": saved.states["engine"]._replace(arrays=arrays)}
        checkpoint.write(path, states, saved.seq)
        refuse(tmp_path, FileFormatError, text)
    checkpoint.write(path, {"graph": saved.states["graph"]}, saved.seq)
    refuse(tmp_path, FileFormatError, "must have a section 'engine'")


def test_the_states_of_parts_are_none_of_a_whole(divided, tmp_path):
    last = divided.write(tmp_path)
    part = checkpoint.read(tmp_path / f"part-00-{divided.seq:020}.lgck").states
    for state in (part["graph"], checkpoint.read(last).states["graph"]):
        with pytest.raises(FileFormatError, match=r"expected the state of a graph.*, got"):
            Graph.from_state(state)
    graph = Graph(divided.names.schema, threads=1)
    with pytest.raises(FileFormatError, match="expected the state of an engine, got 'part of an engine'"):
        Engine(graph, make_model(), threads=1, state=part["engine"])


def test_a_part_has_only_rows_that_it_holds(tmp_path):
    """And nodes are in one file alone."""
    schema = schema_of("", undirected=False, text=False)
    parts = LocalPartitions(schema, make_model(), Owners("modulo", 4), threads=1)
    ids = np.arange(4000)
    parts.apply(Events().add_nodes(ids, np.ones((4000, WIDTH))).add_edges(ids[:-1], ids[1:]))
    alone = LocalPartitions(schema, make_model(), Owners("modulo", 1), threads=1)
    alone.apply(Events().add_nodes(ids, np.ones((4000, WIDTH))).add_edges(ids[:-1], ids[1:]))
    sizes = []
    for each, directory in ((parts, tmp_path / "four"), (alone, tmp_path / "one")):
        each.write(directory)
        path = directory / f"part-00-{each.seq:020}.lgck"
        arrays = checkpoint.read(path).states["engine"].arrays
        sizes.append(sum(array.nbytes for array in arrays.values()))
        each.close()
    assert 0.25 * sizes[1] < sizes[0] < 0.75 * sizes[1]  # a quarter, and its neighbours


def test_a_part_has_only_features_that_it_reads(divided, tmp_path):
    """A set of an older version has the features of all nodes in its file of names alone."""
    divided.write(tmp_path)
    held, expected = [], divided.predict(np.arange(30)).tobytes()
    for number in range(3):
        path = tmp_path / f"part-{number:02}-{divided.seq:020}.lgck"
        saved = checkpoint.read(path)
        arrays = dict(saved.states["graph"].arrays)
        held.append(arrays.pop("nodes/node/held").tolist())
        assert len(arrays.pop("nodes/node/x")) == len(held[-1])
        states = {**saved.states, "graph": saved.states["graph"]._replace(arrays=arrays)}
        checkpoint.write(path, states, saved.seq)
    with closing(load(tmp_path)) as loaded:
        assert [graph.native.save_held_features(0)[0].tolist() for graph in loaded.graphs] == held
        for events in (Events().set_features([3], np.ones((1, WIDTH))), events_of(2)):
            assert loaded.apply(events).seq == divided.apply(events).seq
            assert loaded.predict(np.arange(30)).tobytes() == divided.predict(np.arange(30)).tobytes()
    assert divided.predict(np.arange(30)).tobytes() != expected


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (lambda held, x: (held[:-1], x), "x: expected [0-9]+ rows, as many as held nodes, got"),
        (lambda held, x: (held[::-1], x), "held: expected indices of nodes, each once"),
        (lambda held, x: (held + 4000, x), "held: expected indices of nodes, each once"),
        (lambda held, x: (held, x * np.float32(np.nan)), "x: expected finite numbers"),
        (lambda held, x: (held, x[:, 1:]), "x: expected rows of"),
    ],
)
def test_features_that_do_not_fit_are_refused(divided, tmp_path, spoil, text):
    divided.write(tmp_path)
    path = tmp_path / f"part-00-{divided.seq:020}.lgck"
    saved = checkpoint.read(path)
    arrays = dict(saved.states["graph"].arrays)
    names = "nodes/node/held", "nodes/node/x"
    arrays.update(zip(names, spoil(*(arrays[name] for name in names)), strict=True))
    states = {**saved.states, "graph": saved.states["graph"]._replace(arrays=arrays)}
    checkpoint.write(path, states, saved.seq)
    refuse(tmp_path, FileFormatError, text)


@pytest.mark.parametrize("again", [False, True])
def test_a_set_that_fails_leaves_the_last(divided, tmp_path, monkeypatch, again):
    """Also if it is written again at the same event; then the files of one of the two stay."""
    divided.write(tmp_path)
    before = divided.seq, divided.predict(range(30)).tobytes()
    if again:
        first = set(names(tmp_path))
        divided.write(tmp_path)
        assert len(names(tmp_path)) == len(first)
        assert len(first & set(names(tmp_path))) == 1
    else:
        divided.apply(events_of(2))
    kept = names(tmp_path)

    def fail(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(divided.parts[2], "write", fail)
    with pytest.raises(OSError, match="the disk is full"):
        divided.write(tmp_path)
    if again:
        assert names(tmp_path) == kept
    parts = load(tmp_path)
    assert (parts.seq, parts.predict(range(30)).tobytes()) == before
    parts.close()


def test_fennel_places_nodes_as_if_nothing_had_been_saved(tmp_path):
    schema = schema_of("weight", undirected=False, text=False)
    graph = Graph(schema, threads=1)
    engine = Engine(graph, make_model(), threads=1)
    parts = LocalPartitions(schema, make_model(), Owners("fennel", 3), threads=1)
    rng = np.random.default_rng(4)

    def some(first: int) -> Events:
        ids = np.arange(first, first + 20)
        events = Events().add_nodes(ids, rng.normal(size=(20, WIDTH)))
        return events.add_edges(rng.choice(ids, 30), rng.integers(0, first + 20, 30), weight=np.ones(30))

    for batch in range(4):
        events = some(20 * batch)
        graph.apply(events)
        parts.apply(events)
    parts.write(tmp_path)
    loaded = load(tmp_path)
    for batch in range(4, 10):
        events = some(20 * batch)
        graph.apply(events)
        for each in (parts, loaded):
            each.apply(events)
        owners = [_core.owners_of(each.names.native, 0) for each in (parts, loaded)]
        assert owners[0].tolist() == owners[1].tolist()
        counts = [[_core.edge_counts(one.native) for one in each.graphs] for each in (parts, loaded)]
        assert counts[0] == counts[1]
        assert loaded.predict(graph.ids()).tobytes() == engine.predict(graph.ids()).tobytes()
    assert len(set(owners[1].tolist())) == 3
    for each in (parts, loaded):
        each.close()
