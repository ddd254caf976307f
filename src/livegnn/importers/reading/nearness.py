"""Finds bounds of an operator's results, or refuses it: a model's rows hold its operands exactly or rounded.

A whole number of which every digit counts, and that may be too large for float32, is guarded where that is
enough: its row holds NaN instead of a number that is silently different.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, prod, trunc

import torch
from torch import fx

from livegnn.errors import ModelError
from livegnn.importers.reading import bounds
from livegnn.importers.reading.bounds import UNKNOWN, WHOLE, Bound, ends_of, union, whole_bound

MOVING = frozenset(
    {"clone", "alias", "detach", "contiguous", "view", "_unsafe_view", "reshape", "expand", "cat", "select"}
    | {"slice", "squeeze", "unsqueeze", "permute", "t", "transpose", "full_like", "lift_fresh_copy", "copy"}
    | {"where", "index_put", "amax", "amin", "full", "zeros", "ones", "arange", "empty"}
)
"""Operators that move and choose numbers, and compute none."""
_COMPARING = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
_CUTTING = frozenset({"floor", "ceil", "round", "trunc"})
_DIGITS = _CUTTING | {"remainder", "fmod", "floor_divide", "div"}
_LOGICAL = frozenset(
    f"{kind}_{name}" for kind in ("logical", "bitwise") for name in ("and", "or", "xor", "not")
)
_ABSORBING = frozenset({"sign", "isnan", "isinf", "isfinite", "nonzero", "any"})
"""Operators whose results do not say that an operand was NaN."""
SHAPING = frozenset(
    {"view", "_unsafe_view", "reshape", "expand", "select", "slice", "squeeze", "unsqueeze", "permute"}
    | {"clone", "alias", "detach"}
)
"""Operators that treat a test as any other rows."""
TELLING = _COMPARING | _LOGICAL | SHAPING | {"where", "_to_copy", "mul", "add", "sub"}
"""Operators that may read a test that loses NaN of a guarded number: see `Precision.lost`."""
_BLENDING = frozenset({"mm", "bmm", "_softmax", "_log_softmax", "native_layer_norm"})
"""Operators whose results depend on all channels of a row, rounded in float32 in any case."""
_NARROW = (torch.int8, torch.uint8, torch.int16)
_DIVIDED_BY: Mapping[str, Sequence[int]] = {
    "div": (1,),
    "reciprocal": (0,),
    "rsqrt": (0,),
    "pow": (0,),
    "atan2": (0, 1),
}
"""Operators whose results differ for 0 and -0 -> the places of operands."""
_SIGNING = frozenset({"_to_copy", "mul", "remainder", "fmod", "floor_divide", "div", "sum", "prod", "pow"})
"""Operators that may make -0 of negative numbers, where whole numbers have 0 alone."""
_OPERATIONS = {"mul": "a product", "pow": "a product", "add": "a sum", "sub": "a difference"}

_OTHERWISE = "give the result as a column of features"
_DOUBLE = (
    "leave .double() out where float32 is enough, or give numbers as features that need no more, such as "
    "times since a late day"
)


@dataclass
class TracedOperator:
    """A traced operator before it is read.

    arguments: by the names of its schema. operands: the numbers that it computes with, in order; sources:
    their nodes, if they have rows. double: whether it computes in float64, and the module does not as a
    whole; single: in float32. guards: operand -> the limit from which on its rows are to be NaN; zeros:
    operands whose zeros are to have no sign. limit: as `guards`, for its result. refusal: why it cannot be
    read, if so.
    """

    node: fx.Node
    name: str
    arguments: Mapping[str, object]
    double: bool
    single: bool
    operands: list[Bound] = field(default_factory=list)
    sources: list[fx.Node | None] = field(default_factory=list)
    bound: Bound = UNKNOWN
    guards: dict[fx.Node, float] = field(default_factory=dict)
    zeros: set[fx.Node] = field(default_factory=set)
    limit: float = inf
    refusal: str = ""

    @property
    def dtype(self) -> torch.dtype:
        dtype: torch.dtype = self.node.meta["val"].dtype
        return dtype

    @property
    def is_whole(self) -> bool:
        return not self.dtype.is_floating_point

    def argument(self, *roles: str) -> fx.Node:
        """The first argument of these names that is there."""
        found = next(self.arguments[role] for role in roles if role in self.arguments)
        assert isinstance(found, fx.Node)
        return found

    def exact(self, place: int, limit: float = inf) -> Bound:
        """The operand, which is to be the module's own number, below a limit; guarded where it may not be."""
        one, source = self.operands[place], self.sources[place]
        limit = min(limit, one.same_below)
        if limit == inf:
            return one
        if one.reach >= limit:
            if source is None and one.whole and one.low == one.high and not self.double:
                raise ModelError(
                    f"the whole number {one.low:.0f} meets rows of a graph, which are float32 and would "
                    "round it: subtract where such numbers begin (as of times) before they are added "
                    "to the graph"
                )
            if source is None or not one.whole or limit < 1 or one.least >= limit:
                self.refuse_digits(one)
                raise AssertionError
            self.guards[source] = min(limit, self.guards.get(source, inf))
            one = one.within(limit)
        self.operands[place] = one = replace(one, same_below=inf)
        return one

    def refuse_digits(self, of: Bound) -> None:
        why = of.why or "their size"
        if self.double:
            raise ModelError(
                f"{self.name} is computed in float64 here, of numbers that a model, which computes in "
                f"float32, has only rounded ({why}), and a small difference makes another result: {_DOUBLE}"
            )
        if of.whole:
            raise ModelError(
                f"{self.name} takes the last digits of whole numbers that may be above {int(WHOLE):,}, "
                f"because of {why}, and a model computes in float32, which has no such digits: {_OTHERWISE}"
            )
        raise ModelError(
            f"{self.name} takes digits of numbers that a model, which computes in float32, rounds otherwise, "
            f"because of {why}: {_OTHERWISE}"
        )

    def refuse_double(self, why: str = "") -> None:
        raise ModelError(
            f"{self.name} is computed in float64 here, and a model computes in float32{why}: {_DOUBLE}"
        )

    def check_reach(self, *, gentle: bool = False) -> None:
        """Refuses numbers that float32 may make 0, unless `gentle`; guards numbers that it makes infinite."""
        for place, one in enumerate(self.operands):
            source = self.sources[place]
            if (one.too_small and not gentle) or (one.too_large and source is None):
                self.refuse_double(f", which may not reach as far as the numbers here ({one.why})")
            if one.too_large and source is not None:
                self.guards[source] = min(bounds.LARGEST, self.guards.get(source, inf))
                self.operands[place] = one.within(bounds.LARGEST)

    def check_signs(self, *signs: int) -> None:
        """Refuses a sum of rounded numbers of which nothing but rounding may be left."""
        if 0 in signs or len(set(signs)) > 1:
            self.refuse_double(": where the numbers are nearly opposite, only what it rounds would be left")


