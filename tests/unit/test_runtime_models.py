"""Models that are deployed beside the one that serves, take over, are rolled back and removed."""

import math
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from livegnn import Engine, Events, Graph, InputError, LiveGNNError, LogError, Model, ModelError
from livegnn.errors import ViewMissingError
from livegnn.graph import GraphDelta
from livegnn.log.sqlite import SqliteLog
from livegnn.model import Input, Step
from livegnn.runtime import Change, CheckpointPolicy, ModelState, Runtime, Switch, replay
from streams import WIDTH, make_graph, make_model, make_overflow, make_stream
from waiting import wait_until

OLD, NEW = make_model(), make_model(seed=7)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SqliteLog]:
    log = SqliteLog(tmp_path / "events.db")
    yield log
    log.close()


def make_runtime(log: SqliteLog, **settings: object) -> Runtime:
    graph = make_graph()
    return Runtime(log, graph, Engine(graph, OLD, threads=1), **settings)  # type: ignore[arg-type]


def drain(runtime: Runtime) -> None:
    while runtime.step():
        pass


def state_of(engine: Engine) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in engine.state().arrays.items()}


def all_predictions(runtime: Runtime, model: str | None = None) -> np.ndarray:
    return runtime.predict(runtime.graph.ids(), model=model).values


def copied(graph: Graph) -> Graph:
    return Graph.from_state(graph.state())


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"keep": "aggregates"},
        {"keep": "aggregates", "keep_degree": 3},
        {"mode": "lazy"},
        {"history": 100},
    ],
    ids=str,
)
def test_a_model_that_is_deployed_goes_on_as_one_that_was_there(
    log: SqliteLog, settings: dict[str, object]
) -> None:
    graph = make_graph()
    runtime = Runtime(log, graph, Engine(graph, OLD, threads=1, **settings), max_batch_events=7)  # type: ignore[arg-type]
    entries = make_stream(40)
    for events in entries[:20]:
        runtime.append(events)
    drain(runtime)
    twin_graph = copied(graph)
    twin = Engine(twin_graph, NEW, threads=1, **settings)  # type: ignore[arg-type]
    runtime.models.deploy("new", NEW)
    assert runtime.models.names == ("engine", "new")
    assert runtime.models.serving == "engine"
    assert state_of(runtime.models.find("new")) == state_of(twin)
    for events in entries[20:]:
        runtime.append(events)
    drain(runtime)
    replay(log, twin_graph)
    assert state_of(runtime.models.find("new")) == state_of(twin)
    assert runtime.models.find("new").verify().ok
    runtime.stop()


def test_a_model_that_is_deployed_while_events_stream_has_them_all(log: SqliteLog) -> None:
    runtime = make_runtime(log, max_batch_events=7, max_waiting_ms=math.inf)  # however slow the machine is
    begin = copied(runtime.graph)
    runtime.start()
    entries = make_stream(120)
    writer = threading.Thread(target=lambda: [runtime.append(events) for events in entries])
    writer.start()
    runtime.models.deploy("new", NEW)
    writer.join()
    runtime.wait(log.last_seq())
    got = runtime.read(lambda: state_of(runtime.models.find("new")))[1]
    runtime.stop()
    assert begin.seq == 0
    found = False
    for batch in [None, *log.batches(0)]:  # it was computed at the end of one of them
        graph = copied(begin)
        replay(log, graph, up_to=0 if batch is None else batch.seq)
        engine = Engine(graph, NEW, threads=1)
        replay(log, graph)
        found = found or state_of(engine) == got
    assert found


def test_another_model_takes_over_at_one_event_and_back(log: SqliteLog) -> None:
    runtime = make_runtime(log, max_batch_events=7)
    told: list[Switch | tuple[int, bool, bool]] = []

    def follow(change: Change) -> None:
        if len(change.ids):
            by_model = [
                np.array_equal(runtime.models.find(name).predict(change.ids), change.predictions)
                for name in runtime.models.names
            ]
            told.append((change.seq, by_model[0], by_model[-1]))

    runtime.subscribe(follow, on_switch=told.append)
    runtime.start()
    entries = make_stream(60)
    for events in entries[:20]:
        runtime.append(events)
    runtime.models.deploy("new", NEW)
    for events in entries[20:40]:
        runtime.append(events)
    switch = runtime.models.switch("new")
    assert (switch.model, switch.previous) == ("new", "engine")
    assert (runtime.models.serving, runtime.models.previous) == ("new", "engine")
    assert runtime.engine.digest == NEW.digest
    for events in entries[40:]:
        last = runtime.append(events)
    runtime.wait(last)
    assert np.array_equal(all_predictions(runtime), all_predictions(runtime, "new"))
    assert not np.array_equal(all_predictions(runtime), all_predictions(runtime, "engine"))
    back = runtime.models.roll_back()
    assert back == Switch(last, "engine", "new")
    assert np.array_equal(all_predictions(runtime), all_predictions(runtime, "engine"))
    runtime.stop()
    assert [one for one in told if isinstance(one, Switch)] == [switch, back]
    at = told.index(switch)
    for one in told[:at]:
        assert not isinstance(one, Switch)
        assert one[0] <= switch.seq
        assert one[1]
    for one in told[at + 1 : -1]:
        assert not isinstance(one, Switch)
        assert one[0] > switch.seq
        assert one[2]
    assert any(one[1] != one[2] for one in told if not isinstance(one, Switch))


