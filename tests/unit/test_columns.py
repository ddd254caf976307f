"""Columns of events that a type has no place for."""

from __future__ import annotations

import pytest

from livegnn import Events, Graph, InputError
from mirror import frozen


@pytest.mark.parametrize(
    ("column", "values", "setting"),
    [("weight", 2.0, "weighted=True"), ("time", 3.0, "timed=True"), ("edge_attr", [1.0, 2.0], "edge_dim=2")],
)
def test_a_column_without_a_place_is_refused(column, values, setting):
    """Weights and times were dropped without a word."""
    graph = Graph.from_edges([0, 1], [1, 2])
    before = frozen(graph.state())
    with pytest.raises(
        InputError, match=rf"\('node', 'to', 'node'\) carry no .+ '{column}': .+EdgeSchema\({setting}\)"
    ):
        graph.apply(Events().add_nodes(9).add_edges(0, 2, **{column: values}))
    assert frozen(graph.state()) == before


def test_features_without_a_place_are_refused():
    graph = Graph.from_edges([0, 1], [1, 2])
    with pytest.raises(InputError, match=r"must have 0 features for node type 'node', got 2: leave x out"):
        graph.apply(Events().set_features(0, [1.0, 2.0]))
