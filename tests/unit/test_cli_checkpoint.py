"""`livegnn checkpoint`: what it says of a file, and of files that are not whole."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from livegnn import checkpoint
from livegnn.cli import app
from livegnn.errors import FileFormatError
from livegnn.types import State

RUNNER = CliRunner()


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Three checkpoints, the newest first."""
    states = {
        "graph": State({"kind": "graph"}, {"x": np.ones((3, 4), np.float32), "ids": np.arange(3)}),
        "engine": State({}, {}),
    }
    paths = [tmp_path / f"checkpoint-{seq:020d}.lgck" for seq in (1500, 20, 3)]
    for path, seq in zip(paths, (1500, 20, 3), strict=True):
        checkpoint.write(path, states, seq)
    return paths


def call(*arguments: str) -> tuple[int, list[str]]:
    result = RUNNER.invoke(app, ["checkpoint", *arguments])
    return result.exit_code, result.output.splitlines()


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def test_inspect_shows_parts_and_arrays(files: list[Path]) -> None:
    size = files[0].stat().st_size
    assert call("inspect", str(files[0])) == (
        0,
        [
            f"event 1,500, {size} bytes, format version 1",
            "graph: 2 arrays, 72 bytes",
            "  x  <f4 [3, 4]  48 bytes",
            "  ids  <i8 [3]  24 bytes",
            "engine: 0 arrays, 0 bytes",
        ],
    )


def test_inspect_as_json_says_what_the_header_says(files: list[Path]) -> None:
    status, lines = call("inspect", "--json", str(files[0]))
    said = json.loads("\n".join(lines))
    assert (status, said["seq"], said["bytes"]) == (0, 1500, files[0].stat().st_size)
    assert said["parts"]["graph"]["meta"] == {"kind": "graph"}
    x, ids = said["parts"]["graph"]["arrays"]
    assert {**x, "crc32": 0} == {"name": "x", "dtype": "<f4", "shape": [3, 4], "bytes": 48, "crc32": 0}
    assert ids["shape"] == [3]
    assert said["parts"]["engine"] == {"meta": {}, "arrays": []}


def test_inspect_reads_the_header_alone(files: list[Path]) -> None:
    flip(files[0], -1)
    assert call("inspect", str(files[0]))[0] == 0
    flip(files[0], 40)
    result = RUNNER.invoke(app, ["checkpoint", "inspect", str(files[0])])
    assert "must have the checksum" in str(result.exception)


def test_verify_says_which_files_are_whole(files: list[Path]) -> None:
    directory = str(files[0].parent)
    assert call("verify", directory) == (
        0,
        [f"{path}: whole, event {n}" for path, n in zip(files, (1500, 20, 3), strict=True)],
    )
    flip(files[1], -1)
    files[2].write_bytes(files[2].read_bytes()[:-1])
    status, lines = call("verify", directory)
    assert (status, lines[0]) == (1, f"{files[0]}: whole, event 1500")
    assert lines[1].startswith(f"{files[1]}: broken: ")
    assert "for graph/ids" in lines[1]
    assert "truncated" in lines[2]
    assert call("verify", str(files[0]))[0] == 0
    assert call("verify", str(files[1]))[0] == 1


@pytest.fixture
def chain(tmp_path: Path) -> list[Path]:
    """A checkpoint that stands alone, and two that take blocks from those before them."""
    x = np.arange(1024, dtype=np.float64).reshape(8, 128)  # a block in each row
    paths = [tmp_path / f"checkpoint-{seq:020d}.lgck" for seq in (1, 2, 3)]
    for number, path in enumerate(paths):
        x[number] += 1
        with open(path, "wb") as file:
            after = paths[number - 1] if number else None
            checkpoint.write_shared_to(file, {"graph": State({}, {"x": x})}, number + 1, after=after)
    return paths


def test_inspect_shows_what_is_shared(chain: list[Path]) -> None:
    size = f"{chain[2].stat().st_size / 1000:.1f} kB"
    assert call("inspect", str(chain[2])) == (
        0,
        [
            f"event 3, {size}, format version 2",
            "takes 6.1 kB from checkpoint-00000000000000000001.lgck",
            "takes 1.0 kB from checkpoint-00000000000000000002.lgck",
            "graph: 1 array, 8.2 kB",
            "  x  <f8 [8, 128]  8,192 bytes",
        ],
    )
    said = json.loads("\n".join(call("inspect", "--json", str(chain[2]))[1]))
    assert [(one["name"], one["bytes"]) for one in said["files"]] == [
        (chain[0].name, 6144),
        (chain[1].name, 1024),
    ]


def test_verify_names_a_damaged_block_for_each_that_has_it(chain: list[Path]) -> None:
    size = chain[1].stat().st_size
    flip(chain[1], -1)
    status, lines = call("verify", str(chain[0].parent))
    assert status == 1
    for path, line in zip((chain[2], chain[1]), lines[:2], strict=True):
        assert line.startswith(f"{path}: broken: {path} must have the checksum ")
        assert f": {chain[1]}, block at byte {size - 1024} of 1, is corrupt" in line
    assert lines[2:] == [f"{chain[0]}: whole, event 1"]


def test_verify_passes_over_what_is_removed_meanwhile(
    chain: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    read = checkpoint.read

    def remove_first(path: Path) -> checkpoint.Checkpoint:
        for one in reversed(chain):
            one.unlink(missing_ok=True)
        return read(path)

    monkeypatch.setattr(checkpoint, "read", remove_first)
    assert call("verify", str(chain[0].parent)) == (0, [])


def test_verify_of_a_directory_without_checkpoints_is_an_error(tmp_path: Path) -> None:
    result = RUNNER.invoke(app, ["checkpoint", "verify", str(tmp_path)])
    assert result.exit_code
    assert "must hold checkpoints" in str(result.exception)


def test_a_pipe_and_a_folder_are_no_checkpoints(tmp_path: Path) -> None:
    """They are named, and not waited for."""
    pipe, folder = tmp_path / "pipe.lgck", tmp_path / "folder.lgck"
    os.mkfifo(pipe)
    folder.mkdir()
    for read in (checkpoint.read, checkpoint.read_contents):
        with pytest.raises(FileFormatError, match="must be a regular file, got a named pipe"):
            read(pipe)
        with pytest.raises(FileFormatError, match="must be a regular file, got a directory"):
            read(folder)
