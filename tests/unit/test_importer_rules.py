"""Each rule of the normal form by itself: what it makes, and that it means the same."""

from collections.abc import Callable

import pytest
import torch

import expression_interpreter as interpreter
from livegnn.errors import ModelError
from livegnn.importers.expressions.expressions import Atom, Expression, Expressions, walk
from livegnn.importers.expressions.properties import is_finite, is_positive
from livegnn.importers.rules.marks import mark_shifts, mark_variances
from livegnn.importers.rules.normal_form import normalize
from livegnn.importers.rules.propagation_kinds import shift_is_free

NODE = Atom("node")
EDGE = Atom("edge", NODE, NODE)


class Builder:
    """Expressions over one graph, written shortly."""

    def __init__(self) -> None:
        self.make = Expressions()
        self.x = self.make.input("x", NODE, (4,))
        self.weight = self.make.input("weight", EDGE, (1,))
        self.source, self.target = self.make.end(EDGE, 0), self.make.end(EDGE, 1)
        self.a, self.b = self.make.gather(self.x, self.source), self.make.gather(self.x, self.target)
        self.all = self.make.constant(torch.tensor(True))
        self.matrix = self.make.constant(torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(4, 3))

    def sum(self, message: Expression, reduce: str = "sum") -> Expression:
        return self.make.scatter(reduce, [(message, self.target, self.all)], NODE)

    def __call__(self, op: str, *args: Expression | float, attrs: tuple[object, ...] = ()) -> Expression:
        given = [self.make.constant(arg) if isinstance(arg, float) else arg for arg in args]
        return self.make.elementwise(op, *given, attrs=attrs)

    def normal(self, one: Expression) -> Expression:
        """The normal form, after it was held against what it was made of."""
        (made,) = normalize(self.make, [one])
        random = torch.Generator().manual_seed(0)
        for edges in ([[0, 1, 1, 2, 2, 5], [1, 1, 1, 0, 3, 1]], [[4, 4], [4, 4]], [[], []]):
            ends = torch.tensor(edges, dtype=torch.int64)
            inputs = {
                "x": torch.randn(6, 4, generator=random, dtype=torch.float64),
                "weight": torch.rand(ends.shape[1], 1, generator=random, dtype=torch.float64) + 0.1,
            }
            graph = interpreter.Rows({NODE: 6, EDGE: ends.shape[1]}, {EDGE: ends}, inputs)
            before, after = interpreter.compute([one, made], graph)
            torch.testing.assert_close(after, before, rtol=1e-12, atol=1e-12)
        return made


@pytest.fixture
def of() -> Builder:
    return Builder()


def scatters(one: Expression) -> list[Expression]:
    return [part for part in walk([one]) if part.op == "scatter"]


def softmax(of: Builder, logit: Expression, value: Expression, beside: float = 1e-16) -> Expression:
    shift = of.make.gather(of.sum(logit, "amax"), of.target)
    weight = of("exp", of("add", logit, of("neg", shift)))
    mass = of("add", of.sum(weight), beside)
    return of.sum(of("mul", of("div", weight, of.make.gather(mass, of.target)), value))


def test_1_a_shift_is_marked(of: Builder) -> None:
    logit = of("mul", of.a, of.b)
    (marked,) = mark_shifts(of.make, [softmax(of, logit, of.a)])
    assert any(one.op == "exp_shifted" for one in walk([marked]))
    assert not any(one.op == "exp" for one in walk([marked]))


def test_1_another_maximum_is_no_shift(of: Builder) -> None:
    shift = of.make.gather(of.sum(of.a, "amax"), of.target)
    (marked,) = mark_shifts(of.make, [of.sum(of("exp", of("add", of("mul", of.a, of.b), of("neg", shift))))])
    assert not any(one.op == "exp_shifted" for one in walk([marked]))


def test_1_a_maximum_of_the_other_end_is_no_shift(of: Builder) -> None:
    logit = of("mul", of.a, of.b)
    shift = of.make.gather(of.sum(logit, "amax"), of.source)
    (marked,) = mark_shifts(of.make, [of.sum(of("exp", of("add", logit, of("neg", shift))))])
    assert not any(one.op == "exp_shifted" for one in walk([marked]))


