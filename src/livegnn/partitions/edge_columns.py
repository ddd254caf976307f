"""The columns of edges of a graph in parts, which the part of their sources keeps: questions and answers.

Nodes are given by their indices, which are the same in all parts after the same batch.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, Self, TypeAlias, cast

import numpy as np

from livegnn.graph import Graph
from livegnn.partitions.letters import Letter
from livegnn.types import JSON, FloatArray

if TYPE_CHECKING:
    from jaxtyping import Float32, UInt32
    from numpy.typing import NDArray

    from livegnn.types import IntArray

EDGES: Final = "edges"


class AskedEdges(NamedTuple):
    """A question to a part. edge_type: by its index. names: sources, which are nodes of the part, targets
    and, if keys select edges, keys. featured: whether the features are read. commits: after this number of
    batches."""

    edge_type: int
    names: "UInt32[NDArray[np.uint32], 'columns edges']"
    featured: bool
    commits: int

    def pack(self) -> Letter:
        """Its letter."""
        asked: list[JSON] = [self.edge_type, len(self.names), self.featured, self.commits]
        return Letter({EDGES: asked}, np.ascontiguousarray(self.names, np.uint32).tobytes())

    @classmethod
    def unpack(cls, letter: Letter) -> Self:
        """The reverse."""
        edge_type, columns, featured, commits = cast("list[int]", letter.content[EDGES])
        names = np.frombuffer(letter.payload, np.uint32).reshape(columns, -1)
        return cls(edge_type, names, bool(featured), commits)

    def read(self, graph: Graph) -> "EdgeColumns":
        """The answer of a part of this process. No batch may be applied meanwhile."""
        source, target, *keys = self.names
        found = graph.native.edge_columns(self.edge_type, source, target, keys[0] if keys else None)
        features, weights, _ = found
        return EdgeColumns(graph.core.seq, features if self.featured else features[:, :0], weights)


class EdgeColumns(NamedTuple):
    """An answer. seq: the event that it reflects. features, weights: of the edges before the first one that
    is not in the graph."""

    seq: int
    features: "Float32[FloatArray, 'found channels']"
    weights: "Float32[FloatArray, 'found']"

    def pack(self) -> Letter:
        """Its letter."""
        sizes: list[JSON] = [self.seq, *self.features.shape]
        values = np.concatenate([self.features.ravel(), self.weights]).astype(np.float32, copy=False)
        return Letter({EDGES: sizes}, values.tobytes())

    @classmethod
    def unpack(cls, letter: Letter) -> Self | None:
        """The reverse; None for a letter without content, of a part that shows another batch."""
        if not letter.content:
            return None
        seq, found, width = cast("list[int]", letter.content[EDGES])
        values = np.frombuffer(letter.payload, np.float32)
        return cls(seq, values[: found * width].reshape(found, width), values[found * width :])


WaitForEdges: TypeAlias = Callable[[], EdgeColumns | None]
"""Waits for the columns of edges of a part, and returns them; None if the part shows another batch."""


class WantedEdges(NamedTuple):
    """Edges whose columns a leader reads. edge_type, width, featured: its index, the width of its features,
    and whether they are read. sources, targets: places among the nodes of the first and of the last of some
    wanted rows. keys: of parallel edges; None for the greatest ones."""

    edge_type: int
    width: int
    featured: bool
    sources: "IntArray"
    targets: "IntArray"
    keys: "UInt32[NDArray[np.uint32], 'edges'] | None"


class FoundColumns:
    """The columns of wanted edges. lacks: the position of the first edge that is not in the graph, of those
    whose ends are there; their number if all are."""

    def __init__(self, wanted: WantedEdges) -> None:
        count = len(wanted.sources)
        self.features = np.empty((count, wanted.width if wanted.featured else 0), np.float32)
        self.weights = np.empty(count, np.float32)
        self.lacks = count

    def take(self, places: "IntArray", wait: WaitForEdges) -> int | None:
        """Notes the answer about the edges at some places. Returns the event that it reflects; None if the
        part shows another batch."""
        if (answer := wait()) is None:
            return None
        found = len(answer.weights)
        self.features[places[:found]], self.weights[places[:found]] = answer.features, answer.weights
        if found < len(places):
            self.lacks = min(self.lacks, int(places[found]))
        return answer.seq
