"""Views: what they are told, what they may refuse, what checkpoints keep of them."""

from __future__ import annotations

import gc
import re
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import livegnn as lg
import livegnn._core as _core
from histograms import DegreeHistogram as InDegrees
from histograms import OutDegrees
from livegnn import checkpoint
from livegnn.errors import FileFormatError
from livegnn.graph import EdgeSchema, GraphDelta, Schema, View
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import CheckpointPolicy, Runtime, list_checkpoints, restore
from livegnn.types import State
from mirror import frozen
from streams import make_graph, make_model, make_overflow, make_stream
from waiting import PATIENCE

GUIDE = (Path(__file__).parents[2] / "docs" / "views.md").read_text(encoding="utf-8")
HEADER = (Path(__file__).parents[2] / "cpp" / "views" / "degree_histogram.h").read_text(encoding="utf-8")
EDGES = ("node", "to", "node")


class Picky(View):
    """Refuses batches that name a node, and counts what it is told."""

    name = "picky"

    def __init__(self, graph: lg.Graph, state: State | None = None, forbidden: int | str = 13) -> None:
        super().__init__(graph)
        self.forbidden = forbidden
        self.told: list[str] = []
        graph.attach(self)

    def prepare(self, change: GraphDelta) -> None:
        self.told.append("prepare")
        if self.forbidden in change.added().tolist():
            raise lg.InputError(f"expected no node {self.forbidden}")

    def commit(self, change: GraphDelta) -> int:
        self.told.append("commit")
        return change.num_events

    def abandon(self, change: GraphDelta) -> None:
        self.told.append("abandon")

    def publish(self, change: GraphDelta) -> None:
        self.told.append("publish")


def histogram(degrees: np.ndarray) -> list[int]:
    return np.bincount(degrees).tolist() if len(degrees) else []


def assert_fresh(graph: lg.Graph, ins: View, outs: View) -> None:
    ids = graph.ids()
    assert ins.counts.tolist() == histogram(graph.degree(ids))  # type: ignore[attr-defined]
    assert outs.counts.tolist() == histogram(graph.degree(ids, direction="out"))  # type: ignore[attr-defined]


schemas = st.builds(
    EdgeSchema,
    undirected=st.booleans(),
    weighted=st.booleans(),
    timed=st.booleans(),
    duplicates=st.sampled_from(["replace", "keep"]),
    capacity=st.sampled_from([4, 256]),
)


def random_events(graph: lg.Graph, rng: np.random.Generator, text: bool) -> lg.Events:
    """A batch that adds, removes, and removes and adds again."""

    def name(ids: np.ndarray) -> np.ndarray:
        return np.array([f"n{i}" for i in ids], dtype=np.str_) if text else ids

    schema = graph.schema.edge_types[EDGES]
    events, present = lg.Events(), graph.ids()
    new = name(rng.integers(0, 40, int(rng.integers(0, 4))))
    events.add_nodes(new)
    known = np.unique(np.concatenate([present, new])) if len(present) else np.unique(new)
    if not len(known):
        return events
    for _ in range(2):
        count = int(rng.integers(0, 30))
        src, dst = rng.choice(known, (2, count))
        dst = np.where(rng.random(count) < 0.5, known[0], dst)
        columns: dict[str, Any] = {"weight": rng.random(count)} if schema.weighted else {}
        if schema.timed:
            columns["time"] = rng.random(count)
        events.add_edges(src, dst, **columns)
        part = int(rng.integers(0, count + 1))
        events.remove_edges(src[:part], dst[:part])
    gone = rng.choice(known, min(len(known), int(rng.integers(0, 3))), replace=False)
    events.remove_nodes(gone)
    if rng.random() < 0.3:
        events.add_nodes(gone)
    return events


