"""A sum of edge weights below 0 has no root: predictions are NaN exactly where PyG's are."""

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg

from livegnn import Engine, Events, Graph, Model
from livegnn.model import Degree, Input, Step

EDGES = ("node", "to", "node")
X = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
EDGE = [(0, 2), (1, 2), (2, 3), (3, 0), (0, 1), (4, 3)]
WEIGHT = [-2.0, 0.5, -1.0, 1.5, 1.0, 1.0]  # with loops of 1 the degrees are 2.5, 2, -0.5, 1 and 1


class ByFeature(nn.Module):
    """The weights of the convolution are the one feature of the edges."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.GCNConv(3, 2)

    def forward(self, x, edge_index, edge_attr):
        return self.conv(x, edge_index, edge_attr)


MODULES = {
    "GCN": lambda: pyg.GCNConv(3, 2),
    "ARMA, without loops": lambda: pyg.ARMAConv(3, 2, num_layers=2),
    "by feature": ByFeature,
}


def check(engine: Engine, graph: Graph, module: nn.Module, weights: dict[tuple[int, int], float]) -> None:
    """Holds the engine's predictions against the module's, NaN included."""
    edge_index = torch.tensor(list(weights)).T
    expected = module(torch.from_numpy(X), edge_index, torch.tensor(list(weights.values()))).detach().numpy()
    np.testing.assert_allclose(engine.predict(np.arange(5)), expected, rtol=1e-4, atol=1e-5)
    assert engine.verify().ok


@pytest.mark.parametrize("name", MODULES)
def test_predictions_are_nan_where_pyg_says_so(name):
    torch.manual_seed(0)
    module, of_feature = MODULES[name]().eval(), name == "by feature"
    source, target = np.array(EDGE).T
    column = "edge_attr" if of_feature else "weight"

    def rows(weights):
        return {column: np.reshape(weights, (-1, 1) if of_feature else -1)}

    graph = Graph.from_edges(source, target, x=X, **rows(WEIGHT))
    model = Model.from_pyg(module, **({"edge_channels": 1} if of_feature else {}))
    engine = Engine(graph, model, non_finite="allow")
    weights = dict(zip(EDGE, WEIGHT, strict=True))
    check(engine, graph, module, weights)
    assert np.isnan(engine.predict(2)).all()

    for edge, weight in (((0, 2), 2.0), ((2, 3), -3.0), ((4, 3), 3.0), ((4, 3), 2.0)):  # above 0, below, 0
        weights[edge] = weight
        engine.apply(Events().add_edges([edge[0]], [edge[1]], **rows([weight])))
        check(engine, graph, module, weights)


def test_the_root_of_a_degree_that_is_0_or_below():
    model = Model(
        {"x": Input("node", 3)},
        (
            Step("degree", (), "d", attrs=Degree(EDGES, "sum").to_attrs()),
            Step("rsqrt_degree", ("x", "d"), "y"),
        ),
        {},
        "y",
        ("x", "y"),
    )
    graph = Graph.from_edges([0, 1, 2, 3], [1, 2, 3, 3], x=X, weight=np.array([4.0, -1, 0.5, -0.5]))
    got = Engine(graph, model).predict(np.arange(4))
    np.testing.assert_allclose(got, [0 * X[0], X[1] / 2, np.nan * X[2], 0 * X[3]], rtol=1e-6)
