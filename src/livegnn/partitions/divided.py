"""A graph and the engine of a model, divided into parts that apply each batch together.

A batch is staged on the graph of names, which refuses unknown ids and wrong values. Then all parts stage and
prepare it together, and vote. If all agree, the names commit, and then all parts; else all abandon it.
"""

import threading
import time
import weakref
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np

import livegnn._core as _core
from livegnn.arguments import as_path
from livegnn.errors import InputError, LiveGNNError, WorkerUnavailableError
from livegnn.events import Events
from livegnn.graph import Claim, Graph, GraphDelta, Transaction
from livegnn.graph.division import PartCounts
from livegnn.inference import EngineOptions, Update
from livegnn.inference.native_engine import lay_out
from livegnn.inference.row_predictor import RowsApart
from livegnn.interrupts import at_once
from livegnn.network import Model
from livegnn.network.outputs import Outputs
from livegnn.partitions.batch import Batch
from livegnn.partitions.crew import Crew
from livegnn.partitions.edges import EdgesOfParts
from livegnn.partitions.part import Asked, Given, Outcome, Placed, Reader
from livegnn.partitions.reads import RowReads
from livegnn.partitions.replacing import TRIES, Replacing
from livegnn.partitions.sampler import PartitionedSampler
from livegnn.partitions.scores import PairScores, PartsScorer
from livegnn.partitions.sets import write_parts, write_set
from livegnn.partitions.what_if import WhatIfOfParts
from livegnn.placement import Owners
from livegnn.sampling.request import use_sampler
from livegnn.types import FloatArray, State
from livegnn.wording import never_raises

if TYPE_CHECKING:
    from pathlib import Path

    from jaxtyping import Float32
    from numpy.typing import ArrayLike


