"""Streams of a log beside its events: typed records, in partitions, each with one writer and any readers.

Records that are derived from the events for other processes are in a stream: samples, subscriptions, control
records. A stream has a name; each of its partitions is a sequence of records with positions of its own.
"""

import zlib
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from livegnn.arguments import check_int
from livegnn.errors import InputError
from livegnn.log import Origin
from livegnn.log.arguments import LARGEST_SEQ
from livegnn.log.consumers import check_name
from livegnn.log.idempotency import Partition, check_origin

__all__ = ["MOST_PARTITIONS", "ReadableStream", "Record", "RecordStream", "StoredRecord"]

MOST_PARTITIONS = 2**31 - 1
EVENTS = "events"


class Record(NamedTuple):
    """A record to append: a type, such as "sample", the bytes that readers of this type know, and an origin.

    origin: the place in the events, or in another stream, that this was made from.
    """

    type: str
    payload: bytes
    origin: Origin | None = None


class StoredRecord(NamedTuple):
    """A record with its position, which grows from record to record and begins with 1 or later."""

    position: int
    type: str
    payload: bytes
    origin: Origin | None


class ReadableStream(Protocol):
    """One partition, as any process may read it. Every method may be called from any thread."""

    def last_position(self) -> int:
        """A position that no record is after yet: of the last one, or a later one; 0 if there was none."""
        ...

    def records(self, after: int, *, max_bytes: int | None = None) -> Sequence[StoredRecord]:
        """The records after position `after`, in order: as many payloads as fit into `max_bytes`, at least
        one, up to one that is damaged. Raises LogError if the first one was trimmed or is damaged, or if the
        stream ends before `after`.
        """
        ...

    def wait(self, after: int, timeout: float | None = None) -> bool:
        """Blocks until there is a record after `after`; False after `timeout` seconds, or when closed."""
        ...

    def close(self) -> None:
        """Ends a `wait` that is going on; again does nothing."""
        ...


class RecordStream(ReadableStream, Protocol):
    """One partition with the right to append to it."""

    def append_all(self, records: Sequence[Record]) -> int:
        """Stores records durably, all or none; returns the last position of the stream.

        One whose origin is not after the last that an earlier call stored of the same partition of the same
        source was stored before, and is left out. Raises InputError for other values; LogError.
        """
        ...

    def reached(self, source: str, partition: int) -> int | None:
        """The last offset that was stored of a partition of a source: go on after it. None if none was."""
        ...

    def trim(self, up_to: int) -> int:
        """Deletes records at or before `up_to` that no consumer needs; the last record stays.

        Returns the last position that is deleted now, 0 if none is.
        """
        ...


def check_place(name: object, partition: object) -> tuple[str, int]:
    """The name of a stream and a number of a partition. Raises InputError for anything else."""
    checked = check_name(name, "a stream")
    if checked == EVENTS or checked == "control":
        raise InputError(f"the name of a stream must not be that of the log's own, got {checked!r}")
    return checked, check_int(partition, "partition", 0, MOST_PARTITIONS)


def check_records(records: object) -> Sequence[Record]:
    """Raises InputError for values that are not records."""
    if not isinstance(records, Sequence) or isinstance(records, (str, bytes)):
        raise InputError(f"records must be a list, got {type(records).__name__}")
    for record in records:
        if not isinstance(record, Record) or not isinstance(record.payload, bytes):
            raise InputError(f"a record must be a Record with a payload of bytes, got {record!r:.80}")
        check_name(record.type, "a type of records")
        if record.origin is not None:
            check_origin(record.origin)
    return records


def check_after(after: object, max_bytes: object) -> int:
    """`after`. Raises InputError for an invalid position or number of bytes."""
    if max_bytes is not None:
        check_int(max_bytes, "max_bytes", 0, LARGEST_SEQ)
    return check_int(after, "after", 0, LARGEST_SEQ)


def checksum(record: Record, position: int = 0) -> int:
    """The checksum of all parts of a record, and of its position where that is known."""
    origin = record.origin
    place = "" if origin is None else f"{origin.source}\0{origin.partition}\0{origin.offset}"
    head = f"{position}\0{record.type}\0{place}\0".encode()
    return zlib.crc32(record.payload, zlib.crc32(head))


def select_new(records: Sequence[Record], reached: dict[Partition, int]) -> list[Record]:
    """Those that were not stored before; `reached` then has the last offset of each partition."""
    before = dict(reached)
    new = []
    for record in records:
        if record.origin is not None:
            source, partition, offset, _ = record.origin
            if offset <= before.get((source, partition), -1):
                continue
            reached[source, partition] = max(offset, reached.get((source, partition), -1))
        new.append(record)
    return new
