"""A graph and the engine of a model, divided into parts in one process, a thread for each.

A batch is staged on the graph of names, which refuses unknown ids and wrong values. Then all parts stage and
prepare it together, and vote. If all agree, the names commit, and then all parts; else all abandon it.
"""

import threading
import time
import weakref
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Unpack

import numpy as np

import livegnn._core as _core
from livegnn.arguments import listed_ids
from livegnn.errors import InputError, LiveGNNError, UnknownNodeError
from livegnn.events import Events
from livegnn.graph import GraphDelta
from livegnn.graph.division import make_part
from livegnn.inference import Engine, EngineOptions, Update
from livegnn.inference.options import EngineSettings, choose_options
from livegnn.interrupts import at_once
from livegnn.network import Model
from livegnn.partitions.batch import Batch, PartThread
from livegnn.partitions.fitting import refuse_unfit
from livegnn.placement import Owners
from livegnn.schema import Schema
from livegnn.types import NO_INDEX, FloatArray
from livegnn.wording import kind_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from jaxtyping import Float32
    from numpy.typing import ArrayLike


class LocalPartitions:
    """An empty graph in parts, and engines of `model` whose predictions are those of one `Engine` on one
    graph, bit by bit, after the same batches.

    owners: the part of each node, by a hash of its id; there are as many parts as its `workers`. options: of
    every engine; its fields may also be given one by one, as keywords. A `state_dir` gets a directory for
    each part.

    Raises `InputError`, `ModelError` and `OSError` as `Engine`, and `InputError` if this model, schema or
    setting cannot be divided (`refuse_unfit`).

    Thread safety: any thread may call. Batches are applied one at a time. A read waits while a batch becomes
    visible, and sees all parts before a batch or after it.

    names: a graph with all nodes and without edges; it assigns sequence numbers. graphs, engines: by part.
    Only this object may apply batches to them.
    """

    def __init__(
        self,
        schema: Schema,
        model: Model,
        owners: Owners,
        options: EngineOptions | None = None,
        **settings: Unpack[EngineSettings],
    ) -> None:
        if not isinstance(owners, Owners):
            raise InputError(f"owners must be Owners of livegnn.placement, got {kind_of(owners)}")
        options = choose_options(options, settings)
        refuse_unfit(model, schema, options, owners)
        self.owners: Final = owners
        self.names: Final = make_part(schema, owners.native, None, threads=1)
        parts = range(owners.workers)
        self.graphs: Final = tuple(
            make_part(schema, owners.native, part, names=self.names, threads=options.threads)
            for part in parts
        )
        self.engines: Final = tuple(
            Engine(self.graphs[part], model, _of_part(options, part)) for part in parts
        )
        self._exchange = _core.LocalExchange(owners.workers)
        for part in parts:
            self._exchange.join(self.engines[part].core.native, part)
        self._threads = tuple(
            PartThread(part, graph, self._exchange) for part, graph in enumerate(self.graphs)
        )
        self._end = weakref.finalize(self, at_once, *(partial(thread.give, None) for thread in self._threads))
        self._visible = threading.Lock()
        self._broken: BaseException | None = None

    @property
    def seq(self) -> int:
        """The sequence number of the last event that all parts reflect."""
        return self.names.seq

    def close(self) -> None:
        """Ends the threads; no batch can be applied afterwards."""
        self._end()
        for thread in self._threads:
            thread.join()

    def apply(
        self,
        events: Events,
        *,
        seq: int | None = None,
        on_staged: "Callable[[GraphDelta], None] | None" = None,
        trusted: bool = False,
    ) -> Update:
        """Applies a batch to all parts, or changes nothing. Arguments and errors are those of `Graph.apply`;
        `on_staged` receives the change of `names` once all parts are ready to commit.
        """
        batch = Batch(
            self.names, self._threads, self._exchange, self._visible, events, on_staged, trusted=trusted
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
        change = batch.run(seq)
        return self._update(change, time.perf_counter() - began)

    def _settle(self, batch: Batch) -> None:
        batch.settle()
        self._broken = self._broken or batch.broken

    def _update(self, change: GraphDelta, seconds: float) -> Update:
        outcomes = [engine.core.view.outcome() for engine in self.engines]
        return Update(
            self.names,
            np.concatenate([changed for changed, _, _ in outcomes]),
            seq=change.seq,
            affected=sum(work[0] for _, _, work in outcomes),
            seconds=seconds,
        )

    def predict(
        self, ids: "ArrayLike", *, output: str | None = None
    ) -> "Float32[FloatArray, 'ids channels']":
        """Predictions of nodes, as of `Engine.predict`, each by the part that owns the node."""
        asked = listed_ids(ids)
        node_type = self.engines[0].outputs.find(output).node_type
        with self._visible:
            numbers = self.names.to_numbers(asked)
            unknown = np.flatnonzero(
                self.names.native.indices_of(self.names.node_type_index(node_type), numbers) == NO_INDEX
            )
            if len(unknown):
                raise UnknownNodeError(self.names.unknown_node(asked[unknown[0]], node_type))
            given = self.names.to_user_ids(numbers)
            owners = self.owners.of_id(numbers)
            rows = self.engines[0].predict(given[:0], output=output)
            rows = np.empty((len(given), rows.shape[1]), np.float32)
            for part in np.unique(owners):
                places = owners == part
                rows[places] = self.engines[part].predict(given[places], output=output)
            return rows

    def memory(self) -> list[dict[str, int]]:
        """Bytes of each part, as `Engine.memory` names them."""
        return [engine.memory() for engine in self.engines]


def _of_part(options: EngineOptions, part: int) -> EngineOptions:
    if options.state_dir is None:
        return options
    return EngineOptions(threads=options.threads, state_dir=Path(options.state_dir) / f"part-{part}")
