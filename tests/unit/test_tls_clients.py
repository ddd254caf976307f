"""Certificates of clients: whichever others there are, no request of a stranger reaches the application."""

import logging
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeAlias

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from starlette.types import Receive, Scope, Send

from livegnn.deployment.sections import ServerSection
from livegnn.errors import InputError
from livegnn.http.tls import Tls
from served import place_of, served
from waiting import PATIENCE

Key: TypeAlias = ec.EllipticCurvePrivateKey
Signed: TypeAlias = tuple[x509.Certificate, Key]

PEM = serialization.Encoding.PEM
CURVE = ec.SECP256R1()
CLIENT = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "client")])
VERSIONS = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)


def signed_by(
    issuer: Signed | None,
    subject: x509.Name = CLIENT,
    *,
    key: Key | None = None,
    days: tuple[int, int] = (-1, 1),
    authority: bool = False,
    use: x509.ObjectIdentifier | None = None,
) -> Signed:
    """A certificate and its key. issuer: None for one that signs itself."""
    key = key or ec.generate_private_key(CURVE)
    issuer_name, issuer_key = (subject, key) if issuer is None else (issuer[0].subject, issuer[1])
    begin, end = (datetime.now(UTC) + timedelta(days=day) for day in days)
    builder = (
        x509.CertificateBuilder(
            issuer_name, subject, key.public_key(), x509.random_serial_number(), begin, end
        )
        .add_extension(x509.BasicConstraints(authority, None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("client")]), critical=False)
    )
    if use is not None:
        builder = builder.add_extension(x509.ExtendedKeyUsage([use]), critical=False)
    return builder.sign(issuer_key, hashes.SHA256()), key


def write(path: Path, key: Key, *chain: x509.Certificate) -> Path:
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    path.write_bytes(key.private_bytes(PEM, *form) + b"".join(one.public_bytes(PEM) for one in chain))
    path.chmod(0o600)
    return path


