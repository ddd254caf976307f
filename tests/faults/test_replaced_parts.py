"""A part that is lost is replaced while its runtime continues, with the bits of one engine."""

import os
import shutil
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np
import pytest

if "CI" not in os.environ:  # which installs all extras
    pytest.importorskip("zmq", reason="pyzmq is not installed: pip install 'livegnn[cluster]'")

from test_divided_checkpoints import ENTRIES, apply, deploy, expected, first_entry, opened, rows_of
from test_divided_runtime import at_record

import livegnn._core as _core
import livegnn.partitions.remote as remote
from livegnn import Events
from livegnn.errors import WorkerUnavailableError
from livegnn.partitions.crew import Poll
from livegnn.partitions.part import Given, Placed
from livegnn.partitions.remote import RemotePartitions
from livegnn.runtime import Change, Runtime, list_checkpoints
from livegnn.sampling import sample_subgraph
from streams import WIDTH, make_arrays, make_stream
from waiting import wait_until


def parts_of(runtime: Runtime) -> RemotePartitions:
    return cast("RemotePartitions", runtime.models.engine)


def kill(runtime: Runtime, part: int) -> None:
    process = parts_of(runtime).processes[part]
    process.kill()
    process.wait()


def freeze(runtime: Runtime, part: int) -> None:
    parts_of(runtime).processes[part].send_signal(signal.SIGSTOP)


def begin_with(runtime: Runtime, before: Callable[[], None]) -> None:
    """Calls a function before the next batches are sent to the parts that are there now."""
    crew = parts_of(runtime)._crew
    poll = crew.poll

    def call(given: Given, placed: Placed) -> Poll:
        before()
        return poll(given, placed)

    crew.poll = call  # type: ignore[method-assign]


def dense() -> Events:
    """So many edges that nodes which arrive are placed by the balance, and not near their neighbours."""
    src, dst = np.divmod(np.arange(20 * 20), 20)
    return first_entry().add_edges(src, dst)


def arrivals() -> Events:
    """Nodes that arrive with an edge to the same node."""
    ids = np.arange(100, 120)
    events = Events().add_nodes(ids, np.ones((len(ids), WIDTH)))
    return events.add_edges(ids, np.zeros(len(ids), np.int64))


def sample_of(runtime: Runtime) -> bytes:
    """A sample of the neighbours of all nodes, which are drawn by their owners."""
    ids = np.sort(runtime.graph.ids())
    return sample_subgraph(runtime.graph, ids, [3, 3], seed=1).node.tobytes()


def owners_of(runtime: Runtime) -> list[int]:
    """By index."""
    return cast("list[int]", _core.owners_of(runtime.graph.native, 0).tolist())


@pytest.mark.parametrize(
    ("when", "owners", "shares"),
    [
        ("before", "jump", True),
        ("begun", "fennel", True),
        ("recorded", "fennel", False),
        ("begun", "jump", False),
        ("frozen", "jump", True),
    ],
)
def test_a_part_that_is_lost_in_a_batch(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    when: str,
    owners: str,
    shares: bool,
    started: Callable[[], set[int]],
) -> None:
    """Fresh parts prepare the batch again; or it was recorded, and its changes are not known."""
    if not shares:
        monkeypatch.setattr(remote, "has_shared_memory", lambda: False)
    empty = owners == "fennel"
    told: list[Change] = []
    entries = [dense(), arrivals(), *ENTRIES] if empty else ENTRIES
    first = 0 if when == "recorded" else 6  # nodes are placed by the edges of the batch that is lost
    silent_seconds = 1.5 if when == "frozen" else 5.0
    path = deploy(tmp_path, owners=owners, every=10, empty=empty, silent_seconds=silent_seconds)
    with opened(path) as runtime:
        apply(runtime, entries[:first])
        before = started()
        runtime.subscribe(told.append)
        lost = []

        def lose() -> None:
            if not lost:
                lost.append(True)
                (freeze if when == "frozen" else kill)(runtime, 1)

        if when == "before":
            lose()
        elif when in {"begun", "frozen"}:
            begin_with(runtime, lose)
        else:
            at_record(runtime, lambda: None, lose)
        apply(runtime, entries[first:])
        assert lost
        assert [one.known for one in told] == [when != "recorded", *[True] * (len(entries) - first - 1)]
        after = started()
        assert len(after) == 2
        assert not after & before
        assert "predictor" not in runtime.readiness().reasons
        rows, placed = rows_of(runtime), owners_of(runtime)
    assert not started()
    assert rows == expected(tmp_path, *entries, empty=empty)
    if empty:  # a replay of the whole log places the same nodes in the same parts
        shutil.rmtree(tmp_path / "checkpoints")
        with opened(path) as runtime:
            assert (owners_of(runtime), rows_of(runtime)) == (placed, rows)


