"""PyG modules of every supported convolution, of some depth, with what people put between the layers."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric import nn as pyg

from gate import EXPLORING
from livegnn import Model
from livegnn.graph import Snapshot
from livegnn.types import DEFAULT_EDGE_TYPE, DEFAULT_NODE_TYPE

WIDTH = 4
"""Channels of the features that these modules read, by default."""

EDGE_WIDTH = 3
"""Channels of the edges' features."""

CONVOLUTIONS = {
    "gcn": pyg.GCNConv,
    "gcn improved": lambda i, o: pyg.GCNConv(i, o, improved=True),
    "gcn without loops": lambda i, o: pyg.GCNConv(i, o, add_self_loops=False),
    "gcn max": lambda i, o: pyg.GCNConv(i, o, aggr="max"),
    "gcn without norm": lambda i, o: pyg.GCNConv(i, o, normalize=False, add_self_loops=False),
    "sage mean": lambda i, o: pyg.SAGEConv(i, o, aggr="mean"),
    "sage sum": lambda i, o: pyg.SAGEConv(i, o, aggr="sum", root_weight=False),
    "sage max": lambda i, o: pyg.SAGEConv(i, o, aggr="max"),
    "sage min": lambda i, o: pyg.SAGEConv(i, o, aggr="min", project=True),
    "graph add": lambda i, o: pyg.GraphConv(i, o, aggr="add"),
    "graph mean": lambda i, o: pyg.GraphConv(i, o, aggr="mean"),
    "graph max": lambda i, o: pyg.GraphConv(i, o, aggr="max"),
    "gin": lambda i, o: pyg.GINConv(nn.Sequential(nn.Linear(i, 6), nn.ReLU(), nn.Linear(6, o)), eps=0.3),
}


