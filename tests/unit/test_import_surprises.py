"""What modules do that their authors do not think of: imported as it is meant, or refused."""

from __future__ import annotations

import copy
import logging
import types
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import weight_norm
from torch.utils import _pytree as pytree
from torch_geometric import nn as pyg
from torch_geometric.data import Data
from torch_geometric.utils import degree, scatter

from livegnn import Engine, Graph, Model, ModelError
from livegnn.importers.arguments.missing_columns import _NotingRecord
from livegnn.importers.program.export import Record

WIDTH = 5
SOURCE, TARGET = [0, 1, 2, 3, 0], [2, 2, 3, 0, 1]
WEIGHT = np.array([-2, 0.5, -1, 1.5, 1], np.float32)
X = np.random.default_rng(0).standard_normal((4, WIDTH)).astype(np.float32)


class Net(nn.Module):
    """A convolution, and a linear layer, used as a function says."""

    def __init__(self, does=None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.lin = pyg.GCNConv(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.norm, self.does = nn.BatchNorm1d(WIDTH), does

    def forward(self, x, edge_index):
        return self.does(self, x, edge_index)


def plain(net, x, edge_index):
    return net.norm(net.conv(x, edge_index))


def check(module: nn.Module, *, weighted: bool = False, **settings) -> Model:
    """Imports a module, and holds the engine against it."""
    model = Model.from_pyg(module, edge_weight=weighted or None, **settings)
    graph = Graph.from_edges(SOURCE, TARGET, x=X, weight=WEIGHT if weighted else None)
    arguments = [torch.from_numpy(X), torch.tensor([SOURCE, TARGET])]
    if weighted:
        arguments.append(torch.from_numpy(WEIGHT))
    with torch.no_grad():
        expected = module.eval()(*arguments)
    got = Engine(graph, model).predict(np.arange(4))
    np.testing.assert_allclose(got, expected.numpy(), rtol=1e-4, atol=1e-5)
    return model


def swallow(net, x, edge_index):
    scale = 1.0
    try:
        if float(x.abs().max()) > 100:
            scale = 0.01
    except Exception:
        pass
    return net.conv(x * scale, edge_index)


DECIDES = {
    "no edges": lambda net, x, e: net.lin(x) if e.size(1) == 0 else net.conv(x, e),
    "no number": lambda net, x, e: net.lin(x) if e.numel() == 0 else net.conv(x, e),
    "one node": lambda net, x, e: net.norm(net.conv(x, e)) + (1 if x.size(0) > 1 else 0),
    "as many edges as nodes": lambda net, x, e: net.lin(x) if e.size(1) == x.size(0) else net.conv(x, e),
    "many nodes": lambda net, x, e: net.lin(x) if x.size(0) > 1000 else net.conv(x, e),
    "nodes by threes": lambda net, x, e: net.lin(x) if x.size(0) % 3 == 0 else net.conv(x, e),
    "a value, and the error is swallowed": swallow,
}


@pytest.mark.parametrize("does", DECIDES.values(), ids=list(DECIDES))
def test_what_decides_by_sizes_or_values_is_refused(does):
    with pytest.raises(ModelError, match=r"size|depends on|says .* where the imported model says"):
        Model.from_pyg(Net(does))


NARROW = {
    "converted": lambda net, x, e: net.lin(x) * degree(e[1], x.size(0)).to(torch.uint8)[:, None],
    "counted": lambda net, x, e: net.lin(x) * degree(e[1], x.size(0), torch.uint8)[:, None],
    "rounded": lambda net, x, e: x.round().long().to(torch.int8) * 1.0,
}


@pytest.mark.parametrize("does", NARROW.values(), ids=list(NARROW))
def test_narrow_integers_are_refused(does):
    with pytest.raises(ModelError, match="wraps around where they are large"):
        Model.from_pyg(Net(does), in_channels=WIDTH)


def test_truth_may_be_narrow():
    check(Net(lambda net, x, e: net.lin(x) * (x > 0).to(torch.uint8)))


class State(Net):
    def forward(self, x, edge_index, h=None):
        return self.conv(x, edge_index) if h is None else self.conv(x + h, edge_index)


class Number(Net):
    def forward(self, x, edge_index, num_nodes=None):
        return self.conv(x, edge_index) * (1 if num_nodes is None else 2)


class Other(Net):
    def forward(self, h, edge_index, x=None):
        return self.conv(h, edge_index) if x is None else self.conv(h + x, edge_index)


@pytest.mark.parametrize("kind", [State, Number])
def test_what_may_be_left_out_is(kind):
    check(kind())


def test_a_second_name_for_features_is_left_out_if_it_is_said():
    with pytest.raises(ModelError, match="called without 'x', where rows of nodes make another prediction"):
        Model.from_pyg(Other())
    check(Other(), inputs={"x": None})


def test_two_arguments_are_not_one():
    class Both(Net):
        def forward(self, x, edge_index, h):
            return self.conv(x + h, edge_index)

    with pytest.raises(ModelError, match="takes 'h', whose meaning is unknown"):
        Model.from_pyg(Both())


def test_data_as_the_argument():
    class OfData(Net):
        def forward(self, data):
            x, edge_index, batch = data.x, data.edge_index, data.batch
            assert batch is None
            return self.conv(x, edge_index)

    module, given = OfData().eval(), Data(x=torch.from_numpy(X), edge_index=torch.tensor([SOURCE, TARGET]))
    for settings in ({}, {"data": given}):
        engine = Engine(Graph.from_edges(SOURCE, TARGET, x=X), Model.from_pyg(module, **settings))
        np.testing.assert_allclose(engine.predict(np.arange(4)), module(given).detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "record", [Record({(None, "x"): 1}), _NotingRecord({("a", "x"): 1, ("b", "x"): 2}, {}, ())]
)
def test_pyg_data_have_paths_in_every_pytorch(record):
    found, spec = pytree.tree_flatten_with_path(record)
    assert [value for _, value in found] == pytree.tree_leaves(record)
    assert [path for path, _ in found] == [(pytree.MappingKey(key),) for key in record.fields]
    assert pytree.tree_unflatten([value for _, value in found], spec) == record


def test_results_beside_the_prediction_may_be_anything():
    for does in (
        lambda net, x, e: {"z": net.conv(x, e), "loss": 3},
        lambda net, x, e: (net.conv(x, e), x.sum()),
    ):
        model = Model.from_pyg(Net(does))
        assert len(model.outputs) == 1
    attention = pyg.GATConv(WIDTH, 4)
    model = Model.from_pyg(attention, inputs={"return_attention_weights": True})
    assert model.width(model.output) == 4


@pytest.mark.parametrize("how", ["masked", "chosen"])
def test_weights_whose_sum_is_negative(how):
    class RowNorm(Net):
        def forward(self, x, edge_index, edge_weight):
            row, col = edge_index
            sums = scatter(edge_weight, col, 0, x.size(0), "sum")
            inverse = 1 / sums
            if how == "masked":
                inverse = inverse.masked_fill(inverse == float("inf"), 0.0)
            else:
                inverse = torch.where(sums == 0, torch.zeros_like(sums), inverse)
            return scatter((inverse[col] * edge_weight)[:, None] * self.lin(x)[row], col, 0, x.size(0))

    check(RowNorm(), weighted=True)


def test_a_module_stays_as_it_is_whatever_it_holds():
    seen: list[torch.Tensor] = []
    patched, hooked = Net(plain).train(), Net(plain).train()
    original = patched.forward
    patched.forward = types.MethodType(lambda self, x, edge_index: original(x, edge_index) * 5, patched)
    hooked.register_forward_hook(lambda module, given, result: seen.append(result))
    hooked.lin.register_forward_hook(lambda module, given, result: hooked.norm(result))
    for module in (patched, hooked):
        before = copy.deepcopy(module.state_dict())
        Model.from_pyg(module)
        assert module.training
        assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert not seen
    assert check(Net(plain)).steps


def test_weights_that_are_made_of_others_are_copied():
    module = Net(lambda net, x, e: net.conv(net.lin(x), e))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        module.lin = weight_norm(module.lin)
    module.lin(torch.from_numpy(X))
    check(module)


def test_random_numbers_are_as_they_were():
    def draws() -> tuple[float, float]:
        return float(np.random.rand()), float(torch.rand(()))

    def seed() -> None:
        np.random.seed(1)
        torch.manual_seed(1)

    module = Net(lambda net, x, e: net.conv(x, e) + 0 * float(np.random.rand()))
    seed()
    expected = draws()
    seed()
    Model.from_pyg(module)
    assert draws() == expected


def test_modules_of_generated_code_do_not_share_it():
    layers = [(pyg.GCNConv(WIDTH, 3), "x, edge_index -> x")]
    for more in ([], [(nn.Linear(3, 2), "x -> x")], [nn.ReLU(inplace=True)]):
        check(pyg.Sequential("x, edge_index", layers + more))


def test_settings_of_torch_are_left_aside():
    module = Net(plain)
    torch.set_default_dtype(torch.float64)
    try:
        with torch.inference_mode(), torch.autocast("cpu"):
            model = Model.from_pyg(module)
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert model.tensors.keys() == Model.from_pyg(module).tensors.keys()


def test_refusals_are_silent(capfd):
    with pytest.raises(ModelError):
        Model.from_pyg(Net(lambda net, x, e: net.lin(x) if e.max() > x.size(0) else net.conv(x, e)))
    assert capfd.readouterr() == ("", "")


def test_a_structured_trace_is_left_to_those_who_ask_for_it():
    """Whoever listens hears of an import; torch's own handler hears that nobody asks, and removes itself."""
    heard: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record):
            heard.append(record.getMessage())

    logger, listener = logging.getLogger("torch.__trace"), Listener()
    logger.addHandler(listener)
    try:
        Model.from_pyg(Net(lambda net, x, e: net.conv(x, e)))
    finally:
        logger.removeHandler(listener)
    assert heard
    assert [type(one).__name__ for one in logger.handlers if "Lazy" in type(one).__name__] == []


def test_a_category_may_stand_among_features():
    """In a column of floats, as data from tables have it."""

    class Categories(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.embedding, self.conv = nn.Embedding(3, 4), pyg.SAGEConv(WIDTH + 3, 2)

        def forward(self, x, edge_index):
            rows = torch.cat([self.embedding(x[:, 0].long()), x[:, 1:]], dim=1)
            return self.conv(rows, edge_index)

    module = Categories().eval()
    x = X.copy()
    x[:, 0] = [2, 0, 1, 2]
    graph = Graph.from_edges(SOURCE, TARGET, x=x)
    got = Engine(graph, Model.from_pyg(module)).predict(np.arange(4))
    expected = module(torch.from_numpy(x), torch.tensor([SOURCE, TARGET])).detach()
    np.testing.assert_allclose(got, expected.numpy(), rtol=1e-4, atol=1e-5)


def test_a_prediction_reads_a_feature():
    with pytest.raises(ModelError, match="a model must read one"):
        Model.from_pyg(Net(lambda net, x, e: degree(e[1], x.size(0))[:, None]), in_channels=WIDTH)


class Squashed(pyg.MessagePassing):
    """Messages that depend on the weight in another way than by a product."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(WIDTH, 3)

    def forward(self, x, edge_index, edge_weight=None):
        weight = x.new_ones(edge_index.shape[1]) if edge_weight is None else edge_weight
        return self.propagate(edge_index, x=self.lin(x), weight=weight)

    def message(self, x_j, weight):
        return x_j * weight.sigmoid().view(-1, 1)


@pytest.mark.parametrize(
    "make",
    [lambda: pyg.GCNConv(WIDTH, 3), lambda: pyg.GraphConv(WIDTH, 3), Squashed],
    ids=["gcn", "graph", "own"],
)
def test_weights_that_a_graph_lacks_are_not_made_up_in_silence(make, caplog):
    """Each edge counts 1, which the log says; doing what it says makes it quiet."""
    torch.manual_seed(0)
    module = make().eval()
    model = Model.from_pyg(module)

    def said(graph: Graph, model: Model) -> list[str]:
        caplog.clear()
        got = Engine(graph, model).predict(np.arange(4))
        weight = None if graph.schema.edge_types["node", "to", "node"].weighted is False else abs(WEIGHT)
        ends = torch.tensor([SOURCE, TARGET])
        given = () if weight is None else (torch.from_numpy(weight),)
        expected = module(torch.from_numpy(X), ends, *given).detach().numpy()
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
        return [record.getMessage() for record in caplog.records]

    bare = Graph.from_edges(SOURCE, TARGET, x=X)
    (warning,) = said(bare, model)
    assert (
        "reads weights of edges of type ('node', 'to', 'node'), and the graph has none: each counts 1"
        in warning
    )
    assert said(Graph.from_edges(SOURCE, TARGET, x=X, weight=abs(WEIGHT)), model) == []
    assert said(bare, Model.from_pyg(module, edge_weight=False)) == []


class FarFromZero(nn.Module):
    """A variance that rounds more in PyG than as it is imported."""

    def __init__(self, *, by_hand: bool) -> None:
        super().__init__()
        self.mean, self.variance, self.by_hand = pyg.SimpleConv("mean"), pyg.SimpleConv("var"), by_hand

    def forward(self, x, edge_index):
        x = x + 3000.0
        if not self.by_hand:
            return self.variance(x, edge_index)
        mean = self.mean(x, edge_index)
        return self.mean(x * x, edge_index) - mean * mean


@pytest.mark.parametrize("by_hand", [False, True])
def test_a_module_that_rounds_more_than_its_model_is_imported(by_hand):
    model = Model.from_pyg(FarFromZero(by_hand=by_hand), in_channels=WIDTH)
    assert model.width(model.output) == WIDTH
