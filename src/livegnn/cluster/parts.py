"""Parts of a graph on the machines of a Ray cluster: an actor for each, which starts the process of the part.

Ray starts, places and ends the processes, and passes on the few lines with which a part begins (`orders.py`).
Batches, reads and samples go over encrypted channels between the processes, never through Ray's calls. An
actor belongs to the process that started it, so parts end with their leader. Needs `ray`:
`pip install 'livegnn[cluster]'`.
"""

import logging
import secrets
import signal
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, closing, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import ray
from ray.exceptions import GetTimeoutError, RayError, RayTaskError
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from livegnn.cluster.joining import join_ray
from livegnn.cluster.machines import Machine, choose_drained, find_machines
from livegnn.errors import InputError, LiveGNNError, WorkerUnavailableError
from livegnn.partitions.processes import ChildProcess, PartProcess
from livegnn.wording import format_count
from livegnn.workers import Place
from livegnn.workers.plan_record import PlanWriter

if TYPE_CHECKING:
    from ray.actor import ActorHandle
    from ray.util.placement_group import PlacementGroup

_logger = logging.getLogger(__name__)
KIND: Final = "partition"
_CALLS: Final = 6  # at once: lines, the wait for the end, reports
_SHARE: Final = 0.001  # of a core: a part has the threads that its orders name
_NODE_ID: Final = "ray.io/node-id"  # a label that Ray gives each machine
_SECONDS: Final = 30.0  # that an answer of an actor may take
_LOST: Final = -signal.SIGKILL
_PAUSE: Final = 0.5

_Answer = TypeVar("_Answer")


class PartReport(NamedTuple):
    """The place of a part. node: the address of its machine, and `id` Ray's id of it. process: its number
    there. ended: the status of its process, None while it runs."""

    number: int
    node: str
    id: str
    process: int
    ended: int | None


class DrainedParts(NamedTuple):
    """The numbers of the parts that were on a drained machine. left: the parts that are there still."""

    moved: Sequence[int]
    left: Sequence[int]


class PartActor:
    """The process of part `number`, on the machine of this actor. Thread safety: as of `PartProcess`."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._process = ChildProcess(interface=ray.util.get_node_ip_address())

    def report(self) -> PartReport:
        """The place of its process."""
        address = self._process.interface
        assert address is not None
        id = ray.get_runtime_context().get_node_id()
        return PartReport(self._number, address, id, self._process.pid, self._process.poll())

    def tell(self, line: str) -> None:
        """As `PartProcess.tell`."""
        self._process.tell(line)

    def hear(self, seconds: float | None) -> str:
        """As `PartProcess.hear`."""
        return self._process.hear(seconds)

    def wait(self) -> int:
        """The status with which it ends."""
        return self._process.wait()

    def kill(self) -> None:
        """As `PartProcess.kill`."""
        self._process.kill()


class RayProcess:
    """A `PartProcess` in an actor, which must be there after `start_seconds`. group: that all parts share;
    removed with the last of them. node: Ray's id of its machine."""

    def __init__(self, actor: "ActorHandle[Any]", group: "_Group", start_seconds: float) -> None:
        self._actor, self._group = actor, group
        self._status: int | None = None
        report = _ask(PartReport, actor.report.remote(), start_seconds)
        self.pid, self.interface, self.node = report.process, report.node, report.id
        self._end = actor.wait.remote()
        self._end.future().add_done_callback(self._note_end)

    def _note_end(self, done: "Future[int]") -> None:
        self._status = _LOST if done.exception() is not None else done.result()

    def tell(self, line: str) -> None:
        _ask(type(None), self._actor.tell.remote(line), _SECONDS)

    def hear(self, seconds: float | None = None) -> str:
        return _ask(str, self._actor.hear.remote(seconds), None if seconds is None else seconds + _SECONDS)

    def poll(self) -> int | None:
        return self._status

    def kill(self) -> None:
        self._actor.kill.remote()

    def end(self, seconds: float) -> None:
        with suppress(GetTimeoutError, RayError):
            ray.get(self._end, timeout=seconds)
        with suppress(GetTimeoutError, RayError):  # it may be frozen, and would outlive its actor
            ray.get(self._actor.kill.remote(), timeout=_SECONDS / 6)
        with suppress(RayError, ValueError):
            ray.kill(self._actor)
        self._group.leave()


class _Group:
    """The places of all parts, one on each of `machines` as far as there are machines."""

    def __init__(self, parts: int, machines: Sequence[Machine], all_of_ray: bool) -> None:
        reserved = any(f"livegnn_{KIND}" in machine.resources for machine in machines)
        share = {"CPU": _SHARE, **({f"livegnn_{KIND}": _SHARE} if reserved else {})}
        self.share: Final = share
        among = None if all_of_ray else [{_NODE_ID: f"in({','.join(one.id for one in machines)})"}] * parts
        self.group: PlacementGroup = placement_group(
            [share] * parts, strategy="SPREAD", bundle_label_selector=among
        )
        self._left = parts

    def wait(self) -> None:
        """Raises `WorkerUnavailableError` if Ray has no place."""
        if not self.group.wait(_SECONDS):
            raise WorkerUnavailableError(
                f"Ray must have places for {format_count(self._left, 'part')} with {self.share} each, got "
                f"none within {_SECONDS:.0f} seconds: start more machines"
            )

    def leave(self) -> None:
        """A part has ended."""
        self._left -= 1
        if self._left == 0:
            self.remove()

    def remove(self) -> None:
        """Lets Ray have the places back."""
        with suppress(RayError, ValueError):
            remove_placement_group(self.group)


