"""What a module asks PyG data for, and finds not there, is left out only if data from the user lack it."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.data import Data, HeteroData

from gate import share
from livegnn import Engine, Graph, Model, ModelError

NODES, WIDTH = 5, 3
RANDOM = torch.Generator().manual_seed(0)
X, W = torch.rand(NODES, WIDTH, generator=RANDOM), torch.rand(NODES, generator=RANDOM)
EDGE_INDEX = torch.tensor([[0, 1, 2, 3, 0, 4], [2, 2, 3, 0, 1, 3]])


def by_key(data):
    there = "w" in data
    return data["w"] if there else None


def by_error(data):
    try:
        return data.w
    except AttributeError:
        return None


ASKS = {
    "get": lambda data: data.get("w"),
    "in": by_key,
    "in keys": lambda data: data.w if "w" in data.keys() else None,  # noqa: SIM118  as PyG's users write it
    "getattr": lambda data: getattr(data, "w", None),
    "hasattr": lambda data: data.w if hasattr(data, "w") else None,
    "tried": by_error,
    "copied": lambda data: copy.copy(data).get("w"),
    "cloned": lambda data: data.clone().get("w"),
    "in a dict": lambda data: data.to_dict().get("w"),
}


class OfData(nn.Module):
    def __init__(self, asks) -> None:
        super().__init__()
        self.conv, self.asks = pyg.SAGEConv(WIDTH, 4), asks

    def forward(self, data):
        w = self.asks(data)
        return self.conv(data.x if w is None else data.x * w[:, None], data.edge_index)


@pytest.mark.parametrize("asks", share(ASKS.values(), 0), ids=share(ASKS, 0))
def test_a_column_that_is_asked_for_is_not_left_out_in_silence(asks):
    """Doing what the refusal says removes it: data have the column, or have not."""
    torch.manual_seed(0)
    net = OfData(asks).eval()
    says = r"OfData.forward looks for 'w' in data, .*where rows of nodes make another prediction: give data"
    with pytest.raises(ModelError, match=says):
        Model.from_pyg(net)
    for more, held in (({}, X), ({"w": W}, torch.cat([X, W[:, None]], dim=1))):
        data = Data(x=X, edge_index=EDGE_INDEX, **more)
        engine = Engine(Graph.from_edges(*EDGE_INDEX.numpy(), x=held.numpy()), Model.from_pyg(net, data))
        expected = net(data).detach().numpy()
        np.testing.assert_allclose(engine.predict(np.arange(NODES)), expected, rtol=1e-4, atol=1e-5)


class AmongNames(OfData):
    def forward(self, data):
        for name in data.keys():  # noqa: SIM118  of PyG data, `in data` gives pairs
            if name == "w":
                return self.conv(data.x * data[name][:, None], data.edge_index)
        return self.conv(data.x, data.edge_index)


class AmongColumns(OfData):
    def forward(self, data):
        w = next((rows for name, rows in data if name == "w"), torch.ones(1))
        return self.conv(data.x * w[:, None], data.edge_index)


@pytest.mark.parametrize("kind", [AmongNames, AmongColumns])
def test_a_column_that_is_looked_for_among_all_is_not_left_out_in_silence(kind):
    net = kind(None).eval()
    with pytest.raises(ModelError, match=r"looks for 'w' in data, .*rows of nodes make another prediction"):
        Model.from_pyg(net)
    assert Model.from_pyg(net, Data(x=X, edge_index=EDGE_INDEX)).inputs["x"].width == WIDTH


class TwoLists(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.SAGEConv(WIDTH, 4)

    def forward(self, data):
        rows = self.conv(data.x, data.edge_index)
        return rows + self.conv(data.x, data.follows) if "follows" in data else rows


def test_a_second_list_of_edges_is_not_left_out_in_silence():
    net = TwoLists().eval()
    with pytest.raises(
        ModelError, match=r"looks for 'follows' in data, .*where edges make another prediction"
    ):
        Model.from_pyg(net)
    assert Model.from_pyg(net, Data(x=X, edge_index=EDGE_INDEX)).inputs["x"].width == WIDTH


def one_after_the_other(data):
    return data.a * data.b if "a" in data and "b" in data else None


def both_at_once(data):
    a, b = data.get("a"), data.get("b")
    return None if a is None or b is None else a + b


@pytest.mark.parametrize("asks", [one_after_the_other, both_at_once])
def test_columns_that_are_read_only_together_are_not_left_out_in_silence(asks):
    torch.manual_seed(0)
    net = OfData(asks).eval()
    with pytest.raises(
        ModelError, match=r"looks for 'a' and 'b' in data, .*make another prediction: give data"
    ):
        Model.from_pyg(net)
    for more in ({}, {"a": W}, {"a": W, "b": W + 1}):
        data = Data(x=X, edge_index=EDGE_INDEX, **more)
        held = torch.cat([X, *(one[:, None] for one in more.values())], dim=1)
        engine = Engine(Graph.from_edges(*EDGE_INDEX.numpy(), x=held.numpy()), Model.from_pyg(net, data))
        np.testing.assert_allclose(
            engine.predict(np.arange(NODES)), net(data).detach().numpy(), rtol=1e-4, atol=1e-5
        )


def one_name_after_the_other(data):
    number = 0
    while f"w{number}" in data:
        number += 1


def test_a_module_that_asks_without_end_is_imported():
    net = OfData(one_name_after_the_other).eval()
    assert Model.from_pyg(net).inputs["x"].width == WIDTH


def test_a_schema_does_not_say_what_data_have():
    graph = Graph.from_edges(*EDGE_INDEX.numpy(), x=X.numpy())
    with pytest.raises(ModelError, match="looks for 'w' in data"):
        Model.from_pyg(OfData(by_key), graph)


class Weighed(nn.Module):
    """Its edges' features are weights, so that no layer tells of them."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.conv, self.name = pyg.GCNConv(WIDTH, 4), name

    def forward(self, data):
        return self.conv(data.x, data.edge_index, getattr(data, self.name, None))


