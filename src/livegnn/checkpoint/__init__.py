"""Checkpoints: the state of every part of the system at one sequence number, in one file.

A file is written beside its place and renamed into it, so a reader finds a whole checkpoint or none. It is
mapped into memory when it is read, copy on write: the process owns the arrays, so that a part may take one as
its own. A file may take blocks that have not changed from earlier files of the same directory
(`write_shared_to`). The formats are described byte by byte in docs/checkpoint.md.
"""

from livegnn.checkpoint.header import MAGIC, Contents, Section, Source
from livegnn.checkpoint.reading import Checkpoint, read, read_contents
from livegnn.checkpoint.writing import write, write_shared_to, write_to

__all__ = [
    "MAGIC",
    "Checkpoint",
    "Contents",
    "Section",
    "Source",
    "read",
    "read_contents",
    "write",
    "write_shared_to",
    "write_to",
]
