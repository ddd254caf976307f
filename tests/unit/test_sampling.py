"""The laws of samples as Python sees them, before and after ten thousand changes; consistency under batches;
what is refused.

Laws are tested by chi-square at the level 1e-4, with seeds that never change: a right sampler passes today
and tomorrow. The C++ tests do the same for lists of every height and every path of the draws.
"""

import itertools
import threading
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

import livegnn as lg
from livegnn.sampling import sample_metapath, sample_neighbors, sample_nodes, sample_subgraph

REPEATS = 20_000
START, FIRST, SECOND = 0, range(1, 8), range(8, 20)


def chi_square_limit(degrees: int) -> float:
    """What chi-square exceeds once in ten thousand (Wilson and Hilferty's approximation)."""
    part = 2 / (9 * degrees)
    return degrees * (1 - part + 3.719 * part**0.5) ** 3


def assert_law(seen: Counter, probabilities: dict) -> None:
    """What was seen is what can be seen, about as often as it should."""
    possible = {what: p for what, p in probabilities.items() if p > 0}
    assert set(seen) <= set(possible)
    total = sum(seen.values())
    if len(possible) > 1:
        chi_square = sum((seen[what] - total * p) ** 2 / (total * p) for what, p in possible.items())
        assert chi_square < chi_square_limit(len(possible) - 1)


def shares(weights: dict) -> dict:
    total = sum(weights.values())
    return {what: weight / total for what, weight in weights.items()}


def successive(weights: dict, count: int) -> dict[frozenset, float]:
    """Each set that `count` draws without replacement can give, with its probability: by enumeration."""
    sets: Counter = Counter()
    for order in itertools.permutations([what for what, weight in weights.items() if weight > 0], count):
        left, probability = sum(weight for weight in weights.values() if weight > 0), 1.0
        for what in order:
            probability *= weights[what] / left
            left -= weights[what]
        sets[frozenset(order)] += probability
    return dict(sets)


