"""The last event that was acknowledged, in a small file beside the log: it shows that a log has lost its end.

It is written after each append, in place, and not flushed: it survives the death of the process, and after a
loss of power it may be older. So it is never ahead of what was acknowledged, and a log that does not reach it
has lost events, whatever its own files say. A mark that is missing or cannot be read says nothing.
"""

import os
import re
import zlib
from contextlib import suppress
from pathlib import Path

_LINE = re.compile(rb"([0-9]{20}) ([0-9a-f]{8})\n")  # the sequence number, and the CRC-32 of its digits


class Mark:
    """The mark at `path`, which is made with the first `write`. Thread safety: none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = -1

    def read(self) -> int:
        """The last event that was acknowledged, as far as the mark knows; 0 if it knows of none."""
        try:
            line = _LINE.fullmatch(self.path.read_bytes())
        except FileNotFoundError:
            return 0
        return int(line[1]) if line is not None and zlib.crc32(line[1]) == int(line[2], 16) else 0

    def write(self, seq: int) -> None:
        """Notes that event `seq` is acknowledged. A failure leaves an older mark, which is true as well."""
        digits = b"%020d" % seq
        with suppress(OSError):
            if self._file < 0:
                self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            os.pwrite(self._file, b"%b %08x\n" % (digits, zlib.crc32(digits)), 0)

    def close(self) -> None:
        """Closes the file; again does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
