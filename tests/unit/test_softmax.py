"""A softmax has a reference logit for each target, whatever its logits read: nothing overflows."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.utils import softmax

from gate import EXPLORING
from livegnn import Engine, Events, Graph, Model
from livegnn.model import EdgeInput, Input, Step
from livegnn.network.propagation import Propagate
from livegnn.oracle import reference
from livegnn.oracle.exactness import judge
from livegnn.types import DEFAULT_EDGE_TYPE, DEFAULT_NODE_TYPE

WIDTH, EDGE_WIDTH = 4, 3
READS = ["source", "target", "both", "edge", "constant", "source_and_edge"]


class Attention(pyg.MessagePassing):
    """A softmax of one's own, whose logits read what `reads` says; large and small ones by `size`."""

    def __init__(self, reads: str, size: float, shift: float = 0.0, loops: bool = False) -> None:
        super().__init__(aggr="add", node_dim=0)
        self.reads, self.shift, self.loops = reads, shift, loops
        self.lin = nn.Linear(WIDTH, 5)
        self.node = nn.Parameter(size * torch.randn(WIDTH))
        self.other = nn.Parameter(size * torch.randn(WIDTH))
        self.edge = nn.Parameter(size * torch.randn(EDGE_WIDTH))

    def forward(self, x, edge_index, edge_attr):
        logits = (x * self.node).sum(-1, keepdim=True)
        asked = (x * self.other).sum(-1, keepdim=True)
        return self.propagate(edge_index, x=x, h=self.lin(x), logits=logits, asked=asked, edge_attr=edge_attr)

    def message(self, h_j, logits_j, asked_i, edge_attr, index):
        of_edge = (edge_attr * self.edge).sum(-1, keepdim=True)
        logits = {
            "source": logits_j,
            "target": asked_i,
            "both": logits_j + asked_i,
            "edge": of_edge,
            "constant": 0 * logits_j,
            "source_and_edge": logits_j + of_edge,
        }[self.reads]
        return softmax(logits + self.shift, index) * h_j


class General(nn.Module):
    def __init__(self, attention_type: str) -> None:
        super().__init__()
        self.conv = pyg.GeneralConv(WIDTH, 6, attention=True, heads=2, attention_type=attention_type)

    def forward(self, x, edge_index):
        return self.conv(x, edge_index)


