"""PyG modules of every supported convolution, of some depth, with what people put between the layers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
import torch
from torch import nn
from torch_geometric import nn as pyg

from livegnn import Model
from livegnn.graph import Snapshot
from livegnn.types import DEFAULT_EDGE_TYPE, DEFAULT_NODE_TYPE

WIDTH = 4
"""Channels of the features that these modules read, by default."""

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
WEIGHTED = frozenset(kind for kind in CONVOLUTIONS if kind.startswith(("gcn", "graph")))
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
            self.convolutions.append(CONVOLUTIONS[design.kind](width, out))
            self.norms.append(NORMS["none" if last else design.norm](out))
            self.activations.append(ACTIVATIONS["none" if last else design.activation]())
            width = out + width if design.join == "concat" else out
            self.widths.append(width)
        self.head = nn.Linear(width, design.out) if design.join == "head" else nn.Identity()

    def layers(self, x, edge_index, edge_weight=None):
        """The input of every convolution, and the output."""
        values = [x]
        blocks = zip(self.convolutions, self.norms, self.activations, strict=True)
        for (conv, norm, activation), (before, after) in zip(blocks, pairwise(self.widths), strict=True):
            h = conv(x, edge_index, edge_weight) if self.design.weighted else conv(x, edge_index)
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

    def forward(self, x, edge_index, edge_weight=None):
        return self.layers(x, edge_index, edge_weight)[-1]

    @torch.no_grad()
    def run(self, snapshot: Snapshot) -> np.ndarray:
        """The output on a graph, in float64, as the parameters are once `make` is through."""
        x, weight = snapshot.x[DEFAULT_NODE_TYPE], snapshot.weight[DEFAULT_EDGE_TYPE]
        edge_index = torch.from_numpy(snapshot.edge_index[DEFAULT_EDGE_TYPE])
        x, weight = torch.from_numpy(x.astype(np.float64)), torch.from_numpy(weight.astype(np.float64))
        return self(x, edge_index, weight).numpy()


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


@lru_cache(maxsize=2000)
def make(design: Design) -> tuple[Stack, Model]:
    """A module in float64, and the model imported from it."""
    module = fill(Stack(design), design.seed)
    model = Model.from_pyg(module, edge_weight=design.weighted)
    assert len(model.layers) == design.depth + 1
    return module.double(), model
