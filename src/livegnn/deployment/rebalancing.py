"""Divides the parts of a deployment again while its server is stopped: from its newest set of files to a set
of the same event, which the next start reads (see docs/parts.md).

The new files of parts stand beside the old ones, under names with a label of their own, and belong to no
checkpoint until the new file of names replaces the old one, at once. So there is a whole set at any moment.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import livegnn._core as _core
import livegnn.checkpoint as checkpoint
from livegnn.deployment.partitions import Division
from livegnn.errors import InputError
from livegnn.graph.state import NAMES
from livegnn.log.directories import LOCK
from livegnn.log.location import Owner
from livegnn.model import Model
from livegnn.partitions import LocalPartitions
from livegnn.partitions.beginning import Beginning
from livegnn.partitions.sets import SavedSet, replacing, write_parts
from livegnn.placement.partitioners import Partitioner
from livegnn.placement.rebalancing import Rebalanced, rebalance_partition
from livegnn.runtime.checkpoint_files import list_checkpoints
from livegnn.types import State
from livegnn.wording import format_count

if TYPE_CHECKING:
    from livegnn.deployment import Deployment


class Report(NamedTuple):
    """The result of `rebalance`. path: the new file of names; None if the present owners are
    as good, and so stay."""

    found: Rebalanced
    path: Path | None

    def __str__(self) -> str:
        before, after, moved = self.found
        nodes = sum(map(len, after.ids.values()))
        balance = "; ".join(
            f"balance of {name} {before.balance[name]:.3f} -> {after.balance[name]:.3f}" for name in after.ids
        )
        return (
            f"event {after.seq:,}, {before.workers} -> {format_count(after.workers, 'part')} by "
            f"{after.partitioner}: {moved:,} of {format_count(nodes, 'node')} moved; cut {before.cut:.1%} -> "
            f"{after.cut:.1%} of edges; {balance}"
        )


def rebalance(
    deployment: "Deployment", partitioner: Partitioner | None = None, out: Path | None = None
) -> Report:
    """Divides the newest set of a deployment again, whose server is stopped.

    partitioner: by default the `owners` of [cluster]. out: an empty directory for the new set; None to
    replace the one that is there. Raises InputError if the deployment has no parts whose nodes Fennel places,
    or no set of its model, LogError if its server runs, FileFormatError if the set is damaged, OSError.
    """
    checkpoints, cluster = deployment.checkpoint, deployment.cluster
    if not cluster.partitions or cluster.owners not in ("metis", "fennel") or checkpoints is None:
        raise InputError(
            "parts are rebalanced where nodes are placed near their neighbours, from checkpoints: a "
            "deployment needs partitions and owners = 'metis' or 'fennel' in [cluster], and [checkpoint], "
            f"got partitions = {cluster.partitions}, owners = {cluster.owners!r} and "
            f"{'no section' if checkpoints is None else 'a section'} [checkpoint]"
        )
    if out is not None and out.exists() and any(out.iterdir()):
        raise InputError(f"the directory of the new set must be empty, got {out}")
    directory = checkpoints.directory
    assert deployment.model is not None
    graph, model = deployment.load_graph(), Model.load(deployment.model.path)
    division = Division(graph.schema, deployment.complete_schema, model, deployment.engine.options(), cluster)
    by = partitioner or ("metis" if cluster.owners == "metis" else "fennel")
    with _held(directory):
        return _rebalance(division, directory, by, out)


def _rebalance(division: Division, directory: Path, by: Partitioner, out: Path | None) -> Report:
    there = list_checkpoints(directory)
    if not there:
        raise InputError(
            f"{directory} must have the checkpoint of a graph in parts, got none: serve it first"
        )
    path = there[0]
    sections = checkpoint.read(path).states
    if sections["graph"].meta.get("kind") != NAMES:
        raise InputError(f"{path} must be of a graph in parts, got one in one piece: a start divides it")
    saved = SavedSet(path)
    if saved.model != division.model.digest:
        raise InputError(
            f"{path} must have rows of the model in [model], got those of another: start the server once, "
            "which computes them"
        )
    begun = saved.begin(division.part_options.threads)
    names = begun.names
    owners = {
        name: _core.owners_of(names.native, number) for number, name in enumerate(names.schema.node_types)
    }
    parts = _lead(division, saved, begun)
    try:
        graph, state = parts.join()
    finally:
        parts.close()
    found = rebalance_partition(graph, owners, saved.parts, division.cluster.partitions, by)
    same_rules = all(rule == division.owners for rule in saved.owners.values())
    if out is None and same_rules and not found.better:
        return Report(found, None)
    divided = LocalPartitions.from_graph(
        graph, division.model, found.after, division.part_options, state=state
    )
    try:
        return Report(found, _write(divided, path, sections, out))
    finally:
        divided.close()


def _lead(division: Division, saved: SavedSet, begun: Beginning) -> LocalPartitions:
    return LocalPartitions(saved.schema, division.model, saved.owners, division.part_options, beginning=begun)


def _write(divided: LocalPartitions, path: Path, sections: "dict[str, State]", out: Path | None) -> Path:
    """Writes the set of all parts in place of the one of `path`, or into a directory; returns its file of
    names."""
    if out is not None:
        out.mkdir(mode=0o700, parents=True, exist_ok=True)
    into = path if out is None else out / path.name
    with replacing(into) as label:
        about = write_parts(
            into.parent, divided.seq, divided.rules, divided.parts, divided.digest, label=label
        )
        states = {**sections, "graph": divided.names.state(), divided.name: about}
        checkpoint.write(into, states, divided.seq)
    return into


@contextmanager
def _held(directory: Path) -> Iterator[None]:
    """Holds the lock by which a server owns its checkpoints. Raises LogError if one runs, InputError if there
    is no directory."""
    if not directory.is_dir():
        raise InputError(f"{directory} must have the checkpoints of the deployment, got none: serve it first")
    lock = Owner(directory / LOCK, f"the directory of checkpoints {directory}")
    try:
        yield
    finally:
        lock.release()
