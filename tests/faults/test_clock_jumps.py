"""Clocks that are set by years, forward and back, while events come: nothing is lost, or expires unasked.

The machine's clock says how old idempotency keys are, what time it is for edges that expire, and what is too
far ahead. The runtime's own clock says when something is due, and how long it took.
"""

import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from faulty_world import FIRST_SEED, YEAR, Clock, History, check_bits, replay, seed_shown
from livegnn import Engine, Events, Graph
from livegnn.expiry import ExpiryPolicy
from livegnn.inference import ScrubPolicy
from livegnn.log import idempotency
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import AheadPolicy, CheckpointPolicy, Runtime, list_checkpoints
from streams import make_arrays, make_graph, make_model, make_stream

SEEDS = range(FIRST_SEED, FIRST_SEED + 5)
DAY = 86_400.0


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SqliteLog]:
    with closing(SqliteLog(tmp_path / "events.db")) as log:
        yield log


def jump(clock: Clock, draw: random.Random) -> None:
    """Now and then somebody sets the clock."""
    if draw.random() < 0.2:
        clock.jump(draw.choice([-20 * YEAR, -YEAR, -DAY, -3.0, 3.0, DAY, YEAR, 20 * YEAR]))


def drain(runtime: Runtime) -> None:
    while runtime.step() or runtime.seq < runtime.log.last_seq():
        pass


@pytest.mark.parametrize("seed", SEEDS)
def test_keys_are_known_for_a_day_and_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Of a clock that runs right at the start of the process; the process ends and starts at times."""
    clock, draw = Clock(), random.Random(seed)
    monkeypatch.setattr(idempotency, "time", clock)
    history, came = History(), dict[str, float]()
    with seed_shown(seed):
        log = SqliteLog(tmp_path / "events.db", keep_keys_seconds=DAY)
        for number in range(150):
            clock.pass_by(draw.choice([1.0, 60.0, DAY / 7]))
            jump(clock, draw)
            if draw.random() < 0.1:
                log.close()
                clock.now = max(clock.now, 1e9 + clock.passed) if draw.random() < 0.5 else 1e9 + clock.passed
                log = SqliteLog(tmp_path / "events.db", keep_keys_seconds=DAY)
                if clock.now > 1e9 + clock.passed:  # as after a long time without power: what is old may go
                    came.clear()
            young = [key for key, began in came.items() if clock.passed - began < DAY]
            key = draw.choice(young) if young and draw.random() < 0.4 else str(number)
            events = history.sent.get(key) or Events().add_edges(number, number + 1)
            history.send(key, events)
            came.setdefault(key, clock.passed)
            history.tell(key, log.append(events, key=key))
        history.check(log)
        clock.pass_by(DAY + 1)
        for number in range(2):
            log.append(Events().add_edges(1, 2), key=f"last {number}")
        kept = log._appends.execute("SELECT key FROM keys").fetchall()
        assert sorted(kept) == [("last 0",), ("last 1",)]
        log.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_runtime_whose_own_clock_jumps_goes_on(tmp_path: Path, log: SqliteLog, seed: int) -> None:
    """With everything that asks this clock: an objective, push-back, checkpoints, scrubbing, expiry."""
    clock, draw, history = Clock(), random.Random(seed), History()
    policy = CheckpointPolicy(tmp_path / "checkpoints", every_events=None, every_seconds=60, beside=False)
    with seed_shown(seed):
        graph = make_graph()
        runtime = Runtime(
            log,
            graph,
            Engine(graph, make_model(), threads=1),
            freshness_ms=50,
            max_waiting_events=100_000,
            checkpoints=policy,
            scrub=ScrubPolicy(10),
            clock=clock,
        )
        for number, events in enumerate(make_stream(150, seed=seed)):
            history.send(str(number), events)
            history.tell(str(number), runtime.append(events, key=str(number)))
            jump(clock, draw)
            if draw.random() < 0.7:
                clock.pass_by(draw.choice([0.001, 1.0]))
                runtime.step()
            jump(clock, draw)
        drain(runtime)
        before = list_checkpoints(policy.directory)
        clock.jump(-20 * YEAR)
        runtime.append(Events().set_features(1, [1, 2, 3, 4]))
        runtime.step()
        clock.pass_by(61)
        runtime.append(Events().set_features(1, [1, 2, 3, 5]))
        drain(runtime)
        assert list_checkpoints(policy.directory)[0] not in before, "no checkpoint is due any more"
        check_bits(runtime.engine, replay(log))
        runtime.stop()
        assert runtime.failure is None


def make_timed_runtime(log: SqliteLog, clock: Clock, ahead: AheadPolicy | None = None) -> Runtime:
    """Edges live for an hour, by the clock, and nobody is asked about less than all of them."""
    arrays = make_arrays()
    arrays["time"] = clock.now + 0.0 * arrays["src"]
    graph = Graph.from_edges(**arrays, time_to_live=3600.0)
    policy = ExpiryPolicy(60, now=clock, ask_from=1)
    engine = Engine(graph, make_model(), threads=1)
    return Runtime(log, graph, engine, expiry=policy, ahead=ahead, clock=clock.monotonic)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_edges_expire_by_a_clock_that_is_wrong(log: SqliteLog, seed: int) -> None:
    clock, draw = Clock(), random.Random(seed)
    with seed_shown(seed):
        runtime = make_timed_runtime(log, clock)
        there = runtime.graph.num_edges()
        for _ in range(20):
            wrong = draw.choice([-20, -1, 1, 20]) * YEAR
            clock.jump(wrong)
            clock.pass_by(61)
            time = 1e9 + clock.passed
            runtime.append(Events().add_edges(draw.randrange(40), 1, weight=1, time=time))
            drain(runtime)
            assert (runtime.held_expiry is not None) == (wrong > 0)
            clock.jump(-wrong)
            clock.pass_by(61)
            drain(runtime)
            assert runtime.held_expiry is None
        assert runtime.graph.num_edges() >= there
        assert runtime.statistics.expired_edges.total == 0
        clock.pass_by(3600)  # now it is right
        runtime.step()
        assert runtime.held_expiry is not None
        runtime.confirm_expiry()
        drain(runtime)
        assert runtime.graph.num_edges() < there
        runtime.stop()


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_refused_by_a_clock_that_was_behind_is_there_to_be_appended_again(
    log: SqliteLog, seed: int
) -> None:
    clock, draw = Clock(), random.Random(seed)
    with seed_shown(seed):
        runtime = make_timed_runtime(log, clock, AheadPolicy(3600, clock))
        sent = 0
        for number in range(40):
            wrong = draw.choice([0, -20 * YEAR, -YEAR, YEAR])
            clock.jump(wrong)
            runtime.append(
                Events().set_features(number, [number] * 4).add_edges(number, 0, weight=1, time=1e9)
            )
            sent += 1
            drain(runtime)
            clock.jump(-wrong)
        refused = [rejection.seq for rejection in log.rejections()]
        assert 0 < len(refused) < sent
        for seq in refused:
            runtime.retry(seq)
        drain(runtime)
        assert len(log.rejections()) == len(refused), "all of them are accepted by a clock that is right"
        features = runtime.graph.snapshot().x["node"]
        assert features.tolist() == [[number] * 4 for number in range(40)]
        runtime.stop()
