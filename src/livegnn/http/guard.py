"""Admits requests by their key, their host and their origin, before any of them reaches an application.

A page in a browser may send requests to any address. Two rules keep the pages of strangers out, with keys and
without: the host must be one of ours, because a stranger may point the name of a page at our address (DNS
rebinding); an origin must be the host itself, or listed.
"""

import ipaddress
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import urlsplit

from livegnn.errors import InputError, LiveGNNError
from livegnn.http.cross_origin import asked_method, preflight_headers, readable, refuse_method
from livegnn.http.keys import NO_LIMITS, Key, KeyFile
from livegnn.http.keys import Scope as Needed
from livegnn.http.limits import AddressUses, KeyUses, client_of
from livegnn.http.problems import problem_of, write
from livegnn.http.refusals import KeyForbids, KeyMissing, KeyUnknown, UnknownHost, UnknownOrigin
from livegnn.http.scopes import scope_of
from livegnn.wording import quoted

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_Headers: TypeAlias = dict[bytes, list[bytes]]

_OWN_HOSTS: Final = ("localhost",)
_PORTS: Final = {"http": ":80", "https": ":443"}
_OLD: Final = ("1.0", "1")  # as the specification of ASGI, and granian, call it
_MOST_ADMITTED: Final = 64
_READ: Final = {
    b"host",
    b"origin",
    b"authorization",
    b"access-control-request-method",
    b"access-control-request-headers",
}
_BEARER: Final = b"Bearer "
_CHALLENGE: Final = 'Bearer realm="livegnn"'


@dataclass(frozen=True)
class Access:
    """The clients to admit. keys: None if requests need no key. hosts: names of this server, besides
    addresses and localhost; "*" for any. origins: pages that may send requests, as in
    "https://dashboard.example". requests_per_address: open at once; 0 for any number.
    """

    keys: KeyFile | None = None
    hosts: Collection[str] = ()
    origins: Collection[str] = ()
    requests_per_address: int = 0


class Guard:
    """An ASGI application that passes admitted requests on to another one.

    Thread safety: that of the application behind it.
    """

    def __init__(self, app: "ASGIApp", access: Access, clock: Callable[[], float] = time.monotonic) -> None:
        self._app, self._access = app, access
        self._keys, self._addresses = KeyUses(clock), AddressUses(access.requests_per_address)
        self._admitted: set[bytes] = set()  # hosts; to parse one takes as long as a prediction

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = _headers_of(scope)
        refusal = self._refuse_place(scope, headers)
        if refusal is None and b"origin" in headers:
            (page,) = headers[b"origin"]
            send = readable(send, page)
            if (method := asked_method(scope["method"], headers)) is not None:
                await _answer_preflight(scope, send, headers, refuse_method(page, method))
                return
        if refusal is not None:
            await _refuse(scope, send, refusal)
            return
        needed = scope_of(scope.get("method", "GET"), scope["path"])
        if needed is None:
            await self._app(scope, receive, send)
            return
        given, path, use = headers.get(b"authorization", []), scope["path"], None
        client = client_of(scope.get("client"))
        try:
            key = self._find_key(needed, given)
            use = None if key is None else self._keys.begin(key, path)
            self._addresses.begin(client)
        except LiveGNNError as error:
            if use is not None:
                use.end(path)
            await _refuse(scope, send, error)
            return
        try:
            await self._app(
                scope,
                receive if use is None else use.count_body(receive),
                self._while_valid(given[0], send) if given else send,
            )
        finally:
            self._addresses.end(client)
            if use is not None:
                use.end(path)

    def admits_at_once(self, scope: "Scope", needed: Needed) -> bool:
        """Whether a request in a usual form, which needs the scope `needed`, may be answered without the
        guard. Where it is False, the request is unusual, or is refused: call the guard with it.
        """
        host = given = None
        for name, value in scope["headers"]:
            if name == b"host" and host is None:
                host = value
            elif name == b"authorization" and given is None:
                given = value
            elif name in _READ:
                return False
        if host not in self._admitted or self._addresses.is_full(client_of(scope.get("client"))):
            return False
        if self._access.keys is None:
            return True
        key = self._access.keys.find(given[len(_BEARER) :]) if given and given.startswith(_BEARER) else None
        return key is not None and key.admits(needed) and key.limits is NO_LIMITS

    def begin(self, scope: "Scope") -> str:
        """Counts a request that was admitted at once, until `end` is called with its client, the result."""
        client = client_of(scope.get("client"))
        self._addresses.begin(client)
        return client

    def end(self, client: str) -> None:
        """The request has ended."""
        self._addresses.end(client)

    def _while_valid(self, given: bytes, send: "Send") -> "Send":
        """Ends an answer in parts, such as a feed, once its key was revoked."""
        keys = self._access.keys
        if keys is None:
            return send

        def check(message: "Message") -> "Awaitable[None]":
            is_part = message.get("more_body")
            if is_part and keys.find(given.partition(b" ")[2].strip()) is None:
                return _end(send)
            return send(message)

        return check

    def _refuse_place(self, scope: "Scope", headers: _Headers) -> LiveGNNError | None:
        """Refuses hosts and origins."""
        # A probe; granian adds an empty host to a request that names none.
        named = any(headers.get(b"host", ())) or b"origin" in headers
        if scope.get("http_version") in _OLD and not named:
            return None
        hosts = headers.get(b"host", [])
        return self._refuse_host(hosts) or self._refuse_origin(headers.get(b"origin", []), hosts)

    def _refuse_host(self, hosts: list[bytes]) -> LiveGNNError | None:
        if len(hosts) != 1:
            return InputError(f"a request must name one host, got {len(hosts)}")
        if hosts[0] in self._admitted:
            return None
        name = _host_name(hosts[0])
        if "*" in self._access.hosts or name in _OWN_HOSTS or name in self._access.hosts or _is_address(name):
            if len(self._admitted) < _MOST_ADMITTED:
                self._admitted.add(hosts[0])
            return None
        return UnknownHost(
            f"this server does not answer for the host {quoted(name)}: ask its address, or add the name to "
            "its hosts"
        )

    def _refuse_origin(self, origins: list[bytes], hosts: list[bytes]) -> LiveGNNError | None:
        """Refuses unknown origins. Clients other than browsers send none."""
        if len(origins) > 1:
            return InputError(f"a request must name one origin, got {len(origins)}")
        for origin in origins:
            text = origin.decode("latin-1")
            origin_given = _normal_origin(text)
            scheme = text.partition(":")[0]
            own = _normal_origin(f"{scheme}://{hosts[0].decode('latin-1')}")
            if origin_given is None or origin_given not in (own, *map(_normal_origin, self._access.origins)):
                return UnknownOrigin(
                    f"pages of {quoted(text)} may not ask: add it to the origins of the server"
                )
        return None

    def _find_key(self, needed: Needed, given: list[bytes]) -> Key | None:
        """The key of a request; None if none is needed. Raises KeyMissing, KeyUnknown, KeyForbids."""
        if self._access.keys is None:
            return None
        kind, _, text = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
        if kind.lower() != b"bearer":
            raise KeyMissing(
                "a request must have one header 'authorization: Bearer KEY': ask an administrator for a key"
            )
        key = self._access.keys.find(text.strip())
        if key is None:
            raise KeyUnknown("the key is unknown, or was revoked: ask an administrator for a new one")
        if not key.admits(needed):
            raise KeyForbids(
                f"the key {key.name!r} admits {', '.join(key.scopes)}, and this request needs {needed}"
            )
        return key


