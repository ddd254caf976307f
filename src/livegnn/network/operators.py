"""The operators of steps: the inputs, tensors and settings of each, and the width of its output.

The native core computes the row-wise operators. Their names, numbers of inputs, settings and tensor roles are
read from its table (`_core.row_operators`); this module adds the widths of their outputs.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

import livegnn._core as _core
from livegnn.errors import ModelError
from livegnn.types import FloatArray

Attribute: TypeAlias = bool | int | float | str | tuple[str, ...] | list[str] | None
"""A setting of a step. Lists become tuples, so that a step equals itself after writing and reading JSON."""

Attributes: TypeAlias = Mapping[str, Attribute]
Shape: TypeAlias = tuple[int, ...]
Width: TypeAlias = Callable[[Sequence[int], Mapping[str, Shape], Attributes], int]
Test: TypeAlias = tuple[Callable[[Attribute], bool], str]


@dataclass(frozen=True)
class Operator:
    """The requirements of one operator, and the width of its output.

    least, most: number of inputs (`most` None: any number). required, optional: the roles of its tensors.
    attrs: setting -> (its test, the test in words). may_lack: the settings that may be left out. width:
    (input widths, shapes of the tensors by role, settings) -> output width; raises `ModelError`.
    """

    width: Width
    least: int = 1
    most: int | None = 1
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    attrs: Mapping[str, Test] = field(default_factory=dict)
    may_lack: frozenset[str] = frozenset()
    summary: str = ""


def check_values(op: str, widths: Sequence[int], tensors: Mapping[str, FloatArray]) -> None:
    """Raises `ModelError` if the values in an operator's tensors are not valid. widths: of its inputs."""
    if op in ("take", "one_hot"):
        channels = tensors["channels"]
        wrong = channels[(channels != np.trunc(channels)) | (channels < 0) | (channels >= widths[0])]
        if wrong.size:
            raise ModelError(
                f"channels must be whole numbers from 0 to {widths[0] - 1}, got {float(wrong[0])}"
            )


def heads_of(attrs: Attributes) -> int:
    """The number of heads of a step; 1 by default."""
    heads = attrs.get("heads", 1)
    assert isinstance(heads, int)
    return heads


# -- widths
# -----------------------------------------------------------------------------------------------------------


def _elementwise(widths: Sequence[int], shapes: Mapping[str, Shape], attrs: Attributes) -> int:
    if len(set(widths) - {1}) > 1:
        raise ModelError(f"inputs must be of one width, or of width 1, got {', '.join(map(str, widths))}")
    return max(widths)


def _same(widths: Sequence[int], shapes: Mapping[str, Shape], attrs: Attributes) -> int:
    _by_head(widths[0], attrs)
    for role, shape in shapes.items():
        if shape != (widths[0],):
            raise ModelError(f"{role} must have shape ({widths[0]},) like its input, got {shape}")
    return widths[0]


def _linear(widths: Sequence[int], shapes: Mapping[str, Shape], attrs: Attributes) -> int:
    weight, bias, (width,) = shapes["weight"], shapes.get("bias"), widths
    own = len(weight) == 3
    heads = weight[0] if own and "heads" not in attrs else heads_of(attrs)
    if own and weight[0] != heads:
        raise ModelError(f"weight must have a matrix for each of the {heads} heads, got {weight[0]}")
    if len(weight) not in (2, 3) or weight[-1] * heads != width or 0 in weight:
        several = f" of {heads} heads" if heads > 1 else ""
        inner = width // heads if width % heads == 0 else f"{width} / {heads}"
        raise ModelError(
            f"weight must have shape (outputs, {inner}), or one of these for each head, for {width} input "
            f"channels{several}, got {weight}"
        )
    outputs = weight[-2] * (heads if own else 1)
    if bias not in (None, (outputs,)):
        raise ModelError(f"bias must have shape ({outputs},) like the rows of the weight, got {bias}")
    return weight[-2] * heads


def _matmul(widths: Sequence[int], shapes: Mapping[str, Shape], attrs: Attributes) -> int:
    batch, rows, inner, columns = (_whole(attrs, name) for name in ("batch", "rows", "inner", "columns"))
    for name, width, size in (("a", widths[0], rows * inner), ("b", widths[1], inner * columns)):
        if width not in (size, batch * size):
            raise ModelError(
                f"{name} must be {batch * size} channels wide, {batch} matrices of {size} numbers, or "
                f"{size}, one for all, got {width}"
            )
    return batch * rows * columns


