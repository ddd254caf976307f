"""Checks that log, graph and checkpoints belong together.

A log is bound to the properties of a schema that decide how events change the graph, and not to the layout of
neighbours in the store (capacity, slack). The log keeps each of them as a separate property. So older logs
adopt a property that a later version adds, and an error names the property that differs. A checkpoint is of
the history of a log if it was made from that log, and from the entries that the log has up to that event.
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
    """Returns the properties of a schema by name, each as JSON: of its origin, as the log has the growths."""
    schema = schema.origin
    properties: dict[str, object] = {
        "schema/text_ids": schema.text_ids,
        "schema/node_types": list(schema.node_types),
        "schema/edge_types": [list(edge_type) for edge_type in schema.edge_types],
    }
    for name, width in schema.node_types.items():
        properties[f"schema/width of {name!r}"] = width
        features = schema.auto_add.get(name)
        properties[f"schema/auto_add of {name!r}"] = None if features is None else list(features)
        properties[f"schema/timed features of {name!r}"] = name in schema.timed_features
    for edge_type, edges in schema.edge_types.items():
        for field in _OF_EDGES:
            properties[f"schema/{field} of {','.join(edge_type)!r}"] = getattr(edges, field)
    return {name: _text_of(name, value) for name, value in properties.items()}


def _text_of(name: str, value: object) -> str:
    """Returns JSON; the empty text for a type whose nodes are not added, because this may change later."""
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
    """Returns the section of a checkpoint at event `seq` that identifies its log."""
    return State({"digest": log.digest(seq), "log": identity_of(log)}, {})


def check_history(log: ReadableLog, path: Path, known: Mapping[str, JSON], seq: int) -> None:
    """Raises LogError if a checkpoint is of another history than `log`: by the digests of both, or, if one is
    not known any more, by the identities of the logs.

    known: the section of `history_state`, empty for older checkpoints. A log that is too short may be the
    right one.
    """
    theirs = known.get("digest")
    ours = log.digest(seq) if theirs is not None and seq <= log.last_seq() else None
    if ours is not None:
        if ours != theirs:
            raise LogError(
                f"the log must hold the entries that led to the checkpoint {path}, up to event {seq} "
                f"with the digest {theirs}, got {ours}: it is not the log of this graph. {_WAY_OUT}"
            )
    elif None not in (theirs := known.get("log"), ours := identity_of(log)) and theirs != ours:
        raise LogError(
            f"the log must be the one that led to the checkpoint {path}, of the identity {theirs}, got "
            f"{ours}: it is not the log of this graph. {_WAY_OUT}"
        )


def find_foreign(log: ReadableLog, directory: Path, own: Collection[Path] = ()) -> set[Path]:
    """Returns the checkpoints in `directory` that are not of the history of `log`. own: files known to be of
    it.

    A checkpoint whose header cannot be read, or that does not name its log, is not returned.
    """
    return {path for path in list_checkpoints(directory) if path not in own and is_foreign(log, path)}


def is_foreign(log: ReadableLog, path: Path) -> bool:
    """Returns whether there is a checkpoint at `path` that is not of the history of `log`."""
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
