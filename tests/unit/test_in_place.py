"""In-place operators are replaced only where nobody reads what was there before, or shares its memory."""

import pytest
import torch
from torch import fx, nn
from torch.export import Dim, export

from livegnn.importers.program import decompositions
from livegnn.importers.program.decompositions import decompose
from livegnn.importers.program.in_place import without_changes


def summed(x, index):
    return x.new_zeros(4, x.shape[1]).scatter_add_(0, index[:, None].expand(-1, x.shape[1]), x)


def inverse_roots(x, index):
    root = x.new_zeros(4).index_add(0, index, x[:, 0].abs()).pow_(-0.5)
    return root.masked_fill_(root == float("inf"), 0)


def read_before(x, index):
    y = x * 2
    before = y + 1
    y.mul_(3)
    return y + before


def viewed_before(x, index):
    y = x * 2
    flat = y.reshape(-1)
    y.add_(1)
    return flat * 2


def changed_through_a_view(x, index):
    y = x * 2
    y[:, 0].add_(1)
    return y


def changed_twice(x, index):
    y = torch.zeros_like(x)
    y.add_(x).mul_(x)
    return y - x


def itself(x, index):
    y = x.contiguous()
    y = y + 0 * y
    z = y.to(y.dtype)
    z.sub_(1)
    return y


def of_the_input(x, index):
    x.relu_()
    return x * 2


def of_whole_numbers(x, index):
    return x.new_zeros(4, dtype=torch.int64).scatter_add_(0, index, torch.ones_like(index))


def of_wider_numbers(x, index):
    return torch.zeros_like(x).add_(x.double() * 3) / 7


REPLACED = (summed, inverse_roots, read_before, changed_twice, of_whole_numbers)
KEPT = (viewed_before, changed_through_a_view, itself, of_the_input, of_wider_numbers)


class Calling(nn.Module):
    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x, index):
        return self.function(x, index)


def exported(function):
    rows = Dim("rows", min=2, max=1000)
    example = (torch.randn(7, 3), torch.randint(4, (7,)))
    return export(Calling(function), example, dynamic_shapes=({0: rows}, {0: rows}), strict=False)


@pytest.mark.parametrize("function", [*REPLACED, *KEPT])
def test_a_program_does_what_it_did(function, monkeypatch):
    ways = []
    trace = decompositions._trace
    monkeypatch.setattr(
        decompositions,
        "_trace",
        lambda *args, functionalize=False, retracing=False: (
            ways.append(functionalize) or trace(*args, functionalize=functionalize)
        ),
    )
    program = exported(function)
    graph = decompose(program)
    assert ways == [function in KEPT]
    assert not [node for node in graph.nodes if "_." in str(node.target)]
    for rows in (2, 5, 20):
        x, index = torch.randn(rows, 3), torch.randint(4, (rows,))
        got, *_ = fx.Interpreter(fx.GraphModule(nn.Module(), graph)).run(x.clone(), index)
        torch.testing.assert_close(got, function(x.clone(), index), rtol=0, atol=0)


def test_the_program_itself_stays_as_it_was():
    program = exported(summed)
    before = [str(node.target) for node in program.graph.nodes]
    decompose(program)
    assert [str(node.target) for node in program.graph.nodes] == before


def test_a_graph_within_the_graph_is_left_alone():
    graph = fx.Graph()
    graph.output(graph.call_module("inner", ()))
    assert not without_changes(graph)
