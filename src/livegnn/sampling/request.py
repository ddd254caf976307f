"""Checks the arguments that all kinds of samples share, and converts them for the native core."""

import secrets
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, cast

import numpy as np

import livegnn._core as _core
from livegnn.arguments import as_times, check_int, listed_ids
from livegnn.errors import InputError, UnknownNodeError
from livegnn.graph import Graph
from livegnn.query import NEIGHBORS_BY as NEIGHBORS_BY
from livegnn.query import Direction as Direction
from livegnn.query import NeighborsBy as NeighborsBy
from livegnn.types import DoubleArray, IntArray, NodeType
from livegnn.wording import kind_of

if TYPE_CHECKING:
    from jaxtyping import Float64, Int64, Shaped, UInt32
    from numpy.typing import ArrayLike, NDArray

NodesBy: TypeAlias = Literal["uniform", "degree", "weight"]

NODES_BY = ("uniform", "degree", "weight")

_UNKNOWN_NODE, _EDGE_TYPE = 0, 1
_MOST_NEIGHBORS = 2**31 - 1

_samplers: "weakref.WeakKeyDictionary[Graph, NativeSampler]" = weakref.WeakKeyDictionary()
_samplers_lock = threading.Lock()


class NativeSampler(Protocol):
    """The functions of `_core.Sampler`, which another one may have, for a graph whose edges are elsewhere."""

    @property
    def nodes(self) -> "Callable[..., _core._Names]":
        """Draws nodes."""

    @property
    def neighbors(self) -> Callable[..., Any]:
        """Draws neighbours of nodes."""

    @property
    def subgraph(self) -> Callable[..., Any]:
        """Draws a subgraph by fan-outs."""

    @property
    def query(self) -> Callable[..., Any]:
        """Draws a subgraph by one-hop queries."""


def use_sampler(graph: Graph, sampler: NativeSampler) -> None:
    """From now on, samples of this graph are drawn by another sampler, which must not refer to `graph`."""
    with _samplers_lock:
        _samplers[graph] = sampler


def sampler_of(graph: Graph) -> NativeSampler:
    """The native sampler of a graph. It keeps its buffers between samples, and lives as long as the graph."""
    with _samplers_lock:
        sampler = _samplers.get(graph)
        if sampler is None:
            sampler = _samplers[graph] = _core.Sampler(graph.native)
        return sampler


def check_graph(graph: object) -> None:
    if not isinstance(graph, Graph):
        raise InputError(f"expected the Graph to sample from, got {kind_of(graph)}")


def refuse_divided(graph: Graph, what: str, instead: str) -> None:
    """Raises `InputError` for the names of a divided graph, which have no edges of their own."""
    if _core.is_divided(graph.native):
        raise InputError(f"a divided graph cannot say {what}, as each part knows its own edges: {instead}")


def position_in(names: Sequence[str], given: str, what: str) -> int:
    if not isinstance(given, str) or given not in names:
        raise InputError(f"{what} must be one of {', '.join(map(repr, names))}, got {given!r}")
    return names.index(given)


def chosen_seed(seed: int | None) -> int:
    """`seed`, or a random one."""
    if seed is None:
        return secrets.randbits(63)
    return check_int(seed, "seed", 0, 2**64 - 1)


def checked_count(count: int, what: str = "num_neighbors") -> int:
    return check_int(count, what, -1 if what == "num_neighbors" else 0, _MOST_NEIGHBORS)


def checked_hops(num_neighbors: object) -> list[int]:
    """The number of neighbours that each hop draws. Raises `InputError`."""
    if isinstance(num_neighbors, np.ndarray):
        num_neighbors = num_neighbors.tolist()
    if isinstance(num_neighbors, Sequence) and not isinstance(num_neighbors, (str, bytes)):
        return [checked_count(count) for count in num_neighbors]
    raise InputError(f"num_neighbors must be a list with a number for each hop, got {num_neighbors!r}")


def bounds(until: "ArrayLike | None", num_seeds: int) -> "Float64[DoubleArray, 'seeds'] | None":
    """`until` as an array: the latest time of edges to use, one or one for each seed. Raises `InputError`."""
    if until is None:
        return None
    try:
        times = as_times(until, "until")
    except InputError as error:
        raise InputError(
            f"until must be one time, or one for each of {num_seeds} nodes, got {until!r}: {error}"
        ) from None
    if times.ndim > 0 and times.shape != (num_seeds,):
        raise InputError(f"until must be one time, or one for each of {num_seeds} nodes, got {times.shape}")
    if np.isnan(times).any():
        raise InputError("until must be a time, got NaN")
    return np.ascontiguousarray(times)


def given_ids(ids: "ArrayLike") -> "Shaped[NDArray[np.generic], 'ids']":
    listed = np.asarray(listed_ids(ids))
    if listed.ndim != 1:
        raise InputError(f"ids must be a single column, got the shape {listed.shape}")
    return listed


def native_ids(
    graph: Graph, asked: "Shaped[NDArray[np.generic], 'ids']"
) -> "Int64[IntArray, '...'] | UInt32[NDArray[np.uint32], '...']":
    """Ids in the form that the native core takes. The dtype of an empty list is ignored."""
    if not asked.size:
        return np.empty(0, dtype=np.int64)
    return cast("IntArray", graph.node_ids.given(asked))


@contextmanager
def explained(graph: Graph, asked: "Mapping[int, Shaped[NDArray[np.generic], '_']]") -> Iterator[None]:
    """Turns errors of the native core into LiveGNN's. asked: the given ids, by index of their node type."""
    try:
        yield
    except _core.SampleError as error:
        raise explanation(graph, error, asked) from None


def explanation(
    graph: Graph,
    error: _core.SampleError,
    asked: "Mapping[int, Shaped[NDArray[np.generic], '_']]",
    unknown: Callable[[Graph, int, NodeType], str] | None = None,
) -> InputError:
    """An error of the native core as one of LiveGNN's. asked: the given ids, by index of their node type.
    unknown: says why an internal number is of no node, where numbers were given."""
    kind, what, type_, position = error.args
    if kind == _UNKNOWN_NODE:
        name = list(graph.schema.node_types)[type_]
        given = asked[type_][position]
        if unknown is not None:
            return UnknownNodeError(unknown(graph, int(given), name))
        return UnknownNodeError(graph.unknown_node(given, name))
    if kind == _EDGE_TYPE:
        return InputError(f"edge type {list(graph.schema.edge_types)[type_]!r} {what}")
    return InputError(what)
