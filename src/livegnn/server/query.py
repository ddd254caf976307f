"""The checks of a request: an address of valid UTF-8, the parameters of its route, each once; ids, which are
text there; HEAD where there is GET.
"""

import difflib
import re
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Annotated, TypeAlias, get_origin
from urllib.parse import unquote_to_bytes

from fastapi import APIRouter, Header, Query, Request
from fastapi.exceptions import HTTPException
from fastapi.responses import Response, StreamingResponse
from fastapi.routing import APIRoute
from pydantic import BeforeValidator
from starlette.convertors import PathConvertor, register_url_convertor

from livegnn.errors import InputError
from livegnn.events.chunk import to_ids, to_texts
from livegnn.texts import Texts
from livegnn.types import Ids
from livegnn.wording import quoted

if TYPE_CHECKING:
    from jaxtyping import Shaped

INTEGER = re.compile(r"0|-?[1-9][0-9]*")
_MOST_DIGITS = 20  # of 2^63 - 1 and a sign
LARGEST_SEQ = 2**63 - 1
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")


def _as_written(form: "re.Pattern[str]", what: str) -> BeforeValidator:
    """Refuses what is a number to Python alone, such as " 1", "+1", "1_0" and "01"."""

    def check(text: object) -> object:
        if isinstance(text, str) and not form.fullmatch(text):
            raise ValueError(f"expected {what} as JSON has it, without spaces, +, _ and leading zeros")
        return text

    return BeforeValidator(check)


AsWritten = _as_written(INTEGER, "an integer")
"""For each whole number in an address."""
NumberAsWritten = _as_written(_NUMBER, "a number")


def _event(description: str) -> object:
    """A parameter that is the number of an event."""
    return Query(ge=0, le=LARGEST_SEQ, description=description)


Timeout: TypeAlias = Annotated[
    float, NumberAsWritten, Query(gt=0, le=300, description="seconds to wait at most")
]
MinSeq: TypeAlias = Annotated[
    int, AsWritten, _event("answer when this event is visible: read your own writes")
]
Since: TypeAlias = Annotated[int, AsWritten, _event("the event after which the movement begins")]
Seq: TypeAlias = Annotated[int, AsWritten, _event("the event after which the list begins")]
LastEvent: TypeAlias = Annotated[
    int | None,
    AsWritten,
    Header(ge=0, le=LARGEST_SEQ, description="the id of the last change that you received"),
]


class _AnyText(PathConvertor):
    """The part of a path that is an id: Starlette's own would end at a newline."""

    regex = r"[\s\S]*"


register_url_convertor("node_id", _AnyText())


class CheckedRoute(APIRoute):
    """A route that refuses addresses that are not UTF-8, unknown parameters, and repeated ones."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[object, object, Response]]:
        handle = super().get_route_handler()
        fields = self.dependant.query_params
        may_repeat = {field.alias: get_origin(field.field_info.annotation) is list for field in fields}

        async def check(request: Request) -> Response:
            if request.scope["path"].endswith("\n"):  # the end of Starlette's patterns lets it pass
                raise HTTPException(404)
            for part in ("raw_path", "query_string"):
                _check_encoding(request.scope.get(part) or b"")
            if request.query_params:
                _check([name for name, _ in request.query_params.multi_items()], may_repeat)
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


def _check(names: list[str], may_repeat: dict[str, bool]) -> None:
    """Raises InputError that names the first parameter that is wrong, and those that there are.

    may_repeat: of each parameter of the address, whether it may occur several times.
    """
    for name in names:
        if name not in may_repeat:
            if not may_repeat:
                raise InputError(f"this address takes no parameters, got {quoted(name)}")
            near = difflib.get_close_matches(name, may_repeat, n=1)
            hint = f": did you mean {quoted(near[0])}?" if near else ""
            raise InputError(
                f"the query may have the parameters {', '.join(may_repeat)}, got {quoted(name)}{hint}"
            )
        if not may_repeat[name] and names.count(name) > 1:
            raise InputError(f"the query must have {quoted(name)} once, got it {names.count(name)} times")


def _check_encoding(part: bytes) -> None:
    """Starlette would replace bytes that are not UTF-8 by U+FFFD, and that may be a part of another id."""
    try:
        part.decode("ascii")
        if b"%" in part:
            unquote_to_bytes(part).decode()
    except UnicodeDecodeError as error:
        raise InputError(f"an address must be UTF-8, percent-encoded, got {quoted(part)}: {error}") from None


def split_ids(given: Sequence[str]) -> list[str]:
    """The ids in a parameter that may be repeated, with commas in each: "" is one, the empty text."""
    return [id for text in given for id in text.split(",")]


def parse_ids(text_ids: bool, texts: Sequence[str]) -> "Shaped[Ids, 'ids'] | Texts":
    """Ids from a URL, where a number and its text look the same. text_ids: whether the graph has such ids.
    Raises InputError.
    """
    if text_ids:
        return to_texts(texts)
    for text in texts:
        if not INTEGER.fullmatch(text):
            raise InputError(
                f"ids must be integers in this graph, got {quoted(text)}: write 17 as 17, without spaces, "
                "+, _ and leading zeros"
            )
        if len(text) > _MOST_DIGITS:
            raise InputError(f"ids must be ids from 0 to 2^63 - 1, got {text[:_MOST_DIGITS]}...")
    return to_ids([int(text) for text in texts], "ids")


def parse_id(text_ids: bool, text: str) -> int | str:
    """One id from a URL. Raises InputError."""
    id: int | str = parse_ids(text_ids, [text])[0].item()
    return id
