"""Samples of a graph in parts have the bits of those of one graph, after every batch of any stream."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_partitions import BUYS, next_of_shop, shop

from divided_samples import COUNTS, check, check_samples
from divided_streams import EDGES, Stream, columns, outcome, owners, schema_of
from gate import draws
from livegnn import Graph
from livegnn.graph import EdgeSchema, Schema
from livegnn.partitions import LocalPartitions
from livegnn.sampling import sample_metapath, sample_subgraph
from modules import EDGE_WIDTH
from streams import make_model

ALIKE = ("item", "alike", "item")
BATCHES = 4


@settings(max_examples=draws(60, 1000), suppress_health_check=list(HealthCheck), deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    columns=columns,
    featured=st.booleans(),
    undirected=st.booleans(),
    text=st.booleans(),
    negative=st.booleans(),
    owners=owners,
    first=st.sampled_from([10, 40, 150]),
    capacity=st.sampled_from([4, 256]),
)
def test_parts_keep_the_bits_of_samples(
    seed, columns, featured, undirected, text, negative, owners, first, capacity
):
    width = {"edge_dim": EDGE_WIDTH} if featured else {}
    schema = schema_of(columns, undirected=undirected, text=text, capacity=capacity, **width)
    rng = np.random.default_rng(seed)
    stream = Stream(rng, schema.edge_types[EDGES], negative, text)
    graph = Graph(schema, threads=1)
    parts = LocalPartitions(schema, make_model(), owners, threads=1, non_finite="allow")
    try:
        for batch in range(BATCHES):
            events, after = stream.next(first if batch == 0 else 10)
            _, expected = outcome(lambda events=events: graph.apply(events))
            got = outcome(lambda events=events: parts.apply(events))[1]
            assert (got is None) == (
                expected is None
            )  # of two faults, names and parts may find another first
            if expected is None:
                stream.present = after
            for _ in range(3 if stream.present else 0):
                check_samples(parts.names, graph, stream, rng)
    finally:
        parts.close()


@settings(max_examples=draws(30, 300), suppress_health_check=list(HealthCheck), deadline=None)
@given(seed=st.integers(0, 2**32 - 1), owners=owners)
def test_parts_keep_the_bits_of_samples_of_several_types(seed, owners):
    schema = Schema(
        {"user": 3, "item": 2}, {BUYS: EdgeSchema(weighted=True), ALIKE: EdgeSchema(undirected=True)}
    )
    rng = np.random.default_rng(seed)
    present: dict[str, list[int]] = {"user": [], "item": []}
    graph = Graph(schema, threads=1)
    parts = LocalPartitions(schema, shop(), owners, threads=1)
    for batch in range(BATCHES):
        events = next_of_shop(rng, present, 60 if batch == 0 else 8)
        events.add_edges(*(rng.choice(present["item"], 5) for _ in range(2)), edge_type=ALIKE)
        graph.apply(events)
        parts.apply(events)
        for _ in range(4):
            seeds = {name: rng.choice(ids, 3) for name, ids in present.items()}
            hops = {one: [int(n) for n in rng.choice(COUNTS, 3)] for one in (BUYS, ALIKE)}
            rest = {"attributes": True, "seed": int(rng.integers(2**63)), "threads": 1}
            rest |= {"direction": str(rng.choice(["in", "out"])), "disjoint": rng.random() < 0.4}
            check(parts.names, graph, lambda it: sample_subgraph(it, seeds, hops, **rest))  # noqa: B023
            path = [(BUYS, 3), (ALIKE, 2), (ALIKE, 2)]
            rest["direction"] = "out"
            check(parts.names, graph, lambda it: sample_metapath(it, seeds["user"], path, **rest))  # noqa: B023
    parts.close()
