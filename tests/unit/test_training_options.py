"""Options and hooks of loaders: each keeps the promises of a batch, or is refused with what to do instead."""

import gc
import multiprocessing
import pickle
import threading
import weakref

import numpy as np
import pytest
import torch
import torch_geometric.transforms as T
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import LinkLoader as PyGLinkLoader
from torch_geometric.loader import NodeLoader as PyGNodeLoader
from torch_geometric.sampler import NodeSamplerInput
from training_graphs import FORKS, ring

import livegnn as lg
from livegnn.errors import InputError, UnknownEdgeError, UnknownNodeError
from livegnn.training import (
    LinkLoader,
    LiveFeatureStore,
    LiveGraphStore,
    LiveSampler,
    NodeLoader,
    add_edge_attributes,
)

TYPE = ("node", "to", "node")


def chord(**columns: object) -> lg.Graph:
    """A ring, with an edge back from each node; each edge has the weight 100 source + target."""
    src = np.concatenate([np.arange(10), np.arange(0, 10, 2)])
    dst = np.concatenate([(np.arange(10) + 1) % 10, (np.arange(0, 10, 2) + 9) % 10])
    name = 100 * src + dst
    return lg.Graph.from_edges(
        src, dst, x=np.arange(10)[:, None], weight=name, time=name, edge_attr=name[:, None], **columns
    )


def stores(graph: lg.Graph) -> tuple[LiveFeatureStore, LiveGraphStore]:
    return LiveFeatureStore(graph), LiveGraphStore(graph)


# -- hooks that change edges


def reverse(out):
    out.row, out.col = out.col, out.row
    return out


def reverse_in_place(out):
    out.row[:], out.col[:] = out.col.clone(), out.row.clone()
    return out


def reorder(out):
    order = torch.arange(len(out.row) - 1, -1, -1)
    out.row, out.col = out.row[order], out.col[order]
    return out


def drop_the_first(out):
    out.row, out.col = out.row[1:], out.col[1:]
    return out


SAMPLE_HOOKS = {
    "both directions": lambda out: out.to_bidirectional(),
    "both, and the original": lambda out: out.to_bidirectional(keep_orig_edges=True),
    "reversed": reverse,
    "reversed in place": reverse_in_place,
    "another order": reorder,
    "fewer": drop_the_first,
    "unchanged": lambda out: out,
}
BATCH_HOOKS = {
    "both directions": T.ToUndirected(),
    "loops": T.AddSelfLoops(),
    "sorted": lambda batch: batch.sort(),
    "fewer": lambda batch: batch.update({"edge_index": batch.edge_index[:, 1:]}),
    "unchanged": lambda batch: batch,
}


@pytest.mark.parametrize("hook", SAMPLE_HOOKS)
def test_edges_have_their_own_columns_after_a_hook_of_the_sampler_or_are_refused(hook):
    load = {"transform_sampler_output": SAMPLE_HOOKS[hook], "batch_size": 4}
    check(lambda: NodeLoader(chord(), [-1, -1], [3, 0, 8, 2], **load), refused=hook != "unchanged")
    pairs = [[3, 0], [4, 9]]
    check(lambda: LinkLoader(chord(), [-1], pairs, **load), refused=hook != "unchanged")
    plain = ring()
    assert len(list(NodeLoader(plain, [-1], [3, 0, 8, 2], **load))) == 1, "there is no column to go wrong"


@pytest.mark.parametrize("hook", BATCH_HOOKS)
def test_edges_have_their_own_columns_after_a_transform_or_are_refused(hook):
    graph, first = chord(), BATCH_HOOKS[hook]
    seeds = torch.tensor([3, 0, 8, 2])

    def load():
        return PyGNodeLoader(
            stores(graph), LiveSampler(graph, [-1, -1]), seeds, batch_size=4,
            transform=lambda batch: add_edge_attributes(first(batch)),
        )  # fmt: skip

    # What puts the same edges into the same order changes nothing.
    check(load, refused=hook in ("both directions", "loops", "fewer"))


