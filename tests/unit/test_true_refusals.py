"""What practitioners write is served; what is not, is refused with a reason that is true.

A reason is true if doing what it says removes the refusal.
"""

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.data import Data, HeteroData
from torch_geometric.utils import add_self_loops, remove_self_loops, scatter, to_undirected

from livegnn import Engine, Graph, Model, ModelError

SOURCE, TARGET = np.array([0, 1, 2, 3, 0, 4, 1, 2]), np.array([2, 2, 3, 0, 1, 3, 0, 2])
EDGE_INDEX = torch.from_numpy(np.stack([SOURCE, TARGET]))
X = torch.from_numpy(np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32))
WEIGHT = torch.from_numpy(np.random.default_rng(1).random(8).astype(np.float32))
OF_EDGES = torch.from_numpy(np.random.default_rng(2).standard_normal((8, 2)).astype(np.float32))


class Net(nn.Module):
    """A function of layers and of what it is called with."""

    def __init__(self, does, **layers: nn.Module) -> None:
        super().__init__()
        self.does, self.layers = does, nn.ModuleDict(layers)

    def forward(self, x, edge_index):
        return self.does(self.layers, x, edge_index)


class OfEdges(Net):
    def forward(self, x, edge_index, edge_attr):
        return self.does(self.layers, x, edge_index, edge_attr)


class Scaled(pyg.GCNConv):
    def message(self, x_j, edge_weight):
        return -super().message(x_j, edge_weight) / 3


class Largest(pyg.MessagePassing):
    """The largest weight at a node, where each has a loop of 1."""

    def __init__(self) -> None:
        super().__init__(aggr="max")

    def forward(self, x, edge_index, edge_weight):
        edge_index, edge_weight = add_self_loops(edge_index, edge_weight, 1.0, x.size(0))
        return self.propagate(edge_index, weight=edge_weight, size=(x.size(0), x.size(0)))

    def message(self, weight):
        return weight[:, None]


def pooled(layers, x, edge_index):
    h = layers["conv"](x, edge_index)
    return h, x.sort(dim=0)[0].mean(), layers["conv"](x.flip(0), edge_index)


SERVED = {
    "a final squeeze": (
        lambda: Net(lambda layers, x, e: layers["conv"](x, e).squeeze(), conv=pyg.SAGEConv(3, 1)),
        {},
        (X, EDGE_INDEX),
    ),
    "features of edges alone": (
        lambda: OfEdges(
            lambda layers, x, e, a: layers["lin"](scatter(a, e[1], 0, x.size(0), "mean")), lin=nn.Linear(2, 2)
        ),
        {"in_channels": 3},
        (X, EDGE_INDEX, OF_EDGES),
    ),
    "messages times a constant": (lambda: Scaled(3, 2), {}, (X, EDGE_INDEX, WEIGHT)),
    "largest weights with loops": (lambda: Largest(), {"in_channels": 3}, (X, EDGE_INDEX, WEIGHT)),
    "one result of several": (
        lambda: Net(pooled, conv=pyg.SAGEConv(3, 2)),
        {"output": "output[0]"},
        (X, EDGE_INDEX),
    ),
}


@pytest.mark.parametrize("case", SERVED)
def test_what_practitioners_write_is_served(case):
    make, settings, arguments = SERVED[case]
    torch.manual_seed(0)
    module = make().eval()
    more = dict.fromkeys(("weight", "edge_attr"))
    for name, tensor in (("weight", WEIGHT), ("edge_attr", OF_EDGES)):
        more[name] = tensor.numpy() if any(one is tensor for one in arguments) else None
    graph = Graph.from_edges(SOURCE, TARGET, x=X.numpy(), **more)
    got = Engine(graph, Model.from_pyg(module, **settings)).predict(np.arange(5))
    expected = module(*arguments)
    expected = expected[0] if isinstance(expected, tuple) else expected
    np.testing.assert_allclose(got, expected.detach().reshape(5, -1), rtol=1e-4, atol=1e-5)


