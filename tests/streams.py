"""A small model, a small graph and random streams of events, for tests of what runs around the engine."""

import numpy as np

from livegnn import Events, Graph, Model
from livegnn.model import Input, Propagate, Step

WIDTH, HIDDEN, CLASSES = 4, 8, 3


def make_model(seed: int = 0) -> Model:
    """A weighted GCN layer with ReLU, then SAGE with the mean and a root term."""
    rng = np.random.default_rng(seed)

    def weights(*shape: int) -> np.ndarray:
        return rng.normal(0, 0.5, shape).astype(np.float32)

    edge_type = ("node", "to", "node")
    gcn = {
        "edge_type": edge_type,
        "message_local": ("weight", "source_rsqrt"),
        "neighbor_context": "sum",
        "combine": "rsqrt",
        "aggregate": "sum",
        "self_loops": 1.0,
    }
    mean = {
        "edge_type": edge_type,
        "message_local": (),
        "neighbor_context": "count",
        "combine": "divide",
        "aggregate": "sum",
        "self_loops": None,
    }
    return Model(
        inputs={"x": Input("node", WIDTH)},
        steps=(
            Step("linear", ("x",), "projected", {"weight": "w1"}),
            Step("propagate", ("projected",), "gathered", attrs=gcn),
            Step("scale_shift", ("gathered",), "shifted", {"shift": "b1"}),
            Step("relu", ("shifted",), "hidden"),
            Step("propagate", ("hidden",), "mean", attrs=mean),
            Step("linear", ("mean",), "from_neighbors", {"weight": "w2", "bias": "b2"}),
            Step("linear", ("hidden",), "from_self", {"weight": "w3"}),
            Step("add", ("from_neighbors", "from_self"), "out"),
        ),
        tensors={
            "w1": weights(HIDDEN, WIDTH),
            "b1": weights(HIDDEN),
            "w2": weights(CLASSES, HIDDEN),
            "b2": weights(CLASSES),
            "w3": weights(CLASSES, HIDDEN),
        },
        output="out",
        layers=("x", "hidden", "out"),
    )


def make_wider_model() -> Model:
    """The sum of all columns of the in-neighbours, with one column more than `make_graph` has."""
    step = Step("propagate", ("x",), "out", attrs=Propagate(("node", "to", "node")).to_attrs())
    return Model({"x": Input("node", WIDTH + 1)}, (step,), {}, "out", ("x", "out"))


def make_overflow() -> list[float]:
    """Features of which a hidden channel of `make_model` is past float32, in whatever order it is summed."""
    weights = make_model().tensors["w1"]
    signs = np.sign(weights[np.abs(weights).sum(axis=1).argmax()])
    return [3e38 if sign >= 0 else -3e38 for sign in signs]


def make_arrays(num_nodes: int = 40, num_edges: int = 120, seed: int = 1) -> dict[str, np.ndarray]:
    """The arguments of `Graph.from_edges`, all arrays."""
    rng = np.random.default_rng(seed)
    src, dst = divmod(rng.choice(num_nodes**2, num_edges, replace=False), num_nodes)
    return {
        "src": src,
        "dst": dst,
        "weight": rng.uniform(0.5, 2, num_edges).astype(np.float32),
        "x": rng.normal(size=(num_nodes, WIDTH)).astype(np.float32),
        "ids": np.arange(num_nodes),
    }


def make_graph(*, text: bool = False) -> Graph:
    """A directed, weighted graph of 40 nodes; with `text`, node 7 is called "n7"."""
    arrays = make_arrays()
    if text:
        for name in ("src", "dst", "ids"):
            arrays[name] = np.array([f"n{id_}" for id_ in arrays[name]])
    return Graph.from_edges(**arrays)


def make_stream(count: int, seed: int = 2, num_nodes: int = 40, *, text: bool = False) -> list[Events]:
    """`count` entries of a few events of every kind, valid in this order on the graph of `make_graph`."""

    def name(ids: object) -> object:
        return [f"n{id_}" for id_ in np.atleast_1d(ids)] if text else ids

    rng = np.random.default_rng(seed)
    known = list(range(num_nodes))
    stream = []
    for _ in range(count):
        events = Events()
        for _ in range(int(rng.integers(1, 4))):
            n = int(rng.integers(1, 5))
            kind = rng.integers(0, 8)
            if kind < 3:
                src, dst = rng.choice(known, (2, n))
                events.add_edges(name(src), name(dst), weight=rng.uniform(0.5, 2, n))
            elif kind < 5:
                src, dst = rng.choice(known, (2, n))
                events.remove_edges(name(src), name(dst))
            elif kind < 6:
                events.set_features(name(rng.choice(known, n)), rng.normal(size=(n, WIDTH)))
            elif kind < 7:
                num_nodes += 1
                known.append(num_nodes)
                events.add_nodes(name([num_nodes]), rng.normal(size=(1, WIDTH)))
            elif len(known) > 20:
                events.remove_nodes(name([known.pop(int(rng.integers(0, len(known))))]))
            else:
                events.remove_edges(name([known[0]]), name([known[1]]))
        stream.append(events)
    return stream