class CommNet(nn.Module):
    """NeutronRT, table II, row CommNet, edge by edge."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.own, self.around = nn.Linear(inputs, outputs), nn.Linear(inputs, outputs, bias=False)

    def forward(self, x, edge_index):
        source, target = edge_index
        return self.own(x) + torch.zeros_like(self.own(x)).index_add(0, target, self.around(x)[source])


class PinSAGE(nn.Module):
    """NeutronRT, table II, row PinSAGE, edge by edge; the result has the length 1."""

    def __init__(self, inputs: int, outputs: int, divide_by: str = "count") -> None:
        super().__init__()
        self.message, self.update = nn.Linear(inputs, 6), nn.Linear(inputs + 6, outputs)
        self.divide_by = divide_by

    def forward(self, x, edge_index, edge_weight=None):
        source, target = edge_index
        ones = x.new_ones(len(source))
        alpha = ones if edge_weight is None else edge_weight
        messages = alpha[:, None] * self.message(x).relu()[source]
        total = x.new_zeros(len(x), 6).index_add(0, target, messages)
        divisor = x.new_zeros(len(x)).index_add(0, target, alpha if self.divide_by == "sum" else ones)
        mean = torch.where(divisor[:, None] > 0, total / divisor[:, None], 0.0)
        return F.normalize(self.update(torch.cat([x, mean], dim=-1)).relu(), dim=-1)


class Then(nn.Module):
    """A convolution that keeps the width of its input, and a linear layer."""

    def __init__(self, conv: nn.Module, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv, self.linear = conv, nn.Linear(inputs, outputs)

    def forward(self, x, edge_index):
        return self.linear(self.conv(x, edge_index))


def _heads(outputs: int) -> tuple[int, int]:
    """Channels of a head, and heads, that are `outputs` side by side."""
    return (outputs // 2, 2) if outputs % 2 == 0 else (outputs, 1)


def _network(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, 6), nn.ReLU(), nn.Linear(6, outputs))


_ON_EDGES = {
    "gat": lambda i, o: pyg.GATConv(i, *_heads(o)),
    "gat mean": lambda i, o: pyg.GATConv(i, o, heads=2, concat=False, residual=True),
    "gat without loops": lambda i, o: pyg.GATConv(i, o, heads=2, concat=False, add_self_loops=False),
    "gat_edge": lambda i, o: pyg.GATConv(i, *_heads(o), edge_dim=EDGE_WIDTH),
    "gat_edge filled": lambda i, o: pyg.GATConv(i, o, edge_dim=EDGE_WIDTH, fill_value=0.5),
    "gat_edge max": lambda i, o: pyg.GATConv(i, o, edge_dim=EDGE_WIDTH, fill_value="max"),
    "gatv2": lambda i, o: pyg.GATv2Conv(i, *_heads(o)),
    "gatv2 shared": lambda i, o: pyg.GATv2Conv(i, o, 2, concat=False, share_weights=True),
    "gatv2_edge": lambda i, o: pyg.GATv2Conv(i, *_heads(o), edge_dim=EDGE_WIDTH, residual=True),
    "transformer": lambda i, o: pyg.TransformerConv(i, *_heads(o), beta=True),
    "transformer_edge": lambda i, o: pyg.TransformerConv(i, o, 2, concat=False, edge_dim=EDGE_WIDTH),
    "agnn": lambda i, o: Then(pyg.AGNNConv(), i, o),
    "agnn without loops": lambda i, o: Then(pyg.AGNNConv(add_self_loops=False), i, o),
    "resgated": pyg.ResGatedGraphConv,
    "resgated_edge": lambda i, o: pyg.ResGatedGraphConv(i, o, edge_dim=EDGE_WIDTH),
    "gmm_edge": lambda i, o: pyg.GMMConv(i, o, EDGE_WIDTH, kernel_size=2),
    "gmm_edge add": lambda i, o: pyg.GMMConv(i, o, EDGE_WIDTH, kernel_size=2, aggr="add"),
    "gine_edge": lambda i, o: pyg.GINEConv(_network(i, o), eps=0.3, edge_dim=EDGE_WIDTH),
    "gine_edge max": lambda i, o: pyg.GINEConv(_network(i, o), edge_dim=EDGE_WIDTH, aggr="max"),
    "comm_net": CommNet,
    "pin_sage": PinSAGE,
    "pin_sage sum": lambda i, o: PinSAGE(i, o, divide_by="sum"),
}
EDGE_WISE = tuple(_ON_EDGES)
"""Kinds whose messages depend on both ends of an edge or on its features, and those built from steps."""

EDGE_FEATURES = frozenset(kind for kind in EDGE_WISE if "_edge" in kind)
"""Those that need features of the edges."""

WEIGHTED = frozenset(
    kind for kind in (*CONVOLUTIONS, *EDGE_WISE) if kind.startswith(("gcn", "graph", "pin_sage"))
)
"""Those that take edge weights."""

ACTIVATIONS = {
    "none": nn.Identity,
    "relu": nn.ReLU,
    "leaky_relu": lambda: nn.LeakyReLU(0.2),
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
}
NORMS = {"none": nn.Identity, "batch": nn.BatchNorm1d, "layer": nn.LayerNorm}


@dataclass(frozen=True)
class Design:
    """What a `Stack` is made of. weighted: edge weights are passed to the convolutions."""

    kind: str
    depth: int = 2
    activation: str = "relu"
    norm: str = "none"
    join: str = "none"
    weighted: bool = False
    width: int = WIDTH
    hidden: int = 5
    out: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        assert self.kind in WEIGHTED or not self.weighted

    @property
    def featured(self) -> bool:
        """Whether the module reads features of edges, `EDGE_WIDTH` channels each."""
        return self.kind in EDGE_FEATURES


def designs_of(kind: str) -> list[Design]:
    """Designs of a kind, which all tests of it share: an import takes longer than a stream of events.

    Two in a run that explores, where every depth meets every join, norm and activation over the kinds. In the
    gate one: each other kind has the plain design that tests of one kind have as well.
    """
    place = [*CONVOLUTIONS, *EDGE_WISE].index(kind)
    joins, activations, norms = ("none", "skip", "concat", "head"), list(ACTIVATIONS), list(NORMS)
    varied = [
        Design(
            kind,
            depth=1 + (place + i) % 3 + i,
            activation=activations[(place + 3 * i) % len(activations)],
            norm=norms[(place + i) % len(norms)],
            join=joins[(place // 2 + 2 * i) % len(joins)],
            hidden=WIDTH if i else 6,
            weighted=kind in WEIGHTED and i == 1,
            seed=i,
        )
        for i in range(2)
    ]
    if EXPLORING:
        return varied
    return [varied[place // 2 % 2] if place % 2 else Design(kind, weighted=kind in WEIGHTED)]


def cases(count: int = 4, **choices: list) -> pytest.MarkDecorator:
    """Runs a test `count` times, on values of its parameters that come up in turn, in an order of their own.

    Hypothesis would import a module for each of its examples.
    """
    random = Random(0)
    columns = []
    for values in choices.values():
        order = random.sample(range(len(values)), len(values))
        columns.append([values[order[i % len(order)]] for i in range(count)])
    rows = list(zip(*columns, strict=True)) if len(columns) > 1 else columns[0]
    names = tuple(choices) if len(columns) > 1 else next(iter(choices))
    return pytest.mark.parametrize(names, rows, ids=[f"case {i}" for i in range(count)])


class Stack(nn.Module):
    """Convolutions with activations, norms and joins in between; a linear layer at the end if `join` asks for
    it.

    join: "skip" adds the input of a block to its output, "concat" puts the two side by side, "head" ends with
    a linear layer and a softmax.
    """

    def __init__(self, design: Design) -> None:
        super().__init__()
        self.design = design
        self.convolutions, self.norms, self.activations = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        width = design.width
        self.widths = [width]
        for layer in range(design.depth):
            last = layer == design.depth - 1
            out = design.out if last and design.join != "head" else design.hidden
            self.convolutions.append((CONVOLUTIONS | _ON_EDGES)[design.kind](width, out))
            self.norms.append(NORMS["none" if last else design.norm](out))
            self.activations.append(ACTIVATIONS["none" if last else design.activation]())
            width = out + width if design.join == "concat" else out
            self.widths.append(width)
        self.head = nn.Linear(width, design.out) if design.join == "head" else nn.Identity()

    def layers(self, x, edge_index, edge_weight=None, edge_attr=None):
        """The input of every convolution, and the output."""
        values = [x]
        blocks = zip(self.convolutions, self.norms, self.activations, strict=True)
        for (conv, norm, activation), (before, after) in zip(blocks, pairwise(self.widths), strict=True):
            if self.design.weighted:
                h = conv(x, edge_index, edge_weight)
            elif self.design.featured:
                h = conv(x, edge_index, edge_attr)
            else:
                h = conv(x, edge_index)
            h = activation(norm(h))
            if self.design.join == "skip" and before == after:
                h = h + x
            elif self.design.join == "concat":
                h = torch.cat([h, x], dim=-1)
            values.append(h)
            x = h
        if self.design.join == "head":
            values[-1] = torch.log_softmax(self.head(x), dim=-1)
        return values

    def forward(self, x, edge_index, edge_weight=None, edge_attr=None):
        return self.layers(x, edge_index, edge_weight, edge_attr)[-1]

    @torch.no_grad()
    def run(self, snapshot: Snapshot) -> np.ndarray:
        """The output on a graph, in float64, as the parameters are once `make` is through."""
        x, weight = snapshot.x[DEFAULT_NODE_TYPE], snapshot.weight[DEFAULT_EDGE_TYPE]
        edge_index = torch.from_numpy(snapshot.edge_index[DEFAULT_EDGE_TYPE])
        x, weight = torch.from_numpy(x.astype(np.float64)), torch.from_numpy(weight.astype(np.float64))
        features = snapshot.edge_attr.get(DEFAULT_EDGE_TYPE, np.zeros((len(weight), 0)))
        return self(x, edge_index, weight, torch.from_numpy(features.astype(np.float64))).numpy()


def fill(module: nn.Module, seed: int) -> nn.Module:
    """Gives every parameter and statistic a value of its own, of a size that keeps signals as large as they
    were.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            size = parameter.shape[-1] ** -0.5 if parameter.dim() > 1 else 0.5
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * size)
        for name, buffer in module.named_buffers():
            if name.endswith("running_var"):
                buffer.copy_(torch.rand(buffer.shape, generator=generator) + 0.5)
            elif name.endswith("running_mean"):
                buffer.copy_(torch.randn(buffer.shape, generator=generator) * 0.5)
    return module.eval()


def import_once(name: str, make_model: Callable[[], Model]) -> Model:
    """The model of this name, from whichever process of this run has imported it first.

    An import takes longer than most tests.
    """
    folder = os.environ.get("LIVEGNN_TEST_MODELS")
    if folder is None:
        return make_model()
    path = Path(folder) / hashlib.sha256(name.encode()).hexdigest()
    if not path.exists():
        written = path.with_suffix(f".{os.getpid()}")
        make_model().save(written)
        written.rename(path)
    return Model.load(path)


@lru_cache(maxsize=2000)
def make(design: Design) -> tuple[Stack, Model]:
    """A module in float64, and the model imported from it."""
    module = fill(Stack(design), design.seed)
    edge_channels = EDGE_WIDTH if design.featured else 0
    model = import_once(
        repr(design),
        lambda: Model.from_pyg(module, edge_weight=design.weighted, edge_channels=edge_channels),
    )
    assert len(model.layers) == design.depth + 1
    return module.double(), model
