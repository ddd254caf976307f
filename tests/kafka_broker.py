"""A real Kafka broker for tests, in a process of its own, and a proxy whose network fails on order.

The tests need LIVEGNN_KAFKA_HOME, a folder with a script `broker DIR PORT KEY=VALUE...` that runs one broker
in the foreground (tests/README.md). Those with a bad network need LIVEGNN_TOXIPROXY_HOME as well, a folder
with `toxiproxy-server`. Where a variable is not set the tests are skipped; where it is set they must run.
"""

import base64
import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from bad_network import PROXY_HOME, Proxy
from ports import free_port
from waiting import PATIENCE

HOME = os.environ.get("LIVEGNN_KAFKA_HOME")

needs_broker = pytest.mark.skipif(not HOME, reason="LIVEGNN_KAFKA_HOME is not set: see tests/README.md")
needs_proxy = pytest.mark.skipif(
    not (HOME and PROXY_HOME), reason="LIVEGNN_TOXIPROXY_HOME is not set: see tests/README.md"
)


def _format(folder: Path, controller: int) -> str:
    """Makes the folder that of a broker which is its own controller; returns the setting that says so.

    Kafka's tool for this starts Java twice, which takes longer than the broker's start.
    """
    ids = [base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=") for _ in range(2)]
    data = folder / "data"
    data.mkdir()
    lines = ("version=1", f"cluster.id={ids[0]}", "node.id=1", f"directory.id={ids[1]}", "")
    (data / "meta.properties").write_text("\n".join(lines), encoding="utf-8")
    return f"controller.quorum.voters=1@127.0.0.1:{controller}"


class Broker:
    """`servers` is its address. advertised: the port that it tells clients, of a proxy for instance. host:
    the address of this machine that it listens at. secure: the port of a further listener, with TLS and
    passwords, which the lines `settings` describe.
    """

    def __init__(
        self,
        advertised: int | None = None,
        port: int | None = None,
        host: str = "127.0.0.1",
        secure: int | None = None,
        settings: Sequence[str] = (),
    ) -> None:
        assert HOME is not None
        if shutil.which("java") is None:
            raise RuntimeError("LIVEGNN_KAFKA_HOME is set, so there must be Java 17, got none")
        self._script = Path(HOME).resolve() / "broker"
        self.folder = Path(tempfile.mkdtemp(prefix="livegnn-kafka-"))
        self.port, self._controller = port or free_port(), free_port()
        self._host = host
        self.servers = f"{host}:{advertised or self.port}"
        self._settings = [_format(self.folder, self._controller)]
        if advertised is not None:
            self._settings.append(f"advertised.listeners=PLAINTEXT://127.0.0.1:{advertised}")
        if secure is not None:
            ours = f"PLAINTEXT://{host}:{self.port},SECURE://{host}:{secure}"
            self._settings += [
                f"listeners={ours},CONTROLLER://127.0.0.1:{self._controller}",
                f"advertised.listeners={ours}",
                "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL,CONTROLLER:PLAINTEXT",
                *settings,
            ]
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Begins, or goes on with what is on the disk; returns when it answers."""
        environment = {
            **os.environ,
            "KAFKA_CONTROLLER_PORT": str(self._controller),
            "KAFKA_HEAP": "384m",
            "KAFKA_HOST": self._host,
            "_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1",  # half of the processor's time: no test is long
        }
        said = (self.folder / "said").open("ab")
        self._process = subprocess.Popen(
            [self._script, self.folder, str(self.port), *self._settings],
            env=environment,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
        said.close()
        admin = AdminClient(
            {"bootstrap.servers": self.servers, "log_level": 2, "reconnect.backoff.max.ms": 200}
        )
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                if admin.list_topics(timeout=2).brokers:
                    return
            except Exception:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(
                        (self.folder / "said").read_text(errors="replace", encoding="utf-8")[-2000:]
                    ) from None

    def kill(self) -> None:
        """Ends it as `kill -9` does."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def proxied_broker() -> Iterator[tuple[Broker, Proxy]]:
    """A broker that clients reach through a proxy alone."""
    outside, inside = free_port(), free_port()
    proxy = Proxy(inside, outside)
    try:
        broker = Broker(outside, inside)
        try:
            yield broker, proxy
        finally:
            broker.close()
    finally:
        proxy.close()
