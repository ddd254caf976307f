"""Rules 1, 14 and 15, which mark structures that the other rules of the normal form would hide."""

from collections.abc import Callable, Sequence
from math import prod
from typing import TypeAlias

from livegnn.importers.expressions.expressions import Expression, Expressions, rewrite
from livegnn.importers.expressions.properties import inside, is_tiny, squeezed, strip

# Rule 1


def mark_shifts(make: Expressions, outputs: Sequence[Expression]) -> list[Expression]:
    """Rule 1: writes the exponentials of softmaxes over edges as ``exp_shifted(logit, shift)``."""

    def rule(one: Expression, args: Sequence[Expression]) -> Expression:
        if one.op == "exp" and args[0].op == "add":
            for logit, other in (args[0].args, args[0].args[::-1]):
                if other.op == "neg" and _is_shift(make, logit, other.args[0]):
                    return make.elementwise("exp_shifted", logit, other.args[0])
        return make.with_args(one, args)

    return rewrite(make, outputs, rule)


def _is_shift(make: Expressions, logit: Expression, shift: Expression) -> bool:
    """Whether a shift is the maximum of these logits over the edges of the same target."""
    shift = strip(shift)
    largest, index = (strip(shift.args[0]), shift.args[1]) if shift.op == "gather" else (shift, None)
    if largest.op != "scatter" or largest.attrs != ("amax",) or largest.atom is None:
        return False
    index = index or make.rows(largest.atom)
    return any(strip(m) is strip(logit) and to is index for m, to, _ in largest.pieces)


_Mark: TypeAlias = Callable[[Expressions, Expression, Expression], Expression | None]
"""Returns the expression to write for a difference, given both sides; None to leave it."""


def _mark_differences(make: Expressions, outputs: Sequence[Expression], mark: _Mark) -> list[Expression]:
    """Writes `mark` for each difference of rows that it knows."""

    def rule(one: Expression, args: Sequence[Expression]) -> Expression:
        made = make.with_args(one, args)
        if made.op == "add" and made.atom is not None:
            for left, right in (made.args, made.args[::-1]):
                if right.op == "neg":
                    return mark(make, left, right.args[0]) or made
        return made

    return rewrite(make, outputs, rule)


# Rule 14


def mark_variances(make: Expressions, outputs: Sequence[Expression]) -> list[Expression]:
    """Rule 14: writes variances over a target's edges as ``variance(message, index, mask, weight, total)``,
    whose weights, divided by the total, add up to 1. Writes a sum of squares minus its share of the squared
    sum, which an unbiased variance divides, as a variance times the count.
    """

    def mark(make: Expressions, squares: Expression, square: Expression) -> Expression | None:
        return _variance_of(make, squares, square) or _counted_variance_of(make, squares, square)

    return _mark_differences(make, outputs, mark)


def _variance_of(make: Expressions, squares: Expression, square: Expression) -> Expression | None:
    mean = _root_of(square)
    upper, lower = _quotient_of(squares), None if mean is None else _quotient_of(mean)
    if upper is None or lower is None or upper[1:] != lower[1:]:
        return None
    of_squares, (message, index, mask, total) = _factors(make, upper[0]), lower
    of_mean = _factors(make, message)
    for place, factor in enumerate(of_mean):
        weights = of_mean[:place] + of_mean[place + 1 :]
        alike = _alike(of_squares, [*weights, factor, factor])
        fits = squeezed(factor.shape) == squeezed(squares.shape) and not weights  # towers add an axis of one
        if not alike or not (fits or factor.shape == squares.shape):
            continue
        if _is_one(weights, index, mask, total):
            weight, one = make.constant(1.0), make.constant(1.0)
            for part in weights:
                weight = make.elementwise("mul", weight, part)
            message = make.reshape(factor, squares.shape)
            args = [message, index, mask, weight, one if total is None else total]
            return make.make("variance", args, shape=squares.shape, atom=squares.atom)
    return None


def _counted_variance_of(make: Expressions, squares: Expression, share: Expression) -> Expression | None:
    """Reads a share ``sum * sum / count``, ``sum * mean`` or ``count * mean * mean``; None for any other."""
    over, under = _fraction(share)
    sums = [one for one in over if _quotient_of(one) is not None and not one.pieces[0][0].is_number(1)]
    if len(sums) != 2 or sums[0] is not sums[1] or len(under) != len(over) - 1:
        return None
    _, index, mask = sums[0].pieces[0]
    counts = [one for one in over if one is not sums[0]]
    clamped = all(_is_count(one, index, mask) for one in under)
    if not clamped or not all(_is_number(one, index, mask) or one in under for one in counts):
        return None
    count = under[0]
    if prod(count.shape) == 1:
        count = make.expand(make.reshape(count, (1,) * len(squares.shape)), squares.shape)
    mean = make.elementwise("div", sums[0], count)
    variance = _variance_of(
        make, make.elementwise("div", squares, count), make.elementwise("mul", mean, mean)
    )
    return None if variance is None else make.elementwise("mul", count, variance)


