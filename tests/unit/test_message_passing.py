"""Convolutions of the user's own, imported by running them: module, oracle and engine agree."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import torch_geometric
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import (
    add_remaining_self_loops,
    add_self_loops,
    degree,
    remove_self_loops,
    scatter,
    softmax,
)

from gate import draws
from livegnn import Engine, Events, Graph, Model, ModelError
from livegnn.graph import EdgeSchema, Schema
from livegnn.model import Propagate
from livegnn.oracle import reference
from mirror import assert_exact

E = ("node", "to", "node")
WIDTH, FEATURES, OUT, HEADS = 5, 3, 4, 2


class EdgeRelu(MessagePassing):
    def __init__(self):
        super().__init__(aggr="add")
        self.lin, self.lin_edge = nn.Linear(WIDTH, OUT), nn.Linear(FEATURES, OUT)

    def forward(self, x, edge_index, edge_attr):
        return self.propagate(edge_index, x=x, edge_attr=edge_attr)

    def message(self, x_j, edge_attr):
        return F.relu(self.lin(x_j) + self.lin_edge(edge_attr))


class MeanGate(MessagePassing):
    def __init__(self, aggr="mean"):
        super().__init__(aggr=aggr)
        self.gate = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_i, x_j):
        return torch.sigmoid(self.gate(torch.cat([x_i, x_j], dim=-1))) * x_j


class SingleHead(MessagePassing):
    """Logits from one linear map of both ends side by side; a loop at every node."""

    def __init__(self, loops="remove and add"):
        super().__init__(aggr="add")
        self.lin, self.att = nn.Linear(WIDTH, OUT, bias=False), nn.Linear(2 * OUT, 1)
        self.loops = loops

    def forward(self, x, edge_index):
        if self.loops == "remove and add":
            edge_index, _ = remove_self_loops(edge_index)
            edge_index, _ = add_self_loops(edge_index, num_nodes=x.size(0))
        elif self.loops == "add remaining":
            edge_index, _ = add_remaining_self_loops(edge_index, num_nodes=x.size(0))
        elif self.loops == "add":
            edge_index, _ = add_self_loops(edge_index, num_nodes=x.size(0))
        elif self.loops == "remove":
            edge_index, _ = torch_geometric.utils.remove_self_loops(edge_index)
        return self.propagate(edge_index, x=self.lin(x))

    def message(self, x_i, x_j, index, ptr, size_i):
        alpha = F.leaky_relu(self.att(torch.cat([x_i, x_j], dim=1)), 0.2)
        return F.dropout(softmax(alpha, index, ptr, size_i), 0.5, self.training) * x_j


class MultiHead(MessagePassing):
    """[edges, heads, channels], the features of the edges in the logits and in the values."""

    def __init__(self):
        super().__init__(aggr="add", node_dim=0)
        self.lin, self.lin_edge = nn.Linear(WIDTH, HEADS * OUT), nn.Linear(FEATURES, HEADS * OUT)
        self.att = nn.Parameter(torch.randn(1, HEADS, 3 * OUT))
        self.bias = nn.Parameter(torch.randn(HEADS * OUT))

    def forward(self, x, edge_index, edge_attr):
        edge_index, edge_attr = remove_self_loops(edge_index, edge_attr)
        edge_index, edge_attr = add_self_loops(edge_index, edge_attr, fill_value="mean", num_nodes=len(x))
        x = self.lin(x).view(-1, HEADS, OUT)
        out = self.propagate(edge_index, x=x, edge_attr=edge_attr)
        out = out.reshape(-1, HEADS * OUT)
        out += self.bias
        return out

    def message(self, x_i, x_j, edge_attr, index, size_i):
        e = self.lin_edge(edge_attr).view(-1, HEADS, OUT)
        alpha = (torch.cat([x_i, x_j, e], dim=-1) * self.att).sum(dim=-1)
        alpha = softmax(F.leaky_relu(alpha, 0.2), index, num_nodes=size_i)
        return (x_j + e) * alpha.unsqueeze(-1)


class MeanOfHeads(MultiHead):
    def forward(self, x, edge_index, edge_attr):
        return super().forward(x, edge_index, edge_attr).view(-1, HEADS, OUT).mean(dim=1)


class DotProduct(MessagePassing):
    """The logits come from edge_update, as in PyG's own GATConv."""

    def __init__(self):
        super().__init__(aggr="add")
        self.query, self.key, self.value = (nn.Linear(WIDTH, OUT) for _ in range(3))

    def forward(self, x, edge_index):
        alpha = self.edge_updater(edge_index, q=self.query(x), k=self.key(x))
        return self.propagate(edge_index, v=self.value(x), alpha=alpha)

    def edge_update(self, q_i, k_j, index, size_i):
        return softmax((q_i * k_j).sum(-1) / OUT**0.5, index, num_nodes=size_i)

    def message(self, v_j, alpha):
        return alpha.view(-1, 1) * v_j


