"""Functions that look like layers: each is read as it is, or refused with its line; none is read wrongly."""

import numpy as np
import pytest
import torch
from torch import nn

from imported_modules import EDGE, EDGES, GRAPHS, NODE, TYPE, Case, X, call, compute, double, draw
from livegnn.errors import ModelError
from livegnn.model.importer.classes import classify, words
from livegnn.model.importer.export import Given, export_module
from livegnn.model.importer.normal_form import normalize
from livegnn.model.importer.reader import read

OTHER = torch.tensor([[0, 1, 2], [1, 2, 0]])
MATRIX = torch.linspace(-1, 1, 64, dtype=torch.float64).reshape(8, 8)


class Written(nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def add(rows, index, like):
    return torch.zeros_like(like).index_add(0, index, rows)


def largest(rows, index, nodes):
    wide = index.view(-1, *[1] * (rows.dim() - 1)).expand_as(rows)
    return rows.new_zeros(nodes, *rows.shape[1:]).scatter_reduce(0, wide, rows, "amax", include_self=False)


# Right, with what is reduced


def sum_of_sources(x, e):
    return add(x[e[0]], e[1], x)


def sum_over_sources(x, e):
    return add(x[e[1]], e[0], x)


def mean_by_reduce(x, e):
    index = e[1].view(-1, 1).expand(-1, x.size(1))
    return torch.zeros_like(x).scatter_reduce(0, index, x[e[0]], "mean", include_self=False)


def maximum(x, e):
    return largest(x[e[0]], e[1], x.size(0))


def maximum_with_own(x, e):
    index = e[1].view(-1, 1).expand(-1, x.size(1))
    return x.scatter_reduce(0, index, x[e[0]], "amax", include_self=True)


def second_hop(x, e):
    once = add(x[e[0]], e[1], x)
    return add(once[e[0]].relu(), e[1], x)


def squares(x, e):
    return add((x[e[0]] - x[e[1]]) ** 2, e[1], x)


def distances(x, e):
    far = (x[e[0]] - x[e[1]]).norm(dim=-1, keepdim=True)
    return add(far * x[e[0]], e[1], x)


def shift_without_mass(x, e):
    logit = x[e[0]] * x[e[1]]
    return add((logit - largest(logit, e[1], x.size(0))[e[1]]).exp(), e[1], x)


def wrong_maximum(x, e):
    logit = x[e[0]] * x[e[1]]
    shifted = (logit - largest(x[e[0]], e[1], x.size(0))[e[1]]).exp()
    return add(shifted, e[1], x) / (add(shifted, e[1], x) + 1.0)


def softmax(x, e):
    logit = (x[e[0]] * x[e[1]]).sum(-1, keepdim=True)
    weight = (logit - largest(logit, e[1], x.size(0))[e[1]]).exp()
    mass = add(weight, e[1], weight.new_zeros(x.size(0), 1)) + 1e-16
    return add(weight / mass[e[1]] * x[e[0]], e[1], x)


def softmax_of_another_mass(x, e):
    logit = (x[e[0]] * x[e[1]]).sum(-1, keepdim=True)
    weight = (logit - largest(logit, e[1], x.size(0))[e[1]]).exp()
    mass = add(weight, e[1], weight.new_zeros(x.size(0), 1)) + 0.1
    return add(weight / mass[e[1]] * x[e[0]], e[1], x)


def softmax_normalised_at_the_source(x, e):
    logit = (x[e[0]] * x[e[1]]).sum(-1, keepdim=True)
    weight = (logit - largest(logit, e[1], x.size(0))[e[1]]).exp()
    mass = add(weight, e[1], weight.new_zeros(x.size(0), 1)) + 1e-16
    return add(weight / mass[e[0]] * x[e[0]], e[1], x)


def centred(x, e):
    return add((x - x.mean(0))[e[0]], e[1], x)


def softmax_of_all(x, e):
    return add(x.softmax(dim=0)[e[0]], e[1], x)


def largest_of_all(x, e):
    return x / (1 + x.abs().amax(dim=0, keepdim=True))


def per_node(x, e):
    return add(x[e[0]], e[1], x) / x.size(0)


def both_directions(x, e):
    both = torch.cat([e, e.flip(0)], dim=1)
    return add(x[both[0]].tanh(), both[1], x)


def without_loops(x, e):
    kept = e[:, e[0] != e[1]]
    return add(x[kept[0]], kept[1], x)


def loops_alone(x, e):
    kept = e[:, e[0] == e[1]]
    return add(x[kept[0]], kept[1], x)


def own_loops(x, e):
    nodes = torch.arange(x.size(0))
    both = torch.cat([e, torch.stack([nodes, nodes])], dim=1)
    return add(x[both[0]] * 0.5, both[1], x)


def channel_set_in_place(x, e):
    x = x.clone()
    x[:, 0] = 0
    return add(x[e[0]], e[1], x)


def input_changed_in_place(x, e):
    x = x + 0
    x += 1
    x.mul_(2)
    return add(x[e[0]], e[1], x)


def degree_as_feature(x, e):
    degree = add(x.new_ones(e.size(1)), e[1], x[:, 0])
    return torch.cat([x, degree.view(-1, 1)], dim=1)


def log_degree(x, e):
    degree = add(x.new_ones(e.size(1)), e[1], x[:, 0])
    return add(x[e[0]] * (degree + 1).log()[e[1]].view(-1, 1), e[1], x)


def product_of_sums(x, e):
    return add(x[e[0]], e[1], x) * add(x[e[0]].relu(), e[1], x)


def chosen_by_feature(x, e):
    return add(torch.where(x[e[0]] > 0, x[e[0]], -x[e[0]]), e[1], x)


def weighed_by_target_channels(x, e):
    return add((x[e[0]] * x[e[1]]) @ MATRIX, e[1], x)


def target_outside_linear(x, e):
    return add((x[e[0]] * x[e[1]][:, :1]) @ MATRIX, e[1], x)


def channels_regrouped(x, e):
    grouped = x.view(-1, 4, 2).transpose(1, 2).reshape(-1, 8)
    return add(grouped[e[0]], e[1], x)


def chunks(x, e):
    a, b = x.chunk(2, dim=-1)
    return add(torch.cat([a[e[0]], b[e[1]]], dim=-1), e[1], x)


def minimum_of_difference(x, e):
    return -largest(x[e[1]] - x[e[0]], e[1], x.size(0))


def maximum_of_falling(x, e):
    return largest(-(x[e[0]].relu()), e[1], x.size(0))


def divided_by_source(x, e):
    return add(x[e[1]] / (1 + x[e[0]].abs()), e[1], x)


def divided_by_both(x, e):
    return add(x[e[0]] / (2 + x[e[0]].sin() + x[e[1]].sin()), e[1], x)


def divided_by_degree_of_target(x, e):
    degree = add(x.new_ones(e.size(1)), e[1], x[:, 0])
    return add(x[e[0]] / degree[e[1]].view(-1, 1), e[1], x)


def power_of_degree_of_target(x, e):
    degree = add(x.new_ones(e.size(1)), e[1], x[:, 0])
    return add(x[e[0]] * degree.pow(-0.5)[e[1]].view(-1, 1), e[1], x)


def log_of_target(x, e):
    degree = add(x.new_ones(e.size(1)), e[1], x[:, 0])
    return add(x[e[0]] + degree.log()[e[1]].view(-1, 1), e[1], x)


def added_alpha(x, e):
    return torch.add(x, add(x[e[0]], e[1], x), alpha=0.3)


def everything_to_one_channel(x, e):
    return add(x[e[0]].sum(dim=-1, keepdim=True).expand(-1, 8) * x[e[0]], e[1], x)


def by_type(x, e, t):
    kept = e[:, t == 1]
    return add(x[kept[0]], kept[1], x)


def table_by_type(x, e, t):
    return add(x[e[0]] * MATRIX[t], e[1], x)


RIGHT = {
    sum_of_sources: ["sum source"],
    sum_over_sources: ["sum source"],
    mean_by_reduce: ["sum source"],
    maximum: ["max source"],
    maximum_with_own: ["max source"],
    second_hop: ["sum source"],
    squares: ["sum source"],
    distances: ["sum reads target"],
    shift_without_mass: ["max reads target", "sum reads target"],
    wrong_maximum: ["max source", "sum reads target"],
    softmax: ["softmax sum, dot logit source+target, value source"],
    softmax_of_another_mass: ["max reads target", "sum reads target"],
    softmax_normalised_at_the_source: ["max reads target", "sum reads target"],
    centred: ["global sum", "sum source"],
    softmax_of_all: ["global max", "global sum", "sum source"],
    largest_of_all: ["global max"],
    per_node: ["global sum", "sum source"],
    both_directions: ["sum source"],
    without_loops: ["sum source"],
    loops_alone: ["sum source"],
    own_loops: ["sum source"],
    channel_set_in_place: ["sum source"],
    input_changed_in_place: ["sum source"],
    degree_as_feature: [],
    log_degree: ["sum source"],
    product_of_sums: ["sum source"],
    chosen_by_feature: ["sum source"],
    weighed_by_target_channels: ["sum source"],
    target_outside_linear: ["sum source"],
    channels_regrouped: ["sum source"],
    chunks: ["sum source"],
    minimum_of_difference: ["max source"],
    maximum_of_falling: ["max source"],
    divided_by_source: ["sum source"],
    divided_by_both: ["sum reads target"],
    divided_by_degree_of_target: ["sum source"],
    power_of_degree_of_target: ["sum source"],
    log_of_target: ["sum source"],
    added_alpha: ["sum source"],
    everything_to_one_channel: ["sum source"],
    by_type: ["sum source"],
    table_by_type: ["sum f(source,edge)"],
}


@pytest.mark.parametrize("function", RIGHT, ids=lambda function: function.__name__)
def test_is_read_as_it_is(function) -> None:
    args = (X, EDGES, TYPE) if function in (by_type, table_by_type) else (X, EDGES)
    case = Case(lambda: Written(function), (), args)
    with double():
        program = read(export_module(Written(function), args, {}))
        normal = normalize(program.make, program.rows)
        for i, kind in enumerate(GRAPHS):
            graph = draw(case, kind, i)
            expected = call(Written(function), case, graph)
            for rows in (program.rows, normal):
                for got, right in zip(compute(program, rows, graph), expected, strict=True):
                    np.testing.assert_allclose(got, right, rtol=1e-11, atol=1e-11, err_msg=kind)
    assert words(classify(program.make, normal)) == RIGHT[function]


# Refused


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


def rows_times_rows(x, e):
    return x.t() @ x[e[0]]


def a_list_of_names(x, e):
    return {"rows": x, "name": 3}


REFUSED = [
    *(
        node_id,
        even_nodes,
        edge_id,
        ordered_ends,
        dense_adjacency,
        all_pairs,
        rolled,
        flipped,
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
    *(complex_numbers, by_groups, size_from_data, gathered_by_position, rows_times_rows, a_list_of_names),
]


@pytest.mark.parametrize("function", REFUSED, ids=lambda function: function.__name__)
def test_is_refused_with_its_line(function) -> None:
    with double(), pytest.raises(ModelError) as refused:
        read(export_module(Written(function), (X, EDGES), {}))
    if refused.value.__cause__ is not None and "traced" not in str(refused.value):
        assert "test_importer_adversarial.py:" in str(refused.value)


def test_a_row_for_each_node_must_be_an_input() -> None:
    embedding = nn.Embedding(9, 8)

    def looked_up(x, e):
        return add(embedding.weight[e[0]], e[1], x)

    with double(), pytest.raises(ModelError, match=r"row for each node|no end"):
        read(export_module(Written(looked_up), (Given("x", NODE, (8,)), Given("e", EDGE, ends=True)), {}))
