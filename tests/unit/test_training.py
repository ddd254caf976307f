"""Loaders on a live graph: batches as PyG makes them, of the graph as it is when they are drawn."""

import gc
import multiprocessing
import threading
from collections import Counter

import numpy as np
import pytest
import torch
from torch_geometric.data import HeteroData
from torch_geometric.loader import LinkLoader as PyGLinkLoader
from torch_geometric.loader import NodeLoader as PyGNodeLoader
from torch_geometric.sampler import EdgeSamplerInput, NegativeSampling, NodeSamplerInput
from training_graphs import FORKS, ring

import livegnn as lg
from livegnn.errors import InputError, UnknownNodeError
from livegnn.training import (
    LinkLoader,
    LiveFeatureStore,
    LiveGraphStore,
    LiveSampler,
    NodeLoader,
    add_edge_attributes,
)

LIKES, MADE = ("user", "likes", "item"), ("shop", "made", "item")


def market() -> lg.Graph:
    """Users 100.. like items 0.., with a weight and a feature; a shop without features made them."""
    schema = lg.Schema(
        {"user": 1, "item": 2, "shop": 0},
        {LIKES: lg.EdgeSchema(weighted=True, edge_dim=1), MADE: lg.EdgeSchema()},
    )
    users, items = np.arange(100, 106), np.arange(4)
    src, dst = np.repeat(users, 2), np.tile(items, 3)
    graph = lg.Graph(schema)
    graph.apply(
        lg.Events()
        .add_nodes(users, users[:, None], node_type="user")
        .add_nodes(items, np.stack([items, -items], 1), node_type="item")
        .add_nodes([9], node_type="shop")
        .add_edges(src, dst, weight=src + dst, edge_attr=(src * dst)[:, None], edge_type=LIKES)
        .add_edges(np.full(4, 9), items, edge_type=MADE)
    )
    return graph


def stores(graph: lg.Graph) -> tuple[LiveFeatureStore, LiveGraphStore]:
    return LiveFeatureStore(graph), LiveGraphStore(graph)


# -- a batch


def test_a_batch_of_pygs_own_loader_has_what_pyg_promises():
    graph = ring()
    loader = PyGNodeLoader(
        stores(graph), LiveSampler(graph, [1, 1]), input_nodes=torch.tensor([7, 3, 5]), batch_size=2
    )
    batch, last = loader
    assert batch.n_id.tolist() == [7, 3, 6, 2, 5, 1]
    assert batch.edge_index.tolist() == [[2, 3, 4, 5], [0, 1, 2, 3]]
    assert batch.x[:, 0].tolist() == [7, 3, 6, 2, 5, 1]
    assert (batch.batch_size, batch.input_id.tolist(), batch.num_nodes) == (2, [0, 1], 6)
    assert (batch.num_sampled_nodes, batch.num_sampled_edges) == ([2, 2, 2], [2, 2])
    assert "e_id" not in batch
    assert "batch" not in batch
    assert (last.n_id.tolist(), last.input_id.tolist(), last.batch_size) == ([5, 4, 3], [2], 1)


def test_a_mask_and_ids_with_gaps_are_seeds():
    graph = lg.Graph.from_edges([50, 7], [7, 3], x=[[1.0], [2.0], [3.0]], ids=[50, 7, 3])
    (batch,) = PyGNodeLoader(
        stores(graph), LiveSampler(graph, [-1]), input_nodes=torch.arange(8) == 7, batch_size=8
    )
    assert batch.n_id.tolist() == [7, 50]
    assert batch.x[:, 0].tolist() == [2.0, 1.0]
    assert batch.input_id.tolist() == [7]


def test_transforms_see_the_sample_and_the_batch():
    graph = ring()
    seen = []
    (batch,) = PyGNodeLoader(
        stores(graph),
        LiveSampler(graph, [1]),
        input_nodes=torch.tensor([4]),
        transform_sampler_output=lambda out: seen.append(out.node.tolist()) or out,
        transform=lambda data: data.update({"doubled": data.x * 2}),
    )
    assert seen == [[4, 3]]
    assert batch.doubled[:, 0].tolist() == [8, 6]


