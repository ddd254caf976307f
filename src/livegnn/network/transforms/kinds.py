"""The kinds of transforms: the effect of each on an array in float64, where NaN is a missing number, and the
steps that compute it in a model.

Parameters are numbers for each channel that a transform reads. All kinds are data, and equal if their
parameters are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

import numpy as np

from livegnn.errors import ModelError
from livegnn.network.transforms.chain import LOGARITHMS, Chain, split_in_three
from livegnn.types import MISSING, DoubleArray
from livegnn.wording import show

Rows: TypeAlias = DoubleArray

_LARGEST = float(np.finfo(np.float32).max)


class Kind(Protocol):
    """One kind of transform, with its parameters."""

    def width(self, channels: int) -> int:
        """The channels of the result. Raises `ModelError` if its parameters are for another number."""
        ...

    def __call__(self, x: Rows) -> Rows:
        """[rows, channels] -> [rows, width]."""
        ...

    def write(self, chain: Chain) -> None:
        """Adds the same to a chain of steps."""
        ...


@dataclass(frozen=True)
class Standardize:
    """(x - mean) / scale, for each channel."""

    mean: tuple[float, ...]
    scale: tuple[float, ...]

    def __post_init__(self) -> None:
        _set(self, "mean", self.mean)
        _set(self, "scale", self.scale)
        if len(self.mean) != len(self.scale) or 0 in self.scale:
            raise ModelError(f"mean and scale must be as many, and no scale 0, got {show(self)}")

    def width(self, channels: int) -> int:
        return _fit(self, len(self.mean), channels)

    def __call__(self, x: Rows) -> Rows:
        scaled: Rows = (x - np.array(self.mean)) / np.array(self.scale)
        return scaled

    def write(self, chain: Chain) -> None:
        chain.standardize(np.array(self.mean), np.array(self.scale))


@dataclass(frozen=True)
class Log:
    """The natural logarithm: ``"log"`` of x, or ``"log1p"``, of 1 + x."""

    function: Literal["log", "log1p"] = "log1p"

    def __post_init__(self) -> None:
        if self.function not in LOGARITHMS:
            raise ModelError(f"function must be 'log' or 'log1p', got {show(self.function)}")

    def width(self, channels: int) -> int:
        return channels

    def __call__(self, x: Rows) -> Rows:
        with np.errstate(all="ignore"):
            made: Rows = LOGARITHMS[self.function](x)
        return made

    def write(self, chain: Chain) -> None:
        chain.log(self.function)


@dataclass(frozen=True)
class Clip:
    """x, but not below `least` nor above `most`; one for all channels."""

    least: float
    most: float

    def width(self, channels: int) -> int:
        return channels

    def __call__(self, x: Rows) -> Rows:
        clipped: Rows = np.clip(x, self.least, self.most)
        return clipped

    def write(self, chain: Chain) -> None:
        chain.add("clamp", {}, chain.width, least=float(self.least), most=float(self.most))


@dataclass(frozen=True)
class Quantile:
    """The place of x among the ascending quantiles of its channel, from 0 to 1, between them linearly.

    Every channel has as many, at least two.
    """

    quantiles: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "quantiles", tuple(_numbers(one, "quantiles") for one in self.quantiles))
        counts = {len(one) for one in self.quantiles}
        if len(counts) != 1 or min(counts) < 2 or any(list(one) != sorted(one) for one in self.quantiles):
            raise ModelError(
                "every channel must have as many quantiles, at least two, in ascending order, got "
                f"{show(self.quantiles)}"
            )

    def width(self, channels: int) -> int:
        return _fit(self, len(self.quantiles), channels)

    def __call__(self, x: Rows) -> Rows:
        ranks = np.empty(x.shape)
        for channel, one in enumerate(self.quantiles):
            points, places, column = np.array(one), np.linspace(0, 1, len(one)), x[:, channel]
            up = np.interp(column, points, places)
            down = -np.interp(-column, -points[::-1], -places[::-1])
            made = np.where(column >= points[-1], 1.0, (up + down) / 2)
            ranks[:, channel] = np.where(column <= points[0], 0.0, made)
        return np.where(np.isnan(x), np.nan, ranks)

    def write(self, chain: Chain) -> None:
        chain.by_order("quantile", {"quantiles": split_in_three(np.array(self.quantiles))}, self)


@dataclass(frozen=True)
class Fill:
    """`values`, one for each channel, in place of numbers that are missing.

    stands_for: the number that says that one is missing; NaN: it is missing, as `livegnn.MISSING` in a graph.
    """

    values: tuple[float, ...]
    stands_for: float = float("nan")

    def __post_init__(self) -> None:
        _set(self, "values", self.values)

    def width(self, channels: int) -> int:
        return _fit(self, len(self.values), channels)

    def __call__(self, x: Rows) -> Rows:
        return np.where(_is(x, self.stands_for), np.array(self.values), x)

    def write(self, chain: Chain) -> None:
        if not np.isnan(self.stands_for):
            chain.miss(_exact(self.stands_for))
        chain.fill(np.array(self.values))


@dataclass(frozen=True)
class Indicate:
    """1 where one of these channels is missing, else 0. stands_for: as in `Fill`."""

    channels: tuple[int, ...]
    stands_for: float = float("nan")

    def width(self, channels: int) -> int:
        _check_channels(self.channels, channels)
        return len(self.channels)

    def __call__(self, x: Rows) -> Rows:
        return _is(x[:, list(self.channels)], self.stands_for).astype(np.float64)

    def write(self, chain: Chain) -> None:
        chain.one_hot(self.channels, [_category(self.stands_for)] * len(self.channels))


@dataclass(frozen=True)
class Bucket:
    """The number of its channel's ascending boundaries that are at most x."""

    boundaries: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "boundaries", tuple(_numbers(one, "boundaries") for one in self.boundaries))

    def width(self, channels: int) -> int:
        return _fit(self, len(self.boundaries), channels)

    def __call__(self, x: Rows) -> Rows:
        counts = [(x[:, [c]] >= np.array(one)).sum(axis=1) for c, one in enumerate(self.boundaries)]
        return np.where(np.isnan(x), x, np.stack(counts, axis=1).astype(np.float64))

    def write(self, chain: Chain) -> None:
        counts = [len(one) for one in self.boundaries]
        # The largest number stands for a boundary that a channel lacks.
        padded = np.full((len(counts), max(1, *counts)), _LARGEST)
        for channel, one in enumerate(self.boundaries):
            padded[channel, : len(one)] = one
        rounded = padded.astype(np.float32)  # upwards: a float32 is at least the one if at least the other
        with np.errstate(over="ignore"):
            up = np.where(rounded < padded, np.nextafter(rounded, np.float32(np.inf)), rounded)
        chain.by_order("bucketize", {"boundaries": up}, self)


