"""Nodes that arrive in a divided graph are placed by Fennel's rule, beside one that reads event by event."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import livegnn._core as _core
from divided_streams import BUYS, shop
from gate import draws
from livegnn import Engine, Events, Graph
from livegnn.graph import EdgeSchema, Schema
from livegnn.partitions import LocalPartitions
from livegnn.placement import Owners, Partition, partition_graph

KNOWS = ("user", "knows", "user")
SCHEMA = Schema({"user": 3, "item": 2}, {BUYS: EdgeSchema(weighted=True), KNOWS: EdgeSchema(undirected=True)})
TYPES = ("user", "item")


class Placer:
    """Owners by type and id, of a graph that applies the same batches."""

    def __init__(self, rules: dict[str, Owners], graph: Graph) -> None:
        self.rules, self.graph = rules, graph
        self.owners: dict[str, dict[int, int]] = {name: {} for name in TYPES}

    def read(self, partition: Partition | None) -> None:
        """Begins with the owners of a partition, for the types that Fennel places."""
        for name in TYPES if partition is not None else ():
            ids, owners = partition.ids[name], partition.owners[name]
            if self.rules[name].rule == "fennel":
                self.owners[name] = dict(zip(ids.tolist(), owners.tolist(), strict=True))

    def ends(self) -> dict[str, int]:
        """Of all edges, by the type of the node at the end."""
        counts = dict.fromkeys(TYPES, 0)
        for edge_type in SCHEMA.edge_types:
            for name in (edge_type[0], edge_type[2]):
                counts[name] += self.graph.num_edges(edge_type)
        return counts

    def apply(self, batch: list[tuple[Any, ...]]) -> None:
        """Requires: the graph has not applied it yet."""
        ends, owners = self.ends(), {name: dict(these) for name, these in self.owners.items()}
        arrived: list[tuple[str, list[int]]] = []  # types, and owners of neighbours; -1 - number of new ones
        for kind, type_, first, *other in batch:
            if kind == "node" and first not in owners[type_]:
                if self.rules[type_].rule == "fennel":
                    owners[type_][first] = -1 - len(arrived)
                    arrived.append((type_, []))
                else:
                    owners[type_][first] = int(self.rules[type_].of_id(np.array([first]))[0])
            elif kind == "gone":
                del owners[type_][first]
            elif kind == "edge":
                ends[type_] += 1
                ends[other[0]] += 1
                earlier, later = sorted((owners[type_][first], owners[other[0]][other[1]]), reverse=True)
                if later < 0 and earlier != later:  # for two new nodes, the later one counts it
                    arrived[-1 - later][1].append(earlier)
        placed = self.place(arrived, ends)
        self.owners = {
            name: {id_: owner if owner >= 0 else placed[-1 - owner] for id_, owner in these.items()}
            for name, these in owners.items()
        }

    def place(self, arrived: list[tuple[str, list[int]]], ends: dict[str, int]) -> list[int]:
        parts = self.rules["user"].workers
        owned = {name: list(these.values()) for name, these in self.owners.items()}
        loads = {name: [these.count(part) for part in range(parts)] for name, these in owned.items()}
        nodes = {name: len(self.owners[name]) + sum(one[0] == name for one in arrived) for name in TYPES}
        placed: list[int] = []
        for type_, neighbors in arrived:
            n, load = nodes[type_], loads[type_]
            penalty = 1.5 * math.sqrt(parts) * (0.5 * ends[type_]) / (n * math.sqrt(n))
            most = max(n * 21 // (parts * 20), -(-n // parts))
            owners = [one if one >= 0 else placed[-1 - one] for one in neighbors]
            scores = {
                (-(owners.count(part) - penalty * math.sqrt(load[part])), load[part], part)
                for part in range(parts)
                if load[part] < most
            }
            best = min(scores)[2]
            load[best] += 1
            placed.append(best)
        return placed


def draw_batch(rng: np.random.Generator, present: dict[str, list[int]], count: int) -> list[tuple[Any, ...]]:
    batch: list[tuple[Any, ...]] = []
    for _ in range(count):
        kind, name = rng.random(), str(rng.choice(TYPES))
        if kind < 0.35 or len(present[name]) < 2:
            node = int(rng.integers(60))
            present[name] = [*{*present[name], node}]
            batch.append(("node", name, node))
        elif kind < 0.45:
            node = present[name].pop(int(rng.integers(len(present[name]))))
            batch.append(("gone", name, node))
        elif present["user"]:
            other = "user" if name == "user" and rng.random() < 0.5 else "item"
            if present[other]:
                ends = int(rng.choice(present["user"])), int(rng.choice(present[other]))
                batch.append(("edge" if kind < 0.85 else "cut", "user", ends[0], other, ends[1]))
    return batch


def empty_a_part(placer: Placer, present: dict[str, list[int]]) -> list[tuple[Any, ...]]:
    """Removes most users of a part, so that loads differ."""
    owners = placer.owners["user"]
    gone = [id_ for id_ in present["user"] if owners.get(id_) == 0 and id_ % 4]
    present["user"] = [id_ for id_ in present["user"] if id_ not in gone]
    return [("gone", "user", id_) for id_ in gone]


def events_of(batch: list[tuple[Any, ...]]) -> Events:
    events = Events()
    for kind, type_, first, *other in batch:
        if kind == "node":
            events.add_nodes([first], node_type=type_)
        elif kind == "gone":
            events.remove_nodes([first], node_type=type_)
        else:
            change = events.add_edges if kind == "edge" else events.remove_edges
            change([first], [other[1]], edge_type=KNOWS if other[0] == "user" else BUYS)
    return events


@settings(max_examples=draws(20, 300), suppress_health_check=list(HealthCheck), deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    parts=st.integers(1, 4),
    ruled=st.sampled_from([("fennel", "fennel"), ("fennel", "jump"), ("modulo", "fennel")]),
    first=st.sampled_from([0, 0, 6]),
)
def test_nodes_are_placed_by_the_rule(seed, parts, ruled, first):
    """first: the batch with which the graph is divided."""
    rules = {name: Owners(rule, parts) for name, rule in zip(TYPES, ruled, strict=True)}
    rng, model = np.random.default_rng(seed), shop()
    present: dict[str, list[int]] = {name: [] for name in TYPES}
    graph = Graph(SCHEMA, threads=1)
    engine, placer = Engine(graph, model, threads=1), Placer(rules, graph)
    for number in range(25):
        if number == first:
            placer.read(partition_graph(graph, parts, partitioner="fennel") if first else None)
            divided = LocalPartitions.from_graph(graph, model, rules, threads=1)
            names = divided.names.native
            if first:
                check_counts(divided, graph, placer)
        batch = draw_batch(rng, present, int(rng.integers(1, 80 if number == 0 else 25)))
        if number % 4 == 2:
            batch += empty_a_part(placer, present)
        placer.apply(batch)
        graph.apply(events_of(batch))
        if number < first:
            continue
        if number % 5 == 4:
            refuse(divided, batch)
        divided.apply(events_of(batch))
        for index, name in enumerate(TYPES):
            ids = np.array(list(placer.owners[name]), np.int64)
            owners = _core.owners_at(names, index, names.indices_of(index, ids))
            assert dict(zip(ids.tolist(), owners.tolist(), strict=True)) == placer.owners[name]
            for part in divided.graphs:
                assert _core.owners_of(part.native, index).tolist() == _core.owners_of(names, index).tolist()
        check_counts(divided, graph, placer)
        users = graph.ids("user")
        assert divided.predict(users).tobytes() == engine.predict(users).tobytes()
    divided.close()


def refuse(divided: LocalPartitions, batch: list[tuple[Any, ...]]) -> None:
    """The batch is staged, and then not recorded."""

    def fail(_: object) -> None:
        raise OSError

    with pytest.raises(OSError):
        divided.apply(events_of(batch), on_staged=fail)


def check_counts(divided: LocalPartitions, graph: Graph, placer: Placer) -> None:
    """Edges, cut edges and ends, which the parts count as edges change."""
    counts = np.sum([_core.edge_counts(part.native) for part in divided.graphs], axis=0)
    whole, found = graph.snapshot(), divided.part_counts()
    assert found is not None
    for name in TYPES:
        owned = list(placer.owners[name].values())
        loads = [owned.count(part) for part in range(len(divided.parts))]
        assert found.nodes[name] == loads
        assert found.balance()[name] == (max(loads) * len(loads) / len(owned) if owned else 1.0)
    for (edge_type, edges), counted in zip(SCHEMA.edge_types.items(), counts.tolist(), strict=True):
        first, second = whole.edge_index[edge_type]
        if edges.undirected:
            once = first <= second
            first, second = first[once], second[once]
        of_first, of_second = (
            [placer.owners[name][id_] for id_ in whole.ids[name][ends].tolist()]
            for name, ends in ((edge_type[0], first), (edge_type[2], second))
        )
        cut = sum(a != b for a, b in zip(of_first, of_second, strict=True))
        assert counted == [len(of_first), cut]
        assert (found.edges[edge_type], found.cut[edge_type]) == (len(of_first), cut)
    ends = np.sum([_core.ends_of_edges(part.native) for part in divided.graphs], axis=0)
    assert ends.tolist() == list(placer.ends().values())
