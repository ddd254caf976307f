"""What incremental computation needs is proved where it holds, and refuted by example where it does not."""

import itertools
import re
import subprocess
import sys

import numpy as np
import pytest
from model_examples import EDGES, make_sage, propagate

from livegnn.errors import ModelError
from livegnn.model import Convolution, Input, Model, Propagate, Step, verify
from livegnn.verification import claims, conditions
from livegnn.verification.claims import Claim, Relation, decide
from modules import CONVOLUTIONS, WEIGHTED, Design, make

WIDTH = 3
W = np.array([[1.0, -0.5], [0.25, 1.0], [0.5, 0.75]], np.float32)


def divide(context, aggregate):
    return aggregate / context


def multiply(context, combined):
    return combined * context


def attention(source, target):
    return np.exp(np.tanh(source @ W + target @ W).sum(axis=1, keepdims=True))


def attend(h, edge_index, weight, edge_attr):
    """Softmax attention as its formula says: the original formulation."""
    out = np.zeros((len(h), 2), np.float32)
    for v in range(len(h)):
        neighbours = edge_index[0, edge_index[1] == v]
        if len(neighbours):
            scores = attention(h[neighbours], np.repeat(h[v : v + 1], len(neighbours), axis=0))
            out[v] = (scores / scores.sum() * (h[neighbours] @ W)).sum(axis=0)
    return out


ATTENTION = Convolution(
    message_local=attention,
    neighbor_context="sum",
    combine=divide,
    combine_inverse=multiply,
    transform=lambda h: h @ W,
    reference=attend,
    name="attention",
)
MEAN = Convolution(neighbor_context="count", combine=divide, combine_inverse=multiply, name="mean")


def statuses(report) -> dict[str, str]:
    return {one.condition: one.status for one in report.conditions}


def refuted(convolution: Convolution, in_channels: int = WIDTH) -> dict[str, str]:
    """The conditions that are refuted, and by what; the model is refused with just that."""
    report = verify(convolution, in_channels=in_channels)
    failed = {one.condition: one.counterexample for one in report.failures if one.status == "refuted"}
    if failed:
        assert not report.ok
        with pytest.raises(ModelError) as error:
            Model.from_convolutions([convolution], in_channels)
        assert all(text in str(error.value) for text in (*failed, *failed.values()))
    return failed


def all_operators():
    for context, combine, aggregate in itertools.product(
        ("none", "count", "sum"), ("identity", "divide", "rsqrt"), ("sum", "min", "max")
    ):
        if (context == "none") == (combine == "identity"):
            yield Propagate(EDGES, (), context, combine, aggregate)
    yield Propagate(EDGES, ("source_rsqrt",), "count", "rsqrt", self_loops=1.0)
    yield Propagate(EDGES, ("weight", "source_rsqrt"), "sum", "rsqrt")
    yield Propagate(EDGES, ("weight",), "sum", "divide", skip_loops=True)
    yield Propagate(EDGES, (), "count", "divide", own_message=True)


@pytest.mark.parametrize("operators", list(all_operators()), ids=str)
def test_the_algebra_is_proved(operators):
    inputs = ("x", "x") if operators.own_message else ("x",)
    step = Step("propagate", inputs, "y", attrs=operators.to_attrs())
    report = verify(Model({"x": Input("node", 2)}, (step,), {}, "y", ("x", "y")))
    assert report.ok
    assert [one.number for one in report.conditions] == [1, 2, 3, 4, None, None]
    extremum = operators.aggregate != "sum"
    expected = {"proved", "not needed"} if extremum else {"proved"}
    assert {one.status for one in report.conditions} == expected
    if extremum:
        found = statuses(report)
        assert found[conditions.MONOTONE] == found[conditions.INVERSE] == "not needed"
        assert "is recomputed where its extremum leaves" in str(report)


def test_a_softmax_over_edges_is_proved():
    steps = (
        Step("source", ("x",), "u", attrs={"edge_type": EDGES}),
        Step("target", ("x",), "v", attrs={"edge_type": EDGES}),
        Step("add", ("u", "v"), "logits"),
        Step("exp", ("logits",), "c"),
        propagate("x", "plain"),
        Step(
            "propagate", ("x", "c"), "y", attrs=Propagate(EDGES, ("coefficient",), "sum", "divide").to_attrs()
        ),
        Step("add", ("plain", "y"), "out"),
    )
    report = verify(Model({"x": Input("node", 2)}, steps, {}, "out", ("x", "out")))
    assert report.constrained == ("y",)
    assert "y (reads its target)" in str(report)
    assert statuses(report)[conditions.POSITIVE] == "proved"
    assert {one.status for one in report.conditions} == {"proved"}


