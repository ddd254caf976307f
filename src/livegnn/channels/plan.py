"""The other workers of a plan, and the checks of a plan before any socket reads it."""

import ipaddress
import os
import re
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from livegnn.arguments import check_int
from livegnn.errors import InputError
from livegnn.wording import kind_of, quoted

MOST_NUMBER: Final = 0xFFFF
MOST_INCARNATION: Final = 0xFFFF_FFFF
LONGEST_PATH: Final = 107
"""Bytes in the path of a socket of the system."""

_KEY_CHARACTERS: Final = 40
_Z85: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_GROUP: Final = 5  # characters of Z85, for 32 bits
_TCP: Final = re.compile(r"tcp://(\[[^][]+\]|[A-Za-z0-9._-]+):([1-9][0-9]{0,4})", re.ASCII)
_NUMBERS: Final = re.compile(r"[0-9.]+")
_MOST_PORT: Final = 0xFFFF


class Peer(NamedTuple):
    """Another worker of the plan. address: where it listens for this one, if its number is lower. key: its
    public key, needed over TCP.
    """

    incarnation: int = 1
    address: str | None = None
    key: str | None = None


def check_plan(number: int, peers: Mapping[int, Peer], listened: Collection[int]) -> None:
    """Raises `InputError` if a plan does not fit worker `number`. listened: the peers that it listens for."""
    if not isinstance(peers, Mapping):
        raise InputError(f"peers must be a mapping of numbers to Peer, got {kind_of(peers)}")
    for peer, its in peers.items():
        check_int(peer, "a peer", 0, MOST_NUMBER)
        if not isinstance(its, Peer):
            raise InputError(f"peers must have a Peer for worker {peer}, got {quoted(its)}")
    if {peer for peer in peers if peer > number} != set(listened) or number in peers:
        raise InputError(
            f"peers must be the other workers, those after {number} being {sorted(listened)}, which it "
            f"listens for, got {sorted(peers)}"
        )
    for peer, its in peers.items():
        check_int(its.incarnation, f"the incarnation of worker {peer}", 1, MOST_INCARNATION)
        if peer < number:
            check_address(peer, its.address)
        if its.key is not None:
            _check_key(peer, its.key)


def is_tcp(address: str) -> bool:
    """Whether the link at an address is over TCP, so that it needs keys."""
    return address.startswith("tcp://")


def require_key(peer: int, its: Peer, address: str) -> str:
    """The key of a peer that is reached over TCP. Raises `InputError` if the plan has none."""
    if its.key is None:
        raise InputError(f"worker {peer} at {address} must have a public key, got None")
    return its.key


def check_address(peer: int, address: object) -> None:
    """Raises `InputError` if a plan has another kind of address for a peer than a listener has."""
    if not isinstance(address, str) or not (_is_tcp_address(address) or _is_path(address)):
        raise InputError(
            f"worker {peer} must have an address of the form tcp://IP:PORT or ipc://PATH, got "
            f"{quoted(address)}: it is in the addresses of its listener"
        )


def _is_tcp_address(address: str) -> bool:
    found = _TCP.fullmatch(address)
    if found is None or int(found[2]) > _MOST_PORT:
        return False
    host = found[1]
    if not host.startswith("[") and not _NUMBERS.fullmatch(host):
        return True  # the name of a machine
    try:
        ip = ipaddress.IPv6Address(host[1:-1]) if host.startswith("[") else ipaddress.IPv4Address(host)
    except ValueError:
        return False
    return not ip.is_unspecified


def _is_path(address: str) -> bool:
    try:
        path = os.fsencode(address.removeprefix("ipc://"))
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return address.startswith("ipc://") and 0 < len(path) <= LONGEST_PATH and b"\0" not in path


def _check_key(peer: int, key: object) -> None:
    if not isinstance(key, str) or not _is_key(key):
        raise InputError(
            f"the public key of worker {peer} must have the {_KEY_CHARACTERS} characters of its listener's "
            f"key, got {quoted(key)}"
        )


def _is_key(key: str) -> bool:
    """Whether it is 32 bytes in Z85 (ZeroMQ RFC 32): each group of characters is a number of 32 bits."""
    if len(key) != _KEY_CHARACTERS or not set(key) <= set(_Z85):
        return False
    for at in range(0, len(key), _GROUP):
        number = 0
        for character in key[at : at + _GROUP]:
            number = number * len(_Z85) + _Z85.index(character)
        if number >> 32:
            return False
    return True
