"""The memory of a function, as the system sees it (VmHWM), under every way to start one.

A limit that is taken is kept, whatever is asked; small requests are answered within the least limit that is
taken; one that is smaller is refused at the start, in one line that says which is not. So it is with a
folder, which is read without threads, and with an S3 server, which many threads read at once.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from test_function import Container
from test_lambda import Instance, http_event

from functions import ENVIRONMENT, body
from gate import in_gate
from livegnn import Graph, Model
from livegnn.functions.options import PREDICTOR
from livegnn.model import Input, Step
from livegnn.snapshots.writer import write_snapshot
from loopback import get
from processes import children, peak_memory
from s3_server import KEYS, S3Server, needs_server
from scraped import scrape

NODES, WIDTH = 40_000, 128
LARGE = 400  # ids that reach most of the graph, 20 MB of features


class Place(NamedTuple):
    """The URL of a snapshot, and a folder with a model."""

    snapshot: str
    folder: Path

    @property
    def model(self) -> str:
        return str(self.folder / "model.lgnn")


@pytest.fixture(scope="module")
def graph() -> Graph:
    random = np.random.default_rng(0)
    return Graph.from_edges(
        *random.integers(0, NODES, (2, 8 * NODES)),
        x=random.standard_normal((NODES, WIDTH), dtype=np.float32),
        num_nodes=NODES,
        parallel="last",
    )


@pytest.fixture(scope="module")
def place(graph: Graph, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A snapshot in a folder."""
    folder = tmp_path_factory.mktemp("memory")
    write_snapshot(graph, str(folder / "snapshot"), directions=("in",))
    make_model().save(folder / "model.lgnn")
    return Place(str(folder / "snapshot"), folder)


@pytest.fixture(scope="module")
def server(graph: Graph) -> Iterator[S3Server]:
    """A snapshot on an S3 server."""
    server = S3Server()
    try:
        write_snapshot(graph, server.open(), directions=("in",))
        yield server
    finally:
        server.close()


def make_model() -> Model:
    """Two layers that sum, whose widths are those of the features."""
    random = np.random.default_rng(0)
    sums = {
        "edge_type": ("node", "to", "node"),
        "message_local": (),
        "neighbor_context": "none",
        "combine": "identity",
        "aggregate": "sum",
        "self_loops": None,
    }
    steps, tensors, name = [], {}, "x"
    for i in range(2):
        steps += [
            Step("propagate", (name,), f"a{i}", {}, sums),
            Step("linear", (f"a{i}",), f"h{i}", {"weight": f"w{i}"}),
        ]
        tensors[f"w{i}"] = random.standard_normal((8 if i else WIDTH, WIDTH), dtype=np.float32)
        name = f"h{i}"
    return Model({"x": Input("node", WIDTH)}, tuple(steps), tensors, name, ("x", name))


WAYS = {
    "processes": (),
    "private": ("--cache", "private"),
    "stages": ("--sampling-workers", "1"),
    "threads": ("--place", "threads"),
    "lambda": None,
}


def opened(place: Place) -> tuple[str, ...]:
    return ("--snapshot", place.snapshot, "--model", place.model)


@contextmanager
def start(place: Place, way: str, memory: int) -> Iterator[tuple[Callable[[bytes], int], Callable[[], int]]]:
    """A function with so many MiB: what it answers to a body, and the most that a process of it has had."""
    if way == "lambda":
        variables = {
            "LIVEGNN_SNAPSHOT": place.snapshot,
            "LIVEGNN_MODEL": place.model,
            "LIVEGNN_FUNCTION": PREDICTOR,
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(memory),
        }
        with Instance(place.folder, **variables) as instance:
            yield (
                lambda content: checked(instance.invoke(event_of(content))),
                lambda: peak_memory(instance.process.pid),
            )
        return
    words = WAYS[way]
    assert words is not None
    words = ("--workers", "1", "--memory", str(memory), *words)
    with Container(place.folder, *words, opened=opened(place)) as node:

        def ask(content: bytes) -> int:
            answer = node.post(content)
            return checked({"statusCode": answer.status_code, "body": answer.text})

        own = node.process.pid
        yield ask, lambda: max(map(peak_memory, {own} if way == "threads" else children(own)))
        metrics = get(f"{node.address}/metrics").text
        dead = {v for name, v in scrape(metrics).items() if "function_dead_workers_total" in name}
        assert dead == {0}


def event_of(content: bytes) -> dict:
    return http_event("POST", "/v1/predictions", content.decode())


def checked(answer: dict) -> int:
    """The status of an answer, which is 200, or 500 for a request that needs more memory."""
    if answer["statusCode"] != 200:
        assert json.loads(answer["body"])["type"] == "/problems/out-of-memory", answer
        assert answer["statusCode"] == 500
    return answer["statusCode"]


def refused(place: Place, way: str, memory: int) -> str:
    """What the start says to so many MiB."""
    if way == "lambda":
        with pytest.raises(AssertionError) as told, start(place, way, memory) as (ask, _):
            ask(body(1))
        return str(told.value)
    command = [sys.executable, "-m", "livegnn", "function", "serve", "--port", "0", *opened(place)]
    ended = subprocess.run(
        [*command, "--memory", str(memory), "--workers", "1", *(WAYS[way] or ())],
        capture_output=True,
        text=True,
        env={**os.environ, **ENVIRONMENT},
        timeout=60,
        check=False,
    )
    assert ended.returncode == 1
    assert ended.stdout == ""
    return ended.stderr


@pytest.mark.parametrize(
    "way", in_gate(sorted(WAYS, key=("stages", "threads", "private", "processes", "lambda").index), 2)
)
def test_a_limit_is_kept_or_refused(place: Place, way: str) -> None:
    check_limits(place, way)


@needs_server
@pytest.mark.parametrize("way", in_gate(sorted(WAYS, key=lambda way: way != "private")))
def test_a_limit_has_room_for_the_threads_that_read(
    server: S3Server, place: Place, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With stacks of the usual 8 MiB, requests within most limits found no room for another thread."""
    monkeypatch.setenv("AWS_ENDPOINT", f"http://127.0.0.1:{server.port}")
    monkeypatch.setenv("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "false")
    for name, key in KEYS.items():
        monkeypatch.setenv(f"AWS_{name.upper()}", key)
    check_limits(place._replace(snapshot="s3://graph/some/place"), way)


def check_limits(place: Place, way: str) -> None:
    said = refused(place, way, 30)
    least = int(re.findall(r"memory must be at least (\d+) MiB", said)[0])
    if way != "lambda":
        lines = [line for line in said.splitlines() if "a worker could not begin" not in line]
        assert len(lines) == 1, said
    random = np.random.default_rng(1)
    for memory in (least, least + 60):
        with start(place, way, memory) as (ask, peak):
            for _ in range(10):
                small = random.integers(0, NODES, random.integers(1, 4)).tolist()
                assert ask(body(*small)) == 200
            found = [ask(body(*random.integers(0, NODES, LARGE).tolist())) for _ in range(3)]
            assert memory == least or 200 in found
            for id in range(10):
                assert ask(body(id)) == 200
            print(f"{way}: limit {memory} MiB, VmHWM {peak() / 2**20:.0f} MiB, large ones {found}")
            assert peak() <= memory * 2**20
