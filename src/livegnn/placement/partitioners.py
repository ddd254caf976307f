"""Partitioners of a whole graph: METIS, and Fennel as if all nodes arrived at once."""

import warnings
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

import numpy as np

import livegnn._core as _core
from livegnn.errors import InputError
from livegnn.wording import needs

if TYPE_CHECKING:
    from jaxtyping import Int64, UInt16
    from numpy.typing import NDArray

    from livegnn.placement.numbered import NumberedGraph
    from livegnn.types import IntArray

Partitioner: TypeAlias = Literal["metis", "fennel"]

_WEIGHT: Final = 64  # of a node without in-edges: METIS takes integers


def divide(
    graph: "NumberedGraph", workers: int, partitioner: Partitioner, *, seed: int = 0, passes: int = 8
) -> "UInt16[NDArray[np.uint16], 'nodes']":
    """The owners of all nodes, by number. Raises InputError for a partitioner that there is not.

    passes: in which nodes at the boundary are placed again, at most.
    """
    check_partitioner(partitioner)
    placed = _by_metis(graph, workers, seed) if partitioner == "metis" else _by_fennel(graph, workers)
    graph.rebalance(placed, workers, passes=passes)
    return placed


def check_partitioner(partitioner: str) -> None:
    """Raises InputError for a partitioner that there is not."""
    if partitioner not in get_args(Partitioner):
        raise InputError(f"partitioner must be 'metis' or 'fennel', got {partitioner!r}")


def check_metis() -> None:
    """Raises InputError if METIS is not installed."""
    try:
        import pymetis  # noqa: F401
    except ImportError as error:
        raise InputError(
            f"{needs('partitioning by METIS', 'pymetis', error, 'cluster')}, or take the partitioner 'fennel'"
        ) from error


def _by_metis(graph: "NumberedGraph", workers: int, seed: int) -> "UInt16[NDArray[np.uint16], 'nodes']":
    """METIS balances in-edges and nodes together; then each type is evened out."""
    check_metis()
    import pymetis

    starts, neighbors, weights = graph.lists
    if workers == 1 or not len(neighbors):
        owners = np.arange(graph.num_nodes) % workers
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            found = pymetis.part_graph(
                workers,
                pymetis.CSRAdjacency(starts, neighbors),
                vweights=_work(graph.in_degrees),
                eweights=weights,
                options=pymetis.Options(seed=seed),
            )
        owners = np.asarray(found.vertex_part)
    placed = owners.astype(np.uint16)
    graph.even_out(placed, workers)
    return placed


def _work(in_degrees: "Int64[IntArray, 'nodes']") -> "Int64[IntArray, 'nodes']":
    """The work that a batch causes at each node, as an integer: it follows the in-edges."""
    mean = max(float(in_degrees.mean()), 1e-9)
    return np.rint(_WEIGHT * (1 + in_degrees / mean)).astype(np.int64)


def _by_fennel(graph: "NumberedGraph", workers: int) -> "UInt16[NDArray[np.uint16], 'nodes']":
    """All nodes arrive in one batch, in their order."""
    starts, neighbors, weights = graph.lists
    node = np.repeat(np.arange(graph.num_nodes, dtype=np.uint32), np.diff(starts))
    earlier = neighbors < node
    counts = weights[earlier]
    first, second = np.repeat(node[earlier], counts), np.repeat(neighbors[earlier].astype(np.uint32), counts)
    types = np.repeat(np.arange(len(graph.type_starts) - 1, dtype=np.uint32), np.diff(graph.type_starts))
    before = np.concatenate([[0], np.cumsum(weights)])[starts]
    ends = np.diff(before[graph.type_starts])
    none = np.empty(0, np.uint32)
    fennel = _core.Fennel(workers, len(ends))
    return fennel.place(types, none, none.astype(np.uint16), first, second, ends)
