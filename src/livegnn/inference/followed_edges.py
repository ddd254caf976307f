"""The edges whose scores a batch changes: found while the batch is prepared, told with its `Update`.

No score is kept: the old score of an edge is computed from the rows before the batch.
"""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from livegnn.errors import InputError
from livegnn.graph import Graph
from livegnn.inference.native_engine import NativeEngine
from livegnn.network.outputs import EdgeOutput
from livegnn.types import FloatArray, Ids, IntArray, Keys
from livegnn.wording import format_count, format_edge_type, format_size

if TYPE_CHECKING:
    from jaxtyping import Float32, Int64, Shaped, UInt32

_logger = logging.getLogger(__name__)
_NAME_BYTES: Final = 8 + 8 + 4


class EdgeNames(NamedTuple):
    """Edges by the ids of their ends and, in a type that keeps parallel edges, their keys; otherwise the keys
    are None."""

    source: "Shaped[Ids, 'edges']"
    target: "Shaped[Ids, 'edges']"
    key: "UInt32[Keys, 'edges'] | None"


class _Numbers(NamedTuple):
    """Edges by the numbers of their ends."""

    source: "Int64[IntArray, 'edges']"
    target: "Int64[IntArray, 'edges']"
    key: "UInt32[Keys, 'edges']"


class _Listed(NamedTuple):
    edges: _Numbers
    rows: "Float32[FloatArray, 'edges channels']"
    removed: _Numbers


class ScoreChanges:
    """The changes of a batch to the scores of an edge output.

    reached: how many edges were compared; one with another row at both ends may count twice. complete: False
    if these were more than `follow_limit`; then nothing is listed, and any score may be another.
    """

    __slots__ = ("_graph", "_listed", "complete", "keyed", "reached")

    def __init__(self, graph: Graph, *, keyed: bool, reached: int, listed: _Listed, complete: bool) -> None:
        self._graph, self._listed = graph, listed
        self.keyed, self.reached, self.complete = keyed, reached, complete

    @property
    def edges(self) -> EdgeNames:
        """The edges that the batch added, and those whose old and new scores differ in any bit; an undirected
        edge in both directions. Like `Update.changed`, read it before the next batch.
        """
        return self._names(self._listed.edges)

    @property
    def scores(self) -> "Float32[FloatArray, 'edges channels']":
        """Their scores after the batch, as `Engine.predict_edges` gives them."""
        return self._listed.rows

    @property
    def removed(self) -> EdgeNames:
        """The edges that the batch removed, those of removed nodes included."""
        return self._names(self._listed.removed)

    @property
    def nbytes(self) -> int:
        """Bytes of all that is listed."""
        named = len(self._listed.edges.source) + len(self._listed.removed.source)
        return self._listed.rows.nbytes + _NAME_BYTES * named

    @property
    def empty(self) -> bool:
        """Whether no score has changed, and no edge was removed."""
        return self.complete and not self.nbytes

    def _names(self, numbers: _Numbers) -> EdgeNames:
        source, target = (self._graph.to_user_ids(ends) for ends in numbers[:2])
        return EdgeNames(source, target, numbers.key if self.keyed else None)

    def __repr__(self) -> str:
        listed, removed = len(self._listed.edges.source), len(self._listed.removed.source)
        return f"ScoreChanges(edges={listed}, removed={removed}, reached={self.reached})"


class FollowedEdges:
    """The edge outputs that an engine follows (`EngineOptions.follow`). Raises `InputError` for one that it
    cannot follow.

    outputs: by name. found: the result of the last comparison, by edge output.
    """

    def __init__(self, core: NativeEngine) -> None:
        self._core = core
        self.outputs = {name: _find(core, name) for name in core.options.follow}
        self.found: Mapping[str, ScoreChanges] = {}
        for chosen in self.outputs.values():
            _refuse_unfit(core, chosen)
            _say_memory(core, chosen)

    def compare(self) -> None:
        """Compares scores, when the engine has prepared a batch. Raises what functions of the model raise."""
        self.found = {name: self._compare(chosen) for name, chosen in self.outputs.items()}

    def _compare(self, chosen: EdgeOutput) -> ScoreChanges:
        core = self._core
        reached, found = core.view.changed_scores(chosen.position, core.options.follow_limit)
        if found is None:
            listed = _nothing(chosen.scores.width)
        else:
            edges, rows, removed = found
            listed = _Listed(_Numbers(*edges), rows, _Numbers(*removed))
        keyed = core.graph.schema.edge_types[chosen.scores.edge_type].duplicates == "keep"
        return ScoreChanges(
            core.graph, keyed=keyed, reached=reached, listed=listed, complete=found is not None
        )


def _find(core: NativeEngine, name: str) -> EdgeOutput:
    try:
        return core.edge_outputs.find(name)
    except InputError as error:
        raise InputError(f"follow must name edge outputs of the model, got {name!r}: {error}") from None


def _nothing(width: int) -> _Listed:
    ends, keys = np.empty(0, np.int64), np.empty(0, np.uint32)
    none = _Numbers(ends, ends, keys)
    return _Listed(none, np.empty((0, width), np.float32), none)


def _refuse_unfit(core: NativeEngine, chosen: EdgeOutput) -> None:
    name = format_edge_type(chosen.scores.edge_type)
    if core.eager_steps is not None:
        raise InputError(
            f"follow is of engines that compute each batch at once, got {chosen.name!r} in the mode "
            f"{core.options.mode!r}: use mode='eager', or leave it out"
        )
    edges = core.graph.schema.edge_types.get(chosen.scores.edge_type)
    if edges is None:
        raise InputError(
            f"follow names {chosen.name!r}, of {name} edges, and the graph has none: leave it out"
        )
    if chosen.scores.targets and not (edges.in_neighbors or edges.undirected):
        raise InputError(
            f"follow names {chosen.name!r}, which reads rows at targets, and {name} edges keep no "
            "in-neighbours, by which the edges of a target are found: make the graph with in_neighbors=True"
        )


def _say_memory(core: NativeEngine, chosen: EdgeOutput) -> None:
    each = _NAME_BYTES + 4 * chosen.scores.width
    _logger.info(
        "scores of the edge output %s are followed: none is kept between batches; a batch takes %s for each "
        "edge whose score it changes, %s at most (follow_limit = %d)",
        chosen.name,
        format_count(each, "byte"),
        format_size(each * core.options.follow_limit),
        core.options.follow_limit,
    )
