"""The engine: every embedding of a model on a live graph, kept as if recomputed from scratch."""

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from types import NoneType
from typing import TYPE_CHECKING, Literal, cast, get_args

import numpy as np

from livegnn import _core
from livegnn.arguments import function, listed_ids, not_negative, whole
from livegnn.compiler.plan import Keep, Plan
from livegnn.errors import FileFormatError, InputError, UnknownNodeError
from livegnn.events import Events
from livegnn.graph import Graph, GraphDelta
from livegnn.graph.core import chosen_threads
from livegnn.graph.defaults import left_out
from livegnn.graph.writer import Measurement
from livegnn.inference import state as saving
from livegnn.inference.guard import NonFinite, refuse_lost
from livegnn.inference.history import History
from livegnn.inference.scrub import Scrubbed, scrub
from livegnn.inference.what_if import WhatIf
from livegnn.model import Model
from livegnn.model.outputs import Outputs
from livegnn.model.renaming import renamed
from livegnn.oracle.exactness import Verification, judge
from livegnn.types import Array, FloatArray, Ids, IntArray, NodeType, State
from livegnn.wording import count, kind_of, never_raises, size

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from livegnn.inference.explanation import Explanation

_logger = logging.getLogger(__name__)

Mode = Literal["eager", "lazy"]
_SAMPLE = "sample, a number of nodes,"


class Update:
    """What a batch did to the predictions.

    seq: the sequence number that they now reflect. affected: how many nodes were computed again, or, by a
    lazy engine, reached. exact: whether `changed` was seen by comparing values; a lazy engine has not
    computed any. seconds: how long the batch took, the graph's part included.
    """

    __slots__ = ("_changed", "_graph", "_ids", "_pin", "affected", "exact", "seconds", "seq")

    def __init__(
        self,
        graph: Graph,
        changed: IntArray,
        *,
        seq: int,
        affected: int,
        seconds: float,
        exact: bool = True,
    ) -> None:
        self._graph = graph
        self._changed = changed
        self._ids: Ids | None = None
        self._pin = graph.pin()
        self._pin.close()
        self.seq = seq
        self.affected = affected
        self.exact = exact
        self.seconds = seconds

    @property
    def changed(self) -> Ids:
        """Ids of nodes whose prediction has another value than before, added nodes among them.

        If not `exact`: of nodes whose prediction may have, since the batch reached them.
        """
        if self._ids is None:
            self._ids = self._graph.to_user_ids(self._changed)
        return self._ids

    @property
    def num_changed(self) -> int:
        """How many `changed` has, which costs nothing."""
        return len(self._changed)

    def __repr__(self) -> str:
        return (
            f"Update(seq={self.seq}, changed={len(self._changed)} nodes, affected={self.affected}, "
            f"seconds={self.seconds:.6f})"
        )


@dataclass(frozen=True)
class QueryWork:
    """What queries of a lazy engine have computed since it was made.

    rows: of values of any layer. edges: in-edges of nodes that were summed. recomputed: sums and maxima that
    were taken over all in-edges, rather than over those that changed.
    """

    rows: int
    edges: int
    recomputed: int


@dataclass(frozen=True)
class Work:
    """What a batch touched.

    affected: nodes whose prediction was computed again. edges: messages that were added, taken back, or both.
    nodes: rows read and written for them, a row counted again for each aggregate that reads it. recomputed:
    aggregates that were computed from all their neighbours.
    """

    affected: int
    edges: int
    nodes: int
    recomputed: int


