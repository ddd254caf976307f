"""Subgraphs that are fetched from a snapshot, beside the engine on the whole graph."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_snapshot import MemorySnapshot
from model_examples import EDGES, make_sage
from test_model_hops import MODELS as REACHES
from test_sampled_forward import GCN, MODELS, steps_of, typed_graph, typed_model

from livegnn import EdgeSchema, Engine, Events, Graph, Model, Query, Schema
from livegnn.inference import SampledForward
from livegnn.model import Propagate
from livegnn.network.hops import reads_of
from livegnn.oracle.exactness import judge, scales_of
from livegnn.remote.subgraph import Neighborhood, drawn_neighborhood, whole_neighborhood
from livegnn.sampling import sample_query

KEPT = {**MODELS, **{f"reach of {name}": model for name, (model, _) in REACHES.items()}}


def make_graph(
    seed: int, *, nodes: int = 40, degree: int = 3, duplicates: str = "replace", undirected: bool = False
) -> Graph:
    """With loops, weights, and nodes without edges."""
    random = np.random.default_rng(seed)
    schema = EdgeSchema(weighted=True, duplicates=duplicates, undirected=undirected)  # type: ignore[arg-type]
    graph = Graph(Schema({"node": 3}, {EDGES: schema}))
    x = random.standard_normal((nodes, 3)).astype(np.float32)
    graph.apply(Events().add_nodes(random.permutation(nodes) * 7, x=x))
    ends = random.integers(0, nodes - 3, (2, degree * nodes)) * 7
    ends[1, :9] = ends[0, :9]
    ends[:, 3] = ends[:, 4]
    key = {"key": np.arange(ends.shape[1])} if duplicates == "keep" else {}
    graph.apply(Events().add_edges(*ends, weight=random.uniform(0.1, 2, ends.shape[1]), **key))
    return graph


def fetch(snapshot: MemorySnapshot, model: Model, ids: object, output: str | None = None) -> Neighborhood:
    value = model.outputs[output] if output else model.output
    node_type = model.node_type(value)
    seeds = snapshot.rows_of(ids, node_type)
    return whole_neighborhood(snapshot, node_type, seeds, reads_of(model.steps, value), model.edge_types)


def predict(snapshot: MemorySnapshot, model: Model, found: Neighborhood, **options: str) -> np.ndarray:
    x = {name: snapshot.features(name, found.sample.node[name]) for name in snapshot.schema.node_types}
    sample = replace(found.sample, x=x)
    return SampledForward(model).predict(sample, degrees=found.degrees or "sample", **options)


def is_exact(rows: np.ndarray, engine: Engine, ids: object, output: str | None = None) -> bool:
    """Whether rows are an engine's, by the scale of the whole layer: a few nodes may have small values."""
    model = engine.model
    node_type = model.node_type(model.outputs[output] if output else model.output)
    layer = engine.predict(engine.graph.ids(node_type), output=output)
    return judge(rows, engine.predict(ids, output=output), scales=scales_of(layer)).ok


@pytest.mark.parametrize("name", KEPT)
@pytest.mark.parametrize("form", ["replace", "keep", "undirected"])
def test_rows_are_those_of_the_engine(name: str, form: str, rng: np.random.Generator) -> None:
    model = KEPT[name]
    if name == "max and min of weights" and form == "keep":
        model = MODELS["max"]
    duplicates = "keep" if form == "keep" else "replace"
    graph = make_graph(int(rng.integers(99)), duplicates=duplicates, undirected=form == "undirected")
    engine, snapshot = Engine(graph, model), MemorySnapshot(graph)
    for ids in (rng.permutation(graph.ids())[:3], np.repeat(rng.permutation(graph.ids())[:1], 2), []):
        found = fetch(snapshot, model, ids)
        assert is_exact(predict(snapshot, model, found), engine, ids)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    degree=st.integers(0, 6),
    layers=st.lists(
        st.sampled_from(
            [
                GCN,
                replace(GCN, reverse=True),
                Propagate(EDGES),
                Propagate(EDGES, aggregate="max"),
                Propagate(EDGES, reverse=True, aggregate="min"),
                Propagate(EDGES, ("weight",), "sum", "divide", skip_loops=True),
                Propagate(EDGES, only_loops=True),
            ]
        ),
        min_size=1,
        max_size=4,
    ),
)
def test_any_stack_of_layers_is_as_exact_as_the_engine(
    seed: int, degree: int, layers: list[Propagate]
) -> None:
    graph, model = make_graph(seed, nodes=25, degree=max(degree, 1), duplicates="keep"), steps_of(*layers)
    snapshot = MemorySnapshot(graph)
    ids = np.random.default_rng(seed).permutation(graph.ids())[: 1 + seed % 4]
    found = fetch(snapshot, model, ids)
    assert is_exact(predict(snapshot, model, found), Engine(graph, model), ids)
    assert all(count == 1 for count in snapshot.lists.values())


def test_parallel_loops_at_the_border_count_as_the_last() -> None:
    """The sum of weights of a node at the border needs one loop, of which its degrees know only the sum."""
    graph = make_graph(0, nodes=6, duplicates="keep")
    graph.apply(Events().add_edges([0, 0, 0], [0, 0, 7], weight=[5.0, 0.25, 1.0], key=[900, 901, 902]))
    model = steps_of(GCN)
    snapshot = MemorySnapshot(graph)
    found = fetch(snapshot, model, [7])
    assert is_exact(predict(snapshot, model, found), Engine(graph, model), [7])


