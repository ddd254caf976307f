"""A text id has a longest length, because each text of an array takes the room of the longest."""

import pyarrow as pa
import pytest

from livegnn import Events, Graph, Schema
from livegnn.arguments import LONGEST_TEXT
from livegnn.errors import InputError
from livegnn.functions.bodies import read_asked

LONGEST, TOO_LONG = "ö" * LONGEST_TEXT, "ö" * (LONGEST_TEXT + 1)
REFUSED = "texts of at most 1,024 characters, got one of 1,025"


def lines(id: str) -> str:
    return f'{{"event": "add_node", "id": "a"}}\n{{"event": "add_node", "id": "{id}"}}\n'


def table(id: str) -> pa.Table:
    return pa.table({"event": ["add_node"], "id": [id]})


WAYS = {
    "list": lambda id: Events().add_nodes(["a", id]),
    "one": lambda id: Events().add_edges(id, "a"),
    "tuple": lambda id: Events().remove_nodes(("a", id)),
    "lines": lambda id: Events.from_json_lines(lines(id)),
    "arrow": lambda id: Events.from_arrow(table(id)),
    "question": lambda id: Graph(Schema({"node": 0}, text_ids=True)).contains(["a", id]),
    "function": lambda id: read_asked(f'{{"ids": ["a", "{id}"]}}'),
}


@pytest.mark.parametrize("way", WAYS)
def test_longer_texts_are_refused(way: str) -> None:
    WAYS[way](LONGEST)
    with pytest.raises(InputError, match=REFUSED):
        WAYS[way](TOO_LONG)


def test_the_longest_is_an_id() -> None:
    graph = Graph(Schema({"node": 1}, text_ids=True))
    graph.apply(Events().add_nodes([LONGEST, "a"], [[1.0], [2.0]]).add_edges(LONGEST, "a"))
    assert graph.neighbors("a", direction="in").ids.tolist() == [LONGEST]
