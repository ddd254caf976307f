"""`partitions` of `[cluster]`: a graph in parts, each in a process of this machine (see docs/parts.md)."""

import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from livegnn.arguments import chosen_threads
from livegnn.deployment.sections import EngineSection, RuntimeSection
from livegnn.deployment.worker_sections import ClusterSection
from livegnn.errors import InputError, LogError
from livegnn.graph import Graph, Schema
from livegnn.graph.division import make_part
from livegnn.inference import EngineOptions
from livegnn.log import ReadableLog
from livegnn.model import Model
from livegnn.partitions import refuse_unfit
from livegnn.placement import Owners
from livegnn.placement.owners import Rule
from livegnn.presampling import check_predictor
from livegnn.runtime import count_recorded
from livegnn.types import State

if TYPE_CHECKING:
    from livegnn.partitions.remote import RemotePartitions

_logger = logging.getLogger(__name__)

_UNFIT = {
    "workers": "sampling and serving workers divide samples, and parts divide a graph: write one of the two",
    "checkpoint": "parts are not saved yet, and a start replays the log",
    "features": "features of parts are kept in memory",
    "snapshots": "a snapshot is not written from parts yet",
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


@dataclass(frozen=True)
class Division:
    """The parts of a deployment's graph. Raises InputError and ModelError if it cannot be divided, before
    anything is changed.

    cluster: has the number of parts, the rule of their owners, and the patience with their processes.
    options: of the engine of each part; without `threads`, the parts share those of the machine.
    """

    schema: Schema
    model: Model
    options: EngineOptions
    cluster: ClusterSection

    def __post_init__(self) -> None:
        refuse_unfit(self.model, self.schema, self.options, self.owners)
        check_predictor(self.make_names(), self.model, self.options)
        if self.schema.text_ids:
            raise InputError(
                "a graph in parts must have ids that are integers, got text: serve it without partitions in "
                "[cluster], or number its nodes"
            )
        _import_zmq()

    @property
    def owners(self) -> Owners:
        """The part of each node."""
        return Owners(cast("Rule", self.cluster.owners), self.cluster.partitions)

    def refuse_trimmed(self, log: ReadableLog) -> None:
        """Raises LogError if the log has lost its first events."""
        try:
            count_recorded(log, None)
        except LogError as error:
            raise LogError(
                f"a graph in parts is made from the whole log, but {error}. Serve it without partitions in "
                "[cluster], from a checkpoint"
            ) from error

    def make_names(self) -> Graph:
        """The graph of names, before the first event."""
        return make_part(self.schema, [self.owners.native] * len(self.schema.node_types), None, threads=1)

    def make_parts(self, names: Graph, state: State | None) -> "RemotePartitions":
        """Starts the processes of all parts. Requires names without nodes, and no state.

        Raises WorkerUnavailableError if one does not start.
        """
        from livegnn.channels.health import Patience
        from livegnn.partitions.remote import RemotePartitions

        assert state is None
        cluster = self.cluster
        threads = self.options.threads or max(1, chosen_threads(None) // cluster.partitions)
        patience = Patience(
            silent_seconds=cluster.silent_seconds,
            round_seconds=cluster.stuck_seconds,
            hello_seconds=cluster.start_seconds,
        )
        parts = RemotePartitions(
            names.schema,
            self.model,
            self.owners,
            names=names,
            patience=patience,
            threads=threads,
            non_finite=self.options.non_finite,
        )
        processes = [process.pid for process in parts.processes]
        text, told = "the graph is in %d parts, in the processes %s", {"processes": processes}
        _logger.info(text, len(processes), ", ".join(map(str, processes)), extra=told)
        return parts


def _import_zmq() -> None:
    try:
        import zmq  # noqa: F401
    except ModuleNotFoundError as error:
        raise InputError(
            f"partitions in [cluster] need {error.name}, which is not installed: "
            "pip install 'livegnn[cluster]'"
        ) from error
