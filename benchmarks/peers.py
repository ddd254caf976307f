"""What LiveGNN is measured against: three exact ways of keeping a two-layer SAGE fresh, in plain torch.

- `FullRecomputation`: PyG runs the whole model after every batch, on a CSR of the graph as it is now.
- `AffectedRecomputation`: layer by layer, only the nodes that a batch reaches are computed again, from all
  of their in-neighbours (RIPPLE, section 4.2, "layer-wise recompute").
- `Ripple`: RIPPLE's algorithm (section 4.3). Every node keeps its embeddings and the sum of its
  in-neighbours'; a batch sends deltas, new minus old, to the out-neighbours' mailboxes, hop by hop,
  strictly looking forward.

And against one way of keeping nothing: `NeighborhoodRecomputation` answers a query from the features of its
two-hop neighbourhood, with SAGE or GCN.

They are meant to be good, not to be props. All of them keep the graph in the same `Adjacency`, whose rows
have slack, so that nobody rebuilds a CSR to add an edge; aggregations run in torch's fastest kernels for
them (`embedding_bag`, `mm` of a CSR), with all of torch's threads; one event costs no more than the array
operations that it needs. Each state is float32.

A batch must not name a node or an edge twice, nor add an edge that exists, nor remove one that does not: what
`graphs.make_stream` yields. An undirected graph is one whose events count in both directions.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import GCNConv, SAGEConv

from graphs import Batch, Float32, Int64

Edges = tuple[Int64, Int64]


class SAGE(torch.nn.Module):
    """SAGE-mean with two layers and a ReLU between them."""

    def __init__(self, in_channels: int, hidden_channels: int, out_channels: int) -> None:
        super().__init__()
        self.conv1 = SAGEConv(in_channels, hidden_channels, aggr="mean")
        self.conv2 = SAGEConv(hidden_channels, out_channels, aggr="mean")

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = F.relu(self.conv1(x, edge_index))
        return self.conv2(x, edge_index)


class GCN(torch.nn.Module):
    """GCN with two layers and a ReLU between them; self-loops, symmetric norm."""

    def __init__(self, in_channels: int, hidden_channels: int, out_channels: int) -> None:
        super().__init__()
        self.conv1 = GCNConv(in_channels, hidden_channels)
        self.conv2 = GCNConv(hidden_channels, out_channels)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = F.relu(self.conv1(x, edge_index))
        return self.conv2(x, edge_index)


def make_model(in_channels: int, hidden_channels: int, out_channels: int, seed: int = 0) -> SAGE:
    """PyG's own initialisation, seeded, ready for inference."""
    torch.manual_seed(seed)
    return SAGE(in_channels, hidden_channels, out_channels).eval()


