"""Checkpoints that take blocks from earlier ones: exact whatever was shared; damage anywhere is found."""

import hashlib
import itertools
import json
import os
import struct
import tempfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gate import draws
from livegnn import FileFormatError, InputError, checkpoint
from livegnn.types import Array, State

BLOCK = 1024
DTYPES = [np.dtype(name) for name in ("<f4", "<f8", "<i8", "|u1", "|b1", "<U3")]
Spec = tuple[int, int, int]
"""Of an array: which type, how many elements, and the seed of its bytes."""


def write(path: Path, states: Mapping[str, State], seq: int, after: Path | None = None) -> int:
    with open(path, "wb") as file:
        return checkpoint.write_shared_to(file, states, seq, after=after)


def own_bytes(path: Path) -> int:
    """Bytes of arrays that are in the file itself."""
    contents = checkpoint.read_contents(path)
    return sum(one.length for one in contents.sections) - sum(one.length for one in contents.files)


def assert_same(saved: Mapping[str, State], states: Mapping[str, State]) -> None:
    assert list(saved) == list(states)
    for name, state in states.items():
        assert saved[name].meta == state.meta
        assert list(saved[name].arrays) == list(state.arrays)
        for key, array in state.arrays.items():
            other = saved[name].arrays[key]
            assert (other.shape, other.dtype) == (array.shape, array.dtype)
            assert other.tobytes() == array.tobytes()


