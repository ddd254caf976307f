"""What the owner of a log in Kafka knows and says beside events: properties, batches, and what was refused.

All of it is what the records of the control topic say, those of this process included, so an answer waits
until these were read back. Thread safety: every method may be called from any thread.
"""

import threading
from collections.abc import Callable, Mapping, Sequence

import livegnn._core as _core
from livegnn.arguments import check_int
from livegnn.errors import LogError
from livegnn.log import BadMessage, Batch, Rejection
from livegnn.log.arguments import LARGEST_SEQ, check_range
from livegnn.log.binding import new_properties
from livegnn.log.kafka.connection import Connection
from livegnn.log.kafka.control_producer import ControlProducer
from livegnn.log.kafka.history import History
from livegnn.log.origins import check_origin
from livegnn.types import JSON


class KafkaMetadata:
    """The part of a `KafkaLog` that reads and writes the control topic, but for orders and batches."""

    _connection: Connection
    _control: ControlProducer
    _history: History
    _state: threading.Condition  # for all fields
    _writing: threading.Lock  # for who writes control records other than orders
    _timeout: float

    def _wait_until(self, done: Callable[[], bool]) -> None:
        """Raises LogError if it does not come in time, or the log has failed."""
        raise NotImplementedError

    def bind(self, properties: Mapping[str, str], *, replace: bool = False) -> None:
        """Binds the log to what it belongs to, as `Log.bind` does. replace: whatever it was bound to."""
        for name, value in self._find_new(properties, replace).items():
            record: dict[str, JSON] = {"type": "property", "name": name, "value": value}
            _core.holding(self._writing, self._control.write, record, self._timeout)
        self._settle()

    def check_bound(self, properties: Mapping[str, str]) -> None:
        """Raises LogError if the log is bound to other values of some of `properties`."""
        self._find_new(properties, replace=False)

    def _find_new(self, properties: Mapping[str, str], replace: bool) -> Mapping[str, str]:
        name, present = self._connection.name, self._history.properties
        return _core.holding(self._state, new_properties, name, present, properties, replace)

    def bound(self) -> Mapping[str, str]:
        """What the log is bound to: properties by name."""
        return _core.holding(self._state, dict, self._history.properties)

    def sync(self) -> None:
        """Returns when all recorded batches are durable too."""
        self._settle()

    def batches(self, after: int) -> Sequence[Batch]:
        """The recorded batches that end after sequence number `after`, in order."""
        self._settle()
        batches, end = _core.holding(
            self._state, lambda: (self._history.batches(after), self._history.batch_ends[-1])
        )
        if batches is None:
            raise LogError(
                f"{self._connection.name} must have a batch that ends at event {after}, got none of those up "
                f"to event {end}: it is not the log of this graph, or was trimmed"
            )
        return batches

    def rejections(
        self, after: int = 0, *, up_to: int | None = None, most: int | None = None
    ) -> Sequence[Rejection]:
        """The rejected entries with `after` < `seq` <= `up_to`, in order, the first `most` of them."""
        after, end = check_range(after, up_to)
        self._settle()
        rejections = _core.holding(self._state, self._history.rejections.copy)
        return [one for one in rejections if after < one.seq <= end][:most]

    def listed(self, after: int = 0, *, most: int | None = None) -> Sequence[Rejection]:
        """What `rejections` says, but for those that were forgotten."""
        after, _ = check_range(after, None)
        self._settle()
        return _core.holding(self._state, self._history.listed, after)[:most]

    def bad_messages(self, after: int = 0, *, most: int | None = None) -> Sequence[BadMessage]:
        """What could not be read, with `number` > `after`, in order, `most` of it.

        From origins, and in the log's own topic, whose name is the source then. The newest 1,000 are kept.
        """
        after, most = check_range(after, most)
        find = self._history.bad_messages
        return _core.holding(self._state, find, self._connection.topic, after)[:most]

    def forget_rejections(self, up_to: int) -> int:
        """Refused entries up to event `up_to` are not listed any more, and forgotten when the log is trimmed.

        Returns how many were listed. Raises LogError.
        """
        up_to = check_int(up_to, "up_to", 0, LARGEST_SEQ)
        return self._forget(
            {"type": "forget entries", "seq": up_to}, lambda: len(self._history.listed(0, up_to))
        )

    def forget_bad_messages(self, source: str, partition: int, up_to: int) -> int:
        """Forgets the bad messages of a partition of a source up to offset `up_to`; returns how many.

        Those of the log's own topic have its name as their source. Where a source goes on stays as it is.
        Raises LogError.
        """
        check_origin((source, partition, up_to))
        sources: list[JSON] = [source, None] if source == self._connection.topic else [source]
        record: dict[str, JSON] = {"type": "forget messages", "sources": sources}
        return self._forget(
            {**record, "partition": partition, "offset": up_to}, lambda: len(self._history.bad)
        )

    def _forget(self, record: Mapping[str, JSON], count: Callable[[], int]) -> int:
        """Writes a record that forgets something; returns by how much that lowers `count`."""
        return _core.holding(self._writing, self._write_and_count, record, count)

    def _write_and_count(self, record: Mapping[str, JSON], count: Callable[[], int]) -> int:
        self._settle()
        before = _core.holding(self._state, count)
        self._control.write(record, self._timeout)
        self._settle()
        return before - _core.holding(self._state, count)

    def _settle(self) -> None:
        """Returns when what this process has written to the control topic so far was read back."""
        sent = _core.holding(self._state, self._control.unanswered.copy)
        self._wait_until(lambda: sent.isdisjoint(self._control.unanswered))
        end = self._control.end
        self._wait_until(lambda: self._history.next >= end)