@pytest.mark.parametrize("kind", CONVOLUTIONS)
def test_every_imported_convolution_verifies(kind):
    report = verify(make(Design(kind, weighted=kind in WEIGHTED))[1])
    assert report.ok
    assert len({one.step for one in report.conditions}) == 2
    assert {one.status for one in report.conditions} <= {"proved", "not needed"}


@pytest.mark.parametrize("convolution", [ATTENTION, MEAN], ids=lambda given: given.name)
def test_right_decompositions_pass(convolution):
    report = verify(convolution, in_channels=WIDTH)
    report.raise_for_failure()
    found = statuses(report)
    proved = (conditions.DISTRIBUTES, conditions.MONOTONE, conditions.INVERSE, conditions.ALGORITHM)
    assert {found[name] for name in proved} == {"proved"}
    assert found["combine is row-wise"] == "tested"
    if convolution is ATTENTION:
        assert report.constrained == ("attention",)
        assert found["the operators equal the reference"] == "tested"
    assert verify(Model.from_convolutions([convolution], WIDTH)).ok


@pytest.mark.parametrize("aggregate", [np.mean, lambda m: m.mean(0), lambda m: m.mean(axis=0)])
def test_a_mean_is_not_associative(aggregate):
    failed = refuted(Convolution(aggregate=aggregate))
    assert (
        "aggregate(m_1, m_2, m_3) = aggregate(aggregate(m_1, m_2), m_3) needs" in failed[conditions.AGGREGATE]
    )
    report = verify(Convolution(aggregate=aggregate), in_channels=1)
    one = next(one for one in report.conditions if one.number == 2)
    m_1, m_2, m_3, left, right = map(
        float, re.findall(r"(?:= |needs |== )(-?[\d.]+(?:e-?\d+)?)(?=[,: ])", one.counterexample)
    )
    assert left == pytest.approx((m_1 + m_2 + m_3) / 3)
    assert right == pytest.approx(((m_1 + m_2) / 2 + m_3) / 2)
    assert statuses(report)[conditions.ALGORITHM] == "unknown"


def softmax_sum(messages):
    shares = np.exp(messages) / np.exp(messages).sum(axis=0)
    return (shares * messages).sum(axis=0)


def test_attention_normalised_inside_the_aggregate_is_refused():
    assert conditions.AGGREGATE in refuted(Convolution(transform=lambda h: h @ W, aggregate=softmax_sum))


def test_attention_without_its_context_is_refused():
    bare = Convolution(message_local=attention, transform=lambda h: h @ W, reference=attend)
    failed = refuted(bare)
    assert list(failed) == ["the operators equal the reference"]
    counterexample = failed["the operators equal the reference"]
    assert re.match(r"edges \d -> \d; h_0 = .*: node \d is .*, its original formulation", counterexample)
    assert counterexample.count("->") == 1, "one edge shows it"


@pytest.mark.parametrize(
    ("operators", "condition"),
    [
        ({"combine": lambda c, a: a + c}, conditions.DISTRIBUTES),
        ({"combine": lambda c, a: np.maximum(a, c)}, conditions.DISTRIBUTES),
        ({"combine": lambda c, a: a * a / c}, conditions.DISTRIBUTES),
        ({"combine": lambda c, a: a * (c - 2) ** 2}, conditions.MONOTONE),
        ({"combine_inverse": lambda c, a: a / c}, conditions.INVERSE),
        ({"combine_inverse": lambda c, a: a * np.minimum(c, 3)}, conditions.INVERSE),
        ({"combine_inverse": lambda c, a: a * (c + 0.001)}, conditions.INVERSE),
    ],
)
@pytest.mark.parametrize("context", ["count", "sum"])
def test_wrong_operators_are_refused(operators, condition, context):
    local = (lambda source: np.exp(source[:, :1])) if context == "sum" else None
    given = {"neighbor_context": context, "combine": divide, "message_local": local, **operators}
    failed = refuted(Convolution(**given))
    assert re.match(r"z = .*needs .*, which is false", failed[condition])


@pytest.mark.parametrize("context", [np.maximum, np.max, lambda m: m.max(axis=0)])
def test_a_message_cannot_leave_a_maximum(context):
    local = Convolution(message_local=lambda source: np.exp(source), neighbor_context=context, combine=divide)
    failed = refuted(local)
    assert list(failed) == [conditions.CONTEXT]
    assert "have the same context" in failed[conditions.CONTEXT]
    assert "a message cannot leave" in failed[conditions.CONTEXT]


def test_a_context_that_is_a_mean_is_no_context():
    local = Convolution(message_local=lambda source: source, neighbor_context=np.mean, combine=divide)
    assert "context(m_1, m_2, m_3) = context(context(m_1, m_2), m_3)" in refuted(local)[conditions.CONTEXT]


