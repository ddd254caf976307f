"""A call that fails is refused with what to say of its arguments, and saying so removes the refusal."""

import re

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.data import Data

from livegnn import Engine, Graph, Model, ModelError

SOURCE, TARGET = np.array([0, 1, 2, 3, 0, 4, 1, 2]), np.array([2, 2, 3, 0, 1, 3, 0, 2])
EDGE_INDEX = torch.from_numpy(np.stack([SOURCE, TARGET]))
X = torch.from_numpy(np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32))
OF_EDGES = torch.from_numpy(np.random.default_rng(2).standard_normal((8, 2)).astype(np.float32))
LONG = torch.from_numpy(np.random.default_rng(3).standard_normal((5, 3, 4)).astype(np.float32))
KINDS = torch.tensor([3, 1, 0, 1, 2, 2, 3, 0])


class OneArgument(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.SAGEConv(3, 2)

    def forward(self, data):
        x, edge_index = data
        return self.conv(x, edge_index)


class BothEnds(pyg.MessagePassing):
    def __init__(self) -> None:
        super().__init__(aggr="add")
        self.lin = nn.Linear(6, 2)

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x, size=(len(x[0]), len(x[1]))) + x[1][:, :2]

    def message(self, x_i, x_j):
        return self.lin(torch.cat([x_i, x_j], dim=1))


class Conditioned(nn.Module):
    """Features of edges and a condition of each node, which it can be made, but not called, without."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.scale = pyg.GATConv(3, 2, edge_dim=2, add_self_loops=False), nn.Linear(3, 2)

    def forward(self, x, edge_index, attributes=None, condition=None):
        if attributes.shape[0] != edge_index.shape[1] or condition.shape[0] != x.shape[0]:
            raise ValueError("rows of something else")
        return self.conv(x, edge_index, attributes) * self.scale(condition)


class OfKinds(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.kinds = pyg.GINEConv(nn.Linear(3, 2)), nn.Embedding(4, 3)

    def forward(self, x, edge_index, edge_attr):
        return self.conv(x, edge_index, self.kinds(edge_attr))


class Periods(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.periods = pyg.SAGEConv(3, 2), 4

    def forward(self, x, edge_index):
        return sum(self.conv(x[:, :, i], edge_index) for i in range(self.periods))


CASES = {
    "rows and edges in one argument": (
        OneArgument,
        r"inputs={'data': \['x', 'edge_index'\]}",
        {"data": ["x", "edge_index"]},
        ([X, EDGE_INDEX],),
    ),
    "sources and targets in one argument": (
        BothEnds,
        r"inputs={'x': \['x', 'x'\]}",
        {"x": ["x", "x"]},
        ([X, X], EDGE_INDEX),
    ),
    "what is left out": (
        Conditioned,
        r"inputs={'attributes': \('edge', 2\), 'condition': \('node', 3\)}",
        {"attributes": ("edge", 2), "condition": "x"},
        (X, EDGE_INDEX, OF_EDGES, X),
    ),
    "whole numbers": (
        OfKinds,
        r"inputs={'edge_attr': \('edge', int\)}",
        {"edge_attr": ("edge", int)},
        (X, EDGE_INDEX, KINDS),
    ),
    "rows with axes": (Periods, r"inputs={'x': \('node', 3, 4\)}", {"x": ("node", 3, 4)}, (LONG, EDGE_INDEX)),
}


@pytest.mark.parametrize("case", CASES)
def test_saying_what_a_refusal_says_removes_it(case):
    make, reason, inputs, arguments = CASES[case]
    torch.manual_seed(0)
    module = make().eval()
    with pytest.raises(ModelError, match=reason) as refused:
        Model.from_pyg(module)
    assert "in_channels" not in str(refused.value)
    rows = LONG if any(one is LONG for one in arguments) else X
    of_edges = next((one for one in arguments if one is OF_EDGES or one is KINDS), None)
    features = None if of_edges is None else of_edges.reshape(8, -1).numpy().astype(np.float32)
    graph = Graph.from_edges(SOURCE, TARGET, x=rows.reshape(5, -1).numpy(), edge_attr=features)
    got = Engine(graph, Model.from_pyg(module, inputs=inputs)).predict(np.arange(5))
    np.testing.assert_allclose(got, module(*arguments).detach(), rtol=1e-4, atol=1e-5)


class OfData(nn.Module):
    """PyG data under a name of its own, which another module reads."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()

    def forward(self, graph):
        return self.inner(graph)


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.lin = pyg.GINEConv(nn.Linear(3, 2)), nn.Linear(2, 3)

    def forward(self, given):
        return self.conv(given.x, given.edge_index, self.lin(given.edge_attr))


