"""The runtime as clients of predictions see it: they read them, suppose events and subscribe to changes.

Thread safety: everything may be called from any thread.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType, NoneType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

import livegnn._core as _core
from livegnn.arguments import check_function
from livegnn.errors import InputError, WorkerUnavailableError
from livegnn.events import Events
from livegnn.events.chunk import IdsLike
from livegnn.expiry import ExpiryPolicy
from livegnn.graph import AutoAdd, Graph, GraphDelta, View, auto_add_nodes
from livegnn.inference import Engine, RowPredictor, Scrub, ScrubPolicy, Update
from livegnn.inference.predictions import Prediction
from livegnn.log import Log
from livegnn.presampling import Predictor
from livegnn.runtime.admission import Admission
from livegnn.runtime.checkpoints import CheckpointPolicy
from livegnn.runtime.future_events import AheadPolicy
from livegnn.runtime.loop import Loop
from livegnn.runtime.model_register import ModelRegister, Nothing
from livegnn.runtime.models import Models, Switch
from livegnn.runtime.pace import Pace
from livegnn.runtime.recovery import ViewFactory
from livegnn.runtime.views import WhenViewFails
from livegnn.sampling import HeteroSubgraph
from livegnn.types import FloatArray, Ids, NodeType
from livegnn.wording import kind_of

if TYPE_CHECKING:
    from jaxtyping import Float32, Shaped

    from livegnn.inference.followed_edges import ScoreChanges

_logger = logging.getLogger(__name__)
_NO_IDS = np.empty(0, np.int64)


class Change(NamedTuple):
    """The changes of a batch: the nodes with another prediction at `seq`: `ids[n]`, `predictions[n, out]`.

    If the runtime has no engine, or no subscriber wants them (see `Runtime.subscribe`), both are empty.
    removed: ids [removed] of the nodes of the same type that had a prediction, and are not in the graph any
    more. known: False if predictions changed that are not listed, because the engine failed in this batch or
    is built again. edges: as of `Update`, for each edge output that the engine follows.
    """

    seq: int
    ids: "Shaped[Ids, 'nodes']"
    predictions: "Float32[FloatArray, 'told channels']"
    affected: int
    seconds: float
    removed: "Shaped[Ids, 'removed']" = _NO_IDS
    known: bool = True
    edges: "Mapping[str, ScoreChanges]" = MappingProxyType({})


class SupposedPrediction(NamedTuple):
    """Predictions `values[n, out]` as if events had happened after `seq`, and the nodes whose prediction
    would change.

    changed: their ids, empty if they were not to be listed; num_changed: their number.
    """

    seq: int
    values: "Float32[FloatArray, 'nodes channels']"
    changed: "Shaped[Ids, 'changed']"
    num_changed: int


class SampledPrediction(NamedTuple):
    """Rows of the model's output, `values[n, out]`, and the sample on which each was computed."""

    seq: int
    values: "Float32[FloatArray, 'nodes channels']"
    samples: Sequence[HeteroSubgraph]


class _Subscriber(NamedTuple):
    callback: Callable[[Change], None]
    wanted: Callable[[], bool]
    ids_wanted: Callable[[], bool]


