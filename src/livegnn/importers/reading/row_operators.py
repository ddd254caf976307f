"""ATen's operators that move rows to other rows: gathers along edges, filters, scatters; and refusals."""

from collections.abc import Sequence
from math import prod
from typing import NoReturn

import sympy
import torch

from livegnn.errors import ModelError
from livegnn.importers.expressions.expressions import Expression, walk
from livegnn.importers.reading.operators import OPERATORS, Call, Operator, operator
from livegnn.importers.reading.values import ROWS, Piece, Value, channels_of

_FILTERED = (
    "rows are gathered by numbers from a filtered tensor: filter it by a condition instead, as in "
    "edge_index[:, edge_type == 1]"
)
OF_NO_NODES = "rows are scattered to groups that are not known to be the nodes of the graph"

# Gathers


@operator("index_select")
def _index_select(call: Call, x: Value, dim: int, index: Value) -> Value:
    return take(call, x, dim % len(x.axes), index)


@operator("gather")
def _gather(call: Call, x: Value, dim: int, index: Value) -> Value:
    axis = dim % len(x.axes)
    if x.row_axis != axis:
        raise ModelError("channels are gathered by numbers of each row in a way that is not known")
    sizes = [part for i, one in enumerate(index.axes) if i != axis for part in one]
    if sizes != [part for i, one in enumerate(x.axes) if i != axis for part in one]:
        raise ModelError("some channels are gathered, and others not")
    return take(call, x, axis, one_index(call, index, axis))


@operator("index")
def _index(call: Call, x: Value, indices: Sequence[Value | None]) -> Value:
    given = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    if len(given) != 1:
        raise ModelError("a tensor is indexed along several axes at once: take one after the other")
    axis, index = given[0]
    return _filter(call, x, axis, index) if index.kind == "bool" else take(call, x, axis, index)


def _filter(call: Call, x: Value, axis: int, mask: Value) -> Value:
    """The rows for which a mask holds: the same expressions, with fewer rows."""
    if x.row_axis != axis or x.axes[axis] != (ROWS,) or mask.axes != ((ROWS,),):
        raise ModelError("channels are filtered by a mask: the number of channels must not depend on data")
    pieces = []
    for row, own in call.values.aligned([x, mask]):
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
    """Raises `ModelError` if a filter depends on features; it may depend on the graph and on types."""
    if any(one.op == "input" and one.kind == "float" for one in walk([mask])):
        raise ModelError(
            "rows are filtered by their features, so that a feature decides which nodes or edges there are: "
            "give those that are out a factor of zero instead"
        )


@operator("nonzero")
def _nonzero(call: Call, x: Value) -> Value:
    """The places of the rows for which a mask holds."""
    if x.kind != "bool" or x.axes != ((ROWS,),):
        raise ModelError("which numbers are not zero decides on a size: use a mask")
    places = []
    for piece in x.pieces:
        assert piece.atom is not None
        place = call.make.rows(piece.atom, piece.mask)
        places.append(Piece(piece.atom, piece.mask, call.make.reshape(place, (1,))))
    return _filter(call, Value(tuple(places), ((ROWS,), (1,))), 0, x)


def take(call: Call, x: Value, axis: int, index: Value) -> Value:
    """Takes rows by an index: rows of nodes by the ends of edges, or of a table by whole numbers."""
    if x.row_axis is None:
        return _look_up(call, x, axis, index)
    if x.row_axis != axis or x.axes[axis] != (ROWS,):
        if index.row_axis is None and index.pieces[0].row.value is not None and ROWS not in x.axes[axis]:
            return _take_channels(call, x, axis, index)
        raise ModelError("channels are taken by an index that each row has: mask them instead")
    at = index.row_axis
    if at is None:
        raise ModelError("some nodes are picked by their numbers, which the graph may give to others")
    each = prod(index.channels)
    if index.axes[at] != (ROWS,) or (each != 1 and axis != 0):
        raise ModelError("several rows are gathered for each row: only the ends of edges, from whole rows")
    axes = (*x.axes[:axis], *index.axes, *x.axes[axis + 1 :])
    pieces = []
    for piece in index.pieces:
        rows = []
        for place in range(each):  # both ends of an edge, as in x[edge_index.t()]
            one = call.make.select(call.make.reshape(piece.row, (each,)), 0, place)
            own, number = _locate(call, x, one)
            row = call.make.gather(own.row, number)
            rows.append(call.make.reshape(row, (1, *row.shape)))
        together = call.make.reshape(call.make.concat(rows, 0), channels_of(axes))
        pieces.append(Piece(piece.atom, piece.mask, together))
    return Value(tuple(pieces), axes)