def make_graph(rng: np.random.Generator, size: float, *, features: bool) -> tuple[np.ndarray, ...]:
    nodes, edges = 40, 400
    pairs = rng.choice(nodes * nodes, edges, replace=False)
    x = (size * rng.standard_normal((nodes, WIDTH))).astype(np.float32)
    edge_attr = rng.standard_normal((edges, EDGE_WIDTH)).astype(np.float32)
    return (x, np.stack([pairs % nodes, pairs // nodes]), *([edge_attr] if features else []))


def check(module: nn.Module, rng: np.random.Generator, given: tuple[np.ndarray, ...]) -> None:
    """As made, after batches, and with everything on demand, as PyG in float64 says."""
    x, edge_index, *edge_attr = given
    module = module.eval()
    channels = {"edge_channels": EDGE_WIDTH} if edge_attr else {}
    model = Model.from_pyg(module, in_channels=WIDTH, **channels)
    assert_on_edges(model)
    columns = {"edge_attr": edge_attr[0]} if edge_attr else {}
    engines = [
        Engine(Graph.from_edges(*edge_index, x=x, **columns), model, **settings)
        for settings in ({}, {"mode": "lazy"}, {"keep": "aggregates"})
    ]
    x, there, edge_attr = x.copy(), np.full(edge_index.shape[1], True), [array.copy() for array in edge_attr]
    for batch in range(4):
        with torch.no_grad():
            index = torch.from_numpy(edge_index[:, there])
            rows = [torch.from_numpy(array[there]) for array in edge_attr]
            single = module(torch.from_numpy(x), index, *rows).numpy()
            exact = (
                copy.deepcopy(module)
                .double()(torch.from_numpy(x).double(), index, *(array.double() for array in rows))
                .numpy()
            )
        assert np.isfinite(exact).all()
        for engine in engines:
            found = judge(engine.predict(np.arange(len(x))), exact, single)
            assert found.ok, f"batch {batch}: {found}"
            values = reference.compute(model, engine.graph.snapshot())
            assert judge(values[model.output], exact).ok
        ids, gone = rng.choice(len(x), 5, replace=False), rng.choice(np.flatnonzero(there), 20, replace=False)
        x[ids] = x[rng.permutation(len(x))[:5]] * np.float32(0.5)
        there[gone] = False
        events = Events().set_features(ids, x[ids]).remove_edges(*edge_index[:, gone])
        if edge_attr:
            some = rng.choice(np.flatnonzero(there), 20, replace=False)
            edge_attr[0][some] *= np.float32(1.5)
            events.add_edges(*edge_index[:, some], edge_attr=edge_attr[0][some])
        for engine in engines:
            engine.apply(events)


def assert_on_edges(model: Model) -> None:
    """Every coefficient of a softmax is the exponential of rows of edges."""
    makers = {step.output: step for step in model.steps}
    for step in model.steps:
        if step.op == "propagate" and Propagate.from_step(step).coefficients:
            for name in step.inputs[1 : 2 * len(Propagate.from_step(step).edge_types) : 2]:
                assert makers[name].op == "exp"
                assert model.edge_type(makers[name].inputs[0]) is not None


@pytest.mark.parametrize(
    ("attention_type", "size"),
    [
        (attention_type, size)
        for i, attention_type in enumerate(["additive", "dot_product"])
        for j, size in enumerate([1.0, 100.0, 1e4])
        if EXPLORING or (i + j) % 2 == 0
    ],
)
def test_general_conv(attention_type, size, rng):
    torch.manual_seed(0)
    check(General(attention_type), rng, make_graph(rng, size, features=False))


@pytest.mark.parametrize(
    ("reads", "size", "shift"),
    [
        (reads, size, shift)
        for i, reads in enumerate(READS)
        for j, (size, shift) in enumerate([(1.0, 120.0), (1.0, -120.0), (60.0, 0.0), (1e-3, 300.0)])
        if EXPLORING or (i + j) % 4 == 0
    ],
)
def test_a_softmax_of_ones_own(reads, size, shift, rng):
    torch.manual_seed(1)
    check(Attention(reads, size, shift), rng, make_graph(rng, 1.0, features=True))


@pytest.mark.parametrize("shift", [0.0, 500.0, -500.0])
def test_steps_that_exponentiate_rows_of_nodes(shift, rng):
    """A model as somebody may write it, with several heads and two kinds of gathered exponentials."""
    x, edge_index = make_graph(rng, 1.0, features=False)
    operators = Propagate(DEFAULT_EDGE_TYPE, ("coefficient",), "sum", "divide")
    at_edges = {"edge_type": list(DEFAULT_EDGE_TYPE)}
    for end in ("source", "target"):
        steps = (
            Step("linear", ("x",), "logits", {"weight": "w", "bias": "b"}),
            Step("exp", ("logits",), "weights"),
            Step(end, ("weights",), "c", attrs=at_edges),
            Step("propagate", ("x", "c"), "sum", attrs=operators.to_attrs()),
        )
        tensors = {
            "w": rng.standard_normal((2, WIDTH)).astype(np.float32),
            "b": np.full(2, shift, np.float32),
        }
        model = Model({"x": Input(DEFAULT_NODE_TYPE, WIDTH)}, steps, tensors, "sum", ("x", "sum"))
        assert_on_edges(model)
        assert "weights" not in [step.output for step in model.steps]
        engine = Engine(Graph.from_edges(*edge_index, x=x), model)
        logits = x.astype(np.float64) @ tensors["w"].T.astype(np.float64)
        expected = np.zeros((len(x), WIDTH))
        for node in range(len(x)):
            sources = edge_index[0][edge_index[1] == node]
            if len(sources):
                share = np.exp(logits[sources] - logits[sources].max(axis=0)) if end == "source" else 1
                share = np.broadcast_to(share, (len(sources), 2))
                share = share / share.sum(axis=0)
                expected[node] = (np.repeat(share, WIDTH // 2, axis=1) * x[sources]).sum(axis=0)
        # A float32 logit of 500 is known to 3e-5.
        assert np.abs(engine.predict(np.arange(len(x))) - expected).max() < 3e-4
        assert engine.verify().ok


def test_what_else_reads_the_exponentials_keeps_them():
    operators = Propagate(DEFAULT_EDGE_TYPE, ("coefficient",), "sum", "divide")
    at_edges = {"edge_type": list(DEFAULT_EDGE_TYPE)}
    steps = (
        Step("exp", ("x",), "weights"),
        Step("source", ("weights",), "c", attrs=at_edges),
        Step("propagate", ("x", "c"), "sum", attrs=operators.to_attrs()),
        Step("add", ("sum", "weights"), "out"),
    )
    inputs = {"x": Input(DEFAULT_NODE_TYPE, 1)}
    model = Model(inputs, steps, {}, "out", ("x", "out"))
    assert [step.op for step in model.steps] == ["exp", "source", "exp", "propagate", "add"]
    again = Model(inputs, model.steps, {}, "out", ("x", "out"))
    assert again.steps == model.steps
    # Coefficients that are no exponentials, or of edges already, stay what they are.
    given = {"w": EdgeInput(DEFAULT_EDGE_TYPE, 1, "weight")}
    plain = (Step("propagate", ("x", "w"), "sum", attrs=operators.to_attrs()),)
    assert Model(inputs, plain, {}, "sum", ("x", "sum"), given).steps == plain


@pytest.mark.parametrize("kind", [pyg.TransformerConv, pyg.SuperGATConv])
def test_logits_past_float32_leave_no_wrong_number(kind):
    """Products of features of 1e20 overflow: where PyG in float32 has no number, ours is right or none."""
    torch.manual_seed(0)
    module = kind(3, 4).eval()
    model = Model.from_pyg(module)
    source, target = np.array([0, 1, 2, 3, 0, 4, 1]), np.array([2, 2, 3, 0, 1, 3, 0])
    edge_index = torch.from_numpy(np.stack([source, target]))
    missing = 0
    for seed in range(6):
        x = (np.random.default_rng(seed).standard_normal((5, 3)) * 1e20).astype(np.float32)
        engine = Engine(Graph.from_edges(source, target, x=x[[1, 0, 2, 3, 4]]), model, non_finite="allow")
        engine.apply(Events().set_features([0, 1], x[:2]))
        with torch.no_grad():
            rough = module(torch.from_numpy(x), edge_index).numpy()
            exact = copy.deepcopy(module).double()(torch.from_numpy(x).double(), edge_index).numpy()
        got = engine.predict(np.arange(5))
        lost = ~np.isfinite(got)
        assert not np.isfinite(rough[lost]).any()
        np.testing.assert_allclose(got[~lost] / 1e20, exact[~lost] / 1e20, rtol=1e-4, atol=1e-4)
        assert engine.verify().ok
        missing += int(lost.sum())
    assert missing  # some logits did overflow


def test_a_target_whose_logits_are_all_minus_infinity_has_no_number():
    """As in PyG; without any message it is 0, and one finite logit has all the weight."""

    class Masked(pyg.MessagePassing):
        def __init__(self) -> None:
            super().__init__(aggr="add", node_dim=0)

        def forward(self, x, edge_index):
            return self.propagate(edge_index, x=x)

        def message(self, x_j, index, size_i):
            logit = x_j[:, :1].relu().log()
            return x_j * softmax(logit, index, num_nodes=size_i)

    module, x = Masked(), np.array([[1, 2], [-1, 3], [0, 0], [0, 0], [0, 0]], np.float32)
    graph = Graph.from_edges([0, 1, 1], [2, 2, 3], x=x)
    engine = Engine(graph, Model.from_pyg(module, in_channels=2), non_finite="allow")
    expected = np.array([[1, 2], [np.nan, np.nan], [0, 0]])
    np.testing.assert_allclose(engine.predict([2, 3, 4]), expected)
    engine.apply(Events().add_edges([1, 0], [4, 3]).remove_edges([0], [2]))
    np.testing.assert_allclose(engine.predict([2, 3, 4]), expected[[1, 0, 1]])
