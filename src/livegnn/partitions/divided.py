"""A graph and the engine of a model, divided into parts that apply each batch together.

A batch is staged on the graph of names, which refuses unknown ids and wrong values. Then all parts stage and
prepare it together, and vote. If all agree, the names commit, and then all parts; else all abandon it.
"""

import threading
import time
import weakref
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

import livegnn._core as _core
from livegnn.arguments import as_path, listed_ids
from livegnn.errors import InputError, LiveGNNError, UnknownNodeError, WorkerUnavailableError
from livegnn.events import Events
from livegnn.graph import Claim, Graph, GraphDelta, Transaction
from livegnn.inference import EngineOptions, RowPredictor, Update
from livegnn.inference.native_engine import lay_out
from livegnn.interrupts import at_once
from livegnn.network import Model
from livegnn.network.outputs import Outputs
from livegnn.partitions.batch import Batch
from livegnn.partitions.crew import Crew
from livegnn.partitions.part import Reader
from livegnn.partitions.sampler import PartitionedSampler
from livegnn.partitions.sets import write_set
from livegnn.placement import Owners
from livegnn.sampling.request import use_sampler
from livegnn.types import NO_INDEX, FloatArray, State
from livegnn.wording import never_raises

if TYPE_CHECKING:
    from pathlib import Path

    from jaxtyping import Float32
    from numpy.typing import ArrayLike


