"""Requests as a server hands them to an ASGI application, and the messages of its answers."""

import asyncio
import json

import httpx
from starlette.types import ASGIApp, Message, Scope


class Request:
    """A request as a server hands it to an application: its body in pieces. cut: the client disconnects
    after them."""

    cut = False

    def __init__(self, path: str, pieces: list[bytes], *headers: tuple[bytes, bytes], **more: str) -> None:
        self.pieces = pieces
        self.scope: Scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "scheme": "http",
            "root_path": "",
            "server": ("127.0.0.1", 80),
            "client": ("127.0.0.1", 9),
            "method": more.get("method", "POST"),
            "path": path,
            "raw_path": path.encode(),
            "query_string": more.get("query", "").encode(),
            "headers": [(b"host", b"a"), *headers],
        }

    def __repr__(self) -> str:
        return f"{self.scope} {self.pieces}"


def answer(app: ASGIApp, request: Request) -> list[Message]:
    """The messages of an answer."""
    waiting: list[Message] = [
        {"type": "http.request", "body": piece, "more_body": request.cut or at + 1 < len(request.pieces)}
        for at, piece in enumerate(request.pieces)
    ]
    sent: list[Message] = []

    async def receive() -> Message:
        return waiting.pop(0) if waiting else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append({**message, "headers": sorted(message.get("headers", ()))})

    asyncio.run(app(dict(request.scope), receive, send))
    return sent


def contents(sent: list[Message]) -> list[Message]:
    """The messages of an answer; JSON as its contents, because numbers are written in more than one way."""
    body = b"".join(message.get("body", b"") for message in sent)
    start = {**sent[0], "headers": [one for one in sent[0]["headers"] if one[0] != b"content-length"]}
    assert (b"content-length", b"%d" % len(body)) in sent[0]["headers"]
    return [start, {"body": json.loads(body)}]


def post(app: ASGIApp, path: str, body: object) -> httpx.Response:
    """The answer to a body in JSON, which may be bytes already."""

    async def request() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            return await client.post(path, content=content, headers={"content-type": "application/json"})

    return asyncio.run(request())
