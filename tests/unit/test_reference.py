import math

import numpy as np
import pytest
from model_examples import EDGES, make_snapshot, propagate

from livegnn.errors import ModelError
from livegnn.graph.snapshot import Snapshot
from livegnn.model import Input, Model, Propagate, Step, reference
from livegnn.model.steps import OPERATORS

X = [[1.0, -2.0], [3.0, 4.0], [-5.0, 6.0], [0.0, 8.0]]
PATH = [(0, 1), (1, 2), (2, 2)]
"""0 -> 1 -> 2, a self-loop at 2; nothing reaches 0, and 3 is isolated."""


def compute(operators: Propagate, snapshot: Snapshot) -> np.ndarray:
    model = Model({"x": Input("node", 2)}, (propagate("x", "y", operators),), {}, "y", ("x", "y"))
    return reference.compute(model, snapshot)["y"]


def compute_step(step: Step, x, **tensors) -> np.ndarray:
    x = np.array(x, dtype=np.float32)
    arrays = {name: np.array(tensor, dtype=np.float32) for name, tensor in tensors.items()}
    model = Model({"x": Input("node", x.shape[1])}, (step,), arrays, step.output, ("x", step.output))
    return reference.compute(model, make_snapshot(x, []))[step.output]


def test_sum_of_in_neighbours():
    got = compute(Propagate(EDGES), make_snapshot(X, PATH))
    np.testing.assert_array_equal(got, [[0, 0], [1, -2], [-2, 10], [0, 0]])


def test_weights_count_only_where_they_are_a_factor():
    snapshot = make_snapshot(X, PATH, [2.0, 0.5, -1.0])
    np.testing.assert_array_equal(compute(Propagate(EDGES), snapshot)[2], [-2, 10])
    np.testing.assert_array_equal(compute(Propagate(EDGES, ("weight",)), snapshot)[2], [6.5, -4])


def test_mean_of_nothing_is_zero():
    got = compute(Propagate(EDGES, (), "count", "divide"), make_snapshot(X, PATH))
    np.testing.assert_array_equal(got, [[0, 0], [1, -2], [-1, 5], [0, 0]])


@pytest.mark.parametrize(("kind", "expected"), [("max", [3, 6]), ("min", [-5, 4])])
def test_max_and_min_of_nothing_are_zero(kind, expected):
    got = compute(Propagate(EDGES, aggregate=kind), make_snapshot(X, PATH))
    np.testing.assert_array_equal(got, [[0, 0], [1, -2], expected, [0, 0]])


def test_added_self_loops_are_edges_of_nodes_that_have_none():
    got = compute(Propagate(EDGES, ("weight",), self_loops=2.0), make_snapshot(X, PATH, [1, 1, 10]))
    np.testing.assert_array_equal(got, [[2, -4], [7, 6], [-47, 64], [0, 16]])


def test_gcn_by_hand():
    operators = Propagate(EDGES, ("source_rsqrt",), "count", "rsqrt", "sum", 1.0)
    got = compute(operators, make_snapshot(X, PATH))
    one, two = np.array(X[1]), np.array(X[2])
    np.testing.assert_allclose(got[0], X[0])
    np.testing.assert_allclose(got[1], np.array(X[0]) / math.sqrt(2) + one / 2)
    np.testing.assert_allclose(got[2], one / 2 + two / 2)
    np.testing.assert_allclose(got[3], X[3])


def test_weighted_gcn_uses_the_sum_of_weights_as_degree():
    operators = Propagate(EDGES, ("weight", "source_rsqrt"), "sum", "rsqrt", "sum", 1.0)
    got = compute(operators, make_snapshot(X, PATH, [3.0, 0.5, 2.0]))
    degree = [1.0, 4.0, 2.5, 1.0]
    expected = 0.5 * np.array(X[1]) / math.sqrt(degree[1] * degree[2]) + 2.0 * np.array(X[2]) / degree[2]
    np.testing.assert_allclose(got[2], expected)


