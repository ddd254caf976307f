"""Streams on a machine that loses power, and under writers that are killed: nothing acknowledged is lost.

Each seed is a history of appends of what comes again and what is new, trims, and new starts.
LIVEGNN_FAULT_SEEDS says how many; the seed is in the failure.
"""

import os
import random
import secrets
import signal
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import pytest

import livegnn.log.sqlite.sequence
import livegnn.log.streams.sqlite
from crashing_disk import CrashingDisk, losses_ignored
from livegnn import LogError
from livegnn.log import Origin
from livegnn.log.sqlite.sequence import Format, LastAcknowledged
from livegnn.log.streams import Record
from livegnn.log.streams.sqlite import SqliteStream

SEEDS = int(os.environ.get("LIVEGNN_FAULT_SEEDS", "150")) // 3
FIRST = int(os.environ.get("LIVEGNN_SEED", "0"))
LOSSES = 4


class Producer:
    """Appends numbered records, each with its number as its offset, and goes on where the stream is."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.acknowledged = 0  # records
        self.trimmed = 0

    def step(self, stream: SqliteStream) -> None:
        if self.draw.random() < 0.1:
            end = stream.trim(self.draw.randint(0, self.acknowledged))
            assert end < max(1, self.acknowledged)
            self.trimmed = max(end, self.trimmed)
            return
        begin = stream.reached("numbers", 0)
        begin = 0 if begin is None else begin + 1
        assert begin >= self.acknowledged
        again = self.draw.randint(max(0, begin - 3), begin)  # what was stored comes again
        records = [record_of(number) for number in range(again, begin + self.draw.choice([0, 1, 2, 40]))]
        for part in [records[: begin - again], records[begin - again :]] if again < begin else [records]:
            self.acknowledged = max(self.acknowledged, stream.append_all(part))

    def check(self, stream: SqliteStream) -> None:
        end = stream.last_position()
        assert end >= self.acknowledged
        assert stream.reached("numbers", 0) == (end - 1 if end else None)
        begin = min(self.trimmed, max(0, end - 1))
        with suppress(LogError):  # a trim that was not acknowledged
            assert [one.payload for one in stream.records(begin)] == [b"%d" % n for n in range(begin, end)]
        assert [one.position for one in stream.records(max(0, end - 1))] == ([end] if end else [])
        self.acknowledged = end


def record_of(number: int) -> Record:
    return Record("number", b"%d" % number, Origin("numbers", 0, number))


@losses_ignored()
def run(seed: int, directory: Path) -> int:
    """One history; returns how many records were acknowledged. Raises what shows that something was lost."""
    draw = random.Random(seed)
    producer = Producer(draw)
    log = directory / "0" / "log.db"
    for loss in range(LOSSES):
        disk = CrashingDisk(f"stream {seed} {loss} {secrets.token_hex(4)}", None)
        stream = None
        log.parent.mkdir(exist_ok=True)
        mark = log.parent / "log.db-streams" / "s" / "0.db-mark"
        try:
            if draw.random() < 0.2:
                disk.left = draw.randrange(20)
            stream = SqliteStream(log, "s", vfs=disk.name)
            producer.check(stream)
            disk.left = draw.randrange(80)
            for _ in range(draw.randrange(30)):
                producer.step(stream)
            if draw.random() < 0.2:
                stream.close()
        except BaseException as error:
            if not isinstance(error, LogError) or not disk.dead:
                if stream is not None:
                    with suppress(LogError):
                        stream.close()
                raise
        line = mark.read_bytes() if mark.exists() else None
        log = directory / str(loss + 1) / "log.db"
        place = log.parent / "log.db-streams" / "s"
        place.parent.mkdir(parents=True)
        disk.lose_power(place, draw)
        if line is not None and draw.random() < 0.5:
            (place / "0.db-mark").write_bytes(line)
        if stream is not None:
            with suppress(LogError):
                stream.close()
    with closing(SqliteStream(log, "s")) as stream:
        producer.check(stream)
    return producer.acknowledged


@pytest.mark.parametrize("part", range(2))
def test_no_loss_of_power_takes_a_record(tmp_path: Path, part: int) -> None:
    kept = 0
    for number in range(SEEDS // 2):
        seed = FIRST + 2 * number + part
        directory = tmp_path / str(seed)
        directory.mkdir()
        try:
            kept += run(seed, directory)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    assert kept > 0


def mark_before(patch: pytest.MonkeyPatch) -> None:
    """The mark is written before the records."""
    store = SqliteStream.append_all

    def mark_and_store(self: SqliteStream, records: list[Record]) -> int:
        self._mark.write(self.last_position() + len(records))
        return store(self, records)

    patch.setattr(SqliteStream, "append_all", mark_and_store)


def flush_nothing(patch: pytest.MonkeyPatch) -> None:
    connect = livegnn.log.sqlite.sequence.connect

    def connect_without(path: Path, format: Format, synchronous: str, vfs: str | None) -> object:
        return connect(path, format, "NORMAL", vfs)

    patch.setattr(livegnn.log.sqlite.sequence, "connect", connect_without)


def forget_origins(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(livegnn.log.streams.sqlite, "select_new", lambda records, reached: records)


@pytest.mark.parametrize("spoil", [mark_before, flush_nothing, forget_origins])
def test_each_protection_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: object) -> None:
    spoil(monkeypatch)  # type: ignore[operator]
    found = None
    for seed in range(200):
        directory = tmp_path / str(seed)
        directory.mkdir()
        try:
            run(seed, directory)
        except (AssertionError, LogError) as error:
            found = error
            break
    assert found is not None


def test_a_writer_that_is_killed_is_replaced(tmp_path: Path) -> None:
    """Each writes numbers until it is killed, and says what was acknowledged; the next one goes on."""
    program = (
        "import sys; from test_stream_losses import record_of; from livegnn.log.streams.sqlite import *\n"
        "stream = SqliteStream(sys.argv[1], 's')\n"
        "begin = stream.reached('numbers', 0); begin = 0 if begin is None else begin + 1\n"
        "while True:\n"
        "    end = stream.append_all([record_of(n) for n in range(max(0, begin - 2), begin)])\n"
        "    end = stream.append_all([record_of(n) for n in range(begin, begin + 7)])\n"
        "    begin += 7; print(end, flush=True)\n"
    )
    draw = random.Random(FIRST)
    acknowledged = 0
    for _ in range(6):
        with subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path / "log")],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(Path(__file__).parent)])},
        ) as writer:
            assert writer.stdout is not None
            for _ in range(draw.randrange(1, 40)):
                acknowledged = int(writer.stdout.readline())
            writer.send_signal(signal.SIGKILL)
            for line in writer.stdout:
                acknowledged = int(line) if line.endswith(b"\n") else acknowledged
    with closing(SqliteStream(tmp_path / "log", "s")) as stream:
        end = stream.last_position()
        assert end >= acknowledged
        assert [one.payload for one in stream.records(0)] == [b"%d" % n for n in range(end)]
        assert LastAcknowledged(stream.path.with_name("0.db-mark")).read() == end
