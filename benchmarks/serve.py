"""Predictions over HTTP: single reads, a hundred ids at once, beside events, all of them, and feeds.

    python benchmarks/serve.py [--quick] [--json FILE]

The server has the shape of `arxiv`, a SAGE 128 -> 128 -> 40, a key, the check of hosts, and metrics. Beside
it, in one run and in turns (`serve_contestants.py`): a fixed answer of granian, FastAPI with the rows of
PyG's model in an array, and Redis with the same rows. wrk (https://github.com/wg/wrk) asks over HTTP,
`redis-benchmark` asks Redis: both must be installed. A row is the median of the rounds. Appends over HTTP are
measured in `log.py`.

Estimate: the fixed answer takes 35 to 40 us of the event loop's thread, and of the thread that reads and
writes sockets 20. A read of one id adds the key (a SHA-256, 1 us), the host, a look-up of one id, 40 floats
as text (3 us) and the counts of metrics: 10 us in all.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

from graphs import SHAPES, make
from http_load import Load, Server, listening, load
from livegnn.http.keys import create_key
from report import Report, arguments
from serve_contestants import OUTPUTS, rows_of, shape_of

MANY = 100
OFFERED, EACH_POST = 10_000, 100
"""Events a second, and of one request."""

READ = """
math.randomseed({seed})
wrk.headers["authorization"] = "Bearer {key}"
request = function()
  return wrk.format("GET", "/v1/predictions?ids=" .. math.random(0, {nodes} - 1))
end
"""
INFER = """
math.randomseed({seed})
local bodies = {{}}
local headers = {{["authorization"] = "Bearer {key}", ["inference-header-content-length"] = "{head_length}",
                  ["content-type"] = "application/octet-stream"}}
for i = 1, 256 do
  local ids = {{}}
  for j = 1, {many} do
    local id = math.random(0, {nodes} - 1)
    ids[j] = string.char(id % 256, math.floor(id / 256) % 256, math.floor(id / 65536) % 256, 0, 0, 0, 0, 0)
  end
  bodies[i] = '{head}' .. table.concat(ids)
end
local at = 0
request = function()
  at = at % 256 + 1
  return wrk.format("POST", "/v2/models/{model}/infer", headers, bodies[at])
