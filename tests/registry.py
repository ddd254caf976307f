"""A registry of schemas: the HTTP interface by which Confluent's client asks for one, and writers of Avro."""

import io
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import fastavro


class Registry(ThreadingHTTPServer):
    """is_away: whether a proxy answers in its place. schemas: by number. subjects: by subject and version,
    for references. status: of all answers, if it is not 200."""

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Answering)
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[tuple[str, int], dict[str, Any]] = {}
        self.status, self.asked, self.is_away = 200, 0, False
        self.keys: list[str | None] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def add(self, schema: Any, **others: Any) -> int:
        """The number of a schema."""
        number = len(self.schemas) + 7
        self.schemas[number] = {"schema": json.dumps(schema), **others}
        return number


class _Answering(BaseHTTPRequestHandler):
    server: Registry

    def do_GET(self) -> None:
        self.server.asked += 1
        self.server.keys.append(self.headers.get("Authorization"))
        parts = self.path.partition("?")[0].strip("/").split("/")
        found: dict[str, Any] | None = None
        if parts[:2] == ["schemas", "ids"]:
            found = self.server.schemas.get(int(parts[2]))
        elif parts[0] == "subjects":
            found = self.server.subjects.get((parts[1], int(parts[3])))
        status = self.server.status if self.server.status != 200 else 200 if found else 404
        content = found if status == 200 else {"error_code": status * 100 + 3, "message": "refused"}
        body = b"<html>no backend</html>" if self.server.is_away else json.dumps(content).encode()
        status = 404 if self.server.is_away else status
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def served(registry: Registry) -> Iterator[Registry]:
    thread = threading.Thread(target=registry.serve_forever)
    thread.start()
    try:
        yield registry
    finally:
        registry.shutdown()
        thread.join()
        registry.server_close()


def message(number: int, schema: Any, record: Any) -> bytes:
    """A record as Confluent's serializer writes it."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), record)
    return b"\0" + number.to_bytes(4, "big") + stream.getvalue()
