"""An interrupt at any opcode of a batch on a graph in parts: all parts show it, or none does."""

import os

import numpy as np
import pytest

from livegnn import Engine, Events, Graph
from livegnn.graph import EdgeSchema, Schema
from livegnn.partitions import LocalPartitions
from livegnn.placement import Owners
from opcodes import Interrupt, count_opcodes, interrupt, is_free, places, watched
from streams import WIDTH, make_model
from waiting import PATIENCE

SCHEMA = Schema({"node": WIDTH}, {("node", "to", "node"): EdgeSchema(weighted=True)})


def batch(number: int) -> Events:
    rng = np.random.default_rng(number)
    ids = np.arange(20)
    events = Events()
    if not number:
        events.add_nodes(ids, rng.normal(size=(20, WIDTH)))
    events.add_edges(rng.choice(ids, 40), rng.choice(ids, 40), weight=rng.uniform(0.5, 2, 40))
    return events.set_features(rng.choice(ids, 3), rng.normal(size=(3, WIDTH)))


def divide() -> LocalPartitions:
    parts = LocalPartitions(SCHEMA, make_model(), Owners("modulo", 2), threads=1)
    parts.apply(batch(0))
    return parts


def predictions_after(batches: int) -> list[bytes]:
    """Of one engine: after one batch, after two, ..."""
    graph = Graph(SCHEMA, threads=1)
    engine = Engine(graph, make_model(), threads=1)
    rows = []
    for number in range(batches):
        graph.apply(batch(number))
        rows.append(engine.predict(np.arange(20)).tobytes())
    return rows


def test_an_interrupted_batch_is_of_all_parts_or_of_none() -> None:
    expected = predictions_after(3)
    probe = divide()
    opcodes = count_opcodes(lambda: probe.apply(batch(1)))
    probe.close()
    assert opcodes > 200
    with watched():
        for at in places(np.random.default_rng(1), opcodes):
            parts = divide()
            first = parts.names.seq
            kept = interrupt(lambda parts=parts: parts.apply(batch(1)), at)
            assert is_free(parts.names.writer), repr(kept)
            assert is_free(parts.visible, PATIENCE), repr(kept)
            assert {graph.seq for graph in parts.graphs} == {parts.names.seq}, repr(kept)
            shown = parts.names.seq != first
            assert shown or isinstance(kept, Interrupt)
            for batches in (shown, 1 + shown):
                assert parts.predict(np.arange(20)).tobytes() == expected[batches], repr(kept)
                parts.apply(batch(1 + batches))
            parts.close()


def test_an_interrupted_what_if_changes_no_part() -> None:
    expected, ids = predictions_after(2), np.arange(20)
    parts = divide()
    opcodes = count_opcodes(lambda: parts.what_if(batch(1)).predict(ids))
    assert opcodes > 200
    with watched():
        for at in places(np.random.default_rng(3), opcodes):
            kept = interrupt(lambda: parts.what_if(batch(1)).predict(ids), at)
            assert is_free(parts.names.writer), repr(kept)
            assert parts.predict(ids).tobytes() == expected[0], repr(kept)
    assert parts.what_if(batch(1)).predict(ids).tobytes() == expected[1]
    parts.apply(batch(1))
    assert parts.predict(ids).tobytes() == expected[1]
    parts.close()


def test_an_empty_batch_that_is_not_recorded_changes_no_part() -> None:
    """Its sequence number is that of the batch before it."""
    parts = divide()
    touched = [one.state().meta["batches"] for one in parts.engines]

    def fail(_: object) -> None:
        raise OSError("the log is full")

    with pytest.raises(OSError, match="the log is full"):
        parts.apply(Events(), on_staged=fail)
    assert [one.state().meta["batches"] for one in parts.engines] == touched
    parts.apply(Events())
    assert [one.state().meta["batches"] for one in parts.engines] == [count + 1 for count in touched]
    parts.close()


def test_an_interrupted_batch_is_of_all_processes_or_of_none() -> None:
    if "CI" not in os.environ:  # which installs all extras
        pytest.importorskip("zmq", reason="pyzmq is not installed: pip install 'livegnn[cluster]'")
    from livegnn.partitions.remote import RemotePartitions

    ids = np.arange(20)
    graph = Graph(SCHEMA, threads=1)
    engine = Engine(graph, make_model(), threads=1)
    parts = RemotePartitions(SCHEMA, make_model(), Owners("modulo", 2), threads=1)
    try:
        parts.apply(batch(0))
        opcodes = count_opcodes(lambda: parts.apply(batch(1)))
        for number in range(2):
            graph.apply(batch(number))
        assert opcodes > 200
        with watched():
            for number, at in enumerate(places(np.random.default_rng(2), opcodes), 2):
                kept = interrupt(lambda number=number: parts.apply(batch(number)), at)
                assert is_free(parts.names.writer), repr(kept)
                assert is_free(parts.visible, PATIENCE), repr(kept)
                if parts.seq != graph.seq:
                    graph.apply(batch(number))
                else:
                    assert isinstance(kept, Interrupt)
                assert parts.predict(ids).tobytes() == engine.predict(ids).tobytes(), repr(kept)
        parts.apply(batch(1))
        graph.apply(batch(1))
        parts.parts[0].ask_rows(ids[:1], None, 0)  # and an exception keeps it from its answer
        assert parts.predict(ids).tobytes() == engine.predict(ids).tobytes()
    finally:
        parts.close()
