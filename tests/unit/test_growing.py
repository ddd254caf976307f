"""A schema that grows: columns and types that a live graph gets, as events of its log."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_examples import ITEM_USER, USER_ITEM, typed_graph, typed_model

from gate import draws
from livegnn import (
    EdgeSchema,
    Engine,
    EngineOptions,
    Events,
    FileFormatError,
    Graph,
    Growth,
    InputError,
    ModelError,
    Query,
    Schema,
    checkpoint,
)
from livegnn.graph import View
from livegnn.log.sqlite import SqliteLog
from livegnn.model import Input, Model, Propagate, Step
from livegnn.partitions import LocalPartitions
from livegnn.placement import Owners
from livegnn.presampling import predictor_factory
from livegnn.runtime import CheckpointPolicy, Runtime, list_checkpoints, restore
from livegnn.server import create_app
from streams import WIDTH, make_graph, make_model, make_stream, make_wider_model

TAGS = ("tag", "of", "node")
AGE = Growth(columns={"node": {"age": 0.5}})
MODES = (
    {},
    {"keep": "aggregates"},
    {"keep": "aggregates", "keep_degree": 3},
    {"mode": "lazy"},
)
GROWTHS = (
    Growth(columns={"user": {"age": 0.25, "city": -2.0}}),
    Growth(columns={"item": {"price": 7.0}, "user": {"score": 1e-3}}),
    Growth(node_types={"tag": 2}, edge_types={("tag", "of", "item"): EdgeSchema(edge_dim=3)}),
    Growth(edge_types={("user", "knows", "user"): EdgeSchema(undirected=True, weighted=True)}),
)


def two_ways() -> Model:
    """Along the edges of users to items and back: rows of some nodes alone can be kept."""
    there, back = Propagate(USER_ITEM), Propagate(USER_ITEM, reverse=True)
    steps = (
        Step("propagate", ("users",), "item", attrs=there.to_attrs()),
        Step("relu", ("item",), "item_1"),
        Step("propagate", ("item_1",), "user", attrs=back.to_attrs()),
    )
    outputs = {"user": "user", "item": "item_1"}
    return Model({"users": Input("user", 3)}, steps, {}, "user", ("users", "user"), outputs=outputs)


def typed_events(rng: np.random.Generator, graph: Graph) -> Events:
    """A few events of types that the graph of `typed_graph` begins with, as clients of then send them."""
    events = Events()
    ids = {name: graph.ids(name) for name in ("user", "item")}
    for _ in range(int(rng.integers(1, 5))):
        name = str(rng.choice(["user", "item"]))
        width = graph.schema.widths_of(name)[0]
        match int(rng.integers(0, 5)):
            case 0:
                events.add_edges(
                    rng.choice(ids["item"], 3),
                    rng.choice(ids["user"], 3),
                    edge_type=ITEM_USER,
                    edge_attr=rng.normal(size=(3, 2)),
                )
            case 1:
                events.add_edges(rng.choice(ids["user"], 3), rng.choice(ids["item"], 3), edge_type=USER_ITEM)
            case 2:
                events.remove_edges(
                    rng.choice(ids["user"], 3), rng.choice(ids["item"], 3), edge_type=USER_ITEM
                )
            case 3:
                times = rng.integers(0, 9, 2) if name in graph.schema.timed_features else None
                x = rng.normal(size=(2, width))
                events.set_features(rng.choice(ids[name], 2), x, time=times, node_type=name)
            case _:
                events.add_nodes([int(ids[name].max()) + 1], node_type=name)
    return events


def typed_pair(
    seed: int, first: Growth, second: Growth, mode: dict[str, object], timed: bool
) -> tuple[Engine, Engine]:
    """Engines on a graph that grows in the middle of a stream, and on one that had the schema before it."""
    start = typed_graph(["user"] if timed else [])
    growing = Graph.from_state(start.state())
    grown = Graph.from_state(start.state())
    for growth in (first, second):
        grown.apply(Events().grow(growth))
    model = two_ways() if "keep_degree" in mode else typed_model()
    engines = tuple(Engine(graph, model, threads=1, **mode) for graph in (growing, grown))  # type: ignore[arg-type]
    rng = np.random.default_rng(seed)
    places = set(rng.choice(12, 2, replace=False).tolist())
    for number in range(12):
        if number in places:
            growing.apply(Events().grow(first if number == min(places) else second))
        events = typed_events(rng, growing)
        for engine in engines:
            engine.apply(events)
    return engines  # type: ignore[return-value]


@settings(max_examples=draws(6, 60), deadline=None)
@given(
    seed=st.integers(0, 2**32),
    growths=st.permutations(GROWTHS),
    mode=st.sampled_from(MODES),
    timed=st.booleans(),
)
def test_a_graph_that_grows_is_as_if_it_had_the_schema_from_the_start(
    seed: int, growths: list[Growth], mode: dict[str, object], timed: bool
) -> None:
    ours, theirs = typed_pair(seed, growths[0], growths[1], mode, timed)
    for output in ("user", "item"):
        ids = ours.graph.ids(output)
        assert ours.predict(ids, output=output).tobytes() == theirs.predict(ids, output=output).tobytes()
    one, other = ours.graph.state(), theirs.graph.state()
    assert one.meta["schema"] == other.meta["schema"]
    assert {name: array.tobytes() for name, array in one.arrays.items()} == {
        name: array.tobytes() for name, array in other.arrays.items()
    }
    ours.graph.native.check()
    assert ours.verify().ok


def test_an_engine_goes_on_with_the_bits_that_it_would_have_without_the_growth() -> None:
    start = make_graph()
    engines = [Engine(Graph.from_state(start.state()), make_model(), threads=1) for _ in range(2)]
    for number, events in enumerate(make_stream(20)):
        if number == 7:
            engines[0].apply(Events().grow(AGE))
        for engine in engines:
            engine.apply(events)
    ids = engines[0].graph.ids()
    assert engines[0].predict(ids).tobytes() == engines[1].predict(ids).tobytes()
    assert engines[0].what_if(Events().set_features([1], np.ones((1, WIDTH)))).num_changed > 0


def test_rows_have_the_given_value_where_they_lack_the_column() -> None:
    graph = make_graph()
    old = graph.features([1, 2])
    graph.apply(Events().grow(AGE))
    assert graph.schema.node_types == {"node": WIDTH + 1}
    assert np.array_equal(graph.features([1, 2]), np.hstack([old, np.full((2, 1), 0.5)]))
    graph.apply(Events().set_features([1], np.ones((1, WIDTH))).add_nodes([100], np.zeros((1, WIDTH + 1))))
    graph.apply(Events().add_nodes([102]).add_nodes([2]))
    assert graph.features([1, 100, 102])[:, -1].tolist() == [0.5, 0.0, 0.5]
    assert graph.features([1, 102])[:, 0].tolist() == [1.0, 0.0]
    assert np.array_equal(graph.features([2])[0, :WIDTH], old[1])  # it existed, and got no features
    with pytest.raises(InputError, match="x must have 5 or 4 features for node type 'node', got 3"):
        graph.apply(Events().set_features([1], np.ones((1, 3))))
    again = Graph.from_state(graph.state())
    assert again.schema == graph.schema
    assert again.schema.origin == make_graph().schema


def test_nodes_that_are_added_unannounced_have_the_values_too() -> None:
    schema = Schema({"user": 1}, {("user", "to", "user"): EdgeSchema()}, auto_add={"user": (3.0,)})
    graph = Graph(schema)
    graph.apply(Events().grow(Growth(columns={"user": {"age": 4.0}})))
    graph.apply(Events().add_edges(1, 2))
    assert graph.features([1, 2]).tolist() == [[3.0, 4.0]] * 2


def test_a_client_that_knows_one_type_goes_on_without_naming_it() -> None:
    graph = make_graph()
    graph.apply(Events().grow(Growth(node_types={"tag": 0}, edge_types={TAGS: EdgeSchema()})))
    graph.apply(Events().add_edges(1, 2).add_nodes([5], node_type="tag"))
    graph.apply(Events().add_edges([5], [1], edge_type=TAGS))
    assert (graph.num_nodes(), graph.num_nodes("tag"), graph.num_edges(TAGS)) == (40, 1, 1)
    assert graph.neighbors(1, edge_type=TAGS).ids.tolist() == [5]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SqliteLog]:
    log = SqliteLog(tmp_path / "events.db")
    yield log
    log.close()


def drain(runtime: Runtime) -> None:
    while runtime.step():
        pass


def run_and_grow(log: SqliteLog, directory: Path | None = None, stream: int = 20) -> Runtime:
    """A runtime whose log has a growth amid entries, which wait together."""
    graph = make_graph()
    policy = None if directory is None else CheckpointPolicy(directory, every_events=10)
    runtime = Runtime(log, graph, Engine(graph, make_model(), threads=1), checkpoints=policy)
    entries = make_stream(stream)
    for events in entries[: stream // 2]:
        runtime.append(events)
    runtime.grow(AGE)
    for events in entries[stream // 2 :]:
        runtime.append(events)
    drain(runtime)
    return runtime


def same(one: Runtime, other: Runtime) -> bool:
    ids = one.graph.ids()
    return (
        one.seq == other.seq
        and one.graph.schema == other.graph.schema
        and one.predict(ids).values.tobytes() == other.predict(ids).values.tobytes()
        and one.graph.features(ids).tobytes() == other.graph.features(ids).tobytes()
    )


def test_a_replay_grows_the_graph_where_the_log_says(log: SqliteLog) -> None:
    runtime = run_and_grow(log)
    growth = next(entry for entry in log.entries(0) if entry.events == Events().grow(AGE))
    assert any((one.after, one.seq) == (growth.seq - 1, growth.seq) for one in log.batches(0))
    graph = make_graph()
    assert same(runtime, Runtime(log, graph, Engine(graph, make_model(), threads=1)))


def test_a_start_from_a_checkpoint_before_or_after_the_growth(tmp_path: Path, log: SqliteLog) -> None:
    runtime = run_and_grow(log, tmp_path / "c")
    runtime.stop()
    newest, *older = list_checkpoints(tmp_path / "c")
    widths = []
    for path in (newest, *older):
        factory = Engine.factory(make_model(), threads=1)
        graph, views = restore({"engine": factory}, make_graph, directory=tmp_path / "c", log=log)
        widths.append(checkpoint.read(path).states["graph"].meta["schema"]["node_types"]["node"])  # type: ignore[call-overload, index]
        again = Runtime(log, graph, views["engine"])
        assert same(runtime, again)
        assert again.engine.verify().ok
        path.unlink()
    graph = make_graph()
    assert same(runtime, Runtime(log, graph, Engine(graph, make_model(), threads=1)))
    assert widths[0] == WIDTH + 1


def test_a_growth_that_was_recorded_is_applied_whatever_comes_between(log: SqliteLog) -> None:
    graph = make_graph()
    runtime = Runtime(log, graph, Engine(graph, make_model(), threads=1))
    record, seen = log.record_batch, []

    def interrupt(*args: object) -> None:
        record(*args)  # type: ignore[arg-type]
        seen.append(graph.schema)
        raise KeyboardInterrupt

    runtime.grow(AGE)
    log.record_batch = interrupt  # type: ignore[method-assign, assignment]
    with pytest.raises(KeyboardInterrupt):
        runtime.step()
    log.record_batch = record  # type: ignore[method-assign]
    assert seen == [make_graph().schema]
    assert (graph.schema.growths, runtime.seq) == ((AGE,), 1)
    start = make_graph()  # as after a kill: the log has the batch, and no graph shows it
    Runtime(log, start, Engine(start, make_model(), threads=1)).stop()
    assert start.schema == graph.schema
    assert start.features(start.ids()).tobytes() == graph.features(graph.ids()).tobytes()
    runtime.append(Events().add_nodes([77]))
    drain(runtime)
    assert graph.contains([77]).all()


def test_nothing_changes_if_the_growth_cannot_be_recorded() -> None:
    graph = make_graph()
    engine = Engine(graph, make_model(), threads=1)
    before = engine.predict(graph.ids())

    def refuse(change: object) -> None:
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        graph.apply(Events().grow(AGE), on_staged=refuse)
    assert (graph.schema, graph.seq) == (make_graph().schema, 0)
    graph.apply(Events().add_nodes([100], np.ones((1, WIDTH))))
    assert np.array_equal(engine.predict(graph.ids()[:40]), before)


def test_a_running_loop_grows_and_a_model_that_reads_the_column_is_deployed(log: SqliteLog) -> None:
    graph = make_graph()
    runtime = Runtime(log, graph, Engine(graph, make_model(), threads=1))
    runtime.start()
    told: list[int] = []
    runtime.subscribe(lambda change: told.append(change.seq))
    try:
        seq = runtime.grow(AGE, timeout=60)
        runtime.wait(runtime.append(Events().set_features([1], [[1, 2, 3, 4, 5]])), 60)
        runtime.models.deploy("wider", make_wider_model())
        runtime.wait(runtime.append(Events().add_edges([1], [2], weight=1)), 60)
        assert runtime.models.find_engine("wider").verify().ok
        assert runtime.engine.verify().ok
        with pytest.raises(InputError, match="the column 'age' of node type 'node' was added before"):
            runtime.grow(AGE)
    finally:
        runtime.stop()
    assert seq in told


def test_a_growth_that_another_has_made_impossible_is_rejected(log: SqliteLog) -> None:
    runtime = run_and_grow(log, stream=0)
    log.append(Events().grow(AGE))
    log.append(Events().add_nodes([77]))
    drain(runtime)
    (rejection,) = log.rejections()
    assert (rejection.seq, rejection.error) == (2, "InputError")
    assert "was added before" in rejection.message
    assert runtime.graph.contains([77]).all()
    graph = make_graph()
    assert same(runtime, Runtime(log, graph, Engine(graph, make_model(), threads=1)))


class Stubborn(View):
    name = "stubborn"


def test_what_cannot_follow_is_refused_before_anything_is_logged(log: SqliteLog) -> None:
    graph = make_graph()
    view = Stubborn(graph)
    graph.attach(view)
    runtime = Runtime(log, graph, view)
    with pytest.raises(InputError, match="views that can follow a growth of the schema, got 'stubborn'"):
        runtime.grow(AGE)
    runtime.stop()
    with pytest.raises(InputError, match="stubborn"):
        graph.apply(Events().grow(AGE))
    assert log.last_seq() == graph.seq == 0
    with pytest.raises(InputError, match="must be an entry and a batch of its own"):
        runtime.append(Events().grow(AGE).add_nodes([1]))
    with pytest.raises(InputError, match="got a growth of the schema: apply it as a batch of its own"):
        graph.stage(Events().grow(AGE))


def test_a_model_that_answers_from_samples_reads_all_columns() -> None:
    query = Query("node").hop(("node", "to", "node"), 3, direction="in")
    model = make_model().with_query(query.hop(("node", "to", "node"), 2, direction="in"))
    make = predictor_factory(model, EngineOptions(mode="presampled", sample_seed=1))
    graph = make_graph()
    view = make(graph, None)  # a graph holds its views weakly
    with pytest.raises(InputError, match=f"views that can follow a growth of the schema, got '{view.name}'"):
        graph.apply(Events().grow(AGE))
    graph = make_graph()
    graph.apply(Events().grow(AGE))
    with pytest.raises(ModelError, match="must read all 5 features of 'node' nodes, got one that reads 4"):
        make(graph, None)


@pytest.mark.parametrize(
    ("growth", "message"),
    [
        ({"columns": {"user": {"age": 0.0}}}, "node type must be one of 'node', got 'user'"),
        ({"node_types": {"node": 1}}, "lacks, got 'node', which it has"),
        ({"edge_types": {("tag", "of", "node"): EdgeSchema()}}, "names node type 'tag'"),
        ({"columns": {"node": {"age": float("nan")}}}, "must have a finite value for rows that have none"),
        ({"columns": {"node": {"": 1.0}}}, "must have a name, got ''"),
        ({}, "must have columns, node_types or edge_types, got none"),
    ],
)
def test_growths_that_a_schema_refuses(growth: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_graph().schema.grown(Growth(**growth))  # type: ignore[arg-type]


def test_bytes_and_json_give_the_same_growth() -> None:
    for growth in GROWTHS:
        events = Events().grow(growth)
        assert Events.from_bytes(events.to_bytes()) == events
        assert Events.from_json_lines(events.to_json_lines()) == events
        assert Growth.from_json(growth.to_json()) == growth
    assert Events().grow(AGE).to_bytes()[4:6] == b"\x08\x00"
    assert Events().add_nodes([1]).to_bytes()[4:6] == b"\x01\x00"
    schema = typed_graph().schema
    for growth in GROWTHS:
        schema = schema.grown(growth)
    assert Schema.from_json(schema.to_json()) == schema
    assert schema.origin == typed_graph().schema
    assert schema.widths_of("user") == (3, 5, 6)
    assert schema.fills_of("user", 5) == (1e-3,)
    with pytest.raises(FileFormatError, match="must be what Growth"):
        Growth.from_json({"columns": {"node": 3}})


def ask(runtime: Runtime, method: str, path: str, body: object = None) -> httpx.Response:
    async def request() -> httpx.Response:
        transport = httpx.ASGITransport(create_app(runtime), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.request(method, path, json=body)

    return asyncio.run(request())


def test_a_schema_grows_over_http(log: SqliteLog) -> None:
    graph = make_graph()
    runtime = Runtime(log, graph, Engine(graph, make_model(), threads=1))
    runtime.start()
    try:
        given = {
            "columns": {"node": {"age": 0.5}},
            "node_types": {"tag": 1},
            "edge_types": [{"edge_type": TAGS, "weighted": True}],
            "auto_add": {"tag": [2.0]},
        }
        answer = ask(runtime, "POST", "/v1/schema", given)
        assert answer.status_code == 200, answer.text
        assert answer.json()["seq"] == 1
        assert answer.json()["schema"] == ask(runtime, "GET", "/v1/schema").json()["schema"]
        assert graph.schema.edge_types[TAGS] == EdgeSchema(weighted=True)
        assert graph.schema.growths[0].auto_add == {"tag": (2.0,)}
        again = ask(runtime, "POST", "/v1/schema", given)
        assert (again.status_code, "was added before" in again.text) == (400, True)
        event = {"event": "grow", "growth": AGE.to_json()}
        refused = ask(runtime, "POST", "/v1/events", {"events": [event]})
        assert (refused.status_code, "POST /v1/schema takes it" in refused.text) == (400, True)
        for wrong in (
            {"colums": {}},
            {"node_types": {"shop": 200_000_000}},
            {"node_types": {"": 1}},
            {"node_types": {"s" * 100_000: 1}},
            {"edge_types": [{"edge_type": ["node", "sees", "node"], "edge_dim": 200_000_000}]},
            {"columns": {"node": {"size": True}}},
            {"columns": {"node": {"size": 1e39}}},
        ):
            assert ask(runtime, "POST", "/v1/schema", wrong).status_code == 400, wrong
        assert runtime.log.last_seq() == 1
    finally:
        runtime.stop()


def test_a_graph_in_parts_does_not_grow_and_needs_models_that_read_all_columns(log: SqliteLog) -> None:
    parts = LocalPartitions.from_graph(make_graph(), make_model(), Owners("modulo", 2))
    runtime = Runtime(log, parts.graph, parts)
    with pytest.raises(InputError, match="expected a graph in one piece, got one in parts, whose schema"):
        runtime.grow(AGE)
    assert log.last_seq() == 0
    runtime.stop()
    graph = make_graph()
    graph.apply(Events().grow(AGE))
    with pytest.raises(ModelError, match="reads 4 features of 'node' nodes, which have 5 since the schema"):
        LocalPartitions.from_graph(graph, make_model(), Owners("modulo", 2))
    whole = LocalPartitions.from_graph(graph, make_wider_model(), Owners("modulo", 2))
    engine = Engine(graph, make_wider_model(), threads=1)
    assert np.array_equal(whole.predict(graph.ids()), engine.predict(graph.ids()))
