"""A runtime on a graph in parts begins with the newest whole set of files, and replays the log behind it."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import numpy as np
import pytest

if "CI" not in os.environ:  # which installs all extras
    pytest.importorskip("zmq", reason="pyzmq is not installed: pip install 'livegnn[cluster]'")

from divided_deployment import opened, write
from gate import in_gate
from livegnn import Events
from livegnn.deployment import Deployment
from livegnn.errors import LogError
from livegnn.partitions.remote import RemotePartitions
from livegnn.runtime import Runtime, list_checkpoints
from streams import make_arrays, make_model, make_stream

CHECKPOINT = '[checkpoint]\ndirectory = "checkpoints"\nevery_events = {every}\n'
ENTRIES = make_stream(24, seed=5)
STEPS = ["part 1", "all parts", "names", "named", "removing"]


def deploy(
    directory: Path,
    partitions: int = 2,
    *,
    owners: str = "jump",
    every: int = 1,
    empty: bool = False,
    text_ids: bool = False,
    silent_seconds: float = 5.0,
) -> Path:
    """A deployment whose graph has nodes to begin with, unless it is `empty`."""
    more = CHECKPOINT.format(every=every)
    path = write(
        directory,
        "parts",
        partitions,
        owners=owners,
        silent_seconds=silent_seconds,
        text_ids=text_ids,
        more=more,
    )
    if not empty:
        np.savez(directory / "graph.npz", **make_arrays())
    return path


def apply(runtime: Runtime, entries: Sequence[Events]) -> None:
    """Each as a batch."""
    for events in entries:
        runtime.append(events)
        runtime.step()


def rows_of(runtime: Runtime) -> dict[int | str, bytes]:
    """All predictions, by id."""
    ids = np.sort(cast("np.ndarray", runtime.graph.ids()))
    found = runtime.predict(ids).values
    return {one: row.tobytes() for one, row in zip(ids.tolist(), found, strict=True)}


def expected(
    directory: Path, *entries: Events, empty: bool = False, text_ids: bool = False
) -> dict[int | str, bytes]:
    """The predictions of one engine, whose graph has nodes to begin with, unless it is `empty`."""
    folder = directory / "whole"
    folder.mkdir()
    path = write(folder, "whole", text_ids=text_ids)
    if not empty:
        np.savez(folder / "graph.npz", **make_arrays())
    with opened(path) as runtime:
        apply(runtime, entries)
        return rows_of(runtime)


def first_entry() -> Events:
    """The graph that others begin with."""
    arrays = make_arrays()
    events = Events().add_nodes(arrays["ids"], arrays["x"])
    return events.add_edges(arrays["src"], arrays["dst"], weight=arrays["weight"])


def started_at(caplog: pytest.LogCaptureFixture) -> list[int]:
    """The events of the checkpoints with which starts began; 0 without one."""
    found = [re.match(r"starts from the (.*)", record.getMessage()) for record in caplog.records]
    numbers = [re.search(r"at event (\d+)$", one[1]) for one in found if one is not None]
    return [0 if one is None else int(one[1]) for one in numbers]


@pytest.mark.parametrize(("partitions", "owners"), in_gate([(3, "fennel"), (2, "jump"), (1, "modulo")]))
def test_a_start_goes_on_from_the_newest_set(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, partitions: int, owners: str
) -> None:
    """Several times, and with events behind it in the log."""
    caplog.set_level("INFO")
    empty = owners == "fennel"
    path = deploy(tmp_path, partitions, owners=owners, every=20, empty=empty)
    begun = [first_entry()] if empty else []
    at = []
    for entries in ([*begun, *ENTRIES[:14]], ENTRIES[14:]):
        with opened(path) as runtime:
            apply(runtime, entries)
            rows, seq = rows_of(runtime), runtime.seq
        newest = list_checkpoints(tmp_path / "checkpoints")[0]
        assert newest.name == f"checkpoint-{seq:020}.lgck"
        at.append(seq)
    newest.unlink()  # so that the log has events behind the set before
    at[-1] = int(list_checkpoints(tmp_path / "checkpoints")[0].stem[-20:])
    assert 0 < at[-1] < seq
    caplog.clear()
    with opened(path) as runtime:
        assert started_at(caplog) == at[-1:]
        assert (runtime.seq, rows_of(runtime)) == (seq, rows)
    assert rows == expected(tmp_path, *begun, *ENTRIES, empty=empty)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def damage(directory: Path, kind: str) -> None:
    """Damages the newest set."""
    names, older = list_checkpoints(directory)
    seq = names.stem[-20:]
    part = directory / f"part-01-{seq}.lgck"
    if kind == "names":
        flip(names)
    elif kind == "part":
        flip(part)
    elif kind == "missing":
        part.unlink()
    else:
        shutil.copy(directory / f"part-01-{older.stem[-20:]}.lgck", part)


@pytest.mark.parametrize("kind", in_gate(["part", "missing", "names", "of another set"]))
def test_a_damaged_set_is_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str, started: Callable[[], set[int]]
) -> None:
    caplog.set_level("INFO")
    path = deploy(tmp_path)
    with opened(path) as runtime:
        apply(runtime, ENTRIES[:6])
        seq = runtime.seq
    directory = tmp_path / "checkpoints"
    damage(directory, kind)
    older = int(list_checkpoints(directory)[1].stem[-20:])
    with opened(path) as runtime:
        assert f"passing over the checkpoint {list_checkpoints(directory)[0]}" in caplog.text
        assert started_at(caplog)[-1:] == [older]
        assert (runtime.seq, rows_of(runtime)) == (seq, expected(tmp_path, *ENTRIES[:6]))
        apply(runtime, ENTRIES[6:7])
    assert not started()


def test_a_log_that_was_trimmed_behind_all_whole_sets(
    tmp_path: Path, started: Callable[[], set[int]]
) -> None:
    path = deploy(tmp_path)
    with opened(path) as runtime:
        apply(runtime, ENTRIES[:6])
        oldest = list_checkpoints(tmp_path / "checkpoints")[-1]
        runtime.log.trim(int(oldest.stem[-20:]))
        rows = rows_of(runtime)
    for part in (tmp_path / "checkpoints").glob("part-01-*"):
        flip(part)
    with pytest.raises(LogError, match="trimmed"):
        Deployment.read(path).open()
    assert not started()
    for part in (tmp_path / "checkpoints").glob("part-01-*"):
        flip(part)
    with opened(path) as runtime:
        assert rows_of(runtime) == rows
    for part in (tmp_path / "checkpoints").iterdir():
        part.unlink()
    with pytest.raises(LogError, match=r"made from the log behind a checkpoint, or .* trimmed"):
        Deployment.read(path).open()


@pytest.mark.parametrize(("partitions", "owners"), in_gate([(2, "modulo"), (3, "jump"), (1, "jump")]))
def test_another_number_of_parts_or_other_owners(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, partitions: int, owners: str
) -> None:
    """The graph is divided again; the log is trimmed, so that it cannot be replayed."""
    caplog.set_level("INFO")
    with opened(deploy(tmp_path)) as runtime:
        apply(runtime, ENTRIES[:6])
        seq = runtime.seq
        runtime.log.trim(int(list_checkpoints(tmp_path / "checkpoints")[-1].stem[-20:]))
    with opened(deploy(tmp_path, partitions, owners=owners)) as runtime:
        assert started_at(caplog)[-1] == seq
        apply(runtime, ENTRIES[6:])
        assert rows_of(runtime) == expected(tmp_path, *ENTRIES)
    assert len(list((tmp_path / "checkpoints").glob("part-*"))) == 2 * partitions


def test_fennel_divides_again(tmp_path: Path) -> None:
    """What it has placed, and what a hash has."""
    with opened(deploy(tmp_path, 2, owners="fennel", empty=True)) as runtime:
        apply(runtime, [first_entry(), *ENTRIES[:4]])
        rows, seq = rows_of(runtime), runtime.seq
    for parts, owners in ((3, "fennel"), (2, "jump")):
        with opened(deploy(tmp_path, parts, owners=owners, empty=True)) as runtime:
            assert (runtime.seq, rows_of(runtime)) == (seq, rows)


def test_a_checkpoint_in_one_piece_is_divided(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """And one in parts is no graph in one piece: then the log is replayed."""
    caplog.set_level("INFO")
    with opened(deploy(tmp_path, 0)) as runtime:
        apply(runtime, ENTRIES[:8])
        seq = runtime.seq
    with opened(deploy(tmp_path)) as runtime:
        assert started_at(caplog)[-1] == seq
        apply(runtime, ENTRIES[8:16])
    for old in list_checkpoints(tmp_path / "checkpoints"):
        if not list(old.parent.glob(f"part-*{old.stem[-20:]}*")):
            old.unlink()
    with opened(deploy(tmp_path, 0)) as runtime:
        assert "got that of one in parts" in caplog.text
        assert started_at(caplog)[-1] == 0
        apply(runtime, ENTRIES[16:])
        assert rows_of(runtime) == expected(tmp_path, *ENTRIES)


@pytest.mark.parametrize("before", in_gate([2, 0]))
def test_another_model_computes_its_rows_from_the_graph(tmp_path: Path, before: int) -> None:
    with opened(deploy(tmp_path, before)) as runtime:
        apply(runtime, ENTRIES[:6])
        runtime.log.trim(int(list_checkpoints(tmp_path / "checkpoints")[-1].stem[-20:]))
    rows = []
    for partitions in (2, 0):
        folder = tmp_path / f"with {partitions}"
        shutil.copytree(tmp_path, folder, ignore=shutil.ignore_patterns("with*"))
    for partitions in (2, before):
        folder = tmp_path / f"with {partitions}"
        path = deploy(folder, partitions)
        make_model(3).save(folder / "model.lgnn")
        with opened(path) as runtime:
            apply(runtime, ENTRIES[6:9])
            rows.append(rows_of(runtime))
    assert rows[0] == rows[1]


KILLED = """
import os, signal, sys, threading
from pathlib import Path
import livegnn.runtime.checkpoints as checkpoints
from livegnn.partitions.remote_part import RemoteReader
from test_divided_checkpoints import ENTRIES, apply, deploy
from livegnn.deployment import Deployment

