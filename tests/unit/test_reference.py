import math

import numpy as np
import pytest
from model_examples import EDGES, make_snapshot, propagate

from livegnn.errors import ModelError
from livegnn.graph.snapshot import Snapshot
from livegnn.model import EdgeInput, Input, Model, Propagate, Step
from livegnn.network.operators import OPERATORS, ROW_OPERATORS
from livegnn.oracle import reference

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
def test_a_degree_of_zero_gives_zero_and_the_root_of_one_below_is_no_number(combine):
    snapshot = make_snapshot(X, [(0, 1), (2, 1), (1, 2), (1, 3)], [1.0, -1.0, -2.0, 4.0])
    got = compute(Propagate(EDGES, ("weight",), "sum", combine), snapshot)
    np.testing.assert_array_equal(got[:2], np.zeros((2, 2)))
    np.testing.assert_array_equal(got[2], np.full(2, 0.0 if combine == "divide" else np.nan))
    assert (got[3] != 0).all()
    as_source = compute(Propagate(EDGES, ("source_rsqrt",), "sum"), snapshot)
    np.testing.assert_array_equal(as_source, [[0, 0], [np.nan, np.nan], [0, 0], [0, 0]])


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
    ("exp", {}, math.exp),
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


HEADS = [
    ("sum_channels", {"heads": 2}, [[1, 2, 3, 4], [0, -1, 5, 5]], [[3, 7], [-1, 10]]),
    ("sum_channels", {"heads": 1}, [[1, 2, 3]], [[6]]),
    ("sum_channels", {"heads": 3}, [[1, 2, 3]], [[1, 2, 3]]),
    ("sum_heads", {"heads": 2}, [[1, 2, 3, 4], [0, -1, 5, 5]], [[4, 6], [5, 4]]),
    ("sum_heads", {"heads": 1}, [[1, 2, 3]], [[1, 2, 3]]),
]


@pytest.mark.parametrize(("op", "attrs", "x", "expected"), HEADS)
def test_sums_by_head(op, attrs, x, expected):
    np.testing.assert_array_equal(compute_step(Step(op, ("x",), "y", attrs=attrs), x), expected)


def compute_steps(*steps: Step, snapshot: Snapshot, inputs=None, edge_inputs=None, functions=None):
    """Every value, where the first input is ``x`` of the nodes."""
    inputs = inputs or {"x": Input("node", snapshot.x["node"].shape[1])}
    end = Step("propagate", ("x",), "end", attrs=Propagate(EDGES).to_attrs())
    model = Model(
        inputs,
        (*steps, end),
        {},
        "end",
        ("x", "end"),
        edge_inputs or {},
        functions or {},
    )
    return reference.compute(model, snapshot)


def test_each_head_has_its_factor():
    steps = (
        Step("sum_channels", ("x",), "b", attrs={"heads": 2}),
        Step("scale_heads", ("x", "b"), "y"),
    )
    values = compute_steps(*steps, snapshot=make_snapshot([[1, 2, 3, 4]], []))
    np.testing.assert_array_equal(values["b"], [[3, 7]])
    np.testing.assert_array_equal(values["y"], [[3, 6, 21, 28]])


def test_a_function_of_the_users_gets_float32_rows():
    got = []

    def function(x, twice):
        got.append((x.dtype, twice.dtype))
        return np.stack([x[:, 0] * twice[:, 1], x[:, 1]], axis=1)

    steps = (
        Step("add", ("x", "x"), "twice"),
        Step("call", ("x", "twice"), "y", attrs={"function": "f", "width": 2}),
    )
    values = compute_steps(*steps, snapshot=make_snapshot([[3, 5], [-1, 2]], []), functions={"f": function})
    np.testing.assert_array_equal(values["y"], [[30, 5], [-4, 2]])
    assert values["y"].dtype == np.float64
    assert got == [(np.float32, np.float32)]


def test_edges_get_the_rows_of_their_ends():
    steps = (
        Step("source", ("x",), "u", attrs={"edge_type": EDGES}),
        Step("target", ("x",), "v", attrs={"edge_type": EDGES}),
    )
    values = compute_steps(*steps, snapshot=make_snapshot(X, [(0, 1), (3, 2), (2, 2)]))
    np.testing.assert_array_equal(values["u"], [X[0], X[3], X[2]])
    np.testing.assert_array_equal(values["v"], [X[1], X[2], X[2]])


