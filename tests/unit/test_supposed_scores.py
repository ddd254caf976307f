"""Requests for scores after events that the native core reads and answers, against the path that parses them,
and against an engine to whose graph the events are really added."""

from __future__ import annotations

import itertools
import json
import math
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gate import draws
from livegnn import EdgeSchema, Engine, Events, Graph, Growth, InputError, Schema
from livegnn.events.chunk import to_ids
from livegnn.inference.supposed_scores import MostOfRequest
from livegnn.log.sqlite import SqliteLog
from livegnn.network.outputs import without_edge_outputs
from livegnn.runtime import Runtime
from livegnn.server.bodies import Limits
from livegnn.server.edge_score_routes import answer_small_scores
from livegnn.types import DEFAULT_EDGE_TYPE, EdgeType
from scored_edges import WIDTH, make_scorer

NODES = 8
MOST = MostOfRequest(1 << 20, 500_000)
PAYS: EdgeType = ("account", "pays", "account")
Record: TypeAlias = dict[str, object]
KINDS = [*["add_edge"] * 5, "remove_edge", "set_features", "add_node", "remove_node"]
NUMBERS = st.one_of(
    st.integers(-3, 3),
    st.floats(-1e6, 1e6, width=32),
    st.floats(-1e30, 1e30),
    st.sampled_from([5e-324, 1.17e-38, -0.0, 16777217, 0.1]),
)


class World(NamedTuple):
    """An engine, and whether its edges have weights, times and keys."""

    engine: Engine
    edges: EdgeSchema
    text: bool

    def name(self, number: int) -> int | str:
        return f"n{number}" if self.text else number


def make_world(*, edges: EdgeSchema, text: bool, named: bool, seed: int = 0) -> World:
    """named: whether the only types have names of their own, which requests may leave out. All that has times
    has one within those of `bodies`."""
    edge_type = PAYS if named else DEFAULT_EDGE_TYPE
    schema = Schema(
        {edge_type[0]: WIDTH},
        {edge_type: edges},
        text_ids=text,
        timed_features=[edge_type[0]] if named else [],
    )
    model = make_scorer(
        edge_type=edge_type, edge_dim=edges.edge_dim, weighted=edges.weighted, messages=edges.timed
    )
    engine = Engine(Graph(schema), model, threads=1)
    rng = np.random.default_rng(seed)
    ids = [f"n{one}" for one in range(NODES)] if text else list(range(NODES))
    x = rng.normal(size=(NODES, WIDTH))
    engine.apply(Events().add_nodes(ids, x, time=np.full(NODES, 50.0) if named else None))
    src, dst = rng.integers(0, NODES, (2, 12)).tolist()
    for a, b in [(0, 1), *zip(src, dst, strict=True)]:
        attr = rng.normal(size=edges.edge_dim) if edges.edge_dim else None
        weight, time = rng.uniform(0.5, 2) if edges.weighted else None, 50.0 if edges.timed else None
        engine.apply(Events().add_edges(ids[a], ids[b], edge_attr=attr, weight=weight, time=time))
    return World(engine, edges, text)


WORLDS = [
    make_world(edges=EdgeSchema(edge_dim=2), text=False, named=False),
    make_world(
        edges=EdgeSchema(edge_dim=2, weighted=True, timed=True, duplicates="keep"), text=True, named=False
    ),
    make_world(edges=EdgeSchema(weighted=True, duplicates="add"), text=False, named=True),
    make_world(edges=EdgeSchema(undirected=True, edge_dim=2, timed=True), text=True, named=True),
]


