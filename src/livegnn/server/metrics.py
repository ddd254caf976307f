"""The metrics of a server, for Prometheus. Each metric is described in docs/server.md."""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from math import nan
from pathlib import Path

from prometheus_client.core import Metric

from livegnn.errors import LogError
from livegnn.http.metrics import counter, gauge, histogram
from livegnn.inference import Scrub
from livegnn.log.consumers import read_positions
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import QualityFigures, QualityStand, Runtime, SinkStand, Source, Statistics
from livegnn.server.feed import Feed
from livegnn.wording import format_edge_type


def collect(runtime: Runtime, feed: Feed) -> Iterator[Metric]:
    """The metrics of a runtime, and of the clients that follow it."""
    statistics, graph, log_seq = runtime.statistics, runtime.graph, runtime.log_seq
    held = 0 if (expiry := runtime.held_expiry) is None else expiry.edges
    nodes = {name: graph.num_nodes(name) for name in graph.schema.node_types}
    ready = runtime.readiness().ready
    waiting = None if log_seq is None else log_seq - runtime.seq
    yield gauge("up", "1 while events are taken and become visible, and predictions are there", ready)
    yield gauge("seq", "Last event that answers reflect", runtime.seq)
    yield gauge("log_seq", "Last event in the log", nan if log_seq is None else log_seq)
    yield counter("events_total", "Events applied", statistics.batch_events.total)
    yield counter("batches_total", "Batches applied", statistics.batch_events.count)
    yield counter("rejected_entries_total", "Entries refused", statistics.rejected_entries.count)
    yield counter("rejected_events_total", "Events of these", statistics.rejected_entries.total)
    yield counter("expired_edges_total", "Edges that expired", statistics.expired_edges.total)
    late = "Events whose features were older than those of the node"
    yield counter("late_features_total", late, statistics.late_features.total)
    yield from _views(runtime)
    yield gauge("held_expiry_edges", "Edges whose expiry waits to be confirmed", held)
    yield from _batches(statistics)
    yield from _checkpoints(runtime)
    if runtime.scrub is not None:
        yield from _scrubs(runtime.scrub)
    yield from _pace(runtime, waiting)
    yield gauge("nodes", "Nodes in the graph", nodes, "node_type")
    yield from _edges(runtime)
    yield from _sources(dict(runtime.sources))
    yield from _sinks(dict(runtime.sinks))
    yield from _quality(runtime.quality)
    yield from _log(runtime, log_seq)
    yield gauge("memory_bytes", "Memory of a part", _memory(runtime), "part")
    yield gauge("feed_clients", "Clients that follow the changes", feed.clients)
    failures = "Times that a subscriber to changes raised"
    yield counter("subscriber_failures_total", failures, runtime.subscriber_failures)
    yield counter("feed_dropped_total", "Changes dropped for slow clients", feed.dropped)


def _views(runtime: Runtime) -> list[Metric]:
    failing = {name: view.failure is not None for name, view in runtime.views.items()}
    serving = {name: name == runtime.models.serving for name in runtime.models.names}
    fails = "1 while what a view does beside batches fails, such as writing snapshots"
    serves = "1 for the model that answers, 0 for others that follow the graph"
    return [
        gauge("missing_views", "Views that failed and are built again", len(runtime.views.missing)),
        gauge("view_fails", fails, failing, "view"),
        gauge("model_serving", serves, serving, "model"),
    ]


def _edges(runtime: Runtime) -> list[Metric]:
    """Edges, and what the parts of a graph have counted, if it is in parts and none is lost."""
    graph = runtime.graph
    whole = () if graph.names_only else graph.schema.edge_types
    edges = {format_edge_type(name): graph.num_edges(name) for name in whole}
    cut: dict[str, int] = {}
    balance: dict[str, float] = {}
    sent: dict[str, int] = {}
    counts = (view.part_counts() for view in runtime.views.values())
    if graph.names_only and (counted := next(filter(None, counts), None)) is not None:
        edges = {format_edge_type(name): count for name, count in counted.edges.items()}
        cut = {format_edge_type(name): count for name, count in counted.cut.items()}
        balance = counted.balance()
        sent = {str(part): size for part, size in enumerate(counted.sent)}
    ends = "Edges whose ends are in two parts of the graph"
    return [
        gauge("edges", "Edges in the graph; an undirected edge counts once", edges, "edge_type"),
        gauge("cut_edges", ends, cut, "edge_type"),
        gauge("part_balance", "Most nodes that a part owns over the mean", balance, "node_type"),
        counter("exchanged_bytes_total", "Bytes that a part has sent to other parts", sent, "part"),
    ]


