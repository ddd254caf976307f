"""Connections to Kafka: settings of producer and consumers, checks of the topics, errors as LogError."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka import Message as KafkaMessage
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it does not say what it exports
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from livegnn.arguments import check_int
from livegnn.errors import InputError, LiveGNNError, LogError

_Result = TypeVar("_Result")
_SECONDS: Final = 10.0  # that an answer of the broker may take
_MORE_SECONDS: Final = 5.0  # for a client that gives up by itself
_CONTROL_BYTES: Final = 16 << 20
_MOST_PARTITIONS: Final = 2**31 - 1
_MOST_COPIES: Final = 2**15 - 1
OVERHEAD: Final = 1024  # bytes that Kafka adds to a message at most

Settings = Mapping[str, "str | int | float | bool"]


_HANDSHAKE: Final = ("ssl", "sasl", "tls")
_FIRST_ACTIONS: Final = ("reach", "create the topics of")  # of every connection
_LOOK_SECONDS: Final = 2.0  # for the reason why no broker is reached
_UNREACHED: Final = {KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._TIMED_OUT}
"""The errors of a client that has no connection, for any reason."""

_PASSING: Final = {
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._RESOLVE,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.NOT_COORDINATOR,
}
"""The errors of a client while a broker restarts, or while a network fails for some time."""


def passes(error: KafkaError) -> bool:
    """Whether an error is temporary."""
    return not error.fatal() and (error.retriable() or error.code() in _PASSING)


@dataclass(frozen=True)
class Connection:
    """A broker and the topics of one log. settings: further ones of librdkafka, as for encryption.

    what: as error messages call it, which are of the type `error`.
    """

    servers: str
    topic: str
    settings: Settings = field(default_factory=dict, repr=False)  # with passwords
    what: str = "the event log"
    error: type[LiveGNNError] = LogError

    @property
    def control(self) -> str:
        """The topic of control records."""
        return f"{self.topic}.control"

    @property
    def name(self) -> str:
        """As error messages call the log."""
        return f"{self.what} {self.topic!r} at {self.servers}"

    def producer(self, largest: int, transactions: str | None = None, *, linger: int = 0) -> Producer:
        """A producer whose messages arrive once and in order, of `largest` bytes at most.

        transactions: the id under which it writes them; a newer producer with this id ends this one.
        linger: milliseconds that a message waits for others, unless the producer is flushed.
        """
        more = {} if transactions is None else {"transactional.id": transactions}
        settings = {
            **self._common(),
            **more,
            "enable.idempotence": True,
            "linger.ms": linger,
            "message.max.bytes": largest + OVERHEAD,
            "queue.buffering.max.kbytes": 1 << 20,
        }
        with self.errors("reach"):
            return Producer(settings)

    def consumer(self) -> Consumer:
        """A consumer of partitions that are assigned by hand, whose position the broker does not keep."""
        settings = {
            **self._common(),
            "group.id": f"livegnn-{self.topic}-unused",  # a consumer must have one; nothing is committed
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 100,
            "fetch.error.backoff.ms": 50,
            "queued.max.messages.kbytes": 65_536,
            "enable.partition.eof": True,
        }
        with self.errors("reach"):
            return Consumer(settings)

    def admin(self) -> AdminClient:
        """A client that reads topics and groups."""
        with self.errors("reach"):
            return AdminClient(self._common())

    def _find_reason(self) -> str:
        """Why no broker is reached at present, in brackets, and what to do; empty if that is not known.

        Clients report that only when they are polled, and a consumer that is polled loses messages.
        """
        heard: list[KafkaError] = []
        settings: dict[str, object] = {**self._common(), "error_cb": heard.append}
        client = AdminClient(settings)  # type: ignore[arg-type]  # an old stub
        deadline = time.monotonic() + _LOOK_SECONDS
        while not heard and time.monotonic() < deadline:
            client.poll(0.1)
        if not heard:
            return ""
        said = heard[0].str()
        if heard[0].code() == KafkaError._ALL_BROKERS_DOWN:  # the first one only where there is no reason
            said = "brokers end the connection without an answer: they may expect TLS or SASL"
        if any(word in said.lower() for word in _HANDSHAKE):
            return f" ({said}): check the settings of TLS and SASL, here and of the broker"
        return f" ({said})"

    def _common(self) -> dict[str, str | int | float | bool]:
        return {
            "bootstrap.servers": self.servers,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 1000,
            "log.connection.close": False,
            "log_level": 2,  # what is not critical, LiveGNN says itself
            **self.settings,
        }

    @contextmanager
    def errors(self, action: str) -> Iterator[None]:
        """Makes what Kafka raises an `error`."""
        try:
            yield
        except (KafkaException, SystemError) as error:
            # Once a producer has failed for good, its client calls our callbacks while the exception is set,
            # which Python reports as this one.
            found = error.__cause__ if isinstance(error, SystemError) else error
            if not isinstance(found, KafkaException):
                raise
            reason = found.args[0] if found.args else found
            said = reason.str() if isinstance(reason, KafkaError) else str(reason)
            if action in _FIRST_ACTIONS and isinstance(reason, KafkaError) and reason.code() in _UNREACHED:
                said += self._find_reason()
            raise self.error(f"cannot {action} {self.name}: {said}") from error
        except TimeoutError as error:
            said = self._find_reason() if action in _FIRST_ACTIONS else ""
            raise self.error(
                f"cannot {action} {self.name}: it does not answer. Does a broker run there?{said}"
            ) from error
        except BufferError as error:
            raise self.error(f"cannot {action} {self.name}: too much waits to be sent") from error

    def ask(self, question: Callable[[], _Result]) -> _Result:
        """The broker's answer; repeats the request for a while if the broker is about to be ready. Raises
        KafkaException."""
        deadline = time.monotonic() + _SECONDS
        while True:
            try:
                return question()
            except KafkaException as error:
                if not passes(error.args[0]) or time.monotonic() > deadline:
                    raise
            time.sleep(0.1)

    def delete_before(self, places: list[TopicPartition]) -> None:
        """Deletes the messages before each of `places`."""
        admin = self.admin()  # the answers need it
        with self.errors("trim"):
            for future in admin.delete_records(places).values():
                self.result(future)

    def result(self, future: "Future[_Result]") -> _Result:
        """The answer of the broker. Raises KafkaException."""
        return future.result(timeout=_SECONDS + _MORE_SECONDS)


@dataclass(frozen=True)
class Topics:
    """The broker's description of both topics. largest: bytes of a message; lows, ends: offsets, by
    partition.

    The bounds of the control topic are those of its one partition.
    """

    partitions: int
    largest: int
    largest_control: int
    lows: Mapping[int, int]
    ends: Mapping[int, int]
    control_low: int
    control_end: int


def create_topics(
    servers: str,
    topic: str,
    partitions: int = 1,
    *,
    replication: int = -1,
    settings: Settings | None = None,
) -> None:
    """Makes both topics of a log, so that the broker deletes nothing by itself; those that exist stay.

    replication: copies of each partition, -1 for the broker's default. settings: as of `KafkaLog`. Raises
    InputError for other values, LogError.
    """
    connection = Connection(servers, topic, settings or {})
    make_topics(
        connection,
        {connection.topic: (partitions, None), connection.control: (1, _CONTROL_BYTES)},
        replication,
    )


def make_topics(
    connection: Connection, topics: Mapping[str, tuple[int, int | None]], replication: int
) -> None:
    """Makes topics of which the broker deletes nothing by itself; those that exist stay.

    topics: by name, how many partitions and the largest message in bytes, None for the broker's default.
    replication: as of `create_topics`. Raises InputError for other values, LogError.
    """
    replication = check_int(replication, "replication", -1, _MOST_COPIES)
    if not replication:
        raise InputError("replication must be a number of copies, or -1 for the brokers' default, got 0")
    wanted = []
    for name, (partitions, largest) in topics.items():
        config = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}
        if largest is not None:
            config["max.message.bytes"] = str(largest)
        count = check_int(partitions, "partitions", 1, _MOST_PARTITIONS)
        wanted.append(NewTopic(name, count, replication, config=config))
    admin = connection.admin()  # the answers need it
    with connection.errors("create the topics of"):
        made = admin.create_topics(wanted, operation_timeout=_SECONDS)
        for future in made.values():
            try:
                connection.result(future)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
        connection.ask(partial(_find_topics, admin, list(topics)))


def _find_topics(admin: AdminClient, names: Sequence[str]) -> None:
    """Raises KafkaException as long as the broker, which has made the topics, does not name them yet."""
    found = admin.list_topics(timeout=_SECONDS).topics
    for name in names:
        if name not in found:
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, f"no topic {name!r} yet"))
        error = found[name].error
        if error is not None:
            raise KafkaException(error)


def read_topics(connection: Connection) -> Topics:
    """The broker's description. Raises LogError if a topic is missing, or does not meet the requirements."""
    with connection.errors("reach"):
        found = connection.admin().list_topics(timeout=_SECONDS).topics
        for topic in (connection.topic, connection.control):
            if topic not in found or found[topic].error is not None:
                raise LogError(
                    f"{connection.name} needs the topics {connection.topic!r} and {connection.control!r}, "
                    f"got no {topic!r}: make them with livegnn log create DEPLOYMENT.TOML, in "
                    "Python with livegnn.log.kafka.create_topics, or by hand with retention.ms=-1"
                )
        if len(found[connection.control].partitions) != 1:
            raise LogError(
                f"the topic {connection.control!r} must have 1 partition, got "
                f"{len(found[connection.control].partitions)}: delete it and create it again"
            )
        largest = _check_settings(connection)
        consumer = connection.consumer()
        try:
            bounds = {
                partition: connection.ask(partial(read_bounds, consumer, connection.topic, partition))
                for partition in found[connection.topic].partitions
            }
            control = connection.ask(partial(read_bounds, consumer, connection.control, 0))
        finally:
            consumer.close()
    return Topics(
        len(bounds),
        *largest,
        {partition: low for partition, (low, _) in bounds.items()},
        {partition: end for partition, (_, end) in bounds.items()},
        *control,
    )


