"""A view that fails: the loop ends and names it, or goes on without it and builds it again from the graph."""

import errno
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import livegnn as lg
from livegnn.errors import ViewMissingError
from livegnn.graph import GraphDelta, View
from livegnn.inference import ScrubPolicy
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import CheckpointPolicy, Runtime, restore
from livegnn.runtime.views import MOST_TRIES, SETTLED
from livegnn.types import State
from mirror import frozen
from streams import make_graph, make_model, make_stream
from waiting import PATIENCE

MODEL = make_model()


class Edges(View):
    """Counts edges, and fails at the calls that `plan` names: (what is called, the number of the call)."""

    name = "edges"

    def __init__(self, graph: lg.Graph, plan: "Plan") -> None:
        super().__init__(graph)
        plan.fail("make")
        self.plan, self.closed = plan, False
        with graph.writer:
            self.count = self._next = graph.num_edges()
            graph.attach(self)

    def prepare(self, change: GraphDelta) -> None:
        edges = change.edges()
        self._next = self.count + int(edges.has.sum()) - int(edges.had.sum())
        self.plan.fail("prepare")

    def commit(self, change: GraphDelta) -> None:
        self.plan.fail("commit")
        self.count = self._next

    def publish(self, change: GraphDelta) -> None:
        self.plan.fail("publish")

    def state(self) -> State:
        return State({"kind": self.name, "seq": self.seq}, {})

    def close(self) -> None:
        self.closed = True


class Plan:
    """Which calls fail, over all views that a factory makes."""

    def __init__(self, **fails: object) -> None:
        self._fails = fails
        self._calls = dict.fromkeys(("make", "prepare", "commit", "publish"), 0)
        self.made: list[Edges] = []

    def fail(self, what: str) -> None:
        self._calls[what] += 1
        if self._calls[what] in self._fails.get(what, ()):  # type: ignore[operator]
            raise RuntimeError(f"broken {what} {self._calls[what]}")

    def factory(self, graph: lg.Graph, state: State | None) -> Edges:
        self.made.append(Edges(graph, self))
        return self.made[-1]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SqliteLog]:
    log = SqliteLog(tmp_path / "events.db")
    yield log
    log.close()


