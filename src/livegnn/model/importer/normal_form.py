"""The normal form: what is summed along edges reads as little as it can.

Rules, applied from the inputs to the outputs; each keeps the value of every row but for rounding.

Shifts
    1. ``exp(l - max l)``, where the maximum is that of the same logits over a target's edges, is
       ``exp_shifted``: the maximum is a softmax's shift and no part of a message. This comes first, as later
       rules take terms out of maxima.
Edges to nodes
    2. An operation on edges that reads one end alone is computed on nodes: ``f(x[end]) = f(x)[end]``.
    3. Axes of one move below element-wise operations and concatenations; slices below element-wise
       operations, concatenations and linear maps; concatenations above element-wise operations; what these
       broadcast anyway is not expanded before.
    4. A linear map of a concatenation is the sum of linear maps of its parts; so is one of a sum whose terms
       read different rows. What is finite is not compared with infinity.
    5. The terms of a sum, and the factors of a product, are put together by what they read.
Sums
    6. A sum over several pieces is the sum over each; rows that go to themselves are added.
    7. A message is a sum of products T(target) * R, if no R reads the target: sum(T R) = T sum(R). Equal T
       are merged; R = 1 is a count.
    8. Linear maps, constant factors and changes of shape leave a sum, whatever they are of; so does a term
       that reads less.
    9. A sum of concatenated channels is the concatenation of sums, if the message reads the target.
Extrema
    10. Terms that read the target alone, and increasing functions, leave a maximum: where a target has any
        edge. What it is where there is none stays as it was.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TypeAlias

import torch

from livegnn.model.importer import interpreter
from livegnn.model.importer.expressions import Atom, Expression, Expressions, join, walk

SHAPES = frozenset({"reshape", "expand", "permute", "slice"})
"""Operations that move one argument's channels."""

_ROW_WISE = frozenset({*interpreter.ELEMENTWISE, *interpreter.CHANNELS})
_INCREASING = frozenset(
    {
        "relu",
        "sigmoid",
        "tanh",
        "exp",
        "log",
        "sqrt",
        "softplus",
        "leaky_relu",
        "elu",
        "log1p",
        "expm1",
        "clamp",
    }
)
_MOST_TERMS = 24


def normalize(make: Expressions, outputs: Sequence[Expression]) -> list[Expression]:
    """The normal forms of expressions, made with `make`."""
    marked = mark_shifts(make, outputs)
    form = _Form(make)
    form.shifts = {strip(_shift_of(one)) for one in walk(marked) if one.op == "exp_shifted"}
    return form.rewrite(marked)


def rewrite(
    make: Expressions, outputs: Sequence[Expression], rule: Callable[..., Expression]
) -> list[Expression]:
    """Expressions anew from the inputs on, each made by ``rule(old, new arguments)``."""
    new: dict[Expression, Expression] = {}
    for one in walk(outputs):
        make.origin = make.origins.get(one, make.origin)
        new[one] = rule(one, [new[arg] for arg in one.args])
    return [new[one] for one in outputs]


def strip(one: Expression) -> Expression:
    """Without axes of one put in or left out."""
    while one.op == "reshape" and squeezed(one.shape) == squeezed(one.args[0].shape):
        one = one.args[0]
    return one


def squeezed(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)


def _shift_of(one: Expression) -> Expression:
    shift = one.args[1]
    return shift.args[0] if shift.op == "gather" else shift


# Rule 1


def mark_shifts(make: Expressions, outputs: Sequence[Expression]) -> list[Expression]:
    """Rule 1: the exponentials of softmaxes on the graph as ``exp_shifted(logit, shift)``."""

    def rule(one: Expression, args: Sequence[Expression]) -> Expression:
        if one.op == "exp" and args[0].op == "add":
            for logit, other in (args[0].args, args[0].args[::-1]):
                if other.op == "neg" and _is_shift(make, logit, other.args[0]):
                    return make.elementwise("exp_shifted", logit, other.args[0])
        return make.with_args(one, args)

    return rewrite(make, outputs, rule)


def _is_shift(make: Expressions, logit: Expression, shift: Expression) -> bool:
    """Whether a shift is the largest of these logits among those of the same target."""
    shift = strip(shift)
    largest, index = (strip(shift.args[0]), shift.args[1]) if shift.op == "gather" else (shift, None)
    if largest.op != "scatter" or largest.attrs != ("amax",) or largest.atom is None:
        return False
    index = index or make.rows(largest.atom)
    return any(strip(m) is strip(logit) and to is index for m, to, _ in largest.pieces)


