"""Small requests, answered before the framework sees them: its routing, models and responses cost several
times what a prediction does.

Only what is certainly right is answered here. Anything else, errors included, goes on to the application
with its body as it came, so there is one place that says what is wrong.
Thread safety: belongs to the event loop of the server.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import orjson

from livegnn.errors import LiveGNNError
from livegnn.events.repeated_keys import repeated_key
from livegnn.types import JSON
from livegnn.workers.serving import ServingWorker

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_FIELDS: Final = {"ids", "min_seq"}
_LARGEST: Final = 4096  # bytes of a body; longer ones are not what this is for
_FEW: Final = 8  # ids that are answered in the loop of the server: a tenth of a millisecond each at most
_JSON: Final = (b"application/json", b"application/json; charset=utf-8")

SmallAnswer = Callable[[list[int]], dict[str, object]]
"""From ids to the content of an answer; raises LiveGNNError."""


class HotPath:
    """ASGI middleware: answers small JSON bodies `{"ids": [...], "min_seq": ...}` sent to `answers`' paths.

    worker: whose `seq` must have reached `min_seq`.
    """

    def __init__(self, app: "ASGIApp", worker: ServingWorker, answers: Mapping[str, SmallAnswer]) -> None:
        self._app, self._worker, self._answers = app, worker, answers

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        answer = None
        if scope["type"] == "http" and scope["method"] == "POST" and not scope["query_string"]:
            answer = self._answers.get(scope["path"])
        if answer is None or not _is_json(scope):
            await self._app(scope, receive, send)
            return
        first = await receive()
        text = self._text_of(first, answer)
        if text is None:
            await self._app(scope, _again(first, receive), send)
            return
        headers = [(b"content-length", b"%d" % len(text)), (b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": text})

    def _text_of(self, message: "Message", answer: SmallAnswer) -> bytes | None:
        body = message.get("body", b"")
        if message["type"] != "http.request" or message.get("more_body") or len(body) > _LARGEST:
            return None
        try:
            wanted = orjson.loads(body)
            if self._takes(wanted) and not repeated_key(body, wanted):
                return orjson.dumps(answer(wanted["ids"]), option=orjson.OPT_SERIALIZE_NUMPY)
        except (orjson.JSONDecodeError, LiveGNNError):
            pass
        return None

    def _takes(self, wanted: JSON) -> bool:
        """Whether this is a small request that no worker has to wait for."""
        worker = self._worker
        if not isinstance(wanted, dict) or not wanted.keys() <= _FIELDS or not worker.whole:
            return False
        ids, min_seq = wanted.get("ids"), wanted.get("min_seq", 0)
        return (
            isinstance(ids, list)
            and 0 < len(ids) <= _FEW
            and all(type(id) is int for id in ids)
            and type(min_seq) is int
            and 0 <= min_seq <= worker.seq
            and worker.failure is None
        )


def _is_json(scope: "Scope") -> bool:
    """Whether the body is said to be JSON, or nothing is said of it."""
    for name, value in scope["headers"]:
        if name == b"content-type":
            return value.lower() in _JSON
    return True


def _again(first: "Message", receive: "Receive") -> "Receive":
    """What `receive` gives, `first` once more before it."""
    waiting = [first]

    async def replayed() -> "Message":
        return waiting.pop() if waiting else await receive()

    return replayed
