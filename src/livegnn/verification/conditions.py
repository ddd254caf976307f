"""The conditions of theorem 1 of NeutronRT (section IV.C), as claims about one layer's operators.

1. neighbor_context is incremental: messages can be added to it in any grouping and order, and removed again;
2. aggregate is associative: messages can be added in any grouping and order; a message cannot be removed from
   a min or a max, so the engine computes it again if the extremum is removed;
3. combine distributes over aggregate: it may be applied to the aggregate instead of to each message;
4. combine is monotone in the context, so combine_inverse exists.

Contexts are above 0 here. If a context is not above 0, the result is 0 by definition; since the engine keeps
aggregates un-combined, it needs no inverse in that case. Each claim is about one target and any number of
messages: z stands for the context, and m for the aggregate, of the messages that are not named. A message is
any real number, so the claims hold for any factors of it (a weight, a coefficient, d_u^-1/2, a row).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TypeAlias

import numpy as np

from livegnn.network.own_convolution import apply_to_messages, is_known
from livegnn.network.propagation import Propagate
from livegnn.verification.claims import (
    Answer,
    Claim,
    Relation,
    Rows,
    Status,
    decide,
    format_row,
    larger,
    smaller,
    worst,
)

Fold: TypeAlias = Callable[[Sequence[Rows]], Rows]
OfContext: TypeAlias = Callable[[Rows, Rows], Rows]

CONTEXT = "neighbor_context is incremental"
AGGREGATE = "aggregate is associative"
DISTRIBUTES = "combine distributes over aggregate"
MONOTONE = "combine is monotone in the context"
INVERSE = "combine_inverse undoes combine"
ALGORITHM = "algorithm 1 equals recomputation"
POSITIVE = "a softmax has a context above 0"


@dataclass(frozen=True)
class Condition:
    """One condition that must hold.

    step: the value that the step writes, or the convolution's name. number: the number of the condition in
    theorem 1; None if it is not one of the four. counterexample: if it is refuted; otherwise a remark, or
    empty.
    """

    step: str
    number: int | None
    condition: str
    status: Status
    counterexample: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Operators:
    """The operators that the claims are about.

    context, aggregate: names, or functions that equal none of the named ones. given_context, given_aggregate:
    the functions that were recognised as named ones, or None. width: channels of an aggregate. heads: number
    of heads of a context. softmax: the coefficients are exponentials.
    """

    context: object
    aggregate: object
    combine: OfContext
    inverse: OfContext | None
    width: int = 1
    heads: int = 1
    softmax: bool = False
    given_context: object = None
    given_aggregate: object = None


def read_algebra(given: Propagate, softmax: bool) -> Operators:
    """The operators of a propagate step."""
    combine: Mapping[str, OfContext] = {
        "identity": lambda z, m: m,
        "divide": lambda z, m: m / z,
        "rsqrt": lambda z, m: m / np.sqrt(z),
    }
    inverse: Mapping[str, OfContext] = {
        "identity": lambda z, m: m,
        "multiply": lambda z, m: m * z,
        "sqrt": lambda z, m: m * np.sqrt(z),
    }
    undo = given.combine_inverse
    return Operators(
        given.neighbor_context,
        given.aggregate,
        combine[given.combine],
        None if undo is None else inverse[undo],
        softmax=softmax,
    )


def check(step: str, ops: Operators, seed: int) -> list[Condition]:
    """Checks the four conditions, the inverse, and Algorithm 1."""
    context = worst([_check_context(ops, seed), _check_name(ops.given_context, ops.context, ops, seed)])
    aggregate = worst(
        [_check_aggregate(ops, seed), _check_name(ops.given_aggregate, ops.aggregate, ops, seed)]
    )
    extremum = ops.aggregate in ("min", "max")
    recomputed = Answer("not needed", f"a {ops.aggregate} is recomputed where its extremum leaves")
    if ops.inverse is None and not extremum:
        inverse = Answer("not needed", "none is given: the engine keeps the aggregate un-combined")
    else:
        inverse = recomputed if extremum else decide(_inverse_claim(ops), seed)
    failed = next((n for n, answer in ((1, context), (2, aggregate)) if answer.status == "refuted"), None)
    if failed is not None:
        algorithm = Answer("unknown", f"not checked, as condition {failed} does not hold")
    else:
        algorithm = decide(_extremum_claim(ops) if extremum else _algorithm_claim(ops), seed)
    conditions = [
        as_condition(step, 1, CONTEXT, context),
        as_condition(step, 2, AGGREGATE, aggregate),
        as_condition(step, 3, DISTRIBUTES, decide(_distributes_claim(ops), seed)),
        as_condition(step, 4, MONOTONE, recomputed if extremum else decide(_monotone_claim(ops), seed)),
        as_condition(step, None, INVERSE, inverse),
        as_condition(step, None, ALGORITHM, algorithm),
    ]
    if ops.softmax:
        conditions.append(as_condition(step, None, POSITIVE, decide(_POSITIVE_CLAIM, seed)))
    return conditions


def check_degree(step: str, kind: str, seed: int) -> list[Condition]:
    """Checks the only condition of a degree, which is a context without an aggregate."""
    operators = Operators(kind, "sum", lambda z, m: m, None)
    return [as_condition(step, 1, CONTEXT, _check_context(operators, seed))]


def _fold(operator: object) -> Fold:
    """The function that applies a context or an aggregate to a list of messages, each [rows, channels]."""
    if operator == "none":
        return lambda messages: messages[0] * 0 + 1
    if operator == "count":
        return lambda messages: messages[0] * 0 + len(messages)
    if operator in ("sum", "min", "max"):
        join = {"sum": _plus, "min": smaller, "max": larger}[str(operator)]
        return lambda messages: reduce(join, messages)

    def apply(messages: Sequence[Rows]) -> Rows:
        by_row = [np.stack([message[row] for message in messages]) for row in range(len(messages[0]))]
        return np.stack([apply_to_messages(operator, given) for given in by_row])

    return apply


def _plus(a: Rows, b: Rows) -> Rows:
    total: Rows = np.add(a, b)
    return total


def _check_context(ops: Operators, seed: int) -> Answer:
    if ops.context == "none":
        claim = Claim(("m_1", "m_2"), lambda m_1, m_2: [Relation(m_1 * 0 + 1, m_2 * 0 + 1)])
        return decide(claim, seed)
    if ops.context in ("sum", "count"):
        lift: Callable[[Rows], Rows] = (lambda m: m) if ops.context == "sum" else (lambda m: m * 0 + 1)
        return decide(
            Claim(
                ("z", "m_1", "m_2"),
                lambda z, m_1, m_2: [
                    *_associative(_plus, z, lift(m_1), lift(m_2)),
                    Relation(z + lift(m_1) - lift(m_1), z, what="a message that leaves again"),
                ],
            ),
            seed,
        )
    of = _fold(ops.context)
    answer = decide(_grouping_claim("context", of, ops.width), seed)
    if answer.status == "refuted":
        return answer
    leaving = _find_leaving(ops.context, ops.width, seed)
    return worst([answer, leaving])


def _check_aggregate(ops: Operators, seed: int) -> Answer:
    if ops.aggregate in ("sum", "min", "max"):
        join = {"sum": _plus, "min": smaller, "max": larger}[str(ops.aggregate)]
        return decide(Claim(("m", "m_1", "m_2"), lambda m, m_1, m_2: _associative(join, m, m_1, m_2)), seed)
    answer = decide(_grouping_claim("aggregate", _fold(ops.aggregate), ops.width), seed)
    if answer.status == "refuted":
        return answer
    example = apply_to_messages(ops.aggregate, np.array([[1.0], [2.0], [4.0]]).repeat(ops.width, axis=1))
    return Answer(
        "refuted",
        f"it is associative, but none of sum, min and max, which the engine keeps: of 1, 2 and 4 it makes "
        f"{format_row(example[:1])}",
    )


def _check_name(given: object, name: object, ops: Operators, seed: int) -> Answer:
    """Checks that a function equals the operator as which it was recognised."""
    if given is None or is_known(given) or not isinstance(name, str):
        return Answer("not needed")
    of, named = _fold(given), _fold(name)

    def relations(m_1: Rows, m_2: Rows, m_3: Rows) -> list[Relation]:
        lists = ([m_1], [m_1, m_2], [m_1, m_2, m_3])
        return [Relation(of(one), named(one), what=f"being the {name} of {len(one)}") for one in lists]

    return decide(Claim(("m_1", "m_2", "m_3"), relations, width=ops.width), seed)


def _associative(join: Callable[[Rows, Rows], Rows], a: Rows, b: Rows, c: Rows) -> list[Relation]:
    return [
        Relation(join(join(a, b), c), join(a, join(b, c)), what="any grouping"),
        Relation(join(a, b), join(b, a), what="any order"),
    ]


def _grouping_claim(what: str, of: Fold, width: int) -> Claim:
    def relations(m_1: Rows, m_2: Rows, m_3: Rows) -> list[Relation]:
        together, parts = of([m_1, m_2, m_3]), of([of([m_1, m_2]), m_3])
        label = f"{what}(m_1, m_2, m_3) = {what}({what}(m_1, m_2), m_3)"
        order = Relation(of([m_1, m_2]), of([m_2, m_1]), what=f"{what}(m_1, m_2) = {what}(m_2, m_1)")
        return [Relation(together, parts, what=label), order]

    return Claim(("m_1", "m_2", "m_3"), relations, width=width)


def _find_leaving(context: object, width: int, seed: int) -> Answer:
    """Refutes an associative context that is neither a sum nor a count. The counterexample, if one is found,
    is two neighbourhoods with the same context whose contexts differ after the same message is removed.
    """
    random = np.random.default_rng(seed)
    first, second = random.integers(1, 4, (2, 200, 1, width)).astype(np.float64)
    last = random.integers(1, 5, (200, 1, width)).astype(np.float64)
    for a, b, m in zip(first, second, last, strict=True):
        with_a, with_b = (apply_to_messages(context, np.concatenate([one, m])) for one in (a, b))
        of_a, of_b = apply_to_messages(context, a), apply_to_messages(context, b)
        if np.allclose(with_a, with_b) and not np.allclose(of_a, of_b):
            return Answer(
                "refuted",
                f"the messages ({format_row(a)}, {format_row(m)}) and ({format_row(b)}, {format_row(m)}) "
                f"have the same context {format_row(with_a)}; without {format_row(m)} it must be "
                f"{format_row(of_a)} and {format_row(of_b)}: a message cannot leave",
            )
    return Answer("refuted", "it is associative, but neither a sum nor a count, which the engine keeps")


def _distributes_claim(ops: Operators) -> Claim:
    of = _fold(ops.aggregate)

    def relations(z: Rows, m_1: Rows, m_2: Rows) -> list[Relation]:
        each, all_at_once = of([ops.combine(z, m_1), ops.combine(z, m_2)]), ops.combine(z, of([m_1, m_2]))
        nothing = ops.combine(z, m_1 * 0)
        label = "aggregate(combine(z, m_1), combine(z, m_2)) = combine(z, aggregate(m_1, m_2))"
        return [
            Relation(each, all_at_once, what=label),
            Relation(nothing, nothing * 0, what="combine(z, 0) = 0"),
        ]

    return Claim(("z", "m_1", "m_2"), relations, ("z",), ops.width, ("z",), ops.heads)


def _monotone_claim(ops: Operators) -> Claim:
    """The claim that combine is monotone for each message: over three growing contexts, it never changes
    direction."""

    def relations(z: Rows, more: Rows, still: Rows, m: Rows) -> list[Relation]:
        low, middle, high = (ops.combine(context, m) for context in (z, z + more, z + more + still))
        label = "combine(z, m) that does not turn as z grows by more and still more"
        return [Relation(m[:, :1] * 0, (middle - low) * (high - middle), "<=", what=label)]

    contexts = ("z", "more", "still")
    return Claim((*contexts, "m"), relations, contexts, ops.width, contexts, ops.heads)


def _inverse_claim(ops: Operators) -> Claim:
    assert ops.inverse is not None
    undo = ops.inverse

    def relations(z: Rows, m: Rows) -> list[Relation]:
        return [Relation(undo(z, ops.combine(z, m)), m, what="combine_inverse(z, combine(z, m)) = m")]

    return Claim(("z", "m"), relations, ("z",), ops.width, ("z",), ops.heads)


def _algorithm_claim(ops: Operators) -> Claim:
    """Lines 3 to 6 of Algorithm 1: edge 1 changes, those in m and d stay, 3 is removed, 4 and 5 are added.

    d is the number of edges that stay, or their context.
    """
    summed = ops.context == "sum"
    names = ("1", "new_1", "3", "4", "5")
    contexts = tuple(f"c_{name}" for name in names) if summed else ()
    positive = () if summed else ("d",)

    def relations(d: Rows, m: Rows, **v: Rows) -> list[Relation]:
        c = {name: v[f"c_{name}"] if summed else m * 0 + 1 for name in names}
        old, now = d + c["1"] + c["3"], d + c["new_1"] + c["4"] + c["5"]
        context = old + c["new_1"] - c["1"] - c["3"] + c["4"] + c["5"]
        if ops.context == "none":
            old = now = context = m * 0 + 1
        kept = m + v["m_1"] + v["m_3"]
        if ops.inverse is not None:
            kept = ops.inverse(old, ops.combine(old, kept))
        kept = kept + v["m_new_1"] - v["m_1"] - v["m_3"] + v["m_4"] + v["m_5"]
        anew = ops.combine(now, m + v["m_new_1"] + v["m_4"] + v["m_5"])
        what = "the incremental result, which"
        return [Relation(ops.combine(context, kept), anew, "==", (old, now), what)]

    variables = ("d", "m", *(f"m_{name}" for name in names), *contexts)
    return Claim(variables, relations, positive, ops.width, ("d", *contexts), ops.heads)


def _extremum_claim(ops: Operators) -> Claim:
    """The same for a min or a max, kept un-combined: it is joined with new messages, unless the extremum may
    have been removed."""
    join = {"min": smaller, "max": larger}[str(ops.aggregate)]
    inside = 1 if ops.aggregate == "max" else -1

    def relations(z: Rows, m_1: Rows, new_1: Rows, m_2: Rows, m_3: Rows, m_4: Rows) -> list[Relation]:
        kept = reduce(join, [m_1, m_2, m_3])
        stays = (inside * (kept - m_1), inside * (kept - m_3))  # above 0: no removed message is the extremum
        full = ops.combine(z, reduce(join, [new_1, m_2, m_4]))
        return [Relation(ops.combine(z, reduce(join, [kept, new_1, m_4])), full, "==", stays)]

    variables = ("z", "m_1", "new_1", "m_2", "m_3", "m_4")
    return Claim(variables, relations, ("z",), ops.width, ("z",), ops.heads)


_POSITIVE_CLAIM = Claim(
    ("logit_1", "logit_2"),
    lambda logit_1, logit_2: [Relation(logit_1 * 0, np.exp(logit_1) + np.exp(logit_2), "<")],
)


def as_condition(step: str, number: int | None, condition: str, answer: Answer) -> Condition:
    """The condition with the answer to its claim."""
    return Condition(step, number, condition, answer.status, answer.counterexample, answer.seconds)