class Engine:
    """Keeps the embeddings of `model` on `graph` exact, whoever applies events to the graph.

    threads: how many work on one batch; by default as many as the process may use. Results do not depend on
    it, bit for bit.
    mode: ``"eager"`` computes with each batch all that it reaches. ``"lazy"`` records what it reaches, and
    computes a prediction when it is asked for (NeutronRT, section V.D). A list has one of the two for each
    depth of propagation, the eager ones first.
    state: what `state()` returned for the same model and graph, instead of computing every embedding.
    history: over how many of the last events `explain` can look back; 0 keeps none of them.
    keep: "aggregates" keeps the aggregates alone and computes each layer's rows anew, node by node, when they
    are read; the bits are the same.
    keep_degree: keeps even the aggregates of nodes with at least so many in-edges alone, and computes those
    of the others from their neighbours, and theirs, when they are read; 0 for all. Implies "aggregates".
    state_dir: where what is kept lies in mapped files, for when it outgrows memory; the directory is made if
    it is missing, and the files are gone when the engine is.
    non_finite: what becomes of a batch after which a value, a prediction among them, would be infinite or not
    a number that was finite before. ``"refuse"`` raises `InputError`, as for any other bad input;
    ``"allow"`` lets it through, with what the framework would say. What a lazy engine has only recorded it
    cannot refuse: it says what the framework would when it is asked.

    Raises `ModelError` if the model does not fit the graph or the settings, `InputError` if the mode does not
    fit the model, or the settings each other, or if no files can be made in `state_dir`, `FileFormatError` if
    the state does not fit the model, and `OSError` if the system starts no more threads.

    Thread safety: batches and what-ifs take their turn; reading never waits for a batch, only for the moment
    in which it becomes visible, and sees all of it or nothing.
    """

    def __init__(
        self,
        graph: Graph,
        model: Model,
        *,
        threads: int | None = None,
        mode: Mode | Sequence[Mode] = "eager",
        state: State | None = None,
        history: int = 0,
        keep: Keep = "all",
        keep_degree: int = 0,
        state_dir: "str | os.PathLike[str] | None" = None,
        non_finite: NonFinite = "refuse",
    ) -> None:
        _check_pair(graph, model)
        lanes = chosen_threads(threads)
        history = whole(history, "history, a number of events,", 0)
        if len(graph.schema.node_types) == 1:
            model = renamed(model, left_out(graph.schema))
        if not isinstance(state, (State, NoneType)):
            raise InputError(f"state must be what Engine.state() returned, got {kind_of(state)}")
        self.graph = graph
        self.model = model
        if keep not in get_args(Keep):
            raise InputError(f"keep must be one of {', '.join(map(repr, get_args(Keep)))}, got {keep!r}")
        if non_finite not in get_args(NonFinite):
            raise InputError(
                f"non_finite must be one of {', '.join(map(repr, get_args(NonFinite)))}, got {non_finite!r}"
            )
        keep_degree = whole(keep_degree, "keep_degree", 0)
        self.plan = Plan(model, graph, keep, partial=keep_degree > 0)
        self._partial = keep_degree > 0
        eager_steps = self.plan.eager_steps(mode)
        if eager_steps is not None and (keep != "all" or keep_degree > 0):
            raise InputError(
                'a lazy engine must keep every row, since its queries go on from them, got keep="aggregates" '
                'or keep_degree: leave these out, or use mode="eager"'
            )
        self.native_engine = _make_core(graph, self.plan, lanes, state_dir, keep_degree)
        self.non_finite: NonFinite = non_finite
        self.native_engine.set_guard(non_finite == "refuse")
        self._prepared = _core.Prepared()
        self.native: tuple[_core.Engine, _core.Prepared] | None = (self.native_engine, self._prepared)
        self.output_type_name: NodeType = model.node_type(model.output)
        self.output_type = graph.node_type_index(self.output_type_name)
        self.outputs = Outputs(model)
        self.epoch = 0
        self._lazy = False
        self.subscriber_failures = 0
        """How often a subscriber raised."""
        self._subscribers: list[Callable[[Update], None]] = []
        self._unpublished: deque[tuple[GraphDelta, Update]] = deque()
        self._last: Update | None = None
        self._changed: IntArray = np.empty(0, dtype=np.int64)
        self._last_work = (0, 0, 0, 0)
        self._memory = Measurement(graph.writer)
        with graph.writer:
            if state is None:
                self.native_engine.initialize()
            else:
                self._restore(state)
            if eager_steps is not None:
                self._lazy = self.native_engine.be_lazy(eager_steps)
            graph.attach(self)
            self._history = History(graph, history) if history else None
            if self._history is not None:
                graph.attach(self._history)
            self._memory.take(self._measure)

    @never_raises
    def __repr__(self) -> str:
        state = size(sum(n for part, n in self._memory.read(self._measure).items() if part != "mapped state"))
        pending = count(self.pending, "pending prediction")
        how = f"lazy, {pending}" if self._lazy else "eager"
        graph = repr(self.graph).replace("\n", "\n  ")
        return f"Engine(\n  {graph},\n  {self.model!r},\n  {how}, seq={self.seq:,}, state {state}\n)"

    @property
    def seq(self) -> int:
        """The sequence number that the predictions reflect."""
        return self.graph.seq

    @property
    def pending(self) -> int:
        """How many nodes' predictions were reached by events and have not been computed since."""
        return self.native_engine.pending()

    @property
    def work(self) -> QueryWork:
        """What queries of a lazy engine have computed so far; nothing where the engine is eager."""
        return QueryWork(*self.native_engine.work())

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
        """Applies a batch of events to the graph and every view of it, as `Graph.apply` does.

        on_committed: called when all of them show the batch, before subscribers are told.
        """
        if on_committed is not None:
            function(on_committed, "on_committed", "an Update")
        update: Update | None = None

        def note(delta: GraphDelta) -> None:
            nonlocal update
            update = self._last
            if on_committed is not None:
                assert update is not None
                on_committed(update)

        self.graph.apply(events, seq=seq, on_staged=on_staged, on_committed=note)
        assert update is not None
        return update

    @property
    def last_work(self) -> Work:
        """What the last batch touched."""
        return Work(*self._last_work)

    @contextmanager
    def trusting(self) -> Iterator[None]:
        """Inside, no batch is refused for what comes of it: those of a log were accepted before."""
        self.native_engine.set_guard(False)
        try:
            yield
        finally:
            self.native_engine.set_guard(self.non_finite == "refuse")

    def subscribe(self, callback: Callable[[Update], None]) -> Callable[[], None]:
        """Calls `callback` after each batch that changed a prediction, in order; returns what ends it.

        A lazy engine calls it after each batch that reached one. The callback runs in the thread that applied
        the batch, before `apply` returns, when graph and all views show the batch; no other comes meanwhile.
        What it raises is logged and counted (`subscriber_failures`), and disturbs nobody. An interrupt
        (`KeyboardInterrupt`, `SystemExit`) is raised by `apply` when all others have been told; the batch
        stays. A batch that a callback applies itself is told of when all have been told of this one.

        Raises `InputError` for what cannot be called.
        """
        function(callback, "callback", "an Update")
        self._subscribers.append(callback)

        def unsubscribe() -> None:
            if callback in self._subscribers:
                self._subscribers.remove(callback)

        return unsubscribe

    def prepare(self, delta: GraphDelta) -> None:
        native = self.native_engine
        # What a lazy engine has computed anyway it need not record, and only then does it measure its scales.
        if self._lazy and native.outgrown_by(delta.native) and self._settle_if_possible():
            finite = native.prepare(delta.native, self._prepared)
        else:
            finite = native.prepare_batch(delta.native, self._prepared)
        if not finite:
            refuse_lost(self.graph, delta.native, self._prepared)
        # Here, since a commit must not fail for want of memory; not when they are asked for, since by then
        # their indices may be those of other nodes.
        self._changed = native.changed_ids(delta.native, self._prepared)

    def commit(self, delta: GraphDelta) -> None:
        self.epoch += 1
        prepared = self._prepared
        changed = self._changed
        update = self._last = Update(
            self.graph,
            changed,
            seq=delta.seq,
            affected=prepared.affected,
            seconds=time.perf_counter() - self.graph.batch_began,
            exact=not prepared.marked,
        )
        self._last_work = prepared.work()
        if self._subscribers and len(changed):
            self._unpublished.append((delta, update))
        if self._memory.wanted:
            self._memory.take(self._measure)

    def _settle_if_possible(self) -> bool:
        """A batch may come, whatever a function of the model raises about those before it: whoever asks for a
        prediction that needs it is told.
        """
        try:
            self.native_engine.settle()
        except Exception:
            _logger.exception("the engine could not settle at event %d, and will try again", self.graph.seq)
            return False
        return True

    def publish(self, delta: GraphDelta) -> None:
        if not self._unpublished:
            return
        interrupt: BaseException | None = None
        while self._unpublished and self._unpublished[0][0] is delta:
            _, update = self._unpublished.popleft()
            for callback in tuple(self._subscribers):
                try:
                    callback(update)
                except Exception:
                    self.subscriber_failures += 1
                    _logger.exception("a subscriber to the changes of event %d failed", update.seq)
                except BaseException as error:
                    interrupt = interrupt or error
        if interrupt is not None:
            raise interrupt

    def settle(self) -> None:
        """Computes all predictions that a lazy engine has not yet computed; nothing where it is eager.

        It does so by itself when a batch removes nodes, when the changes of edges and features since come to
        a sixteenth of the graph, and for `embeddings`, `verify`, `scrub`, `what_if` and `state`.
        """
        with self.graph.writer:
            self.native_engine.settle()

    # -- reading
    # ------------------------------------------------------------------------------------------------

    def predict(self, ids: "ArrayLike", *, output: str | None = None) -> FloatArray:
        """Predictions of nodes, float32 [ids, outputs].

        output: the name of one of the model's `outputs`, by default the first, whose rows the nodes are.
        Raises `UnknownNodeError`, and `InputError` if the model has no such output.
        """
        position = 0 if output is None else self.outputs.find(output).position
        asked = listed_ids(ids)
        rows = self.native_engine.predict(self.graph.given(asked), position)
        if type(rows) is int:
            node_type = self.outputs.find(output).node_type
            raise UnknownNodeError(self.graph.unknown_node(asked[rows], node_type))
        return cast("FloatArray", rows)

    def predict_at_once(self, ids: "ArrayLike", *, output: str | None = None) -> FloatArray | None:
        """What `predict` returns, if that is there to be read: None where it would have to wait or to
        compute, or if there is no such node. For those who must not wait, such as an event loop.
        """
        position = self.outputs.find(output).position
        return self.native_engine.predict_at_once(self.graph.given(listed_ids(ids)), position)

    def embeddings(self, layer: int) -> FloatArray:
        """What one layer says of every node, float32 [nodes, channels], in the order of ``graph.ids()``, or
        of ``graph.ids(node_type)`` where there are several types.

        Layer 0 is the features, layer l the output of the l-th convolution as the next one reads it (after
        activation and norm), the last one (also -1) the predictions. Raises `InputError` if there is no such
        layer.
        """
        layers = self.model.layers
        last = len(layers) - 1
        if isinstance(layer, bool) or not hasattr(layer, "__index__") or not ~last <= layer <= last:
            raise InputError(f"layer must be an integer from 0 to {last} (or -1 for the last), got {layer!r}")
        return self._rows(layers[layer])

    def _rows(self, name: str) -> FloatArray:
        """All rows of an output or a layer, in the order of the graph's ids."""
        with self.graph.writer:
            self.native_engine.settle()
            rows = (
                self.native_engine.evaluate(self.plan.on_demand[name])
                if name in self.plan.on_demand
                else self.native_engine.read(self.plan.kept[name].index)
            )
            return rows[self.graph.native.indices(self.graph.node_type_index(self.model.node_type(name)))]

    def what_if(self, events: Events) -> WhatIf:
        """Predictions as they would be after `events`; nothing is kept. Raises what `apply` raises."""
        return WhatIf(self, events)

    def explain(self, id: int | str, *, since: int, timeout: float | None = None) -> "Explanation":
        """Through which events, and through which neighbours, the prediction of a node moved between sequence
        number `since` and now, each with its share; `docs/explain.md` says more.

        An event's share is what the prediction moved when the event was applied, in the order of the log; a
        neighbour's, what it moves when what this neighbour sends in the last propagation becomes what it is
        now, one neighbour after the other, by edge type and id, the node's own row last. So both add up to
        the whole movement, whatever the model is made of, and depend on the order where it is not linear.
        All of it is computed in float64, from scratch, on the part of the graph that the prediction reads,
        once for each event in it. Batches wait only while that part is read. timeout: seconds, looked at
        between two events; by default there is no limit.

        Raises `UnknownNodeError`, `TimeoutExpired`, and `InputError` if `since` is in the future or further
        back than the `history` that the engine was made with reaches. A batch that was too long ago is
        forgotten as a whole; after a restart the history begins anew.
        """
        from livegnn.inference.explanation import explain

        since = whole(since, "since, a sequence number,", 0)
        if self._history is None:
            raise InputError("to explain, an engine must be made with history= some number of events, got 0")
        if timeout is not None:
            timeout = not_negative(timeout, "timeout, in seconds,")
        return explain(self.graph, self._history, self.model, id, since, timeout)

    def verify(self, sample: int | None = None, *, seed: int = 0, output: str | None = None) -> Verification:
        """Compares predictions with the oracle: the whole model on the whole graph, slowly and from scratch,
        in float64, and if that is not enough for the promise (`livegnn.oracle.exactness`) in float32 too.

        sample: how many nodes, drawn at random, are compared: at least one; by default all of them, as where
        there are no more. seed: of the draw. output: which of the model's outputs, by default the first.
        Batches wait only while graph and predictions are read.

        Raises `InputError` for a sample below 1, a seed below 0 and an output that the model has not.
        """
        from livegnn.oracle import reference

        value = self.outputs.find(output).value

        if sample is not None:
            sample = whole(sample, _SAMPLE, 1)
        seed = whole(seed, "seed", 0)
        with self.graph.writer:
            snapshot = self.graph.snapshot()
            got = self._rows(value)
        expected = reference.compute(self.model, snapshot)[value]
        rows = None
        if sample is not None and sample < len(expected):
            rows = np.random.default_rng(seed).choice(len(expected), sample, replace=False)

        def compute_in_float32() -> Array:
            return reference.compute(self.model, snapshot, dtype=np.float32)[value]

        return judge(got, expected, compute_in_float32, rows=rows)

    def scrub(self, sample: int = 64, *, seed: int = 0) -> float:
        """Computes some aggregates of each layer anew, and degrees and sums of weights, and returns the
        largest difference of a channel to the kept ones, as a part of the channel's magnitude; infinity where
        only one of the two is finite.

        It changes nothing and costs what `sample` nodes and their neighbours cost, so it can run beside a
        stream. sample: at least one; where there are no more nodes, all of them. seed: of the draw.

        Raises `InputError` for a sample below 1 and a seed below 0.
        """
        return self.scrubbed(sample, seed=seed).difference

    def scrubbed(self, sample: int = 64, *, seed: int = 0) -> Scrubbed:
        """The same, and how many of the rows that it saw are not finite."""
        sample, seed = whole(sample, _SAMPLE, 1), whole(seed, "seed", 0)
        with self.graph.writer:
            self.native_engine.settle()
            return scrub(self.native_engine, self.graph, self.plan, sample, seed)

    def memory(self) -> dict[str, int]:
        """Bytes of the graph's parts and of what the engine keeps, and how much of the latter is `mapped
        state`, that is, lies in files: it is counted among the parts too.

        If it is lazy, also of the rows that queries have computed (``"overlay"``), and of what it has
        recorded since it last settled (``"record"``). Like `Graph.memory`, it never waits for a batch.
        """
        return {**self.graph.memory(), **self._memory.read(self._measure)}

    def _measure(self) -> dict[str, int]:
        native = self.native_engine
        parts = dict.fromkeys(("aggregates", "layer outputs", "contexts"), 0)
        for kept in self.plan.kept.values():
            if kept.stored:
                parts[kept.part] += native.bytes(kept.index)
        parts["contexts"] += native.sums_bytes()
        parts["errors"] = native.errors_bytes()
        parts["weights"] = native.program_bytes()
        if rows := native.batch_bytes(self._prepared):
            parts["rows of batches"] = rows
        if self._partial:
            parts["residents"] = native.residents_bytes()
        if self._lazy:
            parts["overlay"], parts["record"] = native.lazy_bytes()
        if self._history is not None:
            parts["history"] = self._history.nbytes
        if mapped := native.mapped_bytes():
            parts["mapped state"] = mapped
        return parts

    # -- keeping
    # ------------------------------------------------------------------------------------------------

    @cached_property
    def _fingerprint(self) -> str:
        return self.model.digest

    def state(self) -> State:
        """All kept values, exactly: an engine restored from it goes on as this one would, bit for bit."""
        native = self.native_engine
        with self.graph.writer:
            native.settle()
            arrays = saving.save(native, self.plan, self._partial_directions())
            batches, measured, touched = native.moments()
            return State(
                {
                    "kind": "engine",
                    "model": self._fingerprint,
                    "seq": self.seq,
                    "batches": batches,
                    "measured": measured,
                    "touched": touched,
                    "scaled": True,
                },
                arrays,
            )

    def _partial_directions(self) -> list[int]:
        """The directions (`cpp/src/edge_view.h`) in which not all aggregates are kept."""
        types = len(self.graph.schema.edge_types)
        turned = (types + edge_type for edge_type in sorted(self.plan.turned))
        return [*range(types), *turned] if self._partial else []

    def _restore(self, saved: State) -> None:
        meta = saved.meta
        if meta.get("kind") != "engine":
            raise FileFormatError(f"expected the state of an engine, got {meta.get('kind')!r}")
        if meta.get("model") != self._fingerprint:
            raise FileFormatError(
                "the state belongs to another model: compute it anew, or restore it with its own model"
            )
        if meta.get("seq") != self.graph.seq:
            raise FileFormatError(
                f"the state belongs to sequence number {meta.get('seq')}, the graph is at {self.graph.seq}"
            )
        if "batches" not in meta or "scaled" not in meta:
            # From before rounding had units, in which what its bounds say cannot be told; or from before sums
            # that are combined with d^-1/2 were kept scaled down.
            self.native_engine.initialize()
            return
        saving.restore(self.native_engine, self.graph, self.plan, saved, self._partial_directions())


