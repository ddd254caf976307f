"""Forms of modules that practitioners brought, each as small as it gets: what a model says, or why not."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.data import Data, HeteroData
from torch_geometric.utils import add_self_loops, remove_self_loops, softmax

import livegnn as lg
from livegnn.errors import ModelError
from livegnn.graph import EdgeSchema, Schema
from livegnn.model import Model
from modules import fill

N, E, H, KINDS = 4, 3, 3, 2
"""Channels of nodes, of edges and of a result, and how many types edges have."""
LIKES, HATES = ("node", "likes", "node"), ("node", "hates", "node")


class Forward(nn.Module):
    """Two convolutions, and how they are called."""

    def __init__(self, forward: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.convs = nn.ModuleList([pyg.SAGEConv(N, H), pyg.GraphConv(N, H)])
        self.said = forward

    def forward(self, x, edge_index, edge_type):
        return self.said(self.convs, x, edge_index, edge_type)


def by_mask(convs, x, edge_index, edge_type):
    """As most write R-GCN by hand."""
    return sum(conv(x, edge_index[:, edge_type == i]) for i, conv in enumerate(convs))


def by_places(convs, x, edge_index, edge_type):
    """The same, by the places of the edges of each type."""
    each = [torch.nonzero(edge_type == i).view(-1) for i in range(KINDS)]
    return sum(conv(x, edge_index[:, places]) for conv, places in zip(convs, each, strict=True))


def by_places_of_two(convs, x, edge_index, edge_type):
    """Each end by itself, among the edges that are no loops."""
    edge_index, edge_type = remove_self_loops(edge_index, edge_type)
    rows = 0
    for i, conv in enumerate(convs):
        places = torch.nonzero(edge_type == i, as_tuple=False).view(-1)
        rows = rows + conv(x, torch.stack([edge_index[0][places], edge_index[1][places]]))
    return rows


def by_where(convs, x, edge_index, edge_type):
    (places,) = torch.where(edge_type == 1)
    return convs[0](x, edge_index) + convs[1](x, edge_index[:, places])


FORMS = [by_mask, by_places, by_places_of_two, by_where]


def stream(seed: int, kinds: bool) -> tuple[lg.Graph, Callable[[], tuple[np.ndarray, ...]], list[lg.Events]]:
    """A multigraph, its rows now, and events: loops, parallel edges of the same and of other types.

    kinds: whether the types of edges are types of the graph, instead of a column.
    """
    random = np.random.default_rng(seed)
    schema = EdgeSchema(edge_dim=0 if kinds else 1, duplicates="keep")
    names = [LIKES, HATES] if kinds else [("node", "to", "node")]
    graph = lg.Graph(Schema({"node": N}, dict.fromkeys(names, schema)))
    x = random.standard_normal((9, N)).astype(np.float32)
    edges: list[tuple[int, int, int]] = []
    batches = [lg.Events().add_nodes(np.arange(9), x)]

    def add(events: lg.Events, u: int, v: int, kind: int) -> None:
        edges.append((u, v, kind))
        if kinds:
            events.add_edges([u], [v], edge_type=names[kind])
        else:
            events.add_edges([u], [v], edge_attr=np.array([[kind]]))

    for _ in range(3):
        for _ in range(6):
            u, v = random.integers(0, 6, 2)
            add(batches[-1], int(u), int(v), int(random.integers(KINDS)))
        for kind in (0, 1, 1):
            add(batches[-1], 2, 3, kind)
        add(batches[-1], 4, 4, 1)
        batches.append(lg.Events())
    x[5] = random.standard_normal(N)
    batches[-1].set_features([5], x[5:6])

    def rows() -> tuple[np.ndarray, ...]:
        return x, np.array(edges)[:, :2].T, np.array(edges)[:, 2]

    return graph, rows, batches


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kinds", [True, False])
def test_edges_of_each_type_by_themselves_in_a_multigraph(form, kinds):
    module = fill(Forward(form), 3).eval()
    said: dict[str, Any] = (
        {"relations": [LIKES, HATES]} if kinds else {"inputs": {"edge_type": ("edge", int)}}
    )
    model = Model.from_pyg(module, **said)
    graph, rows, batches = stream(seed=5, kinds=kinds)
    engine = lg.Engine(graph, model)
    for events in batches:
        engine.apply(events)
    x, ends, types = rows()
    with torch.no_grad():
        given = torch.from_numpy(x).double(), torch.from_numpy(ends), torch.from_numpy(types)
        expected = copy.deepcopy(module).double()(*given).numpy()
    np.testing.assert_allclose(engine.predict(np.arange(9)), expected, rtol=0, atol=1e-5)


def test_places_among_some_edges_are_no_places_among_all():
    def wrong(convs, x, edge_index, edge_type):
        _, kept = remove_self_loops(edge_index, edge_type)
        return convs[0](x, edge_index[:, torch.nonzero(kept == 1).view(-1)])

    with pytest.raises(ModelError, match=r"(?s)Forward\.forward: .*gathered by numbers from a filtered"):
        Model.from_pyg(Forward(wrong).eval(), relations=[LIKES, HATES])


def test_rows_are_written_to_places_among_all_rows():
    def wrong(convs, x, edge_index, edge_type):
        _, kept = remove_self_loops(edge_index, edge_type)
        weight = torch.ones(edge_index.size(1))
        weight[torch.nonzero(kept == 1).view(-1)] = 2.0
        return convs[1](x, edge_index, weight)

    with pytest.raises(ModelError, match="rows are written to other rows than the index counts"):
        Model.from_pyg(Forward(wrong).eval(), relations=[LIKES, HATES])


# Rows that a mask selects


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.SAGEConv(N, H)

    def forward(self, x, edge_index, train_mask):
        return self.conv(x, edge_index)[train_mask]


def test_a_mask_that_selects_predictions_is_left_away_by_a_slice():
    module = Masked().eval()
    with pytest.raises(ModelError, match=r"inputs=\{'train_mask': slice\(None\)\} for all rows"):
        Model.from_pyg(module)
    with pytest.raises(ModelError, match=r"only the rows for which 'train_mask' holds.*slice\(None\)"):
        Model.from_pyg(module, inputs={"train_mask": ("node", bool)})
    model = Model.from_pyg(module, inputs={"train_mask": slice(None)})
    assert list(model.inputs) == ["x"]


# Arguments by name in modules for several types

METADATA = (
    ["author", "paper", "venue"],
    [("author", "writes", "paper"), ("paper", "cites", "paper"), ("venue", "prints", "paper")],
)
"""Of authors and venues there are only out-edges."""


class Typed(nn.Module):
    """Sources are never updated; it returns the types that it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (
            pyg.HeteroConv({kind: pyg.SAGEConv((N, N), N) for kind in METADATA[1]}) for _ in range(2)
        )

    def forward(
        self, x_dict, edge_index_dict, output_node_types, target_node_type="paper", mode="none", skip=True
    ):
        for conv in (self.first, self.second):
            x_dict = x_dict | {kind: h.relu() for kind, h in conv(x_dict, edge_index_dict).items()}
        rows = {kind: x_dict[kind] for kind in output_node_types}
        scale = {"none": 1.0, "half": 0.5}[mode] if skip else 2.0
        return {kind: scale * h if kind == target_node_type else h for kind, h in rows.items()}


