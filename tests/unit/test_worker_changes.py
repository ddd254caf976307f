"""Other numbers of workers while events come and workers die: samples stay those of a sampler beside the
graph, and requests are answered meanwhile."""

import random
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import livegnn as lg
from livegnn.errors import UnknownNodeError
from livegnn.log.consumers import read_positions
from livegnn.presampling import Presampler
from livegnn.runtime import Runtime
from livegnn.workers import WorkerPlan
from livegnn.workers.resizing import finish, resize
from worker_cluster import LATEST, SCHEMA, USERS, Cluster, as_sets, running, some_events

PLACES = range(USERS)


def random_plan(rng: random.Random, plan: WorkerPlan, sampling: bool) -> WorkerPlan:
    if sampling:
        return replace(plan, sampling_workers=rng.randint(1, 4))
    workers = rng.randint(1, 4)
    moved = {user: rng.randrange(workers) for user in PLACES if rng.random() < 0.2}
    return replace(plan, serving_workers=workers, replicas=rng.randint(1, 2), moved=moved)


class Story:
    """Events, deaths and changes in any order, beside a sampler that sees the graph."""

    def __init__(self, cluster: Cluster, runtime: Runtime, view: Presampler, rng: random.Random) -> None:
        self.cluster, self.runtime, self.view, self.rng = cluster, runtime, view, rng
        self.users, self.edges = {0}, set[tuple[int, int]]()
        self.plan = cluster.plan

    def go_on(self, steps: int) -> None:
        for _ in range(steps):
            self.seq = self.runtime.append(some_events(self.rng, self.users, self.edges))
            if self.rng.random() < 0.3:
                self.cluster.replace()
            for _ in range(self.rng.randrange(6)):
                self.cluster.go_on()

    def change_serving(self, plan: WorkerPlan) -> None:
        """To the end, or given up half way."""
        before = self.plan
        if self.rng.random() < 0.5:  # new workers may come before it is announced, or after
            self.cluster.serve_all(plan)
        self.cluster.announce(plan)
        self.cluster.serve_all(plan)
        while not self.cluster.announce(plan):
            self.go_on(1)
            self.cluster.settle()
        self.check(before, plan)
        if self.rng.random() < 0.7:
            finish(self.cluster.place, plan, timeout=0)
            self.plan = plan
        else:
            assert resize(self.cluster.place, before, timeout=0).plan.moved == before.moved
        self.go_on(2)
        self.cluster.settle()
        self.cluster.stop_others(self.plan)

    def change_sampling(self, plan: WorkerPlan) -> None:
        while not self.cluster.announce(plan):
            self.go_on(1)
            self.cluster.take_over(self.plan.sampling_workers)
        workers = self.cluster.sampling
        while set(workers) != set(range(plan.sampling_workers)) or any(one.ended for one in workers.values()):
            self.cluster.take_over(plan.sampling_workers)
            self.go_on(1)
        self.plan = plan

    def check(self, *plans: WorkerPlan) -> None:
        """Each worker that has a seed by one of these plans answers for it."""
        self.runtime.wait(self.seq)
        self.cluster.settle()
        for plan in plans:
            for user in PLACES:
                worker = int(plan.serving_worker_of(np.array([user]))[0])
                for replica in range(plan.replicas):
                    serving = self.cluster.serving[worker, replica]
                    assert serving.wait(self.seq, 0) == self.seq
                    if user not in self.users:
                        with pytest.raises(UnknownNodeError):
                            serving.sample([user])
                        continue
                    assert as_sets(serving.sample([user])) == as_sets(self.view.sample([user]))


@given(seed=st.integers(0, 2**32), workers=st.tuples(st.integers(1, 3), st.integers(1, 3)))
@settings(max_examples=8, deadline=None)
def test_samples_stay_exact_while_workers_change_in_number(
    seed: int, workers: tuple[int, int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder, rng = tmp_path_factory.mktemp("cluster"), random.Random(seed)
    view = Presampler(lg.Graph(SCHEMA), LATEST, seed=seed)
    with running(folder, view) as runtime, ExitStack() as opened:
        runtime.wait(runtime.append(lg.Events().add_nodes([0], [[1.0]], node_type="user")))
        cluster = Cluster(folder, WorkerPlan(SCHEMA, LATEST, *workers, seed=seed), rng)
        opened.callback(cluster.close)
        story = Story(cluster, runtime, view, rng)
        for _ in range(4):
            story.go_on(3)
            if rng.random() < 0.5:
                story.change_serving(random_plan(rng, story.plan, sampling=False))
            else:
                story.change_sampling(random_plan(rng, story.plan, sampling=True))
            story.check(story.plan)
        known = {f"sampling-{i}{end}" for i in range(story.plan.sampling_workers) for end in ("", "-ahead")}
        assert set(read_positions(folder / "events.db")) == known  # the log is kept for nobody else
