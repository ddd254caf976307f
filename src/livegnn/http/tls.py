"""The certificate of a server, and the authorities whose clients it admits."""

import logging
import ssl
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from livegnn.errors import InputError

_logger = logging.getLogger(__name__)
_TRIAL: Final = "livegnn.http.tls_trial"
_REASON: Final = "value: "


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

    def check_start(self) -> None:
        """Starts a server with these files in another process. Raises InputError if that server fails, which
        would end the process; logs a warning if other users can read the key."""
        if self.key.stat().st_mode & stat.S_IRWXO:
            _logger.warning("%s can be read by other users of this machine: chmod 600 it", self.key)
        given = [self.certificate, self.key, *([] if self.clients is None else [self.clients])]
        trial = subprocess.run(
            [sys.executable, "-m", _TRIAL, *map(str, given)], capture_output=True, check=False
        )
        if trial.returncode < 0:
            told = trial.stderr.decode(errors="replace")
            reason = told.partition(_REASON)[2].partition("\n")[0] or told[-200:]
            raise InputError(
                "TLS needs a key of RSA, P-256, P-384 or Ed25519, and certificates of version 3, got "
                f"{', '.join(map(str, given))}: {reason}"
            )


def _refuse_password() -> str:
    raise ValueError("the key has a password")
