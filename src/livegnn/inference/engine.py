"""The engine: keeps every embedding of a model on a live graph equal to a computation from scratch."""

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from types import NoneType
from typing import TYPE_CHECKING, TypeVar, Unpack, cast

import numpy as np

import livegnn._core as _core
from livegnn.arguments import check_bool, check_function, check_int, listed_ids
from livegnn.errors import InputError, UnknownNodeError
from livegnn.events import Events
from livegnn.graph import Graph, GraphDelta, Transaction
from livegnn.graph.writer import Measurement
from livegnn.inference.candidates import CandidateFinder
from livegnn.inference.cost import RECENT, Costing, RecentBatch
from livegnn.inference.engine_state import restore, save, take
from livegnn.inference.explaining import Explaining
from livegnn.inference.followed_edges import FollowedEdges
from livegnn.inference.history import History
from livegnn.inference.native_engine import NativeEngine, check_pair, missing_engine, narrowed, refuse_lost
from livegnn.inference.options import EngineOptions, EngineSettings, choose_options
from livegnn.inference.scrub import Scrubbed, scrub, scrub_all
from livegnn.inference.update import QueryWork, Update
from livegnn.inference.what_if import WhatIf
from livegnn.network import Model
from livegnn.oracle.exactness import Verification, judge
from livegnn.types import Array, FloatArray, State
from livegnn.wording import format_count, format_size, kind_of, never_raises

if TYPE_CHECKING:
    from jaxtyping import Float32
    from numpy.typing import ArrayLike

_logger = logging.getLogger(__name__)
_Read = TypeVar("_Read")

_SAMPLE = "sample, a number of nodes,"


