"""What is refused of convolutions with attention, of those with features of edges, and of their modules."""

import copy

import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg

from livegnn.errors import ModelError
from livegnn.model import Model
from livegnn.model.adapters.attention import gat_conv
from livegnn.model.adapters.tape import Edges, Rows, Tape


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
        (pyg.GATConv(3, 4, aggr="mean"), None, "aggr must be 'add' with attention, got 'mean'"),
        (pyg.GATv2Conv(3, 4, aggr="max"), None, "aggr must be 'add' with attention, got 'max'"),
        (pyg.TransformerConv(3, 4, flow="target_to_source"), without, "flow must be 'source_to_target'"),
        (
            pyg.GATConv(3, 4, edge_dim=2, fill_value="mul"),
            None,
            "fill_value must be a number or one of 'add'",
        ),
        (
            pyg.GATConv(3, 4),
            lambda conv, x, e, a: conv(x, e, return_attention_weights=True),
            "must be called without return_attention_weights, got True",
        ),
        (pyg.GATConv(3, 4), lambda conv, x, e, a: conv(x, e, size=(2, 2)), "must be called without size"),
        (
            pyg.GATConv(3, 4),
            lambda conv, x, e, a: conv(a, e),
            "one row per node, got one with a row per edge",
        ),
        (
            pyg.GCNConv(3, 4),
            lambda conv, x, e, a: conv(a, e),
            "one row per node, got one with a row per edge",
        ),
        (pyg.SAGEConv(3, 4), lambda conv, x, e, a: conv((a, x), e), "got one with a row per edge"),
        (
            pyg.GATConv(3, 4, edge_dim=3),
            lambda conv, x, e, a: conv(x, e, x),
            "made of it row by row, got Rows",
        ),
        (pyg.GATv2Conv(3, 4), None, "GATv2Conv at 'conv'.*without edge_attr, as its edge_dim is None"),
        (pyg.GATv2Conv(3, 4), lambda conv, x, e, a: conv((x, None), e), "rows of the targets too"),
        (pyg.TransformerConv(3, 4), None, "must be called without edge_attr, as its edge_dim is None"),
        (pyg.TransformerConv(3, 4, edge_dim=2), without, "must be called with edge_attr"),
        (pyg.ResGatedGraphConv(3, 4), None, "must be called without edge_attr, as its edge_dim is None"),
        (pyg.ResGatedGraphConv(3, 4, edge_dim=2), without, "must be called with edge_attr"),
        (
            pyg.ResGatedGraphConv(3, 4, act=torch.exp),
            without,
            "act must be an activation that can be imported",
        ),
        (
            pyg.ResGatedGraphConv(3, 4, act=nn.Softplus()),
            without,
            r"Softplus at 'conv\.act' is not supported",
        ),
        (pyg.ResGatedGraphConv(3, 4, aggr="median"), without, "aggr must be one of 'add'"),
        (pyg.GMMConv(3, 4, 2, 2), without, "GMMConv at 'conv'.*must be called with edge_attr"),
        (pyg.GINEConv(nn.Linear(3, 4)), without, "GINEConv at 'conv'.*must be called with edge_attr"),
        (pyg.AGNNConv(aggr="mean"), without, "aggr must be 'add' with attention"),
        (
            pyg.GATConv(3, 4),
            lambda conv, x, e, a: conv(x, e) + a,
            "'add'.*rows of nodes with rows of nodes, or rows of edges with rows of edges",
        ),
        (
            pyg.GATConv(3, 4),
            lambda conv, x, e, a: a,
            "must return .* a row per node, got one with a row per edge",
        ),
        (pyg.GATConv(3, 4), lambda conv, x, e, a: a.view(-1, 2), "'view'.*a column of the edge weights"),
        (
            pyg.GATConv(3, 4),
            lambda conv, x, e, a: a.unsqueeze(0),
            "'unsqueeze'.*a column of the edge weights",
        ),
    ],
)
def test_what_cannot_be_imported_is_named(conv, call, message):
    module = Net(conv) if call is None else Net(conv, call)
    with pytest.raises(ModelError, match=message):
        Model.from_pyg(module, edge_channels=3)


def test_self_loops_need_nodes_of_one_type():
    tape = Tape({}, False, lambda part, path, x: x)
    given = {"x": (Rows("x", "user"), Rows("y", "item")), "edge_index": Edges((("user", "buys", "item"),))}
    with pytest.raises(ModelError, match="'user' to 'item': train it with add_self_loops=False"):
        gat_conv(tape, pyg.GATConv((3, 3), 4), "conv", given)
    assert gat_conv(tape, pyg.GATConv((3, 3), 4, add_self_loops=False), "conv", given)


def test_edge_features_must_fit_the_forward():
    with pytest.raises(
        ModelError, match=r"GCNConv\.forward takes no edge_attr, so edge_channels must not be given"
    ):
        Model.from_pyg(pyg.GCNConv(3, 4), edge_channels=2)
    with pytest.raises(ModelError, match=r"Net\.forward needs edge_attr, so edge_channels must not be 0"):
        Model.from_pyg(Net(pyg.GATConv(3, 4)), edge_channels=0)
    with pytest.raises(ModelError, match=r"weight must have shape .*, 2\), .* for 2 input channels"):
        Model.from_pyg(pyg.GATConv(3, 4, edge_dim=5), edge_channels=2)


def test_the_width_of_edge_attr_is_asked_for_when_nothing_tells():
    class Scaled(Net):
        def forward(self, x, edge_index, edge_attr):
            return self.conv((x, None), edge_index, edge_attr * 2)

    module = Scaled(pyg.GINEConv(nn.Identity()))
    with pytest.raises(ModelError, match="how wide edge_attr is: say so with edge_channels"):
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
