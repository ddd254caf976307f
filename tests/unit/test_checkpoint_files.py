"""Chains of checkpoints: when one begins, what is removed when, and what a damaged file takes along."""

import hashlib
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from chained_checkpoints import (
    NODES,
    WIDTH,
    check_file,
    check_states,
    event,
    first_graph,
    make_runtime,
    run,
    share_small_ones,
)
from gate import draws
from held_checkpoints import TellingLog
from livegnn import Engine, Events, Graph, InputError, checkpoint
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import CheckpointPolicy, Runtime, checkpoints, list_checkpoints, restore
from livegnn.runtime.checkpoint_files import list_chains, may_follow, remove_old
from livegnn.types import State
from streams import make_arrays, make_model
from waiting import PATIENCE

MODEL = make_model()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SqliteLog]:
    log = SqliteLog(tmp_path / "events.db")
    yield log
    log.close()


@pytest.fixture(autouse=True)
def small_ones_share(monkeypatch: pytest.MonkeyPatch) -> None:
    share_small_ones(monkeypatch)


def make_policy(
    tmp_path: Path, full_every: int, keep: int = 2, *, trim_log: bool = False
) -> CheckpointPolicy:
    directory = tmp_path / "checkpoints"
    return CheckpointPolicy(directory, 1, keep=keep, full_every=full_every, trim_log=trim_log)


def seqs(directory: Path) -> list[list[int]]:
    return [[int(path.stem[-20:]) for path in chain] for chain in list_chains(directory)]


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def test_one_in_so_many_stands_alone_and_whole_chains_are_removed(tmp_path: Path, log: SqliteLog) -> None:
    policy = make_policy(tmp_path, 3)
    runtime = make_runtime(log, policy)
    seen = []
    for _ in range(8):
        run(runtime, 1)
        seen.append(seqs(policy.directory))
        for path in list_checkpoints(policy.directory):
            check_file(path)
    assert seen == [
        [[1]],
        [[2, 1]],
        [[3, 2, 1]],
        [[4], [3, 2, 1]],
        [[5, 4], [3, 2, 1]],
        [[6, 5, 4], [3, 2, 1]],
        [[7], [6, 5, 4]],
        [[8, 7], [6, 5, 4]],
    ]
    size = {path.stem[-1]: path.stat().st_size for path in list_checkpoints(policy.directory)}
    assert max(size["8"], size["6"], size["5"]) < 0.2 * min(size["4"], size["7"])


def test_beside_the_loop_they_share_as_well(tmp_path: Path) -> None:
    log = TellingLog(tmp_path / "beside.db")
    policy = make_policy(tmp_path, 3)
    runtime = make_runtime(log, policy)
    runtime.start()
    for number in range(1, 6):
        runtime.wait(runtime.append(event(number)), PATIENCE)
        assert log.ended.acquire(timeout=PATIENCE)
    runtime.stop()
    log.close()
    assert seqs(policy.directory) == [[5, 4], [3, 2, 1]]
    for path in list_checkpoints(policy.directory):
        check_file(path)


def test_where_most_changes_few_are_hashed(tmp_path: Path, log: SqliteLog) -> None:
    policy = make_policy(tmp_path, 3)
    runtime = make_runtime(log, policy)
    versions = []
    for number in range(1, 13):
        if number != 12:
            runtime.append(Events().set_features(np.arange(NODES), np.full((NODES, WIDTH), number)))
            assert runtime.step()
        else:
            run(runtime, 1)
        newest = list_checkpoints(policy.directory)[0]
        contents = checkpoint.read_contents(newest)
        assert checkpoint.read(newest).seq == contents.seq
        versions.append((contents.version, len(contents.files)))
    # Two that are hashed show that most changes, three are not, and so on.
    assert versions == [(2, 0), (2, 0), (1, 0), (1, 0), (1, 0)] * 2 + [(2, 0), (2, 1)]


