"""Who is told of batches: after all views show them, each in its turn, and whatever another one raises."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from livegnn import Engine, Events
from livegnn.errors import InputError, LiveGNNError
from livegnn.log.sqlite import SqliteLog
from livegnn.model import Convolution, Model
from livegnn.runtime import Change, Runtime
from streams import WIDTH, make_graph, make_model
from waiting import PATIENCE


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SqliteLog]:
    log = SqliteLog(tmp_path / "events.db")
    yield log
    log.close()


def some_change(rng: np.random.Generator, id: int = 3) -> Events:
    return Events().set_features([id], rng.normal(size=(1, WIDTH)).astype(np.float32))


def fail(update: object) -> None:
    raise InputError("a subscriber that fails")


def test_a_subscriber_that_raises_disturbs_nobody(
    rng: np.random.Generator, caplog: pytest.LogCaptureFixture
) -> None:
    graph = make_graph()
    first, second = Engine(graph, make_model(0), threads=1), Engine(graph, make_model(1), threads=1)
    heard: list[tuple[str, int]] = []
    first.subscribe(fail)
    first.subscribe(lambda update: heard.append(("first", update.seq)))
    second.subscribe(lambda update: heard.append(("second", update.seq)))
    with caplog.at_level(logging.ERROR):
        update = first.apply(some_change(rng))
        graph.apply(some_change(rng))
    assert update.seq == 1
    assert heard == [("first", 1), ("second", 1), ("first", 2), ("second", 2)]
    assert (first.subscriber_failures, second.subscriber_failures) == (2, 0)
    assert [record.exc_info is not None for record in caplog.records] == [True, True]
    assert (first.epoch, second.epoch, graph.seq) == (2, 2, 2)
    for engine in (first, second):
        assert engine.verify().ok
        assert engine.what_if(some_change(rng)).predict([3]).shape == (1, 3)


def test_subscribers_are_told_when_all_views_show_the_batch(rng: np.random.Generator) -> None:
    graph = make_graph()
    first, second = Engine(graph, make_model(0), threads=1), Engine(graph, make_model(1), threads=1)
    seen = []
    first.subscribe(lambda update: seen.append((update.seq, graph.seq, second.epoch)))
    first.apply(some_change(rng))
    assert seen == [(1, 1, 1)]


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_is_raised_when_all_were_told_and_the_batch_stays(
    rng: np.random.Generator, interrupt: type[BaseException]
) -> None:
    engine = Engine(make_graph(), make_model(), threads=1)
    heard = []

    def stop(update: object) -> None:
        raise interrupt

    leave = engine.subscribe(stop)
    engine.subscribe(lambda update: heard.append(update.seq))
    with pytest.raises(interrupt):
        engine.apply(some_change(rng))
    assert (heard, engine.seq, engine.subscriber_failures) == ([1], 1, 0)
    leave()
    engine.apply(some_change(rng))
    assert heard == [1, 2]
    assert engine.verify().ok


def test_a_batch_that_a_subscriber_applies_is_told_of_after_this_one(rng: np.random.Generator) -> None:
    engine = Engine(make_graph(), make_model(), threads=1)
    heard: list[tuple[str, int]] = []

    def answer(update: object) -> None:
        heard.append(("first", engine.seq))
        if engine.seq == 1:
            assert engine.apply(some_change(rng, 5)).seq == 2

    engine.subscribe(answer)
    engine.subscribe(lambda update: heard.append(("second", update.seq)))
    assert engine.apply(some_change(rng)).seq == 1
    assert heard == [("first", 1), ("second", 1), ("first", 2), ("second", 2)]


def test_the_loop_goes_on_and_records_each_batch_once(rng: np.random.Generator, log: SqliteLog) -> None:
    """An InputError of a subscriber was taken for one of the batch, which was applied and recorded again."""
    graph = make_graph()
    runtime = Runtime(log, graph, Engine(graph, make_model(), threads=1))
    changes: list[Change] = []
    runtime.engine.subscribe(fail)
    runtime.subscribe(fail)  # type: ignore[arg-type]
    runtime.subscribe(changes.append)
    for entry in range(3):
        runtime.append(some_change(rng, entry))
        runtime.append(some_change(rng, 20 + entry))
        assert runtime.step()
    assert runtime.seq == graph.seq == log.last_seq() == 6
    assert [tuple(batch) for batch in log.batches(0)] == [(0, 2), (2, 4), (4, 6)]
    assert [change.seq for change in changes] == [2, 4, 6]
    assert log.rejections() == []
    assert runtime.subscriber_failures == 6
    assert runtime.statistics.batch_events.count == 3


def test_an_interrupt_in_the_loop_leaves_the_batch_recorded_and_applied_once(
    rng: np.random.Generator, log: SqliteLog
) -> None:
    graph = make_graph()
    runtime = Runtime(log, graph, Engine(graph, make_model(), threads=1))

    def stop(update: object) -> None:
        raise KeyboardInterrupt

    leave = runtime.engine.subscribe(stop)
    runtime.append(some_change(rng))
    with pytest.raises(KeyboardInterrupt):
        runtime.step()
    leave()
    assert (runtime.seq, graph.seq) == (1, 1)
    runtime.append(some_change(rng))
    assert runtime.step()
    assert [tuple(batch) for batch in log.batches(0)] == [(0, 1), (1, 2)]


@pytest.mark.parametrize(
    "error", [InputError, SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError, StopIteration]
)
def test_whatever_a_subscriber_raises_in_the_loop_is_counted_and_the_loop_goes_on(
    rng: np.random.Generator, log: SqliteLog, error: type[BaseException]
) -> None:
    """`sys.exit` in a subscriber ended the loop."""
    graph = make_graph()
    runtime = Runtime(log, graph, Engine(graph, make_model(), threads=1))
    told: list[int] = []

    def leave(update: object) -> None:
        raise error

    runtime.engine.subscribe(leave)
    runtime.engine.subscribe(lambda update: told.append(update.seq))
    runtime.subscribe(leave, on_end=lambda: leave(None))
    runtime.subscribe(lambda change: told.append(change.seq))
    runtime.start()
    for _ in range(2):
        runtime.wait(runtime.append(some_change(rng)), PATIENCE)
    runtime.wait(runtime.append(some_change(rng)), PATIENCE)
    assert runtime.failure is None
    runtime._between_batches.call(lambda: None)  # all were told of the last batch
    assert told == [1, 1, 2, 2, 3, 3]
    assert runtime.subscriber_failures == 6
    with suppress(error):  # who stops it is another thread, and the end is told there
        runtime.stop()


def test_a_subscriber_that_waits_for_its_own_loop_is_told_so(
    rng: np.random.Generator, log: SqliteLog
) -> None:
    graph = make_graph()
    runtime = Runtime(log, graph, Engine(graph, make_model(), threads=1))
    errors: list[str] = []

    def impatient(change: Change) -> None:
        if change.seq == 1:
            try:
                runtime.wait(runtime.append(some_change(rng)))
            except LiveGNNError as error:
                errors.append(str(error))

    runtime.subscribe(impatient)
    runtime.start()
    runtime.wait(runtime.append(some_change(rng)))
    runtime.wait(2)
    runtime.stop()
    assert errors == [
        "a subscriber must not wait for event 2: the loop applies it when the subscriber returns"
    ]


def test_a_lazy_engine_whose_function_fails_goes_on_and_tells_what_it_can(
    rng: np.random.Generator, log: SqliteLog
) -> None:
    broken: list[bool] = []

    def update(h: np.ndarray, a: np.ndarray) -> np.ndarray:
        if broken:
            raise ZeroDivisionError("no update today")
        return h + a

    graph = make_graph()
    model = Model.from_convolutions([Convolution(update=update)] * 2, in_channels=WIDTH)
    runtime = Runtime(log, graph, Engine(graph, model, threads=1, mode="lazy"))
    changes: list[Change] = []
    runtime.subscribe(changes.append)
    broken.append(True)
    runtime.append(some_change(rng))
    assert runtime.step()
    with pytest.raises(ZeroDivisionError):
        runtime.predict([3])
    broken.clear()
    runtime.append(some_change(rng))
    assert runtime.step()
    assert [change.seq for change in changes] == [1, 2]
    assert np.isnan(changes[0].predictions).all()
    assert np.isfinite(changes[1].predictions).all()
    assert [tuple(batch) for batch in log.batches(0)] == [(0, 1), (1, 2)]
    assert runtime.engine.verify().ok


@pytest.mark.parametrize("callback", [None, "print", 7, []])
def test_what_cannot_be_called_is_refused_at_once(
    rng: np.random.Generator, tmp_path: Path, callback: object
) -> None:
    graph = make_graph()
    engine = Engine(graph, make_model(), threads=1)
    log = SqliteLog(tmp_path / "events.db")
    runtime = Runtime(log, graph, engine)
    for subscribe, of in ((engine.subscribe, "an Update"), (runtime.subscribe, "a Change")):
        with pytest.raises(InputError, match=f"callback must be a function of {of}, got "):
            subscribe(callback)  # type: ignore[operator]
    runtime.stop()
    assert engine.apply(some_change(rng)).seq == 1
    assert (engine.subscriber_failures, runtime.subscriber_failures) == (0, 0)
    for name in ("on_staged", "on_committed") if callback is not None else ():
        for owner in (graph, engine):
            with pytest.raises(InputError, match=f"{name} must be a function of"):
                owner.apply(some_change(rng), **{name: callback})
    assert graph.seq == 1
    log.close()
