"""Sockets that servers accept connections from."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from livegnn.errors import InputError
from livegnn.http.listening import listen


def test_addresses_that_cannot_be_had() -> None:
    for host in ("127.0.0.1", "::1"):
        with listen(host, 0) as taken:
            port = taken.getsockname()[1]
            said = f"cannot listen at {host} port {port}, .*: another program .* port 0 is any free one"
            with pytest.raises(OSError, match=said):
                listen(host, port)
    for host in ("192.0.2.1", "2001:db8::1", "no-such-host.invalid", "::no-address"):
        with pytest.raises(
            OSError, match=f"cannot listen at {host} port 8080, .*: choose another host, an address"
        ):
            listen(host, 8080)
    with pytest.raises(InputError, match="port"):
        listen("127.0.0.1", 65536)
    with pytest.raises(InputError, match="host must be a name or an address, got 'a\\\\x00b'"):
        listen("a\0b", 8080)


UNPRIVILEGED = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")


@pytest.mark.skipif(
    not UNPRIVILEGED.exists() or int(UNPRIVILEGED.read_text()) == 0, reason="every port is everybody's here"
)
def test_a_port_that_the_system_keeps(user: None) -> None:
    with pytest.raises(
        PermissionError, match=r"cannot listen at 127\.0\.0\.1 port 1, .*Choose one from 1024 on"
    ):
        listen("127.0.0.1", 1)


@pytest.fixture
def user() -> Iterator[None]:
    """Not the superuser, who may listen anywhere."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    yield
    os.seteuid(before)
