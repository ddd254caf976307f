"""Properties of expressions that are known without computing them: their reads, signs, and finiteness."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from livegnn.importers.expressions.expressions import Atom, Expression, Expressions, Shape, walk

SHAPES = frozenset({"reshape", "expand", "permute", "slice"})
"""Operations that only move the channels of one argument."""

_TINY = 1e-10
"""The largest constant beside the mass of a softmax that has no effect: the mass has a term of 1."""

_INCREASING = frozenset({"relu", "sigmoid", "tanh", "exp", "softplus", "leaky_relu", "elu", "expm1", "clamp"})


def strip(one: Expression) -> Expression:
    """The expression without reshapes that only add or remove axes of size one."""
    while one.op == "reshape" and squeezed(one.shape) == squeezed(one.args[0].shape):
        one = one.args[0]
    return one


def squeezed(shape: Sequence[int]) -> Shape:
    return tuple(size for size in shape if size != 1)


def inside(one: Expression) -> Expression:
    """The expression without reshapes and expansions."""
    while one.op in ("reshape", "expand"):
        one = one.args[0]
    return one


def flatten(op: str, one: Expression) -> list[Expression]:
    """The parts of nested operations, as the terms of sums of sums."""
    return [part for arg in one.args for part in flatten(op, arg)] if one.op == op else [one]


def leads(factors: Shape, shape: Shape) -> bool:
    """Whether factors that broadcast to a shape have one number for each of its leading heads."""
    factors = (1,) * (len(shape) - len(factors)) + factors
    varying = [i for i, size in enumerate(factors) if size != 1]
    spread = [i for i, size in enumerate(shape) if size != 1 == factors[i]]
    return not varying or not spread or varying[-1] < spread[0]


def is_tiny(one: Expression) -> bool:
    return one.value is not None and bool((one.value.abs() <= _TINY).all())


def is_of_edges(atom: Atom | None) -> bool:
    return atom is not None and atom.source is not None


@dataclass
class Reads:
    """The rows that an expression reads: on edges ``"end 0"``, ``"end 1"``, ``"edge"``; on nodes ``"node"``.

    inside: an exponential of a softmax counts as the reads of its logit, otherwise as ``"exponential"``.
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
            index = one.args[1]
            return frozenset({f"end {index.attrs[0]}" if index.op == "end" else "node"})
        if one.atom.source is None:
            return frozenset({"node"})
        if one.op in ("input", "scatter", "end", "rows"):
            return frozenset({"edge"})
        if one.op == "exp_shifted":
            return self(one.args[0]) if self.inside else frozenset({"exponential"})
        return frozenset().union(*(self(arg) for arg in one.args))


def is_increasing(one: Expression) -> bool:
    """Whether an element-wise operation is increasing in its argument."""
    if one.op not in _INCREASING or len(one.args) != 1:
        return False
    if one.op == "leaky_relu":
        return float(str(one.attrs[0])) >= 0
    if one.op == "elu":
        return all(float(str(number)) > 0 for number in one.attrs)
    return True


def is_finite(one: Expression, above: Collection[Expression] = ()) -> bool:
    """Whether rows are finite if the inputs are. above: expressions that are above 0 wherever it matters."""
    if one.value is not None:
        return bool(one.value.isfinite().all())
    if one.op == "where" and one.args[0].op == "eq" and one.args[1].value is not None:
        tested = [arg for arg in one.args[0].args if not arg.is_number(float("inf"))]
        if tested == [one.args[2]]:
            return is_finite(one.args[1], above)
    if one.op == "div":
        under = one.args[1]
        known = under.value is not None and bool((under.value != 0).all())
        return is_finite(one.args[0], above) and (known or is_positive(under, above=above))
    root = one.op in ("rsqrt", "reciprocal") or (one.op == "pow" and one.args[1].value is not None)
    if root and above:  # else the test of an inverse root is kept: later rules recognize it by the test
        return is_positive(one.args[0], above=above) and is_finite(one.args[0], above)
    return one.op == "input" or (
        one.op in ("add", "mul", "neg", "gather", "scatter", "where", "cast", "sum", "linear", *SHAPES)
        and all(is_finite(arg, above) for arg in one.args if arg.kind == "float")
    )


