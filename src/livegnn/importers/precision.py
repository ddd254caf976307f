"""What a model, which computes in float32, would silently compute otherwise than its module.

Narrow whole numbers wrap around, float64 keeps digits that float32 has not, and the remainder of a product of
whole numbers is lost with its last digits.
"""

from collections.abc import Iterator, Mapping
from typing import TypeGuard

import torch
from torch import fx

from livegnn.errors import ModelError
from livegnn.importers.values import Value

_NARROW = (torch.int8, torch.uint8, torch.int16)
_WRAPPING = frozenset(
    {"_to_copy", "add", "sub", "mul", "neg", "sum", "pow", "abs", "cumsum", "floor_divide", "div"}
    | {"scatter_add", "index_add", "scatter_reduce"}
)
"""Operators whose results may be larger than their operands, or have another dtype."""

_MOVING = frozenset(
    {"_to_copy", "clone", "alias", "detach", "contiguous", "view", "_unsafe_view", "reshape", "expand", "cat"}
    | {"select", "slice", "squeeze", "unsqueeze", "permute", "t", "transpose", "index", "index_select"}
    | {"gather", "full", "empty", "zeros", "ones", "new_zeros", "new_ones", "new_full", "full_like"}
)
"""Operators that move numbers, or convert them, and compute none."""

_REDUCING = frozenset(
    {"remainder", "fmod", "floor_divide", "div"}
    | {"bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_right_shift"}
)
"""Operators that make small numbers of the last digits of large ones."""

_GROWING = frozenset(["mul", "pow", "sum", "scatter_add", "index_add", "index_put", "bitwise_left_shift"])
_LARGEST = 2**24
"""Up to here float32 has every whole number."""


def check_precision(node: fx.Node, name: str, read: Mapping[fx.Node, object], *, wide: bool) -> None:
    """Raises `ModelError` if a model would not say what an operator says.

    name: the operator's. read: the values of the nodes up to this one. wide: whether the module is in float64
    as a whole, which says that its numbers need not be.
    """
    if not _has_rows(read[node]):
        return
    dtype = node.meta["val"].dtype
    if dtype in _NARROW and name in _WRAPPING and not _counts_tests(node, read):
        raise ModelError(f"numbers become {dtype}, which wraps around where they are large: use torch.int64")
    operands = [one.meta.get("val") for one in node.all_input_nodes if _has_rows(read.get(one))]
    dtypes = {one.dtype for one in operands if isinstance(one, torch.Tensor)}
    if not wide and name not in _MOVING and torch.float64 in {dtype, *dtypes}:
        raise ModelError(
            f"{name} is computed in float64 here, and a model computes in float32: leave .double() out where "
            "float32 is enough, or give numbers as features that need no more, such as times since a late day"
        )
    if name in _REDUCING and _is_whole(dtype) and (name != "div" or "rounding_mode" in node.kwargs):
        grown = next(_find_grown(node, read), None)
        if grown is not None:
            raise ModelError(
                f"{name} takes the last digits of whole numbers that may be above {_LARGEST:,}, because of "
                f"{grown}, and a model computes in float32, which has no such digits: give the result as a "
                "column of features"
            )


def _has_rows(value: object) -> TypeGuard[Value]:
    return isinstance(value, Value) and any(piece.row.value is None for piece in value.pieces)


def _counts_tests(node: fx.Node, read: Mapping[fx.Node, object]) -> bool:
    """Whether all operands are True or False."""
    values = [read[one] for one in node.all_input_nodes]
    return all(isinstance(one, Value) and one.kind == "bool" for one in values)


def _is_whole(dtype: torch.dtype) -> bool:
    return not dtype.is_floating_point and dtype != torch.bool


def _find_grown(node: fx.Node, read: Mapping[fx.Node, object]) -> Iterator[str]:
    """What makes the whole numbers large that an operator reads: products, sums, large constants."""
    seen, left = {node}, list(node.all_input_nodes)
    yield from _large_constants(node)
    while left:
        one = left.pop()
        tensor = one.meta.get("val")
        if one in seen or not isinstance(tensor, torch.Tensor) or not _is_whole(tensor.dtype):
            continue
        seen.add(one)
        name = str(one.target).removeprefix("aten.").partition(".")[0]
        if one.op == "call_function" and name in _GROWING and _reads_numbers(one, read):
            yield f"a {name}" if name not in ("mul", "pow") else "a product"
        yield from _large_constants(one)
        if one.op == "call_function" and name != "_to_copy":
            left += one.all_input_nodes


def _reads_numbers(node: fx.Node, read: Mapping[fx.Node, object]) -> bool:
    """Whether it reads rows of whole numbers: not just ends of edges, tests, or ones that are counted."""
    return any(_has_rows(one) and one.kind == "int" for one in map(read.get, node.all_input_nodes))


def _large_constants(node: fx.Node) -> Iterator[str]:
    for number in node.args:
        if isinstance(number, int) and abs(number) > _LARGEST:
            yield f"{number:,}"
