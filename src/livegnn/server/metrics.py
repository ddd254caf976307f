"""What is measured, in Prometheus' text format 0.0.4. Each metric is described in docs/server.md."""

from collections.abc import Iterable, Iterator, Mapping
from math import isnan, nan

from livegnn.histogram import Histogram
from livegnn.inference import Scrub
from livegnn.runtime import Admission, Pace, Runtime, Source, Statistics
from livegnn.server.feed import Feed

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def render(runtime: Runtime, feed: Feed) -> str:
    """All metrics of the process."""
    statistics, graph = runtime.statistics, runtime.graph
    held = 0 if (expiry := runtime.held_expiry) is None else expiry.edges
    scrubs = [] if runtime.scrub is None else _scrubs(runtime.scrub)
    log_seq = runtime.log_seq
    parts: list[Iterable[str]] = [
        _gauge(
            "livegnn_up",
            "1 while events are taken and become visible, and predictions are there",
            runtime.readiness().ready,
        ),
        _gauge("livegnn_seq", "Last event that answers reflect", runtime.seq),
        _gauge("livegnn_log_seq", "Last event in the log", nan if log_seq is None else log_seq),
        _counter("livegnn_events_total", "Events applied", statistics.batch_events.total),
        _counter("livegnn_batches_total", "Batches applied", statistics.batch_events.count),
        _counter("livegnn_rejected_entries_total", "Entries refused", statistics.rejected_entries.count),
        _counter("livegnn_rejected_events_total", "Events of these", statistics.rejected_entries.total),
        _counter("livegnn_expired_edges_total", "Edges that expired", statistics.expired_edges.total),
        *_views(runtime),
        _gauge("livegnn_held_expiry_edges", "Edges whose expiry waits to be confirmed", held),
        _histogram(
            "livegnn_event_latency_seconds",
            "From the arrival of an entry to its visibility",
            statistics.latency_seconds,
        ),
        _histogram("livegnn_batch_seconds", "Time to apply a batch", statistics.batch_seconds),
        _histogram("livegnn_batch_events", "Events in a batch", statistics.batch_events),
        _histogram("livegnn_affected_nodes", "Nodes that a batch reached", statistics.affected_nodes),
        _histogram("livegnn_changed_nodes", "Nodes with a new prediction", statistics.changed_nodes),
        *_checkpoints(statistics),
        *scrubs,
        *_pace(runtime.pace),
        *_admission(runtime.admission, 0 if log_seq is None else log_seq - runtime.seq),
        _gauges(
            "livegnn_nodes",
            "Nodes in the graph",
            ("node_type",),
            {(name,): graph.num_nodes(name) for name in graph.schema.node_types},
        ),
        _gauges(
            "livegnn_edges",
            "Edges in the graph; an undirected edge counts once",
            ("edge_type",),
            {("-".join(name),): graph.num_edges(name) for name in graph.schema.edge_types},
        ),
        *_sources(runtime.sources),
        _gauges("livegnn_memory_bytes", "Memory of a part", ("part",), _memory(runtime)),
        _gauge("livegnn_feed_clients", "Clients that follow the changes", feed.clients),
        _counter(
            "livegnn_subscriber_failures_total",
            "Times that a subscriber to changes raised",
            runtime.subscriber_failures,
        ),
        _counter("livegnn_feed_dropped_total", "Changes dropped for slow clients", feed.dropped),
    ]
    return "\n".join(line for part in parts for line in part) + "\n"


def _views(runtime: Runtime) -> list[Iterable[str]]:
    return [
        _gauge("livegnn_missing_views", "Views that failed and are built again", len(runtime.views.missing)),
        _gauges(
            "livegnn_view_fails",
            "1 while what a view does beside batches fails, such as writing snapshots",
            ("view",),
            {(name,): view.failure is not None for name, view in runtime.views.items()},
        ),
        _gauges(
            "livegnn_model_serving",
            "1 for the model that answers, 0 for others that follow the graph",
            ("model",),
            {(name,): name == runtime.models.serving for name in runtime.models.names},
        ),
    ]


def _memory(runtime: Runtime) -> dict[tuple[str, ...], float]:
    """Bytes of the graph's parts, and of those of its views: parts of one name together."""
    of_graph = runtime.graph.memory()
    memory: dict[tuple[str, ...], float] = {(part,): size for part, size in of_graph.items()}
    for view in runtime.views.values():
        for part, size in view.memory().items():
            if part not in of_graph:
                memory[part,] = memory.get((part,), 0) + size
    return memory


