"""Whatever is changed in an array of an engine's state: it is refused, or the engine goes on from it."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from gate import share
from livegnn import EdgeSchema, Engine, Events, FileFormatError, Graph, Model, Schema
from livegnn.types import DEFAULT_EDGE_TYPE, DEFAULT_NODE_TYPE, State
from mirror import frozen, predictions
from modules import WIDTH, Design, make
from spoiling import says_what, spoil

CASES: dict[str, tuple[str, bool, dict[str, Any]]] = {
    "sums of weights": ("gcn", True, {}),
    "degrees": ("sage mean", False, {}),
    "few aggregates": ("gcn", True, {"keep_degree": 3}),
    "maxima": ("sage max", False, {}),
    "few maxima": ("sage max", False, {"keep_degree": 3}),
    "attention": ("gat", False, {}),
    "lazy": ("gcn", True, {"mode": "lazy"}),
    "half lazy": ("sage mean", False, {"mode": ["eager", "lazy"]}),
}


def batch(graph: Graph, seed: int) -> Events:
    rng, ids = np.random.default_rng(seed), graph.ids()
    new = np.arange(3) + 1000 * seed + 1000
    src, dst = rng.choice(ids[2:], (2, 12))
    weight = (
        {"weight": rng.uniform(0.5, 2, 15)} if graph.schema.edge_types[DEFAULT_EDGE_TYPE].weighted else {}
    )
    events = Events().add_nodes(new, rng.standard_normal((3, WIDTH))).remove_nodes(ids[:2])
    events.add_edges([*src, *new], [*dst, *src[:3]], **weight).remove_edges(src[6:], dst[6:])
    return events.set_features(ids[-4:], rng.standard_normal((4, WIDTH)))


@cache
def saved(case: str) -> tuple[Model, dict[str, Any], State, State, State]:
    """A model, options, the states of a graph and its engine, and that of the engine a batch earlier."""
    kind, weighted, options = CASES[case]
    model = make(Design(kind, weighted=weighted))[1]
    rng = np.random.default_rng(3)
    edges = EdgeSchema(weighted=weighted, capacity=4)
    graph = Graph(Schema({DEFAULT_NODE_TYPE: WIDTH}, {DEFAULT_EDGE_TYPE: edges}))
    graph.apply(Events().add_nodes(np.arange(14), rng.standard_normal((14, WIDTH))))
    engine = Engine(graph, model, threads=1, **options)
    for seed in range(3):
        graph.apply(batch(graph, seed))
    earlier = engine.state()
    graph.apply(batch(graph, 3))
    if "mode" in options:  # so far nodes have gone with each batch, which leaves nothing to record
        ids = graph.ids()[3:5]
        graph.apply(Events().set_features(ids, rng.standard_normal((2, WIDTH))))
        weight = {"weight": [1.5, 0.5]} if weighted else {}
        graph.apply(Events().add_edges(ids, ids[::-1], **weight).remove_edges(*graph.ids()[:2]))
        assert "lazy/eager" in engine.state().arrays
    return model, options, graph.state(), engine.state(), earlier


def follow(case: str, state: State) -> tuple[Engine, bool]:
    """An engine that goes on from the state, and whether it is exact after a batch."""
    model, options, graph_state, _, _ = saved(case)
    engine = Engine(Graph.from_state(graph_state), model, threads=1, state=state, **options)
    engine.graph.apply(batch(engine.graph, 4))
    engine.state()
    return engine, engine.verify().ok


@pytest.mark.parametrize("case", share(CASES, 0))
def test_each_array_in_each_way(case: str) -> None:
    """What contradicts the graph or another array is refused, and the error says why. Rows that a model has
    computed are not computed once more; with whichever of them the engine goes on.
    """
    _, _, _, state, earlier = saved(case)
    untroubled, exact = follow(case, state)
    assert exact
    refusals, wrong = 0, []
    with np.errstate(all="ignore"):
        cases = list(spoil(state, {"an earlier state": earlier}))
    for found in cases:
        try:
            _, exact = follow(case, found.state)
        except FileFormatError as error:
            refusals += 1
            if not says_what(error, found.name):
                wrong.append((found.name, found.way, str(error)))
            continue
        except Exception as error:
            wrong.append((found.name, found.way, repr(error)))
            continue
        # What a lazy engine has recorded is of a graph that is no more.
        computed = found.name.startswith(("rows/", "counts/", "lazy/"))
        if not exact and not computed:
            wrong.append((found.name, found.way, "is not exact"))
    assert not wrong, "\n".join(map(str, wrong))
    assert refusals > len(cases) / 3
    again, _ = follow(case, state)
    assert frozen(again.state()) == frozen(untroubled.state())
    assert predictions(again) == predictions(untroubled)
