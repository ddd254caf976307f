"""Modules over several types of nodes and edges, and relational ones: what is imported, what is refused."""

from __future__ import annotations

import copy
import os

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.utils import add_self_loops
from torch_geometric.utils import softmax as pyg_softmax

from gate import EXPLORING
from livegnn import Engine, Events, Graph
from livegnn.errors import ModelError
from livegnn.graph import EdgeSchema, Schema, Snapshot
from livegnn.model import EdgeInput, Input, Model
from livegnn.oracle import reference
from modules import fill

WIDTHS = {"user": 3, "item": 2}
KNOWS = ("user", "knows", "user")
BUYS = ("user", "buys", "item")
BOUGHT = ("item", "bought by", "user")
SEES = ("user", "sees", "item")
EDGE_WIDTHS = {KNOWS: 2, BUYS: 4, BOUGHT: 3, SEES: 4}
EDGE_TYPES = [KNOWS, BUYS, BOUGHT, SEES]
METADATA = (list(WIDTHS), EDGE_TYPES)


def make_snapshot(seed: int, users: int = 12, items: int = 5) -> Snapshot:
    """A random graph: some isolated nodes, and no edges of one type if the seed is odd."""
    random = np.random.default_rng(seed)
    counts = {"user": users, "item": items}
    edge_index = {}
    for edge_type in EDGE_TYPES:
        ends = [random.integers(0, max(1, counts[edge_type[end]] * 3 // 4), 15) for end in (0, 2)]
        edges = np.unique(np.array(ends), axis=1)
        edge_index[edge_type] = edges[:, :0] if seed % 2 and edge_type == BUYS else edges
    return Snapshot(
        ids={name: np.arange(count) for name, count in counts.items()},
        x={n: random.standard_normal((counts[n], w), dtype=np.float32) for n, w in WIDTHS.items()},
        edge_index=edge_index,
        weight={e: random.uniform(0, 2, edges.shape[1]).astype("f4") for e, edges in edge_index.items()},
        edge_attr={
            e: random.standard_normal((edges.shape[1], EDGE_WIDTHS[e]), dtype=np.float32)
            for e, edges in edge_index.items()
        },
    )


def check(
    module: nn.Module, weights: list | None = None, features: list | None = None, **arguments: object
) -> Model:
    """Imports a module and compares the oracle on the model with the module in float64.

    weights, features: the edge types whose weights, and features, it is called with.
    """
    seed = int(os.environ["LIVEGNN_TEST_SEED"]) % 1000
    fill(module, seed)
    model = Model.from_pyg(module, metadata=METADATA, edge_weight=weights, **arguments)
    double = copy.deepcopy(module).double().eval()
    for graph in (make_snapshot(seed), make_snapshot(seed + 1), make_snapshot(seed, users=2, items=1)):
        given = [{name: torch.from_numpy(x).double() for name, x in graph.x.items()}]
        given.append({name: torch.from_numpy(edges) for name, edges in graph.edge_index.items()})
        if weights:
            given.append({name: torch.from_numpy(graph.weight[name]).double() for name in weights})
        attr = {e: torch.from_numpy(graph.edge_attr[e]).double() for e in features or ()}
        hetero_conv = isinstance(module, pyg.HeteroConv)
        named = {"edge_attr_dict" if hetero_conv else "edge_attr": attr} if attr else {}
        with torch.no_grad():
            expected = double(*given, **named)
        if isinstance(expected, dict):
            expected = expected[model.node_type(model.output)]
        got = reference.compute(model, graph)[model.output]
        np.testing.assert_allclose(got, expected.numpy(), rtol=0, atol=1e-5 * max(1, np.abs(got).max()))
    return model


def sages(edge_types: list = EDGE_TYPES) -> dict:
    """A SAGEConv for each edge type, of the features."""
    return {e: pyg.SAGEConv((WIDTHS[e[0]], WIDTHS[e[2]]), 4) for e in edge_types}


def few() -> pyg.HeteroConv:
    """Rows of both node types, from an edge type each."""
    return pyg.HeteroConv(sages([KNOWS, BUYS]))


class Net(nn.Module):
    """One HeteroConv, and what is made of its output."""

    def __init__(self, conv: nn.Module, after=lambda net, h, e: h, **layers: nn.Module) -> None:
        super().__init__()
        self.conv, self.after, self.layers = conv, after, nn.ModuleDict(layers)

    def forward(self, x_dict, edge_index_dict):
        return self.after(self, self.conv(x_dict, edge_index_dict), edge_index_dict)


class Sage(nn.Module):
    def __init__(self, dropout: nn.Module | None = None) -> None:
        super().__init__()
        self.first, self.second = pyg.SAGEConv((-1, -1), 5), pyg.SAGEConv((-1, -1), 4)
        self.norm, self.dropout = pyg.BatchNorm(5), dropout or nn.Dropout()

    def forward(self, x, edge_index):
        h = self.dropout(self.norm(self.first(x, edge_index)).relu())
        return F.normalize(self.second(h, edge_index), dim=-1)


class Once(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.SAGEConv((-1, -1), 4)

    def forward(self, x, edge_index):
        return self.conv(x, edge_index)


def to_hetero(module: nn.Module, aggr: str = "sum") -> nn.Module:
    """Made for the types of these tests, and run once, so that its layers know their widths."""
    module = pyg.to_hetero(module, METADATA, aggr=aggr)
    graph = make_snapshot(0)
    x_dict = {name: torch.from_numpy(x) for name, x in graph.x.items()}
    module(x_dict, {name: torch.from_numpy(edges) for name, edges in graph.edge_index.items()})
    return module


# -- what is imported


@pytest.mark.parametrize(
    ("output", "aggr"),
    [
        (output, aggr)
        for i, output in enumerate(WIDTHS)
        for j, aggr in enumerate(["sum", "mean", "min", "max", "cat"])
        if EXPLORING or (i + j) % 2 == 0
    ],
)
def test_hetero_conv_groups_edge_types(output, aggr):
    model = check(pyg.HeteroConv(sages(), aggr=aggr), output_type=output)
    assert model.node_type(model.output) == output
    assert model.width(model.output) == (8 if aggr == "cat" else 4)
    assert model.inputs == {"x:user": Input("user", 3), "x:item": Input("item", 2)}
    assert set(model.edge_types) == {e for e in EDGE_TYPES if e[2] == output}


@pytest.mark.parametrize("aggr", ["mean", "min", "max", "mul"])
def test_to_hetero(aggr):
    model = check(to_hetero(Sage() if EXPLORING else Once(), aggr), output_type="item")
    assert set(model.edge_types) == (set(EDGE_TYPES) if EXPLORING else {BUYS, SEES})


def test_layers_are_those_of_the_predicted_nodes(tmp_path):
    model = check(to_hetero(Sage()), output_type="item")
    assert set(model.edge_types) == set(EDGE_TYPES)
    model.save(tmp_path / "model.lgnn")
    assert Model.load(tmp_path / "model.lgnn").digest == model.digest
    assert [model.node_type(layer) for layer in model.layers] == ["item"] * 3
    assert [model.width(layer) for layer in model.layers] == [2, 5, 4]


def test_loops_over_dicts_shared_layers_and_layers_for_each_type():
    class Everything(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encode = pyg.HeteroDictLinear(WIDTHS, 6)
            shared = pyg.SAGEConv(6, 6, root_weight=False)
            convs = {KNOWS: pyg.GCNConv(6, 6), BUYS: shared, SEES: shared, BOUGHT: pyg.GraphConv(6, 6)}
            self.convs = nn.ModuleList([pyg.HeteroConv(convs), pyg.HeteroConv(dict(convs), aggr="mean")])
            self.norms = nn.ModuleDict({name: nn.LayerNorm(6) for name in WIDTHS})
            gin = {e: pyg.GINConv(nn.Sequential(nn.Linear(6, 6), nn.ReLU()), eps=0.2) for e in EDGE_TYPES}
            self.last = pyg.HeteroConv(gin, aggr="max")
            self.head = pyg.MLP([12, 8, 3], norm=None)

        def forward(self, x_dict, edge_index_dict):
            first = x_dict = self.encode(x_dict)
            for conv in self.convs:
                new = conv(x_dict, edge_index_dict)
                x_dict = {key: self.norms[key](x).relu_() + x_dict[key] for key, x in new.items()}
            x_dict |= {"item": x_dict["item"] * 2}
            x = self.last(x_dict, edge_index_dict)["user"]
            return self.head(torch.cat([x, first["user"]], dim=-1))

    model = check(Everything())
    assert model.node_type(model.output) == "user"


def test_a_part_that_is_made_by_to_hetero():
    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gnn = to_hetero(Once())
            self.head = nn.Linear(4, 2)

        def forward(self, x_dict, edge_index_dict):
            return {name: self.head(x) for name, x in self.gnn(x_dict, edge_index_dict).items()}

    model = check(Whole(), output_type="user")
    assert model.width(model.output) == 2


def test_sequential():
    conv, second = pyg.HeteroConv(sages()), {e: pyg.SAGEConv((4, 4), 4) for e in EDGE_TYPES}
    layers = [
        (conv, "x_dict, edge_index_dict -> x_dict"),
        (lambda x_dict: {name: x.relu() for name, x in x_dict.items()}, "x_dict -> x_dict"),
        (pyg.HeteroConv(second), "x_dict, edge_index_dict -> x_dict"),
    ]
    check(pyg.Sequential("x_dict, edge_index_dict", layers), output_type="item")


def test_only_what_the_prediction_depends_on_is_in_the_model():
    convs = {KNOWS: pyg.GraphConv(3, 4), BUYS: pyg.GraphConv((3, 2), 4)}
    model = check(Net(pyg.HeteroConv(convs)), output_type="user")
    assert (dict(model.inputs), model.edge_types) == ({"x:user": Input("user", 3)}, (KNOWS,))


@pytest.mark.parametrize("weighted", [[KNOWS, BUYS], EDGE_TYPES])
def test_weights_of_some_edge_types(weighted):
    class Weighted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            convs = {e: pyg.GraphConv((WIDTHS[e[0]], WIDTHS[e[2]]), 4) for e in EDGE_TYPES}
            self.conv = pyg.HeteroConv({**convs, KNOWS: pyg.GCNConv(3, 4)})

        def forward(self, x_dict, edge_index_dict, edge_weight_dict):
            return self.conv(x_dict, edge_index_dict, edge_weight_dict=edge_weight_dict)["user"]

    model = check(Weighted(), weighted)
    factors = {s.attrs["edge_type"]: s.attrs["message_local"] for s in model.steps if s.op == "propagate"}
    assert {e for e, some in factors.items() if "weight" in some} == {KNOWS, BOUGHT} & set(weighted)


def test_hetero_conv_alone_is_called_with_weights_if_asked():
    convs = {e: pyg.GraphConv((WIDTHS[e[0]], WIDTHS[e[2]]), 4) for e in EDGE_TYPES}
    for edge_weight in (None, False, True, [BUYS]):
        model = Model.from_pyg(
            pyg.HeteroConv(convs), metadata=METADATA, output_type="item", edge_weight=edge_weight
        )
        steps = {s.attrs["edge_type"]: s.attrs["message_local"] for s in model.steps if s.op == "propagate"}
        assert steps[BUYS] == (("weight",) if edge_weight else ())


def test_the_widths_are_asked_for_where_nothing_tells():
    class Narrow(nn.Module):
        def forward(self, x_dict, edge_index_dict):
            return {name: x.relu() for name, x in x_dict.items()}

    with pytest.raises(ModelError, match=r"width of x of .*'item': give in_channels"):
        Model.from_pyg(Narrow(), metadata=METADATA, output_type="item")
    model = Model.from_pyg(Narrow(), metadata=METADATA, output_type="item", in_channels={"item": 7})
    assert model.inputs == {"x:item": Input("item", 7)}
    with pytest.raises(ModelError, match=r"in_channels must name 'user', 'item'; got 'shop'"):
        Model.from_pyg(Narrow(), metadata=METADATA, output_type="item", in_channels={"shop": 7})


def test_types_may_be_read_from_json():
    listed = [list(WIDTHS), [list(edge_type) for edge_type in EDGE_TYPES]]
    model = Model.from_pyg(pyg.HeteroConv(sages()), metadata=listed, output_type="item")
    assert set(model.edge_types) == {BUYS, SEES}


def test_edge_types_whose_names_join_alike_are_told_apart():
    """Joined with dashes, both would be a-b-c-a."""
    first, second = ("a-b", "c", "a"), ("a", "b-c", "a")
    convs = {
        first: pyg.SAGEConv((2, 2), 3),
        second: pyg.SAGEConv(2, 3),
        ("a", "to", "a-b"): pyg.SAGEConv(2, 3),
    }
    types = ["a", "a-b"]
    model = Model.from_pyg(pyg.HeteroConv(convs), metadata=(types, list(convs)), output_type="a")
    graph = Graph(Schema(dict.fromkeys(types, 2), {e: EdgeSchema() for e in convs}))
    random = np.random.default_rng(0)
    events = Events()
    for name in types:
        events.add_nodes(np.arange(6), random.standard_normal((6, 2)), node_type=name)
    events.add_edges([0, 1, 2], [0, 0, 0], edge_type=first).add_edges([3, 4], [0, 1], edge_type=second)
    graph.apply(events)
    engine = Engine(graph, model, threads=1)
    assert engine.verify().ok
    engine.apply(Events().add_edges([5, 5], [0, 2], edge_type=second))
    assert engine.verify().ok


# -- relational convolutions

RELATIONS = [("n", "likes", "n"), ("n", "hates", "n"), ("n", "knows", "n")]


class TwoLayers(nn.Module):
    def __init__(self, first: nn.Module, second: nn.Module, pair: bool = False) -> None:
        super().__init__()
        self.first, self.second, self.pair = first, second, pair

    def forward(self, x, edge_index, edge_type):
        h = self.first(x, edge_index, edge_type).relu()
        return self.second((h, h) if self.pair else h, edge_index, edge_type)


RGCNS = [
    *((pyg.RGCNConv, a) for a in ("mean", "sum", "max")),
    *((pyg.FastRGCNConv, a) for a in ("mean", "add")),
]
RGCN_SETTINGS = [
    {},
    {"num_bases": 2},
    {"num_blocks": 2},
    {"root_weight": False},
    {"bias": False, "root_weight": False},
]


@pytest.mark.parametrize(
    ("kind", "aggr", "settings"),
    [
        (kind, aggr, settings)
        for i, (kind, aggr) in enumerate(RGCNS)
        for j, settings in enumerate(RGCN_SETTINGS)
        if EXPLORING or (2 * i + j) % 5 == 0  # one of each row and column
    ],
)
def test_rgcn_conv(kind, aggr, settings):
    module = TwoLayers(kind(4, 6, 3, aggr=aggr, **settings), kind(6, 4, 3, aggr=aggr, **settings), pair=True)
    seed = int(os.environ["LIVEGNN_TEST_SEED"]) % 1000
    model = Model.from_pyg(fill(module, seed), relations=RELATIONS, node_type="n")
    assert (model.edge_types, len(model.layers)) == (tuple(RELATIONS), 3)

    random = np.random.default_rng(seed)
    x = random.standard_normal((9, 4)).astype(np.float32)
    pairs = [np.unique(random.integers(0, 7, (2, 12)), axis=1), np.zeros((2, 0), np.int64)]
    edges = dict(zip(RELATIONS, [*pairs, pairs[0][:, :4]], strict=True))  # a pair may have several relations
    weight = {e: np.ones(index.shape[1], np.float32) for e, index in edges.items()}
    graph = Snapshot({"n": np.arange(9)}, {"n": x}, edges, weight)
    numbers = torch.arange(3).repeat_interleave(torch.tensor([e.shape[1] for e in edges.values()]))
    edge_index = torch.from_numpy(np.concatenate(list(edges.values()), axis=1))
    shuffled = torch.randperm(len(numbers))
    with torch.no_grad():
        expected = module.double()(
            torch.from_numpy(x).double(), edge_index[:, shuffled], numbers[shuffled]
        ).numpy()
    got = reference.compute(model, graph)[model.output]
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5 * max(1, np.abs(expected).max()))


def test_a_single_relation_may_meet_any_convolution():
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = pyg.RGCNConv(4, 4, 1), pyg.SAGEConv(4, 4)

        def forward(self, x, edge_index, edge_type):
            return self.second(self.first(x, edge_index, edge_type), edge_index)

    assert Model.from_pyg(Both(), relations=RELATIONS[:1], node_type="n").edge_types == (RELATIONS[0],)


class Relations(nn.Module):
    """Relational convolutions that are called in some way."""

    def __init__(self, forward) -> None:
        super().__init__()
        convs = [pyg.RGCNConv(4, 4, 3), pyg.SAGEConv(4, 4), pyg.RGCNConv(4, 4, 3, aggr="median")]
        self.convs = nn.ModuleList([*convs, pyg.RGCNConv(4, 4, 3, flow="target_to_source")])
        self.does = forward

    def forward(self, x, edge_index, edge_type):
        return self.does(self.convs, x, edge_index, edge_type)


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        (lambda c, x, e, t: c[0](x, e), "AssertionError"),
        (lambda c, x, e, t: c[0](None, e, t), r"Relations\.forward"),
        (lambda c, x, e, t: c[0](x, e, e), r"Relations\.forward"),
        (lambda c, x, e, t: c[2](x, e, t), r"Relations\.forward"),
    ],
)
def test_a_relational_convolution_that_cannot_be_imported(forward, message):
    with pytest.raises(ModelError, match=rf"(?s){message}"):
        Model.from_pyg(Relations(forward), relations=RELATIONS, node_type="n", in_channels=4)


@pytest.mark.parametrize(
    "forward",
    [
        lambda c, x, e, t: c[1](x, e),
        lambda c, x, e, t: c[0](x, e[:, t == 1], t[t == 1]),
        lambda c, x, e, t: c[0](x, e, t * 1),
        lambda c, x, e, t: c[3](x, e, t),
    ],
)
def test_what_else_is_done_with_relations(forward):
    model = Model.from_pyg(Relations(forward), relations=RELATIONS, node_type="n")
    assert set(model.edge_types) <= set(RELATIONS)


def test_relations_must_fit_the_module():
    module = TwoLayers(pyg.RGCNConv(4, 4, 3), pyg.RGCNConv(4, 4, 3))
    with pytest.raises(ModelError, match=r"takes edge_type: say with relations="):
        Model.from_pyg(module)
    with pytest.raises(ModelError, match=r"join 'node' nodes \(node_type\), got \('n', 'likes', 'n'\)"):
        Model.from_pyg(module, relations=RELATIONS)
    with pytest.raises(ModelError, match="different edge types"):
        Model.from_pyg(module, relations=[RELATIONS[0]] * 3, node_type="n")
    with pytest.raises(ModelError, match=r"GraphSAGE.forward takes no edge_type"):
        Model.from_pyg(pyg.GraphSAGE(4, 4, 2), relations=RELATIONS, node_type="n")


# -- attention, and features of edges


def attention(**others: nn.Module) -> pyg.HeteroConv:
    """A HeteroConv whose attention reads the features of BUYS and KNOWS."""
    gat = pyg.GATConv((-1, -1), 2, heads=2, edge_dim=EDGE_WIDTHS[BUYS], add_self_loops=False)
    loops = pyg.GATConv(-1, 4, edge_dim=EDGE_WIDTHS[KNOWS])
    convs = {KNOWS: loops, BUYS: gat, BOUGHT: pyg.SAGEConv((-1, -1), 4)}
    conv = pyg.HeteroConv({**convs, **others})
    graph = make_snapshot(0)
    x_dict = {name: torch.from_numpy(x) for name, x in graph.x.items()}
    edges = {name: torch.from_numpy(edges) for name, edges in graph.edge_index.items()}
    conv(x_dict, edges, edge_attr_dict={e: torch.from_numpy(graph.edge_attr[e]) for e in (KNOWS, BUYS)})
    return conv


@pytest.mark.parametrize("output", ["user", "item"])
def test_attention_between_types_with_features_of_edges(output):
    model = check(attention(), features=[KNOWS, BUYS], output_type=output)
    edge_type = KNOWS if output == "user" else BUYS
    given = {f"edge_attr:{edge_type}": EdgeInput(edge_type, EDGE_WIDTHS[edge_type])}
    assert model.edge_inputs == given


@pytest.mark.parametrize(
    "conv",
    [
        pyg.GATConv((3, 2), 4, add_self_loops=False),
        pyg.GATConv((3, 2), 2, heads=2, edge_dim=4, add_self_loops=False, residual=True),
        pyg.GATv2Conv((3, 2), 4, add_self_loops=False),
        pyg.GATv2Conv((3, 2), 2, heads=2, edge_dim=4, add_self_loops=False, residual=True),
        pyg.TransformerConv((3, 2), 4),
        pyg.TransformerConv((3, 2), 2, heads=2, edge_dim=4, beta=True),
        pyg.ResGatedGraphConv((3, 2), 4, edge_dim=4),
        pyg.GINEConv(nn.Linear(3, 2), edge_dim=4),
        pyg.GMMConv((3, 2), 4, dim=4, kernel_size=2),
    ],
    ids=lambda conv: f"{type(conv).__name__} {getattr(conv, 'edge_dim', None)}",
)
def test_convolutions_on_pairs_of_node_types(conv):
    if isinstance(conv, pyg.GINEConv):  # adds the target's row, so both are as wide
        conv = pyg.Sequential("x, e, a", [(pyg.GINEConv(nn.Linear(3, 4), edge_dim=4), "x, e, a -> x")])
        module = Pair(conv, nn.Linear(2, 3))
    else:
        module = Pair(conv, nn.Identity())
    features = [SEES] if module.reads else []
    model = check(module, features=features, edge_channels={SEES: 4} if features else 0)
    assert model.edge_types == (SEES,)
    assert [given.edge_type for given in model.edge_inputs.values()] == features
    assert model.inputs == {"x:user": Input("user", 3), "x:item": Input("item", 2)}


def _reads_features(part: nn.Module) -> bool:
    return bool(getattr(part, "edge_dim", None)) or isinstance(part, pyg.GINEConv | pyg.GMMConv)


class Pair(nn.Module):
    """A convolution from users to items. before: what is made of the items' rows."""

    def __init__(self, conv: nn.Module, before: nn.Module) -> None:
        super().__init__()
        self.conv, self.before = conv, before
        self.reads = any(_reads_features(part) for part in conv.modules())

    def forward(self, x_dict, edge_index_dict, edge_attr=None):
        x = x_dict["user"], self.before(x_dict["item"])
        given = (edge_attr[SEES],) if self.reads else ()
        return self.conv(x, edge_index_dict[SEES], *given)


def test_to_hetero_with_features_of_edges():
    class Gat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = pyg.GATConv((-1, -1), 4, edge_dim=-1, add_self_loops=False)
            self.second = pyg.GATv2Conv((-1, -1), 4, edge_dim=3, add_self_loops=False)
            self.encoder = pyg.Linear(-1, 3)

        def forward(self, x, edge_index, edge_attr):
            e = self.encoder(edge_attr).relu()
            return self.second(self.first(x, edge_index, edge_attr).relu(), edge_index, e)

    module, graph = pyg.to_hetero(Gat(), METADATA), make_snapshot(0)
    parts = (graph.x, graph.edge_index, graph.edge_attr)
    module(*({name: torch.from_numpy(array) for name, array in part.items()} for part in parts))
    model = check(module, features=EDGE_TYPES, output_type="item")
    assert {given.edge_type: given.width for given in model.edge_inputs.values()} == EDGE_WIDTHS


def test_weights_as_features_of_some_edges():
    class Weighted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            convs = {
                BUYS: pyg.SAGEConv((3, 2), 4),
                BOUGHT: pyg.GATConv((2, 3), 4, edge_dim=1, add_self_loops=False),
            }
            self.conv = pyg.HeteroConv(convs)

        def forward(self, x_dict, edge_index_dict, edge_weight_dict):
            return self.conv(x_dict, edge_index_dict, edge_attr_dict=edge_weight_dict)

    model = check(Weighted(), weights=[BOUGHT], output_type="user")
    assert model.edge_inputs == {f"edge_weight:{BOUGHT}": EdgeInput(BOUGHT, 1, "weight")}


def test_widths_of_what_is_read_in_vain():
    convs = {KNOWS: pyg.GATConv(3, 4, edge_dim=2), BUYS: pyg.GraphConv((3, 2), 4)}
    convs |= {BOUGHT: pyg.SAGEConv((2, 3), 4)}

    class Items(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.encoder = pyg.HeteroConv(convs), nn.Linear(2, 2)

        def forward(self, x_dict, edge_index_dict, edge_attr):
            edge_attr = {KNOWS: self.encoder(edge_attr[KNOWS])}
            h = self.conv(x_dict, edge_index_dict, edge_attr_dict=edge_attr)
            h["user"].sort()
            return h["item"]

    model = check(Items(), features=[KNOWS])
    assert not model.edge_inputs
    assert model.edge_types == (BUYS,)


@pytest.mark.parametrize(
    ("edge_channels", "message"),
    [
        ({BOUGHT: 3}, "got an unexpected .*edge_attr"),
        ({("a", "b", "c"): 2}, r"edge_channels must name .*; got \('a', 'b', 'c'\)"),
        ({KNOWS: 3}, "shapes cannot be multiplied"),
    ],
)
def test_widths_of_edges_that_do_not_fit(edge_channels, message):
    with pytest.raises(ModelError, match=message):
        Model.from_pyg(attention(), metadata=METADATA, output_type="user", edge_channels=edge_channels)


def test_which_edges_have_features_may_be_told():
    gat = pyg.GATConv((3, 2), 4, edge_dim=4, add_self_loops=False)
    module = pyg.HeteroConv({KNOWS: pyg.GATConv(3, 4, edge_dim=2), BUYS: gat})
    for edge_channels, inputs in (({KNOWS: 2}, 1), ({BUYS: 4}, 0), (0, 0), ({KNOWS: 0}, 0)):
        model = Model.from_pyg(module, metadata=METADATA, output_type="user", edge_channels=edge_channels)
        assert len(model.edge_inputs) == inputs


def test_features_must_be_those_of_the_edges():
    gat = pyg.GATConv((3, 2), 4, edge_dim=4, add_self_loops=False)

    class Swapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = gat

        def forward(self, x_dict, edge_index_dict, edge_attr_dict):
            return self.conv((x_dict["user"], x_dict["item"]), edge_index_dict[SEES], edge_attr_dict[BUYS])

    with pytest.raises(ModelError, match=r"Swapped\.forward"):
        Model.from_pyg(Swapped(), metadata=METADATA)


def test_a_single_relation_has_features_for_any_convolution():
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = pyg.RGATConv(4, 4, 1), pyg.GATConv(4, 4, edge_dim=2)

        def forward(self, x, edge_index, edge_type, edge_attr):
            return self.second(self.first(x, edge_index, edge_type), edge_index, edge_attr)

    model = Model.from_pyg(fill(Net(), 1), relations=RELATIONS[:1], node_type="n")
    assert [given.width for given in model.edge_inputs.values()] == [2]


# -- convolutions of one's own


class Own(pyg.MessagePassing):
    """Attention of items to users: weighted, with features of edges."""

    def __init__(self) -> None:
        super().__init__(aggr="add")
        self.to_source, self.to_target = nn.Linear(3, 4), nn.Linear(2, 4)
        self.to_edge = nn.Linear(4, 4)

    def forward(self, x, edge_index, edge_attr):
        source, target = x
        q = self.to_target(target)
        return self.propagate(edge_index, k=self.to_source(source), q=q, edge_attr=edge_attr) + q

    def message(self, k_j, q_i, edge_attr, index, size_i):
        value = k_j + self.to_edge(edge_attr)
        return value * pyg_softmax((q_i * value).sum(-1, keepdim=True).tanh(), index, num_nodes=size_i)


@pytest.mark.parametrize(
    ("conv", "reads"),
    [
        (Own(), True),
        (pyg.SimpleConv(aggr="mean"), False),
        (pyg.FiLMConv((3, 2), 4), False),
        (pyg.LEConv((3, 2), 4), False),
        (pyg.GeneralConv((3, 2), 4, in_edge_channels=4), True),
        (pyg.EdgeConv(nn.Linear(6, 4)), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_any_convolutions_on_pairs_of_node_types(conv, reads):
    module = Pair(conv, nn.Linear(2, 3) if isinstance(conv, pyg.EdgeConv) else nn.Identity())
    module.reads = reads
    settings = {"edge_channels": {SEES: 4}} if reads else {"edge_channels": 0}
    widths = {"in_channels": WIDTHS} if isinstance(conv, pyg.SimpleConv) else {}
    model = check(module, features=[SEES] if reads else [], **settings, **widths)
    assert set(model.edge_types) == {SEES}
    assert [given.edge_type for given in model.edge_inputs.values()] == [SEES] * reads


def test_any_convolutions_stand_in_a_hetero_conv():
    convs = {KNOWS: pyg.TAGConv(3, 4, K=2), SEES: Own(), BOUGHT: pyg.SAGEConv((2, 3), 4)}
    model = check(pyg.HeteroConv(convs), features=[SEES], output_type="item", edge_channels={SEES: 4})
    assert model.edge_inputs == {f"edge_attr:{SEES}": EdgeInput(SEES, 4)}
    model = check(pyg.HeteroConv(convs), features=[SEES], output_type="user", edge_channels={SEES: 4})
    assert set(model.edge_types) == {KNOWS, BOUGHT}


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        (lambda own, x, e: own((x["item"], x["user"]), e[SEES]), "Swapped"),
        (lambda own, x, e: own((x["user"], None), e[SEES]), "Swapped"),
        (lambda own, x, e: own(x["user"], e[SEES]), "Swapped"),
    ],
)
def test_what_is_read_are_the_rows_of_the_ends(forward, message):
    class Swapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = Sum()

        def forward(self, x_dict, edge_index_dict):
            return forward(self.conv, x_dict, edge_index_dict)

    with pytest.raises(ModelError, match=message):
        Model.from_pyg(Swapped(), metadata=METADATA, in_channels=WIDTHS)


class Sum(pyg.MessagePassing):
    def forward(self, x, edge_index):
        x = x if isinstance(x, tuple) else (x, x)
        return self.propagate(edge_index, x=x, y=x[1])

    def message(self, x_j, y_i):
        return torch.cat([x_j, y_i], dim=-1)


def test_loops_between_types_are_refused():
    class Loops(pyg.MessagePassing):
        def forward(self, x, edge_index):
            edge_index, _ = add_self_loops(edge_index, num_nodes=len(x[1]))
            return self.propagate(edge_index, x=x)

    with pytest.raises(ModelError, match="Pair"):
        Model.from_pyg(Pair(Loops(), nn.Identity()), metadata=METADATA, in_channels=WIDTHS, edge_channels=0)


# -- what is refused


@pytest.mark.parametrize(
    ("after", "message"),
    [
        (lambda net, h, e: h, r"rows of 'user', 'item': say with output_type=\.\.\. whose rows"),
        (lambda net, h, e: h["user"] + h["item"], "must match the size|Constraints"),
        (lambda net, h, e: torch.cat(list(h.values()), dim=-1), "must match|Sizes of tensors|Constraints"),
        (lambda net, h, e: net.layers["sage"]((h["item"], h["user"]), e[BUYS]), r"Net\.forward"),
        (lambda net, h, e: net.layers["sage"]((h["user"], None), e.get("none")), r"Net\.forward fails"),
        (lambda net, h, e: e[KNOWS], "or the ends of edges alone"),
        (lambda net, h, e: h["nobody"], r"Net\.forward fails: KeyError: 'nobody'"),
        (lambda net, h, e: F.dropout(h["user"]), "random numbers are drawn"),
    ],
)
def test_what_cannot_be_imported_is_said(after, message):
    net = Net(few(), after, sage=pyg.SAGEConv((4, 4), 4))
    with pytest.raises(ModelError, match=message):
        Model.from_pyg(net, metadata=METADATA)


@pytest.mark.parametrize(
    "after",
    [
        lambda net, h, e: net.layers["hgt"](h, e)["item"],
        lambda net, h, e: {"user": h["user"].exp()},
        lambda net, h, e: (h["user"], h["user"] * 2),
    ],
)
def test_what_was_once_refused(after):
    net = Net(few(), after, hgt=pyg.HGTConv(4, 4, METADATA))
    assert Model.from_pyg(fill(net, 1), metadata=METADATA).width("x:user") == 3


def test_a_node_type_that_a_layer_lost_is_named():
    class Lost(nn.Module):
        """After the first layer there are no items left."""

        def __init__(self) -> None:
            super().__init__()
            self.first = pyg.HeteroConv({KNOWS: pyg.SAGEConv(3, 4), BOUGHT: pyg.SAGEConv((2, 3), 4)})
            self.second = pyg.HeteroConv({KNOWS: pyg.SAGEConv(4, 4), BOUGHT: pyg.SAGEConv((2, 4), 4)})

        def forward(self, x_dict, edge_index_dict):
            return self.second(self.first(x_dict, edge_index_dict), edge_index_dict)

    with pytest.warns(UserWarning, match="do not get updated"):
        module = Lost()
    with pytest.raises(ModelError, match=r"Lost\.forward fails: AttributeError: 'NoneType'"):
        Model.from_pyg(module, metadata=METADATA)


def test_weights_must_be_those_of_the_edges():
    class Crossed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = pyg.GraphConv((3, 2), 4)

        def forward(self, x_dict, edge_index_dict, edge_weight_dict):
            return self.conv((x_dict["user"], x_dict["item"]), edge_index_dict[BUYS], edge_weight_dict[SEES])

    with pytest.raises(ModelError, match=r"Crossed\.forward fails: .*must match the size"):
        Model.from_pyg(Crossed(), metadata=METADATA)


def test_metadata_must_fit_together_and_the_module():
    module = Net(pyg.HeteroConv(sages()))
    with pytest.raises(ModelError, match=r"of its node types, 'user', none is 'item'"):
        Model.from_pyg(module, metadata=(["user"], EDGE_TYPES))
    with pytest.raises(ModelError, match=r"edge types must be \(source type, relation, target type\)"):
        Model.from_pyg(module, metadata=(["user"], [("user", "user")]))
    with pytest.raises(
        ModelError, match=r"HeteroConv at 'conv' has .*\('user', 'sees', 'item'\).*metadata lacks"
    ):
        Model.from_pyg(module, metadata=(list(WIDTHS), EDGE_TYPES[:3]))
    with pytest.raises(ModelError, match="leave out node_type, edge_type and relations"):
        Model.from_pyg(module, metadata=METADATA, node_type="user")
    with pytest.raises(ModelError, match="name its types with metadata="):
        Model.from_pyg(module)
    with pytest.raises(ModelError, match="Linear"):
        Model.from_pyg(nn.Linear(3, 4), metadata=METADATA)


def test_the_output_type_must_be_one_that_is_returned():
    module = Net(few())
    with pytest.raises(ModelError, match=r"one of the node types .*'user', 'item'; got 'shop'"):
        Model.from_pyg(module, metadata=METADATA, output_type="shop")
    one = Net(few(), lambda net, h, e: h["user"])
    with pytest.raises(ModelError, match=r"output_type must be one of .*returns rows of, 'user'; got 'item'"):
        Model.from_pyg(one, metadata=METADATA, output_type="item")
    with pytest.raises(ModelError, match=r"output_type must be one of .*'node'; got 'user'"):
        Model.from_pyg(pyg.GCN(3, 4, 2), output_type="user")


def test_edge_weights_must_be_of_known_types_and_taken():
    module = Net(few())
    with pytest.raises(ModelError, match="takes no edge_weight, so edge_weight must not be True"):
        Model.from_pyg(module, metadata=METADATA, output_type="user", edge_weight=True)
    with pytest.raises(ModelError, match=r"must name edge types of metadata, got \('a', 'b', 'c'\)"):
        Model.from_pyg(module, metadata=METADATA, output_type="user", edge_weight=[("a", "b", "c")])
    with pytest.raises(ModelError, match=r"got an unexpected .*edge_weight"):
        Model.from_pyg(few(), metadata=METADATA, output_type="user", edge_weight=True)


def test_layers_without_widths_are_refused():
    convs = {e: pyg.SAGEConv((-1, -1), 4) for e in EDGE_TYPES}
    with pytest.raises(ModelError, match="has no shape yet: call the module once"):
        Model.from_pyg(pyg.HeteroConv(convs), metadata=METADATA, output_type="user")


@pytest.mark.parametrize(
    "sees",
    [
        lambda h, e: type(h["user"]) is torch.Tensor,
        lambda h, e: type(e[KNOWS]) is torch.Tensor and e[KNOWS].shape[1] == 1,
        lambda h, e: type(h["item"]) is torch.Tensor and len(h["item"]) < 5,
    ],
)
def test_a_module_that_does_what_tracing_cannot_see_is_caught(sees):
    def after(net, h, e):
        return h["user"] * 2 if sees(h, e) else h["user"]

    with pytest.raises(ModelError, match=r"where the imported model says|fails: RuntimeError"):
        Model.from_pyg(Net(few(), after), metadata=METADATA)
