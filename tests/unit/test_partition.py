"""A graph divided among workers, and the file that says so."""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import livegnn as lg
from graphs import make
from livegnn import checkpoint
from livegnn.errors import FileFormatError, InputError
from livegnn.placement import Partition, partition_graph
from livegnn.placement.owners import NO_OWNER
from livegnn.types import State

SCHEMA = lg.Schema(
    {"user": 0, "item": 0},
    {
        ("user", "buys", "item"): lg.EdgeSchema(),
        ("user", "knows", "user"): lg.EdgeSchema(undirected=True),
    },
)


def communities(parts: int, size: int, seed: int = 0) -> lg.Graph:
    """Users and items in communities of `size` each; one edge of twenty leaves its own."""
    rng = np.random.default_rng(seed)
    graph, n = lg.Graph(SCHEMA), parts * size
    graph.apply(
        lg.Events().add_nodes(1000 + np.arange(n), node_type="user").add_nodes(np.arange(n), node_type="item")
    )
    for edge_type in SCHEMA.edge_types:
        src = rng.integers(0, n, 12 * n)
        dst = np.where(
            rng.random(12 * n) < 0.95,
            src - src % size + rng.integers(0, size, 12 * n),
            rng.integers(0, n, 12 * n),
        )
        ends = np.unique(np.stack([src, dst]), axis=1)
        ends = ends[:, ends[0] != ends[1]]
        targets = ends[1] if edge_type[2] == "item" else 1000 + ends[1]
        graph.apply(lg.Events().add_edges(1000 + ends[0], targets, edge_type=edge_type))
    return graph


@pytest.mark.parametrize("partitioner", ["metis", "fennel"])
def test_few_edges_are_cut_and_each_type_is_balanced(partitioner: str) -> None:
    graph = communities(4, 60)
    partition = partition_graph(graph, 4, partitioner=partitioner)  # type: ignore[arg-type]
    assert partition.cut < (0.08 if partitioner == "metis" else 0.45)
    snapshot = graph.snapshot()
    cut = edges = 0
    for (source, _, target), ends in snapshot.edge_index.items():
        differ = partition.owners[source][ends[0]] != partition.owners[target][ends[1]]
        cut, edges = cut + int(differ.sum()), edges + len(differ)
    assert partition.cut == cut / edges
    for name, owners in partition.owners.items():
        assert owners.dtype == np.uint16
        counts = np.bincount(owners, minlength=4)
        assert partition.balance[name] == counts.max() / counts.mean() <= 1.05
        np.testing.assert_array_equal(partition.ids[name], graph.ids(name))
    again = partition_graph(graph, 4, partitioner=partitioner)  # type: ignore[arg-type]
    for name in SCHEMA.node_types:
        np.testing.assert_array_equal(again.owners[name], partition.owners[name])


def test_metis_finds_what_a_hash_does_not() -> None:
    drawn = make("communities-tiny", symmetric=True)
    graph = lg.Graph.from_edges(drawn.src, drawn.dst, num_nodes=drawn.num_nodes, undirected=True)
    assert partition_graph(graph, 4).cut * 3 < 0.75


