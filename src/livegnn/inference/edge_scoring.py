"""Scores of edges, and of pairs of nodes that may become edges: the rows of a model's edge outputs.

A score is computed when it is read, from the kept rows of both ends, in one read of the graph's state.
"""

from functools import cached_property
from typing import TYPE_CHECKING, Final, Unpack

import numpy as np

import livegnn._core as _core
from livegnn.events import Events
from livegnn.graph.snapshot import Snapshot
from livegnn.inference.edge_pairs import (
    EdgeSettings,
    Pairs,
    PairSettings,
    check_edges,
    check_pairs,
    find_edge_output,
    find_output_of_edges,
)
from livegnn.inference.native_engine import NativeEngine
from livegnn.inference.row_predictor import RowPredictor
from livegnn.inference.scored_pairs import FoundRows, rows_of_pairs
from livegnn.inference.supposed_scores import MostOfRequest, SupposedScores
from livegnn.inference.what_if import WhatIf
from livegnn.network.outputs import EdgeOutput, EdgeOutputs
from livegnn.types import EdgeType, FloatArray

if TYPE_CHECKING:
    from jaxtyping import Float32
    from numpy.typing import ArrayLike

_FEW: Final = 512
"""Rows and edges that are computed at once: some tens of microseconds."""


class EdgePredictor(RowPredictor):
    """A `RowPredictor` that also computes the rows of its model's edge outputs."""

    core: NativeEngine

    @property
    def edge_outputs(self) -> EdgeOutputs:
        """Those of the model."""
        return self.core.edge_outputs

    @cached_property
    def _supposed_scores(self) -> SupposedScores:
        return SupposedScores(self.core)

    def score(
        self,
        src: "ArrayLike",
        dst: "ArrayLike",
        *,
        edge_attr: "ArrayLike | None" = None,
        edge_weight: "ArrayLike | None" = None,
        output: str | None = None,
        edge_type: EdgeType | None = None,
    ) -> "Float32[FloatArray, 'pairs channels']":
        """Scores of the pairs src[i] -> dst[i] as edges that need not exist, float32 [pairs, channels]: the
        model's layers read the graph as it is, and only the decoder reads the pair.

        edge_attr, edge_weight: the columns of the pairs, [pairs, width] and [pairs], for edge outputs that
        read them. output: the name of one of the model's `edge_outputs`; it may be left out if there is one
        of these edges. edge_type: its edges.

        Raises `UnknownNodeError`, and `InputError` if there is no such edge output, if columns are missing,
        of another shape, not finite, or not read.
        """
        columns = PairSettings(
            edge_attr=edge_attr, edge_weight=edge_weight, output=output, edge_type=edge_type
        )
        chosen, pairs, found = self._score(src, dst, columns, at_once=False)
        return rows_of_pairs(self.core.graph, chosen, pairs, found)

    def score_at_once(
        self, src: "ArrayLike", dst: "ArrayLike", **settings: Unpack[PairSettings]
    ) -> "Float32[FloatArray, 'pairs channels'] | None":
        """The result of `score` if it can be read at once. None if `score` would wait or compute rows of
        nodes, or if there is no such node. For callers that must not block, such as an event loop.
        """
        *_, found = self._score(src, dst, settings, at_once=True)
        return found if isinstance(found, np.ndarray) else None

    def score_after_at_once(
        self, events: Events, src: "ArrayLike", dst: "ArrayLike", **settings: Unpack[PairSettings]
    ) -> "Float32[FloatArray, 'pairs channels'] | None":
        """The result of ``what_if(events).score(src, dst)`` if it can be computed at once. None if another
        thread holds `Graph.writer`, if the events reach more than a few hundred rows and edges, and for
        models that call functions. For callers that must not block, such as an event loop.
        """
        if self.model.functions:
            return None
        found: list[FloatArray] = []

        def suppose() -> None:
            staged = self.core.graph.stage(events)
            _, rows, edges = self.core.native.reach(staged.native)
            if rows + edges <= _FEW:
                supposed = WhatIf(self.core, events, self, staged=staged)
                found.append(supposed.score(src, dst, **settings))

        _core.if_free(self.core.graph.writer, suppose)
        return found[0] if found else None

    def answer_scores_at_once(self, request: bytes, seq: int, most: MostOfRequest) -> bytes | None:
        """The answer to a request for scores after events, as of `SupposedScores.answer`. None, too, if
        another thread holds `Graph.writer`."""
        found: list[bytes | None] = []
        _core.if_free(
            self.core.graph.writer, lambda: found.append(self._supposed_scores.answer(request, seq, most))
        )
        return found[0] if found else None

    def predict_edges(
        self,
        src: "ArrayLike",
        dst: "ArrayLike",
        *,
        key: "ArrayLike | None" = None,
        output: str | None = None,
        edge_type: EdgeType | None = None,
    ) -> "Float32[FloatArray, 'edges channels']":
        """Scores of the edges src[i] -> dst[i] of the graph, with their own features and weights, float32
        [edges, channels].

        `key[i]` selects one of several parallel edges; without `key`, the edge with the greatest key is
        scored. output, edge_type: as in `score`.

        Raises `UnknownNodeError`, `UnknownEdgeError` for the first edge that is not in the graph, and
        `InputError` if there is no such edge output.
        """
        settings = EdgeSettings(key=key, output=output, edge_type=edge_type)
        chosen, pairs, found = self._predict_edges(src, dst, settings, at_once=False)
        return rows_of_pairs(self.core.graph, chosen, pairs, found, key)

    def predict_edges_at_once(
        self, src: "ArrayLike", dst: "ArrayLike", **settings: Unpack[EdgeSettings]
    ) -> "Float32[FloatArray, 'edges channels'] | None":
        """The result of `predict_edges`, or None, as `score_at_once`."""
        *_, found = self._predict_edges(src, dst, settings, at_once=True)
        return found if isinstance(found, np.ndarray) else None

    def _score(
        self, src: "ArrayLike", dst: "ArrayLike", settings: PairSettings, *, at_once: bool
    ) -> "tuple[EdgeOutput, Pairs, FoundRows]":
        chosen = find_edge_output(self.core.edge_outputs, settings)
        pairs = check_pairs(self.core.graph.schema, chosen, src, dst, settings)
        given = self.core.graph.node_ids.given
        ends = given(pairs.sources), given(pairs.targets)
        found = self.core.native.score(chosen.position, *ends, pairs.edge_attr, pairs.edge_weight, at_once)
        return chosen, pairs, found

    def _predict_edges(
        self, src: "ArrayLike", dst: "ArrayLike", settings: EdgeSettings, *, at_once: bool
    ) -> "tuple[EdgeOutput, Pairs, FoundRows]":
        chosen = self._find_output_of_edges(settings)
        pairs, keys = check_edges(src, dst, settings)
        given = self.core.graph.node_ids.given
        ends = given(pairs.sources), given(pairs.targets)
        return chosen, pairs, self.core.native.predict_edges(chosen.position, *ends, keys, at_once)

    def _find_output_of_edges(self, settings: EdgeSettings) -> EdgeOutput:
        """The edge output that a caller has named, for edges of the graph. Raises `InputError` and
        `UnknownTypeError`."""
        return find_output_of_edges(self.core.edge_outputs, self.core.graph.schema, settings)

    def _score_all(self, chosen: EdgeOutput, snapshot: Snapshot) -> "Float32[FloatArray, 'edges channels']":
        """The rows of an edge output for all edges, in the order of the snapshot. The caller holds
        `Graph.writer`, took the snapshot since, and has shown the current rows."""
        graph, (source, _, target) = self.core.graph, chosen.scores.edge_type
        sources, targets = (
            graph.native.indices(graph.node_type_index(end))[positions]
            for end, positions in zip(
                (source, target), snapshot.edge_index[chosen.scores.edge_type], strict=True
            )
        )
        columns = {given.column for given in chosen.scores.edge_inputs.values()}
        return self.core.native.score_indices(
            chosen.position,
            sources,
            targets,
            snapshot.edge_attr[chosen.scores.edge_type] if "edge_attr" in columns else None,
            snapshot.weight[chosen.scores.edge_type] if "weight" in columns else None,
        )
