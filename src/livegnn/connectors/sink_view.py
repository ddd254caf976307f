"""The view that keeps a sink as the predictions are: at least once, for each node in order.

    batch ─► ids into `Unsent` ─┐             thread: ids ─► newest rows ─► filter ─► sink.write
                                └── Graph.writer ───┘                                    │
    checkpoint ◄── ids that the sink lacks, rows that it has ◄──────── acknowledged ◄────┘

A batch only notes the ids of changed predictions; a thread of the view's own reads and sends them. So a sink
that is slow or away delays no batch, and needs no more memory than the ids of the graph. After a crash the
log is replayed from the checkpoint, and ids that change again are sent again.

The event of a node's rows never decreases: the rows of a part are read after the part before was
acknowledged, and after a restart they are read when the log was replayed, which has every batch that was ever
visible.

Thread safety: `publish`, `settle` and `state` run in the loop; `start`, `close` and what `SinkStand` has may
be called by any thread. Common data are read and changed under `Graph.writer`.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypedDict

import numpy as np

import livegnn._core as _core
from livegnn.arguments import check_int, check_not_negative
from livegnn.backoff import Backoff
from livegnn.connectors.row_filter import RowFilter, SentRows
from livegnn.connectors.sink import PredictionRows, Sink
from livegnn.connectors.unsent import AnyIds, ChangedNodes, ListedNodes, Unsent, join
from livegnn.errors import FileFormatError, InputError, shortened
from livegnn.graph import Graph, GraphDelta, Growth, View
from livegnn.inference import RowPredictor, Update
from livegnn.interrupts import Background, Flag
from livegnn.runtime import Runtime
from livegnn.runtime.present_rows import PresentRows, list_ids, read_present
from livegnn.texts import Texts
from livegnn.types import JSON, IntArray, State
from livegnn.wording import kind_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

_logger = logging.getLogger(__name__)

_PAUSES: Final = Backoff(0.2, 30.0)
_LAST_WORDS: Final = 5.0
"""Seconds in which a sink is sent what it lacks when the view closes."""
_LONG_WRITE: Final = 5.0
"""Seconds after which a write is said not to end."""
_READ_BYTES: Final = 1 << 20
_READ_ROWS: Final = 8192  # at one event, for which a batch may wait
_LOOK_SECONDS: Final = 1.0  # between two looks whether another model answers
_VERSION: Final = 1
_MOST: Final = 1 << 20

PREFIX: Final = "sinks."
"""Of the names of the views of a deployment's sinks."""


class SinkSettings(TypedDict, total=False):
    """The arguments of `SinkView` beside its graph and its sink."""

    name: str
    model: str | None
    filter: RowFilter | None
    every_seconds: float
    most_rows: int
    state: State | None
    clock: Callable[[], float]


