"""Small requests, answered as their bytes come: a framework's parsing, routing, models and responses cost
several times what a prediction does.

Only what is certainly right is answered here. Anything else, errors included, goes on to the application as
it came, so there is one place that says what is wrong.
Thread safety: belongs to the event loop of the server.
"""

from collections.abc import Callable, Mapping
from typing import ClassVar, Final, NamedTuple

import httptools
import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from livegnn.events.repeated_keys import repeated_key
from livegnn.types import JSON
from livegnn.workers.serving import ServingWorker

_FIELDS: Final = {"ids", "min_seq"}
_LARGEST: Final = 4096  # bytes of a head, and of a body; longer ones are not what this is for
_FEW: Final = 16  # ids that are answered in the loop of the server: a tenth of a millisecond each at most
_HEADS: Final = 1024  # that are known at a time; a client's differ by the length of the body
_JSON: Final = (b"application/json", b"application/json; charset=utf-8")
_OTHERS: Final = (b"transfer-encoding", b"content-encoding", b"expect", b"upgrade")

SmallAnswer = Callable[[list[int]], dict[str, object]]
"""From ids to the content of an answer; raises LiveGNNError."""


class Head(NamedTuple):
    """What the head of a small request says. length: bytes of the body."""

    answer: SmallAnswer
    length: int


class HotPath:
    """Answers small JSON bodies `{"ids": [...], "min_seq": ...}` sent to the paths of `answers`.

    worker: whose `seq` must have reached `min_seq`.
    """

    def __init__(self, worker: ServingWorker, answers: Mapping[str, SmallAnswer]) -> None:
        self._worker, self._answers = worker, answers
        self._heads: dict[bytes, Head | None] = {}

    def protocol(self) -> "type[HotPathProtocol]":
        """What uvicorn makes for each connection, as `http` of its `Config`."""
        return type("HotPathProtocol", (HotPathProtocol,), {"hot": self})

    def head_of(self, lines: bytes) -> Head | None:
        """What the lines of a head say, without the empty one; None if the request is for the application."""
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

    def text_of(self, head: Head, body: bytes) -> bytes | None:
        """The body of the answer; None if the request is for the application."""
        try:
            wanted = orjson.loads(body)
            if self._takes(wanted) and not repeated_key(body, wanted):
                return orjson.dumps(head.answer(wanted["ids"]), option=orjson.OPT_SERIALIZE_NUMPY)
        except Exception:  # whatever it is, the application tells the client
            return None
        return None

    def _read(self, lines: bytes) -> Head | None:
        parts = _Parts()
        parser = httptools.HttpRequestParser(parts)
        try:
            parser.feed_data(lines + b"\r\n\r\n")
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            return None
        answer = self._answers.get(parts.url.decode("latin-1"))
        lengths = [value for name, value in parts.headers if name == b"content-length"]
        kinds = [value.lower() for name, value in parts.headers if name == b"content-type"]
        if (
            answer is None
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
        return Head(answer, int(lengths[0]))

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


class HotPathProtocol(HttpToolsProtocol):
    """uvicorn's connection, which looks at requests that come one at a time before it parses them.

    Invariant: `_held`, the head of a small request whose body has not come, lies between two requests that
    the connection has parsed.
    """

    hot: ClassVar[HotPath]
    _held = b""
    _between = True  # whether what comes next begins a request

    def on_message_begin(self) -> None:
        """Called by the parser."""
        self._between = False
        super().on_message_begin()

    def on_message_complete(self) -> None:
        """Called by the parser."""
        super().on_message_complete()
        self._between = True

    def data_received(self, data: bytes) -> None:
        """Answers a small request; gives anything else to the parser."""
        if self._held:
            data, self._held = self._held + data, b""
        if not (self._may_answer() and self._answer(data)):
            super().data_received(data)

    def shutdown(self) -> None:
        """Ends the connection when its request has been answered."""
        if self._held:
            data, self._held = self._held, b""
            super().data_received(data)
        super().shutdown()

    def _may_answer(self) -> bool:
        return (
            self._between
            and (self.cycle is None or self.cycle.response_complete)
            and not self.flow.write_paused
            and self.limit_concurrency is None
            and not self.transport.is_closing()
        )

    def _answer(self, data: bytes) -> bool:
        """Whether this is the whole or the head of a small request, which is then answered or held."""
        end = data.find(b"\r\n\r\n")
        head = None if end < 0 else self.hot.head_of(data[:end])
        if head is None:
            return False
        missing = end + 4 + head.length - len(data)
        if missing:
            if missing > 0:
                self._held = data
                self._unset_keepalive_if_required()
            return missing > 0
        text = self.hot.text_of(head, data[end + 4 :])
        if text is None:
            return False
        said = b"".join([b"%b: %b\r\n" % pair for pair in self.server_state.default_headers])
        self.transport.write(
            b"HTTP/1.1 200 OK\r\n%bcontent-length: %d\r\ncontent-type: application/json\r\n\r\n%b"
            % (said, len(text), text)
        )
        self.on_response_complete()
        return True


class _Parts:
    """What a parser finds in a head."""

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
