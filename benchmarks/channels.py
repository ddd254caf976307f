"""An exchange between two workers: each sends rows to the other and waits for the other's.

    python benchmarks/channels.py [--quick] [--json FILE]

`ZmqChannel` over ipc and over TCP with encryption, beside gloo (torch.distributed, over TCP, not encrypted)
and beside bare pyzmq without headers, numbers and hashes. The floor is shared memory between two processes
that never sleep: each copies its bytes in, waits for the other's number to change, and copies the other's
out.

Each worker is a process that is pinned to a core of its own, with all of its threads. The figures are the
median of the exchanges as one of them sees it, and the bytes in each direction per second.

Estimate: ZeroMQ passes a message from the caller to its own thread, to the kernel, and the same way back at
the other end. Both directions run at once, so an exchange has four wake-ups in a row of some 5 to 10 us each,
and Python runs for some 30 us: 60 to 80 us over ipc. The aim is 60: a batch of one event has eight in a row,
and half a millisecond. 16 MB are copied twice at each end and hashed twice, at some 5 GB/s, so 15 ms on two
cores: 1 GB/s. CURVE encrypts some 300 MB/s a core, and a core encrypts and decrypts here: 150 MB/s.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from livegnn.channels.channel import Round
from livegnn.channels.frames import Section, SectionKind
from report import Report, arguments

Rows = NDArray[np.float32]
Swap = Callable[[Rows], Rows]
"""Sends rows, and returns the other's."""

WIDTH = 128
SIZES = {"empty": 0, "1 MB": 10**6, "16 MB": 16 * 10**6}
CALLS = {"empty": 5000, "1 MB": 600, "16 MB": 60}
QUICK_SHARE = 20
WARM_UP = 20
AIM_US = 60.0
LOOPBACK = "127.0.0.1"


@contextmanager
def channel(number: int, pipe: Connection, folder: Path, *, interface: str | None) -> Iterator[Swap]:
    """Our own. pipe: to the other worker. folder: of both."""
    from livegnn.channels.plan import Peer
    from livegnn.channels.zmq import Listener

    other = 1 - number
    listener = Listener(number, {1: interface} if number == 0 else {})
    pipe.send((listener.addresses.get(other), listener.key))
    address, key = pipe.recv()
    made = listener.connect({other: Peer(address=address, key=key)}, {"version": "1"})
    turn = 0

    def swap(rows: Rows) -> Rows:
        nonlocal turn
        turn += 1
        nodes = np.arange(len(rows), dtype=np.uint32)
        given = [Section(SectionKind.ROWS, 0, nodes, rows)] if len(rows) else []
        got = made.swap(Round(turn, 0, 0), {other: given})[other]
        return got[0].rows if got else rows

    yield swap
    pipe.send("done")
    pipe.recv()
    made.close()


@contextmanager
def bare(number: int, pipe: Connection, folder: Path, *, transport: str) -> Iterator[Swap]:
    """Two sockets of pyzmq, as they are."""
    import zmq

    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        if transport == "curve":
            public, socket.curve_secretkey = zmq.curve_keypair()
            socket.curve_publickey = public
            pipe.send(public)
            key = pipe.recv()
            if number == 0:
                socket.curve_server = True
            else:
                socket.curve_serverkey = key
        if number == 0:
            socket.bind(f"ipc://{folder}/socket" if transport == "ipc" else f"tcp://{LOOPBACK}:*")
            pipe.send(socket.getsockopt_string(zmq.LAST_ENDPOINT))
        else:
            socket.connect(pipe.recv())

        def swap(rows: Rows) -> Rows:
            socket.send(rows.data.cast("B") if len(rows) else b"", copy=False)
            return np.frombuffer(socket.recv(copy=False).buffer, np.float32).reshape(rows.shape)

        yield swap


@contextmanager
def gloo(number: int, pipe: Connection, folder: Path) -> Iterator[Swap]:
    """The exchange of tensors of torch.distributed, over TCP."""
    import torch
    import torch.distributed as dist

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/gloo", rank=number, world_size=2)

    def swap(rows: Rows) -> Rows:
        given = torch.from_numpy(rows) if len(rows) else torch.zeros(1)  # it has no empty message
        got = torch.empty_like(given)
        sent = dist.isend(given, 1 - number)
        dist.recv(got, 1 - number)
        assert sent is not None
        sent.wait()
        return got.numpy() if len(rows) else rows

    yield swap
    dist.barrier()
    dist.destroy_process_group()


