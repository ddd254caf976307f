"""Scores of edges of a graph in parts: the rows of both ends, read at one batch, and the compiled decoder.

The parts compute no score: the leader runs the decoder on rows that they keep.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias, Unpack

import numpy as np

from livegnn.events import Events
from livegnn.graph import Graph
from livegnn.inference import RowPredictor
from livegnn.inference.edge_decoding import EdgeDecoder
from livegnn.inference.edge_pairs import (
    EdgeSettings,
    Pairs,
    PairSettings,
    check_edges,
    check_pairs,
    find_edge_output,
    find_output_of_edges,
)
from livegnn.inference.predictions import Prediction
from livegnn.inference.row_predictor import WantedRows
from livegnn.inference.scored_pairs import refuse_missing
from livegnn.network.outputs import EdgeOutput, EdgeOutputs
from livegnn.partitions.edge_columns import WantedEdges
from livegnn.partitions.reads import CheckPresent, Led, RowReads, RowsTogether
from livegnn.types import FloatArray

if TYPE_CHECKING:
    from jaxtyping import Bool, Float32
    from numpy.typing import ArrayLike, NDArray

    from livegnn.inference.supposed_scores import MostOfRequest

ReadTogether: TypeAlias = Callable[[Sequence[WantedRows], CheckPresent], RowsTogether]
"""As `RowReads.read_all`."""


class PairScores:
    """Scores of pairs of nodes of `led`. Thread safety: any thread may call."""

    def __init__(self, led: Led) -> None:
        self._led = led
        self._decoder = EdgeDecoder(led.model, led.names.schema)
        self.edge_outputs: EdgeOutputs = self._decoder.edge_outputs

    def check(self, src: "ArrayLike", dst: "ArrayLike", settings: PairSettings) -> tuple[EdgeOutput, Pairs]:
        """The edge output that a caller has named, and the arguments of its score. Raises `InputError`."""
        names = self._led.names
        chosen = find_edge_output(self.edge_outputs, settings)
        pairs = check_pairs(names.schema, chosen, src, dst, settings)
        self._refuse_other_ids(pairs)
        return chosen, pairs

    def score(self, chosen: EdgeOutput, pairs: Pairs, read: ReadTogether) -> Prediction:
        """The scores of pairs, and the event that they reflect. Raises `UnknownNodeError`, and what `read`
        raises."""
        ends = self._decoder.ends(chosen, pairs)

        def check(present: "Sequence[Bool[NDArray[np.bool_], 'ids']]") -> None:
            has_source, has_target = present[0][ends.sources], present[-1][ends.targets]
            refuse_missing(self._led.names, chosen, pairs, has_source, has_target)

        found = read(ends.nodes, check)
        return Prediction(found.seq, self._decoder.decode(chosen, pairs, ends, found.rows))

    def score_edges(
        self, src: "ArrayLike", dst: "ArrayLike", settings: EdgeSettings, reads: RowReads
    ) -> Prediction:
        """The scores of edges of the graph, and the event that they reflect. Raises `InputError`,
        `UnknownNodeError` and `UnknownEdgeError`, and what `reads` raises."""
        names = self._led.names
        chosen = find_output_of_edges(self.edge_outputs, names.schema, settings)
        pairs, keys = check_edges(src, dst, settings)
        self._refuse_other_ids(pairs)
        ends, edge_type = self._decoder.ends(chosen, pairs), chosen.scores.edge_type
        read = {given.column for given in chosen.scores.edge_inputs.values()}
        wanted = WantedEdges(
            names.core.schema.edge_type_index(edge_type),
            names.schema.edge_types[edge_type].edge_dim,
            "edge_attr" in read,
            ends.sources,
            ends.targets,
            keys,
        )
        found = reads.read_all(ends.nodes, lambda _: None, wanted)
        columns, present = found.columns, found.present
        assert columns is not None
        has_source, has_target = present[0][ends.sources], present[-1][ends.targets]
        refuse_missing(names, chosen, pairs, has_source, has_target, columns.lacks, settings.get("key"))
        pairs = Pairs(
            pairs.sources,
            pairs.targets,
            columns.features if "edge_attr" in read else None,
            columns.weights if "weight" in read else None,
        )
        return Prediction(found.seq, self._decoder.decode(chosen, pairs, ends, found.rows))

    def _refuse_other_ids(self, pairs: Pairs) -> None:
        for ids in (pairs.sources, pairs.targets):
            self._led.names.node_ids.given(ids)  # which refuses those of another kind


class PartsScorer(RowPredictor):
    """The part of `Partitions` that scores edges."""

    names: Graph
    _reads: RowReads
    _pairs: PairScores

    @property
    def edge_outputs(self) -> EdgeOutputs:
        """Those of the model."""
        return self._pairs.edge_outputs

    def score(
        self, src: "ArrayLike", dst: "ArrayLike", **settings: Unpack[PairSettings]
    ) -> "Float32[FloatArray, 'pairs channels']":
        """Scores of pairs of nodes, with the arguments, bits and errors of `Engine.score`.

        Raises `WorkerUnavailableError` if the part of a node is lost.
        """
        return self.score_apart(src, dst, **settings).values

    def score_apart(self, src: "ArrayLike", dst: "ArrayLike", **settings: Unpack[PairSettings]) -> Prediction:
        """As `RowPredictor.score_apart`. Raises the errors of `score`."""
        chosen, pairs = self._pairs.check(src, dst, settings)
        return self._pairs.score(chosen, pairs, self._reads.read_all)

    def score_at_once(self, src: "ArrayLike", dst: "ArrayLike", **settings: Unpack[PairSettings]) -> None:
        """None: rows are always read from parts."""
        self._pairs.check(src, dst, settings)

    def score_after_at_once(
        self, events: Events, src: "ArrayLike", dst: "ArrayLike", **settings: Unpack[PairSettings]
    ) -> None:
        """None, for the same reason."""

    def answer_scores_at_once(self, request: bytes, seq: int, most: "MostOfRequest") -> None:
        """None, for the same reason."""

    def predict_edges(
        self, src: "ArrayLike", dst: "ArrayLike", **settings: Unpack[EdgeSettings]
    ) -> "Float32[FloatArray, 'edges channels']":
        """Scores of edges of the graph, with the arguments, bits and errors of `Engine.predict_edges`: the
        part of its source knows the columns of an edge.

        Raises `WorkerUnavailableError` if the part of a node is lost.
        """
        return self.predict_edges_apart(src, dst, **settings).values

    def predict_edges_apart(
        self, src: "ArrayLike", dst: "ArrayLike", **settings: Unpack[EdgeSettings]
    ) -> Prediction:
        """As `score_apart`. Raises the errors of `predict_edges`."""
        return self._pairs.score_edges(src, dst, settings, self._reads)

    def predict_edges_at_once(
        self, src: "ArrayLike", dst: "ArrayLike", **settings: Unpack[EdgeSettings]
    ) -> None:
        """None, for the same reason."""
        find_output_of_edges(self.edge_outputs, self.names.schema, settings)
        check_edges(src, dst, settings)
