"""The sections of a deployment file, each with its keys, their defaults and what they mean to other parts."""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final, cast, get_args

from livegnn.arguments import check_int, check_share, convert
from livegnn.deployment.parsing import import_factory
from livegnn.errors import InputError
from livegnn.expiry import ExpiryPolicy
from livegnn.graph import Parallel
from livegnn.http.access import AccessSettings
from livegnn.inference import EngineOptions, ScrubPolicy
from livegnn.log.client_settings import check_client_settings, check_registry_settings, read_client_settings
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import AheadPolicy, CheckpointPolicy, Runtime, ViewFactory, WhenViewFails
from livegnn.wording import needs

if TYPE_CHECKING:
    from livegnn.connectors.kafka import Begin, KafkaTopic
    from livegnn.connectors.row_messages import Parse, RowMessages
    from livegnn.log.kafka import KafkaLog
    from livegnn.tables import TableMapping

FORMATS: Final = ("events", "rows", "debezium")
"""Of the messages of a source."""


@dataclass(frozen=True)
class ModelSection:
    """`[model]`: the file that `Model.save` wrote."""

    path: Path


@dataclass(frozen=True)
class ModelsSection:
    """`[models]`: where models are kept that are deployed while the server runs (see docs/deploying.md)."""

    directory: Path


@dataclass(frozen=True)
class GraphSection:
    """`[graph]`: the graph before the first event: a checkpoint, or arrays in an .npz file.

    The arrays are `src` and `dst`, and if need be `weight`, `time`, `edge_attr`, `x` and `ids`; they are the
    arguments of `Graph.from_edges`, as are `undirected`, `time_to_live`, 0 for none, and `parallel`.
    auto_add_nodes: as `auto_add` of `Runtime`.
    """

    path: Path
    undirected: bool = False
    time_to_live: float = 0.0
    parallel: str = "refuse"
    auto_add_nodes: list[str] | dict[str, list[float]] | None = None

    def __post_init__(self) -> None:
        _at_least(self, time_to_live=0)
        if self.parallel not in get_args(Parallel):
            raise InputError(
                f"parallel must be one of {', '.join(map(repr, get_args(Parallel)))}, got {self.parallel!r}"
            )


@dataclass(frozen=True)
class FeaturesSection:
    """`[features]`: where the features of nodes and edges lie in mapped files (see `Graph`)."""

    directory: Path


@dataclass(frozen=True)
class EngineSection:
    """`[engine]`: the fields of `EngineOptions`; threads is 0 for one on each core."""

    mode: str | list[str] = "eager"
    keep: str = "all"
    keep_degree: int = 0
    threads: int = 0
    history: int = 0
    non_finite: str = "refuse"
    state_dir: Path | None = None
    sample_seed: int | None = None
    follow: Sequence[str] = ()
    follow_limit: int = 1_000_000

    def __post_init__(self) -> None:
        self.options()

    def options(self) -> EngineOptions:
        """The same in the engine's terms."""
        return convert(self, EngineOptions, threads=self.threads or None)


@dataclass(frozen=True)
class ViewsSection:
    """`[views]`: further views of the graph by name, each as ``"module:name"`` of a function that makes one
    of a graph and a saved state, or None (see docs/views.md)."""

    factories: Mapping[str, str]

    def load(self) -> dict[str, ViewFactory]:
        """Imports them. Raises `InputError` for a name that does not exist, or cannot be called."""
        return {name: import_factory(name, path) for name, path in self.factories.items()}


@dataclass(frozen=True)
class LogSection:
    """`[log]`: the SQLite file of events, which is made when it is missing; or, instead, the brokers of Kafka
    and the topic. keep: "all" of it, or what is there "since_checkpoint", the oldest that is kept. client: of
    Kafka, settings of librdkafka for security.
    """

    path: Path | None = None
    kafka: str = ""
    topic: str = ""
    keep: str = "all"
    client: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_client_settings(self.client)
        if self.client and not self.kafka:
            raise InputError("client must stand with kafka, whose clients it is for, got it without")
        if (self.path is None) != bool(self.kafka) or bool(self.kafka) != bool(self.topic):
            raise InputError("there must be a path, or else kafka and topic, got both, none or a half")
        if self.keep not in ("all", "since_checkpoint"):
            raise InputError(f"keep must be 'all' or 'since_checkpoint', got {self.keep!r}")

    def place(self, beside: Path) -> str:
        """The identity of this log among others: its path from the folder `beside`, so that both may be moved
        together; or its topic."""
        if self.path is None:
            return f"{self.topic} at {self.kafka}"
        return os.path.relpath(self.path.resolve(), beside.resolve())

    def open(self) -> "SqliteLog | KafkaLog":
        """The log, owned by this process. Raises LogError, or InputError where Kafka's client is missing."""
        if self.path is not None:
            return SqliteLog(self.path)
        log: KafkaLog = _import_kafka("livegnn.log.kafka").KafkaLog(
            self.kafka, self.topic, settings=read_client_settings(self.client)
        )
        return log

    def create(self, partitions: int, replication: int) -> None:
        """Makes the topics of a log in Kafka. Raises LogError, or InputError if it is none."""
        if self.path is not None:
            raise InputError(f"only a log in Kafka has topics, got {self.path}: it is made when it is opened")
        kafka = _import_kafka("livegnn.log.kafka")
        settings = read_client_settings(self.client)
        kafka.create_topics(self.kafka, self.topic, partitions, replication=replication, settings=settings)

    @property
    def file(self) -> Path:
        """The SQLite file. Raises InputError if the log is in Kafka."""
        if self.path is None:
            raise InputError(f"this needs a log in an SQLite file, got the topic {self.topic!r} of Kafka")
        return self.path


