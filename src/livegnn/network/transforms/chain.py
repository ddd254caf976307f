"""Writes the steps of transforms, one kind after the other on the same columns.

Consecutive transforms of numbers become one step: (log(x) - mean) / scale is computed in float64 and rounded
once, as in scikit-learn. A missing number passes such a step unchanged, so a value that replaces it is put in
afterwards, itself transformed in float64.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from livegnn.network.operators import Attribute
from livegnn.network.steps import Step
from livegnn.types import MISSING, DoubleArray, FloatArray

Numbers: TypeAlias = Sequence[float] | DoubleArray

LOGARITHMS = {"log": np.log, "log1p": np.log1p}


def split_in_three(numbers: Numbers) -> FloatArray:
    """float64 [...] as float32 [3, ...], whose sum in float64 is the same number."""
    rest = np.asarray(numbers, np.float64)
    parts = []
    for _ in range(3):
        parts.append(rest.astype(np.float32))
        rest = rest - parts[-1]
    return np.stack(parts)


class Steps:
    """The steps and tensors of transforms, under names that begin with `prefix`."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self.steps: list[Step] = []
        self.tensors: dict[str, FloatArray] = {}

    def add(
        self, op: str, inputs: Sequence[str], tensors: Mapping[str, FloatArray], **attrs: Attribute
    ) -> str:
        """Adds a step. tensors: by role. Returns the name of its output."""
        name = f"{self._prefix}/{op}{len(self.steps)}"
        roles = {role: f"{name}/{role}" for role in tensors}
        self.tensors |= {roles[role]: np.asarray(array, np.float32) for role, array in tensors.items()}
        self.steps.append(Step(op, tuple(inputs), name, roles, attrs))
        return name


class Chain:
    """Transforms of some columns of a value, one after the other.

    columns: the channels of `source` that it begins with.
    """

    def __init__(self, steps: Steps, source: str, columns: Sequence[int], width: int) -> None:
        self.steps = steps
        self._source = source
        self._columns: list[int] | None = None if list(columns) == list(range(width)) else list(columns)
        self.width = len(columns)
        self._function = "identity"
        self._mean = self._scale = np.empty(0)
        self._fill: DoubleArray | None = None

    def add(self, op: str, tensors: Mapping[str, FloatArray], width: int, **attrs: Attribute) -> None:
        """Adds a step that reads the result so far."""
        value = self.value()
        self._source = self.steps.add(op, (value,), tensors, **attrs)
        self.width = width

    def branch(self, columns: Sequence[int]) -> "Chain":
        """A chain that begins with some channels of the result so far."""
        return Chain(self.steps, self.value(), columns, self.width)

    def join(self, branches: Sequence["Chain"]) -> None:
        """Continues with the results of several chains side by side."""
        values = [branch.value() for branch in branches]
        self._source = values[0] if len(values) == 1 else self.steps.add("concat", values, {})
        self.width = sum(branch.width for branch in branches)

    def one_hot(self, channels: Sequence[int], categories: Numbers) -> None:
        """1 where a channel is a category; reads the source itself in a chain without steps."""
        self.keep_apart(channels, [[one] for one in categories])
        self._apply_numbers()
        places = channels if self._columns is None else [self._columns[channel] for channel in channels]
        tensors = {"channels": np.array(places, np.float32), "categories": np.asarray(categories, np.float32)}
        self._columns = None
        self._source = self.steps.add("one_hot", (self._source,), tensors)
        self.width = len(channels)

    def standardize(self, mean: DoubleArray, scale: DoubleArray) -> None:
        """(x - mean) / scale."""
        if self._fill is not None:
            self._fill = (self._fill - mean) / scale
        if len(self._mean):
            mean, scale = self._mean + mean * self._scale, self._scale * scale
        self._mean, self._scale = mean, scale

    def log(self, function: str) -> None:
        """A logarithm: a name of `LOGARITHMS`."""
        fill = self._fill
        with np.errstate(all="ignore"):
            filled = None if fill is None else LOGARITHMS[function](fill)
        if filled is not None and np.isfinite(filled).all():
            self._fill = None
            self._apply_numbers()
            self._fill = filled
        else:
            self._apply_numbers()
        self._function = function

    def miss(self, number: float) -> None:
        """A number becomes a missing one, so that what replaces it is transformed in float64."""
        self.add("fill_missing", {"values": np.full(self.width, MISSING)}, self.width, missing=number)

    def fill(self, values: DoubleArray) -> None:
        """Puts values in place of missing numbers."""
        if self._fill is None:
            self._fill = values

    def keep_apart(self, channels: Sequence[int], categories: Sequence[Numbers]) -> None:
        """Rounding makes no category of a value in place of missing numbers that differs from all categories
        of its channel. categories: of each of `channels`."""
        if self._fill is None:
            return
        self._fill = self._fill.copy()
        for channel in range(self.width):
            own = {
                float(one)
                for c, some in zip(channels, categories, strict=True)
                if c == channel
                for one in some
            }
            value, rounded = self._fill[channel], np.float32(self._fill[channel])
            if value not in own:
                while float(rounded) in own:
                    rounded = np.nextafter(rounded, np.float32(0))
                self._fill[channel] = float(rounded)

    def by_order(
        self, op: str, tensors: Mapping[str, FloatArray], apply: Callable[[DoubleArray], DoubleArray]
    ) -> None:
        """A step that compares numbers with those of tensors, in which missing ones stay missing. apply: the
        same on rows of float64, for the values that replace them."""
        filled = None if self._fill is None else apply(self._fill[None])[0]
        self._fill = None
        self.add(op, tensors, self.width)
        self._fill = filled

    def value(self) -> str:
        """The name of the result so far."""
        self._apply_numbers()
        if self._columns is not None:
            channels = np.array(self._columns, np.float32)
            self._columns = None
            self._source = self.steps.add("take", (self._source,), {"channels": channels})
        return self._source

    def _apply_numbers(self) -> None:
        """Writes the transforms of numbers that no step computes yet."""
        function, mean, scale, fill = self._function, self._mean, self._scale, self._fill
        self._function, self._mean, self._scale, self._fill = "identity", np.empty(0), np.empty(0), None
        if function != "identity" and not len(mean):
            mean, scale = np.zeros(self.width), np.ones(self.width)
        if len(mean):
            tensors = {"mean": split_in_three(mean), "scale": split_in_three(scale)}
            attrs = {} if function == "identity" else {"function": function}
            self.add("standardize", tensors, self.width, **attrs)
        if fill is not None:
            self.add("fill_missing", {"values": fill.astype(np.float32)}, self.width)