def test_ends_of_different_types():
    buys = ("user", "buys", "item")
    snapshot = Snapshot(
        {"user": np.arange(2), "item": np.arange(1)},
        {"user": np.array([[1], [2]], np.float32), "item": np.array([[7, 8]], np.float32)},
        {buys: np.array([[1, 0], [0, 0]])},
        {buys: np.ones(2, np.float32)},
    )
    model = Model(
        {"u": Input("user", 1), "i": Input("item", 2)},
        (
            Step("source", ("u",), "from", attrs={"edge_type": buys}),
            Step("target", ("i",), "into", attrs={"edge_type": buys}),
            Step("concat", ("from", "into"), "both"),
            propagate("both", "y", Propagate(buys)),
        ),
        {},
        "y",
        ("u", "y"),
    )
    values = reference.compute(model, snapshot)
    np.testing.assert_array_equal(values["both"], [[2, 7, 8], [1, 7, 8]])
    np.testing.assert_array_equal(values["y"], [[3, 14, 16]])


def test_columns_of_the_edges():
    snapshot = make_snapshot(X, PATH, [2.0, 0.5, -1.0])
    features = np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9]], np.float32)
    snapshot = Snapshot(snapshot.ids, snapshot.x, snapshot.edge_index, snapshot.weight, {EDGES: features})
    columns = {"e": EdgeInput(EDGES, 3), "w": EdgeInput(EDGES, 1, "weight")}
    steps = (
        Step("scale_heads", ("e", "w"), "scaled"),
        propagate("scaled", "into", Propagate(EDGES)),
    )
    values = compute_steps(*steps, snapshot=snapshot, edge_inputs=columns)
    np.testing.assert_array_equal(values["w"], [[2], [0.5], [-1]])
    np.testing.assert_array_equal(values["into"], [[0, 0, 0], [2, 4, 6], [-5, -5.5, -6], [0, 0, 0]])
    wide = {"e": EdgeInput(EDGES, 2)}
    with pytest.raises(ModelError, match=r"edges must have \[3, 2\] features, got \[3, 3\]"):
        compute_steps(snapshot=snapshot, edge_inputs=wide)
    with pytest.raises(ModelError, match=r"edges must have \[3, 2\] features, got none"):
        compute_steps(snapshot=make_snapshot(X, PATH), edge_inputs=wide)


AT_2 = [(0, 2), (1, 2), (2, 2), (3, 1)]
"""Three messages for 2, its own among them; one for 1; none for 0 and 3."""

EDGE_VALUE = (
    Step("source", ("x",), "u", attrs={"edge_type": EDGES}),
    Step("target", ("x",), "v", attrs={"edge_type": EDGES}),
    Step("multiply", ("u", "v"), "m"),
)
"""h_u * h_v: (-5, -12), (-15, 24), (25, 36) for node 2 and (0, 32) for node 1."""


@pytest.mark.parametrize(
    ("operators", "at_1", "at_2"),
    [
        (Propagate(EDGES), [0, 32], [5, 48]),
        (Propagate(EDGES, ("weight",)), [0, 128], [40, 144]),
        (Propagate(EDGES, (), "count", "divide"), [0, 32], [5 / 3, 16]),
        (Propagate(EDGES, (), "sum", "divide"), [0, 8], [5 / 6, 8]),
        (Propagate(EDGES, aggregate="max"), [0, 32], [25, 36]),
        (Propagate(EDGES, aggregate="min"), [0, 32], [-15, -12]),
        (Propagate(EDGES, skip_loops=True), [0, 32], [-20, 12]),
        (Propagate(EDGES, (), "count", "divide", skip_loops=True), [0, 32], [-10, 6]),
        (Propagate(EDGES, (), "sum", "divide", skip_loops=True), [0, 8], [-20 / 3, 4]),
        (Propagate(EDGES, (), "count", "rsqrt", skip_loops=True), [0, 32], [-20 / 2**0.5, 12 / 2**0.5]),
        (Propagate(EDGES, aggregate="max", skip_loops=True), [0, 32], [-5, 24]),
    ],
    ids=str,
)
def test_rows_of_edges_are_aggregated(operators, at_1, at_2):
    snapshot = make_snapshot(X, AT_2, [1.0, 2.0, 3.0, 4.0])
    values = compute_steps(*EDGE_VALUE, propagate("m", "y", operators), snapshot=snapshot)
    np.testing.assert_allclose(values["y"], [[0, 0], at_1, at_2, [0, 0]])


