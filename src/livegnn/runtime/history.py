"""Whether log, graph and checkpoints belong together.

A log is bound to those properties of a schema that decide what events do to the graph: not to how the store
lays out neighbours (capacity, slack). Each is a property of its own of the log, so that one that a later
version adds is adopted by older logs, and an error names what differs. A checkpoint is of the history of a
log if it is of that log, and of what it holds up to that event.
"""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from livegnn.checkpoint import read_contents
from livegnn.errors import FileFormatError, LogError
from livegnn.graph import Graph, Schema
from livegnn.log import ReadableLog
from livegnn.log.directories import identity_of
from livegnn.runtime.checkpoint_files import list_checkpoints
from livegnn.types import JSON, State

_OF_EDGES: Final = ("undirected", "weighted", "timed", "duplicates", "edge_dim", "time_to_live")
_WAY_OUT: Final = "Put back the log that the checkpoints belong to, or move the checkpoints away"


def schema_properties(schema: Schema) -> Mapping[str, str]:
    """The properties of a schema by name, each as JSON."""
    properties: dict[str, object] = {
        "schema/text_ids": schema.text_ids,
        "schema/node_types": list(schema.node_types),
        "schema/edge_types": [list(edge_type) for edge_type in schema.edge_types],
    }
    for name, width in schema.node_types.items():
        properties[f"schema/width of {name!r}"] = width
        features = schema.auto_add.get(name)
        properties[f"schema/auto_add of {name!r}"] = None if features is None else list(features)
    for edge_type, edges in schema.edge_types.items():
        for field in _OF_EDGES:
            properties[f"schema/{field} of {','.join(edge_type)!r}"] = getattr(edges, field)
    return {name: _text_of(name, value) for name, value in properties.items()}


def _text_of(name: str, value: object) -> str:
    """JSON; the empty text for a type whose nodes are not added, because they may be later."""
    return "" if value is None and name.startswith("schema/auto_add") else json.dumps(value)


def check_reaches(log: ReadableLog, graph: Graph) -> None:
    """Raises `LogError` if the graph has events that the log lacks."""
    if log.last_seq() < graph.seq:
        raise LogError(
            f"the log must reach event {graph.seq}, where the graph is, got one that ends at "
            f"{log.last_seq()}: it is not the log of this graph. If there was no log when events filled the "
            "graph, these must not count: fill it with graph.apply(events, seq=0)"
        )


def history_state(log: ReadableLog, seq: int) -> State:
    """What a checkpoint at event `seq` knows of its log."""
    return State({"digest": log.digest(seq), "log": identity_of(log)}, {})


def check_history(log: ReadableLog, path: Path, known: Mapping[str, JSON], seq: int) -> None:
    """Raises LogError if a checkpoint is of another history than `log` has: by the digests of both, or, where
    one is not known any more, by the identities of the logs.

    known: what `history_state` said, nothing of older checkpoints. A log that is too short may be the one.
    """
    theirs = known.get("digest")
    ours = log.digest(seq) if theirs is not None and seq <= log.last_seq() else None
    if ours is not None:
        if ours != theirs:
            raise LogError(
                f"the log must hold what led to the checkpoint {path}, entries up to event {seq} with the "
                f"digest {theirs}, got {ours}: it is not the log of this graph. {_WAY_OUT}"
            )
    elif None not in (theirs := known.get("log"), ours := identity_of(log)) and theirs != ours:
        raise LogError(
            f"the log must be the one that led to the checkpoint {path}, of the identity {theirs}, got "
            f"{ours}: it is not the log of this graph. {_WAY_OUT}"
        )


def find_foreign(log: ReadableLog, directory: Path, own: Collection[Path] = ()) -> set[Path]:
    """The checkpoints in `directory` that are not of the history of `log`. own: those that are known to be.

    One whose header cannot be read, or that says nothing of its log, is not among them.
    """
    return {path for path in list_checkpoints(directory) if path not in own and is_foreign(log, path)}


def is_foreign(log: ReadableLog, path: Path) -> bool:
    """Whether there is a checkpoint at `path` that is not of the history of `log`."""
    try:
        contents = read_contents(path)
    except (FileFormatError, OSError):
        return False
    known = contents.meta.get("log", {})
    if known.get("log") not in (None, identity_of(log)) or log.last_seq() < contents.seq:
        return True
    try:
        check_history(log, path, known, contents.seq)
    except LogError:
        return True
    return False
