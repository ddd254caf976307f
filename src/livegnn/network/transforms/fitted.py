"""Reads fitted transformers of scikit-learn as kinds, without importing it: by the names of their classes.

A subclass is another class, whose transform may do anything, and is refused like every unknown one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import numpy as np

from livegnn.errors import ModelError
from livegnn.network.transforms.kinds import (
    Branches,
    Bucket,
    Clip,
    Fill,
    Indicate,
    Kind,
    Log,
    OneHot,
    Ordinal,
    Quantile,
    Standardize,
)
from livegnn.texts import text_code
from livegnn.wording import show

Kinds: TypeAlias = tuple[Kind, ...]


@dataclass(frozen=True)
class Columns:
    """Columns that a transformer reads. texts: the texts among the categories of each, by its name."""

    names: Sequence[str]
    texts: dict[str, set[str]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.names)

    def named(self, names: Sequence[str]) -> "Columns":
        """Others, which write their texts to the same place."""
        return replace(self, names=names)

    def code(self, name: str, value: object) -> float:
        """The number of a category, or of an imputed value, in a graph. NaN: it is missing."""
        if value is None:
            return float("nan")
        if isinstance(value, str):
            self.texts.setdefault(name, set()).add(value)
            return float(text_code(value))
        return float(value)  # type: ignore[arg-type]


_FUNCTIONS: Final[Mapping[object, Kinds]] = {np.log1p: (Log("log1p"),), np.log: (Log("log"),), None: ()}


def read_columns(fitted: object, columns: Sequence[str] | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of all raw columns, and of those that the transformer reads, in its order.

    columns: the caller's names of all, if given. Raises `ModelError`.
    """
    count = _of_first(fitted, "n_features_in_")
    if count is None:
        raise ModelError(f"expected a fitted transformer of scikit-learn, got {show(fitted)}: fit it first")
    named = _of_first(fitted, "feature_names_in_")
    own = tuple(f"x{i}" for i in range(count)) if named is None else tuple(map(str, named))
    if columns is None:
        return own, own
    names = tuple(columns)
    if named is None and len(columns) == count:
        return names, names
    lacking = [name for name in own if name not in names]
    if lacking:
        raise ModelError(
            f"columns must have the {count} that the transformer was fitted on, {', '.join(own)}, got "
            f"{', '.join(names)}"
        )
    return names, own


def _of_first(fitted: Any, attribute: str) -> Any:
    """An attribute of a fitted transformer; of a pipeline or a union that begins with parts without it, such
    as "passthrough", that of the first part that has it."""
    parts = [one for _, one in getattr(fitted, "steps", getattr(fitted, "transformer_list", ()))]
    found = (_of_first(part, attribute) for part in parts)
    own = getattr(fitted, attribute, None)
    return own if own is not None else next((one for one in found if one is not None), None)


def read_kinds(fitted: Any, columns: Columns) -> Kinds:
    """The kinds of one transformer. columns: that it reads. Raises `ModelError`."""
    if fitted is None or (isinstance(fitted, str) and fitted == "passthrough"):
        return ()
    name = type(fitted).__name__
    reader = _READERS.get(name)
    if reader is None or type(fitted).__module__.split(".")[0] != "sklearn":
        raise ModelError(
            f"cannot read a transformer of the kind {type(fitted).__module__}.{name}, only "
            f"{', '.join(_READERS)}: compute it before the events, or leave it out"
        )
    try:
        return reader(fitted, columns)
    except AttributeError as error:
        raise ModelError(f"{name} must be fitted: {error}") from None


def _standard(fitted: Any, columns: Columns) -> Kinds:
    centred, scaled = fitted.with_mean, fitted.with_std
    return _affine(fitted.mean_ if centred else None, fitted.scale_ if scaled else None, len(columns))


def _robust(fitted: Any, columns: Columns) -> Kinds:
    return _affine(fitted.center_, fitted.scale_, len(columns))


def _max_abs(fitted: Any, columns: Columns) -> Kinds:
    clips = (Clip(-1, 1),) if getattr(fitted, "clip", False) else ()
    return (*_affine(None, fitted.scale_, len(columns)), *clips)


