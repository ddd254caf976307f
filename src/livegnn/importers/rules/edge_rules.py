"""Rules 2 to 5 of the normal form, which move as much of a message as possible from edges to nodes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from functools import reduce as fold
from math import prod

import torch

from livegnn.importers.expressions import evaluation
from livegnn.importers.expressions.expressions import Expression, Expressions, join
from livegnn.importers.expressions.properties import Reads, is_finite, is_of_edges, squeezed

_ROW_WISE = frozenset({*evaluation.ELEMENTWISE, *evaluation.CHANNELS})


@dataclass
class EdgeRules:
    """Builds expressions from arguments in normal form."""

    make: Expressions
    reads: Reads = field(default_factory=Reads)

    def build(self, one: Expression, args: Sequence[Expression]) -> Expression:
        """The operation of `one` on other arguments of the same shapes."""
        if one.op not in _ROW_WISE or not args:
            return self.make.with_args(one, args)
        if one.op in evaluation.ELEMENTWISE:
            return self.elementwise(one.op, *args, attrs=one.attrs)
        return self.hoist(args, lambda inner: self._channels(one, inner))

    def hoist(
        self, args: Sequence[Expression], make: Callable[[Sequence[Expression]], Expression]
    ) -> Expression:
        """Rule 2: an operation that reads only one end of the edges is computed on nodes."""
        rows = [arg for arg in args if arg.atom is not None]
        if rows and all(arg.op == "gather" and arg.args[1] is rows[0].args[1] for arg in rows):
            inner = make([arg.args[0] if arg.atom is not None else arg for arg in args])
            return self.make.gather(inner, rows[0].args[1])
        return make(args)

    # Rules 3 to 5

    def elementwise(self, op: str, *args: Expression, attrs: tuple[object, ...] = ()) -> Expression:
        """Rules 3 (expansions) and 5, then 2."""
        shape = tuple(torch.broadcast_shapes(*(arg.shape for arg in args)))
        lean = [arg.args[0] if arg.op == "expand" else arg for arg in args]
        if args[0].kind != "id" and torch.broadcast_shapes(*(arg.shape for arg in lean)) == shape:
            args = tuple(lean)
        atom = join(args)
        if op == "neg" and args[0].op == "add" and is_of_edges(atom):
            return self.elementwise("add", *(self.elementwise("neg", term) for term in args[0].args))
        if op in ("add", "mul") and is_of_edges(atom):
            return self._group(op, args, shape)
        infinite = [arg for arg in args if arg.is_number(float("inf"))]
        if op == "eq" and infinite and all(is_finite(arg) for arg in args if arg not in infinite):
            return self.make.constant(torch.zeros(shape, dtype=torch.bool))
        if is_of_edges(atom) and any(arg.op == "concat" for arg in args) and op != "exp_shifted":
            parts = self._apart([self.unit(arg, len(shape)) for arg in args])
            if parts is not None:
                axis, rows = parts
                return self.make.concat([self.elementwise(op, *row, attrs=attrs) for row in rows], axis)
        return self.hoist(args, lambda inner: self.make.elementwise(op, *inner, attrs=attrs))

    def _group(self, op: str, args: Sequence[Expression], shape: tuple[int, ...]) -> Expression:
        """Rule 5: combines terms (or factors) with the same reads first, then the groups."""
        rank = len(shape)
        parts = [part for arg in args for part in self._parts(op, self.unit(arg, rank))]
        groups: dict[frozenset[str], Expression] = {}
        for part in sorted(parts, key=lambda part: part.number):
            reads = self.reads(part)
            held = groups.get(reads)
            groups[reads] = part if held is None else self._combine(op, held, part)
        result = fold(partial(self._combine, op), groups.values())
        return result if result.shape == shape else self.make.expand(result, shape)

    def _apart(self, args: Sequence[Expression]) -> tuple[int, list[list[Expression]]] | None:
        """Rule 3: the arguments of an element-wise operation for each part of the channels."""
        joined = next(arg for arg in args if arg.op == "concat")
        axis = joined.axis
        sizes = [part.shape[axis] for part in joined.args]
        columns: list[list[Expression]] = []
        for arg in args:
            if (
                arg.op == "concat"
                and arg.attrs == joined.attrs
                and [p.shape[axis] for p in arg.args] == sizes
            ):
                columns.append(list(arg.args))
            elif arg.shape[axis] == 1:
                columns.append([arg] * len(sizes))
            elif arg.value is not None:
                ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
                parts = [
                    self.make.slice(arg, axis, end - size, end) for end, size in zip(ends, sizes, strict=True)
                ]
                columns.append(parts)
            else:
                return None
        return axis, [list(row) for row in zip(*columns, strict=True)]

    def _combine(self, op: str, a: Expression, b: Expression) -> Expression:
        parts = None
        if "concat" in (a.op, b.op) and is_of_edges(join((a, b))):
            parts = self._apart([a, b])
        if parts is not None:
            axis, rows = parts
            return self.make.concat([self._combine(op, *row) for row in rows], axis)
        return self.hoist([a, b], lambda inner: self.make.elementwise(op, *inner))

    def _parts(self, op: str, one: Expression) -> list[Expression]:
        if one.op == op and is_of_edges(one.atom):
            return [part for arg in one.args for part in self._parts(op, arg)]
        return [one]

    def unit(self, one: Expression, rank: int) -> Expression:
        """Adds axes of size one in front, up to `rank` axes."""
        return self.reshape(one, (1,) * (rank - len(one.shape)) + one.shape)

    def _channels(self, one: Expression, args: Sequence[Expression]) -> Expression:
        x = args[0]
        if one.op == "reshape":
            return self.reshape(x, one.shape)
        if one.op == "slice":
            return self._slice(one, x)
        if one.op == "linear" and is_of_edges(x.atom):
            return self._linear(x, args[1])
        return self.make.with_args(one, args)

    def reshape(self, x: Expression, shape: tuple[int, ...]) -> Expression:
        """Rule 3 for axes of size one: moves them below element-wise operations and concatenations."""
        if x.shape == shape:
            return x
        if x.op == "concat" and is_of_edges(x.atom) and squeezed(x.shape) != squeezed(shape):
            axis = next(i for i, size in enumerate(shape) if size != 1)
            inner = prod(shape[axis + 1 :])
            sizes = [prod(part.shape) for part in x.args]
            if prod(x.shape[: x.axis]) == 1 and not any(size % inner for size in sizes):
                parts = [
                    self.reshape(part, (*shape[:axis], size // inner, *shape[axis + 1 :]))
                    for part, size in zip(x.args, sizes, strict=True)
                ]
                return self.make.concat(parts, axis)
        if squeezed(x.shape) != squeezed(shape) or not is_of_edges(x.atom) or x.op == "exp_shifted":
            return self.make.reshape(x, shape)
        if x.op == "gather":
            return self.make.gather(self.reshape(x.args[0], shape), x.args[1])
        if x.op in evaluation.ELEMENTWISE and x.args[0].kind != "id":
            places = _places(x.shape, shape)
            args = [self.reshape(a, tuple(1 if p is None else a.shape[p] for p in places)) for a in x.args]
            made = self.elementwise(x.op, *args, attrs=x.attrs)
            return made if made.shape == shape else self.make.expand(made, shape)
        if x.op == "concat" and x.shape[x.axis] != 1:
            places = _places(x.shape, shape)
            axis = places.index(x.axis)
            parts = [self.reshape(a, tuple(1 if p is None else a.shape[p] for p in places)) for a in x.args]
            return self.make.concat(parts, axis)
        return self.make.reshape(x, shape)

    def _slice(self, one: Expression, x: Expression) -> Expression:
        """Rule 3 for slices."""
        axis, start, stop, step = (int(str(number)) for number in one.attrs)
        if x.op in evaluation.ELEMENTWISE and x.op != "exp_shifted":
            args = [a if a.shape[axis] == 1 != x.shape[axis] else self._slice(one, a) for a in x.args]
            made = self.elementwise(x.op, *args, attrs=x.attrs)
            full = self.make.slice(x, axis, start, stop, step).shape
            return made if made.shape == full else self.make.expand(made, full)
        if x.op == "linear":
            if axis == len(x.shape) - 1:
                weight = self.make.slice(x.args[1], 1, start, stop, step)
                return self.hoist([x.args[0], weight], lambda inner: self._linear(*inner))
            return self._linear(self._slice(one, x.args[0]), x.args[1])
        if x.op == "concat" and x.axis != axis:
            return self.make.concat([self._slice(one, part) for part in x.args], x.axis)
        if x.op == "gather":
            return self.make.gather(self._slice(one, x.args[0]), x.args[1])
        return self.make.slice(x, axis, start, stop, step)

    def _linear(self, x: Expression, weight: Expression) -> Expression:
        """Rule 4."""
        axis = len(x.shape) - 1
        different = x.op == "add" and len({self.reads(arg) for arg in x.args}) > 1
        if is_of_edges(x.atom) and (different or x.op == "neg"):
            parts = [self.expand(arg, x.shape) for arg in x.args]
            terms = [self.hoist([part, weight], lambda inner: self._linear(*inner)) for part in parts]
            return self.elementwise(x.op, *terms)
        if x.op != "concat" or x.attrs != (axis,) or not is_of_edges(x.atom):
            return self.make.matmul(x, weight) if len(x.shape) != 1 else self._vector(x, weight)
        result, start = None, 0
        for part in x.args:
            rows = self.make.slice(weight, 0, start, start + part.shape[axis])
            start += part.shape[axis]
            term = self.hoist([part, rows], lambda inner: self._linear(*inner))
            result = term if result is None else self.elementwise("add", result, term)
        assert result is not None
        return result

    def _vector(self, x: Expression, weight: Expression) -> Expression:
        return self.make.make("linear", (x, weight), shape=weight.shape[1:], atom=x.atom)

    # Rules 6 to 10

    def expand(self, one: Expression, shape: tuple[int, ...]) -> Expression:
        return self.hoist([self.unit(one, len(shape))], lambda inner: self.make.expand(inner[0], shape))


def _places(old: Sequence[int], new: Sequence[int]) -> list[int | None]:
    """For each axis of a new shape, its old axis; None for an added axis of size one."""
    full = [i for i, size in enumerate(old) if size != 1]
    rest = iter(full)
    return [next(rest) if size != 1 else None for size in new]
