"""A proxy before a real S3 server that refuses some reads as S3 does when it is asked too much, and counts
them.

A reader asks again if its connection fails or an answer takes long, which a busy machine brings about:
`reads` counts each request, `ranges` holds each range once.
"""

import http.client
import random
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_REFUSAL = (
    b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message>"
    b"</Error>"
)


class RefusingStore(ThreadingHTTPServer):
    """At `port`, before the server at `behind`. share: of the reads, refused with 503; they are drawn."""

    daemon_threads = True
    request_queue_size = 1024  # hundreds of readers connect at once

    def __init__(self, behind: int, share: float = 0.0) -> None:
        super().__init__(("127.0.0.1", 0), _Passing)
        self.behind, self.share, self.port = behind, share, self.server_address[1]
        self.reads = self.refused = self.under_way = self.most_under_way = 0
        self.ranges: set[tuple[str, str]] = set()
        self._random, self._counting = random.Random(7), threading.Lock()
        threading.Thread(target=self.serve_forever).start()

    def close(self) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, *_: object) -> None:
        """A reader has ended its connection, as it does when another of its reads was refused."""

    def begin(self, path: str, asked: str) -> bool:
        """Whether a read is refused."""
        with self._counting:
            self.reads += 1
            self.ranges.add((path, asked))
            self.under_way += 1
            self.most_under_way = max(self.most_under_way, self.under_way)
            refused = self._random.random() < self.share
            self.refused += refused
            return refused

    def end(self) -> None:
        with self._counting:
            self.under_way -= 1


class _Passing(BaseHTTPRequestHandler):
    server: RefusingStore
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # headers and body are two packets

    def do_GET(self) -> None:
        refused = self.server.begin(self.path, self.headers.get("Range", ""))
        try:
            if refused:
                self.answer(503, {"Content-Type": "application/xml"}, _REFUSAL)
            else:
                self.pass_on()
        finally:
            self.server.end()

    def pass_on(self) -> None:
        behind = http.client.HTTPConnection("127.0.0.1", self.server.behind)
        try:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            behind.request(self.command, self.path, body, dict(self.headers))  # with the host that was signed
            found = behind.getresponse()
            content = found.read()
        finally:
            behind.close()
        hop = ("connection", "transfer-encoding", "content-length", "date", "server")
        kept = {name: value for name, value in found.getheaders() if name.lower() not in hop}
        size = found.getheader("content-length", "0") if self.command == "HEAD" else str(len(content))
        self.answer(found.status, {**kept, "Content-Length": size}, content)

    def answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    do_PUT = do_HEAD = do_POST = do_DELETE = pass_on

    def log_message(self, *_: object) -> None:
        pass
