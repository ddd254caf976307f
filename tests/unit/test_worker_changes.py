"""Other numbers of workers while events come and workers die: samples stay those of a sampler beside the
graph, and requests are answered meanwhile."""

import random
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import apsw
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import livegnn as lg
from gate import draws
from livegnn.errors import InputError, LogError, TimeoutExpired, UnknownNodeError
from livegnn.log.consumers import read_positions
from livegnn.presampling import Presampler
from livegnn.runtime import Runtime
from livegnn.workers import SamplingWorker, ServingWorker, WorkerPlan, finish, resize
from livegnn.workers.messages import references_for
from livegnn.workers.plan_record import begin_states
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
@settings(max_examples=draws(4, 8), deadline=None)
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


def count_records(log: Path) -> dict[str, int]:
    """The records in each stream beside a log."""
    found = {}
    for path in sorted(log.with_name(log.name + "-streams").glob("*/*.db")):
        with apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY) as connection:
            (count,) = connection.execute("SELECT count(*) FROM records").fetchone()
            found[f"{path.parent.name}/{path.stem}"] = int(count)
    return found


def test_streams_between_workers_stay_small(tmp_path: Path) -> None:
    rng = random.Random(5)
    view = Presampler(lg.Graph(SCHEMA), LATEST, seed=1)
    with running(tmp_path, view) as runtime, ExitStack() as opened:
        seq = runtime.append(lg.Events().add_nodes([0], [[1.0]], node_type="user"))
        cluster = Cluster(tmp_path, WorkerPlan(SCHEMA, LATEST, 2, 1, seed=1), rng)
        opened.callback(cluster.close)
        users, edges = {0}, set[tuple[int, int]]()
        most, passed = [0, 0], 0
        for step in range(100):
            seq = runtime.append(some_events(rng, users, edges))
            runtime.wait(seq)
            cluster.settle()
            counts = count_records(tmp_path / "events.db")
            most[step // 50] = max(most[step // 50], sum(counts.values()))
        for worker in range(2):
            with closing(cluster.place.read(references_for(0, 1 - worker), worker)) as stream:
                passed += stream.last_position()
        print(most, passed)
        assert passed > 2 * most[0]  # much more went through the streams than ever lay in them
        assert most[1] <= 1.2 * most[0]  # that of two checkpoints, whenever they are


def test_each_edge_is_taken_where_queries_begin(tmp_path: Path) -> None:
    """The edges that sampling workers keep, of 2,000: by placement, and by what the query needs."""
    rng = np.random.default_rng(7)
    edge = ("node", "to", "node")
    schema = lg.Schema({"node": 0}, {edge: lg.EdgeSchema()})
    sources, targets = np.unique(rng.integers(0, 300, (2000, 2)), axis=0).T
    out, back = lg.Query("node").hop(edge, 3), lg.Query("node").hop(edge, 3, direction="in")

    def share(plan: WorkerPlan) -> float:
        """Of all edges at all workers, those that were taken."""
        kept = 0
        for worker in range(plan.sampling_workers):
            shard = plan.make_shard(worker)
            shard.add_edges(0, sources, targets, None, None)
            shard.take_outbox()
            arrays = shard.save()
            names = [name for name in arrays if name.startswith("lists") and name.endswith("_nodes")]
            kept += sum(len(arrays[name]) for name in names)
        return kept / len(sources) / plan.sampling_workers

    assert share(WorkerPlan(schema, out, 4, seed=1, placement="source")) == 0.25
    assert share(WorkerPlan(schema, back, 4, seed=1, placement="target")) == 0.25
    assert share(WorkerPlan(schema, out, 4, seed=1)) == 0.25  # nothing needs the other end
    assert share(WorkerPlan(schema, out.hop(edge, 3, direction="in"), 4, seed=1)) == 0.5
    with pytest.raises(InputError, match="needs its edges at the target, got a plan with placement='source'"):
        WorkerPlan(schema, back, 4, placement="source")
    both = lg.Schema({"node": 0}, {edge: lg.EdgeSchema(undirected=True)})
    with pytest.raises(InputError, match="needs its edges at both ends"):
        WorkerPlan(both, out, 4, placement="source")
    with pytest.raises(InputError, match="placement must be"):
        WorkerPlan(schema, out, 4, placement="hash")


def test_seeds_go_to_new_workers_alone() -> None:
    ids = np.concatenate([np.arange(3050), [2**63 - 1]])
    plan = WorkerPlan(SCHEMA, LATEST, serving_workers=4, seed=1, moved={50: 3, 7: 0})
    before = replace(plan, moved={}).serving_worker_of(ids)
    assert plan.serving_worker_of(np.array([50, 7])).tolist() == [3, 0]
    assert (plan.serving_worker_of(ids) != before).sum() <= 2
    after = replace(plan, serving_workers=5, moved={}).serving_worker_of(ids)
    assert set(after[after != before]) == {4}
    assert 0.15 < (after != before).mean() < 0.25
    # The native core has the same seeds: it publishes features to their workers alone.
    shard = plan.make_shard(0)
    shard.begin_move(plan.seed_owners.native)
    shard.end_move(True)
    shard.set_features(0, ids, np.ones((len(ids), 1), np.float32))
    expected = np.bincount(plan.serving_worker_of(ids), minlength=4)
    for worker, blocks in enumerate(shard.take_outbox()[0]):
        cache = plan.make_cache(worker)
        cache.apply(blocks)
        assert cache.num_features(0) == expected[worker]
        assert cache.has_features(0, ids).tolist() == (plan.serving_worker_of(ids) == worker).tolist()


def test_changes_that_cannot_be_are_refused(tmp_path: Path) -> None:
    view = Presampler(lg.Graph(SCHEMA), LATEST)
    with running(tmp_path, view) as runtime, ExitStack() as opened:
        runtime.wait(runtime.append(lg.Events().add_nodes([0], [[1.0]], node_type="user")))
        plan = WorkerPlan(SCHEMA, LATEST, 1, 2, seed=1)
        cluster = Cluster(tmp_path, plan, random.Random(1))
        opened.callback(cluster.close)
        place = cluster.place
        with pytest.raises(InputError, match="change one after the other"):
            resize(place, replace(plan, sampling_workers=2, serving_workers=3), timeout=0)
        with pytest.raises(InputError, match="a change of the plan to finish, got none"):
            finish(place, replace(plan, serving_workers=1), timeout=0)
        assert finish(place, plan, timeout=0).plan == plan
        with pytest.raises(LogError, match="one of those in effect, 1: change their number first"):
            SamplingWorker(place, replace(plan, sampling_workers=3), 2, tmp_path / "workers")
        with pytest.raises(InputError, match="worker must be an integer from 0 to 0"):
            SamplingWorker(place, plan, 1, tmp_path / "workers")
        more = replace(plan, serving_workers=3)
        with pytest.raises(TimeoutExpired, match="expected all serving workers to have what they need"):
            resize(place, more, timeout=0)
        with pytest.raises(InputError, match="a change to 3 serving workers with 1 replicas is under way"):
            resize(place, replace(plan, serving_workers=4), timeout=0)
        with pytest.raises(TimeoutExpired):
            finish(place, more, timeout=0)
        # A seed that is to move is answered where it was, and refused where it is not whole yet.
        cluster.settle()
        late = ServingWorker(place, more, 2)
        opened.callback(late.stop)
        seed = next(user for user in range(1000) if more.serving_worker_of(np.array([user]))[0] == 2)
        with pytest.raises(InputError, match=f"seeds of serving worker 2, got {seed}, of worker"):
            late.sample([seed])
        assert resize(place, plan, timeout=0).next is None  # given up
        assert [one.number for one in begin_states(place, plan)] == [0, 1, 2]
