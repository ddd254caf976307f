"""Whatever the importer and `Model.from_convolutions` are told: a `ModelError` says what it must be."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch.export import Dim, ExportedProgram
from torch_geometric.data import Data, HeteroData, TemporalData

from livegnn import Graph, Model, ModelError, Schema
from livegnn.importers import settings
from livegnn.model import Convolution, explain_exported, explain_import

MODULE = pyg.GCN(3, 4, 2, 2).eval()
ENDS = torch.tensor([[0, 1, 2, 3, 4, 0, 1], [1, 2, 3, 4, 0, 2, 3]])
BUYS = ("user", "buys", "item")


def export(module: nn.Module, *args: object, **shapes: object) -> ExportedProgram:
    return torch.export.export(module.eval(), args, dynamic_shapes=shapes, strict=False)


@pytest.fixture(scope="module")
def program() -> ExportedProgram:
    return export(MODULE, torch.rand(5, 3), ENDS, x={0: Dim("n")}, edge_index={1: Dim("e")})


CALLS: dict[str, tuple[Callable[..., object], frozenset[str]]] = {
    "from_pyg": (
        lambda program, data=None, **told: Model.from_pyg(MODULE, data, **told),
        frozenset(
            [
                *("data", "inputs", "method", "output", "output_type", "node_type", "edge_type", "relations"),
                *("metadata", "edge_weight", "in_channels", "edge_channels", "groups"),
            ]
        ),
    ),
    "from_exported": (
        Model.from_exported,
        frozenset(["schema", "inputs", "output", "output_type", "node_type", "edge_type", "relations"]),
    ),
    "explain_import": (
        lambda program, data=None, **told: explain_import(MODULE, data, **told),
        frozenset(
            [
                *("data", "inputs", "method", "node_type", "edge_type", "relations"),
                *("metadata", "edge_weight", "in_channels", "edge_channels", "groups"),
            ]
        ),
    ),
    "explain_exported": (explain_exported, frozenset(["schema", "inputs", "node_type", "edge_type"])),
}
GRAPHS = {
    "number": 3,
    "text": "cora",
    "dict": {},
    "tensor": torch.rand(3, 3),
    "list": [Data()],
    "class": Schema,
    "times": TemporalData(),
    "nothing": HeteroData(),
}
CHANNELS = {
    "below": -1,
    "text": "8",
    "float": 8.0,
    "nan": float("nan"),
    "True": True,
    "list": [8],
    "tensor": torch.ones(2),
    "None in a dict": {"node": None},
    "text in a dict": {"node": "8"},
    "True in a dict": {"node": True},
}
NONSENSE: dict[str, dict[str, Any]] = {
    "data": GRAPHS,
    "schema": GRAPHS,
    "inputs": {
        "list": ["x"],
        "text": "x",
        "pairs": [("x", "node")],
        "number": 3,
        "a number as key": {3: "x"},
        "channels below 0": {"x": ("node", -1)},
        "a fraction of channels": {"x": ("node", 2.5)},
        "no channels": {"x": ("node", None)},
        "in a list": {"x": [("edge", -1)]},
    },
    "method": {"None": None, "number": 3, "function": MODULE.forward, "list": ["forward"]},
    "output": {
        "number": 0,
        "none": [],
        "no tuple": (),
        "twice": ["output", "output"],
        "numbers": [0, 1],
        "dict": {"output": 1},
        "set": {"output"},
        "bytes": b"output",
    },
    "output_type": {"number": 3, "list": ["node"], "edge type": BUYS},
    "node_type": {"None": None, "number": 3, "list": ["node"], "edge type": BUYS, "other": "user"},
    "edge_type": {
        "None": None,
        "number": 3,
        "text": "to",
        "three letters": "abc",
        "two": ("node", "node"),
        "four": ("node", "to", "to", "node"),
        "numbers": (1, 2, 3),
        "lists": (["node"], "to", "node"),
        "tensor": torch.ones(3),
    },
    "relations": {
        "none": [],
        "number": 3,
        "text": "abc",
        "one": ("node", "to", "node"),
        "pairs": [("node", "node")],
        "twice": [("node", "to", "node"), ["node", "to", "node"]],
        "a set": {("node", "to", "node")},
        "not taken": [("node", "to", "node")],
        "of others": [BUYS],
    },
    "metadata": {
        "number": 3,
        "text": "ab",
        "three": ([], [], []),
        "empty": ([], []),
        "texts": ("ab", ["abc"]),
        "text of edges": (["a"], ["aba"]),
        "numbers": ([1], []),
        "lists": ([["a"]], []),
        "None": (None, None),
        "edges alone": [BUYS],
    },
    "edge_weight": {
        "text": "yes",
        "number": 1,
        "texts": ["yes"],
        "one": BUYS,
        "dict": {("node", "to", "node"): False},
        "function": lambda edge_type: True,
    },
    "in_channels": {**CHANNELS, "zero": 0, "zero in a dict": {"node": 0}},
    "edge_channels": CHANNELS,
    "groups": {
        "list": ["x"],
        "text": "x",
        "number": 3,
        "a number as key": {3: "group"},
        "a number as type": {"x": 3},
        "two": {"x": ("node", "group")},
        "several of an argument": {"x": [("node", "in", "group")]},
        "none": {None: []},
        "of others": {None: BUYS},
        "of themselves": {None: "node"},
        "the module's edges": {None: ("node", "to", "node")},
        "two types": {None: [("node", "in", "group"), ("node", "in", "all")]},
        "not taken": {"merchant": "group"},
    },
}


@pytest.mark.parametrize(
    ("call", "argument", "given"),
    [
        pytest.param(call, argument, given, id=f"{call}-{argument}-{name}")
        for call, (_, takes) in CALLS.items()
        for argument in NONSENSE
        if argument in takes
        for name, given in NONSENSE[argument].items()
    ],
)
def test_what_is_no_such_argument(program: ExportedProgram, call: str, argument: str, given: Any) -> None:
    with pytest.raises(ModelError) as raised:
        CALLS[call][0](program, **{argument: given})
    message = str(raised.value)
    assert raised.value.__cause__ is None, "nothing was tried"
    assert "must" in message
    assert "got" in message or "takes no edge_type" in message
    assert argument in message


def test_every_argument_of_the_face_is_in_the_table() -> None:
    for name, face, plain in (
        ("from_pyg", Model.from_pyg, {"module"}),
        ("from_exported", Model.from_exported, {"program"}),
        ("explain_import", explain_import, {"module"}),
        ("explain_exported", explain_exported, {"program"}),
    ):
        takes = face.__code__.co_varnames[: face.__code__.co_argcount + face.__code__.co_kwonlyargcount]
        assert set(takes) - plain == CALLS[name][1]
        assert CALLS[name][1] <= set(NONSENSE)


def test_what_was_said_is_read_as_the_importer_needs_it() -> None:
    listed = list(BUYS)
    assert settings.to_edge_type(listed, "edge_type") == BUYS
    assert settings.to_relations([listed]) == (BUYS,)
    assert settings.to_edge_weight([listed]) == settings.to_edge_weight({BUYS}) == (BUYS,)
    assert settings.to_metadata([("user", "item"), [listed]]) == (["user", "item"], [BUYS])
    for absent in (settings.to_relations, settings.to_edge_weight, settings.to_metadata):
        assert absent(None) is None
    for told in (True, False):
        assert settings.to_edge_weight(told) is told
    for channels in (None, 1, 10**12, np.int64(3), {}, {"user": 3, BUYS: np.uint8(4)}):
        settings.check_channels(channels, "in_channels", 1)
    for inputs in (None, {}, {"x": ("node", 0)}, {"x": ("edge",)}, {"x": ("node", "x")}, {"t": 3, "u": BUYS}):
        settings.check_inputs(inputs)


def test_what_tells_types() -> None:
    graph, data = Graph(), HeteroData()
    data["user"].x = torch.rand(2, 3)
    assert settings.to_schema(graph, "data") is settings.to_schema(graph.schema, "data") is graph.schema
    for of_pyg in (data, Data()):
        assert settings.to_schema(of_pyg, "data") is of_pyg
    assert settings.to_schema(None, "data") is None
    with pytest.raises(ModelError, match=r"at least one edge type, got torch_geometric.*HeteroData"):
        settings.to_schema(data, "schema", edges=True)


def test_a_graph_can_be_explained_with() -> None:
    graph = Graph(Schema({"node": 3}))
    assert str(explain_import(MODULE, graph)) == str(explain_import(MODULE, graph.schema))


class Numbered(nn.Module):
    """Takes the numbers of relations."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.scale = pyg.GraphConv(3, 2), nn.Embedding(2, 1)

    def forward(self, x, edge_index, edge_type):
        return self.conv(x, edge_index, self.scale(edge_type).squeeze(1))


