"""Convolutions whose messages depend on both ends of an edge or on its features: the oracle computes on the
imported model what PyG computes on the module itself.
"""

from __future__ import annotations

import copy
from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric import nn as pyg

from gate import draws
from livegnn.graph.snapshot import Snapshot
from livegnn.model import Model
from livegnn.oracle import reference
from livegnn.types import DEFAULT_EDGE_TYPE, DEFAULT_NODE_TYPE
from modules import EDGE_WIDTH, EDGE_WISE, WIDTH, cases, designs_of, fill, make

CHANNELS, EDGE_CHANNELS = WIDTH, EDGE_WIDTH
"""Widths of the features of nodes and of edges in these tests."""


def make_snapshot(seed: int, num_nodes: int, num_edges: int) -> Snapshot:
    """A random graph: some self-loops, some isolated nodes."""
    random = np.random.default_rng(seed)
    edge_index = random.integers(0, max(1, num_nodes - num_nodes // 4), (2, num_edges))
    edge_index = np.unique(edge_index, axis=1)
    edges = edge_index.shape[1]
    return Snapshot(
        ids={DEFAULT_NODE_TYPE: np.arange(num_nodes)},
        x={DEFAULT_NODE_TYPE: random.standard_normal((num_nodes, CHANNELS), dtype=np.float32)},
        edge_index={DEFAULT_EDGE_TYPE: edge_index},
        weight={DEFAULT_EDGE_TYPE: random.uniform(0.25, 2, edges).astype(np.float32)},
        edge_attr={DEFAULT_EDGE_TYPE: random.standard_normal((edges, EDGE_CHANNELS), dtype=np.float32)},
    )


GRAPHS = [make_snapshot(seed, 1 + 2 * seed, 6 * seed) for seed in range(8)]


def check(
    module: nn.Module,
    graphs: list[Snapshot] = GRAPHS,
    *,
    features: bool = False,
    weighted: bool = False,
    seed: int = 0,
    edge_channels: int | None = None,
    in_channels: int | None = None,
) -> Model:
    """Imports the module and compares the oracle with it. features, weighted: what it is called with."""
    fill(module, seed)
    model = Model.from_pyg(
        module, edge_weight=weighted or None, edge_channels=edge_channels, in_channels=in_channels
    )
    for snapshot in graphs:
        given = {
            "x": torch.from_numpy(snapshot.x[DEFAULT_NODE_TYPE]).double(),
            "edge_index": torch.from_numpy(snapshot.edge_index[DEFAULT_EDGE_TYPE]),
        }
        if features:
            given["edge_attr"] = torch.from_numpy(snapshot.edge_attr[DEFAULT_EDGE_TYPE]).double()
        if weighted:
            given["edge_weight"] = torch.from_numpy(snapshot.weight[DEFAULT_EDGE_TYPE]).double()
        with torch.no_grad():
            expected = copy.deepcopy(module).double()(**given).numpy()
        values = reference.compute(model, snapshot)
        scale = max(1e-3, float(np.abs(expected).max(initial=0)))
        np.testing.assert_allclose(values[model.output], expected, rtol=0, atol=1e-5 * scale)
    assert model.layers[0] == "x"
    assert model.layers[-1] == model.output
    return model


class Two(nn.Module):
    """Two convolutions with an activation between them. pair: what each end is given, as PyG's pair."""

    def __init__(self, first: nn.Module, second: nn.Module, pair: str = "no") -> None:
        super().__init__()
        self.first, self.second = first, second
        self.pair = pair
        self.other = nn.Linear(CHANNELS, CHANNELS)

    def forward(self, x, edge_index, edge_attr=None):
        if self.pair == "both":
            x = (x, self.other(x).tanh())
        elif self.pair == "source":
            x = (x, None)
        h = F.elu(self.first(x, edge_index, edge_attr))
        return self.second(h, edge_index, edge_attr)


class TwoWithoutFeatures(Two):
    def forward(self, x, edge_index):
        if self.pair == "both":
            x = (x, self.other(x).tanh())
        elif self.pair == "source":
            x = (x, None)
        return self.second(F.elu(self.first(x, edge_index)), edge_index)


def check_two(first, second, *, features: bool, pair: str = "no", in_channels=None) -> Model:
    kind = Two if features else TwoWithoutFeatures
    model = check(kind(first, second, pair), features=features, in_channels=in_channels)
    assert len(model.layers) == 3
    assert model.width(model.layers[1]) == getattr(second, "in_channels", model.width(model.layers[1]))
    assert bool(model.edge_inputs) == features
    return model


FILLS = ["mean", "add", "sum", "min", "max", 0.0, 1.5, None, torch.arange(EDGE_CHANNELS)]


@cases(
    count=draws(2, 12),
    heads=[1, 2, 3],
    concat=[False, True],
    slope=[0.2, 0.0, 0.7],
    add_self_loops=[False, True],
    features=[False, True],
    fill_value=FILLS,
    bias=[False, True],
    residual=[False, True],
    pair=["no", "both", "both, one map", "source"],
)
def test_gat_conv(heads, concat, slope, add_self_loops, features, fill_value, bias, residual, pair):
    settings = {
        "heads": heads,
        "concat": concat,
        "negative_slope": slope,
        "dropout": 0.5,
        "add_self_loops": add_self_loops,
        "edge_dim": EDGE_CHANNELS if features else None,
        "fill_value": fill_value,
        "bias": bias,
        "residual": residual,
    }
    inputs = (CHANNELS, CHANNELS) if pair in ("both", "source") else CHANNELS
    first = pyg.GATConv(inputs, 4, **settings)
    second = pyg.GATConv(4 * heads if concat else 4, 2, **settings)
    model = check_two(first, second, features=features, pair=pair.partition(",")[0])
    gathered = [step for step in model.steps if step.op in ("source", "target")]
    assert {model.width(step.output) for step in gathered} == {heads}


@cases(
    count=draws(2, 12),
    heads=[1, 2, 3],
    concat=[False, True],
    slope=[0.2, 0.0, 0.7],
    add_self_loops=[False, True],
    features=[False, True],
    fill_value=FILLS,
    bias=[False, True],
    share_weights=[False, True],
    residual=[False, True],
    pair=["no", "both", "both, one width"],
)
def test_gatv2_conv(
    heads, concat, slope, add_self_loops, features, fill_value, bias, share_weights, residual, pair
):
    settings = {
        "heads": heads,
        "concat": concat,
        "negative_slope": slope,
        "dropout": 0.5,
        "add_self_loops": add_self_loops,
        "edge_dim": EDGE_CHANNELS if features else None,
        "fill_value": fill_value,
        "bias": bias,
        "share_weights": share_weights,
        "residual": residual,
    }
    inputs = (CHANNELS, CHANNELS) if pair == "both" else CHANNELS
    first = pyg.GATv2Conv(inputs, 4, **settings)
    second = pyg.GATv2Conv(4 * heads if concat else 4, 2, **settings)
    check_two(first, second, features=features, pair=pair.partition(",")[0])


@cases(
    count=draws(2, 12),
    heads=[1, 2, 3],
    concat=[False, True],
    beta=[False, True],
    features=[False, True],
    bias=[False, True],
    root_weight=[False, True],
    pair=["no", "both"],
)
def test_transformer_conv(heads, concat, beta, features, bias, root_weight, pair):
    settings = {
        "heads": heads,
        "concat": concat,
        "beta": beta,
        "dropout": 0.5,
        "edge_dim": EDGE_CHANNELS if features else None,
        "bias": bias,
        "root_weight": root_weight,
    }
    inputs = (CHANNELS, CHANNELS) if pair == "both" else CHANNELS
    first = pyg.TransformerConv(inputs, 4, **settings)
    second = pyg.TransformerConv(4 * heads if concat else 4, 2, **settings)
    check_two(first, second, features=features, pair=pair)


@cases(
    count=draws(2, 12),
    requires_grad=[False, True],
    add_self_loops=[False, True],
    seed=[0, 1, 2, 3],
)
def test_agnn_conv(requires_grad, add_self_loops, seed):
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = nn.Linear(CHANNELS, 4)
            self.first = pyg.AGNNConv(requires_grad, add_self_loops)
            self.second = pyg.AGNNConv(requires_grad, add_self_loops)

        def forward(self, x, edge_index):
            h = F.relu(self.encoder(x))  # rows of zeros have no direction
            return self.second(self.first(h, edge_index), edge_index)

    check(Net(), seed=seed)


@cases(
    count=draws(2, 12),
    act=[nn.Sigmoid(), nn.Tanh(), torch.sigmoid, F.relu, nn.Sequential(nn.ELU(), nn.ReLU())],
    features=[False, True],
    root_weight=[False, True],
    bias=[False, True],
    aggr=["add", "sum", "mean", "max", "min"],
    pair=["no", "both"],
)
def test_res_gated_graph_conv(act, features, root_weight, bias, aggr, pair):
    settings = {
        "act": act,
        "edge_dim": EDGE_CHANNELS if features else None,
        "root_weight": root_weight,
        "bias": bias,
        "aggr": aggr,
    }
    inputs = (CHANNELS, CHANNELS) if pair == "both" else CHANNELS
    first, second = pyg.ResGatedGraphConv(inputs, 4, **settings), pyg.ResGatedGraphConv(4, 2, **settings)
    check_two(first, second, features=features, pair=pair)


@cases(
    count=draws(2, 12),
    kernels=[1, 2, 3],
    separate=[False, True],
    aggr=["mean", "add", "sum", "max", "min"],
    root_weight=[False, True],
    bias=[False, True],
    pair=["no", "both", "source"],
)
def test_gmm_conv(kernels, separate, aggr, root_weight, bias, pair):
    settings = {
        "dim": EDGE_CHANNELS,
        "kernel_size": kernels,
        "separate_gaussians": separate,
        "aggr": aggr,
        "bias": bias,
    }
    inputs = (CHANNELS, CHANNELS) if pair == "both" else CHANNELS
    # PyG reads its root weight, even if it has none, unless there are no rows of targets.
    first = pyg.GMMConv(inputs, 4, root_weight=root_weight or pair != "source", **settings)
    second = pyg.GMMConv(4, 2, **settings)
    tells_width = not separate or pair != "source"  # one Gaussian per channel scales rows of any width
    in_channels = None if tells_width else CHANNELS
    check_two(first, second, features=True, pair=pair, in_channels=in_channels)


@cases(
    count=draws(2, 12),
    eps=[0.0, 0.3, -1.0],
    train_eps=[False, True],
    edge_dim=[False, True],
    aggr=["add", "mean", "max", "min"],
    pair=["no", "both", "source"],
)
def test_gine_conv(eps, train_eps, edge_dim, aggr, pair):
    settings = {"eps": eps, "train_eps": train_eps, "aggr": aggr}

    class Net(Two):
        def __init__(self) -> None:
            dim = EDGE_CHANNELS if edge_dim else None
            network = nn.Sequential(nn.Linear(CHANNELS, 6), nn.ReLU(), nn.Linear(6, CHANNELS))
            first = pyg.GINEConv(network, edge_dim=dim, **settings)
            super().__init__(first, pyg.GINEConv(nn.Linear(CHANNELS, 2), edge_dim=dim, **settings), pair)
            self.edge_encoder = nn.Identity() if edge_dim else nn.Linear(EDGE_CHANNELS, CHANNELS)

        def forward(self, x, edge_index, edge_attr):
            return super().forward(x, edge_index, self.edge_encoder(edge_attr).relu())

    check(Net(), features=True)


@cases(
    count=draws(1, 12),
    seed=[0, 1, 2, 3],
)
def test_what_a_module_does_with_features_and_weights_of_edges(seed):
    """They are rows as those of nodes are: layers, operations, parameters, work in place."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = nn.Sequential(
                nn.Linear(EDGE_CHANNELS, 4), nn.BatchNorm1d(4), nn.ReLU(inplace=True)
            )
            self.norm = nn.LayerNorm(4)
            self.gate = nn.Parameter(torch.ones(4))
            self.first = pyg.GATConv(CHANNELS, 4, edge_dim=9)
            self.second = pyg.TransformerConv(4, 4, edge_dim=1)
            self.third = pyg.GATConv(4, 3, edge_dim=1, fill_value=2.0)
            self.last = pyg.GCNConv(3, 2)

        def forward(self, x, edge_index, edge_weight, edge_attr):
            e = self.encoder(edge_attr)
            same = e
            e *= self.gate
            e = torch.cat([self.norm(e), same.clone() - 1, edge_weight.view(-1, 1)], dim=-1)
            h = self.first(x, edge_index, F.dropout(e, training=self.training)).relu()
            h = self.second(h, edge_index, edge_attr=edge_weight.unsqueeze(-1).tanh())
            h = self.third(h, edge_index, edge_weight)
            return self.last(h, edge_index, edge_weight)

    model = check(Net(), features=True, weighted=True, seed=seed)
    assert {given.column: given.width for given in model.edge_inputs.values()} == {
        "edge_attr": EDGE_CHANNELS,
        "weight": 1,
    }


@cases(
    count=draws(2, 12),
    heads=[1, 2],
    v2=[False, True],
    features=[False, True],
    jk=[None, "cat"],
)
def test_ready_made_models(heads, v2, features, jk):
    dim = EDGE_CHANNELS if features else None
    module = pyg.GAT(CHANNELS, 4, 2, 6, v2=v2, heads=heads, edge_dim=dim, jk=jk, norm="BatchNorm")
    check(module, features=features)


def test_features_that_no_layer_was_made_for():
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = pyg.GATConv(CHANNELS, 3)
            self.scale = nn.Parameter(torch.ones(1))

        def forward(self, x, edge_index, edge_attr):
            return self.conv(x, edge_index, edge_attr * self.scale)  # GATConv lets them be

    model = check(Net(), features=True, edge_channels=EDGE_CHANNELS)
    assert not model.edge_inputs


@pytest.mark.parametrize("large", [40.0, 400.0])
def test_large_logits(large):
    """A softmax of which only the differences of logits are numbers."""
    snapshot = make_snapshot(3, 12, 40)
    snapshot.x[DEFAULT_NODE_TYPE][:] *= large
    for conv in (pyg.GATConv(CHANNELS, 3, 2), pyg.TransformerConv(CHANNELS, 3)):
        check(conv, [snapshot])


def test_depth():
    """Each convolution shows in the layers what it reads."""
    sizes = [CHANNELS, 8, 6, 2]
    convolutions = [pyg.GATConv(i, o // 2, 2) for i, o in pairwise(sizes)]

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolutions = nn.ModuleList(convolutions)

        def forward(self, x, edge_index):
            for conv in self.convolutions:
                x = conv(x, edge_index).relu()
            return x

    model = check(Net(), [make_snapshot(1, 9, 20)])
    assert [model.width(layer) for layer in model.layers] == sizes


@pytest.mark.parametrize("kind", EDGE_WISE)
@pytest.mark.parametrize("design", range(draws(1, 2)))
def test_every_layer_of_a_stack(kind, design):
    module, model = make(designs_of(kind)[design])
    for snapshot in GRAPHS:
        values = reference.compute(model, snapshot)
        x, weight, features = (
            torch.from_numpy(array[key].astype(np.float64))
            for array, key in (
                (snapshot.x, DEFAULT_NODE_TYPE),
                (snapshot.weight, DEFAULT_EDGE_TYPE),
                (snapshot.edge_attr, DEFAULT_EDGE_TYPE),
            )
        )
        edge_index = torch.from_numpy(snapshot.edge_index[DEFAULT_EDGE_TYPE])
        with torch.no_grad():
            layers = module.layers(x, edge_index, weight, features)
        for name, expected in zip(model.layers, layers, strict=True):
            scale = max(1e-2, float(expected.abs().max()))
            np.testing.assert_allclose(values[name], expected.numpy(), rtol=0, atol=2e-5 * scale)