def is_of_structure(one: Expression) -> bool:
    """Whether rows follow from the edges alone: no feature and no weight is read."""
    return not any(part.op == "input" and part.kind == "float" for part in walk([one]))


def is_positive(one: Expression, *, or_zero: bool = False, above: Collection[Expression] = ()) -> bool:
    """Whether all numbers of all rows are above 0; with `or_zero`, not below 0. above: see `is_finite`."""
    if one in above:
        return True
    if one.value is not None:
        return bool((one.value >= 0).all() if or_zero else (one.value > 0).all())
    args = one.args
    if one.op == "add":
        both = all(is_positive(arg, or_zero=True, above=above) for arg in args)
        return both and (or_zero or any(is_positive(arg, above=above) for arg in args))
    if one.op == "clamp" and isinstance(one.attrs[0], int | float) and one.attrs[0] > 0:
        return True
    if one.op in ("mul", "div"):
        if or_zero and one.op == "mul" and args[0] is args[1]:
            return True
        of_other = is_positive(args[1], or_zero=or_zero and one.op == "mul", above=above)
        return is_positive(args[0], or_zero=or_zero, above=above) and of_other
    if one.op in ("exp", "exp_shifted", "sigmoid", "relu", "abs", "softmax"):
        return or_zero  # in floating point, small results become 0
    if one.op == "scatter":
        return or_zero and all(is_positive(message, or_zero=True) for message, _, _ in one.pieces)
    if one.op == "maximum":
        return any(is_positive(arg, or_zero=or_zero, above=above) for arg in args)
    if one.op in ("gather", "sqrt", "sum", *SHAPES):
        return is_positive(args[0], or_zero=or_zero, above=above)
    return False


def is_difference(make: Expressions, one: Expression) -> bool:
    """Whether an edge's ends are subtracted of which one is made of the other: the same rows, or a row and a
    mean of such rows. They may be nearly equal.
    """
    if one.op != "add" or any(arg.op != "gather" or arg.args[1].op != "end" for arg in one.args):
        return False
    if one.args[0].args[1] is one.args[1].args[1]:
        return False
    for a, b in (one.args, one.args[::-1]):
        taken, kept = _opposite(make, a.args[0]), b.args[0]
        while taken is not None and taken.op == kept.op == "linear" and taken.args[1:] == kept.args[1:]:
            taken, kept = taken.args[0], kept.args[0]
        if taken is not None and (_is_made_of(taken, kept) or _is_made_of(kept, taken)):
            return True
    return False


def _opposite(make: Expressions, one: Expression) -> Expression | None:
    """The expression that this one is the negative of, if a sign is written."""
    if one.op == "neg":
        return one.args[0]
    if one.op == "linear" or one.op in SHAPES:
        inner = _opposite(make, one.args[0])
        return None if inner is None else make.with_args(one, [inner, *one.args[1:]])
    return None


_OF_ONE_UNIT = frozenset({"add", "neg", "gather", "cast", *SHAPES})
"""Operations whose result is in units of their arguments. Products and quotients may be, as means are."""


def _is_made_of(one: Expression, part: Expression) -> bool:
    """Whether an expression is made of another by sums, signs, factors and moves alone."""
    part, seen, left = strip(part), set[Expression](), [one]
    while left:
        inner = strip(left.pop())
        if inner is part:
            return True
        if inner in seen:
            continue
        seen.add(inner)
        if inner.op == "scatter":
            left += [message for message, _, _ in inner.pieces]
        elif inner.op in _OF_ONE_UNIT or inner.op == "mul":
            left += [arg for arg in inner.args if arg.kind == "float"]
        elif inner.op == "div":
            left.append(inner.args[0])
    return False
