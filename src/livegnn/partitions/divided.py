"""A graph and the engine of a model, divided into parts that apply each batch together.

A batch is staged on the graph of names, which refuses unknown ids and wrong values. Then all parts stage and
prepare it together, and vote. If all agree, the names commit, and then all parts; else all abandon it.
"""

import threading
import time
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

import livegnn._core as _core
from livegnn.arguments import listed_ids
from livegnn.errors import InputError, LiveGNNError, UnknownNodeError
from livegnn.events import Events
from livegnn.graph import Graph, GraphDelta
from livegnn.inference import Update
from livegnn.interrupts import at_once
from livegnn.network.outputs import Outputs
from livegnn.partitions.batch import Batch, PartThread
from livegnn.partitions.part import Part
from livegnn.types import NO_INDEX, FloatArray, IntArray

if TYPE_CHECKING:
    from jaxtyping import Float32, Int64
    from numpy.typing import ArrayLike


class Partitions:
    """The parts of a graph, led as one engine.

    names: a graph with all nodes and their owners, and without edges; it assigns sequence numbers. begin:
    called before the parts have a batch. Only this object may apply batches to names and parts.

    Thread safety: any thread may call. Batches are applied one at a time. A read waits while a batch becomes
    visible, and sees all parts before a batch or after it.
    """

    def __init__(
        self,
        names: Graph,
        outputs: Outputs,
        parts: Sequence[Part],
        begin: Callable[[Events], None],
    ) -> None:
        self.names, self.parts = names, tuple(parts)
        self._outputs, self._begin = outputs, begin
        self._threads = tuple(PartThread(number, part) for number, part in enumerate(self.parts))
        self._end = weakref.finalize(self, at_once, *(partial(thread.give, None) for thread in self._threads))
        self._visible = threading.Lock()
        self._broken: BaseException | None = None
        self._ends: Int64[IntArray, types] | None = None  # of edges at nodes of all parts

    @property
    def seq(self) -> int:
        """The sequence number of the last event that all parts reflect."""
        return self.names.seq

    def close(self) -> None:
        """Ends threads and parts; no batch can be applied afterwards."""
        self._end()
        for thread in self._threads:
            thread.join()
        for part in self.parts:
            part.close()

    def apply(
        self,
        events: Events,
        *,
        seq: int | None = None,
        on_staged: Callable[[GraphDelta], None] | None = None,
        trusted: bool = False,
    ) -> Update:
        """Applies a batch to all parts, or changes nothing. Arguments and errors are those of `Graph.apply`;
        `on_staged` receives the change of `names` once all parts are ready to commit.
        """
        batch = Batch(
            self.names,
            self._threads,
            partial(self._begin, events),
            self._visible,
            events,
            on_staged,
            trusted=trusted,
        )
        return _core.holding(
            self.names.writer, _core.settled, self._run, partial(self._settle, batch), batch, seq
        )

    def _run(self, batch: Batch, seq: int | None) -> Update:
        if not self._end.alive:
            raise InputError(
                "the parts must be open to apply a batch, got closed ones: divide the graph again"
            )
        if self._broken is not None:
            raise LiveGNNError(
                f"not all parts of the graph show the last batch ({self._broken!r}): divide the graph again"
            )
        began = time.perf_counter()
        if self._ends is not None and _core.places_nodes(self.names.native):
            _core.set_ends_of_edges(self.names.native, self._ends)
        change = batch.run(seq)
        outcomes = [batch.outcomes[number] for number in range(len(self.parts))]
        self._ends = np.sum([one.ends for one in outcomes], axis=0)
        return Update(
            self.names,
            np.concatenate([one.changed for one in outcomes]),
            seq=change.seq,
            affected=sum(one.affected for one in outcomes),
            seconds=time.perf_counter() - began,
        )

    def _settle(self, batch: Batch) -> None:
        batch.settle()
        self._broken = self._broken or batch.broken

    def predict(
        self, ids: "ArrayLike", *, output: str | None = None
    ) -> "Float32[FloatArray, 'ids channels']":
        """Predictions of nodes, as of `Engine.predict`, each by the part that owns the node."""
        asked = listed_ids(ids)
        node_type = self._outputs.find(output).node_type
        type_index = self.names.node_type_index(node_type)
        with self._visible:
            numbers = self.names.to_numbers(asked)
            indices = self.names.native.indices_of(type_index, numbers)
            unknown = np.flatnonzero(indices == NO_INDEX)
            if len(unknown):
                raise UnknownNodeError(self.names.unknown_node(asked[unknown[0]], node_type))
            given = self.names.to_user_ids(numbers)
            owners = _core.owners_at(self.names.native, type_index, indices)
            rows = self.parts[0].predict(given[:0], output)
            rows = np.empty((len(given), rows.shape[1]), np.float32)
            for part in np.unique(owners):
                places = owners == part
                rows[places] = self.parts[part].predict(given[places], output)
            return rows

    def memory(self) -> list[dict[str, int]]:
        """Bytes of each part, as `Engine.memory` names them."""
        return [part.memory() for part in self.parts]
