"""Modules whose results have a row for each group of nodes, or one for all nodes."""

from __future__ import annotations

import torch
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.nn import aggr
from torch_geometric.utils import degree, scatter, softmax

WIDTH = 3
GROUPS = {"batch": ("node", "in", "group")}
WHOLE = {None: ("node", "in", "group")}


class Grouped(nn.Module):
    """Rows of nodes, of two convolutions, and their pooling to groups: the two parts of ``forward``."""

    def __init__(self, pool: object, head: int = 4, **layers: nn.Module) -> None:
        super().__init__()
        self.first, self.second = pyg.SAGEConv(WIDTH, 4), pyg.GraphConv(4, 4)
        self.head = nn.Sequential(nn.Linear(head, 5), nn.Tanh(), nn.Linear(5, 2))
        self.layers = nn.ModuleDict(layers)
        self.pool_rows = pool

    def encode(self, x, edge_index):
        return self.second(self.first(x, edge_index).tanh(), edge_index)

    def pool(self, h, batch, size=None):
        return self.head(self.pool_rows(self.layers, h, batch, size))

    def forward(self, x, edge_index, batch, size=None):
        return self.pool(self.encode(x, edge_index), batch, size)


class Whole(Grouped):
    """The same for all nodes as one group."""

    def pool(self, h):
        return self.head(self.pool_rows(h))

    def forward(self, x, edge_index):
        return self.pool(self.encode(x, edge_index))


def aggregated(layers, h, batch, size):
    return layers["aggr"](h, batch, dim_size=size)


def added(layers, h, batch, size):
    number = int(batch.max()) + 1 if size is None else size
    return h.new_zeros(number, h.size(1)).index_add(0, batch, h)


def weighed(layers, h, batch, size):
    """A softmax over each group and the number of its members, without the number of groups."""
    number = degree(batch, size).clamp(min=1).view(-1, 1)
    return scatter(h * softmax(h, batch), batch, 0, size) / number


POOLINGS = {
    "mean": lambda: Grouped(lambda layers, h, batch, size: pyg.global_mean_pool(h, batch, size)),
    "several aggregations": lambda: Grouped(
        aggregated, head=12, aggr=aggr.MultiAggregation(["sum", "mean", "max"])
    ),
    "attention": lambda: Grouped(aggregated, aggr=aggr.AttentionalAggregation(nn.Linear(4, 1))),
    "min": lambda: Grouped(lambda layers, h, batch, size: scatter(h, batch, 0, size, reduce="min")),
    "add": lambda: Grouped(lambda layers, h, batch, size: pyg.global_add_pool(h, batch, size)),
    "max": lambda: Grouped(lambda layers, h, batch, size: pyg.global_max_pool(h, batch, size)),
    "sum aggregation": lambda: Grouped(aggregated, aggr=aggr.SumAggregation()),
    "mean aggregation": lambda: Grouped(aggregated, aggr=aggr.MeanAggregation()),
    "max aggregation": lambda: Grouped(aggregated, aggr=aggr.MaxAggregation()),
    "softmax aggregation": lambda: Grouped(aggregated, aggr=aggr.SoftmaxAggregation(t=0.7)),
    "variance": lambda: Grouped(aggregated, aggr=aggr.VarAggregation()),
    "index_add": lambda: Grouped(added),
    "softmax and degree": lambda: Grouped(weighed),
}
"""Poolings by an argument ``batch``."""

OF_ALL = {
    "mean and max": lambda: Whole(lambda h: torch.cat([h.mean(0), h.amax(0)]), head=8),
    "add": lambda: Whole(lambda h: pyg.global_add_pool(h, None)),
    "mean": lambda: Whole(lambda h: pyg.global_mean_pool(h, None)),
    "max": lambda: Whole(lambda h: pyg.global_max_pool(h, None)),
    "sum over rows": lambda: Whole(lambda h: h.sum(dim=0)),
    "mean over rows": lambda: Whole(lambda h: h.mean(0)),
    "max over rows": lambda: Whole(lambda h: h.max(dim=0).values),
    "amin": lambda: Whole(lambda h: h.amin(0, keepdim=True)),
    "variance": lambda: Whole(lambda h: h.var(0, correction=0)),
    "attention": lambda: Whole(lambda h: (h * h.softmax(0)).sum(0)),
}
"""Poolings of all nodes."""
