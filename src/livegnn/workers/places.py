"""The places of a log and of the streams beside it: files of this machine, or brokers of Kafka."""

import fcntl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from livegnn.errors import InputError
from livegnn.log import Tail, consumers
from livegnn.log.client_settings import check_client_settings, read_client_settings
from livegnn.log.sqlite.tail import SqliteEnd, SqliteTail
from livegnn.log.streams import ReadableStream, RecordStream
from livegnn.log.streams.sqlite import SqliteStream, SqliteStreamReader, is_made, path_of


class LogEnd(Protocol):
    """The last applied event of a log. One thread reads. The log keeps nothing for this reader."""

    def read(self) -> int:
        """The last event of the last batch, 0 if there is none; in Kafka, as far as messages have arrived.
        Raises LogError."""
        ...

    def close(self) -> None:
        """Again does nothing."""
        ...


class Place(Protocol):
    """Opens what workers need. Each call opens something new, which the caller closes."""

    def create(self, streams: Mapping[str, int]) -> None:
        """Makes streams with this number of partitions; existing ones stay."""
        ...

    def tail(self, name: str, *, after: int | None = None) -> Tail:
        """Follows the log as the consumer `name`."""
        ...

    def forget(self, name: str) -> None:
        """Keeps nothing of the log for the consumer `name` any more, if there is one."""
        ...

    def end(self) -> LogEnd:
        """Opens the reader of the last applied event. Raises LogError."""
        ...

    def write(self, stream: str, partition: int) -> RecordStream:
        """A partition with the right to append to it."""
        ...

    def read(self, stream: str, partition: int) -> ReadableStream:
        """A partition to read."""
        ...


class SqlitePlace:
    """The log at `path`, and its streams beside it."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    def create(self, streams: Mapping[str, int]) -> None:
        paths = {
            path_of(self.path, name, partition): (name, partition)
            for name, partitions in streams.items()
            for partition in range(partitions)
        }
        if all(is_made(path) for path in paths):
            return
        with self._making():
            for path, place in paths.items():
                if not is_made(path):
                    SqliteStream(self.path, *place).close()

    @contextmanager
    def _making(self) -> Iterator[None]:
        """Waits until no other process makes streams: a process that makes one owns it meanwhile. The system
        lets another one in when a process ends."""
        folder = path_of(self.path, "any", 0).parents[1]
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / "making", "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def tail(self, name: str, *, after: int | None = None) -> Tail:
        return SqliteTail(self.path, name, after=after)

    def forget(self, name: str) -> None:
        with suppress(InputError):  # there is none
            consumers.forget(self.path, name)

    def end(self) -> LogEnd:
        return SqliteEnd(self.path)

    def write(self, stream: str, partition: int) -> RecordStream:
        with self._making():  # its maker owns it until it has closed it, and it is made before that
            return SqliteStream(self.path, stream, partition)

    def read(self, stream: str, partition: int) -> ReadableStream:
        return SqliteStreamReader(self.path, stream, partition)


class KafkaPlace:
    """The log in `topic` at the brokers `servers`. folder: where the positions of consumers are kept.
    client: settings of librdkafka for security, as in a deployment file; secrets are read where a client is
    made, on the machine of each worker. Raises InputError.
    """

    def __init__(
        self,
        servers: str,
        topic: str,
        folder: Path | str,
        *,
        replication: int = -1,
        client: Mapping[str, str] | None = None,
    ) -> None:
        self.servers, self.topic, self.folder = servers, topic, Path(folder)
        self._replication, self._client = replication, dict(client or {})
        check_client_settings(self._client)

    def _settings(self) -> dict[str, str]:
        return read_client_settings(self._client)

    def create(self, streams: Mapping[str, int]) -> None:
        from livegnn.log.streams.kafka import create_stream

        for name, partitions in streams.items():
            create_stream(
                self.servers,
                self.topic,
                name,
                partitions,
                replication=self._replication,
                settings=self._settings(),
            )

    def tail(self, name: str, *, after: int | None = None) -> Tail:
        from livegnn.log.kafka.tail import KafkaTail

        return KafkaTail(self.servers, self.topic, name, self.folder, after=after, settings=self._settings())

    def forget(self, name: str) -> None:
        with suppress(InputError):  # there is none
            consumers.forget(self.folder / self.topic, name)

    def end(self) -> LogEnd:
        from livegnn.log.kafka.end import KafkaEnd

        return KafkaEnd(self.servers, self.topic, settings=self._settings())

    def write(self, stream: str, partition: int) -> RecordStream:
        from livegnn.log.streams.kafka import KafkaStream

        return KafkaStream(self.servers, self.topic, stream, partition, settings=self._settings())

    def read(self, stream: str, partition: int) -> ReadableStream:
        from livegnn.log.streams.kafka import KafkaStreamReader

        return KafkaStreamReader(self.servers, self.topic, stream, partition, settings=self._settings())