def check(load, *, refused: bool) -> None:
    if refused:
        with pytest.raises(InputError, match=r"not those that were drawn.*ToUndirected"):
            list(load())
        return
    try:
        (batch,) = load()
    except InputError:
        return
    source, target = batch.n_id[batch.edge_index]
    for column in (batch.edge_weight, batch.time, batch.edge_attr[:, 0]):
        assert column.tolist() == (100 * source + target).tolist()


def test_a_transform_after_the_columns_sees_them_as_the_refusal_says():
    (batch,) = NodeLoader(chord(), [2, 2], range(5), batch_size=5, transform=T.ToUndirected(reduce="mean"))
    assert batch.is_undirected()
    assert len(batch.edge_weight) == batch.num_edges
    (plain,) = NodeLoader(ring(weight=np.arange(10)), [2, 2], range(5), batch_size=5)
    (both,) = NodeLoader(
        ring(weight=np.arange(10)), [2, 2], range(5), batch_size=5, transform=T.ToUndirected(reduce="mean")
    )
    assert sorted(both.edge_weight.tolist()) == sorted(plain.edge_weight.tolist() * 2)


def test_hooks_that_change_nodes_bring_the_rows_of_those_nodes():
    graph = ring()
    store = LiveFeatureStore(graph)
    store.put_tensor(torch.arange(10) * 7, "node", "y", None)

    def turn(out):
        out.node = out.node.flip(0)
        return out

    def turn_in_place(out):
        out.node[:] = out.node.flip(0)
        return out

    for hook in (turn, turn_in_place):
        loader = PyGNodeLoader(
            (store, LiveGraphStore(graph)), LiveSampler(graph, [2]), torch.tensor([4, 7]), batch_size=2,
            transform_sampler_output=hook,
        )  # fmt: skip
        (batch,) = loader
        assert batch.x[:, 0].tolist() == batch.n_id.tolist()
        assert batch.y.tolist() == (batch.n_id * 7).tolist()


# -- the promise: each batch is of the graph as it is


def test_workers_that_would_keep_a_graph_for_ever_are_refused():
    graph = ring()
    for make in (
        lambda **o: NodeLoader(graph, [1], [1], **o),
        lambda **o: LinkLoader(graph, [1], [[1], [2]], **o),
    ):
        with pytest.raises(InputError, match="persistent_workers would keep the graph of the first epoch"):
            make(num_workers=1, persistent_workers=True)
        make(num_workers=1, persistent_workers=False)


@FORKS
def test_each_epoch_of_workers_sees_the_graph_as_it_begins():
    graph = ring()
    loader = NodeLoader(graph, [-1], [1], num_workers=1)
    for expected in ([1, 0], [1, 0, 7], [1, 0, 7, 5]):
        (batch,) = loader
        assert sorted(batch.n_id.tolist()) == sorted(expected)
        graph.apply(lg.Events().add_edges([7 if len(expected) == 2 else 5], [1]))


@pytest.mark.parametrize("parallel", ["refuse", "keep"])
def test_links_are_edges_that_are_still_there(parallel):
    """A link that had been removed was served as a positive example."""
    graph = ring(parallel=parallel)
    skipping = LinkLoader(graph, [1], batch_size=4, gone="skip", neg_sampling="binary")
    strict = LinkLoader(graph, [1], batch_size=10)
    by_hand = LinkLoader(graph, [1], [[2, 3], [3, 4]], batch_size=2)
    graph.apply(lg.Events().remove_edges([2, 6], [3, 7]).remove_nodes([9]))
    seen = []
    for batch in skipping:
        ends = batch.n_id[batch.edge_label_index[:, batch.edge_label > 0]]
        seen += ends.t().tolist()
        assert len(batch.input_id) == ends.shape[1]
    assert sorted(seen) == [[i, i + 1] for i in (0, 1, 3, 4, 5, 7)]
    with pytest.raises(
        UnknownEdgeError, match=r"got 2 -> 3, which is not in the graph now: pass `gone='skip'`"
    ):
        list(strict)
    (batch,) = by_hand  # whoever names links, means these
    assert batch.n_id[batch.edge_label_index].tolist() == [[2, 3], [3, 4]]
    graph.apply(lg.Events().remove_edges(range(8), range(1, 9)))
    assert list(skipping) == []