def test_skipped_loops_of_source_rows():
    snapshot = make_snapshot(X, AT_2, [1.0, 2.0, 3.0, 4.0])
    got = compute(Propagate(EDGES, ("weight", "source_rsqrt"), "count", "rsqrt", skip_loops=True), snapshot)
    # Without the loop, 2 has two in-neighbours, 1 has one, and 0 and 3 have none, so their factor is 0.
    np.testing.assert_allclose(got, [[0, 0], [0, 0], [6 / 2**0.5, 8 / 2**0.5], [0, 0]])


COEFFICIENTS = (
    Step("source", ("x",), "u", attrs={"edge_type": EDGES}),
    Step("scale", ("u",), "c", attrs={"value": 2.0}),
    Step("sum_channels", ("c",), "c1", attrs={"heads": 1}),
)
"""Two heads: 2 h_u, that is (2, -4), (6, 8), (-10, 12) for node 2; and their sum: -2, 14, 2."""


def with_coefficients(coefficient: str, neighbor_context: str, combine: str, **changes) -> np.ndarray:
    operators = Propagate(EDGES, ("coefficient",), neighbor_context, combine, **changes)
    step = Step("propagate", ("x", coefficient), "y", attrs=operators.to_attrs())
    return compute_steps(*COEFFICIENTS, step, snapshot=make_snapshot(X, AT_2))["y"]


def test_coefficients_multiply_each_heads_channels():
    # 2 h_u^2, and (sum of 2 h_u) * h_u
    np.testing.assert_array_equal(with_coefficients("c", "none", "identity")[2], [70, 112])
    np.testing.assert_array_equal(with_coefficients("c1", "none", "identity")[2], [30, 72])


def test_coefficients_are_their_own_context():
    np.testing.assert_allclose(with_coefficients("c1", "sum", "divide")[2], [30 / 14, 72 / 14])
    got = with_coefficients("c", "sum", "divide")
    np.testing.assert_allclose(got, [[0, 0], [0, 8], [0, 112 / 16], [0, 0]])  # -2 and 0 are not positive


def test_coefficients_of_skipped_loops_do_not_count():
    got = with_coefficients("c1", "sum", "divide", skip_loops=True)
    np.testing.assert_allclose(got[2], [40 / 12, 60 / 12])


def softmax_steps(*more: Step, scale: float = 1.0) -> tuple[Step, ...]:
    return (
        Step("source", ("x",), "u", attrs={"edge_type": EDGES}),
        Step("scale", ("u",), "logits", attrs={"value": scale}),
        Step("exp", ("logits",), "e"),
        *more,
    )


SOFTMAX = Propagate(EDGES, ("coefficient",), "sum", "divide")


def test_a_softmax_over_in_edges():
    step = Step("propagate", ("x", "e"), "y", attrs=SOFTMAX.to_attrs())
    got = compute_steps(*softmax_steps(step), snapshot=make_snapshot(X, AT_2))["y"]
    first = np.exp([1.0, 3.0, -5.0])
    second = np.exp([-2.0, 4.0, 6.0])
    expected = [first @ [1, 3, -5] / first.sum(), second @ [-2, 4, 6] / second.sum()]
    np.testing.assert_allclose(got, [[0, 0], X[3], expected, [0, 0]])


def test_a_softmax_of_large_logits_does_not_overflow():
    step = Step("propagate", ("x", "e"), "y", attrs=SOFTMAX.to_attrs())
    with np.errstate(all="raise", under="ignore"):
        got = compute_steps(*softmax_steps(step, scale=1000.0), snapshot=make_snapshot(X, AT_2))["y"]
    np.testing.assert_array_equal(got, [[0, 0], X[3], [3, 6], [0, 0]])