def slow_read(path: Path) -> tuple[int, dict[tuple[str, str], bytes]]:
    """Event and arrays of a file of version 2, block by block, as docs/checkpoint.md says it."""

    def open_file(at: Path) -> tuple[bytes, dict[str, object], int, list[tuple[int, int]], list[bytes]]:
        content = at.read_bytes()
        magic, version, checksum, length, size = struct.unpack("<8sIIQQ", content[:32])
        assert (magic, version, size) == (b"LGNNCKPT", 2, len(content))
        assert checksum == zlib.crc32(content[16 : 32 + length])
        header = json.loads(content[32 : 32 + length])
        assert (32 + length) % 64 == 0
        places, position = [], 32 + length
        for _ in range(header["directory"]["runs"]):
            file, count, offset = struct.unpack_from("<IIQ", content, position)
            places += [(file, offset + number * BLOCK) for number in range(count)]
            position += 16
        hashes = [content[position + 16 * n :][:16] for n in range(len(places))]
        end = position + 16 * len(places)
        assert hashlib.sha256(content[32 + length : end]).hexdigest() == header["directory"]["sha256"]
        return content, header, -(-end // 64) * 64, places, hashes

    content, header, start, places, hashes = open_file(path)
    files = [(content, start)]
    for one in header["files"]:  # type: ignore[attr-defined]
        other, described, begin, _, _ = open_file(path.parent / one["name"])
        assert described["directory"]["sha256"] == one["sha256"]  # type: ignore[index]
        files.append((other, begin))
    arrays, number = {}, 0
    for part, state in header["states"].items():  # type: ignore[attr-defined]
        for entry in state["arrays"]:
            pieces = []
            for left in range(entry["length"], 0, -BLOCK):
                file, offset = places[number]
                held, begin = files[file]
                pieces.append(held[begin + offset :][: min(left, BLOCK)])
                assert hashlib.sha256(pieces[-1]).digest()[:16] == hashes[number]
                number += 1
            arrays[part, entry["name"]] = b"".join(pieces)
            assert zlib.crc32(arrays[part, entry["name"]]) == entry["crc32"]
    assert number == len(places)
    return header["seq"], arrays  # type: ignore[return-value]


def make_array(spec: Spec) -> Array:
    kind, count, seed = spec
    dtype = DTYPES[kind]
    size = -(-count * dtype.itemsize // 4)
    drawn = np.random.default_rng(seed).integers(0, 2, size, np.uint32)  # valid in each type
    return drawn.view(np.uint8)[: count * dtype.itemsize].view(dtype).copy()


@st.composite
def histories(draw: st.DrawFn) -> list[dict[str, State]]:
    """States one after the other: arrays come, go, grow, shrink, move, and change here and there."""
    sizes = st.one_of(st.integers(0, 40), st.integers(200, 1100), st.integers(4000, 6000))
    specs = st.tuples(st.integers(0, len(DTYPES) - 1), sizes, st.integers(0, 99))
    names = st.sampled_from(["a", "b", "ß"])
    arrays = {(part, name): make_array(draw(specs)) for part in ("p", "q") for name in ("a", "b")}
    history = []
    for number in range(draw(st.integers(2, 7))):
        for _ in range(draw(st.integers(0, 3))):
            key = draw(st.sampled_from(["p", "q"])), draw(names)
            what = draw(st.sampled_from(["drop", "new", "change", "grow", "shrink"]))
            array = arrays.get(key)
            if what == "new" or array is None:
                arrays[key] = make_array(draw(specs))
            elif what == "drop":
                del arrays[key]
            elif what == "grow":
                arrays[key] = np.concatenate([array, array[: draw(st.integers(0, 2000))]])
            elif what == "shrink":
                arrays[key] = array[: draw(st.integers(0, len(array)))]
            elif len(array):
                arrays[key] = array = array.copy()
                at = draw(st.integers(0, len(array) - 1))
                array[at] = np.zeros(1, array.dtype)[0]
        history.append(
            {
                part: State(
                    {"n": number}, {name: array for (of, name), array in arrays.items() if of == part}
                )
                for part in ("p", "q")
            }
        )
    return history


@settings(deadline=None)
@given(histories())
def test_each_of_a_chain_is_what_was_written_and_what_a_whole_file_holds(
    history: list[dict[str, State]],
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, after = Path(name), None
        for seq, states in enumerate(history):
            path = folder / f"c{seq}"
            size = write(path, states, seq, after)
            assert path.stat().st_size == size
            after = path
        for seq, states in enumerate(history):
            saved = checkpoint.read(folder / f"c{seq}")
            assert saved.seq == seq
            assert_same(saved.states, states)
            checkpoint.write(folder / "whole", saved.states, seq)
            checkpoint.write(folder / "expected", states, seq)
            assert (folder / "whole").read_bytes() == (folder / "expected").read_bytes()
            expected = {
                (part, key): array.tobytes()
                for part, state in states.items()
                for key, array in state.arrays.items()
            }
            assert slow_read(folder / f"c{seq}") == (seq, expected)


def draw_states(seed: int = 0) -> dict[str, State]:
    draw = np.random.default_rng(seed)
    return {
        "graph": State({"k": 1}, {"x": draw.random((50, 64)), "ids": np.arange(777)}),
        "engine": State({}, {"rows": draw.random((40, 32), np.float32), "none": np.empty((0, 3))}),
    }


def change(states: dict[str, State], row: int) -> dict[str, State]:
    """Another row of "rows", which is one block of 128 bytes in 1,024."""
    rows = np.array(states["engine"].arrays["rows"])
    rows[row] += 1
    return {**states, "engine": State({}, {**states["engine"].arrays, "rows": rows})}


@pytest.fixture
def chain(tmp_path: Path) -> list[Path]:
    """A whole file and three after it, each with a block of its own that the last one needs."""
    paths, states = [tmp_path / f"c{number}" for number in range(4)], draw_states()
    for number, path in enumerate(paths):
        if number:
            states = change(states, 8 * number)
        write(path, states, number, paths[number - 1] if number else None)
    return paths


def test_a_file_has_what_has_changed_and_a_directory(chain: list[Path]) -> None:
    assert [own_bytes(path) for path in chain] == [own_bytes(chain[0]), BLOCK, BLOCK, BLOCK]
    assert [one.name for one in checkpoint.read_contents(chain[3]).files] == ["c0", "c1", "c2"]
    for path in chain[1:]:
        assert path.stat().st_size < BLOCK + 1700 + 16 * 40


def test_a_block_that_changes_back_is_written_again(tmp_path: Path) -> None:
    states = draw_states()
    write(tmp_path / "a", states, 1)
    write(tmp_path / "b", change(states, 3), 2, tmp_path / "a")
    write(tmp_path / "c", states, 3, tmp_path / "b")
    assert own_bytes(tmp_path / "c") == BLOCK
    assert_same(checkpoint.read(tmp_path / "c").states, states)


def test_a_file_stands_alone_where_too_little_is_the_same(tmp_path: Path) -> None:
    states = draw_states()
    write(tmp_path / "a", states, 1)
    size = write(tmp_path / "b", draw_states(1), 2, tmp_path / "a")
    assert checkpoint.read_contents(tmp_path / "b").files == ()
    assert size == write(tmp_path / "alone", draw_states(1), 2)
    assert (tmp_path / "b").read_bytes() == (tmp_path / "alone").read_bytes()


def test_the_arrays_of_a_file_that_stands_alone_are_mapped_and_aligned(chain: list[Path]) -> None:
    before = [path.read_bytes() for path in chain]
    for path in chain:
        for state in checkpoint.read(path).states.values():
            for array in state.arrays.values():
                assert array.ctypes.data % 64 == 0 or not array.size
                array[...] = 9
    assert [path.read_bytes() for path in chain] == before


def test_what_is_read_belongs_to_the_process_alone_after_a_fork(chain: list[Path]) -> None:
    """Or a process that writes a checkpoint would see what the loop changes meanwhile."""
    for path in chain:
        rows = checkpoint.read(path).states["engine"].arrays["rows"]
        before = rows.tobytes()
        process = os.fork()
        if not process:
            rows[...] = 7
            os._exit(0)
        os.waitpid(process, 0)
        assert rows.tobytes() == before


@pytest.mark.parametrize("number", range(4))
def test_flipped_bits_are_found_by_each_that_has_the_block(chain: list[Path], number: int) -> None:
    """One in so many bits, in each byte of the last file one."""
    path, content = chain[number], chain[number].read_bytes()
    for bit in range(0, 8 * len(content), 7 if number == 3 else draws(211, 71)):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with pytest.raises(FileFormatError):
            checkpoint.read(path)
    path.write_bytes(content)
    assert checkpoint.read(chain[3]).seq == 3


def test_a_damaged_block_breaks_those_that_have_it_and_is_named(chain: list[Path]) -> None:
    content = bytearray(chain[1].read_bytes())
    content[-5] ^= 4
    chain[1].write_bytes(content)
    assert checkpoint.read(chain[0]).seq == 0
    for path in chain[1:]:
        place = len(content) - BLOCK
        with pytest.raises(
            FileFormatError, match=rf"engine/rows, .* {chain[1]}, block at byte {place} of 1,"
        ):
            checkpoint.read(path)


@pytest.mark.parametrize("position", [0, 12, 40, 200])
def test_a_damaged_header_of_another_file_is_found(chain: list[Path], position: int) -> None:
    content = bytearray(chain[1].read_bytes())
    content[position] ^= 4
    chain[1].write_bytes(content)
    with pytest.raises(FileFormatError, match=f"{chain[3]} has blocks in another file: {chain[1]} must"):
        checkpoint.read(chain[3])


def test_every_truncation_of_another_file_is_found(chain: list[Path]) -> None:
    content = chain[1].read_bytes()
    for length in range(0, len(content), 13):
        chain[1].write_bytes(content[:length])
        with pytest.raises(FileFormatError):
            checkpoint.read(chain[3])


def test_another_file_of_the_same_name_is_refused(chain: list[Path], tmp_path: Path) -> None:
    write(chain[1], draw_states(5), 1)
    with pytest.raises(FileFormatError, match=f"{chain[1]} with the SHA-256 .*: it is another file of that"):
        checkpoint.read(chain[3])
    checkpoint.write(chain[1], draw_states(5), 1)  # of version 1
    with pytest.raises(FileFormatError, match="got None: it is another file of that name"):
        checkpoint.read(chain[3])
    chain[1].unlink()
    with pytest.raises(FileFormatError, match=f"1024 bytes of its content in {chain[1]}, got 'No such file"):
        checkpoint.read(chain[3])


def test_a_link_is_read_where_the_file_is(chain: list[Path], tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "link"
    link.symlink_to(chain[3])
    assert checkpoint.read(link).seq == 3


@pytest.mark.parametrize("after", ["missing", "damaged", "version 1", "directory"])
def test_what_cannot_be_built_upon_is_let_be(chain: list[Path], tmp_path: Path, after: str) -> None:
    if after == "missing":
        chain[3].unlink()
    elif after == "version 1":
        checkpoint.write(chain[3], draw_states(), 3)
    else:
        content = bytearray(chain[3].read_bytes())
        (length,) = struct.unpack_from("<Q", content, 16)
        content[50 if after == "damaged" else 32 + length + 20] ^= 1
        chain[3].write_bytes(content)
    write(tmp_path / "new", draw_states(), 4, chain[3])
    assert checkpoint.read_contents(tmp_path / "new").files == ()
    assert_same(checkpoint.read(tmp_path / "new").states, draw_states())


def lie(path: Path, tell: Callable[[dict[str, object], bytearray], None]) -> None:
    """Changes header and directory, and makes all checksums true."""
    content = path.read_bytes()
    (length,) = struct.unpack_from("<Q", content, 16)
    header = json.loads(content[32 : 32 + length])
    blocks = sum(-(-e["length"] // BLOCK) for s in header["states"].values() for e in s["arrays"])
    end = 32 + length + 16 * (header["directory"]["runs"] + blocks)
    directory = bytearray(content[32 + length : end])
    tell(header, directory)
    if header["directory"].get("sha256"):
        header["directory"]["sha256"] = hashlib.sha256(directory).hexdigest()
    text = json.dumps(header).encode()
    text = text.ljust(-(-(32 + len(text)) // 64) * 64 - 32)
    rest = bytes(-len(directory) % 64) + content[-(-end // 64) * 64 :]
    size = 32 + len(text) + len(directory) + len(rest)
    lengths = struct.pack("<QQ", len(text), size)
    prefix = struct.pack("<8sII", b"LGNNCKPT", 2, zlib.crc32(lengths + text)) + lengths
    path.write_bytes(prefix + text + directory + rest)


def put(form: str, position: int, value: int) -> Callable[[dict[str, object], bytearray], None]:
    return lambda _, directory: struct.pack_into(form, directory, position, value)


def say(*keys: str | int, value: object) -> Callable[[dict[str, object], bytearray], None]:
    def tell(header: dict[str, object], _: bytearray) -> None:
        where: object = header
        for key in keys[:-1]:
            where = where[key]  # type: ignore[index]
        where[keys[-1]] = value  # type: ignore[index]

    return tell


LIES: dict[str, Callable[[dict[str, object], bytearray], None]] = {
    "a file that is not listed": put("<I", 0, 9),
    "no blocks": put("<I", 4, 0),
    "too many blocks": put("<I", 4, 2**32 - 1),
    "beyond the end": put("<Q", 8, 1 << 40),
    "far beyond": put("<Q", 8, 1 << 63),
    "elsewhere in the file": put("<Q", 8, 64),
    "a path": say("files", 0, "name", value="../c0"),
    "the directory": say("files", 0, "name", value=".."),
    "no text": say("files", 0, "name", value="\ud800"),
    "no name": say("files", 0, "name", value=3),
    "no hash": say("files", 0, "sha256", value="f" * 63),
    "no files": say("files", value=[]),
    "runs": say("directory", "runs", value=-1),
    "many runs": say("directory", "runs", value=2**70),
    "no runs": say("directory", "runs", value="1"),
    "no directory": say("directory", value={}),
    "a section": say("states", "graph", "arrays", 0, "shape", value=[1 << 60]),
    "a type": say("states", "graph", "arrays", 0, "dtype", value="|O8"),
}


@pytest.mark.parametrize("name", LIES)
def test_lies_with_true_checksums_are_found(chain: list[Path], name: str) -> None:
    lie(chain[3], lambda *_: None)
    assert checkpoint.read(chain[3]).seq == 3
    lie(chain[3], LIES[name])
    with pytest.raises(FileFormatError):
        checkpoint.read(chain[3])


def test_zeros_between_blocks_are_part_of_the_file(tmp_path: Path) -> None:
    states = {"p": State({}, {"a": np.arange(3), "b": np.arange(5)})}
    size = write(tmp_path / "a", states, 1)
    content = bytearray((tmp_path / "a").read_bytes())
    content[size - 40 - 20] = 1
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(FileFormatError, match="zeros between sections"):
        checkpoint.read(tmp_path / "a")


def test_what_cannot_be_stored_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="graph/x must be an array of numbers, booleans or text"):
        write(tmp_path / "a", {"graph": State({}, {"x": np.array([None])})}, 6)
    with pytest.raises(InputError, match="metadata of a state must be JSON"):
        write(tmp_path / "a", {"graph": State({"bad": float("nan")}, {})}, 6)


def test_signs_of_life_come_while_it_reads_and_writes(tmp_path: Path) -> None:
    array = np.random.default_rng(0).random(5 << 20)  # 40 MiB
    calls = itertools.count()
    with open(tmp_path / "a", "wb") as file:
        checkpoint.write_shared_to(
            file, {"p": State({}, {"a": array})}, 1, after=None, on_part=lambda: next(calls)
        )
    assert next(calls) >= 10
    array = array.copy()
    array[1 << 20 : 3 << 20] += 1  # more than is read or written at once
    states = {"p": State({}, {"a": array})}
    write(tmp_path / "b", states, 2, tmp_path / "a")
    assert own_bytes(tmp_path / "b") == 16 << 20
    assert_same(checkpoint.read(tmp_path / "b").states, states)