@dataclass(frozen=True)
class OneHot:
    """1 for the category that x is, else 0, for each category of each channel; zeros for any other number.

    NaN as a category is a missing number. Categories are numbers of float32.
    """

    categories: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "categories", tuple(map(_categories, self.categories)))

    def width(self, channels: int) -> int:
        _fit(self, len(self.categories), channels)
        return sum(map(len, self.categories))

    def __call__(self, x: Rows) -> Rows:
        columns = [_is(x[:, c], one) for c, own in enumerate(self.categories) for one in own]
        return np.stack(columns, axis=1).astype(np.float64)

    def write(self, chain: Chain) -> None:
        channels = [c for c, own in enumerate(self.categories) for _ in own]
        chain.one_hot(channels, [_category(one) for own in self.categories for one in own])


@dataclass(frozen=True)
class Ordinal:
    """The place of x among the categories of its channel, from 0; `unknown` for any other number."""

    categories: tuple[tuple[float, ...], ...]
    unknown: float = -1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "categories", tuple(map(_categories, self.categories)))
        if not np.isfinite(self.unknown) or not all(self.categories):
            raise ModelError(f"every channel must have categories, and unknown be finite, got {show(self)}")

    def width(self, channels: int) -> int:
        return _fit(self, len(self.categories), channels)

    def __call__(self, x: Rows) -> Rows:
        places = np.full(x.shape, self.unknown)
        for channel, own in enumerate(self.categories):
            for place, one in enumerate(own):
                places[_is(x[:, channel], one), channel] = place
        return places

    def write(self, chain: Chain) -> None:
        most = max(map(len, self.categories))
        rows = [[*map(_category, own), *[_category(own[-1])] * (most - len(own))] for own in self.categories]
        chain.keep_apart(range(chain.width), rows)
        chain.add("ordinal", {"categories": np.array(rows)}, chain.width, unknown=float(self.unknown))


@dataclass(frozen=True)
class Cyclic:
    """The sine and the cosine of 2 pi x / period, for each channel; 0 and 0 where x is missing."""

    period: float

    def __post_init__(self) -> None:
        if not np.isfinite(self.period) or self.period <= 0:
            raise ModelError(f"period must be a finite number above 0, got {show(self.period)}")

    def width(self, channels: int) -> int:
        return 2 * channels

    def __call__(self, x: Rows) -> Rows:
        angle = np.fmod(x, self.period) / self.period * 2 * np.pi
        both = np.stack([np.sin(angle), np.cos(angle)], axis=2).reshape(len(x), -1)
        known: Rows = np.nan_to_num(both)
        return known

    def write(self, chain: Chain) -> None:
        chain.add("cyclic", {}, 2 * chain.width, period=float(self.period))


