"""Where values lie while rows are computed, and what computes them, as the native program has it."""

from collections.abc import Mapping, Sequence

import numpy as np

from livegnn import _core
from livegnn.inference.messages import Operation
from livegnn.model import Function, Model
from livegnn.types import FloatArray

# In the order of OpKind in cpp/include/livegnn/program.h.
_KINDS = {
    name: kind
    for kind, name in enumerate(
        [
            "linear",
            "scale_shift",
            "scale",
            "layer_norm",
            "l2_normalize",
            "relu",
            "leaky_relu",
            "elu",
            "gelu",
            "gelu_tanh",
            "sigmoid",
            "tanh",
            "softmax",
            "log_softmax",
            "add",
            "multiply",
            "maximum",
            "concat",
            "divide_context",
            "rsqrt_context",
            "add_loop",
            "exp",
            "sum_channels",
            "sum_heads",
            "scale_heads",
            "combine",
            "call",
            "maximum_loop",
        ]
    )
}
_NUMBERS = {
    "scale": "value",
    "layer_norm": "eps",
    "l2_normalize": "eps",
    "leaky_relu": "slope",
    "elu": "alpha",
}
_TENSORS = {
    "linear": ("weight", "bias"),
    "scale_shift": ("scale", "shift"),
    "layer_norm": ("weight", "bias"),
}


class Layout:
    """Where values lie while rows are computed: buffers, and registers that are columns of them."""

    def __init__(self) -> None:
        self.buffers: list[int] = []
        self.registers: list[tuple[int, int, int]] = []
        self.register: dict[str, int] = {}
        self.ops: list[tuple[int, list[int], int, float, int, int]] = []

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
    """Lays out rows for one program, which gets each tensor and each function of the model once."""

    def __init__(self, model: Model, program: _core.Program) -> None:
        self._model = model
        self._program = program
        self._tensors: dict[tuple[str, ...], int] = {}
        self._functions: dict[str, int] = {}

    def lay_out(self, sources: Mapping[str, int], operations: Sequence[Operation]) -> Layout:
        """Registers for each value; linear layers of one input become one product, side by side.

        sources: name -> width of the rows that are read where they lie.
        """
        layout = Layout()
        for name, width in sources.items():
            layout.add_source(name, width)
        merged: dict[str, list[Operation]] = {}
        for operation in operations:
            if operation.op == "linear":
                merged.setdefault(operation.inputs[0], []).append(operation)
        for operation in operations:
            if operation.op != "linear":
                register = layout.add(operation.output, operation.width)
                layout.ops.append(self._op(operation, layout, register))
                continue
            together = merged[operation.inputs[0]]
            if operation is together[0]:
                register = layout.add_side_by_side([(o.output, o.width) for o in together])
                weight, bias = self._products(together)
                source = layout.register[operation.inputs[0]]
                layout.ops.append((_KINDS["linear"], [source], register, 0.0, weight, bias))
        return layout

    def _op(
        self, operation: Operation, layout: Layout, output: int
    ) -> tuple[int, list[int], int, float, int, int]:
        step = operation.step
        op, number, tensors = operation.op, operation.factor, [-1, -1]
        if op == "combine":
            number, tensors = float(operation.heads), [operation.parts, int(operation.softmax)]
        if step is not None:
            if op == "gelu" and step.attrs["approximate"] == "tanh":
                op = "gelu_tanh"
            if op in _NUMBERS:
                number = step.number(_NUMBERS[op])
            roles = _TENSORS.get(op, ())
            tensors = [self._vector(step.tensors.get(role)) for role in roles] or tensors
            if op == "call":
                tensors[0] = self._function(step.text("function"))
        inputs = [layout.register[name] for name in operation.inputs]
        return _KINDS[op], inputs, output, number, tensors[0], tensors[1]

    def _vector(self, name: str | None) -> int:
        if name is None:
            return -1
        if (name,) not in self._tensors:
            self._tensors[name,] = self._program.add_vector(self._model.tensors[name])
        return self._tensors[name,]

    def _function(self, name: str) -> int:
        if name not in self._functions:
            self._functions[name] = self._program.add_function(_as_float32(self._model.functions[name]))
        return self._functions[name]

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


def _as_float32(function: Function) -> Function:
    def call(*rows: FloatArray) -> FloatArray:
        return np.ascontiguousarray(function(*rows), dtype=np.float32)

    call.__name__ = getattr(function, "__name__", "function")
    return call
