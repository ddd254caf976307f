"""Metrics in Prometheus' text format, as `prometheus_client` writes it; names begin with `livegnn_`.

A process has one `Metrics`. Functions import this module at the first request for their metrics.
"""

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector, CollectorRegistry

import livegnn
from livegnn.histogram import Histogram
from livegnn.http.request_counts import RequestCounts

_encode, CONTENT_TYPE = choose_encoder("")  # the plain text that every version of Prometheus reads

Labels = TypeVar("Labels", bound=tuple[str, ...] | str)
"""The values of the labels of a number: one as it is, several as a tuple."""

_Value = TypeVar("_Value", bound=float | Histogram)


class Metrics:
    """The answer to `GET /metrics`: the metrics of a part of LiveGNN, of its requests, and of the process.

    collect: returns the metrics of the part; it is called for each answer. Thread safety: that of `collect`.
    """

    def __init__(self, collect: Callable[[], Iterable[Metric]], counts: RequestCounts) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_Own(collect, counts))
        ProcessCollector(registry=self._registry)

    def render(self) -> bytes:
        """All metrics, of the type `CONTENT_TYPE`."""
        return _encode(self._registry)


class _Own(Collector):
    """The metrics of LiveGNN, made for each answer."""

    def __init__(self, collect: Callable[[], Iterable[Metric]], counts: RequestCounts) -> None:
        self._collect, self._counts = collect, counts

    def collect(self) -> Iterable[Metric]:
        yield from self._collect()
        times = self._counts.times()
        requests = {labels: each.count for labels, each in times.items()}
        by = ("route", "method", "status")
        yield counter("http_requests_total", "Requests whose answer has ended", requests, *by)
        yield histogram("http_request_seconds", "From a request to the end of its answer", times, *by)
        build = {(livegnn.__version__, platform.python_version()): 1}
        yield gauge("build_info", "1; the version of LiveGNN and that of Python", build, "version", "python")


def gauge(name: str, text: str, values: float | Mapping[Labels, float], *labels: str) -> Metric:
    """A number that may fall. text: its meaning. values: the number, or one for the values of `labels`."""
    family = GaugeMetricFamily(f"livegnn_{name}", text, labels=labels)
    for each, value in _labelled(values):
        family.add_metric(each, value)
    return family


def counter(name: str, text: str, values: float | Mapping[Labels, float], *labels: str) -> Metric:
    """A number that only grows; its name ends with `_total`. The others as of `gauge`."""
    family = CounterMetricFamily(f"livegnn_{name}", text, labels=labels)
    for each, value in _labelled(values):
        family.add_metric(each, value)
    return family


def histogram(name: str, text: str, values: Histogram | Mapping[Labels, Histogram], *labels: str) -> Metric:
    """A distribution. The arguments are as of `gauge`."""
    family = HistogramMetricFamily(f"livegnn_{name}", text, labels=labels)
    for each, value in _labelled(values):
        bounds = [*(f"{bound:.6g}" for bound in value.bounds), "+Inf"]
        buckets = list(zip(bounds, value.cumulative(), strict=True))
        family.add_metric(each, buckets, value.total)
    return family


def _labelled(values: _Value | Mapping[Labels, _Value]) -> Iterator[tuple[tuple[str, ...], _Value]]:
    for labels, value in values.items() if isinstance(values, Mapping) else [((), values)]:
        yield (labels,) if isinstance(labels, str) else labels, value
