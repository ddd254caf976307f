"""Errors of requests over HTTP, beside those that LiveGNN raises in Python."""

from typing import Final

from livegnn.errors import InputError, LiveGNNError, OverloadedError, TimeoutExpired, TooLargeError
from livegnn.wording import quoted

STOPS: Final = "the process stops: send it again, to another process if there is one"


class UnknownPath(LiveGNNError):
    """A path that does not exist."""


class UnknownMethod(LiveGNNError):
    """A path that exists for other methods. allowed: those, with commas between them."""

    def __init__(self, path: str, allowed: str, method: str) -> None:
        super().__init__(f"{path} must be requested with {allowed}, got {method}")
        self.allowed = allowed


class UnknownMediaType(InputError):
    """A body that is neither JSON nor, if it is one of events, JSON lines."""


class BodyTooLarge(TooLargeError):
    """A request body above the limit."""


class BodyTooSlow(LiveGNNError):
    """A request whose body arrives too slowly."""

    def __init__(self) -> None:
        super().__init__(
            "a body must arrive within 30 seconds, and one second more for each KiB of it: send it again, in "
            "parts if the connection is slow"
        )


class KeyMissing(LiveGNNError):
    """A request without a key, where one is needed."""


class KeyUnknown(LiveGNNError):
    """A key that is unknown, or was revoked."""


class KeyForbids(LiveGNNError):
    """A key without the scope that a request needs."""


class KeyExhausted(OverloadedError):
    """A request above the limits of its key."""


class AddressBusy(OverloadedError):
    """A request of an address that has too many open requests."""


class UnknownHost(LiveGNNError):
    """A request for a host that is not this server."""


class UnknownOrigin(LiveGNNError):
    """A request of a page of another site."""


class NotVisible(LiveGNNError):
    """Events that are in the log and were not visible in time."""


class LoopEnded(LiveGNNError):
    """Events that arrive when the loop has ended: none is logged."""


class ChangesNotKept(LiveGNNError):
    """A request for changes that the server does not keep any more."""


class ExtraMissing(LiveGNNError):
    """A request for an answer that needs a package that is not installed."""


class ProcessStops(TimeoutExpired):
    """A request that a process does not finish, because it stops."""

    def __init__(self, message: str = STOPS) -> None:
        super().__init__(message)


def refuse_coding(content: str | None, transfer: str | None = None) -> None:
    """Raises UnknownMediaType for a compressed body. content, transfer: the headers content-encoding and
    transfer-encoding."""
    if content is not None and content.strip().lower() != "identity":
        raise UnknownMediaType(f"the body must not be compressed, got the content-encoding {quoted(content)}")
    if transfer is not None and transfer.strip().lower() != "chunked":
        raise UnknownMediaType(
            f"the body must not be compressed, got the transfer-encoding {quoted(transfer)}"
        )
