"""Writes snapshots: the tables of a layer into objects, then the manifest that names them.

Objects lie below `data/`, in a folder that only this layer has, so a reader sees nothing of a layer until a
manifest names it, and a writer that crashes leaves only objects that are collected. A base is streamed, an
object for each section; a delta is one object. Memory is bounded by some pieces of `PIECE` bytes for a base,
by the changed rows for a delta.
"""

import secrets
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

import livegnn._core as _core
from livegnn.arguments import check_int
from livegnn.errors import InputError
from livegnn.graph import EdgeSchema, Graph, Schema
from livegnn.snapshots import records
from livegnn.snapshots.manifest import (
    Layer,
    Manifest,
    Section,
    Table,
    TableKey,
    generation_of,
    list_manifests,
)
from livegnn.snapshots.objects import Objects, as_objects
from livegnn.snapshots.rows import DataRows, GraphRows, RowSource
from livegnn.snapshots.stores import Upload
from livegnn.wording import show

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch_geometric.data import Data, HeteroData

    from livegnn.types import IntArray

    Rows: TypeAlias = NDArray[np.uint32]
    Octets: TypeAlias = NDArray[np.uint8]

Direction = Literal["in", "out"]

DATA = "data"
"""The folder of the objects of layers."""

PIECE = 4 << 20
"""Bytes that are read from the graph and written at once."""

_ROWS_AT_ONCE = 1 << 16


ONCE = "once-"
"""The chain of a snapshot that no writer continues begins with this."""


def write_snapshot(
    source: "Graph | Data | HeteroData",
    where: "str | Objects",
    *,
    seq: int | None = None,
    directions: Iterable[Direction] = ("in", "out"),
) -> Manifest:
    """Writes all of a graph, or of PyG's data, as a snapshot of its own, and returns its manifest.

    where: the URL of a store, or an opened one. seq: the event up to which it shows everything; that of the
    graph by default. directions: which lists of directed edge types it has. Batches of a graph wait
    meanwhile: use a `SnapshotView` for a graph that changes. Raises `InputError` for wrong arguments,
    `SnapshotError` if the store refuses, or if another writer published meanwhile.
    """
    if seq is not None:
        check_int(seq, "seq", 0, 2**63 - 1)
    directions = checked_directions(directions)
    objects = as_objects(where)
    with ExitStack() as held:
        if isinstance(source, Graph):
            held.enter_context(source.writer)
            rows: RowSource = GraphRows(source)
            seq = source.seq if seq is None else seq
        else:
            rows = DataRows(source)
        listed = list_manifests(objects)
        generation = generation_of(listed[-1].path) + 1 if listed else 1
        layer = write_base(rows, objects, generation, directions)
        manifest = Manifest(
            generation,
            seq or 0,
            ONCE + secrets.token_hex(8),
            rows.schema.to_json(),
            counts_of(rows),
            (layer,),
        )
    objects.put_new(manifest.path, manifest.to_bytes())
    return manifest


def counts_of(source: RowSource) -> tuple[tuple[int, int], ...]:
    """Rows and nodes of each node type."""
    return tuple((source.rows(i), source.count(i)) for i in range(len(source.schema.node_types)))


def checked_directions(directions: Iterable[Direction]) -> tuple[Direction, ...]:
    """`directions`, if they are 'in', 'out' or both, in a list or another iterable. Raises `InputError`."""
    listed = isinstance(directions, Iterable) and not isinstance(directions, str)
    wanted = tuple(directions) if listed else ()
    if not wanted or any(direction not in ("in", "out") for direction in wanted):
        raise InputError(
            f"directions must be a list of 'in', 'out' or both, got {show(wanted if listed else directions)}"
        )
    return wanted


def table_keys(schema: Schema, directions: Collection[Direction]) -> list[TableKey]:
    """The tables that a base of this schema has."""
    keys = [TableKey("ids", i) for i in range(len(schema.node_types))]
    keys += [TableKey("features", i) for i, width in enumerate(schema.node_types.values()) if width]
    for i, edges in enumerate(schema.edge_types.values()):
        if edges.undirected:
            keys.append(TableKey("both", i))
            continue
        if "in" in directions and edges.in_neighbors:
            keys.append(TableKey("in", i))
        if "out" in directions or not edges.in_neighbors:
            keys.append(TableKey("out", i))
    return keys


