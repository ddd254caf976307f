"""Claims about operators: that two expressions are equal, or in order, for all values of their variables.

A claim is decided in two ways. Trial: its expressions are computed for a few hundred draws, small whole
numbers first, so that a counterexample is easy to read. Proof: the same expressions are computed once with
`Symbol` in place of numbers, and Z3 decides whether they can differ over the real numbers. A counterexample
of Z3 is checked by computing it again with numbers. Functions that cannot be computed with symbols (because
they compare, round or call functions outside NumPy) are only tried.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import reduce
from typing import Any, Literal, TypeAlias

import numpy as np

from livegnn.types import Array, DoubleArray

Status: TypeAlias = Literal["proved", "tested", "not needed", "unknown", "refuted"]
"""proved: by Z3, over the real numbers. tested: no draw contradicts it. unknown: could not be checked."""

Rows: TypeAlias = DoubleArray
"""[rows, channels]: float64, a row for each draw; or one row of objects, each a `Symbol`."""

TOLERANCE = 1e-4
"""The allowed difference of two numbers, relative to the largest of both and 1: functions may use float32."""

DRAWS = 200
EFFORT = 4_000_000
"""The solver's limit, in its own steps (about a second), so that the result is the same on every machine."""
_SYMBOLIC_CHANNELS = 2  # enough to detect mixing of channels; functions are tried with their own width too


@dataclass(frozen=True)
class Relation:
    """``left order right`` holds, in every row and channel in which all of `given` are above 0."""

    left: Rows
    right: Rows
    order: Literal["==", "<=", "<"] = "=="
    given: Sequence[Rows] = ()
    what: str = ""


@dataclass(frozen=True)
class Claim:
    """The claim that relations hold between expressions of some variables.

    variables: their names; `relations` is called with rows for each of them. positive: the variables above 0.
    width: channels of each variable. contexts: the variables with one number for each of `heads`, repeated
    for the channels of a head. symbolic: whether a proof may be tried.
    """

    variables: tuple[str, ...]
    relations: Callable[..., Sequence[Relation]]
    positive: tuple[str, ...] = ()
    width: int = 1
    contexts: tuple[str, ...] = ()
    heads: int = 1
    symbolic: bool = True


@dataclass(frozen=True)
class Answer:
    """The result of deciding a claim. counterexample: if refuted, values and the results that they give."""

    status: Status
    counterexample: str = ""
    seconds: float = 0.0


def decide(claim: Claim, seed: int = 0) -> Answer:
    """Proves, tests or refutes a claim."""
    start = time.perf_counter()
    proof = _prove(claim) if claim.symbolic else None
    tried = proof if proof is not None and proof.status == "refuted" else _try(claim, _draw(claim, seed))
    proved = tried.status == "tested" and proof is not None and proof.status == "proved"
    status: Status = "proved" if proved else tried.status
    return Answer(status, tried.counterexample, time.perf_counter() - start)


def worst(answers: Sequence[Answer]) -> Answer:
    """The least certain of some answers, with the sum of all times."""
    order: tuple[Status, ...] = ("not needed", "proved", "tested", "unknown", "refuted")
    least = max(answers, key=lambda answer: order.index(answer.status))
    return Answer(least.status, least.counterexample, sum(answer.seconds for answer in answers))


def has_solver() -> bool:
    """Whether Z3 is installed."""
    try:
        import z3  # noqa: F401
    except ModuleNotFoundError:
        return False
    return True


def smaller(a: Rows, b: Rows) -> Rows:
    """The elementwise minimum, of numbers or of symbols."""
    return _select(a, b, np.minimum)


def larger(a: Rows, b: Rows) -> Rows:
    """The elementwise maximum, of numbers or of symbols."""
    return _select(a, b, np.maximum)


def _select(a: Rows, b: Rows, ufunc: np.ufunc) -> Rows:
    if a.dtype != object and b.dtype != object:
        numbers: Rows = ufunc(a, b)
        return numbers
    chosen = np.empty(a.shape, dtype=object)
    for place in np.ndindex(a.shape):
        chosen[place] = _Session.of(a[place], b[place]).select(a[place], b[place], ufunc is np.minimum)
    return chosen


def format_values(values: Mapping[str, DoubleArray]) -> str:
    """Formats variables and their values, one row of each."""
    return ", ".join(f"{name} = {format_row(row)}" for name, row in values.items())


def format_row(row: Array) -> str:
    """Formats numbers for messages; a single number has no brackets."""
    numbers = [f"{float(value) + 0.0:.6g}" for value in np.asarray(row).ravel()]
    return numbers[0] if len(numbers) == 1 else f"({', '.join(numbers)})"


