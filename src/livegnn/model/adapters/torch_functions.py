"""What becomes of the functions of torch that are applied to traced tensors.

A function that only moves numbers about within a row is run on the numbers of its channels, which tells what
it does. The others are in a table.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from livegnn.errors import ModelError
from livegnn.model.adapters.edge_operations import (
    Operations,
    RowValue,
    edges_of,
    nodes_of,
    numbers_of,
    symbol_of,
    trailing,
)
from livegnn.model.adapters.traced import (
    ADVICE,
    Degree,
    EdgeIndex,
    EdgeValue,
    End,
    EndIndex,
    Loops,
    NodeValue,
    Symbol,
    Traced,
    Undefined,
    plain,
    traced_in,
)


class Recorder(Operations):
    """Receives what is done with traced tensors, and writes it."""

    def call(self, function: object, args: tuple[object, ...], kwargs: Mapping[str, object]) -> object:
        name = str(getattr(function, "__name__", function))
        if name == "__get__":
            name = str(getattr(getattr(function, "__self__", None), "__name__", name))
        base = _IN_PLACE.get(name, name)
        in_place = base != name or bool(kwargs.get("inplace", False))
        compute: Callable[..., object] = getattr(Tensor, base) if base != name else function  # type: ignore
        given = {key: value for key, value in kwargs.items() if key != "inplace"}
        if name in _PASSIVE:
            return compute(*_tuple(plain(args)), **_dict(plain(given)))
        try:
            if name == "__setitem__":
                self._assign(*args)
                return None
            handler = _HANDLERS.get(base)
            if handler is None and base not in _MOVES:
                if base in _READS:
                    raise ModelError("it depends on the numbers of all rows")
                raise ModelError("it has no counterpart among the steps of a model")
            numbers = compute(*_tuple(plain(args)), **_dict(plain(given)))
            if handler is None:
                return self.move(compute, args, given, numbers)
            assert isinstance(numbers, Tensor)
            symbol = handler(self, numbers, *args, **given)
        except (ModelError, TypeError) as error:
            raise ModelError(f"the operation {name!r} in its {self.doing}: {error}; {ADVICE}") from None
        made = self.make(numbers, symbol)
        if in_place and isinstance(args[0], Traced):
            args[0].plain.copy_(numbers)
            args[0].symbol = symbol
            return args[0]
        return made

    # -- functions of whole rows

    def gru_cell(
        self,
        numbers: Tensor,
        x: object,
        hidden: object,
        of_x: Tensor,
        of_hidden: Tensor,
        bias_of_x: Tensor | None = None,
        bias_of_hidden: Tensor | None = None,
    ) -> Symbol:
        """torch's GRUCell: h' = n + z * (h - n), where n reads the hidden state through the gate r."""
        state = self.rows(hidden)

        def gate(value: RowValue, weight: Tensor, bias: Tensor | None, part: int) -> RowValue:
            weights = {"weight": weight.chunk(3)[part].contiguous()}
            weights |= {} if bias is None else {"bias": bias.chunk(3)[part].contiguous()}
            return self.writer.write("linear", value, weights=weights)

        def both(part: int) -> tuple[RowValue, RowValue]:
            return (
                gate(self.rows(x), of_x, bias_of_x, part),
                gate(state, of_hidden, bias_of_hidden, part),
            )

        reset, renew = (self.writer.write("sigmoid", self.writer.write("add", *both(i))) for i in (0, 1))
        new, memory = both(2)
        new = self.writer.write("add", new, self.writer.write("multiply", reset, memory))
        new = self.writer.write("tanh", new)
        kept = self.writer.write("add", state, self.scaled(new, -1.0))
        return self.writer.write("add", new, self.writer.write("multiply", renew, kept))

    def normal(self, numbers: Tensor, x: object, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Symbol:
        if p != 2 or numbers_of(x).ndim != 2 or dim not in (1, -1):
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
        given = numbers_of(x)
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
        if tuple(normalized_shape) != trailing(numbers_of(x)) or len(normalized_shape) != 1:
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
        if training or running_mean is None or running_var is None or numbers_of(x).ndim != 2:
            raise ModelError("it must use running statistics, on [rows, channels]")
        scale = 1 / torch.sqrt(running_var.double() + eps)
        scale = scale if weight is None else scale * weight.double()
        shift = -running_mean.double() * scale
        shift = shift if bias is None else shift + bias.double()
        weights = {"scale": scale.float(), "shift": shift.float()}
        return self.writer.write("scale_shift", self.rows(x), weights=weights)

    # -- moving numbers

    def move(
        self,
        function: Callable[..., object],
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
        numbers: object,
    ) -> object:
        """A function that moves numbers within each row, or joins rows of several tensors."""
        if args and isinstance(args[0], tuple | list):
            args = (self._all_traced(args[0]), *args[1:])
        tensors = traced_in((args, dict(kwargs)))
        symbols = [tensor.symbol for tensor in tensors]
        if isinstance(symbols[0], EdgeIndex) and isinstance(numbers, tuple) and len(numbers) == 2:
            ends: tuple[End, End] = ("source", "target")  # row, col = edge_index
            domain = symbols[0].domain
            return tuple(
                self.make(part, EndIndex(domain, end)) for part, end in zip(numbers, ends, strict=True)
            )
        if isinstance(symbols[0], EdgeIndex | EndIndex | Loops | Undefined):
            raise ModelError("it makes an edge_index that is not the graph's")
        count = len(tensors[0].plain)
        widths = [math.prod(trailing(tensor.plain)) for tensor in tensors]
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
        assert isinstance(moved, Tensor)
        assert isinstance(numbers, Tensor)
        return self.make(numbers, self._moved(symbols, moved, widths, count))

    def _all_traced(self, tensors: Sequence[object]) -> list[object]:
        """Tensors that are to be joined; a constant, the same in all rows, as a value of the model."""
        like = traced_in(tensors)[0]
        made: list[object] = []
        for tensor in tensors:
            if isinstance(tensor, Tensor) and not isinstance(tensor, Traced):
                if len(tensor) != len(like.plain) or not bool((tensor == tensor[:1]).all()):
                    raise ModelError("a constant must be the same for all nodes or edges")
                value: RowValue = self.writer.constant(tensor[0].reshape(-1).float())
                rows = self.rows(like)
                if isinstance(rows, EdgeValue):
                    value = self.writer.gather(nodes_of(value), rows.domain, "source")
                tensor = self.make(tensor, value)
            made.append(tensor)
        return made

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
            moved = self.select(replace(symbols[0], scale=None), channels, total)
            return replace(edges_of(moved), scale=symbols[0].scale)
        values = [self.rows(symbol) for symbol in symbols]
        joined = self.writer.write("concat", *values) if len(values) > 1 else values[0]
        return self.select(joined, channels, total)

    # -- rows of ends of edges

    def item(self, numbers: Tensor, x: object, index: object) -> Symbol | None:
        """Gathering, and rows of an edge_index; None if it is an ordinary index of channels."""
        symbol = symbol_of(x) if isinstance(x, Traced) else None
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
            value = edges_of(self.rows(x))
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
            edges = edges_of(self.rows(x))
            if edges.domain == index.symbol.domain and edges.domain.skip_loops and edges.own is not None:
                own = value.symbol if isinstance(value, Traced) else None
                if isinstance(value, int | float):
                    own = self.writer.constant(torch.full((math.prod(trailing(x.plain)),), float(value)))
                if isinstance(own, NodeValue):
                    x.plain[index.plain] = numbers_of(value) if isinstance(value, Traced) else value
                    x.symbol = replace(edges, own=own.rows)
                    return
        raise ModelError("it changes the numbers of some rows alone")


def _item(ops: Recorder, numbers: Tensor, x: object, index: object) -> Symbol:
    found = ops.item(numbers, x, index)
    if found is not None:
        return found
    moved = ops.move(Tensor.__getitem__, (x, index), {}, numbers)
    assert isinstance(moved, Traced)
    return moved.symbol


def _index_select(ops: Recorder, numbers: Tensor, x: object, dim: int, index: object) -> Symbol:
    if isinstance(index, Traced) and isinstance(x, Traced) and dim % x.plain.ndim == 0:
        return _item(ops, numbers, x, index)
    moved = ops.move(torch.index_select, (x, dim, index), {}, numbers)
    assert isinstance(moved, Traced)
    return moved.symbol


def _keep(ops: Recorder, numbers: Tensor, x: object, *args: object, **kwargs: object) -> Symbol:
    return symbol_of(x)


def _dropout(
    ops: Operations, numbers: Tensor, x: object, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Symbol:
    if training and p > 0:
        raise ModelError("it drops at random in evaluation mode too: call it with training=self.training")
    return symbol_of(x)


def _clamp(ops: Recorder, numbers: Tensor, x: object, min: object = None, max: object = None) -> Symbol:
    symbol = symbol_of(x)
    if isinstance(symbol, Degree) and symbol.power == 1 and min == 1 and max is None:
        return replace(symbol, floor=True)
    made: Symbol = symbol
    if min is not None:
        made = ops.extreme(numbers, ops.make(numbers_of(x), made), min, 1.0)
    if max is not None:
        made = ops.extreme(numbers, ops.make(numbers_of(x), made), max, -1.0)
    return made


def _masked_fill(ops: Recorder, numbers: Tensor, x: object, mask: object, value: object) -> Symbol:
    symbol = symbol_of(x)
    undefined = isinstance(mask, Traced) and isinstance(mask.symbol, Undefined)
    if undefined and value == 0 and isinstance(symbol, Degree):
        return symbol
    raise ModelError("it changes the numbers of some rows alone")


def _undefined(ops: Recorder, numbers: Tensor, x: object) -> Symbol:
    return ops.compare(numbers, x, math.inf, True)


def _where(ops: Recorder, numbers: Tensor, mask: object, a: object, b: object) -> Symbol:
    return _masked_fill(ops, numbers, b, mask, plain(a) if not isinstance(a, Tensor) else float(a))


def _silu(ops: Recorder, numbers: Tensor, x: object) -> Symbol:
    return ops.writer.write("multiply", ops.rows(x), ops.unary(x, "sigmoid"))


def _abs(ops: Recorder, numbers: Tensor, x: object) -> Symbol:
    return ops.writer.write("maximum", ops.rows(x), ops.scaled(ops.rows(x), -1.0))


def _prelu(ops: Recorder, numbers: Tensor, x: object, weight: Tensor) -> Symbol:
    if weight.numel() != 1:
        raise ModelError(f"it must have one slope for all channels, got {weight.numel()}")
    return ops.unary(x, "leaky_relu", slope=float(weight))


_Handler = Callable[..., Symbol]

_HANDLERS: Mapping[str, _Handler] = {
    **{
        name: lambda ops, numbers, x, op=name: ops.unary(x, op) for name in ("relu", "sigmoid", "tanh", "exp")
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
    "gru_cell": lambda ops, numbers, *args: ops.gru_cell(numbers, *args),
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
    **dict.fromkeys(
        ("clone", "contiguous", "detach", "float", "to", "type_as", "data", "requires_grad_"), _keep
    ),
}

# fmt: off
_MOVES = frozenset({
    "view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "transpose", "permute", "t", "T", "mT",
    "swapaxes", "movedim", "expand", "expand_as", "view_as", "reshape_as", "repeat", "repeat_interleave",
    "chunk", "split", "unbind", "select", "narrow", "flip", "roll", "cat", "concat", "concatenate", "stack",
    "hstack", "tile", "diagonal",
})
"""Functions that move numbers about and compute none."""

_PASSIVE = frozenset({
    "shape", "size", "dim", "ndim", "ndimension", "numel", "nelement", "dtype", "device", "layout", "names",
    "is_sparse", "is_floating_point", "is_cuda", "is_contiguous", "is_leaf", "is_quantized", "is_nested",
    "is_meta", "is_complex", "requires_grad", "grad", "grad_fn", "stride", "element_size", "itemsize",
    "get_device", "type", "new_ones", "new_zeros", "new_full", "new_empty", "new_tensor", "zeros_like",
    "ones_like", "full_like", "empty_like", "_backward_hooks", "__len__", "__repr__", "__hash__",
})
"""What does not depend on the numbers."""

_READS = frozenset({
    "__bool__", "__int__", "__float__", "__index__", "item", "tolist", "numpy", "max", "min", "any", "all",
    "nonzero", "argmax", "sort", "topk", "unique",
})
# fmt: on

_IN_PLACE: Mapping[str, str] = {
    **{f"{name}_": name for name in _HANDLERS if not name.endswith("_")},
    **{f"__i{name}__": name for name in ("add", "sub", "mul")},
    "__itruediv__": "div",
}


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
