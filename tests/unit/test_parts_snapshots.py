"""Snapshots of a graph in parts: each part writes its share, and readers see one graph."""

import os
from pathlib import Path

import numpy as np
import pytest

if "CI" not in os.environ:  # which installs all extras
    pytest.importorskip("zmq", reason="pyzmq is not installed: pip install 'livegnn[cluster]'")

from divided_deployment import opened, write
from divided_streams import weights_of
from livegnn import Events, Graph, Model
from livegnn.deployment.snapshots import start_snapshots
from livegnn.errors import InputError, WorkerUnavailableError
from livegnn.model import Input, Propagate, Step
from livegnn.partitions import LocalPartitions
from livegnn.partitions.remote import RemotePartitions
from livegnn.partitions.snapshots import PartsSnapshotView
from livegnn.placement import Owners
from livegnn.snapshots.snapshot_source import SnapshotSource, open_snapshot
from livegnn.snapshots.verification import find_damage
from snapshots import Stream, check_shows, make_schema
from streams import WIDTH


def of_users() -> Model:
    along = Propagate(edge_type=("user", "weighted", "user"), message_local=("weight",))
    return Model(
        inputs={"user": Input("user", 5)},
        steps=(
            Step("linear", ("user",), "sent", {"weight": "w"}),
            Step("propagate", ("sent",), "out", attrs=along.to_attrs()),
        ),
        tensors={"w": weights_of(np.random.default_rng(1), 4, 5)},
        output="out",
        layers=("user", "out"),
    )


@pytest.mark.parametrize(("text_ids", "count"), [(False, 3), (True, 2), (False, 1)])
def test_a_snapshot_of_parts_shows_the_whole_graph(
    text_ids: bool, count: int, rng: np.random.Generator, tmp_path: Path
) -> None:
    stream = Stream(Graph(make_schema(text_ids=text_ids)), rng)
    stream.step(250)
    parts = LocalPartitions.from_graph(stream.graph, of_users(), Owners("jump", count), threads=1)
    view = PartsSnapshotView(parts, str(tmp_path), interval=None, start=False)
    source = SnapshotSource(str(tmp_path))
    for _ in range(2):
        manifest = view.write()
        assert manifest is not None
        assert [layer.kind for layer in manifest.layers] == ["base"] + ["delta"] * count
        assert list(find_damage(view.objects, manifest)) == []
        check_shows(source.newest(), stream.graph, stream.used)
        assert view.write() is manifest  # it shows the event already
        users = stream.graph.ids("user")
        events = (
            Events().remove_nodes(users[:1], node_type="user").add_nodes([stream.name(70)], node_type="item")
        )
        events.add_edges(users[1:3], users[2:4], edge_type=("user", "kept", "user"), weight=[1.0, 2.0])
        stream.graph.apply(events)
        parts.apply(events)
        stream.used["item"].add(stream.name(70))
    view.close()
    parts.close()


def test_an_empty_graph_in_parts_has_a_snapshot(tmp_path: Path) -> None:
    parts = LocalPartitions(make_schema(), of_users(), Owners("modulo", 2), threads=1)
    view = PartsSnapshotView(parts, str(tmp_path), interval=None, start=False)
    assert view.write() is not None
    graph = Graph(make_schema())
    check_shows(SnapshotSource(str(tmp_path)).newest(), graph, {"user": set(), "item": set()})
    parts.apply(Events().add_nodes([3, 9], node_type="user"))
    graph.apply(Events().add_nodes([3, 9], node_type="user"))
    view.write()
    check_shows(SnapshotSource(str(tmp_path)).newest(), graph, {"user": {3, 9}, "item": set()})
    view.close()
    with pytest.raises(InputError, match="before the view is closed"):
        view.write()
    parts.close()


def test_a_deployment_of_parts_follows_its_graph_in_a_store(tmp_path: Path) -> None:
    store = tmp_path / "store"
    path = write(tmp_path, "parts", 2, more='[snapshots]\nurl = "store"\ninterval = 3600.0\n')
    with opened(path) as runtime:
        view, engine = runtime.views["snapshots"], runtime.views["engine"]
        assert isinstance(view, PartsSnapshotView)
        assert isinstance(engine, RemotePartitions)
        runtime.start()
        seq = runtime.append(Events().add_nodes([1, 2], np.ones((2, WIDTH))).add_edges([1], [2]))
        runtime.wait(seq)
        view.write()
        shown = open_snapshot(str(store))
        assert (shown.seq, shown.ids_of(shown.neighbors(None, shown.rows_of(np.array([2]))).rows)) == (
            seq,
            [1],
        )
        runtime.wait(runtime.append(Events().add_edges([2], [1])))
        engine.processes[1].kill()
        with pytest.raises(WorkerUnavailableError, match="part 1 must answer"):
            view.write()
        assert "part 1 must answer" in str(view.failure)
        assert open_snapshot(str(store)).seq == seq
    with opened(path) as runtime:
        start_snapshots(runtime)
        runtime.start()
        last = runtime.append(Events().add_nodes([3], np.ones((1, WIDTH))).add_edges([1], [3]))
        runtime.wait(last)
    assert open_snapshot(str(store)).seq == last  # the stop has published it
