"""Network namespaces of a test's own, joined by a bridge: machines whose links can be cut.

They need root and `ip` of iproute2; tests are skipped where either is missing or namespaces are forbidden.
"""

import os
import random
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest


def _why_not() -> str | None:
    """Why there can be no namespaces here."""
    if shutil.which("ip") is None:
        return "there is no command ip"
    name = f"lgt{secrets.token_hex(4)}"
    try:
        _ip("netns", "add", name)
        try:
            _ip("link", "add", f"{name}b", "type", "bridge")
            _ip("link", "del", f"{name}b")
        finally:
            _ip("netns", "del", name)
    except subprocess.CalledProcessError as error:
        return f"network namespaces cannot be made: {error.stderr.strip()}"
    return None


def _ip(*words: str) -> str:
    environment = {**os.environ, "LC_ALL": "C"}
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True, env=environment).stdout


def _bridge_of(number: int) -> str:
    return f"lg{number}b"


def _take_bridge() -> int:
    """Makes a bridge that nobody has, and returns its number: what has the number in its name or address is
    this test's own, because the system makes a bridge once.
    """
    for number in random.SystemRandom().sample(range(1, 255), 254):
        try:
            _ip("link", "add", _bridge_of(number), "type", "bridge")
        except subprocess.CalledProcessError as error:
            if "File exists" not in error.stderr:
                raise
        else:
            return number
    raise AssertionError("there must be a bridge that nobody has, got 254 of other tests")


class Network:
    """Machines 0, 1, ... with addresses of their own; `host` is the address of the tests' own machine."""

    def __init__(self, machines: int) -> None:
        self._number = _take_bridge()
        self._machines = machines
        self.host = f"{self._net}.1"
        try:
            _ip("addr", "add", f"{self.host}/24", "dev", self._bridge)
            _ip("link", "set", self._bridge, "up")
            for machine in range(machines):
                self._add(machine)
        except BaseException:
            self.close()
            raise

    @property
    def _name(self) -> str:
        return f"lg{self._number}"

    @property
    def _net(self) -> str:
        return f"10.213.{self._number}"

    @property
    def _bridge(self) -> str:
        return _bridge_of(self._number)

    def _add(self, machine: int) -> None:
        space, outside, inside = self._space(machine), self._link(machine), f"{self._link(machine)}i"
        _ip("netns", "add", space)
        _ip("link", "add", outside, "type", "veth", "peer", "name", inside, "netns", space)
        _ip("link", "set", outside, "master", self._bridge, "up")
        _ip("-n", space, "addr", "add", f"{self.address(machine)}/24", "dev", inside)
        _ip("-n", space, "link", "set", inside, "up")
        _ip("-n", space, "link", "set", "lo", "up")

    def _space(self, machine: int) -> str:
        return f"{self._name}-{machine}"

    def _link(self, machine: int) -> str:
        return f"{self._name}v{machine}"

    def address(self, machine: int) -> str:
        return f"{self._net}.{machine + 2}"

    def on(self, machine: int) -> list[str]:
        """What makes a command run there."""
        return ["ip", "netns", "exec", self._space(machine)]

    def processes(self, machine: int) -> list[int]:
        return [int(line) for line in _ip("netns", "pids", self._space(machine)).split()]

    def cut(self, machine: int) -> None:
        """Nothing comes in or out, and nobody is told so."""
        _ip("link", "set", self._link(machine), "nomaster")

    def mend(self, machine: int) -> None:
        _ip("link", "set", self._link(machine), "master", self._bridge)

    def close(self) -> None:
        for machine in range(self._machines):
            subprocess.run(["ip", "netns", "del", self._space(machine)], capture_output=True, check=False)
            subprocess.run(["ip", "link", "del", self._link(machine)], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", self._bridge], capture_output=True, check=False)


@contextmanager
def network(machines: int) -> Iterator[Network]:
    made = Network(machines)
    try:
        yield made
    finally:
        made.close()


WHY_NOT = _why_not()
needs_namespaces = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))


def run(words: Sequence[str], environment: dict[str, str]) -> None:
    """Runs a command to its end. Raises AssertionError with what it said."""
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
