"""Samples of random graphs, held against the graph as plain dictionaries: what they hold exists, may be
drawn, is as much as was asked for, and stands where it should."""

from collections import Counter
from typing import NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import livegnn as lg
from livegnn.sampling import HeteroSubgraph, sample_metapath, sample_neighbors, sample_nodes, sample_subgraph
from livegnn.types import EdgeType

FOLLOWS: EdgeType = ("user", "follows", "user")
BUYS: EdgeType = ("user", "buys", "item")
ALIKE: EdgeType = ("item", "alike", "item")
SCHEMA = lg.Schema(
    {"user": 0, "item": 0},
    {
        FOLLOWS: lg.EdgeSchema(weighted=True, timed=True),
        BUYS: lg.EdgeSchema(weighted=True, timed=True),
        ALIKE: lg.EdgeSchema(weighted=True, timed=True, undirected=True),
    },
)


class Shop(NamedTuple):
    """A graph, and its edges in the direction of their messages: (source, target) -> (weight, time)."""

    graph: lg.Graph
    edges: dict[EdgeType, dict[tuple[int, int], tuple[float, float]]]

    def neighbors(
        self, edge_type: EdgeType, node: int, direction: str, by: str, until: float
    ) -> dict[int, tuple[float, float]]:
        """Those that may be drawn, with weight and time."""
        here = 1 if direction == "in" else 0
        return {
            ends[1 - here]: (weight, time)
            for ends, (weight, time) in self.edges[edge_type].items()
            if ends[here] == node and time <= until and (by != "weight" or weight > 0)
        }


@st.composite
def shops(draw: st.DrawFn) -> Shop:
    """Up to a dozen users and items; then some users go, so that indices are free."""
    counts = {"user": draw(st.integers(1, 12)), "item": draw(st.integers(1, 12))}
    graph = lg.Graph(SCHEMA)
    offset = {"user": 0, "item": 1000}  # so that an id says of which type it is, and is no index
    events = lg.Events()
    for name, count in counts.items():
        events.add_nodes(offset[name] + 3 * np.arange(count), node_type=name)
    edges = {}
    for edge_type in SCHEMA.edge_types:
        source, _, target = edge_type
        ends = st.tuples(st.integers(0, counts[source] - 1), st.integers(0, counts[target] - 1))
        values = st.tuples(st.sampled_from([-1.0, 0.0, 0.5, 1.0, 8.0]), st.sampled_from([0.0, 1.0, 2.0, 3.0]))
        drawn = {
            (offset[source] + 3 * u, offset[target] + 3 * v): value
            for (u, v), value in draw(st.dictionaries(ends, values, max_size=40)).items()
        }
        if edge_type == ALIKE:
            drawn = {(min(ends), max(ends)): value for ends, value in drawn.items()}
        for (u, v), (weight, time) in drawn.items():
            events.add_edges(u, v, weight=weight, time=time, edge_type=edge_type)
        if edge_type == ALIKE:
            drawn |= {(v, u): value for (u, v), value in drawn.items()}
        edges[edge_type] = drawn
    gone = draw(st.sets(st.integers(0, counts["user"] - 1), max_size=counts["user"] - 1))
    if gone:
        ids = [3 * index for index in sorted(gone)]
        events.remove_nodes(ids, node_type="user")
        edges = {
            edge_type: {ends: value for ends, value in some.items() if not set(ends) & set(ids)}
            for edge_type, some in edges.items()
        }
    graph.apply(events)
    return Shop(graph, edges)


laws = st.sampled_from(["uniform", "weight", "latest"])
directions = st.sampled_from(["in", "out"])
untils = st.sampled_from([None, 0.5, 1.0, 2.5])
counts = st.sampled_from([-1, 0, 1, 2, 3, 5, 50])
samples_seeds = st.integers(0, 2**64 - 1)


def expected_size(count: int, there: int, *, replace: bool) -> int:
    if count == -1:
        return there
    return min(count, there) if not replace or there == 0 else count


