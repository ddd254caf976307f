"""Modules as people write them, of PyG's layers and of their own."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric import nn as pyg

WIDTH, EDGE_WIDTH, RELATIONS = 8, 3, 3
METADATA = (
    ["author", "paper"],
    [("author", "writes", "paper"), ("paper", "cites", "paper"), ("paper", "written", "author")],
)


class Stack(nn.Module):
    """Convolutions one after the other, with something between them."""

    def __init__(self, *layers: nn.Module, between: Callable[[torch.Tensor], torch.Tensor] = F.relu) -> None:
        super().__init__()
        self.layers, self.between = nn.ModuleList(layers), between

    def forward(self, x, edge_index, edge_weight=None):
        rest = (edge_index,) if edge_weight is None else (edge_index, edge_weight)
        for layer in self.layers[:-1]:
            x = F.dropout(self.between(layer(x, *rest)), 0.5, self.training)
        return self.layers[-1](x, *rest)


class Normed(nn.Module):
    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.first, self.norm, self.second = pyg.GCNConv(WIDTH, WIDTH), norm, pyg.GCNConv(WIDTH, 4)

    def forward(self, x, edge_index):
        return self.second(self.norm(self.first(x, edge_index)).relu(), edge_index)


class Initial(nn.Module):
    """GCN2: layers that look back at the first."""

    def __init__(self, layers: int, shared: bool = True, relu_after: bool = False) -> None:
        super().__init__()
        self.inward, self.outward = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 4)
        self.layers = nn.ModuleList(
            pyg.GCN2Conv(WIDTH, 0.1, 0.5, i + 1, shared_weights=shared, normalize=relu_after)
            for i in range(layers)
        )

    def forward(self, x, edge_index):
        x = first = self.inward(x).relu()
        for layer in self.layers:
            x = layer(x, first, edge_index).relu() + x
        return self.outward(x).log_softmax(dim=-1)


class Skips(nn.Module):
    """Convolutions beside linear maps."""

    def __init__(self, make: Callable[[int, int], nn.Module], between=F.elu) -> None:
        super().__init__()
        self.layers = nn.ModuleList([make(WIDTH, 6), make(6, 4)])
        self.skips = nn.ModuleList([nn.Linear(WIDTH, 6), nn.Linear(6, 4)])
        self.between = between

    def forward(self, x, edge_index):
        for layer, skip in zip(self.layers, self.skips, strict=True):
            x = self.between(layer(x, edge_index) + skip(x))
        return x


class Genie(nn.Module):
    """Breadth by attention, depth by LSTM cells."""

    def __init__(self) -> None:
        super().__init__()
        self.breadth = nn.ModuleList(pyg.GATConv(WIDTH, WIDTH) for _ in range(2))
        self.depth = nn.ModuleList(nn.LSTM(WIDTH, WIDTH, 1, bias=False) for _ in range(2))
        self.out = nn.Linear(WIDTH, 4)

    def forward(self, x, edge_index):
        h = c = x.new_zeros(1, x.size(0), WIDTH)
        for breadth, depth in zip(self.breadth, self.depth, strict=True):
            x = torch.tanh(breadth(x, edge_index))
            x, (h, c) = depth(x[None], (h, c))
            x = x[0]
        return self.out(x)


class Agnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inward, self.outward = nn.Linear(WIDTH, 6), nn.Linear(6, 4)
        self.first, self.second = pyg.AGNNConv(requires_grad=False), pyg.AGNNConv()

    def forward(self, x, edge_index):
        x = self.second(self.first(self.inward(x).relu(), edge_index), edge_index)
        return self.outward(x).log_softmax(dim=1)


class UniMP(nn.Module):
    def __init__(self, labels: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(RELATIONS, WIDTH) if labels else None
        self.layers = nn.ModuleList(
            pyg.TransformerConv(WIDTH, 4, heads=2, concat=True, beta=True) for _ in range(2)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(8) for _ in range(2))
        self.last = pyg.TransformerConv(WIDTH, 4, heads=2, concat=False, beta=True)

    def forward(self, x, edge_index, y=None):
        if self.embedding is not None:
            x = x + self.embedding(y)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = norm(layer(x, edge_index)).relu()
        return self.last(x, edge_index)


class Dna(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inward, self.outward = nn.Linear(WIDTH, 8), nn.Linear(8, 4)
        self.layers = nn.ModuleList(pyg.DNAConv(8, heads=2, groups=2) for _ in range(2))

    def forward(self, x, edge_index):
        x = self.inward(x).relu()
        every = x.view(-1, 1, 8)
        for layer in self.layers:
            x = layer(every, edge_index).relu().view(-1, 1, 8)
            every = torch.cat([every, x], dim=1)
        return self.outward(every[:, -1])


class Variational(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.mean, self.spread = pyg.GCNConv(WIDTH, 8), pyg.GCNConv(8, 4), pyg.GCNConv(8, 4)

    def forward(self, x, edge_index):
        x = self.first(x, edge_index).relu()
        return self.mean(x, edge_index), self.spread(x, edge_index)


class Super(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = pyg.SuperGATConv(WIDTH, 4, heads=2, attention_type="MX", edge_sample_ratio=0.8)
        self.second = pyg.SuperGATConv(8, 4, heads=2, concat=False, attention_type="MX")

    def forward(self, x, edge_index):
        return self.second(F.elu(self.first(x, edge_index)), edge_index)


class Relations(nn.Module):
    """Convolutions that read the type of each edge."""

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x, edge_index, edge_type, *attr):
        return self.second(self.first(x, edge_index, edge_type, *attr).relu(), edge_index, edge_type, *attr)


class Deep(nn.Module):
    """Residual layers of softmax aggregation with features of edges."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes, self.edges = nn.Linear(WIDTH, 8), nn.Linear(EDGE_WIDTH, 8)
        self.layers = nn.ModuleList(
            pyg.DeepGCNLayer(
                pyg.GENConv(8, 8, aggr="softmax", t=1.0, learn_t=True, num_layers=2, norm="layer"),
                nn.LayerNorm(8),
                nn.ReLU(),
                block="res+",
                dropout=0.1,
            )
            for _ in range(2)
        )

    def forward(self, x, edge_index, edge_attr):
        x, edge_attr = self.nodes(x), self.edges(edge_attr)
        x = self.layers[0].conv(x, edge_index, edge_attr)
        for layer in self.layers[1:]:
            x = layer(x, edge_index, edge_attr)
        return self.layers[0].act(self.layers[0].norm(x))


