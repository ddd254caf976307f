"""One batch of edge changes through the models of NeutronRT's figures 7 and 8, beside full recomputation.

Two-layer models (128 -> 256 -> 40 on arxiv's shape, as in the paper's table III): GCN, GraphSAGE, GIN and
MoNet, which are incremental in every layer; AGNN and GAT (4 heads), which are constrained: a node whose own
row changed is computed from all its in-neighbours. So is GINe, which the paper does not have: GIN with
states of edges that the rows of both ends update between the layers. Batches are additions and removals of
edges in equal parts. For each batch size:

- time of `Engine.apply`, of the same engine when it may reuse embeddings but not aggregates (same kernels, so
  what is left is the paper's idea alone), and of PyG on the affected nodes' neighbourhoods, with and without
  kept embeddings (neighborhoods.py);
- edges and nodes read, and the part of RTEC-Full's that was redundant.

At last the means of GraphSAGE's rows over groups (one for 100 nodes; the largest has a tenth of all nodes),
beside the affected nodes and then all members of affected groups.

What a batch must cost: a batch of B edges (directed, in-degree 6.9 on average) reaches B rows in layer 1 and
about 8 B in layer 2. An incremental model reads B and 8 B messages of 256 and 40 floats; a constrained one
14 B more in layer 2, for the B nodes that changed themselves; the neighbourhoods of 8 B nodes hold some 60 B
edges in layer 2 and ten times that in layer 1, which is why RTEC-Full loses.
"""

from __future__ import annotations

import copy
import time
from argparse import Namespace

import numpy as np
import torch
from torch_geometric.nn import global_mean_pool

import livegnn as lg
from graphs import SHAPES, Batch, SyntheticGraph, UpdateStream, make, make_stream
from livegnn.graph import EdgeSchema, Schema
from livegnn.oracle.exactness import EXACTNESS, judge
from livegnn.types import DEFAULT_EDGE_TYPE, IntArray
from neighborhoods import (
    FEATURED,
    EmbeddingReuse,
    FullNeighborhood,
    GroupReuse,
    TwoLayers,
    WithEdgeFeatures,
    WithoutEdgeFeatures,
    edge_features,
    incremental_nodes,
    total,
)
from report import Report, arguments, memory_gib
from stopwatch import median_ms, time_each

KINDS = ("GCN", "GraphSAGE", "GIN", "MoNet", "AGNN", "GAT", "GINe")
CONSTRAINED = ("AGNN", "GAT", "GINe")
GROUPS = "groups"
MEMBERS = ("node", "in", "group")
HIDDEN = 256
BATCHES = {1: 300, 10: 100, 100: 30, 1000: 6}
QUICK_BATCHES = {10: 20, 100: 6}
DEFAULT_SHARE = 1e-4  # of the edges: the paper's batch for small graphs
RATIO_AIM, CONSTRAINED_AIM = 2.6, 2.0


def edges_only(batch: Batch) -> Batch:
    return batch._replace(ids=batch.ids[:0], x=batch.x[:0])


def events_of(batch: Batch, kind: str) -> lg.Events:
    """A batch as LiveGNN takes it."""
    events = lg.Events().remove_edges(batch.remove_src, batch.remove_dst)
    features = edge_features(batch.add_src, batch.add_dst) if kind in FEATURED else None
    return events.add_edges(batch.add_src, batch.add_dst, edge_attr=features)


def make_engine(kind: str, module: TwoLayers, stream: UpdateStream, threads: int) -> lg.Engine:
    graph = stream.graph
    columns = EdgeSchema(undirected=graph.undirected, edge_dim=2 if kind in FEATURED else 0)
    live = lg.Graph(Schema({"node": graph.num_features}, {DEFAULT_EDGE_TYPE: columns}))
    events = lg.Events().add_nodes(np.arange(graph.num_nodes), graph.x)
    features = edge_features(stream.start_src, stream.start_dst) if kind in FEATURED else None
    live.apply(events.add_edges(stream.start_src, stream.start_dst, edge_attr=features))
    whole = WithEdgeFeatures(module) if kind in FEATURED else WithoutEdgeFeatures(module)
    return lg.Engine(live, lg.Model.from_pyg(whole, in_channels=graph.num_features), threads=threads)


