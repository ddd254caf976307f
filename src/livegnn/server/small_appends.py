"""Appends of bodies that have a length, by requests without parameters. The framework is not used: its
parsing, routing and responses would take three quarters of their time.
"""

from time import perf_counter
from typing import TYPE_CHECKING, Final, NamedTuple

from fastapi import Request

from livegnn.errors import LiveGNNError
from livegnn.http.guard import Guard
from livegnn.http.request_counts import NotedStatus, RequestCounts
from livegnn.http.small_reads import again, end_turn, receive_body, send_json
from livegnn.log import Appended
from livegnn.runtime import Runtime
from livegnn.server.append_requests import AppendRequests, GivenBody
from livegnn.server.bodies import Limits
from livegnn.server.failures import answer_error

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

EVENTS: Final = "/v1/events"
_LENGTH: Final = b"content-length"
_TYPE: Final = b"content-type"
_KEY: Final = b"idempotency-key"
_UNUSUAL: Final = (b"content-encoding", b"transfer-encoding")
_JSON: Final = b"application/json"


class Head(NamedTuple):
    """The headers that an append needs. length: bytes of the body. key: the idempotency key."""

    length: int
    media_type: str
    key: str | None


class SmallAppends:
    """An ASGI application that answers `POST` of events itself, if their form is a usual one; all other
    requests go to `app`, which gives the same answers.

    Thread safety: belongs to the event loop of the server.
    """

    def __init__(self, app: "ASGIApp", runtime: Runtime, appends: AppendRequests, limits: Limits) -> None:
        self._app, self._runtime, self._appends, self._limits = app, runtime, appends, limits

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        head = self.read_head(scope)
        if head is None:
            await self._app(scope, receive, send)
        else:
            await self.answer(head, scope, receive, send)

    def read_head(self, scope: "Scope") -> Head | None:
        """The head of a request that is answered here; None for all others."""
        usual = (
            scope["type"] == "http"
            and scope["path"] == EVENTS
            and scope["method"] == "POST"
            and not scope["query_string"]
        )
        return _read_head(scope, self._limits.body) if usual and self._runtime.failure is None else None

    async def answer(self, head: Head, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Answers a request with the head that `read_head` returned."""
        try:
            arrived = perf_counter()
            self._runtime.admit()  # before the body is read: what is pushed back costs as little as can be
            await end_turn()  # the bodies of all requests of a turn are asked for together
            body, messages = await receive_body(receive, head.length)
            if len(body) != head.length:  # the client has disconnected
                await self._app(scope, again(messages, receive), send)
                return
            outcomes = await self._appends.append(GivenBody(body, head.media_type, head.key, arrived))
            became = outcomes[0].became
            if len(outcomes) == 1 and isinstance(became, Appended) and not became.again:
                await send_json(b'{"seq":%d,"status":"logged"}' % became.seq, send)
                return
            answer = await self._appends.answer(outcomes)
        except LiveGNNError as error:
            answer = await answer_error(Request(scope), error)
        except Exception as error:
            await (await answer_error(Request(scope), error))(scope, receive, send)
            raise
        await answer(scope, receive, send)


class ImmediateAppends:
    """An ASGI application that has `appends` answer a request before another application has it, because the
    layers between cost as much as the append. All other requests go to `app`, which guards and counts too,
    and gives the same answers.

    guard: of `app`. counts: of the requests. Thread safety: belongs to the event loop of the server.
    """

    def __init__(
        self, app: "ASGIApp", appends: SmallAppends, guard: Guard | None, counts: RequestCounts
    ) -> None:
        self._app, self._appends, self._guard, self._counts = app, appends, guard, counts

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        began, guard = perf_counter(), self._guard
        head = self._appends.read_head(scope)
        if head is None or (guard is not None and not guard.admits_at_once(scope, "write")):
            await self._app(scope, receive, send)
            return
        noted = NotedStatus(send)
        client = None if guard is None else guard.begin(scope)
        try:
            await self._appends.answer(head, scope, receive, noted)
        finally:
            if guard is not None and client is not None:
                guard.end(client)
            self._counts.count(EVENTS, "POST", noted.status, perf_counter() - began)


def _read_head(scope: "Scope", largest: int) -> Head | None:
    """None if the application has to look at a request, because a header is unusual or is there twice."""
    found: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name in (_LENGTH, _TYPE, _KEY):
            if name in found:
                return None
            found[name] = value
        elif name in _UNUSUAL:
            return None
    length = found.get(_LENGTH, b"")
    if not length.isdigit() or not 0 < int(length) <= largest:
        return None
    media_type = found.get(_TYPE, _JSON).decode("latin-1").partition(";")[0].strip().lower()
    key = found.get(_KEY)
    return Head(int(length), media_type, None if key is None else key.decode("latin-1").strip(" \t"))
