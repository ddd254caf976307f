"""What is no argument at all: whatever a public call is given, it says so in the project's own words."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from livegnn import Engine, Events, Graph, InputError, LiveGNNError, Model, UnknownTypeError, checkpoint
from livegnn.deployment import Deployment
from livegnn.log.sqlite import SqliteLog
from livegnn.presampling import Presampler
from livegnn.query import Query
from livegnn.runtime import Runtime, restore
from livegnn.sampling import sample_metapath, sample_neighbors, sample_nodes, sample_query, sample_subgraph
from livegnn.training import LinkLoader, LiveFeatureStore, LiveGraphStore, LiveSampler, NodeLoader
from livegnn.types import DEFAULT_EDGE_TYPE
from streams import make_graph, make_model

MODEL = make_model()
QUERY = Query("node").hop(DEFAULT_EDGE_TYPE, 3)


class World:
    """What is called."""

    def __init__(self) -> None:
        self.graph = make_graph()
        self.engine = Engine(self.graph, MODEL, threads=1)
        self.timed = Graph.from_edges([0, 1], [1, 0], time=[1.0, 2.0])


Call = Callable[[World, Any], object]


@pytest.fixture(scope="module")
def world() -> World:
    return World()


PATHS: dict[str, Call] = {
    "Model.load": lambda w, path: Model.load(path),
    "Model.save": lambda w, path: MODEL.save(path),
    "SqliteLog": lambda w, path: SqliteLog(path),
    "checkpoint.read": lambda w, path: checkpoint.read(path),
    "checkpoint.write": lambda w, path: checkpoint.write(path, {}, 0),
    "Deployment.read": lambda w, path: Deployment.read(path),
    "restore": lambda w, path: restore({"engine": Engine.factory(MODEL)}, make_graph, directory=path),
    "Graph": lambda w, path: Graph(features_dir=path),
    "Engine": lambda w, path: Engine(w.graph, MODEL, state_dir=path),
}
GRAPHS: dict[str, Call] = {
    "sample_nodes": lambda w, graph: sample_nodes(graph, 3),
    "sample_neighbors": lambda w, graph: sample_neighbors(graph, [1], 3),
    "sample_subgraph": lambda w, graph: sample_subgraph(graph, [1], [3]),
    "sample_subgraph by type": lambda w, graph: sample_subgraph(graph, {"node": [1]}, [3]),
    "sample_metapath": lambda w, graph: sample_metapath(graph, [1], [(DEFAULT_EDGE_TYPE, 3)]),
    "sample_query": lambda w, graph: sample_query(graph, [1], QUERY),
    "Presampler": lambda w, graph: Presampler(graph, QUERY),
    "NodeLoader": lambda w, graph: NodeLoader(graph, [3]),
    "LinkLoader": lambda w, graph: LinkLoader(graph, [3]),
    "LiveSampler": lambda w, graph: LiveSampler(graph, [3]),
    "LiveFeatureStore": lambda w, graph: LiveFeatureStore(graph),
    "LiveGraphStore": lambda w, graph: LiveGraphStore(graph),
    "Engine": lambda w, graph: Engine(graph, MODEL),
}
IDS: dict[str, Call] = {
    "add_edges src": lambda w, ids: Events().add_edges(ids, [1, 2]),
    "add_edges dst": lambda w, ids: Events().add_edges([1, 2], ids),
    "remove_edges": lambda w, ids: Events().remove_edges(ids, [1, 2]),
    "set_features": lambda w, ids: Events().set_features(ids, np.zeros((2, 3))),
    "add_nodes": lambda w, ids: Events().add_nodes(ids),
    "remove_nodes": lambda w, ids: Events().remove_nodes(ids),
    "from_edges src": lambda w, ids: Graph.from_edges(ids, [1, 2]),
    "from_edges dst": lambda w, ids: Graph.from_edges([1, 2], ids),
    "from_edges ids": lambda w, ids: Graph.from_edges([1], [2], ids=ids),
    "contains": lambda w, ids: w.graph.contains(ids),
    "features": lambda w, ids: w.graph.features(ids),
    "edge_attr src": lambda w, ids: w.graph.edge_attr(ids, [1, 2]),
    "edge_attr dst": lambda w, ids: w.graph.edge_attr([1, 2], ids),
    "neighbors": lambda w, ids: w.graph.neighbors(ids),
    "degree": lambda w, ids: w.graph.degree(ids),
    "predict": lambda w, ids: w.engine.predict(ids),
    "predict_at_once": lambda w, ids: w.engine.predict_at_once(ids),
    "what_if": lambda w, ids: w.engine.what_if(Events()).predict(ids),
    "sample_neighbors": lambda w, ids: sample_neighbors(w.graph, ids, 3),
    "sample_subgraph": lambda w, ids: sample_subgraph(w.graph, ids, [3]),
    "sample_subgraph by type": lambda w, ids: sample_subgraph(w.graph, {"node": ids}, [3]),
    "sample_metapath": lambda w, ids: sample_metapath(w.graph, ids, [(DEFAULT_EDGE_TYPE, 3)]),
    "sample_query": lambda w, ids: sample_query(w.graph, ids, QUERY),
    "Presampler": lambda w, ids: Presampler(w.graph, QUERY).sample(ids),
    "NodeLoader": lambda w, ids: NodeLoader(w.graph, [3], ids),
    "LinkLoader": lambda w, ids: LinkLoader(w.graph, [3], ids),
}
NUMBERS: dict[str, Call] = {
    "weight": lambda w, values: Events().add_edges([1, 2], [2, 3], weight=values),
    "time": lambda w, values: Events().add_edges([1, 2], [2, 3], time=values),
    "edge_attr": lambda w, values: Events().add_edges([1, 2], [2, 3], edge_attr=values),
    "key": lambda w, values: Events().add_edges([1, 2], [2, 3], key=values),
    "key of a removal": lambda w, values: Events().remove_edges([1, 2], [2, 3], key=values),
    "set_features x": lambda w, values: Events().set_features([1, 2], values),
    "add_nodes x": lambda w, values: Events().add_nodes([1, 2], values),
    "from_edges x": lambda w, values: Graph.from_edges([0], [1], x=values),
    "from_edges weight": lambda w, values: Graph.from_edges([1, 2], [2, 3], weight=values),
    "from_edges time": lambda w, values: Graph.from_edges([1, 2], [2, 3], time=values),
    "from_edges edge_attr": lambda w, values: Graph.from_edges([1, 2], [2, 3], edge_attr=values),
    "until": lambda w, values: sample_neighbors(w.timed, [0, 1], 3, until=values),
    "until by type": lambda w, values: sample_subgraph(
        w.timed, {"node": [0, 1]}, [3], until={"node": values}, disjoint=True
    ),
    "input_time": lambda w, values: NodeLoader(w.timed, [3], [0, 1], input_time=values),
    "edge_label_time": lambda w, values: LinkLoader(w.timed, [3], [[0, 1], [1, 0]], edge_label_time=values),
}


RIGHT: dict[str, tuple[Callable[..., object], dict[str, object]]] = {
    "NodeLoader": (NodeLoader, {"num_neighbors": [2], "input_nodes": [0, 1]}),
    "LinkLoader": (LinkLoader, {"num_neighbors": [2], "edge_label_index": [[0, 1], [1, 0]]}),
    "LiveSampler": (LiveSampler, {"num_neighbors": [2]}),
    "sample_neighbors": (sample_neighbors, {"ids": [0, 1], "num_neighbors": 2}),
    "sample_subgraph": (sample_subgraph, {"seeds": [0, 1], "num_neighbors": [2]}),
    "sample_subgraph by type": (
        sample_subgraph,
        {"seeds": {"node": [0, 1]}, "num_neighbors": {DEFAULT_EDGE_TYPE: [2]}, "disjoint": True},
    ),
    "sample_metapath": (sample_metapath, {"seeds": [0, 1], "metapath": [(DEFAULT_EDGE_TYPE, 2)]}),
    "sample_query": (sample_query, {"seeds": [0, 1], "query": QUERY}),
    "sample_nodes": (sample_nodes, {"count": 2}),
}
"""Calls that are right, of which one argument at a time is made wrong."""
SAMPLED = [
    (name, argument)
    for name, (call, _) in RIGHT.items()
    for argument, it in inspect.signature(call).parameters.items()
    if argument != "graph" and it.kind is not inspect.Parameter.VAR_KEYWORD
]
NONSENSE: list[object] = [
    object(),
    b"bytes",
    1.5,
    float("nan"),
    -3,
    "nobody",
    {"nobody": 1},
    {"nobody": [1]},
    {1, 2},
    iter([1]),
    lambda batch: batch,
    [None],
    [1.5, 2.5, 3.5],
    ["nobody", 3],
    np.full((3, 2, 2), 0.5),
    np.array(["nobody"]),
    np.array(None),
    torch.full((3, 2, 2), 0.5),
    ("node", [0, [1]], 3),
    (["node"], "to", "node"),
]
MAY_BE: dict[str, Callable[[Any], bool]] = {
    # What some calls take, so that it is no nonsense there; whether nodes are there is told later.
    "transform": callable,
    "input_nodes": lambda it: it == -3,
    "until": lambda it: isinstance(it, (int, float)) and it == it,
}


@pytest.mark.parametrize(("name", "argument"), SAMPLED)
@pytest.mark.parametrize("given", NONSENSE, ids=lambda it: type(it).__name__)
def test_arguments_of_samples(world: World, name: str, argument: str, given: Any) -> None:
    call, right = RIGHT[name]
    if type(given) in (int, float, type(lambda: 0)) and MAY_BE.get(argument, lambda it: False)(given):
        call(world.timed, **right | {argument: given})
        return
    with pytest.raises(InputError):
        call(world.timed, **right | {argument: given})


@pytest.mark.parametrize("loader", [NodeLoader, LinkLoader, LiveSampler])
def test_fan_outs_that_draw_along_nothing(world: World, loader: Callable[..., object]) -> None:
    with pytest.raises(InputError, match="num_neighbors must name at least one edge type"):
        loader(world.graph, {})
    for given in (5, None, "55", {DEFAULT_EDGE_TYPE: 5}, np.array(5)):
        with pytest.raises(InputError, match=r"num_neighbors must be (a list|an integer)"):
            loader(world.graph, given)


def test_what_loaders_make_batches_with(world: World) -> None:
    ends = {NodeLoader: [0, 1], LinkLoader: [[0, 1], [1, 0]]}
    for loader, seeds in ends.items():
        with pytest.raises(
            InputError, match=r"must be a LiveFeatureStore of the graph.* one of another graph"
        ):
            loader(world.timed, [1], seeds, features=LiveFeatureStore(world.graph))
        with pytest.raises(UnknownTypeError, match="must be one of"):
            loader(world.timed, [1], ("nobody", seeds) if loader is NodeLoader else (("a", "b", "c"), seeds))
    for labels in (torch.zeros(3), torch.tensor(1), [1, 0]):
        with pytest.raises(InputError, match="edge_label must be a tensor with a row for each of 2 links"):
            LinkLoader(world.timed, [1], ends[LinkLoader], edge_label=labels)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="neg_sampling must be 'binary', 'triplet' or a NegativeSampling"):
        LinkLoader(world.timed, [1], ends[LinkLoader], neg_sampling="trinary")
    LinkLoader(world.timed, [1], ends[LinkLoader], neg_sampling="binary", edge_label=torch.zeros(2))


@pytest.mark.parametrize("name", PATHS)
@pytest.mark.parametrize(
    "given",
    [3, 0, True, 1.5, b"bytes", ["a"], {}, object()],
    ids=["3", "0", "True", "1.5", "bytes", "list", "dict", "object"],
)
def test_paths(world: World, name: str, given: object) -> None:
    """Of numbers, 0 to 2 are the files that every process has open."""
    with pytest.raises(InputError, match=r"must be a (path|directory)"):
        PATHS[name](world, given)


def test_a_path_that_is_text_or_not(tmp_path: Path) -> None:
    for path in (tmp_path / "one", str(tmp_path / "two")):
        MODEL.save(path)
        assert Model.load(path).output == MODEL.output


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("given", [None, 3, "graph", {}, MODEL], ids=["None", "3", "text", "dict", "model"])
def test_graphs(world: World, name: str, given: object) -> None:
    with pytest.raises(LiveGNNError, match="Graph"):
        GRAPHS[name](world, given)


RAGGED = [[1, 2], [3]]
MASKED = np.ma.masked_array([1, 2], mask=[False, True])


@pytest.mark.parametrize("name", IDS)
def test_ids_of_several_lengths(world: World, name: str) -> None:
    for ids in (RAGGED, (1, [2]), [np.arange(2), np.arange(3)]):
        with pytest.raises(InputError):
            IDS[name](world, ids)


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_in_rows_of_several_lengths(world: World, name: str) -> None:
    for values in (RAGGED, (1, [2])):
        with pytest.raises(InputError):
            NUMBERS[name](world, values)


@pytest.mark.parametrize("name", IDS)
def test_masked_ids(world: World, name: str) -> None:
    masked: list[object] = [MASKED, MASKED.astype(np.int32), [MASKED, MASKED]]
    for ids in masked:
        with pytest.raises(InputError, match=r"must have no masked entries.*\.compressed\(\)"):
            IDS[name](world, ids)


@pytest.mark.parametrize("name", NUMBERS)
def test_masked_numbers(world: World, name: str) -> None:
    rows = np.ma.masked_array(np.ones((2, 3), np.float32), mask=np.eye(2, 3, dtype=bool))
    for values in (MASKED, MASKED.astype(np.float32), MASKED.astype(np.float64), rows, [rows[0], rows[1]]):
        with pytest.raises(InputError, match=r"must have no masked entries.*\.filled\(value\)"):
            NUMBERS[name](world, values)


def test_a_mask_that_hides_nothing_is_none() -> None:
    ids = np.ma.masked_array([1, 2], mask=False)
    weight = np.ma.masked_array([0.5, 1.5])
    assert Events().add_edges(ids, ids[::-1], weight=weight) == Events().add_edges(
        [1, 2], [2, 1], weight=[0.5, 1.5]
    )


def test_masked_columns_of_states_and_stores(world: World, tmp_path: Path) -> None:
    state = world.graph.state()
    name = "nodes/node/x"
    state.arrays[name] = np.ma.masked_array(state.arrays[name], mask=True)  # type: ignore[index]
    with pytest.raises(InputError, match=f"{name} must have no masked entries"):
        checkpoint.write(tmp_path / "state", {"graph": state}, 0)
    store = LiveFeatureStore(world.graph)
    with pytest.raises(InputError, match="y must have no masked entries"):
        store.put_tensor(MASKED, group_name="node", attr_name="y", index=None)


@pytest.fixture
def runtime(tmp_path: Path) -> Runtime:
    graph = make_graph()
    return Runtime(SqliteLog(tmp_path / "log.db"), graph, Engine(graph, MODEL, threads=1))


@pytest.mark.parametrize("seq", ["x", None, -1, 1.5, True, 2**63, 10**30])
def test_sequence_numbers_that_nobody_can_wait_for(runtime: Runtime, seq: Any) -> None:
    for ask in (runtime.wait, runtime.rejection):
        with pytest.raises(InputError, match="seq must be an integer from 0 to 9223372036854775807"):
            ask(seq)
    assert runtime.wait(0) == 0
    runtime.log.close()


@pytest.mark.parametrize("timeout", ["soon", -1, float("nan"), True, [1]])
def test_times_that_nobody_can_wait(runtime: Runtime, timeout: Any) -> None:
    with pytest.raises(InputError, match="timeout, in seconds, must be a number of at least 0, got"):
        runtime.wait(0, timeout)
    assert runtime.wait(0, 10**30) == 0
    runtime.log.close()


@pytest.mark.parametrize("data", [3, None, "LGEV", [1], {}], ids=repr)
def test_bytes(data: Any) -> None:
    with pytest.raises(InputError, match=r"expected the bytes that Events.to_bytes returned, got"):
        Events.from_bytes(data)
    events = Events().add_nodes([1, 2]).add_edges("a", "b")
    for same in (bytearray(events.to_bytes()), memoryview(events.to_bytes())):
        assert Events.from_bytes(same) == events


def test_ends_of_different_lengths_where_one_is_empty() -> None:
    with pytest.raises(InputError, match="src and dst must be of the same length, got 0 and 2"):
        Graph.from_edges([], [1, 2], num_nodes=3)