class Partitions(PartsScorer):
    """The parts of a graph, led as one engine: a view of a graph of names, whose batches they apply.

    names: a graph with all nodes and their owners, and without edges; it assigns sequence numbers, and
    `livegnn.sampling` and the loaders of `livegnn.training` draw samples from it, for which the parts draw.
    rules: the owners of nodes that arrive, by node type. parts: which answer reads. crew: the same parts, as
    batches reach them.

    Thread safety: any thread may call. Batches are applied one at a time. A read sees all parts before a
    batch or after it; while that becomes visible, it waits for the parts of its nodes alone.
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
        self.visible = threading.RLock()
        self._claim = Claim(self, self.visible)
        self._reads = RowReads(self)
        self._pairs = PairScores(self)
        self._replacing: Replacing[Partitions] | None = None
        self._batch: Batch | None = None  # that is being applied
        self._broken: BaseException | None = None
        self.commits = 0
        names.attach(self)
        use_sampler(names, PartitionedSampler(names.native, self.parts, names.writer))
        names.core.elsewhere = self._edges = EdgesOfParts(self.parts)

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
        if self._replacing is not None:
            self._replacing.close()
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
        if not isinstance(update, Update):
            raise LiveGNNError("the batch was applied, but a part was lost, and its changes are not known")
        return update

    def replace_lost(self, make: "Callable[[int], Partitions]") -> None:
        """From now on, replaces all parts when one is lost, until `close`. make: fresh parts at an event,
        which have names of their own. No batch may be applied meanwhile.
        """
        self._replacing = Replacing(self, make)
        self._edges.replace = self._replacing.replace_lost

    def exchange(self, other: "Partitions") -> None:
        """Leads the parts of `other` from now on, which leads those of this one, to close them. Both must be
        at the same event; the caller holds `Graph.writer` and the lock of readers. Raises `LiveGNNError` if
        they have other owners.
        """
        mine, theirs = self.names.native, other.names.native
        for node_type in range(len(self.names.schema.node_types)):
            if not np.array_equal(_core.owners_of(mine, node_type), _core.owners_of(theirs, node_type)):
                raise LiveGNNError(
                    "fresh parts must own the nodes that the lost ones own, got others: restart the server"
                )
        for one in (self, other):
            one._end.detach()
        _core.holding(self._reads.exchanging, self._exchange_parts, other)
        self._crew, other._crew = other._crew, self._crew
        self._edges.parts, other._edges.parts = self.parts, other.parts
        for one in (self, other):
            one._end = weakref.finalize(one, at_once, *one._crew.ending)
        self._batch = self._broken = None
        use_sampler(self.names, PartitionedSampler(self.names.native, self.parts, self.names.writer))

    def _exchange_parts(self, other: "Partitions") -> None:
        self.parts, other.parts = other.parts, self.parts
        _core.continue_batches(self.names.native, other.names.native)

    def announce(self) -> None:
        """Says to fronts where the parts are, unless they know it. Parts of this process answer none."""

    def prepare(self, change: GraphDelta) -> None:
        self._refuse_closed()
        chosen = _placed(change, len(self.names.schema.node_types))
        counted = self._broken is None
        for left in range(0 if self._replacing is None else TRIES, -1, -1):
            try:
                if self._replacing is not None:
                    self._replacing.replace_lost()
                self._refuse_broken()
                if chosen and not counted:
                    raise LiveGNNError(
                        "nodes must be placed by the edges of all batches, got counts without the last one: "
                        "apply the batch again"
                    )
                self._batch = Batch(self._crew.poll(self._give(change), chosen), change)
                self._batch.prepare()
            except WorkerUnavailableError:
                self.abandon(change)
                if not left:
                    raise
            else:
                return

    def _give(self, change: GraphDelta, asked: Sequence[Asked] | None = None) -> Given:
        return Given(change.events, change.seq, change.trusted, asked)

    def suppose(self, change: GraphDelta, asked: Sequence[Asked]) -> Sequence[Outcome]:
        """The effects on all parts of a change that the names have staged; nothing changes. asked: the
        question to each part. The caller holds `Graph.writer` of the names. Raises the errors of `prepare`,
        and `WorkerUnavailableError` if a part is lost, which is not replaced for it."""
        self._refuse_closed()
        if isinstance(self._broken, WorkerUnavailableError) and self._replacing is not None:
            raise self._broken  # the part is replaced soon
        self._refuse_broken()
        chosen = _placed(change, len(self.names.schema.node_types))
        batch = Batch(self._crew.poll(self._give(change, asked), chosen), change)

        def run() -> None:
            batch.prepare()
            batch.settle(committed=True)

        _core.settled(run, partial(batch.settle, committed=False))
        if batch.broken is not None:
            raise batch.broken
        return [batch.outcomes[number] for number in range(len(self.parts))]

    def commit(self, change: GraphDelta) -> Update | None:
        """Shows the batch. None if a part was lost meanwhile and will be replaced: its changes are not
        known."""
        batch = self._batch
        assert batch is not None
        batch.settle(committed=True)
        self.commits += 1
        if (broken := batch.broken) is not None:
            self._broken = broken
            if self._replacing is not None:
                return None
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
            late_features=change.late_features,
        )

    def abandon(self, change: GraphDelta) -> None:
        batch = self._batch
        if batch is not None and batch.change is change:
            batch.settle(committed=False)
            self._batch = None

    def publish(self, change: GraphDelta) -> None:
        self._batch = None  # which holds the events
        if self._broken is not None and self._replacing is not None:
            # Now and not in the next batch, whose nodes are placed by the counts of this one.
            self._replacing.try_to_replace()

    def _refuse_closed(self) -> None:
        if not self._end.alive:
            raise InputError(
                "the parts must be open to apply a batch, got closed ones: divide the graph again"
            )

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
        return self._reads.read(ids, [output]).rows[0]

    def predict_apart(
        self, ids: "ArrayLike", outputs: Sequence[str | None], *, present: bool = False
    ) -> RowsApart:
        """As `RowPredictor.predict_apart`. Raises the errors of `predict`."""
        return self._reads.read(ids, outputs, present=present)

    @property
    def is_applying(self) -> bool:
        """Whether some parts may show a batch that others do not show yet."""
        return self._batch is not None

    def what_if(self, events: Events) -> WhatIfOfParts:
        """Predictions and scores after `events`, as of `Engine.what_if`. Their errors are raised by the first
        read, and each read of predictions or scores computes the batch on all parts."""
        return WhatIfOfParts(self, self._pairs, events)

    def predict_at_once(self, ids: "ArrayLike", *, output: str | None = None) -> None:
        """None: a prediction is always read from a part."""
        self.outputs.find(output)

    def answer_at_once(self, request: bytes, parameters: bool, seq: int, most_numbers: int) -> None:
        """None, for the same reason."""

    def find_loss(self) -> str | None:
        lost = self.find_own_loss()
        return lost if lost is None or self._replacing is None else f"{lost}; all parts are started again"

    def find_own_loss(self) -> str | None:
        """Why a part does not answer, or does not show the last batch; None if all do."""
        lost = next(filter(None, (part.find_loss() for part in self.parts)), None)
        broken = self._broken
        return f"a part must show the last batch, got {broken!r}" if lost is None and broken else lost

    def find_move(self) -> str | None:
        """Why parts should be on other machines; None if they should stay."""
        return None

    def memory(self) -> dict[str, int]:
        """Bytes of each part's parts, as `Engine.memory` names them; none of a part that is lost, and the
        last that are known of one that is silent."""
        found = {}
        for number, part in enumerate(self.parts):
            try:
                sizes = part.memory()
            except WorkerUnavailableError:
                continue
            found.update({f"part {number}: {name}": size for name, size in sizes.items()})
        return found

    def part_counts(self) -> PartCounts | None:
        """Edges, cut edges, nodes and sent bytes of all parts. While a batch becomes visible, parts may show
        it or not; those of a part that is silent are the last that are known. None if those are not."""
        try:
            last = [part.last_counts() for part in self.parts]
        except WorkerUnavailableError:
            return None
        counts = [one for one in last if one is not None]
        if len(counts) < len(last):
            return None
        schema, native = self.names.schema, self.names.native
        edges = np.array([one.edges for one in counts], np.int64).sum(axis=0).tolist()
        return PartCounts(
            {name: each[0] for name, each in zip(schema.edge_types, edges, strict=True)},
            {name: each[1] for name, each in zip(schema.edge_types, edges, strict=True)},
            {name: _core.part_loads(native, n).tolist() for n, name in enumerate(schema.node_types)},
            [one.sent for one in counts],
        )

    def write(self, directory: "Path | str") -> "Path":
        """Writes a checkpoint of the current event: files of all parts and one of names, which is returned,
        into a directory. Raises as `checkpoint.write`."""
        path = as_path(directory, "directory")
        return _core.holding(self.names.writer, self._write, path)

    def _write(self, directory: "Path") -> "Path":
        self._refuse_broken()
        return write_set(directory, self.names, self.rules, self.parts, self.digest)

    def save_beside(self, path: "Path") -> State:
        """Writes the files of all parts beside the checkpoint `path` of a runtime; returns its section, which
        describes the set. Raises as `checkpoint.write`, and `WorkerUnavailableError` if a part is lost."""
        return _core.holding(self.names.writer, self._save, path)

    def _save(self, path: "Path") -> State:
        self._refuse_broken()
        return write_parts(path.parent, self.seq, self.rules, self.parts, self.digest)

    def state(self) -> State:
        """Raises `InputError`: the state of parts is in several files."""
        raise InputError("the state of a graph in parts must be written to files, got none: use write")


def _placed(change: GraphDelta, node_types: int) -> Placed:
    """The owners that a staged change chooses for the nodes that it adds."""
    placed = map(change.native.placed, range(node_types))
    return {number: owners for number, owners in enumerate(placed) if len(owners)}
