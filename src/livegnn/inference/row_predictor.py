"""A view that keeps the rows of a model, as a runtime and a server see it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias, Unpack

import numpy as np

from livegnn.events import Events
from livegnn.graph import GraphDelta, Growth, View
from livegnn.inference.edge_pairs import EdgeSettings, PairSettings
from livegnn.inference.options import EngineOptions
from livegnn.inference.predictions import Prediction
from livegnn.inference.update import Update
from livegnn.network import Model
from livegnn.network.outputs import EdgeOutputs, Outputs
from livegnn.types import FloatArray, Ids, NodeType

if TYPE_CHECKING:
    from jaxtyping import Bool, Float32, Shaped
    from numpy.typing import ArrayLike, NDArray

    from livegnn.inference.supposed_scores import MostOfRequest
    from livegnn.texts import Texts

    ListedIds: TypeAlias = "Shaped[NDArray[np.generic], 'ids'] | Texts"


class Supposition(Protocol):
    """Predictions as they would be after some events: a `WhatIf`, or that of parts."""

    @property
    def changed(self) -> "Shaped[Ids, 'nodes']":
        """As `WhatIf.changed`."""

    @property
    def num_changed(self) -> int:
        """As `WhatIf.num_changed`."""

    def predict(
        self, ids: "ArrayLike", *, output: str | None = None
    ) -> "Float32[FloatArray, 'ids channels']":
        """As `WhatIf.predict`."""

    def score(
        self, src: "ArrayLike", dst: "ArrayLike", **settings: Unpack[PairSettings]
    ) -> "Float32[FloatArray, 'pairs channels']":
        """As `WhatIf.score`."""


class WantedRows(NamedTuple):
    """Rows of nodes of one type. outputs: names of those that are read, all of this type; None is the first
    of the model."""

    node_type: NodeType
    ids: "ListedIds"
    outputs: Sequence[str | None]


class RowsApart(NamedTuple):
    """The result of `predict_apart`. seq: the event that the rows reflect. rows: of each output. present: of
    each output, which of the nodes are there."""

    seq: int
    rows: "Sequence[Float32[FloatArray, 'present channels']]"
    present: "Sequence[Bool[NDArray[np.bool_], 'ids']]"


class RowPredictor(View):
    """A view whose predictions are kept, and so read fast: an `Engine`, or the parts of a divided graph. Its
    `commit` returns an `Update`.

    model: in the graph's names. output_type_name: the type of the nodes of the first output.
    subscriber_failures: how often a subscriber raised.
    """

    keeps_rows: Literal[True] = True  # unlike a `SampledEngine`

    model: Model
    options: EngineOptions
    outputs: Outputs
    output_type_name: NodeType
    subscriber_failures: int = 0

    @property
    def digest(self) -> str:
        """The digest of the model, as `Model.digest`."""
        raise NotImplementedError

    def predict(
        self, ids: "ArrayLike", *, output: str | None = None
    ) -> "Float32[FloatArray, 'ids channels']":
        """Predictions of nodes, as of `Engine.predict`."""
        raise NotImplementedError

    def predict_apart(
        self, ids: "ArrayLike", outputs: Sequence[str | None], *, present: bool = False
    ) -> RowsApart | None:
        """Predictions by each of some outputs, all of one event, which are read without the lock of readers.
        None if that would be wrong: then `predict` is called with it. present: leaves out nodes that are not
        there, instead of raising `UnknownNodeError`.
        """
        return None

    def predict_at_once(
        self, ids: "ArrayLike", *, output: str | None = None
    ) -> "Float32[FloatArray, 'ids channels'] | None":
        """The result of `predict` if it can be read at once. None if `predict` would wait or compute, or if
        there is no such node. For callers that must not block, such as an event loop.
        """
        raise NotImplementedError

    def answer_at_once(self, request: bytes, parameters: bool, seq: int, most_numbers: int) -> bytes | None:
        """The answer to a request, as of `Runtime.answer_at_once`. seq: the event that the rows reflect."""
        raise NotImplementedError

    @property
    def edge_outputs(self) -> EdgeOutputs:
        """Those of the model."""
        raise NotImplementedError

    def score(
        self, src: "ArrayLike", dst: "ArrayLike", **settings: Unpack[PairSettings]
    ) -> "Float32[FloatArray, 'pairs channels']":
        """Scores of pairs of nodes, as of `Engine.score`."""
        raise NotImplementedError

    def score_apart(
        self, src: "ArrayLike", dst: "ArrayLike", **settings: Unpack[PairSettings]
    ) -> Prediction | None:
        """The same, and the event that they reflect, read without the lock of readers. None if that would be
        wrong: then `score` is called with it."""
        return None

    def score_at_once(
        self, src: "ArrayLike", dst: "ArrayLike", **settings: Unpack[PairSettings]
    ) -> "Float32[FloatArray, 'pairs channels'] | None":
        """The result of `score` if it can be read at once, as of `predict_at_once`."""
        raise NotImplementedError

    def score_after_at_once(
        self, events: Events, src: "ArrayLike", dst: "ArrayLike", **settings: Unpack[PairSettings]
    ) -> "Float32[FloatArray, 'pairs channels'] | None":
        """The result of ``what_if(events).score(src, dst)`` if it can be computed at once."""
        raise NotImplementedError

    def answer_scores_at_once(self, request: bytes, seq: int, most: "MostOfRequest") -> bytes | None:
        """The answer to a request for scores after events, as of `SupposedScores.answer`."""
        raise NotImplementedError

    def predict_edges(
        self, src: "ArrayLike", dst: "ArrayLike", **settings: Unpack[EdgeSettings]
    ) -> "Float32[FloatArray, 'edges channels']":
        """Scores of edges of the graph, as of `Engine.predict_edges`."""
        raise NotImplementedError

    def predict_edges_apart(
        self, src: "ArrayLike", dst: "ArrayLike", **settings: Unpack[EdgeSettings]
    ) -> Prediction | None:
        """The same, as `score_apart`."""
        return None

    def predict_edges_at_once(
        self, src: "ArrayLike", dst: "ArrayLike", **settings: Unpack[EdgeSettings]
    ) -> "Float32[FloatArray, 'edges channels'] | None":
        """The result of `predict_edges` if it can be read at once."""
        raise NotImplementedError

    def what_if(self, events: Events) -> Supposition:
        """The predictions after `events`, as of `Engine.what_if`."""
        raise NotImplementedError

    def check_growth(self, growth: Growth) -> None:
        pass  # the model reads none of the new types and columns

    def grow(self, change: GraphDelta) -> Update:
        return Update(self.graph, np.empty(0, np.int64), seq=change.seq, affected=0, seconds=0.0, exact=True)

    def guard(self, on: bool) -> None:
        """Whether to refuse a batch that would make a row infinite or NaN; `non_finite` says it at first."""
        raise NotImplementedError

    def find_loss(self) -> str | None:
        """Why some predictions cannot be read; None if all can."""
        return None
