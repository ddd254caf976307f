"""Compares the numbers of each traced operator with the rows of a model, which computes in float32.

Whole numbers and float64 have digits that float32 lacks. `bounds` describes the numbers from which a row may
differ, `nearness` the results of an operator on them. Here both are carried from node to node, and rows are
made that an operator must read instead of others.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import TypeGuard

import torch
from torch import fx

from livegnn.errors import ModelError
from livegnn.importers.expressions.expressions import Expression
from livegnn.importers.reading.bounds import UNKNOWN, Bound, bound_of_constant, union, whole_bound
from livegnn.importers.reading.nearness import SHAPING, TELLING, TracedOperator, refuse_lost, weigh
from livegnn.importers.reading.values import Value, Values

Read = Mapping[fx.Node, object]
"""Node -> the value that was read for it."""

Instead = Mapping[fx.Node, Value]
"""Rows in place of those that were read."""

_TAKING = frozenset({"index", "index_select", "gather"})
_OPERANDS = ("self", "other", "exponent")
_NO_NUMBERS = ("index", "indices", "condition")


class Precision:
    """The bounds of all nodes that were read.

    wide: whether the whole module is in float64, so that no single number needs to be. lost: node of tests ->
    numbers that are 0, or NaN where a test reads NaN of a guarded number; a test has no NaN of its own, so
    these numbers are added to results that are computed from it.
    """

    def __init__(self, values: Values, *, wide: bool) -> None:
        self.values, self.make, self.wide = values, values.make, wide
        self.known: dict[fx.Node, Bound] = {}
        self.lost: dict[fx.Node, Value] = {}

    def plan(self, node: fx.Node, name: str, read: Read) -> TracedOperator:
        """Plans the reading of a node. Only `note` raises a `refusal`: unknown nodes have clearer errors."""
        arguments = _arguments(node)
        inputs = [one for one in node.all_input_nodes if _dtype(one) is not None]
        with_rows = [one for one in inputs if _has_rows(read.get(one))]
        dtype = _dtype(node)
        double = not self.wide and torch.float64 in {dtype, *map(_dtype, with_rows)}
        numbers = [arguments[role] for role in _OPERANDS if role in arguments]
        floats = [_dtype(one) for one in inputs] + [dtype if dtype != torch.bool else None]
        single = any(one is not None and one.is_floating_point for one in floats)
        single = single or any(isinstance(one, float) for one in numbers)
        op = TracedOperator(node, name, arguments, double, single and not double)
        if not with_rows or dtype is None:
            return op
        try:
            if not isinstance(node.meta["val"], torch.Tensor):
                if double:
                    op.refuse_double()
                return op
            for one in numbers:
                if isinstance(one, fx.Node | int | float):
                    op.operands.append(self._seen(one, op, read))
                    op.sources.append(one if isinstance(one, fx.Node) and one in with_rows else None)
            op.bound = self._weigh(op, read)
        except ModelError as error:
            op.refusal = str(error)
        return op

    def note(
        self, op: TracedOperator, value: object, read: Read, again: Callable[[Instead], object]
    ) -> object:
        """Records a value that was read; returns it, guarded if its operator needs it. Raises `ModelError`.

        again: reads the node once more, with other rows in place of those of some nodes.
        """
        if not _has_rows(value):
            return value
        if op.refusal:
            raise ModelError(op.refusal)
        self.known[op.node] = _of_kind(value.kind) if value.kind == "id" else op.bound
        value = self._guarded(value, op.limit) if op.limit < inf and value.kind == "int" else value
        if not op.bound.guarded or value.kind == "id":
            return value
        lost = [self.lost[one] for one in op.node.all_input_nodes if one in self.lost]
        if lost and op.name in SHAPING:
            self.lost[op.node] = _value(again(self.lost))
            return value
        if value.kind != "bool":
            return self._joined(value, lost)
        instead = self.instead(op, read)
        for node in op.node.all_input_nodes:
            number = instead.get(node, read[node])
            guarded = node in instead or self.bound_of(node, read).guarded
            if guarded and _has_rows(number) and number.kind != "bool":
                lost.append(self._lost_of(self._cast(number)))
        nothing = self.values.elementwise("mul", self._cast(value), self.values.constant(0.0))
        self.lost[op.node] = self._joined(nothing, lost)
        return value

    def _lost_of(self, number: Value) -> Value:
        """0, or NaN where the number is."""
        zero = self.values.constant(0.0)
        return self.values.elementwise("where", self.values.elementwise("isnan", number), number, zero)

    def _joined(self, value: Value, lost: Sequence[Value]) -> Value:
        """The numbers, NaN where one of several is."""
        kind = value.kind
        for one in lost:
            value = self.values.elementwise("add", self._cast(value), one)
        return self._cast(value, kind)

    def _cast(self, value: Value, kind: str = "float") -> Value:
        return self.values.each(value, lambda row: self.make.cast(row, kind), value.axes)

    def instead(self, op: TracedOperator, read: Read) -> dict[fx.Node, Value]:
        """Returns the values that an operator must read of some nodes instead of their own."""
        found: dict[fx.Node, Value] = {}
        for node in {**op.guards, **dict.fromkeys(op.zeros)}:
            value = read[node]
            if _has_rows(value):
                value = self._guarded(value, op.guards[node]) if node in op.guards else value
                found[node] = self._unsigned(value) if node in op.zeros else value
        return found

    # Rows that say more

    def _guarded(self, value: Value, limit: float) -> Value:
        """Rows of whole numbers that are NaN from a limit on."""
        make = self.make

        def guard(row: Expression) -> Expression:
            number = make.cast(row, "float")
            size = make.elementwise("neg", make.elementwise("abs", number))
            room = make.elementwise("add", size, make.constant(limit - 1))
            nothing = make.elementwise("sqrt", make.elementwise("clamp", room, attrs=(None, 0.0)))  # or NaN
            return make.cast(make.elementwise("add", number, nothing), row.kind)

        return _with_rows(value, guard)

    def _unsigned(self, value: Value) -> Value:
        """Rows in which 0 has no sign."""
        make = self.make

        def plain(row: Expression) -> Expression:
            zero = make.cast(make.constant(0.0), row.kind)
            return make.elementwise("where", make.elementwise("eq", row, zero), zero, row)

        return _with_rows(value, plain)

    # Bounds of operands

    def bound_of(self, node: fx.Node, read: Read) -> Bound:
        """Returns the bound of the numbers of a node."""
        found = self.known.get(node)
        if found is None:
            found = self.known[node] = self._find(node, read)
        return found

    def _find(self, node: fx.Node, read: Read) -> Bound:
        value, dtype = read.get(node), _dtype(node)
        if isinstance(value, Value):
            rows = [one.row.value for one in value.pieces]
            constants = [one for one in rows if one is not None]
            if len(constants) == len(rows):
                return union([bound_of_constant(one) for one in constants])
            if node.op == "placeholder":
                return _of_kind(value.kind, dtype)
        elif dtype is None:
            return _of_kind("id")  # a size
        inputs = [self.bound_of(one, read) for one in node.all_input_nodes if _dtype(one) is not None]
        # One of several results, as of a norm
        return replace(UNKNOWN, guarded=any(one.guarded for one in inputs))

    def _seen(self, source: fx.Node | float, op: TracedOperator, read: Read) -> Bound:
        """Numbers as an operator sees them, which makes float32 of them first if it computes in it."""
        if not isinstance(source, fx.Node):
            found = bound_of_constant(torch.tensor(source, dtype=torch.float64))
            return replace(found, same_below=inf) if op.single else found
        found = self.bound_of(source, read)
        if not op.single or not found.once or op.name == "_to_copy":
            return found
        kept = _dtype(source) == torch.float32 and _has_rows(read.get(source))
        return found if kept else replace(found, same_below=inf)

    # Bounds of results

    def _weigh(self, op: TracedOperator, read: Read) -> Bound:
        lost = [one for one in op.node.all_input_nodes if one in self.lost]
        if lost and (op.name not in TELLING or (op.name == "_to_copy" and op.dtype == torch.bool)):
            refuse_lost(op, [self.known[one] for one in lost])
        if op.name in _TAKING:
            return self._take(op, read)
        source = op.arguments.get("src", op.arguments.get("source"))
        scattered = self.bound_of(source, read) if isinstance(source, fx.Node) else None
        skipped = [one for role in _NO_NUMBERS for one in _listed(op.arguments.get(role))]
        nodes = [one for one in op.node.all_input_nodes if one not in skipped and _dtype(one) is not None]
        given = [self._seen(one, op, read) for one in nodes]
        numbers = [op.arguments.get(role) for role in _OPERANDS]
        given += [self._seen(one, op, read) for one in numbers if isinstance(one, int | float)]
        found = weigh(op, given, scattered)
        return replace(found, guarded=True) if lost else found

    def _take(self, op: TracedOperator, read: Read) -> Bound:
        """Rows at the ends of edges, or of a table at whole numbers, which are to be the module's own."""
        table = op.argument("self")
        found = self.bound_of(table, read)
        if _has_rows(read[table]):
            return found
        for index in _listed(op.arguments.get("index", op.arguments.get("indices"))):
            if not isinstance(index, fx.Node) or _dtype(index) == torch.bool:
                continue
            number = self.bound_of(index, read)
            if number.same_below < table.meta["val"].shape[0]:
                op.operands, op.sources = [number], [index]
                number = op.exact(0)
            found = replace(found, guarded=found.guarded or number.guarded, why=found.why or number.why)
        return found