def weigh(op: TracedOperator, given: Sequence[Bound], scattered: Bound | None) -> Bound:
    """Returns the bound of an operator's results. given: the bounds of all its operands; scattered: the bound
    of the rows that it scatters. Raises `ModelError` if a model might silently compute something else.
    """
    name = op.name
    guarded = any(one.guarded for one in given)
    tests = _COMPARING | _LOGICAL | SHAPING | {"where"}
    if guarded and (name in _ABSORBING or (op.dtype == torch.bool and name not in tests)):
        refuse_lost(op, given)
    if name in MOVING:
        found = union(given)
    elif name == "_to_copy":
        found = _cast(op)
    elif op.dtype == torch.bool:
        _check_test(op)
        found = whole_bound(0, 1, why=next((one.why for one in given if one.guarded), ""))
    elif name in _DIGITS and (name != "div" or op.arguments.get("rounding_mode")):
        found = _digits(op)
    elif name in ("sum", "prod"):
        found = _reduced(op)
    elif scattered is not None:
        found = _scattered(op, given, scattered)
    elif name == "clamp":
        found = _clamped(op)
    else:
        found = _computed(op, given)
    held = next((one.why for one in (*op.operands, *given) if one.guarded), "")
    why = (held or found.why) if found.same else found.why
    found = replace(found, guarded=guarded or bool(op.guards), signed=_is_signed(op, given), why=why)
    return _in_range(op, found)


def refuse_lost(op: TracedOperator, given: Sequence[Bound]) -> None:
    """Refuses an operator that does not say where an operand was NaN."""
    why = next((one.why for one in given if one.guarded), "") or "what is tested"
    raise ModelError(
        f"{op.name} reads whole numbers that may be too large for float32, because of {why}; a model has "
        f"NaN there, which the result would not say: {_OTHERWISE}"
    )


