"""Convolutions that cannot be followed, rewritten by a proposer and kept by the engine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg

from gate import EXPLORING
from livegnn import Engine, Events, Graph, Model, ModelError
from livegnn.graph import EdgeSchema, Schema
from livegnn.model import Convolution, ConvolutionRequest
from livegnn.oracle import reference
from mirror import assert_exact

E = ("node", "to", "node")
WIDTH, FEATURES, OUT = 4, 2, 3


class NumPyConv(pyg.CGConv):
    """Its softplus is NumPy's, which nothing can trace."""

    def message(self, x_i, x_j, edge_attr):
        z = torch.cat([x_i, x_j] if edge_attr is None else [x_i, x_j, edge_attr], dim=-1)
        softplus = torch.from_numpy(np.log1p(np.exp(self.lin_s(z).numpy())))
        return self.lin_f(z).sigmoid() * softplus


class Net(nn.Module):
    """A layer that cannot be read between two that can."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.conv = pyg.SAGEConv(WIDTH, WIDTH), NumPyConv(WIDTH, FEATURES)
        self.last = nn.Linear(WIDTH, OUT)

    def forward(self, x, edge_index, edge_attr):
        return self.last(self.conv(torch.tanh(self.first(x, edge_index)), edge_index, edge_attr))


def rewrite(request: ConvolutionRequest) -> Convolution:
    p = request.parameters

    def message(source, target, edge_attr):
        both = np.concatenate([target, source, edge_attr], axis=1)
        gate, value = (both @ p[f"{n}.weight"].T + p[f"{n}.bias"] for n in ("lin_f", "lin_s"))
        return np.log1p(np.exp(value)) / (1 + np.exp(-gate))

    return Convolution(message_local=message, transform="one", update=lambda h, a: h + a)


class Proposer:
    """Has a wrong sign at first; hears what is wrong; then says what the layer does."""

    def __init__(self) -> None:
        self.heard: list[str | None] = []

    def __call__(self, request: ConvolutionRequest, feedback: str | None) -> Convolution:
        self.request = request
        self.heard.append(feedback)
        right = rewrite(request)
        return right if feedback else replace(right, update=lambda h, a: a - h)


def network() -> Net:
    torch.manual_seed(1)
    return Net().eval()


def test_a_layer_is_proposed_verified_and_kept_live():
    proposer, net = Proposer(), network()
    model = Model.from_pyg(net, edge_type=E, edge_channels=FEATURES, proposer=proposer)
    assert proposer.heard[0] is None
    assert "original formulation" in str(proposer.heard[1])
    request = proposer.request
    assert (request.name, request.in_channels, request.out_channels, request.edge_dim) == (
        "conv",
        WIDTH,
        WIDTH,
        FEATURES,
    )
    assert "np.log1p" in request.source
    rng = np.random.default_rng(3)
    graph = Graph(Schema({"node": WIDTH}, {E: EdgeSchema(edge_dim=FEATURES)}))
    ends = np.unique(rng.integers(0, 10, (2, 30)), axis=1)
    features = rng.standard_normal((ends.shape[1], FEATURES)).astype(np.float32)
    rows = rng.standard_normal((10, WIDTH)).astype(np.float32)
    graph.apply(Events().add_nodes(np.arange(10), rows).add_edges(ends[0], ends[1], edge_attr=features))
    engine = Engine(graph, model, threads=1)
    for turn in range(10):
        snapshot = graph.snapshot()
        with torch.no_grad():
            expected = net(
                torch.from_numpy(snapshot.x["node"]),
                torch.from_numpy(snapshot.edge_index[E].astype(np.int64)),
                torch.from_numpy(snapshot.edge_attr[E]),
            ).numpy()
        got = reference.compute(model, snapshot)[model.output]
        np.testing.assert_allclose(got, expected, atol=1e-4 * np.abs(expected).max())
        assert_exact(engine)
        row = rng.standard_normal((1, FEATURES)).astype(np.float32)
        engine.apply(
            Events()
            .add_edges([turn], [(3 * turn + 1) % 10], edge_attr=row)
            .set_features([turn], rng.standard_normal((1, WIDTH)).astype(np.float32))
        )


def test_a_layer_that_can_be_followed_is_not_asked_for():
    def proposer(request, feedback):
        raise AssertionError("asked")

    model = Model.from_pyg(pyg.EdgeConv(nn.Linear(2 * WIDTH, OUT)), proposer=proposer)
    assert model.width("x") == WIDTH


def test_a_layer_without_a_proposal_is_refused_with_both_reasons():
    with pytest.raises(
        ModelError,
        match=r"(?s)test_proposed_layers\.py:\d+, 'softplus = .*The proposer did not help: .*had no proposal",
    ):
        Model.from_pyg(network(), edge_channels=FEATURES, proposer=lambda request, feedback: None)


class Product(pyg.MessagePassing):
    """The product of what its neighbours say, which no model keeps; it is the sum of logarithms."""

    def __init__(self) -> None:
        super().__init__(aggr="mul")
        self.lin = nn.Linear(WIDTH, OUT)

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=self.lin(x).sigmoid() + 0.1)


def logarithms(request: ConvolutionRequest, feedback: str | None) -> Convolution:
    p = request.parameters

    def transform(h):
        return np.log(1 / (1 + np.exp(-(h @ p["lin.weight"].T + p["lin.bias"]))) + 0.1)

    return Convolution(transform=transform, update=lambda h, a: np.exp(a))


def test_a_module_that_is_a_convolution_itself_is_proposed_and_kept_live():
    torch.manual_seed(4)
    module, asked = Product().eval(), []

    def proposer(request, feedback):
        asked.append(request)
        return logarithms(request, feedback)

    model = Model.from_pyg(module, in_channels=WIDTH, proposer=proposer)
    (request,) = asked
    assert (request.name, request.in_channels, request.out_channels) == ("Product", WIDTH, OUT)
    assert "self.propagate" in request.source
    assert all(not name.startswith(".") for step in model.steps for name in (step.output, *step.inputs))
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((9, WIDTH)).astype(np.float32)
    graph = Graph(Schema({"node": WIDTH}, {E: EdgeSchema()}))
    engine = Engine(graph, model, threads=1)
    engine.apply(Events().add_nodes(np.arange(9), rows))
    for turn in range(12):
        some = Events().add_edges([turn % 9, 2], [(5 * turn + 1) % 9, turn % 4])
        engine.apply(
            some.set_features([turn % 9], rng.standard_normal((1, WIDTH)).astype(np.float32))
            if turn % 2
            else some
        )
        snapshot = graph.snapshot()
        with torch.no_grad():
            expected = module(
                torch.from_numpy(snapshot.x["node"]),
                torch.from_numpy(snapshot.edge_index[E].astype(np.int64)),
            ).numpy()
        np.testing.assert_allclose(
            reference.compute(model, snapshot)[model.output], expected, atol=1e-4 * np.abs(expected).max()
        )
        assert_exact(engine)


@pytest.mark.parametrize("whole", [True, False], ids=["the module", "a layer of it"])
def test_what_is_wrong_with_the_proposer_is_said_of_the_proposer(whole):
    module = Product() if whole else network()
    channels = {"in_channels": WIDTH} if whole else {"edge_channels": FEATURES}
    name = "Product" if whole else "conv"

    def fails(request, feedback):
        raise ZeroDivisionError("no idea")

    with pytest.raises(ModelError) as caught:
        Model.from_pyg(module, **channels, proposer=fails)
    said, did_not_help = str(caught.value).split("\nThe proposer did not help: ")
    assert "the aggregation 'prod'" in said or "np.log1p" in said
    assert "no idea" not in said
    assert did_not_help.endswith(f"{name}: the proposer raised ZeroDivisionError: no idea")
    assert "raise ZeroDivisionError" in did_not_help, "its line"
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    wrong = ((3, "int"), (Convolution, "type"), ([logarithms], "list"))
    for junk, kind in wrong if whole or EXPLORING else wrong[:1]:
        with pytest.raises(
            ModelError,
            match=rf"(?s)did not help: {name}: the proposer must return a livegnn\.model\.Convolution, "
            rf"the source code of one as text, or None, got {kind}$",
        ):
            Model.from_pyg(module, **channels, proposer=lambda request, feedback, junk=junk: junk)
    with pytest.raises(
        ModelError, match="proposer must be a function of a ConvolutionRequest and of feedback"
    ):
        Model.from_pyg(module, **channels, proposer=3)


def test_source_code_is_executed_only_if_allowed():
    with pytest.raises(ModelError, match="executed only with allow_code=True"):
        Model.from_pyg(
            network(), edge_channels=FEATURES, proposer=lambda request, feedback: "convolution = None"
        )
    code = """
