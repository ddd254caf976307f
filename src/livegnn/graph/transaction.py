"""Applies one batch to a graph: prepares, commits and publishes it, as a whole or not at all.

    run ─► stage ─► native apply: prepare_views, commit, commit_views ─► on_committed ─► publish_views
             └──────────── refused or interrupted: abandon_views ──┘

An exception from outside (Ctrl-C, a signal's handler, a time limit) can interrupt between any two opcodes. So
one native call prepares, commits and sets `committed`. Before the commit, an interrupt abandons the batch.
After the commit the batch is finished: by the same call, or, if that is interrupted again, by the next batch.
Each step continues where it was interrupted.

Thread safety: `run` takes `Graph.writer`; the caller of any other method must hold it.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import livegnn._core as _core
from livegnn.errors import InputError, LiveGNNError
from livegnn.events import Events
from livegnn.events.growing import GROW
from livegnn.graph.description import measure_parts
from livegnn.graph.growing import SchemaStep
from livegnn.graph.native_graph import NativeGraph
from livegnn.graph.staging import check_seq, stage_batch
from livegnn.graph.view_registry import Follower, ViewRegistry

if TYPE_CHECKING:
    from livegnn.graph.delta import GraphDelta
    from livegnn.graph.writer import Claim
    from livegnn.schema import Schema

_logger = logging.getLogger(__name__)


class Transaction:
    """Applies `events` to `graph` and `views` once, by `run`. The arguments are those of `Graph.apply`.

    after: the sequence number before the batch, by default the graph's. `tell`: returns an iterator whose
    next step only calls the caller's function, such as `map(on_committed, iter([change]))`. claim: the claim
    of the caller. rejects: the batch has no events and stands for an entry that was refused; a view that
    refuses it too is skipped. sheltered: it runs in a thread that receives no exception from outside, so an
    interrupt, such as a `SystemExit`, is a failure of the view or subscriber that raises it.
    """

    committed = False
    """Whether the graph shows the batch."""
    delta: "GraphDelta | None" = None
    _views: Sequence[Follower] = ()
    _caller: Iterator[object] | None = None
    _begun = _abandoned = _shown = _published = 0  # views
    _again = False  # the next view has been interrupted, and is called once more
    _interrupt: BaseException | None = None  # raised by a view while it abandoned the batch
    _broken: BaseException | None = None  # raised by a view while it committed
    _deaf: BaseException | None = None  # raised by a view while it published
    _step: SchemaStep | None = None  # of a growth of the schema
    schema: "Schema | None" = None
    """The schema after a growth, which the native core gives to the graph."""

    def __init__(
        self,
        graph: NativeGraph,
        views: ViewRegistry,
        events: Events,
        *,
        seq: int | None = None,
        after: int | None = None,
        on_staged: "Callable[[GraphDelta], None] | None" = None,
        tell: "Callable[[GraphDelta], Iterator[object]] | None" = None,
        trusted: bool = False,
        claim: "Claim | None" = None,
        rejects: bool = False,
        sheltered: bool = False,
    ) -> None:
        self.graph, self.views = graph, views
        self._events, self.seq, self.after = events, seq, after
        self._on_staged, self._tell = on_staged, tell
        self._trusted, self.claim = trusted, claim
        self._rejects, self._sheltered = rejects, sheltered

    def run(self) -> "GraphDelta":
        """Applies the batch, with `Graph.writer`. Raises the errors of `Graph.apply`."""
        return _core.holding(self.graph.writer, _core.settled, self._run, self.settle)

    def _run(self) -> "GraphDelta":
        graph, views = self.graph, self.views
        if views.batches:  # otherwise this batch cannot begin within another one
            views.refuse_within_batch()
        if graph.claim is not None:
            graph.claim.refuse_others(self.claim)
        if views.batches:
            views.settle()
        graph.batch_began = time.perf_counter()
        if self.after is not None:
            graph.seq = self.after
        if self.seq is not None:
            check_seq(self.seq, graph.seq)
        chunks = self._events.chunks if isinstance(self._events, Events) else ()
        if chunks and chunks[0].kind == GROW:  # one among others is refused by whichever stages them
            self._step = SchemaStep(graph, self._events)
            self.schema = self._step.schema
        step = self._step
        if step is None:
            delta = stage_batch(graph, views, self._events, self.seq, trusted=self._trusted)
        else:
            delta = step.stage(views, self.seq, trusted=self._trusted)
        self.delta = delta
        self.seq = delta.seq
        delta.sheltered = self._sheltered
        self._views, natives = views.begin(self)
        readers = None if self.claim is None else self.claim.readers
        try:
            if step is None:
                _core.within(views.within, graph.native.apply, delta.native, natives, graph, self, readers)
            else:
                _core.within(views.within, step.apply, self, self._views, natives, readers)
        except Exception as error:
            if self._interrupt is not None:
                raise self._interrupt from error
            raise
        if graph.measurement.wanted:
            graph.measurement.take(partial(measure_parts, graph))
        broken = self._finish() or self._broken
        if broken is not None:
            raise broken
        return delta

    def settle(self) -> None:
        """Abandons or finishes the batch, after an exception."""
        views = self.views
        if self.committed:
            self._finish()
        elif views.waits(self):
            self.abandon_views()
            views.forget(self)

    def _finish(self) -> BaseException | None:
        """Runs the remaining steps after the commit. Returns the first interrupt or failure of `publish`."""
        views = self.views
        if self._shown < len(self._views):
            _core.within(views.within, self.commit_views)
        if self._tell is not None:
            assert self.delta is not None
            if self._caller is None:
                self._caller = self._tell(self.delta)
            # The next step and the call are one: the caller is called exactly once.
            _core.within(views.telling, next, self._caller, None)
        return None if views.telling.active else _core.within(views.telling, views.publish)

    # -- called by the native core

    def prepare_views(self) -> None:
        """Runs every step that may fail. The store has prepared the batch, so views can read its lists as
        they are before and after the batch.
        """
        delta = self.delta
        assert delta is not None
        while self._step is None and self._begun < len(self._views):
            view = self._views[self._begun]
            self._begun += 1
            try:
                view.prepare(delta)
            except InputError:
                if not self._rejects or view.native is not None:
                    raise
                self._pass_over(view)
            except BaseException as error:
                if not self._is_failure(error):
                    raise
                self.views.note_failure(view, error)
                if isinstance(error, Exception):
                    raise
                raise LiveGNNError(
                    f"the view {view.name!r} ended as it prepared a batch: {error!r}"
                ) from error
        if self._on_staged is not None:
            self._on_staged(delta)

    def _pass_over(self, view: Follower) -> None:
        """Skips a view for this batch, which changes nothing."""
        assert self.delta is not None
        view.abandon(self.delta)
        self._views = [one for one in self._views if one is not view]
        self._begun -= 1

    def _is_failure(self, error: BaseException) -> bool:
        return self._sheltered or isinstance(error, Exception)

    def abandon_views(self) -> None:
        """Calls `abandon` of the views that have begun to prepare."""
        while self._abandoned < self._begun:
            view = self._views[self._abandoned]
            try:
                assert self.delta is not None
                view.abandon(self.delta)
            except BaseException as late:
                if self._is_failure(late):
                    _logger.exception("the view %r failed to abandon a batch", view.name)
                else:
                    self._interrupt = self._interrupt or late
            self._abandoned += 1

    def commit_views(self) -> None:
        """Calls `commit` of the views. A view that raises is called again: it may have been interrupted."""
        delta, views = self.delta, self._views
        assert delta is not None
        while self._shown < len(views):
            view = views[self._shown]
            try:
                delta.note_update(view, view.commit(delta) if self._step is None else view.grow(delta))
            except BaseException as error:
                self._broken = self._broken or self._explain(view, error, "committed it, and is out of date")
                if not self._again:
                    self._again = True
                    continue
            self._again = False
            self._shown += 1

    def publish_views(self) -> BaseException | None:
        """Calls `publish` of the views. An interrupted view is called once more. Returns the first interrupt
        or failure.
        """
        delta, views = self.delta, self._views
        assert delta is not None
        while self._published < len(views):
            view = views[self._published]
            try:
                view.publish(delta)
            except BaseException as error:
                self._deaf = self._deaf or self._explain(view, error, "published it")
                if not self._again and not self._is_failure(error):
                    self._again = True
                    continue
            self._again = False
            self._published += 1
        return self._deaf

    def _explain(self, view: Follower, error: BaseException, when: str) -> BaseException:
        """Returns an interrupt unchanged, and any other error wrapped in one that says that the batch was
        applied, so that no caller takes it for a refused batch.
        """
        if not self._is_failure(error):
            return error
        self.views.note_failure(view, error)
        explained = LiveGNNError(
            f"a batch was applied, but the view {view.name!r} failed as it {when}: "
            + (str(error) if isinstance(error, Exception) else repr(error))
        )
        explained.__cause__ = error
        return explained
