"""Transformers of scikit-learn that cannot be read: each is refused by its name, with advice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    PowerTransformer,
    QuantileTransformer,
    StandardScaler,
)

from livegnn import InputError, ModelError
from livegnn.model import Transforms
from livegnn.texts import text_code

ROWS = np.random.default_rng(0).standard_normal((50, 2))
TEXTS = pd.DataFrame({"a": ["x", "y"] * 4})
SAME = ("c2895", "c3346")  # texts with one code


@pytest.mark.parametrize(
    ("transformer", "message"),
    [
        (PowerTransformer(), r"of the kind sklearn\..*\.PowerTransformer, only ColumnTransformer, Pipeline"),
        (KNNImputer(), r"\.KNNImputer, only"),
        (make_pipeline(StandardScaler(), PolynomialFeatures()), r"\.PolynomialFeatures, only"),
        (ColumnTransformer([("a", PowerTransformer(), [0])]), r"\.PowerTransformer, only"),
        (FeatureUnion([("a", PowerTransformer())]), r"\.PowerTransformer, only"),
        (FunctionTransformer(np.sqrt), "a FunctionTransformer of sqrt, only of numpy.log1p"),
        (FunctionTransformer(np.log, kw_args={"where": True}), "without arguments"),
        (QuantileTransformer(n_quantiles=9, output_distribution="normal"), "output_distribution='normal'"),
        (OneHotEncoder(), "OneHotEncoder with handle_unknown='error': an event cannot fail"),
        (OneHotEncoder(handle_unknown="ignore", min_frequency=2), "with min_frequency or max_categories"),
        (OrdinalEncoder(), "OrdinalEncoder with handle_unknown='error'"),
        (
            OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=np.nan),
            "unknown_value=nan: an event cannot fail",
        ),
        (
            ColumnTransformer([("a", StandardScaler(), [0])], transformer_weights={"a": 2}),
            "ColumnTransformer with transformer_weights: leave them out",
        ),
        (make_pipeline(StandardScaler(), KBinsDiscretizer(3)), "Bucket must read raw numbers"),
        (
            make_pipeline(FunctionTransformer(np.log1p), SimpleImputer()),
            "an imputer must be in front of a logarithm",
        ),
        (OneHotEncoder(handle_unknown="ignore"), "categories must be numbers of float32"),
        (ColumnTransformer([("a", "drop", [0, 1])]), "must leave a column"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_what_cannot_be_read_is_refused_by_its_name(transformer, message) -> None:
    rows = np.abs(ROWS) if "log" in message or "Function" in message else ROWS
    with pytest.raises(ModelError, match=message):
        Transforms.from_sklearn(transformer.fit(rows))


def test_what_was_not_fitted_is_refused() -> None:
    with pytest.raises(ModelError, match=r"expected a fitted transformer of scikit-learn, .*fit it first"):
        Transforms.from_sklearn(StandardScaler())
    with pytest.raises(ModelError, match="expected a fitted transformer"):
        Transforms.from_sklearn("standard")


def test_quantiles_of_one_row_are_refused() -> None:
    fitted = QuantileTransformer(n_quantiles=1).fit(ROWS[:1])
    with pytest.raises(ModelError, match="fit it on at least two rows"):
        Transforms.from_sklearn(fitted)


def test_columns_must_hold_those_of_the_fit() -> None:
    frame = pd.DataFrame(ROWS, columns=["a", "b"])
    fitted = StandardScaler().fit(frame)
    with pytest.raises(ModelError, match=r"columns must have the 2 that .*, a, b, got a, c"):
        Transforms.from_sklearn(fitted, columns=["a", "c"])
    with pytest.raises(ModelError, match="x0, x1, got a"):
        Transforms.from_sklearn(StandardScaler().fit(ROWS), columns=["a"])
    assert Transforms.from_sklearn(StandardScaler().fit(ROWS), columns=["a", "b"]).columns == ("a", "b")


def test_two_texts_with_one_code_are_refused() -> None:
    assert text_code(SAME[0]) == text_code(SAME[1])
    fitted = OneHotEncoder(handle_unknown="ignore").fit(pd.DataFrame({"a": [*SAME, "x"]}))
    with pytest.raises(
        ModelError, match=f"column 'a': the categories '{SAME[0]}' and '{SAME[1]}' have the same"
    ):
        Transforms.from_sklearn(fitted)


def test_a_text_that_is_passed_on_is_refused() -> None:
    """A number of a text is no feature: only encoders read it."""
    both = ColumnTransformer(
        [("a", OneHotEncoder(handle_unknown="ignore"), ["a"]), ("b", "passthrough", ["a"])]
    )
    with pytest.raises(ModelError, match="could not transform random rows, as events may bring them"):
        Transforms.from_sklearn(both.fit(TEXTS))


def test_a_result_that_is_not_scikit_learns_is_refused() -> None:
    """Here a scaler is changed after its fit in a way that its parameters do not show."""
    fitted = StandardScaler().fit(ROWS)
    fitted.transform = lambda rows: 2 * rows
    with pytest.raises(ModelError, match=r"column 0 of the result must be .*, as scikit-learn computes it"):
        Transforms.from_sklearn(fitted)


def test_a_number_has_no_code() -> None:
    number: Any = 3
    with pytest.raises(InputError, match="text must be a text, got int"):
        text_code(number)
