"""Whatever happens to a graph, a model that was imported says what its module says: one of each class."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from gate import EXPLORING, draws, share
from imported_mirror import KINDS, Mirror
from imported_modules import CASES, fresh, imported
from livegnn import Engine, Graph, UnknownNodeError
from livegnn.importers.assembly import assemble
from livegnn.model import Model
from mirror import frozen

CLASSES = (
    "GCN",  # what a message reads, in the words of `classify`: source
    "GCNw",  # source and a number of the edge
    "GMM",  # a function of source and edge
    "FastRGCN",  # edge
    "ResGated",  # target
    "SAGEmax",  # an extremum of sources
    "pna.py",  # several aggregates
    "PNA edge_dim towers",  # extrema of both ends and an edge
    "EdgeCNNm",  # an extremum that reads the target
    "GAT",  # a softmax with an additive logit
    "GATv2",  # a general one
    "Trans",  # a product
    "GAT edge_dim",  # with edges in the logit
    "RGAT",  # and in the value
    "Transformer edge_dim",  # and in both of a product
    "GEN",  # a logit of one end
    "ogbn_proteins_deepgcn.py",  # and of an edge
    "NNConv",  # a product of matrices
    "Signed",  # two sets of edges
    "RGCN",  # relations by number
    "HGT",  # several types
)
"""A module of each class of propagations."""

ALIKE = ("GCN", "ResGated", "SAGEmax", "EdgeCNNm", "Trans", "NNConv")
"""Those whose words all are another's as well, which the gate leaves out."""
TAKEN = [name for name in CLASSES if EXPLORING or name not in ALIKE]

SEQUENCES = draws(4, 40)

seeds = st.integers(0, 2**32 - 1)
kinds = st.sets(st.sampled_from(KINDS), min_size=1)


@cache
def lowered(name: str) -> Model:
    program = imported(name).program
    return assemble(program, output=list(program.outputs)).model


class LiveModule(RuleBasedStateMachine):
    """A graph that lives, a module, and engines of its model that keep different things."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    @initialize(seed=seeds)
    def begin(self, seed: int) -> None:
        module, self.model = imported(self.name), lowered(self.name)
        self.mirror = Mirror(module.case, module.program, self.model, lambda: fresh(self.name), seed)
        graph = self.mirror.graph
        self.engine = Engine(graph, self.model, threads=1, history=30)
        self.others = [
            Engine(Graph.from_state(graph.state()), self.model, keep="aggregates", threads=2),
            Engine(Graph.from_state(graph.state()), self.model, mode="lazy", threads=1),
        ]

    def ids(self) -> np.ndarray:
        return self.mirror.graph.snapshot().ids[self.model.node_type(self.model.output)]

    def one_type(self) -> bool:
        return len(self.mirror.graph.schema.node_types) == 1

    def predicted(self) -> dict[int, bytes]:
        ids = self.ids()
        rows = self.engine.predict(ids) if len(ids) else []
        return {node: row.tobytes() for node, row in zip(ids.tolist(), rows, strict=True)}

    @rule(seed=seeds, size=st.integers(1, 5), kinds=kinds)
    def a_batch(self, seed: int, size: int, kinds: set[str]) -> None:
        self.mirror.random = np.random.default_rng(seed)
        events = self.mirror.events(size, kinds)
        before, states = self.predicted(), self.states()
        asked = self.engine.what_if(events)
        imagined_changes = asked.changed.tolist()
        removed = {i for chunk in events.chunks if chunk.kind == "remove_nodes" for i in chunk.ids.tolist()}
        new = {i for chunk in events.chunks if chunk.kind == "add_nodes" for i in chunk.ids.tolist()}
        after = np.array(sorted((set(before) | new) - removed), dtype=np.int64) if self.one_type() else None
        imagined = asked.predict(after) if after is not None and len(after) else None
        assert self.states() == states
        update = self.engine.apply(events)
        for other in self.others:
            other.apply(events)
        now = self.predicted()
        if imagined is not None:
            assert imagined.tobytes() == self.engine.predict(after).tobytes()
        assert sorted(imagined_changes) == sorted(update.changed.tolist())
        assert {node for node in now if now[node] != before.get(node)} <= set(update.changed.tolist())
        assert set(update.changed.tolist()) <= set(now)

    @rule(seed=seeds)
    def a_bad_batch(self, seed: int) -> None:
        self.mirror.random = np.random.default_rng(seed)
        kind = next(iter(self.mirror.graph.schema.node_types))
        events = self.mirror.events(2, ("add_nodes", "add_edges")).remove_nodes(123456, node_type=kind)
        states = self.states()
        with pytest.raises(UnknownNodeError):
            self.engine.apply(events)
        assert self.states() == states

    def states(self) -> tuple[object, object]:
        return frozen(self.mirror.graph.state()), frozen(self.engine.state())

    @rule()
    def restart(self) -> None:
        states, before = self.states(), self.predicted()
        graph = Graph.from_state(self.mirror.graph.state())
        self.engine = Engine(graph, self.model, threads=2, state=self.engine.state(), history=30)
        self.mirror.graph = graph
        assert self.states() == states
        assert self.predicted() == before

    @rule(seed=seeds)
    def a_prediction_is_explained(self, seed: int) -> None:
        ids = self.ids()
        if not len(ids):
            return
        id = int(np.random.default_rng(seed).choice(ids))
        seq = self.engine.seq
        self.a_batch(seed, 1, {"set_features", "add_edges"})
        explanation = self.engine.explain(id, since=seq)
        scale = 1 + np.abs(explanation.after).max(initial=0) + np.abs(explanation.movement).max(initial=0)
        for shares in (explanation.events, explanation.neighbors):
            total = np.sum([one.share for one in shares], axis=0, initial=0)
            np.testing.assert_allclose(total, explanation.movement, atol=1e-9 * scale)
        row = self.engine.predict([id])[0]
        np.testing.assert_allclose(row, explanation.after, atol=1e-3 * scale)

    @rule()
    def others_agree(self) -> None:
        for other in self.others:
            self.mirror.assert_exact(other)

    @invariant()
    def it_says_what_the_module_says(self) -> None:
        if hasattr(self, "engine"):
            self.mirror.assert_exact(self.engine)

    def teardown(self) -> None:
        if hasattr(self, "engine"):
            self.others_agree()


@pytest.mark.parametrize("name", share(TAKEN, 0, 3))
def test_any_sequence_of_batches(name: str) -> None:
    run_state_machine_as_test(
        lambda: LiveModule(name),
        settings=settings(
            max_examples=SEQUENCES,
            stateful_step_count=8,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_there_is_a_module_of_each_class() -> None:
    """Of all classes that the golden table knows, but those that are refused."""
    refused = {"global max", "global sum", "global mean"}
    words = {word for name in TAKEN for word in CASES[name].words}
    missing = {word for case in CASES.values() for word in case.words} - words - refused
    assert not missing
