"""`[sinks.NAME]`: a writer of predictions to another system, and the filter of these (see docs/sinks.md)."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final

from livegnn.arguments import check_int, check_not_negative
from livegnn.connectors.edge_sink_view import EdgeSinkView
from livegnn.connectors.row_filter import RowFilter
from livegnn.connectors.sink import Sink
from livegnn.connectors.sink_view import PREFIX, SinkView
from livegnn.errors import InputError
from livegnn.graph import Graph, View
from livegnn.log.client_settings import check_client_settings, read_client_settings, read_secret
from livegnn.runtime import Runtime, ViewFactory
from livegnn.types import State
from livegnn.wording import kind_of, needs

_KEYS: Final[Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "kafka": (("kafka", "topic"), ("client",)),
    "postgresql": (("connection", "table"), ("columns",)),
    "parquet": (("directory",), ()),
    "jsonlines": (("directory",), ("rotate_bytes",)),
    "": ((), ("options",)),
}
"""The keys that each kind of sink must have, and those that it may have; "" is one of your own."""

_OF_ALL: Final = (
    "kind",
    "model",
    "edges",
    "class_changed",
    "threshold",
    "column",
    "moved_by",
    "every_seconds",
)
_EVERY_SECONDS: Final = {"parquet": 60.0}
_MOST_ROWS: Final = {"parquet": 1 << 17}


@dataclass(frozen=True)
class SinkSection:
    """`[sinks.NAME]`.

    kind: "kafka", "postgresql", "parquet" or "jsonlines", or ``"module:name"`` of a function that makes a
    `Sink` from `options`. model: whose predictions; by default the serving one's. edges: the edge output
    whose scores are sent, in place of predictions.
    class_changed, threshold, column, moved_by: as of `RowFilter`. every_seconds: between two rounds; by
    default 0.1, and 60 for Parquet. directory, rotate_bytes: of files. kafka, topic, client: as of a source.
    connection, table, columns: as of `PostgresqlTable`; a connection may be "env:NAME".
    """

    kind: str
    model: str | None = None
    edges: str | None = None
    class_changed: bool = False
    threshold: float | None = None
    column: int = 0
    moved_by: float | None = None
    every_seconds: float | None = None
    directory: Path | None = None
    rotate_bytes: int = 64 << 20
    kafka: str = ""
    topic: str = ""
    client: Mapping[str, str] = field(default_factory=dict)
    connection: str = field(default="", repr=False)  # it may have a password
    table: str = ""
    columns: str | list[str] = "prediction"
    options: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        kind = "" if ":" in self.kind else self.kind
        if kind not in _KEYS or self.kind == "":
            known = ", ".join(map(repr, filter(None, _KEYS)))
            raise InputError(f"kind must be one of {known}, or 'module:name', got {self.kind!r}")
        needed, admitted = _KEYS[kind]
        for part in fields(self):
            if part.name in (*_OF_ALL, *admitted):
                continue
            default = part.default_factory() if callable(part.default_factory) else part.default
            given = getattr(self, part.name) != default
            if part.name in needed and not given:
                raise InputError(f"{part.name} must be given for a sink of the kind {self.kind!r}, got none")
            if part.name not in needed and given:
                raise InputError(f"{part.name} is not of a sink of the kind {self.kind!r}: leave it out")
        check_client_settings(self.client)
        if self.every_seconds is not None:
            check_not_negative(self.every_seconds, "every_seconds")
        check_int(self.rotate_bytes, "rotate_bytes", 1)
        self.filter()

    def filter(self) -> RowFilter | None:
        """The conditions of rows; None if all are sent."""
        if not (self.class_changed or self.column or self.threshold is not None or self.moved_by is not None):
            return None
        return RowFilter(self.class_changed, self.threshold, self.column, self.moved_by)

    def factory(self, name: str) -> ViewFactory:
        """The factory of the view of the sink `name`. Raises InputError where a package is missing."""
        return partial(self._make, name, self._connect(name))

    def _make(self, name: str, sink: Sink, graph: Graph, state: State | None) -> SinkView:
        every = _EVERY_SECONDS.get(self.kind, 0.1) if self.every_seconds is None else self.every_seconds
        make = SinkView if self.edges is None else partial(EdgeSinkView, edges=self.edges)
        return make(
            graph,
            sink,
            name=view_name(name),
            model=self.model,
            filter=self.filter(),
            every_seconds=every,
            most_rows=_MOST_ROWS.get(self.kind, 4096),
            state=state,
        )

    def _connect(self, name: str) -> Sink:
        if ":" in self.kind:
            return self._make_own(name)
        assert self.directory is not None or self.kind in ("kafka", "postgresql")
        sink: Sink
        if self.kind == "kafka":
            kafka = _import(name, "kafka_sink", "kafka")
            settings = read_client_settings(self.client)
            sink = kafka.KafkaTopicSink(self.kafka, self.topic, name=name, settings=settings)
        elif self.kind == "postgresql":
            postgresql = _import(name, "postgresql_sink", "postgresql")
            connection = read_secret(f"connection in [sinks.{name}]", self.connection)
            sink = postgresql.PostgresqlTable(connection, self.table, columns=self.columns)
        elif self.kind == "parquet":
            sink = _import(name, "parquet_sink", "arrow").ParquetFolder(self.directory)
        else:
            lines = _import(name, "json_lines_sink", "")
            sink = lines.JsonLinesFolder(self.directory, rotate_bytes=self.rotate_bytes)
        return sink

    def _make_own(self, name: str) -> Sink:
        module, _, attribute = self.kind.partition(":")
        try:
            make = getattr(import_module(module), attribute)
            made: Sink = make(**self.options)
        except (ImportError, AttributeError, ValueError, TypeError) as error:
            raise InputError(f"kind of [sinks.{name}]: {self.kind!r} makes no sink: {error}") from error
        if not (callable(getattr(made, "write", None)) and callable(getattr(made, "close", None))):
            raise InputError(
                f"kind of [sinks.{name}]: {self.kind!r} must make a sink, with the methods write and close, "
                f"got {kind_of(made)}"
            )
        return made


def view_name(name: str) -> str:
    """The name of the view of the sink `name`, and of its section in checkpoints."""
    return f"{PREFIX}{name}"


def sink_factories(sinks: Mapping[str, SinkSection]) -> dict[str, ViewFactory]:
    """The factories of their views, by name. Raises InputError, also for two sinks in one place."""
    places: dict[tuple[object, ...], str] = {}
    for name, section in sinks.items():
        if section.options or ":" in section.kind:
            continue
        place = section.directory, section.kafka, section.topic, section.connection, section.table
        if (other := places.setdefault(place, name)) != name:
            raise InputError(
                f"each sink must have a folder, topic or table of its own, got [sinks.{other}] and "
                f"[sinks.{name}] with the same"
            )
    return {view_name(name): section.factory(name) for name, section in sinks.items()}


def start_sinks(runtime: Runtime) -> None:
    """Lets the views of sinks send, once the runtime has replayed its log, also those that are built again
    later. Raises InputError."""

    def start(view: View) -> None:
        if isinstance(view, SinkView):
            view.start(runtime)

    for view in list(runtime.views.values()):
        start(view)
    runtime.follow_rebuilds(start)


def _import(name: str, module: str, extra: str) -> ModuleType:
    try:
        return import_module(f"livegnn.connectors.{module}")
    except ImportError as error:
        raise InputError(needs(f"[sinks.{name}]", str(error.name), error, extra)) from error
