"""A deployment: what `livegnn serve` runs, as written in a TOML file (see docs/deployment.md)."""

import contextlib
import difflib
import hashlib
import json
import time
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TypeVar, cast, get_args, get_type_hints

import numpy as np

from livegnn import checkpoint
from livegnn.arguments import as_path, share
from livegnn.errors import FileFormatError, InputError
from livegnn.expiry import ExpiryPolicy
from livegnn.graph import Graph, Parallel, Schema, View
from livegnn.inference import Engine, EngineOptions, Keep, Mode, NonFinite, ScrubPolicy
from livegnn.log.sqlite import SqliteLog
from livegnn.model import Model
from livegnn.runtime import (
    AheadPolicy,
    CheckpointPolicy,
    Runtime,
    ViewFactory,
    WhenViewFails,
    restore,
    schema_properties,
)
from livegnn.wording import kind_of

_ARRAYS: Final = ("src", "dst", "weight", "time", "edge_attr", "x", "ids")
_BOUND: Final = {"graph": ("undirected", "time_to_live", "parallel")}
"""Settings that decide what events do to the graph, by section: a log is bound to them."""
_Section = TypeVar("_Section")


@dataclass(frozen=True)
class ModelSection:
    """`[model]`: the file that `Model.save` wrote."""

    path: Path


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
        _at_least(0, "time_to_live", self.time_to_live)
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

    def __post_init__(self) -> None:
        self.options()

    def options(self) -> EngineOptions:
        """The same in the engine's terms."""
        return EngineOptions(
            mode=cast("Mode", self.mode),
            keep=cast("Keep", self.keep),
            keep_degree=self.keep_degree,
            threads=self.threads or None,
            history=self.history,
            non_finite=cast("NonFinite", self.non_finite),
            state_dir=self.state_dir,
        )


@dataclass(frozen=True)
class ViewsSection:
    """`[views]`: further views of the graph by name, each as ``"module:name"`` of what makes one of a graph
    and a saved state, or None (see docs/views.md).
    """

    factories: Mapping[str, str]

    def load(self) -> dict[str, ViewFactory]:
        """Imports them. Raises `InputError` for what is not there, or cannot be called."""
        return {name: _import_factory(name, path) for name, path in self.factories.items()}


@dataclass(frozen=True)
class LogSection:
    """`[log]`: the SQLite file of events; it is made when it is missing. keep: "all" of it, or what is there
    "since_checkpoint", the oldest that is kept.
    """

    path: Path
    keep: str = "all"

    def __post_init__(self) -> None:
        if self.keep not in ("all", "since_checkpoint"):
            raise InputError(f"keep must be 'all' or 'since_checkpoint', got {self.keep!r}")


@dataclass(frozen=True)
class CheckpointSection:
    """`[checkpoint]`: where checkpoints go and when they are written; 0 for never. beside: whether a forked
    process writes them while events are applied.
    """

    directory: Path
    every_events: int = 100_000
    every_seconds: float = 0.0
    beside: bool = True

    def __post_init__(self) -> None:
        _at_least(0, "every_events", self.every_events)
        _at_least(0, "every_seconds", self.every_seconds)

    def policy(self, *, trim_log: bool = False) -> CheckpointPolicy:
        """The same in the runtime's terms."""
        return CheckpointPolicy(
            self.directory,
            self.every_events or None,
            self.every_seconds or None,
            beside=self.beside,
            trim_log=trim_log,
        )


