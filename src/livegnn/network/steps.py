"""A step of a model: one operator, the values it reads, the value it writes, its weights and settings; and
the values that a model reads from a graph.

A value has a row for every node of a type, or a row for every edge of a type. `livegnn.network.operators`
lists all operators. Most are row-wise: row i of the output depends only on row i of the inputs, for nodes and
for edges. ``source`` and ``target`` give each edge the row of one of its ends. ``propagate``
(`livegnn.network.propagation`) aggregates rows along the edges into the target nodes. ``degree`` reads no
value and counts the edges of each node, or sums their weights.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from livegnn.errors import ModelError
from livegnn.network.operators import OPERATORS, Attribute, Shape
from livegnn.types import EdgeType, FloatArray, NodeType

Function: TypeAlias = Callable[..., FloatArray]
"""An operator that the user defines, row by row: float32 arrays [rows, channels] -> float32 [rows, width]."""


@dataclass(frozen=True)
class Input:
    """A value that the model reads from the graph: the features of one node type, `width` channels each.

    columns: the names of the raw columns, if transforms read them.
    """

    node_type: NodeType
    width: int
    columns: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        """The input as JSON values."""
        return {"node_type": self.node_type, "width": self.width, **_named(self.columns)}


@dataclass(frozen=True)
class EdgeInput:
    """A value that the model reads from the edges of one type: their features, or their weight.

    columns: as of `Input`.
    """

    edge_type: EdgeType
    width: int = 1
    column: Literal["edge_attr", "weight"] = "edge_attr"
    columns: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        """The input as JSON values."""
        known = {"edge_type": list(self.edge_type), "width": self.width, "column": self.column}
        return {**known, **_named(self.columns)}


def _named(columns: tuple[str, ...]) -> dict[str, object]:
    return {"columns": list(columns)} if columns else {}


@dataclass(frozen=True)
class Step:
    """One operator of a model.

    op: a name in `OPERATORS`. inputs: the names of the values it reads. output: of the value it writes.
    tensors: role (``"weight"``) -> name of the tensor in the model. attrs: setting -> value.
    """

    op: str
    inputs: tuple[str, ...]
    output: str
    tensors: Mapping[str, str] = field(default_factory=dict)
    attrs: Mapping[str, Attribute] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", tuple(self.inputs))
        object.__setattr__(self, "tensors", dict(self.tensors))
        attrs = {name: tuple(v) if isinstance(v, list) else v for name, v in self.attrs.items()}
        object.__setattr__(self, "attrs", attrs)

    def number(self, attr: str) -> float:
        """The setting `attr`, which must be a number."""
        value = self.attrs.get(attr)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ModelError(f"{describe(self)}: attribute {attr!r} must be a number, got {value!r}")
        return float(value)

    def text(self, attr: str) -> str:
        """The setting `attr`, which must be a text."""
        value = self.attrs.get(attr)
        if not isinstance(value, str):
            raise ModelError(f"{describe(self)}: attribute {attr!r} must be a text, got {value!r}")
        return value

    def edge_type(self) -> EdgeType:
        """The setting ``edge_type`` of a step that reads or writes rows of edges of one type."""
        value = self.attrs.get("edge_type")
        if not isinstance(value, tuple) or len(value) != 3:
            raise ModelError(f"{describe(self)}: edge_type must be (source, relation, target), got {value!r}")
        return value


def needed_steps(steps: Sequence[Step], values: Collection[str]) -> list[Step]:
    """The steps that these values need, in topological order."""
    wanted, needed = set(values), []
    for step in reversed(steps):
        if step.output in wanted:
            wanted.update(step.inputs)
            needed.append(step)
    return needed[::-1]


def describe(step: Step) -> str:
    """The name of a step in error messages."""
    return f"step {step.op!r} that writes {step.output!r}"


def check_step(step: Step, widths: Sequence[int], shapes: Mapping[str, Shape]) -> int:
    """The width of a step's output.

    widths: of its inputs, in order. shapes: role -> shape of that tensor.
    Raises `ModelError` if the operator is not in `OPERATORS`, or its inputs, tensors or settings do not fit
    together.
    """
    operator = OPERATORS.get(step.op)
    if operator is None:
        raise ModelError(f"{describe(step)}: unknown operator, must be one of {', '.join(sorted(OPERATORS))}")
    count = len(step.inputs)
    if count < operator.least or (operator.most is not None and count > operator.most):
        most = "or more" if operator.most is None else f"to {operator.most}"
        expected = str(operator.least) if operator.least == operator.most else f"{operator.least} {most}"
        raise ModelError(f"{describe(step)}: must have {expected} input(s), got {count}")
    _check_names(step, "tensor", step.tensors, operator.required, operator.optional)
    if step.op not in ("propagate", "degree"):  # their settings have classes: livegnn.network.propagation
        required = tuple(name for name in operator.attrs if name not in operator.may_lack)
        optional = tuple(name for name in operator.attrs if name in operator.may_lack)
        _check_names(step, "attribute", step.attrs, required, optional)
        for name, (test, words) in operator.attrs.items():
            if name in step.attrs and not test(step.attrs[name]):
                raise ModelError(
                    f"{describe(step)}: attribute {name!r} must be {words}, got {step.attrs[name]!r}"
                )
    try:
        return operator.width(widths, shapes, step.attrs)
    except ModelError as error:
        raise ModelError(f"{describe(step)}: {error}") from None


def _check_names(
    step: Step, kind: str, given: Mapping[str, object], required: tuple[str, ...], optional: tuple[str, ...]
) -> None:
    missing = [name for name in required if name not in given]
    unknown = sorted(set(given) - set(required) - set(optional))
    if missing or unknown:
        takes = ", ".join([*required, *(f"{name} (optional)" for name in optional)]) or "none"
        wrong = f"{missing[0]!r} is missing" if missing else f"{unknown[0]!r} is not one of them"
        raise ModelError(f"{describe(step)}: takes these {kind}s: {takes}; {wrong}")
