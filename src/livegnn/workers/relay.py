"""Small requests to the front end that are for one worker, passed on as their bytes arrive.

    client ──► RelayProtocol ──► Relay ──► Link: a few connections for each worker, many requests under way
           ◄── the worker's answer as it is ──┘

Only a good answer is returned this way. If a worker refuses a request, does not answer in time or cannot be
reached, the application receives the request, tries again and returns the error. A request may be sent twice,
because it changes nothing. Thread safety: belongs to the event loop of the server.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection
from contextlib import suppress
from time import perf_counter
from typing import ClassVar, Final, Protocol, TypeAlias, cast
from urllib.parse import urlsplit

import httptools

from livegnn.http.request_counts import RequestCounts
from livegnn.workers.plan import WorkerPlan
from livegnn.workers.small_requests import Head, SmallRequestProtocol, SmallRequests, read_wanted

PATHS: Final = ("/v1/predictions", "/v1/samples")

PATIENCE: Final = 2.0
"""Seconds in which an answer must come: a small request takes milliseconds."""

_LINKS: Final = 4  # to an address
_MANY: Final = 8  # requests under way on each link, from which on there may be one more
_CONNECT_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 1.0
_LATER: Final = 1 << 16  # bytes of a connection that wait for an answer before them

Answered: TypeAlias = Callable[[bytes | None], None]
"""Takes the content of an answer; None if there is no good one."""


class Workers(Protocol):
    """The addresses of serving workers."""

    def next_of(self, worker: int) -> str | None:
        """The address of the replica whose turn it is; None if there is none, or it has just failed."""

    def addresses(self) -> frozenset[str]:
        """All that there are now."""


class Relay:
    """Passes small requests on. Invariant: every link is open or about to report the requests that it has
    lost."""

    def __init__(self, plan: WorkerPlan, workers: Workers) -> None:
        self._plan, self._workers = plan, workers
        self._links: dict[str, list[_Link]] = {}
        self._opening: dict[str, asyncio.Task[None]] = {}

    def protocol(self, counts: RequestCounts) -> "type[RelayProtocol]":
        """Returns the protocol of a connection: `http` of uvicorn's `Config`. counts: of the requests to the
        same server."""
        members = {"relay": self, "requests": SmallRequests(PATHS), "counts": counts}
        return type("RelayProtocol", (RelayProtocol,), members)

    def send(self, head: Head, body: bytes, answered: Answered) -> bool:
        """Passes a request on, and calls `answered` later; False if it is for the application."""
        worker = self._worker_of(body)
        address = None if worker is None else self._workers.next_of(worker)
        link = None if address is None else self._link_to(address)
        if link is None:
            return False
        link.ask(head.path, body, answered)
        return True

    @property
    def linked(self) -> Collection[str]:
        """The addresses to which requests can be passed on."""
        return [address for address, links in self._links.items() if links]

    async def follow(self) -> None:
        """Opens a link to each worker; closes links that wait for too long, and those to workers that no
        longer exist."""
        loop = asyncio.get_running_loop()
        while True:
            there, now = self._workers.addresses(), loop.time()
            for address, links in list(self._links.items()):
                for link in list(links):
                    if address not in there or now - link.asked_first > PATIENCE:
                        link.close()
            for address in there - set(self.linked):
                self._open(address)
            await asyncio.sleep(_LOOK_SECONDS)

    async def close(self) -> None:
        """Ends all links."""
        opening = list(self._opening.values())
        for task in opening:
            task.cancel()
        await asyncio.gather(*opening, return_exceptions=True)
        links = [link for several in self._links.values() for link in several]
        for link in links:
            link.close()
        for link in links:
            await link.gone.wait()

    def _worker_of(self, body: bytes) -> int | None:
        """The worker of all seeds of a request; None if it is for the application."""
        wanted = read_wanted(body)
        if wanted is None or wanted.min_seq:  # which a worker may have to wait for, and others behind it
            return None
        if not 0 <= min(wanted.ids) <= max(wanted.ids) < 2**63:
            return None
        workers: list[int] = self._plan.serving_worker_of(wanted.ids).tolist()
        return workers[0] if workers.count(workers[0]) == len(workers) else None

    def _link_to(self, address: str) -> "_Link | None":
        """The link with the fewest requests under way; begins to open one where they have many."""
        links = self._links.get(address, [])
        found = min(links, key=lambda link: link.under_way, default=None)
        if (found is None or found.under_way >= _MANY) and len(links) < _LINKS:
            self._open(address)
        return found

    def _open(self, address: str) -> None:
        url = urlsplit(address)
        host, port = url.hostname or "", url.port or 80
        if address in self._opening or url.scheme != "http":
            return

        async def open_link() -> None:
            loop = asyncio.get_running_loop()
            with suppress(OSError, TimeoutError):  # the application finds out and says so
                links = self._links.setdefault(address, [])
                async with asyncio.timeout(_CONNECT_SECONDS):
                    await loop.create_connection(lambda: _Link(loop, links, url.netloc), host, port)

        task = self._opening[address] = asyncio.create_task(open_link())
        task.add_done_callback(lambda _: self._opening.pop(address, None))


class _Link(asyncio.Protocol):
    """A connection to a worker. Answers arrive in the order of requests.

    others: the open links of the same address, of which this is one. gone: set when it has ended.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, others: "list[_Link]", host: str) -> None:
        self._loop, self._others, self._host = loop, others, host.encode()
        self._asked: deque[tuple[float, Answered]] = deque()
        self._parser = httptools.HttpResponseParser(self)
        self._kind, self._content = b"", b""
        self._transport: asyncio.WriteTransport | None = None
        self.gone = asyncio.Event()

    @property
    def under_way(self) -> int:
        """The number of requests without an answer."""
        return len(self._asked)

    @property
    def asked_first(self) -> float:
        """Since when the oldest of them waits; now if there is none."""
        return self._asked[0][0] if self._asked else self._loop.time()

    def ask(self, path: str, body: bytes, answered: Answered) -> None:
        """Sends a request."""
        assert self._transport is not None
        self._asked.append((self._loop.time(), answered))
        self._transport.write(
            b"POST %b HTTP/1.1\r\nhost: %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
            % (path.encode(), self._host, len(body), body)
        )

    def close(self) -> None:
        """Takes no more requests; those under way fail soon."""
        if self in self._others:
            self._others.remove(self)
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self._transport = cast("asyncio.WriteTransport", transport)  # uvloop's class is none of these
        self._others.append(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop."""
        self.close()
        while self._asked:
            self._asked.popleft()[1](None)
        self.gone.set()

    def data_received(self, data: bytes) -> None:
        """Called by the loop."""
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self.close()

    def on_message_begin(self) -> None:
        """Called by the parser."""
        self._kind, self._content = b"", b""

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser."""
        if name.lower() == b"content-type":
            self._kind = value

    def on_body(self, body: bytes) -> None:
        """Called by the parser."""
        self._content += body

    def on_message_complete(self) -> None:
        """Called by the parser."""
        if not self._asked:
            self.close()  # an answer that nobody asked for
            return
        good = self._parser.get_status_code() == 200 and self._kind == b"application/json"
        ends = not self._parser.should_keep_alive()
        _, answered = self._asked.popleft()
        answered(self._content if good else None)
        if ends:
            self.close()


class RelayProtocol(SmallRequestProtocol):
    """A connection whose small requests are passed on.

    Invariant: while a request is under way, `_asked` is all of it, and `_later` the bytes after it.
    """

    relay: ClassVar[Relay]
    counts: ClassVar[RequestCounts]
    _asked: bytes | None = None
    _path, _began = "", 0.0  # of the request that is under way
    _later = b""
    _ends = False  # whether the connection ends after the answer

    @property
    def under_way(self) -> bool:
        """Whether a request was sent to a worker and has no answer."""
        return self._asked is not None

    def take(self, head: Head, body: bytes, data: bytes) -> bool:
        """Passes a small request on; False if it is for the application."""
        if not self.relay.send(head, body, self._answered):
            return False
        self._unset_keepalive_if_required()
        self._asked, self._path, self._began = data, head.path, perf_counter()
        return True

    def may_answer(self) -> bool:
        """Whether all earlier requests have been answered, and the next answer can be written."""
        return self._asked is None and super().may_answer()

    def data_received(self, data: bytes) -> None:
        """Keeps bytes that arrive while a request is under way."""
        if self._asked is None:
            super().data_received(data)
        else:
            self.give_on(data)

    def give_on(self, data: bytes) -> None:
        """Keeps the bytes after a request that is under way; passes others to the parser."""
        if self._asked is None:
            super().give_on(data)
            return
        self._later += data
        if len(self._later) > _LATER:
            self.flow.pause_reading()

    def shutdown(self) -> None:
        """Ends the connection when its request has been answered."""
        if self._asked is None:
            super().shutdown()
        else:
            self._ends = True

    def _answered(self, content: bytes | None) -> None:
        asked, later = self._asked, self._later
        self._asked, self._later = None, b""
        if asked is None or self.transport.is_closing():
            return  # the client has gone
        self.flow.resume_reading()
        if content is None:
            super().give_on(asked)
        else:
            self.write_answer(content)
            self.counts.count(self._path, "POST", 200, perf_counter() - self._began)
        if self._ends:
            super().shutdown()
        if later and not self.transport.is_closing():
            self.data_received(later)