@given(
    shop=shops(),
    edge_type=st.sampled_from([FOLLOWS, BUYS, ALIKE]),
    count=counts,
    by=laws,
    replace=st.booleans(),
    direction=directions,
    until=st.one_of(untils, st.just("each")),
    seed=samples_seeds,
    data=st.data(),
)
def test_neighbors_are_drawn_from_those_that_may_be(
    shop: Shop,
    edge_type: EdgeType,
    count: int,
    by: str,
    replace: bool,
    direction: str,
    until: object,
    seed: int,
    data: st.DataObject,
) -> None:
    replace = replace and by != "latest"
    known = shop.graph.ids(edge_type[2 if direction == "in" else 0]).tolist()
    ids = data.draw(st.lists(st.sampled_from(known), max_size=8))
    if until == "each":
        bounds = data.draw(st.lists(st.sampled_from([0.0, 1.5, 9.0]), min_size=len(ids), max_size=len(ids)))
        until = bounds
    else:
        bounds = [np.inf if until is None else until] * len(ids)
    arguments = {
        "by": by,
        "replace": replace,
        "until": until,
        "edge_type": edge_type,
        "direction": direction,
        "seed": seed,
    }
    sample = sample_neighbors(shop.graph, ids, count, **arguments)
    assert sample.seed == seed
    assert len(sample.rowptr) == len(ids) + 1
    assert sample.rowptr[0] == 0
    assert sample.rowptr[-1] == len(sample.ids)
    for i, node in enumerate(ids):
        there = shop.neighbors(edge_type, node, direction, by, bounds[i])
        part = slice(sample.rowptr[i], sample.rowptr[i + 1])
        drawn = sample.ids[part].tolist()
        assert len(drawn) == expected_size(count, len(there), replace=replace)
        values = list(zip(sample.weight[part].tolist(), sample.time[part].tolist(), strict=True))
        assert values == [there[one] for one in drawn]
        if not replace:
            assert len(set(drawn)) == len(drawn)
        if by == "latest":
            listed = shop.graph.ids(edge_type[0 if direction == "in" else 2])
            order = [one for one in listed.tolist() if one in there]
            order.sort(key=lambda one: -there[one][1])
            assert drawn == order[: len(drawn)]
    again = sample_neighbors(shop.graph, ids, count, threads=2, **arguments)
    assert again.ids.tolist() == sample.ids.tolist()


@settings(max_examples=250)
@given(
    capacity=st.sampled_from([4, 8, 16, 32]),
    duplicates=st.sampled_from(["replace", "keep"]),
    early=st.one_of(st.integers(0, 3), st.integers(0, 60)),
    late=st.one_of(st.integers(20, 40), st.integers(0, 60)),
    count=st.one_of(st.integers(1, 4), st.integers(0, 70)),
    by=laws,
    replace=st.booleans(),
    bounded=st.booleans(),
    seed=samples_seeds,
)
def test_a_hub_of_any_size_gives_what_there_is(
    capacity: int,
    duplicates: str,
    early: int,
    late: int,
    count: int,
    by: str,
    replace: bool,
    bounded: bool,
    seed: int,
) -> None:
    """Lists of a few leaves, where many or no edges are early enough: draws in vain come to an end."""
    follows = lg.EdgeSchema(weighted=True, timed=True, capacity=capacity, duplicates=duplicates)
    graph = lg.Graph(lg.Schema({"user": 0}, {FOLLOWS: follows}))
    edges = early + late
    ids = np.arange(edges + 1)
    keys = {"key": ids[1:]} if duplicates == "keep" else {}
    times = np.repeat([1.0, 3.0], [early, late])
    events = lg.Events().add_nodes(ids, node_type="user")
    if edges:
        events.add_edges(ids[1:], np.zeros(edges, int), weight=1 + ids[1:], time=times, **keys)
    graph.apply(events)
    until = 2.0 if bounded else None
    replace = replace and by != "latest"
    drawn = sample_neighbors(graph, [0], count, by=by, replace=replace, until=until, seed=seed).ids.tolist()
    there = set(range(1, (early if bounded else edges) + 1))
    assert len(drawn) == expected_size(count, len(there), replace=replace)
    assert set(drawn) <= there
    if not replace:
        assert len(set(drawn)) == len(drawn)


@given(
    shop=shops(),
    hops=st.integers(0, 3),
    by=laws,
    replace=st.booleans(),
    disjoint=st.booleans(),
    direction=directions,
    until=untils,
    seed=samples_seeds,
    data=st.data(),
)
def test_a_subgraph_is_hops_of_neighbors(
    shop: Shop,
    hops: int,
    by: str,
    replace: bool,
    disjoint: bool,
    direction: str,
    until: float | None,
    seed: int,
    data: st.DataObject,
) -> None:
    replace = replace and by != "latest"
    seeds = {}
    for name in data.draw(st.permutations(["user", "item"])):
        known = shop.graph.ids(name).tolist()
        seeds[name] = data.draw(st.lists(st.sampled_from(known), max_size=4))
    fan_outs = {
        edge_type: data.draw(st.lists(counts, min_size=hops, max_size=hops))
        for edge_type in data.draw(st.lists(st.sampled_from([FOLLOWS, BUYS, ALIKE]), unique=True))
    }
    bounds = {name: [np.inf if until is None else until] * len(ids) for name, ids in seeds.items()}
    given_until: object = until
    if disjoint and until is not None:
        choices = st.sampled_from([0.0, 1.5, 9.0])
        bounds = {
            name: data.draw(st.lists(choices, min_size=len(ids), max_size=len(ids)))
            for name, ids in seeds.items()
        }
        given_until = bounds
    arguments = {
        "by": by,
        "replace": replace,
        "until": given_until,
        "disjoint": disjoint,
        "direction": direction,
        "seed": seed,
    }
    sample = sample_subgraph(shop.graph, seeds, fan_outs, **arguments)
    check_subgraph(shop, sample, seeds, fan_outs, bounds, by, direction, replace=replace, disjoint=disjoint)
    backwards = dict(reversed(fan_outs.items()))
    again = sample_subgraph(shop.graph, seeds, backwards, threads=2, **arguments)
    assert {name: ids.tolist() for name, ids in again.node.items()} == {
        name: ids.tolist() for name, ids in sample.node.items()
    }