class Server:
    """A server that two authorities' clients may reach. requests: how many reached its application."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.requests, self.place = folder, 0, ("", 0)
        self.ours, self.second, self.theirs = (
            signed_by(None, x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), authority=True)
            for name in ("ours", "second", "theirs")
        )
        of_server = trustme.CA()
        own = of_server.issue_cert("127.0.0.1")
        own.cert_chain_pems[0].write_to_path(folder / "c.pem")
        own.private_key_pem.write_to_path(folder / "k.pem")
        self.trusted = of_server.cert_pem.bytes().decode()
        clients = self.ours[0].public_bytes(PEM) + self.second[0].public_bytes(PEM)
        (folder / "ca.pem").write_bytes(clients)
        self.tls = Tls(folder / "c.pem", folder / "k.pem", folder / "ca.pem")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return
        self.requests += 1
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"admitted"})

    def context(self, version: ssl.TLSVersion, client: Path | None) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=self.trusted)
        context.minimum_version = context.maximum_version = version
        if client is not None:
            context.load_cert_chain(client)
        return context

    def ask(self, version: ssl.TLSVersion, client: Path | None, path: bytes = b"/livez") -> bytes:
        with (
            socket.create_connection(self.place, PATIENCE) as raw,
            self.context(version, client).wrap_socket(raw, server_hostname="127.0.0.1") as connection,
        ):
            connection.sendall(b"GET %b HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n" % path)
            return b"".join(iter(lambda: connection.recv(1 << 16), b""))

    def client(self, signed: Signed, *more: x509.Certificate) -> Path:
        return write(self.folder / "client.pem", signed[1], signed[0], *more)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("tls"))
    with served(server, tls=server.tls) as address:
        server.place = place_of(address)
        yield server


@pytest.mark.parametrize("version", VERSIONS)
def test_clients_of_each_authority_are_admitted(server: Server, version: ssl.TLSVersion) -> None:
    between = signed_by(server.ours, authority=True)
    for issuer in (server.ours, server.second):
        assert server.ask(version, server.client(signed_by(issuer))).endswith(b"admitted")
    assert server.ask(version, server.client(signed_by(between), between[0])).endswith(b"admitted")
    limited = signed_by(server.ours, use=ExtendedKeyUsageOID.CLIENT_AUTH)
    assert server.ask(version, server.client(limited)).endswith(b"admitted")


@pytest.mark.parametrize("version", VERSIONS)
def test_strangers_are_not_admitted(server: Server, version: ssl.TLSVersion) -> None:
    ours = server.ours[0].subject
    impostor = signed_by(None, ours, authority=True)  # of the same name
    known = signed_by(server.ours)
    strangers: dict[str, tuple[x509.Certificate, Key, list[x509.Certificate]]] = {
        "another authority": (*signed_by(server.theirs), []),
        "expired": (*signed_by(server.ours, days=(-3, -1)), []),
        "not valid yet": (*signed_by(server.ours, days=(1, 3)), []),
        "signs itself": (*signed_by(None), []),
        "signs itself, with the name of the authority": (*impostor, []),
        "of an authority of the same name": (*signed_by(impostor), [impostor[0]]),
        "for servers": (*signed_by(server.ours, use=ExtendedKeyUsageOID.SERVER_AUTH), []),
        "signed by a client": (*signed_by(known), [known[0]]),
    }
    before = server.requests
    for certificate, key, more in strangers.values():
        client = server.client((certificate, key), *more)
        with pytest.raises(OSError, match=r"(?i)alert|closed|reset"):
            server.ask(version, client)
    for path in (b"/livez", b"/readyz", b"/v1/predictions?ids=1"):  # routes of health are no exception
        with pytest.raises(OSError, match=r"(?i)alert|closed|reset"):
            server.ask(version, None, path)
    assert server.requests == before


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
def test_old_versions_are_not_spoken(server: Server, version: ssl.TLSVersion) -> None:
    context = server.context(version, server.client(signed_by(server.ours)))
    context.set_ciphers("ALL:@SECLEVEL=0")
    with (
        socket.create_connection(server.place, PATIENCE) as raw,
        pytest.raises(OSError, match=r"(?i)alert|closed|reset|version"),
    ):
        context.wrap_socket(raw, server_hostname="127.0.0.1")


def test_clients_that_stop_in_a_handshake_leave_room_for_others(server: Server) -> None:
    sent, received = ssl.MemoryBIO(), ssl.MemoryBIO()
    half = server.context(VERSIONS[1], None).wrap_bio(received, sent, server_hostname="127.0.0.1")
    with pytest.raises(ssl.SSLWantReadError):
        half.do_handshake()
    hello = sent.read()
    client = server.client(signed_by(server.ours))
    with ExitStack() as opened:
        for number in range(300):
            stopped = opened.enter_context(socket.create_connection(server.place, PATIENCE))
            stopped.sendall(hello[: len(hello) // (1 + number % 3)])
        for version in VERSIONS:
            assert server.ask(version, client).endswith(b"admitted")


def test_files_are_read_at_the_start_alone(tmp_path: Path) -> None:
    server = Server(tmp_path)
    client = server.client(signed_by(server.ours))
    with served(server, tls=server.tls) as address:
        server.place = place_of(address)
        assert server.ask(VERSIONS[1], client).endswith(b"admitted")  # it has started
        for file in (server.tls.certificate, server.tls.key, tmp_path / "ca.pem"):
            file.write_bytes(b"changed")
        for version in VERSIONS:
            assert server.ask(version, client).endswith(b"admitted")
    with pytest.raises(InputError, match="TLS needs a certificate and its private key"):
        Tls(server.tls.certificate, server.tls.key, server.tls.clients)


@pytest.mark.parametrize(
    ("key", "fits"),
    [
        (ec.generate_private_key(ec.SECP384R1()), True),
        (ec.generate_private_key(ec.SECP521R1()), False),
    ],
    ids=["P-384", "P-521"],
)
def test_a_key_that_the_server_cannot_use_is_refused_at_the_start(
    key: Key, fits: bool, tmp_path: Path
) -> None:
    certificate, _ = signed_by(None, key=key)
    file = write(tmp_path / "both.pem", key, certificate)
    section = ServerSection(tls_certificate=file, tls_key=file)
    if fits:
        assert section.tls() == Tls(file, file)
        return
    with pytest.raises(InputError, match=r"TLS needs a key of RSA, P-256, P-384 or Ed25519, .*both\.pem: "):
        section.tls()


def test_a_key_that_others_can_read_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    certificate, key = signed_by(None)
    file = write(tmp_path / "both.pem", key, certificate)
    for mode, told in ((0o640, False), (0o644, True)):
        file.chmod(mode)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            Tls(file, file).check_start()
        assert ("can be read by other users" in caplog.text) == told
