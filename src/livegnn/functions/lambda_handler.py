"""The handler of an AWS Lambda: `livegnn.functions.lambda_handler.handler`.

Settings are read from the environment: LIVEGNN_SNAPSHOT, LIVEGNN_MODEL, and LIVEGNN_FUNCTION, "module:name"
of a function that opens the predictor with these, `open_predictor` by default. The predictor is opened when
this module is loaded, in the platform's init phase, and kept for all requests of this instance. A request and
the cache may use the part of the instance's memory that is free then, AWS_LAMBDA_FUNCTION_MEMORY_SIZE, as in
a worker that is a process (`memory_limit`). The platform gives an instance one request at a time, starts
instances as requests arrive and ends idle ones: nothing is scheduled here.
"""

import base64
import binascii
import os
from collections.abc import Mapping
from typing import Final, TypedDict, cast

from livegnn.remote.memory_limit import prepare

prepare()  # before NumPy is loaded

from livegnn.errors import InputError, TooLargeError  # noqa: E402
from livegnn.functions.bodies import (  # noqa: E402
    Answer,
    answer_error,
    answer_json,
    answer_page,
    refuse_parameters,
)
from livegnn.functions.function import Function, Predictor, answer, limit  # noqa: E402
from livegnn.functions.options import PREDICTOR  # noqa: E402
from livegnn.http.problems import PAGES  # noqa: E402
from livegnn.http.refusals import UnknownMethod, UnknownPath  # noqa: E402

Event = Mapping[str, object]
LARGEST_ANSWER: Final = 6_000_000
"""Bytes of a body: the platform takes 6,291,556 with everything around it."""


class HttpAnswer(TypedDict):
    """An answer over HTTP as API gateways and function URLs take it."""

    statusCode: int
    headers: dict[str, str]
    body: str
    isBase64Encoded: bool


def open_from_environment(environment: Mapping[str, str]) -> Predictor:
    """Opens the predictor that variables name. Raises InputError if one is missing."""
    named = {}
    for variable, argument in (("LIVEGNN_SNAPSHOT", "snapshot_url"), ("LIVEGNN_MODEL", "model_path")):
        if variable not in environment:
            raise InputError(f"the variable {variable} must be set in the environment of the function")
        named[argument] = environment[variable]
    return Function(environment.get("LIVEGNN_FUNCTION", PREDICTOR), named).open()


def limit_by(environment: Mapping[str, str], predictor: Predictor) -> int | None:
    """Limits this process to the memory of the instance; returns the bytes that are left for requests, None
    where the platform does not say."""
    size = environment.get("AWS_LAMBDA_FUNCTION_MEMORY_SIZE")
    return limit(predictor, Function(PREDICTOR, memory=None if size is None else int(size) * 2**20))


def answer_event(predictor: Predictor, event: Event, room: int | None = None) -> HttpAnswer:
    """The answer to an event of an API gateway (payload format 1.0 or 2.0), a function URL or a balancer.

    Errors are answers, too: an exception would be a 502 of the gateway.
    """
    method, allowed = "", dict[str, str]()
    try:
        method, path = _read_target(event)
        reply = _route(predictor, method, path, event, room)
        _check_answer(reply.body)
    except Exception as error:
        reply = answer_error(error)
        allowed = {"allow": error.allowed} if isinstance(error, UnknownMethod) else {}
    return {
        "statusCode": reply.status,
        "headers": {**reply.headers(), **allowed},
        "body": "" if method == "HEAD" else reply.body.decode(),
        "isBase64Encoded": False,
    }


def _route(predictor: Predictor, method: str, path: str, event: Event, room: int | None) -> Answer:
    # A stage of a gateway stands before the path: /prod/v1/predictions.
    page = answer_page(path[max(path.rfind(PAGES), 0) :])
    reads = page is not None or path.endswith("/v1/health")
    if not (reads or path.endswith("/v1/predictions")):
        raise UnknownPath(f"there is nothing at {path[:100]}, only /v1/predictions, /v1/health and {PAGES}")
    if method not in (("GET", "HEAD") if reads else ("POST",)):
        raise UnknownMethod(path, "GET" if reads else "POST", method)
    refuse_parameters(_query_of(event))
    if page is not None:
        return page
    if reads:
        return answer_json({"status": "ok", **predictor.describe()})
    return answer(predictor, "predict", _read_body(event), room)


def _check_answer(body: bytes) -> None:
    """Raises TooLargeError for an answer that the platform would not take: to it, it is a text in JSON."""
    size = len(body) + body.count(b'"') + body.count(b"\\")
    if size > LARGEST_ANSWER:
        raise TooLargeError(
            f"an answer must be at most {LARGEST_ANSWER:,} bytes on this platform, got {size:,}: ask for "
            "fewer ids at once"
        )


def _read_target(event: Event) -> tuple[str, str]:
    """Method and path."""
    if "httpMethod" in event and "path" in event:  # payload format 1.0, load balancers
        return str(event["httpMethod"]), str(event["path"])
    context = event.get("requestContext")
    http = context.get("http") if isinstance(context, dict) else None
    if isinstance(http, dict) and "rawPath" in event:  # payload format 2.0, function URLs
        return str(http["method"]), str(event["rawPath"])
    raise InputError(
        "the event must be one of an API gateway (payload format 1.0 or 2.0), of a function URL or of a load "
        f"balancer, got one with the fields {', '.join(event) or 'none'}"
    )


def _query_of(event: Event) -> str | list[str]:
    """The part of the address after the "?", or the names of parameters in it."""
    if isinstance(query := event.get("rawQueryString"), str):  # payload format 2.0, function URLs
        return query
    names: list[str] = []
    for field in ("queryStringParameters", "multiValueQueryStringParameters"):
        if isinstance(parameters := event.get(field), dict):
            names += map(str, parameters)
    return names


def _read_body(event: Event) -> bytes:
    body = event.get("body")
    if body is None:
        return b""
    if not isinstance(body, str):
        raise InputError(f"the body of the event must be text, got {type(body).__name__}")
    if not event.get("isBase64Encoded"):
        return body.encode("utf-8", "surrogatepass")
    try:
        return base64.b64decode(body, validate=True)
    except binascii.Error as error:
        raise InputError(f"the body of the event must be base64, as isBase64Encoded says: {error}") from error


def handler(event: object, context: object) -> HttpAnswer:
    """The function that Lambda calls."""
    return answer_event(_predictor, cast("Event", event if isinstance(event, dict) else {}), _room)


_predictor = open_from_environment(os.environ)
_room = limit_by(os.environ, _predictor)