def run_kind(report: Report, kind: str, graph: SyntheticGraph, options: Namespace) -> None:
    """All batch sizes, one after the other; every competitor sees the same stream."""
    counts = QUICK_BATCHES if options.quick else BATCHES
    clock = time.process_time if options.cpu_time else time.perf_counter
    events = sum(size * (count + 1) for size, count in counts.items())
    stream = make_stream(graph, events + -events % 3)
    torch.manual_seed(0)
    module = TwoLayers(kind, graph.num_features, HIDDEN, graph.num_classes).eval()
    engines = [make_engine(kind, module, stream, options.threads) for _ in range(2)]
    engines[1].native_engine.set_recompute(True)
    given = (graph.x, stream.start_src, stream.start_dst, graph.undirected)
    full, reuse = (
        FullNeighborhood(copy.deepcopy(module), *given),
        EmbeddingReuse(copy.deepcopy(module), *given),
    )
    constrained = kind in CONSTRAINED

    start, worst = 0, 0.0
    for size, timed in counts.items():
        report.console.print(f"{graph.name}, {kind}, batches of {size:,}", style="dim")
        count = timed + 1  # the first warms up
        name = f"{kind}, batch {size}"
        batches = [edges_only(batch) for batch in stream.batches(size, count, start)]
        built = [events_of(batch, kind) for batch in batches]
        seconds, works = time_each(lambda events: work_of(engines[0], events), built, clock=clock)
        own_seconds, own_works = time_each(lambda events: work_of(engines[1], events), built, clock=clock)
        peers = {}
        for peer in (reuse, full):
            peers[peer.name] = time_each(
                peer.apply, batches, at_least=3, budget_s=options.peer_seconds, clock=clock
            )
            done = len(peers[peer.name][0]) + 1
            if done < count:
                peer.apply(edges_only(stream.batch(start + size * done, start + size * count)))
        start += size * count

        ids = np.random.default_rng(size).choice(graph.num_nodes, min(2000, graph.num_nodes), replace=False)
        expected = full.predict(ids)
        for found in (*(torch.from_numpy(engine.predict(ids)) for engine in engines), reuse.predict(ids)):
            worst = max(worst, judge(found.numpy(), expected.numpy()).of_scale)

        ms = median_ms(seconds)
        full_seconds, full_results = peers[full.name]
        default = size == round(DEFAULT_SHARE * stream.graph.num_edges, -2) and not options.quick
        aim = (CONSTRAINED_AIM if constrained else RATIO_AIM) if default else None
        report.add(f"{name}: median", ms, "ms", peer=full.name, peer_value=median_ms(full_seconds))
        report.add(
            f"{name}: times as fast as RTEC-Full",
            median_ms(full_seconds) / ms,
            "x",
            higher_is_better=True,
            aim=aim,
        )
        report.add(
            f"{name}: times as fast as RTEC-UER",
            median_ms(peers[reuse.name][0]) / ms,
            "x",
            higher_is_better=True,
        )
        report.add(
            f"{name}: times as fast as this engine without aggregates",
            median_ms(own_seconds) / ms,
            "x",
            higher_is_better=True,
        )
        edges = float(np.mean([work.edges for work in works]))
        own_edges = float(np.mean([work.edges for work in own_works]))
        full_access = [total(access) for _, _, access in full_results]
        full_edges = float(np.mean([access.edges for access in full_access]))
        full_nodes = float(np.mean([access.nodes for access in full_access]))
        nodes = float(
            np.mean([incremental_nodes(full, batch, constrained) for batch in batches[: len(full_access)]])
        )
        report.add(f"{name}: edges read", edges, "edges", peer="RTEC-Full", peer_value=full_edges)
        report.add(f"{name}: edges read with embeddings reused alone", own_edges, "edges")
        report.add(f"{name}: nodes read", nodes, "nodes", peer="RTEC-Full", peer_value=full_nodes)
        report.add(f"{name}: edges that RTEC-Full reads needlessly", 100 * (1 - edges / full_edges), "%")
        report.add(f"{name}: nodes that RTEC-Full reads needlessly", 100 * (1 - nodes / full_nodes), "%")
    report.add(f"{kind}: max difference", worst, "of scale", aim=EXACTNESS)


class Means(torch.nn.Module):
    """The mean of each group's rows."""

    def __init__(self, module: TwoLayers) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        return global_mean_pool(self.module(x, edge_index), batch)


