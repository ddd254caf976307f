"""Directories that a deployment names: each belongs to one log, whoever else names it too."""

import os
import resource
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from livegnn import Events, Graph, InputError, LogError, Query, Schema, checkpoint
from livegnn.deployment import Deployment
from livegnn.deployment.workers import open_sampling
from livegnn.errors import FileFormatError
from livegnn.log.directories import LOCK, OWNER
from livegnn.log.location import Owner
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import CheckpointPolicy, Runtime, list_checkpoints, restore
from owned import content_of
from streams import WIDTH, make_arrays, make_model

BASE = """
[model]
path = "model.lgnn"
[graph]
path = "graph.npz"
[log]
path = "events.db"
keep = {keep!r}
[runtime]
max_batch_events = 16
"""

KINDS = {
    "checkpoint": "[checkpoint]\ndirectory = {shared!r}\nevery_events = 20\nbeside = false\n",
    "models": "[models]\ndirectory = {shared!r}\n",
    "features": "[features]\ndirectory = {shared!r}\n",
    "state": "[engine]\nthreads = 1\nstate_dir = {shared!r}\n",
    "quality": "[quality]\ndirectory = {shared!r}\n",
    "snapshots": "[snapshots]\nurl = {shared!r}\n",
}
"""How a deployment names a directory of each kind."""


def write(place: Path, shared: Path | str, *kinds: str) -> Path:
    """A deployment in `place`, with a log of its own, that names `shared` for each of `kinds`."""
    place.mkdir()
    make_model().save(place / "model.lgnn")
    np.savez(place / "graph.npz", **make_arrays())
    keep = "since_checkpoint" if "checkpoint" in kinds else "all"
    text = BASE.format(keep=keep) + "".join(KINDS[kind].format(shared=str(shared)) for kind in kinds)
    (place / "deployment.toml").write_text(text, encoding="utf-8")
    return place / "deployment.toml"


def run(path: Path, events: int = 25) -> bytes:
    """A start that appends, deploys a model if it has none, takes a snapshot, and stops; its predictions."""
    runtime = Deployment.read(path).open()
    with closing(runtime.log):
        for number in range(events):
            runtime.append(Events().add_edges(number % 7, 8 + number % 5))
            runtime.step()
        if "other" not in runtime.views:
            runtime.models.deploy("other", make_model(2), wait=False)
            while "other" not in runtime.views:
                runtime.step()
        if "snapshots" in runtime.views:
            runtime.views["snapshots"].write()
        runtime.stop()
        return runtime.engine.embeddings(-1).tobytes()


def copy_of(place: Path, to: Path) -> Path:
    shutil.copytree(place, to)
    return to / "deployment.toml"


@pytest.mark.parametrize("kind", KINDS)
def test_a_directory_belongs_to_one_log(tmp_path: Path, kind: str) -> None:
    """Whether the other deployment runs or not, and one on a copy of its log; nothing there changes."""
    shared = tmp_path / "shared"
    a, b = write(tmp_path / "a", shared, kind), write(tmp_path / "b", shared, kind)
    run(a)
    before, own = content_of(shared), content_of(b.parent)
    assert OWNER in before
    with pytest.raises(InputError) as error:
        Deployment.read(b).open()
    assert str(shared) in str(error.value)
    assert "name another" in str(error.value)
    assert str(a.parent / "events.db") in str(error.value)
    assert content_of(shared) == before
    left = {name for name in content_of(b.parent) if not name.startswith("events.db")}
    assert left == own.keys()

    copied = copy_of(a.parent, tmp_path / "copied")
    runtime = Deployment.read(a).open()
    with closing(runtime.log):
        before = content_of(shared)
        with pytest.raises(LogError, match=f"must have one owner, got a second one: process {os.getpid()}"):
            Deployment.read(copied).open()
        with pytest.raises(InputError, match="name another"):
            Deployment.read(b).open()
        assert content_of(shared) == before
        runtime.stop()
    run(a)


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_moved_or_copied_together_goes_on(tmp_path: Path, kind: str) -> None:
    """The deployment with its directory, the directory alone, the log alone; and a backup of both."""
    path = write(tmp_path / "a", "here", kind)
    expected = run(path)
    backup = copy_of(path.parent, tmp_path / "backup")
    moved = path.parent.rename(tmp_path / "moved") / "deployment.toml"
    assert run(moved, events=0) == expected
    text = moved.read_text(encoding="utf-8")
    (moved.parent / "here").rename(moved.parent / "there")
    (moved.parent / "logs").mkdir()
    for one in moved.parent.glob("events.db*"):
        one.rename(moved.parent / "logs" / one.name)
    text = text.replace("'here'", "'there'").replace('"events.db"', '"logs/events.db"')
    moved.write_text(text, encoding="utf-8")
    assert run(moved, events=0) == expected
    assert run(backup, events=0) == expected


