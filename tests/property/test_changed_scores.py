"""Any stream of events: the changes of followed edges, applied to a dict, keep it equal to the scores of all
edges, bit for bit, after each batch and in a restored engine; and nothing is listed that did not change."""

from __future__ import annotations

import numpy as np
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from gate import draws
from livegnn import EdgeSchema, Engine, Events, Graph, Schema
from livegnn.inference.followed_edges import EdgeNames
from livegnn.types import DEFAULT_EDGE_TYPE
from scored_edges import MAGNITUDES, NODES, WIDTH, make_batch, make_scorer, name

MODES = ({}, {"keep": "aggregates"}, {"keep_degree": 3}, {"threads": 2})
OUTPUTS = ("risk", "alike")
Scores = dict[tuple[object, object, int], bytes]


def names_of(edges: EdgeNames) -> list[tuple[object, object, int]]:
    keys = [0] * len(edges.source) if edges.key is None else edges.key.tolist()
    return list(zip(edges.source.tolist(), edges.target.tolist(), keys, strict=True))


def read_all(engine: Engine, output: str) -> Scores:
    snapshot = engine.graph.snapshot()
    ids, (sources, targets) = snapshot.ids["node"], snapshot.edge_index[DEFAULT_EDGE_TYPE]
    keys = snapshot.key.get(DEFAULT_EDGE_TYPE)
    names = EdgeNames(ids[sources], ids[targets], keys)
    rows = engine.predict_edges(names.source, names.target, key=keys, output=output)
    return {edge: row.tobytes() for edge, row in zip(names_of(names), rows, strict=True)}


@settings(max_examples=draws(30, 800), deadline=None, phases=(Phase.explicit, Phase.generate))
@given(
    seed=st.integers(0, 2**32 - 1),
    edges=st.builds(
        lambda kind, undirected, edge_dim: EdgeSchema(
            duplicates=kind[0], weighted=kind[1], undirected=undirected, edge_dim=edge_dim
        ),
        st.sampled_from(
            [("keep", True), ("keep", False), ("replace", True), ("replace", False), ("add", True)]
        ),
        st.booleans(),
        st.sampled_from([0, 2]),
    ),
    text=st.booleans(),
    mode=st.sampled_from(MODES),
    wild=st.booleans(),
    messages=st.booleans(),
    hub=st.booleans(),
)
def test_changes_lead_from_all_scores_to_all_scores(
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
    engine = Engine(graph, model, follow=OUTPUTS, **mode)
    kept = {output: read_all(engine, output) for output in OUTPUTS}
    for step in range(int(rng.integers(2, 9))):
        if step == 3:
            graph = Graph.from_state(graph.state())
            engine = Engine(graph, model, state=engine.state(), follow=OUTPUTS, **mode)
        batch = make_batch(rng, edges, columns, text, hub=hub)
        replaced = {id for chunk in batch.chunks if chunk.kind == "remove_nodes" for id in chunk.ids.tolist()}
        update = engine.apply(batch)
        for output in OUTPUTS:
            follow(kept[output], update.edges[output], replaced)
            assert kept[output] == read_all(engine, output), (output, step)


def follow(kept: Scores, changes, replaced: set) -> None:
    """Applies changes, and checks that each is one. replaced: nodes that were removed, and perhaps added."""
    assert changes.complete
    removed, listed = names_of(changes.removed), names_of(changes.edges)
    assert len({*removed, *listed}) == len(removed) + len(listed) <= changes.reached
    for edge in removed:
        del kept[edge]
    for edge, row in zip(listed, changes.scores, strict=True):
        assert kept.get(edge) != row.tobytes() or replaced & {*edge[:2]}, edge
        kept[edge] = row.tobytes()


def test_a_missing_change_is_seen() -> None:
    """The comparison is able to fail."""
    edges = EdgeSchema(weighted=True, edge_dim=2)
    rng = np.random.default_rng(0)
    graph = Graph(Schema({"node": WIDTH}, {DEFAULT_EDGE_TYPE: edges}))
    graph.apply(Events().add_nodes(np.arange(NODES), rng.normal(size=(NODES, WIDTH))))
    graph.apply(Events().add_edges([0, 1], [1, 2], weight=[1.0, 2.0], edge_attr=np.ones((2, 2))))
    engine = Engine(graph, make_scorer(), follow=["risk"])
    kept = read_all(engine, "risk")
    update = engine.apply(Events().set_features([1], np.ones((1, WIDTH))))
    assert kept != read_all(engine, "risk")
    follow(kept, update.edges["risk"], set())
    assert kept == read_all(engine, "risk")