@pytest.mark.parametrize("operator", [np.multiply, lambda m: m.prod(axis=0)])
def test_an_associative_aggregate_that_the_engine_does_not_keep_is_refused(operator):
    text = refuted(Convolution(aggregate=operator))[conditions.AGGREGATE]
    assert "none of sum, min and max" in text
    assert text.endswith("it makes 8")


@pytest.mark.parametrize(
    ("aggregate", "status"),
    [
        (np.add, "proved"),
        (np.maximum, "proved"),
        (lambda m: m.sum(axis=0), "proved"),
        (lambda m: m.sum(axis=0, dtype=np.float32), "tested"),
        (lambda m: m.max(axis=0), "tested"),
        (lambda m: -np.max(-m, axis=0), "tested"),
    ],
)
def test_functions_are_recognised(aggregate, status):
    report = verify(Convolution(aggregate=aggregate), in_channels=WIDTH)
    assert report.ok
    assert statuses(report)[conditions.AGGREGATE] == status


def test_an_aggregate_that_is_a_sum_of_few_only_is_refused():
    def almost(messages):
        return messages.sum(axis=0) if np.abs(messages).max() < 4 else messages.max(axis=0)

    assert refuted(Convolution(aggregate=almost))


ROW_MIXERS = {
    "message_local": lambda source: source - source.mean(axis=0),
    "transform": lambda h: h / np.abs(h).max(),
    "update": lambda h, a: a[np.argsort(h[:, 0])],
}


@pytest.mark.parametrize("what", ROW_MIXERS)
def test_functions_that_mix_rows_are_refused(what):
    text = refuted(Convolution(**{what: ROW_MIXERS[what]}))[f"{what} is row-wise"]
    assert "among 24 rows, but" in text


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        (lambda h: h + np.random.default_rng().standard_normal(), "other numbers when it is called again"),
        (lambda h: np.log(h), "gives .*-inf"),
        (lambda h: np.multiply(h, 2, out=h), "read-only"),
        (lambda h: h[:2] if len(h) < 24 else h[:, :2], r"must return \[24, 3\], got \[24, 2\]"),
    ],
)
def test_functions_that_cannot_be_relied_on_are_refused(transform, message):
    assert re.search(message, refuted(Convolution(transform=transform))["transform is row-wise"])


def test_called_functions_of_a_model_are_tested():
    def build(function):
        step = Step("call", ("x",), "y", attrs={"function": "f", "width": 2})
        return Model({"x": Input("node", 2)}, (step,), {}, "y", ("x", "y"), functions={"f": function})

    report = verify(build(np.tanh))
    assert [(one.step, one.status) for one in report.conditions] == [("y", "tested")]
    assert not verify(build(lambda x: x - x.mean())).ok
    assert not verify(build(lambda x: x[:, :1])).ok


def test_combine_that_mixes_channels_is_tested():
    project = np.array([[1, -2, 0, 1], [0, 1, -1, 3], [-2, 0, 1, 0]], np.float32)
    mixed = Convolution(neighbor_context="count", combine=lambda c, a: (a / c) @ project)
    report = verify(mixed, in_channels=WIDTH)
    assert report.ok
    found = statuses(report)
    assert found[conditions.DISTRIBUTES] == found[conditions.MONOTONE] == "tested"
    share = Convolution(
        neighbor_context="count", combine=lambda c, a: a / (1 + a.sum(axis=1, keepdims=True)) / c
    )
    assert conditions.DISTRIBUTES in refuted(share)


def test_a_reference_that_fails_or_differs_in_shape_is_shown():
    def fails(h, edge_index, weight, edge_attr):
        raise ValueError("no such layer")

    wide = Convolution(reference=lambda h, edge_index, weight, edge_attr: np.zeros((len(h), 9)))
    text = refuted(wide)["the operators equal the reference"]
    assert "the reference returns [1, 9], the operators [1, 3]" in text
    text = refuted(Convolution(reference=fails))["the operators equal the reference"]
    assert "ValueError: no such layer" in text


def test_weights_and_edge_features_reach_the_reference():
    def original(h, edge_index, weight, edge_attr):
        out = np.zeros_like(h)
        np.add.at(out, edge_index[1], h[edge_index[0]] * (weight * edge_attr[:, 1])[:, None])
        return out

    right = Convolution(
        message_local=lambda weight, edge_attr: weight * edge_attr[:, 1:2], reference=original
    )
    assert verify(right, in_channels=2, edge_dim=2).ok
    for wrong in (lambda edge_attr: edge_attr[:, 1:2], lambda weight, edge_attr: weight * edge_attr[:, :1]):
        assert not verify(Convolution(message_local=wrong, reference=original), in_channels=2, edge_dim=2).ok


