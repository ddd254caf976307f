"""Checkpoints: exact both ways; truncation and any flipped bit are found; a failed write changes nothing."""

import json
import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from livegnn import FileFormatError, InputError, checkpoint
from livegnn.types import State

DTYPES = st.sampled_from(
    [np.float32, np.float64, np.int64, np.int32, np.uint8, np.bool_, np.dtype("<U3"), ">f8"]
)
ARRAYS = DTYPES.flatmap(
    lambda dtype: arrays.arrays(dtype, arrays.array_shapes(min_dims=0, min_side=0, max_side=4))
)
STATES = st.dictionaries(
    st.text(max_size=5),
    st.builds(
        State,
        st.dictionaries(st.text(max_size=5), st.none() | st.integers() | st.text(max_size=5), max_size=2),
        st.dictionaries(st.text(max_size=5), ARRAYS, max_size=3),
    ),
    max_size=3,
)
per_example = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def small_states() -> dict[str, State]:
    return {
        "graph": State(
            {"width": 3, "names": ["a", "ß"]},
            {
                "x": np.arange(6, dtype=np.float32).reshape(2, 3),
                "ids": np.array(["a", "bcd"]),
                "none": np.empty((0, 4)),
            },
        ),
        "engine": State({}, {"alive": np.array([True, False, True]), "count": np.array(7)}),
    }


def assert_same(a: dict[str, State], b: dict[str, State]) -> None:
    assert list(a) == list(b)
    for name, state in a.items():
        assert state.meta == b[name].meta
        assert list(state.arrays) == list(b[name].arrays)
        for key, array in state.arrays.items():
            other = b[name].arrays[key]
            assert other.shape == array.shape
            assert other.dtype == array.dtype.newbyteorder("<")
            assert other.tobytes() == array.astype(other.dtype).tobytes()


@per_example
@given(STATES, st.integers(0, 2**63 - 1))
def test_round_trip(tmp_path: Path, states: dict[str, State], seq: int) -> None:
    size = checkpoint.write(tmp_path / "a", states, seq)
    assert (tmp_path / "a").stat().st_size == size
    saved = checkpoint.read(tmp_path / "a")
    assert saved.seq == seq
    assert_same(states, saved.states)


def test_the_same_state_is_the_same_file(tmp_path: Path) -> None:
    checkpoint.write(tmp_path / "a", small_states(), 5)
    checkpoint.write(tmp_path / "b", checkpoint.read(tmp_path / "a").states, 5)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_arrays_are_aligned_and_belong_to_the_process(tmp_path: Path) -> None:
    path = tmp_path / "a"
    checkpoint.write(path, small_states(), 5)
    before = path.read_bytes()
    x = checkpoint.read(path).states["graph"].arrays["x"]
    assert x.ctypes.data % 64 == 0
    x[:] = 9
    assert path.read_bytes() == before


@per_example
@given(st.data())
def test_every_truncation_is_found(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "a"
    checkpoint.write(path, small_states(), 5)
    content = path.read_bytes()
    path.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    with pytest.raises(FileFormatError):
        checkpoint.read(path)
    path.write_bytes(content + data.draw(st.binary(min_size=1, max_size=70)))
    with pytest.raises(FileFormatError):
        checkpoint.read(path)


def test_every_flipped_bit_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a"
    checkpoint.write(path, {"graph": State({"k": 1}, {"x": np.arange(3), "y": np.arange(2.0)})}, 5)
    content = path.read_bytes()
    for bit in range(8 * len(content)):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with pytest.raises(FileFormatError):
            checkpoint.read(path)


@pytest.mark.parametrize(
    "damage",
    [
        {"dtype": "|O8"},
        {"dtype": "<f9"},
        {"dtype": 4},
        {"shape": [-3]},
        {"shape": [4]},
        {"shape": "3"},
        {"offset": 0},
        {"offset": 2**70},
        {"length": -24},
        {"length": None},
        {"name": ["x"]},
        {"crc32": "1"},
    ],
)
def test_a_lying_header_with_a_true_checksum_is_found(tmp_path: Path, damage: dict[str, object]) -> None:
    path = tmp_path / "a"
    checkpoint.write(path, {"graph": State({"room": " " * 60}, {"x": np.arange(3)})}, 5)
    content = path.read_bytes()
    (length,) = struct.unpack_from("<Q", content, 16)
    header = json.loads(content[32 : 32 + length])
    header["states"]["graph"]["meta"] = {}
    header["states"]["graph"]["arrays"][0].update(damage)
    text = json.dumps(header, separators=(",", ":")).encode().ljust(length)
    assert len(text) == length
    checksum = zlib.crc32(content[16:32] + text)
    path.write_bytes(
        content[:12] + struct.pack("<I", checksum) + content[16:32] + text + content[32 + length :]
    )
    with pytest.raises(FileFormatError):
        checkpoint.read(path)


def test_the_error_says_what_came(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"\x89PNG" + bytes(100))
    with pytest.raises(FileFormatError, match="this is not a checkpoint"):
        checkpoint.read(path)
    checkpoint.write(path, small_states(), 5)
    content = bytearray(path.read_bytes())
    content[8] = 3
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match="must be of version 1 or 2, got 3"):
        checkpoint.read(path)
    with pytest.raises(FileNotFoundError):
        checkpoint.read(tmp_path / "missing")


def test_what_cannot_be_stored_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a"
    checkpoint.write(path, small_states(), 5)
    before = path.read_bytes()
    with pytest.raises(
        InputError, match="graph/x must be an array of numbers, booleans or text, got dtype object"
    ):
        checkpoint.write(path, {"graph": State({}, {"x": np.array([None])})}, 6)
    with pytest.raises(InputError, match="metadata of a state must be JSON"):
        checkpoint.write(path, {"graph": State({"bad": float("nan")}, {})}, 6)
    with pytest.raises(InputError, match="seq must be an integer of at least 0, got 'six'"):
        checkpoint.write(path, small_states(), "six")  # type: ignore[arg-type]
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    path = tmp_path / "a"
    checkpoint.write(path, small_states(), 5)
    before = path.read_bytes()

    def fail(*arguments: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(os, failing, fail)
    with pytest.raises(OSError, match="the disk is full"):
        checkpoint.write(path, {}, 6)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["a"]


def test_parts_of_a_checkpoint_are_read_by_themselves(tmp_path: Path) -> None:
    """What is not read may be damaged; what is read may not."""
    path = tmp_path / "c"
    states = {
        name: State({"of": name}, {"a": np.arange(number + 9.0), "b": np.ones((2, number))})
        for number, name in enumerate(("first", "second", "third"))
    }
    checkpoint.write(path, states, 7)
    section = next(one for one in checkpoint.read_contents(path).sections if one.state == "second")
    content = bytearray(path.read_bytes())
    content[section.offset] ^= 1
    path.write_bytes(content)
    saved = checkpoint.read(path, states={"first", "third", "missing"})
    assert saved.seq == 7
    assert saved.states.keys() == {"first", "third"}
    for name, state in saved.states.items():
        assert state.meta == states[name].meta
        assert {key: value.tolist() for key, value in state.arrays.items()} == {
            key: value.tolist() for key, value in states[name].arrays.items()
        }
    for some in (None, {"second"}):
        with pytest.raises(FileFormatError, match="for second/a"):
            checkpoint.read(path, states=some)