def test_names_that_cannot_be_are_refused_and_change_nothing(log: SqliteLog) -> None:
    runtime = make_runtime(log)
    models = runtime.models
    for name in ("", "a b", "../up", "graph", "log", ".hidden", "x" * 65, 3, None, "engine"):
        with pytest.raises(InputError, match=r"name of a model must"):
            models.deploy(name, NEW)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"expected a Model"):
        models.deploy("new", "model.lgnn")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"options must be EngineOptions"):
        models.deploy("new", NEW, {})  # type: ignore[arg-type]
    step = Step("relu", ("x",), "out")
    wide = Model({"x": Input("node", WIDTH + 1)}, (step,), {}, "out", layers=("x", "out"))
    with pytest.raises(ModelError):
        models.deploy("new", wide)
    with pytest.raises(InputError, match=r"does not serve, got 'engine'"):
        models.switch("engine")
    for call in (models.switch, models.remove, models.find, models.compare):
        with pytest.raises(InputError, match=r"must be one of engine, got 'new'"):
            call("new")
    with pytest.raises(InputError, match=r"served before, got none"):
        models.roll_back()
    with pytest.raises(InputError, match=r"which serves"):
        models.remove("engine")
    assert models.states() == (ModelState("engine", OLD.digest, "following", True, None),)
    runtime.stop()


def test_a_model_that_is_removed_is_gone(log: SqliteLog) -> None:
    runtime = make_runtime(log)
    runtime.models.deploy("new", NEW)
    runtime.models.switch("new")
    with pytest.raises(InputError, match=r"was not deployed"):
        runtime.models.remove("engine")
    runtime.models.roll_back()
    removed = runtime.models.find("new")
    runtime.models.remove("new")
    with pytest.raises(LiveGNNError):
        removed.predict([0])
    with pytest.raises(InputError, match=r"served before, got none"):
        runtime.models.roll_back()
    for events in make_stream(10):
        runtime.append(events)
    drain(runtime)
    runtime.models.deploy("new", NEW)  # the name is free again
    assert runtime.models.find("new").verify().ok
    runtime.stop()


def test_a_deployed_model_that_fails_is_dropped_and_the_loop_goes_on(log: SqliteLog) -> None:
    runtime = make_runtime(log)
    runtime.models.deploy("new", NEW)
    engine = runtime.models.find("new")

    def fail(change: GraphDelta) -> None:
        raise ValueError("on purpose")

    engine.prepare = fail  # type: ignore[method-assign]
    runtime.start()
    runtime.wait(runtime.append(Events().add_edges([0], [1], weight=[1.0])))
    assert runtime.failure is None
    assert runtime.models.names == ("engine",)
    (_, state) = runtime.models.states()
    assert (state.name, state.phase) == ("new", "failed")
    assert "on purpose" in (state.reason or "")
    runtime.models.remove("new")
    assert len(runtime.models.states()) == 1
    runtime.stop()


def test_only_the_model_that_serves_refuses_what_would_not_be_finite(log: SqliteLog) -> None:
    fragile = make_model()
    weights = {**fragile.tensors, "w1": fragile.tensors["w1"] * 1e20}
    fragile = Model(fragile.inputs, fragile.steps, weights, fragile.output, layers=fragile.layers)
    runtime = make_runtime(log)
    runtime.models.deploy("fragile", fragile)
    large = Events().set_features([0], [[x / 1e10 for x in make_overflow()]])
    seq = runtime.append(large)
    drain(runtime)
    assert runtime.rejection(seq) is None
    assert not np.isfinite(all_predictions(runtime, "fragile")).all()
    assert runtime.models.compare("fragile").not_finite > 0
    runtime.append(Events().set_features([0], np.ones((1, WIDTH))))
    drain(runtime)
    assert np.isfinite(all_predictions(runtime, "fragile")).all()
    runtime.models.switch("fragile")
    seq = runtime.append(large)
    drain(runtime)
    assert runtime.rejection(seq) is not None
    runtime.models.roll_back()
    seq = runtime.append(large)
    drain(runtime)
    assert runtime.rejection(seq) is None
    runtime.stop()


