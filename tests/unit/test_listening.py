"""Sockets that servers accept connections from."""

import socket

import pytest

from livegnn.errors import InputError
from livegnn.server.listening import accepting, listen


def test_several_connections_are_accepted_at_once() -> None:
    sockets = accepting(listen("127.0.0.1", 0))
    address = sockets[0].getsockname()
    clients = [socket.create_connection(address) for _ in sockets]
    taken = [one.accept()[0] for one in sockets]
    assert sorted(one.getpeername() for one in taken) == sorted(one.getsockname() for one in clients)
    for one in [*clients, *taken, *sockets[:-1]]:
        one.close()
    socket.create_connection(address).close()  # one that listens is left
    sockets[-1].close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)


def test_addresses_that_cannot_be_had() -> None:
    with listen("127.0.0.1", 0) as taken, pytest.raises(OSError, match="another program listens there"):
        listen("127.0.0.1", taken.getsockname()[1])
    with pytest.raises(InputError, match="port"):
        listen("127.0.0.1", 65536)
