"""Predictions on samples that are ready, beside an engine that reads all neighbours."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pytest
from model_examples import EDGES, ITEM_USER, USER_ITEM, make_sage, typed_graph, typed_model

from livegnn import Engine, EngineOptions, Events, Graph, InputError, LiveGNNError, ModelError, Query
from livegnn.deployment import Deployment
from livegnn.inference import SampledForward
from livegnn.log.sqlite import SqliteLog
from livegnn.model import Input, Model
from livegnn.presampling import SampledEngine, predictor_factory
from livegnn.runtime import CheckpointPolicy, Runtime, restore
from livegnn.sampling import sample_query
from livegnn.server import create_app
from waiting import PATIENCE

ALL = Query("node").hop(EDGES, 1000, direction="in").hop(EDGES, 1000, direction="in")
FEW = Query("node").hop(EDGES, 3, direction="in").hop(EDGES, 2, direction="in")
NODES = 60


def make_graph(seed: int = 0) -> Graph:
    """Of in-degrees from 0 to 40."""
    random = np.random.default_rng(seed)
    target = (NODES * random.random(400) ** 2).astype(np.int64)
    edges = np.unique(np.stack([random.integers(0, NODES, 400), target]), axis=1)
    return Graph.from_edges(*edges, x=random.standard_normal((NODES, 3)).astype(np.float32), num_nodes=NODES)


def make_events(count: int, seed: int) -> list[Events]:
    random = np.random.default_rng(seed)
    stream = []
    for _ in range(count):
        ends = random.integers(0, NODES, (2, 3))
        events = Events().add_edges(*ends)
        if random.random() < 0.6:
            events.remove_edges(ends[0, 0], ends[1, 0])
        events.set_features(random.integers(0, NODES, 1), random.standard_normal((1, 3)).astype(np.float32))
        stream.append(events)
    return stream


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SqliteLog]:
    log = SqliteLog(tmp_path / "events.db")
    yield log
    log.close()


def drain(runtime: Runtime) -> None:
    while runtime.step():
        pass


def test_with_all_neighbours_it_says_what_an_engine_says(rng: np.random.Generator) -> None:
    graph, model = make_graph(), make_sage()
    exact = Engine(graph, model, threads=1)
    sampled = SampledEngine(graph, model.with_query(ALL), threads=1, name="sampled")
    for events in make_events(25, int(rng.integers(2**31))):
        graph.apply(events)
        ids = rng.permutation(graph.ids())[:20]
        np.testing.assert_allclose(sampled.predict(ids), exact.predict(ids), rtol=2e-4, atol=2e-5)
    assert sampled.predict([]).shape == (0, 2)


def test_a_prediction_is_of_the_sample_of_the_node_alone(rng: np.random.Generator) -> None:
    """It is a function of the graph and the seed: neither of the other ids, nor of the way to the graph."""
    graph, model = make_graph(), make_sage().with_query(FEW)
    sampled = SampledEngine(graph, model, threads=1, sample_seed=5)
    for events in make_events(20, int(rng.integers(2**31))):
        graph.apply(events)
    ids = graph.ids()
    rows = sampled.predict(ids)
    forward = SampledForward(model)
    for at, id_ in enumerate(ids):
        assert (sampled.predict([id_]) == rows[at : at + 1]).all()
        assert (forward.predict(sampled.sample([id_])) == rows[at : at + 1]).all()
    anew = SampledEngine(Graph.from_state(graph.state()), model, threads=1, sample_seed=5)
    assert (anew.predict(ids) == rows).all()
    other = SampledEngine(Graph.from_state(graph.state()), model, threads=1, sample_seed=6)
    assert (other.predict(ids) != rows).any()


def one_by_one(engine: SampledEngine, ids: np.ndarray, output: str | None = None) -> np.ndarray:
    """The two steps after each other, for each node."""
    forward = SampledForward(engine.model)
    return np.concatenate([forward.predict(engine.sample([id_]), output=output) for id_ in ids.tolist()])


def said(question: Callable[[], object]) -> str:
    with pytest.raises(LiveGNNError) as caught:
        question()
    return f"{caught.type.__name__}: {caught.value}"


@pytest.mark.parametrize("kind", ["one type", "several types and features of edges", "text ids"])
def test_one_call_gives_the_bits_of_the_two_steps(kind: str, rng: np.random.Generator) -> None:
    if kind == "several types and features of edges":
        graph = typed_graph()
        query = Query("user").hop(ITEM_USER, 3, direction="in").hop(USER_ITEM, 2, direction="in")
        engine = SampledEngine(graph, typed_model().with_query(query), sample_seed=1)
        outputs, ids = ["user"], np.arange(30)
    else:
        model = replace(make_sage(), outputs={"out": "out", "hidden": "h1"}).with_query(FEW)
        graph, outputs, ids = make_graph(int(rng.integers(2**31))), ["out", "hidden"], np.arange(NODES)
        if kind == "text ids":
            edges = graph.snapshot()
            names = np.array([f"node {'é' * (i % 3)}{i}" for i in range(NODES)])
            src, dst = edges.edge_index[EDGES]
            graph = Graph.from_edges(names[src], names[dst], x=edges.x["node"], ids=names)
            ids = names
        engine = SampledEngine(graph, model, sample_seed=1)
    for count in (1, 2, 5, 700):
        asked = rng.choice(ids, count)  # many of them several times
        for output in outputs:
            expected = one_by_one(engine, asked, output)
            assert engine.predict(asked, output=output).tobytes() == expected.tobytes()
            samples = engine.samples_for(asked)
            assert engine.predict_from(samples, output=output).tobytes() == expected.tobytes()
            assert engine.predict([], output=output).shape == (0, expected.shape[1])


def test_what_one_call_refuses_is_said_as_of_the_two_steps() -> None:
    graph = make_graph()
    engine = SampledEngine(graph, make_sage().with_query(FEW), sample_seed=1)

    def slowly(ids: list[object]) -> Callable[[], object]:
        return lambda: engine.predict_from(engine.samples_for(ids))

    ids: list[object]
    for ids in ([-1], [3, 999, 1, 998], ["3"], [0.5], [[1]]):
        assert said(lambda ids=ids: engine.predict(ids)) == said(slowly(ids))  # type: ignore[misc]
    assert "999" in said(lambda: engine.predict([3, 999, 1, 998]))
    # A model reads more edge types than its query draws.
    few = Query("user").hop(USER_ITEM, 3).hop(USER_ITEM, 3, direction="in")
    typed = SampledEngine(typed_graph(), typed_model().with_query(few))
    assert "propagates along" in said(lambda: typed.predict([0, 1]))


def test_no_read_waits_for_the_graphs_writer(log: SqliteLog) -> None:
    """Who prepares a batch holds it, and may wait for who reads through a runtime."""
    graph = make_graph()
    engine = SampledEngine(graph, make_sage().with_query(FEW), threads=1)
    runtime = Runtime(log, graph, engine)
    found: list[object] = []

    def read() -> None:
        found.append(engine.predict([1, 2]).tolist())
        found.append(runtime.predict([1, 2]).values.tolist())
        found.append(runtime.predict_with_samples([1, 2]).values.tolist())

    reader = threading.Thread(target=read, daemon=True)
    with graph.writer:
        reader.start()
        reader.join(PATIENCE)
        assert len(found) == 3
        assert found[0] == found[1] == found[2]


def test_one_id_is_answered_while_many_are_computed() -> None:
    nodes = 20_000
    random = np.random.default_rng(0)
    graph = Graph.from_edges(
        *random.integers(0, nodes, (2, 5 * nodes)),
        x=random.standard_normal((nodes, 3), dtype=np.float32),
        num_nodes=nodes,
        parallel="last",
    )
    engine = SampledEngine(graph, make_sage().with_query(FEW), sample_seed=1)
    ids, answered = random.permutation(nodes), 0
    expected = engine.predict([5])
    for _ in range(20):  # where nothing else gets a turn, no round has an answer
        many = threading.Thread(target=engine.predict, args=(ids,))
        many.start()
        while many.is_alive():
            assert (engine.predict([5]) == expected).all()
            answered += many.is_alive()
        if answered:
            break
    assert answered


def test_an_answer_is_of_the_batch_that_it_names(log: SqliteLog) -> None:
    graph = make_graph()
    engine = SampledEngine(graph, make_sage().with_query(FEW), threads=1)
    runtime = Runtime(log, graph, engine)
    ids = graph.ids()
    expected = {runtime.seq: engine.predict(ids)}
    answers, end = [], threading.Event()

    def ask() -> None:
        while not end.is_set():
            answers.append(runtime.predict(ids))

    reader = threading.Thread(target=ask)
    reader.start()
    for events in make_events(60, 3):
        runtime.append(events)
        drain(runtime)
        expected[runtime.seq] = engine.predict(ids)
    end.set()
    reader.join()
    assert answers
    for seq, values in answers:
        assert (values == expected[seq]).all()


def test_over_many_seeds_it_has_the_mean_of_samples_that_are_drawn() -> None:
    """One layer is linear in the sample, so means of predictions can be compared."""
    graph, whole = make_graph(), make_sage()
    weights = {name: whole.tensors[name] for name in ("w1", "b1")}
    linear = Model({"x": Input("node", 3)}, whole.steps[:2], weights, "l1", ("x", "l1"))
    query = Query("node").hop(EDGES, 3, direction="in")
    model, hub = linear.with_query(query), int(np.argmax(graph.degree(graph.ids())))
    forward, count = SampledForward(model), 400

    def draw(seed: int) -> np.ndarray:
        return forward.predict(sample_query(graph, [hub], query, attributes=True, seed=seed))[0]

    ready = np.stack(
        [SampledEngine(graph, model, sample_seed=s, threads=1).predict([hub])[0] for s in range(count)]
    )
    drawn = np.stack([draw(seed) for seed in range(count)])
    error = np.sqrt((ready.var(0) + drawn.var(0)) / count)
    assert (np.abs(ready.mean(0) - drawn.mean(0)) < 5 * error).all()


def test_what_no_sampled_engine_can_be_made_of() -> None:
    graph, model = make_graph(), make_sage()
    with pytest.raises(ModelError, match="must carry the query that it was trained with, got one without"):
        SampledEngine(graph, model)
    sampled = model.with_query(FEW)
    with pytest.raises(InputError, match="must be 'presampled', got 'lazy'"):
        SampledEngine(graph, sampled, mode="lazy")
    with pytest.raises(InputError, match="mode must be 'eager' or 'lazy'"):
        Engine(graph, sampled, mode="presampled")
    with pytest.raises(InputError, match="sample_seed"):
        SampledEngine(graph, sampled, sample_seed=-1)
    with pytest.raises(InputError, match="state must be what"):
        SampledEngine(graph, sampled, state=graph)  # type: ignore[arg-type]
    foreign = model.with_query(
        Query("node").hop(("node", "other", "node"), 2, direction="in").hop(("node", "other", "node"), 2)
    )
    with pytest.raises(InputError, match="other"):
        SampledEngine(graph, foreign)


def test_one_can_serve_beside_an_exact_one_and_take_over(log: SqliteLog, tmp_path: Path) -> None:
    graph, model = make_graph(), make_sage().with_query(FEW)
    policy = CheckpointPolicy(tmp_path / "checkpoints", every_events=10**9)
    runtime = Runtime(log, graph, Engine(graph, model, threads=1), checkpoints=policy)
    for events in make_events(10, 1):
        runtime.append(events)
    drain(runtime)
    ids = graph.ids()
    thread = threading.Thread(
        target=runtime.models.deploy, args=("samples", model, EngineOptions(mode="presampled"))
    )
    thread.start()
    while thread.is_alive():
        runtime.step()
        thread.join(0.01)
    found = runtime.models.compare("samples")
    degrees = graph.degree(ids)
    a, b = runtime.predict(ids).values, runtime.predict(ids, model="samples").values
    differ = np.abs(a.astype(np.float64) - b).max(1)
    assert sum(one.nodes for one in found.degrees) == found.nodes == NODES
    for one in found.degrees:
        here = degrees == 0 if one.degree == 0 else (degrees >= one.degree) & (degrees < 2 * one.degree)
        assert (one.nodes, one.different) == (here.sum(), (differ[here] > found.tolerance).sum())
        assert one.largest == pytest.approx(differ[here].max())
        assert one.mean == pytest.approx(np.abs(a.astype(np.float64) - b)[here].mean())
    assert found.degrees[-1].different > 0
    for question in (
        lambda: runtime.what_if(Events().add_nodes(99), [0], model="samples"),
        lambda: runtime.predict_with_samples([0]),
    ):
        with pytest.raises(InputError, match="samples"):
            question()
    told = []
    runtime.subscribe(lambda change: told.append((change.seq, len(change.ids))))
    ask_in_thread(runtime, lambda: runtime.models.switch("samples"))
    runtime.append(make_events(1, 7)[0])
    drain(runtime)
    assert told == [(runtime.seq, 0)]  # which predictions changed nobody has computed
    assert runtime.predict_at_once([0]) is None
    with pytest.raises(InputError, match="this needs a model that keeps rows, got 'samples'"):
        runtime.engine
    answer = runtime.predict_with_samples([3, 4])
    assert (answer.values == runtime.predict([3, 4], model="samples").values).all()
    assert [sample.node["node"][0] for sample in answer.samples] == [3, 4]
    ask_in_thread(runtime, lambda: runtime.models.roll_back())
    runtime.stop()


def ask_in_thread(runtime: Runtime, question: object) -> None:
    """Asks beside the loop, which this thread is."""
    thread = threading.Thread(target=question)  # type: ignore[arg-type]
    thread.start()
    while thread.is_alive():
        runtime.step()
        thread.join(0.01)


def test_a_restart_has_the_same_predictions(tmp_path: Path) -> None:
    model, directory = make_sage().with_query(FEW), tmp_path / "checkpoints"

    def start() -> Runtime:
        log = SqliteLog(tmp_path / "events.db")
        options = EngineOptions(mode="presampled", sample_seed=3)
        factories = {"engine": predictor_factory(model, options)}
        graph, views = restore(factories, make_graph, directory=directory, log=log)
        return Runtime(log, graph, *views.values(), checkpoints=CheckpointPolicy(directory))

    runtime = start()
    for events in make_events(15, 2):
        runtime.append(events)
    drain(runtime)
    expected = runtime.predict(runtime.graph.ids()).values
    runtime.stop()
    runtime.log.close()
    again = start()
    assert (again.predict(again.graph.ids()).values == expected).all()
    again.log.close()


def test_over_http(log: SqliteLog) -> None:
    graph, model = make_graph(), make_sage().with_query(FEW)
    runtime = Runtime(log, graph, SampledEngine(graph, model, threads=1))
    app = create_app(runtime)

    def ask(path: str, body: object) -> httpx.Response:
        async def request() -> httpx.Response:
            transport = httpx.ASGITransport(app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                return await client.request("POST", path, json=body)

        return asyncio.run(request())

    answer = ask("/v1/samples", {"ids": [0, 5]}).json()
    np.testing.assert_array_equal(np.float32(answer["predictions"]), runtime.predict([0, 5]).values)
    assert ask("/v1/predictions", {"ids": [0, 5]}).json()["predictions"] == answer["predictions"]
    for id_, sample in zip([0, 5], answer["samples"], strict=True):
        expected = runtime.predict_with_samples([id_]).samples[0]
        assert sample["nodes"] == {"node": expected.node["node"].tolist()}
        (edges,) = sample["edges"]
        assert (tuple(edges["edge_type"]), edges["row"], edges["col"]) == (
            EDGES,
            expected.row[EDGES].tolist(),
            expected.col[EDGES].tolist(),
        )
    for body, status in (({"ids": [999]}, 404), ({"ids": [0], "output": "no"}, 400), ({}, 400)):
        assert ask("/v1/samples", body).status_code == status
    refused = ask("/v1/what-if", {"events": [], "ids": [0]})
    assert (refused.status_code, refused.json()["type"]) == (400, "/problems/invalid-input")


def test_a_deployment_switches_by_its_mode(tmp_path: Path) -> None:
    graph, model = make_graph(), make_sage().with_query(ALL)
    model.save(tmp_path / "model.lgnn")
    edges = graph.snapshot()
    src, dst = edges.edge_index[EDGES]
    np.savez(tmp_path / "graph.npz", src=src, dst=dst, x=edges.x["node"])
    answers = []
    for mode in ("eager", "presampled"):
        (tmp_path / "d.toml").write_text(
            f'[model]\npath = "model.lgnn"\n[graph]\npath = "graph.npz"\n[log]\npath = "{mode}.db"\n'
            f'[engine]\nmode = "{mode}"\nsample_seed = 4\n',
            encoding="utf-8",
        )
        runtime = Deployment.read(tmp_path / "d.toml").open()
        answers.append(runtime.predict(runtime.graph.ids()).values)
        runtime.log.close()
    np.testing.assert_allclose(*answers, rtol=2e-4, atol=2e-5)
