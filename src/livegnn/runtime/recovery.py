"""A start finds the newest checkpoint that it can use, and makes the graph and its views from it.

The graph is decisive: a view for which a checkpoint has no section that fits is built from the graph. So
another model, or a new view, costs one computation and not a replay of the whole log.
"""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol, TypeAlias

import livegnn.checkpoint as checkpoint
from livegnn.arguments import as_path, check_function
from livegnn.errors import FileFormatError, InputError, ModelError
from livegnn.graph import Graph, View
from livegnn.log import ReadableLog
from livegnn.runtime.checkpoint_files import list_checkpoints, seq_of
from livegnn.runtime.growing import has_growth
from livegnn.runtime.history import check_history
from livegnn.types import State

_logger = logging.getLogger(__name__)

ViewFactory: TypeAlias = Callable[[Graph, State | None], View]
"""A function that makes a view, from its section of a checkpoint, or, given None, from the graph alone."""


class Maker(Protocol):
    """Makes a graph that is not `Graph.from_state` of a checkpoint's section, and the views of it by name."""

    def restore(self, path: Path, states: Mapping[str, State]) -> tuple[Graph, dict[str, View]]:
        """From the sections of the checkpoint at `path`. Raises `FileFormatError`, `ModelError`, `KeyError`
        or `OSError` if it cannot be used, so that an older one is tried; other errors end the start."""

    def begin(self, graph: Graph) -> tuple[Graph, dict[str, View]]:
        """From the graph with which the log began."""


def restore(
    views: Mapping[str, ViewFactory],
    initial: Callable[[], Graph],
    *,
    directory: Path | None = None,
    features_dir: Path | None = None,
    log: ReadableLog | None = None,
    up_to: int | None = None,
    maker: Maker | None = None,
) -> tuple[Graph, dict[str, View]]:
    """Returns the graph of the newest whole checkpoint in `directory`, else `initial`, and its views by name.

    A checkpoint whose graph cannot be used is skipped with a warning; the log makes up for it. A view for
    which it has no section that fits, such as an engine of another model, is built from its graph. A
    `Runtime` on the result replays the rest of the log. views: a factory for each name. features_dir: as in
    `Graph`, for a checkpoint's graph. log: the log that will be replayed; raises `LogError` if it is not the
    one that led to the checkpoint. up_to: no checkpoint after this event is used. maker: makes the graph and
    its views in place of the factories. Raises `InputError` if a factory makes no view, or one of another
    name.
    """
    if not isinstance(views, Mapping):
        raise InputError(f"views must be names and factories, such as {{'engine': ...}}, got {views!r}")
    for name, make in views.items():
        check_function(make, f"the factory of {name!r}", "a Graph and a State or None")
    check_function(initial, "initial", "nothing, which makes the Graph that the log began with")
    made_by = _OfFactories(views, features_dir) if maker is None else maker
    for path in list_checkpoints(as_path(directory, "directory")) if directory is not None else []:
        if up_to is not None and seq_of(path) > up_to:
            continue
        try:
            saved = checkpoint.read(path, states={"graph", "log", *views})
            if saved.seq != seq_of(path):
                raise FileFormatError(f"a checkpoint's name must say its event, {saved.seq}: it was renamed")
            graph, made = made_by.restore(path, saved.states)
        except (FileFormatError, ModelError, KeyError, OSError) as error:
            _logger.warning("passing over the checkpoint %s: %s", path, error)
        else:
            if log is not None:
                known = saved.states.get("log")  # older checkpoints do not have it
                check_history(log, path, {} if known is None else known.meta, saved.seq)
            told = {"event": saved.seq, "path": str(path)}
            _logger.info("starts from the checkpoint %s at event %d", path, saved.seq, extra=told)
            return graph, made
    _logger.info("starts from the first graph: there is no usable checkpoint", extra={"event": 0})
    return made_by.begin(initial())


class _OfFactories:
    """A graph in one piece, and views made by factories."""

    def __init__(self, views: Mapping[str, ViewFactory], features_dir: Path | None) -> None:
        self._views, self._features_dir = views, features_dir

    def restore(self, path: Path, states: Mapping[str, State]) -> tuple[Graph, dict[str, View]]:
        graph = Graph.from_state(states["graph"], features_dir=self._features_dir)
        made = {
            name: _make_of(path, name, make, graph, states.get(name)) for name, make in self._views.items()
        }
        return graph, made

    def begin(self, graph: Graph) -> tuple[Graph, dict[str, View]]:
        return graph, {name: _make_anew(name, make, graph) for name, make in self._views.items()}


def count_recorded(log: ReadableLog, directory: Path | None) -> int:
    """Returns the number of events recorded in batches since the newest checkpoint in `directory`.

    Raises LogError if the log does not continue from there.
    """
    seq = _newest_seq(directory)
    batches = log.batches(seq)
    return batches[-1].seq - seq if batches else 0


def grows_later(log: ReadableLog, directory: Path | None) -> bool:
    """Returns whether the schema grows in the log after the newest checkpoint in `directory`: it reads the
    events. Raises LogError if the log does not continue from there."""
    return has_growth(log, _newest_seq(directory))


def _newest_seq(directory: Path | None) -> int:
    newest = next(iter(list_checkpoints(directory)), None) if directory is not None else None
    return 0 if newest is None else seq_of(newest)


def _make_of(path: Path, name: str, make: ViewFactory, graph: Graph, state: State | None) -> View:
    """Returns the view from its section of a checkpoint, or from the graph."""
    if state is None:
        _logger.info("%s has nothing of the view %r: built from the graph", path, name)
        return _make_anew(name, make, graph)
    try:
        return make_view(name, make, graph, state)
    except (FileFormatError, InputError, ModelError) as error:
        view = _make_anew(name, make, graph)  # raises, if it is the graph or an option that does not fit
        _logger.warning(
            "%s has nothing that fits the view %r, which is built from the graph: %s", path, name, error
        )
        return view


def _make_anew(name: str, make: ViewFactory, graph: Graph) -> View:
    """Returns the view made from the graph; an error has its name, since a start makes several."""
    try:
        return make_view(name, make, graph, None)
    except InputError as error:
        raise InputError(f"the view {name!r} cannot be made: {error}") from error
    except ModelError as error:
        raise ModelError(f"the view {name!r} cannot be made: {error}") from error


def make_view(name: str, make: ViewFactory, graph: Graph, state: State | None) -> View:
    """Calls a factory and returns its view. Raises `InputError` if it makes none, or one of another name."""
    view = make(graph, state)
    if not isinstance(view, View):
        raise InputError(f"the factory of {name!r} must make a View, got {view!r}")
    if view.name != name:
        raise InputError(
            f"the view that is restored as {name!r} must have this name, got {view.name!r}: a checkpoint "
            "keeps its state under its own name"
        )
    return view