@settings(max_examples=60)
@given(edges=schemas, text=st.booleans(), seed=st.integers(0, 2**32 - 1))
def test_histograms_stay_right_and_after_is_what_comes(edges: EdgeSchema, text: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = lg.Graph(Schema({"node": 0}, {EDGES: edges}, text_ids=text), threads=2)
    ins, outs = InDegrees(graph), OutDegrees(graph)

    class Reader(View):
        """Asks for everything as it will be."""

        def prepare(self, change: GraphDelta) -> None:
            names = [f"n{i}" for i in range(40)] if text else list(range(40))
            self.ids = [i for i in names if change.after.contains([i])[0]]
            self.degrees = {
                d: change.after.degree(np.array(self.ids), direction=d).tolist() if self.ids else []
                for d in ("in", "out")
            }
            self.lists = {
                (i, d): change.after.neighbors(i, direction=d) for i in self.ids for d in ("in", "out")
            }
            self.changes = change.edges(both_directions=True)

    reader = Reader(graph)
    graph.attach(reader)
    for _ in range(5):
        graph.apply(random_events(graph, rng, text))
        assert_fresh(graph, ins, outs)
        assert sorted(reader.ids) == sorted(graph.ids().tolist())
        for direction in ("in", "out"):
            degrees = graph.degree(reader.ids, direction=direction).tolist() if reader.ids else []
            assert reader.degrees[direction] == degrees
            for i in reader.ids:
                found, expected = reader.lists[i, direction], graph.neighbors(i, direction=direction)
                for column in ("ids", "weight", "time", "key"):
                    ours, theirs = getattr(found, column), getattr(expected, column)
                    assert (ours is None) == (theirs is None)
                    assert ours is None or ours.tolist() == theirs.tolist(), column
        assert (reader.changes.time is None) == (not edges.timed)


def test_times_of_changes_and_both_directions() -> None:
    graph = lg.Graph.from_edges([0, 1], [1, 2], time=[1.0, 2.0], undirected=True)
    change = graph.apply(lg.Events().add_edges([0, 2], [1, 2], time=[5.0, 7.0]).remove_edges(2, 1))
    once, twice = change.edges(), change.edges(both_directions=True)
    rows = {(s, t): (had, has) for s, t, had, has, *_ in zip(*map(list, twice[:4]), strict=True)}
    assert rows == {
        (0, 1): (True, True),
        (1, 0): (True, True),
        (1, 2): (True, False),
        (2, 1): (True, False),
        (2, 2): (False, True),
    }
    assert len(once.source) == 3
    assert once.time is not None
    times = dict(zip(zip(once.source.tolist(), once.target.tolist(), strict=True), once.time, strict=True))
    assert times[0, 1] == 5.0
    assert times[2, 2] == 7.0


def test_a_batch_that_one_view_refuses_happens_in_none() -> None:
    graph = make_graph()
    engine = lg.Engine(graph, make_model(), threads=1)
    before, picky, after = InDegrees(graph), Picky(graph, forbidden=100), OutDegrees(graph)
    states = frozen(graph.state()), frozen(engine.state()), before.counts.tolist(), after.counts.tolist()  # type: ignore[attr-defined]
    refused = lg.Events().add_nodes([99, 100]).add_edges(99, 0, weight=1.0)
    with pytest.raises(lg.InputError, match="expected no node 100"):
        graph.apply(refused)
    assert picky.told == ["prepare", "abandon"]
    now = frozen(graph.state()), frozen(engine.state()), before.counts.tolist(), after.counts.tolist()  # type: ignore[attr-defined]
    assert now == states
    with pytest.raises(lg.InputError, match="would be infinite"):
        engine.apply(lg.Events().add_nodes(98, make_overflow()))
    with pytest.raises(ZeroDivisionError):
        graph.apply(lg.Events().add_nodes(99), on_staged=lambda change: 1 / 0)  # type: ignore[arg-type,return-value]
    now = frozen(graph.state()), frozen(engine.state()), before.counts.tolist(), after.counts.tolist()  # type: ignore[attr-defined]
    assert now == states
    change = graph.apply(lg.Events().add_nodes(99).add_edges(99, 0, weight=1.0))
    assert change.update_of(picky) == 2
    assert isinstance(change.update_of(engine), lg.Update)
    assert change.update_of(before) is None
    assert picky.told[-3:] == ["prepare", "commit", "publish"]
    assert_fresh(graph, before, after)
    assert engine.verify().ok


@pytest.mark.parametrize("mode", ["eager", "lazy"])
@pytest.mark.parametrize("when", ["prepare", "commit", "on_staged"])
def test_a_view_cannot_begin_another_batch_within_one(when: str, mode: lg.inference.Mode) -> None:
    graph = make_graph()
    engine = lg.Engine(graph, make_model(), mode=mode)
    refused: list[str] = []

    def attempt(*_: object) -> None:
        calls = [
            lambda: graph.apply(lg.Events().remove_nodes(3)),
            lambda: engine.what_if(lg.Events().remove_nodes(3)).predict([0]),
            *([lambda: engine.embeddings(-1), engine.settle, engine.state] if mode == "lazy" else []),
        ]
        for call in calls:
            with pytest.raises(lg.InputError, match="expected a call between batches"):
                call()
            refused.append(when)
        assert graph.snapshot().ids["node"].size  # reading is allowed

    class Nested(View):
        """Does what it must not."""

    nested = Nested(graph)
    if when != "on_staged":
        setattr(nested, when, attempt)
    graph.attach(nested)
    graph.apply(lg.Events().remove_nodes(7), on_staged=attempt if when == "on_staged" else None)
    assert len(refused) == (5 if mode == "lazy" else 2)
    assert engine.verify().ok
    graph.apply(lg.Events().add_nodes(7), on_committed=lambda change: None)
    assert graph.contains([3]).all()


def test_a_batch_may_begin_in_publish() -> None:
    graph = make_graph()
    engine = lg.Engine(graph, make_model(), threads=1)

    class Follower(View):
        def publish(self, change: GraphDelta) -> None:
            if len(change.removed()):
                self.graph.apply(lg.Events().add_nodes(change.removed()))

    follower = Follower(graph)
    graph.attach(follower)
    graph.apply(lg.Events().remove_nodes(7))
    assert graph.contains([7]).all()
    assert engine.verify().ok


class Failing(View):
    """Raises in one of its calls, once."""

    name = "failing"

    def __init__(self, graph: lg.Graph, when: str) -> None:
        super().__init__(graph)
        self.when = when
        graph.attach(self)

    def _fail(self, when: str) -> None:
        if self.when == when:
            self.when = ""
            raise lg.InputError(f"cannot {when}")

    def prepare(self, change: GraphDelta) -> None:
        self._fail("prepare")

    def commit(self, change: GraphDelta) -> None:
        self._fail("commit")

    def abandon(self, change: GraphDelta) -> None:
        raise ValueError("cannot abandon")

    def publish(self, change: GraphDelta) -> None:
        self._fail("publish")


@pytest.mark.parametrize("when", ["commit", "publish"])
def test_a_view_that_fails_after_the_fact_is_named_and_refuses_nothing(when: str) -> None:
    graph = make_graph()
    failing, after = Failing(graph, when), Picky(graph, forbidden=-1)
    message = rf"a batch was applied, but the view 'failing' failed as it .*: cannot {when}"
    with pytest.raises(lg.LiveGNNError, match=message) as raised:
        graph.apply(lg.Events().remove_nodes(7))
    assert not isinstance(raised.value, lg.InputError)  # whoever sees one may apply the batch again
    assert not graph.contains([7]).any()
    assert after.told == ["prepare", "commit", "publish"]
    assert failing.when == ""


def test_a_view_that_cannot_abandon_hides_no_refusal(caplog: pytest.LogCaptureFixture) -> None:
    graph = make_graph()
    before, failing = Picky(graph, forbidden=-1), Failing(graph, "prepare")
    with pytest.raises(lg.InputError, match="cannot prepare"):
        graph.apply(lg.Events().remove_nodes(7))
    assert before.told == ["prepare", "abandon"]
    assert "the view 'failing' failed to abandon a batch" in caplog.text
    graph.apply(lg.Events().remove_nodes(7))
    assert failing.when == ""


@pytest.mark.parametrize("when", ["commit", "publish"])
def test_a_runtime_ends_where_a_view_fails_and_applies_nothing_twice(log: SqliteLog, when: str) -> None:
    graph = lg.Graph.from_edges([0, 1], [1, 2], weight=[1.0, 1.0], parallel="sum")
    failing = Failing(graph, when)
    runtime = Runtime(log, graph, failing)
    for _ in range(3):
        runtime.append(lg.Events().add_edges(0, 1, weight=1.0))
    with pytest.raises(lg.LiveGNNError, match="failed as it"):
        runtime.step()
    assert runtime.seq == 3
    weights = graph.neighbors(1).weight
    assert weights is not None
    assert weights.tolist() == [4.0]
    assert not runtime.step()


class Unwilling(Picky):
    """Refuses everything for a while, as one whose store does not answer."""

    name = "unwilling"
    refuses = False
    counted = 0

    def prepare(self, change: GraphDelta) -> None:
        super().prepare(change)
        self._next = self.counted + change.num_events
        if self.refuses:
            raise lg.InputError("not now")

    def commit(self, change: GraphDelta) -> None:
        super().commit(change)
        self.counted = self._next


@pytest.mark.parametrize("threaded", [True, False])
def test_a_view_that_refuses_for_a_while_has_entries_refused_and_nothing_else(
    log: SqliteLog, threaded: bool
) -> None:
    """The batch without events that stands for a refused entry was shown to it too, and ended the loop."""
    graph = make_graph()
    unwilling, other = Unwilling(graph, forbidden=-1), Picky(graph, forbidden=-1)
    other.name = "other"
    runtime = Runtime(log, graph, unwilling, other)
    if threaded:
        runtime.start()

    def append(*ids: int) -> None:
        for id in ids:
            seq = runtime.append(lg.Events().add_nodes(id))
        if threaded:
            runtime.wait(seq, PATIENCE)
        while not threaded and runtime.step():
            pass

    append(50)
    unwilling.refuses = True
    append(51, 52)
    append(53)
    unwilling.refuses = False
    append(54)
    assert runtime.failure is None
    assert graph.contains([50, 51, 52, 53, 54]).tolist() == [True, False, False, False, True]
    assert [(one.seq, one.error, one.message) for one in log.rejections()] == [
        (seq, "InputError", "not now") for seq in (2, 3, 4)
    ]
    assert (unwilling.counted, runtime.seq, graph.seq) == (2, 5, 5)
    assert unwilling.told.count("commit") == unwilling.told.count("publish") == 2
    assert other.told.count("commit") == other.told.count("publish") == 5
    runtime.stop()


@pytest.mark.parametrize("when", ["prepare", "commit", "publish"])
@pytest.mark.parametrize("policy", ["stop", "rebuild"])
def test_a_view_that_exits_in_the_loop_has_failed_as_with_any_other_exception(
    log: SqliteLog, when: str, policy: str
) -> None:
    graph = make_graph()

    class Exiting(View):
        name = "exiting"

        def __init__(self, graph: lg.Graph, state: object = None) -> None:
            super().__init__(graph)
            graph.attach(self)

    def leave(change: GraphDelta) -> None:
        raise SystemExit(3)

    exiting = Exiting(graph)
    setattr(exiting, when, leave)
    runtime = Runtime(
        log,
        graph,
        exiting,
        when_view_fails=policy,
        factories={"exiting": Exiting},  # type: ignore[arg-type]
    )
    runtime.start()
    if policy == "rebuild":
        assert runtime.wait(runtime.append(lg.Events().add_nodes(50)), PATIENCE) == 1
        assert runtime.wait(runtime.append(lg.Events().add_nodes(51)), PATIENCE) == 2
        runtime._between_batches.call(lambda: None)
        assert runtime.failure is None
        assert runtime.views["exiting"] is not exiting
    else:
        seq = runtime.append(lg.Events().add_nodes(50))
        with suppress(lg.LiveGNNError):
            runtime.wait(seq, PATIENCE)
        assert runtime._thread is not None
        runtime._thread.join(PATIENCE)
        assert "the view 'exiting'" in str(runtime.failure)
        assert "SystemExit(3)" in str(runtime.failure)
    runtime.stop()


def test_what_if_asks_no_view() -> None:
    graph = make_graph()
    engine, picky = lg.Engine(graph, make_model(), threads=1), Picky(graph)
    engine.what_if(lg.Events().add_nodes(13)).predict([0])
    assert picky.told == []


def test_a_view_is_attached_once_and_must_be_one() -> None:
    graph = make_graph()
    picky = Picky(graph)
    graph.attach(picky)
    graph.apply(lg.Events().add_nodes(50))
    assert picky.told == ["prepare", "commit", "publish"]
    with pytest.raises(lg.InputError, match=r"expected a View, got .*: derive it from livegnn.graph.View"):
        graph.attach("view")  # type: ignore[arg-type]
    with pytest.raises(lg.InputError, match="expected a view of this graph, got 'picky' of another"):
        make_graph().attach(picky)


def test_what_is_native_is_a_native_view() -> None:
    view = View(make_graph())
    view.native = 3  # type: ignore[assignment]
    with pytest.raises(lg.InputError, match="must be None or a native view, got int"):
        view.graph.attach(view)


@pytest.mark.parametrize("when", ["prepare", "commit", "abandon", "on_staged"])
def test_no_view_is_attached_within_a_batch(when: str) -> None:
    """It would be made of the graph before the batch, and never see it."""
    graph, refused = make_graph(), []

    def attach(change: GraphDelta) -> None:
        for make in (lambda: lg.Engine(graph, make_model(), threads=1), lambda: Picky(graph)):
            with pytest.raises(lg.InputError, match="attach views"):
                make()
            refused.append(make)
        if when == "abandon":
            raise lg.InputError("enough")

    class Attaching(View):
        name = "attaching"

        def __init__(self, graph: lg.Graph) -> None:
            super().__init__(graph)
            graph.attach(self)

    view = Attaching(graph)
    if when in ("prepare", "commit"):
        setattr(view, when, attach)
    if when == "abandon":
        view.prepare = view.abandon = attach  # type: ignore[method-assign]
        with pytest.raises(lg.InputError, match="enough"):
            graph.apply(lg.Events().add_nodes(50))
    else:
        graph.apply(lg.Events().add_nodes(50), on_staged=attach if when == "on_staged" else None)
    assert len(refused) == (4 if when == "abandon" else 2)


def test_what_comes_after_a_batch_is_asked_while_it_is_prepared() -> None:
    graph, kept = make_graph(), []
    with pytest.raises(lg.InputError, match="while that is prepared"):
        graph.stage(lg.Events().add_nodes(50)).after
    change = graph.apply(
        lg.Events().add_nodes(50), on_staged=lambda change: kept.append(change.after.contains([50])[0])
    )
    assert kept == [True]
    graph.apply(lg.Events().add_nodes(51), on_staged=lambda change: kept.append(change.after))
    for ask in (
        lambda: change.after,
        lambda: kept[1].contains([50]),
        lambda: kept[1].degree([50]),
        lambda: kept[1].neighbors(50),
    ):
        with pytest.raises(lg.InputError, match="while that is prepared"):
            ask()


def test_a_change_that_is_kept_keeps_no_view() -> None:
    graph = make_graph()
    view = Picky(graph)
    change, gone = graph.apply(lg.Events().add_nodes(50)), weakref.ref(view)
    del view
    gc.collect()
    assert gone() is None
    assert change.num_events == 1


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_while_views_abandon_a_batch_comes_out_when_all_have(
    interrupt: type[BaseException],
) -> None:
    graph = make_graph()
    first = Picky(graph)

    def refuse(change: GraphDelta) -> None:
        raise lg.InputError("no")

    def stop(change: GraphDelta) -> None:
        raise interrupt

    first.abandon = stop  # type: ignore[method-assign]
    second = Picky(graph)
    second.prepare = refuse  # type: ignore[method-assign]
    with pytest.raises(interrupt):
        graph.apply(lg.Events().add_nodes(50))
    assert second.told == ["abandon"]
    del first.abandon, second.prepare
    graph.apply(lg.Events().add_nodes(50))
    assert graph.contains([50]).all()


@pytest.fixture
def log(tmp_path: Path):
    log = SqliteLog(tmp_path / "events.db")
    yield log
    log.close()


FACTORIES = {
    "engine": lg.Engine.factory(make_model(), threads=1),
    "degrees": InDegrees,
    "out_degrees": OutDegrees,
}


def start(log: SqliteLog, directory: Path, factories: dict[str, Any] = FACTORIES) -> Runtime:
    graph, views = restore(factories, make_graph, directory=directory, log=log)
    return Runtime(log, graph, *views.values(), checkpoints=CheckpointPolicy(directory, every_events=100))


def drain(runtime: Runtime, stream: list[lg.Events]) -> None:
    for events in stream:
        runtime.append(events)
    while runtime.step():
        pass


def test_three_views_go_through_batches_checkpoints_and_recovery(tmp_path: Path, log: SqliteLog) -> None:
    runtime = start(log, tmp_path / "c")
    for events in (*make_stream(60), lg.Events().remove_nodes(10**6)):
        drain(runtime, [events])
    assert_fresh(runtime.graph, runtime.views["degrees"], runtime.views["out_degrees"])
    newest = checkpoint.read(list_checkpoints(tmp_path / "c")[0])
    assert set(newest.states) == {"graph", "log", "engine", "degrees", "out_degrees"}
    assert 0 < newest.seq < runtime.seq  # the rest is replayed
    again = start(log, tmp_path / "c")
    for name, view in runtime.views.items():
        ours, theirs = view.state(), again.views[name].state()
        assert ours is not None
        assert theirs is not None
        assert frozen(ours) == frozen(theirs), name
    assert_fresh(again.graph, again.views["degrees"], again.views["out_degrees"])


def test_a_view_that_a_checkpoint_lacks_is_built_from_the_graph(tmp_path: Path, log: SqliteLog) -> None:
    first = start(log, tmp_path / "c", {"degrees": InDegrees})
    drain(first, make_stream(30))
    first.stop()
    second = start(log, tmp_path / "c")
    assert second.seq == first.seq
    assert_fresh(second.graph, second.views["degrees"], second.views["out_degrees"])
    assert second.engine.verify().ok


def test_a_view_whose_state_does_not_fit_is_built_from_the_graph(
    tmp_path: Path, log: SqliteLog, caplog: pytest.LogCaptureFixture
) -> None:
    runtime = start(log, tmp_path / "c")
    drain(runtime, make_stream(10))
    runtime.stop()
    (path,) = list_checkpoints(tmp_path / "c")
    saved = checkpoint.read(path)
    wrong = State(saved.states["out_degrees"].meta, {"counts": np.zeros(3, np.float32)})
    checkpoint.write(path, {**saved.states, "out_degrees": wrong}, saved.seq)
    graph, views = restore(FACTORIES, make_graph, directory=tmp_path / "c", log=log)
    assert graph.seq == saved.seq
    assert f"{path} has nothing that fits the view 'out_degrees', which is built from" in caplog.text
    assert "'out_degrees' does not fit: the array counts holds numbers of another type" in caplog.text
    assert_fresh(graph, views["degrees"], views["out_degrees"])


def test_a_native_view_refuses_a_state_that_is_not_its_own() -> None:
    graph = make_graph()
    for state in (State({"kind": "degrees", "seq": 0}, {}), State({"kind": "out_degrees", "seq": 5}, {})):
        with pytest.raises(FileFormatError, match="expected the state of 'out_degrees' at event 0"):
            OutDegrees(graph, state)
    with pytest.raises(FileFormatError, match="there is no array counts"):
        OutDegrees(graph, State({"kind": "out_degrees", "seq": 0}, {}))


def test_a_runtime_needs_no_engine(tmp_path: Path, log: SqliteLog) -> None:
    runtime = start(log, tmp_path / "c", {"degrees": InDegrees})
    changes: list[Any] = []
    runtime.subscribe(changes.append)
    drain(runtime, make_stream(5))
    assert not runtime.has_engine
    assert changes[-1].seq == runtime.seq
    assert len(changes[-1].ids) == changes[-1].affected == 0
    for ask in (
        lambda: runtime.predict([0]),
        lambda: runtime.what_if(lg.Events(), [0]),
        lambda: runtime.engine,
    ):
        with pytest.raises(lg.InputError, match="this runtime has no engine, and so no predictions"):
            ask()


@pytest.mark.parametrize("name", ["", "graph", "log", "degrees"])
def test_names_of_views_are_their_own(tmp_path: Path, log: SqliteLog, name: str) -> None:
    graph = make_graph()
    first, second = InDegrees(graph), InDegrees(graph)
    second.name = name
    with pytest.raises(lg.InputError, match="a view's name must be its own"):
        Runtime(log, graph, first, second)


def test_two_engines_in_one_runtime(tmp_path: Path, log: SqliteLog) -> None:
    graph = make_graph()
    one = lg.Engine(graph, make_model(), threads=1)
    other = lg.Engine(graph, make_model(seed=5), lg.EngineOptions(mode="lazy"), name="challenger")
    runtime = Runtime(log, graph, one, other, checkpoints=CheckpointPolicy(tmp_path / "c"))
    drain(runtime, make_stream(10))
    runtime.stop()
    assert runtime.engine is one
    assert other.verify().ok
    assert set(checkpoint.read(list_checkpoints(tmp_path / "c")[0]).states) >= {"engine", "challenger"}


def test_the_guide_shows_what_the_header_says() -> None:
    (block,) = re.findall(r"```cpp\n(.*?)```", GUIDE, re.DOTALL)
    lines = [line.strip() for line in HEADER.splitlines()]
    assert [line.strip() for line in block.splitlines() if line.strip() not in lines] == []
    assert _core.DegreeHistogram.__bases__ == (_core.View,)
