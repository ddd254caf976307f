"""Batches after which a value would not be finite: refused with the node's name, or let through."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.utils import degree, scatter

from livegnn import EdgeSchema, Engine, Events, Graph, InputError, Model, Schema
from livegnn.log.sqlite import SqliteLog
from livegnn.model import Input, Step
from livegnn.runtime import Runtime
from livegnn.types import DEFAULT_EDGE_TYPE
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
    with pytest.raises(
        InputError, match=r"node 2 of type 'node' would be infinite or not a number in propagation 1 of 1"
    ):
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


BUYS, SOLD = ("user", "buys", "item"), ("item", "sold to", "user")


def make_typed() -> Graph:
    """Three users who buy one item each, which two of them have in common; ids are texts."""
    graph = Graph(
        Schema({"user": 2, "item": 2}, {BUYS: EdgeSchema(weighted=True), SOLD: EdgeSchema()}, text_ids=True)
    )
    users, items = ["ann", "bob", "eve"], ["hat", "hat", "pen"]
    graph.apply(
        Events()
        .add_nodes(users, np.ones((3, 2)), node_type="user")
        .add_nodes(["hat", "pen"], np.ones((2, 2)), node_type="item")
        .add_edges(users, items, weight=np.ones(3), edge_type=BUYS)
        .add_edges(items, users, edge_type=SOLD),
        seq=0,
    )
    return graph


def make_typed_model() -> Model:
    """Users' features add up in items, and these, four times as large, in users."""

    def propagate(
        source: str, target: str, edge_type: tuple[str, str, str], weights: tuple[str, ...]
    ) -> Step:
        attrs = {
            "edge_type": edge_type, "message_local": weights, "neighbor_context": "none",
            "combine": "identity", "aggregate": "sum", "self_loops": None,
        }  # fmt: skip
        return Step("propagate", (source,), target, attrs=attrs)

    return Model(
        inputs={"x": Input("user", 2)},
        steps=(
            propagate("x", "bought", BUYS, ("weight",)),
            Step("linear", ("bought",), "larger", {"weight": "w"}),
            propagate("larger", "sold", SOLD, ()),
        ),
        tensors={"w": np.eye(2, dtype=np.float32) * 4},
        output="sold",
        layers=("x", "larger", "sold"),
    )


def start_typed(path: Path) -> Runtime:
    graph = make_typed()
    return Runtime(SqliteLog(path), graph, Engine(graph, make_typed_model(), threads=1))


def test_what_overflows_only_together_is_laid_upon_the_last_entry_alone(tmp_path):
    """Of a merged batch with good events of other nodes before, between and behind."""
    runtime = start_typed(tmp_path / "log.sqlite")

    def features(user: str, value: float) -> int:
        return runtime.append(Events().set_features([user], np.full((1, 2), value), node_type="user"))

    good = [features("eve", 2), features("ann", 5e37), features("eve", 3)]
    bad = features("bob", 5e37)  # 4e38 with ann's
    last = features("eve", 4)
    runtime.step()
    rejection = runtime.rejection(bad)
    assert rejection is not None
    assert rejection.error == "InputError"
    assert (
        "for node 'hat' of type 'item' would be infinite or not a number in propagation 1 of 2"
        in rejection.message
    )
    assert [runtime.rejection(seq) for seq in (*good, last)] == [None] * 4
    assert runtime.seq == last
    assert runtime.predict(["eve"]).values.tolist() == [[16.0, 16.0]]
    assert runtime.engine.verify().ok
    heavy = runtime.append(Events().add_edges(["ann"], ["pen"], weight=[1e30], edge_type=BUYS))
    beyond = runtime.append(Events().add_edges(["ann"], ["hat"], weight=[7e28], edge_type=BUYS))
    large = features("eve", 4e37)
    both = runtime.append(Events().add_edges(["pen"], ["ann"], edge_type=SOLD))
    runtime.step()
    assert runtime.rejection(large) is None
    refused = [runtime.rejection(seq) for seq in (heavy, beyond, both)]
    assert refused[0] is not None
    assert refused[0].message.startswith("edge weights must be finite, and at most 2^96")
    assert refused[0].message.endswith(f"for the edge 'ann' -> 'pen' of type {BUYS}")
    assert refused[1] is not None
    assert (
        "node 'hat' of type 'item' would be infinite or not a number in propagation 1 of 2"
        in refused[1].message
    )
    assert refused[2] is not None
    assert (
        "node 'ann' of type 'user' would be infinite or not a number in propagation 2 of 2"
        in refused[2].message
    )
    runtime.log.close()


