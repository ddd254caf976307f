"""An argument is left out only if somebody says so, or if nothing would read it."""

import re
from itertools import accumulate, repeat

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.data import Data
from torch_geometric.utils import degree

from gate import share
from livegnn import Engine, Graph, Model, ModelError

X = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
SOURCE, TARGET = np.array([0, 1, 2, 3, 0]), np.array([2, 2, 3, 0, 1])
OF_EDGES = np.random.default_rng(1).random((5, 2)).astype(np.float32)
EDGE_INDEX = torch.from_numpy(np.stack([SOURCE, TARGET]))


class Net(nn.Module):
    """A layer, one that reads features of edges or weights of edges, and a head that nothing reads."""

    width = 3

    def __init__(self, conv: nn.Module, *unread: nn.Module) -> None:
        super().__init__()
        self.conv, self.unread = conv, nn.ModuleList(unread)

    @staticmethod
    def around(vectors: torch.Tensor, edge_index: torch.Tensor, nodes: int) -> torch.Tensor:
        """The first numbers of the vectors of the edges around each node, which are three."""
        return vectors.new_zeros(nodes, 3).index_add(0, edge_index[1], vectors)[:, :1]


def named(name: str) -> type[Net]:
    """A class of networks whose forward takes what the edges have under a name, or may be called without."""
    space: dict[str, object] = {}
    exec(f"def forward(self, x, edge_index, {name}=None): return self.conv(x, edge_index, {name})", space)
    return type("Net", (Net,), {"forward": space["forward"]})


class Keywords(Net):
    def forward(self, x, edge_index, **kwargs):
        return self.conv(x, edge_index, **kwargs)


class Crystal(Keywords):
    width = 4


class Rest(Net):
    def forward(self, x, edge_index, *args):
        return self.conv(x, edge_index, *args)


class Encoded(Net):
    """What it reads of the edges alone is no part of a convolution, and fails for other widths."""

    def __init__(self) -> None:
        super().__init__(pyg.GINConv(nn.Linear(3, 4)), nn.Linear(2, 3))

    def forward(self, x, edge_index, said=None):
        if said is not None:
            x = x.index_add(0, edge_index[1], self.unread[0](said))
        return self.conv(x, edge_index)


def attention() -> nn.Module:
    return pyg.GATConv(3, 4, edge_dim=2)


LEFT_OUT = {
    "features of edges": (lambda: named("attr")(attention()), "attr", r"conv\.lin_edge\.weight"),
    "features, encoded": (Encoded, "said", r"unread\.0\.(weight|bias)"),
    "features by any keyword": (
        lambda: Crystal(pyg.CGConv(4, 2), nn.Linear(2, 2)),
        r"\*\*kwargs",
        r"unread\.0\.(weight|bias)",
    ),
    "features by any place": (lambda: Rest(attention()), r"\*args", r"conv\.lin_edge\.weight"),
    "weights of edges": (lambda: named("w")(pyg.GCNConv(3, 4)), "w", "another prediction"),
    "weights by any keyword": (
        lambda: Keywords(pyg.GCNConv(3, 4)),
        r"\*\*kwargs",
        "edge_weight.*another prediction",
    ),
    "a graph of each node": (
        lambda: Pooled(pyg.SAGEConv(3, 4)),
        "graph",
        "rows of nodes make another prediction",
    ),
}


class Pooled(Net):
    def __init__(self, conv: nn.Module) -> None:
        super().__init__(conv, nn.Linear(4, 2))

    def forward(self, x, edge_index, graph=None):
        h = self.conv(x, edge_index)
        return h if graph is None else self.unread[0](pyg.global_add_pool(h, graph))


@pytest.mark.parametrize("case", LEFT_OUT)
def test_what_is_left_out_and_would_be_read_is_refused(case):
    make, argument, read = LEFT_OUT[case]
    with pytest.raises(ModelError, match=rf"is called without '?{argument}.*{read}.*inputs={{"):
        Model.from_pyg(make())