def check_subgraph(
    shop: Shop,
    sample: HeteroSubgraph,
    seeds: dict[str, list[int]],
    fan_outs: dict[EdgeType, list[int]],
    bounds: dict[str, list[float]],
    by: str,
    direction: str,
    *,
    replace: bool,
    disjoint: bool,
) -> None:
    hops = len(next(iter(fan_outs.values()))) if fan_outs else 0
    all_bounds = [bound for name in seeds for bound in bounds[name]]
    batch = {
        name: (sample.batch[name] if disjoint else np.zeros(len(ids), int))
        for name, ids in sample.node.items()
    }

    # Seeds come first, each as often as it should, and nobody comes twice.
    first = 0
    for name in ("user", "item"):
        assert list(sample.node) == ["user", "item"]
        nodes = sample.node[name].tolist()
        assert len(set(zip(nodes, batch[name].tolist(), strict=True))) == len(nodes)
        assert sum(sample.num_sampled_nodes[name]) == len(nodes)
        assert len(sample.num_sampled_nodes[name]) == hops + 1
    for name, ids in seeds.items():
        distinct = ids if disjoint else list(dict.fromkeys(ids))
        assert sample.num_sampled_nodes[name][0] == len(distinct)
        assert sample.node[name][: len(distinct)].tolist() == distinct
        assert sample.node[name][sample.inverse[name]].tolist() == ids
        if disjoint:
            assert batch[name][: len(ids)].tolist() == list(range(first, first + len(ids)))
        first += len(ids)

    node_ends = {name: np.cumsum(sampled).tolist() for name, sampled in sample.num_sampled_nodes.items()}
    assert set(sample.row) == set(sample.col) == set(sample.edge) == set(fan_outs)
    for hop in range(hops):
        reached: dict[str, set[int]] = {"user": set(), "item": set()}
        for edge_type, counts_ in fan_outs.items():
            source, _, target = edge_type
            here, there = (target, source) if direction == "in" else (source, target)
            sampled = sample.num_sampled_edges[edge_type]
            assert len(sampled) == hops
            assert sum(sampled) == len(sample.row[edge_type]) == len(sample.col[edge_type])
            part = slice(sum(sampled[:hop]), sum(sampled[: hop + 1]))
            row, col = sample.row[edge_type][part].tolist(), sample.col[edge_type][part].tolist()
            ends = list(zip(col, row, strict=True) if direction == "in" else zip(row, col, strict=True))
            reached[there] |= {other for _, other in ends}
            # What is drawn for is what the hop before brought in, in order; each gets what it should.
            frontier = range(node_ends[here][hop - 1] if hop else 0, node_ends[here][hop])
            assert [node for node, _ in ends] == sorted(node for node, _ in ends)
            assert {node for node, _ in ends} <= set(frontier)
            drawn = Counter(ends)
            if not replace:
                assert max(drawn.values(), default=1) == 1
            for node in frontier:
                tree = batch[here][node]
                until = all_bounds[tree] if disjoint else (all_bounds or [np.inf])[0]
                may_be = shop.neighbors(edge_type, int(sample.node[here][node]), direction, by, until)
                others = [other for mine, other in ends if mine == node]
                assert {int(sample.node[there][other]) for other in others} <= set(may_be)
                assert len(others) == expected_size(counts_[hop], len(may_be), replace=replace)
                if disjoint:
                    assert {batch[there][other] for other in others} <= {tree}
        # And who is new in a hop was reached in it.
        for name, ends_ in node_ends.items():
            assert set(range(ends_[hop], ends_[hop + 1])) <= reached[name]
            assert max(reached[name], default=-1) < ends_[hop + 1]