# What expressions read


@dataclass
class Reads:
    """Which rows an expression of edges reads: of ``"end 0"``, ``"end 1"``, ``"edge"``; of nodes, ``"node"``.

    Outside the exponentials of softmaxes: what logits read is `inside`.
    """

    _known: dict[Expression, frozenset[str]] = field(default_factory=dict)
    inside: bool = False

    def __call__(self, one: Expression) -> frozenset[str]:
        found = self._known.get(one)
        if found is None:
            found = self._read(one)
            self._known[one] = found
        return found

    def _read(self, one: Expression) -> frozenset[str]:
        if one.atom is None:
            return frozenset()
        if one.op == "gather":
            return (
                frozenset({f"end {one.args[1].attrs[0]}"}) if one.args[1].op == "end" else frozenset({"node"})
            )
        if one.atom.source is None:
            return frozenset({"node"})
        if one.op in ("input", "scatter"):
            return frozenset({"edge"})
        if one.op in ("end", "rows"):
            return frozenset({"edge"})
        if one.op == "exp_shifted":
            return self(one.args[0]) if self.inside else frozenset({"exponential"})
        return frozenset().union(*(self(arg) for arg in one.args))


@dataclass(frozen=True)
class Term:
    """A product: of target rows (over others), and of what does not read the target. None stands for 1."""

    target: Expression | None
    under: Expression | None
    rest: Expression | None


Terms: TypeAlias = list[Term]


