"""Forward passes over samples beside PyG's own module on the sampled batch, of every convolution."""

from __future__ import annotations

import copy
import os

import numpy as np
import pytest
import torch

import imported_modules
import pyg_convolutions
from import_findings import data_of, draw, import_model, in_order
from import_findings import make as make_module
from livegnn import Events, Graph, Schema
from livegnn.graph import EdgeSchema
from livegnn.graph.snapshot import Snapshot
from livegnn.inference import SampledForward
from livegnn.oracle import reference
from livegnn.oracle.exactness import judge
from livegnn.sampling import Subgraph, sample_subgraph
from livegnn.types import DEFAULT_EDGE_TYPE, DEFAULT_NODE_TYPE
from modules import CONVOLUTIONS, EDGE_WIDTH, EDGE_WISE, WIDTH, Stack, designs_of, make
from typed_mirror import TypedMirror

NODES = 40
ALL = bool(os.environ.get("LIVEGNN_ALL_MODULES"))  # else one design of each kind: an import takes seconds


def make_graph(random: np.random.Generator, scale: float) -> Graph:
    """A graph with a hub, loops, parallel edges and a node without edges."""
    schema = EdgeSchema(weighted=True, duplicates="keep", edge_dim=EDGE_WIDTH)
    graph = Graph(Schema({DEFAULT_NODE_TYPE: WIDTH}, {DEFAULT_EDGE_TYPE: schema}))
    x = (random.standard_normal((NODES, WIDTH)) * scale).astype(np.float32)
    source, target = random.integers(0, NODES - 1, (2, 6 * NODES))
    target[: 2 * NODES] = 0
    edges = Events().add_edges(
        source,
        target,
        key=np.arange(len(source)),
        weight=random.uniform(0.1, 2, len(source)),
        edge_attr=random.standard_normal((len(source), EDGE_WIDTH)).astype(np.float32),
    )
    graph.apply(Events().add_nodes(np.arange(NODES), x=x))
    graph.apply(edges)
    return graph


@torch.no_grad()
def run(module: Stack, sample: Subgraph, dtype: torch.dtype) -> np.ndarray:
    """What the module says of the nodes of a sample."""
    module = copy.deepcopy(module).to(dtype)
    edge_index = torch.from_numpy(np.stack([sample.row, sample.col]))
    given = [torch.from_numpy(array).to(dtype) for array in (sample.x, sample.edge_weight, sample.edge_attr)]
    return module(given[0], edge_index, given[1], given[2]).numpy()


def assert_as_pyg(module: Stack, forward: SampledForward, sample: Subgraph) -> None:
    rows = forward.predict(sample, all_nodes=True)
    found = judge(rows, run(module, sample, torch.float64), lambda: run(module, sample, torch.float32))
    assert found.ok, found
    seeds = forward.predict(sample)
    assert seeds.tobytes() == rows[sample.inverse].tobytes()


@pytest.mark.parametrize("kind", [*CONVOLUTIONS, *EDGE_WISE])
def test_predictions_are_those_of_the_module_on_the_sampled_batch(kind: str) -> None:
    # The gate of a lone node ends below the smallest float32 there, which has no scale to be judged by.
    largest = 1e2 if kind == "transformer" else 1e3
    for design in list(designs_of(kind))[: None if ALL else 1]:
        module, model = make(design)
        forward = SampledForward(model)
        hops = [5, 3, 2, 2][: design.depth]
        for seed, scale in enumerate([1.0, 1e-3, largest]):
            graph = make_graph(np.random.default_rng(seed), scale)
            for seeds in ([0], [NODES - 1], [3, 7, 3, 0]):
                sample = sample_subgraph(graph, seeds, hops, attributes=True, seed=seed)
                assert_as_pyg(module, forward, sample)


CASES = {
    name: (pyg_convolutions.CONVOLUTIONS | imported_modules.CASES)[name]
    for name in [
        "RGCNConv, max",
        "RGATConv",
        "HeteroConv",
        "HeteroGAT",
        "PNAConv, edge_dim, towers",
        "APPNP",
        "Cheb given",
    ][: None if ALL else 4]
}
"""Relations by number and by type, several types of nodes, several aggregates, many hops."""


@pytest.mark.parametrize("name", CASES)
def test_imported_models_of_other_shapes_are_the_oracle_on_the_sample(name: str) -> None:
    case = CASES[name]
    module = make_module(case)
    model, program = import_model(copy.deepcopy(module).float(), case, data_of(case, draw(case, "random", 0)))
    mirror = TypedMirror(in_order(case, program), seed=0)
    graph = mirror.make_graph()
    graph.apply(mirror.fill(nodes=12, edges=40))
    forward = SampledForward(model)
    types = graph.schema.node_types
    for seed in range(3):
        seeds = {it: graph.ids(it if len(types) > 1 else None)[:2] for it in types}
        sample = sample_subgraph(graph, seeds, [3, 2, 2], attributes=True, seed=seed)
        snapshot = Snapshot(
            sample.node,
            sample.x,
            {it: np.stack([sample.row[it], sample.col[it]]).astype(np.int64) for it in sample.row},
            {it: sample.edge_weight.get(it, np.ones(len(row), np.float32)) for it, row in sample.row.items()},
            sample.edge_attr,
        )
        expected = reference.compute(model, snapshot)
        rounded = reference.compute(model, snapshot, dtype=np.float32)
        for output, value in model.outputs.items():
            rows = forward.predict(sample, output=output, all_nodes=True)
            found = judge(rows, expected[value], rounded[value])
            assert found.ok, found
            at = sample.inverse[model.node_type(value)]
            assert forward.predict(sample, output=output).tobytes() == rows[at].tobytes()
