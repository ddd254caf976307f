"""The convolutions to build models from compute what their formulas say."""

import numpy as np
import pytest
from model_examples import EDGES, make_snapshot

from livegnn.errors import InputError, ModelError
from livegnn.model import Input, Model
from livegnn.model.convolutions import ConvolutionSteps, comm_net, pin_sage
from livegnn.oracle import reference

EDGE_LIST = [(0, 1), (2, 1), (1, 1), (3, 2), (0, 2), (2, 0), (4, 3)]  # nobody leads to 4
WEIGHTS = [0.5, 2.0, 1.5, 0.25, 1.0, 3.0, 0.0]


def build(convolution: ConvolutionSteps, width: int) -> Model:
    layers = ("x", convolution.output)
    inputs = {"x": Input("node", width)}
    return Model(inputs, convolution.steps, convolution.tensors, convolution.output, layers)


def run(model: Model, x: np.ndarray) -> np.ndarray:
    return reference.compute(model, make_snapshot(x, EDGE_LIST, WEIGHTS))[model.output]


def neighbors_of(node: int) -> list[tuple[int, float]]:
    return [(u, weight) for (u, v), weight in zip(EDGE_LIST, WEIGHTS, strict=True) if v == node]


@pytest.mark.parametrize("out", [2, 6])
@pytest.mark.parametrize("with_bias", [False, True])
def test_comm_net(rng, out, with_bias):
    x = rng.standard_normal((5, 4), dtype=np.float32)
    own, others = rng.standard_normal((2, out, 4), dtype=np.float32)
    bias = rng.standard_normal(out, dtype=np.float32) if with_bias else None
    got = run(build(comm_net("out", "x", own, others, bias=bias, edge_type=EDGES), 4), x)
    for node in range(5):
        expected = own @ x[node] + sum((others @ x[u] for u, _ in neighbors_of(node)), np.zeros(out))
        np.testing.assert_allclose(got[node], expected + (0 if bias is None else bias), atol=1e-5)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("divide_by", ["count", "sum"])
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("with_bias", [False, True])
def test_pin_sage(rng, weighted, divide_by, normalize, with_bias):
    x = rng.standard_normal((5, 4), dtype=np.float32)
    message, update = rng.standard_normal((6, 4), np.float32), rng.standard_normal((3, 10), np.float32)
    biases = {}
    if with_bias:
        biases["message_bias"] = rng.standard_normal(6, dtype=np.float32)
        biases["update_bias"] = rng.standard_normal(3, dtype=np.float32)
    convolution = pin_sage(
        "out", "x", message, update, weighted=weighted, divide_by=divide_by, normalize=normalize, **biases
    )
    got = run(build(convolution, 4), x)
    for node in range(5):
        total, divisor = np.zeros(6), 0.0
        for u, weight in neighbors_of(node):
            alpha = weight if weighted else 1.0
            total += alpha * np.maximum(message @ x[u] + biases.get("message_bias", 0), 0)
            divisor += alpha if divide_by == "sum" else 1.0
        mean = total / divisor if divisor else np.zeros(6)
        expected = np.maximum(update @ np.concatenate([x[node], mean]) + biases.get("update_bias", 0), 0)
        if normalize and expected.any():
            expected = expected / np.linalg.norm(expected)
        np.testing.assert_allclose(got[node], expected, atol=1e-5)


def test_several_make_a_model(rng):
    first = pin_sage("first", "x", rng.random((6, 4), np.float32), rng.random((5, 10), np.float32))
    second = comm_net(
        "second", "first", rng.random((2, 5), np.float32), rng.random((2, 5), np.float32), edge_type=EDGES
    )
    inputs, layers = {"x": Input("node", 4)}, ("x", first.output, second.output)
    steps, tensors = (*first.steps, *second.steps), {**first.tensors, **second.tensors}
    model = Model(inputs, steps, tensors, second.output, layers)
    assert run(model, rng.random((5, 4), np.float32)).shape == (5, 2)


def test_weights_must_be_matrices():
    with pytest.raises(ModelError, match=r"neighbors must be a matrix \[out, in\], got shape \(3,\)"):
        comm_net("out", "x", np.ones((2, 3), np.float32), np.ones(3, np.float32))
    with pytest.raises(ModelError, match=r"update must be a matrix"):
        pin_sage("out", "x", np.ones((2, 3), np.float32), np.ones(3, np.float32))
    with pytest.raises(InputError, match="weighted must be True or False, got 'no'"):
        pin_sage("out", "x", np.ones((2, 4), np.float32), np.ones((2, 6), np.float32), weighted="no")
    with pytest.raises(ModelError, match="for 6 input channels"):
        build(pin_sage("out", "x", np.ones((2, 4), np.float32), np.ones((2, 4), np.float32)), 4)
