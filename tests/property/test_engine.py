"""After any sequence of events the engine equals the oracle, PyG on the rebuilt graph, and itself run another
way.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from gate import draws, share
from livegnn import Engine, Events, Graph, UnknownNodeError
from livegnn.graph import EdgeSchema
from mirror import Mirror, assert_as_pyg, assert_close, assert_exact, assert_graph_equals, frozen, predictions
from modules import CONVOLUTIONS, EDGE_WIDTH, EDGE_WISE, WIDTH, designs_of, make

SEQUENCES = draws(5, 200)
"""How many random sequences each convolution goes through."""

RANDOM_ROWS = np.random.default_rng(7).standard_normal((12, WIDTH))
ROWS = np.array([np.zeros(WIDTH), np.full(WIDTH, -0.0), *RANDOM_ROWS, 100 * RANDOM_ROWS[0]], dtype=np.float32)
"""Features to choose from: a choice is easier to shrink, and equal ones are more likely, than free numbers.
"""

picks = st.integers(0, 9)  # the n-th node there is, modulo their number
rows = st.integers(0, len(ROWS) - 1)
weights = st.sampled_from([0.0, 0.25, 1.0, 1.3, 2.0])
times = st.sampled_from([0.0, 1.0, 2.0, 3.0])
pairs = st.lists(st.tuples(picks, picks, weights, times), min_size=1, max_size=4)

operations = st.one_of(
    st.tuples(st.just("add_edges"), pairs, st.booleans()),
    st.tuples(st.just("remove_edges"), pairs, st.booleans()),
    st.tuples(st.just("set_features"), st.lists(st.tuples(picks, rows), min_size=1, max_size=3)),
    st.tuples(st.just("add_nodes"), st.integers(1, 2), st.none() | rows, st.booleans()),
    st.tuples(st.just("remove_nodes"), picks),
)


class LiveGraph(RuleBasedStateMachine):
    """A small graph that lives, and everything that must stay equal to it."""

    def __init__(self, kind: str, **settings: Any) -> None:
        super().__init__()
        self.kind = kind
        self.settings = settings  # of the engine

    @initialize(
        design=st.integers(0, 1),
        undirected=st.booleans(),
        columns=st.sampled_from(["", "weight", "weight time", "time", "weight add", "weight time add"]),
        ids=st.sampled_from(["identity", "sparse", "text"]),
        nodes=st.lists(rows, max_size=7),
        edges=st.lists(st.tuples(picks, picks, weights, times), max_size=15),
        negative=st.booleans(),
    )
    def begin(self, design, undirected, columns, ids, nodes, edges, negative):
        designs = designs_of(self.kind)
        self.design = designs[design % len(designs)]
        self.module, self.model = make(self.design)
        self.mirror = Mirror(
            WIDTH,
            EdgeSchema(
                undirected=undirected,
                weighted="weight" in columns,
                timed="time" in columns,
                duplicates="add" if "add" in columns else "replace",
                edge_dim=EDGE_WIDTH if self.design.featured else 0,
            ),
        )
        # A degree that is not positive is not a number to PyG.
        self.sign = -1.0 if negative and not self.kind.startswith("gcn") else 1.0
        self.id_style = ids
        self.named = 0
        self.graph = self.mirror.make_graph(text=ids == "text")
        events = Events()
        scratch = self.mirror.copy()
        for row in nodes:
            self.write(events, scratch, ("add_nodes", 1, row, False))
        if edges:
            self.write(events, scratch, ("add_edges", edges, True))
        self.graph.apply(events)
        self.mirror = scratch
        self.engine = Engine(self.graph, self.model, threads=1, **self.settings)
        self.other = Engine(Graph.from_state(self.graph.state()), self.model, threads=2, **self.settings)
        self.waiting: list[Events] = []

    # -- from choices to events

    def make_id(self) -> int | str:
        self.named += 1
        return {
            "identity": self.named - 1,
            "sparse": self.named * 7919 % 1009,
            "text": f"n\u00f6{self.named}",
        }[self.id_style]

    def array(self, ids: list[int] | list[str]) -> np.ndarray:
        return np.array(ids, dtype=np.str_ if self.id_style == "text" else np.int64)

    def write(self, events: Events, mirror: Mirror, operation: tuple) -> None:
        """Appends what an operation means on the graph of `mirror`, and applies it there."""
        kind, *arguments = operation
        present = list(mirror.nodes)
        if not present and kind != "add_nodes":
            return
        part = Events()
        if kind in ("add_edges", "remove_edges"):
            picked, flag = arguments
            src = self.array([present[a % len(present)] for a, _, _, _ in picked])
            dst = self.array([present[b % len(present)] for _, b, _, _ in picked])
            if kind == "add_edges":
                # Left out, a weight is 1 and a time is 0.
                weight = np.array([w for _, _, w, _ in picked]) * self.sign
                time = [t for _, _, _, t in picked]
                features = None
                if flag and mirror.schema.edge_dim:
                    picks = [(3 * a + b + int(4 * w) + int(t)) % len(ROWS) for a, b, w, t in picked]
                    features = ROWS[picks, : mirror.schema.edge_dim]
                part.add_edges(
                    src,
                    dst,
                    weight=weight if flag and mirror.schema.weighted else None,
                    time=time if flag and mirror.schema.timed else None,
                    edge_attr=features,
                )
            else:
                if flag and mirror.edges:  # those that are there
                    there = list(mirror.edges)
                    both = [there[(a + b) % len(there)] for a, b, _, _ in picked]
                    src, dst = self.array([u for u, _ in both]), self.array([v for _, v in both])
                part.remove_edges(src, dst)
        elif kind == "set_features":
            (picked,) = arguments
            part.set_features(
                self.array([present[a % len(present)] for a, _ in picked]), ROWS[[r for _, r in picked]]
            )
        elif kind == "add_nodes":
            count, row, again = arguments
            known = [*present, *mirror.removed]
            ids = [known[-1 - i % len(known)] if again and known else self.make_id() for i in range(count)]
            part.add_nodes(self.array(ids), None if row is None else ROWS[[row] * count])
        else:
            part.remove_nodes(self.array([present[arguments[0] % len(present)]]))
        mirror.apply(part)
        events.chunks.extend(part.chunks)
        events._length += len(part)

    def apply(self, operations: list[tuple]) -> None:
        events, after = Events(), self.mirror.copy()
        for operation in operations:
            self.write(events, after, operation)

        # What if: the same bits as after the batch, and nothing is kept.
        states = frozen(self.graph.state()), frozen(self.engine.state())
        before = predictions(self.engine)
        what_if = self.engine.what_if(events)
        ids = self.array(list(after.nodes))
        imagined = what_if.predict(ids).tobytes() if len(ids) else b""
        imagined_changes = what_if.changed.tolist()
        assert (frozen(self.graph.state()), frozen(self.engine.state())) == states

        seq = self.engine.seq
        update = self.engine.apply(events)
        assert update.seq == self.engine.seq == self.graph.seq == seq + len(events)
        now = predictions(self.engine)
        assert (self.engine.predict(ids).tobytes() if len(ids) else b"") == imagined

        # Changed: another value than before, or a node that was not there before.
        removed = {i for chunk in events.chunks if chunk.kind == "remove_nodes" for i in chunk.ids.tolist()}
        expected = {node for node in now if node in removed or now[node] != before.get(node)}
        changed = update.changed.tolist()
        assert sorted(changed) == sorted(expected)
        assert sorted(imagined_changes) == sorted(expected)
        assert len(changed) <= update.affected
        self.mirror = after
        self.waiting.append(events)

    # -- what can happen

    @rule(operations=st.lists(operations, min_size=1, max_size=6))
    def mixture(self, operations):
        self.apply(operations)

    @rule(picked=pairs, flag=st.booleans())
    def edges_come(self, picked, flag):
        self.apply([("add_edges", picked, flag)])

    @rule(picked=pairs)
    def edges_go(self, picked):
        self.apply([("remove_edges", picked, True)])

    @rule(pick=picks, weight=weights, time=times)
    def a_loop_comes(self, pick, weight, time):
        self.apply([("add_edges", [(pick, pick, weight, time)], True)])

    @rule(picked=pairs, first=st.booleans())
    def edges_come_and_go_in_a_batch(self, picked, first):
        add, remove = ("add_edges", picked, True), ("remove_edges", picked, False)
        self.apply([add, remove] if first else [remove, add])

    @rule(pick=picks, row=rows, other=rows)
    def features_change_twice_in_a_batch(self, pick, row, other):
        self.apply([("set_features", [(pick, row), (pick, other)])])

    @rule(pick=picks, row=rows, picked=pairs, back=st.booleans())
    def a_node_is_touched_and_removed(self, pick, row, picked, back):
        touched = [(pick, b, w, t) for _, b, w, t in picked]
        operations = [("set_features", [(pick, row)]), ("add_edges", touched, True), ("remove_nodes", pick)]
        self.apply([*operations, ("add_nodes", 1, row, True)] if back else operations)

    @rule(row=st.none() | rows, picked=pairs, gone=st.booleans())
    def a_node_comes_with_edges(self, row, picked, gone):
        last = len(self.mirror.nodes)
        if last > 9:
            return
        edges = [(last, b, w, t) for _, b, w, t in picked]
        operations = [("add_nodes", 1, row, False), ("add_edges", edges, True)]
        self.apply([*operations, ("remove_nodes", last)] if gone else operations)

    @rule()
    def nothing(self):
        update_before = predictions(self.engine)
        self.apply([])
        assert predictions(self.engine) == update_before

    @rule(operations=st.lists(operations, max_size=3))
    def a_bad_batch(self, operations):
        events, scratch = Events(), self.mirror.copy()
        for operation in operations:
            self.write(events, scratch, operation)
        events.remove_nodes("nobody" if self.id_style == "text" else 123456)
        states = frozen(self.graph.state()), frozen(self.engine.state())
        with pytest.raises(UnknownNodeError):
            self.engine.apply(events)
        with pytest.raises(UnknownNodeError):
            self.engine.what_if(events)
        assert (frozen(self.graph.state()), frozen(self.engine.state())) == states

    @rule()
    def restart(self):
        graph_state, state = self.graph.state(), self.engine.state()
        self.graph = Graph.from_state(graph_state)
        self.engine = Engine(self.graph, self.model, threads=1, state=state, **self.settings)
        assert frozen(self.graph.state()) == frozen(graph_state)
        assert frozen(self.engine.state()) == frozen(state)

    @precondition(lambda self: self.waiting)
    @rule(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4))
    def the_other_engine_catches_up(self, sizes):
        """The same events, in batches of other sizes."""
        events = Events.concatenate(self.waiting)
        single = [part for chunk in events.chunks for part in _one_by_one(chunk)]
        self.waiting = []
        first = turn = 0
        while first < len(single):
            size = sizes[turn % len(sizes)]
            self.other.apply(Events.concatenate(single[first : first + size]))
            first, turn = first + size, turn + 1
        assert_graph_equals(self.other.graph, self.mirror)
        here, there = self.graph.ids().tolist(), self.other.graph.ids().tolist()
        rows = [there.index(node) for node in here]
        features = self.engine.embeddings(0)
        for layer in range(len(self.model.layers)):
            got, expected = self.other.embeddings(layer)[rows], self.engine.embeddings(layer)
            assert_close(got, expected, features, f"layer {layer}, other batches")
        assert self.other.seq == self.engine.seq

    @invariant()
    def it_is_the_graph_of_the_mirror(self):
        if hasattr(self, "engine"):
            assert_graph_equals(self.graph, self.mirror)

    @invariant()
    def it_is_exact(self):
        if hasattr(self, "engine"):
            assert_exact(self.engine)
            assert_as_pyg(self.engine, self.module, self.mirror)

    def teardown(self):
        if getattr(self, "waiting", None):
            self.the_other_engine_catches_up([3, 1])


def _one_by_one(chunk) -> list[Events]:
    parts = []
    for i in range(len(chunk.ids)):
        columns = [None if column is None else column[i : i + 1] for column in chunk[2:]]
        one = Events()
        one.chunks.append(type(chunk)(chunk.kind, chunk.type, *columns))
        one._length = 1
        parts.append(one)
    return parts


@pytest.mark.parametrize("kind", share([*CONVOLUTIONS, *EDGE_WISE], 0, 3))
def test_any_sequence_of_events(kind):
    run_state_machine_as_test(
        lambda: LiveGraph(kind),
        settings=settings(
            max_examples=SEQUENCES,
            stateful_step_count=12,
            suppress_health_check=list(HealthCheck),
        ),
    )
