"""The native graph of a schema."""

import os

from livegnn import _core
from livegnn.errors import InputError
from livegnn.graph.schema import Schema


def make_core(
    schema: Schema, threads: int | None, features_dir: "str | os.PathLike[str] | None"
) -> _core.Graph:
    """An empty graph; `Graph` says what the arguments mean and which errors come."""
    if threads is not None and threads < 1:
        raise InputError(f"threads must be at least 1, got {threads}")
    positions = {name: position for position, name in enumerate(schema.node_types)}
    edge_types = [
        (
            positions[source],
            positions[target],
            edges.weighted,
            edges.timed,
            edges.undirected,
            edges.duplicates == "add",
            edges.in_neighbors,
            edges.capacity,
            edges.slack if edges.slack is not None else edges.capacity // 8,
            edges.features,
            edges.time_to_live is not None,
        )
        for (source, _, target), edges in schema.edge_types.items()
    ]
    workers = threads if threads is not None else len(os.sched_getaffinity(0))
    if features_dir is None:
        return _core.Graph(list(schema.node_types.values()), edge_types, workers, "")
    try:
        os.makedirs(features_dir, exist_ok=True)
        return _core.Graph(list(schema.node_types.values()), edge_types, workers, os.fspath(features_dir))
    except (OSError, RuntimeError) as error:
        raise InputError(
            f"features_dir must be a directory in which files can be made, got {features_dir!r}: {error}"
        ) from error
