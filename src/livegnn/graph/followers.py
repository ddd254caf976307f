"""Keeps the views of a graph, and applies each batch to all of them or to none.

Thread safety: the caller must hold `Graph.writer`.
"""

import logging
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from livegnn import _core
from livegnn.errors import InputError, LiveGNNError
from livegnn.graph.delta import GraphDelta
from livegnn.graph.view import View
from livegnn.wording import kind_of

if TYPE_CHECKING:
    from livegnn.graph.graph import Graph

_logger = logging.getLogger(__name__)


class Followers:
    """Views in the order in which they were attached, each held weakly."""

    def __init__(self) -> None:
        self._views: list[weakref.ref[View]] = []
        self._unpublished: deque[tuple[GraphDelta, Sequence[View]]] = deque()
        self._publishing = False
        self.within_batch = False  # a batch is prepared and not yet committed in all views
        self.preparing: GraphDelta | None = None  # the batch whose `after` may be used now
        self.failed: list[tuple[View, Exception]] = []  # views that made the last batch fail, and how

    def attach(self, graph: "Graph", view: View) -> None:
        """Adds a view at the end; a view that is attached already moves there."""
        if not isinstance(view, View):
            raise InputError(f"expected a View, got {kind_of(view)}: derive it from livegnn.graph.View")
        if getattr(view, "graph", None) is not graph:
            raise InputError(
                f"expected a view of this graph, got {view.name!r} of another or of none: a view follows the "
                "graph that its constructor gives to View.__init__"
            )
        if view.native is not None and not isinstance(view.native, _core.View):
            raise InputError(
                f"native of the view {view.name!r} must be None or a native view, got {kind_of(view.native)}"
            )
        self.refuse_within_batch()
        self._views = [ref for ref in self._views if ref() is not None and ref() is not view]
        self._views.append(weakref.ref(view))

    def detach(self, view: View) -> None:
        """Takes a view off; does nothing if it is not attached."""
        self.refuse_within_batch()
        self._views = [ref for ref in self._views if ref() is not None and ref() is not view]

    def refuse_within_batch(self) -> None:
        """Raises `InputError` if a batch is being prepared or committed. The call then comes from a view, or
        from `on_staged`, and would start another batch within the first.
        """
        if self.within_batch:
            raise InputError(
                "expected a call between batches, got one from a view that prepares or commits a batch, or "
                "from on_staged: apply batches, attach views and suppose events in View.publish, or in "
                "on_committed"
            )

    def refuse_unless_prepared(self, change: GraphDelta) -> None:
        """Raises `InputError` unless `change` is being prepared: only then does the store know its result."""
        if self.preparing is not change:
            raise InputError(
                "expected to be asked for the graph after a batch while that is prepared, in View.prepare or "
                "on_staged; now ask the graph itself, or GraphDelta for what the batch changed"
            )

    def apply(
        self,
        graph: "Graph",
        delta: GraphDelta,
        on_staged: Callable[[GraphDelta], None] | None,
    ) -> tuple[Sequence[View], BaseException | None]:
        """Prepares a batch and makes it visible in the graph and all views. Returns the views, and the first
        interrupt or failure of a view after the point where the batch could still be refused.
        """
        views = [view for ref in self._views if (view := ref()) is not None]
        self.within_batch, self.failed = True, []
        try:
            self.preparing = delta
            self._prepare(graph.native, delta, views, on_staged)
            self.preparing = None
            broken: BaseException | None = None
            try:
                graph.native.commit(delta.native, [view.native for view in views if view.native is not None])
            except KeyboardInterrupt as interrupt:
                broken = interrupt  # the commit is complete: an interrupt waits for a native call to end
            graph.seq = delta.seq
            for view in views:
                try:
                    delta.note_update(view, view.commit(delta))
                except BaseException as error:
                    self._note_failure(view, error)
                    broken = broken or _explain(error, view, "committed it, and is out of date")
            return views, broken
        finally:
            self.within_batch, self.preparing = False, None

    def _prepare(
        self,
        graph: "_core.Graph",
        delta: GraphDelta,
        views: Sequence[View],
        on_staged: Callable[[GraphDelta], None] | None,
    ) -> None:
        """Does everything that may fail. The store prepares first, so that views can read its lists as they
        are before and after the batch.
        """
        begun = 0
        try:
            graph.prepare(delta.native)
            for view in views:
                begun += 1
                try:
                    view.prepare(delta)
                except Exception as error:
                    if not isinstance(error, InputError):
                        self._note_failure(view, error)
                    raise
            if on_staged is not None:
                on_staged(delta)
        except BaseException as error:
            interrupt: BaseException | None = None
            for view in views[:begun]:
                try:
                    view.abandon(delta)
                except Exception:
                    _logger.exception("the view %r failed to abandon a batch", view.name)
                except BaseException as late:
                    interrupt = interrupt or late
                if view.native is not None:
                    view.native.abandon()
            graph.abandon()
            if interrupt is not None and isinstance(error, Exception):
                raise interrupt from error
            raise

    def _note_failure(self, view: View, error: BaseException) -> None:
        if isinstance(error, Exception):
            self.failed.append((view, error))

    def publish(self, delta: GraphDelta, views: Sequence[View]) -> BaseException | None:
        """Publishes batches in order: a batch that a subscriber applies is published after all views have
        published the batch before. Returns the first interrupt or failure of a view.
        """
        if self._publishing:
            self._unpublished.append((delta, views))
            return None
        self._publishing = True
        broken: BaseException | None = None
        try:
            while True:
                for view in views:
                    try:
                        view.publish(delta)
                    except BaseException as error:
                        self._note_failure(view, error)
                        broken = broken or _explain(error, view, "told of it")
                if not self._unpublished:
                    return broken
                delta, views = self._unpublished.popleft()
        finally:
            self._publishing = False


def _explain(error: BaseException, view: View, when: str) -> BaseException:
    """Interrupts unchanged; any other error wrapped in one that says that the batch was applied, so that no
    caller takes it for a refused batch.
    """
    if not isinstance(error, Exception):
        return error
    explained = LiveGNNError(f"a batch was applied, but the view {view.name!r} failed as it {when}: {error}")
    explained.__cause__ = error
    return explained
