"""What LiveGNN is measured against where the model is not SAGE: PyG's own layers, run on neighbourhoods.

Both peers compute a batch's affected nodes exactly, from all their in-neighbours; they differ in what they
reuse (NeutronRT, section III):

- `FullNeighborhood` (RTEC-Full) keeps nothing but features: for the nodes whose prediction a batch reaches it
  computes their whole neighbourhood, layer by layer.
- `EmbeddingReuse` (RTEC-UER, λGrapher) keeps all hidden rows and computes those of affected nodes again.

A layer runs in PyG on the block of edges that lead to the nodes that are wanted, a chunk of targets at a
time, in PyG's bipartite form `(x, x_target)` where it has one, so that nothing is computed for a source
that only its message needs. GCNConv and AGNNConv have none: they make a row, of zeros, for each source, but
loops are added to targets alone. The graph is the same `Adjacency` that the other peers use. Batches change
edges alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric import nn as pyg

from graphs import Batch, Float32, Int64
from peers import Adjacency, _distinct, _edges, _mirror, _update

CHUNK = 8192  # targets at a time, as in the paper
BIPARTITE = ("GraphSAGE", "GIN", "GAT", "MoNet", "GINe")  # kinds whose PyG layers take (x, x_target)
FEATURED = ("MoNet", "GINe")
"""Kinds that read features of edges."""
STATES = 16  # numbers of an edge between two layers of GINe


class TwoLayers(nn.Module):
    """Two convolutions with a ReLU between; AGNN's, which have no weights, between two linear layers."""

    def __init__(self, kind: str, in_channels: int, hidden: int, out_channels: int) -> None:
        super().__init__()
        self.kind = kind
        self.enter: nn.Module = nn.Identity()
        self.leave: nn.Module = nn.Identity()
        if kind == "AGNN":
            self.enter, self.leave = nn.Linear(in_channels, hidden), nn.Linear(hidden, out_channels)
            self.conv1, self.conv2 = pyg.AGNNConv(), pyg.AGNNConv()
        elif kind == "GIN":
            self.conv1 = pyg.GINConv(nn.Linear(in_channels, hidden))
            self.conv2 = pyg.GINConv(nn.Linear(hidden, out_channels))
        elif kind == "GAT":
            self.conv1 = pyg.GATConv(in_channels, hidden // 4, heads=4)
            self.conv2 = pyg.GATConv(hidden, out_channels)
        elif kind == "MoNet":
            self.conv1 = pyg.GMMConv(in_channels, hidden, dim=2, kernel_size=2)
            self.conv2 = pyg.GMMConv(hidden, out_channels, dim=2, kernel_size=2)
        elif kind == "GINe":
            self.conv1 = pyg.GINEConv(nn.Linear(in_channels, hidden), edge_dim=2)
            self.conv2 = UpdatedEdges(hidden, out_channels)
        else:
            layer = {"GCN": pyg.GCNConv, "GraphSAGE": pyg.SAGEConv}[kind]
            self.conv1, self.conv2 = layer(in_channels, hidden), layer(hidden, out_channels)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        given = (edge_index,) if edge_attr is None else (edge_index, edge_attr)
        h = self.conv1(self.enter(x), *given).relu()
        return self.leave(self.conv2(h, *given))


class UpdatedEdges(nn.Module):
    """A GINEConv on states of edges, which are computed of the rows of both ends and the edge's features."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.update = nn.Linear(2 * in_channels + 2, STATES)
        self.conv = pyg.GINEConv(nn.Linear(in_channels, out_channels), edge_dim=STATES)

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor],
        edge_index: Tensor,
        edge_attr: Tensor,
        size: tuple[int, int] | None = None,
    ) -> Tensor:
        source, target = x if isinstance(x, tuple) else (x, x)
        ends = [source[edge_index[0]], target[edge_index[1]], edge_attr]
        states = self.update(torch.cat(ends, dim=-1)).relu()
        return self.conv(x, edge_index, states, size=size)


class WithoutEdgeFeatures(nn.Module):
    """The same module, called as those are that know nothing of the edges' features."""

    def __init__(self, module: TwoLayers) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.module(x, edge_index)


class WithEdgeFeatures(nn.Module):
    def __init__(self, module: TwoLayers) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        return self.module(x, edge_index, edge_attr)


def edge_features(src: Int64, dst: Int64) -> Float32:
    """Two numbers an edge, a function of its ends that is the same in both directions: nobody has to keep
    them."""
    low, high = np.minimum(src, dst).astype(np.float64), np.maximum(src, dst).astype(np.float64)
    return np.stack([np.sin(low * 0.7 + high), np.cos(low - high * 1.3)], axis=1).astype(np.float32)


@dataclass(frozen=True)
class Access:
    """What a batch read: edges, one for each message, and nodes, each once a layer."""

    edges: int
    nodes: int


class Neighborhoods:
    """What both peers have in common: the graph, what a batch reaches, a layer on a block of edges."""

    def __init__(self, module: TwoLayers, x: Float32, src: Int64, dst: Int64, undirected: bool) -> None:
        self._module = module
        self.undirected = undirected
        self.in_edges = Adjacency(len(x), *_mirror(dst, src, undirected))
        self.out_edges = self.in_edges if undirected else Adjacency(len(x), src, dst)
        self.num_nodes = len(x)
        self._place = np.zeros(len(x), np.int64)
        self._wanted = np.zeros(len(x), bool)
        self.degrees_matter = module.kind == "GCN"
        with torch.inference_mode():
            self._x = module.enter(torch.from_numpy(x))
        for conv in (module.conv1, module.conv2):
            if self.degrees_matter:
                conv.normalize = False
            elif module.kind == "AGNN":
                conv.add_self_loops = False

    def reach(self, batch: Batch) -> tuple[Int64, Int64]:
        """The graph as it is after a batch; and the nodes that it reaches in each layer."""
        n = len(self._x)
        _, targets = _mirror(*_edges(batch), self.undirected)
        _update(batch, self.in_edges, self.out_edges, self.undirected)
        first = _distinct(n, targets)
        if self.degrees_matter:  # a degree is part of all messages of its node
            first = _distinct(n, first, self.out_edges.neighbors(first)[1])
        second = _distinct(n, targets, first, self.out_edges.neighbors(first)[1])
        return first, second

    @torch.inference_mode()
    def run(self, layer: int, nodes: Int64, inputs: Tensor, access: list[Access]) -> Tensor:
        """A layer's output for some nodes."""
        conv = (self._module.conv1, self._module.conv2)[layer]
        parts = []
        for start in range(0, len(nodes), CHUNK):
            targets = nodes[start : start + CHUNK]
            lengths, sources = self.in_edges.neighbors(targets)
            ends = np.repeat(targets, lengths)
            needed = self._order(targets, sources)
            edge_index = torch.from_numpy(np.stack([self._place[sources], self._place[ends]]))
            x = inputs[torch.from_numpy(needed)]
            given: dict[str, Tensor | tuple[int, int]] = {}
            if self._module.kind in BIPARTITE:
                given["size"] = (len(needed), len(targets))
                if self._module.kind in FEATURED:
                    given["edge_attr"] = torch.from_numpy(edge_features(sources, ends))
                rows = conv((x, x[: len(targets)]), edge_index, **given)
            else:
                loops = torch.arange(len(targets)).expand(2, -1)
                edge_index = torch.cat([edge_index, loops], dim=1)
                if self.degrees_matter:
                    given["edge_weight"] = self._normalized(needed, edge_index)
                rows = conv(x, edge_index, **given)[: len(targets)]
            parts.append(rows.relu_() if layer == 0 else self._module.leave(rows))
            access.append(Access(len(sources), len(needed)))
        return torch.cat(parts) if parts else torch.empty(0, 0)

    def _order(self, targets: Int64, sources: Int64) -> Int64:
        """The nodes of a block, targets first; each one's place among them is in `_place`."""
        needed = _distinct(len(self._x), targets, sources)
        self._wanted[targets] = True
        needed = np.concatenate([targets, needed[~self._wanted[needed]]])
        self._wanted[targets] = False
        self._place[needed] = np.arange(len(needed))
        return needed

    def _normalized(self, needed: Int64, edge_index: Tensor) -> Tensor:
        """GCN's coefficients need the degrees of sources whose in-edges are not in the block."""
        scale = torch.from_numpy((self.in_edges.length[needed] + 1.0) ** -0.5).float()
        return scale[edge_index[0]] * scale[edge_index[1]]

    def _whole(self, nodes: Int64, access: list[Access]) -> Tensor:
        """The predictions of some nodes, from features alone."""
        inner = _distinct(self.num_nodes, nodes, self.in_edges.neighbors(nodes)[1])
        hidden = self.run(0, inner, self._x, access)
        rows = torch.empty(self.num_nodes, hidden.shape[1])
        rows[torch.from_numpy(inner)] = hidden
        return self.run(1, nodes, rows, access)


class FullNeighborhood(Neighborhoods):
    name = "PyG, neighbourhoods (RTEC-Full)"

    def apply(self, batch: Batch) -> tuple[Int64, Tensor, list[Access]]:
        """(affected nodes, their predictions, what was read)."""
        access: list[Access] = []
        _, second = self.reach(batch)
        return second, self._whole(second, access), access

    def predict(self, nodes: Int64) -> Tensor:
        return self._whole(nodes, [])


class EmbeddingReuse(Neighborhoods):
    name = "PyG, affected nodes (RTEC-UER)"

    def __init__(self, module: TwoLayers, x: Float32, src: Int64, dst: Int64, undirected: bool) -> None:
        super().__init__(module, x, src, dst, undirected)
        self._hidden = self.run(0, np.arange(len(x)), self._x, []).clone()

    def apply(self, batch: Batch) -> tuple[Int64, Tensor, list[Access]]:
        access: list[Access] = []
        first, second = self.reach(batch)
        if len(first):
            self._hidden[torch.from_numpy(first)] = self.run(0, first, self._x, access)
        return second, self.run(1, second, self._hidden, access), access

    def predict(self, nodes: Int64) -> Tensor:
        return self.run(1, nodes, self._hidden, [])


class GroupReuse:
    """What LiveGNN's groups are measured against: all rows of nodes are kept, and the mean of a group is
    computed again from all its members when a row of one of them changed."""

    name = "PyG, affected groups of affected nodes"

    def __init__(self, nodes: EmbeddingReuse, groups: Int64) -> None:
        self._nodes = nodes
        self._rows = nodes.predict(np.arange(nodes.num_nodes)).clone()
        self._groups = groups
        self._members = Adjacency(int(groups.max()) + 1, groups, np.arange(len(groups)))

    def apply(self, batch: Batch) -> tuple[Int64, Tensor]:
        """(affected groups, their means)."""
        changed, rows, _ = self._nodes.apply(batch)
        if len(changed):
            self._rows[torch.from_numpy(changed)] = rows
        affected = np.unique(self._groups[changed])
        return affected, self.predict(affected)

    @torch.inference_mode()
    def predict(self, groups: Int64) -> Tensor:
        lengths, members = self._members.neighbors(groups)
        places = torch.from_numpy(np.repeat(np.arange(len(groups)), lengths))
        return pyg.global_mean_pool(self._rows[torch.from_numpy(members)], places, len(groups))


def total(access: list[Access]) -> Access:
    return Access(sum(a.edges for a in access), sum(a.nodes for a in access))


def incremental_nodes(peer: Neighborhoods, batch: Batch, constrained: bool) -> int:
    """Nodes that the incremental computation of a batch reads, each once a layer, on the graph after it."""
    n = peer.num_nodes
    sources, targets = _mirror(*_edges(batch), peer.undirected)
    changed = _distinct(n, targets) if peer.degrees_matter else np.empty(0, np.int64)
    first = _distinct(n, sources, targets, changed, peer.out_edges.neighbors(changed)[1])
    reached = _distinct(n, targets, changed, peer.out_edges.neighbors(changed)[1])
    second = _distinct(n, sources, reached, peer.out_edges.neighbors(reached)[1])
    if constrained:  # a node whose own row changed reads all its neighbours in the second layer
        second = _distinct(n, second, peer.in_edges.neighbors(reached)[1])
    return len(first) + len(second)