def test_edges_bring_weight_time_and_features():
    graph = ring(weight=np.arange(10) + 0.5, time=np.arange(10) * 10, edge_attr=np.arange(20).reshape(10, 2))
    (batch,) = PyGNodeLoader(
        stores(graph), LiveSampler(graph, [1]), input_nodes=torch.tensor([4, 0]), batch_size=2,
        transform=add_edge_attributes,
    )  # fmt: skip
    assert batch.n_id[batch.edge_index[0]].tolist() == [3, 9]
    assert batch.edge_weight.tolist() == [3.5, 9.5]
    assert batch.time.tolist() == [30, 90]
    assert batch.edge_attr.tolist() == [[6, 7], [18, 19]]
    assert len(batch.e_id) == 2


def test_a_heterogeneous_batch():
    graph = market()
    loader = PyGNodeLoader(
        stores(graph), LiveSampler(graph, {LIKES: [-1], MADE: [-1]}), batch_size=2,
        input_nodes=("item", torch.tensor([2, 0])), transform=add_edge_attributes,
    )  # fmt: skip
    (batch,) = loader
    assert isinstance(batch, HeteroData)
    assert batch["item"].n_id.tolist() == [2, 0]
    assert batch["item"].x.tolist() == [[2, -2], [0, 0]]
    assert (batch["item"].batch_size, batch["item"].input_id.tolist()) == (2, [0, 1])
    assert batch["user"].x[:, 0].tolist() == batch["user"].n_id.tolist()
    assert batch["shop"].n_id.tolist() == [9]
    assert "x" not in batch["shop"]
    assert batch["shop"].num_nodes == 1
    assert batch[MADE].edge_index.tolist() == [[0, 0], [0, 1]]
    user = batch["user"].n_id[batch[LIKES].edge_index[0]]
    item = batch["item"].n_id[batch[LIKES].edge_index[1]]
    assert Counter(item.tolist()) == {2: 3, 0: 3}
    assert batch[LIKES].edge_weight.tolist() == (user + item).tolist()
    assert batch[LIKES].edge_attr[:, 0].tolist() == (user * item).tolist()
    assert batch["item"].num_sampled_nodes == [2, 0]
    assert batch[LIKES].num_sampled_edges == [6]
    assert "edge_weight" not in batch[MADE]


def test_edge_types_that_are_left_out_are_not_drawn_along():
    (batch,) = NodeLoader(market(), {MADE: [5]}, ("item", [1]))
    assert batch["user"].num_nodes == 0
    assert batch[MADE].edge_index.tolist() == [[0], [0]]
    assert LIKES not in batch.edge_types


def test_disjoint_batches_have_a_subgraph_for_each_seed():
    (batch,) = NodeLoader(ring(), [1, 1], [3, 2], disjoint=True, batch_size=2)
    assert batch.n_id.tolist() == [3, 2, 2, 1, 1, 0]
    assert batch.batch.tolist() == [0, 1, 0, 1, 0, 1]


def test_with_times_seeds_see_only_what_is_not_later():
    graph = lg.Graph.from_edges([1, 2, 3], [0, 0, 0], time=[10, 20, 30])
    (batch,) = NodeLoader(graph, [-1], [0, 0, 0], input_time=[9, 20, 31], batch_size=3)
    sources = [batch.n_id[batch.edge_index[0, batch.edge_index[1] == seed]].tolist() for seed in range(3)]
    assert [sorted(some) for some in sources] == [[], [1, 2], [1, 2, 3]]
    assert batch.seed_time.tolist() == [9, 20, 31]
    assert batch.batch.unique().tolist() == [0, 1, 2]
    (latest,) = NodeLoader(graph, [1], [0], input_time=[25], by="latest")
    assert latest.n_id.tolist() == [0, 2]


