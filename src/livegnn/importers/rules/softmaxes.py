"""Rule 13: finds softmaxes over in-edges, which the engine keeps as a whole.

``sum(exp_shifted(l) v) / (sum(exp_shifted(l)) + tiny)`` is ``attend``: the mean of the values v, weighted by
the softmax of the logits l. It has a piece for each edge type whose exponentials are in the mass, and one for
the node's own loop. Quotients of the same mass are added piece by piece, since GAT divides its loop's
exponential and the sum over edges separately. Values are flat rows of ``[heads, channels]``, with a logit for
each head.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from livegnn.importers.expressions.expressions import Expression, Expressions, Shape, rewrite
from livegnn.importers.expressions.properties import inside, is_tiny, leads, strip
from livegnn.importers.rules.propagation_kinds import free_shifts, shift_of

Exponential: TypeAlias = tuple[Expression, Expression, Expression]
"""Logit, index and mask of one kind of exponential; for a node's own loop, the index is ``rows``."""

_MOVES = ("reshape", "expand")
_LINEAR = frozenset({"linear", "sum", "neg", "slice", "permute", "concat", *_MOVES})


def find_softmaxes(make: Expressions, outputs: Sequence[Expression]) -> list[Expression]:
    """Applies rule 13."""
    free = free_shifts(outputs)
    rules = _Rules(make, free)
    return rewrite(make, outputs, rules.build) if free else list(outputs)


