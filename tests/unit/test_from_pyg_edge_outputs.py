"""Modules that return a row for each edge, or for each pair of nodes: link prediction, and fraud on payments.

The model's edge outputs, in NumPy and float64, are what the module says in float64, in its order of edges.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim, export
from torch_geometric import nn as pyg
from torch_geometric.data import Data, HeteroData
from torch_geometric.utils import softmax

import livegnn as lg
from livegnn.errors import ModelError
from livegnn.model import Model
from livegnn.oracle import reference
from livegnn.oracle.edge_reference import compute_edge_output
from livegnn.types import EdgeType
from modules import fill

N, E, H = 4, 3, 6
"""Channels of nodes, of edges, and inside."""
TYPE: EdgeType = ("node", "to", "node")
Decode = Callable[..., torch.Tensor]


def graphs() -> dict[str, np.ndarray]:
    """Ends of edges: loops, parallel edges, isolated nodes, one target, one edge, none."""
    random = np.random.default_rng(5)
    mixed = random.integers(0, 7, (2, 16))
    mixed[1, :3] = mixed[0, :3]
    mixed[:, 3:6] = mixed[:, 6:9]
    return {
        "mixed": mixed,
        "one target": np.stack([random.integers(0, 9, 8), np.full(8, 2)]),
        "loops": np.tile(random.integers(0, 9, 5), (2, 1)),
        "one edge": np.array([[3], [1]]),
        "none": np.zeros((2, 0), np.int64),
    }


def compare(module: nn.Module, model: Model, names: Mapping[str, str], method: str = "forward") -> None:
    """names: of the model's edge outputs -> of the module's results, ``""`` if it returns one tensor."""
    exact = copy.deepcopy(module).double().eval()
    for kind, ends in graphs().items():
        random = np.random.default_rng(len(ends[0]))
        pairs = random.integers(0, 9, (2, 7))
        columns = {
            "x": random.standard_normal((9, N)),
            "edge_attr": random.standard_normal((ends.shape[1], E)),
            "edge_weight": random.random(ends.shape[1]),
            "edge_label_attr": random.standard_normal((7, E)),
        }
        columns = {name: rows.astype(np.float32) for name, rows in columns.items()}
        given = {name: torch.from_numpy(rows).double() for name, rows in columns.items()}
        given |= {"edge_index": torch.from_numpy(ends), "edge_label_index": torch.from_numpy(pairs)}
        takes = inspect.signature(getattr(exact, method)).parameters
        with torch.no_grad():
            said = getattr(exact, method)(**{name: one for name, one in given.items() if name in takes})
        values = reference.compute(
            model,
            reference.GraphArrays(
                {"node": columns["x"]},
                {TYPE: ends},
                {TYPE: columns["edge_weight"]},
                {TYPE: columns["edge_attr"]},
            ),
        )
        of_pairs = "edge_label_index" in takes
        for name, result in names.items():
            expected = (said[result] if result else said).numpy()
            got = compute_edge_output(
                model,
                name,
                values,
                pairs if of_pairs else ends,
                edge_attr=columns["edge_label_attr" if of_pairs else "edge_attr"],
                weight=None if of_pairs else columns["edge_weight"],
            )
            close(got, expected, f"{name} of {kind}")
            if not of_pairs:  # the model's own steps on the edges of the graph
                close(values[model.edge_outputs[name]], expected, f"{name} of {kind}")


def close(got: np.ndarray, expected: np.ndarray, what: str) -> None:
    expected = expected.reshape(len(expected), int(np.prod(expected.shape[1:])))
    scale = max(1e-3, float(np.abs(expected).max(initial=0)))
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-6 * scale, err_msg=what)


class OnEdges(nn.Module):
    """Scores the edges that carry the messages."""

    def __init__(self, decode: Decode, **layers: nn.Module) -> None:
        super().__init__()
        self.conv = pyg.SAGEConv(N, H)
        self.layers = nn.ModuleDict(layers)
        self.decode = decode

    def forward(self, x, edge_index):
        z = self.conv(x, edge_index)
        return self.decode(self, z[edge_index[0]], z[edge_index[1]])


class OnPairs(OnEdges):
    """Scores any pairs of nodes."""

    def forward(self, x, edge_index, edge_label_index):
        z = self.conv(x, edge_index)
        return self.decode(self, z[edge_label_index[0]], z[edge_label_index[1]])


def decoders() -> dict[str, tuple[Decode, dict[str, nn.Module]]]:
    return {
        "dot": (lambda net, a, b: (a * b).sum(-1), {}),
        "Hadamard": (lambda net, a, b: net.layers["lin"](a * b).sigmoid(), {"lin": nn.Linear(H, 2)}),
        "difference": (lambda net, a, b: (a - b).abs(), {}),
        "concatenation": (
            lambda net, a, b: net.layers["mlp"](torch.cat([a, b], dim=-1)).squeeze(-1),
            {"mlp": nn.Sequential(nn.Linear(2 * H, 5), nn.ReLU(), nn.BatchNorm1d(5), nn.Linear(5, 1))},
        ),
        "bilinear": (lambda net, a, b: net.layers["w"](a, b), {"w": nn.Bilinear(H, H, 2)}),
        "bilinear product": (
            lambda net, a, b: torch.einsum("ei,ij,ej->e", a, net.layers["w"].weight, b),
            {"w": nn.Linear(H, H, bias=False)},
        ),
        "DistMult": (
            lambda net, a, b: (a * net.layers["r"].weight[0] * b).sum(-1),
            {"r": nn.Embedding(1, H)},
        ),
        "cosine": (lambda net, a, b: F.cosine_similarity(a, b), {}),
        "distance": (lambda net, a, b: -(a - b).norm(dim=-1), {}),
        "norm and class": (
            lambda net, a, b: F.log_softmax(net.layers["norm"](torch.stack([a, b], 1).flatten(1)), dim=-1),
            {"norm": nn.LayerNorm(2 * H)},
        ),
        "each end its own": (
            lambda net, a, b: net.layers["a"](a).relu() + net.layers["b"](b).relu(),
            {"a": nn.Linear(H, 3), "b": nn.Linear(H, 3)},
        ),
    }


@pytest.mark.parametrize("name", decoders())
@pytest.mark.parametrize("kind", [OnEdges, OnPairs])
def test_a_decoder_of_rows_at_both_ends(kind, name):
    decode, layers = decoders()[name]
    module = fill(kind(decode, **layers), 1).eval()
    model = Model.from_pyg(module)
    compare(module, model, {"output": ""})
    scores = model.edge_scores["output"]
    assert scores.edge_type == TYPE
    assert set(scores.sources.values()) == set(scores.targets.values()) == {"embedding"}
    assert model.outputs == {"embedding": model.output}
    assert model.width(model.output) == H  # the module's own embedding, not a part of its decoder


class Gine(nn.Module):
    """GINe with updates of edges, as for money laundering."""

    def __init__(self, layers: int = 2) -> None:
        super().__init__()
        self.node_emb, self.edge_emb = nn.Linear(N, H), nn.Linear(E, H)
        self.convs, self.emlps, self.norms = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        for _ in range(layers):
            inner = nn.Sequential(nn.Linear(H, H), nn.ReLU(), nn.Linear(H, H))
            self.convs.append(pyg.GINEConv(inner, edge_dim=H))
            self.emlps.append(nn.Sequential(nn.Linear(3 * H, H), nn.ReLU(), nn.Linear(H, H)))
            self.norms.append(pyg.BatchNorm(H))
        self.mlp = nn.Sequential(nn.Linear(3 * H, 5), nn.ReLU(), nn.Dropout(0.1), nn.Linear(5, 2))

    def forward(self, x, edge_index, edge_attr):
        src, dst = edge_index
        x, edge_attr = self.node_emb(x), self.edge_emb(edge_attr)
        for conv, emlp, norm in zip(self.convs, self.emlps, self.norms, strict=True):
            x = (x + F.relu(norm(conv(x, edge_index, edge_attr)))) / 2
            edge_attr = edge_attr + emlp(torch.cat([x[src], x[dst], edge_attr], dim=-1)) / 2
        x = x[edge_index.T].reshape(-1, 2 * H).relu()
        return self.mlp(torch.cat((x, edge_attr.view(-1, edge_attr.shape[1])), 1))


class Pna(nn.Module):
    """PNA with updates of edges: the next messages read them."""

    def __init__(self) -> None:
        super().__init__()
        settings = {"aggregators": ["mean", "max", "std"], "scalers": ["identity", "amplification"]}
        degrees = torch.tensor([1, 4, 2, 1])
        self.first = pyg.PNAConv(N, H, edge_dim=E, deg=degrees, **settings)
        self.second = pyg.PNAConv(H, H, edge_dim=E, deg=degrees, towers=2, **settings)
        self.update, self.score = nn.Linear(2 * H + E, E), nn.Linear(2 * H + E, 1)

    def forward(self, x, edge_index, edge_attr):
        src, dst = edge_index
        h = self.first(x, edge_index, edge_attr).relu()
        edge_attr = edge_attr + self.update(torch.cat([h[src], h[dst], edge_attr], -1)).tanh() / 2
        h = self.second(h, edge_index, edge_attr).relu()
        return self.score(torch.cat([h[src], h[dst], edge_attr], -1)).squeeze(-1)


class ESage(nn.Module):
    """E-GraphSAGE: messages of edge features, and edges classified by both ends."""

    def __init__(self) -> None:
        super().__init__()
        self.message, self.apply_nodes = nn.Linear(N + E, H), nn.Linear(N + H, H)
        self.apply_edges = nn.Linear(2 * H, 2)

    def forward(self, x, edge_index, edge_attr):
        src, dst = edge_index
        messages = self.message(torch.cat([x[src], edge_attr], -1))
        total = x.new_zeros(x.size(0), H).index_add_(0, dst, messages)
        count = x.new_zeros(x.size(0)).index_add_(0, dst, torch.ones_like(messages[:, 0]))
        h = F.relu(self.apply_nodes(torch.cat([x, total / count.clamp(min=1)[:, None]], -1)))
        return self.apply_edges(torch.cat([h[src], h[dst]], -1))


class Weighted(nn.Module):
    """Raw features at the ends beside embeddings, weights and features of edges."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.GATv2Conv(N, H, edge_dim=E)
        self.lin = nn.Linear(H + N + E, 3)

    def forward(self, x, edge_index, edge_attr, edge_weight):
        h = self.conv(x, edge_index, edge_attr)
        both = torch.cat([h[edge_index[0]], x[edge_index[1]], edge_attr], -1)
        return self.lin(both) * edge_weight.view(-1, 1)


