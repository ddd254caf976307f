"""Assigns registers to values and encodes the operations that compute them, for the native program."""

from collections.abc import Mapping, Sequence

import numpy as np

import livegnn._core as _core
from livegnn.compiler.messages import Operation
from livegnn.network import Function, Model, Step
from livegnn.network.operators import Attribute, heads_of
from livegnn.types import FloatArray

_PANEL = 32
"""Number of columns in a panel of a packed matrix (kPanel in kernels.h)."""

_OPERATORS = {made[0]: (place, made[4], made[5]) for place, made in enumerate(_core.row_operators())}
"""Name -> place in the native table, settings, tensors."""

_COUNTED = {"quantile": "quantiles", "bucketize": "boundaries", "ordinal": "categories"}
"""Operators whose last number is the size of their tensor's last dimension -> the tensor's role."""


class Layout:
    """The places of values while rows are computed: buffers, and registers, which are columns of buffers."""

    def __init__(self) -> None:
        self.buffers: list[int] = []
        self.registers: list[tuple[int, int, int]] = []
        self.register: dict[str, int] = {}
        self.ops: list[tuple[int, list[int], int, list[float], int, int]] = []

    def add_source(self, name: str, width: int) -> None:
        self.register[name] = len(self.registers)
        self.registers.append((0, 0, width))

    def add(self, name: str, width: int) -> int:
        self.register[name] = len(self.registers)
        self.registers.append((len(self.buffers), 0, width))
        self.buffers.append(width)
        return self.register[name]

    def add_side_by_side(self, values: Sequence[tuple[str, int]]) -> int:
        """Registers for each value in one buffer; returns the register of the whole buffer."""
        whole = len(self.registers)
        total = sum(width for _, width in values)
        self.registers.append((len(self.buffers), 0, total))
        column = 0
        for name, width in values:
            self.register[name] = len(self.registers)
            self.registers.append((len(self.buffers), column, width))
            column += width
        self.buffers.append(total)
        return whole


