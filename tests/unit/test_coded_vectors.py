"""Candidates among vectors as they come: most of the best are found, beside the scores of all pairs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from candidates import LIKES, make_model
from livegnn import EdgeSchema, Engine, Events, Graph, Schema
from livegnn.inference.coded_vectors import Scales

WIDTH, ITEMS, USERS, K = 24, 6000, 20, 10

Rows = np.ndarray


def make_engine(users: Rows, items: Rows) -> Engine:
    graph = Graph(Schema({"user": WIDTH, "item": WIDTH}, {LIKES: EdgeSchema()}), threads=1)
    graph.apply(Events().add_nodes(np.arange(len(users)), users, node_type="user"))
    graph.apply(Events().add_nodes(np.arange(len(items)), items, node_type="item"))
    return Engine(graph, make_model(np.eye(WIDTH, dtype=np.float32)), threads=1)


def recall(engine: Engine) -> float:
    found, items = 0, engine.graph.ids("item")
    for user in range(USERS):
        scores = engine.score(np.full(len(items), user), items)[:, 0]
        found += int((engine.candidates(user, K).scores >= np.sort(scores)[-K]).sum())
    return found / (USERS * K)


def plain(random: np.random.Generator, count: int) -> Rows:
    return random.normal(size=(count, WIDTH))


def constant(random: np.random.Generator, count: int) -> Rows:
    rows = plain(random, count)
    rows[:, ::2] = 100
    return rows


def clustered(random: np.random.Generator, count: int) -> Rows:
    centers = np.random.default_rng(3).normal(size=(20, WIDTH))
    return centers[random.integers(0, 20, count)] + 0.02 * plain(random, count)


def on_a_circle(random: np.random.Generator, count: int) -> Rows:
    angle, axes = random.uniform(0, 6.3, count), np.random.default_rng(4).normal(size=(2, WIDTH))
    return np.column_stack([np.cos(angle), np.sin(angle)]) @ axes


def of_all_sizes(random: np.random.Generator, count: int) -> Rows:
    return plain(random, count) * 10.0 ** np.linspace(-6, 6, WIDTH) + 1e3


def with_one_that_decides(random: np.random.Generator, count: int) -> Rows:
    rows = plain(random, count)
    rows[:, 3] *= random.lognormal(0, 2, count)
    return rows


@pytest.mark.parametrize(
    "draw", [plain, constant, clustered, on_a_circle, of_all_sizes, with_one_that_decides]
)
def test_most_of_the_best_are_found(draw: Callable[[np.random.Generator, int], Rows]) -> None:
    random = np.random.default_rng(1)
    engine = make_engine(draw(random, USERS), draw(random, ITEMS))
    assert recall(engine) > 0.95
    rows = draw(random, ITEMS)
    for part in np.array_split(np.arange(ITEMS), 10):
        engine.apply(Events().set_features(part, rows[part], node_type="item"))
    assert recall(engine) > 0.95


def test_nodes_that_differ_where_all_others_are_alike_are_found() -> None:
    """Whether they are there when the index is made, or change later."""
    random = np.random.default_rng(2)
    rows = constant(random, ITEMS)
    rows[5, 0] = 130
    engine = make_engine(constant(random, USERS), rows)
    assert 5 in engine.candidates(0, K).ids
    rows[6:9, 2] = 140
    engine.apply(Events().set_features(np.arange(6, 9), rows[6:9], node_type="item"))
    assert {5, 6, 7, 8} <= {*engine.candidates(0, K).ids.tolist()}
    rows[7, 2] = 100
    engine.apply(Events().set_features([7], rows[7:8], node_type="item"))
    found = {*engine.candidates(0, K).ids.tolist()}
    assert {5, 6, 8} <= found
    assert recall(engine) > 0.95


@pytest.mark.parametrize("parts", [1, 30])
@pytest.mark.parametrize("times", [1e-3, 1e3])
def test_vectors_of_another_size_get_other_scales(times: float, parts: int) -> None:
    random = np.random.default_rng(3)
    rows = plain(random, ITEMS)
    engine = make_engine(plain(random, USERS), rows)
    assert recall(engine) > 0.95
    for part in np.array_split(np.arange(ITEMS), parts):
        engine.apply(Events().set_features(part, times * rows[part], node_type="item"))
    assert recall(engine) > 0.95


def test_an_index_that_is_refreshed_has_the_scales_of_now() -> None:
    random = np.random.default_rng(4)
    rows = plain(random, ITEMS)
    engine = make_engine(plain(random, USERS), rows)
    index = engine.candidate_index()
    index.refresh()
    for node in range(200):
        engine.apply(Events().set_features([node], 1e3 * rows[node : node + 1], node_type="item"))
    before = index._codes[0].scales
    index.refresh()
    assert len(index._codes) == 1
    assert not np.array_equal(index._codes[0].scales.spread, before.spread)
    assert recall(engine) > 0.95


def test_scales_leave_out_what_is_alike_and_bear_outliers() -> None:
    rows = np.random.default_rng(5).normal(size=(500, 4)).astype(np.float32)
    rows[:, 1] = 7
    rows[:, 2] = 0
    rows[3, 2] = 1
    rows[8, 0] = 1e9
    scales = Scales.of(rows)
    assert scales.spread[1] == 0
    assert scales.spread[2] > 0
    assert 0.5 < scales.spread[0] < 5
    assert scales.center[1] == 7
    assert Scales.of(rows[:0]).spread.tolist() == [1] * 4
