"""A network that fails on order, between a test and a real server: toxiproxy in a process of its own.

It needs LIVEGNN_TOXIPROXY_HOME, a folder with `toxiproxy-server` (tests/README.md).
"""

import json
import os
import subprocess
import time
import urllib.request
from pathlib import Path

from ports import free_port
from waiting import PATIENCE

PROXY_HOME = os.environ.get("LIVEGNN_TOXIPROXY_HOME")


class Proxy:
    """A TCP proxy on loopback. `toxic` spoils its links until `heal`."""

    def __init__(self, upstream: int, port: int) -> None:
        assert PROXY_HOME is not None
        self._api = free_port()
        self._process = subprocess.Popen(
            [Path(PROXY_HOME).resolve() / "toxiproxy-server", "-host", "127.0.0.1", "-port", str(self._api)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                self._post(
                    "/proxies",
                    {"name": "one", "listen": f"127.0.0.1:{port}", "upstream": f"127.0.0.1:{upstream}"},
                )
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
            else:
                return

    def toxic(self, kind: str, stream: str = "downstream", **attributes: float) -> None:
        """One of toxiproxy's toxics, on what the server says or, upstream, on what it is told."""
        self._post("/proxies/one/toxics", {"type": kind, "stream": stream, "attributes": attributes})

    def cut(self, *, off: bool) -> None:
        """Refuses and ends all connections, until told otherwise."""
        self._post("/proxies/one", {"enabled": not off})

    def heal(self) -> None:
        self._post("/reset", {})

    def _post(self, path: str, body: dict[str, object]) -> None:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._api}{path}",
            json.dumps(body).encode(),
            {"content-type": "application/json"},
        )
        urllib.request.urlopen(request, timeout=PATIENCE).close()  # what it holds back runs out first

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
