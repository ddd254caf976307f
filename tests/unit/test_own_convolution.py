"""A convolution's steps compute what its operators say, which in turn is what a few loops say."""

import numpy as np
import pytest
from model_examples import EDGES

from livegnn.errors import InputError, ModelError
from livegnn.graph.snapshot import Snapshot
from livegnn.model import Convolution, Model
from livegnn.oracle import reference

WIDTH, FEATURES = 4, 2
GENERATOR = np.random.default_rng(11)
W = GENERATOR.standard_normal((WIDTH, 6)).astype(np.float32)
A = GENERATOR.standard_normal((6, 2)).astype(np.float32)


def attention(source, target):
    return np.exp(np.tanh(source @ W @ A + target @ W @ A))


def divide(context, aggregate):
    return aggregate / context


CONVOLUTIONS = {
    "sum": Convolution(),
    "sum with loops": Convolution(self_loops=True),
    "gat": Convolution(
        message_local=attention, neighbor_context="sum", combine=divide, transform=lambda h: h @ W
    ),
    "gat with loops": Convolution(
        message_local=attention,
        neighbor_context=np.add,
        combine=divide,
        transform=lambda h: h @ W,
        self_loops=True,
    ),
    "mean": Convolution(
        neighbor_context=len, combine=divide, update=lambda h, a: np.concatenate([h, a], axis=1)
    ),
    "mean with loops": Convolution(neighbor_context="count", combine=divide, self_loops=True),
    "pinsage": Convolution(
        message_local=lambda source, weight: weight * np.tanh(source @ W),
        transform="one",
        neighbor_context="count",
        combine=divide,
    ),
    "max": Convolution(message_local=lambda source, weight: weight * source[:, :1], aggregate=np.maximum),
    "min of transformed": Convolution(
        message_local=lambda source, target: source[:, :2] - target[:, :2],
        transform=lambda h: h @ W,
        aggregate=lambda messages: messages.min(axis=0),
    ),
    "source alone": Convolution(
        message_local=lambda source: np.abs(source[:, :2]),
        neighbor_context="sum",
        combine=lambda context, aggregate: aggregate / np.sqrt(context),
        transform=lambda h: h @ W,
        self_loops=True,
    ),
    "source alone, max": Convolution(message_local=lambda source: source[:, :1], aggregate="max"),
    "edge features": Convolution(
        message_local=lambda edge_attr, source: source * edge_attr.sum(axis=1, keepdims=True)
    ),
    "weights alone": Convolution(message_local=lambda weight: weight, neighbor_context="sum", combine=divide),
}


@pytest.fixture
def snapshot(rng) -> Snapshot:
    """Node 4 has one in-edge and 5 none; 2 and 4 have loops of their own."""
    edges = np.array([[0, 1, 2, 2, 3, 0, 4, 3], [1, 2, 0, 2, 2, 2, 4, 4]])
    return Snapshot(
        {"node": np.arange(6)},
        {"node": rng.standard_normal((6, WIDTH)).astype(np.float32)},
        {EDGES: edges},
        {EDGES: rng.uniform(0.5, 2, edges.shape[1]).astype(np.float32)},
        {EDGES: rng.standard_normal((edges.shape[1], FEATURES)).astype(np.float32)},
    )


def run(model: Model, snapshot: Snapshot) -> np.ndarray:
    return reference.compute(model, snapshot)[model.output]


@pytest.mark.parametrize("kind", CONVOLUTIONS)
def test_the_steps_compute_what_the_operators_say(kind, snapshot):
    convolution = CONVOLUTIONS[kind]
    model = Model.from_convolutions([convolution], WIDTH, edge_dim=FEATURES)
    expected = convolution.compute(
        snapshot.x["node"], snapshot.edge_index[EDGES], snapshot.weight[EDGES], snapshot.edge_attr[EDGES]
    )
    np.testing.assert_allclose(run(model, snapshot), expected, atol=1e-5)
    assert model.width(model.output) == expected.shape[1]