def _memory(runtime: Runtime) -> dict[str, float]:
    """Bytes of the graph's parts, and of those of its views: parts of one name together."""
    of_graph = runtime.graph.memory()
    memory: dict[str, float] = dict(of_graph)
    for view in runtime.views.values():
        for part, size in view.memory().items():
            if part not in of_graph:
                memory[part] = memory.get(part, 0) + size
    return memory


def _sources(sources: Mapping[str, Source]) -> list[Metric]:
    lags = {(name, str(at)): behind for name, source in sources.items() for at, behind in source.lag.items()}
    up = {name: source.failure is None for name, source in sources.items()}
    waits = {name: source.waits is not None for name, source in sources.items()}
    stored = {name: source.stored for name, source in sources.items()}
    bad = {name: source.bad for name, source in sources.items()}
    tombstones = {name: source.tombstones for name, source in sources.items()}
    waiting = "1 while a source waits for its brokers, or for the log to take what it brings"
    return [
        gauge("source_up", "1 while a source is read, 0 after it has failed", up, "source"),
        gauge("source_waits", waiting, waits, "source"),
        gauge("source_lag_messages", "Messages that stand unread", lags, "source", "partition"),
        counter("source_messages_total", "Messages that were brought into the log", stored, "source"),
        counter("source_bad_messages_total", "Messages of these that are not events", bad, "source"),
        counter("source_tombstones_total", "Messages of these without a value", tombstones, "source"),
    ]


def _sinks(sinks: Mapping[str, SinkStand]) -> list[Metric]:
    waits = {name: sink.waits is not None for name, sink in sinks.items()}
    lags = {name: sink.lag for name, sink in sinks.items()}
    ages = {name: sink.oldest_age for name, sink in sinks.items()}
    sent = {name: sink.sent for name, sink in sinks.items()}
    failures = {name: sink.failures for name, sink in sinks.items()}
    return [
        gauge("sink_waits", "1 while a sink waits after a write that failed", waits, "sink"),
        gauge("sink_lag_rows", "Changed predictions that a sink lacks", lags, "sink"),
        gauge("sink_lag_seconds", "Time since the oldest of these changed", ages, "sink"),
        counter("sink_rows_total", "Rows that a sink was sent", sent, "sink"),
        counter("sink_failed_writes_total", "Writes to a sink that failed", failures, "sink"),
    ]


def _quality(quality: QualityStand | None) -> list[Metric]:
    """The quality of predictions; no values where it is not computed."""
    figures = QualityFigures() if quality is None else quality.figures
    fails: dict[str, float] | float = {} if quality is None else quality.failure is not None
    age: dict[str, float] | float = {} if quality is None else nan if quality.age is None else quality.age
    labels = ("labels", "model", "metric")
    last = "Figure of the last complete day with labels"
    missing = "Labels without a prediction"
    drift = "Distance between the newest sample of a column and the reference"
    return [
        gauge("quality_fails", "1 while figures cannot be computed", fails),
        gauge("quality_age_seconds", "Time since figures were computed", age),
        gauge("quality", last, figures.labels, *labels),
        gauge("quality_day_seconds", "Beginning of that day, since 1970", figures.days, "labels"),
        gauge("quality_missing_labels", missing, figures.missing, "labels", "reason"),
        gauge("drift", drift, figures.drift, "model", "metric", "column"),
    ]


