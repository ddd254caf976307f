"""`[labels.NAME]` and `[quality]`: labels that arrive late, and how well predictions do (docs/quality.md)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final

from livegnn.arguments import check_int, check_positive
from livegnn.deployment.sinks import SinkSection
from livegnn.errors import InputError
from livegnn.log.client_settings import check_client_settings, check_registry_settings
from livegnn.quality.label_mapping import LabelMapping
from livegnn.tables import CsvForm

_FORMATS: Final = ("rows", "debezium")
_CSV: Final = tuple(part.name for part in fields(CsvForm))


@dataclass(frozen=True)
class LabelsSection:
    """`[labels.NAME]`: the labels of nodes.

    id, label, time, time_unit, where, kind, classes, scores, csv: as of `LabelMapping`. files: a file, or a
    folder of files, of the table. kafka, topic, format, registry, client: instead, a topic whose messages are
    rows, as of a source. sinks: the names of Parquet sinks that record the predictions; by
    default all of the deployment. complete_after_days: the days after which nearly all labels have arrived.
    """

    id: str
    label: str
    files: Path | None = None
    kafka: str = ""
    topic: str = ""
    format: str = "rows"
    registry: Mapping[str, str] = field(default_factory=dict)
    client: Mapping[str, str] = field(default_factory=dict)
    time: str | None = None
    time_unit: str | None = None
    where: Mapping[str, object] = field(default_factory=dict)
    kind: str = "class"
    classes: Sequence[str] = ()
    scores: str = "probabilities"
    csv: Mapping[str, object] = field(default_factory=dict)
    sinks: Sequence[str] = ()
    complete_after_days: int = 1

    def __post_init__(self) -> None:
        check_int(self.complete_after_days, "complete_after_days", 1)
        if (self.files is None) != bool(self.kafka) or bool(self.kafka) != bool(self.topic):
            raise InputError("there must be files, or else kafka and topic, got both, none or a half")
        if self.format not in _FORMATS:
            raise InputError(f"format must be one of {', '.join(_FORMATS)}, got {self.format!r}")
        check_client_settings(self.client)
        if self.registry:
            check_registry_settings(self.registry)
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
    the day, as YYYY-MM-DD, with whose sample they are compared; by default the first. keep_days: for
    how many days the record of predictions is kept; by default for ever.
    """

    directory: Path
    every_seconds: float = 3600.0
    sample: int = 10_000
    reference: str | None = None
    keep_days: int | None = None

    def __post_init__(self) -> None:
        check_positive(self.every_seconds, "every_seconds")
        check_int(self.sample, "sample", 1)
        if self.keep_days is not None:
            check_int(self.keep_days, "keep_days", 1)
        self.reference_day()

    def reference_day(self) -> date | None:
        """The day of the reference. Raises InputError."""
        try:
            return None if self.reference is None else date.fromisoformat(self.reference)
        except ValueError as error:
            raise InputError(f"reference must be a day, as in 2026-03-01, got {self.reference!r}") from error


def first_kept_day(section: QualitySection, now: float) -> date | None:
    """The first day whose predictions are kept; None if all are. now: in seconds since 1970."""
    today = datetime.fromtimestamp(now, UTC).date()
    return None if section.keep_days is None else today - timedelta(days=section.keep_days)


def check_labels(
    labels: Mapping[str, LabelsSection], sinks: Mapping[str, SinkSection], quality: QualitySection | None
) -> None:
    """Raises InputError for labels whose predictions no Parquet sink of the deployment records, and for those
    of a topic without a folder to keep them."""
    for name, section in labels.items():
        record_folders(name, section, sinks)
        if section.kafka and (Path(name).name != name or name == ".."):
            raise InputError(f"the name of [labels.NAME] must be that of a folder, got {name!r}")
        if section.kafka and quality is None:
            raise InputError(
                f"[labels.{name}] reads a topic, whose labels are kept in the directory of [quality], got no "
                "such section"
            )


def _records(sink: SinkSection) -> bool:
    """Whether a sink records predictions."""
    return sink.kind == "parquet" and sink.edges is None


def record_folders(name: str, section: LabelsSection, sinks: Mapping[str, SinkSection]) -> list[Path]:
    """The folders of the sinks that record the predictions of some labels. Raises InputError."""
    recorded = {one: sink.directory for one, sink in sinks.items() if _records(sink)}
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
