"""The clients that a process admits, as its settings name them: files, hosts, pages.

One class has the fields for the server, for workers and their front end, for a cluster and for functions.
"""

from dataclasses import dataclass
from pathlib import Path

from livegnn.arguments import check_bool, check_int
from livegnn.errors import InputError
from livegnn.http.guard import Access, is_local
from livegnn.http.keys import KeyFile
from livegnn.http.tls import Tls


@dataclass(frozen=True)
class AccessSettings:
    """keys: the file of clients' keys. hosts, origins: names of this process, and pages, that
    `livegnn.http.guard` admits. insecure: listen beyond this machine without keys. requests_per_address:
    open at once; 0 for any number. tls_certificate, tls_key, tls_clients: files of `livegnn.http.tls`.
    http2: whether to speak HTTP/2 over TLS.
    """

    keys: Path | None = None
    hosts: str | list[str] = ""
    origins: str | list[str] = ""
    insecure: bool = False
    requests_per_address: int = 256
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    tls_clients: Path | None = None
    http2: bool = False

    def check_address(self, host: str, name: str = "host") -> None:
        """Raises InputError for an address that other machines reach, if nothing says which clients may.
        name: of the setting that has the address."""
        if self.keys is None and not self.insecure and not is_local(host):
            raise InputError(
                f"{name} is {host!r}, where other machines may send requests, and there are no keys: "
                "create one with `livegnn key create` and name its file in keys, or set insecure"
            )

    def access(self, *, behind_front: bool = False) -> Access:
        """The clients to admit. behind_front: of a serving worker, whose front end sends the requests of all
        clients from one address. Raises `FileFormatError` if the file of keys is damaged, `InputError` if it
        cannot be read."""
        try:
            keys = None if self.keys is None else KeyFile(self.keys)
        except OSError as error:
            raise InputError(
                f"keys must be a file of `livegnn key create`, got {self.keys}: {error.strerror}"
            ) from error
        most = check_int(self.requests_per_address, "requests_per_address", 0)
        return Access(keys, _listed(self.hosts), _listed(self.origins), 0 if behind_front else most)

    def tls(self) -> Tls | None:
        """The certificate of the process; None for plain HTTP. Raises InputError."""
        http2 = check_bool(self.http2, "http2")
        if self.tls_certificate is None and self.tls_key is None and self.tls_clients is None and not http2:
            return None
        if self.tls_certificate is None or self.tls_key is None:
            raise InputError("TLS must have tls_certificate and tls_key, got only a part of them")
        tls = Tls(self.tls_certificate, self.tls_key, self.tls_clients, http2)
        tls.check_start()
        return tls


def _listed(given: str | list[str]) -> list[str]:
    return [one for one in ([given] if isinstance(given, str) else given) if one]
