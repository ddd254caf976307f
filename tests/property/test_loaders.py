"""Batches of PyG's loaders on random live graphs, held against the graph as dictionaries and, where
everything is drawn, against PyG's own k-hop subgraphs."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import HeteroData
from torch_geometric.loader import LinkLoader, NodeLoader
from torch_geometric.sampler import NegativeSampling
from torch_geometric.utils import k_hop_subgraph

import livegnn as lg
from livegnn.training import LiveFeatureStore, LiveGraphStore, LiveSampler, add_edge_attributes
from livegnn.types import EdgeType

FOLLOWS: EdgeType = ("user", "follows", "user")
BUYS: EdgeType = ("user", "buys", "item")
BOUGHT: EdgeType = ("item", "bought by", "user")
ALIKE: EdgeType = ("item", "alike", "item")


class Network(NamedTuple):
    """A graph after some changes, and its edges in the direction of their messages: (source, target) ->
    weight. A node's feature is its id, an edge's its weight doubled."""

    graph: lg.Graph
    nodes: dict[str, list[int]]
    edges: dict[EdgeType, dict[tuple[int, int], float]]

    def sources(self, edge_type: EdgeType, target: int) -> list[int]:
        return [u for u, v in self.edges[edge_type] if v == target]


@st.composite
def networks(draw: st.DrawFn, schema: lg.Schema) -> Network:
    graph = lg.Graph(schema)
    nodes: dict[str, list[int]] = {name: [] for name in schema.node_types}
    edges: dict[EdgeType, dict[tuple[int, int], float]] = {name: {} for name in schema.edge_types}
    ids = st.integers(0, 11).map(lambda i: 7 * i + 3)
    for _ in range(draw(st.integers(1, 3))):
        events = lg.Events()
        for name, some in nodes.items():
            gone = draw(st.sets(st.sampled_from(some), max_size=3)) if len(some) > 3 else set()
            if gone:
                events.remove_nodes(sorted(gone), node_type=name)
            come = draw(st.sets(ids, min_size=1, max_size=8))
            events.add_nodes(sorted(come), [[i] for i in sorted(come)], node_type=name)
            nodes[name] = sorted(come | set(some) - gone)
            for edge_type, known in edges.items():
                for ends in [e for e in known if (edge_type[0] == name and e[0] in gone) or
                             (edge_type[2] == name and e[1] in gone)]:  # fmt: skip
                    del known[ends]
        for edge_type, known in edges.items():
            source, _, target = edge_type
            ends = st.tuples(st.sampled_from(nodes[source]), st.sampled_from(nodes[target]))
            for (u, v), weight in draw(st.dictionaries(ends, st.integers(1, 9), max_size=25)).items():
                events.add_edges(u, v, weight=weight, edge_attr=[[2 * weight]], edge_type=edge_type)
                known[u, v] = weight
                if schema.edge_types[edge_type].undirected:
                    known[v, u] = weight
        graph.apply(events)
    return Network(graph, nodes, edges)


def schema_of(*edge_types: EdgeType, undirected: Sequence[EdgeType] = ()) -> lg.Schema:
    nodes = {name for source, _, target in edge_types for name in (source, target)}
    return lg.Schema(
        dict.fromkeys(sorted(nodes), 1),
        {
            name: lg.EdgeSchema(weighted=True, edge_dim=1, undirected=name in undirected)
            for name in edge_types
        },
    )


def stores(graph: lg.Graph) -> tuple[LiveFeatureStore, LiveGraphStore]:
    return LiveFeatureStore(graph), LiveGraphStore(graph)


HETERO = schema_of(FOLLOWS, BUYS, BOUGHT, ALIKE, undirected=[ALIKE])
fan_outs = st.lists(st.integers(-1, 3), min_size=1, max_size=3)


def edges_of(batch: HeteroData, edge_type: EdgeType) -> list[tuple[int, int]]:
    """Ids of the ends."""
    source, _, target = edge_type
    row, col = batch[edge_type].edge_index
    return list(zip(batch[source].n_id[row].tolist(), batch[target].n_id[col].tolist(), strict=True))


def check_columns(network: Network, batch: HeteroData) -> None:
    """Every node has its features, every edge exists, once, and has its weight and features."""
    for name in network.nodes:
        assert len(batch[name].n_id.unique()) == len(batch[name].n_id)
        assert batch[name].x[:, 0].tolist() == batch[name].n_id.tolist()
    for edge_type, known in network.edges.items():
        pairs = edges_of(batch, edge_type)
        assert len(set(pairs)) == len(pairs)
        assert batch[edge_type].edge_weight.tolist() == [known[ends] for ends in pairs]
        assert batch[edge_type].edge_attr[:, 0].tolist() == [2 * known[ends] for ends in pairs]


def check_hops(network: Network, batch: HeteroData, counts: dict[EdgeType, list[int]]) -> None:
    """Hop h draws as many as asked for, or all there are, for each node that the hop before brought in."""
    nodes, edges = batch.num_sampled_nodes_dict, batch.num_sampled_edges_dict
    for name in network.nodes:
        assert sum(nodes[name]) == len(batch[name].n_id)
    for edge_type, hops in counts.items():
        target = edge_type[2]
        pairs = edges_of(batch, edge_type)
        assert sum(edges[edge_type]) == len(pairs)
        begin = first = 0
        for hop, count in enumerate(hops):
            frontier = batch[target].n_id[first : first + nodes[target][hop]].tolist()
            drawn = Counter(v for _, v in pairs[begin : begin + edges[edge_type][hop]])
            degrees = {v: len(network.sources(edge_type, v)) for v in frontier}
            expected = {v: degree if count < 0 else min(degree, count) for v, degree in degrees.items()}
            assert drawn == Counter(expected)
            begin += edges[edge_type][hop]
            first += nodes[target][hop]


@given(st.data())
def test_homogeneous_batches(data: st.DataObject) -> None:
    schema = schema_of(FOLLOWS, undirected=data.draw(st.sampled_from([[], [FOLLOWS]])))
    network = data.draw(networks(schema))
    seeds = data.draw(st.lists(st.sampled_from(network.nodes["user"]), unique=True, min_size=1))
    counts = data.draw(fan_outs)
    size = data.draw(st.integers(1, 5))
    graph = network.graph
    loader = NodeLoader(
        stores(graph), LiveSampler(graph, counts), torch.tensor(seeds),
        transform=add_edge_attributes, batch_size=size,
    )  # fmt: skip
    seen = 0
    for batch in loader:
        assert batch.n_id[: batch.batch_size].tolist() == seeds[seen : seen + size]
        assert batch.input_id.tolist() == list(range(seen, min(seen + size, len(seeds))))
        as_hetero = batch.to_heterogeneous(node_type_names=["user"], edge_type_names=[FOLLOWS])
        as_hetero["user"].num_sampled_nodes = batch.num_sampled_nodes
        as_hetero[FOLLOWS].num_sampled_edges = batch.num_sampled_edges
        check_columns(network, as_hetero)
        check_hops(network, as_hetero, {FOLLOWS: counts})
        seen += batch.batch_size
        if set(counts) == {-1}:
            check_k_hops(
                batch.n_id, set(edges_of(as_hetero, FOLLOWS)), batch.batch_size, len(counts), network
            )
    assert seen == len(seeds)


def check_k_hops(
    nodes: Tensor, pairs: set[tuple[int, int]], num_seeds: int, hops: int, network: Network
) -> None:
    every = torch.tensor([*network.edges[FOLLOWS]], dtype=torch.long).view(-1, 2).t()
    subset, _, _, mask = k_hop_subgraph(nodes[:num_seeds], hops, every, num_nodes=100, directed=True)
    assert set(nodes.tolist()) == set(subset.tolist())
    assert pairs == set(map(tuple, every[:, mask].t().tolist()))


@given(st.data())
def test_heterogeneous_batches(data: st.DataObject) -> None:
    network = data.draw(networks(HETERO))
    graph = network.graph
    kind = data.draw(st.sampled_from(["user", "item"]))
    seeds = data.draw(st.lists(st.sampled_from(network.nodes[kind]), unique=True, min_size=1))
    hops = data.draw(st.integers(1, 3))
    everything = data.draw(st.booleans())
    some = st.just(-1) if everything else st.integers(-1, 3)
    counts = {name: data.draw(st.lists(some, min_size=hops, max_size=hops)) for name in HETERO.edge_types}
    loader = NodeLoader(
        stores(graph), LiveSampler(graph, counts), (kind, torch.tensor(seeds)),
        transform=add_edge_attributes, batch_size=len(seeds),
    )  # fmt: skip
    (batch,) = loader
    assert batch[kind].n_id[: batch[kind].batch_size].tolist() == seeds
    check_columns(network, batch)
    check_hops(network, batch, counts)
    if everything:
        check_k_hops_of_types(network, batch, {kind: set(seeds)}, hops)


def check_k_hops_of_types(network: Network, batch: HeteroData, seeds: dict[str, set[int]], hops: int) -> None:
    """PyG's k-hop subgraph of the same graph with all types made one."""
    offset = {"user": 0, "item": 100}
    every = torch.tensor(
        [(offset[s] + u, offset[t] + v) for (s, _, t), known in network.edges.items() for u, v in known],
        dtype=torch.long,
    ).view(-1, 2).t()  # fmt: skip
    start = torch.tensor([offset[name] + i for name, some in seeds.items() for i in some])
    subset, _, _, mask = k_hop_subgraph(start, hops, every, num_nodes=200, directed=True)
    nodes = {offset[name] + i for name in offset for i in batch[name].n_id.tolist()}
    assert nodes == set(subset.tolist())
    pairs = Counter(
        (offset[name[0]] + u, offset[name[2]] + v) for name in network.edges for u, v in edges_of(batch, name)
    )
    assert pairs == Counter(map(tuple, every[:, mask].t().tolist()))