end
"""
HEAD = (
    '{{"inputs":[{{"name":"ids","shape":[{many}],"datatype":"INT64",'
    '"parameters":{{"binary_data_size":{size}}}}}],"parameters":{{"binary_data_output":true}}}}'
)


@dataclass(frozen=True)
class World:
    """What all measurements have in common."""

    folder: Path
    quick: bool
    seconds: int
    key: str
    nodes: int


def contestant(kind: str, world: World) -> list[str]:
    words = [sys.executable, "serve_contestants.py", kind, str(world.folder)]
    return [*words, "quick"] if world.quick else words


def wrk(world: World, address: str, script: str, connections: int, **values: object) -> Load:
    """The load that a server bears. Raises RuntimeError if a request fails."""
    given = {"seed": time.time_ns() % 10**9, "key": world.key, "nodes": world.nodes, **values}
    return load(address, script.format(**given), connections, world.seconds, world.folder)


@contextmanager
def redis(world: World, rows: np.ndarray) -> Iterator[int]:
    """Redis with the rows as JSON under their ids; its port."""
    port = 6390
    words = [
        "redis-server",
        "--port",
        str(port),
        "--save",
        "",
        "--appendonly",
        "no",
        "--dir",
        str(world.folder),
    ]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    try:
        commands = []
        for at, row in enumerate(rows):
            text = json.dumps({"seq": 0, "ids": [at], "predictions": [row.tolist()]}).encode()
            key = b"key:%012d" % at
            commands.append(
                b"*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n" % (len(key), key, len(text), text)
            )
        for _ in range(100):
            if subprocess.run(["redis-cli", "-p", str(port), "ping"], capture_output=True).returncode == 0:
                break
            time.sleep(0.1)
        pipe = ["redis-cli", "-p", str(port), "--pipe"]
        subprocess.run(pipe, input=b"".join(commands), check=True, capture_output=True)
        yield port
    finally:
        process.terminate()
        process.wait()


def redis_load(world: World, port: int, connections: int, keys: int) -> Load:
    """GETs, or MGETs of several keys, a second."""
    words = ["redis-benchmark", "-p", str(port), "-c", str(connections), "-r", str(world.nodes), "--csv"]
    number = max(1000, (50_000 if keys == 1 else 5_000) * world.seconds)
    command = ["GET" if keys == 1 else "MGET", *["key:__rand_int__"] * keys]
    said = subprocess.run([*words, "-n", str(number), *command], capture_output=True, text=True, check=True)
    heads, values = (line.split('","') for line in said.stdout.strip().splitlines()[-2:])
    found = dict(zip((head.strip('"') for head in heads), (one.strip('"') for one in values), strict=True))
    return Load(float(found["rps"]), float(found["p50_latency_ms"]), float(found["p99_latency_ms"]))


def median_of(loads: Sequence[Load]) -> Load:
    return Load(
        *(statistics.median(getattr(load, name) for load in loads) for name in ("rate", "median", "p99"))
    )


def measure_reads(world: World, servers: dict[str, Server], port: int, rounds: int, report: Report) -> None:
    """Reads of one id, with 32 and with 200 connections, all contestants in turns."""
    for connections, p99 in ((32, 8.0), (200, 25.0)):
        loads: dict[str, list[Load]] = {kind: [] for kind in (*servers, "redis")}
        for _ in range(rounds):
            for kind, server in servers.items():
                loads[kind].append(wrk(world, server.address, READ, connections))
            loads["redis"].append(redis_load(world, port, connections, 1))
        found = {kind: median_of(of) for kind, of in loads.items()}
        ours, name = found.pop("livegnn"), f"single reads, {connections} connections"
        aims = {"fixed": 0.75, "redis": 0.35} if connections == 32 else {}
        for kind, other in found.items():
            aim = other.rate * aims[kind] if kind in aims and not world.quick else None
            row = {"peer": kind, "peer_value": other.rate, "aim": aim, "higher_is_better": True}
            report.add(f"{name}, beside {kind}", ours.rate, "/s", **row)  # type: ignore[arg-type]
        report.add(f"{name}: median", ours.median, "ms")
        aim = None if world.quick else p99
        report.add(f"{name}: p99", ours.p99, "ms", aim=aim, peer="fixed", peer_value=found["fixed"].p99)


def measure_many(world: World, address: str, port: int, rounds: int, report: Report) -> None:
    """A hundred ids in a request, as binary tensors of the Open Inference Protocol."""
    head = HEAD.format(many=MANY, size=8 * MANY)
    ours, others = [], []
    for _ in range(rounds):
        values = {"many": MANY, "head": head, "head_length": len(head), "model": "engine"}
        ours.append(wrk(world, address, INFER, 32, **values))
        others.append(redis_load(world, port, 32, MANY))
    rate, other = MANY * median_of(ours).rate, MANY * median_of(others).rate
    aim = None if world.quick else 3 * other
    name = f"{MANY} ids a request, v2 binary"
    report.add(name, rate, "rows/s", aim=aim, higher_is_better=True, peer="redis MGET", peer_value=other)
    report.add(f"{name}: p99", median_of(ours).p99, "ms")


class Writer(threading.Thread):
    """Posts events on schedule, whether the server keeps up or not; then asks for the last of them."""

    def __init__(self, world: World, address: str, number: int, of: int, seconds: float) -> None:
        super().__init__()
        self._world, self._address, self._first, self._of = world, urlsplit(address).netloc, number, of
        self._seconds = seconds
        self.fresh: list[float] = []
        self.taken = self.offered = 0
        drawn = np.random.default_rng(number).integers(0, world.nodes, (64, EACH_POST, 2))
        self._bodies = [
            json.dumps(
                {"events": [{"event": "add_edge", "src": int(a), "dst": int(b)} for a, b in edges if a != b]}
            ).encode()
            for edges in drawn
        ]
        self._counts = [sum(a != b for a, b in edges) for edges in drawn]

    def run(self) -> None:
        connection = HTTPConnection(self._address)
        headers = {"authorization": f"Bearer {self._world.key}", "content-type": "application/json"}
        began, each = time.perf_counter(), self._of * EACH_POST / OFFERED
        turn = 0
        while (due := self._first * each / self._of + turn * each) < self._seconds:
            time.sleep(max(0.0, began + due - time.perf_counter()))
            body, count = self._bodies[turn % 64], self._counts[turn % 64]
            connection.request("POST", "/v1/events", body, headers)
            answer = connection.getresponse()
            said = json.loads(answer.read())
            self.offered += count
            if answer.status == 200:
                self.taken += count
                path = f"/v1/predictions?ids=0&min_seq={said['seq']}"
                connection.request("GET", path, headers=headers)
                connection.getresponse().read()
                self.fresh.append(1000 * (time.perf_counter() - began - due))
            turn += 1
        connection.close()


def measure_mixed(world: World, address: str, rounds: int, report: Report) -> None:
    """Reads of one id while events arrive, in turns with reads without."""
    alone, mixed, fresh = [], [], []
    taken = offered = 0
    for _ in range(rounds):
        alone.append(wrk(world, address, READ, 32))
        writers = [Writer(world, address, number, 8, world.seconds) for number in range(8)]
        for writer in writers:
            writer.start()
        mixed.append(wrk(world, address, READ, 32))
        for writer in writers:
            writer.join()
            fresh += writer.fresh
            taken, offered = taken + writer.taken, offered + writer.offered
    first, second = median_of(alone), median_of(mixed)
    name = f"single reads while {OFFERED:,} events a second arrive"
    aim = None if world.quick else 0.5 * first.rate
    report.add(name, second.rate, "/s", aim=aim, higher_is_better=True, peer="without", peer_value=first.rate)
    report.add(f"{name}: p99", second.p99, "ms", aim=None if world.quick else 15.0)
    taken_aim = None if world.quick else 99.9
    report.add("events taken", 100 * taken / offered, "%", aim=taken_aim, higher_is_better=True)
    for part, aim in ((50, 5.0), (99, 50.0)):
        value = float(np.percentile(fresh, part))
        report.add(f"from the schedule to visible: p{part}", value, "ms", aim=None if world.quick else aim)


def request(world: World, server: Server, path: str, body: bytes | None = None) -> HTTPResponse:
    """An answer whose body is not read yet."""
    connection = HTTPConnection(urlsplit(server.address).netloc)
    headers = {"authorization": f"Bearer {world.key}", "content-type": "application/json"}
    connection.request("GET" if body is None else "POST", path, body, headers)
    answer = connection.getresponse()
    if answer.status != 200:
        raise RuntimeError(f"{path}: {answer.status} {answer.read(1000)!r}")
    return answer


def measure_bulk(world: World, server: Server, rounds: int, report: Report) -> None:
    """All rows over Arrow; then a reader that stops after the head of the stream."""
    import pyarrow as pa

    rates = []
    for _ in range(3 * rounds):
        began = time.perf_counter()
        with request(world, server, "/v1/predictions/all") as answer:
            table = pa.ipc.open_stream(answer).read_all()
        rates.append(table.num_rows / (time.perf_counter() - began))
        assert table.num_rows == world.nodes
    aim = None if world.quick else 3e6
    report.add("all rows over Arrow", statistics.median(rates), "rows/s", aim=aim, higher_is_better=True)
    before = server.memory("VmRSS")
    server.reset_peak()
    with request(world, server, "/v1/predictions/all") as answer:
        answer.read(1000)
        for _ in range(20):  # while others are answered
            request(world, server, "/v1/predictions?ids=1").read()
            time.sleep(0.05)
        grown = server.memory("VmHWM") - before
    report.add("memory of a reader that stops", max(0.0, grown), "MiB")


FOLLOW = """
import asyncio, sys
from urllib.parse import urlsplit