def test_a_part_that_is_lost_between_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: Callable[[], set[int]]
) -> None:
    """Nobody appends, and all predictions can be read again. Whether parts should move is not known."""
    with opened(deploy(tmp_path, every=10)) as runtime:
        monkeypatch.setattr(parts_of(runtime), "find_move", lambda: 1 / 0)
        apply(runtime, ENTRIES[:6])
        rows = rows_of(runtime)
        sample = sample_of(runtime)
        before = started()
        with runtime.graph.writer:  # so that it is not replaced yet
            kill(runtime, 0)
            assert "all parts are started again" in runtime.readiness().reasons["predictor"]
            with pytest.raises(WorkerUnavailableError, match="part 0 must answer"):
                rows_of(runtime)
        wait_until(lambda: "predictor" not in runtime.readiness().reasons, "that it is replaced")
        wait_until(lambda: not started() & before, "that the old processes end")
        assert rows_of(runtime) == rows
        assert sample_of(runtime) == sample
        apply(runtime, ENTRIES[6:8])
        assert sample_of(runtime) != sample
        assert rows_of(runtime) == expected(tmp_path, *ENTRIES[:8])
    assert not started()


def test_parts_that_should_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: Callable[[], set[int]]
) -> None:
    """Fresh ones take their places, and reads go on until then."""
    with opened(deploy(tmp_path, every=10)) as runtime:
        apply(runtime, ENTRIES[:6])
        rows, parts, before = rows_of(runtime), parts_of(runtime), started()
        here = parts.parts
        monkeypatch.setattr(parts, "find_move", lambda: "a test" if parts.parts is here else None)

        def have_moved() -> bool:
            assert rows_of(runtime) == rows
            return not started() & before

        wait_until(have_moved, "that the old processes end")
        assert "predictor" not in runtime.readiness().reasons
        apply(runtime, ENTRIES[6:8])
        assert rows_of(runtime) == expected(tmp_path, *ENTRIES[:8])
    assert not started()


def test_parts_that_cannot_be_replaced_end_the_loop(tmp_path: Path) -> None:
    """The log has lost what no set has. The next start says so, too."""
    with opened(deploy(tmp_path, every=10)) as runtime:
        apply(runtime, ENTRIES[:6])
        rows, seq = rows_of(runtime), runtime.seq
        runtime.append(ENTRIES[6])
        hidden = tmp_path / "hidden"
        directory = tmp_path / "checkpoints"
        newest = list_checkpoints(directory)[0]
        runtime.log.trim(int(newest.stem[-20:]))
        directory.rename(hidden)
        kill(runtime, 0)
        with pytest.raises(Exception, match="trimmed"):
            runtime.step()
        assert runtime.seq == seq
        hidden.rename(directory)
        runtime.step()  # which replaces them now
        assert runtime.seq > seq
        assert rows_of(runtime) != rows
        assert rows_of(runtime) == expected(tmp_path, *ENTRIES[:7])


def test_texts_keep_their_numbers_when_parts_are_replaced(tmp_path: Path) -> None:
    """Fresh parts know nodes by the numbers that the names have for their texts. Before the loss,
    numbers were freed and given to other texts. A start afterwards numbers them anew."""
    arrays = make_arrays()
    for name in ("src", "dst", "ids"):
        arrays[name] = np.array([f"n{id_}" for id_ in arrays[name]])
    first = Events().add_nodes(arrays["ids"], arrays["x"])
    first.add_edges(arrays["src"], arrays["dst"], weight=arrays["weight"])
    entries = [first, *make_stream(24, seed=5, text=True)]
    path = deploy(tmp_path, every=10, empty=True, text_ids=True)
    with opened(path) as runtime:
        apply(runtime, entries[:8])
        begin_with(runtime, partial(kill, runtime, 1))
        apply(runtime, entries[8:9])
        at = set(parts_of(runtime).processes)
        apply(runtime, entries[9:20])
        rows = rows_of(runtime)
        assert rows == expected(tmp_path, *entries[:20], empty=True, text_ids=True)
        assert set(parts_of(runtime).processes) == at
    with opened(path) as runtime:
        assert rows_of(runtime) == rows
