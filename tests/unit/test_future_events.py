"""Events from the future: refused when their turn comes, named, and never asked about in a replay."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from livegnn import Events, Graph, InputError
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import AheadPolicy, Runtime
from livegnn.runtime.future_events import Ahead
from mirror import frozen

HOUR = 3600.0
Make = Callable[..., Runtime]


def make_graph(*, text: bool = False, timed: bool = True) -> Graph:
    names = np.array([f"n{i}" for i in range(8)]) if text else np.arange(8)
    times = {"time": [0.0, 5.0, 8.0]} if timed else {"time": np.empty(0)}
    count = 3 if timed else 0
    return Graph.from_edges(names[:count], names[1 : count + 1], ids=names, **times)


@pytest.fixture
def make(tmp_path: Path):
    logs = []

    def make(policy: AheadPolicy | None, **settings: bool) -> Runtime:
        for log in logs:
            log.close()
        logs.append(SqliteLog(tmp_path / "events.db"))
        return Runtime(logs[-1], make_graph(**settings), ahead=policy)

    yield make
    for log in logs:
        log.close()


def drain(runtime: Runtime) -> None:
    while runtime.step():
        pass


def test_ahead_of_the_events_before(make: Make) -> None:
    runtime = make(AheadPolicy(HOUR), text=True)
    good = runtime.append(Events().add_edges("n4", "n5", time=8 + HOUR))
    bad = runtime.append(Events().add_edges("n5", "n6", time=1e12))
    last = runtime.append(Events().add_edges("n6", "n7", time=8 + 2 * HOUR))  # an hour after the first
    drain(runtime)
    rejection = runtime.rejection(bad)
    assert rejection is not None
    assert rejection.error == "InputError"
    assert rejection.message == (
        "expected times at most 3600 ahead of the latest time of the events before it, 3608.0, got "
        "1000000000000.0 for the edge 'n5' -> 'n6': check its unit, or, if it is right, retry the entry with "
        "any_time"
    )
    assert [runtime.rejection(seq) for seq in (good, last)] == [None, None]
    assert runtime.graph.latest_time == 8 + 2 * HOUR
    assert runtime.graph.num_edges() == 5


def test_the_past_and_the_first_time_of_all_are_never_too_far(make: Make) -> None:
    runtime = make(AheadPolicy(HOUR), timed=False)
    seqs = [runtime.append(Events().add_edges(i, i + 1, time=t)) for i, t in enumerate((1e9, 5.0, -1e9))]
    drain(runtime)
    assert [runtime.rejection(seq) for seq in seqs] == [None] * 3


def test_an_entry_that_passes_in_steps_passes_however_it_is_merged(make: Make) -> None:
    """Each event counts for those behind it, in one entry and across entries."""
    runtime = make(AheadPolicy(10))
    times = np.arange(10.0, 60.0, 10.0)
    seq = runtime.append(Events().add_edges([0, 1, 2, 3, 4], [5, 5, 5, 5, 5], time=times))
    bad = runtime.append(Events().add_edges([0, 1], [6, 6], time=[55, 70]))
    drain(runtime)
    assert runtime.rejection(seq) is None
    rejection = runtime.rejection(bad)
    assert rejection is not None
    assert "55.0, got 70.0 for the edge 1 -> 6" in rejection.message
    assert runtime.graph.latest_time == 50.0


def test_merged_entries_are_judged_as_single_ones_are(make: Make) -> None:
    """Random times against a loop over events: the same entries are refused, whatever is merged."""
    seed = 5
    rng = np.random.default_rng(seed)
    runtime = make(AheadPolicy(10))
    entries = [(8 + 25 * rng.random(rng.integers(1, 4))).tolist() for _ in range(60)]
    latest, expected = 8.0, []
    for times in entries:
        reached = latest
        for time in times:
            if time > reached + 10:
                expected.append(False)
                break
            reached = max(reached, time)
        else:
            expected.append(True)
            latest = reached
    seqs = [
        runtime.append(
            Events().add_edges(np.zeros(len(times), int), rng.integers(1, 8, len(times)), time=times)
        )
        for times in entries
    ]
    drain(runtime)
    assert [runtime.rejection(seq) is None for seq in seqs] == expected, f"seed {seed}"
    assert 0 < sum(expected) < 60
    assert runtime.graph.latest_time == latest


def test_ahead_of_the_clock(make: Make) -> None:
    now = [1.7e9]
    runtime = make(AheadPolicy(HOUR, lambda: now[0]), timed=False)
    seqs = [
        runtime.append(Events().add_edges(i, i + 1, time=time))
        for i, time in enumerate((1.7e12, 1.7e9 + HOUR, 0.0, 1.6e9, 1.7e9 + 2 * HOUR))
    ]
    drain(runtime)
    refused = [runtime.rejection(seq) for seq in seqs]
    assert [one is None for one in refused] == [False, True, True, True, False]
    assert refused[0] is not None
    assert "ahead of the clock, 1700000000.0, got 1700000000000.0" in refused[0].message
    now[0] += HOUR  # after a silence, the clock has gone on
    again = runtime.retry(seqs[-1])
    drain(runtime)
    assert runtime.rejection(again) is None


def test_a_replay_asks_no_clock(make: Make) -> None:
    now = [1.7e9]
    runtime = make(AheadPolicy(HOUR, lambda: now[0]))
    for time in (1.7e9, 1.7e12, 1.7e9 + 1):
        runtime.append(Events().add_edges(3, 4, time=time).add_edges(4, 5, time=time))
        drain(runtime)
    now[0] = 0.0  # now all of them would be refused
    replayed = make(AheadPolicy(HOUR, lambda: now[0]))
    assert frozen(replayed.graph.state()) == frozen(runtime.graph.state())
    assert replayed.rejection(4) is not None
    assert replayed.seq == 6


def test_a_person_lets_a_time_through(make: Make) -> None:
    """By events, a stream that was silent for long stays refused until then."""
    runtime = make(AheadPolicy(HOUR))
    jumped = runtime.append(Events().add_edges(4, 5, time=1e6))
    after = runtime.append(Events().add_edges(5, 6, time=1e6 + 1))
    drain(runtime)
    assert runtime.rejection(jumped) is not None
    assert runtime.rejection(after) is not None
    plain = runtime.retry(jumped)
    drain(runtime)
    assert runtime.rejection(plain) is not None
    let = runtime.retry(plain, any_time=True)
    rest = runtime.retry(after)
    drain(runtime)
    assert runtime.rejection(let) is None
    assert runtime.rejection(rest) is None
    assert runtime.graph.latest_time == 1e6 + 1
    with pytest.raises(InputError, match="any_time must be True or False, got 'yes'"):
        runtime.retry(jumped, any_time="yes")  # type: ignore[arg-type]


def test_no_limit_unless_one_is_set(make: Make) -> None:
    runtime = make(None)
    seq = runtime.append(Events().add_edges(4, 5, time=1e12))
    drain(runtime)
    assert runtime.rejection(seq) is None
    Ahead(None).check(Events().add_edges(0, 1, time=1e300), 0.0)


@pytest.mark.parametrize(
    ("make_it", "message"),
    [
        (lambda: AheadPolicy(0), "most must be a number above 0, got 0"),
        (lambda: AheadPolicy(float("nan")), "most must be a number above 0, got nan"),
        (lambda: AheadPolicy(1, now=3), "now must be a function of nothing"),
        (
            lambda: Runtime(None, make_graph(), ahead=3),
            "ahead must be None or of the type AheadPolicy, got 3",
        ),
    ],
)
def test_settings_that_make_no_sense(make_it, message) -> None:
    with pytest.raises(InputError, match=message):
        make_it()
