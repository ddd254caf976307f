"""Checkpoints of a running system: when one is written, its sections, and the process that writes it.

    loop ─► fork, with no reader inside ─► child: states ─► file beside its place
      │                                                        │
      └─► next batch      thread: ◄── written ─────────────────┘ ─► log.sync ─► name ─► remove old ones

A checkpoint has a section for the graph, one that identifies the log, and one for each view, under the view's
name. A view may write files beside it, which are whole before the checkpoint gets its name. The child has the
memory as it was between two batches, copied on write, so the loop stops only for the fork. Parts that a fork
does not copy (`View.forkable`) are saved before it.

Invariants: a file gets its name only when the log is synced; one checkpoint is written at a time; the
directory belongs to the log, and files of another history are not removed.
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
from livegnn.runtime.checkpoint_files import (
    list_beside,
    list_chains,
    list_checkpoints,
    may_follow,
    remove_checkpoint,
    remove_leftovers,
    remove_old,
    seq_of,
)
from livegnn.runtime.forked import ForkedProcess, explain
from livegnn.runtime.history import find_foreign, history_state, is_foreign
from livegnn.runtime.statistics import Statistics
from livegnn.types import State

_logger = logging.getLogger(__name__)

PATIENCE = 600.0
"""The most seconds that a process may be silent while it saves one part, or writes some megabytes."""

SMALL = 64 << 20
"""Bytes. Smaller states are always written whole: they share no blocks."""

_LOSS_SECONDS = 1.0  # between two attempts to replace a lost checkpoint

_AT_ONCE = 8 << 20
"""Bytes between two flushes. Much larger ones would delay flushes of the log, and so appends."""


@dataclass(frozen=True)
class CheckpointPolicy:
    """The directory of checkpoints, when one is due (None: never for that reason), and how many are kept.

    One more is written on a clean shutdown. A checkpoint is due only if there were events since the last one;
    events that a restart has replayed count. keep: the number of kept chains, which share no blocks with each
    other. beside: whether a forked process writes checkpoints while the loop continues (on Linux); else the
    loop writes them, and applies no events meanwhile. trim_log: as soon as there are `keep` chains, the log
    is trimmed behind the oldest. full_every: at least one in `full_every` checkpoints is complete alone, and
    so is the first after a start; the others take unchanged blocks from earlier ones. With 1, each is
    complete.
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
    """Returns the file name. Names sort in the order of the sequence numbers."""
    return f"checkpoint-{seq:020d}.lgck"


def oldest_kept(policy: CheckpointPolicy, log: ReadableLog) -> int | None:
    """Returns the number of the oldest kept checkpoint of `log`; None until there are `keep` chains."""
    kept = list_chains(policy.directory, find_foreign(log, policy.directory))[: policy.keep]
    return min(seq_of(chain[-1]) for chain in kept) if len(kept) == policy.keep else None


def _trim_behind(oldest: Path, log: Log, needed_after: int | None) -> None:
    """Trims the log behind a checkpoint. A failure is logged, and the next checkpoint tries again."""
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
    """The previous checkpoint that this process has written."""
    unhashed: int
    """The number of checkpoints, from this one on, that share no blocks."""


