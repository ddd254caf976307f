"""Takes a refused batch apart: finds the entries that are to blame, without a batch for each entry.

Refusals that columns show at once are sifted first (see `sifting`). If columns do not show them, entries are
read one after the other, each alone, against the present graph. An entry that is refused alone is refused in
its turn too, for the same reason, unless an earlier entry of the same run adds or removes a node that it
names. So a run is entries that become one batch: entries that may be applied, and refused ones. The batch
itself decides whether it can be applied.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

from livegnn.errors import InputError, UnknownNodeError, as_value
from livegnn.events import Events
from livegnn.events.growing import find_growth
from livegnn.graph import Graph, Schema, find_refusal
from livegnn.log import Entry, Rejection, Write
from livegnn.runtime.future_events import Ahead
from livegnn.runtime.sifting import MOST_REFUSED, MOST_TEXT, sift


class Commit(Protocol):
    """A function that applies a batch of the entries that end at `ends`, and publishes it. events: of the
    entries that are not rejected. Raises InputError with nothing changed or recorded.
    """

    def __call__(self, ends: list[int], events: Events, rejections: Sequence[Rejection] = ()) -> None: ...


@dataclass
class Run:
    """Neighbouring entries. schema: of the graph."""

    schema: Schema
    entries: list[Entry] = field(default_factory=list)
    applied: list[Events] = field(default_factory=list)
    rejections: list[Rejection] = field(default_factory=list)
    _moved: set[int | str] = field(default_factory=set)  # ids of nodes that may be new, or removed
    _text: int = 0

    @property
    def ends(self) -> list[int]:
        """The number of each entry."""
        return [entry.seq for entry in self.entries]

    @property
    def full(self) -> bool:
        """Whether it has the most refused entries that may be recorded together."""
        return len(self.rejections) >= MOST_REFUSED or self._text >= MOST_TEXT

    def decides(self, entry: Entry, refusal: InputError) -> bool:
        """Returns whether an entry that is refused alone is refused after the entries of the run too."""
        if not self.applied:
            return True
        if not isinstance(refusal, UnknownNodeError):
            return False
        return self._moved.isdisjoint(_ids_of(entry.events))

    def add(self, entry: Entry, refusal: InputError | None) -> None:
        """Adds the next entry; refusal: why it is refused, None if it is not."""
        self.entries.append(entry)
        if refusal is not None:
            self.rejections.append(Rejection(entry.seq, type(refusal).__name__, str(refusal)))
            self._text += len(str(refusal))
            return
        self.applied.append(entry.events)
        self._moved |= _ids_of(entry.events, all_kinds=bool(self.schema.auto_add))


def commit_apart(writes: Sequence[Write], after: int, graph: Graph, ahead: Ahead, commit: Commit) -> None:
    """Applies the entries after event `after`, which were refused as one batch, without those to blame."""
    ends = [end for write in writes for end in write.ends.tolist()]
    merged = Events.concatenate(write.events for write in writes)
    if find_growth(merged.chunks) is not None:  # alone: only its own transaction can say whether it fits
        _commit_run(Run(graph.schema, [Entry(ends[0], merged)]), commit)
        return
    done = 0
    for part in sift(after, ends, merged, graph, ahead=ahead.active):
        try:
            commit(part.ends, part.events, part.rejections)
        except InputError:
            break
        done += len(part.ends)
    if done == len(ends):
        return
    run = Run(graph.schema)
    entries = (entry for write in writes for entry in write.entries())
    for entry in islice(entries, done, None):
        refusal = find_cause(entry.events, graph, ahead)
        if run.full or not (refusal is None or run.decides(entry, refusal)):
            _commit_run(run, commit)
            run = Run(graph.schema)
            refusal = find_cause(entry.events, graph, ahead)
        run.add(entry, refusal)
    _commit_run(run, commit)


def _commit_run(run: Run, commit: Commit) -> None:
    """Applies a run as one batch or, if that is refused, each entry of it by itself."""
    try:
        if len(run.entries) > 1 or run.rejections:
            commit(run.ends, Events.concatenate(run.applied), run.rejections)
            return
    except InputError:
        pass
    for entry in run.entries:
        try:
            commit([entry.seq], entry.events)
        except InputError as error:
            rejection = Rejection(entry.seq, type(error).__name__, str(error))
            commit([entry.seq], Events(), [rejection])


def find_cause(events: Events, graph: Graph, ahead: Ahead) -> InputError | None:
    """Returns why events would be refused now, None if only a view could refuse them."""
    try:
        ahead.check(events, graph.latest_time)
    except InputError as error:
        return as_value(error)
    return find_refusal(graph.core, events)


def _ids_of(events: Events, *, all_kinds: bool = True) -> set[int | str]:
    """Returns the ids that events name, or the ids of the nodes that they add or remove."""
    return {
        id_
        for chunk in events.chunks
        if all_kinds or chunk.kind in ("add_nodes", "remove_nodes")
        for ids in (chunk.ids, chunk.dst)
        if ids is not None
        for id_ in ids.tolist()
    }
