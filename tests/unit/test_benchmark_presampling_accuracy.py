"""benchmarks/presampling_accuracy.py: the area under the curve, and what a latency hides."""

import numpy as np

from livegnn.demo.ratings import load
from presampling_accuracy import area, read, seen_by


def test_the_area_is_the_share_of_pairs_in_the_right_order() -> None:
    rng = np.random.default_rng(3)
    positive, negative = rng.integers(0, 6, 40) / 2, rng.integers(0, 6, 30) / 2
    pairs = [(p > n) + (p == n) / 2 for p in positive for n in negative]
    assert np.isclose(area(positive, negative), np.mean(pairs))


def test_a_latency_hides_the_ratings_of_its_last_seconds() -> None:
    network = read(load())
    seen = seen_by(network)
    before = np.arange(len(network))
    assert np.array_equal(seen["0 s (0 hidden)"], before)
    assert np.array_equal(seen["1 s (100 hidden)"], before - 100)
    assert np.all(seen["never"] == network.cut)
    day = seen["at real pace, a day"]
    for i in range(network.cut, len(network), 997):
        visible = int(np.count_nonzero(network.time <= network.time[i] - 86_400))
        assert day[i] == min(visible, i)
    for counts in seen.values():
        assert np.all(np.diff(counts[network.cut :]) >= 0)
        assert np.all(counts[network.cut :] <= before[network.cut :])


def test_the_features_are_those_of_the_history() -> None:
    """Whatever comes after it changes no feature."""
    ratings = load()
    network = read(ratings)
    rated = np.expm1(network.x[:, 0]).round().astype(int)
    assert rated.sum() == network.history
    assert np.array_equal(np.bincount(network.target[: network.history], minlength=len(rated)), rated)