def test_several_types_and_outputs(rng: np.random.Generator) -> None:
    graph, model = typed_graph(), typed_model()
    engine, snapshot = Engine(graph, model), MemorySnapshot(graph)
    for output in ("user", "item"):
        ids = rng.integers(0, 30, 4)
        found = fetch(snapshot, model, ids, output)
        rows = predict(snapshot, model, found, output=output)
        assert is_exact(rows, engine, ids, output)
        assert not len(found.sample.node["shop"])


@pytest.mark.parametrize("name", ["sage, norm and skip", "gcn", "three layers", "reach of attention"])
def test_nothing_is_read_that_the_request_does_not_need(name: str) -> None:
    """The lists of nodes nearer than the last hop, each once; degrees only where a layer reads them."""
    graph, model = make_graph(3), KEPT[name]
    snapshot = MemorySnapshot(graph)
    found = fetch(snapshot, model, [0])
    distance = {int(snapshot.rows_of([0], "node")[0]): 0}
    source, target = snapshot.graph.edge_index[EDGES]
    for hop in range(model.num_hops):
        here = [row for row, at in distance.items() if at == hop]
        for row in source[np.isin(target, here)].tolist():
            distance.setdefault(row, hop + 1)
    assert sorted(found.sample.node["node"].tolist()) == sorted(distance)
    inner = {row for row, at in distance.items() if at < model.num_hops}
    assert snapshot.lists == {(EDGES, "in", row): 1 for row in inner}
    border = set(distance) - inner if name in ("gcn", "three layers") else set()
    assert {row for _, _, row in snapshot.known} == border
    known = inner | border
    expected = [-1 if row not in known else (target == row).sum() for row in found.sample.node["node"]]
    assert found.degree["node"].tolist() == expected


def test_a_value_that_the_output_does_not_read_costs_nothing() -> None:
    model = make_sage()
    first = reads_of(model.steps, model.steps[1].output)
    assert first.lists == {(EDGES, "in"): 1}
    assert reads_of(model.steps, model.output).lists == {(EDGES, "in"): 2}
    assert reads_of(model.steps, "x").lists == {}


QUERY = Query("node").hop(EDGES, 3, direction="in").hop(EDGES, 2, direction="in")


def test_a_query_draws_as_many_as_it_says_and_the_same_again() -> None:
    graph = make_graph(5, nodes=60, degree=8)
    snapshot = MemorySnapshot(graph)
    seeds = np.array([4, 9, 4])
    found = drawn_neighborhood(snapshot, seeds, QUERY, 7, [EDGES]).sample
    again = drawn_neighborhood(MemorySnapshot(graph), seeds, QUERY, 7, [EDGES]).sample
    other = drawn_neighborhood(snapshot, seeds, QUERY, 8, [EDGES]).sample
    assert (found.node["node"][found.inverse["node"]] == seeds).all()
    assert found.row[EDGES].tobytes() == again.row[EDGES].tobytes()
    assert found.node["node"].tobytes() != other.node["node"].tobytes()
    source, target = found.node["node"][found.row[EDGES]], found.node["node"][found.col[EDGES]]
    true = set(zip(*snapshot.graph.edge_index[EDGES].tolist(), strict=True))
    assert set(zip(source.tolist(), target.tolist(), strict=True)) <= true
    drawn_of = np.bincount(found.col[EDGES], minlength=len(found.node["node"]))
    hop = np.repeat([0, 1, 2], found.num_sampled_nodes["node"])
    for row, count, most in zip(found.node["node"], drawn_of, np.array([3, 2, 0])[hop], strict=True):
        assert count == min(int((snapshot.graph.edge_index[EDGES][1] == row).sum()), most)


def test_a_query_that_draws_all_gives_what_a_sample_of_the_graph_gives(rng: np.random.Generator) -> None:
    graph, model = make_graph(6), make_sage()
    every = Query("node").hop(EDGES, 10**6, direction="in").hop(EDGES, 10**6, direction="in")
    snapshot, ids = MemorySnapshot(graph), rng.permutation(graph.ids())[:3]
    found = drawn_neighborhood(snapshot, snapshot.rows_of(ids, "node"), every, 0, [EDGES])
    expected = SampledForward(model).predict(sample_query(graph, ids, every, attributes=True))
    assert judge(predict(snapshot, model, found), expected).ok


@pytest.mark.parametrize("by", ["uniform", "weight"])
def test_draws_are_as_likely_as_they_should_be(by: str) -> None:
    """Four neighbours of weights 0, 1, 2 and 5: how often each is drawn first, over many seeds."""
    graph = Graph(Schema({"node": 0}, {EDGES: EdgeSchema(weighted=True)}))
    graph.apply(Events().add_nodes(range(5)))
    graph.apply(Events().add_edges([1, 2, 3, 4], [0] * 4, weight=[0.0, 1.0, 2.0, 5.0]))
    query = Query("node").hop(EDGES, 1, direction="in", by=by)
    snapshot, count = MemorySnapshot(graph), 2000
    seen = np.zeros(5)
    for seed in range(count):
        found = drawn_neighborhood(snapshot, snapshot.rows_of([0], "node"), query, seed, [EDGES]).sample
        seen[snapshot.ids_of(found.node["node"][found.row[EDGES]], "node")] += 1
    chance = np.array([0, 1, 1, 1, 1]) / 4 if by == "uniform" else np.array([0, 0, 1, 2, 5]) / 8
    assert (np.abs(seen - count * chance) <= 5 * np.sqrt(count * chance * (1 - chance))).all(), seen