path, step = Path(sys.argv[1]), sys.argv[2]

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

runtime = Deployment.read(path).open()
apply(runtime, ENTRIES[:4])
if step.startswith("part"):
    write = RemoteReader.write
    def write_and_die(part, file, mark):
        if file.name.startswith("part-0" + step[-1]):
            write(part, file, mark)
            die()
        else:
            threading.Event().wait()
    RemoteReader.write = write_and_die
elif step == "all parts":
    checkpoints.Checkpoints._save = die
elif step == "names":
    checkpoints.put_in_place = die
elif step == "named":
    checkpoints.remove_old = die
else:
    checkpoints.remove_checkpoint = die
    import livegnn.runtime.checkpoint_files as files
    unlink = files.remove_checkpoint
    def unlink_and_die(path):
        path.unlink()
        die()
    files.remove_checkpoint = unlink_and_die
apply(runtime, ENTRIES[4:5])
"""


@pytest.mark.parametrize("step", in_gate(["names", "removing", *STEPS[:2], "named"]))
def test_a_kill_while_a_set_is_written_leaves_an_older_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, step: str
) -> None:
    caplog.set_level("INFO")
    path, directory = deploy(tmp_path), tmp_path / "checkpoints"
    tests = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(path), step],
        env={**os.environ, "PYTHONPATH": tests},
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    newest = int(list_checkpoints(directory)[0].stem[-20:])
    with opened(path) as runtime:
        assert started_at(caplog) == [newest]
        assert rows_of(runtime) == expected(tmp_path, *ENTRIES[:5])
        assert (newest == runtime.seq) is (step in STEPS[-2:])
        apply(runtime, ENTRIES[5:6])
    seqs = [path.stem[-20:] for path in list_checkpoints(directory)]
    assert len(seqs) == 2
    beside = sorted(path.name for path in directory.glob("part-*"))
    assert beside == sorted(f"part-{part:02}-{seq}.lgck" for seq in seqs for part in range(2))


def test_a_part_that_cannot_write_its_file_delays_the_checkpoint(tmp_path: Path) -> None:
    """A directory is where its file should be; the runtime goes on, and writes the next one. A file of a part
    that is removed is noticed, and another set is written at once."""
    path, directory = deploy(tmp_path), tmp_path / "checkpoints"
    with opened(path) as runtime:
        apply(runtime, ENTRIES[:3])
        seq = runtime.append(ENTRIES[3])
        taken = directory / f"part-01-{seq:020}.lgck"
        taken.mkdir()
        runtime.step()
        assert "part 1 could not write its file" in runtime.side_failures["checkpoint"]
        assert not (directory / f"part-00-{seq:020}.lgck").exists()
        taken.rmdir()
        apply(runtime, ENTRIES[4:5])
        assert "checkpoint" not in runtime.side_failures
        lost = max(directory.glob("part-01-*"))
        lost.unlink()
        runtime.step()
        assert lost.exists()
        engine = cast("RemotePartitions", runtime.models.engine)
        engine.processes[0].kill()
        engine.processes[0].wait()
        before = list_checkpoints(directory)
    assert list_checkpoints(directory) == before
    with opened(path) as runtime:
        assert rows_of(runtime) == expected(tmp_path, *ENTRIES[:5])
