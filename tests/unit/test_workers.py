"""Sampling and serving workers over streams: they answer as a sampler in the process of the graph does,
whatever becomes of the workers meanwhile."""

import random
import threading
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import livegnn as lg
import livegnn._core as _core
from gate import draws
from livegnn.errors import (
    FileFormatError,
    InputError,
    LogError,
    ModelError,
    TimeoutExpired,
    UnknownNodeError,
)
from livegnn.log.sqlite import SqliteLog
from livegnn.log.streams import Record
from livegnn.model import Degree, Input, Model, Propagate, Step
from livegnn.presampling import Presampler, SampledEngine
from livegnn.runtime import Runtime
from livegnn.workers import SamplingWorker, ServingWorker, SqlitePlace, WorkerPlan
from livegnn.workers.messages import REQUEST
from streams import make_model
from worker_cluster import (
    ALIKE,
    CLICKS,
    ITEMS,
    LATEST,
    SCHEMA,
    UNIFORM,
    USERS,
    Cluster,
    as_sets,
    running,
    some_events,
)


def model_of(query: lg.Query) -> Model:
    """Rows of users from what they clicked, and from what that is alike; or, for a query that draws nothing
    that is alike, from how much that is, and from who clicked it too."""
    steps: tuple[Step, ...] = (
        Step("propagate", ("i",), "near", attrs=Propagate(ALIKE, ("weight",), "sum", "divide").to_attrs()),
        Step("concat", ("near", "i"), "both"),
        Step("propagate", ("both",), "h", attrs=Propagate(ALIKE, reverse=True).to_attrs()),
    )
    if query is UNIFORM:
        steps = (
            Step("degree", (), "near", attrs=Degree(ALIKE).to_attrs()),
            Step("concat", ("near", "i"), "both"),
            Step("propagate", ("both",), "who", attrs=Propagate(CLICKS, reverse=True).to_attrs()),
            Step("propagate", ("who",), "clicked", attrs=Propagate(CLICKS).to_attrs()),
            Step("concat", ("clicked", "near"), "h"),
        )
    steps += (
        Step("propagate", ("h",), "seen", attrs=Propagate(CLICKS, reverse=True).to_attrs()),
        Step("concat", ("seen", "u"), "s"),
        Step("linear", ("s",), "out", {"weight": "w"}),
    )
    tensors = {"w": np.random.default_rng(0).standard_normal((2, 5), np.float32)}
    return Model(
        {"u": Input("user", 1), "i": Input("item", 2)},
        steps,
        tensors,
        "out",
        ("u", "out"),
        outputs={"out": "out", "clicked": "seen", "items": "h"},
    ).with_query(query)


