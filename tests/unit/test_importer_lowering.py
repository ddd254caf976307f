"""Models that importing makes say what their modules say, by the oracle and by the engine."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch_geometric import nn as pyg
from torch_geometric.data import Data

import livegnn as lg
from gate import draws, share
from imported_mirror import Mirror, held
from imported_modules import (
    ALL_MODULES,
    CASES,
    GRAPHS,
    NAMES,
    call,
    draw,
    fresh,
    imported,
    in_one_process,
)
from livegnn.errors import ModelError
from livegnn.importers.assembly import assemble
from livegnn.model import Model
from livegnn.oracle import reference

GLOBAL = (
    "every row of the graph",
    ["GINm", "PairNorm", "InstanceNorm", "GraphNorm", "HAN", "pmlp.py", "Cheb"],
)
"""What is refused, and the modules that are: they reduce over all nodes."""


NAMED = [NAMES if ALL_MODULES else share(NAMES, part) for part in range(2)]


def lowered(name: str) -> Model:
    program = imported(name).program
    return assemble(program, output=list(program.outputs)).model


@pytest.mark.parametrize("name", in_one_process(NAMED[0]))
def test_the_steps_say_what_the_module_says(name: str) -> None:
    if name in GLOBAL[1]:
        with pytest.raises(ModelError, match=GLOBAL[0]):
            lowered(name)
        return
    model, case = lowered(name), CASES[name]
    for i, kind in enumerate(GRAPHS):
        graph = draw(case, kind, i)
        expected = call(fresh(name), case, graph)
        values = reference.compute(model, SimpleNamespace(**held(imported(name).program, graph)))
        for value, rows in zip(model.outputs.values(), expected, strict=True):
            # Weights are float32 in a model, and the module's are not.
            scale = max(1e-3, float(rows.abs().max()))
            np.testing.assert_allclose(
                values[value], rows.reshape(len(rows), -1), rtol=0, atol=2e-6 * scale, err_msg=kind
            )


@pytest.mark.parametrize(
    "name",
    in_one_process([name for name in NAMED[1] if name not in GLOBAL[1]]),
)
def test_the_engine_says_what_the_module_says(name: str) -> None:
    """Batches of every kind of event, what-if, a checkpoint and a restart, with all rows kept or few."""
    module = imported(name)
    mirror = Mirror(module.case, module.program, lowered(name), lambda: fresh(name), seed=3)
    engine = lg.Engine(mirror.graph, mirror.model)
    mirror.assert_exact(engine)
    for _ in range(draws(3, 6)):
        events = mirror.events()
        type_of = mirror.model.node_type(mirror.model.output)
        removed = [(chunk.type, chunk.ids) for chunk in events.chunks if chunk.kind == "remove_nodes"]
        stay = mirror.graph.snapshot().ids[type_of]
        for kind, ids in removed:
            stay = np.setdiff1d(stay, ids) if kind == type_of else stay
        asked = engine.what_if(events).predict(stay)
        engine.apply(events)
        np.testing.assert_array_equal(asked, engine.predict(stay))
        mirror.assert_exact(engine)
    for settings in ({"keep": "aggregates"}, {"mode": "lazy"}):
        mirror.assert_exact(lg.Engine(mirror.graph, mirror.model, **settings))
    mirror.assert_exact(lg.Engine(mirror.graph, mirror.model, state=engine.state()))


@pytest.mark.parametrize("when", ["message", "propagate", "aggregate"])
def test_hooks_of_layers_are_a_part_of_the_module(when: str) -> None:
    conv = pyg.SAGEConv(4, 3)
    getattr(conv, f"register_{when}_forward_hook")(lambda module, inputs, output: 2 * output)
    data = Data(torch.randn(5, 4), torch.tensor([[0, 1, 2, 2], [1, 2, 3, 0]]))
    engine = lg.Engine(lg.Graph.from_pyg(data), lg.Model.from_pyg(conv))
    np.testing.assert_allclose(
        engine.predict(range(5)), conv(data.x, data.edge_index).detach(), rtol=1e-5, atol=1e-6
    )


def test_aggregates_of_one_message_on_edges_are_one_pass() -> None:
    """PNA's: sums in one, extrema in another, squared distances from the mean in a third; rows of nodes stay
    apart.
    """
    aggregators, scalers = ["mean", "min", "max", "std"], ["identity", "amplification"]
    passes = {}
    for layers in (1, 2):
        conv = pyg.PNAConv(4, 4, aggregators, scalers, torch.tensor([1, 3, 5]), pre_layers=layers)
        model = Model.from_pyg(conv)
        passes[layers] = [step.attrs["aggregate"] for step in model.steps if step.op == "propagate"]
    assert sorted(passes[2]) == ["max", "sum", "sum"]
    assert sorted(passes[1]) == ["max", "min", "sum", "sum"]
