"""A Kafka topic of labels: each message is a row, or a change of a row, by the mapping of labels.

The rows are kept as pages, with the positions of the partitions: so a label is never lost, and a message that
is read twice changes nothing. Messages that are not labels are counted and passed over.

Threads: one reads and writes pages. Any thread may read its state, and stop it.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Final

from livegnn.connectors.kafka_partitions import Arrived, Partitions, Unreachable
from livegnn.connectors.row_messages import Parse, Row, RowChange, to_table
from livegnn.errors import InputError, LiveGNNError, SourceError, shortened
from livegnn.interrupts import Background, Flag
from livegnn.log.kafka.connection import Connection, Settings
from livegnn.quality.label_pages import LabelPages
from livegnn.quality.labels import LabelReader, Labels, join_latest

_logger = logging.getLogger(__name__)

_POLL_SECONDS: Final = 0.1
_LOOK_SECONDS: Final = 5.0
_RETRY_SECONDS: Final = 1.0
_MOST_LABELS: Final = 100_000  # in memory


class LabelTopic:
    """Reads all partitions of `topic`, at the brokers `servers`, into `pages`, from the first message on.

    parse: of a message. every_seconds: between two pages. settings: further ones of librdkafka.
    """

    def __init__(
        self,
        pages: LabelPages,
        reader: LabelReader,
        parse: Parse,
        servers: str,
        topic: str,
        *,
        every_seconds: float = 60.0,
        settings: Settings | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name: str = reader.name
        self.failure: BaseException | None = None
        self.waits: str | None = None
        self._pages, self._reader, self._parse = pages, reader, parse
        self._every, self._clock = every_seconds, clock
        connection = Connection(servers, topic, settings or {}, "the topic of labels", SourceError)
        skip = f"give {reader.name} another name, and its labels are read again from offset {{offset}} on"
        self._partitions = Partitions(connection, pages, reader.name, "first", skip)
        self._written = self._looked = clock()
        self._stop = Flag()
        self._thread: Background | None = None

    @property
    def lag(self) -> Mapping[int, int]:
        """The number of unread messages by partition, at the last request to the brokers."""
        return self._partitions.lag

    @property
    def reason(self) -> str | None:
        """The reason why labels are not read now; None while they are."""
        failure = self.failure or self._partitions.missing
        return self.waits if failure is None else str(failure)

    def start(self) -> None:
        """Reads in a thread of its own until `stop`."""
        self._thread = Background(self._run, f"livegnn-labels-{self.name}")
        self._thread.start()

    def stop(self) -> None:
        """Ends it, after a last page; again does nothing."""
        self._stop.set()
        if self._thread is None:
            self._partitions.close()
            return
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                try:
                    self._read_on()
                except (Unreachable, OSError) as error:  # a disk that is full may have room later
                    self._wait(str(error))
            self._pages.flush()
        except BaseException as error:
            known = isinstance(error, LiveGNNError)
            _logger.error("the labels of %s cannot be read: %s", self.name, error, exc_info=not known)
            self.failure = error
        finally:
            self._partitions.close()

    def _wait(self, reason: str) -> None:
        if self.waits is None:
            _logger.warning("the labels of %s wait: %s", self.name, reason)
        self.waits = shortened(reason)
        self._stop.wait(_RETRY_SECONDS)

    def _read_on(self) -> None:
        """Runs one round: adds the labels of all messages that have arrived."""
        if not self._partitions.opened:
            self._partitions.open()
        if self._clock() > self._looked + _LOOK_SECONDS:
            self._partitions.look()
            self._looked = self._clock()
        arrived = self._partitions.poll(_POLL_SECONDS)
        for partition, group in groupby(arrived, lambda one: one.partition):
            self._add(partition, list(group))
        self._partitions.note_lag()
        late = self._clock() > self._written + self._every
        if late or self._pages.waiting > _MOST_LABELS:
            self._pages.flush()
            self._written = self._clock()
        self.waits = None

    def _add(self, partition: int, arrived: Sequence[Arrived]) -> None:
        messages = [one for one in arrived if not one.is_end]
        if messages:
            found = read_messages(self._reader, self._parse, [one.value for one in messages])
            bad = [(at, one) for at, one in enumerate(found) if isinstance(one, InputError)]
            good = [one for one in found if isinstance(one, Labels)]
            labels = join_latest(good, taken_back=True)
            self._pages.add(labels, partition, messages[-1].offset, len(bad))
            if bad:
                at, reason = bad[0]
                _logger.warning(
                    "%d messages of %s are not labels, the first in partition %d at offset %d: %s",
                    len(bad),
                    self.name,
                    partition,
                    messages[at].offset,
                    reason,
                )
        for one in arrived:
            self._partitions.note(one)


def read_messages(
    reader: LabelReader, parse: Parse, values: Sequence[bytes | None]
) -> list[Labels | InputError]:
    """The labels of messages in order, or what is wrong with one. A row that is changed or deleted takes its
    label back first. One of the results may have the labels of several messages."""
    found: list[Labels | InputError] = []
    changes: list[RowChange] = []
    for value in values:
        try:
            change = None if value is None else parse(value)
        except InputError as error:
            found += [*_read(reader, changes), error]
            changes = []
        else:
            changes += [] if change is None else [change]
    return [*found, *_read(reader, changes)]


def _read(reader: LabelReader, changes: Sequence[RowChange]) -> list[Labels | InputError]:
    if not changes:
        return []
    label = reader.mapping.label
    rows: list[Row] = []
    for one in changes:
        rows += [] if one.old is None else [{**one.old, label: None}]
        rows += [] if one.new is None else [one.new]
    converters = [one.converters for one in changes for row in (one.old, one.new) if row is not None]
    times = [reader.mapping.time]
    try:
        return [
            reader.read(to_table(rows, converters, reader.mapping.columns, times=times, name=reader.name))
        ]
    except InputError as error:
        if len(changes) == 1:
            return [error]
    half = len(changes) // 2
    return [*_read(reader, changes[:half]), *_read(reader, changes[half:])]