@pytest.mark.parametrize("name", ["edge_attr", "amount"])
def test_rows_of_edges_that_are_asked_for_are_not_left_out_in_silence(name):
    with pytest.raises(
        ModelError, match=rf"looks for '{name}' in data.*rows of edges make another prediction"
    ):
        Model.from_pyg(Weighed(name))
    assert not Model.from_pyg(Weighed(name), Data(x=X, edge_index=EDGE_INDEX)).edge_inputs


def test_who_says_that_there_are_no_features_or_weights_of_edges_is_believed():
    assert not Model.from_pyg(Weighed("edge_attr"), edge_channels=0).edge_inputs
    assert Model.from_pyg(Weighed("edge_weight"), edge_weight=False).inputs


class Beside(nn.Module):
    """What may be left out stands beside data."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.GCNConv(WIDTH, 4)

    def forward(self, data, amount=None, mask=None):
        x = data.x if mask is None else data.x.masked_fill(mask[:, None], 0.0)
        return self.conv(x, data.edge_index, amount)


def test_what_stands_beside_data_is_not_left_out_in_silence():
    """The refusal of the one says how to leave it out, and then the other is refused."""
    with pytest.raises(ModelError, match=r"called without 'mask', where rows of nodes"):
        Model.from_pyg(Beside())
    with pytest.raises(ModelError, match=r"called without 'amount', where rows of edges"):
        Model.from_pyg(Beside(), inputs={"mask": None})
    assert Model.from_pyg(Beside(), inputs={"amount": None, "mask": ("node", bool)}).width("x") == WIDTH + 1


class Harmless(nn.Module):
    """Asks for much that changes nothing, or that is not there as a rule."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.SAGEConv(WIDTH, 4)

    def forward(self, data):
        assert data.num_nodes == len(data.x)
        x = data.x if data.batch is None else data.x + 1
        h = self.conv(x, data.edge_index)
        if "train_mask" in data:
            h = h[data.train_mask]
        return h if data.y is None else h - 0 * data.y.sum()


def test_what_makes_no_other_prediction_may_be_lacking():
    assert Model.from_pyg(Harmless()).width("x") == WIDTH


class OfTypes(nn.Module):
    def __init__(self, asks) -> None:
        super().__init__()
        convs = {("a", "to", "b"): pyg.SAGEConv((3, 2), 4), ("b", "of", "a"): pyg.SAGEConv((2, 3), 4)}
        self.conv, self.asks = pyg.HeteroConv(convs), asks

    def forward(self, data):
        x_dict, w = dict(data.x_dict), self.asks(data)
        if w is not None:
            x_dict["b"] = x_dict["b"] * w[:, None]
        return self.conv(x_dict, data.edge_index_dict)


@pytest.mark.parametrize(
    "asks",
    [lambda data: data["b"].get("w"), lambda data: data["b"].w if "w" in data else None],
    ids=["get", "in"],
)
def test_a_column_of_one_type_is_not_left_out_in_silence(asks):
    settings = {"metadata": (["a", "b"], [("a", "to", "b"), ("b", "of", "a")]), "output_type": "a"}
    with pytest.raises(ModelError, match=r"looks for 'w' in data\['b'\].*rows of nodes"):
        Model.from_pyg(OfTypes(asks), **settings)
    data = HeteroData()
    data["a"].x, data["b"].x = torch.rand(4, 3), torch.rand(NODES, 2)
    data["a", "to", "b"].edge_index = data["b", "of", "a"].edge_index = torch.tensor([[0, 1], [1, 2]])
    assert Model.from_pyg(OfTypes(asks), data, output_type="a").inputs
