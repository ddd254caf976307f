"""Traces an exported program again, with the few operators that the reader knows and no in-place changes.

`decompose` uses ATen's own decompositions and those below, which express an operator in simpler functions of
torch. A decomposition that returns NotImplemented leaves its operator to the reader. A number of rows is a
symbol and a number of channels is an int, so a decomposition can distinguish them.
"""

from collections.abc import Callable, Sequence
from functools import cache
from math import inf, prod
from typing import Any, TypeAlias

import torch
from torch import fx
from torch._decomp import core_aten_decompositions
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import dispatch_functionalize
from torch.export import ExportedProgram
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.traceback import preserve_node_meta

from livegnn.importers.program.in_place import has_changes, without_changes
from livegnn.importers.program.retracing import Retracing

Tensor: TypeAlias = torch.Tensor
Decomposition: TypeAlias = Callable[..., Any]

aten = torch.ops.aten
_OWN: dict[object, Decomposition] = {}
_KEPT = frozenset({"silu", "softplus", "mish", "hardsigmoid", "hardswish"})
"""Operators that torch would decompose, and that the reader supports as they are."""


def decompose(program: ExportedProgram, *, own: bool = False) -> fx.Graph:
    """The decomposed graph. It returns the program's outputs and then the final values of its inputs.

    own: whether this process exported the program, so that the shapes and types in its nodes are true.
    """
    graph = fx.Graph()
    graph.output(graph.graph_copy(program.graph, {}))
    if without_changes(graph):
        traced = _trace(program, fx.GraphModule(program.graph_module, graph), retracing=own)
        if not has_changes(traced.graph):
            return _cleaned(traced.graph)
    return _cleaned(_trace(program, program.graph_module, functionalize=True).graph)


