"""Finds keys that occur twice in a JSON object, of which a JSON parser silently takes the last."""

import json
from collections.abc import Sequence
from typing import Final

import orjson

from livegnn.types import JSON


class _RepeatedError(Exception):
    """A key that occurs twice in an object."""


def repeated_key(text: bytes, content: JSON) -> str | None:
    """A key that an object in `text` has twice, None if there is none. content: the parsed `text`.

    Each key has a colon. If `text` has as many colons as `content` has keys, no key was lost: this fast check
    settles almost all events. Any other text is parsed again, object by object.
    """
    colons = text.count(b":")
    if isinstance(content, dict) and (colons == len(content) or colons == _count(content)):
        return None
    # An escape such as \u003a is a colon in `content` but not in `text`; it could make up for a lost key.
    if b"\\u" not in text and colons == _written(content).count(b":"):
        return None
    return find_repeated(text)


def find_repeated(text: bytes) -> str | None:
    """Finds a key that an object in `text` has twice; None if there is none, or if `text` is not JSON."""
    try:
        _READER.decode(text.decode())
    except _RepeatedError as error:
        return str(error)
    except (ValueError, RecursionError):
        return None  # deeply nested lists are not events, and the reader of the events refuses them
    return None


def _count(content: dict[str, JSON]) -> int:
    """The number of keys of an object and of the objects in its lists, without deeper levels."""
    number = len(content)
    for value in content.values():
        # The first element is enough to skip a row of numbers.
        if isinstance(value, list) and value and isinstance(value[0], dict):
            number += sum(len(one) for one in value if isinstance(one, dict))
    return number


def _written(content: JSON) -> bytes:
    try:
        return orjson.dumps(content)
    except orjson.JSONEncodeError:
        return b""  # nested too deeply for orjson


def _refuse(pairs: Sequence[tuple[str, object]]) -> None:
    seen = dict(pairs)
    for name, _ in pairs if len(seen) < len(pairs) else ():
        if seen.pop(name, seen) is seen:
            raise _RepeatedError(name)


_READER: Final = json.JSONDecoder(object_pairs_hook=_refuse, parse_int=str, parse_float=str)
