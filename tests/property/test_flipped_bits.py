"""A bit that flips in any array of an engine's state: it is seen, or no later answer is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

from gate import draws
from livegnn import EdgeSchema, Engine, Events, FileFormatError, Graph, Model, Schema
from livegnn.types import DEFAULT_EDGE_TYPE, DEFAULT_NODE_TYPE, Array, State
from modules import EDGE_FEATURES, EDGE_WIDTH, WIDTH, Design, make

NODES = 14
FLIPS = draws(1, 40)
"""How many bits of each array are flipped, one at a time."""

CASES: dict[str, tuple[Design, dict[str, Any]]] = {
    "sums": (Design("sage mean"), {}),
    "sums of weights": (Design("gcn", weighted=True), {}),
    "maxima": (Design("sage max"), {}),
    "attention": (Design("gat"), {}),
    "attention over features": (Design("transformer_edge"), {}),
    "gates": (Design("resgated"), {}),
    "only aggregates": (Design("gcn", weighted=True), {"keep": "aggregates"}),
    "few aggregates": (Design("gcn", weighted=True), {"keep_degree": 3}),
    "few maxima": (Design("sage max"), {"keep_degree": 3}),
    "lazy": (Design("gcn", weighted=True), {"mode": "lazy"}),
    "lazy maxima": (Design("sage max"), {"mode": "lazy"}),
    "lazy attention": (Design("gat"), {"mode": "lazy"}),
    "half lazy": (Design("sage mean"), {"mode": ["eager", "lazy"]}),
}


def edges(graph: Graph, src: Array, dst: Array, rng: np.random.Generator) -> Events:
    (schema,) = graph.schema.edge_types.values()
    weight = rng.uniform(0.5, 2, len(src)) if schema.weighted else None
    attr = rng.standard_normal((len(src), schema.edge_dim)) if schema.edge_dim else None
    return Events().add_edges(src, dst, weight=weight, edge_attr=attr)


def stream(graph: Graph, seed: int) -> Iterator[Events]:
    """Batches of one event or two that reach every node: its features, an edge more and one less."""
    rng = np.random.default_rng(seed)
    for node in rng.permutation(NODES):
        yield Events().set_features(node, rng.standard_normal((1, WIDTH)))
        other = rng.integers(0, NODES, 1)
        yield edges(graph, np.array([node]), other, rng)
        if node % 3 == 0:
            yield Events().remove_edges(np.array([node]), other)


@cache
def made(case: str) -> tuple[Model, State, State]:
    """A model, and the states of a graph and its engine after some batches."""
    design, options = CASES[case]
    model = make(design)[1]
    rng = np.random.default_rng(3)
    schema = EdgeSchema(
        weighted=design.weighted, edge_dim=EDGE_WIDTH if design.kind in EDGE_FEATURES else 0, capacity=4
    )
    graph = Graph(Schema({DEFAULT_NODE_TYPE: WIDTH}, {DEFAULT_EDGE_TYPE: schema}))
    graph.apply(Events().add_nodes(np.arange(NODES), rng.standard_normal((NODES, WIDTH))))
    graph.apply(edges(graph, *rng.integers(0, NODES, (2, 3 * NODES)), rng))
    engine = Engine(graph, model, threads=1, **options)
    for events in stream(graph, 1):
        graph.apply(events)
    return model, graph.state(), engine.state()


def restore(case: str, state: State) -> Engine:
    model, graph_state, _ = made(case)
    return Engine(Graph.from_state(graph_state), model, threads=1, state=state, **CASES[case][1])


def is_seen(engine: Engine) -> tuple[bool, bool]:
    """By `verify`, and by `scrub` of all nodes."""
    with np.errstate(all="ignore"):
        return not engine.verify().ok, not engine.scrub(10**6) <= 1e-4


def with_a_flipped_bit(state: State, name: str, at: int, bit: int) -> State:
    array = state.arrays[name].copy()
    flat = array.reshape(-1)
    bits = flat.view(np.uint64 if array.itemsize == 8 else np.uint32)
    bits[at] ^= bits.dtype.type(1) << bits.dtype.type(bit)
    return State(state.meta, {**state.arrays, name: array})


def is_exact_later(engine: Engine, seed: int) -> bool:
    with np.errstate(all="ignore"):
        for step, events in enumerate(stream(engine.graph, seed)):
            engine.graph.apply(events)
            if step % 4 == 3 and not engine.verify().ok:
                return False
        return engine.verify().ok


@pytest.mark.parametrize("case", CASES)
def test_a_flipped_bit_in_each_array(case: str) -> None:
    _, _, state = made(case)
    assert is_seen(restore(case, state)) == (False, False)
    rng = np.random.default_rng(7)
    unseen, seen = [], 0
    for name, array in state.arrays.items():
        for _ in range(FLIPS if array.size else 0):
            at = int(rng.integers(array.size))
            # Half of them among the highest bits, where a flip is no rounding.
            top = 8 * array.itemsize
            bit = int(rng.integers(top - 12, top)) if rng.random() < 0.5 else int(rng.integers(top))
            try:
                engine = restore(case, with_a_flipped_bit(state, name, at, bit))
            except FileFormatError:
                seen += 1
                continue
            by_verify, by_scrub = is_seen(engine)
            if by_verify and by_scrub:
                seen += 1
            elif not is_exact_later(engine, int(rng.integers(100))):
                unseen.append((name, at, bit, f"verify {by_verify}, scrub {by_scrub}"))
    assert not unseen, "\n".join(map(str, unseen))
    assert seen > 0


def test_a_flipped_bit_in_the_rows_of_each_layer() -> None:
    """Two layers, of which the second reads the rows of the first along edges: no prediction shows it yet."""
    _, _, state = made("sums")
    layers = [kept for kept in restore("sums", state).plan.kept.values() if kept.part == "layer outputs"]
    assert len([kept for kept in layers if kept.stored]) >= 2
    for kept in layers:
        if kept.stored:
            name = f"rows/{kept.index}"
            largest = int(np.abs(state.arrays[name]).argmax())
            assert is_seen(restore("sums", with_a_flipped_bit(state, name, largest, 22))) == (True, True)
