"""A Kafka topic as a source of events: each message is one entry of the log.

Threads: one reads, decodes and appends. It reads further messages only after the log has stored the previous
ones, and waits while the log cannot store them. Other threads may read its state, and stop it.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, groupby, islice
from typing import Final, NamedTuple, TypeAlias, TypeVar, get_args

from livegnn.connectors.kafka_partitions import Arrived, Begin, Partitions, Unreachable, check_place
from livegnn.errors import InputError, LiveGNNError, LogError, OverloadedError, SourceError, as_value
from livegnn.events import Events, json_lines
from livegnn.events.builder import JoinedEvents, cut, from_chunks
from livegnn.log import Appended, Origin, Outcomes
from livegnn.log.idempotency import check_origin
from livegnn.log.kafka.connection import Connection, Settings
from livegnn.runtime import Runtime
from livegnn.wording import quoted

__all__ = ["Begin", "Decode", "KafkaTopic", "check_skip", "decode_lines", "decode_safely"]

Decode: TypeAlias = Callable[[Sequence[bytes | None]], Sequence[Events | InputError]]
"""The events of each message, none for one without a value, or what is wrong with it. It may raise
`Unreachable`, and is called again later."""

Join: TypeAlias = Callable[[Sequence[bytes | None]], tuple[Events, list[int]] | None]
"""The events of all messages together, and the number of events of each; None if they must be decoded one by
one. It may raise `Unreachable`."""

_Found = TypeVar("_Found")
_logger = logging.getLogger(__name__)

_POLL_SECONDS: Final = 0.1
_LOOK_SECONDS: Final = 5.0  # between two requests for the ends of the partitions
_RETRY_SECONDS: Final = 1.0
_MOST_BYTES: Final = 1 << 19  # in one append, or one message
_LARGEST: Final = 64 << 20


class _Run(NamedTuple):
    """Neighbouring messages of one partition as one entry. messages: their number."""

    events: JoinedEvents
    origin: Origin
    messages: int


class KafkaTopic:
    """Reads all partitions of `topic`, at the brokers `servers`, into the log of `runtime`.

    A message is one or several events as JSON lines (docs/events.md), or as `decode` reads messages; one
    without a value, which a compacted topic has where a key was deleted, is counted in `tombstones` and
    passed over. join: a faster reader, of messages that are all of one form. name: of the source, the topic's
    by default; the log keeps under it how far the topic was read. begin: where to begin if it was never read.
    settings: further ones of librdkafka, as for encryption.
    Raises InputError for wrong arguments.
    """

    def __init__(
        self,
        runtime: Runtime,
        servers: str,
        topic: str,
        *,
        name: str | None = None,
        begin: Begin = "first",
        settings: Settings | None = None,
        decode: "Decode | None" = None,
        join: "Join | None" = None,
    ) -> None:
        self._decode = decode_lines if decode is None else decode
        self._join = join
        self.name: str = topic if name is None else name
        check_origin((self.name, 0, 0))
        if begin not in get_args(Begin):
            raise InputError(f"begin must be 'first' or 'last', got {begin!r}")
        self._failure: BaseException | None = None
        self.waits: str | None = None
        self.stored = self.bad = self.tombstones = 0
        self.reads = (servers, topic)
        """The brokers and the topic."""
        self._runtime = runtime
        connection = Connection(servers, topic, settings or {}, "the topic", SourceError)
        self._partitions = Partitions(connection, runtime.log, self.name, begin)
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._looked = 0.0

    @property
    def failure(self) -> BaseException | None:
        """The error that ended it, or the error that the topic is missing; None otherwise."""
        return self._failure or self._partitions.missing

    @property
    def lag(self) -> Mapping[int, int]:
        """The number of unread messages by partition, at the last request to the brokers."""
        return self._partitions.lag

    def start(self) -> None:
        """Reads in a thread of its own until `stop`. If no broker answers, it waits for one.

        Raises SourceError if the topic is missing, is another one of the same name, is another source's in
        this log, or has lost messages that were not read; InputError if a source of this name, or of this
        topic, reads already.
        """
        if self._thread is not None or self._stopping.is_set():
            raise LiveGNNError("a source can be started once: make another one")
        if self.name in self._runtime.sources:
            raise InputError(f"the sources of a runtime must have different names, got {self.name!r} again")
        for other in self._runtime.sources.values():
            if isinstance(other, KafkaTopic) and other.reads == self.reads:
                raise InputError(
                    f"the topic {quoted(self.reads[1])} at {self.reads[0]} must be read by one source, got "
                    f"{quoted(self.name)} beside {quoted(other.name)}: the log would have each message twice"
                )
        try:
            self._partitions.open()
        except Unreachable as error:
            self._wait(str(error), 0)
        except BaseException:
            self.stop()
            raise
        self._runtime.sources[self.name] = self
        self._thread = threading.Thread(target=self._run, name=f"livegnn-source-{self.name}", daemon=True)
        self._thread.start()
        told = {"source": self.name}
        text = "the source %s has started: it reads the topic %s at %s"
        _logger.info(text, self.name, *reversed(self.reads), extra=told)

    def stop(self) -> None:
        """Ends it after what it is appending; again does nothing."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        if self._thread is None:
            self._partitions.close()
            return
        self._thread.join()
        if self._runtime.sources.get(self.name) is self:
            del self._runtime.sources[self.name]

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    self._read_on()
                except Unreachable as error:
                    self._wait(str(error), _RETRY_SECONDS)
        except BaseException as error:
            known = isinstance(error, LiveGNNError)
            told = {"source": self.name}
            _logger.error("the source %s failed: %s", self.name, error, exc_info=not known, extra=told)
            self._failure = error
            self._watch_unread()
        finally:
            self._partitions.close()

    def _watch_unread(self) -> None:
        """Counts, after a failure, the messages that are not read any more, until `stop`."""
        while not self._stopping.is_set():
            with contextlib.suppress(Exception):  # then the count stays as it is
                self._partitions.count_unread()
            self._stopping.wait(_LOOK_SECONDS)

    def _read_on(self) -> None:
        """Runs one round: appends all arrived messages to the log."""
        if not self._partitions.opened:
            self._partitions.open()
            self._go_on()
        self._look()
        for group in _grouped(self._partitions.poll(_POLL_SECONDS)):
            if not self._store(group):
                return  # later messages must not be stored either
        self._partitions.note_lag()

    def _look(self) -> None:
        """Requests the ends of the partitions, if it is time to."""
        now = time.monotonic()
        if now > self._looked + (_LOOK_SECONDS if self._partitions.found else _RETRY_SECONDS):
            self._partitions.look()
            self._looked = now
            self._go_on()

    def _store(self, group: Sequence[Arrived]) -> bool:
        """Appends messages, and waits until the log stores them; returns False if it is stopped before."""
        # Messages of several partitions arrive mixed. Partitions have no order among them, so those of each
        # are put together: otherwise each change of partition would cost an append of its own.
        messages = sorted((one for one in group if not one.is_end), key=lambda one: one.partition)
        runs = [list(run) for _, run in groupby(messages, lambda one: one.partition)]
        joined, others = self._join_runs(runs)
        if joined and not self._insist(partial(self._append_joined, joined)):
            return False
        if others:
            append = self._one_by_one(others)
            if append is None or not self._insist(append):
                return False
        for arrived in group:
            self._partitions.note(arrived)
        return True

    def _insist(self, append: Callable[[], bool]) -> bool:
        """Repeats `append` until it is true; returns False if the source is stopped before."""
        while not append():
            if self._stopping.is_set():
                return False
            with contextlib.suppress(Unreachable):  # the log does not depend on the brokers
                self._look()
        return True

    def _one_by_one(self, messages: Sequence[Arrived]) -> "Callable[[], bool] | None":
        """Appends messages, each as it is; None if it is stopped before they are read."""
        entries = self._read(decode_safely, self._decode, [one.value for one in messages])
        if entries is None:
            return None
        origins = [Origin(self.name, one.partition, one.offset, one.value) for one in messages]
        return partial(self._append, entries, origins)

    def _join_runs(self, runs: Sequence[Sequence[Arrived]]) -> tuple[list[_Run], list[Arrived]]:
        """Runs of messages, each of one partition, as an entry each; and the messages that no entry has."""
        joined = self._joined(runs)
        if joined is None and len(runs) > 1:  # a run may have a message that only `decode` can read
            each = [(run, self._joined([run])) for run in runs]
            others = [one for run, found in each if found is None for one in run]
            return [one for _, found in each for one in found or ()], others
        return joined or [], [] if joined else [one for run in runs for one in run]

    def _joined(self, runs: Sequence[Sequence[Arrived]]) -> list[_Run] | None:
        """Each run as one entry. All are read and checked together: some messages take hardly longer than
        one. None if they cannot be joined, or if the log may have some of them."""
        messages = [one for run in runs for one in run]
        if self._join is None or len(messages) < 2 or not self._runtime.log.takes_joined:
            return None
        if any(self._may_be_stored(run[0]) for run in runs):
            return None
        joined = self._read(self._join, [one.value for one in messages])
        if joined is None:
            return None
        try:
            checked = self._runtime.check(joined[0])
        except InputError:
            return None
        left = iter(joined[1])
        sizes = [[size for size in islice(left, len(run)) if size] for run in runs]
        if not all(sizes):
            return None
        parts = cut(checked, accumulate(map(sum, sizes)))
        return [
            _Run(
                JoinedEvents(part, checked.schema, of),
                Origin(self.name, run[-1].partition, run[-1].offset),
                len(run),
            )
            for run, part, of in zip(runs, parts, sizes, strict=True)
        ]

    def _may_be_stored(self, message: Arrived) -> bool:
        stored = self._runtime.log.position(self.name, message.partition)
        return stored is not None and stored >= message.offset

    def _read(self, read: "Callable[..., _Found]", *values: object) -> "_Found | None":
        """Waits for a registry that reading needs; None if it is stopped before."""
        while True:
            try:
                return read(*values)
            except Unreachable as error:
                self._wait(str(error), _RETRY_SECONDS)
            if self._stopping.is_set():
                return None

    def _append_joined(self, runs: Sequence[_Run]) -> bool:
        """Whether the log has taken them; waits for a while if it has not."""
        append = self._runtime.append_all
        outcomes = self._attempt(
            lambda: append([one.events for one in runs], None, [one.origin for one in runs])
        )
        if outcomes is None:
            return False
        for outcome, run in zip(outcomes, runs, strict=True):
            assert isinstance(outcome, Appended)  # the events were checked
            self.stored += 0 if outcome.again else run.messages
        return True

    def _append(self, entries: Sequence[Events | InputError], origins: Sequence[Origin]) -> bool:
        """Whether the log has taken them; waits for a while if it has not."""
        outcomes = self._attempt(partial(self._append_all, entries, origins))
        if outcomes is None:
            return False
        self.stored += sum(isinstance(one, InputError) or not one.again for one in outcomes)
        bad = [(at, one) for at, one in enumerate(outcomes) if isinstance(one, InputError)]
        self.bad += len(bad)
        self.tombstones += sum(
            origin.payload is None and isinstance(one, Appended) and not one.again
            for origin, one in zip(origins, outcomes, strict=True)
        )
        if bad:
            at, reason = bad[0]
            _logger.warning(
                "%d bad messages of the source %s, the first in partition %d at offset %d: %s",
                len(bad),
                self.name,
                *origins[at][1:3],
                reason,
            )
        return True

    def _attempt(self, append: "Callable[[], Outcomes]") -> "Outcomes | None":
        """The outcomes; None, after a while, if the log takes nothing."""
        if self._runtime.failure is not None:
            raise SourceError(f"the source {self.name!r} ends with the runtime: {self._runtime.failure}")
        try:
            outcomes = append()
        except OverloadedError as error:
            self._wait(str(error), error.retry_after)
            return None
        except LogError as error:
            self._wait(str(error), _RETRY_SECONDS)
            return None
        self._go_on()
        return outcomes

    def _append_all(self, entries: Sequence[Events | InputError], origins: Sequence[Origin]) -> Outcomes:
        """Calls the runtime's `append_all`; a message that makes it fail unexpectedly is stored as bad."""
        try:
            return self._runtime.append_all(entries, None, origins)
        except LiveGNNError:
            raise
        except Exception as error:
            if len(entries) > 1:  # the stored ones are not stored again
                return [self._append_all([one], [at])[0] for one, at in zip(entries, origins, strict=True)]
            if isinstance(entries[0], InputError):
                raise
            return self._runtime.append_all([_unforeseen(error)], None, origins)

    def _wait(self, reason: str, seconds: float) -> None:
        if self.waits is None:
            _logger.warning("the source %s waits: %s", self.name, reason, extra={"source": self.name})
        self.waits = reason
        self._stopping.wait(seconds)

    def _go_on(self) -> None:
        if self.waits is not None:
            _logger.info("the source %s is back", self.name, extra={"source": self.name})
        self.waits = None


