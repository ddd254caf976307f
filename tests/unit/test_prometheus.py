"""Prometheus' text format."""

import math

from livegnn.histogram import Histogram
from livegnn.server.prometheus import counter, gauge, histogram


def test_values_with_and_without_labels() -> None:
    assert list(gauge("up", "1 while all is well", True)) == [
        "# HELP livegnn_up 1 while all is well",
        "# TYPE livegnn_up gauge",
        "livegnn_up 1",
    ]
    lag = {("a\n", "0"): 12_345_678, ('"b"\\', "1"): math.nan}
    assert list(counter("lag_total", "", lag, "source", "partition")) == [
        "# TYPE livegnn_lag_total counter",
        'livegnn_lag_total{source="a\\n",partition="0"} 12345678',
        'livegnn_lag_total{source="\\"b\\"\\\\",partition="1"} NaN',
    ]


def test_buckets_count_all_values_up_to_their_bound() -> None:
    times = Histogram([0.5, 1.0])
    for seconds in (0.25, 0.75, 0.75, 3.0):
        times.record(seconds)
    plain, labelled = ([f"livegnn_t_{line}" for line in lines] for lines in _buckets())
    assert list(histogram("t", "", times)) == ["# TYPE livegnn_t histogram", *plain]
    assert list(histogram("t", "", {"infer": times}, "stage")) == ["# TYPE livegnn_t histogram", *labelled]


def _buckets() -> tuple[list[str], list[str]]:
    counts = {"0.5": 1, "1": 3, "+Inf": 4}
    plain = [f'bucket{{le="{bound}"}} {count}' for bound, count in counts.items()]
    labelled = [f'bucket{{stage="infer",le="{bound}"}} {count}' for bound, count in counts.items()]
    return [*plain, "sum 4.75", "count 4"], [
        *labelled,
        'sum{stage="infer"} 4.75',
        'count{stage="infer"} 4',
    ]
