"""Decisions: which workers are replaced, and on which nodes missing ones are started. The caller executes
them.

`Watch` receives events and the time as arguments and communicates with no process, so every decision can be
repeated. A worker is lost when its process has ended, when it reports a failure, when it has not answered for
some time, when the thread of its work stands still, or when its machine is lost.

Thread safety: none.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final, Literal, NamedTuple, TypeAlias

from livegnn.arguments import check_positive
from livegnn.backoff import Backoff

Kind: TypeAlias = Literal["sampling", "serving"]
KINDS: Final[tuple[Kind, ...]] = ("sampling", "serving")

_PAUSES: Final = Backoff(1.0, 30.0)
_WELL_SECONDS: Final = 60.0  # after which a failure before is forgotten
_AVOIDED: Final = 6.0  # times `silent_seconds`, during which other nodes are preferred


class Role(NamedTuple):
    """A place that one worker fills: which kind, its number in the plan, and which replica of it."""

    kind: Kind
    number: int
    replica: int = 0

    def __str__(self) -> str:
        replica = f", replica {self.replica}" if self.replica else ""
        return f"{self.kind} worker {self.number}{replica}"


class Node(NamedTuple):
    """A machine that can run workers. kinds: those that it is reserved for; it takes others only if no other
    node can."""

    name: str
    kinds: frozenset[str] = frozenset(KINDS)


@dataclass(frozen=True)
class Patience:
    """After how many seconds a worker is given up: that does not answer, whose work stands still, that has
    not answered since it was started.
    """

    silent_seconds: float = 10.0
    stuck_seconds: float = 60.0
    start_seconds: float = 120.0

    def __post_init__(self) -> None:
        for it in fields(Patience):
            check_positive(getattr(self, it.name), it.name)


class End(NamedTuple):
    """The worker in this role must be ended."""

    role: Role
    why: str


class Start(NamedTuple):
    """A worker is to be started there."""

    role: Role
    node: str


@dataclass
class _Worker:
    node: str
    heard: float  # when it answered last, or when it was started
    since: float
    answered: bool = False
    stuck: float = 0.0
    lost: str | None = None  # why, as its process or its end has told


class Watch:
    """The worker in each role. wanted: the roles that must be filled; drained: machines on which no worker is
    started. The caller changes both.
    """

    def __init__(self, patience: Patience) -> None:
        self.wanted: set[Role] = set()
        self.drained: set[str] = set()
        self._patience = patience
        self._workers: dict[Role, _Worker] = {}
        self._failures: dict[Role, int] = {}
        self._not_before: dict[Role, float] = {}
        self._avoided: dict[str, float] = {}  # machines, until when
        self._looked = 0.0  # when it last decided

    @property
    def nodes(self) -> Mapping[Role, str]:
        """On which machine each worker is."""
        return {role: worker.node for role, worker in self._workers.items()}

    def adopt(self, role: Role, node: str, now: float) -> None:
        """Adds a worker that another coordinator has started."""
        self._workers[role] = _Worker(node, now, now)

    def hear(self, role: Role, now: float, stuck_seconds: float = 0.0, failure: str | None = None) -> None:
        """Notes that a worker has answered, for how long its work has stood still, and whether it failed."""
        worker = self._workers.get(role)
        if worker is None:
            return
        worker.heard, worker.answered, worker.stuck = now, True, stuck_seconds
        if failure is not None:
            worker.lost = f"it failed: {failure}"
            return
        self._avoided.pop(worker.node, None)
        if now - worker.since > _WELL_SECONDS:
            self._failures.pop(role, None)

    def lose(self, role: Role, why: str) -> None:
        """Notes that the process of a worker has ended, or could not be started."""
        worker = self._workers.get(role)
        if worker is not None:
            worker.lost = why

    def decide(self, nodes: Sequence[Node], now: float) -> list[End | Start]:
        """The decisions at this moment, in this order; they count as executed. nodes: the nodes that answer.

        If the caller itself was suspended for long, it has received no answers, and gives all workers time to
        answer again.
        """
        half = self._patience.silent_seconds / 2
        if now - self._looked > half:
            for worker in self._workers.values():
                worker.heard = max(worker.heard, now - half)
        self._looked = now
        alive = {node.name for node in nodes}
        ended: list[End | Start] = []
        for role, worker in sorted(self._workers.items()):
            if role not in self.wanted:
                ended.append(End(role, "it is not wanted any more"))
                self._forget(role)
            elif (why := self._why_lost(worker, alive, now)) is not None:
                ended.append(End(role, why))
                self._note_failure(role, worker, now)
                del self._workers[role]
        return ended + self._start_missing(nodes, now)

    def _start_missing(self, nodes: Sequence[Node], now: float) -> list[End | Start]:
        started: list[End | Start] = []
        nodes = [node for node in nodes if node.name not in self.drained]
        avoided = {name for name, until in self._avoided.items() if now < until}
        for role in sorted(self.wanted - self._workers.keys()):
            if now < self._not_before.get(role, now):
                continue
            name = choose_node(role, nodes, self.nodes, avoided)
            if name is not None:
                self._workers[role] = _Worker(name, now, now)
                started.append(Start(role, name))
        return started

    def _why_lost(self, worker: _Worker, alive: Iterable[str], now: float) -> str | None:
        if worker.lost is not None:
            return worker.lost
        if worker.node not in alive:
            return "its node is lost"
        silent = now - worker.heard
        if silent > (self._patience.silent_seconds if worker.answered else self._patience.start_seconds):
            self._avoid(worker.node, now)
            return f"it has not answered for {silent:.0f} seconds"
        if worker.stuck > self._patience.stuck_seconds:
            return f"its work has stood still for {worker.stuck:.0f} seconds"
        return None

    def _note_failure(self, role: Role, worker: _Worker, now: float) -> None:
        failures = self._failures.get(role, 0) + 1
        self._failures[role] = failures
        self._not_before[role] = now + pause_after(failures)
        if failures > 1:
            self._avoid(worker.node, now)

    def _avoid(self, node: str, now: float) -> None:
        self._avoided[node] = now + _AVOIDED * self._patience.silent_seconds

    def _forget(self, role: Role) -> None:
        for known in (self._workers, self._failures, self._not_before):
            known.pop(role, None)


def pause_after(failures: int) -> float:
    """Seconds until a worker that has failed so often in a row is started again; at once the first time."""
    return _PAUSES.after(failures - 1)


def choose_node(
    role: Role, nodes: Sequence[Node], taken: Mapping[Role, str], avoided: Iterable[str] = ()
) -> str | None:
    """The machine on which to start `role`; None if there is none. taken: the machine of each other worker.

    Machines are preferred in this order: those that answer, those reserved for this kind, those without
    another replica of it, those with fewer workers.
    """
    shunned = set(avoided)

    def cost(node: Node) -> tuple[bool, bool, int, int, str]:
        there = [other for other, name in taken.items() if name == node.name]
        alike = sum(other[:2] == role[:2] for other in there)
        return node.name in shunned, role.kind not in node.kinds, alike, len(there), node.name

    return min(nodes, key=cost).name if nodes else None


def roles_of(sampling_workers: int, replicas: Mapping[int, int]) -> set[Role]:
    """The roles of a plan. replicas: how many each serving worker is to have."""
    sampling = {Role("sampling", number) for number in range(sampling_workers)}
    return sampling | {
        Role("serving", number, replica) for number, count in replicas.items() for replica in range(count)
    }