def _fraction(one: Expression) -> tuple[list[Expression], list[Expression]]:
    """The factors over and under the line of a product of quotients."""
    one = inside(one)
    if one.op not in ("mul", "div") and _root_of(one) is None:
        return [one], []
    parts = [_fraction(arg) for arg in (one.args if one.op != "pow" else 2 * [one.args[0]])]
    (over, under), (more_over, more_under) = parts
    if one.op == "div":
        more_over, more_under = more_under, more_over
    return over + more_over, under + more_under


def _root_of(one: Expression) -> Expression | None:
    """The x in ``x * x`` or ``x ** 2``; None for other expressions."""
    if (one.op == "mul" and one.args[0] is one.args[1]) or (one.op == "pow" and one.args[1].is_number(2)):
        return one.args[0]
    return None


def _factors(make: Expressions, one: Expression) -> list[Expression]:
    """The factors of a product but ones, also where an edge reads it."""
    one = strip(one)
    if one.op == "mul":
        return [factor for arg in one.args for factor in _factors(make, arg)]
    if one.op == "pow" and one.args[1].is_number(2):
        return 2 * _factors(make, one.args[0])
    if one.op == "gather":
        return [make.gather(factor, one.args[1]) for factor in _factors(make, one.args[0])]
    return [] if one.is_number(1) else [one]


def _alike(ones: Sequence[Expression], others: Sequence[Expression]) -> bool:
    """Whether these are the same expressions, in any order."""
    return sorted(one.number for one in ones) == sorted(one.number for one in others)


def _is_one(
    weights: Sequence[Expression], index: Expression, mask: Expression, total: Expression | None
) -> bool:
    """Whether weights, divided by a target's total, add up to 1 over its edges: they count them, or are a
    softmax.
    """
    if not weights:
        return total is not None and _is_count(total, index, mask)
    if total is not None or len(weights) > 1 or weights[0].op != "div":
        return False
    weight, under = (strip(arg) for arg in weights[0].args)
    if under.op != "gather" or under.args[1] is not index:
        return False
    mass = _without_tiny(under.args[0])
    if mass.op != "scatter" or mass.attrs != ("sum",) or len(mass.pieces) != 1:
        return False
    message, *same = mass.pieces[0]
    return same == [index, mask] and strip(message) is weight


def _without_tiny(mass: Expression) -> Expression:
    """Returns a sum of exponentials, of which the largest is 1, without a tiny term that keeps it from 0."""
    mass = inside(mass)
    for one, other in (mass.args, mass.args[::-1]) if mass.op == "add" else ():
        if is_tiny(other):
            inner = inside(one)
            shifted = inner.op == "scatter" and strip(inner.args[0]).op == "exp_shifted"
            return inner if shifted else mass
    return mass


def _quotient_of(one: Expression) -> tuple[Expression, Expression, Expression, Expression | None] | None:
    """Returns the message, index and mask of a sum along edges, and its divisor; or None."""
    total, under = one.args if one.op == "div" else (one, None)
    if total.op != "scatter" or total.attrs != ("sum",) or len(total.pieces) != 1:
        return None
    message, index, mask = total.pieces[0]
    if index.op != "end" or one.shape != message.shape:
        return None
    return message, index, mask, under


def _is_count(under: Expression, index: Expression, mask: Expression) -> bool:
    """Whether it is ``max(count, 1)`` of a target's edges."""
    inner = inside(under)
    return inner.op == "clamp" and inner.attrs == (1, None) and _is_number(inner.args[0], index, mask)


def _is_number(one: Expression, index: Expression, mask: Expression) -> bool:
    """Whether it is the count of a target's edges."""
    number = strip(one)
    if number.op != "scatter" or number.attrs != ("sum",) or len(number.pieces) != 1:
        return False
    ones, *same = number.pieces[0]
    return ones.is_number(1) and same == [index, mask]


# Rule 15


def mark_distances(make: Expressions, outputs: Sequence[Expression]) -> list[Expression]:
    """Rule 15: writes distances to a mean over a target's edges as ``distance(message, index, mask, count,
    row)``, which is the mean without the row.
    """
    return _mark_differences(make, outputs, _distance_of)


def _distance_of(make: Expressions, one: Expression, other: Expression) -> Expression | None:
    """One without the other, if one of them is the mean of rows of which the other is one."""
    for mean, row in ((one, other), (other, one)):
        found = None
        if row.op == "gather" and mean.op == "gather":  # on edges; the mean is then a row and its distance
            of_node = _mean_without(make, mean.args[0], row.args[0])
            if of_node is not None:
                found = make.gather(make.elementwise("add", row.args[0], of_node), mean.args[1])
                found = make.elementwise("add", found, make.elementwise("neg", row))
        else:
            found = _mean_without(make, mean, row)
        if found is not None:
            return found if mean is one else make.elementwise("neg", found)
    return None


def _mean_without(make: Expressions, mean: Expression, row: Expression) -> Expression | None:
    parts = _quotient_of(mean)
    if parts is None or row.atom != mean.atom:
        return None
    message, index, mask, count = parts
    if count is None or message.op != "gather" or message.args[0] is not row or message.args[1] is index:
        return None
    if not _is_count(count, index, mask):
        return None
    return make.make("distance", [message, index, mask, count, row], shape=mean.shape, atom=mean.atom)