@given(shop=shops(), seed=samples_seeds, count=st.integers(0, 30), replace=st.booleans(), data=st.data())
def test_nodes_are_those_that_can_be_drawn(
    shop: Shop, seed: int, count: int, replace: bool, data: st.DataObject
) -> None:
    by = data.draw(st.sampled_from(["uniform", "degree", "weight"]))
    if by == "uniform":
        name = data.draw(st.sampled_from(["user", "item"]))
        can_be = set(shop.graph.ids(name).tolist())
        drawn = sample_nodes(shop.graph, count, node_type=name, replace=replace, seed=seed)
    else:
        edge_type = data.draw(st.sampled_from([FOLLOWS, BUYS, ALIKE]))
        direction = data.draw(directions)
        here = 1 if direction == "in" else 0
        can_be = {
            ends[here] for ends, (weight, _) in shop.edges[edge_type].items() if by == "degree" or weight > 0
        }
        drawn = sample_nodes(
            shop.graph, count, by=by, edge_type=edge_type, direction=direction, replace=replace, seed=seed
        )
    assert set(drawn.tolist()) <= can_be
    assert len(drawn) == expected_size(count, len(can_be), replace=replace)
    if not replace:
        assert len(set(drawn.tolist())) == len(drawn)


@given(shop=shops(), seed=samples_seeds, by=laws, disjoint=st.booleans(), data=st.data())
def test_a_metapath_is_a_subgraph_of_one_edge_type_a_hop(
    shop: Shop, seed: int, by: str, disjoint: bool, data: st.DataObject
) -> None:
    paths = [[BUYS], [FOLLOWS, BUYS], [FOLLOWS, FOLLOWS, BUYS, ALIKE], [ALIKE, ALIKE]]
    path = [(edge_type, data.draw(counts)) for edge_type in data.draw(st.sampled_from(paths))]
    known = shop.graph.ids(path[0][0][0]).tolist()
    seeds = data.draw(st.lists(st.sampled_from(known), max_size=4))
    sample = sample_metapath(shop.graph, seeds, path, by=by, disjoint=disjoint, seed=seed)
    fan_outs: dict[EdgeType, list[int]] = {edge_type: [0] * len(path) for edge_type, _ in path}
    for hop, (edge_type, count) in enumerate(path):
        fan_outs[edge_type][hop] = count
    start = path[0][0][0]
    check_subgraph(
        shop,
        sample,
        {start: seeds},
        fan_outs,
        {start: [np.inf] * len(seeds)},
        by,
        "out",
        replace=False,
        disjoint=disjoint,
    )


PAYS: EdgeType = ("user", "pays", "user")


@given(
    edges=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 2), st.sampled_from([0.0, 1.0, 2.0, 3.0])), max_size=60
    ),
    gone=st.sets(st.integers(0, 59)),
    count=counts,
    by=laws,
    replace=st.booleans(),
    direction=directions,
    until=untils,
    seed=samples_seeds,
)
def test_parallel_edges_are_drawn_from_those_that_may_be(
    edges: list[tuple[int, int, float]],
    gone: set[int],
    count: int,
    by: str,
    replace: bool,
    direction: str,
    until: float | None,
    seed: int,
) -> None:
    """An edge goes by its weight, which no other has; every fifth is not above 0."""
    schema = lg.EdgeSchema(weighted=True, timed=True, duplicates="keep", capacity=4)
    graph = lg.Graph(lg.Schema({"user": 0}, {PAYS: schema}))
    events = lg.Events().add_nodes(np.arange(4))
    there: dict[float, tuple[int, int, int, float]] = {}  # source, target, key, time
    keys = Counter[tuple[int, int]]()
    for i, (source, target, time) in enumerate(edges):
        weight = float(i if i % 5 else -i)
        there[weight] = source, target, keys[source, target], time
        keys[source, target] += 1
        events.add_edges(source, target, weight=weight, time=time)
    for i in sorted(gone):
        edge = there.pop(float(i if i % 5 else -i), None)
        if edge is not None:
            events.remove_edges(edge[0], edge[1], key=edge[2])
    graph.apply(events)
    replace = replace and by != "latest"
    sample = sample_neighbors(
        graph, np.arange(4), count, by=by, replace=replace, direction=direction, until=until, seed=seed
    )
    here, other = (1, 0) if direction == "in" else (0, 1)
    for node in range(4):
        mine = {
            weight: edge
            for weight, edge in there.items()
            if edge[here] == node and (until is None or edge[3] <= until) and (by != "weight" or weight > 0)
        }
        part = slice(sample.rowptr[node], sample.rowptr[node + 1])
        drawn = sample.weight[part].tolist()
        assert len(drawn) == expected_size(count, len(mine), replace=replace)
        assert [(mine[w][other], mine[w][3]) for w in drawn] == list(
            zip(sample.ids[part].tolist(), sample.time[part].tolist(), strict=True)
        )
        if not replace:
            assert len(set(drawn)) == len(drawn)
        if by == "latest":
            order = sorted(mine, key=lambda w: (-mine[w][3], mine[w][other], mine[w][2]))
            assert drawn == order[: len(drawn)]
