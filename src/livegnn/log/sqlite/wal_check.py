"""SQLite's write-ahead file, read before SQLite does: whether it lost entries in the middle of it.

The format is section 4 of "Database File Format" (sqlite.org/fileformat2.html). All numbers of it are
big-endian u32. The file is a header and frames, each one page of the database as a transaction left it:

    header   magic 0x377f0682, or 0x377f0683 where checksums are made of big-endian words; format 3007000;
             size of a page; number of the checkpoint; two salts; two checksums of the 24 bytes before them
    frame    number of the page; size of the database after a commit, 0 for a frame that is not the last of
             its transaction; the salts of the header; two checksums of the first 8 bytes of this head and of
             the page, continued from those of the frame before (of the header, for the first); the page

    checksum s0 += x[i] + s1, s1 += x[i + 1] + s0 for each pair of words x[i], x[i + 1], modulo 2^32

SQLite takes the first frame that does not verify for the end of the file, since that is how a crash leaves
it. Frames of other salts are older: they were moved into the database, and wait to be written over.

After a crash: an append is flushed before the next one begins, so that at most one of them, the last, is
being written when the power fails, with any number of boundaries. Hence, of two appends that end no earlier
than the transaction of the first frame that does not verify, the first was acknowledged: the file is damaged.
An append counts if the frame with its entry verifies after the sums in the frame before.
"""

import re
import struct
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

_HEADER = struct.Struct(">8I")
_HEAD = struct.Struct(">6I")  # of a frame
_CHECKED = 24  # bytes of the header
_CHECKED_OF_HEAD = 8
_ORDERS: Final = {0x377F0682: "<u4", 0x377F0683: ">u4"}  # the byte order of checksums, by the magic
_FORMAT: Final = 3007000
_PAGES: Final = tuple(2**bits for bits in range(9, 17))  # sizes that a page may have
_TABLE_LEAF: Final = 0x0D  # the first byte of a page of rows (section 1.6 there)
# So begins the payload of an entry; and it begins in the page of its row, however long it is.
_PAYLOAD = re.compile(rb"LGEV[\x01-\xff]\x00")
_CHUNK = 4 * 2**20  # bytes that are read at once

_Sums = tuple[int, int]


class Damage(NamedTuple):
    """A place at which a write-ahead file stops to verify, although appends follow that were acknowledged.

    frame: counted from 1, 0 for the header; appends: how many the file has from there on.
    """

    header: bytes
    frame: int
    appends: int


def find_damage(path: Path) -> Damage | None:
    """The damage of the write-ahead file at `path`; None if it is missing, or whole as far as can be seen.

    Raises OSError.

    A concurrent writer does not make it look damaged: damage must be seen twice.
    """
    damage = _examine(path)
    return damage if damage is not None and damage == _examine(path) else None


def _examine(path: Path) -> Damage | None:
    try:
        with open(path, "rb") as file:
            return _walk(file)
    except FileNotFoundError:
        return None


def _walk(file: BinaryIO) -> Damage | None:
    header = file.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return None  # no frame follows: the header is flushed before the first of them
    magic, format_, page, _, *salts, sum0, sum1 = _HEADER.unpack(header)
    order, sums = _ORDERS.get(magic, "<u4"), (sum0, sum1)
    known = magic in _ORDERS and format_ == _FORMAT and page in _PAGES
    if not known or _checksum(np.frombuffer(header[:_CHECKED], order)) != sums:
        return Damage(header, 0, 1) if _PAYLOAD.search(file.read(_CHUNK)) else None
    number = first_bad = appends = 0
    writes_entry = False
    before = sums  # as the frame before says them, right or wrong
    for frames in _read_frames(file, page):
        added, (a, b, d) = _weigh(frames, order)
        content = frames.tobytes()
        for index, begin in enumerate(range(0, len(content), frames.shape[1])):
            number += 1
            _, size, salt0, salt1, *found = _HEAD.unpack_from(content, begin)
            ours = [salt0, salt1] == salts
            expected = _step(before, added[index], a, b, d)
            before = (found[0], found[1])
            verifies = ours and before == expected  # after the frame before it, which need not verify itself
            if not first_bad and not verifies:
                first_bad = number
            if not ours:
                continue
            page_begin, end = begin + _HEAD.size, begin + frames.shape[1]
            is_leaf = content[page_begin] == _TABLE_LEAF
            # A torn frame may have an older entry instead of the written one.
            writes_entry |= verifies and is_leaf and _PAYLOAD.search(content, page_begin, end) is not None
            if size:  # a commit
                appends += bool(first_bad and writes_entry)
                writes_entry = False
    return Damage(header, first_bad, appends) if appends > 1 else None


def _read_frames(file: BinaryIO, page: int) -> Iterator[NDArray[np.uint8]]:
    """All whole frames, some at a time: `frames[n, bytes]`."""
    size = _HEAD.size + page
    while content := file.read(max(1, _CHUNK // size) * size):
        if whole := len(content) // size:
            yield np.frombuffer(content, np.uint8, whole * size).reshape(whole, size)


def _checksum(words: NDArray[np.uint32]) -> _Sums:
    """The two sums of some words, from the beginning."""
    s0 = s1 = 0
    for even, odd in words.reshape(-1, 2).tolist():
        s0 = (s0 + even + s1) % 2**32
        s1 = (s1 + odd + s0) % 2**32
    return s0, s1


def _step(sums: _Sums, added: _Sums, a: int, b: int, d: int) -> _Sums:
    """The sums of a frame from those of the frame before it."""
    (s0, s1), (add0, add1) = sums, added
    return (a * s0 + b * s1 + add0) % 2**32, (b * s0 + d * s1 + add1) % 2**32


def _weigh(frames: NDArray[np.uint8], order: str) -> tuple[list[_Sums], tuple[int, int, int]]:
    """The sums that each frame adds, and the coefficients of the sums before it, the same for all frames.

    A step is linear, so a frame adds a sum of its words with weights that are the same for all frames.
    """
    checked = np.concatenate([frames[:, :_CHECKED_OF_HEAD], frames[:, _HEAD.size :]], axis=1)
    words = checked.view(order).astype(np.uint32)
    weights, coefficients = _weights(words.shape[1] // 2)
    return [(one, other) for one, other in (words @ weights).tolist()], coefficients


@cache
def _weights(pairs: int) -> tuple[NDArray[np.uint32], tuple[int, int, int]]:
    """The weights of words in the sums after `pairs` steps, `[2 * pairs, 2]`, and of the sums before them.

    A step is s <- M s + (x, x + y) with M = ((1, 1), (1, 2)); the powers of M are ((a, b), (b, d)).
    """
    weights = np.empty((2 * pairs, 2), np.uint32)
    a, b, d = 1, 0, 1
    for pair in reversed(range(pairs)):
        weights[2 * pair] = (a + b) % 2**32, (b + d) % 2**32
        weights[2 * pair + 1] = b, d
        a, b, d = (a + b) % 2**32, (b + d) % 2**32, (b + 2 * d) % 2**32
    return weights, (a, b, d)
