"""The directory of a checkpoint's blocks: the hash of each, and where it lies.

An array is cut into blocks of `BLOCK` bytes from its beginning on, the last may be shorter. Each lies in the
checkpoint's own file or in an earlier one, there at an offset from where the file's blocks begin. Blocks that
follow each other in one file are a run. A hash is the first 16 bytes of SHA-256, for which processors have
instructions. Two blocks of the same hash are taken for the same: by chance that is never wrong, and to find
two that differ on purpose takes some 2^64 tries.
"""

import hashlib
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

BLOCK: Final = 1024
HASH: Final = 16
_FRESH: Final = hashlib.sha256()
"""A copy of it takes no lock of OpenSSL; a new hash may take one. In a forked process, a thread of the parent
may have held that lock, and then it is never released.
"""
RUN: Final = np.dtype([("file", "<u4"), ("count", "<u4"), ("offset", "<u8")])


class Directory(NamedTuple):
    """For each block, in the order of the content: its hash, the number of its file, and its offset there.

    hashes: uint8 [blocks, 16]. files: int64 [blocks], 0 is the checkpoint's own, 1 the first in its list.
    offsets: int64 [blocks], in bytes.
    """

    hashes: NDArray[np.uint8]
    files: NDArray[np.int64]
    offsets: NDArray[np.int64]

    def pack(self) -> tuple[bytes, int]:
        """As bytes, and how many runs they begin with."""
        starts = find_runs(self.files, self.offsets)
        runs = np.empty(len(starts) - 1, RUN)
        runs["file"], runs["offset"] = self.files[starts[:-1]], self.offsets[starts[:-1]]
        runs["count"] = np.diff(starts)
        return runs.tobytes() + self.hashes.tobytes(), len(runs)


def packed_size(blocks: int, runs: int) -> int:
    """The number of bytes that `Directory.pack` makes."""
    return runs * RUN.itemsize + blocks * HASH


def unpack(content: memoryview, blocks: int, runs: int, files: int) -> Directory:
    """Reads the bytes that `Directory.pack` made. Raises ValueError for other bytes.

    files: the number of files beside the checkpoint's own.
    """
    table = np.frombuffer(content, RUN, runs)
    counts, numbers = table["count"].astype(np.int64), table["file"].astype(np.int64)
    if (counts < 1).any() or int(counts.sum()) != blocks:
        raise ValueError(f"its runs must have {blocks} blocks, got {int(counts.sum())}")
    if (numbers > files).any():
        raise ValueError(f"its runs must lie in files up to number {files}, got {int(numbers.max())}")
    if (table["offset"] >= 1 << 62).any():
        raise ValueError(f"an offset must be less than 2^62, got {int(table['offset'].max())}")
    first = np.cumsum(counts) - counts
    within = np.arange(blocks) - np.repeat(first, counts)
    offsets = np.repeat(table["offset"].astype(np.int64), counts) + within * BLOCK
    hashes = np.frombuffer(content, np.uint8, blocks * HASH, table.nbytes).reshape(blocks, HASH)
    return Directory(hashes, np.repeat(numbers, counts), offsets)


def find_runs(files: NDArray[np.int64], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """The number of the first block of each run, and last the number of all blocks."""
    ends = (files[1:] != files[:-1]) | (offsets[1:] != offsets[:-1] + BLOCK)
    first = [0] if len(files) else []
    return np.concatenate([first, np.flatnonzero(ends) + 1, [len(files)]]).astype(np.int64)


def hash_blocks(content: memoryview) -> bytes:
    """The hashes of the blocks of `content`, one after the other."""
    hashes = []
    for at in range(0, len(content), BLOCK):
        sha256 = _FRESH.copy()
        sha256.update(content[at : at + BLOCK])
        hashes.append(sha256.digest()[:HASH])
    return b"".join(hashes)


def hash_directory(packed: bytes | memoryview) -> str:
    """SHA-256 of a packed directory, in hexadecimal."""
    sha256 = _FRESH.copy()
    sha256.update(packed)
    return sha256.hexdigest()


def block_lengths(lengths: list[int]) -> NDArray[np.int64]:
    """Bytes of each block of arrays that are so long."""
    counts = np.array([-(-length // BLOCK) for length in lengths], np.int64)
    sizes = np.full(int(counts.sum()), BLOCK, np.int64)
    ends = np.cumsum(counts)[counts > 0] - 1
    sizes[ends] = [(length - 1) % BLOCK + 1 for length in lengths if length]
    return sizes


def place_own(sizes: NDArray[np.int64], alignment: int) -> tuple[NDArray[np.int64], int]:
    """Offsets of blocks of these sizes that lie one after the other, and where the last one ends."""
    taken = -(-sizes // alignment) * alignment
    offsets = np.cumsum(taken) - taken
    return offsets, int(offsets[-1] + sizes[-1]) if len(sizes) else 0
