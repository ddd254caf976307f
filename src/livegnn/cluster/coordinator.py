"""The coordinator: starts the workers of a log on the machines of a Ray cluster, watches and replaces them.

It is an actor that Ray restarts after a crash. It keeps no state of its own: the plan is recorded in a stream
of the log, and the workers, which outlive it, have names by which it finds them. Data passes through the log
and not through Ray.

`Watch` makes the decisions; this file executes them. Needs `ray`: `pip install 'livegnn[cluster]'`.

Locks: `_lock`, for everything except the answers of workers; no thread waits for a worker while holding it.
"""

import functools
import logging
import os
import secrets
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import ray
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayActorError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from livegnn.cluster.actors import Report, SamplingActor, ServingActor
from livegnn.cluster.machines import Machine, choose_drained, find_machines
from livegnn.cluster.orphan import OrphanCheck
from livegnn.cluster.registration import Registration
from livegnn.cluster.spec import ClusterSpec, Pace
from livegnn.cluster.watch import KINDS, End, Kind, Node, Patience, Role, Start, Watch, roles_of
from livegnn.errors import InputError, LiveGNNError, TimeoutExpired
from livegnn.query import Query
from livegnn.types import JSON

if TYPE_CHECKING:
    from ray.actor import ActorHandle

_logger = logging.getLogger(__name__)
_THREADS: Final = 4  # of a worker's process, for answers
_EVENTS: Final = 1000
_CHECKPOINT_SECONDS: Final = 60.0  # that a checkpoint of all sampling workers may take
_ORPHAN: Final = 3.0  # times `silent_seconds`, until a worker that is not asked looks whether it is an orphan


class WorkerState(NamedTuple):
    """The state of a worker. node: the address of its machine. ready: whether it works. id: Ray's id of the
    machine."""

    kind: Kind
    number: int
    replica: int
    node: str
    process: int
    seq: int
    address: str | None
    ready: bool
    id: str


class _ActorName(NamedTuple):
    """The name of an actor. Each process of the cluster can find the actor by it."""

    name: str
    namespace: str

    def is_registered(self) -> bool:
        """Raises an exception of Ray's where Ray does not answer."""
        return self._asdict() in ray.util.list_named_actors(all_namespaces=True)


class _Actor:
    """A worker's process: its handle, where it is, and the question that it has not answered yet."""

    def __init__(self, handle: "ActorHandle[Any]", node: str) -> None:
        self.handle, self.node = handle, node
        self.beat: Any = None
        self.report: Report | None = None


