"""A step of a model: one operator, the values it reads, the value it writes, its weights and settings.

A value has a row for every node of a type, or a row for every edge of a type. `OPERATORS` is the whole
vocabulary. Most operators are row-wise: row i of the output depends on row i of the inputs alone, be they
nodes or edges. ``source`` and ``target`` give each edge the row of one of its ends; ``propagate``
(`livegnn.model.propagation`) brings rows along the edges into the target nodes; ``degree`` reads no
value, but what the edges of each node add up to.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from livegnn.errors import ModelError
from livegnn.types import EdgeType

Attribute: TypeAlias = bool | int | float | str | tuple[str, ...] | list[str] | None
"""A setting of a step. Lists become tuples, so that a step read from JSON equals the one written."""

Attributes: TypeAlias = Mapping[str, Attribute]
Shape: TypeAlias = tuple[int, ...]


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


@dataclass(frozen=True)
class Operator:
    """What a step of one kind takes, and how wide its output is.

    least, most: how many inputs (`most` None: any number). required, optional: the roles of its tensors.
    attrs: setting -> (its test, the test in words). width: (input widths, shapes of the tensors by role,
    settings) -> output width, or a `ModelError`.
    """

    width: Callable[[Sequence[int], Mapping[str, Shape], Mapping[str, Attribute]], int]
    least: int = 1
    most: int | None = 1
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    attrs: Mapping[str, tuple[Callable[[Attribute], bool], str]] = field(default_factory=dict)
    summary: str = ""


def describe(step: Step) -> str:
    """How error messages name a step."""
    return f"step {step.op!r} that writes {step.output!r}"


def check_step(step: Step, widths: Sequence[int], shapes: Mapping[str, Shape]) -> int:
    """The width of a step's output.

    widths: of its inputs, in order. shapes: role -> shape of that tensor.
    Raises `ModelError` if the step is none of `OPERATORS`, or its inputs, tensors or settings do not fit
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
    if step.op not in ("propagate", "degree"):  # whose settings have classes: livegnn.model.propagation
        _check_names(step, "attribute", step.attrs, tuple(operator.attrs), ())
        for name, (test, words) in operator.attrs.items():
            if not test(step.attrs[name]):
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


def _same(widths: Sequence[int], shapes: Mapping[str, Shape], attrs: Attributes) -> int:
    if len(set(widths)) > 1:
        raise ModelError(f"inputs must be of one width, got {', '.join(map(str, widths))}")
    for role, shape in shapes.items():
        if shape != (widths[0],):
            raise ModelError(f"{role} must have shape ({widths[0]},) like its input, got {shape}")
    return widths[0]


def _linear(widths: Sequence[int], shapes: Mapping[str, Shape], attrs: Attributes) -> int:
    weight = shapes["weight"]
    if len(weight) != 2 or weight[1] != widths[0]:
        raise ModelError(
            f"weight must have shape (outputs, {widths[0]}) for {widths[0]} input channels, got {weight}"
        )
    bias = shapes.get("bias", weight[:1])
    if bias != weight[:1]:
        raise ModelError(f"bias must have shape ({weight[0]},) like the rows of the weight, got {bias}")
    return weight[0]


def _scale_shift(widths: Sequence[int], shapes: Mapping[str, Shape], attrs: Attributes) -> int:
    if not shapes:
        raise ModelError("must have a scale, a shift or both, got neither")
    return _same(widths, shapes, attrs)


def _concat(widths: Sequence[int], shapes: Mapping[str, Shape], attrs: Attributes) -> int:
    return sum(widths)


def _sum_channels(widths: Sequence[int], shapes: Mapping[str, Shape], attrs: Attributes) -> int:
    return _heads(widths[0], attrs)


def _sum_heads(widths: Sequence[int], shapes: Mapping[str, Shape], attrs: Attributes) -> int:
    return widths[0] // _heads(widths[0], attrs)


def _scale_heads(widths: Sequence[int], shapes: Mapping[str, Shape], attrs: Attributes) -> int:
    rows, factors = widths
    if rows % factors:
        raise ModelError(f"the {rows} channels must be as many for each of the {factors} factors")
    return rows


def _call(widths: Sequence[int], shapes: Mapping[str, Shape], attrs: Attributes) -> int:
    width = attrs["width"]
    assert isinstance(width, int)
    return width


def _propagate(widths: Sequence[int], shapes: Mapping[str, Shape], attrs: Attributes) -> int:
    return widths[0]  # the rest is for livegnn.model.propagation.Propagate.check_widths


