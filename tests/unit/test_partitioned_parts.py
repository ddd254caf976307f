"""Parts of a graph whose nodes a partition places: its owners hold, and what does not fit is refused."""

from dataclasses import replace

import numpy as np
import pytest

import livegnn._core as _core
from divided_streams import BUYS, shop
from livegnn import Engine, Events, Graph, InputError
from livegnn.graph import EdgeSchema, Schema
from livegnn.partitions import LocalPartitions
from livegnn.placement import Owners, Partition, partition_graph
from streams import WIDTH, make_model

ROWS = ("aggregates", "layer outputs")
SCHEMA = Schema({"user": 3, "item": 2}, {BUYS: EdgeSchema(weighted=True)})


def fill(graph: Graph) -> Graph:
    """Twelve users and twelve items in four groups, with gaps where nodes were removed."""
    rng, ids = np.random.default_rng(3), np.arange(13)
    events = Events().add_nodes(ids, rng.normal(size=(13, 3)), node_type="user")
    events.add_nodes(ids, rng.normal(size=(13, 2)), node_type="item")
    users, items = np.repeat(ids, 4), rng.integers(0, 3, 52)
    events.add_edges(users, users % 4 + 4 * items, edge_type=BUYS, weight=rng.uniform(0.5, 2, 52))
    graph.apply(events)
    graph.apply(Events().remove_nodes([5], node_type="user").remove_nodes([12], node_type="item"))
    return graph


@pytest.fixture
def graph() -> Graph:
    return fill(Graph(SCHEMA, threads=1))


def owners_in(parts: LocalPartitions, name: str, ids: np.ndarray) -> list[int]:
    names = parts.names
    number = names.node_type_index(name)
    return _core.owners_at(names.native, number, names.native.indices_of(number, ids)).tolist()


@pytest.mark.parametrize("partitioner", ["metis", "fennel"])
def test_nodes_have_the_owners_of_the_partition(graph: Graph, partitioner: str) -> None:
    if partitioner == "metis":
        pytest.importorskip("pymetis", reason="pymetis is not installed: pip install 'livegnn[cluster]'")
    partition = partition_graph(graph, 3, partitioner=partitioner)  # type: ignore[arg-type]
    model = shop()
    engine = Engine(graph, model, threads=1)
    parts = LocalPartitions.from_graph(graph, model, partition, threads=1)
    assert [rule.rule for rule in parts.rules] == ["fennel", "fennel"]
    for name, ids in partition.ids.items():
        assert owners_in(parts, name, ids) == partition.owners[name].tolist()
    users = graph.ids("user")
    assert parts.predict(users).tobytes() == engine.predict(users).tobytes()
    new = (
        Events()
        .add_nodes([50], [[1.0, 2.0, 3.0]], node_type="user")
        .set_features([3], [[9.0, 9.0]], node_type="item")
    )
    new.add_edges([50, 50], [3, 7], edge_type=BUYS, weight=[1.0, 1.0])
    for one in (graph, parts):
        one.apply(new)
    users = graph.ids("user")
    assert parts.predict(users).tobytes() == engine.predict(users).tobytes()
    parts.close()


def test_types_with_a_hash_keep_it(graph: Graph) -> None:
    rules = {"user": Owners("jump", 3), "item": Owners("fennel", 3)}
    parts = LocalPartitions.from_graph(graph, shop(), rules, threads=1)
    users, items = graph.ids("user"), graph.ids("item")
    assert owners_in(parts, "user", users) == rules["user"].of_id(users).tolist()
    placed = partition_graph(graph, 3, partitioner="fennel").owners["item"]
    assert owners_in(parts, "item", items) == placed.tolist()
    parts.close()


def test_a_node_that_arrives_first_is_placed_by_all_edges() -> None:
    """Its own edge alone would place it where its neighbour is, all edges place it where fewer nodes are:
    1 < 1.5 * sqrt(2) * m / n^1.5 * (sqrt(51) - sqrt(48))."""
    graph, users = Graph(SCHEMA, threads=1), np.arange(99)
    events = Events().add_nodes(users, node_type="user").add_nodes(np.arange(48), node_type="item")
    graph.apply(events.add_edges(np.repeat(users, 48), np.tile(np.arange(48), 99), edge_type=BUYS))
    partition = partition_graph(graph, 2, partitioner="fennel")
    owners = {"user": (users >= 51).astype(np.uint16), "item": np.zeros(48, np.uint16)}
    parts = LocalPartitions.from_graph(graph, shop(), replace(partition, owners=owners), threads=1)
    parts.apply(Events().add_nodes([200], node_type="user").add_edges([200], [0], edge_type=BUYS))
    assert owners_in(parts, "user", np.array([200])) == [1]
    parts.close()


def other_graph(graph: Graph) -> Partition:
    found = partition_graph(graph, 2, partitioner="fennel")
    graph.apply(Events().add_nodes([99], node_type="item"))
    return found


@pytest.mark.parametrize(
    ("owners", "message"),
    [
        (other_graph, "it is of another graph, or of other events; partition the graph again"),
        (lambda _: Owners("fennel", 26), "of 24 nodes can be divided among as many workers at most"),
        (
            lambda graph: replace(partition_graph(graph, 2, partitioner="fennel"), workers=65),
            f"at most {_core.MAX_PARTS} parts, got 65",
        ),
    ],
)
def test_what_does_not_fit_is_refused(graph: Graph, owners: object, message: str) -> None:
    given = owners(graph)  # type: ignore[operator]
    before = graph.state()
    with pytest.raises(InputError, match=message):
        LocalPartitions.from_graph(graph, shop(), given, threads=1)
    after = graph.state()
    assert after.meta == before.meta
    for name, array in before.arrays.items():
        assert np.array_equal(array, after.arrays[name]), name


def test_a_part_keeps_rows_of_its_nodes_and_of_those_that_they_read() -> None:
    """Two groups of nodes, one for each part, with one edge between them, which is removed at last."""
    ids, rng = np.arange(2000), np.random.default_rng(5)
    src = rng.integers(0, 1000, 8000)
    src, dst = (
        np.concatenate([src, src + 1000]),
        np.tile(rng.integers(0, 1000, 8000), 2) + np.repeat([0, 1000], 8000),
    )
    graph = Graph.from_edges(src, dst, x=rng.normal(size=(2000, WIDTH)).astype(np.float32), parallel="last")
    model = make_model()
    owners = Owners("jump", 2, moved=dict(zip(ids.tolist(), (ids // 1000).tolist(), strict=True)))
    whole = sum(size for name, size in Engine(graph, model).memory().items() if name in ROWS)

    def rows(parts: LocalPartitions) -> list[int]:
        return [sum(size for name, size in part.memory().items() if name in ROWS) for part in parts.parts]

    parts = LocalPartitions.from_graph(graph, model, owners)
    begun = rows(parts)
    assert all(0.45 * whole < size < 0.55 * whole for size in begun), (begun, whole)
    parts.apply(Events().add_edges(ids[:500], ids[:500] + 1000))
    read = rows(parts)
    assert read[0] == begun[0]
    assert read[1] > begun[1]
    for batch in (
        Events().remove_edges(ids[:500], ids[:500] + 1000),
        Events().set_features([0], np.zeros((1, WIDTH))),
    ):
        parts.apply(batch)
    parts.apply(Events().add_edges(ids[500:1000], ids[500:1000] + 1000))  # in the slots of the others
    assert rows(parts) == read
    parts.close()