@pytest.mark.parametrize("combine", ["divide", "rsqrt"])
def test_a_degree_that_is_not_positive_gives_zero(combine):
    snapshot = make_snapshot(X, [(0, 1), (2, 1), (1, 2), (1, 3)], [1.0, -1.0, -2.0, 4.0])
    got = compute(Propagate(EDGES, ("weight",), "sum", combine), snapshot)
    np.testing.assert_array_equal(got[:3], np.zeros((3, 2)))
    assert (got[3] != 0).all()
    as_source = compute(Propagate(EDGES, ("source_rsqrt",), "sum"), snapshot)
    np.testing.assert_array_equal(as_source, np.zeros((4, 2)))


def test_an_empty_graph():
    snapshot = make_snapshot(np.zeros((0, 2)), [])
    assert compute(Propagate(EDGES, ("source_rsqrt",), "count", "rsqrt", "max", 1.0), snapshot).shape == (
        0,
        2,
    )


def test_several_node_and_edge_types():
    buys, bought = ("user", "buys", "item"), ("item", "bought_by", "user")
    snapshot = Snapshot(
        ids={"user": np.array(["ann", "bob"]), "item": np.array(["a", "b", "c"])},
        x={"user": np.array([[1], [2]], np.float32), "item": np.array([[10], [20], [30]], np.float32)},
        edge_index={buys: np.array([[0, 1, 1], [2, 2, 0]]), bought: np.array([[2, 0], [0, 1]])},
        weight={buys: np.array([1, 2, 3], np.float32), bought: np.ones(2, np.float32)},
    )
    model = Model(
        {"u": Input("user", 1), "i": Input("item", 1)},
        (
            propagate("u", "sold", Propagate(buys, ("weight",))),
            Step("add", ("sold", "i"), "items"),
            propagate("items", "out", Propagate(bought)),
        ),
        {},
        "out",
        ("u", "out"),
    )
    values = reference.compute(model, snapshot)
    np.testing.assert_array_equal(values["sold"], [[6], [0], [5]])
    np.testing.assert_array_equal(values["out"], [[35], [16]])


NODE_WISE = [
    ("relu", {}, lambda v: max(v, 0.0)),
    ("leaky_relu", {"slope": 0.1}, lambda v: v if v > 0 else 0.1 * v),
    ("elu", {"alpha": 0.5}, lambda v: v if v > 0 else 0.5 * (math.exp(v) - 1)),
    ("gelu", {"approximate": "none"}, lambda v: v * 0.5 * math.erfc(-v / math.sqrt(2))),
    (
        "gelu",
        {"approximate": "tanh"},
        lambda v: v / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))),
    ),
    ("sigmoid", {}, lambda v: 1 / (1 + math.exp(-v))),
    ("tanh", {}, math.tanh),
    ("scale", {"value": -3.0}, lambda v: -3 * v),
]


@pytest.mark.parametrize(("op", "attrs", "expected"), NODE_WISE)
def test_functions_of_one_number(op, attrs, expected):
    numbers = [-30.0, -2.5, -1e-3, 0.0, 0.5, 4.0, 30.0]
    got = compute_step(Step(op, ("x",), "y", attrs=attrs), [numbers])
    np.testing.assert_allclose(
        got, [[expected(float(np.float32(v))) for v in numbers]], rtol=1e-9, atol=1e-12
    )


def test_large_numbers_do_not_overflow():
    x = [[-1000.0, 0.0, 1000.0]]
    with np.errstate(all="raise", under="ignore"):
        np.testing.assert_array_equal(compute_step(Step("sigmoid", ("x",), "y"), x), [[0, 0.5, 1]])
        np.testing.assert_array_equal(compute_step(Step("softmax", ("x",), "y"), x), [[0, 0, 1]])
        np.testing.assert_array_equal(compute_step(Step("log_softmax", ("x",), "y"), x), [[-2000, -1000, 0]])
        compute_step(Step("elu", ("x",), "y", attrs={"alpha": 1.0}), x)


