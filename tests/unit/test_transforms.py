"""Transforms of raw columns: each kind, the steps that it becomes, and what is refused."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from memory_snapshot import MemorySnapshot, MemorySource

from livegnn import MISSING, Engine, EngineOptions, Events, Graph, InputError, ModelError
from livegnn.graph import EdgeSchema, Schema
from livegnn.model import EdgeInput, Input, Model, Propagate, Step
from livegnn.model.transforms import (
    Branches,
    Bucket,
    Clip,
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
from livegnn.remote.predictor import SnapshotPredictor
from raw_columns import as_raw, assert_near, computed_by_engine, identity, sage

NAN = math.nan


def two(*kinds) -> Transforms:
    return Transforms(("a", "b"), kinds)


CASES = [
    (two(Standardize((1, 1e6), (2, 0.5))), [[3, 1e6], [1, 1e6 + 2]], [[1, 0], [0, 4]]),
    (two(Log("log1p")), [[0, 1], [-0.5, 1e9]], [[0, math.log(2)], [math.log(0.5), math.log1p(1e9)]]),
    (two(Log("log"), Standardize((1, 0), (1, 2))), [[math.e, 1]], [[math.log(np.float32(math.e)) - 1, 0]]),
    (two(Clip(0, 1)), [[-2, 0.5], [7, 1]], [[0, 0.5], [1, 1]]),
    (two(Quantile(((0, 1, 3), (5, 5, 6)))), [[0.5, 5], [2, 5.5], [9, -1]], [[0.25, 0], [0.75, 0.75], [1, 0]]),
    (two(Fill((7, 8))), [[NAN, 1], [2, NAN]], [[7, 1], [2, 8]]),
    (two(Fill((7, 8), -1)), [[-1, 1], [2, -1]], [[7, 1], [2, 8]]),
    (two(Fill((3, 8)), Standardize((1, 0), (2, 4))), [[NAN, 1], [2, NAN]], [[1, 0.25], [0.5, 2]]),
    (two(Fill((0, 8)), Log("log")), [[1, NAN], [2, 1]], [[0, math.log(8)], [math.log(2), 0]]),
    (two(Fill((0, 8)), Log("log1p"), Standardize((0, 0), (2, 1))), [[NAN, NAN]], [[0, math.log1p(8)]]),
    (two(Indicate((1,))), [[0, NAN], [NAN, 2]], [[1], [0]]),
    (two(Bucket(((0, 1, 2), (5, 6, 7)))), [[-1, 6], [1, 9], [2.5, 4.9]], [[0, 2], [2, 3], [3, 0]]),
    (two(Bucket(((0, 0.1), ()))), [[0.1, 6], [0.05, 9]], [[2, 0], [1, 0]]),
    (
        two(OneHot(((1, 2), (NAN, 5)))),
        [[2, NAN], [3, 5], [NAN, 6]],
        [[0, 1, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0]],
    ),
    (two(Ordinal(((3, 1), (5, 6, 9)), -7)), [[1, 9], [3, 7], [NAN, 5]], [[1, 2], [0, -7], [-7, 0]]),
    (two(Cyclic(4.0)), [[1, 6], [NAN, 3]], [[1, 0, 0, -1], [0, 0, -1, 0]]),
    (
        two(
            Branches(
                (((1,), (OneHot(((4,),)),)), ((1, 0), ()), ((0,), (Fill((2,)), Standardize((1,), (1,)))))
            )
        ),
        [[3, 4], [5, 6]],
        [[1, 4, 3, 2], [0, 6, 5, 4]],
    ),
    (
        two(Branches((((1,), (Fill((1e6,)),)), ((0,), ()))), Standardize((1e6 + 0.01, 0), (0.01, 1))),
        [[3, NAN]],
        [[-1, 3]],
    ),
]


@pytest.mark.parametrize(("transforms", "rows", "expected"), CASES, ids=[str(i) for i in range(len(CASES))])
def test_what_each_kind_computes(transforms, rows, expected) -> None:
    """By hand, in NumPy and in an engine; a model with several layers gives the same on raw columns."""
    rows = np.array(rows, np.float64)
    made = transforms(rows)
    assert made.dtype == np.float32
    np.testing.assert_allclose(made, expected, rtol=2e-7, atol=1e-7)
    assert transforms.width == made.shape[1]
    raw = as_raw(rows)
    np.testing.assert_array_equal(transforms(raw), made)
    assert_near(computed_by_engine(transforms, raw), made)


def test_a_model_on_raw_columns_predicts_what_it_predicts_on_transformed_ones() -> None:
    """Through events that change features and edges; the graph keeps the raw numbers."""
    rng = np.random.default_rng(0)
    transforms = Transforms(
        ("amount", "country", "hour"),
        (
            Branches(
                (
                    ((0,), (Fill((20.0,)), Log(), Standardize((3.0,), (1.5,)))),
                    ((1,), (OneHot(((1, 2, 3),)),)),
                    ((2,), (Cyclic(24.0),)),
                )
            ),
        ),
    )

    def rows(count: int) -> np.ndarray:
        amount = np.where(rng.random(count) < 0.2, NAN, rng.exponential(50, count))
        return np.stack([amount, rng.integers(0, 5, count), rng.integers(0, 24, count)], axis=1)

    model = sage(transforms.width)
    raw_model = model.with_transforms(transforms)
    first, edges = rows(30), rng.integers(0, 30, (2, 60))
    raw = Graph.from_edges(*edges, x=as_raw(first), parallel="last")
    made = Graph.from_edges(*edges, x=transforms(first), parallel="last")
    engines = Engine(raw, raw_model), Engine(made, model)
    ids = np.arange(30)
    for _ in range(4):
        changed, new, ends = rng.choice(ids, 5, replace=False), rows(5), rng.integers(0, 30, (2, 4))
        engines[0].apply(Events().set_features(changed, as_raw(new)).add_edges(*ends))
        engines[1].apply(Events().set_features(changed, transforms(new)).add_edges(*ends))
        np.testing.assert_allclose(engines[0].predict(ids), engines[1].predict(ids), rtol=1e-5, atol=1e-6)
        assert engines[0].verify().ok
    np.testing.assert_array_equal(raw.features(changed), as_raw(new))
    assert raw_model.layers[0] == "x"
    assert raw_model.width("x") == 3


CLOCK = Transforms(
    ("amount", "hour"),
    (Branches((((0,), (Fill((20.0,)), Log(), Standardize((3.0,), (1.5,)))), ((1,), (Cyclic(24.0),)))),),
)


def test_every_way_to_predict_transforms_the_same_raw_columns() -> None:
    """On demand, with fewer kept rows, in what-if questions and from a snapshot."""
    rng = np.random.default_rng(2)

    def rows(count: int) -> np.ndarray:
        amount = np.where(rng.random(count) < 0.3, MISSING, rng.exponential(50, count))
        return np.stack([amount, rng.uniform(0, 24, count)], axis=1).astype(np.float32)

    first, edges, ids = rows(20), rng.integers(0, 20, (2, 40)), np.arange(20)
    model = sage(CLOCK.width)
    changes = Events().set_features([3, 4], rows(2)).add_edges([1], [4])
    graphs = [Graph.from_edges(*edges, x=first, parallel="last") for _ in range(3)]
    raw = model.with_transforms(CLOCK)
    engines = [
        Engine(graphs[0], raw),
        Engine(graphs[1], raw, EngineOptions(mode="lazy")),
        Engine(graphs[2], raw, EngineOptions(keep="aggregates")),
    ]
    supposed = engines[0].what_if(changes).predict(ids)
    for engine in engines:
        engine.apply(changes)
    plain = Graph.from_edges(*edges, x=CLOCK(first), parallel="last")
    plain.apply(Events().set_features([3, 4], CLOCK(graphs[0].features([3, 4]))).add_edges([1], [4]))
    expected = Engine(plain, model).predict(ids)
    snapshot = SnapshotPredictor(MemorySource(MemorySnapshot(graphs[0])), raw)
    for found in (supposed, snapshot.predict(ids), *(engine.predict(ids) for engine in engines)):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_a_model_with_transforms_has_a_file_and_a_digest(tmp_path) -> None:
    model = identity(2).with_transforms(two(Standardize((1, 2), (3, 4)), Clip(-1, 1)))
    model.save(tmp_path / "model")
    loaded = Model.load(tmp_path / "model")
    assert loaded.digest == model.digest
    assert loaded.steps == model.steps
    other = identity(2).with_transforms(two(Standardize((1, 2 + 1e-12), (3, 4)), Clip(-1, 1)))
    assert other.digest != model.digest


def test_transforms_stand_in_front_of_transforms() -> None:
    """The second are read by the first, under names of their own."""
    model = identity(2).with_transforms(two(Standardize((1, 1), (2, 2))))
    both = model.with_transforms(two(Fill((5, 7))))
    graph = Graph(Schema({"node": 2}, {}))
    graph.apply(Events().add_nodes([0], np.array([[MISSING, 3]], np.float32)))
    np.testing.assert_array_equal(Engine(graph, both).predict([0]), [[2, 1]])


def test_features_of_edges_are_transformed() -> None:
    edge_type = ("node", "to", "node")
    model = Model(
        {"x": Input("node", 1)},
        (
            Step("source", ("x",), "u", attrs={"edge_type": edge_type}),
            Step("multiply", ("u", "e"), "m"),
            Step("propagate", ("m",), "y", attrs=Propagate(edge_type).to_attrs()),
        ),
        {},
        "y",
        ("x", "y"),
        {"e": EdgeInput(edge_type, 1)},
    )
    on_edges = model.with_transforms({"e": Transforms(("amount",), (Fill((9,)), Standardize((1,), (2,))))})
    graph = Graph(Schema({"node": 1}, {edge_type: EdgeSchema(edge_dim=1)}))
    graph.apply(Events().add_nodes([0, 1, 2], np.array([[1], [10], [100]], np.float32)))
    engine = Engine(graph, on_edges)
    engine.apply(Events().add_edges([0, 1], [2, 2], edge_attr=np.array([[3], [MISSING]], np.float32)))
    np.testing.assert_array_equal(engine.predict([2]), [[1 + 40]])
    assert engine.verify().ok


def test_inputs_are_named_where_there_are_several() -> None:
    model = identity(2)
    with pytest.raises(ModelError, match=r"the model reads 2 columns .'x'., the transforms make 1"):
        model.with_transforms(two(Indicate((0,))))
    with pytest.raises(ModelError, match="from inputs of x, got 'y'"):
        model.with_transforms({"y": two(Clip(0, 1))})
    with pytest.raises(ModelError, match="got str for 'x'"):
        model.with_transforms({"x": "standardise"})
    with pytest.raises(ModelError, match="must change something"):
        model.with_transforms(two())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: two(Standardize((1,), (1,))), "Standardize has parameters for 1 columns, got 2"),
        (lambda: Standardize((1,), (0,)), "no scale 0"),
        (
            lambda: Standardize((1,), (math.inf,)),
            "scale must be finite numbers that float32 can hold, got inf",
        ),
        (lambda: Standardize((1e39,), (1,)), "got 1e[+]39"),
        (lambda: Quantile(((0,), (0,))), "at least two"),
        (lambda: Quantile(((0, 1), (1, 0))), "ascending"),
        (lambda: Quantile(((0, 1), (1, 2, 3))), "as many quantiles"),
        (lambda: OneHot(((0.1,), (1,))), "categories must be numbers of float32, .* got 0.1"),
        (lambda: OneHot(((1, 1), (1,))), "categories must be different numbers"),
        (lambda: Ordinal(((), (1,))), "every channel must have categories"),
        (lambda: Ordinal(((1,),), NAN), "unknown be finite"),
        (lambda: Cyclic(0), "period must be a finite number above 0, got 0"),
        (lambda: Log("sqrt"), "function must be 'log' or 'log1p', got 'sqrt'"),
        (lambda: two(Indicate((2,))), "columns must be numbers from 0 to 1, got 2"),
        (lambda: two(Branches((((0, 3), ()),))), "columns must be numbers from 0 to 1, got 3"),
        (lambda: two(Branches(())), "must leave a column"),
        (lambda: two(Log(), Fill((0, 0))), "an imputer must be in front of a logarithm"),
        (lambda: two(Standardize((0, 0), (1, 1)), OneHot(((1,), (1,)))), "OneHot must read raw numbers"),
        (lambda: Transforms((), ()), "at least one"),
        (lambda: Transforms(("a", "a"), ()), "different names"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(make, message) -> None:
    with pytest.raises(ModelError, match=message):
        make()


@pytest.mark.parametrize("given", [None, 3, [two(Clip(-1, 1))]])
def test_only_transforms_are_put_in_front_of_a_model(given) -> None:
    with pytest.raises(
        ModelError, match="transforms must be Transforms, or a dict from inputs to Transforms, got"
    ):
        identity(2).with_transforms(given)


def test_rows_that_cannot_be_transformed_are_refused() -> None:
    transforms = two(Branches((((0,), (Fill((1,)),)), ((1,), ()))))
    assert transforms.replaced == ("a",)
    with pytest.raises(
        InputError, match=re.escape("numbers [rows, 2], a column for each of a, b, got float64 [1, 3]")
    ):
        transforms(np.zeros((1, 3)))
    with pytest.raises(InputError, match="row 1, column 'b': expected a number, got none"):
        transforms(np.array([[NAN, 1], [1, NAN]]))
    with pytest.raises(
        InputError, match=r"row 0, column 'a': expected a number that float32 can hold, got 1e[+]39"
    ):
        transforms(np.array([[1e39, 1]]))
    with pytest.raises(
        InputError, match=re.escape("row 1: column 1 of the result would be nan, from 0.0, -5.0 (a, b)")
    ):
        two(Log())(np.array([[1, 1], [0, -5]]))
    with pytest.raises(InputError, match="column 0 of the result would be -inf"):
        two(Log("log"))(np.array([[0, 1]]))
    assert transforms(np.zeros((0, 2))).shape == (0, 2)
