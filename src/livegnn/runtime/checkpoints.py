"""Checkpoints of a running system: when one is written, what is in it, and by whom.

    loop ─► fork, with no reader inside ─► child: states ─► file beside its place
      │                                                        │
      └─► next batch      thread: ◄── written ─────────────────┘ ─► log.sync ─► name ─► remove old ones

A checkpoint has a section for the graph, one for what it knows of the log, and one for each view, under the
view's name. The child has the memory as it was between two batches, copied on write, so the loop stands only
for the fork. Parts that a fork does not copy (`View.forkable`) are taken before it.

Invariants: a file has its name only when the log is synced; one checkpoint is written at a time; the
directory belongs to the log, and what is not of its history is not removed.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import livegnn._core as _core
import livegnn.checkpoint as checkpoint
from livegnn.arguments import check_bool, check_int, check_positive
from livegnn.atomic_file import name_partial, put_in_place, write_partial
from livegnn.errors import InputError, LogError
from livegnn.graph import Graph, View
from livegnn.interrupts import Background
from livegnn.log import Log, ReadableLog
from livegnn.log.directories import OwnedDirectory
from livegnn.runtime import forked
from livegnn.runtime.checkpoint_files import list_chains, list_checkpoints, may_follow, remove_old, seq_of
from livegnn.runtime.forked import ForkedProcess, explain
from livegnn.runtime.history import find_foreign, history_state, is_foreign
from livegnn.runtime.statistics import Statistics
from livegnn.types import State

_logger = logging.getLogger(__name__)

PATIENCE = 600.0
"""The most seconds that a process may be silent while it saves one part, or writes some megabytes."""

SMALL = 64 << 20
"""Bytes. States that are smaller are written at once, and so always whole."""

_LOSS_SECONDS = 1.0  # between two tries to make up for a loss

_AT_ONCE = 8 << 20
"""Bytes. Much more to be flushed would hold up flushes of the log, and so whoever appends."""


@dataclass(frozen=True)
class CheckpointPolicy:
    """Where checkpoints go, when one is due (None: never for that reason), and how many are kept.

    One more is written on a clean shutdown. Checkpoints are only due when there were events since the last,
    also of those that a restart has replayed. keep: how many that share nothing, each with those that take
    blocks from it. beside: whether a forked process writes them while the loop goes on (on Linux); else the
    loop does, and applies no events meanwhile. trim_log: as soon as so many as are kept are there, the log is
    trimmed behind the oldest. full_every: one in so many at least stands alone, and so does the first after a
    start; others take what has not changed from those before. With 1 each does.
    """

    directory: Path
    every_events: int | None = 100_000
    every_seconds: float | None = None
    keep: int = 2
    beside: bool = True
    trim_log: bool = False
    full_every: int = 8

    def __post_init__(self) -> None:
        if self.every_events is not None:
            check_int(self.every_events, "every_events", 1)
        if self.every_seconds is not None:
            check_positive(self.every_seconds, "every_seconds, None for never,")
        if not isinstance(self.directory, Path):
            raise InputError(f"directory must be a pathlib.Path, got {self.directory!r}")
        check_int(self.keep, "keep, a number of checkpoints,", 1)
        check_bool(self.beside, "beside")
        check_bool(self.trim_log, "trim_log")
        check_int(self.full_every, "full_every", 1)


def _name_of(seq: int) -> str:
    """Names are in the order of the sequence numbers."""
    return f"checkpoint-{seq:020d}.lgck"


def oldest_kept(policy: CheckpointPolicy, log: ReadableLog) -> int | None:
    """The number of the oldest checkpoint of `log` that is kept; None until as many chains are there."""
    kept = list_chains(policy.directory, find_foreign(log, policy.directory))[: policy.keep]
    return min(seq_of(chain[-1]) for chain in kept) if len(kept) == policy.keep else None


def _trim_behind(oldest: Path, log: Log, needed_after: int | None) -> None:
    """Trims the log behind a checkpoint. What cannot be trimmed is said, and tried again after the next."""
    up_to = seq_of(oldest)
    try:
        log.trim(up_to if needed_after is None else min(up_to, needed_after))
    except (LogError, OSError) as error:
        _logger.error("the log was not trimmed: %s", error)


class _Writing(NamedTuple):
    """A checkpoint that is being written."""

    seq: int
    path: Path
    partial: Path
    began: float
    after: Path | None
    """The checkpoint that this process has written before it."""
    unhashed: int
    """How many from this one on take no blocks and give none."""


class Checkpoints:
    """The policy at work on one graph and its views.

    since: the event of the checkpoint that the graph was made of, 0 if of none. readers: the lock of those
    who read graph and views without `Graph.writer`. needed_after: the event after which others need the log;
    None if nobody does.
    Thread safety: none, the runtime's loop owns it. While a child writes, a thread of its own waits for it.
    """

    def __init__(
        self,
        policy: CheckpointPolicy | None,
        log: Log,
        graph: Graph,
        views: Mapping[str, View],
        statistics: Statistics,
        clock: Callable[[], float],
        *,
        since: int,
        readers: threading.RLock,
        needed_after: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._needed_after = needed_after
        self._policy, self._log, self._graph, self._views = policy, log, graph, views  # as they are then
        self._statistics, self._clock, self._readers = statistics, clock, readers
        self._written = self._tried = since
        self._tried_again = False  # whether the last one that was tried was to make up for a loss
        self._owned: OwnedDirectory | None = None
        self._own: set[Path] = set()  # of the log's history, as far as they were looked at
        if policy is not None:
            self._owned = log.directories.own(policy.directory, "checkpoints")
            _hold_if_possible(self._owned)
        # Newer ones than that which the graph was made of could not be used: they do not count as kept.
        there = [] if policy is None else list_checkpoints(policy.directory)
        self._passed_over = {path for path in there if path.name > _name_of(since)}
        self._time = clock()
        self._beside = policy is not None and policy.beside and forked.SUPPORTED
        self._last: Path | None = None
        self._newest = next((path for path in there if path.name == _name_of(since)), None)
        self._unhashed = 0
        self.failure: str | None = None  # why the last attempt wrote none; None if it did
        self._child: ForkedProcess | None = None
        self._waiting: Background | None = None

    def until(self, seq: int) -> float | None:
        """Seconds until a checkpoint is due, 0 if it is, None if only an event can make it so."""
        policy, since = self._policy, seq - self._tried
        if policy is None or self._child is not None:
            return None
        if self.find_loss() is not None:
            return max(0.0, self._time + _LOSS_SECONDS - self._clock()) if self._tried_again else 0.0
        if not since:
            return None
        if policy.every_events is not None and since >= policy.every_events:
            return 0.0
        if policy.every_seconds is None:
            return None
        return max(0.0, self._time + policy.every_seconds - self._clock())

    @property
    def directory(self) -> Path | None:
        """Where they are; None if none are written."""
        return None if self._policy is None else self._policy.directory

    def newest_age(self) -> float | None:
        """The seconds since the newest usable checkpoint was written, by the machine's clock, so that a start
        knows it too; None if there is none."""
        try:
            return None if self._newest is None else max(0.0, time.time() - self._newest.stat().st_mtime)
        except OSError:  # it was removed, or cannot be looked at
            return None

    def find_loss(self) -> str | None:
        """What somebody has removed, None if nothing: another checkpoint is due then."""
        try:
            lost = self._newest is not None and not self._newest.exists()
        except OSError:  # it cannot be looked at now
            lost = False
        if not lost:
            return None
        return (
            f"{self._newest} must be there, as it was written, for the next start to go on from, but it was "
            "removed or moved: another one is written in its place"
        )

    def write(self, seq: int, *, beside: bool = False) -> None:
        """Writes a checkpoint if there were events since the last, and removes those that are too many.

        beside: returns as soon as a child is at it, where that is possible.
        """
        policy = self._policy
        self.end()
        lost = self.find_loss() is not None
        if policy is None or (seq == self._written and not lost):
            return
        path = policy.directory / _name_of(seq)
        writing = _Writing(seq, path, name_partial(path), self._clock(), self._last, self._unhashed)
        self._tried, self._tried_again = seq, lost
        try:
            assert self._owned is not None
            self._owned.hold()
            if is_foreign(self._log, path):
                raise LogError(f"{path} is of another log, and stays: move it away")
            for leftover in policy.directory.glob("checkpoint-*.partial"):
                leftover.unlink()  # of a process that was killed while it wrote
            if not (beside and self._beside and self._begin(writing)):
                states = {name: save() for name, save in self._parts(seq).items()}
                self._save(writing, states, lambda: None)
                self._finish(writing)
        except Exception as error:
            # Whatever it is, of a view's `state` too: the log still has everything. Go on, and try again when
            # the next one is due.
            self._fail(writing, explain(error))
        finally:
            self._time = self._clock()
            self._statistics.checkpoint_pause_seconds.record(self._time - writing.began)

    def end(self) -> None:
        """Ends the child that writes, if there is one, and returns when it is gone."""
        begun, waiting = self._child, self._waiting
        if begun is not None and waiting is not None:
            begun.end()
            waiting.join()

    def _begin(self, writing: _Writing) -> bool:
        """Whether a child writes it now."""
        with self._graph.writer:
            for view in self._views.values():
                view.prepare_fork()
            parts = self._parts(writing.seq)
            taken = {name: save() for name, save in parts.items() if not self._is_forkable(name)}

            def work(alive: Callable[[], None]) -> None:
                states: dict[str, State | None] = {}
                for name, save in parts.items():
                    states[name] = taken[name] if name in taken else save()
                    alive()
                self._save(writing, states, alive)

            try:
                with self._readers:
                    begun = ForkedProcess(self._graph, work)
            except OSError as error:
                _logger.warning("the loop writes the checkpoint at event %d itself: %s", writing.seq, error)
                return False
        waiting = Background(partial(self._wait, begun, writing), "livegnn-checkpoint")
        self._child, self._waiting = begun, waiting
        try:
            waiting.start()
        except RuntimeError as error:  # the system starts no more threads
            self._child = None
            begun.end()
            begun.wait(PATIENCE)
            raise OSError(str(error)) from error
        return True

    def _parts(self, seq: int) -> dict[str, Callable[[], State | None]]:
        """What makes each section."""
        views = {name: partial(_state_of, view) for name, view in self._views.items()}
        return {
            "graph": self._graph.state,
            **views,
            "log": lambda: history_state(self._log, seq),
        }

    def _is_forkable(self, part: str) -> bool:
        if part == "log":  # a connection
            return False
        return self._graph.forkable if part == "graph" else self._views[part].forkable

    def _wait(self, begun: ForkedProcess, writing: _Writing) -> None:
        """Names what the child has written; in a thread of its own."""
        try:
            reason = begun.wait(PATIENCE)
            if begun.stuck:
                self._beside = False
                reason = f"{reason}; the loop writes the next ones itself"
            if reason is None:
                self._finish(writing)
            elif not begun.ended:
                self._fail(writing, reason)
        except Exception as error:
            self._fail(writing, explain(error))
        finally:
            if begun.ended:
                _remove(writing.partial)
            else:
                _core.join_huge_pages()
            self._time, self._child = self._clock(), None
            self._log.wake()  # for another may be due

    def _save(self, writing: _Writing, states: Mapping[str, State | None], alive: Callable[[], None]) -> None:
        kept = {name: state for name, state in states.items() if state is not None}
        with write_partial(writing.partial, writing.path, private=True) as file:
            flushed = 0

            def flush_some() -> None:
                nonlocal flushed
                if file.tell() - flushed >= _AT_ONCE:
                    flushed = file.tell()
                    file.flush()
                    os.fsync(file.fileno())
                alive()

            if not writing.unhashed and self._may_share(kept):
                checkpoint.write_shared_to(
                    file, kept, writing.seq, after=self._before(writing), on_part=flush_some
                )
            else:
                checkpoint.write_to(file, kept, writing.seq, on_part=flush_some)

    def _may_share(self, states: Mapping[str, State]) -> bool:
        """Whether this checkpoint, or one after it, may take blocks from another."""
        assert self._policy is not None
        size = sum(array.nbytes for state in states.values() for array in state.arrays.values())
        return self._policy.full_every > 1 and size >= SMALL

    def _before(self, writing: _Writing) -> Path | None:
        """The checkpoint from which this one takes blocks, if it may."""
        assert self._policy is not None
        after = writing.after
        return after if after is not None and may_follow(after, self._policy.full_every) else None

    def _finish(self, writing: _Writing) -> None:
        assert self._policy is not None
        assert self._owned is not None
        self._owned.hold()  # somebody may have given the directory to another log meanwhile
        self._log.sync()
        size = writing.partial.stat().st_size
        put_in_place(writing.partial, writing.path)
        self._written = writing.seq
        self._unhashed, self._last = self._count_unhashed(writing), writing.path
        self._newest = writing.path
        self._passed_over.discard(writing.path)
        self._own.add(writing.path)
        foreign = find_foreign(self._log, self._policy.directory, self._own)
        self._own = {path for path in list_checkpoints(self._policy.directory) if path not in foreign}
        oldest = remove_old(self._policy.directory, self._policy.keep, self._passed_over, foreign)
        self.failure = None
        seconds = self._clock() - writing.began
        self._statistics.checkpoint_seconds.record(seconds)
        told = {"event": writing.seq, "seconds": seconds, "bytes": size}
        _logger.info("a checkpoint at event %d: %d bytes in %.2f s", writing.seq, size, seconds, extra=told)
        if self._policy.trim_log and oldest is not None:
            _trim_behind(oldest, self._log, self._needed_after())

    def _count_unhashed(self, writing: _Writing) -> int:
        """How many of the next checkpoints share nothing: some, after one that found too little unchanged.

        The hashes of a file that shares nothing are work for nothing.
        """
        assert self._policy is not None
        if writing.unhashed:
            return writing.unhashed - 1
        tried = self._before(writing) is not None
        return self._policy.full_every if tried and not checkpoint.read_contents(writing.path).files else 0

    def _fail(self, writing: _Writing, reason: str) -> None:
        _logger.error("no checkpoint at event %d: %s", writing.seq, reason)
        self.failure = f"no checkpoint at event {writing.seq}: {reason}"
        self._statistics.failed_checkpoint_seconds.record(self._clock() - writing.began)
        _remove(writing.partial)


def _hold_if_possible(owned: OwnedDirectory) -> None:
    """A disk that takes nothing now may do so later, when the first checkpoint is due."""
    try:
        owned.hold()
    except OSError as error:
        _logger.warning("no checkpoint can be written to %s now: %s", owned.directory, error)


def _remove(path: Path) -> None:
    with suppress(OSError):  # then the next checkpoint does
        path.unlink(missing_ok=True)


def _state_of(view: View) -> State | None:
    state = view.state()
    if state is not None and not isinstance(state, State):
        raise InputError(f"state of the view {view.name!r} must return a State or None, got {state!r}")
    return state
