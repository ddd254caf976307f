"""ATen's operators that bring rows to other rows: gathers along edges, filters, scatters."""

from collections.abc import Callable, Sequence
from math import prod
from typing import NoReturn

import sympy
import torch

from livegnn.errors import ModelError
from livegnn.model.importer.expressions import Expression, walk
from livegnn.model.importer.operators import OPERATORS, Call, operator
from livegnn.model.importer.values import ROWS, Piece, Value


@operator("index_select.default")
def _index_select(call: Call, x: Value, dim: int, index: Value) -> Value:
    return take(call, x, dim % len(x.axes), index)


@operator("embedding.default")
def _embedding(call: Call, weight: Value, indices: Value, padding_idx: int = -1) -> Value:
    return take(call, weight, 0, indices)


@operator("gather.default")
def _gather(call: Call, x: Value, dim: int, index: Value) -> Value:
    axis = dim % len(x.axes)
    if x.row_axis == axis:
        sizes = [part for i, one in enumerate(index.axes) if i != axis for part in one]
        if sizes != [part for i, one in enumerate(x.axes) if i != axis for part in one]:
            raise ModelError("some channels are gathered, and others not")
        return take(call, x, axis, one_index(call, index, axis))
    place = x.channel_of(axis)
    if x.row_axis is None or index.axes != (*x.axes[:axis], (1,), *x.axes[axis + 1 :]):
        raise ModelError("channels are gathered by numbers of each row in a way that is not known")
    # One channel by a number of the row's: a sum over all, of which the others are masked out.
    shape = [x.axes[axis][0] if i == place else 1 for i in range(len(x.channels))]
    channel = call.make.reshape(call.make.constant(torch.arange(x.axes[axis][0])), shape)
    pieces = []
    for row, number in call.values.aligned([x, index]):
        chosen = call.make.elementwise("eq", number.row, channel)
        zero = call.make.constant(0.0)
        one = call.make.reduce("sum", call.make.elementwise("where", chosen, row.row, zero), [place])
        pieces.append(Piece(row.atom, row.mask, one))
    return Value(tuple(pieces), index.axes)


@operator("index.Tensor")
def _index(call: Call, x: Value, indices: Sequence[Value | None]) -> Value:
    given = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    if len(given) != 1:
        raise ModelError("a tensor is indexed along several axes at once: take one after the other")
    axis, index = given[0]
    if index.kind == "bool":
        return _filter(call, x, axis, index)
    return take(call, x, axis, index)


def _filter(call: Call, x: Value, axis: int, mask: Value) -> Value:
    """The rows for which a mask holds: the same expressions, of fewer rows."""
    if x.row_axis != axis or x.axes[axis] != (ROWS,) or mask.axes != ((ROWS,),):
        raise ModelError("channels are filtered by a mask: the number of channels must not depend on data")
    pieces = []
    for row, own in call.values.aligned([x, mask]):
        assert row.atom is not None
        both = call.make.elementwise("and", row.mask, own.row)
        _check_mask(own.row)
        if not both.is_number(0):
            pieces.append(Piece(row.atom, both, row.row))
    if not pieces:
        raise ModelError("a filter leaves no rows")
    filtered = Value(tuple(pieces), x.axes)
    call.values.name_size(call.shape[axis], filtered.space)
    return filtered


def _check_mask(mask: Expression) -> None:
    """Which rows there are may depend on the graph and on types, not on features."""
    if any(one.op == "input" and one.kind == "float" for one in walk([mask])):
        raise ModelError(
            "rows are filtered by their features, so that a feature decides which nodes or edges there are: "
            "give those that are out a factor of zero instead"
        )


@operator("nonzero.default")
def _nonzero(call: Call, x: Value) -> Value:
    """The places of the rows for which a mask holds."""
    if x.kind != "bool" or x.axes != ((ROWS,),):
        raise ModelError("which numbers are not zero decides on a size: use a mask")
    pieces = []
    for piece in x.pieces:
        assert piece.atom is not None
        _check_mask(piece.row)
        ids = call.make.reshape(call.make.rows(piece.atom), (1,))
        pieces.append(Piece(piece.atom, call.make.elementwise("and", piece.mask, piece.row), ids))
    found = Value(tuple(pieces), ((ROWS,), (1,)))
    call.values.name_size(call.shape[0], found.space)
    return found


