"""RGATConv over edge types computes what PyG computes on numbered relations."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg

from gate import draws
from livegnn.errors import ModelError
from livegnn.graph.snapshot import Snapshot
from livegnn.model import EdgeInput, Input, Model
from livegnn.oracle import reference
from modules import cases, fill

CHANNELS, EDGE_CHANNELS = 6, 3
RELATIONS = [("node", name, "node") for name in ("knows", "likes", "owes")]


def import_layer(layer: pyg.RGATConv, relations, features: bool) -> Model:
    model = Model.from_pyg(layer, relations=relations, edge_channels=EDGE_CHANNELS if features else None)
    assert model.inputs == {"x": Input("node", CHANNELS)}
    names = {f"edge_attr:{edge_type}": edge_type for edge_type in relations} if features else {}
    assert model.edge_inputs == {name: EdgeInput(e, EDGE_CHANNELS) for name, e in names.items()}
    return model


@cases(
    count=draws(3, 20),
    seed=[1, 2, 3],
    num_nodes=[1, 4, 10],
    num_edges=[0, 5, 20],
    num_relations=[1, 2, 3],
    mechanism=["across-relation", "within-relation"],
    mode=["additive-self-attention", "multiplicative-self-attention"],
    heads=[1, 2, 3],
    dim=[1, 2],
    concat=[False, True],
    features=[False, True],
    mod=[None, "additive", "scaled", "f-additive", "f-scaled"],
    bias=[False, True],
    shared=[{}, {"num_bases": 2}, {"num_blocks": 2}],
    slope=[0.2, 0.5],
)
def test_rgat_conv(
    seed,
    num_nodes,
    num_edges,
    num_relations,
    mechanism,
    mode,
    heads,
    dim,
    concat,
    features,
    mod,
    bias,
    shared,
    slope,
):
    layer = pyg.RGATConv(
        CHANNELS,
        4,
        num_relations,
        mod=mod,
        attention_mechanism=mechanism,
        attention_mode=mode,
        heads=heads,
        dim=1 if mode.startswith("additive") else dim,
        concat=concat,
        negative_slope=slope,
        edge_dim=EDGE_CHANNELS if features else None,
        bias=bias,
        **shared,
    )
    check_layer(layer, num_relations, features, seed, num_nodes, num_edges)


def check_layer(
    layer: nn.Module, num_relations: int, features: bool, seed: int, num_nodes: int = 8, num_edges: int = 12
) -> None:
    """A layer in float64 and the oracle, on a random graph."""
    fill(layer, seed)
    relations = RELATIONS[:num_relations]
    model = import_layer(layer, relations, features)

    random = np.random.default_rng(seed)
    x = random.standard_normal((num_nodes, CHANNELS), dtype=np.float32)
    edges = [np.unique(random.integers(0, num_nodes, (2, num_edges)), axis=1) for _ in relations]
    attr = [random.standard_normal((e.shape[1], EDGE_CHANNELS), dtype=np.float32) for e in edges]
    snapshot = Snapshot(
        ids={"node": np.arange(num_nodes)},
        x={"node": x},
        edge_index=dict(zip(relations, edges, strict=True)),
        weight={r: np.ones(e.shape[1], dtype=np.float32) for r, e in zip(relations, edges, strict=True)},
        edge_attr=dict(zip(relations, attr, strict=True)),
    )
    numbers = np.concatenate([np.full(e.shape[1], r) for r, e in enumerate(edges)])
    with torch.no_grad():
        expected = layer.double()(
            torch.from_numpy(x).double(),
            torch.from_numpy(np.concatenate(edges, axis=1)),
            torch.from_numpy(numbers),
            torch.from_numpy(np.concatenate(attr)).double() if features else None,
        ).numpy()
    got = reference.compute(model, snapshot)[model.output]
    scale = max(1e-3, float(np.abs(expected).max(initial=0)))
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5 * scale)


def test_a_softmax_across_relations_is_one_step():
    for mechanism, steps in (("across-relation", 1), ("within-relation", 3)):
        layer = pyg.RGATConv(CHANNELS, 4, 3, attention_mechanism=mechanism)
        model = import_layer(layer, RELATIONS, features=False)
        assert sum(step.op == "propagate" for step in model.steps) == steps
        assert model.edge_types == tuple(RELATIONS)


@pytest.mark.parametrize("settings", [{"aggr": "mean"}, {"flow": "target_to_source"}])
def test_other_settings(settings):
    check_layer(pyg.RGATConv(CHANNELS, 4, 3, **settings), 3, False, 4)


def test_relations_are_as_many_as_the_layer_has():
    with pytest.raises(ModelError, match="has num_relations=2, and relations are 3"):
        Model.from_pyg(pyg.RGATConv(CHANNELS, 4, 2), relations=RELATIONS)


def test_features_are_of_the_relations_edges():
    class Net(nn.Module):
        def __init__(self, call):
            super().__init__()
            self.conv = pyg.RGATConv(CHANNELS, 4, 2, edge_dim=CHANNELS)
            self.encoder = nn.Linear(EDGE_CHANNELS, CHANNELS)
            self.call = call

        def forward(self, x, edge_index, edge_type, edge_attr):
            return self.conv(x, edge_index, edge_type, self.call(self, x, edge_attr))

    relations = RELATIONS[:2]
    with pytest.raises(ModelError, match=r"test_relational_attention.py:\d+.* must match the size"):
        Model.from_pyg(Net(lambda net, x, features: x), relations=relations)
    encoded = fill(Net(lambda net, x, features: (2 * net.encoder(features).relu_()).clone()), 3)
    model = Model.from_pyg(encoded, relations=relations)
    assert [given.width for given in model.edge_inputs.values()] == [EDGE_CHANNELS] * 2
    assert {given.edge_type for given in model.edge_inputs.values()} == set(relations)


def test_weights_may_be_the_features():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = pyg.RGATConv(CHANNELS, 4, 2, edge_dim=1)

        def forward(self, x, edge_index, edge_type, edge_weight):
            return self.conv(x, edge_index, edge_type, edge_weight)

    model = Model.from_pyg(fill(Net(), 3), relations=RELATIONS[:2])
    assert [given.column for given in model.edge_inputs.values()] == ["weight"] * 2
