"""The partitions of a Kafka topic that are read: where each continues, its new and its unread messages.

The log alone stores the positions of partitions. When a source is read for the first time, the first position
is stored in the log, and the log is bound to the topic. So if a source was read before, a partition without a
position was empty then, or was added since: it begins with its first message. The log also stores the topic's
id, because offsets do not identify a topic that was deleted and made again under the same name. A client
silently continues in such a topic: it needs no new connection, no other epoch of a leader, and no offset out
of range. So the id is requested after messages have arrived, and before they are stored; in a stream of
single messages at most every 20 ms, for all messages until then.

Thread safety: one thread calls; any thread may read `lag`.
"""

import math
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final, Literal, NamedTuple, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection, TopicPartition, Uuid
from confluent_kafka import Message as KafkaMessage
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from livegnn.errors import InputError, SourceError
from livegnn.events import Events
from livegnn.log import Origin
from livegnn.log.kafka.connection import Connection, passes, read_bounds

Begin = Literal["first", "last"]
"""The beginning of a topic that was never read: its first message, or the offset after its last."""

_FIRST: Final = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_END: Final = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_NO_ID: Final = str(Uuid(0, 0))  # of brokers that give topics none
_SECONDS: Final = 5.0  # that an answer of the broker may take
_MOST_AT_ONCE: Final = 1000
ASK_EVERY_SECONDS: Final = 0.02
"""The shortest time between two requests for the topic's id, if all arrived messages are taken at once."""
_FINAL: Final = {
    KafkaError._AUTHENTICATION,
    KafkaError._INVALID_ARG,
    KafkaError._UNSUPPORTED_FEATURE,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.UNSUPPORTED_VERSION,
}
"""Errors that a broker repeats at every request."""
_BEGINNING: Final = threading.Lock()  # of two sources of one topic that begin at once, one is refused
_SKIP: Final = "livegnn log skip DEPLOYMENT.TOML {source} {partition} {offset}"
_MISSING_SECONDS: Final = 30.0  # after which a topic that a broker does not know is taken for deleted


class Unreachable(SourceError):
    """No broker, or no registry of schemas, answers. One may answer later."""


class Arrived(NamedTuple):
    """A message of a partition; or its end, with the offset that the next message will have at least."""

    partition: int
    offset: int
    value: bytes | None
    is_end: bool = False


class Positions(Protocol):
    """A store of how far topics were read: a log; or another store, of one topic alone."""

    def bound(self) -> Mapping[str, str]:
        """As `Log.bound`."""

    def bind(self, properties: Mapping[str, str], /) -> None:
        """As `Log.bind`."""

    def position(self, source: str, partition: int, /) -> int | None:
        """As `Log.position`."""

    def append_all(
        self, entries: Sequence[Events], keys: None, origins: Sequence[Origin], /
    ) -> Sequence[object]:
        """As `Log.append_all`, of entries without events."""