class MaxOfDifferences(MessagePassing):
    def __init__(self, aggr="max"):
        super().__init__(aggr=aggr)
        self.mlp = nn.Sequential(nn.Linear(2 * WIDTH, 6), nn.ReLU(), nn.BatchNorm1d(6), nn.Linear(6, OUT))
        self.mlp[2].running_mean.normal_()

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_i, x_j):
        return self.mlp(torch.cat([x_i, x_j - x_i], dim=-1))


class WithUpdate(MessagePassing):
    def __init__(self):
        super().__init__(aggr="mean")
        self.lin, self.norm = nn.Linear(2 * WIDTH, OUT), nn.LayerNorm(OUT)

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def update(self, inputs, x):
        return self.norm(torch.tanh(self.lin(torch.cat([x, inputs], dim=-1))))


class EdgesAlone(MessagePassing):
    def __init__(self):
        super().__init__(aggr="sum")
        self.lin, self.root = nn.Linear(FEATURES, OUT), nn.Linear(WIDTH, OUT)

    def forward(self, x, edge_index, edge_attr):
        return self.root(x) + self.propagate(edge_index, edge_attr=edge_attr, size=(len(x), len(x)))

    def message(self, edge_attr):
        return self.lin(edge_attr).exp().clamp(max=2.0) - 0.5


class ClassicGCN(MessagePassing):
    """As PyG's tutorial writes it."""

    def __init__(self, loops=True, mask=False):
        super().__init__(aggr="add")
        self.lin, self.loops, self.mask = nn.Linear(WIDTH, OUT, bias=False), loops, mask
        self.bias = nn.Parameter(torch.randn(OUT))

    def forward(self, x, edge_index):
        if self.loops:
            edge_index, _ = add_self_loops(edge_index, num_nodes=x.size(0))
        x = self.lin(x)
        row, col = edge_index
        deg = degree(col, x.size(0), dtype=x.dtype)
        deg_inv_sqrt = deg.pow(-0.5)
        if self.mask:
            deg_inv_sqrt[deg_inv_sqrt == float("inf")] = 0
        norm = deg_inv_sqrt[row] * deg_inv_sqrt[col]
        return self.propagate(edge_index, x=x, norm=norm) + self.bias

    def message(self, x_j, norm):
        return norm.view(-1, 1) * x_j


class ByHand(MessagePassing):
    """No message: rows are gathered and scattered in forward, and divided by the degree."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(WIDTH, OUT)

    def forward(self, x, edge_index):
        row, col = edge_index[0], edge_index[1]
        out = scatter(torch.relu(self.lin(x)[row]), col, dim=0, dim_size=x.size(0), reduce="sum")
        deg = degree(col, num_nodes=x.size(0)).clamp(min=1)
        return out / deg.view(-1, 1) + deg.sqrt().unsqueeze(-1)


class Weighted(MessagePassing):
    def __init__(self):
        super().__init__(aggr="max")
        self.inner = pyg.GCNConv(WIDTH, WIDTH)

    def forward(self, x, edge_index, edge_weight):
        x = x + self.inner(x, edge_index, edge_weight)
        first, second = x.split([2, WIDTH - 2], dim=-1)
        return self.propagate(edge_index, x=torch.cat([second, first], -1), w=edge_weight.unsqueeze(-1))

    def message(self, x_j, w):
        return torch.where(torch.tensor(True), x_j, x_j) * w if False else w * x_j.abs()


class MatrixOfEdge(MessagePassing):
    """A matrix made of each edge's features, and heads that are transposed."""

    def __init__(self):
        super().__init__(aggr="mean")
        self.lin = nn.Linear(FEATURES, WIDTH * OUT)

    def forward(self, x, edge_index, edge_attr):
        return self.propagate(edge_index, x=x, edge_attr=edge_attr)

    def message(self, x_j, edge_attr):
        matrix = self.lin(edge_attr).view(-1, OUT, WIDTH).transpose(1, 2)
        return (x_j.unsqueeze(1) @ matrix).squeeze(1)


