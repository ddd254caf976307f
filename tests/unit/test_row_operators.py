"""Every row-wise operator, held against PyTorch: the oracle in float64, the native core in float32, and what
it does where a row is not finite, on numbers of every kind."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from livegnn import Engine, Events, Graph, InputError, ModelError
from livegnn.graph import Schema
from livegnn.model import Input, Model, Propagate, Step
from livegnn.network.operators import OPERATORS, ROW_OPERATORS
from livegnn.oracle import row_reference
from livegnn.types import MISSING

SPECIAL = [
    *(0.0, -0.0, math.inf, -math.inf, math.nan),
    *(
        s * v
        for s in (1, -1)
        for v in (1e-45, 1e-40, 1.2e-38, 1e-30, 1e-7, 0.3, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0)
    ),
    *(
        s * v
        for s in (1, -1)
        for v in (7.0, 19.5, 21.0, 88.5, 90.0, 1000.25, 2.0**24, 1e10, 1e20, 1e30, 3e38)
    ),
]
TRANSFORMS = {"standardize", "fill_missing", "quantile", "bucketize", "ordinal", "one_hot", "cyclic"}
"""Operators that tell a missing number from others."""

EXACT = 0
FEW = 8
"""Units in the last place."""


@dataclass(frozen=True)
class Case:
    """What PyTorch does where a step does this. widths: of the inputs; none: all numbers with all numbers.

    ulps: how many units in the last place a result may be off; slack: and how much more, as a part of the
    largest magnitude that is finite among a row's inputs and its results.
    """

    op: str
    torch: Callable[..., torch.Tensor]
    attrs: Mapping[str, object] = field(default_factory=dict)
    widths: tuple[int, ...] = ()
    tensors: Mapping[str, np.ndarray] = field(default_factory=dict)
    ulps: int = EXACT
    slack: float = 0.0
    tame: bool = False
    signs: bool = True

    @property
    def id(self) -> str:
        numbers = "-".join(f"{name}={value}" for name, value in self.attrs.items())
        shapes = "-".join("x".join(map(str, t.shape)) for t in self.tensors.values())
        return " ".join(part for part in (self.op, numbers, str(self.widths or ""), shapes) if part)


def one(op: str, function: Callable[..., torch.Tensor], ulps: int = EXACT, **attrs: object) -> Case:
    return Case(op, function, attrs, ulps=ulps)


def two(
    op: str, function: Callable[..., torch.Tensor], ulps: int = EXACT, *, signs: bool = True
) -> list[Case]:
    size = len(SPECIAL)
    return [
        Case(op, function, widths=widths, ulps=ulps, signs=signs) for widths in ((), (size, 1), (1, size))
    ]


def as_number(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    return lambda *x: function(*x).to(x[-1].dtype)


def by_head(function: Callable[[torch.Tensor], torch.Tensor], heads: int) -> Callable[..., torch.Tensor]:
    return lambda x: function(x.reshape(len(x), heads, -1)).reshape(x.shape)


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def reduction(kind: str) -> Callable[[torch.Tensor], torch.Tensor]:
    functions = {"sum": torch.sum, "max": torch.amax, "min": torch.amin, "product": torch.prod}
    return lambda x: functions[kind](x.reshape(len(x), 2, 5, 3), dim=2).reshape(len(x), -1)


def looked_up(x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    number = x.trunc()
    place = torch.where(number < 0, number + len(table), number)
    known = (place >= 0) & (place < len(table))
    rows = F.embedding(torch.where(known, place, 0).long(), table)
    return torch.where(known[:, :, None], rows, math.nan).reshape(len(x), -1)


def own_linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    rows = torch.einsum("nhi,hoi->nho", x.reshape(len(x), len(weight), -1), weight).reshape(len(x), -1)
    return rows if bias is None else rows + bias


def shared_linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    return F.linear(x.reshape(len(x), -1, weight.shape[1]), weight, bias).reshape(len(x), -1)


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a.reshape(len(a), -1, 2, 4) @ b.reshape(len(b), -1, 4, 3)).reshape(len(a), -1)


def in_float64(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A transform of raw columns: float64 inside, rounded once."""
    return lambda x, *tensors: function(x.double(), *(t.double() for t in tensors)).to(x.dtype)


def unless_missing(x: torch.Tensor, made: torch.Tensor) -> torch.Tensor:
    return torch.where(x == MISSING, x, made)


