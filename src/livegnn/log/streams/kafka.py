"""A stream in a Kafka topic: `TOPIC.NAME`, one partition of it for each partition of the stream.

One call appends one transaction, and readers see what was committed. The writer of a partition has a
transactional id of its own, so a newer writer takes the partition over, and the broker refuses the older one:
a worker that is replaced cannot write any more. A message is a record; its headers say the rest:

type     the type of the record
origin   JSON: source, partition and offset; missing if it has none
reached  JSON: a list of source, partition and last offset of all that was stored up to here
crc32    of type, origin and payload, as eight hexadecimal digits

Positions are offsets + 1. Kafka's own marks of transactions take offsets as well, so positions have gaps.

Locks: `_write` for the producer, `_read` for the consumer.
"""

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as KafkaMessage

from livegnn.arguments import check_int, check_not_negative
from livegnn.errors import InputError, LogError
from livegnn.log.arguments import LARGEST_SEQ, deadline
from livegnn.log.idempotency import Partition, check_origin
from livegnn.log.kafka.connection import (
    OVERHEAD,
    Connection,
    Settings,
    fetch,
    is_at_end,
    make_topics,
    read_bounds,
)
from livegnn.log.streams import (
    ReadableStream,
    Record,
    RecordStream,
    StoredRecord,
    check_after,
    check_place,
    check_records,
    checksum,
    select_new,
)

_SECONDS: Final = 10.0
_MOST_AT_ONCE: Final = 10_000
_LARGEST: Final = 16 << 20  # bytes of a record


def create_stream(
    servers: str,
    topic: str,
    name: str,
    partitions: int = 1,
    *,
    replication: int = -1,
    settings: Settings | None = None,
) -> None:
    """Makes the topic of the stream `name` of the log in `topic`; one that exists stays.

    replication: copies of each partition, -1 for the broker's default. Raises InputError, LogError.
    """
    name, _ = check_place(name, 0)
    connection = Connection(servers, f"{topic}.{name}", settings or {}, "the stream")
    make_topics(connection, {connection.topic: (partitions, _LARGEST + OVERHEAD)}, replication)


