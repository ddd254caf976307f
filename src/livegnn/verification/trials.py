"""Tests for properties that cannot be proved: that functions do not mix rows, and that operators compute what
a layer does."""

import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from livegnn.network.own_convolution import Convolution
from livegnn.types import Array, DoubleArray, FloatArray, IntArray
from livegnn.verification.claims import TOLERANCE, Answer, format_row

ROWS = 24
GRAPHS = 60
_MOST_NODES = 6


def try_rows(
    function: Callable[[Mapping[str, Array]], Array],
    widths: Mapping[str, int],
    width: int | None,
    seed: int = 0,
    positive: Sequence[str] = (),
) -> Answer:
    """Tests whether row i of a function's output depends only on row i of its inputs.

    The function must give the same result for a row alone, among others and in another order, and the same
    bits when it is called again. It must return finite numbers with `width` channels, and must not change its
    inputs. positive: the inputs that are above 0.
    """
    start = time.perf_counter()
    random = np.random.default_rng(seed)
    whole = {name: np.rint(random.standard_normal((ROWS, w)) * 2) for name, w in widths.items()}
    any_numbers = {name: random.standard_normal((ROWS, w)) for name, w in widths.items()}
    for arrays in (whole, any_numbers):
        for name in {*positive} & {*arrays}:
            arrays[name] = np.abs(arrays[name]) + 0.5
        problem = _row_problem(function, {n: a.astype(np.float32) for n, a in arrays.items()}, width, random)
        if problem:
            return Answer("refuted", problem, time.perf_counter() - start)
    return Answer("tested", "", time.perf_counter() - start)


def _row_problem(
    function: Callable[[Mapping[str, Array]], Array],
    arrays: Mapping[str, FloatArray],
    width: int | None,
    random: np.random.Generator,
) -> str:
    def call(rows: IntArray | slice) -> Array:
        given = {name: array[rows].copy() for name, array in arrays.items()}
        for array in given.values():
            array.flags.writeable = False
        return np.asarray(function(given))

    try:
        with np.errstate(all="ignore"):
            expected, again = call(slice(None)), call(slice(None))
            if expected.ndim != 2 or len(expected) != ROWS or width not in (None, expected.shape[1]):
                return f"it must return [{ROWS}, {width or 'channels'}], got {list(expected.shape)}"
            if not np.isfinite(expected).all():
                row = int(np.flatnonzero(~np.isfinite(expected).all(axis=1))[0])
                return f"{_show(arrays, row)} gives {format_row(expected[row])}"
            if expected.tobytes() != again.tobytes():
                return "it gives other numbers when it is called again"
            for rows in (np.arange(1), np.arange(ROWS // 2), random.permutation(ROWS)):
                got = call(rows)
                different = _first_difference(got, expected[rows])
                if different is not None:
                    row = different
                    whole, part = format_row(expected[rows[row]]), format_row(got[row])
                    return (
                        f"{_show(arrays, int(rows[row]))} gives {whole} among {ROWS} rows, but {part} among "
                        f"{len(rows)} of them, in another order"
                    )
    except Exception as error:  # an exception of a user's function is a failure
        return f"{type(error).__name__}: {error}"
    return ""


def compare_with_reference(
    convolution: Convolution, in_channels: int, edge_dim: int, seed: int = 0
) -> Answer:
    """Tests on small graphs whether the operators compute the layer's original formulation.

    Edges are removed from a counterexample as long as it remains one.
    """
    start = time.perf_counter()
    random = np.random.default_rng(seed)
    for number in range(GRAPHS):
        graph = _Graph.draw(random, 1 + number * _MOST_NODES // GRAPHS, in_channels, edge_dim)
        try:
            if graph.difference(convolution) is None:
                continue
            graph = graph.shrink(convolution)
            return Answer("refuted", graph.describe(convolution), time.perf_counter() - start)
        except Exception as error:  # an exception of a user's function refutes it
            text = f"{type(error).__name__}: {error}, with {graph.show()}"
            return Answer("refuted", text, time.perf_counter() - start)
    return Answer("tested", "", time.perf_counter() - start)


class _Graph:
    def __init__(self, h: FloatArray, edges: IntArray, weight: FloatArray, features: FloatArray) -> None:
        self.h, self.edges, self.weight, self.features = h, edges, weight, features

    @staticmethod
    def draw(random: np.random.Generator, nodes: int, channels: int, features: int) -> "_Graph":
        pairs = np.array([(u, v) for u in range(nodes) for v in range(nodes)], dtype=np.int64)
        edges = pairs[random.random(len(pairs)) < 0.5].reshape(-1, 2).T
        count = edges.shape[1]
        return _Graph(
            (np.rint(random.standard_normal((nodes, channels)) * 2) / 2).astype(np.float32),
            edges,
            random.integers(1, 4, count).astype(np.float32),
            np.rint(random.standard_normal((count, features)) * 2).astype(np.float32),
        )

    def outputs(self, convolution: Convolution) -> tuple[DoubleArray, DoubleArray]:
        assert convolution.reference is not None
        arrays = (self.h, self.edges, self.weight, self.features)
        with np.errstate(all="ignore"):
            expected = np.asarray(convolution.reference(*(a.copy() for a in arrays)), dtype=np.float64)
            got = convolution.compute(*arrays).astype(np.float64)
        return got, expected

    def difference(self, convolution: Convolution) -> int | None:
        """The first node whose output differs; None if there is none."""
        return _first_difference(*self.outputs(convolution))

    def shrink(self, convolution: Convolution) -> "_Graph":
        graph, edge = self, 0
        while edge < graph.edges.shape[1]:
            kept = np.arange(graph.edges.shape[1]) != edge
            less = _Graph(graph.h, graph.edges[:, kept], graph.weight[kept], graph.features[kept])
            if less.difference(convolution) is None:
                edge += 1
            else:
                graph = less
        return graph

    def describe(self, convolution: Convolution) -> str:
        got, expected = self.outputs(convolution)
        if got.shape != expected.shape:
            return f"the reference returns {list(expected.shape)}, the operators {list(got.shape)}"
        node = _first_difference(got, expected)
        assert node is not None
        return (
            f"{self.show()}: node {node} is {format_row(got[node])}, "
            f"its original formulation {format_row(expected[node])}"
        )

    def show(self) -> str:
        edges = ", ".join(f"{u} -> {v}" for u, v in self.edges.T.tolist()) or "none"
        used = sorted(set(self.edges.ravel().tolist())) or range(len(self.h))
        rows = ", ".join(f"h_{node} = {format_row(self.h[node])}" for node in used)
        return f"edges {edges}; {rows}"


def _first_difference(got: Array, expected: Array) -> int | None:
    """The first row that differs, 0 if the shapes differ, None if nothing does."""
    if got.shape != expected.shape:
        return 0
    if not got.size:
        return None
    a, b = got.astype(np.float64), expected.astype(np.float64)
    wrong = ~(np.abs(a - b) <= TOLERANCE * np.maximum(1.0, np.abs(b))) | ~np.isfinite(a)
    rows = np.flatnonzero(wrong.reshape(len(got), -1).any(axis=1))
    return int(rows[0]) if len(rows) else None


def _show(arrays: Mapping[str, Array], row: int) -> str:
    return ", ".join(f"{name} = {format_row(array[row])}" for name, array in arrays.items())