def test_all_kinds_in_one_directory_of_one_deployment(tmp_path: Path) -> None:
    path = write(tmp_path / "a", "here", *KINDS)
    expected = run(path)
    assert run(path, events=0) == expected


def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    """As the log's are, while a process runs and afterwards; snapshots are for others."""
    umask = os.umask(0)
    try:
        place = tmp_path / "a"
        path = write(place, "here", "checkpoint", "models")
        with open(path, "a", encoding="utf-8") as file:
            file.write("[features]\ndirectory = 'x'\n[engine]\nthreads = 1\nstate_dir = 'rows'\n")
        given = {one.name for one in place.iterdir()}
        run(path)
        runtime = Deployment.read(path).open()
        mapped = {
            os.readlink(link): os.stat(link).st_mode & 0o777
            for link in Path("/proc/self/fd").iterdir()
            if str(place) in os.path.realpath(link)
        }
        modes = {
            one.relative_to(place).as_posix(): one.stat().st_mode & 0o777
            for one in place.rglob("*")
            if one.name not in given
        }
        runtime.stop()
        runtime.log.close()
    finally:
        os.umask(umask)
    assert {"here/models.json", "here/other.lgnn", "x", "rows"} <= modes.keys()
    assert sum(name.endswith(".lgck") for name in modes) == 2
    assert sum("/livegnn-" in name and "deleted" in name for name in mapped) >= 2
    for name, mode in (mapped | modes).items():
        assert mode & 0o077 == 0, (name, oct(mode))
    checkpoint.write(tmp_path / "one.lgck", {}, 0)
    assert (tmp_path / "one.lgck").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "kinds", [(), *[(kind,) for kind in KINDS]], ids=lambda kinds: "+".join(kinds) or "none"
)
def test_a_start_without_what_was_there_stops(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    """A volume that is not mounted: an empty folder, or none. It goes on when the volume is back."""
    place, volume = tmp_path / "a", tmp_path / "a" / "volume"
    path = write(place, "volume/here", *kinds)
    text = path.read_text(encoding="utf-8").replace('"events.db"', '"volume/events.db"')
    path.write_text(text, encoding="utf-8")
    volume.mkdir()
    expected = run(path)
    for empty in (True, False):
        volume.rename(tmp_path / "unmounted")
        if empty:
            volume.mkdir()
        before = content_of(place)
        for _ in range(2):
            with pytest.raises(
                LogError, match=r"must be the event log .* no such file: is a volume not mounted"
            ):
                Deployment.read(path).open()
        assert content_of(place) == before
        if empty:
            volume.rmdir()
        (tmp_path / "unmounted").rename(volume)
        assert run(path, events=0) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_a_start_without_the_log_alone_stops(tmp_path: Path, kind: str) -> None:
    """The log is on a volume of its own, the deployment file in a folder that is only read."""
    path = write(tmp_path / "a", "here", kind)
    expected = run(path)
    (path.parent / "deployment.toml-mark").unlink()
    away = tmp_path / "away"
    away.mkdir()
    for one in path.parent.glob("events.db*"):
        one.rename(away / one.name)
    before = content_of(path.parent)
    with pytest.raises(LogError, match="is a volume not mounted") as error:
        Deployment.read(path).open()
    assert content_of(path.parent) == before
    for one in away.iterdir():
        one.rename(path.parent / one.name)
    assert run(path, events=0) == expected
    for one in path.parent.glob("events.db*"):
        one.unlink()
    with pytest.raises(LogError, match="is a volume not mounted") as error:
        Deployment.read(path).open()
    for name in str(error.value).split("move away ")[1].split(", "):
        Path(name).rename(away / Path(name).name)
    run(path)


def test_a_mark_that_is_damaged_is_written_again_while_the_log_is_there(tmp_path: Path) -> None:
    path = write(tmp_path / "a", "unused")
    expected = run(path)
    mark = path.with_name("deployment.toml-mark")
    content = mark.read_bytes()
    mark.write_bytes(content[:-5])
    assert run(path, events=0) == expected
    assert mark.read_bytes() == content
    mark.write_bytes(content[:-5])
    for one in path.parent.glob("events.db*"):
        one.rename(tmp_path / one.name)
    shutil.rmtree(path.parent / "models")
    with pytest.raises(FileFormatError, match=r"toml-mark must say to which log this belongs"):
        Deployment.read(path).open()


def test_a_deployment_that_is_changed_to_another_log_begins(tmp_path: Path) -> None:
    path = write(tmp_path / "a", "unused")
    run(path)
    text = path.read_text(encoding="utf-8").replace('"events.db"', '"other.db"')
    path.write_text(text, encoding="utf-8")
    shutil.rmtree(path.parent / "models")
    run(path)


def write_workers(place: Path, shared: Path) -> Path:
    """A deployment with sampling workers that keep their checkpoints in `shared`; its log has some nodes."""
    place.mkdir()
    edge = ("node", "to", "node")
    make_model().with_query(Query("node").hop(edge, 3, direction="in").hop(edge, 2, direction="in")).save(
        place / "model.lgnn"
    )
    checkpoint.write(place / "graph.lgck", {"graph": Graph(Schema({"node": WIDTH})).state()}, 0)
    text = BASE.format(keep="all").replace("graph.npz", "graph.lgck")
    path = place / "deployment.toml"
    path.write_text(f"{text}[workers]\ndirectory = {str(shared)!r}\n", encoding="utf-8")
    runtime = Deployment.read(path).open()
    with closing(runtime.log):
        runtime.append(Events().add_nodes(np.arange(9), np.ones((9, WIDTH))))
        runtime.step()
        runtime.stop()
    return path


def test_workers_of_two_logs_share_no_directory(tmp_path: Path) -> None:
    """At the start, and when the directory is given to another log meanwhile."""
    shared = tmp_path / "shared"
    a, b = (Deployment.read(write_workers(tmp_path / name, shared)) for name in ("a", "b"))
    worker = open_sampling(a, 0)
    assert worker.step()
    worker.save()
    assert OWNER in names(shared)
    before = content_of(shared)
    with pytest.raises(
        InputError, match=r"for its workers, got one of another log, .* name another directory"
    ):
        open_sampling(b, 0)
    assert content_of(shared) == before
    worker.close()
    with pytest.raises(InputError, match="name another directory"):
        open_sampling(b, 0)
    worker = open_sampling(a, 0)
    (shared / OWNER).rename(shared / "away")
    for one in shared.glob("sampling-0*"):
        one.unlink()
    other = open_sampling(b, 0)
    assert other.step()
    other.save()
    before = content_of(shared)
    runtime = a.open()
    with closing(runtime.log):
        runtime.append(Events().add_nodes(10, np.ones((1, WIDTH))))
        runtime.step()
        runtime.stop()
    assert worker.step()
    with pytest.raises(InputError, match="name another directory"):
        worker.save()
    assert content_of(shared) == before
    worker.close()
    other.close()


def names(directory: Path) -> set[str]:
    return {one.name for one in directory.iterdir()}


def test_deployments_share_what_neither_of_them_writes(tmp_path: Path) -> None:
    """Model, graph, and the folder where deployed models would be."""
    write(tmp_path / "a", "unused")
    runtimes = []
    for name in ("one", "two"):
        path = tmp_path / "a" / f"{name}.toml"
        path.write_text(BASE.format(keep="all").replace("events.db", f"{name}.db"), encoding="utf-8")
        runtimes.append(Deployment.read(path).open())
    for runtime in runtimes:
        runtime.append(Events().add_edges(0, 9))
        runtime.step()
        runtime.stop()
        runtime.log.close()


def test_a_killed_owner_leaves_no_lock(tmp_path: Path) -> None:
    path = write(tmp_path / "a", "here", *KINDS)
    program = (
        "import sys, os, signal; from livegnn.deployment import Deployment\n"
        "runtime = Deployment.read(sys.argv[1]).open()\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.run([sys.executable, "-c", program, str(path)], check=False)
    assert killed.returncode == -9
    run(path)


def runtime_on(log: SqliteLog, directory: Path) -> Runtime:
    policy = CheckpointPolicy(directory, every_events=10, beside=False, trim_log=True)
    graph, _ = restore({}, Graph, directory=directory, log=log)
    return Runtime(log, graph, checkpoints=policy)


def grow(runtime: Runtime, events: int, first: int) -> None:
    for number in range(first, first + events):
        runtime.append(Events().add_nodes(number))
        runtime.step()


def test_neither_of_two_logs_loses_what_was_acknowledged(tmp_path: Path) -> None:
    """One is on its way when a second one is given its directory; then the files by which it is owned are
    taken away, and the second one comes first.
    """
    directory = tmp_path / "checkpoints"
    with closing(SqliteLog(tmp_path / "a.db")) as a, closing(SqliteLog(tmp_path / "b.db")) as b:
        first = runtime_on(a, directory)
        grow(first, 40, 0)
        with pytest.raises(InputError, match="name another directory"):
            Runtime(b, Graph(), checkpoints=CheckpointPolicy(directory))
        kept = list_checkpoints(directory)
        assert kept
        for name in (OWNER, LOCK):
            (directory / name).unlink()
        second = Runtime(b, Graph(), checkpoints=CheckpointPolicy(directory, every_events=10, beside=False))
        grow(second, 60, 1000)  # its checkpoints are of later events
        assert set(kept) < set(list_checkpoints(directory))
        grow(first, 40, 40)
        second.stop()
        first.stop()
        assert a.first_seq() > 1
        assert set(kept) < set(list_checkpoints(directory))
        own = {path for path in list_checkpoints(directory) if path not in kept}
        for path in own:
            path.unlink()
        graph, _ = restore({}, Graph, directory=directory, log=a)
        Runtime(a, graph).stop()  # what was trimmed is in a checkpoint
        assert graph.seq == a.last_seq() == 80
        assert graph.num_nodes() == 80


def test_a_disk_that_is_full_keeps_nobody_from_a_directory_of_its_own(tmp_path: Path) -> None:
    with closing(SqliteLog(tmp_path / "log.db")) as log:
        log.directories.own(tmp_path / "kept", "models").hold()
    with closing(SqliteLog(tmp_path / "log.db")) as log:
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
        try:
            log.directories.own(tmp_path / "kept", "models").hold()
            with pytest.raises(OSError, match="File too large"):
                log.directories.own(tmp_path / "new", "models").hold()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        with pytest.raises(LogError, match="must have one owner"):
            Owner(tmp_path / "kept" / LOCK, "it")
        Owner(tmp_path / "new" / LOCK, "it").release()
        log.directories.own(tmp_path / "new", "models").hold()


def test_a_log_that_is_closed_holds_nothing(tmp_path: Path) -> None:
    with closing(SqliteLog(tmp_path / "log.db")) as log:
        owned = log.directories.own(tmp_path / "kept", "models")
        owned.hold()
    with pytest.raises(LogError, match="must be open"):
        owned.hold()
    Owner(tmp_path / "kept" / LOCK, "it").release()


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{}", b"[" * 100_000, b'{"version": 2, "crc32": 0}'],
    ids=["empty", "a list", "nothing said", "deep", "a later version"],
)
def test_an_owner_that_cannot_be_read_is_named(tmp_path: Path, content: bytes) -> None:
    directory = tmp_path / "checkpoints"
    directory.mkdir()
    (directory / OWNER).write_bytes(content)
    with closing(SqliteLog(tmp_path / "log.db")) as log, pytest.raises(FileFormatError) as error:
        Runtime(log, Graph(), checkpoints=CheckpointPolicy(directory))
    assert str(directory / OWNER) in str(error.value)
    assert content_of(directory) == {OWNER: content}


@pytest.mark.parametrize("kind", KINDS)
def test_two_logs_that_were_swapped_are_told_from_each_other(tmp_path: Path, kind: str) -> None:
    """Where both were is one path: the message says what that means, and not the path as if it were two."""
    first, second = write(tmp_path / "a", "mine", kind), write(tmp_path / "b", "mine", kind)
    run(first)
    run(second)
    for end in ("", "-mark", "-lock"):
        one, other = (path.with_name(f"events.db{end}") for path in (first, second))
        one.rename(tmp_path / "aside")
        other.rename(one)
        (tmp_path / "aside").rename(other)
    with pytest.raises(InputError) as error:
        Deployment.read(first).open()
    message = str(error.value)
    assert message.count(str(first.with_name("events.db"))) == 1, message
    assert "which was there before this one: put that one back, if the two were swapped" in message
