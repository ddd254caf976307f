"""Nodes that a batch adds are among those whose prediction changes, whatever their rows are."""

from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import livegnn as lg
from gate import draws
from livegnn.model import Convolution

Batch: TypeAlias = list[tuple[str, int, float]]
FEATURES = 3
MODELS = {
    name: lg.Model.from_convolutions([Convolution(aggregate=one) for one in name.split()], FEATURES)
    for name in ("sum", "max", "min", "sum max", "max sum")
}
NODES = st.integers(0, 7)
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("add"), NODES, st.sampled_from([0.0, 1.0])),
        st.tuples(st.just("remove"), NODES, st.just(0.0)),
        st.tuples(st.just("edge"), NODES, NODES),
    ),
    max_size=6,
)


class Present:
    """The nodes and edges that are there."""

    def __init__(self) -> None:
        self.nodes: set[int] = set()
        self.edges: set[tuple[int, int]] = set()

    def events_of(self, changes: Batch) -> lg.Events:
        """Those of the changes that may follow each other."""
        events = lg.Events()
        for kind, node, other in changes:
            if kind == "add" and node not in self.nodes:
                events.add_nodes(node, np.full((1, FEATURES), other, np.float32))
                self.nodes.add(node)
            elif kind == "remove" and node in self.nodes:
                events.remove_nodes(node)
                self.nodes.discard(node)
                self.edges = {edge for edge in self.edges if node not in edge}
            elif kind == "edge" and {node, other} <= self.nodes and (node, int(other)) not in self.edges:
                events.add_edges(node, int(other))
                self.edges.add((node, int(other)))
        return events


@pytest.mark.parametrize("mode", ["eager", "lazy"])
@pytest.mark.parametrize("name", MODELS)
@settings(deadline=None, max_examples=draws(20, 300))
@given(st.lists(CHANGES, min_size=1, max_size=4))
def test_an_added_node_has_changed(name: str, mode: str, batches: list[Batch]) -> None:
    graph = lg.Graph(lg.Schema({"node": FEATURES}))
    engine = lg.Engine(graph, MODELS[name], mode=mode, threads=1)
    present = Present()
    for changes in batches:
        before = {id: engine.predict([id])[0] for id in present.nodes}
        events = present.events_of(changes)
        supposed = sorted(engine.what_if(events).changed.tolist())
        update = engine.apply(events)
        changed = update.changed.tolist()
        assert mode == "lazy" or sorted(changed) == supposed  # lazy engines say which nodes are reached
        assert len(set(changed)) == len(changed) == update.num_changed
        for id in present.nodes:
            row = engine.predict([id])[0]
            if id not in before or not np.array_equal(row, before[id]):
                assert id in changed
                assert id in supposed
        assert set(changed) <= present.nodes
