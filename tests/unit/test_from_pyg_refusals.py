"""What cannot be imported is refused, with its place and what to do; the module stays as it was."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.utils import add_self_loops

from livegnn.errors import InputError, ModelError
from livegnn.model import Model

# PyG generates a class's code from its first instance, so the first must be an ordinary one: after one with
# an aggregation that cannot be fused no other SAGEConv of this process takes sparse matrices.
pyg.SAGEConv(3, 4)


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
    "ARMAConv": (
        pyg.ARMAConv(4, 4),
        "the operation 'unsqueeze' in its forward.*write the layer as a livegnn.model.Convolution",
    ),
    "BatchNorm1d": (nn.BatchNorm1d(4, track_running_stats=False), "track_running_stats=True"),
    "BatchNorm": (pyg.BatchNorm(4, track_running_stats=False), "track_running_stats=True"),
    "LayerNorm": (pyg.LayerNorm(4), "mode='graph' normalises over all nodes at once.*mode='node'"),
    "GraphNorm": (pyg.GraphNorm(4), "is not supported"),
    "PairNorm": (pyg.PairNorm(), "is not supported"),
    "Softplus": (nn.Softplus(), "is not supported: build that part of the model from steps"),
    "Softmax": (nn.Softmax(dim=0), "dim=0: other dims couple all nodes"),
    "PReLU": (nn.PReLU(4), "one slope for all channels, got 4"),
    "GRU": (nn.GRU(4, 4), "is not supported"),
    "JumpingKnowledge": (pyg.JumpingKnowledge("lstm", 4, 1), "mode must be 'cat' or 'max', got 'lstm'"),
}


@pytest.mark.parametrize("kind", LAYERS)
def test_a_layer_that_cannot_be_imported_is_named_with_its_place(kind):
    layer, message = LAYERS[kind]
    after = use("here")
    if kind == "ARMAConv":
        after = lambda net, h, edge_index: net.layers["here"](h, edge_index)  # noqa: E731
    if kind == "JumpingKnowledge":
        after = lambda net, h, edge_index: net.layers["here"]([h])  # noqa: E731
    with pytest.raises(ModelError, match=rf"{kind} at 'layers\.here' .*{message}"):
        Model.from_pyg(Net(after, here=layer))


@pytest.mark.parametrize(
    ("after", "message"),
    [
        (lambda net, h, e: h - h.mean(dim=0), "operation 'mean' in the module's forward is not supported"),
        (lambda net, h, e: torch.exp(h), "operation 'exp'"),
        (lambda net, h, e: h[:, :2], "operation 'getitem'"),
        (lambda net, h, e: pyg.global_mean_pool(h, None), "operation 'dim'"),
        (lambda net, h, e: h / h, "'truediv'.*cannot divide by a tensor with one row per node"),
        (lambda net, h, e: h + net.bias, r"'bias' must hold one number or one per channel.*\(10, 4\)"),
        (lambda net, h, e: torch.cat([h, h]), "'cat'.*dim=0: other dims couple all nodes"),
        (lambda net, h, e: F.dropout(h, 0.5), "'dropout'.*training=self.training"),
        (lambda net, h, e: F.normalize(h, p=1), "'normalize'.*p must be 2, got 1"),
        (lambda net, h, e: F.softmax(h, dim=-1, dtype=torch.float64), "must be called without dtype"),
        (lambda net, h, e: torch.max(h, 1), "'max'.*must be applied to a tensor with one row per node"),
        (lambda net, h, e: torch.max(h, dim=1), "'max'.*cannot be imported"),
        (lambda net, h, e: (h.clamp_(0), h)[1], "operation 'clamp_'"),
        (lambda net, h, e: h @ h.t(), "operation 't'"),
        (lambda net, h, e: h.relu() if h.sum() > 0 else h, "Net cannot be traced"),
        (lambda net, h, e: (h, h), "must return one tensor with a row per node, got tuple"),
        (lambda net, h, e: e, "must return one tensor with a row per node, got its edges"),
        (
            lambda net, h, e: h * 2 if isinstance(h, torch.Tensor) else h,
            "differs from Net by .* on a small graph.*such as a type test",
        ),
    ],
)
def test_an_operation_that_cannot_be_imported_is_named(after, message):
    with pytest.raises(ModelError, match=message):
        Model.from_pyg(Net(after))


def test_the_place_of_an_operation_in_a_submodule_is_named():
    class Block(nn.Module):
        def forward(self, x):
            return torch.exp(x)

    with pytest.raises(ModelError, match=r"operation 'exp' in the forward of 'layers\.block'"):
        Model.from_pyg(Net(use("block"), block=Block()))


class OwnConv(pyg.GCNConv):
    """A subclass may compute something else."""

    def message(self, x_j, edge_weight):
        return x_j.cumsum(dim=-1)


@pytest.mark.parametrize(
    ("conv", "message"),
    [
        (OwnConv(3, 4), "OwnConv at 'conv' cannot be imported: the operation 'cumsum' in its message"),
        (
            pyg.SAGEConv(3, 4, aggr="lstm"),
            "aggr must be one of 'add', 'sum', 'mean', 'max', 'min'; got 'lstm'",
        ),
        (pyg.SAGEConv(3, 4, aggr=["mean", "max"]), "aggr must be one of"),
        (pyg.SAGEConv(3, 4, aggr="softmax"), "aggr must be one of"),
        (pyg.GCNConv(3, 4, aggr="mean"), "aggr='mean' cannot be combined with normalize=True"),
        (pyg.GraphConv(3, 4, flow="target_to_source"), "flow must be 'source_to_target'"),
        (pyg.SAGEConv(-1, 4), "the parameter 'conv.lin_l.weight' has no shape.*run the module once"),
        (pyg.GINConv(nn.Softplus()), "Softplus at 'conv.nn' is not supported"),
        (
            pyg.GINConv(nn.Sequential(nn.Linear(3, 4), nn.Hardtanh())),
            r"Hardtanh at 'conv\.nn\.1' is not supported",
        ),
    ],
)
def test_a_convolution_that_cannot_be_imported_is_named(conv, message):
    with pytest.raises(ModelError, match=message):
        Model.from_pyg(Net(lambda net, h, e: h, conv=conv))


def test_edges_must_be_those_of_the_graph():
    class Loops(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = pyg.GCNConv(3, 4)

        def forward(self, x, edge_index, edge_weight):
            return self.conv(x, edge_index.flip(0), edge_weight)

    class Weights(Loops):
        def forward(self, x, edge_index, edge_weight):
            return self.conv(x, edge_index, edge_weight * 2)

    class Computed(Loops):
        def forward(self, x, edge_index, edge_weight):
            edge_index, edge_weight = add_self_loops(edge_index, edge_weight)
            return self.conv(x, edge_index, edge_weight)

    with pytest.raises(ModelError, match="operation 'flip'"):
        Model.from_pyg(Loops())
    with pytest.raises(ModelError, match=r"operation 'mul'.*must combine rows with rows"):
        Model.from_pyg(Weights())
    with pytest.raises(ModelError, match=r"Computed cannot be traced.*Error in '"):
        Model.from_pyg(Computed())


def test_hooks_are_refused():
    net = Net(lambda net, h, e: h)
    net.conv.register_forward_hook(lambda module, given, out: out * 2)
    with pytest.raises(ModelError, match=r"SAGEConv at 'conv' has hooks.*remove them first"):
        Model.from_pyg(net)
    net = Net(lambda net, h, e: h)
    net.conv.register_message_forward_hook(lambda module, given, out: out * 2)
    with pytest.raises(ModelError, match="SAGEConv at 'conv' has hooks"):
        Model.from_pyg(net)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (
            nn.Linear(3, 4),
            r"Linear.forward must take x, edge_index and perhaps edge_weight and edge_attr, got \(input\)",
        ),
        (pyg.MFConv(3, 4), "MFConv cannot be imported: the operation '__eq__' in its forward"),
        (pyg.RGCNConv(3, 4, 2), "RGCNConv cannot be imported: must be given edge_type"),
        (pyg.Sequential("x, edge_index, batch", [(nn.ReLU(), "x -> x")]), "got .*batch"),
        (pyg.GCN(3, 4, 2, norm="LayerNorm"), r"LayerNorm at 'norms\.0' cannot be imported: mode='graph'"),
        (pyg.PNA(3, 4, 2, aggregators=["std"], scalers=["identity"], deg=torch.ones(4)), "PNAConv at 'convs"),
        ("GCN", "must be a torch.nn.Module, got str"),
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


def test_a_permission_is_given_in_so_many_words():
    with pytest.raises(InputError, match="allow_code must be True or False, got 'no'"):
        Model.from_pyg(Net(lambda net, h, e: h), allow_code="no")


def test_improved_needs_to_know_whether_there_are_weights():
    with pytest.raises(ModelError, match=r"GCNConv at 'convs\.0' .*edge_weight=True or edge_weight=False"):
        Model.from_pyg(pyg.GCN(3, 4, 2, improved=True))


def test_the_width_of_x_is_asked_for_when_nothing_tells():
    module = pyg.GINConv(nn.ReLU())
    with pytest.raises(ModelError, match="how wide x is: say so with in_channels"):
        Model.from_pyg(module)
    assert Model.from_pyg(module, in_channels=7).width("x") == 7


def test_weights_that_are_not_finite_are_refused():
    net = pyg.GCN(3, 4, 2)
    with torch.no_grad():
        net.convs[1].lin.weight[0, 0] = float("nan")
    with pytest.raises(ModelError, match=r"tensor 'convs\.1\.lin\.weight' must be finite"):
        Model.from_pyg(net)


@pytest.mark.parametrize("mod", [None, "additive", "scaled", "f-scaled"])
@pytest.mark.parametrize("name", ["q", "k", "weight", "bias", "w", "l1", "b1", "l2", "b2"])
def test_a_parameter_that_is_not_finite_is_named_where_it_counts(mod, name):
    """PyG leaves `l2` as the memory was; tensors of a model are made of several parameters."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = pyg.RGATConv(4, 4, num_relations=2, mod=mod)

        def forward(self, x, edge_index, edge_type):
            return self.layer(x, edge_index, edge_type)

    net = Net()
    relations = [("node", "a", "node"), ("node", "b", "node")]
    with torch.no_grad():
        net.layer.l2.fill_(0.25)
        net.layer.get_parameter(name).view(-1)[0] = float("nan")
    counts = {"q", "k", "weight", "bias"}
    counts |= {"w"} if mod == "additive" else {"l1", "b1", "l2", "b2"} if mod == "scaled" else set()
    if name in counts:
        with pytest.raises(ModelError, match=rf"must be finite, got NaN.* that are not: 'layer\.{name}'$"):
            Model.from_pyg(net, relations=relations)
    else:
        assert Model.from_pyg(net, relations=relations).width("x") == 4


def test_importing_leaves_the_module_as_it_was():
    module = pyg.GIN(3, 4, 2, norm="BatchNorm", dropout=0.5).double().train()
    module.convs[0].eval()
    before = copy.deepcopy(module.state_dict())
    flags = [part.training for part in module.modules()]
    Model.from_pyg(module)
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
