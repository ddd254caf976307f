"""Defines `Events`, which collects changes to a graph in the order of the calls."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from livegnn.arguments import check_int
from livegnn.errors import InputError
from livegnn.events.chunk import (
    Chunk,
    IdsLike,
    NumbersLike,
    join,
    same_columns,
    to_edge_type,
    to_ids,
    to_key,
    to_node_type,
    to_rows,
    to_time,
    to_weight,
)
from livegnn.schema import Growth
from livegnn.texts import Texts
from livegnn.types import DEFAULT_EDGE_TYPE, DEFAULT_NODE_TYPE, JSON, EdgeType, Ids, NodeType
from livegnn.wording import format_edge_type, kind_of, quoted

if TYPE_CHECKING:
    import pyarrow as pa

_SHOWN = 8  # kinds of events, in a repr


class Events:
    """A builder: each call appends events and returns the builder, so that calls chain.

    For a single event, scalars are accepted in place of arrays. Arrays of the right dtype are kept, not
    copied: do not change them until the events are applied. A call that raises leaves the builder unchanged.

    Node ids are integers from 0 to 2^63 - 1, or text. Ids that are floats, booleans or negative, and shapes
    that do not match, raise InputError at once. `check()` checks the values of features, weights and times.
    """

    __slots__ = ("_length", "chunks")

    chunks: list[Chunk]

    def __init__(self) -> None:
        self.chunks = []
        self._length = 0

    def __len__(self) -> int:
        """The number of single events; each edge or node counts as one."""
        return self._length

    def __repr__(self) -> str:
        """The number of events of each kind and type, in the order in which these first occur."""
        counts: dict[str, int] = {}
        for chunk in self.chunks:
            named = "" if chunk.type in (DEFAULT_NODE_TYPE, DEFAULT_EDGE_TYPE) else f" of {_type(chunk)}"
            what = f"{chunk.kind}{named}"
            counts[what] = counts.get(what, 0) + len(chunk.ids)
        shown = [f"{number:,} {what}" for what, number in counts.items()]
        if len(shown) > _SHOWN:
            shown[_SHOWN:] = [f"and {len(shown) - _SHOWN} kinds more"]
        return f"Events({', '.join(shown)})"

    def __eq__(self, other: object) -> bool:
        """Whether both hold the same chunks, bit for bit."""
        if not isinstance(other, Events):
            return NotImplemented
        return len(self.chunks) == len(other.chunks) and all(map(_equal, self.chunks, other.chunks))

    __hash__ = None  # type: ignore[assignment]

    def add_edges(
        self,
        src: IdsLike,
        dst: IdsLike,
        *,
        weight: NumbersLike | None = None,
        time: NumbersLike | None = None,
        edge_attr: NumbersLike | None = None,
        key: NumbersLike | None = None,
        edge_type: EdgeType | None = None,
    ) -> "Events":
        """Adds edges src[i] -> dst[i], with `weight[n]`, `time[n]` and `edge_attr[n, edge_dim]` if given; an
        edge that exists is updated.

        If the edge type keeps parallel edges, `key[n]` distinguishes them: an edge with the same ends and key
        as an existing edge updates it. Without `key` each edge is a new one; its key is one more than the
        greatest key between its ends, 0 for the first.

        If the edge type has duplicates="add", the weight is added to the old one. With times, an event older
        than the stored edge is ignored (with duplicates="add", only its features are). If `edge_attr` is not
        given, an existing edge keeps its features and a new one gets zeros. For a scalar edge, `edge_attr`
        may have the shape `[width]`.
        """
        ids, targets, kind = to_ids(src, "src"), to_ids(dst, "dst"), to_edge_type(edge_type)
        n = len(ids)
        if len(targets) != n:
            raise InputError(f"src and dst must be of the same length, got {n} and {len(targets)}")
        weights = None if weight is None else to_weight(weight, n)
        times = None if time is None else to_time(time, n)
        scalar = _is_scalar(src) and _is_scalar(dst)
        rows = None if edge_attr is None else to_rows(edge_attr, n, "edge_attr", scalar=scalar)
        keys = None if key is None else to_key(key, n)
        return self._append(Chunk("add_edges", kind, ids, targets, weights, times, rows, keys))

    def remove_edges(
        self, src: IdsLike, dst: IdsLike, *, key: NumbersLike | None = None, edge_type: EdgeType | None = None
    ) -> "Events":
        """Removes edges src[i] -> dst[i]. A missing edge is not an error if both of its nodes exist.

        If the edge type keeps parallel edges, the one with `key[i]` is removed; without `key`, the one with
        the greatest key.
        """
        ids, targets, kind = to_ids(src, "src"), to_ids(dst, "dst"), to_edge_type(edge_type)
        if len(targets) != len(ids):
            raise InputError(f"src and dst must be of the same length, got {len(ids)} and {len(targets)}")
        keys = None if key is None else to_key(key, len(ids))
        return self._append(Chunk("remove_edges", kind, ids, targets, key=keys))

    def set_features(
        self,
        ids: IdsLike,
        x: NumbersLike,
        *,
        time: NumbersLike | None = None,
        node_type: NodeType | None = None,
    ) -> "Events":
        """Sets the features of nodes to the rows of `x[n, width]`; for a scalar id, `x[width]`.

        time: float64[n], of a type whose features have times (`Schema.timed_features`): features that are
        older than those of the node change nothing; without it the time is 0.
        """
        nodes, kind = to_ids(ids, "ids"), to_node_type(node_type)
        rows = to_rows(x, len(nodes), "x", scalar=_is_scalar(ids))
        times = None if time is None else to_time(time, len(nodes), "ids")
        return self._append(Chunk("set_features", kind, nodes, time=times, x=rows))

    def add_nodes(
        self,
        ids: IdsLike,
        x: NumbersLike | None = None,
        *,
        time: NumbersLike | None = None,
        node_type: NodeType | None = None,
    ) -> "Events":
        """Adds nodes with features `x[n, width]`, or zeros. For an existing node it sets `x`, if given.

        time: of `x`, as of `set_features`.
        """
        nodes, kind = to_ids(ids, "ids"), to_node_type(node_type)
        rows = None if x is None else to_rows(x, len(nodes), "x", scalar=_is_scalar(ids))
        if time is not None and rows is None:
            raise InputError("time is that of features, got it without x: leave it out, or give x")
        times = None if time is None else to_time(time, len(nodes), "ids")
        return self._append(Chunk("add_nodes", kind, nodes, time=times, x=rows))

    def remove_nodes(self, ids: IdsLike, *, node_type: NodeType | None = None) -> "Events":
        """Removes nodes and all their edges, of every type."""
        return self._append(Chunk("remove_nodes", to_node_type(node_type), to_ids(ids, "ids")))

    def grow(self, growth: Growth) -> "Events":
        """Adds types and columns to the schema of the graph; it must be the only event of its batch."""
        from livegnn.events.growing import to_chunk

        if not isinstance(growth, Growth):
            raise InputError(f"expected a Growth, got {kind_of(growth)}: write lg.Growth(columns=...)")
        return self._append(to_chunk(growth.to_json()))

    def _append(self, chunk: Chunk) -> "Events":
        n = len(chunk.ids)
        if n:
            self.chunks.append(chunk)
            self._length += n
        return self

    def check(self) -> None:
        """Raises InputError if a feature, weight or time is not finite, or a text id cannot be stored."""
        first = 0
        for chunk in self.chunks:
            for name, column in (("weight", chunk.weight), ("time", chunk.time), (chunk.x_name, chunk.x)):
                if column is None or np.isfinite(column).all():
                    continue
                row, at = np.argwhere(~np.isfinite(column.reshape(len(column), -1)))[0].tolist()
                value = column.reshape(len(column), -1)[row, at]
                place = f" in column {at}" if column.ndim == 2 else ""
                raise InputError(
                    f"{name} must be finite, got {value}{place} in event {first + row} ({_name(chunk, row)})"
                )
            for ids in (chunk.ids, chunk.dst):
                if ids is not None and ids.dtype.kind == "U":
                    _check_text(ids)
            first += len(chunk.ids)

    @staticmethod
    def concatenate(parts: Iterable["Events"]) -> "Events":
        """All events of `parts` in order; adjacent chunks with the same columns are joined."""
        events = Events()
        run: list[Chunk] = []
        for part in parts:
            if not isinstance(part, Events):
                raise InputError(f"expected Events, got {kind_of(part)}: give a list of them")
            for chunk in part.chunks:
                if run and not same_columns(run[0], chunk):
                    events._append(join(run))
                    run = []
                run.append(chunk)
        if run:
            events._append(join(run))
        return events

    def between(self, first: int, last: int) -> "Events":
        """The events at the positions from `first` up to, and without, `last`; columns are views."""
        events, begin = Events(), 0
        for chunk in self.chunks:
            end = begin + len(chunk.ids)
            if begin < last and end > first:
                whole = first <= begin and end <= last
                events._append(
                    chunk if whole else chunk.part(slice(max(first - begin, 0), min(last, end) - begin))
                )
            begin = end
        return events

    def parts(self, size: int) -> Iterator["Events"]:
        """The same events in the same order, in parts of at most `size` events of one kind and type. Columns
        are array views, not copies."""
        size = check_int(size, "size, a number of events,", 1)
        for chunk in self.chunks:
            for first in range(0, len(chunk.ids), size):
                yield from_chunks([chunk.part(slice(first, first + size))])

    def to_bytes(self) -> bytes:
        """The compact, versioned binary form with a checksum that the log stores (see docs/log.md)."""
        from livegnn.events import binary

        return binary.encode(self.chunks)

    @staticmethod
    def from_bytes(data: bytes) -> "Events":
        """The inverse of `to_bytes`. Raises FileFormatError if `data` is corrupt or of an unknown version."""
        from livegnn.events import binary

        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise InputError(f"expected the bytes that Events.to_bytes returned, got {kind_of(data)}")
        return from_chunks(binary.decode(bytes(data)))

    def to_json_lines(self) -> str:
        """One JSON object on each line, for one event; `from_json_lines` reads it back exactly."""
        from livegnn.events import json_lines

        return json_lines.encode(self.chunks)

    @staticmethod
    def from_json_lines(text: str | bytes) -> "Events":
        """Reads a JSON object from each line; skips blank lines. Raises an InputError that names the line."""
        from livegnn.events import json_lines

        return from_chunks(json_lines.decode(text))

    @staticmethod
    def from_records(records: "Sequence[JSON | Mapping[str, JSON]]") -> "Events":
        """Reads parsed JSON objects, as `from_json_lines` does. Raises InputError with the position."""
        from livegnn.events import json_lines

        return from_chunks(json_lines.from_records(records))

    @staticmethod
    def from_arrow(table: "pa.Table | pa.RecordBatch") -> "Events":
        """Reads a table with a column `event` and, as the events need them, `src`, `dst`, `id`, `weight`,
        `time`, `key`, `x`, `edge_attr` (lists of numbers), `edge_type` (lists of three names), `node_type`.

        The values of `event` are those of JSON lines. Raises an InputError that names the row.
        """
        from livegnn.events import arrow

        return from_chunks(arrow.decode(table))


class CheckedEvents(Events):
    """Events that `Runtime.check` accepted for graphs with `schema`: they are not checked again before they
    are staged. They cannot be extended.
    """

    __slots__ = ("schema",)

    def __init__(self, events: Events, schema: object) -> None:
        self.chunks, self._length, self.schema = list(events.chunks), len(events), schema

    def _append(self, chunk: Chunk) -> Events:
        raise InputError("events that were checked cannot be extended: begin with Events()")


class JoinedEvents(CheckedEvents):
    """Checked events of neighbouring entries, which are logged together. sizes: the number of events of each
    entry, at least 1.
    """

    __slots__ = ("sizes",)

    def __init__(self, events: Events, schema: object, sizes: Sequence[int]) -> None:
        super().__init__(events, schema)
        self.sizes = sizes

    def ends(self, last: int) -> list[int]:
        """The number of the last event of each entry. last: the one of all."""
        return list(accumulate(self.sizes, initial=last - len(self)))[1:]


def cut(events: Events, ends: Iterable[int]) -> Iterator[Events]:
    """The events from the end before up to each of `ends`, which grow; columns are views.

    Each chunk is looked at once, however many ends there are.
    """
    chunks, begin, last = iter(events.chunks), 0, 0
    chunk = next(chunks, None)
    for end in ends:
        part = Events()
        while chunk is not None and last < end:
            size = len(chunk.ids)
            upper = min(end, begin + size)
            part._append(chunk if upper - last == size else chunk.part(slice(last - begin, upper - begin)))
            last = upper
            if last == begin + size:
                chunk, begin = next(chunks, None), last
        yield part


def from_chunks(chunks: Iterable[Chunk]) -> Events:
    events = Events()
    for chunk in chunks:
        events._append(chunk)
    return events


def _type(chunk: Chunk) -> str:
    return chunk.type if isinstance(chunk.type, str) else format_edge_type(chunk.type)


def _is_scalar(ids: IdsLike) -> bool:
    return not isinstance(ids, (list, tuple, Texts)) and np.ndim(ids) == 0


def _equal(a: Chunk, b: Chunk) -> bool:
    if a.kind != b.kind or a.type != b.type:
        return False
    for left, right in zip(a[2:], b[2:], strict=True):
        if left is None or right is None:
            if left is not right:
                return False
        elif isinstance(left, Texts) or isinstance(right, Texts) or left.dtype.kind == "U":
            if right.dtype.kind != "U" or left.tolist() != right.tolist():
                return False
        elif left.dtype != right.dtype or left.shape != right.shape or left.tobytes() != right.tobytes():
            return False
    return True


def _name(chunk: Chunk, row: int) -> str:
    """An event's node or edge, as it was given, and its type."""
    shown = quoted(chunk.ids[row].item())
    if chunk.dst is None:
        return f"node {shown} of type {quoted(chunk.type)}"
    return f"edge {shown} -> {quoted(chunk.dst[row].item())} of type {chunk.type}"


def _check_text(ids: Ids | Texts) -> None:
    from livegnn.events.binary import encode_text

    encode_text(ids)
