"""Rows for groups of nodes: sums, means, maxima and softmaxes over groups, or over all nodes."""

from __future__ import annotations

import copy

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.data import Data
from torch_geometric.nn import aggr

import livegnn as lg
from gate import in_gate
from grouped_modules import GROUPS, OF_ALL, POOLINGS, WHOLE, WIDTH, Grouped
from livegnn.errors import InputError, ModelError, UnknownNodeError
from livegnn.model import Model, explain_import
from livegnn.oracle.exactness import judge
from mirror import frozen
from modules import fill

IN = ("node", "in", "group")
TO = ("node", "to", "node")
SCHEMA = lg.Schema({"node": WIDTH, "group": 0}, {TO: lg.EdgeSchema(), IN: lg.EdgeSchema()})
NODES, NUMBER = np.arange(100, 140), 7
EMPTY = 2
"""A group without members."""


def drawn(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, edges, and the groups of the nodes, by places."""
    random = np.random.default_rng(seed)
    groups = random.choice([0, 1, 3, 4, 5, 6], len(NODES))
    groups[-1] = NUMBER - 1
    x = random.standard_normal((len(NODES), WIDTH)).astype(np.float32)
    return x, random.integers(0, len(NODES), (2, 90)), groups


def live(groups: np.ndarray, x: np.ndarray, edges: np.ndarray) -> lg.Graph:
    graph = lg.Graph(SCHEMA)
    events = lg.Events().add_nodes(NODES, x, node_type="node").add_nodes(np.arange(NUMBER), node_type="group")
    events.add_edges(NODES[edges[0]], NODES[edges[1]], edge_type=TO).add_edges(NODES, groups, edge_type=IN)
    graph.apply(events)
    return graph


def right(module: nn.Module, *arguments: np.ndarray) -> np.ndarray:
    """What a module says in float64, as rows."""
    given = [
        torch.from_numpy(np.asarray(one, np.float64 if one.dtype.kind == "f" else None)) for one in arguments
    ]
    with torch.no_grad():
        rows = copy.deepcopy(module).double()(*given)
    return rows.reshape(-1, rows.shape[-1]).numpy()


@pytest.mark.parametrize("name", in_gate(POOLINGS, 4))
def test_a_row_for_each_group(name):
    module = fill(POOLINGS[name](), 1)
    model = Model.from_pyg(module, groups=GROUPS)
    x, edges, groups = drawn()
    edges = np.unique(edges, axis=1)
    engine = lg.Engine(live(groups, x, edges), model)
    assert model.node_type(model.output) == "group"
    assert judge(engine.predict(np.arange(NUMBER)), right(module, x, edges, groups)).ok
    update = engine.apply(
        lg.Events().remove_edges(100, groups[0], edge_type=IN).add_edges(100, EMPTY, edge_type=IN)
    )
    before, groups[0] = groups[0], EMPTY
    assert judge(engine.predict(np.arange(NUMBER)), right(module, x, edges, groups)).ok
    assert before in update.changed or name in ("min", "max", "max aggregation")
    assert set(update.changed.tolist()) <= {before, EMPTY}


@pytest.mark.parametrize("name", in_gate(OF_ALL, 2))
def test_a_row_for_all_nodes(name):
    module = fill(OF_ALL[name](), 2)
    model = Model.from_pyg(module, groups=WHOLE)
    x, edges, _ = drawn()
    edges = np.unique(edges, axis=1)
    engine = lg.Engine(live(np.zeros(len(NODES), np.int64), x, edges), model)
    assert judge(engine.predict([0]), right(module, x, edges)).ok
    x[7] = 300
    update = engine.apply(lg.Events().set_features(NODES[7], x[7], node_type="node"))
    assert judge(engine.predict([0]), right(module, x, edges)).ok
    assert set(update.changed.tolist()) <= {0}
    assert np.isfinite(engine.predict([1])).all()  # a group without nodes


def test_pyg_data_that_has_the_groups():
    class OfData(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = pyg.SAGEConv(WIDTH, 4)

        def forward(self, data):
            return pyg.global_mean_pool(self.conv(data.x, data.edge_index), data.batch)

    module = fill(OfData(), 0)
    x, edges, groups = drawn()
    edges = np.unique(edges, axis=1)
    for data in (None, Data(x=torch.zeros(3, WIDTH), edge_index=torch.zeros(2, 1).long())):
        model = Model.from_pyg(module, data, groups={"batch": "group"})
        engine = lg.Engine(live(groups, x, edges), model)
        given = Data(torch.from_numpy(x), torch.from_numpy(edges), batch=torch.from_numpy(groups))
        with torch.no_grad():
            expected = module(given).numpy()
        assert judge(engine.predict(np.arange(NUMBER)), expected).ok


class Shops(nn.Module):
    """Payments of users: a row for each shop, of its payments and of its own features."""

    def __init__(self):
        super().__init__()
        self.conv = pyg.SAGEConv((2, WIDTH), 4)
        self.head = nn.Linear(4 + 2, 2)

    def forward(self, x_dict, edge_index_dict, shop, shop_features):
        h = self.conv((x_dict["user"], x_dict["payment"]), edge_index_dict["user", "makes", "payment"])
        rows = pyg.global_add_pool(h.relu(), shop, shop_features.size(0))
        return self.head(torch.cat([rows, shop_features], dim=-1))


def test_groups_with_features_among_several_types():
    makes, at = ("user", "makes", "payment"), ("payment", "at", "shop")
    module = fill(Shops(), 3)
    model = Model.from_pyg(
        module,
        metadata=(["user", "payment"], [makes]),
        in_channels={"user": 2, "payment": WIDTH},
        inputs={"shop_features": ("shop", 2)},
        groups={"shop": at},
    )
    schema = lg.Schema(
        {"user": 2, "payment": WIDTH, "shop": 2}, {makes: lg.EdgeSchema(), at: lg.EdgeSchema()}
    )
    random, graph = np.random.default_rng(0), lg.Graph(schema)
    users, payments, shops = (
        random.standard_normal((n, w)).astype("f4") for n, w in ((5, 2), (20, WIDTH), (4, 2))
    )
    buyer, shop = random.integers(0, 5, 20), random.integers(0, 4, 20)
    events = lg.Events()
    for name, rows in (("user", users), ("payment", payments), ("shop", shops)):
        events.add_nodes(np.arange(len(rows)), rows, node_type=name)
    graph.apply(
        events.add_edges(buyer, np.arange(20), edge_type=makes).add_edges(np.arange(20), shop, edge_type=at)
    )
    x_dict = {"user": torch.from_numpy(users), "payment": torch.from_numpy(payments)}
    edges = {makes: torch.from_numpy(np.stack([buyer, np.arange(20)]))}
    with torch.no_grad():
        expected = module(x_dict, edges, torch.from_numpy(shop), torch.from_numpy(shops)).numpy()
    assert judge(lg.Engine(graph, model).predict(np.arange(4)), expected).ok


def test_a_node_without_a_group_counts_nowhere_and_one_in_two_counts_in_both():
    module = fill(POOLINGS["add"](), 1)
    engine = lg.Engine(live(*(drawn()[i] for i in (2, 0, 1))), Model.from_pyg(module, groups=GROUPS))
    x, edges, groups = drawn()
    edges = np.unique(edges, axis=1)
    engine.apply(lg.Events().remove_edges(100, groups[0], edge_type=IN).add_edges(101, EMPTY, edge_type=IN))
    wide = copy.deepcopy(module).double()
    with torch.no_grad():
        h = wide.encode(torch.from_numpy(x).double(), torch.from_numpy(edges))
        members, numbers = np.append(np.arange(1, len(NODES)), 1), np.append(groups[1:], EMPTY)
        expected = wide.pool(h[members], torch.from_numpy(numbers)).numpy()
    assert judge(engine.predict(np.arange(NUMBER)), expected).ok


def test_a_group_gives_its_row_back_to_its_members():
    class Against(nn.Module):
        """Each payment beside the mean of its group."""

        def __init__(self):
            super().__init__()
            self.conv = pyg.SAGEConv(WIDTH, 4)
            self.second = pyg.SAGEConv(4, 2)

        def forward(self, x, edge_index, batch):
            h = self.conv(x, edge_index)
            return self.second(h - pyg.global_mean_pool(h, batch)[batch], edge_index)

    module = fill(Against(), 0)
    model = Model.from_pyg(module, groups={"batch": "group"})
    assert model.node_type(model.output) == "node"
    x, edges, groups = drawn()
    edges = np.unique(edges, axis=1)
    engine = lg.Engine(live(groups, x, edges), model)
    assert judge(engine.predict(NODES), right(module, x, edges, groups)).ok


def test_the_upkeep_of_groups_is_explained():
    explained = explain_import(POOLINGS["max"](), groups=GROUPS)
    assert "batch (node-in-group)" in explained.inputs
    assert [one.what for one in explained.propagations][-1] == "max source"


def test_a_column_of_a_table_gives_the_groups():
    payments = pa.table({"id": [1, 2, 3, 4], "shop": [10, 11, 10, None], "amount": [1.0, 2.0, 4.0, 8.0]})
    at = ("payment", "at", "shop")
    schema = lg.Schema({"payment": 1, "shop": 0}, {at: lg.EdgeSchema()}, auto_add=["shop"])
    mapping = lg.TableMapping(
        nodes=[lg.NodeRows("id", "payment", x=["amount"])],
        edges=[lg.EdgeRows("id", "shop", at, nulls={"shop": "skip"})],
    )
    graph = lg.Graph.from_tables(schema, {"payments": payments}, {"payments": mapping})

    class Turnover(nn.Module):
        def forward(self, x, shop):
            return pyg.global_add_pool(x, shop)

    model = Model.from_pyg(
        Turnover(),
        node_type="payment",
        edge_type=("payment", "to", "payment"),
        in_channels=1,
        groups={"shop": at},
    )
    engine = lg.Engine(graph, model)
    assert engine.predict([10, 11]).tolist() == [[5.0], [2.0]]


def test_the_types_of_a_graph_that_has_the_groups():
    """Its edges to groups carry no messages, so the module is not called with them."""
    module = POOLINGS["mean"]()
    by_schema = Model.from_pyg(module, lg.Graph(SCHEMA), groups=GROUPS)
    assert by_schema.digest == Model.from_pyg(module, groups={"batch": "group"}).digest


# Bad input


class Inside(Grouped):
    """A row for all nodes that goes back into the rows of nodes."""

    def forward(self, x, edge_index):
        return self.pool_rows(self.layers, self.first(x, edge_index), edge_index)


def virtual_node(layers, h, edge_index):
    every = pyg.global_add_pool(h, torch.zeros(h.size(0), dtype=torch.long), 1)
    return h + every.expand_as(h)


COUPLING = {
    "a mean that is subtracted": lambda: Inside(lambda layers, h, e: h - h.mean(0)),
    "GraphNorm": lambda: Inside(lambda layers, h, e: layers["norm"](h), norm=pyg.GraphNorm(4)),
    "PairNorm": lambda: Inside(lambda layers, h, e: layers["norm"](h), norm=pyg.PairNorm()),
    "BatchNorm": lambda: Inside(
        lambda layers, h, e: layers["norm"](h), norm=pyg.BatchNorm(4, track_running_stats=False)
    ),
    "a virtual node": lambda: Inside(virtual_node),
}


@pytest.mark.parametrize("name", in_gate(COUPLING, 3))
@pytest.mark.parametrize("groups", [None, WHOLE])
def test_a_row_for_all_nodes_inside_a_model_is_refused(name, groups):
    with pytest.raises(
        ModelError, match="every row of the graph is reduced to one, so that any change of one"
    ):
        Model.from_pyg(COUPLING[name](), groups=groups)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (
            {"batch": "group", "merchant": "group"},
            r"arguments of Grouped\.forward, got 'merchant'",
        ),
        (
            {"batch": ("shop", "in", "group")},
            r"must join nodes that the module is called with.*one of 'node'",
        ),
        ({"batch": ("node", "in", "node")}, "another node type than their members"),
        ({"batch": TO, None: "group"}, "another node type than their members"),
        ({"batch": 3}, "must be the node type of the groups, or the type of the edges"),
        ({3: "group"}, "names of arguments as keys, or None"),
        (["batch"], "groups must be a dict from arguments"),
        ({None: []}, "must be the node type of the groups"),
        ({"bach": "group"}, r"takes 'batch'.*groups=\{'batch': 'graph'\} \(got groups of 'bach'\)"),
        ({"batch": "group", None: "all"}, r"groups\[None\] must be.*leave None out"),
        ({}, r"takes 'batch', whose meaning is unknown.*groups=\{'batch': 'graph'\}"),
        (None, r"takes 'batch', whose meaning is unknown.*groups=\{'batch': 'graph'\}"),
    ],
)
def test_groups_that_are_not_valid(groups, message):
    with pytest.raises(ModelError, match=message):
        Model.from_pyg(POOLINGS["add"](), groups=groups)


def test_groups_that_are_not_declared():
    with pytest.raises(ModelError, match=r"pooled to a row for each number.*groups=\{'batch': 'graph'\}"):
        Model.from_pyg(POOLINGS["add"](), inputs={"batch": ("node", int)})
    with pytest.raises(ModelError, match=r"no row for each node.*groups=\{None: 'graph'\}"):
        Model.from_pyg(OF_ALL["mean"]())


def test_a_median_of_a_group_is_refused():
    with pytest.raises(ModelError, match="MedianAggregation, which sorts"):
        Model.from_pyg(
            Grouped(lambda layers, h, b, s: layers["aggr"](h, b), aggr=aggr.MedianAggregation()),
            groups=GROUPS,
        )


def test_a_graph_without_the_groups_is_refused_and_stays_as_it_is():
    model = Model.from_pyg(POOLINGS["add"](), groups=GROUPS)
    graph = lg.Graph(lg.Schema({"node": WIDTH}, {TO: lg.EdgeSchema()}))
    graph.apply(lg.Events().add_nodes([1], np.ones((1, WIDTH)), node_type="node"))
    before = frozen(graph.state())
    with pytest.raises(ModelError, match="group"):
        lg.Engine(graph, model)
    assert frozen(graph.state()) == before


def test_a_group_that_is_missing_changes_nothing():
    model = Model.from_pyg(POOLINGS["add"](), groups=GROUPS)
    x, edges, groups = drawn()
    engine = lg.Engine(live(groups, x, edges), model)
    states = frozen(engine.graph.state()), frozen(engine.state())
    events = lg.Events().add_nodes([7], np.ones((1, WIDTH)), node_type="node")
    with pytest.raises(UnknownNodeError, match="'group', got 99"):
        engine.apply(events.add_edges(7, 99, edge_type=IN))
    with pytest.raises(InputError, match="99"):
        engine.predict([99])
    assert (frozen(engine.graph.state()), frozen(engine.state())) == states


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"id": [1]}, "expected one column 'shop', got 'id'"),
        ({"id": [1], "shop": pa.array([None], pa.int64())}, "row 0, column 'shop': expected a value"),
        ({"id": [1], "shop": [5]}, "a node of type 'group', got 5, which is not in the graph"),
    ],
)
def test_a_table_without_the_groups_is_refused(columns, message):
    mapping = lg.TableMapping(nodes=[lg.NodeRows("id", "node")], edges=[lg.EdgeRows("id", "shop", IN)])
    with pytest.raises(InputError, match=message):
        lg.Graph.from_tables(SCHEMA, {"payments": pa.table(columns)}, {"payments": mapping})
