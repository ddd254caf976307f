"""Other processes follow a log: what is acknowledged, in order, each from its own position."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from livegnn import Events, InputError, LogError
from livegnn.log import Batch, Entry, Rejection
from livegnn.log.consumers import Position, forget, read_positions
from livegnn.log.sqlite import SqliteLog
from livegnn.log.sqlite.sequence import LastAcknowledged
from livegnn.log.sqlite.tail import SqliteTail
from livegnn.runtime import Runtime
from livegnn.runtime.replay import replay
from streams import make_graph, make_stream

FOLLOWER = """
import sys
from livegnn.log.sqlite.tail import SqliteTail

tail = SqliteTail(sys.argv[1], "follower")
print("from", tail.position, flush=True)
while tail.wait():
    for entry in tail.entries(max_events=7):
        print(entry.seq, len(entry.events), flush=True)
        tail.commit(entry.seq)
"""
EVENTS = [Events().add_nodes([1, 2, 3]), Events().add_nodes([4]), Events().add_nodes([5, 6])]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SqliteLog]:
    log = SqliteLog(tmp_path / "events.db")
    yield log
    log.close()


def test_a_tail_reads_on_from_what_it_committed(log: SqliteLog) -> None:
    tail = SqliteTail(log.path, "mirror")
    assert (tail.position, list(tail.entries()), tail.wait(0)) == (0, [], False)
    log.append_all(EVENTS)
    entries = [Entry(seq, events) for seq, events in zip([3, 4, 6], EVENTS, strict=True)]
    assert tail.wait(0)
    assert list(tail.entries()) == list(tail.entries()) == entries
    assert list(tail.entries(max_events=1)) == entries[:1]
    tail.commit(4)
    assert list(tail.entries()) == entries[2:]
    for wrong in (3, 5, 7):
        with pytest.raises(InputError, match=f"an acknowledged entry after 4, the present .* got {wrong}"):
            tail.commit(wrong)
    tail.commit(4)
    tail.close()
    tail = SqliteTail(log.path, "mirror")
    assert (tail.position, list(tail.entries())) == (4, entries[2:])
    tail.commit(6)
    assert not tail.wait(0)
    tail.close()
    tail = SqliteTail(log.path, "mirror", after=3)
    assert (tail.position, list(tail.entries())) == (3, entries[1:])
    tail.close()
    assert read_positions(log.path) == {"mirror": 3}


def test_tails_do_not_know_of_each_other(log: SqliteLog) -> None:
    log.append_all(EVENTS)
    one, other = SqliteTail(log.path, "one"), SqliteTail(log.path, "other", after=4)
    one.commit(3)
    assert (len(one.entries()), len(other.entries())) == (2, 1)
    assert read_positions(log.path, flush=True) == {"one": 3, "other": 4}
    one.close()
    other.close()


def test_a_name_is_taken_once(log: SqliteLog) -> None:
    tail = SqliteTail(log.path, "mirror")
    with pytest.raises(LogError, match="must have its name for itself, got 'mirror', under which one runs"):
        SqliteTail(log.path, "mirror")
    with pytest.raises(LogError, match="under which one runs"):
        forget(log.path, "mirror")
    tail.close()
    tail.close()
    SqliteTail(log.path, "mirror").close()
    forget(log.path, "mirror")
    assert read_positions(log.path) == {}
    with pytest.raises(
        InputError, match=r"expected the name of a consumer of .*, got 'mirror': there are none"
    ):
        forget(log.path, "mirror")


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden", "-x", "a b", "ä", "x" * 65, "a\n", None, 3])
def test_what_is_no_name_is_refused(log: SqliteLog, name: str) -> None:
    before = sorted(log.path.parent.rglob("*"))
    with pytest.raises(InputError, match="the name of a consumer must be 1 to 64 letters"):
        SqliteTail(log.path, name)
    with pytest.raises(InputError, match="the name of a consumer must be 1 to 64 letters"):
        forget(log.path, name)
    assert [path for path in sorted(log.path.parent.rglob("*")) if path.is_file()] == [
        path for path in before if path.is_file()
    ]


def test_there_must_be_a_log(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="got no such file"):
        SqliteTail(tmp_path / "missing.db", "mirror")
    (tmp_path / "empty.db").write_bytes(b"")
    with pytest.raises(LogError, match=r"must be an event log of version \d to be read, got an empty file"):
        SqliteTail(tmp_path / "empty.db", "mirror")
    assert [path.name for path in tmp_path.iterdir()] == ["empty.db"]


@pytest.mark.parametrize("content", [b"0", bytes(30), b"%020d 00000000\n" % 99, b"%020d" % 3 + b"x" * 99])
def test_a_damaged_position_is_told(log: SqliteLog, content: bytes) -> None:
    SqliteTail(log.path, "mirror").close()
    (log.path.parent / "events.db-consumers" / "mirror").write_bytes(content)
    with pytest.raises(LogError, match="mirror must hold a sequence number and its checksum, got"):
        SqliteTail(log.path, "mirror")
    with pytest.raises(LogError, match="livegnn log consumers FILE --forget mirror"):
        read_positions(log.path)
    forget(log.path, "mirror")
    SqliteTail(log.path, "mirror").close()


def test_a_consumer_that_died_before_its_first_position_is_a_new_one(log: SqliteLog) -> None:
    Position(log.path, "mirror").close()
    assert read_positions(log.path) == {}
    tail = SqliteTail(log.path, "mirror")
    assert tail.position == 0
    tail.close()


def test_a_name_that_is_forgotten_while_it_is_taken_is_taken_anew(
    log: SqliteLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the opening of the file and its lock."""
    SqliteTail(log.path, "mirror", after=0).close()
    open_, forgotten = os.open, []

    def forget_after(path: Path, *given: int) -> int:
        file = open_(path, *given)
        if Path(path).name == "mirror" and not forgotten:
            forgotten.append(True)
            forget(log.path, "mirror")
        return file

    monkeypatch.setattr(os, "open", forget_after)
    position = Position(log.path, "mirror")
    position.register(5)
    position.close()
    assert read_positions(log.path) == {"mirror": 5}