@dataclass
class _Rules:
    """free: the shifts that do not affect any output, so that their exponentials belong to a softmax."""

    make: Expressions
    free: set[Expression]

    def build(self, one: Expression, args: Sequence[Expression]) -> Expression:
        made = self.make.with_args(one, args)
        if one in self.free:
            self.free.add(made)
        if made.op == "div":
            mass = self._mass(made.args[1])
            if mass is not None and not self._goes_one_way(mass):
                mass = None
            found = None if mass is None else self._quotient(made.args[0], mass)
            return made if found is None else self._shaped(found, made.shape)
        if made.op == "add":
            return self._add(made.args[0], made.args[1], made.shape)
        if made.op == "mul":
            for attend, factor in (made.args, made.args[::-1]):
                if attend.op == "attend":
                    return self._scale(attend, factor, made.shape)
        if made.op == "reshape" and made.args[0].op == "attend":
            return self._shaped(made.args[0], made.shape)
        return made

    def _mass(self, under: Expression) -> tuple[Exponential, ...] | None:
        """The exponentials that a divisor sums, if it is the mass of a softmax; otherwise None."""
        under = inside(under)
        if under.op == "add":
            parts = [self._mass(arg) for arg in under.args if not is_tiny(arg)]
            if not parts or None in parts:
                return None
            pieces = [piece for part in parts for piece in part or ()]
            return tuple(sorted(pieces, key=lambda piece: piece[1].number))
        if under.op == "scatter" and under.attrs == ("sum",) and len(under.pieces) == 1:
            message, index, mask = under.pieces[0]
            inner = strip(message)
            return ((inner.args[0], index, mask),) if self._is_free(inner) else None
        if self._is_free(under):
            assert under.atom is not None
            everything = self.make.elementwise("eq", self.make.rows(under.atom), self.make.rows(under.atom))
            return ((under.args[0], self.make.rows(under.atom), everything),)
        return None

    def _goes_one_way(self, mass: tuple[Exponential, ...]) -> bool:
        """Whether one step can have all edges: they have one direction, and all or none skip loops."""
        ways = set()
        for _, index, mask in mass:
            if index.op == "end" and index.atom is not None:
                loops = None
                if index.atom.source is index.atom.target:
                    ends = self.make.end(index.atom, 0), self.make.end(index.atom, 1)
                    loops = self.make.elementwise("and", mask, self.make.elementwise("ne", *ends)) is mask
                ways.add((index.attrs[0], loops))
        return len(ways) < 2

    def _is_free(self, one: Expression) -> bool:
        return one.op == "exp_shifted" and shift_of(one) in self.free

    def _weighs(self, one: Expression) -> bool:
        """Whether it contains exponentials of softmaxes that are not divided yet."""
        return any(self._is_free(part) for part in _unfinished(one))

    # A quotient, from its dividend

    def _quotient(self, over: Expression, mass: tuple[Exponential, ...]) -> Expression | None:
        """``over`` divided by a mass; None if that is not a mean of values."""
        if over.op == "scatter":
            if over.attrs != ("sum",) or len(over.pieces) != 1:
                return None
            message, index, mask = over.pieces[0]
            return self._attend(message, index, mask, mass)
        if self._is_free(strip(over)):
            own = [piece for piece in mass if piece[1].op == "rows"]
            return self._attend(over, own[0][1], own[0][2], mass) if own else None
        if over.op == "add":
            parts = [self._quotient(arg, mass) for arg in over.args]
            return self._add(parts[0], parts[1], over.shape) if parts[0] and parts[1] else None
        if over.op == "mul":
            for weighing, factor in (over.args, over.args[::-1]):
                if self._weighs(weighing) and not self._weighs(factor):
                    found = self._quotient(weighing, mass)
                    return None if found is None else self._scale(found, factor, over.shape)
            return None
        if over.op == "div" and not self._weighs(over.args[1]):
            found = self._quotient(over.args[0], mass)
            return None if found is None else self.make.with_args(over, [found, over.args[1]])
        if over.op in _LINEAR:
            inner = [self._quotient(arg, mass) if self._weighs(arg) else arg for arg in over.args]
            return None if None in inner else self.build(over, inner)  # type: ignore[arg-type]
        return None

    def _attend(
        self, message: Expression, index: Expression, mask: Expression, mass: tuple[Exponential, ...]
    ) -> Expression | None:
        """The mean of a message without its exponential, over one piece of the mass."""
        found = self._take_exponential(message)
        if found is None:
            return None
        value, logit = found
        if not any(
            piece[0] is logit and piece[1] is index and (piece[2] is mask or index.op == "rows")
            for piece in mass
        ):
            return None
        return self._make(mass, [value if piece[1] is index else None for piece in mass], message.shape)

    def _take_exponential(self, message: Expression) -> tuple[Expression, Expression] | None:
        """A message without its exponential, and the exponential's logit; None if it has another form."""
        if self._is_free(strip(message)):
            return self.make.expand(self.make.constant(1.0), message.shape), strip(message).args[0]
        if message.op == "mul":
            for weighing, factor in (message.args, message.args[::-1]):
                if not self._weighs(weighing) or self._weighs(factor):
                    continue
                found = self._take_exponential(weighing)
                if found is None or not leads(weighing.shape, message.shape):
                    return None
                return self.make.elementwise("mul", *found[:1], factor), found[1]
        if message.op in ("div", "neg", *_MOVES):
            found = self._take_exponential(message.args[0])
            if found is None or any(self._weighs(arg) for arg in message.args[1:]):
                return None
            inner = self.make.expand(found[0], message.args[0].shape)
            return self.make.with_args(message, [inner, *message.args[1:]]), found[1]
        if message.op == "add":
            parts = [self._take_exponential(arg) for arg in message.args]
            if None in parts or len({part[1] for part in parts if part}) > 1:
                return None
            values = [self.make.expand(part[0], message.shape) for part in parts if part]
            return self.make.elementwise("add", *values), parts[0][1]  # type: ignore[index]
        return None

    # Attends

    def _make(
        self, mass: tuple[Exponential, ...], values: Sequence[Expression | None], shape: Shape
    ) -> Expression:
        full = [self.make.expand(self.make.constant(0.0) if v is None else v, shape) for v in values]
        args = [part for value, piece in zip(full, mass, strict=True) for part in (value, *piece)]
        return self.make.make("attend", args, shape=shape, atom=mass[0][1].refers)

    def _shaped(self, attend: Expression, shape: Shape) -> Expression:
        """The same rows in another shape."""
        if attend.op != "attend" or prod(attend.shape) != prod(shape):
            return (
                self.make.expand(self.make.reshape(attend, attend.shape), shape)
                if attend.shape != shape
                else attend
            )
        values = [self.make.reshape(value, shape) for value, *_ in pieces_of(attend)]
        return self._make(_mass_of(attend), values, shape)

    def _add(self, a: Expression, b: Expression, shape: Shape) -> Expression:
        for one, other in ((a, b), (b, a)):
            if one.op == "attend" and other.op == "add" and other.shape == shape:
                for near, far in (other.args, other.args[::-1]):
                    if near.op == "attend" and near.shape == one.shape and _mass_of(near) == _mass_of(one):
                        return self.make.elementwise("add", self._add(one, near, shape), far)
        if a.op == b.op == "attend" and a.shape == b.shape == shape and _mass_of(a) == _mass_of(b):
            pairs = zip(pieces_of(a), pieces_of(b), strict=True)
            values = [self.make.elementwise("add", one[0], other[0]) for one, other in pairs]
            return self._make(_mass_of(a), values, shape)
        return self.make.elementwise("add", a, b)

    def _scale(self, attend: Expression, factor: Expression, shape: Shape) -> Expression:
        """Multiplies by a factor; if only the node's own loop has a value, that value takes the factor."""
        alone = attend.op == "attend" and all(
            value.is_number(0) or index.op == "rows" for value, _, index, _ in pieces_of(attend)
        )
        if not alone or not leads(attend.shape, shape):
            return self.make.elementwise("mul", attend, factor)
        values = [
            self.make.elementwise("mul", value, factor) if index.op == "rows" else value
            for value, _, index, _ in pieces_of(attend)
        ]
        return self._make(_mass_of(attend), values, shape)


def pieces_of(attend: Expression) -> list[tuple[Expression, Expression, Expression, Expression]]:
    """Value, logit, index and mask of each piece: for each edge type, and for the node's own loop."""
    args = attend.args
    return [(args[i], args[i + 1], args[i + 2], args[i + 3]) for i in range(0, len(args), 4)]


def _mass_of(attend: Expression) -> tuple[Exponential, ...]:
    return tuple(piece[1:] for piece in pieces_of(attend))


def _unfinished(one: Expression) -> list[Expression]:
    """The expressions that a row depends on, without going into softmaxes that are complete."""
    found, stack, seen = [], [one], {one}
    while stack:
        part = stack.pop()
        found.append(part)
        inner = () if part.op in ("attend", "exp_shifted", "input") else part.args
        for arg in inner:
            if arg not in seen and not (part.op == "gather" and arg is part.args[1]):
                seen.add(arg)
                stack.append(arg)
    return found
