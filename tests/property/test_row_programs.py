"""Random programs of row-wise operators, on nodes and on edges: an engine against the oracle.

Functions that jump (roundings, comparisons) are given numbers that float32 holds exactly, however they are
computed: quarters, sums and products of a few of them. What is infinite or no number on the way is told apart
before the end, as a model does with a condition.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from livegnn import Engine, Events, Graph
from livegnn.graph import EdgeSchema, Schema
from livegnn.model import EdgeInput, Input, Model, Propagate, Step
from livegnn.network.operators import ROW_OPERATORS
from mirror import assert_exact

E = ("node", "to", "node")
MOST = 40
"""Channels of a value."""


@dataclass(frozen=True)
class Value:
    """exact: each number is a multiple of 2^-bits, and float32 holds it. size: none is larger."""

    name: str
    width: int
    exact: bool
    size: float
    bits: int = 0


@dataclass
class Program:
    """A model while it is drawn: steps, tensors, and the values so far, of nodes and of edges."""

    draw: st.DrawFn
    random: np.random.Generator
    steps: list[Step] = field(default_factory=list)
    tensors: dict[str, np.ndarray] = field(default_factory=dict)
    nodes: list[Value] = field(default_factory=list)
    edges: list[Value] = field(default_factory=list)
    ops: set[str] = field(default_factory=set)

    def write(
        self, op: str, *inputs: Value, tensors: dict[str, np.ndarray] | None = None, **attrs: object
    ) -> str:
        name, roles = f"v{len(self.steps)}", {}
        for role, tensor in (tensors or {}).items():
            roles[role] = f"{name}.{role}"
            self.tensors[roles[role]] = np.asarray(tensor, np.float32)
        self.steps.append(Step(op, tuple(value.name for value in inputs), name, roles, attrs))
        return name

    def choose(self, *of: object) -> object:
        return self.draw(st.sampled_from(of))

    def number(self, least: int, most: int) -> int:
        return self.draw(st.integers(least, most))

    def floats(self, *shape: int) -> np.ndarray:
        return self.random.standard_normal(shape) / np.sqrt(shape[-1])

    # -- values of a kind

    def tamed(self, x: Value, size: float = 64.0) -> Value:
        """x if it is not larger than this."""
        if x.size <= size:
            return x
        return Value(self.write("tanh", x), x.width, False, 1.0)

    def exact(self, x: Value) -> Value:
        """x, or if it is not exact a few numbers that stand for it: the same for every row."""
        if x.exact:
            return x
        row = np.round(4 * self.random.standard_normal(x.width)) / 4
        return Value(self.write("constant", x, tensors={"row": row}), x.width, True, 16.0, 2)

    def positive(self, x: Value) -> Value:
        """At least a half."""
        x = self.tamed(x)
        size = Value(self.write("abs", x), x.width, x.exact, x.size, x.bits)
        shift = {"shift": np.full(x.width, 0.5)}
        return Value(
            self.write("scale_shift", size, tensors=shift), x.width, x.exact, x.size + 0.5, max(x.bits, 1)
        )

    def guarded(self, name: str, x: Value, *, exact: bool, size: float, bits: int = 0) -> Value:
        """A value of which some numbers may not be finite: those are 1 then."""
        made = Value(name, x.width, exact, size, bits)
        finite = Value(self.write("isfinite", made), x.width, True, 1.0)
        one = Value(self.write("constant", made, tensors={"row": [1.0]}), 1, True, 1.0)
        return Value(self.write("where", finite, made, one), x.width, exact, max(size, 1.0), bits)

    def narrow(self, x: Value, width: int) -> Value:
        """x as wide as this: or one channel of it, where it is not so wide."""
        if x.width == width:
            return x
        stop = width if x.width > width else 1
        return Value(self.write("slice", x, start=0, stop=stop), stop, x.exact, x.size, x.bits)

    def divisor(self, width: int) -> int:
        return self.draw(st.sampled_from([n for n in range(1, width + 1) if width % n == 0]))


Builder = Callable[[Program, list[Value]], Value | None]
"""Writes a step on some values of one place, and what has to come before it; None where they do not fit."""


def smooth(op: str, size: Callable[[float], float] | float = 1.0, **attrs: object) -> Builder:
    def build(p: Program, of: list[Value]) -> Value:
        x = p.tamed(of[0])
        largest = size if isinstance(size, float) else size(x.size)
        return Value(p.write(op, x, **attrs), x.width, False, largest)

    return build


def within(op: str, limit: float, size: float) -> Builder:
    """Of numbers that are no larger than this."""
    return lambda p, of: Value(p.write(op, p.tamed(of[0], limit)), of[0].width, False, size)


def jumping(op: str, bits: Callable[[int], int], size: Callable[[float], float], **attrs: object) -> Builder:
    def build(p: Program, of: list[Value]) -> Value:
        x = p.exact(of[0])
        return Value(p.write(op, x, **attrs), x.width, True, size(x.size), bits(x.bits))

    return build


def steady(op: str, size: Callable[[float], float] = lambda s: s, **attrs: object) -> Builder:
    """One that does not jump, and gives exact numbers for exact ones."""

    def build(p: Program, of: list[Value]) -> Value:
        x = of[0]
        return Value(p.write(op, x, **attrs), x.width, x.exact, size(x.size), x.bits)

    return build


def of_positive(op: str, size: Callable[[float], float], **attrs: object) -> Builder:
    def build(p: Program, of: list[Value]) -> Value:
        x = p.positive(of[0])
        return Value(p.write(op, x, **attrs), x.width, False, size(x.size))

    return build


def of_any(op: str, size: float) -> Builder:
    """Of exact numbers, where it may be infinite or none."""

    def build(p: Program, of: list[Value]) -> Value:
        x = p.exact(of[0])
        return p.guarded(p.write(op, x), x, exact=False, size=size)

    return build


def pair(p: Program, of: list[Value]) -> tuple[Value, Value, int]:
    a, b = of[0], of[-1]
    if 1 not in (a.width, b.width):
        b = p.narrow(b, a.width)
    return a, b, max(a.width, b.width)


def arithmetic(op: str) -> Builder:
    def build(p: Program, of: list[Value]) -> Value:
        a, b, width = pair(p, of)
        exact, bits = a.exact and b.exact, max(a.bits, b.bits)
        size = max(a.size, b.size)
        if op in ("add", "subtract"):
            size = a.size + b.size
        if op == "multiply":
            if not exact:
                a, b = p.tamed(a, 8.0), p.tamed(b, 8.0)
            exact, bits, size = a.exact and b.exact, a.bits + b.bits, a.size * b.size
        return Value(p.write(op, a, b), width, exact, size, bits)

    return build


def comparison(op: str) -> Builder:
    def build(p: Program, of: list[Value]) -> Value:
        a, b, width = pair(p, [p.exact(of[0]), p.exact(of[-1])])
        return Value(p.write(op, a, b), width, True, 1.0)

    return build


def divide(p: Program, of: list[Value]) -> Value:
    a, b, width = pair(p, of)
    if a.exact and b.exact:  # perhaps by 0
        made = Value(p.write("divide", a, b), width, False, 0)
        return p.guarded(made.name, made, exact=False, size=a.size * 2.0**b.bits)
    a, b = p.tamed(a), p.positive(b)
    return Value(p.write("divide", a, b), width, False, 2 * a.size)


def whole_division(op: str) -> Builder:
    def build(p: Program, of: list[Value]) -> Value:
        a, b, width = pair(p, [p.exact(of[0]), p.exact(of[-1])])
        made = Value(p.write(op, a, b), width, True, 0)
        size = b.size if op in ("remainder", "fmod") else a.size * 2.0**b.bits + 1
        bits = max(a.bits, b.bits) if op in ("remainder", "fmod") else 0
        return p.guarded(made.name, made, exact=True, size=size, bits=bits)

    return build


def point(op: str, size: Callable[[float, float], float]) -> Builder:
    """Of two numbers, the first above 0, where the angle does not jump."""

    def build(p: Program, of: list[Value]) -> Value:
        a, b, width = pair(p, of)
        a, b = p.positive(a), p.tamed(b)
        return Value(p.write(op, a, b), width, False, size(a.size, b.size))

    return build


def power(p: Program, of: list[Value]) -> Value:
    a, b, width = pair(p, of)
    a, b = p.positive(a), p.tamed(b, 1.0)
    return Value(p.write("power", a, b), width, False, a.size + 2)


def where(p: Program, of: list[Value]) -> Value:
    a, b, width = pair(p, of)
    condition = p.exact(of[len(of) // 2])
    if width == 1:
        condition = p.narrow(condition, 1)
    elif condition.width != 1:
        condition = p.narrow(condition, width)
    if condition.width > 1:
        width = max(width, condition.width)
    return Value(
        p.write("where", condition, a, b),
        width,
        a.exact and b.exact,
        max(a.size, b.size),
        max(a.bits, b.bits),
    )


def clamp(p: Program, of: list[Value]) -> Value:
    x = of[0]
    bounds = p.choose({"least": -1.5, "most": None}, {"most": 2.0}, {"least": -0.25, "most": 3.0}, {})
    size = 3.0 if bounds.get("least") is not None and bounds.get("most") is not None else x.size + 2
    return Value(p.write("clamp", x, **bounds), x.width, x.exact, size, max(x.bits, 2))


def scale_shift(p: Program, of: list[Value]) -> Value:
    x = p.tamed(of[0])
    roles = p.choose(("scale",), ("shift",), ("scale", "shift"))
    tensors = {role: p.random.uniform(-1, 1, x.width) for role in roles}
    return Value(p.write("scale_shift", x, tensors=tensors), x.width, False, x.size + 1)


def by_head(op: str, **attrs: object) -> Builder:
    def build(p: Program, of: list[Value]) -> Value:
        x = p.tamed(of[0])
        heads = p.divisor(x.width)
        more = {} if heads == 1 and p.draw(st.booleans()) else {"heads": heads}
        tensors = {}
        if op == "layer_norm":
            tensors = {role: p.random.uniform(-1, 1, x.width) for role in p.choose((), ("weight", "bias"))}
        size = {"log_softmax": 2 * x.size + 4, "layer_norm": 8.0}.get(op, 1.0)
        return Value(p.write(op, x, tensors=tensors, **attrs, **more), x.width, False, size)

    return build


def scale_heads(p: Program, of: list[Value]) -> Value:
    a = p.tamed(of[0], 8.0)
    b = p.tamed(of[-1], 8.0)
    heads = max(n for n in range(1, b.width + 1) if a.width % n == 0)
    b = p.narrow(b, heads)
    exact = a.exact and b.exact
    return Value(p.write("scale_heads", a, b), a.width, exact, a.size * b.size, a.bits + b.bits)


def sum_by_head(op: str) -> Builder:
    def build(p: Program, of: list[Value]) -> Value:
        x = of[0]
        heads = p.divisor(x.width)
        width, terms = (heads, x.width // heads) if op == "sum_channels" else (x.width // heads, heads)
        return Value(p.write(op, x, heads=heads), width, x.exact, terms * x.size, x.bits)

    return build


def reduce(p: Program, of: list[Value]) -> Value:
    kind = p.choose("sum", "max", "min", "product")
    x = p.tamed(of[0], 1.0) if kind == "product" else of[0]
    before = p.divisor(x.width)
    size = p.divisor(x.width // before)
    after = x.width // before // size
    largest = {"sum": size * x.size, "product": 1.0}.get(kind, x.size)
    exact = x.exact and (kind != "product" or x.bits == 0)
    name = p.write("reduce", x, kind=kind, before=before, size=size, after=after)
    return Value(name, before * after, exact, largest, x.bits)


def concat(p: Program, of: list[Value]) -> Value | None:
    parts = of if len(of) > 1 else [*of, *of]
    width = sum(x.width for x in parts)
    if width > MOST:
        return None
    exact = all(x.exact for x in parts)
    return Value(
        p.write("concat", *parts), width, exact, max(x.size for x in parts), max(x.bits for x in parts)
    )


def slice_(p: Program, of: list[Value]) -> Value:
    x = of[0]
    start = p.number(0, x.width - 1)
    stop = p.number(start + 1, x.width)
    return Value(p.write("slice", x, start=start, stop=stop), stop - start, x.exact, x.size, x.bits)


def repeat(p: Program, of: list[Value]) -> Value | None:
    x = of[0]
    times, inner = p.number(1, 4), p.divisor(x.width)
    if times * x.width > MOST:
        return None
    return Value(p.write("repeat", x, times=times, inner=inner), times * x.width, x.exact, x.size, x.bits)


def take(p: Program, of: list[Value]) -> Value:
    x = of[0]
    channels = p.random.integers(0, x.width, p.number(1, MOST))
    name = p.write("take", x, tensors={"channels": channels})
    return Value(name, len(channels), x.exact, x.size, x.bits)


def constant(p: Program, of: list[Value]) -> Value:
    row = p.random.integers(-8, 9, p.number(1, MOST)) / 4
    return Value(p.write("constant", of[0], tensors={"row": row}), len(row), True, 2.0, 2)


def lookup(p: Program, of: list[Value]) -> Value | None:
    x = p.exact(of[0])
    width = p.number(1, 4)
    if x.width * width > MOST:
        return None
    table = p.random.integers(-8, 9, (p.number(1, 6), width)) / 4
    name = p.write("lookup", x, tensors={"table": table})
    made = Value(name, x.width * width, True, 2.0, 2)
    return p.guarded(name, made, exact=True, size=2.0, bits=2)


def standardize(p: Program, of: list[Value]) -> Value:
    x = p.tamed(of[0], 16.0)
    scale = np.concatenate([p.random.uniform(0.5, 2, (1, x.width)), np.zeros((2, x.width))])
    tensors = {"mean": p.random.uniform(-1, 1, (3, x.width)), "scale": scale}
    if p.draw(st.booleans()):
        x = p.positive(x)
        name = p.write("standardize", x, tensors=tensors, function=p.choose("log", "log1p"))
    else:
        name = p.write("standardize", x, tensors=tensors)
    return Value(name, x.width, False, 2 * x.size + 6)


def fill_missing(p: Program, of: list[Value]) -> Value:
    x = p.exact(of[0])
    values = np.round(4 * p.random.standard_normal(x.width)) / 4
    attrs = p.choose({}, {"missing": 0.25})
    name = p.write("fill_missing", x, tensors={"values": values}, **attrs)
    return Value(name, x.width, True, max(x.size, 16.0), max(x.bits, 2))


def by_channel(op: str, role: str, outer: tuple[int, ...], size: float, **attrs: object) -> Builder:
    """Of exact numbers, with a few ascending numbers for each channel."""

    def build(p: Program, of: list[Value]) -> Value:
        x = p.exact(of[0])
        numbers = np.zeros((*outer, x.width, p.number(2, 6)))
        first = numbers[0] if outer else numbers
        first[:] = np.sort(np.round(4 * p.random.standard_normal(first.shape)) / 4, axis=1)
        name = p.write(op, x, tensors={role: numbers}, **attrs)
        return Value(name, x.width, op != "quantile", size)

    return build


def one_hot(p: Program, of: list[Value]) -> Value:
    x = p.exact(of[0])
    channels = p.random.integers(0, x.width, p.number(1, MOST))
    categories = np.round(4 * p.random.standard_normal(len(channels))) / 4
    name = p.write("one_hot", x, tensors={"channels": channels, "categories": categories})
    return Value(name, len(channels), True, 1.0)


def cyclic(p: Program, of: list[Value]) -> Value | None:
    x = p.tamed(of[0], 16.0)
    if 2 * x.width > MOST:
        return None
    return Value(p.write("cyclic", x, period=p.choose(3.5, 24.0)), 2 * x.width, False, 1.0)


def linear(p: Program, of: list[Value]) -> Value | None:
    x = p.tamed(of[0], 16.0)
    kind = p.choose("plain", "shared", "own")
    heads = 1 if kind == "plain" else p.divisor(x.width)
    inner, outputs = x.width // heads, p.number(1, MOST)
    if heads * outputs > MOST:
        outputs = 1
    shape = (heads, outputs, inner) if kind == "own" else (outputs, inner)
    tensors = {"weight": p.floats(*shape)}
    if p.draw(st.booleans()):
        tensors["bias"] = p.floats(heads * outputs if kind == "own" else outputs)
    attrs = {} if kind == "plain" else {"heads": heads}
    return Value(p.write("linear", x, tensors=tensors, **attrs), heads * outputs, False, 4 * x.size + 3)


def matmul(p: Program, of: list[Value]) -> Value | None:
    a, b = p.tamed(of[0], 8.0), p.tamed(of[-1], 8.0)
    fits = [
        (batch, rows, inner, columns)
        for batch in range(1, 6)
        for rows in range(1, 9)
        for inner in range(1, 9)
        for columns in range(1, 9)
        if a.width in (rows * inner, batch * rows * inner)
        and b.width in (inner * columns, batch * inner * columns)
        and batch * rows * columns <= MOST
    ]
    if not fits:
        return None
    batch, rows, inner, columns = p.draw(st.sampled_from(fits))
    name = p.write("matmul", a, b, batch=batch, rows=rows, inner=inner, columns=columns)
    return Value(name, batch * rows * columns, False, inner * a.size * b.size)


def same(s: float) -> float:
    return s


BUILDERS: dict[str, Builder] = {
    "scale": smooth("scale", same, value=0.7),
    "relu": steady("relu"),
    "leaky_relu": smooth("leaky_relu", same, slope=0.1),
    "sigmoid": smooth("sigmoid"),
    "exp": lambda p, of: Value(p.write("exp", p.tamed(of[0], 2.0)), of[0].width, False, 8.0),
    "elu": smooth("elu", same, alpha=0.5),
    "gelu": smooth("gelu", same, approximate="tanh"),
    "tanh": smooth("tanh"),
    "neg": steady("neg"),
    "abs": steady("abs"),
    "sign": jumping("sign", lambda b: 0, lambda s: 1.0),
    "expm1": lambda p, of: Value(p.write("expm1", p.tamed(of[0], 2.0)), of[0].width, False, 8.0),
    "log": of_any("log", 90.0),
    "log1p": of_positive("log1p", same),
    "sqrt": of_any("sqrt", 1e4),
    "rsqrt": of_any("rsqrt", 1e4),
    "reciprocal": of_any("reciprocal", 1e6),
    "sin": smooth("sin"),
    "cos": smooth("cos"),
    "tan": within("tan", 1.0, 1.6),
    "asin": of_any("asin", 1.6),
    "acos": of_any("acos", 3.2),
    "atan": smooth("atan", 1.6),
    "sinh": within("sinh", 2.0, 4.0),
    "cosh": within("cosh", 2.0, 4.0),
    "asinh": smooth("asinh", same),
    "acosh": of_any("acosh", 90.0),
    "atanh": of_any("atanh", 20.0),
    "exp2": within("exp2", 2.0, 4.0),
    "log2": of_any("log2", 150.0),
    "log10": of_any("log10", 45.0),
    "erf": smooth("erf"),
    "erfc": smooth("erfc", 2.0),
    "atan2": point("atan2", lambda a, b: 3.2),
    "hypot": point("hypot", lambda a, b: a + b),
    "fmod": whole_division("fmod"),
    "floor": jumping("floor", lambda b: 0, lambda s: s + 1),
    "ceil": jumping("ceil", lambda b: 0, lambda s: s + 1),
    "round": jumping("round", lambda b: 0, lambda s: s + 1),
    "trunc": jumping("trunc", lambda b: 0, same),
    "silu": smooth("silu", same),
    "softplus": smooth("softplus", lambda s: s + 1, beta=1.5, threshold=20.0),
    "log_sigmoid": smooth("log_sigmoid", lambda s: s + 1),
    "mish": smooth("mish", same),
    "hardsigmoid": smooth("hardsigmoid"),
    "hardswish": smooth("hardswish", same),
    "not": jumping("not", lambda b: 0, lambda s: 1.0),
    "isfinite": of_any("reciprocal", 1e6),  # with a guard
    "isnan": jumping("isnan", lambda b: 0, lambda s: 1.0),
    "isinf": jumping("isinf", lambda b: 0, lambda s: 1.0),
    "clamp": clamp,
    "power_of": of_positive("power_of", lambda s: s + 2, exponent=0.7),
    **{op: arithmetic(op) for op in ("add", "multiply", "maximum", "minimum", "subtract")},
    "divide": divide,
    "power": power,
    "remainder": whole_division("remainder"),
    "floor_divide": whole_division("floor_divide"),
    **{
        op: comparison(op)
        for op in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "and", "or")
    },
    "where": where,
    "scale_shift": scale_shift,
    "layer_norm": by_head("layer_norm", eps=0.1),
    "l2_normalize": by_head("l2_normalize", eps=0.5),
    "softmax": by_head("softmax"),
    "log_softmax": by_head("log_softmax"),
    "scale_heads": scale_heads,
    "sum_channels": sum_by_head("sum_channels"),
    "sum_heads": sum_by_head("sum_heads"),
    "reduce": reduce,
    "concat": concat,
    "slice": slice_,
    "repeat": repeat,
    "take": take,
    "constant": constant,
    "lookup": lookup,
    "standardize": standardize,
    "fill_missing": fill_missing,
    "quantile": by_channel("quantile", "quantiles", (3,), 1.0),
    "bucketize": by_channel("bucketize", "boundaries", (), 6.0),
    "ordinal": by_channel("ordinal", "categories", (), 6.0, unknown=-1.0),
    "one_hot": one_hot,
    "cyclic": cyclic,
    "linear": linear,
    "matmul": matmul,
}


def test_every_operator_of_the_table_may_be_drawn() -> None:
    assert set(BUILDERS) == set(ROW_OPERATORS)


def apply(p: Program, values: list[Value], op: str) -> None:
    """Writes a step of this kind on some of these values, and puts what it makes among them."""
    of = [p.draw(st.sampled_from(values)) for _ in range(p.number(1, 3))]
    before = len(p.steps)
    made = BUILDERS[op](p, of)
    if made is None:
        del p.steps[before:]
        return
    if made.size * 2.0**made.bits >= 2**20:  # float32 may have to round it
        made = Value(made.name, made.width, False, made.size)
    values.append(p.tamed(made, 1e3))
    p.ops.add(op)


def propagate(p: Program) -> None:
    """Brings a value of edges, or of their sources, to the nodes."""
    on_edges = p.draw(st.booleans())
    x = p.draw(st.sampled_from(p.edges[-4:] if on_edges else p.nodes[-4:]))
    kind = p.choose("sum", "mean", "max", "min")
    operators = Propagate(
        E,
        (),
        "count" if kind == "mean" else "none",
        "divide" if kind == "mean" else "identity",
        "sum" if kind in ("sum", "mean") else kind,
    )
    name = p.write("propagate", x, **operators.to_attrs())
    exact = x.exact and kind != "mean" and 64 * x.size * 2.0**x.bits < 2**20
    p.nodes.append(p.tamed(Value(name, x.width, exact, 64 * x.size, x.bits), 1e3))


@st.composite
def models(draw: st.DrawFn, width: int, features: int) -> Model:
    p = Program(draw, np.random.default_rng(draw(st.integers(0, 2**32))))
    ops = st.sampled_from(sorted(ROW_OPERATORS))
    p.nodes.append(Value("x", width, True, 4.0, 2))
    p.edges += [Value("e", features, True, 4.0, 2), Value("w", 1, True, 4.0, 2)]
    for _ in range(draw(st.integers(1, 2))):
        for _ in range(draw(st.integers(0, 4))):
            apply(p, p.nodes, draw(ops))
        for end in ("source", "target"):
            x = draw(st.sampled_from(p.nodes))
            p.edges.append(Value(p.write(end, x, edge_type=E), x.width, x.exact, x.size, x.bits))
        for _ in range(draw(st.integers(0, 6))):
            apply(p, p.edges, draw(ops))
        propagate(p)
    for _ in range(draw(st.integers(0, 4))):
        apply(p, p.nodes, draw(ops))
    out = p.write("concat", *p.nodes[-4:], p.nodes[0])
    return Model(
        {"x": Input("node", width)},
        tuple(p.steps),
        {name: p.tensors[name] for step in p.steps for name in step.tensors.values()},
        out,
        ("x", out),
        {"e": EdgeInput(E, features), "w": EdgeInput(E, 1, "weight")},
    )


def quarters(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return (rng.integers(-16, 17, shape) / 4).astype(np.float32)


def random_events(rng: np.random.Generator, graph: Graph, width: int, features: int) -> Events:
    events, ids = Events(), graph.ids()
    for _ in range(rng.integers(1, 4)):
        kind, ends = rng.integers(0, 6), rng.choice(ids, 2)
        if kind < 2:
            weight = np.abs(quarters(rng, 1)) + 0.25
            events.add_edges(ends[:1], ends[1:], weight=weight, edge_attr=quarters(rng, 1, features))
        elif kind < 4:
            events.set_features(ends[:1], quarters(rng, 1, width))
        elif kind == 4:
            source, target = graph.snapshot().edge_index[E]
            if len(source):
                i = rng.integers(len(source))
                events.remove_edges(ids[source[i : i + 1]], ids[target[i : i + 1]])
        else:
            new = int(ids.max()) + 1 + len(events)
            events.add_nodes([new], quarters(rng, 1, width))
            events.add_edges(ends[:1], [new], weight=[0.5], edge_attr=quarters(rng, 1, features))
    return events


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_an_engine_says_what_the_oracle_says(data: st.DataObject) -> None:
    width, features = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 6))
    model = data.draw(models(width, features))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    nodes, edges = data.draw(st.integers(2, 40)), data.draw(st.integers(0, 120))
    graph = Graph(Schema({"node": width}, {E: EdgeSchema(weighted=True, edge_dim=features)}))
    events = Events().add_nodes(np.arange(nodes), quarters(rng, nodes, width))
    ends = np.unique(rng.integers(0, nodes, (2, edges)), axis=1)
    count = ends.shape[1]
    events.add_edges(
        *ends, weight=np.abs(quarters(rng, count)) + 0.25, edge_attr=quarters(rng, count, features)
    )
    graph.apply(events)
    keep = data.draw(st.sampled_from(["all", "aggregates"]))
    engine = Engine(graph, model, threads=1, keep=keep)
    assert_exact(engine)
    for _ in range(data.draw(st.integers(1, 4))):
        engine.apply(random_events(rng, graph, width, features))
        assert_exact(engine)
    whole = engine.predict(graph.ids())
    for i in (0, len(whole) - 1):  # a row depends on no other of its block
        assert engine.predict(graph.ids()[i : i + 1]).tobytes() == whole[i : i + 1].tobytes()
    assert Engine(graph, model, threads=1, keep=keep).predict(graph.ids()).shape == whole.shape
