"""A runtime with two models and a sink, step by step: whatever fails, is slow or crashes, the sink ends with
the rows of the service.

A sink stores some rows of a write and fails; while it writes, batches are applied, checkpoints written, other
models switched to. A crash leaves the log, the checkpoints and what the sink has stored.
"""

import contextlib
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from livegnn import Graph
from livegnn.connectors.row_filter import RowFilter
from livegnn.connectors.sink_view import SinkView
from livegnn.inference import RowPredictor
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import CheckpointPolicy, Runtime, restore
from with_sink import Register, Table


class SteppedSink:
    """The sink sends when a test says so. model: whose rows it gets; by default of the one that serves."""

    model: str | None = None

    def __init__(self, filter: RowFilter | None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="livegnn-sinks-"))
        self.table, self.register, self.filter = Table(), Register(), filter
        self.open()

    def factories(self) -> dict[str, object]:
        """The two engines, "engine" and "other"."""
        raise NotImplementedError

    def make_graph(self) -> Graph:
        raise NotImplementedError

    def make_view(self, graph: Graph, state: object) -> SinkView:
        raise NotImplementedError

    def apply(self) -> None:
        raise NotImplementedError

    def rows(self, engine: RowPredictor) -> Mapping[object, np.ndarray]:
        """Those that the sink should have, by id."""
        raise NotImplementedError

    def open(self) -> None:
        self.log = SqliteLog(self.folder / "events.db")
        policy = CheckpointPolicy(self.folder / "checkpoints", every_events=None, beside=False)
        graph, views = restore(
            self.factories() | {"sink": self.make_view},
            self.make_graph,
            directory=policy.directory,
            log=self.log,
        )
        self.runtime = Runtime(self.log, graph, *views.values(), checkpoints=policy, register=self.register)
        self.view = views["sink"]
        self.view._begin(self.runtime)  # without its thread: the rules say when it sends

    def save(self) -> None:
        self.runtime._checkpoints.write(self.runtime.seq)
        assert self.runtime._checkpoints.failure is None

    def switch(self) -> None:
        self.runtime.models.switch("other" if self.runtime.models.serving == "engine" else "engine")

    def send(self, stores: int | None = None, meanwhile: Sequence[str] = ()) -> None:
        """A round. stores: as of `Table`. meanwhile: methods that are called in its first write."""
        self.table.stores = stores
        self.table.meanwhile = [getattr(self, name) for name in meanwhile]
        with contextlib.suppress(ConnectionError):
            self.view._send_round()
        self.table.stores, self.table.meanwhile = None, []

    def crash(self) -> None:
        """Ends it at once, and starts it again."""
        self.runtime.models.close()
        self.log.close()
        self.runtime = self.view = None
        self.open()

    def stop(self) -> None:
        self.runtime.stop()
        self.log.close()
        self.open()

    def compare(self) -> None:
        assert (self.view.lag, self.view.oldest_age) == (0, 0.0)
        engine = self.runtime.models.find(self.model)
        now = self.rows(engine)
        there = {id: row for id, row in self.table.rows.items() if row[2] is not None}
        assert there.keys() == now.keys()
        for id, (_, model, row) in there.items():
            assert model == engine.name
            if self.filter is None:
                np.testing.assert_array_equal(row, now[id])
            else:
                assert not self.filter.passes(now[id][None], row[None])[0]

    def close(self) -> None:
        """Sends the rest, and compares."""
        for _ in range(2):
            self.send()
        self.compare()
        self.runtime.stop()
        self.log.close()
        shutil.rmtree(self.folder)


class SinkRules(RuleBasedStateMachine):
    """The rules of any sink. Subclasses make the service."""

    service: SteppedSink | None = None

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

    @rule()
    def crash_and_restart(self) -> None:
        self.service.crash()

    @rule(stores=st.integers(0, 30), meanwhile=st.lists(st.sampled_from(["apply", "save"]), max_size=3))
    def crash_in_a_write(self, stores: int, meanwhile: list[str]) -> None:
        self.service.send(stores, meanwhile)
        self.service.crash()

    def teardown(self) -> None:
        if self.service is not None:
            self.service.close()
