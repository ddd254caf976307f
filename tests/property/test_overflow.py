"""Magnitudes up to where float32 ends, back and forth: what is left is as if computed from scratch."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from livegnn import Engine, Events, Graph, InputError
from livegnn.model.exactness import judge
from mirror import frozen
from modules import CONVOLUTIONS, EDGE_FEATURES, EDGE_WIDTH, EDGE_WISE, WEIGHTED, WIDTH, Design, make

NODES, EDGES, ROUNDS = 20, 70, 5
MANY_ROUNDS = (1, 2, 3, 4, 6, 8, 11)  # where the stream ends decides what is left
MAGNITUDES = np.array([1, 1e10, 1e19, 1e30, 3.4e38])
SETTINGS = {
    "eager": {},
    "lazy": {"mode": "lazy"},
    "aggregates": {"keep": "aggregates"},
    "degree": {"keep_degree": 3},
}
KINDS = (*CONVOLUTIONS, *EDGE_WISE)
# What an edge computes reads rows of both ends, which are then kept of all nodes.
CASES = [
    (kind, setting) for kind in KINDS for setting in SETTINGS if setting != "degree" or kind in CONVOLUTIONS
]


class World:
    """A graph with ordinary numbers, and events that take some of them as far as float32 goes, and back."""

    def __init__(self, kind: str, seed: int, rounds: int = ROUNDS) -> None:
        self.rounds = rounds
        self.rng = np.random.default_rng(seed)
        self.kind = kind
        self.x = self.rng.standard_normal((NODES, WIDTH)).astype(np.float32)
        self.src, self.dst = np.divmod(self.rng.choice(NODES * NODES, EDGES, replace=False), NODES)
        self.columns: dict[str, np.ndarray] = {}
        if kind in EDGE_FEATURES:
            self.columns["features"] = self.rng.standard_normal((EDGES, EDGE_WIDTH)).astype(np.float32)
        elif kind in WEIGHTED:
            self.columns["weight"] = self.rng.uniform(0.5, 2, EDGES).astype(np.float32)

    def graph(self) -> Graph:
        given = {{"features": "edge_attr"}.get(name, name): column for name, column in self.columns.items()}
        return Graph.from_edges(self.src, self.dst, x=self.x, **given)

    def _large(self, ordinary: np.ndarray, largest: float = float(np.finfo(np.float32).max)) -> np.ndarray:
        sizes = self.rng.choice(MAGNITUDES, (len(ordinary),) + (1,) * (ordinary.ndim - 1))
        return np.clip(ordinary.astype(np.float64) * sizes, -largest, largest).astype(np.float32)

    def batches(self) -> Iterator[Events]:
        for _ in range(self.rounds):
            nodes = self.rng.choice(NODES, 3, replace=False)
            yield Events().set_features(nodes, self._large(self.x[nodes]))
            edges = self.rng.choice(EDGES, 4, replace=False)
            ends = {"weight": 2.0**96}  # past which weights are refused whatever the model
            large = {
                name: self._large(column[edges], *([ends[name]] if name in ends else []))
                for name, column in self.columns.items()
            }
            yield Events().remove_edges(self.src[edges[:2]], self.dst[edges[:2]])
            yield Events().add_edges(self.src[edges], self.dst[edges], **large)

    def back(self) -> Iterator[Events]:
        """As it was; node by node, so that what is left goes in steps."""
        for part in np.array_split(self.rng.permutation(NODES), 4):
            yield Events().set_features(part, self.x[part])
        for part in np.array_split(self.rng.permutation(EDGES), 4):
            columns = {name: column[part] for name, column in self.columns.items()}
            yield Events().add_edges(self.src[part], self.dst[part], **columns)


def start(kind: str, setting: str, rounds: int = ROUNDS, **settings: str) -> tuple[World, Engine]:
    world = World(kind, KINDS.index(kind), rounds)
    _, model = make(Design(kind, weighted=kind in WEIGHTED))
    return world, Engine(world.graph(), model, **SETTINGS[setting], **settings)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rounds", MANY_ROUNDS)
def test_nothing_stays_wherever_the_stream_ends(kind: str, rounds: int) -> None:
    check_that_nothing_stays(kind, "eager", rounds)


@pytest.mark.parametrize(("kind", "setting"), CASES)
def test_nothing_stays_of_what_was_let_through(kind: str, setting: str) -> None:
    check_that_nothing_stays(kind, setting, ROUNDS)


def check_that_nothing_stays(kind: str, setting: str, rounds: int) -> None:
    world, engine = start(kind, setting, rounds, non_finite="allow")
    for events in (*world.batches(), *world.back()):
        if len(events) % 2:
            engine.what_if(events).predict(np.arange(NODES))
        engine.apply(events)
        engine.predict(world.rng.choice(NODES, 5))
    verification = engine.verify()
    assert verification.ok, verification
    seen = engine.scrubbed(NODES)
    assert seen.not_finite == 0, seen
    assert seen.difference < 2e-5, seen


@pytest.mark.parametrize(("kind", "setting"), [case for case in CASES if case[1] in ("eager", "lazy")])
def test_what_would_not_be_finite_is_refused(kind: str, setting: str) -> None:
    """An eager engine never says anything else; what a lazy one lets through does not stay."""
    world, engine = start(kind, setting)
    everyone = np.arange(NODES)
    for events in world.batches():
        if setting == "lazy":
            engine.apply(events)
            engine.predict(world.rng.choice(NODES, 5))
            continue
        before = frozen(engine.state())
        try:
            supposed = engine.what_if(events).predict(everyone)
        except InputError:
            with pytest.raises(InputError, match="would be infinite or not a number"):
                engine.apply(events)
            assert frozen(engine.state()) == before
            continue
        engine.apply(events)
        predicted = engine.predict(everyone)
        assert np.isfinite(predicted).all()
        # To the bit, but where the batch showed that units were too large, and rows were summed anew for it.
        assert judge(supposed, predicted.astype(np.float64)).ok
    for events in world.back():
        engine.apply(events)
    verification = engine.verify()
    assert verification.ok, verification
