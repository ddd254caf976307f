"""The labels of a deployment, and the monitor of quality beside its runtime."""

from pathlib import Path
from typing import TYPE_CHECKING

from livegnn.deployment import Deployment
from livegnn.deployment.quality import record_folders
from livegnn.deployment.sections import row_parser
from livegnn.errors import InputError
from livegnn.log.client_settings import read_client_settings
from livegnn.runtime import Runtime
from livegnn.wording import needs

if TYPE_CHECKING:
    from livegnn.quality.label_topic import LabelTopic
    from livegnn.quality.monitor import QualityMonitor
    from livegnn.quality.report import LabelSource


def label_sources(settings: Deployment) -> "list[LabelSource]":
    """The files of all labels, with the records of predictions."""
    from livegnn.quality.report import LabelSource

    sources = []
    for name, section in settings.labels.items():
        records = record_folders(name, section, settings.sinks)
        files = [] if section.files is None else [section.files]
        pages = None if section.files is not None else _pages(settings, name)
        complete = section.complete_after_days
        sources.append(LabelSource(name, section.mapping(), files, records, pages, complete))
    return sources


def _pages(settings: Deployment, name: str) -> Path:
    """The folder of the labels of a topic."""
    assert settings.quality is not None
    return settings.quality.directory / "labels" / name


def _connect(settings: Deployment, name: str, runtime: Runtime) -> "LabelTopic":
    """A topic of labels, not started yet. Raises InputError where Kafka's client is missing."""
    try:
        from livegnn.quality.label_topic import LabelTopic
    except ModuleNotFoundError as error:
        raise InputError(needs(f"[labels.{name}]", str(error.name), error, "kafka")) from error
    from livegnn.quality.label_pages import LabelPages
    from livegnn.quality.labels import LabelReader

    section, text, place = settings.labels[name], runtime.graph.schema.text_ids, f"[labels.{name}]"
    return LabelTopic(
        LabelPages(_pages(settings, name), text_ids=text),
        LabelReader(section.mapping(), place, text_ids=text),
        row_parser(place, section.format, section.registry),
        section.kafka,
        section.topic,
        settings=read_client_settings(section.client),
    )


def start_quality(settings: Deployment, runtime: Runtime) -> "QualityMonitor | None":
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
        label_sources(settings),
        section.directory,
        topics=[_connect(settings, name, runtime) for name, one in settings.labels.items() if one.kafka],
        every_seconds=section.every_seconds,
        sample=section.sample,
        reference=section.reference_day(),
        keep_days=section.keep_days,
    )
    monitor.start()
    return monitor
