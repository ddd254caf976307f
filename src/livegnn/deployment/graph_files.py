"""Files that hold a graph, or its types, without the rest of a deployment."""

import contextlib
import json
from pathlib import Path

import livegnn.checkpoint as checkpoint
from livegnn.arguments import as_path
from livegnn.deployment import Deployment
from livegnn.deployment.checkpoint_graph import is_checkpoint, load_checkpoint
from livegnn.deployment.sections import GraphSection, LogSection
from livegnn.errors import FileFormatError, InputError
from livegnn.graph import Graph, Schema


def read_schema(path: Path | str) -> Schema:
    """The types of a graph: a deployment file's, a checkpoint's, or those of a schema's JSON in a file.

    Raises `FileFormatError` if it is none of these, `OSError` if it cannot be read.
    """
    path = as_path(path, "path")
    if path.suffix == ".toml":
        return Deployment.read(path).load_graph().schema
    if is_checkpoint(path):
        states = checkpoint.read(path).states
        if "graph" in states:
            return Schema.from_json(states["graph"].meta.get("schema"))
    else:
        with contextlib.suppress(ValueError):
            return Schema.from_json(json.loads(path.read_bytes()))
    raise FileFormatError(
        f"{path} must be a deployment file (.toml), a checkpoint with a graph, or the JSON of Schema.to_json"
    )


def read_graph(path: Path | str, parallel: str | None = None) -> Graph:
    """The graph of a checkpoint, at its event, or that of the arrays in an .npz file, as in `[graph]`.

    parallel: of arrays, as there; by default parallel edges are refused. Raises `FileFormatError` or
    `InputError` if it is neither, `InputError` if `parallel` does not fit, `OSError` if it cannot be read.
    """
    path = as_path(path, "path")
    if not is_checkpoint(path):
        section = GraphSection(path, parallel="refuse" if parallel is None else parallel)
        return Deployment(section, LogSection(path)).load_graph()
    if parallel is not None:
        raise InputError(
            f"parallel is for arrays, got {parallel!r} with the checkpoint {path}, whose graph was made "
            "with it"
        )
    return load_checkpoint(path, None)
