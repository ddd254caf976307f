"""The certificate of a server, and the authorities whose clients it admits."""

import ssl
from dataclasses import dataclass
from pathlib import Path

from livegnn.errors import InputError


@dataclass(frozen=True)
class Tls:
    """Files in PEM: the server's certificate with its chain, its private key, and the authorities that sign
    the certificates of clients. clients: None if clients need no certificate; a certificate admits to the
    connection, and a key is needed besides. http2: whether to speak HTTP/2 too, whose silent connections
    are not ended.

    Raises InputError for files that cannot be used. They are read once.
    """

    certificate: Path
    key: Path
    clients: Path | None = None
    http2: bool = False

    def __post_init__(self) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        files = f"{self.certificate} and {self.key}"
        try:
            context.load_cert_chain(self.certificate, self.key, _refuse_password)
            if self.clients is not None:
                files = str(self.clients)
                context.load_verify_locations(self.clients)
        except (OSError, ValueError) as error:
            raise InputError(
                "TLS needs a certificate and its private key, without a password, and for clients the "
                f"certificates of their authorities, in PEM files, got {files}: {error}"
            ) from error


def _refuse_password() -> str:
    raise ValueError("the key has a password")