def _in_range(op: TracedOperator, found: Bound) -> Bound:
    """Whole numbers that are narrower than int64 wrap around where they are large."""
    if op.dtype in (torch.int64, torch.bool) or not op.is_whole or op.name in MOVING:
        return found
    info = torch.iinfo(op.dtype)
    if info.min <= found.low and found.high <= info.max:
        return found
    if op.dtype in _NARROW:
        raise ModelError(
            f"numbers become {op.dtype}, which wraps around where they are large: use torch.int64"
        )
    op.limit = 2.0**31
    return replace(
        found.within(op.limit), why=f"{op.dtype}, in which larger ones wrap around (torch.int64 has more)"
    )


def _is_signed(op: TracedOperator, given: Sequence[Bound]) -> bool:
    """Returns whether a row may be -0 where the module's whole number is 0: a division shows the sign."""
    if op.arguments.get("rounding_mode") is None:
        for place in _DIVIDED_BY.get(op.name, ()):
            source = op.sources[place]
            if op.operands[place].signed and source is not None:
                op.zeros.add(source)
    if op.name == "abs" or op.dtype == torch.bool:
        return False
    made = op.name in _SIGNING and min((one.low for one in given), default=0.0) < 0
    return (op.is_whole and (made or op.name in ("neg", "sub"))) or any(one.signed for one in given)


def _check_test(op: TracedOperator) -> None:
    """Refuses tests of rounded numbers, but of signs, and of whole numbers against small ones."""
    if op.name not in _COMPARING:
        op.check_reach()
        return
    for one, other in (op.operands, op.operands[::-1]):
        if one.same:
            continue
        of_sign = other.same and other.low == other.high and other.low in (0, inf, -inf)
        of_small = one.whole and other.same and other.reach < one.same_below
        if not of_small and not (of_sign and not one.too_small):
            op.refuse_digits(one)


def _cast(op: TracedOperator) -> Bound:
    one, dtype = op.operands[0], op.dtype
    if dtype == torch.bool:
        op.check_reach()
        return whole_bound(0, 1)
    if dtype == torch.float64:
        return one
    if dtype.is_floating_point:
        below = inf if one.once else one.same_below
        # After the cast, the module's number is in the range of float32 too.
        least = one.least if one.same else max(one.least, bounds.NORMAL)
        return replace(one, same_below=below, once=False, least=least, most=min(one.most, bounds.LARGEST))
    if not op.argument("self").meta["val"].dtype.is_floating_point:
        return one
    if not one.whole:
        one = op.exact(0)
    low, high = (float(trunc(end)) if abs(end) < inf else end for end in (one.low, one.high))
    if dtype not in _NARROW:  # a number that does not fit is undefined in torch
        info = torch.iinfo(dtype)
        room = info.max - (127 if dtype == torch.int32 else 0)  # the last of float32 below 2^31
        low, high = max(low, info.min), min(high, room)
    return one.as_whole(low, high)


def _digits(op: TracedOperator) -> Bound:
    """Floors, remainders and whole quotients, of exact operands alone."""
    name = op.name
    if name in _CUTTING:
        one = op.operands[0] if op.operands[0].whole else op.exact(0)
        return one.as_whole(*ends_of(name, [one], whole=True))
    mode = op.arguments.get("rounding_mode")
    limit = inf
    if mode == "trunc" and not op.single:
        # The quotient is rounded before it is cut, which makes no other number of small whole ones alone.
        limit = WHOLE
        if not op.operands[0].whole:
            op.refuse_double(", in which the quotient is rounded before it is cut")
    name = "floor_divide" if mode else name
    a, b = op.exact(0, limit), op.exact(1)
    whole = name == "floor_divide" or (a.whole and b.whole)
    found = (whole_bound if whole else Bound)(*ends_of(name, [a, b], whole=whole), why="a quotient")
    if op.single or name == "fmod":
        return found
    if name == "floor_divide":
        return found if found.reach < bounds.QUOTIENT else replace(found, same_below=bounds.QUOTIENT)
    if (a.low >= 0 and b.low >= 0) or (whole and b.reach < WHOLE):
        return found
    # To a rest of the other sign the divisor is added, and that rounds.
    return replace(found, same_below=WHOLE if whole else 0.0, once=True, why="a remainder")