class Network(nn.Module):
    """Two layers around convolutions that stand side by side, so that changes travel."""

    def __init__(self, convs, takes, out):
        super().__init__()
        self.first, self.convs = pyg.SAGEConv(WIDTH, WIDTH), nn.ModuleList(convs)
        self.second = pyg.SAGEConv(out, OUT)
        self.takes = takes

    def forward(self, x, edge_index, edge_attr, edge_weight):
        given = {"edge_attr": edge_attr, "edge_weight": edge_weight}
        x = torch.tanh(self.first(x, edge_index))
        rows = [
            conv(x, edge_index, **{name: given[name] for name in takes})
            for conv, takes in zip(self.convs, self.takes, strict=True)
        ]
        return self.second(torch.tanh(torch.cat(rows, dim=-1)), edge_index)


def mlp(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, 6), nn.ReLU(), nn.Linear(6, outputs))


def subclass(convolution):
    """A subclass that changes nothing, which no importer knows."""
    return type(f"My{convolution.__name__}", (convolution,), {})


OWN = {
    "edge_relu": (EdgeRelu, ["edge_attr"], OUT),
    "mean_gate": (MeanGate, [], WIDTH),
    "min_gate": (lambda: MeanGate("min"), [], WIDTH),
    "single_head": (SingleHead, [], OUT),
    "single_head_remaining": (lambda: SingleHead("add remaining"), [], OUT),
    "single_head_add": (lambda: SingleHead("add"), [], OUT),
    "single_head_remove": (lambda: SingleHead("remove"), [], OUT),
    "multi_head": (MultiHead, ["edge_attr"], HEADS * OUT),
    "mean_of_heads": (MeanOfHeads, ["edge_attr"], OUT),
    "dot_product": (DotProduct, [], OUT),
    "max_of_differences": (MaxOfDifferences, [], OUT),
    "mean_of_differences": (lambda: MaxOfDifferences("mean"), [], OUT),
    "with_update": (WithUpdate, [], OUT),
    "edges_alone": (EdgesAlone, ["edge_attr"], OUT),
    "classic_gcn": (ClassicGCN, [], OUT),
    "classic_gcn_without_loops": (lambda: ClassicGCN(False, True), [], OUT),
    "by_hand": (ByHand, [], OUT),
    "weighted": (Weighted, ["edge_weight"], WIDTH),
    "matrix_of_edge": (MatrixOfEdge, ["edge_attr"], OUT),
}
PYG = {
    "EdgeConv": (lambda: pyg.EdgeConv(mlp(2 * WIDTH, OUT)), [], OUT),
    "FeaStConv": (lambda: pyg.FeaStConv(WIDTH, OUT, heads=HEADS), [], OUT),
    "GeneralConv": (lambda: pyg.GeneralConv(WIDTH, OUT), [], OUT),
    "GeneralConv_attention": (
        lambda: pyg.GeneralConv(WIDTH, OUT, FEATURES, heads=HEADS, attention=True),
        ["edge_attr"],
        OUT,
    ),
    "GeneralConv_dot_product": (
        lambda: pyg.GeneralConv(WIDTH, OUT, heads=HEADS, attention=True, attention_type="dot_product"),
        [],
        OUT,
    ),
    "LEConv": (lambda: pyg.LEConv(WIDTH, OUT), ["edge_weight"], OUT),
    "ClusterGCNConv": (lambda: pyg.ClusterGCNConv(WIDTH, OUT, diag_lambda=0.3), [], OUT),
    "SGConv": (lambda: pyg.SGConv(WIDTH, OUT, K=2), ["edge_weight"], OUT),
    "TAGConv": (lambda: pyg.TAGConv(WIDTH, OUT, K=2), [], OUT),
    "SSGConv": (lambda: pyg.SSGConv(WIDTH, OUT, alpha=0.1, K=2), [], OUT),
    "APPNP": (lambda: pyg.APPNP(K=2, alpha=0.1), [], WIDTH),
    "LGConv": (pyg.LGConv, ["edge_weight"], WIDTH),
    "MixHopConv": (lambda: pyg.MixHopConv(WIDTH, OUT), [], 3 * OUT),
    "SuperGATConv": (lambda: pyg.SuperGATConv(WIDTH, OUT, heads=HEADS), [], HEADS * OUT),
    "FiLMConv": (lambda: pyg.FiLMConv(WIDTH, OUT), [], OUT),
    "SimpleConv": (lambda: pyg.SimpleConv("mean", combine_root="cat"), [], 2 * WIDTH),
    "NNConv": (lambda: pyg.NNConv(WIDTH, OUT, mlp(FEATURES, WIDTH * OUT)), ["edge_attr"], OUT),
    "GatedGraphConv_wider": (lambda: pyg.GatedGraphConv(WIDTH + 2, 1), [], WIDTH + 2),
    "GatedGraphConv": (lambda: pyg.GatedGraphConv(WIDTH, 2), ["edge_weight"], WIDTH),
    "GATConv": (
        lambda: subclass(pyg.GATConv)(WIDTH, OUT, heads=HEADS, edge_dim=FEATURES),
        ["edge_attr"],
        HEADS * OUT,
    ),
    "GATv2Conv": (
        lambda: subclass(pyg.GATv2Conv)(WIDTH, OUT, heads=HEADS, concat=False, edge_dim=FEATURES),
        ["edge_attr"],
        OUT,
    ),
    "TransformerConv": (
        lambda: subclass(pyg.TransformerConv)(WIDTH, OUT, heads=HEADS, edge_dim=FEATURES),
        ["edge_attr"],
        HEADS * OUT,
    ),
    "GCNConv": (lambda: subclass(pyg.GCNConv)(WIDTH, OUT), ["edge_weight"], OUT),
    "GINEConv": (
        lambda: subclass(pyg.GINEConv)(mlp(WIDTH, OUT), train_eps=True, edge_dim=FEATURES),
        ["edge_attr"],
        OUT,
    ),
}
ALL = OWN | PYG
AT_ONCE = draws(5, 1)
"""Convolutions in one network: an import takes longer than a stream of events."""


