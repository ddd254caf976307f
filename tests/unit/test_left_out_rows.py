"""Rows of nodes are left out only if somebody says so, or if they make no other prediction."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.data import Data

from gate import draws
from livegnn import Engine, Graph, Model, ModelError

NODES, WIDTH, HIDDEN = 6, 3, 5
RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((NODES, WIDTH)).astype(np.float32)
SOURCE, TARGET = np.array([0, 1, 2, 3, 4, 5, 0]), np.array([2, 2, 3, 0, 1, 4, 5])
EDGE_INDEX = torch.from_numpy(np.stack([SOURCE, TARGET]))

Use = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Net(nn.Module):
    """Two layers. place: where something is done with the rows that may be left out, and does: what."""

    def __init__(self, place: str, does: Use) -> None:
        super().__init__()
        self.first, self.second = pyg.SAGEConv(WIDTH, HIDDEN), pyg.SAGEConv(HIDDEN, 4)
        self.place, self.does = place, does

    def use(self, place: str, rows: torch.Tensor, more: torch.Tensor | None) -> torch.Tensor:
        return self.does(rows, more) if more is not None and place == self.place else rows

    def through(self, x: torch.Tensor, edge_index: torch.Tensor, more: torch.Tensor | None) -> torch.Tensor:
        h = self.first(self.use("features", x, more), edge_index)
        h = self.second(self.use("hidden", h.tanh(), more), edge_index)
        return self.use("result", h, more)


def named(name: str, place: str, does: Use) -> Net:
    """A network whose rows of nodes that may be left out have this name."""
    space: dict[str, object] = {}
    exec(f"def forward(self, x, edge_index, {name}=None): return self.through(x, edge_index, {name})", space)
    torch.manual_seed(0)
    return type("Net", (Net,), {"forward": space["forward"]})(place, does).eval()


def rows_of(kind: str, width: int) -> tuple[torch.Tensor, tuple[object, ...]]:
    """Rows of the nodes, and how `inputs` says what they are."""
    random = torch.Generator().manual_seed(1)
    if kind == "float":
        return torch.rand(NODES, generator=random), ("node",)
    if kind == "wide":
        return torch.rand(NODES, width, generator=random), ("node", width)
    truth = torch.arange(NODES) % 3 == 0
    return (truth, ("node", bool)) if kind == "bool" else (truth.long(), ("node", int))


USES: dict[str, tuple[Use, tuple[str, ...]]] = {
    "scale": (lambda rows, more: rows * more[:, None], ("float", "bool", "int")),
    "add one": (lambda rows, more: rows + more[:, None].sin(), ("float", "bool", "int")),
    "add": (lambda rows, more: rows + more, ("wide",)),
    "gate": (lambda rows, more: rows * more.sigmoid(), ("wide",)),
    "mix": (lambda rows, more: 0.9 * rows + 0.1 * more, ("wide",)),
    "mask": (lambda rows, more: rows.masked_fill(more[:, None], 0.0), ("bool",)),
    "choose": (lambda rows, more: torch.where(more[:, None], rows, -rows), ("bool",)),
    "number": (lambda rows, more: rows + F.one_hot(more, rows.shape[1]), ("int",)),
    "table": (lambda rows, more: torch.stack([rows, -rows], 1)[torch.arange(len(rows)), more], ("int",)),
}
"""What is done with rows, and of which kinds they may be."""
NAMES = ("mask", "time", "x0", "x_0", "w", "pos", "feat", "z", "x_init", "node_attr", "weights_of_nodes")
PLACES = {"features": WIDTH, "hidden": HIDDEN, "result": 4}
CASES = [(use, kind) for use, (_, kinds) in USES.items() for kind in kinds]


@settings(max_examples=draws(3, 300))
@given(st.sampled_from(NAMES), st.sampled_from(list(PLACES)), st.sampled_from(CASES))
def test_rows_that_would_change_the_prediction_are_not_left_out_in_silence(name, place, case):
    """Doing what the refusal says removes it: the rows are read, or it is said that there are none."""
    use, kind = case
    net, (rows, said) = named(name, place, USES[use][0]), rows_of(kind, PLACES[place])
    says = rf"called without '{name}', .*inputs={{'{name}': .*'{name}': None}}"
    with pytest.raises(ModelError, match=says):
        Model.from_pyg(net)

    x = torch.from_numpy(X)
    both = np.concatenate([X, rows.reshape(NODES, -1).float().numpy()], axis=1)
    for inputs, held, more in (({name: said}, both, rows), ({name: None}, X, None)):
        engine = Engine(Graph.from_edges(SOURCE, TARGET, x=held), Model.from_pyg(net, inputs=inputs))
        expected = net(x, EDGE_INDEX, more).detach().numpy()
        np.testing.assert_allclose(engine.predict(np.arange(NODES)), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "place", "use", "says"),
    [
        ("time", "hidden", "scale", r"\('node',\)"),
        ("mask", "features", "mask", r"\('node', bool\)"),
        ("code", "result", "number", r"\('node', int\)"),
        ("x0", "hidden", "mix", r"\('node', channels\)"),
        ("x0", "features", "mix", r"\('node', channels\)"),
    ],
)
def test_a_refusal_says_what_the_rows_seem_to_be(name, place, use, says):
    with pytest.raises(ModelError, match=rf"rows of nodes make another prediction: .*'{name}': {says}}}"):
        Model.from_pyg(named(name, place, USES[use][0]))


def test_data_name_the_columns_that_the_rows_may_be():
    net, kept = named("mask", "features", USES["mask"][0]), torch.arange(NODES) % 2 == 0
    data = Data(x=torch.from_numpy(X), edge_index=EDGE_INDEX, train_mask=kept)
    with pytest.raises(
        ModelError, match=r"'mask', where rows of nodes .*a column of data, which has train_mask"
    ):
        Model.from_pyg(net, data)
    assert Model.from_pyg(net, data, inputs={"mask": "train_mask"}).width("x") == WIDTH + 1
    assert Model.from_pyg(net, data, inputs={"mask": None}).width("x") == WIDTH


@pytest.mark.parametrize("name", ["batch", "batch_size", "ptr", "size", "num_nodes", "h", "c", "H", "C"])
def test_what_is_left_out_as_a_rule_stays_so(name):
    assert Model.from_pyg(named(name, "hidden", lambda rows, more: rows + more)).width("x") == WIDTH


def refuse(rows: torch.Tensor, more: torch.Tensor) -> torch.Tensor:
    raise ValueError("there are none of these")


@pytest.mark.parametrize(
    "does",
    [
        lambda rows, more: rows,
        lambda rows, more: rows[more],
        lambda rows, more: rows[more != 0],
        lambda rows, more: F.cross_entropy(rows, more),
        lambda rows, more: (rows, F.cross_entropy(rows, more)),
        lambda rows, more: (F.cross_entropy(rows, more), rows),
        refuse,
    ],
    ids=["nothing", "chosen", "masked", "loss", "loss too", "loss first", "refused"],
)
def test_rows_that_make_no_other_prediction_may_be_left_out(does):
    assert Model.from_pyg(named("more", "result", does)).width("x") == WIDTH


class Kept(nn.Module):
    """Messages along some of the edges."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.GraphConv(WIDTH, 4)

    def forward(self, x, edge_index, kept):
        return self.conv(x, edge_index, torch.where(kept[:, 1], 1.0, 0.0))