def test_repeated_seeds_are_nodes_of_their_own():
    graph = ring(weight=np.arange(10), edge_attr=np.arange(10)[:, None])
    (batch,) = NodeLoader(graph, [-1, -1], [5, 5, 4, 5], batch_size=4)
    assert batch.n_id.tolist() == [5, 5, 4, 5, 3, 2]
    assert batch.x[:, 0].tolist() == batch.n_id.tolist()
    ends = batch.n_id[batch.edge_index]
    assert ends.tolist() == [[4, 4, 3, 4, 2], [5, 5, 4, 5, 3]]
    assert batch.edge_index[1].tolist() == [0, 1, 2, 3, 4]
    assert batch.edge_index[0].tolist() == [2, 2, 4, 2, 5]
    assert batch.edge_weight.tolist() == [4, 4, 3, 4, 2]
    assert batch.edge_attr[:, 0].tolist() == [4, 4, 3, 4, 2]
    assert (batch.num_sampled_nodes, batch.num_sampled_edges) == ([4, 1, 1], [4, 1])


def test_repeated_seeds_of_a_heterogeneous_graph():
    graph = market()
    (batch,) = NodeLoader(graph, [-1], ("item", [3, 1, 3]), batch_size=3)
    assert batch["item"].n_id.tolist() == [3, 1, 3]
    user = batch["user"].n_id[batch[LIKES].edge_index[0]]
    col = batch[LIKES].edge_index[1]
    assert sorted(user[col == 0].tolist()) == sorted(user[col == 2].tolist())
    assert sorted(user[col == 0].tolist()) == sorted(graph.neighbors(3, edge_type=LIKES).ids.tolist())
    assert batch[LIKES].edge_weight.tolist() == (user + batch["item"].n_id[col]).tolist()


def test_the_same_seed_of_torch_gives_the_same_batches():
    rng = np.random.default_rng(0)
    graph = lg.Graph.from_edges(*rng.integers(0, 50, (2, 1000)), num_nodes=50, parallel="last")
    loader = NodeLoader(graph, [3, 3], range(50), batch_size=10, shuffle=True)
    runs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        runs.append([batch.n_id.tolist() for batch in loader])
    assert runs[0] == runs[1] != runs[2]


def test_text_ids():
    graph = lg.Graph.from_edges(["a", "b"], ["b", "c"], x=[[1.0], [2.0], [3.0]], ids=["a", "b", "c"])
    (batch,) = NodeLoader(graph, [1], ["c", "b"], batch_size=2)
    assert graph.to_user_ids(batch.n_id.numpy()).tolist() == ["c", "b", "a"]
    assert batch.x[:, 0].tolist() == [3, 2, 1]
    with pytest.raises(UnknownNodeError, match="'z'"):
        NodeLoader(graph, [1], ["c", "z"])
    assert len(NodeLoader(graph, [1], ("a", "b"))) == 2


# -- events between batches


def test_the_next_batch_sees_what_was_applied():
    graph = ring(edge_attr=np.arange(10)[:, None])
    batches = iter(NodeLoader(graph, [-1], [1, 1, 1]))
    assert next(batches).n_id.tolist() == [1, 0]
    graph.apply(
        lg.Events().add_edges([7], [1], edge_attr=[[70]]).set_features([1], [[-1]]).remove_edges([0], [1])
    )
    batch = next(batches)
    assert batch.n_id.tolist() == [1, 7]
    assert batch.x[:, 0].tolist() == [-1, 7]
    assert batch.edge_attr.tolist() == [[70]]
    graph.apply(lg.Events().add_nodes([99], [[9.5]]).add_edges([99], [1]))
    assert next(batches).x[:, 0].tolist() == [-1, 7, 9.5]


