"""Temporary directories: of killed processes they are removed, of others they stay."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from livegnn.temporary_directory import PREFIX, TemporaryDirectory

HOLD = """
import sys
from pathlib import Path
from livegnn.temporary_directory import TemporaryDirectory
one = TemporaryDirectory(sys.argv[1])
(one.path / "large").mkdir()
(one.path / "large" / "file").write_text("rows")
print(one.path, flush=True)
sys.stdin.read()
"""


def hold(folder: Path) -> tuple[subprocess.Popen[str], Path]:
    """A process with a directory in a folder."""
    command = [sys.executable, "-c", HOLD, str(folder)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_directories_of_killed_processes_are_removed(tmp_path: Path) -> None:
    killed, left = hold(tmp_path)
    living, kept = hold(tmp_path)
    others = [tmp_path / "livegnn-mine", tmp_path / f"{PREFIX}link"]
    others[0].mkdir()
    others[1].symlink_to(others[0])
    own = TemporaryDirectory(str(tmp_path))
    try:
        assert left.exists()
        killed.send_signal(signal.SIGKILL)
        killed.communicate()
        with TemporaryDirectory(str(tmp_path)) as path:
            assert {*tmp_path.iterdir()} == {path, own.path, kept, *others}
            assert oct(os.stat(path).st_mode & 0o777) == "0o700"
        assert (kept / "large" / "file").read_text() == "rows"
    finally:
        living.communicate("")
    own.close()
    own.close()
    with TemporaryDirectory(str(tmp_path)):
        pass
    assert {*tmp_path.iterdir()} == {*others}


def test_a_folder_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        TemporaryDirectory(str(tmp_path / "none"))