def network_of(names: list[str]) -> Network:
    torch.manual_seed(4)
    makes, takes, outs = zip(*(ALL[name] for name in names), strict=True)
    return Network([make() for make in makes], takes, sum(outs)).eval()


def make_graph(rng: np.random.Generator, nodes: int = 12, edges: int = 40) -> Graph:
    graph = Graph(Schema({"node": WIDTH}, {E: EdgeSchema(weighted=True, edge_dim=FEATURES)}))
    ends = np.unique(rng.integers(0, nodes, (2, edges)), axis=1)
    count = ends.shape[1]
    events = Events().add_nodes(np.arange(nodes), rng.standard_normal((nodes, WIDTH)).astype(np.float32))
    features = rng.standard_normal((count, FEATURES)).astype(np.float32)
    graph.apply(events.add_edges(ends[0], ends[1], weight=rng.random(count) + 0.5, edge_attr=features))
    return graph


def random_events(rng: np.random.Generator, graph: Graph, count: int) -> Events:
    events, ids = Events(), graph.ids()
    for _ in range(count):
        kind, some = rng.integers(0, 8), rng.choice(ids, 2)
        row = rng.standard_normal((1, FEATURES)).astype(np.float32)
        source, target = graph.snapshot().edge_index[E]
        if kind < 3:
            events.add_edges(some[:1], some[1:], weight=rng.random(1) + 0.5, edge_attr=row)
        elif kind < 5 and len(source):
            i = rng.integers(len(source))
            events.remove_edges(ids[source[i : i + 1]], ids[target[i : i + 1]])
        elif kind == 5:
            events.add_edges(some[:1], some[:1], weight=[2.0], edge_attr=row)
        elif kind == 6:
            new = int(ids.max()) + 1 + len(events)
            events.add_nodes([new], rng.standard_normal((1, WIDTH)).astype(np.float32))
            events.add_edges([new], some[:1], weight=[1.5], edge_attr=row)
        else:
            events.set_features(some[:1], rng.standard_normal((1, WIDTH)).astype(np.float32))
    return events


