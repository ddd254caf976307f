"""Streams of events of all kinds on a graph of several types: after every batch, and after those that are
refused, each cell is the best of its list, and samples are those of a view made anew; `latest` is what
`sample_query` draws.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import livegnn as lg
from livegnn.errors import InputError
from livegnn.presampling import Presampler
from livegnn.query import OneHop, Query
from livegnn.sampling import HeteroSubgraph, sample_query
from livegnn.types import EdgeType

FOLLOWS: EdgeType = ("user", "follows", "user")
BUYS: EdgeType = ("user", "buys", "item")
ALIKE: EdgeType = ("item", "alike", "item")
PAYS: EdgeType = ("user", "pays", "user")
SCHEMA = lg.Schema(
    {"user": 2, "item": 1},
    {
        FOLLOWS: lg.EdgeSchema(weighted=True, timed=True, capacity=4),
        BUYS: lg.EdgeSchema(
            weighted=True, timed=True, duplicates="add", edge_dim=2, capacity=4, time_to_live=6
        ),
        ALIKE: lg.EdgeSchema(weighted=True, timed=True, undirected=True),
        PAYS: lg.EdgeSchema(weighted=True, timed=True, duplicates="keep", edge_dim=1, capacity=4),
    },
)


@st.composite
def queries(draw: st.DrawFn) -> Query:
    """A few one-hop queries in up to three hops, of every edge type, direction and strategy."""
    one_hop: list[OneHop] = []
    at: list[int] = []
    for _ in range(draw(st.integers(1, 5))):
        hop = draw(st.integers(0, min(max(at, default=-1) + 1, 2)))
        one = OneHop(
            draw(st.sampled_from(list(SCHEMA.edge_types))),
            draw(st.sampled_from([1, 2, 3, 5, 50])),
            draw(st.sampled_from(["in", "out"])),
            draw(st.sampled_from(["uniform", "weight", "latest"])),
        )
        before = [i for i, it in enumerate(one_hop) if at[i] == hop - 1 and it.neighbor_type == one.key_type]
        if hop == 0 and one.key_type == "user":
            before = [-1]
        if before:
            one_hop.append(OneHop(one.edge_type, one.num_neighbors, one.direction, one.by, tuple(before)))
            at.append(hop)
    return Query("user", tuple(one_hop or [OneHop(FOLLOWS, 2)]))


class Stream:
    """Valid events, and some that are refused."""

    def __init__(self, data: st.DataObject, size: int) -> None:
        self.rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
        self.size = size
        self.known = {"user": list(range(size)), "item": list(range(1000, 1000 + size))}
        self.next_id = {"user": size, "item": 1000 + size}
        self.time = 0.0

    def first(self) -> lg.Events:
        events = lg.Events()
        for name, ids in self.known.items():
            events.add_nodes(ids, self.rng.normal(size=(self.size, SCHEMA.node_types[name])), node_type=name)
        return self.edges(events, 3 * self.size)

    def edges(self, events: lg.Events, count: int) -> lg.Events:
        for edge_type in SCHEMA.edge_types:
            source, _, target = edge_type
            number = int(self.rng.integers(0, count + 1))
            # Few ends are frequent, so that some nodes have many neighbours.
            u = self.rng.choice(self.known[source][: 1 + len(self.known[source]) // 2], number)
            v = self.rng.choice(self.known[target], number)
            if self.rng.random() < 0.5 and source == target:
                u, v = v, u
            weight = self.rng.choice([-1, 0, 0.5, 1, 8], number)
            time = self.time + self.rng.integers(-2, 3, number)
            dim = SCHEMA.edge_types[edge_type].edge_dim
            attr = {"edge_attr": self.rng.normal(size=(number, dim))} if dim else {}
            events.add_edges(u, v, weight=weight, time=time, edge_type=edge_type, **attr)
        return events

    def next(self) -> lg.Events:
        self.time += 1
        events = lg.Events()
        for _ in range(int(self.rng.integers(1, 4))):
            kind = int(self.rng.integers(0, 6))
            name = ("user", "item")[int(self.rng.integers(0, 2))]
            if kind < 3:
                self.edges(events, int(self.rng.integers(1, 12)))
            elif kind == 3:
                for edge_type in SCHEMA.edge_types:
                    u = self.rng.choice(self.known[edge_type[0]], 6)
                    v = self.rng.choice(self.known[edge_type[2]], 6)
                    events.remove_edges(u, v, edge_type=edge_type)
            elif kind == 4 and len(self.known[name]) > 3:
                gone = self.known[name].pop(int(self.rng.integers(0, len(self.known[name]))))
                events.remove_nodes([gone], node_type=name)
                if self.rng.random() < 0.5:  # the same id, with other neighbours
                    self.known[name].append(gone)
                    events.add_nodes([gone], np.ones((1, SCHEMA.node_types[name])), node_type=name)
            else:
                self.known[name].append(self.next_id[name])
                events.add_nodes([self.next_id[name]], node_type=name)
                self.next_id[name] += 1
        return events


class Refusing(lg.graph.View):
    """Refuses a batch after other views have prepared it."""

    name = "refusing"

    def __init__(self, graph: lg.Graph) -> None:
        super().__init__(graph)
        self.refuses = False
        graph.attach(self)

    def prepare(self, change: lg.GraphDelta) -> None:
        if self.refuses:
            raise InputError("refused")


def columns(sample: HeteroSubgraph) -> dict[str, object]:
    """All of a sample but the seed, as plain values."""
    parts = ("node", "row", "col", "edge", "inverse", "x", "edge_weight", "time", "edge_attr")
    plain: dict[str, object] = {
        part: {name: None if one is None else one.tolist() for name, one in getattr(sample, part).items()}
        for part in parts
    }
    return plain | {"nodes": sample.num_sampled_nodes, "edges": sample.num_sampled_edges}


@settings(max_examples=60)
@given(query=queries(), seed=st.integers(0, 2**64 - 1), size=st.sampled_from([4, 12, 40]), data=st.data())
def test_samples_are_those_of_a_view_made_anew(
    query: Query, seed: int, size: int, data: st.DataObject
) -> None:
    stream = Stream(data, size)
    graph = lg.Graph(SCHEMA)
    presampler = Presampler(graph, query, seed=seed)
    refusing = Refusing(graph)
    graph.apply(stream.first())
    for batch in range(12):
        before = columns(presampler.sample(stream.known["user"]))
        if batch % 4 == 2:
            refusing.refuses = True
            with pytest.raises(InputError):
                graph.apply(stream.edges(lg.Events(), 5))
            refusing.refuses = False
            assert columns(presampler.sample(stream.known["user"])) == before
        graph.apply(stream.next())
        if batch % 5 == 4:
            graph.apply(graph.expired(stream.time))
        presampler.native.check()
        known = stream.known["user"]
        anew = Presampler(graph, query, seed=seed)
        assert columns(presampler.sample(known)) == columns(anew.sample(known))
        check_against_graph(graph, presampler, known)
    restored_graph = lg.Graph.from_state(graph.state())
    restored = Presampler(restored_graph, query, state=presampler.state())
    assert columns(restored.sample(stream.known["user"])) == columns(presampler.sample(stream.known["user"]))


def check_against_graph(graph: lg.Graph, presampler: Presampler, known: list[int]) -> None:
    """What does not depend on random numbers is what `sample_query` gives."""
    latest = Query(
        presampler.query.seed_type,
        tuple(
            OneHop(one.edge_type, one.num_neighbors, one.direction, "latest", one.parents)
            for one in presampler.query.one_hop
        ),
    )
    ahead = Presampler(graph, latest, seed=1)
    for seeds in (known, known[:1], [known[-1], known[0], known[-1]]):
        expected = sample_query(graph, seeds, latest, attributes=True)
        assert columns(ahead.sample(seeds)) == columns(expected)
        assert columns(ahead.sample(seeds, attributes=False)) == columns(sample_query(graph, seeds, latest))
    # By whichever strategy: each edge is one of the graph's, with its values.
    sample = presampler.sample(known)
    for name, row in sample.row.items():
        source, target = sample.node[name[0]][row], sample.node[name[2]][sample.col[name]]
        if SCHEMA.edge_types[name].duplicates == "keep":
            continue
        for u, v, weight, time in zip(
            source, target, sample.edge_weight[name], sample.time[name], strict=True
        ):
            found = graph.neighbors(int(u), edge_type=name, direction="out")
            (at,) = np.flatnonzero(found.ids == v)
            assert (found.weight[at], found.time[at]) == (weight, time)