def test_functions_of_a_row():
    x = np.array([[3.0, 4.0], [0.0, 0.0], [-1.0, 1.0]])
    unit = compute_step(Step("l2_normalize", ("x",), "y", attrs={"eps": 1e-12}), x)
    np.testing.assert_allclose(unit, [[0.6, 0.8], [0, 0], [-math.sqrt(0.5), math.sqrt(0.5)]])
    soft = compute_step(Step("softmax", ("x",), "y"), x)
    np.testing.assert_allclose(soft[0], [1 / (1 + math.e), math.e / (1 + math.e)])
    np.testing.assert_allclose(np.exp(compute_step(Step("log_softmax", ("x",), "y"), x)), soft)
    norm = Step("layer_norm", ("x",), "y", {"weight": "w", "bias": "b"}, {"eps": 0.25})
    got = compute_step(norm, x, w=[2.0, 4.0], b=[0.0, 1.0])
    np.testing.assert_allclose(got[0], [-1 / math.sqrt(0.5) * 1, 1 + 2 / math.sqrt(0.5)])
    np.testing.assert_allclose(got[1], [0, 1])


def test_linear_and_scale_shift():
    x = [[1.0, 2.0]]
    linear = Step("linear", ("x",), "y", {"weight": "w", "bias": "b"})
    np.testing.assert_array_equal(
        compute_step(linear, x, w=[[1, 10], [0, 1], [2, 0]], b=[0, 0, 5]), [[21, 2, 7]]
    )
    np.testing.assert_array_equal(
        compute_step(Step("scale_shift", ("x",), "y", {"scale": "s", "shift": "t"}), x, s=[2, 3], t=[1, 1]),
        [[3, 7]],
    )
    np.testing.assert_array_equal(
        compute_step(Step("scale_shift", ("x",), "y", {"shift": "t"}), x, t=[1, 2]), [[2, 4]]
    )


@pytest.mark.parametrize(
    ("op", "expected"),
    [("add", [[0, 4]]), ("multiply", [[-1, 4]]), ("maximum", [[1, 2]]), ("concat", [[1, 2, -1, 2]])],
)
def test_functions_of_two_rows(op, expected):
    model = Model(
        {"a": Input("node", 2), "b": Input("other", 2)},
        (propagate("b", "c", Propagate(("other", "is", "node"))), Step(op, ("a", "c"), "y")),
        {},
        "y",
        ("a", "y"),
    )
    snapshot = Snapshot(
        {"node": np.arange(1), "other": np.arange(1)},
        {"node": np.array([[1, 2]], np.float32), "other": np.array([[-1, 2]], np.float32)},
        {("other", "is", "node"): np.zeros((2, 1), np.int64)},
        {("other", "is", "node"): np.ones(1, np.float32)},
    )
    np.testing.assert_array_equal(reference.compute(model, snapshot)["y"], expected)


def test_every_operator_is_tested_here():
    tested = {op for op, _, _ in NODE_WISE} | {"softmax", "log_softmax", "l2_normalize", "layer_norm"}
    tested |= {"linear", "scale_shift", "add", "multiply", "maximum", "concat", "propagate"}
    assert tested == set(OPERATORS)


@pytest.mark.parametrize(
    ("snapshot", "message"),
    [
        (make_snapshot(np.zeros((2, 3)), []), r"'node' features must be \[nodes, 2\], got \[2, 3\]"),
        (Snapshot({}, {}, {}, {}), "the model reads 'node' nodes, the graph has none"),
        (
            Snapshot({"node": np.arange(1)}, {"node": np.zeros((1, 2), np.float32)}, {}, {}),
            r"the model propagates along \('node', 'to', 'node'\), the graph has none",
        ),
    ],
)
def test_a_graph_that_does_not_fit_is_refused(snapshot, message):
    with pytest.raises(ModelError, match=message):
        compute(Propagate(EDGES), snapshot)