class Layouts:
    """Lays out rows for one program; adds each tensor and each function of the model to it once."""

    def __init__(self, model: Model, program: _core.Program) -> None:
        self._model = model
        self._program = program
        self._tensors: dict[tuple[str, ...], int] = {}
        self._functions: dict[str, int] = {}

    def lay_out(self, sources: Mapping[str, int], operations: Sequence[Operation]) -> Layout:
        """A register for each value. Linear layers with the same input become one product, side by side.

        sources: name -> width of the rows that are read in place.
        """
        layout = Layout()
        for name, width in sources.items():
            layout.add_source(name, width)
        merged: dict[str, list[Operation]] = {}
        for operation in operations:
            if self._is_merged(operation):
                merged.setdefault(operation.inputs[0], []).append(operation)
        for operation in operations:
            if not self._is_merged(operation):
                register = layout.add(operation.output, operation.width)
                layout.ops.append(self._op(operation, layout, register))
                continue
            together = merged[operation.inputs[0]]
            if operation is together[0]:
                register = layout.add_side_by_side([(o.output, o.width) for o in together])
                weight, bias = self._products(together)
                source = layout.register[operation.inputs[0]]
                layout.ops.append((_OPERATORS["linear"][0], [source], register, [], weight, bias))
        return layout

    def _is_merged(self, operation: Operation) -> bool:
        """Whether an operation is a linear layer that can share a product with others."""
        return (
            operation.op == "linear" and operation.step is not None and is_whole(self._model, operation.step)
        )

    def _op(
        self, operation: Operation, layout: Layout, output: int
    ) -> tuple[int, list[int], int, list[float], int, int]:
        step = operation.step
        op, numbers, tensors = operation.op, [operation.factor], [-1, -1]
        if op == "combine":
            numbers, tensors = [float(operation.heads)], [operation.parts, int(operation.softmax)]
        if step is not None:
            _, settings, roles = _OPERATORS[op]
            if settings and op != "call":
                numbers = [
                    _as_number(step.attrs.get(name), choices, fallback)
                    for name, _, choices, _, fallback in settings
                ]
            if op == "call":
                tensors[0] = self._function(step.text("function"))
            elif op == "linear":
                op, numbers, tensors = "linear_by_head", *self._products_by_head(step, operation.factor)
            else:
                given = [self._vector(step.tensors.get(role)) for role, _ in roles]
                tensors = [*given, -1, -1][:2]
            if op == "lookup":
                numbers = [float(len(self._model.tensors[step.tensors["table"]]))]
            if op in _COUNTED:
                numbers = [*(numbers if settings else ()), float(self._count(step, _COUNTED[op]))]
        inputs = [layout.register[name] for name in operation.inputs]
        return _OPERATORS[op][0], inputs, output, numbers, tensors[0], tensors[1]

    def _vector(self, name: str | None) -> int:
        if name is None:
            return -1
        if (name,) not in self._tensors:
            self._tensors[name,] = self._program.add_vector(self._model.tensors[name].ravel())
        return self._tensors[name,]

    def _count(self, step: Step, role: str) -> int:
        return int(self._model.tensors[step.tensors[role]].shape[-1])

    def _function(self, name: str) -> int:
        if name not in self._functions:
            self._functions[name] = self._program.add_function(_as_float32(self._model.functions[name]))
        return self._functions[name]

    def _products_by_head(self, step: Step, factor: float) -> tuple[list[float], list[int]]:
        """The numbers (heads, and whether each head has its own matrix) and the tensors (the packed matrices,
        and the biases) of a product."""
        weight = np.float32(factor) * self._model.tensors[step.tensors["weight"]]
        own = weight.ndim == 3
        key = ("by head", step.tensors["weight"], str(factor))
        if key not in self._tensors:
            each = weight if own else weight[None]
            filled = -each.shape[1] % _PANEL
            padded = np.pad(each, ((0, 0), (0, filled), (0, 0))).reshape(-1, each.shape[2])
            self._tensors[key] = self._program.add_weight(np.ascontiguousarray(padded))
        heads = len(weight) if own else heads_of(step.attrs)
        bias = self._vector(step.tensors.get("bias"))
        return [float(heads), float(own)], [self._tensors[key], bias]

    def _products(self, operations: Sequence[Operation]) -> tuple[int, int]:
        steps = [operation.step for operation in operations if operation.step is not None]
        factors = [np.float32(operation.factor) for operation in operations if operation.step is not None]
        key = tuple(
            f"{step.tensors['weight']} {step.tensors.get('bias', '')} {factor}"
            for step, factor in zip(steps, factors, strict=True)
        )
        if key not in self._tensors:
            weights = [
                factor * self._model.tensors[step.tensors["weight"]]
                for step, factor in zip(steps, factors, strict=True)
            ]
            self._tensors[key] = self._program.add_weight(np.ascontiguousarray(np.concatenate(weights)))
            if any("bias" in step.tensors for step in steps):
                biases: list[FloatArray] = [
                    self._model.tensors[step.tensors["bias"]]
                    if "bias" in step.tensors
                    else np.zeros(len(weight), dtype=np.float32)
                    for step, weight in zip(steps, weights, strict=True)
                ]
                self._tensors[*key, "bias"] = self._program.add_vector(np.concatenate(biases))
        return self._tensors[key], self._tensors.get((*key, "bias"), -1)


def is_whole(model: Model, step: Step) -> bool:
    """Whether a linear layer multiplies its whole input with one matrix."""
    return heads_of(step.attrs) == 1 and model.tensors[step.tensors["weight"]].ndim == 2


def _as_number(value: Attribute, choices: Sequence[str], fallback: float) -> float:
    if value is None:
        return fallback
    if isinstance(value, str):
        return float(choices.index(value))
    assert isinstance(value, int | float)
    return float(value)


def _as_float32(function: Function) -> Function:
    def call(*rows: FloatArray) -> FloatArray:
        return np.ascontiguousarray(function(*rows), dtype=np.float32)

    call.__name__ = getattr(function, "__name__", "function")
    return call
