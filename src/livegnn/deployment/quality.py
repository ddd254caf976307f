"""`[labels.NAME]` and `[quality]`: labels that arrive late, and how well predictions do (docs/quality.md)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Final

from livegnn.deployment.sinks import SinkSection
from livegnn.errors import InputError
from livegnn.quality.label_mapping import LabelMapping
from livegnn.tables import CsvForm

if TYPE_CHECKING:
    from livegnn.quality.report import LabelSource

_CSV: Final = tuple(part.name for part in fields(CsvForm))


@dataclass(frozen=True)
class LabelsSection:
    """`[labels.NAME]`: the labels of nodes.

    files: a file, or a folder of files, of the table. id, label, time, time_unit, where, kind, classes,
    scores, csv: as of `LabelMapping`. sinks: the names of Parquet sinks that record the predictions; by
    default all of the deployment.
    """

    files: Path
    id: str
    label: str
    time: str | None = None
    time_unit: str | None = None
    where: Mapping[str, object] = field(default_factory=dict)
    kind: str = "class"
    classes: Sequence[str] = ()
    scores: str = "probabilities"
    csv: Mapping[str, object] = field(default_factory=dict)
    sinks: Sequence[str] = ()

    def __post_init__(self) -> None:
        self.mapping()

    def mapping(self) -> LabelMapping:
        """The same in the words of tables. Raises InputError."""
        for name in self.csv:
            if name not in _CSV:
                raise InputError(f"csv must have the keys {', '.join(_CSV)}, got {name!r}")
        return LabelMapping(
            self.id,
            self.label,
            self.time,
            self.time_unit,  # type: ignore[arg-type]  # the mapping checks them
            self.where,
            self.kind,  # type: ignore[arg-type]
            self.classes,
            self.scores,  # type: ignore[arg-type]
            CsvForm(**self.csv) if self.csv else None,  # type: ignore[arg-type]
        )


@dataclass(frozen=True)
class QualitySection:
    """`[quality]`: the folder of figures, and the seconds between two computations of them in a server."""

    directory: Path
    every_seconds: float = 3600.0

    def __post_init__(self) -> None:
        if not self.every_seconds > 0:
            raise InputError(f"every_seconds must be above 0, got {self.every_seconds!r}")


def check_labels(labels: Mapping[str, LabelsSection], sinks: Mapping[str, SinkSection]) -> None:
    """Raises InputError for labels whose predictions no Parquet sink of the deployment records."""
    for name, section in labels.items():
        _records(name, section, sinks)


def label_sources(
    labels: Mapping[str, LabelsSection], sinks: Mapping[str, SinkSection]
) -> "list[LabelSource]":
    """The files of all labels, with the records of predictions."""
    from livegnn.quality.report import LabelSource

    return [
        LabelSource(name, section.mapping(), [section.files], _records(name, section, sinks))
        for name, section in labels.items()
    ]


def _records(name: str, section: LabelsSection, sinks: Mapping[str, SinkSection]) -> list[Path]:
    recorded = {one: sink.directory for one, sink in sinks.items() if sink.kind == "parquet"}
    wanted = section.sinks or list(recorded)
    unknown = [one for one in wanted if one not in recorded]
    if unknown or not wanted:
        got = f"{unknown[0]!r}" if unknown else "none"
        known = ", ".join(recorded) or "none"
        raise InputError(
            f'sinks of [labels.{name}] must be sections [sinks.NAME] of kind = "parquet", which record the '
            f"predictions, got {got}; there are: {known}"
        )
    return [folder for one in wanted if (folder := recorded[one]) is not None]