@dataclass(frozen=True)
class RuntimeSection:
    """`[runtime]`: how many events are merged into a batch at most; how often edges expire, 0 for never, and
    by which time: the latest of the "events", or the machine's "clock"; which share of them expires unasked,
    and how many edges whatever their share; how far the time of an event may be ahead, 0 for any, and of
    what; how often some aggregates are compared with a recomputation, 0 for never; whether the loop stops
    when a view fails, or builds it again. Of `Runtime`, 0 for none: freshness_ms, max_waiting_events,
    max_waiting_ms.
    """

    max_batch_events: int = 4096
    freshness_ms: float = 0.0
    max_waiting_events: int = 0
    max_waiting_ms: float = 0.0
    expire_every_seconds: float = 60.0
    expire_by: str = "events"
    max_expired_share: float = 0.5
    ask_from_edges: int = 1000
    max_ahead: float = 0.0
    ahead_of: str = "events"
    scrub_every_seconds: float = 10.0
    when_view_fails: str = "stop"

    def __post_init__(self) -> None:
        _at_least(1, "max_batch_events", self.max_batch_events)
        _at_least(0, "freshness_ms", self.freshness_ms)
        _at_least(0, "max_waiting_events", self.max_waiting_events)
        _at_least(0, "max_waiting_ms", self.max_waiting_ms)
        _at_least(0, "expire_every_seconds", self.expire_every_seconds)
        _at_least(0, "scrub_every_seconds", self.scrub_every_seconds)
        _at_least(0, "max_ahead", self.max_ahead)
        _at_least(1, "ask_from_edges", self.ask_from_edges)
        share(self.max_expired_share, "max_expired_share")
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
class ServerSection:
    """`[server]`: the address to listen at; port 0 is any free one. when_failed: what the process does when a
    batch could not be applied and the loop has ended: "exit" with status 1, or "wait" and answer reads, which
    are marked as stale.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    when_failed: str = "exit"

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise InputError(f"port must be from 0 to 65535, got {self.port}")
        if self.when_failed not in ("exit", "wait"):
            raise InputError(f"when_failed must be 'exit' or 'wait', got {self.when_failed!r}")


@dataclass(frozen=True)
class Deployment:
    """All sections of the file. Paths in it are relative to the file itself."""

    graph: GraphSection
    log: LogSection
    model: ModelSection | None = None
    features: FeaturesSection | None = None
    engine: EngineSection = field(default_factory=EngineSection)
    views: ViewsSection | None = None
    checkpoint: CheckpointSection | None = None
    runtime: RuntimeSection = field(default_factory=RuntimeSection)
    server: ServerSection = field(default_factory=ServerSection)

    def __post_init__(self) -> None:
        if self.log.keep == "since_checkpoint" and self.checkpoint is None:
            raise InputError("keep = 'since_checkpoint' in [log] needs a section [checkpoint]")

    @classmethod
    def read(cls, path: Path | str) -> "Deployment":
        """Reads a file. Raises InputError for what is missing, unknown or of the wrong type; OSError."""
        path = as_path(path, "path")
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{path} must be a TOML file, got: {error}") from error
        try:
            return cls.parse(content, path.parent)
        except InputError as error:
            raise InputError(f"{path}: {error}") from error

    @classmethod
    def parse(cls, content: Mapping[str, object], directory: Path) -> "Deployment":
        """The deployment that `content` describes; paths are relative to `directory`."""
        types = {
            "model": ModelSection,
            "graph": GraphSection,
            "features": FeaturesSection,
            "engine": EngineSection,
            "views": ViewsSection,
            "log": LogSection,
            "checkpoint": CheckpointSection,
            "runtime": RuntimeSection,
            "server": ServerSection,
        }
        _refuse_moved(content)
        _refuse_unknown(content, types, "section")
        sections: dict[str, Any] = {}
        for name, type_ in types.items():
            if name == "views" and name in content:
                sections[name] = ViewsSection(_parse_views(content[name]))
                taken = {*View.reserved_names, *(("engine",) if "model" in content else ())}
                if clashes := sorted(taken & sections[name].factories.keys()):
                    raise InputError(
                        f"a name in [views] must not be {clashes[0]!r}, which is another part of a deployment"
                    )
            elif name in content:
                sections[name] = _parse_section(name, type_, content[name], directory)
            elif name in ("graph", "log"):
                raise InputError(f"there must be a section [{name}], got {', '.join(content) or 'none'}")
        return cls(**sections)

    def load_graph(self) -> Graph:
        """The graph before the first event. Raises FileFormatError, InputError or OSError."""
        path = self.graph.path
        with open(path, "rb") as file:
            magic = file.read(8)
        if magic == checkpoint.MAGIC:
            states = checkpoint.read(path).states
            if "graph" not in states:
                raise FileFormatError(
                    f"{path} must hold the state of a graph, got {', '.join(states) or 'none'}"
                )
            graph = Graph.from_state(states["graph"], features_dir=self._features_dir)
            graph.seq = 0
            return graph
        try:
            with np.load(path, allow_pickle=False) as file_:
                arrays = {name: file_[name] for name in file_.files}
        except (ValueError, EOFError, OSError) as error:
            raise FileFormatError(f"{path} must be a checkpoint or an .npz file, got: {error}") from error
        for name in ("src", "dst"):
            if name not in arrays:
                raise FileFormatError(
                    f"{path} must hold an array {name!r}, got {', '.join(arrays) or 'none'}"
                )
        _refuse_unknown(arrays, dict.fromkeys(_ARRAYS), f"array of {path}")
        src, dst = arrays.pop("src"), arrays.pop("dst")
        return Graph.from_edges(
            src,
            dst,
            undirected=self.graph.undirected,
            time_to_live=self.graph.time_to_live or None,
            parallel=cast("Parallel", self.graph.parallel),
            features_dir=self._features_dir,
            **arrays,
        )

    @property
    def _features_dir(self) -> Path | None:
        return None if self.features is None else self.features.directory

    def open(self) -> Runtime:
        """A runtime at the end of what the log has recorded, not started yet.

        Raises LogError if the log is damaged, or is not the one of the checkpoints.
        """
        factories = self.factories()
        log = SqliteLog(self.log.path)
        try:
            return self._open(factories, log)
        except BaseException:
            log.close()
            raise

    def properties(self) -> dict[str, str]:
        """What the log of this deployment is bound to, besides the graph's schema: its base, and settings.

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
        """What makes the engine and the other views, by name.

        in_memory: whatever `state_dir` says. Raises ModelError, FileFormatError, InputError or OSError.
        """
        options = self.engine.options()
        if in_memory:
            options = replace(options, state_dir=None)
        factories: dict[str, ViewFactory] = {}
        if self.model is not None:
            factories["engine"] = Engine.factory(Model.load(self.model.path), options)
        if self.views is not None:
            factories |= self.views.load()
        return factories

    def _checkpoint_policy(self) -> CheckpointPolicy | None:
        trim_log = self.log.keep == "since_checkpoint"
        return None if self.checkpoint is None else self.checkpoint.policy(trim_log=trim_log)

    def _open(self, factories: Mapping[str, ViewFactory], log: SqliteLog) -> Runtime:
        directory = None if self.checkpoint is None else self.checkpoint.directory
        properties = self.properties()
        log.check_bound(properties)  # before the features of another graph are written to files
        graph, views = restore(
            factories, self.load_graph, directory=directory, features_dir=self._features_dir, log=log
        )
        log.bind({**properties, **schema_properties(graph.schema)})
        return Runtime(
            log,
            graph,
            *views.values(),
            max_batch_events=self.runtime.max_batch_events,
            freshness_ms=self.runtime.freshness_ms or None,
            max_waiting_events=self.runtime.max_waiting_events or None,
            max_waiting_ms=self.runtime.max_waiting_ms or None,
            checkpoints=self._checkpoint_policy(),
            expiry=self.runtime.expiry(),
            ahead=self.runtime.ahead(),
            auto_add=self.graph.auto_add_nodes,
            when_view_fails=cast("WhenViewFails", self.runtime.when_view_fails),
            factories=factories,
            scrub=self.runtime.scrub(),
        )


