"""The front end of serving workers: sends each seed to the worker that has it.

It divides the ids of a request, sends each worker its part, and joins the answers; its `seq` is the least of
theirs. If workers can move, it reads their addresses repeatedly.
"""

import asyncio
import logging
import re
import ssl
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Final, NamedTuple, TypeAlias, cast
from urllib.parse import urlsplit

import aiohttp
import numpy as np
import orjson
from fastapi import APIRouter, FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response
from prometheus_client.core import Metric

from livegnn.errors import InputError, WorkerUnavailableError
from livegnn.http.guard import Access
from livegnn.http.metrics import gauge
from livegnn.http.problems import PROBLEM_JSON
from livegnn.http.tls import Tls
from livegnn.readiness import Readiness
from livegnn.server.bodies import to_json
from livegnn.server.query import CheckedRoute
from livegnn.types import IntArray
from livegnn.workers.app import MOST_IDS, ids_of, make_application, read_request
from livegnn.workers.plan import WorkerPlan

Addresses: TypeAlias = Sequence[Sequence[str]]

_SECONDS: Final = 5.0  # for the most ids, beyond what a request may wait
_LEAST_SECONDS: Final = 0.5  # the same for a few
_SOON: Final = 0.001  # a request may not say that it does not wait
_CONNECT_SECONDS: Final = 1.0
_FOLLOW_SECONDS: Final = 1.0  # between two questions where the workers are
_RETRY_SECONDS: Final = 0.1
_REST_SECONDS: Final = 5.0
_KEEP_SECONDS: Final = 4.0  # a connection that is not used; a worker ends it after five
_STATUSES: Final = {HTTPStatus.OK, *range(400, 600)}
_PASSED_ON: Final = ("retry-after", "www-authenticate")
_PASSED_IN: Final = ("authorization",)
_ADDRESS: Final = re.compile(r"https?://[^\s/?#@%\\]+")
_logger = logging.getLogger(__name__)


def create_front(
    plan: WorkerPlan,
    workers: Addresses | Callable[[], Addresses],
    access: Access | None = None,
    tls: Tls | None = None,
) -> FastAPI:
    """The front end as an ASGI application.

    workers: for each serving worker of the plan the addresses of its replicas, such as
    ``"http://10.0.0.7:8000"``; requests are sent to them in turn, and to the next if one does not answer. Or
    a function that returns their present addresses, which is called in a thread each second: then a request
    to a worker without an answering replica waits for one, for its `timeout`. access: the clients to admit;
    None admits every request. Workers receive a client's key, and decide for themselves. tls: the certificate
    that is shown to workers which ask for one; their own is checked with the authorities of the system, or
    those of SSL_CERT_FILE. Raises InputError.
    """
    if not callable(workers):
        _check(plan, workers)
        if not all(workers):
            raise InputError(f"each serving worker must have an address, got {workers!r}")
    front = _Front(plan, workers)

    @asynccontextmanager
    async def run(app: FastAPI) -> AsyncIterator[None]:
        trusted = ssl.create_default_context()
        if tls is not None:
            trusted.load_cert_chain(tls.certificate, tls.key)
        connections = aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_SECONDS, ssl=trusted)
        async with aiohttp.ClientSession(connector=connections) as front.session:
            following = asyncio.create_task(front.follow())
            try:
                yield
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)

    router = APIRouter(route_class=CheckedRoute)

    @router.post("/v1/predictions")
    async def predict(request: Request) -> Response:
        return await front.forward(request, "/v1/predictions")

    @router.post("/v1/samples")
    async def sample(request: Request) -> Response:
        return await front.forward(request, "/v1/samples")

    @router.get("/readyz")
    @router.get("/v1/health")
    async def health() -> Response:
        answering = front.answering()
        readiness = _readiness_of(answering)
        content: dict[str, object] = {"workers": answering}
        if not readiness.ready:
            content["reasons"] = readiness.reasons
        return to_json(content, 200 if readiness.ready else 503)

    def collect() -> Iterator[Metric]:
        answering = front.answering()
        yield gauge("up", "1 while a replica of each worker answers", _readiness_of(answering).ready)
        replicas = {str(worker): len(addresses) for worker, addresses in enumerate(answering)}
        yield gauge("answering_replicas", "Replicas of a serving worker that answer", replicas, "worker")

    app = make_application("LiveGNN front end", router, collect, lifespan=run, access=access)
    app.state.find_readiness = lambda: _readiness_of(front.answering())
    return app


