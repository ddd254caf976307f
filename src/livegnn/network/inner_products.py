"""Recognises decoders that are inner products, of a vector of the source of an edge and one of its target.

The targets with the highest scores for a source are then those whose vectors have the largest inner products
with the source's: an index of vectors finds them without computing every score.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from livegnn.network.curves import NUMBER, Curve, constant, follow
from livegnn.network.edge_scores import EdgeScores
from livegnn.network.model import Model
from livegnn.network.operators import heads_of
from livegnn.network.steps import Step, describe, needed_steps
from livegnn.types import FloatArray

_Side: TypeAlias = frozenset[str]
_SOURCE: Final[_Side] = frozenset({"source"})
_TARGET: Final[_Side] = frozenset({"target"})
_NEITHER: Final[_Side] = frozenset()


class Factors(NamedTuple):
    """The sum of the products of a row of the source and one of the target, channel by channel, each times
    its `scale` [channels]; [1] if all have the same."""

    source: str
    target: str
    scale: FloatArray


@dataclass(frozen=True)
class InnerProduct:
    """Sums of products of rows of both ends, and numbers of the target, each times a factor. For each source,
    targets have the same order by this sum as by the score.

    products: at least one. offsets: a factor, and the value of one channel. linear: whether the score is this
    sum itself, plus a number that depends on the source alone.
    """

    products: tuple[Factors, ...]
    offsets: tuple[tuple[float, str], ...] = ()
    linear: bool = True

    @property
    def source_values(self) -> tuple[str, ...]:
        """The values whose rows, side by side and times `scales`, begin the vector of a source."""
        return tuple(factors.source for factors in self.products)

    @property
    def target_values(self) -> tuple[str, ...]:
        """The values whose rows, side by side, are the vector of a target."""
        return (*(factors.target for factors in self.products), *(name for _, name in self.offsets))

    def scales(self, widths: Sequence[int]) -> FloatArray:
        """The factors of the channels of `source_values`, side by side. widths: of these values."""
        return np.concatenate(
            [np.broadcast_to(one.scale, width) for one, width in zip(self.products, widths, strict=True)]
        )

    def times(self, factor: float) -> "InnerProduct":
        """The same score, multiplied."""
        factor32 = np.float32(factor)
        return replace(
            self,
            products=tuple(one._replace(scale=one.scale * factor32) for one in self.products),
            offsets=tuple((factor * each, name) for each, name in self.offsets),
        )


class _Reader:
    """Reads the steps of an edge output, and knows what each value is."""

    def __init__(self, scores: EdgeScores, model: Model) -> None:
        self._model = model
        self._sides: dict[str, _Side] = dict.fromkeys((*scores.sources, *scores.edge_inputs), _SOURCE)
        self._sides.update(dict.fromkeys(scores.targets, _TARGET))
        self._constants: dict[str, float] = {}
        self._unsummed: dict[str, Factors] = {}
        self._sums: dict[str, InnerProduct] = {}
        self._curves: dict[str, tuple[str, Curve]] = {}

    def read(self, step: Step) -> str | None:
        """Notes the value that a step writes. Returns None, or why it makes no inner product."""
        sides = _NEITHER.union(*(self._sides[name] for name in step.inputs))
        if step.op == "constant":
            sides = _NEITHER
            if "value" in step.attrs:
                self._constants[step.output] = step.number("value")
        self._sides[step.output] = sides
        if len(sides) < 2:
            return None
        if self._multiply(step) or self._add(step) or self._follow(step):
            if step.output in self._sums:
                self._curves[step.output] = step.output, NUMBER
            return None
        if self._bend(step):
            return None
        return f"{describe(step)}, which reads both ends of an edge, makes no inner product"

    def result(self, value: str) -> InnerProduct | str:
        """The inner product that a value is, or why it is none."""
        if self._sides[value] == _SOURCE:
            return "the score does not depend on the target"
        if value in self._sums:
            return self._sums[value]
        if value not in self._curves:
            return "the score is no sum of products of both ends"
        name, curve = self._curves[value]
        if curve.direction == 0:
            return f"the score {value!r} is not known to rise or to fall with {name!r}, an inner product"
        return replace(self._sums[name].times(curve.direction), linear=False)

    def _multiply(self, step: Step) -> bool:
        if step.op not in ("multiply", "matmul"):
            return False
        first, second = step.inputs
        sides = self._sides[first], self._sides[second]
        if set(sides) == {_SOURCE, _TARGET}:
            if sides == (_TARGET, _SOURCE):
                first, second = second, first
            factors = Factors(first, second, np.ones(1, np.float32))
            if self._model.width(first) != self._model.width(second):
                return False
            if step.op == "multiply" and self._model.width(step.output) > 1:
                self._unsummed[step.output] = factors
                return True
            if self._model.width(step.output) == 1:
                self._sums[step.output] = InnerProduct((factors,))
                return True
            return False
        for name, other in ((first, second), (second, first)):
            if step.op == "multiply" and other in self._constants and self._sides[name] != _NEITHER:
                return self._scale(name, step.output, self._constants[other])
        return False

    def _add(self, step: Step) -> bool:
        if step.op not in ("add", "subtract") or self._model.width(step.output) != 1:
            return False
        sign = 1.0 if step.op == "add" else -1.0
        parts = [self._part(step.inputs[0], 1.0), self._part(step.inputs[1], sign)]
        if parts[0] is None or parts[1] is None:
            return False
        products, offsets = (parts[0][i] + parts[1][i] for i in range(2))
        self._sums[step.output] = InnerProduct(products, offsets)  # type: ignore[arg-type]
        return True

    def _part(
        self, name: str, factor: float
    ) -> "tuple[tuple[Factors, ...], tuple[tuple[float, str], ...]] | None":
        if self._sides[name] == _TARGET:
            return (), ((factor, name),)
        if len(self._sides[name]) < 2:
            return (), ()
        found = self._sums.get(name)
        if found is None:
            return None
        scaled = found.times(factor)
        return scaled.products, scaled.offsets

    def _follow(self, step: Step) -> bool:
        """Steps on one value that reads both ends."""
        name = step.inputs[0]
        if step.op == "sum_channels" and heads_of(step.attrs) == 1:
            if name in self._unsummed:
                self._sums[step.output] = InnerProduct((self._unsummed[name],))
                return True
            return self._scale(name, step.output, 1.0)
        if step.op in ("linear", "scale_shift"):
            return self._follow_weights(step, name)
        if step.op == "scale":
            return self._scale(name, step.output, step.number("value"))
        if step.op == "neg":
            return self._scale(name, step.output, -1.0)
        if step.op == "divide" and (divisor := self._constants.get(step.inputs[1])):
            return self._scale(name, step.output, 1.0 / divisor)
        return False

    def _bend(self, step: Step) -> bool:
        """Steps on functions of one sum, and on numbers that are the same for all targets."""
        sums = {self._curves[name][0] for name in step.inputs if name in self._curves}
        if len(sums) != 1 or any(self._model.width(name) != 1 for name in (*step.inputs, step.output)):
            return False
        inputs = list[Curve]()
        for name in step.inputs:
            if name in self._curves:
                inputs.append(self._curves[name][1])
            elif self._sides[name] >= _TARGET:
                return False
            else:
                inputs.append(constant(self._constants.get(name)))
        curve = follow(step.op, inputs, self._numbers(step))
        if curve is None:
            return False
        self._curves[step.output] = sums.pop(), curve
        return True

    def _numbers(self, step: Step) -> dict[str, float]:
        """The settings of a step that are numbers, and its tensors of one number."""
        settings = {
            name: float(value) for name, value in step.attrs.items() if isinstance(value, int | float)
        }
        tensors = {role: self._model.tensors[name] for role, name in step.tensors.items()}
        return {**settings, **{role: rows.item() for role, rows in tensors.items() if rows.size == 1}}

    def _follow_weights(self, step: Step, name: str) -> bool:
        tensors = {role: self._model.tensors[tensor] for role, tensor in step.tensors.items()}
        if step.op == "linear":
            weight = tensors["weight"]
            if name in self._unsummed and weight.ndim == 2 and len(weight) == 1:
                factors = self._unsummed[name]
                self._sums[step.output] = InnerProduct((factors._replace(scale=factors.scale * weight[0]),))
                return True
            return name in self._sums and weight.size == 1 and self._scale(name, step.output, weight.item())
        if name in self._sums:
            return self._scale(name, step.output, float(tensors.get("scale", np.ones(1)).item()))
        if name in self._unsummed and "shift" not in tensors:
            factors = self._unsummed[name]
            self._unsummed[step.output] = factors._replace(scale=factors.scale * tensors["scale"])
            return True
        return False

    def _scale(self, name: str, output: str, factor: float) -> bool:
        if name in self._unsummed:
            factors = self._unsummed[name]
            self._unsummed[output] = factors._replace(scale=factors.scale * np.float32(factor))
            return True
        found = self._sums.get(name)
        if found is None or factor == 0:
            return False
        self._sums[output] = found.times(factor)
        return True


def find_inner_product(scores: EdgeScores, model: Model) -> InnerProduct | str:
    """The inner product that an edge output is, or the reason why it is none."""
    if scores.width != 1:
        return f"a score has {scores.width} channels"
    reader = _Reader(scores, model)
    for step in scores.steps:
        reason = reader.read(step)
        if reason is not None:
            return reason
    found = reader.result(scores.value)
    if isinstance(found, InnerProduct) and not found.products:
        return "the score has no product of both ends"
    return found


def inner_products(model: Model) -> Mapping[str, InnerProduct]:
    """The edge outputs of a model that are inner products, by name, in the order of ``model.edge_scores``."""
    found = {name: find_inner_product(scores, model) for name, scores in model.edge_scores.items()}
    return {name: one for name, one in found.items() if isinstance(one, InnerProduct)}


def side_steps(
    scores: EdgeScores, values: Sequence[str], width: Callable[[str], int]
) -> tuple[list[Step], str, int]:
    """The steps that write the rows of these values side by side, the value that they write, and its width.

    The values read one end of the edges alone.
    """
    steps = needed_steps(scores.steps, values)
    total = sum(map(width, values))
    last = "side by side"
    if len(values) > 1:
        return [*steps, Step("concat", tuple(values), last)], last, total
    return [*steps, Step("scale", tuple(values), last, attrs={"value": 1.0})], last, total