@dataclass(frozen=True)
class SourceSection:
    """`[sources.NAME]`: a topic at the brokers `kafka`. begin: where to begin if it was never read, with the
    "first" message, or after the "last". format: of the messages, one of `FORMATS`. table: the mapping of
    rows, the section [tables.TABLE]; None for events. registry: settings of the client of a schema registry,
    for rows in Avro; without them rows are JSON. client: as of `[log]`.
    """

    kafka: str
    topic: str
    begin: str = "first"
    format: str = "events"
    table: str | None = None
    registry: Mapping[str, str] = field(default_factory=dict)
    client: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_client_settings(self.client)
        for name, value in (("kafka", self.kafka), ("topic", self.topic)):
            if not value:
                raise InputError(f"{name} must be text, got none")
        if self.begin not in ("first", "last"):
            raise InputError(f"begin must be 'first' or 'last', got {self.begin!r}")
        if self.format not in FORMATS:
            raise InputError(f"format must be one of {', '.join(FORMATS)}, got {self.format!r}")
        if (self.table is None) != (self.format == "events"):
            got = "none" if self.table is None else repr(self.table)
            raise InputError(
                'table must name the mapping of messages that are rows, format = "rows" or "debezium", '
                f"got {got} with the format {self.format!r}"
            )
        if self.registry:
            check_registry_settings(self.registry)
        if self.registry and self.table is None:
            raise InputError(
                'registry is for rows in Avro, format = "rows" or "debezium", got it with "events"'
            )

    def connect(self, name: str, runtime: Runtime, tables: "Mapping[str, TableMapping]") -> "KafkaTopic":
        """The source, not started yet. Raises InputError where Kafka's client, or pyarrow for rows, is
        missing."""
        topics = _import_kafka("livegnn.connectors.kafka")
        rows = self._rows(name, runtime, tables)
        source: KafkaTopic = topics.KafkaTopic(
            runtime,
            self.kafka,
            self.topic,
            name=name,
            begin=cast("Begin", self.begin),
            settings=read_client_settings(self.client),
            decode=None if rows is None else rows.decode,
            join=None if rows is None else rows.join,
        )
        return source

    def _rows(
        self, name: str, runtime: Runtime, tables: "Mapping[str, TableMapping]"
    ) -> "RowMessages | None":
        """The reader of messages; None for events."""
        if self.table is None:
            return None
        try:
            from livegnn.connectors.row_messages import RowMessages
            from livegnn.tables import TableReader

            reader = TableReader(tables[self.table], runtime.graph.schema, f"[tables.{self.table}]")
        except ModuleNotFoundError as error:
            if error.name != "pyarrow":
                raise
            raise InputError(needs(f"[sources.{name}]", "pyarrow", error, "arrow")) from error
        return RowMessages(reader, row_parser(f"[sources.{name}]", self.format, self.registry))

    def check_skip(self, partition: int, offset: int) -> None:
        """Raises InputError for a partition or offset that the topic does not have; SourceError if no broker
        answers."""
        settings = read_client_settings(self.client)
        _import_kafka("livegnn.connectors.kafka").check_skip(
            self.kafka, self.topic, partition, offset, settings
        )


def row_parser(place: str, format: str, registry: Mapping[str, str]) -> "Parse":
    """The reader of a message that is a row or a change of one. Raises InputError where the client of a
    schema registry is missing."""
    import livegnn.connectors.row_messages as rows

    if not registry:
        return rows.parse_row if format == "rows" else rows.parse_change
    try:
        from livegnn.connectors.avro import AvroRecords
    except ModuleNotFoundError as error:
        raise InputError(needs(f"registry of {place}", "fastavro", error, "avro")) from error
    records = AvroRecords(read_client_settings(registry, "registry"))
    return records.parse_row if format == "rows" else records.parse_change


def check_sources(sources: Mapping[str, SourceSection], tables: "Mapping[str, TableMapping]") -> None:
    """Raises InputError if a source names a mapping that the deployment does not have."""
    for name, section in sources.items():
        if section.table is not None and section.table not in tables:
            known = ", ".join(tables) or "none"
            raise InputError(
                f"table of [sources.{name}] must be the name of a section [tables.NAME], got "
                f"{section.table!r}; there are: {known}"
            )