def test_a_batch_carries_the_features_of_the_moment_it_was_drawn():
    graph = ring(weight=np.ones(10))

    def change(out):
        graph.apply(lg.Events().remove_nodes([0]).set_features([1], [[-1]]).add_edges([3], [4], weight=[5]))
        return out

    (batch,) = PyGNodeLoader(
        stores(graph), LiveSampler(graph, [1]), input_nodes=torch.tensor([1, 4]), batch_size=2,
        transform_sampler_output=change, transform=add_edge_attributes,
    )  # fmt: skip
    assert batch.n_id.tolist() == [1, 4, 0, 3]
    assert batch.x[:, 0].tolist() == [1, 4, 0, 3]
    assert batch.edge_weight.tolist() == [1, 1]


def test_seeds_that_are_gone_are_an_error_or_left_out():
    graph = ring()
    graph.apply(lg.Events().remove_nodes([4]))
    with pytest.raises(UnknownNodeError, match="got 4, which is not in the graph"):
        list(NodeLoader(graph, [1], [3, 4, 5], batch_size=3))
    (batch,) = NodeLoader(graph, [1], [3, 4, 5], batch_size=3, gone="skip", input_time=None)
    assert (batch.n_id.tolist(), batch.batch_size, batch.input_id.tolist()) == ([3, 5, 2], 2, [0, 2])
    assert list(NodeLoader(graph, [1], [4, 4], batch_size=2, gone="skip")) == []
    with pytest.raises(UnknownNodeError, match="got 4"):
        list(LinkLoader(graph, [1], [[3, 4], [5, 6]], batch_size=2))
    (links,) = LinkLoader(
        graph, [1], [[3, 4, 5], [5, 6, 4]], batch_size=3, gone="skip", neg_sampling="binary"
    )
    assert links.input_id.tolist() == [0]
    assert links.edge_label.tolist() == [1, 0]
    assert links.n_id[links.edge_label_index[:, 0]].tolist() == [3, 5]


