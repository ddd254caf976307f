"""Rules that find structures that the engine keeps as a whole: self-loops that a layer adds, and
roots of degrees.

11. ``f * sum(w h) + f * last * h``, where the sum skips loops, is ``f * looped(w h)``: a sum to which each
    node adds a loop, with the weight of its existing loop, or a fill (GCN's norm). The rule also applies to
    the sum of the weights themselves, to a count, and to a maximum of ``f h``, where f is a root of a degree
    and moves out of the maximum.
12. ``d^-1/2``, or 0 where that is infinite, is ``inverse_root(d)``; ``1/d`` is ``inverse(d)`` likewise, if
    d is never negative.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from livegnn.importers.expressions.expressions import Expression, Expressions, rewrite
from livegnn.importers.expressions.properties import flatten, is_positive, strip


def find_self_loops(make: Expressions, outputs: Sequence[Expression]) -> list[Expression]:
    """Applies rules 11 and 12."""

    def rule(one: Expression, args: Sequence[Expression]) -> Expression:
        made = make.with_args(one, args)
        if made.op == "add" and made.atom is not None and made.atom.source is None:
            return _join_loops(make, made)
        if made.op == "scatter" and made.attrs[0] in ("amax", "amin"):
            return _leave_extremum(make, made)
        if made.op == "where" and made.args[1].is_number(0):
            power = made.args[2]
            tested = [arg for arg in made.args[0].args if not arg.is_number(float("inf"))]
            if made.args[0].op == "eq" and tested == [power] and _exponent(power) in _INVERSES:
                op = _INVERSES[_exponent(power)]
                if op == "inverse" and not is_positive(power.args[0], or_zero=True):
                    return made  # the inverse of a negative sum of weights is negative
                return make.make(op, power.args[:1], shape=made.shape, atom=made.atom)
        return made

    return rewrite(make, outputs, rule)


_INVERSES = {-0.5: "inverse_root", -1.0: "inverse"}


def _exponent(one: Expression) -> float:
    """The x in ``d^x``; 0 if it is not a power."""
    if one.op == "pow" and one.args[1].value is not None and one.args[1].value.numel() == 1:
        return float(one.args[1].value)
    return {"rsqrt": -0.5, "reciprocal": -1.0}.get(one.op, 0.0)


@dataclass
class _Product:
    """A number times factors; some factors are constants with a number for each channel."""

    number: float = 1.0
    factors: list[Expression] = field(default_factory=list)

    def __mul__(self, other: "_Product") -> "_Product":
        return _Product(self.number * other.number, [*self.factors, *other.factors])

    def is_same(self, other: "_Product") -> bool:
        return Counter(self.factors) == Counter(other.factors)

    def without(self, factor: Expression) -> "_Product":
        rest = list(self.factors)
        rest.remove(factor)
        return _Product(self.number, rest)


def _product(one: Expression) -> _Product:
    one = strip(one)
    if one.op == "expand":
        return _product(one.args[0])
    if one.op == "mul":
        return _product(one.args[0]) * _product(one.args[1])
    if one.op == "neg":
        return _Product(-1.0) * _product(one.args[0])
    if one.repeated is not None:
        return _Product(float(one.repeated))
    return _Product(1.0, [one])


def _join_loops(make: Expressions, total: Expression) -> Expression:
    terms = flatten("add", total)
    for around in terms:
        product = _product(around)
        for scatter in product.factors:
            if not _leaves_loops_out(make, scatter):
                continue
            for own in terms:
                looped = None if own is around else _looped(make, product, scatter, _product(own))
                if looped is None:
                    continue
                rest = [term for term in terms if term is not around and term is not own]
                result = _replace(make, around, scatter, looped)
                for term in rest:
                    result = make.elementwise("add", result, term)
                return make.expand(result, total.shape)
    return total


def _leaves_loops_out(make: Expressions, one: Expression) -> bool:
    if one.op != "scatter" or one.attrs != ("sum",) or len(one.pieces) != 1:
        return False
    _, index, mask = one.pieces[0]
    return index.op == "end" and index.atom is not None and mask is _others(make, index)


def _others(make: Expressions, index: Expression) -> Expression | None:
    assert index.atom is not None
    if index.atom.source is not index.atom.target:
        return None
    return make.elementwise("ne", make.end(index.atom, 0), make.end(index.atom, 1))


def _looped(make: Expressions, around: _Product, scatter: Expression, own: _Product) -> Expression | None:
    """The sum with a loop for each node, if `own` is the term that such a loop adds to the product `around`;
    otherwise None."""
    message, index, mask = scatter.pieces[0]
    row, weight = _Product(), None
    for factor in _product(message).factors:
        if factor.op == "gather" and factor.args[1] is not index:
            row = row * _product(factor.args[0])
        elif weight is None and is_weight(factor):
            weight = factor
        else:
            return None
    expected = around.without(scatter) * row
    expected.number *= _product(message).number
    fill = own.number / expected.number if expected.number else 0.0
    if weight is not None:
        parted = _without_last(own, weight)
        if parted is None or fill != 1:
            return None
        own, fill = parted
    if not own.is_same(expected):
        return None
    attrs, number = (fill, weight is not None, "sum"), _product(message).number
    if number in (0, 1):
        return make.make("looped", (message, index, mask), attrs, shape=scatter.shape, atom=scatter.atom)
    plain = _without_numbers(make, message)  # a propagation has no factor that is a number
    looped = make.make("looped", (plain, index, mask), attrs, shape=scatter.shape, atom=scatter.atom)
    return make.expand(make.elementwise("mul", make.constant(number), looped), scatter.shape)


def _without_numbers(make: Expressions, product: Expression) -> Expression:
    """The product without the number in `_product`, in the same shape."""
    if product.op in ("reshape", "expand"):
        return make.with_args(product, [_without_numbers(make, product.args[0])])
    if product.op == "neg":
        return make.expand(_without_numbers(make, product.args[0]), product.shape)
    if product.op != "mul":
        return product
    left, right = (_without_numbers(make, arg) for arg in product.args)
    for number, rest in ((left, right), (right, left)):
        if not _product(number).factors:
            return make.expand(rest, product.shape)
    return make.expand(make.elementwise("mul", left, right), product.shape)


def _leave_extremum(make: Expressions, one: Expression) -> Expression:
    """Moves roots of the target's degree, which are not negative, out of an extremum, including loops."""
    along = [piece for piece in one.pieces if piece[1].op == "end"]
    own = [piece for piece in one.pieces if piece[1].op == "rows" and piece[2].is_number(1)]
    if len(along) != 1 or len(along) + len(own) != len(one.pieces) or len(own) > 1:
        return one
    message, index, mask = along[0]
    factors = _product(message).factors
    roots = [g for g in factors if _is_gathered(g, index) and strip(g.args[0]).op == "inverse_root"]
    rows = [g for g in factors if g.op == "gather" and g.args[1] is not index and g.shape == one.shape]
    weights = [factor for factor in factors if is_weight(factor)]
    if len(roots) != 1 or len(rows) != 1 or len(roots) + len(rows) + len(weights) != len(factors):
        return one
    root, attrs = roots[0].args[0], (1.0, False, str(one.attrs[0]))
    if own:
        expected, loop = _product(rows[0].args[0]) * _product(root), _product(own[0][0])
        if weights:
            parted = _without_last(loop, weights[0])
            if parted is None or len(weights) > 1:
                return one
            loop, attrs = parted[0], (parted[1], True, attrs[2])
        if not loop.is_same(expected) or {loop.number, _product(message).number} != {1.0}:
            return one
        if mask is not _others(make, index):
            return one
    inner = _leave_out(make, message, roots[0])
    if inner is None:
        return one
    if own:
        found = make.make("looped", (inner, index, mask), attrs, shape=one.shape, atom=one.atom)
    else:
        found = make.scatter(attrs[2], [(inner, index, mask)], one.atom)
    return make.expand(make.elementwise("mul", root, found), one.shape)


