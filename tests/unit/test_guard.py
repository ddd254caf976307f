"""Batches after which a value would not be finite: refused with the node's name, or let through."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg

from livegnn import Engine, Events, Graph, InputError, Model
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import Runtime
from mirror import frozen

HUGE = np.full((1, 2), 3e38, np.float32)
ONES = np.ones((1, 2), np.float32)


class Sum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.SAGEConv(2, 2, aggr="sum")

    def forward(self, x, edge_index):
        return self.conv(x, edge_index)


def make_model() -> Model:
    module = Sum()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(0.5)
    return Model.from_pyg(module.eval())


def make_graph(*, text: bool = False) -> Graph:
    names = np.array(["a", "b", "c", "d"]) if text else np.arange(4)
    return Graph.from_edges(names[[0, 1, 2]], names[[2, 2, 3]], x=np.ones((4, 2), np.float32), ids=names)


def poison(*nodes: object) -> Events:
    """Two neighbours of the third node that together are more than float32 holds."""
    return Events().set_features(np.array(nodes), np.repeat(HUGE, len(nodes), axis=0))


@pytest.mark.parametrize("settings", [{}, {"keep": "aggregates"}, {"keep_degree": 2}])
def test_a_batch_is_refused_with_the_name_of_a_node_and_nothing_changes(settings):
    engine = Engine(make_graph(), make_model(), **settings)
    before = frozen(engine.state()), frozen(engine.graph.state())
    with pytest.raises(InputError, match=r"node 2 of type 'node' would be infinite or not a number"):
        engine.apply(poison(0, 1))
    assert (frozen(engine.state()), frozen(engine.graph.state())) == before
    with pytest.raises(InputError, match="node 2"):
        engine.what_if(poison(0, 1))
    assert engine.verify().ok


def test_texts_name_nodes_too():
    engine = Engine(make_graph(text=True), make_model())
    with pytest.raises(InputError, match="node 'c' of type 'node'"):
        engine.apply(poison("a", "b"))


def test_a_node_that_the_batch_adds_is_named():
    engine = Engine(make_graph(), make_model())
    events = poison(0, 1).remove_edges([0, 1], [2, 2]).add_nodes([77], ONES).add_edges([0, 1], [77, 77])
    with pytest.raises(InputError, match="node 77"):
        engine.apply(events)


def test_rows_that_are_not_finite_already_are_no_reason():
    graph = make_graph()
    graph.apply(poison(0, 1))
    engine = Engine(graph, make_model())
    assert not np.isfinite(engine.predict([2])).any()
    engine.apply(Events().set_features([3], ONES * 2))
    engine.apply(Events().set_features([0], ONES * 3))
    assert np.isfinite(engine.predict([2])).all()
    assert engine.verify().ok


def test_what_is_allowed_is_what_the_framework_would_say():
    engine = Engine(make_graph(), make_model(), non_finite="allow")
    assert np.isinf(engine.what_if(poison(0, 1)).predict([2])).all()
    engine.apply(poison(0, 1))
    assert np.isinf(engine.predict([2])).all()
    seen = engine.scrubbed()
    assert seen.not_finite == 1
    assert seen.difference < 1e-6
    engine.apply(Events().set_features([0, 1], np.ones((2, 2))))
    assert engine.verify().ok
    assert engine.scrubbed().not_finite == 0


def test_a_lazy_engine_says_it_when_it_is_asked():
    engine = Engine(make_graph(), make_model(), mode="lazy")
    engine.apply(poison(0, 1))
    assert np.isinf(engine.predict([2])).all()
    engine.apply(Events().set_features([0, 1], np.ones((2, 2))))
    assert np.isfinite(engine.predict([2])).all()
    assert engine.verify().ok


def test_there_are_two_settings():
    with pytest.raises(InputError, match="non_finite must be one of 'refuse', 'allow', got 'ignore'"):
        Engine(make_graph(), make_model(), non_finite="ignore")


def make_runtime(path: Path, non_finite: str = "refuse") -> Runtime:
    graph = make_graph()
    return Runtime(SqliteLog(path), graph, Engine(graph, make_model(), non_finite=non_finite))


def test_a_runtime_rejects_the_entry_that_is_to_blame(tmp_path):
    runtime = make_runtime(tmp_path / "log.sqlite")
    good = runtime.append(Events().set_features([3], ONES * 2))
    first = runtime.append(poison(0))
    bad = runtime.append(poison(1))
    last = runtime.append(Events().add_edges([0], [3]))
    runtime.step()
    rejection = runtime.rejection(bad)
    assert rejection is not None
    assert "node 2" in rejection.message
    assert [runtime.rejection(seq) for seq in (good, first, last)] == [None] * 3
    assert runtime.seq == last
    assert runtime.engine.verify().ok
    state = frozen(runtime.engine.state())
    runtime.log.close()
    again = make_runtime(tmp_path / "log.sqlite")
    assert frozen(again.engine.state()) == state
    again.log.close()


def test_what_a_log_recorded_as_applied_is_applied_again(tmp_path):
    runtime = make_runtime(tmp_path / "log.sqlite", "allow")
    runtime.append(poison(0, 1))
    runtime.step()
    assert not np.isfinite(runtime.engine.predict([2])).any()
    runtime.log.close()
    again = make_runtime(tmp_path / "log.sqlite")
    assert again.seq == runtime.seq
    assert not np.isfinite(again.engine.predict([2])).any()
    refused = again.append(Events().add_edges([0, 1], [3, 3]))
    again.step()
    assert again.rejection(refused) is not None
    again.log.close()
