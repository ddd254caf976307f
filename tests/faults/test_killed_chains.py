"""A process that dies at any write, flush, rename or removal of checkpoints that share blocks.

Whatever is left under a checkpoint's name is whole, the newest that was finished is there, and the next
process goes on from it.
"""

import gc
import io
import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import pytest

from chained_checkpoints import check_file, first_graph, make_runtime, run, share_small_ones
from gate import draws
from livegnn import atomic_file
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import CheckpointPolicy, list_checkpoints, restore
from livegnn.runtime.checkpoint_files import list_chains

EVENTS = 5
SURVIVED = 3


class Death:
    """The process ends at operation `at` of those on checkpoints."""

    def __init__(self, at: int) -> None:
        self.left = at

    def is_due(self) -> bool:
        self.left -= 1
        return self.left < 0

    def before(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def die_or_call(*arguments: Any, **options: Any) -> Any:
            if self.is_due():
                os._exit(0)
            return call(*arguments, **options)

        return die_or_call

    def open(self, handle: int, mode: str, closefd: bool) -> BinaryIO:
        death = self

        class Dying(io.FileIO):
            def write(self, data: Any) -> int:
                if death.is_due():
                    super().write(bytes(data)[: len(data) // 2])
                    os._exit(0)
                return super().write(data)

        return io.BufferedWriter(Dying(handle, mode, closefd), 1 << 15)


def live_and_die(folder: Path, policy: CheckpointPolicy, at: int, told: int) -> NoReturn:
    """The life of a process; tells of each event whose checkpoint it has finished."""
    gc.disable()  # what other tests have left, such as a client of Kafka's, has threads that are not here
    death = Death(at)
    try:
        log = SqliteLog(folder / "events.db")
        graph, _ = restore({}, first_graph, directory=policy.directory, log=log)
        runtime = make_runtime(log, policy, graph)
        atomic_file.open = death.open  # type: ignore[attr-defined]
        os.fsync, os.replace = death.before(os.fsync), death.before(os.replace)
        Path.unlink = death.before(Path.unlink)  # type: ignore[method-assign]
        for _ in range(EVENTS):
            run(runtime, 1)
            os.write(told, bytes([runtime.seq]))
        os._exit(SURVIVED)
    finally:
        os._exit(1)


@pytest.mark.parametrize("keep", [1, 2])
def test_what_is_left_is_whole_and_the_next_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: int
) -> None:
    share_small_ones(monkeypatch)
    for at in range(keep % 2, 1000, draws(5, 1)):  # the one begins at what the other leaves out
        folder = tmp_path / str(at)
        folder.mkdir()
        policy = CheckpointPolicy(folder / "checkpoints", 1, keep=keep, full_every=2)
        for life in range(2):
            tell, told = os.pipe()
            process = os.fork()
            if not process:
                live_and_die(folder, policy, at, told)
            os.close(told)
            with open(tell, "rb") as pipe:
                finished = pipe.read()
            status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
            assert status in (0, SURVIVED), (at, life)
            left = list_checkpoints(policy.directory)
            for path in left:
                check_file(path)
            if finished:
                assert int(left[0].stem[-20:]) >= finished[-1], (at, life)
        if status == SURVIVED:
            break
        with closing(SqliteLog(folder / "events.db")) as log:
            graph, _ = restore({}, first_graph, directory=policy.directory, log=log)
            run(make_runtime(log, policy, graph), 5)
        assert [len(chain) for chain in list_chains(policy.directory)] == [1, 2][:keep]
        assert not list(policy.directory.glob("*.partial"))
    assert 30 < at < 999
