"""`Transforms`: from raw columns of a graph to the columns that a module was trained on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np

from livegnn.arguments import as_array
from livegnn.errors import InputError, ModelError
from livegnn.network.steps import Step
from livegnn.network.transforms.chain import Chain, Steps
from livegnn.network.transforms.fitted import Columns, read_columns, read_kinds
from livegnn.network.transforms.kinds import (
    Branches,
    Bucket,
    Cyclic,
    Fill,
    Indicate,
    Kind,
    Log,
    OneHot,
    Ordinal,
    Quantile,
    Standardize,
    apply,
    write,
)
from livegnn.network.transforms.verification import verify
from livegnn.types import MISSING, DoubleArray, FloatArray
from livegnn.wording import show


@dataclass(frozen=True)
class Transforms:
    """Transforms of raw columns, one kind after the other; `Branches` applies several side by side.

    columns: the names of the raw columns, in the order of the graph's features. kinds: of
    `livegnn.model.transforms`, from the raw columns on.

    Raises `ModelError` if the kinds do not fit each other.
    """

    columns: tuple[str, ...]
    kinds: tuple[Kind, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))
        object.__setattr__(self, "kinds", tuple(self.kinds))
        if not self.columns or len(set(self.columns)) < len(self.columns):
            raise ModelError(f"columns must be different names, at least one, got {show(self.columns)}")
        _follow(self.kinds, [_MISSING] * len(self.columns))

    @property
    def width(self) -> int:
        """The number of columns of the result."""
        width = len(self.columns)
        for kind in self.kinds:
            width = kind.width(width)
        return width

    @property
    def replaced(self) -> tuple[str, ...]:
        """The raw columns in which a number may be missing: every reader of them replaces it."""
        count, names = len(self.columns), []
        for place, name in enumerate(self.columns):
            states = [_MISSING if c == place else _PLAIN for c in range(count)]
            if not any(state & _UNREPLACED for state in _follow(self.kinds, states)):
                names.append(name)
        return tuple(names)

    @staticmethod
    def from_sklearn(fitted: object, *, columns: Sequence[str] | None = None) -> "Transforms":
        """Reads fitted transformers of scikit-learn: a ``ColumnTransformer``, a ``Pipeline``, or one of the
        kinds that docs/raw-features.md lists. They are not changed, and not needed any more.

        columns: the names of all raw columns, in the order of the graph's features; by default those that
        the transformer was fitted on.

        Raises `ModelError` for a kind that cannot be read, by its name, and if the result on random rows is
        not scikit-learn's to 1e-6.
        """
        names, own = read_columns(fitted, columns)
        read = Columns(own)
        kinds = read_kinds(fitted, read)
        verify(fitted, kinds, read, Transforms(own, kinds).replaced)
        places = tuple(names.index(name) for name in own)
        return Transforms(names, kinds if own == names else (Branches(((places, kinds),)),))

    def __call__(self, rows: FloatArray | DoubleArray) -> FloatArray:
        """The rows that the model computes with: float32 [rows, width].

        rows: raw, [rows, columns]; they are rounded to float32, as a graph holds them. NaN, or
        `livegnn.MISSING`, is a missing number.
        Raises `InputError` for another width, an infinity, a missing number in a column that no transform
        replaces it in, and a number that a transform has no result for, as the logarithm of -1.
        """
        given = as_array(rows, "rows")
        if given.ndim != 2 or given.shape[1] != len(self.columns) or given.dtype.kind not in "fiub":
            raise InputError(
                f"rows must be numbers [rows, {len(self.columns)}], a column for each of "
                f"{', '.join(self.columns)}, got {given.dtype} {list(given.shape)}"
            )
        with np.errstate(over="ignore"):
            raw = given.astype(np.float32)
        if np.isinf(raw).any():
            row, column = np.argwhere(np.isinf(raw))[0]
            raise InputError(
                f"row {row}, column {self.columns[column]!r}: expected a number that float32 can hold, got "
                f"{given[row, column]}"
            )
        missing = np.isnan(raw) | (raw == np.float32(MISSING))
        for column, name in enumerate(self.columns):
            if name not in self.replaced and missing[:, column].any():
                row = int(np.argmax(missing[:, column]))
                raise InputError(
                    f"row {row}, column {name!r}: expected a number, got none, and no transform replaces it: "
                    "fit a SimpleImputer for the column"
                )
        made = apply(self.kinds, np.where(missing, np.nan, raw.astype(np.float64)))
        with np.errstate(over="ignore"):
            rounded = made.astype(np.float32)
        if not np.isfinite(rounded).all():
            row, column = np.argwhere(~np.isfinite(rounded))[0]
            raise InputError(
                f"row {row}: column {column} of the result would be {rounded[row, column]}, from "
                f"{', '.join(map(str, raw[row]))} ({', '.join(self.columns)}): no logarithm is of a number "
                "below 0, for instance"
            )
        return rounded

    def write(self, source: str, prefix: str) -> tuple[Sequence[Step], Mapping[str, FloatArray], str]:
        """The steps that compute the same from a value of raw columns, their tensors, and their output.

        prefix: of all names. Raises `ModelError` if the transforms change nothing.
        """
        steps = Steps(prefix)
        chain = Chain(steps, source, range(len(self.columns)), len(self.columns))
        write(self.kinds, chain)
        output = chain.value()
        if output == source:
            raise ModelError("transforms must change something, got none that does: use the model itself")
        return steps.steps, steps.tensors, output


_State: TypeAlias = frozenset[Literal["missing", "refused", "undefined", "rounded"]]
_PLAIN: Final[_State] = frozenset()
_MISSING: Final[_State] = frozenset({"missing"})
_REFUSED: Final[_State] = frozenset({"refused"})
_UNREPLACED = _MISSING | _REFUSED
_UNDEFINED: Final[_State] = frozenset({"undefined", "rounded"})
_ROUNDED: Final[_State] = frozenset({"rounded"})


def _replaces(kind: Kind) -> bool:
    """Whether no number of the result is missing."""
    filled = isinstance(kind, Fill) and bool(np.isnan(kind.stands_for))
    return filled or isinstance(kind, Indicate | OneHot | Ordinal | Cyclic)


def _follow(kinds: Sequence[Kind], states: list[_State]) -> list[_State]:
    """For each channel of the result: whether it may be missing, undefined (as the logarithm of -1 is),
    rounded from a result in float64, or refused where it is missing: an imputer for a number, such as -1,
    reads no missing ones. states: of the channels that are read.

    Raises `ModelError` where an imputer would replace an undefined number, which the steps of a model do not,
    and where a kind would compare rounded numbers, as equal ones may differ then.
    """
    for kind in kinds:
        width = kind.width(len(states))
        reads = frozenset[str]().union(*states)
        if isinstance(kind, Branches):
            parts = [_follow(inner, [states[c] for c in own]) for own, inner in kind.branches]
            states = [state for part in parts for state in part]
            continue
        refused = _REFUSED if "refused" in reads else _PLAIN
        if isinstance(kind, Fill | Indicate) and not np.isnan(kind.stands_for) and "missing" in reads:
            refused = _REFUSED
        if isinstance(kind, Fill | Indicate) and "undefined" in reads:
            raise ModelError(
                "an imputer must be in front of a logarithm, not behind it: fit it in this order"
            )
        if isinstance(kind, Quantile | Bucket | OneHot | Ordinal) and "rounded" in reads:
            raise ModelError(
                f"{type(kind).__name__} must read raw numbers, not scaled ones, as "
                "rounding can make equal ones different: put it first in its pipeline"
            )
        if _replaces(kind):
            kept = _ROUNDED if isinstance(kind, Fill) and "rounded" in reads else _PLAIN
            states = [_ROUNDED if isinstance(kind, Cyclic) else kept] * width
        elif isinstance(kind, Log):
            states = [state | _UNDEFINED for state in states]
        elif isinstance(kind, Standardize | Quantile):
            states = [state | _ROUNDED for state in states]
        states = [state | refused for state in states]
    return states
