"""Entries of a batch that was refused, taken apart: which of them are to blame, without a batch for each.

Entries are read one after the other, each alone, against the graph as it is. What is refused so is refused in
its turn too, unless an entry before it, of the same run, adds a node that it names. So a run is entries that
become one batch: those that may be applied, and those that are refused. Whether it can be applied, the batch
itself decides.
"""

from dataclasses import dataclass, field
from typing import Final

from livegnn.errors import InputError, UnknownNodeError
from livegnn.events import Events
from livegnn.graph import Graph, Schema, find_refusal
from livegnn.log import Entry, Rejection
from livegnn.runtime.ahead import Ahead

_MOST_REFUSED: Final = 256
_MOST_TEXT: Final = 1 << 16  # characters of reasons: they are one record of a log


@dataclass
class Run:
    """Neighbouring entries. schema: of the graph."""

    schema: Schema
    entries: list[Entry] = field(default_factory=list)
    applied: list[Events] = field(default_factory=list)
    rejections: list[Rejection] = field(default_factory=list)
    _added: set[int | str] = field(default_factory=set)  # ids of nodes that may be new
    _text: int = 0

    @property
    def ends(self) -> list[int]:
        """The number of each entry."""
        return [entry.seq for entry in self.entries]

    @property
    def full(self) -> bool:
        """Whether it has as many refused entries as may be recorded together."""
        return len(self.rejections) >= _MOST_REFUSED or self._text >= _MOST_TEXT

    def decides(self, entry: Entry, refusal: InputError) -> bool:
        """Whether an entry that is refused when it is read alone is refused after those of the run too."""
        if not self.applied:
            return True
        if not isinstance(refusal, UnknownNodeError):
            return False
        return self._added.isdisjoint(_ids_of(entry.events))

    def add(self, entry: Entry, refusal: InputError | None) -> None:
        """Adds the entry that comes next, which is refused or not."""
        self.entries.append(entry)
        if refusal is not None:
            self.rejections.append(Rejection(entry.seq, type(refusal).__name__, str(refusal)))
            self._text += len(str(refusal))
            return
        self.applied.append(entry.events)
        self._added |= _ids_of(entry.events, all_kinds=bool(self.schema.auto_add))


def find_cause(events: Events, graph: Graph, ahead: Ahead) -> InputError | None:
    """Why events would be refused now, None if only a view could."""
    try:
        ahead.check(events, graph.latest_time)
    except InputError as error:
        return error
    return find_refusal(graph, events)


def _ids_of(events: Events, *, all_kinds: bool = True) -> set[int | str]:
    """The ids that events name, or those of the nodes that they add."""
    return {
        id_
        for chunk in events.chunks
        if all_kinds or chunk.kind == "add_nodes"
        for ids in (chunk.ids, chunk.dst)
        if ids is not None
        for id_ in ids.tolist()
    }
