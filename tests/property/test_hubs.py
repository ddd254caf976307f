"""Nodes with very many in-edges are as exact as others: every family, as made and through batches.

`benchmarks/hubs.py` (``make hubs``) does the same up to a million in-edges.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch

from gate import draws
from hubs import FAMILIES, Star, run
from livegnn.oracle.exactness import EXACTNESS

MANY = draws(20_000, 100_000)
SETTINGS = {
    "lazy": {"mode": "lazy"},
    "aggregates": {"keep": "aggregates"},
    "keep_degree": {"keep_degree": 64},
}


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family(name):
    """Terms that are all the same, which all round the same way, and terms of all kinds."""
    for equal in (True, False):
        for when, found in run(FAMILIES[name], Star(MANY, equal=equal), threads=1).items():
            assert found.ours <= EXACTNESS / 10, f"{when}: {found}"


@pytest.mark.parametrize(
    ("name", "kept"),
    [*product(("sum (SAGE)", "attention (GAT)"), ("lazy", "aggregates")), ("sum (SAGE)", "keep_degree")],
)
def test_every_setting(name, kept):
    for when, found in run(FAMILIES[name], Star(20_000, equal=True), threads=1, **SETTINGS[kept]).items():
        assert found.ours <= EXACTNESS / 10, f"{when}: {found}"


def test_the_stream_makes_what_it_says():
    star = Star(1000)
    batches = list(star.batches(weighted=True))
    x, edge_index, weight = star.tensors(torch.float32, weighted=True)
    graph = star.graph(weighted=True)
    assert len(batches) > 10
    assert graph.num_edges() == edge_index.shape[1] == len(weight) == 2000
    np.testing.assert_array_equal(graph.features(np.arange(len(x))), x)