@pytest.mark.parametrize("data", [False, True])
def test_weights_that_are_rows_of_one_channel_are_features(data):
    net = named("edge_weight")(pyg.GCNConv(3, 4)).eval()
    rows = OF_EDGES[:, :1]
    given = Data(x=torch.from_numpy(X), edge_index=EDGE_INDEX, edge_weight=torch.from_numpy(rows))
    model = Model.from_pyg(net, given) if data else Model.from_pyg(net, inputs={"edge_weight": ("edge", 1)})
    assert model.edge_inputs["edge_weight"].column == "edge_attr"
    graph = Graph.from_edges(SOURCE, TARGET, x=X, edge_attr=rows)
    expected = net(torch.from_numpy(X), EDGE_INDEX, torch.from_numpy(rows)).detach().numpy()
    np.testing.assert_allclose(Engine(graph, model).predict(np.arange(4)), expected, rtol=1e-4, atol=1e-5)


def ways(refusal: str) -> list[str]:
    """Each ``inputs={...}`` in a message."""
    found = []
    for start in (match.end() for match in re.finditer("inputs=", refusal)):
        depth = accumulate((one == "{") - (one == "}") for one in refusal[start:])
        found.append(refusal[start : start + 1 + next(at for at, open in enumerate(depth) if not open)])
    return found


@pytest.mark.parametrize("case", share([case for case in LEFT_OUT if case != "a graph of each node"], 0))
def test_each_way_that_a_refusal_names_can_be_taken(case):
    """With some number of channels, and a keyword, where the refusal does not know it."""
    with pytest.raises(ModelError) as refused:
        Model.from_pyg(LEFT_OUT[case][0]())
    named = ways(str(refused.value))
    assert len(named) >= 2
    if case == "features by any keyword":
        named.pop()  # the layer fails without them
    for way in named:
        said = [eval(way.replace("'...'", "'edge_attr'"), {"channels": width}) for width in (1, 2, 3, 4)]
        assert any(map(is_imported, repeat(LEFT_OUT[case][0]), said)), way


def is_imported(make, inputs):
    try:
        Model.from_pyg(make(), inputs=inputs, in_channels=make().width)
    except ModelError:
        return False
    return True


def test_doing_what_a_refusal_says_removes_it():
    """The argument is said, or it is said that there is none."""
    torch.manual_seed(0)
    net = named("attr")(attention()).eval()
    graph = Graph.from_edges(SOURCE, TARGET, x=X, edge_attr=OF_EDGES)
    model = Model.from_pyg(net, inputs={"attr": ("edge", 2)})
    expected = net(torch.from_numpy(X), EDGE_INDEX, torch.from_numpy(OF_EDGES)).detach().numpy()
    np.testing.assert_allclose(Engine(graph, model).predict(np.arange(4)), expected, rtol=1e-4, atol=1e-5)

    without = Model.from_pyg(net, inputs={"attr": None})
    expected = net(torch.from_numpy(X), EDGE_INDEX).detach().numpy()
    np.testing.assert_allclose(Engine(graph, without).predict(np.arange(4)), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("make", "inputs"),
    [
        (lambda: Keywords(attention()), {"kwargs": {}}),
        (lambda: Rest(attention()), {"args": [("edge", 2)]}),
        (lambda: Rest(attention()), {"args": []}),
    ],
)
def test_what_goes_by_any_keyword_or_place_can_be_said(make, inputs):
    model = Model.from_pyg(make(), inputs=inputs)
    assert bool(model.edge_inputs) == any(map(bool, inputs.values()))


def test_features_go_by_any_keyword_if_a_layer_was_made_for_them():
    assert Model.from_pyg(Keywords(attention())).edge_inputs["edge_attr"].width == 2


