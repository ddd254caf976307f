"""Samples of a graph whose parts are processes of their own, while batches arrive and processes end."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if "CI" not in os.environ:  # which installs all extras
    pytest.importorskip("zmq", reason="pyzmq is not installed: pip install 'livegnn[cluster]'")

from divided_samples import assert_same, check_samples
from divided_streams import EDGES, Stream, outcome, schema_of
from livegnn import Events, Graph
from livegnn.channels.health import Patience
from livegnn.errors import WorkerUnavailableError
from livegnn.interrupts import Background
from livegnn.partitions import LocalPartitions
from livegnn.partitions.remote import RemotePartitions
from livegnn.placement import Owners
from livegnn.sampling import sample_neighbors, sample_subgraph
from modules import EDGE_WIDTH, WIDTH
from streams import make_model

if TYPE_CHECKING:
    from livegnn.partitions.divided import Partitions


@pytest.mark.parametrize("columns", ["weight time", "weight keep"])
def test_samples_over_processes_are_those_of_one_graph(columns: str) -> None:
    schema = schema_of(columns, undirected=False, text=False, capacity=4, edge_dim=EDGE_WIDTH)
    rng = np.random.default_rng(1)
    stream = Stream(rng, schema.edge_types[EDGES], False, False)
    graph = Graph(schema, threads=1)
    parts = RemotePartitions(schema, make_model(), Owners("jump", 3), threads=1, non_finite="allow")
    try:
        for size in (50, 50, 50, 10, 10):
            events, after = stream.next(size)
            _, expected = outcome(lambda events=events: graph.apply(events))
            assert outcome(lambda events=events: parts.apply(events))[1] == expected
            if expected is None:
                stream.present = after
            for _ in range(10 if stream.present else 0):
                check_samples(parts.names, graph, stream, rng)
        assert len(stream.present) > 5
    finally:
        parts.close()


NODES = 60


def ring(step: int) -> Events:
    """Edges from each node to the `step`-th behind it, and no others, as times and features say too."""
    ids = np.arange(NODES)
    events = Events().remove_edges(ids, (ids + step - 1) % NODES)
    return events.add_edges(ids, (ids + step) % NODES, time=np.full(NODES, step)).set_features(
        ids, np.full((NODES, WIDTH), step)
    )


@pytest.mark.parametrize("kind", [LocalPartitions, RemotePartitions])
def test_a_sample_sees_one_batch(kind: type[Any]) -> None:
    """Each node has one in-neighbour at a distance that every batch changes for all."""
    schema = schema_of("time", undirected=False, text=False)
    parts: Partitions = kind(schema, make_model(), Owners("modulo", 2), threads=1)
    ids = np.arange(NODES)
    parts.apply(Events().add_nodes(ids, np.zeros((NODES, WIDTH))))
    parts.apply(ring(1))
    ends = threading.Event()
    failures: list[BaseException] = []
    steps: set[int] = set()

    def read() -> None:
        rng = np.random.default_rng(0)
        try:
            while not ends.is_set():
                sample = sample_subgraph(parts.names, rng.choice(ids, 4), [-1] * 4, attributes=True)
                assert sample.time is not None
                assert sample.x is not None
                step = int(sample.time[0])
                steps.add(step)
                assert set(sample.time.tolist()) == {step} == set(sample.x.ravel().tolist())
                assert ((sample.node[sample.col] - sample.node[sample.row]) % NODES == step).all()
                nearest = sample_neighbors(parts.names, ids, -1, direction="in")
                assert nearest.time is not None
                assert len(set(nearest.time.tolist())) == 1
        except BaseException as error:
            failures.append(error)

    readers = [Background(read, f"reader {number}") for number in range(2)]
    for reader in readers:
        reader.start()
    try:
        for step in range(2, NODES - 1):
            parts.apply(ring(step))
    finally:
        ends.set()
        for reader in readers:
            reader.join()
        parts.close()
    assert not failures
    assert len(steps) > 1


def test_a_question_whose_answer_nobody_takes_does_not_disturb_the_next_one() -> None:
    schema = schema_of("", undirected=False, text=False)
    parts = RemotePartitions(schema, make_model(), Owners("modulo", 2), threads=1)
    ids = np.arange(20)
    parts.apply(Events().add_nodes(ids, np.ones((20, WIDTH))).add_edges(ids, (ids + 1) % 20))
    try:
        expected = sample_neighbors(parts.names, ids, -1, seed=1)
        for _ in range(3):
            parts.parts[1].ask(memoryview(bytes(16)))
            assert_same(sample_neighbors(parts.names, ids, -1, seed=1), expected)
    finally:
        parts.close()


def test_samples_that_need_no_lost_process_go_on() -> None:
    owners, ids = Owners("modulo", 2), np.arange(20)
    held, lost = (ids[owners.of_id(ids) == part] for part in (0, 1))
    schema = schema_of("", undirected=False, text=False)
    parts = RemotePartitions(schema, make_model(), owners, threads=1, patience=Patience(silent_seconds=1))
    events = Events().add_nodes(ids, np.ones((len(ids), WIDTH)))
    parts.apply(events.add_edges(held, np.roll(held, 1)).add_edges(lost, np.roll(held, 1)[: len(lost)]))
    before = sample_subgraph(parts.names, held[:3], [-1], direction="out", attributes=True, seed=1)
    parts.processes[1].kill()
    try:
        for _ in range(2):
            with pytest.raises(WorkerUnavailableError, match="part 1 must answer"):
                sample_neighbors(parts.names, lost, 1)
            after = sample_subgraph(parts.names, held[:3], [-1], direction="out", attributes=True, seed=1)
            assert_same(after, before)
    finally:
        parts.close()