@st.composite
def bodies(draw: st.DrawFn, world: World) -> Record:
    """Bodies of requests; most are right, and nearly all are of the usual form."""
    node = st.integers(0, NODES if draw(st.integers(0, 9)) == 0 else NODES - 1).map(world.name)
    row = st.lists(NUMBERS, min_size=2, max_size=2)

    def event() -> Record:
        kind = draw(
            st.sampled_from(["add_edge"] * 5 + ["remove_edge", "set_features", "add_node", "remove_node"])
        )
        record: Record = {"event": kind}
        if kind in ("add_edge", "remove_edge"):
            record |= {"src": draw(node), "dst": draw(node)}
            if world.edges.duplicates == "keep" and draw(st.booleans()):
                record["key"] = draw(st.integers(0, 3))
        else:
            record["id"] = draw(node)
        if kind == "add_edge":
            if draw(st.booleans()) or world.edges.edge_dim:
                record["edge_attr"] = draw(row)
            if world.edges.weighted == (draw(st.integers(0, 9)) > 0):
                record["weight"] = draw(st.sampled_from([1, 0.5, 3.25, 1e30]))
            if world.edges.timed and draw(st.booleans()):
                record["time"] = draw(st.floats(0, 100))
        if kind in ("set_features", "add_node"):
            record["x"] = draw(st.lists(NUMBERS, min_size=WIDTH, max_size=WIDTH))
            if draw(st.integers(0, 3)) == 0:
                record["time"] = draw(st.integers(0, 100))
        return record

    pairs = draw(st.integers(1, 3))
    body: Record = {
        "sources": [draw(node) for _ in range(pairs)],
        "targets": [draw(node) for _ in range(pairs)],
        "output": draw(st.sampled_from(["risk"] * 5 + ["alike"])),
        "events": [event() for _ in range(draw(st.integers(1, 3)))],
    }
    if (body["output"] == "risk") == (draw(st.integers(0, 9)) > 0):
        if world.edges.edge_dim:
            body["edge_attr"] = [draw(row) for _ in range(pairs)]
        if world.edges.weighted:
            body["edge_weight"] = [draw(st.sampled_from([1, 0.25])) for _ in range(pairs)]
    if draw(st.booleans()):
        body["min_seq"] = draw(st.sampled_from([0, 1, world.engine.seq, world.engine.seq + 1]))
    if draw(st.integers(0, 9)) == 0:
        body[draw(st.sampled_from(["model", "existing", "timeout", "key"]))] = 1
    if draw(st.integers(0, 9)) == 0:
        body["edge_type"] = draw(st.sampled_from([[*DEFAULT_EDGE_TYPE], [*PAYS]]))
    return dict(draw(st.permutations(list(body.items()))))


def ask(engine: Engine, text: bytes, most: MostOfRequest = MOST) -> np.ndarray | None:
    """The scores that the native core answers. Each is the float32 that its text says."""
    answer = engine.answer_scores_at_once(text, engine.seq, most)
    if answer is None:
        return None
    content = json.loads(answer)
    assert content.keys() == {"seq", "scores"}
    assert content["seq"] == engine.seq
    return np.array(
        [[math.nan if one is None else one for one in row] for row in content["scores"]], np.float32
    )


def settings_of(body: Record) -> Record:
    columns = {name: body[name] for name in ("edge_attr", "edge_weight", "output") if name in body}
    return {**columns, "edge_type": None if "edge_type" not in body else tuple(body["edge_type"])}


def suppose(engine: Engine, body: Record) -> np.ndarray | None:
    """The same by the path that has an object for each event; None if it is refused."""
    try:
        events = Events.from_records(body["events"])
        events.check()
        supposed = engine.what_if(events)
        return supposed.score(to_ids(body["sources"], ""), to_ids(body["targets"], ""), **settings_of(body))
    except InputError:
        return None


def add_and_score(engine: Engine, body: Record) -> np.ndarray:
    """The same by an equal engine, to whose graph the events are added."""
    other = Engine(Graph.from_state(engine.graph.state()), engine.model, threads=1, state=engine.state())
    other.apply(Events.from_records(body["events"]))
    return other.score(to_ids(body["sources"], ""), to_ids(body["targets"], ""), **settings_of(body))


def assert_bits(found: np.ndarray, expected: np.ndarray) -> None:
    """Equal bits; all that is not finite is null in JSON."""
    shown = np.where(np.isfinite(expected), expected, np.float32(math.nan))
    np.testing.assert_array_equal(found, shown)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(shown) & np.isfinite(shown))


def state_of(engine: Engine) -> list[bytes]:
    graph = engine.graph
    return [
        *(
            np.asarray(one).tobytes()
            for one in (graph.ids(), engine.predict(graph.ids()), graph.features(graph.ids()))
        ),
        str((graph.seq, graph.num_edges(), engine.epoch)).encode(),
    ]


every_world = pytest.mark.parametrize(
    "world", WORLDS, ids=["integers", "keyed texts", "named sums", "undirected texts"]
)


@every_world
@settings(max_examples=draws(60, 3000), deadline=None)
@given(data=st.data())
def test_native_answers_have_the_bits_of_what_ifs(world: World, data: st.DataObject) -> None:
    body, engine = data.draw(bodies(world)), world.engine
    before = state_of(engine)
    found, expected = ask(engine, json.dumps(body).encode()), suppose(engine, body)
    assert state_of(engine) == before
    unusual = {"model", "existing", "timeout", "key"} & body.keys() or body.get("min_seq", 0) > engine.seq
    assert found is None or not unusual
    if found is not None:
        assert expected is not None
        assert_bits(found, expected)
        assert_bits(found, add_and_score(engine, body))


