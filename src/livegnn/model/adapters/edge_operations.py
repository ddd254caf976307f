"""How torch's functions become steps, on traced tensors: rows of nodes and of edges, with heads and channels.

A function of two tensors is preceded by what makes them of one shape. A value of some dimensions has all its
channels side by side, row-major, so most of what changes dimensions alone takes no step.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from livegnn.errors import ModelError
from livegnn.model.adapters.traced import (
    Degree,
    EdgeIndex,
    EdgeValue,
    End,
    EndIndex,
    GcnNorm,
    Loops,
    NodeValue,
    Softmax,
    Symbol,
    Traced,
    Undefined,
    Writer,
    traced_in,
)
from livegnn.model.operators import Attribute
from livegnn.model.propagation import Propagate

RowValue = NodeValue | EdgeValue
Shape = tuple[int, ...]
_OTHER: dict[End, End] = {"source": "target", "target": "source"}


@dataclass
class Operations(ABC):
    """Arithmetic on traced tensors.

    doing: the method of the layer that runs, for messages.
    """

    writer: Writer
    doing: str = "forward"

    def make(self, numbers: Tensor, symbol: Symbol) -> Traced:
        return Traced.make(numbers, symbol, self)

    @abstractmethod
    def call(self, function: object, args: tuple[object, ...], kwargs: Mapping[str, object]) -> object:
        """What becomes of a function of torch that is applied to traced tensors."""

    # -- values

    def rows(self, value: object) -> RowValue:
        """What a traced tensor stands for, if it has a row for every node or edge."""
        symbol = value.symbol if isinstance(value, Traced) else value
        if isinstance(symbol, Degree):
            return self.power_of_degree(symbol)
        if isinstance(symbol, EdgeValue):
            return self.writer.multiplied_out(symbol)
        if isinstance(symbol, NodeValue):
            return symbol
        raise ModelError(f"must be applied to rows of nodes or edges, got {_in_words(symbol)}")

    def power_of_degree(self, degree: Degree) -> NodeValue:
        """A degree and its powers 1, 1/2, -1/2 and -1.

        sqrt(c) is the sum of c ones, normalised by c^-1/2; c^-1/2 is the maximum of c ones, normalised so.
        With a loop of one's own, c = d + 1 with d edges: (1, sqrt(d)) of length 1 begins with c^-1/2.
        """
        domain, one = degree.domain, self.writer.constant(torch.ones(1))
        if degree.floor and not domain.own:
            some = self.power_of_degree(replace(degree, floor=False))
            operators = Propagate(domain.edge_type, aggregate="max", skip_loops=domain.skip_loops)
            reached = self.writer.propagate([one.rows], operators.to_attrs())
            lacking = self.writer.write("add", one, self.scaled(reached, -1.0))
            return nodes_of(self.writer.write("add", some, lacking))
        inputs = [one.rows] * (1 + domain.own)
        common = {"edge_type": domain.edge_type, "skip_loops": domain.skip_loops}
        if degree.power == 1:
            operators = Propagate(**common, own_message=domain.own)  # type: ignore[arg-type]
            return self.writer.propagate(inputs, operators.to_attrs())
        of_edges = Degree(replace(domain, own=False), degree.power)
        if degree.power == -1:
            root = self.power_of_degree(replace(degree, power=-0.5))
            return nodes_of(self.writer.write("multiply", root, root))
        if degree.power == 0.5 and domain.own:
            root = self.power_of_degree(replace(degree, power=-0.5))
            return nodes_of(
                self.writer.write("multiply", root, self.power_of_degree(replace(degree, power=1.0)))
            )
        if degree.power == -0.5 and domain.own:
            root = self.power_of_degree(replace(of_edges, power=0.5))
            both = self.writer.write("concat", one, root)
            both = self.writer.write("l2_normalize", both, attrs={"eps": 1e-12})
            return nodes_of(self.select(both, torch.tensor([0]), 2))
        if degree.power in (0.5, -0.5):
            aggregate = "sum" if degree.power == 0.5 else "max"
            operators = Propagate(
                **common,  # type: ignore[arg-type]
                neighbor_context="count",
                combine="rsqrt",
                aggregate=aggregate,  # type: ignore[arg-type]
            )
            return self.writer.propagate(inputs[:1], operators.to_attrs())
        raise ModelError(f"a degree may be taken to the power 1, -1, 1/2 or -1/2, got {degree.power}")

    def select(self, value: RowValue, channels: Tensor, width: int) -> RowValue:
        """These channels of a value, one after the other."""
        channels = channels.reshape(-1)
        if torch.equal(channels, torch.arange(width)):
            return value
        weight = torch.zeros(len(channels), width)
        weight[torch.arange(len(channels)), channels] = 1
        return self.writer.write("linear", value, weights={"weight": weight})

    def _spread(self, value: RowValue, shape: Shape, wanted: Shape) -> RowValue:
        """A value of rows of `shape`, repeated where `wanted` has more."""
        if shape == wanted:
            return value
        channels = torch.arange(math.prod(shape)).reshape(shape).broadcast_to(wanted)
        return self.select(value, channels, math.prod(shape))

    # -- functions of one tensor

    def unary(self, x: object, op: str, **attrs: Attribute) -> RowValue:
        return self.writer.write(op, self.rows(x), attrs=attrs)

    def scaled(self, x: RowValue, factor: float) -> RowValue:
        return x if factor == 1 else self.writer.write("scale", x, attrs={"value": factor})

    # -- functions of two tensors

    def add(self, numbers: Tensor, a: object, b: object, alpha: float | int = 1, sign: float = 1) -> Symbol:
        factor = alpha * sign
        if not traced_in(a):
            return self._shifted(numbers, self._times(b, factor), numbers_of(b), a)
        if not traced_in(b):
            return self._shifted(numbers, self.rows(a), numbers_of(a), numbers_of(b) * factor)
        first, second = self._same_shape(numbers, a, b)
        return self.writer.write("add", first, self.scaled(second, float(factor)))

    def extreme(self, numbers: Tensor, a: object, b: object, sign: float) -> Symbol:
        first, second = (
            self._times(value, sign) if traced_in(value) else _channels(value, numbers) * sign
            for value in (a, b)
        )
        if isinstance(first, Tensor) or isinstance(second, Tensor):
            return self._extreme_of_constant(numbers, a, first, b, second, sign)
        first, second = self._same_shape(numbers, a, b, (first, second))
        return self.scaled(self.writer.write("maximum", first, second), sign)

    def multiply(self, numbers: Tensor, a: object, b: object) -> Symbol:
        if not traced_in(a):
            a, b = b, a
        if not traced_in(b):
            return self._multiplied_by(numbers, a, b)
        first, second = symbol_of(a), symbol_of(b)
        if isinstance(second, Softmax | GcnNorm):
            a, b, first, second = b, a, second, first
        if isinstance(first, GcnNorm):
            return self._normalised(numbers, a, first, b)
        if isinstance(first, Softmax):
            return self._weighted(numbers, a, first, b)
        scales = [value.scale for value in (first, second) if isinstance(value, EdgeValue) and value.scale]
        if scales:
            made = edges_of(self.multiply(numbers, self._unscaled(a), self._unscaled(b)))
            scales += [made.scale] if made.scale is not None else []
            together = NodeValue(scales[0])
            for scale in scales[1:]:
                together = nodes_of(self.writer.write("multiply", together, NodeValue(scale)))
            return replace(made, scale=together.rows)
        apart = self._apart(numbers, a, b) or self._apart(numbers, b, a)
        if apart is not None:
            return apart
        for one, other in ((a, b), (b, a)):
            value, factor = trailing(numbers_of(one)), trailing(numbers_of(other))
            same_rows = numbers_of(one).ndim == numbers_of(other).ndim == numbers.ndim
            if same_rows and value == trailing(numbers) and value != factor and _is_by_head(value, factor):
                return self.writer.write("scale_heads", self.rows(one), self.rows(other))
        return self.writer.write("multiply", *self._same_shape(numbers, a, b))

    def divide(self, numbers: Tensor, a: object, b: object) -> Symbol:
        if isinstance(b, Traced):
            if not isinstance(b.symbol, Degree):
                raise ModelError(
                    "it divides by rows of nodes or edges: divide by a number or a parameter, use "
                    "torch_geometric.utils.softmax where it normalises over in-edges"
                )
            inverse = self.make(_safe_power(b.plain, -1.0), replace(b.symbol, power=-b.symbol.power))
            if isinstance(a, int | float) and a == 1:
                return inverse.symbol
            return self.multiply(numbers, a, inverse)
        return self._multiplied_by(numbers, a, 1 / numbers_of(b))

    def power(self, x: object, exponent: object) -> Symbol:
        if not isinstance(exponent, int | float):
            raise ModelError("the exponent must be a number")
        symbol = symbol_of(x)
        if isinstance(symbol, Degree):
            return replace(symbol, power=symbol.power * exponent)
        value = self.rows(x)
        if exponent == 1:
            return value
        if exponent == 2:
            return self.writer.write("multiply", value, value)
        raise ModelError(f"the exponent must be 1 or 2, or -1 or 1/2 of a degree, got {exponent}")

    def compare(self, numbers: Tensor, a: object, b: object, equal: bool) -> Symbol:
        first, second = (symbol_of(value) if isinstance(value, Traced) else value for value in (a, b))
        if isinstance(first, EndIndex) and second == replace(first, end=_OTHER[first.end]):
            return Loops(first.domain, equal)
        if isinstance(first, Degree) and equal and second == math.inf:
            return Undefined()
        raise ModelError("it depends on the numbers of rows")

    def _same_shape(
        self, numbers: Tensor, a: object, b: object, values: Sequence[RowValue] | None = None
    ) -> tuple[RowValue, RowValue]:
        found = values or (self.rows(a), self.rows(b))
        made = []
        for tensor, value in zip((a, b), found, strict=True):
            given = numbers_of(tensor)
            if given.ndim != numbers.ndim or len(given) != len(numbers):
                raise ModelError(
                    f"it combines rows of shapes {tuple(numbers_of(a).shape)} and "
                    f"{tuple(numbers_of(b).shape)}, which mixes rows: give both as many dimensions"
                )
            made.append(self._spread(value, trailing(given), trailing(numbers)))
        return made[0], made[1]

    def _times(self, x: object, factor: float) -> RowValue:
        return self.scaled(self.rows(x), float(factor))

    def _shifted(self, numbers: Tensor, value: RowValue, given: Tensor, constant: object) -> RowValue:
        shift = _channels(constant, numbers)
        value = self._spread_to(numbers, value, given)
        if not shift.any():
            return value
        return self.writer.write("scale_shift", value, weights={"shift": self._kept(constant, shift)})

    def _multiplied_by(self, numbers: Tensor, a: object, constant: object) -> Symbol:
        factor = _channels(constant, numbers)
        symbol = symbol_of(a)
        if isinstance(symbol, Softmax | GcnNorm):
            raise ModelError("multiply the values by it, not the coefficients")
        if bool((factor == 1).all()) and numbers_of(a).shape == numbers.shape:
            return symbol
        scale = symbol.scale if isinstance(symbol, EdgeValue) else None
        value = replace(symbol, scale=None) if isinstance(symbol, EdgeValue) else self.rows(a)
        value = self._spread_to(numbers, value, numbers_of(a))
        if bool((factor == factor[0]).all()):
            value = self.scaled(value, float(factor[0]))
        else:
            weights = {"scale": self._kept(constant, factor)}
            value = self.writer.write("scale_shift", value, weights=weights)
        return value if scale is None else replace(edges_of(value), scale=scale)

    def _kept(self, constant: object, channels: Tensor) -> Tensor:
        """The parameter itself where it is already one number per channel, so that it keeps its name."""
        same = isinstance(constant, Tensor) and constant.shape == channels.shape
        return constant if same and isinstance(constant, Tensor) else channels

    def _spread_to(self, numbers: Tensor, value: RowValue, given: Tensor) -> RowValue:
        if given.ndim != numbers.ndim or len(given) != len(numbers):
            raise ModelError(
                f"it makes {tuple(numbers.shape)} of {tuple(given.shape)}, where rows must stay rows"
            )
        return self._spread(value, trailing(given), trailing(numbers))

    def _extreme_of_constant(
        self,
        numbers: Tensor,
        a: object,
        first: RowValue | Tensor,
        b: object,
        second: RowValue | Tensor,
        sign: float,
    ) -> RowValue:
        """The larger of x and a row that is the same for all: 0 * x + c, as x - c and back would round x."""
        if isinstance(first, Tensor):
            a, first, b, second = b, second, a, first
        assert isinstance(second, Tensor)
        assert not isinstance(first, Tensor)
        value = self._spread_to(numbers, first, numbers_of(a))
        if not second.any():
            return self.scaled(self.writer.write("relu", value), sign)
        weights = {"weight": torch.zeros(len(second), len(second)), "bias": second}
        constant = self.writer.write("linear", value, weights=weights)
        return self.scaled(self.writer.write("maximum", value, constant), sign)

    def _unscaled(self, x: object) -> Traced:
        symbol = symbol_of(x)
        return self.make(
            numbers_of(x), replace(symbol, scale=None) if isinstance(symbol, EdgeValue) else symbol
        )

    def _apart(self, numbers: Tensor, a: object, b: object) -> EdgeValue | None:
        """A number of the target times rows of edges: the number waits until they are summed."""
        factor, value = symbol_of(a), symbol_of(b)
        if not isinstance(factor, EdgeValue) or not isinstance(value, EdgeValue):
            return None
        if factor.domain != value.domain:
            return None
        of_target = self.writer.gathered(factor, "target")
        shape = numbers_of(a)
        if of_target is None or math.prod(trailing(shape)) != 1 or shape.ndim != numbers.ndim:
            return None
        if numbers_of(b).shape != numbers.shape or self.writer.gathered(value, "target") is not None:
            return None
        return replace(value, scale=of_target)

    def _weighted(self, numbers: Tensor, a: object, softmax: Softmax, b: object) -> Softmax:
        """A softmax times a value, head by head."""
        if isinstance(symbol_of(b), Softmax | GcnNorm):
            raise ModelError("a message may have one softmax over in-edges, got two")
        value = edges_of(self.rows(b))
        if value.domain != softmax.domain:
            raise ModelError("the softmax is over other edges than the message's")
        shape, given = trailing(numbers_of(a)), trailing(numbers_of(b))
        if softmax.value is not None:
            made = self.multiply(numbers, self.make(numbers_of(a), softmax.value), b)
            if math.prod(shape) != math.prod(trailing(numbers)):
                raise ModelError("multiply the values by each other before the softmax comes to them")
            return replace(softmax, value=edges_of(made))
        if numbers_of(b).ndim != numbers.ndim or numbers_of(a).ndim != numbers.ndim:
            raise ModelError("the softmax and the values must have as many dimensions: use unsqueeze(-1)")
        value = edges_of(self._spread(value, given, trailing(numbers)))
        if not _is_by_head(trailing(numbers), shape):
            raise ModelError(f"the softmax must be one number a head, got {shape} for values {given}")
        return replace(softmax, value=value)

    def _normalised(self, numbers: Tensor, a: object, norm: GcnNorm, b: object) -> GcnNorm:
        value = symbol_of(b)
        if norm.value is not None or not isinstance(value, EdgeValue) or value.scale is not None:
            raise ModelError("gcn_norm's weights may be multiplied once, by the row of the source")
        if math.prod(trailing(numbers_of(a))) != 1 or numbers_of(b).shape != numbers.shape:
            raise ModelError("gcn_norm's weights must multiply rows as they are: use norm.view(-1, 1) * x_j")
        if self.writer.gathered(value, "source") is None or value.domain != norm.domain:
            raise ModelError("gcn_norm's weights must multiply what depends on the source alone")
        return replace(norm, value=value)

    # -- sums of channels, products with matrices

    def total(
        self,
        numbers: Tensor,
        x: object,
        dim: object = None,
        keepdim: bool = False,
        dtype: object = None,
        mean: bool = False,
    ) -> Symbol:
        given = numbers_of(x)
        if isinstance(dim, list | tuple) and len(dim) == 1:
            (dim,) = dim
        if not isinstance(dim, int) or dim % given.ndim == 0:
            raise ModelError(f"it must work along one dimension of the channels, got dim={dim}")
        place = dim % given.ndim
        before, size = math.prod(given.shape[1:place]), int(given.shape[place])
        after = math.prod(given.shape[place + 1 :])
        value = self.rows(x)
        if after == 1:
            value = self.writer.write("sum_channels", value, attrs={"heads": before})
        elif before == 1:
            value = self.writer.write("sum_heads", value, attrs={"heads": size})
        else:
            last = torch.arange(before * size * after).reshape(before, size, after).transpose(1, 2)
            value = self.select(value, last, before * size * after)
            value = self.writer.write("sum_channels", value, attrs={"heads": before * after})
        return self.scaled(value, 1 / size) if mean else value

    def linear(self, numbers: Tensor, x: object, weight: object, bias: object = None) -> Symbol:
        if traced_in((weight, bias)) or not isinstance(weight, Tensor):
            raise ModelError("the weight and the bias must be parameters")
        given, heads = numbers_of(x), 1
        if given.ndim > 2:
            heads = math.prod(given.shape[1:-1])
            if heads > 1:
                weight = torch.block_diag(*[weight] * heads)
                bias = bias.repeat(heads) if isinstance(bias, Tensor) else None
        weights = {"weight": weight} | ({"bias": bias} if isinstance(bias, Tensor) else {})
        return self.writer.write("linear", self.rows(x), weights=weights)

    def matmul(self, numbers: Tensor, a: object, b: object) -> Symbol:
        if not traced_in(a):
            raise ModelError("rows must stand left of the matrix: x @ weight")
        if not traced_in(b):
            matrix = numbers_of(b)
            if matrix.ndim == 1 and numbers_of(a).ndim == 2:
                matrix = matrix[:, None]
            if matrix.ndim != 2:
                raise ModelError(f"rows must be multiplied by a matrix, got shape {tuple(matrix.shape)}")
            return self.linear(numbers, a, matrix.T.contiguous())
        first, second = numbers_of(a), numbers_of(b)
        if first.ndim == second.ndim == 3 and first.shape[1] == 1:
            size = int(second.shape[1])  # a vector times a matrix of its own, in each row
            product = self.writer.write("scale_heads", self.rows(b), self.rows(a))
            return self.writer.write("sum_heads", product, attrs={"heads": size})
        raise ModelError("rows may be multiplied by a matrix of parameters, or [1, n] by [n, m] in each row")


def symbol_of(value: object) -> Symbol:
    assert isinstance(value, Traced)
    return value.symbol


def nodes_of(value: Symbol) -> NodeValue:
    assert isinstance(value, NodeValue)
    return value


def edges_of(value: Symbol) -> EdgeValue:
    if not isinstance(value, EdgeValue):
        raise ModelError(f"must have a row for every edge, got {_in_words(value)}")
    return value


def numbers_of(value: object) -> Tensor:
    if isinstance(value, Traced):
        return value.plain
    return value if isinstance(value, Tensor) else torch.tensor(float(value))  # type: ignore[arg-type]


def trailing(tensor: Tensor) -> Shape:
    return tuple(tensor.shape[1:])


def _channels(constant: object, numbers: Tensor) -> Tensor:
    """A constant as one number for each channel of a result; it must be the same in all rows."""
    tensor = numbers_of(constant)
    if tensor.ndim == numbers.ndim and len(tensor) > 1:
        if not bool((tensor == tensor[:1]).all()):
            raise ModelError(
                "a constant must be the same for all nodes or edges: make it part of the features"
            )
        tensor = tensor[:1]
    if tensor.ndim == numbers.ndim and tensor.ndim > 0:
        tensor = tensor[0]
    return tensor.broadcast_to(trailing(numbers)).reshape(-1).float()


def _is_by_head(value: Shape, factor: Shape) -> bool:
    """Whether a factor is one number for each of the value's heads: equal dimensions, then ones."""
    equal = next((i for i, (v, f) in enumerate(zip(value, factor, strict=True)) if v != f), len(value))
    return all(size == 1 for size in factor[equal:])


def _safe_power(tensor: Tensor, exponent: float) -> Tensor:
    return torch.where(tensor == 0, torch.zeros_like(tensor), tensor**exponent)


def _in_words(symbol: object) -> str:
    words = {
        EdgeIndex: "an edge_index",
        EndIndex: "a row of an edge_index",
        EdgeValue: "rows of edges",
        NodeValue: "rows of nodes",
        Softmax: "a softmax over in-edges, which may only be multiplied by values and summed over the edges",
        GcnNorm: "the weights of gcn_norm, which may only be multiplied by the source's row and summed",
        Degree: "a degree",
        Undefined: "a mask",
        Loops: "a mask of loops",
    }
    return words.get(type(symbol), type(symbol).__name__)
