"""Sampling and serving workers of the native core, as Python drives them: their samples are those of the
view beside a graph, whatever the number of workers; any thread may call them.
"""

import threading
from collections.abc import Callable

import numpy as np
import pytest

import livegnn._core as _core
from livegnn import EdgeSchema, Events, Graph, Schema
from livegnn.placement import Owners
from livegnn.presampling import Presampler
from livegnn.query import Query
from livegnn.sampling.query import native_one_hops

USERS, ITEMS = 60, 40
SEED = 11
CLICK, LINK = ("user", "click", "item"), ("item", "link", "item")
SCHEMA = Schema(
    {"user": 3, "item": 5},
    {CLICK: EdgeSchema(weighted=True, timed=True), LINK: EdgeSchema(undirected=True)},
)
TYPES = [(0, 1, False, True, True), (1, 1, True, False, False)]
WIDTHS = [3, 5]
QUERY = Query("user").hop(CLICK, 6, by="latest").hop(LINK, 4).also(CLICK, 3, direction="in", by="weight")

Sample = tuple[list["_core.NodesOfType"], list["_core.EdgesOfType"], list[np.ndarray]]


class Network:
    """Workers whose blocks are delivered at once."""

    def __init__(self, sampling: int, serving: int) -> None:
        one_hops = native_one_hops(SCHEMA, QUERY)
        self.shards = [
            _core.SamplingShard(0, 2, TYPES, one_hops, WIDTHS, worker, sampling, serving, SEED, True)
            for worker in range(sampling)
        ]
        self.caches = [
            _core.SampleCache(0, 2, TYPES, one_hops, WIDTHS, worker, sampling) for worker in range(serving)
        ]

    def tell(self, event: "Callable[[_core.SamplingShard], None]") -> None:
        for shard in self.shards:
            event(shard)
        self.deliver()

    def deliver(self) -> None:
        busy = True
        while busy:
            busy = False
            for shard in self.shards:
                serving, sampling = shard.take_outbox()
                for cache, blocks in zip(self.caches, serving, strict=True):
                    cache.apply(blocks)
                for other, blocks in zip(self.shards, sampling, strict=True):
                    other.receive(blocks)
                    busy = busy or bool(blocks)


def columns_of(sample: Sample) -> list[object]:
    nodes, edges, inverse = sample
    columns = [column for one in (*nodes, *edges) for column in one] + inverse
    return [column.tolist() if isinstance(column, np.ndarray) else column for column in columns]


def users_of(worker: int, serving: int) -> np.ndarray:
    """The users that a serving worker serves, as docs/internals/presampling.md tells."""
    mask = 2**64 - 1

    def mix(number: int) -> int:
        number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 & mask
        number = (number ^ number >> 27) * 0x94D049BB133111EB & mask
        return number ^ number >> 31

    def owner_of(user: int) -> int:
        following = 0
        while following < serving:
            found = following
            drawn = mix((user ^ 0xD1B54A32D192ED03) + found * 0x9E3779B97F4A7C15 & mask) >> 33
            following = (found + 1 << 31) // (drawn + 1)
        return found

    return np.array([user for user in range(USERS) if owner_of(user) == worker])


@pytest.mark.parametrize(("sampling", "serving"), [(1, 1), (3, 2)])
def test_samples_are_those_of_the_view_beside_a_graph(sampling: int, serving: int) -> None:
    """Nodes are numbered in the graph as their ids are, and so are sampled by the same priorities."""
    rng = np.random.default_rng(sampling)
    graph, network = Graph(SCHEMA), Network(sampling, serving)
    users, items = rng.random((USERS, 3), np.float32), rng.random((ITEMS, 5), np.float32)
    graph.apply(Events().add_nodes(np.arange(USERS), users, node_type="user"))
    graph.apply(Events().add_nodes(np.arange(ITEMS), items, node_type="item"))
    network.tell(lambda shard: shard.set_features(0, np.arange(USERS), users))
    network.tell(lambda shard: shard.set_features(1, np.arange(ITEMS), items))
    view = Presampler(graph, QUERY, seed=SEED)
    links = np.unique(rng.integers(0, ITEMS, (300, 2)), axis=0)
    links = links[links[:, 0] < links[:, 1]]
    pairs = np.unique(np.stack([rng.integers(0, USERS, 900), rng.integers(0, ITEMS, 900)], 1), axis=0)
    source, target = np.ascontiguousarray(pairs.T)
    first, second = np.ascontiguousarray(links.T)
    weight, time = rng.random(len(pairs), np.float32), rng.permutation(len(pairs)).astype(float)
    graph.apply(Events().add_edges(source, target, weight=weight, time=time, edge_type=CLICK))
    graph.apply(Events().add_edges(first, second, edge_type=LINK))
    network.tell(lambda shard: shard.add_edges(0, source, target, weight, time))
    network.tell(lambda shard: shard.add_edges(1, first, second, None, None))
    gone = rng.random(len(pairs)) < 0.5
    for step in range(3):
        for worker, cache in enumerate(network.caches):
            seeds = np.repeat(users_of(worker, serving), 2)
            assert len(seeds) > 20
            for attributes in (False, True):
                sample = cache.sample(seeds, attributes)
                assert columns_of(sample) == columns_of(view.native.sample(seeds, attributes, False))
            assert cache.sample_each(seeds, True) > 100
        if step == 0:
            graph.apply(Events().remove_edges(source[gone], target[gone], edge_type=CLICK))
            network.tell(lambda shard: shard.remove_edges(0, source[gone], target[gone]))
        elif step == 1:
            old = time < 200
            graph.apply(Events().remove_edges(source[old & ~gone], target[old & ~gone], edge_type=CLICK))
            network.tell(lambda shard: shard.expire(0, 200.0))