def take(call: Call, x: Value, axis: int, index: Value) -> Value:
    """Rows by an index: of nodes by the ends of edges, or of a table by whole numbers."""
    if x.row_axis is None:
        return _look_up(call, x, axis, index)
    if x.row_axis != axis or x.axes[axis] != (ROWS,):
        if index.row_axis is None and index.pieces[0].row.value is not None and ROWS not in x.axes[axis]:
            return _take_channels(call, x, axis, index)
        raise ModelError("channels are taken by an index that each row has: mask them instead")
    if index.row_axis is None:
        raise ModelError("some nodes are picked by their numbers, which the graph may give to others")
    at = index.row_axis
    if any(prod(part) != 1 for i, part in enumerate(index.axes) if i != at) or index.axes[at] != (ROWS,):
        raise ModelError("several rows are gathered for each row: only one end of an edge at a time")
    pieces = []
    for piece in index.pieces:
        own, number = _locate(call, x, call.make.reshape(piece.row, ()))
        pieces.append(Piece(piece.atom, piece.mask, call.make.gather(own.row, number)))
    axes = (*x.axes[:axis], *index.axes, *x.axes[axis + 1 :])
    shape = [part for one in axes for part in one if part != ROWS]
    return call.values.each(Value(tuple(pieces), axes), lambda row: call.make.reshape(row, shape), axes)


def _locate(call: Call, x: Value, index: Expression) -> tuple[Piece, Expression]:
    """The piece of a union that an index points into, and the index without what lies in front."""
    offset = sympy.Integer(0)
    if index.op == "shift":
        offset, index = index.attrs[0], index.args[0]
    if index.refers is None:
        raise ModelError(
            "rows of nodes are gathered by an index that is no end of an edge: the graph knows no such edges"
        )
    start = sympy.Integer(0)
    for piece in x.pieces:
        assert piece.atom is not None
        if sympy.expand(start - offset) == 0 and piece.atom is index.refers:
            if not piece.mask.is_number(1):
                raise ModelError("rows are gathered from a filtered tensor by numbers of the whole one")
            return piece, index
        start += call.values.count(((piece.atom, piece.mask),))
    raise ModelError(
        f"rows are gathered by numbers of {index.refers} nodes from a tensor that has none of them there"
    )


def _look_up(call: Call, x: Value, axis: int, index: Value) -> Value:
    if axis != 0:
        order = (axis, *(i for i in range(len(x.axes)) if i != axis))
        x = call.values.one_row(call.make.permute(x.row, order))
    if index.kind == "id":
        raise ModelError(
            "a parameter or buffer has a row for each node: give it as an input of the nodes, with inputs"
        )
    if index.kind != "int":
        raise ModelError("a table is indexed by something that is no whole number")
    result_axes = (*index.axes, *x.axes[1:])
    result = call.values.each(index, lambda row: call.make.lookup(x.row, row), result_axes)
    if axis == 0:
        return result
    raise ModelError("a table is indexed along an axis that is not its first")


def _take_channels(call: Call, x: Value, axis: int, index: Value) -> Value:
    numbers = index.row.value
    assert numbers is not None
    if len(index.axes) != 1 or numbers.dtype == torch.bool:
        raise ModelError("channels are taken by an index of several axes")
    place, size = x.channel_of(axis), x.axes[axis][0]

    def pick(row: Expression) -> Expression:
        each = [call.make.slice(row, place, n % size, n % size + 1) for n in numbers.tolist()]
        return call.make.concat(each, place)

    return call.values.each(x, pick, (*x.axes[:axis], (len(numbers),), *x.axes[axis + 1 :]))


# Scatters


def one_index(call: Call, index: Value, axis: int) -> Value:
    """The index of each row, where it is spread over channels."""
    if index.row_axis != axis or index.axes[axis] != (ROWS,):
        raise ModelError("rows are scattered along channels")

    def narrow(row: Expression) -> Expression:
        while row.shape:
            if row.op in ("expand", "reshape"):
                inner = row.args[0]
                if row.op == "reshape" and prod(inner.shape) != 1:
                    break
                row = inner
            elif prod(row.shape) == 1:
                row = call.make.reshape(row, ())
            elif row.value is not None and bool((row.value == row.value.flatten()[0]).all()):
                row = call.make.constant(row.value.flatten()[0])
            else:
                raise ModelError("the channels of a row are scattered to several rows")
        return row

    return call.values.each(index, narrow, ((ROWS,),))


def scatter(call: Call, reduce: str, base: Value, axis: int, index: Value, source: Value) -> list[Piece]:
    """What comes to each row of `base`, 0 where nothing does; one piece for each of its own."""
    if base.row_axis is None:
        return [_scatter_to_all(call, reduce, base, axis, index, source)]
    if base.row_axis != axis or base.axes[axis] != (ROWS,):
        raise ModelError("rows are scattered along channels")
    arriving: dict[int, list[tuple[Expression, Expression, Expression]]] = {}
    for message, to in call.values.aligned([source, index]):
        if to.row.kind != "id":
            raise ModelError("rows are scattered to groups that are no ends of edges")
        own, number = _locate(call, base, to.row)
        arriving.setdefault(base.pieces.index(own), []).append((message.row, number, message.mask))
    pieces = []
    for i, own in enumerate(base.pieces):
        shape = source.channels
        row = (
            call.make.scatter(reduce, arriving[i], own.atom)
            if i in arriving
            else call.make.constant(torch.zeros(shape, dtype=torch.float64))
        )
        pieces.append(Piece(own.atom, own.mask, row))
    return pieces