def test_data_name_the_columns_that_nothing_reads():
    data = Data(x=torch.from_numpy(X), edge_index=EDGE_INDEX, amount=torch.from_numpy(OF_EDGES))
    with pytest.raises(ModelError, match=r"attr.*conv\.lin_edge\.weight.*amount"):
        Model.from_pyg(named("attr")(attention()), data)
    assert Model.from_pyg(named("attr")(attention()), data, inputs={"attr": "amount"}).edge_inputs


class Decides(Net):
    """What may be left out decides nothing that the unread head would be read for."""

    def forward(self, x, edge_index, graph=None, verbose: bool = False, size: tuple[int, int] | None = None):
        if graph is not None and verbose:
            print(graph)
        return self.conv(x, edge_index, size=size)


def test_a_head_of_another_method_keeps_nothing_from_being_imported():
    assert Model.from_pyg(Decides(pyg.SAGEConv(3, 4), nn.Linear(4, 1), nn.BatchNorm1d(4))).width("x") == 3


class Made(Net):
    """Its layer may have features as wide as the nodes' rows, and none are there: it makes them itself."""

    def forward(self, x, edge_index, edge_attr=None):
        e = x[edge_index[0]] - x[edge_index[1]] if edge_attr is None else edge_attr
        return self.conv(x, edge_index, e)


class Asserts(Net):
    def forward(self, x, edge_index, edge_attr=None):
        assert edge_attr is None, "this layer has no edge_dim"
        return self.conv(x, edge_index)


def test_a_module_that_asserts_against_an_argument_was_not_made_for_it():
    assert not Model.from_pyg(Asserts(pyg.GCNConv(3, 4), nn.Linear(2, 2))).edge_inputs


def test_features_are_needed_by_what_fails_without_them():
    alone = Model.from_pyg(pyg.GINEConv(nn.Linear(3, 4)))
    assert alone.edge_inputs["edge_attr"].width == 3
    assert not Model.from_pyg(Made(pyg.GINEConv(nn.Linear(3, 4))), edge_channels=0).edge_inputs
    with pytest.raises(ModelError, match=r"edge_attr.*another prediction.*edge_channels"):
        Model.from_pyg(Made(pyg.GINEConv(nn.Linear(3, 4))))


class Timed(Net):
    """A table of times of nodes, beside their features."""

    def __init__(self) -> None:
        super().__init__(pyg.SAGEConv(5, 4), nn.Embedding(9, 2))

    def forward(self, x, edge_index, time=None):
        return self.conv(x if time is None else torch.cat([x, self.unread[0](time)], dim=1), edge_index)


def test_a_refusal_says_whose_rows_an_argument_has_and_that_they_are_whole_numbers():
    torch.manual_seed(0)
    net, time = Timed().eval(), torch.tensor([4, 0, 8, 1])
    with pytest.raises(ModelError, match=r"'time'.*unread\.0\.weight.*inputs={'time': \('node', int\)}"):
        Model.from_pyg(net)
    model = Model.from_pyg(net, inputs={"time": ("node", int)})
    graph = Graph.from_edges(SOURCE, TARGET, x=np.concatenate([X, time[:, None]], axis=1))
    expected = net(torch.from_numpy(X), EDGE_INDEX, time).detach().numpy()
    np.testing.assert_allclose(Engine(graph, model).predict(np.arange(4)), expected, rtol=1e-4, atol=1e-5)


def test_a_refusal_says_that_rows_may_be_the_weights_of_edges():
    torch.manual_seed(0)
    net = named("ew")(pyg.GCNConv(3, 4)).eval()
    says = (
        r"inputs={'ew': 'edge_weight'} if it is the weights of edges, or inputs={'ew': \('edge', channels\)}"
    )
    with pytest.raises(ModelError, match=says):
        Model.from_pyg(net)
    model = Model.from_pyg(net, inputs={"ew": "edge_weight"})
    graph = Graph.from_edges(SOURCE, TARGET, x=X, weight=OF_EDGES[:, 0])
    expected = net(torch.from_numpy(X), EDGE_INDEX, torch.from_numpy(OF_EDGES[:, 0])).detach().numpy()
    np.testing.assert_allclose(Engine(graph, model).predict(np.arange(4)), expected, rtol=1e-4, atol=1e-5)


