"""Tensors of the exported program as pieces of rows, on which `operators` work.

A tensor's rows are the rows of one type of node or edge, or of several types concatenated: a *union*, which
is never stored as one array. Each piece has its atom, the mask of the atom's rows that belong to it, and the
expression of a row. ``axes`` describes the tensor's shape: each axis has components, which are numbers of
channels or `ROWS`, so that views which fuse rows with channels can be represented.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TypeAlias

import sympy
import torch

from livegnn.errors import ModelError
from livegnn.importers.expressions.expressions import Atom, Expression, Expressions, Shape
from livegnn.importers.program.export import symbolic

ROWS = -1
"""The component of an axis that counts rows."""

Axis: TypeAlias = tuple[int, ...]
Axes: TypeAlias = tuple[Axis, ...]
Space: TypeAlias = tuple[tuple[Atom, Expression], ...]
"""The rows of a union, in order: atoms and masks."""


def channels_of(axes: Axes) -> Shape:
    """The components of axes without `ROWS`, in order."""
    return tuple(part for axis in axes for part in axis if part != ROWS)


@dataclass(frozen=True)
class Piece:
    """The rows of an atom that a mask selects; atom None: one row, the same for all."""

    atom: Atom | None
    mask: Expression
    row: Expression


@dataclass(frozen=True)
class Value:
    """A tensor. The channels of its pieces are the components of its axes without `ROWS`, in order."""

    pieces: tuple[Piece, ...]
    axes: Axes

    @property
    def row_axis(self) -> int | None:
        """The axis of the rows, or None."""
        return next((i for i, axis in enumerate(self.axes) if ROWS in axis), None)

    @property
    def space(self) -> Space:
        return tuple((piece.atom, piece.mask) for piece in self.pieces if piece.atom is not None)

    @property
    def channels(self) -> Shape:
        return channels_of(self.axes)

    @property
    def row(self) -> Expression:
        """The row of a tensor. Raises `ModelError` for a union."""
        if len(self.pieces) > 1:
            raise ModelError("rows of several kinds behind each other are used as one: keep them apart")
        return self.pieces[0].row

    @property
    def kind(self) -> str:
        return self.pieces[0].row.kind

    def channel_of(self, axis: int) -> int:
        """The place of an axis' first component among the channels."""
        return sum(part != ROWS for one in self.axes[:axis] for part in one)

    def is_free(self) -> bool:
        """Whether all rows are the same constant, so that they fit any rows."""
        return all(piece.row.value is not None and piece.row is self.row_of_all for piece in self.pieces)

    @property
    def row_of_all(self) -> Expression:
        return self.pieces[0].row