def test_pygs_own_loader_of_all_edges_may_ask_for_edges_only():
    graph = ring()
    sampler = LiveSampler(graph, [1], gone="skip", only_edges=True)
    loader = PyGLinkLoader(stores(graph), sampler, TYPE, batch_size=10)
    graph.apply(lg.Events().remove_edges([2], [3]))
    (batch,) = loader
    assert batch[TYPE].edge_label_index.shape == (2, 9)


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=FORKS)])
@pytest.mark.parametrize("typed", [False, True])
def test_batches_whose_seeds_all_left_do_not_end_an_epoch(workers, typed):
    graph = ring()
    graph.apply(lg.Events().remove_nodes([3, 4, 8]))
    seeds, links = range(10), [list(range(9)), list(range(1, 10))]
    calls = []
    options = {
        "batch_size": 2,
        "gone": "skip",
        "num_workers": workers,
        "transform": lambda b: calls.append(0) or b,
    }
    nodes = NodeLoader(graph, [1], ("node", seeds) if typed else seeds, **options)
    kept = [(batch["node"] if typed else batch) for batch in nodes]
    found = [part.n_id[: part.batch_size].tolist() for part in kept]
    assert found == [[0, 1], [2], [5], [6, 7], [9]]
    assert list(NodeLoader(graph, [1], [3, 4, 8], **options)) == []
    batches = list(LinkLoader(graph, [1], (TYPE, links) if typed else links, **options))
    pairs = [(b[TYPE] if typed else b).edge_label_index.shape[1] for b in batches]
    assert pairs == [2, 1, 1]
    assert workers or len(calls) == 8, "transforms see no empty batch"


@pytest.mark.parametrize("typed", [False, True])
def test_pygs_own_loaders_get_an_empty_batch_instead(typed):
    graph = ring(weight=np.ones(10))
    graph.apply(lg.Events().remove_nodes([3, 4]))
    seeds = torch.tensor([3, 4, 5])
    sampler = LiveSampler(graph, [1], gone="skip")
    batches = list(PyGNodeLoader(stores(graph), sampler, ("node", seeds) if typed else seeds, batch_size=2,
                                 transform=add_edge_attributes))  # fmt: skip
    parts = [batch["node"] if typed else batch for batch in batches]
    assert [part.batch_size for part in parts] == [0, 1]
    assert parts[0].x.shape == (0, 1)
    links = torch.tensor([[3, 5], [4, 6]])
    first, second = PyGLinkLoader(stores(graph), sampler, (TYPE if typed else None, links), batch_size=1)
    assert [len((b[TYPE] if typed else b).input_id) for b in (first, second)] == [0, 1]


# -- what lives, and for how long


@pytest.mark.parametrize("typed", [False, True])
def test_the_ids_of_a_batch_keep_nothing_else_alive(typed):
    """With each `n_id` all features of its batch were held."""
    graph = chord()
    seeds = torch.tensor([1, 2, 3])
    for loader in (
        NodeLoader(graph, [-1], ("node", seeds) if typed else seeds, batch_size=3),
        PyGNodeLoader(
            stores(graph), LiveSampler(graph, [-1]), ("node", seeds) if typed else seeds, batch_size=3
        ),
    ):
        (batch,) = loader
        part = batch["node"] if typed else batch
        n_id, others = (
            part.n_id,
            [weakref.ref(value) for value in tensors_of(batch) if value is not part.n_id],
        )
        del batch, part
        gc.collect()
        assert len(n_id) > 3
        assert [ref() for ref in others if ref() is not None] == []
        assert held_attributes() == []


def tensors_of(batch) -> list[torch.Tensor]:
    return [value for store in batch.stores for value in store.values() if isinstance(value, torch.Tensor)]


def held_attributes() -> list[object]:
    from livegnn.training.attributes import Attributes

    return [one for one in gc.get_objects() if type(one) is Attributes]


