"""The simulated half of `serverless.py`: a trace of arrivals, in virtual time, on the real scheduler.

Real: the decisions (`livegnn.functions.scheduler.Scheduler`, one for each node, which takes the time as an
argument), the contents of caches, and the memory model's predictions. A node has the memory of one
`FeatureCache`, with a handle for each worker, as its processes have; the ablation "a cache for each worker"
has a `FeatureCache` for each. A request reads and evicts when the scheduler assigns it, and inserts what it
has fetched when it ends. Features are one column wide, because copying them is part of the measured times.
Simulated: time. A request takes what `serverless_parts.Costs` says, a worker starts in its measured time, and
all workers of a node share the bandwidth of the store, first come first served, as the throttle does it.
Every worker has a core of its own.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from livegnn.functions.scheduler import KEEP_ALIVE, Assign, Decision, Launch, Limits, Policy, Scheduler, Stop
from livegnn.remote.feature_cache import FeatureCache
from livegnn.remote.shared_memory import MemoryFile, SharedMemory
from serverless_contestants import BANDWIDTH
from serverless_parts import EDGE_BYTES, NODE_BYTES, Cost, Costs
from serverless_shapes import Around, Float64, Int64

CORES, NODE_MEMORY = 16, 31.25e9
"""Of a node: a quarter of the paper's."""

_NAME = "node"
_FILE = 1 << 34  # bytes of a node's shared file, of which few are written


@dataclass(frozen=True)
class Contestant:
    """whole: whether a worker fetches all data when it starts. cache: who keeps features."""

    name: str
    opener: str
    policy: Policy
    whole: bool = False
    cache: Literal["node", "worker"] | None = None


WHOLE = Contestant("whole data", "open_whole", Policy.BOUND, whole=True)
PLAIN = Contestant("plain on-demand", "open_plain", Policy.BOUND)
OURS = Contestant("ours", "open_ours", Policy.LOAD_AWARE, cache="node")
PRIVATE = Contestant("ours with a cache for each worker", "open_ours", Policy.LOAD_AWARE, cache="worker")
NO_CACHE = Contestant("ours without cache", "open_plain", Policy.LOAD_AWARE)
NO_QUEUE = Contestant("ours without queue", "open_ours", Policy.BOUND, cache="node")


@dataclass
class Outcome:
    """Of one replay; times in seconds. lists, features: fetching them, by request. lives: when each worker
    was launched and stopped. cold_fetch: fetching of each worker until its first answer. moments: when
    something happened, how many workers were idle then, and how many started."""

    latency: Float64
    lists: Float64
    features: Float64
    lives: Float64
    busy_seconds: float
    worker_bytes: int
    cold_fetch: list[float]
    reused: float
    share: float
    decision_seconds: Float64
    moments: list[tuple[float, int, int]]

    @property
    def mean(self) -> float:
        return float(self.latency.mean())

    @property
    def p99(self) -> float:
        return float(np.percentile(self.latency, 99))

    @property
    def fetching(self) -> float:
        return float((self.lists + self.features).mean())

    @property
    def gigabyte_seconds(self) -> float:
        """From launch to stop, as the paper counts: with the time for which workers are kept."""
        return float((self.lives[:, 1] - self.lives[:, 0]).sum()) * self.worker_bytes / 1e9

    @property
    def billed(self) -> float:
        """Gigabyte-seconds of starting and executing, as functions in a cloud are billed."""
        return self.busy_seconds * self.worker_bytes / 1e9

    def memory_at(self, times: Float64) -> Float64:
        """Bytes of all workers."""
        alive = (self.lives[:, :1] <= times) & (times < self.lives[:, 1:])
        return alive.sum(0) * float(self.worker_bytes)

    @property
    def most_workers(self) -> int:
        return int((self.lives[:, :1] <= self.lives[:, 0]).sum(0).max()) if len(self.lives) else 0


def worker_bytes(contestant: Contestant, costs: Costs) -> int:
    """What a worker has: the process, the peak of the node with the greatest in-degree, the data if it is
    held."""
    parts = costs.parts
    own = parts.starts["open_plain"].resident + parts.memory.limit
    return own + (parts.whole_bytes if contestant.whole else 0)


