"""What a server answers when a request fails: a status, and the error as JSON."""

import math
from collections.abc import Mapping

from fastapi import Request
from fastapi.responses import Response

from livegnn.errors import (
    DiskFullError,
    InputError,
    LiveGNNError,
    OverloadedError,
    TimeoutExpired,
    UnknownNodeError,
    ViewMissingError,
    shortened,
)
from livegnn.server.appends import LoopEnded
from livegnn.server.bodies import BodyTooLarge, UnknownMediaType, to_json

_STATUS: dict[type[LiveGNNError], int] = {
    BodyTooLarge: 413,
    UnknownMediaType: 415,
    UnknownNodeError: 404,
    InputError: 400,
    TimeoutExpired: 503,
    LoopEnded: 503,
    ViewMissingError: 503,
    DiskFullError: 503,
    OverloadedError: 429,
    LiveGNNError: 500,
}


async def answer_error(request: Request, error: Exception) -> Response:
    """The answer for an error of LiveGNN's."""
    status = next(_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS)
    headers = None
    if isinstance(error, DiskFullError):
        headers = {"retry-after": "1"}
    elif isinstance(error, OverloadedError):
        headers = {"retry-after": str(max(1, math.ceil(error.retry_after)))}
    return to_answer(type(error).__name__, str(error), status, headers)


def to_answer(kind: str, message: str, status: int, headers: Mapping[str, str] | None = None) -> Response:
    """An answer that names what is wrong."""
    answer = to_json({"error": {"type": kind, "message": shortened(message)}}, status)
    answer.headers.update(headers or {})
    return answer
