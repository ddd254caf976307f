"""Workers of one plan in one thread, driven in any order, replaced and changed in number at any time; and
random events for them."""

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path

import livegnn as lg
from livegnn.errors import LogError, TimeoutExpired
from livegnn.log.sqlite import SqliteLog
from livegnn.presampling import Presampler
from livegnn.runtime import Runtime
from livegnn.sampling import HeteroSubgraph
from livegnn.workers import SamplingWorker, ServingWorker, SqlitePlace, WorkerPlan
from livegnn.workers.resizing import resize

CLICKS, ALIKE = ("user", "clicks", "item"), ("item", "alike", "item")
SCHEMA = lg.Schema(
    {"user": 1, "item": 2},
    {CLICKS: lg.EdgeSchema(timed=True), ALIKE: lg.EdgeSchema(weighted=True, undirected=True)},
    auto_add={"item": (0.5, 2.0)},
)
LATEST = lg.Query("user").hop(CLICKS, 3, by="latest").hop(ALIKE, 30, by="weight")
LATEST = LATEST.hop(ALIKE, 30, direction="in")  # of an undirected type: which way edges point
UNIFORM = lg.Query("user").hop(CLICKS, 2).hop(CLICKS, 2, direction="in").hop(CLICKS, 2)
USERS, ITEMS = 12, 12


def as_sets(sample: HeteroSubgraph) -> object:
    """A sample without the order in which it was put together."""
    edges = {
        name: {
            (
                int(sample.node[name[0]][row]),
                int(sample.node[name[2]][col]),
                *(column[name][place] for column in (sample.time, sample.edge_weight) if name in column),
            )
            for place, (row, col) in enumerate(zip(sample.row[name], sample.col[name], strict=True))
        }
        for name in sample.row
    }
    nodes = {
        name: {int(node): tuple(x) for node, x in zip(ids, sample.x[name].tolist(), strict=True)}
        for name, ids in sample.node.items()
    }
    return nodes, edges


def some_events(
    rng: random.Random, users: set[int], edges: set[tuple[int, int]], removals: bool = True
) -> lg.Events:
    """Valid events; `users` and `edges` follow them."""
    events = lg.Events()
    user = rng.randrange(USERS)
    if user not in users:
        events.add_nodes([user], [[rng.choice([1e-6, 1.0, 1e9])]], node_type="user")
        users.add(user)
    for _ in range(rng.randrange(4)):
        edge = (rng.choice(sorted(users)), rng.randrange(ITEMS))
        edges.add(edge)
        events.add_edges(edge[0], edge[1], time=[rng.random()], edge_type=CLICKS)
        events.add_edges(
            edge[1], rng.randrange(ITEMS), weight=[rng.choice([0.0, 1e-3, 5.0])], edge_type=ALIKE
        )
    if edges and rng.random() < 0.5:
        source, target = edges.pop()
        events.remove_edges(source, target, edge_type=CLICKS)
    if removals and rng.random() < 0.1:
        user = rng.choice(sorted(users))
        users.discard(user)
        edges -= {edge for edge in edges if edge[0] == user}
        events.remove_nodes([user], node_type="user")
    if rng.random() < 0.5:
        events.set_features([rng.randrange(ITEMS)], [[rng.random(), 1e6]], node_type="item")
    return events


class Cluster:
    """All workers of a plan in one thread, driven in any order; each may be replaced at any time."""

    def __init__(
        self, folder: Path, plan: WorkerPlan, rng: random.Random, model: lg.Model | None = None
    ) -> None:
        self.model = model
        self.place, self.plan, self.folder, self.rng = SqlitePlace(folder / "events.db"), plan, folder, rng
        self.sampling = {worker: self.make(worker) for worker in range(plan.sampling_workers)}
        self.serving: dict[tuple[int, int], ServingWorker] = {}
        self.serve_all(plan)

    def make(self, worker: int) -> SamplingWorker:
        return SamplingWorker(
            self.place, self.plan, worker, self.folder / "workers", checkpoint_every=5, max_events=7
        )

    def serve_all(self, plan: WorkerPlan) -> None:
        """Starts the serving workers of a plan that are not there yet."""
        for worker in range(plan.serving_workers):
            for replica in range(plan.replicas):
                if (worker, replica) not in self.serving:
                    self.serving[worker, replica] = self.serve(plan, worker, replica)

    def serve(self, plan: WorkerPlan, worker: int, replica: int) -> ServingWorker:
        serving = ServingWorker(self.place, plan, worker, self.model, replica=replica)
        serving.begin()
        return serving

    def stop_others(self, plan: WorkerPlan) -> None:
        """Stops the serving workers that a plan has not."""
        for worker, replica in list(self.serving):
            if worker >= plan.serving_workers or replica >= plan.replicas:
                self.serving.pop((worker, replica)).stop()

    def replace(self) -> None:
        """As if one of them had died: nothing is written at its end."""
        if self.rng.random() < 0.7 and self.sampling:
            at = self.rng.choice(sorted(self.sampling))
            self.sampling.pop(at).close()
            self.sampling[at] = self.make(at)
        else:
            key = self.rng.choice(sorted(self.serving))
            plan = self.serving[key].plan
            self.serving.pop(key).stop()
            self.serving[key] = self.serve(plan, *key)

    def announce(self, plan: WorkerPlan) -> bool:
        """Whether a change to a plan has come to where the caller may go on."""
        try:
            resize(self.place, plan, timeout=0)
        except TimeoutExpired:
            return False
        return True

    def take_over(self, sampling_workers: int) -> None:
        """Makes the sampling workers of the next generation, as far as that can be done yet."""
        for worker in range(sampling_workers):
            if worker in self.sampling and self.sampling[worker].ended:
                self.sampling.pop(worker).close()
            if worker not in self.sampling:
                with contextlib.suppress(LogError):  # not all of those before have ended
                    self.sampling[worker] = self.make(worker)
        for worker in list(self.sampling):
            if worker >= sampling_workers and self.sampling[worker].ended:
                self.sampling.pop(worker).close()

    def go_on(self) -> bool:
        """Somebody takes what has come; False if nothing has, for anybody."""
        turns = [worker.step for worker in self.sampling.values()]
        turns += [worker.follow for worker in self.serving.values()]
        self.rng.shuffle(turns)
        return any(turn() for turn in turns)

    def settle(self) -> None:
        for _ in range(10_000):
            if not self.go_on():
                return
        raise AssertionError("the workers go on for ever")

    def close(self) -> None:
        for worker in self.sampling.values():
            worker.close()
        for serving in self.serving.values():
            serving.stop()


@contextlib.contextmanager
def running(folder: Path, view: Presampler) -> Iterator[Runtime]:
    log = SqliteLog(folder / "events.db")
    runtime = Runtime(log, view.graph, view)
    runtime.start()
    try:
        yield runtime
    finally:
        runtime.stop()
        log.close()
