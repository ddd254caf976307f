"""What is marked before the other rules of the normal form, which would hide it: rules 1, 14 and 15."""

from collections.abc import Sequence

from livegnn.importers.expressions import Expression, Expressions, rewrite
from livegnn.importers.facts import strip

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


# Rule 14


def mark_variances(make: Expressions, outputs: Sequence[Expression]) -> list[Expression]:
    """Rule 14: writes variances over a target's edges as ``variance(message, index, mask, count)``."""

    def rule(one: Expression, args: Sequence[Expression]) -> Expression:
        made = make.with_args(one, args)
        if made.op == "add" and made.atom is not None:
            for squares, other in (made.args, made.args[::-1]):
                if other.op == "neg":
                    return _variance_of(make, squares, other.args[0]) or made
        return made

    return rewrite(make, outputs, rule)


def _variance_of(make: Expressions, squares: Expression, square: Expression) -> Expression | None:
    mean = _root_of(make, square)
    upper, lower = _mean_of(squares), None if mean is None else _mean_of(mean)
    if upper is None or lower is None or upper[1:] != lower[1:] or _root_of(make, upper[0]) is not lower[0]:
        return None
    return make.make("variance", lower, shape=squares.shape, atom=squares.atom)


def _root_of(make: Expressions, one: Expression) -> Expression | None:
    """The x in ``x * x`` or ``x ** 2``, also where an edge reads it; None for other expressions."""
    if one.op == "gather":
        root = _root_of(make, one.args[0])
        return None if root is None else make.gather(root, one.args[1])
    if (one.op == "mul" and one.args[0] is one.args[1]) or (one.op == "pow" and one.args[1].is_number(2)):
        return one.args[0]
    return None


def _mean_of(one: Expression) -> tuple[Expression, Expression, Expression, Expression] | None:
    """Message, index, mask and count of ``sum(message) / max(count, 1)`` over the same edges; or None."""
    if one.op != "div" or one.args[0].op != "scatter" or one.args[0].attrs != ("sum",):
        return None
    total, under = one.args
    inner = under
    while inner.op in ("reshape", "expand"):
        inner = inner.args[0]
    if inner.op != "clamp" or inner.attrs != (1, None) or len(total.pieces) != 1:
        return None
    number, (message, index, mask) = strip(inner.args[0]), total.pieces[0]
    if number.op != "scatter" or number.attrs != ("sum",) or len(number.pieces) != 1 or index.op != "end":
        return None
    ones, *same = number.pieces[0]
    if not ones.is_number(1) or same != [index, mask] or one.shape != message.shape:
        return None
    return message, index, mask, under


# Rule 15


def mark_distances(make: Expressions, outputs: Sequence[Expression]) -> list[Expression]:
    """Rule 15: writes distances to a mean over a target's edges as ``distance(message, index, mask, count,
    row)``, which is the mean without the row.
    """

    def rule(one: Expression, args: Sequence[Expression]) -> Expression:
        made = make.with_args(one, args)
        if made.op == "add" and made.atom is not None:
            for a, b in (made.args, made.args[::-1]):
                if b.op == "neg":
                    found = _distance_of(make, b.args[0], a)
                    if found is not None:
                        return make.elementwise("neg", found)
                    return _distance_of(make, a, b.args[0]) or made
        return made

    return rewrite(make, outputs, rule)


def _distance_of(make: Expressions, mean: Expression, row: Expression) -> Expression | None:
    parts = _mean_of(mean)
    if (
        parts is None
        or parts[0].op != "gather"
        or parts[0].args[0] is not row
        or parts[0].args[1] is parts[1]
    ):
        return None
    return make.make("distance", [*parts, row], shape=mean.shape, atom=mean.atom)