@pytest.mark.parametrize("hetero", [False, True])
def test_a_writer_beside_a_loader(hetero):
    """Every batch of events turns all in-edges of node 0 and all features to a new generation: a batch of the
    loader must be of one generation, edges, their weights and features alike."""
    hub, nodes = 0, 50
    graph = lg.Graph(
        lg.Schema({"node": 1}, {("node", "to", "node"): lg.EdgeSchema(weighted=True, edge_dim=1)}), threads=1
    )

    def generation(number: int) -> lg.Events:
        """The first half of the other nodes points at the hub in even generations, the second in odd ones."""
        first, second = np.arange(1, nodes // 2), np.arange(nodes // 2, nodes)
        come, go = (first, second) if number % 2 == 0 else (second, first)
        events = lg.Events().add_nodes(np.arange(nodes), np.full((nodes, 1), number))
        events.remove_edges(go, np.full(len(go), hub))
        return events.add_edges(
            come,
            np.full(len(come), hub),
            weight=np.full(len(come), number),
            edge_attr=np.full((len(come), 1), number),
        )

    graph.apply(generation(0))
    stop = threading.Event()
    applied = [0]

    def write() -> None:
        while not stop.is_set():
            applied[0] += 1
            graph.apply(generation(applied[0]))

    writer = threading.Thread(target=write)
    writer.start()
    seeds = ("node", np.full(300, hub)) if hetero else np.full(300, hub)
    seen = set()
    try:
        for batch in NodeLoader(graph, [-1], seeds):
            node, edge = (batch["node"], batch["node", "node"]) if hetero else (batch, batch)
            (number,) = node.x.unique().tolist()
            expected = range(1, nodes // 2) if number % 2 == 0 else range(nodes // 2, nodes)
            assert sorted(node.n_id[1:].tolist()) == list(expected)
            assert edge.edge_weight.unique().tolist() == [number]
            assert edge.edge_attr.unique().tolist() == [number]
            seen.add(number)
    finally:
        stop.set()
        writer.join()
    assert len(seen) > 1


@FORKS
def test_a_forked_process_may_let_go_of_a_graph():
    """The threads of the graph are not there to be joined; workers collect garbage, graphs among it."""
    graphs = [lg.Graph(threads=3) for _ in range(2)]

    def collect() -> None:
        graphs.clear()
        gc.collect()

    child = multiprocessing.get_context("fork").Process(target=collect)
    child.start()
    child.join()
    assert child.exitcode == 0


@FORKS
def test_workers_see_the_graph_as_it_was_when_they_were_forked():
    graph = ring()
    batches = iter(NodeLoader(graph, [-1], [1] * 6, num_workers=1, prefetch_factor=1))
    assert next(batches).n_id.tolist() == [1, 0]
    graph.apply(lg.Events().add_edges([7], [1]))
    assert [batch.n_id.tolist() for batch in batches] == [[1, 0]] * 5


# -- links


def test_links_with_negatives_as_pyg_gives_them():
    graph = ring()
    loader = PyGLinkLoader(
        stores(graph), LiveSampler(graph, [2]), edge_label_index=(None, torch.tensor([[1, 2, 3], [2, 3, 4]])),
        neg_sampling=NegativeSampling("binary", 2), batch_size=3,
    )  # fmt: skip
    (batch,) = loader
    assert batch.edge_label.tolist() == [1] * 3 + [0] * 6
    ends = batch.n_id[batch.edge_label_index]
    assert ends[:, :3].tolist() == [[1, 2, 3], [2, 3, 4]]
    assert ends.shape == (2, 9)
    assert batch.input_id.tolist() == [0, 1, 2]
    assert batch.x[:, 0].tolist() == batch.n_id.tolist()


def test_triplets_of_a_heterogeneous_graph():
    graph = market()
    (batch,) = LinkLoader(
        graph,
        [2],
        (LIKES, [[100, 101, 102], [0, 2, 1]]),
        neg_sampling=NegativeSampling("triplet", 2),
        batch_size=3,
    )
    assert batch["user"].n_id[batch["user"].src_index].tolist() == [100, 101, 102]
    assert batch["item"].n_id[batch["item"].dst_pos_index].tolist() == [0, 2, 1]
    assert batch["item"].dst_neg_index.shape == (3, 2)
    assert batch["item"].n_id[batch["item"].dst_neg_index].max() < 4


def test_all_edges_are_links_when_none_are_given():
    graph = market()
    loader = LinkLoader(graph, [1], (LIKES, None), batch_size=100)
    (batch,) = loader
    index = batch[LIKES].edge_label_index
    pairs = {(int(batch["user"].n_id[u]), int(batch["item"].n_id[i])) for u, i in index.T}
    snapshot = graph.snapshot()
    users, items = snapshot.edge_index[LIKES]
    assert pairs == set(
        zip(snapshot.ids["user"][users].tolist(), snapshot.ids["item"][items].tolist(), strict=True)
    )
    assert sum(batch.edge_label_index.shape[1] for batch in LinkLoader(ring(), [1], batch_size=3)) == 10


def test_negative_ends_are_nodes_of_the_graph_as_it_is():
    graph = lg.Graph.from_edges([1000, 7], [7, 1000], ids=[1000, 7, 31])
    sampler = LiveSampler(graph, [1])
    links = EdgeSamplerInput(torch.arange(200), torch.full((200,), 7), torch.full((200,), 1000))
    out = sampler.sample_from_edges(links, NegativeSampling("binary", 3))
    drawn = out.node[out.metadata[1][:, 200:]].flatten()
    assert set(drawn.tolist()) == {7, 31, 1000}
    graph.apply(lg.Events().remove_nodes([31]).add_nodes([5]))
    out = sampler.sample_from_edges(links, NegativeSampling("binary", 3))
    assert set(out.node[out.metadata[1][:, 200:]].flatten().tolist()) == {5, 7, 1000}
    weight = torch.zeros(1001)
    weight[[5, 6, 1000]] = torch.tensor([1.0, 9.0, 1.0])  # 6 is no node
    out = sampler.sample_from_edges(links, NegativeSampling("triplet", 2, dst_weight=weight))
    assert set(out.node[out.metadata[3]].flatten().tolist()) == {5, 1000}


@pytest.mark.parametrize("amount", [0.5, 1, 2])
def test_disjoint_links_are_told_apart(amount):
    """`batch` is the link; a negative link belongs to the positive one at its place."""
    sampler = LiveSampler(ring(), [1], disjoint=True)
    links = EdgeSamplerInput(torch.arange(4), torch.tensor([0, 2, 4, 6]), torch.tensor([1, 3, 5, 7]))
    out = sampler.sample_from_edges(links, NegativeSampling("binary", amount))
    count = out.metadata[1].shape[1]
    assert out.batch[out.metadata[1]].tolist() == [(torch.arange(count) % 4).tolist()] * 2
    assert out.batch[out.col].tolist() == out.batch[out.row].tolist()


def test_links_with_times_see_only_what_is_not_later():
    graph = lg.Graph.from_edges([1, 2, 3, 0], [0, 0, 0, 4], time=[10, 20, 30, 5])
    (batch,) = LinkLoader(
        graph, [-1], [[0, 0], [4, 4]], edge_label_time=[15, 25], neg_sampling="binary", batch_size=2
    )
    assert batch.edge_label_time.tolist() == [15, 25, 15, 25]
    for link, time in enumerate(batch.edge_label_time.tolist()):
        for end in batch.edge_label_index[:, link]:
            sources = batch.n_id[batch.edge_index[0, batch.edge_index[1] == end]].tolist()
            neighbors = graph.neighbors(int(batch.n_id[end]))
            assert sorted(sources) == sorted(neighbors.ids[neighbors.time <= time].tolist())


# -- stores


def test_features_are_gathered_for_the_nodes_that_are_asked_for():
    graph = ring()
    store = LiveFeatureStore(graph)
    assert store.get_tensor(group_name="node", attr_name="x", index=torch.tensor([7, 2])).tolist() == [
        [7],
        [2],
    ]
    assert store["node", "x", np.array([3])].tolist() == [[3]]
    assert store["node", "x", 3].tolist() == [[3]]
    assert store["node", "x", None][:, 0].tolist() == list(range(10))
    assert store["node", "x"][2:4][:, 0].tolist() == [2, 3]
    assert store.get_tensor_size("node", "x") == (10, 1)
    graph.apply(lg.Events().remove_nodes([3]))
    with pytest.raises(UnknownNodeError, match="got 3"):
        store.get_tensor("node", "x", torch.tensor([3]))
    assert store.get_tensor_size("node", "x") is None, "PyG would take 0 to 8 for the nodes"


def test_labels_come_along_and_may_lack():
    graph = ring()
    store = LiveFeatureStore(graph)
    assert store.put_tensor(
        torch.tensor([10, 30, 20]), group_name="node", attr_name="y", index=torch.tensor([1, 3, 2])
    )
    store.put_tensor(np.ones((10, 2), dtype=np.float32), group_name=None, attr_name="score", index=None)
    loader = NodeLoader(graph, [1], [3, 1], features=store, batch_size=2)
    (batch,) = loader
    assert batch.y.tolist() == [30, 10, 20, -1]
    assert batch.score.shape == (4, 2)
    graph.apply(lg.Events().add_nodes([20], [[20]]).add_edges([20], [1]))
    store.put_tensor(torch.tensor([11, 0]), group_name="node", attr_name="y", index=torch.tensor([1, 0]))
    (batch,) = NodeLoader(graph, [-1], [1], features=store)
    of = dict(zip(batch.n_id.tolist(), batch.y.tolist(), strict=True))
    assert of == {1: 11, 0: 0, 20: -1}
    assert batch.score[batch.n_id == 20].isnan().all()
    store.remove_tensor("node", "y", None)
    assert "y" not in next(iter(loader))


def test_pyg_draws_all_nodes_of_a_type_only_where_ids_have_no_gaps():
    graph = market()
    loader = PyGNodeLoader(stores(graph), LiveSampler(graph, [1]), input_nodes="item", batch_size=4)
    assert next(iter(loader))["item"].n_id.tolist() == [0, 1, 2, 3]
    with pytest.raises(InputError, match=r"infer the number of nodes of 'user'.* Name the seeds"):
        PyGNodeLoader(stores(graph), LiveSampler(graph, [1]), input_nodes="user")
    every = next(iter(NodeLoader(graph, [1], ("user", None), batch_size=10)))
    assert sorted(every["user"].n_id.tolist()) == list(range(100, 106))


def test_edges_as_pyg_asks_for_them():
    graph = lg.Graph.from_edges([0, 1], [1, 2], num_nodes=3, undirected=True)
    row, col = LiveGraphStore(graph).get_edge_index(("node", "to", "node"), "coo")
    assert sorted(zip(row.tolist(), col.tolist(), strict=True)) == [(0, 1), (1, 0), (1, 2), (2, 1)]
    rows, colptr, _ = LiveGraphStore(graph).csc()
    assert colptr["node", "to", "node"].tolist() == [0, 1, 3, 4]
    assert sorted(rows["node", "to", "node"][1:3].tolist()) == [0, 2]


# -- what is refused


def test_what_is_refused_names_what_came():
    graph, hetero = ring(), market()
    store, edges = stores(graph)
    with pytest.raises(InputError, match="change by events"):
        store.put_tensor(torch.zeros(10, 1), "node", "x", None)
    with pytest.raises(InputError, match="remove_nodes"):
        store.remove_tensor("node", "x", None)
    with pytest.raises(InputError, match=r"tensors \['x'\], got 'z'"):
        store.get_tensor("node", "z", None)
    with pytest.raises(InputError, match="each of 2 rows"):
        store.put_tensor(torch.zeros(2), "node", "y", torch.tensor([1]))
    with pytest.raises(InputError, match="each node once"):
        store.put_tensor(torch.zeros(2), "node", "y", torch.tensor([1, 1]))
    with pytest.raises(InputError, match=r"got torch\.uint8"):
        store.put_tensor(torch.zeros(2, dtype=torch.uint8), "node", "y", torch.tensor([1, 2]))
    store.put_tensor(torch.zeros(1), "node", "y", torch.tensor([1]))
    with pytest.raises(InputError, match="remove it first"):
        store.put_tensor(torch.zeros(1, 2), "node", "y", torch.tensor([1]))
    with pytest.raises(InputError, match="add_edges"):
        edges.put_edge_index((torch.zeros(1), torch.zeros(1)), ("node", "to", "node"), "coo")
    with pytest.raises(InputError, match="remove_edges"):
        edges.remove_edge_index(("node", "to", "node"), "coo")
    with pytest.raises(InputError, match="by must be one of"):
        LiveSampler(graph, [1], by="degree")
    with pytest.raises(InputError, match="gone must be one of"):
        LiveSampler(graph, [1], gone="ignore")
    with pytest.raises(InputError, match="num_neighbors must be an integer from -1"):
        LiveSampler(graph, [-2])
    with pytest.raises(InputError, match="replace must be True or False, got 'no'"):
        LiveSampler(graph, [1], replace="no")
    with pytest.raises(InputError, match="disjoint must be True or False, got 'no'"):
        NodeLoader(graph, [1], [1], disjoint="no")
    with pytest.raises(InputError, match="several types"):
        LiveSampler(hetero, [1]).sample_from_nodes(NodeSamplerInput(None, torch.tensor([1])))
    with pytest.raises(InputError, match="no weights"):
        list(NodeLoader(graph, [1], [1], by="weight"))
    with pytest.raises(InputError, match="no times"):
        list(NodeLoader(graph, [1], [1], input_time=[3]))
    with pytest.raises(InputError, match="a time for each of 1 seeds"):
        NodeLoader(graph, [1], [1], input_time=[3, 4])
    with pytest.raises(InputError, match=r"shape \(2, links\)"):
        LinkLoader(graph, [1], [1, 2, 3])
    with pytest.raises(InputError, match="LiveSampler"):
        add_edge_attributes(HeteroData())
    assert LiveSampler(graph, [1]).edge_permutation is None
