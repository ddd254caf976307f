"""Streams of workers that start at the same moment."""

import fcntl
import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from livegnn.errors import LogError
from livegnn.log.streams import Record
from livegnn.log.streams.sqlite import SqliteStream, path_of
from livegnn.workers import SqlitePlace
from waiting import PATIENCE, wait_until

WORKERS, ROUNDS = 4, 12
STREAMS = {"worker-a": WORKERS, "worker-b": WORKERS, "worker-plan": 1}


def start(folder: Path, number: int, together: Barrier | threading.Barrier) -> None:
    """What a worker does first: makes all streams, owns its own, and reads those of others."""
    for turn in range(ROUNDS):
        place = SqlitePlace(folder / f"{turn}.db")
        together.wait(PATIENCE)
        place.create(STREAMS)
        own = [place.write(name, number) for name in ("worker-a", "worker-b")]
        for name in ("worker-a", "worker-b"):
            for other in range(WORKERS):
                reader = place.read(name, other)
                assert reader.last_position() in (0, 1)
                reader.close()
        for stream in own:
            assert stream.append_all([Record("change", b"a")]) == 1
            stream.close()


def test_threads_that_start_at_once(tmp_path: Path) -> None:
    together, failures = threading.Barrier(WORKERS), []

    def run(number: int) -> None:
        try:
            start(tmp_path, number, together)
        except Exception as error:
            failures.append(error)
            together.abort()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_processes_that_start_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    together = context.Barrier(WORKERS)
    workers = [context.Process(target=start, args=(tmp_path, number, together)) for number in range(WORKERS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * WORKERS


def test_a_writer_waits_for_the_process_that_makes_its_stream(tmp_path: Path) -> None:
    """The maker owns the stream for a while after it has all that a reader needs."""
    place = SqlitePlace(tmp_path / "events.db")
    folder = path_of(place.path, "worker-a", 0).parents[1]
    folder.mkdir()
    with ThreadPoolExecutor(1) as pool:
        with open(folder / "making", "ab") as making:
            fcntl.flock(making, fcntl.LOCK_EX)
            made = SqliteStream(place.path, "worker-a", 0)
            place.create({"worker-a": 1})
            written = pool.submit(place.write, "worker-a", 0)
            wait_until(lambda: written.done() or is_waited_for(folder / "making"))
            made.close()
        written.result(PATIENCE).close()


def is_waited_for(path: Path) -> bool:
    """Whether a thread waits for the lock on `path`."""
    locks = Path("/proc/locks").read_text().splitlines()
    return any("-> FLOCK" in line and f":{path.stat().st_ino} " in line for line in locks)


def test_what_was_left_half_made_is_made(tmp_path: Path) -> None:
    place = SqlitePlace(tmp_path / "events.db")
    place.create(STREAMS)
    left = tmp_path / "events.db-streams" / "worker-a" / "2.db"
    left.write_bytes(b"")  # its maker died before it wrote
    place.create(STREAMS)
    place.read("worker-a", 2).close()
    left.write_bytes(b"something else" * 100)
    with pytest.raises(LogError, match=r"2\.db"):
        place.create(STREAMS)
