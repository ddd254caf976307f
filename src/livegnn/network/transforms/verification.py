"""Compares transforms with the fitted transformer that they were read from, on random rows."""

import warnings
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

import numpy as np

from livegnn.errors import ModelError
from livegnn.network.transforms.fitted import Columns
from livegnn.network.transforms.kinds import (
    Branches,
    Bucket,
    Fill,
    Kind,
    Log,
    OneHot,
    Ordinal,
    Quantile,
    Standardize,
    apply,
)
from livegnn.texts import text_code
from livegnn.types import DoubleArray

EXACTNESS: Final = 1e-6
_ROWS: Final = 200


def verify(fitted: Any, kinds: Sequence[Kind], columns: Columns, replaced: Collection[str]) -> None:
    """Raises `ModelError` unless the kinds do what the transformer does, to 1e-6.

    columns: that both read. replaced: the names of columns in which a number may be missing.
    """
    rng = np.random.default_rng(0)
    rows = np.empty((_ROWS, len(columns)), np.float64)
    theirs = []
    examples = list(_examples(kinds, range(len(columns))))
    for place, name in enumerate(columns.names):
        texts = sorted(columns.texts.get(name, ()))
        if texts:
            drawn = rng.choice(np.array([*texts, "?", "never seen"], dtype=object), _ROWS)
            rows[:, place] = [text_code(one) for one in drawn]
        else:
            own = [number for column, number in examples if column == place and np.isfinite(number)]
            logged = any(column == place and number == -np.inf for column, number in examples)
            drawn = rows[:, place] = _draw(rng, own, positive=logged)
            drawn = drawn.copy()
        binned = any(column == place and number == np.inf for column, number in examples)
        if name in replaced and not binned:  # KBinsDiscretizer takes no missing numbers
            missing = rng.random(_ROWS) < 0.1
            rows[missing, place] = np.nan
            drawn[missing] = np.nan
        theirs.append(drawn)
    expected = _transform(fitted, columns.names, theirs)
    got = apply(kinds, rows)
    if expected.shape != got.shape:
        raise ModelError(f"scikit-learn makes {expected.shape[1]} columns, the transforms {got.shape[1]}")
    close = np.isclose(got, expected, rtol=EXACTNESS, atol=EXACTNESS, equal_nan=True)
    if not close.all():
        row, column = np.argwhere(~close)[0]
        raise ModelError(
            f"column {column} of the result must be {expected[row, column]}, as scikit-learn computes it for "
            f"{[column[row] for column in theirs]}, the transforms make {got[row, column]}: fit on float64 "
            "numbers, as float32 rounds between the steps of a pipeline"
        )


def _draw(rng: np.random.Generator, examples: Sequence[float], *, positive: bool) -> DoubleArray:
    """Numbers of float32 of every magnitude, many of them at and around those of the parameters."""
    drawn = rng.standard_normal(_ROWS) * 10.0 ** rng.uniform(-6, 9, _ROWS)
    if examples:
        around = rng.choice(np.array(examples), _ROWS)
        near = around + (rng.random(_ROWS) < 0.5) * rng.standard_normal(_ROWS) * np.std(examples)
        drawn = np.where(rng.random(_ROWS) < 0.8, near, drawn)
    if positive:
        drawn = np.abs(drawn) + 1e-6
    rounded: DoubleArray = drawn.astype(np.float32).astype(np.float64)
    return rounded


def _examples(kinds: Sequence[Kind], columns: Sequence[int]) -> Iterator[tuple[int, float]]:
    """The columns with numbers that the parameters of their kinds name; -inf where a logarithm reads one, inf
    where one is put into bins, before anything replaces missing numbers."""
    filled = False
    for kind in kinds:
        if isinstance(kind, Branches):
            for own, inner in kind.branches:
                yield from _examples(inner, [columns[channel] for channel in own])
            return
        if isinstance(kind, Fill) and np.isnan(kind.stands_for):
            filled = True
        for channel, column in enumerate(columns):
            if isinstance(kind, Bucket) and not filled:
                yield column, np.inf
            for number in _parameters(kind, channel):
                yield column, number
        if kind.width(len(columns)) != len(columns):
            return


def _parameters(kind: Kind, channel: int) -> Sequence[float]:
    if isinstance(kind, Standardize):
        return [kind.mean[channel] + times * kind.scale[channel] for times in (-3, -1, -0.1, 0, 0.5, 2)]
    if isinstance(kind, Quantile):
        return kind.quantiles[channel]
    if isinstance(kind, Bucket):
        return kind.boundaries[channel]
    if isinstance(kind, OneHot | Ordinal):
        return kind.categories[channel]
    if isinstance(kind, Fill):
        return [kind.values[channel], kind.stands_for]
    return [-np.inf] if isinstance(kind, Log) else []


def _transform(fitted: Any, names: Sequence[str], columns: Sequence[Any]) -> DoubleArray:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        if hasattr(fitted, "feature_names_in_"):
            import pandas as pd  # type: ignore[import-untyped]

            rows: Any = pd.DataFrame(dict(zip(names, columns, strict=True)))
        else:
            objects = any(column.dtype == object for column in columns)
            rows = np.stack([column.astype(object) if objects else column for column in columns], axis=1)
        try:
            made = fitted.transform(rows)
            dense = made.toarray() if hasattr(made, "toarray") else made
            return np.asarray(dense, np.float64)
        except (ValueError, TypeError) as error:
            raise ModelError(
                f"scikit-learn could not transform random rows, as events may bring them: {error}"
            ) from error
