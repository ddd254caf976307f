"""`partitions` of `[cluster]`: a graph in parts, each in a process of its own (see docs/parts.md)."""

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, cast

from livegnn.arguments import chosen_threads
from livegnn.atomic_file import check_writable
from livegnn.deployment.sections import CheckpointSection, EngineSection, LogSection, RuntimeSection
from livegnn.deployment.snapshots import SnapshotFactory
from livegnn.deployment.worker_sections import ClusterSection, place_of
from livegnn.errors import FileFormatError, InputError, LogError
from livegnn.graph import Graph, Schema, View
from livegnn.graph.division import join, make_part
from livegnn.graph.state import NAMES
from livegnn.inference import EngineOptions
from livegnn.log import ReadableLog
from livegnn.model import Model
from livegnn.partitions import LocalPartitions, refuse_unfit
from livegnn.partitions.beginning import Beginning
from livegnn.partitions.divided import Partitions
from livegnn.partitions.sets import SavedSet
from livegnn.placement import Owners, Partition, partition_graph
from livegnn.placement.owners import Rule
from livegnn.placement.partition import check_workers
from livegnn.placement.partitioners import Partitioner, check_metis
from livegnn.presampling import check_predictor
from livegnn.runtime import ViewFactory, count_recorded, replay
from livegnn.runtime.checkpoint_files import list_checkpoints
from livegnn.runtime.recovery import make_view
from livegnn.types import State
from livegnn.wording import needs
from livegnn.workers.plan_record import DrainedMachines

if TYPE_CHECKING:
    from livegnn.channels.health import Patience
    from livegnn.cluster.parts import RayHosts
    from livegnn.partitions.remote import RemotePartitions

_logger = logging.getLogger(__name__)

_UNFIT = {
    "workers": "sampling and serving workers divide samples, and parts divide a graph: write one of the two",
    "features": "features of parts are kept in memory",
    "views": "a view reads the edges of a graph in one piece",
}
"""The sections that cannot stand beside `partitions`, and why."""


def refuse_sections(given: Collection[str], engine: EngineSection, runtime: RuntimeSection) -> None:
    """Raises InputError for sections and keys of a deployment that cannot stand beside `partitions`.

    given: the names of all sections that are there.
    """
    for name, why in _UNFIT.items():
        if name in given:
            raise InputError(f"partitions in [cluster] must stand without a section [{name}]: {why}")
    if "model" not in given:
        raise InputError("partitions in [cluster] need a section [model], got none")
    for section, key, value, needed in (
        ("engine", "state_dir", engine.state_dir, None),
        ("runtime", "when_view_fails", runtime.when_view_fails, "stop"),
        ("runtime", "recompute_after_events", runtime.recompute_after_events, 0),
    ):
        if value != needed:
            must = "be left out" if needed is None else f"be {needed!r}"
            raise InputError(
                f"{key} in [{section}] must {must} beside partitions in [cluster], got {str(value)!r}"
            )