def _readiness_of(answering: Sequence[Sequence[str]]) -> Readiness:
    """Whether a replica of each serving worker answers."""
    silent = [worker for worker, addresses in enumerate(answering) if not addresses]
    return Readiness({f"worker {worker}": "no replica of it answers" for worker in silent})


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


class _Part(NamedTuple):
    """The part of a request for one worker. wanted: the body. headers: of the client, which are passed on."""

    path: str
    wanted: dict[str, object]
    headers: dict[str, str]


class _Answer(NamedTuple):
    status: int
    content: bytes
    media_type: str
    headers: dict[str, str]


def _joined(ids: IntArray, places: Sequence[Sequence[int]], answers: Sequence[_Answer]) -> dict[str, object]:
    """One answer of those of several workers. places: for each, the positions of its ids among `ids`."""
    parts = [orjson.loads(answer.content) for answer in answers]
    whole: dict[str, object] = {"seq": min(part["seq"] for part in parts), "ids": ids}
    for column in parts[0].keys() - whole.keys():
        rows: list[object] = [None] * len(ids)
        for own, part in zip(places, parts, strict=True):
            for place, row in zip(own, part[column], strict=True):
                rows[place] = row
        whole[column] = rows
    return whole


class _Front:
    """Belongs to the event loop of the server. session: of that loop, while it runs."""

    session: aiohttp.ClientSession

    def __init__(self, plan: WorkerPlan, workers: Addresses | Callable[[], Addresses]) -> None:
        self._plan = plan
        self._find = workers if callable(workers) else None
        self._workers: Addresses = [[]] * plan.serving_workers if callable(workers) else workers
        self._turns = [0] * plan.serving_workers
        self._resting: dict[str, float] = {}  # until when no request should wait for a replica
        self._finding = asyncio.Lock()
        self._found = -1.0  # when it was last asked where the workers are

    async def follow(self) -> None:
        """Keeps the addresses up to date, where they can change."""
        while self._find is not None:
            await self._refresh(time.monotonic())
            await asyncio.sleep(_FOLLOW_SECONDS)

    async def _refresh(self, since: float) -> None:
        """Reads the addresses of the workers, unless another thread has since. A failed read is repeated
        later."""
        async with self._finding:
            if self._find is None or self._found >= since:
                return
            asked = time.monotonic()
            try:
                found = await run_in_threadpool(self._find)
                _check(self._plan, found)
            except Exception as error:  # after any error, requests use the known addresses
                _logger.warning("the addresses of serving workers are not known: %s", error)
                return
            self._workers, self._found = found, asked

    async def forward(self, request: Request, path: str) -> Response:
        """The answer to a request whose answers have columns with a row for each id."""
        wanted = await read_request(request)
        ids = ids_of(wanted)
        owners = self._plan.serving_worker_of(ids)
        places = [np.flatnonzero(owners == worker) for worker in range(self._plan.serving_workers)]
        asked = [worker for worker, place in enumerate(places) if len(place)] or [0]
        given = wanted.model_dump(exclude_defaults=True)
        ends = time.monotonic() + wanted.timeout
        headers = {name: request.headers[name] for name in _PASSED_IN if name in request.headers}
        answers = await asyncio.gather(
            *(
                self._ask(worker, _Part(path, {**given, "ids": ids[places[worker]].tolist()}, headers), ends)
                for worker in asked
            )
        )
        for answer in answers:
            if answer.status != HTTPStatus.OK or len(answers) == 1:
                return Response(answer.content, answer.status, answer.headers, answer.media_type)
        try:
            return to_json(_joined(ids, [places[worker].tolist() for worker in asked], answers))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise WorkerUnavailableError(
                f"expected serving workers at {self._workers}, got an answer of something else: {error!r}"
            ) from error

    async def _ask(self, worker: int, part: _Part, ends: float) -> _Answer:
        """The answer of a replica. Raises WorkerUnavailableError if none answers."""
        while True:
            asked, several = time.monotonic(), self._workers[worker]
            answer, failure = await self._ask_in_turn(worker, part, ends)
            if answer is not None:
                return answer
            if self._find is None or time.monotonic() >= ends:
                known = ", ".join(several) or "an address"
                raise WorkerUnavailableError(f"expected serving worker {worker} at {known}, got {failure}")
            await self._refresh(asked)
            if self._workers[worker] == several:
                await asyncio.sleep(_RETRY_SECONDS)

    async def _ask_in_turn(self, worker: int, part: _Part, ends: float) -> tuple[_Answer | None, str]:
        """The answer of the first replica that gives one, or why none did. One that cannot answer yet (503)
        is the answer of all where no other can. Each may wait for an equal part of the time that is left."""
        behind, failure = None, "none"
        several = self._in_turn(worker)
        beyond = _LEAST_SECONDS + _SECONDS * len(cast("list[int]", part.wanted["ids"])) / MOST_IDS
        for place, address in enumerate(several):
            waits = max(_SOON, ends - time.monotonic()) / (len(several) - place)
            # Without either of the two a worker has nothing to wait for, and answers small requests at once.
            told = {"timeout": waits} if part.wanted.keys() & {"min_seq", "timeout"} else {}
            body = orjson.dumps({**part.wanted, **told})
            asking = self._post(address + part.path, body, part.headers, waits + beyond)
            try:
                answer = await (asking if self._find is None else self._unless_gone(asking, worker, address))
            except (aiohttp.ClientError, TimeoutError) as error:
                failure = f"{type(error).__name__}: {error}"
            else:
                if answer.status != HTTPStatus.SERVICE_UNAVAILABLE:
                    self._resting.pop(address, None)
                    return answer, ""
                behind = answer
            self._resting[address] = time.monotonic() + _REST_SECONDS
        return behind, failure

    async def _post(self, url: str, body: bytes, headers: Mapping[str, str], timeout: float) -> _Answer:
        async with self.session.post(
            url,
            data=body,
            headers={"content-type": "application/json", **headers},
            timeout=aiohttp.ClientTimeout(total=timeout, sock_connect=_CONNECT_SECONDS),
            allow_redirects=False,
        ) as answer:
            status, kind = answer.status, answer.content_type
            expected = "application/json" if status == HTTPStatus.OK else PROBLEM_JSON
            if kind != expected or status not in _STATUSES:
                raise aiohttp.ClientError(f"{url} answers {status} {kind}, which no serving worker does")
            passed = {name: answer.headers[name] for name in _PASSED_ON if name in answer.headers}
            return _Answer(status, await answer.read(), kind, passed)

    def answering(self) -> list[list[str]]:
        """For each worker the addresses that have not just failed to answer."""
        now = time.monotonic()
        return [
            [address for address in several if self._resting.get(address, 0.0) <= now]
            for several in self._workers
        ]

    def _in_turn(self, worker: int) -> Sequence[str]:
        """The replicas, starting with the next in turn; those that have just failed to answer are last, so
        that few requests wait for them."""
        several, first, now = self._workers[worker], self._turns[worker], time.monotonic()
        self._turns[worker] += 1
        turned = [several[(first + place) % len(several)] for place in range(len(several))]
        return sorted(turned, key=lambda address: self._resting.get(address, 0.0) > now)

    async def _unless_gone(
        self, asking: Coroutine[None, None, _Answer], worker: int, address: str
    ) -> _Answer:
        """Waits for an answer while the worker is held to be there: a cut network says nothing."""
        task = asyncio.create_task(asking)
        try:
            while not (await asyncio.wait([task], timeout=_FOLLOW_SECONDS))[0]:
                if address not in self._workers[worker]:
                    raise aiohttp.ClientError(f"{address} has been replaced")
            return task.result()
        finally:
            task.cancel()


def _check(plan: WorkerPlan, workers: Addresses) -> None:
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
