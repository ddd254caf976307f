"""The cost of transforms of raw columns: a batch of changed features and edges on a graph whose model
transforms raw columns, beside the same model on columns that were transformed before.

The columns are typical ones: numbers that are scaled, logarithms that are scaled, categories, hours. Both
engines apply the same batches in turn, on one thread whose processor time is measured, so that other
programs disturb little; predictions are compared at the end.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np

from livegnn import MISSING, Engine, Events, Graph
from livegnn.model import Input, Model, Propagate, Step, Transforms
from livegnn.model.transforms import Branches, Cyclic, Fill, Log, OneHot, Standardize

NUMBERS, SKEWED, CATEGORIES = 8, 6, 3
MEAN = Propagate(("node", "to", "node"), neighbor_context="count", combine="divide")


def transforms() -> Transforms:
    scaled = (Fill((0.0,) * NUMBERS), Standardize((5.0,) * NUMBERS, (2.0,) * NUMBERS))
    logs = (Fill((1.0,) * SKEWED), Log(), Standardize((2.0,) * SKEWED, (1.5,) * SKEWED))
    first, second = NUMBERS + SKEWED, NUMBERS + SKEWED + CATEGORIES
    branches = (
        (tuple(range(NUMBERS)), scaled),
        (tuple(range(NUMBERS, first)), logs),
        (tuple(range(first, second)), (OneHot(tuple(tuple(range(10)) for _ in range(CATEGORIES))),)),
        ((second,), (Cyclic(24.0),)),
    )
    return Transforms(tuple(f"c{i}" for i in range(second + 1)), (Branches(branches),))


def raw_rows(rng: np.random.Generator, count: int) -> np.ndarray:
    numbers = rng.normal(5, 2, (count, NUMBERS))
    skewed = np.exp(rng.normal(2, 1.5, (count, SKEWED)))
    known = np.concatenate([numbers, skewed], axis=1)
    known[rng.random(known.shape) < 0.05] = MISSING
    categories, hours = rng.integers(0, 12, (count, CATEGORIES)), rng.uniform(0, 24, (count, 1))
    return np.concatenate([known, categories, hours], axis=1).astype(np.float32)


def sage(width: int, hidden: int) -> Model:
    """Two layers of GraphSAGE, each of the row and the mean of the neighbours' rows."""
    rng, steps, rows, tensors = np.random.default_rng(1), [], "x", {}
    for layer, inner in enumerate((width, hidden)):
        for part in ("own", "mean"):
            weight = rng.standard_normal((hidden, inner)) / np.sqrt(inner)
            tensors[f"{part}{layer}"] = weight.astype(np.float32)
        steps += [
            Step("propagate", (rows,), f"n{layer}", attrs=MEAN.to_attrs()),
            Step("linear", (f"n{layer}",), f"l{layer}", {"weight": f"mean{layer}"}),
            Step("linear", (rows,), f"r{layer}", {"weight": f"own{layer}"}),
            Step("add", (f"l{layer}", f"r{layer}"), f"s{layer}"),
            Step("relu", (f"s{layer}",), f"h{layer}"),
        ]
        rows = f"h{layer}"
    return Model({"x": Input("node", width)}, tuple(steps), tensors, rows, ("x", "h0", "h1"))


def measure(nodes: int, edges: int, hidden: int, batches: int, size: int) -> dict[str, object]:
    rng, made = np.random.default_rng(0), transforms()
    model, rows = sage(made.width, hidden), raw_rows(rng, nodes)
    src, dst = rng.integers(0, nodes, (2, edges))
    engines = [
        Engine(Graph.from_edges(src, dst, x=x, parallel="last"), one, threads=1)
        for x, one in ((made(rows), model), (rows, model.with_transforms(made)))
    ]
    kinds: dict[str, list[list[float]]] = {}
    for _ in range(batches):
        ids, new = rng.choice(nodes, size, replace=False), raw_rows(rng, size)
        ends = rng.integers(0, nodes, (2, size))
        for kind in ("features", "edges"):
            times = kinds.setdefault(kind, [[], []])
            for at, engine in enumerate(engines):
                x = made(new) if at == 0 else new
                events = Events().set_features(ids, x) if kind == "features" else Events().add_edges(*ends)
                begun = time.thread_time()
                engine.apply(events)
                times[at].append(time.thread_time() - begun)
    ids = np.arange(nodes)
    difference = float(np.abs(engines[0].predict(ids) - engines[1].predict(ids)).max())
    found: dict[str, object] = {"raw columns": rows.shape[1], "columns": made.width, "difference": difference}
    for kind, (plain, raw) in kinds.items():
        before, after = np.median(plain) * 1e3, np.median(raw) * 1e3
        share = float(np.median(np.array(raw) / np.array(plain)) - 1)
        found[kind] = {
            "ms": round(before, 3),
            "ms with transforms": round(after, 3),
            "share": round(share, 4),
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--edges", type=int, default=1_000_000)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--batches", type=int, default=30)
    parser.add_argument("--size", type=int, default=1_000)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    found = measure(given.nodes, given.edges, given.hidden, given.batches, given.size)
    print(json.dumps(found, indent=1))
    if given.out is not None:
        given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
