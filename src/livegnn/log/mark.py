"""The last event that was acknowledged, in a small file beside the log: it shows that a log has lost its end.

It is written after each append, in place, and not flushed: it survives the death of the process, and after a
loss of power it may be older. So it is never ahead of what was acknowledged, and a log that does not reach it
has lost events, whatever its own files say. A mark that is missing or cannot be read says nothing. Processes
that follow the log look at it to see that there is more.
"""

import os
import re
import zlib
from contextlib import suppress
from functools import partial
from pathlib import Path

from livegnn.interrupts import at_once
from livegnn.log.held import is_at

_LINE = re.compile(rb"([0-9]{20}) ([0-9a-f]{8})\n")  # the sequence number, and the CRC-32 of its digits


def to_line(seq: int) -> bytes:
    """A sequence number as a line that shows whether it was read as it was written; always of one length."""
    digits = b"%020d" % seq
    return b"%b %08x\n" % (digits, zlib.crc32(digits))


def from_line(line: bytes) -> int | None:
    """The number that `to_line` made a line of, None if it was not."""
    found = _LINE.fullmatch(line)
    return int(found[1]) if found is not None and zlib.crc32(found[1]) == int(found[2], 16) else None


class Mark:
    """The mark at `path`, which is made with the first `write`. Thread safety: none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = -1

    def read(self) -> int:
        """The last event that was acknowledged, as far as the mark knows; 0 if it knows of none."""
        try:
            return from_line(self.path.read_bytes()) or 0
        except FileNotFoundError:
            return 0

    def write(self, seq: int) -> None:
        """Notes that event `seq` is acknowledged. A failure leaves an older mark, which is true as well.

        A mark that somebody has removed is made again.
        """
        with suppress(OSError):
            if self._file >= 0 and not is_at(self._file, self.path):
                self.close()
            if self._file < 0:
                self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            os.pwrite(self._file, to_line(seq), 0)

    def close(self) -> None:
        """Closes the file; again does nothing."""
        if self._file >= 0:
            at_once(partial(os.close, self._file), partial(setattr, self, "_file", -1))
