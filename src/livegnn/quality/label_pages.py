"""The labels of a topic as files: each page has labels, and how far the topic was read when it was written.

A page is whole before it has its name, so labels and positions never differ: after a crash, messages that no
page has are read again. Many pages are joined into one. A crash in between leaves pages that the joined one
has too, which changes nothing.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from livegnn.atomic_file import replace_file
from livegnn.errors import FileFormatError, LiveGNNError
from livegnn.events import Events
from livegnn.log import Origin
from livegnn.quality.labels import Labels, join_latest

BAD: Final = "the message is not a label"
"""The reason of messages that were passed over."""

_MOST_PAGES: Final = 32
_STATE: Final = b"livegnn"


class Progress(NamedTuple):
    """The progress in a topic. positions: the last offset of each partition. bound: as of `Log.bound`. bad:
    the number of messages that were passed over."""

    positions: Mapping[int, int] = {}
    bound: Mapping[str, str] = {}
    bad: int = 0


def read_label_pages(directory: Path) -> tuple[list[Labels], Progress]:
    """The labels of all pages, in order, and the progress of the last page. Raises FileFormatError."""
    parts, progress = [], Progress()
    for path in sorted(directory.glob("[0-9]*.parquet")):
        try:
            table = pq.read_table(path, partitioning=None)
            ids = table["id"].combine_chunks()
            parts.append(Labels(ids, np.asarray(table["label"]), np.asarray(table["time"])))
            state = json.loads(table.schema.metadata[_STATE])
            positions = {int(partition): offset for partition, offset in state["positions"].items()}
            progress = Progress(positions, state["bound"], state["bad"])
        except FileNotFoundError:  # it was joined with others in between: they are read again
            return read_label_pages(directory)
        except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
            raise FileFormatError(f"{path}: expected labels of a topic, got: {error}") from error
    return parts, progress


class LabelPages:
    """The pages in `directory`, which is made if it is missing, as a store of positions for one topic.

    Labels that are added are on the disk after the next `flush`. Thread safety: one thread calls. Raises
    FileFormatError and OSError.
    """

    def __init__(self, directory: Path, *, text_ids: bool) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        kind = pa.large_string() if text_ids else pa.int64()
        self._none = Labels(pa.array([], kind), np.empty(0), np.empty(0))
        parts, progress = read_label_pages(directory)
        if any(one.ids.type != kind for one in parts):
            raise FileFormatError(f"{directory}: expected labels with ids of {kind}, as the graph has them")
        self._positions, self._bound = dict(progress.positions), dict(progress.bound)
        self.bad = progress.bad
        self._waiting: list[Labels] = []
        self._changed = False

    def bound(self) -> Mapping[str, str]:
        """The properties of the topic by name."""
        return self._bound

    def bind(self, properties: Mapping[str, str], /) -> None:
        """Keeps properties durably. Raises LiveGNNError for another value of one."""
        for name, value in properties.items():
            if self._bound.get(name, value) != value:
                raise LiveGNNError(
                    f"{self._directory}: expected {name} {self._bound[name]!r}, got {value!r}: give the "
                    "labels of another topic another name"
                )
        self._bound |= properties
        self._changed = True
        self.flush()

    def position(self, source: str, partition: int, /) -> int | None:
        """The last offset of a partition that was read; None if none was."""
        return self._positions.get(partition)

    def append_all(
        self, entries: Sequence[Events], keys: None, origins: Sequence[Origin], /
    ) -> Sequence[object]:
        """Notes that the messages of `origins` were read, without labels."""
        for origin in origins:
            self.add(self._none, origin.partition, origin.offset)
        return entries

    def add(self, labels: Labels, partition: int, offset: int, bad: int = 0) -> None:
        """Adds labels of the messages of a partition up to `offset`. bad: how many of them are none."""
        if len(labels.values):
            self._waiting.append(labels)
        self._positions[partition], self._changed = offset, True
        self.bad += bad

    @property
    def waiting(self) -> int:
        """The number of labels that are not on the disk."""
        return sum(len(one.values) for one in self._waiting)

    def flush(self) -> None:
        """Writes what was added as a page. Raises OSError, after which it is tried again by the next call."""
        if not self._changed:
            return
        pages = sorted(self._directory.glob("[0-9]*.parquet"))
        joined = pages if len(pages) >= _MOST_PAGES else []
        parts = read_label_pages(self._directory)[0] if joined else []
        labels = join_latest([self._none, *parts, *self._waiting], taken_back=True)
        number = 1 + (int(pages[-1].stem) if pages else 0)
        state = {"positions": self._positions, "bound": self._bound, "bad": self.bad}
        table = pa.table({"id": labels.ids, "label": labels.values, "time": labels.times})
        with replace_file(self._directory / f"{number:012d}.parquet") as file:
            pq.write_table(table.replace_schema_metadata({_STATE: json.dumps(state)}), file)
        self._waiting, self._changed = [], False
        for page in joined:
            page.unlink(missing_ok=True)