def test_a_process_that_is_forked_while_others_hash_does_not_wait_for_them(tmp_path: Path) -> None:
    log = TellingLog(tmp_path / "beside.db")
    policy, count = make_policy(tmp_path, 2), draws(4, 16)
    runtime, done = make_runtime(log, policy), threading.Event()

    def hash_and_connect() -> None:
        while not done.is_set():
            hashlib.new("sha3_256", bytes(5000)).digest()
            hashlib.sha256(bytes(100)).digest()
            ssl.create_default_context()

    others = [threading.Thread(target=hash_and_connect) for _ in range(3)]
    for other in others:
        other.start()
    try:
        runtime.start()
        for number in range(1, count + 1):
            runtime.wait(runtime.append(event(number)), PATIENCE)
            assert log.ended.acquire(timeout=PATIENCE)
    finally:
        done.set()
        for other in others:
            other.join()
        runtime.stop()
        log.close()
    assert [len(chain) for chain in list_chains(policy.directory)] == [2, 2]


@pytest.mark.parametrize(("full_every", "small"), [(1, 0), (8, 1 << 30)])
def test_where_none_shares_there_are_as_many_files_as_are_kept(
    tmp_path: Path, log: SqliteLog, monkeypatch: pytest.MonkeyPatch, full_every: int, small: int
) -> None:
    monkeypatch.setattr(checkpoints, "SMALL", small)
    policy = make_policy(tmp_path, full_every)
    run(make_runtime(log, policy), 4)
    assert seqs(policy.directory) == [[4], [3]]
    assert {checkpoint.read_contents(path).version for path in list_checkpoints(policy.directory)} == {1}


def test_an_engine_of_a_chain_is_bit_for_bit_the_one_that_went_on(tmp_path: Path, log: SqliteLog) -> None:
    arrays = make_arrays(5000, 5000)
    graph = Graph.from_edges(**arrays)  # type: ignore[arg-type]
    engine, policy = Engine(graph, MODEL, threads=1), make_policy(tmp_path, 8)
    runtime = Runtime(log, graph, engine, checkpoints=policy, max_batch_events=1)
    for number in range(6):
        runtime.append(Events().set_features([number * 700], np.full((1, len(arrays["x"][0])), number)))
        assert runtime.step()
        newest = list_checkpoints(policy.directory)[0]
        saved, views = restore({"engine": Engine.factory(MODEL, threads=1)}, Graph, directory=newest.parent)
        for ours, theirs in ((saved.state(), graph.state()), (views["engine"].state(), engine.state())):
            assert theirs is not None
            assert ours is not None
            assert ours.meta == theirs.meta
            assert {name: array.tobytes() for name, array in ours.arrays.items()} == {
                name: array.tobytes() for name, array in theirs.arrays.items()
            }
    assert seqs(policy.directory) == [[6, 5, 4, 3, 2, 1]]


def test_a_start_begins_a_chain(tmp_path: Path) -> None:
    policy = make_policy(tmp_path, 8)
    for _ in range(3):
        log = SqliteLog(tmp_path / "restarted.db")
        graph, _ = restore({}, first_graph, directory=policy.directory, log=log)
        run(make_runtime(log, policy, graph), 3)
        log.close()
    assert seqs(policy.directory) == [[9, 8, 7], [6, 5, 4]]


def write_chain(directory: Path, first: int, count: int) -> list[Path]:
    """Files that share a block each, the newest first."""
    x = np.zeros((16, 128))
    x[:8] = first
    paths: list[Path] = []
    for seq in range(first, first + count):
        x[8:] = np.arange(8)[:, None] + x[0, 0]
        x[8 + seq % 8] = seq + 0.5
        path = directory / f"checkpoint-{seq:020d}.lgck"
        with open(path, "wb") as file:
            after = paths[0] if paths else None
            checkpoint.write_shared_to(file, {"graph": State({}, {"x": x})}, seq, after=after)
        paths.insert(0, path)
    return paths


@pytest.mark.parametrize("keep", [1, 2, 3])
@pytest.mark.parametrize("fails_at", range(7))
def test_wherever_a_removal_stops_each_file_that_is_left_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: int, fails_at: int
) -> None:
    written = [write_chain(tmp_path, first, count) for first, count in ((1, 3), (4, 1), (5, 3))]
    written.reverse()
    left, unlink = [fails_at], Path.unlink

    def fail(path: Path, missing_ok: bool = False) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError("the machine is dead")
        unlink(path, missing_ok)

    with monkeypatch.context() as dying:
        dying.setattr(Path, "unlink", fail)
        gone = sum(map(len, written[keep:]))
        if gone > fails_at:
            with pytest.raises(OSError, match="the machine is dead"):
                remove_old(tmp_path, keep)
        else:
            remove_old(tmp_path, keep)
    for path in list_checkpoints(tmp_path):
        assert checkpoint.read(path).seq == int(path.stem[-20:])
    remove_old(tmp_path, keep)
    assert list_chains(tmp_path) == written[:keep]


