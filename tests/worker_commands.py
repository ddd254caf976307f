"""`livegnn worker` beside `livegnn serve`: a small deployment, its processes, and their answers.

Run as a program, this file is a process that runs commands of `livegnn`. It reads a line of JSON with the
words of each, and answers with one of its status and its output.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

import loopback
from livegnn import Events, Graph, Query, Schema, checkpoint
from streams import WIDTH, make_model
from waiting import REQUEST_SECONDS

EDGE = ("node", "to", "node")
QUERY = Query("node").hop(EDGE, 3, direction="in").hop(EDGE, 2, direction="in")
DEPLOYMENT = """
[model]
path = "model.lgnn"
[graph]
path = "graph.checkpoint"
[log]
path = "events.db"
[engine]
mode = "presampled"
sample_seed = 5
[server]
port = 0
[workers]
directory = "workers"
sampling = 2
serving = 2
seed = 5
budget_bytes = 2000000
"""
NODES = 30


class Process:
    """A command that prints one line when it is ready."""

    def __init__(
        self, *words: object, app: str = "worker", environment: dict[str, str] | None = None
    ) -> None:
        command = [sys.executable, "-m", "livegnn", app, *map(str, words)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()
        assert self.line, f"{words} must say that it is ready"

    def stop(self) -> int:
        assert self.process.stdout is not None
        if not self.process.stdout.closed:
            if self.process.returncode is None:
                self.process.terminate()
            self.process.communicate()
        return self.process.returncode


def write_deployment(folder: Path) -> Path:
    """Model, empty graph and deployment file in `folder`; returns the file."""
    make_model().with_query(QUERY).save(folder / "model.lgnn")
    graph = Graph(Schema({"node": WIDTH}))
    checkpoint.write(folder / "graph.checkpoint", {"graph": graph.state()}, 0)
    path = folder / "deployment.toml"
    path.write_text(DEPLOYMENT, encoding="utf-8")
    return path


def check_answers(server: str, front: str) -> int:
    """Sends random events to a server, and checks that its workers answer as it does; the last event."""
    rng = np.random.default_rng(3)
    events = Events().add_nodes(np.arange(NODES), rng.normal(size=(NODES, WIDTH)))
    lines = events.add_edges(*rng.integers(0, NODES, (2, 200))).to_json_lines()
    kind = {"content-type": "application/x-ndjson"}
    seq = loopback.post(server + "/v1/events", content=lines, headers=kind).json()["seq"]
    wanted = {"ids": list(range(NODES)), "min_seq": seq, "timeout": REQUEST_SECONDS}
    expected, found = (
        loopback.post(address + "/v1/predictions", json=wanted).json() for address in (server, front)
    )
    assert "predictions" in found, found
    assert (found["predictions"], found["seq"]) == (expected["predictions"], seq)
    return seq


class CommandLine:
    """A process that runs commands one after the other, as it joins Ray once."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: object) -> tuple[int, str]:
        """The status of a command, and its output or its error."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([str(word) for word in words]) + "\n")
        self._process.stdin.flush()
        status, said = json.loads(self._process.stdout.readline())
        return status, said

    def end(self) -> None:
        self._process.communicate()


def main() -> None:
    from typer.testing import CliRunner

    from livegnn.cli import app

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Ray prints lines of its own
    for line in sys.stdin:
        result = CliRunner().invoke(app, json.loads(line))
        said = result.stdout if result.exception is None else repr(result.exception)
        print(json.dumps([result.exit_code, said]), file=answers, flush=True)


if __name__ == "__main__":
    main()
