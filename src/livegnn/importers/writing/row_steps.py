"""Writes row-wise expressions as steps of a model, in the same way for rows of nodes and of edges.

A row with channels ``[a, b, c]`` is flat, with the last axis innermost. Each function below writes the steps
of one operation; `Steps` writes equal steps only once.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np
import torch

from livegnn.errors import ModelError
from livegnn.importers.expressions.expressions import Expression, Expressions, Shape, find_rounded
from livegnn.importers.expressions.properties import is_of_edges, leads, strip
from livegnn.network.operators import Attribute
from livegnn.network.steps import Step
from livegnn.types import FloatArray

_NAMES = {
    "div": "divide",
    "pow": "power",
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
}
"""The name of an operation in expressions -> its name in the model, where they differ."""

_SETTINGS: Mapping[str, tuple[str, ...]] = {
    "leaky_relu": ("slope",),
    "gelu": ("approximate",),
    "softplus": ("beta", "threshold"),
    "clamp": ("least", "most"),
}
_INVERSES = {"inverse_root": "rsqrt_degree", "inverse": "divide_degree"}
_LARGEST = float(torch.finfo(torch.float32).max)
_REDUCTIONS = {"amax": "max", "amin": "min", "prod": "product", "any": "max", "all": "min", "sum": "sum"}


@dataclass
class Steps:
    """The steps of a model in topological order, and their tensors by name. Equal steps are one."""

    make: Expressions
    steps: list[Step] = field(default_factory=list)
    tensors: dict[str, FloatArray] = field(default_factory=dict)
    _written: dict[object, str] = field(default_factory=dict)
    _taken: set[str] = field(default_factory=set)

    def write(
        self,
        op: str,
        inputs: Sequence[str],
        name: str = "",
        tensors: Mapping[str, torch.Tensor | Expression] | None = None,
        attrs: Mapping[str, Attribute] | None = None,
        **settings: Attribute,
    ) -> str:
        """Writes a step and returns the name of its value. attrs, settings: both are settings of the step."""
        attrs = {**(attrs or {}), **settings}
        named = {role: self.tensor(given) for role, given in (tensors or {}).items()}
        key = (op, tuple(inputs), tuple(named.items()), tuple(attrs.items()))
        found = self._written.get(key)
        if found is None:
            found = self._written[key] = self.name(name or op)
            self.steps.append(Step(op, tuple(inputs), found, named, attrs))
        return found

    def name(self, wanted: str) -> str:
        """A name that is not yet used by a value."""
        name, number = wanted, 1
        while name in self._taken:
            number += 1
            name = f"{wanted}/{number}"
        self._taken.add(name)
        return name

    def tensor(self, given: "torch.Tensor | Expression") -> str:
        """The name of a tensor; equal tensors have one name."""
        constant = given if isinstance(given, Expression) else self.make.constant(given)
        assert constant.value is not None
        _check_unrounded(constant)
        array = constant.value.numpy().astype(np.float32)
        name = wanted = self.make.names.get(constant) or "constant"
        number = 1
        while name in self.tensors and not (
            self.tensors[name].shape == array.shape and self.tensors[name].tobytes() == array.tobytes()
        ):
            number += 1
            name = f"{wanted}/{number}"
        self.tensors[name] = array
        return name


def _check_unrounded(constant: Expression) -> None:
    """Raises `ModelError` for whole numbers that float32 would round."""
    if constant.kind != "int" or constant.value is None:
        return
    lost = find_rounded(constant.value)
    if lost is not None:
        raise ModelError(
            f"the whole number {lost} meets rows of a graph, which are float32 and would round it: "
            "subtract where such numbers begin (as of times) before they are added to the graph"
        )


@dataclass
class RowSteps:
    """Writes the steps of row-wise expressions. value: returns the name of an expression's value."""

    steps: Steps
    value: Callable[[Expression], str]

    def write(self, one: Expression) -> str:
        """Writes a row-wise expression; returns its value's name. Raises `ModelError` if no step fits."""
        function = _WRITERS.get(one.op, RowSteps._elementwise)
        return function(self, one)

    def fit(self, one: Expression, shape: Shape, rows: Expression) -> str:
        """A row that is broadcast to a shape. rows: the expression whose number of rows a constant gets."""
        if one.value is not None:
            _check_unrounded(one)
            # Constants must be finite: uninitialised values (NaN) become 0, infinities the largest number.
            numbers = one.value.double().nan_to_num(0.0, _LARGEST, -_LARGEST)
            if prod(shape) == 1:
                return self.steps.write("constant", (self.value(rows),), value=float(numbers.reshape(-1)[0]))
            full = numbers.expand(shape).reshape(-1)
            return self.steps.write("constant", (self.value(rows),), tensors={"row": full})
        name, sizes = self.value(one), [1] * (len(shape) - len(one.shape)) + list(one.shape)
        for axis in reversed(range(len(shape))):
            if sizes[axis] != shape[axis]:
                sizes[axis] = shape[axis]
                inner = prod(sizes[axis + 1 :])
                name = self.steps.write("repeat", (name,), times=shape[axis], inner=inner)
        return name

    def take(self, name: str, places: torch.Tensor) -> str:
        """Takes channels by their places in the flat row."""
        flat = places.reshape(-1)
        if bool((flat == torch.arange(flat[0], flat[0] + len(flat))).all()):
            start = int(flat[0])
            return self.steps.write("slice", (name,), start=start, stop=start + len(flat))
        return self.steps.write("take", (name,), tensors={"channels": flat.double()})

    def _elementwise(self, one: Expression) -> str:
        rows = next((arg for arg in one.args if arg.atom is not None), None)
        if rows is None:
            raise ModelError(
                "an output is computed of nothing that the module is called with, so that it is the same for "
                "every graph: return rows that are computed of x or of edge_index"
            )
        names = _SETTINGS.get(one.op, ())
        if len(one.attrs) != len(names):
            raise ModelError(f"no step of a model does {one.op} with the settings {one.attrs}")
        attrs: dict[str, Attribute] = dict(zip(names, one.attrs, strict=True))  # type: ignore[arg-type]
        inputs = [self._operand(arg, one.shape, rows) for arg in one.args]
        return self.steps.write(_NAMES.get(one.op, one.op), inputs, attrs=attrs)

    def _operand(self, arg: Expression, shape: Shape, rows: Expression) -> str:
        """An argument as wide as the result, or with one channel for all."""
        if arg.repeated is not None:
            arg = self.steps.make.constant(arg.repeated)
        return self.fit(arg, () if prod(arg.shape) == 1 else shape, rows)

    def _add(self, one: Expression) -> str:
        constants, others = _constants(one.args)
        if constants:
            x = self.fit(others[0], one.shape, others[0])
            assert constants[0].value is not None
            shift = self.steps.make.expand(constants[0], one.shape)
            return self.steps.write("scale_shift", (x,), tensors={"shift": _flat(self.steps.make, shift)})
        for a, b in (one.args, one.args[::-1]):
            if b.op == "neg":
                inputs = [self._operand(part, one.shape, part) for part in (a, b.args[0])]
                return self.steps.write("subtract", inputs)
        return self.steps.write("add", [self._operand(arg, one.shape, arg) for arg in one.args])

    def _pow(self, one: Expression) -> str:
        x, exponent = one.args
        if x.value is None and exponent.is_number(2):  # a product is much faster than a power
            row = self.fit(x, one.shape, x)
            return self.steps.write("multiply", (row, row))
        return self._elementwise(one)

    def _mul(self, one: Expression) -> str:
        constants, others = _constants(one.args)
        if constants:
            x = self.fit(others[0], one.shape, others[0])
            return self._scale(x, constants[0], one.shape)
        a, b = one.args
        for rows, factors in ((a, b), (b, a)):
            if strip(factors).op in _INVERSES and not is_of_edges(factors.atom) and prod(factors.shape) == 1:
                degree = self.value(strip(factors).args[0])
                op = _INVERSES[strip(factors).op]
                return self.steps.write(op, (self.fit(rows, one.shape, rows), degree))
        for rows, factors in ((a, b), (b, a)):
            narrow = prod(factors.shape) < prod(one.shape) == prod(rows.shape)
            if narrow and leads(factors.shape, one.shape):
                return self.steps.write("scale_heads", (self.value(rows), self.value(factors)))
        return self.steps.write("multiply", [self.fit(arg, one.shape, arg) for arg in one.args])

    def _scale(self, x: str, constant: Expression, shape: Shape) -> str:
        if constant.repeated is not None:
            return self.steps.write("scale", (x,), value=float(constant.repeated))
        scale = self.steps.make.expand(constant, shape)
        return self.steps.write("scale_shift", (x,), tensors={"scale": _flat(self.steps.make, scale)})

    def _div(self, one: Expression) -> str:
        over, under = one.args
        if under.value is not None and _has_exact_inverse(under.value):
            inverse = self.steps.make.elementwise("reciprocal", under)
            return self._scale(self.fit(over, one.shape, over), inverse, one.shape)
        normalized = self._normalized(one)
        return normalized or self._elementwise(one)

    def _normalized(self, one: Expression) -> str | None:
        """``x / clamp(sqrt(sum(x * x)), eps)`` as one step, since squares overflow float32 before x does."""
        x, under = one.args
        norm = under.args[0] if under.op == "expand" else under
        eps = 0.0
        if norm.op == "clamp" and norm.attrs[1] is None:
            norm, eps = norm.args[0], float(str(norm.attrs[0]))
        squares = norm.args[0] if norm.op == "sqrt" else norm
        if norm.op != "sqrt" or squares.op != "sum" or squares.args[0].args != (x, x) or eps <= 0:
            return None
        axes = squares.attrs[0]
        if axes != (len(x.shape) - 1,) or squares.args[0].op != "mul":
            return None
        return self.steps.write("l2_normalize", (self.value(x),), eps=eps, attrs=_heads(prod(x.shape[:-1])))

    def _elu(self, one: Expression) -> str:
        """``scale * elu(x)`` with a scaled exponent, for ELU, SELU and CELU."""
        alpha, scale, inner = (float(str(number)) for number in one.attrs)
        x = self.value(one.args[0])
        x = x if inner == 1 else self.steps.write("scale", (x,), value=inner)
        x = self.steps.write("elu", (x,), alpha=alpha * inner)
        return x if scale == inner else self.steps.write("scale", (x,), value=scale / inner)

    def _exp_shifted(self, one: Expression) -> str:
        logit, shift = (self._operand(arg, one.shape, arg) for arg in one.args)
        return self.steps.write("exp", (self.steps.write("subtract", (logit, shift)),))

    def _inverse(self, one: Expression) -> str:
        degree = self.value(one.args[0])
        if is_of_edges(one.atom):  # the engine knows degrees of nodes alone
            zero = self.steps.write("constant", (degree,), value=0.0)
            power = self.steps.write("rsqrt" if one.op == "inverse_root" else "reciprocal", (degree,))
            return self.steps.write("where", (self.steps.write("equal", (degree, zero)), zero, power))
        ones = self.steps.write("constant", (degree,), value=1.0)
        return self.steps.write(_INVERSES[one.op], (ones, degree))

    def _compare(self, one: Expression) -> str:
        """A comparison with infinity, as one with the largest number that a row may have."""
        known = [(arg, arg.value) for arg in one.args if arg.value is not None]
        if not known or not bool(known[0][1].isinf().all()):
            return self._elementwise(one)
        signs = (known[0][1] > 0).reshape(-1)
        if bool((signs != signs[0]).any()):
            return self._elementwise(one)
        row = next(arg for arg in one.args if arg is not known[0][0])
        positive = bool(signs[0])
        bound = self.fit(self.steps.make.constant(_LARGEST if positive else -_LARGEST), (), row)
        found = self.steps.write("greater" if positive else "less", (self.fit(row, one.shape, row), bound))
        return found if one.op == "eq" else self.steps.write("not", (found,))

    def _cast(self, one: Expression) -> str:
        x = self.value(one.args[0])
        if one.kind == "bool":
            zero = self.steps.write("constant", (x,), value=0.0)
            return self.steps.write("not_equal", (x, zero))
        whole = one.kind == "int" and one.args[0].kind == "float"
        return self.steps.write("trunc", (x,)) if whole else x

    # Moves

    def _places(self, one: Expression) -> str:
        """``permute``, ``slice`` and ``flip``: take channels by their places."""
        x = one.args[0]
        places = torch.arange(prod(x.shape)).reshape(x.shape)
        if one.op == "permute":
            places = places.permute(one.attrs[0])
        elif one.op == "flip":
            places = places.flip(one.attrs[0])
        else:
            axis, *bounds = (int(str(number)) for number in one.attrs)
            places = places[(slice(None),) * axis + (slice(*bounds),)]
        return self.take(self.value(x), places)

    def _concat(self, one: Expression) -> str:
        rows = next(arg for arg in one.args if arg.atom is not None)
        axis, start, places = one.axis, 0, []
        for part in one.args:
            size = prod(part.shape)
            places.append(torch.arange(start, start + size).reshape(part.shape))
            start += size
        parts = [self.fit(part, part.shape, rows) for part in one.args]
        together = self.steps.write("concat", parts)
        return self.take(together, torch.cat(places, axis)) if prod(one.shape[:axis]) != 1 else together

    def _lookup(self, one: Expression) -> str:
        table, index = one.args
        rows = self.steps.make.reshape(table, (table.shape[0], prod(table.shape[1:])))
        return self.steps.write("lookup", (self.value(index),), tensors={"table": rows})

    # Over channels

    def _reduce(self, one: Expression) -> str:
        x, shape = one.args[0], list(one.args[0].shape)
        name, kind = self.value(x), _REDUCTIONS[one.op]
        axes: Sequence[int] = one.attrs[0]  # type: ignore[assignment]
        axes = [axis for axis in axes if shape[axis] != 1]
        while axes:
            last = first = axes.pop()
            while axes and prod(shape[axes[-1] + 1 : first]) == 1:
                first = axes.pop()
            before, size, after = prod(shape[:first]), prod(shape[first : last + 1]), prod(shape[last + 1 :])
            shape[first : last + 1] = [1] * (last + 1 - first)
            if kind == "sum" and after == 1:
                name = self.steps.write("sum_channels", (name,), heads=before)
            elif kind == "sum" and before == 1:
                name = self.steps.write("sum_heads", (name,), heads=size)
            else:
                name = self.steps.write("reduce", (name,), kind=kind, before=before, size=size, after=after)
        return name

    def _along(self, one: Expression) -> str:
        """``softmax`` and ``log_softmax`` over one axis."""
        x, axis = one.args[0], one.axis
        places = torch.arange(prod(x.shape)).reshape(x.shape).movedim(axis, -1)
        moved = prod(x.shape[axis + 1 :]) != 1
        name = self.take(self.value(x), places) if moved else self.value(x)
        name = self.steps.write(one.op, (name,), attrs=_heads(prod(x.shape) // x.shape[axis]))
        return self.take(name, torch.argsort(places.reshape(-1))) if moved else name

    def _standardize(self, one: Expression) -> str:
        eps, heads = float(str(one.attrs[1])), prod(one.shape[: one.axis])
        return self.steps.write("layer_norm", (self.value(one.args[0]),), eps=eps, attrs=_heads(heads))

    # Products

    def _linear(self, one: Expression) -> str:
        x, weight = one.args
        if weight.value is None:
            self.value(weight)  # a matrix made of all rows, whose reduction was refused
        assert weight.value is not None
        name = (self.steps.make.names.get(weight) or "linear").removesuffix(".weight")
        matrix = self.steps.make.permute(weight, (1, 0))
        return self.steps.write(
            "linear", (self.value(x),), name, {"weight": matrix}, attrs=_heads(prod(x.shape[:-1]))
        )

    def _matmul(self, one: Expression) -> str:
        a, b = one.args
        batch, (rows, inner), columns = one.shape[:-2], a.shape[-2:], b.shape[-1]
        if b.value is not None and rows == 1 and prod(b.shape[:-2]) == prod(batch) == prod(a.shape[:-2]):
            stack = b.value.reshape(prod(batch), inner, columns).transpose(1, 2)
            return self.steps.write("linear", (self.value(a),), tensors={"weight": stack}, heads=prod(batch))
        of_rows = next(arg for arg in one.args if arg.atom is not None)
        full = [
            self.fit(arg, arg.shape, of_rows)
            if prod(arg.shape[:-2]) in (1, prod(batch))
            else self.fit(arg, (*batch, *arg.shape[-2:]), arg)
            for arg in one.args
        ]
        return self.steps.write("matmul", full, batch=prod(batch), rows=rows, inner=inner, columns=columns)


def _heads(heads: int) -> dict[str, Attribute]:
    return {} if heads == 1 else {"heads": heads}


def _flat(make: Expressions, constant: Expression) -> Expression:
    return make.reshape(constant, (prod(constant.shape),))


def _constants(args: Sequence[Expression]) -> tuple[list[Expression], list[Expression]]:
    return [arg for arg in args if arg.value is not None], [arg for arg in args if arg.value is None]


def _has_exact_inverse(divisors: torch.Tensor) -> bool:
    """Returns whether a product equals the division, bit for bit: ``41 * (1 / 41)`` is less than 1."""
    numbers = divisors.double()
    powers_of_two = numbers.frexp().mantissa.abs() == 0.5
    return bool(((powers_of_two & (numbers.abs() < _LARGEST)) | numbers.isinf()).all())


_WRITERS: Mapping[str, Callable[[RowSteps, Expression], str]] = {
    "add": RowSteps._add,
    "mul": RowSteps._mul,
    "pow": RowSteps._pow,
    "div": RowSteps._div,
    "elu": RowSteps._elu,
    "exp_shifted": RowSteps._exp_shifted,
    **dict.fromkeys(_INVERSES, RowSteps._inverse),
    **dict.fromkeys(("eq", "ne"), RowSteps._compare),
    "cast": RowSteps._cast,
    "reshape": lambda writer, one: writer.value(one.args[0]),
    "expand": lambda writer, one: writer.fit(one.args[0], one.shape, one.args[0]),
    **dict.fromkeys(("permute", "slice", "flip"), RowSteps._places),
    "concat": RowSteps._concat,
    "lookup": RowSteps._lookup,
    **dict.fromkeys(_REDUCTIONS, RowSteps._reduce),
    **dict.fromkeys(("softmax", "log_softmax"), RowSteps._along),
    "standardize": RowSteps._standardize,
    "linear": RowSteps._linear,
    "matmul": RowSteps._matmul,
}