@pytest.mark.parametrize("workers", [1, 3, 7])
def test_a_graph_of_any_edges_is_divided_evenly(workers: int) -> None:
    graph = lg.Graph.from_edges([0, 0, 5], [1, 0, 6], num_nodes=20)
    for partitioner in ("metis", "fennel"):
        partition = partition_graph(graph, workers, partitioner=partitioner)  # type: ignore[arg-type]
        assert np.bincount(partition.owners["node"], minlength=workers).max() <= -(-20 // workers)
    empty = lg.Graph.from_edges([], [], num_nodes=7)
    assert np.bincount(partition_graph(empty, 7).owners["node"]).tolist() == [1] * 7


def test_an_owner_is_found_by_index_after_a_file(tmp_path: Path) -> None:
    graph = communities(2, 20)
    graph.apply(lg.Events().remove_nodes([1003], node_type="user").add_nodes([9], node_type="user"))
    partition = partition_graph(graph, 2)
    path = tmp_path / "parts.lgpart"
    assert partition.write(path) == path.stat().st_size
    found = Partition.read(path)
    assert (found.workers, found.partitioner, found.seq) == (2, "metis", graph.seq)
    assert (found.cut, found.balance, found.digests()) == (
        partition.cut,
        partition.balance,
        partition.digests(),
    )
    assert str(found) == str(partition)
    owners = found.owners_in(graph, 2)
    for name, ids in partition.ids.items():
        np.testing.assert_array_equal(
            owners[name].of_index(graph.indices_of(ids, name)), partition.owners[name]
        )
    graph.apply(lg.Events().remove_nodes([1007], node_type="user"))
    fewer = partition_graph(graph, 2)
    assert (fewer.owners_in(graph, 2)["user"].of_index(np.arange(41, dtype=np.uint32)) == NO_OWNER).sum() == 2
    # The order of nodes does not count: a graph that was read from a file may have another.
    names = graph.ids("user")[::-1]
    other = lg.Graph(SCHEMA)
    other.apply(lg.Events().add_nodes(names, node_type="user").add_nodes(graph.ids("item"), node_type="item"))
    moved = fewer.owners_in(other, 2)["user"]
    np.testing.assert_array_equal(
        moved.of_index(other.indices_of(fewer.ids["user"], "user")), fewer.owners["user"]
    )


def test_text_ids_have_owners_too(tmp_path: Path) -> None:
    graph = lg.Graph.from_edges(["a", "b", "ü"], ["b", "c", "d"])
    partition_graph(graph, 2).write(tmp_path / "p")
    found = Partition.read(tmp_path / "p")
    assert sorted(found.ids["node"].tolist()) == ["a", "b", "c", "d", "ü"]
    assert found.owners_in(graph, 2)["node"].workers == 2
    with pytest.raises(InputError, match="another graph"):
        found.owners_in(lg.Graph.from_edges(["a", "b", "u"], ["b", "c", "d"]), 2)


def test_a_partition_of_another_graph_is_refused() -> None:
    graph = communities(2, 20)
    partition = partition_graph(graph, 2)
    with pytest.raises(InputError, match="must be of 3 workers, got one of 2: partition the graph again"):
        partition.owners_in(graph, 3)
    graph.apply(lg.Events().add_nodes([5000], node_type="user"))
    with pytest.raises(
        InputError,
        match=r"of the 41 nodes of type 'user' with the digest \w{16}, got 40 with \w{16}: it is of another",
    ):
        partition.owners_in(graph, 2)
    with pytest.raises(InputError, match="must have the node types 'node', got 'user', 'item'"):
        partition.owners_in(lg.Graph.from_edges([0], [1]), 2)


def test_wrong_arguments_are_refused() -> None:
    graph = lg.Graph.from_edges([0, 1], [1, 2])
    for call, message in (
        (lambda: partition_graph(graph, 0), "workers must be an integer from 1 to 4000, got 0"),
        (
            lambda: partition_graph(graph, 4),
            "a graph of 3 nodes can be divided among as many workers at most",
        ),
        (lambda: partition_graph(graph, 2, partitioner="hash"), "partitioner must be 'metis' or 'fennel'"),  # type: ignore[arg-type]
        (lambda: partition_graph(graph, 2, seed=-1), "seed must be an integer from 0"),
        (lambda: partition_graph(7, 2), "graph must be a Graph, got int"),  # type: ignore[arg-type]
    ):
        with pytest.raises(InputError, match=message):
            call()


@pytest.mark.parametrize(
    ("content", "state"),
    [
        (None, "is not installed"),
        ("raise ImportError('libmetis.so: not found')", "cannot be imported (libmetis.so: not found)"),
    ],
)
def test_without_pymetis_the_error_says_what_to_do(
    content: str | None, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pymetis", None)
    if content is not None:
        monkeypatch.delitem(sys.modules, "pymetis")
        (tmp_path / "pymetis.py").write_text(content)
        monkeypatch.syspath_prepend(tmp_path)
    graph = lg.Graph.from_edges([0, 1], [1, 2])
    with pytest.raises(InputError) as refused:
        partition_graph(graph, 2)
    assert str(refused.value) == (
        f"partitioning by METIS needs pymetis, which {state}: pip install 'livegnn[cluster]', or take the "
        "partitioner 'fennel'"
    )
    assert partition_graph(graph, 2, partitioner="fennel").workers == 2


def test_a_file_that_was_cut_or_flipped_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "parts"
    partition_graph(communities(2, 5), 2).write(path)
    whole = path.read_bytes()
    for end in range(0, len(whole), 97):
        path.write_bytes(whole[:end])
        with pytest.raises(FileFormatError):
            Partition.read(path)
    for at in range(0, len(whole), 31):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        with pytest.raises(FileFormatError):
            Partition.read(path)
    with pytest.raises(FileNotFoundError):
        Partition.read(tmp_path / "none")


def _set(array: str, values: object) -> Callable[[State], State]:
    return lambda state: State(state.meta, {**state.arrays, array: np.array(values)})


def _say(**fields: object) -> Callable[[State], State]:
    return lambda state: State({**state.meta, **fields}, state.arrays)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_say(kind="graph"), "must be a partition file"),
        (_say(workers=1), "an owner of 'user' is none of 1 workers"),
        (_say(workers=0), "workers must be an integer"),
        (_say(cut="low"), "cut and balance are numbers"),
        (_say(node_types=[]), "an array 'ids/user' of no node type"),
        (_say(node_types=[{}]), "fits together: 'name'"),
        (_say(node_types=7), "fits together"),
        (_set("ids/user", [1.0, 2.0, 3.0]), "integers or text, got float64"),
        (_set("ids/user", [1, 2, 4]), "another digest"),
        (_set("owners/user", [0, 1]), "needs an owner, uint16"),
        (_set("owners/user", [0, 1, 1]), "needs an owner, uint16"),
        (_set("owners/user", np.array([0, 1, 2], np.uint16)), "none of 2 workers"),
        (_set("owners/other", [0]), "an array 'owners/other' of no node type"),
    ],
)
def test_a_state_that_does_not_fit_is_refused(
    tmp_path: Path, spoil: Callable[[State], State], message: str
) -> None:
    owners = {"user": np.array([0, 1, 0], np.uint16)}
    good = Partition(2, "metis", 7, {"user": np.array([1, 2, 3])}, owners, 0.5, {"user": 1.3})
    path = tmp_path / "parts"
    good.write(path)
    assert Partition.read(path).owners["user"].tolist() == [0, 1, 0]
    state = checkpoint.read(path).states["partition"]
    checkpoint.write(path, {"partition": spoil(state)}, 7)
    with pytest.raises(FileFormatError, match=message):
        Partition.read(path)
    checkpoint.write(path, {"graph": state}, 7)
    with pytest.raises(FileFormatError, match="with the part 'partition', got 'graph'"):
        Partition.read(path)
