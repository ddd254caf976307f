"""Scores of edges from a snapshot: those of an engine on its graph."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from memory_snapshot import MemorySnapshot, MemorySource

from livegnn import EdgeSchema, Engine, Events, Graph, Query, Schema
from livegnn.errors import InputError, UnknownNodeError
from livegnn.model import Model
from livegnn.oracle.exactness import judge
from livegnn.remote.predictor import SnapshotPredictor
from livegnn.types import DEFAULT_EDGE_TYPE
from scored_edges import COLUMNS, WIDTH, compute_scores, make_scorer

NODES = 14


def make(model: Model, *, output: str | None = None, text: bool = False) -> tuple[Graph, SnapshotPredictor]:
    edges = EdgeSchema(weighted=True, edge_dim=COLUMNS)
    graph = Graph(Schema({"node": WIDTH}, {DEFAULT_EDGE_TYPE: edges}, text_ids=text))
    rng = np.random.default_rng(1)
    events = Events().add_nodes(name(np.arange(NODES), text), rng.normal(size=(NODES, WIDTH)))
    src, dst = (name(ends, text) for ends in rng.integers(0, NODES, (2, 50)))
    attr = rng.normal(size=(50, COLUMNS))
    graph.apply(events.add_edges(src, dst, weight=rng.uniform(1, 2, 50), edge_attr=attr))
    return graph, SnapshotPredictor(MemorySource(MemorySnapshot(graph)), model, output=output)


def name(numbers: np.ndarray, text: bool) -> np.ndarray:
    return np.array([f"n{one}" for one in numbers.tolist()], np.str_) if text else numbers


@pytest.mark.parametrize("text", [False, True])
def test_scores_are_those_of_an_engine(text: bool) -> None:
    model = make_scorer()
    graph, predictor = make(model, output="embedding", text=text)
    src, dst = np.random.default_rng(2).integers(0, NODES, (2, 600))
    ends = [name(one, text) for one in (src, dst)]
    got = predictor.score(*ends, output="alike")
    snapshot = graph.snapshot()
    place = {id: at for at, id in enumerate(snapshot.ids["node"].tolist())}
    at = [np.array([place[id] for id in one.tolist()]) for one in ends]
    exact, plain = (
        compute_scores(model, snapshot, "alike", *at, dtype=kind) for kind in (np.float64, np.float32)
    )
    assert judge(got, exact, plain).ok
    np.testing.assert_allclose(got, Engine(graph, model).score(*ends, output="alike"), rtol=1e-4, atol=1e-5)
    assert predictor.describe()["requests"] == 1
    np.testing.assert_array_equal(predictor.score(ends[0][3], ends[1][3], output="alike"), got[3:4])
    assert predictor.score([], [], output="alike").shape == (0, 1)


def test_a_decoder_reads_the_columns_that_are_given() -> None:
    """One that reads the embedding alone, and columns of pairs that need not be edges."""
    whole = make_scorer()
    steps = tuple(
        replace(step, inputs=tuple("from" if name == "from_class" else name for name in step.inputs))
        for step in whole.steps
        if step.output != "from_class"
    )
    tensors = {**whole.tensors, "w4": np.random.default_rng(3).normal(size=(5, 15)).astype(np.float32)}
    model = replace(whole, steps=steps, tensors=tensors)
    graph, predictor = make(model, output="embedding")
    rng = np.random.default_rng(4)
    src, dst = rng.integers(0, NODES, (2, 40))
    columns = {"edge_attr": rng.normal(size=(40, COLUMNS)), "edge_weight": rng.uniform(1, 2, 40)}
    got = predictor.score(src, dst, output="risk", **columns)
    np.testing.assert_allclose(
        got, Engine(graph, model).score(src, dst, output="risk", **columns), rtol=1e-4, atol=1e-5
    )
    with pytest.raises(InputError, match="reads edge_attr"):
        predictor.score([0], [1], output="risk")


def test_a_model_with_a_query_scores_on_its_draws() -> None:
    query = Query("node").hop(DEFAULT_EDGE_TYPE, 1, direction="in").hop(DEFAULT_EDGE_TYPE, 1, direction="in")
    _, predictor = make(make_scorer().with_query(query), output="embedding")
    rows = predictor.predict(np.arange(NODES))
    src, dst = np.random.default_rng(2).integers(0, NODES, (2, 30))
    dots = np.einsum("ij,ij->i", rows[src].astype(np.float64), rows[dst].astype(np.float64))
    np.testing.assert_allclose(predictor.score(src, dst, output="alike")[:, 0], dots, rtol=1e-4, atol=1e-5)


def test_what_is_refused() -> None:
    _, predictor = make(make_scorer())
    with pytest.raises(InputError, match="'alike' reads 'embedding', and this predicts 'class' alone: open"):
        predictor.score([0], [1], output="alike")
    with pytest.raises(InputError, match="reads 'class', 'embedding', and this predicts 'class' alone"):
        predictor.score([0], [1], output="risk", edge_attr=np.ones((1, COLUMNS)), edge_weight=[1.0])
    with pytest.raises(InputError, match="output must be one of the edge outputs"):
        predictor.score([0], [1], output="class")
    _, predictor = make(make_scorer(), output="embedding")
    with pytest.raises(UnknownNodeError, match="99"):
        predictor.score([0, 99], [1, 1], output="alike")
