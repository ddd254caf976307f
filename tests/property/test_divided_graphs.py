"""Parts that begin with a graph keep the bits of one engine on it: at once, and after every batch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from divided_streams import (
    EDGES,
    KINDS,
    MAGNITUDES,
    Stream,
    apply_alone,
    assert_same_lists,
    assert_same_state,
    columns,
    follow,
    outcome,
    owners,
    schema_of,
)
from gate import draws, share
from livegnn import Engine, Graph
from livegnn.partitions import LocalPartitions
from livegnn.placement import Owners
from livegnn.types import State
from modules import EDGE_FEATURES, EDGE_WIDTH, designs_of, make
from parts_beside import assert_equal_lists


def assert_equal_states(got: State, expected: State) -> None:
    assert got.meta == expected.meta
    assert list(got.arrays) == list(expected.arrays)
    for name, array in got.arrays.items():
        assert np.asarray(array).tobytes() == np.asarray(expected.arrays[name]).tobytes(), name


BATCHES = 22
"""After the division, so that units are measured after 1, 4 and 16 of them, and after many messages."""

drawn = settings(max_examples=draws(2, 40), suppress_health_check=list(HealthCheck), deadline=None)
once = settings(drawn, max_examples=draws(1, 40))
streams = given(
    seed=st.integers(0, 2**32 - 1),
    columns=columns,
    undirected=st.booleans(),
    text=st.booleans(),
    magnitude=st.sampled_from(MAGNITUDES),
    owners=owners,
    before=st.integers(0, 12),
    capacity=st.sampled_from([4, 256]),
    non_finite=st.sampled_from(["refuse", "allow"]),
)


class Case:
    """A model, and a graph that a stream of events has made, with removed nodes and edges."""

    def __init__(
        self,
        kind: str,
        seed: int,
        columns: str,
        undirected: bool,
        text: bool,
        magnitude: float,
        before: int,
        capacity: int,
    ) -> None:
        if kind == "gcn max":  # its maximum covers all parallel loops, of which only one counts
            columns = columns.replace("keep", "")
        _, self.model = make(designs_of(kind)[0])
        featured = {"edge_dim": EDGE_WIDTH} if kind in EDGE_FEATURES else {}
        self.schema = schema_of(columns, undirected=undirected, text=text, capacity=capacity, **featured)
        rng = np.random.default_rng(seed)
        edges = self.schema.edge_types[EDGES]
        self.stream = Stream(rng, edges, not kind.startswith("gcn") and seed % 2 == 1, text, magnitude)
        self.graph = Graph(self.schema, threads=1)
        apply_alone(self.graph, self.stream, [60, *([8] * before)])
        self.sizes = [int(n) for n in rng.integers(1, 6, BATCHES)]


def fitting(owners: Owners, graph: Graph) -> Owners:
    """By a hash, if Fennel refuses a graph of fewer nodes than parts."""
    few = sum(map(graph.num_nodes, graph.schema.node_types)) < owners.workers
    return Owners("jump", owners.workers) if owners.rule == "fennel" and few else owners


@pytest.mark.parametrize("kind", share(KINDS, 0))
@drawn
@streams
def test_parts_of_a_graph_keep_the_bits_of_one_engine(kind, owners, non_finite, **drawn):
    case = Case(kind, **drawn)
    engine = Engine(case.graph, case.model, threads=1, non_finite=non_finite)
    parts = LocalPartitions.from_graph(
        case.graph, case.model, fitting(owners, case.graph), threads=2, non_finite=non_finite
    )
    try:
        assert_same_state(parts, engine)
        assert_same_lists(parts, case.graph)
        follow(parts, case.graph, engine, case.stream, case.sizes)
    finally:
        parts.close()


@pytest.mark.parametrize("kind", share(KINDS, 1))
@once
@streams
def test_an_engine_that_has_followed_batches_is_divided(kind, owners, non_finite, **drawn):
    """Its rows are kept, which rounding and units have made others than those of a new engine."""
    case = Case(kind, **drawn)
    engine = Engine(case.graph, case.model, threads=1, non_finite=non_finite)
    apply_alone(case.graph, case.stream, [4] * 6)
    parts = LocalPartitions.from_graph(
        case.graph,
        case.model,
        fitting(owners, case.graph),
        state=engine.state(),
        threads=2,
        non_finite=non_finite,
    )
    try:
        assert_same_state(parts, engine)
        follow(parts, case.graph, engine, case.stream, case.sizes)
    finally:
        parts.close()


@pytest.mark.parametrize("kind", share(KINDS, 0))
@once
@streams
def test_parts_that_are_saved_go_on(kind, owners, non_finite, tmp_path_factory, **drawn):
    """With the bits of the engine that was never saved; also if they are saved again."""
    case, directory = Case(kind, **drawn), tmp_path_factory.mktemp("sets")
    engine = Engine(case.graph, case.model, threads=1, non_finite=non_finite)
    parts = LocalPartitions.from_graph(
        case.graph, case.model, fitting(owners, case.graph), threads=2, non_finite=non_finite
    )
    rules = parts.rules
    for _ in range(2):
        try:
            follow(parts, case.graph, engine, case.stream, case.sizes[: BATCHES // 2])
            parts.write(directory)
        finally:
            parts.close()
        parts = LocalPartitions.from_checkpoint(directory, case.model, threads=2, non_finite=non_finite)
        assert parts.rules == rules
        assert_same_state(parts, engine)
        assert_same_lists(parts, case.graph)
    try:
        follow(parts, case.graph, engine, case.stream, case.sizes[: BATCHES // 2])
    finally:
        parts.close()


@pytest.mark.parametrize("kind", share(KINDS, 1))
@once
@streams
def test_parts_are_joined(kind, owners, non_finite, **drawn):
    """An engine of the graph that they were goes on with the bits of one that was never divided."""
    case = Case(kind, **drawn)
    engine = Engine(case.graph, case.model, threads=1, non_finite=non_finite)
    parts = LocalPartitions.from_graph(
        case.graph, case.model, fitting(owners, case.graph), threads=2, non_finite=non_finite
    )
    try:
        follow(parts, case.graph, engine, case.stream, case.sizes[: BATCHES // 2])
        graph, state = parts.join()
    finally:
        parts.close()
    graph.native.check()
    joined = Engine(graph, case.model, threads=1, non_finite=non_finite, state=state)
    for size in [0, *case.sizes[: BATCHES // 2]]:
        events, after = case.stream.next(size)
        _, expected = outcome(lambda events=events: case.graph.apply(events))
        _, got = outcome(lambda events=events: graph.apply(events))
        assert got == expected
        if expected is None:
            case.stream.present = after
        assert_equal_states(joined.state(), engine.state())
        assert_equal_lists(graph, case.graph)
