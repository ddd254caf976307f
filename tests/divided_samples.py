"""Samples of a graph in parts beside those of an undivided one, array by array."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from divided_streams import EDGES, Stream, outcome
from livegnn import Graph
from livegnn.query import Query
from livegnn.sampling import sample_neighbors, sample_nodes, sample_query, sample_subgraph

COUNTS = [-1, 0, 1, 2, 3, 10]


def assert_same(got: Any, expected: Any, name: str = "") -> None:
    """Two samples, array by array. A part numbers the features of its edges for itself: these are None."""
    if dataclasses.is_dataclass(expected):
        got = dict(vars(got))
        for name, one in vars(expected).items():
            assert_same(got[name], one, name)
    elif isinstance(expected, tuple):
        for place, one in enumerate(expected):
            name = expected._fields[place] if hasattr(expected, "_fields") else name
            assert_same(got[place], one, name)
    elif isinstance(expected, dict):
        assert list(got) == list(expected), name
        for key, one in expected.items():
            assert_same(got[key], one, name)
    elif isinstance(expected, np.ndarray) and name == "edge":
        assert got is None
    elif isinstance(expected, np.ndarray):
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape), name
        assert got.tobytes() == expected.tobytes(), name
    else:
        assert got == expected, name


def check(names: Graph, graph: Graph, sample: Any) -> None:
    (got, refused), (expected, reason) = (outcome(lambda it=it: sample(it)) for it in (names, graph))
    assert refused == reason
    assert_same(got, expected)


def any_settings(rng: np.random.Generator) -> dict[str, Any]:
    by = str(rng.choice(["uniform", "weight", "latest"]))
    return {
        "by": by,
        "replace": by != "latest" and rng.random() < 0.3,
        "direction": str(rng.choice(["in", "out"])),
        "seed": int(rng.integers(2**63)),
        "threads": 1,
    }


def check_samples(names: Graph, graph: Graph, stream: Stream, rng: np.random.Generator) -> None:
    """Samples of every kind. Seeds are of any owner, some twice, and seldom one was removed or is new."""
    seeds = stream.ids(rng.choice([*stream.present, *stream.present[:1]], int(rng.integers(1, 9))))
    if rng.random() < 0.05:
        seeds = [*seeds, *stream.ids(int(rng.integers(stream.named + 5)))]
    chosen, count = any_settings(rng), int(rng.choice(COUNTS))
    each = [None, 1.0, rng.integers(0, 4, len(seeds)).astype(float)][int(rng.integers(3))]
    check(names, graph, lambda it: sample_neighbors(it, seeds, count, until=each, **chosen))
    for attributes in (False, True):
        chosen, disjoint = any_settings(rng), rng.random() < 0.4
        fan_outs = [int(one) for one in rng.choice(COUNTS, int(rng.integers(0, 4)))]
        until = each if disjoint or np.ndim(each) == 0 else None  # type: ignore[arg-type]
        rest = {**chosen, "until": until, "disjoint": disjoint, "attributes": attributes}
        check(names, graph, lambda it, rest=rest, hops=fan_outs: sample_subgraph(it, seeds, hops, **rest))
    query = Query("node").hop(EDGES, 3, direction="in").also(EDGES, 2, direction="out", by="latest")
    query = query.hop(EDGES, 2, direction=chosen["direction"])
    rest = {"attributes": True, "seed": chosen["seed"], "until": until if np.ndim(until) == 0 else None}  # type: ignore[arg-type]
    check(names, graph, lambda it: sample_query(it, seeds, query, **rest))
    check(names, graph, lambda it: sample_nodes(it, 2, seed=chosen["seed"]))
