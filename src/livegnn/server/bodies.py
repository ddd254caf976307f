"""Bodies of requests, read and parsed, and JSON answers."""

from collections.abc import Sequence
from typing import Final, TypeVar

import orjson
from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel, ValidationError

from livegnn.errors import InputError
from livegnn.events.repeated_keys import repeated_key
from livegnn.types import JSON
from livegnn.wording import quoted

LARGEST_BODY: Final = 64 * 2**20
LARGEST_MODEL: Final = 2**30
LINE_TYPES: Final = ("application/x-ndjson", "application/jsonl", "application/x-jsonlines")

_Body = TypeVar("_Body", bound=BaseModel)


class BodyTooLarge(InputError):
    """A request body above the limit."""


class UnknownMediaType(InputError):
    """A body that is neither JSON nor, if it is one of events, JSON lines."""


async def read_body(request: Request, largest: int = LARGEST_BODY) -> bytes:
    """The whole body. Raises BodyTooLarge before more than `largest` bytes are in memory."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > largest:
            raise BodyTooLarge(f"a body must be at most {largest} bytes, got more: send it in parts")
        parts.append(part)
    return b"".join(parts)


def media_type_of(request: Request) -> str:
    """The media type of the body, without parameters; JSON if the request does not say it."""
    return request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()


def parse(type_: type[_Body], body: bytes, media_type: str) -> _Body:
    """The body as what a route takes. Raises InputError, or RequestValidationError for its parts."""
    if media_type != "application/json":
        raise UnknownMediaType(f"the body must come as application/json, got {quoted(media_type)}")
    try:
        return type_.model_validate(_parse_json(body))
    except ValidationError as error:
        problems = [{**problem, "loc": ("body", *problem["loc"])} for problem in error.errors()]
        raise RequestValidationError(problems) from error


def parse_records(body: bytes, media_type: str) -> Sequence[JSON]:
    """The list `events` of a JSON body. Raises InputError for anything else."""
    if media_type != "application/json":
        raise UnknownMediaType(
            f"events must come as application/json or {LINE_TYPES[0]}, got {quoted(media_type)}"
        )
    content = _parse_json(body)
    if not isinstance(content, dict) or set(content) != {"events"}:
        got = ", ".join(content) if isinstance(content, dict) else type(content).__name__
        raise InputError(f"the body must be an object with the one field 'events', got {got or 'none'}")
    records = content["events"]
    if not isinstance(records, list):
        raise InputError(f"events must be a list of objects, got {quoted(records)}")
    return records


def _parse_json(body: bytes) -> JSON:
    try:
        content: JSON = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InputError(f"the body must be JSON, got {quoted(body[:60])}: {error}") from error
    if (key := repeated_key(body, content)) is not None:
        raise InputError(f"each object of the body must have a field once, got {quoted(key)} twice")
    return content


def to_json(content: dict[str, object], status: int = 200) -> Response:
    """`content` as JSON, arrays included."""
    text = orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
    return Response(text, status_code=status, media_type="application/json")
