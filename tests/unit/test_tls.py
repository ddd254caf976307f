"""TLS of a server: certificates of servers and clients, and files that are none."""

import socket
import ssl
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest
import trustme
from starlette.types import Receive, Scope, Send

from livegnn.deployment.sections import ServerSection
from livegnn.errors import InputError
from livegnn.http.tls import Tls
from served import place_of, served
from waiting import PATIENCE


async def name_scheme(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": f"{scope['scheme']} {scope['http_version']}".encode()})


class Files:
    """Authorities, and what they have signed, as files."""

    def __init__(self, folder: Path) -> None:
        self.ours, self.theirs = trustme.CA(), trustme.CA()
        self.certificate, self.key, self.clients = (folder / name for name in ("c.pem", "k.pem", "ca.pem"))
        signed = self.ours.issue_cert("127.0.0.1")
        for one in signed.cert_chain_pems:
            one.write_to_path(self.certificate, append=True)
        signed.private_key_pem.write_to_path(self.key)
        self.ours.cert_pem.write_to_path(self.clients)

    def ask(self, address: str, client: trustme.CA | None = None) -> bytes:
        context = ssl.create_default_context()
        self.ours.configure_trust(context)
        if client is not None:
            client.issue_cert("client@example.org").configure_cert(context)
        with urllib.request.urlopen(address, timeout=PATIENCE, context=context) as answer:
            found: bytes = answer.read()
        return found


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_tls_is_spoken_and_plain_http_is_not(files: Files) -> None:
    with served(name_scheme, tls=Tls(files.certificate, files.key)) as address:
        assert files.ask(address) == b"https 1.1"
        with pytest.raises(URLError, match="CERTIFICATE_VERIFY_FAILED"):
            urllib.request.urlopen(address, timeout=PATIENCE)
        host, port = address.removeprefix("https://").split(":")
        with socket.create_connection((host, int(port)), PATIENCE) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            assert b"200" not in plain.recv(1000)


def test_http_2_is_spoken_where_it_is_asked_for(files: Files) -> None:
    context = ssl.create_default_context()
    files.ours.configure_trust(context)
    context.set_alpn_protocols(["h2", "http/1.1"])
    with served(name_scheme, tls=Tls(files.certificate, files.key, http2=True)) as address:
        port = int(address.rpartition(":")[2])
        with (
            socket.create_connection(("127.0.0.1", port), PATIENCE) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
        ):
            assert connection.selected_alpn_protocol() == "h2"
    with served(name_scheme, tls=Tls(files.certificate, files.key)) as address:  # only where it is asked for
        place = place_of(address)
        with (
            socket.create_connection(place, PATIENCE) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
        ):
            assert connection.selected_alpn_protocol() != "h2"


def test_a_connection_without_a_request_ends(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("livegnn.http.serving._HEAD_SECONDS", 0.25)
    context = ssl.create_default_context()
    files.ours.configure_trust(context)
    with (
        served(name_scheme, tls=Tls(files.certificate, files.key)) as address,
        socket.create_connection(place_of(address), PATIENCE) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
    ):
        assert connection.recv(1 << 16) == b""


def test_clients_need_a_certificate_of_their_authority(files: Files) -> None:
    with served(name_scheme, tls=Tls(files.certificate, files.key, files.clients)) as address:
        assert files.ask(address, files.ours) == b"https 1.1"
        for client in (None, files.theirs):
            with pytest.raises(OSError, match=r"alert|closed|reset"):
                files.ask(address, client)


def test_files_that_are_none_are_refused(files: Files, tmp_path: Path) -> None:
    other = Files(tmp_path_of(tmp_path, "other"))
    nothing = tmp_path / "nothing.pem"
    nothing.write_text("nothing")
    for certificate, key, clients in (
        (files.certificate, other.key, None),
        (files.key, files.certificate, None),
        (tmp_path / "none.pem", files.key, None),
        (nothing, nothing, None),
        (files.certificate, files.key, nothing),
        (tmp_path, files.key, None),
    ):
        with pytest.raises(InputError, match="TLS needs a certificate and its private key"):
            Tls(certificate, key, clients)


def tmp_path_of(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    return folder / name


def test_a_deployment_names_the_files(files: Files) -> None:
    assert ServerSection().tls() is None
    section = ServerSection(tls_certificate=files.certificate, tls_key=files.key)
    assert section.tls() == Tls(files.certificate, files.key)
    assert replace(section, http2=True).tls() == Tls(files.certificate, files.key, http2=True)
    parts: list[dict[str, Any]] = [{"tls_certificate": files.certificate}, {"tls_key": files.key}]
    for part in (*parts, {"tls_clients": files.key}, {"http2": True}):
        with pytest.raises(InputError, match="must have tls_certificate and tls_key"):
            ServerSection(**part).tls()
