"""What cannot be imported is refused, with its place and what to do; the module stays as it was."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric import nn as pyg

from livegnn.errors import ModelError
from livegnn.model import Model

# PyG generates a class's code from its first instance, so the first must be an ordinary one: after one with
# an aggregation that cannot be fused no other SAGEConv of this process takes sparse matrices.
pyg.SAGEConv(3, 4)

ALL_ROWS = r"every row of the graph is reduced to one.*LayerNorm\(mode='node'\), BatchNorm"


class Net(nn.Module):
    """A convolution, something, and a linear layer. after: what happens in between."""

    def __init__(self, after, conv=None, **layers) -> None:
        super().__init__()
        self.conv = conv or pyg.SAGEConv(3, 4)
        self.layers = nn.ModuleDict(layers)
        self.after = after
        self.bias = nn.Parameter(torch.zeros(10, 4))

    def forward(self, x, edge_index):
        return self.after(self, self.conv(x, edge_index), edge_index)


def use(name):
    """Applies the layer of that name."""
    return lambda net, h, edge_index: net.layers[name](h)


LAYERS = {
    "LayerNorm": (pyg.LayerNorm(4), rf"layers\.here .*{ALL_ROWS}"),
    "GraphNorm": (pyg.GraphNorm(4), rf"layers\.here .*{ALL_ROWS}"),
    "PairNorm": (pyg.PairNorm(), rf"layers\.here .*{ALL_ROWS}"),
    "Softmax": (nn.Softmax(dim=0), rf"layers\.here .*{ALL_ROWS}"),
    "BatchNorm": (pyg.BatchNorm(4, track_running_stats=False), "every row of the graph is reduced to one"),
    "GRU": (nn.GRU(4, 4), "a size decides what it does"),
}


@pytest.mark.parametrize("kind", LAYERS)
def test_a_layer_that_couples_all_nodes_is_named_with_its_place(kind):
    layer, message = LAYERS[kind]
    with pytest.raises(ModelError, match=rf"(?s)Net\.forward.*{message}"):
        Model.from_pyg(Net(use("here"), here=layer))


@pytest.mark.parametrize(
    ("after", "message"),
    [
        (lambda net, h, e: h - h.mean(dim=0), ALL_ROWS),
        (lambda net, h, e: pyg.global_mean_pool(h, None), "returns no row for each node"),
        (lambda net, h, e: h + net.bias, r"The size of tensor a .* must match the size of tensor b \(10\)"),
        (lambda net, h, e: torch.cat([h, h]), "rows of several tensors behind each other: return them apart"),
        (lambda net, h, e: F.dropout(h, 0.5), "random numbers are drawn"),
        (lambda net, h, e: h @ h.t(), "every node meets every node.*let them meet along edges"),
        (lambda net, h, e: h.relu() if h.sum() > 0 else h, r"cannot be traced.*choose with torch\.where"),
        (lambda net, h, e: e, "returns no rows of nodes or edges, or the ends of edges alone"),
        (
            lambda net, h, e: h * 2 if type(h) is torch.Tensor else h,
            "says .* where the imported model says .*a test of types",
        ),
        (lambda net, h, e: h * 2 if torch.compiler.is_exporting() else h, "where the imported model says"),
        (lambda net, h, e: h * 2 if len(h) == 7 else h, "where the imported model says|a size decides"),
    ],
)
def test_what_cannot_be_imported_is_said(after, message):
    with pytest.raises(ModelError, match=rf"(?s){message}"):
        Model.from_pyg(Net(after), in_channels=3)


class OwnConv(pyg.GCNConv):
    """A subclass may compute something else."""

    def message(self, x_j, edge_weight):
        return x_j.cumsum(dim=0)


@pytest.mark.parametrize(
    ("conv", "message"),
    [
        (OwnConv(3, 4), "a running sum depends on the order of the rows"),
        (pyg.SAGEConv(3, 4, aggr="lstm"), "depends on the order of the edges"),
        (
            pyg.SAGEConv(-1, 4),
            r"conv\.lin_l\.weight has no shape yet: .* as in module\(data\.x, data\.edge_index\)",
        ),
    ],
)
def test_a_convolution_that_cannot_be_imported(conv, message):
    with pytest.raises(ModelError, match=message):
        Model.from_pyg(Net(lambda net, h, e: h, conv=conv))


class Raises(nn.Module):
    def __init__(self, error) -> None:
        super().__init__()
        self.conv, self.error = pyg.SAGEConv(3, 4), error

    def forward(self, x, edge_index):
        if self.error is None:
            return self.forward(x, edge_index)  # for ever
        raise self.error


@pytest.mark.parametrize(
    "error", [RuntimeError("broken"), StopIteration(), AssertionError(), KeyError("a"), None]
)
@pytest.mark.parametrize("in_channels", [None, 3])
def test_whatever_a_module_raises_becomes_a_model_error_with_the_line(error, in_channels):
    with pytest.raises(
        ModelError, match=r"Raises\.forward.*test_from_pyg_refusals\.py:\d+|py:\d+, .*Raises\.forward"
    ) as found:
        Model.from_pyg(Raises(error), in_channels=in_channels)
    assert isinstance(found.value.__cause__, Exception)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (pyg.RGCNConv(3, 4, 2), r"RGCNConv\.forward .*say with relations=|fails"),
        (
            pyg.Sequential("x, edge_index, batch", [(nn.ReLU(), "x -> x")]),
            "takes 'batch', whose meaning is unknown",
        ),
        (pyg.GCN(3, 4, 2, norm="LayerNorm"), rf"norms\.0 .*{ALL_ROWS}"),
        ("GCN", r"must be a torch\.nn\.Module, got str"),
    ],
)
def test_a_module_that_cannot_be_imported_is_refused(module, message):
    with pytest.raises(ModelError, match=message):
        Model.from_pyg(module)


def test_edge_weights_must_fit_the_forward():
    with pytest.raises(ModelError, match=r"Net\.forward takes no edge_weight"):
        Model.from_pyg(Net(lambda net, h, e: h), edge_weight=True)
    needs = pyg.Sequential(
        "x, edge_index, edge_weight", [(pyg.GCNConv(3, 4), "x, edge_index, edge_weight -> x")]
    )
    with pytest.raises(ModelError, match="needs edge_weight, so edge_weight must not be False"):
        Model.from_pyg(needs, edge_weight=False)


def test_the_width_of_x_is_asked_for_when_nothing_tells():
    module = pyg.GINConv(nn.ReLU())
    with pytest.raises(ModelError, match=r"width of x of 'node': give in_channels=\.\.\."):
        Model.from_pyg(module)
    assert Model.from_pyg(module, in_channels=7).width("x") == 7


@pytest.mark.parametrize("name", ["q", "k", "weight", "bias"])
def test_a_parameter_that_is_not_finite_is_named(name):
    """Tensors of a model are made of several parameters."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = pyg.RGATConv(4, 4, num_relations=2, mod=None)

        def forward(self, x, edge_index, edge_type):
            return self.layer(x, edge_index, edge_type)

    net = Net()
    relations = [("node", "a", "node"), ("node", "b", "node")]
    with torch.no_grad():
        net.layer.l2.fill_(0.25)
        net.layer.get_parameter(name).view(-1)[0] = float("nan")
    with pytest.raises(ModelError, match=rf"must be finite, got NaN.* are not: 'layer\.{name}'$"):
        Model.from_pyg(net, relations=relations)


