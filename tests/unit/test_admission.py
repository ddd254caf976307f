"""Pushing producers back: the limits and their two thresholds, overload and recovery, who is never refused.

The loop runs by a clock that the test moves: a view of the graph makes each batch take its time.
"""

import asyncio
import math
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from livegnn import Events, Graph, InputError, OverloadedError
from livegnn.expiry import ExpiryPolicy
from livegnn.graph import GraphDelta, View
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import Admission, Change, Pace, Runtime
from livegnn.server import create_app
from scraped import scrape


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Slow(View):
    """A batch takes a millisecond, and ten microseconds for each event."""

    name = "slow"

    def __init__(self, graph: Graph, clock: Clock) -> None:
        super().__init__(graph)
        self.clock = clock
        graph.attach(self)

    def prepare(self, change: GraphDelta) -> None:
        self.clock.now += 1e-3 + 1e-5 * (change.seq - self.graph.seq)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SqliteLog]:
    log = SqliteLog(tmp_path / "events.db")
    yield log
    log.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def make_runtime(log: SqliteLog, clock: Clock, **settings: object) -> Runtime:
    times = {"time": [0.0, 0.0], "time_to_live": 10.0}
    graph = Graph.from_edges([0, 1], [1, 2], x=np.ones((3, 2)), **times)  # type: ignore[arg-type]
    return Runtime(log, graph, Slow(graph, clock), clock=clock, **settings)  # type: ignore[arg-type]


def some(count: int) -> Events:
    return Events().set_features(np.zeros(count, np.int64), np.ones((count, 2)))


def drain(runtime: Runtime) -> None:
    while runtime.step():
        pass


@given(
    most=st.integers(1, 10**6),
    waiting=st.lists(st.floats(0, 2), max_size=60),
)
def test_it_closes_above_the_limit_and_opens_at_half_of_it(most: int, waiting: list[float]) -> None:
    admission = Admission(Pace(100), max_waiting_events=most)
    closed = False
    for share in waiting:
        count = int(share * most)
        closed = count > most or (closed and count > most / 2)
        assert admission.is_open(count) is not closed
        assert admission.closed is closed


def test_the_limit_in_seconds_follows_what_batches_cost() -> None:
    pace = Pace(64, 20)
    admission = Admission(pace)  # 25 x 20 ms
    assert admission.limited
    for seconds, most in ((0.01, 3200), (0.1, 320), (0.001, 32_000)):
        for _ in range(60):
            pace.learn(64, seconds)
        admission.learn()
        assert admission.is_open(int(0.7 * most))
        assert not admission.is_open(int(1.6 * most))
        assert admission.waiting_seconds(most) == pytest.approx(0.5, rel=0.4)
        assert admission.is_open(1)


def test_without_settings_ten_seconds_of_events_may_wait() -> None:
    pace = Pace(64)
    admission = Admission(pace)
    assert admission.limited
    for _ in range(60):
        pace.learn(64, 0.01)
    admission.learn()
    assert admission.is_open(30_000)
    assert not admission.is_open(100_000)
    unlimited = Admission(pace, max_waiting_ms=math.inf)
    unlimited.learn()
    assert not unlimited.limited
    assert unlimited.is_open(10**12)
    in_events = Admission(pace, max_waiting_events=10**9)
    in_events.learn()
    assert in_events.is_open(10**8)


def test_a_runtime_without_settings_pushes_back(log: SqliteLog, clock: Clock) -> None:
    """As many events as come are applied within seconds of their append, or refused."""
    runtime = make_runtime(log, clock, max_batch_events=256)
    refused = 0
    for _ in range(40):  # 30,000 come in each round, of which 256 are applied
        try:
            runtime.append_all([some(1000)] * 30)
        except OverloadedError:
            refused += 1
        runtime.step()
    assert 0 < refused < 40
    assert log.last_seq() == 30_000 * (40 - refused)
    began = clock.now
    drain(runtime)
    assert clock.now - began < 12.0


def test_overload_and_recovery(log: SqliteLog, clock: Clock) -> None:
    runtime = make_runtime(log, clock, freshness_ms=20, max_batch_events=256)
    logged = longest = 0
    for _ in range(300):  # far more come than can be applied
        try:
            runtime.append_all([some(100)] * 20)
            logged += 2000
        except OverloadedError as error:
            raised = error
        longest = max(longest, runtime.waiting)
        runtime.step()
    assert "append them again in 1 s" in str(raised)
    assert 0 < raised.retry_after < 1
    assert runtime.admission.refused > 50
    assert log.last_seq() == logged  # nothing of what was refused
    # 72,000 events a second are applied at best, and 25 x 20 ms of them may wait.
    assert 18_000 < longest < 60_000
    drain(runtime)
    assert runtime.append(some(1)) == logged + 1
    drain(runtime)
    assert runtime.seq == logged + 1
    assert not runtime.admission.closed


def test_a_runtime_by_a_manual_clock_meets_its_objective(log: SqliteLog, clock: Clock) -> None:
    runtime = make_runtime(log, clock, freshness_ms=20)
    schedule = np.arange(4000) / 40_000 + clock.now  # 70 % of what batches in time hold: 450 in 5.5 ms
    sent, late = 0, []
    while sent < len(schedule) or runtime.waiting:
        while sent < len(schedule) and schedule[sent] <= clock.now:
            sent += 1
        runtime.append_all([some(1)] * (sent - log.last_seq()))
        if not runtime.step():
            clock.now = max(clock.now, schedule[sent]) if sent < len(schedule) else clock.now
        late += [clock.now - one for one in schedule[len(late) : runtime.seq]]
    assert len(late) == 4000
    assert np.quantile(late, 0.99) < 0.02
    assert runtime.pace.measured_seconds == pytest.approx(runtime.pace.predicted_seconds, rel=0.5)


