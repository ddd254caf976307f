"""A file is there as a whole, old or new, whatever happens while it is written."""

import errno
import os
import re
import stat
from pathlib import Path

import pytest
from model_examples import make_sage

from livegnn import checkpoint
from livegnn.atomic_file import check_replaceable, check_writable, replace_file
from livegnn.errors import InputError

MODEL = make_sage()
WRITERS = {
    "stream": lambda path: _write(path, b"new"),
    "model": MODEL.save,
    "checkpoint": lambda path: checkpoint.write(path, {}, 3),
}
every_writer = pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)


def _write(path: Path, content: bytes) -> None:
    with replace_file(path) as stream:
        stream.write(content)


def test_a_file_is_new_or_as_it_was(tmp_path):
    path = tmp_path / "file"
    _write(path, b"one")
    assert path.read_bytes() == b"one"

    def interrupted() -> None:
        with replace_file(path) as stream:
            stream.write(b"two")
            stream.flush()
            (partial,) = tmp_path.glob("file.*.partial")
            assert partial.read_bytes() == b"two"
            assert path.read_bytes() == b"one"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_bytes() == b"one"
    with replace_file(path) as first, replace_file(path) as second:
        first.write(b"first")
        second.write(b"second")
    assert path.read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["file"]


def test_a_file_keeps_its_permissions_and_a_new_one_has_those_of_any_new_file(tmp_path):
    plain, path = tmp_path / "plain", tmp_path / "file"
    plain.touch()
    _write(path, b"one")
    assert path.stat().st_mode == plain.stat().st_mode
    path.chmod(0o640)
    _write(path, b"two")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@every_writer
def test_a_link_stays_and_what_it_points_at_is_replaced(tmp_path, write):
    (tmp_path / "models").mkdir()
    real = tmp_path / "models" / "real"
    link, chain = tmp_path / "link", tmp_path / "chain"
    link.symlink_to("models/real")
    chain.symlink_to("link")
    for content in (None, b"old"):  # a link that points at nothing, and one at a file
        if content is not None:
            real.write_bytes(content)
        write(chain)
        assert chain.is_symlink()
        assert link.is_symlink()
        assert os.readlink(link) == "models/real"
        assert real.read_bytes() not in (b"", b"old")
        assert os.listdir(real.parent) == ["real"]


@every_writer
@pytest.mark.parametrize("linked", [False, True], ids=["itself", "linked"])
def test_what_is_no_regular_file_is_refused_and_stays(tmp_path, write, linked):
    pipe, directory = tmp_path / "pipe", tmp_path / "directory"
    os.mkfifo(pipe)
    directory.mkdir()
    for path, kind in ((pipe, "a named pipe"), (directory, "a directory")):
        given = path
        if linked:
            given = tmp_path / f"to {path.name}"
            given.symlink_to(path)
        before = path.lstat()
        with pytest.raises(
            InputError, match=rf"{re.escape(str(given))} must be a regular file, .* got {kind}"
        ):
            write(given)
        assert path.lstat() == before
    assert not list(tmp_path.rglob("*.partial"))


@pytest.mark.parametrize("check", [check_replaceable, check_writable])
def test_a_device_is_refused(check):
    with pytest.raises(InputError, match=r"must be a regular file, .* got a character device"):
        check(Path(os.devnull))


def test_a_check_changes_nothing(tmp_path):
    """Neither a file nor its absence."""
    path = tmp_path / "file"
    check_writable(path)
    assert not list(tmp_path.iterdir())
    path.write_bytes(b"old")
    before = path.stat()
    check_writable(path)
    assert (path.read_bytes(), path.stat()) == (b"old", before)
    assert list(tmp_path.iterdir()) == [path]


def test_a_directory_that_may_not_be_written_to_is_found(tmp_path, monkeypatch):
    """The processes of tests may write everywhere, so it is said by the system call."""

    def deny(path, *_):
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr("livegnn.atomic_file.os.open", deny)
    with pytest.raises(PermissionError) as caught:
        check_writable(tmp_path / "file")
    assert caught.value.filename == str(tmp_path / "file")


@pytest.mark.parametrize("write", [*WRITERS.values(), check_writable], ids=[*WRITERS, "check"])
def test_errors_name_the_file_that_was_given(tmp_path, write):
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    missing, inside = tmp_path / "missing" / "file", Path(__file__, "file")
    for path, kind in ((missing, FileNotFoundError), (loop, OSError), (inside, NotADirectoryError)):
        with pytest.raises(kind) as caught:
            write(path)
        assert caught.value.filename == str(path) or caught.value.filename == path
        assert "partial" not in str(caught.value)
    assert os.listdir(tmp_path) == ["loop"]
