"""A log that is trimmed: what went is gone for good, and all that is left is as it was."""

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from livegnn import Events, Graph, InputError, LogError
from livegnn.deployment import Deployment
from livegnn.deployment.sections import checkpoint_policy
from livegnn.log import Batch, Entry, Rejection
from livegnn.log.consumers import forget
from livegnn.log.idempotency import retry_key
from livegnn.log.sqlite import SqliteLog, entry_rows
from livegnn.log.sqlite.tail import SqliteTail
from livegnn.log.sqlite.wal_check import find_damage
from livegnn.runtime import CheckpointPolicy, Runtime, list_checkpoints, restore
from streams import make_graph, make_stream


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SqliteLog]:
    log = SqliteLog(tmp_path / "events.db")
    yield log
    log.close()


def nodes(number: int) -> Events:
    return Events().add_nodes([number, 1000 + number])


def fill(log: SqliteLog, count: int = 10) -> list[Entry]:
    """Rows of an entry of two events, and a batch for each."""
    entries = []
    for number in range(count):
        seq = log.append(nodes(number))
        log.record_batch(Batch(seq - 2, seq))
        entries.append(Entry(seq, nodes(number)))
    return entries


def test_what_is_left_is_as_it_was(log: SqliteLog) -> None:
    entries = fill(log)
    digests = {seq: log.digest(seq) for seq in range(0, 21, 2)}
    assert (log.first_seq(), log.trim(0), log.trim(1)) == (1, 0, 0)
    assert (log.trim(9), log.first_seq()) == (8, 9)
    for again in (log, None):
        if again is None:
            log.close()
            log = SqliteLog(log.path)
        assert (log.first_seq(), log.last_seq()) == (9, 20)
        assert list(log.entries(8)) == entries[4:]
        assert list(log.batches(8)) == [Batch(seq - 2, seq) for seq in range(10, 21, 2)]
        assert {seq: log.digest(seq) for seq in range(8, 21, 2)} == {
            seq: digests[seq] for seq in range(8, 21, 2)
        }
        assert [log.digest(seq) for seq in range(8)] == [None] * 8
        assert [log.entry(seq) for seq in range(1, 9)] == [None] * 8
    assert log.append(nodes(10)) == 22
    log.record_batch(Batch(20, 22))
    assert log.trim(3) == 8
    log.close()


def test_what_was_trimmed_is_refused_by_name(log: SqliteLog) -> None:
    fill(log)
    assert log.trim(8) == 8
    message = (
        "begins after event 8, because earlier events were trimmed, so reading cannot continue from event 6"
    )
    for ask in (
        lambda: log.entries(6),
        lambda: log.entries(6, up_to=7),
        lambda: log.batches(6),
        lambda: SqliteTail(log.path, "late", after=6),
    ):
        with pytest.raises(LogError, match=message):
            ask()
    with pytest.raises(LogError, match="reading cannot continue from event 0"):
        Runtime(log, Graph())
    tail = SqliteTail(log.path, "new")
    assert tail.position == 8
    tail.close()


def test_a_missing_row_is_damage_and_no_trim(log: SqliteLog) -> None:
    fill(log)
    log.trim(4)
    log._appends.execute("DELETE FROM entries WHERE seq = 10")
    with pytest.raises(LogError, match="must continue after event 8, got the entry 12 after 10"):
        log.entries(4)
    log._appends.execute("UPDATE properties SET value = 'x' WHERE name = 'trimmed'")
    with pytest.raises(LogError, match="must say where it begins"):
        log.first_seq()


def test_the_last_row_and_what_is_not_in_a_batch_stay(log: SqliteLog) -> None:
    log.append_all([nodes(1), nodes(2)])
    log.append(nodes(3))
    assert log.trim(99) == 0
    log.record_batch(Batch(0, 2))
    assert log.trim(99) == 0  # the row goes on to 4
    log.record_batch(Batch(2, 6))
    assert log.trim(99) == 4
    assert log.trim(99) == 4
    assert [entry.seq for entry in log.entries(4)] == [6]
    log.close()
    log = SqliteLog(log.path)
    assert log.append(nodes(4)) == 8
    log.record_batch(Batch(6, 8))
    assert log.trim(99) == 6
    log.close()


def test_nothing_is_trimmed_that_a_consumer_needs(log: SqliteLog) -> None:
    fill(log)
    slow, fast = SqliteTail(log.path, "slow"), SqliteTail(log.path, "fast")
    fast.commit(12)
    assert log.trim(20) == 0
    slow.commit(6)
    assert log.trim(20) == 6
    assert [entry.seq for entry in slow.entries()] == list(range(8, 21, 2))
    slow.close()
    assert log.trim(20) == 6
    forget(log.path, "slow")
    assert log.trim(20) == 12
    (log.path.parent / "events.db-consumers" / "fast").write_bytes(b"damaged")
    with pytest.raises(LogError, match="fast must hold a sequence number"):
        log.trim(20)
    fast.close()