def _check_pair(graph: object, model: object) -> None:
    """Raises `InputError` for what a caller may have passed in place of a graph and a model."""
    if isinstance(graph, Graph) and isinstance(model, Model):
        return
    if isinstance(graph, Model) and isinstance(model, Graph):
        raise InputError("expected a graph and then a model, got them swapped: write Engine(graph, model)")
    if not isinstance(graph, Graph):
        raise InputError(
            f"expected a Graph, got {kind_of(graph)}: Graph.from_pyg(data) makes one of PyG's data"
        )
    raise InputError(
        f"expected a Model, got {kind_of(model)}: Model.from_pyg(module) imports a trained module, "
        "Model.load(path) reads a file"
    )


def _make_core(
    graph: Graph,
    plan: Plan,
    threads: int,
    state_dir: "str | os.PathLike[str] | None",
    keep_degree: int,
) -> _core.Engine:
    if state_dir is None:
        return _core.Engine(graph.native, plan.program, threads, "", keep_degree)
    try:
        os.makedirs(state_dir, exist_ok=True)
        return _core.Engine(graph.native, plan.program, threads, os.fspath(state_dir), keep_degree)
    except _core.ThreadError:
        raise
    except (OSError, RuntimeError, TypeError) as error:
        raise InputError(
            f"state_dir must be a directory in which files can be made, got {state_dir!r}: {error}"
        ) from error