def test_attention_by_hand(snapshot):
    h, edges = snapshot.x["node"], snapshot.edge_index[EDGES]
    expected = np.zeros((6, 6))
    for v in range(6):
        neighbours = [u for u, w in edges.T.tolist() if w == v]
        if neighbours:
            score = np.array([attention(h[u : u + 1], h[v : v + 1])[0] for u in neighbours])
            share = score / score.sum(axis=0)
            expected[v] = sum(np.repeat(share[i], 3) * (h[u] @ W) for i, u in enumerate(neighbours))
    model = Model.from_convolutions([CONVOLUTIONS["gat"]], WIDTH)
    np.testing.assert_allclose(run(model, snapshot), expected, atol=1e-5)


def test_layers_follow_each_other(snapshot):
    layers = [
        Convolution(neighbor_context="count", combine=divide, transform=lambda h: h @ W, name="first"),
        Convolution(aggregate="max", update=lambda h, a: h + np.maximum(a, 0), name="second"),
    ]
    model = Model.from_convolutions(layers, WIDTH)
    assert model.layers == ("x", "h1.combine", "h2")
    values = reference.compute(model, snapshot)
    edges = snapshot.edge_index[EDGES]
    expected = layers[1].compute(layers[0].compute(snapshot.x["node"], edges), edges)
    np.testing.assert_allclose(values["h2"], expected, atol=1e-5)


def test_only_what_is_read_is_gathered():
    def gathers(kind):
        model = Model.from_convolutions([CONVOLUTIONS[kind]], WIDTH, edge_dim=FEATURES)
        return [step.op for step in model.steps if step.op in ("source", "target")]

    assert gathers("gat") == ["source", "target"]
    assert gathers("edge features") == ["source"]
    assert gathers("max") == ["source"]
    assert gathers("source alone") == gathers("source alone, max") == gathers("weights alone") == []


def test_a_context_that_is_not_positive_gives_zero():
    convolution = Convolution(
        message_local=lambda source: source[:, :1], neighbor_context="sum", combine=divide
    )
    h = np.array([[1, 5], [-1, 7], [2, 3]], np.float32)
    got = convolution.compute(h, np.array([[0, 1, 2, 2], [2, 2, 0, 1]]))
    np.testing.assert_allclose(got, [[2, 3], [2, 3], [0, 0]])


def test_a_graph_without_edges_or_nodes(snapshot):
    """Functions are never called without rows, where reshaping to -1 fails."""

    def by_head(source, target):
        return np.exp(np.tanh(source.reshape(len(source), 2, -1).sum(axis=2) + target[:, :2]))

    convolution = Convolution(
        message_local=by_head,
        neighbor_context="sum",
        combine=divide,
        update=lambda h, a: (h - a).reshape(len(h), 2, -1).sum(axis=2),
    )
    model = Model.from_convolutions([convolution], WIDTH)
    for nodes in (6, 0):
        h = snapshot.x["node"][:nodes]
        bare = Snapshot(
            {"node": np.arange(nodes)},
            {"node": h},
            {EDGES: np.zeros((2, 0), np.int64)},
            {EDGES: np.zeros(0, np.float32)},
        )
        np.testing.assert_allclose(run(model, bare), h.reshape(-1, 2, 2).sum(axis=2), rtol=1e-6)
    alone = convolution.compute(snapshot.x["node"], np.zeros((2, 0), np.int64))
    np.testing.assert_allclose(alone, snapshot.x["node"].reshape(-1, 2, 2).sum(axis=2), rtol=1e-6)


def test_parameters_with_defaults_are_the_users_own(snapshot):
    layers = [
        Convolution(message_local=lambda source, factor=factor: factor * source[:, :1])
        for factor in (2.0, 3.0)
    ]
    assert layers[0].message_reads == ("source",)
    got = [run(Model.from_convolutions([layer], WIDTH), snapshot) for layer in layers]
    np.testing.assert_allclose(got[1], 1.5 * got[0], rtol=1e-5)