def test_a_node_with_a_message_of_its_own():
    operators = Propagate(EDGES, (), "count", "divide", skip_loops=True, own_message=True)
    steps = (Step("scale", ("x",), "own", attrs={"value": 10.0}),)
    step = Step("propagate", ("x", "own"), "y", attrs=operators.to_attrs())
    got = compute_steps(*steps, step, snapshot=make_snapshot(X, AT_2))["y"]
    expected = [[10, -20], [(0 + 30) / 2, (8 + 40) / 2], [(1 + 3 - 50) / 3, (-2 + 4 + 60) / 3], [0, 80]]
    np.testing.assert_allclose(got, expected)
    plain = Propagate(EDGES, own_message=True)
    step = Step("propagate", ("x", "own"), "y", attrs=plain.to_attrs())
    got = compute_steps(*steps, step, snapshot=make_snapshot(X, AT_2))["y"]
    np.testing.assert_array_equal(got, [[10, -20], [30, 48], [-51, 68], [0, 80]])


def test_an_own_message_under_the_square_root_of_a_count():
    operators = Propagate(EDGES, (), "count", "rsqrt", own_message=True)
    step = Step("propagate", ("x", "x"), "y", attrs=operators.to_attrs())
    got = compute_steps(step, snapshot=make_snapshot(X, AT_2))["y"]
    np.testing.assert_allclose(got[2], np.array([1 + 3 - 5 - 5, -2 + 4 + 6 + 6]) / 2)
    np.testing.assert_allclose(got[0], X[0])


def test_a_softmax_with_an_own_message():
    own = Step("exp", ("x",), "own")
    operators = Propagate(EDGES, ("coefficient",), "sum", "divide", skip_loops=True, own_message=True)
    step = Step("propagate", ("x", "e", "x", "own"), "y", attrs=operators.to_attrs())
    got = compute_steps(*softmax_steps(own, step), snapshot=make_snapshot(X, AT_2))["y"]
    shares = np.exp([1.0, 3.0, -5.0])  # the loop of 2 is skipped, and its own message is the same
    np.testing.assert_allclose(got[2, 0], shares @ [1, 3, -5] / shares.sum())
    np.testing.assert_allclose(got[0], X[0])  # nobody else's
    np.testing.assert_allclose(got[1, 0], (math.exp(0) * 0 + math.exp(3) * 3) / (math.exp(0) + math.exp(3)))


LIKES, KNOWS = ("user", "likes", "item"), ("item", "near", "item")


def test_several_edge_types_share_one_context():
    snapshot = Snapshot(
        {"user": np.arange(2), "item": np.arange(2)},
        {"user": np.array([[1], [2]], np.float32), "item": np.array([[10], [20]], np.float32)},
        {LIKES: np.array([[0, 1], [0, 0]]), KNOWS: np.array([[1, 0, 1], [0, 1, 1]])},
        {LIKES: np.array([5, 7], np.float32), KNOWS: np.ones(3, np.float32)},
    )

    def run(operators: Propagate, *inputs: str, columns=None) -> np.ndarray:
        model = Model(
            {"u": Input("user", 1), "i": Input("item", 1)},
            (Step("propagate", inputs, "y", attrs=operators.to_attrs()),),
            {},
            "y",
            ("u", "y"),
            columns or {},
        )
        return reference.compute(model, snapshot)["y"]

    both = LIKES + KNOWS
    np.testing.assert_array_equal(run(Propagate(both), "u", "i"), [[23], [30]])
    np.testing.assert_allclose(run(Propagate(both, (), "count", "divide"), "u", "i"), [[23 / 3], [15]])
    loops = Propagate(both, (), "count", "divide", skip_loops=True, own_message=True)
    # An edge between types is no loop, though user 0 and item 0 have the same index.
    np.testing.assert_allclose(run(loops, "u", "i", "i"), [[33 / 4], [15]])
    shared = Propagate(both, ("coefficient",), "sum", "divide")
    columns = {"w": EdgeInput(LIKES, 1, "weight"), "k": EdgeInput(KNOWS, 1, "weight")}
    got = run(shared, "u", "w", "i", "k", columns=columns)
    np.testing.assert_allclose(got, [[(5 + 14 + 20) / 13], [15]])


def test_every_operator_is_tested_here():
    tested = {op for op, _, _ in NODE_WISE} | {"softmax", "log_softmax", "l2_normalize", "layer_norm"}
    tested |= {"linear", "scale_shift", "add", "multiply", "maximum", "concat", "propagate"}
    tested |= {op for op, _, _, _ in HEADS} | {"scale_heads", "call", "source", "target"}
    tested |= {"degree", "divide_degree", "rsqrt_degree"}  # in test_degrees.py
    assert tested <= set(OPERATORS)
    assert tested >= set(OPERATORS) - set(ROW_OPERATORS)  # the others are tried in test_row_operators.py


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