def test_a_tensor_may_be_removed_and_put_beside_a_loader():
    """Its removal, between the names that PyG asks for and the rows, ended the epoch."""
    graph = ring(100)
    store = LiveFeatureStore(graph)
    stop = threading.Event()

    def change() -> None:
        while not stop.is_set():
            store.put_tensor(torch.arange(100) * 3, "node", "y", None)
            store.put_tensor(torch.tensor([21]), "node", "y", torch.tensor([7]))
            store.remove_tensor("node", "y", None)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(20):
            for batch in NodeLoader(graph, [2], range(100), features=store, batch_size=20):
                assert batch.x[:, 0].tolist() == batch.n_id.tolist()
                if "y" in batch:
                    assert batch.y.tolist() == (batch.n_id * 3).tolist()
    finally:
        stop.set()
        thread.join()


def test_a_removed_tensor_is_none_for_a_loader_and_an_error_for_a_reader():
    graph = ring()
    store = LiveFeatureStore(graph)
    store.put_tensor(torch.arange(10), "node", "y", None)
    attrs = store.get_all_tensor_attrs()
    store.remove_tensor("node", "y", None)
    for attr in attrs:
        attr.index = torch.tensor([1, 2])
    x, y = store.multi_get_tensor(attrs)
    assert (x.tolist(), y) == ([[1], [2]], None)
    with pytest.raises(InputError, match="put it first"):
        store.get_tensor("node", "y", torch.tensor([1]))


def test_labels_go_with_their_nodes():
    graph = ring()
    store = LiveFeatureStore(graph)
    store.put_tensor(torch.arange(10), "node", "y", None)
    graph.apply(lg.Events().remove_nodes([3]))
    assert store.get_tensor("node", "y", torch.tensor([2, 3, 4])).tolist() == [2, -1, 4]
    graph.apply(lg.Events().add_nodes([3], [[3]]).add_edges([3], [4]))
    assert store.get_tensor("node", "y", torch.tensor([2, 3, 4])).tolist() == [2, -1, 4]
    graph.apply(lg.Events().remove_nodes([5]).add_nodes([5], [[5]]))  # at once
    assert store.get_tensor("node", "y", torch.tensor([5])).tolist() == [-1]
    store.put_tensor(torch.tensor([33, 55]), "node", "y", torch.tensor([3, 5]))
    assert store.get_tensor("node", "y", torch.arange(10)).tolist() == [0, 1, 2, 33, 4, 55, 6, 7, 8, 9]


def test_labels_of_nodes_that_came_and_went_take_no_room():
    graph = ring()
    store = LiveFeatureStore(graph)
    store.put_tensor(torch.arange(10), "node", "y", None)
    (column,) = store._columns._columns.values()
    for id in range(100, 400):
        graph.apply(lg.Events().add_nodes([id], [[0]]))
        store.put_tensor(torch.tensor([id]), "node", "y", torch.tensor([id]))
        assert store.get_tensor("node", "y", torch.tensor([id, 3])).tolist() == [id, 3]
        graph.apply(lg.Events().remove_nodes([id]))
    assert len(column._rows) <= 20
    assert len(column._slots) <= 20


def test_a_row_among_many_is_put_in_place():
    """It sorted all of them anew: the time of a put grew with the others."""
    graph = lg.Graph.from_edges([0], [1], num_nodes=100_000)
    store = LiveFeatureStore(graph)
    store.put_tensor(torch.arange(100_000), "node", "y", None)
    (column,) = store._columns._columns.values()
    room = column._rows.data_ptr()
    for id in (5, 99_999, 0):
        store.put_tensor(torch.tensor([-7]), "node", "y", torch.tensor([id]))
        assert store.get_tensor("node", "y", torch.tensor([id])).tolist() == [-7]
    assert column._rows.data_ptr() == room
    assert (store.get_tensor("node", "y", None) == -7).sum() == 3


