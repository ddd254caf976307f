"""The record of the plan: who may write it, what a reader finds, and the streams of an older version."""

import random
import shutil
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import livegnn as lg
from gate import draws
from livegnn.errors import InputError, LogError, TimeoutExpired
from livegnn.log.sqlite import SqliteLog
from livegnn.log.streams import Record, StoredRecord
from livegnn.log.streams.sqlite import path_of
from livegnn.presampling import Presampler
from livegnn.workers import PlanState, SamplingWorker, SqlitePlace, WorkerPlan, finish, resize
from livegnn.workers.older_plan import check_positions
from livegnn.workers.plan_record import PLAN, PlanReader, PlanWriter, begin_states, read_plan
from worker_cluster import LATEST, SCHEMA, Cluster, as_sets, running, some_events

WRITES = st.lists(
    st.one_of(
        st.tuples(st.just("replicas"), st.integers(0, 2), st.integers(1, 3)),
        st.tuples(st.just("drained"), st.sampled_from(["10.0.0.1", "10.0.0.2"]), st.booleans()),
        st.tuples(st.just("cluster"), st.booleans()),
        st.tuples(st.just("state"), st.integers(1, 5)),
        st.tuples(st.just("reopen")),
    ),
    max_size=12,
)


def place_in(folder: Path) -> SqlitePlace:
    SqliteLog(folder / "events.db").close()
    return SqlitePlace(folder / "events.db")


