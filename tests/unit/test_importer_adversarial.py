"""Functions that look like layers, and are read as they are."""

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.data import Data

from imported_modules import EDGES, GRAPHS, LABELS, TYPE, Case, X, call, compute, double, draw
from layered_modules import MATRIX, Written, add, largest
from livegnn import Engine, Graph, Model
from livegnn.errors import ModelError
from livegnn.importers.program.export import MethodCall, export_module
from livegnn.importers.reading.reader import read
from livegnn.importers.rules.normal_form import normalize
from livegnn.importers.rules.propagation_kinds import classify, words

TABLE = torch.linspace(-1, 1, 72, dtype=torch.float64).view(3, 3, 8)

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


def input_itself_changed(x, e):
    x.mul_(2)
    return add(x[e[0]], e[1], x)


def embedding_of_degree(x, e):
    degree = torch.zeros(x.size(0), dtype=torch.int64).index_add(0, e[1], torch.ones_like(e[1]))
    return x + nn.functional.embedding(degree.clamp(max=7), MATRIX)


def degree_as_feature(x, e):
    degree = add(x.new_ones(e.size(1)), e[1], x[:, 0])
    return torch.cat([x, degree.view(-1, 1)], dim=1)


def loops_by_half(x, e):
    return add(torch.where((e[0] == e[1]).view(-1, 1), x[e[0]] * 0.5, x[e[0]]), e[1], x)


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


def among_equals(x, e, y):
    kept = e[:, y[e[0]] == y[e[1]]]
    return add(x[kept[0]], kept[1], x)


def table_by_type(x, e, t):
    return add(x[e[0]] * MATRIX[t], e[1], x)


def channel_of_each(x, e, y):
    return add(x[torch.arange(x.size(0)), y].view(-1, 1)[e[0]] * x[e[0]], e[1], x)


def channel_of_each_edge(x, e, t):
    return add(x[e[0], t].view(-1, 1) * x[e[1]], e[1], x)


def table_of_both_ends(x, e, y):
    return add(x[e[0]] * TABLE[y[e[0]], y[e[1]]], e[1], x)


def table_counted_from_its_end(x, e, t):
    return add(x[e[0]] * TABLE[t - 3, t], e[1], x)


def picked_by_gather(x, e, y):
    return add(x[e[0]] * x.gather(1, y.view(-1, 1))[e[0]], e[1], x)


def asserted_sizes(x, e):
    assert x.size(1) == 8
    assert e.size(0) == 2
    return add(x[e[0]], e[1], x)


RIGHT = {
    sum_of_sources: ["sum source"],
    sum_over_sources: ["sum source"],
    mean_by_reduce: ["sum source"],
    maximum: ["max source"],
    maximum_with_own: ["max source"],
    second_hop: ["sum source"],
    squares: ["sum reads target"],
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
    input_itself_changed: ["sum source"],
    embedding_of_degree: [],
    degree_as_feature: [],
    loops_by_half: ["sum f(source,edge)"],
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
    among_equals: ["sum reads target"],
    table_by_type: ["sum f(source,edge)"],
    channel_of_each: ["sum source"],
    channel_of_each_edge: ["sum f(source,edge)"],
    table_of_both_ends: ["sum reads target"],
    table_counted_from_its_end: ["sum f(source,edge)"],
    picked_by_gather: ["sum source"],
    asserted_sizes: ["sum source"],
}
ROWS_OF = {
    **dict.fromkeys((by_type, table_by_type, channel_of_each_edge, table_counted_from_its_end), TYPE),
    **dict.fromkeys((among_equals, channel_of_each, table_of_both_ends, picked_by_gather), LABELS),
}


@pytest.mark.parametrize("function", RIGHT, ids=lambda function: function.__name__)
def test_is_read_as_it_is(function) -> None:
    args = (X, EDGES, *([ROWS_OF[function]] if function in ROWS_OF else []))
    case = Case(lambda: Written(function), (), args)
    with double():
        program = read(export_module(Written(function), MethodCall(args, {})))
        normal = normalize(program.make, program.rows)
        for i, kind in enumerate(GRAPHS):
            graph = draw(case, kind, i)
            expected = call(Written(function), case, graph)
            for rows in (program.rows, normal):
                for got, right in zip(compute(program, rows, graph), expected, strict=True):
                    np.testing.assert_allclose(got, right, rtol=1e-11, atol=1e-11, err_msg=kind)
    assert words(classify(program.make, normal)) == RIGHT[function]


def test_a_module_that_reads_nothing_is_refused() -> None:
    class Constant(nn.Module):
        def forward(self, x, edge_index):
            return torch.ones(x.shape[0], 3)

    with pytest.raises(ModelError, match="the same for every graph"):
        Model.from_pyg(Constant(), Data(torch.randn(5, 2), torch.tensor([[0, 1], [1, 2]])))


class Overwriting(nn.Module):
    """Scales what it is called with where it lies, or takes its memory away, as reversible layers do."""

    def __init__(self, how) -> None:
        super().__init__()
        self.how = how

    def forward(self, x, edge_index, edge_weight):
        out = add(x[edge_index[0]] * edge_weight[:, None], edge_index[1], x)
        self.how(x, edge_weight)
        return out


@pytest.mark.parametrize(
    "how",
    [
        lambda x, weight: x.mul_(3),
        lambda x, weight: weight.zero_(),
        lambda x, weight: torch.compiler.is_compiling() or x.untyped_storage().resize_(0),
    ],
    ids=["its features", "its weights", "their memory"],
)
def test_what_a_module_does_to_its_inputs_is_no_matter(how) -> None:
    data = Data(torch.randn(5, 2), torch.tensor([[0, 1, 2, 2], [1, 2, 3, 0]]), edge_weight=torch.ones(4))
    before = data.clone()
    model = Model.from_pyg(Overwriting(how), data)
    assert torch.equal(data.x, before.x)
    assert torch.equal(data.edge_weight, before.edge_weight)
    engine = Engine(Graph.from_pyg(before), model)
    np.testing.assert_allclose(
        engine.predict(range(5)), Overwriting(lambda *_: None)(data.x, data.edge_index, data.edge_weight)
    )
