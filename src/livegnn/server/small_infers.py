"""Small requests of the Open Inference Protocol with binary tensors, answered without the framework.

Clients send the JSON before the tensors again and again: it names the same model and as many ids. It is
parsed once, by the general way, and kept with the JSON of its answer. A request with a known one then costs
reading its rows. The application answers all others, so there is one place that reports errors.
"""

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from livegnn.http.inference_protocol import BINARY, LENGTH, find_target, read_infer, write_infer
from livegnn.http.request_counts import NotedRoute
from livegnn.http.small_reads import again, end_turn, lengths_of, receive_body
from livegnn.runtime import Runtime
from livegnn.server.bodies import Limits
from livegnn.server.requests import check_listed, check_number
from livegnn.types import FloatArray

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

_LENGTHS: Final = (b"content-length", LENGTH.encode())
_MOST_IDS: Final = 512
"""Rows that are read in the event loop: some tens of microseconds."""
_LARGEST: Final = 8 * _MOST_IDS + 4096
_MOST_KNOWN: Final = 256
_SEQ: Final = 2**63 - 1  # stands for the event in the JSON of an answer


class _Known(NamedTuple):
    """The JSON of a request. predictor: the model that it names, which counts as long as the name is its own,
    and may be removed. before, after: the JSON of its answer, around the number of the event."""

    name: str
    predictor: "weakref.ref[object]"
    outputs: tuple[str, ...]
    num_ids: int
    min_seq: int
    before: bytes
    after: bytes
    route: NotedRoute


class SmallInfers:
    """An ASGI application that answers small requests of the protocol; all others go to `app`.

    Thread safety: belongs to the event loop of the server.
    """

    def __init__(
        self,
        app: "ASGIApp",
        runtime: Runtime,
        find_digest: Callable[[str, str | None], str],
        limits: Limits,
    ) -> None:
        """find_digest: of a model, by its name and perhaps its version; it raises for unknown ones."""
        self._app, self._runtime, self._find_digest, self._limits = app, runtime, find_digest, limits
        self._known: dict[tuple[str, bytes], _Known] = {}

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        lengths = lengths_of(scope, _LENGTHS, _LARGEST) if _may_infer(scope) else None
        if lengths is None or lengths[0] <= lengths[1] or self._runtime.failure is not None:
            await self._app(scope, receive, send)
            return
        length, head_length = lengths
        body, messages = await receive_body(receive, length)
        answer = None
        if len(body) == length:
            try:
                answer = self._answer(scope, body, head_length)
            except Exception:  # whatever it is, the application tells the client
                answer = None
        if answer is None:
            await self._app(scope, again(messages, receive), send)
            return
        head, rows = answer
        size = len(head) + sum(one.nbytes for one in rows)
        headers = [
            (b"content-length", b"%d" % size),
            (b"content-type", BINARY.encode()),
            (_LENGTHS[1], b"%d" % len(head)),
        ]
        await end_turn()
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"".join([head, *(one.data for one in rows)])})

    def _answer(self, scope: "Scope", body: bytes, head_length: int) -> tuple[bytes, list[FloatArray]] | None:
        place = scope["path"], body[:head_length]
        known = self._known.get(place)
        if known is None:
            known = self._learn(scope, body, head_length)
            if known is None:
                return None
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[place] = known
        if len(body) - head_length != 8 * known.num_ids:
            return None
        ids = np.frombuffer(body, "<i8", offset=head_length)
        models = self._runtime.models

        def predict() -> list[FloatArray | None] | None:
            predictor = models.find(known.name)
            if predictor is not known.predictor():
                return None
            return [predictor.predict_at_once(ids, output=output) for output in known.outputs]

        found = self._runtime.read_at_once(predict)
        if found is None or found[0] < known.min_seq:
            return None
        if found[1] is None:  # the name is another model's now
            del self._known[place]
            return None
        rows = [one for one in found[1] if one is not None]
        if len(rows) < len(known.outputs):
            return None
        scope["route"] = known.route
        return b"%b%d%b" % (known.before, found[0], known.after), rows

    def _learn(self, scope: "Scope", body: bytes, head_length: int) -> _Known | None:
        """The JSON of a request, if its form is one that is answered here."""
        target = find_target(scope["path"])
        asked = read_infer(body, str(head_length), self._limits.objects)
        if target is None or target.name is None or self._runtime.graph.schema.text_ids:
            return None
        digest = self._find_digest(target.name, target.version)
        predictor = self._runtime.models.find(target.name)
        model, count = predictor.model, len(asked.ids)
        widths = {output: model.width(value) for output, value in model.outputs.items()}
        outputs = asked.form.names(list(widths))
        if not all(map(asked.form.is_binary, outputs)) or type(asked.ids[0]) is not int:
            return None
        check_number(count, self._limits.ids)
        check_listed(self._runtime, count, sum(widths[one] for one in outputs), self._limits, "ids", "")
        rows = {one: np.zeros((count, widths[one]), np.float32) for one in outputs}
        message = write_infer(asked.form, target.name, digest, _SEQ, rows)
        before, field, after = message.body[: message.json_length].partition(b'"seq":%d' % _SEQ)
        if self._find_digest(target.name, target.version) != digest:  # another model has got the name
            return None
        return _Known(
            target.name,
            weakref.ref(predictor),
            tuple(outputs),
            count,
            asked.min_seq,
            before + field.removesuffix(b"%d" % _SEQ),
            after,
            NotedRoute(target.route),
        )


def _may_infer(scope: "Scope") -> bool:
    return (
        scope["type"] == "http"
        and scope["method"] == "POST"
        and scope["path"].startswith("/v2/models/")
        and not scope["query_string"]
    )
