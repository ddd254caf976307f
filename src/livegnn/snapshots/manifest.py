"""The manifest of a snapshot: which tables, of which layers, lie in which objects.

A manifest is written once, under the number of its generation; two writers cannot write the same. The one
with the largest number counts. docs/snapshot_format.md has every byte. Immutable.
"""

import json
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias, cast

from livegnn.errors import FileFormatError, ObjectMissingError, SnapshotError
from livegnn.snapshots.objects import Objects
from livegnn.snapshots.stores import ObjectInfo
from livegnn.types import JSON

FORMAT = 1
FOLDER = "manifests"
"""The folder of the manifests of a store."""

Kind: TypeAlias = Literal["features", "ids", "in", "out", "both"]
KINDS: tuple[Kind, ...] = ("features", "ids", "in", "out", "both")

_MAGIC = b"livegnn-snapshot"
_ATTEMPTS = 5


class TableKey(NamedTuple):
    """The contents of a table: features or ids of a node type, or the lists of an edge type in a direction
    ("both" for an undirected one). type: the position of the type in the schema."""

    kind: Kind
    type: int

    def __str__(self) -> str:
        return f"{self.kind}-{self.type}"


class Section(NamedTuple):
    """Bytes of an object, and their CRC-32."""

    path: str
    offset: int
    length: int
    crc32: int


@dataclass(frozen=True)
class Table:
    """A table of one layer. rows: how many it has. changed: the section that lists which rows of the graph
    they are, ascending; None: row i is row i. entries: how many neighbours its lists have together.
    """

    rows: int
    changed: Section | None = None
    entries: int = 0
    sections: Mapping[str, Section] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Section]:
        """All sections."""
        if self.changed is not None:
            yield self.changed
        yield from self.sections.values()


@dataclass(frozen=True)
class Layer:
    """Tables that were written together: all of a graph (a base), or the rows that have changed (a delta).
    salt: a part of the checksum of each record, so that none is mistaken for a record of another layer."""

    kind: Literal["base", "delta"]
    salt: int
    tables: Mapping[TableKey, Table]

    @property
    def size(self) -> int:
        """Bytes of all its sections."""
        return sum(section.length for table in self.tables.values() for section in table)


@dataclass(frozen=True)
class Manifest:
    """generation: its number. seq: the event up to which the snapshot shows everything. chain: which writer's
    layers these are. nodes: for each node type, the rows (nodes and gaps) and the nodes. layers: the base,
    then deltas; a row counts as in the last layer that has it. schema: as `Schema.to_json` makes it.
    """

    generation: int
    seq: int
    chain: str
    schema: JSON
    nodes: tuple[tuple[int, int], ...]
    layers: tuple[Layer, ...]

    @property
    def path(self) -> str:
        """Its path in its store."""
        return path_of(self.generation)

    @property
    def size(self) -> int:
        """Bytes of everything that it names."""
        return sum(layer.size for layer in self.layers)

    def sections(self) -> Iterator[Section]:
        """Everything that it names."""
        for layer in self.layers:
            for table in layer.tables.values():
                yield from table

    def to_bytes(self) -> bytes:
        """As it is stored."""
        layers = [
            {
                "kind": layer.kind,
                "salt": layer.salt,
                "tables": [{**key._asdict(), **vars(table)} for key, table in layer.tables.items()],
            }
            for layer in self.layers
        ]
        content = {**vars(self), "layers": layers}  # a section is a list in it
        body = json.dumps(content, indent=1).encode()
        return b"%s %d %08x %d\n" % (_MAGIC, FORMAT, zlib.crc32(body), len(body)) + body

    @classmethod
    def from_bytes(cls, data: bytes, name: str) -> "Manifest":
        """The inverse of `to_bytes`; name: for messages. Raises `FileFormatError` for other bytes."""
        head, _, body = data.partition(b"\n")
        words = head.split(b" ")
        if len(words) != 4 or words[0] != _MAGIC:
            raise FileFormatError(f"{name} must be the manifest of a snapshot, got {data[:40]!r}: {_ANEW}")
        if words[1] != b"%d" % FORMAT:
            raise FileFormatError(
                f"{name} is of version {words[1].decode(errors='replace')}, this program reads {FORMAT}: "
                f"read it with the version of LiveGNN that wrote it, or {_ANEW}"
            )
        if words[2:] != [b"%08x" % zlib.crc32(body), b"%d" % len(body)]:
            raise FileFormatError(
                f"{name} is damaged: its {len(body):,} bytes have another checksum or length: {_ANEW}"
            )
        try:
            content = json.loads(body)
            return cls(
                int(content["generation"]),
                int(content["seq"]),
                str(content["chain"]),
                content["schema"],
                tuple((int(rows), int(count)) for rows, count in content["nodes"]),
                tuple(map(_to_layer, content["layers"])),
            )
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise FileFormatError(
                f"{name} must have the fields of a manifest, got {error!r}: {_ANEW}"
            ) from error