def _scatter_to_all(call: Call, reduce: str, base: Value, axis: int, index: Value, source: Value) -> Piece:
    """All rows into one, as the reductions of a graph without batches do it."""
    if base.axes[axis] != (1,) or any(not piece.row.is_number(0) for piece in index.pieces):
        raise ModelError("rows are scattered to groups that are no nodes: only edges bring rows to nodes")
    row = call.total(reduce, [rows[0] for rows in call.values.aligned([source, index])])
    shape = [part for one in base.axes for part in one]
    return Piece(None, call.values.everything, call.make.reshape(row, shape))


def _check_sizes(source: Value, index: Value) -> None:
    if index.axes != source.axes and len(index.axes) > 1:
        raise ModelError("a scatter reads a part of its source only")


@operator("scatter_add.default")
def _scatter_add(call: Call, base: Value, dim: int, index: Value, src: Value) -> Value:
    _check_sizes(src, index)
    return _add_to(call, base, dim, one_index(call, index, dim % len(base.axes)), src)


@operator("index_add.default")
def _index_add(call: Call, base: Value, dim: int, index: Value, source: Value, *, alpha: float = 1) -> Value:
    source = source if alpha == 1 else call.elementwise("mul", source, alpha)
    return _add_to(call, base, dim, index, source)


def _add_to(call: Call, base: Value, dim: int, index: Value, source: Value) -> Value:
    axis = dim % len(base.axes)
    total = Value(tuple(scatter(call, "sum", base, axis, index, source)), base.axes)
    return call.elementwise("add", base, total)


@operator("scatter_reduce.two")
def _scatter_reduce(
    call: Call, base: Value, dim: int, index: Value, src: Value, reduce: str, *, include_self: bool = True
) -> Value:
    _check_sizes(src, index)
    axis = dim % len(base.axes)
    return _reduce_into(call, base, axis, one_index(call, index, axis), src, reduce, include_self)


@operator("index_reduce.default")
def _index_reduce(
    call: Call, base: Value, dim: int, index: Value, source: Value, reduce: str, *, include_self: bool = True
) -> Value:
    return _reduce_into(call, base, dim % len(base.axes), index, source, reduce, include_self)


def _reduce_into(
    call: Call, base: Value, axis: int, index: Value, source: Value, reduce: str, include_self: bool
) -> Value:
    if reduce == "sum" and include_self:
        return _add_to(call, base, axis, index, source)
    if reduce not in ("sum", "mean", "amax", "amin"):
        raise ModelError(f"the aggregation {reduce!r} is not known: use sum, mean, amax or amin")
    ones = call.values.each(source, lambda row: call.make.constant(1.0), ((ROWS,),))
    units = (1,) * len(source.channels)
    number = Value(tuple(scatter(call, "sum", base, axis, index, ones)), base.axes)
    number = call.values.each(number, lambda row: call.make.reshape(row, units), _units(base, axis))
    arrived = call.elementwise("gt", number, 0.0)
    result = Value(
        tuple(scatter(call, "sum" if reduce == "mean" else reduce, base, axis, index, source)), base.axes
    )
    if reduce == "mean":
        if include_self:
            raise ModelError("a mean that counts what was there before is not known")
        result = call.elementwise("div", result, call.elementwise("clamp", number, attrs=(1.0, None)))
    elif include_self:
        better = call.elementwise("maximum" if reduce == "amax" else "minimum", base, result)
        return call.elementwise("where", arrived, better, base)
    if all(piece.row.is_number(0) for piece in base.pieces):
        return result
    return call.elementwise("where", arrived, result, base)


def _units(base: Value, axis: int) -> tuple[tuple[int, ...], ...]:
    return tuple(one if i == axis and ROWS in one else (1,) for i, one in enumerate(base.axes))


@operator("index_put.default")
def _index_put(
    call: Call, base: Value, indices: Sequence[Value | None], values: Value, accumulate: bool = False
) -> Value:
    if len(indices) != 1 or indices[0] is None:
        raise ModelError("a part of a tensor is written along several axes: write whole rows")
    index = indices[0]
    if index.kind == "bool":
        if accumulate:
            raise ModelError("rows are added under a mask: multiply by the mask instead")
        return _write_where(call, base, index, values)
    if accumulate:
        return _add_to(call, base, 0, index, values)
    if all(piece.row.op == "rows" for piece in index.pieces):
        return _write_own(call, base, index, values)
    return _write_last(call, base, index, values)


