"""How many hops of neighbours a model reads, beside how far a change of features really reaches; and queries
that do not fit a model."""

import numpy as np
import pytest
from model_examples import EDGES, make_sage, make_snapshot, propagate

from livegnn.errors import ModelError
from livegnn.model import EdgeInput, Input, Model, Propagate, Step
from livegnn.oracle import reference
from livegnn.query import Query

SUM, BACK = Propagate(EDGES), Propagate(EDGES, reverse=True)


def model_of(*steps: Step, inputs: dict[str, EdgeInput] | None = None) -> Model:
    return Model({"x": Input("node", 3)}, steps, {}, steps[-1].output, ("x", steps[-1].output), inputs or {})


def make_attention() -> Model:
    """A softmax over in-edges: its logits read both ends, its loop is a message of its own."""
    operators = Propagate(EDGES, ("coefficient",), "sum", "divide", skip_loops=True, own_message=True)
    return model_of(
        Step("source", ("x",), "u", attrs={"edge_type": EDGES}),
        Step("target", ("x",), "v", attrs={"edge_type": EDGES}),
        Step("add", ("u", "v"), "both"),
        Step("sum_channels", ("both",), "logits", attrs={"heads": 1}),
        Step("exp", ("logits",), "c"),
        Step("sum_channels", ("x",), "own", attrs={"heads": 1}),
        Step("exp", ("own",), "own_c"),
        Step("propagate", ("x", "c", "x", "own_c"), "y", attrs=operators.to_attrs()),
    )


def make_normalised() -> Model:
    """A mean, taken off what each edge brings before these are summed: two propagations, one hop."""
    return model_of(
        propagate("x", "mean", Propagate(EDGES, (), "count", "divide")),
        Step("source", ("x",), "u", attrs={"edge_type": EDGES}),
        Step("target", ("mean",), "m", attrs={"edge_type": EDGES}),
        Step("subtract", ("u", "m"), "centred"),
        Step("multiply", ("centred", "centred"), "square"),
        propagate("square", "y", SUM),
    )


def make_far_logits() -> Model:
    """The sending end of an edge reads one hop further."""
    return model_of(
        propagate("x", "h", SUM),
        Step("source", ("h",), "u", attrs={"edge_type": EDGES}),
        Step("target", ("x",), "v", attrs={"edge_type": EDGES}),
        Step("add", ("u", "v"), "both"),
        propagate("both", "y", SUM),
    )


MODELS = {
    "sage": (make_sage(), 2),
    "attention": (make_attention(), 1),
    "normalised": (make_normalised(), 1),
    "far logits": (make_far_logits(), 2),
    "row-wise": (model_of(Step("relu", ("x",), "y")), 0),
    "loops": (model_of(propagate("x", "y", Propagate(EDGES, only_loops=True))), 0),
    "degree": (
        model_of(
            Step("degree", (), "d", attrs={"edge_type": EDGES, "kind": "count"}),
            Step("scale_heads", ("x", "d"), "scaled"),
            propagate("scaled", "y", SUM),
        ),
        1,
    ),
    "against": (model_of(propagate("x", "h", BACK), propagate("h", "y", BACK)), 2),
    "three": (model_of(propagate("x", "a", SUM), propagate("a", "b", SUM), propagate("b", "y", SUM)), 3),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_reads_as_many_hops_as_changes_reach(name: str) -> None:
    """On a path 0 -> 1 -> ... -> 8, with a loop at each node."""
    model, hops = MODELS[name]
    assert model.num_hops == hops
    random = np.random.default_rng(3)
    path = [(i, i + 1) for i in range(8)] + [(i, i) for i in range(9)]
    x = random.uniform(0.5, 1, (9, 3)).astype(np.float32)
    before = reference.compute(model, make_snapshot(x, path))[model.output]
    x[4] += 0.25
    after = reference.compute(model, make_snapshot(x, path))[model.output]
    changed = np.flatnonzero(np.abs(after - before).max(axis=1) > 1e-9)
    assert max(abs(changed - 4), default=0) == hops


def test_there_and_back_are_two_hops() -> None:
    assert model_of(propagate("x", "h", SUM), propagate("h", "y", BACK)).num_hops == 2


def test_a_model_keeps_its_query() -> None:
    model = make_sage()
    query = Query("node").hop(EDGES, 25, direction="in").hop(EDGES, 10, direction="in")
    with_query = model.with_query(query)
    assert model.query is None
    assert with_query.query == query
    assert with_query.digest == model.digest
    assert with_query.with_query(None).to_json() == model.to_json()


def test_a_query_that_does_not_fit_a_model_is_refused() -> None:
    model = make_sage()
    with pytest.raises(ModelError, match=r"reads 2 hops of neighbors, so its query must have 2, got 1"):
        model.with_query(Query("node").hop(EDGES, 25))
    with pytest.raises(ModelError, match=r"must have 2, got 0"):
        model.with_query(Query("node"))
    elsewhere = Query("shop").hop(("shop", "at", "shop"), 2).hop(("shop", "at", "shop"), 2)
    with pytest.raises(ModelError, match=r"predicts 'node' nodes, .* got 'shop'"):
        model.with_query(elsewhere)
    with pytest.raises(ModelError, match="must be a Query, got int"):
        model.with_query(3)  # type: ignore[arg-type]
    assert model.query is None