Columnwise: TypeAlias = Standardize | Log | Clip | Quantile | Fill | Bucket | OneHot | Ordinal
"""Kinds that compute each column of the result from one channel, in the order of these."""


@dataclass(frozen=True)
class Branches:
    """Transforms side by side: each reads some channels, and the results follow each other.

    branches: (channels, kinds, one after the other); without kinds the channels are passed on.
    """

    branches: tuple[tuple[tuple[int, ...], tuple[Kind, ...]], ...]

    def width(self, channels: int) -> int:
        total = 0
        for own, kinds in self.branches:
            _check_channels(own, channels)
            total += _width(kinds, len(own))
        if total == 0:
            raise ModelError("transforms must leave a column, got none")
        return total

    def __call__(self, x: Rows) -> Rows:
        made = []
        for own, kinds in self.branches:
            made.append(apply(kinds, x[:, list(own)]))
        joined: Rows = np.concatenate(made, axis=1)
        return joined

    def write(self, chain: Chain) -> None:
        made = []
        for own, kinds in self.branches:
            if own:
                made.append(chain.branch(own))
                write(kinds, made[-1])
        chain.join(made)

    def then(self, kind: "Columnwise") -> "Branches":
        """The same, with a kind for all channels of the result at the end of each branch."""
        branches, first = [], 0
        for own, kinds in self.branches:
            width = _width(kinds, len(own))
            branches.append((own, (*kinds, _part(kind, first, first + width))))
            first += width
        return Branches(tuple(branches))


def apply(kinds: Sequence[Kind], x: Rows) -> Rows:
    """The kinds, one after the other, on rows."""
    for kind in kinds:
        x = kind(x)
    return x


def write(kinds: Sequence[Kind], chain: Chain) -> None:
    """Adds the kinds, one after the other, to a chain of steps.

    A transform of columns after branches is applied in each of them, where fewer steps round.
    """
    merged = list[Kind]()
    for kind in kinds:
        last = merged[-1] if merged else None
        if isinstance(last, Branches) and isinstance(kind, Columnwise):
            merged[-1] = last.then(kind)
        else:
            merged.append(kind)
    for kind in merged:
        kind.write(chain)


def _part(kind: Columnwise, first: int, last: int) -> Kind:
    """The kind for some of its channels."""
    own = slice(first, last)
    match kind:
        case Standardize():
            return Standardize(kind.mean[own], kind.scale[own])
        case Quantile():
            return Quantile(kind.quantiles[own])
        case Fill():
            return Fill(kind.values[own], kind.stands_for)
        case Bucket():
            return Bucket(kind.boundaries[own])
        case OneHot():
            return OneHot(kind.categories[own])
        case Ordinal():
            return Ordinal(kind.categories[own], kind.unknown)
        case _:
            return kind


def _width(kinds: Sequence[Kind], width: int) -> int:
    for kind in kinds:
        width = kind.width(width)
    return width


def _set(kind: object, name: str, numbers: Sequence[float]) -> None:
    object.__setattr__(kind, name, _numbers(numbers, name))


def _numbers(numbers: Sequence[float], name: str) -> tuple[float, ...]:
    made = tuple(float(one) for one in numbers)
    wrong = [one for one in made if not abs(one) <= _LARGEST]
    if wrong:
        raise ModelError(f"{name} must be finite numbers that float32 can hold, got {wrong[0]}")
    return made


def _categories(numbers: Sequence[float]) -> tuple[float, ...]:
    made = tuple(float(one) for one in numbers)
    wrong = [one for one in made if not (np.isnan(one) or float(np.float32(one)) == one)]
    if wrong:
        raise ModelError(
            f"categories must be numbers of float32, as a graph holds them, got {wrong[0]}: fit on float32"
        )
    if len(set(map(str, made))) < len(made):
        raise ModelError(f"categories must be different numbers, got {show(made)}")
    return made


def _fit(kind: object, expected: int, channels: int) -> int:
    if expected != channels:
        raise ModelError(f"{type(kind).__name__} has parameters for {expected} columns, got {channels}")
    return channels


def _check_channels(own: Sequence[int], channels: int) -> None:
    wrong = [one for one in own if not 0 <= one < channels]
    if wrong:
        raise ModelError(f"columns must be numbers from 0 to {channels - 1}, got {wrong[0]}")


def _is(x: Rows, number: float) -> "np.ndarray[tuple[int, ...], np.dtype[np.bool_]]":
    return np.isnan(x) if np.isnan(number) else x == number


def _category(number: float) -> float:
    return MISSING if np.isnan(number) else number


def _exact(number: float) -> float:
    return float(np.float32(number))
