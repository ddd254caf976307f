"""Samples are the same bits from version to version: whoever keeps a seed draws the same sample again."""

import hashlib

import numpy as np
import pytest

import livegnn as lg
from livegnn.sampling import HeteroSubgraph, sample_metapath, sample_subgraph

FOLLOWS, BUYS, ALIKE = ("user", "follows", "user"), ("user", "buys", "item"), ("item", "alike", "item")
SUBGRAPHS = {
    ("uniform", "in", False): "fb46eaf32362b68a",
    ("uniform", "in", True): "063e196eb928da53",
    ("uniform", "out", False): "44795f26d45ef910",
    ("uniform", "out", True): "3149604d52f85131",
    ("weight", "in", False): "5a67322d7f5eb5cf",
    ("weight", "in", True): "4e98df42cb40a752",
    ("weight", "out", False): "076dfd3d9ea28023",
    ("weight", "out", True): "a0f0e78a41b0b8da",
    ("latest", "in", False): "1b603a33ad9798e2",
    ("latest", "in", True): "9d915f9f324f59f0",
    ("latest", "out", False): "4bedb6fcb6780eeb",
    ("latest", "out", True): "aaae084088736e70",
}
METAPATH = "6d37ba2c7613e6b0"


@pytest.fixture(scope="module")
def graph() -> lg.Graph:
    both = {"weighted": True, "timed": True}
    edge_types = {
        FOLLOWS: lg.EdgeSchema(**both),
        BUYS: lg.EdgeSchema(**both, capacity=8),
        ALIKE: lg.EdgeSchema(**both, undirected=True),
    }
    graph = lg.Graph(lg.Schema({"user": 0, "item": 0}, edge_types))
    events = lg.Events().add_nodes(np.arange(60), node_type="user").add_nodes(np.arange(40), node_type="item")
    rng = np.random.default_rng(11)
    sizes = {"user": 60, "item": 40}
    for name in edge_types:
        u, v = rng.integers(0, sizes[name[0]], 700), rng.integers(0, sizes[name[2]], 700)
        weight, time = rng.integers(1, 9, 700), rng.integers(0, 50, 700)
        events.add_edges(u, v, weight=weight, time=time, edge_type=name)
    graph.apply(events)
    return graph


def digest(sample: HeteroSubgraph) -> str:
    sha = hashlib.sha256()
    for part in (sample.node, sample.row, sample.col, sample.inverse, sample.batch or {}):
        for name in sorted(part):
            sha.update(repr((name, part[name].tolist())).encode())
    numbers = sorted(sample.num_sampled_nodes.items()), sorted(sample.num_sampled_edges.items())
    sha.update(repr(numbers).encode())
    return sha.hexdigest()[:16]


@pytest.mark.parametrize(("by", "direction", "disjoint"), SUBGRAPHS)
def test_subgraphs_of_a_seed(graph: lg.Graph, by: str, direction: str, disjoint: bool) -> None:
    sample = sample_subgraph(
        graph,
        {"user": [3, 4, 3], "item": [7]},
        {FOLLOWS: [4, 0, 2], BUYS: [3, -1, 1], ALIKE: [0, 2, 5]},
        by=by,
        direction=direction,
        disjoint=disjoint,
        until=40.0,
        seed=5,
    )
    assert digest(sample) == SUBGRAPHS[by, direction, disjoint]


def test_a_metapath_of_a_seed(graph: lg.Graph) -> None:
    assert digest(sample_metapath(graph, [1, 2], [(FOLLOWS, 3), (BUYS, 4), (ALIKE, 2)], seed=9)) == METAPATH
