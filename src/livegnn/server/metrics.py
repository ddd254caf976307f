"""The metrics for Prometheus. Each metric is described in docs/server.md."""

from collections.abc import Iterable, Mapping
from itertools import chain
from math import nan

from livegnn.inference import Scrub
from livegnn.runtime import Runtime, Source, Statistics
from livegnn.server.feed import Feed
from livegnn.server.prometheus import counter, gauge, histogram
from livegnn.wording import format_edge_type


def render(runtime: Runtime, feed: Feed) -> str:
    """All metrics of the process."""
    statistics, graph, log_seq = runtime.statistics, runtime.graph, runtime.log_seq
    held = 0 if (expiry := runtime.held_expiry) is None else expiry.edges
    nodes = {name: graph.num_nodes(name) for name in graph.schema.node_types}
    edges = {format_edge_type(name): graph.num_edges(name) for name in graph.schema.edge_types}
    ready = runtime.readiness().ready
    parts = [
        gauge("up", "1 while events are taken and become visible, and predictions are there", ready),
        gauge("seq", "Last event that answers reflect", runtime.seq),
        gauge("log_seq", "Last event in the log", nan if log_seq is None else log_seq),
        counter("events_total", "Events applied", statistics.batch_events.total),
        counter("batches_total", "Batches applied", statistics.batch_events.count),
        counter("rejected_entries_total", "Entries refused", statistics.rejected_entries.count),
        counter("rejected_events_total", "Events of these", statistics.rejected_entries.total),
        counter("expired_edges_total", "Edges that expired", statistics.expired_edges.total),
        *_views(runtime),
        gauge("held_expiry_edges", "Edges whose expiry waits to be confirmed", held),
        *_batches(statistics),
        *([] if runtime.scrub is None else _scrubs(runtime.scrub)),
        *_pace(runtime, 0 if log_seq is None else log_seq - runtime.seq),
        gauge("nodes", "Nodes in the graph", nodes, "node_type"),
        gauge("edges", "Edges in the graph; an undirected edge counts once", edges, "edge_type"),
        *_sources(dict(runtime.sources)),
        gauge("memory_bytes", "Memory of a part", _memory(runtime), "part"),
        gauge("feed_clients", "Clients that follow the changes", feed.clients),
        counter(
            "subscriber_failures_total",
            "Times that a subscriber to changes raised",
            runtime.subscriber_failures,
        ),
        counter("feed_dropped_total", "Changes dropped for slow clients", feed.dropped),
    ]
    return "\n".join([*chain.from_iterable(parts), ""])


def _views(runtime: Runtime) -> list[Iterable[str]]:
    failing = {name: view.failure is not None for name, view in runtime.views.items()}
    serving = {name: name == runtime.models.serving for name in runtime.models.names}
    fails = "1 while what a view does beside batches fails, such as writing snapshots"
    serves = "1 for the model that answers, 0 for others that follow the graph"
    return [
        gauge("missing_views", "Views that failed and are built again", len(runtime.views.missing)),
        gauge("view_fails", fails, failing, "view"),
        gauge("model_serving", serves, serving, "model"),
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


def _sources(sources: Mapping[str, Source]) -> list[Iterable[str]]:
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


def _batches(statistics: Statistics) -> list[Iterable[str]]:
    latency = "From the arrival of an entry to its visibility"
    pause, failed = "Time for which the loop stood for a checkpoint", "Checkpoints that could not be written"
    return [
        histogram("event_latency_seconds", latency, statistics.latency_seconds),
        histogram("batch_seconds", "Time to apply a batch", statistics.batch_seconds),
        histogram("batch_events", "Events in a batch", statistics.batch_events),
        histogram("affected_nodes", "Nodes that a batch reached", statistics.affected_nodes),
        histogram("changed_nodes", "Nodes with a new prediction", statistics.changed_nodes),
        histogram("checkpoint_seconds", "Time to write a checkpoint", statistics.checkpoint_seconds),
        histogram("checkpoint_pause_seconds", pause, statistics.checkpoint_pause_seconds),
        counter("failed_checkpoints_total", failed, statistics.failed_checkpoint_seconds.count),
    ]


def _scrubs(scrub: Scrub) -> list[Iterable[str]]:
    largest = "Largest difference that a scrub has seen, as a part of the channel's magnitude"
    not_finite = "Rows that the last scrub saw and that are infinite or not a number"
    return [
        counter("scrubs_total", "Rounds in which aggregates were computed again", scrub.rounds),
        gauge("scrub_largest_difference", largest, scrub.largest),
        gauge("scrub_not_finite", not_finite, scrub.not_finite),
    ]


def _pace(runtime: Runtime, waiting: int) -> list[Iterable[str]]:
    pace, admission = runtime.pace, runtime.admission
    seconds = admission.waiting_seconds(waiting) if admission.limited else 0
    objective = "Time from append to visible, as wanted"
    return [
        gauge("freshness_objective_seconds", objective, pace.objective or 0),
        gauge("pace_batch_events", "Events that a batch takes at most under steady load", pace.size),
        gauge("pace_predicted_seconds", "Expected time of the last batch", pace.predicted_seconds),
        gauge("pace_measured_seconds", "Time that the last batch took", pace.measured_seconds),
        gauge("waiting_seconds", "Time to apply the events that wait, by the cost of batches", seconds),
        gauge("pushing_back", "1 while appends are refused", not admission.is_open(waiting)),
        counter("refused_appends_total", "Appends that were pushed back", admission.refused),
    ]