class Numbered(Net):
    def forward(self, x, edge_index, edge_type=None):
        kept = edge_index if edge_type is None else edge_index[:, edge_type == 1]
        return self.conv(x, kept)


def test_a_refusal_says_that_numbers_of_edges_stand_for_their_types():
    with pytest.raises(ModelError, match=r"called without 'edge_type'.*relations=\[\.\.\.\]"):
        Model.from_pyg(Numbered(pyg.SAGEConv(3, 4)))
    relations = [("node", name, "node") for name in ("first", "second")]
    assert Model.from_pyg(Numbered(pyg.SAGEConv(3, 4)), relations=relations).steps


class Waves(Net):
    """What it makes of times has no parameter that would tell."""

    def forward(self, x, edge_index, time=None):
        waves = [] if time is None else [torch.stack([time.float().sin(), time.float().cos()], dim=1)]
        return self.conv(torch.cat([x, *waves], dim=1), edge_index)


def test_an_argument_beside_which_features_have_another_width_is_not_left_out_in_silence():
    net = Waves(pyg.SAGEConv(5, 4))
    reason = r"'time', and then reads x of 5 channels, beside rows there of 3: .*inputs={'time': \('node',\)}"
    with pytest.raises(ModelError, match=reason):
        Model.from_pyg(net)
    assert Model.from_pyg(net, inputs={"time": None}).width("x") == 5
    assert Model.from_pyg(net, inputs={"time": ("node",)}).inputs["x"].width == 4


HIDDEN = {
    "a keyword that the code names": (
        "**more",
        "return h if more.get('time') is None else h * more['time'][:, None]",
        "{'time': ('node',)}",
    ),
    "a keyword of edges": (
        "**more",
        "return h if 'w' not in more else h.index_add(0, edge_index[1], more['w'][:, None].expand(-1, 4))",
        "{'w': 'edge_weight'}",
    ),
    "any place": ("*more", "return h * more[0][:, None] if more else h", "{'more': [('node',)]}"),
    "places in space": (
        "more=None",
        "return h if more is None else h + torch.linalg.cross(more, more.flip(1)).sum(1, keepdim=True)",
        "{'more': ('node', channels)}",
    ),
    "angles": (
        "more=None",
        "return h if more is None else h * torch.cos(more.unbind(-1)[0] - more.view(-1, 2)[:, 1])[:, None]",
        "{'more': ('node', channels)}",
    ),
    "directions of edges": (
        "vectors=None",
        "return h if vectors is None else h[:, [0, 1, 2, 0]].add(self.around(vectors, edge_index, len(h)))",
        "{'vectors': ('edge', channels)}",
    ),
    "two together": (
        "more=None, most=None",
        "return h if more is None or most is None else h * (more + most)[:, None]",
        "{'more': ('node',), 'most': ('node',)}",
    ),
    "other edges": (
        "more=None",
        "return h if more is None else h + self.conv(x, more)",
        "{'more': 'edge_index'}",
    ),
    "rows in a dict": (
        "extra=None",
        "return h if extra is None else h * extra['w'][:, None]",
        "{'extra': {'w': ('node',)}}",
    ),
    "rows in a pair": (
        "extra=None",
        "a, b = (1, 0) if extra is None else (one[:, None] for one in extra)\n    return h * a + b",
        "{'extra': [('node',), ('node',)]}",
    ),
    "two places": (
        "*extra",
        "return h * extra[0][:, None] + extra[1][:, None] if extra else h",
        "{'extra': [('node',), ('node',)]}",
    ),
    "any number of rows": (
        "extra=()",
        "for rows in extra:\n        h = h + rows[:, None]\n    return h",
        "{'extra': [('node',)]}",
    ),
}


