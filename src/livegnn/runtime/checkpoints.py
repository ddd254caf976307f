"""Checkpoints of a running system: when one is written, how it is made, and how a start finds the newest.

A checkpoint has a section for the graph, one for what it knows of the log, and one for each view, under the
view's name. What a checkpoint lacks of a view is built from the graph.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from livegnn import checkpoint
from livegnn.arguments import above_zero, as_path, function, whole
from livegnn.errors import FileFormatError, InputError, LiveGNNError, LogError, ModelError
from livegnn.graph import Graph, View
from livegnn.log import Log
from livegnn.runtime.statistics import Statistics
from livegnn.types import State

_logger = logging.getLogger(__name__)

ViewFactory: TypeAlias = Callable[[Graph, State | None], View]
"""Makes a view of a graph, from its section of a checkpoint, or, given None, from the graph alone."""


@dataclass(frozen=True)
class CheckpointPolicy:
    """Where checkpoints go, when one is due (None: never for that reason), and how many are kept.

    One more is written on a clean shutdown. Checkpoints are only due when there were events since the last.
    """

    directory: Path
    every_events: int | None = 100_000
    every_seconds: float | None = None
    keep: int = 2

    def __post_init__(self) -> None:
        if self.every_events is not None:
            whole(self.every_events, "every_events", 1)
        if self.every_seconds is not None:
            above_zero(self.every_seconds, "every_seconds, None for never,")
        if not isinstance(self.directory, Path):
            raise InputError(f"directory must be a pathlib.Path, got {self.directory!r}")
        whole(self.keep, "keep, a number of checkpoints,", 1)


def list_checkpoints(directory: Path) -> list[Path]:
    """The checkpoints in `directory`, the newest first."""
    return sorted(directory.glob("checkpoint-*.lgck"), reverse=True)


def restore(
    views: Mapping[str, ViewFactory],
    initial: Callable[[], Graph],
    *,
    directory: Path | None = None,
    features_dir: Path | None = None,
    log: Log | None = None,
) -> tuple[Graph, dict[str, View]]:
    """The graph of the newest checkpoint in `directory` that is whole, else `initial`, and its views by name.

    A checkpoint that cannot be used is passed over with a warning; the log makes up for it. A `Runtime` on
    what is returned replays the rest of the log. views: a name and a factory for each. features_dir: as in
    `Graph`, for a checkpoint's graph. log: the one that will be replayed; raises `LogError` if it is not the
    one that led to the checkpoint. Raises `InputError` where a factory makes no view, or one of another name.
    """
    if not isinstance(views, Mapping):
        raise InputError(f"views must be names and factories, such as {{'engine': ...}}, got {views!r}")
    for name, make in views.items():
        function(make, f"the factory of {name!r}", "a Graph and a State or None")
    function(initial, "initial", "nothing, which makes the Graph that the log began with")
    for path in list_checkpoints(as_path(directory, "directory")) if directory is not None else []:
        try:
            saved = checkpoint.read(path)
            graph = Graph.from_state(saved.states["graph"], features_dir=features_dir)
            made = {
                name: make_view(name, make, graph, saved.states.get(name)) for name, make in views.items()
            }
        except (FileFormatError, ModelError, KeyError) as error:
            _logger.warning("passing over the checkpoint %s: %s", path, error)
        else:
            if log is not None:
                _check_history(log, path, saved)
            for name in views:
                if name not in saved.states:
                    _logger.info("%s has nothing of the view %r: built from the graph", path, name)
            return graph, made
    graph = initial()
    return graph, {name: make_view(name, make, graph, None) for name, make in views.items()}


def make_view(name: str, make: ViewFactory, graph: Graph, state: State | None) -> View:
    """Calls a factory. Raises `InputError` where it makes no view, or one of another name."""
    view = make(graph, state)
    if not isinstance(view, View):
        raise InputError(f"the factory of {name!r} must make a View, got {view!r}")
    if view.name != name:
        raise InputError(
            f"the view that is restored as {name!r} must have this name, got {view.name!r}: a checkpoint "
            "keeps its state under its own name"
        )
    return view


def _check_history(log: Log, path: Path, saved: checkpoint.Checkpoint) -> None:
    """Raises LogError if `log` has led to something else than a checkpoint."""
    known = saved.states.get("log")  # older checkpoints do not say it
    if known is None or log.last_seq() < saved.seq:  # a runtime refuses what is too short
        return
    ours, theirs = known.meta.get("digest"), log.digest(saved.seq)
    if ours is not None and theirs is not None and ours != theirs:  # older logs and checkpoints have none
        raise LogError(
            f"the log must hold what led to the checkpoint {path}, entries up to event {saved.seq} with the "
            f"digest {ours}, got {theirs}: it is not the log of this graph. Put back the "
            "log that the checkpoints belong to, or move the checkpoints away"
        )


class Checkpoints:
    """The policy at work on one graph and its views. Thread safety: none, the runtime's loop owns it."""

    def __init__(
        self,
        policy: CheckpointPolicy | None,
        log: Log,
        graph: Graph,
        views: Iterable[View],
        statistics: Statistics,
        clock: Callable[[], float],
    ) -> None:
        self._policy, self._log, self._graph, self._views = policy, log, graph, views  # as they are then
        self._statistics, self._clock = statistics, clock
        self._seq, self._time = graph.seq, clock()

    def until(self, seq: int) -> float | None:
        """Seconds until a checkpoint is due, 0 if it is, None if only an event can make it so."""
        policy, since = self._policy, seq - self._seq
        if policy is None or not since:
            return None
        if policy.every_events is not None and since >= policy.every_events:
            return 0.0
        if policy.every_seconds is None:
            return None
        return max(0.0, self._time + policy.every_seconds - self._clock())

    def write(self, seq: int) -> None:
        """Writes a checkpoint if there were events since the last, and removes those that are too many."""
        policy = self._policy
        if policy is None or seq == self._seq:
            return
        started = self._clock()
        try:
            self._log.sync()
            policy.directory.mkdir(parents=True, exist_ok=True)
            for leftover in policy.directory.glob("checkpoint-*.partial"):
                leftover.unlink()  # of a process that was killed while it wrote
            path = policy.directory / f"checkpoint-{seq:020d}.lgck"
            checkpoint.write(path, self._states(seq), seq)
            for old in list_checkpoints(policy.directory)[policy.keep :]:
                old.unlink()
        except Exception as error:
            # Whatever it is, of a view's `state` too: the log still has everything. Go on, and try again when
            # the next one is due.
            ours = isinstance(error, (OSError, LiveGNNError, MemoryError))
            said = (str(error) if ours else "") or repr(error)
            _logger.error("no checkpoint at event %d: %s", seq, said)
            self._statistics.failed_checkpoint_seconds.record(self._clock() - started)
        else:
            self._statistics.checkpoint_seconds.record(self._clock() - started)
        self._seq, self._time = seq, self._clock()

    def _states(self, seq: int) -> Mapping[str, State]:
        states = {"graph": self._graph.state()}
        for view in self._views:
            if (state := view.state()) is None:
                continue
            if not isinstance(state, State):
                raise InputError(
                    f"state of the view {view.name!r} must return a State or None, got {state!r}"
                )
            states[view.name] = state
        return {**states, "log": State({"digest": self._log.digest(seq)}, {})}
