"""Convolutions of NumPy functions, kept by the engine."""

from __future__ import annotations

import numpy as np
import pytest
from test_edge_messages import FEATURES, WIDTH, make_graph, random_events
from test_own_convolution import CONVOLUTIONS

from livegnn import Engine, Events, Model
from livegnn.model import Convolution
from mirror import assert_exact

W = np.random.default_rng(2).standard_normal((WIDTH, WIDTH)).astype(np.float32)


def mix(source, target, edge_attr):
    return np.tanh(source[:, :1] * target[:, 1:2] + edge_attr.sum(axis=1, keepdims=True))


OWN = {
    "sum": Convolution(),
    "sum with loops": Convolution(self_loops=True),
    "constrained, with edge features": Convolution(
        message_local=lambda source, target, edge_attr: np.exp(mix(source, target, edge_attr)),
        neighbor_context="sum",
        combine=lambda context, aggregate: aggregate / context,
        transform=lambda h: h @ W,
        update=lambda h, a: np.maximum(a, 0) + h,
    ),
    "weighted mean": Convolution(
        message_local=lambda source, weight: weight * np.tanh(source @ W),
        transform="one",
        neighbor_context="count",
        combine=lambda context, aggregate: aggregate / context,
    ),
    "maximum of differences": Convolution(
        message_local=lambda source, target: source - target, transform="one", aggregate="max"
    ),
}


@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize("kind", OWN)
def test_the_engine_equals_the_oracle_through_events(kind, undirected):
    rng = np.random.default_rng(17)
    graph = make_graph(rng, undirected)
    features = FEATURES if "features" in kind else 0
    model = Model.from_convolutions([OWN[kind], OWN[kind]], in_channels=WIDTH, edge_dim=features)
    engine = Engine(graph, model, threads=2)
    for turn in range(40):
        engine.apply(random_events(rng, graph, 1 + turn % 4))
        if turn % 9 == 4:
            engine.apply(Events().remove_nodes(rng.choice(graph.ids(), 1)))
        assert_exact(engine)


def test_a_function_of_a_node_alone_is_called_for_nodes_and_not_for_edges():
    """A hub's row is transformed once, however many edges leave it."""
    rows = []

    def transform(h):
        rows.append(len(h))
        return h @ W

    rng = np.random.default_rng(19)
    graph = make_graph(rng, undirected=False, nodes=300, edges=2000)
    model = Model.from_convolutions([Convolution(transform=transform)], in_channels=WIDTH)
    engine = Engine(graph, model, threads=1)
    rows.clear()
    engine.apply(Events().set_features([5], rng.standard_normal((1, WIDTH)).astype(np.float32)))
    assert sum(rows) == 1
    assert_exact(engine)


def test_what_a_function_raises_reaches_the_caller_and_changes_nothing():
    broken = []

    def update(h, a):
        if broken:
            raise ZeroDivisionError("no update today")
        return h + a

    rng = np.random.default_rng(23)
    graph = make_graph(rng, undirected=False)
    model = Model.from_convolutions([Convolution(update=update)] * 2, in_channels=WIDTH)
    engine = Engine(graph, model, threads=2)
    before, seq = engine.embeddings(-1).tobytes(), graph.seq
    broken.append(True)
    with pytest.raises(ZeroDivisionError, match="no update today"):
        engine.apply(Events().set_features([5], np.ones((1, WIDTH), np.float32)))
    broken.clear()
    assert (engine.embeddings(-1).tobytes(), graph.seq) == (before, seq)
    engine.apply(Events().set_features([5], np.ones((1, WIDTH), np.float32)))
    assert_exact(engine)


def test_every_convolution_of_the_oracles_tests_runs_in_the_engine():
    rng = np.random.default_rng(29)
    for name, convolution in CONVOLUTIONS.items():
        takes_features = "edge_attr" in getattr(convolution.message_local, "__code__", wide).co_varnames
        model = Model.from_convolutions(
            [convolution], in_channels=4, edge_dim=FEATURES if takes_features else 0, verify=False
        )
        graph = make_graph(rng, undirected=False, width=4)
        engine = Engine(graph, model, threads=1)
        for _ in range(5):
            engine.apply(random_events(rng, graph, 3))
        assert engine.verify().ok, name


wide = (lambda: None).__code__
