"""A trace that keeps what needs no decomposition is the trace that runs everything."""

import re

import pytest
import torch
from torch import fx, nn
from torch.export import Dim, export
from torch_geometric import nn as pyg

from livegnn.importers.program.decompositions import decompose


def masked(x, index):
    return x[index > 1].sum(0) + x


def scattered(x, index):
    return torch.zeros_like(x).scatter_add_(0, index.unsqueeze(1).expand_as(x), x).softmax(-1)


def sorted_rows(x, index):
    values, order = x.sort(dim=1)
    return values + order.max(dim=1, keepdim=True).values


def placed(x, index):
    return x[index.nonzero().squeeze(1)].amax(0) + x


def joined(x, index):
    return torch.cat([x, x.new_ones(x.shape[0], 1)], 1).view(-1, 2, 2).mean(1)


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = pyg.GATConv(3, 4, heads=2), pyg.GCNConv(8, 3)
        self.norm = nn.Sequential(nn.LayerNorm(3), nn.BatchNorm1d(3), nn.Linear(3, 3))

    def forward(self, x, index):
        edge_index = torch.stack([index, index.flip(0)])
        return self.norm(self.second(self.first(x, edge_index).relu(), edge_index))


class Calling(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x, index):
        return self.function(x, index)


def exported(function):
    rows = Dim("rows", min=2)
    example = torch.randn(6, 3), torch.tensor([2, 0, 1, 1, 3, 2])
    module = function() if isinstance(function, type) else Calling(function)
    return export(module.eval(), example, dynamic_shapes=({0: rows}, {0: rows}), strict=False)


def described(program, **options):
    """The graph, and the values of its nodes; symbols of sizes by the order in which they occur."""
    graph = decompose(program, **options)
    values = "\n".join(str(node.meta.get("val")) for node in graph.nodes)
    symbols = list(dict.fromkeys(re.findall(r"\bu\d+\b", values)))
    return str(graph), re.sub(r"\bu\d+\b", lambda found: f"symbol {symbols.index(found[0])}", values)


@pytest.mark.parametrize("function", [masked, scattered, sorted_rows, placed, joined, Layers])
def test_it_is_the_trace_that_runs_everything(function):
    program = exported(function)
    assert described(program, own=True) == described(program)


def test_few_operators_are_run(monkeypatch):
    run, interpret = [], fx.Interpreter.call_function
    monkeypatch.setattr(
        fx.Interpreter,
        "call_function",
        lambda self, target, *args: run.append(str(target)) or interpret(self, target, *args),
    )
    decompose(exported(Layers), own=True)
    assert "aten.linear.default" in run
    assert not {"aten.scatter_add.default", "aten.mul.Tensor", "aten.index_select.default"} & set(run)


def test_shapes_that_a_program_from_elsewhere_names_are_not_believed():
    program = exported(joined)
    true = described(program)
    nodes = {str(node.target): node for node in program.graph.nodes}
    nodes["aten.cat.default"].meta["val"] = nodes["aten.new_ones.default"].meta["val"]
    assert described(program, own=True) != true
    assert described(program) == true
