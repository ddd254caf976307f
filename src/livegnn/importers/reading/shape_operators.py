"""ATen's operators that move numbers: views, slices, concatenations, copies; and those that make tensors."""

from collections.abc import Sequence
from math import prod

import sympy
import torch

from livegnn.errors import ModelError
from livegnn.importers.program.export import symbolic
from livegnn.importers.reading.operators import Call, Number, Operand, Sizes, operator
from livegnn.importers.reading.values import ROWS, Axis, Piece, Value


@operator("view", "_unsafe_view", "reshape", "unsqueeze", "squeeze")
def _view(call: Call, x: Value, size: object = None) -> Value:
    return view(call, x, call.shape)


def view(call: Call, x: Value, sizes: Sizes) -> Value:
    """The same numbers in the same order, in another shape."""
    parts = [part for axis in x.axes for part in axis]
    if ROWS not in parts:
        return call.values.reshape(x, tuple((int(size),) for size in sizes))
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
    return call.values.reshape(x, axes)


def _unstack(call: Call, x: Value, sizes: Sizes) -> Value | None:
    """Turns a union of several blocks of the same rows into one block with an axis of channels, for a stack
    of rows; None if the view is not such a stack."""
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
    pieces = [
        Piece(
            side[0].atom,
            side[0].mask,
            call.make.concat([call.make.reshape(one.row, (1, *rest)) for one in side], 0),
        )
        for side in zip(*(block.pieces for block in blocks), strict=True)
    ]
    return Value(tuple(pieces), ((copies,), (ROWS,), *((size,) for size in rest)))


@operator("permute")
def _permute(call: Call, x: Value, dims: Sequence[int]) -> Value:
    dims = [dim % len(x.axes) for dim in dims]
    places = [x.channel_of(dim) + i for dim in dims for i in range(sum(part != ROWS for part in x.axes[dim]))]
    return call.values.each(x, lambda row: call.make.permute(row, places), tuple(x.axes[dim] for dim in dims))


@operator("expand")
def _expand(call: Call, x: Value, size: object) -> Value:
    return call.values.expand(x, call.shape)


@operator("select")
def _select(call: Call, x: Value, dim: int, index: int) -> Value:
    axis = dim % len(x.axes)
    if axis == x.row_axis:
        raise ModelError(
            "a node or an edge is picked by its position, which means something else when the graph changes"
        )
    place, size = x.channel_of(axis), x.axes[axis][0]
    return call.values.each(
        x, lambda row: call.make.select(row, place, index % size), x.axes[:axis] + x.axes[axis + 1 :]
    )


@operator("slice")
def _slice(call: Call, x: Value, dim: int, start: Number | None, end: Number | None, step: int) -> Value:
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
    """A slice of rows: all rows, or a range of whole pieces of a union."""
    ends = [call.values.count(x.space[:i]) for i in range(len(x.space) + 1)]
    bounds = []
    for bound, otherwise in ((start, ends[0]), (end, ends[-1])):
        unbounded = bound is None or (isinstance(bound, int) and bound >= 2**62)
        size = otherwise if unbounded else call.values.size(bound)
        bounds.append(ends[-1] + size if size is not None and size.is_negative else size)
    if step != 1 or bounds[0] not in ends or bounds[1] not in ends or len(x.axes[axis]) > 1:
        raise ModelError(
            "rows are taken by their position, which means something else when the graph changes: select "
            "them by a feature"
        )
    first, last = ends.index(bounds[0]), len(ends) - 1 - ends[::-1].index(bounds[1])
    return Value(x.pieces[first:last], x.axes)


@operator("cat")
def concatenate(call: Call, tensors: Sequence[Value], dim: int) -> Value:
    """Concatenates channels of a row; a concatenation of rows is a union."""
    tensors = [one for one in tensors if one.axes != ((0,),)]
    axis = dim % len(tensors[0].axes)
    along_rows = [one.row_axis == axis for one in tensors]
    if any(along_rows):
        if not all(along_rows) or len({one.axes for one in tensors}) > 1:
            raise ModelError("rows of nodes or edges of the graph are concatenated with other rows")
        union = Value(tuple(piece for one in tensors for piece in one.pieces), tensors[0].axes)
        call.values.count(union.space)
        return union
    frame = next((one for one in tensors if one.row_axis is not None), tensors[0])
    for one in tensors:
        if frame.row_axis is not None and one.row_axis is None:
            raise ModelError("one row for all is put beside rows: expand it first")
        if any(
            part != own for i, (part, own) in enumerate(zip(one.axes, frame.axes, strict=True)) if i != axis
        ):
            raise ModelError("rows in another order are put side by side")
    pieces = [
        Piece(rows[0].atom, rows[0].mask, call.make.concat([one.row for one in rows], frame.channel_of(axis)))
        for rows in call.values.aligned(tensors)
    ]
    size = sum(one.axes[axis][0] for one in tensors)
    return Value(tuple(pieces), (*frame.axes[:axis], (size,), *frame.axes[axis + 1 :]))


# Copies, and tensors of one number


@operator("clone", "alias", "detach", "lift_fresh_copy", "contiguous")
def _copy(call: Call, x: Value) -> Value:
    return x


@operator("_to_copy")
def _convert(call: Call, x: Value) -> Value:
    return x if x.kind == "id" and call.kind == "int" else call.cast(x, call.kind)


@operator("full")
def _full(call: Call, size: object, number: Operand) -> Value:
    return call.values.expand(call.cast(call.value(number), call.kind), call.shape)


@operator("arange")
def _count_up(call: Call, start: Number, end: Number, step: Number) -> Value:
    size = call.shape[0]
    if isinstance(size, int):
        return call.cast(call.values.constant(torch.arange(start, end, step)), call.kind)
    space = call.values.space_of(size)
    assert space is not None
    numbers_all = start == 0 and step == 1 and len(space) == 1 and symbolic(end) == symbolic(size)
    if not numbers_all or not space[0][1].is_number(1):
        raise ModelError("rows are numbered, which means something else when the graph changes")
    atom, mask = space[0]
    return _convert(call, Value((Piece(atom, mask, call.make.rows(atom)),), ((ROWS,),)))  # type: ignore[return-value]
