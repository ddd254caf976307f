"""Transforms for tests: models on raw columns, and columns of any magnitude."""

from __future__ import annotations

import numpy as np

from livegnn import MISSING, Engine, Events, Graph
from livegnn.graph import Schema
from livegnn.model import Input, Model, Propagate, Step
from livegnn.model.transforms import Transforms

MEAN = Propagate(("node", "to", "node"), neighbor_context="count", combine="divide")


def as_raw(rows: np.ndarray) -> np.ndarray:
    """Rows as a graph holds them."""
    return np.where(np.isnan(rows), MISSING, rows).astype(np.float32)


def identity(width: int) -> Model:
    """A model that predicts the columns that it reads."""
    return Model(
        {"x": Input("node", width)}, (Step("scale", ("x",), "y", attrs={"value": 1.0}),), {}, "y", ("x", "y")
    )


def sage(width: int, channels: int = 3) -> Model:
    """Two layers that each read a row and the mean of the neighbours' rows."""
    rng = np.random.default_rng(1)
    steps, rows = [], "x"
    for layer in range(2):
        steps += [
            Step("propagate", (rows,), f"n{layer}", attrs=MEAN.to_attrs()),
            Step("concat", (rows, f"n{layer}"), f"both{layer}"),
            Step("linear", (f"both{layer}",), f"h{layer}", {"weight": f"w{layer}"}),
        ]
        rows = f"h{layer}"
    weights = {
        f"w{layer}": (rng.standard_normal((channels, 2 * inner)) / inner).astype(np.float32)
        for layer, inner in enumerate((width, channels))
    }
    return Model({"x": Input("node", width)}, tuple(steps), weights, "h1", ("x", "h0", "h1"))


def computed_by_engine(transforms: Transforms, raw: np.ndarray) -> np.ndarray:
    """The columns that an engine computes of raw rows."""
    graph = Graph(Schema({"node": raw.shape[1]}, {}))
    graph.apply(Events().add_nodes(np.arange(len(raw)), raw))
    model = identity(transforms.width).with_transforms(transforms)
    return Engine(graph, model, threads=1).predict(np.arange(len(raw)))


def assert_near(got: np.ndarray, expected: np.ndarray, *, relative: float = 1e-6) -> None:
    """Equal to a part of each number, or to a tenth of that of 1."""
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=relative, atol=relative / 10)