def test_2_what_reads_one_end_is_computed_on_nodes(of: Builder) -> None:
    form = of.normal(of.sum(of("tanh", of("mul", of("relu", of.a), 2.0))))
    (only,) = scatters(form)
    assert only.args[0].op == "gather"
    assert only.args[0].args[0].op == "tanh"


def test_3_axes_of_one_move_below(of: Builder) -> None:
    joined = of.make.reshape(of.make.elementwise("add", of.a, of.b), (1, 4))
    form = of.normal(of.sum(of.make.matmul(joined, of.make.reshape(of.matrix, (1, 4, 3)))))
    assert {one.args[0].op for one in scatters(form)} <= {"gather", "constant"}


def test_3_comparisons_of_ends_stay_as_they_are(of: Builder) -> None:
    loops = of.make.reshape(of("eq", of.source, of.target), (1,))
    assert of.normal(of.sum(of("where", loops, of.a, of("neg", of.a)))).op == "scatter"


def test_3_slices_move_below(of: Builder) -> None:
    both = of.make.matmul(of.make.concat([of.a, of.b], 0), of.make.concat([of.matrix, of.matrix], 0))
    form = of.normal(of.sum(of.make.slice(of("relu", both), 0, 1, 3)))
    message = scatters(form)[0].args[0]
    assert message.op == "relu"
    assert message.shape == (2,)


def test_3_concatenations_move_above(of: Builder) -> None:
    both = of.make.concat([of.a, of.b], 0)
    form = of.normal(of.sum(of("mul", both, both), "amax"))
    assert form.op == "concat"


def test_4_a_linear_map_of_a_concatenation_is_a_sum(of: Builder) -> None:
    both = of.make.concat([of.a, of.b], 0)
    halves = of.make.concat([of.matrix, of("mul", of.matrix, -2.0)], 0)
    form = of.normal(of.sum(of.make.matmul(both, halves)))
    assert [one.args[0].op for one in scatters(form)].count("gather") == 1
    assert all("linear" not in one.args[0].op for one in scatters(form))


def test_4_a_linear_map_of_a_sum_of_both_ends(of: Builder) -> None:
    form = of.normal(of.sum(of.make.matmul(of("add", of.b, of("neg", of.a)), of.matrix), "amax"))
    (extremum,) = [one for one in scatters(form) if one.attrs == ("amax",)]
    assert extremum.args[0].op == "gather"


def test_5_terms_go_together_by_what_they_read(of: Builder) -> None:
    mixed = of("add", of("add", of.a, of.weight), of("sin", of.a))
    form = of.normal(of.sum(of("relu", mixed)))
    relu = scatters(form)[0].args[0]
    assert sorted(arg.op for arg in relu.args[0].args) == ["gather", "input"]


def test_6_own_rows_are_added(of: Builder) -> None:
    rows = of.make.rows(NODE)
    both = of.make.scatter("sum", [(of.a, of.target, of.all), (of.x, rows, of.all)], NODE)
    form = of.normal(both)
    assert form.op == "add"
    assert len(scatters(form)[0].pieces) == 1


def test_7_target_factors_leave(of: Builder) -> None:
    form = of.normal(of.sum(of("mul", of.b, of("mul", of.a, of.weight))))
    (only,) = scatters(form)
    assert form.op == "mul"
    assert of.b not in set(walk(only.args))


@pytest.mark.parametrize("factors", [2, 3])
def test_7_products_of_sums_stay_as_they_are(of: Builder, factors: int) -> None:
    both = of("add", of.a, of("sin", of.b))
    product = both
    for _ in range(factors - 1):
        product = of("mul", product, both)
    form = of.normal(of.sum(product))
    assert form.op == "scatter"
    assert form.args[0].op == "mul"


def test_7_what_all_edges_of_a_target_share_leaves_a_product_of_sums(of: Builder) -> None:
    both = of("add", of.a, of("sin", of.b))
    form = of.normal(of.sum(of("mul", of.b, of("mul", both, both))))
    (only,) = scatters(form)
    assert form.op == "mul"
    assert only.args[0].op == "mul"