@dataclass(frozen=True)
class CheckpointSection:
    """`[checkpoint]`: the folder of checkpoints and when they are written; 0 for never. beside: whether a
    forked process writes them while events are applied. full_every: at least one in this number shares no
    blocks."""

    directory: Path
    every_events: int = 100_000
    every_seconds: float = 0.0
    beside: bool = True
    full_every: int = 8

    def __post_init__(self) -> None:
        _at_least(self, every_events=0, every_seconds=0, full_every=1)

    def policy(self, *, trim_log: bool = False) -> CheckpointPolicy:
        """The same in the runtime's terms."""
        events, seconds = self.every_events or None, self.every_seconds or None
        return convert(self, CheckpointPolicy, every_events=events, every_seconds=seconds, trim_log=trim_log)


def checkpoint_policy(checkpoint: CheckpointSection | None, log: LogSection) -> CheckpointPolicy | None:
    """When checkpoints are written, and whether the log is trimmed then; None without checkpoints."""
    trim_log = log.keep == "since_checkpoint"
    return None if checkpoint is None else checkpoint.policy(trim_log=trim_log)


@dataclass(frozen=True)
class RuntimeSection:
    """`[runtime]`: how many events are merged into a batch at most; how often edges expire, 0 for never, and
    by which time: the latest of the "events", or the machine's "clock"; which share of them expires unasked,
    and how many edges at any share; how far the time of an event may be ahead, 0 for any, and of which time;
    how often some aggregates are compared with a recomputation, 0 for never; whether the loop stops when a
    view fails, or builds it again; after how many events a start computes the views from the graph instead of
    letting them follow the replay, 0 for never. As in `Runtime`, with 0 for None: freshness_ms,
    max_waiting_events, max_waiting_ms."""

    max_batch_events: int = 4096
    freshness_ms: float = 0.0
    max_waiting_events: int = 0
    max_waiting_ms: float = 0.0
    expire_every_seconds: float = 60.0
    expire_by: str = "events"
    max_expired_share: float = 0.5
    ask_from_edges: int | None = None
    max_ahead: float = 0.0
    ahead_of: str = "events"
    scrub_every_seconds: float = 10.0
    when_view_fails: str = "stop"
    recompute_after_events: int = 0

    def __post_init__(self) -> None:
        _at_least(
            self,
            max_batch_events=1,
            freshness_ms=0,
            recompute_after_events=0,
            max_waiting_events=0,
            max_waiting_ms=0,
            expire_every_seconds=0,
            scrub_every_seconds=0,
            max_ahead=0,
            ask_from_edges=1,
        )
        check_share(self.max_expired_share, "max_expired_share")
        if self.when_view_fails not in get_args(WhenViewFails):
            raise InputError(f"when_view_fails must be 'stop' or 'rebuild', got {self.when_view_fails!r}")
        for name, value in (("expire_by", self.expire_by), ("ahead_of", self.ahead_of)):
            if value not in ("events", "clock"):
                raise InputError(f"{name} must be 'events' or 'clock', got {value!r}")

    def expiry(self) -> ExpiryPolicy | None:
        """The same in the runtime's terms; the clock counts seconds since 1970."""
        if not self.expire_every_seconds:
            return None
        now = time.time if self.expire_by == "clock" else None
        return ExpiryPolicy(self.expire_every_seconds, now, self.max_expired_share, self.ask_from_edges)

    def ahead(self) -> AheadPolicy | None:
        """The same in the runtime's terms; the clock counts seconds since 1970."""
        if not self.max_ahead:
            return None
        return AheadPolicy(self.max_ahead, time.time if self.ahead_of == "clock" else None)

    def scrub(self) -> ScrubPolicy | None:
        """The same in the runtime's terms."""
        return ScrubPolicy(self.scrub_every_seconds) if self.scrub_every_seconds else None


@dataclass(frozen=True)
class ServerSection(AccessSettings):
    """`[server]`: the address to listen at; port 0 is any free one; and the clients to admit. when_failed:
    what the process does when a batch could not be applied and the loop has ended: "exit" with status 1, or
    "wait" and answer reads, which are marked as stale. largest_json_bytes: of JSON that becomes Python
    objects as a whole, a body or a line of events. largest_body_bytes: of a body of events, which is read
    line by line. largest_answer_numbers: predictions in an answer, or neighbours with the columns of their
    edges.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    when_failed: str = "exit"
    largest_json_bytes: int = 2**20
    largest_body_bytes: int = 8 * 2**20
    largest_answer_numbers: int = 500_000

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise InputError(f"port must be from 0 to 65535, got {self.port}")
        for name in ("largest_json_bytes", "largest_body_bytes", "largest_answer_numbers"):
            check_int(getattr(self, name), name, 1024)
        if self.when_failed not in ("exit", "wait"):
            raise InputError(f"when_failed must be 'exit' or 'wait', got {self.when_failed!r}")
        self.check_address(self.host)


def _import_kafka(module: str) -> ModuleType:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise InputError(
            f"what is in Kafka needs {error.name}, which is not installed: pip install 'livegnn[kafka]'"
        ) from error


def _at_least(section: object, **least: int) -> None:
    for name, number in least.items():
        value: float | None = getattr(section, name)
        if value is not None and not value >= number:
            raise InputError(f"{name} must be at least {number}, got {value}")
