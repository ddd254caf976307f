"""PyG's loaders over a graph in parts: the batches of one graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from divided_streams import EDGES, schema_of
from livegnn import Events, Graph
from livegnn.errors import InputError, UnknownNodeError
from livegnn.graph import Schema
from livegnn.partitions import LocalPartitions
from livegnn.placement import Owners
from livegnn.sampling import sample_nodes
from livegnn.training import LinkLoader, LiveGraphStore, LiveSampler, NodeLoader
from modules import EDGE_WIDTH, WIDTH
from streams import make_model

NODES = 40


@pytest.fixture(params=[False, True], ids=["integers", "texts"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[Graph, Graph]]:
    """The names of a graph in parts, and the graph itself."""
    schema = schema_of("weight time", undirected=False, text=request.param, edge_dim=EDGE_WIDTH)
    parts = LocalPartitions(schema, make_model(), Owners("jump", 3), threads=1)
    graph = Graph(schema, threads=1)
    rng = np.random.default_rng(0)
    ids = np.array([f"n{n}" for n in range(NODES)]) if request.param else np.arange(NODES)
    events = Events().add_nodes(ids, rng.normal(size=(NODES, WIDTH)))
    events.add_edges(
        rng.choice(ids, 400),
        rng.choice(ids, 400),
        weight=rng.uniform(0.5, 2, 400),
        time=rng.integers(0, 4, 400).astype(float),
        edge_attr=rng.normal(size=(400, EDGE_WIDTH)).astype(np.float32),
    )
    for one in (graph, parts):
        one.apply(events)
    yield parts.names, graph
    parts.close()


def columns(batch: Any) -> dict[str, Any]:
    """All of a batch but the rows of its edges' features, which each part numbers for itself."""
    return {name: value for name, value in batch.to_dict().items() if name != "e_id"}


def assert_same_batches(loaders: list[Any]) -> None:
    drawn = []
    for loader in loaders:
        torch.manual_seed(0)
        drawn.append([columns(batch) for batch in loader])
    got, expected = drawn
    assert len(got) == len(expected) > 1
    for ours, theirs in zip(got, expected, strict=True):
        assert ours.keys() == theirs.keys() >= {"x", "edge_weight", "time", "edge_attr"}
        for name, value in theirs.items():
            same = torch.equal(ours[name], value) if isinstance(value, Tensor) else ours[name] == value
            assert same, name


@pytest.mark.parametrize("options", [{}, {"by": "weight", "replace": True}, {"disjoint": True}])
def test_batches_of_nodes(pair, options):
    seeds = pair[0].ids()[[3, 5, 5, 7, 30, 31, 32, 39]]
    assert_same_batches([NodeLoader(one, [4, 3], seeds, batch_size=3, threads=1, **options) for one in pair])
    times = np.arange(8.0)
    assert_same_batches(
        [NodeLoader(one, [4, 3], seeds, input_time=times, batch_size=3, threads=1) for one in pair]
    )


def test_batches_of_links_that_are_named(pair):
    links = np.stack([pair[0].ids()[:8], pair[0].ids()[10:18]])
    for negatives in (None, "binary"):
        assert_same_batches(
            [LinkLoader(one, [3, 2], links, neg_sampling=negatives, batch_size=4, threads=1) for one in pair]
        )


def test_what_no_part_knows_is_refused(pair):
    names, _ = pair
    with pytest.raises(InputError, match="which edges there are, as each part knows its own edges: name"):
        LinkLoader(names, [3])
    with pytest.raises(InputError, match="cannot say which edges there are"):
        LiveGraphStore(names).get_edge_index(EDGES, "coo")
    with pytest.raises(InputError, match="cannot say whether links are edges"):
        LiveSampler(names, [3], only_edges=True)
    with pytest.raises(InputError, match="num_workers must be 0 over a divided graph"):
        NodeLoader(names, [3], num_workers=1)
    with pytest.raises(InputError, match="can be drawn by='uniform' alone"):
        sample_nodes(names, 3, by="degree")


def test_a_removed_seed_is_refused():
    schema = Schema({"node": WIDTH}, schema_of("", undirected=False, text=False).edge_types)
    parts = LocalPartitions(schema, make_model(), Owners("modulo", 2), threads=1)
    parts.apply(Events().add_nodes([1, 2, 3], np.ones((3, WIDTH))).add_edges([1, 2], [2, 3]))
    loader = NodeLoader(parts.names, [2], [1, 2, 3], batch_size=3)
    skipping = NodeLoader(parts.names, [2], [1, 2, 3], batch_size=3, gone="skip")
    parts.apply(Events().remove_nodes([2]))
    with pytest.raises(UnknownNodeError, match="got 2"):
        next(iter(loader))
    assert next(iter(skipping)).n_id.tolist() == [1, 3]
    parts.close()
