"""Snapshots of a live graph, when an exception from outside comes at any opcode of `write`."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from livegnn import Graph
from livegnn.snapshots.snapshot_source import SnapshotSource
from livegnn.snapshots.view import SnapshotView
from opcodes import count_opcodes, interrupt, is_free, opcodes_of, places, watched
from snapshots import Stream, check_shows, make_schema


@pytest.fixture(autouse=True)
def ends() -> Iterator[None]:
    with watched():
        yield


class Followed:
    """A graph, the view that writes snapshots of it, and who reads them."""

    def __init__(self, rng: np.random.Generator, folder: Path) -> None:
        self.stream = Stream(Graph(make_schema()), rng)
        self.stream.step(60)
        self.view = SnapshotView(self.stream.graph, str(folder), interval=None, grace=0.0)
        self.source = SnapshotSource(self.view.objects)
        self.view.write()

    def write_interrupted(self, at: int) -> None:
        """Interrupts a write: the next one shows all, and also what came meanwhile."""
        self.stream.step(3)
        kept = interrupt(self.view.write, at)
        assert is_free(self.stream.graph.writer), repr(kept)
        assert is_free(self.view._writing), repr(kept)
        self.stream.step(1)
        self.view.write()
        assert self.view.failure is None, repr(kept)
        check_shows(self.source.newest(), self.stream.graph, self.stream.used)


def test_a_snapshot_after_one_that_was_interrupted_misses_nothing(
    rng: np.random.Generator, tmp_path: Path
) -> None:
    followed = Followed(rng, tmp_path)
    followed.stream.step(3)
    for at in places(rng, count_opcodes(followed.view.write), 12):
        followed.write_interrupted(at)
    followed.view.close()


@pytest.mark.parametrize("function", ["_publish", "_take", "_adopt"])
def test_no_opcode_of_these_functions_loses_a_row_or_keeps_a_lock(
    rng: np.random.Generator, tmp_path: Path, function: str
) -> None:
    followed = Followed(rng, tmp_path)
    followed.stream.step(3)
    for at in opcodes_of(followed.view.write, function):
        followed.write_interrupted(at)
    followed.view.close()