class Runtime(Loop):
    """A runtime that keeps `graph` and views of it, such as an engine, at the end of `log`.

    Creating one replays the batches that the log recorded after `graph.seq`, exactly as they were. One engine
    of the views serves: it answers requests for predictions that name no model; without one, those raise
    `InputError`.

    max_batch_events: the most events of a batch. freshness_ms: an objective for the time from append to
    visible, for which the size of batches is then chosen (see `Pace`). max_waiting_events, max_waiting_ms:
    the limits of waiting events above which appends are refused (see `Admission`): by default the events that
    the loop applies in 10 s. auto_add: node types of which events may name unknown nodes, which they then
    add, as in `Schema`: it becomes a part of the graph's schema, and types can be added to it but not
    removed. when_view_fails: "stop" ends the loop, with a message that names the view; "rebuild" continues
    without it and builds it again from the graph, with its factory of `factories`, a few times at most.
    build: further views, by name, which are built from the graph after the log is replayed: after very many
    events that is faster than to follow the replay, and exact, but with other last bits. register: keeps the
    deployed models, and the serving one, for the next start.

    models: the engines, and the methods that deploy others.

    Raises LogError if the log does not continue from there, InputError if a view is not one of this graph, or
    if settings are not valid.
    """

    _subscriber_failures = 0
    scrub: Scrub | None = None
    _at_rebuild: tuple[Callable[[View], None], ...] = ()

    def __init__(
        self,
        log: Log,
        graph: Graph,
        *views: View,
        max_batch_events: int = 4096,
        freshness_ms: float | None = None,
        max_waiting_events: int | None = None,
        max_waiting_ms: float | None = None,
        checkpoints: CheckpointPolicy | None = None,
        expiry: ExpiryPolicy | None = ExpiryPolicy(),  # noqa: B008
        ahead: AheadPolicy | None = None,
        auto_add: AutoAdd | None = None,
        when_view_fails: WhenViewFails = "stop",
        factories: Mapping[str, ViewFactory] = MappingProxyType({}),
        build: Mapping[str, ViewFactory] = MappingProxyType({}),
        scrub: ScrubPolicy | None = None,
        register: ModelRegister = Nothing(),  # noqa: B008
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not isinstance(graph, Graph):
            got = ", ".join(map(kind_of, (graph, *views)))
            raise InputError(f"expected a Graph and its views, got {got}: write Runtime(log, graph, engine)")
        if not isinstance(scrub, (ScrubPolicy, NoneType)):
            raise InputError(f"scrub must be None or of the type ScrubPolicy, got {scrub!r}")
        if auto_add is not None:
            auto_add_nodes(graph.core, auto_add)
        pace = Pace(max_batch_events, freshness_ms)
        super().__init__(
            log,
            graph,
            views,
            pace=pace,
            admission=Admission(pace, max_waiting_events, max_waiting_ms),
            checkpoints=checkpoints,
            expiry=expiry,
            ahead=ahead,
            when_view_fails=when_view_fails,
            factories=factories,
            build=build,
            clock=clock,
        )
        self.models = Models(
            log,
            graph,
            self.views,
            self._between_batches,
            self._rebuilding.factories,
            visible=self._becoming_visible,
            read=self.read,
            register=register,
            on_switch=self._switched,
            keep_apart=self._keep_apart,
        )
        self._subscribers: list[_Subscriber] = []
        self._at_switch: list[Callable[[Switch], None]] = []
        self._at_end: list[Callable[[], None]] = []
        if isinstance(engine := self.models.engine, Engine):
            self.scrub = Scrub(engine, scrub, self._clock)
            self._tasks.append(self.scrub)

    @property
    def engine(self) -> Engine:
        """The serving engine. Raises `InputError` if the runtime has none, answers from samples, or has a
        graph in parts, and `ViewMissingError` while it is built again.
        """
        return self.models.find_engine(None)

    @property
    def has_engine(self) -> bool:
        """Whether there are predictions."""
        return self.models.serving is not None

    @property
    def subscriber_failures(self) -> int:
        """The number of errors of subscribers, including subscribers of the engine."""
        engine = self.models.engine
        return self._subscriber_failures + (0 if engine is None else engine.subscriber_failures)

    def predict(
        self,
        ids: IdsLike,
        *,
        min_seq: int = 0,
        timeout: float = 10.0,
        output: str | None = None,
        model: str | None = None,
    ) -> Prediction:
        """Returns the model's output for nodes, with the sequence number that it reflects, `values[n, out]`.

        min_seq, timeout: waits at most `timeout` seconds for event `min_seq`, as `wait` does. output: its
        name, as in `Engine.predict`. model: its name, by default the serving model. Raises UnknownNodeError,
        and InputError if there is no such output or model.
        """
        if min_seq != 0:
            self.wait(min_seq, timeout)
        first = self.models.find(model)
        if isinstance(first, RowPredictor) and (apart := first.predict_apart(ids, [output])) is not None:
            return Prediction(apart.seq, apart.rows[0])

        def begin() -> "tuple[Predictor, FloatArray | None]":
            found = self.models.find(model)
            return found, found.predict(ids, output=output) if found.keeps_rows else None

        seq, (found, values) = self.read(begin)
        if values is None:
            # Many samples take long: other requests wait for them only if a batch was applied meanwhile.
            values = found.predict(ids, output=output)
            if self.read(lambda: None)[0] != seq:
                return Prediction(*self.read(lambda: self.models.find(model).predict(ids, output=output)))
        return Prediction(seq, values)

    def predict_with_samples(
        self, ids: IdsLike, *, output: str | None = None, model: str | None = None
    ) -> SampledPrediction:
        """Returns the result of `predict` by a model that answers from samples, and the sample of each node.

        Raises the errors of `predict`, and `InputError` if the model reads all neighbours.
        """
        found = self.models.find(model)
        if found.keeps_rows is True:
            raise InputError(
                f"expected a model that answers from samples, got {found.name!r}, which reads all "
                "neighbours: ask for its predictions alone"
            )
        seq, samples = self.read(lambda: found.samples_for(ids))
        return SampledPrediction(seq, found.predict_from(samples, output=output), samples)  # batches go on

    def predict_at_once(
        self, ids: IdsLike, *, min_seq: int = 0, output: str | None = None, model: str | None = None
    ) -> Prediction | None:
        """Returns the result of `predict` if it can be read at once; None if that would wait or compute, or
        if there is no such node.
        """

        def predict() -> FloatArray | None:
            if self.graph.seq < min_seq:
                return None
            return self.models.find(model).predict_at_once(ids, output=output)

        found = self.read_at_once(predict)
        return None if found is None or found[1] is None else Prediction(found[0], found[1])

    def answer_at_once(self, request: bytes, *, parameters: bool, most_numbers: int) -> bytes | None:
        """Returns the answer, as JSON, to a request for a few nodes in one of its usual forms: the body
        ``{"ids": [5, 7], "min_seq": 3}``, or the `parameters` ``ids=5,7`` of an address. None if this would
        wait or compute, if a node does not exist, if the answer would have more than `most_numbers`, and for
        requests in other forms.
        """

        def answer() -> bytes | None:
            predictor = self.models.find(None)
            return predictor.answer_at_once(request, parameters, self.graph.core.seq, most_numbers)

        found = self.read_at_once(answer)
        return None if found is None else found[1]

    def what_if(
        self,
        events: Events,
        ids: IdsLike,
        *,
        output: str | None = None,
        model: str | None = None,
        lists: Callable[[int], bool] = lambda count: True,
    ) -> SupposedPrediction:
        """Returns the result of `predict(ids)` as if `events` happened now; nothing is kept.

        lists: receives the number of nodes that would change, and returns whether to list their ids; it may
        raise any error. Raises InputError.
        """
        self.check(events)

        def suppose() -> SupposedPrediction:
            answer = self.models.find_row_predictor(model).what_if(events)
            values = answer.predict(ids, output=output)
            count = answer.num_changed
            changed = answer.changed if lists(count) else _NO_IDS
            return SupposedPrediction(self.graph.seq, values, changed, count)

        return _core.holding(self.graph.writer, suppose)

    def subscribe(
        self,
        callback: Callable[[Change], None],
        *,
        on_end: Callable[[], None] | None = None,
        on_switch: Callable[[Switch], None] | None = None,
        wanted: Callable[[], bool] = lambda: True,
        ids_wanted: Callable[[], bool] = lambda: False,
    ) -> Callable[[], None]:
        """Calls `callback` after every batch, in order, from the loop's thread; returns a function to end it.

        A callback must return quickly; its errors are logged, counted (`subscriber_failures`) and otherwise
        ignored. It must not wait for later events. on_end: called once, when the loop has failed or the
        runtime is stopped, and there are no more batches. on_switch: called when another model serves,
        between the changes before and the changes after. wanted: called after every batch; while it returns
        False for all subscribers, a `Change` has no ids and no predictions. ids_wanted: the same for the ids
        alone, which cost less. Each is called once a batch, and must not raise.

        Raises InputError for an argument that cannot be called.
        """
        check_function(callback, "callback", "a Change")
        check_function(wanted, "wanted", "nothing, which returns a bool")
        check_function(ids_wanted, "ids_wanted", "nothing, which returns a bool")
        subscriber = _Subscriber(callback, wanted, ids_wanted)
        if on_end is not None:
            check_function(on_end, "on_end", "nothing")
        if on_switch is not None:
            check_function(on_switch, "on_switch", "a Switch")

        def add() -> None:
            if on_switch is not None:
                self._at_switch.append(on_switch)
            if on_end is not None:
                self._at_end.append(on_end)
            self._subscribers.append(subscriber)

        def remove() -> None:
            if subscriber in self._subscribers:
                self._subscribers.remove(subscriber)
            if on_end in self._at_end:
                self._at_end.remove(on_end)
            if on_switch in self._at_switch:
                self._at_switch.remove(on_switch)

        _core.holding(self._visible, add)
        return lambda: _core.holding(self._visible, remove)

    def _view_changed(self, name: str, view: View | None) -> None:
        if name == self.models.serving and self.scrub is not None:
            self.scrub.follow(view if isinstance(view, Engine) else None)
        if view is not None:
            self._call_each([partial(one, view) for one in self._at_rebuild], f"rebuild of {name!r}")

    def follow_rebuilds(self, callback: Callable[[View], None]) -> None:
        """Calls `callback` with each view that is built again after it failed, from the loop's thread. Its
        errors are logged and counted as those of subscribers. Raises InputError if it cannot be called.
        """
        check_function(callback, "callback", "a View")
        self._at_rebuild = (*self._at_rebuild, callback)

    def _find_view_reasons(self) -> dict[str, str]:
        serving = self.models.serving
        reason = None if serving is None else self.views.missing.get(serving)
        reasons = {} if reason is None else {"predictor": f"the view {serving!r} is built again: {reason}"}
        if (engine := self.models.engine) is not None and (lost := engine.find_loss()) is not None:
            reasons["predictor"] = lost
        if (lost := self.models.find_loss()) is not None:
            reasons["models"] = lost
        return reasons

    def _needed_after(self) -> int | None:
        return self.models.needed_after()

    def _drop(self, name: str, reason: str) -> bool:
        dropped = self.models.is_dispensable(name)
        if dropped:
            self.models.lose(name, reason)
        return dropped

    def _switched(self, switch: Switch) -> None:
        if self.scrub is not None:
            engine = self.models.engine
            self.scrub.follow(engine if isinstance(engine, Engine) else None)
        callbacks = _core.holding(self._visible, self._at_switch.copy)
        self._call_each([partial(callback, switch) for callback in callbacks], f"switch to {switch.model!r}")

    def stop(self) -> None:
        self.models.close()
        super().stop()

    def _count(self, change: GraphDelta) -> None:
        if change.late_features:
            self.statistics.late_features.record(change.late_features)
        update = self._update_of(change)
        if update is not None:
            self.statistics.affected_nodes.record(update.affected)
            self.statistics.changed_nodes.record(update.num_changed)

    def _update_of(self, change: GraphDelta) -> Update | None:
        """Returns the engine's update, None if there is no engine, or if it has failed to commit."""
        engine = self.models.engine
        update = None if engine is None else change.update_of(engine)
        return update if isinstance(update, Update) else None

    def _tell(self, change: GraphDelta, seconds: float) -> None:
        subscribers = tuple(self._subscribers)
        if subscribers:
            # Each is asked, because its answer is about this batch, and only once, because it may change.
            answers = [(one.wanted(), one.ids_wanted()) for one in subscribers]
            wanted = any(one for one, _ in answers)
            listed = wanted or any(one for _, one in answers)
            described = self._describe(change, seconds, wanted=wanted, listed=listed)
            change.tell(self, [one.callback for one in subscribers], described, self._count_failure)

    def _count_failure(self, described: Change, error: BaseException) -> None:
        self._subscriber_failures += 1
        _logger.error("a subscriber to the changes of batch %d failed", described.seq, exc_info=error)

    def _describe(self, change: GraphDelta, seconds: float, *, wanted: bool, listed: bool) -> Change:
        engine, update = self.models.engine, self._update_of(change)
        if engine is None or update is None:
            lost = engine is not None or (self.has_engine and self.models.predictor is None)
            return Change(change.seq, _NO_IDS, np.empty((0, 0), np.float32), 0, seconds, known=not lost)
        ids, width = update.changed if listed else _NO_IDS, engine.model.width(engine.model.output)
        predictions = np.empty((0, width), np.float32)
        if wanted and len(ids):
            try:
                predictions = engine.predict(ids)
            except WorkerUnavailableError:
                _logger.exception("the predictions that batch %d changed cannot be read", update.seq)
                return Change(change.seq, _NO_IDS, predictions, 0, seconds, known=False)
            except Exception:
                # A lazy engine computes them now, and a function of the model may fail.
                _logger.exception("the predictions that batch %d changed cannot be computed", update.seq)
                predictions = np.full((len(ids), width), np.nan, np.float32)
        removed = _removed(change, engine.output_type_name) if listed else _NO_IDS
        edges = update.edges if listed else {}
        return Change(update.seq, ids, predictions, update.affected, seconds, removed, edges=edges)

    def _tell_end(self) -> None:
        callbacks, self._at_end = self._at_end, []
        self._call_each(callbacks, "end of the loop")

    def _call_each(self, callbacks: Sequence[Callable[[], None]], what: str) -> None:
        """Calls subscribers to events other than a change."""
        for callback in callbacks:
            try:
                callback()
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt) and not self._is_sheltered():
                    raise
                self._subscriber_failures += 1
                _logger.exception("a subscriber to the %s failed", what)


def _removed(change: GraphDelta, node_type: NodeType) -> "Shaped[Ids, 'removed']":
    """Returns ids of nodes that a batch has removed, without the ones that it has added again."""
    removed = change.removed(node_type)
    return removed[~np.isin(removed, change.added(node_type))] if len(removed) else removed