def test_refused_entries_can_be_read_and_appended_again_for_ever(log: SqliteLog) -> None:
    graph = Graph()
    runtime = Runtime(log, graph)
    runtime.append_all([Events().add_nodes(1), Events().add_edges(1, 7), Events().add_edges(1, 8)])
    while runtime.step():
        pass
    for number in range(20, 25):
        runtime.append(Events().add_nodes(number))
        while runtime.step():
            pass
    refused = log.rejections()
    assert [rejection.seq for rejection in refused] == [2, 3]
    entry = log.entry(2)
    assert log.trim(7) == 7
    assert (log.entry(2), log.entry(1), log.rejections()) == (entry, None, refused)
    runtime.append(Events().add_nodes(7))
    again = runtime.retry(2)
    assert again == runtime.retry(2) == 10
    while runtime.step():
        pass
    assert runtime.rejection(again) is None
    assert graph.num_edges() == 1
    runtime.append(Events().add_nodes(99))
    while runtime.step():
        pass
    log.trim(10)
    assert [rejection.seq for rejection in log.rejections()] == [3]
    assert log.entry(2) is None
    assert log.entry(3) == Entry(3, Events().add_edges(1, 8))
    runtime.stop()
    log._appends.execute("UPDATE dead_letters SET payload = x'00'")
    with pytest.raises(LogError, match="must hold the events of entry 3"):
        log.entry(3)


def test_an_entry_that_was_appended_again_before_leaves_nothing(log: SqliteLog) -> None:
    log.append(nodes(1))
    log.record_batch(Batch(0, 2), Rejection(2, "InputError", "no"))
    log.append(nodes(1), key=retry_key(2))
    log.record_batch(Batch(2, 4))
    log.append(nodes(2))
    assert log.trim(2) == 2
    assert (list(log.rejections()), log.entry(2)) == ([], None)


def test_keys_outlive_their_entries_until_they_are_old(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log.db", keep_keys_seconds=1000)
    log.append(nodes(1), key="a")
    log.record_batch(Batch(0, 2))
    fill_after(log, 5)
    assert log.trim(8) == 8
    assert log.append(nodes(1), key="a") == 2
    log._appends.execute("UPDATE keys SET time = time - 2000")
    log.trim(10)
    assert log._appends.execute("SELECT count(*) FROM keys").fetchone() == (0,)
    log.close()


def fill_after(log: SqliteLog, count: int) -> None:
    for number in range(count):
        seq = log.append(nodes(100 + number))
        log.record_batch(Batch(seq - 2, seq))


def free_pages(content: bytes) -> Iterator[int]:
    """The numbers of the pages in the list of free ones (section 1.5 of SQLite's file format)."""

    def word(place: int) -> int:
        return int.from_bytes(content[place : place + 4])

    trunk = word(32)
    while trunk:
        begin = 4096 * (trunk - 1)
        yield from (word(begin + 8 + 4 * leaf) for leaf in range(word(begin + 4)))
        trunk = word(begin)


def test_free_pages_hold_no_remains_of_payloads(log: SqliteLog) -> None:
    """Boundaries that are written into such a page would look like appends to whoever reads the -wal file."""
    for number in range(3000):
        log.append_all([nodes(number) for _ in range(3)])
        if number % 100 == 99:
            log.record_batch(Batch(6 * (number - 99), 6 * (number + 1)))
    log.trim(6 * 2900)
    log._appends.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = log.path.read_bytes()
    pages = list(free_pages(content))
    assert len(pages) > 50
    assert not any(b"LGEV" in content[4096 * (page - 1) : 4096 * page] for page in pages)
    before = len(content)
    fill_after(log, 200)
    log._appends.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert len(log.path.read_bytes()) == before  # the space is used again


def test_a_torn_write_ahead_file_after_a_trim_is_no_damage(log: SqliteLog, tmp_path: Path) -> None:
    """At each sector: nothing that was acknowledged, and flushed, can be torn, so only boundaries are."""
    for number in range(400):
        log.append(nodes(number))
    log.record_batch(Batch(0, 700))
    log.trim(600)
    wal = log.path.with_name("events.db-wal")
    log._appends.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    log.append(nodes(400))
    flushed = wal.stat().st_size
    for number in range(350, 400):
        log.record_batch(
            Batch(2 * number, 2 * number + 2), Rejection(2 * number + 2, "InputError", "n" * 900)
        )
    content = wal.read_bytes()
    assert len(content) > flushed + 20 * 4096
    for place in range(flushed, len(content), 512):
        torn = tmp_path / "torn-wal"
        torn.write_bytes(content[:place] + bytes(512) + content[place + 512 :])
        assert find_damage(torn) is None, place


def test_appends_come_between_the_steps_of_a_trim(log: SqliteLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """One step deletes few rows; an append that waits need not wait for all of them."""
    fill(log, 200)
    monkeypatch.setattr(entry_rows, "_TRIMMED_ROWS", 5)
    seqs: list[int] = []
    started, done = threading.Event(), threading.Event()

    def append() -> None:
        while not done.is_set():
            seqs.append(log.append(nodes(1)))
            started.set()

    appender = threading.Thread(target=append)
    appender.start()
    started.wait()
    before = len(seqs)
    assert log.trim(398) == 398
    between = len(seqs) - before
    done.set()
    appender.join()
    assert between > 0
    assert [entry.seq for entry in log.entries(400)] == seqs


@given(
    groups=st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=4), min_size=2, max_size=8),
    merged=st.lists(st.integers(1, 4), min_size=1, max_size=20),
    trims=st.lists(st.integers(0, 100), max_size=4),
)
def test_any_trims_leave_the_end_of_the_same_log(
    tmp_path_factory: pytest.TempPathFactory, groups: list[list[int]], merged: list[int], trims: list[int]
) -> None:
    """Rows of several entries, batches of several entries across them: held against a log that has all."""
    folder = tmp_path_factory.mktemp("log")
    whole, log = SqliteLog(folder / "whole.db"), SqliteLog(folder / "log.db")
    for one in (whole, log):
        for group in groups:
            one.append_all([Events().add_nodes(np.arange(size)) for size in group])
        ends = [0, *(entry.seq for entry in one.entries(0))]
        at = 0
        for count in merged:
            end = min(at + count, len(ends) - 1)
            if end > at:
                one.record_batch(Batch(ends[at], ends[end]))
            at = end
    last_batch = whole.last_batch_seq()
    rows = np.cumsum([sum(group) for group in groups]).tolist()
    begin = 0
    for up_to in trims:
        allowed = [end for end in rows[:-1] if end <= min(up_to, last_batch)]
        begin = max([begin, *allowed])
        assert log.trim(up_to) == begin == log.first_seq() - 1
    assert list(log.entries(begin)) == list(whole.entries(begin))
    assert [log.digest(seq) for seq in range(begin, rows[-1] + 1)] == [
        whole.digest(seq) for seq in range(begin, rows[-1] + 1)
    ]
    for batch in whole.batches(0):
        if batch.after >= begin:
            assert list(log.batches(batch.after)) == list(whole.batches(batch.after))
    assert log.last_batch_seq() == last_batch
    for one in (whole, log):
        assert one.append(Events().add_nodes(1)) == rows[-1] + 1
        one.close()


