"""A server that starts with the files of `Tls`, and stops at once: `python -m livegnn.http.tls_trial`.

The library that speaks TLS (rustls) ends its process when it cannot use a key or a certificate, such as a key
of a curve that it does not know. So `Tls.check_start` starts another process first. Arguments: the
certificate, the key and, if clients need certificates, the authorities.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send


async def _answer(scope: "Scope", receive: "Receive", send: "Send") -> None:
    """It is never called."""


def main() -> None:
    """Returns if the files can be used."""
    from livegnn.http.listening import listen
    from livegnn.http.serving import HttpServer
    from livegnn.http.tls import Tls

    certificate, key, *clients = map(Path, sys.argv[1:])
    tls = Tls(certificate, key, clients[0] if clients else None)
    with listen("127.0.0.1", 0) as listener:
        HttpServer(_answer, listener, tls=tls).run(until=lambda: True)


if __name__ == "__main__":
    main()
