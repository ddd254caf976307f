"""Sampling workers of one number hand over to those of another: at one event, through their checkpoints.

A worker that takes the change stops, and sends the others the event at which it stopped. All continue to the
last of these events, and exchange records until none is under way. Then each writes a last checkpoint. The
new workers take the rows of their nodes from these: the tables are by node, and none depends on the number of
workers.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

import livegnn.checkpoint as checkpoint
from livegnn.arguments import check_int
from livegnn.errors import FileFormatError, LogError
from livegnn.types import Array, IntArray, State
from livegnn.workers.plan import WorkerPlan
from livegnn.workers.plan_state import PlanState

if TYPE_CHECKING:
    from jaxtyping import Bool, Int64
    from numpy.typing import NDArray


def path_of(directory: Path, worker: int, generation: int) -> Path:
    """The checkpoint of a sampling worker."""
    return directory / (f"sampling-{worker}" + (f".{generation}" if generation else "") + ".checkpoint")


def read_handover(directory: Path, generation: int, plan: WorkerPlan) -> tuple[int, list[State]] | None:
    """The event at which the sampling workers of a generation have ended, and the state of each.

    None while one of them has not. Raises FileFormatError.
    """
    seqs, states = [], []
    for worker in range(plan.sampling_workers):
        path = path_of(directory, worker, generation)
        if not path.exists():
            return None
        found = checkpoint.read(path)
        state = found.states.get("sampling")
        if state is None or state.meta["plan"] != plan.to_json():
            raise FileFormatError(f"{path} must be of a sampling worker of this plan, got one of another")
        if not state.meta["ended"]:
            return None
        seqs.append(found.seq)
        states.append(state)
    if len(set(seqs)) > 1:
        raise FileFormatError(
            f"sampling workers must have ended at one event, got {seqs}: a file is another's"
        )
    return seqs[0], states


def merge(states: Sequence[Mapping[str, Array]], plan: WorkerPlan, worker: int) -> dict[str, Array]:
    """The state of sampling worker `worker` of `plan`: what it owns of these states of all workers before."""

    def owns(nodes: "Int64[IntArray, 'nodes']") -> "Bool[NDArray[np.bool_], 'nodes']":
        owned: NDArray[np.bool_] = plan.sampling_worker_of(nodes) == worker
        return owned

    tables = sorted(name[: -len("nodes")] for name in states[0] if name.endswith("_nodes"))
    merged: dict[str, Array] = {}
    for table in tables:
        parts = [_select(state, table, owns) for state in states]
        for name in parts[0]:
            merged[name] = np.concatenate([part[name] for part in parts])
    first = states[0]
    merged["worker"] = np.concatenate([[worker, plan.sampling_workers], first["worker"][2:]]).astype(np.int64)
    for name in first:
        if name.startswith(("owners_", "next_owners_")):
            merged[name] = first[name]
    merged["sent_to_serving"] = np.zeros(len(first["sent_to_serving"]), np.int64)
    merged["sent_to_sampling"] = merged["received"] = np.zeros(plan.sampling_workers, np.int64)
    return merged


def _select(
    state: Mapping[str, Array], table: str, owns: "Callable[[IntArray], NDArray[np.bool_]]"
) -> dict[str, Array]:
    """The rows of a table for nodes that a worker owns."""
    kept = owns(cast("IntArray", state[table + "nodes"]))
    columns = [name for name in state if name.startswith(table)]
    if table + "sizes" not in columns:
        return {name: state[name][kept] for name in columns}
    # Cells: a row for each node, and an entry for each neighbour.
    entries = np.repeat(kept, cast("IntArray", state[table + "sizes"]))
    rows = (table + "nodes", table + "sizes")
    return {name: state[name][kept if name in rows else entries] for name in columns}


def find_generation(
    states: Sequence[PlanState], directory: Path, worker: int, given: WorkerPlan
) -> tuple[PlanState, tuple[int, list[State]] | None]:
    """The first state of the generation that a worker belongs to, and the checkpoints that it begins with:
    None at the beginning of the log, or if there is a checkpoint. given: the plan that the worker was given.

    Raises LogError if this generation has not begun yet, InputError if no plan has such a worker.
    """
    first: dict[int, PlanState] = {}
    for state in states:
        first.setdefault(state.generation, state)
    newest = max(first)
    plans = [given, *(first[one].plan for one in first if one >= newest - 1)]
    check_int(worker, "worker", 0, max(plan.sampling_workers for plan in plans) - 1)
    if all(plan.sampling_workers <= worker for plan in plans[1:]):
        raise LogError(
            f"sampling worker {worker} must be one of those in effect, {plans[-1].sampling_workers}: change "
            "their number first, with resize, and start it again"
        )
    if newest == 0 or path_of(directory, worker, newest).exists():
        return first[newest], None
    before, after = first[newest - 1].plan, first[newest].plan
    found = read_handover(directory, newest - 1, before)
    if found is not None and worker < after.sampling_workers:
        return first[newest], found
    if worker >= before.sampling_workers:
        raise LogError(
            f"the {before.sampling_workers} sampling workers before must hand over to worker {worker}, and "
            f"some have not ended yet: start it again when all their checkpoints are in {directory}"
        )
    found = None
    if newest > 1 and not path_of(directory, worker, newest - 1).exists():
        found = read_handover(directory, newest - 2, first[newest - 2].plan)
    return first[newest - 1], found
