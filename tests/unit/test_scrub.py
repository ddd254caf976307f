"""Scrubbing: rounds when they are due, other nodes each time, and what they see."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from livegnn import Engine, Events, Graph, InputError
from livegnn.inference import Scrub, ScrubPolicy
from livegnn.log.sqlite import SqliteLog
from livegnn.model import Input, Model, Propagate, Step
from livegnn.runtime import Runtime
from livegnn.types import DEFAULT_EDGE_TYPE
from modules import Design, make
from streams import make_graph, make_model


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
    ("settings", "message"),
    [({"every_seconds": 0}, "above 0"), ({"every_seconds": "x"}, "above 0"), ({"sample": 0}, "at least 1")],
)
def test_a_policy_that_makes_no_sense_is_refused(settings, message):
    with pytest.raises(InputError, match=message):
        ScrubPolicy(**settings)


# Rows are written into an engine that runs: a state that contradicts the graph is refused at once.


def make_tampered(
    model: Model, graph: Graph, change: Callable[[Engine, dict[str, np.ndarray]], None]
) -> Engine:
    engine = Engine(graph, model)
    copies = {name: array.copy() for name, array in engine.state().arrays.items() if name.startswith("rows/")}
    change(engine, copies)
    for name, rows in copies.items():
        engine.native_engine.write(int(name.removeprefix("rows/")), rows)
    return engine


def make_sum_of_two_columns() -> tuple[Model, Graph]:
    """Unix times and amounts."""
    rng = np.random.default_rng(3)
    x = np.stack([1.7e9 + rng.uniform(0, 1e6, 30), rng.uniform(1, 100, 30)], axis=1).astype(np.float32)
    ends = np.divmod(rng.choice(900, 120, replace=False), 30)
    step = Step("propagate", ("x",), "sum", {}, Propagate(DEFAULT_EDGE_TYPE).to_attrs())
    return Model({"x": Input("node", 2)}, (step,), {}, "sum", ("x", "sum")), Graph.from_edges(*ends, x=x)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_row_that_is_not_finite_is_counted_and_is_no_small_difference(bad):
    def poison(engine: Engine, arrays: dict[str, np.ndarray]) -> None:
        arrays[f"rows/{engine.plan.kept['sum'].index}"][7, 1] = bad

    engine = make_tampered(*make_sum_of_two_columns(), poison)
    scrub = Scrub(engine, ScrubPolicy(sample=30), Clock())
    scrub.run()
    assert scrub.largest == np.inf
    assert scrub.not_finite == 1


def test_a_small_column_is_not_hidden_by_a_large_one():
    """A part in ten thousand of an amount, beside a time that is ten million times as large."""

    def drift(engine: Engine, arrays: dict[str, np.ndarray]) -> None:
        rows = arrays[f"rows/{engine.plan.kept['sum'].index}"]
        rows[:, 1] *= np.float32(1.0004)

    assert make_tampered(*make_sum_of_two_columns(), lambda engine, arrays: None).scrub(30) < 1e-6
    assert make_tampered(*make_sum_of_two_columns(), drift).scrub(30) > 1e-4


def test_a_sum_of_weights_that_drifted_is_seen():
    def drift(engine: Engine, arrays: dict[str, np.ndarray]) -> None:
        (context,) = (kept for kept in engine.plan.kept.values() if kept.context is not None and kept.summed)
        arrays[f"rows/{context.index}"] *= np.float32(1.0139)

    graph = make_graph()
    assert make_tampered(make_model(), graph, lambda engine, arrays: None).scrub(40) < 1e-6
    assert make_tampered(make_model(), graph, drift).scrub(40) > 0.01


def test_a_degree_that_is_wrong_is_seen():
    def miscount(engine: Engine, arrays: dict[str, np.ndarray]) -> None:
        for kept in engine.plan.kept.values():
            if kept.context is not None and not kept.summed:
                arrays[f"rows/{kept.index}"] += 1

    assert make_tampered(make_model(), make_graph(), miscount).scrub(40) > 0.01


@pytest.mark.parametrize("kind", ["resgated", "gat", "agnn"])
def test_messages_of_both_ends_are_compared_by_channel(kind):
    rng = np.random.default_rng(4)
    x = rng.standard_normal((30, 4)).astype(np.float32)
    graph = Graph.from_edges(*np.divmod(rng.choice(900, 120, replace=False), 30), x=x)
    _, model = make(Design(kind, depth=1))

    def aggregate(engine: Engine) -> str:
        return next(f"rows/{k.index}" for k in engine.plan.kept.values() if k.propagation is not None)

    def drift(engine: Engine, arrays: dict[str, np.ndarray]) -> None:
        rows = arrays[aggregate(engine)]
        channel = int(np.abs(rows).sum(axis=0).argmin())
        rows[:, channel] *= np.float32(1.001)

    def poison(engine: Engine, arrays: dict[str, np.ndarray]) -> None:
        arrays[aggregate(engine)][3, 0] = np.nan

    assert make_tampered(model, graph, lambda engine, arrays: None).scrub(30) < 1e-5
    assert make_tampered(model, graph, drift).scrub(30) > 1e-4
    seen = make_tampered(model, graph, poison).scrubbed(30)
    assert seen.difference == np.inf
    assert seen.not_finite == 1