def _min_max(fitted: Any, columns: Columns) -> Kinds:
    scale = np.asarray(fitted.scale_, np.float64)  # x * scale + min
    scaled = _affine(-np.asarray(fitted.min_, np.float64) / scale, 1 / scale, len(columns))
    return (*scaled, Clip(*map(float, fitted.feature_range))) if fitted.clip else scaled


def _affine(mean: Any, scale: Any, channels: int) -> Kinds:
    if mean is None and scale is None:
        return ()
    means = [0.0] * channels if mean is None else mean
    return (Standardize(tuple(means), tuple([1.0] * channels if scale is None else scale)),)


def _function(fitted: Any, columns: Columns) -> Kinds:
    known = [kinds for function, kinds in _FUNCTIONS.items() if fitted.func is function]
    if not known or fitted.kw_args:
        name = getattr(fitted.func, "__name__", show(fitted.func))
        raise ModelError(
            f"cannot read a FunctionTransformer of {name}, only of numpy.log1p and numpy.log without "
            "arguments: a model holds no code"
        )
    return known[0]


def _quantile(fitted: Any, columns: Columns) -> Kinds:
    if fitted.output_distribution != "uniform":
        raise ModelError(
            f"cannot read a QuantileTransformer with output_distribution={fitted.output_distribution!r}, "
            "only with 'uniform'"
        )
    if len(fitted.quantiles_) < 2:
        raise ModelError("cannot read a QuantileTransformer of one quantile: fit it on at least two rows")
    return (Quantile(tuple(map(tuple, fitted.quantiles_.T))),)


def _bins(fitted: Any, columns: Columns) -> Kinds:
    bucket = Bucket(tuple(tuple(edges[1:-1]) for edges in fitted.bin_edges_))
    if fitted.encode == "ordinal":
        return (bucket,)
    return (bucket, OneHot(tuple(tuple(range(int(count))) for count in fitted.n_bins_)))


def _one_hot(fitted: Any, columns: Columns) -> Kinds:
    _refuse_infrequent(fitted)
    if fitted.handle_unknown != "ignore":
        raise ModelError(
            f"cannot read a OneHotEncoder with handle_unknown={fitted.handle_unknown!r}: an event cannot "
            "fail in a model, so fit it with handle_unknown='ignore', which gives zeros"
        )
    dropped = [None] * len(columns) if fitted.drop_idx_ is None else fitted.drop_idx_
    kept = [
        tuple(code for place, code in enumerate(_codes(own, columns, name)) if place != drop)
        for own, name, drop in zip(fitted.categories_, columns.names, dropped, strict=True)
    ]
    return (OneHot(tuple(kept)),)


def _ordinal(fitted: Any, columns: Columns) -> Kinds:
    _refuse_infrequent(fitted)
    if fitted.handle_unknown != "use_encoded_value" or not np.isfinite(fitted.unknown_value):
        raise ModelError(
            f"cannot read an OrdinalEncoder with handle_unknown={fitted.handle_unknown!r} and "
            f"unknown_value={fitted.unknown_value!r}: an event cannot fail in a model, so fit it with "
            "handle_unknown='use_encoded_value' and unknown_value=-1"
        )
    named = zip(fitted.categories_, columns.names, strict=True)
    categories = tuple(_codes(own, columns, name) for own, name in named)
    if any(np.isnan(own).any() for own in categories):
        raise ModelError(
            "cannot read an OrdinalEncoder with a missing value among its categories: put a SimpleImputer "
            "before it"
        )
    return (Ordinal(categories, float(fitted.unknown_value)),)


def _refuse_infrequent(fitted: Any) -> None:
    if fitted.min_frequency is not None or fitted.max_categories is not None:
        raise ModelError(
            f"cannot read a {type(fitted).__name__} with min_frequency or max_categories: list the "
            "categories to keep with categories=[...]"
        )


def _codes(categories: Sequence[object], columns: Columns, name: str) -> tuple[float, ...]:
    """The numbers of categories in a graph: texts have codes. Raises `ModelError` if two have the same."""
    codes: dict[float, object] = {}
    for one in categories:
        code = columns.code(name, one)
        if code in codes:
            raise ModelError(
                f"column {name!r}: the categories {codes[code]!r} and {one!r} have the same code {code:g}: "
                "rename one"
            )
        codes[code] = one
    return tuple(codes)


