"""Scores of edges of parts that are processes: the bits of one engine. If a part is frozen or killed, only
pairs with a node of it wait, and end with it."""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

if "CI" not in os.environ:  # which installs all extras
    pytest.importorskip("zmq", reason="pyzmq is not installed: pip install 'livegnn[cluster]'")

from livegnn import EdgeSchema, Engine, Events, Graph, Schema
from livegnn.channels.health import Patience
from livegnn.errors import WorkerUnavailableError
from livegnn.partitions.remote import RemotePartitions
from livegnn.placement import Owners
from livegnn.types import DEFAULT_EDGE_TYPE
from processes import is_stopped
from scored_edges import COLUMNS, NODES, WIDTH, make_batch, make_scorer
from waiting import PATIENCE, wait_until

EDGES = EdgeSchema(weighted=True, duplicates="replace", edge_dim=COLUMNS)
SCHEMA = Schema({"node": WIDTH}, {DEFAULT_EDGE_TYPE: EDGES})
OWNERS = Owners("modulo", 3)
IDS = np.arange(NODES)
SRC, DST = np.repeat(IDS, NODES), np.tile(IDS, NODES)
LOST = (OWNERS.of_id(SRC) == 0) | (OWNERS.of_id(DST) == 0)
FOR_EVER = Patience(silent_seconds=10 * PATIENCE, round_seconds=10 * PATIENCE)


@pytest.fixture
def both() -> Iterator[tuple[Engine, RemotePartitions]]:
    """An engine, and parts with the same batches."""
    rng = np.random.default_rng(5)
    engine = Engine(Graph(SCHEMA, threads=1), make_scorer(), threads=1)
    parts = RemotePartitions(SCHEMA, make_scorer(), OWNERS, threads=1, patience=FOR_EVER)
    try:
        first = Events().add_nodes(IDS, rng.normal(size=(NODES, WIDTH)))
        attr = rng.normal(size=(len(SRC), COLUMNS))
        last = Events().add_edges(SRC, DST, weight=rng.uniform(1, 2, len(SRC)), edge_attr=attr)
        for batch in (first, *(make_batch(rng, EDGES, np.ones(WIDTH), False) for _ in range(5)), last):
            engine.apply(batch)
            parts.apply(batch)
        yield engine, parts
    finally:
        parts.close()


def test_scores_of_frozen_and_of_killed_parts(both: tuple[Engine, RemotePartitions]) -> None:
    engine, parts = both
    rng = np.random.default_rng(6)
    columns = {"edge_attr": rng.normal(size=(len(SRC), COLUMNS)), "edge_weight": rng.uniform(1, 2, len(SRC))}
    expected = engine.score(SRC, DST, output="risk", **columns).tobytes()
    assert parts.score(SRC, DST, output="risk", **columns).tobytes() == expected
    risks = engine.predict_edges(SRC, DST, output="risk")
    assert parts.predict_edges(SRC, DST, output="risk").tobytes() == risks.tobytes()
    events = make_batch(rng, EDGES, np.ones(WIDTH), False)
    expected = engine.what_if(events).score(SRC, DST, output="risk", **columns).tobytes()
    assert parts.what_if(events).score(SRC, DST, output="risk", **columns).tobytes() == expected

    alike = engine.score(SRC, DST, output="alike")
    with ThreadPoolExecutor() as pool:
        parts.processes[0].send_signal(signal.SIGSTOP)
        wait_until(lambda: is_stopped(parts.processes[0].pid), "that the part is frozen")
        waits = pool.submit(parts.score, SRC, DST, output="alike")
        others = pool.submit(parts.score, SRC[~LOST], DST[~LOST], output="alike")
        edges = pool.submit(parts.predict_edges, SRC[~LOST], DST[~LOST], output="risk")
        assert others.result(PATIENCE).tobytes() == alike[~LOST].tobytes()
        assert edges.result(PATIENCE).tobytes() == risks[~LOST].tobytes()
        assert not waits.done()
        parts.processes[0].send_signal(signal.SIGCONT)
        assert waits.result(PATIENCE).tobytes() == alike.tobytes()

    parts.processes[0].kill()
    with pytest.raises(WorkerUnavailableError, match="part 0 must answer, got the end of its process"):
        parts.score(SRC[LOST], DST[LOST], output="alike")
    assert parts.score(SRC[~LOST], DST[~LOST], output="alike").tobytes() == alike[~LOST].tobytes()
    with pytest.raises(WorkerUnavailableError, match="part 0 must answer, got the end of its process"):
        parts.predict_edges(SRC, DST, output="risk")
    with pytest.raises(WorkerUnavailableError, match="part 0 must answer"):
        parts.what_if(events).score(SRC[~LOST], DST[~LOST], output="alike")