@dataclass
class Values:
    """Makes values, and maps symbols of the program to the rows that they count.

    spaces: size -> the rows that it counts, for sizes that `count` has returned. largest: symbols of the
    program that are the largest number of a column.
    """

    make: Expressions = field(default_factory=Expressions)
    _counts: dict[tuple[Atom, Expression], sympy.Symbol] = field(default_factory=dict)
    _symbols: dict[sympy.Symbol, sympy.Expr] = field(default_factory=dict)
    spaces: dict[sympy.Expr, Space] = field(default_factory=dict)
    largest: set[sympy.Symbol] = field(default_factory=set)

    @property
    def everything(self) -> Expression:
        """The mask of all rows."""
        return self.make.constant(torch.tensor(True))

    # Sizes

    def count(self, space: Space) -> sympy.Expr:
        """The number of rows of a space, as an expression of internal symbols."""
        total: sympy.Expr = sympy.Integer(0)
        for atom, mask in space:
            name = f"rows_{len(self._counts)}"
            total += self._counts.setdefault((atom, mask), sympy.Symbol(name, integer=True))
        self.spaces.setdefault(total, space)
        return total

    def name_size(self, size: object, space: Space) -> None:
        """Binds the program's symbol `size` to the number of rows of `space`."""
        expression = symbolic(size)
        known = self.size(expression)
        if known is None:
            if not isinstance(expression, sympy.Symbol):
                raise self._unknown(expression)
            self._symbols[expression] = self.count(space)

    def name_last(self, number: object, space: Space) -> None:
        """Binds a symbol of the program to the place of the last row of `space`, as if each had an edge.

        If another row than the last is the last with an edge, the import's final check finds a difference.
        """
        expression = symbolic(number)
        if isinstance(expression, sympy.Symbol):
            self._symbols.setdefault(expression, self.count(space) - 1)

    def size(self, size: object) -> sympy.Expr | None:
        """A size of the program in internal symbols; None if it counts rows that are not known yet."""
        expression = symbolic(size)
        if not set(expression.free_symbols) <= set(self._symbols):
            return None
        return sympy.expand(expression.subs(self._symbols))

    def space_of(self, size: object) -> Space | None:
        """The rows that a size counts; None if it is a plain number."""
        known = self.size(size)
        if known is not None and not known.free_symbols:
            return None
        space = self.spaces.get(known)
        if space is None:
            raise self._unknown(size)
        return space

    def _unknown(self, size: object) -> ModelError:
        """The error for a number of rows that is not one of nodes or edges."""
        if symbolic(size).free_symbols & self.largest:
            return ModelError(
                "rows are pooled to a row for each number in a column, as for graphs by their batch, and how "
                "many there are depends on data: name the type of the groups, as in groups={'batch': "
                "'graph'}, or return the rows before they are pooled, as from a method of their own "
                "(method=...)"
            )
        return ModelError(f"the number of rows of a tensor must be a number of nodes or edges, got {size}")

    # Making values

    def constant(self, tensor: torch.Tensor | float, name: str = "") -> Value:
        return self.one_row(self.make.constant(tensor, name))

    def one_row(self, row: Expression, axes: Axes | None = None) -> Value:
        """A tensor without rows."""
        axes = tuple((size,) for size in row.shape) if axes is None else axes
        return Value((Piece(None, self.everything, row),), axes)

    def each(self, value: Value, function: Callable[[Expression], Expression], axes: Axes) -> Value:
        """Applies a function to the row of each piece."""
        pieces = (Piece(piece.atom, piece.mask, function(piece.row)) for piece in value.pieces)
        return Value(tuple(pieces), axes)

    def reshape(self, value: Value, axes: Axes) -> Value:
        """The same numbers for each row, with the channels of other axes."""
        return self.each(value, lambda row: self.make.reshape(row, channels_of(axes)), axes)

    def elementwise(self, op: str, *values: Value, attrs: tuple[object, ...] = ()) -> Value:
        """An operation on tensors whose axes broadcast from the right."""
        axes = self._broadcast(values)
        values = tuple(self._fit(value, axes) for value in values)
        pieces = []
        for rows in self.aligned(values):
            row = self.make.elementwise(op, *(piece.row for piece in rows), attrs=attrs)
            pieces.append(Piece(rows[0].atom, rows[0].mask, self._known(rows[0].mask, row)))
        return Value(tuple(pieces), axes)

    def _known(self, mask: Expression, row: Expression) -> Expression:
        """The row; a constant for a comparison whose result follows from the mask of the rows."""
        if row.kind == "bool" and not row.shape and row.value is None:
            if self.make.elementwise("and", mask, row) is mask:
                return self.everything
            if self.make.elementwise("and", mask, row).is_number(0):
                return self.make.constant(torch.tensor(False))
        return row

    def expand(self, value: Value, sizes: Sequence[object]) -> Value:
        """Expands axes of size one to the given numbers of rows and channels."""
        row_axes = [i for i, size in enumerate(sizes) if not isinstance(size, int)]
        own = None if value.row_axis is None else value.row_axis + len(sizes) - len(value.axes)
        if len(row_axes) > 1 or (own is not None and row_axes != [own]):
            raise ModelError("a tensor has a number for every pair of rows: only pairs that are edges count")
        rows = (ROWS,) if value.row_axis is None else value.axes[value.row_axis]
        axes = tuple(rows if i in row_axes else (int(str(size)),) for i, size in enumerate(sizes))
        value = self.each(self._fit(value, axes), lambda row: self.make.expand(row, channels_of(axes)), axes)
        if own is not None or not row_axes:
            return value
        space = self.space_of(sizes[row_axes[0]])
        assert space is not None
        return Value(tuple(Piece(atom, mask, value.row) for atom, mask in space), axes)

    def aligned(self, values: Sequence[Value]) -> list[list[Piece]]:
        """The pieces of several tensors with the same rows, grouped by rows.

        A row that is the same for all fits any rows. All pieces of a list have the same atom and mask.
        """
        framing = [value for value in values if value.row_axis is not None]
        bound = [value for value in framing if not value.is_free()]
        frame = (bound or framing or list(values))[0]
        for value in framing:
            if value.space != frame.space and not (
                value.is_free() and self.count(value.space) == self.count(frame.space)
            ):
                raise ModelError(
                    "rows of different nodes or edges are put together one by one: only rows of the same "
                    "ones may be"
                )
        bounded = [value.space == frame.space for value in values]
        return [
            [
                Piece(piece.atom, piece.mask, value.pieces[i].row if same else value.row_of_all)
                for value, same in zip(values, bounded, strict=True)
            ]
            for i, piece in enumerate(frame.pieces)
        ]

    def _broadcast(self, values: Sequence[Value]) -> Axes:
        """The axes of the result of an elementwise operation."""
        rank = max(len(value.axes) for value in values)
        axes: list[Axis] = []
        for i in range(-rank, 0):
            parts = [value.axes[i] for value in values if len(value.axes) >= -i]
            with_rows = {part for part in parts if ROWS in part}
            if len(with_rows) > 1 or (with_rows and any(part != (1,) and ROWS not in part for part in parts)):
                raise ModelError("rows meet channels, or rows in another order, one by one")
            axes.append(
                with_rows.pop() if with_rows else (max(parts, key=prod) if (0,) not in parts else (0,))
            )
        if sum(ROWS in axis for axis in axes) > 1:
            raise ModelError(
                "every node meets every node (or edge): what grows with their product is not served; let "
                "them meet along edges"
            )
        return tuple(axes)

    def _fit(self, value: Value, axes: Axes) -> Value:
        """The tensor with its channels reshaped to the number of components in `axes`, so that rows
        broadcast."""
        own = ((1,),) * (len(axes) - len(value.axes)) + value.axes
        pairs = zip(axes, own, strict=True)
        fitted = ((1,) * (len(axis) - 1) if ROWS in axis and ROWS not in one else one for axis, one in pairs)
        return self.reshape(value, tuple(fitted))