def test_who_asks_to_wait_waits_for_room(log: SqliteLog, clock: Clock) -> None:
    runtime = make_runtime(log, clock, max_waiting_events=100)
    runtime.append(some(101))
    with pytest.raises(OverloadedError, match=r"at most 100 may wait, got 101. Nothing was logged"):
        runtime.append(some(1))
    with pytest.raises(OverloadedError):
        runtime.append_all([some(1)])
    with pytest.raises(OverloadedError):
        runtime.append(some(1), room_timeout=1e-3)
    with pytest.raises(InputError, match="room_timeout, in seconds, must be a number of at least 0"):
        runtime.append(some(1), room_timeout=-1)
    seqs: list[int] = []
    waiting = threading.Thread(target=lambda: seqs.append(runtime.append(some(1), room_timeout=None)))
    waiting.start()
    runtime.start()
    waiting.join()
    assert seqs == [102]
    runtime.wait(102)
    runtime.stop()
    assert runtime.seq == 102


def test_who_waits_for_room_hears_of_the_end(log: SqliteLog, clock: Clock) -> None:
    runtime = make_runtime(log, clock, max_waiting_events=1)
    runtime.append(some(2))
    seqs: list[int] = []
    waiting = threading.Thread(target=lambda: seqs.append(runtime.append(some(1), room_timeout=None)))
    waiting.start()
    runtime.stop()
    waiting.join()
    assert seqs == [3]  # it is in the log for the next start, as after any stop


def test_the_loop_itself_never_waits_for_room(log: SqliteLog, clock: Clock) -> None:
    runtime = make_runtime(log, clock, max_waiting_events=1, max_batch_events=1)
    found: list[Exception] = []

    def append_more(change: Change) -> None:
        try:
            runtime.append(some(1), room_timeout=None)
        except OverloadedError as error:
            found.append(error)

    runtime.append(Events().set_features(0, [1, 1]))
    runtime.append(some(5))
    runtime.subscribe(append_more)
    runtime.start()
    runtime.wait(1)
    runtime.wait(6)
    runtime.stop()
    assert len(found) == 1


def test_expired_edges_and_retries_are_never_pushed_back(log: SqliteLog, clock: Clock) -> None:
    runtime = make_runtime(log, clock, max_waiting_events=1, expiry=ExpiryPolicy(1.0, lambda: 50.0))
    runtime.append(Events().remove_nodes(77))
    drain(runtime)
    assert runtime.rejection(1) is not None
    runtime.append(some(3))
    with pytest.raises(OverloadedError):
        runtime.append(some(1))
    assert runtime.retry(1) == 5
    clock.now += 10
    runtime.step()
    drain(runtime)
    assert runtime.statistics.expired_edges.total == 2
    assert runtime.graph.num_edges() == 0


def test_a_replay_does_not_depend_on_it(log: SqliteLog, clock: Clock) -> None:
    runtime = make_runtime(log, clock, freshness_ms=5)
    for count in (3, 1, 200, 50, 7, 1, 100):
        runtime.append(some(count))
        runtime.append(some(count))
        runtime.step()
    drain(runtime)
    runtime.stop()
    batches = list(log.batches(0))
    assert len(batches) > 5
    again = make_runtime(log, clock, freshness_ms=1000, max_batch_events=1)
    assert again.seq == runtime.seq
    assert list(log.batches(0)) == batches


def test_the_server_answers_429_and_logs_nothing(log: SqliteLog, clock: Clock) -> None:
    runtime = make_runtime(log, clock, max_waiting_events=100, freshness_ms=20)
    app = create_app(runtime)
    body = {"events": [{"event": "remove_edge", "src": 0, "dst": 1}]}

    async def ask() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return [
                await client.post("/v1/events", json=body),
                await client.post("/v1/events?wait=false", json=body),
                await client.post("/v1/events?partial=true", json=body),
                await client.get("/metrics"),
            ]

    runtime.append(some(101))
    *answers, metrics = asyncio.run(ask())
    for answer in answers:
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
        assert answer.json()["type"] == "/problems/overloaded"
    assert log.last_seq() == 101
    shown = scrape(metrics.text)
    assert shown["livegnn_pushing_back"] == 1
    assert shown["livegnn_refused_appends_total"] == 3
    assert shown["livegnn_freshness_objective_seconds"] == 0.02
    assert shown["livegnn_waiting_events"] == 101
    assert shown["livegnn_oldest_waiting_seconds"] >= 0
    assert shown["livegnn_waiting_seconds"] > 0
    drain(runtime)
    *answers, metrics = asyncio.run(ask())
    assert [answer.status_code for answer in answers] == [200] * 3
    assert log.last_seq() == 104
    shown = scrape(metrics.text)
    assert (shown["livegnn_pushing_back"], shown["livegnn_waiting_events"]) == (0, 3)
    assert 0 <= shown["livegnn_pace_measured_seconds"] < 0.1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_waiting_events": 0}, "max_waiting_events, None for no limit, must be an integer of at least"),
        ({"max_waiting_events": 1.5}, "max_waiting_events, None for no limit, must be an integer"),
        ({"max_waiting_ms": 0}, "max_waiting_ms, in milliseconds or None, must be a number above 0"),
        ({"freshness_ms": "soon"}, "freshness_ms, in milliseconds or None, must be a number above 0"),
        ({"max_batch_events": 0}, "max_batch_events must be an integer of at least 1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    log: SqliteLog, clock: Clock, settings: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        make_runtime(log, clock, **settings)
