"""Who does not know the seed of samples cannot choose ids that win places in them; and the seed stays what it
is, whatever starts again."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import livegnn as lg
from livegnn import checkpoint
from livegnn.cluster.registration import Registration
from livegnn.cluster.spec import ClusterSpec
from livegnn.deployment import Deployment
from livegnn.log.sqlite import SqliteLog
from livegnn.model import Input, Model, Propagate, Step
from livegnn.presampling import Presampler, SampledEngine, predictor_factory
from livegnn.runtime import Runtime
from livegnn.workers import SamplingWorker, ServingWorker, SqlitePlace, WorkerPlan, finish, resize

EDGE = ("node", "to", "node")
HUBS, HONEST, PLACES, CANDIDATES = 12, 200, 5, 2000
FAIR = HUBS * PLACES * PLACES / (HONEST + PLACES)  # of chosen ids, as many for each hub as it has places
QUERY = lg.Query("node").hop(EDGE, PLACES, direction="in")
SCHEMA = lg.Schema({"node": 1}, {EDGE: lg.EdgeSchema()})
NODES = HUBS + HONEST + CANDIDATES
MODEL = Model(
    {"x": Input("node", 1)},
    (Step("propagate", ("x",), "out", attrs=Propagate(EDGE).to_attrs()),),
    {},
    "out",
    ("x", "out"),
    query=QUERY,
)


def graph_of(nodes: int = NODES) -> lg.Graph:
    graph = lg.Graph(SCHEMA)
    graph.apply(lg.Events().add_nodes(range(nodes), np.arange(nodes, dtype=np.float32)[:, None]))
    return graph


def joined(sources: np.ndarray) -> lg.Events:
    """Edges from a row of nodes to each hub."""
    return lg.Events().add_edges(sources.ravel(), np.repeat(np.arange(HUBS), sources.shape[1]))


def chosen_for(seed: int) -> np.ndarray:
    """What an attacker finds with a copy of the library: for each hub, the ids that win where the seed is
    this one. [hubs, places]"""
    graph = graph_of()
    candidates = np.arange(HUBS + HONEST, NODES)
    graph.apply(joined(np.tile(candidates, (HUBS, 1))))
    copy = Presampler(graph, QUERY, seed=seed)
    return np.stack([copy.sample([hub]).node["node"][1:] for hub in range(HUBS)])


def stream(chosen: np.ndarray) -> Iterator[lg.Events]:
    """Honest neighbours of all hubs, and then those that are chosen."""
    yield joined(np.tile(np.arange(HUBS, HUBS + HONEST), (HUBS, 1)))
    yield joined(chosen)


def deployment_of(folder: Path, seed: int | None) -> Deployment:
    MODEL.save(folder / "model.lgnn")
    checkpoint.write(folder / "graph.checkpoint", {"graph": graph_of().state()}, 0)
    said = "" if seed is None else f"sample_seed = {seed}\n"
    (folder / "deployment.toml").write_text(
        '[model]\npath = "model.lgnn"\n[graph]\npath = "graph.checkpoint"\n[log]\npath = "events.db"\n'
        f'[engine]\nmode = "presampled"\n{said}',
        encoding="utf-8",
    )
    return Deployment.read(folder / "deployment.toml")


def samples_of_a_deployment(folder: Path, seed: int | None, events: Iterator[lg.Events]) -> np.ndarray:
    runtime = deployment_of(folder, seed).open()
    runtime.start()
    for one in events:
        runtime.wait(runtime.append(one))
    engine = runtime.views["engine"]
    assert isinstance(engine, SampledEngine)
    found = [engine.sample([hub]).node["node"][1:] for hub in range(HUBS)]
    runtime.stop()
    runtime.log.close()
    return np.concatenate(found)


def samples_of_workers(folder: Path, seed: int | None, events: Iterator[lg.Events]) -> np.ndarray:
    plan = WorkerPlan(SCHEMA, QUERY, 2, 2, seed=seed)
    with ExitStack() as opened:
        log = opened.enter_context(closing(SqliteLog(folder / "events.db")))
        runtime = Runtime(log, lg.Graph(SCHEMA))
        runtime.start()
        opened.callback(runtime.stop)
        seq = log.last_seq()
        if not seq:
            seq = runtime.append(lg.Events().add_nodes(range(NODES), np.ones((NODES, 1))))
        for one in events:
            seq = runtime.append(one)
        runtime.wait(seq)
        place = SqlitePlace(folder / "events.db")
        sampling = [SamplingWorker(place, plan, number, folder / "workers") for number in range(2)]
        serving = [ServingWorker(place, plan, number) for number in range(2)]
        for worker in (*sampling, *serving):
            opened.callback(worker.close if isinstance(worker, SamplingWorker) else worker.stop)
        for worker in serving:
            worker.start()
        while any(worker.seq < seq for worker in serving):
            for worker in sampling:
                worker.step()
        of = plan.serving_worker_of(np.arange(HUBS))
        found = [serving[at].sample([hub]).node["node"] for hub, at in enumerate(of.tolist())]
        return np.concatenate([ids[1:] for ids in found])


SAMPLERS: dict[str, Callable[[Path, int | None, Iterator[lg.Events]], np.ndarray]] = {
    "workers": samples_of_workers,
    "deployment": samples_of_a_deployment,
}


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_chosen_ids_take_their_fair_share(sampler: str, tmp_path: Path) -> None:
    chosen = chosen_for(0)
    for known in (True, False):
        folder = tmp_path / str(known)
        folder.mkdir()
        sampled = SAMPLERS[sampler](folder, 0 if known else None, stream(chosen))
        assert len(sampled) == HUBS * PLACES
        won = int((sampled >= HUBS + HONEST).sum())
        if known:
            assert won > HUBS * PLACES / 2
        else:  # of a Poisson distribution about FAIR, 1.5: one in 10^9 is above
            assert won <= 15


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_start_has_the_samples_of_before(sampler: str, tmp_path: Path) -> None:
    """Also without a checkpoint."""
    folders = [tmp_path / name for name in ("one", "other")]
    for folder in folders:
        folder.mkdir()
    none = np.zeros((HUBS, 0), np.int64)
    sample = SAMPLERS[sampler]
    first, other = (sample(folder, None, stream(none)) for folder in folders)
    assert (sample(folders[0], None, iter(())) == first).all()
    assert (first != other).any()


def test_the_seed_of_a_deployment_is_for_its_owner_alone(tmp_path: Path) -> None:
    deployment = deployment_of(tmp_path, None)
    runtime = deployment.open()
    engine = runtime.views["engine"]
    assert isinstance(engine, SampledEngine)
    runtime.start()
    runtime.models.deploy("again", MODEL)
    again = runtime.models.find("again")
    assert isinstance(again, SampledEngine)
    assert again.seed == engine.seed
    runtime.wait(runtime.append(joined(np.arange(HUBS, HUBS + HONEST)[None].repeat(HUBS, 0))))
    expected = runtime.predict(range(HUBS)).values
    runtime.stop()
    runtime.log.close()
    given = replace(deployment, engine=replace(deployment.engine, sample_seed=3)).open()
    assert isinstance(given.views["engine"], SampledEngine)
    assert given.views["engine"].seed == 3
    given.stop()
    given.log.close()
    runtime = deployment.open()
    assert (runtime.predict(range(HUBS)).values == expected).all()
    runtime.stop()
    runtime.log.close()


def test_samples_that_are_made_again_have_the_seed_of_before() -> None:
    graph = graph_of(40)
    make = predictor_factory(MODEL, lg.EngineOptions(mode="presampled"))
    first = make(graph, None)
    assert isinstance(first, SampledEngine)
    again, restored = make(lg.Graph.from_state(graph.state()), None), None
    assert isinstance(again, SampledEngine)
    assert again.seed == first.seed
    other = SampledEngine(lg.Graph.from_state(graph.state()), MODEL)
    assert other.seed != first.seed
    restored = make(lg.Graph.from_state(graph.state()), other.state())
    assert isinstance(restored, SampledEngine)
    assert restored.seed == other.seed


def test_all_workers_of_a_plan_share_its_seed(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "events.db")
    place = SqlitePlace(log.path)
    plan = WorkerPlan(SCHEMA, QUERY)
    with pytest.raises(lg.InputError, match="needs the seed of its log's workers"):
        plan.make_shard(0)
    serving = ServingWorker(place, plan, 0)
    sampling = SamplingWorker(place, plan, 0, tmp_path / "workers")
    assert sampling.plan.seed is not None
    assert serving.plan.seed == sampling.plan.seed
    with pytest.raises(lg.FileFormatError, match="must have one plan"):
        SamplingWorker(place, replace(plan, seed=sampling.plan.seed + 1), 0, tmp_path / "workers")
    more = replace(plan, serving_workers=2)
    new = ServingWorker(place, more, 1)
    for worker in (serving, new):
        worker.start()
    while sampling.step():
        pass
    with pytest.raises(lg.TimeoutExpired):  # announced; nobody has taken it yet
        resize(place, more, timeout=0)
    while sampling.plan is not None and new.changes < 1:
        sampling.step()
    assert resize(place, more).next == replace(more, seed=serving.plan.seed)
    assert finish(place, more).plan == replace(more, seed=serving.plan.seed)
    for end in (sampling.close, serving.stop, new.stop, log.close):
        end()


def test_a_seed_that_was_registered_is_kept(tmp_path: Path) -> None:
    SqliteLog(tmp_path / "events.db").close()
    spec = ClusterSpec(SqlitePlace(tmp_path / "events.db"), SCHEMA, tmp_path / "workers")
    for given, kept in ((replace(spec, seed=7), 7), (spec, 7)):
        registration = Registration(given)
        assert registration.register(QUERY).seed == kept
        registration.close()