class Partitions:
    """All partitions of a topic, from where `log` says that the source `name` was read.

    skip: the way to go on after messages that were deleted, for people, with `{source}`, `{partition}` and
    `{offset}`. lag: how many messages stand unread, by partition, when it was last looked. missing: that the
    topic was not there then, and when it was looked before.
    """

    def __init__(
        self, connection: Connection, log: Positions, name: str, begin: Begin, skip: str = _SKIP
    ) -> None:
        self.lag: Mapping[int, int] = {}
        self._connection, self._log, self._name, self._begin = connection, log, name, begin
        self._skip = skip
        self._next: dict[int, int] = {}
        self._ends: Mapping[int, int] = {}
        self._stopped: set[int] = set()  # partitions that the client does not read on by itself
        self.missing: SourceError | None = None
        self._missing_since: float | None = None
        self._id = ""  # of the topic that is read
        self._unchecked: list[Arrived] = []  # they may be of another topic
        self._asked = -math.inf  # the time of the last request for the id
        self._consumer: Consumer = connection.consumer()
        self._admin: AdminClient = connection.admin()

    @property
    def opened(self) -> bool:
        """Whether it is known where to go on."""
        return bool(self._next)

    @property
    def found(self) -> bool:
        """Whether the topic was there when it was last looked."""
        return self._missing_since is None

    def open(self) -> None:
        """Begins to read. Raises Unreachable, or SourceError if what was to be read is not there."""
        known = self._log.bound().get(f"source/{self._name}") or None
        if known not in (None, self._connection.topic):
            raise SourceError(
                f"the source {self._name!r} must read the topic {known!r}, of which the log knows how far it "
                f"was read, got {self._connection.topic!r}: give another topic a source of another name"
            )
        partitions = self._find()
        if partitions is None:
            raise SourceError(
                f"{self._connection.name} must be there before it is read, got no such topic: make it, or "
                "correct its name"
            )
        found = self._find_id()
        self._check_id(self._known_id(), found)
        lows = self._ask(partitions, _FIRST)
        ends = self._ask(partitions, _END)
        with _BEGINNING:
            self._check_alone(found)
            if known is None:
                self._begin_at({p: lows[p] if self._begin == "first" else ends[p] for p in partitions}, found)
        self._add(lows, ends)
        if not self._known_id():
            self._log.bind({self._id_property: found})  # of a log that was written before this
        self._id = self._known_id()

    def _begin_at(self, places: Mapping[int, int], topic_id: str) -> None:
        """Notes where a source begins that was never read."""
        new = [(p, at) for p, at in places.items() if at and self._log.position(self._name, p) is None]
        origins = [Origin(self._name, partition, at - 1) for partition, at in new]
        self._log.append_all([Events()] * len(origins), None, origins)
        self._log.bind({f"source/{self._name}": self._connection.topic, self._id_property: topic_id})

    def _add(self, lows: Mapping[int, int], ends: Mapping[int, int]) -> None:
        """Reads further partitions."""
        begins = {}
        for partition, low in lows.items():
            position = self._log.position(self._name, partition)
            begins[partition] = 0 if position is None else position + 1
            self._check(partition, begins[partition], low, ends[partition])
        with self._connection.errors("read"):
            self._consumer.incremental_assign(
                [TopicPartition(self._connection.topic, p, at) for p, at in begins.items()]
            )
        self._next |= begins
        self._note_ends({**self._ends, **ends})

    @property
    def _id_property(self) -> str:
        return f"topic id/{self._name}"

    def _known_id(self) -> str:
        return self._log.bound().get(self._id_property, "")

    def _find_id(self) -> str:
        """The id that the brokers gave the topic when it was made, empty if they give none."""
        topic = self._connection.topic
        with self._reaching():
            asked = self._admin.describe_topics(TopicCollection([topic]), request_timeout=_SECONDS)
            found = str(self._connection.result(asked[topic]).topic_id)
        return "" if found == _NO_ID else found

    def _check_id(self, known: str, found: str) -> None:
        """Raises SourceError for another topic of the same name: what was read says nothing of it."""
        if known and found and known != found:
            raise SourceError(
                f"{self._connection.name} must be the topic with the id {known}, which was read, got one "
                f"with the id {found}: it was deleted and made again. The log has "
                f"{self._describe_stored()}, and nothing of the latter. Restore it; or give the topic that "
                "is there a source of another name; or, if it has the same messages at the same offsets, let "
                f"the log forget it: in Python, log.bind({{{self._id_property!r}: ''}}, replace=True)"
            )

    def _check_same(self) -> None:
        """Raises SourceError if the topic is not the one that is read any more."""
        self._check_id(self._id, self._find_id())
        self._asked = time.monotonic()

    def _describe_stored(self) -> str:
        """Describes in words how far the topic was read."""
        places = []
        partition = 0
        while partition in self._next or self._log.position(self._name, partition) is not None:
            position = self._log.position(self._name, partition)
            if position is not None:
                places.append(f"up to offset {position} of partition {partition}")
            partition += 1
        return f"the former {', '.join(places)}" if places else "nothing of the former"

    def _check_alone(self, found: str) -> None:
        """Raises SourceError if another source of this log reads the topic: it would be stored twice."""
        bound = self._log.bound()
        for name, known in bound.items():
            kind, _, other = name.partition("/")
            if kind == "topic id" and found and known == found and other != self._name:
                forgotten = {f"source/{other}": "", name: ""}
                raise SourceError(
                    f"{self._connection.name} must be read only by the source {other!r} of this log, got "
                    f"{self._name!r} too: the log would have each message twice. Keep the name {other!r}; "
                    "or, to read the topic again under another name, remove the old name from the log: in "
                    f"Python, log.bind({forgotten}, replace=True)"
                )

    def _check(self, partition: int, at: int, low: int, end: int) -> None:
        if at < low:
            raise SourceError(
                f"{self._connection.name} must have the messages of partition {partition} from {at} on, got "
                f"those from {low} on: the others were deleted before they were read. Restore them; or, to "
                f"go on without them: {self._skip.format(source=self._name, partition=partition, offset=low)}"
            )
        if at > end:
            raise SourceError(
                f"{self._connection.name} must have {at} messages in partition {partition}, as many as were "
                f"read, got {end}: it is another topic of the same name, or has lost messages. Restore it; "
                "or give the topic that is there a source of another name"
            )

    def look(self) -> None:
        """Requests the ends of the partitions, and reads new ones. Raises Unreachable or SourceError."""
        partitions = self._find()
        if partitions is None:
            self._note_missing()
            return
        self._missing_since = self.missing = None
        self._check_same()
        ends = self._ask(partitions, _END)
        new = [partition for partition in partitions if partition not in self._next]
        if new:
            self._add(self._ask(new, _FIRST), {p: ends[p] for p in new})
        self._note_ends(ends)

    def _note_missing(self) -> None:
        """Brokers that have just started may not know a topic yet, so one answer says nothing."""
        now = time.monotonic()
        if self._missing_since is None:
            self._missing_since = now
            return
        error = SourceError(
            f"{self._connection.name} must be there, got no such topic for "
            f"{now - self._missing_since:.0f} s: it was deleted, if it is not there again within "
            f"{_MISSING_SECONDS:.0f} s"
        )
        if now - self._missing_since > _MISSING_SECONDS:
            raise error
        self.missing = error

    def poll(self, timeout: float) -> list[Arrived]:
        """Returns arrived messages; waits for at most `timeout` seconds for the first.

        Raises SourceError; arrived messages are then lost, and this object is of no more use. Raises
        Unreachable if the topic's id cannot be read: the next call then returns the arrived messages.
        """
        if not self._unchecked:
            self._go_on()
            with self._connection.errors("read"):
                first = self._consumer.poll(timeout)
                early = max(0.0, self._asked + ASK_EVERY_SECONDS - time.monotonic())
                more = [] if first is None else self._consumer.consume(_MOST_AT_ONCE, early)
                messages = [] if first is None else [first, *more]
                arrived = (self._receive(message) for message in messages)
                self._unchecked = [one for one in arrived if one is not None]
        if self._unchecked and self._id:
            self._check_same()  # requested after they arrived: an id is never used again
        checked, self._unchecked = self._unchecked, []
        return checked

    def _receive(self, message: KafkaMessage) -> Arrived | None:
        partition, offset, error = message.partition(), message.offset(), message.error()
        if error is None:
            assert partition is not None
            assert offset is not None
            value = message.value()
            return Arrived(partition, offset, None if value is None else bytes(value))
        if error.code() == KafkaError._PARTITION_EOF:
            assert partition is not None
            return None if offset is None else Arrived(partition, offset, None, is_end=True)
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            assert partition is not None
            self._stopped.add(partition)  # what has arrived of it is stored before it is looked into
        elif not _passes(error):
            raise KafkaException(error)
        return None

    def _go_on(self) -> None:
        """Continues in partitions that had no message at the requested offset, if they have one now."""
        if not self._stopped:
            return
        self._check_same()
        partitions = sorted(self._stopped)
        lows, ends = self._ask(partitions, _FIRST), self._ask(partitions, _END)
        for partition in partitions:
            at = self._next[partition]
            self._check(partition, at, lows[partition], ends[partition])
            place = TopicPartition(self._connection.topic, partition, at)
            with self._connection.errors("read"):
                self._consumer.incremental_unassign([place])
                self._consumer.incremental_assign([place])
            self._stopped.remove(partition)

    def note(self, arrived: Arrived) -> None:
        """Says that everything up to a message was stored."""
        after = arrived.offset if arrived.is_end else arrived.offset + 1
        self._next[arrived.partition] = max(self._next[arrived.partition], after)

    def note_lag(self) -> None:
        """Makes `lag` what is known now."""
        self._note_ends(self._ends)

    def count_unread(self) -> None:
        """Sets `lag` to the messages that the log lacks now; none is read any more.

        Raises Unreachable or SourceError.
        """
        partitions = self._find() or []
        lows, ends = self._ask(partitions, _FIRST), self._ask(partitions, _END)
        for partition, low in lows.items():
            position = self._log.position(self._name, partition)
            stored = 0 if position is None else position + 1
            self._next[partition] = max(low, stored, self._next.get(partition, 0))
        self._note_ends(ends)

    def _note_ends(self, ends: Mapping[int, int]) -> None:
        self._ends = ends
        self.lag = {p: max(0, ends.get(p, at) - at) for p, at in sorted(self._next.items())}

    def _find(self) -> list[int] | None:
        """The partitions of the topic, None if there is no such topic."""
        topic = self._connection.topic
        with self._reaching():
            found = self._consumer.list_topics(topic, timeout=_SECONDS).topics.get(topic)
            if found is None or (
                found.error is not None and found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
            ):
                return None
            if found.error is not None:
                raise KafkaException(found.error)
            partitions = sorted(found.partitions)
            if any(partition not in self._next for partition in partitions):
                # The other client must learn of them too. A request for a missing topic would make it.
                self._admin.list_topics(topic, timeout=_SECONDS)
            return partitions

    def _ask(self, partitions: list[int], what: OffsetSpec) -> dict[int, int]:
        """An offset of each of `partitions`."""
        asked = {TopicPartition(self._connection.topic, partition): what for partition in partitions}
        with self._reaching():
            answers = self._admin.list_offsets(asked, request_timeout=_SECONDS)
            return {
                place.partition: self._connection.result(answer).offset for place, answer in answers.items()
            }

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        """Makes an error Unreachable, unless asking again can never help: then it is a SourceError.

        While brokers start and partitions move, clients find many words for it.
        """
        try:
            with self._connection.errors("reach"):
                yield
        except SourceError as error:
            cause = error.__cause__
            if isinstance(cause, KafkaException) and (
                cause.args[0].fatal() or cause.args[0].code() in _FINAL
            ):
                raise
            raise Unreachable(str(error)) from error

    def close(self) -> None:
        """Ends the connections."""
        self._consumer.close()


def check_place(connection: Connection, partition: int, offset: int) -> None:
    """Raises InputError for an offset that no message of the topic has, or will have next; SourceError if no
    broker says so.
    """
    consumer = connection.consumer()
    try:
        with connection.errors("reach"):
            found = consumer.list_topics(connection.topic, timeout=_SECONDS).topics.get(connection.topic)
            partitions = [] if found is None or found.error is not None else sorted(found.partitions)
            if partition not in partitions:
                raise InputError(
                    f"{connection.name} must have the partition that is named, one of {partitions}, got "
                    f"{partition}"
                )
            _, end = connection.ask(partial(read_bounds, consumer, connection.topic, partition))
    finally:
        consumer.close()
    if offset > end:
        raise InputError(
            f"{connection.name} must have the messages that are skipped, got {offset}: its partition "
            f"{partition} ends at {end}"
        )


def _passes(error: KafkaError) -> bool:
    # A client that has not heard yet of a topic, or of a partition that was added, calls it unknown.
    return passes(error) or error.code() in (KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC)
