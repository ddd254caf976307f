"""Small models and graphs that several tests use."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from livegnn import EdgeSchema, Events, Graph, Schema
from livegnn.graph.snapshot import Snapshot
from livegnn.model import EdgeInput, Input, Model, Propagate, Step

EDGES = ("node", "to", "node")
USER_ITEM, ITEM_USER = ("user", "likes", "item"), ("item", "liked", "user")


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


def typed_model() -> Model:
    """Two layers over users and items, along both edge types, also in reverse, with features of edges."""
    random = np.random.default_rng(4)

    def weight(*shape: int) -> np.ndarray:
        return random.standard_normal(shape, dtype=np.float32)

    count = Propagate(USER_ITEM, (), "count", "divide")
    steps = (
        Step("propagate", ("users",), "i1", attrs=count.to_attrs()),
        Step("linear", ("i1",), "i2", {"weight": "a"}),
        Step("linear", ("items",), "i3", {"weight": "b"}),
        Step("add", ("i2", "i3"), "i4"),
        Step("relu", ("i4",), "item"),
        Step("propagate", ("item",), "u1", attrs=Propagate(ITEM_USER, aggregate="max").to_attrs()),
        Step("propagate", ("item",), "u2", attrs=replace(count, reverse=True).to_attrs()),
        Step("source", ("item",), "e1", attrs={"edge_type": ITEM_USER}),
        Step("linear", ("rating",), "e2", {"weight": "c"}),
        Step("multiply", ("e1", "e2"), "e3"),
        Step("propagate", ("e3",), "u3", attrs=Propagate(ITEM_USER).to_attrs()),
        Step("concat", ("u1", "u2", "u3", "users"), "u4"),
        Step("linear", ("u4",), "user", {"weight": "d"}),
    )
    tensors = {"a": weight(5, 3), "b": weight(5, 2), "c": weight(5, 2), "d": weight(5, 18)}
    return Model(
        {"users": Input("user", 3), "items": Input("item", 2)},
        steps,
        tensors,
        "user",
        ("users", "user"),
        edge_inputs={"rating": EdgeInput(ITEM_USER, 2)},
        outputs={"user": "user", "item": "item"},
    )


def typed_graph(timed_features: Sequence[str] = ()) -> Graph:
    random = np.random.default_rng(5)
    schema = Schema(
        {"item": 2, "user": 3, "shop": 1},
        {
            ITEM_USER: EdgeSchema(edge_dim=2),
            USER_ITEM: EdgeSchema(),
            ("shop", "sells", "item"): EdgeSchema(weighted=True),
        },
        timed_features=timed_features,
    )
    graph = Graph(schema)
    for name, width in schema.node_types.items():
        x = random.standard_normal((30, width)).astype(np.float32)
        graph.apply(Events().add_nodes(np.arange(30), x=x, node_type=name))
    for edge_type, it in schema.edge_types.items():
        ends = random.integers(0, 28, (2, 90))
        columns = {"edge_attr": random.standard_normal((90, 2)).astype(np.float32)} if it.edge_dim else {}
        graph.apply(Events().add_edges(*ends, edge_type=edge_type, **columns))
    return graph
