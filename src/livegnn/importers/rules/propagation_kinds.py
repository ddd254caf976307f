"""Classifies the propagations of a normal form: the rows that each reads, and how it is kept up to date."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal, TypeAlias

from livegnn.importers.expressions.expressions import Expression, Expressions, Origin, walk
from livegnn.importers.expressions.properties import Reads, is_tiny, squeezed, strip

Upkeep: TypeAlias = Literal["incremental", "constrained", "recomputed"]


@dataclass(frozen=True)
class Propagation:
    """One reduction along edges, or over all rows.

    what: in words, such as ``"sum source"``. reads: any of ``"source"``, ``"target"``, ``"edge"``, also for
    logits. support: whether it is a count, a shift or the mass of a softmax, which other propagations use.
    why: the reason for its upkeep.
    """

    scatter: Expression
    what: str
    reads: tuple[str, ...]
    upkeep: Upkeep
    why: str
    origin: Origin
    support: bool = False


def classify(make: Expressions, outputs: Sequence[Expression]) -> list[Propagation]:
    """The propagations of expressions in normal form, in the order in which they are computed."""
    every = list(walk(outputs))
    free = free_shifts(outputs)
    used_otherwise = {
        arg
        for one in every
        for arg in (one.args[:1] if one.op == "exp_shifted" else one.args)
        if one.op != "gather"
    } | set(outputs)
    found = []
    for one in every:
        if one.op == "scatter":
            is_shift = one in free and one not in used_otherwise
            origin = make.origins.get(one, Origin())
            found.append(_classify(one, origin, is_shift, free))
    return found


def shift_of(one: Expression) -> Expression:
    """The scatter that gives the largest logit of an exponential's target."""
    shift = strip(one.args[1])
    return strip(shift.args[0]) if shift.op == "gather" else shift


def _classify(one: Expression, origin: Origin, is_shift: bool, free: set[Expression]) -> Propagation:
    reduce = {"amax": "max", "amin": "min"}.get(str(one.attrs[0]), str(one.attrs[0]))
    if one.atom is None:
        why = "every row of the graph reaches it, so that any change of one reaches all"
        return Propagation(one, f"global {reduce}", (), "recomputed", why, origin)
    along = [piece for piece in one.pieces if piece[1].op == "end"]
    if not along:
        why = "it joins what each node has by itself"
        return Propagation(one, "own", (), "incremental", why, origin, support=True)
    if reduce == "last":
        why = "the weight of a node's own loop, looked up again when its loops change"
        return Propagation(one, "last", ("edge",), "incremental", why, origin)
    words, reads, support = zip(
        *(_of_piece(reduce, message, to, mask, free) for message, to, mask in along), strict=True
    )
    what = max(words, key=len)
    read = tuple(end for end in ("source", "target", "edge") if any(end in each for each in reads))
    constrained = "target" in read
    if is_shift:
        what, support = "shift of a softmax", (True,)
    why = (
        "its message reads the target: a changed target is computed from all its edges"
        if constrained
        else "a changed extremum that leaves is looked for again, everything else joins or leaves it"
        if reduce in ("max", "min")
        else "its message reads no target: what changed is added, what it was is taken away"
    )
    upkeep: Upkeep = "constrained" if constrained else "incremental"
    return Propagation(one, what, read, upkeep, why, origin, all(support))


def _of_piece(
    reduce: str, message: Expression, index: Expression, mask: Expression, free: set[Expression]
) -> tuple[str, tuple[str, ...], bool]:
    """Returns the description of a message, its reads, and whether it only counts or normalises."""
    of_mask = Reads()(mask) - {"edge"}  # the choice of edges and their types belongs to the graph
    outside = _ends(Reads()(message) | of_mask, index)
    inside = _ends(Reads(inside=True)(message) | of_mask, index)
    exponentials = [one for one in on_edges(message) if one.op == "exp_shifted"]
    if exponentials:
        if reduce != "sum" or any(shift_of(one) not in free for one in exponentials):
            return f"{reduce} reads target", (*dict.fromkeys((*inside, "target")),), False
        factors = list(_factors(message))
        weights = [factor for factor in factors if strip(factor).op == "exp_shifted"]
        if len(weights) == len(exponentials) == 1:
            logit = strip(weights[0]).args[0]
            of_logit = _ends(Reads(inside=True)(logit), index)
            if not outside:
                return "mass of a softmax", inside, True
            form = _form(logit, index)
            value = f"value {'+'.join(sorted(outside))}"
            return f"softmax sum, {form} logit {_plus(of_logit)}, {value}", inside, False
        return f"{reduce} of exponentials", inside, False
    if not outside:
        return "count", (), True
    if "target" in outside:
        return f"{reduce} reads target", outside, False
    if outside == ("source", "edge"):
        of_edges = [_ends(Reads()(factor), index) for factor in _factors(message)]
        numbers = [factor for factor in _factors(message) if _ends(Reads()(factor), index) == ("edge",)]
        apart = all(len(each) < 2 for each in of_edges)
        if apart and all(prod(factor.shape) == 1 for factor in numbers):
            return f"{reduce} source*weight", outside, False
        return f"{reduce} f(source,edge)", outside, False
    return f"{reduce} {outside[0]}", outside, False


def on_edges(message: Expression) -> Iterator[Expression]:
    """The parts of a message that are computed for each edge, without rows of nodes."""
    if message.op not in ("gather", "scatter"):
        yield message
        for arg in message.args:
            if arg.atom is not None:
                yield from on_edges(arg)