@dataclass
class Division:
    """The parts of a deployment's graph. Raises InputError and ModelError if it cannot be divided, before
    anything is changed.

    schema: of the graph with which the log begins. complete: adds the settings of the deployment to a graph
    of a checkpoint, or raises InputError if it was made with others. cluster: has the number of parts, the
    rule of their owners, the Ray on whose machines they run, and the patience with their processes. options:
    of the engine of each part; without `threads`, the parts of one machine share its cores. texts: a graph
    whose numbers of texts new names share. log: beside which the drained machines of Ray are recorded.
    snapshots: the factory of the view of [snapshots]. sinks: those of the views of [sinks], by name.
    """

    schema: Schema
    complete: Callable[[Graph], None]
    model: Model
    options: EngineOptions
    cluster: ClusterSection
    texts: Graph | None = None
    log: LogSection | None = None
    snapshots: ViewFactory | None = None
    sinks: Mapping[str, ViewFactory] = field(default_factory=dict)

    def __post_init__(self) -> None:
        refuse_unfit(self.model, self.schema, self.options, self.owners)
        check_predictor(self.make_names(), self.model, self.options)
        _import_extra("zmq")
        if (fronts := self.cluster.fronts) is not None:
            if self.schema.text_ids:
                raise InputError(
                    f"fronts in [cluster] is for ids that are integers, got {str(fronts)!r} and a graph with "
                    "text ids, whose texts the server alone knows: leave out fronts, and read from the server"
                )
            check_writable(fronts)

    @cached_property
    def hosts(self) -> "RayHosts | None":
        """The machines of the parts; None for this one. Joins Ray. Raises InputError."""
        if not self.cluster.ray:
            return None
        _import_extra("ray")
        from livegnn.cluster.parts import RayHosts

        cluster = self.cluster
        return RayHosts(
            cluster.ray,
            cluster.namespace,
            shared=cluster.shared,
            start_seconds=cluster.start_seconds,
            drained=tuple if self._drained is None else self._drained.read,
        )

    @cached_property
    def _drained(self) -> DrainedMachines | None:
        """The machines of Ray that take no parts."""
        return DrainedMachines(place_of(self.log, Path())) if self.log and self.cluster.ray else None

    @property
    def owners(self) -> Owners:
        """The part of each node that arrives."""
        rule = "fennel" if self.cluster.owners == "metis" else self.cluster.owners
        return Owners(cast("Rule", rule), self.cluster.partitions)

    def check_beginning(self, graph: Graph, checkpoints: CheckpointSection | None) -> None:
        """Raises InputError if nodes that are there cannot be placed as the deployment says, or the parts on
        machines of Ray. graph: with which the log begins; it is divided unless there are checkpoints."""
        if self.owners.rule == "fennel":
            self._check_placed(graph, checkpoints)
        if self.hosts is not None:
            self.hosts.check(self.cluster.partitions)

    def _check_placed(self, graph: Graph, checkpoints: CheckpointSection | None) -> None:
        cluster = self.cluster
        given = None if cluster.partition is None else _read_partition(cluster.partition)
        if given is None and cluster.owners == "metis":
            check_metis()
        if _has_nodes(graph) and not (checkpoints and list_checkpoints(checkpoints.directory)):
            if given is None:
                check_workers(graph, cluster.partitions)
            else:
                _check_fits(given, graph, cluster.partitions)

    def partition(self, graph: Graph) -> Owners | Partition:
        """The owners of the nodes of a graph that is divided. Raises InputError."""
        cluster = self.cluster
        if self.owners.rule != "fennel" or not _has_nodes(graph):
            return self.owners
        if cluster.partition is None:
            by = cast("Partitioner", cluster.owners)
            return partition_graph(graph, cluster.partitions, partitioner=by)
        given = _read_partition(cluster.partition)
        _check_fits(given, graph, cluster.partitions)
        return given

    def replace_lost(
        self, led: View, start: Callable[..., tuple[Graph, dict[str, View]]], log: ReadableLog
    ) -> None:
        """From now on, replaces the parts of `led` when one is lost, or its machine is drained. start:
        `restore`, as at the start."""
        assert isinstance(led, Partitions)
        if self._drained is not None:
            self._drained.begin()
        maker = replace(self, texts=led.names, snapshots=None, sinks={})

        def make(seq: int) -> Partitions:
            names, views = start(log=log, up_to=seq, maker=maker)
            (parts,) = views.values()
            assert isinstance(parts, Partitions)
            try:
                replay(log, names, up_to=seq)
            except BaseException:
                parts.close()
                raise
            return parts

        led.replace_lost(make)

    def announce(self, led: View) -> None:
        """Says to fronts where the parts of `led` are, which show all recorded events."""
        assert isinstance(led, Partitions)
        led.announce()

    def refuse_trimmed(self, log: ReadableLog, checkpoints: Path | None) -> None:
        """Raises LogError if the log has lost events behind the newest checkpoint in a directory, or, without
        one, its first."""
        try:
            count_recorded(log, checkpoints)
        except LogError as error:
            raise LogError(
                f"a graph in parts is made from the log behind a checkpoint, or from the whole log, but "
                f"{error}. Name the directory of the checkpoints in [checkpoint]"
            ) from error

    def make_names(self) -> Graph:
        """The graph of names, without nodes."""
        return make_part(
            self.schema,
            [self.owners.native] * len(self.schema.node_types),
            None,
            names=self.texts,
            threads=1,
        )

    # -- as of `livegnn.runtime.recovery.Maker`; WorkerUnavailableError if a process does not start

    def restore(self, path: Path, states: Mapping[str, State]) -> tuple[Graph, dict[str, View]]:
        return self._with_sinks(*self._restore(path, states), states)

    def begin(self, graph: Graph) -> tuple[Graph, dict[str, View]]:
        begun = self._divide(graph, None, None) if _has_nodes(graph) else self._start(self.make_names(), None)
        return self._with_sinks(*begun, {})

    def _with_sinks(
        self, names: Graph, views: dict[str, View], states: Mapping[str, State]
    ) -> tuple[Graph, dict[str, View]]:
        """Adds the views of sinks."""
        for name, make in self.sinks.items():
            try:
                views[name] = make_view(name, make, names, states.get(name))
            except FileFormatError as error:
                _logger.warning("the sink %r is sent all predictions: %s", name, error)
                views[name] = make_view(name, make, names, None)
        return names, views

    def _restore(self, path: Path, states: Mapping[str, State]) -> tuple[Graph, dict[str, View]]:
        if states["graph"].meta.get("kind") != NAMES:
            return self._divide(Graph.from_state(states["graph"]), states.get("engine"), path)
        from livegnn.partitions.remote import RemotePartitions

        saved = SavedSet(path)
        if any(one != self.owners for one in saved.owners.values()):
            return self._divide_again(saved)
        if saved.model != self.model.digest:
            _logger.warning(
                "%s has rows of another model: the parts compute theirs from the graph", saved.path
            )
            names, graphs, _ = saved.begin(self.part_options.threads)
            for graph in (names, *graphs):
                self.complete(graph)
            begun = Beginning(names, graphs, None)
            local = LocalPartitions(names.schema, self.model, self.owners, self.part_options, beginning=begun)
            return self._of(
                RemotePartitions.from_local(
                    local, patience=self._patience, hosts=self.hosts, fronts=self.cluster.fronts
                )
            )
        names = saved.restore_names(self.texts)
        self.complete(names)
        return self._start(names, saved)

    def _start(self, names: Graph, saved: SavedSet | None) -> tuple[Graph, dict[str, View]]:
        """Starts processes, whose parts are empty, or those of a set."""
        from livegnn.partitions.remote import RemotePartitions

        parts = RemotePartitions(
            names.schema,
            self.model,
            self.owners,
            self.part_options,
            names=names,
            patience=self._patience,
            hosts=self.hosts,
            saved=saved,
            fronts=self.cluster.fronts,
        )
        return self._of(parts)

    def _divide(self, graph: Graph, state: State | None, path: Path | None) -> tuple[Graph, dict[str, View]]:
        """Divides a graph in one piece, and the state of its engine if that fits."""
        from livegnn.partitions.remote import RemotePartitions

        self.complete(graph)
        owners = self.partition(graph)
        if isinstance(owners, Partition):
            _logger.info("the graph is divided: %s", owners)
        divide = partial(
            RemotePartitions.from_graph,
            graph,
            self.model,
            owners,
            self.part_options,
            patience=self._patience,
            hosts=self.hosts,
            fronts=self.cluster.fronts,
        )
        try:
            return self._of(divide(state=state))
        except FileFormatError as error:
            if state is None:
                raise
            _logger.warning("%s has no rows that fit, and the parts compute theirs: %s", path, error)
        return self._of(divide())

    def _divide_again(self, saved: SavedSet) -> tuple[Graph, dict[str, View]]:
        """Joins the parts of a set, and divides their graph as the deployment says."""
        _logger.info("%s has %d parts, and is divided again", saved.path, saved.parts)
        names, graphs, states = saved.begin(self.part_options.threads)
        assert states is not None
        if saved.model != self.model.digest:
            return self._divide(
                join(names, list(graphs), threads=self.part_options.threads), None, saved.path
            )
        begun = Beginning(names, graphs, states)
        parts = LocalPartitions(names.schema, self.model, saved.owners, self.part_options, beginning=begun)
        try:
            graph, state = parts.join()
        finally:
            parts.close()
        return self._divide(graph, state, saved.path)

    def _of(self, parts: "RemotePartitions") -> tuple[Graph, dict[str, View]]:
        processes = [process.pid for process in parts.processes]
        text, told = "the graph is in %d parts, in the processes %s", {"processes": processes}
        _logger.info(text, len(processes), ", ".join(map(str, processes)), extra=told)
        views: dict[str, View] = {parts.name: parts}
        if isinstance(self.snapshots, SnapshotFactory):
            view = self.snapshots.of_parts(parts)
            views[view.name] = view
        return parts.names, views

    @property
    def part_options(self) -> EngineOptions:
        """The options of the engine of a part."""
        threads = self.options.threads or max(1, chosen_threads(None) // self.cluster.partitions)
        return EngineOptions(threads=threads, non_finite=self.options.non_finite)

    @property
    def _patience(self) -> "Patience":
        from livegnn.channels.health import Patience

        cluster = self.cluster
        return Patience(
            silent_seconds=cluster.silent_seconds,
            round_seconds=cluster.stuck_seconds,
            hello_seconds=cluster.start_seconds,
        )


def _has_nodes(graph: Graph) -> bool:
    return any(graph.num_nodes(name) for name in graph.schema.node_types)


def _read_partition(path: Path) -> Partition:
    """The partition of a file. Raises InputError."""
    try:
        return Partition.read(path)
    except (FileFormatError, OSError) as error:
        raise InputError(f"partition in [cluster] must be a partition file: {error}") from error


def _check_fits(given: Partition, graph: Graph, parts: int) -> None:
    """Raises InputError if a partition is not of this graph and this number of parts."""
    try:
        given.owners_in(graph, parts)
    except InputError as error:
        raise InputError(
            f"{error}, or leave out partition in [cluster], so that the graph is divided at the start"
        ) from error


def _import_extra(name: str) -> None:
    try:
        import_module(name)
    except ModuleNotFoundError as error:
        raise InputError(needs("a graph in parts", str(error.name), error, "cluster")) from error
