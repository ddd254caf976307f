"""What a careless reading of incremental inference gets wrong, a test each (the oracle finds all of them)."""

import numpy as np
import pytest

from livegnn import EdgeSchema, Engine, Events, Graph, Schema
from livegnn.oracle import reference
from livegnn.types import DEFAULT_EDGE_TYPE, DEFAULT_NODE_TYPE
from modules import Design, make

WIDTH = 4
X = np.random.default_rng(3).standard_normal((7, WIDTH)).astype(np.float32)
RING = [0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0]


def start(kind: str, src=RING[0], dst=RING[1], *, x=X, **design) -> Engine:
    """An engine on a ring of six nodes and an isolated seventh."""
    options = {key: design.pop(key) for key in ("weight", "time", "undirected") if key in design}
    _, model = make(Design(kind, weighted=options.get("weight") is not None, **design))
    return Engine(Graph.from_edges(src, dst, x=x, **options), model, threads=1)


def assert_exact(engine: Engine) -> None:
    expected = reference.compute(engine.model, engine.graph.snapshot())
    for layer, name in enumerate(engine.model.layers):
        scale = max(float(np.abs(expected[name]).max(initial=0)), 1e-2)
        np.testing.assert_allclose(engine.embeddings(layer), expected[name], rtol=0, atol=1e-5 * scale)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_degree_changes_all_messages_of_its_node(depth):
    """GCN's coefficient holds the degree of the source: an edge into node 1 changes what 1 tells node 2."""
    engine = start("gcn", depth=depth)
    update = engine.apply(Events().add_edges(4, 1))
    assert {1, 2} <= set(update.changed.tolist())
    assert_exact(engine)


@pytest.mark.parametrize("kind", ["gcn", "sage mean", "sage max", "gin"])
def test_an_edge_added_and_removed_in_one_batch_is_nothing(kind):
    engine = start(kind)
    before = engine.embeddings(-1)
    update = engine.apply(Events().add_edges(0, 3).remove_edges(0, 3).remove_edges(0, 1).add_edges(0, 1))
    assert update.affected == 0
    assert len(update.changed) == 0
    np.testing.assert_array_equal(engine.embeddings(-1), before)


def test_the_last_of_two_features_counts():
    engine = start("sage mean")
    engine.apply(Events().set_features([2, 3, 2], [X[0] * 9, X[1], X[5]]))
    np.testing.assert_array_equal(engine.graph.features([2])[0], X[5])
    assert_exact(engine)


@pytest.mark.parametrize("kind", ["gcn", "sage mean", "sage max", "graph add", "gin"])
def test_a_node_touched_and_removed_in_one_batch(kind):
    engine = start(kind)
    engine.apply(Events().set_features(2, X[0] * 5).add_edges([2, 5], [4, 2]).remove_nodes(2))
    assert engine.graph.ids().tolist() == [0, 1, 3, 4, 5, 6]
    assert_exact(engine)


def test_loops_that_a_convolution_adds_exist_only_for_nodes_that_exist():
    engine = start("gcn", depth=1)
    engine.apply(Events().remove_nodes(3))
    engine.apply(Events().add_nodes(10, X[3]))  # takes the place that 3 left
    assert_exact(engine)
    assert engine.graph.degree([10]).tolist() == [0]
    assert np.abs(engine.predict([10])).max() > 0


def test_a_loop_of_the_graph_takes_the_place_of_an_added_one():
    engine = start("gcn improved", weight=np.full(6, 0.5, dtype=np.float32))
    engine.apply(Events().add_edges(2, 2, weight=3.0))
    assert_exact(engine)
    engine.apply(Events().remove_edges(2, 2))
    assert_exact(engine)


@pytest.mark.parametrize("kind", ["gcn", "sage mean", "sage max", "sage min", "graph mean", "gin"])
def test_isolated_nodes_gather_nothing(kind):
    engine = start(kind)
    assert_exact(engine)
    engine.apply(Events().remove_edges(*map(np.array, RING)))
    assert engine.graph.num_edges() == 0
    assert_exact(engine)
    engine.apply(Events().add_edges(6, 0))
    assert_exact(engine)


