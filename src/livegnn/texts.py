"""Text ids as bytes and places: a text takes the room of its own bytes, however long another one is.

NumPy's arrays of text give each text the room of the longest. So what strangers send stays in this form, from
the parser to the native core, in the log and when it is replayed.
"""

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, overload

import numpy as np

from livegnn.errors import InputError

if TYPE_CHECKING:
    from jaxtyping import Int64
    from numpy.typing import DTypeLike, NDArray

    from livegnn.types import IntArray

_AT_ONCE: Final = 65_536  # texts that are strings of Python at a time


class Texts:
    """A column of texts, which is not changed.

    utf8: the texts with a NUL between them, and perhaps others before and after. places: where each begins,
    and where another one would begin after the last.
    """

    __slots__ = ("places", "utf8")

    dtype: "np.dtype[np.str_]" = np.dtype(np.str_)
    ndim = 1

    def __init__(self, utf8: bytes, places: "Int64[IntArray, '...']") -> None:
        self.utf8, self.places = utf8, places

    @staticmethod
    def of(values: Sequence[str]) -> "Texts":
        """The column of `values`. Requires: each is valid Unicode, without NUL."""
        return Texts.read("\0".join(values).encode(), len(values))

    @staticmethod
    def read(utf8: bytes, count: int) -> "Texts":
        """`count` texts with a NUL between them. Raises ValueError for another number, and for no UTF-8."""
        if count == 0:
            if utf8:
                raise ValueError(f"{len(utf8)} bytes of text ids where none are needed")
            return Texts(b"", np.zeros(1, dtype=np.int64))
        utf8.isascii() or utf8.decode()
        ends = np.flatnonzero(np.frombuffer(utf8, dtype=np.uint8) == 0)
        if len(ends) != count - 1:
            raise ValueError(f"{len(ends) + 1} text ids where {count} are needed")
        places = np.empty(count + 1, dtype=np.int64)
        places[0], places[1:-1], places[-1] = 0, ends + 1, len(utf8) + 1
        return Texts(utf8, places)

    @staticmethod
    def join(parts: "Iterable[Texts | NDArray[np.generic]]") -> "Texts":
        """The texts of `parts`, in order."""
        columns = [part if isinstance(part, Texts) else Texts.of(part.tolist()) for part in parts]
        columns = [part for part in columns if len(part)]
        if len(columns) < 2:
            return columns[0] if columns else Texts.of([])
        places, begin = [], 0
        for part in columns:
            places.append(part.places[:-1] - part.places[0] + begin)
            begin += int(part.places[-1] - part.places[0])
        places.append(np.array([begin], dtype=np.int64))
        return Texts(b"\0".join([part.encoded() for part in columns]), np.concatenate(places))

    def encoded(self) -> bytes:
        """The texts with a NUL between them."""
        if not len(self):
            return b""
        begin, end = int(self.places[0]), int(self.places[-1]) - 1
        return self.utf8 if end - begin == len(self.utf8) else self.utf8[begin:end]

    def __len__(self) -> int:
        return len(self.places) - 1

    @property
    def shape(self) -> tuple[int]:
        """As an array has it."""
        return (len(self),)

    @property
    def size(self) -> int:
        """The number of texts."""
        return len(self)

    @property
    def nbytes(self) -> int:
        """The memory of the texts and places."""
        return int(self.places[-1] - self.places[0]) + self.places.nbytes

    @overload
    def __getitem__(self, at: int) -> np.str_: ...
    @overload
    def __getitem__(self, at: slice) -> "Texts": ...
    def __getitem__(self, at: int | slice) -> "np.str_ | Texts":
        if isinstance(at, slice):
            begin, end, step = at.indices(len(self))
            if step != 1:
                raise ValueError(f"a part of texts must have the step 1, got {step}")
            return Texts(self.utf8, self.places[begin : max(begin, end) + 1])
        at = range(len(self))[at]
        return np.str_(self.utf8[int(self.places[at]) : int(self.places[at + 1]) - 1].decode())

    def tolist(self) -> list[str]:
        """The texts as strings of Python."""
        return self.encoded().decode().split("\0") if len(self) else []

    def longest(self) -> int:
        """Characters of the longest text."""
        if not len(self):
            return 0
        if self.utf8.isascii():
            return int(np.diff(self.places).max()) - 1
        return max(max(map(len, self[at : at + _AT_ONCE].tolist())) for at in range(0, len(self), _AT_ONCE))

    def __array__(self, dtype: "DTypeLike | None" = None, copy: bool | None = None) -> "NDArray[np.generic]":
        return np.array(self.tolist(), dtype=np.str_ if dtype is None else dtype)

    def __eq__(self, other: object) -> bool:
        """Whether both are columns of the same texts."""
        return isinstance(other, Texts) and len(self) == len(other) and self.encoded() == other.encoded()

    __hash__ = None  # type: ignore[assignment]


def text_code(text: str) -> int:
    """The code of a text that is a feature, from 0 to 2^24 - 1, which float32 holds exactly: 24 bits of its
    BLAKE2b in UTF-8, the same on every machine and in every release.

    Two of n texts have the same code with a probability of about n * n / 2^25.
    Raises `InputError` for another kind of value.
    """
    if not isinstance(text, str):
        raise InputError(f"text must be a text, got {type(text).__name__}: a number needs no code")
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=3).digest(), "big")