class SinkView(View):
    """Sends changed predictions of the first output of a model to `sink`, from `start` on.

    name: the view's, and its section's in checkpoints. model: its name, by default the serving model, also
    after a switch. filter: which rows are sent; by default all. every_seconds: between two rounds, in which a
    node is sent once. most_rows: in one `write`. state: the result of `state`, with the graph at the same
    event; without it, all predictions are sent. Raises `InputError` for wrong arguments, `FileFormatError` if
    the state does not fit.
    """

    sent = failures = 0
    _edge_output: str | None = None

    def __init__(
        self,
        graph: Graph,
        sink: Sink,
        *,
        name: str = "sink",
        model: str | None = None,
        filter: RowFilter | None = None,
        every_seconds: float = 0.1,
        most_rows: int = 4096,
        state: State | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not isinstance(graph, Graph):
            raise InputError(f"graph must be a Graph, got {kind_of(graph)}")
        if not (callable(getattr(sink, "write", None)) and callable(getattr(sink, "close", None))):
            raise InputError(f"sink must have the methods write and close, got {kind_of(sink)}")
        super().__init__(graph)
        self.name, self._label = name, name.removeprefix(PREFIX)
        self._sink, self._model, self._filter = sink, model, filter
        self._every = check_not_negative(every_seconds, "every_seconds")
        self._most = check_int(most_rows, "most_rows", 1, _MOST)
        self._clock = clock
        self._text = self._has_text_ids()
        self._unsent, self._sent_rows = Unsent(text=self._text), SentRows()
        self._followed: list[JSON] | None = None  # the model whose rows the sink has, as `_identify` says it
        self._seen: tuple[RowPredictor | None, int] = None, 0  # that model, after how many switches
        self._runtime: Runtime | None = None
        self._thread: Background | None = None
        self._stop, self._wake = Flag(), Flag()
        self._reason: str | None = None  # of the last write that failed
        self._writes_since: float | None = None
        self._retired = False
        _core.holding(graph.writer, self._load, state)
        graph.attach(self)

    def _has_text_ids(self) -> bool:
        return self.graph.schema.text_ids

    # -- the way of a batch

    def check_growth(self, growth: Growth) -> None:
        pass  # no prediction changes

    def publish(self, change: GraphDelta) -> None:
        now = self._clock()
        if self._runtime is None:  # the log is replayed, and any model may serve when that is done
            found = [(view, update) for view, update in change.updates() if isinstance(view, RowPredictor)]
            found = [one for one in found if self._model in (None, one[0].name)]
        else:
            model = self._follow()
            found = [] if model is None else [(model, change.update_of(model))]
        if not found:
            self._unsent.add_everything(now)
        for view, update in found:
            self._note_batch(view, update, change, now)
        if self._unsent.waits and not self._wake.is_set():
            self._wake.set()

    def _note_batch(self, view: RowPredictor, update: object, change: GraphDelta, now: float) -> None:
        """Notes the ids of a batch. update: its effect on the view, if there is one."""
        if isinstance(update, Update):
            self._note(update, change.trusted, now)
        else:
            self._unsent.add_everything(now)  # it failed in this batch, or is built again
        if len(removed := change.removed(view.output_type_name)):
            self._note(ListedNodes(removed), change.trusted, now)

    def _note(self, nodes: ChangedNodes, trusted: bool, now: float) -> None:
        self._unsent.add(nodes, now)
        if trusted and len(self._sent_rows):  # a replayed batch: they may have been sent since the checkpoint
            self._sent_rows.forget(nodes.changed)

    def _find_model(self) -> RowPredictor | None:
        """The model that is followed; None if it is missing, as while it is built."""
        assert self._runtime is not None
        models = self._runtime.models
        if self._model is None:
            return models.engine
        view = self._runtime.views.find(self._model)
        return view if isinstance(view, RowPredictor) else None

    # -- what checkpoints keep

    def settle(self) -> None:
        """Reads ids, whose texts a forked process could not look up."""
        _core.holding(self.graph.writer, self._unsent.settle)

    def state(self) -> State | None:
        """The ids that the sink lacks, and, with a filter, the rows that it has."""
        return _core.holding(self.graph.writer, self._save)

    def _save(self) -> State:
        meta: dict[str, JSON] = {
            "kind": "sink",
            "version": _VERSION,
            "seq": self.seq,
            "everything": self._unsent.everything,
            "model": self._followed,
            "filter": repr(self._filter),
            "edges": self._edge_output,
        }
        rows = {} if self._filter is None else self._sent_rows.save(text=self._text)
        return State(meta, {**self._unsent.save(), **rows})

    def _load(self, state: State | None) -> None:
        if state is None:
            self._unsent.add_everything(self._clock())
            return
        meta = state.meta
        model = meta.get("model")
        if (meta.get("kind"), meta.get("version"), meta.get("seq")) != ("sink", _VERSION, self.seq) or not (
            model is None or isinstance(model, list)
        ):
            raise FileFormatError(f"expected the state of a sink at event {self.seq}, got {dict(meta)}")
        if meta.get("edges") != self._edge_output:  # rows of another kind
            self._lack_everything()
            return
        lacked = self._unsent.load(state.arrays, self._clock())
        if self._filter is not None and "sent.rows" in state.arrays:
            self._sent_rows.load(state.arrays, text=self._text)
        self._sent_rows.forget(lacked)  # they may have been sent since
        if meta.get("everything", True) or meta.get("filter") != repr(self._filter):
            self._lack_everything()
        self._followed = model

    def _lack_everything(self) -> None:
        self._unsent.add_everything(self._clock())
        self._sent_rows.clear()

    def memory(self) -> dict[str, int]:
        return {self.name: self._unsent.bytes + self._sent_rows.bytes}

    # -- how it stands, as `SinkStand` says

    @property
    def waits(self) -> str | None:
        """Why rows are not sent: the last write failed, or does not end."""
        since = self._writes_since
        if self._reason is None and since is not None and (seconds := self._clock() - since) > _LONG_WRITE:
            return f"a write has not ended for {seconds:.0f} seconds"
        return self._reason

    @property
    def lag(self) -> int:
        """The number of rows that were not sent yet, at most: a row that changed again may count twice."""
        model = None if self._runtime is None else self._find_model()
        return self._unsent.count(0 if model is None else self._count_all(model))

    def _count_all(self, model: RowPredictor) -> int:
        """The number of rows of the whole graph."""
        return self.graph.num_nodes(model.output_type_name)

    @property
    def oldest_age(self) -> float:
        """The seconds since the oldest change that was not sent yet; 0 if all are sent."""
        oldest = self._unsent.oldest()
        return 0.0 if oldest is None else max(0.0, self._clock() - oldest)

    # -- the sink's thread

    def start(self, runtime: Runtime) -> None:
        """Sends in a thread from now on, when `runtime` has replayed its log. Raises `InputError` if it is
        another graph's runtime, if its model keeps no rows, or does not have what the filter compares."""
        if runtime.graph is not self.graph or runtime.views.find(self.name) is not self:
            raise InputError(
                f"runtime must be that of the sink's view {self.name!r}: make it with "
                "Runtime(log, graph, engine, view)"
            )
        if self._thread is not None:
            raise InputError(f"the sink {self.name!r} was started already: make another view")
        if self._model is None:
            model = runtime.models.find_row_predictor(None)
            self._check(model)
        _core.holding(self.graph.writer, self._begin, runtime)
        runtime.sinks[self._label] = self
        self._thread = Background(self._run, f"livegnn-{self.name}")
        self._thread.start()

    def _begin(self, runtime: Runtime) -> None:
        self._runtime = runtime
        followed, self._followed = self._followed, self._identify()
        self._seen = self._look()
        if followed is not None and followed != self._followed:
            self._lack_everything()

    def _follow(self) -> RowPredictor | None:
        """The model that is followed. If it is another than before, everything is lacked. Needs the lock."""
        seen = self._look()
        if seen != self._seen:
            self._seen, self._followed = seen, self._identify()
            self._lack_everything()
        return seen[0]

    def _look(self) -> tuple[RowPredictor | None, int]:
        assert self._runtime is not None
        return self._find_model(), self._runtime.models.switches if self._model is None else 0

    def _identify(self) -> list[JSON]:
        """The same for a checkpoint: a switch and back is seen as well."""
        model, switches = self._look()
        return [None if model is None else model.name, None if model is None else model.digest, switches]

    def _check(self, model: RowPredictor) -> None:
        if self._filter is not None:
            self._filter.check_width(self._width(model))

    def _width(self, model: RowPredictor) -> int:
        """Channels of a row."""
        return model.model.width(model.model.output)

    def _run(self) -> None:
        failures = 0
        try:
            while not self._retired:
                try:
                    self._send_round()
                except BaseException as error:  # a sink of the user's may raise anything
                    failures += 1
                    self._note_failure(error)
                    if self._stop.is_set() or self._stop.wait(_PAUSES.after(failures)):
                        return
                    continue
                failures = 0
                self._note_success()
                if self._stop.is_set() and not self._unsent.waits:
                    return
                self._stop.wait(self._every)
                self._wake.wait(_LOOK_SECONDS)
        finally:
            self._close_sink()

    def _close_sink(self) -> None:
        try:
            self._sink.close()
        except BaseException:
            _logger.exception("the sink %s could not be closed", self._label)

    def _note_failure(self, error: BaseException) -> None:
        self.failures += 1
        reason = shortened(str(error) or type(error).__name__)
        if self._reason is None:
            _logger.warning("the sink %s waits: %s", self._label, reason, extra={"sink": self._label})
        self._reason = reason

    def _note_success(self) -> None:
        if self._reason is not None:
            _logger.info("the sink %s is back", self._label, extra={"sink": self._label})
        self._reason = None

    def _send_round(self) -> None:
        """Sends all that has arrived until now, and the rest of the round before."""
        _core.holding(self.graph.writer, self._follow)
        if not self._unsent.left and self._unsent.waits:
            self._wake.clear()
            parts, everything = _core.holding(self.graph.writer, self._unsent.gather)
            try:
                ids = join([*parts, *self._list_all(everything)], text=self._text)
            except BaseException:
                _core.holding(self.graph.writer, self._unsent.give_back)
                raise
            _core.holding(self.graph.writer, self._unsent.gathered, ids)
        while self._unsent.left and not self._retired:
            self._send_part()

    def _list_all(self, everything: bool) -> list[ListedNodes]:
        if not everything:
            return []
        model = self._model_now()
        assert self._runtime is not None
        _, ids = self._runtime.read(lambda: self._list_ids(model))
        return [ListedNodes(ids)]

    def _list_ids(self, model: RowPredictor) -> AnyIds:
        """The ids of all rows."""
        return list_ids(self.graph, model.output_type_name)

    def _model_now(self) -> RowPredictor:
        assert self._runtime is not None
        model = self._runtime.models.find_row_predictor(self._model)
        self._check(model)
        return model

    def _send_part(self) -> None:
        ids, seen = _core.holding(self.graph.writer, lambda: (self._unsent.take(self._most), self._seen))
        rows: PredictionRows | None = None
        try:
            rows = self._choose(self._read(ids))
            if len(rows.ids):
                self._writes_since = self._clock()
                self._sink.write(rows)
        except BaseException:
            _core.holding(self.graph.writer, self._take_back, ids if rows is None else _listed(rows.ids))
            raise
        finally:
            self._writes_since = None
        _core.holding(self.graph.writer, self._acknowledge, rows, seen)
        self.sent += len(rows.ids)

    def _take_back(self, ids: AnyIds) -> None:
        self._unsent.put_back()
        self._sent_rows.forget(ids)  # some may have been stored

    def _acknowledge(self, rows: PredictionRows, seen: tuple[RowPredictor | None, int]) -> None:
        """seen: the model that was followed when they were taken, as `_look` has it."""
        self._unsent.acknowledge()
        if self._filter is None or not len(rows.ids):
            return
        self._sent_rows.forget(_listed(_chosen(rows, rows.removed).ids))
        if seen == self._seen:  # else the rows of another model are compared
            there = _chosen(rows, ~rows.removed)
            self._sent_rows.note(there.ids, there.predictions)

    def _read(self, ids: AnyIds) -> PredictionRows:
        """The newest rows of `ids`, in parts that are small enough for batches."""
        model = self._model_now()
        assert self._runtime is not None
        width = self._width(model)
        size = max(1, min(_READ_ROWS, _READ_BYTES // (4 * width)))
        seqs: IntArray = np.empty(len(ids), np.int64)
        predictions = np.full((len(ids), width), np.nan, np.float32)
        present = np.zeros(len(ids), np.bool_)
        for begin in range(0, len(ids), size):
            part = slice(begin, begin + size)
            read = self._read_part(model, ids[part])
            seqs[part], present[part] = read.seq, read.present
            predictions[part][read.present] = read.values
        return PredictionRows(model.name, self._type_of(model), ids.tolist(), seqs, predictions, ~present)

    def _type_of(self, model: RowPredictor) -> str:
        """The type of all rows."""
        return model.output_type_name

    def _read_part(self, model: RowPredictor, ids: AnyIds) -> PresentRows:
        assert self._runtime is not None
        return read_present(self._runtime, model, ids)

    def _choose(self, rows: PredictionRows) -> PredictionRows:
        """The rows that pass the filter."""
        if self._filter is None or not len(rows.ids):
            return rows
        known, sent = _core.holding(
            self.graph.writer, self._sent_rows.find, rows.ids, rows.predictions.shape[1]
        )
        passed = ~known | rows.removed
        passed[known] |= self._filter.passes(rows.predictions[known], sent)
        return rows if passed.all() else _chosen(rows, passed)

    # -- its end

    def retire(self) -> None:
        """Ends the thread without waiting for it."""
        self._retired = True
        self._end()

    def close(self) -> None:
        """Ends the thread, which sends what is lacked first. If that takes long, a start sends it later."""
        self._end()
        if self._thread is None:
            self._close_sink()
        elif self._thread is not threading.current_thread():
            self._thread.join(_LAST_WORDS)
            self._retired = True

    def _end(self) -> None:
        self._stop.set()
        self._wake.set()
        if self._runtime is not None and self._runtime.sinks.get(self._label) is self:
            del self._runtime.sinks[self._label]


def _chosen(rows: PredictionRows, chosen: "NDArray[np.bool_]") -> PredictionRows:
    """The rows [n] of which `chosen` [n] is true."""
    at = np.flatnonzero(chosen)
    ids: list[int] | list[str] = [rows.ids[one] for one in at.tolist()]  # type: ignore[assignment]  # of one kind
    return rows._replace(
        ids=ids, seqs=rows.seqs[at], predictions=rows.predictions[at], removed=rows.removed[at]
    )


def _listed(ids: object) -> AnyIds:
    """Ids of rows as a column."""
    assert isinstance(ids, list)
    return Texts.of(ids) if ids and isinstance(ids[0], str) else np.array(ids, np.int64)
