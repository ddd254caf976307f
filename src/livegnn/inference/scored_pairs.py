"""Rows of pairs as the native core returns them, or the error for a missing node or edge."""

from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from livegnn.errors import LiveGNNError, UnknownEdgeError, UnknownNodeError
from livegnn.graph import Graph
from livegnn.inference.edge_pairs import Pairs
from livegnn.inference.native_engine import missing_engine
from livegnn.network.outputs import EdgeOutput
from livegnn.types import FloatArray

if TYPE_CHECKING:
    from jaxtyping import Bool, Float32
    from numpy.typing import ArrayLike, NDArray

FoundRows: TypeAlias = FloatArray | tuple[int, int] | None
"""Rows, or what the first pair that has none lacks, and its position; or nothing."""
_LACKS_SOURCE: Final = 1
_LACKS_TARGET: Final = 2
_LACKS_EDGE: Final = 3


def rows_of_pairs(
    graph: Graph, chosen: EdgeOutput, pairs: Pairs, found: FoundRows, key: "ArrayLike | None" = None
) -> "Float32[FloatArray, 'pairs channels']":
    """The rows that the native core has computed. Raises the error for a missing node or edge."""
    if isinstance(found, np.ndarray):
        return found
    if found is None:
        raise missing_engine()
    raise _missing_error(graph, chosen, pairs, *found, key)


def refuse_missing(
    graph: Graph,
    chosen: EdgeOutput,
    pairs: Pairs,
    has_source: "Bool[NDArray[np.bool_], 'pairs']",
    has_target: "Bool[NDArray[np.bool_], 'pairs']",
    lacks_edge: int | None = None,
    key: "ArrayLike | None" = None,
) -> None:
    """Raises the error of `rows_of_pairs` for the first pair that lacks a node, or is not an edge.
    lacks_edge: the first pair of nodes that is not an edge; None if pairs need not be edges."""
    lacks_end = np.flatnonzero(~(has_source & has_target))
    at = len(pairs.sources) if lacks_edge is None else lacks_edge
    missing = _LACKS_EDGE
    if len(lacks_end) and lacks_end[0] < at:
        at = int(lacks_end[0])
        missing = _LACKS_TARGET if has_source[at] else _LACKS_SOURCE
    if at < len(pairs.sources):
        raise _missing_error(graph, chosen, pairs, missing, at, key)


def _missing_error(
    graph: Graph, chosen: EdgeOutput, pairs: Pairs, missing: int, at: int, key: "ArrayLike | None"
) -> LiveGNNError:
    source, _, target = chosen.scores.edge_type
    if missing == _LACKS_EDGE:
        ends = f"{pairs.sources[at].item()!r} -> {pairs.targets[at].item()!r}"
        ends += "" if key is None else f" with the key {np.asarray(key).ravel()[at]}"
        return UnknownEdgeError(
            f"expected the ends of an edge, got {ends}, which is not in the graph: add it first, or score it "
            "as a pair of nodes"
        )
    name, ids = (source, pairs.sources) if missing == _LACKS_SOURCE else (target, pairs.targets)
    return UnknownNodeError(graph.unknown_node(ids[at], name))
