"""`[labels.NAME]` and `[quality]`: labels that arrive late, and how well predictions do (docs/quality.md)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Final

from livegnn.arguments import check_int, check_positive
from livegnn.deployment.sinks import SinkSection
from livegnn.errors import InputError
from livegnn.quality.label_mapping import LabelMapping
from livegnn.runtime import Runtime
from livegnn.tables import CsvForm
from livegnn.wording import needs

if TYPE_CHECKING:
    from livegnn.deployment import Deployment
    from livegnn.quality.monitor import QualityMonitor
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
    """`[quality]`: the folder of figures, and how a server computes them.

    every_seconds: between two computations. sample: nodes that are compared for drift, once a day. reference:
    the day, as YYYY-MM-DD, with whose sample they are compared; by default the first.
    """

    directory: Path
    every_seconds: float = 3600.0
    sample: int = 10_000
    reference: str | None = None

    def __post_init__(self) -> None:
        check_positive(self.every_seconds, "every_seconds")
        check_int(self.sample, "sample", 1)
        self.reference_day()

    def reference_day(self) -> date | None:
        """The day of the reference. Raises InputError."""
        try:
            return None if self.reference is None else date.fromisoformat(self.reference)
        except ValueError as error:
            raise InputError(f"reference must be a day, as in 2026-03-01, got {self.reference!r}") from error


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


def start_quality(settings: "Deployment", runtime: Runtime) -> "QualityMonitor | None":
    """Starts to compute figures beside `runtime`, if the deployment has a section [quality]. Raises
    InputError where pyarrow is missing."""
    section = settings.quality
    if section is None:
        return None
    try:
        from livegnn.quality.monitor import QualityMonitor
    except ModuleNotFoundError as error:
        if error.name != "pyarrow":
            raise
        raise InputError(needs("[quality]", "pyarrow", error, "arrow")) from error
    monitor = QualityMonitor(
        runtime,
        label_sources(settings.labels, settings.sinks),
        section.directory,
        every_seconds=section.every_seconds,
        sample=section.sample,
        reference=section.reference_day(),
    )
    monitor.start()
    return monitor


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
