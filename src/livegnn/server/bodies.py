"""Bodies of requests, read and parsed within limits, and JSON answers."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar, cast, get_type_hints

import numpy as np
import orjson
from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel, ValidationError, create_model
from starlette.requests import ClientDisconnect

from livegnn.errors import InputError
from livegnn.events.json_lines import check_large_times
from livegnn.events.json_parts import check_parts
from livegnn.events.repeated_keys import find_repeated, repeated_key
from livegnn.http.refusals import BodyTooLarge, UnknownMediaType, refuse_coding
from livegnn.texts import Texts
from livegnn.types import JSON, Ids
from livegnn.wording import quoted

if TYPE_CHECKING:
    from jaxtyping import Shaped

ARROW_TYPE: Final = "application/vnd.apache.arrow.stream"
JSON_TYPE: Final = "application/json"
LINE_TYPES: Final = ("application/x-ndjson", "application/jsonl", "application/x-jsonlines")

_SMALL: Final = 4096  # bytes that are read in the event loop: a tenth of a millisecond
_SHOWN: Final = 8  # fields of a body that must not be there, in an error

_Body = TypeVar("_Body", bound=BaseModel)
_Found = TypeVar("_Found")


class Limits(NamedTuple):
    """The limits of one request and its answer.

    objects: bytes of JSON that becomes Python objects as a whole, up to thirty times as large: a body, or a
    line of events. body: bytes of a body that is read line by line. model: bytes of a model's file. ids: of a
    request for predictions; samples: of one for samples. numbers: of an answer: predictions, neighbours with
    the columns of their edges, changed nodes.
    """

    objects: int = 2**20
    body: int = 8 * 2**20
    model: int = 2**30
    ids: int = 100_000
    samples: int = 1000
    numbers: int = 500_000


async def read_body(request: Request, largest: int, way: str) -> bytes:
    """The whole body. Raises BodyTooLarge before more than `largest` bytes are in memory, and
    UnknownMediaType for a compressed one.

    way: how to send what is larger, for its message.
    """
    refuse_coding(request.headers.get("content-encoding"), request.headers.get("transfer-encoding"))
    given = request.headers.get("content-length", "")
    length = int(given) if given.isascii() and given.isdigit() else None
    if length is not None:  # before a client that waits is told to go on
        _check_size(length, largest, way)
    parts, size, more = [], 0, True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        _check_size(size, largest, way)
        # A server may say of the last bytes that more follow; to wait for nothing takes as long as the bytes.
        more = message.get("more_body", False) and size != length
    if length is not None and size < length:
        raise ClientDisconnect
    return b"".join(parts)


async def read_file(request: Request, path: Path, largest: int, way: str) -> None:
    """Writes the body to a new file at `path`, part by part. Raises BodyTooLarge, and OSError."""
    size = 0
    with path.open("xb") as stream:
        async for part in request.stream():
            size += len(part)
            _check_size(size, largest, way)
            await run_in_threadpool(stream.write, part)


def _check_size(size: int, largest: int, way: str) -> None:
    if size > largest:
        raise BodyTooLarge(f"the body must be at most {largest:,} bytes, got more: {way}")


async def off_loop(size: int, call: Callable[[], _Found]) -> _Found:
    """The result of `call`: in another thread, unless the body that it reads has few bytes."""
    return call() if size <= _SMALL else await run_in_threadpool(call)


def media_type_of(request: Request) -> str:
    """The media type of the body, without parameters; JSON if the request does not say it."""
    return request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()


def parse(type_: type[_Body], body: bytes, media_type: str, largest: int = Limits().objects) -> _Body:
    """The body as the type that a route takes. Raises InputError, or RequestValidationError for its parts.

    largest: bytes that a body may have, of which this one has no more.
    """
    if media_type != JSON_TYPE:
        raise UnknownMediaType(f"the body must be application/json, got {quoted(media_type)}")
    content = _parse_json(body, largest)
    if isinstance(content, dict):  # an error for each field would be many times the body
        unknown = [name for name in content if name not in type_.model_fields]
        for name in unknown[_SHOWN:]:
            del content[name]
    try:
        return type_.model_validate(content)
    except ValidationError as error:
        problems = [{**problem, "loc": ("body", *problem["loc"])} for problem in error.errors()]
        raise RequestValidationError(problems) from error


async def receive(
    request: Request, type_: type[_Body], limits: Limits, way: str, check: Callable[[_Body], _Found]
) -> _Found:
    """The result of `check` for the body of a request, computed off the loop if the body is large.

    way: as of `read_body`. Raises as `read_body`, `parse` and `check`.
    """
    body, media_type = await read_body(request, limits.objects, way), media_type_of(request)
    return await off_loop(len(body), lambda: check(parse(type_, body, media_type, limits.objects)))


def parse_records(body: bytes, media_type: str, largest: int) -> Sequence[JSON]:
    """The list `events` of a JSON body of at most `largest` bytes. Raises InputError for anything else."""
    if media_type != JSON_TYPE:
        raise UnknownMediaType(
            f"events must be application/json, {LINE_TYPES[0]} or {ARROW_TYPE}, got {quoted(media_type)}"
        )
    _check_size(
        len(body),
        largest,
        f"send the events as {LINE_TYPES[0]}, an event on each line, or in parts; or raise "
        "largest_json_bytes of the server",
    )
    content = _parse_json(body, largest)
    if not isinstance(content, dict) or set(content) != {"events"}:
        got = quoted(list(content)) if isinstance(content, dict) else type(content).__name__
        raise InputError(f"the body must be an object with the one field 'events', got {got or 'none'}")
    records = content["events"]
    if not isinstance(records, list):
        raise InputError(f"events must be a list of objects, got {quoted(records)}")
    check_large_times(body, records, "'time' of events")
    return records


def _parse_json(body: bytes, largest: int) -> JSON:
    check_parts(body, largest, "the body")
    # Where keys are escaped all is parsed twice, and the first result is freed before the second.
    key = find_repeated(body) if b"\\u" in body else None
    try:
        content: JSON = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InputError(f"the body must be JSON, got {quoted(body[:60])}: {error}") from error
    if key is None and b"\\u" not in body:
        key = repeated_key(body, content)
    if key is not None:
        raise InputError(f"each object of the body must have a field once, got {quoted(key)} twice")
    return content


def answer_model(name: str, of: type, text: str, **fields: object) -> type[BaseModel]:
    """The model of an answer for an API page: the fields of a NamedTuple; and `fields`, beside or instead of
    them. text: the description."""
    types = {**get_type_hints(of), **fields}
    return cast(
        "type[BaseModel]",
        create_model(name, __doc__=text, **{field: (type_, ...) for field, type_ in types.items()}),  # type: ignore[call-overload]
    )


def listed(ids: "Shaped[Ids, 'ids'] | Texts") -> object:
    """Ids as `to_json` takes them: integers as they are, texts as strings of Python."""
    return ids if isinstance(ids, np.ndarray) and ids.dtype.kind == "i" else ids.tolist()


def to_json(
    content: dict[str, object], status: int = 200, *, media_type: str = "application/json"
) -> Response:
    """`content` as JSON, arrays included."""
    text = orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
    return Response(text, status_code=status, media_type=media_type)