@given(st.data())
def test_repeated_seeds_have_the_neighbours_of_the_first(data: st.DataObject) -> None:
    network = data.draw(networks(HETERO))
    seeds = data.draw(st.lists(st.sampled_from(network.nodes["user"]), min_size=1, max_size=12))
    counts = data.draw(fan_outs)
    graph = network.graph
    loader = NodeLoader(
        stores(graph), LiveSampler(graph, counts), ("user", torch.tensor(seeds)),
        transform=add_edge_attributes, batch_size=len(seeds),
    )  # fmt: skip
    (batch,) = loader
    assert batch["user"].n_id[: len(seeds)].tolist() == seeds
    assert batch["user"].num_sampled_nodes[0] == len(seeds)
    later = batch["user"].n_id[len(seeds) :].tolist()
    assert len(set(later)) == len(later)
    assert not set(later) & set(seeds)
    assert batch["user"].x[:, 0].tolist() == batch["user"].n_id.tolist()
    for edge_type, known in network.edges.items():
        pairs = edges_of(batch, edge_type)
        assert batch[edge_type].edge_weight.tolist() == [known[ends] for ends in pairs]
        assert batch[edge_type].edge_attr[:, 0].tolist() == [2 * known[ends] for ends in pairs]
        assert sum(batch[edge_type].num_sampled_edges) == len(pairs)
        if edge_type[2] != "user":
            continue
        col = batch[edge_type].edge_index[1].tolist()
        of_seed = [
            sorted(u for (u, _), v in zip(pairs, col, strict=True) if v == place)
            for place in range(len(seeds))
        ]
        for place, seed in enumerate(seeds):
            degree = len(network.sources(edge_type, seed))
            assert of_seed[place] == of_seed[seeds.index(seed)]
            assert len(of_seed[place]) == (degree if counts[0] < 0 else min(degree, counts[0]))


