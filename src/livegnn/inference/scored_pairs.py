"""Rows of pairs as the native core returns them, or the error for a missing node or edge."""

from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from livegnn.errors import UnknownEdgeError, UnknownNodeError
from livegnn.graph import Graph
from livegnn.inference.edge_pairs import Pairs
from livegnn.inference.native_engine import missing_engine
from livegnn.network.outputs import EdgeOutput
from livegnn.types import FloatArray

if TYPE_CHECKING:
    from jaxtyping import Float32
    from numpy.typing import ArrayLike

FoundRows: TypeAlias = FloatArray | tuple[int, int] | None
"""Rows, or what the first pair that has none lacks, and its position; or nothing."""
_LACKS_SOURCE: Final = 1
_LACKS_EDGE: Final = 3


def rows_of_pairs(
    graph: Graph, chosen: EdgeOutput, pairs: Pairs, found: FoundRows, key: "ArrayLike | None" = None
) -> "Float32[FloatArray, 'pairs channels']":
    """The rows that the native core has computed. Raises the error for a missing node or edge."""
    if isinstance(found, np.ndarray):
        return found
    if found is None:
        raise missing_engine()
    missing, at = found
    source, _, target = chosen.scores.edge_type
    if missing == _LACKS_EDGE:
        ends = f"{pairs.sources[at].item()!r} -> {pairs.targets[at].item()!r}"
        ends += "" if key is None else f" with the key {np.asarray(key).ravel()[at]}"
        raise UnknownEdgeError(
            f"expected the ends of an edge, got {ends}, which is not in the graph: add it first, or score it "
            "as a pair of nodes"
        )
    name, ids = (source, pairs.sources) if missing == _LACKS_SOURCE else (target, pairs.targets)
    raise UnknownNodeError(graph.unknown_node(ids[at], name))
