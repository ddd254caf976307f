"""ATen's operators that move numbers: views, slices, concatenations, copies; tensors made of nothing."""

from collections.abc import Sequence
from math import prod

import sympy
import torch

from livegnn.errors import ModelError
from livegnn.model.importer.expressions import Expression, kind_of
from livegnn.model.importer.operators import Call, Number, Operand, Sizes, operator
from livegnn.model.importer.values import ROWS, Axis, Piece, Value, symbolic


@operator("view.default", "_unsafe_view.default", "reshape.default")
def _view(call: Call, x: Value, size: object) -> Value:
    return view(call, x, call.shape)


@operator("unsqueeze.default")
def _unsqueeze(call: Call, x: Value, dim: int) -> Value:
    return view(call, x, call.shape)


@operator("squeeze.dims", "squeeze.dim", "squeeze.default")
def _squeeze(call: Call, x: Value, dim: object = None) -> Value:
    return view(call, x, call.shape)


def view(call: Call, x: Value, sizes: Sizes) -> Value:
    """The same numbers in the same order, in another shape."""
    parts = [part for axis in x.axes for part in axis]
    if ROWS not in parts:
        shape = [int(size) for size in sizes]
        return call.values.each(x, lambda row: call.make.reshape(row, shape), tuple((s,) for s in shape))
    stacked = _unstack(call, x, sizes)
    if stacked is not None:
        return stacked
    before = prod(parts[: parts.index(ROWS)])
    after = prod(parts[parts.index(ROWS) + 1 :])
    symbolic_axes = [i for i, size in enumerate(sizes) if not isinstance(size, int)]
    if len(symbolic_axes) != 1:
        raise ModelError("a view takes the rows apart")
    place = symbolic_axes[0]
    left = before // prod(int(size) for size in sizes[:place])
    right = after // prod(int(size) for size in sizes[place + 1 :])
    size = call.values.size(sizes[place])
    if size is None or sympy.expand(call.values.count(x.space) * left * right - size) != 0:
        raise ModelError("a view takes the rows apart, or mixes them with channels")
    fused: Axis = (*((left,) if left != 1 else ()), ROWS, *((right,) if right != 1 else ()))
    axes = tuple(fused if i == place else (int(one),) for i, one in enumerate(sizes))
    shape = [part for axis in axes for part in axis if part != ROWS]
    return call.values.each(x, lambda row: call.make.reshape(row, shape), axes)


def _unstack(call: Call, x: Value, sizes: Sizes) -> Value | None:
    """A union of the same rows several times, as one that has them side by side: how rows are stacked."""
    copies = sizes[0]
    if x.row_axis != 0 or x.axes[0] != (ROWS,) or not isinstance(copies, int) or copies < 2:
        return None
    each, left = divmod(len(x.pieces), copies)
    blocks = [Value(x.pieces[i * each : (i + 1) * each], x.axes) for i in range(copies)]
    if left or len(sizes) < 2 or any(block.space != blocks[0].space for block in blocks):
        return None
    if call.values.size(sizes[1]) != call.values.count(blocks[0].space):
        return None
    rest = [int(size) for size in sizes[2:]]
    rows = [
        call.values.each(b, lambda row: call.make.reshape(row, (1, *rest)), ((1,), *b.axes)) for b in blocks
    ]
    axes = ((copies,), (ROWS,), *((size,) for size in rest))
    pieces = [
        Piece(side[0].atom, side[0].mask, call.make.concat([one.row for one in side], 0))
        for side in zip(*(block.pieces for block in rows), strict=True)
    ]
    return Value(tuple(pieces), axes)


@operator("permute.default")
def _permute(call: Call, x: Value, dims: Sequence[int]) -> Value:
    dims = [dim % len(x.axes) for dim in dims]
    places = [x.channel_of(dim) + i for dim in dims for i in range(sum(part != ROWS for part in x.axes[dim]))]
    return call.values.each(x, lambda row: call.make.permute(row, places), tuple(x.axes[dim] for dim in dims))