class Coordinator:
    """Fills the roles that are registered for the log of `spec`."""

    def __init__(self, spec: ClusterSpec, patience: Patience, pace: Pace, namespace: str) -> None:
        self._spec, self._pace, self._namespace = spec, pace, namespace
        self._lock = threading.RLock()
        self._stopped = threading.Event()
        self._registered: Registration | None = None
        self._watch, self._patience = Watch(patience), patience
        self._actors: dict[Role, _Actor] = {}
        self._addresses: dict[str, str] = {}  # of machines, by name
        self._said: deque[str] = deque(maxlen=_EVENTS)
        self._threads = [threading.Thread(target=self._beat, name="beat", daemon=True)]
        if pace.checkpoint_seconds:
            self._threads.append(threading.Thread(target=self._save_often, name="checkpoint", daemon=True))
        for thread in self._threads:
            thread.start()

    # -- its requests

    def begin(self, spec: ClusterSpec) -> int:
        """Says whether it works for this specification; returns the number of its process.

        Raises LogError if the log cannot be had, InputError for another specification than it was made with.
        """
        if not spec.is_like(self._spec):
            raise InputError(
                f"the coordinator in the namespace {self._namespace!r} was started with {self._spec!r}, got "
                f"{spec!r}: stop it, or name another namespace"
            )
        with self._lock:
            self._registration()
        return os.getpid()

    def register(self, query: dict[str, JSON]) -> None:
        """Registers a query, as its JSON, and starts the workers. Raises InputError; nothing changes then."""
        with self._lock:
            self._registration().register(Query.from_json(query))
            self._want()

    def replicate(self, serving_worker: int, replicas: int) -> None:
        """Has `replicas` workers answer for the seeds of one. Raises InputError."""
        with self._lock:
            self._registration().replicate(serving_worker, replicas)
            self._want()

    def addresses(self) -> list[list[str]]:
        """For each serving worker the addresses of those that can answer, if any can."""
        found: list[list[str]] = [[] for _ in range(self._spec.serving_workers)]
        with self._lock:
            for role, actor in sorted(self._actors.items()):
                if role.kind == "serving" and actor.report is not None and actor.report.address is not None:
                    found[role.number].append(actor.report.address)
        return found

    def workers(self) -> list[WorkerState]:
        """The state of each worker."""
        with self._lock:
            found = []
            for role, actor in sorted(self._actors.items()):
                report, node = actor.report or Report(0), self._addresses.get(actor.node, actor.node)
                found.append(
                    WorkerState(
                        *role, node, report.process, report.seq, report.address, report.ready, actor.node
                    )
                )
            return found

    def replicas(self) -> dict[int, int]:
        """The number of workers that are to answer for the seeds of each serving worker."""
        with self._lock:
            return dict(self._registration().replicas)

    def drain(self, machine: str, on: bool, timeout: float) -> list[str]:
        """Starts no worker on a machine from now on, and moves those that are there: sampling workers write a
        checkpoint first, if that takes less than `timeout` seconds. Or, if not `on`, lets it take workers
        again. machine: its address, or the beginning of Ray's id. Returns the workers that are moved.

        Raises InputError for an unknown machine, and if no other one would be left.
        """
        with self._lock:
            machines = find_machines()
            meant = choose_drained(machines, machine, self._registration().drained) if on else set()
            if on and self._spec.listen == "loopback" and _here() in meant:
                raise InputError(
                    f"serving workers listen at loopback of the coordinator's machine, which must keep them, "
                    f"got {machine!r}: write listen = 'node' in [cluster]"
                )
            self._registration().drain(machine, on)
            self._watch.drained = self._drained(machines)
            moved = {role: one for role, one in self._actors.items() if on and one.node in meant}
            ending = [one.handle.stop.remote() for one in moved.values()]
        if ending:
            ray.wait(ending, num_returns=len(ending), timeout=timeout)
        with self._lock:
            for role, one in moved.items():
                if self._actors.get(role) is one:
                    self._watch.lose(role, "its machine is drained")
        return [str(role) for role in sorted(moved)]

    def _drained(self, machines: Sequence[Machine]) -> set[str]:
        names = self._registration().drained
        return {machine.id for machine in machines if machine.is_named(names)}

    def said(self) -> list[str]:
        """The workers that were started and ended, and why: the last thousand lines."""
        with self._lock:
            return list(self._said)

    def checkpoint(self, timeout: float) -> int:
        """Has all sampling workers write a checkpoint, and waits; returns the least of their events.

        Raises TimeoutExpired that names those that have not, and LogError.
        """
        with self._lock:
            wanted = sorted(role for role in self._watch.wanted if role.kind == "sampling")
            asked = {
                role: self._actors[role].handle.save.remote(timeout)
                for role in wanted
                if role in self._actors
            }
        ends = time.monotonic() + timeout
        saved: list[int] = []
        missing = [f"{role}: it is being replaced" for role in wanted if role not in asked]
        for role, answer in asked.items():
            try:
                saved.append(cast("int", ray.get(answer, timeout=max(0.0, ends - time.monotonic()) + 1.0)))
            except (RayError, LiveGNNError, GetTimeoutError) as error:
                missing.append(f"{role}: {_reason(error)}")
        if missing:
            raise TimeoutExpired(
                f"expected checkpoints of {len(wanted)} sampling workers within {timeout} seconds, got "
                f"none of {'; '.join(missing)}"
            )
        return min(saved, default=0)

    def stop(self, timeout: float) -> None:
        """Ends all workers, sampling workers with a checkpoint; kills workers that have not ended then."""
        self._stopped.set()
        for thread in self._threads:
            thread.join(timeout)
        with self._lock:
            ending = list(self._actors.values())
            self._actors.clear()
        answers = [actor.handle.stop.remote() for actor in ending]
        if answers:
            ray.wait(answers, num_returns=len(answers), timeout=timeout)
        for actor in ending:
            _kill(actor)
        if self._registered is not None:
            self._registered.release()

    # -- the beat

    def _beat(self) -> None:
        while not self._stopped.is_set():
            try:
                with self._lock:
                    self._look()
            except (
                Exception
            ) as error:  # Ray may be away for a moment; a coordinator without a beat is of no use
                self._say(f"a beat has failed: {_reason(error)}")
            self._stopped.wait(self._pace.beat_seconds)

    def _look(self) -> None:
        """Receives the states of workers, decides, executes the decisions, and queries the workers again."""
        self._registration()
        now = time.monotonic()
        for role, actor in list(self._actors.items()):
            self._hear(role, actor, now)
        machines = find_machines()
        self._watch.drained = self._drained(machines)
        for action in self._watch.decide(self._nodes(machines), now):
            if isinstance(action, End):
                self._end(action)
            else:
                self._start(action)
        for actor in self._actors.values():
            if actor.beat is None:
                actor.beat = actor.handle.report.remote()

    def _hear(self, role: Role, actor: _Actor, now: float) -> None:
        if actor.beat is None or not ray.wait([actor.beat], timeout=0)[0]:
            return
        beat, actor.beat = actor.beat, None
        try:
            actor.report = cast("Report", ray.get(beat))
            self._watch.hear(role, now, actor.report.stuck_seconds, actor.report.failure)
        except ActorUnavailableError:  # it is silent, and may answer later
            pass
        except RayActorError:
            self._watch.lose(role, "its process has ended")
        except RayTaskError as error:
            self._watch.lose(role, f"it failed: {_reason(error)}")

    def _nodes(self, machines: Sequence[Machine]) -> list[Node]:
        """The machines for workers; which kinds each is for, its resources say. Serving workers that listen
        at loopback are on this one."""
        found = []
        for machine in machines:
            meant = {kind for kind in KINDS if f"livegnn_{kind}" in machine.resources} or {*KINDS}
            if self._spec.listen == "loopback":
                here = machine.id == _here()
                meant = meant | {"serving"} if here else meant - {"serving"}
            found.append(Node(machine.id, frozenset(meant)))
            self._addresses[machine.id] = machine.address
        return found

    def _start(self, action: Start) -> None:
        role, node = action
        plan = self._registration().plan
        assert plan is not None
        address = self._addresses[node]
        name = _ActorName(
            f"{role.kind}.{role.number}.{role.replica}.{node}.{secrets.token_hex(4)}", self._namespace
        )
        check = functools.partial(OrphanCheck, name.is_registered, _ORPHAN * self._patience.silent_seconds)
        made = ray.remote(SamplingActor if role.kind == "sampling" else ServingActor).options(
            **name._asdict(),
            lifetime="detached",
            num_cpus=0,
            max_restarts=0,
            max_concurrency=_THREADS,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
        )
        given = (role.number,) if role.kind == "sampling" else (role.number, role.replica)
        self._actors[role] = _Actor(made.remote(self._spec, plan, *given, address, check), node)
        self._say(f"{role}: started on {address}")

    def _end(self, action: End) -> None:
        self._say(f"{action.role}: ended, because {action.why}")
        actor = self._actors.pop(action.role, None)
        if actor is not None:
            _kill(actor)

    # -- roles

    def _registration(self) -> Registration:
        """The registration. Raises LogError while the log cannot be opened, or if another process may change
        it."""
        if self._registered is None:
            self._registered = Registration(self._spec)
            self._adopt()
            self._want()
        return self._registered

    def _want(self) -> None:
        registered = self._registration()
        if registered.plan is not None:
            self._watch.wanted = roles_of(self._spec.sampling_workers, registered.replicas)

    def _adopt(self) -> None:
        """Finds the workers that an earlier coordinator has started. Ends one of two in the same role."""
        for found in ray.util.list_named_actors(all_namespaces=True):
            name = found["name"]
            kind, *rest = name.split(".")
            if found["namespace"] != self._namespace or kind not in KINDS or len(rest) != 4:
                continue
            with suppress(ValueError):
                actor = _Actor(ray.get_actor(name, namespace=self._namespace), rest[2])
                role = Role(cast("Kind", kind), int(rest[0]), int(rest[1]))
                if role in self._actors:
                    _kill(actor)
                else:
                    self._actors[role] = actor
                    self._watch.adopt(role, actor.node, time.monotonic())
                    self._say(f"{role}: found")

    def _save_often(self) -> None:
        while not self._stopped.wait(self._pace.checkpoint_seconds):
            try:
                self.checkpoint(_CHECKPOINT_SECONDS)
            except LiveGNNError as error:
                self._say(str(error))

    def _say(self, line: str) -> None:
        self._said.append(line)
        _logger.info("%s", line)


def _here() -> str:
    return str(ray.get_runtime_context().get_node_id())


def _kill(actor: _Actor) -> None:
    """Ends a process. A frozen one Ray kills some seconds later; who begins in its place meanwhile may find
    the log's files still taken, fails, and is started again.
    """
    with suppress(RayError, ValueError):
        ray.kill(actor.handle)


def _reason(error: BaseException) -> str:
    cause = getattr(error, "cause", None)
    return str(cause if isinstance(cause, BaseException) else error)[:500]