def fetch(consumer: Consumer, timeout: float, most: int = 1000) -> list[KafkaMessage]:
    """Returns arrived messages, at most `most` + 1; waits at most `timeout` seconds for the first."""
    first = consumer.poll(timeout)
    return [] if first is None else [first, *consumer.consume(most, 0)]


def is_at_end(message: KafkaMessage, lost: Callable[[], LogError]) -> bool:
    """Returns whether a message is the error that says that its partition has no more messages for now.

    Raises `lost` if a partition does not have the requested offset, KafkaException if the error is lasting.
    """
    error = message.error()
    if error is None or error.code() == KafkaError._PARTITION_EOF:
        return error is not None
    if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
        raise lost()
    if not passes(error):
        raise KafkaException(error)
    return False


def read_bounds(consumer: Consumer, topic: str, partition: int) -> tuple[int, int]:
    """The first offset of a partition, and the next after its last. Raises KafkaException."""
    found = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_SECONDS)
    if found is None:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
    return found


def _check_settings(connection: Connection) -> tuple[int, int]:
    """The largest message of both topics. Raises LogError if the broker would delete what is needed."""
    resources = [
        ConfigResource(ResourceType.TOPIC, topic) for topic in (connection.topic, connection.control)
    ]
    largest = []
    admin = connection.admin()  # the answers need it
    for resource, future in admin.describe_configs(resources, request_timeout=_SECONDS).items():
        found = {name: entry.value for name, entry in connection.result(future).items()}
        if "compact" in str(found.get("cleanup.policy")):
            raise LogError(
                f"the topic {resource.name!r} must have cleanup.policy=delete, got "
                f"{found['cleanup.policy']}: compaction removes events"
            )
        for name in ("retention.ms", "retention.bytes"):
            if int(str(found.get(name) or -1)) >= 0:
                raise LogError(
                    f"the topic {resource.name!r} must have {name}=-1, got {found[name]}: the broker would "
                    "delete events that checkpoints may need. LiveGNN trims the topic itself on request"
                )
        largest.append(int(str(found["max.message.bytes"])) - OVERHEAD)
    return largest[0], largest[1]
