"""Time to live under a runtime: what expires when, by events in the log that a replay finds again."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from livegnn import EdgeSchema, Engine, Events, Graph, InputError, Schema
from livegnn.expiry import ExpiryPolicy
from livegnn.log.sqlite import SqliteLog
from livegnn.partitions import LocalPartitions
from livegnn.placement import Owners
from livegnn.runtime import Change, Runtime
from mirror import frozen
from streams import WIDTH, make_model
from waiting import PATIENCE, wait_until

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


def test_edges_in_parts_expire_in_the_same_events(tmp_path: Path, clock: Clock) -> None:
    whole, divided = (SqliteLog(tmp_path / name) for name in ("whole.db", "divided.db"))
    runtime, before = make_runtime(whole, clock, ExpiryPolicy(PERIOD, max_share=1.0)), make_graph()
    parts = LocalPartitions.from_graph(before, MODEL, Owners("modulo", 3), threads=1)
    in_parts = Runtime(divided, parts.names, parts, expiry=ExpiryPolicy(PERIOD, max_share=1.0), clock=clock)
    for time in range(6, 40, 3):
        for one in (runtime, in_parts):
            one.append(Events().add_edges(time % 8, (time + 3) % 8, weight=1, time=time))
        clock.now += PERIOD / 2
        for one in (runtime, in_parts):
            drain(one)
    assert runtime.statistics.expired_edges.total > 5
    entries = [[(entry.seq, entry.events) for entry in log.entries(0)] for log in (whole, divided)]
    assert entries[0] == entries[1]
    assert parts.names.num_edges() == runtime.graph.num_edges()
    ids = np.arange(8)
    assert parts.predict(ids).tobytes() == runtime.engine.predict(ids).tobytes()
    parts.close()
    for log in (whole, divided):
        log.close()


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
    assert runtime.wait(3, timeout=PATIENCE) == 3  # three removals, with nobody who appends anything
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


# -- mass expiry


def make_ring(log: SqliteLog, clock: Clock, count: int = 100, **policy: object) -> Runtime:
    """A ring of `count` nodes, each edge a second after the one before, which lives for 1000."""
    nodes = np.arange(count)
    graph = Graph.from_edges(nodes, (nodes + 1) % count, time=nodes.astype(float), time_to_live=1000.0)
    return Runtime(log, graph, expiry=ExpiryPolicy(PERIOD, **policy), clock=clock)  # type: ignore[arg-type]


def test_one_time_from_the_future_removes_nothing(log: SqliteLog, clock: Clock, caplog) -> None:
    runtime = make_ring(log, clock, ask_from=50)
    runtime.append(Events().add_edges(0, 50, time=1e12))
    for _ in range(3):
        clock.now += PERIOD
        drain(runtime)
        runtime.append(Events().add_nodes(1))  # so that the loop looks again
    assert runtime.graph.num_edges() == 101
    assert runtime.held_expiry == (1e12, 100, 101)
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == 1
    assert warnings[0].startswith(
        "100 of 101 edges would expire at time 1000000000000.0, more than the share"
    )
    assert runtime.statistics.expired_edges.total == 0


@pytest.mark.parametrize("count", [10, 11, 100, 999, 1000, 1001])
def test_one_time_from_the_future_empties_no_graph_by_default(
    log: SqliteLog, clock: Clock, count: int
) -> None:
    runtime = make_ring(log, clock, count)
    runtime.append(Events().add_edges(0, count // 2, time=1e12))
    clock.now += PERIOD
    drain(runtime)
    assert runtime.graph.num_edges() == count + 1
    assert runtime.held_expiry == (1e12, count, count + 1)


def test_after_a_silence_old_edges_go_when_there_are_as_many_new_ones(log: SqliteLog, clock: Clock) -> None:
    runtime = make_ring(log, clock)
    for number in range(100):
        assert runtime.graph.num_edges() == 100 + number
        runtime.append(Events().add_edges(number, (number + 2) % 100, time=5000.0 + number))
        clock.now += PERIOD
        drain(runtime)
    assert runtime.held_expiry is None
    assert runtime.graph.num_edges() == 100


def test_a_person_confirms(log: SqliteLog, clock: Clock, caplog) -> None:
    runtime = make_ring(log, clock, ask_from=50, max_share=0.2)
    with pytest.raises(InputError, match="expected an expiry that waits"):
        runtime.confirm_expiry()
    runtime.append(Events().add_edges(0, 50, time=1059.5))  # 60 of 101 are older than 1000 now
    clock.now += PERIOD
    drain(runtime)
    assert runtime.held_expiry == (1059.5, 60, 101)
    assert runtime.confirm_expiry() == (1059.5, 60, 101)
    drain(runtime)
    assert runtime.held_expiry is None
    assert runtime.graph.num_edges() == 41
    assert runtime.statistics.expired_edges.total == 60
    with pytest.raises(InputError, match="got none"):
        runtime.confirm_expiry()
    # The next time is asked again.
    runtime.append(Events().add_edges(0, 51, time=1e12))
    clock.now += PERIOD
    drain(runtime)
    assert runtime.held_expiry is None  # 41 are fewer than ask_from
    assert runtime.graph.num_edges() == 1
    replayed = make_ring(log, clock)
    assert frozen(replayed.graph.state()) == frozen(runtime.graph.state())


def test_what_is_renewed_waits_no_more(log: SqliteLog, clock: Clock, caplog) -> None:
    time = Clock()
    runtime = make_ring(log, clock, ask_from=50, now=time)
    time.now = 1080.5
    clock.now += PERIOD
    drain(runtime)
    assert runtime.held_expiry == (1080.5, 81, 100)
    nodes = np.arange(60)
    runtime.append(Events().add_edges(nodes, nodes + 1, time=np.full(60, 1080.0)))
    clock.now += PERIOD
    drain(runtime)
    assert runtime.held_expiry is None
    assert runtime.graph.num_edges() == 79
    # A clock that was wrong and is right again holds nothing.
    time.now = 1e12
    clock.now += PERIOD
    drain(runtime)
    assert runtime.held_expiry is not None
    time.now = 1081.0
    clock.now += PERIOD
    drain(runtime)
    assert runtime.held_expiry is None
    assert runtime.graph.num_edges() == 79
    assert [record.getMessage() for record in caplog.records][1::2] == [
        "expiry resumed at event 60",
        "expiry resumed at event 81",
    ]


def test_few_edges_and_a_share_of_one_are_never_asked_about(log: SqliteLog, clock: Clock) -> None:
    for policy in ({}, {"max_share": 1.0, "ask_from": 1}):
        runtime = make_ring(log, clock, now=lambda: 1e12, **policy)
        clock.now += PERIOD
        drain(runtime)
        assert runtime.held_expiry is None
        assert runtime.graph.num_edges() == 0


def test_only_edges_that_can_expire_count(log: SqliteLog, clock: Clock) -> None:
    lives, stays = ("a", "calls", "a"), ("a", "knows", "a")
    schema = Schema({"a": 0}, {lives: EdgeSchema(timed=True, time_to_live=5), stays: EdgeSchema()})
    graph, nodes = Graph(schema), np.arange(20)
    graph.apply(
        Events()
        .add_nodes(nodes, node_type="a")
        .add_edges(nodes[:4], nodes[4:8], time=np.ones(4), edge_type=lives)
        .add_edges(nodes, np.roll(nodes, 1), edge_type=stays),
        seq=0,
    )
    policy = ExpiryPolicy(PERIOD, lambda: 100.0, ask_from=4)
    runtime = Runtime(log, graph, expiry=policy, clock=clock)
    clock.now += PERIOD
    drain(runtime)
    assert runtime.held_expiry == (100.0, 4, 4)


def test_a_confirmation_wakes_the_loop(log: SqliteLog) -> None:
    nodes = np.arange(100)
    graph = Graph.from_edges(nodes, (nodes + 1) % 100, time=nodes.astype(float), time_to_live=10.0)
    policy = ExpiryPolicy(0.001, lambda: 1e6, ask_from=10)
    runtime = Runtime(log, graph, expiry=policy)
    runtime.start()
    wait_until(lambda: runtime.held_expiry is not None)
    runtime.confirm_expiry()
    assert runtime.wait(100, timeout=PATIENCE) == 100
    runtime.stop()
    assert graph.num_edges() == 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ExpiryPolicy(max_share=0), "max_share must be a number above 0 and at most 1, got 0"),
        (lambda: ExpiryPolicy(max_share=1.5), "max_share must be a number above 0 and at most 1, got 1.5"),
        (lambda: ExpiryPolicy(max_share=True), "max_share must be a number above 0 and at most 1, got True"),
        (lambda: ExpiryPolicy(ask_from=0), "ask_from must be an integer of at least 1, got 0"),
        (lambda: ExpiryPolicy(ask_from=1.5), "ask_from must be an integer of at least 1, got 1.5"),
    ],
)
def test_shares_and_numbers_that_make_no_sense(make, message) -> None:
    with pytest.raises(InputError, match=message):
        make()