@contextmanager
def shared_memory(number: int, pipe: Connection, folder: Path) -> Iterator[Swap]:
    """A buffer for each worker, and a number that it increases; the other looks at it without a pause."""
    line, most = 64, max(SIZES.values())
    if number == 0:
        memory = SharedMemory(folder.name, create=True, size=2 * (line + most))
        pipe.send("made")
    else:
        pipe.recv()
        memory = SharedMemory(folder.name)
    parts = [np.frombuffer(memory.buf, np.uint8, line + most, at) for at in (0, line + most)]
    counts = [part[:8].view(np.int64) for part in parts]
    rows_of = [part[line:].view(np.float32) for part in parts]
    turn = 0

    def swap(rows: Rows) -> Rows:
        nonlocal turn
        turn += 1
        rows_of[number][: rows.size] = rows.ravel()
        counts[number][0] = 2 * turn - 1
        while counts[1 - number][0] < 2 * turn - 1:
            pass
        got = rows_of[1 - number][: rows.size].reshape(rows.shape).copy()
        counts[number][0] = 2 * turn
        while counts[1 - number][0] < 2 * turn:
            pass
        return got

    yield swap
    pipe.send("done")
    pipe.recv()
    for views in (counts, rows_of, parts):
        views.clear()
    memory.close()
    if number == 0:
        memory.unlink()


METHODS = {
    "channel over ipc": partial(channel, interface=None),
    "channel over TCP, encrypted": partial(channel, interface=LOOPBACK),
    "bare pyzmq over ipc": partial(bare, transport="ipc"),
    "bare pyzmq over TCP": partial(bare, transport="tcp"),
    "bare pyzmq over TCP, encrypted": partial(bare, transport="curve"),
    "gloo": gloo,
    "shared memory": shared_memory,
}


def run(
    method: str, number: int, pipe: Connection, results: Connection, folder: Path, calls: dict[str, int]
) -> None:
    """One worker: makes all exchanges, and sends the figure of each size."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[number % len(cores)]})
    figures = {}
    with METHODS[method](number, pipe, folder) as swap:
        for name, size in SIZES.items():
            mine = [np.full((size // 4 // WIDTH, WIDTH), one, np.float32) for one in (0, 1)]
            seconds = []
            for _ in range(WARM_UP + calls[name]):
                before = time.perf_counter()
                got = swap(mine[number])
                seconds.append(time.perf_counter() - before)
            assert np.array_equal(got, mine[1 - number]), "an exchange must bring the other's rows"
            median_us = float(np.median(seconds[WARM_UP:])) * 1e6
            figures[name] = size / median_us if size else median_us
    results.send(figures)


def measure(method: str, calls: dict[str, int]) -> dict[str, float]:
    """The figure of each size: the median of an empty exchange in us, of others MB/s in each direction."""
    spawn = multiprocessing.get_context("spawn")
    ends, mine = spawn.Pipe(), [spawn.Pipe(duplex=False) for _ in range(2)]
    with tempfile.TemporaryDirectory(prefix="lg") as folder:
        workers = [
            spawn.Process(
                target=run,
                args=(method, number, ends[number], mine[number][1], Path(folder), calls),
                daemon=True,
            )
            for number in range(2)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
            if worker.exitcode:
                raise RuntimeError(f"a worker of {method!r} must end well, got exit code {worker.exitcode}")
        figures: dict[str, float] = mine[0][0].recv()
        return figures


def main() -> None:
    options = arguments(__doc__).parse_args()
    report = Report("channels")
    calls = {name: count // (QUICK_SHARE if options.quick else 1) for name, count in CALLS.items()}
    found: dict[str, dict[str, float]] = {}
    for method in METHODS:
        try:
            found[method] = measure(method, calls)
        except RuntimeError as error:
            report.could_not_run(method, str(error))
    floors, peers = found.pop("shared memory", {}), found.pop("gloo", {})
    for size, num_bytes in SIZES.items():
        for method, figures in found.items():
            is_first = (method, size) == ("channel over ipc", "empty")
            report.add(
                f"{size}, {method}",
                figures[size],
                "MB/s" if num_bytes else "us",
                higher_is_better=num_bytes > 0,
                aim=AIM_US if is_first and not options.quick else None,
                peer="gloo" if peers else None,
                peer_value=peers.get(size),
                floor=floors.get(size),
            )
    report.finish(options.json)


if __name__ == "__main__":
    main()