def test_a_batch_has_the_labels_of_the_moment_it_was_drawn():
    graph = ring()
    store = LiveFeatureStore(graph)
    store.put_tensor(torch.arange(10) * 3, "node", "y", None)

    def change(out):
        graph.apply(lg.Events().remove_nodes([0, 4]).add_nodes([4], [[-4]]))
        return out

    (batch,) = PyGNodeLoader(
        (store, LiveGraphStore(graph)), LiveSampler(graph, [1]), torch.tensor([1, 4]), batch_size=2,
        transform_sampler_output=change,
    )  # fmt: skip
    assert batch.n_id.tolist() == [1, 4, 0, 3]
    assert batch.y.tolist() == [3, 12, 0, 9]


def test_a_batch_that_is_refused_leaves_labels_as_they_are():
    graph = ring()
    store = LiveFeatureStore(graph)
    store.put_tensor(torch.arange(10), "node", "y", None)

    class Refuses(lg.graph.View):
        name = "refuses"

        def prepare(self, change):
            raise InputError("no")

    view = Refuses(graph)
    graph.attach(view)
    with pytest.raises(InputError, match="no"):
        graph.apply(lg.Events().remove_nodes([3]))
    graph.detach(view) if hasattr(graph, "detach") else graph.views.detach(view)
    assert store.get_tensor("node", "y", None).tolist() == list(range(10))


# -- refusals say what to do