class Notes:
    """A register that notes what it is told, and fails when it should."""

    names = ()
    switches = 0

    def __init__(self, serving: str | None = None, previous: str | None = None) -> None:
        self.serving, self.previous = serving, previous
        self.told: list[tuple[str, ...]] = []
        self.failing = False

    def _note(self, *what: str) -> None:
        if self.failing:
            raise OSError("no space on purpose")
        self.told.append(what)

    def add(self, name: str, model: Model, mode: object) -> None:
        self._note("add", name, model.digest)

    def remove(self, name: str) -> None:
        self._note("remove", name)

    def serve(self, name: str, previous: str | None) -> None:
        self._note("serve", name, str(previous))

    def find_loss(self) -> str | None:
        return None


def test_the_register_is_told_before_and_what_it_refuses_does_not_happen(log: SqliteLog) -> None:
    notes = Notes()
    runtime = make_runtime(log, register=notes)
    notes.failing = True
    with pytest.raises(OSError, match=r"on purpose"):
        runtime.models.deploy("new", NEW)
    assert runtime.models.names == ("engine",)
    notes.failing = False
    runtime.models.deploy("new", NEW)
    notes.failing = True
    for call in (runtime.models.switch, runtime.models.remove):
        with pytest.raises(OSError, match=r"on purpose"):
            call("new")
    assert (runtime.models.serving, runtime.models.names) == ("engine", ("engine", "new"))
    notes.failing = False
    runtime.models.switch("new")
    runtime.models.roll_back()
    runtime.models.remove("new")
    assert notes.told == [
        ("add", "new", NEW.digest),
        ("serve", "new", "engine"),
        ("serve", "engine", "new"),
        ("remove", "new"),
    ]
    runtime.stop()


def test_a_model_that_is_building_or_failed_is_not_a_typo(log: SqliteLog) -> None:
    runtime = make_runtime(log)
    asks = {
        "find": runtime.models.find,
        "predict": lambda name: runtime.predict([1], model=name),
        "compare": runtime.models.compare,
        "switch": runtime.models.switch,
        "remove": runtime.models.remove,
    }
    with runtime.graph.writer:  # so that the copy of the graph is not made
        runtime.models.deploy("new", NEW, wait=False)
        for ask in asks.values():
            with pytest.raises(ViewMissingError, match="'new' is being built and does not follow"):
                ask("new")
            with pytest.raises(InputError, match=r"must be one of engine, got 'typo'"):
                ask("typo")
    runtime.start()
    wait_until(lambda: runtime.models.states()[-1].phase == "following", "that the model is built")
    for name in ("find", "predict", "compare", "switch"):
        asks[name]("new")
    runtime.models.lose("gone", "at event 3: it was there once")
    for name in ("find", "predict", "compare", "switch"):
        with pytest.raises(InputError, match="got 'gone', which failed: at event 3: it was there once"):
            asks[name]("gone")
    runtime.stop()


def test_a_runtime_that_stops_ends_what_is_being_built(log: SqliteLog) -> None:
    runtime = make_runtime(log)
    runtime.start()
    runtime.models.deploy("new", NEW, wait=False)
    runtime.stop()
    assert all(state.phase != "building" for state in runtime.models.states())
    with pytest.raises(LiveGNNError, match=r"stopped|ended"):
        runtime.models.deploy("newer", NEW)
    with pytest.raises((LiveGNNError, LogError)):
        runtime.models.switch("new")


def test_a_subscriber_cannot_wait_for_the_loop_that_calls_it(log: SqliteLog) -> None:
    runtime = make_runtime(log)
    runtime.models.deploy("new", NEW)
    errors: list[Exception] = []

    def switch(change: Change) -> None:
        try:
            runtime.models.switch("new")
        except InputError as error:
            errors.append(error)

    runtime.subscribe(switch)
    runtime.start()
    runtime.wait(runtime.append(Events().add_edges([0], [1], weight=[1.0])))
    runtime.stop()
    assert len(errors) == 1
    assert "another thread" in str(errors[0])


def test_which_model_serves_at_a_start(log: SqliteLog) -> None:
    graph = make_graph()
    views = Engine(graph, OLD, threads=1), Engine(graph, NEW, threads=1, name="new")
    with pytest.raises(InputError, match=r"one of engine, new, got 'newer'"):
        Runtime(log, graph, *views, register=Notes("newer"))
    runtime = Runtime(log, graph, *views, register=Notes("new", "engine"))
    assert runtime.engine is views[1]
    runtime.models.roll_back()
    assert runtime.engine is views[0]
    runtime.stop()