def test_relations_join_nodes_that_the_schema_has() -> None:
    edges = Dim("e")
    numbered = export(
        Numbered(),
        torch.rand(5, 3),
        ENDS,
        torch.zeros(7, dtype=torch.int64),
        x={0: Dim("n")},
        edge_index={1: edges},
        edge_type={0: edges},
    )
    relations = [("user", "likes", "user"), ("user", "knows", "user")]
    with pytest.raises(ModelError, match=r"join 'node' nodes .*say with node_type="):
        Model.from_exported(numbered, relations=relations)
    with pytest.raises(ModelError, match="node_type is 'user', which the schema lacks"):
        Model.from_exported(numbered, relations=relations, node_type="user", schema=Schema({"node": 3}))
    model = Model.from_exported(numbered, relations=[list(one) for one in relations], node_type="user")
    assert model.edge_types == tuple(relations)


def test_relations_are_refused_with_data_too() -> None:
    with pytest.raises(ModelError, match="takes no edge_type, so relations must not be given"):
        Model.from_pyg(MODULE, Schema({"node": 3}), relations=[("node", "to", "node")])


@pytest.mark.parametrize(
    ("shapes", "fixed", "size"),
    [
        ({"x": {0: Dim("n")}, "edge_index": None}, "edge_index", r"\(2, 7\)"),
        ({"x": None, "edge_index": {1: Dim("e")}}, "x", r"\(7, 3\)"),
        ({"x": None, "edge_index": None}, "x", r"\(7, 3\)"),
    ],
    ids=["edges", "nodes", "both"],
)
def test_sizes_that_are_fixed(shapes: dict[str, object], fixed: str, size: str) -> None:
    made = export(MODULE, torch.rand(7, 3), ENDS, **shapes)
    for read in (Model.from_exported, explain_exported):
        with pytest.raises(ModelError, match=f"exported for {fixed} of the fixed size {size}") as raised:
            read(made)
        assert "dynamic_shapes={'x': {0: Dim('nodes')}, 'edge_index': {1: Dim('edges')}}" in str(raised.value)