OPTIONS = {
    "time_attr": ("time", "input_time"),
    "weight_attr": ("edge_weight", "by='weight'"),
    "subgraph_type": ("induced", r"graph\.snapshot\(\)"),
    "temporal_strategy": ("last", "by='latest'"),
    "is_sorted": (True, "leave it out"),
    "share_memory": (True, "leave it out"),
    "directed": (True, "leave it out"),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_of_pygs_samplers_are_named(name):
    value, instead = OPTIONS[name]
    graph = chord()
    with pytest.raises(InputError, match=f"^{name} is an option of PyG.*{instead}"):
        NodeLoader(graph, [1], [1], **{name: value})
    with pytest.raises(InputError, match=f"^{name} is an option of PyG.*{instead}"):
        LinkLoader(graph, [1], [[1], [2]], **{name: value})


def test_what_refusals_of_options_say_works():
    graph = chord()
    assert len(list(NodeLoader(graph, [1], [1], input_time=[5000], by="latest"))) == 1
    assert len(list(LinkLoader(graph, [1], [[1], [2]], edge_label_time=[5000]))) == 1
    assert len(list(NodeLoader(graph, [1], [1], by="weight"))) == 1
    assert next(
        iter(NodeLoader(graph, [2, 2], range(5), batch_size=5, transform=T.ToUndirected(reduce="mean")))
    ).is_undirected()
    snapshot = graph.snapshot()
    assert snapshot.edge_index[TYPE].shape == (2, 15)


def test_what_is_not_as_with_pyg_is_as_the_page_says():
    edges = torch.tensor([[0], [1]])
    with pytest.raises(InputError, match=r"x must have the shape \(nodes, channels\), got \(3,\)"):
        lg.Graph.from_pyg(Data(x=torch.zeros(3), edge_index=edges))
    with pytest.raises(InputError, match="'time' is not taken"):
        lg.Graph.from_pyg(Data(x=torch.zeros(3, 1), edge_index=edges, time=torch.zeros(3)))
    graph = lg.Graph.from_pyg(Data(x=torch.tensor([[3], [1], [2]]), edge_index=edges))
    (batch,) = NodeLoader(graph, [1], [1])
    assert batch.x.dtype is torch.float32
    with pytest.raises(AttributeError, match="e_id"):
        batch.e_id


@FORKS
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
@pytest.mark.parametrize("as_object", [False, True])
def test_workers_must_be_forked(method, as_object):
    graph = ring()
    context = multiprocessing.get_context(method) if as_object else method
    with pytest.raises(
        InputError, match=f"multiprocessing_context must be 'fork'.*got '{method}': leave it out"
    ):
        NodeLoader(graph, [1], [1], num_workers=1, multiprocessing_context=context)
    for given in (None, "fork", multiprocessing.get_context("fork")):
        (batch,) = NodeLoader(graph, [1], [1], num_workers=1, multiprocessing_context=given)
        assert batch.n_id.tolist() == [1, 0]


@FORKS
def test_workers_are_forked_whatever_is_the_default(monkeypatch):
    """From Python 3.14 on it is "forkserver"."""
    spawn = multiprocessing.get_context("spawn")
    monkeypatch.setattr("multiprocessing.context._default_context._actual_context", spawn)
    assert multiprocessing.get_start_method() == "spawn"
    (batch,) = NodeLoader(ring(), [1], [1], num_workers=1)
    assert batch.n_id.tolist() == [1, 0]


def test_what_cannot_be_sent_to_another_process_says_so():
    graph = ring()
    for one in (LiveSampler(graph, [1]), *stores(graph)):
        with pytest.raises(
            InputError, match=f"{type(one).__name__} belongs to the graph of this process.*'fork'"
        ):
            pickle.dumps(one)


def test_filtering_in_this_process_is_refused_for_workers():
    graph = ring()
    with pytest.raises(InputError, match=r"filter_per_worker=False would read .* of another moment"):
        NodeLoader(graph, [1], [1], num_workers=1, filter_per_worker=False)
    (batch,) = NodeLoader(graph, [1], [1], filter_per_worker=False)
    assert batch.x[:, 0].tolist() == [1, 0]


@FORKS
def test_pygs_loader_that_filters_here_says_what_to_leave_out():
    graph = chord()
    loader = PyGNodeLoader(
        stores(graph), LiveSampler(graph, [1]), torch.tensor([1]), num_workers=1, filter_per_worker=False,
        transform=add_edge_attributes, multiprocessing_context="fork",
    )  # fmt: skip
    with pytest.raises(InputError, match="leave out filter_per_worker=False"):
        list(loader)


def test_links_and_seeds_without_a_type_may_be_written_as_for_pyg():
    graph = ring()
    pairs = torch.tensor([[1, 2], [2, 3]])
    for given in (pairs, (None, pairs), (None, pairs.tolist()), (TYPE, pairs)):
        (batch,) = LinkLoader(graph, [1], given, batch_size=2)
        part, index = (batch, batch) if not isinstance(batch, HeteroData) else (batch["node"], batch[TYPE])
        assert part.n_id[index.edge_label_index].tolist() == pairs.tolist()
    assert len(list(LinkLoader(graph, [1], (None, None), batch_size=10))) == 1
    for given in ([3, 4], (None, [3, 4])):
        (batch,) = NodeLoader(graph, [1], given, batch_size=2)
        assert batch.n_id[:2].tolist() == [3, 4]
    assert len(list(NodeLoader(graph, [1], (None, None), batch_size=10))) == 1
    assert len(NodeLoader(lg.Graph.from_edges(["a"], ["b"], ids=["a", "b"]), [1], ("a", "b"))) == 2


# -- PyG's own samplers


def test_pointers_of_pygs_own_samplers_are_as_many_as_nodes_or_refused():
    """Of 1,000 nodes, two of them with an edge, there were three pointers, and the sampler read on."""
    graph = lg.Graph.from_edges([0, 1], [1, 0], num_nodes=1000)
    store = LiveGraphStore(graph)
    assert [tuple(attr.size) for attr in store.get_all_edge_attrs()] == [(1000, 1000)]
    row, colptr, _ = store.csc()
    assert (len(colptr[TYPE]), len(row[TYPE])) == (1001, 2)
    rowptr, col, _ = store.csr()
    assert (len(rowptr[TYPE]), len(col[TYPE])) == (1001, 2)
    graph.apply(lg.Events().remove_nodes([7]))
    for ask in (store.csc, store.csr):
        with pytest.raises(InputError, match=r"ids have gaps.* draw with a LiveSampler"):
            ask()
    assert store.coo()[0][TYPE].tolist() == [0, 1]
    graph.apply(lg.Events().add_nodes([7]))
    assert len(store.csc()[1][TYPE]) == 1001
    repr(store.get_all_edge_attrs())


def test_pointers_of_two_types_count_each_its_own():
    edge_type = ("user", "buys", "item")
    graph = lg.Graph(lg.Schema({"user": 0, "item": 0}, {edge_type: lg.EdgeSchema()}))
    graph.apply(
        lg.Events()
        .add_nodes(range(5), node_type="user")
        .add_nodes(range(9), node_type="item")
        .add_edges([1], [2], edge_type=edge_type)
    )
    store = LiveGraphStore(graph)
    assert len(store.csc()[1][edge_type]) == 10
    assert len(store.csr()[0][edge_type]) == 6


def test_seeds_of_a_sampler_are_whole_numbers():
    sampler = LiveSampler(ring(), [1])
    for given in (torch.tensor([True, False]), torch.tensor([1.0, 2.0]), torch.tensor([-1])):
        with pytest.raises((InputError, UnknownNodeError)):
            sampler.sample_from_nodes(NodeSamplerInput(None, given))


# -- errors about nodes and arguments


def text_graph() -> lg.Graph:
    graph = lg.Graph(lg.Schema({"n": 1, "m": 1}, {EDGE_NM: lg.EdgeSchema()}, text_ids=True))
    graph.apply(
        lg.Events()
        .add_nodes(["a", "b", "c"], [[0], [1], [2]], node_type="n")
        .add_nodes(["x", "y"], [[0], [1]], node_type="m")
        .add_edges(["a", "b"], ["x", "y"])
    )
    return graph


EDGE_NM = ("n", "to", "m")


def test_errors_of_loaders_name_text_ids():
    graph = text_graph()
    store = LiveFeatureStore(graph)
    with pytest.raises(UnknownNodeError, match="of type 'n', got 'x', which is not in the graph"):
        store.put_tensor(torch.ones(1), group_name="n", attr_name="y", index=["x"])
    swapped = LinkLoader(graph, {EDGE_NM: [1]}, (EDGE_NM, np.array([["x"], ["a"]])), batch_size=1)
    with pytest.raises(UnknownNodeError, match=r"of type 'n', got 'x'.*gone='skip'"):
        next(iter(swapped))
    links = LinkLoader(graph, {EDGE_NM: [1]}, (EDGE_NM, np.array([["b"], ["y"]])), batch_size=1)
    nodes = NodeLoader(graph, {EDGE_NM: [1]}, ("n", ["a", "b"]), batch_size=2)
    graph.apply(lg.Events().remove_nodes(["b"], node_type="n"))
    for loader in (links, nodes):
        with pytest.raises(UnknownNodeError, match=r"got 'b', which is not in the graph.*gone='skip'"):
            next(iter(loader))
    no_text = 1_000_000  # as a number whose text is not kept any more
    with pytest.raises(UnknownNodeError, match=f"got the number {no_text} .*was removed"):
        store.get_tensor(group_name="n", attr_name="x", index=torch.tensor([no_text]))


@pytest.mark.parametrize("id", [2**63, 2**64 - 1])
def test_a_seed_that_is_too_large_is_named_as_it_is(id):
    with pytest.raises(InputError, match=f"got {id}$"):
        NodeLoader(ring(), [1], np.array([1, id], np.uint64))


@pytest.mark.parametrize("switch", ["shuffle", "drop_last", "pin_memory", "persistent_workers"])
def test_switches_of_torch_are_true_or_false(switch):
    for text in ("no", "False", 0):
        with pytest.raises(InputError, match=f"{switch} must be True or False, got {text!r}"):
            NodeLoader(ring(), [1], [1, 2], **{switch: text})
    assert len(list(NodeLoader(ring(), [1], [1, 2], **{switch: np.bool_(False)}))) == 2


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, "got object"),
        ("abcd", "got <U4"),
        (["a"] * 10, "got <U1"),
        (torch.eye(10).to_sparse(), "to_dense"),
        (np.zeros(10, "M8[s]"), "got datetime64"),
        (np.zeros(10, np.longdouble), "got float128"),
    ],
)
def test_tensors_of_nodes_are_dense_and_of_numbers(given, said):
    with pytest.raises(InputError, match=said):
        LiveFeatureStore(ring()).put_tensor(given, group_name="node", attr_name="y", index=None)
