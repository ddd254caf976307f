"""Sinks of scores beside a dict, step by step (stepped_sink.py): they end with the scores of all edges."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize

from gate import draws
from livegnn import EdgeSchema, Engine, Events, Graph, Schema
from livegnn.connectors.edge_sink_view import EdgeSinkView, to_texts
from livegnn.connectors.row_filter import RowFilter
from livegnn.inference import RowPredictor
from livegnn.inference.followed_edges import EdgeNames
from livegnn.types import DEFAULT_EDGE_TYPE
from scored_edges import NODES, WIDTH, edge_schemas, make_batch, make_scorer, name
from stepped_sink import SinkRules, SteppedSink

MODELS = {"engine": 0, "other": 5}
FILTERS = [None, RowFilter(threshold=0.1, column=1), RowFilter(moved_by=0.3), RowFilter(moved_by=1e6)]


class Service(SteppedSink):
    """A sink of scores; both models follow theirs."""

    def __init__(
        self, edges: EdgeSchema, filter: RowFilter | None, *, text: bool, most: int, limit: int, seed: int
    ) -> None:
        self.edges, self.text, self.most, self.limit = edges, text, most, limit
        self.rng = np.random.default_rng(seed)
        super().__init__(filter)

    def factories(self) -> dict[str, object]:
        def engine(which: str) -> object:
            model = make_scorer(MODELS[which], edge_dim=self.edges.edge_dim, weighted=self.edges.weighted)
            follow = {"follow": ["alike", "risk"], "follow_limit": self.limit}
            return Engine.factory(model, name=which, threads=1, **follow)

        return {which: engine(which) for which in MODELS}

    def make_graph(self) -> Graph:
        schema = Schema({"node": WIDTH}, {DEFAULT_EDGE_TYPE: self.edges}, text_ids=self.text)
        graph, x = Graph(schema), np.random.default_rng(1).normal(size=(NODES, WIDTH))
        graph.apply(Events().add_nodes(name(np.arange(NODES), self.text), x), seq=0)
        return graph

    def make_view(self, graph: Graph, state: object) -> EdgeSinkView:
        return EdgeSinkView(
            graph, self.table, edges="risk", filter=self.filter, most_rows=self.most, state=state
        )

    def apply(self) -> None:
        self.runtime.append(make_batch(self.rng, self.edges, np.ones(WIDTH), self.text))
        self.runtime.step()

    def rows(self, engine: RowPredictor) -> dict[object, np.ndarray]:
        snapshot = self.runtime.graph.snapshot()
        ids, (sources, targets) = snapshot.ids["node"], snapshot.edge_index[DEFAULT_EDGE_TYPE]
        names = EdgeNames(ids[sources], ids[targets], snapshot.key.get(DEFAULT_EDGE_TYPE))
        scores = engine.predict_edges(names.source, names.target, key=names.key, output="risk")
        return dict(zip(to_texts(names).tolist(), scores, strict=True))


class EdgeSinkMachine(SinkRules):
    @initialize(
        edges=edge_schemas(),
        filter=st.sampled_from(FILTERS),
        text=st.booleans(),
        most=st.integers(1, 60),
        limit=st.sampled_from([3, 1000]),
        seed=st.integers(0, 2**32 - 1),
    )
    def begin(self, **drawn: object) -> None:
        self.service = Service(**drawn)


EdgeSinkMachine.TestCase.settings = settings(
    max_examples=draws(10, 300), stateful_step_count=draws(12, 40), deadline=None
)
TestEdgeSinks = pytest.mark.filterwarnings("ignore")(EdgeSinkMachine.TestCase)