def typed_rows() -> tuple[dict[str, np.ndarray], dict[tuple[str, str, str], np.ndarray]]:
    random = np.random.default_rng(2)
    x = {kind: random.standard_normal((6, N)).astype(np.float32) for kind in METADATA[0]}
    ends = {kind: np.unique(random.integers(0, 5, (2, 9)), axis=1) for kind in METADATA[1]}
    return x, ends


@pytest.mark.filterwarnings("ignore:There exist node types")
@pytest.mark.parametrize(
    "said",
    [
        {"output_node_types": ["paper"]},
        {"output_node_types": ["author", "paper"], "target_node_type": "author", "mode": ("value", "half")},
        {"output_node_types": ("value", ("paper", "venue")), "mode": ("value", "half"), "skip": True},
        {"output_node_types": ["paper"], "skip": False},
    ],
)
def test_arguments_by_name_are_node_types_or_values(said: Mapping[str, Any]):
    module = fill(Typed(), 4).eval()
    model = Model.from_pyg(module, metadata=METADATA, inputs=said, output_type="paper")
    x, ends = typed_rows()
    schema = Schema(dict.fromkeys(METADATA[0], N), {kind: EdgeSchema() for kind in METADATA[1]})
    graph, events = lg.Graph(schema), lg.Events()
    for kind, rows in x.items():
        events.add_nodes(np.arange(6), rows, node_type=kind)
    for kind, pairs in ends.items():
        events.add_edges(*pairs, edge_type=kind)
    engine = lg.Engine(graph, model)
    engine.apply(events)
    x["venue"][1] = 7  # a source changes: all of its papers follow
    engine.apply(lg.Events().set_features([1], x["venue"][1:2], node_type="venue"))
    given = {name: one[1] if isinstance(one, tuple) else one for name, one in said.items()}
    with torch.no_grad():
        rows = {kind: torch.from_numpy(one).double() for kind, one in x.items()}
        pairs = {kind: torch.from_numpy(one) for kind, one in ends.items()}
        expected = copy.deepcopy(module).double()(rows, pairs, **given)["paper"].numpy()
    np.testing.assert_allclose(engine.predict(np.arange(6)), expected, rtol=0, atol=1e-5)


