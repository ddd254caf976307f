"""How torch's functions become steps, on traced tensors: rows of nodes and of edges, with heads and channels.

A function that only moves numbers about within a row is run on the numbers of its channels, which tells what
it does. A function of two tensors is preceded by what makes them of one shape. Everything else is a table.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from livegnn.errors import ModelError
from livegnn.model.adapters.traced import (
    ADVICE,
    Degree,
    Domain,
    EdgeIndex,
    EdgeValue,
    EndIndex,
    GcnNorm,
    Loops,
    NodeValue,
    Softmax,
    Symbol,
    Traced,
    Undefined,
    Writer,
    plain,
    traced_in,
)
from livegnn.model.propagation import Propagate
from livegnn.model.steps import Attribute

RowValue = NodeValue | EdgeValue
Shape = tuple[int, ...]


@dataclass
class Operations:
    """Receives what is done with traced tensors, and writes it.

    doing: the method of the layer that runs, for messages.
    """

    writer: Writer
    doing: str = "forward"

    def make(self, numbers: Tensor, symbol: Symbol) -> Traced:
        return Traced.make(numbers, symbol, self)

    def call(self, function: object, args: tuple[object, ...], kwargs: Mapping[str, object]) -> object:
        name = str(getattr(function, "__name__", function))
        if name == "__get__":
            name = str(getattr(getattr(function, "__self__", None), "__name__", name))
        assert callable(function)
        if name in _PASSIVE:
            return function(*_tuple(plain(args)), **_dict(plain(dict(kwargs))))
        base = _IN_PLACE.get(name, name)
        in_place = base != name or bool(kwargs.get("inplace", False))
        given = {key: value for key, value in kwargs.items() if key != "inplace"}
        try:
            if name == "__setitem__":
                return self._assign(*args)
            handler = _HANDLERS.get(base)
            if handler is None and base not in _MOVES:
                if any(map(_reads_numbers, (base,))):
                    raise ModelError("it depends on the numbers of all rows")
                raise ModelError("it has no counterpart among the steps of a model")
            if base != name:
                function = getattr(Tensor, base)
            numbers = function(*_tuple(plain(args)), **_dict(plain(given)))
            if handler is not None:
                symbol = handler(self, numbers, *args, **given)
            else:
                return self._move(function, args, given, numbers)
        except (ModelError, TypeError) as error:
            raise ModelError(f"the operation {name!r} in its {self.doing}: {error}; {ADVICE}") from None
        made = self.make(numbers, symbol)
        if in_place and isinstance(args[0], Traced):
            args[0].plain.copy_(numbers)
            args[0].symbol = symbol
            return args[0]
        return made

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
        inputs = [one.rows] * (1 + domain.own)
        common = {"edge_type": domain.edge_type, "skip_loops": domain.skip_loops}
        if degree.power == 1:
            operators = Propagate(**common, own_message=domain.own)  # type: ignore[arg-type]
            return self.writer.propagate(inputs, operators.to_attrs())
        of_edges = replace(degree, domain=replace(domain, own=False))
        if degree.power == -1:
            root = self.power_of_degree(replace(degree, power=-0.5))
            return _nodes(self.writer.write("multiply", root, root))
        if degree.power == 0.5 and domain.own:
            root = self.power_of_degree(replace(degree, power=-0.5))
            return _nodes(
                self.writer.write("multiply", root, self.power_of_degree(replace(degree, power=1.0)))
            )
        if degree.power == -0.5 and domain.own:
            root = self.power_of_degree(replace(of_edges, power=0.5))
            both = self.writer.write("concat", one, root)
            both = self.writer.write("l2_normalize", both, attrs={"eps": 1e-12})
            return _nodes(self._select(both, torch.tensor([0]), 2))
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

    def _select(self, value: RowValue, channels: Tensor, width: int) -> RowValue:
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
        return self._select(value, channels, math.prod(shape))

    # -- functions of one tensor

    def unary(self, x: object, op: str, **attrs: Attribute) -> RowValue:
        return self.writer.write(op, self.rows(x), attrs=attrs)

    def scaled(self, x: RowValue, factor: float) -> RowValue:
        return x if factor == 1 else self.writer.write("scale", x, attrs={"value": factor})

    def _move(
        self,
        function: Callable[..., object],
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
        numbers: object,
    ) -> object:
        """A function that moves numbers within each row, or joins rows of several tensors."""
        tensors = traced_in((args, dict(kwargs)))
        symbols = [tensor.symbol for tensor in tensors]
        if isinstance(symbols[0], EdgeIndex | EndIndex | Loops | Undefined):
            raise ModelError("it makes an edge_index that is not the graph's")
        count = len(tensors[0].plain)
        widths = [math.prod(_trailing(tensor.plain)) for tensor in tensors]
        starts = [sum(widths[:i]) for i in range(len(widths))]
        total = sum(widths)
        labels = []
        for tensor, width, start in zip(tensors, widths, starts, strict=True):
            if len(tensor.plain) != count:
                raise ModelError("it joins tensors with different numbers of rows")
            label = torch.arange(count)[:, None] * total + start + torch.arange(width)
            labels.append(label.reshape(tensor.plain.shape))
        remaining = iter(labels)
        moved = function(*_tuple(_labelled(args, remaining)), **_dict(_labelled(dict(kwargs), remaining)))
        if isinstance(moved, tuple | list):
            assert isinstance(numbers, tuple | list)
            return tuple(
                self.make(part, self._moved(symbols, label, widths, count))
                for part, label in zip(numbers, moved, strict=True)
            )
        assert isinstance(moved, Tensor) and isinstance(numbers, Tensor)
        return self.make(numbers, self._moved(symbols, moved, widths, count))

    def _moved(self, symbols: Sequence[Symbol], labels: Tensor, widths: Sequence[int], count: int) -> Symbol:
        total = sum(widths)
        if labels.ndim == 0 or len(labels) != count:
            raise ModelError(f"it must keep the rows, the first dimension, got shape {tuple(labels.shape)}")
        flat = labels.reshape(count, -1)
        if not torch.equal(flat, flat[0] + total * torch.arange(count)[:, None]):
            raise ModelError("it must move numbers within each row, and the same in all")
        channels = flat[0]
        if len(symbols) == 1 and torch.equal(channels, torch.arange(total)):
            return symbols[0]
        if len(symbols) == 1 and isinstance(symbols[0], EdgeValue) and symbols[0].scale is not None:
            moved = self._select(replace(symbols[0], scale=None), channels, total)
            return replace(_edges(moved), scale=symbols[0].scale)
        values = [self.rows(symbol) for symbol in symbols]
        joined = self.writer.write("concat", *values) if len(values) > 1 else values[0]
        return self._select(joined, channels, total)

    # -- functions of two tensors

    def add(self, numbers: Tensor, a: object, b: object, alpha: float | int = 1, sign: float = 1) -> Symbol:
        factor = alpha * sign
        if not traced_in(a):
            return self._shifted(numbers, self._times(b, factor), _number_tensor(b), a)
        if not traced_in(b):
            return self._shifted(numbers, self.rows(a), _number_tensor(a), _number_tensor(b) * factor)
        first, second = self._same_shape(numbers, a, b)
        return self.writer.write("add", first, self.scaled(second, float(factor)))

    def extreme(self, numbers: Tensor, a: object, b: object, sign: float) -> Symbol:
        first, second = (
            self._times(value, sign) if traced_in(value) else self._constant_like(numbers, value, sign)
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
        first, second = _symbol(a), _symbol(b)
        if isinstance(second, Softmax | GcnNorm):
            a, b, first, second = b, a, second, first
        if isinstance(first, GcnNorm):
            return self._normalised(numbers, a, first, b)
        if isinstance(first, Softmax):
            return self._weighted(numbers, a, first, b)
        scale = self._apart(numbers, a, b) or self._apart(numbers, b, a)
        if scale is not None:
            return scale
        for one, other in ((a, b), (b, a)):
            value, factor = _trailing(_number_tensor(one)), _trailing(_number_tensor(other))
            same_rows = _number_tensor(one).ndim == _number_tensor(other).ndim == numbers.ndim
            if same_rows and value == _trailing(numbers) and value != factor and _is_by_head(value, factor):
                symbol = _symbol(one)
                if isinstance(symbol, EdgeValue) and symbol.scale is not None:
                    made = self.writer.write("scale_heads", replace(symbol, scale=None), self.rows(other))
                    return replace(_edges(made), scale=symbol.scale)
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
        return self._multiplied_by(numbers, a, 1 / _number_tensor(b))

    def power(self, x: object, exponent: object) -> Symbol:
        if not isinstance(exponent, int | float):
            raise ModelError("the exponent must be a number")
        symbol = _symbol(x)
        if isinstance(symbol, Degree):
            return replace(symbol, power=symbol.power * exponent)
        value = self.rows(x)
        if exponent == 1:
            return value
        if exponent == 2:
            return self.writer.write("multiply", value, value)
        raise ModelError(f"the exponent must be 1 or 2, or -1 or 1/2 of a degree, got {exponent}")

    def compare(self, numbers: Tensor, a: object, b: object, equal: bool) -> Symbol:
        first, second = (_symbol(value) if isinstance(value, Traced) else value for value in (a, b))
        if isinstance(first, EndIndex) and isinstance(second, EndIndex) and first.domain == second.domain:
            if first.end != second.end:
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
            given = _number_tensor(tensor)
            if given.ndim != numbers.ndim or len(given) != len(numbers):
                raise ModelError(
                    f"it combines rows of shapes {tuple(_number_tensor(a).shape)} and "
                    f"{tuple(_number_tensor(b).shape)}, which mixes rows: give both as many dimensions"
                )
            made.append(self._spread(value, _trailing(given), _trailing(numbers)))
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
        symbol = _symbol(a)
        if isinstance(symbol, Softmax | GcnNorm):
            raise ModelError("multiply the values by it, not the coefficients")
        if bool((factor == 1).all()) and _number_tensor(a).shape == numbers.shape:
            return symbol
        scale = symbol.scale if isinstance(symbol, EdgeValue) else None
        value = replace(symbol, scale=None) if isinstance(symbol, EdgeValue) else self.rows(a)
        value = self._spread_to(numbers, value, _number_tensor(a))
        if bool((factor == factor[0]).all()):
            value = self.scaled(value, float(factor[0]))
        else:
            weights = {"scale": self._kept(constant, factor)}
            value = self.writer.write("scale_shift", value, weights=weights)
        return value if scale is None else replace(_edges(value), scale=scale)

    def _kept(self, constant: object, channels: Tensor) -> Tensor:
        """The parameter itself where it is already one number per channel, so that it keeps its name."""
        same = isinstance(constant, Tensor) and constant.shape == channels.shape
        return constant if same and isinstance(constant, Tensor) else channels

    def _spread_to(self, numbers: Tensor, value: RowValue, given: Tensor) -> RowValue:
        if given.ndim != numbers.ndim or len(given) != len(numbers):
            raise ModelError(
                f"it makes {tuple(numbers.shape)} of {tuple(given.shape)}, where rows must stay rows"
            )
        return self._spread(value, _trailing(given), _trailing(numbers))

    def _constant_like(self, numbers: Tensor, value: object, sign: float) -> Tensor:
        return _channels(value, numbers) * sign

    def _extreme_of_constant(
        self,
        numbers: Tensor,
        a: object,
        first: RowValue | Tensor,
        b: object,
        second: RowValue | Tensor,
        sign: float,
    ) -> RowValue:
        """max(x, c) = relu(x - c) + c."""
        if isinstance(first, Tensor):
            a, first, b, second = b, second, a, first
        assert isinstance(second, Tensor) and not isinstance(first, Tensor)
        value = self._shifted(numbers, first, _number_tensor(a), -second)
        value = self.writer.write("relu", value)
        if second.any():
            value = self.writer.write("scale_shift", value, weights={"shift": second})
        return self.scaled(value, sign)

    def _apart(self, numbers: Tensor, a: object, b: object) -> EdgeValue | None:
        """A number of the target times rows of edges: the number waits until they are summed."""
        factor, value = _symbol(a), _symbol(b)
        if not isinstance(factor, EdgeValue) or not isinstance(value, EdgeValue):
            return None
        if factor.domain != value.domain or factor.scale is not None or value.scale is not None:
            return None
        of_target = self.writer.gathered(factor, "target")
        shape = _number_tensor(a)
        if of_target is None or math.prod(_trailing(shape)) != 1 or shape.ndim != numbers.ndim:
            return None
        if _number_tensor(b).shape != numbers.shape or self.writer.gathered(value, "target") is not None:
            return None
        return replace(value, scale=of_target)

    def _weighted(self, numbers: Tensor, a: object, softmax: Softmax, b: object) -> Softmax:
        """A softmax times a value, head by head."""
        if isinstance(_symbol(b), Softmax | GcnNorm):
            raise ModelError("a message may have one softmax over in-edges, got two")
        value = _edges(self.rows(b))
        if value.domain != softmax.domain:
            raise ModelError("the softmax is over other edges than the message's")
        shape, given = _trailing(_number_tensor(a)), _trailing(_number_tensor(b))
        if softmax.value is not None:
            made = _symbol_of(self.multiply(numbers, self.make(_number_tensor(a), softmax.value), b))
            if math.prod(shape) != math.prod(_trailing(numbers)):
                raise ModelError("multiply the values by each other before the softmax comes to them")
            return replace(softmax, value=_edges(made))
        if _number_tensor(b).ndim != numbers.ndim or _number_tensor(a).ndim != numbers.ndim:
            raise ModelError("the softmax and the values must have as many dimensions: use unsqueeze(-1)")
        value = _edges(self._spread(value, given, _trailing(numbers)))
        if not _is_by_head(_trailing(numbers), shape):
            raise ModelError(f"the softmax must be one number a head, got {shape} for values {given}")
        return replace(softmax, value=value)

    def _normalised(self, numbers: Tensor, a: object, norm: GcnNorm, b: object) -> GcnNorm:
        value = _symbol(b)
        if norm.value is not None or not isinstance(value, EdgeValue) or value.scale is not None:
            raise ModelError("gcn_norm's weights may be multiplied once, by the row of the source")
        if math.prod(_trailing(_number_tensor(a))) != 1 or _number_tensor(b).shape != numbers.shape:
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
        given = _number_tensor(x)
        if isinstance(dim, list | tuple) and len(dim) == 1:
            dim = dim[0]
        if not isinstance(dim, int) or dim % given.ndim == 0:
            raise ModelError(f"it must work along one dimension of the channels, got dim={dim}")
        dim %= given.ndim
        before, size = math.prod(given.shape[1:dim]), int(given.shape[dim])
        after = math.prod(given.shape[dim + 1 :])
        value = self.rows(x)
        if after == 1:
            value = self.writer.write("sum_channels", value, attrs={"heads": before})
        elif before == 1:
            value = self.writer.write("sum_heads", value, attrs={"heads": size})
        else:
            last = torch.arange(before * size * after).reshape(before, size, after).transpose(1, 2)
            value = self._select(value, last, before * size * after)
            value = self.writer.write("sum_channels", value, attrs={"heads": before * after})
        return self.scaled(value, 1 / size) if mean else value

    def linear(self, numbers: Tensor, x: object, weight: object, bias: object = None) -> Symbol:
        if traced_in((weight, bias)) or not isinstance(weight, Tensor):
            raise ModelError("the weight and the bias must be parameters")
        given, heads = _number_tensor(x), 1
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
            matrix = _number_tensor(b)
            if matrix.ndim == 1 and _number_tensor(a).ndim == 2:
                matrix = matrix[:, None]
            if matrix.ndim != 2:
                raise ModelError(f"rows must be multiplied by a matrix, got shape {tuple(matrix.shape)}")
            return self.linear(numbers, a, matrix.T.contiguous())
        first, second = _number_tensor(a), _number_tensor(b)
        if first.ndim == second.ndim == 3 and first.shape[1] == 1:
            size = int(second.shape[1])  # a vector times a matrix of its own, in each row
            product = self.writer.write("scale_heads", self.rows(b), self.rows(a))
            return self.writer.write("sum_heads", product, attrs={"heads": size})
        raise ModelError("rows may be multiplied by a matrix of parameters, or [1, n] by [n, m] in each row")

    def normal(self, numbers: Tensor, x: object, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Symbol:
        if p != 2 or _number_tensor(x).ndim != 2 or dim not in (1, -1):
            raise ModelError("it must give rows [rows, channels] the length 1 (p=2, dim=-1)")
        return self.unary(x, "l2_normalize", eps=float(eps))

    def softmax(
        self,
        numbers: Tensor,
        x: object,
        dim: int | None = None,
        _stacklevel: int = 3,
        dtype: object = None,
        op: str = "softmax",
    ) -> Symbol:
        given = _number_tensor(x)
        if dim is None or dim % given.ndim != given.ndim - 1 or math.prod(given.shape[1:-1]) != 1:
            raise ModelError(
                f"it must work along the channels of [rows, channels], got dim={dim} of shape "
                f"{tuple(given.shape)}; over in-edges use torch_geometric.utils.softmax"
            )
        if given.ndim == 1:
            raise ModelError("it works along all rows: over in-edges use torch_geometric.utils.softmax")
        return self.unary(x, op)

    def layer_norm(
        self,
        numbers: Tensor,
        x: object,
        normalized_shape: Sequence[int],
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        eps: float = 1e-5,
    ) -> Symbol:
        if tuple(normalized_shape) != _trailing(_number_tensor(x)) or len(normalized_shape) != 1:
            raise ModelError("it must normalise over the channels of [rows, channels]")
        weights = {} if weight is None else {"weight": weight}
        weights |= {} if bias is None else {"bias": bias}
        return self.writer.write("layer_norm", self.rows(x), weights=weights, attrs={"eps": float(eps)})

    def batch_norm(
        self,
        numbers: Tensor,
        x: object,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Symbol:
        if training or running_mean is None or running_var is None or _number_tensor(x).ndim != 2:
            raise ModelError("it must use running statistics, on [rows, channels]")
        scale = 1 / torch.sqrt(running_var.double() + eps)
        scale = scale if weight is None else scale * weight.double()
        shift = -running_mean.double() * scale
        shift = shift if bias is None else shift + bias.double()
        weights = {"scale": scale.float(), "shift": shift.float()}
        return self.writer.write("scale_shift", self.rows(x), weights=weights)

    # -- rows of ends of edges

    def item(self, numbers: Tensor, x: object, index: object) -> Symbol | None:
        """Gathering, and rows of an edge_index; None if it is an ordinary index of channels."""
        symbol = _symbol(x) if isinstance(x, Traced) else None
        if isinstance(symbol, EdgeIndex):
            if index in (0, 1, -1, -2) and isinstance(index, int):
                return EndIndex(symbol.domain, "source" if index % 2 == 0 else "target")
            mask = index[1] if isinstance(index, tuple) and index[:1] == (slice(None),) else None
            if isinstance(mask, Traced) and isinstance(mask.symbol, Loops) and not mask.symbol.equal:
                return EdgeIndex(replace(symbol.domain, skip_loops=True))
            raise ModelError("only its rows edge_index[0] and edge_index[1] may be taken")
        if isinstance(index, Traced) and isinstance(index.symbol, EndIndex):
            value = self.rows(x)
            if not isinstance(value, NodeValue):
                raise ModelError("rows of nodes are gathered by edge_index, got rows of edges")
            return self.writer.gather(value, index.symbol.domain, index.symbol.end)
        if isinstance(index, Traced) and isinstance(index.symbol, Loops):
            value = _edges(self.rows(x))
            if not index.symbol.equal and value.domain == replace(index.symbol.domain, skip_loops=False):
                return replace(value, domain=replace(value.domain, skip_loops=True))
            if index.symbol.equal and value.domain.skip_loops and value.own is not None:
                return NodeValue(value.own)
            raise ModelError("loops can be told apart only if the layer removes the graph's and adds its own")
        return None

    def _assign(self, x: object, index: object, value: object) -> None:
        if not isinstance(x, Traced) or not isinstance(index, Traced):
            raise ModelError("it changes some of the numbers alone")
        if isinstance(index.symbol, Undefined) and isinstance(x.symbol, Degree) and value == 0:
            x.plain[index.plain] = 0
            return
        if isinstance(index.symbol, Loops) and index.symbol.equal and isinstance(x.symbol, EdgeValue):
            edges = _edges(self.rows(x))
            if edges.domain == index.symbol.domain and edges.domain.skip_loops and edges.own is not None:
                own = value.symbol if isinstance(value, Traced) else None
                if isinstance(value, int | float):
                    own = self.writer.constant(torch.full((math.prod(_trailing(x.plain)),), float(value)))
                if isinstance(own, NodeValue):
                    x.plain[index.plain] = _number_tensor(value) if isinstance(value, Traced) else value
                    x.symbol = replace(edges, own=own.rows)
                    return
        raise ModelError("it changes the numbers of some rows alone")


def _item(ops: Operations, numbers: Tensor, x: object, index: object) -> Symbol:
    found = ops.item(numbers, x, index)
    if found is not None:
        return found
    moved = ops._move(Tensor.__getitem__, (x, index), {}, numbers)
    assert isinstance(moved, Traced)
    return moved.symbol


def _index_select(ops: Operations, numbers: Tensor, x: object, dim: int, index: object) -> Symbol:
    if isinstance(index, Traced) and isinstance(x, Traced) and dim % x.plain.ndim == 0:
        return _item(ops, numbers, x, index)
    moved = ops._move(torch.index_select, (x, dim, index), {}, numbers)
    assert isinstance(moved, Traced)
    return moved.symbol


def _keep(ops: Operations, numbers: Tensor, x: object, *args: object, **kwargs: object) -> Symbol:
    return _symbol(x)


def _dropout(
    ops: Operations, numbers: Tensor, x: object, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Symbol:
    if training and p > 0:
        raise ModelError("it drops at random in evaluation mode too: call it with training=self.training")
    return _symbol(x)


def _clamp(
    ops: Operations, numbers: Tensor, x: object, min: object = None, max: object = None
) -> Symbol:
    symbol = _symbol(x)
    if isinstance(symbol, Degree) and symbol.power == 1 and min == 1 and max is None:
        return symbol  # where there are no in-edges, there are no messages either
    made: Symbol = symbol
    if min is not None:
        made = ops.extreme(numbers, ops.make(_number_tensor(x), made), min, 1.0)
    if max is not None:
        made = ops.extreme(numbers, ops.make(_number_tensor(x), made), max, -1.0)
    return made


def _masked_fill(ops: Operations, numbers: Tensor, x: object, mask: object, value: object) -> Symbol:
    symbol = _symbol(x)
    if isinstance(mask, Traced) and isinstance(mask.symbol, Undefined) and value == 0:
        if isinstance(symbol, Degree):
            return symbol
    raise ModelError("it changes the numbers of some rows alone")


def _undefined(ops: Operations, numbers: Tensor, x: object) -> Symbol:
    return ops.compare(numbers, x, math.inf, True)


def _where(ops: Operations, numbers: Tensor, mask: object, a: object, b: object) -> Symbol:
    return _masked_fill(ops, numbers, b, mask, plain(a) if not isinstance(a, Tensor) else float(a))


def _silu(ops: Operations, numbers: Tensor, x: object) -> Symbol:
    return ops.writer.write("multiply", ops.rows(x), ops.unary(x, "sigmoid"))


def _abs(ops: Operations, numbers: Tensor, x: object) -> Symbol:
    return ops.writer.write("maximum", ops.rows(x), ops.scaled(ops.rows(x), -1.0))


def _prelu(ops: Operations, numbers: Tensor, x: object, weight: Tensor) -> Symbol:
    if weight.numel() != 1:
        raise ModelError(f"it must have one slope for all channels, got {weight.numel()}")
    return ops.unary(x, "leaky_relu", slope=float(weight))


_Handler = Callable[..., Symbol]

_HANDLERS: Mapping[str, _Handler] = {
    **{
        name: lambda ops, numbers, x, op=name: ops.unary(x, op)
        for name in ("relu", "sigmoid", "tanh", "exp")
    },
    "leaky_relu": lambda ops, numbers, x, negative_slope=0.01: ops.unary(
        x, "leaky_relu", slope=float(negative_slope)
    ),
    "elu": lambda ops, numbers, x, alpha=1.0: ops.unary(x, "elu", alpha=float(alpha)),
    "gelu": lambda ops, numbers, x, approximate="none": ops.unary(x, "gelu", approximate=approximate),
    "silu": _silu,
    "prelu": _prelu,
    "abs": _abs,
    "neg": lambda ops, numbers, x: ops.scaled(ops.rows(x), -1.0),
    "square": lambda ops, numbers, x: ops.power(x, 2),
    "sqrt": lambda ops, numbers, x: ops.power(x, 0.5),
    "rsqrt": lambda ops, numbers, x: ops.power(x, -0.5),
    "reciprocal": lambda ops, numbers, x: ops.power(x, -1.0),
    "pow": lambda ops, numbers, x, exponent: ops.power(x, exponent),
    "add": lambda ops, numbers, input, other, alpha=1: ops.add(numbers, input, other, alpha),
    "sub": lambda ops, numbers, input, other, alpha=1: ops.add(numbers, input, other, alpha, -1.0),
    "__rsub__": lambda ops, numbers, x, other: ops.add(numbers, other, x, 1, -1.0),
    "mul": lambda ops, numbers, input, other: ops.multiply(numbers, input, other),
    "div": lambda ops, numbers, input, other: ops.divide(numbers, input, other),
    "__rdiv__": lambda ops, numbers, x, other: ops.divide(numbers, other, x),
    "maximum": lambda ops, numbers, a, b: ops.extreme(numbers, a, b, 1.0),
    "minimum": lambda ops, numbers, a, b: ops.extreme(numbers, a, b, -1.0),
    "clamp": _clamp,
    "eq": lambda ops, numbers, a, b: ops.compare(numbers, a, b, True),
    "__eq__": lambda ops, numbers, a, b: ops.compare(numbers, a, b, True),
    "ne": lambda ops, numbers, a, b: ops.compare(numbers, a, b, False),
    "__ne__": lambda ops, numbers, a, b: ops.compare(numbers, a, b, False),
    "isinf": _undefined,
    "where": _where,
    "masked_fill": _masked_fill,
    "sum": lambda ops, numbers, *args, **kwargs: ops.total(numbers, *args, **kwargs),
    "mean": lambda ops, numbers, *args, **kwargs: ops.total(numbers, *args, **kwargs, mean=True),
    "linear": lambda ops, numbers, *args, **kwargs: ops.linear(numbers, *args, **kwargs),
    "matmul": lambda ops, numbers, a, b: ops.matmul(numbers, a, b),
    "mm": lambda ops, numbers, a, b: ops.matmul(numbers, a, b),
    "bmm": lambda ops, numbers, a, b: ops.matmul(numbers, a, b),
    "normalize": lambda ops, numbers, *args, **kwargs: ops.normal(numbers, *args, **kwargs),
    "softmax": lambda ops, numbers, *args, **kwargs: ops.softmax(numbers, *args, **kwargs),
    "log_softmax": lambda ops, numbers, *args, **kwargs: ops.softmax(
        numbers, *args, **kwargs, op="log_softmax"
    ),
    "layer_norm": lambda ops, numbers, *args, **kwargs: ops.layer_norm(numbers, *args, **kwargs),
    "batch_norm": lambda ops, numbers, *args, **kwargs: ops.batch_norm(numbers, *args, **kwargs),
    "dropout": _dropout,
    "alpha_dropout": _dropout,
    "__getitem__": _item,
    "index_select": _index_select,
    **dict.fromkeys(("clone", "contiguous", "detach", "float", "to", "type_as", "requires_grad_"), _keep),
}

_MOVES = frozenset(
    "view reshape flatten unflatten squeeze unsqueeze transpose permute t T mT swapaxes movedim expand "
    "expand_as view_as reshape_as repeat repeat_interleave chunk split unbind select narrow flip roll "
    "cat concat concatenate stack hstack tile diagonal".split()
)
"""Functions that move numbers about and compute none."""

_PASSIVE = frozenset(
    "shape size dim ndim ndimension numel nelement dtype device layout is_sparse is_floating_point is_cuda "
    "is_contiguous is_leaf requires_grad grad grad_fn __len__ stride element_size get_device type "
    "is_quantized is_nested is_meta is_complex itemsize names new_ones new_zeros new_full new_empty new_tensor "
    "zeros_like ones_like full_like empty_like _backward_hooks __repr__ __hash__".split()
)
"""What does not depend on the numbers."""

_IN_PLACE: Mapping[str, str] = {
    **{f"{name}_": name for name in _HANDLERS if not name.endswith("_")},
    **{f"__i{name}__": name for name in ("add", "sub", "mul")},
    "__itruediv__": "div",
}


def _reads_numbers(name: str) -> bool:
    return name in ("__bool__", "__int__", "__float__", "item", "tolist", "max", "min", "any", "all", "numpy")


def _tuple(value: object) -> tuple[object, ...]:
    assert isinstance(value, tuple)
    return value


def _dict(value: object) -> dict[str, object]:
    assert isinstance(value, dict)
    return value


def _labelled(value: object, labels: "object") -> object:
    """The same arguments, with labels in the place of traced tensors, in their order."""
    if isinstance(value, Traced):
        return next(labels)  # type: ignore[call-overload]
    if isinstance(value, tuple | list):
        return type(value)(_labelled(part, labels) for part in value)
    if isinstance(value, dict):
        return {key: _labelled(part, labels) for key, part in value.items()}
    return value


def _symbol(value: object) -> Symbol:
    assert isinstance(value, Traced)
    return value.symbol


def _symbol_of(value: Symbol) -> Symbol:
    return value


def _nodes(value: Symbol) -> NodeValue:
    assert isinstance(value, NodeValue)
    return value


def _edges(value: Symbol) -> EdgeValue:
    if not isinstance(value, EdgeValue):
        raise ModelError(f"must have a row for every edge, got {_in_words(value)}")
    return value


def _number_tensor(value: object) -> Tensor:
    if isinstance(value, Traced):
        return value.plain
    return value if isinstance(value, Tensor) else torch.tensor(float(value))  # type: ignore[arg-type]


def _trailing(tensor: Tensor) -> Shape:
    return tuple(tensor.shape[1:])


def _channels(constant: object, numbers: Tensor) -> Tensor:
    """A constant as one number for each channel of a result; it must be the same in all rows."""
    tensor = _number_tensor(constant)
    if tensor.ndim == numbers.ndim and len(tensor) > 1:
        if not bool((tensor == tensor[:1]).all()):
            raise ModelError("a constant must be the same for all nodes or edges: make it part of the features")
        tensor = tensor[:1]
    if tensor.ndim == numbers.ndim and tensor.ndim > 0:
        tensor = tensor[0]
    return tensor.broadcast_to(_trailing(numbers)).reshape(-1).float()


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


__all__ = ["Domain", "Operations"]