def predict(module: nn.Module, graph: Graph) -> np.ndarray:
    snapshot = graph.snapshot()
    with torch.no_grad():
        return module(
            torch.from_numpy(snapshot.x["node"]),
            torch.from_numpy(snapshot.edge_index[E].astype(np.int64)),
            torch.from_numpy(snapshot.edge_attr[E]),
            torch.from_numpy(snapshot.weight[E]),
        ).numpy()


@pytest.mark.parametrize("first", range(0, len(ALL), AT_ONCE), ids=lambda first: [*ALL][first])
def test_module_oracle_and_engine_agree_through_events(first):
    rng = np.random.default_rng(2)
    module, graph = network_of([*ALL][first : first + AT_ONCE]), make_graph(rng)
    model = Model.from_pyg(module, edge_channels=FEATURES, edge_type=E)
    engine = Engine(graph, model, threads=1)
    for turn in range(draws(3, 25)):
        assert_exact(engine)
        expected = predict(module, graph)
        oracle = reference.compute(model, graph.snapshot())[model.output]
        np.testing.assert_allclose(oracle, expected, atol=1e-4 * max(np.abs(expected).max(), 1))
        engine.apply(random_events(rng, graph, 1 + turn % 3))
        if turn % 7 == 1:
            engine.apply(Events().remove_nodes(rng.choice(graph.ids(), 1)))


def read(convolution: nn.Module, **settings: object) -> Model:
    return Model.from_pyg(convolution.eval(), **settings)


def operators(model: Model) -> list[Propagate]:
    return [Propagate.from_step(step) for step in model.steps if step.op == "propagate"]


def test_what_depends_on_one_end_is_computed_once_a_node():
    model = read(EdgeRelu())
    on_nodes = [step.op for step in model.steps if model.edge_type(step.output) is None]
    assert on_nodes == ["linear", "propagate"]


def test_a_softmax_is_a_coefficient_divided_by_its_sum():
    (found,) = operators(read(SingleHead()))
    assert (found.message_local, found.neighbor_context, found.combine) == (("coefficient",), "sum", "divide")
    assert (found.skip_loops, found.own_message) == (True, True)


def test_a_normalisation_by_degrees_reads_no_targets():
    """The target's part of the norm waits until the messages are added, so nothing is recomputed."""
    for convolution in (ClassicGCN(), ClassicGCN(False, True), pyg.SGConv(WIDTH, OUT)):
        assert "target" not in {step.op for step in read(convolution).steps}


def test_the_layer_and_pyg_are_left_as_they_were():
    layer = MultiHead().eval()
    before = {name: id(value) for name, value in vars(layer).items()}
    functions = (softmax, add_self_loops, torch_geometric.utils.softmax)
    read(layer)
    assert {name: id(value) for name, value in vars(layer).items()} == before
    assert (softmax, add_self_loops, torch_geometric.utils.softmax) == functions
    assert softmax.__module__.startswith("torch_geometric")


def test_widths_that_the_layer_does_not_tell_are_asked_for():
    assert read(pyg.LGConv(), in_channels=7).width("x") == 7
    with pytest.raises(ModelError, match=r"LGConv\.forward: .*give in_channels=\.\.\."):
        read(pyg.LGConv())


class CallSettings(MessagePassing):
    """Its message does one thing."""

    def __init__(self, message, **settings):
        super().__init__(**settings)
        self.lin, self.does = nn.Linear(WIDTH, WIDTH), message

    def forward(self, x, edge_index):
        return self.lin(self.propagate(edge_index, x=x))

    def message(self, x_i, x_j, index, size_i, edge_index_j):
        return self.does(x_i, x_j, index, edge_index_j)


class Forward(MessagePassing):
    def __init__(self, forward, **settings):
        super().__init__(**settings)
        self.lin, self.does = nn.Linear(WIDTH, WIDTH), forward

    def forward(self, x, edge_index):
        return self.does(self, self.lin(x), edge_index)

    def send(self, edge_index, x):
        return self.propagate(edge_index, x=x)


def looped(self, x, edge_index):
    return self.send(add_self_loops(edge_index, num_nodes=len(x))[0], x)


