"""What cannot be served is refused, with the line of the module; nothing is read as something else."""

import re

import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg

from imported_modules import EDGE, EDGES, NODE, X, double
from layered_modules import Written, add
from livegnn.errors import ModelError
from livegnn.importers.program.export import Given, MethodCall, export_module
from livegnn.importers.reading.reader import read

OTHER = torch.tensor([[0, 1, 2], [1, 2, 0]])


def node_id(x, e):
    return x + torch.arange(x.size(0)).view(-1, 1).to(x.dtype)


def even_nodes(x, e):
    return torch.where((torch.arange(x.size(0)) % 2 == 0).view(-1, 1), x, -x)


def edge_id(x, e):
    return add(x[e[0]] * e[0].view(-1, 1).to(x.dtype), e[1], x)


def ordered_ends(x, e):
    kept = e[:, e[0] < e[1]]
    return add(x[kept[0]], kept[1], x)


def dense_adjacency(x, e):
    dense = x.new_zeros(x.size(0), x.size(0))
    dense[e[1], e[0]] = 1.0
    return dense @ x


def all_pairs(x, e):
    return (x @ x.t()).softmax(dim=-1) @ x


def rolled(x, e):
    return x + x.roll(1, 0)


def sorted_rows(x, e):
    return x.sort(dim=0).values


def ranks(x, e):
    return x[x[:, 0].argsort()]


def top_rows(x, e):
    return x[x[:, 0].topk(2).indices]


def dropped_by_position(x, e):
    return add(x[e[0, 1:]], e[1, 1:], x)


def first_row(x, e):
    return x - x[0]


def rows_paired(x, e):
    return x.view(-1, 16)


def filtered_by_source(x, e):
    kept = e[:, x[e[0], 0] > 0]
    return add(x[kept[0]], kept[1], x)


def filtered_by_target(x, e):
    kept = e[:, x[e[1], 0] > 0]
    return add(x[kept[0]], kept[1], x)


def filtered_nodes(x, e):
    return x[x[:, 0] > 0]


def random_features(x, e):
    return add((x + torch.rand_like(x))[e[0]], e[1], x)


def random_dropout(x, e):
    return nn.functional.dropout(x, 0.5, training=True)


def product(x, e):
    return torch.ones_like(x).scatter_reduce(0, e[1].view(-1, 1).expand(-1, 8), x[e[0]], "prod")


def coalesced(x, e):
    kept = torch.unique(e, dim=1)
    return add(x[kept[0]], kept[1], x)


def running_sum(x, e):
    return x.cumsum(dim=0)


def one_more_row(x, e):
    return torch.cat([x, x.new_zeros(1, 8)], dim=0)


def branch_on_size(x, e):
    return x * 2 if x.size(0) > 10 else x


def branch_on_data(x, e):
    return x * 2 if x.sum() > 0 else x


def own_graph(x, e):
    return add(x[OTHER[0]], OTHER[1], x)


def a_number(x, e):
    return x.sum()


def a_row_for_all(x, e):
    return x.mean(dim=0, keepdim=True)


def nothing(x, e):
    return None


def half_precision(x, e):
    return x.half().relu()


def complex_numbers(x, e):
    return torch.fft.fft(x, dim=-1).real


def by_groups(x, e):
    return x.new_zeros(4, 8).index_add(0, e[1] % 4, x[e[0]])


def size_from_data(x, e):
    return x.new_zeros(int(e.max()) + 1, 8).index_add(0, e[1], x[e[0]])


def gathered_by_position(x, e):
    return x[(e[0] + 1) % x.size(0)]


def last_edge_decides(x, e):
    out = x.clone()
    out[e[1]] = x[e[0]]
    return out


def rows_times_rows(x, e):
    return x.t() @ x[e[0]]


def argmax(x, e):
    return x.argmax(dim=-1)


def argmax_of_all(x, e):
    return x[x[:, 0].argmax()]


def place_of_maximum(x, e):
    return x + x.max(dim=-1).indices.view(-1, 1)


def median(x, e):
    return x - x.median(dim=-1, keepdim=True).values


def asserted_rows(x, e):
    assert (x > 0).all()
    return x


def asserted_in_the_graph(x, e):
    torch._assert_async((x > 0).all())
    return x


def asserted_by_item(x, e):
    torch._check(bool((x > 0).all().item()))
    return x


def complex_rows(x, e):
    return torch.view_as_complex(x.view(-1, 4, 2)).abs()


def mask_and_number(x, e):
    return x.masked_select(x > 0)


def pairs_of_nodes(x, e):
    return (x @ x.t())[e[0], e[1]].view(-1, 1)


REFUSED = [
    *(
        node_id,
        even_nodes,
        edge_id,
        ordered_ends,
        dense_adjacency,
        all_pairs,
        rolled,
        sorted_rows,
        ranks,
    ),
    *(top_rows, dropped_by_position, first_row, rows_paired, filtered_by_source),
    *(filtered_by_target, filtered_nodes, random_features, random_dropout, product, coalesced, running_sum),
    *(
        one_more_row,
        branch_on_size,
        branch_on_data,
        own_graph,
        a_number,
        a_row_for_all,
        nothing,
        half_precision,
    ),
    *(
        complex_numbers,
        by_groups,
        size_from_data,
        gathered_by_position,
        rows_times_rows,
        last_edge_decides,
    ),
    *(argmax, argmax_of_all, place_of_maximum, median, asserted_rows, asserted_in_the_graph),
    *(asserted_by_item, complex_rows, mask_and_number, pairs_of_nodes),
]


@pytest.mark.parametrize("function", REFUSED, ids=lambda function: function.__name__)
def test_is_refused_with_its_line(function) -> None:
    with double(), pytest.raises(ModelError) as refused:
        read(export_module(Written(function), MethodCall((X, EDGES), {})))
    if refused.value.__cause__ is not None and "traced" not in str(refused.value):
        assert re.search(r"(layered_modules|test_importer_refusals)\.py:\d", str(refused.value))


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (argmax, "largest or smallest"),
        (place_of_maximum, "largest or smallest"),
        (median, "sorted"),
        (asserted_in_the_graph, "value is asserted"),
        (asserted_rows, "an assertion depends on data"),
        (asserted_by_item, "an assertion depends on data"),
        (branch_on_data, "way of its computation"),
    ],
    ids=lambda given: given.__name__ if callable(given) else "reason",
)
def test_the_reason_is_true(function, reason: str) -> None:
    with double(), pytest.raises(ModelError, match=reason) as refused:
        read(export_module(Written(function), MethodCall((X, EDGES), {})))
    assert f"{function.__name__}" not in reason
    assert ".py:" in str(refused.value)


def test_the_users_line_and_pygs_are_both_named() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = pyg.SAGEConv(8, 4, aggr="mul")

        def forward(self, x, edge_index):
            return self.conv(x, edge_index)

    with double(), pytest.raises(ModelError) as refused:
        read(export_module(Own(), MethodCall((X, EDGES), {})))
    assert "test_importer_refusals.py:" in str(refused.value)
    assert "self.conv(x, edge_index)" in str(refused.value)
    assert " by way of basic.py:" in str(refused.value)


def test_a_row_for_each_node_must_be_an_input() -> None:
    embedding = nn.Embedding(9, 8)

    def looked_up(x, e):
        return add(embedding.weight[e[0]], e[1], x)

    with double(), pytest.raises(ModelError, match=r"row for each node|not an end"):
        read(
            export_module(
                Written(looked_up), MethodCall((Given("x", NODE, (8,)), Given("e", EDGE, ends=True)), {})
            )
        )