class Checkpoints:
    """The policy, applied to one graph and its views.

    since: the event of the checkpoint that the graph was restored from, 0 if there was none. readers: the
    lock of threads that read graph and views without `Graph.writer`. needed_after: returns the event after
    which others need the log; None if nothing needs it.
    Thread safety: none, the runtime's loop owns it. While a child writes, a separate thread waits for it.
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
        self._policy, self._log, self._graph, self._views = policy, log, graph, views  # the views may change
        self._statistics, self._clock, self._readers = statistics, clock, readers
        self._written = self._tried = since
        self._tried_again = False  # whether the last attempt was to replace a lost checkpoint
        self._owned: OwnedDirectory | None = None
        self._own: set[Path] = set()  # known to be of the log's history
        if policy is not None:
            self._owned = log.directories.own(policy.directory, "checkpoints")
            _hold_if_possible(self._owned)
        # Checkpoints newer than the restored one could not be used: they do not count as kept.
        there = [] if policy is None else list_checkpoints(policy.directory)
        self._passed_over = {path for path in there if path.name > _name_of(since)}
        self._time = clock()
        self._beside = policy is not None and policy.beside and forked.SUPPORTED
        self._last: Path | None = None
        self._newest = next((path for path in there if path.name == _name_of(since)), None)
        self._needed = _files_of(self._newest)
        self._unhashed = 0
        self.failure: str | None = None  # why the last attempt wrote no checkpoint; None if it wrote one
        self._child: ForkedProcess | None = None
        self._waiting: Background | None = None

    def until(self, seq: int) -> float | None:
        """Returns seconds until a checkpoint is due, 0 if one is, None if only an event can make one due."""
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
        """The directory of the checkpoints; None if none are written."""
        return None if self._policy is None else self._policy.directory

    def newest_age(self) -> float | None:
        """The seconds since the newest usable checkpoint was written, by the machine's clock, so that a start
        knows it too; None if there is none."""
        try:
            if self._newest is None or self.find_loss() is not None:
                return None
            return max(0.0, time.time() - self._newest.stat().st_mtime)
        except OSError:  # it was removed, or cannot be looked at
            return None

    def find_loss(self) -> str | None:
        """Returns a message if a file of the newest checkpoint was removed, so that another one is due; else
        None."""
        try:
            lost = next((path for path in self._needed if not path.exists()), None)
        except OSError:  # it cannot be looked at now
            lost = None
        if lost is None:
            return None
        return (
            f"{lost} must be there, as it was written, for the next start to go on from, but it was "
            "removed or moved: another one is written in its place"
        )

    def write(self, seq: int, *, beside: bool = False) -> None:
        """Writes a checkpoint if there were events since the last or it was lost, and removes old ones.

        beside: returns as soon as a child writes it, where that is possible.
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
            remove_leftovers(policy.directory)
            if not (beside and self._beside and self._begin(writing)):
                states = {name: save() for name, save in self._parts(writing).items()}
                self._save(writing, states, lambda: None)
                self._finish(writing)
        except Exception as error:
            # Any error, also of a view's `state`: the log still has everything. Continue, and try again when
            # the next one is due.
            self._fail(writing, explain(error))
        finally:
            self._time = self._clock()
            self._statistics.checkpoint_pause_seconds.record(self._time - writing.began)

    def end(self) -> None:
        """Ends the child that writes, if there is one, and returns when it has ended."""
        begun, waiting = self._child, self._waiting
        if begun is not None and waiting is not None:
            begun.end()
            waiting.join()

    def _begin(self, writing: _Writing) -> bool:
        """Forks a child that writes the checkpoint; returns False if the system forks none."""
        with self._graph.writer:
            for view in self._views.values():
                view.prepare_fork()
            parts = self._parts(writing)
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

    def _parts(self, writing: _Writing) -> dict[str, Callable[[], State | None]]:
        """Returns the function that makes each section."""
        views = {name: partial(_state_of, view, writing.path) for name, view in self._views.items()}
        return {
            "graph": self._graph.state,
            **views,
            "log": lambda: history_state(self._log, writing.seq),
        }

    def _is_forkable(self, part: str) -> bool:
        if part == "log":  # a connection
            return False
        return self._graph.forkable if part == "graph" else self._views[part].forkable

    def _wait(self, begun: ForkedProcess, writing: _Writing) -> None:
        """Waits for the child and names the file that it has written; runs in a separate thread."""
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
            self._log.wake()  # another one may be due

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
        """Returns whether this checkpoint, or one after it, may take blocks from another."""
        assert self._policy is not None
        size = sum(array.nbytes for state in states.values() for array in state.arrays.values())
        return self._policy.full_every > 1 and size >= SMALL

    def _before(self, writing: _Writing) -> Path | None:
        """Returns the checkpoint from which this one takes blocks, if it may."""
        assert self._policy is not None
        after = writing.after
        return after if after is not None and may_follow(after, self._policy.full_every) else None

    def _finish(self, writing: _Writing) -> None:
        assert self._policy is not None
        assert self._owned is not None
        self._owned.hold()  # the directory may belong to another log by now
        self._log.sync()
        size = sum(file.stat().st_size for file in (writing.partial, *list_beside(writing.path)))
        put_in_place(writing.partial, writing.path)
        self._written = writing.seq
        self._unhashed, self._last = self._count_unhashed(writing), writing.path
        self._newest, self._needed = writing.path, _files_of(writing.path)
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
        """Returns how many of the next checkpoints share nothing: some, after one with too little unchanged.

        Hashes of a file that shares nothing are useless work.
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
        with suppress(OSError):
            if not writing.path.exists():
                remove_checkpoint(writing.path)


def _files_of(path: Path | None) -> list[Path]:
    """A checkpoint and the files that views have written for it."""
    return [] if path is None else [path, *list_beside(path)]


def _hold_if_possible(owned: OwnedDirectory) -> None:
    """Tries to hold the directory. A disk that cannot be written to now may work when a checkpoint is due."""
    try:
        owned.hold()
    except OSError as error:
        _logger.warning("no checkpoint can be written to %s now: %s", owned.directory, error)


def _remove(path: Path) -> None:
    with suppress(OSError):  # the next checkpoint removes it then
        path.unlink(missing_ok=True)


def _state_of(view: View, path: Path) -> State | None:
    state = view.save_beside(path)
    if state is not None and not isinstance(state, State):
        raise InputError(f"state of the view {view.name!r} must return a State or None, got {state!r}")
    return state
