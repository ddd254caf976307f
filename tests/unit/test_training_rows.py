"""Rows, indices and names of the stores, in each kind and order that PyG allows, compared by id.

A row belongs to an id, not to a position: each call gives every id its own row, or is refused.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.loader import LinkLoader as PyGLinkLoader
from torch_geometric.loader import NodeLoader as PyGNodeLoader
from torch_geometric.sampler import NegativeSampling

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

BUYS = ("user", "buys", "item")


def of_one_type(ids: list[int] | list[str]) -> lg.Graph:
    """Nodes in this order, in a ring; the feature is the position in it."""
    ends = np.array(ids)
    return lg.Graph.from_edges(ends, np.roll(ends, 1), ids=ends, x=np.arange(len(ids))[:, None])


def in_turn(*, text: bool) -> lg.Graph:
    """Users and items that come one after the other, so that numbers of text ids alternate."""
    schema = lg.Schema({"user": 1, "item": 1}, {BUYS: lg.EdgeSchema()}, text_ids=text)
    graph = lg.Graph(schema)
    for i in range(4):
        user, item = (f"u{i}", f"i{i}") if text else (10 + i, i)
        graph.apply(
            lg.Events().add_nodes([user], [[i]], node_type="user").add_nodes([item], [[i]], node_type="item")
        )
    users, items = graph.ids("user"), graph.ids("item")
    graph.apply(
        lg.Events().add_edges(users, items, edge_type=BUYS).add_edges(users, items[::-1], edge_type=BUYS)
    )
    return graph


def churned(graph: lg.Graph, gone: list, come: list) -> lg.Graph:
    """Nodes leave, and others, or the same again, come into their places."""
    graph.apply(lg.Events().remove_nodes(gone))
    last = graph.ids()[0].item()
    for id in come:
        graph.apply(lg.Events().add_nodes([id], [[99]]).add_edges([id, last], [last, id]))
    return graph


GRAPHS: dict[str, Callable[[], lg.Graph]] = {
    "dense": lambda: of_one_type([0, 1, 2, 3, 4]),
    "gaps": lambda: of_one_type([50, 7, 3, 90]),
    "text": lambda: of_one_type(["d", "a", "c", "b"]),
    "types in turn": lambda: in_turn(text=False),
    "text of types in turn": lambda: in_turn(text=True),
    "dense after churn, with a gap": lambda: churned(of_one_type([0, 1, 2, 3, 4]), [1, 3], [9]),
    "gaps after churn": lambda: churned(of_one_type([50, 7, 3, 90]), [7, 3], [70, 1]),
    "text after churn": lambda: churned(of_one_type(["d", "a", "c", "b"]), ["a", "c"], ["e", "f"]),
    "dense again after churn": lambda: churned(of_one_type([0, 1, 2, 3, 4]), [1, 3], [1, 3]),
    "dense, listed in another order": lambda: of_one_type([2, 0, 1, 3]),
}
GUESSES = ["dense again after churn", "dense, listed in another order"]
"""Row i could be of id i, as PyG takes it, or of `graph.ids()[i]`."""


class World(NamedTuple):
    graph: lg.Graph
    name: str  # of a node type
    label: dict[object, int]  # by id

    def ids(self) -> list[object]:
        return self.graph.ids(self.name).tolist()

    def numbers(self, ids: list[object] | None = None) -> torch.Tensor:
        return torch.from_numpy(np.array(self.graph.to_numbers(np.array(self.ids() if ids is None else ids))))

    def rows(self, ids: list[object]) -> torch.Tensor:
        return torch.tensor([self.label[id] for id in ids])

    def labels_of(self, n_id: torch.Tensor) -> list[int]:
        return [self.label[id] for id in self.graph.to_user_ids(n_id.numpy()).tolist()]


def worlds() -> list[object]:
    return [
        pytest.param((key, name), id=f"{key}, {name}")
        for key, make in GRAPHS.items()
        for name in make().schema.node_types
    ]


@pytest.fixture(params=worlds())
def world(request) -> World:
    key, name = request.param
    graph = GRAPHS[key]()
    return World(graph, name, {id: 100 + i for i, id in enumerate(sorted(graph.ids(name).tolist(), key=str))})


def is_guess(world: World) -> bool:
    ids = world.ids()
    return sorted(ids, key=str) == list(range(len(ids))) and ids != sorted(ids)


# Ways to say "rows for these nodes": the index of all nodes, and the ids that it names.
ALL: dict[str, Callable[[World], tuple[object, list[object]]]] = {
    "None": lambda w: (None, w.ids()),
    "numbers": lambda w: (w.numbers(), w.ids()),
    "numbers in another order": lambda w: (w.numbers(w.ids()[::-1]), w.ids()[::-1]),
    "numbers, int32": lambda w: (w.numbers().int(), w.ids()),
    "numbers in an array": lambda w: (w.numbers().numpy(), w.ids()),
    "numbers in an array of another order": lambda w: (w.numbers().numpy()[::-1], w.ids()[::-1]),
    "numbers, uint64": lambda w: (w.numbers().numpy().astype(np.uint64), w.ids()),
    "numbers in a list": lambda w: (w.numbers().tolist(), w.ids()),
    "numbers as a part of an array": lambda w: (np.repeat(w.numbers().numpy(), 2)[::2], w.ids()),
    "ids": lambda w: (w.graph.ids(w.name)[::-1], w.ids()[::-1]),
    "mask": lambda w: (torch.ones(len(w.ids()), dtype=torch.bool), w.ids()),
}
SOME: dict[str, Callable[[World], tuple[object, list[object]]]] = {
    "numbers": lambda w: (w.numbers()[[2, 0]], [w.ids()[2], w.ids()[0]]),
    "mask": lambda w: (torch.arange(len(w.ids())) % 2 == 1, w.ids()[1::2]),
    "mask in an array": lambda w: (np.arange(len(w.ids())) % 2 == 1, w.ids()[1::2]),
    "slice": lambda w: (slice(1, 3), w.ids()[1:3]),
    "slice from the end": lambda w: (slice(-2, None), w.ids()[-2:]),
    "slice backwards": lambda w: (slice(None, None, -1), w.ids()[::-1]),
    "one number": lambda w: (int(w.numbers()[1]), [w.ids()[1]]),
    "one number of NumPy": lambda w: (w.numbers().numpy()[1], [w.ids()[1]]),
    "one number in a tensor": lambda w: (w.numbers()[1], [w.ids()[1]]),
    "nobody": lambda w: (torch.tensor([], dtype=torch.long), []),
    "the same again": lambda w: (w.numbers()[[1, 1]], [w.ids()[1]] * 2),
}
BY_POSITION = ["None", "mask", "mask in an array", "slice", "slice from the end", "slice backwards"]


@pytest.mark.parametrize("kind", ALL)
def test_rows_that_are_put_belong_to_ids(world, kind):
    store = LiveFeatureStore(world.graph)
    index, ids = ALL[kind](world)
    if is_guess(world) and kind in BY_POSITION:
        with pytest.raises(InputError, match=r"Name the rows: index=torch.arange\("):
            store.put_tensor(world.rows(ids), world.name, "y", index)
        store.put_tensor(world.rows(list(range(len(ids)))), world.name, "y", torch.arange(len(ids)))
        ids = world.ids()
        store.put_tensor(world.rows(ids), world.name, "y", torch.from_numpy(world.graph.ids(world.name)))
    else:
        assert store.put_tensor(world.rows(ids), world.name, "y", index)
    every = store.get_tensor(world.name, "y", world.numbers())
    assert every.tolist() == [world.label[id] for id in world.ids()]
    hops = {key: [-1, -1] for key in world.graph.schema.edge_types}
    for seeds in (None, world.ids()[:2]):
        for batch in NodeLoader(world.graph, hops, (world.name, seeds), features=store, batch_size=3):
            part = batch[world.name]
            assert part.y.tolist() == world.labels_of(part.n_id)


@pytest.mark.parametrize("kind", [*ALL, *(f"some {kind}" for kind in SOME)])
def test_rows_that_are_read_belong_to_ids(world, kind):
    store = LiveFeatureStore(world.graph)
    store.put_tensor(world.rows(world.ids()), world.name, "y", world.numbers())
    index, ids = SOME[kind[5:]](world) if kind.startswith("some ") else ALL[kind](world)
    for name in ("y", "x"):
        if is_guess(world) and kind.removeprefix("some ") in BY_POSITION:
            with pytest.raises(InputError, match="Name the rows"):
                store.get_tensor(world.name, name, index)
            continue
        found = store.get_tensor(world.name, name, index)
        if name == "y":
            assert found.tolist() == [world.label[id] for id in ids]
        else:
            expected = world.graph.features(ids, world.name) if ids else np.empty((0, 1))
            assert found.tolist() == expected.tolist()


NOT_INDICES: dict[str, Callable[[int], object]] = {
    "fractions": lambda n: torch.rand(n),
    "whole floats": lambda n: torch.arange(n).float(),
    "floats in an array": lambda n: np.arange(n, dtype=float),
    "a short mask": lambda n: torch.ones(n - 1, dtype=torch.bool),
    "a long mask": lambda n: torch.ones(n + 1, dtype=torch.bool),
    "a list of booleans": lambda n: [True] * (n + 1),
    "a boolean": lambda n: True,
    "a boolean of NumPy": lambda n: np.True_,
    "from the end": lambda n: torch.arange(-n, 0),
    "one from the end": lambda n: -1,
    "two dimensions": lambda n: torch.zeros((n, 1), dtype=torch.long),
    "a tuple": lambda n: (0, 1),
    "text": lambda n: "node",
    "dates": lambda n: np.arange(n).astype("datetime64[s]"),
    "complex": lambda n: torch.ones(n, dtype=torch.complex64),
    "a dict": lambda n: {0: 1},
    "past 2^63": lambda n: np.full(n, 2**64 - 1, dtype=np.uint64),
}


@pytest.mark.parametrize("kind", NOT_INDICES)
def test_what_is_no_index_is_refused_and_changes_nothing(kind):
    store = LiveFeatureStore(of_one_type([0, 1, 2, 3, 4]))
    store.put_tensor(torch.arange(5), "node", "y", None)
    index = NOT_INDICES[kind](5)
    for name in ("x", "y"):
        with pytest.raises((InputError, UnknownNodeError)):
            store.get_tensor("node", name, index)
    with pytest.raises((InputError, UnknownNodeError)):
        store.put_tensor(torch.arange(5) * 9, "node", "y", index)
    assert store.get_tensor("node", "y", None).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("kind", [kind for kind in NOT_INDICES if kind not in ("a tuple", "text")])
def test_what_is_no_seed_is_refused(kind):
    graph, given = of_one_type([0, 1, 2, 3, 4]), NOT_INDICES[kind](5)
    for load in (
        lambda: list(NodeLoader(graph, [1], given)),
        lambda: list(LinkLoader(graph, [1], [given, given])),
        lambda: list(PyGNodeLoader(stores(graph), LiveSampler(graph, [1]), given)),
        lambda: list(
            PyGLinkLoader(stores(graph), LiveSampler(graph, [1]), (None, torch.stack([given, given])))
        ),
    ):
        # PyG's own loaders make numbers of a mask, and refuse some of the others themselves.
        if "mask" in kind or kind == "a list of booleans":
            continue
        with pytest.raises(
            (InputError, UnknownNodeError, TypeError, AssertionError, ValueError, AttributeError, IndexError)
        ):
            load()


def stores(graph: lg.Graph) -> tuple[LiveFeatureStore, LiveGraphStore]:
    return LiveFeatureStore(graph), LiveGraphStore(graph)


def test_masks_are_seeds_of_the_nodes_that_they_mark(world):
    if is_guess(world):
        with pytest.raises(InputError, match="Name the rows"):
            NodeLoader(world.graph, [1], (world.name, np.ones(len(world.ids()), dtype=bool)))
        return
    mask = torch.arange(len(world.ids())) % 2 == 1
    for given in (mask, mask.numpy(), mask.tolist()):
        (batch,) = NodeLoader(world.graph, [1], (world.name, given), batch_size=9)
        part = batch[world.name]
        ids = world.graph.to_user_ids(part.n_id[: part.batch_size].numpy()).tolist()
        assert ids == world.ids()[1::2]
        assert part.input_id.tolist() == [1, 3][: len(ids)]


@pytest.mark.parametrize(
    "kind", [kind for kind in NOT_INDICES if "mask" in kind or kind == "a list of booleans"]
)
def test_masks_that_mark_no_nodes_of_the_graph_are_no_seeds(kind):
    given = NOT_INDICES[kind](5)
    with pytest.raises(InputError, match="a mask as the seeds must have an entry for each of the 5 nodes"):
        NodeLoader(of_one_type([0, 1, 2, 3, 4]), [1], given)


def test_a_mask_says_no_ends_of_links():
    graph, mask = of_one_type([0, 1, 2, 3, 4]), torch.ones(5, dtype=torch.bool)
    for given in ([mask, mask], torch.stack([mask, mask]), [mask.tolist()] * 2):
        with pytest.raises(InputError, match=r"got a mask: pass links\[:, mask\]"):
            LinkLoader(graph, [1], given)


# -- weights of negative ends


@pytest.mark.parametrize("mode", ["binary", "triplet"])
@pytest.mark.parametrize("make", [LinkLoader, PyGLinkLoader])
def test_weights_of_negative_ends_belong_to_ids(world, mode, make):
    """Only one node may be drawn: of every place in turn."""
    graph, (edge_type,) = world.graph, list(world.graph.schema.edge_types)
    pair = [[graph.ids(name)[0]] for name in edge_type[::2]]
    for chosen, id in enumerate(world.ids()):
        weight = torch.zeros(len(world.ids()))
        weight[chosen] = 1
        ends = {
            f"{end}_weight": weight
            for end, name in (("src", edge_type[0]), ("dst", edge_type[2]))
            if name == world.name
        }
        negatives = NegativeSampling(mode, 3, **ends)

        def load(negatives=negatives):
            if make is LinkLoader:
                return next(iter(LinkLoader(graph, [1], (edge_type, pair), neg_sampling=negatives)))
            numbers = torch.stack([torch.from_numpy(np.array(graph.to_numbers(end))) for end in pair])
            return next(
                iter(
                    PyGLinkLoader(
                        stores(graph), LiveSampler(graph, [1]), (edge_type, numbers), neg_sampling=negatives
                    )
                )
            )

        if is_guess(world):
            with pytest.raises(InputError, match="_weight has a row for each node"):
                load()
            return
        batch, drawn = load(), []
        if mode == "triplet" and edge_type[2] == world.name:
            drawn = batch[world.name].n_id[batch[world.name].dst_neg_index].flatten()
        elif mode == "binary":
            side = 0 if edge_type[0] == world.name else 1
            drawn = batch[world.name].n_id[batch[edge_type].edge_label_index[side, 1:]]
        if len(drawn):
            assert set(graph.to_user_ids(drawn.numpy()).tolist()) == {id}


def test_weights_stay_with_their_ids_when_nodes_come_and_go():
    graph = of_one_type(["a", "b", "c", "d"])
    weight = torch.tensor([0.0, 1.0, 0.0, 0.0])
    loader = LinkLoader(
        graph, [1], [["a"] * 3, ["d"] * 3], neg_sampling=NegativeSampling("triplet", 5, dst_weight=weight)
    )
    batches = iter(loader)
    for event in (
        lg.Events(),
        lg.Events().remove_nodes(["c"]).add_nodes(["e", "f"], [[1], [1]]),
        lg.Events().remove_nodes(["e"]),
    ):
        graph.apply(event)
        batch = next(batches)
        assert set(graph.to_user_ids(batch.n_id[batch.dst_neg_index].flatten().numpy()).tolist()) == {"b"}
    graph.apply(lg.Events().remove_nodes(["b"]))
    with pytest.raises(InputError, match="dst_weight must be above 0 for some node"):
        next(iter(loader))


@pytest.mark.parametrize("count", [0, 3, 5, 200])
def test_weights_for_another_number_of_nodes_are_refused(count):
    for graph in (of_one_type(["a", "b", "c", "d"]), of_one_type([500, 7, 3, 900])):
        negatives = NegativeSampling("binary", 1, src_weight=torch.ones(count), dst_weight=torch.ones(count))
        with pytest.raises(InputError, match="a weight for each of the 4 nodes"):
            LinkLoader(graph, [1], [graph.ids()[:1], graph.ids()[:1]], neg_sampling=negatives)


# -- names


def every_batch():
    """Batches of all kinds that loaders make."""
    columns = {"weight": [1, 1, 1], "time": [1, 1, 1], "edge_attr": [[1], [1], [1]]}
    graph = lg.Graph.from_edges([0, 1, 2], [1, 2, 0], x=[[0], [1], [2]], **columns)
    pairs = [[0, 1], [1, 2]]

    def load(features: LiveFeatureStore):
        for kind in ({}, {"disjoint": True}):
            for typed in (False, True):
                seeds, links = (
                    (("node", [0, 1]), (("node", "to", "node"), pairs)) if typed else ([0, 1], pairs)
                )
                yield from NodeLoader(graph, [2], seeds, features=features, batch_size=2, **kind)
                yield from NodeLoader(graph, [2], seeds, features=features, input_time=[5, 5])
                yield from LinkLoader(graph, [2], links, features=features, edge_label_time=[5, 5])
                for mode in (None, "binary", "triplet"):
                    yield from LinkLoader(graph, [2], links, features=features, neg_sampling=mode, **kind)

    return graph, load


def fields_of(batch) -> set[str]:
    return {name for store in batch.stores for name in store}


def test_names_that_batches_use_are_refused_and_others_arrive():
    graph, load = every_batch()
    store = LiveFeatureStore(graph)
    used = set.union(*map(fields_of, load(store)))
    assert {"e_id", "edge_label", "seed_time", "src_index", "batch", "time", "n_id", "edge_index"} <= used
    others = {
        "ptr",
        "adj_t",
        "face",
        "num_edges",
        "edge_y",
        "keys",
        "to",
        "stores",
        "num_nodes",
        "_y",
        "",
        "a b",
        7,
    }
    for name in used | others:
        with pytest.raises(InputError, match=r"attr_name must|change by events"):
            store.put_tensor(torch.zeros(3), "node", name, None)
    assert [attr.attr_name for attr in store.get_all_tensor_attrs()] == ["x"]
    names = ["y", "pos", "train_mask", "node_time", "label", "z", "node_link_y"]
    for k, name in enumerate(names):
        store.put_tensor(torch.arange(3) + 10 * k, "node", name, None)
    for batch in load(store):
        part = batch if isinstance(batch, Data) else batch["node"]
        for k, name in enumerate(names):
            assert part[name].tolist() == (part.n_id + 10 * k).tolist()


def test_a_name_that_a_refusal_proposes_is_taken():
    store = LiveFeatureStore(of_one_type([0, 1]))
    for name in ("time", "edge_index", "batch", "num_nodes", "keys"):
        with pytest.raises(InputError) as refusal:
            store.put_tensor(torch.zeros(2), "node", name, None)
        proposed = str(refusal.value).split("put it as '")[1].split("'")[0]
        assert store.put_tensor(torch.zeros(2), "node", proposed, None)


def test_rows_of_nodes_that_are_not_there_are_refused():
    store = LiveFeatureStore(of_one_type([0, 1, 2]))
    with pytest.raises(UnknownNodeError, match="got 7, which is not in the graph: add it first"):
        store.put_tensor(torch.zeros(2), "node", "y", torch.tensor([1, 7]))
    with pytest.raises(InputError, match=r"a row for each of 3 nodes, got 2 rows"):
        store.put_tensor(torch.zeros(2), "node", "y", None)
    text = LiveFeatureStore(of_one_type(["a", "b"]))
    with pytest.raises(UnknownNodeError, match="'z'"):
        text.put_tensor(torch.zeros(2), "node", "y", np.array(["a", "z"]))


def test_a_transform_may_not_replace_what_was_put():
    graph = of_one_type([0, 1, 2])
    store = LiveFeatureStore(graph)
    store.put_tensor(torch.tensor([5, 6, 7]), "node", "y", None)
    loader = PyGNodeLoader(
        (store, LiveGraphStore(graph)),
        LiveSampler(graph, [1]),
        torch.tensor([2, 1]),
        transform=add_edge_attributes,
        batch_size=2,
    )
    (batch,) = loader
    assert batch.y.tolist() == (batch.n_id + 5).tolist()
