"""The answer of a server when a request fails: a problem, as `livegnn.http.problems` has it."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from livegnn.errors import InputError, LiveGNNError, shortened
from livegnn.http.problems import PAGE_TYPE, PAGES, Problem, find_page, problem_of, write
from livegnn.http.refusals import UnknownMethod, UnknownPath
from livegnn.wording import quoted

_LONGEST_PATH: Final = 100
_METHODS_OF_FILES: Final = ("GET", "HEAD")  # those of a dashboard


def add_failures(app: FastAPI, *routers: APIRouter) -> None:
    """Makes `app`, whose routes are those of `routers`, answer every failure with a problem, and adds the
    pages of problems to the first router."""

    @routers[0].api_route(PAGES, methods=["GET", "HEAD"], include_in_schema=False)
    @routers[0].api_route(f"{PAGES}/{{name}}", methods=["GET", "HEAD"], include_in_schema=False)
    async def show_problems(request: Request) -> Response:
        page = find_page(request.scope["path"].removeprefix(request.scope.get("root_path", "")))
        if page is None:
            raise UnknownPath(f"there is no such problem: {PAGES} lists them")
        return Response(page, media_type=PAGE_TYPE)

    app.state.routes = [one for router in routers for one in router.routes if isinstance(one, APIRoute)]
    app.add_exception_handler(LiveGNNError, answer_error)
    app.add_exception_handler(RequestValidationError, _answer_invalid)
    app.add_exception_handler(HTTPException, _answer_unknown)
    app.add_exception_handler(ClientDisconnect, answer_nobody)
    app.add_exception_handler(Exception, answer_error)


async def answer_error(request: Request, error: Exception) -> Response:
    """The answer for an error. The server's log has the traceback of an unforeseen one."""
    return _to_answer(request, problem_of(error))


def _to_answer(request: Request, problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    body, own = write(problem, request.scope["path"])
    return Response(body, problem.status, {**own, **(headers or {})})


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
            return await answer_error(
                request, UnknownPath(f"there is nothing at {shown}: did you mean {meant}?")
            )
        if not methods and error.status_code == 404:
            where = "/docs lists the paths" if _methods_of(request, "/docs") else _paths_of(request)
            return await answer_error(request, UnknownPath(f"there is nothing at {shown}: {where}"))
        if method not in methods:
            allowed = ", ".join(sorted(methods or _METHODS_OF_FILES))
            refusal = UnknownMethod(shown, allowed, method)
            return _to_answer(request, problem_of(refusal), {"allow": allowed})
        return await answer_error(request, UnknownPath(str(error.detail)))
    title = HTTPStatus(error.status_code).phrase
    problem = Problem(error.status_code, None, title, shortened(str(error.detail)))
    return _to_answer(request, problem, error.headers)


def _paths_of(request: Request) -> str:
    return "there are " + ", ".join(sorted({route.path for route in request.app.state.routes}))


def _methods_of(request: Request, path: str) -> set[str]:
    """The methods that exist at `path`, without a dashboard's files."""
    app, below = request.app, path.removeprefix(request.scope.get("root_path", ""))
    routes = [*app.state.routes, *(route for route in app.routes if isinstance(route, APIRoute))]
    matching = [] if below.endswith("\n") else [r for r in routes if r.path_regex.match(below)]
    return {method for route in matching for method in route.methods or ()}


async def answer_nobody(request: Request, error: Exception) -> Response:
    """The client has disconnected: no answer is read, and the server has no fault."""
    return Response(status_code=400)


async def _answer_invalid(request: Request, error: Exception) -> Response:
    """The answer for a request whose parts are wrong, with all of them."""
    assert isinstance(error, RequestValidationError)
    problems = []
    for problem in error.errors():
        where = ".".join(map(str, problem["loc"]))
        if problem["type"] == "missing":
            problems.append(f"{where} must be given, got nothing")
        else:
            problems.append(f"{where}: {problem['msg']}, got {quoted(problem.get('input'))}")
    return await answer_error(request, InputError("; ".join(problems)))
