"""The model of serving workers in the Open Inference Protocol of a front end.

Workers receive requests in the same protocol, with ids as bytes, and never a name that a client sent.
"""

import asyncio
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import numpy as np
import orjson
from fastapi.responses import Response

from livegnn.errors import WorkerUnavailableError
from livegnn.http.inference_protocol import (
    BINARY,
    MODEL_PATH,
    ONLY_MODEL,
    InferRequest,
    Predicted,
    check_model,
    read_answer,
    write_infer,
    write_request,
)
from livegnn.readiness import Readiness
from livegnn.server.inference_routes import answer_ready, to_response
from livegnn.types import FloatArray, IntArray
from livegnn.workers.inference import seeds_of
from livegnn.workers.replicas import Body, Question, Replicas, Reply

if TYPE_CHECKING:
    from jaxtyping import Int64

_JSON: Final = "application/json"
_PATH: Final = MODEL_PATH.format(name=ONLY_MODEL)
_SECONDS: Final = 1.0  # for questions about the model


class FrontModel:
    """The one model of all serving workers. Belongs to the event loop of the server."""

    def __init__(self, replicas: Replicas, find_readiness: Callable[[], Readiness]) -> None:
        self._replicas, self._find_readiness = replicas, find_readiness

    def ready(self) -> bool:
        """Whether a replica of each worker answers."""
        return self._find_readiness().ready

    async def find(self, name: str, version: str | None) -> None:
        """Raises UnknownPath for another name. The version is compared with that of the answer."""
        check_model(name, None, "")

    async def describe(self, name: str, version: str | None) -> Response:
        """The inputs and outputs of the model."""
        await self.find(name, None)
        (reply,) = await self._ask_about([0], "")
        self._check_version(reply, name, version)
        return reply.pass_on()

    async def report_ready(self, name: str, version: str | None) -> Response:
        """200 while a replica of each worker is ready."""
        if version is not None:
            described = await self.describe(name, version)
            if described.status_code != HTTPStatus.OK:
                return described
        await self.find(name, None)
        replies = await self._ask_about(range(len(self._replicas.answering())), "/ready")
        failing = next((reply for reply in replies if reply.status != HTTPStatus.OK), None)
        return answer_ready(name, ready=self.ready()) if failing is None else failing.pass_on()

    async def infer(self, name: str, version: str | None, asked: InferRequest) -> Response:
        """The rows of all requested outputs."""
        ids, outputs = seeds_of(asked.ids), asked.form.outputs

        def ask_for(some: IntArray) -> Question:
            def write(seconds: float | None) -> Body:
                waits = asked.timeout if seconds is None else seconds
                message = write_request(some, outputs, asked.min_seq, waits)
                return message.body, message.headers()

            return Question(f"{_PATH}/infer", len(some), True, write, BINARY, _JSON)

        places, replies = await self._replicas.divide(ids, ask_for, asked.timeout)
        failing = next((reply for reply in replies if reply.status != HTTPStatus.OK), None)
        if failing is not None:
            return failing.pass_on()
        try:
            parts = [read_answer(reply.content, int(reply.json_length or "")) for reply in replies]
            versions = sorted({part.version for part in parts})
            if len(versions) > 1:
                raise WorkerUnavailableError(
                    f"serving workers must have one model, got those of versions {', '.join(versions)}: "
                    "start all with the same model"
                )
            values = _joined(len(ids), places, parts)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise self._replicas.misunderstood(error) from error
        check_model(name, version, versions[0])
        seq = min(part.seq for part in parts)
        return to_response(write_infer(asked.form, name, versions[0], seq, values))

    async def _ask_about(self, workers: Sequence[int], below: str) -> list[Reply]:
        question = Question(_PATH + below, failing=_JSON)
        return await asyncio.gather(*(self._replicas.ask(worker, question, _SECONDS) for worker in workers))

    def _check_version(self, reply: Reply, name: str, version: str | None) -> None:
        if version is None or reply.status != HTTPStatus.OK:
            return
        try:
            (found,) = orjson.loads(reply.content)["versions"]
        except (ValueError, KeyError, TypeError) as error:
            raise self._replicas.misunderstood(error) from error
        check_model(name, version, found)


def _joined(
    count: int, places: "Sequence[Int64[IntArray, 'some']]", parts: Sequence[Predicted]
) -> dict[str, FloatArray]:
    """The rows of all ids. places: for each part, the positions of its ids."""
    values = {}
    for name, rows in parts[0].values.items():
        width = rows.shape[1]
        values[name] = np.empty((count, width), np.float32)
        for place, part in zip(places, parts, strict=True):
            own = part.values[name]
            if own.shape != (len(place), width):  # NumPy would repeat a single row
                raise ValueError(f"expected {len(place)} rows of {width} numbers, got {own.shape}")
            values[name][place] = own
    return values
