"""Builds the steps of a model whose layers are `Convolution` objects.

Two propagate steps keep the un-combined aggregate and the context, and a step on the target's rows combines
them. ``combine_inverse`` is therefore never computed in floating point; it is part of the definition, and
`livegnn.model.verify` checks it.
"""

from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

import numpy as np

from livegnn.errors import ModelError
from livegnn.network.checks import check_width, to_edge_type
from livegnn.network.own_convolution import AGGREGATES, CONTEXTS, Combine, Convolution, MessageArray, Widths
from livegnn.network.propagation import Aggregate, Propagate
from livegnn.network.steps import EdgeInput, Function, Input, Step
from livegnn.types import DEFAULT_EDGE_TYPE, EdgeType, FloatArray
from livegnn.wording import kind_of

Made = TypeVar("Made")
"""`Model`, which this module does not import."""


def build(
    make: Callable[..., Made],
    convolutions: Sequence[Convolution],
    in_channels: int,
    *,
    edge_type: EdgeType = DEFAULT_EDGE_TYPE,
    edge_dim: int = 0,
    check: Callable[[Convolution, int, int], None] | None = None,
) -> Made:
    """Implements `Model.from_convolutions`. make: makes the model, with the arguments of `Model`.

    check: (convolution, in_channels, edge_dim) -> raises `ModelError` if the convolution is not accepted.
    """
    if not isinstance(convolutions, Sequence) or not all(isinstance(c, Convolution) for c in convolutions):
        raise ModelError(f"convolutions must be a list of Convolution, got {_kinds(convolutions)}")
    if not convolutions:
        raise ModelError("a model must have a convolution, got none")
    check_width(in_channels, "in_channels", 1)
    check_width(edge_dim, "edge_dim", 0)
    edge_type = to_edge_type(edge_type, "edge_type")
    node_type, _, target_type = edge_type
    if node_type != target_type:
        raise ModelError(
            f"convolutions need edges between nodes of one type, got {node_type!r} to {target_type!r}"
        )
    assembly = _Assembly(edge_type, edge_dim)
    layers = ["x"]
    width = in_channels
    for number, convolution in enumerate(convolutions):
        if check is not None:
            check(convolution, width, edge_dim)
        widths = convolution.widths(width, edge_dim)
        layers.append(assembly.add(convolution, widths, layers[-1], f"h{number + 1}"))
        width = widths.output
    return make(
        inputs={"x": Input(node_type, in_channels)},
        steps=tuple(assembly.steps),
        tensors={},
        output=layers[-1],
        layers=tuple(layers),
        edge_inputs=assembly.edge_inputs,
        functions=assembly.functions,
    )


def _kinds(given: object) -> str:
    """Describes a wrong argument for an error; for a list, its first wrong item."""
    if not isinstance(given, list | tuple):
        return f"{kind_of(given)}: give [convolution] for one layer"
    wrong = next(one for one in given if not isinstance(one, Convolution))
    return f"{kind_of(wrong)} in it: Model.from_pyg imports layers of PyTorch"


class _RowFunction:
    """Wraps a user's function for a step: passes arrays by position, never calls it without rows, and
    returns float32."""

    def __init__(self, function: Function, width: int, names: Sequence[str] = ()) -> None:
        self.width = width
        self.names = tuple(names)
        self.__wrapped__ = function

    def __call__(self, *arrays: FloatArray) -> FloatArray:
        if not len(arrays[0]):
            return np.zeros((0, self.width), np.float32)
        if self.names:
            return np.asarray(self.__wrapped__(**dict(zip(self.names, arrays, strict=True))), np.float32)
        return np.asarray(self.__wrapped__(*arrays), np.float32)


def _one(rows: FloatArray) -> FloatArray:
    return np.ones((len(rows), 1), np.float32)