def check_skip(
    servers: str, topic: str, partition: int, offset: int, settings: Settings | None = None
) -> None:
    """Whether `connectors.skip` may let a source of `topic` go on at `offset`. Raises InputError if the topic
    has no such partition or ends before; SourceError if no broker answers. settings: as of `KafkaTopic`.
    """
    check_place(Connection(servers, topic, settings or {}, "the topic", SourceError), partition, offset)


def decode_lines(values: Sequence[bytes | None]) -> list[Events | InputError]:
    """The events of messages that are JSON lines, none for a tombstone, or what is wrong with one."""
    return [_decode_line(one) for one in values]


def _decode_line(value: bytes | None) -> Events | InputError:
    if value is None:
        return Events()
    try:
        return from_chunks(json_lines.decode(value, json_lines.STRANGERS))
    except InputError as error:
        return as_value(error)


def decode_safely(decode: Decode, values: Sequence[bytes | None]) -> Sequence[Events | InputError]:
    """As `decode`; a message that is too large, or makes its reader fail unexpectedly, is bad.

    Raises Unreachable.
    """
    small = [one if len(one or b"") <= _LARGEST else None for one in values]
    try:
        found = decode(small)
    except Unreachable:
        raise
    except Exception as error:
        if len(values) > 1:
            return [decode_safely(decode, [one])[0] for one in values]
        return [_unforeseen(error)]
    return [
        InputError(f"a message must have at most {_LARGEST:,} bytes, got {len(one):,}")
        if one is not None and len(one) > _LARGEST
        else events
        for one, events in zip(values, found, strict=True)
    ]


def _unforeseen(error: Exception) -> InputError:
    """Logs the failure and returns the reason of a bad message, so that later messages are still read."""
    _logger.error("a message makes its reader fail", exc_info=error)
    return InputError(
        f"a message must be events, got one that makes its reader fail: {type(error).__name__}: {error}"
    )


def _grouped(arrived: Iterable[Arrived]) -> Iterator[list[Arrived]]:
    """Yields groups of messages to append together: of limited size, or a single message."""
    group: list[Arrived] = []
    size = 0
    for one in arrived:
        length = len(one.value or b"")
        if group and size + length > _MOST_BYTES:
            yield group
            group, size = [], 0
        group.append(one)
        size += length
    if group:
        yield group