def read_schema(path: Path | str) -> Schema:
    """The types of a graph: a deployment file's, a checkpoint's, or those of a schema's JSON in a file.

    Raises `FileFormatError` if it is none of these, `OSError` if it cannot be read.
    """
    path = as_path(path, "path")
    if path.suffix == ".toml":
        return Deployment.read(path).load_graph().schema
    with open(path, "rb") as file:
        begin = file.read(len(checkpoint.MAGIC))
    if begin == checkpoint.MAGIC:
        states = checkpoint.read(path).states
        if "graph" in states:
            return Schema.from_json(states["graph"].meta.get("schema"))
    else:
        with contextlib.suppress(ValueError):
            return Schema.from_json(json.loads(path.read_bytes()))
    raise FileFormatError(
        f"{path} must be a deployment file (.toml), a checkpoint with a graph, or the JSON of Schema.to_json"
    )


def _at_least(least: int, name: str, value: float) -> None:
    if not value >= least:
        raise InputError(f"{name} must be at least {least}, got {value}")


def _refuse_moved(content: Mapping[str, object]) -> None:
    """Says where keys are that stood elsewhere before."""
    if "state" in content:
        raise InputError("the section [state] has become the key state_dir in [engine]: write it there")
    runtime = content.get("runtime")
    for name in ("threads", "history", "non_finite"):
        if isinstance(runtime, dict) and name in runtime:
            raise InputError(f"{name} has moved from [runtime] to [engine]: write it there")


