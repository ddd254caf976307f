"""Small requests for rows that can be read at once, answered without a framework: its parsing, routing,
models and responses cost several times as much as a prediction.

Only requests that are certainly valid are answered here. The application behind receives all others
unchanged, so there is one place that reports errors.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import orjson

from livegnn.events.repeated_keys import repeated_key

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from livegnn.http.guard import Guard
    from livegnn.http.request_counts import RequestCounts

_FIELDS: Final = {"ids", "min_seq"}
_LARGEST: Final = 4096  # bytes of a body
MOST_SMALL: Final = 16
"""Ids that are answered in the loop of the server: a tenth of a millisecond each at most."""
_LENGTHS: Final = (b"content-length",)
_JSON: Final = (b"application/json", b"application/json; charset=utf-8")


class Wanted(NamedTuple):
    """The contents of the body of a small request."""

    ids: list[int] | list[str]
    min_seq: int


Answer: TypeAlias = Callable[[bytes, bool], bytes | None]
"""Takes the body of a request, or, with True, the parameters of its address; returns the JSON of the answer,
or None if only the application can answer. Never waits; after any error the application answers."""


class SmallReads:
    """An ASGI application that answers small requests itself: `POST` of a small JSON body to one of the paths
    of `answers`, and `GET` of `get_paths` with parameters. All others go to `app`. largest: bytes of a body
    that `app` takes.

    Thread safety: belongs to the event loop of the server.
    """

    def __init__(
        self,
        app: "ASGIApp",
        answers: Mapping[str, Answer],
        largest: int = _LARGEST,
        *,
        get_paths: Collection[str] = (),
    ) -> None:
        self._app, self._answers, self._largest = app, answers, min(largest, _LARGEST)
        self._get_paths = get_paths

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        answer = self._answers.get(scope["path"]) if scope["type"] == "http" else None
        if answer is None:
            await self._app(scope, receive, send)
            return
        text = None
        messages: Sequence[Message] = ()
        parameters = scope["query_string"]
        if scope["method"] == "GET":
            if 0 < len(parameters) <= _LARGEST and scope["path"] in self._get_paths:
                text = _text_of(answer, parameters, True)
        elif (
            scope["method"] == "POST"
            and not parameters
            and (lengths := lengths_of(scope, _LENGTHS, self._largest, _JSON)) is not None
        ):
            body, messages = await receive_body(receive, lengths[0])
            if len(body) == lengths[0]:
                text = _text_of(answer, body, False)
        if text is None:
            await self._app(scope, again(messages, receive), send)
            return
        await end_turn()
        await send_json(text, send)


class ImmediateReads:
    """An ASGI application that answers `GET` requests with parameters itself, before another application has
    them, because each of those takes as long as the read. All other requests go to `app`, which guards and
    counts too, and gives the same answers.

    answers: by path. guard: of `app`. counts: of the requests. Thread safety: belongs to the event loop of
    the server.
    """

    def __init__(
        self, app: "ASGIApp", answers: Mapping[str, Answer], guard: "Guard | None", counts: "RequestCounts"
    ) -> None:
        self._app, self._answers, self._guard, self._counts = app, answers, guard, counts

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        began = perf_counter()
        text = self._read(scope)
        if text is None:
            await self._app(scope, receive, send)
            return
        try:
            await end_turn()
            await send_json(text, send)
        finally:
            self._counts.count(scope["path"], "GET", 200, perf_counter() - began)

    def _read(self, scope: "Scope") -> bytes | None:
        if scope["type"] != "http" or scope["method"] != "GET":
            return None
        answer, parameters = self._answers.get(scope["path"]), scope["query_string"]
        if (
            answer is None
            or not 0 < len(parameters) <= _LARGEST
            or (self._guard is not None and not self._guard.admits_at_once(scope, "read"))
        ):
            return None
        return _text_of(answer, parameters, True)


async def end_turn() -> None:
    """Returns in the next turn of the event loop, so that all answers of a turn are sent together.

    A thread of the server sleeps while it has nothing to send, and to wake it takes as long as a read.
    """
    await asyncio.sleep(0)


async def send_json(text: bytes, send: "Send") -> None:
    """Answers with 200."""
    headers = [(b"content-length", b"%d" % len(text)), (b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": text})


def lengths_of(
    scope: "Scope", names: Sequence[bytes], largest: int, kinds: Collection[bytes] = ()
) -> list[int] | None:
    """The headers `names` of a request, which are lengths in bytes from 1 to `largest`.

    None if one of them is another value or is not there once, if the body is compressed, or if `kinds` are
    given and its media type is none of them.
    """
    found: dict[bytes, int] = {}
    for name, value in scope["headers"]:
        if name in names:
            if name in found or not value.isdigit() or not 0 < int(value) <= largest:
                return None
            found[name] = int(value)
        elif name == b"content-encoding" or (
            name == b"content-type" and kinds and value.lower() not in kinds
        ):
            return None
    return [found[name] for name in names] if len(found) == len(names) else None


def _text_of(answer: Answer, request: bytes, parameters: bool) -> bytes | None:
    try:
        return answer(request, parameters)
    except Exception:  # whatever it is, the application tells the client
        return None


def answer_parsed(answer: Callable[[Wanted], dict[str, object] | None]) -> Answer:
    """The `Answer` to bodies by a function of their contents; it returns the contents of the answer."""

    def answer_body(request: bytes, parameters: bool) -> bytes | None:
        wanted = None if parameters else read_wanted(request)
        content = None if wanted is None else answer(wanted)
        return None if content is None else orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)

    return answer_body


async def receive_body(receive: "Receive", length: int) -> "tuple[bytes, list[Message]]":
    """A body of `length` bytes, shorter if its client stops; and its messages."""
    parts, size, messages, more = [], 0, [], True
    while more and size < length:  # a server may say of the last bytes that more follow
        messages.append(await receive())
        parts.append(messages[-1].get("body", b""))
        size += len(parts[-1])
        more = messages[-1].get("more_body", False)
    return parts[0] if len(parts) == 1 else b"".join(parts), messages


def again(messages: "Sequence[Message]", receive: "Receive") -> "Receive":
    """`receive`, after messages that were received already."""
    if not messages:
        return receive
    waiting = deque(messages)

    async def receive_again() -> "Message":
        return waiting.popleft() if waiting else await receive()

    return receive_again


def read_wanted(body: bytes) -> Wanted | None:
    """The ids and `min_seq` of a body `{"ids": [...], "min_seq": ...}` with a few ids; None if it is for the
    application."""
    try:
        given = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(given, dict) or not given.keys() <= _FIELDS:
        return None
    ids, min_seq = given.get("ids"), given.get("min_seq", 0)
    if (
        not isinstance(ids, list)
        or not 0 < len(ids) <= MOST_SMALL
        or set(map(type, ids)) not in ({int}, {str})
        or type(min_seq) is not int
        or min_seq < 0
        or repeated_key(body, given)
    ):
        return None
    return Wanted(ids, min_seq)
