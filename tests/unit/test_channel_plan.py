"""The plan of a worker is checked before any socket reads it."""

import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from livegnn.channels.plan import LONGEST_PATH, Peer, check_address, check_plan
from livegnn.errors import InputError

KEY = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"  # of the description of CURVE in libzmq


def test_a_plan_that_fits_is_accepted() -> None:
    check_plan(0, {}, [])
    check_plan(0, {1: Peer(), 2: Peer(key=KEY)}, [2, 1])
    check_plan(
        2, {0: Peer(7, "ipc:///a"), 1: Peer(1, "tcp://10.0.0.1:1", KEY), 3: Peer(address="unused")}, [3]
    )


@pytest.mark.parametrize(
    ("peers", "says"),
    [
        (None, "peers must be a mapping of numbers to Peer, got NoneType"),
        ([Peer()], "peers must be a mapping of numbers to Peer, got list"),
        ({"0": Peer()}, "a peer must be an integer from 0 to 65535, got '0'"),
        ({65536: Peer()}, "a peer must be an integer from 0 to 65535, got 65536"),
        ({0: (1, "ipc:///a", None)}, "peers must have a Peer for worker 0, got (1, 'ipc:///a', None)"),
        ({0: "ipc:///a"}, "peers must have a Peer for worker 0, got 'ipc:///a'"),
        ({1: Peer(address="ipc:///a")}, "those after 1 being [2], which it listens for, got [1]"),
        ({0: Peer(address="ipc:///a")}, "those after 1 being [2], which it listens for, got [0]"),
        ({2: Peer(), 3: Peer()}, "those after 1 being [2], which it listens for, got [2, 3]"),
        ({2: Peer(0)}, "the incarnation of worker 2 must be an integer from 1 to 4294967295, got 0"),
        ({2: Peer("1")}, "the incarnation of worker 2 must be an integer from 1 to 4294967295, got '1'"),  # type: ignore[arg-type]
        (
            {0: Peer(), 2: Peer()},
            "worker 0 must have an address of the form tcp://IP:PORT or ipc://PATH, got ",
        ),
    ],
)
def test_another_plan_is_refused(peers: Any, says: str) -> None:
    with pytest.raises(InputError) as refused:
        check_plan(1, peers, [2])
    assert says in str(refused.value)


@pytest.mark.parametrize(
    "key",
    [
        "",
        "short",
        KEY[:-1],
        KEY + "a",
        "é" * 40,
        "\0" * 40,
        " " * 40,
        "#" * 40,
        5,
        KEY.encode(),
        KEY[:-1] + "~",
    ],
)
def test_another_key_is_refused(key: Any) -> None:
    """One that is no text, has another length or other characters, or is no number of 256 bits."""
    with pytest.raises(
        InputError,
        match=r"the public key of worker 2 must have the 40 characters of its listener's key, got ",
    ):
        check_plan(1, {2: Peer(key=key)}, [2])


GOOD = [
    "tcp://10.0.0.1:1",
    "tcp://[::1]:65535",
    "tcp://[fe80::1%eth0]:80",
    "tcp://a-1.example:80",
    "ipc:///a",
]


@pytest.mark.parametrize("address", [*GOOD, "ipc://" + "a" * LONGEST_PATH])
def test_addresses_of_listeners_are_accepted(address: str) -> None:
    check_address(0, address)


BAD = [
    None, 5, b"ipc:///a", "", "a", "10.0.0.1:80", "inproc://a", "udp://10.0.0.1:80", "TCP://10.0.0.1:80",
    "tcp://", "tcp://10.0.0.1", "tcp://10.0.0.1:", "tcp://10.0.0.1:*", "tcp://10.0.0.1:0", "tcp://10.0.0.1:99999",
    "tcp://10.0.0.1:65536", "tcp://10.0.0.1:80 ", "tcp://10.0.0.1:80\n", "tcp://:80", "tcp://*:80",
    "tcp://256.1.1.1:80", "tcp://1.2.3:80", "tcp://0.0.0.0:80", "tcp://[::]:80", "tcp://[10.0.0.1]:80",
    "tcp://::1:80", "tcp://eth0;10.0.0.1:80", "tcp://10.0.0.1:８０", "tcp://é.example:80",
    "ipc://", "ipc://*\0", "ipc://\ud800", "ipc://" + "a" * (LONGEST_PATH + 1), "ipc://" + "é" * 60,
]  # fmt: skip


@pytest.mark.parametrize("address", BAD)
def test_other_addresses_are_refused(address: object) -> None:
    with pytest.raises(
        InputError, match="worker 3 must have an address of the form tcp://IP:PORT or ipc://PATH"
    ):
        check_address(3, address)


@given(st.text() | st.sampled_from(GOOD).flatmap(lambda good: st.text(max_size=3).map(good.__add__)))
def test_any_text_is_an_address_or_refused(text: str) -> None:
    with suppress(InputError):
        check_address(0, text)
        assert text.startswith(("tcp://", "ipc://"))


@pytest.mark.parametrize(
    ("content", "state"),
    [
        ("raise ModuleNotFoundError(\"No module named 'zmq'\", name='zmq')", "is not installed"),
        ("raise ImportError('libzmq.so.5: not found')", "cannot be imported (libzmq.so.5: not found)"),
    ],
)
def test_without_pyzmq_the_error_says_what_to_do(content: str, state: str, tmp_path: Path) -> None:
    (tmp_path / "zmq.py").write_text(content)
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    environment: Mapping[str, str] = {**os.environ, "PYTHONPATH": paths}
    code = "import livegnn.channels.zmq"
    found = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert found.returncode == 1
    assert found.stderr.splitlines()[-1] == (
        f"ImportError: livegnn.channels.zmq needs pyzmq, which {state}: pip install 'livegnn[cluster]'"
    )
