"""The columns in which no number may be missing, of a model and of the mappings that keep missing ones."""

from __future__ import annotations

import math

import numpy as np
import pytest

from livegnn import (
    MISSING,
    EdgeRows,
    EdgeSchema,
    Engine,
    Events,
    Graph,
    InputError,
    NodeRows,
    Schema,
    TableMapping,
)
from livegnn.deployment import Deployment
from livegnn.deployment.mapped_inputs import refuse_exchanged
from livegnn.deployment.missing_numbers import refuse_unreplaced
from livegnn.model import Model, Step
from livegnn.model.transforms import (
    Branches,
    Bucket,
    Cyclic,
    Fill,
    Indicate,
    Log,
    OneHot,
    Ordinal,
    Quantile,
    Standardize,
    Transforms,
)
from livegnn.network.raw_inputs import needs_every_number
from raw_columns import assert_near, identity, sage


@pytest.mark.parametrize(
    ("kinds", "needed"),
    [
        ((Standardize((0, 0), (1, 1)),), (0, 1)),
        ((Fill((1, 2)),), ()),
        ((Fill((1, 2), -1),), (0, 1)),
        ((Fill((1, 2)), Log(), Standardize((0, 0), (1, 1))), ()),
        ((Log(), Standardize((0, 0), (1, 1))), (0, 1)),
        ((OneHot(((1,), (2, math.nan))),), ()),
        ((Ordinal(((1,), (2,))),), ()),
        ((Cyclic(24.0),), ()),
        ((Quantile(((0, 1), (0, 1))),), (0, 1)),
        ((Bucket(((0, 1), (0,))),), (0, 1)),
        ((Bucket(((0, 1), (0,))), OneHot(((0, 1, 2), (0, 1)))), ()),
        ((Branches((((1,), (Fill((0,)),)), ((0,), ()))),), (0,)),
        ((Branches((((1, 0), (Fill((0, 0)),)), ((1,), ()), ((0,), (Indicate((0,)),)))),), (1,)),
    ],
)
def test_a_model_needs_every_number_of_some_columns(kinds, needed) -> None:
    """Those that its transforms do not replace: the steps tell the same."""
    transforms = Transforms(("a", "b"), kinds)
    assert transforms.replaced == tuple(name for at, name in enumerate("ab") if at not in needed)
    for model in (identity(transforms.width), sage(transforms.width)):
        assert needs_every_number(model.with_transforms(transforms)) == {"x": needed}


def test_steps_that_hand_numbers_on_are_followed() -> None:
    model = Model(
        sage(2).inputs,
        (
            Step("slice", ("x",), "a", attrs={"start": 1, "stop": 2}),
            Step("fill_missing", ("a",), "b", {"values": "zero"}),
            Step("relu", ("b",), "y"),
        ),
        {"zero": np.zeros(1, np.float32)},
        "y",
        ("x", "y"),
    )
    assert needs_every_number(model) == {"x": ()}


def test_mappings_keep_missing_numbers_only_for_a_model_that_replaces_them() -> None:
    model = sage(2).with_transforms(Transforms(("a", "b"), (Branches((((0,), (Fill((0,)),)), ((1,), ()))),)))

    def tables(x, **nulls) -> dict[str, TableMapping]:
        users = TableMapping([NodeRows("id", x=x, nulls=nulls)])
        return {"users": users, "edges": TableMapping(edges=[EdgeRows("a", "b")])}

    refuse_unreplaced(model, tables(["age", "score"], age="keep", score=0))
    refuse_unreplaced(model, {"users": TableMapping([NodeRows("id", "other", x=["p"], nulls={"p": "keep"})])})
    with pytest.raises(
        InputError,
        match=r"\[tables.users\]: nulls of 'score' must not be 'keep', as the model reads column 1",
    ):
        refuse_unreplaced(model, tables(["age", "score"], age="keep", score="keep"))
    with pytest.raises(InputError, match="nulls of 'lists' must not be 'keep'"):
        refuse_unreplaced(model, tables("lists", lists="keep"))


def test_mappings_give_raw_columns_in_the_order_of_the_model() -> None:
    model = sage(2).with_transforms(Transforms(("age", "score"), (Log(),)))

    def tables(*x: str) -> dict[str, TableMapping]:
        return {"users": TableMapping([NodeRows("id", x=list(x))])}

    for right in (("age", "score"), ("a", "b"), ("score",)):
        refuse_exchanged(model, tables(*right))
    refuse_exchanged(sage(2), tables("score", "age"))
    with pytest.raises(
        InputError,
        match=r"\[tables.users\]: x must be 'age', 'score', in the order .*, got 'score', 'age'",
    ):
        refuse_exchanged(model, tables("score", "age"))


def test_a_deployment_refuses_a_model_that_needs_a_number_that_is_kept(tmp_path) -> None:
    """The engine is not made, so nothing is written."""
    sage(1).save(tmp_path / "m")
    content = {
        "model": {"path": "m"},
        "graph": {"path": "g"},
        "log": {"path": "l"},
        "tables": {"users": {"nodes": [{"id": "id", "x": ["age"], "nulls": {"age": "keep"}}]}},
    }
    with pytest.raises(InputError, match="nulls of 'age' must not be 'keep'"):
        Deployment.parse(content, tmp_path).factories()
    sage(1).with_transforms(Transforms(("age",), (Fill((40,)),))).save(tmp_path / "m")
    assert set(Deployment.parse(content, tmp_path).factories()) == {"engine"}


def test_nodes_that_edges_add_have_the_learnt_row() -> None:
    """As a parameter of a module that stands for nodes without features."""
    learnt, log_of = (
        (0.3, -1.25),
        Branches((((0,), (Fill((math.expm1(0.3),)), Log())), ((1,), (Fill((-1.25,)),)))),
    )
    model = sage(2).with_transforms(Transforms(("a", "b"), (log_of,)))
    edges = {("node", "to", "node"): EdgeSchema()}
    graph = Graph(Schema({"node": 2}, edges, auto_add={"node": (MISSING, MISSING)}))
    engine = Engine(graph, model, threads=1)
    engine.apply(Events().add_nodes([0, 1], [[math.e - 1, 2], [0, 1e9]]))
    engine.apply(Events().add_edges([0, 7, 7, 8], [7, 8, 1, 0]))
    known = Graph(Schema({"node": 2}, edges))
    rows = [[1, 2], [0, 1e9], learnt, learnt]
    known.apply(Events().add_nodes([0, 1, 7, 8], rows).add_edges([0, 7, 7, 8], [7, 8, 1, 0]))
    expected = Engine(known, sage(2), threads=1).predict([0, 1, 7, 8])
    assert_near(engine.predict([0, 1, 7, 8]), expected, relative=1e-5)
    engine.apply(Events().set_features([8], [[math.e - 1, 5]]))
    known.apply(Events().set_features([8], [[1, 5]]))
    expected = Engine(known, sage(2), threads=1).predict([0, 1, 7, 8])
    assert_near(engine.predict([0, 1, 7, 8]), expected, relative=1e-5)
