"""Scrubbing: rounds when they are due, other nodes each time, and what they see."""

from __future__ import annotations

import numpy as np
import pytest

from livegnn import Engine, Events, Graph, InputError
from livegnn.inference import Scrub, ScrubPolicy
from livegnn.log.sqlite import SqliteLog
from livegnn.model import Input, Model, Propagate, Step
from livegnn.runtime import Runtime
from livegnn.types import DEFAULT_EDGE_TYPE


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def make_engine() -> Engine:
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    graph = Graph.from_edges([0, 1, 2, 3], [1, 2, 3, 0], x=x)
    step = Step("propagate", ("x",), "sum", {}, Propagate(DEFAULT_EDGE_TYPE).to_attrs())
    return Engine(graph, Model({"x": Input("node", 2)}, (step,), {}, "sum", ("x", "sum")))


def test_rounds_are_due_after_events_and_some_time():
    engine, clock = make_engine(), Clock()
    scrub = Scrub(engine, ScrubPolicy(every_seconds=5), clock)
    assert scrub.until() is None
    engine.apply(Events().remove_edges([0], [1]))
    assert scrub.until() == 5
    clock.now = 7
    assert scrub.until() == 0
    scrub.run()
    assert (scrub.rounds, scrub.last, scrub.until()) == (1, 0.0, None)
    assert Scrub(engine, None, clock).until() is None


def test_a_round_sees_a_row_that_is_not_what_its_neighbours_say():
    engine = make_engine()
    scrub = Scrub(engine, ScrubPolicy(sample=4), Clock())
    index = engine.plan.kept["sum"].index
    engine.native_engine.write(index, engine.native_engine.read(index) + np.float32(1))
    scrub.run()
    assert scrub.largest > 0.1


def test_a_runtime_scrubs_between_batches(tmp_path):
    engine, clock = make_engine(), Clock()
    log = SqliteLog(tmp_path / "log.sqlite")
    runtime = Runtime(log, engine.graph, engine, scrub=ScrubPolicy(every_seconds=2), clock=clock)
    runtime.append(Events().add_edges([0], [2]))
    runtime.step()
    assert runtime.scrub.rounds == 0
    clock.now = 3
    runtime.step()
    runtime.step()
    assert (runtime.scrub.rounds, runtime.scrub.largest) == (1, 0.0)
    log.close()


@pytest.mark.parametrize(
    ("settings", "message"), [({"every_seconds": 0}, "above 0"), ({"sample": 0}, "at least 1")]
)
def test_a_policy_that_makes_no_sense_is_refused(settings, message):
    with pytest.raises(InputError, match=message):
        ScrubPolicy(**settings)