async def follow(place, key, silent, started):
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    head = f"GET /v1/changes HTTP/1.1\\r\\nhost: {place.netloc}\\r\\nauthorization: Bearer {key}\\r\\n\\r\\n"
    writer.write(head.encode())
    await reader.readuntil(b"event: ready")
    started.release()
    if silent:
        await asyncio.Event().wait()
    while await reader.read(1 << 16):
        pass

async def main(address, key, feeds, silent):
    started = asyncio.Semaphore(0)
    place = urlsplit(address)
    tasks = [asyncio.create_task(follow(place, key, at < silent, started)) for at in range(feeds)]
    for _ in tasks:
        await started.acquire()
    print("ready", flush=True)
    await asyncio.gather(*tasks)

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
"""


@contextmanager
def following(world: World, server: Server, feeds: int, *, silent: int) -> Iterator[None]:
    """A process that follows all changes; `silent` of its connections do not read."""
    words = [sys.executable, "-c", FOLLOW, server.address, world.key, str(feeds), str(silent)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        if process.stdout.readline().strip() != "ready":
            raise RuntimeError("the followers must connect, and ended")
        yield
    finally:
        process.kill()
        process.wait()


def post_and_wait(world: World, server: Server, times: int) -> list[float]:
    """Milliseconds from posts of ten events until they are visible, one post after the other."""
    draw, found = np.random.default_rng(times), []
    for _ in range(times):
        edges = draw.integers(0, world.nodes, (10, 2))
        events = [{"event": "add_edge", "src": int(a), "dst": int(b)} for a, b in edges if a != b]
        began = time.perf_counter()
        request(world, server, "/v1/events?wait=true", json.dumps({"events": events}).encode()).read()
        found.append(1000 * (time.perf_counter() - began))
    return found


def measure_feeds(world: World, server: Server, report: Report) -> None:
    """Memory of 256 feeds, one of which does not read; how much longer a batch takes with 1,500 feeds."""
    feeds, times = (40, 10) if world.quick else (1500, 100)
    alone = post_and_wait(world, server, times)
    before = server.memory("VmRSS")
    with following(world, server, min(feeds, 256), silent=1):
        post_and_wait(world, server, times)
        each = (server.memory("VmRSS") - before) / min(feeds, 256)
        report.add("memory of a feed, of 256 of which one does not read", max(0.0, each), "MiB", aim=1.0)
    with following(world, server, feeds, silent=0):
        beside = post_and_wait(world, server, times)
    for part in (50, 99):
        longer = float(np.percentile(beside, part) - np.percentile(alone, part))
        aim = None if world.quick else 20.0
        report.add(f"a batch with {feeds:,} feeds, longer at p{part}", max(0.0, longer), "ms", aim=aim)


def main() -> None:
    options = arguments(__doc__).parse_args()
    report, rounds = Report("HTTP"), 1 if options.quick else 3
    missing = [name for name in ("wrk", "redis-server", "redis-benchmark") if shutil.which(name) is None]
    if missing:
        report.could_not_run("HTTP", f"needs {', '.join(missing)}")
        report.finish(options.json)
        return
    with tempfile.TemporaryDirectory() as folder, ExitStack() as opened:
        key = create_key(Path(folder) / "keys.json", "all", ("admin",))
        shape, seconds = SHAPES[shape_of(options.quick)], 1 if options.quick else 5
        world = World(Path(folder), options.quick, seconds, key, shape.nodes)
        kinds = ("livegnn", "fixed", "fastapi")
        servers = {kind: opened.enter_context(listening(contestant(kind, world))) for kind in kinds}
        rows = rows_of(make(shape_of(options.quick)))
        assert rows.shape == (shape.nodes, OUTPUTS)
        with redis(world, rows) as port:
            measure_reads(world, servers, port, rounds, report)
            measure_many(world, servers["livegnn"].address, port, rounds, report)
        measure_mixed(world, servers["livegnn"].address, rounds, report)
        measure_bulk(world, servers["livegnn"], rounds, report)
        measure_feeds(world, servers["livegnn"], report)
    report.finish(options.json)


if __name__ == "__main__":
    main()
