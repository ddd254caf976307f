"""Keeps the views of a graph, and the batches that they have not published yet.

Thread safety: the caller must hold `Graph.writer`.
"""

import weakref
from collections import deque
from collections.abc import Sequence
from typing import Protocol

import livegnn._core as _core
from livegnn.errors import InputError
from livegnn.graph.delta import GraphDelta
from livegnn.schema import Growth
from livegnn.wording import kind_of


class Follower:
    """The part of a `View` that a graph calls for each batch; `View` documents the calls."""

    name: str = ""
    native: _core.View | None = None

    def check_growth(self, growth: Growth) -> None:
        """Raises `InputError` if the view cannot follow a growth of the schema; by default none can."""
        raise InputError(
            f"expected views that can follow a growth of the schema, got {self.name!r}, which cannot: remove "
            "it, or make a graph with the new schema"
        )

    def grow(self, change: GraphDelta) -> object:
        """Follows a growth, which changes nothing that the view has read: it is called in place of `prepare`
        and `commit`, when the graph has the new schema, and must not raise; see `commit` for the result."""
        return None

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
    """A batch that some views have not published yet: a `Transaction`."""

    committed: bool
    delta: GraphDelta | None

    def settle(self) -> None: ...

    def publish_views(self) -> BaseException | None: ...


class ViewRegistry:
    """Views in the order in which they were attached, each held weakly."""

    def __init__(self) -> None:
        self._views: list[weakref.ref[Follower]] = []
        self.batches: deque[Batch] = deque()  # not published yet, in order
        self.within = _core.Section()  # active while a batch is prepared and not yet committed in all views
        self.telling = _core.Section()  # active while callers and subscribers are called
        self.failed: list[tuple[Follower, BaseException]] = []  # views that failed in the last batch

    def attach(self, graph: object, view: Follower) -> None:
        """Adds a view at the end; a view that is attached already moves there."""
        if not isinstance(view, Follower):
            raise InputError(f"expected a View, got {kind_of(view)}: derive it from livegnn.graph.View")
        if getattr(view, "graph", None) is not graph:
            raise InputError(
                f"expected a view of this graph, got {view.name!r} of another or none: a view follows the "
                "graph that its constructor gives to View.__init__"
            )
        if view.native is not None and not isinstance(view.native, _core.View):
            raise InputError(
                f"native of the view {view.name!r} must be None or a native view, got {kind_of(view.native)}"
            )
        self.refuse_within_batch()
        others = [ref for ref in self._views if ref() is not None and ref() is not view]
        self._views = [*others, weakref.ref(view)]  # at once: an interrupt cannot leave the view out

    def detach(self, view: Follower) -> None:
        """Removes a view; does nothing if it is not attached."""
        self.refuse_within_batch()
        self._views = [ref for ref in self._views if ref() is not None and ref() is not view]

    def refuse_within_batch(self) -> None:
        """Raises `InputError` if a batch is being prepared or committed. The caller is then a view or
        `on_staged`, and would start another batch within the first.
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
                "expected a read of the graph after a batch while that is prepared, in View.prepare or "
                "on_staged; now read the graph itself, or GraphDelta for the changes of the batch"
            )

    def current(self) -> list[Follower]:
        """The views, in the order in which they were attached."""
        return [view for ref in self._views if (view := ref()) is not None]

    def begin(self, batch: Batch) -> tuple[Sequence[Follower], list[_core.View]]:
        """Adds a batch that begins. Returns the current views, which the batch uses until it is published,
        and their native parts.
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
        """Returns whether this batch has begun and is neither published nor abandoned."""
        return batch in self.batches

    def forget(self, batch: Batch) -> None:
        """Removes a batch that was abandoned."""
        self.batches.remove(batch)

    def settle(self) -> None:
        """Abandons or finishes earlier batches that an exception from outside has interrupted."""
        if self.batches and not self.telling.active:
            for batch in tuple(self.batches):
                batch.settle()

    def note_failure(self, view: Follower, error: BaseException) -> None:
        """Adds a view that failed in the last batch, with its error."""
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