def _degree(widths: Sequence[int], shapes: Mapping[str, Shape], attrs: Attributes) -> int:
    return 1  # the rest is for livegnn.model.propagation.Degree


def _heads(width: int, attrs: Attributes) -> int:
    heads = attrs["heads"]
    assert isinstance(heads, int)
    if width % heads:
        raise ModelError(f"the {width} channels must be as many for each of the {heads} heads")
    return heads


def _is_count(value: Attribute) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_text(value: Attribute) -> bool:
    return isinstance(value, str) and value != ""


def _is_edge_type(value: Attribute) -> bool:
    return isinstance(value, tuple) and len(value) == 3 and all(map(_is_text, value))


def _is_number(value: Attribute) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_positive(value: Attribute) -> bool:
    return _is_number(value) and isinstance(value, int | float) and value > 0


def _is_approximation(value: Attribute) -> bool:
    return value in ("none", "tanh")


_NUMBER = (_is_number, "a finite number")
_POSITIVE = (_is_positive, "a finite number above 0")
_COUNT = (_is_count, "a whole number above 0")
_EDGE_TYPE = (_is_edge_type, "three names (source type, relation, target type)")

OPERATORS: Mapping[str, Operator] = {
    "linear": Operator(_linear, required=("weight",), optional=("bias",), summary="x @ weight.T + bias"),
    "scale_shift": Operator(
        _scale_shift, optional=("scale", "shift"), summary="x * scale + shift, channel by channel"
    ),
    "scale": Operator(_same, attrs={"value": _NUMBER}, summary="x * value"),
    "layer_norm": Operator(
        _same,
        optional=("weight", "bias"),
        attrs={"eps": _POSITIVE},
        summary="(x - mean(x)) / sqrt(var(x) + eps) * weight + bias, over a node's channels",
    ),
    "l2_normalize": Operator(
        _same, attrs={"eps": _POSITIVE}, summary="x / max(|x|, eps), |x| over a node's channels"
    ),
    "relu": Operator(_same, summary="max(x, 0)"),
    "leaky_relu": Operator(_same, attrs={"slope": _NUMBER}, summary="x where x > 0, else slope * x"),
    "elu": Operator(_same, attrs={"alpha": _NUMBER}, summary="x where x > 0, else alpha * (exp(x) - 1)"),
    "gelu": Operator(
        _same,
        attrs={"approximate": (_is_approximation, "'none' or 'tanh'")},
        summary="x * Phi(x) with the normal distribution function Phi, or its tanh approximation",
    ),
    "sigmoid": Operator(_same, summary="1 / (1 + exp(-x))"),
    "tanh": Operator(_same, summary="tanh(x)"),
    "softmax": Operator(_same, summary="exp(x) / sum(exp(x)) over a node's channels"),
    "log_softmax": Operator(_same, summary="log(softmax(x))"),
    "add": Operator(_same, least=2, most=2, summary="a + b"),
    "multiply": Operator(_same, least=2, most=2, summary="a * b"),
    "maximum": Operator(_same, least=2, most=2, summary="the larger of a and b"),
    "concat": Operator(
        _concat, least=2, most=None, summary="the channels of all inputs, one after the other"
    ),
    "exp": Operator(_same, summary="exp(x)"),
    "sum_channels": Operator(
        _sum_channels, attrs={"heads": _COUNT}, summary="the sum of each head's channels: [heads]"
    ),
    "sum_heads": Operator(
        _sum_heads, attrs={"heads": _COUNT}, summary="the sum over the heads, channel by channel: [channels]"
    ),
    "scale_heads": Operator(
        _scale_heads, least=2, most=2, summary="each head's channels of a, times that head's number in b"
    ),
    "call": Operator(
        _call,
        most=None,
        attrs={"function": (_is_text, "the name of a function"), "width": _COUNT},
        summary="a function of the user's: arrays [rows, channels] -> [rows, width]",
    ),
    "source": Operator(_same, attrs={"edge_type": _EDGE_TYPE}, summary="h_u, for every edge (u, v)"),
    "target": Operator(_same, attrs={"edge_type": _EDGE_TYPE}, summary="h_v, for every edge (u, v)"),
    "degree": Operator(
        _degree, least=0, most=0, summary="the number of a node's in-edges, or the sum of their weights"
    ),
    "propagate": Operator(
        _propagate,
        most=None,
        summary="rows of the source nodes, or of the edges, aggregated along the edges into their targets",
    ),
}
