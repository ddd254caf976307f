"""A machine over HTTP: a plain ASGI application, so that a container starts fast, and the process that serves
it until SIGTERM.
"""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import livegnn
from livegnn.errors import InputError
from livegnn.functions.bodies import (
    LARGEST_BODY,
    Answer,
    answer_error,
    answer_json,
    answer_page,
    in_form_of,
    refuse_parameters,
)
from livegnn.http.guard import Access, Guard
from livegnn.http.inference_protocol import LENGTH, ROUTES, describe_server, find_target
from livegnn.http.listening import exit_at_sigterm
from livegnn.http.problems import PAGES, is_protocol
from livegnn.http.refusals import (
    BodyTooLarge,
    ProcessStops,
    UnknownMediaType,
    UnknownMethod,
    UnknownPath,
    refuse_coding,
)
from livegnn.http.request_counts import CountedApplication, NotedRoute
from livegnn.http.serving import HttpServer
from livegnn.http.tls import Tls
from livegnn.wording import quoted

if TYPE_CHECKING:
    from livegnn.functions.machine import Machine

GRACE_SECONDS: Final = 8
"""The time to answer requests after SIGTERM: of the ten that Cloud Run gives, two are for the rest."""

_BODY_SECONDS: Final = 1.0  # for a body that has not arrived when the process has to end

_log = logging.getLogger(__name__)

_Message: TypeAlias = MutableMapping[str, Any]
_Receive: TypeAlias = Callable[[], Awaitable[_Message]]
_Send: TypeAlias = Callable[[_Message], Awaitable[None]]
_Routes: TypeAlias = Mapping[str, Callable[[bytes], Awaitable[Answer]]]  # by method


class _BodyCut(InputError):
    """A body that ended early: mostly, its client has disconnected, and reads no answer."""

    def __init__(self) -> None:
        super().__init__("the body must be as long as its headers say, got less: send it again")


async def _report_live(body: bytes) -> Answer:
    return answer_json({"status": "ok"})


def _routes_of_page(path: str) -> _Routes:
    """The methods of a page of problems; none if there is none."""
    page = answer_page(path)

    async def show(body: bytes) -> Answer:
        assert page is not None
        return page

    return {} if page is None else {"GET": show}


