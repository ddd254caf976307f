"""What each hurtful body costs a server in memory, and how it was answered.

    python tests/memory_of_bodies.py [MIB] [TEXT]

Each is read by a process of its own, a fork of this one, in which a server with a small graph runs: the most
that it had resident at once, less what it had before, as Linux counts it. MIB: of events in lines, 4 by
default; TEXT: only those whose name has it, "/" for those that the gate takes.
"""

import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from hurtful_bodies import MIB, TOPIC, WHAT_IF, Hurtful, cases, large_answers
from livegnn import Engine, Events, Graph
from livegnn.connectors.kafka import KafkaTopic
from livegnn.connectors.kafka_partitions import Arrived
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import Runtime
from livegnn.server import create_app
from streams import WIDTH, make_graph, make_model

PART: Final = 64 * 1024
SECONDS: Final = 120
"""After which a body has wedged the process that reads it."""


class Cost(NamedTuple):
    """status: of the answer, or 0 for a message; grown: bytes at most beyond what was there before."""

    name: str
    size: int
    status: int
    grown: int
    seconds: float

    @property
    def allowed(self) -> int:
        """What was promised: four times the body and 32 MiB."""
        return 4 * self.size + 32 * MIB


def measure(case: Hurtful) -> Cost:
    """What a body costs, in a fork of this process."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(SECONDS)
        os.close(reads)
        answered = b"{}"
        try:
            answered = json.dumps(_measure(case)).encode()
        finally:
            os.write(writes, answered)
            os._exit(0)
    os.close(writes)
    with os.fdopen(reads, "rb") as stream:
        found = json.loads(stream.read() or "{}")
    os.waitpid(child, 0)
    return Cost(
        case.name,
        found.get("size", 0),
        found.get("status", -1),
        found.get("grown", 2**40),
        found.get("seconds", 0.0),
    )


def _measure(case: Hurtful) -> dict[str, object]:
    body = case.body()
    with tempfile.TemporaryDirectory() as folder:
        log = SqliteLog(Path(folder) / "log.db")
        graph = hub_of(case.hub, text=case.text) if case.hub else make_graph(text=case.text)
        views = [Engine(graph, make_model(), threads=1)] if case.route == WHAT_IF or not case.hub else []
        runtime = Runtime(log, graph, *views)
        refuse(runtime, case.refused)
        runtime.start()
        app = create_app(runtime)
        source = KafkaTopic(runtime, "127.0.0.1:1", "topic", settings={"socket.timeout.ms": 1000})
        source._partitions._next = {0: 0}
        if views:
            known = b"ids=n1" if case.text else b"ids=1"
            asyncio.run(_ask(app, ("GET", "/v1/predictions"), "", b"", known))
        before = _forget_peak()
        begun = time.perf_counter()
        status = 0
        if case.route == TOPIC:
            source._store([Arrived(0, 0, bytes(memoryview(body)))])
        else:
            address, _, query = case.route[1].partition("?")
            status = asyncio.run(_ask(app, (case.route[0], address), case.kind, body, query.encode()))
        runtime.wait(log.last_seq(), SECONDS)
        seconds = time.perf_counter() - begun
        grown = _peak() - before
    return {"size": len(body), "status": status, "grown": grown, "seconds": seconds}


def hub_of(count: int, *, text: bool = False) -> Graph:
    """Node 0 leads to `count` others. text: ids are short texts, and one of 1,024 characters."""
    ids = np.arange(count + 1)
    weight, x = np.ones(count, np.float32), np.ones((count + 1, WIDTH), np.float32)
    if not text:
        return Graph.from_edges(np.zeros(count, np.int64), ids[1:], weight=weight, x=x, ids=ids)
    names = [*(f"n{at}" for at in range(count)), "n" * 1024]
    graph = Graph.from_edges([], [], weight=[], x=np.empty((0, WIDTH)), ids=np.empty(0, np.str_))
    edges = Events().add_edges(["n0"] * count, names[1:], weight=weight)
    graph.apply(Events.concatenate([Events().add_nodes(names, x), edges]), seq=0)
    return graph


def refuse(runtime: Runtime, count: int) -> None:
    """Appends entries of 40,000 events that are refused in their turn."""
    nobody = Events().add_edges(np.ones(40_000, np.int64), np.full(40_000, 999_999))
    for _ in range(count):
        runtime.append(nobody)
        runtime.step()


async def _ask(app: object, route: tuple[str, str], kind: str, body: bytes, query: bytes) -> int:
    """The status of an answer. The body comes in parts, each new, as a socket gives them."""
    parts: Iterator[bytes] = (bytes(memoryview(body)[at : at + PART]) for at in range(0, len(body) + 1, PART))
    left = len(body) // PART + 1
    status = 0

    async def receive() -> dict[str, object]:
        nonlocal left
        if left == 0:
            return {"type": "http.disconnect"}
        left -= 1
        return {"type": "http.request", "body": next(parts), "more_body": left > 0}

    async def send(message: dict[str, object]) -> None:
        nonlocal status
        status = message.get("status", status)  # type: ignore[assignment]

    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": route[0],
        "path": route[1],
        "raw_path": route[1].encode(),
        "query_string": query,
        "headers": [(b"content-type", kind.encode())],
        "scheme": "http",
        "server": ("test", 80),
        "client": ("test", 1),
        "root_path": "",
    }
    await app(scope, receive, send)  # type: ignore[operator]
    return status


def _forget_peak() -> int:
    """From now on the peak is what is resident now, which is returned, in bytes."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return _peak()


def _peak() -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


GATE: Final = (
    "edges that come and go, as lines",
    "edges that come and go, each by itself",
    "a line of escaped names, in a message",
    "rows of digits, as lines",
    "many fields, as lines",
    "empty lines, each by itself",
    "keys, as lines",
    "a long text beside short ones, as lines",
    "a long end beside short ones, in a message",
    "empty lists, to /v1/predictions",
    "objects, to /v1/samples",
    "as many objects as there may be, to /v1/predictions",
    "numbers and texts, to /v1/predictions",
    "a long id, to /v1/predictions",
    "as many ids as there may be, to /v1/predictions",
    "as many objects as there may be, to infer",
    "fields, the last one twice, to infer",
    "objects, as a list, each by itself",
    "empty objects, supposed",
    "too much to be objects",
    "fields for a model",
    "a head of objects",
    "ids, as neighbours",
    "texts, one of them long, as neighbours",
    "texts, one of them long, as changed nodes",
    "texts, one of them long, as changed nodes, not listed",
    "a page of large refused entries",
)
"""What was worst before there were limits, for each route and a source."""


def main(size: str = "4", text: str = "") -> None:
    """Prints a line for each: whether it is more than what was promised, how much it is, and its name."""
    bodies = cases(int(float(size) * MIB), file_size=16 * MIB if text == "/" else 64 * MIB)
    for case in [*bodies, *large_answers()]:
        if case.name in GATE if text == "/" else text in case.name:
            one = measure(case)
            sign = "  " if one.grown <= one.allowed else "!!"
            print(
                f"{sign} {one.grown / MIB:8.1f} MiB for {one.size / MIB:6.2f} (at most "
                f"{one.allowed / MIB:6.1f}), {one.seconds:5.1f} s, {one.status}: {one.name}",
                flush=True,
            )


if __name__ == "__main__":
    main(*sys.argv[1:])
