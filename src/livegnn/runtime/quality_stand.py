"""The quality of predictions as a server shows it: figures that something beside the loop computes."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol


class QualityFigures(NamedTuple):
    """The figures of the last round.

    labels: by the name of labels, the model and the metric, of the last complete day that has labels. days:
    by the name of labels, the beginning of that day in seconds since 1970. missing: by the name of labels and
    the reason, the number of labels without a prediction. drift: by the model, the metric and the column, of
    the newest sample; the model of features is empty.
    """

    labels: Mapping[tuple[str, str, str], float] = {}
    days: Mapping[str, float] = {}
    missing: Mapping[tuple[str, str], int] = {}
    drift: Mapping[tuple[str, str, str], float] = {}


class QualityStand(Protocol):
    """A computation of figures beside the loop. Any thread may read it."""

    @property
    def failure(self) -> str | None:
        """The reason why the last round failed, or why labels are not read; None if all is well."""

    @property
    def figures(self) -> QualityFigures:
        """The figures of the last round that did not fail."""

    @property
    def age(self) -> float | None:
        """The seconds since that round; None before the first."""