@pytest.mark.parametrize("of_linear", [False, True])
def test_7_a_row_is_not_parted_from_one_that_is_made_of_it(of: Builder, of_linear: bool) -> None:
    mean = of.make.gather(mean_of(of, of.a), of.target)
    for other in (of.b, mean):
        difference = of("add", of.a, of("neg", other))
        message = of.make.matmul(difference, of.matrix) if of_linear else difference
        found = [one for one in scatters(of.normal(of.sum(message))) if one.args[0].op == "add"]
        assert len(found) == 1
        assert of.target in [arg.args[1] for arg in found[0].args[0].args]


def test_7_rows_of_other_layers_are_parted(of: Builder) -> None:
    """They are not nearly equal, and a sum that reads no target is kept up at a lower price."""
    form = of.normal(of.sum(of("add", of("tanh", of.a), of("neg", of("sin", of.b)))))
    assert all(one.args[0].op in ("gather", "constant") for one in scatters(form))


def test_7_a_message_of_target_alone_is_a_count(of: Builder) -> None:
    (only,) = scatters(of.normal(of.sum(of("tanh", of.b))))
    assert only.args[0].is_number(1)


def test_7_what_needs_both_ends_stays(of: Builder) -> None:
    (only,) = scatters(of.normal(of.sum(of("tanh", of("add", of.a, of.b)))))
    assert only.args[0].op == "tanh"


def test_8_linear_maps_leave_a_sum(of: Builder) -> None:
    form = of.normal(of.sum(of.make.matmul(of("tanh", of("mul", of.a, of.b)), of.matrix)))
    assert form.op == "linear"


def test_8_constant_factors_leave_a_sum(of: Builder) -> None:
    form = of.normal(of.sum(of("mul", 3.0, of("tanh", of("mul", of.a, of.weight)))))
    assert form.op == "mul"


def test_9_concatenated_messages_are_summed_apart(of: Builder) -> None:
    both = of.make.concat([of("tanh", of("mul", of.a, of.b)), of.a], 0)
    form = of.normal(of.sum(both))
    assert form.op == "concat"
    assert len(scatters(form)) == 2


def test_10_target_terms_leave_a_maximum(of: Builder) -> None:
    form = of.normal(of.sum(of("add", of.a, of.b), "amax"))
    assert form.op == "where"
    assert {one.args[0].op for one in scatters(form)} == {"gather", "constant"}


def test_10_signs_go_to_the_terms(of: Builder) -> None:
    form = of.normal(of.sum(of("sigmoid", of("neg", of("add", of.a, of.b))), "amax"))
    assert {one.args[0].op for one in scatters(form)} == {"gather", "constant"}


def test_10_increasing_functions_leave_a_maximum(of: Builder) -> None:
    form = of.normal(of.sum(of("relu", of("add", of.a, of.b)), "amin"))
    assert all("relu" not in one.args[0].op for one in scatters(form))


def test_10_falling_functions_stay_in_a_maximum(of: Builder) -> None:
    form = of.normal(of.sum(of("neg", of("mul", of.a, of.b)), "amax"))
    assert form.op == "scatter"
    steep = of.sum(of("leaky_relu", of("mul", of.a, of.b), attrs=(-0.5,)), "amax")
    assert of.normal(steep).op == "scatter"


def test_finite_is_not_compared_with_infinity(of: Builder) -> None:
    assert is_finite(of.a)
    assert not is_finite(of("div", 1.0, of.a))
    assert not is_finite(of("exp", of.a))


def test_signs_are_known_without_computing(of: Builder) -> None:
    count = of.sum(of.make.constant(1.0))
    assert is_positive(count, or_zero=True)
    assert not is_positive(count)
    assert is_positive(of("add", count, 1e-16))
    assert is_positive(of("clamp", count, attrs=(1.0, None)))
    assert is_positive(of("mul", of.a, of.a), or_zero=True)
    assert not is_positive(of("mul", of.a, of.a))
    assert not is_positive(of.a, or_zero=True)


def test_7_what_no_number_is_for_a_target_without_edges_is_not_read(of: Builder) -> None:
    count = of.sum(of.make.constant(1.0))
    assert of.normal(of.sum(of("div", of.weight, of.make.gather(count, of.target)))).op == "where"
    power = of.make.gather(of("pow", count, -0.5), of.target)
    assert of.normal(of.sum(of("mul", of.weight, power))).op == "where"


# Softmaxes