class _Worker:
    """What the next request costs a worker, whose cache has what the earlier ones left."""

    def __init__(self, contestant: Contestant, costs: Costs, file: MemoryFile) -> None:
        self._contestant, self._costs = contestant, costs
        self._memory = SharedMemory(file.fd) if contestant.cache == "node" else None
        self._cache = FeatureCache({_NAME: 1}, memory=self._memory, owner=contestant.name)
        self._cache.show("snapshot")
        real = 4 * costs.parts.shape.features + costs.parts.entry_bytes
        self._scale = real / self._cache.entry_bytes(_NAME)
        self._cache.leave(self._scaled(costs.parts.memory.limit))
        self._fetched: tuple[Int64, int] = np.zeros(0, np.int64), 0
        self.asked = 0

    def _scaled(self, room: float) -> int:
        return int(max(room, 0) / self._scale)

    def begin(self, around: Around) -> tuple[Cost, int]:
        """What a request costs, and how many rows of features it reuses."""
        self.asked += 1
        if self._contestant.whole:
            return self._costs.whole(around), 0
        rows = around.rows
        if self._contestant.cache is None:
            return self._costs.on_demand(around, rows, 0, cache=False), 0
        parts = self._costs.parts
        room = self._scaled(parts.memory.limit - parts.memory.predict(around.counts))
        self._cache.evict(room, {_NAME: rows})
        entries = len(self._cache)
        found = self._cache.read(_NAME, rows, np.empty((len(rows), 1), np.float32))
        missing = np.flatnonzero(~found)
        self._cache.evict(room, {})
        taken = NODE_BYTES * len(rows) + EDGE_BYTES * around.edges + 4 * parts.shape.features * len(rows)
        self._fetched = rows[missing], self._scaled(parts.memory.limit - taken - parts.working_bytes)
        cost = self._costs.on_demand(around, rows[missing], entries, cache=True)
        return cost, len(rows) - len(missing)

    def end(self, degree: Int64) -> None:
        """Keeps what the request has fetched."""
        if self._contestant.cache is None:
            return
        rows, room = self._fetched
        x = np.zeros((len(rows), 1), np.float32)
        self._cache.insert(_NAME, rows, x, np.arange(len(rows)), degree[rows], room=room)
        self._cache.leave(self._scaled(self._costs.parts.memory.limit - self._costs.parts.working_bytes))

    def stop(self) -> None:
        """Leaves nothing to the others."""
        if self._memory is not None:
            self._memory.close()


class _Link:
    """The bandwidth of a node's store, by the rule of `ThrottledStore`."""

    def __init__(self) -> None:
        self._free_at = 0.0

    def wait(self, now: float, size: int) -> float:
        """How much longer a transfer takes than alone."""
        waited = max(self._free_at - now, 0.0)
        self._free_at = max(self._free_at, now) + size / BANDWIDTH
        return waited


class _Node:
    def __init__(self, limits: Limits, policy: Policy) -> None:
        self.scheduler = Scheduler(limits, policy)
        self.link = _Link()
        self.file = MemoryFile(_FILE)
        self.workers: dict[int, _Worker] = {}
        self.launched: dict[int, float] = {}
        self.dropped: set[int] = set()