class Adjacency:
    """Neighbour lists in one pool, each with room to grow; a full list moves to the end of the pool."""

    def __init__(self, num_nodes: int, rows: Int64, cols: Int64) -> None:
        self.length = np.bincount(rows, minlength=num_nodes)
        self._capacity = self.length + np.maximum(4, self.length // 4)
        self._start = np.cumsum(self._capacity) - self._capacity
        self._end = int(self._capacity.sum())
        self._pool = np.empty(2 * self._end, np.int64)
        order = np.argsort(rows, kind="stable")
        self._pool[_expand(self._start, self.length)] = cols[order]

    def neighbors(self, rows: Int64) -> tuple[Int64, Int64]:
        """(how many neighbours each row has, the neighbours row after row)."""
        if len(rows) == 1:
            start, length = self._start[rows[0]], self.length[rows[0]]
            return self.length[rows], self._pool[start : start + length]
        lengths = self.length[rows]
        return lengths, self._pool[_expand(self._start[rows], lengths)]

    def csr(self) -> tuple[Int64, Int64]:
        """The whole graph as (rowptr, col)."""
        return _rowptr(self.length).numpy(), self._pool[_expand(self._start, self.length)]

    def add(self, rows: Int64, cols: Int64) -> None:
        if len(rows) > 1:
            order = np.argsort(rows, kind="stable")
            rows, cols = rows[order], cols[order]
        touched, counts = np.unique(rows, return_counts=True)
        full = self.length[touched] + counts > self._capacity[touched]
        if full.any():
            self._move(touched[full], 2 * (self.length[touched[full]] + counts[full]))
        self._pool[_expand(self._start[touched] + self.length[touched], counts)] = cols
        self.length[touched] += counts

    def remove(self, rows: Int64, cols: Int64) -> None:
        if len(rows) == 1:
            row = rows[0]
            start = self._start[row]
            end = start + self.length[row]
            place = start + np.flatnonzero(self._pool[start:end] == cols[0])[0]
            self._pool[place] = self._pool[end - 1]
            self.length[row] -= 1
            return
        order = np.argsort(rows, kind="stable")
        rows, cols = rows[order], cols[order]
        slots = _expand(self._start[rows], self.length[rows])
        places = slots[self._pool[slots] == np.repeat(cols, self.length[rows])]
        # What is left of each row's tail fills the holes in front of it.
        touched, counts = np.unique(rows, return_counts=True)
        self.length[touched] -= counts
        self._pool[places] = -1
        tail = self._pool[_expand(self._start[touched] + self.length[touched], counts)]
        holes = places[places < self._start[rows] + self.length[rows]]
        self._pool[holes] = tail[tail >= 0]

    def _move(self, rows: Int64, capacity: Int64) -> None:
        start = self._end + np.cumsum(capacity) - capacity
        self._end += int(capacity.sum())
        if self._end > len(self._pool):
            self._pool = np.concatenate([self._pool, np.empty(self._end, np.int64)])
        lengths = self.length[rows]
        self._pool[_expand(start, lengths)] = self._pool[_expand(self._start[rows], lengths)]
        self._start[rows] = start
        self._capacity[rows] = capacity


@dataclass(frozen=True)
class Work:
    """What a batch made necessary: the edge messages of each layer, and the nodes that each layer reached."""

    edge_events: int
    features: int
    messages: tuple[int, int]
    affected: tuple[int, int]


class Peer(Protocol):
    name: str
    hidden: Tensor
    output: Tensor

    def apply(self, batch: Batch) -> Work | None:
        """Bring `hidden` and `output` up to date; what it took, if the peer counts it."""


class FullRecomputation:
    """PyG's forward pass over the whole graph, given as a torch CSR, the fastest form it takes on a CPU."""

    name = "PyG, all nodes"

    def __init__(self, model: SAGE, x: Float32, src: Int64, dst: Int64, undirected: bool) -> None:
        self._model = model
        self._x = torch.from_numpy(x.copy())
        self._undirected = undirected
        self._in = Adjacency(len(x), *_mirror(dst, src, undirected))
        self._recompute()

    def apply(self, batch: Batch) -> None:
        self._in.remove(*_mirror(batch.remove_dst, batch.remove_src, self._undirected))
        self._in.add(*_mirror(batch.add_dst, batch.add_src, self._undirected))
        self._x[torch.from_numpy(batch.ids)] = torch.from_numpy(batch.x)
        self._recompute()

    @torch.inference_mode()
    def _recompute(self) -> None:
        adj_t = csr_tensor(*self._in.csr())
        self.hidden = F.relu(self._model.conv1(self._x, adj_t))
        self.output = self._model.conv2(self.hidden, adj_t)


class AffectedRecomputation:
    """The affected nodes of each layer, found by looking forward and computed by looking back."""

    name = "torch, affected nodes"

    def __init__(self, model: SAGE, x: Float32, src: Int64, dst: Int64, undirected: bool) -> None:
        start = FullRecomputation(model, x, src, dst, undirected)
        self.hidden, self.output = start.hidden.clone(), start.output.clone()
        self._layers = _weights(model)
        self._x = torch.from_numpy(x.copy())
        self._undirected = undirected
        self._in = Adjacency(len(x), *_mirror(dst, src, undirected))
        # Of an undirected graph, in- and out-neighbours are the same lists.
        self._out = self._in if undirected else Adjacency(len(x), src, dst)

    def apply(self, batch: Batch) -> Work:
        _, targets = _mirror(*_edges(batch), self._undirected)
        _update(batch, self._in, self._out, self._undirected)
        self._x[torch.from_numpy(batch.ids)] = torch.from_numpy(batch.x)
        n = len(self._x)
        first = _distinct(n, targets, batch.ids, self._out.neighbors(batch.ids)[1])
        messages_first = self._recompute(0, first, self._x, self.hidden)
        second = _distinct(n, targets, first, self._out.neighbors(first)[1])
        messages_second = self._recompute(1, second, self.hidden, self.output)
        return Work(
            len(targets), len(batch.ids), (messages_first, messages_second), (len(first), len(second))
        )

    def _recompute(self, layer: int, nodes: Int64, inputs: Tensor, outputs: Tensor) -> int:
        lengths, neighbors = self._in.neighbors(nodes)
        index, bags, col = torch.from_numpy(nodes), _rowptr(lengths), torch.from_numpy(neighbors)
        for block in _blocks(len(nodes)):
            mean = _aggregate(inputs, col, bags, block, "mean")
            new = self._layers[layer](mean, inputs.index_select(0, index[block]))
            outputs[index[block]] = new.relu_() if layer == 0 else new
        return len(neighbors)


class Ripple:
    """Deltas sent forward.

    The mailbox of a node is its stored sum itself: a message is added where it would be added later anyway,
    which saves the passes that gather and empty mailboxes. An aggregate is kept as a sum; the mean is taken
    on reading, so that a changed degree costs nothing.
    """

    name = "torch, RIPPLE"

    def __init__(self, model: SAGE, x: Float32, src: Int64, dst: Int64, undirected: bool) -> None:
        start = FullRecomputation(model, x, src, dst, undirected)
        self.hidden, self.output = start.hidden.clone(), start.output.clone()
        self._layers = _weights(model)
        self._x = torch.from_numpy(x.copy())
        self._undirected = undirected
        in_edges = Adjacency(len(x), *_mirror(dst, src, undirected))
        adj_t = csr_tensor(*in_edges.csr())
        self._sums = (adj_t @ self._x, adj_t @ self.hidden)
        self._out = Adjacency(len(x), *_mirror(src, dst, undirected))
        self._in_degree = torch.from_numpy(in_edges.length)

    def apply(self, batch: Batch) -> Work:
        sources, targets = _mirror(*_edges(batch), self._undirected)
        signs = torch.from_numpy(_signs(batch, self._undirected))
        _update(batch, None, self._out, self._undirected)
        self._in_degree.index_add_(0, torch.from_numpy(targets), signs.long())
        edges = torch.from_numpy(sources), targets, signs.unsqueeze(1)
        ids = torch.from_numpy(batch.ids)

        new = torch.from_numpy(batch.x)
        reached, messages_first = self._send(0, self._x, edges, batch.ids, new - self._x.index_select(0, ids))
        self._x[ids] = new
        first = _distinct(len(self._x), batch.ids, reached)

        index = torch.from_numpy(first)
        new = self._compute(0, index, self._x).relu_()
        old = self.hidden.index_select(0, index)
        reached, messages_second = self._send(1, self.hidden, edges, first, new - old)
        self.hidden[index] = new
        second = _distinct(len(self._x), first, reached)

        index = torch.from_numpy(second)
        for block in _blocks(len(second)):
            self.output[index[block]] = self._compute(1, index[block], self.hidden)
        return Work(
            len(targets), len(batch.ids), (messages_first, messages_second), (len(first), len(second))
        )

    def _send(
        self, layer: int, old: Tensor, edges: tuple[Tensor, Int64, Tensor], changed: Int64, delta: Tensor
    ) -> tuple[Int64, int]:
        """Messages into the mailboxes of `layer`: the targets reached (some more than once), how many.

        An edge that came brings its source's old value and an edge that left takes it away; what changed in
        the value then travels along the edges as they are now.
        """
        sources, targets, signs = edges
        lengths, receivers = self._out.neighbors(changed)
        senders = np.repeat(np.arange(len(changed)), lengths)
        mailbox = self._sums[layer]
        if len(targets):
            mailbox.index_add_(0, torch.from_numpy(targets), old.index_select(0, sources) * signs)
        if len(receivers):
            _deliver(mailbox, torch.from_numpy(receivers), torch.from_numpy(senders), delta)
        return np.concatenate([targets, receivers]), len(targets) + len(receivers)

    def _compute(self, layer: int, nodes: Tensor, inputs: Tensor) -> Tensor:
        mean = self._sums[layer].index_select(0, nodes)
        mean /= self._in_degree.index_select(0, nodes).clamp_(min=1).unsqueeze(1)
        return self._layers[layer](mean, inputs.index_select(0, nodes))


class NeighborhoodRecomputation:
    """Keeps the graph and its features; a query computes its two-hop neighbourhood and nothing else.

    The first layer aggregates features (narrower than what they become), the second what its product has made
    narrow: the cheaper order of the two in each.
    """

    name = "torch, the query's neighbourhood"

    def __init__(self, model: SAGE | GCN, x: Float32, src: Int64, dst: Int64, undirected: bool) -> None:
        self._model = model
        self._x = torch.from_numpy(x.copy())
        self._undirected = undirected
        self._in = Adjacency(len(x), *_mirror(dst, src, undirected))
        self._place = np.zeros(len(x), np.int64)  # of a node among those of the first layer

    def apply(self, batch: Batch) -> None:
        self._in.remove(*_mirror(batch.remove_dst, batch.remove_src, self._undirected))
        self._in.add(*_mirror(batch.add_dst, batch.add_src, self._undirected))
        self._x[torch.from_numpy(batch.ids)] = torch.from_numpy(batch.x)

    @torch.inference_mode()
    def query(self, ids: Int64) -> Tensor:
        lengths, neighbors = self._in.neighbors(ids)
        first = _distinct(len(self._x), ids, neighbors)
        self._place[first] = np.arange(len(first))
        col, own = torch.from_numpy(self._place[neighbors]), torch.from_numpy(self._place[ids])
        bags = _rowptr(lengths)
        if isinstance(self._model, SAGE):
            return self._sage(self._model, torch.from_numpy(first), col, own, bags)
        return self._gcn(self._model, torch.from_numpy(first), col, own, bags)

    def _sage(self, model: SAGE, first: Tensor, col: Tensor, own: Tensor, bags: Tensor) -> Tensor:
        layer = _Layer(model.conv1)
        lengths, neighbors = self._in.neighbors(first.numpy())
        first_bags, first_col = _rowptr(lengths), torch.from_numpy(neighbors)
        hidden = torch.empty(len(first), model.conv1.out_channels)
        for block in _blocks(len(first)):
            mean = _aggregate(self._x, first_col, first_bags, block, "mean")
            hidden[block] = layer(mean, self._x.index_select(0, first[block])).relu_()
        projected = hidden @ model.conv2.lin_l.weight.t()
        mean = F.embedding_bag(col, projected, bags[:-1], mode="mean")
        return mean + model.conv2.lin_l.bias + hidden.index_select(0, own) @ model.conv2.lin_r.weight.t()

    def _gcn(self, model: GCN, first: Tensor, col: Tensor, own: Tensor, bags: Tensor) -> Tensor:
        lengths, neighbors = self._in.neighbors(first.numpy())
        degrees = torch.from_numpy(self._in.length[neighbors])
        norm = (degrees + 1).float().rsqrt_()
        first_norm = (torch.from_numpy(lengths) + 1).float().rsqrt_().unsqueeze(1)
        first_bags, first_col = _rowptr(lengths), torch.from_numpy(neighbors)
        weight, bias = model.conv1.lin.weight.t(), model.conv1.bias
        hidden = torch.empty(len(first), model.conv1.out_channels)
        for block in _blocks(len(first)):
            start, stop = int(first_bags[block.start]), int(first_bags[block.stop])
            total = F.embedding_bag(
                first_col[start:stop],
                self._x,
                first_bags[block] - start,
                mode="sum",
                per_sample_weights=norm[start:stop],
            )
            total.addcmul_(self._x.index_select(0, first[block]), first_norm[block]).mul_(first_norm[block])
            hidden[block] = torch.addmm(bias, total, weight).relu_()
        messages = (hidden @ model.conv2.lin.weight.t()).mul_(first_norm)
        total = F.embedding_bag(col, messages, bags[:-1], mode="sum") + messages.index_select(0, own)
        return total.mul_(first_norm.index_select(0, own)).add_(model.conv2.bias)


PEERS: tuple[type[FullRecomputation] | type[AffectedRecomputation] | type[Ripple], ...] = (
    FullRecomputation,
    AffectedRecomputation,
    Ripple,
)


def csr_tensor(rowptr: Int64, col: Int64) -> Tensor:
    """A square torch CSR of ones, as PyG takes it for `adj_t`."""
    size = (len(rowptr) - 1, len(rowptr) - 1)
    values = torch.ones(len(col))
    with warnings.catch_warnings():
        # torch calls its CSR a beta feature, once in a process.
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta", UserWarning)
        return torch.sparse_csr_tensor(
            torch.from_numpy(rowptr), torch.from_numpy(col), values, size, check_invariants=False
        )


class _Layer:
    """SAGEConv's two products on given rows, without PyG around them."""

    def __init__(self, conv: SAGEConv) -> None:
        self._neighbor = conv.lin_l.weight.detach().t()
        self._root = conv.lin_r.weight.detach().t()
        self._bias = conv.lin_l.bias.detach()

    def __call__(self, mean: Tensor, own: Tensor) -> Tensor:
        return torch.addmm(self._bias, mean, self._neighbor).addmm_(own, self._root)


def _weights(model: SAGE) -> tuple[_Layer, _Layer]:
    return _Layer(model.conv1), _Layer(model.conv2)


def _deliver(mailbox: Tensor, receivers: Tensor, senders: Tensor, delta: Tensor) -> None:
    """mailbox[receivers] += delta[senders]; from some size on, sorting by receiver is cheaper than a copy of
    each message."""
    if len(receivers) < 1000:
        mailbox.index_add_(0, receivers, delta.index_select(0, senders))
        return
    receivers, order = torch.sort(receivers)
    senders = senders.index_select(0, order)
    distinct, counts = torch.unique_consecutive(receivers, return_counts=True)
    bags = _rowptr(counts.numpy())
    for block in _blocks(len(distinct)):
        mailbox.index_add_(0, distinct[block], _aggregate(delta, senders, bags, block, "sum"))


def _blocks(count: int) -> list[slice]:
    """Rows are worked on in blocks whose intermediate results stay in the cache."""
    return [slice(first, min(first + 1024, count)) for first in range(0, count, 1024)]


def _rowptr(lengths: Int64) -> Tensor:
    rowptr = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=rowptr[1:])
    return torch.from_numpy(rowptr)


