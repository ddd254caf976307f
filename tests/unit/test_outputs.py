"""Models with several outputs: any of them can be asked for, as the first can."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from livegnn import EdgeSchema, Engine, Events, Graph, InputError, Model, ModelError, Schema, UnknownNodeError
from livegnn.log.sqlite import SqliteLog
from livegnn.model import Degree, Input, Propagate, Step
from livegnn.network import file
from livegnn.oracle import reference
from livegnn.runtime import Runtime
from mirror import frozen
from streams import make_graph, make_model, make_stream

LIKES, KNOWS = ("user", "likes", "item"), ("user", "knows", "user")


def weights(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 0.5, shape).astype(np.float32)


def make_several(outputs: dict[str, str] | None = None) -> Model:
    """Scores of users, rows of items; what is kept and what is not, a degree, features."""
    back = Propagate(LIKES, reverse=True).to_attrs()
    steps = (
        Step("linear", ("u",), "h", {"weight": "w1"}),
        Step("propagate", ("h",), "friends", attrs=Propagate(KNOWS, (), "count", "divide").to_attrs()),
        Step("relu", ("friends",), "hidden"),
        Step("propagate", ("hidden",), "liked", attrs=Propagate(LIKES, aggregate="max").to_attrs()),
        Step("linear", ("liked",), "item scores", {"weight": "w2"}),
        Step("propagate", ("i",), "likes", attrs=back),
        Step("linear", ("likes",), "from items", {"weight": "w3"}),
        Step("add", ("from items", "hidden"), "scores"),
        Step("degree", (), "popularity", attrs=Degree(LIKES).to_attrs()),
    )
    tensors = {"w1": weights(1, 4, 3), "w2": weights(2, 2, 4), "w3": weights(3, 4, 2)}
    return Model(
        {"u": Input("user", 3), "i": Input("item", 2)},
        steps,
        tensors,
        "scores",
        ("u", "hidden", "scores"),
        outputs=OUTPUTS if outputs is None else outputs,
    )


OUTPUTS = {
    "scores": "scores",
    "embedding": "hidden",
    "projected": "h",
    "items": "item scores",
    "aggregate": "liked",
    "popularity": "popularity",
    "features": "i",
    "again": "scores",
}
MODES = {
    "eager": {},
    "lazy": {"mode": "lazy"},
    "first eager": {"mode": ["eager", "lazy"]},
    "aggregates": {"keep": "aggregates"},
    "residents": {"keep_degree": 2},
}
SCHEMA = Schema({"user": 3, "item": 2}, {LIKES: EdgeSchema(), KNOWS: EdgeSchema(undirected=True)})


NODES = st.integers(0, 4)
CHANGES = st.one_of(
    st.tuples(st.just("likes"), NODES, NODES),
    st.tuples(st.just("knows"), NODES, NODES),
    st.tuples(st.just("stops"), NODES, NODES),
    st.tuples(st.sampled_from(["user", "item"]), NODES, st.integers(-2, 2)),
    st.tuples(st.just("gone"), st.sampled_from(["user", "item"]), NODES),
)


class Stream:
    """Random changes as events, on nodes that are there."""

    def __init__(self) -> None:
        self.present: dict[str, set[int]] = {"user": set(), "item": set()}

    def write(self, changes: list[tuple]) -> Events:
        events = Events()
        for kind, *rest in changes:
            if kind in ("likes", "knows", "stops"):
                target = "user" if kind == "knows" else "item"
                self.need(events, "user", rest[0])
                self.need(events, target, rest[1])
                if kind == "stops":
                    events.remove_edges(*rest, edge_type=LIKES)
                else:
                    events.add_edges(*rest, edge_type=LIKES if kind == "likes" else KNOWS)
            elif kind == "gone":
                name, node = rest
                if node in self.present[name]:
                    self.present[name].discard(node)
                    events.remove_nodes(node, node_type=name)
            else:
                self.need(events, kind, rest[0])
                width = SCHEMA.node_types[kind]
                events.set_features(rest[0], np.full((1, width), rest[1] / 2), node_type=kind)
        return events

    def need(self, events: Events, name: str, node: int) -> None:
        if node not in self.present[name]:
            self.present[name].add(node)
            width = SCHEMA.node_types[name]
            events.add_nodes(node, np.linspace(-1, node, width)[None], node_type=name)


@pytest.mark.parametrize("mode", MODES)
def test_every_output_follows_any_stream(mode: str) -> None:
    @settings(max_examples=30, deadline=None)
    @given(
        batches=st.lists(st.lists(CHANGES, min_size=1, max_size=6), min_size=1, max_size=6),
        order=st.permutations(sorted(OUTPUTS)),
        asked=st.integers(1, 8),
    )
    def check(batches: list[list[tuple]], order: list[str], asked: int) -> None:
        model = make_several()
        graph = Graph(SCHEMA)
        engine = Engine(graph, model, threads=1, **MODES[mode])
        other = Engine(graph, model, threads=2, **MODES[mode])
        stream = Stream()
        for changes in batches:
            events = stream.write(changes)
            imagined = {}
            if mode != "lazy" and mode != "first eager":
                after = engine.what_if(events)
                for name in order:
                    ids = sorted(stream.present[model.node_type(OUTPUTS[name])])
                    imagined[name] = after.predict(ids, output=name).tobytes() if ids else b""
            engine.apply(events)
            expected = reference.compute(model, graph.snapshot())
            for name in order[:asked]:
                value = OUTPUTS[name]
                ids = graph.ids(model.node_type(value))
                got = engine.predict(ids, output=name)
                assert got.shape == (len(ids), model.width(value))
                np.testing.assert_allclose(got, expected[value], rtol=1e-4, atol=1e-5)
                assert got.tobytes() == other.predict(ids, output=name).tobytes()
                at_once = engine.predict_at_once(ids, output=name)
                assert at_once is None or at_once.tobytes() == got.tobytes()
                if name in imagined:
                    ordered = sorted(ids.tolist())
                    again = engine.predict(ordered, output=name).tobytes() if ordered else b""
                    assert again == imagined[name]
        for name in OUTPUTS:
            assert engine.verify(output=name).ok
        restored = Engine(Graph.from_state(graph.state()), model, state=engine.state(), **MODES[mode])
        assert frozen(restored.state()) == frozen(engine.state())
        for name, value in OUTPUTS.items():
            ids = graph.ids(model.node_type(value))
            assert restored.predict(ids, output=name).tobytes() == engine.predict(ids, output=name).tobytes()

    check()


@pytest.mark.parametrize("mode", ["eager", "lazy"])
def test_the_first_is_what_a_model_with_one_says(mode: str) -> None:
    """By its value; its bits may be others, as what is asked for is not moved to where it would cost less."""
    graph = Graph(SCHEMA)
    several, one = (Engine(graph, model, mode=mode) for model in (make_several(), make_several({})))
    stream = Stream()
    rng = np.random.default_rng(0)
    for _ in range(30):
        kinds = rng.choice(["likes", "knows", "stops", "user", "item"], 4)
        several.apply(stream.write([(k, int(rng.integers(5)), int(rng.integers(5))) for k in kinds]))
        ids = graph.ids("user")
        rows = several.predict(ids)
        assert rows.tobytes() == several.predict(ids, output="again").tobytes()
        for output in (None, "output"):
            np.testing.assert_allclose(one.predict(ids, output=output), rows, rtol=1e-5, atol=1e-6)


def test_who_is_not_there() -> None:
    engine = Engine(Graph(SCHEMA), make_several())
    engine.apply(Events().add_nodes(1, node_type="user").add_nodes(2, node_type="item"))
    assert engine.predict(2, output="items").shape == (1, 2)
    with pytest.raises(UnknownNodeError, match="a node of type 'item', got 1"):
        engine.predict(1, output="items")
    with pytest.raises(UnknownNodeError, match="a node of type 'user', got 2"):
        engine.predict(2)
    after = engine.what_if(Events().add_nodes(3, node_type="item").remove_nodes(2, node_type="item"))
    assert after.predict(3, output="items").shape == (1, 2)
    with pytest.raises(UnknownNodeError, match="a node of type 'item', got 2"):
        after.predict(2, output="items")


@pytest.mark.parametrize("name", ["item", "", 1, ["items"], "hidden"])
def test_an_output_that_the_model_has_not(name: object) -> None:
    engine = Engine(Graph(SCHEMA), make_several({"scores": "scores", "items": "item scores"}))
    for ask in (engine.predict, engine.predict_at_once, engine.what_if(Events()).predict):
        with pytest.raises(InputError, match="output must be one of the model's, 'scores', 'items', got"):
            ask([], output=name)  # type: ignore[operator]
    with pytest.raises(InputError, match="output must be one of the model's"):
        engine.verify(output=name)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ({"items": "item scores"}, "the first of the outputs must be the output 'scores', got 'item scores'"),
        ({"scores": "scores", "items": "rows"}, "the output must be a value of the model, .*, got 'rows'"),
        ({"": "scores"}, "outputs must map names to names of values, got '': 'scores'"),
        ({"scores": "scores", "items": 3}, "outputs must map names to names of values, got 'items': 3"),
    ],
)
def test_outputs_that_do_not_fit(outputs: dict[str, str], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        make_several(outputs)


def test_an_output_of_edges_is_refused() -> None:
    steps = (
        Step("source", ("u",), "m", attrs={"edge_type": KNOWS}),
        Step("propagate", ("m",), "y", attrs=Propagate(KNOWS).to_attrs()),
    )
    with pytest.raises(ModelError, match="the output 'm' must have rows of nodes"):
        Model({"u": Input("user", 3)}, steps, {}, "y", ("u", "y"), outputs={"y": "y", "m": "m"})


def test_a_file_holds_the_names(tmp_path: Path) -> None:
    model = make_several()
    model.save(tmp_path / "model.lgnn")
    loaded = Model.load(tmp_path / "model.lgnn")
    assert list(loaded.outputs.items()) == list(OUTPUTS.items())
    assert loaded.digest == model.digest
    assert make_several({"name": "scores"}).to_json()["outputs"] == {"name": "scores"}
    # A model with one is written as before there were several.
    assert "outputs" not in make_model().to_json()
    assert "outputs" not in json.dumps(make_several({"output": "scores"}).to_json())
    assert make_model().outputs == {"output": "out"}
    assert file.decode(file.encode(make_model()), Model).outputs == {"output": "out"}


def test_how_it_is_printed() -> None:
    several = make_several({"scores": "scores", "items": "item scores"})
    assert "-> scores: user[4], items: item[2], 2 layers" in repr(several)
    assert "-> user[4], 2 layers" in repr(make_several({}))


def test_names_of_types_that_the_model_left_out() -> None:
    """A model for types without names follows the graph's, outputs and all."""
    model = replace(make_model(), outputs={"out": "out", "hidden": "hidden"})
    schema = Schema({"person": 4}, {("person", "pays", "person"): EdgeSchema(weighted=True)})
    engine = Engine(Graph(schema), model)
    engine.apply(Events().add_nodes([1, 2], np.ones((2, 4))))
    assert engine.predict([1, 2], output="hidden").shape == (2, 8)


def test_the_runtime_passes_it_on(tmp_path: Path) -> None:
    model = replace(make_model(), outputs={"out": "out", "hidden": "hidden"})
    graph = make_graph()
    log = SqliteLog(tmp_path / "events.db")
    runtime = Runtime(log, graph, Engine(graph, model))
    runtime.append(make_stream(1)[0])
    while runtime.step():
        pass
    got = runtime.predict([1, 2], output="hidden")
    assert got.values.shape == (2, 8)
    at_once = runtime.predict_at_once([1, 2], output="hidden")
    assert at_once is not None
    assert at_once.values.tobytes() == got.values.tobytes()
    assert runtime.what_if(Events(), [1], output="hidden").values.shape == (1, 8)
    with pytest.raises(InputError, match="output must be one of the model's, 'out', 'hidden'"):
        runtime.predict([1], output="layer")
    log.close()