def message_local(source, target, edge_attr):
    both = np.concatenate([target, source, edge_attr], axis=1)
    gate, value = both @ lin_f_weight.T + lin_f_bias, both @ lin_s_weight.T + lin_s_bias
    return np.log1p(np.exp(value)) / (1 + np.exp(-gate))

convolution = Convolution(message_local=message_local, transform="one", update=lambda h, a: h + a)
"""
    model = Model.from_pyg(
        network(), edge_channels=FEATURES, proposer=lambda request, feedback: code, allow_code=True
    )
    with pytest.raises(ModelError, match=r"a model with functions .* cannot be saved"):
        model.save("unused")


def test_a_proposal_reads_one_value_of_nodes():
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.conv = nn.Linear(WIDTH, WIDTH), NumPyConv((WIDTH, WIDTH))

        def forward(self, x, edge_index):
            return self.conv((self.first(x), x), edge_index)

    with pytest.raises(ModelError, match="a layer can be proposed for one value of nodes, got 2"):
        Model.from_pyg(Two(), proposer=lambda request, feedback: None)


def test_a_layer_is_proposed_for_one_of_several_edge_types():
    knows, wrote, read_by = ("user", "knows", "user"), ("user", "wrote", "text"), ("text", "read by", "user")
    torch.manual_seed(2)
    convs = {knows: NumPyConv(WIDTH, FEATURES), wrote: pyg.SAGEConv((WIDTH, 2), WIDTH)}
    net = pyg.HeteroConv({**convs, read_by: pyg.SAGEConv((2, WIDTH), WIDTH)}).eval()
    metadata = (["user", "text"], [knows, wrote, read_by])
    settings = {"metadata": metadata, "output_type": "user", "proposer": Proposer()}
    model = Model.from_pyg(net, **settings, edge_channels={knows: FEATURES})
    assert list(model.edge_inputs) == [f"edge_attr:{knows}"]
    edges = {knows: EdgeSchema(edge_dim=FEATURES), wrote: EdgeSchema(), read_by: EdgeSchema()}
    graph = Graph(Schema({"user": WIDTH, "text": 2}, edges))
    rng = np.random.default_rng(3)
    x = {
        name: rng.standard_normal((6, width)).astype(np.float32) for name, width in (("user", 4), ("text", 2))
    }
    events = Events()
    for name, rows in x.items():
        events.add_nodes(np.arange(6), rows, node_type=name)
    engine = Engine(graph, model, threads=1)
    engine.apply(events)
    for turn in range(5):
        row = rng.standard_normal((1, FEATURES)).astype(np.float32)
        some = Events().add_edges([turn], [(3 * turn + 1) % 6], edge_attr=row, edge_type=knows)
        engine.apply(some.add_edges(turn, 5 - turn, edge_type=read_by))
        assert_exact(engine)


def test_a_proposal_reads_what_the_layer_is_given():
    def weighted(request, feedback):
        right = rewrite(request)

        def message(source, target, weight, edge_attr):
            return right.message_local(source, target, edge_attr) * (1 + 0 * weight)

        return replace(right, message_local=message)

    with pytest.raises(ModelError, match=r"The proposer did not help: .*weight"):
        Model.from_pyg(network(), edge_channels=FEATURES, proposer=weighted)


def test_a_proposal_is_for_edges_between_nodes_of_one_type():
    knows, wrote = ("user", "knows", "user"), ("user", "wrote", "text")

    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = NumPyConv((WIDTH, 2))

        def forward(self, x_dict, edge_index_dict):
            return self.conv((x_dict["user"], x_dict["text"]), edge_index_dict[wrote])

    with pytest.raises(
        ModelError, match=r"(?s)The proposer did not help: .*a layer can be proposed for one value"
    ):
        Model.from_pyg(
            Pair(),
            in_channels={"user": WIDTH, "text": 2},
            metadata=(["user", "text"], [knows, wrote]),
            proposer=lambda request, feedback: None,
        )
