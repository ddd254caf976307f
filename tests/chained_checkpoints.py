"""A runtime whose checkpoints are small and yet take blocks from each other, and what they must hold."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from livegnn import Events, Graph, checkpoint
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import CheckpointPolicy, Runtime, checkpoints
from livegnn.types import State

NODES, WIDTH = 400, 64  # features of 256 bytes, so four nodes share a block


def share_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "SMALL", 0)


def first_features() -> NDArray[np.float32]:
    return np.random.default_rng(0).standard_normal((NODES, WIDTH), dtype=np.float32)


def first_graph() -> Graph:
    return Graph.from_edges(np.arange(NODES), np.roll(np.arange(NODES), 1), x=first_features())


def event(number: int) -> Events:
    """Event `number` of the log, counted from 1: other features for one node."""
    return Events().set_features([number * 37 % NODES], np.full((1, WIDTH), number, np.float32))


def features_at(seq: int) -> NDArray[np.float32]:
    """Those of all nodes after event `seq`."""
    x = first_features()
    for number in range(1, seq + 1):
        x[number * 37 % NODES] = number
    return x


def check_states(states: Mapping[str, State], seq: int) -> None:
    graph = Graph.from_state(states["graph"])
    assert graph.seq == seq
    assert graph.features(np.arange(NODES)).tobytes() == features_at(seq).tobytes()


def check_file(path: Path) -> None:
    """Raises unless a checkpoint has the graph that its events make."""
    saved = checkpoint.read(path)
    assert saved.seq == int(path.stem[-20:])
    check_states(saved.states, saved.seq)


def make_runtime(log: SqliteLog, policy: CheckpointPolicy, graph: Graph | None = None) -> Runtime:
    """Writes a checkpoint after each event, on the spot if it is driven by `step`."""
    return Runtime(log, first_graph() if graph is None else graph, checkpoints=policy, max_batch_events=1)


def run(runtime: Runtime, count: int) -> None:
    """Appends so many events and applies them, one at a time."""
    for _ in range(count):
        runtime.append(event(runtime.log.last_seq() + 1))
        assert runtime.step()
