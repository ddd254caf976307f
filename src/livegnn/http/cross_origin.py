"""Requests of listed pages of other origins (CORS): answers to a browser's preflight, and headers by which it
hands an answer on to the page.
"""

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final

from livegnn.errors import InputError
from livegnn.wording import quoted

if TYPE_CHECKING:
    from starlette.types import Message, Send

_METHODS: Final = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")
_REMEMBERED: Final = b"600"  # seconds in which a browser does not ask again


def asked_method(method: str, headers: dict[bytes, list[bytes]]) -> bytes | None:
    """The method that a preflight names; None for any other request."""
    given = headers.get(b"access-control-request-method")
    return given[0] if method == "OPTIONS" and given and b"origin" in headers else None


def refuse_method(origin: bytes, method: bytes) -> InputError | None:
    """The refusal of a method that no route has."""
    if method.decode("latin-1") in _METHODS:
        return None
    return InputError(
        f"pages of {quoted(origin.decode('latin-1'))} may send {', '.join(_METHODS)}, got "
        f"{quoted(method.decode('latin-1'))}"
    )


def preflight_headers(headers: dict[bytes, list[bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers that admit the request that a preflight announces, beside those of `readable`."""
    asked = headers.get(b"access-control-request-headers", [])
    return [
        (b"access-control-allow-methods", ", ".join(_METHODS).encode()),
        (b"access-control-max-age", _REMEMBERED),
        *[(b"access-control-allow-headers", one) for one in asked],
    ]


def readable(send: "Send", origin: bytes) -> "Send":
    """`send`, with headers by which a browser lets pages of `origin` read the answer."""
    more = [
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", b"*"),
        (b"vary", b"Origin"),
    ]

    def add(message: "Message") -> "Awaitable[None]":
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *more]
        return send(message)

    return add