def test_rows_of_edges_may_be_truths_too():
    torch.manual_seed(0)
    net, kept = Kept().eval(), torch.arange(2 * len(SOURCE)).reshape(-1, 2) % 3 == 0
    model = Model.from_pyg(net, inputs={"kept": ("edge", 2, bool)})
    graph = Graph.from_edges(SOURCE, TARGET, x=X, edge_attr=kept.numpy())
    expected = net(torch.from_numpy(X), EDGE_INDEX, kept).detach().numpy()
    np.testing.assert_allclose(Engine(graph, model).predict(np.arange(NODES)), expected, rtol=1e-4, atol=1e-5)


class Several(nn.Module):
    """Of two types of nodes. What may be left out has rows for each of them."""

    def __init__(self) -> None:
        super().__init__()
        convs = {("a", "to", "b"): pyg.SAGEConv((3, 2), 4), ("b", "of", "a"): pyg.SAGEConv((2, 3), 4)}
        self.conv = pyg.HeteroConv(convs)

    def forward(self, x_dict, edge_index_dict, more_dict=None):
        if more_dict is not None:
            x_dict = {key: x + more_dict[key] for key, x in x_dict.items()}
        return self.conv(x_dict, edge_index_dict)


def test_rows_of_nodes_of_several_types_are_not_left_out_in_silence():
    settings = {"metadata": (["a", "b"], [("a", "to", "b"), ("b", "of", "a")]), "output_type": "a"}
    with pytest.raises(ModelError, match=r"called without 'more_dict', where rows of nodes"):
        Model.from_pyg(Several(), **settings)
    assert Model.from_pyg(Several(), inputs={"more_dict": None}, **settings).inputs


class Alone(nn.Module):
    """Rows of nodes without edges."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(3, 2)

    def forward(self, x, more=None):
        return self.lin(x if more is None else x * more[:, None])


def test_rows_of_nodes_without_edges_are_not_left_out_in_silence():
    with pytest.raises(ModelError, match=r"called without 'more', where rows of nodes"):
        Model.from_pyg(Alone())


class Embedded(nn.Module):
    """Edges without rows of nodes: a parameter has them."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.conv = nn.Embedding(NODES, WIDTH), pyg.SAGEConv(WIDTH, 4)

    def forward(self, edge_index, more=None):
        x = self.table.weight
        return self.conv(x if more is None else x * more[:, None], edge_index)


def test_rows_of_nodes_beside_edges_alone_are_not_left_out_in_silence():
    settings = {"table.weight": "node"}
    with pytest.raises(ModelError, match=r"called without 'more', where rows of nodes"):
        Model.from_pyg(Embedded(), inputs=settings)
    assert Model.from_pyg(Embedded(), inputs={**settings, "more": None}).inputs