class Undirected(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.GCNConv(WIDTH, 4)

    def forward(self, x, edge_index):
        return self.conv(x, torch.cat([edge_index, edge_index.flip(0)], dim=1))


class OwnEdges(nn.Module):
    """Attention over the edges and others of its own, made of the same ones."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = pyg.GCNConv(WIDTH, 6), pyg.GATConv(6, 4)
        self.skip = nn.Linear(WIDTH, 6)

    def forward(self, x, edge_index):
        kept = edge_index[:, edge_index[0] != edge_index[1]]
        return self.second(self.first(x, kept) + self.skip(x), edge_index)


class Tgn(nn.Module):
    """The embedding of temporal graphs: attention with features of edges and their age."""

    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Linear(1, 5)
        self.conv = pyg.TransformerConv(WIDTH, 4, heads=2, edge_dim=EDGE_WIDTH + 5)

    def forward(self, x, age, edge_index, edge_attr, t):
        since = age[edge_index[0]] - t
        encoded = self.time(since.view(-1, 1)).cos()
        return self.conv(x, edge_index, torch.cat([encoded, edge_attr], dim=-1))


class HeteroModel(nn.Module):
    def __init__(self, make: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.conv = pyg.HeteroConv({edge_type: make() for edge_type in METADATA[1]}, aggr="sum")
        self.out = nn.Linear(6, 4)

    def forward(self, x_dict, edge_index_dict):
        x_dict = {key: x.relu() for key, x in self.conv(x_dict, edge_index_dict).items()}
        return self.out(x_dict["paper"])


class Once(nn.Module):
    """A layer whose result is one of several, or that needs more than a graph."""

    def __init__(self, layer: nn.Module, how: Callable[..., object]) -> None:
        super().__init__()
        self.layer, self.how = layer, how

    def forward(self, *args):
        return self.how(self.layer, *args)


def labels(layer, x, y, edge_index):
    return layer(F.one_hot(y, RELATIONS).to(x), edge_index)


def polynormer(layer, x, edge_index):
    return layer(x, edge_index, torch.zeros_like(x[:, 0]).long())


def network(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, 6), nn.ReLU(), nn.Linear(6, outputs))


def pna(**settings: object) -> nn.Module:
    options = {
        "aggregators": ["mean", "min", "max", "std"],
        "scalers": ["identity", "amplification", "attenuation"],
        "deg": torch.tensor([1, 4, 3, 2]),
        **settings,
    }
    return pyg.PNAConv(WIDTH, 4, **options)


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = pyg.GCNConv(WIDTH, 8), pyg.GCNConv(8, 4)

    def encode(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)

    def decode(self, z, edge_label_index):
        return (z[edge_label_index[0]] * z[edge_label_index[1]]).sum(dim=-1)


class Saint(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(pyg.GraphConv(a, 8) for a in (WIDTH, 8, 8))
        self.lin = nn.Linear(24, 4)

    def forward(self, x, edge_index):
        every = []
        for layer in self.layers:
            x = layer(x, edge_index).relu()
            every.append(x)
        return self.lin(torch.cat(every, dim=-1)).log_softmax(dim=-1)


class Two(nn.Module):
    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


class Sequence(nn.Module):
    def __init__(self, conv: nn.Module, rest: nn.Module) -> None:
        super().__init__()
        self.conv, self.rest = conv, rest

    def forward(self, x, edge_index):
        return self.rest(self.conv(x, edge_index))


# Functions

MATRIX = torch.linspace(-1, 1, 64, dtype=torch.float64).reshape(8, 8)


class Written(nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def add(rows, index, like):
    return torch.zeros_like(like).index_add(0, index, rows)


def largest(rows, index, nodes):
    wide = index.view(-1, *[1] * (rows.dim() - 1)).expand_as(rows)
    return rows.new_zeros(nodes, *rows.shape[1:]).scatter_reduce(0, wide, rows, "amax", include_self=False)
