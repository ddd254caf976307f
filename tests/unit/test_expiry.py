"""Time to live under a runtime: what expires when, by events in the log that a replay finds again."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from livegnn import EdgeSchema, Engine, Events, Graph, InputError, Schema
from livegnn.expiry import ExpiryPolicy
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import Change, Runtime
from mirror import frozen
from streams import WIDTH, make_model

MODEL = make_model()
X = np.arange(8 * WIDTH, dtype=np.float32).reshape(8, WIDTH) / 10
PERIOD = 60.0


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SqliteLog]:
    log = SqliteLog(tmp_path / "events.db")
    yield log
    log.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def make_graph(time_to_live: float | None = 10.0) -> Graph:
    return Graph.from_edges(
        [0, 1, 2], [1, 2, 3], x=X, weight=[1, 1, 1], time=[0, 5, 8], time_to_live=time_to_live
    )


def make_runtime(log: SqliteLog, clock: Clock, policy: ExpiryPolicy | None, **settings: int) -> Runtime:
    graph = make_graph()
    return Runtime(
        log,
        graph,
        Engine(graph, MODEL, threads=1),
        expiry=policy,
        clock=clock,
        **settings,  # type: ignore[arg-type]
    )


def drain(runtime: Runtime) -> None:
    while runtime.step() or runtime.seq < runtime.log.last_seq():
        pass


def edges_of(graph: Graph) -> set[tuple[int, int]]:
    source, target = graph.snapshot().edge_index["node", "to", "node"]
    return set(zip(source.tolist(), target.tolist(), strict=True))


def test_edges_expire_by_the_latest_time_of_all_events(log: SqliteLog, clock: Clock) -> None:
    runtime = make_runtime(log, clock, ExpiryPolicy(PERIOD))
    runtime.append(Events().add_edges(4, 5, weight=1, time=12))
    drain(runtime)
    assert len(edges_of(runtime.graph)) == 4  # it is not time yet
    clock.now += PERIOD
    drain(runtime)
    assert edges_of(runtime.graph) == {(1, 2), (2, 3), (4, 5)}
    assert [len(entry.events) for entry in log.entries(0)] == [1, 1]
    assert log.entries(1)[0].events == Events().remove_edges([0], [1])
    assert runtime.statistics.expired_edges.total == 1
    # Once more, since the removal was an event, and then nothing can expire until another comes.
    clock.now += PERIOD
    drain(runtime)
    assert runtime._expiry.until() is None
    runtime.append(Events().add_edges([5, 6], [6, 7], weight=[1, 1], time=[18, 1]))  # one has expired already
    clock.now += PERIOD
    drain(runtime)
    assert edges_of(runtime.graph) == {(2, 3), (4, 5), (5, 6)}
    assert runtime.engine.verify().ok


def test_a_replay_removes_the_same_edges(log: SqliteLog, clock: Clock) -> None:
    runtime = make_runtime(log, clock, ExpiryPolicy(PERIOD), max_batch_events=3)
    for time in range(6, 40, 3):
        runtime.append(Events().add_edges(time % 8, (time + 3) % 8, weight=1, time=time))
        clock.now += PERIOD / 2
        drain(runtime)
    assert runtime.statistics.expired_edges.total > 5
    replayed = make_runtime(log, clock, None)
    assert frozen(replayed.graph.state()) == frozen(runtime.graph.state())
    assert frozen(replayed.engine.state()) == frozen(runtime.engine.state())


def test_a_clock_of_its_own(log: SqliteLog, clock: Clock) -> None:
    time = Clock()
    runtime = make_runtime(log, clock, ExpiryPolicy(PERIOD, time))
    runtime.append(Events().add_edges(4, 5, weight=1, time=1e12))  # a time in milliseconds expires nothing
    time.now = 16.0
    clock.now += PERIOD
    drain(runtime)
    assert edges_of(runtime.graph) == {(2, 3), (4, 5)}
    time.now = 19.0
    clock.now += PERIOD
    drain(runtime)
    assert edges_of(runtime.graph) == {(4, 5)}


def test_what_waits_in_the_log_comes_before_what_expires(log: SqliteLog, clock: Clock) -> None:
    """Events that come after the graph was looked at renew one edge, and remove a node of another."""
    late = [Events().add_edges(0, 1, weight=2, time=30), Events().remove_nodes(2)]

    def now() -> float:
        while late:
            runtime.append(late.pop())
        return 30.0

    runtime = make_runtime(log, clock, ExpiryPolicy(PERIOD, now))
    clock.now += PERIOD
    drain(runtime)
    assert edges_of(runtime.graph) == {(0, 1)}
    assert log.rejections() == []
    assert runtime.graph.neighbors(1).weight.tolist() == [2.0]
    assert runtime.statistics.expired_edges.total == 0


def test_many_edges_expire_in_several_entries(log: SqliteLog, clock: Clock) -> None:
    runtime = make_runtime(log, clock, ExpiryPolicy(PERIOD, lambda: 1e6), max_batch_events=2)
    clock.now += PERIOD
    drain(runtime)
    assert edges_of(runtime.graph) == set()
    assert [len(entry.events) for entry in log.entries(0)] == [2, 1]


def test_who_is_told_of_a_batch_may_append_during_expiry(log: SqliteLog, clock: Clock) -> None:
    late = [Events().add_edges(4, 5, weight=1, time=2e6)]
    answers = [Events().add_edges(6, 7, weight=1, time=2e6)]

    def now() -> float:
        while late:
            runtime.append(late.pop())
        return 1e6

    def answer(_: Change) -> None:
        while answers:
            runtime.append(answers.pop())

    runtime = make_runtime(log, clock, ExpiryPolicy(PERIOD, now))
    runtime.subscribe(answer)
    clock.now += PERIOD
    drain(runtime)
    assert edges_of(runtime.graph) == {(4, 5), (6, 7)}


def test_the_loop_wakes_up_to_expire(log: SqliteLog) -> None:
    graph = make_graph()
    policy = ExpiryPolicy(0.001, lambda: 100.0)
    runtime = Runtime(log, graph, Engine(graph, MODEL, threads=1), expiry=policy)
    runtime.start()
    assert runtime.wait(3, timeout=60) == 3  # three removals, with nobody who appends anything
    runtime.stop()
    assert edges_of(graph) == set()


@pytest.mark.parametrize(("time_to_live", "policy"), [(None, ExpiryPolicy(PERIOD, lambda: 1e9)), (10, None)])
def test_nothing_expires_without_time_to_live_or_policy(
    log: SqliteLog, clock: Clock, time_to_live: float | None, policy: ExpiryPolicy | None
) -> None:
    graph = make_graph(time_to_live)
    runtime = Runtime(log, graph, Engine(graph, MODEL, threads=1), expiry=policy, clock=clock)
    clock.now += PERIOD
    assert not runtime.step()
    assert graph.num_edges() == 3
    assert log.last_seq() == 0


def test_a_restored_graph_knows_what_time_it_is() -> None:
    graph = make_graph()
    assert graph.latest_time == 8.0
    graph.apply(Events().add_edges(0, 1, weight=1, time=20).remove_edges(0, 1))
    restored = Graph.from_state(graph.state())
    assert restored.latest_time == 20.0
    assert len(restored.expired(17)) == len(graph.expired(17)) == 1
    assert Graph(restored.schema).latest_time is None


def test_each_edge_type_has_its_own_time_to_live() -> None:
    calls, mails, knows = ("a", "calls", "b"), ("a", "mails", "b"), ("a", "knows", "a")
    graph = Graph(
        Schema(
            {"a": 0, "b": 0},
            {
                calls: EdgeSchema(timed=True, time_to_live=5),
                mails: EdgeSchema(timed=True),
                knows: EdgeSchema(timed=True, time_to_live=1, undirected=True),
            },
            text_ids=True,
        )
    )
    graph.apply(
        Events()
        .add_nodes(["x", "y"], node_type="a")
        .add_nodes("z", node_type="b")
        .add_edges(["x", "y"], ["z", "z"], time=[3, 1], edge_type=calls)
        .add_edges("x", "z", time=1, edge_type=mails)
        .add_edges(["y", "x"], ["x", "x"], time=[6, 7], edge_type=knows)
    )
    assert graph.expired(8) == Events().remove_edges("y", "z", edge_type=calls).remove_edges(
        "x", "y", edge_type=knows
    )
    assert graph.expire(8).num_edge_changes(calls) == 1
    assert [graph.num_edges(t) for t in (calls, mails, knows)] == [1, 1, 1]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: EdgeSchema(timed=True, time_to_live=0), "finite number above 0, or None, got 0"),
        (lambda: EdgeSchema(timed=True, time_to_live=-1.0), "above 0, or None, got -1.0"),
        (lambda: EdgeSchema(timed=True, time_to_live=np.inf), "finite number above 0"),
        (lambda: EdgeSchema(timed=True, time_to_live=float("nan")), "finite number above 0"),
        (lambda: EdgeSchema(timed=True, time_to_live=True), "finite number above 0"),
        (lambda: EdgeSchema(time_to_live=1), "needs timed=True"),
        (lambda: EdgeSchema(edge_dim=-1), "at least 0, got -1"),
        (lambda: EdgeSchema(edge_dim=1.5), "at least 0, got 1.5"),
        (lambda: make_graph().expired(float("nan")), "now must be a finite number"),
        (lambda: make_graph().expire(float("inf")), "now must be a finite number"),
        (lambda: ExpiryPolicy(0), "every_seconds must be a number above 0, got 0"),
        (lambda: ExpiryPolicy("daily"), "every_seconds must be a number above 0, got 'daily'"),
        (lambda: ExpiryPolicy(now=5), "now must be a function of nothing, which says what time it is, got 5"),
    ],
)
def test_what_makes_no_sense_is_refused(make, message) -> None:
    with pytest.raises(InputError, match=message):
        make()
