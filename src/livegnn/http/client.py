"""Requests of our own commands to a running server: the address, the key, and errors as it says them."""

import http.client
import io
import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from livegnn.errors import InputError, LiveGNNError, OverloadedError
from livegnn.wording import quoted

if TYPE_CHECKING:
    from livegnn.types import JSON

HERE: Final = "http://127.0.0.1:8080"
_ANSWER_SECONDS: Final = 300.0  # without any byte
_UNAVAILABLE: Final = (502, 503, 504)


class RequestRefused(InputError):
    """A request that the server refuses, with the status of its answer."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class NoAnswer(LiveGNNError):
    """A server that does not answer, or that does not work now. The request may have taken effect."""


class AnswerCut(NoAnswer):
    """An answer that has begun, and does not go on to its end."""


class ServerClient:
    """Requests to a server. Raises InputError if `address` is none.

    The key is the environment's LIVEGNN_KEY: other users of the machine could read an option.

    Thread safety: it is not changed.
    """

    def __init__(self, address: str) -> None:
        if not _is_address(address):
            raise InputError(f"--server must be an address such as {HERE}, got {quoted(address)}")
        self.address = address.rstrip("/")

    def ask(
        self, method: str, path: str, body: bytes | None = None, media_type: str = "application/json"
    ) -> "dict[str, JSON]":
        """The answer. Raises RequestRefused, OverloadedError for one that the
        server takes later, and NoAnswer."""
        with self.open(method, path, body, media_type) as answer:
            try:
                found = json.load(answer)
            except ValueError as error:
                raise NoAnswer(f"{self.address} does not answer as a LiveGNN server does: {error}") from error
        if not isinstance(found, dict):
            raise NoAnswer(f"{self.address} does not answer as a LiveGNN server does: {quoted(found)}")
        return found

    @contextmanager
    def open(
        self, method: str, path: str, body: bytes | None = None, media_type: str = "application/json"
    ) -> "Iterator[io.RawIOBase]":
        """An answer of any length, while it is read. Raises as `ask`. Reads raise AnswerCut if it ends early,
        or if nothing arrives for five minutes.
        """
        headers = {} if body is None else {"content-type": media_type}
        if key := os.environ.get("LIVEGNN_KEY"):
            if not (key.isascii() and key.isprintable()):
                raise InputError("LIVEGNN_KEY must be a key of livegnn key create, got another text")
            headers["authorization"] = f"Bearer {key}"
        request = urllib.request.Request(self.address + path, body, headers, method=method)
        with self._begin(request) as answer:
            yield _Answer(answer, self.address)

    def _begin(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        try:
            answer: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=_ANSWER_SECONDS)
        except urllib.error.HTTPError as error:
            raise _refusal(error) from error
        except urllib.error.URLError as error:
            raise NoAnswer(f"{self.address} does not answer: {error.reason}") from error
        except TimeoutError as error:
            raise NoAnswer(f"{self.address} does not answer: {_silence()}") from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise NoAnswer(f"{self.address} does not answer as a LiveGNN server does: {error}") from error
        return answer


class _Answer(io.RawIOBase):
    """Reads an answer, and raises AnswerCut if it does not go on: other errors are not of the server."""

    def __init__(self, answer: http.client.HTTPResponse, address: str) -> None:
        self._answer, self._address = answer, address

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        """As much as that, and less only at the end."""
        try:
            data = self._answer.read(None if size < 0 else size)
        except TimeoutError as error:
            raise self._cut(_silence()) from error
        except (OSError, http.client.HTTPException) as error:
            raise self._cut("the connection was cut before its end") from error
        if len(data) < size and self._answer.length:
            raise self._cut("the connection was cut before its end")
        return data

    def _cut(self, why: str) -> AnswerCut:
        return AnswerCut(f"the answer of {self._address} is not complete: {why}")


def _silence() -> str:
    return f"nothing arrived for {_ANSWER_SECONDS:g} seconds"


def _is_address(address: str) -> bool:
    try:
        parts = urllib.parse.urlsplit(address)
        alone = not (parts.query or parts.fragment)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and alone
    except ValueError:  # of a port, or of brackets
        return False


def _refusal(error: urllib.error.HTTPError) -> LiveGNNError:
    """The error for a request that a server refuses, with its reason."""
    try:
        reason = str(json.load(error)["detail"])
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
        reason = f"the server answered {error.code} {error.reason}"
    if error.code == 429:
        return OverloadedError(reason, retry_after=_seconds(error.headers.get("retry-after")))
    return NoAnswer(reason) if error.code in _UNAVAILABLE else RequestRefused(reason, error.code)


def _seconds(retry_after: str | None) -> float:
    return float(retry_after) if retry_after is not None and retry_after.isdecimal() else 1.0