def _reduced(op: TracedOperator) -> Bound:
    """Sums and products of channels."""
    one = op.operands[0]
    before, after = (_channels(node) for node in (op.argument("self"), op.node))
    count = before[0] // max(1, after[0]) if before[1] == after[1] else 2**32
    whole = op.is_whole or one.whole
    if op.name == "prod":
        if op.double and not whole:
            op.refuse_double()
        ends = (-inf, inf) if one.reach > 1 else (-1.0 if one.low < 0 else 0.0, 1.0)
        return _of_whole(op, *ends, why="a product")
    if whole and not op.single and not one.one_sign and count > 1:
        # Large numbers may be opposite, and their partial sums rounded.
        one = op.exact(0, inf if one.same and one.reach * count <= WHOLE else float(WHOLE // count))
    low, high = min(one.low, one.low * count), max(one.high, one.high * count)
    if whole and not op.single:
        return _of_whole(op, low, high, why="a sum")
    if not op.double:
        return Bound(low, high, whole=whole, same_below=inf if one.same else 0.0, why=one.why)
    if count > 1:
        op.check_signs(one.one_sign)
    op.check_reach(gentle=True)
    return Bound(low, high, same_below=0.0, least=one.least, most=one.most * count, why="a sum in float64")


def _channels(node: fx.Node) -> tuple[int, int]:
    """The number of channels of a tensor, and of its axes of rows."""
    sizes = [one for one in node.meta["val"].shape if isinstance(one, int)]
    return prod(sizes), len(node.meta["val"].shape) - len(sizes)


def _scattered(op: TracedOperator, given: Sequence[Bound], source: Bound) -> Bound:
    """Returns the bound of sums along edges: an engine adds and subtracts, so only small sums stay exact."""
    base, reduce = op.operands[0], op.arguments.get("reduce")
    if reduce in ("amax", "amin"):
        return union(given)
    low = base.low + min(0.0, source.low) * bounds.COUNT
    high = base.high + max(0.0, source.high) * bounds.COUNT
    why = source.why or "a sum along edges"
    if op.single:
        whole = base.whole and source.whole and reduce != "mean"
        return Bound(low, high, whole, inf if base.same and source.same else 0.0, why=why)
    if op.is_whole or (source.whole and base.whole and reduce != "mean"):
        found = whole_bound(low, high, why=why)
        if not source.same or not base.same or source.reach > bounds.CATEGORY:
            return replace(found, same_below=0.0)
        return found if source.reach <= 1 and base.reach == 0 else replace(found, same_below=WHOLE)
    op.check_signs(source.one_sign)
    op.operands, op.sources = [source], [op.argument("src", "source")]
    op.check_reach(gentle=True)
    if base.reach:
        op.refuse_double()
    return Bound(low, high, False, 0.0, False, source.least / WHOLE, source.most * WHOLE, why=why)


def _clamped(op: TracedOperator) -> Bound:
    one = op.operands[0]
    ends = [op.arguments.get(role) for role in ("min", "max")]
    least, most = (float(end) if isinstance(end, int | float) else None for end in ends)
    low, high = one.low, one.high
    if least is not None:
        low, high = max(low, least), max(high, least)
    if most is not None:
        low, high = min(low, most), min(high, most)
    known = [end for end in (least, most) if end is not None]
    limits = bounds.bound_of_constant(torch.tensor(known or [0.0], dtype=torch.float64))
    whole = one.whole and limits.whole
    smallest = max(low, -high) if max(low, -high) > 0 else min(one.least, limits.least)
    found = replace(
        one, low=low, high=high, whole=whole, least=smallest, most=max(abs(low), abs(high)), once=False
    )
    found = replace(found, most=min(found.most, max(one.most, limits.most)))
    if whole and len(known) == 2 and limits.reach < one.same_below:
        return replace(found, same_below=inf)  # all rounded numbers are outside
    if op.single or limits.same:
        return replace(found, once=one.once)
    return replace(found, same_below=0.0, why="a number that float32 rounds")


def _computed(op: TracedOperator, given: Sequence[Bound]) -> Bound:
    """Arithmetic and functions."""
    name, operands = op.name, op.operands
    if name in ("add", "sub") and op.arguments.get("alpha", 1) != 1:
        _scale_second(op)
    whole = op.is_whole or (name in bounds.KEEPS_WHOLE and all(one.whole for one in operands))
    if name == "sign":
        return whole_bound(*ends_of(name, operands, whole=True))
    if whole and not op.single:
        return _whole_numbers(op)
    low, high = ends_of(name, operands, whole=whole)
    if op.double:
        return _smooth(op, low, high)
    same = name in _BLENDING or all(one.same for one in (*operands, *given))
    why = next((one.why for one in given if not one.same), "")
    found = Bound(low, high, whole, inf if same else 0.0, least=1.0 if whole else bounds.SMALLEST, why=why)
    return replace(found, most=min(found.reach, bounds.LARGEST))


def _scale_second(op: TracedOperator) -> None:
    """Multiplies the second operand by alpha, in the bounds."""
    if op.double:
        op.refuse_double()
    one, alpha = op.operands[1], op.arguments["alpha"]
    factor = bounds.bound_of_constant(torch.tensor(alpha, dtype=torch.float64))
    low, high = ends_of("mul", [one, factor], whole=one.whole)
    below = one.same_below if op.single or max(abs(low), abs(high)) <= WHOLE else min(one.same_below, WHOLE)
    scaled = Bound(
        low, high, one.whole and factor.whole, below, guarded=one.guarded, why=one.why or "a product"
    )
    op.operands[1] = scaled
    op.sources[1] = None


def _whole_numbers(op: TracedOperator) -> Bound:
    """Arithmetic of whole numbers in int64, or in float64, which has as many digits as are needed."""
    name, operands = op.name, op.operands
    if name in ("add", "sub"):
        return _sum(op)
    low, high = ends_of(name, operands, whole=True)
    why = _OPERATIONS.get(name, name)
    power = (
        name == "pow" and operands[1].same and operands[1].low == operands[1].high and operands[1].low >= 0
    )
    if power or name in ("neg", "abs", "relu", "maximum", "minimum", "mul"):
        return _of_whole(op, low, high, why=why)
    return whole_bound(low, high, same_below=0.0, why=why)


def _of_whole(op: TracedOperator, low: float, high: float, *, why: str) -> Bound:
    """Returns the bound of whole results at least as large as the operands: exact where the operands are."""
    operands = op.operands
    moves = op.name in ("neg", "abs", "relu", "maximum", "minimum")
    below = min(one.same_below for one in operands)
    least = prod(one.least for one in operands) if op.name == "mul" else 1.0
    if not moves and max(abs(low), abs(high)) > WHOLE:
        below = min(below, WHOLE)
    once = all(one.same or (moves and one.once) for one in operands)
    held = next((one.why for one in operands if not one.same), why)
    return Bound(low, high, True, below, once, least, max(abs(low), abs(high)), why=held)


def _sum(op: TracedOperator) -> Bound:
    """Sums of whole numbers: of two that are rounded, nothing but rounding may be left."""
    a, b = op.operands
    low, high = ends_of(op.name, [a, b], whole=True)
    if a.same and b.same:
        return _of_whole(op, low, high, why=_OPERATIONS[op.name])
    why = next(one.why for one in (a, b) if not one.same)
    found = whole_bound(low, high, why=why)
    for one, other in ((a, b), (b, a)):
        if one.same and one.reach <= other.same_below / 2:
            return replace(found, same_below=min(WHOLE, other.same_below) - one.reach)
    below = min(a.same_below, b.same_below, WHOLE)
    signs = (a.one_sign, b.one_sign if op.name == "add" else -b.one_sign)
    if signs[0] and signs[0] == signs[1]:
        return replace(found, same_below=below)
    for place, one in enumerate((a, b)):
        # A sum along edges is as exact as an engine keeps it.
        op.operands[place] = replace(one, same_below=WHOLE) if one.same_below == 0 else one
        op.exact(place)
    low, high = ends_of(op.name, op.operands, whole=True)
    small = max(abs(low), abs(high)) <= WHOLE
    return replace(found, low=low, high=high, same_below=0.0 if below == 0 else inf if small else WHOLE)


def _smooth(op: TracedOperator, low: float, high: float) -> Bound:
    """Functions in float64, of which a model has float32's. Refuses those that may differ much."""
    name, operands = op.name, op.operands
    gentle = name in bounds.GENTLE or (name == "mul" and min(one.most for one in operands) <= 1024)
    gentle = gentle or (name == "div" and operands[1].least >= 2**-10)
    op.check_reach(gentle=gentle)
    same = all(one.same for one in operands)
    why = f"{name} in float64"
    if name in ("add", "sub"):
        if not same:
            op.check_signs(operands[0].one_sign, operands[1].one_sign * (1 if name == "add" else -1))
        # Small sums are multiples of float32's smallest number: none is rounded, unless operands were.
        least = min([bounds.NORMAL, *(one.least for one in operands if not one.same)])
        return Bound(low, high, False, 0.0, same, least, operands[0].most + operands[1].most, why=why)
    if name not in bounds.SIZES or not bounds.is_steady(name, operands):
        op.refuse_double()
    least, most = bounds.SIZES[name](*operands)
    moves = name in ("neg", "abs", "relu", "maximum", "minimum")
    once = same and (name in bounds.ROUNDED_ONCE or (name == "pow" and operands[1].low == 2))
    whole = moves and all(one.whole for one in operands)
    return Bound(low, high, whole, inf if moves and same else 0.0, once, least, most, why=why)
