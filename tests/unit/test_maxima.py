"""Maxima and minima go on from how many messages equal them: exact, and not computed anew without need.

All features and weights are such that every product is exact, so results are compared to the last bit.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_examples import EDGES, propagate

from livegnn import EdgeSchema, Engine, Events, FileFormatError, Graph, Schema
from livegnn.model import Input, Model, Propagate
from livegnn.oracle import reference
from livegnn.types import State

HUB = 0
"""Where all edges of `start` go."""

KINDS = {"max": 1.0, "min": -1.0}
"""With the sign that turns what is said of a maximum into what holds for a minimum."""


def make_model(kind: str, *, width: int = 2, weighted: bool = False, **operators) -> Model:
    """The extremum of plain features, and nothing else."""
    step = propagate("x", "y", Propagate(EDGES, ("weight",) if weighted else (), aggregate=kind, **operators))
    return Model({"x": Input("node", width)}, (step,), {}, "y", ("x", "y"))


def start(kind: str, *rows: tuple[float, float], weight=None, **operators) -> Engine:
    """A hub with in-edges from nodes 1, 2, ..., whose features are `rows` (negated for a minimum)."""
    x = KINDS[kind] * np.array([(0.5, 0.5), *rows], dtype=np.float32)
    src, dst = np.arange(1, len(x)), np.full(len(rows), HUB)
    graph = Graph.from_edges(src, dst, x=x, weight=weight)
    return Engine(graph, make_model(kind, weighted=weight is not None, **operators), threads=1)


def ties_of(engine: Engine) -> np.ndarray:
    """How many messages equal the extremum, as the engine has it: [nodes, channels]."""
    return engine.state().arrays["counts/0"][engine.graph.native.indices(0)]


def assert_exact(engine: Engine) -> None:
    snapshot = engine.graph.snapshot()
    expected = reference.compute(engine.model, snapshot)["y"]
    np.testing.assert_array_equal(engine.embeddings(-1), expected)
    # The counts are of edges that there are, so the oracle has to leave out the loops that it adds.
    operators = Propagate.from_step(engine.model.steps[0])
    plain = make_model(operators.aggregate, width=expected.shape[1], weighted=bool(operators.message_local))
    extremes = reference.compute(plain, snapshot)["y"]
    source, target = snapshot.edge_index[EDGES]
    weight = snapshot.weight[EDGES] if operators.message_local else np.ones(len(source), dtype=np.float32)
    messages = weight[:, None] * snapshot.x["node"][source]
    ties = np.zeros(extremes.shape, dtype=np.int64)
    np.add.at(ties, target, messages == extremes[target])
    np.testing.assert_array_equal(ties_of(engine), ties)


def apply(engine: Engine, events: Events) -> int:
    """How many targets the batch computed from all their neighbours."""
    what_if = engine.what_if(events)
    imagined = what_if.changed.tolist(), what_if.predict(what_if.changed).tobytes()
    update = engine.apply(events)
    assert (update.changed.tolist(), engine.predict(update.changed).tobytes()) == imagined
    assert_exact(engine)
    return engine.last_work.recomputed


@pytest.mark.parametrize("kind", KINDS)
def test_one_of_several_with_the_same_extremum_leaves(kind):
    engine = start(kind, (3, 3), (3, 3), (3, 1), (1, 0))
    np.testing.assert_array_equal(ties_of(engine)[HUB], [3, 2])
    assert apply(engine, Events().remove_edges(1, HUB)) == 0
    np.testing.assert_array_equal(ties_of(engine)[HUB], [2, 1])
    assert apply(engine, Events().remove_nodes(3)) == 0
    np.testing.assert_array_equal(ties_of(engine)[HUB], [1, 1])
    assert apply(engine, Events().remove_edges(2, HUB)) == 1  # that was the last of them
    np.testing.assert_array_equal(ties_of(engine)[HUB], [1, 1])


@pytest.mark.parametrize("kind", KINDS)
def test_all_with_the_same_extremum_leave_at_once(kind):
    engine = start(kind, (3, 3), (3, 3), (1, 2))
    assert apply(engine, Events().remove_edges([1, 2], [HUB, HUB])) == 1
    np.testing.assert_array_equal(engine.predict([HUB]), [KINDS[kind] * np.array([1, 2])])


@pytest.mark.parametrize("kind", KINDS)
def test_one_that_is_not_the_extremum_leaves(kind):
    engine = start(kind, (3, 3), (1, 2), (2, 1))
    assert apply(engine, Events().remove_edges([2, 3], [HUB, HUB])) == 0
    np.testing.assert_array_equal(ties_of(engine)[HUB], [1, 1])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rises_to", [3, 5])
def test_the_extremum_falls_while_another_rises(kind, rises_to):
    """To the same height or above it, in one batch: nothing has to be looked for."""
    sign = KINDS[kind]
    engine = start(kind, (3, 3), (1, 1), (2, 2))
    assert apply(engine, Events().set_features([1, 2], [[sign, sign], [sign * rises_to] * 2])) == 0
    np.testing.assert_array_equal(engine.predict([HUB]), [[sign * rises_to] * 2])
    np.testing.assert_array_equal(ties_of(engine)[HUB], [1, 1])


@pytest.mark.parametrize("kind", KINDS)
def test_the_extremum_falls_while_another_rises_too_little(kind):
    sign = KINDS[kind]
    engine = start(kind, (5, 5), (1, 1), (3, 3), (3, 2))
    assert apply(engine, Events().set_features([1, 2], [[sign, sign], [2 * sign, 2 * sign]])) == 1
    np.testing.assert_array_equal(ties_of(engine)[HUB], [2, 1])


@pytest.mark.parametrize("kind", KINDS)
def test_one_of_two_falls_and_stays_a_neighbour(kind):
    sign = KINDS[kind]
    engine = start(kind, (3, 3), (3, 3))
    assert apply(engine, Events().set_features(1, [2 * sign, 3 * sign])) == 0
    np.testing.assert_array_equal(ties_of(engine)[HUB], [1, 2])


@pytest.mark.parametrize("kind", KINDS)
def test_a_channel_that_changes_leaves_the_others_as_they_are(kind):
    """A message is taken back and added in all channels; where it is the same, that is nothing."""
    sign = KINDS[kind]
    engine = start(kind, (3, 4), (1, 1))
    assert apply(engine, Events().set_features(1, [5 * sign, 4 * sign])) == 0
    assert apply(engine, Events().set_features(2, [5 * sign, 1 * sign])) == 0
    np.testing.assert_array_equal(ties_of(engine)[HUB], [2, 1])


@pytest.mark.parametrize("kind", KINDS)
def test_the_last_in_edge_goes(kind):
    engine = start(kind, (-3, 3))
    assert apply(engine, Events().remove_edges(1, HUB)) == 0
    np.testing.assert_array_equal(engine.predict([HUB]), [[0, 0]])
    np.testing.assert_array_equal(ties_of(engine)[HUB], [0, 0])


@pytest.mark.parametrize("kind", KINDS)
def test_a_first_in_edge_comes_with_a_message_below_zero(kind):
    engine = start(kind, (-3, -1))
    assert apply(engine, Events().add_edges(HUB, 1).set_features(HUB, KINDS[kind] * np.array([-2, -7]))) == 0
    np.testing.assert_array_equal(engine.predict([1]), [KINDS[kind] * np.array([-2, -7])])
    np.testing.assert_array_equal(ties_of(engine)[1], [1, 1])


@pytest.mark.parametrize("kind", KINDS)
def test_the_last_in_edge_makes_room_for_a_lower_one(kind):
    """The two in one batch: the node is never without a neighbour, and the new one is its only one."""
    engine = start(kind, (3, 3), (-4, -4))
    engine.apply(Events().remove_edges(2, HUB))
    apply(engine, Events().remove_edges(1, HUB).add_edges(2, HUB))
    np.testing.assert_array_equal(engine.predict([HUB]), [[-4 * KINDS[kind]] * 2])


@pytest.mark.parametrize("kind", KINDS)
def test_zeros_of_either_sign_are_equal(kind):
    engine = start(kind, (0.0, -0.0), (-0.0, 0.0), (-1, -1))
    np.testing.assert_array_equal(ties_of(engine)[HUB], [2, 2])
    assert apply(engine, Events().remove_edges(1, HUB)) == 0
    assert apply(engine, Events().set_features(2, [0.0, -0.0])) == 0
    np.testing.assert_array_equal(ties_of(engine)[HUB], [1, 1])


@pytest.mark.parametrize("kind", KINDS)
def test_a_node_takes_the_place_of_a_removed_one(kind):
    engine = start(kind, (3, 3), (3, 3))
    apply(engine, Events().remove_nodes(HUB))
    apply(engine, Events().add_nodes(9, [1.0, 1.0]))
    assert engine.graph.native.capacity(0) == 3
    assert apply(engine, Events().add_edges([1, 2], [9, 9])) == 0
    assert apply(engine, Events().remove_edges(1, 9)) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_an_edge_is_re_weighted(kind):
    engine = start(kind, (2, 4), (4, 2), weight=np.array([2.0, 1.0], dtype=np.float32))
    np.testing.assert_array_equal(ties_of(engine)[HUB], [2, 1])
    assert apply(engine, Events().add_edges(1, HUB, weight=1.0)) == 1  # 8 is gone in the second channel
    assert apply(engine, Events().add_edges(2, HUB, weight=2.0)) == 0
    assert apply(engine, Events().add_edges([1, 2], [HUB, HUB], weight=[-1.0, -0.5])) == 1


def test_only_those_whose_extremum_is_gone_are_computed_anew():
    """A star behind a star: many tie at each hub, as behind a ReLU, and one hub has a peak that leaves."""
    x = np.zeros((100, 2), dtype=np.float32)
    x[99] = 1
    src = np.concatenate([np.arange(10, 100)] * 2)
    dst = np.repeat([0, 1], 90)
    engine = Engine(Graph.from_edges(src, dst, x=x), make_model("max"), threads=1)
    assert apply(engine, Events().remove_edges(99, 0)) == 1
    for node in range(10, 60):
        assert apply(engine, Events().remove_nodes(node)) == 0
    np.testing.assert_array_equal(ties_of(engine)[:2], [[39, 39], [1, 1]])


def test_counts_are_part_of_the_state():
    engine = start("max", (3, 3), (3, 1), (1, 1))
    state = engine.state()
    assert state.arrays["counts/0"].dtype == np.uint32
    graph = Graph.from_state(engine.graph.state())
    restored = Engine(graph, engine.model, threads=1, state=state)
    assert_exact(restored)
    assert apply(restored, Events().remove_edges(1, HUB)) == apply(engine, Events().remove_edges(1, HUB)) == 1
    assert {k: v.tobytes() for k, v in restored.state().arrays.items()} == {
        k: v.tobytes() for k, v in engine.state().arrays.items()
    }


@pytest.mark.parametrize("change", ["none", "nodes", "channels"])
def test_a_state_without_fitting_counts_is_refused(change):
    engine = start("max", (3, 3), (3, 1))
    state = engine.state()
    counts = state.arrays["counts/0"]
    arrays = {key: array for key, array in state.arrays.items() if key != "counts/0"}
    if change != "none":
        arrays["counts/0"] = counts[:-1] if change == "nodes" else counts[:, :-1]
    graph = Graph.from_state(engine.graph.state())
    with pytest.raises(FileFormatError, match="does not fit together"):
        Engine(graph, engine.model, threads=1, state=State(state.meta, arrays))


def test_a_count_that_is_wrong_is_found():
    engine = start("max", (3, 3), (3, 1))
    assert engine.scrub() == 0
    state = engine.state()
    state.arrays["counts/0"][HUB, 1] += 1
    engine = Engine(engine.graph, engine.model, state=state)
    assert engine.scrub() == 1


def test_counts_take_memory():
    engine = start("max", *[(1.0, 1.0)] * 50)
    assert engine.memory()["aggregates"] >= 51 * 2 * (4 + 4)


# -- loops that are added
# -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fill", [1.0, 2.0, 0.0, -1.0])
def test_loops_that_are_added_carry_a_message(kind, fill):
    weight = np.ones(2, dtype=np.float32)
    engine = start(kind, (3, -3), (-4, -4), weight=weight, self_loops=fill)
    assert_exact(engine)
    # The hub loses its neighbours, and its own row is all that there is, below zero or not.
    apply(engine, Events().remove_edges([1, 2], [HUB, HUB]))
    apply(engine, Events().set_features(HUB, [-8, 8]))
    # One of its own takes the place of the added one, and leaves it again.
    apply(engine, Events().add_edges(HUB, HUB, weight=0.5))
    apply(engine, Events().add_edges(1, HUB, weight=0.25))
    apply(engine, Events().remove_edges(HUB, HUB))
    apply(engine, Events().remove_nodes(HUB).add_nodes(HUB, [-1, -1]))


@pytest.mark.parametrize("kind", KINDS)
def test_loops_of_plain_messages_ignore_their_weight(kind):
    engine = start(kind, (3, -3), (-4, -4), self_loops=2.0)
    apply(engine, Events().set_features(HUB, [8.0, -8.0]))
    apply(engine, Events().add_edges([1, 2, HUB], [1, 1, HUB]))
    apply(engine, Events().remove_edges([1, 2], [1, 1]))


# -- any sequence
# -------------------------------------------------------------------------------------------------------

nodes = st.integers(0, 4)
levels = st.sampled_from([-2.0, -1.0, -0.0, 0.0, 1.0])
"""Few, so that there are ties."""
changes = st.one_of(
    st.tuples(st.just("add"), nodes, nodes, st.sampled_from([-1.0, 0.0, 0.5, 1.0])),
    st.tuples(st.just("remove"), nodes, nodes),
    st.tuples(st.just("set"), nodes, levels, levels),
    st.tuples(st.just("replace"), nodes, levels, levels),
)


@given(
    kind=st.sampled_from(list(KINDS)),
    weighted=st.booleans(),
    undirected=st.booleans(),
    loops=st.sampled_from([None, 1.0, 0.0, -2.0]),
    batches=st.lists(st.lists(changes, min_size=1, max_size=6), max_size=12),
)
def test_any_sequence(kind, weighted, undirected, loops, batches):
    schema = Schema({"node": 2}, {EDGES: EdgeSchema(weighted=weighted, undirected=undirected)})
    graph = Graph(schema)
    graph.apply(Events().add_nodes(np.arange(5), np.zeros((5, 2), dtype=np.float32)))
    engine = Engine(graph, make_model(kind, weighted=weighted, self_loops=loops), threads=1)
    for batch in batches:
        events = Events()
        for name, node, *rest in batch:
            if name == "add":
                events.add_edges(node, rest[0], weight=rest[1] if weighted else None)
            elif name == "remove":
                events.remove_edges(node, rest[0])
            elif name == "set":
                events.set_features(node, rest)
            else:
                events.remove_nodes(node).add_nodes(node, rest)
        apply(engine, events)
