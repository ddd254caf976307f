"""`livegnn quality`: the figures of predictions beside the labels that have arrived."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from livegnn.cli.files import DeploymentFile, read_deployment
from livegnn.errors import InputError
from livegnn.wording import needs

if TYPE_CHECKING:
    from livegnn.quality.report import Report, Row

_MOST_DRIFTED: Final = 5
_COLUMNS: Final = {
    "labels": "labels",
    "prevalence": "share",
    "accuracy": "accuracy",
    "average_precision": "precision",
    "roc_auc": "ROC AUC",
    "brier": "Brier",
    "calibration_error": "calibration",
    "mean_error": "bias",
    "mean_absolute_error": "MAE",
    "root_mean_squared_error": "RMSE",
}
"""The figures of all labels of a day, with the heads of their columns."""


def quality(
    deployment: DeploymentFile,
    days: Annotated[int, typer.Option(min=1, help="number of the last days to print")] = 14,
) -> None:
    """Compare the recorded predictions with the labels, and print figures for each day and model."""
    settings = read_deployment(deployment)
    if not settings.labels:
        raise InputError(f"{deployment} must have a section [labels.NAME], got none")
    try:
        from livegnn.deployment.quality import first_kept_day
        from livegnn.deployment.quality_monitor import label_sources
        from livegnn.quality.report import compute_report, read_rows, write_report
        from livegnn.quality.samples import DRIFT

        report, drift = compute_report(label_sources(settings)), []
        if settings.quality is not None:
            kept = first_kept_day(settings.quality, time.time())
            write_report(report.rows, settings.quality.directory, kept)
            drift = read_rows(settings.quality.directory, DRIFT)
    except ModuleNotFoundError as error:
        if error.name != "pyarrow":
            raise
        raise InputError(needs("livegnn quality", "pyarrow", error, "arrow")) from error
    typer.echo("\n".join([*_describe(report, days), *_describe_drift(drift)]))


def _describe(report: "Report", days: int) -> list[str]:
    lines = []
    for name, missing in report.missing.items():
        rows = [row for row in report.rows if row.labels == name]
        lines.append(name)
        lines += _table(rows, days) if rows else ["  no label has a prediction"]
        lines += [f"  {count:,} labels without: {reason}" for reason, count in missing.items()]
    return lines


def _describe_drift(rows: "Sequence[Row]") -> list[str]:
    """The columns that have drifted most, in the newest sample."""
    newest = max((row.day for row in rows), default=None)
    found = [row for row in rows if row.day == newest and row.metric.endswith("_stability_index")]
    found.sort(key=lambda row: -row.value)
    names = [f"{row.model or 'features'}, {row.part}" for row in found]
    lines = [f"  {row.value:.3f}  {name}" for row, name in zip(found, names, strict=True)]
    return [f"drift on {newest} (stability index)", *lines[:_MOST_DRIFTED]] if lines else []


def _table(rows: "Sequence[Row]", days: int) -> list[str]:
    whole = [row for row in rows if not row.part]
    shown = [metric for metric in _COLUMNS if any(row.metric == metric for row in whole)]
    last = sorted({row.day for row in whole})[-days:]
    lines = [["day", "model", *(_COLUMNS[metric] for metric in shown)]]
    for day, model in sorted({(row.day, row.model) for row in whole if row.day in last}):
        found = {row.metric: row.value for row in whole if (row.day, row.model) == (day, model)}
        lines.append([str(day), model, *(_format(metric, found.get(metric)) for metric in shown)])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = [[cell.rjust(width) for cell, width in zip(line, widths, strict=True)] for line in lines]
    return ["  " + "  ".join(cells) for cells in padded]


def _format(metric: str, value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if metric == "labels" else f"{value:.4g}"
