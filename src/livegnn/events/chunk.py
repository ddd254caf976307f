"""A run of events of the same kind as columns, and the conversion of a caller's values to those columns.

The values of every batch are converted here, so a value that already has the right form costs a few checks
and no copy.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias, TypeVar, cast

import numpy as np

from livegnn.arguments import as_array, as_text, as_times, check_lengths, plain_numbers
from livegnn.errors import InputError
from livegnn.texts import Texts
from livegnn.types import (
    DEFAULT_EDGE_TYPE,
    DEFAULT_NODE_TYPE,
    DoubleArray,
    EdgeType,
    FloatArray,
    Ids,
    Keys,
    NodeType,
)
from livegnn.wording import quoted

if TYPE_CHECKING:
    import numpy.typing as npt
    from jaxtyping import Float32, Float64, Shaped, UInt32

    IdsLike: TypeAlias = int | str | np.integer | Ids | Texts | Sequence[int] | Sequence[str]
    NumbersLike: TypeAlias = npt.ArrayLike
else:
    IdsLike = NumbersLike = object

Kind: TypeAlias = Literal["add_edges", "remove_edges", "set_features", "add_nodes", "remove_nodes", "grow"]
KINDS: Final[tuple[Kind, ...]] = ("add_edges", "remove_edges", "set_features", "add_nodes", "remove_nodes")
"""The kinds of events of nodes and edges, by their number."""
CODES: Final[dict[Kind, int]] = {**{kind: code for code, kind in enumerate(KINDS)}, "grow": 16}
"""The number of each kind in the binary format."""
EDGE_KINDS: Final[frozenset[str]] = frozenset({"add_edges", "remove_edges"})

_INT64 = np.dtype(np.int64)
_FLOAT32 = np.dtype(np.float32)
_LARGEST_ID = np.iinfo(np.int64).max
_LARGEST_KEY = np.iinfo(np.uint32).max
_minimum = np.minimum.reduce
_Column = TypeVar("_Column", FloatArray, DoubleArray, Keys)


class Chunk(NamedTuple):
    """`n` events of one kind and one type, in order.

    ids: the nodes, or the sources of edges, `int64[n]`, `str[n]` or texts. dst: the targets of edges, like
    `ids`. weight: `float32[n]`. time: `float64[n]`. x: the features of the nodes or the edges,
    `float32[n, width]`. key: distinguishes parallel edges, `uint32[n]`. Absent columns are None.
    """

    kind: Kind
    type: NodeType | EdgeType
    ids: "Shaped[Ids, 'events'] | Texts"
    dst: "Shaped[Ids, 'events'] | Texts | None" = None
    weight: "Float32[FloatArray, 'events'] | None" = None
    time: "Float64[DoubleArray, 'events'] | None" = None
    x: "Float32[FloatArray, 'events channels'] | None" = None
    key: "UInt32[Keys, 'events'] | None" = None

    def part(self, rows: slice) -> "Chunk":
        """The events in `rows`; columns are array views, not copies."""
        columns = [None if column is None else column[rows] for column in self[2:]]
        return Chunk(self.kind, self.type, *columns)  # type: ignore[arg-type]

    @property
    def x_name(self) -> str:
        """The public name of the column `x`."""
        return "x" if self.dst is None else "edge_attr"


def to_ids(value: IdsLike, name: str) -> "Shaped[Ids, 'events'] | Texts":
    """`value` as `int64[n]` or `str[n]`, or texts as they are; a scalar is one id.

    Raises InputError for anything else.
    """
    if isinstance(value, Texts):
        return value
    if type(value) is np.ndarray and value.dtype is _INT64 and value.ndim == 1 and value.flags.c_contiguous:
        array = value
    elif type(value) is int:
        if not 0 <= value <= _LARGEST_ID:
            raise InputError(f"{name} must be ids from 0 to 2^63 - 1, got {value}")
        return np.array([value], dtype=np.int64)
    elif type(value) is np.int64 and value >= 0:  # an element of an array
        return np.array([value])
    else:
        array = _to_ids(value, name)
        if array.dtype.kind == "U":
            return array
    if array.size and _minimum(array) < 0:
        position = int(np.argmin(array))
        raise InputError(
            f"{name} must be ids from 0 to 2^63 - 1, got {array[position]} at position {position}"
        )
    return array


def _to_ids(value: IdsLike, name: str) -> Ids:
    """The slow path of `to_ids`: any array or sequence that holds only integers or only text."""
    if isinstance(value, (list, tuple)):
        kinds = set(map(type, value))
        if bool in kinds or np.bool_ in kinds:
            raise InputError(f"{name} must be integers or text, got booleans")
        if str in kinds and len(kinds) > 1:
            others = ", ".join(sorted(kind.__name__ for kind in kinds if kind is not str))
            raise InputError(f"{name} must be all integers or all text, got a mixture of text and {others}")
        if str in kinds:
            check_lengths(value, name)
    array = as_array(value, name, "integers or text")
    if array.ndim == 0:
        array = array.reshape(1)
    if array.ndim != 1:
        raise InputError(f"{name} must have one dimension, got shape {array.shape}")
    if array.dtype.kind == "O" and any(type(one) is str for one in array.tolist()):
        return _to_ids(array.tolist(), name)  # all are, or it says that they are not
    array = plain_numbers(array)
    if array.dtype.kind == "U":
        return cast("Ids", as_text(value, array, name))
    if array.size == 0:
        return np.empty(0, dtype=np.int64)
    if array.dtype.kind not in "iu":
        raise InputError(f"{name} must be integers below 2^63 or text, got {_describe(array)}")
    if array.dtype == np.uint64 and int(array.max()) > _LARGEST_ID:
        raise InputError(f"{name} must be ids from 0 to 2^63 - 1, got {array.max()}")
    return np.ascontiguousarray(array, dtype=np.int64)


def to_texts(values: Sequence[str], name: str = "ids") -> Texts:
    """`values` as texts. Raises InputError for one that is too long, holds a NUL or is not valid Unicode."""
    check_lengths(values, name)
    as_text(values, np.empty(0), name)
    return Texts.of(values)


def to_weight(value: NumbersLike, n: int, name: str = "weight") -> "Float32[FloatArray, 'events']":
    """`value` as `float32[n]`."""
    if (
        type(value) is np.ndarray
        and value.dtype is _FLOAT32
        and value.shape == (n,)
        and value.flags.c_contiguous
    ):
        return value
    return _one_each(_to_numbers(value, name), n, name)


def to_time(value: NumbersLike, n: int, of: str = "edges") -> "Float64[DoubleArray, 'events']":
    """`value` as `float64[n]`. of: whose times they are, for errors."""
    return np.ascontiguousarray(_one_each(as_times(value), n, "time", of))


def to_key(value: NumbersLike, n: int) -> "UInt32[Keys, 'events']":
    """`value` as `uint32[n]`."""
    array = _one_each(cast("Keys", as_array(value, "key", "integers")), n, "key")
    if array.size and (array.dtype.kind not in "iu" or array.min() < 0 or array.max() > _LARGEST_KEY):
        shown = array[(array < 0) | (array > _LARGEST_KEY)] if array.dtype.kind in "iu" else array
        raise InputError(f"key must be integers from 0 to 2^32 - 1, got {quoted(shown.tolist()[0])}")
    return np.ascontiguousarray(array, dtype=np.uint32)


def _one_each(array: _Column, n: int, name: str, of: str = "edges") -> _Column:
    """The column; a scalar is its only value. Raises InputError unless it has `n` values."""
    if array.ndim == 0:
        array = array.reshape(1)
    if array.shape != (n,):
        raise InputError(f"{name} must have one value for each of the {n} {of}, got shape {array.shape}")
    return array


def to_rows(
    value: NumbersLike, n: int, name: str, *, scalar: bool
) -> "Float32[FloatArray, 'events channels']":
    """`value` as `float32[n, width]`, a row for each node or edge; if `scalar`, it may also be `[width]`."""
    if type(value) is np.ndarray and value.dtype is _FLOAT32 and value.flags.c_contiguous:
        array = value
    else:
        array = _to_numbers(value, name)
    if scalar and array.ndim == 1:
        array = array.reshape(1, -1)
    if array.ndim != 2 or array.shape[0] != n:
        each = "id" if name == "x" else "edge"
        raise InputError(
            f"{name} must be of shape ({n}, width), a row for each {each}, got shape {array.shape}"
        )
    return array


def _to_numbers(value: NumbersLike, name: str) -> FloatArray:
    array = plain_numbers(as_array(value, name))
    if array.dtype.kind == "O" and set(map(type, array.ravel().tolist())) == {int}:  # beyond uint64
        with suppress(OverflowError):
            array = array.astype(np.float64)
    if array.size and array.dtype.kind not in "iuf":
        raise InputError(f"{name} must be numbers, got {_describe(array)}")
    with np.errstate(over="ignore"):  # overflow gives infinity, which check() and the graph refuse
        return np.asarray(array, dtype=np.float32, order="C")


def to_node_type(value: NodeType | None) -> NodeType:
    """`value`, or the default node type."""
    if value is None:
        return DEFAULT_NODE_TYPE
    if not isinstance(value, str):
        raise InputError(f"node_type must be text, got {quoted(value)}")
    return value


def to_edge_type(value: EdgeType | None) -> EdgeType:
    """`value`, or the default edge type."""
    if value is None:
        return DEFAULT_EDGE_TYPE
    if isinstance(value, (tuple, list)) and len(value) == 3 and all(isinstance(part, str) for part in value):
        return (value[0], value[1], value[2])
    raise InputError(f"edge_type must be (source type, relation, target type), got {quoted(value)}")


def same_columns(a: Chunk, b: Chunk) -> bool:
    """Whether two chunks can be joined: they have the same kind, type, columns, kinds of id and width."""
    return (
        a.kind == b.kind
        and a.type == b.type
        and a.ids.dtype.kind == b.ids.dtype.kind
        and (a.dst is None or b.dst is None or a.dst.dtype.kind == b.dst.dtype.kind)
        and (a.weight is None) == (b.weight is None)
        and (a.time is None) == (b.time is None)
        and (a.x is None) == (b.x is None)
        and (a.key is None) == (b.key is None)
        and (a.x is None or b.x is None or a.x.shape[1] == b.x.shape[1])
    )


def join(chunks: Sequence[Chunk]) -> Chunk:
    """One chunk with the events of `chunks` in order. Requires: all have the same columns."""
    if len(chunks) == 1:
        return chunks[0]
    first = chunks[0]
    columns = []
    for position in range(2, len(first)):
        parts = [chunk[position] for chunk in chunks]
        columns.append(None if parts[0] is None else _join_columns(cast("list[FloatArray]", parts)))
    return Chunk(first.kind, first.type, *columns)  # type: ignore[arg-type]


def _join_columns(parts: "Sequence[npt.NDArray[np.generic] | Texts]") -> "npt.NDArray[np.generic] | Texts":
    if any(isinstance(part, Texts) for part in parts):
        return Texts.join(parts)
    return np.concatenate(cast("list[FloatArray]", parts))


def _describe(array: "npt.NDArray[np.generic]") -> str:
    example = array.reshape(-1)[0]
    if array.dtype.kind == "O":  # of mixed kinds or sizes: the first that is not a number, or the largest
        objects = array.ravel().tolist()
        odd = [one for one in objects if type(one) is bool or not isinstance(one, (int, float, np.number))]
        example = odd[0] if odd else max(objects, key=abs)
    name = type(example).__name__ if array.dtype.kind == "O" else str(array.dtype)
    return f"{name}, as in {quoted(example)}"
