"""Predictions of a graph in parts as they would be after some events, which are not applied."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, Unpack

import numpy as np

import livegnn._core as _core
from livegnn.arguments import listed_ids
from livegnn.events import Events
from livegnn.graph import Graph, GraphDelta
from livegnn.graph.native_graph import NumberMap
from livegnn.inference.edge_pairs import PairSettings
from livegnn.inference.row_predictor import WantedRows
from livegnn.inference.what_if import find_after, locate_after
from livegnn.network import Model
from livegnn.network.outputs import Output, Outputs
from livegnn.partitions.part import Asked, Outcome, Reader
from livegnn.partitions.reads import CheckPresent, RowsTogether
from livegnn.partitions.scores import PairScores
from livegnn.texts import Texts
from livegnn.types import FloatArray, Ids, IntArray

if TYPE_CHECKING:
    from jaxtyping import Float32, Int64, Shaped, UInt32
    from numpy.typing import ArrayLike, NDArray


class Supposing(Protocol):
    """The parts, and their leader: `Partitions`. commits: how many batches they have applied."""

    names: Graph
    model: Model
    outputs: Outputs
    parts: tuple[Reader, ...]
    commits: int

    def suppose(self, change: GraphDelta, asked: Sequence[Asked]) -> Sequence[Outcome]:
        """The effects of a staged change on all parts."""


class WhatIfOfParts:
    """As `WhatIf`. Nothing is computed before it is read, so all but the constructor raise the errors of
    `apply`, and `WorkerUnavailableError` if a part is lost.

    Each call of `predict` computes the events on all parts, and so does each output that a call of `score`
    reads; the other reads use the last computation, unless batches were applied since.
    """

    def __init__(self, parts: Supposing, pairs: PairScores, events: Events) -> None:
        self._parts, self._pairs = parts, pairs
        self._events = events
        self._at = -1
        self._affected = 0
        self._numbers = np.empty(0, np.int64)
        self._change: GraphDelta | None = None  # keeps the texts of added nodes

    @property
    def changed(self) -> "Shaped[Ids, 'nodes']":
        """Ids of nodes whose prediction would change, including added nodes, in the order of parts."""
        return _core.holding(self._parts.names.writer, self._changed)

    def _changed(self) -> Ids:
        self._refresh()
        return self._parts.names.to_user_ids(self._numbers)

    @property
    def num_changed(self) -> int:
        """The length of `changed`, without making the ids."""
        _core.holding(self._parts.names.writer, self._refresh)
        return len(self._numbers)

    @property
    def affected(self) -> int:
        """The number of nodes whose predictions would be computed again."""
        _core.holding(self._parts.names.writer, self._refresh)
        return self._affected

    def predict(
        self, ids: "ArrayLike", *, output: str | None = None
    ) -> "Float32[FloatArray, 'ids channels']":
        """As `WhatIf.predict`."""
        found = self._parts.outputs.find(output)
        return _core.holding(self._parts.names.writer, self._predict, listed_ids(ids), output, found)

    def score(
        self, src: "ArrayLike", dst: "ArrayLike", **settings: Unpack[PairSettings]
    ) -> "Float32[FloatArray, 'pairs channels']":
        """As `WhatIf.score`."""
        chosen, pairs = self._pairs.check(src, dst, settings)
        return _core.holding(
            self._parts.names.writer, self._pairs.score, chosen, pairs, self._read_all
        ).values

    def _read_all(self, wanted: Sequence[WantedRows], check: CheckPresent) -> RowsTogether:
        names, find = self._parts.names, self._parts.outputs.find
        change = names.stage(self._events)
        present = [find_after(names, change, one.ids, one.node_type)[2] for one in wanted]
        check(present)
        rows = [[self._predict(one.ids, name, find(name)) for name in one.outputs] for one in wanted]
        return RowsTogether(names.core.seq, rows, present)

    def _predict(self, ids: "NDArray[np.generic] | Texts", output: str | None, found: Output) -> FloatArray:
        names = self._parts.names
        change = names.stage(self._events)
        numbers, indices = locate_after(names, change, ids, found.node_type)
        owners = _owners_after(names, change, names.node_type_index(found.node_type), indices)
        places = [owners == part for part in range(len(self._parts.parts))]
        outcomes = self._suppose(change, [Asked(output, numbers[own]) for own in places])
        rows = np.empty((len(numbers), self._parts.model.width(found.value)), np.float32)
        for own, outcome in zip(places, outcomes, strict=True):
            assert outcome.rows is not None
            rows[own] = outcome.rows
        return rows

    def _refresh(self) -> None:
        if self._at != self._parts.commits:
            nothing = Asked(None, np.empty(0, np.int64))
            self._suppose(self._parts.names.stage(self._events), [nothing] * len(self._parts.parts))

    def _suppose(self, change: GraphDelta, asked: Sequence[Asked]) -> Sequence[Outcome]:
        outcomes = self._parts.suppose(change, asked)
        self._change = change
        self._affected = sum(one.affected for one in outcomes)
        self._numbers = np.concatenate([one.changed for one in outcomes])
        self._at = self._parts.commits
        return outcomes


def _owners_after(
    names: Graph, change: GraphDelta, node_type: int, indices: "UInt32[NDArray[np.uint32], 'ids']"
) -> "Int64[IntArray, 'ids']":
    """The parts that would own these nodes after a staged change."""
    delta, known = change.native, indices < names.native.capacity(node_type)
    owners = np.zeros(len(indices), np.int64)
    owners[known] = _core.owners_at(names.native, node_type, indices[known])
    added = delta.added(node_type) >= 0
    NumberMap(delta.added_indices(node_type)[added], delta.owners(node_type)[added]).look_up(indices, owners)
    return owners