def _arguments(node: fx.Node) -> dict[str, object]:
    """The arguments by the names of the operator's schema."""
    assert isinstance(node.target, torch._ops.OpOverload), node.target
    names = [one.name for one in node.target._schema.arguments]
    return {**dict(zip(names, node.args, strict=False)), **node.kwargs}


def _listed(given: object) -> Sequence[object]:
    return given if isinstance(given, list | tuple) else [given]


def _dtype(node: fx.Node) -> torch.dtype | None:
    """The dtype of a tensor, or of the first of several; None of a size."""
    held = node.meta.get("val")
    held = held[0] if isinstance(held, list | tuple) else held
    return held.dtype if isinstance(held, torch.Tensor) else None


def _value(given: object) -> Value:
    assert isinstance(given, Value)
    return given


def _has_rows(value: object) -> TypeGuard[Value]:
    return isinstance(value, Value) and any(piece.row.value is None for piece in value.pieces)


def _of_kind(kind: str, dtype: torch.dtype | None = None) -> Bound:
    """Returns the bound of a column of the graph: the module is called with its rows."""
    if kind == "float":
        return UNKNOWN
    if kind == "int":
        info = torch.iinfo(dtype or torch.int64)
        return whole_bound(info.min, info.max)
    return whole_bound(0, 1 if kind == "bool" else 2.0**32)


def _with_rows(value: Value, function: Callable[[Expression], Expression]) -> Value:
    """Returns the value with other rows; constants that are the same for all rows stay."""
    pieces = (
        one if one.row.value is not None else replace(one, row=function(one.row)) for one in value.pieces
    )
    return Value(tuple(pieces), value.axes)