def _refuse_unknown(content: Mapping[str, object], known: Mapping[str, object], what: str) -> None:
    for name in content:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
            raise InputError(f"unknown {what} {name!r}: {hint}")


def _parse_section(name: str, type_: type[_Section], content: object, directory: Path) -> _Section:
    """One section, its values checked against the annotations of `type_`."""
    if not isinstance(content, dict):
        raise InputError(f"{name} must be a section [{name}], got {content!r}")
    known = {part.name: part for part in fields(type_)}  # type: ignore[arg-type]
    _refuse_unknown(content, known, f"key in [{name}]:")
    hints = get_type_hints(type_)
    values: dict[str, Any] = {}
    for key, part in known.items():
        if key in content:
            values[key] = _parse_value(f"{key} in [{name}]", hints[key], content[key], directory)
        elif part.default is MISSING:
            raise InputError(f"[{name}] must have a value for {key!r}, got {', '.join(content) or 'nothing'}")
    try:
        return type_(**values)
    except InputError as error:
        raise InputError(f"[{name}]: {error}") from error


def _parse_views(content: object) -> dict[str, str]:
    if not isinstance(content, dict):
        raise InputError(f"views must be a section [views], got {content!r}")
    for name, path in content.items():
        if not isinstance(path, str) or len(path.split(":")) != 2:
            raise InputError(f'{name} in [views] must be text like "module:name", got {path!r}')
    return content


def _import_factory(name: str, path: str) -> ViewFactory:
    module, _, attribute = path.partition(":")
    try:
        made = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"{name} in [views]: {path!r} cannot be imported: {error}") from error
    if not callable(made):
        raise InputError(
            f"{name} in [views]: {path!r} must make a view of a graph and a state, got {kind_of(made)}"
        )
    return cast("ViewFactory", made)


def _parse_value(place: str, type_: type, value: object, directory: Path) -> object:
    choices = get_args(type_)
    if dict[str, list[float]] in choices:
        if isinstance(value, (list, dict)):
            return value
        raise InputError(f"{place} must be a list of node types, or a table of features, got {value!r}")
    if choices and type(None) in choices:  # a value that may be left out
        (type_,) = (choice for choice in choices if choice is not type(None))
    elif choices:  # text or a list of it
        listed = isinstance(value, list) and all(isinstance(one, str) for one in value)
        if listed or isinstance(value, str):
            return value
        raise InputError(f"{place} must be text or a list of it, got {value!r}")
    if type_ is Path and isinstance(value, str):
        return directory / value
    if type_ is float and type(value) in (int, float):
        return float(value)  # type: ignore[arg-type]
    if type(value) is type_:
        return value
    names = {Path: "text, a path", str: "text", int: "an integer", float: "a number", bool: "true or false"}
    raise InputError(f"{place} must be {names[type_]}, got {value!r}")