class Kept:
    """A register that notes what it is told, and refuses if it is to."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.serving: str | None = None
        self.previous: str | None = None
        self.switches = 0
        self.full = False

    def add(self, name: str, model: Model, mode: object) -> None:
        if self.full:
            raise OSError("no space")
        self.names.add(name)

    def remove(self, name: str) -> None:
        self.names.discard(name)

    def serve(self, name: str, previous: str | None) -> None:
        if self.full:
            raise OSError("no space")
        self.serving, self.previous = name, previous


def test_what_is_refused_leaves_the_register_as_it_was(log: SqliteLog) -> None:
    register = Kept()
    runtime = make_runtime(log, register=register)
    runtime.models.deploy("new", NEW)
    register.full = True
    with pytest.raises(OSError, match="no space"):
        runtime.models.switch("new")
    with pytest.raises(OSError, match="no space"):
        runtime.models.deploy("more", NEW)
    assert (runtime.models.serving, runtime.models.names) == ("engine", ("engine", "new"))
    register.full = False
    said = []

    def switch_here(change: Change) -> None:
        for call in (
            lambda: runtime.models.switch("new"),
            lambda: runtime.models.remove("new"),
            lambda: runtime.models.deploy("more", NEW),
        ):
            try:
                call()
            except InputError as error:
                said.append(str(error))

    runtime.subscribe(switch_here)
    runtime.start()
    runtime.wait(runtime.append(make_stream(1)[0]))
    runtime.stop()
    assert len(said) == 3
    assert all("another thread than the loop's" in one for one in said)
    for call in (lambda: runtime.models.switch("new"), lambda: runtime.models.remove("new")):
        with pytest.raises(LiveGNNError, match="nothing was changed"):
            call()
    assert (register.serving, register.names) == (None, {"new"})


def test_a_model_is_kept_before_it_is_said_to_follow(log: SqliteLog) -> None:
    """So a crash in between loses nothing that somebody has seen."""
    register = Kept()
    runtime = make_runtime(log, register=register)
    put_back = runtime.views.put_back
    seen: list[bool] = []
    runtime.views.put_back = lambda view: (seen.append("new" in register.names), put_back(view))  # type: ignore[method-assign,assignment,return-value]
    runtime.models.deploy("new", NEW)
    assert seen == [True]


def test_the_log_is_not_trimmed_behind_a_model_that_catches_up(log: SqliteLog, tmp_path: Path) -> None:
    policy = CheckpointPolicy(tmp_path / "checkpoints", every_events=10, keep=2, trim_log=True, beside=False)
    runtime = make_runtime(log, checkpoints=policy)
    stream = make_stream(80)
    for events in stream[:10]:
        runtime.append(events)
    drain(runtime)
    catch_up, begun, go_on = runtime.models._catch_up, threading.Event(), threading.Event()

    def catch_up_late(copy: Graph) -> None:
        begun.set()
        go_on.wait()
        catch_up(copy)

    runtime.models._catch_up = catch_up_late  # type: ignore[method-assign]
    thread = threading.Thread(target=runtime.models.deploy, args=("new", NEW))
    thread.start()
    begun.wait()
    held = runtime.models.needed_after()
    for events in stream[10:]:
        runtime.append(events)
        drain(runtime)
    assert held is not None
    assert log.first_seq() <= held + 1
    go_on.set()
    thread.join()
    assert runtime.models.names == ("engine", "new")
    assert runtime.models.needed_after() is None
    runtime.append(Events().add_nodes(10**6))
    for events in range(30):
        runtime.append(Events().set_features(10**6, np.full(WIDTH, float(events))))
        drain(runtime)
    assert log.first_seq() > held + 1
    anew = Engine(copied(runtime.graph), NEW, threads=1)
    np.testing.assert_allclose(all_predictions(runtime, "new"), anew.predict(runtime.graph.ids()), rtol=1e-4)


def test_views_are_listed_while_some_go(log: SqliteLog) -> None:
    runtime = make_runtime(log)
    stop = threading.Event()
    failures: list[BaseException] = []

    def read() -> None:
        while not stop.is_set():
            try:
                assert "engine" in runtime.models.names
                assert runtime.models.states()
            except BaseException as error:
                failures.append(error)
                return

    thread = threading.Thread(target=read)
    thread.start()
    for _ in range(30):
        runtime.models.deploy("new", NEW)
        runtime.models.remove("new")
    stop.set()
    thread.join()
    assert failures == []