def _sources(sources: Mapping[str, Source]) -> list[Iterable[str]]:
    named = {(name,): source for name, source in dict(sources).items()}
    lags: dict[tuple[str, ...], float] = {
        (*name, str(partition)): behind
        for name, source in named.items()
        for partition, behind in source.lag.items()
    }
    return [
        _gauges(
            "livegnn_source_up",
            "1 while a source is read, 0 after it has failed",
            ("source",),
            {name: source.failure is None for name, source in named.items()},
        ),
        _gauges(
            "livegnn_source_waits",
            "1 while a source waits for its brokers, or for the log to take what it brings",
            ("source",),
            {name: source.waits is not None for name, source in named.items()},
        ),
        _gauges("livegnn_source_lag_messages", "Messages that stand unread", ("source", "partition"), lags),
        _counters(
            "livegnn_source_messages_total",
            "Messages that were brought into the log",
            ("source",),
            {name: source.stored for name, source in named.items()},
        ),
        _counters(
            "livegnn_source_bad_messages_total",
            "Messages of these that are no events",
            ("source",),
            {name: source.bad for name, source in named.items()},
        ),
        _counters(
            "livegnn_source_tombstones_total",
            "Messages of these without a value",
            ("source",),
            {name: source.tombstones for name, source in named.items()},
        ),
    ]


def _checkpoints(statistics: Statistics) -> list[Iterable[str]]:
    return [
        _histogram("livegnn_checkpoint_seconds", "Time to write a checkpoint", statistics.checkpoint_seconds),
        _histogram(
            "livegnn_checkpoint_pause_seconds",
            "Time for which the loop stood for a checkpoint",
            statistics.checkpoint_pause_seconds,
        ),
        _counter(
            "livegnn_failed_checkpoints_total",
            "Checkpoints that could not be written",
            statistics.failed_checkpoint_seconds.count,
        ),
    ]


def _scrubs(scrub: Scrub) -> list[Iterable[str]]:
    return [
        _counter("livegnn_scrubs_total", "Rounds in which aggregates were computed anew", scrub.rounds),
        _gauge(
            "livegnn_scrub_largest_difference",
            "Largest difference that a scrub has seen, as a part of the channel's magnitude",
            scrub.largest,
        ),
        _gauge(
            "livegnn_scrub_not_finite",
            "Rows that the last scrub saw and that are infinite or not a number",
            scrub.not_finite,
        ),
    ]


def _pace(pace: Pace) -> list[Iterable[str]]:
    return [
        _gauge(
            "livegnn_freshness_objective_seconds",
            "Time from append to visible, as wanted",
            pace.objective or 0,
        ),
        _gauge("livegnn_pace_batch_events", "Events that a batch takes at most under steady load", pace.size),
        _gauge("livegnn_pace_predicted_seconds", "What the last batch was to take", pace.predicted_seconds),
        _gauge("livegnn_pace_measured_seconds", "What the last batch took", pace.measured_seconds),
    ]


def _admission(admission: Admission, waiting: int) -> list[Iterable[str]]:
    return [
        _gauge(
            "livegnn_waiting_seconds",
            "Time to apply the events that wait, by what batches cost",
            admission.waiting_seconds(waiting) if admission.limited else 0,
        ),
        _gauge("livegnn_pushing_back", "1 while appends are refused", not admission.is_open(waiting)),
        _counter("livegnn_refused_appends_total", "Appends that were pushed back", admission.refused),
    ]


def _head(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"


def _gauge(name: str, text: str, value: float) -> Iterator[str]:
    yield from _head(name, "gauge", text)
    yield f"{name} {_number(value)}"


def _counter(name: str, text: str, value: float) -> Iterator[str]:
    yield from _head(name, "counter", text)
    yield f"{name} {_number(value)}"


def _gauges(
    name: str, text: str, labels: tuple[str, ...], values: Mapping[tuple[str, ...], float]
) -> Iterator[str]:
    yield from _head(name, "gauge", text)
    yield from _labelled(name, labels, values)


def _counters(
    name: str, text: str, labels: tuple[str, ...], values: Mapping[tuple[str, ...], float]
) -> Iterator[str]:
    yield from _head(name, "counter", text)
    yield from _labelled(name, labels, values)


def _labelled(name: str, labels: tuple[str, ...], values: Mapping[tuple[str, ...], float]) -> Iterator[str]:
    for key, value in values.items():
        pairs = ",".join(f'{label}="{_escape(part)}"' for label, part in zip(labels, key, strict=True))
        yield f"{name}{{{pairs}}} {_number(value)}"


def _histogram(name: str, text: str, histogram: Histogram) -> Iterator[str]:
    yield from _head(name, "histogram", text)
    counts = histogram.cumulative()
    for bound, count in zip(histogram.bounds, counts, strict=False):
        yield f'{name}_bucket{{le="{bound:.6g}"}} {count}'
    yield f'{name}_bucket{{le="+Inf"}} {counts[-1]}'
    yield f"{name}_sum {histogram.total!r}"
    yield f"{name}_count {counts[-1]}"


def _number(value: float) -> str:
    if isnan(value):
        return "NaN"
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
