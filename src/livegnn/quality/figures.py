"""Figures of predictions beside labels: precision, ranks, calibration and errors. Each is one number."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import numpy as np

from livegnn.errors import InputError
from livegnn.quality.label_mapping import Kind, Scores
from livegnn.types import DoubleArray, FloatArray, IntArray

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Truths = NDArray[np.bool_]

BINS: Final = 10
"""Of the calibration: scores from 0 to 0.1, above 0.1 to 0.2, and so on."""


class Figure(NamedTuple):
    """A number. part: of the labels, such as "class 1" or "0.1 to 0.2"; empty for all of them."""

    metric: str
    value: float
    part: str = ""


class CalibrationBins(NamedTuple):
    """For each bin, the number of its scores, their mean, and the share of positives; NaN without scores."""

    counts: IntArray
    scores: DoubleArray
    shares: DoubleArray

    def error(self) -> float:
        """The expected calibration error: the mean distance of score and share, weighed by scores."""
        used = self.counts > 0
        distance = np.abs(self.scores[used] - self.shares[used])
        return float(np.average(distance, weights=self.counts[used]))


def compute_figures(predictions: FloatArray, labels: DoubleArray, kind: Kind, scores: Scores) -> list[Figure]:
    """The figures of predictions [n, channels], all numbers, beside labels [n], for n above 0.

    Labels of the kind "class" are numbers of classes. One channel is the score of class 1; of two, the second
    is. Raises InputError for predictions that are not as `kind` and `scores` say, and for a class without a
    channel.
    """
    width = predictions.shape[1]
    values = predictions.astype(np.float64)
    if kind == "number":
        if width != 1:
            raise InputError(f"labels that are numbers need predictions of one channel, got {width}")
        return list(_number_figures(values[:, 0], labels))
    classes = max(2, width)
    if (most := labels.max()) >= classes:
        raise InputError(
            f"labels must be classes from 0 to {classes - 1}, as the {width} channels of predictions, got "
            f"{most:g}"
        )
    values = to_probabilities(values, scores)
    if width <= 2:
        return list(_binary_figures(values[:, -1], labels == 1, scores))
    return list(_class_figures(values, labels.astype(np.int64), scores))


def to_probabilities(values: DoubleArray, scores: Scores) -> DoubleArray:
    """The probabilities [n, channels] of predictions; ranks stay as they are. Raises InputError."""
    if scores == "logits":
        if values.shape[1] == 1:
            return 0.5 * (1 + np.tanh(0.5 * values))
        powers = np.exp(values - values.max(axis=1, keepdims=True))
        return cast("DoubleArray", powers / powers.sum(axis=1, keepdims=True))
    if scores == "probabilities" and ((values < 0) | (values > 1)).any():
        wrong = values[(values < 0) | (values > 1)][0]
        raise InputError(
            f'predictions must be probabilities from 0 to 1, got {wrong:g}: write scores = "logits" for a '
            'model that ends before the sigmoid or softmax, or "ranks" for scores of another kind'
        )
    return values


def average_precision(scores: DoubleArray, positives: "Truths") -> float:
    """The mean of the precision at each positive, from the highest score on; equal scores count together. It
    needs a positive."""
    true, false = _counts_from_highest(scores, positives)
    steps = np.diff(true, prepend=0)
    return float((steps * (true / (true + false))).sum() / true[-1])


def roc_auc(scores: DoubleArray, positives: "Truths") -> float:
    """The share of pairs of a positive and a negative in which the positive has the higher score; equal ones
    count half. It needs both."""
    true, false = _counts_from_highest(scores, positives)
    heights = true - np.diff(true, prepend=0) / 2
    return float((np.diff(false, prepend=0) * heights).sum() / (true[-1] * false[-1]))


def _counts_from_highest(scores: DoubleArray, positives: "Truths") -> tuple[DoubleArray, DoubleArray]:
    """For each distinct score from the highest on, the positives and negatives with at least this score."""
    order = np.argsort(-scores, kind="stable")
    ordered = scores[order]
    last = np.append(np.flatnonzero(ordered[1:] != ordered[:-1]), len(ordered) - 1)
    true = np.cumsum(positives[order], dtype=np.float64)[last]
    return true, (last + 1) - true


def calibrate(scores: DoubleArray, positives: "Truths") -> CalibrationBins:
    """The calibration of scores from 0 to 1."""
    bins = np.clip(np.ceil(scores * BINS).astype(np.int64) - 1, 0, BINS - 1)
    counts = np.bincount(bins, minlength=BINS)
    with np.errstate(invalid="ignore"):
        means = np.bincount(bins, scores, BINS) / counts
        shares = np.bincount(bins, positives.astype(np.float64), BINS) / counts
    return CalibrationBins(counts, means, shares)


def _binary_figures(scores: DoubleArray, positives: "Truths", kind: Scores) -> Iterator[Figure]:
    yield Figure("labels", len(scores))
    yield from _ranked_figures(scores, positives, "")
    if kind != "ranks":
        yield Figure("brier", float(((scores - positives) ** 2).mean()))
        yield from _calibration_figures(scores, positives)


def _ranked_figures(scores: DoubleArray, positives: "Truths", part: str) -> Iterator[Figure]:
    share = float(positives.mean())
    yield Figure("prevalence", share, part)
    if share > 0:
        yield Figure("average_precision", average_precision(scores, positives), part)
    if 0 < share < 1:
        yield Figure("roc_auc", roc_auc(scores, positives), part)


def _calibration_figures(scores: DoubleArray, positives: "Truths") -> Iterator[Figure]:
    bins = calibrate(scores, positives)
    yield Figure("mean_score", float(scores.mean()))
    yield Figure("calibration_error", bins.error())
    for at in np.flatnonzero(bins.counts).tolist():
        part = f"{at / BINS:g} to {(at + 1) / BINS:g}"
        yield Figure("calibration_labels", float(bins.counts[at]), part)
        yield Figure("calibration_score", float(bins.scores[at]), part)
        yield Figure("calibration_share", float(bins.shares[at]), part)


def _class_figures(scores: DoubleArray, classes: IntArray, kind: Scores) -> Iterator[Figure]:
    """Each class beside all others, and the class with the highest score beside the label."""
    highest = scores.argmax(axis=1)
    yield Figure("labels", len(scores))
    yield Figure("accuracy", float((highest == classes).mean()))
    precisions = []
    for each in range(scores.shape[1]):
        for figure in _ranked_figures(scores[:, each], classes == each, f"class {each}"):
            yield figure
            if figure.metric == "average_precision":
                precisions.append(figure.value)
    yield Figure("average_precision", float(np.mean(precisions)))
    if kind != "ranks":
        truths = np.arange(scores.shape[1]) == classes[:, None]
        yield Figure("brier", float(((scores - truths) ** 2).sum(axis=1).mean()))
        yield from _calibration_figures(scores.max(axis=1), highest == classes)


def _number_figures(values: DoubleArray, labels: DoubleArray) -> Iterator[Figure]:
    errors = values - labels
    yield Figure("labels", len(labels))
    yield Figure("mean_label", float(labels.mean()))
    yield Figure("mean_error", float(errors.mean()))
    yield Figure("mean_absolute_error", float(np.abs(errors).mean()))
    yield Figure("root_mean_squared_error", float(np.sqrt((errors**2).mean())))