@pytest.mark.parametrize("case", share(HIDDEN, 1))
def test_whatever_its_form_nothing_is_left_out_in_silence(case):
    arguments, body, said = HIDDEN[case]
    space: dict[str, object] = {}
    code = f"def forward(self, x, edge_index, {arguments}):\n    h = self.conv(x, edge_index)\n    {body}"
    exec(code, globals(), space)
    net = type("Net", (Net,), {"forward": space["forward"]})(pyg.SAGEConv(3, 4)).eval()
    with pytest.raises(ModelError) as refused:
        Model.from_pyg(net)
    assert f"inputs={said}" in str(refused.value)
    for way in ways(str(refused.value)):
        assert any(is_imported(lambda: net, eval(way, {"channels": width})) for width in (1, 2, 3)), way


class Scaled(Net):
    def forward(self, x, edge_index, edge_weight: float = 1.0):
        return self.conv(x, edge_index) * edge_weight


class ScaledOrWeighted(Net):
    def forward(self, x, edge_index, edge_weight: float = 1.0):
        return self.conv(x, edge_index, edge_weight if isinstance(edge_weight, torch.Tensor) else None)


def test_an_argument_that_is_a_number_by_default_is_left_out_if_it_takes_no_rows() -> None:
    module = Scaled(pyg.GCNConv(3, 2))
    expected = module(torch.from_numpy(X), EDGE_INDEX).detach().numpy()
    model = Model.from_pyg(module)
    graph = Graph.from_edges(SOURCE, TARGET, x=X)
    np.testing.assert_allclose(Engine(graph, model).predict(range(4)), expected, rtol=1e-5, atol=1e-6)


def test_an_argument_that_is_a_number_by_default_and_takes_weights_must_be_named() -> None:
    module = ScaledOrWeighted(pyg.GCNConv(3, 2))
    with pytest.raises(ModelError, match=re.escape("inputs={'edge_weight': 1.0} to leave it out")):
        Model.from_pyg(module)
    graph = Graph.from_edges(SOURCE, TARGET, x=X)
    expected = module(torch.from_numpy(X), EDGE_INDEX).detach().numpy()
    alone = Model.from_pyg(module, inputs={"edge_weight": 1.0})
    np.testing.assert_allclose(Engine(graph, alone).predict(range(4)), expected, rtol=1e-5, atol=1e-6)
    weighted = Model.from_pyg(module, inputs={"edge_weight": "edge_weight"})
    weights = OF_EDGES[:, 0]
    graph = Graph.from_edges(SOURCE, TARGET, x=X, weight=weights)
    expected = module(torch.from_numpy(X), EDGE_INDEX, torch.from_numpy(weights)).detach().numpy()
    np.testing.assert_allclose(Engine(graph, weighted).predict(range(4)), expected, rtol=1e-5, atol=1e-6)


class Masked(Net):
    def forward(self, x, edge_index, mask=None):
        return self.conv(x, edge_index if mask is None else edge_index[:, mask])


def test_a_mask_of_edges_is_told_from_rows_of_nodes_and_the_advice_imports() -> None:
    module = Masked(pyg.GCNConv(3, 2))
    with pytest.raises(ModelError, match=re.escape("inputs={'mask': ('edge', bool)}")):
        Model.from_pyg(module)
    Model.from_pyg(module, inputs={"mask": ("edge", bool)})
    Model.from_pyg(module, inputs={"mask": None})


class SizedByItsEdges(Net):
    def forward(self, x, edge_index):
        return self.conv(x, edge_index) * degree(edge_index[1]).unsqueeze(-1)


def test_a_module_that_takes_a_size_from_its_edges_is_told_where_that_fails() -> None:
    with pytest.raises(ModelError, match="fails on a graph of 12 nodes, the last of which have no edges"):
        Model.from_pyg(SizedByItsEdges(pyg.SAGEConv(4, 3)))
