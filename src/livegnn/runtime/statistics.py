"""Statistics of a runtime, for metrics."""

from dataclasses import dataclass, field
from functools import partial

from livegnn.histogram import COUNTS, SECONDS, Histogram

_seconds, _counts = partial(Histogram, SECONDS), partial(Histogram, COUNTS)


@dataclass(frozen=True)
class Statistics:
    """The statistics of a runtime so far, for metrics.

    latency_seconds: from append to visible. checkpoint_pause_seconds: how long the loop stopped for a
    checkpoint. rejected_entries: counts their events. expired_edges: each time that there were any.
    late_features: of each batch with events whose features were older than those of the node.
    affected_nodes, changed_nodes: of the engine, if there is one.
    """

    latency_seconds: Histogram = field(default_factory=_seconds)
    batch_seconds: Histogram = field(default_factory=_seconds)
    batch_events: Histogram = field(default_factory=_counts)
    affected_nodes: Histogram = field(default_factory=_counts)
    changed_nodes: Histogram = field(default_factory=_counts)
    checkpoint_seconds: Histogram = field(default_factory=_seconds)
    checkpoint_pause_seconds: Histogram = field(default_factory=_seconds)
    failed_checkpoint_seconds: Histogram = field(default_factory=_seconds)
    rejected_entries: Histogram = field(default_factory=_counts)
    expired_edges: Histogram = field(default_factory=_counts)
    late_features: Histogram = field(default_factory=_counts)