@pytest.mark.parametrize(("beside", "free"), [(1e-16, True), (0.1, False)])
def test_a_shift_is_free_where_only_the_quotient_is_used(of: Builder, beside: float, free: bool) -> None:
    form = of.normal(softmax(of, of.make.reduce("sum", of("mul", of.a, of.b), [0]), of.a, beside))
    (shift,) = [one for one in walk([form]) if one.op == "scatter" and one.attrs == ("amax",)]
    assert shift_is_free([form], shift) is free


def test_a_shift_is_felt_where_the_mass_is_used_by_itself(of: Builder) -> None:
    logit = of.make.reduce("sum", of("mul", of.a, of.b), [0])
    shift = of.make.gather(of.sum(logit, "amax"), of.target)
    mass = of.sum(of("exp", of("add", logit, of("neg", shift))))
    form = of.normal(of("add", softmax(of, logit, of.a), mass))
    (largest,) = [one for one in walk([form]) if one.op == "scatter" and one.attrs == ("amax",)]
    assert not shift_is_free([form], largest)


def test_a_shift_is_felt_where_heads_are_mixed_before_the_quotient(of: Builder) -> None:
    logit = of("mul", of.a, of.b)
    shift = of.make.gather(of.sum(logit, "amax"), of.target)
    weight = of("exp", of("add", logit, of("neg", shift)))
    mixed = of("add", of.make.reduce("sum", of.sum(weight), [0]), 1e-16)
    form = of.normal(of("div", of.sum(of("mul", weight, of.a)), mixed))
    (shift,) = [one for one in walk([form]) if one.op == "scatter" and one.attrs == ("amax",)]
    assert not shift_is_free([form], shift)


# Expressions


def test_equal_expressions_are_one(of: Builder) -> None:
    assert of("add", of.a, of.b) is of("add", of.b, of.a)
    assert of.make.constant(2.0) is of.make.constant(torch.tensor(2.0, dtype=torch.float32))
    assert of("ne", of.source, of.target) is of("not", of("eq", of.source, of.target))


def test_masks_of_the_same_ends_exclude_each_other(of: Builder) -> None:
    loops, others = of("eq", of.source, of.target), of("ne", of.source, of.target)
    assert of("and", loops, others).is_number(0)
    assert of("and", loops, loops) is loops
    rows = of.make.rows(NODE)
    assert of("eq", rows, rows).is_number(1)


def test_a_place_is_no_number(of: Builder) -> None:
    with pytest.raises(ModelError, match="place among the nodes"):
        of("add", of.source, 1.0)
    with pytest.raises(ModelError, match="place among the nodes"):
        of.make.cast(of.make.rows(NODE), "float")


def mean_of(of: Builder, message: Expression) -> Expression:
    count = of("clamp", of.sum(of.make.constant(1.0)), attrs=(1, None))
    return of("div", of.sum(message), of.make.expand(of.make.reshape(count, (1,)), message.shape))


def variance(of: Builder, message: Expression) -> Expression:
    mean, squares = mean_of(of, message), mean_of(of, of("mul", message, message))
    return of("add", squares, of("neg", of("mul", mean, mean)))


def test_14_what_messages_of_a_target_share_leaves_a_variance(of: Builder) -> None:
    made = of.normal(variance(of, of("add", of.a, of.b)))
    assert made is of.normal(variance(of, of.a))
    assert not any(one is of.b for one in walk([made]))


def test_14_a_variance_is_a_mean_of_squared_distances_from_the_mean(of: Builder) -> None:
    found = scatters(of.normal(variance(of, of.a)))
    (squares,) = (one for one in found if one.pieces[0][0].op == "mul")
    message = squares.pieces[0][0]
    assert message.args[0] is message.args[1]
    means = [one for one in walk([message]) if one in found]
    assert of.a in [piece[0] for one in means for piece in one.pieces]


def test_14_squares_may_be_of_nodes(of: Builder) -> None:
    mean = mean_of(of, of.a)
    squares = mean_of(of, of.make.gather(of("mul", of.x, of.x), of.source))
    made = of("add", squares, of("neg", of("mul", mean, mean)))
    assert of.normal(made) is of.normal(variance(of, of.a))


