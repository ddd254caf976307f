"""Reads beside batches: one read of the native graph each, so that an answer is of one moment."""

import inspect
import sys
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from livegnn import EdgeSchema, Engine, Events, Graph, Schema, UnknownNodeError
from livegnn.query import Query
from livegnn.sampling import sample_metapath, sample_neighbors, sample_nodes, sample_query, sample_subgraph
from streams import make_model

WIDTH = 4
NUM_NODES = 24

READS: dict[str, Callable[[Graph, object], object]] = {
    "contains": lambda graph, id: graph.contains([id]),
    "degree": lambda graph, id: graph.degree([id]),
    "edge_attr": lambda graph, id: graph.edge_attr([id], [id]),
    "features": lambda graph, id: graph.features([id]),
    "feature_times": lambda graph, id: graph.feature_times([id]),
    "ids": lambda graph, id: graph.ids(),
    "indices_of": lambda graph, id: graph.indices_of([id]),
    "latest_time": lambda graph, id: graph.latest_time,
    "neighbors": lambda graph, id: graph.neighbors(id),
    "num_edges": lambda graph, id: graph.num_edges(),
    "num_nodes": lambda graph, id: graph.num_nodes(),
}
QUERY = Query("node").hop(("node", "to", "node"), 2).hop(("node", "to", "node"), 2, direction="in")
SAMPLES: dict[str, Callable[[Graph, object], object]] = {
    "sample_nodes": lambda graph, id: sample_nodes(graph, 3, seed=0),
    "sample_neighbors": lambda graph, id: sample_neighbors(graph, [id], 2, seed=0),
    "sample_subgraph": lambda graph, id: sample_subgraph(graph, [id], [2, 2], attributes=True, seed=0),
    "sample_metapath": lambda graph, id: sample_metapath(graph, [id], [(("node", "to", "node"), 2)], seed=0),
    "sample_query": lambda graph, id: sample_query(graph, [id], QUERY, attributes=True, seed=0),
}
# Those that take their turn with batches, change the graph, make one, or do not look at it.
OTHERS = {
    "apply", "attach", "expire", "expired", "from_edges", "from_pyg", "from_state", "from_tables", "memory",
    "snapshot", "schema", "seq", "stage", "state", "edge_type_index", "node_type_index", "pin", "to_numbers",
    "to_user_ids", "unknown_node", "with_types", "writer",
}  # fmt: skip


def make_graph(*, text: bool = False, features: int = 2) -> Graph:
    """A ring with a loop at each node, all of whose numbers are 1."""
    numbers = np.arange(NUM_NODES)
    src, dst = np.tile(numbers, 2), np.concatenate([(numbers + 1) % NUM_NODES, numbers])
    ends = named(src, text=text), named(dst, text=text)
    times, x = np.ones(len(src)), np.ones((NUM_NODES, WIDTH), np.float32)
    edges = EdgeSchema(timed=True, edge_dim=features)
    graph = Graph(
        Schema({"node": WIDTH}, {("node", "to", "node"): edges}, text_ids=text, timed_features=["node"])
    )
    events = Events().add_nodes(named(numbers, text=text), x, time=times[:NUM_NODES])
    graph.apply(events.add_edges(*ends, time=times, edge_attr=np.ones((len(src), features), np.float32)))
    return graph


def named(numbers: np.ndarray, *, text: bool) -> np.ndarray:
    return np.array([f"n{number}" for number in numbers]) if text else numbers


class Counted:
    """A native object, and how often something was asked of it."""

    def __init__(self, native: object) -> None:
        self._native = native
        self.calls = 0

    def __getattr__(self, name: str) -> object:
        found = getattr(self._native, name)
        if not callable(found):
            self.calls += 1
            return found

        def call(*args: object) -> object:
            self.calls += 1
            return found(*args)

        return call


def test_every_method_of_a_graph_is_known_here() -> None:
    """So that a new one that reads will be tested."""
    public = {name for name, _ in inspect.getmembers(Graph) if not name.startswith("_")}
    assert public == READS.keys() | OTHERS


@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("name", READS)
def test_a_public_read_is_one_read_of_the_native_graph(name: str, text: bool) -> None:
    graph = make_graph(text=text)
    id = named(np.array([3]), text=text)[0].item()
    graph.native = graph.core.native = counted = Counted(graph.native)  # type: ignore[assignment]
    READS[name](graph, id)
    assert counted.calls == 1
    if graph.node_ids.texts is not None:
        texts = graph.node_ids.texts = Counted(graph.node_ids.texts)  # type: ignore[assignment]
        READS[name](graph, id)
        assert texts.calls == 0, "texts must be looked up in the read"