def _aggregate(values: Tensor, col: Tensor, rowptr: Tensor, rows: slice, mode: str) -> Tensor:
    """Sum or mean of values[col[rowptr[i]:rowptr[i + 1]]] for the rows i; of nothing, 0."""
    first, last = int(rowptr[rows.start]), int(rowptr[rows.stop])
    return F.embedding_bag(col[first:last], values, rowptr[rows] - first, mode=mode)


def _distinct(num_nodes: int, *parts: Int64) -> Int64:
    """The sorted union; a pass over a bitmap beats sorting from some size on."""
    nodes = np.concatenate(parts)
    if len(nodes) < 1000:
        return np.unique(nodes)
    seen = np.zeros(num_nodes, bool)
    seen[nodes] = True
    return np.flatnonzero(seen)


def _expand(start: Int64, lengths: Int64) -> Int64:
    """The ranges start[i] .. start[i] + lengths[i], one after the other."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) + np.repeat(start - ends + lengths, lengths)


def _mirror(rows: Int64, cols: Int64, undirected: bool) -> Edges:
    if not undirected:
        return rows, cols
    return np.concatenate([rows, cols]), np.concatenate([cols, rows])


def _edges(batch: Batch) -> Edges:
    return (
        np.concatenate([batch.remove_src, batch.add_src]),
        np.concatenate([batch.remove_dst, batch.add_dst]),
    )


def _signs(batch: Batch, undirected: bool) -> Float32:
    signs = np.ones(len(batch.remove_src) + len(batch.add_src), np.float32)
    signs[: len(batch.remove_src)] = -1
    return np.concatenate([signs, signs]) if undirected else signs


def _update(batch: Batch, incoming: Adjacency | None, outgoing: Adjacency, undirected: bool) -> None:
    """The batch's edges into the neighbour lists; an undirected graph has only one set of them."""
    if len(batch.remove_src):
        outgoing.remove(*_mirror(batch.remove_src, batch.remove_dst, undirected))
        if incoming is not None and incoming is not outgoing:
            incoming.remove(batch.remove_dst, batch.remove_src)
    if len(batch.add_src):
        outgoing.add(*_mirror(batch.add_src, batch.add_dst, undirected))
        if incoming is not None and incoming is not outgoing:
            incoming.add(batch.add_dst, batch.add_src)
