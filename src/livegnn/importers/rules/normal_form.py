"""The normal form, in which messages read as little as possible: rules 6 to 10, after 1 to 5, 14 and 15.

The rules are numbered in docs/internals/rules.md. They are applied from the inputs to the outputs; each
preserves the value of every row except for rounding.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from functools import reduce as fold
from typing import TypeAlias

import torch

from livegnn.importers.expressions.expressions import Atom, Expression, Expressions, rewrite, walk
from livegnn.importers.expressions.properties import (
    SHAPES,
    is_difference,
    is_finite,
    is_increasing,
    is_of_structure,
    is_positive,
    strip,
)
from livegnn.importers.rules.edge_rules import EdgeRules
from livegnn.importers.rules.marks import mark_distances, mark_shifts, mark_variances

_MOST_TERMS = 24


def normalize(make: Expressions, outputs: Sequence[Expression]) -> list[Expression]:
    """The normal forms of expressions, made with `make`."""
    marked = mark_distances(make, mark_variances(make, mark_shifts(make, outputs)))
    form = _Form(make)
    form.shifts = {strip(_shift_of(one)) for one in walk(marked) if one.op == "exp_shifted"}
    return form.rewrite(marked)


def _shift_of(one: Expression) -> Expression:
    shift = one.args[1]
    return shift.args[0] if shift.op == "gather" else shift


@dataclass(frozen=True)
class Term:
    """A product ``target / under * rest``: target and under are rows of the target, rest reads the target
    only where it cannot be parted from it. None means 1."""

    target: Expression | None = None
    under: Expression | None = None
    rest: Expression | None = None


Terms: TypeAlias = list[Term]


@dataclass(frozen=True)
class Edges:
    """The edges that carry messages: the index of their targets, the mask of those that count, and the atom
    of the targets."""

    index: Expression
    mask: Expression
    atom: Atom


@dataclass
class _Form(EdgeRules):
    """All rules. shifts: the maxima that softmaxes read, before rewriting."""

    shifts: set[Expression] = field(default_factory=set)

    def rewrite(self, outputs: Sequence[Expression]) -> list[Expression]:
        def rule(one: Expression, args: Sequence[Expression]) -> Expression:
            return self.make.with_args(one, args) if one in self.shifts else self.build(one, args)

        return rewrite(self.make, outputs, rule)

    def build(self, one: Expression, args: Sequence[Expression]) -> Expression:
        if one.op == "variance":
            return self._variance(args, one.atom)
        if one.op == "distance":
            return self._distance(args, one.atom)
        return self._scatter(one, args) if one.op == "scatter" else super().build(one, args)

    def _distance(self, args: Sequence[Expression], atom: Atom | None) -> Expression:
        """Rule 15."""
        assert atom is not None
        message, index, mask, count, row = args
        edges, taken = Edges(index, mask, atom), self.elementwise("neg", row)
        away = self.elementwise("add", message, self.make.gather(taken, index))
        mean = self.elementwise("div", self._sum(away, edges), count)
        return self.make.elementwise("where", self._any(edges, len(row.shape)), mean, taken)

    def _variance(self, args: Sequence[Expression], atom: Atom | None) -> Expression:
        """Rule 14."""
        assert atom is not None
        message, index, mask, weight, total = args
        shape, edges = message.shape, Edges(index, mask, atom)
        terms = self.split(message, index) or []
        left = [term.rest for term in terms if term.rest is not None]
        if len(left) < len(terms) and all(
            term.rest is None or (term.target is None and term.under is None) for term in terms
        ):
            message = self.make.constant(torch.zeros(shape, dtype=torch.float64))
            for i, rest in enumerate(left):
                message = self.expand(rest if i == 0 else self.elementwise("add", message, rest), shape)
        if message.value is not None and weight.is_number(1):
            return self.make.constant(torch.zeros(shape, dtype=torch.float64))

        def weighted(one: Expression) -> Expression:
            return one if weight.is_number(1) else self.elementwise("mul", weight, one)

        mean = self.elementwise("div", self._sum(weighted(message), edges), total)
        away = self.elementwise("add", message, self.elementwise("neg", self.make.gather(mean, index)))
        # Not by rule 7, which would take the factors apart.
        squares = weighted(self.elementwise("mul", away, away))
        return self.elementwise("div", self._reduce("sum", squares, edges), total)

    def _reduce(self, reduce: str, message: Expression, edges: Edges) -> Expression:
        return self.make.scatter(reduce, [(message, edges.index, edges.mask)], edges.atom)

    def _scatter(self, one: Expression, args: Sequence[Expression]) -> Expression:
        made = self.make.with_args(one, args)
        if made.op != "scatter" or one.attrs == ("last",) or one.atom is None:
            return made
        if one.attrs == ("sum",):
            sums = (self._sum(message, Edges(to, mask, one.atom)) for message, to, mask in made.pieces)
            return self.make.cast(fold(partial(self.make.elementwise, "add"), sums), one.kind)
        if len(made.pieces) == 1 and one.attrs[0] in ("amax", "amin"):
            message, index, mask = made.pieces[0]
            return self._extremum(made, message, Edges(index, mask, one.atom))
        return made

    def _sum(self, message: Expression, edges: Edges) -> Expression:
        """Rules 6 and 7."""
        make, shape = self.make, message.shape
        if edges.index.op == "rows":
            zero = make.constant(0.0)
            unit = make.reshape(edges.mask, (1,) * len(shape))
            own = message if edges.mask.is_number(1) else make.elementwise("where", unit, message, zero)
            return make.expand(own, shape)
        terms = self.split(message, edges.index)
        if terms is None:
            if message.op in ("linear", "neg", "sum") or message.op in SHAPES:
                inner = make.expand(self._sum(message.args[0], edges), message.args[0].shape)
                return make.with_args(message, [inner, *message.args[1:]])
            if message.op == "concat":
                return make.concat([self._sum(part, edges) for part in message.args], message.axis)
            return self._reduce("sum", message, edges)
        merged: dict[tuple[Expression | None, Expression | None], Expression | None] = {}
        for term in terms:
            key = (term.target, term.under)
            if key not in merged:
                merged[key] = term.rest
            else:
                one = make.constant(1.0)
                merged[key] = self.elementwise("add", merged[key] or one, term.rest or one)
        sums = (self._sum_of(Term(*key, rest), edges, len(shape)) for key, rest in merged.items())
        return make.expand(fold(partial(make.elementwise, "add"), sums), shape)

    def _sum_of(self, term: Term, edges: Edges, rank: int) -> Expression:
        """The sum of a product, its factors of the target outside."""
        make, target, under = self.make, term.target, term.under
        part = self._leave(term.rest, edges, rank)
        infinite = self._infinite(target, under, edges)
        if infinite is not None:
            part = self._where_of_one_sign(part, term.rest, infinite, edges)
        part = part if target is None else make.elementwise("mul", target, part)
        part = part if under is None else make.elementwise("div", part, under)
        if (target is None or is_finite(target)) and (under is None or is_positive(under)):
            return part
        return self._where_any(part, edges)

    def _infinite(
        self, target: Expression | None, under: Expression | None, edges: Edges
    ) -> Expression | None:
        """Whether ``target / under`` is infinite, row by row; None if it never is for targets with edges.

        Only factors that follow from the edges are looked at. Those of weights are parts of forms that a
        `Convolution` knows as a whole.
        """
        make = self.make
        arrived, found = self._reduce("sum", make.constant(1.0), edges), None
        if target is not None and is_of_structure(target) and not is_finite(target, {arrived}):
            found = make.elementwise("eq", make.elementwise("abs", target), make.constant(float("inf")))
        if under is not None and is_of_structure(under) and not is_positive(under, above={arrived}):
            none = make.elementwise("eq", under, make.constant(0.0))
            found = none if found is None else make.elementwise("or", found, none)
        return found

    def _where_of_one_sign(
        self, part: Expression, rest: Expression | None, infinite: Expression, edges: Edges
    ) -> Expression:
        """The sum of R, but 0 where it is multiplied by infinity and R has both signs, or zeros.

        T sum(R) is then NaN, as sum(T R) is.
        """
        make, rank = self.make, len(part.shape)
        if rest is None or (rest.value is not None and bool((rest.value != 0).all())):
            return part
        signs = self._leave(self.elementwise("sign", rest), edges, rank)
        arrived = self._leave(None, edges, rank)
        mixed = make.elementwise("ne", make.elementwise("abs", signs), arrived)
        both = make.elementwise("and", self.unit(infinite, rank), mixed)
        return make.elementwise("where", both, make.constant(0.0), part)

    def _leave(self, rest: Expression | None, edges: Edges, rank: int) -> Expression:
        """Rule 8: the sum of a message that is not parted from the target, or a count."""
        make = self.make
        if rest is None or rest.value is not None:
            number = make.reshape(self._reduce("sum", make.constant(1.0), edges), (1,) * rank)
            return number if rest is None else make.elementwise("mul", number, self.unit(rest, rank))

        def inner(x: Expression) -> Expression:
            return self._leave(x, edges, len(x.shape))

        if rest.op == "linear" or rest.op in SHAPES:
            x = inner(rest.args[0])
            return make.with_args(rest, [make.expand(x, rest.args[0].shape), *rest.args[1:]])
        if rest.op == "neg":
            return make.elementwise("neg", inner(rest.args[0]))
        if rest.op in ("mul", "div"):
            for one, other in (rest.args, rest.args[::-1]) if rest.op == "mul" else (rest.args,):
                if other.value is not None:
                    return make.elementwise(rest.op, inner(one), other)
        if (
            rest.op == "add"
            and len({self.reads(arg) for arg in rest.args}) > 1
            and not is_difference(make, rest)
        ):
            return make.elementwise("add", *(inner(arg) for arg in rest.args))
        return self._reduce("sum", rest, edges)

    def split(self, message: Expression, index: Expression) -> Terms | None:
        """Rule 7: a message as a sum of products; None if a part of it needs both ends together."""
        if f"end {index.attrs[0]}" not in self.reads(message):
            return [Term(rest=message)]
        args = message.args
        if message.op == "gather":
            return [Term(args[0])]
        if message.op == "pow" and args[1].is_number(2):
            return self._product(message, args[0], args[0], index)
        if message.op == "mul":
            return self._product(message, args[0], args[1], index)
        if message.op == "div":
            under = self.split(args[1], index)
            if under is None or len(under) > 1 or under[0].under is not None:
                return None
            rest, rank, one = under[0].rest, len(message.shape), self.make.constant(1.0)
            if rest is not None:
                quotient = [self.unit(one, rank), rest]
                rest = self.hoist(quotient, lambda inner: self.make.elementwise("div", *inner))
            return self._cross(self.split(args[0], index), [Term(None, under[0].target, rest)], rank)
        if message.op == "add":
            if is_difference(self.make, message):
                return [Term(rest=message)]
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

    def _product(self, message: Expression, a: Expression, b: Expression, index: Expression) -> Terms | None:
        """The terms of a product; it is one term if both factors are sums."""
        left, right = self.split(a, index), self.split(b, index)
        if self._is_sum(left, index) and self._is_sum(right, index):
            return [Term(rest=message)]
        return self._cross(left, right, len(message.shape))

    def _is_sum(self, terms: Terms | None, index: Expression) -> bool:
        """Whether terms are several, or one that reads the target beside others."""
        target = f"end {index.attrs[0]}"
        terms = terms or []
        return len(terms) > 1 or any(
            term.rest is not None and target in self.reads(term.rest) for term in terms
        )

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
        """Applies a linear operation to a product: to the only factor that varies along its axes; None if
        several do."""
        shape = one.args[0].shape
        factors = [term.target, term.under, term.rest]
        given = [factor for factor in factors if factor is not None]
        if one.op == "neg":
            if term.rest is not None:
                return replace(term, rest=self.build(one, [term.rest]))
            return None if term.target is None else replace(term, target=self.build(one, [term.target]))
        if one.op in SHAPES:
            return Term(*(f and self.build(one, [self.expand(f, shape)]) for f in factors))
        axes = [len(shape) - 1] if one.op == "linear" else list(one.attrs[0])  # type: ignore[call-overload]
        vary = [f for f in given if any(self.unit(f, len(shape)).shape[axis] != 1 for axis in axes)]
        if len(vary) > 1 or (len(vary) == 1 and vary[0] is term.under):
            return None
        place = 2 if term.rest is not None else 0
        if vary:
            place = factors.index(vary[0])
        factor = factors[place]
        if factor is None:
            return None
        factors[place] = self.build(one, [self.expand(factor, shape), *one.args[1:]])
        return Term(*factors)

    def _extremum(self, one: Expression, message: Expression, edges: Edges) -> Expression:
        """Rule 10."""
        make = self.make
        if edges.index.op != "end":
            return one

        def reduce(*messages: Expression) -> list[Expression]:
            scatters = [self._reduce(str(one.attrs[0]), message, edges) for message in messages]
            return [self._scatter(scatter, scatter.args) for scatter in scatters]

        if message.op == "concat":
            return make.concat(reduce(*message.args), message.axis)
        target = f"end {edges.index.attrs[0]}"
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
            return make.with_args(message, reduce(message.args[0]))
        return one if out is None else self._where_any(out(*reduce(inside)), edges)

    def _where_any(self, row: Expression, edges: Edges) -> Expression:
        """The row for targets with edges, 0 for targets without."""
        some = self._any(edges, len(row.shape))
        return self.make.elementwise("where", some, row, self.make.constant(0.0))

    def _any(self, edges: Edges, rank: int) -> Expression:
        """Whether a target has edges."""
        number = self._leave(None, edges, rank)
        return self.make.elementwise("gt", number, self.make.constant(0.0))
