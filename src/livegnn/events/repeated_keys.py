"""Keys that an object of JSON has twice: its reader takes the last of them, and says nothing."""

import json
from collections.abc import Sequence
from typing import Final

import orjson

from livegnn.types import JSON


class _RepeatedError(Exception):
    """A key that occurs twice in an object."""


def repeated_key(text: bytes, content: JSON) -> str | None:
    """A key that an object in `text` has twice, None if there is none. content: what was read of `text`.

    Each key has a colon. Where a text has as many as what was read of it, no key was lost: so it is with
    almost all events, and is seen at a glance. Any other text is read once more, object by object.
    """
    colons = text.count(b":")
    if isinstance(content, dict) and (colons == len(content) or colons == _count(content)):
        return None
    # A colon in a text may be written as an escape, which is none here and one in what was read.
    if b"\\u" not in text and colons == _written(content).count(b":"):
        return None
    try:
        _READER.decode(text.decode())
    except _RepeatedError as error:
        return str(error)
    except RecursionError:
        return None  # lists in lists in lists are no events: whoever reads them will say so
    return None


def _count(content: dict[str, JSON]) -> int:
    """The keys of an object, and of the objects in its lists; those further inside are left out."""
    number = len(content)
    for value in content.values():
        # A row of numbers is not gone through.
        if isinstance(value, list) and value and isinstance(value[0], dict):
            number += sum(len(one) for one in value if isinstance(one, dict))
    return number


def _written(content: JSON) -> bytes:
    try:
        return orjson.dumps(content)
    except orjson.JSONEncodeError:
        return b""  # lists in lists in lists, more of them than it writes


def _refuse(pairs: Sequence[tuple[str, object]]) -> None:
    seen = dict(pairs)
    for name, _ in pairs if len(seen) < len(pairs) else ():
        if seen.pop(name, seen) is seen:
            raise _RepeatedError(name)


_READER: Final = json.JSONDecoder(object_pairs_hook=_refuse, parse_int=str, parse_float=str)
