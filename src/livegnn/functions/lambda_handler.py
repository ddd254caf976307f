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
import re
from collections.abc import Mapping
from typing import Final, TypedDict, cast

from livegnn.remote.memory_limit import prepare

prepare()  # before NumPy is loaded

import livegnn  # noqa: E402
from livegnn.errors import InputError, LiveGNNError, TooLargeError  # noqa: E402
from livegnn.functions.bodies import (  # noqa: E402
    Answer,
    Asked,
    answer_error,
    answer_json,
    answer_page,
    in_form_of,
    read_asked,
    read_infer_asked,
    refuse_parameters,
)
from livegnn.functions.function import Checkable, Function, Predictor, answer_asked, limit  # noqa: E402
from livegnn.functions.options import PREDICTOR  # noqa: E402
from livegnn.http.inference_protocol import (  # noqa: E402
    LENGTH,
    ROUTES,
    Target,
    check_model,
    describe_server,
    find_target,
)
from livegnn.http.problems import PAGES  # noqa: E402
from livegnn.http.refusals import UnknownMethod, UnknownPath, refuse_coding  # noqa: E402

Event = Mapping[str, object]
_PROTOCOL: Final = re.compile(r"/v2(?=/(?!v1/|problems)|\Z)")  # a stage of a gateway may have that name
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
    method, path, allowed = "", "", dict[str, str]()
    try:
        method, path = _read_target(event)
        reply = _route(predictor, method, path, event, room)
        body = _encode(reply)
    except Exception as error:
        reply = answer_error(error)
        allowed = {"allow": error.allowed} if isinstance(error, UnknownMethod) else {}
    if reply.status != 200:
        reply = _in_form(reply, path)
        body = reply.body.decode()
    return {
        "statusCode": reply.status,
        "headers": {**reply.headers(), **allowed},
        "body": "" if method == "HEAD" else body,
        "isBase64Encoded": reply.json_length is not None,
    }


def _in_form(failing: Answer, path: str) -> Answer:
    """A failing answer in the form of the protocol of a path, after any stage of a gateway."""
    found = _PROTOCOL.search(path)
    return failing if found is None else in_form_of(failing, path[found.start() :])


def _route(predictor: Predictor, method: str, path: str, event: Event, room: int | None) -> Answer:
    # A stage of a gateway stands before the path: /prod/v1/predictions.
    target, page = find_target(path, below=True), answer_page(path[max(path.rfind(PAGES), 0) :])
    live = target is None and path.endswith("/livez")
    health = target is None and path.endswith(("/v1/health", "/readyz"))
    if not (target or page or live or health or path.endswith("/v1/predictions")):
        paths = ", ".join(["/v1/predictions", "/livez", "/readyz", "/v1/health", *ROUTES, PAGES])
        raise UnknownPath(f"there is nothing at {path[:100]}, only {paths}")
    reads = bool(page or live or health) if target is None else target.method == "GET"
    if method not in (("GET", "HEAD") if reads else ("POST",)):
        raise UnknownMethod(path, "GET" if reads else "POST", method)
    refuse_parameters(_query_of(event))
    if page is not None:
        return page
    if live:
        return answer_json({"status": "ok"})
    if health:
        return _report_health(predictor)
    if not reads:
        refuse_coding(_header(event, "content-encoding"))
    if target is not None:
        return _answer_protocol(predictor, target, event, room)
    return answer_asked(predictor, read_asked(_read_body(event)), room)


def _report_health(predictor: Predictor) -> Answer:
    """200, or 503 with the reason why the snapshot cannot be read."""
    try:
        if isinstance(predictor, Checkable):
            predictor.check()
    except LiveGNNError as error:
        state = {"status": "not ready", "reasons": {"predict": str(error)}}
        return answer_json({**state, **predictor.describe()}, 503)
    return answer_json({"status": "ok", **predictor.describe()})


def _answer_protocol(predictor: Predictor, target: Target, event: Event, room: int | None) -> Answer:
    if target.route == "/v2":
        return answer_json(describe_server(livegnn.__version__))
    if target.route == "/v2/health/ready":
        status = _report_health(predictor).status
        return answer_json({"ready": status == 200}, status)
    if target.name is None:
        return answer_json({target.route.rpartition("/")[2]: True})
    if target.method == "POST":
        length = _header(event, LENGTH)
        asked = read_infer_asked(_read_body(event), length, target.name, target.version)
        return answer_asked(predictor, asked, room)
    check_model(target.name, None, "")
    found = answer_asked(predictor, Asked([], version=target.version, describes=True))
    if found.status == 200 and target.route.endswith("/ready"):
        return answer_json({"name": target.name, "ready": True})
    return found


def _encode(answer: Answer) -> str:
    """The body as a text in JSON, as the platform takes it. Raises TooLargeError for one that it would not
    take."""
    if answer.json_length is not None:
        text = base64.b64encode(answer.body).decode()
        size = len(text)
    else:
        text = answer.body.decode()
        size = len(answer.body) + text.count('"') + text.count("\\")
    if size > LARGEST_ANSWER:
        raise TooLargeError(
            f"an answer must be at most {LARGEST_ANSWER:,} bytes on this platform, got {size:,}: ask for "
            "fewer ids at once"
        )
    return text


def _header(event: Event, wanted: str) -> str | None:
    """The value of a header, which platforms write in letters of any case."""
    for field in ("headers", "multiValueHeaders"):
        headers = event.get(field)
        for name, value in headers.items() if isinstance(headers, dict) else ():
            if str(name).lower() == wanted and value:
                return str(value[0] if isinstance(value, list) else value)
    return None


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
