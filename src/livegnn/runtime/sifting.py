"""Sifts entries of a refused batch by columns: entries of one event that names a node that was never added.

Most refused entries are such. The columns of ids of all entries at once show which they are. The reason for
each follows from that, if nothing else can be wrong with the entries: it must be the same as for the entry
alone. If it does not follow, nothing is sifted.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import numpy as np

from livegnn.errors import InputError, UnknownNodeError
from livegnn.events import Chunk, Events
from livegnn.events.builder import cut, from_chunks
from livegnn.events.chunk import EDGE_KINDS
from livegnn.graph import Graph
from livegnn.log import Rejection
from livegnn.runtime.intake import check_schema
from livegnn.texts import Texts
from livegnn.types import EdgeType, Ids, NodeType

if TYPE_CHECKING:
    from jaxtyping import Bool, Int64
    from numpy.typing import NDArray

    from livegnn.types import IntArray

MOST_REFUSED: Final = 1024
MOST_TEXT: Final = 1 << 17
"""The most refused entries, and characters of their reasons, in a batch: they are one record of a log."""
_LARGEST_WEIGHT: Final = 2.0**96


class Sifted(NamedTuple):
    """Neighbouring entries that become one batch. ends: the number of each; events: of the entries that may
    be applied; rejections: of the others.
    """

    ends: list[int]
    events: Events
    rejections: list[Rejection]


def sift(after: int, ends: Sequence[int], events: Events, graph: Graph, *, ahead: bool) -> Iterator[Sifted]:
    """Yields the entries after event `after`, as batches; nothing if columns do not show which are refused.

    ends: the number of each; events: of all of them. ahead: whether an entry may be refused for its times.
    """
    events = graph.with_types(events)
    reasons = _find_reasons(events, graph, ahead=ahead)
    if not reasons:
        return
    bounds = np.array(ends) - after
    positions = np.array(sorted(reasons))
    entries = np.searchsorted(bounds, positions, side="right")
    begins = np.concatenate([[0], bounds[:-1]])
    if (bounds[entries] - begins[entries] > 1).any():
        return
    refused = np.zeros(len(events), dtype=bool)
    refused[positions] = True
    parts: list[tuple[int, list[Rejection]]] = []  # the entry after the last of each, and its refusals
    rejections, text = list[Rejection](), 0
    for position, entry in zip(positions.tolist(), entries.tolist(), strict=True):
        rejections.append(Rejection(ends[entry], UnknownNodeError.__name__, reasons[position]))
        text += len(reasons[position])
        if len(rejections) == MOST_REFUSED or text >= MOST_TEXT:
            parts.append((entry + 1, rejections))
            rejections, text = [], 0
    if not parts or parts[-1][0] < len(ends):
        parts.append((len(ends), rejections))
    first = 0
    for (last, rejections), part in zip(parts, cut(events, bounds[[p[0] - 1 for p in parts]]), strict=True):
        good = ~refused[int(begins[first]) : int(bounds[last - 1])]
        yield Sifted(list(ends[first:last]), _take_good(part, good), rejections)
        first = last


def _take_good(events: Events, good: "Bool[NDArray[np.bool_], 'events']") -> Events:
    """Returns the events that are `good`."""
    kept, at = [], 0
    for chunk in events.chunks:
        mask = good[at : at + len(chunk.ids)]
        at += len(chunk.ids)
        kept.append(chunk if mask.all() else _take(chunk, np.flatnonzero(mask)))
    return Events.concatenate([from_chunks(kept)])


class _Column(NamedTuple):
    """Ids that events from the position `at` on name.

    end: 1 if they are the targets of edges, which are checked after their sources.
    """

    at: int
    end: int
    ids: Ids | Texts


def _find_reasons(events: Events, graph: Graph, *, ahead: bool) -> dict[int, str]:
    """Returns why events name an unknown node, by their position; nothing if more than that may be wrong."""
    named: dict[NodeType, list[_Column]] = {}
    added: dict[NodeType, list[Ids | Texts]] = {}
    removed: dict[NodeType, set[int | str]] = {}
    timed = np.zeros(len(events), dtype=bool)
    allowed: set[tuple[object, ...]] = set()
    at = 0
    for chunk in events.chunks:
        form = _form_of(chunk)
        if not _has_plain_values(chunk) or not (form in allowed or _is_allowed(chunk, graph)):
            return {}
        allowed.add(form)
        if chunk.kind in EDGE_KINDS:
            source, _, target = cast("EdgeType", chunk.type)
            assert chunk.dst is not None
            named.setdefault(source, []).append(_Column(at, 0, chunk.ids))
            named.setdefault(target, []).append(_Column(at, 1, chunk.dst))
        else:
            assert isinstance(chunk.type, str)
            if chunk.kind == "add_nodes":
                added.setdefault(chunk.type, []).append(chunk.ids)
            else:
                named.setdefault(chunk.type, []).append(_Column(at, 0, chunk.ids))
                if chunk.kind == "remove_nodes":
                    removed.setdefault(chunk.type, set()).update(chunk.ids.tolist())
        timed[at : at + len(chunk.ids)] = chunk.time is not None
        at += len(chunk.ids)
    found: dict[tuple[int, int], str] = {}
    for node_type, columns in named.items():
        missing = [] if node_type in graph.schema.auto_add else _find_missing(columns, graph, node_type)
        newcomers = {id for ids in added.get(node_type, ()) for id in ids.tolist()} if missing else set()
        for place, id in missing:
            if id in newcomers:
                return {}  # the order of the events decides
            found[place] = graph.unknown_node(id, node_type)
        if node_type in removed:
            removed[node_type].difference_update(id for _, id in missing)
    positions = np.unique(np.array([position for position, _ in found], np.int64))
    if any(_names(named[node_type], gone, positions) for node_type, gone in removed.items() if gone):
        return {}  # the order of the events decides which of two ends the reason names
    if ahead and timed[[position for position, _ in found]].any():
        return {}
    return {position: found[position, end] for position, end in sorted(found, reverse=True)}


def _find_missing(
    columns: Sequence[_Column], graph: Graph, node_type: NodeType
) -> list[tuple[tuple[int, int], int | str]]:
    """Returns ids that the graph lacks, with the position of the event that names each, and its end."""
    parts = [one.ids for one in columns]
    joined = Texts.join(parts) if graph.schema.text_ids else np.concatenate(parts)
    missing = np.flatnonzero(~graph.contains(joined, node_type))
    if not len(missing):
        return []
    starts = np.cumsum([0, *map(len, parts[:-1])])
    column = np.searchsorted(starts, missing, side="right") - 1
    first, end = (np.array([one[field] for one in columns]) for field in (0, 1))
    positions = first[column] + missing - starts[column]
    places = zip(positions.tolist(), end[column].tolist(), strict=True)
    return list(zip(places, [joined[at].item() for at in missing.tolist()], strict=True))


def _names(columns: Sequence[_Column], ids: set[int | str], positions: "Int64[IntArray, 'events']") -> bool:
    """Returns whether an event at one of `positions`, which grow, names one of `ids`."""
    for at, _, column in columns:
        first, last = np.searchsorted(positions, [at, at + len(column)])
        if any(column[place - at].item() in ids for place in positions[first:last].tolist()):
            return True
    return False


def _form_of(chunk: Chunk) -> tuple[object, ...]:
    """Returns all that the schema checks: chunks of one form are all allowed, or none of them is."""
    kind, type, ids, dst, *columns = chunk
    width = None if chunk.x is None else chunk.x.shape[1]
    dtypes = ids.dtype.kind, None if dst is None else dst.dtype.kind
    return (kind, type, dtypes, width, *(column is None for column in columns))


def _is_allowed(chunk: Chunk, graph: Graph) -> bool:
    """Returns whether the schema has a place for everything in a chunk."""
    try:
        check_schema(graph, chunk)
    except InputError:
        return False
    return True


def _has_plain_values(chunk: Chunk) -> bool:
    """Returns whether no value would be refused in every state of the graph."""
    if chunk.weight is not None and not (np.abs(chunk.weight) <= _LARGEST_WEIGHT).all():
        return False
    return all(column is None or np.isfinite(column).all() for column in (chunk.time, chunk.x))


def _take(chunk: Chunk, rows: "Int64[IntArray, 'rows']") -> Chunk:
    """Returns the events in `rows`."""

    def take(column: "Texts | NDArray[np.generic] | None") -> "Texts | NDArray[np.generic] | None":
        if isinstance(column, Texts):
            names = column.tolist()
            return Texts.of([names[at] for at in rows.tolist()])
        return None if column is None else column[rows]

    kind, type, *columns = chunk
    return Chunk(kind, type, *map(take, columns))  # type: ignore[arg-type]
