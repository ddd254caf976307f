"""JSON of a stranger by the standard library alone, for processes that must start fast."""

import json

from livegnn.errors import InputError
from livegnn.events.json_parts import check_parts
from livegnn.wording import quoted


def read_json(body: bytes | str, largest: int) -> object:
    """The content of JSON in UTF-8, in which no object has a field twice.

    largest: bytes that a body may have, of which this one has no more. Raises InputError, and TooLargeError
    for too many lists and objects.
    """
    try:
        check_parts(body if isinstance(body, bytes) else body.encode(errors="replace"), largest, "the body")
        text = body.decode() if isinstance(body, bytes) else body  # `loads` would read UTF-16 as well
        content: object = json.loads(text, object_pairs_hook=_once, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"the body must be JSON, got {quoted(body[:60])}: {error}") from error
    return content


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    seen: set[str] = set()
    for name, _ in pairs if len(found) < len(pairs) else ():
        if name in seen:
            raise InputError(f"each object of the body must have a field once, got {quoted(name)} twice")
        seen.add(name)
    return found


def _refuse_constant(name: str) -> float:
    raise InputError(f"the body must be JSON, got {name}")