def test_the_report_can_be_read():
    report = verify(make_sage())
    text = str(report)
    assert text.splitlines()[0] == "a1"
    assert re.search(r"^  1 neighbor_context is incremental +proved$", text, re.MULTILINE)
    assert re.search(r"^ok: 12 conditions, \d+\.\d\d s$", text, re.MULTILINE)
    assert report.conditions[0].seconds > 0
    with pytest.raises(AttributeError):
        report.conditions[0].status = "proved"
    wrong = verify(Convolution(aggregate=np.mean), in_channels=1)
    assert re.search(r"^  2 aggregate is associative +refuted: m_1 = ", str(wrong), re.MULTILINE)
    assert "not ok: " in str(wrong)


def test_a_convolution_needs_its_channels():
    with pytest.raises(ModelError, match="mean: give in_channels"):
        verify(MEAN)


@pytest.mark.parametrize("what", [3, None, "model", Model, np.zeros(3)], ids=lambda one: type(one).__name__)
def test_only_models_and_convolutions_are_verified(what):
    with pytest.raises(ModelError, match=r"takes a livegnn.model.Model or Convolution, got .*: import a mod"):
        verify(what)


def test_reports_are_reproducible():
    def outcomes():
        report = verify(Convolution(aggregate=np.mean), in_channels=WIDTH)
        return [(one.condition, one.status, one.counterexample) for one in report.conditions]

    assert outcomes() == outcomes()


def test_without_a_solver_everything_is_tested():
    code = """
import sys
sys.modules["z3"] = None
import numpy as np
from livegnn.model import Convolution, verify
report = verify(Convolution(neighbor_context="count", combine=lambda c, a: a / c), in_channels=2)
wrong = verify(Convolution(aggregate=np.mean), in_channels=2)
print(report.ok, {one.status for one in report.conditions} - {"not needed"}, wrong.ok)
print(str(report).splitlines()[-1])
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, second = result.stdout.splitlines()
    assert first == "True {'tested'} False"
    assert "pip install 'livegnn[verify]'" in second


def test_importing_models_imports_neither_solver_nor_conditions():
    code = """
import sys, livegnn.model
print([name for name in ("z3", "livegnn.verification", "livegnn.importers") if name in sys.modules])
lacking = [name for name in livegnn.model.__all__ if not hasattr(livegnn.model, name)]
print(livegnn.model.verify.__module__, len(lacking))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines() == ["[]", "livegnn.verification.verification 0"]


@pytest.mark.parametrize(
    ("relations", "status"),
    [
        (lambda a, b: [Relation(a * b, b * a)], "proved"),
        (lambda a, b: [Relation(np.sqrt(a) * np.sqrt(a), a)], "proved"),
        (lambda a, b: [Relation(a**-0.5, 1 / np.sqrt(a))], "proved"),
        (lambda a, b: [Relation(np.abs(b), b * 1.0, given=(b,))], "proved"),
        (lambda a, b: [Relation(-np.exp(b), b * 0, "<")], "proved"),
        (lambda a, b: [Relation(claims.smaller(a, b), claims.larger(a, b), "<=")], "proved"),
        (lambda a, b: [Relation(np.tanh(b) * a, a * np.tanh(b))], "tested"),
        (lambda a, b: [Relation(np.where(b > 0, b, -b), np.abs(b))], "tested"),
        (lambda a, b: [Relation(a, a + 0 * b), Relation(a * b, a + b)], "refuted"),
        (lambda a, b: [Relation(a, a + 1, "=="), Relation(a, b / 0)], "refuted"),
        # A root of what is below 0 is no number: that it then equals anything proves nothing.
        (lambda a, b: [Relation(np.sqrt(b - 100), np.sqrt(b - 100))], "refuted"),
        # True of every number that is likely to be tried: only the solver finds the one that is not.
        (lambda a, b: [Relation((a - 1234.5) ** 2 * 0 + (a - 1234.5), a * 1.0 - 1234.5)], "proved"),
    ],
)
def test_claims_are_decided(relations, status):
    assert decide(Claim(("a", "b"), relations, ("a",))).status == status


def test_the_solver_finds_what_trials_do_not():
    def relations(a):
        bump = claims.larger(1 - np.abs(a - 1234), a * 0)
        return [Relation(bump, a * 0)]

    tried = decide(Claim(("a",), relations, symbolic=False))
    found = decide(Claim(("a",), relations))
    assert (tried.status, found.status) == ("tested", "refuted")
    assert re.match(r"a = 123[345]", found.counterexample)
