"""A deployment in a directory, and `livegnn serve` on it in a process of its own."""

import subprocess
import sys
from pathlib import Path
from types import TracebackType

import numpy as np

from streams import make_arrays, make_model

DEPLOYMENT = """
[model]
path = "model.lgnn"
[graph]
path = "graph.npz"
[log]
path = "events.db"
[checkpoint]
directory = "checkpoints"
every_events = {every_events}
[engine]
threads = {threads}
[runtime]
max_batch_events = {max_batch_events}
[views]
{views}
[server]
port = 0
"""


def write_deployment(
    directory: Path,
    *,
    every_events: int = 150,
    max_batch_events: int = 64,
    threads: int = 1,
    views: str = "",
) -> Path:
    """Model, graph and deployment file of the small example in `directory`; returns the file.

    views: lines of the section of that name.
    """
    make_model().save(directory / "model.lgnn")
    np.savez(directory / "graph.npz", **make_arrays())
    path = directory / "deployment.toml"
    path.write_text(
        DEPLOYMENT.format(
            every_events=every_events, max_batch_events=max_batch_events, threads=threads, views=views
        ),
        encoding="utf-8",
    )
    return path


class Server:
    """`livegnn serve` as a process; `address` is known when the constructor returns, or
    `wait_until_ready`.
    """

    def __init__(
        self,
        deployment: Path,
        *,
        stderr: int | None = None,
        wait: bool = True,
        environment: dict[str, str] | None = None,
    ) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "livegnn", "serve", str(deployment)],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env=environment,
        )
        if wait:
            self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Returns when the server says where it listens."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert "listening at http://" in line, f"the server must say where it listens, got {line!r}"
        self.address = line.split()[-1]

    def kill(self) -> None:
        """Ends the process as `kill -9` does."""
        self.process.kill()
        self._finish()

    def stop(self) -> int:
        """Asks the process to end; returns its exit status."""
        self.process.terminate()
        return self._finish()

    def _finish(self) -> int:
        assert self.process.stdout is not None
        self.process.stdout.close()
        return self.process.wait()

    def __enter__(self) -> "Server":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.stop()


def serve_saved(folder: Path) -> Server:
    """A server of the deployment in a folder, at a free port."""
    deployment = folder / "deployment.toml"
    text = deployment.read_text(encoding="utf-8")
    deployment.write_text(text + "[server]\nport = 0\n", encoding="utf-8")
    return Server(deployment)