def _batches(statistics: Statistics) -> list[Metric]:
    latency = "From the arrival of an entry to its visibility"
    return [
        histogram("event_latency_seconds", latency, statistics.latency_seconds),
        histogram("batch_seconds", "Time to apply a batch", statistics.batch_seconds),
        histogram("batch_events", "Events in a batch", statistics.batch_events),
        histogram("affected_nodes", "Nodes that a batch reached", statistics.affected_nodes),
        histogram("changed_nodes", "Nodes with a new prediction", statistics.changed_nodes),
    ]


def _checkpoints(runtime: Runtime) -> Iterator[Metric]:
    statistics = runtime.statistics
    pause, failed = "Time for which the loop stood for a checkpoint", "Checkpoints that could not be written"
    yield histogram("checkpoint_seconds", "Time to write a checkpoint", statistics.checkpoint_seconds)
    yield histogram("checkpoint_pause_seconds", pause, statistics.checkpoint_pause_seconds)
    yield counter("failed_checkpoints_total", failed, statistics.failed_checkpoint_seconds.count)
    if runtime.checkpoint_directory is not None:
        age = runtime.checkpoint_age()
        yield gauge(
            "checkpoint_age_seconds",
            "Time since the newest checkpoint was written",
            nan if age is None else age,
        )


def _log(runtime: Runtime, log_seq: int | None) -> Iterator[Metric]:
    """The consumers of the log, and the disks of log and checkpoints."""
    directories = {"checkpoints": runtime.checkpoint_directory}
    if isinstance(runtime.log, SqliteLog):
        directories["log"] = runtime.log.path.parent
        lags = {}
        with suppress(LogError, OSError):  # as health says
            for name, position in read_positions(runtime.log.path).items():
                lags[name] = nan if log_seq is None else max(0, log_seq - position)
        yield gauge("consumer_lag_events", "Events that a consumer of the log has to read", lags, "consumer")
    disks = {part: disk for part, directory in directories.items() if (disk := _disk(directory)) is not None}
    free = {part: disk.f_bavail * disk.f_frsize for part, disk in disks.items()}
    total = {part: disk.f_blocks * disk.f_frsize for part, disk in disks.items()}
    yield gauge("disk_free_bytes", "Free bytes of the disk of a part", free, "part")
    yield gauge("disk_total_bytes", "All bytes of this disk", total, "part")


def _disk(directory: Path | None) -> os.statvfs_result | None:
    """The disk of a directory; None if it cannot be looked at now."""
    try:
        return None if directory is None else os.statvfs(directory)
    except OSError:
        return None


def _scrubs(scrub: Scrub) -> list[Metric]:
    largest = "Largest difference that a scrub has seen, as a part of the channel's magnitude"
    not_finite = "Rows that the last scrub saw and that are infinite or not a number"
    return [
        counter("scrubs_total", "Rounds in which aggregates were computed again", scrub.rounds),
        gauge("scrub_largest_difference", largest, scrub.largest),
        gauge("scrub_not_finite", not_finite, scrub.not_finite),
    ]


def _pace(runtime: Runtime, waiting: int | None) -> list[Metric]:
    pace, admission, known = runtime.pace, runtime.admission, waiting or 0
    seconds = admission.waiting_seconds(known) if admission.limited else 0
    objective = "Time from append to visible, as wanted"
    unseen = "Events in the log that are not visible yet"
    return [
        gauge("freshness_objective_seconds", objective, pace.objective or 0),
        gauge("pace_batch_events", "Events that a batch takes at most under steady load", pace.size),
        gauge("pace_predicted_seconds", "Expected time of the last batch", pace.predicted_seconds),
        gauge("pace_measured_seconds", "Time that the last batch took", pace.measured_seconds),
        gauge("waiting_events", unseen, nan if waiting is None else waiting),
        gauge("oldest_waiting_seconds", "Time that the oldest entry has waited", runtime.oldest_age()),
        gauge("waiting_seconds", "Time to apply the events that wait, by the cost of batches", seconds),
        gauge("pushing_back", "1 while appends are refused", not admission.is_open(known)),
        counter("refused_appends_total", "Appends that were pushed back", admission.refused),
    ]
