"""Batches by deadline on a simulated machine, whose clock the test moves, beside the best fixed size, which
is found by trying all.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from livegnn import InputError
from livegnn.runtime import Pace

MOST = 4096
FIXED = [8**power for power in range(5)]  # 1 to 4096


class Machine(NamedTuple):
    """Seconds of a batch: `fixed`, and for each event less and less up to `cliff` events, and then more; and
    `hub` times as much as one event takes once more if one of the events is at a hub, as one in a hundred is.
    """

    fixed: float
    each: float
    power: float
    cliff: float
    steep: float
    noise: float
    hub: float = 0.0

    def seconds(self, events: int) -> float:
        """On average, but for what noise adds."""
        return self._plain(events) + self._at_hub() * (1 - 0.99**events)

    def measure(self, events: int, draw: np.random.Generator) -> float:
        """Of one batch."""
        seconds = self._plain(events) + self._at_hub() * (draw.random() > 0.99**events)
        return seconds * math.exp(self.noise * draw.standard_normal())

    def _plain(self, events: int) -> float:
        before, beyond = min(events, self.cliff), max(1.0, events / self.cliff)
        return self.fixed + self.each * before**self.power * beyond ** max(self.power, self.steep)

    def _at_hub(self) -> float:
        return self.hub * self._plain(1)


MACHINES = st.builds(
    Machine,
    fixed=st.floats(1e-5, 3e-3),
    each=st.floats(1e-6, 3e-4),
    power=st.floats(0.4, 1.0),
    cliff=st.floats(10, 5000),
    steep=st.sampled_from([0.0, 1.0, 1.3, 1.6]),
    noise=st.sampled_from([0.0, 0.1, 0.2]),
    hub=st.sampled_from([0.0, 0.0, 3.0, 20.0]),
)

Choose = Callable[[int, float], int]


class Run(NamedTuple):
    latencies: NDArray[np.float64]
    sizes: list[int]
    end: float

    def p99(self) -> float:
        """Of all events but the first quarter, in which the machine becomes known."""
        return float(np.quantile(self.latencies[len(self.latencies) // 4 :], 0.99))


def run(
    machine: Machine,
    arrivals: NDArray[np.float64],
    choose: Choose,
    learn: Callable[[int, float], None] = lambda events, seconds: None,
    pauses: dict[int, float] | None = None,
) -> Run:
    """Applies all events in order. pauses: seconds by which some batches, by number, take longer."""
    draw = np.random.default_rng(7)
    latencies, sizes = np.empty(len(arrivals)), []
    now, done, come = 0.0, 0, 0
    times = arrivals.tolist()
    while done < len(times):
        now = max(now, times[done])
        come = bisect_right(times, now, come)
        waiting = come - done
        size = min(waiting, choose(waiting, now - times[done]))
        seconds = machine.measure(size, draw) + (pauses or {}).get(len(sizes), 0.0)
        now += seconds
        learn(size, seconds)
        latencies[done : done + size] = now - arrivals[done : done + size]
        sizes.append(size)
        done += size
    return Run(latencies, sizes, now)


def paced(pace: Pace, machine: Machine, arrivals: NDArray[np.float64], **more: dict[int, float]) -> Run:
    return run(machine, arrivals, lambda waiting, age: pace.choose(waiting, lambda: age), pace.learn, **more)


def arrive(load: float, seconds: float, seed: int = 0) -> NDArray[np.float64]:
    """Events that come by themselves, `load` a second."""
    count = max(500, int(load * seconds))
    return np.cumsum(np.random.default_rng(seed).exponential(1 / load, count))


def best_load(machine: Machine, objective: float, events: NDArray[np.float64]) -> float:
    """The most events a second, to a tenth, for which some fixed size keeps the 99th percentile of these
    events, which come once a second on average.
    """
    best = 0.0
    for size in FIXED:
        low, high = best, max(one / machine.seconds(one) for one in FIXED if one <= size)
        while high > 1.1 * max(low, best):
            load = (low + high) / 2
            part = events[: max(500, int(load * HORIZON * objective))] / load
            kept = run(machine, part, lambda waiting, age: size).p99() <= objective  # noqa: B023
            low, high = (load, high) if kept else (low, load)
            if high <= best:
                break
        best = max(best, low)
    return best


HORIZON = 100
"""Objectives that a run takes."""

IN_TIME = 1.5
"""Objectives within which 99 of 100 events are visible. Of 1,227 random machines that were known, those
without hubs took 1.0 objectives at most, and those on which one event in a hundred costs three more 1.3. With
hubs that cost twenty more nothing is promised: nine of ten took up to 1.3, but a backlog of 110 was seen on
one of 724, as the curve says what is usual alone.
"""

FOUND = Machine(0.001953125, 0.0002547405248675933, 1.0, 10.0, 0.0, 0.0, hub=3.0)
"""With which the objective was missed at nine tenths of a load that a fixed size kept on other events: on
those at hand no fixed size kept it either. Near its highest load a 99th percentile is a matter of luck.
"""

ONCE = Machine(1.6737401833049737e-05, 0.00011396909888626717, 1.0, 10.0, 1.6, 0.1, hub=20.0)
"""Where trying larger sizes, once, made a backlog of 13 objectives."""

STEEP = Machine(0.00016653089909518266, 4.76364294941067e-05, 0.950185532452761, 10.0, 1.6, 0.2)
"""With which it was missed six times at nine tenths: a backlog came of trying larger sizes, and little was
left of the rate to work it off. To stop trying where the rate has fallen is no way out: it may rise again.
"""


@settings(deadline=None, max_examples=6, suppress_health_check=[HealthCheck.too_slow])
@given(machine=MACHINES.filter(lambda machine: machine.hub <= 3), room=st.floats(5, 100))
@example(machine=FOUND, room=5.0)
@example(machine=ONCE, room=96.08)
@example(machine=STEEP, room=27.97)
def test_eight_tenths_of_the_best_load_are_nearly_in_time(machine: Machine, room: float) -> None:
    """Of the load at which the best fixed size keeps the objective; the same events come more slowly."""
    objective = room * machine.seconds(1)
    most = max(size / machine.seconds(size) for size in FIXED)
    events = arrive(1.0, max(500, int(1.1 * most * HORIZON * objective)))
    best = best_load(machine, objective, events)
    arrivals = events[: max(500, int(best * HORIZON * objective))] / (0.8 * best)
    pace = Pace(MOST, 1000 * objective)
    paced(pace, machine, np.zeros(20_000))  # until it knows the machine: to try a size may make a backlog
    assert paced(pace, machine, arrivals).p99() <= objective * IN_TIME


@settings(deadline=None, max_examples=25)
@given(machine=MACHINES)
def test_a_backlog_that_cannot_be_in_time_goes_at_the_highest_rate(machine: Machine) -> None:
    sizes = [2**power for power in range(13)]
    best = max(sizes, key=lambda size: size / machine.seconds(size))
    pace = Pace(MOST, 20)
    paced(pace, machine, np.zeros(max(50_000, 100 * best)))  # until it knows the machine
    count = max(20_000, 500 * best)
    ideal = count * machine.seconds(best) / best * math.exp(machine.noise**2 / 2)  # what noise adds
    # Where larger batches cost more than their part, it is dear to try them from time to time.
    least = 0.9 if machine.steep <= 1 and machine.power <= 0.95 else 0.7
    assert paced(pace, machine, np.zeros(count)).end < ideal / least


def test_a_lone_event_is_not_kept_waiting() -> None:
    machine = Machine(1e-3, 1e-5, 1.0, 5000, 0.0, 0.1)
    found = paced(Pace(MOST, 20), machine, np.arange(200) * 0.1)
    assert found.sizes == [1] * 200
    assert found.p99() < 2e-3


def test_a_burst_is_cut_so_that_the_oldest_are_in_time() -> None:
    machine = Machine(1e-3, 1e-4, 1.0, 5000, 0.0, 0.0)
    pace = Pace(MOST, 20)
    paced(pace, machine, arrive(5000, 3))
    for _ in range(100):
        for size in (32, 64, 128, 256):  # these are known well
            pace.learn(size, machine.seconds(size))
    # 200 events take 21 ms, and the oldest has 15 ms left.
    assert 80 < pace.choose(200, lambda: 0.005) <= 140
    # 250 events take 26 ms, and two parts are hardly slower than one of which all events are late.
    assert 100 < pace.choose(250, lambda: 0.0) <= 190
    # The oldest is late already: then only what is quickest counts.
    assert pace.choose(250, lambda: 0.5) == 250


def test_pauses_and_a_slower_machine_do_not_keep_it_small_or_large() -> None:
    quick = Machine(1e-3, 2e-5, 0.9, 5000, 0.0, 0.1)
    slow = quick._replace(fixed=5e-3, each=1e-4)
    pace = Pace(MOST, 20)
    arrivals = arrive(20_000, 10)
    pauses = dict.fromkeys(range(100, 3000, 300), 0.5)
    assert paced(pace, quick, arrivals, pauses=pauses).end < arrivals[-1] + 0.1
    size = pace.size
    assert 100 < size < 1500
    for machine, load in ((quick, 20_000), (slow, 1000), (quick, 20_000)):
        found = paced(pace, machine, arrive(load, 5))
        usual = round(float(np.mean(found.sizes)))
        assert found.p99() < 0.02
        assert pace.cost.seconds(usual) == pytest.approx(machine.seconds(usual), rel=0.25)
        assert size / 4 < pace.size < 2 * size if machine is quick else pace.size < size / 4


def test_the_first_backlog_is_no_leap() -> None:
    pace = Pace(MOST, 20)
    machine = Machine(1e-4, 1e-6, 1.0, 5000, 0.0, 0.0)
    sizes = paced(pace, machine, np.zeros(100_000)).sizes
    assert sizes[:5] == [2, 4, 8, 16, 32]
    assert max(sizes) == MOST


def test_without_an_objective_all_that_may_be_is_taken() -> None:
    pace = Pace(100)
    assert pace.objective is None
    assert pace.choose(5000, lambda: 0.0) == pace.size == 100


@pytest.mark.parametrize("wrong", [0, -1, "20", float("nan"), True])
def test_an_objective_is_a_number_above_zero(wrong: float) -> None:
    with pytest.raises(InputError, match="freshness_ms, in milliseconds or None, must be a number above 0"):
        Pace(MOST, wrong)