def body_of(world: World, *events: Record, **fields: object) -> Record:
    body: Record = {
        "sources": [world.name(0)],
        "targets": [world.name(1)],
        "output": "risk",
        "events": [*events],
    }
    if world.edges.edge_dim:
        body["edge_attr"] = [[0.5, -1]]
    if world.edges.weighted:
        body["edge_weight"] = [2]
    return {**body, **fields}


def usual_events(world: World) -> list[Record]:
    edge: Record = {"event": "add_edge", "src": world.name(0), "dst": world.name(1)}
    if world.edges.edge_dim:
        edge["edge_attr"] = [0.5, -1e3]
    if world.edges.weighted:
        edge["weight"] = 2.5
    if world.edges.duplicates == "keep":
        edge["key"] = 0
    late: list[Record] = []
    if world.edges.timed:
        late, edge["time"] = [{**edge, "time": 1, "edge_attr": [7, 7]}], 1.75e9
    return [
        edge,
        *late,
        {"event": "remove_edge", "src": world.name(2), "dst": world.name(3)},
        {"event": "set_features", "id": world.name(1), "x": [0.1, -2, 3e-9]},
        {"event": "remove_node", "id": world.name(7)},
        {"event": "add_node", "id": world.name(6), "x": [1, 2, 3]},
    ]


@every_world
def test_usual_requests_are_answered_natively(world: World) -> None:
    events, engine = usual_events(world), world.engine
    for body in (
        *(body_of(world, one) for one in events),
        body_of(world, *events, min_seq=engine.seq),
        body_of(world, events[0], edge_type=[*engine.model.edge_scores["risk"].edge_type]),
    ):
        found = ask(engine, json.dumps(body).encode())
        assert found is not None, body
        assert_bits(found, add_and_score(engine, body))
    ends = {"sources": [world.name(0)] * 16, "targets": [world.name(1)] * 16}
    many = json.loads(json.dumps(body_of(world, *events[:1] * 16, **ends)))
    for column in ("edge_attr", "edge_weight"):
        if column in many:
            many[column] = many[column] * 16
    assert ask(engine, json.dumps(many).encode()) is not None


@every_world
def test_all_other_requests_are_for_the_path_that_parses(world: World) -> None:
    events, engine = usual_events(world), world.engine
    edge = events[0]
    one = body_of(world, edge)
    unknown = world.name(NODES)
    wrong: list[Record] = [
        body_of(world),
        body_of(world, *[edge] * 17),
        body_of(world, {**edge, "event": "add_edges"}),
        body_of(world, {**edge, "src": unknown}),
        body_of(world, {**edge, "dst": 1.5}),
        body_of(world, {**edge, "src": 1 if world.text else "1"}),
        body_of(world, {**edge, "key": 1} if world.edges.duplicates != "keep" else {**edge, "key": 2**32}),
        body_of(world, {**edge, "edge_type": ["a", "b", "c"]}),
        body_of(world, {**edge, "edge_attr": [1, 2, 3]}),
        body_of(world, {**edge, "weight": 1e39}),
        body_of(world, {**edge, "more": 1}),
        body_of(world, {"event": "set_features", "id": world.name(0), "x": [1, 2]}),
        body_of(world, {"event": "set_features", "id": world.name(0), "x": [1, 2, 1e39]}),
        body_of(world, {"event": "set_features", "id": world.name(0), "x": [1, 2, 3], "node_type": "other"}),
        body_of(world, {"event": "remove_node", "id": world.name(0)}),
        body_of(world, {"event": "remove_node", "id": world.name(2)}, {**edge, "src": world.name(2)}),
        body_of(world, edge, sources=[unknown]),
        body_of(world, edge, sources=[world.name(0)] * 2),
        body_of(world, edge, sources=[]),
        body_of(world, edge, sources=[world.name(0)] * 17, targets=[world.name(1)] * 17),
        body_of(world, edge, edge_type=["a", "b", "c"]),
        body_of(world, edge, output="class"),
        body_of(world, edge, edge_attr=[[1, 2, 3]]),
        body_of(world, edge, edge_attr=[[1, 2], [3, 4]]),
        body_of(world, edge, edge_weight=[1, 2]),
        body_of(world, edge, min_seq=engine.seq + 1),
        *(body_of(world, edge, **{name: None}) for name in ("model", "key", "existing", "timeout", "other")),
        {name: value for name, value in one.items() if name != "output"},
        {name: value for name, value in one.items() if name not in ("edge_attr", "edge_weight")},
        {name: value for name, value in one.items() if name != "sources"},
    ]
    before = state_of(engine)
    for body in wrong:
        assert ask(engine, json.dumps(body).encode()) is None, body
    text = json.dumps(one).encode()
    for bad in (
        b"",
        text[:-1],
        text + b"}",
        text.replace(b'"output"', b'"out\\u0070ut"'),
        text.replace(b"{", b'{"sources":[],', 1),
        text.replace(b'"event"', b'"event":"add_edge","event"'),
    ):
        assert ask(engine, bad) is None, bad
    assert ask(engine, text, MostOfRequest(len(text) - 1, 100)) is None
    assert ask(engine, text, MostOfRequest(len(text), 1)) is None
    assert ask(engine, text, MostOfRequest(len(text), 2)) is not None
    assert state_of(engine) == before