@pytest.mark.parametrize("kind", ["gcn", "graph add", "graph mean", "graph max"])
def test_an_edge_is_re_weighted_while_both_its_ends_change(kind):
    """The old message is that of the old weight, the old features and the old degree, all at once."""
    engine = start(kind, weight=np.arange(1, 7, dtype=np.float32) / 4, depth=3)
    events = Events().set_features([1, 2], X[[4, 5]] * 2).add_edges([1, 3], [2, 1], weight=[0.2, 1.7])
    engine.apply(events.remove_edges(2, 3).add_edges(2, 3, weight=2.5))
    assert_exact(engine)


@pytest.mark.parametrize("how", ["edge", "node", "features"])
def test_a_maximum_is_found_again_when_its_node_leaves(how):
    x = X.copy()
    x[1] = 50  # node 1 holds the maximum of every channel at node 2
    engine = start("sage max", [0, 1, 3, 4], [2, 2, 2, 2], x=x, depth=1)
    leave = {
        "edge": Events().remove_edges(1, 2),
        "node": Events().remove_nodes(1),
        "features": Events().set_features(1, X[1] - 50),
    }
    engine.apply(leave[how])
    assert_exact(engine)


def test_the_last_in_edge_goes_and_a_first_one_comes():
    """Nothing is 0, for a maximum too, and 0 is not the maximum of a first negative message."""
    x = -np.abs(X) - 1
    engine = start("sage max", [0], [1], x=x, depth=1)
    engine.apply(Events().remove_edges(0, 1))
    assert_exact(engine)
    engine.apply(Events().add_edges(2, 1))
    assert_exact(engine)


def test_two_neighbours_with_the_same_maximum():
    x = X.copy()
    x[3] = x[1] = 9
    engine = start("sage max", [1, 3, 4], [2, 2, 2], x=x, depth=1)
    engine.apply(Events().remove_edges(1, 2))
    assert_exact(engine)


@pytest.mark.parametrize("kind", ["gcn", "sage mean", "sage max", "gin"])
def test_a_removed_node_that_comes_back_is_a_new_one(kind):
    engine = start(kind)
    engine.apply(Events().remove_nodes(2).add_nodes(2, X[6]).add_edges(5, 2))
    assert engine.graph.neighbors(2).ids.tolist() == [5]
    assert len(engine.graph.neighbors(2, direction="out").ids) == 0
    assert_exact(engine)


def test_places_of_removed_nodes_are_taken_again():
    engine = start("sage mean")
    for id in range(100, 120):
        engine.apply(Events().remove_nodes(engine.graph.ids()[:2]).add_nodes([id, id + 100], X[:2]))
        engine.apply(Events().add_edges([id, id + 100], [id + 100, id]))
        assert_exact(engine)
    assert engine.graph.native.capacity(0) == len(X) + 2  # those that leave with a batch are free after it


def test_payments_add_up():
    schema = Schema(
        {DEFAULT_NODE_TYPE: WIDTH}, {DEFAULT_EDGE_TYPE: EdgeSchema(weighted=True, duplicates="add")}
    )
    graph = Graph(schema)
    graph.apply(Events().add_nodes(np.arange(3), X[:3]))
    _, model = make(Design("graph add", weighted=True))
    engine = Engine(graph, model)
    engine.apply(Events().add_edges([0, 0, 1], [1, 1, 2], weight=[1.0, 2.5, 1.0]))
    engine.apply(Events().add_edges(0, 1, weight=-0.5))
    assert graph.neighbors(1).weight.tolist() == [3.0]
    assert_exact(engine)


def test_what_comes_late_does_not_undo_what_came_after():
    engine = start("graph add", weight=np.ones(6, dtype=np.float32), time=np.full(6, 10.0))
    before = engine.embeddings(-1)
    engine.apply(Events().add_edges(0, 1, weight=7.0, time=5.0))
    np.testing.assert_array_equal(engine.embeddings(-1), before)
    engine.apply(Events().add_edges(0, 1, weight=7.0, time=15.0))
    assert engine.graph.neighbors(1).time.tolist() == [15.0]
    assert_exact(engine)


def test_an_undirected_loop_counts_once():
    engine = start("sage sum", undirected=True)
    engine.apply(Events().add_edges([3, 2], [3, 1]))
    assert_exact(engine)
    engine.apply(Events().remove_edges([1, 3], [2, 3]))  # the other way round
    assert_exact(engine)


def test_rows_that_come_out_equal_end_the_propagation():
    """Behind a closed ReLU nothing moves, so nothing beyond it is computed."""
    engine = start("sage sum", depth=2)
    engine.apply(Events().set_features(0, X[0] * 1.0))
    assert engine.apply(Events().set_features(0, X[0])).affected == 0