def _scale_shift(widths: Sequence[int], shapes: Mapping[str, Shape], attrs: Attributes) -> int:
    if not shapes:
        raise ModelError("must have a scale, a shift or both, got neither")
    return _same(widths, shapes, attrs)


def _scale_heads(widths: Sequence[int], shapes: Mapping[str, Shape], attrs: Attributes) -> int:
    rows, factors = widths
    if rows % factors:
        raise ModelError(f"the {rows} channels must be as many for each of the {factors} factors")
    return rows


def _reduce(widths: Sequence[int], shapes: Mapping[str, Shape], attrs: Attributes) -> int:
    before, size, after = (_whole(attrs, name) for name in ("before", "size", "after"))
    if before * size * after != widths[0]:
        raise ModelError(
            f"before * size * after must be the {widths[0]} channels of the input, got "
            f"{before} * {size} * {after}"
        )
    return before * after


def _slice(widths: Sequence[int], shapes: Mapping[str, Shape], attrs: Attributes) -> int:
    start, stop = _whole(attrs, "start"), _whole(attrs, "stop")
    if not start < stop <= widths[0]:
        raise ModelError(
            f"start must be below stop, and stop not above the {widths[0]} channels of the input, got "
            f"start {start} and stop {stop}"
        )
    return stop - start


def _repeat(widths: Sequence[int], shapes: Mapping[str, Shape], attrs: Attributes) -> int:
    inner = _whole(attrs, "inner")
    if widths[0] % inner:
        raise ModelError(f"the {widths[0]} channels must be runs of inner channels, got inner {inner}")
    return widths[0] * _whole(attrs, "times")


def _vector(widths: Sequence[int], shapes: Mapping[str, Shape], attrs: Attributes) -> int:
    ((role, shape),) = shapes.items()
    if len(shape) != 1 or shape[0] == 0:
        raise ModelError(f"{role} must be a vector with a number for each channel of the output, got {shape}")
    return shape[0]


def _constant(widths: Sequence[int], shapes: Mapping[str, Shape], attrs: Attributes) -> int:
    if bool(shapes) == ("value" in attrs):
        raise ModelError("must have a row or a value, got both" if shapes else "must have a row or a value")
    return _vector(widths, shapes, attrs) if shapes else 1


def _lookup(widths: Sequence[int], shapes: Mapping[str, Shape], attrs: Attributes) -> int:
    table = shapes["table"]
    if len(table) != 2 or 0 in table:
        raise ModelError(f"table must have shape (numbers, channels), got {table}")
    if table[0] > _LARGEST_NUMBER:
        raise ModelError(
            f"table must have at most {_LARGEST_NUMBER} rows, as float32 has no whole numbers between "
            f"others above that, got {table[0]}"
        )
    return widths[0] * table[1]


def _tensor(*outer: int, inner: str = "", least: int = 1) -> Width:
    """As wide as the input; each tensor is [*outer, channels] or, with `inner`, [*outer, channels, inner],
    where `inner` is `least` or more."""

    def width(widths: Sequence[int], shapes: Mapping[str, Shape], attrs: Attributes) -> int:
        for name, shape in shapes.items():
            before, after = shape[: len(outer) + 1], shape[len(outer) + 1 :]
            fits = len(after) == 1 and after[0] >= least if inner else after == ()
            if before != (*outer, widths[0]) or not fits:
                wanted = ", ".join([*map(str, outer), str(widths[0]), *([inner] if inner else [])])
                raise ModelError(f"{name} must have shape ({wanted}), got {shape}")
        return widths[0]

    return width


def _one_hot(widths: Sequence[int], shapes: Mapping[str, Shape], attrs: Attributes) -> int:
    channels, categories = shapes["channels"], shapes["categories"]
    if channels != categories:
        raise ModelError(f"categories must have shape {channels} like the channels, got {categories}")
    return _vector(widths, {"channels": channels}, attrs)


def _by_degree(widths: Sequence[int], shapes: Mapping[str, Shape], attrs: Attributes) -> int:
    if widths[1] != 1:
        raise ModelError(f"the degree must be 1 channel wide, got {widths[1]}")
    return widths[0]


def _by_head(width: int, attrs: Attributes) -> int:
    heads = heads_of(attrs)
    if width % heads:
        raise ModelError(f"the {width} channels must be as many for each of the {heads} heads")
    return heads


def _whole(attrs: Attributes, name: str) -> int:
    value = attrs[name]
    assert isinstance(value, int)
    return value


