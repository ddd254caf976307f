"""Any stream of events on edges with weights and features, parallel ones too, and features of any magnitude:
scores of edges and of pairs are the oracle's, in every mode, and the same bits in a restored engine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from gate import draws
from livegnn import EdgeSchema, Engine, Events, Graph, Schema
from livegnn.oracle.exactness import judge, scales_of
from livegnn.types import DEFAULT_EDGE_TYPE
from scored_edges import MAGNITUDES, NODES, WIDTH, compute_scores, edge_schemas, make_batch, make_scorer, name

PAIRS = 12
MODES = ({}, {"mode": "lazy"}, {"mode": ["eager", "lazy"]}, {"keep": "aggregates"}, {"keep_degree": 3})


@settings(max_examples=draws(25, 600), deadline=None, phases=(Phase.explicit, Phase.generate))
@given(
    seed=st.integers(0, 2**32 - 1),
    edges=edge_schemas(),
    text=st.booleans(),
    mode=st.sampled_from(MODES),
    wild=st.booleans(),
    messages=st.booleans(),
    hub=st.booleans(),
)
def test_scores_are_the_oracles(
    seed: int, edges: EdgeSchema, text: bool, mode: dict, wild: bool, messages: bool, hub: bool
) -> None:
    rng = np.random.default_rng(seed)
    model = make_scorer(
        seed % 7,
        edge_dim=edges.edge_dim,
        weighted=edges.weighted,
        messages=messages and "keep_degree" not in mode,  # which reads rows of sources alone
    )
    columns = rng.choice(MAGNITUDES, WIDTH) if wild else np.ones(WIDTH)
    graph = Graph(Schema({"node": WIDTH}, {DEFAULT_EDGE_TYPE: edges}, text_ids=text))
    graph.apply(Events().add_nodes(name(np.arange(NODES), text), rng.normal(size=(NODES, WIDTH)) * columns))
    engine = Engine(graph, model, **mode)
    for _ in range(int(rng.integers(2, 7))):
        engine.apply(make_batch(rng, edges, columns, text, hub=hub))
        check(engine, rng)
    restored = Engine(Graph.from_state(graph.state()), model, state=engine.state(), **mode)
    batch = make_batch(rng, edges, columns, text, hub=hub)
    for one in (engine, restored):
        one.apply(batch)
    places = rng.integers(0, NODES, (2, PAIRS))
    src, dst = (name(ends, text) for ends in places)
    np.testing.assert_array_equal(*(one.score(src, dst, output="alike") for one in (engine, restored)))
    check(restored, rng)


def check(engine: Engine, rng: np.random.Generator) -> None:
    """Compares edges of the graph, and pairs with columns of their own."""
    graph, model = engine.graph, engine.model
    snapshot = graph.snapshot()
    ids, edges = snapshot.ids["node"], graph.schema.edge_types[DEFAULT_EDGE_TYPE]
    sources, targets = snapshot.edge_index[DEFAULT_EDGE_TYPE]
    attr, weight = snapshot.edge_attr[DEFAULT_EDGE_TYPE], snapshot.weight[DEFAULT_EDGE_TYPE]
    keys = snapshot.key.get(DEFAULT_EDGE_TYPE)
    some = rng.integers(0, len(sources), min(PAIRS, len(sources)))
    u, v = rng.integers(0, len(ids), (2, PAIRS))
    row, number = rng.normal(size=(PAIRS, edges.edge_dim)).astype(np.float32), rng.uniform(0.1, 3, PAIRS)
    given_columns = {
        **({"edge_attr": row} if edges.edge_dim else {}),
        **({"edge_weight": number} if edges.weighted else {}),
    }
    for output in model.edge_outputs:
        given_here = given_columns if output == "risk" else {}
        got = [
            engine.predict_edges(
                ids[sources[some]],
                ids[targets[some]],
                key=None if keys is None else keys[some],
                output=output,
            ),
            engine.score(ids[u], ids[v], output=output, **given_here),
        ]
        asked = [(sources[some], targets[some], attr[some], weight[some])]
        asked += [(u, v, row, number.astype(np.float32) if edges.weighted else None)]
        exact, in_float32 = (
            [compute_scores(model, snapshot, output, *one, dtype=dtype) for one in asked]
            for dtype in (np.float64, np.float32)
        )
        everything = compute_scores(model, snapshot, output, sources, targets, attr, weight)
        scales = scales_of(np.concatenate([*exact, everything]))
        result = judge(np.concatenate(got), np.concatenate(exact), np.concatenate(in_float32), scales=scales)
        assert result.ok, (output, result)


def test_the_check_finds_a_wrong_column() -> None:
    """The comparison is able to fail."""
    rng = np.random.default_rng(0)
    edges = EdgeSchema(weighted=True, edge_dim=2)
    graph = Graph(Schema({"node": WIDTH}, {DEFAULT_EDGE_TYPE: edges}))
    graph.apply(Events().add_nodes(np.arange(NODES), rng.normal(size=(NODES, WIDTH))))
    graph.apply(make_batch(rng, edges, np.ones(WIDTH), False))
    engine = Engine(graph, make_scorer())
    check(engine, rng)
    tensors = {**engine.model.tensors, "w4": engine.model.tensors["w4"] * np.float32(1.01)}
    engine.model = replace(engine.model, tensors=tensors)
    with pytest.raises(AssertionError, match="not ok"):
        check(engine, rng)
