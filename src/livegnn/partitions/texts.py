"""Text ids of a graph whose parts are processes: the names translate them, and the parts know their numbers.

A part cannot name a node in an error: it writes the number between two signs that no text has, and the
leader writes the text in its place.
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from livegnn.errors import InputError
from livegnn.events import Events
from livegnn.events.builder import from_chunks
from livegnn.graph import Graph
from livegnn.graph.node_ids import NodeIds
from livegnn.schema import Schema

if TYPE_CHECKING:
    from jaxtyping import Int64, Shaped

    from livegnn.types import Ids, IntArray

_NUMBER: Final = re.compile(r"'\\x00(\d+)>'")


class NumberedIds(NodeIds):
    """The ids of a part that knows the numbers of texts alone."""

    def __init__(self) -> None:
        super().__init__(text=False)

    def to_user_ids(self, numbers: "Int64[IntArray, 'nodes']") -> "Shaped[Ids, 'nodes']":
        return np.array([f"\0{number}>" for number in numbers.tolist()], dtype=np.str_)


def number_ids(schema: Schema) -> Schema:
    """The schema of a part."""
    return replace(schema, text_ids=False)


def to_numbers(events: Events, names: Graph) -> Events:
    """Events with the numbers of their texts. Requires: a batch that the names have staged pins the texts."""
    intern = names.node_ids.intern
    return from_chunks(
        chunk._replace(ids=intern(chunk.ids), dst=None if chunk.dst is None else intern(chunk.dst))
        for chunk in events.chunks
    )


def with_texts(error: InputError, names: Graph) -> InputError:
    """An error of a part, with the texts of nodes. Requires: as `to_numbers`."""

    def text_of(found: re.Match[str]) -> str:
        return repr(names.to_user_ids(np.array([int(found[1])]))[0].item())

    return type(error)(_NUMBER.sub(text_of, str(error)))


def save_numbers(path: Path, names: Graph) -> None:
    """Writes the numbers of all nodes to a file, by node type and index."""
    arrays = [names.native.save_nodes(index)[0] for index in range(len(names.schema.node_types))]
    np.savez(path, *arrays)


def load_numbers(path: Path) -> "list[Int64[IntArray, 'indices']]":
    """Reads them. Raises OSError and ValueError."""
    with np.load(path, allow_pickle=False) as saved:
        return [saved[name] for name in saved.files]