def ranked(x: torch.Tensor, quantiles: torch.Tensor) -> torch.Tensor:
    """By counting: the quantiles below x, half of those that it equals, and the way to the next one."""
    points = quantiles.sum(0)
    below, least = (points < x[:, :, None]).sum(2), (points <= x[:, :, None]).sum(2)
    last = points.shape[1] - 1
    before = torch.where(points <= x[:, :, None], points, -math.inf).amax(2)
    after = torch.where(points > x[:, :, None], points, math.inf).amin(2)
    between = least - 1 + (x - before) / (after - before)
    rank = torch.where(below < least, (below + least - 1) / 2, between) / last
    rank = torch.where(x <= points[:, 0], 0, torch.where(x >= points[:, -1], 1, rank))
    return torch.where(x.isnan(), x, unless_missing(x, rank))


def placed(x: torch.Tensor, categories: torch.Tensor) -> torch.Tensor:
    equal = x[:, :, None] == categories
    return torch.where(equal.any(2), equal.int().argmax(2).double(), -2.0)


def turned(x: torch.Tensor) -> torch.Tensor:
    angle = torch.fmod(x, 7.0) / 7.0 * 2 * math.pi
    both = torch.where(x[:, :, None] == MISSING, 0.0, torch.stack([angle.sin(), angle.cos()], dim=2))
    return both.reshape(len(x), -1)


def clamped_exp(x: torch.Tensor) -> torch.Tensor:
    """As far as the core goes in float32, and as the oracle in float64."""
    return torch.exp(torch.clamp(x, -87, 88) if x.dtype == torch.float32 else torch.clamp(x, max=700))


def clamp(least: float | None, most: float | None) -> Case:
    return one("clamp", lambda x: torch.clamp(x, least, most), least=least, most=most)