def test_a_prediction_is_one_read_of_the_native_graph() -> None:
    graph = Graph.from_edges([0, 1], [1, 0], x=np.ones((2, 4), np.float32), weight=[1.0, 1.0])
    engine = Engine(graph, make_model(), threads=1)
    engine.core.native = native = Counted(engine.core.native)  # type: ignore[assignment]
    graph.native = graph.core.native = counted = Counted(graph.native)  # type: ignore[assignment]
    engine.predict([0, 1])
    assert (native.calls, counted.calls) == (1, 0)
    with pytest.raises(UnknownNodeError, match="7"):
        engine.predict([0, 7])
    assert (native.calls, counted.calls) == (2, 0)


@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_is_named_in_the_read_that_drew_it(name: str, text: bool) -> None:
    graph = make_graph(text=text)
    id = named(np.array([3]), text=text)[0].item()
    graph.node_ids.texts = None if graph.node_ids.texts is None else Counted(graph.node_ids.texts)  # type: ignore[assignment]
    drawn = SAMPLES[name](graph, id)
    ids = {
        "sample_nodes": lambda: drawn,
        "sample_neighbors": lambda: drawn.ids,  # type: ignore[attr-defined]
        "sample_subgraph": lambda: drawn.node,  # type: ignore[attr-defined]
        "sample_metapath": lambda: drawn.node["node"],  # type: ignore[attr-defined]
        "sample_query": lambda: drawn.node["node"],  # type: ignore[attr-defined]
    }[name]()
    assert ids.dtype.kind == ("U" if text else "i")
    assert len(ids) > 0
    assert not isinstance(graph.node_ids.texts, Counted) or graph.node_ids.texts.calls == 0


@pytest.fixture
def hasty() -> Iterator[None]:
    """Threads change places as often as they can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("text", [False, True])
def test_reads_beside_batches_that_give_indices_out_again_see_no_strangers(
    rng: np.random.Generator, text: bool
) -> None:
    """Nodes come and go, their indices too; whoever is there has features, neighbours and edges of ones."""
    graph = make_graph(text=text)
    every = named(np.arange(NUM_NODES), text=text)
    known = set(every.tolist())
    stop = threading.Event()
    rounds, strangers = [0, 0, 0], list[str]()

    def look(seed: int, at: int) -> None:
        draw = np.random.default_rng(seed)
        while not stop.is_set():
            id = every[draw.integers(NUM_NODES)].item()
            try:
                ids = [*graph.ids().tolist(), *graph.neighbors(id).ids.tolist()]
                ids += sample_subgraph(graph, [id], [3, 3], seed=1, threads=1).node.tolist()
                numbers = [graph.features([id]), graph.edge_attr([id], [id])]
                if not known.issuperset(ids):
                    strangers.append(f"ids {sorted(set(ids) - known)}")
                if not all((rows == 1).all() for rows in numbers):
                    strangers.append(f"{numbers}")
                if graph.degree([id])[0] < 1:
                    strangers.append("a node without its loop")
            except UnknownNodeError:
                pass
            rounds[at] += 1

    readers = [threading.Thread(target=look, args=(i, i)) for i in range(len(rounds))]
    for reader in readers:
        reader.start()
    batches = 0
    while (batches < 1000 or min(rounds) < 300) and not strangers:
        gone = rng.choice(NUM_NODES, 6, replace=False)
        back = rng.permutation(gone)
        ones = np.ones((len(gone), WIDTH), np.float32)
        graph.apply(Events().remove_nodes(every[gone]))
        # A node is back with its loop in one batch.
        loops = {"time": np.ones(len(back)), "edge_attr": np.ones((len(back), 2))}
        graph.apply(Events().add_nodes(every[back], ones).add_edges(every[back], every[back], **loops))
        loops = {"time": np.ones(len(back)), "edge_attr": np.ones((len(back), 2))}
        graph.apply(Events().add_edges(every[back], every[(back + 1) % NUM_NODES], **loops))
        batches += 1
    stop.set()
    for reader in readers:
        reader.join()
    assert not strangers