class RayHosts:
    """The machines of the Ray cluster at `address`, of which this process becomes a member, as `Hosts`.

    namespace: in which the actors have names. shared: as of `Hosts`. start_seconds: that an actor may take to
    start. drained: the names of machines that take no parts (machines.py). Raises `InputError` if no Ray
    answers.
    """

    def __init__(
        self,
        address: str,
        namespace: str,
        *,
        shared: bool = True,
        start_seconds: float = 120.0,
        drained: Callable[[], Collection[str]] = tuple,
    ) -> None:
        join_ray(address)
        self.leader: str = ray.util.get_node_ip_address()
        self.shared = shared
        self._namespace, self._start_seconds, self._drained = namespace, start_seconds, drained

    def check(self, parts: int) -> None:
        """Raises `InputError` if there are fewer machines than parts."""
        if len(machines := find_machines()) < parts:
            raise InputError(
                f"partitions in [cluster] must be at most {len(machines)}, the number of Ray's machines, got "
                f"{parts}: start Ray on more machines, or take fewer partitions. Without ray in [cluster] "
                "all parts are processes of this machine"
            )

    def start(self, parts: int) -> Sequence[PartProcess]:
        machines, all_of_ray = self._find_machines()
        group = _Group(parts, machines, all_of_ray)
        with ExitStack() as started:
            started.callback(group.remove)
            group.wait()
            actors = []
            for number in range(parts):
                actors.append(self._place(number, group))
                started.callback(ray.kill, actors[-1])
            # All of them start at once.
            processes = [RayProcess(actor, group, self._start_seconds) for actor in actors]
            started.pop_all()
        said = ", ".join(f"{number} on {one.interface}" for number, one in enumerate(processes))
        _logger.info("parts are on the machines of Ray: %s", said)
        return processes

    def find_move(self, processes: Sequence[PartProcess]) -> str | None:
        if not (names := self._drained()):
            return None
        machines = find_machines()
        left = {one.id for one in machines if one.is_named(names)}
        if len(left) == len(machines):  # nobody can take them
            return None
        moved = [
            str(number)
            for number, process in enumerate(processes)
            if isinstance(process, RayProcess) and process.node in left
        ]
        return f"the machine of part {' and '.join(moved)} is drained" if moved else None

    def _find_machines(self) -> tuple[Sequence[Machine], bool]:
        """The machines that take parts, and whether these are all. All of them if none would be left."""
        machines, names = find_machines(), self._drained()
        found = [one for one in machines if not one.is_named(names)] or machines
        return found, len(found) == len(machines)

    def _place(self, number: int, group: _Group) -> "ActorHandle[Any]":
        strategy = PlacementGroupSchedulingStrategy(group.group, placement_group_bundle_index=number)
        rest = {name: share for name, share in group.share.items() if name != "CPU"}
        made = ray.remote(PartActor).options(
            name=f"{KIND}.{number}.{secrets.token_hex(4)}",
            namespace=self._namespace,
            num_cpus=_SHARE,
            resources=rest,
            max_restarts=0,
            max_concurrency=_CALLS,
            scheduling_strategy=strategy,
        )
        return made.remote(number)


def drain_parts(place: Place, namespace: str, machine: str, on: bool, timeout: float) -> DrainedParts:
    """Notes in the record of the plan that a machine takes no parts, so that their server moves them, and
    waits for that, `timeout` seconds at most. Or, if not `on`, lets it take parts again.

    machine: its address, or the beginning of Ray's id. Raises InputError for an unknown machine, and if no
    other one would be left, LogError.
    """
    machines = find_machines()
    with closing(PlanWriter.open(place)) as record:
        meant = choose_drained(machines, machine, record.drained) if on else ()
        before = [part for part in list_parts(namespace) if part.ended is None]
        record.set_drained(machine, on)
    ends = time.monotonic() + timeout
    numbers = sorted({part.number for part in before})
    moved = sorted({part.number for part in before if part.id in meant})
    while moved and time.monotonic() < ends:
        time.sleep(_PAUSE)
        now = list_parts(namespace)
        # Until the old parts are gone, some numbers are there twice.
        if [part.number for part in now] == numbers and all(part.id not in meant for part in now):
            return DrainedParts(moved, [])
    return DrainedParts(moved, moved)


def list_parts(namespace: str) -> list[PartReport]:
    """The parts that run in a namespace of Ray, of which this process is a member; those that do not answer
    are left out."""
    asked = []
    for found in ray.util.list_named_actors(all_namespaces=True):
        if found["namespace"] == namespace and found["name"].split(".")[0] == KIND:
            with suppress(ValueError, RayError):
                asked.append(ray.get_actor(found["name"], namespace=namespace).report.remote())
    done, _ = ray.wait(asked, num_returns=len(asked), timeout=_SECONDS) if asked else ([], [])
    reports = []
    for one in done:
        with suppress(RayError):
            reports.append(ray.get(one))
    return sorted(reports)


def _ask(kind: type[_Answer], asked: Any, seconds: float | None) -> _Answer:
    try:
        answer = ray.get(asked, timeout=seconds)
    except RayTaskError as error:
        if isinstance(error.cause, LiveGNNError):
            raise error.cause from None
        raise WorkerUnavailableError(
            f"the process of a part must begin, and its actor failed: {error}"
        ) from error
    except (GetTimeoutError, RayError) as error:
        raise WorkerUnavailableError(
            f"the process of a part must begin, and its actor does not answer: {error}"
        ) from error
    assert isinstance(answer, kind)
    return answer
