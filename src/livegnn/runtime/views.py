"""The views of a runtime, and the handling of one that fails: the loop ends, or the view is built again.

A view fails if it raises another error than `InputError` (which refuses a batch) while a batch is prepared,
or any error after the batch was applied. If it is to be built again, it is detached from the graph at once,
and the batch continues without it. Between two batches its factory builds another one from the graph. Until
then, a request for it raises `ViewMissingError`.

Thread safety: any thread may read `Views`; the runtime's loop does everything else.
"""

import logging
from collections.abc import Callable, ItemsView, Iterator, Mapping, Sequence, ValuesView
from typing import Final, Literal, get_args

from livegnn.arguments import check_function
from livegnn.errors import InputError, LiveGNNError, ViewMissingError, is_disk_full
from livegnn.graph import Graph, View
from livegnn.runtime.recovery import ViewFactory, make_view
from livegnn.wording import kind_of

_logger = logging.getLogger(__name__)

WhenViewFails = Literal["stop", "rebuild"]

MOST_TRIES: Final = 3
"""The most builds of a view before the loop ends, unless it has followed `SETTLED` batches in between."""

SETTLED: Final = 100


class Views(Mapping[str, View]):
    """The views by name, at this moment; `missing` has the reason for each that is built again."""

    def __init__(self, graph: Graph, views: Sequence[View]) -> None:
        self._views = _by_name(graph, views)
        self.missing: Mapping[str, str] = {}

    def __getitem__(self, name: str) -> View:
        view = self._views.get(name)
        if view is not None:
            return view
        if name in self.missing:
            raise ViewMissingError(
                f"the view {name!r} failed and is being built again, so there is nothing to read: ask again "
                f"in a moment ({self.missing[name]})"
            )
        raise KeyError(name)

    def find(self, name: str) -> View | None:
        """Returns the view of this name, None if there is none, or while it is built again."""
        return self._views.get(name)

    def __contains__(self, name: object) -> bool:
        return name in self._views

    def __iter__(self) -> Iterator[str]:
        return iter(self._views)

    # From one moment: another thread may replace the mappings meanwhile.

    def items(self) -> ItemsView[str, View]:
        return self._views.items()

    def values(self) -> ValuesView[View]:
        return self._views.values()

    def __len__(self) -> int:
        return len(self._views)

    def build(self, graph: Graph, factories: Mapping[str, ViewFactory]) -> None:
        """Adds views that are computed from the graph as it is."""
        for name, make in factories.items():
            self.put_back(make_view(name, make, graph, None))

    # These replace mappings that other threads may be reading; they never change one.

    def lose(self, name: str, reason: str) -> None:
        """Notes that a view is missing from now on."""
        self.missing = {**self.missing, name: reason}
        self._views = {other: view for other, view in self._views.items() if other != name}

    def put_back(self, view: View) -> None:
        """Notes that a view exists, or exists again."""
        self._views = {**self._views, view.name: view}
        self.missing = {name: reason for name, reason in self.missing.items() if name != view.name}

    def remove(self, name: str) -> None:
        """Notes that a view was removed for good."""
        self._views = {other: view for other, view in self._views.items() if other != name}


def check_factories(factories: object, argument: str) -> None:
    """Raises InputError unless `factories` maps names of views to their factories."""
    if not isinstance(factories, Mapping):
        raise InputError(f"{argument} must be names of views and their factories, got {kind_of(factories)}")
    for name, make in factories.items():
        check_function(make, f"the factory of {name!r}", "a Graph and a State or None")


def check_build(build: object, views: Views) -> None:
    """Raises InputError unless `build` is names and factories of views that do not exist yet."""
    check_factories(build, "build")
    assert isinstance(build, Mapping)
    if taken := [name for name in build if name in views]:
        raise InputError(f"views to build must be none of those that are there, got {taken[0]!r}")