class Application:
    """An ASGI application: `POST /v1/predictions`, `GET /livez`, `/readyz`, `/v1/health`, `/metrics`, the
    addresses of the Open Inference Protocol below `/v2`, and the pages of problems. access: the clients to
    admit; None admits every request."""

    def __init__(self, machine: "Machine", access: Access | None = None) -> None:
        self._machine = machine
        self._stops = False
        self._reading: set[asyncio.Timeout] = set()  # those of bodies that are being received
        self._routes: Mapping[str, _Routes] = {
            "/v1/predictions": {"POST": machine.predict},
            "/livez": {"GET": _report_live},
            "/readyz": {"GET": lambda _: machine.report_health()},
            "/v1/health": {"GET": lambda _: machine.report_health()},
            "/metrics": {"GET": lambda _: machine.report_metrics()},
        }
        admitted = self._answer_any if access is None else Guard(self._answer_any, access)
        self._counted = CountedApplication(admitted, machine.counts, self._routes)

    async def __call__(self, scope: _Message, receive: _Receive, send: _Send) -> None:
        await self._counted(scope, receive, send)

    async def _answer_any(self, scope: _Message, receive: _Receive, send: _Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            try:
                answer, allowed = await self._answer(scope, receive)
            except _BodyCut as error:
                answer, allowed = answer_error(error), {"connection": "close"}
            except Exception as error:
                _log.exception("a request failed")
                answer, allowed = answer_error(error), {}
            except asyncio.CancelledError:  # by the server, when time is over after SIGTERM
                if not self._stops:
                    raise
                answer, allowed = answer_error(ProcessStops()), {"connection": "close"}
            answer = in_form_of(answer, scope["path"])
            headers = {**answer.headers(), **allowed, "content-length": str(len(answer.body))}
            encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
            await send({"type": "http.response.start", "status": answer.status, "headers": encoded})
            shown = b"" if scope["method"] == "HEAD" else answer.body
            await send({"type": "http.response.body", "body": shown})

    def stop(self) -> None:
        """Begins the end of the process: incomplete requests have a second more."""
        self._stops = True
        ends = asyncio.get_running_loop().time() + _BODY_SECONDS
        for limit in self._reading:
            limit.reschedule(ends)

    async def _live(self, receive: _Receive, send: _Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._machine.close()
        await send({"type": "lifespan.shutdown.complete"})

    def _protocol(self, scope: _Message) -> _Routes:
        """The methods of an address of the Open Inference Protocol; none if it is not one."""
        target, machine = find_target(scope["path"]), self._machine
        if target is None:
            return {}
        scope["route"] = NotedRoute(target.route)
        name, version, json_length = target.name or "", target.version, _header(scope, LENGTH)

        async def answer(body: bytes) -> Answer:
            if target.route == "/v2":
                return answer_json(describe_server(livegnn.__version__))
            if target.route == "/v2/health/live":
                return answer_json({"live": True})
            if target.route == "/v2/health/ready":
                status = (await machine.report_health()).status
                return answer_json({"ready": status == 200}, status)
            if target.route.endswith("/infer"):
                return await machine.infer(body, json_length, name, version)
            if target.route.endswith("/ready"):
                return await machine.report_model_ready(name, version)
            return await machine.describe_model(name, version)

        return {target.method: answer}

    async def _answer(self, scope: _Message, receive: _Receive) -> tuple[Answer, dict[str, str]]:
        """The answer, and headers beside its own."""
        path, method = scope["path"], "GET" if scope["method"] == "HEAD" else scope["method"]
        methods = self._routes.get(path) or self._protocol(scope) or _routes_of_page(path)
        if not methods:
            paths = ", ".join([*self._routes, *ROUTES, PAGES])
            return answer_error(UnknownPath(f"there is nothing at {path[:100]}, only {paths}")), {}
        if method not in methods:
            allowed = ", ".join(methods)
            return answer_error(UnknownMethod(path, allowed, method)), {"allow": allowed}
        try:
            refuse_parameters(scope["query_string"].decode("latin-1"))
            if method == "POST":
                refuse_coding(_header(scope, "content-encoding"), _header(scope, "transfer-encoding"))
                length = _header(scope, "content-length") or "0"
                if length.isdigit() and int(length) > LARGEST_BODY:  # before the client is told to go on
                    return answer_error(_too_large()), {"connection": "close"}
                if not is_protocol(path):  # whose bodies may have bytes behind the JSON
                    _check_media_type(scope)
        except InputError as error:
            return answer_error(error), {}
        try:
            async with asyncio.timeout(_BODY_SECONDS if self._stops else None) as limit:
                self._reading.add(limit)
                try:
                    body = await _read(receive)
                finally:
                    self._reading.discard(limit)
        except TimeoutError:
            return answer_error(ProcessStops()), {"connection": "close"}
        if body is None:
            return answer_error(_too_large()), {"connection": "close"}
        return await methods[method](body), {}


def _too_large() -> BodyTooLarge:
    return BodyTooLarge(f"the body may have at most {LARGEST_BODY:,} bytes: send fewer ids at once")


async def _read(receive: _Receive) -> bytes | None:
    """The body of a request; None if it is too large. Raises _BodyCut."""
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _BodyCut
        part = message.get("body", b"")
        size += len(part)
        if size > LARGEST_BODY:
            return None
        parts.append(part)
        more = message.get("more_body", False)
    return b"".join(parts)


def _check_media_type(scope: _Message) -> None:
    media_type = (_header(scope, "content-type") or "application/json").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise UnknownMediaType(f"the body must be application/json, got {quoted(media_type)}")


def _header(scope: _Message, wanted: str) -> str | None:
    """The value of the first header of a name."""
    for name, value in scope["headers"]:
        if name == wanted.encode():
            found: str = value.decode("latin-1")
            return found
    return None


def serve(
    machine: "Machine", listener: socket.socket, access: Access | None = None, tls: Tls | None = None
) -> None:
    """Serves until SIGINT or SIGTERM: then it accepts nothing more, answers the requests that are here, for
    `GRACE_SECONDS` at most, refuses those that are left, and ends all workers. Ends with SystemExit after
    SIGTERM.

    access: the clients to admit; None admits every request. tls: None for plain HTTP.
    """
    exit_at_sigterm()
    application = Application(machine, access)
    HttpServer(application, listener, grace=GRACE_SECONDS, on_stop=application.stop, tls=tls).run()