def _imputer(fitted: Any, columns: Columns) -> Kinds:
    named = zip(columns.names, fitted.statistics_, strict=True)
    values = np.array([columns.code(name, one) for name, one in named])
    kept = [i for i, one in enumerate(values) if fitted.keep_empty_features or not np.isnan(one)]
    values = np.where(np.isnan(values), 0.0, values)
    stands_for = columns.code("", fitted.missing_values)
    filled: Kinds = (Fill(tuple(values[kept]), stands_for),)
    if len(kept) == len(columns) and fitted.indicator_ is None:
        return filled
    branches: list[tuple[tuple[int, ...], Kinds]] = [(tuple(kept), filled)]
    if fitted.indicator_ is not None:
        marked = tuple(map(int, fitted.indicator_.features_))
        branches.append((marked, (Indicate(tuple(range(len(marked))), stands_for),)))
    return (Branches(tuple(branches)),)


def _indicator(fitted: Any, columns: Columns) -> Kinds:
    return (Indicate(tuple(map(int, fitted.features_)), columns.code("", fitted.missing_values)),)


def _pipeline(fitted: Any, columns: Columns) -> Kinds:
    kinds: Kinds = ()
    for _, step in fitted.steps:
        read = read_kinds(step, columns)
        width = len(columns)
        for kind in read:
            width = kind.width(width)
        # Later steps know their columns by number, unless each is one of the columns that came in.
        if width != len(columns) or any(isinstance(kind, Branches) for kind in read):
            columns = columns.named([f"x{i}" for i in range(width)])
        kinds += read
    return kinds


def _union(fitted: Any, columns: Columns) -> Kinds:
    _refuse_weights(fitted)
    whole = tuple(range(len(columns)))
    parts = [one for _, one in fitted.transformer_list if not (isinstance(one, str) and one == "drop")]
    return (Branches(tuple((whole, read_kinds(one, columns)) for one in parts)),)


def _by_columns(fitted: Any, columns: Columns) -> Kinds:
    _refuse_weights(fitted)
    branches = []
    for _, one, given in fitted.transformers_:
        places = _places(given, columns.names)
        if places and not (isinstance(one, str) and one == "drop"):
            own = columns.named([columns.names[place] for place in places])
            branches.append((places, read_kinds(one, own)))
    return (Branches(tuple(branches)),)


def _refuse_weights(fitted: Any) -> None:
    if fitted.transformer_weights:
        raise ModelError(f"cannot read a {type(fitted).__name__} with transformer_weights: leave them out")


def _places(given: Any, names: Sequence[str]) -> tuple[int, ...]:
    """The columns of a ColumnTransformer's entry as numbers."""
    if isinstance(given, slice):
        if any(isinstance(end, str) for end in (given.start, given.stop)):
            first = None if given.start is None else _place(given.start, names)
            last = None if given.stop is None else _place(given.stop, names) + 1  # by name, inclusive
            given = slice(first, last, given.step)
        return tuple(range(*given.indices(len(names))))
    listed = [given] if isinstance(given, str | int | np.integer) else list(given)
    if listed and all(isinstance(one, bool | np.bool_) for one in listed):
        return tuple(place for place, kept in enumerate(listed) if kept)
    return tuple(_place(one, names) for one in listed)


def _place(column: object, names: Sequence[str]) -> int:
    if isinstance(column, str):
        if column not in names:
            raise ModelError(
                f"a ColumnTransformer reads the column {column!r}, which is none of {show(names)}"
            )
        return list(names).index(column)
    assert isinstance(column, int | np.integer)
    return int(column) % len(names)


_READERS: Final[Mapping[str, Callable[[Any, Columns], Kinds]]] = {
    "ColumnTransformer": _by_columns,
    "Pipeline": _pipeline,
    "FeatureUnion": _union,
    "StandardScaler": _standard,
    "MinMaxScaler": _min_max,
    "MaxAbsScaler": _max_abs,
    "RobustScaler": _robust,
    "FunctionTransformer": _function,
    "QuantileTransformer": _quantile,
    "KBinsDiscretizer": _bins,
    "OneHotEncoder": _one_hot,
    "OrdinalEncoder": _ordinal,
    "SimpleImputer": _imputer,
    "MissingIndicator": _indicator,
}