def test_a_state_is_a_dict_of_arrays() -> None:
    rng = np.random.default_rng(0)
    network, again = Network(2, 1), Network(2, 1)
    network.tell(lambda shard: add_clicks(shard, rng))
    network.tell(lambda shard: shard.add_missing(1, np.arange(ITEMS), np.full(5, 2, np.float32)))
    for shard, loaded in zip(network.shards, again.shards, strict=True):
        loaded.load(shard.save())
        loaded.publish_all(0)
        assert loaded.bytes() > 1000
        assert loaded.records_written() > 0
    again.deliver()
    assert again.caches[0].num_samples(0) == network.caches[0].num_samples(0) > 0
    assert again.caches[0].num_features(1) == network.caches[0].num_features(1) > 0
    seeds = np.arange(USERS)
    assert columns_of(again.caches[0].sample(seeds, True)) == columns_of(
        network.caches[0].sample(seeds, True)
    )
    with pytest.raises(RuntimeError, match="there is no array"):
        again.shards[0].load({})
    # A worker that tells everything again, from its block 0 on.
    cache = network.caches[0]
    for sender, shard in enumerate(network.shards):
        shard.publish_all(0)
        cache.restart(sender)
    before = columns_of(cache.sample(seeds, True))
    network.deliver()
    assert columns_of(cache.sample(seeds, True)) == before
    held = cache.bytes()
    cache.clear()
    assert cache.num_samples(0) == cache.num_features(1) == 0
    assert 0 < cache.bytes() < held


def add_clicks(shard: _core.SamplingShard, rng: np.random.Generator, count: int = 400) -> None:
    users, items = rng.integers(0, USERS, count), rng.integers(0, ITEMS, count)
    shard.add_edges(0, users, items, rng.random(count, np.float32), rng.random(count))


def test_any_thread_may_call() -> None:
    """Threads that sample while one applies, and others that use the same sampling worker."""
    network = Network(1, 1)
    (shard,), (cache,) = network.shards, network.caches
    failures: list[BaseException] = []
    done = threading.Event()

    def attempt(call: "Callable[[], None]") -> None:
        try:
            call()
        except BaseException as error:
            failures.append(error)

    def sample() -> None:
        while not done.is_set():
            nodes, edges, _ = cache.sample(np.arange(USERS), True)
            for (source, _, _), (row, col, *_rest) in zip(((0, 1, 0), (1, 1, 1)), edges, strict=True):
                assert len(row) == 0 or row.max() < len(nodes[source][0])
                assert len(col) == 0 or col.max() < len(nodes[1][0])

    def write(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(60):
            add_clicks(shard, rng)
            assert shard.bytes() > 0

    readers = [threading.Thread(target=attempt, args=(sample,)) for _ in range(2)]
    writers = [threading.Thread(target=attempt, args=(lambda seed=seed: write(seed),)) for seed in range(2)]
    for thread in readers + writers:
        thread.start()
    while any(thread.is_alive() for thread in writers):
        cache.apply(shard.take_outbox()[0][0])
    for thread in writers:
        thread.join()
    cache.apply(shard.take_outbox()[0][0])
    done.set()
    for thread in readers:
        thread.join()
    assert failures == []
    assert cache.num_samples(0) == USERS


def test_wrong_arguments_say_so() -> None:
    network = Network(1, 1)
    (shard,), (cache,) = network.shards, network.caches
    three = np.arange(3)
    with pytest.raises(ValueError, match="as many targets as sources"):
        shard.remove_edges(0, three, three[:2])
    with pytest.raises(ValueError, match="each needs a weight"):
        shard.add_edges(0, three, three, None, np.zeros(3))
    with pytest.raises(ValueError, match="a row of features for each of 3 nodes, got 2"):
        shard.set_features(0, three, np.zeros((2, 3), np.float32))
    with pytest.raises(ValueError, match="expected 3 rows of 3 features, got 6 numbers"):
        shard.set_features(0, three, np.zeros((3, 2), np.float32))
    with pytest.raises(ValueError, match="keep no times"):
        shard.expire(1, 0.0)
    with pytest.raises(ValueError, match="expected a worker for each of 1 ids, got 0"):
        _core.Owners(2, True, np.array([3]), np.empty(0, np.int64))
    with pytest.raises(ValueError, match="seeds are owned by a jump hash"):
        shard.begin_move(Owners("modulo", 2).native)
    with pytest.raises(ValueError, match="no seeds are being moved"):
        shard.end_move(True)
    with pytest.raises(ValueError, match="no serving worker 1"):
        shard.publish_all(1)
    with pytest.raises(ValueError, match="no one-hop query 3"):
        cache.num_samples(3)
    for call in (cache.num_features, lambda node_type: cache.has_features(node_type, three)):
        with pytest.raises(ValueError, match="no node type 2"):
            call(2)
    with pytest.raises(ValueError, match="no sampling worker 1"):
        cache.restart(1)
    with pytest.raises(RuntimeError, match="its header is cut off"):
        cache.apply(b"LGSP")
    with pytest.raises(RuntimeError, match="does not begin as one"):
        shard.receive(bytes(80))
    with pytest.raises(ValueError, match="is none of 1"):
        _core.SamplingShard(0, 2, TYPES, [(0, False, 1, 0, (-1,))], WIDTHS, 1, 1, 1, 0, True)
    with pytest.raises(ValueError, match="there is no edge type 2"):
        _core.SampleCache(0, 2, TYPES, [(2, False, 1, 0, (-1,))], WIDTHS, 0, 1)