class KafkaStreamReader(ReadableStream):
    """Reads partition `partition` of the stream `name` of the log in `topic`. Thread-safe.

    settings: further ones of librdkafka. Raises LogError if there is no such partition; InputError.
    """

    def __init__(
        self, servers: str, topic: str, name: str, partition: int = 0, *, settings: Settings | None = None
    ) -> None:
        name, self._partition = check_place(name, partition)
        self._connection = Connection(servers, f"{topic}.{name}", settings or {}, "the stream")
        with self._connection.errors("reach"):
            found = self._connection.admin().list_topics(timeout=_SECONDS).topics.get(self._connection.topic)
        there = {} if found is None or found.error is not None else found.partitions
        if partition not in there:
            raise LogError(
                f"{self._connection.name} must have a partition {partition}, got {len(there)} partitions: "
                "make them with livegnn.log.streams.kafka.create_stream"
            )
        self._read = threading.Lock()
        self._closed = threading.Event()
        # The messages after position `_at`, as far as they were fetched: up to position `_seen`.
        self._waiting: list[KafkaMessage] = []
        self._at, self._seen, self._at_end = 0, -1, False
        self._consumer: Consumer = self._connection.consumer()

    def last_position(self) -> int:
        with self._read, self._connection.errors("read"):
            return self._bounds()[1]

    def records(self, after: int, *, max_bytes: int | None = None) -> Sequence[StoredRecord]:
        after = check_after(after, max_bytes)
        with self._read, self._connection.errors("read"):
            self._go_to(after)
            if len(self._waiting) < _MOST_AT_ONCE:
                self._fetch(0.0)
            self._fetch_until(lambda: bool(self._waiting) or self._at_end, _SECONDS)
            found: list[StoredRecord] = []
            size = 0
            for message in self._waiting:
                size += len(message.value() or b"")
                if found and max_bytes is not None and size > max_bytes:
                    break
                try:
                    found.append(_parse(message, self._connection.name))
                except LogError:
                    if not found:
                        raise
                    break
            return found

    def wait(self, after: int, timeout: float | None = None) -> bool:
        after, ends = check_after(after, None), deadline(timeout)
        while not self._closed.is_set():
            with self._read, self._connection.errors("read"):
                self._go_to(after)
                if not self._waiting:
                    self._fetch(max(0.0, min(0.1, ends - time.monotonic())))
                if self._waiting:
                    return True
            if time.monotonic() >= ends:
                return False
        return False

    def close(self) -> None:
        if not self._closed.is_set():
            self._closed.set()
            with self._read:
                self._consumer.close()

    def _bounds(self) -> tuple[int, int]:
        return self._connection.ask(
            partial(read_bounds, self._consumer, self._connection.topic, self._partition)
        )

    def _go_to(self, after: int) -> None:
        """Makes `_waiting` begin after `after`. Raises LogError where that is not in the stream."""
        if self._at <= after <= self._seen:
            self._waiting = [message for message in self._waiting if _position(message) > after]
            self._at = after
            return
        low, end = self._bounds()
        if after > end:
            raise LogError(
                f"{self._connection.name} must reach position {after}, got a stream that ends at {end}: it "
                "is another topic of the same name. Read it from the beginning"
            )
        if after < low:
            raise LogError(
                f"{self._connection.name} must hold record {after + 1}, got a stream that begins at "
                f"{low + 1}: earlier records were trimmed. Begin with a newer checkpoint of the reader"
            )
        self._assign(after)

    def _assign(self, after: int) -> None:
        self._waiting.clear()
        self._at, self._seen, self._at_end = after, after, False
        self._consumer.assign(
            [TopicPartition(self._connection.topic, self._partition, after or OFFSET_BEGINNING)]
        )

    def _fetch(self, timeout: float) -> None:
        """Adds arrived records to `_waiting`; waits for new ones for `timeout` seconds."""
        for message in fetch(self._consumer, timeout, _MOST_AT_ONCE):
            if message.error() is None:
                self._waiting.append(message)
                self._seen, self._at_end = _position(message), False
            elif is_at_end(message, self._lost):
                self._seen, self._at_end = max(self._seen, message.offset() or 0), True

    def _fetch_until(self, done: Callable[[], bool], seconds: float) -> None:
        ends = time.monotonic() + seconds
        while not done():
            self._fetch(0.1)
            if time.monotonic() > ends:
                raise TimeoutError

    def _lost(self) -> LogError:
        return LogError(
            f"{self._connection.name} must hold record {self._seen + 1}, got none: it was trimmed, "
            "or is another topic of the same name. Begin with a newer checkpoint of its reader"
        )


