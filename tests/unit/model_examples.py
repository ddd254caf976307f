"""Small models and graphs that several tests use."""

import numpy as np

from livegnn.graph.snapshot import Snapshot
from livegnn.model import Input, Model, Propagate, Step

EDGES = ("node", "to", "node")


def make_snapshot(x, edges, weight=None) -> Snapshot:
    """A graph of one node type. edges: a list of (source, target)."""
    edge_index = np.array(edges, dtype=np.int64).reshape(-1, 2).T
    weight = np.ones(edge_index.shape[1]) if weight is None else np.array(weight)
    x = np.array(x, dtype=np.float32)
    return Snapshot(
        {"node": np.arange(len(x))}, {"node": x}, {EDGES: edge_index}, {EDGES: weight.astype(np.float32)}
    )


def propagate(read: str, write: str, operators: Propagate | None = None, **changes) -> Step:
    """A propagate step; by default a plain sum."""
    attrs = (operators or Propagate(EDGES)).to_attrs() | changes
    return Step("propagate", (read,), write, attrs=attrs)


def make_sage() -> Model:
    """Two layers of SAGE mean, 3 -> 4 -> 2 channels, with a norm and a skip connection."""
    random = np.random.default_rng(5)
    mean = Propagate(EDGES, (), "count", "divide")

    def weight(*shape: int) -> np.ndarray:
        return random.standard_normal(shape, dtype=np.float32)

    steps = (
        propagate("x", "a1", mean),
        Step("linear", ("a1",), "l1", {"weight": "w1", "bias": "b1"}),
        Step("linear", ("x",), "r1", {"weight": "root"}),
        Step("add", ("l1", "r1"), "s1"),
        Step("layer_norm", ("s1",), "n1", {"weight": "scale"}, {"eps": 1e-5}),
        Step("leaky_relu", ("n1",), "h1", attrs={"slope": 0.1}),
        propagate("h1", "a2", mean),
        Step("concat", ("a2", "h1"), "c2"),
        Step("linear", ("c2",), "out", {"weight": "w2"}),
    )
    tensors = {
        "w1": weight(4, 3),
        "b1": weight(4),
        "root": weight(4, 3),
        "scale": weight(4),
        "w2": weight(2, 8),
    }
    return Model({"x": Input("node", 3)}, steps, tensors, "out", ("x", "h1", "out"))
