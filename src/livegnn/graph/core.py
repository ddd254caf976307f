"""Makes the native graph of a schema."""

import os

import livegnn._core as _core
from livegnn.arguments import as_path, whole
from livegnn.errors import InputError
from livegnn.graph.schema import Schema

MAX_THREADS = 1024


def chosen_threads(threads: int | None) -> int:
    """`threads`, or as many as the process may use. Raises `InputError`."""
    if threads is None:
        return min(len(os.sched_getaffinity(0)), MAX_THREADS)
    return whole(threads, "threads", 1, MAX_THREADS)


def make_core(
    schema: Schema, threads: int | None, features_dir: "str | os.PathLike[str] | None"
) -> _core.Graph:
    """An empty native graph; `Graph` documents the arguments and the errors."""
    workers = chosen_threads(threads)
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
            edges.edge_dim,
            edges.time_to_live is not None,
            edges.duplicates == "keep",
        )
        for (source, _, target), edges in schema.edge_types.items()
    ]
    if features_dir is None:
        return _core.Graph(list(schema.node_types.values()), edge_types, workers, "")
    directory = as_path(features_dir, "features_dir")
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _core.Graph(list(schema.node_types.values()), edge_types, workers, str(directory))
    except _core.ThreadError:
        raise
    except (OSError, RuntimeError, TypeError, ValueError) as error:
        raise InputError(
            f"features_dir must be a directory in which files can be made, got {features_dir!r}: {error}"
        ) from error
