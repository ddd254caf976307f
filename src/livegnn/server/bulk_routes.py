"""The route for all predictions, all that have changed, or all scores of an edge output, as an Arrow IPC
stream."""

import asyncio
from collections.abc import Generator, Iterator
from threading import Lock
from typing import TYPE_CHECKING, Annotated, TypeAlias

from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from livegnn.errors import InputError
from livegnn.http.refusals import ExtraMissing
from livegnn.runtime import Runtime
from livegnn.server.bodies import ARROW_TYPE
from livegnn.server.changed_ids import ChangedIds
from livegnn.server.feed import Feed
from livegnn.server.query import LARGEST_SEQ, AsWritten, MinSeq, Timeout
from livegnn.server.requests import MODEL, OUTPUT

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

_SINCE = "only nodes whose prediction has changed after this event"
_OUTPUT = f"{OUTPUT}; an edge output gives the scores of all its edges"

ChangedSince: TypeAlias = Annotated[int | None, AsWritten, Query(ge=0, le=LARGEST_SEQ, description=_SINCE)]


def add_bulk_routes(router: APIRouter, runtime: Runtime, feed: Feed) -> None:
    """Adds the route."""
    changed = ChangedIds(runtime)

    @router.get("/v1/predictions/all", responses={200: {"content": {ARROW_TYPE: {}}}})
    async def read_all_predictions(
        request: Request,
        since: ChangedSince = None,
        min_seq: MinSeq = 0,
        timeout: Timeout = 10.0,
        output: Annotated[str | None, Query(description=_OUTPUT)] = None,
        model: Annotated[str | None, Query(description=MODEL)] = None,
    ) -> StreamingResponse:
        """All predictions, or with `since` those that have changed, as an Arrow IPC stream; or all scores of
        an edge output."""
        await feed.wait(max(min_seq, since or 0), timeout)

        def begin() -> _Parts:
            return _Parts(_open(runtime, changed, since, output, model))

        parts = await run_in_threadpool(begin)
        if request.method == "HEAD":
            parts.close()  # its answer has no body, and this response is not sent
        return _BulkResponse(parts)


class _Parts:
    """The parts of a stream. The first rows are read at once, because errors have no status once the head is
    sent.

    Thread safety: another thread may close it while one takes a part, after which that one closes it.
    """

    def __init__(self, parts: Generator[bytes, None, None]) -> None:
        self._parts, self._first = parts, [next(parts), next(parts)]
        self._lock, self._ended = Lock(), False

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        with self._lock:
            part = self._first.pop(0) if self._first else next(self._parts)
        if self._ended:
            self.close()
        return part

    def close(self) -> None:
        """Releases all that the stream has in memory. It has no further part."""
        self._ended = True
        if self._lock.acquire(blocking=False):
            try:
                self._first.clear()
                self._parts.close()
            finally:
                self._lock.release()


class _BulkResponse(StreamingResponse):
    """Sends parts, and closes them, however it ends: the error of a client that disconnects is in a cycle of
    references with all frames that it has passed, and what these hold stays until a full collection.
    """

    def __init__(self, parts: _Parts) -> None:
        super().__init__(parts, media_type=ARROW_TYPE, headers={"cache-control": "no-store"})
        self._parts = parts

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._parts.close()

    async def stream_response(self, send: "Send") -> None:
        """Sends all."""
        try:
            await super().stream_response(send)
        except asyncio.CancelledError as error:
            raise error.with_traceback(None) from None  # its frames hold the part that was not sent


def _open(
    runtime: Runtime, changed: ChangedIds, since: int | None, output: str | None, model: str | None
) -> Generator[bytes, None, None]:
    """The stream. Raises the errors of a request."""
    try:
        from livegnn.server import arrow_stream
    except ImportError as error:
        raise ExtraMissing(
            "this answer needs pyarrow, which is not installed where the server runs: "
            "pip install 'livegnn[arrow]'"
        ) from error
    if since is None:
        return arrow_stream.encode_all(runtime, output, model, seq=changed.begin())
    # Before the model is found: after a switch in between, the changes since this event are refused.
    seq, ids = changed.since(since)
    engine = runtime.models.find_row_predictor(model)
    of_edges = output in engine.model.edge_outputs
    if of_edges or engine.outputs.find(output).position or engine.name != runtime.models.serving:
        raise InputError(
            "since must be for the first output of the serving model, whose changes are kept, got "
            "another output or model: read all of its predictions, without since"
        )
    return arrow_stream.encode(runtime, engine, output, ids, seq)