class Replay:
    """One contestant on one trace. max_workers: by node; those that the node's memory and cores hold."""

    def __init__(
        self,
        contestant: Contestant,
        costs: Costs,
        around: Callable[[int], Around],
        degree: Int64,
        *,
        nodes: int = 1,
        max_workers: int = CORES,
        keep_alive: float = KEEP_ALIVE,
    ) -> None:
        self._contestant, self._costs, self._around, self._degree = contestant, costs, around, degree
        self._nodes = [_Node(Limits(max_workers, None, keep_alive), contestant.policy) for _ in range(nodes)]
        self._turns = itertools.cycle(self._nodes)  # a load balancer sends each request to the next node
        self._events: list[tuple[float, int, str, int, int]] = []
        self._count = 0
        self._asked: Int64 = np.zeros(0, np.int64)
        self._lists = self._features = np.zeros(0)
        self._lives: list[tuple[float, float]] = []
        self._busy = 0.0
        self._cold_fetch: list[float] = []
        self._decisions: list[float] = []
        self._read = self._reused = 0
        self._shares: list[float] = []
        self._moments: list[tuple[float, int, int]] = []

    def run(self, arrivals: Float64, sequence: Int64) -> Outcome:
        """Request i asks at `arrivals[i]` for the node `sequence[i]`; runs until the last worker has
        ended."""
        self._asked = sequence
        self._lists, self._features = np.zeros((2, len(arrivals)))
        latency = np.full(len(arrivals), np.nan)
        for i, at in enumerate(arrivals):
            self._push(float(at), "arrive", 0, i)
        while (now := self._next()) is not None:
            for node in self._nodes:
                due = node.scheduler.next_tick()
                if due is not None and due <= now:
                    self._act(node, now, partial(node.scheduler.tick, now))
            while self._events and self._events[0][0] <= now:
                _, _, kind, at, number = heapq.heappop(self._events)
                if kind == "arrive":
                    node = next(self._turns)
                    self._act(node, now, partial(node.scheduler.arrive, number, now))
                    continue
                node = self._nodes[at]
                if kind == "started" and number not in node.dropped:
                    self._act(node, now, partial(node.scheduler.started, number, now))
                elif kind == "finished":
                    worker, request = divmod(number, len(arrivals))
                    latency[request] = now - arrivals[request]
                    node.workers[worker].end(self._degree)
                    self._act(node, now, partial(node.scheduler.finished, worker, now))
            idle = sum(node.scheduler.idle for node in self._nodes)
            starting = sum(node.scheduler.starting for node in self._nodes)
            self._moments.append((now, idle, starting))
        assert not np.isnan(latency).any(), "every request must be answered"
        for node in self._nodes:
            node.file.close()
        return Outcome(
            latency,
            self._lists,
            self._features,
            np.array(self._lives),
            self._busy,
            worker_bytes(self._contestant, self._costs),
            self._cold_fetch,
            self._reused / max(self._read, 1),
            float(np.mean(self._shares)),
            np.array(self._decisions),
            self._moments,
        )

    def _next(self) -> float | None:
        times = [self._events[0][0]] if self._events else []
        times += [due for node in self._nodes if (due := node.scheduler.next_tick()) is not None]
        return min(times, default=None)

    def _push(self, at: float, kind: str, node: int, number: int) -> None:
        self._count += 1
        heapq.heappush(self._events, (at, self._count, kind, node, number))

    def _act(self, node: _Node, now: float, decide: Callable[[], list[Decision]]) -> None:
        began = time.perf_counter()
        decisions = decide()
        self._decisions.append(time.perf_counter() - began)
        number = self._nodes.index(node)
        for one in decisions:
            if isinstance(one, Launch):
                self._launch(node, number, one.worker, now)
            elif isinstance(one, Assign):
                self._assign(node, number, one, now)
            elif isinstance(one, Stop):
                node.dropped.add(one.worker)
                self._stop(node, one.worker)
                self._lives.append((node.launched.pop(one.worker), now))
            else:
                raise AssertionError(f"nothing fails in a replay, got {one}")

    def _stop(self, node: _Node, worker: int) -> None:
        stopped = node.workers.pop(worker, None)
        if stopped is not None:
            stopped.stop()
            node.file.release_of_ended()

    def _launch(self, node: _Node, number: int, worker: int, now: float) -> None:
        parts = self._costs.parts
        start = parts.starts[self._contestant.opener]
        seconds = start.ready
        if self._contestant.whole:
            waited = node.link.wait(now, parts.whole_bytes)
            fetching = max(seconds - parts.starts["open_plain"].ready, parts.whole_bytes / BANDWIDTH)
            self._cold_fetch.append(fetching + waited)
            seconds += waited
        node.launched[worker] = now
        node.workers[worker] = _Worker(self._contestant, self._costs, node.file)
        self._busy += seconds
        self._push(now + seconds, "started", number, worker)

    def _assign(self, node: _Node, number: int, one: Assign, now: float) -> None:
        worker = node.workers[one.worker]
        around = self._around(int(self._asked[one.request]))
        cost, reused = worker.begin(around)
        self._read += len(around.rows)
        self._reused += reused
        self._shares.append(len(around.rows) / self._costs.parts.shape.nodes)
        waited = node.link.wait(now, cost.bytes) if cost.bytes else 0.0
        seconds = cost.seconds + waited
        if worker.asked == 1:
            seconds += self._costs.first_extra(self._contestant.opener)
            if not self._contestant.whole:
                self._cold_fetch.append(cost.lists + cost.features + waited)
        self._lists[one.request] = cost.lists
        self._features[one.request] = cost.features + waited
        self._busy += seconds
        self._push(now + seconds, "finished", number, one.worker * len(self._asked) + one.request)