class _Assembly:
    """Collects the steps of convolutions, one after the other, on nodes of one type."""

    def __init__(self, edge_type: EdgeType, edge_dim: int) -> None:
        self.edge_type = edge_type
        self.edge_dim = edge_dim
        self.steps: list[Step] = []
        self.functions: dict[str, Function] = {}
        self.edge_inputs: dict[str, EdgeInput] = {}

    def add(self, convolution: Convolution, widths: Widths, h: str, output: str) -> str:
        """Appends a convolution that reads the value `h`; returns the value that it writes."""
        aggregate, context = convolution.aggregate_name(), convolution.context_name()
        if aggregate is None or context is None:
            what = "aggregate" if aggregate is None else "neighbor_context"
            raise ModelError(
                f"{convolution.name}: {what} is none that the engine keeps "
                f"({', '.join(AGGREGATES if aggregate is None else CONTEXTS)})"
            )
        if convolution.self_loops and aggregate != "sum":
            raise ModelError(f"{convolution.name}: self_loops need aggregate 'sum', got {aggregate!r}")
        value = h
        if callable(convolution.transform):
            value = self._call(f"{output}.transform", convolution.transform, (h,), widths.message)
        local, own = self._add_message(convolution, widths, h, output)
        summed = self._add_aggregate(convolution, aggregate, value, local, own, output)
        if convolution.combine is not None:
            if local is None or context == "count":
                local = own = self._call(f"{output}.one", _one, (h,), 1)
            loops = (local if own is None else own,) if convolution.self_loops else ()
            kept = self._propagate(f"{output}.context", (local, *loops), convolution)
            combine = Combine(convolution.combine)
            width = combine(*_two_rows(widths)).shape[1]
            summed = self._call(f"{output}.combine", combine, (kept, summed), width)
        if convolution.update is not None:
            return self._call(output, convolution.update, (h, summed), widths.output)
        return summed

    def _add_message(
        self, convolution: Convolution, widths: Widths, h: str, output: str
    ) -> tuple[str | None, str | None]:
        """The value of mlc, as rows of edges, or of nodes if it reads only the source; and that for
        self-loops."""
        if convolution.message_local is None:
            return None, None
        reads = convolution.message_reads
        function = convolution.message_local
        name = f"{output}.message_local"
        if reads == ("source",):
            local = self._call(name, function, (h,), widths.local, reads)
            return local, local
        inputs = tuple(self._add_read(array, h, output) for array in reads)
        local = self._call(name, function, inputs, widths.local, reads)
        own = None
        if convolution.self_loops:
            own = self._call(f"{name}.loop", function, (h,) * len(reads), widths.local, reads)
        return local, own

    def _add_read(self, array: MessageArray, h: str, output: str) -> str:
        if array == "weight" or array == "edge_attr":
            self.edge_inputs.setdefault(
                array,
                EdgeInput(self.edge_type, 1, "weight")
                if array == "weight"
                else EdgeInput(self.edge_type, self.edge_dim),
            )
            return array
        return self._gather(array, h, f"{output}.{array}")

    def _add_aggregate(
        self,
        convolution: Convolution,
        aggregate: Aggregate,
        value: str,
        local: str | None,
        own: str | None,
        output: str,
    ) -> str:
        name = f"{output}.aggregate"
        loops = convolution.self_loops
        if convolution.transform == "one" and local is not None:
            return self._propagate(name, (local, own or local) if loops else (local,), convolution, aggregate)
        if local is None:
            return self._propagate(name, (value, value) if loops else (value,), convolution, aggregate)
        if convolution.message_reads == ("source",):  # the message depends only on its source's row
            self.steps.append(Step("scale_heads", (value, local), f"{output}.message"))
            message = f"{output}.message"
            return self._propagate(name, (message,) * (1 + loops), convolution, aggregate)
        if aggregate == "sum":
            inputs = (value, local, value, own or local) if loops else (value, local)
            return self._propagate(name, inputs, convolution, aggregate, coefficients=True)
        place = "transformed" if callable(convolution.transform) else "source"
        gathered = self._gather("source", value, f"{output}.{place}")
        self.steps.append(Step("scale_heads", (gathered, local), f"{output}.message"))
        return self._propagate(name, (f"{output}.message",), convolution, aggregate)

    def _propagate(
        self,
        name: str,
        inputs: tuple[str, ...],
        convolution: Convolution,
        aggregate: Aggregate = "sum",
        coefficients: bool = False,
    ) -> str:
        operators = Propagate(
            self.edge_type,
            ("coefficient",) if coefficients else (),
            aggregate=aggregate,
            skip_loops=convolution.self_loops,
            own_message=convolution.self_loops,
        )
        self.steps.append(Step("propagate", inputs, name, attrs=operators.to_attrs()))
        return name

    def _call(
        self, name: str, function: Function, inputs: tuple[str, ...], width: int, names: Sequence[str] = ()
    ) -> str:
        self.functions[name] = _RowFunction(function, width, names)
        self.steps.append(Step("call", inputs, name, attrs={"function": name, "width": width}))
        return name

    def _gather(self, end: Literal["source", "target"], value: str, name: str) -> str:
        if not any(step.output == name for step in self.steps):
            self.steps.append(Step(end, (value,), name, attrs={"edge_type": self.edge_type}))
        return name


def _two_rows(widths: Widths) -> tuple[FloatArray, FloatArray]:
    rows = np.full((2, widths.message), 0.5, np.float32)
    return np.ones_like(rows), rows