@pytest.mark.parametrize("kind", [Gine, Pna, ESage, Weighted])
def test_features_and_states_of_edges(kind):
    module = fill(kind(), 2).eval()
    model = Model.from_pyg(module, in_channels=N, edge_channels=E)
    compare(module, model, {"output": ""})


class Skip(nn.Module):
    """Raw features and embeddings at both ends; the messages read the raw features of an edge's ends too."""

    def __init__(self, read) -> None:
        super().__init__()
        self.conv = pyg.SAGEConv(N, N)
        self.edge = pyg.EdgeConv(nn.Linear(2 * N, N), aggr="mean")
        self.read = read

    def forward(self, x, edge_index):
        h = self.conv(x, edge_index) + self.edge(x, edge_index)
        return self.read(h, x, *edge_index)


@pytest.mark.parametrize(
    "read",
    [
        lambda h, x, i, j: torch.cat([h[i], h[j], x[i], x[j]], -1).tanh(),
        lambda h, x, i, j: torch.cat([h[i], x[j] - x[i]], -1),
        lambda h, x, i, j: h[i] + x[i] + h[j],
        lambda h, x, i, j: (x[i] * x[j]).sum(-1),
    ],
)
def test_a_decoder_may_read_features_that_messages_read_too(read):
    module = fill(Skip(read), 3).eval()
    model = Model.from_pyg(module, in_channels=N)
    compare(module, model, {"output": ""})