@given(st.data())
def test_links(data: st.DataObject) -> None:
    network = data.draw(networks(HETERO))
    graph = network.graph
    edge_type = data.draw(st.sampled_from([FOLLOWS, BUYS]))
    source, _, target = edge_type
    ends = st.tuples(st.sampled_from(network.nodes[source]), st.sampled_from(network.nodes[target]))
    links = data.draw(st.lists(ends, min_size=1, max_size=8))
    negatives = data.draw(
        st.sampled_from(
            [
                None,
                NegativeSampling("binary", 0.5),
                NegativeSampling("binary", 2),
                NegativeSampling("triplet", 2),
            ]
        )
    )
    counts = data.draw(fan_outs)
    disjoint = data.draw(st.booleans())
    loader = LinkLoader(
        stores(graph), LiveSampler(graph, counts, disjoint=disjoint),
        edge_label_index=(edge_type, torch.tensor(links).t()), neg_sampling=negatives,
        transform=add_edge_attributes, batch_size=len(links),
    )  # fmt: skip
    (batch,) = loader
    if negatives is not None and negatives.is_triplet():
        first, second = batch[source].src_index, batch[target].dst_pos_index
        assert set(batch[target].n_id[batch[target].dst_neg_index].flatten().tolist()) <= set(
            network.nodes[target]
        )
    else:
        first, second = batch[edge_type].edge_label_index[:, : len(links)]
        assert negatives is None or batch[edge_type].edge_label[: len(links)].all()
    assert batch[source].n_id[first].tolist() == [u for u, _ in links]
    assert batch[target].n_id[second].tolist() == [v for _, v in links]
    assert batch[edge_type].input_id.tolist() == list(range(len(links)))
    if not disjoint:
        check_columns(network, batch)
        check_hops(network, batch, dict.fromkeys(HETERO.edge_types, counts))
        return
    assert batch[source].batch[first].tolist() == batch[target].batch[second].tolist() == [*range(len(links))]
    for name in HETERO.edge_types:
        row, col = batch[name].edge_index
        assert batch[name[0]].batch[row].tolist() == batch[name[2]].batch[col].tolist()
        assert set(edges_of(batch, name)) <= set(network.edges[name])