def test_a_tail_sees_no_entry_before_it_is_acknowledged(
    log: SqliteLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An entry whose append has not come back is in the file, and a loss of power may take it."""
    tail = SqliteTail(log.path, "mirror")
    log.append(EVENTS[0])
    with monkeypatch.context() as patch:
        patch.setattr(LastAcknowledged, "write", lambda self, seq: None)
        log.append(EVENTS[1])
        log.record_batch(Batch(0, 4))
        assert [entry.seq for entry in tail.entries()] == [3]
        assert not tail.batches()
        with pytest.raises(InputError, match="an acknowledged entry"):
            tail.commit(4)
        log.close()
    log = SqliteLog(log.path)  # a start makes sure of what it finds
    assert [entry.seq for entry in tail.entries()] == [3, 4]
    assert [one.batch for one in tail.batches()] == [Batch(0, 4)]
    tail.close()
    log.close()


def test_a_history_has_a_digest_of_its_own(tmp_path: Path, log: SqliteLog) -> None:
    other = SqliteLog(tmp_path / "other.db")
    for one, ids in ((log, (1, 2)), (other, (1, 3))):
        for seq, id in enumerate(ids, 1):
            assert one.append(Events().add_nodes([id])) == seq
            one.record_batch(Batch(seq - 1, seq))
        one.sync()
    tails = [SqliteTail(one.path, "mirror") for one in (log, other)]
    assert tails[0].digest(1) == tails[1].digest(1)
    assert None is not tails[0].digest(2) != tails[1].digest(2) is not None
    assert tails[0].digest(2) == log.digest(2)
    for one in (*tails, other):
        one.close()


def test_what_the_log_is_bound_to_is_checked(log: SqliteLog) -> None:
    tail = SqliteTail(log.path, "mirror")
    tail.check_bound({"colour": "red"})  # bound to nothing yet
    log.bind({"colour": "blue"})
    tail.check_bound({"colour": "blue", "size": "1"})
    with pytest.raises(LogError, match="colour must be blue, got red"):
        tail.check_bound({"colour": "red"})
    tail.close()


def test_wait_ends_with_an_entry_a_batch_or_a_close(log: SqliteLog) -> None:
    tail = SqliteTail(log.path, "mirror")
    answers: list[bool] = []

    def wait(batches: bool) -> threading.Thread:
        waiter = threading.Thread(target=lambda: answers.append(tail.wait(batches=batches)))
        waiter.start()
        return waiter

    waiter = wait(batches=False)
    log.append(EVENTS[0])
    waiter.join()
    waiter = wait(batches=True)
    assert not tail.wait(0.01, batches=True)
    log.record_batch(Batch(0, 3))
    waiter.join()
    tail.commit(3)
    waiter = wait(batches=True)
    tail.close()
    waiter.join()
    assert answers == [True, True, False]


def test_a_reader_of_batches_gets_the_same_bits(tmp_path: Path, log: SqliteLog) -> None:
    runtime = Runtime(log, make_graph(), max_batch_events=16)
    tail, mirror = SqliteTail(log.path, "mirror"), make_graph()
    bad = 0
    for number, events in enumerate(make_stream(60)):
        runtime.append(events)
        if number % 7 == 0:
            runtime.append(Events().remove_edges(10**6 + number, 3))
            bad += 1
        if number % 10 == 9:
            while runtime.step():
                pass
            for batch, applied in tail.batches(max_events=20):
                mirror.apply(applied, seq=batch.seq)
                tail.commit(batch.seq)
    while applied_batches := tail.batches():
        for batch, applied in applied_batches:
            mirror.apply(applied, seq=batch.seq)
            tail.commit(batch.seq)
    assert len(log.rejections()) == bad
    assert mirror.seq == runtime.seq == log.last_seq()
    replayed = make_graph()
    replay(log, replayed)
    for graph in (mirror, replayed):
        for name, array in runtime.graph.state().arrays.items():
            assert np.array_equal(graph.state().arrays[name], array), name
    runtime.stop()
    tail.close()


def test_batches_are_as_many_as_fit_and_at_least_one(log: SqliteLog) -> None:
    log.append_all(EVENTS)
    log.record_batch(Batch(0, 3))
    log.record_batch(Batch(3, 4), Rejection(4, "InputError", "no"))
    log.record_batch(Batch(4, 6))
    tail = SqliteTail(log.path, "mirror")
    for most, wanted in ((1, 1), (3, 1), (4, 2), (5, 2), (6, 3)):
        assert len(tail.batches(max_events=most)) == wanted
    assert [(one.batch, len(one.events)) for one in tail.batches()] == [
        (Batch(0, 3), 3),
        (Batch(3, 4), 0),
        (Batch(4, 6), 2),
    ]
    tail.close()


def follow(path: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, "-c", FOLLOWER, str(path)], stdout=subprocess.PIPE, text=True)


def test_a_process_that_is_killed_again_and_again_misses_nothing(log: SqliteLog) -> None:
    """The owner appends all the while, and is started anew in between."""
    log.close()
    owner = SqliteLog(log.path)
    rng = np.random.default_rng(3)
    seen: list[tuple[int, int]] = []
    for lives in range(4):
        process = follow(log.path)
        assert process.stdout is not None
        begin = int(process.stdout.readline().split()[1])
        assert begin in (0, *(seq for seq, _ in seen))
        if seen:  # what was printed was committed, but perhaps the last
            assert begin in {seq for seq, _ in seen[-2:]}
            seen = [one for one in seen if one[0] <= begin]
        wanted = len(seen) + 30
        for _ in range(40):
            owner.append(Events().add_nodes(np.arange(rng.integers(1, 5))))
            if lives == 2 and owner.last_seq() % 3 == 0:
                owner.close()
                owner = SqliteLog(log.path)
        while len(seen) < wanted:
            seq, size = process.stdout.readline().split()
            seen.append((int(seq), int(size)))
        os.kill(process.pid, signal.SIGKILL)
        rest = process.stdout.read().splitlines()
        seen += [(int(line.split()[0]), int(line.split()[1])) for line in rest if len(line.split()) == 2]
        process.wait()
        process.stdout.close()
    assert len(seen) >= 120
    assert seen == [(entry.seq, len(entry.events)) for entry in owner.entries(0)][: len(seen)]
    owner.close()


def test_a_second_process_of_the_same_name_is_refused(log: SqliteLog) -> None:
    process = follow(log.path)
    assert process.stdout is not None
    assert process.stdout.readline() == "from 0\n"
    with pytest.raises(LogError, match="must have its name for itself, got 'follower'"):
        SqliteTail(log.path, "follower")
    process.kill()
    process.wait()
    process.stdout.close()
    SqliteTail(log.path, "follower").close()


def test_users_import_tail_and_reader_beside_the_log() -> None:
    from livegnn.log import reader, sqlite, tail

    assert (tail.SqliteTail, reader.SqliteReader) == (SqliteTail, sqlite.SqliteReader)