@operator("t.default")
def _transpose(call: Call, x: Value) -> Value:
    return _permute(call, x, list(range(len(x.axes)))[::-1])  # type: ignore[return-value]


@operator("expand.default")
def _expand(call: Call, x: Value, size: object, *, implicit: bool = False) -> Value:
    return call.values.expand(x, call.shape)


@operator("repeat.default")
def _repeat(call: Call, x: Value, repeats: Sequence[Number]) -> Value:
    missing = len(repeats) - len(x.axes)
    x = call.values.each(x, lambda row: row, ((1,),) * missing + x.axes)
    x = call.values.each(x, lambda row: call.make.reshape(row, x.channels), x.axes)
    for i, times in enumerate(repeats):
        if isinstance(times, int) and times == 1:
            continue
        if x.axes[i] == (1,):
            sizes = [_size(call, x, j) if j != i else call.shape[i] for j in range(len(x.axes))]
            x = call.values.expand(x, sizes)
        elif ROWS in x.axes[i] or not isinstance(times, int):
            raise ModelError("rows are repeated behind each other: let each have its own")
        else:
            x = concatenate(call, [x] * times, i)
    return x


def _size(call: Call, x: Value, axis: int) -> int | torch.SymInt:
    """A size of a tensor, in the program's own symbols where it counts rows."""
    if ROWS in x.axes[axis]:
        return call.shape[axis]
    return x.axes[axis][0]


def _channel_axis(x: Value, dim: int, what: str) -> int:
    axis = dim % len(x.axes)
    if axis == x.row_axis:
        raise ModelError(f"{what} by its position, which means something else when the graph changes")
    return axis


@operator("select.int")
def _select(call: Call, x: Value, dim: int, index: int) -> Value:
    axis = _channel_axis(x, dim, "a node or an edge is picked")
    place, size = x.channel_of(axis), x.axes[axis][0]
    return call.values.each(
        x, lambda row: call.make.select(row, place, index % size), x.axes[:axis] + x.axes[axis + 1 :]
    )


@operator("slice.Tensor")
def _slice(
    call: Call, x: Value, dim: int = 0, start: Number | None = None, end: Number | None = None, step: int = 1
) -> Value:
    axis = dim % len(x.axes)
    if axis == x.row_axis:
        return _slice_rows(call, x, axis, start, end, step)
    size, place = x.axes[axis][0], x.channel_of(axis)
    first, last, step = slice(start, end, step).indices(size)
    axes = (*x.axes[:axis], (len(range(first, last, step)),), *x.axes[axis + 1 :])
    return call.values.each(x, lambda row: call.make.slice(row, place, first, last, step), axes)


def _slice_rows(
    call: Call, x: Value, axis: int, start: Number | None, end: Number | None, step: int
) -> Value:
    """All rows, or the first or last kinds of a union."""
    bounds = []
    for bound, otherwise in ((start, sympy.Integer(0)), (end, call.values.count(x.space))):
        if bound is None or (isinstance(bound, int) and bound >= 2**62):
            bounds.append(otherwise)
        else:
            size = call.values.size(bound)
            assert size is not None
            bounds.append(call.values.count(x.space) + size if size.is_negative else size)
    ends = [sympy.Integer(0)]
    for piece in x.space:
        ends.append(ends[-1] + call.values.count((piece,)))
    if step != 1 or bounds[0] not in ends or bounds[1] not in ends or len(x.axes[axis]) > 1:
        raise ModelError(
            "rows are taken by their position, which means something else when the graph changes: select "
            "them by a feature"
        )
    first, last = ends.index(bounds[0]), len(ends) - 1 - ends[::-1].index(bounds[1])
    return Value(x.pieces[first:last], x.axes)


@operator("split_with_sizes.default")
def _split_by_sizes(call: Call, x: Value, split_sizes: Sequence[Number], dim: int = 0) -> list[Value]:
    parts: list[Value] = []
    start: Number = 0
    for size in split_sizes:
        part = _slice(call, x, dim, start, start + size)
        assert isinstance(part, Value)
        parts.append(part)
        start = start + size
    return parts


