"""A deployment divides the graph that is there by METIS or Fennel, from whatever it starts; its predictions
are those of a graph in one piece, and starts that replay give the same owners.
"""

import os
from pathlib import Path

import numpy as np
import pytest

if "CI" not in os.environ:  # which installs all extras
    pytest.importorskip("zmq", reason="pyzmq is not installed: pip install 'livegnn[cluster]'")
    pytest.importorskip("pymetis", reason="pymetis is not installed: pip install 'livegnn[cluster]'")

import livegnn._core as _core
from divided_deployment import opened, write
from livegnn import Events
from livegnn.deployment.graph_files import read_graph
from livegnn.inference import RowPredictor
from livegnn.placement import partition_graph
from livegnn.placement.partition import Partition
from livegnn.runtime import Runtime
from streams import WIDTH, make_arrays

CHECKPOINTS = '[checkpoint]\ndirectory = "checkpoints"\n'


def append(runtime: Runtime, first: int) -> None:
    """New nodes near some that are there, and changes of these."""
    ids = np.arange(first, first + 6)
    events = Events().add_nodes(ids, np.ones((6, WIDTH)))
    events.add_edges(np.repeat(ids, 3), np.tile([1, 2, 7], 6), weight=np.full(18, 0.5))
    runtime.append(events.set_features([1], np.full((1, WIDTH), 0.25)))
    runtime.step()


def owners_of(runtime: Runtime) -> list[int]:
    return _core.owners_of(runtime.graph.native, 0).tolist()


def predict(runtime: Runtime) -> tuple[int, bytes]:
    engine = runtime.views["engine"]
    assert isinstance(engine, RowPredictor)
    return runtime.seq, engine.predict(np.sort(runtime.graph.ids())).tobytes()


def placed_by(partition: Partition) -> list[int]:
    """By index, of a graph without removed nodes."""
    return partition.owners["node"].tolist()


def test_each_start_places_the_nodes_that_are_there(tmp_path: Path) -> None:
    whole_file = write(tmp_path, "whole", log="whole.db")
    by_metis = write(tmp_path, "graph", 2, owners="metis")
    by_file = write(tmp_path, "file", 2, owners="fennel", cluster='partition = "graph.lgpart"\n')
    in_one_piece = write(tmp_path, "one", more=CHECKPOINTS)
    of_one_piece = write(tmp_path, "piece", 2, owners="metis", more=CHECKPOINTS)
    of_other_parts = write(tmp_path, "other", 3, owners="fennel", more=CHECKPOINTS)
    np.savez(tmp_path / "graph.npz", **make_arrays())
    partition = partition_graph(read_graph(tmp_path / "graph.npz"), 2)
    partition.write(tmp_path / "graph.lgpart")
    with opened(whole_file) as whole:
        with opened(by_metis) as runtime:
            assert owners_of(runtime) == placed_by(partition)
            for one in (whole, runtime):
                append(one, 1000)
            assert predict(runtime) == predict(whole)
            owners = owners_of(runtime)
        with opened(by_file) as runtime:  # replays the log
            assert owners_of(runtime) == owners
            assert predict(runtime) == predict(whole)
        with opened(in_one_piece) as runtime:  # writes a checkpoint
            for one in (whole, runtime):
                append(one, 2000)
            expected = placed_by(partition_graph(runtime.graph, 2))
        with opened(of_one_piece) as runtime:
            assert owners_of(runtime) == expected
            for one in (whole, runtime):
                append(one, 3000)
            assert predict(runtime) == predict(whole)
        with opened(of_other_parts) as runtime:
            assert owners_of(runtime) == placed_by(partition_graph(whole.graph, 3, partitioner="fennel"))
            for one in (whole, runtime):
                append(one, 4000)
            assert predict(runtime) == predict(whole)
