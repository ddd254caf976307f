"""Figures of predictions beside labels, each held against its definition, written as loops."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gate import draws
from livegnn import InputError
from livegnn.quality.figures import average_precision, calibrate, compute_figures, roc_auc, to_probabilities

SCORES = st.sampled_from([0.0, 0.05, 0.1, 0.25, 0.3, 0.5, 0.7, 0.99, 1.0]) | st.floats(0, 1, width=32)
RATED = st.lists(st.tuples(SCORES, st.booleans()), min_size=1, max_size=40)


def slow_average_precision(scores: list[float], positives: list[bool]) -> float:
    """The sum over thresholds of precision times the recall that the threshold adds."""
    total, before = 0.0, 0.0
    for threshold in sorted(set(scores), reverse=True):
        chosen = [truth for score, truth in zip(scores, positives, strict=True) if score >= threshold]
        recall = sum(chosen) / sum(positives)
        total += (recall - before) * sum(chosen) / len(chosen)
        before = recall
    return total


def slow_roc_auc(scores: list[float], positives: list[bool]) -> float:
    high = [score for score, truth in zip(scores, positives, strict=True) if truth]
    low = [score for score, truth in zip(scores, positives, strict=True) if not truth]
    return sum((a > b) + (a == b) / 2 for a in high for b in low) / (len(high) * len(low))


@given(RATED)
@settings(max_examples=draws(100, 5000), deadline=None)
def test_ranks_as_defined(rated: list[tuple[float, bool]]) -> None:
    scores, positives = map(list, zip(*rated, strict=True))
    arrays = np.array(scores), np.array(positives)
    if any(positives):
        assert average_precision(*arrays) == pytest.approx(slow_average_precision(scores, positives))
        if not all(positives):
            assert roc_auc(*arrays) == pytest.approx(slow_roc_auc(scores, positives))


@given(RATED)
@settings(max_examples=draws(100, 5000), deadline=None)
def test_calibration_as_defined(rated: list[tuple[float, bool]]) -> None:
    bins: list[list[tuple[float, bool]]] = [[] for _ in range(10)]
    for score, truth in rated:
        at = next(at for at in range(10) if at == 9 or score * 10 <= at + 1)
        bins[at].append((score, truth))
    scores, positives = map(np.array, zip(*rated, strict=True))
    found = calibrate(scores, positives)
    assert found.counts.tolist() == [len(one) for one in bins]
    error = 0.0
    for at, one in enumerate(bins):
        if one:
            mean, share = np.mean([score for score, _ in one]), np.mean([truth for _, truth in one])
            assert (found.scores[at], found.shares[at]) == pytest.approx((mean, share))
            error += len(one) / len(rated) * abs(mean - share)
    assert found.error() == pytest.approx(error)


def figures_of(predictions: object, labels: object, **how: str) -> dict[tuple[str, str], float]:
    given = {"kind": "class", "scores": "probabilities", **how}
    found = compute_figures(np.array(predictions, np.float32), np.array(labels, np.float64), **given)
    return {(one.metric, one.part): one.value for one in found}


def test_two_channels_are_the_classes_of_one() -> None:
    one = figures_of([[0.9], [0.25], [0.5]], [1, 0, 1])
    two = figures_of([[0.1, 0.9], [0.75, 0.25], [0.5, 0.5]], [1, 0, 1])
    assert one == pytest.approx(two)
    assert one["labels", ""] == 3
    assert one["prevalence", ""] == pytest.approx(2 / 3)
    assert one["average_precision", ""] == one["roc_auc", ""] == 1
    assert one["brier", ""] == pytest.approx((0.01 + 0.0625 + 0.25) / 3)
    assert one["calibration_share", "0.8 to 0.9"] == 1
    assert one["calibration_error", ""] == pytest.approx((0.1 + 0.25 + 0.5) / 3)


def test_a_figure_that_has_no_value_is_left_out() -> None:
    assert "average_precision" not in {metric for metric, _ in figures_of([[0.5]], [0])}
    only_positives = figures_of([[0.5], [0.25]], [1, 1])
    assert only_positives["average_precision", ""] == 1
    assert ("roc_auc", "") not in only_positives


def test_classes_are_each_beside_all_others() -> None:
    rows = [[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.4, 0.5, 0.1], [0.1, 0.1, 0.8]]
    found = figures_of(rows, [0, 1, 0, 2])
    assert found["accuracy", ""] == 0.75
    for each in range(3):
        scores = [row[each] for row in rows]
        truths = [label == each for label in (0, 1, 0, 2)]
        assert found["average_precision", f"class {each}"] == pytest.approx(
            slow_average_precision(scores, truths)
        )
        assert found["prevalence", f"class {each}"] == np.mean(truths)
    mean = np.mean([found["average_precision", f"class {each}"] for each in range(3)])
    assert found["average_precision", ""] == pytest.approx(mean)
    assert found["brier", ""] == pytest.approx((0.26 + 0.38 + 0.62 + 0.06) / 4)


def test_logits_become_probabilities_without_overflow() -> None:
    with np.errstate(over="raise", invalid="raise"):
        single = to_probabilities(np.array([[-1000.0], [0.0], [np.log(3)], [1000.0]]), "logits")
        several = to_probabilities(np.array([[1000.0, 0.0, 1000.0], [0.0, np.log(2), 0.0]]), "logits")
    assert single[:, 0] == pytest.approx([0, 0.5, 0.75, 1])
    assert several == pytest.approx(np.array([[0.5, 0, 0.5], [0.25, 0.5, 0.25]]))


def test_ranks_have_no_calibration() -> None:
    found = figures_of([[-3.0], [17.0]], [0, 1], scores="ranks")
    assert found == {
        ("labels", ""): 2,
        ("prevalence", ""): 0.5,
        ("average_precision", ""): 1,
        ("roc_auc", ""): 1,
    }


def test_numbers_have_errors() -> None:
    found = figures_of([[1.0], [4.0]], [2.0, 1.0], kind="number")
    assert found["mean_error", ""] == 1
    assert found["mean_absolute_error", ""] == 2
    assert found["root_mean_squared_error", ""] == pytest.approx(5**0.5)


@pytest.mark.parametrize(
    ("predictions", "labels", "how", "reason"),
    [
        ([[1.5]], [1], {}, 'probabilities from 0 to 1, got 1.5: write scores = "logits"'),
        ([[0.5]], [2], {}, "classes from 0 to 1, as the 1 channels"),
        ([[0.5, 0.2, 0.3]], [3], {}, "classes from 0 to 2, as the 3 channels"),
        ([[0.5, 0.5]], [3], {"kind": "number"}, "need predictions of one channel, got 2"),
    ],
)
def test_what_does_not_fit_is_refused(
    predictions: object, labels: object, how: dict[str, str], reason: str
) -> None:
    with pytest.raises(InputError, match=reason):
        figures_of(predictions, labels, **how)