def _write_where(call: Call, base: Value, mask: Value, values: Value) -> Value:
    """Rows under a mask are others: a choice for each row. Values of the masked rows are known for all."""
    units = (1,) * (len(base.axes) - len(mask.axes))
    wide = call.values.each(
        mask, lambda row: call.make.reshape(row, (*row.shape, *units)), (*mask.axes, *((1,) for _ in units))
    )
    if values.row_axis is None or values.is_free():
        filling = values if values.row_axis is None else call.values.one_row(values.row_of_all)
        return call.elementwise("where", wide, filling, base)
    pieces = []
    left = list(values.pieces)
    for own, chosen in call.values.aligned([base, wide]):
        inside = call.make.elementwise("and", own.mask, call.make.reshape(chosen.row, ()))
        if inside.is_number(0):
            pieces.append(own)
            continue
        if not left or (left[0].atom, left[0].mask) != (own.atom, inside):
            raise ModelError("other rows are written than the mask selects")
        row = call.make.elementwise("where", chosen.row, left.pop(0).row, own.row)
        pieces.append(Piece(own.atom, own.mask, row))
    if left:
        raise ModelError("more rows are written than the mask selects")
    return Value(tuple(pieces), base.axes)


def _write_own(call: Call, base: Value, index: Value, source: Value) -> Value:
    """Rows in the place of others, each its own: of those that a filter leaves."""
    own = base.pieces[0]
    if len(base.pieces) > 1 or len(index.pieces) > 1 or index.pieces[0].atom is not own.atom:
        raise ModelError("rows are written to other rows than the index counts")
    mask = Value((Piece(own.atom, own.mask, index.pieces[0].mask),), ((ROWS,),))
    return _write_where(call, base, mask, source)


@operator("scatter.value")
def _scatter_value(call: Call, base: Value, dim: int, index: Value, value: float) -> Value:
    """A number in the channel that each row names."""
    axis = dim % len(base.axes)
    if axis == base.row_axis or index.axes != (*base.axes[:axis], (1,), *base.axes[axis + 1 :]):
        raise ModelError("a number is written to rows by an index")
    shape = [part if i == axis else 1 for i, one in enumerate(base.axes) for part in one if part != ROWS]
    places = call.values.one_row(
        call.make.reshape(call.make.constant(torch.arange(base.axes[axis][0])), shape),
        tuple(one if i == axis else (1,) for i, one in enumerate(base.axes)),
    )
    return call.elementwise("where", call.elementwise("eq", index, places), value, base)


def _write_last(call: Call, base: Value, index: Value, values: Value) -> Value:
    """Rows go to the ends of edges, and the last edge wins: the weights of loops that nodes have already."""
    if base.row_axis != 0 or len(base.pieces) > 1:
        raise ModelError("rows are written by numbers into what has no rows of nodes")
    own = base.pieces[0]
    arriving = [
        (message.row, _locate(call, base, to.row)[1], message.mask)
        for message, to in call.values.aligned(
            [call.values.expand(values, [*_row_sizes(index, values, call)]), index]
        )
    ]
    for _, to, mask in arriving:
        assert to.atom is not None
        loops = call.make.elementwise("eq", call.make.end(to.atom, 0), call.make.end(to.atom, 1))
        if call.make.elementwise("and", mask, loops) is not mask:
            raise ModelError("of several edges of a node the last one decides, and edges have no order")
    if own.row.value is not None and all(message is own.row for message, _, _ in arriving):
        return base
    row = call.make.scatter("last", arriving, own.atom, own.row)
    return Value((Piece(own.atom, own.mask, row),), base.axes)


def _row_sizes(index: Value, values: Value, call: Call) -> Sequence[int | torch.SymInt]:
    if values.row_axis is None:
        raise ModelError("one row for all is written by numbers")
    return [call.shape[i] if i == values.row_axis else part[0] for i, part in enumerate(values.axes)]


def _refuse(what: str) -> Callable[..., NoReturn]:
    def refuse(call: Call, *args: object, **kwargs: object) -> NoReturn:
        raise ModelError(what)

    return refuse


_SORTED = "rows or channels are sorted, which no change of one row leaves in place"
for _name, _what in {
    **dict.fromkeys(("sort.default", "sort.stable", "argsort.default", "topk.default"), _SORTED),
    **dict.fromkeys(("_unique2.default", "unique_dim.default", "unique_consecutive.default"), _SORTED),
    **dict.fromkeys(
        ("cumsum.default", "cumprod.default", "logcumsumexp.default"),
        "a running sum depends on the order of the rows",
    ),
    **dict.fromkeys(
        ("_local_scalar_dense.default", "item.default"),
        "a size, or the way of the computation, depends on data: give what is fixed as an argument",
    ),
    "roll.default": "rows change their places, which means something else when the graph changes",
}.items():
    OPERATORS[_name] = _refuse(_what)