def draw_groups(nodes: int) -> IntArray:
    """The group of each node: a tenth of them are in the first, the others are spread evenly."""
    random = np.random.default_rng(0)
    groups = random.integers(0, max(2, nodes // 100), nodes)
    groups[random.random(nodes) < 0.1] = 0
    return groups


def make_grouped_engine(module: TwoLayers, stream: UpdateStream, groups: IntArray, threads: int) -> lg.Engine:
    graph = stream.graph
    edges = {DEFAULT_EDGE_TYPE: EdgeSchema(undirected=graph.undirected), MEMBERS: EdgeSchema()}
    live = lg.Graph(Schema({"node": graph.num_features, "group": 0}, edges))
    nodes = np.arange(graph.num_nodes)
    events = lg.Events().add_nodes(nodes, graph.x, node_type="node")
    events.add_nodes(np.arange(groups.max() + 1), node_type="group").add_edges(
        nodes, groups, edge_type=MEMBERS
    )
    live.apply(events.add_edges(stream.start_src, stream.start_dst, edge_type=DEFAULT_EDGE_TYPE))
    model = lg.Model.from_pyg(Means(module), in_channels=graph.num_features, groups={"batch": MEMBERS})
    return lg.Engine(live, model, threads=threads)


def typed(batch: Batch) -> lg.Events:
    events = lg.Events().remove_edges(batch.remove_src, batch.remove_dst, edge_type=DEFAULT_EDGE_TYPE)
    return events.add_edges(batch.add_src, batch.add_dst, edge_type=DEFAULT_EDGE_TYPE)


def run_groups(report: Report, graph: SyntheticGraph, options: Namespace) -> None:
    """Means over groups, beside affected nodes and all members of their groups."""
    counts = QUICK_BATCHES if options.quick else BATCHES
    clock = time.process_time if options.cpu_time else time.perf_counter
    events = sum(size * (count + 1) for size, count in counts.items())
    stream = make_stream(graph, events + -events % 3)
    torch.manual_seed(0)
    module = TwoLayers("GraphSAGE", graph.num_features, HIDDEN, graph.num_classes).eval()
    groups = draw_groups(graph.num_nodes)
    engine = make_grouped_engine(module, stream, groups, options.threads)
    given = (graph.x, stream.start_src, stream.start_dst, graph.undirected)
    peer = GroupReuse(EmbeddingReuse(copy.deepcopy(module), *given), groups)
    start = 0
    for size, timed in counts.items():
        report.console.print(f"{graph.name}, means of groups, batches of {size:,}", style="dim")
        batches = [edges_only(batch) for batch in stream.batches(size, timed + 1, start)]
        seconds, _ = time_each(engine.apply, [typed(batch) for batch in batches], clock=clock)
        peer_seconds, _ = time_each(peer.apply, batches, clock=clock)
        start += size * (timed + 1)
        name, ms, peer_ms = f"means of groups, batch {size}", median_ms(seconds), median_ms(peer_seconds)
        report.add(f"{name}: median", ms, "ms", peer=peer.name, peer_value=peer_ms)
    all_groups = np.arange(groups.max() + 1)
    found = judge(engine.predict(all_groups), peer.predict(all_groups).numpy()).of_scale
    report.add("means of groups: max difference", found, "of scale", aim=EXACTNESS)


def work_of(engine: lg.Engine, events: lg.Events) -> lg.Work:
    engine.apply(events)
    return engine.last_work


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--shape", choices=SHAPES, help="default: arxiv, or arxiv-tenth with --quick")
    parser.add_argument(
        "--symmetric", action="store_true", help="the graph with both directions of its edges"
    )
    parser.add_argument("--models", nargs="+", choices=(*KINDS, GROUPS), default=(*KINDS, GROUPS))
    parser.add_argument("--threads", type=int, default=2, help="of LiveGNN, and of torch (default: 2)")
    parser.add_argument("--peer-seconds", type=float, help="for a peer and a batch size (default: 20)")
    parser.add_argument(
        "--cpu-time", action="store_true", help="time of the processor: on a machine that others use too"
    )
    options = parser.parse_args()
    options.shape = options.shape or ("arxiv-tenth" if options.quick else "arxiv")
    options.peer_seconds = options.peer_seconds or (1.0 if options.quick else 20.0)
    torch.set_num_threads(options.threads)

    graph = make(options.shape, symmetric=options.symmetric)
    kind = "symmetric" if options.symmetric else "directed"
    report = Report(f"models, {options.shape}, {kind}, {options.threads} threads")
    form = SHAPES[options.shape]
    needed = 4 * form.nodes * (2 * form.features + 16 * HIDDEN) / 2**30
    if needed > memory_gib():
        report.could_not_run(
            options.shape, f"needs some {needed:.0f} GiB, this machine has {memory_gib():.0f}"
        )
    else:
        for model in options.models:
            if model == GROUPS:
                run_groups(report, graph, options)
            else:
                run_kind(report, model, graph, options)
    report.note("Edges: messages computed. Nodes: rows read, each once a layer and batch.")
    report.note("Aims are the paper's least ratios, for its batch of 0.01 % of the edges.")
    report.finish(options.json)


if __name__ == "__main__":
    main()
