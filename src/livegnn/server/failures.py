"""The answer of a server when a request fails: a status, and the error as JSON."""

import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from livegnn.errors import (
    DiskFullError,
    InputError,
    LiveGNNError,
    LogBusyError,
    LogMovedError,
    OverloadedError,
    TimeoutExpired,
    TooLargeError,
    UnknownNodeError,
    ViewMissingError,
    WorkerUnavailableError,
    shortened,
)
from livegnn.server.appends import LoopEnded
from livegnn.server.bodies import UnknownMediaType, to_json
from livegnn.wording import quoted

_LONGEST_PATH: Final = 100
_METHODS_OF_FILES: Final = ("GET", "HEAD")  # those of a dashboard
_STATUS: dict[type[LiveGNNError], int] = {
    TooLargeError: 413,
    UnknownMediaType: 415,
    UnknownNodeError: 404,
    InputError: 400,
    TimeoutExpired: 503,
    LoopEnded: 503,
    ViewMissingError: 503,
    WorkerUnavailableError: 503,
    DiskFullError: 503,
    LogBusyError: 503,
    LogMovedError: 503,
    OverloadedError: 429,
    LiveGNNError: 500,
}


def add_failures(app: FastAPI, router: APIRouter) -> None:
    """From now on `app`, whose routes are those of `router`, answers every failure with an error as JSON."""
    app.state.router = router
    app.add_exception_handler(LiveGNNError, answer_error)
    app.add_exception_handler(RequestValidationError, _answer_invalid)
    app.add_exception_handler(HTTPException, _answer_unknown)
    app.add_exception_handler(ClientDisconnect, answer_nobody)
    app.add_exception_handler(Exception, answer_failure)


async def answer_error(request: Request, error: Exception) -> Response:
    """The answer for an error of LiveGNN's."""
    status = next(_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS)
    headers = None
    if isinstance(error, (DiskFullError, LogBusyError, ViewMissingError, WorkerUnavailableError)):
        headers = {"retry-after": "1"}
    elif isinstance(error, OverloadedError):
        headers = {"retry-after": str(max(1, math.ceil(error.retry_after)))}
    return to_answer(type(error).__name__, str(error), status, headers)


def to_answer(kind: str, message: str, status: int, headers: Mapping[str, str] | None = None) -> Response:
    """An answer that names what is wrong."""
    answer = to_json({"error": {"type": kind, "message": shortened(message)}}, status)
    answer.headers.update(headers or {})
    return answer


def _cut(path: str) -> str:
    return path if len(path) <= _LONGEST_PATH else path[: _LONGEST_PATH - 3] + "..."


async def _answer_unknown(request: Request, error: Exception) -> Response:
    """Answers for a path or method that does not exist, and for requests that are refused before a route is
    called."""
    assert isinstance(error, HTTPException)
    path, method = request.scope["path"], request.method  # that of `request.url` ends at a "?", decoded
    if error.status_code in (404, 405):
        shown, methods = _cut(path), _methods_of(request, path)
        if not methods and _methods_of(request, path.rstrip("/")):
            meant = _cut(path.rstrip("/"))
            return to_answer("UnknownPath", f"there is nothing at {shown}: did you mean {meant}?", 404)
        if not methods and error.status_code == 404:
            where = "/docs lists the paths" if _methods_of(request, "/docs") else _paths_of(request)
            return to_answer("UnknownPath", f"there is nothing at {shown}: {where}", 404)
        if method not in methods:
            allowed = ", ".join(sorted(methods or _METHODS_OF_FILES))
            message = f"{shown} must be requested with {allowed}, got {method}"
            return to_answer("UnknownMethod", message, 405, {"allow": allowed})
    kind = HTTPStatus(error.status_code).phrase.title().replace(" ", "")
    return to_answer(kind, str(error.detail), error.status_code, error.headers)


def _paths_of(request: Request) -> str:
    routes = [route for route in request.app.state.router.routes if isinstance(route, APIRoute)]
    return "there are " + ", ".join(sorted({route.path for route in routes}))


def _methods_of(request: Request, path: str) -> set[str]:
    """The methods that exist at `path`, without a dashboard's files."""
    app, below = request.app, path.removeprefix(request.scope.get("root_path", ""))
    routes = [r for r in (*app.state.router.routes, *app.routes) if isinstance(r, APIRoute)]
    matching = [] if below.endswith("\n") else [r for r in routes if r.path_regex.match(below)]
    return {method for route in matching for method in route.methods or ()}


async def answer_nobody(request: Request, error: Exception) -> Response:
    """The client has disconnected: no answer is read, and the server has no fault."""
    return Response(status_code=400)


async def answer_failure(request: Request, error: Exception) -> Response:
    """The answer for an unforeseen error; the server's log has the traceback."""
    return to_answer(type(error).__name__, f"the server failed, its log says where: {error}", 500)


async def _answer_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    problems = []
    for problem in error.errors():
        where = ".".join(map(str, problem["loc"]))
        if problem["type"] == "missing":
            problems.append(f"{where} must be given, got nothing")
        else:
            problems.append(f"{where}: {problem['msg']}, got {quoted(problem.get('input'))}")
    return to_answer("InputError", "; ".join(problems), 400)
