"""Counts and times of requests by route, method and status, and the ASGI application that takes them.

It loads only a histogram: a function counts requests from its start on, and must start fast.
"""

from collections.abc import Collection, Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Final, NamedTuple

from livegnn.histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

OTHER: Final = "other"
"""The label of a path that no route has, and of a method that no route takes."""

NO_ANSWER: Final = "none"
"""The status of a request whose client disconnected before the answer began."""

_METHODS: Final = {name: name for name in ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS")}
_BOUNDS: Final = tuple(1e-4 * 10 ** (step / 2) for step in range(13))  # from 0.1 ms to 100 s


class NotedRoute(NamedTuple):
    """The route of a request, as Starlette notes it in `scope["route"]`."""

    path_format: str


class RequestCounts:
    """The times of requests, each in the histogram of its route, method and status.

    Thread safety: one thread counts, any number read.
    """

    __slots__ = ("_times",)

    def __init__(self) -> None:
        self._times: dict[tuple[str, str, int | str], Histogram] = {}

    def count(self, route: str, method: str, status: int | str, seconds: float) -> None:
        """Counts a request. Each value of `route`, `method` and `status` must be one of a few."""
        found = self._times.get((route, method, status))
        if found is None:
            found = self._times[route, method, status] = Histogram(_BOUNDS)
        found.record(seconds)

    def times(self) -> Mapping[tuple[str, str, str], Histogram]:
        """The times of all requests by route, method and status."""
        counted = sorted(self._times.copy().items(), key=lambda one: tuple(map(str, one[0])))
        return {(route, method, str(status)): times for (route, method, status), times in counted}


class NotedStatus:
    """A `send` of ASGI that notes the status of the answer, `NO_ANSWER` while there is none."""

    __slots__ = ("_send", "status")

    def __init__(self, send: "Send") -> None:
        self._send = send
        self.status: int | str = NO_ANSWER

    def __call__(self, message: "Message") -> "Awaitable[None]":
        if message["type"] == "http.response.start":
            self.status = message["status"]
        return self._send(message)


class CountedApplication:
    """An ASGI application that passes requests on to another one, and counts each when its answer ends.

    paths: those of routes without parameters. Where the application notes the route of a request in its
    scope, as Starlette does, the label is the template of that route; else the path, if it is one of `paths`.

    Thread safety: as of the application behind it; all requests of one `counts` are answered in one thread.
    """

    def __init__(self, app: "ASGIApp", counts: RequestCounts, paths: Collection[str]) -> None:
        self._app, self._counts = app, counts
        self._paths = {path: path for path in paths}

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = perf_counter()
        noted = NotedStatus(send)
        try:
            await self._app(scope, receive, noted)
        finally:
            template = getattr(scope.get("route"), "path_format", None)
            route = self._paths.get(scope["path"], OTHER) if template is None else template
            self._counts.count(
                route, _METHODS.get(scope["method"], OTHER), noted.status, perf_counter() - began
            )