async def _end(send: "Send") -> None:
    """Ends an answer in parts before its last part."""
    await send({"type": "http.response.body", "body": b"", "more_body": False})
    raise OSError("the key of this client was revoked")  # as if the client had disconnected


async def _refuse(scope: "Scope", send: "Send", refusal: LiveGNNError) -> None:
    problem = problem_of(refusal)
    body, headers = write(problem, scope["path"])
    headers["content-length"] = str(len(body))
    if isinstance(refusal, (KeyMissing, KeyUnknown)):
        headers["www-authenticate"] = _CHALLENGE
    encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": problem.status, "headers": encoded})
    await send({"type": "http.response.body", "body": b"" if scope.get("method") == "HEAD" else body})


async def _answer_preflight(
    scope: "Scope", send: "Send", headers: _Headers, refusal: LiveGNNError | None
) -> None:
    if refusal is not None:
        await _refuse(scope, send, refusal)
        return
    told = [*preflight_headers(headers), (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 200, "headers": told})
    await send({"type": "http.response.body", "body": b""})


def _normal_origin(origin: str) -> str | None:
    """In small letters, without the port that its scheme implies; None if it has no host, as "null"."""
    try:
        parts = urlsplit(origin.lower())
        if not parts.netloc or parts.scheme not in _PORTS:
            return None
        return f"{parts.scheme}://{parts.netloc.removesuffix(_PORTS[parts.scheme])}"
    except ValueError:
        return None


def is_local(host: str) -> bool:
    """Whether only this machine can reach an address to listen at."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _headers_of(scope: "Scope") -> _Headers:
    found: _Headers = {}
    for name, value in scope["headers"]:
        if name in _READ:
            found.setdefault(name, []).append(value)
    return found


def _host_name(host: bytes) -> str:
    """Without its port, in small letters."""
    text = host.decode("latin-1").strip().lower()
    if text.startswith("["):
        address, end, port = text[1:].partition("]")
        return address if end and (not port or port.startswith(":")) else text
    return text.partition(":")[0].rstrip(".")


def _is_address(name: str) -> bool:
    """Numbers cannot be pointed elsewhere by a name server."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
