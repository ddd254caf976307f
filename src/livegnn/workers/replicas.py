"""The replicas of serving workers behind a front end: requests go to them in turn, and to another one if one
does not answer.

If workers can move, their addresses are read repeatedly. Belongs to one event loop.
"""

import asyncio
import logging
import re
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextvars import ContextVar
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias
from urllib.parse import urlsplit

import aiohttp
import numpy as np
import orjson
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from livegnn.errors import InputError, WorkerUnavailableError
from livegnn.http.inference_protocol import LENGTH
from livegnn.http.problems import PROBLEM_JSON
from livegnn.readiness import Readiness
from livegnn.types import IntArray
from livegnn.workers.inference import MOST_IDS
from livegnn.workers.plan import WorkerPlan

if TYPE_CHECKING:
    from jaxtyping import Int64
    from starlette.types import ASGIApp, Receive, Scope, Send

Addresses: TypeAlias = Sequence[Sequence[str]]
Body: TypeAlias = tuple[bytes, dict[str, str]]
"""A body and its headers."""

_SECONDS: Final = 5.0  # for the most ids, beyond what a request may wait
_LEAST_SECONDS: Final = 0.5  # the same for a few
_SOON: Final = 0.001  # a request may not say that it does not wait
_CONNECT_SECONDS: Final = 1.0
_FOLLOW_SECONDS: Final = 1.0  # between two questions where the workers are
_RETRY_SECONDS: Final = 0.1
_REST_SECONDS: Final = 5.0
_STATUSES: Final = {HTTPStatus.OK, *range(400, 600)}
_PASSED_ON: Final = ("retry-after", "www-authenticate")
_PASSED_IN: Final = ("authorization",)
_ADDRESS: Final = re.compile(r"https?://[^\s/?#@%\\]+")
_logger = logging.getLogger(__name__)


_of_client: ContextVar[Mapping[str, str]] = ContextVar("headers of the client", default={})  # noqa: B039


class KeyKeeper:
    """An ASGI application around the routes of a front end: workers receive the key of the client with each
    part of its request."""

    def __init__(self, app: "ASGIApp") -> None:
        self._app = app

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        if scope["type"] == "http":  # each request has a task of its own
            found = {name.decode(): value.decode("latin-1") for name, value in scope["headers"]}
            _of_client.set({name: found[name] for name in _PASSED_IN if name in found})
        await self._app(scope, receive, send)


class Question(NamedTuple):
    """A request to a worker. seeds: how many it has. waits: whether the worker may wait for an event.

    write: called with the seconds that the worker may wait, None if it does not wait; None for a request
    without a body. kind, failing: media types of an answer, and of a failing one.
    """

    path: str
    seeds: int = 0
    waits: bool = False
    write: Callable[[float | None], Body] | None = None
    kind: str = "application/json"
    failing: str = PROBLEM_JSON


class Reply(NamedTuple):
    """An answer of a worker. headers: those that are passed on. json_length: the header `LENGTH` of the Open
    Inference Protocol."""

    status: int
    content: bytes
    media_type: str
    headers: dict[str, str]
    json_length: str | None

    def pass_on(self) -> Response:
        """The answer as it is."""
        return Response(self.content, self.status, self.headers, self.media_type)


class _State(NamedTuple):
    """The number of a serving worker, None without one, and its reasons."""

    worker: int | None
    reasons: str

    @staticmethod
    def of(content: bytes) -> "_State":
        """The state in a body of /readyz; the process there may be no worker."""
        try:
            found = orjson.loads(content)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            return _State(None, "it does not say why")
        worker, reasons = found.get("worker"), found.get("reasons")
        named = reasons.items() if isinstance(reasons, dict) else ()
        told = ", ".join(f"{name}: {reason}" for name, reason in named)
        return _State(worker if type(worker) is int else None, told or "it does not say why")


