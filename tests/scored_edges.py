"""Models that score edges, and their scores in plain NumPy: the oracle of rows of edges."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from hypothesis import strategies as st

from livegnn import EdgeSchema, Events, Model
from livegnn.graph import Snapshot
from livegnn.model import EdgeInput, Input, Propagate, Step
from livegnn.oracle import reference, row_reference
from livegnn.types import DEFAULT_EDGE_TYPE, EdgeType

WIDTH, HIDDEN, EMBEDDED, COLUMNS = 3, 5, 4, 2
NODES = 10
MAGNITUDES = (1e-6, 1.0, 1e9)


def edge_schemas() -> st.SearchStrategy[EdgeSchema]:
    """Schemas of all kinds of edges that are scored."""
    return st.builds(
        EdgeSchema,
        undirected=st.booleans(),
        weighted=st.booleans(),
        duplicates=st.sampled_from(["keep", "replace"]),
        edge_dim=st.sampled_from([0, 2]),
    )


def make_scorer(
    seed: int = 0,
    *,
    edge_type: EdgeType = DEFAULT_EDGE_TYPE,
    edge_dim: int = COLUMNS,
    weighted: bool = True,
    messages: bool = False,
) -> Model:
    """Two mean convolutions, an embedding and a class of each node; and edge outputs: ``"risk"``, a
    perceptron on both embeddings and the edge's columns, and ``"alike"``, the dot product of the embeddings.
    messages: whether the first convolution reads the edges' features too.
    """
    rng = np.random.default_rng(seed)
    tensors: dict[str, np.ndarray] = {}

    def weight(name: str, *shape: int) -> dict[str, str]:
        tensors[name] = rng.normal(0, 0.6, shape).astype(np.float32)
        return {"weight": name}

    def at(op: str, value: str, output: str) -> Step:
        return Step(op, (value,), output, attrs={"edge_type": edge_type})

    mean = Propagate(edge_type, neighbor_context="count", combine="divide").to_attrs()
    first, inner = "x", WIDTH
    steps: list[Step] = []
    if messages and edge_dim:
        steps = [at("source", "x", "x_sent"), Step("concat", ("x_sent", "columns"), "sent")]
        first, inner = "sent", WIDTH + edge_dim
    steps += [
        Step("propagate", (first,), "around", attrs=mean),
        Step("linear", ("around",), "projected", weight("w1", HIDDEN, inner)),
        Step("linear", ("x",), "own", weight("w0", HIDDEN, WIDTH)),
        Step("add", ("projected", "own"), "joined"),
        Step("relu", ("joined",), "hidden"),
        Step("linear", ("hidden",), "narrow", weight("w2", EMBEDDED, HIDDEN)),
        Step("propagate", ("narrow",), "embedding", attrs=mean),
        Step("linear", ("embedding",), "class", weight("w3", 2, EMBEDDED)),
        at("source", "embedding", "from"),
        at("target", "embedding", "to"),
        at("source", "class", "from_class"),
        Step("multiply", ("from", "to"), "product"),
        Step("sum_channels", ("product",), "dot", attrs={"heads": 1}),
    ]
    parts = ["from", "to", "from_class"]
    edge_inputs = {}
    if edge_dim:
        parts.append("columns")
        edge_inputs["columns"] = EdgeInput(edge_type, edge_dim)
    if weighted:
        parts.append("weights")
        edge_inputs["weights"] = EdgeInput(edge_type, 1, "weight")
    width = 2 * EMBEDDED + 2 + edge_dim + weighted
    steps += [
        Step("concat", tuple(parts), "read"),
        Step("linear", ("read",), "decoded", weight("w4", HIDDEN, width)),
        Step("relu", ("decoded",), "rectified"),
        Step("linear", ("rectified",), "risk", weight("w5", 2, HIDDEN)),
    ]
    return Model(
        {"x": Input(edge_type[0], WIDTH)},
        tuple(steps),
        tensors,
        "class",
        ("x", "hidden", "class"),
        edge_inputs=edge_inputs,
        outputs={"class": "class", "embedding": "embedding"},
        edge_outputs={"risk": "risk", "alike": "dot"},
    )


def compute_scores(
    model: Model,
    snapshot: Snapshot,
    name: str,
    sources: np.ndarray,
    targets: np.ndarray,
    edge_attr: np.ndarray | None = None,
    weight: np.ndarray | None = None,
    dtype: type = np.float64,
) -> np.ndarray:
    """An edge output for pairs of nodes, given by their positions in the snapshot, from scratch. weight: ones
    if it is left out."""
    scores, rows = model.edge_scores[name], reference.compute(model, snapshot, dtype=dtype)
    columns = {"edge_attr": edge_attr, "weight": np.ones(len(sources)) if weight is None else weight}
    values: dict[str, np.ndarray] = {}
    for ends, positions in ((scores.sources, sources), (scores.targets, targets)):
        values |= {value: rows[model.outputs[output]][positions] for value, output in ends.items()}
    for value, given in scores.edge_inputs.items():
        column = columns[given.column]
        assert column is not None
        values[value] = np.asarray(column, dtype).reshape(len(sources), given.width)
    with np.errstate(all="ignore"):
        for step in scores.steps:
            tensors: Mapping[str, np.ndarray] = {
                role: np.asarray(model.tensors[tensor], dtype) for role, tensor in step.tensors.items()
            }
            values[step.output] = row_reference.apply(step, [values[one] for one in step.inputs], tensors)
    return values[scores.value]


def name(numbers: np.ndarray, text: bool) -> np.ndarray:
    return np.array([f"n{one}" for one in numbers.tolist()], np.str_) if text else numbers


def make_batch(
    rng: np.random.Generator, edges: EdgeSchema, columns: np.ndarray, text: bool, *, hub: bool = False
) -> Events:
    """A few events of every kind. columns: the magnitude of each feature of a node. hub: most edges lead to
    one node."""
    events = Events()
    for _ in range(int(rng.integers(1, 5))):
        n = int(rng.integers(1, 6))
        sources, targets = rng.integers(0, NODES, (2, n))
        if hub:
            targets[rng.random(n) < 0.8] = 0
        src, dst = name(sources, text), name(targets, text)
        key = rng.integers(0, 3, n) if edges.duplicates == "keep" and rng.random() < 0.5 else None
        kind = rng.integers(0, 6)
        if kind < 3:
            attr = rng.normal(size=(n, edges.edge_dim)) * rng.choice(MAGNITUDES)
            events.add_edges(
                src,
                dst,
                key=key,
                weight=rng.uniform(0.1, 3, n) if edges.weighted else None,
                edge_attr=attr if edges.edge_dim else None,
            )
        elif kind == 3:
            events.remove_edges(src, dst, key=key)
        elif kind == 4:
            events.set_features(src, rng.normal(size=(n, WIDTH)) * columns)
        else:
            events.remove_nodes(np.unique(src))
            events.add_nodes(np.unique(src), rng.normal(size=(len(np.unique(src)), WIDTH)) * columns)
    return events
