"""Scores of edges of a graph in parts: the rows of both ends, read at one batch, and the compiled decoder.

The parts compute no score: the leader runs the decoder on rows that they keep.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias, Unpack

import numpy as np

from livegnn.errors import InputError
from livegnn.events import Events
from livegnn.inference import RowPredictor
from livegnn.inference.edge_decoding import EdgeDecoder
from livegnn.inference.edge_pairs import EdgeSettings, Pairs, PairSettings, check_pairs, find_edge_output
from livegnn.inference.predictions import Prediction
from livegnn.inference.row_predictor import WantedRows
from livegnn.inference.scored_pairs import refuse_missing_ends
from livegnn.network.outputs import EdgeOutput, EdgeOutputs
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
        for ids in (pairs.sources, pairs.targets):
            names.node_ids.given(ids)  # which refuses those of another kind
        return chosen, pairs

    def score(self, chosen: EdgeOutput, pairs: Pairs, read: ReadTogether) -> Prediction:
        """The scores of pairs, and the event that they reflect. Raises `UnknownNodeError`, and what `read`
        raises."""
        ends = self._decoder.ends(chosen, pairs)

        def check(present: "Sequence[Bool[NDArray[np.bool_], 'ids']]") -> None:
            has_source, has_target = present[0][ends.sources], present[-1][ends.targets]
            refuse_missing_ends(self._led.names, chosen, pairs, has_source, has_target)

        found = read(ends.nodes, check)
        return Prediction(found.seq, self._decoder.decode(chosen, pairs, ends, found.rows))


class PartsScorer(RowPredictor):
    """The part of `Partitions` that scores edges."""

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
        """Raises `InputError`: the columns of single edges are not read from parts."""
        raise InputError(
            "edges of a graph in parts are scored as pairs of nodes, got edges of the graph: call score, "
            "with the columns of each edge"
        )

    def predict_edges_at_once(
        self, src: "ArrayLike", dst: "ArrayLike", **settings: Unpack[EdgeSettings]
    ) -> None:
        """None: see `predict_edges`."""