def test_a_runtime_trims_behind_its_oldest_checkpoint(tmp_path: Path, log: SqliteLog) -> None:
    policy = CheckpointPolicy(tmp_path / "checkpoints", every_events=40, trim_log=True)
    runtime = Runtime(log, make_graph(), max_batch_events=16, checkpoints=policy)
    begins, oldest = [], []
    for events in make_stream(60):
        runtime.append(events)
        while runtime.step():
            pass
        kept = list_checkpoints(policy.directory) if policy.directory.exists() else []
        oldest.append(int(kept[-1].stem[-20:]) if len(kept) == policy.keep else 0)
        begins.append(log.first_seq() - 1)
    assert begins == oldest
    assert begins[-1] > 100
    runtime.stop()
    graph, _ = restore({}, Graph, directory=policy.directory, log=log)
    assert graph.seq == runtime.seq
    newest, older = list_checkpoints(policy.directory)
    newest.unlink()
    graph, _ = restore({}, Graph, directory=policy.directory, log=log)
    again = Runtime(log, graph)
    assert (again.seq, graph.num_edges()) == (runtime.seq, runtime.graph.num_edges())
    again.stop()
    log.append(nodes(10**6))
    older.unlink()
    with pytest.raises(
        LogError, match="reading cannot continue from event 0: it takes a graph, a checkpoint"
    ):
        Runtime(log, make_graph())


def test_a_trim_that_fails_does_not_end_the_runtime(
    tmp_path: Path, log: SqliteLog, caplog: pytest.LogCaptureFixture
) -> None:
    SqliteTail(log.path, "mirror").close()
    (tmp_path / "events.db-consumers" / "mirror").write_bytes(b"damaged")
    policy = CheckpointPolicy(tmp_path / "checkpoints", every_events=5, keep=1, trim_log=True)
    runtime = Runtime(log, make_graph(), checkpoints=policy)
    for events in make_stream(10):
        runtime.append(events)
        while runtime.step():
            pass
    assert "the log was not trimmed: " in caplog.text
    assert log.first_seq() == 1
    assert runtime.statistics.failed_checkpoint_seconds.count == 0
    runtime.stop()


def test_a_deployment_says_what_is_kept(tmp_path: Path) -> None:
    content: dict[str, object] = {"graph": {"path": "g"}, "log": {"path": "l", "keep": "since_checkpoint"}}
    with pytest.raises(InputError, match=r"'since_checkpoint' in \[log\] needs a section \[checkpoint\]"):
        Deployment.parse(content, tmp_path)
    deployment = Deployment.parse(content | {"checkpoint": {"directory": "c"}}, tmp_path)
    policy = checkpoint_policy(deployment.checkpoint, deployment.log)
    assert policy is not None
    assert policy.trim_log
    content["log"] = {"path": "l", "keep": "some"}
    with pytest.raises(InputError, match="keep must be 'all' or 'since_checkpoint', got 'some'"):
        Deployment.parse(content, tmp_path)
