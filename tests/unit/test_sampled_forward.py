"""Forward passes over samples, beside the oracle on the sample as a graph, and beside the engine."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from livegnn import EdgeSchema, Engine, Events, Graph, InputError, Model, ModelError, Schema
from livegnn.graph.snapshot import Snapshot
from livegnn.inference import Degrees, SampledForward
from livegnn.model import Input, Propagate, Step, reference
from livegnn.oracle.exactness import judge
from livegnn.sampling import HeteroSubgraph, Subgraph, sample_subgraph
from model_examples import EDGES, make_sage, propagate

LOOPS = ("node", "to", "node")
USER_ITEM, ITEM_USER = ("user", "likes", "item"), ("item", "liked", "user")


def draw(random: np.random.Generator, width: int, hops: int, neighbors: int, *, scale: float = 1.0) -> Subgraph:
    """A sample around node 0 as a sampler lists it, with parallel edges, loops and nodes without edges."""
    row, col, nodes, first = [], [], 1, 0
    for _ in range(hops):
        end = nodes
        for node in range(first, end):
            for _ in range(random.integers(neighbors + 1)):
                known = random.random() < 0.3
                row.append(int(random.integers(nodes)) if known else nodes)
                col.append(node)
                nodes += not known
        first = end
    return make_subgraph(random, width, nodes, row, col, scale=scale)


def make_subgraph(random, width, nodes, row, col, *, seeds=(0,), scale=1.0) -> Subgraph:
    return Subgraph(
        node=np.arange(nodes) + 100,
        row=np.array(row, np.int64),
        col=np.array(col, np.int64),
        edge=None,
        batch=None,
        num_sampled_nodes=[nodes],
        num_sampled_edges=[len(row)],
        inverse=np.array(seeds, np.int64),
        seed=0,
        x=(random.standard_normal((nodes, width)) * scale).astype(np.float32),
        edge_weight=random.uniform(0.1, 2, len(row)).astype(np.float32),
        time=None,
        edge_attr=None,
    )


def as_snapshot(sample: Subgraph) -> Snapshot:
    """The sample as a graph of its own."""
    assert sample.x is not None
    weight = np.ones(len(sample.row), np.float32) if sample.edge_weight is None else sample.edge_weight
    attr = {} if sample.edge_attr is None else {EDGES: sample.edge_attr}
    return Snapshot(
        {"node": sample.node}, {"node": sample.x}, {EDGES: np.stack([sample.row, sample.col])}, {EDGES: weight}, attr
    )


def assert_as_oracle(model: Model, sample: Subgraph) -> None:
    """The rows of the seeds, and of all nodes, are the oracle's on the sample as a graph."""
    snapshot = as_snapshot(sample)
    forward = SampledForward(model)
    expected = reference.compute(model, snapshot)[model.output]
    rounded = reference.compute(model, snapshot, dtype=np.float32)[model.output]
    everything = forward.predict(sample, all_nodes=True)
    found = judge(everything, expected, rounded)
    assert found.ok, found
    # The seeds alone need less, and are the same bits.
    assert forward.predict(sample).tobytes() == everything[sample.inverse].tobytes()


def steps_of(*operators: Propagate, width: int = 3) -> Model:
    """A linear layer and a ReLU after each propagation."""
    random = np.random.default_rng(3)
    steps, tensors, name = [], {}, "x"
    for i, each in enumerate(operators):
        steps += [
            propagate(name, f"a{i}", each),
            Step("linear", (f"a{i}",), f"l{i}", {"weight": f"w{i}", "bias": f"b{i}"}),
            Step("relu", (f"l{i}",), f"h{i}"),
        ]
        tensors |= {
            f"w{i}": random.standard_normal((4, width if i == 0 else 4), dtype=np.float32),
            f"b{i}": random.standard_normal(4, dtype=np.float32),
        }
        name = f"h{i}"
    return Model({"x": Input("node", width)}, tuple(steps), tensors, name, ("x", name))


GCN = Propagate(EDGES, ("weight", "source_rsqrt"), "sum", "rsqrt", self_loops=1.0)
MODELS = {
    "sage, norm and skip": make_sage(),
    "gcn": steps_of(GCN, GCN),
    "gcn, improved": steps_of(replace(GCN, self_loops=2.0), replace(GCN, self_loops=2.0)),
    "gcn, in reverse": steps_of(replace(GCN, reverse=True), GCN),
    "sum": steps_of(Propagate(EDGES), Propagate(EDGES)),
    "mean of weights": steps_of(Propagate(EDGES, ("weight",), "sum", "divide"), Propagate(EDGES, ("weight",))),
    "max": steps_of(Propagate(EDGES, aggregate="max"), Propagate(EDGES, aggregate="max")),
    "max and min of weights": steps_of(
        Propagate(EDGES, ("weight",), aggregate="max"), Propagate(EDGES, ("weight",), aggregate="min")
    ),
    "three layers": steps_of(GCN, Propagate(EDGES, (), "count", "divide"), Propagate(EDGES, aggregate="max")),
}


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e9])
def test_rows_are_those_of_the_oracle_on_the_sample(model: Model, scale: float) -> None:
    for seed in range(8):
        random = np.random.default_rng(seed)
        assert_as_oracle(model, draw(random, 3, int(random.integers(4)), 6, scale=scale))