READ = {
    "softplus": CallSettings(lambda i, j, to, of: F.softplus(j)),
    "quotient": CallSettings(lambda i, j, to, of: j / (i.abs() + 1)),
    "loops and maximum": Forward(looped, aggr="max"),
    "loops and reversed": Forward(looped, flow="target_to_source"),
    "flipped": Forward(lambda self, x, e: self.send(e.flip(0), x)),
    "number of rows": Forward(lambda self, x, e: self.send(add_self_loops(e, num_nodes=len(x))[0], x)),
    "CGConv": pyg.CGConv(WIDTH),
    "ARMAConv": pyg.ARMAConv(WIDTH, OUT),
    "GENConv": pyg.GENConv(WIDTH, OUT),
    "EGConv": pyg.EGConv(WIDTH, OUT * HEADS, num_heads=HEADS),
    "MFConv": pyg.MFConv(WIDTH, OUT, max_degree=3),
    "WLConvContinuous": pyg.WLConvContinuous(),
}
"""Read now that any module is: once refused."""


@pytest.mark.parametrize("name", READ)
def test_what_was_once_refused_equals_its_module(name):
    rng, module = np.random.default_rng(3), READ[name].eval()
    graph = make_graph(rng)
    model = Model.from_pyg(module, in_channels=WIDTH, edge_type=E, edge_weight=False, edge_channels=0)
    engine = Engine(graph, model, threads=1)
    for _ in range(5):
        assert_exact(engine)
        snapshot = graph.snapshot()
        with torch.no_grad():
            expected = module(
                torch.from_numpy(snapshot.x["node"]),
                torch.from_numpy(snapshot.edge_index[E].astype(np.int64)),
            ).numpy()
        oracle = reference.compute(model, snapshot)[model.output]
        np.testing.assert_allclose(oracle, expected, atol=1e-4 * max(np.abs(expected).max(), 1))
        engine.apply(random_events(rng, graph, 2))


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (lambda i, j, to, of: j - j.mean(), "every row of the graph is reduced to one"),
        (lambda i, j, to, of: j - j.mean(0), "every row of the graph is reduced to one"),
        (lambda i, j, to, of: j.flip(0), "rows change their places"),
        (lambda i, j, to, of: j if j.sum(-1).max() > 0 else i, r"depends on data: .* torch\.where"),
        (lambda i, j, to, of: j.unsqueeze(1) * j, "every node meets every node"),
        (lambda i, j, to, of: F.softmax(j, 0), "every row of the graph is reduced to one"),
        (lambda i, j, to, of: F.dropout(j), "random numbers are drawn"),
        (
            lambda i, j, to, of: j * degree(of, 11)[of].view(-1, 1),
            "groups that are not known to be the nodes",
        ),
    ],
)
def test_messages_that_cannot_be_imported_are_refused(message, error):
    with pytest.raises(ModelError, match=rf"(?s)CallSettings\.forward.*{error}"):
        read(CallSettings(message, aggr="add"))


@pytest.mark.parametrize(
    ("forward", "settings", "error"),
    [
        (lambda self, x, e: self.send(e[:, :5], x), {}, "a size decides what it does"),
        (lambda self, x, e: self.send(add_self_loops(e)[0], x), {}, "says 0 where the imported model says"),
        (lambda self, x, e: e[0], {}, "the ends of edges alone"),
        (lambda self, x, e: torch.ones(3), {}, "returns no row for each node"),
        (lambda self, x, e: x - x.mean(0), {}, "every row of the graph is reduced to one"),
        (lambda self, x, e: x * degree(e[0], 11)[:, None], {}, "must match the size of tensor b"),
        (lambda self, x, e: x.view(-1), {}, "returns some rows of those it has"),
        (lambda self, x, e: self.missing, {}, "has no attribute 'missing'"),
        (lambda self, x, e: self.send(e, x) * x.size(0), {}, "the number of nodes is computed with"),
        (lambda self, x, e: self.send(e, x) / e.size(1), {}, "the number of edges is computed with"),
        (looped, {"aggr": "median"}, "MedianAggregation, which sorts"),
    ],
)
def test_forwards_that_cannot_be_imported_are_refused(forward, settings, error):
    with pytest.raises(ModelError, match=rf"(?s)Forward\.forward.*{error}"):
        read(Forward(forward, **settings), in_channels=WIDTH)


def test_a_norm_by_the_largest_eigenvalue_reads_all_edges():
    with pytest.raises(ModelError, match=r"ChebConv\.forward.*every row of the graph is reduced to one"):
        read(pyg.ChebConv(WIDTH, OUT, K=2))