def test_a_table_may_have_as_many_rows_as_the_example_has_nodes():
    class Kinds(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.conv = nn.Embedding(5, 3), pyg.SAGEConv(3, 2)

        def forward(self, kind, edge_index):
            return self.conv(self.embedding(kind), edge_index)

    torch.manual_seed(0)
    module, kind = Kinds().eval(), torch.tensor([0, 1, 4, 2, 2])
    model = Model.from_pyg(module, Data(kind=kind, edge_index=EDGE_INDEX, num_nodes=5))
    graph = Graph.from_edges(SOURCE, TARGET, x=kind[:, None].numpy())
    got = Engine(graph, model).predict(np.arange(5))
    np.testing.assert_allclose(got, module(kind, EDGE_INDEX).detach(), rtol=1e-4, atol=1e-5)


class OneList(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.SAGEConv(3, 2)

    def forward(self, data):
        one = data.to_homogeneous()
        return self.conv(one.x, one.edge_index)


def of_types() -> HeteroData:
    data = HeteroData()
    data["user"].x, data["item"].x = X[:4], X
    data["user", "buys", "item"].edge_index = EDGE_INDEX[:, :3]
    return data


def undirected(layers, x, edge_index):
    return layers["conv"](x, to_undirected(edge_index))


TOLD = {
    "nodes of all types in one list": (
        lambda: Model.from_pyg(OneList(), of_types()),
        r"OneList.*to_homogeneous\(\).*call it before the module",
        lambda: Model.from_pyg(OneList().conv, of_types().to_homogeneous()),
    ),
    "edges both ways": (
        lambda: Model.from_pyg(Net(undirected, conv=pyg.SAGEConv(3, 2))),
        r"leave it out, and let the graph be undirected.*undirected=True",
        lambda: Model.from_pyg(Net(lambda layers, x, e: layers["conv"](x, e), conv=pyg.SAGEConv(3, 2))),
    ),
    "a row for each node": (
        lambda: Model.from_pyg(pyg.LightGCN(5, 4, 2), method="get_embedding"),
        r"if embedding\.weight has a row for each node, say inputs=\{'embedding\.weight': 'node'\}",
        lambda: Model.from_pyg(
            pyg.LightGCN(5, 4, 2), method="get_embedding", inputs={"embedding.weight": "node"}
        ),
    ),
    "another width than that of the layer": (
        lambda: Model.from_pyg(pyg.GCNConv(4, 2), in_channels=3, edge_weight=False),
        r"GCNConv\.forward fails when it is called with x \[7, 3\], edge_index \[2, 11\]: .*7x3 and 4x2",
        lambda: Model.from_pyg(pyg.GCNConv(4, 2), in_channels=4, edge_weight=False),
    ),
    "degrees alone": (
        lambda: Model.from_pyg(
            Net(lambda layers, x, e: layers["conv"](torch.ones(x.size(0), 1), e), conv=pyg.SAGEConv(1, 2)),
            in_channels=1,
        ),
        "a model must read one, which may be a column of ones that the nodes have as x",
        lambda: Model.from_pyg(Net(lambda layers, x, e: layers["conv"](x, e), conv=pyg.SAGEConv(1, 2))),
    ),
}


@pytest.mark.parametrize("case", TOLD)
def test_doing_what_a_refusal_says_removes_it(case):
    refused, reason, done = TOLD[case]
    with pytest.raises(ModelError, match=rf"(?s){reason}"):
        refused()
    assert done().steps


def test_a_module_that_fails_whatever_the_widths_is_not_asked_for_them():
    net = Net(
        lambda layers, x, e: layers["lin"](layers["conv"](x, e)), conv=pyg.SAGEConv(3, 2), lin=nn.Linear(4, 2)
    )
    with pytest.raises(ModelError, match=r"Net\.forward fails.*7x2 and 4x2") as refused:
        Model.from_pyg(net)
    assert "in_channels" not in str(refused.value)


class Between(nn.Module):
    """Rows of both ends, and of edges that have features, are read by one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.edge, self.node = nn.Linear(2 * 6 + 4, 8), nn.Linear(6 + 8, 3)

    def forward(self, x, edge_index, edge_attr=None):
        rows = torch.cat([x[edge_index[0]], x[edge_index[1]]], 1)
        rows = self.edge(rows if edge_attr is None else torch.cat([rows, edge_attr], 1))
        return self.node(torch.cat([x, x.new_zeros(len(x), 8).index_add(0, edge_index[1], rows)], 1))


def test_a_width_that_a_layer_tells_beside_others_is_not_certain():
    with pytest.raises(ModelError, match=r"forward fails.*16 and 14x3.*in_channels and edge_channels"):
        Model.from_pyg(Between())
    assert Model.from_pyg(Between(), in_channels=6, edge_channels=4).width("x") == 6


class Chebyshev(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = pyg.ChebConv(3, 4, 2), pyg.ChebConv(4, 2, 2)

    def forward(self, x, edge_index, lambda_max=None):
        h = self.first(x, edge_index, lambda_max=lambda_max).relu()
        return self.second(h, edge_index, lambda_max=lambda_max)


def test_a_layer_that_takes_a_number_from_the_whole_graph_names_the_number():
    torch.manual_seed(0)
    module = Chebyshev().eval()
    with pytest.raises(ModelError, match=r"first .*ChebConv takes lambda_max.*inputs={'lambda_max': 2\.0}"):
        Model.from_pyg(module)
    model = Model.from_pyg(module, inputs={"lambda_max": 2.0})
    got = Engine(Graph.from_edges(SOURCE, TARGET, x=X.numpy()), model).predict(np.arange(5))
    np.testing.assert_allclose(got, module(X, EDGE_INDEX).detach(), rtol=1e-4, atol=1e-5)
    with pytest.raises(ModelError, match=r"call the layer with lambda_max=2\.0"):
        Model.from_pyg(Net(lambda layers, x, e: layers["conv"](x, e), conv=pyg.ChebConv(3, 2, 2)))


def shifted(layers, x, edge_index):
    logits = layers["lin"](x)[edge_index[0]]
    return scatter((logits - logits.max()).exp() * x[edge_index[0]], edge_index[1], 0, x.size(0))


def test_what_is_reduced_over_all_edges_is_not_told_of_norms_of_nodes():
    with pytest.raises(ModelError, match=r"reduced to one.*edges of each node by themselves") as refused:
        Model.from_pyg(Net(shifted, lin=nn.Linear(3, 1)))
    assert "LayerNorm" not in str(refused.value)


class ByKind(nn.Module):
    """Edges without loops, of one kind, found by their numbers or by a condition."""

    def __init__(self, numbers: bool) -> None:
        super().__init__()
        self.conv, self.numbers = pyg.SAGEConv(3, 2), numbers

    def forward(self, x, edge_index, edge_type):
        edge_index, edge_type = remove_self_loops(edge_index, edge_type)
        kept = edge_type == 1
        return self.conv(x, edge_index[:, kept.nonzero().view(-1) if self.numbers else kept])


def test_edges_are_filtered_by_a_condition_or_by_the_places_where_it_holds():
    relations = [("node", "first", "node"), ("node", "second", "node")]
    by_places, by_condition = (
        Model.from_pyg(ByKind(numbers=numbers), relations=relations) for numbers in (True, False)
    )
    assert [one.op for one in by_places.steps] == [one.op for one in by_condition.steps]
