"""Fitted transformers of scikit-learn beside the transforms that are read of them, in NumPy and in an engine,
on columns of every magnitude."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)

from gate import draws
from livegnn.model import Transforms
from raw_columns import as_raw, assert_near, computed_by_engine

SCALERS: dict[str, Callable[[], object]] = {
    "standard": StandardScaler,
    "only mean": lambda: StandardScaler(with_std=False),
    "only scale": lambda: StandardScaler(with_mean=False),
    "min max": MinMaxScaler,
    "clipped": lambda: MinMaxScaler((-2, 3), clip=True),
    "max abs": MaxAbsScaler,
    "robust": RobustScaler,
    "quantile": lambda: QuantileTransformer(n_quantiles=20),
    "standard, min max": lambda: make_pipeline(StandardScaler(), MinMaxScaler()),
    "log1p": lambda: FunctionTransformer(np.log1p),
    "log1p, standard": lambda: make_pipeline(FunctionTransformer(np.log1p), StandardScaler()),
    "quantile, standard": lambda: make_pipeline(QuantileTransformer(n_quantiles=9), StandardScaler()),
}
ENCODERS: dict[str, Callable[[], object]] = {
    "one-hot": lambda: OneHotEncoder(handle_unknown="ignore"),
    "dense, first dropped": lambda: OneHotEncoder(handle_unknown="ignore", drop="first", sparse_output=False),
    "ordinal": lambda: OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1),
    "bins": lambda: KBinsDiscretizer(3, strategy="uniform"),
    "ordinal bins": lambda: KBinsDiscretizer(4, encode="ordinal", strategy="uniform"),
}


def column(rng: np.random.Generator, kind: str, rows: int) -> np.ndarray:
    """Numbers of float32, of one magnitude between 1e-6 and 1e9; perhaps far from 0, perhaps all alike."""
    size = 10.0 ** rng.uniform(-6, 9)
    made = rng.standard_normal(rows) * size
    if kind == "far":
        made += size * 10 ** rng.uniform(0, 4)
    if kind == "constant":
        made[:] = made[0]
    if kind == "skewed":
        made = np.exp(rng.standard_normal(rows) * 3) * size
    if kind == "few":
        made = rng.integers(-2, 4, rows) * size
    return made.astype(np.float32).astype(np.float64)


KINDS = ["normal", "far", "constant", "skewed", "few"]


# Of the encoder that drops a category: it tells the unknown ones by a warning alone.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Found unknown categories"),
    pytest.mark.filterwarnings("ignore:Bins whose width are too small"),
]


def same_columns(fitted: object, transforms: Transforms, rows: np.ndarray) -> None:
    """rows: of float32, NaN where missing."""
    expected = fitted.transform(rows)
    expected = expected.toarray() if hasattr(expected, "toarray") else expected
    made = transforms(rows)
    assert_near(made, expected)
    assert_near(computed_by_engine(transforms, as_raw(rows)), made)


@settings(max_examples=draws(25, 400), deadline=None)
@given(
    st.sampled_from(sorted(SCALERS)),
    st.lists(st.sampled_from(KINDS), min_size=1, max_size=4),
    st.integers(0, 2**32),
    st.sampled_from(["", "mean", "median", "most_frequent", "constant"]),
    st.booleans(),
)
@example("standard", ["far", "far", "constant"], 3, "mean", True)
@example("log1p, standard", ["skewed"], 4, "median", False)
@example("quantile", ["few", "constant"], 5, "", False)
def test_numbers_are_scaled_as_by_scikit_learn(scaler, kinds, seed, strategy, marked) -> None:
    rng = np.random.default_rng(seed)
    rows, more = (np.stack([column(rng, kind, 60) for kind in kinds], axis=1) for _ in range(2))
    if "log" in scaler:
        rows, more = np.abs(rows), np.abs(more)
    fitted = SCALERS[scaler]()
    if strategy:
        rows[rng.random(rows.shape) < 0.2] = np.nan
        more[rng.random(rows.shape) < 0.2] = np.nan
        rows[0] = np.abs(column(rng, "normal", len(kinds)))  # no column is empty
        imputer = SimpleImputer(strategy=strategy, fill_value=1.0 if strategy == "constant" else None)
        if marked:
            imputer.set_params(add_indicator=True)
        fitted = make_pipeline(imputer, fitted)
    fitted.fit(rows)
    transforms = Transforms.from_sklearn(fitted)
    more[:30] = np.where(rng.random((30, len(kinds))) < 0.5, rows[:30], more[:30])
    same_columns(fitted, transforms, more)


@settings(max_examples=draws(15, 300), deadline=None)
@given(st.sampled_from(sorted(ENCODERS)), st.integers(1, 3), st.integers(0, 2**32))
def test_categories_are_encoded_as_by_scikit_learn(encoder, width, seed) -> None:
    """Also those that the fit has not seen."""
    rng = np.random.default_rng(seed)
    rows = np.stack([rng.choice(column(rng, "normal", 5), 40) for _ in range(width)], axis=1)
    fitted = ENCODERS[encoder]().fit(rows)
    transforms = Transforms.from_sklearn(fitted)
    unseen = np.stack([column(rng, "normal", 40) for _ in range(width)], axis=1)
    same_columns(fitted, transforms, np.where(rng.random(rows.shape) < 0.7, rows, unseen))


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize(
    "make",
    [
        lambda: Pipeline([("kept", "passthrough"), ("scaled", StandardScaler())]),
        lambda: FeatureUnion([("left out", "drop"), ("scaled", StandardScaler())]),
        lambda: FeatureUnion(
            [("kept", "passthrough"), ("scaled", make_pipeline("passthrough", MinMaxScaler()))]
        ),
    ],
)
def test_the_first_part_may_be_no_transformer(make, named) -> None:
    rows = np.random.default_rng(0).standard_normal((20, 2)).astype(np.float32).astype(np.float64)
    frame = pd.DataFrame(rows, columns=["a", "b"])
    fitted = make().fit(frame if named else rows)
    transforms = Transforms.from_sklearn(fitted)
    assert transforms.columns == (("a", "b") if named else ("x0", "x1"))
    assert_near(transforms(rows), fitted.transform(frame if named else rows))


@settings(max_examples=draws(25, 500), deadline=None)
@given(
    st.sampled_from(sorted({**ENCODERS, "quantile bins": None})),
    st.lists(st.sampled_from(["normal", "far", "skewed", "few"]), min_size=1, max_size=3),
    st.integers(0, 2**32),
    st.sampled_from(["mean", "median", "most_frequent"]),
    st.sampled_from([math.nan, -1.0]),
    st.booleans(),
)
@example("quantile bins", ["normal", "few"], 3, "mean", math.nan, True)
@example("quantile bins", ["normal"], 4, "mean", -1.0, False)
@example("ordinal", ["few"], 5, "mean", math.nan, True)
def test_imputed_numbers_are_encoded_as_by_scikit_learn(
    encoder, kinds, seed, strategy, missing, marked
) -> None:
    """The mean of a column is often the very edge of a bin, and no number of float32."""
    rng = np.random.default_rng(seed)
    rows = np.stack([column(rng, kind, 60) for kind in kinds], axis=1)
    lacks = rng.random(rows.shape) < 0.3
    lacks[:2] = False  # no column is empty
    imputer = SimpleImputer(strategy=strategy, missing_values=missing, add_indicator=marked)
    filled = imputer.fit(np.where(lacks, missing, rows))
    quantiles = KBinsDiscretizer(
        3, encode="ordinal", strategy="quantile", quantile_method="averaged_inverted_cdf"
    )
    made = quantiles if encoder == "quantile bins" else ENCODERS[encoder]()
    if encoder in ("one-hot", "dense, first dropped", "ordinal"):  # categories are numbers of float32
        made.fit(np.float32(filled.transform(np.where(lacks, missing, rows))).astype(np.float64))
        fitted = Pipeline([("filled", filled), ("made", made)])
    else:
        fitted = make_pipeline(imputer, made).fit(np.where(lacks, missing, rows))
    same_columns(fitted, Transforms.from_sklearn(fitted), np.where(lacks, missing, rows))


def people(rng: np.random.Generator, rows: int) -> pd.DataFrame:
    frame = pd.DataFrame(
        {
            "age": rng.normal(40, 12, rows),
            "income": np.exp(rng.normal(10, 2, rows)),
            "country": rng.choice(np.array(["DE", "FR", "日本", ""], dtype=object), rows),
            "since": rng.normal(1.7e9, 1e7, rows),
            "unused": rng.normal(size=rows),
        }
    )
    frame.loc[rng.random(rows) < 0.2, "age"] = np.nan
    frame.loc[rng.random(rows) < 0.2, "country"] = np.nan
    numbers = ["age", "income", "since", "unused"]
    frame[numbers] = frame[numbers].astype(np.float32).astype(np.float64)
    return frame


def all_kinds() -> ColumnTransformer:
    filled = SimpleImputer(strategy="constant", fill_value="none")
    return ColumnTransformer(
        [
            (
                "age",
                Pipeline([("fill", SimpleImputer(add_indicator=True)), ("scale", StandardScaler())]),
                ["age"],
            ),
            ("income", make_pipeline(FunctionTransformer(np.log1p), RobustScaler()), ["income"]),
            ("country", OneHotEncoder(handle_unknown="ignore"), ["country"]),
            (
                "filled",
                make_pipeline(filled, OneHotEncoder(handle_unknown="ignore", drop="first")),
                ["country"],
            ),
            ("since", MinMaxScaler(), ["since", "income"]),
            ("itself", "passthrough", ["income"]),
            ("none", "drop", ["unused"]),
        ],
        remainder=StandardScaler(),
    )


@settings(max_examples=draws(5, 60), deadline=None)
@given(st.integers(0, 2**32), st.permutations(["age", "income", "country", "since", "unused", "other"]))
def test_a_column_transformer_is_read_by_the_names_of_columns(seed, columns) -> None:
    """In any order of the graph's columns, of which another one is not read; texts are codes there."""
    from livegnn.texts import text_code

    rng = np.random.default_rng(seed)
    frame = people(rng, 80)
    fitted = all_kinds().fit(frame)
    transforms = Transforms.from_sklearn(fitted, columns=columns)
    assert set(transforms.replaced) == {"age", "country", "unused", "other"}
    more = people(rng, 50)
    more.loc[::7, "country"] = "never seen"
    raw = more.assign(other=rng.normal(size=50))[list(columns)]
    codes = [text_code(text) if isinstance(text, str) else math.nan for text in more["country"]]
    rows = raw.assign(country=codes).to_numpy(np.float64)
    expected = fitted.transform(more)
    expected = expected.toarray() if hasattr(expected, "toarray") else expected
    made = transforms(rows)
    assert_near(made, np.asarray(expected, np.float64))
    assert_near(computed_by_engine(transforms, as_raw(rows)), made)


def test_a_subclass_that_computes_something_else_is_refused() -> None:
    from livegnn import ModelError

    class Twice(StandardScaler):
        def transform(self, X, copy=None):
            return 2 * super().transform(X, copy)

    with pytest.raises(ModelError, match=r"of the kind .*Twice, only ColumnTransformer"):
        Transforms.from_sklearn(Twice().fit(np.arange(4.0)[:, None]))