def test_rows_at_the_ends_are_outputs_the_last_layer_first():
    model = Model.from_pyg(Gine().eval())
    assert list(model.outputs) == ["embedding", "embedding/2"]
    assert model.output == model.outputs["embedding"]
    order = [step.output for step in model.steps]
    assert order.index(model.outputs["embedding"]) > order.index(model.outputs["embedding/2"])
    weighted = Model.from_pyg(Weighted().eval())
    assert list(weighted.outputs) == ["embedding:source", "embedding:target"]
    assert [weighted.width(one) for one in weighted.outputs.values()] == [H, N]


class Several(nn.Module):
    """Rows of nodes and of edges."""

    def __init__(self, keys: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.conv, self.lin, self.keys = pyg.SAGEConv(N, H), nn.Linear(H, 2), keys

    def forward(self, x, edge_index):
        z = self.conv(x, edge_index)
        found = self.lin(z), (z[edge_index[0]] * z[edge_index[1]]).sum(-1), z[edge_index].mean(0)
        return dict(zip(self.keys, found, strict=True)) if self.keys else found


def test_rows_of_nodes_and_of_edges_are_both_outputs():
    module = fill(Several(), 3).eval()
    model = Model.from_pyg(module)
    assert list(model.outputs) == ["output[0]", "embedding"]
    assert list(model.edge_outputs) == ["output[1]", "output[2]"]
    compare(module, model, {"output[1]": 1, "output[2]": 2})
    named = fill(Several(("classes", "links", "means")), 3).eval()
    model = Model.from_pyg(named)
    assert (list(model.outputs), list(model.edge_outputs)) == (
        ["classes", "embedding"],
        ["links", "means"],
    )
    assert not Model.from_pyg(named, output="classes").edge_outputs
    links = Model.from_pyg(named, output="links")
    assert (list(links.outputs), list(links.edge_outputs)) == (["embedding"], ["links"])
    compare(named, links, {"links": "links"})


def test_an_output_that_the_ends_read_is_not_repeated():
    class Both(OnEdges):
        def forward(self, x, edge_index):
            z = self.conv(x, edge_index)
            return z, self.decode(self, z[edge_index[0]], z[edge_index[1]])

    model = Model.from_pyg(Both(lambda net, a, b: a * b).eval())
    assert list(model.outputs) == ["output[0]"]
    assert set(model.edge_scores["output[1]"].sources.values()) == {"output[0]"}


def test_attention_that_a_module_returns_is_a_row_for_each_edge():
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = pyg.GATConv(N, H, heads=2, add_self_loops=False)

        def forward(self, x, edge_index):
            h, (ends, alpha) = self.conv(x, edge_index, return_attention_weights=True)
            return h, ends, alpha

    module = fill(Attention(), 4).eval()
    model = Model.from_pyg(module)
    assert list(model.edge_outputs) == ["output[2]"]
    compare(module, model, {"output[2]": 2})


class Encoder(nn.Module):
    def __init__(self, variational: bool = False) -> None:
        super().__init__()
        self.conv, self.variational = pyg.GCNConv(N, H), variational

    def forward(self, x, edge_index):
        z = self.conv(x, edge_index)
        return (z, z) if self.variational else z


class Links(nn.Module):
    """PyG's example of link prediction."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = pyg.GCNConv(N, 5), pyg.GCNConv(5, H)

    def encode(self, x, edge_index):
        return self.conv2(self.conv1(x, edge_index).relu(), edge_index)

    def decode(self, z, edge_label_index):
        return (z[edge_label_index[0]] * z[edge_label_index[1]]).sum(dim=-1)

    def decode_all(self, z):
        return (z @ z.t() > 0).nonzero(as_tuple=False).t()


class Whole(nn.Module):
    """A module's encoder and decoder in one call."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x, edge_index, edge_label_index):
        return self.module.decode(self.module.encode(x, edge_index), edge_label_index)


@pytest.mark.parametrize(
    "make",
    [Links, lambda: pyg.GAE(Encoder()), lambda: pyg.VGAE(Encoder(variational=True))],
    ids=["example", "GAE", "VGAE"],
)
def test_an_encoder_and_a_decoder(make):
    module = fill(make(), 5).eval()
    before = dict(vars(module)), type(module), module.state_dict()
    model = Model.from_pyg(module, method="decode")
    compare(Whole(module), model, {"output": ""})
    assert (list(model.outputs), type(module)) == (["embedding"], before[1])
    assert vars(module) == before[0]
    nodes = Model.from_pyg(module, method="encode")
    assert (list(nodes.outputs), dict(nodes.edge_outputs)) == (["output"], {})


def test_a_module_without_forward_is_its_encoder_and_decoder():
    assert list(Model.from_pyg(Links().eval()).edge_outputs) == ["output"]
    # PyG's autoencoders have a forward, which encodes.
    assert not Model.from_pyg(pyg.GAE(Encoder()).eval()).edge_outputs


def test_features_of_pairs_are_those_of_edges():
    class Amounts(nn.Module):
        def __init__(self, width: int = E) -> None:
            super().__init__()
            self.conv, self.lin = pyg.GATv2Conv(N, H, edge_dim=E), nn.Linear(2 * H + width, 1)

        def forward(self, x, edge_index, edge_attr, edge_label_index, edge_label_attr):
            z = self.conv(x, edge_index, edge_attr)
            ends = z[edge_label_index[0]], z[edge_label_index[1]]
            return self.lin(torch.cat([*ends, edge_label_attr], -1))

    module = fill(Amounts(), 6).eval()
    model = Model.from_pyg(module)
    assert model.edge_inputs["edge_label_attr"] == model.edge_inputs["edge_attr"]
    compare(module, model, {"output": ""})
    with pytest.raises(ModelError, match="have 3 columns, got 2: give both the same columns"):
        Model.from_pyg(Amounts(2).eval())


def test_features_of_pairs_alone():
    """The messages read no features of edges; those of the graph have the columns of pairs."""

    class Amounts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.lin = pyg.SAGEConv(N, H), nn.Linear(2 * H + E, 1)

        def forward(self, x, edge_index, edge_label_index, edge_label_attr):
            z = self.conv(x, edge_index)
            ends = z[edge_label_index[0]], z[edge_label_index[1]]
            return self.lin(torch.cat([*ends, edge_label_attr], -1))

    module = fill(Amounts(), 6).eval()
    model = Model.from_pyg(module)
    compare(module, model, {"output": ""})
    assert model.edge_inputs["edge_label_attr"].width == E


def test_pairs_of_data():
    module = OnPairs(lambda net, a, b: (a * b).sum(-1)).eval()
    data = Data(x=torch.rand(6, N), edge_index=torch.randint(6, (2, 9)))
    assert list(Model.from_pyg(module, data).edge_outputs) == ["output"]
    data.edge_label_index, data.edge_label = torch.randint(6, (2, 4)), torch.rand(4)
    assert list(Model.from_pyg(module, data).edge_outputs) == ["output"]

    class OfData(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, data):
            return self.inner(data.x, data.edge_index, data.edge_label_index)

    assert list(Model.from_pyg(OfData(), data).edge_outputs) == ["output"]


def test_a_name_without_meaning_may_name_pairs():
    class Candidates(OnPairs):
        def forward(self, x, edge_index, candidates):
            return super().forward(x, edge_index, candidates)

    module = Candidates(lambda net, a, b: a * b).eval()
    with pytest.raises(ModelError, match="takes 'candidates', whose meaning is unknown"):
        Model.from_pyg(module)
    model = Model.from_pyg(module, inputs={"candidates": "edge_label_index"})
    assert list(model.edge_outputs) == ["output"]


METADATA = (["user", "movie"], [("movie", "rev_rates", "user"), ("user", "rates", "movie")])
RATES = METADATA[1][1]


class HeteroLinks(nn.Module):
    """PyG's example of heterogeneous link prediction."""

    def __init__(self) -> None:
        super().__init__()

        class GNNEncoder(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.conv1, self.conv2 = pyg.SAGEConv((-1, -1), H), pyg.SAGEConv((-1, -1), H)

            def forward(self, x, edge_index):
                return self.conv2(self.conv1(x, edge_index).relu(), edge_index)

        self.encoder = pyg.to_hetero(GNNEncoder(), METADATA, aggr="sum")
        self.lin1, self.lin2 = nn.Linear(2 * H, H), nn.Linear(H, 1)

    def forward(self, x_dict, edge_index_dict, edge_label_index):
        z_dict = self.encoder(x_dict, edge_index_dict)
        row, col = edge_label_index
        z = torch.cat([z_dict["user"][row], z_dict["movie"][col]], dim=-1)
        return self.lin2(self.lin1(z).relu()).view(-1)


def test_pairs_of_two_types_of_nodes():
    data = HeteroData()
    data["user"].x, data["movie"].x = torch.rand(7, 3), torch.rand(5, 2)
    for kind in METADATA[1]:
        data[kind].edge_index = torch.randint(5, (2, 11))
    module, pairs = HeteroLinks(), torch.tensor([[0, 6, 2], [4, 4, 1]])
    module(data.x_dict, data.edge_index_dict, pairs)
    fill(module, 7).eval()
    models = [Model.from_pyg(module, data), Model.from_pyg(module, metadata=METADATA)]
    data[RATES].edge_label_index = pairs
    models.append(Model.from_pyg(module, data))
    exact = copy.deepcopy(module).double()
    with torch.no_grad():
        rows = {name: x.double() for name, x in data.x_dict.items()}
        expected = exact(rows, data.edge_index_dict, pairs).numpy()
    for model in models:
        assert list(model.outputs) == ["embedding:source", "embedding:target"]
        assert [model.node_type(one) for one in model.outputs.values()] == ["user", "movie"]
        assert model.edge_scores["output"].edge_type == RATES
        graph = reference.GraphArrays(
            {name: x.numpy() for name, x in data.x_dict.items()},
            {kind: ends.numpy() for kind, ends in data.edge_index_dict.items()},
            {kind: np.ones(11, np.float32) for kind in METADATA[1]},
            {},
        )
        got = compute_edge_output(model, "output", reference.compute(model, graph), pairs.numpy())
        close(got, expected, "output")
    with pytest.raises(ModelError, match="rows are gathered by numbers of movie nodes from a tensor"):
        Model.from_pyg(module, data, inputs={"edge_label_index": METADATA[1][0]})


class DistMult(nn.Module):
    """The decoder of PyG's example of relational link prediction."""

    def __init__(self) -> None:
        super().__init__()
        self.rel_emb = nn.Parameter(torch.randn(2, H))

    def forward(self, z, edge_index, edge_type):
        return (z[edge_index[0]] * self.rel_emb[edge_type] * z[edge_index[1]]).sum(-1)


class Relations(nn.Module):
    """It scores the edges that carry the messages."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.decoder = pyg.RGCNConv(N, H, 2), DistMult()

    def forward(self, x, edge_index, edge_type):
        return self.decoder(self.conv(x, edge_index, edge_type), edge_index, edge_type)


KINDS = [("node", "likes", "node"), ("node", "hates", "node")]


@pytest.mark.parametrize("of_pairs", [False, True])
def test_a_relation_by_number_has_an_edge_output_of_its_own(of_pairs):
    whole = fill(Relations(), 8).eval()
    if of_pairs:
        autoencoder = pyg.GAE(whole.conv, whole.decoder).eval()
        model = Model.from_pyg(autoencoder, relations=KINDS, method="decode")
    else:
        model = Model.from_pyg(whole, relations=KINDS)
    assert list(model.edge_outputs) == [f"output:{kind}" for kind in KINDS]
    ends, numbers = graphs()["mixed"], np.arange(16) % 2
    x = np.random.default_rng(0).standard_normal((9, N)).astype(np.float32)
    by_kind = {kind: ends[:, numbers == i] for i, kind in enumerate(KINDS)}
    weight = {kind: np.ones(8, np.float32) for kind in KINDS}
    values = reference.compute(model, reference.GraphArrays({"node": x}, by_kind, weight, {}))
    with torch.no_grad():
        tensors = torch.from_numpy(x).double(), torch.from_numpy(ends), torch.from_numpy(numbers)
        expected = copy.deepcopy(whole).double()(*tensors).numpy()
    for i, kind in enumerate(KINDS):
        name = f"output:{kind}"
        assert model.edge_scores[name].edge_type == kind
        close(compute_edge_output(model, name, values, by_kind[kind]), expected[numbers == i], name)


def test_pairs_without_numbers_are_of_the_first_relation():
    class Pairs(Relations):
        def forward(self, x, edge_index, edge_type, edge_label_index):
            z = self.conv(x, edge_index, edge_type)
            return z[edge_label_index[0]] * z[edge_label_index[1]]

    model = Model.from_pyg(Pairs().eval(), relations=KINDS)
    assert model.edge_scores["output"].edge_type == KINDS[0]


@pytest.mark.parametrize("kind", [OnEdges, OnPairs])
def test_a_program_has_edge_outputs_too(kind):
    module = kind(lambda net, a, b: (a * b).sum(-1)).eval()
    shapes = {"x": {0: Dim("nodes")}, "edge_index": {1: Dim("edges")}}
    example = [torch.rand(5, N), torch.randint(5, (2, 7))]
    if kind is OnPairs:
        shapes["edge_label_index"] = {1: Dim("pairs")}
        example.append(torch.randint(5, (2, 4)))
    model = Model.from_exported(export(module, tuple(example), dynamic_shapes=shapes, strict=False))
    compare(module, model, {"output": ""})


def test_an_engine_keeps_the_rows_that_scores_read():
    model = Model.from_pyg(fill(Gine(), 9).eval())
    random = np.random.default_rng(0)
    ends = np.unique(random.integers(0, 12, (2, 30)), axis=1)
    graph = lg.Graph.from_edges(
        *ends,
        x=random.standard_normal((12, N)).astype(np.float32),
        edge_attr=random.standard_normal((ends.shape[1], E)).astype(np.float32),
    )
    engine = lg.Engine(graph, model)
    engine.apply(lg.Events().set_features([3, 5], np.ones((2, N))).remove_edges(*ends[:, :2]))
    values = reference.compute(model, graph.snapshot())
    for name, value in model.outputs.items():
        close(engine.predict(np.arange(12), output=name), values[value], name)


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        (lambda net, z, e: z[e[0]].sort(dim=0)[0], "sort"),
        (lambda net, z, e: z[e[:, : e.size(1) // 2][0]], "a size decides what it does"),
        (lambda net, z, e: z[e[0]][1:], "a size decides what it does"),
        (lambda net, z, e: z[e[0]][::2], "a size decides what it does"),
        (lambda net, z, e: z[e[0]].flip(0), "rows change their places"),
        (lambda net, z, e: z[e[0]] - z[e[1]].mean(0), "every row of the graph is reduced to one"),
        (
            lambda net, z, e: (z[e[0]] * z[e[1]]).sum(-1).softmax(0),
            "every row of the graph is reduced to one",
        ),
        (lambda net, z, e: z[e[0]] / e.size(1), "the number of edges is computed with"),
        (lambda net, z, e: z[e[0]][z[e[0]].sum(-1) > 0], "filtered by their features"),
        (lambda net, z, e: z[e[0]][e[0] != e[1]], "returns some rows of those it has"),
        (lambda net, z, e: (z[e[0]] * z[e[1]]).sum(), "returns no row for each node or edge"),
        (lambda net, z, e: z[e[0]] @ z[e[1]].t(), "every node meets every node"),
        (lambda net, z, e: e, "returns no rows of nodes or edges, or the ends of edges alone"),
        (lambda net, z, e: torch.ones_like(z[e[0]]), "the same row for each edge"),
        (lambda net, z, e: torch.cat([z[e[0]], z[e[1]]]), "rows of several tensors behind each other"),
        (lambda net, z, e: z[e[0]].cumsum(0), "a running sum depends on the order"),
    ],
)
def test_rows_of_edges_that_depend_on_all_edges_are_refused_with_the_line(forward, message):
    class Bad(OnEdges):
        def forward(self, x, edge_index):
            return self.decode(self, self.conv(x, edge_index), edge_index)

    with pytest.raises(ModelError, match=rf"(?s)Bad\.forward.*({message})"):
        Model.from_pyg(Bad(forward).eval())


def test_pairs_carry_no_messages():
    class Messages(OnPairs):
        def forward(self, x, edge_index, edge_label_index):
            z = self.conv(x, edge_label_index)
            return self.decode(self, z[edge_label_index[0]], z[edge_label_index[1]])

    with pytest.raises(ModelError, match=r"(?s)Messages\.forward: .*pairs of nodes carry messages"):
        Model.from_pyg(Messages(lambda net, a, b: a * b).eval())

    class Normalized(OnPairs):
        def forward(self, x, edge_index, edge_label_index):
            score = super().forward(x, edge_index, edge_label_index)
            return softmax(score, edge_label_index[0], num_nodes=x.size(0))

    with pytest.raises(ModelError, match=r"(?s)Normalized\.forward: .*pairs of nodes carry messages"):
        Model.from_pyg(Normalized(lambda net, a, b: (a * b).sum(-1)).eval())


def test_pairs_and_edges_do_not_meet():
    class Mixed(OnPairs):
        def forward(self, x, edge_index, edge_label_index):
            z = self.conv(x, edge_index)
            return z[edge_index[0]] * z[edge_label_index[1]]

    with pytest.raises(ModelError, match=r"Mixed\.forward"):
        Model.from_pyg(Mixed(lambda net, a, b: a).eval())


def test_features_of_edges_alone_are_no_output():
    class Alone(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.Linear(E, 2)

        def forward(self, x, edge_index, edge_attr):
            return self.lin(edge_attr)

    with pytest.raises(ModelError, match="rows of edges that read no rows of nodes"):
        Model.from_pyg(Alone().eval(), in_channels=N)


def test_rows_of_edges_that_no_model_has_are_left_out_beside_rows_of_nodes():
    class Beside(OnEdges):
        def forward(self, x, edge_index):
            z = self.conv(x, edge_index)
            return z, (z[edge_index[0]] * z[edge_index[1]]).sum(-1).softmax(0)

    module = Beside(lambda net, a, b: a).eval()
    model = Model.from_pyg(module)
    assert (list(model.outputs), dict(model.edge_outputs)) == (["output[0]"], {})
    with pytest.raises(ModelError, match="every row of the graph is reduced to one"):
        Model.from_pyg(module, output=["output[0]", "output[1]"])
