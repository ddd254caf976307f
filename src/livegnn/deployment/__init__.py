"""A deployment: what `livegnn serve` runs, as written in a TOML file (see docs/deployment.md)."""

import hashlib
import json
import logging
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from livegnn.arguments import as_path
from livegnn.deployment.arrays import read_arrays
from livegnn.deployment.checkpoint_graph import is_checkpoint, load_checkpoint
from livegnn.deployment.directories import Named, own_directories, refuse_missing, write_mark
from livegnn.deployment.growing import grow_to_tables
from livegnn.deployment.mapped_inputs import refuse_exchanged
from livegnn.deployment.missing_numbers import refuse_unreplaced
from livegnn.deployment.models import ModelDirectory
from livegnn.deployment.parsing import (
    parse_named,
    parse_section,
    parse_tables,
    parse_views,
    refuse_moved,
    refuse_unknown,
)
from livegnn.deployment.partitions import Division, refuse_sections
from livegnn.deployment.quality import LabelsSection, QualitySection, check_labels
from livegnn.deployment.sections import (
    CheckpointSection,
    EngineSection,
    FeaturesSection,
    GraphSection,
    LogSection,
    ModelSection,
    ModelsSection,
    RuntimeSection,
    ServerSection,
    SourceSection,
    ViewsSection,
    check_sources,
    checkpoint_policy,
)
from livegnn.deployment.sinks import SinkSection, sink_factories, view_name
from livegnn.deployment.snapshots import SnapshotsSection
from livegnn.deployment.worker_sections import ClusterSection, WorkersSection, hold_log
from livegnn.errors import FileFormatError, InputError, ModelError
from livegnn.graph import Graph, Parallel, Schema, View, auto_add_nodes
from livegnn.model import Model
from livegnn.presampling import predictor_factory
from livegnn.runtime import (
    ModelRegister,
    Nothing,
    Runtime,
    ViewFactory,
    WhenViewFails,
    count_recorded,
    grows_later,
    restore,
    schema_properties,
)
from livegnn.sampling.request import chosen_seed
from livegnn.tables import TableMapping

if TYPE_CHECKING:
    from livegnn.connectors.kafka import KafkaTopic
    from livegnn.log.kafka import KafkaLog
    from livegnn.log.sqlite import SqliteLog

_ARRAYS: Final = ("src", "dst", "weight", "time", "edge_attr", "x", "ids")
_BOUND: Final = {"graph": ("undirected", "time_to_live", "parallel")}
"""Settings that decide what events do to the graph, by section: a log is bound to them."""

