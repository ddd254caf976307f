"""Samples of queries, held against the graph as plain dictionaries: each one-hop query draws, in its own
direction and by its own strategy, for the nodes that its parents have brought in, and for no others."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from test_samples import ALIKE, BUYS, FOLLOWS, SCHEMA, Shop, samples_seeds, shops, untils

import livegnn as lg
from livegnn.query import SEEDS, OneHop
from livegnn.sampling import HeteroSubgraph, sample_metapath, sample_query, sample_subgraph


@st.composite
def queries(draw: st.DrawFn) -> lg.Query:
    """Up to six one-hop queries in up to three hops, with all parents that fit or some of them."""
    seed_type = draw(st.sampled_from(["user", "item"]))
    one_hop: list[OneHop] = []
    at: list[int] = []
    for _ in range(draw(st.integers(1, 6))):
        hop = draw(st.integers(0, min(max(at, default=-1) + 1, 2)))
        one = OneHop(
            draw(st.sampled_from([FOLLOWS, BUYS, ALIKE])),
            draw(st.integers(1, 4)),
            draw(st.sampled_from(["in", "out"])),
            draw(st.sampled_from(["uniform", "weight", "latest"])),
        )
        before = [
            i for i, other in enumerate(one_hop) if at[i] == hop - 1 and other.neighbor_type == one.key_type
        ]
        if hop == 0 and one.key_type == seed_type:
            before = [SEEDS]
        if not before:
            continue
        parents = tuple(draw(st.lists(st.sampled_from(before), min_size=1, unique=True)))
        one_hop.append(OneHop(one.edge_type, one.num_neighbors, one.direction, one.by, parents))
        at.append(hop)
    if not one_hop:
        only = (BUYS, 2, "out" if seed_type == "user" else "in")
        one_hop.append(OneHop(*only))
    return lg.Query(seed_type, tuple(one_hop))


def check_sample(
    shop: Shop,
    sample: HeteroSubgraph,
    seeds: list[int],
    query: lg.Query,
    until: float,
    *,
    by_latest: bool = True,
) -> None:
    """Walks through a sample, one-hop query by one-hop query."""
    known: dict[str, list[int]] = {"user": [], "item": []}
    known[query.seed_type] = list(dict.fromkeys(seeds))
    assert sample.node[query.seed_type][sample.inverse[query.seed_type]].tolist() == seeds
    found: list[list[int]] = []  # by one-hop query: the nodes that it has added
    next_edge = dict.fromkeys(sample.row, 0)
    for hop in range(query.num_hops):
        nodes = {name: len(ids) for name, ids in known.items()}
        edges = dict(next_edge)
        for position, (one, its) in enumerate(zip(query.one_hop, query.hops, strict=True)):
            if its != hop:
                continue
            while len(found) <= position:
                found.append([])
            keys = [
                key
                for parent in one.parents
                for key in (list(dict.fromkeys(seeds)) if parent == SEEDS else found[parent])
            ]
            there = known[one.neighbor_type]
            for key in keys:
                may_be = shop.neighbors(one.edge_type, key, one.direction, one.by, until)
                count = min(one.num_neighbors, len(may_be))
                at = next_edge[one.edge_type]
                part = slice(at, at + count)
                row, col = sample.row[one.edge_type][part], sample.col[one.edge_type][part]
                source, _, target = one.edge_type
                ends = sample.node[source][row].tolist(), sample.node[target][col].tolist()
                mine, others = ends if one.direction == "out" else ends[::-1]
                assert mine == [key] * count
                assert len(set(others)) == count
                assert set(others) <= set(may_be)
                values = zip(
                    sample.edge_weight[one.edge_type][part].tolist(),
                    sample.time[one.edge_type][part].tolist(),
                    strict=True,
                )
                assert list(values) == [may_be[other] for other in others]
                if one.by == "latest":
                    listed = [id for id in shop.graph.ids(one.neighbor_type).tolist() if id in may_be]
                    listed.sort(key=lambda id, may_be=may_be: -may_be[id][1])
                    assert others == listed[:count]
                for other in others:
                    if other not in there:
                        there.append(other)
                        found[position].append(other)
                next_edge[one.edge_type] += count
        for name, ids in known.items():
            assert sample.num_sampled_nodes[name][hop + 1] == len(ids) - nodes[name]
        for name, at in next_edge.items():
            assert sample.num_sampled_edges[name][hop] == at - edges[name]
    assert {name: ids.tolist() for name, ids in sample.node.items()} == known
    assert {name: len(row) for name, row in sample.row.items()} == next_edge
    assert list(sample.row) == [name for name in SCHEMA.edge_types if name in sample.row]


@given(shop=shops(), query=queries(), until=untils, seed=samples_seeds, data=st.data())
def test_a_query_is_drawn_as_it_is_written(
    shop: Shop, query: lg.Query, until: float | None, seed: int, data: st.DataObject
) -> None:
    known = shop.graph.ids(query.seed_type).tolist()
    seeds = data.draw(st.lists(st.sampled_from(known), max_size=4))
    # A parent of a later position with an earlier hop would be walked through too late.
    sample = sample_query(shop.graph, seeds, query, attributes=True, until=until, seed=seed)
    check_sample(shop, sample, seeds, query, np.inf if until is None else until)
    assert sample.seed == seed
    again = sample_query(shop.graph, seeds, query, until=until, seed=seed, threads=2)
    assert same(again, sample)


def same(a: HeteroSubgraph, b: HeteroSubgraph) -> bool:
    columns = [(a.node, b.node), (a.row, b.row), (a.col, b.col), (a.inverse, b.inverse)]
    return (
        all(
            {name: one.tolist() for name, one in left.items()}
            == {name: one.tolist() for name, one in right.items()}
            for left, right in columns
        )
        and a.num_sampled_nodes == b.num_sampled_nodes
        and a.num_sampled_edges == b.num_sampled_edges
    )


@given(
    shop=shops(),
    seed_type=st.sampled_from(["user", "item"]),
    hops=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    by=st.sampled_from(["uniform", "weight", "latest"]),
    seed=samples_seeds,
    data=st.data(),
)
def test_pygs_form_draws_what_sample_subgraph_draws(
    shop: Shop, seed_type: str, hops: list[int], by: str, seed: int, data: st.DataObject
) -> None:
    seeds = data.draw(st.lists(st.sampled_from(shop.graph.ids(seed_type).tolist()), max_size=4))
    query = lg.Query.from_num_neighbors(SCHEMA, seed_type, hops, by=by)
    drawn = sample_query(shop.graph, seeds, query, seed=seed)
    expected = sample_subgraph(shop.graph, {seed_type: seeds}, hops, by=by, seed=seed)
    assert drawn.node.keys() == expected.node.keys()
    for name, ids in expected.node.items():
        assert drawn.node[name].tolist() == ids.tolist()
    for name, row in drawn.row.items():
        assert row.tolist() == expected.row[name].tolist()
        assert drawn.col[name].tolist() == expected.col[name].tolist()


@given(shop=shops(), seed=samples_seeds, data=st.data())
def test_a_path_draws_what_sample_metapath_draws(shop: Shop, seed: int, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from([[BUYS], [FOLLOWS, BUYS], [FOLLOWS, FOLLOWS, BUYS, ALIKE]]))
    counts = [data.draw(st.integers(1, 4)) for _ in path]
    seeds = data.draw(st.lists(st.sampled_from(shop.graph.ids("user").tolist()), max_size=4))
    query = lg.Query("user")
    for edge_type, count in zip(path, counts, strict=True):
        query = query.hop(edge_type, count)
    drawn = sample_query(shop.graph, seeds, query, seed=seed)
    assert same(drawn, sample_metapath(shop.graph, seeds, list(zip(path, counts, strict=True)), seed=seed))