def test_digests_tell_functions_apart():
    def make(weight):
        layer = Convolution(neighbor_context="count", combine=divide, transform=lambda h: h @ weight)
        return Model.from_convolutions([layer], WIDTH, verify=False)

    assert make(W).digest == make(W.copy()).digest
    assert make(W).digest != make(2 * W).digest
    other = Convolution(neighbor_context="count", combine=lambda c, a: a * c, transform=lambda h: h @ W)
    assert make(W).digest != Model.from_convolutions([other], WIDTH, verify=False).digest


def test_a_model_with_functions_is_not_saved(tmp_path):
    model = Model.from_convolutions([CONVOLUTIONS["mean"]], WIDTH)
    with pytest.raises(ModelError, match="cannot be saved, as a file holds no code"):
        model.save(tmp_path / "model.lgnn")


@pytest.mark.parametrize(
    ("operators", "message"),
    [
        ({"aggregate": "mean"}, "aggregate must be one of 'sum', 'min', 'max' or a function, got 'mean'"),
        ({"neighbor_context": "max", "combine": divide}, "neighbor_context must be one of 'none', 'count'"),
        ({"neighbor_context": "count"}, "combine must be given if there is a neighbor_context"),
        ({"combine": divide}, "left out if there is none; got neighbor_context 'none'"),
        ({"combine_inverse": divide}, "combine_inverse needs a combine to undo"),
        ({"message_local": lambda: 1}, "message_local must take an array"),
        (
            {"message_local": lambda h: h},
            "message_local must be any of source, target, weight, edge_attr, got 'h'",
        ),
        ({"self_loops": "no"}, "self_loops must be True or False, got 'no'"),
        ({"transform": "one"}, "a transform of 'one' needs a message_local"),
        (
            {"message_local": lambda weight: weight, "self_loops": True},
            "a self-loop has no weight, which message_local reads",
        ),
    ],
)
def test_operators_that_do_not_fit_together_are_refused(operators, message):
    with pytest.raises(ModelError, match=message):
        Convolution(**operators)


@pytest.mark.parametrize(
    ("operators", "message"),
    [
        ({"transform": lambda h: h.sum(axis=1)}, r"transform must return \[2, channels\], got \[2\]"),
        ({"transform": lambda h: h @ W.T}, "transform failed on two rows .4 channels.*ValueError: matmul"),
        ({"message_local": lambda source: source[:, :3]}, "one for each head, or the 4 .*; got 3"),
        ({"message_local": lambda edge_attr: edge_attr}, "reads edge_attr: give edge_dim, got 0"),
        ({"update": lambda h, a: h[:1]}, r"update must return \[2, channels\], got \[1, 4\]"),
        ({"self_loops": True, "aggregate": "max"}, "self_loops need aggregate 'sum', got 'max'"),
    ],
)
def test_functions_that_do_not_fit_together_are_refused(operators, message):
    with pytest.raises(ModelError, match=message):
        Model.from_convolutions([Convolution(**operators)], WIDTH)


def test_models_that_cannot_be_built_are_refused():
    with pytest.raises(ModelError, match="must have a convolution, got none"):
        Model.from_convolutions([], WIDTH)
    with pytest.raises(ModelError, match="edges between nodes of one type, got 'user' to 'item'"):
        Model.from_convolutions([Convolution()], WIDTH, edge_type=("user", "buys", "item"))
    with pytest.raises(InputError, match="verify must be True or False, got 'no'"):
        Model.from_convolutions([Convolution()], WIDTH, verify="no")
    with pytest.raises(ModelError, match=r"aggregate is none that the engine keeps \(sum, min, max\)"):
        Model.from_convolutions([Convolution(aggregate=np.mean)], WIDTH, verify=False)