_SEED: Final = "engine/drawn sample_seed"
_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Deployment:
    """All sections of the file. Paths in it are relative to the file itself.

    file: where it is, if it was read from one.
    """

    graph: GraphSection
    log: LogSection
    model: ModelSection | None = None
    models: ModelsSection | None = None
    features: FeaturesSection | None = None
    engine: EngineSection = field(default_factory=EngineSection)
    views: ViewsSection | None = None
    sources: Mapping[str, SourceSection] = field(default_factory=dict)
    sinks: Mapping[str, SinkSection] = field(default_factory=dict)
    tables: Mapping[str, TableMapping] = field(default_factory=dict)
    labels: Mapping[str, LabelsSection] = field(default_factory=dict)
    quality: QualitySection | None = None
    checkpoint: CheckpointSection | None = None
    runtime: RuntimeSection = field(default_factory=RuntimeSection)
    server: ServerSection = field(default_factory=ServerSection)
    workers: WorkersSection | None = None
    cluster: ClusterSection = field(default_factory=ClusterSection)
    snapshots: SnapshotsSection | None = None
    file: Path | None = None

    def __post_init__(self) -> None:
        if self.log.keep == "since_checkpoint" and self.checkpoint is None:
            raise InputError("keep = 'since_checkpoint' in [log] needs a section [checkpoint]")
        check_sources(self.sources, self.tables)
        check_labels(self.labels, self.sinks, self.quality)
        if self.cluster.partitions:
            given = [it.name for it in fields(self) if getattr(self, it.name) is not None]
            refuse_sections(given, self.engine, self.runtime)

    @classmethod
    def read(cls, path: Path | str) -> "Deployment":
        """Reads a file. Raises InputError for a missing, unknown or wrong value; OSError."""
        path = as_path(path, "path")
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{path} must be a TOML file, got: {error}") from error
        try:
            return replace(cls.parse(content, path.parent), file=path)
        except InputError as error:
            raise InputError(f"{path}: {error}") from error

    @classmethod
    def parse(cls, content: Mapping[str, object], directory: Path) -> "Deployment":
        """The deployment that `content` describes; paths are relative to `directory`."""
        types = {
            "model": ModelSection,
            "models": ModelsSection,
            "graph": GraphSection,
            "features": FeaturesSection,
            "engine": EngineSection,
            "views": ViewsSection,
            "log": LogSection,
            "sources": SourceSection,
            "sinks": SinkSection,
            "tables": TableMapping,
            "labels": LabelsSection,
            "quality": QualitySection,
            "checkpoint": CheckpointSection,
            "runtime": RuntimeSection,
            "server": ServerSection,
            "workers": WorkersSection,
            "cluster": ClusterSection,
            "snapshots": SnapshotsSection,
        }
        refuse_moved(content)
        refuse_unknown(content, types, "section")
        sections: dict[str, Any] = {}
        for name, type_ in types.items():
            if name == "views" and name in content:
                sections[name] = ViewsSection(parse_views(content[name]))
                parts = {"model": "engine", "snapshots": "snapshots"}
                taken = {*View.reserved_names, *(name for part, name in parts.items() if part in content)}
                if clashes := sorted(taken & sections[name].factories.keys()):
                    raise InputError(
                        f"a name in [views] must not be {clashes[0]!r}, which is another part of a deployment"
                    )
            elif name in ("sources", "sinks", "labels") and name in content:
                sections[name] = parse_named(name, type_, content[name], directory)
            elif name == "tables" and name in content:
                sections[name] = parse_tables(content[name], directory)
            elif name in content:
                sections[name] = parse_section(name, type_, content[name], directory)
            elif name in ("graph", "log"):
                raise InputError(f"there must be a section [{name}], got {', '.join(content) or 'none'}")
        # Set here, where it is known beside which file.
        if "snapshots" in sections:
            sections["snapshots"] = sections["snapshots"].beside(directory)
        sections.setdefault("models", ModelsSection(directory / "models"))
        return cls(**sections)

    def load_graph(self) -> Graph:
        """The graph before the first event. Raises FileFormatError, InputError or OSError."""
        path = self.graph.path
        if is_checkpoint(path):
            graph = load_checkpoint(path, self._features_dir)
            graph.seq = 0
            return graph
        arrays = read_arrays(path)
        for name in ("src", "dst"):
            if name not in arrays:
                raise FileFormatError(
                    f"{path} must hold an array {name!r}, got {', '.join(arrays) or 'none'}"
                )
        refuse_unknown(arrays, dict.fromkeys(_ARRAYS), f"array of {path}")
        src, dst = arrays.pop("src"), arrays.pop("dst")
        return Graph.from_edges(
            src,
            dst,
            undirected=self.graph.undirected,
            time_to_live=self.graph.time_to_live or None,
            parallel=cast("Parallel", self.graph.parallel),
            features_dir=self._features_dir,
            **cast("dict[str, Any]", arrays),
        )

    def load_empty_schema(self, readers: str) -> Schema:
        """The schema of the graph, for readers that begin without one. Raises as `load_graph` and
        `complete_schema`, and InputError for a graph with nodes."""
        graph = self.load_graph()
        if any(graph.num_nodes(name) for name in graph.schema.node_types):
            raise InputError(
                f"the graph in {self.graph.path} must be empty, because {readers} know what the log says "
                "alone: append its nodes and edges as events"
            )
        self.complete_schema(graph)
        return graph.schema

    def complete_schema(self, graph: Graph) -> None:
        """Adds `auto_add_nodes` to a graph's schema. Raises InputError if that is impossible, or if the
        settings with which a checkpoint's graph was made do not fit the deployment.
        """
        self._check_settings(graph)
        if self.graph.auto_add_nodes is not None:
            auto_add_nodes(graph.core, self.graph.auto_add_nodes)

    def _check_settings(self, graph: Graph) -> None:
        try:
            if is_checkpoint(self.graph.path):  # a checkpoint has its own settings
                return
        except FileNotFoundError:
            pass
        (edges,) = graph.schema.edge_types.values()
        parallel, auto_add = self.graph.parallel, self.graph.auto_add_nodes or ()
        if {"sum": "add", "keep": "keep"}.get(parallel, "replace") != edges.duplicates:
            parallel = {"add": "sum", "keep": "keep", "replace": "refuse"}[edges.duplicates]
        for setting, kept, said in (
            ("time_to_live", edges.time_to_live or 0.0, self.graph.time_to_live),
            ("undirected", edges.undirected, self.graph.undirected),
            ("parallel", parallel, self.graph.parallel),
            ("auto_add_nodes", sorted(graph.schema.auto_add), sorted({*graph.schema.auto_add} & {*auto_add})),
        ):
            if kept != said:
                raise InputError(
                    f"{setting} in [graph] must be {kept!r}, as when the graph of the checkpoints was made, "
                    f"got {said!r}: write that, or remove the checkpoints, so that the log is replayed with "
                    "the new setting"
                )

    @property
    def _features_dir(self) -> Path | None:
        return None if self.features is None else self.features.directory

    def open(self) -> Runtime:
        """A runtime at the end of the recorded batches of the log, not started yet.

        Raises LogError if the log is damaged, is missing where something says that there was one, or is not
        the one of the checkpoints; InputError if a directory that the deployment names is another log's.
        """
        place = self.log.path
        if place is not None:
            refuse_missing(place, [*self._written(), *self._written_later()], self.file)
        division, factories = self._divide(), self.factories()
        log = self.log.open()
        try:
            properties = self.properties()
            log.check_bound(properties)  # before anything of another graph is written to files
            if self.engine.sample_seed is None:
                properties[_SEED] = log.bound().get(_SEED) or str(chosen_seed(None))
            seeded = self.with_seed_of(properties)
            if self.model is not None and seeded is not self:
                factories["engine"] = predictor_factory(Model.load(self.model.path), seeded.engine.options())
            if self.workers is not None:
                log.directories.record()  # the log's identity, by which workers know their directory
            own_directories(self._written(), log.directories)
            if self.snapshots is not None:
                self.snapshots.refuse_foreign(log.directories)
            deployed = None
            if self.models is not None:
                owned = log.directories.own(self.models.directory, "models")
                deployed = ModelDirectory(owned, self.log.place(owned.directory))
                deployed.clean()
                if division is not None and deployed.names:
                    raise InputError(
                        f"a graph in parts must have the model of the deployment alone, got others in "
                        f"{deployed.directory}: remove them while it is served without partitions"
                    )
                seeded._add_deployed(factories, deployed)
            if self.snapshots is not None:
                factories["snapshots"] = self.snapshots.factory(log.directories.record())
            runtime = self._open(factories, log, deployed, properties, division)
            if place is not None and self.file is not None:
                write_mark(place, self.file, log.directories)
        except BaseException:
            log.close()
            raise
        return runtime

    def _divide(self) -> Division | None:
        """The parts of the graph, if it has some."""
        if not self.cluster.partitions:
            return None
        assert self.model is not None
        graph, model = self.load_graph(), Model.load(self.model.path)
        self.complete_schema(graph)
        options = self.engine.options()
        division = Division(graph.schema, self.complete_schema, model, options, self.cluster, log=self.log)
        division.check_beginning(graph, self.checkpoint)
        return division

    def _written(self) -> Iterator[Named]:
        """The directories that a start writes to."""
        if self.checkpoint is not None:
            yield Named("checkpoints", self.checkpoint.directory)
        if self.features is not None:
            yield Named("features", self.features.directory)
        if self.engine.state_dir is not None:
            yield Named("rows", self.engine.state_dir)
        if self.snapshots is not None and (folder := self.snapshots.folder) is not None:
            yield Named("snapshots", folder)
        if self.quality is not None:
            yield Named("figures", self.quality.directory)

    def _written_later(self) -> Iterator[Named]:
        """Those that only some requests and processes write to."""
        if self.models is not None:
            yield Named("models", self.models.directory)
        if self.workers is not None:
            yield Named("workers", self.workers.directory)

    def _add_deployed(self, factories: dict[str, ViewFactory], deployed: ModelDirectory) -> None:
        """Adds what makes the engines of deployed models."""
        if deployed.names:
            options = self.engine.options()
            for name, model in deployed.load().items():
                if name in factories:
                    raise InputError(
                        f"the views must have names of their own, got {name!r} for a deployed model in "
                        f"{deployed.directory} too: rename the view"
                    )
                mode = deployed.mode_of(name)
                own = options if mode is None else options.in_mode(mode)
                factories[name] = predictor_factory(model, own, name=name)

    def with_seed_of(self, bound: Mapping[str, str]) -> "Deployment":
        """The same with the seed of samples that was drawn for a log, unless the file gives one.

        bound: the properties of the log. The seed is kept there, where clients cannot read it: with the seed,
        ids can be chosen that are sampled.
        """
        if self.engine.sample_seed is not None or _SEED not in bound:
            return self
        return replace(self, engine=replace(self.engine, sample_seed=int(bound[_SEED])))

    def listening_at(self, host: str | None, port: int | None) -> "Deployment":
        """The same with another address of the server, where one is given. Raises InputError as the section
        does, for instance if other machines could send requests and there are no keys."""
        given = {"host": host, "port": port}
        changed = {name: value for name, value in given.items() if value is not None}
        return replace(self, server=replace(self.server, **changed)) if changed else self  # type: ignore[arg-type]

    def connect(self, runtime: Runtime) -> "list[KafkaTopic]":
        """The sources that read into the log of `runtime`, not started yet. Raises InputError."""
        return [section.connect(name, runtime, self.tables) for name, section in self.sources.items()]

    def properties(self) -> dict[str, str]:
        """The properties of the log of this deployment, besides the graph's schema: its base, and settings.

        The base is missing where its file is: a checkpoint may make it unnecessary. Raises OSError.
        """
        settings = {
            f"{section}/{name}": json.dumps(getattr(getattr(self, section), name))
            for section, names in _BOUND.items()
            for name in names
        }
        try:
            with open(self.graph.path, "rb") as file:
                base = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16))
        except FileNotFoundError:
            return settings
        return {"graph/digest of path": base.hexdigest(), **settings}

    def factories(self, *, in_memory: bool = False) -> dict[str, ViewFactory]:
        """The factories of the engine and the other views, by name.

        in_memory: without `state_dir`, [snapshots] and [sinks]. Raises ModelError, FileFormatError,
        InputError or OSError.
        """
        options = self.engine.options()
        if in_memory:
            options = replace(options, state_dir=None)
        factories: dict[str, ViewFactory] = {}
        if self.model is not None:
            model = Model.load(self.model.path)
            refuse_unreplaced(model, self.tables)
            refuse_exchanged(model, self.tables)
            factories["engine"] = predictor_factory(model, options)
        if self.views is not None:
            factories |= self.views.load()
        if self.snapshots is not None and not in_memory:
            factories["snapshots"] = self.snapshots.factory()
        return factories if in_memory else factories | sink_factories(self.sinks)

    def _open(
        self,
        factories: Mapping[str, ViewFactory],
        log: "SqliteLog | KafkaLog",
        deployed: ModelDirectory | None,
        properties: Mapping[str, str],
        division: Division | None,
    ) -> Runtime:
        directory = None if self.checkpoint is None else self.checkpoint.directory
        if division is not None:
            division.refuse_trimmed(log, directory)
            division.snapshots = factories.get("snapshots")
            division.sinks = {name: factories[name] for name in map(view_name, self.sinks)}
        most = self.runtime.recompute_after_events
        build = factories if most and count_recorded(log, directory) > most else {}
        begin = partial(
            restore, initial=self.load_graph, directory=directory, features_dir=self._features_dir, log=log
        )
        try:
            graph, views = begin({} if build else factories, maker=division)
        except ModelError as error:
            if build or division is not None or not grows_later(log, directory):
                raise
            # The model may read columns that the schema gets then.
            _logger.info("computes all predictions after the replay: %s", error)
            build, (graph, views) = factories, begin({})
        try:
            self.complete_schema(graph)
            log.bind({**properties, **schema_properties(graph.schema)})
            if self.workers is not None:
                hold_log(self.workers, self.log)
            register = Nothing() if deployed is None else deployed
            runtime = self._run(log, graph, views, factories, build, register)
            if self.workers is not None:
                runtime.fixed_schema = "[workers], which sample by the schema that they began with"
            grow_to_tables(runtime, log, self.tables)
            if division is not None and directory is not None:
                division.replace_lost(
                    views["engine"], partial(restore, factories, self.load_graph, directory=directory), log
                )
            if division is not None:
                division.announce(views["engine"])
        except BaseException:
            if division is not None:
                views["engine"].close()  # ends its processes
            raise
        return runtime

    def _run(
        self,
        log: "SqliteLog | KafkaLog",
        graph: Graph,
        views: Mapping[str, View],
        factories: Mapping[str, ViewFactory],
        build: Mapping[str, ViewFactory],
        register: ModelRegister,
    ) -> Runtime:
        return Runtime(
            log,
            graph,
            *views.values(),
            max_batch_events=self.runtime.max_batch_events,
            freshness_ms=self.runtime.freshness_ms or None,
            max_waiting_events=self.runtime.max_waiting_events or None,
            max_waiting_ms=self.runtime.max_waiting_ms or None,
            checkpoints=checkpoint_policy(self.checkpoint, self.log),
            expiry=self.runtime.expiry(),
            ahead=self.runtime.ahead(),
            when_view_fails=cast("WhenViewFails", self.runtime.when_view_fails),
            factories=factories,
            build=build,
            scrub=self.runtime.scrub(),
            register=register,
        )