def _draw(claim: Claim, seed: int) -> dict[str, DoubleArray]:
    """Values of every variable, [draws, channels]: whole numbers from small to large, then real numbers."""
    random = np.random.default_rng(seed)
    half, shape = DRAWS // 2, (len(claim.variables), DRAWS // 2, claim.width)
    whole = random.integers(-4, 5, shape).astype(np.float64)
    reals = random.standard_normal(shape) * 3
    whole = whole[:, np.argsort(np.abs(whole).sum(axis=(0, 2)), kind="stable")]
    drawn = np.concatenate([whole, reals], axis=1)
    assert drawn.shape[1] == 2 * half
    values = dict(zip(claim.variables, drawn, strict=True))
    for name in claim.positive:
        values[name] = np.where(values[name] == 0, 1.0, np.abs(values[name]))
    for name in claim.contexts:
        values[name] = np.repeat(values[name][:, : claim.heads], claim.width // claim.heads, axis=1)
    return values


def _try(claim: Claim, values: Mapping[str, DoubleArray]) -> Answer:
    try:
        with np.errstate(all="ignore"):
            relations = claim.relations(**{name: rows.copy() for name, rows in values.items()})
            failures = [failure for relation in relations if (failure := _first_failure(relation))]
    except Exception as error:  # an exception of a user's function refutes the claim
        return Answer("refuted", f"{type(error).__name__}: {error}")
    if not failures:
        return Answer("tested")
    row, text = min(failures)
    return Answer("refuted", f"{format_values({name: rows[row] for name, rows in values.items()})}: {text}")


def _first_failure(relation: Relation) -> tuple[int, str] | None:
    left, right = (np.asarray(side, dtype=np.float64) for side in (relation.left, relation.right))
    left, right = np.broadcast_arrays(left, right)
    slack = TOLERANCE * np.maximum(1.0, np.maximum(np.abs(left), np.abs(right)))
    holds = np.abs(left - right) <= slack if relation.order == "==" else left <= right + slack
    if relation.order == "<":
        holds = left < right
    holds = holds & np.isfinite(left) & np.isfinite(right)
    asked = np.ones(len(left), dtype=bool)
    for rows in relation.given:
        asked &= (np.asarray(rows, dtype=np.float64) > 0).all(axis=1)
    failed = np.flatnonzero(asked & ~holds.all(axis=1))
    if not len(failed):
        return None
    row = int(failed[0])
    sides = f"{format_row(left[row])} {relation.order} {format_row(right[row])}"
    return row, f"{relation.what + ' needs ' if relation.what else ''}{sides}, which is false"


def _prove(claim: Claim) -> Answer | None:
    """The solver's answer; None if there is no solver, the claim cannot be computed with symbols, or the
    solver does not decide it."""
    if not has_solver():
        return None
    session = _Session()
    width = min(claim.width, _SYMBOLIC_CHANNELS)
    rows = {name: session.rows(name, width) for name in claim.variables}
    for name in claim.contexts if claim.heads == 1 else ():
        rows[name] = np.repeat(rows[name][:, :1], width, axis=1)
    try:
        relations = claim.relations(**rows)
        for relation in relations:
            session.require_one_to_fail(relation)
    except Exception:  # a function that compares, rounds or leaves NumPy cannot be computed with symbols
        return None
    session.close([rows[name] for name in claim.positive])
    answer = session.solver.check()
    if answer == session.z3.unsat:
        return Answer("proved")
    if answer == session.z3.unknown:
        return None
    model = session.solver.model()
    values = {name: session.read(model, symbols) for name, symbols in rows.items()}
    tried = _try(claim, values)
    return tried if tried.status == "refuted" else None


@dataclass
class _Session:
    """One query to the solver: its variables, and the constraints on roots and exponentials.

    Each query has a Z3 context of its own, so that its answer depends on nothing else and threads share no
    state.
    """

    z3: Any = None
    context: Any = None
    solver: Any = None
    failing: list[Any] = field(default_factory=list)
    roots: dict[str, Any] = field(default_factory=dict)
    exp: Any = None

    def __post_init__(self) -> None:
        import z3

        self.z3 = z3
        self.context = z3.Context()
        self.solver = z3.Solver(ctx=self.context)
        self.solver.set("rlimit", EFFORT)
        real = z3.RealSort(self.context)
        self.exp = z3.Function("exp", real, real)

    @staticmethod
    def of(*values: object) -> "_Session":
        return next(value.session for value in values if isinstance(value, Symbol))

    def rows(self, name: str, width: int) -> Rows:
        symbols = np.empty((1, width), dtype=object)
        for channel in range(width):
            symbols[0, channel] = Symbol(self.z3.Real(f"{name}_{channel}", self.context), self)
        return symbols

    def term(self, value: object) -> Any:
        """The term of a symbol, or of a number as an exact fraction."""
        if isinstance(value, Symbol):
            return value.term
        if isinstance(value, bool | int | float | np.number | np.bool_):
            return self.z3.RealVal(str(Fraction(float(value))), self.context)
        raise TypeError(f"{type(value).__name__} is not a number")

    def select(self, a: object, b: object, smallest: bool) -> "Symbol":
        left, right = self.term(a), self.term(b)
        return Symbol(self.z3.If(left <= right if smallest else left >= right, left, right), self)

    def root(self, term: Any) -> Any:
        """The root s >= 0 with s * s == term; equal terms have the same root."""
        key = self.z3.simplify(term).sexpr()
        if key not in self.roots:
            root = self.z3.Real(f"root_{len(self.roots)}", self.context)
            self.solver.add(root >= 0, root * root == term)
            self.roots[key] = root
        return self.roots[key]

    def exponential(self, term: Any) -> Any:
        """An uninterpreted function, constrained only to be above 0."""
        value = self.exp(term)
        self.solver.add(value > 0)
        return value

    def require_one_to_fail(self, relation: Relation) -> None:
        left, right = np.broadcast_arrays(np.asarray(relation.left), np.asarray(relation.right))
        given = [self.term(value) > 0 for rows in relation.given for value in np.asarray(rows).ravel()]
        for a, b in zip(left.ravel(), right.ravel(), strict=True):
            x, y = self.term(a), self.term(b)
            holds = x == y if relation.order == "==" else x <= y if relation.order == "<=" else x < y
            self.failing.append(self.z3.And([*given, self.z3.Not(holds)]))

    def close(self, positive: Sequence[Rows]) -> None:
        self.solver.add(*(self.term(value) > 0 for rows in positive for value in rows.ravel()))
        self.solver.add(self.z3.Or(self.failing))

    def read(self, model: Any, symbols: Rows) -> DoubleArray:
        def number(symbol: Symbol) -> float:
            value = model.eval(symbol.term, model_completion=True)
            if self.z3.is_algebraic_value(value):
                value = value.approx(20)
            return float(Fraction(value.numerator_as_long(), value.denominator_as_long()))

        return np.array([[number(symbol) for symbol in row] for row in symbols], dtype=np.float64)


def _combine(combine: Callable[[Any, Any], Any]) -> "Callable[[Symbol, object], Symbol]":
    """An operator of symbols, which combines their terms."""
    return lambda one, other: Symbol(combine(one.term, one.session.term(other)), one.session)


class Symbol:
    """An unknown real number. NumPy computes with arrays of symbols as with arrays of numbers.

    An operation that needs the number's value (a comparison, a conversion) raises `TypeError`.
    """

    __slots__ = ("session", "term")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, term: Any, session: _Session) -> None:
        self.term = term
        self.session = session

    __add__ = __radd__ = _combine(lambda a, b: a + b)
    __mul__ = __rmul__ = _combine(lambda a, b: a * b)
    __sub__ = _combine(lambda a, b: a - b)
    __rsub__ = _combine(lambda a, b: b - a)
    __truediv__ = _combine(lambda a, b: a / b)
    __rtruediv__ = _combine(lambda a, b: b / a)

    def __neg__(self) -> "Symbol":
        return Symbol(-self.term, self.session)

    def __pos__(self) -> "Symbol":
        return self

    def __abs__(self) -> "Symbol":
        return self.session.select(self, -self, smallest=False)

    def __pow__(self, exponent: object) -> "Symbol":
        if not isinstance(exponent, int | float | np.number):
            raise TypeError("the exponent must be a number")
        doubled = 2 * float(exponent)
        if doubled != int(doubled) or abs(doubled) > 8:
            raise TypeError("the exponent must be a small multiple of one half")
        factor = self if doubled % 2 == 0 else self.sqrt()
        count = int(abs(doubled)) // (2 if doubled % 2 == 0 else 1)
        power = reduce(lambda a, b: a * b, [factor] * count, Symbol(self.session.term(1), self.session))
        return power if doubled >= 0 else 1 / power

    def sqrt(self) -> "Symbol":
        return Symbol(self.session.root(self.term), self.session)

    def exp(self) -> "Symbol":
        return Symbol(self.session.exponential(self.term), self.session)

    def square(self) -> "Symbol":
        return self * self

    def reciprocal(self) -> "Symbol":
        return 1 / self

    def _unknown(self, *others: object) -> bool:
        raise TypeError("a symbol has no known value")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _unknown
    __bool__ = __float__ = __int__ = __index__ = _unknown
