"""Sinks of scores beside a dict: whatever fails, is slow or crashes, a sink ends with all edges' scores."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from gate import draws
from livegnn import EdgeSchema, Engine, Events, Graph, Schema
from livegnn.connectors.edge_sink_view import EdgeSinkView, to_texts
from livegnn.connectors.row_filter import RowFilter
from livegnn.inference.followed_edges import EdgeNames
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import CheckpointPolicy, Runtime, restore
from livegnn.types import DEFAULT_EDGE_TYPE
from scored_edges import NODES, WIDTH, make_batch, make_scorer, name
from with_sink import Register, Table

MODELS = {"engine": 0, "other": 5}
FILTERS = [None, RowFilter(threshold=0.1, column=1), RowFilter(moved_by=0.3), RowFilter(moved_by=1e6)]


class Service:
    """A runtime with two models that follow their scores, and a sink, which sends when it is told to."""

    def __init__(
        self, edges: EdgeSchema, filter: RowFilter | None, *, text: bool, most: int, limit: int, seed: int
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="livegnn-sinks-"))
        self.table, self.register = Table(), Register()
        self.edges, self.filter, self.text, self.most, self.limit = edges, filter, text, most, limit
        self.rng = np.random.default_rng(seed)
        self.open()

    def make_graph(self) -> Graph:
        schema = Schema({"node": WIDTH}, {DEFAULT_EDGE_TYPE: self.edges}, text_ids=self.text)
        graph, x = Graph(schema), np.random.default_rng(1).normal(size=(NODES, WIDTH))
        graph.apply(Events().add_nodes(name(np.arange(NODES), self.text), x), seq=0)
        return graph

    def open(self) -> None:
        def sink(graph: Graph, state: object) -> EdgeSinkView:
            return EdgeSinkView(
                graph, self.table, edges="risk", filter=self.filter, most_rows=self.most, state=state
            )

        def engine(which: str) -> object:
            model = make_scorer(MODELS[which], edge_dim=self.edges.edge_dim, weighted=self.edges.weighted)
            follow = {"follow": ["alike", "risk"], "follow_limit": self.limit}
            return Engine.factory(model, name=which, threads=1, **follow)

        self.log = SqliteLog(self.folder / "events.db")
        policy = CheckpointPolicy(self.folder / "checkpoints", every_events=None, beside=False)
        graph, views = restore(
            {which: engine(which) for which in MODELS} | {"sink": sink},
            self.make_graph,
            directory=policy.directory,
            log=self.log,
        )
        self.runtime = Runtime(self.log, graph, *views.values(), checkpoints=policy, register=self.register)
        self.view = views["sink"]
        self.view._begin(self.runtime)  # without its thread: the rules say when it sends

    def apply(self) -> None:
        self.runtime.append(make_batch(self.rng, self.edges, np.ones(WIDTH), self.text))
        self.runtime.step()

    def save(self) -> None:
        self.runtime._checkpoints.write(self.runtime.seq)
        assert self.runtime._checkpoints.failure is None

    def switch(self) -> None:
        self.runtime.models.switch("other" if self.runtime.models.serving == "engine" else "engine")

    def send(self, stores: int | None = None, meanwhile: Sequence[str] = ()) -> None:
        """A round. stores: as of `Table`. meanwhile: methods that are called in its first write."""
        self.table.stores = stores
        self.table.meanwhile = [getattr(self, one) for one in meanwhile]
        with contextlib.suppress(ConnectionError):
            self.view._send_round()
        self.table.stores, self.table.meanwhile = None, []

    def crash(self) -> None:
        """Ends it at once, and starts it again."""
        self.runtime.models.close()
        self.log.close()
        self.runtime = self.view = None
        self.open()

    def compare(self) -> None:
        assert (self.view.lag, self.view.oldest_age) == (0, 0.0)
        engine, snapshot = self.runtime.models.find(None), self.runtime.graph.snapshot()
        ids, (sources, targets) = snapshot.ids["node"], snapshot.edge_index[DEFAULT_EDGE_TYPE]
        names = EdgeNames(ids[sources], ids[targets], snapshot.key.get(DEFAULT_EDGE_TYPE))
        rows = engine.predict_edges(names.source, names.target, key=names.key, output="risk")
        now = dict(zip(to_texts(names).tolist(), rows, strict=True))
        there = {id: row for id, row in self.table.rows.items() if row[2] is not None}
        assert there.keys() == now.keys()
        for id, (_, model, scores) in there.items():
            assert model == engine.name
            if self.filter is None:
                np.testing.assert_array_equal(scores, now[id])
            else:
                assert not self.filter.passes(now[id][None], scores[None])[0]

    def close(self) -> None:
        """Sends the rest, and compares."""
        for _ in range(2):
            self.send()
        self.compare()
        self.runtime.stop()
        self.log.close()
        shutil.rmtree(self.folder)


class EdgeSinkMachine(RuleBasedStateMachine):
    service: Service | None = None

    @initialize(
        edges=st.builds(
            EdgeSchema,
            undirected=st.booleans(),
            weighted=st.booleans(),
            duplicates=st.sampled_from(["keep", "replace"]),
            edge_dim=st.sampled_from([0, 2]),
        ),
        filter=st.sampled_from(FILTERS),
        text=st.booleans(),
        most=st.integers(1, 60),
        limit=st.sampled_from([3, 1000]),
        seed=st.integers(0, 2**32 - 1),
    )
    def begin(self, **drawn: object) -> None:
        self.service = Service(**drawn)

    @rule()
    def apply_batch(self) -> None:
        self.service.apply()

    @rule()
    def save_checkpoint(self) -> None:
        self.service.save()

    @rule()
    def switch_model(self) -> None:
        self.service.switch()

    @rule(
        stores=st.none() | st.integers(0, 30),
        meanwhile=st.lists(st.sampled_from(["apply", "save", "switch"]), max_size=3),
    )
    def send_round(self, stores: int | None, meanwhile: list[str]) -> None:
        self.service.send(stores, meanwhile)

    @rule(stores=st.none() | st.integers(0, 30))
    def crash_and_restart(self, stores: int | None) -> None:
        if stores is not None:
            self.service.send(stores)
        self.service.crash()

    def teardown(self) -> None:
        if self.service is not None:
            self.service.close()


EdgeSinkMachine.TestCase.settings = settings(
    max_examples=draws(10, 300), stateful_step_count=draws(12, 40), deadline=None
)
TestEdgeSinks = pytest.mark.filterwarnings("ignore")(EdgeSinkMachine.TestCase)