class Rebuilding:
    """A task of the loop that handles views that fail, and builds them again."""

    def __init__(
        self,
        graph: Graph,
        views: Views,
        when_view_fails: WhenViewFails,
        factories: Mapping[str, ViewFactory],
        on_change: Callable[[str, View | None], None],
        drop: Callable[[str, str], bool],
    ) -> None:
        """factories: copied, and may grow later. on_change: called with the name of a view that is missing
        (None) or exists again. drop: called with a view that has failed, and why; returns whether the loop
        continues without it for good.
        """
        if not isinstance(when_view_fails, str) or when_view_fails not in get_args(WhenViewFails):
            raise InputError(f"when_view_fails must be 'stop' or 'rebuild', got {when_view_fails!r}")
        check_factories(factories, "factories")
        if when_view_fails == "rebuild" and (lacking := [name for name in views if name not in factories]):
            raise InputError(
                f"when_view_fails='rebuild' needs a factory for each view, got none for {lacking[0]!r}: pass "
                "factories={...}, as to restore"
            )
        self._graph, self._views = graph, views
        self._rebuild, self._on_change = when_view_fails == "rebuild", on_change
        self.factories = dict(factories)
        self._drop = drop
        self._tries: dict[str, int] = {}
        self._followed: dict[str, int] = {}  # batches since a view was built again

    def until(self) -> float | None:
        """Returns 0 if a view is missing, else None."""
        return 0.0 if self._views.missing else None

    def run(self) -> None:
        """Builds the missing views. Raises `LiveGNNError` for a view that has failed too often."""
        for name in self._views.missing:
            self._tries[name] = self._tries.get(name, 0) + 1
            if self._tries[name] > MOST_TRIES:
                raise LiveGNNError(
                    f"the view {name!r} failed again after it was built {MOST_TRIES} times: "
                    f"{self._views.missing[name]}"
                )
            try:
                view = make_view(name, self.factories[name], self._graph, None)
            except Exception as error:
                if is_disk_full(error):
                    self._tries[name] -= 1  # the loop waits for space
                    raise
                _logger.exception("the view %r could not be built again", name)
                self._views.lose(name, f"it could not be built: {error}")
                continue
            self._followed[name] = 0
            self._views.put_back(view)
            self._on_change(name, view)
            _logger.warning("the view %r is there again, at event %d", name, self._graph.seq)

    def settle(self) -> None:
        """Notes that a batch was applied with all views that exist."""
        for name in list(self._followed):
            if name in self._views:
                self._followed[name] += 1
                if self._followed[name] >= SETTLED:
                    del self._followed[name]
                    self._tries.pop(name, None)

    def blame(self, error: Exception) -> None:
        """Detaches the views that made a batch fail from the graph.

        Raises `error` if no view is to blame, or the disk is full, and otherwise, if views are not to be
        built again, a `LiveGNNError` that names the view.
        """
        failed = [
            (ours, reason)
            for view, reason in self._graph.views.failed
            for ours in self._views.values()
            if ours is view
        ]
        self._graph.views.failed = []
        if not failed or is_disk_full(error):
            raise error
        for view, reason in failed:
            said = f"at event {self._graph.seq}: {type(reason).__name__}: {reason}"
            dropped = self._drop(view.name, said)
            if not self._rebuild and not dropped:
                if error.__cause__ is reason:  # it names the view
                    raise error
                raise LiveGNNError(f"the view {view.name!r} failed: {reason}") from error
            then = "the loop continues without it" if dropped else "it is built again"
            _logger.error("the view %r failed %s; %s", view.name, said, then, exc_info=reason)
            self._graph.views.detach(view)
            if dropped:
                self._views.remove(view.name)
            else:
                self._views.lose(view.name, said)
            self._on_change(view.name, None)
            try:
                view.retire()
            except Exception:
                _logger.exception("the view %r that failed could not be closed", view.name)


def _by_name(graph: Graph, views: Sequence[View]) -> dict[str, View]:
    """Returns the views by name. Raises `InputError` unless each is a view of the graph with a free name."""
    named: dict[str, View] = {}
    for view in views:
        if not isinstance(view, View):
            raise InputError(f"expected views of the graph, such as an Engine, got {kind_of(view)}")
        if view.graph is not graph:
            raise InputError(
                f"expected a view of the runtime's graph, got {view.name!r} of another: write "
                "Runtime(log, view.graph, view)"
            )
        if not view.name or view.name in View.reserved_names or view.name in named:
            raise InputError(
                f"a view's name must be its own, and neither empty nor one of {sorted(View.reserved_names)}, "
                f"got {view.name!r}"
            )
        named[view.name] = view
    return named