@pytest.mark.filterwarnings("ignore:There exist node types")
def test_how_to_give_such_arguments_is_said():
    module = Typed().eval()
    with pytest.raises(ModelError, match=r"inputs=\{'output_node_types': \['author', 'paper', 'venue'\]\}"):
        Model.from_pyg(module, metadata=METADATA)
    said = {"output_node_types": ["paper"], "mode": "half"}
    with pytest.raises(ModelError, match=r"say inputs=\{'mode': \('value', 'half'\)\}"):
        Model.from_pyg(module, metadata=METADATA, inputs=said)


class Dropping(Typed):
    """Its second layer misses what the first did not return."""

    def forward(self, x_dict, edge_index_dict):
        return self.second(self.first(x_dict, edge_index_dict), edge_index_dict)["paper"]


@pytest.mark.filterwarnings("ignore:There exist node types")
@pytest.mark.parametrize("with_data", [False, True])
def test_types_that_a_layer_drops_are_named(with_data):
    data = HeteroData()
    x, ends = typed_rows()
    for kind, rows in x.items():
        data[kind].x = torch.from_numpy(rows)
    for kind, pairs in ends.items():
        data[kind].edge_index = torch.from_numpy(pairs)
    said: dict[str, Any] = {"data": data} if with_data else {"metadata": METADATA}
    with pytest.raises(ModelError, match=r"no rows of 'author', 'venue', where no edge ends: .*\*\*x_dict"):
        Model.from_pyg(Dropping().eval(), **said)


class Sparse(nn.Module):
    """With weights it needs a library that is not here."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.GCNConv(N, H)

    def forward(self, x, edge_index, edge_weight=None):
        if edge_weight is not None:
            raise ImportError("torch_sparse")
        return self.conv(x, edge_index)


def test_a_module_that_fails_with_weights_alone():
    with pytest.raises(ModelError, match=r"called without 'edge_weight', say inputs=\{'edge_weight': None\}"):
        Model.from_pyg(Sparse().eval())
    model = Model.from_pyg(Sparse().eval(), inputs={"edge_weight": None})
    assert model.width(model.output) == H


# Rows of both ends at once, and rows of graphs


class Ends(nn.Module):
    """As IBM's Multi-GNN reads both ends of payments."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.lin = pyg.SAGEConv(N, H), nn.Linear(2 * H, 2)

    def forward(self, x, edge_index):
        return self.lin(self.conv(x, edge_index).relu()[edge_index.T].reshape(-1, 2 * H).relu())


def test_rows_of_both_ends_at_once():
    module = fill(Ends(), 6).eval()
    graph = lg.Graph.from_edges([0, 1, 2, 2], [1, 2, 0, 2], x=np.eye(3, N))
    engine = lg.Engine(graph, Model.from_pyg(module))
    engine.apply(lg.Events().add_edges([0], [2]))
    ends = np.array([[0, 1, 2, 2, 0], [1, 2, 0, 2, 2]])
    with torch.no_grad():
        expected = copy.deepcopy(module).double()(torch.eye(3, N).double(), torch.from_numpy(ends)).numpy()
    np.testing.assert_allclose(engine.predict_edges(*ends), expected, rtol=0, atol=1e-6)


