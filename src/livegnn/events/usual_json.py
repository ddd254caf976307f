"""Events as JSON of the usual form, read by the native core without an object of Python for each value.

The form is `{"events":[{"event":"add_edge","src":1,"dst":2}]}`, or an object on each line, with texts of
printable ASCII (`cpp/json/usual_events.h`). `json_lines` reads such text equally, and slower. All
other text is for `json_lines`, whether it is valid or not: there is one place that reports errors.
"""

from collections.abc import Sequence
from typing import Final

import livegnn._core as _core
from livegnn.events.chunk import KINDS, Chunk
from livegnn.texts import Texts
from livegnn.types import Ids, IntArray

_RUNS: Final = 64  # of one kind and type, each of which costs as much as many events
_UNLIMITED: Final = 2**62


def read_usual(
    texts: Sequence[bytes], *, in_lines: bool, largest: int | None = None, runs: int = _RUNS
) -> tuple[list[Chunk], list[int]]:
    """The chunks of the events in the first of `texts`, up to one that is not of the form or has no events;
    and the number of events of each.

    in_lines: whether an event is on each line. largest: bytes of a text, or of a line, as of `Limits.line`.
    runs: of all texts, as of `Limits.runs`.
    """
    found, counts = _core.read_usual_events(
        list(texts), in_lines, _UNLIMITED if largest is None else largest, min(runs, _RUNS)
    )
    return [_to_chunk(run) for run in found], counts


def read_usual_text(
    text: bytes, *, in_lines: bool, largest: int | None = None, runs: int = _RUNS
) -> list[Chunk] | None:
    """The chunks of `read_usual` for one text, None if it is not of the form or has no events."""
    chunks, counts = read_usual([text], in_lines=in_lines, largest=largest, runs=runs)
    return chunks if counts else None


def _to_chunk(run: "_core._EventRun") -> Chunk:
    kind, type_, ids, dst, weight, time, x, key = run
    targets = None if dst is None else _to_ids(dst)
    return Chunk(KINDS[kind], type_, _to_ids(ids), targets, weight, time, x, key)


def _to_ids(ids: "Ids | tuple[bytes, IntArray]") -> Ids | Texts:
    return Texts(*ids) if isinstance(ids, tuple) else ids