class Layers:
    """Node 0 points at 1..7, which point at 8..19; edges carry weights and times, and change."""

    def __init__(self, *, changes: int) -> None:
        self.rng = np.random.default_rng(20)
        self.edges: dict[tuple[int, int], tuple[float, float]] = {}
        self.graph = lg.Graph(
            lg.Schema(edge_types={("node", "to", "node"): lg.EdgeSchema(weighted=True, timed=True)})
        )
        self.graph.apply(lg.Events().add_nodes(np.arange(20)))
        ends = [(START, v) for v in FIRST] + [(u, v) for u in FIRST for v in SECOND]
        self.change(ends)
        for _ in range(changes // 100):
            self.change([ends[i] for i in self.rng.integers(0, len(ends), 100)])
        # So that the laws are those of a graph with something in it.
        self.change([ends[0], ends[3], ends[8], ends[20]], remove=0)

    def change(self, ends: list[tuple[int, int]], remove: float = 0.3) -> None:
        events = lg.Events()
        for u, v in ends:
            if self.rng.random() < remove:
                events.remove_edges(u, v)
                self.edges.pop((u, v), None)
            else:
                # Times only grow, or late events would have to be told apart.
                time = self.graph.seq + 1.0
                weight = float(np.float32(self.rng.choice([0, 1, 2, 5]) + self.rng.random()))
                events.add_edges(u, v, weight=weight, time=time)
                self.edges[u, v] = weight, time
        self.graph.apply(events)

    def weights(self, node: int, by: str, until: float = np.inf) -> dict[int, float]:
        return {
            v: weight if by == "weight" else 1.0
            for (u, v), (weight, time) in self.edges.items()
            if u == node and time <= until
        }


@pytest.fixture(scope="module", params=[0, 10_000], ids=["fresh", "after ten thousand changes"])
def layers(request: pytest.FixtureRequest) -> Layers:
    return Layers(changes=request.param)


@pytest.mark.parametrize("by", ["uniform", "weight"])
@pytest.mark.parametrize("bounded", [False, True])
def test_neighbors_have_their_law(layers: Layers, by: str, bounded: bool) -> None:
    times = sorted(time for (u, _), (_, time) in layers.edges.items() if u == START)
    until = times[-2] if bounded else None
    weights = layers.weights(START, by, np.inf if until is None else until)
    assert len(weights) >= 3
    asked = np.full(REPEATS, START)
    drawn = sample_neighbors(
        layers.graph, asked, 3, by=by, replace=True, until=until, direction="out", seed=1
    )
    assert_law(Counter(drawn.ids.tolist()), shares(weights))
    for count in (1, 2, 3):
        sample = sample_neighbors(layers.graph, asked, count, by=by, until=until, direction="out", seed=2)
        sets = Counter(map(frozenset, sample.ids.reshape(REPEATS, count).tolist()))
        assert_law(sets, successive(weights, count))


@pytest.mark.parametrize("by", ["uniform", "degree", "weight"])
@pytest.mark.parametrize("direction", ["in", "out"])
def test_nodes_have_their_law(layers: Layers, by: str, direction: str) -> None:
    weights = dict.fromkeys(range(20), 1.0 if by == "uniform" else 0.0)
    for ends, (weight, _) in layers.edges.items():
        if by != "uniform":
            weights[ends[direction == "in"]] += weight if by == "weight" else 1.0

    def draw(count: int, seed: int, *, replace: bool) -> list[int]:
        sample = sample_nodes(layers.graph, count, by=by, replace=replace, direction=direction, seed=seed)
        drawn: list[int] = sample.tolist()
        return drawn

    assert_law(Counter(draw(REPEATS, 1, replace=True)), shares(weights))
    pairs = Counter(frozenset(draw(2, seed, replace=False)) for seed in range(REPEATS))
    assert_law(pairs, successive(weights, 2))


@pytest.mark.parametrize("by", ["uniform", "weight"])
@pytest.mark.parametrize("kind", ["subgraph", "metapath"])
def test_subgraphs_have_their_law(layers: Layers, by: str, kind: str) -> None:
    """Two hops of one neighbour each: every path has the product of two probabilities."""
    paths = {
        (u, v): first * second
        for u, first in shares(layers.weights(START, by)).items()
        for v, second in shares(layers.weights(u, by)).items()
    }
    seeds = np.full(REPEATS, START)
    if kind == "subgraph":
        sample = sample_subgraph(layers.graph, seeds, [1, 1], by=by, disjoint=True, direction="out", seed=3)
        node, row, col, num_edges = sample.node, sample.row, sample.col, sample.num_sampled_edges
    else:
        edge_type = ("node", "to", "node")
        path = sample_metapath(layers.graph, seeds, [(edge_type, 1)] * 2, by=by, disjoint=True, seed=3)
        node, row, col = path.node["node"], path.row[edge_type], path.col[edge_type]
        num_edges = path.num_sampled_edges[edge_type]
    assert num_edges == [REPEATS, REPEATS]
    assert_law(Counter(zip(node[row[REPEATS:]].tolist(), node[col[REPEATS:]].tolist(), strict=True)), paths)


def test_ties_of_the_latest_go_by_the_order_of_ids() -> None:
    graph = lg.Graph.from_edges(np.arange(1, 301), np.zeros(300, int), time=np.repeat([1.0, 2.0, 3.0], 100))
    listed = graph.ids().tolist()
    expected = [node for node in listed if node > 200] + [node for node in listed if 100 < node <= 200]
    sample = sample_neighbors(graph, [0], 150, by="latest")
    assert sample.ids.tolist() == expected[:150]
    assert sample_neighbors(graph, [0], 120, by="latest", until=2.0).ids.tolist()[:100] == expected[100:]


def test_a_sample_can_be_drawn_again() -> None:
    rng = np.random.default_rng(0)
    graph = lg.Graph.from_edges(
        *rng.integers(0, 500, (2, 20_000)), weight=rng.random(20_000), parallel="last"
    )
    ids = graph.ids()
    first = sample_neighbors(graph, ids, 5)
    again = sample_neighbors(graph, ids, 5, seed=first.seed)
    assert first.ids.tolist() == again.ids.tolist() != sample_neighbors(graph, ids, 5).ids.tolist()
    subgraph = sample_subgraph(graph, ids, [5, 5], by="weight")
    for threads in (1, 2, 3):
        other = sample_subgraph(graph, ids, [5, 5], by="weight", seed=subgraph.seed, threads=threads)
        assert other.node.tolist() == subgraph.node.tolist()
        assert other.row.tolist() == subgraph.row.tolist()


def test_samples_differ_where_no_seed_is_given() -> None:
    graph = lg.Graph.from_edges(np.arange(1000), np.arange(1, 1001))
    one, other = (sample_nodes(graph, 500).tolist() for _ in range(2))
    assert one != other
    assert sample_nodes(graph, 500, seed=7).tolist() == sample_nodes(graph, 500, seed=7).tolist()


def test_samples_of_text_ids() -> None:
    graph = lg.Graph.from_edges(["ann", "bob", "eve"], ["bob", "eve", "ann"], ids=["ann", "bob", "eve"])
    sample = sample_neighbors(graph, ["bob", "bob", "ann"], -1)
    assert sample.ids.tolist() == ["ann", "ann", "eve"]
    subgraph = sample_subgraph(graph, ["ann"], [1, 1])
    assert subgraph.node.tolist() == ["ann", "eve", "bob"]
    assert sample_nodes(graph, 9, seed=0).tolist() == ["ann", "bob", "eve"]
    assert sample_neighbors(graph, [], 3).rowptr.tolist() == [0]
    with pytest.raises(lg.UnknownNodeError, match="got 'zoe'"):
        sample_neighbors(graph, ["ann", "zoe"], 1)


def test_columns_that_a_type_lacks_are_none() -> None:
    plain = sample_neighbors(lg.Graph.from_edges([0], [1]), [1], 2)
    assert (plain.weight, plain.time, plain.edge) == (None, None, None)
    assert plain.ids.tolist() == [0]
    assert sample_subgraph(lg.Graph.from_edges([0], [1]), [1], [2]).edge is None


@pytest.mark.parametrize("direction", ["in", "out"])
def test_edges_are_named_by_the_rows_of_their_features(direction: str) -> None:
    schema = lg.Schema(edge_types={("node", "to", "node"): lg.EdgeSchema(edge_dim=1)})
    graph = lg.Graph(schema)
    src, dst = np.repeat(np.arange(30), 30), np.tile(np.arange(30), 30)
    codes = (src * 100 + dst).astype(np.float32)[:, None]
    events = lg.Events().add_nodes(np.arange(30)).add_edges(src, dst, edge_attr=codes)
    graph.apply(events)
    graph.apply(lg.Events().remove_edges(src[::7], dst[::7]))
    _, x = graph.native.save_edge_features(0)
    sample = sample_subgraph(graph, [3, 4], [5, -1], direction=direction)
    ends = sample.node[sample.row] * 100 + sample.node[sample.col]
    assert x[sample.edge, 0].tolist() == ends.tolist()
    drawn = sample_neighbors(graph, [3], 4, direction=direction)
    ends = drawn.ids * 100 + 3 if direction == "in" else 300 + drawn.ids
    assert x[drawn.edge, 0].tolist() == ends.tolist()


def test_samples_are_from_before_a_batch_or_after_it() -> None:
    """Each batch moves every node's list from one half of the others to the other half, with a new weight."""
    users, others = np.arange(40), np.arange(1000, 1600)
    graph = lg.Graph.from_edges([], [], ids=np.concatenate([users, others]), weight=[])
    failures: list[str] = []
    done = threading.Event()

    def half(generation: int) -> tuple[np.ndarray, np.ndarray]:
        part = others[300:] if generation % 2 else others[:300]
        return np.repeat(part, len(users)), np.tile(users, len(part))

    def turn(generation: int) -> None:
        weight = np.full(300 * len(users), generation + 1.0)
        graph.apply(
            lg.Events().add_edges(*half(generation), weight=weight).remove_edges(*half(generation + 1))
        )

    def read() -> None:
        while not done.is_set():
            sample = sample_neighbors(graph, users, 20, by="weight")
            if len(sample.ids) != 20 * len(users) or len(set(sample.weight.tolist())) != 1:
                failures.append("neighbours of a batch half done")
            subgraph = sample_subgraph(graph, users, [-1])
            reached = subgraph.node[len(users) :]
            if len(reached) != 300 or len({node >= 1300 for node in reached.tolist()}) != 1:
                failures.append("a subgraph of a batch half done")

    turn(0)
    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for generation in range(1, 40):
        turn(generation)
    done.set()
    for reader in readers:
        reader.join()
    assert failures == []


FOLLOWS, BUYS = ("user", "follows", "user"), ("user", "buys", "item")


def shop() -> lg.Graph:
    schema = lg.Schema({"user": 0, "item": 0}, {FOLLOWS: lg.EdgeSchema(), BUYS: lg.EdgeSchema(weighted=True)})
    graph = lg.Graph(schema)
    events = lg.Events().add_nodes([1, 2], node_type="user").add_nodes(7, node_type="item")
    graph.apply(events.add_edges([1, 2], [7, 7], edge_type=BUYS).add_edges(1, 2, edge_type=FOLLOWS))
    return graph


def neighbors(**changes: object) -> object:
    return sample_neighbors(
        **{"graph": shop(), "ids": [1], "num_neighbors": 1, "edge_type": FOLLOWS} | changes
    )


def subgraph(**changes: object) -> object:
    arguments = {"graph": shop(), "seeds": {"user": [1]}, "num_neighbors": {FOLLOWS: [1], BUYS: [1]}}
    return sample_subgraph(**arguments | changes)


def nodes(**changes: object) -> object:
    return sample_nodes(**{"graph": shop(), "count": 1, "node_type": "user", "seed": 1} | changes)


def metapath(**changes: object) -> object:
    return sample_metapath(**{"graph": shop(), "seeds": [1], "metapath": [(FOLLOWS, 1), (BUYS, 1)]} | changes)


@pytest.mark.parametrize(
    ("sample", "changes", "words"),
    [
        (neighbors, {"num_neighbors": -2}, "an integer from -1 to 2147483647, got -2"),
        (neighbors, {"num_neighbors": 2**31}, "an integer from -1 to 2147483647, got 2147483648"),
        (
            neighbors,
            {"num_neighbors": 1.5},
            "num_neighbors must be an integer from -1 to 2147483647, got 1.5",
        ),
        (neighbors, {"by": "luck"}, "'uniform', 'weight', 'latest', got 'luck'"),
        (neighbors, {"by": "weight"}, "('user', 'follows', 'user') has no weights"),
        (neighbors, {"by": "latest"}, "('user', 'follows', 'user') has no times"),
        (neighbors, {"by": "latest", "replace": True}, "no replacement"),
        (neighbors, {"until": 3.0}, "('user', 'follows', 'user') has no times"),
        (neighbors, {"until": [1, 2]}, "one for each of 1 nodes"),
        (neighbors, {"until": float("nan")}, "got NaN"),
        (neighbors, {"direction": "up"}, "direction must be 'in' or 'out', got 'up'"),
        (neighbors, {"ids": [1, 5]}, "type 'user', got 5, which is not in the graph"),
        (neighbors, {"ids": [[1]]}, "a single column"),
        (neighbors, {"num_neighbors": True}, "num_neighbors must be an integer"),
        (neighbors, {"seed": -1}, "seed must be an integer from 0 to 18446744073709551615, got -1"),
        (neighbors, {"seed": "x"}, "seed must be an integer"),
        (neighbors, {"replace": "no"}, "replace must be True or False, got 'no'"),
        (neighbors, {"until": "noon"}, "until must be one time, or one for each of 1 nodes, got 'noon'"),
        (neighbors, {"threads": 0}, "threads must be an integer from 1 to 1024"),
        (neighbors, {"edge_type": ("user", "likes", "item")}, "edge type must be one of"),
        (nodes, {"count": -1}, "count must be an integer from 0 to 2147483647, got -1"),
        (nodes, {"replace": 1}, "replace must be True or False, got 1"),
        (nodes, {"seed": 1.5}, "seed must be an integer"),
        (nodes, {"by": "latest"}, "'uniform', 'degree', 'weight', got 'latest'"),
        (nodes, {"edge_type": FOLLOWS}, "edge_type says whose edges count"),
        (nodes, {"by": "degree", "edge_type": BUYS, "direction": "in"}, "node_type must be 'item'"),
        (nodes, {"by": "weight", "edge_type": FOLLOWS}, "has no weights"),
        (nodes, {"node_type": "shop"}, "node type must be one of"),
        (
            subgraph,
            {"num_neighbors": {FOLLOWS: [1], BUYS: [1, 1]}},
            "as many hops for each edge type, got 1 and 2",
        ),
        (subgraph, {"num_neighbors": {FOLLOWS: [1], BUYS: [-2]}}, "an integer from -1"),
        (subgraph, {"num_neighbors": 2}, "num_neighbors must be a list with a number for each hop, got 2"),
        (subgraph, {"disjoint": "no"}, "disjoint must be True or False, got 'no'"),
        (subgraph, {"attributes": "no"}, "attributes must be True or False, got 'no'"),
        (subgraph, {"seeds": {"user": [1], "item": [8]}}, "type 'item', got 8"),
        (subgraph, {"seeds": {"shop": [1]}}, "node type must be one of"),
        (subgraph, {"seeds": [1], "num_neighbors": [1], "edge_type": BUYS}, "joins two node types"),
        (subgraph, {"seeds": [1]}, "needs seeds by node type"),
        (subgraph, {"edge_type": FOLLOWS}, "not an edge_type"),
        (subgraph, {"until": {"item": [1]}}, "until must have the node types of the seeds"),
        (subgraph, {"until": {"user": [1]}}, "needs disjoint=True"),
        (subgraph, {"until": [1]}, "times by node type"),
        (
            subgraph,
            {"seeds": [1], "num_neighbors": [1], "edge_type": FOLLOWS, "until": {}},
            "seeds by node type",
        ),
        (metapath, {"metapath": 2}, "a list of (edge type, number of neighbours), got 2"),
        (metapath, {"metapath": [FOLLOWS]}, "must be (edge type, number of neighbours), got ('user', 'foll"),
        (metapath, {"metapath": []}, "at least one edge type"),
        (metapath, {"metapath": [(BUYS, 1), (FOLLOWS, 1)]}, "a gap before ('user', 'follows', 'user')"),
        (metapath, {"direction": "in"}, "a gap before ('user', 'buys', 'item')"),
    ],
)
def test_what_cannot_be_sampled_is_refused(sample: Callable[..., object], changes: dict, words: str) -> None:
    sample()
    with pytest.raises(lg.InputError) as caught:
        sample(**changes)
    assert words in str(caught.value)
