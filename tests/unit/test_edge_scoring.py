"""Scores of edges of a graph, and of pairs that are no edges: exact in every mode, and what is refused."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from livegnn import EdgeSchema, Engine, Events, Graph, Model, Schema
from livegnn.errors import (
    InputError,
    ModelError,
    UnknownEdgeError,
    UnknownNodeError,
    UnknownTypeError,
    ViewMissingError,
)
from livegnn.model import Input, Step
from livegnn.oracle.exactness import judge
from livegnn.types import DEFAULT_EDGE_TYPE, EdgeType
from scored_edges import COLUMNS, WIDTH, compute_scores, make_scorer

NODES = 12
MODEL = make_scorer()
MODES = {
    "eager": {},
    "lazy": {"mode": "lazy"},
    "aggregates": {"keep": "aggregates"},
    "partial": {"keep_degree": 3},
}


def make_graph(*, text: bool = False, seed: int = 1, **edges: Any) -> Graph:
    """A random graph, weighted and with features of edges, unless `edges`, fields of an EdgeSchema, say
    otherwise."""
    rng = np.random.default_rng(seed)
    settings = {"weighted": True, "edge_dim": COLUMNS, **edges}
    schema = Schema({"node": WIDTH}, {DEFAULT_EDGE_TYPE: EdgeSchema(**settings)}, text_ids=text)
    graph = Graph(schema)
    events = Events().add_nodes(name(range(NODES), text=text), rng.normal(size=(NODES, WIDTH)))
    ends = divmod(rng.choice(NODES**2, 40, replace=False), NODES)
    events.add_edges(
        *(name(one, text=text) for one in ends),
        weight=rng.uniform(0.5, 2, 40) if schema.edge_types[DEFAULT_EDGE_TYPE].weighted else None,
        edge_attr=rng.normal(size=(40, COLUMNS)) if schema.edge_types[DEFAULT_EDGE_TYPE].edge_dim else None,
    )
    graph.apply(events)
    return graph


def name(numbers: Iterable[int], *, text: bool) -> list[str] | list[int]:
    listed = [int(one) for one in numbers]
    return [f"n{one}" for one in listed] if text else listed


def draw_pairs(count: int, seed: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(0, NODES, (2, count))
    return src, dst, rng.normal(size=(count, COLUMNS)).astype(np.float32), rng.uniform(0.5, 2, count)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("text", [False, True])
def test_scores_are_those_of_the_oracle_after_each_batch(mode, text) -> None:
    graph = make_graph(text=text)
    engine = Engine(graph, MODEL, **MODES[mode])
    rng = np.random.default_rng(4)
    for step in range(6):
        src, dst, attr, weight = draw_pairs(50, step)
        got = {
            "risk": engine.score(
                name(src, text=text), name(dst, text=text), edge_attr=attr, edge_weight=weight, output="risk"
            ),
            "alike": engine.score(name(src, text=text), name(dst, text=text), output="alike"),
        }
        snapshot = graph.snapshot()
        place = {id_: at for at, id_ in enumerate(snapshot.ids["node"].tolist())}
        sources, targets = (
            np.array([place[one] for one in np.asarray(name(ends, text=text)).tolist()])
            for ends in (src, dst)
        )
        for output, rows in got.items():
            expected = [
                compute_scores(MODEL, snapshot, output, sources, targets, attr, weight, dtype)
                for dtype in (np.float64, np.float32)
            ]
            assert rows.dtype == np.float32
            assert judge(rows, *expected).ok
            assert engine.verify(output=output).ok
        a, b = rng.integers(0, NODES, (2, 4))
        events = Events().add_edges(
            name(a, text=text),
            name(b, text=text),
            weight=rng.uniform(0.5, 2, 4),
            edge_attr=rng.normal(size=(4, 2)),
        )
        events.set_features(name(a[:1], text=text), rng.normal(size=(1, WIDTH)))
        engine.apply(events.remove_edges(name(b[:1], text=text), name(a[:1], text=text)))


@pytest.mark.parametrize("edges", [{}, {"undirected": True}, {"weighted": False}])
def test_edges_of_the_graph_have_their_own_columns(edges) -> None:
    graph = make_graph(**edges)
    engine = Engine(graph, MODEL)
    snapshot = graph.snapshot()
    sources, targets = snapshot.edge_index[DEFAULT_EDGE_TYPE]
    columns = snapshot.edge_attr[DEFAULT_EDGE_TYPE], snapshot.weight[DEFAULT_EDGE_TYPE]
    ids = snapshot.ids["node"]
    got = engine.predict_edges(ids[sources], ids[targets], output="risk")
    assert judge(got, compute_scores(MODEL, snapshot, "risk", sources, targets, *columns)).ok
    weight = columns[1] if edges.get("weighted", True) else None
    again = engine.score(ids[sources], ids[targets], edge_attr=columns[0], edge_weight=weight, output="risk")
    np.testing.assert_array_equal(got, again)


def test_parallel_edges_are_named_by_their_keys() -> None:
    graph = make_graph(duplicates="keep")
    engine = Engine(graph, MODEL)
    rows = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
    graph.apply(Events().add_edges([0, 0], [1, 1], key=[7, 9], weight=[1.0, 2.0], edge_attr=rows))
    got = engine.predict_edges([0, 0], [1, 1], key=[9, 7], output="risk")
    expected = engine.score([0, 0], [1, 1], edge_attr=rows[::-1], edge_weight=[2.0, 1.0], output="risk")
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(engine.predict_edges(0, 1, output="risk"), expected[:1])  # the greatest key
    with pytest.raises(UnknownEdgeError, match=r"0 -> 1"):
        engine.predict_edges(0, 1, key=[8], output="risk")


def test_a_score_does_not_depend_on_the_pairs_beside_it() -> None:
    engine = Engine(make_graph(), MODEL)
    src, dst, attr, weight = draw_pairs(1300)
    together = engine.score(src, dst, edge_attr=attr, edge_weight=weight, output="risk")
    for i in (0, 31, 32, 511, 512, 1299):
        alone = engine.score(src[i], dst[i], edge_attr=attr[i], edge_weight=weight[i], output="risk")
        np.testing.assert_array_equal(alone, together[i : i + 1])
    assert engine.score([], [], output="alike").shape == (0, 1)


@pytest.mark.parametrize("mode", MODES)
def test_what_if_scores_an_edge_as_if_it_had_been_added(mode) -> None:
    graph = make_graph()
    engine = Engine(graph, MODEL, **MODES[mode])
    row, weight = np.array([[0.5, -1.0]], np.float32), [1.5]
    events = Events().add_nodes(99, np.ones((1, WIDTH)))
    events.add_edges([99], [3], edge_attr=row, weight=weight)
    supposed = engine.what_if(events)
    columns = {"edge_attr": row, "edge_weight": weight, "output": "risk"}
    before = engine.predict([0, 3])
    foretold = supposed.score(99, 3, **columns)
    with pytest.raises(UnknownNodeError, match="99"):
        engine.score(99, 3, **columns)
    np.testing.assert_array_equal(engine.predict([0, 3]), before)
    other = engine.what_if(Events().remove_nodes([5]))
    with pytest.raises(UnknownNodeError, match="5"):
        other.score(5, 3, **columns)
    engine.apply(events)
    np.testing.assert_array_equal(engine.predict_edges(99, 3, output="risk"), foretold)


def test_a_restored_engine_gives_the_same_bits() -> None:
    graph = make_graph()
    engine = Engine(graph, MODEL)
    engine.apply(Events().add_edges([0, 1], [1, 2], weight=[1.0, 3.0], edge_attr=np.ones((2, 2))))
    again = Engine(Graph.from_state(graph.state()), MODEL, state=engine.state())
    src, dst, attr, weight = draw_pairs(64)
    for one in (engine, again):
        one.apply(Events().set_features([2], np.full((1, WIDTH), 0.25)))
    np.testing.assert_array_equal(
        *(one.score(src, dst, edge_attr=attr, edge_weight=weight, output="risk") for one in (engine, again))
    )


def test_functions_of_the_user_score_edges_too() -> None:
    def clip(rows: np.ndarray) -> np.ndarray:
        return np.clip(rows, -1, 1)

    call = Step("call", ("risk",), "clipped", attrs={"function": "clip", "width": 2})
    model = replace(
        MODEL,
        steps=(*MODEL.steps, call),
        functions={"clip": clip},
        edge_outputs={"risk": "risk", "clipped": "clipped"},
    )
    engine = Engine(make_graph(), model)
    src, dst, attr, weight = draw_pairs(700)
    columns = {"edge_attr": attr, "edge_weight": weight}
    got = engine.score(src, dst, **columns, output="clipped")
    np.testing.assert_array_equal(got, clip(engine.score(src, dst, **columns, output="risk")))
    assert engine.verify(output="clipped").ok


def test_sums_past_float32_inside_are_taken_in_float64() -> None:
    tensors = {**MODEL.tensors, "w4": MODEL.tensors["w4"].copy()}
    tensors["w4"][:, 10:12] = 2.0  # of the edge's two columns
    model, graph = replace(MODEL, tensors=tensors), make_graph()
    src, dst, attr, weight = draw_pairs(40)
    attr[3] = 3e38, -2.9e38
    got = Engine(graph, model).score(src, dst, edge_attr=attr, edge_weight=weight, output="risk")
    expected = compute_scores(model, graph.snapshot(), "risk", src, dst, attr, weight)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


COLUMNS_OF_TWO = {"edge_attr": np.zeros((2, COLUMNS)), "edge_weight": np.ones(2)}


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"src": [0], "dst": [1, 2]}, InputError, "same length, got 1 and 2"),
        ({"src": [0, 99]}, UnknownNodeError, "99"),
        ({"dst": [77, 99]}, UnknownNodeError, "77"),
        ({"src": ["a", "b"]}, InputError, "ids are integers"),
        (
            {"output": "fraud"},
            InputError,
            "'risk' of node,to,node edges, 'alike' of node,to,node edges, got 'fraud'",
        ),
        ({"output": None}, InputError, "output must be given, one of 'risk'"),
        ({"edge_type": ("node", "likes", "node")}, InputError, "edge_type must be that of an edge output"),
        ({"edge_type": "likes"}, InputError, "edge_type must be"),
        ({"edge_attr": None}, InputError, r"reads edge_attr, of shape \(2, 2\), got none"),
        ({"edge_weight": None}, InputError, "reads edge_weight, one for each of 2 edges, got none"),
        (
            {"edge_attr": np.zeros((2, 3))},
            InputError,
            "must have 2 columns for the edge output 'risk', got 3",
        ),
        ({"edge_attr": np.zeros((3, 2))}, InputError, "a row for each edge"),
        ({"edge_attr": [["a", "b"]] * 2}, InputError, "edge_attr must be numbers"),
        ({"edge_attr": [[0, np.nan], [0, 0]]}, InputError, "edge_attr must be finite, got .* for pair 0"),
        ({"edge_weight": [1, np.inf]}, InputError, "edge_weight must be finite, got inf for pair 1"),
        ({"edge_weight": [1, 1e300]}, InputError, "edge_weight must be finite"),
        ({"edge_weight": [1]}, InputError, "edge_weight must have one value for each"),
        ({"output": "alike"}, InputError, "'alike' reads no edge_attr, got some: leave it out"),
    ],
)
def test_bad_input_changes_nothing(given, error, message) -> None:
    engine = Engine(make_graph(), MODEL)
    before = engine.state()
    arguments = {"src": [0, 1], "dst": [1, 2], "output": "risk", **COLUMNS_OF_TWO, **given}
    for scorer in (engine, engine.what_if(Events())):
        with pytest.raises(error, match=message):
            scorer.score(
                arguments["src"], arguments["dst"], **{k: v for k, v in arguments.items() if len(k) > 3}
            )
    after = engine.state()
    assert all(np.array_equal(before.arrays[key], after.arrays[key]) for key in before.arrays)


def test_an_edge_output_is_no_output_of_nodes() -> None:
    engine = Engine(make_graph(), MODEL)
    with pytest.raises(InputError, match="'risk' is an edge output: read it by score, predict_edges or"):
        engine.predict([0], output="risk")


def test_edges_that_are_not_there_are_refused() -> None:
    graph = make_graph()
    engine = Engine(graph, MODEL)
    graph.apply(Events().remove_edges([0], [1]))
    with pytest.raises(UnknownEdgeError, match=r"got 0 -> 1, which is not in the graph"):
        engine.predict_edges([0], [1], output="risk")
    with pytest.raises(UnknownNodeError, match="50"):
        engine.predict_edges([0], [50], output="risk")
    with pytest.raises(InputError, match="key is for edge types that keep parallel edges"):
        engine.predict_edges([0], [1], key=[0], output="risk")


def test_a_model_without_edge_outputs_scores_none() -> None:
    engine = Engine(make_graph(), replace(MODEL, edge_outputs={}))
    with pytest.raises(InputError, match="the model has no edge output"):
        engine.score(0, 1)


def test_an_edge_type_that_the_graph_lacks_can_be_scored_as_pairs() -> None:
    likes: EdgeType = ("node", "likes", "node")
    decoder = (
        Step("relu", ("x",), "z"),
        Step("source", ("z",), "from", attrs={"edge_type": likes}),
        Step("target", ("z",), "to", attrs={"edge_type": likes}),
        Step("multiply", ("from", "to"), "score"),
    )
    model = Model({"x": Input("node", WIDTH)}, decoder, {}, "z", ("x", "z"), edge_outputs={"likes": "score"})
    graph = make_graph()
    engine = Engine(graph, model)
    x = np.maximum(graph.features([0, 1]), 0)
    np.testing.assert_array_equal(engine.score(0, 1), x[:1] * x[1:])
    with pytest.raises(UnknownTypeError, match="the graph has no node,likes,node edges"):
        engine.predict_edges(0, 1)
    sells: EdgeType = ("node", "sells", "shop")
    one_end = (decoder[0], replace(decoder[1], attrs={"edge_type": sells}), Step("relu", ("from",), "score"))
    with pytest.raises(ModelError, match=r"of .*'sells', 'shop'.* edges, the graph has node types node"):
        Engine(graph, replace(model, steps=one_end))


def test_names_of_the_only_types_are_those_of_the_graph() -> None:
    pays = ("user", "pays", "user")
    schema = Schema({"user": WIDTH}, {pays: EdgeSchema(weighted=True, edge_dim=COLUMNS)})
    graph = Graph(schema)
    graph.apply(Events().add_nodes([0, 1], np.ones((2, WIDTH)), node_type="user"))
    engine = Engine(graph, MODEL)
    got = engine.score(0, 1, edge_attr=[1, 2], edge_weight=1, output="risk", edge_type=pays)
    assert got.shape == (1, 2)


def test_decoders_of_the_wrong_width_are_refused() -> None:
    with pytest.raises(
        ModelError, match=r"the model reads 2 features of .* edges \('columns'\), the graph has 3"
    ):
        Engine(make_graph_of(3), MODEL)


def make_graph_of(edge_dim: int) -> Graph:
    return Graph(Schema({"node": WIDTH}, {DEFAULT_EDGE_TYPE: EdgeSchema(weighted=True, edge_dim=edge_dim)}))


def test_an_engine_that_its_graph_left_says_so() -> None:
    engine = Engine(make_graph(), MODEL)
    native = engine.native_engine
    engine.retire()
    with pytest.raises(ViewMissingError):
        engine.score(0, 1, output="alike")
    assert native.score(1, np.array([0]), np.array([1]), None, None, False) is None
    del engine, native
    gc.collect()
