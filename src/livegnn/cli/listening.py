"""Commands that listen for clients beside `livegnn serve`: options, whom they admit, and their end."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from livegnn.cli.logs import log_first_readiness
from livegnn.errors import InputError
from livegnn.wording import needs

if TYPE_CHECKING:
    import logging

    from starlette.types import ASGIApp

    from livegnn.deployment import Deployment
    from livegnn.http.access import AccessSettings
    from livegnn.http.guard import Access
    from livegnn.http.tls import Tls
    from livegnn.readiness import Readiness

Host = Annotated[str, typer.Option(help="address to listen at")]
Port = Annotated[int, typer.Option(help="port to listen at; 0 takes any free port")]


@contextmanager
def needs_extra(what: str) -> Iterator[None]:
    """Raises InputError if a package of the extra is missing. what: needs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise InputError(needs(what, str(error.name), error, "cluster")) from error


def find_clients(read: "Deployment", host: str, *, behind_front: bool = False) -> "tuple[Access, Tls | None]":
    """The clients of `[workers]` to admit at an address, and the certificate. Raises InputError."""
    if read.workers is None:
        raise InputError("workers need a section [workers], got none: docs/deployment.md")
    return clients_of(read.workers, host, behind_front=behind_front)


def clients_of(
    section: "AccessSettings", host: str, *, behind_front: bool = False
) -> "tuple[Access, Tls | None]":
    """The clients of a section to admit at an address, and the certificate. Raises InputError."""
    section.check_address(host)
    return section.access(behind_front=behind_front), section.tls()


def listen_until_stopped(
    app: "ASGIApp",
    host: str,
    port: int,
    what: str,
    logger: "logging.Logger",
    find_readiness: "Callable[[], Readiness]",
    tls: "Tls | None",
    end_waits: "Callable[[], None] | None" = None,
) -> None:
    """Serves until SIGINT or SIGTERM. end_waits: called in a thread then, so that requests that wait end."""
    import signal
    import threading

    from livegnn.http.listening import address_of, listen
    from livegnn.http.serving import HttpServer

    def stop() -> None:
        if end_waits is not None:
            threading.Thread(target=end_waits, daemon=True).start()

    def leave(sig: int, frame: "FrameType | None") -> None:
        for number in (signal.SIGTERM, signal.SIGINT):  # later signals change nothing
            signal.signal(number, signal.SIG_IGN)
        raise SystemExit(0)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, leave)
    with listen(host, port) as listener:
        address = address_of(listener, "http" if tls is None else "https")
        logger.info("%s listens at %s", what, address, extra={"address": address})
        typer.echo(f"{what} listens at {address}")
        log_first_readiness(logger, find_readiness)
        try:
            HttpServer(app, listener, on_stop=stop, tls=tls).run()
        finally:
            logger.info("%s stopped", what)