class Replicas:
    """The replicas of all serving workers of a plan. workers: their addresses, or a function that returns
    them, which is called in a thread. session: of the event loop of the server, while it runs."""

    session: aiohttp.ClientSession

    def __init__(self, plan: WorkerPlan, workers: Addresses | Callable[[], Addresses]) -> None:
        self._plan = plan
        self._find = workers if callable(workers) else None
        self._workers: Addresses = [[]] * plan.serving_workers if callable(workers) else workers
        self._turns = [0] * plan.serving_workers
        self._resting: dict[str, float] = {}  # until when no request should wait for a replica
        self._failures: dict[tuple[int, str], str] = {}  # of the last probe, by worker and address
        self._strangers: set[tuple[int, str]] = set()  # addresses at which another worker answers
        self._finding = asyncio.Lock()
        self._found = -1.0  # when it was last asked where the workers are

    async def follow(self) -> None:
        """Keeps the addresses up to date, where they can change, and probes the replicas."""
        while True:
            await self._refresh(time.monotonic())
            known = [(worker, address) for worker, several in enumerate(self._workers) for address in several]
            await asyncio.gather(*(self._probe(worker, address) for worker, address in known))
            self._failures = {one: why for one, why in self._failures.items() if one in known}
            self._strangers.intersection_update(known)
            await asyncio.sleep(_FOLLOW_SECONDS)

    async def _probe(self, worker: int, address: str) -> None:
        """Notes whether a replica is ready, and of this worker, so that one that is not is known without a
        request to it."""
        limit = aiohttp.ClientTimeout(total=_CONNECT_SECONDS)
        try:
            async with self.session.get(f"{address}/readyz", timeout=limit, allow_redirects=False) as answer:
                status, content = answer.status, await answer.read()
        except (aiohttp.ClientError, TimeoutError):
            self._failures[worker, address] = f"{address} does not answer"
            self._resting[address] = time.monotonic() + _REST_SECONDS
            return
        state = _State.of(content)
        if state.worker not in (None, worker):
            self._strangers.add((worker, address))
            self._failures[worker, address] = f"{address} is serving worker {state.worker}"
            return
        self._strangers.discard((worker, address))
        if status == HTTPStatus.SERVICE_UNAVAILABLE:
            self._failures[worker, address] = f"{address} is not ready: {state.reasons}"
            self._resting[address] = time.monotonic() + _REST_SECONDS
        else:
            self._failures.pop((worker, address), None)
            self._resting.pop(address, None)

    async def _refresh(self, since: float) -> None:
        """Reads the addresses of the workers, unless another thread has since. A failed read is repeated
        later."""
        async with self._finding:
            if self._find is None or self._found >= since:
                return
            asked = time.monotonic()
            try:
                found = await run_in_threadpool(self._find)
                check_addresses(self._plan, found)
            except Exception as error:  # after any error, requests use the known addresses
                _logger.warning("the addresses of serving workers are not known: %s", error)
                return
            self._workers, self._found = found, asked

    async def divide(
        self,
        ids: "Int64[IntArray, 'ids']",
        ask_for: Callable[["Int64[IntArray, 'some']"], Question],
        timeout: float,
    ) -> "tuple[list[Int64[IntArray, 'some']], list[Reply]]":
        """The answers of all workers that have some of the ids, and the positions of those among `ids`.

        ask_for: the request for some ids.
        """
        owners = self._plan.serving_worker_of(ids)
        places = [np.flatnonzero(owners == worker) for worker in range(self._plan.serving_workers)]
        asked = [worker for worker, place in enumerate(places) if len(place)] or [0]
        replies = await asyncio.gather(
            *(self.ask(worker, ask_for(ids[places[worker]]), timeout) for worker in asked)
        )
        return [places[worker] for worker in asked], replies

    def misunderstood(self, error: Exception) -> WorkerUnavailableError:
        """The error for answers that serving workers do not give."""
        return WorkerUnavailableError(
            f"expected serving workers at {self._workers}, got an answer of something else: {error!r}"
        )

    async def ask(self, worker: int, question: Question, timeout: float) -> Reply:
        """The answer of a replica. Raises WorkerUnavailableError if none answers."""
        ends = time.monotonic() + timeout
        while True:
            asked, several = time.monotonic(), self._workers[worker]
            answer, failure = await self._ask_in_turn(worker, question, ends)
            if answer is not None:
                return answer
            if self._find is None or time.monotonic() >= ends:
                known = ", ".join(several) or "an address"
                raise WorkerUnavailableError(f"expected serving worker {worker} at {known}, got {failure}")
            await self._refresh(asked)
            if self._workers[worker] == several:
                await asyncio.sleep(_RETRY_SECONDS)

    async def _ask_in_turn(self, worker: int, question: Question, ends: float) -> tuple[Reply | None, str]:
        """The answer of the first replica that gives one, or why none did. One that cannot answer yet (503)
        is the answer of all where no other can. Each may wait for an equal part of the time that is left."""
        behind, failure = None, "none"
        several = self._in_turn(worker)
        beyond = _LEAST_SECONDS + _SECONDS * question.seeds / MOST_IDS
        for place, address in enumerate(several):
            if (worker, address) in self._strangers:
                failure = self._failures[worker, address]
                continue
            waits = max(_SOON, ends - time.monotonic()) / (len(several) - place)
            asking = self._send(address, question, waits, waits + beyond)
            try:
                answer = await (asking if self._find is None else self._unless_gone(asking, worker, address))
            except (aiohttp.ClientError, TimeoutError) as error:
                failure = f"{type(error).__name__}: {error}"
            else:
                if answer.status != HTTPStatus.SERVICE_UNAVAILABLE:
                    self._resting.pop(address, None)
                    return answer, ""
                behind = answer
                if question.waits:  # perhaps for an event that no replica has yet, and others are answered
                    continue
            self._resting[address] = time.monotonic() + _REST_SECONDS
        return behind, failure

    async def _send(self, address: str, question: Question, waits: float, timeout: float) -> Reply:
        body, headers = None, dict[str, str]()
        if question.write is not None:
            body, headers = question.write(waits if question.waits else None)
        url = address + question.path
        async with self.session.request(
            "GET" if body is None else "POST",
            url,
            data=body,
            headers={**headers, **_of_client.get()},
            timeout=aiohttp.ClientTimeout(total=timeout, sock_connect=_CONNECT_SECONDS),
            allow_redirects=False,
        ) as answer:
            status, kind = answer.status, answer.content_type
            expected = question.kind if status == HTTPStatus.OK else question.failing
            if kind != expected or status not in _STATUSES:
                raise aiohttp.ClientError(f"{url} answers {status} {kind}, which no serving worker does")
            passed_on = {name: answer.headers[name] for name in _PASSED_ON if name in answer.headers}
            return Reply(status, await answer.read(), kind, passed_on, answer.headers.get(LENGTH))

    def answering(self) -> list[list[str]]:
        """For each worker the addresses that have not just failed to answer, and were not found unready."""
        now = time.monotonic()
        return [
            [
                address
                for address in several
                if self._resting.get(address, 0.0) <= now and (worker, address) not in self._failures
            ]
            for worker, several in enumerate(self._workers)
        ]

    def find_readiness(self) -> Readiness:
        """Whether a replica of each serving worker is ready, and what the others were found to do."""
        silent = [worker for worker, addresses in enumerate(self.answering()) if not addresses]
        return Readiness({f"worker {worker}": self._why_silent(worker) for worker in silent})

    def _why_silent(self, worker: int) -> str:
        several = self._workers[worker]
        failed = "{} has not answered a request"
        found = [self._failures.get((worker, address), failed.format(address)) for address in several]
        return "; ".join(found) or "no address of it is known"

    def _in_turn(self, worker: int) -> Sequence[str]:
        """The replicas, starting with the next in turn; those that have just failed to answer are last, so
        that few requests wait for them."""
        several, first, now = self._workers[worker], self._turns[worker], time.monotonic()
        self._turns[worker] += 1
        turned = [several[(first + place) % len(several)] for place in range(len(several))]
        return sorted(turned, key=lambda address: self._resting.get(address, 0.0) > now)

    async def _unless_gone(self, asking: Coroutine[None, None, Reply], worker: int, address: str) -> Reply:
        """Waits for an answer while the worker is held to be there: a cut network says nothing."""
        task = asyncio.create_task(asking)
        try:
            while not (await asyncio.wait([task], timeout=_FOLLOW_SECONDS))[0]:
                if address not in self._workers[worker]:
                    raise aiohttp.ClientError(f"{address} has been replaced")
            return task.result()
        finally:
            task.cancel()


def _check_address(address: object) -> None:
    right = isinstance(address, str) and bool(_ADDRESS.fullmatch(address))
    if right:
        try:
            url = urlsplit(str(address))
            (url.hostname or "").encode("idna")  # as a client does to look up the name
            right = bool(url.hostname) and url.port != 0
        except ValueError:
            right = False
    if not right:
        raise InputError(f"an address must be such as 'http://10.0.0.7:8000', got {address!r}")


def check_addresses(plan: WorkerPlan, workers: Addresses) -> None:
    """Raises InputError unless they are addresses of the serving workers of a plan."""
    listed = isinstance(workers, Sequence) and not isinstance(workers, str)
    if not listed or len(workers) != plan.serving_workers:
        raise InputError(
            f"workers must have addresses for each of {plan.serving_workers} serving workers, got {workers!r}"
        )
    for several in workers:
        if isinstance(several, str) or not isinstance(several, Sequence):
            raise InputError(f"workers must have a list of addresses for each worker, got {several!r}")
        for address in several:
            _check_address(address)