def test_a_file_that_cannot_be_read_belongs_to_those_that_need_it(tmp_path: Path) -> None:
    newest, older, oldest = (write_chain(tmp_path, first, 3) for first in (7, 4, 1))
    flip(newest[1], 40)
    flip(older[2], 40)
    assert list_chains(tmp_path) == [newest, older, oldest]
    flip(newest[0], 40)
    flip(oldest[0], 40)
    assert list_chains(tmp_path) == [newest[2:], older, oldest[1:]]  # who needs the other two is not known
    remove_old(tmp_path, 2)
    assert list_checkpoints(tmp_path) == newest + older


def test_fewer_than_are_kept_lose_nothing(tmp_path: Path) -> None:
    chain = write_chain(tmp_path, 4, 2)
    broken = tmp_path / f"checkpoint-{1:020d}.lgck"
    broken.write_bytes(b"nothing")
    remove_old(tmp_path, 2)
    assert list_checkpoints(tmp_path) == [*chain, broken]
    remove_old(tmp_path / "nowhere", 2)


def test_a_chain_ends_when_it_is_long_or_has_taken_as_much_as_its_first(tmp_path: Path) -> None:
    chain = write_chain(tmp_path, 1, 3)
    assert may_follow(chain[0], 4)
    assert not may_follow(chain[0], 3)
    assert may_follow(chain[1], 3)
    assert not may_follow(chain[2], 1)
    long = write_chain(tmp_path, 10, 12)
    first, *later = (path.stat().st_size for path in reversed(long))
    fits = [sum(later[:count]) <= first for count in range(12)]
    assert set(fits) == {True, False}
    assert [may_follow(path, 100) for path in reversed(long)] == fits
    long[-1].unlink()
    assert not may_follow(long[-2], 100)
    assert not may_follow(tmp_path / "missing", 100)
    checkpoint.write(tmp_path / "whole", {}, 0)
    assert not may_follow(tmp_path / "whole", 100)


@pytest.mark.parametrize("damaged", [3, 4, 5, 6])
def test_one_damaged_file_leaves_a_checkpoint_and_a_start_that_says_what_it_passed_over(
    tmp_path: Path, log: SqliteLog, caplog: pytest.LogCaptureFixture, damaged: int
) -> None:
    """The chains are 6, 5, 4 and 3, 2, 1. All of a file is damaged that others take from it."""
    policy = make_policy(tmp_path, 3)
    run(make_runtime(log, policy), 6)
    path = policy.directory / f"checkpoint-{damaged:020d}.lgck"
    flip(path, path.stat().st_size - 100)  # in its last blocks
    graph, _ = restore({}, first_graph, directory=policy.directory, log=log)
    passed = [record.getMessage() for record in caplog.records]
    whole = {3: 6, 4: 3, 5: 4, 6: 5}[damaged]  # 5 and 6 need block and file of those before them
    assert graph.seq == whole
    assert len(passed) == 6 - whole
    assert all(str(path) in message for message in passed)
    runtime = make_runtime(log, CheckpointPolicy(tmp_path / "other"), graph)  # replays the rest
    check_states({"graph": runtime.graph.state()}, 6)


def test_the_log_is_trimmed_behind_the_oldest_file(tmp_path: Path, log: SqliteLog) -> None:
    policy = make_policy(tmp_path, 3, trim_log=True)
    runtime = make_runtime(log, policy)
    begins = []
    for _ in range(8):
        run(runtime, 1)
        begins.append(log.first_seq())
    assert begins == [1, 1, 1, 2, 2, 2, 5, 5]
    for path in list_checkpoints(policy.directory):
        saved = checkpoint.read(path)
        graph = Graph.from_state(saved.states["graph"])
        check_states({"graph": make_runtime(log, policy, graph).graph.state()}, 8)


def test_nonsense_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="full_every must be an integer of at least 1, got 0"):
        make_policy(tmp_path, 0)