QUANTILES = np.stack(
    [
        np.array([[-2, -0.5, 0.3, 0.5, 0.5, 0.5, 1e10], [0, 0, 0, 1, 2, 2, 2]], np.float32),
        np.array([[0, 1e-9, 0, 0, 0, 0, 0], [0, 0, 0, 1e-8, 0, 0, 0]], np.float32),
        np.zeros((2, 7), np.float32),
    ]
)
LINEAR = {"ulps": FEW, "slack": 1e-6, "tame": True}
CASES = [
    one("scale", lambda x: x * -1.5, value=-1.5),
    one("relu", torch.relu),
    one("leaky_relu", lambda x: F.leaky_relu(x, 0.2), slope=0.2),
    one("sigmoid", torch.sigmoid, FEW),
    one("exp", clamped_exp, FEW),
    one("elu", lambda x: F.elu(x, 0.7), FEW, alpha=0.7),
    Case("gelu", F.gelu, {"approximate": "none"}, ulps=FEW, slack=1e-6),
    Case("gelu", lambda x: F.gelu(x, approximate="tanh"), {"approximate": "tanh"}, ulps=FEW, slack=1e-6),
    one("tanh", torch.tanh, FEW),
    one("neg", torch.neg),
    one("abs", torch.abs),
    one("sign", torch.sign),
    one("expm1", torch.expm1, FEW),
    one("log", torch.log, FEW),
    one("log1p", torch.log1p, FEW),
    one("sqrt", torch.sqrt, 1),
    one("rsqrt", torch.rsqrt, 2),
    one("reciprocal", torch.reciprocal),
    one("sin", torch.sin, FEW),
    one("cos", torch.cos, FEW),
    one("tan", torch.tan, FEW),
    one("asin", torch.asin, FEW),
    one("acos", torch.acos, FEW),
    one("atan", torch.atan, FEW),
    one("sinh", torch.sinh, FEW),
    one("cosh", torch.cosh, FEW),
    one("asinh", torch.asinh, FEW),
    one("acosh", torch.acosh, FEW),
    one("atanh", torch.atanh, FEW),
    one("exp2", torch.exp2, FEW),
    one("log2", torch.log2, FEW),
    one("log10", torch.log10, FEW),
    one("erf", torch.erf, FEW),
    one("erfc", torch.erfc, FEW),
    one("floor", torch.floor),
    one("ceil", torch.ceil),
    one("round", torch.round),
    one("trunc", torch.trunc),
    one("silu", F.silu, FEW),
    one("softplus", lambda x: F.softplus(x, 2.0, 20.0), FEW, beta=2.0, threshold=20.0),
    one("log_sigmoid", F.logsigmoid, FEW),
    one("mish", F.mish, FEW),
    one("hardsigmoid", F.hardsigmoid, 1),
    one("hardswish", F.hardswish, 2),
    one("not", as_number(torch.logical_not)),
    one("isfinite", as_number(torch.isfinite)),
    one("isnan", as_number(torch.isnan)),
    one("isinf", as_number(torch.isinf)),
    clamp(-1.0, 2.0),
    clamp(2.0, 1.0),
    clamp(None, 0.5),
    clamp(-3.0, None),
    Case("clamp", lambda x: x),
    *(
        one("power_of", lambda x, e=exponent: torch.pow(x, e), 2, exponent=exponent)
        for exponent in (0.0, 0.5, -0.5, 1.0, 2.0, 3.0, -1.0, -2.0, 4.0, 2.5, -3.0, 0.3, 1 / 3)
    ),
    *two("add", torch.add),
    *two("subtract", torch.sub),
    *two("multiply", torch.mul),
    *two("divide", torch.div),
    *two("power", torch.pow, 2),
    *two("maximum", torch.maximum, signs=False),
    *two("minimum", torch.minimum, signs=False),
    *two("atan2", torch.atan2, FEW),
    *two("hypot", torch.hypot, FEW),
    *two("fmod", torch.fmod),
    *two("remainder", torch.remainder),
    *two("floor_divide", torch.floor_divide),
    *two("equal", as_number(torch.eq)),
    *two("not_equal", as_number(torch.ne)),
    *two("less", as_number(torch.lt)),
    *two("less_equal", as_number(torch.le)),
    *two("greater", as_number(torch.gt)),
    *two("greater_equal", as_number(torch.ge)),
    *two("and", as_number(torch.logical_and)),
    *two("or", as_number(torch.logical_or)),
    *(
        Case("where", lambda c, a, b: torch.where(c != 0, a, b), widths=widths)
        for widths in ((7, 7, 7), (1, 7, 7), (7, 1, 7), (7, 7, 1), (1, 1, 7), (7, 1, 1), (1, 1, 1))
    ),
    Case(
        "scale_shift",
        lambda x, s, t: x * s + t,
        widths=(9,),
        tensors={"scale": random(9), "shift": random(9)},
    ),
    Case("scale_shift", lambda x, t: x + t, widths=(9,), tensors={"shift": random(9)}),
    *(
        Case(
            "layer_norm",
            lambda x, w, b, h=heads: by_head(lambda y: F.layer_norm(y, y.shape[2:], eps=1e-5), h)(x) * w + b,
            {"eps": 1e-5} | ({} if heads == 1 else {"heads": heads}),
            (12,),
            {"weight": random(12), "bias": random(12, seed=1)},
            **LINEAR,
        )
        for heads in (1, 3)
    ),
    *(
        Case(
            "l2_normalize",
            by_head(lambda y: F.normalize(y, dim=2, eps=1e-6), heads),
            {"eps": 1e-6} | ({} if heads == 1 else {"heads": heads}),
            (12,),
            **LINEAR,
        )
        for heads in (1, 4)
    ),
    *(
        Case(op, by_head(lambda y, f=function: f(y, dim=2), heads), {"heads": heads}, (12,), **LINEAR)
        for op, function in (("softmax", torch.softmax), ("log_softmax", torch.log_softmax))
        for heads in (1, 3, 12)
    ),
    *(
        Case("reduce", reduction(kind), {"kind": kind, "before": 2, "size": 5, "after": 3}, (30,), **how)
        for kind, how in (
            ("sum", LINEAR),
            ("max", {"signs": False}),
            ("min", {"signs": False}),
            ("product", LINEAR),
        )
    ),
    Case(
        "reduce",
        lambda x: x.sum(1, keepdim=True),
        {"kind": "sum", "before": 1, "size": 500, "after": 1},
        (500,),
        **LINEAR,
    ),
    Case("sum_channels", lambda x: x.reshape(len(x), 3, 4).sum(2), {"heads": 3}, (12,), **LINEAR),
    Case("sum_heads", lambda x: x.reshape(len(x), 3, 4).sum(1), {"heads": 3}, (12,), **LINEAR),
    Case(
        "scale_heads",
        lambda x, f: (x.reshape(len(x), 3, 4) * f[:, :, None]).reshape(len(x), 12),
        widths=(12, 3),
    ),
    Case("concat", lambda *x: torch.cat(x, dim=1), widths=(3, 1, 7)),
    Case("slice", lambda x: x[:, 2:9], {"start": 2, "stop": 9}, (12,)),
    Case("slice", lambda x: x[:, :1], {"start": 0, "stop": 1}, (12,)),
    *(
        Case(
            "repeat",
            lambda x, t=times, i=inner: x.reshape(len(x), -1, 1, i).expand(-1, -1, t, -1).reshape(len(x), -1),
            {"times": times, "inner": inner},
            (12,),
        )
        for times, inner in ((3, 1), (2, 4), (5, 12), (1, 3))
    ),
    Case(
        "take",
        lambda x, c: x[:, c.long()],
        widths=(6,),
        tensors={"channels": np.array([5, 0, 0, 3, 2, 5, 1], np.float32)},
    ),
    Case("constant", lambda x, row: row.expand(len(x), -1), widths=(2,), tensors={"row": random(5)}),
    Case("constant", lambda x: torch.full((len(x), 1), 0.1, dtype=x.dtype), {"value": 0.1}, (2,)),
    Case("lookup", looked_up, widths=(3,), tensors={"table": random(4, 5)}),
    Case("lookup", looked_up, widths=(1,), tensors={"table": random(22, 1)}),
    *(
        Case(
            "standardize",
            in_float64(lambda x, m, s, f=f: unless_missing(x, (f(x) - m.sum(0)) / s.sum(0))),
            attrs,
            (5,),
            {"mean": random(3, 5), "scale": random(3, 5, seed=1)},
            ulps=FEW if attrs else 1,
            slack=1e-7 if attrs else 0,
        )
        for attrs, f in (
            ({}, lambda x: x),
            ({"function": "identity"}, lambda x: x),
            ({"function": "log"}, torch.log),
            ({"function": "log1p"}, torch.log1p),
        )
    ),
    *(
        Case(
            "fill_missing",
            lambda x, v, m=missing: torch.where(x == m, v, x),
            attrs,
            (4,),
            {"values": random(4)},
        )
        for attrs, missing in (({}, MISSING), ({"missing": 0.5}, 0.5), ({"missing": -1.0}, -1.0))
    ),
    Case(
        "quantile", in_float64(ranked), {}, (2,), {"quantiles": QUANTILES}, ulps=FEW, slack=1e-7, signs=False
    ),
    Case(
        "bucketize",
        in_float64(lambda x, b: unless_missing(x, (x[:, :, None] >= b).sum(2).double())),
        {},
        (3,),
        {"boundaries": np.sort(random(3, 6))},
    ),
    Case(
        "bucketize",
        in_float64(lambda x, b: unless_missing(x, (x >= b[:, 0]).double())),
        {},
        (3,),
        {"boundaries": np.array([[1, np.finfo(np.float32).max]] * 3, np.float32)},
    ),
    Case(
        "ordinal",
        in_float64(placed),
        {"unknown": -2},
        (2,),
        {"categories": np.array([[3, -0.5, MISSING], [1, 1, 1e10]], np.float32)},
    ),
    Case(
        "one_hot",
        in_float64(lambda x, c, v: x[:, c.long()] == v),
        {},
        (3,),
        {
            "channels": np.array([2, 0, 0, 1], np.float32),
            "categories": np.array([1, MISSING, 0, 3], np.float32),
        },
    ),
    Case("cyclic", in_float64(turned), {"period": 7.0}, (3,), ulps=FEW, slack=1e-6, signs=False),
    Case("linear", F.linear, widths=(7,), tensors={"weight": random(5, 7), "bias": random(5)}, **LINEAR),
    *(
        Case(
            "linear",
            shared_linear,
            {"heads": heads},
            (12,),
            {"weight": random(outputs, 12 // heads)} | ({"bias": random(outputs)} if biased else {}),
            **LINEAR,
        )
        for heads, outputs, biased in ((3, 5, True), (4, 40, False), (12, 1, True), (1, 3, True))
    ),
    *(
        Case(
            "linear",
            own_linear,
            {"heads": heads} if said else {},
            (12,),
            {"weight": random(heads, outputs, 12 // heads)}
            | ({"bias": random(heads * outputs)} if biased else {}),
            **LINEAR,
        )
        for heads, outputs, biased, said in ((3, 5, True, True), (4, 40, False, False), (1, 33, True, True))
    ),
    *(
        Case("matmul", matmul, {"batch": batch, "rows": 2, "inner": 4, "columns": 3}, widths, **LINEAR)
        for batch, widths in ((1, (8, 12)), (5, (40, 60)), (5, (8, 60)), (5, (40, 12)))
    ),
    Case(
        "matmul",
        lambda a, b: (a * b).sum(1, keepdim=True),
        {"batch": 1, "rows": 1, "inner": 9, "columns": 1},
        (9, 9),
        **LINEAR,
    ),
]


def inputs_of(case: Case) -> list[np.ndarray]:
    """Rows of float32: of special numbers in every combination, of random ones of every magnitude."""
    rng = np.random.default_rng(5)
    special, size = np.array(SPECIAL, np.float32), len(SPECIAL)
    count = ROW_OPERATORS[case.op].least
    widths = case.widths or (size,) * count
    rows = 60
    drawn = []
    for width in widths:
        tame = rng.standard_normal((rows, width))
        wild = np.where(rng.random((rows, width)) < 0.5, tame, rng.choice(special, (rows, width)))
        large = tame * 10.0 ** rng.integers(-30, 30, (rows, width))
        whole = np.round(3 * tame)
        parts = [tame, whole] if case.tame else [tame, whole, large, wild]
        drawn.append(np.concatenate(parts).astype(np.float32))
        if case.op in TRANSFORMS:
            drawn[-1][::7, ::2] = MISSING
    if case.tame:
        one_each = [np.tile(special[:, None], (1, width)).astype(np.float32) for width in widths]
        ordinary = [rng.standard_normal((size, width)).astype(np.float32) for width in widths]
        for x, values in zip(ordinary, one_each, strict=True):
            x[:, 0] = values[:, 0]
        return [np.concatenate(parts) for parts in zip(drawn, ordinary, strict=True)]
    if not case.widths or (count == 2 and set(case.widths) <= {1, size}):
        grid = [np.tile(special, (size, 1)), np.tile(special[:, None], (1, size))]
        if case.widths and count == 2:
            narrow, wide = (1, 0) if case.widths[1] == 1 else (0, 1)
            grid = [grid[0], grid[1]] if narrow == 1 else [grid[1], grid[0]]
            grid[narrow] = grid[narrow][:, :1]
            assert grid[wide].shape[1] == size
        drawn = [np.concatenate([x, g]) for x, g in zip(drawn, grid[:count], strict=True)]
    return drawn


@np.errstate(all="ignore")
def expect(case: Case, inputs: Sequence[np.ndarray], dtype: torch.dtype) -> np.ndarray:
    given = [torch.from_numpy(x).to(dtype) for x in inputs]
    tensors = [torch.from_numpy(t).to(dtype) for t in case.tensors.values()]
    return case.torch(*given, *tensors).numpy()


@np.errstate(all="ignore")
def agree(case: Case, got: np.ndarray, expected: np.ndarray, inputs: Sequence[np.ndarray]) -> np.ndarray:
    """Where a result is what was expected."""
    magnitudes = np.concatenate([*inputs, expected], axis=1).astype(np.float64)
    largest = np.max(np.where(np.isfinite(magnitudes), np.abs(magnitudes), 0), axis=1, keepdims=True)
    near = np.abs(got.astype(np.float64) - expected)
    unit = np.spacing(np.abs(expected)).astype(np.float64)
    smallest = np.finfo(expected.dtype).tiny if case.ulps else 0.0
    same = (got == expected) | (np.isnan(got) & np.isnan(expected))
    if case.signs:
        same &= (got != 0) | (np.signbit(got) == np.signbit(expected)) | (case.ulps > 0)
    slack = case.slack * largest * (np.finfo(expected.dtype).eps / np.finfo(np.float32).eps)
    return same | (near <= case.ulps * unit + smallest + slack)


def assert_agrees(case: Case, got: np.ndarray, inputs: Sequence[np.ndarray], *wanted: np.ndarray) -> None:
    assert got.shape == wanted[0].shape
    right = np.logical_or.reduce([agree(case, got, one, inputs) for one in wanted])
    wrong = np.argwhere(~right)
    shown = [
        (
            [x[i, min(c, x.shape[1] - 1)] for x in inputs],
            got[i, c],
            [one[i, c] for one in wanted],
        )
        for i, c in wrong[:5]
    ]
    assert not len(wrong), f"{len(wrong)} differ: inputs, got, expected: {shown}"


def step_of(case: Case, inputs: Sequence[str]) -> Step:
    return Step(case.op, tuple(inputs), "y", {role: role for role in case.tensors}, dict(case.attrs))


@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
@np.errstate(all="ignore")
def test_the_oracle_says_what_torch_says(case: Case, dtype: type) -> None:
    inputs = inputs_of(case)
    given = [x.astype(dtype) for x in inputs]
    tensors = {role: tensor.astype(dtype) for role, tensor in case.tensors.items()}
    got = row_reference.apply(step_of(case, ["x"] * len(inputs)), given, tensors)
    assert got.dtype == dtype
    of_float64 = expect(case, inputs, torch.float64)
    if dtype == np.float64:
        assert_agrees(case, got, inputs, of_float64)
    else:
        assert_agrees(case, got, inputs, expect(case, inputs, torch.float32), of_float64.astype(np.float32))


def run(case: Case, inputs: Sequence[np.ndarray], *, rescued: bool) -> np.ndarray:
    """What an engine says of rows of any numbers. Features are finite, and so is a prediction: they are made
    by a division, and told apart again. rescued: something of each row is no number, so that every operation
    whose result is not finite is taken once more in float64."""
    table = np.concatenate(inputs, axis=1)
    infinite = np.isinf(table)
    over = np.where(infinite, np.sign(table), np.where(np.isnan(table), 0, np.abs(table))).astype(np.float32)
    under = np.where(np.isfinite(table), np.where(np.signbit(table), -1, 1), 0).astype(np.float32)
    width = table.shape[1]
    graph = Graph(Schema({"node": 2 * width}, {}))
    graph.apply(Events().add_nodes(np.arange(len(table)), np.concatenate([over, under], axis=1)))
    steps = [
        Step("slice", ("x",), "over", attrs={"start": 0, "stop": width}),
        Step("slice", ("x",), "under", attrs={"start": width, "stop": 2 * width}),
        Step("divide", ("over", "under"), "numbers"),
    ]
    names, start = [], 0
    for i, x in enumerate(inputs):
        names.append(f"in{i}")
        stop = start + x.shape[1]
        steps.append(Step("slice", ("numbers",), names[-1], attrs={"start": start, "stop": stop}))
        start = stop
    steps += [
        step_of(case, names),
        Step("constant", ("x",), "zero", {"row": "zero"}),
        Step("isfinite", ("y",), "finite"),
        Step("where", ("finite", "y", "zero"), "number"),
        Step("isnan", ("y",), "none"),
        Step("less", ("y", "zero"), "negative"),
        Step("divide", ("zero", "zero"), "lost"),
        Step("concat", ("number", "finite", "none", "negative", *(["lost"] if rescued else [])), "out"),
    ]
    if not rescued:
        steps = [step for step in steps if step.output != "lost"]
    tensors = {**case.tensors, "zero": np.zeros(1, np.float32)}
    model = Model({"x": Input("node", 2 * width)}, tuple(steps), tensors, "out", ("x", "out"))
    got = Engine(graph, model, threads=1).predict(np.arange(len(table)))
    assert np.isfinite(got).all() != rescued
    number, finite, none, negative = np.split(got[:, :-1] if rescued else got, 4, axis=1)
    assert np.isfinite(number).all()
    signed = np.where(negative != 0, -np.inf, np.inf).astype(np.float32)
    return np.where(none != 0, np.float32(np.nan), np.where(finite != 0, number, signed))


@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
def test_the_core_says_what_torch_says(case: Case) -> None:
    inputs = inputs_of(case)
    wide = expect(case, inputs, torch.float64)
    with np.errstate(all="ignore"):
        rounded = wide.astype(np.float32)
    assert_agrees(
        case, run(case, inputs, rescued=False), inputs, expect(case, inputs, torch.float32), rounded
    )


@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
def test_what_is_not_finite_is_what_torch_says_in_float64(case: Case) -> None:
    inputs = inputs_of(case)
    with np.errstate(all="ignore"):
        rounded = expect(case, inputs, torch.float64).astype(np.float32)
    of_float32 = expect(case, inputs, torch.float32)
    # Only what is not finite is taken once more.
    kept = np.where(np.isfinite(of_float32) & ~np.isnan(rounded), of_float32, rounded)
    assert_agrees(case, run(case, inputs, rescued=True), inputs, kept, rounded)


def test_every_operator_of_the_table_is_tried() -> None:
    assert {case.op for case in CASES} == set(ROW_OPERATORS)


def test_every_operator_of_the_table_is_documented() -> None:
    page = Path(__file__).parents[2].joinpath("docs/models.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| (`.*)$", page[page.index("## Operators") : page.index("### Propagate")], re.MULTILINE
    )
    documented = {name: row for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[0])}
    assert set(documented) == set(OPERATORS)
    for name, operator in ROW_OPERATORS.items():
        for role in (*operator.attrs, *operator.required, *operator.optional):
            assert f"`{role}`" in documented[name], (name, role)
        least = str(operator.least) if operator.least == operator.most else f"{operator.least} or more"
        assert documented[name].split("|")[1].strip() == least


def test_a_row_has_the_same_bits_in_any_block() -> None:
    """Whether it is the first of many or alone."""
    for case in CASES:
        inputs = inputs_of(case)
        whole = run(case, inputs, rescued=False)
        for i in (0, 1, 37, len(whole) - 1):
            alone = run(case, [x[i : i + 1] for x in inputs], rescued=False)
            assert alone.tobytes() == whole[i : i + 1].tobytes(), (case.id, i)


def write(op: str, width: int, tensors: Mapping[str, np.ndarray] | None = None, **attrs: object) -> Model:
    tensors = tensors or {}
    step = Step(op, ("x",) * ROW_OPERATORS[op].least, "y", {role: role for role in tensors}, attrs)
    return Model({"x": Input("node", width)}, (step,), tensors, "y", ("x", "y"))


@pytest.mark.parametrize(
    ("op", "width", "tensors", "attrs", "message"),
    [
        (
            "softplus",
            3,
            {},
            {"beta": 0.0, "threshold": 1.0},
            "'beta' must be a finite number above 0, got 0.0",
        ),
        ("softplus", 3, {}, {"beta": 1.0}, "takes these attributes: beta, threshold; 'threshold' is missing"),
        ("clamp", 3, {}, {"least": math.inf}, "'least' must be a finite number or None, got inf"),
        ("clamp", 3, {}, {"most": "1"}, "'most' must be a finite number or None, got '1'"),
        ("softmax", 4, {}, {"heads": 3}, "4 channels must be as many for each of the 3 heads"),
        ("softmax", 4, {}, {"heads": 0}, "'heads' must be a whole number above 0, got 0"),
        ("softmax", 4, {}, {"size": 2}, r"heads \(optional\); 'size' is not one of them"),
        (
            "reduce",
            6,
            {},
            {"kind": "sum", "before": 2, "size": 2, "after": 2},
            r"the 6 channels .* got 2 \* 2 \* 2",
        ),
        (
            "reduce",
            6,
            {},
            {"kind": "mean", "before": 2, "size": 3, "after": 1},
            "'kind' must be 'sum', 'max', 'min' or 'product', got 'mean'",
        ),
        ("slice", 6, {}, {"start": 2, "stop": 2}, "start must be below stop"),
        ("slice", 6, {}, {"start": -1, "stop": 2}, "'start' must be a whole number from 0 on, got -1"),
        (
            "slice",
            6,
            {},
            {"start": 2, "stop": 7},
            "stop not above the 6 channels of the input, got start 2 and stop 7",
        ),
        ("repeat", 6, {}, {"times": 2, "inner": 4}, "6 channels must be runs of inner channels, got inner 4"),
        ("take", 2, {"channels": [0, 2]}, {}, "channels must be whole numbers from 0 to 1, got 2.0"),
        ("take", 2, {"channels": [0.5]}, {}, "channels must be whole numbers from 0 to 1, got 0.5"),
        ("take", 2, {"channels": [-1]}, {}, "channels must be whole numbers from 0 to 1, got -1.0"),
        ("take", 2, {"channels": [[0]]}, {}, "channels must be a vector"),
        ("constant", 2, {"row": [[1.0]]}, {}, "row must be a vector"),
        ("lookup", 2, {"table": [1.0]}, {}, r"table must have shape \(numbers, channels\), got \(1,\)"),
        (
            "standardize",
            2,
            {"mean": [0, 0], "scale": [1, 1]},
            {},
            r"mean must have shape \(3, 2\), got \(2,\)",
        ),
        (
            "standardize",
            2,
            {"mean": np.ones((3, 2)), "scale": np.ones((3, 2))},
            {"function": "exp"},
            "'function' must be 'identity', 'log' or 'log1p', got 'exp'",
        ),
        ("fill_missing", 2, {"values": [0.0]}, {}, r"values must have shape \(2\), got \(1,\)"),
        (
            "quantile",
            2,
            {"quantiles": np.ones((3, 2, 1))},
            {},
            r"quantiles must have shape \(3, 2, quantiles, 2 or more\), got \(3, 2, 1\)",
        ),
        (
            "bucketize",
            2,
            {"boundaries": np.ones((1, 4))},
            {},
            r"must have shape \(2, boundaries\), got \(1, 4\)",
        ),
        ("ordinal", 2, {"categories": np.ones((2, 4))}, {}, "'unknown' is missing"),
        ("one_hot", 2, {"channels": [0, 2], "categories": [1, 1]}, {}, "from 0 to 1, got 2.0"),
        (
            "one_hot",
            2,
            {"channels": [0, 1], "categories": [1]},
            {},
            r"categories must have shape \(2,\) like",
        ),
        ("cyclic", 2, {}, {"period": 0}, "'period' must be a finite number above 0, got 0"),
        ("linear", 6, {"weight": np.ones((2, 2))}, {"heads": 2}, "for 6 input channels of 2 heads, got"),
        (
            "linear",
            6,
            {"weight": np.ones((2, 2, 3))},
            {"heads": 3},
            "a matrix for each of the 3 heads, got 2",
        ),
        ("linear", 6, {"weight": np.ones((2, 2, 4))}, {}, "for 6 input channels of 2 heads, got"),
        (
            "linear",
            6,
            {"weight": np.ones((2, 2, 3)), "bias": np.ones(2)},
            {},
            r"bias must have shape \(4,\) like the rows of the weight, got \(2,\)",
        ),
        (
            "matmul",
            6,
            {},
            {"batch": 2, "rows": 2, "inner": 2, "columns": 3},
            "a must be 8 channels wide, 2 matrices of 4 numbers, or 4, one for all, got 6",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused(op, width, tensors, attrs, message) -> None:
    arrays = {role: np.array(tensor, np.float32) for role, tensor in tensors.items()}
    with pytest.raises(ModelError, match=message):
        write(op, width, arrays, **attrs)


def test_settings_and_shapes_survive_a_file(tmp_path) -> None:
    for case in CASES:
        inputs = inputs_of(case)
        names = tuple(f"x{i}" for i in range(len(inputs)))
        step = step_of(case, names)
        given = {name: Input("node", x.shape[1]) for name, x in zip(names, inputs, strict=True)}
        model = Model(given, (step,), case.tensors, "y", (names[0], "y"))
        model.save(tmp_path / "model")
        loaded = Model.load(tmp_path / "model")
        assert loaded.steps == model.steps
        assert loaded.digest == model.digest


def guarded_inverse(on_edges: bool) -> Model:
    """The sum of 1 / x over in-edges, 7 where that is infinite; and a sum that may overflow half-way."""
    edge_type = ("node", "to", "node")
    of_both_ends = [  # so that it stays on the edges
        Step("source", ("x",), "u", attrs={"edge_type": edge_type}),
        Step("target", ("x",), "v", attrs={"edge_type": edge_type}),
        Step("slice", ("v",), "v0", attrs={"start": 0, "stop": 1}),
        Step("where", ("v0", "u", "u"), "row of both"),
    ]
    rows = "row of both" if on_edges else "x"
    steps = [
        *(of_both_ends if on_edges else []),
        Step("slice", (rows,), "a", attrs={"start": 0, "stop": 1}),
        Step("slice", (rows,), "b", attrs={"start": 1, "stop": 4}),
        Step("reciprocal", ("a",), "inverse"),
        Step("isinf", ("inverse",), "infinite"),
        Step("constant", ("a",), "seven", {"row": "seven"}),
        Step("where", ("infinite", "seven", "inverse"), "guarded"),
        Step("linear", ("b",), "sum", {"weight": "ones"}),
        Step("concat", ("guarded", "sum"), "row"),
        Step("propagate", ("row",), "y", attrs=Propagate(edge_type).to_attrs()),
    ]
    tensors = {"seven": np.array([7], np.float32), "ones": np.ones((1, 3), np.float32)}
    return Model({"x": Input("node", 4)}, tuple(steps), tensors, "y", ("x", "y"))


@pytest.mark.parametrize("on_edges", [False, True], ids=["nodes", "edges"])
def test_an_infinity_that_a_condition_takes_away_is_no_loss(on_edges) -> None:
    """Not even where the row is computed once more, since a sum in it is past the end of float32."""
    graph = Graph.from_edges([0, 1], [2, 3], x=np.ones((4, 4), np.float32))
    engine = Engine(graph, guarded_inverse(on_edges), threads=1)
    np.testing.assert_array_equal(engine.predict([2, 3]), [[1, 3], [1, 3]])
    engine.apply(Events().set_features([0], np.array([[0, 1, 2, 3]], np.float32)))
    np.testing.assert_array_equal(engine.predict([2, 3]), [[7, 6], [1, 3]])
    engine.apply(Events().set_features([1], np.array([[-0.0, 3e38, 3e38, -3e38]], np.float32)))
    np.testing.assert_array_equal(engine.predict([2, 3]), np.array([[7, 6], [7, 3e38]], np.float32))
    with pytest.raises(InputError, match=r"node \d of type 'node' would be infinite"):
        engine.apply(Events().set_features([1], np.array([[0, 3e38, 3e38, 3e38]], np.float32)))
    engine.apply(Events().set_features([1], np.array([[0.5, 1, 1, 1]], np.float32)))
    np.testing.assert_array_equal(engine.predict([2, 3]), [[7, 6], [2, 3]])
    assert engine.verify().ok
