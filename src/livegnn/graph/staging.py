"""Turns a batch of events into the changes it makes: checks each chunk against the schema, the current graph
and the chunks before it.

Thread safety: the caller must hold `Graph.writer`.
"""

from typing import TYPE_CHECKING

import numpy as np

import livegnn._core as _core
from livegnn.errors import InputError, UnknownNodeError, as_value
from livegnn.events.chunk import EDGE_KINDS
from livegnn.events.growing import GROW
from livegnn.graph.auto_add import add_unknown_nodes
from livegnn.graph.columns import check_columns, complete_rows
from livegnn.graph.construction import parallel_edges
from livegnn.graph.delta import GraphDelta
from livegnn.graph.native_graph import NativeGraph
from livegnn.graph.view_registry import ViewRegistry

if TYPE_CHECKING:
    from livegnn.events import Events

_UNKNOWN_NODE, _PARALLEL = 0, 6
_NO_ID = -1


def check_seq(seq: int, at: int) -> None:
    """Raises `InputError` if `seq` is not a valid sequence number for a batch after `at`."""
    if type(seq) is not int or not 0 <= seq < 1 << 63:
        raise InputError(f"seq must be an integer of at least 0 and below 2**63, got {seq!r}")
    if seq < at:
        raise InputError(
            f"seq must be at least {at}, where the graph is, got {seq}: sequence numbers never go back; "
            "leave it out, and it grows by the number of events"
        )


def stage_batch(
    graph: NativeGraph,
    views: ViewRegistry,
    events: "Events",
    seq: int | None,
    *,
    refuse_parallel: bool = False,
    trusted: bool = False,
) -> GraphDelta:
    """Returns the changes that `events` would make. seq: the sequence number after them, by default counted.

    refuse_parallel: an edge that occurs twice is an error, not an update. trusted: as of `Graph.apply`.
    Raises the errors of `Graph.apply`.
    """
    events = graph.with_types(events)
    native, pin = stage_events(graph, events, refuse_parallel=refuse_parallel, trusted=trusted)
    after = graph.seq + len(events) if seq is None else seq
    return GraphDelta(graph, native, after, events, pin, views.refuse_unless_prepared, trusted=trusted)


def stage_events(
    graph: NativeGraph, events: "Events", *, refuse_parallel: bool, trusted: bool = False
) -> tuple[_core.Delta, _core.TextPin]:
    """The changes that `events` would make, and a pin for the texts of their nodes; the caller closes it.

    refuse_parallel: an edge that occurs twice is an error, not an update. trusted: as of `Graph.apply`.
    Raises the errors of `Graph.apply`.
    """
    stage, intern = _core.Stage(graph.native, refuse_parallel, trusted), graph.node_ids.intern
    auto_add = bool(graph.schema.auto_add)
    pin = graph.node_ids.pin()
    try:
        for chunk in events.chunks:
            kind, type_, ids, dst, weight, time, x, key = chunk
            if kind == GROW:
                raise InputError(
                    "expected events of nodes and edges, got a growth of the schema: apply it as a batch of "
                    "its own, with Graph.apply or Runtime.grow"
                )
            if kind in EDGE_KINDS:
                edge_type = graph.schema.edge_type_index(type_)
                check_columns(graph.schema, chunk)
                assert dst is not None
                sources, targets = intern(ids), intern(dst)
                if kind == "add_edges":
                    if auto_add:
                        add_unknown_nodes(graph, stage, chunk, sources, targets)
                    stage.add_edges(edge_type, sources, targets, weight, time, x, key)
                else:
                    stage.remove_edges(edge_type, sources, targets, key)
                continue
            node_type = graph.schema.node_type_index(type_)
            check_columns(graph.schema, chunk)
            nodes, x = intern(ids), complete_rows(graph.schema, chunk)
            if kind == "set_features":
                assert x is not None
                if auto_add:
                    add_unknown_nodes(graph, stage, chunk, nodes)
                stage.set_features(node_type, nodes, x, time)
            elif kind == "add_nodes":
                if x is None and (row := graph.schema.grown_rows.get(str(type_))) is not None:
                    stage.add_unknown(node_type, nodes, np.array(row, np.float32))
                stage.add_nodes(node_type, nodes, x, time)
            else:
                stage.remove_nodes(node_type, nodes)
        return stage.finish(), pin
    except BaseException as error:
        try:
            if isinstance(error, _core.EventError):
                # Not by a name of this frame, which the error's traceback holds: a cycle keeps the events.
                raise _explain(graph, error) from None
            raise
        finally:
            pin.let_go()  # the traceback of a stored error keeps this frame, and so the pin, alive


def find_refusal(graph: NativeGraph, events: "Events") -> InputError | None:
    """Returns the error by which `Graph.apply` would refuse `events` now, or None. Views may still refuse."""
    return _core.holding(graph.writer, _find_refusal, graph, events)


def _find_refusal(graph: NativeGraph, events: "Events") -> InputError | None:
    try:
        _, pin = stage_events(graph, graph.with_types(events), refuse_parallel=False)
    except InputError as error:
        return as_value(error)
    pin.let_go()
    return None


def _explain(graph: NativeGraph, error: _core.EventError) -> InputError:
    kind, what, number, type_, target = error.args
    if kind == _PARALLEL:
        edge_type = list(graph.schema.edge_types)[type_]
        return parallel_edges(
            edge_type, *(graph.node_ids.to_user_ids(np.array([n]))[0] for n in (number, target))
        )
    if number == _NO_ID and kind != _UNKNOWN_NODE:
        return InputError(what)
    shown = graph.node_ids.to_user_ids(np.array([number]))[0].item()
    if target != _NO_ID:
        aim = graph.node_ids.to_user_ids(np.array([target]))[0].item()
        edge_type = list(graph.schema.edge_types)[type_]
        return InputError(f"{what} for the edge {shown!r} -> {aim!r} of type {edge_type}")
    name = list(graph.schema.node_types)[type_]
    if kind != _UNKNOWN_NODE:
        return InputError(f"{what} for node {shown!r} of type {name!r}")
    return UnknownNodeError(
        f"expected the id of a node of type {name!r}, got {shown!r}, which {what}: add it first"
    )
