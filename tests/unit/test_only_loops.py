"""Propagations along a node's own loop alone (in streams: tests/property/test_directions.py)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from model_examples import EDGES, make_snapshot

from livegnn import EdgeSchema, Engine, Events, Graph, ModelError, Schema
from livegnn.model import Degree, EdgeInput, Input, Model, Propagate, Step, verify
from livegnn.oracle import reference

LIKES = ("user", "likes", "item")
ONLY = Propagate(EDGES, only_loops=True)


def of_rows(operators: Propagate) -> Model:
    step = Step("propagate", ("x",), "y", attrs=operators.to_attrs())
    return Model({"x": Input("node", 1)}, (step,), {}, "y", ("x", "y"))


def test_what_it_sums() -> None:
    edges, weight = [(0, 1), (1, 1), (2, 2), (2, 2), (0, 2)], [2.0, 3.0, 5.0, 7.0, 11.0]
    snapshot = make_snapshot([[10.0], [20.0], [30.0]], edges, weight)

    def run(operators: Propagate) -> list[float]:
        return reference.compute(of_rows(operators), snapshot)["y"][:, 0].tolist()

    assert run(ONLY) == [0, 20, 30]
    assert run(replace(ONLY, reverse=True)) == [0, 20, 30]
    assert run(replace(ONLY, message_local=("weight",))) == [0, 60, 210]
    assert run(replace(ONLY, aggregate="max")) == [0, 20, 30]


def loop_weight_or(fill: float) -> Model:
    """The weight of a node's own loop, else a number: what PyG's add_remaining_self_loops gives the loop."""
    steps = (
        Step("propagate", ("w",), "weight", attrs=ONLY.to_attrs()),
        Step("degree", (), "all", attrs=Degree(EDGES).to_attrs()),
        Step("degree", (), "others", attrs=Degree(EDGES, skip_loops=True).to_attrs()),
        Step("scale", ("others",), "minus", attrs={"value": -1.0}),
        Step("add", ("all", "minus"), "loops"),
        Step("scale_shift", ("loops",), "lacks", {"scale": "minus_one", "shift": "one"}),
        Step("relu", ("lacks",), "lack"),  # 1 where there is no loop, else 0
        Step("scale", ("lack",), "filled", attrs={"value": fill}),
        Step("add", ("weight", "filled"), "y"),
    )
    tensors = {"minus_one": -np.ones(1, np.float32), "one": np.ones(1, np.float32)}
    columns = {"w": EdgeInput(EDGES, 1, "weight")}
    return Model({"x": Input("node", 1)}, steps, tensors, "y", ("x", "y"), columns)


@pytest.mark.parametrize("mode", ["eager", "lazy"])
def test_the_weight_of_the_own_loop_or_else_a_number(mode: str) -> None:
    graph = Graph(Schema({"node": 1}, {EDGES: EdgeSchema(weighted=True, duplicates="keep")}))
    engine = Engine(graph, loop_weight_or(0.25), mode=mode)
    engine.apply(Events().add_nodes([0, 1, 2], np.zeros((3, 1))).add_edges([0, 1], [1, 2], weight=[8.0, 9.0]))

    def now() -> list[float]:
        assert engine.verify().ok
        return engine.predict([0, 1, 2])[:, 0].tolist()

    assert now() == [0.25, 0.25, 0.25]
    engine.apply(Events().add_edges([1, 1], [1, 1], weight=[3.0, 5.0], key=[7, 2]))
    assert now() == [0.25, 3.0, 0.25]  # the greatest key, not the last to come
    engine.apply(Events().add_edges(1, 1, weight=4.0, key=9))
    assert now() == [0.25, 4.0, 0.25]
    engine.apply(Events().remove_edges([1, 1], [1, 1], key=[9, 7]))
    assert now() == [0.25, 5.0, 0.25]
    engine.apply(Events().remove_edges(1, 1, key=2).add_edges(2, 2, weight=1.5))
    assert now() == [0.25, 0.25, 1.5]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"skip_loops": True}, "only_loops excludes skip_loops and self_loops"),
        ({"self_loops": 1.0}, "only_loops excludes skip_loops and self_loops"),
        ({"edge_type": LIKES}, "only_loops needs edges between nodes of one type, got 'user' to 'item'"),
        ({"neighbor_context": "count", "combine": "divide"}, "only_loops excludes a count of edges"),
        ({"neighbor_context": "sum", "combine": "rsqrt"}, "only_loops excludes a count of edges"),
    ],
)
def test_settings_that_do_not_fit(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        Propagate(**{"edge_type": EDGES, "only_loops": True, **settings})  # type: ignore[arg-type]


def test_settings_survive_a_step() -> None:
    assert "only_loops" not in Propagate(EDGES).to_attrs()
    assert Propagate.from_step(of_rows(ONLY).steps[0]) == ONLY
    step = replace(of_rows(ONLY).steps[0], attrs={**ONLY.to_attrs(), "only_loops": 1})
    with pytest.raises(ModelError, match="only_loops must be true or false, got 1"):
        Propagate.from_step(step)


def test_it_is_verified() -> None:
    assert verify(of_rows(ONLY)).ok


def test_with_keep_degree_it_is_refused() -> None:
    graph = Graph(Schema({"node": 1}, {EDGES: EdgeSchema()}))
    with pytest.raises(ModelError, match="with keep_degree a model must propagate rows of sources alone"):
        Engine(graph, of_rows(ONLY), keep_degree=2)