def test_a_column_is_a_name(program: ExportedProgram) -> None:
    with pytest.raises(ModelError, match=r"inputs\['x'\] must be .*got \('node', 3\)"):
        Model.from_exported(program, inputs={"x": ("node", 3)})


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"convolutions": Convolution()}, r"list of Convolution, got .*Convolution: give \[convolution\]"),
        ({"convolutions": 3}, "list of Convolution, got int"),
        ({"convolutions": [Convolution(), 3]}, "list of Convolution, got int in it"),
        ({"convolutions": [nn.Linear(3, 3)]}, "got torch.*Linear in it: Model.from_pyg"),
        ({"convolutions": []}, "must have a convolution"),
        ({"in_channels": "8"}, "in_channels must be a whole number of at least 1, got '8'"),
        ({"in_channels": 8.0}, "in_channels must be a whole number"),
        ({"in_channels": 0}, "in_channels must be a whole number"),
        ({"in_channels": True}, "in_channels must be a whole number"),
        ({"in_channels": {"node": 8}}, "in_channels must be a whole number"),
        ({"edge_dim": -1}, "edge_dim must be a whole number of at least 0"),
        ({"edge_dim": None}, "edge_dim must be a whole number of at least 0"),
        ({"edge_type": "to"}, "edge types must be"),
        ({"edge_type": 3}, "edge types must be"),
    ],
    ids=[
        "one convolution",
        "a number",
        "a number among them",
        "a layer of PyTorch",
        "none",
        "channels as text",
        "channels as a float",
        "no channels",
        "channels that are True",
        "channels by type",
        "features below 0",
        "features that are None",
        "an edge type that is text",
        "an edge type that is a number",
    ],
)
def test_convolutions(told: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        Model.from_convolutions(**{"convolutions": [Convolution()], "in_channels": 3, **told})


@pytest.mark.parametrize(
    ("version", "fits"), [("2.5.1", False), ("1.13", False), ("2.6.0+cu124", True), ("2.10", True)]
)
def test_a_torch_that_is_too_old_is_named(version, fits):
    if fits:
        settings.check_torch(version)
        return
    with pytest.raises(
        ModelError, match=r"needs PyTorch 2.6 or newer, got .*: upgrade it, or import the model"
    ):
        settings.check_torch(version)
