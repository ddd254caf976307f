"""Sinks beside a dict: whatever fails, is slow or crashes, a sink ends with the predictions of the service.

A sink stores some rows of a write and fails; while it writes, batches are applied, checkpoints written, other
models switched to. A crash leaves the log, the checkpoints and what the sink has stored.
"""

import contextlib
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gate import draws
from livegnn import Engine, Graph
from livegnn.connectors.row_filter import RowFilter
from livegnn.connectors.sink import PredictionRows
from livegnn.connectors.sink_view import SinkView
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import CheckpointPolicy, Nothing, Runtime, restore
from streams import make_graph, make_model, make_stream

STREAMS = [make_stream(60, seed, text=text) for seed, text in ((2, False), (3, True))]
MODELS = {"engine": make_model(0), "other": make_model(5)}
FILTERS = [None, RowFilter(class_changed=True), RowFilter(threshold=0.1, column=1), RowFilter(moved_by=0.3)]


class Register(Nothing):
    """Keeps the model that answers, as a folder of models does."""

    serving: str | None = None
    previous: str | None = None

    def __init__(self) -> None:
        self.switches = 0

    def serve(self, name: str, previous: str | None) -> None:
        self.serving, self.previous = name, previous
        self.switches += 1


class Table:
    """A sink that survives crashes. meanwhile: called in the next write. stores: the rows that it stores of
    that before it fails; None if it does not fail."""

    def __init__(self) -> None:
        self.rows: dict[int | str, tuple[int, str, np.ndarray | None]] = {}
        self.meanwhile: list[object] = []
        self.stores: int | None = None

    def write(self, rows: PredictionRows) -> None:
        assert len(set(rows.ids)) == len(rows.ids) == len(rows.seqs) == len(rows.predictions)
        calls, self.meanwhile = self.meanwhile, []
        for call in calls:
            call()
        stores, self.stores = self.stores, None
        every = zip(rows.ids, rows.seqs.tolist(), rows.predictions, rows.removed.tolist(), strict=True)
        for id, seq, prediction, removed in list(every)[:stores]:
            before = self.rows.get(id)
            assert before is None or before[0] <= seq, "the event of a node's rows never decreases"
            self.rows[id] = seq, rows.model, None if removed else prediction.copy()
        if stores is not None:
            raise ConnectionError("on purpose")

    def close(self) -> None:
        pass


class SinkMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="livegnn-sinks-"))
        self.table, self.register = Table(), Register()
        self.runtime: Runtime | None = None

    @initialize(
        text=st.booleans(), filter=st.sampled_from(FILTERS), most=st.integers(1, 60), named=st.booleans()
    )
    def begin(self, text: bool, filter: RowFilter | None, most: int, named: bool) -> None:
        self.text, self.filter, self.most = text, filter, most
        self.model = "other" if named else None
        self.stream = iter(STREAMS[text])
        self.open()

    def open(self) -> None:
        def sink(graph: Graph, state: object) -> SinkView:
            return SinkView(
                graph,
                self.table,
                model=self.model,
                filter=self.filter,
                most_rows=self.most,
                state=state,
            )

        factories = {name: Engine.factory(model, name=name, threads=1) for name, model in MODELS.items()}
        self.log = SqliteLog(self.folder / "events.db")
        policy = CheckpointPolicy(self.folder / "checkpoints", every_events=None, beside=False)
        graph, views = restore(
            factories | {"sink": sink},
            lambda: make_graph(text=self.text),
            directory=policy.directory,
            log=self.log,
        )
        self.runtime = Runtime(self.log, graph, *views.values(), checkpoints=policy, register=self.register)
        self.view = views["sink"]
        self.view._begin(self.runtime)  # without its thread: the rules say when it sends

    def apply(self) -> None:
        if (events := next(self.stream, None)) is not None:
            self.runtime.append(events)
            self.runtime.step()

    def save(self) -> None:
        self.runtime._checkpoints.write(self.runtime.seq)
        assert self.runtime._checkpoints.failure is None

    def switch(self) -> None:
        self.runtime.models.switch("other" if self.runtime.models.serving == "engine" else "engine")

    def send(self) -> None:
        with contextlib.suppress(ConnectionError):
            self.view._send_round()

    def crash(self) -> None:
        self.runtime.models.close()
        self.log.close()
        self.runtime = self.view = None

    @rule()
    def apply_batch(self) -> None:
        self.apply()

    @rule()
    def save_checkpoint(self) -> None:
        self.save()

    @rule()
    def switch_model(self) -> None:
        self.switch()

    @rule(
        stores=st.none() | st.integers(0, 30),
        meanwhile=st.lists(st.sampled_from(["apply", "save", "switch"]), max_size=3),
    )
    def send_round(self, stores: int | None, meanwhile: list[str]) -> None:
        self.table.stores = stores
        self.table.meanwhile = [getattr(self, name) for name in meanwhile]
        self.send()
        self.table.stores, self.table.meanwhile = None, []

    @rule()
    def crash_and_restart(self) -> None:
        self.crash()
        self.open()

    @rule(stores=st.integers(0, 30), meanwhile=st.lists(st.sampled_from(["apply", "save"]), max_size=3))
    def crash_in_a_write(self, stores: int, meanwhile: list[str]) -> None:
        self.send_round(stores, meanwhile)
        self.crash_and_restart()

    @rule()
    def stop_and_restart(self) -> None:
        self.runtime.stop()
        self.log.close()
        self.open()

    @invariant()
    def no_room_is_wasted(self) -> None:
        if self.runtime is not None:
            assert self.view._unsent.left <= 120

    def teardown(self) -> None:
        if self.runtime is not None:
            for _ in range(2):
                self.send()
            self.compare()
            self.runtime.stop()
            self.log.close()
        shutil.rmtree(self.folder)

    def compare(self) -> None:
        assert (self.view.lag, self.view.oldest_age) == (0, 0.0)
        engine = self.runtime.models.find(self.model)
        ids = self.runtime.graph.ids()
        now = dict(zip(ids.tolist(), engine.predict(ids), strict=True))
        there = {id: row for id, row in self.table.rows.items() if row[2] is not None}
        assert there.keys() == now.keys()
        for id, (_, model, prediction) in there.items():
            assert model == engine.name
            if self.filter is None:
                np.testing.assert_array_equal(prediction, now[id])
            else:
                assert not self.filter.passes(now[id][None], prediction[None])[0]


SinkMachine.TestCase.settings = settings(
    max_examples=draws(12, 300), stateful_step_count=draws(14, 40), deadline=None
)
TestSinks = pytest.mark.filterwarnings("ignore")(SinkMachine.TestCase)