class Layer(nn.Module):
    """As GraphGym's layers, it puts its rows into the data that it takes, and returns these."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.lin = pyg.GINEConv(nn.Linear(N, N), edge_dim=E), nn.Linear(N + E, E)

    def forward(self, batch):
        batch.x = batch.x + self.conv(batch.x, batch.edge_index, batch.edge_attr).relu()
        ends = batch.x[batch.edge_index[0]] * batch.x[batch.edge_index[1]]
        batch.edge_attr = self.lin(torch.cat([ends, batch.edge_attr], dim=-1))
        return batch


def test_data_that_a_module_returns_are_the_columns_that_it_changed():
    module = fill(Layer(), 7).eval()
    model = Model.from_pyg(module, in_channels=N, edge_channels=E)
    assert (list(model.outputs), list(model.edge_outputs)) == (["x"], ["edge_attr"])
    random = np.random.default_rng(8)
    x, attr = (random.standard_normal(shape).astype(np.float32) for shape in ((5, N), (6, E)))
    ends = np.array([[0, 1, 2, 2, 3, 0], [1, 2, 0, 2, 1, 3]])
    engine = lg.Engine(lg.Graph.from_edges(*ends[:, :5], x=x, edge_attr=attr[:5]), model)
    engine.apply(lg.Events().add_edges(*ends[:, 5:], edge_attr=attr[5:]))
    rows = {"x": torch.from_numpy(x).double(), "edge_attr": torch.from_numpy(attr).double()}
    with torch.no_grad():
        said = copy.deepcopy(module).double()(Data(**rows, edge_index=torch.from_numpy(ends)))
    np.testing.assert_allclose(engine.predict(np.arange(5)), said.x.numpy(), rtol=0, atol=1e-5)
    np.testing.assert_allclose(engine.predict_edges(*ends), said.edge_attr.numpy(), rtol=0, atol=1e-5)


class Grouped(pyg.MessagePassing):
    """Its softmax is by as many groups as there are edges, and of these are more than nodes."""

    def __init__(self) -> None:
        super().__init__(aggr="add")
        self.lin, self.score = nn.Linear(N, H), nn.Linear(H, 1)

    def forward(self, x, edge_index):
        edge_index, _ = add_self_loops(edge_index, num_nodes=len(x))
        return self.propagate(edge_index, h=self.lin(x))

    def message(self, h_i, h_j, edge_index):
        return softmax(self.score(h_i - h_j), edge_index[1], num_nodes=len(h_i)) * h_j


def test_a_softmax_by_more_groups_than_nodes():
    module = fill(Grouped(), 9).eval()
    graph = lg.Graph.from_edges([0, 1, 2, 2], [1, 2, 0, 2], x=np.eye(5, N))
    engine = lg.Engine(graph, Model.from_pyg(module))
    engine.apply(lg.Events().add_edges([0, 4], [2, 3]))
    ends = torch.tensor([[0, 1, 2, 2, 0, 4], [1, 2, 0, 2, 2, 3]])
    with torch.no_grad():
        expected = copy.deepcopy(module).double()(torch.eye(5, N).double(), ends).numpy()
    np.testing.assert_allclose(engine.predict(np.arange(5)), expected, rtol=0, atol=1e-6)


def test_data_of_tensors_is_read():
    def one_hot(h, edge_index):
        number = (h[:, :1] > 0).long()
        return h * torch.FloatTensor(h.size(0), H).zero_().to(h).scatter_(1, number.data, 1) + h.data.abs()

    module = fill(Called(one_hot), 10).eval()
    engine = lg.Engine(lg.Graph.from_edges([0, 1], [1, 2], x=np.eye(3, N)), Model.from_pyg(module))
    engine.apply(lg.Events().add_edges([2], [0]))
    with torch.no_grad():
        expected = module.double()(torch.eye(3, N).double(), torch.tensor([[0, 1, 2], [1, 2, 0]])).numpy()
    np.testing.assert_allclose(engine.predict(np.arange(3)), expected, rtol=0, atol=1e-6)


class Called(nn.Module):
    """A convolution, and what is done after it."""

    def __init__(self, after: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.conv, self.after = pyg.SAGEConv(N, H), after

    def forward(self, x, edge_index):
        return self.after(self.conv(x, edge_index), edge_index)


@pytest.mark.parametrize(
    ("after", "reason"),
    [
        (lambda h, e: h @ (h.T @ h), "every row of the graph is reduced to one"),
        (
            lambda h, e: h + pyg.SumAggregation()(h[e[0]], e[1]),
            "fails on a graph of 12 nodes, the last of which have no edges",
        ),
    ],
)
def test_what_else_is_refused_for_its_own_reason(after, reason):
    with pytest.raises(ModelError, match=rf"(?s)Called\.forward.*{reason}"):
        Model.from_pyg(Called(after).eval(), in_channels=N)


def test_columns_may_be_called_as_the_types_of_data_are():
    class Columns(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = pyg.GraphConv(N, H)

        def forward(self, x, edge_index, edge_types, node_types):
            return self.conv(x * node_types[:, None], edge_index, edge_types)

    data = Data(x=torch.rand(4, N), edge_index=torch.tensor([[0, 1, 2, 2, 1], [1, 2, 3, 2, 0]]))
    data.edge_types, data.node_types = torch.rand(5), torch.rand(4)
    assert Model.from_pyg(Columns().eval(), data).edge_inputs["edge_types"].width == 1


@pytest.mark.parametrize("pool", [pyg.global_add_pool, pyg.global_mean_pool, pyg.global_max_pool])
def test_rows_of_graphs_are_refused_as_such(pool):
    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.lin = pyg.SAGEConv(N, H), nn.Linear(H, 1)

        def forward(self, x, edge_index, batch):
            return self.lin(pool(self.conv(x, edge_index), batch))

    with pytest.raises(ModelError, match=r"(?s)Pooled\.forward.*graphs by their batch.*before they are"):
        Model.from_pyg(Pooled().eval(), inputs={"batch": ("node", int)})
    with pytest.raises(ModelError, match="no row for each node or edge: return the rows before"):
        Model.from_pyg(Pooled().eval(), inputs={"batch": None})