def test_a_batch_of_a_large_graph_is_what_pyg_says() -> None:
    """Lists that are trees, and a frontier of several blocks."""
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 3000, 30_000), np.minimum(rng.zipf(1.5, 30_000) - 1, 2999)
    graph = lg.Graph.from_edges(src, dst, x=np.arange(3000)[:, None], parallel="last")
    graph.apply(lg.Events().remove_edges(src[::3], dst[::3]))
    left = set(zip(src.tolist(), dst.tolist(), strict=True)) - set(
        zip(src[::3].tolist(), dst[::3].tolist(), strict=True)
    )
    every = torch.tensor(sorted(left)).t()
    seeds = torch.from_numpy(rng.choice(3000, 600, replace=False))
    (batch,) = NodeLoader(stores(graph), LiveSampler(graph, [-1, -1]), seeds, batch_size=600)
    subset = k_hop_subgraph(seeds, 2, every, num_nodes=3000, directed=True)[0]
    targets = k_hop_subgraph(seeds, 1, every, num_nodes=3000, directed=True)[0]
    mask = torch.isin(every[1], targets)  # PyG's releases differ in which edges they keep
    assert set(batch.n_id.tolist()) == set(subset.tolist())
    pairs = batch.n_id[batch.edge_index].t().tolist()
    assert len(pairs) == int(mask.sum())
    assert set(map(tuple, pairs)) == set(map(tuple, every[:, mask].t().tolist()))
    assert batch.x[:, 0].tolist() == batch.n_id.tolist()


@given(st.data())
def test_labels_belong_to_the_life_of_a_node(data: st.DataObject) -> None:
    """Whatever comes and goes and whatever is put in which order: a label is of the node that it was put for,
    and goes with it, though another or the same id takes its place."""
    text = data.draw(st.booleans())
    graph = lg.Graph(lg.Schema({"a": 1, "b": 0}, {("a", "to", "a"): lg.EdgeSchema()}, text_ids=text))
    store = LiveFeatureStore(graph)
    expected: dict[str, dict[int | str, int]] = {"a": {}, "b": {}}
    ids = st.integers(0, 9).map(lambda i: f"n{i}") if text else st.integers(0, 9)
    put: set[str] = set()
    for step in range(data.draw(st.integers(1, 12))):
        name = data.draw(st.sampled_from(["a", "b"]))
        there = graph.ids(name).tolist()
        kind = data.draw(st.sampled_from(["add", "remove", "again", "put", "put all"]))
        some = sorted(data.draw(st.sets(ids, max_size=5)))
        old = [id for id in some if id in there]
        if kind == "add" and some:
            graph.apply(
                lg.Events().add_nodes(some, np.ones((len(some), 1)) if name == "a" else None, node_type=name)
            )
        elif kind in ("remove", "again") and old:
            events = lg.Events().remove_nodes(old, node_type=name)
            if kind == "again":
                events.add_nodes(old, np.ones((len(old), 1)) if name == "a" else None, node_type=name)
            graph.apply(events)
            for id in old:
                expected[name].pop(id, None)
        elif kind == "put" and old:
            labels = {id: 100 * step + k for k, id in enumerate(reversed(old))}
            index = torch.from_numpy(np.array(graph.to_numbers(list(labels))))
            store.put_tensor(torch.tensor(list(labels.values())), name, "y", index)
            expected[name] |= labels
            put.add(name)
        elif kind == "put all" and (text or there == sorted(there)):
            expected[name] = {id: 100 * step + k for k, id in enumerate(there)}
            store.put_tensor(torch.tensor([*expected[name].values()], dtype=torch.long), name, "y", None)
            put.add(name)
        for checked in put:
            every = graph.ids(checked)
            if len(every):
                rows = store.get_tensor(checked, "y", torch.from_numpy(np.array(graph.to_numbers(every))))
                assert rows.tolist() == [expected[checked].get(id, -1) for id in every.tolist()]
        if "a" in put and graph.num_nodes("a"):
            seeds = torch.from_numpy(np.array(graph.to_numbers(graph.ids("a"))))
            sampler = LiveSampler(graph, [1])
            (batch,) = NodeLoader((store, LiveGraphStore(graph)), sampler, ("a", seeds), batch_size=20)
            names = graph.to_user_ids(batch["a"].n_id.numpy()).tolist()
            assert batch["a"].y.tolist() == [expected["a"].get(id, -1) for id in names]