def _trace(
    program: ExportedProgram, module: fx.GraphModule, *, functionalize: bool = False, retracing: bool = False
) -> fx.GraphModule:
    """Returns the trace of `module`, which is the program's module or computes the same."""
    inputs = [node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"]
    fake_mode = next(one.fake_mode for one in inputs if isinstance(one, FakeTensor))

    interpreter = Retracing(module, _table()) if retracing else fx.Interpreter(module)

    def run(*tensors: Tensor) -> tuple[object, ...]:
        return (*interpreter.run(*tensors), *tensors)

    with preserve_node_meta(), fake_mode, enable_python_dispatcher():
        function = dispatch_functionalize(run) if functionalize else run
        traced: fx.GraphModule = make_fx(function, decomposition_table=_table())(*inputs)
    return traced


def _cleaned(graph: fx.Graph) -> fx.Graph:
    """Returns the graph without unread values and without assertions."""
    for node in reversed(graph.nodes):
        if str(node.target).startswith(("aten._assert_async", "aten._assert_tensor_metadata")):
            graph.erase_node(node)  # torch adds these for operators that it decomposes
    graph.eliminate_dead_code()
    return graph


@cache
def _table() -> dict[object, Decomposition]:
    core = {
        operator: decomposition
        for operator, decomposition in core_aten_decompositions().items()
        if not operator._schema.is_mutable and operator._schema.name.removeprefix("aten::") not in _KEPT
    }
    return {**core, **_OWN}


def _own(*operators: object) -> Callable[[Decomposition], Decomposition]:
    def put(decomposition: Decomposition) -> Decomposition:
        _OWN.update(dict.fromkeys(operators, decomposition))
        return decomposition

    return put


def _axes(x: Tensor, dims: int | Sequence[int] | None) -> list[int]:
    listed = [dims] if isinstance(dims, int) else dims
    return [axis % x.dim() for axis in listed] if listed else list(range(x.dim()))


def _along(x: Tensor, dim: int, row: Tensor) -> Tensor:
    """A tensor with one axis, reshaped to broadcast along an axis of `x`."""
    return row.view([-1 if i == dim % x.dim() else 1 for i in range(x.dim())])


def _places(x: Tensor, dim: int) -> Tensor:
    return _along(x, dim, torch.arange(x.shape[dim]))


def _has_rows(x: Tensor) -> bool:
    return not all(isinstance(size, int) for size in x.shape)


_OWN |= {
    aten.max.default: lambda x: x.amax(),
    aten.min.default: lambda x: x.amin(),
    aten.max.dim: lambda x, dim, keepdim=False: (x.amax(dim, keepdim), x.argmax(dim, keepdim)),
    aten.min.dim: lambda x, dim, keepdim=False: (x.amin(dim, keepdim), x.argmin(dim, keepdim)),
    aten.fmax.default: lambda a, b: torch.where(a.isnan(), b, torch.where(b.isnan(), a, torch.maximum(a, b))),
    aten.fmin.default: lambda a, b: torch.where(a.isnan(), b, torch.where(b.isnan(), a, torch.minimum(a, b))),
    aten.mv.default: lambda a, b: (a @ b.unsqueeze(1)).squeeze(1),
    aten.hardtanh.default: lambda x, least=-1, most=1: x.clamp(least, most),
    aten.copy.default: lambda x, source, non_blocking=False: source.to(x.dtype).expand(x.shape),
    aten.full_like.default: lambda x, value, *, dtype=None, **_: torch.full(
        x.shape, value, dtype=dtype or x.dtype
    ),
    aten.scalar_tensor.default: lambda value, *, dtype=None, **_: torch.full([], value, dtype=dtype),
    aten.embedding.default: lambda weight, indices, *_: aten.index(weight, [indices]),
    aten.addmm.default: lambda bias, a, b, *, beta=1, alpha=1: (
        (a @ b if alpha == 1 else (a @ b) * alpha) + (bias if beta == 1 else bias * beta)
    ),
    aten.index_add.default: lambda x, dim, index, source, *, alpha=1: x.scatter_add(
        dim, _along(source, dim, index).expand(source.shape), source if alpha == 1 else source * alpha
    ),
    aten._log_softmax.default: lambda x, dim, half_to_float: (
        NotImplemented if isinstance(x.shape[dim], int) else x.softmax(dim).log()
    ),
}

# Reductions and norms


@_own(aten.mean.dim, aten.mean.default)
def _mean(
    x: Tensor, dim: Sequence[int] | None = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    axes = _axes(x, dim)
    return x.sum(axes, keepdim, dtype=dtype) / prod(x.shape[axis] for axis in axes)


@_own(aten.var.correction)
def _variance(
    x: Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> Tensor:
    axes, lost = _axes(x, dim), 1 if correction is None else correction
    if lost not in (0, 1):
        return NotImplemented
    centred = x - x.mean(axes, keepdim=True)
    return (centred * centred).sum(axes, keepdim) / (prod(x.shape[axis] for axis in axes) - int(lost))


@_own(aten.linalg_vector_norm.default)
def _norm(
    x: Tensor,
    ord: float = 2,
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    axes = _axes(x, dim)
    if dtype is not None or ord not in (1, 2, inf):
        return NotImplemented
    if ord == inf:
        return x.abs().amax(axes, keepdim)
    return x.abs().sum(axes, keepdim) if ord == 1 else (x * x).sum(axes, keepdim).sqrt()


@_own(aten._softmax.default)
def _softmax_of_rows(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    if isinstance(x.shape[dim], int):
        return NotImplemented
    weight = (x - x.amax(dim, keepdim=True)).exp()
    return weight / weight.sum(dim, keepdim=True)


@_own(aten.native_layer_norm.default)
def _layer_norm(
    x: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, ...]:
    if weight is None and bias is None:
        return NotImplemented  # type: ignore[no-any-return]
    result, mean, scale = aten.native_layer_norm(x, shape, None, None, eps)
    scaled: tuple[Tensor, ...] = (_scaled(result, weight, bias), mean, scale)
    return scaled


def _scaled(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


@_own(aten._native_batch_norm_legit_no_training.default)
def _batch_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:
    """In evaluation mode the statistics are constant, so a scale and a shift remain."""
    scale = _scaled((var + eps).rsqrt(), weight, None)
    shift = _scaled(-mean * scale, None, bias)
    return x * _along(x, 1, scale) + _along(x, 1, shift), mean, var


@_own(aten._native_batch_norm_legit.no_stats)
def _batch_norm_of_rows(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, training: bool, momentum: float, eps: float
) -> tuple[Tensor, ...]:
    axes = [0, *range(2, x.dim())]
    mean, var = x.mean(axes), x.var(axes, correction=0)
    result = (x - _along(x, 1, mean)) / _along(x, 1, (var + eps).sqrt())
    laid = [None if one is None else _along(x, 1, one) for one in (weight, bias)]
    return _scaled(result, *laid), mean, var


@_own(aten.native_group_norm.default)
def _group_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    rows: int,
    channels: int,
    inner: int,
    groups: int,
    eps: float,
) -> tuple[Tensor, ...]:
    """A layer norm over each group of a row's channels."""
    size = channels * inner // groups
    result, mean, scale = aten.native_layer_norm(x.reshape(rows, groups, size), [size], None, None, eps)
    laid = [None if one is None else _along(x, 1, one) for one in (weight, bias)]
    return _scaled(result.reshape(x.shape), *laid), mean, scale


# Products


@_own(aten.convolution.default)
def _convolve(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Tensor:
    """A convolution along an axis of channels: a slice for each place of the kernel, and one product."""
    if x.dim() != 3 or _has_rows(x[0]) or transposed or groups != 1:
        return NotImplemented
    padded, size = aten.constant_pad_nd(x, [padding[0], padding[0]]), weight.shape[2]
    reach = padded.shape[2] - dilation[0] * (size - 1)
    met = [padded[:, :, at : at + reach : stride[0]] for at in range(0, dilation[0] * size, dilation[0])]
    result = torch.cat(met, 1).transpose(1, 2) @ weight.permute(2, 1, 0).flatten(0, 1)
    return _scaled(result.transpose(1, 2), None, None if bias is None else bias.unsqueeze(1))


@_own(aten.cumsum.default)
def _running_sum(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    """A cumulative sum over channels."""
    if not isinstance(x.shape[dim], int) or dtype is not None:
        return NotImplemented
    sums = [x.narrow(dim, 0, 1)]
    for i in range(1, x.shape[dim]):
        sums.append(sums[-1] + x.narrow(dim, i, 1))
    return torch.cat(sums, dim)


# Numbers one by one


@_own(aten.clamp.Tensor)
def _clamp(x: Tensor, min: Tensor | None = None, max: Tensor | None = None) -> Tensor:
    x = x if min is None else torch.maximum(x, min)
    return x if max is None else torch.minimum(x, max)


@_own(aten.empty.memory_format)
def _empty(size: Sequence[int], *, dtype: torch.dtype | None = None, **where: object) -> Tensor:
    """An uninitialised tensor; NaN makes it visible if a value is read before it is written."""
    if dtype is not None and not dtype.is_floating_point:
        return NotImplemented
    return torch.full(size, float("nan"), dtype=dtype)


# Places of channels


@_own(aten.split_with_sizes.default)
def _split(x: Tensor, sizes: Sequence[int], dim: int = 0) -> list[Tensor]:
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return [x.narrow(dim, start, size) for start, size in zip(starts, sizes, strict=True)]


@_own(aten.repeat.default)
def _repeat(x: Tensor, repeats: Sequence[int]) -> Tensor:
    x = x.view([1] * (len(repeats) - x.dim()) + list(x.shape))
    for axis, times in enumerate(repeats):
        if isinstance(times, int) and times == 1:
            continue
        if isinstance(x.shape[axis], int) and x.shape[axis] == 1:
            x = x.expand([times if i == axis else -1 for i in range(x.dim())])
        elif isinstance(times, int) and times > 0:
            x = torch.cat([x] * times, axis)
        else:
            return NotImplemented
    return x


@_own(aten.flip.default)
def _flip(x: Tensor, dims: Sequence[int]) -> Tensor:
    for dim in dims:
        if not isinstance(x.shape[dim], int):
            return NotImplemented
        x = torch.cat([x.narrow(dim, i, 1) for i in reversed(range(x.shape[dim]))], dim)
    return x


@_own(aten.constant_pad_nd.default)
def _pad(x: Tensor, pad: Sequence[int], value: float = 0) -> Tensor:
    if any(amount < 0 for amount in pad):
        return NotImplemented
    for i, amount in enumerate(pad):
        axis = x.dim() - 1 - i // 2
        if amount:
            sizes = [amount if j == axis else size for j, size in enumerate(x.shape)]
            parts = [x, torch.full(sizes, value, dtype=x.dtype)]
            x = torch.cat(parts if i % 2 else parts[::-1], axis)
    return x


# Gathers and scatters


@_own(aten.index.Tensor)
def _index_by_several(x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    """x[i, j]: for a table, a lookup by one number; for rows, takes row i and then selects channel j."""
    given = [index for index in indices if index is not None]
    if len(given) < 2 or len(given) < len(indices) or any(one.dtype == torch.bool for one in given):
        return NotImplemented
    first, second, *others = given
    if not _has_rows(x):
        rows, columns = x.shape[:2]
        known = (first >= -rows) & (first < rows) & (second >= -columns) & (second < columns)
        place = torch.where(known, first % rows * columns + second % columns, rows * columns)
        return aten.index(x.flatten(0, 1), [place, *others])
    if isinstance(x.shape[0], int) or not isinstance(x.shape[1], int) or first.dim() != 1 or others:
        return NotImplemented
    taken = aten.index(x, [first])
    number = second.view([-1 if i == 0 else 1 for i in range(x.dim())]).expand(-1, 1, *taken.shape[2:])
    return taken.gather(1, number).squeeze(1)


@_own(aten.gather.default)
def _gather_channel(x: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    """Selects one channel by a number of the row: masks out all others and sums."""
    if not isinstance(x.shape[dim], int) or not _has_rows(x) or index.shape[dim] != 1:
        return NotImplemented
    return torch.where(index == _places(x, dim), x, torch.zeros([], dtype=x.dtype)).sum(
        dim, keepdim=True, dtype=x.dtype
    )


@_own(aten.scatter.value)
def _write_channel(x: Tensor, dim: int, index: Tensor, value: float) -> Tensor:
    if not isinstance(x.shape[dim], int) or index.shape[dim] != 1:
        return NotImplemented
    return torch.where(index == _places(x, dim), torch.full([], value, dtype=x.dtype), x)


@_own(aten.index_reduce.default)
def _index_reduce(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    wide = _along(source, dim, index).expand(source.shape)
    return x.scatter_reduce(dim, wide, source, reduce, include_self=include_self)


@_own(aten.index_put.default)
def _add_rows(
    x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> Tensor:
    first = indices[0]
    if not accumulate or len(indices) > 1 or first is None or first.dim() != 1 or first.dtype == torch.bool:
        return NotImplemented
    return x.index_add(0, first, values.expand(first.shape[0], *x.shape[1:]))