@operator("split.Tensor")
def _split(call: Call, x: Value, split_size: int, dim: int = 0) -> list[Value]:
    size = x.axes[_channel_axis(x, dim, "rows are split")][0]
    return _split_by_sizes(call, x, [min(split_size, size - i) for i in range(0, size, split_size)], dim)  # type: ignore[return-value]


@operator("unbind.int")
def _unbind(call: Call, x: Value, dim: int = 0) -> list[object]:
    axis = _channel_axis(x, dim, "each row is taken")
    return [_select(call, x, axis, i) for i in range(x.axes[axis][0])]


@operator("flip.default")
def _flip(call: Call, x: Value, dims: Sequence[int]) -> Value:
    for dim in dims:
        axis = _channel_axis(x, dim, "rows are put in the opposite order: each is picked")
        parts = [_slice(call, x, axis, i, i + 1) for i in reversed(range(x.axes[axis][0]))]
        x = concatenate(call, parts, axis)  # type: ignore[arg-type]
    return x


@operator("cat.default")
def _concatenate(call: Call, tensors: Sequence[Value], dim: int = 0) -> Value:
    return concatenate(call, tensors, dim)


def concatenate(call: Call, tensors: Sequence[Value], dim: int) -> Value:
    """Channels side by side in one row; rows behind each other are a union."""
    tensors = [one for one in tensors if one.axes != ((0,),)]
    axis = dim % len(tensors[0].axes)
    along_rows = [one.row_axis == axis for one in tensors]
    if any(along_rows):
        if not all(along_rows) or len({one.axes for one in tensors}) > 1:
            raise ModelError("rows that are no nodes or edges of the graph are put behind those that are")
        union = Value(tuple(piece for one in tensors for piece in one.pieces), tensors[0].axes)
        call.values.count(union.space)
        return union
    frame = next((one for one in tensors if one.row_axis is not None), tensors[0])
    place = frame.channel_of(axis)
    if frame.row_axis is not None:
        rowed = []
        for one in tensors:
            wanted = tuple(one.axes[i] if i == axis else own for i, own in enumerate(frame.axes))
            if one.row_axis is None:
                raise ModelError("one row for all is put beside rows: expand it first")
            if one.axes != wanted:
                raise ModelError("rows in another order are put side by side")
            rowed.append(one)
        tensors = rowed
    pieces = [
        Piece(rows[0].atom, rows[0].mask, call.make.concat([piece.row for piece in rows], place))
        for rows in call.values.aligned(tensors)
    ]
    size = sum(one.axes[axis][0] for one in tensors)
    return Value(tuple(pieces), (*frame.axes[:axis], (size,), *frame.axes[axis + 1 :]))


@operator("stack.default")
def _stack(call: Call, tensors: Sequence[Value], dim: int = 0) -> Value:
    axis = dim % (len(tensors[0].axes) + 1)
    parts = []
    for one in tensors:
        axes = (*one.axes[:axis], (1,), *one.axes[axis:])
        place = one.channel_of(axis)
        parts.append(call.values.each(one, lambda row, place=place: _unit(call, row, place), axes))  # type: ignore[misc]
    return concatenate(call, parts, axis)


def _unit(call: Call, row: Expression, place: int) -> Expression:
    return call.make.reshape(row, (*row.shape[:place], 1, *row.shape[place:]))