@pytest.mark.parametrize("with_data", [False, True])
def test_the_only_argument_may_be_data_whatever_its_name(with_data):
    torch.manual_seed(0)
    module, data = OfData().eval(), Data(x=X, edge_index=EDGE_INDEX, edge_attr=OF_EDGES)
    model = Model.from_pyg(module, data if with_data else None)
    graph = Graph.from_edges(SOURCE, TARGET, x=X.numpy(), edge_attr=OF_EDGES.numpy())
    got = Engine(graph, model).predict(np.arange(5))
    np.testing.assert_allclose(got, module(data).detach(), rtol=1e-4, atol=1e-5)
    assert Model.from_pyg(module, edge_channels=2).edge_inputs["edge_attr"].width == 2


def test_an_embedding_of_nodes_is_named():
    class Ranked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.conv = nn.Embedding(5, 3), pyg.LGConv(normalize=False)

        def forward(self, edge_index):
            return self.conv(self.embedding.weight, edge_index)

    with pytest.raises(ModelError, match=r"inputs={'embedding\.weight': 'node'}"):
        Model.from_pyg(Ranked())
    assert Model.from_pyg(Ranked(), inputs={"embedding.weight": "node"}).steps


def test_rows_of_one_of_several_types_are_named_by_it():
    class Types(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = pyg.GATConv((3, 4), 2, edge_dim=2, add_self_loops=False)

        def forward(self, x_dict, edge_index_dict, scores):
            pair = x_dict["item"], x_dict["user"]
            return self.conv(pair, edge_index_dict["item", "of", "user"], scores)

    types = (["user", "item"], [("user", "has", "item"), ("item", "of", "user")])
    with pytest.raises(ModelError, match=r"'scores' is rows of edges, whose types are.*'has'.*'of'"):
        Model.from_pyg(Types(), metadata=types, inputs={"scores": ("edge", 2)})
    said = {"scores": (("item", "of", "user"), 2)}
    model = Model.from_pyg(Types(), metadata=types, inputs=said, output_type="user")
    assert [one.edge_type for one in model.edge_inputs.values()] == [("item", "of", "user")]


@pytest.mark.parametrize("with_data", [False, True])
def test_a_parameter_with_a_row_for_each_edge_is_named(with_data):
    class OfItsEdges(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.of_edges = pyg.GCNConv(3, 2), nn.Parameter(torch.zeros(8))

        def forward(self, x, edge_index):
            return self.conv(x, edge_index, self.of_edges.exp())

    data = Data(x=X, edge_index=EDGE_INDEX) if with_data else None
    with pytest.raises(
        ModelError, match=r"of_edges has a row for each edge of a graph of 8 edges.*edge_weight"
    ):
        Model.from_pyg(OfItsEdges(), data)
    assert Model.from_pyg(OfItsEdges().conv, data).steps


def test_sources_and_targets_of_two_types_may_be_one_argument():
    torch.manual_seed(0)
    types = (["user", "item"], [("user", "has", "item")])
    said = {"x": [("user", "x"), ("item", "x")], "edge_index": ("user", "has", "item")}
    with pytest.raises(ModelError, match=re.escape(f"say inputs={said}")):
        Model.from_pyg(BothEnds(), metadata=types, in_channels=3)
    model = Model.from_pyg(BothEnds(), metadata=types, in_channels=3, inputs=said, output_type="item")
    assert sorted(model.inputs) == ["x:item", "x:user"]


def test_arguments_may_be_of_one_type_each():
    class Bipartite(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = pyg.SAGEConv((3, 4), 2)

        def forward(self, users, items, edge_index):
            return self.conv((users, items), edge_index)

    types = (["user", "item"], [("user", "has", "item")])
    items, more = {"items": ("item", 4)}, {"users": ("user", 3), "edge_index": ("user", "has", "item")}
    with pytest.raises(ModelError, match=re.escape(f"say inputs={more}")):
        Model.from_pyg(Bipartite(), metadata=types, inputs=items)
    model = Model.from_pyg(Bipartite(), metadata=types, inputs={**items, **more}, output_type="item")
    assert {one.width for one in model.inputs.values()} == {3, 4}


def test_data_of_whole_numbers_must_be_given():
    class OfTables(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.conv = nn.Embedding(4, 3), pyg.SAGEConv(3, 2)

        def forward(self, batched):
            return self.conv(self.table(batched.x), batched.edge_index)

    with pytest.raises(ModelError, match=r"if 'batched' is PyG data, give data") as refused:
        Model.from_pyg(OfTables())
    assert "in_channels" not in str(refused.value)
    assert Model.from_pyg(OfTables(), Data(x=KINDS[:5], edge_index=EDGE_INDEX)).steps
