"""A grammar of random modules over kinds of numbers, and how near to them a model may be.

An expression is a tuple: the name of an operation, its operands, and a constant. `apply` computes it with
torch, for the module as well as here. Beside what torch says of each row (`Tracks.value`), `judge_rows` keeps
what it might as well have said: each step in float32 that is not exact is rounded in another way, so that
what nobody can compute better in float32 is not held against a model.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.utils import degree

COLUMNS = 3
TABLE = 50
"""Rows of the table that is looked up."""
LARGE = 2.0**21
"""From here on, a whole number may be NaN in a model instead of silently another."""
UNDEFINED = 2.0**62
"""From here on, whole numbers are undefined in torch, or soon wrap around."""

Expression = tuple[str, tuple["Expression", ...], object]  # type: ignore[misc]
KINDS = {"float": torch.float32, "double": torch.float64, "int": torch.int64, "bool": torch.bool}

UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "neg": torch.neg,
    "abs": torch.abs,
    "square": torch.square,
    "relu": torch.relu,
    "sqrt": lambda x: x.abs().sqrt(),
    "rsqrt": lambda x: (x.abs() + 1).rsqrt(),
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "log": lambda x: (x.abs() + 1).log(),
    "log2": torch.log2,
    "log1p": lambda x: x.abs().log1p(),
    "sin": torch.sin,
}
CUTTING: dict[str, Callable[[Tensor], Tensor]] = {
    "floor": torch.floor,
    "ceil": torch.ceil,
    "round": torch.round,
    "trunc": torch.trunc,
    "sign": torch.sign,
}
BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "max": torch.maximum,
    "min": torch.minimum,
}
DIVIDING: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "div": torch.div,
    "mod": torch.remainder,
    "fmod": torch.fmod,
    "floordiv": torch.floor_divide,
    "truncdiv": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
}
TESTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "lt": torch.lt,
    "ge": torch.ge,
    "eq": torch.eq,
    "ne": torch.ne,
}
STEEP = {*CUTTING, *TESTS, "mod", "fmod", "floordiv", "truncdiv", "lookup", "not", "and"}
"""Operations of which a small difference may make a large one."""

NUMBERS = {
    "float": (0.5, 2.0, 3.0, 41.0, 0.1, 1000.0),
    "double": (0.5, 2.0, 3.0, 41.0, 0.1, 1e-3, 1e7),
    "int": (1, 2, 3, 5, 7, 64, 1000, 1000003),
}


@dataclass(frozen=True)
class Ends:
    """The edges of a graph, and a table."""

    edge_index: Tensor
    nodes: int
    table: Tensor


def apply(one: Expression, given: Sequence[Tensor], x: Tensor, ends: Ends) -> Tensor:
    """The operation of an expression, on its operands. All tensors are [nodes, 1]."""
    op, _, constant = one
    name, _, with_number = op.partition(" ")
    if op == "column":
        return x[:, constant : constant + 1]
    if op == "degree":
        return degree(ends.edge_index[1], ends.nodes, dtype=KINDS[constant]).view(-1, 1)
    if op == "cast":
        return given[0].to(KINDS[constant])
    if op == "clamp":
        return given[0].clamp(*constant)
    if op == "lookup":
        return ends.table[given[0].view(-1)]
    if op == "where":
        return torch.where(*given)
    if op == "not":
        return ~given[0]
    if op == "and":
        return given[0] & given[1]
    if op == "sum":
        rows = given[0][ends.edge_index[0]]
        return torch.zeros(ends.nodes, 1, dtype=rows.dtype).index_add(0, ends.edge_index[1], rows)
    if op == "most":
        rows, to = given[0][ends.edge_index[0]], ends.edge_index[1].view(-1, 1)
        return given[0].scatter_reduce(0, to, rows, "amax", include_self=True)
    if op in UNARY or op in CUTTING:
        return (UNARY | CUTTING)[op](given[0])
    function = (BINARY | DIVIDING | TESTS)[name]
    return function(given[0], constant if with_number else given[1])


class Numbers(nn.Module):
    """Computes expressions side by side, and a column, since a model must read one."""

    def __init__(self, expressions: Sequence[Expression]) -> None:
        super().__init__()
        self.expressions = tuple(expressions)
        self.register_buffer("table", torch.linspace(-2, 3, TABLE).view(-1, 1))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        ends = Ends(edge_index, x.size(0), self.table)
        made: dict[Expression, Tensor] = {}

        def compute(one: Expression) -> Tensor:
            if one not in made:
                made[one] = apply(one, [compute(arg) for arg in one[1]], x, ends)
            return made[one]

        return torch.cat([*(compute(one).float() for one in self.expressions), x[:, :1]], dim=1)


# What is drawn


class Grammar:
    """Draws expressions. choose: draws one of several."""

    def __init__(self, choose: Callable[[Sequence[Any]], Any]) -> None:
        self.choose = choose

    def numbers(self, kind: str, depth: int) -> Expression:
        """An expression of a kind, of so many operations one above the other at most."""
        if kind == "bool":
            return self.test(depth)
        if depth == 0:
            return self.leaf(kind)
        forms = ["leaf", "cast", "cast", "unary", "binary", "binary", "number", "number", "dividing", "clamp"]
        forms += ["where", "along edges", "lookup" if kind == "float" else "cast"]
        form = self.choose(forms)
        if form == "leaf":
            return self.leaf(kind)
        if form == "cast":
            other = self.choose([one for one in KINDS if one != kind])
            return ("cast", (self.numbers(other, depth - 1),), kind)
        if form == "where":
            return ("where", (self.test(depth - 1), *(self.numbers(kind, depth - 1) for _ in "ab")), None)
        if form == "lookup":
            return self.lookup(depth - 1)
        first = self.numbers(kind, depth - 1)
        if form == "unary":
            ops = [*CUTTING, *UNARY] if kind != "int" else ["neg", "abs", "square", "sign"]
            return (self.choose(ops), (first,), None)
        if form == "clamp":
            return ("clamp", (first,), self.choose([(0, 9), (0, 49), (-3, 40), (-1000, 100000)]))
        if form == "along edges":
            return (self.choose(["sum", "sum", "most"]), (first,), None)
        if form == "binary":
            ops = [*BINARY, "div"] if kind != "int" else [*BINARY]
            return (self.choose(ops), (first, self.numbers(kind, depth - 1)), None)
        dividing = [*DIVIDING] if kind != "int" else ["mod", "floordiv", "truncdiv"]
        op = self.choose(["add", "mul", "mul"] if form == "number" else dividing)
        return (f"{op} number", (first,), self.choose(NUMBERS[kind]))

    def leaf(self, kind: str) -> Expression:
        column = ("column", (), self.choose(range(COLUMNS)))
        forms = [column if kind == "float" else ("cast", (column,), kind)] * 2
        return self.choose([*forms, ("degree", (), kind)])

    def lookup(self, depth: int) -> Expression:
        place = self.numbers("int", depth)
        form = self.choose(["itself", "mod", "clamp"])
        if form == "mod":
            place = ("mod number", (place,), TABLE)
        elif form == "clamp":
            place = ("clamp", (place,), (0, TABLE - 1))
        return ("lookup", (place,), None)

    def test(self, depth: int) -> Expression:
        form = self.choose(["numbers", "numbers", "with a number", "with a number", "not", "and"])
        if depth > 1 and form == "not":
            return ("not", (self.test(depth - 1),), None)
        if depth > 1 and form == "and":
            return ("and", (self.test(depth - 1), self.test(depth - 1)), None)
        kind, op = self.choose(["float", "double", "int"]), self.choose([*TESTS])
        first = self.numbers(kind, max(0, depth - 1))
        if form == "numbers":
            return (op, (first, self.numbers(kind, max(0, depth - 1))), None)
        return (f"{op} number", (first,), self.choose([0, *NUMBERS[kind]]))


SIZES: dict[str, Callable[[torch.Generator, int], Tensor]] = {
    "digits": lambda rng, n: torch.randint(0, 10, (n,), generator=rng).float(),
    "hundreds": lambda rng, n: torch.randint(-500, 500, (n,), generator=rng).float(),
    "millions": lambda rng, n: torch.randint(-(10**7), 10**7, (n,), generator=rng).float(),
    "the edge": lambda rng, n: (
        2.0**24 * torch.randint(-1, 2, (n,), generator=rng) + torch.randint(-3, 4, (n,), generator=rng)
    ),
    "billions": lambda rng, n: torch.randint(-(10**10), 10**10, (n,), generator=rng).float(),
    "numbers": lambda rng, n: torch.randn(n, generator=rng),
    "thousands": lambda rng, n: 1000 * torch.randn(n, generator=rng),
    "thousandths": lambda rng, n: 0.001 * torch.randn(n, generator=rng),
    "huge": lambda rng, n: 1e16 * torch.randn(n, generator=rng),
    "giant": lambda rng, n: 1e25 * torch.randn(n, generator=rng),
    "tiny": lambda rng, n: 1e-25 * torch.randn(n, generator=rng),
    "all": lambda rng, n: torch.randn(n, generator=rng) * 10.0 ** torch.randint(-6, 13, (n,), generator=rng),
}
"""Columns of numbers of every magnitude."""


def columns(sizes: Sequence[str], seed: int, nodes: int) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    return torch.stack([SIZES[size](rng, nodes).float() for size in sizes], 1)


# What a model may say


@dataclass
class Tracks:
    """What torch says of an expression; `rough`: with float32 rounded otherwise; `loose`: with what becomes
    float32 rounded otherwise too, which no steep operation may read. large: rows of numbers that are too
    large for a model; undefined: of such as torch does not define.
    """

    value: Tensor
    rough: Tensor
    loose: Tensor
    large: Tensor
    undefined: Tensor


class Judge:
    """The tracks of expressions on one graph. changed: whether the graph was another before, so that sums
    have what rounding left.
    """

    def __init__(self, x: Tensor, ends: Ends, seed: int, *, changed: bool) -> None:
        self.x, self.ends, self.changed = x, ends, changed
        self.rng = torch.Generator().manual_seed(seed)
        self.known: dict[Expression, Tracks] = {}

    def __call__(self, one: Expression) -> Tracks:
        found = self.known.get(one)
        if found is None:
            found = self.known[one] = self._compute(one, [self(arg) for arg in one[1]])
        return found

    def _compute(self, one: Expression, args: Sequence[Tracks]) -> Tracks:
        name = one[0].partition(" ")[0]
        value = apply(one, [arg.value for arg in args], self.x, self.ends)
        rough = apply(one, [arg.rough for arg in args], self.x, self.ends)
        steep = name in STEEP or (name == "cast" and one[2] in ("int", "bool"))
        loose = rough if steep else apply(one, [arg.loose for arg in args], self.x, self.ends)
        if name in ("mod", "fmod"):  # of what rounding moves by a divisor, nobody knows the rest
            moved = (args[0].rough.double() - args[0].value.double()).abs() > 0.1 * one[2]
            rough = torch.where(moved, torch.nan, rough) if rough.is_floating_point() else rough
        if name in ("max", "min"):  # which of 0 and -0 is the larger one nobody says
            rough = torch.where(rough == 0, rough * (1 - 2 * (self._signs(rough) > 0).to(rough.dtype)), rough)
        if not steep and value.dtype == torch.float32 and args:
            error = self._error(one, name, args, value)
            if name != "cast":
                rough = rough + error * self._signs(rough)
            loose = loose + error * self._signs(loose)
        size = value.double().abs()
        large = (size >= LARGE) & (size == size.trunc()) & (value.dtype != torch.float32)
        large = large | ((size > torch.finfo(torch.float32).max) & (value.dtype == torch.float64))
        undefined = torch.zeros_like(large)
        if value.dtype == torch.int64:
            of = [arg.value.double() for arg in args]
            wide = of[0] if name == "cast" else apply(one, of, self.x, self.ends).double()
            undefined = ~(wide.abs() < UNDEFINED)  # of NaN too
        for arg in args:
            large, undefined = large | arg.large, undefined | arg.undefined
        if name in ("sum", "most"):
            large, undefined = self._reached(large), self._reached(undefined)
        return Tracks(value, rough, loose, large, undefined)

    def _error(self, one: Expression, name: str, args: Sequence[Tracks], value: Tensor) -> Tensor:
        """What rounding may do to a step in float32: nothing where its result is exact."""
        if name in ("column", "where", "most", "neg", "abs", "relu", "max", "min", "clamp", "lookup"):
            return torch.zeros_like(value)
        operands = [arg.value.double() if arg.value.is_floating_point() else arg.value for arg in args]
        if name == "sum":
            total = apply(one, [operands[0].abs()], self.x, self.ends)
            exact = bool((operands[0] == operands[0].trunc()).all()) and not self.changed
            part = 2e-5 if self.changed else 2.0**-22
            return torch.where((total < 2.0**24) & exact, 0.0, part * total).float()
        wide = apply(one, operands, self.x, self.ends).double() if name != "cast" else operands[0].double()
        end = 2.0**-125 if name == "sigmoid" else 0.0  # where a sigmoid is 0 in torch, and not in a model
        return torch.where((wide == value.double()) & (end == 0), 0.0, 2.0**-22 * value.abs() + end)

    def _signs(self, like: Tensor) -> Tensor:
        return (torch.randint(0, 3, like.shape, generator=self.rng) - 1).to(like.dtype)

    def _reached(self, rows: Tensor) -> Tensor:
        arriving = rows[self.ends.edge_index[0]].float()
        return rows | (
            torch.zeros_like(rows, dtype=torch.float32).index_add(0, self.ends.edge_index[1], arriving) > 0
        )


def find_wrong(got: Tensor, tracks: Tracks, others: Sequence[Tracks]) -> Tensor:
    """Rows in which a model says something else than a module, and not NaN of a large whole number either.

    others: the same, rounded in other ways.
    """
    value, got = tracks.value.float().double().view(-1), got.double().view(-1)
    known = ~tracks.undefined.view(-1)
    finite = value[value.isfinite() & known]
    scale = float(finite.abs().max()) if len(finite) else 0.0
    moved = torch.zeros_like(value)
    for track in (tracks, *others):
        for other in (track.rough, track.loose):
            apart = (other.float().double().view(-1) - value).abs()
            same = (other.float().double().view(-1) == value) | (other.isnan().view(-1) & value.isnan())
            moved = torch.maximum(moved, torch.where(same, 0.0, apart.nan_to_num(torch.inf)))
    same = (got == value) | (got.isnan() & value.isnan())
    near = (got - value).abs() <= torch.clamp(4 * moved, min=max(1e-4 * scale, 2.0**-126))
    guarded = got.isnan() & tracks.large.view(-1)
    return known & ~(same | near | guarded | moved.isinf())