def test_features_that_make_a_row_infinite_are_for_the_path_that_parses() -> None:
    world = WORLDS[0]
    refused = 0
    for signs in itertools.product((-3e38, 3e38), repeat=WIDTH):
        huge = {"event": "set_features", "id": 1, "x": [*signs]}
        body = body_of(world, huge)
        expected = suppose(world.engine, body)
        assert (ask(world.engine, json.dumps(body).encode()) is None) == (expected is None)
        refused += expected is None
    assert refused


def test_a_schema_that_grows_and_engines_that_compute_on_demand() -> None:
    world = make_world(edges=EdgeSchema(edge_dim=2), text=False, named=False)
    text = json.dumps(body_of(world, *usual_events(world))).encode()
    assert ask(world.engine, text) is not None
    lazy = Engine(Graph.from_state(world.engine.graph.state()), world.engine.model, mode="lazy")
    assert ask(lazy, text) is None
    world.engine.graph.apply(Events().grow(Growth(columns={"node": {"more": 1.0}})))
    assert ask(world.engine, text) is None


def test_events_that_reach_much_are_for_the_path_that_waits() -> None:
    world = make_world(edges=EdgeSchema(edge_dim=2), text=False, named=False)
    engine = world.engine
    body = body_of(world, {"event": "set_features", "id": 0, "x": [1, 2, 3]})
    fans = np.arange(100, 700)
    engine.apply(Events().add_nodes(fans, np.ones((600, WIDTH))))
    engine.apply(Events().add_edges(np.zeros(20, np.int64), fans[:20], edge_attr=np.ones((20, 2))))
    assert ask(engine, json.dumps(body).encode()) is not None
    engine.apply(Events().add_edges(np.zeros(600, np.int64), fans, edge_attr=np.ones((600, 2))))
    assert ask(engine, json.dumps(body).encode()) is None


def test_the_writer_is_not_waited_for() -> None:
    world = WORLDS[0]
    text = json.dumps(body_of(world, *usual_events(world))).encode()
    with ThreadPoolExecutor(1) as other, world.engine.graph.writer:
        assert other.submit(ask, world.engine, text).result() is None
    assert ask(world.engine, text) is not None


def test_answers_beside_batches_are_of_one_state(tmp_path: Path) -> None:
    """Features alternate, so the scores of a request are those of one of two states."""
    world = make_world(edges=EdgeSchema(edge_dim=2), text=False, named=False)
    engine, edge = world.engine, usual_events(world)[0]
    request = json.dumps(body_of(world, edge)).encode()
    engine.graph.seq = 0  # where the log begins
    changes = [Events().set_features([0, 1], np.full((2, WIDTH), float(one))) for one in (1, -1)]
    with closing(SqliteLog(tmp_path / "log.db")) as log:
        runtime = Runtime(log, engine.graph, engine)
        expected = []
        for change in changes:
            runtime.append(change)
            runtime.step()
            rows = ask(engine, request)
            assert rows is not None
            expected.append(rows)
        assert not np.allclose(*expected, rtol=0.1)
        stopping, found = threading.Event(), Counter[int]()

        def read() -> None:
            while not stopping.is_set():
                answer = answer_small_scores(runtime, request, False, Limits())
                if answer is not None:
                    content = json.loads(answer)
                    state = content["seq"] // 2 % 2
                    np.testing.assert_allclose(content["scores"], expected[1 - state], rtol=1e-3)
                    found[state] += 1

        with ThreadPoolExecutor(2) as readers:
            reading = [readers.submit(read) for _ in range(2)]
            runtime.start()
            try:
                number = 0
                while number < 20 or len(found) < 2:
                    runtime.wait(runtime.append(changes[number % 2]))
                    number += 1
                    if any(one.done() for one in reading):  # it says why
                        break
            finally:
                stopping.set()
                runtime.stop()
            for one in reading:
                one.result()


def test_models_without_edge_outputs() -> None:
    world = WORLDS[0]
    text = json.dumps(body_of(world, *usual_events(world))).encode()
    graph = Graph.from_state(world.engine.graph.state())
    assert (
        Engine(graph, without_edge_outputs(world.engine.model)).answer_scores_at_once(text, 0, MOST) is None
    )