def write_base(
    source: RowSource, objects: Objects, generation: int, directions: Collection[Direction]
) -> Layer:
    """Writes all rows of a source, and returns the layer for a manifest to name.

    Rows are read piece by piece: beside batches, each is of one moment, but not all are of the same.
    """
    schema = source.schema
    rows = {
        key: np.arange(source.rows(receiver(schema, key)), dtype=np.uint32)
        for key in table_keys(schema, directions)
    }
    return write_layer(source, objects, generation, rows, "base")


def write_layer(
    source: RowSource,
    objects: Objects,
    generation: int,
    rows: "Mapping[TableKey, Rows]",
    kind: Literal["base", "delta"],
) -> Layer:
    """Writes some rows of each table, all of them or those that have changed, ascending, piece by piece."""
    salt = secrets.randbits(32)
    folder = _folder(generation)
    tables = {}
    for key, changed in rows.items():
        with _Uploads(objects, f"{folder}/{key}") as sink:
            tables[key] = _write_table(source, key, changed, sink, salt, whole=kind == "base")
    return Layer(kind, salt, tables)


def read_changes(source: RowSource, generation: int, changed: "Mapping[TableKey, Rows]") -> "Changes":
    """Reads rows that have changed, ascending for each table, into memory. `Changes.store` writes them."""
    salt = secrets.randbits(32)
    sink = _OneObject(f"{_folder(generation)}/delta")
    tables = {
        key: _write_table(source, key, rows, sink, salt, whole=False)
        for key, rows in changed.items()
        if len(rows)
    }
    return Changes(Layer("delta", salt, tables), sink)


class Changes:
    """A delta in memory. layer: what a manifest says of it, once `store` has written it."""

    def __init__(self, layer: Layer, sink: "_OneObject") -> None:
        self.layer = layer
        self._sink = sink

    def store(self, objects: Objects) -> None:
        """Writes its one object."""
        upload = objects.upload(self._sink.path)
        try:
            for part in self._sink.parts:
                upload.write(part.data)
            upload.finish()
        except BaseException:
            upload.abort()
            raise


def _folder(generation: int) -> str:
    return f"{DATA}/{generation:012d}-{secrets.token_hex(6)}"


def receiver(schema: Schema, key: TableKey) -> int:
    """The node type whose rows a table has."""
    if key.kind in ("ids", "features"):
        return key.type
    source, _, target = list(schema.edge_types)[key.type]
    return list(schema.node_types).index(source if key.kind == "out" else target)


# -- sections, and where they go


class _Uploads:
    """The uploads of sections: each becomes an object of its own."""

    def __init__(self, objects: Objects, folder: str) -> None:
        self._objects = objects
        self._folder = folder
        self._open: dict[str, Upload] = {}

    def __enter__(self) -> "_Uploads":
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        for upload in self._open.values():
            upload.abort()

    def write(self, name: str, pieces: "Iterable[Octets]") -> Section:
        """One section, a piece after the other."""
        return self.write_beside({name: piece} for piece in pieces)[name]

    def write_beside(self, pieces: "Iterator[Mapping[str, Octets]]") -> dict[str, Section]:
        """Several sections at once, a piece of each after the other."""
        lengths: dict[str, int] = {}
        sums: dict[str, int] = {}
        for piece in pieces:
            for name, data in piece.items():
                if name not in self._open:
                    self._open[name] = self._objects.upload(f"{self._folder}-{name}")
                    lengths[name] = sums[name] = 0
                if len(data):
                    self._open[name].write(data.data)
                lengths[name] += len(data)
                sums[name] = zlib.crc32(data.data, sums[name])
        for name in lengths:
            self._open[name].finish()
            del self._open[name]
        return {name: Section(f"{self._folder}-{name}", 0, lengths[name], sums[name]) for name in lengths}