@pytest.mark.parametrize("query", [LATEST, UNIFORM], ids=["latest", "uniform"])
@given(seed=st.integers(0, 2**32), workers=st.tuples(st.integers(1, 3), st.integers(1, 3)))
@settings(max_examples=draws(6, 12), deadline=None)
def test_serving_workers_answer_as_a_sampler_beside_the_graph(
    query: lg.Query, seed: int, workers: tuple[int, int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder, rng = tmp_path_factory.mktemp("cluster"), random.Random(seed)
    moved = {user: rng.randrange(workers[1]) for user in range(USERS) if rng.random() < 0.2}
    plan = WorkerPlan(SCHEMA, query, *workers, seed=seed, moved=moved)
    view = Presampler(lg.Graph(SCHEMA), query, seed=seed)
    with running(folder, view) as runtime, ExitStack() as opened:
        # A view draws by the graph's own numbers: here they are the ids, where more is drawn than there is.
        first = [0] if query is LATEST else list(range(USERS))
        begin = lg.Events().add_nodes(first, np.ones((len(first), 1)), node_type="user")
        if query is UNIFORM:
            begin.add_nodes(np.arange(ITEMS), np.ones((ITEMS, 2)), node_type="item")
        seq = runtime.append(begin)
        runtime.wait(seq)
        cluster = Cluster(folder, plan, rng, model_of(query))
        opened.callback(cluster.close)
        users, edges = set(first), set[tuple[int, int]]()
        for _ in range(12):
            seq = runtime.append(some_events(rng, users, edges, removals=query is LATEST))
            if rng.random() < 0.3:
                cluster.replace()
            for _ in range(rng.randrange(6)):
                cluster.go_on()
        runtime.wait(seq)
        cluster.settle()
        for worker in cluster.serving.values():
            assert worker.wait(seq, 0) == seq
        for user in range(USERS):
            at = int(plan.serving_worker_of(np.array([user]))[0]), 0
            if user not in users:
                with pytest.raises(UnknownNodeError, match=rf"got {user}, which is not there at event {seq}"):
                    cluster.serving[at].sample([user])
                continue
            assert as_sets(cluster.serving[at].sample([user])) == as_sets(view.sample([user]))
        for (at, _), worker in cluster.serving.items():
            own = [user for user in users if plan.serving_worker_of(np.array([user]))[0] == at]
            assert_same_predictions(worker, [rng.choice(own) for _ in range(rng.randrange(9)) if own])


def assert_same_predictions(worker: ServingWorker, ids: list[int]) -> None:
    """In one call, as on one sample after the other: the same bits, or the same error."""
    for output in ("out", "clicked"):
        if worker.plan.query is LATEST:
            expected, samples = worker.predict_with_samples(ids, output=output)
            found = worker.predict(ids, output=output)
            assert found.values.tobytes() == expected.values.tobytes()
            assert (found.seq, found.values.shape) == (expected.seq, (len(ids), expected.values.shape[1]))
            assert len(samples) == len(ids)
        elif ids:
            for predict in (worker.predict, worker.predict_with_samples):
                with pytest.raises(InputError, match=r"the model propagates along .*alike"):
                    predict(ids, output=output)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A log with two users who clicked."""
    view = Presampler(lg.Graph(SCHEMA), LATEST, seed=1)
    with running(tmp_path, view) as runtime:
        events = lg.Events().add_nodes([1, 2], [[3.0], [4.0]], node_type="user")
        runtime.wait(runtime.append(events.add_edges([1, 2], [7, 8], time=[1.0, 2.0], edge_type=CLICKS)))
    return tmp_path


def make_worker(folder: Path, plan: WorkerPlan, worker: int = 0) -> SamplingWorker:
    return SamplingWorker(SqlitePlace(folder / "events.db"), plan, worker, folder / "workers")


def test_predictions_are_those_of_an_engine_on_samples(tmp_path: Path) -> None:
    edge = ("node", "to", "node")
    schema = lg.Schema({"node": 4}, {edge: lg.EdgeSchema()})
    query = lg.Query("node").hop(edge, 3, direction="in").hop(edge, 2, direction="in")
    model = make_model().with_query(query)
    engine = SampledEngine(lg.Graph(schema), model, sample_seed=5)
    log = SqliteLog(tmp_path / "events.db")
    runtime = Runtime(log, engine.graph, engine)
    runtime.start()
    rng = np.random.default_rng(1)
    begin = lg.Events().add_nodes(np.arange(20), rng.normal(size=(20, 4)))
    seq = runtime.append(begin.add_edges(rng.integers(0, 20, 80), rng.integers(0, 20, 80)))
    runtime.wait(seq)
    plan = WorkerPlan(schema, query, seed=5)
    place = SqlitePlace(log.path)
    sampling, serving = SamplingWorker(place, plan, 0, tmp_path), ServingWorker(place, plan, 0, model)
    serving.start()
    while serving.seq < seq:
        sampling.step()
    found = serving.predict(np.arange(20), min_seq=seq)
    assert (found.seq, found.values.tolist()) == (seq, engine.predict(np.arange(20)).tolist())
    assert serving.predict([]).values.shape == (0, found.values.shape[1])
    assert_answers_while_many_are_computed(serving)
    for worker in (sampling.close, serving.stop, runtime.stop, log.close):
        worker()


def assert_answers_while_many_are_computed(serving: ServingWorker) -> None:
    """20,000 seeds in one native call, as of a worker that has so many."""
    cache, forward, places = serving._cache, serving._forward, serving._places
    assert isinstance(cache, _core.SampleCache)
    assert forward is not None
    assert places is not None
    expected, answered = serving.predict([5]).values, 0
    rows: list[np.ndarray] = []

    def ask() -> None:
        ids = np.tile(np.arange(20), 1000)
        rows.append(cache.predict(forward.native, 0, *places, ids)[0])

    for _ in range(20):  # where nothing else gets a turn, no round has an answer
        many = threading.Thread(target=ask)
        many.start()
        while many.is_alive():
            assert (serving.predict([5]).values == expected).all()
            answered += many.is_alive()
        if answered:
            break
    assert answered
    assert (rows[-1][5::20] == expected).all()


def test_a_serving_worker_that_missed_something_asks_for_everything(folder: Path) -> None:
    plan = WorkerPlan(SCHEMA, LATEST)
    sampling = make_worker(folder, plan)
    serving = ServingWorker(SqlitePlace(folder / "events.db"), plan, 0)
    serving.begin()
    while sampling.step() or serving.follow():
        pass
    before = as_sets(serving.sample([1, 2]))
    for _ in range(3):  # what it has not read yet is trimmed
        serving._requests.append_all([Record(REQUEST, b"1")])
        sampling.step()
        sampling.save()
    with pytest.raises(TimeoutExpired, match="expected event 99 within 0 seconds"):
        serving.wait(99, 0)
    assert serving.follow()
    while sampling.step() or serving.follow():
        pass
    assert as_sets(serving.sample([1, 2])) == before
    sampling.close()
    serving.stop()


def test_what_workers_cannot_do_is_refused(folder: Path) -> None:
    plan = WorkerPlan(SCHEMA, LATEST, 2, 2)
    own = ("user", "owns", "item")
    nodes = {"user": 0, "item": 0}
    for schema, message in (
        (lg.Schema(nodes, {own: lg.EdgeSchema()}, text_ids=True), "integer ids, got a schema with text ids"),
        (lg.Schema(nodes, {own: lg.EdgeSchema(duplicates="keep")}), "duplicates='keep' and edge_dim=0"),
        (lg.Schema(nodes, {own: lg.EdgeSchema(edge_dim=2)}), "duplicates='replace' and edge_dim=2"),
    ):
        with pytest.raises(InputError, match=message):
            WorkerPlan(schema, lg.Query("user").hop(own, 2))
    with pytest.raises(InputError, match="at most 1,024 neighbors"):
        WorkerPlan(SCHEMA, lg.Query("user").hop(CLICKS, 1025))
    with pytest.raises(InputError, match="sampling_workers must be"):
        WorkerPlan(SCHEMA, LATEST, 0)
    with pytest.raises(InputError, match="worker must be"):
        make_worker(folder, plan, 2)
    sampling = make_worker(folder, plan)
    with pytest.raises(LogError, match="must have its name for itself, got 'sampling-0'"):
        make_worker(folder, plan)  # another process is this worker
    while sampling.step():
        pass
    sampling.save()
    sampling.close()
    with pytest.raises(FileFormatError, match="workers of one log must have one plan"):
        make_worker(folder, WorkerPlan(SCHEMA, LATEST, 2, 2, seed=9))
    with pytest.raises(InputError, match="the serving worker of seed 3 must be"):
        WorkerPlan(SCHEMA, LATEST, 2, 2, moved={3: 2})
    serving = ServingWorker(SqlitePlace(folder / "events.db"), plan, 1)
    seeds = np.arange(100)
    strangers = seeds[plan.serving_worker_of(seeds) == 0]
    with pytest.raises(InputError, match=f"seeds of serving worker 1, got {strangers[0]}, of worker 0"):
        serving.sample(strangers)
    with pytest.raises(UnknownNodeError, match="not there at event 0"):
        serving.sample(seeds[plan.serving_worker_of(seeds) == 1])
    with pytest.raises(ModelError, match="predictions need a model"):
        serving.predict([1])
    serving.stop()


def test_what_cannot_be_read_is_tried_again_after_longer_and_longer_pauses(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serving = ServingWorker(SqlitePlace(folder / "events.db"), WorkerPlan(SCHEMA, LATEST), 0)
    pauses: list[float] = []

    def follow() -> bool:
        if len(pauses) == 14:
            assert serving.readiness().reasons["streams"] == "a record is damaged"
        if len(pauses) in (14, 16):
            return False
        raise LogError("a record is damaged")

    def wait(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 17:
            serving._stopped.set()

    monkeypatch.setattr(serving, "follow", follow)
    monkeypatch.setattr(serving._stopped, "wait", wait)
    serving._run()
    doubled = [0.002 * 2**number for number in range(9)]
    assert pauses == [*doubled, *[1.0] * 5, 0.002, 0.002, 0.002]
    assert "streams" not in serving.readiness().reasons
    serving.stop()
