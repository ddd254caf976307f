"""The parts of a cluster without Ray: what is registered, and what runs in a worker's process."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import livegnn as lg
import loopback
from livegnn.cluster import ClusterSpec
from livegnn.cluster.actors import Report, SamplingActor, ServingActor
from livegnn.cluster.registration import Registration
from livegnn.errors import InputError, LogError, TimeoutExpired
from livegnn.log.sqlite import SqliteLog
from livegnn.log.streams import Record
from livegnn.presampling import Presampler
from livegnn.runtime import Runtime
from livegnn.workers import KafkaPlace, SqlitePlace, WorkerPlan, finish, resize
from livegnn.workers.plan_record import PLAN, REPLICAS, begin_states
from livegnn.workers.plan_state import PlanState
from waiting import PATIENCE, REQUEST_SECONDS, wait_until

EDGE = ("node", "to", "node")
SCHEMA = lg.Schema({"node": 1}, {EDGE: lg.EdgeSchema(timed=True)})
QUERY = lg.Query("node").hop(EDGE, 4, by="latest").hop(EDGE, 50)
NODES = 20


def spec_in(folder: Path, **changes: object) -> ClusterSpec:
    spec = ClusterSpec(
        SqlitePlace(folder / "events.db"), SCHEMA, folder / "workers", sampling_workers=1, serving_workers=2
    )
    return dataclasses.replace(spec, **{"replicas": 3, **changes})


@pytest.fixture
def runtime(tmp_path: Path):
    view = Presampler(lg.Graph(SCHEMA), QUERY)
    log = SqliteLog(tmp_path / "events.db")
    running = Runtime(log, view.graph, view)
    running.start()
    yield running
    running.stop()
    log.close()


def append(runtime: Runtime, rng: np.random.Generator) -> int:
    events = lg.Events().add_nodes(np.arange(NODES), np.ones((NODES, 1)))
    seq = runtime.append(events.add_edges(*rng.integers(0, NODES, (2, 100)), time=rng.random(100)))
    runtime.wait(seq)
    return seq


def test_what_is_registered_stays(runtime: Runtime, tmp_path: Path) -> None:
    spec = spec_in(tmp_path)
    first = Registration(spec)
    assert (first.plan, first.replicas) == (None, {0: 1, 1: 1})
    with pytest.raises(LogError, match="must have one owner"):
        Registration(spec)
    plan = first.register(QUERY)
    first.replicate(1, 3)
    first.replicate(1, 2)
    for query, message in (
        (lg.Query("user").hop(("user", "to", "node"), 4), "user"),
        (lg.Query("node").hop(("node", "likes", "node"), 4), "likes"),
        (lg.Query("node").hop(EDGE, 5), "must stay"),
    ):
        with pytest.raises(InputError, match=message):
            first.register(query)
    for worker, replicas in ((2, 1), (0, 0), (0, 4)):
        with pytest.raises(InputError):
            first.replicate(worker, replicas)
    for machine, on in (("10.0.0.1", True), ("a" * 8, True), ("10.0.0.1", False), ("10.0.0.2", False)):
        first.drain(machine, on)
    first.close()
    again = Registration(spec)
    assert (again.plan, again.replicas, again.drained) == (plan, {0: 1, 1: 2}, {"a" * 8})
    assert again.register(QUERY) == plan
    again.close()


def test_a_query_that_is_wrong_leaves_the_log_as_it_was(runtime: Runtime, tmp_path: Path) -> None:
    spec = spec_in(tmp_path)
    first = Registration(spec)
    with pytest.raises(InputError):
        first.register(lg.Query("user").hop(("user", "to", "node"), 4))
    first.close()
    assert spec.place.read(PLAN, 0).last_position() == 0


def test_another_number_of_workers_is_refused(runtime: Runtime, tmp_path: Path) -> None:
    first = Registration(spec_in(tmp_path))
    first.register(QUERY)
    first.close()
    with pytest.raises(LogError, match="sampling_workers of the workers must be 1"):
        Registration(spec_in(tmp_path, sampling_workers=2))
    spec = spec_in(tmp_path)
    stream = spec.place.write(PLAN, 0)
    stream.append_all([Record(REPLICAS, b"nonsense")])
    stream.close()
    with pytest.raises(LogError, match="expected a record of 'plan', got b'nonsense'"):
        Registration(spec)


@pytest.mark.parametrize("change", [resize, finish])
@pytest.mark.parametrize("runs", [True, False])
def test_a_cluster_alone_changes_its_plan(
    change: Callable[..., PlanState], runs: bool, runtime: Runtime, tmp_path: Path
) -> None:
    """Its coordinator would start the workers of before again and again, and none would go on. One that has
    ended its workers gives the plan back."""
    spec = spec_in(tmp_path)
    coordinator = Registration(spec)
    plan = coordinator.register(QUERY)
    before = begin_states(spec.place, plan)
    if not runs:
        coordinator.close()
    more = dataclasses.replace(plan, sampling_workers=2)
    with pytest.raises(InputError, match=r"here the coordinator of a cluster, .* with livegnn cluster down"):
        change(spec.place, more)
    assert begin_states(spec.place, plan) == before
    if not runs:
        coordinator = Registration(spec)
        assert coordinator.plan == plan
    coordinator.release()
    again = Registration(spec)  # is not started yet
    assert again.plan is None
    again.close()
    worker = spec.open_sampling(plan, 0, "127.0.0.1")
    with pytest.raises(InputError if change is finish else TimeoutExpired, match=r"a change|some that have"):
        change(spec.place, more, timeout=0)
    worker.close()


def test_serving_workers_listen_at_loopback_unless_told_otherwise(
    runtime: Runtime, tmp_path: Path, rng: np.random.Generator
) -> None:
    seq, node = append(runtime, rng), "127.0.0.2"  # as if it were another machine's

    def address_of(spec: ClusterSpec) -> str:
        plan = spec.plan_of(QUERY)
        serving, sampling = ServingActor(spec, plan, 0, 0, node), SamplingActor(spec, plan, 0, node)
        wait_until(lambda: working(sampling).seq == seq)
        wait_until(lambda: working(serving).address is not None)
        address = serving.report().address
        for actor in (serving, sampling):
            actor.stop()
        return str(address)

    assert address_of(spec_in(tmp_path)).startswith("http://127.0.0.1:")
    assert address_of(spec_in(tmp_path, listen="node", insecure=True)).startswith(f"http://{node}:")


def working(actor: SamplingActor | ServingActor) -> Report:
    report = actor.report()
    assert report.failure is None, report.failure
    return report


def test_nonsense_is_refused(tmp_path: Path) -> None:
    for name, value in (
        ("place", "events.db"),
        ("schema", None),
        ("directory", 5),
        ("sampling_workers", 0),
        ("serving_workers", 1.5),
        ("replicas", "two"),
        ("model", b"model"),
        ("budget_bytes", -1),
        ("shared", "no"),
        ("checkpoint_every", 0),
        ("listen", "0.0.0.0"),
    ):
        with pytest.raises(InputError, match=name):
            spec_in(tmp_path, **{name: value})


def test_specifications_are_compared(tmp_path: Path) -> None:
    spec = spec_in(tmp_path)
    assert spec.is_like(spec_in(tmp_path))
    for changed in (
        spec_in(tmp_path, seed=1),
        spec_in(tmp_path, place=SqlitePlace(tmp_path / "other.db")),
        spec_in(tmp_path, place=KafkaPlace("localhost:9092", "other", tmp_path)),
    ):
        assert not spec.is_like(changed)


def test_a_spec_says_all_that_a_plan_needs(tmp_path: Path) -> None:
    plan = WorkerPlan(SCHEMA, QUERY, 2, 3, 4, 5, False, {17: 1, 3: 2}, "source")
    given = {it.name: getattr(plan, it.name) for it in dataclasses.fields(plan) if it.init}
    assert all(value != getattr(WorkerPlan(SCHEMA, QUERY), name) for name, value in list(given.items())[2:])
    del given["query"]
    assert spec_in(tmp_path, **given).plan_of(QUERY) == plan


def test_workers_in_their_processes(runtime: Runtime, tmp_path: Path, rng: np.random.Generator) -> None:
    """A sampling worker writes a checkpoint when it is asked; a serving worker has an address when it has
    all that its seeds need.
    """
    spec = spec_in(tmp_path, moved=dict.fromkeys(range(0, NODES, 3), 1))
    plan = spec.plan_of(QUERY)
    seq = append(runtime, rng)
    serving = ServingActor(spec, plan, 1, 0, "127.0.0.1")
    wait_until(lambda: serving._worker is not None)
    assert serving.report().address is None  # no sampling worker has answered it yet
    sampling = SamplingActor(spec, plan, 0, "127.0.0.1")
    wait_until(lambda: working(sampling).seq == seq)
    assert sampling.save(PATIENCE) == seq
    assert (tmp_path / "workers" / "sampling-0.checkpoint").exists()
    wait_until(lambda: working(serving).address is not None)
    seeds = [id for id in range(NODES) if plan.serving_worker_of(np.array([id]))[0] == 1]
    answer = loopback.post(
        f"{serving.report().address}/v1/samples",
        json={"ids": seeds, "min_seq": seq, "timeout": REQUEST_SECONDS},
    )
    assert answer.json()["ids"] == seeds
    other = SamplingActor(spec, plan, 0, "127.0.0.1")  # the first one has the right to be this worker
    wait_until(lambda: other.report().failure is not None)
    with pytest.raises(LogError):
        other.save(PATIENCE)
    assert sampling.report().failure is None
    assert sampling.report().stuck_seconds < PATIENCE
    for actor in (serving, sampling, other):
        actor.stop()
    with pytest.raises(TimeoutExpired, match="expected a checkpoint"):
        sampling.save(0.01)


def test_a_worker_without_its_checkpoint_begins_anew(
    runtime: Runtime, tmp_path: Path, rng: np.random.Generator
) -> None:
    """Where machines share no folder nothing is trimmed, so another machine takes all steps again."""
    spec = spec_in(tmp_path, shared=False, checkpoint_every=1)
    plan = spec.plan_of(QUERY)
    for attempt in range(3):
        seq = append(runtime, rng)
        elsewhere = dataclasses.replace(spec, directory=tmp_path / f"machine-{attempt % 2}")
        worker = elsewhere.open_sampling(plan, 0, "127.0.0.1")
        while worker.step():
            pass
        assert worker.seq == seq
        worker.close()
    trimming = dataclasses.replace(spec, shared=True, directory=tmp_path / "machine-1")
    worker = trimming.open_sampling(plan, 0, "127.0.0.1")
    append(runtime, rng)
    while worker.step():
        pass
    worker.close()
    with pytest.raises(LogError, match="older than the steps that are kept"):
        spec.open_sampling(plan, 0, "127.0.0.1")
