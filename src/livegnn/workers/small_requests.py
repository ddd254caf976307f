"""Small requests, recognised as their bytes arrive: a framework's parsing, routing, models and responses cost
several times as much as a prediction.

Only requests that are certainly valid are taken here. The application receives all others unchanged, errors
included, so there is one place that reports errors. Thread safety: belongs to the event loop of the server.
"""

from abc import abstractmethod
from collections.abc import Collection
from typing import ClassVar, Final, NamedTuple

import httptools
import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from livegnn.events.repeated_keys import repeated_key

_FIELDS: Final = {"ids", "min_seq"}
_LARGEST: Final = 4096  # bytes of a head, and of a body; longer ones are not what this is for
_FEW: Final = 16  # ids that are answered in the loop of the server: a tenth of a millisecond each at most
_HEADS: Final = 1024  # that are known at a time; a client's differ by the length of the body
_JSON: Final = (b"application/json", b"application/json; charset=utf-8")
_OTHERS: Final = (b"transfer-encoding", b"content-encoding", b"expect", b"upgrade")


class Head(NamedTuple):
    """The contents of the head of a small request. length: bytes of the body."""

    path: str
    length: int


class Wanted(NamedTuple):
    """The contents of the body of a small request."""

    ids: list[int]
    min_seq: int


class SmallRequests:
    """Recognises small requests: `POST` of a small JSON body to one of `paths`."""

    def __init__(self, paths: Collection[str]) -> None:
        self._paths = frozenset(paths)
        self._heads: dict[bytes, Head | None] = {}

    def head_of(self, lines: bytes) -> Head | None:
        """The contents of the lines of a head, without the empty one; None if the request is for the
        application."""
        try:
            return self._heads[lines]
        except KeyError:
            pass
        if len(lines) > _LARGEST:
            return None
        if len(self._heads) == _HEADS:
            self._heads.clear()
        found = self._heads[lines] = self._read(lines)
        return found

    def _read(self, lines: bytes) -> Head | None:
        parts = _Parts()
        parser = httptools.HttpRequestParser(parts)
        try:
            parser.feed_data(lines + b"\r\n\r\n")
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            return None
        path = parts.url.decode("latin-1")
        lengths = [value for name, value in parts.headers if name == b"content-length"]
        kinds = [value.lower() for name, value in parts.headers if name == b"content-type"]
        if (
            path not in self._paths
            or not parts.complete
            or parser.get_method() != b"POST"
            or parser.get_http_version() != "1.1"
            or not parser.should_keep_alive()
            or any(name in _OTHERS for name, _ in parts.headers)
            or any(kind not in _JSON for kind in kinds)
            or len(lengths) != 1
            or not lengths[0].isdigit()
            or not 0 < int(lengths[0]) <= _LARGEST
        ):
            return None
        return Head(path, int(lengths[0]))


def read_wanted(body: bytes) -> Wanted | None:
    """The ids and `min_seq` of a body `{"ids": [...], "min_seq": ...}` with a few numbers; None if it is for
    the application."""
    try:
        given = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(given, dict) or not given.keys() <= _FIELDS:
        return None
    ids, min_seq = given.get("ids"), given.get("min_seq", 0)
    if (
        not isinstance(ids, list)
        or not 0 < len(ids) <= _FEW
        or not all(type(id) is int for id in ids)
        or type(min_seq) is not int
        or min_seq < 0
        or repeated_key(body, given)
    ):
        return None
    return Wanted(ids, min_seq)


class SmallRequestProtocol(HttpToolsProtocol):
    """uvicorn's connection, which looks for small requests before it parses the bytes.

    Invariant: `_held`, an incomplete small request, begins between two requests that the connection has
    parsed.
    """

    requests: ClassVar[SmallRequests]
    _held = b""
    _between = True  # whether the next bytes begin a request

    @abstractmethod
    def take(self, head: Head, body: bytes, data: bytes) -> bool:
        """Answers a small request, now or later; False if it is for the application. data: all its bytes."""

    def on_message_begin(self) -> None:
        """Called by the parser."""
        self._between = False
        super().on_message_begin()

    def on_message_complete(self) -> None:
        """Called by the parser."""
        super().on_message_complete()
        self._between = True

    def data_received(self, data: bytes) -> None:
        """Takes small requests; gives anything else to the parser."""
        if self._held:
            data, self._held = self._held + data, b""
        begin = 0
        while begin < len(data) and self.may_answer():
            end = data.find(b"\r\n\r\n", begin)
            head = None if end < 0 else self.requests.head_of(data[begin:end])
            if head is None:
                break
            after = end + 4 + head.length
            if after > len(data):
                self._held = data[begin:]
                self._unset_keepalive_if_required()
                return
            if not self.take(head, data[end + 4 : after], data[begin:after]):
                break
            begin = after
        if begin < len(data):
            self.give_on(data[begin:])

    def give_on(self, data: bytes) -> None:
        """Takes the bytes after small requests."""
        super().data_received(data)

    def shutdown(self) -> None:
        """Ends the connection when its request has been answered."""
        if self._held:
            data, self._held = self._held, b""
            super().data_received(data)
        super().shutdown()

    def may_answer(self) -> bool:
        """Whether all earlier requests have been answered, and the next answer can be written."""
        return (
            self._between
            and (self.cycle is None or self.cycle.response_complete)
            and not self.flow.write_paused
            and self.limit_concurrency is None
            and not self.transport.is_closing()
        )

    def write_answer(self, text: bytes) -> None:
        """Answers the request with JSON."""
        said = b"".join([b"%b: %b\r\n" % pair for pair in self.server_state.default_headers])
        self.transport.write(
            b"HTTP/1.1 200 OK\r\n%bcontent-length: %d\r\ncontent-type: application/json\r\n\r\n%b"
            % (said, len(text), text)
        )
        self.on_response_complete()


class _Parts:
    """The parts that a parser finds in a head."""

    def __init__(self) -> None:
        self.url = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.complete = False

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.complete = True