def test_a_parameter_that_does_not_count_may_be_what_it_is():
    net = Net(lambda net, h, e: h)
    with torch.no_grad():
        net.bias.fill_(float("nan"))
    assert Model.from_pyg(net).width("x") == 3


def test_importing_leaves_the_module_as_it_was():
    module = pyg.GIN(3, 4, 2, norm="BatchNorm", dropout=0.5).double().train()
    module.convs[0].eval()
    before = copy.deepcopy(module.state_dict())
    flags = [part.training for part in module.modules()]
    length = len
    Model.from_pyg(module)
    assert len is length
    assert [part.training for part in module.modules()] == flags
    after = module.state_dict()
    assert all(
        torch.equal(after[name], before[name]) and after[name].dtype == before[name].dtype for name in before
    )
    assert all(parameter.requires_grad for parameter in module.parameters())


def test_cached_convolutions_keep_their_cache():
    module = pyg.GCN(3, 4, 2, cached=True).eval()
    edge_index = torch.tensor([[0, 1], [1, 2]])
    expected = module(torch.ones(3, 3), edge_index)
    Model.from_pyg(module)
    assert torch.equal(module(torch.ones(3, 3), edge_index), expected)


def test_names_of_node_and_edge_types():
    model = Model.from_pyg(pyg.GCN(3, 4, 2), node_type="member", edge_type=("member", "trusts", "member"))
    assert model.node_type(model.output) == "member"
    assert model.edge_types == (("member", "trusts", "member"),)


def test_layers_are_what_the_convolutions_read():
    model = Model.from_pyg(pyg.GCN(3, 4, 3, 2, act="relu", jk="cat"))
    assert [model.width(layer) for layer in model.layers] == [3, 4, 4, 2]
    writers = {step.output: step.op for step in model.steps}
    assert [writers.get(layer) for layer in model.layers] == [None, "relu", "relu", "linear"]


def test_of_several_results_the_first_is_the_prediction():
    class Two(Net):
        def forward(self, x, edge_index):
            h = self.conv(x, edge_index)
            return h, h.relu().sum(-1)

    assert Model.from_pyg(Two(None)).width(Model.from_pyg(Two(None)).output) == 4
