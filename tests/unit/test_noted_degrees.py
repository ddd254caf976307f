"""Degrees that stand with cached features."""

from __future__ import annotations

import numpy as np
import pytest
from memory_snapshot import MemorySnapshot, MemorySource
from test_serverless_subgraph import KEPT, make_graph

from livegnn.serverless.predictor import SnapshotPredictor


@pytest.mark.parametrize("name", KEPT)
@pytest.mark.parametrize("form", ["replace", "keep", "undirected"])
@pytest.mark.parametrize("limit", [None, 6000])
def test_predictions_are_those_without_a_cache(
    name: str, form: str, limit: int | None, rng: np.random.Generator
) -> None:
    undirected, duplicates = form == "undirected", "replace" if form == "undirected" else form
    graph = make_graph(int(rng.integers(100)), degree=2, duplicates=duplicates, undirected=undirected)
    with_cache, without = (
        SnapshotPredictor(MemorySource(MemorySnapshot(graph)), KEPT[name], memory_limit=limit, cache=cache)
        for cache in (True, False)
    )
    for _ in range(20):
        ids = rng.choice(graph.ids(), int(rng.integers(1, 4)))
        assert with_cache.predict(ids).tobytes() == without.predict(ids).tobytes()


@pytest.mark.parametrize("name", ["gcn", "three layers"])
def test_a_degree_is_fetched_once(name: str, rng: np.random.Generator) -> None:
    graph = make_graph(4)
    snapshot = MemorySnapshot(graph)
    predictor = SnapshotPredictor(MemorySource(snapshot), KEPT[name])
    for _ in range(10):
        predictor.predict(rng.choice(graph.ids(), 3))
    predictor.predict(graph.ids())
    assert set(snapshot.known.values()) == {1}