def _is_gathered(one: Expression, index: Expression) -> bool:
    return one.op == "gather" and one.args[1] is index


def _leave_out(make: Expressions, product: Expression, factor: Expression) -> Expression | None:
    """The product without one factor, in the same shape; None if the factor is not in it."""
    if product.op in ("reshape", "expand"):
        inner = _leave_out(make, product.args[0], factor)
        return None if inner is None else make.with_args(product, [inner])
    if product.op != "mul":
        return None
    for left, right in (product.args, product.args[::-1]):
        if _product(left) == _Product(1.0, [factor]):
            return make.expand(right, product.shape)
        inner = _leave_out(make, left, factor)
        if inner is not None:
            return make.expand(make.elementwise("mul", inner, right), product.shape)
    return None


def is_weight(one: Expression) -> bool:
    """Whether it is the edges' weight in the graph."""
    one = strip(one)
    return one.op == "input" and not one.shape and str(one.attrs[0]).partition(":")[0] == "edge_weight"


def _without_last(product: _Product, weight: Expression) -> tuple[_Product, float] | None:
    """The product without the weight of a node's own loop, and the fill where there is none; or None."""
    for one in product.factors:
        if one.op == "scatter" and one.attrs == ("last",) and len(one.pieces) == 1:
            fill = one.args[-1].value
            if fill is not None and strip(one.pieces[0][0]) is strip(weight):
                return product.without(one), float(fill.reshape(-1)[0])
    return None


def _replace(make: Expressions, one: Expression, old: Expression, new: Expression) -> Expression:
    if one is old:
        return new
    if one.op not in ("mul", "neg", "reshape", "expand"):
        return one
    return make.with_args(one, [_replace(make, arg, old, new) for arg in one.args])