def make_runtime(log: SqliteLog, plan: Plan, **settings: object) -> Runtime:
    graph = make_graph()
    return Runtime(
        log,
        graph,
        lg.Engine(graph, MODEL, threads=1),
        plan.factory(graph, None),
        **{
            "when_view_fails": "rebuild",
            "factories": {"engine": lg.Engine.factory(MODEL, threads=1), "edges": plan.factory},
            "max_batch_events": 1,
            **settings,
        },  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("what", ["prepare", "commit", "publish"])
def test_a_view_that_fails_once_is_built_again_and_others_go_on(
    log: SqliteLog, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    plan = Plan(**{what: {3}})
    runtime = make_runtime(log, plan)
    told: list[int] = []
    runtime.subscribe(lambda change: told.append(change.seq))
    entries = make_stream(12)
    ends = [runtime.append(events) for events in entries]
    for _ in entries:
        runtime.step()
    assert runtime.seq == ends[-1]
    assert told == ends  # each batch once, that of the failure too
    assert not log.rejections()
    assert len(plan.made) == 2
    assert [view.closed for view in plan.made] == [True, False]
    rebuilt = runtime.views["edges"]
    assert rebuilt is plan.made[1]
    assert rebuilt.count == runtime.graph.num_edges()  # type: ignore[attr-defined]
    assert runtime.engine.verify().ok
    assert f"the view 'edges' failed at event {ends[2] if what != 'prepare' else ends[1]}" in caplog.text
    assert "the view 'edges' is there again" in caplog.text
    # The log says the same as if nothing had happened.
    again = make_runtime(log, Plan())
    assert frozen(again.graph.state()) == frozen(runtime.graph.state())
    assert frozen(again.engine.state()) == frozen(runtime.engine.state())


def test_meanwhile_the_view_is_missing_and_says_so(log: SqliteLog, tmp_path: Path) -> None:
    plan = Plan(prepare={1}, make={2})
    runtime = make_runtime(log, plan, checkpoints=CheckpointPolicy(tmp_path / "c", every_events=1))
    seq = runtime.append(lg.Events().remove_nodes(3))
    runtime.step()  # it fails, and then its factory does
    assert runtime.seq == seq
    assert list(runtime.views) == ["engine"]
    assert "edges" not in runtime.views
    assert runtime.views.missing == {"edges": "it could not be built: broken make 2"}
    with pytest.raises(ViewMissingError, match="the view 'edges' failed and is being built again"):
        runtime.views["edges"]
    with pytest.raises(KeyError):
        runtime.views["nodes"]
    assert runtime.predict([4]).seq == seq
    _, views = restore(
        {"edges": lambda graph, state: Without(graph, state)}, make_graph, directory=tmp_path / "c"
    )
    assert views["edges"].seq == seq  # the checkpoint had nothing of it
    runtime.step()
    assert runtime.views.missing == {}
    assert runtime.views["edges"] is plan.made[1]
    runtime.stop()
    assert plan.made[1].closed


class Without(View):
    name = "edges"

    def __init__(self, graph: lg.Graph, state: State | None) -> None:
        super().__init__(graph)
        assert state is None
        graph.attach(self)


@pytest.mark.parametrize("what", ["prepare", "make"])
def test_a_view_that_always_fails_ends_the_loop_after_some_tries(log: SqliteLog, what: str) -> None:
    plan = Plan(**{"prepare": {1}, what: range(1 if what == "prepare" else 2, 1000)})
    runtime = make_runtime(log, plan)
    for events in make_stream(20):
        runtime.append(events)
    runtime.start()
    with pytest.raises(lg.LiveGNNError, match="will not be visible"):
        runtime.wait(log.last_seq(), timeout=PATIENCE)
    runtime.stop()
    assert str(runtime.failure).startswith(
        f"the view 'edges' failed again after it was built {MOST_TRIES} times: "
    )
    assert plan._calls["make"] == 1 + MOST_TRIES
    assert runtime.engine.verify().ok  # the other one is where the loop ended
    assert runtime.seq > 0


def test_tries_are_counted_anew_when_a_view_has_followed_for_long(log: SqliteLog) -> None:
    plan = Plan(prepare={step * (SETTLED + 5) for step in range(1, 6)})
    runtime = make_runtime(log, plan, factories={"edges": plan.factory, "engine": lg.Engine.factory(MODEL)})
    for i in range(6 * (SETTLED + 5)):
        runtime.append(lg.Events().add_nodes(100 + i, np.zeros(4)))
        runtime.step()
    assert len(plan.made) == 6
    assert runtime.views.missing == {}


def test_by_default_the_loop_ends_and_names_the_view(log: SqliteLog) -> None:
    runtime = make_runtime(log, Plan(prepare={2}), when_view_fails="stop", factories={})
    ends = [runtime.append(events) for events in make_stream(3)]
    runtime.start()
    with pytest.raises(
        lg.LiveGNNError, match=r"will not be visible.*the view 'edges' failed: broken prepare 2"
    ):
        runtime.wait(ends[-1], timeout=PATIENCE)
    runtime.stop()
    assert runtime.seq == ends[0]
    assert isinstance(runtime.failure, lg.LiveGNNError)
    assert isinstance(runtime.failure.__cause__, RuntimeError)


def test_an_engine_is_built_again_and_the_old_one_answers_no_more(log: SqliteLog) -> None:
    class Fragile(lg.Engine):
        fails = True

        def prepare(self, change: GraphDelta) -> None:
            super().prepare(change)
            if Fragile.fails and change.num_events:
                Fragile.fails = False
                raise OSError(errno.EIO, "its file is gone")

    graph = make_graph()
    old = Fragile(graph, MODEL, threads=1)
    missing: list[object] = []

    def make(graph: lg.Graph, state: State | None) -> lg.Engine:
        for ask in (
            lambda: runtime.engine,
            lambda: runtime.predict([4]),
            lambda: runtime.predict_at_once([4]),
        ):
            try:
                ask()
            except ViewMissingError as error:
                missing.append(str(error))
        return lg.Engine(graph, MODEL, threads=1)

    runtime = Runtime(
        log, graph, old, when_view_fails="rebuild", factories={"engine": make}, scrub=ScrubPolicy()
    )
    runtime.append(lg.Events().add_nodes(77, np.ones(4)))
    runtime.step()
    assert len(missing) == 3
    assert "OSError: [Errno 5] its file is gone" in str(missing[0])
    assert runtime.engine is not old
    assert runtime.engine.verify().ok
    assert runtime.predict([77]).seq == 1
    assert runtime.has_engine
    for ask in (lambda: old.predict([77]), lambda: old.embeddings(-1), lambda: old.what_if(lg.Events())):
        with pytest.raises(ViewMissingError, match="got one that its graph no longer updates"):
            ask()
    assert runtime.scrub is not None
    runtime.scrub.run()


def test_a_refusal_of_a_view_and_a_full_disk_are_no_failures(log: SqliteLog) -> None:
    class Picky(Plan):
        def fail(self, what: str) -> None:
            if what == "prepare" and self.errors:
                raise self.errors.pop()

    plan = Picky()
    plan.errors = [lg.InputError("not on Sundays"), lg.InputError("not on Sundays")]  # type: ignore[attr-defined]
    runtime = make_runtime(log, plan)
    seq = runtime.append(lg.Events().remove_nodes(3))
    plan.errors.pop()  # type: ignore[attr-defined]
    runtime.step()
    rejection = runtime.rejection(seq)
    assert rejection is not None
    assert rejection.message == "not on Sundays"
    plan.errors = [OSError(errno.ENOSPC, "full")]  # type: ignore[attr-defined]
    seq = runtime.append(lg.Events().remove_nodes(3))
    with pytest.raises(OSError, match="full"):
        runtime.step()
    runtime.step()
    assert runtime.seq == seq
    assert len(plan.made) == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"when_view_fails": "ignore"}, "when_view_fails must be 'stop' or 'rebuild', got 'ignore'"),
        ({"factories": {}}, "needs a factory for each view, got none for 'engine'"),
        ({"factories": [1]}, "factories must be names of views and their factories, got list"),
        ({"factories": {"edges": 3}}, "the factory of 'edges' must be a function of a Graph and a State"),
    ],
)
def test_settings_that_make_no_sense(log: SqliteLog, settings: dict[str, object], message: str) -> None:
    with pytest.raises(lg.InputError, match=message):
        make_runtime(log, Plan(), **settings)


def test_who_has_the_native_engine_of_a_view_that_failed_gets_nothing_of_it() -> None:
    """A thread may have taken it just before: after the next batch its rows are those of other nodes."""
    graph = make_graph()
    engine = lg.Engine(graph, MODEL)
    native, ids = engine.native_engine, graph.node_ids.given(np.arange(3))
    assert native.predict(ids, 0).shape[0] == 3
    graph.views.detach(engine)
    engine.retire()
    graph.apply(lg.Events().add_nodes(np.arange(1000, 90_000)))
    for rows in (native.predict(ids, 0), native.predict_at_once(ids, 0)):
        assert rows is None
    with pytest.raises(ViewMissingError, match="got one that its graph no longer updates"):
        engine.predict([1])
