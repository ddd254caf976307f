"""The graph of a checkpoint, which a deployment may begin with instead of arrays."""

from pathlib import Path

import livegnn.checkpoint as checkpoint
from livegnn.errors import FileFormatError
from livegnn.graph import Graph


def load_checkpoint(path: Path, features_dir: Path | None) -> Graph:
    """The graph of a checkpoint, at its event. features_dir: of features in files, None for memory.

    Raises FileFormatError, InputError or OSError.
    """
    states = checkpoint.read(path).states
    if "graph" not in states:
        raise FileFormatError(f"{path} must hold the state of a graph, got {', '.join(states) or 'none'}")
    graph = Graph.from_state(states["graph"], features_dir=features_dir)
    graph.seq = checkpoint.read_contents(path).seq
    return graph


def is_checkpoint(path: Path) -> bool:
    """Whether a file begins as checkpoints do. Raises OSError."""
    with open(path, "rb") as file:
        return file.read(len(checkpoint.MAGIC)) == checkpoint.MAGIC
