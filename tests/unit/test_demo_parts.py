"""The parts of the demo that need no server: ratings, standings, pace and figures."""

import numpy as np
import pytest

from livegnn.demo.meter import WINDOW, Meter, percentiles
from livegnn.demo.ratings import load
from livegnn.demo.replay import LARGEST_GROUP, due
from livegnn.demo.standing import FEATURES, Standings
from livegnn.demo.terminal import sparkline


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_ratings_are_sorted_by_time_and_each_pair_rates_once() -> None:
    ratings = load()
    assert len(ratings) == 35_592
    assert (np.diff(ratings.time) >= 0).all()
    assert len(set(zip(ratings.src.tolist(), ratings.dst.tolist(), strict=True))) == len(ratings)
    assert np.abs(ratings.weight).max() == 1
    assert 0 < ratings.cutoff < len(ratings)


def test_a_rating_becomes_newcomers_an_edge_and_two_standings() -> None:
    standings = Standings()
    first = standings.events(1, 2, -10.0, 0.0)
    assert [(chunk.kind, chunk.ids.tolist()) for chunk in first.chunks] == [
        ("add_nodes", [1, 2]),
        ("add_edges", [1]),
        ("set_features", [1, 2]),
    ]
    weight = first.chunks[1].weight
    assert weight is not None
    assert weight.tolist() == [-1.0]
    again = standings.events(2, 1, 5.0, 86_400.0)
    assert [chunk.kind for chunk in again.chunks] == ["add_edges", "set_features"]


def test_standings_count_what_was_received_and_given() -> None:
    standings = Standings()
    standings.record(1, 2, -10.0, 0.0)
    standings.record(3, 2, 4.0, 86_400.0)
    ratee = dict(zip(FEATURES, standings.features([2])[0].tolist(), strict=True))
    assert ratee["received"] == pytest.approx(np.log1p(2) / 2)
    assert ratee["received mean"] == pytest.approx(-6 / 3 / 5)
    assert ratee["received negative share"] == pytest.approx(1 / 4 * 2)
    assert ratee["received worst"] == -1
    assert ratee["received gap"] == pytest.approx(np.log1p(1) / 4)
    assert ratee["given"] == 0
    rater = dict(zip(FEATURES, standings.features([1])[0].tolist(), strict=True))
    assert rater["received"] == 0
    assert rater["given negative"] == pytest.approx(np.log1p(1))
    assert not standings.features([99]).any()


def test_without_a_rating_both_standings_are_what_they_would_have_been() -> None:
    given = [(1, 2, -10.0, 0.0), (2, 3, 3.0, 5.0), (3, 2, 4.0, 7.0), (1, 3, 1.0, 8.0), (4, 2, -2.0, 9.0)]
    everything, otherwise = Standings(), Standings()
    for row in given:
        everything.record(*row)
    for row in given[:2] + given[3:]:
        otherwise.record(*row)
    without = everything.without(3, 2, 4.0, [(-10.0, 0.0), (-2.0, 9.0)])
    np.testing.assert_array_equal(without, otherwise.features([3, 2]))


def test_the_pace_follows_the_speed() -> None:
    assert due(0.0, 10.0, 0.05, 100) == (0, 0.5)
    assert due(0.5, 10.0, 0.05, 100) == (1, 0.0)
    assert due(0.0, 1000.0, 0.01, 100) == (10, 0.0)


def test_a_replay_that_fell_behind_does_not_rush() -> None:
    assert due(0.0, 40.0, 1000.0, 10_000) == (10, 0.0)
    assert due(0.0, 0.5, 1000.0, 10_000) == (1, 0.0)


def test_no_more_is_due_than_fits_or_is_left() -> None:
    assert due(0.0, None, 0.0, 1000) == (LARGEST_GROUP, 0.0)
    assert due(0.0, None, 0.0, 3) == (3, 0.0)
    assert due(0.0, 100_000.0, 1.0, 1000)[0] == LARGEST_GROUP


def test_the_meter_measures_rates_latency_and_reach() -> None:
    clock = Clock()
    meter = Meter(np.arange(10), clock)
    assert meter.figures().p50 is None
    for i in range(10):
        clock.now = i / 10
        meter.sent(2, 8, 0.001 * (i + 1))
        meter.updated(np.array([1]), np.array([0.5], np.float32), 0.0, reached=i, seconds=0.002)
    figures = meter.figures(seconds=0.5)
    assert figures.events_per_second == pytest.approx(6 * 8 / 0.5)
    assert figures.ratings_per_second == pytest.approx(6 * 2 / 0.5)
    assert figures.p50 == pytest.approx(5.5)
    assert figures.apply_p99 == pytest.approx(2)
    assert figures.reached == tuple(range(10))
    assert meter.replayed == 20


def test_movers_are_those_that_moved_within_the_window() -> None:
    meter = Meter(np.arange(10), Clock())
    meter.start(np.array([0, 1]), np.array([0.1, 0.2], np.float32), 0.0)
    meter.updated(np.array([0, 5, 77]), np.array([0.7, 0.3, 0.9], np.float32), 1.0, 3, 0.0)
    meter.updated(np.array([5]), np.array([0.2], np.float32), 1.0, 3, 0.0)
    movers = meter.movers(5)
    assert [mover.member for mover in movers] == [0, 5]  # 77 is none of ours
    assert movers[0].before == pytest.approx(0.1)
    assert movers[1].before == pytest.approx(0.3)  # a newcomer moves from its first risk
    for _ in range(WINDOW // 50 + 2):
        meter.sent(50, 200, 0.001)
    assert meter.movers(5) == []


def test_the_history_keeps_the_last_risk_however_thin() -> None:
    meter = Meter(np.arange(3), Clock())
    for i in range(70_000):
        meter.updated(np.array([1]), np.array([i], np.float32), float(i), 1, 0.0)
    history = meter.history(1, points=100)
    assert 50 <= len(history) <= 100
    assert history[-1] == (69_999.0, 69_999.0)
    assert meter.history(2) == []


def test_percentiles_are_in_milliseconds() -> None:
    assert percentiles(np.array([])) == (None, None)
    assert percentiles(np.full(5, 0.25)) == (250.0, 250.0)


def test_a_sparkline_is_scaled_to_its_largest_value() -> None:
    assert sparkline((0, 1, 4, 8)) == " ▁▄█"
    assert sparkline(()) == ""