@operator("constant_pad_nd.default")
def _pad(call: Call, x: Value, pad: Sequence[int], value: float = 0) -> Value:
    for i in range(0, len(pad), 2):
        axis = _channel_axis(x, len(x.axes) - 1 - i // 2, "rows are added: each is picked")
        for amount, front in ((pad[i], True), (pad[i + 1], False)):
            if amount < 0:
                raise ModelError("a negative padding is not known")
            if amount:
                shape = list(x.channels)
                shape[x.channel_of(axis)] = amount
                filling = call.make.constant(torch.full(shape, float(value), dtype=torch.float64))
                axes = (*x.axes[:axis], (amount,), *x.axes[axis + 1 :])
                part = call.values.each(x, lambda row, filling=filling: filling, axes)  # type: ignore[misc]
                x = concatenate(call, [part, x] if front else [x, part], axis)
    return x


# Copies, and tensors of one number


@operator("clone.default", "alias.default", "detach.default", "lift_fresh_copy.default", "contiguous.default")
def _copy(call: Call, x: Value, *, memory_format: object = None) -> Value:
    return x


@operator("copy.default")
def _overwrite(call: Call, x: Value, src: Value, non_blocking: bool = False) -> Value:
    return call.values.expand(src, call.shape)


@operator("_to_copy.default")
def _convert(
    call: Call,
    x: Value,
    *,
    dtype: torch.dtype | None = None,
    non_blocking: bool = False,
    memory_format: object = None,
) -> Value:
    if dtype is None:
        return x
    kind = kind_of(dtype)
    if x.kind == "id" and kind == "int":
        return x
    return call.values.each(x, lambda row: call.make.cast(row, kind), x.axes)


def _full(call: Call, number: Operand, dtype: torch.dtype | None) -> Value:
    if isinstance(number, torch.SymInt | Value):
        return call.values.expand(call.value(number), call.shape)
    kind = kind_of(dtype) if dtype is not None else kind_of(torch.as_tensor(number).dtype)
    return call.values.filled(number, call.shape, kind)


@operator("full.default")
def _filled(
    call: Call,
    size: object,
    fill_value: Operand,
    *,
    dtype: torch.dtype | None = None,
    requires_grad: bool = False,
) -> Value:
    return _full(call, fill_value, dtype)


@operator("full_like.default")
def _filled_like(
    call: Call, x: Value, fill_value: float, *, dtype: torch.dtype | None = None, memory_format: object = None
) -> Value:
    filled = _full(call, fill_value, dtype or _DTYPES[x.kind])
    if x.row_axis is None:
        return filled
    return Value(tuple(Piece(p.atom, p.mask, filled.row_of_all) for p in x.pieces), filled.axes)


_DTYPES = {"float": torch.float64, "int": torch.int64, "bool": torch.bool, "id": torch.int64}


@operator("scalar_tensor.default")
def _scalar(call: Call, s: Operand, *, dtype: torch.dtype | None = None) -> Value:
    return _full(call, s, dtype)


@operator("empty.memory_format")
def _empty(
    call: Call, size: object, *, dtype: torch.dtype | None = None, memory_format: object = None
) -> Value:
    """What nobody has written to may hold anything: a NaN shows where it is read."""
    if dtype is not None and not dtype.is_floating_point:
        raise ModelError("a tensor is used before anything is written to it")
    return call.values.filled(float("nan"), call.shape, "float")


@operator("arange.start_step")
def _count_up(
    call: Call, start: Number, end: Number, step: Number = 1, *, dtype: torch.dtype | None = None
) -> Value:
    size = call.shape[0]
    if isinstance(size, int):
        return call.values.constant(torch.arange(int(start), int(end), int(step)))
    space = call.values.space_of(size)
    assert space is not None
    if (
        step != 1
        or start != 0
        or len(space) > 1
        or not space[0][1].is_number(1)
        or symbolic(end) != symbolic(size)
    ):
        raise ModelError("rows are numbered, which means something else when the graph changes")
    atom, mask = space[0]
    ids = Value((Piece(atom, mask, call.make.rows(atom)),), ((ROWS,),))
    return ids if dtype is None else _convert(call, ids, dtype=dtype)  # type: ignore[return-value]


@operator(
    *(f"{name}.default" for name in ("rand", "randn", "rand_like", "randn_like", "multinomial", "randperm")),
    *("bernoulli.p", "bernoulli.default", "randint.low", "native_dropout.default"),
)
def _random(call: Call, *args: object, **kwargs: object) -> Value:
    raise ModelError("random numbers are drawn: a prediction must be the same each time it is computed")
