"""Any batches with any questions between them: a lazy engine answers as the oracle and as an eager engine do,
and what was asked leaves no trace in later answers."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gate import draws, share
from livegnn import Engine, Events, Graph
from livegnn.graph import EdgeSchema, Schema
from livegnn.oracle import reference
from livegnn.types import DEFAULT_EDGE_TYPE, DEFAULT_NODE_TYPE
from mirror import assert_close, assert_exact
from modules import CONVOLUTIONS, EDGE_WIDTH, EDGE_WISE, WIDTH, Design, designs_of, make

SEQUENCES = draws(6, 60)
"""How many random sequences each convolution goes through."""

RANDOM_ROWS = np.random.default_rng(7).standard_normal((10, WIDTH))
ROWS = np.array([np.zeros(WIDTH), *RANDOM_ROWS, 100 * RANDOM_ROWS[0]], dtype=np.float32)

picks = st.integers(0, 11)  # the n-th node there is, modulo their number
rows = st.integers(0, len(ROWS) - 1)
weights = st.sampled_from([0.0, 0.25, 1.0, 1.3, 2.0])
pairs = st.lists(st.tuples(picks, picks, weights), min_size=1, max_size=4)

events = st.one_of(
    st.tuples(st.just("add_edges"), pairs),
    st.tuples(st.just("loop"), picks, weights),
    st.tuples(st.just("remove_edges"), pairs),
    st.tuples(st.just("set_features"), picks, rows),
    st.tuples(st.just("add_node"), st.none() | rows),
    st.tuples(st.just("remove_node"), picks),
)
# Removals of nodes settle, so there are few of them.
batches = st.tuples(st.just("batch"), st.lists(events, min_size=1, max_size=4)).filter(
    lambda batch: sum(event[0] == "remove_node" for event in batch[1]) == 0
)
questions = st.tuples(st.just("ask"), st.lists(picks, min_size=1, max_size=3))
happenings = st.one_of(
    batches,
    batches,
    questions,
    questions,
    st.just(("ask all",)),
    st.just(("settle",)),
    st.just(("what if",)),
    st.tuples(st.just("batch"), st.lists(events, min_size=1, max_size=4)),
)


def same_number(a: np.ndarray, b: np.ndarray) -> bool:
    """To what the oracle, which adds in another order on another graph, rounds."""
    return bool((np.abs(a - b) <= 1e-12 * (1 + np.abs(b))).all())


class World:
    """One graph and the engines on it."""

    def __init__(self, design: Design, edges: EdgeSchema, eager_depths: int) -> None:
        self.module, self.model = make(design)
        self.graph = Graph(Schema({DEFAULT_NODE_TYPE: WIDTH}, {DEFAULT_EDGE_TYPE: edges}))
        self.named = 0
        start = Events()
        for _ in range(8):
            self.write(start, ("add_node", 1 + self.named % 9))
        self.graph.apply(start)
        self.apply(Events().add_edges([0, 1, 2, 3, 4, 5, 6], [1, 2, 3, 3, 5, 6, 7]))
        mode = ["eager"] * eager_depths + ["lazy"] * (design.depth - eager_depths)
        self.eager = Engine(self.graph, self.model, threads=1)
        self.lazy = Engine(self.graph, self.model, threads=1, mode=mode)
        self.curious = Engine(self.graph, self.model, threads=2, mode=mode)  # asked everything all the time
        self.engines = [self.eager, self.lazy, self.curious]

    def apply(self, events: Events) -> None:
        self.graph.apply(events)

    def write(self, events: Events, event: tuple) -> None:
        kind, *arguments = event
        present = self.graph.ids() if self.named and len(self.graph.ids()) else np.arange(self.named)
        if not len(present) and kind != "add_node":
            return
        if kind in ("add_edges", "remove_edges"):
            src = [present[a % len(present)] for a, _, _ in arguments[0]]
            dst = [present[b % len(present)] for _, b, _ in arguments[0]]
            if kind == "add_edges":
                rows = np.array([[a - b, w, 0.5 * b] for a, b, w in arguments[0]], dtype=np.float32)
                (edges,) = self.graph.schema.edge_types.values()
                weight = [w for _, _, w in arguments[0]] if edges.weighted else None
                events.add_edges(src, dst, weight=weight, edge_attr=rows if edges.edge_dim else None)
                return
            snapshot = self.graph.snapshot()
            there = self.graph.ids()[snapshot.edge_index[DEFAULT_EDGE_TYPE]].T
            for a, b, _ in arguments[0]:
                if len(there):
                    events.remove_edges(*there[(a * 7 + b) % len(there)])
            events.remove_edges(src, dst)
        elif kind == "loop":
            node = present[arguments[0] % len(present)]
            (edges,) = self.graph.schema.edge_types.values()
            events.add_edges(node, node, weight=[arguments[1]] if edges.weighted else None)
        elif kind == "set_features":
            events.set_features(present[arguments[0] % len(present)], ROWS[arguments[1]])
        elif kind == "add_node":
            events.add_nodes(self.named, None if arguments[0] is None else ROWS[arguments[0]][None])
            self.named += 1

    def happen(self, what: tuple) -> None:
        kind, *arguments = what
        if kind == "batch":
            self.batch(arguments[0])
        elif kind == "ask":
            ids = self.graph.ids()
            if len(ids):
                self.check(ids[[pick % len(ids) for pick in arguments[0]]])
        elif kind == "ask all":
            self.check(self.graph.ids())
            assert self.lazy.pending == 0
        elif kind == "settle":
            for engine in self.engines:
                engine.settle()
            assert self.lazy.pending == 0
        elif len(self.graph.ids()):
            node = self.graph.ids()[0]
            answers = [
                engine.what_if(Events().set_features(node, ROWS[3])).predict(node) for engine in self.engines
            ]
            assert answers[1].tobytes() == answers[2].tobytes()

    def batch(self, operations: list[tuple]) -> None:
        events, removed = Events(), []
        for operation in operations:
            if operation[0] == "remove_node":
                removed.append(operation[1])
            else:
                self.write(events, operation)
        present = self.graph.ids()
        for pick in removed[:1]:
            if len(present) > 2:
                events.remove_nodes(present[pick % len(present)])
        settled = any(chunk.kind == "remove_nodes" for chunk in events.chunks)
        before = self.predictions()
        update = self.lazy.apply(events)
        # Whatever changes is marked. Another engine may also round a row anew that nothing has reached.
        now = self.predictions()
        changed = {
            node for node, row in now.items() if node not in before or not same_number(row, before[node])
        }
        assert update.exact == settled
        if not settled:
            assert changed <= set(update.changed.tolist())
            assert update.affected == len(update.changed)
            assert self.lazy.pending >= len(update.changed)
        else:
            assert self.lazy.pending == 0
        self.curious.predict(self.graph.ids())
        assert self.curious.pending == 0

    def predictions(self) -> dict[int, np.ndarray]:
        """What the oracle says, by node."""
        values = reference.compute(self.model, self.graph.snapshot())
        return dict(zip(self.graph.ids().tolist(), values[self.model.output], strict=True))

    def check(self, ids: np.ndarray) -> None:
        values = reference.compute(self.model, self.graph.snapshot())
        where = [self.graph.ids().tolist().index(node) for node in ids.tolist()]
        got = self.lazy.predict(ids)
        assert_close(self.among_all(got, values, where), values[self.model.output], values["x"], "oracle")
        assert_close(
            self.among_all(got, values, where),
            self.among_all(self.eager.predict(ids), values, where),
            values["x"],
            "eager",
        )
        assert got.tobytes() == self.curious.predict(ids).tobytes()
        work = self.lazy.work
        assert self.lazy.predict(ids).tobytes() == got.tobytes()
        assert self.lazy.work == work  # it was kept

    def among_all(self, rows: np.ndarray, values: dict[str, np.ndarray], where: list[int]) -> np.ndarray:
        """The oracle's predictions with some replaced: a few rows are judged by the scale of the layer."""
        whole = np.array(values[self.model.output])
        whole[where] = rows
        return whole


@pytest.mark.parametrize("kind", share([*CONVOLUTIONS, *EDGE_WISE], 2, 3))
def test_any_batches_and_questions(kind):
    @settings(max_examples=SEQUENCES, suppress_health_check=list(HealthCheck))
    @given(
        made=st.sampled_from(designs_of(kind)),
        undirected=st.booleans(),
        weighted=st.booleans(),
        eager_depths=st.sampled_from([0, 0, 0, 1, 2]),
        what=st.lists(happenings, min_size=1, max_size=14),
    )
    def run(made, undirected, weighted, eager_depths, what):
        features = EDGE_WIDTH if made.featured else 0
        edges = EdgeSchema(undirected=undirected, weighted=weighted, edge_dim=features)
        world = World(made, edges, min(eager_depths, made.depth - 1))
        for happening in what:
            world.happen(happening)
        world.happen(("ask all",))
        assert_exact(world.lazy)  # every layer
        world.happen(("settle",))
        states = [engine.state().arrays for engine in (world.lazy, world.curious)]
        for name, array in states[0].items():
            assert array.tobytes() == states[1][name].tobytes(), name

    run()
