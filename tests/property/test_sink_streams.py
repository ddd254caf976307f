"""Sinks beside a dict: whatever fails, is slow or crashes, a sink ends with the predictions of the service.

A sink stores some rows of a write and fails; while it writes, batches are applied, checkpoints written, other
models switched to. A crash leaves the log, the checkpoints and what the sink has stored.
"""

import contextlib
import itertools
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from gate import draws
from livegnn import Engine, Events, Graph
from livegnn.connectors.row_filter import RowFilter
from livegnn.connectors.sink_view import SinkView
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import CheckpointPolicy, Runtime, restore
from streams import WIDTH, make_graph, make_model, make_stream
from with_sink import Register, Table


def flips(text: bool) -> Iterator[Events]:
    """Features of a few nodes that change to and fro, so that predictions are again what a sink once had."""
    ids = [f"n{id}" for id in range(6)] if text else list(range(6))
    rows = np.random.default_rng(1).normal(size=(2, len(ids), WIDTH))
    return itertools.cycle(Events().set_features(ids, row) for row in rows)


def mixed(seed: int, *, text: bool) -> list[Events]:
    """Events of every kind, with a flip after each; one that names a removed node is refused."""
    pairs = zip(make_stream(40, seed, text=text), flips(text), strict=False)
    return list(itertools.chain.from_iterable(pairs))


STREAMS = [mixed(2, text=False), mixed(3, text=True)]
MODELS = {"engine": make_model(0), "other": make_model(5)}
FILTERS = [
    None,
    RowFilter(class_changed=True),
    RowFilter(threshold=0.1, column=1),
    RowFilter(moved_by=0.3),
    RowFilter(moved_by=1e6),
]


class Service:
    """A runtime with two models and a sink, which sends when it is told to."""

    def __init__(
        self, filter: RowFilter | None, *, text: bool = False, most: int = 60, model: str | None = None
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="livegnn-sinks-"))
        self.table, self.register = Table(), Register()
        self.text, self.filter, self.most, self.model = text, filter, most, model
        self.stream, self.flips = iter(STREAMS[text]), flips(text)
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

    def flip(self) -> None:
        self.stream = iter([next(self.flips)])
        self.apply()

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

    def close(self) -> None:
        """Sends the rest, and compares."""
        for _ in range(2):
            self.send()
        self.compare()
        self.runtime.stop()
        self.log.close()
        shutil.rmtree(self.folder)


class SinkMachine(RuleBasedStateMachine):
    service: Service | None = None

    @initialize(
        text=st.booleans(), filter=st.sampled_from(FILTERS), most=st.integers(1, 60), named=st.booleans()
    )
    def begin(self, text: bool, filter: RowFilter | None, most: int, named: bool) -> None:
        self.service = Service(filter, text=text, most=most, model="other" if named else None)

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

    @rule()
    def stop_and_restart(self) -> None:
        self.service.stop()

    def teardown(self) -> None:
        if self.service is not None:
            self.service.close()


SinkMachine.TestCase.settings = settings(
    max_examples=draws(12, 300), stateful_step_count=draws(14, 40), deadline=None
)
TestSinks = pytest.mark.filterwarnings("ignore")(SinkMachine.TestCase)


SCENARIOS = {
    "a row that was sent after the checkpoint, and changed back in the replay": (
        "flip send save flip send flip crash send"
    ),
    "a row that was lacked at the checkpoint, was sent, and changed back after the restart": (
        "flip send flip save send crash flip send"
    ),
    "the same with a clean stop": "flip send flip stop send flip send",
    "a row that a failing write has stored, and that changed back": "flip send flip fail flip send",
    "a row that was being sent at the checkpoint": "flip send flip fail_saving flip crash send",
    "another model while rows are sent": "send_switching send",
    "a model and back before a crash": "flip send save switch send switch crash send",
    "a model and back, twice": "switch send switch flip send save switch send switch crash send",
}


@pytest.mark.parametrize("filter", FILTERS)
@pytest.mark.parametrize("steps", SCENARIOS.values(), ids=SCENARIOS.keys())
def test_a_sink_ends_as_the_service(steps: str, filter: RowFilter | None) -> None:
    service = Service(filter)
    calls = {
        "fail": lambda: service.send(60),
        "fail_saving": lambda: service.send(60, ["save"]),
        "send_switching": lambda: service.send(None, ["switch", "flip"]),
    }
    for step in steps.split():
        calls.get(step, getattr(service, step, None))()
    service.close()