class _OneObject:
    """As `_Uploads`, but all sections lie in one object, which is kept in memory until it is whole."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.parts: list[Octets] = []
        self._length = 0

    def write(self, name: str, pieces: "Iterable[Octets]") -> Section:
        begin, crc32 = self._length, 0
        for data in pieces:
            self.parts.append(data)
            self._length += len(data)
            crc32 = zlib.crc32(data.data, crc32)
        return Section(self.path, begin, self._length - begin, crc32)

    def write_beside(self, pieces: "Iterator[Mapping[str, Octets]]") -> dict[str, Section]:
        gathered: dict[str, list[Octets]] = {}
        for piece in pieces:
            for name, data in piece.items():
                gathered.setdefault(name, []).append(data)
        return {name: self.write(name, data) for name, data in gathered.items()}


_Sink: TypeAlias = _Uploads | _OneObject


# -- tables


def _write_table(
    source: RowSource, key: TableKey, rows: "Rows", sink: _Sink, salt: int, *, whole: bool
) -> Table:
    """whole: the rows are all there are; otherwise they are listed."""
    table = _write_rows(source, key, rows, sink, salt, whole=whole)
    if whole:
        return table
    return replace(table, changed=sink.write("changed", [records.octets(rows.astype("<u4"))]))


def _write_rows(
    source: RowSource, key: TableKey, rows: "Rows", sink: _Sink, salt: int, *, whole: bool
) -> Table:
    if key.kind == "features":
        width = list(source.schema.node_types.values())[key.type]
        step = max(1, PIECE // (4 * width + records.SEAL))
        pieces = (
            records.encode_features(source.features(key.type, rows[at : at + step]), at, salt)
            for at in range(0, max(len(rows), 1), step)
        )
        return Table(len(rows), sections={"records": sink.write("records", pieces)})
    if key.kind == "ids":
        if source.schema.text_ids:
            return _write_texts(source, key.type, rows, sink, salt, whole=whole)
        return _write_integers(source, key.type, rows, sink, salt, whole=whole)
    return _write_lists(source, key, rows, sink, salt)


def _write_integers(
    source: RowSource, node_type: int, rows: "Rows", sink: _Sink, salt: int, *, whole: bool
) -> Table:
    ids = source.ids(node_type, rows)
    if whole and bool((ids == rows).all()):
        return Table(len(rows))
    table = np.zeros(len(rows), dtype=records.INTEGER_ID)
    table["id"] = ids
    sections = {"records": sink.write("records", [records.seal(table, 0, salt)])}
    if whole:
        used = ids != records.NO_NODE
        sections |= _write_order(ids[used], rows[used], sink)
    return Table(len(rows), sections=sections)


def _write_texts(
    source: RowSource, node_type: int, rows: "Rows", sink: _Sink, salt: int, *, whole: bool
) -> Table:
    data, lengths = source.texts(node_type, rows)
    used = lengths != records.NO_TEXT
    held = np.where(used, lengths, 0)
    begins = np.cumsum(held) - held
    table = np.zeros(len(rows), dtype=records.TEXT_ID)
    table["begin"], table["length"] = begins, lengths
    table["crc32"] = _core.checksum_ranges(data, begins, held)
    keys = table["crc32"].astype(np.int64)
    sections = {
        "records": sink.write("records", [records.seal(table, 0, salt)]),
        "texts": sink.write("texts", [data]),
    }
    if whole:
        sections |= _write_order(keys[used], rows[used], sink)
    return Table(len(rows), sections=sections)


def _write_order(keys: "IntArray", rows: "Rows", sink: _Sink) -> dict[str, Section]:
    order, fences = records.encode_order(keys, rows)
    return {"order": sink.write("order", [order]), "fences": sink.write("fences", [fences])}


def _write_lists(source: RowSource, key: TableKey, rows: "Rows", sink: _Sink, salt: int) -> Table:
    (ends, edges) = list(source.schema.edge_types.items())[key.type]
    entries = 0

    def pieces() -> "Iterator[Mapping[str, Octets]]":
        nonlocal entries
        place = 0
        for piece in _in_pieces(source, key, rows, edges):
            lists = source.lists(key.type, piece, incoming=key.kind != "out")
            yield records.encode_lists(
                lists, piece if ends[0] == ends[2] else None, edges, begin=entries, first=place, salt=salt
            )
            entries += int(lists.offsets[-1])
            place += len(piece)

    sections = sink.write_beside(pieces())
    return Table(len(rows), None, entries, sections)


def _in_pieces(source: RowSource, key: TableKey, rows: "Rows", edges: EdgeSchema) -> "Iterator[Rows]":
    """The rows in pieces whose lists have at most `PIECE` bytes together, or that are one row."""
    width = sum(type_.itemsize for type_ in records.columns_of(edges).values())
    for at in range(0, max(len(rows), 1), _ROWS_AT_ONCE):
        span = rows[at : at + _ROWS_AT_ONCE]
        degrees = source.degrees(key.type, span, incoming=key.kind != "out")
        piece = (np.cumsum(degrees) - degrees) * width // PIECE
        yield from np.split(span, np.flatnonzero(np.diff(piece)) + 1)
