"""A real PostgreSQL server, and Kafka Connect with Debezium that reads a table of it, for tests.

They need `postgres` and `initdb` of PostgreSQL 15 or newer, the user `postgres` where the tests run as root,
`psql`, and a script `connect DIR BROKER FILE` in LIVEGNN_KAFKA_HOME (tests/README.md).
"""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from kafka_broker import HOME
from kafka_reading import wait_for
from ports import free_port

GUIDE = (Path(__file__).parents[1] / "docs" / "postgres.md").read_text(encoding="utf-8")
_PROGRAMS = "/usr/lib/postgresql/*/bin"


def _program(name: str) -> str | None:
    found = sorted(Path("/").glob(f"{_PROGRAMS[1:]}/{name}"))
    return str(found[-1]) if found else shutil.which(name)


needs_server = pytest.mark.skipif(
    not (_program("initdb") and shutil.which("psql")), reason="PostgreSQL is missing: see tests/README.md"
)

needs_postgres = pytest.mark.skipif(
    not (HOME and Path(HOME, "connect").exists() and _program("initdb") and shutil.which("psql")),
    reason="PostgreSQL, or LIVEGNN_KAFKA_HOME with Kafka Connect, is missing: see tests/README.md",
)


class Postgres:
    """A server with logical replication, in a folder of its own, because its user may not enter others."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="livegnn-postgres-"))
        self.port, self._data = free_port(), self._folder / "data"
        self._user = "postgres" if os.getuid() == 0 else None
        if self._user is not None:
            shutil.chown(self._folder, self._user, self._user)
        command = [_program("initdb"), "-D", self._data, "-U", "postgres", "--auth=trust", "-E", "UTF8"]
        words = [str(one) for one in command]
        subprocess.run(words, check=True, capture_output=True, user=self._user, group=self._user)
        self.start()

    def start(self) -> None:
        """Begins, or continues with the contents of the disk; returns when it answers."""
        settings = ("wal_level=logical", "fsync=off", "listen_addresses=127.0.0.1")
        words = [one for setting in settings for one in ("-c", setting)]
        words += ["-p", str(self.port), "-k", str(self._data)]
        self._process = subprocess.Popen(
            [str(_program("postgres")), "-D", str(self._data), *words],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            user=self._user,
            group=self._user,
        )
        wait_for(lambda: self._run("select 1").returncode == 0)

    def kill(self) -> None:
        """Ends it as a crash does."""
        os.killpg(self._process.pid, signal.SIGQUIT)
        self._process.wait()

    def execute(self, text: str) -> str:
        """Runs statements in one transaction each; returns the rows as lines of columns with tabs."""
        done = self._run(text)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def close(self) -> None:
        if self._process.poll() is None:
            self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self, text: str) -> "subprocess.CompletedProcess[str]":
        words = ("-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", "-qAtX", "-F", "\t")
        return subprocess.run(
            ["psql", *words, "-v", "ON_ERROR_STOP=1"], input=text, capture_output=True, text=True, check=False
        )


def block_of(guide: str, language: str) -> str:
    """The snippet in a language of a page of docs/."""
    found = re.search(rf"```{language}\n(.*?)```", guide, re.DOTALL)
    assert found is not None
    return found[1]


def settings_of(guide: str) -> dict[str, object]:
    """The settings of the connector in the guide."""
    return dict(line.split("=", 1) for line in block_of(guide, "properties").splitlines())


class Connect:
    """Kafka Connect with Debezium, which writes the changes of `tables` to topics `shop.TABLE`.

    settings: of the connector; None for those of the guide.
    """

    def __init__(
        self,
        folder: Path,
        postgres: Postgres,
        servers: str,
        tables: Sequence[str],
        *,
        schemas: bool,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        folder.mkdir()
        self._folder, self._servers, self.port = folder, servers, free_port()
        self._schemas = schemas
        own = {
            **(settings_of(GUIDE) if settings is None else settings),
            "database.hostname": "127.0.0.1",
            "database.port": postgres.port,
            "table.include.list": ",".join(tables),
            "decimal.handling.mode": "precise" if schemas else "double",
            "errors.max.retries": -1,
            "retriable.restart.connector.wait.ms": 500,
        }
        lines = "".join(f"{name}={value}\n" for name, value in {"name": "shop", **own}.items())
        (folder / "shop.properties").write_text(lines, encoding="utf-8")
        self.start()

    def start(self) -> None:
        """Begins, or continues where it was."""
        assert HOME is not None
        said = (self._folder / "said").open("ab")
        self._process = subprocess.Popen(
            [Path(HOME).resolve() / "connect", self._folder, self._servers, self._folder / "shop.properties"],
            env={
                **os.environ,
                "CONNECT_PORT": str(self.port),
                "CONNECT_SCHEMAS": str(self._schemas).lower(),
                "_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1",
            },
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
        said.close()
        wait_for(self._answers)

    def _answers(self) -> bool:
        assert self._process.poll() is None, (self._folder / "said").read_text(errors="replace")[-2000:]
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/connectors/shop/status") as answer:
                return b"RUNNING" in answer.read()
        except OSError:
            return False

    def kill(self) -> None:
        """Ends it as `kill -9` does."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        if self._process.poll() is None:
            self.kill()