class Partitions(RowPredictor):
    """The parts of a graph, led as one engine: a view of a graph of names, whose batches they apply.

    names: a graph with all nodes and their owners, and without edges; it assigns sequence numbers, and
    `livegnn.sampling` and the loaders of `livegnn.training` draw samples from it, for which the parts draw.
    rules: the owners of nodes that arrive, by node type. parts: which answer reads. crew: the same parts, as
    batches reach them.

    Thread safety: any thread may call. Batches are applied one at a time. A read waits while a batch becomes
    visible, and sees all parts before a batch or after it; if another object has claimed `names`, then only
    with the lock of that claim.
    """

    def __init__(
        self,
        names: Graph,
        model: Model,
        options: EngineOptions,
        rules: Sequence[Owners],
        parts: Sequence[Reader],
        crew: Crew,
    ) -> None:
        super().__init__(names)
        self.name, self.options, self.forkable = "engine", options, False
        self.names, self.rules, self.parts = names, tuple(rules), tuple(parts)
        self.model, *_ = lay_out(names, model, options)
        self.outputs = Outputs(self.model)
        self.output_type_name = self.model.node_type(self.model.output)
        self._crew = crew
        self._end = weakref.finalize(self, at_once, *crew.ending)
        self._visible = threading.RLock()
        self._claim = Claim(self, self._visible)
        self._batch: Batch | None = None  # that is being applied
        self._broken: BaseException | None = None
        names.attach(self)
        use_sampler(names, PartitionedSampler(names.native, self.parts, names.writer))

    @cached_property
    def digest(self) -> str:
        return self.model.digest

    @never_raises
    def __repr__(self) -> str:
        graph = repr(self.names).replace("\n", "\n  ")
        return (
            f"{type(self).__name__}(\n  {graph},\n  {self.model!r},\n  {len(self.parts)} parts, "
            f"seq={self.seq:,}\n)"
        )

    def close(self) -> None:
        """Ends all parts; no batch can be applied afterwards."""
        _core.holding(self.names.writer, self._end)
        self._crew.join()
        for part in self.parts:
            part.close()

    # -- changing

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
        batch = Transaction(
            self.names.core,
            self.names.views,
            events,
            seq=seq,
            on_staged=on_staged,
            trusted=trusted,
            claim=self._claim,
        )
        update = batch.run().update_of(self)
        assert isinstance(update, Update)
        return update

    def prepare(self, change: GraphDelta) -> None:
        if not self._end.alive:
            raise InputError(
                "the parts must be open to apply a batch, got closed ones: divide the graph again"
            )
        self._refuse_broken()
        placed = map(change.native.placed, range(len(self.names.schema.node_types)))
        chosen = {number: owners for number, owners in enumerate(placed) if len(owners)}
        self._batch = Batch(self._crew.poll(change, chosen), change)
        self._batch.prepare()

    def commit(self, change: GraphDelta) -> Update:
        batch = self._batch
        assert batch is not None
        batch.settle(committed=True)
        if (broken := batch.broken) is not None:
            self._broken = broken
            raise LiveGNNError(f"a part of the graph failed as it committed a batch: {broken!r}") from broken
        outcomes = [batch.outcomes[number] for number in range(len(self.parts))]
        if _core.places_nodes(self.names.native):  # the next batch's, by the edges up to this one
            _core.set_ends_of_edges(self.names.native, np.sum([one.ends for one in outcomes], axis=0))
        return Update(
            self.names,
            np.concatenate([one.changed for one in outcomes]),
            seq=change.seq,
            affected=sum(one.affected for one in outcomes),
            seconds=time.perf_counter() - self.names.core.batch_began,
        )

    def abandon(self, change: GraphDelta) -> None:
        batch = self._batch
        if batch is not None and batch.change is change:
            batch.settle(committed=False)
            self._batch = None

    def publish(self, change: GraphDelta) -> None:
        self._batch = None  # which holds the events

    def _refuse_broken(self) -> None:
        if self._broken is not None:
            raise LiveGNNError(
                f"not all parts of the graph show the last batch ({self._broken!r}): divide the graph again"
            )

    def guard(self, on: bool) -> None:
        """Does nothing: `non_finite` of the options decides, as there is no other model beside it."""

    # -- reading

    def predict(
        self, ids: "ArrayLike", *, output: str | None = None
    ) -> "Float32[FloatArray, 'ids channels']":
        """Predictions of nodes, as of `Engine.predict`, each by the part that owns the node.

        Raises `WorkerUnavailableError` if the part of one is lost.
        """
        asked = listed_ids(ids)
        found = self.outputs.find(output)
        with self._visible:
            numbers = self.names.to_numbers(asked)
            node_type = self.names.node_type_index(found.node_type)
            indices = self.names.native.indices_of(node_type, numbers)
            unknown = np.flatnonzero(indices == NO_INDEX)
            if len(unknown):
                raise UnknownNodeError(self.names.unknown_node(asked[unknown[0]], found.node_type))
            given = self.names.to_user_ids(numbers)
            owners = _core.owners_at(self.names.native, node_type, indices)
            rows = np.empty((len(given), self.model.width(found.value)), np.float32)
            for part in np.unique(owners):
                places = owners == part
                rows[places] = self.parts[part].predict(given[places], output)
            return rows

    def predict_at_once(self, ids: "ArrayLike", *, output: str | None = None) -> None:
        """None: a prediction is always read from a part."""
        self.outputs.find(output)

    def answer_at_once(self, request: bytes, parameters: bool, seq: int, most_numbers: int) -> None:
        """None, for the same reason."""

    def find_loss(self) -> str | None:
        return next(filter(None, (part.find_loss() for part in self.parts)), None)

    def memory(self) -> dict[str, int]:
        """Bytes of each part's parts, as `Engine.memory` names them; none of a part that is lost."""
        found = {}
        for number, part in enumerate(self.parts):
            try:
                sizes = part.memory()
            except WorkerUnavailableError:
                continue
            found.update({f"part {number}: {name}": size for name, size in sizes.items()})
        return found

    def write(self, directory: "Path | str") -> "Path":
        """Writes a checkpoint of the current event: files of all parts and one of names, which is returned,
        into a directory. Raises as `checkpoint.write`."""
        path = as_path(directory, "directory")
        return _core.holding(self.names.writer, self._write, path)

    def _write(self, directory: "Path") -> "Path":
        self._refuse_broken()
        return write_set(directory, self.names, self.rules, self.parts)

    def state(self) -> State:
        """Raises `InputError`: a runtime does not save parts yet."""
        raise InputError(
            "a runtime cannot save the parts of a graph yet: keep the log from its first event, which a "
            "start replays, and write no checkpoints"
        )
