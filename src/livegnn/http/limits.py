"""Limits of clients: requests and bytes a second and open feeds of a key, requests at once of an address.
Nothing waits here: a request above a limit is refused.

Thread safety: belongs to the event loop of the server.
"""

import ipaddress
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from livegnn.http.keys import NO_LIMITS, Key
from livegnn.http.refusals import AddressBusy, KeyExhausted

if TYPE_CHECKING:
    from starlette.types import Message, Receive

FEED: Final = "/v1/changes"
_NETWORK: Final = 64  # bits of an address of IPv6: a client chooses the others


class Bucket:
    """A number of things a second, and one second's worth of them at once."""

    __slots__ = ("_at", "_left", "_rate")

    def __init__(self, rate: int, now: float) -> None:
        self._rate, self._left, self._at = rate, float(rate), now

    def missing(self, now: float) -> float:
        """The seconds until a further one may be taken; 0 if one may now."""
        self._left = min(float(self._rate), self._left + (now - self._at) * self._rate)
        self._at = now
        return max(0.0, (1.0 - self._left) / self._rate)

    def take(self, count: int) -> None:
        """Takes things, also more than there are: later ones then wait for longer."""
        self._left -= count


class KeyUse:
    """The present use of one key by all its clients."""

    __slots__ = ("_bytes", "_feeds", "_requests", "limits", "name")

    def __init__(self, key: Key, now: float) -> None:
        self.limits, self.name = key.limits, key.name
        self._requests = None if key.limits.requests is None else Bucket(key.limits.requests, now)
        self._bytes = None if key.limits.bytes is None else Bucket(key.limits.bytes, now)
        self._feeds = 0

    def begin(self, path: str, now: float) -> None:
        """Counts a request. Raises KeyExhausted."""
        limits = self.limits
        if path == FEED and limits.feeds is not None and self._feeds >= limits.feeds:
            raise KeyExhausted(f"the key {self.name!r} may have {limits.feeds} open feeds: end one first")
        for bucket, rate, what in (
            (self._requests, limits.requests, "requests"),
            (self._bytes, limits.bytes, "bytes of bodies"),
        ):
            wait = 0.0 if bucket is None else bucket.missing(now)
            if wait > 0.0:
                raise KeyExhausted(
                    f"the key {self.name!r} may send {rate:,} {what} a second: send it again later",
                    retry_after=wait,
                )
        if self._requests is not None:
            self._requests.take(1)
        self._feeds += path == FEED

    def end(self, path: str) -> None:
        """The request has ended."""
        self._feeds -= path == FEED

    def count_body(self, receive: "Receive") -> "Receive":
        """`receive`, whose bytes are counted."""
        bucket = self._bytes
        if bucket is None:
            return receive

        async def receive_counted() -> "Message":
            message = await receive()
            bucket.take(len(message.get("body", b"")))
            return message

        return receive_counted


class KeyUses:
    """The use of all keys that have limits. clock: seconds, which never go back."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._uses: dict[str, KeyUse] = {}

    def begin(self, key: Key, path: str) -> KeyUse | None:
        """Counts a request of a key; call `end` of the result, if any, when it has ended. Raises
        KeyExhausted."""
        if key.limits is NO_LIMITS or key.limits == NO_LIMITS:
            return None
        now = self._clock()
        use = self._uses.get(key.sha256)
        if use is None or use.limits != key.limits:
            use = self._uses[key.sha256] = KeyUse(key, now)
        use.begin(path, now)
        return use


class AddressUses:
    """The requests at once of each address. most: of one; 0 for any number."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: dict[str, int] = {}

    def begin(self, host: str) -> None:
        """Counts a request. Raises AddressBusy."""
        if not self._most:
            return
        count = self._open.get(host, 0)
        if count >= self._most:
            raise AddressBusy(f"an address may have {self._most:,} open requests: end one first")
        self._open[host] = count + 1

    def is_full(self, host: str) -> bool:
        """Whether `begin` would refuse a request now."""
        return bool(self._most) and self._open.get(host, 0) >= self._most

    def end(self, host: str) -> None:
        """The request has ended."""
        if not self._most:
            return
        self._open[host] -= 1
        if not self._open[host]:
            del self._open[host]


def client_of(address: object) -> str:
    """The client that an address is counted for: of IPv6, its network."""
    host = str(address[0]) if isinstance(address, (tuple, list)) and address else ""
    if ":" not in host:
        return host
    try:
        found = ipaddress.IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Network((found, _NETWORK), strict=False))
