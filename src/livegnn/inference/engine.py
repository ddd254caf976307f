"""The engine: every embedding of a model on a live graph, kept as if recomputed from scratch."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from livegnn import _core
from livegnn.errors import FileFormatError, InputError, UnknownNodeError
from livegnn.events import Events
from livegnn.graph import Graph, GraphDelta
from livegnn.inference.history import History
from livegnn.inference.plan import Keep, Plan
from livegnn.inference.what_if import WhatIf
from livegnn.model import Model
from livegnn.types import Array, FloatArray, Ids, IntArray, NodeType, State

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from livegnn.inference.explanation import Explanation

Mode = Literal["eager", "lazy"]

EXACTNESS = 1e-4
"""How far a prediction may be from a recomputation, as a part of the layer's largest magnitude."""


class Update:
    """What a batch did to the predictions.

    seq: the sequence number that they now reflect. affected: how many nodes were computed again, or, by a
    lazy engine, reached. exact: whether `changed` was seen by comparing values; a lazy engine has not
    computed any. seconds: how long the batch took, the graph's part included.
    """

    __slots__ = ("_changed", "_graph", "_ids", "affected", "exact", "seconds", "seq")

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
class Verification:
    """A comparison of kept predictions with a recomputation from scratch.

    max_difference: the largest absolute difference. scale: the largest magnitude that the recomputation has.
    checked: how many nodes were compared. bound: the largest difference that the engine promises.
    """

    max_difference: float
    scale: float
    checked: int
    bound: float

    @property
    def ok(self) -> bool:
        return self.max_difference <= self.bound


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

    Raises `ModelError` if the model does not fit the graph or the settings, `InputError` if the mode does not
    fit the model, or the settings each other, or if no files can be made in `state_dir`, `FileFormatError` if
    the state does not fit the model.

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
    ) -> None:
        if threads is not None and threads < 1:
            raise InputError(f"threads must be at least 1, got {threads}")
        if type(history) is not int or history < 0:
            raise InputError(
                f"history, a number of events, must be an integer of at least 0, got {history!r}"
            )
        self.graph = graph
        self.model = model
        if keep not in get_args(Keep):
            raise InputError(f"keep must be one of {', '.join(map(repr, get_args(Keep)))}, got {keep!r}")
        if keep_degree < 0:
            raise InputError(f"keep_degree must be at least 0, got {keep_degree}")
        self.plan = Plan(model, graph, keep, partial=keep_degree > 0)
        self._partial = keep_degree > 0
        eager_steps = self.plan.eager_steps(mode)
        if eager_steps is not None and (keep != "all" or keep_degree > 0):
            raise InputError(
                'a lazy engine must keep every row, since its queries go on from them, got keep="aggregates" '
                'or keep_degree: leave these out, or use mode="eager"'
            )
        count = threads if threads is not None else len(os.sched_getaffinity(0))
        self.native_engine = _make_core(graph, self.plan, count, state_dir, keep_degree)
        self._prepared = _core.Prepared()
        self.native: tuple[_core.Engine, _core.Prepared] | None = (self.native_engine, self._prepared)
        self.output_type_name: NodeType = model.node_type(model.output)
        self.output_type = graph.node_type_index(self.output_type_name)
        self.epoch = 0
        self._lazy = False
        self._subscribers: list[Callable[[Update], None]] = []
        self._last: Update | None = None
        self._started = 0.0
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
    ) -> Update:
        """Applies a batch of events to the graph and every view of it, as `Graph.apply` does."""
        with self.graph.writer:
            started = time.perf_counter()
            self.graph.apply(events, seq=seq, on_staged=on_staged)
            update = self._last
            assert update is not None
            update.seconds = time.perf_counter() - started
            return update

    @property
    def last_work(self) -> Work:
        """What the last batch touched."""
        prepared = self._prepared
        return Work(prepared.affected, prepared.edges_touched, prepared.nodes_touched, prepared.recomputed)

    def subscribe(self, callback: Callable[[Update], None]) -> Callable[[], None]:
        """Calls `callback` after each batch that changed a prediction, in order; returns what ends it.

        A lazy engine calls it after each batch that reached one.
        The callback runs in the thread that applied the batch, before `apply` returns.
        """
        self._subscribers.append(callback)

        def unsubscribe() -> None:
            if callback in self._subscribers:
                self._subscribers.remove(callback)

        return unsubscribe

    def prepare(self, delta: GraphDelta) -> None:
        self._started = time.perf_counter()
        self.native_engine.prepare_batch(delta.native, self._prepared)

    def commit(self, delta: GraphDelta) -> None:
        self.epoch += 1
        if self.native_engine.overgrown():
            self.native_engine.settle()
        # Not when it is asked for: by then their indices may be those of other nodes.
        changed = self.graph.native.ids_of(self.output_type, self._prepared.changed())
        update = self._last = Update(
            self.graph,
            changed,
            seq=delta.seq,
            affected=self._prepared.affected,
            seconds=time.perf_counter() - self._started,
            exact=not self._prepared.marked,
        )
        if self._subscribers and len(changed):
            for callback in tuple(self._subscribers):
                callback(update)

    def settle(self) -> None:
        """Computes all predictions that a lazy engine has not yet computed; nothing where it is eager.

        It does so by itself when a batch removes nodes, when the changes of edges and features since come to
        a sixteenth of the graph, and for `embeddings`, `verify`, `scrub`, `what_if` and `state`.
        """
        with self.graph.writer:
            self.native_engine.settle()

    # -- reading
    # ------------------------------------------------------------------------------------------------

    def predict(self, ids: "ArrayLike") -> FloatArray:
        """Predictions of nodes, float32 [ids, outputs]. Raises `UnknownNodeError`."""
        while (rows := self.native_engine.predict(self.graph.to_numbers(ids))) is None:
            asked = np.atleast_1d(np.asarray(ids))
            unknown = asked[~self.graph.contains(asked, self.output_type_name)]
            if len(unknown):  # else it was added in between
                raise UnknownNodeError(self.graph.unknown_node(unknown[0], self.output_type_name))
        return rows

    def embeddings(self, layer: int) -> FloatArray:
        """What one layer says of every node, float32 [nodes, channels], in the order of ``graph.ids()``, or
        of ``graph.ids(node_type)`` where there are several types.

        Layer 0 is the features, layer l the output of the l-th convolution as the next one reads it (after
        activation and norm), the last one (also -1) the predictions. Raises `InputError` if there is no such
        layer.
        """
        layers = self.model.layers
        if not -len(layers) <= layer < len(layers):
            raise InputError(f"layer must be from 0 to {len(layers) - 1} (or -1 for the last), got {layer}")
        name = layers[layer]
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

    def explain(self, id: int | str, *, since: int) -> "Explanation":
        """Through which events, and through which neighbours, the prediction of a node moved between sequence
        number `since` and now, each with its share; `docs/explain.md` says more.

        An event's share is what the prediction moved when the event was applied, in the order of the log; a
        neighbour's, what it moves when what this neighbour sends in the last propagation becomes what it is
        now, one neighbour after the other, by edge type and id, the node's own row last. So both add up to
        the whole movement, whatever the model is made of, and depend on the order where it is not linear.
        All of it is computed in float64, from scratch, on the part of the graph that the prediction reads,
        once for each event in it. Batches wait only while that part is put together.

        Raises `UnknownNodeError`, and `InputError` if `since` is in the future or further back than the
        `history` that the engine was made with reaches. A batch that was too long ago is forgotten as a
        whole; after a restart the history begins anew.
        """
        from livegnn.inference.explanation import explain

        if self._history is None:
            raise InputError("to explain, an engine must be made with history= some number of events, got 0")
        return explain(self.graph, self._history, self.model, id, since)

    def verify(self, sample: int | None = None, *, seed: int = 0) -> Verification:
        """Compares predictions with the oracle: the whole model on the whole graph, slowly and from scratch.

        sample: how many nodes, drawn at random, are compared; by default all of them.
        """
        from livegnn.model import reference

        with self.graph.writer:
            expected = reference.compute(self.model, self.graph.snapshot())[self.model.output]
            got = self.embeddings(-1)
        scale = float(np.abs(expected).max(initial=0.0))
        rows = np.arange(len(expected))
        if sample is not None and sample < len(rows):
            rows = np.random.default_rng(seed).choice(rows, sample, replace=False)
        difference = np.abs(expected[rows] - got[rows])
        largest = float(difference.max(initial=0.0)) if np.isfinite(difference).all() else float("inf")
        return Verification(largest, scale, len(rows), EXACTNESS * scale)

    def scrub(self, sample: int = 64, *, seed: int = 0) -> float:
        """Computes some aggregates of each layer anew and returns the largest relative difference to the kept
        ones.

        It changes nothing and costs what `sample` nodes and their neighbours cost, so it can run beside a
        stream.
        """
        rng = np.random.default_rng(seed)
        worst = 0.0
        with self.graph.writer:
            self.native_engine.settle()
            for kept in self.plan.kept.values():
                if kept.propagation is None:
                    continue
                nodes = self.graph.native.indices(self.graph.node_type_index(self.plan.node_type(kept.name)))
                chosen = rng.choice(nodes, min(sample, len(nodes)), replace=False)
                worst = max(worst, self.native_engine.scrub(kept.propagation, chosen))
        return worst

    def memory(self) -> dict[str, int]:
        """Bytes of the graph's parts and of what the engine keeps, and how much of the latter is `mapped
        state`, that is, lies in files: it is counted among the parts too.

        If it is lazy, also of the rows that queries have computed (``"overlay"``), and of what it has
        recorded since it last settled (``"record"``).
        """
        native = self.native_engine
        parts = dict.fromkeys(("aggregates", "layer outputs", "contexts"), 0)
        for kept in self.plan.kept.values():
            if kept.stored:
                parts[kept.part] += native.bytes(kept.index)
        parts["contexts"] += native.sums_bytes()
        parts["errors"] = native.errors_bytes()
        if self._partial:
            parts["residents"] = native.residents_bytes()
        if self._lazy:
            parts["overlay"], parts["record"] = native.lazy_bytes()
        if self._history is not None:
            parts["history"] = self._history.nbytes
        if mapped := native.mapped_bytes():
            parts["mapped state"] = mapped
        return {**self.graph.memory(), **parts}

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
            arrays: dict[str, Array] = {}
            for edge_type in self._partial_types():
                arrays[f"residents/{edge_type}"] = native.residents(edge_type)
            for kept in self.plan.kept.values():
                if not kept.stored:
                    continue
                arrays[f"rows/{kept.index}"] = native.read(kept.index)
                if kept.propagation is not None:
                    arrays[f"errors/{kept.propagation}"] = native.errors(kept.propagation)
                    if kept.counted:
                        arrays[f"counts/{kept.propagation}"] = native.counts(kept.propagation)
                if kept.context is not None:
                    arrays[f"sums/{kept.context}"] = native.sums(kept.context)
            return State({"kind": "engine", "model": self._fingerprint, "seq": self.seq}, arrays)

    def _partial_types(self) -> range:
        return range(len(self.graph.schema.edge_types) if self._partial else 0)

    def _restore(self, state: State) -> None:
        meta, arrays, native = state.meta, state.arrays, self.native_engine
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
        try:
            for edge_type in self._partial_types():
                residents = arrays[f"residents/{edge_type}"]
                native.set_residents(edge_type, np.ascontiguousarray(residents, dtype=np.uint32))
            for kept in self.plan.kept.values():
                if not kept.stored:
                    continue
                native.write(kept.index, np.ascontiguousarray(arrays[f"rows/{kept.index}"], dtype=np.float32))
                node_type = self.graph.node_type_index(self.plan.node_type(kept.name))
                rows = len(native.read(kept.index)) if kept.partial else self.graph.native.capacity(node_type)
                count = rows if kept.summed else 0
                if kept.propagation is not None:
                    bounds = count * native.error_width(kept.propagation)
                    errors = _column(arrays[f"errors/{kept.propagation}"], bounds)
                    native.set_errors(kept.propagation, errors.astype(np.float32))
                    if kept.counted:
                        counts = np.ascontiguousarray(arrays[f"counts/{kept.propagation}"], dtype=np.uint32)
                        native.set_counts(kept.propagation, counts)
                if kept.context is not None:
                    sums = _column(arrays[f"sums/{kept.context}"], count)
                    native.set_sums(kept.context, sums.astype(np.float64))
        except (KeyError, RuntimeError, ValueError, TypeError) as error:
            raise FileFormatError(f"the state of an engine does not fit together: {error}") from error


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
    except (OSError, RuntimeError) as error:
        raise InputError(
            f"state_dir must be a directory in which files can be made, got {state_dir!r}: {error}"
        ) from error


def _column(array: Array, count: int) -> Array:
    if array.shape != (count,):
        raise ValueError(f"expected {count} numbers, got an array of shape {array.shape}")
    return array
