"""What a request may have: the parameters of its route, each once; HEAD where there is GET."""

import difflib
from collections.abc import Callable, Coroutine
from typing import get_origin

from fastapi import APIRouter, Request
from fastapi.responses import Response, StreamingResponse
from fastapi.routing import APIRoute

from livegnn.errors import InputError


class CheckedRoute(APIRoute):
    """A route that refuses parameters that it does not take, and those that come several times."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[object, object, Response]]:
        handle = super().get_route_handler()
        # Whether it may come several times.
        known = {
            field.alias: get_origin(field.field_info.annotation) is list
            for field in self.dependant.query_params
        }

        async def check(request: Request) -> Response:
            if request.query_params:
                _check([name for name, _ in request.query_params.multi_items()], known)
            answer = await handle(request)
            if request.method == "HEAD" and isinstance(answer, StreamingResponse):
                return Response(status_code=answer.status_code, headers=answer.headers)  # it might never end
            return answer

        return check


def answer_head(router: APIRouter) -> None:
    """From now on, HEAD has an answer wherever GET has; the server leaves out its body."""
    for route in list(router.routes):
        if isinstance(route, APIRoute) and "GET" in (route.methods or ()):
            router.add_api_route(route.path, route.endpoint, methods=["HEAD"], include_in_schema=False)


def _check(given: list[str], known: dict[str, bool]) -> None:
    """Raises InputError that names the first parameter that is wrong, and those that there are."""
    for name in given:
        if name not in known:
            if not known:
                raise InputError(f"this address takes no parameters, got {name!r}")
            near = difflib.get_close_matches(name, known, n=1)
            hint = f": did you mean {near[0]!r}?" if near else ""
            raise InputError(f"the query may have the parameters {', '.join(known)}, got {name!r}{hint}")
        if not known[name] and given.count(name) > 1:
            raise InputError(f"the query must have {name!r} once, got it {given.count(name)} times")