def _plus(reads: Sequence[str]) -> str:
    return "+".join(reads) or "constant"


def _ends(reads: frozenset[str], index: Expression) -> tuple[str, ...]:
    """The reads named by the direction of messages: ``"source"``, ``"target"``, ``"edge"``."""
    target = f"end {index.attrs[0]}"
    names = {target: "target", "edge": "edge", "end 0": "source", "end 1": "source"}
    found = {"target" if one == target else names[one] for one in reads if one in names}
    return tuple(one for one in ("source", "target", "edge") if one in found)


def _factors(message: Expression) -> Iterator[Expression]:
    """The factors of a message, each with one number for the message or one for each channel."""
    if message.op == "mul":
        for arg in message.args:
            yield from _factors(arg)
    elif message.op in ("reshape", "expand", "permute") and message.args[0].op in (
        "mul",
        "reshape",
        "expand",
    ):
        yield from _factors(message.args[0])
    elif message.op == "expand":
        yield message.args[0]
    elif message.op == "div" and message.args[1].value is not None:
        yield from _factors(message.args[0])
    else:
        yield message


def _form(logit: Expression, index: Expression) -> str:
    """``"single"``, ``"additive"``, ``"dot"`` or ``"general"``: how a logit combines its inputs."""

    def reads(one: Expression) -> set[str]:
        return {end for end in _ends(Reads(inside=True)(one), index) if end != "edge"}

    if len(reads(logit)) < 2:
        return "single"
    while True:
        if logit.op == "add" and logit.atom is not None:
            mixed = [arg for arg in logit.args if len(reads(arg)) > 1]
            if not mixed:
                return "additive"
            if len(mixed) > 1:
                return "general"
            logit = mixed[0]
        elif logit.op in ("reshape", "expand", "leaky_relu", "neg", "relu", "tanh", "sigmoid", "clamp") or (
            logit.op in ("mul", "div") and any(arg.value is not None for arg in logit.args)
        ):
            logit = next(arg for arg in logit.args if arg.value is None)
            if logit.op in ("add", "mul", "sum") or len(reads(logit)) > 1:
                continue
            return "general"
        elif logit.op in ("sum", "matmul") and _is_dot(logit, reads):
            return "dot"
        else:
            return "general"


def _is_dot(one: Expression, reads: object) -> bool:
    assert callable(reads)
    if one.op == "matmul":
        return all(len(reads(arg)) < 2 for arg in one.args)
    factors = list(_factors(one.args[0]))
    return len(factors) > 1 and all(len(reads(factor)) < 2 for factor in factors)


# Softmaxes


def free_shifts(outputs: Sequence[Expression]) -> set[Expression]:
    """The shifts of exponentials on which no output depends."""
    shifts = {shift_of(one) for one in walk(outputs) if one.op == "exp_shifted"}
    return {shift for shift in shifts if shift_is_free(outputs, shift)}


def shift_is_free(outputs: Sequence[Expression], shift: Expression) -> bool:
    """Whether the outputs do not depend on the shift of a target's logits, as in a true softmax.

    With ``exp(l - s)`` each row is a power of ``exp(-s)`` times a factor without s. Products add powers,
    quotients subtract them, sums need equal ones; the power of the outputs must be 0.
    """
    powers: dict[Expression, int | None] = {}
    heads = prod(squeezed(shift.shape))
    for one in walk(outputs):
        powers[one] = _power(one, [powers[arg] for arg in one.args], shift, heads)
    return all(powers[one] == 0 for one in outputs)


def _power(one: Expression, args: Sequence[int | None], shift: Expression, heads: int) -> int | None:
    """The power of ``exp(-s)`` in a row; None if the row is not such a product."""
    if None in args:
        return None
    known = [power for power in args if power is not None]
    if one.op == "exp_shifted" and shift_of(one) is shift:
        return 1 if known[0] == 0 else None
    if not any(known):
        return 0
    if one.op == "mul":
        return sum(known)
    if one.op == "div":
        return known[0] - known[1]
    if one.op in ("add", "concat", "where"):
        parts = list(zip(one.args, known, strict=True))
        if one.op == "where" and parts.pop(0)[1] != 0:
            return None
        free = {power for arg, power in parts if not is_tiny(arg)}
        return free.pop() if len(free) == 1 else None
    if one.op in ("neg", "reshape", "expand", "permute", "slice"):
        return known[0]
    if one.op in ("sum", "linear", "matmul"):
        mixed = one.op == "sum" and all(one.args[0].shape[i] == 1 for i in one.attrs[0])  # type: ignore[attr-defined]
        return sum(known) if heads == 1 or mixed else None
    if one.op == "gather" and shift.pieces:
        same = any(one.args[1] is to for _, to, _ in shift.pieces)
        return known[0] if same and one.args[0].atom is shift.atom else None
    if one.op == "scatter" and one.attrs == ("sum",) and one.atom is shift.atom:
        if any(known[1::3]) or any(known[2::3]) or not all(
            any(to is other for _, other, _ in shift.pieces) for _, to, _ in one.pieces
        ):  # fmt: skip
            return None
        powers = set(known[0::3])
        return powers.pop() if len(powers) == 1 else None
    return None


def words(propagations: Sequence[Propagation]) -> list[str]:
    """The kinds of reductions, each once, without counts, shifts and masses of softmaxes."""
    return sorted({one.what for one in propagations if not one.support})
