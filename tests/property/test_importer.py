"""Random modules of gathers, scatters, linear maps, activations and reductions are read as they are."""

import copy
import os
from types import SimpleNamespace

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import livegnn as lg
from gate import draws
from imported_mirror import Mirror, held
from imported_modules import EDGES, GRAPHS, WEIGHT, Case, X, call, compute, double, draw
from livegnn.importers.assembly import assemble
from livegnn.importers.program.export import MethodCall, export_module
from livegnn.importers.reading.reader import read
from livegnn.importers.rules.normal_form import normalize
from livegnn.importers.rules.propagation_kinds import classify
from livegnn.oracle import reference

WIDTH = 8
MODULES = int(os.environ.get("LIVEGNN_IMPORT_CASES", draws(5, 12)))

activations = st.sampled_from(["relu", "tanh", "sigmoid", "leaky_relu", "sin", "neg", "square", "softmax"])
messages = st.sampled_from(
    ["source", "target", "sum", "difference", "product", "weighed", "joined", "linear sum", "scaled", "gated"]
)
reductions = st.sampled_from(["sum", "mean", "amax", "amin", "softmax", "std"])
flows = st.sampled_from(["all", "no loops", "reversed", "both", "own loops"])
layers = st.tuples(messages, st.lists(activations, max_size=2), reductions, flows)


class Random(nn.Module):
    """Layers as a drawing tells; widths stay the same."""

    def __init__(self, drawn, seed: int) -> None:
        super().__init__()
        self.drawn = drawn
        torch.manual_seed(seed)
        self.linear = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in drawn)
        self.joint = nn.ModuleList(nn.Linear(2 * WIDTH, WIDTH) for _ in drawn)

    def forward(self, x, edge_index, edge_weight):
        for (message, functions, reduction, flow), linear, joint in zip(
            self.drawn, self.linear, self.joint, strict=True
        ):
            edges, weight = self.flow(flow, edge_index, edge_weight, x.size(0))
            rows = self.message(message, x[edges[0]], x[edges[1]], weight.view(-1, 1), linear, joint)
            for function in functions:
                rows = self.activate(function, rows)
            x = x + self.reduce(reduction, rows, edges[1], x, linear)
        return x

    @staticmethod
    def flow(flow, edges, weight, nodes):
        own = torch.arange(nodes)
        if flow == "no loops":
            kept = edges[0] != edges[1]
            return edges[:, kept], weight[kept]
        if flow == "reversed":
            return edges.flip(0), weight
        if flow == "both":
            return torch.cat([edges, edges.flip(0)], dim=1), torch.cat([weight, weight])
        if flow == "own loops":
            loops = torch.stack([own, own])
            return torch.cat([edges, loops], dim=1), torch.cat([weight, weight.new_ones(nodes)])
        return edges, weight

    @staticmethod
    def message(kind, a, b, w, linear, joint):
        if kind == "joined":
            return joint(torch.cat([a, b - a], dim=-1))
        if kind == "linear sum":
            return linear(a + b)
        if kind == "scaled":
            return linear(a) * b[:, :1]
        if kind == "gated":
            return torch.sigmoid(linear(b)) * a
        plain = {
            "source": a,
            "target": b,
            "sum": a + b,
            "difference": a - b,
            "product": a * b,
            "weighed": w * a,
        }
        return plain[kind]

    @staticmethod
    def activate(function, x):
        if function == "leaky_relu":
            return nn.functional.leaky_relu(x, 0.2)
        if function == "softmax":
            return x.softmax(dim=-1)
        return getattr(torch, function)(x)

    @staticmethod
    def reduce(kind, rows, index, x, linear):
        wide = index.view(-1, 1).expand_as(rows)

        def total(rows):
            return torch.zeros_like(x).scatter_add(0, wide, rows)

        number = total(torch.ones_like(rows)).clamp(min=1)
        if kind == "mean":
            return total(rows) / number
        if kind == "std":
            mean = total(rows) / number
            return ((total(rows * rows) / number - mean * mean).clamp(min=0) + 1).sqrt()
        if kind == "softmax":
            largest = torch.zeros_like(x).scatter_reduce(0, wide, rows, "amax", include_self=False)
            weight = (rows - largest[index]).exp()
            return total(weight / (total(weight) + 1e-16)[index] * linear(x)[index].tanh())
        if kind in ("amax", "amin"):
            return torch.zeros_like(x).scatter_reduce(0, wide, rows, kind, include_self=False)
        return total(rows)


@settings(max_examples=MODULES)
@given(st.lists(layers, min_size=1, max_size=2), st.integers(0, 2**16))
def test_random_modules_equal_themselves(drawn, seed: int) -> None:
    with double():
        module = Random(drawn, seed)
        args = (X, EDGES, WEIGHT)
        case = Case(lambda: module, (), args)
        program = read(export_module(module, MethodCall(args, {})))
        normal = normalize(program.make, program.rows)
        for i, kind in enumerate(GRAPHS):
            graph = draw(case, kind, seed + i)
            (expected,) = call(module, case, graph)
            for rows in (program.rows, normal):
                (got,) = compute(program, rows, graph)
                np.testing.assert_allclose(got, expected.detach(), rtol=1e-9, atol=1e-9, err_msg=kind)
        assert all(one.what and one.why for one in classify(program.make, normal))


@settings(max_examples=MODULES)
@given(st.lists(layers, min_size=1, max_size=2), st.integers(0, 2**16))
def test_random_modules_equal_their_models(drawn, seed: int) -> None:
    with double():
        module = Random(drawn, seed)
        for parameter in module.parameters():  # a model's weights are float32
            parameter.data = parameter.data.float().double()
        case = Case(lambda: module, (), (X, EDGES, WEIGHT))
        program = read(export_module(module, MethodCall(case.args, {})))
        model = assemble(program).model
        for i, kind in enumerate(GRAPHS):
            graph = draw(case, kind, seed + i)
            (expected,) = call(module, case, graph)
            values = reference.compute(model, SimpleNamespace(**held(program, graph)))[model.output]
            scale = max(1.0, float(expected.abs().max()))
            np.testing.assert_allclose(values, expected.detach(), rtol=0, atol=1e-6 * scale, err_msg=kind)
        mirror = Mirror(case, program, model, lambda: copy.deepcopy(module), seed)
        engine = lg.Engine(mirror.graph, model)
        for _ in range(3):
            engine.apply(mirror.events())
            mirror.assert_exact(engine)