def _locate(call: Call, x: Value, index: Expression) -> tuple[Piece, Expression]:
    """The piece of a union that an index refers to, and the index without the offset of that piece."""
    offset = sympy.Integer(0)
    if index.op == "shift":
        offset, index = index.attrs[0], index.args[0]
    if index.op == "rows" and index.attrs:
        own = x.pieces[0]
        assert index.atom is not None
        if len(x.pieces) == 1 and offset == 0 and index is call.make.rows(index.atom, own.mask):
            return own, call.make.rows(index.atom)
        raise ModelError(_FILTERED)
    if index.refers is None:
        raise ModelError("rows of nodes are gathered by an index that is not an end of an edge of the graph")
    for i, piece in enumerate(x.pieces):
        if piece.atom is index.refers and sympy.expand(call.values.count(x.space[:i]) - offset) == 0:
            if not piece.mask.is_number(1):
                raise ModelError(_FILTERED)
            return piece, index
    raise ModelError(
        f"rows are gathered by numbers of {index.refers} nodes from a tensor that has none of them there"
    )


def _look_up(call: Call, x: Value, axis: int, index: Value) -> Value:
    if index.kind == "id":
        name = call.make.names.get(x.row)
        raise ModelError(
            f"{name or 'a parameter or buffer'} has a row for each node: make it a parameter whose first "
            f"axis counts the nodes, and say so with inputs={{{repr(name) if name else 'its name'}: 'node'}}"
        )
    if index.kind != "int":
        raise ModelError(f"a table must be indexed by whole numbers, got numbers of kind {index.kind}")
    if axis != 0:
        raise ModelError("a table is indexed along an axis that is not its first")
    return call.values.each(index, lambda row: call.make.lookup(x.row, row), (*index.axes, *x.axes[1:]))


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
    """The index of each row, without the channels to which it was expanded."""
    if index.row_axis != axis or index.axes[axis] != (ROWS,):
        raise ModelError("rows are scattered along channels")

    def narrow(row: Expression) -> Expression:
        while row.shape:
            if row.op == "expand" or (row.op == "reshape" and prod(row.args[0].shape) == 1):
                row = row.args[0]
            elif prod(row.shape) == 1:
                row = call.make.reshape(row, ())
            elif row.repeated is not None:
                row = call.make.constant(row.repeated)
            elif row.op == "reshape":
                break
            else:
                raise ModelError("the channels of a row are scattered to several rows")
        return row

    return call.values.each(index, narrow, ((ROWS,),))


def scatter(call: Call, reduce: str, base: Value, axis: int, index: Value, source: Value) -> Value:
    """The reduced messages of each row of `base`, 0 for rows without any; with the pieces of `base`."""
    if base.row_axis is None:
        # All rows are reduced to one, as pooling does for a graph without batches.
        if base.axes[axis] != (1,) or any(not piece.row.is_number(0) for piece in index.pieces):
            raise ModelError(OF_NO_NODES)
        row = call.total(reduce, [rows[0] for rows in call.values.aligned([source, index])])
        return call.values.one_row(call.make.reshape(row, base.channels), base.axes)
    if base.row_axis != axis or base.axes[axis] != (ROWS,):
        raise ModelError("rows are scattered along channels")
    arriving: dict[Piece, list[tuple[Expression, Expression, Expression]]] = {}
    for message, to in call.values.aligned([source, index]):
        if to.row.kind != "id":
            raise ModelError(
                "rows are scattered to groups that are not ends of edges: if an argument numbers the group "
                "of each node, name the type of the groups, as in groups={'batch': 'graph'}"
            )
        own, number = _locate(call, base, to.row)
        if number.atom is not None and number.atom.pairs:
            raise ModelError(
                "pairs of nodes carry messages, and the graph need not have edges there: give the edges that "
                "carry messages as edge_index, and let the pairs only read rows of nodes"
            )
        arriving.setdefault(own, []).append((message.row, number, message.mask))
    nothing = call.make.constant(torch.zeros(source.channels, dtype=torch.float64))
    return Value(
        tuple(
            Piece(own.atom, own.mask, call.make.scatter(reduce, arriving[own], own.atom))
            if own in arriving
            else Piece(own.atom, own.mask, nothing)
            for own in base.pieces
        ),
        base.axes,
    )


@operator("scatter_add")
def _scatter_add(call: Call, base: Value, dim: int, index: Value, source: Value) -> Value:
    return _scatter_reduce(call, base, dim, index, source, "sum", True)  # type: ignore[return-value]


