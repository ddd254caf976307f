"""Whatever comes as an argument: a call works, or says in the project's own words what is wrong."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import livegnn as lg
from livegnn import EdgeSchema, Engine, Events, Graph, Model, Schema
from livegnn.errors import LiveGNNError
from livegnn.expiry import ExpiryPolicy
from livegnn.graph import View
from livegnn.inference import Degrees, EngineOptions, SampledForward
from livegnn.log.sqlite import SqliteLog
from livegnn.presampling import Presampler
from livegnn.query import Query
from livegnn.runtime import AheadPolicy, CheckpointPolicy, Runtime, restore
from livegnn.sampling import Subgraph, sample_neighbors, sample_nodes, sample_query, sample_subgraph
from livegnn.types import DEFAULT_EDGE_TYPE
from streams import WIDTH, make_model

MODEL = make_model()
FORWARD = SampledForward(MODEL)
QUERY = Query("node").hop(DEFAULT_EDGE_TYPE, 2, direction="in")
NONSENSE: list[Any] = [
    None, "x", "\ud800", "a\0b", "", b"x", 3, -1, 1.5, float("nan"), True, 2**31, 2**63, 2**64, -(2**63),
    10**30,
    [], [[]], [1, "a"], [None], [True], ["0"], (1,), {}, {1}, object(), range(3), iter([1]), lg,
    np.array([object()]), np.zeros((2, 2, 2)), np.array(["a"], "S1"), np.array([1], "M8[s]"), np.array([1j]),
    np.ma.masked_array([1, 2], mask=[False, True]), np.float32(1), np.array([1, 2]), torch.tensor([1]),
]  # fmt: skip
PLENTY = 100
"""Numbers of threads, nodes or rows that are right, and more than a test has."""


@dataclass
class World:
    graph: Graph
    engine: Engine
    text: Graph
    runtime: Runtime
    directory: Path


@pytest.fixture
def world(tmp_path: Path):
    graph = Graph.from_edges(
        [0, 1], [1, 0], x=np.ones((2, WIDTH)), weight=[1, 1], time=[1, 2], edge_attr=[[1, 2], [3, 4]]
    )
    other = Graph.from_edges([0, 1], [1, 0], x=np.ones((2, WIDTH)), weight=[1, 1])
    log = SqliteLog(tmp_path / "events.db")
    text = Graph(Schema({"a": 2}, {("a", "r", "a"): EdgeSchema()}, text_ids=True))
    runtime = Runtime(log, other, Engine(other, MODEL, threads=1))
    yield World(graph, Engine(graph, MODEL, threads=1, history=50), text, runtime, tmp_path)
    log.close()


def sample_of(world: World) -> Subgraph:
    return sample_subgraph(world.graph, [0], [2, 2], attributes=True)


def stage(world: World, events: Events) -> object:
    return world.graph.stage(events)


CALLS: dict[str, Callable[[World, Any], object]] = {
    "predict": lambda w, it: w.engine.predict(it),
    "predict, output": lambda w, it: w.engine.predict(0, output=it),
    "embeddings": lambda w, it: w.engine.embeddings(it),
    "what_if": lambda w, it: w.engine.what_if(it),
    "verify": lambda w, it: w.engine.verify(it),
    "scrub": lambda w, it: w.engine.scrub(it),
    "scrub, seed": lambda w, it: w.engine.scrub(3, seed=it),
    "explain": lambda w, it: w.engine.explain(it, since=0),
    "explain, since": lambda w, it: w.engine.explain(0, since=it),
    "explain, timeout": lambda w, it: w.engine.explain(0, since=0, timeout=it),
    "subscribe": lambda w, it: w.engine.subscribe(it)(),
    "apply": lambda w, it: w.graph.apply(it),
    "apply, seq": lambda w, it: w.graph.apply(Events(), seq=it),
    "apply, on_staged": lambda w, it: w.graph.apply(Events(), on_staged=it),
    "attach": lambda w, it: w.graph.attach(it),
    "features": lambda w, it: w.graph.features(it),
    "features, node_type": lambda w, it: w.graph.features(0, it),
    "neighbors": lambda w, it: w.graph.neighbors(it),
    "neighbors, direction": lambda w, it: w.graph.neighbors(0, direction=it),
    "neighbors, edge_type": lambda w, it: w.graph.neighbors(0, edge_type=it),
    "degree": lambda w, it: w.graph.degree(it),
    "contains": lambda w, it: w.graph.contains(it),
    "edge_attr": lambda w, it: w.graph.edge_attr(it, it),
    "edge_attr, key": lambda w, it: w.graph.edge_attr(0, 1, key=it),
    "ids": lambda w, it: w.graph.ids(it),
    "expired": lambda w, it: w.graph.expired(it),
    "to_numbers": lambda w, it: w.graph.to_numbers(it),
    "changes, edges": lambda w, it: w.graph.stage(Events()).edges(it),
    "Graph": lambda w, it: Graph(it),
    "Graph, threads": lambda w, it: Graph(threads=it),
    "Graph, features_dir": lambda w, it: Graph(
        features_dir=w.directory / it if isinstance(it, str) and it == "x" else it
    ),
    "from_edges": lambda w, it: Graph.from_edges(it, it),
    "from_edges, x": lambda w, it: Graph.from_edges([0], [1], x=it),
    "from_edges, num_nodes": lambda w, it: Graph.from_edges([0], [1], num_nodes=it),
    "from_edges, ids": lambda w, it: Graph.from_edges([0], [0], ids=it),
    "from_edges, weight": lambda w, it: Graph.from_edges([0], [1], weight=it),
    "from_edges, edge_attr": lambda w, it: Graph.from_edges([0], [1], edge_attr=it),
    "from_edges, time_to_live": lambda w, it: Graph.from_edges([0], [1], time=[1.0], time_to_live=it),
    "from_edges, parallel": lambda w, it: Graph.from_edges([0], [1], parallel=it),
    "from_pyg": lambda w, it: Graph.from_pyg(it),
    "from_state": lambda w, it: Graph.from_state(it),
    "Schema": lambda w, it: Schema(it, it),
    "Schema, width": lambda w, it: Schema({"a": it}),
    "Schema, edges": lambda w, it: Schema({"a": 1}, {("a", "b", "a"): it}),
    "EdgeSchema, edge_dim": lambda w, it: EdgeSchema(edge_dim=it),
    "EdgeSchema, duplicates": lambda w, it: EdgeSchema(duplicates=it),
    "EdgeSchema, time_to_live": lambda w, it: EdgeSchema(timed=True, time_to_live=it),
    "add_edges": lambda w, it: stage(w, Events().add_edges(it, it)),
    "add_edges, weight": lambda w, it: stage(w, Events().add_edges(0, 1, weight=it)),
    "add_edges, time": lambda w, it: stage(w, Events().add_edges(0, 1, time=it)),
    "add_edges, edge_attr": lambda w, it: stage(w, Events().add_edges(0, 1, edge_attr=it)),
    "add_edges, key": lambda w, it: stage(w, Events().add_edges(0, 1, key=it)),
    "add_edges, edge_type": lambda w, it: stage(w, Events().add_edges(0, 1, edge_type=it)),
    "set_features": lambda w, it: stage(w, Events().set_features(0, it)),
    "add_nodes": lambda w, it: stage(w, Events().add_nodes(it)),
    "add_nodes, node_type": lambda w, it: stage(w, Events().add_nodes(1, node_type=it)),
    "add_nodes of text": lambda w, it: w.text.stage(Events().add_nodes(it)),
    "from_records": lambda w, it: Events.from_records(it),
    "from_json_lines": lambda w, it: Events.from_json_lines(it),
    "from_bytes": lambda w, it: Events.from_bytes(it),
    "from_arrow": lambda w, it: Events.from_arrow(it),
    "Engine": lambda w, it: Engine(it, MODEL),
    "Engine, model": lambda w, it: Engine(w.graph, it),
    "Engine, state": lambda w, it: Engine(w.graph, MODEL, state=it),
    "options, mode": lambda w, it: EngineOptions(mode=it),
    "Engine, mode": lambda w, it: Engine(w.graph, MODEL, mode=it),
    "options, keep": lambda w, it: EngineOptions(keep=it),
    "Engine, keep_degree": lambda w, it: Engine(w.graph, MODEL, keep_degree=it),
    "options, threads": lambda w, it: EngineOptions(threads=it),
    "options, history": lambda w, it: EngineOptions(history=it),
    "options, non_finite": lambda w, it: EngineOptions(non_finite=it),
    "Model.load": lambda w, it: Model.load(it),
    "Model.from_pyg": lambda w, it: Model.from_pyg(it),
    "Model.from_exported": lambda w, it: Model.from_exported(it),
    "Model.from_convolutions": lambda w, it: Model.from_convolutions(it, in_channels=2),
    "sample_nodes": lambda w, it: sample_nodes(w.graph, it),
    "sample_neighbors": lambda w, it: sample_neighbors(w.graph, it, 2),
    "sample_neighbors, number": lambda w, it: sample_neighbors(w.graph, 0, it),
    "sample_subgraph, fan-outs": lambda w, it: sample_subgraph(w.graph, [0], it),
    "sample_query": lambda w, it: sample_query(w.graph, it, Query("node").hop(DEFAULT_EDGE_TYPE, 2)),
    "sample_query, query": lambda w, it: sample_query(w.graph, [0], it),
    "Presampler": lambda w, it: Presampler(it, QUERY),
    "Presampler, query": lambda w, it: Presampler(w.graph, it),
    "Presampler, seed": lambda w, it: Presampler(w.graph, QUERY, seed=it),
    "Presampler, threads": lambda w, it: Presampler(w.graph, QUERY, threads=it),
    "Presampler.sample": lambda w, it: Presampler(w.graph, QUERY, threads=1).sample(it),
    "Presampler.sample, attributes": lambda w, it: Presampler(w.graph, QUERY, threads=1).sample([0], it),
    "Query": lambda w, it: Query(it, it),
    "Query, hop": lambda w, it: Query("node").hop(it, it),
    "Query, number": lambda w, it: Query("node").hop(DEFAULT_EDGE_TYPE, it),
    "Query, strategy": lambda w, it: Query("node").hop(DEFAULT_EDGE_TYPE, 2, by=it, direction=it),
    "Query.from_num_neighbors": lambda w, it: Query.from_num_neighbors(w.graph.schema, "node", it),
    "Query.from_num_neighbors, type": lambda w, it: Query.from_num_neighbors(w.graph.schema, it, [2]),
    "Query.from_json": lambda w, it: Query.from_json(it),
    "Model.with_query": lambda w, it: MODEL.with_query(it),
    "SampledForward": lambda w, it: SampledForward(it),
    "SampledForward, sample": lambda w, it: FORWARD.predict(it),
    "SampledForward, degrees": lambda w, it: FORWARD.predict(sample_of(w), degrees=it),
    "SampledForward, count": lambda w, it: FORWARD.predict(sample_of(w), degrees=Degrees(it)),
    "SampledForward, loops": lambda w, it: FORWARD.predict(
        sample_of(w), degrees=Degrees(np.ones(2, int), loops=it, weight=it, loop_weight=it)
    ),
    "SampledForward, output": lambda w, it: FORWARD.predict(sample_of(w), output=it),
    "SampledForward, all_nodes": lambda w, it: FORWARD.predict(sample_of(w), all_nodes=it),
    "SampledForward, pairs": lambda w, it: FORWARD.predict_pairs(sample_of(w), it),
    "SampledForward, outputs": lambda w, it: FORWARD.predict_pairs(sample_of(w), [[0], [0]], outputs=it),
    "Runtime": lambda w, it: Runtime(it, w.graph),
    "Runtime, graph": lambda w, it: Runtime(w.runtime.log, it),
    "Runtime, view": lambda w, it: Runtime(w.runtime.log, w.graph, it),
    "Runtime, when_view_fails": lambda w, it: Runtime(w.runtime.log, w.graph, when_view_fails=it),
    "Runtime, factories": lambda w, it: Runtime(w.runtime.log, w.graph, factories=it),
    "Runtime, build": lambda w, it: Runtime(w.runtime.log, w.graph, build=it),
    "Runtime, build a view": lambda w, it: Runtime(w.runtime.log, w.graph, build={"view": it}),
    "Runtime, auto_add": lambda w, it: Runtime(w.runtime.log, w.graph, auto_add=it),
    "Schema, auto_add": lambda w, it: Schema({"a": 1}, {}, auto_add=it),
    "append": lambda w, it: w.runtime.append(it),
    "retry": lambda w, it: w.runtime.retry(it),
    "retry, any_time": lambda w, it: w.runtime.retry(1, any_time=it),
    "AheadPolicy": lambda w, it: AheadPolicy(it, it),
    "ExpiryPolicy": lambda w, it: ExpiryPolicy(max_share=it),
    "ExpiryPolicy, ask_from": lambda w, it: ExpiryPolicy(ask_from=it),
    "admit": lambda w, it: w.runtime.admit(it),
    "append, room_timeout": lambda w, it: w.runtime.append(Events().add_nodes(1), room_timeout=it),
    "Runtime, freshness_ms": lambda w, it: Runtime(w.runtime.log, w.runtime.graph, freshness_ms=it),
    "Runtime, max_waiting_events": lambda w, it: Runtime(
        w.runtime.log, w.runtime.graph, max_waiting_events=it
    ),
    "Runtime, max_waiting_ms": lambda w, it: Runtime(w.runtime.log, w.runtime.graph, max_waiting_ms=it),
    "append, key": lambda w, it: w.runtime.append(Events().add_nodes(1), key=it),
    "append_all": lambda w, it: w.runtime.append_all(it),
    "append_all, entries": lambda w, it: w.runtime.append_all([it]),
    "append_all, keys": lambda w, it: w.runtime.append_all([Events().add_nodes(1)], it),
    "append_all, origins": lambda w, it: w.runtime.append_all([Events().add_nodes(1)], None, it),
    "wait": lambda w, it: w.runtime.wait(it, timeout=0),
    "read": lambda w, it: w.runtime.read(it),
    "read_at_once": lambda w, it: w.runtime.read_at_once(it),
    "predict, model": lambda w, it: w.runtime.predict(0, model=it),
    "guard": lambda w, it: w.engine.guard(it),
    "deploy": lambda w, it: w.runtime.models.deploy(it, MODEL),
    "deploy, model": lambda w, it: w.runtime.models.deploy("new", it),
    "deploy, options": lambda w, it: w.runtime.models.deploy(f"o{time.monotonic_ns()}", MODEL, it),
    "switch": lambda w, it: w.runtime.models.switch(it),
    "remove": lambda w, it: w.runtime.models.remove(it),
    "compare": lambda w, it: w.runtime.models.compare(it),
    "compare, first": lambda w, it: w.runtime.models.compare("engine", it),
    "compare, sample": lambda w, it: w.runtime.models.compare("engine", sample=it),
    "compare, tolerance": lambda w, it: w.runtime.models.compare("engine", tolerance=it),
    "subscribe, on_switch": lambda w, it: w.runtime.subscribe(print, on_switch=it)(),
    "restore": lambda w, it: restore(it, lambda: Graph()),
    "restore, initial": lambda w, it: restore({}, it),
    "restore, factory": lambda w, it: restore({"view": it}, lambda: Graph()),
    "restore, directory": lambda w, it: restore({}, lambda: Graph(), directory=it),
    "CheckpointPolicy": lambda w, it: CheckpointPolicy(it),
}
COUNTS = {
    "sample_nodes", "from_edges, num_nodes", "from_edges, ids", "verify", "scrub", "options, threads",
    "Presampler, threads", "Graph, threads", "EdgeSchema, edge_dim", "Schema, width",
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_a_call_works_or_says_what_is_wrong(world: World, name: str) -> None:
    for given in NONSENSE:
        if name in COUNTS and isinstance(given, int) and given > PLENTY:
            continue
        try:
            CALLS[name](world, given)
        except (LiveGNNError, OSError, MemoryError):
            continue
        except Exception as error:
            raise AssertionError(f"{name} of {given!r} raises {type(error).__name__}: {error}") from error


@pytest.mark.parametrize("made", [3, None, View])
def test_a_factory_makes_a_view_of_its_name(made: object) -> None:
    class Named(View):
        name = "a"

    for make in (lambda graph, state: made, lambda graph, state: Named(graph)):
        with pytest.raises(lg.InputError, match=r"must make a View, got|must have this name, got 'a'"):
            restore({"b": make}, lambda: Graph())  # type: ignore[dict-item]
