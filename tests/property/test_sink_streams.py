"""Sinks of predictions beside a dict, step by step (stepped_sink.py)."""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from gate import draws
from livegnn import Engine, Events, Graph
from livegnn.connectors.row_filter import RowFilter
from livegnn.connectors.sink_view import SinkView
from livegnn.inference import RowPredictor
from stepped_sink import SinkRules, SteppedSink
from streams import WIDTH, make_graph, make_model, make_stream


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


class Service(SteppedSink):
    """A sink of predictions."""

    def __init__(
        self, filter: RowFilter | None, *, text: bool = False, most: int = 60, model: str | None = None
    ) -> None:
        self.text, self.most, self.model = text, most, model
        self.stream, self.flips = iter(STREAMS[text]), flips(text)
        super().__init__(filter)

    def factories(self) -> dict[str, object]:
        return {name: Engine.factory(model, name=name, threads=1) for name, model in MODELS.items()}

    def make_graph(self) -> Graph:
        return make_graph(text=self.text)

    def make_view(self, graph: Graph, state: object) -> SinkView:
        return SinkView(
            graph, self.table, model=self.model, filter=self.filter, most_rows=self.most, state=state
        )

    def apply(self) -> None:
        if (events := next(self.stream, None)) is not None:
            self.runtime.append(events)
            self.runtime.step()

    def flip(self) -> None:
        self.stream = iter([next(self.flips)])
        self.apply()

    def rows(self, engine: RowPredictor) -> dict[object, np.ndarray]:
        ids = self.runtime.graph.ids()
        return dict(zip(ids.tolist(), engine.predict(ids), strict=True))


class SinkMachine(SinkRules):
    @initialize(
        text=st.booleans(), filter=st.sampled_from(FILTERS), most=st.integers(1, 60), named=st.booleans()
    )
    def begin(self, text: bool, filter: RowFilter | None, most: int, named: bool) -> None:
        self.service = Service(filter, text=text, most=most, model="other" if named else None)

    @rule()
    def stop_and_restart(self) -> None:
        self.service.stop()


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