_LARGEST_NUMBER = 2**24
_WIDTHS: Mapping[str, Width] = {
    "linear": _linear,
    "matmul": _matmul,
    "scale_shift": _scale_shift,
    "scale_heads": _scale_heads,
    "sum_channels": lambda widths, shapes, attrs: _by_head(widths[0], attrs),
    "sum_heads": lambda widths, shapes, attrs: widths[0] // _by_head(widths[0], attrs),
    "reduce": _reduce,
    "concat": lambda widths, shapes, attrs: sum(widths),
    "slice": _slice,
    "repeat": _repeat,
    "take": _vector,
    "constant": _constant,
    "lookup": _lookup,
    "standardize": _tensor(3),
    "fill_missing": _tensor(),
    "quantile": _tensor(3, inner="quantiles, 2 or more", least=2),
    "bucketize": _tensor(inner="boundaries"),
    "ordinal": _tensor(inner="categories"),
    "one_hot": _one_hot,
    "cyclic": lambda widths, shapes, attrs: 2 * widths[0],
}
_WIDTHS_OF_GROUPS: Mapping[str, Width] = {"elementwise": _elementwise, "by head": _same}


# -- settings
# -----------------------------------------------------------------------------------------------------------


def _is_whole(value: Attribute) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_count(value: Attribute) -> bool:
    return _is_whole(value) and value != 0


def _is_text(value: Attribute) -> bool:
    return isinstance(value, str) and value != ""


def _is_edge_type(value: Attribute) -> bool:
    return isinstance(value, tuple) and len(value) == 3 and all(map(_is_text, value))


def _is_number(value: Attribute) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_positive(value: Attribute) -> bool:
    return _is_number(value) and isinstance(value, int | float) and value > 0


_COUNT = (_is_count, "a whole number above 0")
_EDGE_TYPE = (_is_edge_type, "three names (source type, relation, target type)")
_TESTS: Mapping[str, Test] = {
    "number": (_is_number, "a finite number"),
    "positive": (_is_positive, "a finite number above 0"),
    "count": _COUNT,
    "index": (_is_whole, "a whole number from 0 on"),
    "bound": (lambda value: value is None or _is_number(value), "a finite number or None"),
}


def _test(kind: str, choices: Sequence[str]) -> Test:
    if kind != "choice":
        return _TESTS[kind]
    words = [repr(choice) for choice in choices]
    return (lambda value: value in choices), f"{', '.join(words[:-1])} or {words[-1]}"


def _read_native() -> dict[str, Operator]:
    operators = {}
    for name, group, least, most, settings, tensors, summary in _core.row_operators():
        if group == "engine":
            continue
        operators[name] = Operator(
            _WIDTHS[name] if name in _WIDTHS else _WIDTHS_OF_GROUPS[group],
            least,
            None if most < 0 else most,
            tuple(role for role, optional in tensors if not optional),
            tuple(role for role, optional in tensors if optional),
            {name: _test(kind, choices) for name, kind, choices, _, _ in settings},
            frozenset(name for name, _, _, optional, _ in settings if optional),
            summary,
        )
    return operators


ROW_OPERATORS: Mapping[str, Operator] = _read_native()
"""Row-wise operators: row i of the output depends only on row i of the inputs. ``call`` is not included."""

PRODUCTS = frozenset(name for name, group, *_ in _core.row_operators() if group == "product")
"""Row-wise operators whose cost exceeds that of reading their inputs."""

OPERATORS: Mapping[str, Operator] = {
    **ROW_OPERATORS,
    "call": Operator(
        lambda widths, shapes, attrs: _whole(attrs, "width"),
        most=None,
        attrs={"function": (_is_text, "the name of a function"), "width": _COUNT},
        summary="a function of the user's: arrays [rows, channels] -> [rows, width]",
    ),
    "source": Operator(_same, attrs={"edge_type": _EDGE_TYPE}, summary="h_u, for every edge (u, v)"),
    "target": Operator(_same, attrs={"edge_type": _EDGE_TYPE}, summary="h_v, for every edge (u, v)"),
    "degree": Operator(
        # livegnn.network.propagation checks the rest, and that of a propagation.
        lambda widths, shapes, attrs: 1,
        least=0,
        most=0,
        summary="the number of a node's in-edges, or the sum of their weights",
    ),
    "divide_degree": Operator(
        _by_degree, least=2, most=2, summary="x / degree, 0 where the degree is not positive"
    ),
    "rsqrt_degree": Operator(
        _by_degree, least=2, most=2, summary="x / sqrt(degree), 0 where the degree is 0, NaN below"
    ),
    "propagate": Operator(
        lambda widths, shapes, attrs: widths[0],
        most=None,
        summary="rows of the source nodes, or of the edges, aggregated along the edges into their targets",
    ),
}