class Engine(Costing, Explaining, CandidateFinder):
    """Keeps the embeddings of `model` on `graph` exact while batches of events are applied to the graph.

    options: an `EngineOptions`; its fields may also be given one by one, as keywords.
    state: the result of `state()` for the same model and graph, so that no embedding is computed. An engine
    of the same model and options, on an equal graph at the same event, may be given instead: its rows are
    moved, not copied, and it can no longer be used.
    name: the view's name, for a runtime in which one graph has several engines.

    Raises `ModelError` if the model does not fit the graph or the settings, `InputError` if the mode does not
    fit the model, if the settings contradict each other or if no files can be made in `state_dir`,
    `FileFormatError` if the state does not fit the model, and `OSError` if no more threads can be started.

    Thread safety: batches and what-ifs run one at a time. A read waits only for the moment in which a batch
    becomes visible, never for the rest of the batch, and sees all of a batch or nothing of it.
    """

    def __init__(
        self,
        graph: Graph,
        model: Model,
        options: EngineOptions | None = None,
        *,
        state: "State | Engine | None" = None,
        name: str = "engine",
        **settings: Unpack[EngineSettings],
    ) -> None:
        check_pair(graph, model)
        options = choose_options(options, settings)
        if not isinstance(state, (State, Engine, NoneType)):
            raise InputError(f"state must be what Engine.state() returned, got {kind_of(state)}")
        super().__init__(graph)
        self.name, self.options = name, options
        self.forkable = options.state_dir is None  # a fork does not copy mapped files
        self.core = core = NativeEngine(graph, model, options)
        self.model, self.plan, self.outputs = core.model, core.plan, core.outputs
        self.output_type_name = core.output_type_name
        self.native, self._followed = core.view, FollowedEdges(core)
        self.guard(options.non_finite == "refuse")
        self._subscribers: list[Callable[[Update], None]] = []
        self._recent: list[RecentBatch | None] = [None] * RECENT
        self._turn = 0
        self._memory = Measurement(graph.writer)
        self._history: History | None = None
        _core.holding(graph.writer, _core.settled, self._begin, self._leave, state)

    def _begin(self, state: "State | Engine | None") -> None:
        core = self.core
        self._lazy = core.eager_steps is not None and core.native.be_lazy(core.eager_steps)
        if state is None:
            core.native.initialize()
        elif isinstance(state, Engine):
            self._take(state)
        else:
            restore(core, state)
        self.graph.attach(self)
        if self.options.history:
            self._history = History(self.graph, self.options.history)
            self.graph.attach(self._history)
        self._memory.take(self._measure)

    def _take(self, source: "Engine") -> None:
        with source.graph.writer:
            take(self.core, source.core, source.settle)
            source.graph.views.detach(source)
            source.retire()

    def _leave(self) -> None:
        """Follows the graph no more, after a constructor that raised: the exception may keep it alive."""
        for view in filter(None, (self, self._history)):
            self.graph.views.detach(view)

    @classmethod
    def factory(
        cls,
        model: Model,
        options: EngineOptions | None = None,
        *,
        name: str = "engine",
        **settings: Unpack[EngineSettings],
    ) -> "Callable[[Graph, State | None], Engine]":
        """A function that makes such an engine from a graph and an optional saved state, as
        `livegnn.runtime.restore` needs it. The arguments are those of the constructor."""
        chosen = choose_options(options, settings)

        def make(graph: Graph, state: State | None) -> Engine:
            return cls(graph, model, chosen, state=state, name=name)

        return make

    @property
    def native_engine(self) -> _core.Engine:
        return self.core.native

    @property
    def digest(self) -> str:
        return self.core.digest

    @never_raises
    def __repr__(self) -> str:
        state = format_size(
            sum(n for part, n in self._memory.read(self._measure).items() if part != "mapped state")
        )
        pending = format_count(self.pending, "pending prediction")
        how = f"lazy, {pending}" if self._lazy else "eager"
        graph = repr(self.graph).replace("\n", "\n  ")
        return f"Engine(\n  {graph},\n  {self.model!r},\n  {how}, seq={self.seq:,}, state {state}\n)"

    @property
    def epoch(self) -> int:
        """The number of batches committed since the engine was made."""
        return self.core.epoch

    @property
    def pending(self) -> int:
        """The number of nodes whose predictions events have reached and that have not been computed since."""
        return self.core.native.pending()

    @property
    def work(self) -> QueryWork:
        """The work that the queries of a lazy engine have done so far; zeros for an eager engine."""
        return QueryWork(*self.core.native.work())

    # -- changing
    # -----------------------------------------------------------------------------------------------

    def apply(
        self,
        events: Events,
        *,
        seq: int | None = None,
        on_staged: Callable[[GraphDelta], None] | None = None,
        on_committed: "Callable[[Update], None] | None" = None,
    ) -> Update:
        """Applies a batch of events to the graph and all its views, as `Graph.apply` does.

        on_committed: called when the graph and all views show the batch, before subscribers are called.
        """
        if on_staged is not None:
            check_function(on_staged, "on_staged", "a GraphDelta")
        if on_committed is not None:
            check_function(on_committed, "on_committed", "an Update")
        tell = (
            None
            if on_committed is None
            else lambda change: map(on_committed, iter((self.update_of(change),)))
        )
        batch = Transaction(
            self.graph.core, self.graph.views, events, seq=seq, on_staged=on_staged, tell=tell
        )
        change = batch.run()
        update = change.update_of(self)
        return update if isinstance(update, Update) else self.update_of(change)

    def update_of(self, change: GraphDelta) -> Update:
        """The effect of a committed batch on predictions. Raises `InputError` if it was of another graph."""
        update = change.update_of(self)
        if not isinstance(update, Update):
            raise InputError("expected a batch that was applied to the engine's graph, got another")
        return update

    def subscribe(self, callback: Callable[[Update], None]) -> Callable[[], None]:
        """Calls `callback` after each batch that changed a prediction, or a score of an edge output that the
        engine follows, in order; returns a function that unsubscribes it.

        A lazy engine calls it after each batch that reached a prediction. The callback runs in the thread
        that applied the batch, before `apply` returns, when the graph and all views show the batch; no other
        batch is applied meanwhile. An exception that it raises is logged and counted (`subscriber_failures`)
        and has no other effect. `apply` raises an interrupt (`KeyboardInterrupt`, `SystemExit`) after it has
        called all other subscribers; the batch stays. If a callback applies a batch itself, subscribers are
        called for that batch after all of them have been called for this one.

        Raises `InputError` if `callback` is not callable.
        """
        check_function(callback, "callback", "an Update")
        self._subscribers.append(callback)

        def unsubscribe() -> None:
            if callback in self._subscribers:
                self._subscribers.remove(callback)

        return unsubscribe

    def prepare(self, change: GraphDelta) -> None:
        native, view = self.core.native, self.core.view
        # A lazy engine then computes the batch instead of recording it; only then it measures its scales.
        outgrown = self._lazy and native.outgrown_by(change.native) and self._show_if_possible()
        try:
            view.prepare_batch(self.graph.native, change.native, outgrown, change.trusted)
        except _core.NotFiniteError as error:
            refuse_lost(self.core, change.native, *error.args)
        if self._followed.outputs:
            self._followed.compare()

    def commit(self, change: GraphDelta) -> Update:
        changed, marked, work = self.core.view.outcome()
        seconds = time.perf_counter() - self.graph.core.batch_began
        self._turn = (self._turn + 1) % RECENT
        self._recent[self._turn] = (work, seconds)
        update = Update(
            self.graph,
            changed,
            seq=change.seq,
            affected=work[0],
            seconds=seconds,
            exact=not marked,
            late_features=change.native.late_features,
            edges=self._followed.found,
        )
        if self._memory.wanted:
            self._memory.take(self._measure)
        return update

    def guard(self, on: bool) -> None:
        self.core.native.set_guard(check_bool(on, "on"))

    def retire(self) -> None:
        super().retire()
        self.core.retire()

    def _show_if_possible(self) -> bool:
        """Computes pending predictions, and returns whether that succeeded. An exception of a function of the
        model must not stop the next batch; a query that needs the function's result raises it.
        """
        try:
            self.core.native.show_current()
        except Exception:
            _logger.exception("the engine could not settle at event %d, and will try again", self.graph.seq)
            return False
        return True

    def publish(self, change: GraphDelta) -> None:
        update = change.update_of(self) if self._subscribers else None
        if isinstance(update, Update) and not update.empty:
            change.tell(self, self._subscribers, update, self._count_failure)

    def _count_failure(self, update: Update, error: BaseException) -> None:
        self.subscriber_failures += 1
        _logger.error("a subscriber to the changes of event %d failed", update.seq, exc_info=error)

    def settle(self) -> None:
        """Computes all predictions that a lazy engine has not yet computed; does nothing in an eager engine.

        Later batches are added to these values, so the bits of later predictions depend on when it is called.
        The engine also settles when a batch removes nodes, and when the edges and features changed since the
        last time reach a sixteenth of the graph. A call that only reads never settles.
        """
        _core.holding(self.graph.writer, self._settle)

    def _settle(self) -> None:
        self._refuse_within_batch()
        self.core.native.settle()

    def prepare_fork(self) -> None:
        self.core.native.show_base()

    def read_current(self, read: Callable[[], _Read]) -> _Read:
        """Returns the result of `read`, called while no batch runs. The tables of a lazy engine then hold the
        current rows too.
        """

        def shown() -> _Read:
            self._show_current_rows()
            return read()

        return _core.holding(self.graph.writer, shown)

    def _show_current_rows(self) -> None:
        """Fills the tables of a lazy engine. The caller holds `Graph.writer` until it has read them."""
        self._refuse_within_batch()
        self.core.native.show_current()

    def _refuse_within_batch(self) -> None:
        """Raises `InputError` if a lazy engine is called within a batch."""
        if self._lazy:
            self.graph.views.refuse_within_batch()

    # -- reading
    # ------------------------------------------------------------------------------------------------

    def predict(
        self, ids: "ArrayLike", *, output: str | None = None
    ) -> "Float32[FloatArray, 'ids channels']":
        """Predictions of nodes, float32 [ids, outputs].

        output: the name of one of the model's `outputs`, by default the first; the nodes are of its type.
        Raises `UnknownNodeError`, and `InputError` if the model has no such output.
        """
        position = 0 if output is None else self.outputs.find(output).position
        asked = listed_ids(ids)
        rows = self.core.native.predict(self.graph.node_ids.given(asked), position)
        if rows is None:
            raise missing_engine()
        if type(rows) is int:
            node_type = self.outputs.find(output).node_type
            raise UnknownNodeError(self.graph.unknown_node(asked[rows], node_type))
        return cast("FloatArray", rows)

    def predict_at_once(
        self, ids: "ArrayLike", *, output: str | None = None
    ) -> "Float32[FloatArray, 'ids channels'] | None":
        """The result of `predict` if it can be read at once. None if `predict` would wait or compute, or if
        there is no such node. For callers that must not block, such as an event loop.
        """
        position = self.outputs.find(output).position
        return self.core.native.predict_at_once(self.graph.node_ids.given(listed_ids(ids)), position)

    def answer_at_once(self, request: bytes, parameters: bool, seq: int, most_numbers: int) -> bytes | None:
        """The answer to a request, as of `Runtime.answer_at_once`. seq: the event that the rows reflect."""
        return self.core.native.answer_at_once(request, parameters, 0, seq, most_numbers)

    def embeddings(self, layer: int) -> "Float32[FloatArray, 'nodes channels']":
        """The rows of one layer for all nodes, float32 [nodes, channels], in the order of ``graph.ids()``, or
        of ``graph.ids(node_type)`` if there are several types.

        Layer 0 is the features. Layer l is the output of the l-th convolution as the next one reads it (after
        activation and norm). The last layer (also -1) is the predictions. Raises `InputError` if there is no
        such layer.
        """
        layers = self.model.layers
        last = len(layers) - 1
        return self._rows(layers[check_int(layer, "layer, of which -1 is the last,", -last - 1, last)])

    def _rows(self, name: str) -> FloatArray:
        """All rows of an output or a layer, in the order of the graph's ids."""

        def read() -> FloatArray:
            rows = (
                self.core.native.evaluate(self.plan.on_demand[name])
                if name in self.plan.on_demand
                else self.core.native.read(self.plan.kept[name].index)
            )
            return rows[self.graph.native.indices(self.graph.node_type_index(self.model.node_type(name)))]

        return self.read_current(read)

    def what_if(self, events: Events) -> WhatIf:
        """Returns the predictions after `events`, without applying them. Raises the errors of `apply`."""
        return WhatIf(self.core, events, self)

    def verify(self, sample: int | None = None, *, seed: int = 0, output: str | None = None) -> Verification:
        """Compares predictions with the oracle, which computes the whole model on the whole graph from
        scratch, in float64, and in float32 too if the float64 result does not prove the guarantee
        (`livegnn.oracle.exactness`). Also compares the rows that the engine keeps between batches, as `scrub`
        does: later predictions are computed from them.

        sample: the number of nodes to compare, drawn at random, at least 1; by default, or if the graph has
        no more nodes, all of them. seed: of the draw. output: the name of an output of the model, by default
        the first; of an edge output, scores of edges are compared. Batches wait only while rows are read.

        Raises `InputError` for a sample below 1, a seed below 0 or an output that the model does not have.
        """
        from livegnn.oracle import reference

        of_edges = self.model.edge_outputs
        scored = self.core.edge_outputs.find(output) if output in [*of_edges] else None
        value = self.outputs.find(output, of_edges).value if scored is None else scored.scores.value
        if sample is not None:
            sample = check_int(sample, _SAMPLE, 1)
        seed = check_int(seed, "seed", 0)
        snapshot, got = self.read_current(
            lambda: (
                (taken := self.graph.snapshot()),
                self._rows(value) if scored is None else self._score_all(scored, taken),
            )
        )
        kept = scrub_all(self.core, self.read_current) if sample is None else self.scrubbed(sample, seed=seed)
        snapshot = replace(snapshot, x=narrowed(self.model, self.graph.schema, snapshot.x))
        expected = reference.compute(self.model, snapshot)[value]
        rows = None
        if sample is not None and sample < len(expected):
            rows = np.random.default_rng(seed).choice(len(expected), sample, replace=False)

        def compute_in_float32() -> Array:
            return reference.compute(self.model, snapshot, dtype=np.float32)[value]

        return replace(judge(got, expected, compute_in_float32, rows=rows), kept=kept.difference)

    def scrub(self, sample: int = 64, *, seed: int = 0) -> float:
        """Computes some rows of everything that is kept again: aggregates from all neighbours, degrees and
        sums of weights, and rows of layers. Returns the largest difference to the kept values, as a fraction
        of the channel's magnitude; infinity if only one of two compared values is finite.

        It changes nothing, and its cost is that of `sample` nodes and their neighbours, so it can run between
        the batches of a stream; but a lazy engine first computes its pending predictions.

        sample: at least one; all nodes if there are no more. seed: the seed of the draw.

        Raises `InputError` for a sample below 1 or a seed below 0.
        """
        return self.scrubbed(sample, seed=seed).difference

    def scrubbed(self, sample: int = 64, *, seed: int = 0) -> Scrubbed:
        """Returns the result of `scrub`, and the number of compared rows that are not finite."""
        sample, seed = check_int(sample, _SAMPLE, 1), check_int(seed, "seed", 0)
        return _core.holding(self.graph.writer, self._scrub, sample, seed)

    def _scrub(self, sample: int, seed: int) -> Scrubbed:
        self._show_current_rows()
        return scrub(self.core.native, self.graph, self.plan, sample, seed)

    def memory(self) -> dict[str, int]:
        """Bytes of the graph's parts and of the engine's. ``"mapped state"`` is the part of the engine's
        bytes that is stored in files; the other parts include these bytes too.

        For a lazy engine it includes the rows that queries have computed (``"overlay"``) and the changes
        recorded since it last settled (``"record"``). Like `Graph.memory`, it never waits for a batch.
        """
        return {**self.graph.memory(), **self._memory.read(self._measure), **self._candidate_memory()}

    def _measure(self) -> dict[str, int]:
        history = None if self._history is None else self._history.nbytes
        return self.core.memory(lazy=self._lazy, history=history)

    # -- keeping
    # ------------------------------------------------------------------------------------------------

    def state(self) -> State:
        """All kept values, exactly. An engine restored from them computes the same bits as this one would."""
        return _core.holding(self.graph.writer, self._save)

    def _save(self) -> State:
        self._refuse_within_batch()
        self.core.native.show_base()
        return save(self.core)
