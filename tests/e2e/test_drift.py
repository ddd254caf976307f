"""However long the stream, rounding stays within the promised bound."""

from pathlib import Path

import numpy as np
import pytest
from torch import nn
from torch_geometric import nn as pyg

from gate import draws
from livegnn import Engine, Events, Graph, Model
from mirror import judge_layers
from modules import EDGE_FEATURES, EDGE_WIDTH, Design, make

TOLOKERS = Path(__file__).parents[1] / "data" / "tolokers.npz"
EVENTS, BATCH = draws(6_000, 200_000), 500


def load(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Features, and the two ends of each undirected edge, in random order."""
    data = np.load(TOLOKERS)
    edges = np.unique(np.sort(data["edges"].astype(np.int64), axis=1), axis=0)
    return data["x"].astype(np.float32), edges[rng.permutation(len(edges))]


def check(kind: str, engine: Engine) -> None:
    """Every layer, and the sums of every layer."""
    for layer, found in enumerate(judge_layers(engine)):
        print(f"  {kind}, layer {layer}: {found}")
        assert found.ok
    print(f"  scrub: {engine.scrub(512):.2e} of a row")


@pytest.mark.explored
@pytest.mark.parametrize("kind", ["sage mean", "gcn"])
def test_many_thousand_events_on_tolokers(kind, rng, capsys):
    x, edges = load(rng)
    held, there = edges[: EVENTS // 3], edges[EVENTS // 3 :]
    _, model = make(Design(kind, width=x.shape[1], hidden=16, out=2))
    engine = Engine(Graph.from_edges(there[:, 0], there[:, 1], x=x, undirected=True), model)
    gone = there[rng.permutation(len(there))[: EVENTS // 3]]
    ids = rng.integers(0, len(x), EVENTS // 3)
    # Features jump by up to a million and come back: what is left of such a row must not be rounding.
    size = np.where(rng.random(len(ids)) < 0.01, 1e6, 1.0)[:, None]
    rows = (x[rng.permutation(len(x))[ids % len(x)]] * size).astype(np.float32)
    step = BATCH // 3
    recomputed = total = 0
    for start in range(0, EVENTS // 3, step):
        part = slice(start, start + step)
        events = (
            Events().add_edges(*held[part].T).remove_edges(*gone[part].T).set_features(ids[part], rows[part])
        )
        if start:
            last = slice(start - step, start)
            events.set_features(ids[last], x[ids[last]])
        engine.apply(events)
        total += len(events)
        recomputed += engine.last_work.recomputed
    engine.apply(Events().set_features(np.unique(ids), x[np.unique(ids)]))
    assert total >= EVENTS - 3
    with capsys.disabled():
        print(f"\n{kind}, {total:,} events on tolokers, {recomputed:,} rows computed anew")
        check(kind, engine)


def test_attention_over_spikes_of_nodes_and_edges(rng, capsys):
    """Half of the nodes keep their features, so that nothing but rounding has their sums computed anew."""
    count, step = draws(4_000, 20_000), 50
    x, edges = load(rng)
    edges = edges[: len(edges) // 4]
    held, there = edges[: count // 4], edges[count // 4 :]
    order, gone = there[count // 4 :], there[: count // 4]
    _, model = make(Design("gat_edge", width=x.shape[1], hidden=16, out=2))

    def features(size: int) -> np.ndarray:
        return rng.standard_normal((size, EDGE_WIDTH), dtype=np.float32)

    def spikes(size: int) -> np.ndarray:
        return np.where(rng.random((size, 1)) < 0.02, np.float32(1000), np.float32(1))

    graph = Graph.from_edges(there[:, 0], there[:, 1], x=x, edge_attr=features(len(there)), undirected=True)
    engine = Engine(graph, model)
    moving = rng.permutation(len(x))[: len(x) // 2]
    ids, stay = rng.choice(moving, step), order[:step]
    recomputed = total = 0
    for start in range(0, count // 4, step):
        part = slice(start, start + step)
        events = Events().add_edges(*held[part].T, edge_attr=features(step)).remove_edges(*gone[part].T)
        # What was a spike in the batch before is none now.
        events.set_features(ids, x[ids]).add_edges(*stay.T, edge_attr=features(step))
        ids, stay = rng.choice(moving, step), order[rng.integers(0, len(order), step)]
        events.set_features(ids, x[ids] * spikes(step))
        events.add_edges(*stay.T, edge_attr=features(step) * spikes(step))
        engine.apply(events)
        total += len(events)
        recomputed += engine.last_work.recomputed
    engine.apply(Events().set_features(ids, x[ids]).add_edges(*stay.T, edge_attr=features(step)))
    assert total >= count
    with capsys.disabled():
        print(f"\nattention, {total:,} events on a quarter of tolokers, {recomputed:,} rows computed anew")
        check("attention", engine)


class Sum(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.reads = kind == "gine"
        one = nn.Linear(1, 1, bias=False)
        nn.init.ones_(one.weight)
        self.conv = pyg.GINEConv(one, edge_dim=1) if self.reads else pyg.GINConv(one)

    def forward(self, x, edge_index, edge_attr=None):
        return self.conv(x, edge_index, edge_attr) if self.reads else self.conv(x, edge_index)


@pytest.mark.parametrize("kind", ["gin", "gine"])
def test_steps_that_are_rounded_away_add_up(kind):
    """Each moves a sum of 2,000 by less than half of what a float32 can hold there; all together by 0.6."""
    leaves, steps = 2000, 20_000
    hub = np.zeros(leaves, np.int64)
    x = np.ones((leaves + 1, 1), np.float32)
    edge_attr = np.ones((leaves, 1), np.float32) if kind == "gine" else None
    graph = Graph.from_edges(np.arange(1, leaves + 1), hub, x=x, edge_attr=edge_attr)
    model = Model.from_pyg(Sum(kind).eval(), edge_channels=1 if kind == "gine" else 0)
    engine = Engine(graph, model, threads=1)
    for k in range(steps):
        engine.apply(Events().set_features([1], np.array([[1 + 3e-5 * k]], np.float32)))
    verification = engine.verify()
    assert verification.max_difference <= verification.bound / 4


@pytest.mark.parametrize(
    "kind", ["sage mean", "gcn", "gat_edge", "agnn", "resgated", "gine_edge", "gmm_edge"]
)
def test_rows_that_were_a_million_times_as_large(kind, rng):
    """Left behind is what the rounding of large rows is to small ones, unless it is seen as that."""
    nodes, edges = 1000, draws(5_000, 20_000)
    _, model = make(Design(kind, hidden=8))
    x = rng.standard_normal((nodes, 4)).astype(np.float32)
    columns = {"edge_attr": rng.standard_normal((edges, EDGE_WIDTH))} if kind in EDGE_FEATURES else {}
    graph = Graph.from_edges(
        *rng.integers(0, nodes, (2, edges)), x=x * np.float32(1e6), parallel="last", **columns
    )
    engine = Engine(graph, model)
    for part in np.split(rng.permutation(nodes), 10):
        engine.apply(Events().set_features(part, x[part]))
    assert engine.verify().ok
    assert engine.scrub(nodes) < 2e-5


def test_the_scrub_sees_rounding_in_rows_that_were_larger_once(rng):
    """What a neighbour adds is judged by what neighbours are now."""
    nodes, edges = 1000, 20_000
    _, model = make(Design("sage sum", depth=1))
    x = rng.standard_normal((nodes, 4)).astype(np.float32)
    graph = Graph.from_edges(*rng.integers(0, nodes, (2, edges)), x=x * np.float32(1e6), parallel="last")
    engine = Engine(graph, model)
    engine.apply(Events().set_features(np.arange(nodes), x))
    (sums,) = (kept.index for kept in engine.plan.kept.values() if kept.propagation is not None)
    engine.native_engine.write(sums, engine.native_engine.read(sums) + np.float32(0.5))
    assert engine.scrub(nodes) > 0.1