# -- in float32


def test_in_float32_every_operation_rounds():
    """Plain sums, one edge after the other: what is added to 2**24 is lost, from one term on."""
    x = np.array([[2.0**24], [1.0], [1.0], [0.0]], dtype=np.float32)
    snapshot = make_snapshot(x, [(0, 3), (1, 3), (2, 3)])
    model = Model({"x": Input("node", 1)}, (propagate("x", "y", Propagate(EDGES)),), {}, "y", ("x", "y"))
    for dtype, expected in ((np.float64, 2.0**24 + 2), (np.float32, 2.0**24)):
        values = reference.compute(model, snapshot, dtype=dtype)
        assert all(rows.dtype == dtype for rows in values.values())
        assert values["y"][3, 0] == expected


def test_in_float32_what_is_too_large_is_infinite():
    x = np.array([[3e38], [3e38], [0.0]], dtype=np.float32)
    snapshot = make_snapshot(x, [(0, 2), (1, 2)])
    model = Model({"x": Input("node", 1)}, (propagate("x", "y", Propagate(EDGES)),), {}, "y", ("x", "y"))
    assert reference.compute(model, snapshot)["y"][2, 0] == pytest.approx(6e38)
    assert np.isposinf(reference.compute(model, snapshot, dtype=np.float32)["y"][2, 0])


def test_in_float32_what_fits_is_a_number_in_whatever_order():
    largest = 3e38
    x = np.array([[largest], [largest], [-largest], [0.0]], dtype=np.float32)
    snapshot = make_snapshot(x, [(0, 3), (1, 3), (2, 3)])
    model = Model({"x": Input("node", 1)}, (propagate("x", "y", Propagate(EDGES)),), {}, "y", ("x", "y"))
    assert reference.compute(model, snapshot, dtype=np.float32)["y"][3, 0] == np.float32(largest)
    row = np.array([[largest, largest, -largest]], np.float32)
    step = Step("linear", ("x",), "y", {"weight": "w"})
    linear = Model({"x": Input("node", 3)}, (step,), {"w": np.ones((1, 3), np.float32)}, "y", ("x", "y"))
    got = reference.compute(linear, make_snapshot(row, []), dtype=np.float32)["y"]
    assert got[0, 0] == np.float32(largest)


def test_in_float32_a_message_is_divided_before_it_is_added():
    """As PyG does with the coefficients of GCNConv and of a softmax: the sum alone would be infinite."""
    x = np.full((3, 1), 2e38, np.float32)
    snapshot = make_snapshot(x, [(0, 2), (1, 2)])
    gcn = Propagate(EDGES, ("source_rsqrt",), "count", "rsqrt", "sum", 1.0)
    model = Model({"x": Input("node", 1)}, (propagate("x", "y", gcn),), {}, "y", ("x", "y"))
    whole = reference.compute(model, snapshot)["y"][2, 0]
    assert whole == pytest.approx(x[0, 0] * (2 / math.sqrt(3) + 1 / 3))
    assert reference.compute(model, snapshot, dtype=np.float32)["y"][2, 0] == pytest.approx(whole)
    steps = (
        Step("source", ("x",), "far", attrs={"edge_type": EDGES}),
        Step("scale", ("far",), "logits", attrs={"value": 0.0}),
        Step("exp", ("logits",), "c"),
        Step(
            "propagate",
            ("x", "c"),
            "y",
            attrs=Propagate(EDGES, ("coefficient",), "sum", "divide").to_attrs(),
        ),
    )
    softmax = Model({"x": Input("node", 1)}, steps, {}, "y", ("x", "y"))
    assert reference.compute(softmax, snapshot, dtype=np.float32)["y"][2, 0] == np.float32(2e38)


@pytest.mark.parametrize("x", [-100.0, -1.0, 0.0, 1.0, 100.0])
def test_a_sigmoid_is_as_exact_where_it_is_next_to_nothing(x):
    got = compute_step(Step("sigmoid", ("x",), "y"), [[x]])[0, 0]
    assert got == pytest.approx(math.exp(min(x, 0)) / (1 + math.exp(-abs(x))), rel=1e-15, abs=0)
