"""However long the stream, rounding stays within the promised bound."""

from pathlib import Path

import numpy as np
import pytest

from livegnn import Engine, Events, Graph
from livegnn.inference.engine import EXACTNESS
from livegnn.model import reference
from modules import Design, make

TOLOKERS = Path(__file__).parents[1] / "data" / "tolokers.npz"
EVENTS, BATCH = 200_000, 500


@pytest.mark.parametrize("kind", ["sage mean", "gcn"])
def test_two_hundred_thousand_events_on_tolokers(kind, rng, capsys):
    data = np.load(TOLOKERS)
    x = data["x"].astype(np.float32)
    edges = np.unique(np.sort(data["edges"].astype(np.int64), axis=1), axis=0)
    edges = edges[rng.permutation(len(edges))]
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
        recomputed += engine.native[1].recomputed
    engine.apply(Events().set_features(np.unique(ids), x[np.unique(ids)]))
    assert total >= EVENTS - 3
    expected = reference.compute(model, engine.graph.snapshot())
    with capsys.disabled():
        print(f"\n{kind}, {total:,} events on tolokers, {recomputed:,} rows computed anew")
        for layer, name in enumerate(model.layers):
            bound = EXACTNESS * float(np.abs(expected[name]).max())
            difference = float(np.abs(expected[name] - engine.embeddings(layer)).max())
            print(f"  layer {layer}: largest difference {difference:.2e}, bound {bound:.2e}")
            assert difference <= bound
        print(f"  scrub: {engine.scrub(512):.2e} of a row")
