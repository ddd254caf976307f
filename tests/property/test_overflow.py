"""Magnitudes up to where float32 ends, back and forth: what is left is as if computed from scratch."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
import torch
from torch import nn

import wild
from gate import EXPLORING, draws, share
from livegnn import Engine, Events, Graph, InputError, Model
from livegnn.graph import EdgeSchema, Schema
from livegnn.oracle import reference
from livegnn.oracle.exactness import judge
from mirror import frozen
from modules import (
    CONVOLUTIONS,
    EDGE_FEATURES,
    EDGE_WIDTH,
    EDGE_WISE,
    WEIGHTED,
    WIDTH,
    Design,
    fill,
    import_once,
    make,
)

NODES, EDGES, ROUNDS = 20, 70, 5
MANY_ROUNDS = (1, 2, 3, 4, 6, 8, 11)[:: draws(3, 1)]  # where it ends decides what is left
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
            self.columns["edge_attr"] = self.rng.standard_normal((EDGES, EDGE_WIDTH)).astype(np.float32)
        elif kind in WEIGHTED:
            self.columns["weight"] = self.rng.uniform(0.5, 2, EDGES).astype(np.float32)

    def graph(self) -> Graph:
        given = dict(self.columns)
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


@pytest.mark.parametrize(
    ("kind", "rounds"), share([(kind, rounds) for kind in KINDS for rounds in MANY_ROUNDS], 0)
)
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


# -- where float32 ends, beside PyG in float32

CHANNELS, CASES_EACH = 4, draws(8, 12)
WITHIN = 3.4e38
MULTIPLIES = ("FiLMConv",)
"""Kinds whose messages are products of two rows, which end where float32 does if the rows end at its root."""
SUMS = ("ClusterGCNConv",)
"""Kinds whose modules divide each row, where the model divides the sum, which must be within float32."""
NOT_OF_PYG = ("comm_net", *SUMS)
"""Kinds whose modules, in this project's tests or by their code, take the product of each row and the sum of
products, where NeutronRT's formula, the importer's rules, and so the model, take the product of the sum."""


class Convolution(nn.Module):
    """One or two of a kind, one after the other, called with what the kind reads of edges."""

    def __init__(self, kind: str, depth: int) -> None:
        super().__init__()
        make = (wild.PLAIN | wild.WEIGHTED | wild.FEATURED | wild.RELATIONAL)[kind]
        self.reads = wild.KINDS[kind]
        self.convolutions = nn.ModuleList(make(CHANNELS, CHANNELS) for _ in range(depth))

    def layers(self, x, edge_index, column=None):
        values = []
        for conv in self.convolutions:
            x = conv(x, edge_index, column) if self.reads else conv(x, edge_index)
            values.append(x)
        return values

    def forward(self, x, edge_index, edge_weight=None, edge_attr=None):
        return self.layers(x, edge_index, edge_attr if self.reads == "features" else edge_weight)[-1]


class Relational(Convolution):
    def forward(self, x, edge_index, edge_type):
        return self.layers(x, edge_index, edge_type)[-1]


SEEDS = 2
DEEP = [kind for kind in wild.KINDS if EXPLORING or list(wild.KINDS).index(kind) % 8 == 0]
"""Kinds of which two are stacked as well."""


@cache
def make_module(kind: str, depth: int, seed: int, divisor: int) -> tuple[nn.Module, Model]:
    """A module of a kind, its parameters divided, and its model: an import takes longer than a graph."""
    reads = wild.KINDS[kind]
    module = fill((Relational if reads == "relation" else Convolution)(kind, depth), seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter *= (0.3, 0.01)[seed] / divisor
    features = EDGE_WIDTH if reads == "features" else 0

    def import_it() -> Model:
        if reads == "relation":
            return Model.from_pyg(module, relations=wild.RELATIONS)
        weighted = reads == "weight"
        return Model.from_pyg(module, edge_weight=weighted, edge_channels=features, in_channels=CHANNELS)

    return module, import_once(f"at the end {kind} {depth} {seed} {divisor}", import_it)


class AtTheEnd:
    """A small graph some of whose features are as large as float32 can be, all of it from a number."""

    divisor = 1
    """Of the parameters."""

    def __init__(self, kind: str, number: int) -> None:
        rng = self.rng = np.random.default_rng([38, number])
        self.kind, self.reads = kind, wild.KINDS[kind]
        self.seed = number % SEEDS
        self.stack(2 if rng.random() < 0.3 and kind in DEEP else 1)
        self.nodes = int(rng.integers(5, 11))
        self.src, self.dst = self._draw_edges()
        self.home = rng.standard_normal((self.nodes, CHANNELS)).astype(np.float32)
        self.x = self._enlarge(self.home)
        edges = len(self.src)
        self.weight = rng.uniform(0.1, 2, edges).astype(np.float32)
        self.features = rng.standard_normal((edges, EDGE_WIDTH)).astype(np.float32)
        self.relation = rng.integers(0, len(wild.RELATIONS), edges)

    def stack(self, depth: int) -> None:
        """Takes so many convolutions."""
        self.depth = depth
        if not EXPLORING:  # an import takes longer than all else: one for each depth
            self.seed = depth - 1

    def _draw_edges(self) -> tuple[np.ndarray, np.ndarray]:
        count = int(self.rng.integers(self.nodes, 4 * self.nodes))
        chosen = self.rng.choice(self.nodes**2, min(count, self.nodes**2), replace=False)
        src, dst = np.divmod(chosen, self.nodes)
        if self.rng.random() < 0.4:  # a hub
            dst = np.where(self.rng.random(len(dst)) < 0.5, 0, dst)
        src, dst = np.divmod(np.unique(src * self.nodes + dst), self.nodes)
        return src, dst

    def _enlarge(self, x: np.ndarray) -> np.ndarray:
        large = self.rng.random(self.nodes) < self.rng.choice([0.2, 0.6, 1.0])
        exponents = self.rng.uniform(37, 38.53, (self.nodes, 1)) - (2 if self.kind in SUMS else 0)
        sizes = 10.0 ** (exponents / 2 if self.kind in MULTIPLIES else exponents)
        enlarged = np.where(large[:, None], np.clip(x * sizes, -WITHIN, WITHIN), x)
        shape = self.rng.integers(4)
        if shape == 0:
            enlarged = np.abs(enlarged)
        elif shape == 1:  # all alike, so that logits are
            enlarged[: self.nodes // 2] = enlarged[0]
        return enlarged.astype(np.float32)

    def columns(self, chosen: np.ndarray) -> dict[str, np.ndarray]:
        if self.reads == "weight":
            return {"weight": self.weight[chosen]}
        return {"edge_attr": self.features[chosen]} if self.reads == "features" else {}

    def engine(self, x: np.ndarray, **settings: str) -> Engine:
        related = self.reads == "relation"
        types = wild.RELATIONS if related else (("node", "to", "node"),)
        features = EDGE_WIDTH if self.reads == "features" else 0
        one = EdgeSchema(weighted=self.reads == "weight", edge_dim=features)
        graph = Graph(Schema({"node": CHANNELS}, dict.fromkeys(types, one)))
        events = Events().add_nodes(np.arange(self.nodes), x)
        for number, edge_type in enumerate(types):
            chosen = self.relation == number if related else np.full(len(self.src), True)
            if chosen.any():
                columns = self.columns(chosen)
                events.add_edges(self.src[chosen], self.dst[chosen], edge_type=edge_type, **columns)
        graph.apply(events)
        _, model = make_module(self.kind, self.depth, self.seed, self.divisor)
        return Engine(graph, model, threads=1, **settings)

    def large(self) -> Iterator[Events]:
        """Features, some nodes at a time, to what they are where float32 ends."""
        for part in np.array_split(self.rng.permutation(self.nodes), 3):
            yield Events().set_features(part, self.x[part])

    @torch.no_grad()
    def pyg(self, dtype: torch.dtype) -> list[np.ndarray]:
        """What PyG says: the layers."""
        module = make_module(self.kind, self.depth, self.seed, self.divisor)[0].to(dtype)
        edge_index = torch.from_numpy(np.stack([self.src, self.dst]))
        weight, features = (torch.from_numpy(c).to(dtype) for c in (self.weight, self.features))
        columns = {"relation": torch.from_numpy(self.relation), "weight": weight, "features": features}
        given = [columns[self.reads]] if self.reads else []
        x = torch.from_numpy(self.x).to(dtype)
        return [layer.numpy() for layer in module.layers(x, edge_index, *given)]


@pytest.mark.parametrize("kind", share(wild.KINDS, 1, 5))
def test_finite_wherever_pyg_is_in_float32(kind: str) -> None:
    """In the engine, made at once or reached by batches, and in the oracle, so that `verify` sees it."""
    seen = 0
    for number in range(CASES_EACH):
        case = AtTheEnd(kind, number)
        exact, rounded = case.pyg(torch.float64), case.pyg(torch.float32)
        # A hidden row past the end of float32 has no part in it: what comes of it is an accident.
        if any(np.abs(layer).max() > WITHIN / 16 for layer in exact[:-1]):
            case.stack(1)
            exact, rounded = case.pyg(torch.float64), case.pyg(torch.float32)
        expected = np.isfinite(rounded[-1]) & (np.abs(exact[-1]) < WITHIN)
        seen += np.count_nonzero(expected)
        everyone = np.arange(case.nodes)
        engines = [case.engine(case.x, non_finite="allow")]
        for mode in ("eager", "lazy"):
            engines.append(case.engine(case.home, non_finite="allow", mode=mode))
            for events in case.large():
                engines[-1].apply(events)
        for engine in engines:
            got = engine.predict(everyone)
            assert np.isfinite(got[expected]).all(), (number, got, rounded[-1])
        if kind in NOT_OF_PYG:
            continue
        values = reference.compute(engines[0].model, engines[0].graph.snapshot(), dtype=np.float32)
        assert np.isfinite(values[engines[0].model.output][expected]).all(), number
    assert seen > 0


# -- the oracle in float32, beside PyG in float32

SIZES = (1e-6, 1e-3, 1.0, 1e3, 1e9)[:: draws(2, 1)]
LARGEST = (1e20, 1e30, 1e37)
"""Sizes for which parameters are divided, which is another import."""
DIVIDED = [kind for kind in wild.KINDS if EXPLORING or list(wild.KINDS).index(kind) % 7 == 0]
"""Kinds that are held at the largest sizes too."""
GRAPHS = 5
SOFTER = 3.0


def _error(got: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """The largest difference of each channel, in units of a hundredth of a rounding of its scale and up."""
    scale = np.abs(exact).max(axis=0)
    return np.abs(got.astype(np.float64) - exact).max(axis=0) / (scale + 1e-300) + 2.0**-30


@pytest.mark.parametrize("kind", [kind for kind in share(wild.KINDS, 2, 5) if kind not in NOT_OF_PYG])
def test_the_oracle_in_float32_rounds_as_pyg_does(kind: str) -> None:
    """Over many graphs of one size, errors are alike: one graph is one throw of the dice.

    What `verify` allows is a multiple of the oracle's, what is promised one of PyG's.
    """
    for size in SIZES + (LARGEST if kind in DIVIDED else ()):
        ours, theirs = [], []
        for number in range(GRAPHS):
            case = AtTheEnd(kind, number)
            case.depth, case.seed, case.divisor = 1, 0, 8 if size in LARGEST else 1
            case.x = (case.home * size).astype(np.float32)
            exact, rounded = case.pyg(torch.float64)[0], case.pyg(torch.float32)[0]
            engine = case.engine(case.x, non_finite="allow")
            values = reference.compute(engine.model, engine.graph.snapshot(), dtype=np.float32)
            oracle = values[engine.model.output]
            fits = np.isfinite(rounded) & (np.abs(exact) < WITHIN)
            assert np.isfinite(oracle[fits]).all()
            if fits.all():
                ours.append(_error(oracle, exact))
                theirs.append(_error(rounded, exact))
        if ours:
            ratio = np.exp(np.mean(np.log(np.array(ours) / np.array(theirs))))
            assert 1 / SOFTER < ratio < SOFTER, (size, ratio)