@pytest.mark.parametrize(
    ("events", "message"),
    [
        (
            Events().set_features(["ann", "bob"], [[1, 2], [3, np.nan]], node_type="user"),
            "x must be finite, got nan in column 1 in event 1 (node 'bob' of type 'user')",
        ),
        (
            Events().add_nodes(["new"], [[np.inf, 1]], node_type="item"),
            "x must be finite, got inf in column 0 in event 0 (node 'new' of type 'item')",
        ),
        (
            Events().add_edges(["ann", "eve"], ["hat", "hat"], weight=[1, -np.inf], edge_type=BUYS),
            f"weight must be finite, got -inf in event 1 (edge 'eve' -> 'hat' of type {BUYS})",
        ),
    ],
)
def test_what_is_not_finite_itself_never_reaches_the_log(tmp_path, events, message):
    runtime = start_typed(tmp_path / "log.sqlite")
    with pytest.raises(InputError) as error:
        runtime.append(events)
    assert str(error.value) == message
    assert runtime.log.last_seq() == 0
    with pytest.raises(InputError) as error:
        runtime.what_if(events, ["ann"])
    assert str(error.value) == message
    runtime.log.close()


def by_degree(x, source, target, nodes):
    return x[source] / degree(source, nodes)[source][:, None]


def by_root(x, source, target, nodes):
    out, into = degree(source, nodes), degree(target, nodes)
    return out.pow(-0.5)[source][:, None] * x[source] * into.pow(-0.5)[target][:, None]


def by_logarithm(x, source, target, nodes):
    return degree(source, nodes).log()[source][:, None] * x[source]


def of_length_one(x, source, target, nodes):
    return (x / x.norm(dim=-1, keepdim=True))[source]


class Divided(nn.Module):
    """What each edge divides, the importer computes once for each node, of which some have no edge."""

    def __init__(self, message: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.lin, self.message = nn.Linear(2, 2, bias=False), message

    def forward(self, x, edge_index):
        source, target = edge_index
        message = self.message(self.lin(x), source, target, x.size(0))
        return scatter(message, target, 0, x.size(0), "sum")


@pytest.mark.parametrize("settings", [{}, {"mode": "lazy"}, {"keep": "aggregates"}])
@pytest.mark.parametrize("message", [by_degree, by_root, by_logarithm, of_length_one])
def test_rows_that_no_edge_reads_may_be_anything(message, settings):
    """Each batch is refused where PyG's prediction is not finite, and only there."""
    torch.manual_seed(0)
    module = Divided(message).eval()
    graph = Graph.from_edges([0, 1, 2, 0], [2, 2, 3, 1], x=np.arange(1, 13, dtype=np.float32).reshape(6, 2))
    engine, zeros = Engine(graph, Model.from_pyg(module), **settings), np.zeros((1, 2), np.float32)
    for events in (
        Events().add_nodes(6, zeros),
        Events().remove_edges([2], [3]),
        Events().add_edges([5], [0]),
        Events().set_features(3, zeros),
        Events().add_edges([4, 5], [5, 5]),
        Events().remove_nodes(0),
        Events().set_features(2, zeros),
    ):
        engine.apply(events)
        snapshot, ids = graph.snapshot(), graph.ids()
        given = (
            torch.from_numpy(snapshot.x["node"]),
            torch.from_numpy(snapshot.edge_index[DEFAULT_EDGE_TYPE].astype(np.int64)),
        )
        with torch.no_grad():
            np.testing.assert_allclose(engine.predict(ids), module(*given).numpy(), rtol=1e-5, atol=1e-6)
    assert engine.verify().ok
    if message is of_length_one and not settings:
        with pytest.raises(InputError, match="node 5 of type 'node' would be infinite"):
            engine.apply(Events().set_features(4, zeros))
