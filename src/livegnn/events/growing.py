"""Growths of a schema among events: each is one event, whose only column is the growth as JSON."""

from collections.abc import Sequence
from typing import Final

import orjson

from livegnn.errors import FileFormatError, InputError
from livegnn.events.chunk import Chunk, Kind
from livegnn.schema import Growth
from livegnn.texts import Texts
from livegnn.types import JSON
from livegnn.wording import quoted

GROW: Final[Kind] = "grow"
_NO_TYPE: Final = ""  # of the chunk of a growth, which concerns many types


def to_chunk(growth: JSON) -> Chunk:
    """The chunk of a growth as JSON. Raises InputError if the JSON cannot be written."""
    try:
        return Chunk(GROW, _NO_TYPE, Texts.of([orjson.dumps(growth).decode()]))
    except TypeError as error:  # a name that is not valid Unicode, or an integer beyond 64 bits
        raise InputError(f"a growth must be written as JSON, got {quoted(growth)}") from error


def growth_of(chunks: Sequence[Chunk]) -> Growth | None:
    """The growth that is the only event of a batch; None of a batch without growths.

    Raises InputError for a growth among other events, and for other JSON than `Growth.to_json` writes.
    """
    if find_growth(chunks) is None:
        return None
    if len(chunks) > 1 or len(chunks[0].ids) > 1:
        raise InputError(
            "a growth of the schema must be an entry and a batch of its own, got other events with it: "
            "append or apply them before it, or after it"
        )
    text = str(chunks[0].ids[0].item())
    try:
        return Growth.from_json(orjson.loads(text))
    except (FileFormatError, orjson.JSONDecodeError) as error:
        raise InputError(
            f"a growth must be the JSON of Growth.to_json, got {quoted(text)}: {error}"
        ) from error


def find_growth(chunks: Sequence[Chunk]) -> int | None:
    """The position of the first growth among the events of `chunks`, None if there is none."""
    place = 0
    for chunk in chunks:
        if chunk.kind == GROW:
            return place
        place += len(chunk.ids)
    return None
