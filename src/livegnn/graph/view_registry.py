"""Keeps the views of a graph, and the batches that they have not been told of.

Thread safety: the caller must hold `Graph.writer`.
"""

import weakref
from collections import deque
from collections.abc import Sequence
from typing import Protocol

import livegnn._core as _core
from livegnn.errors import InputError
from livegnn.graph.delta import GraphDelta
from livegnn.wording import kind_of


class Follower:
    """The part of a `View` that a graph calls for each batch; `View` documents the calls."""

    name: str = ""
    native: _core.View | None = None

    def prepare(self, change: GraphDelta) -> None:
        """Computes the state of the view after the batch. Raises `InputError` to refuse the batch."""

    def commit(self, change: GraphDelta) -> object:
        """Switches to the prepared state; returns the effect of the batch on the view. The graph has already
        committed `native`.
        """
        return None

    def abandon(self, change: GraphDelta) -> None:
        """Discards the prepared state; called also if `prepare` raised. The graph abandons `native`."""

    def publish(self, change: GraphDelta) -> None:
        """Notifies the subscribers of the view."""


class Batch(Protocol):
    """A batch of which some views have not been told: a `Transaction`."""

    committed: bool
    delta: GraphDelta | None

    def settle(self) -> None: ...

    def publish_views(self) -> BaseException | None: ...


class ViewRegistry:
    """Views in the order in which they were attached, each held weakly."""

    def __init__(self) -> None:
        self._views: list[weakref.ref[Follower]] = []
        self.batches: deque[Batch] = deque()  # those that are not told of yet, in order
        self.within = _core.Section()  # in which a batch is prepared and not yet committed in all views
        self.telling = _core.Section()  # in which callers and subscribers are told
        self.failed: list[tuple[Follower, BaseException]] = []  # views that made the last batch fail, and how

    def attach(self, graph: object, view: Follower) -> None:
        """Adds a view at the end; a view that is attached already moves there."""
        if not isinstance(view, Follower):
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
        others = [ref for ref in self._views if ref() is not None and ref() is not view]
        self._views = [*others, weakref.ref(view)]  # at once: no interrupt leaves it off

    def detach(self, view: Follower) -> None:
        """Takes a view off; does nothing if it is not attached."""
        self.refuse_within_batch()
        self._views = [ref for ref in self._views if ref() is not None and ref() is not view]

    def refuse_within_batch(self) -> None:
        """Raises `InputError` if a batch is being prepared or committed. The call then comes from a view, or
        from `on_staged`, and would start another batch within the first.
        """
        if self.within.active:
            raise InputError(
                "expected a call between batches, got one from a view that prepares or commits a batch, or "
                "from on_staged: apply batches, attach views and suppose events in View.publish, or in "
                "on_committed"
            )

    def refuse_unless_prepared(self, change: GraphDelta) -> None:
        """Raises `InputError` unless `change` is being prepared: only then does the store know its result."""
        last = self.batches[-1] if self.within.active else None
        if last is None or last.delta is not change or last.committed:
            raise InputError(
                "expected to be asked for the graph after a batch while that is prepared, in View.prepare or "
                "on_staged; now ask the graph itself, or GraphDelta for what the batch changed"
            )

    def begin(self, batch: Batch) -> tuple[Sequence[Follower], list[_core.View]]:
        """Notes that a batch begins. Returns the views, which are as they are now until it is told of, and
        their native parts.
        """
        self.failed = []
        views: list[Follower] = []
        natives: list[_core.View] = []
        for ref in self._views:
            view = ref()
            if view is not None:
                views.append(view)
                if view.native is not None:
                    natives.append(view.native)
        self.batches.append(batch)
        return views, natives

    def waits(self, batch: Batch) -> bool:
        """Whether this batch has begun, and is neither told of nor abandoned."""
        return batch in self.batches

    def forget(self, batch: Batch) -> None:
        """Takes off a batch that was abandoned."""
        self.batches.remove(batch)

    def settle(self) -> None:
        """Abandons or finishes what an exception from outside has left of earlier batches."""
        if self.batches and not self.telling.active:
            for batch in tuple(self.batches):
                batch.settle()

    def note_failure(self, view: Follower, error: BaseException) -> None:
        """Notes a view that made the last batch fail."""
        self.failed.append((view, error))

    def publish(self) -> BaseException | None:
        """Publishes batches in order: a batch that a subscriber applies is published after all views have
        published the batch before. Returns the first interrupt or failure of a view. The caller must call it
        within `telling`, which must not be active before.
        """
        broken: BaseException | None = None
        while self.batches:
            batch = self.batches[0]
            if batch.committed:
                broken = batch.publish_views() or broken
                self.batches.popleft()
            else:
                batch.settle()
        return broken