class KafkaStream(KafkaStreamReader, RecordStream):
    """Appends to partition `partition` of the stream `name` of the log in `topic`. Thread-safe.

    The newest writer of a partition is the one: what an older one appends after that is refused. timeout:
    seconds that an append may wait for the broker. Raises LogError, InputError.
    """

    def __init__(
        self,
        servers: str,
        topic: str,
        name: str,
        partition: int = 0,
        *,
        timeout: float = 60.0,
        settings: Settings | None = None,
    ) -> None:
        super().__init__(servers, topic, name, partition, settings=settings)
        self._write = threading.Lock()
        self._timeout = check_not_negative(timeout, "timeout, in seconds,")
        self._failure: str | None = None
        try:
            writer = f"livegnn-{self._connection.topic}-{partition}"
            self._producer = self._connection.producer(_LARGEST, writer)
            with self._connection.errors("write"):
                self._producer.init_transactions(self._timeout)
            self._last, self._reached = self._find_end()
        except BaseException:
            super().close()
            raise

    def append_all(self, records: Sequence[Record]) -> int:
        """Implements `RecordStream.append_all`.

        After a LogError that leaves open whether they were stored, the writer must be made again.
        """
        check_records(records)
        for record in records:
            if len(record.payload) > _LARGEST:
                raise InputError(
                    f"a record of a stream in Kafka must have at most {_LARGEST:,} bytes, got "
                    f"{len(record.payload):,}"
                )
        with self._write:
            if self._failure is not None:
                raise LogError(self._failure)
            reached = dict(self._reached)
            new = select_new(records, reached)
            if new:
                self._last = self._commit(new, reached)
                self._reached = reached
            return self._last

    def reached(self, source: str, partition: int) -> int | None:
        with self._write:
            return self._reached.get((source, partition))

    def trim(self, up_to: int) -> int:
        """As of `RecordStream.trim`; the broker knows of no consumers."""
        up_to = min(check_int(up_to, "up_to", 0, LARGEST_SEQ), self._last - 1)
        place = TopicPartition(self._connection.topic, self._partition, up_to)
        if up_to > 0:
            self._connection.delete_before([place])
        with self._read, self._connection.errors("trim"):
            return self._bounds()[0]

    def close(self) -> None:
        super().close()
        with self._write:
            self._failure = self._failure or f"cannot append to {self._connection.name}: it is closed"

    def _commit(self, new: Sequence[Record], reached: Mapping[Partition, int]) -> int:
        """Appends in one transaction; returns the last position. Raises LogError."""
        offsets: list[int] = []

        def note(error: KafkaError | None, message: KafkaMessage) -> None:
            if error is None:
                offsets.append(message.offset() or 0)

        said = json.dumps([[*place, offset] for place, offset in reached.items()]).encode()
        try:
            with self._connection.errors("append to"):
                self._producer.begin_transaction()
                for record in new:
                    self._producer.produce(
                        self._connection.topic,
                        record.payload,
                        partition=self._partition,
                        headers=_headers(record, said),
                        on_delivery=note,
                    )
                self._producer.commit_transaction(self._timeout)
        except LogError as error:
            self._abort(error)
            if self._failure is not None:
                raise LogError(self._failure) from error
            raise
        return max(offsets) + 1

    def _abort(self, error: LogError) -> None:
        """Takes back what was not committed; where that is not sure, nothing more is appended."""
        reason = error.__cause__.args[0] if error.__cause__ is not None else None
        if isinstance(reason, KafkaError) and reason.fatal():
            self._failure = f"{error}. A newer writer has taken over, or the broker has forgotten this one"
            return
        try:
            self._producer.abort_transaction(self._timeout)
        except KafkaException as failed:
            self._failure = f"{error}, and whether it was stored is not known ({failed}): make a new writer"

    def _find_end(self) -> tuple[int, dict[Partition, int]]:
        """The last position, and what was reached with it: of the last record that was committed."""
        with self._read, self._connection.errors("read"):
            low, end = self._bounds()
            back = 1
            while end > low:
                begin = max(low, end - back)
                self._assign(begin)
                self._fetch_until(lambda: self._at_end, self._timeout)
                if self._waiting:
                    last = self._waiting[-1]
                    self._assign(begin)  # what was fetched is not needed
                    position = _parse(last, self._connection.name).position
                    rows = json.loads(dict(_pairs(last))["reached"])
                    return position, {(source, partition): offset for source, partition, offset in rows}
                if begin == low:
                    break
                back *= 4
        return 0, {}


def _pairs(message: KafkaMessage) -> list[tuple[str, bytes]]:
    """The headers that have values."""
    given: Any = message.headers() or ()
    return [(name, value) for name, value in given if isinstance(value, bytes)]


def _position(message: KafkaMessage) -> int:
    return (message.offset() or 0) + 1


def _headers(record: Record, reached: bytes) -> list[tuple[str, str | bytes | None]]:
    origin = [] if record.origin is None else [("origin", json.dumps(record.origin[:3]).encode())]
    crc32 = f"{checksum(record):08x}"
    return [("type", record.type.encode()), *origin, ("reached", reached), ("crc32", crc32.encode())]


def _parse(message: KafkaMessage, name: str) -> StoredRecord:
    """A message as a record. Raises LogError for anything else."""
    position = _position(message)
    payload = bytes(message.value() or b"")
    try:
        headers = {name: bytes(value).decode() for name, value in _pairs(message)}
        given = headers.get("origin")
        origin = None if given is None else check_origin(tuple(json.loads(given)))
        record = Record(headers["type"], payload, origin)
        if int(headers["crc32"], 16) == checksum(record):
            return StoredRecord(position, *record)
    except (KeyError, ValueError, TypeError):
        pass
    raise LogError(f"{name} must have record {position} as it was written: it is damaged, or is not a record")