def test_14_weights_may_be_a_softmax(of: Builder) -> None:
    logit = of("mul", of.a, of.weight)
    mean, squares = (softmax(of, logit, value) for value in (of.a, of("mul", of.a, of.a)))
    made = of("add", squares, of("neg", of("mul", mean, mean)))
    (marked,) = mark_variances(of.make, mark_shifts(of.make, [made]))
    assert marked.op == "variance"
    of.normal(made)


def test_14_other_weights_are_not_known_to_add_up_to_1(of: Builder) -> None:
    mean = of.sum(of("mul", of.weight, of.a))
    squares = of.sum(of("mul", of.weight, of("mul", of.a, of.a)))
    made = of("add", squares, of("neg", of("mul", mean, mean)))
    assert mark_variances(of.make, [made]) == [made]


def test_14_an_unbiased_one_divides_a_variance_times_the_count(of: Builder) -> None:
    sums, squares = of.sum(of.a), of.sum(of("mul", of.a, of.a))
    number = of.sum(of.make.constant(1.0))
    count = of.make.expand(of.make.reshape(of("clamp", number, attrs=(1, None)), (1,)), (4,))
    mean = of("div", sums, count)
    shares = (
        of("div", of("mul", sums, sums), count),
        of("mul", mean, sums),
        of("mul", of.make.expand(of.make.reshape(number, (1,)), (4,)), of("pow", mean, 2.0)),
    )
    for share in shares:
        made = of.normal(of("add", squares, of("neg", share)))
        assert made is of.normal(of("mul", count, variance(of, of.a)))


@pytest.mark.parametrize(
    "share",
    [
        lambda of, sums, count: of("mul", sums, sums),
        lambda of, sums, count: of("div", of("mul", sums, sums), of("mul", count, count)),
        lambda of, sums, count: of("div", of("mul", sums, of.sum(of.b)), count),
        lambda of, sums, count: of("div", of("mul", sums, sums), of.sum(of.weight)),
    ],
)
def test_14_other_shares_leave_no_variance(
    of: Builder, share: Callable[[Builder, Expression, Expression], Expression]
) -> None:
    count = of("clamp", of.sum(of.make.constant(1.0)), attrs=(1, None))
    made = of("add", of.sum(of("mul", of.a, of.a)), of("neg", share(of, of.sum(of.a), count)))
    assert mark_variances(of.make, [made]) == [made]


def test_14_what_they_do_not_share_stays(of: Builder) -> None:
    of.normal(variance(of, of("mul", of.a, of.b)))
    of.normal(variance(of, of("add", of.a, of("mul", of.weight, of.b))))


@pytest.mark.parametrize("sign", [1, -1])
def test_15_a_distance_to_a_mean_is_a_mean_of_distances(of: Builder, sign: int) -> None:
    mean = mean_of(of, of.a)
    made = of("add", of.x, of("neg", mean)) if sign == 1 else of("add", of("neg", of.x), mean)
    (sums,) = [one for one in scatters(of.normal(made)) if one.args[0].value is None]
    assert sums.args[0].op == "add"
    assert {arg.args[1] for arg in sums.args[0].args} == {of.source, of.target}


@pytest.mark.parametrize("sign", [1, -1])
def test_15_edges_read_a_mean_as_a_row_and_its_distance(of: Builder, sign: int) -> None:
    mean = of.make.gather(mean_of(of, of.a), of.target)
    away = of("add", of.a, of("neg", mean)) if sign == 1 else of("add", of("neg", of.a), mean)
    form = of.normal(of.sum(of("mul", away, of("mul", away, away))))
    messages = [one.args[0] for one in scatters(form) if one.args[0].value is None]
    assert sorted(message.op for message in messages) == ["add", "mul"]


def test_15_a_mean_of_other_rows_is_none(of: Builder) -> None:
    made = of("add", of.x, of("neg", mean_of(of, of("tanh", of.a))))
    (sums,) = [one for one in scatters(of.normal(made)) if one.args[0].value is None]
    assert sums.args[0].op == "gather"


def test_8_sums_over_channels_stay_inside(of: Builder) -> None:
    message = of.make.reduce("sum", of("mul", of.a, of.weight), (0,))
    (inside,) = scatters(of.normal(of.sum(message)))
    assert inside.shape == (1,)