@given(writes=WRITES)
@settings(max_examples=draws(8, 30), deadline=None)
def test_readers_find_what_was_written(
    writes: list[tuple[object, ...]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A reader that follows, and one that begins, find the last value of each, and all states."""
    place, plan = place_in(tmp_path_factory.mktemp("plan")), WorkerPlan(SCHEMA, LATEST, seed=1)
    assert read_plan(place) is None
    writer = PlanWriter.open(place)
    writer.begin(plan)
    states, replicas, drained, in_cluster = [PlanState(0, 0, plan)], {}, set[str](), False
    with closing(PlanReader.open(place)) as follower:
        for kind, *values in writes:
            match kind, values:
                case "replicas", [int(number), int(count)]:
                    writer.set_replicas(number, count)
                    replicas[number] = count
                case "drained", [str(machine), bool(on)]:
                    writer.set_drained(machine, on)
                    (drained.add if on else drained.discard)(machine)
                case "cluster", [bool(in_cluster)]:
                    writer.set_cluster(in_cluster)
                case "state", [int(serving)]:
                    states.append(PlanState(len(states), 0, replace(plan, serving_workers=serving)))
                    for _ in range(2):  # the second time it is there
                        writer.append_state(states[-1])
                case _:
                    writer.close()
                    writer = PlanWriter.open(place)
            follower.read()
            newcomer = read_plan(place)
            assert newcomer is not None
            for one in (writer, follower, newcomer):
                assert one.states(plan) == states
                assert {it: count for it, count in one.replicas.items() if count > 1} == {
                    it: count for it, count in replicas.items() if count > 1
                }
                assert (one.drained, one.in_cluster) == (drained, in_cluster)
            assert not follower.read()
    writer.close()


def test_one_process_writes(tmp_path: Path) -> None:
    place, plan = place_in(tmp_path), WorkerPlan(SCHEMA, LATEST, seed=1)
    first = PlanWriter.open(place)
    with pytest.raises(LogError, match="must have one owner"):
        PlanWriter.open(place)
    first.begin(plan)
    assert begin_states(place, plan) == [PlanState(0, 0, plan)]  # a worker need not write
    first.close()
    with closing(PlanWriter.open(place)) as second:
        second.begin(replace(plan, serving_workers=2))  # it has begun
        assert second.states(plan) == [PlanState(0, 0, plan)]
        (payload,) = second._states
        with closing(place.read(PLAN, 0)) as stream:
            assert [one.payload for one in stream.records(0)] == [payload]
    with closing(place.write(PLAN, 0)) as stream:
        stream.append_all([Record("unknown", orjson.dumps(1))])
    with pytest.raises(LogError, match="expected a record of 'plan'"):
        read_plan(place)


def make_older(place: SqlitePlace, cluster: bool = False) -> None:
    """Has the streams that an older version had in place of the plan's."""
    with closing(place.read(PLAN, 0)) as stream:
        records = stream.records(0)
    older = {"worker-changes": [Record("change", one.payload, one.origin) for one in records]}
    if cluster:
        said = {"plan": {}, "replicas": [0, 2], "drained": ["10.0.0.1", True]}
        older["worker-plan"] = [Record(kind, orjson.dumps(value)) for kind, value in said.items()]
    place.create(dict.fromkeys(older, 1))
    for name, several in older.items():
        with closing(place.write(name, 0)) as stream:
            stream.append_all(several)
    shutil.rmtree(path_of(place.path, PLAN, 0).parent)


def test_a_plan_of_an_older_version_is_taken_over(tmp_path: Path) -> None:
    """Workers go on from their checkpoints and steps, after two changes of their numbers."""
    rng = random.Random(3)
    view = Presampler(lg.Graph(SCHEMA), LATEST, seed=3)
    plan = WorkerPlan(SCHEMA, LATEST, 2, 1, seed=3)
    users, edges = {0}, set[tuple[int, int]]()
    with running(tmp_path, view) as runtime, ExitStack() as opened:
        runtime.wait(runtime.append(lg.Events().add_nodes([0], [[1.0]], node_type="user")))
        cluster = Cluster(tmp_path, plan, rng)
        more = replace(plan, serving_workers=2)
        seq = 0
        for step in range(12):
            seq = runtime.append(some_events(rng, users, edges, removals=False))
            runtime.wait(seq)
            if step == 4:
                cluster.announce(more)
                cluster.serve_all(more)
            if step < 10:  # steps of workers are left to take again
                cluster.settle()
            if step == 6:
                finish(cluster.place, more, timeout=0)
        before = begin_states(cluster.place, plan)
        cluster.close()
        make_older(cluster.place)
        again = Cluster(tmp_path, more, rng)
        opened.callback(again.close)
        again.settle()
        assert begin_states(again.place, plan) == before
        for user in sorted(users):
            serving = again.serving[int(more.serving_worker_of([user])[0]), 0]
            assert serving.wait(seq, 0) == seq
            assert as_sets(serving.sample([user])) == as_sets(view.sample([user]))


@pytest.mark.parametrize("older", [False, True])
def test_a_step_with_a_change_is_taken_again(older: bool, tmp_path: Path) -> None:
    place, plan = place_in(tmp_path), WorkerPlan(SCHEMA, LATEST, seed=1)
    with closing(SamplingWorker(place, plan, 0, tmp_path / "workers")) as worker:
        with pytest.raises(TimeoutExpired):
            resize(place, replace(plan, serving_workers=2), timeout=0)
        assert worker.step()
        assert not worker.step()
        before = worker._state
        assert before == begin_states(place, plan)[-1]
    if older:
        make_older(place)
    with closing(SamplingWorker(place, plan, 0, tmp_path / "workers")) as again:
        assert again._state == before
        assert not again.step()


def test_a_cluster_of_an_older_version_is_taken_over(tmp_path: Path) -> None:
    place, plan = place_in(tmp_path), WorkerPlan(SCHEMA, LATEST, seed=1)
    begin_states(place, plan)
    make_older(place, cluster=True)
    coordinator = place.write("worker-plan", 0)  # of the older version
    with pytest.raises(LogError, match="must have one owner"):
        PlanWriter.open(place)
    coordinator.close()
    with pytest.raises(InputError, match="here the coordinator of a cluster"):
        resize(place, replace(plan, serving_workers=2), timeout=0)
    with closing(PlanWriter.open(place)) as writer:
        assert (writer.in_cluster, writer.replicas, writer.drained) == (True, {0: 2}, {"10.0.0.1"})
        assert writer.states(plan) == [PlanState(0, 0, plan)]
        writer.append_state(PlanState(1, 0, replace(plan, serving_workers=2)))
    assert [state.number for state in begin_states(place, plan)] == [0, 1]


def test_a_plan_whose_steps_would_mislead_is_refused() -> None:
    """In Kafka a state of an older version may be at another position than its number says."""
    first, second = (StoredRecord(position, "change", b"", None) for position in (1, 2))
    assert check_positions([first, second]) == [first, second]
    with pytest.raises(LogError, match="of an older version must have state 1 at position 2, got it at 3"):
        check_positions([first, second._replace(position=3)])