_ANEW = "write the snapshot again, with `livegnn snapshot write` or a view"


def path_of(generation: int) -> str:
    """The path of the manifest of this generation: the order of the paths is that of the generations."""
    return f"{FOLDER}/{generation:012d}"


def generation_of(path: str) -> int:
    """The inverse of `path_of`."""
    return int(path.rpartition("/")[2])


def list_manifests(objects: Objects, after: int = 0) -> list[ObjectInfo]:
    """The manifests of a store that are newer than generation `after`, the oldest first."""
    listed = objects.list(FOLDER, path_of(after) if after else "")
    return [item for item in listed if re.fullmatch(rf"{FOLDER}/\d{{12}}", item.path)]  # no other files


def read_newest_manifest(objects: Objects, after: int = 0) -> Manifest | None:
    """The newest manifest of a store; None if there is none newer than generation `after`.

    Raises `FileFormatError` if it is damaged.
    """
    for _ in range(_ATTEMPTS):
        listed = list_manifests(objects, after)
        if not listed:
            return None
        try:
            path, where = listed[-1].path, f"{listed[-1].path} in {objects.url}"
            manifest = Manifest.from_bytes(objects.get(path), where)
        except ObjectMissingError:
            continue  # a newer one was written, and this one was collected between the two requests
        if manifest.path != path:
            raise FileFormatError(
                f"{where} must be the manifest of that name, got the one of {manifest.path}: remove it"
            )
        return manifest
    raise SnapshotError(f"the manifests of {objects.url} vanish faster than they can be read: try again")


def read_past_damage(objects: Objects) -> tuple[Manifest | None, int]:
    """The newest manifest that can be read, None if none can; and the generation of the newest one if that
    cannot, else 0.
    """
    try:
        return read_newest_manifest(objects), 0
    except FileFormatError:
        listed = list_manifests(objects)
    for item in reversed(listed):
        try:
            manifest = Manifest.from_bytes(objects.get(item.path), item.path)
        except (FileFormatError, ObjectMissingError):
            continue
        if manifest.path == item.path:
            return manifest, 0 if item is listed[-1] else generation_of(listed[-1].path)
    return None, generation_of(listed[-1].path) if listed else 0


def _to_layer(data: Mapping[str, JSON]) -> Layer:
    kind = data["kind"]
    if kind not in ("base", "delta"):
        raise ValueError(f"a layer must be a base or a delta, got {kind!r}")
    tables = {}
    for table in cast("list[dict[str, JSON]]", data["tables"]):
        if table["kind"] not in KINDS:
            raise ValueError(f"expected a kind of table, got {table['kind']!r}")
        sections = cast("dict[str, JSON]", table["sections"])
        tables[TableKey(table["kind"], _whole(table["type"]))] = Table(
            _whole(table["rows"]),
            None if table["changed"] is None else _to_section(table["changed"]),
            _whole(table["entries"]),
            {name: _to_section(section) for name, section in sections.items()},
        )
    return Layer(cast("Literal['base', 'delta']", kind), _whole(data["salt"]), tables)


def _to_section(data: JSON) -> Section:
    path, offset, length, crc32 = cast("list[JSON]", data)
    if not isinstance(path, str):
        raise TypeError(f"expected the path of an object, got {path!r}")
    return Section(path, _whole(offset), _whole(length), _whole(crc32))


def _whole(value: JSON) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"expected a whole number, got {value!r}")
    return value