@operator("scatter_reduce")
def _scatter_reduce(
    call: Call, base: Value, dim: int, index: Value, source: Value, reduce: str, include_self: bool
) -> Value:
    if index.axes != source.axes and len(index.axes) > 1:
        raise ModelError("a scatter reads a part of its source only")
    if reduce not in ("sum", "mean", "amax", "amin") or (reduce == "mean" and include_self):
        raise ModelError(
            f"the aggregation {reduce!r} with include_self={include_self} is not known: use sum, amax or "
            "amin, or mean without what was there before"
        )
    axis = dim % len(base.axes)
    index = one_index(call, index, axis)
    result = scatter(call, "sum" if reduce == "mean" else reduce, base, axis, index, source)
    if reduce == "sum" and include_self:
        return call.elementwise("add", base, result)
    ones = call.values.each(source, lambda row: call.make.constant(1.0), ((ROWS,),))
    units = tuple(one if i == axis and ROWS in one else (1,) for i, one in enumerate(base.axes))
    narrow = Value(base.pieces, (base.axes[axis],))
    number = call.values.reshape(scatter(call, "sum", narrow, 0, index, ones), units)
    arrived = call.elementwise("gt", number, 0.0)
    if reduce == "mean":
        result = call.elementwise("div", result, call.elementwise("clamp", number, attrs=(1.0, None)))
    elif include_self and reduce != "sum":
        better = call.elementwise("maximum" if reduce == "amax" else "minimum", base, result)
        return call.elementwise("where", arrived, better, base)
    if all(piece.row.is_number(0) for piece in base.pieces):
        return result
    return call.elementwise("where", arrived, result, base)


# Rows that are written


@operator("index_put")
def _index_put(
    call: Call, base: Value, indices: Sequence[Value | None], values: Value, accumulate: bool
) -> Value:
    index = indices[0]
    if len(indices) != 1 or index is None:
        raise ModelError("a part of a tensor is written along several axes: write whole rows")
    if accumulate:
        raise ModelError("rows are added under a mask: multiply by the mask instead")
    if index.kind == "bool":
        return _write_where(call, base, index, values)
    if all(piece.row.op == "rows" for piece in index.pieces):
        return _write_own(call, base, index, values)
    return _write_last(call, base, index, values)


def _write_where(call: Call, base: Value, mask: Value, values: Value) -> Value:
    """Replaces the rows under a mask, as a choice for each row. Values are known for all masked rows."""
    wide = call.values.reshape(mask, mask.axes + ((1,),) * (len(base.axes) - len(mask.axes)))
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
    """Writes rows to their own places, for the rows that a filter keeps."""
    own = base.pieces[0]
    places = index.pieces[0]
    known = own.atom is not None and places.row is call.make.rows(own.atom, own.mask)
    if len(base.pieces) > 1 or len(index.pieces) > 1 or places.atom is not own.atom or not known:
        raise ModelError("rows are written to other rows than the index counts")
    mask = Value((Piece(own.atom, own.mask, places.mask),), ((ROWS,),))
    return _write_where(call, base, mask, source)


def _write_last(call: Call, base: Value, index: Value, values: Value) -> Value:
    """Writes rows to the ends of edges; the last edge counts. Only for the weights of existing loops."""
    if base.row_axis != 0 or len(base.pieces) > 1:
        raise ModelError("rows are written by numbers into what has no rows of nodes")
    if values.row_axis is None:
        raise ModelError("one row for all is written by numbers")
    own = base.pieces[0]
    arriving = []
    for message, piece in call.values.aligned([values, index]):
        to = _locate(call, base, piece.row)[1]
        assert to.atom is not None
        loops = call.make.elementwise("eq", call.make.end(to.atom, 0), call.make.end(to.atom, 1))
        if call.make.elementwise("and", message.mask, loops) is not message.mask:
            raise ModelError("of several edges of a node the last one decides, and edges have no order")
        arriving.append((call.make.expand(message.row, base.channels), to, message.mask))
    if own.row.value is not None and all(message is own.row for message, _, _ in arriving):
        return base
    row = call.make.scatter("last", arriving, own.atom, own.row)
    return Value((Piece(own.atom, own.mask, row),), base.axes)


# Refused operators

_REFUSED = {
    "sort argsort topk kthvalue median nanmedian mode unique _unique2 unique_dim unique_consecutive": (
        "rows or channels are sorted, which no step of a model does: use what needs no order, such as amax"
    ),
    "argmax argmin": (
        "the place of the largest or smallest number is computed: a small change of one number moves it, and "
        "a place among rows means something else when the graph changes; use the number itself (amax, amin)"
    ),
    "cumsum cumprod logcumsumexp cummax cummin": "a running sum depends on the order of the rows",
    "_local_scalar_dense item": (
        "a size, or the way of the computation, depends on data: give what is fixed as an argument"
    ),
    "roll flip": "rows change their places, which means something else when the graph changes",
    "rand randn rand_like randn_like multinomial randperm bernoulli randint normal native_dropout": (
        "random numbers are drawn: a prediction must be the same each time it is computed"
    ),
    "bincount": (
        "the largest number sets the number of rows: count edges with torch_geometric.utils.degree"
        "(edge_index[1], x.size(0))"
    ),
    "empty": "a tensor is used before anything is written to it",
}


def _refuse(reason: str) -> Operator:
    def refuse(*args: object) -> NoReturn:
        raise ModelError(reason)

    return refuse


for _names, _reason in _REFUSED.items():
    OPERATORS.update(dict.fromkeys(_names.split(), _refuse(_reason)))