@dataclass
class _Form:
    """Builds expressions in normal form of arguments that are."""

    make: Expressions
    shifts: set[Expression] = field(default_factory=set)
    reads: Reads = field(default_factory=Reads)

    def rewrite(self, outputs: Sequence[Expression]) -> list[Expression]:
        def rule(one: Expression, args: Sequence[Expression]) -> Expression:
            return self.make.with_args(one, args) if one in self.shifts else self.build(one, args)

        return rewrite(self.make, outputs, rule)

    def build(self, one: Expression, args: Sequence[Expression]) -> Expression:
        """An operation like `one` on other arguments of the same shapes."""
        if one.op == "scatter":
            return self._scatter(one, args)
        if one.op not in _ROW_WISE or not args:
            return self.make.with_args(one, args)
        if one.op in interpreter.ELEMENTWISE:
            return self.elementwise(one.op, *args, attrs=one.attrs)
        return self.hoist(args, lambda inner: self._channels(one, inner))

    def hoist(
        self, args: Sequence[Expression], make: Callable[[Sequence[Expression]], Expression]
    ) -> Expression:
        """Rule 2: an operation on the nodes at one end of the edges, where it reads nothing else."""
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
        """Rule 5: terms (or factors) of one kind of reading first, then with the others."""
        rank = len(shape)
        parts = [part for arg in args for part in self._parts(op, self.unit(arg, rank))]
        groups: dict[frozenset[str], Expression] = {}
        for part in sorted(parts, key=lambda part: part.number):
            reads = self.reads(part)
            held = groups.get(reads)
            groups[reads] = part if held is None else self._combine(op, held, part)
        result = None
        for group in groups.values():
            result = group if result is None else self._combine(op, result, group)
        assert result is not None
        return result if result.shape == shape else self.make.expand(result, shape)

    def _apart(self, args: Sequence[Expression]) -> tuple[int, list[list[Expression]]] | None:
        """Rule 3: the arguments of an element-wise operation for each part of the channels."""
        joined = next(arg for arg in args if arg.op == "concat")
        axis = int(str(joined.attrs[0]))
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
        """With axes of one in front, up to a number of axes."""
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
        """Rule 3, axes of one: below element-wise operations and concatenations."""
        if x.shape == shape:
            return x
        if x.op == "concat" and is_of_edges(x.atom) and squeezed(x.shape) != squeezed(shape):
            axis = next(i for i, size in enumerate(shape) if size != 1)
            inner = prod(shape[axis + 1 :])
            sizes = [prod(part.shape) for part in x.args]
            if prod(x.shape[: int(str(x.attrs[0]))]) == 1 and not any(size % inner for size in sizes):
                parts = [
                    self.reshape(part, (*shape[:axis], size // inner, *shape[axis + 1 :]))
                    for part, size in zip(x.args, sizes, strict=True)
                ]
                return self.make.concat(parts, axis)
        if squeezed(x.shape) != squeezed(shape) or not is_of_edges(x.atom) or x.op == "exp_shifted":
            return self.make.reshape(x, shape)
        if x.op == "gather":
            return self.make.gather(self.reshape(x.args[0], shape), x.args[1])
        if x.op in interpreter.ELEMENTWISE:
            places = _places(x.shape, shape)
            args = [self.reshape(a, tuple(1 if p is None else a.shape[p] for p in places)) for a in x.args]
            made = self.elementwise(x.op, *args, attrs=x.attrs)
            return made if made.shape == shape else self.make.expand(made, shape)
        if x.op == "concat" and x.shape[int(str(x.attrs[0]))] != 1:
            places = _places(x.shape, shape)
            axis = places.index(int(str(x.attrs[0])))
            parts = [self.reshape(a, tuple(1 if p is None else a.shape[p] for p in places)) for a in x.args]
            return self.make.concat(parts, axis)
        return self.make.reshape(x, shape)

    def _slice(self, one: Expression, x: Expression) -> Expression:
        """Rule 3, slices."""
        axis, start, stop, step = (int(str(number)) for number in one.attrs)
        if x.op in interpreter.ELEMENTWISE and x.op != "exp_shifted":
            args = [a if a.shape[axis] == 1 != x.shape[axis] else self._slice(one, a) for a in x.args]
            made = self.elementwise(x.op, *args, attrs=x.attrs)
            full = self.make.slice(x, axis, start, stop, step).shape
            return made if made.shape == full else self.make.expand(made, full)
        if x.op == "linear":
            if axis == len(x.shape) - 1:
                weight = self.make.slice(x.args[1], 1, start, stop, step)
                return self.hoist([x.args[0], weight], lambda inner: self._linear(*inner))
            return self._linear(self._slice(one, x.args[0]), x.args[1])
        if x.op == "concat" and int(str(x.attrs[0])) != axis:
            return self.make.concat([self._slice(one, part) for part in x.args], int(str(x.attrs[0])))
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

    def _scatter(self, one: Expression, args: Sequence[Expression]) -> Expression:
        made = self.make.with_args(one, args)
        if made.op != "scatter" or one.attrs == ("last",) or one.atom is None:
            return made
        if one.attrs == ("sum",):
            result: Expression | None = None
            for message, index, mask in made.pieces:
                part = self._sum(message, index, mask, one.atom)
                result = part if result is None else self.make.elementwise("add", result, part)
            assert result is not None
            return result
        if len(made.pieces) == 1 and one.attrs[0] in ("amax", "amin"):
            return self._extremum(made, *made.pieces[0])
        return made

    def _sum(self, message: Expression, index: Expression, mask: Expression, atom: Atom) -> Expression:
        """Rules 6 and 7."""
        make, shape = self.make, message.shape
        if index.op == "rows":
            zero = make.constant(0.0)
            unit = make.reshape(mask, (1,) * len(shape))
            own = message if mask.is_number(1) else make.elementwise("where", unit, message, zero)
            return (
                own
                if own.atom is not None
                else make.expand(self._leave(None, index, mask, atom, len(shape)), shape)
            )
        terms = self.split(message, index)
        if terms is None:
            if message.op in ("linear", "neg", "sum") or message.op in SHAPES:
                inner = make.expand(self._sum(message.args[0], index, mask, atom), message.args[0].shape)
                return make.with_args(message, [inner, *message.args[1:]])
            if message.op == "concat":
                axis = int(str(message.attrs[0]))
                return make.concat([self._sum(part, index, mask, atom) for part in message.args], axis)
            return make.scatter("sum", [(message, index, mask)], atom)
        merged: dict[tuple[Expression | None, Expression | None], Expression | None] = {}
        for term in terms:
            key = (term.target, term.under)
            if key not in merged:
                merged[key] = term.rest
            else:
                one = make.constant(1.0)
                merged[key] = self.elementwise("add", merged[key] or one, term.rest or one)
        result = None
        for (target, under), rest in merged.items():
            part = self._leave(rest, index, mask, atom, len(shape))
            part = part if target is None else make.elementwise("mul", target, part)
            part = part if under is None else make.elementwise("div", part, under)
            result = part if result is None else make.elementwise("add", result, part)
        assert result is not None
        return make.expand(result, shape)

    def _leave(
        self, rest: Expression | None, index: Expression, mask: Expression, atom: Atom, rank: int
    ) -> Expression:
        """Rule 8: the sum of what does not read the target, or a count."""
        make = self.make
        if rest is None or rest.value is not None:
            number = make.scatter("sum", [(make.constant(1.0), index, mask)], atom)
            number = make.reshape(number, (1,) * rank)
            return number if rest is None else make.elementwise("mul", number, self.unit(rest, rank))

        def inner(x: Expression) -> Expression:
            return self._leave(x, index, mask, atom, len(x.shape))

        if rest.op == "linear" or rest.op in SHAPES or rest.op == "sum":
            x = inner(rest.args[0])
            return make.with_args(rest, [make.expand(x, rest.args[0].shape), *rest.args[1:]])
        if rest.op == "neg":
            return make.elementwise("neg", inner(rest.args[0]))
        if rest.op in ("mul", "div"):
            for one, other in (rest.args, rest.args[::-1]) if rest.op == "mul" else (rest.args,):
                if other.value is not None:
                    return make.elementwise(rest.op, inner(one), other)
        if rest.op == "add" and len({self.reads(arg) for arg in rest.args}) > 1:
            return make.elementwise("add", *(inner(arg) for arg in rest.args))
        return make.scatter("sum", [(rest, index, mask)], atom)

    def split(self, message: Expression, index: Expression) -> Terms | None:
        """Rule 7: a message as a sum of products; None if some part of it needs both ends together."""
        if f"end {index.attrs[0]}" not in self.reads(message):
            return [Term(None, None, message)]
        args = message.args
        if message.op == "gather":
            return [Term(args[0], None, None)]
        if message.op == "pow" and args[1].is_number(2):
            return self._cross(self.split(args[0], index), self.split(args[0], index), len(message.shape))
        if message.op == "mul":
            return self._cross(self.split(args[0], index), self.split(args[1], index), len(message.shape))
        if message.op == "div":
            under = self.split(args[1], index)
            if under is None or len(under) > 1 or under[0].under is not None:
                return None
            one = self.make.constant(1.0)
            rest = (
                None
                if under[0].rest is None
                else self._div(self.unit(one, len(message.shape)), under[0].rest)
            )
            return self._cross(
                self.split(args[0], index), [Term(None, under[0].target, rest)], len(message.shape)
            )
        if message.op == "add":
            both = [self.split(arg, index) for arg in args]
            if any(terms is None for terms in both):
                return None
            return [term for terms in both for term in terms or ()]
        if message.op in ("neg", "linear", "sum") or message.op in SHAPES:
            terms = self.split(args[0], index)
            if terms is None:
                return None
            mapped = [self._map(message, term) for term in terms]
            return None if any(term is None for term in mapped) else [term for term in mapped if term]
        return None

    def _div(self, a: Expression, b: Expression) -> Expression:
        return self.hoist([a, b], lambda inner: self.make.elementwise("div", *inner))

    def _cross(self, left: Terms | None, right: Terms | None, rank: int) -> Terms | None:
        if left is None or right is None or len(left) * len(right) > _MOST_TERMS:
            return None

        def product(a: Expression | None, b: Expression | None) -> Expression | None:
            if a is None or b is None:
                return a or b
            return self.elementwise("mul", self.unit(a, rank), self.unit(b, rank))

        return [
            Term(product(a.target, b.target), product(a.under, b.under), product(a.rest, b.rest))
            for a in left
            for b in right
        ]

    def _map(self, one: Expression, term: Term) -> Term | None:
        """A linear operation of a product: of the factor that varies where it acts, if only one does."""
        shape = one.args[0].shape
        factors = [term.target, term.under, term.rest]
        given = [factor for factor in factors if factor is not None]
        if one.op == "neg":
            place = 2 if term.rest is not None else 0
            if factors[place] is None:
                return None
            factors[place] = self.build(one, [factors[place]])  # type: ignore[list-item]
            return Term(*factors)
        if one.op in SHAPES:
            return Term(*(f and self.build(one, [self.expand(f, shape)]) for f in factors))
        axes = [len(shape) - 1] if one.op == "linear" else list(one.attrs[0])  # type: ignore[call-overload]
        vary = [f for f in given if any(self.unit(f, len(shape)).shape[axis] != 1 for axis in axes)]
        if len(vary) > 1 or (len(vary) == 1 and vary[0] is term.under):
            return None
        place = 2 if term.rest is not None else 0
        if vary:
            place = factors.index(vary[0])
        if factors[place] is None:
            return None
        mapped: list[Expression | None] = []
        for i, factor in enumerate(factors):
            if factor is None or i != place:
                mapped.append(factor)
            else:
                full = self.expand(factor, shape)
                mapped.append(self.build(one, [full, *one.args[1:]]))
        return Term(*mapped)

    def expand(self, one: Expression, shape: tuple[int, ...]) -> Expression:
        return self.hoist([self.unit(one, len(shape))], lambda inner: self.make.expand(inner[0], shape))

    def _extremum(
        self, one: Expression, message: Expression, index: Expression, mask: Expression
    ) -> Expression:
        """Rule 10."""
        make, reduce, atom = self.make, str(one.attrs[0]), one.atom
        assert atom is not None
        if index.op != "end":
            return one
        if message.op == "concat":
            scatters = [make.scatter(reduce, [(part, index, mask)], atom) for part in message.args]
            parts = [self._scatter(part, part.args) for part in scatters]
            return make.concat(parts, int(str(message.attrs[0])))
        target = f"end {index.attrs[0]}"
        out: Callable[[Expression], Expression] | None = None
        if message.op == "add" and message.args[0].shape == message.args[1].shape:
            for term, other in (message.args, message.args[::-1]):
                if term.value is not None or (self.reads(term) == {target} and term.op == "gather"):
                    row = term if term.value is not None else term.args[0]
                    out, inside = (lambda x, row=row: make.elementwise("add", x, row)), other
                    break
        elif is_increasing(message):
            inside = message.args[0]
            out = lambda x: make.elementwise(message.op, x, *message.args[1:], attrs=message.attrs)  # noqa: E731
        elif message.op in ("reshape", "permute"):
            inside = message.args[0]
            moved = self._scatter(make.scatter(reduce, [(inside, index, mask)], atom), [inside, index, mask])
            return make.with_args(message, [moved])
        if out is None:
            return one
        found = make.scatter(reduce, [(inside, index, mask)], atom)
        found = self._scatter(found, found.args)
        number = self._leave(None, index, mask, atom, len(message.shape))
        some = make.elementwise("gt", number, make.constant(0.0))
        return make.elementwise("where", some, out(found), make.constant(0.0))


def is_increasing(one: Expression) -> bool:
    """Whether an element-wise operation keeps the order of what it is applied to."""
    if one.op not in _INCREASING or len(one.args) != 1:
        return False
    if one.op == "leaky_relu":
        return float(str(one.attrs[0])) >= 0
    if one.op == "elu":
        return all(float(str(number)) > 0 for number in one.attrs)
    return True


def is_finite(one: Expression) -> bool:
    """Whether rows are finite numbers wherever the inputs are."""
    if one.value is not None:
        return bool(one.value.isfinite().all())
    if one.op == "where" and one.args[0].op == "eq" and one.args[1].value is not None:
        tested = [arg for arg in one.args[0].args if not arg.is_number(float("inf"))]
        if tested == [one.args[2]]:
            return is_finite(one.args[1])
    if one.op == "div":
        return (
            one.args[1].value is not None
            and not bool((one.args[1].value == 0).any())
            and is_finite(one.args[0])
        )
    return one.op == "input" or (
        one.op in ("add", "mul", "neg", "gather", "scatter", "where", "cast", "sum", "linear", *SHAPES)
        and all(is_finite(arg) for arg in one.args if arg.kind == "float")
    )


def is_of_edges(atom: Atom | None) -> bool:
    return atom is not None and atom.source is not None


def _places(old: Sequence[int], new: Sequence[int]) -> list[int | None]:
    """For each axis of a new shape, which old axis it is; None for an axis of one that is put in."""
    full = [i for i, size in enumerate(old) if size != 1]
    rest = iter(full)
    return [next(rest) if size != 1 else None for size in new]
