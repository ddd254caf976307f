"""What is refused of convolutions with attention, of those with features of edges, and of their modules."""

import copy

import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg

from livegnn.errors import ModelError
from livegnn.model import Model


class Net(nn.Module):
    """A convolution that is called in some way."""

    def __init__(
        self, conv, call=lambda conv, x, edge_index, edge_attr: conv(x, edge_index, edge_attr)
    ) -> None:
        super().__init__()
        self.conv = conv
        self.call = call

    def forward(self, x, edge_index, edge_attr):
        return self.call(self.conv, x, edge_index, edge_attr)


def without(conv, x, edge_index, edge_attr):
    return conv(x, edge_index)


@pytest.mark.parametrize(
    ("conv", "call", "message"),
    [
        (pyg.GATConv(3, 4), lambda conv, x, e, a: conv(x, e, size=(2, 2)), "tensor with size"),
        (pyg.GATConv(3, 4), lambda conv, x, e, a: conv(a, e), "rows are gathered by numbers of node nodes"),
        (pyg.SAGEConv(3, 4), lambda conv, x, e, a: conv((a, x), e), "rows are gathered by numbers of node"),
        (pyg.GATConv(3, 4, edge_dim=3), lambda conv, x, e, a: conv(x, e, x), "shape of the mask"),
        (pyg.GATv2Conv(3, 4), None, "AssertionError"),
        (pyg.TransformerConv(3, 4, edge_dim=2), without, "AssertionError"),
        (pyg.ResGatedGraphConv(3, 4, aggr="Median"), without, "Median"),
        (pyg.GMMConv(3, 4, 2, 2), without, "'NoneType' object has no attribute 'size'"),
        (pyg.GATConv(3, 4), lambda conv, x, e, a: conv(x, e) + a[:, :1], "must match the size of tensor b"),
        (pyg.GATConv(3, 4), lambda conv, x, e, a: a, "rows of edges that read no rows of nodes"),
        (
            pyg.GATConv(3, 4),
            lambda conv, x, e, a: a.unsqueeze(0),
            "rows of edges that read no rows of nodes",
        ),
    ],
)
def test_what_cannot_be_imported_is_said_with_the_line(conv, call, message):
    module = Net(conv) if call is None else Net(conv, call)
    with pytest.raises(ModelError, match=rf"(?s)Net\.forward.*{message}"):
        Model.from_pyg(module, in_channels=3, edge_channels=3)


def test_an_attention_that_the_module_returns_beside_its_rows_is_let_be():
    net = Net(pyg.GATConv(3, 4), lambda conv, x, e, a: conv(x, e, return_attention_weights=True)[0])
    assert not Model.from_pyg(net, edge_channels=3).edge_inputs


def test_self_loops_need_nodes_of_one_type():
    class Buys(nn.Module):
        def __init__(self, loops) -> None:
            super().__init__()
            self.conv = pyg.GATConv((3, 3), 4, add_self_loops=loops)

        def forward(self, x_dict, edge_index_dict):
            return self.conv((x_dict["user"], x_dict["item"]), edge_index_dict["user", "buys", "item"])

    metadata = (["user", "item"], [("user", "buys", "item")])
    with pytest.raises(ModelError, match="Buys"):
        Model.from_pyg(Buys(True), metadata=metadata)
    assert Model.from_pyg(Buys(False), metadata=metadata).edge_types == (("user", "buys", "item"),)


def test_edge_features_must_fit_the_forward():
    with pytest.raises(
        ModelError, match=r"GCNConv\.forward takes no edge_attr, so edge_channels must not be 2"
    ):
        Model.from_pyg(pyg.GCNConv(3, 4), edge_channels=2)
    with pytest.raises(ModelError, match=r"Net\.forward needs edge_attr, so edge_channels must not be 0"):
        Model.from_pyg(Net(pyg.GATConv(3, 4)), edge_channels=0)
    with pytest.raises(ModelError, match=r"shapes cannot be multiplied \(.*x2 and 5x4\)"):
        Model.from_pyg(pyg.GATConv(3, 4, edge_dim=5), edge_channels=2)


def test_the_width_of_edge_attr_is_asked_for_when_nothing_tells():
    class Scaled(Net):
        def forward(self, x, edge_index, edge_attr):
            return self.conv((x, None), edge_index, edge_attr * 2)

    module = Scaled(pyg.GINEConv(nn.Identity()))
    with pytest.raises(ModelError, match="say how wide its inputs are with in_channels and edge_channels"):
        Model.from_pyg(module, in_channels=3)
    assert Model.from_pyg(module, in_channels=3, edge_channels=3).edge_inputs["edge_attr"].width == 3


def test_a_module_is_called_with_features_only_if_a_layer_was_made_for_them():
    assert not Model.from_pyg(pyg.GATv2Conv(3, 4)).edge_inputs
    assert not Model.from_pyg(pyg.GATConv(3, 4, edge_dim=2), edge_channels=0).edge_inputs
    model = Model.from_pyg(pyg.GATConv(3, 4, edge_dim=2), edge_type=("node", "pays", "node"))
    assert model.edge_inputs["edge_attr"].edge_type == ("node", "pays", "node")
    assert model.edge_inputs["edge_attr"].width == 2


def test_importing_leaves_the_module_as_it_was():
    module = pyg.GAT(3, 4, 2, heads=2, edge_dim=2).train()
    before = copy.deepcopy(module.state_dict())
    Model.from_pyg(module)
    assert module.training
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_attention_is_saved_and_loaded(tmp_path):
    model = Model.from_pyg(pyg.GAT(3, 4, 2, heads=2, edge_dim=2))
    model.save(tmp_path / "gat.lgnn")
    assert Model.load(tmp_path / "gat.lgnn").digest == model.digest
