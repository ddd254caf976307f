"""`livegnn checkpoint`: what it says of a file, and of files that are not whole."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from livegnn import checkpoint
from livegnn.cli import app
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


def test_verify_of_a_directory_without_checkpoints_is_an_error(tmp_path: Path) -> None:
    result = RUNNER.invoke(app, ["checkpoint", "verify", str(tmp_path)])
    assert result.exit_code
    assert "must hold checkpoints" in str(result.exception)
